//! Plain text: is it HTTP/2? No exchange may fail because the question was asked.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use wellhead_net::{HttpVersion, Protocol};
use wellhead_transport::{Sent, TransportErrorKind as Kind};

use crate::h2::{Call, echo_h2, serve_h2};
use crate::support::*;

/// How an HTTP/1.1 server takes the HTTP/2 preface.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Refuses,
    Closes,
    Resets,
    KeepsSilent,
    RefusesAndStays,
}

/// An HTTP/1.1 echo with `manner` towards HTTP/2.
async fn h1_only(mut stream: TcpStream, manner: Manner) {
    let mut opening = [0; 3];
    stream.peek(&mut opening).await.expect("bytes");
    if &opening != b"PRI" {
        return echo(stream).await;
    }
    let refusal = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    match manner {
        Manner::Refuses => {
            let mut rest = [0; 24];
            stream.read_exact(&mut rest).await.expect("the preface");
            write(&mut stream, refusal).await;
        }
        Manner::RefusesAndStays => {
            write(&mut stream, refusal).await;
            closed(&mut stream).await;
        }
        Manner::Closes => {
            let mut rest = [0; 24];
            stream.read_exact(&mut rest).await.expect("the preface");
        }
        // Unread bytes make it a reset.
        Manner::Resets => {}
        Manner::KeepsSilent => closed(&mut stream).await,
    }
}

async fn check_h1_only(manner: Manner) {
    let server = Server::start(move |stream, _| h1_only(stream, manner)).await;
    let upstream = Upstream::auto(&server).set(|s| s.detect_timeout = Duration::from_millis(30));
    let transport = upstream.transport();
    assert_eq!(transport.protocol(), None);
    for question in ["first", "second", "third"] {
        assert_eq!(answer(&transport, question).await, question, "{manner:?}");
    }
    assert_eq!(transport.protocol(), Some(Protocol::H1), "{manner:?}");
    assert_eq!(server.accepted(), 2, "one to ask, one to use: {manner:?}");
    assert_eq!(transport.stats().opened(Protocol::H2), 0);

    // Another worker profits from what this one learnt.
    assert_eq!(answer(&upstream.transport(), "other").await, "other");
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn a_server_that_answers_400() {
    check_h1_only(Manner::Refuses).await;
}

#[tokio::test]
async fn a_server_that_answers_400_and_keeps_the_connection() {
    check_h1_only(Manner::RefusesAndStays).await;
}

#[tokio::test]
async fn a_server_that_closes() {
    check_h1_only(Manner::Closes).await;
}

#[tokio::test]
async fn a_server_that_resets() {
    check_h1_only(Manner::Resets).await;
}

#[tokio::test]
async fn a_server_that_keeps_silent() {
    check_h1_only(Manner::KeepsSilent).await;
}

#[tokio::test]
async fn a_server_of_h2c_is_used_on_the_connection_that_asked() {
    let server = Server::start(|stream, _| echo_h2(stream)).await;
    let transport = Upstream::auto(&server).transport();
    for question in ["first", "second", "third"] {
        assert_eq!(answer(&transport, question).await, question);
    }
    assert_eq!(transport.protocol(), Some(Protocol::H2));
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn the_first_burst_waits_for_one_answer_only() {
    let server = Server::start(|stream, _| h1_only(stream, Manner::Refuses)).await;
    let transport = Upstream::auto(&server).transport();
    let asked: Vec<_> = (0..20).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    for (n, asked) in asked.into_iter().enumerate() {
        assert_eq!(asked.await.expect("no panic").expect("an answer").body, format!("q{n}"));
    }
    assert!(server.accepted() <= 22, "one to ask and one for each: {}", server.accepted());
}

#[tokio::test]
async fn another_server_at_the_same_address_is_asked_again() {
    let server = Server::start(|stream, _| echo_h2(stream)).await;
    let address = server.address;
    let transport = Upstream::auto(&server).transport();
    assert_eq!(answer(&transport, "h2").await, "h2");
    server.stop().await;
    let stats = transport.stats();
    until("the end is seen", || stats.open(Protocol::H2) == 0).await;
    assert_eq!(fails(&transport, "unreachable").await, (Kind::Connect, Sent::No));
    assert_eq!(transport.protocol(), None, "unreachable: nothing is known any more");

    let server = Server::start_at(address, |stream, _| h1_only(stream, Manner::Closes)).await;
    assert_eq!(answer(&transport, "h1").await, "h1");
    assert_eq!(transport.protocol(), Some(Protocol::H1));
    server.stop().await;
    until("the end is seen", || stats.open(Protocol::H1) == 0).await;
    assert_eq!(fails(&transport, "unreachable").await, (Kind::Connect, Sent::No));

    let _server = Server::start_at(address, |stream, _| echo_h2(stream)).await;
    assert_eq!(answer(&transport, "h2 again").await, "h2 again");
    assert_eq!(transport.protocol(), Some(Protocol::H2));
}

#[tokio::test]
async fn a_server_replaced_unseen_costs_no_failure() {
    let server = Server::start(|stream, nth| async move {
        if nth > 0 {
            return h1_only(stream, Manner::Refuses).await;
        }
        let handle = |mut call: Call| async move {
            let body = call.body().await.expect("whole");
            call.answer(body);
        };
        serve_h2(stream, handle, |_| {}, Some(1)).await;
    })
    .await;
    let transport = Upstream::auto(&server).transport();
    assert_eq!(answer(&transport, "by h2").await, "by h2");
    assert_eq!(transport.protocol(), Some(Protocol::H2));
    let stats = transport.stats();
    until("the first server is gone", || stats.open(Protocol::H2) == 0).await;
    assert_eq!(answer(&transport, "by h1").await, "by h1");
    assert_eq!(transport.protocol(), Some(Protocol::H1));
    assert_eq!((stats.resent(), stats.connect_failed()), (0, 0));
}

#[tokio::test]
async fn a_peer_that_leaves_at_once_is_a_failure_and_not_asked_for_ever() {
    let server = Server::start(|stream, _| async move {
        serve_h2(stream, |call| async { drop(call) }, |_| {}, Some(0)).await;
    })
    .await;
    let transport = Upstream::auto(&server).transport();
    let (_, sent) = fails(&transport, "question").await;
    assert_eq!(sent, Sent::No);
    assert!(server.accepted() <= 2, "{} connections", server.accepted());
}

#[tokio::test]
async fn what_is_configured_is_not_asked() {
    let server = Server::start(|stream, _| h1_only(stream, Manner::Refuses)).await;
    let transport = Upstream::new(&server.url(), HttpVersion::H2).transport();
    assert_eq!(fails(&transport, "question").await, (Kind::Protocol, Sent::No));
    let transport = Upstream::new(&server.url(), HttpVersion::H1).transport();
    assert_eq!(answer(&transport, "question").await, "question");
    assert_eq!(server.accepted(), 2);
}
