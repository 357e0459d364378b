//! HTTP/1.1: reuse, bounds, cancelling, and every way an answer can go wrong.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, Semaphore, mpsc};
use wellhead_net::{Auth, CloseReason, Endpoint, HttpVersion, Protocol};
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_transport::{Sent, Transport as _, TransportErrorKind as Kind};

use crate::support::*;

#[tokio::test]
async fn one_connection_serves_one_exchange_after_the_other() {
    let server = Server::start(|stream, _| echo(stream)).await;
    let transport = Upstream::h1(&server).transport();
    for nth in 0..5 {
        let question = format!("question {nth}");
        let reply = ask(&transport, &question).await.expect("an answer");
        assert_eq!((reply.status, &reply.body[..]), (200, question.as_bytes()));
        assert_eq!(reply.timing.reused, nth > 0);
        assert_eq!(reply.timing.connect.is_zero(), nth > 0);
        assert!(reply.timing.total >= reply.timing.first_byte);
        assert!(!reply.timing.first_byte.is_zero());
    }
    assert_eq!(server.accepted(), 1);
    let stats = transport.stats();
    assert_eq!((stats.opened(Protocol::H1), stats.open(Protocol::H1)), (1, 1));
    assert_eq!(transport.protocol(), Some(Protocol::H1));
}

/// Answers a request only when a permit is given.
async fn gated() -> (Server, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let server = Server::start(move |mut stream, _| {
        let gate = Arc::clone(&opened);
        async move {
            while let Some(request) = read_request(&mut stream).await {
                gate.acquire().await.expect("never closed").forget();
                if stream.write_all(ok(&request.body).as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (server, gate)
}

#[tokio::test]
async fn connections_are_bounded_and_the_rest_waits_in_order() {
    let (server, gate) = gated().await;
    let transport = Upstream::h1(&server).set(|s| s.connections_max = 2).transport();
    let asked: Vec<_> = (0..6).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    let stats = Arc::clone(transport.stats());
    until("two sent, four waiting", || stats.waiting() == 4 && server.accepted() == 2).await;
    gate.add_permits(6);
    for (n, asked) in asked.into_iter().enumerate() {
        let reply = asked.await.expect("no panic").expect("an answer");
        assert_eq!(reply.body, format!("q{n}"));
        assert!(n < 2 || !reply.timing.queued.is_zero(), "q{n} waited");
    }
    assert_eq!((server.accepted(), stats.waiting()), (2, 0));
}

#[tokio::test]
async fn a_full_queue_is_an_answer_and_leaving_it_makes_room() {
    let (server, gate) = gated().await;
    let upstream = Upstream::h1(&server).set(|s| {
        s.connections_max = 1;
        s.queue_max = 1;
    });
    let transport = upstream.transport();
    let first = ask_aside(&transport, "first");
    let stats = Arc::clone(transport.stats());
    until("the first is sent", || stats.waiting() == 0 && stats.open(Protocol::H1) == 1).await;
    let second = ask_aside(&transport, "second");
    until("the second waits", || stats.waiting() == 1).await;
    assert_eq!(fails(&transport, "third").await, (Kind::PoolFull, Sent::No));
    second.abort();
    until("the second has left", || stats.waiting() == 0).await;
    let fourth = ask_aside(&transport, "fourth");
    until("the fourth waits", || stats.waiting() == 1).await;
    gate.add_permits(2);
    for asked in [first, fourth] {
        assert!(asked.await.expect("no panic").is_ok());
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn room_is_told_beforehand_and_long_answers_have_half_of_it() {
    let (server, gate) = gated().await;
    let transport = Upstream::h1(&server).set(|s| s.connections_max = 5).transport();
    let room = || (transport.has_room(false), transport.has_room(true));
    assert_eq!(room(), (true, true));
    let mut asked: Vec<_> =
        (0..3).map(|n| ask_bulky_aside(&transport, &format!("bulky{n}"))).collect();
    until("the bulky ones have their share", || !transport.has_room(true)).await;
    assert_eq!(room(), (true, false));
    asked.extend((0..2).map(|n| ask_aside(&transport, &format!("plain{n}"))));
    until("all connections are taken", || !transport.has_room(false)).await;
    // What is given up makes room, of its own kind as well.
    asked[0].abort();
    until("one is free", || room() == (true, true)).await;
    // The server does not know that one was given up.
    gate.add_permits(5);
    for answer in asked.drain(1..) {
        assert!(answer.await.expect("no panic").is_ok());
    }
    assert_eq!((room(), transport.stats().waiting()), ((true, true), 0));
}

#[tokio::test]
async fn a_waiter_leaves_the_queue_at_its_deadline() {
    let (server, gate) = gated().await;
    let transport = Upstream::h1(&server).set(|s| s.connections_max = 1).transport();
    let first = ask_aside(&transport, "first");
    let stats = Arc::clone(transport.stats());
    until("the first is sent", || stats.waiting() == 0 && stats.open(Protocol::H1) == 1).await;
    let late = ask_within(&transport, "late", Duration::from_millis(20)).await;
    let error = late.expect_err("too late");
    assert_eq!((error.kind, error.sent), (Kind::Timeout, Sent::No));
    assert_eq!(stats.waiting(), 0);
    gate.add_permits(1);
    assert!(first.await.expect("no panic").is_ok());
    let past = ask_within(&transport, "past", Duration::ZERO).await.expect_err("no time");
    assert_eq!((past.kind, past.sent), (Kind::Timeout, Sent::No));
}

#[tokio::test]
async fn an_abandoned_exchange_ends_its_connection() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::start_with_first(|mut stream| async move {
        let request = read_request(&mut stream).await.expect("a request");
        tell.send(request.body).expect("listening");
        closed(&mut stream).await;
        tell.send("closed".to_owned()).expect("listening");
    })
    .await;
    let transport = Upstream::h1(&server).transport();
    let abandoned = ask_aside(&transport, "abandoned");
    assert_eq!(told.recv().await.as_deref(), Some("abandoned"));
    abandoned.abort();
    assert_eq!(told.recv().await.as_deref(), Some("closed"));
    assert_eq!(answer(&transport, "next").await, "next");
    assert_eq!(server.accepted(), 2);
    assert_eq!(transport.stats().closed(Protocol::H1, CloseReason::Abandoned), 1);
}

#[tokio::test]
async fn a_deadline_inside_the_body_ends_the_connection() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::start_with_first(|mut stream| async move {
        read_request(&mut stream).await.expect("a request");
        write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc").await;
        closed(&mut stream).await;
        tell.send(()).expect("listening");
    })
    .await;
    let transport = Upstream::h1(&server).transport();
    let slow = ask_within(&transport, "slow", Duration::from_millis(50)).await;
    let error = slow.expect_err("too slow");
    assert_eq!((error.kind, error.sent), (Kind::Timeout, Sent::Maybe));
    told.recv().await.expect("the server saw the end");
    assert_eq!(answer(&transport, "next").await, "next");
}

/// The failure when the server reads a request and writes `answer` before it closes.
async fn broken(answer: &'static str) -> (Kind, Sent) {
    let server = Server::start(move |mut stream, _| async move {
        read_request(&mut stream).await.expect("a request");
        write(&mut stream, answer).await;
    })
    .await;
    let url = format!("{}SECRET?key=SECRET", server.url());
    let mut upstream = Upstream::new(&url, HttpVersion::H1);
    upstream.endpoint.auth = Auth::Bearer(Secret::new("SECRET"));
    upstream.settings.answer_bytes_max = 100;
    let failure = fails(&upstream.transport(), "question").await;
    assert_eq!(server.accepted(), 1, "what may have been executed is not repeated");
    failure
}

#[tokio::test]
async fn broken_answers_are_told_apart() {
    for (answer, kind) in [
        ("", Kind::Closed),
        ("HTTP/1.1 200", Kind::Truncated),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n", Kind::Truncated),
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", Kind::Protocol),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", Kind::Truncated),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", Kind::Truncated),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", Kind::Truncated),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", Kind::Protocol),
        ("HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n", Kind::TooLarge),
        ("HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 3\r\n\r\nabc", Kind::Protocol),
    ] {
        assert_eq!(broken(answer).await, (kind, Sent::Maybe), "{answer}");
    }
}

#[tokio::test]
async fn a_reset_is_a_closed_connection() {
    let server = Server::start(|mut stream, _| async move {
        read_request(&mut stream).await.expect("a request");
        #[allow(deprecated, reason = "a reset needs it")]
        stream.set_linger(Some(Duration::ZERO)).expect("set");
    })
    .await;
    let transport = Upstream::h1(&server).transport();
    assert_eq!(fails(&transport, "question").await, (Kind::Closed, Sent::Maybe));
}

#[tokio::test]
async fn a_dead_port_fails_every_waiting_call_at_once() {
    let dead = DeadPort::new();
    let upstream = Upstream::new(&format!("http://{}/", dead.address), HttpVersion::H1);
    let transport = upstream.transport();
    let asked: Vec<_> = (0..50).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    for asked in asked {
        let error = asked.await.expect("no panic").expect_err("refused");
        assert_eq!((error.kind, error.sent), (Kind::Connect, Sent::No));
    }
    assert!(transport.stats().connect_failed() >= 1);
    assert_eq!(transport.stats().waiting(), 0);
}

#[tokio::test]
async fn connection_close_is_honoured() {
    let server = Server::start(|mut stream, _| async move {
        let request = read_request(&mut stream).await.expect("a request");
        let answer = ok(&request.body).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        write(&mut stream, answer).await;
        closed(&mut stream).await;
    })
    .await;
    let transport = Upstream::h1(&server).transport();
    for question in ["a", "b", "c"] {
        assert_eq!(answer(&transport, question).await, question);
    }
    assert_eq!(server.accepted(), 3);
    assert_eq!(transport.stats().resent(), 0);
}

#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_whole() {
    let server = Server::start(|mut stream, _| async move {
        read_request(&mut stream).await.expect("a request");
        write(&mut stream, "HTTP/1.0 200 OK\r\n\r\nall of it").await;
    })
    .await;
    let transport = Upstream::h1(&server).transport();
    assert_eq!(answer(&transport, "question").await, "all of it");
}

/// The server closes while the connection lies idle and its task has not yet
/// noticed: nothing of the request was written, so it is sent again.
#[tokio::test]
async fn a_stale_connection_costs_one_more_try_and_no_failure() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let (close, may_close) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let server = std::thread::spawn(move || {
        for nth in 0..2 {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut read = [0; 4096];
            let _ = std::io::Read::read(&mut stream, &mut read).expect("a request");
            stream.write_all(ok(&format!("answer {nth}")).as_bytes()).expect("written");
            may_close.recv().expect("told");
            drop(stream);
            tell.send(()).expect("listening");
        }
    });
    let upstream = Upstream::new(&format!("http://{address}/"), HttpVersion::H1);
    let transport = upstream.transport();
    assert_eq!(answer(&transport, "one").await, "answer 0");
    close.send(()).expect("alive");
    told.recv().expect("closed");
    // The runtime now learns of the end, but this task runs before the connection's.
    tokio::task::yield_now().await;
    assert_eq!(answer(&transport, "two").await, "answer 1");
    assert_eq!(transport.stats().resent(), 1);
    close.send(()).expect("alive");
    server.join().expect("no panic");
}

#[tokio::test]
async fn an_early_answer_leaves_no_stuck_connection() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let go_on = Arc::new(Notify::new());
    let may_go_on = Arc::clone(&go_on);
    let server = Server::start_with_first(|mut stream| async move {
        // Reads nothing of the body, as a server does that finds it too large.
        stream.read_exact(&mut [0; 10]).await.expect("a request comes");
        let refusal = "HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno";
        write(&mut stream, refusal).await;
        may_go_on.notified().await;
        closed(&mut stream).await;
        tell.send(()).expect("listening");
    })
    .await;
    let transport = Upstream::h1(&server).transport();
    let large = "x".repeat(16 << 20);
    let reply = ask(&transport, &large).await.expect("a refusal");
    assert_eq!((reply.status, &reply.body[..]), (413, &b"no"[..]));
    assert_eq!(answer(&transport, "next").await, "next");
    assert_eq!(server.accepted(), 2, "the stuck connection is not used");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3)).await;
    let stats = Arc::clone(transport.stats());
    until("the stuck one is ended", || stats.closed(Protocol::H1, CloseReason::Stuck) == 1).await;
    tokio::time::resume();
    go_on.notify_one();
    told.recv().await.expect("the server saw the end");
}

/// A server that echoes, and tells when a connection has ended.
async fn echo_until_closed() -> (Server, mpsc::UnboundedReceiver<()>) {
    let (tell, ends) = mpsc::unbounded_channel();
    let server = Server::start(move |stream, _| {
        let tell = tell.clone();
        async move {
            echo(stream).await;
            tell.send(()).expect("listening");
        }
    });
    (server.await, ends)
}

/// The reasons for which a connection was closed after `wait` of idleness.
async fn after_idling(wait: Duration, idle: Duration, age_max: Duration) -> CloseReason {
    let (server, mut ends) = echo_until_closed().await;
    let upstream = Upstream::h1(&server).set(|s| {
        s.idle = idle;
        s.age_max = age_max;
    });
    let transport = upstream.transport();
    assert_eq!(answer(&transport, "question").await, "question");
    tokio::time::pause();
    tokio::time::advance(wait).await;
    ends.recv().await.expect("the server saw the end");
    tokio::time::resume();
    let stats = Arc::clone(transport.stats());
    until("counted", || stats.open(Protocol::H1) == 0).await;
    let mut reasons = CloseReason::ALL.into_iter();
    reasons.find(|r| stats.closed(Protocol::H1, *r) == 1).expect("one reason")
}

#[tokio::test]
async fn unused_and_old_connections_are_closed_without_being_asked() {
    let minute = Duration::from_secs(60);
    assert_eq!(after_idling(minute * 2, minute, minute * 60).await, CloseReason::Idle);
    assert_eq!(after_idling(minute * 2, minute * 60, minute).await, CloseReason::Replaced);
}

#[tokio::test]
async fn dropping_the_transport_closes_its_connections() {
    let (server, mut ends) = echo_until_closed().await;
    let upstream = Upstream::h1(&server);
    let transport = upstream.transport();
    assert_eq!(answer(&transport, "question").await, "question");
    drop(transport);
    ends.recv().await.expect("the server saw the end");
    let stats = &upstream.shared.stats;
    until("counted", || stats.closed(Protocol::H1, CloseReason::Shutdown) == 1).await;
}

#[tokio::test]
async fn requests_carry_what_the_endpoint_says() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::start(move |mut stream, _| {
        let tell = tell.clone();
        async move {
            while let Some(request) = read_request(&mut stream).await {
                write(&mut stream, ok("")).await;
                tell.send(request).expect("listening");
            }
        }
    })
    .await;
    let url = format!("http://user:pass@{}/v2/key?a=b", server.address);
    let mut upstream = Upstream::new(&url, HttpVersion::H1);
    upstream.endpoint.headers = vec![("X-Api-Key".to_owned(), Secret::new("k"))];
    upstream.settings.compression = Some(true);
    ask(&upstream.transport(), "body!").await.expect("an answer");
    let request = told.recv().await.expect("a request");
    let host = format!("host: {}", server.address);
    for line in [
        "post /v2/key?a=b http/1.1",
        host.as_str(),
        "content-type: application/json",
        "accept-encoding: gzip, deflate",
        "content-length: 5",
        "authorization: basic dxnlcjpwyxnz",
        "x-api-key: k",
    ] {
        assert!(request.head.lines().any(|l| l == line), "{line} is not in {}", request.head);
    }
    assert_eq!(request.body, "body!");

    upstream.endpoint.auth = Auth::Bearer(Secret::new("token"));
    ask(&upstream.transport(), "").await.expect("an answer");
    let request = told.recv().await.expect("a request");
    assert!(request.head.contains("authorization: bearer token"), "{}", request.head);

    // A trace goes along to a peer that may know of it.
    let line = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    ask_in_trace(&upstream.transport(), "body!", &line[13..]).await.expect("an answer");
    let request = told.recv().await.expect("a request");
    assert!(!request.head.contains("traceparent"), "{}", request.head);
    upstream.settings.propagate_trace = true;
    ask_in_trace(&upstream.transport(), "body!", &line[13..]).await.expect("an answer");
    let request = told.recv().await.expect("a request");
    assert!(request.head.lines().any(|l| l == line), "{}", request.head);
    assert_eq!(request.body, "body!");
}

#[tokio::test]
async fn status_and_retry_after_reach_the_caller() {
    let server = Server::start(|mut stream, _| async move {
        while let Some(request) = read_request(&mut stream).await {
            let head = format!("HTTP/1.1 429 Slow Down\r\nretry-after: {}\r\n", request.body);
            let date = "date: Wed, 21 Oct 2015 07:28:00 GMT\r\ncontent-length: 4\r\n\r\nslow";
            write(&mut stream, head + date).await;
        }
    })
    .await;
    let transport = Upstream::h1(&server).transport();
    for (written, meant) in [
        ("7", Some(7)),
        ("Wed, 21 Oct 2015 07:29:00 GMT", Some(60)),
        ("Wed, 21 Oct 2015 07:00:00 GMT", Some(0)),
        ("later", None),
    ] {
        let reply = ask(&transport, written).await.expect("an answer");
        assert_eq!((reply.status, &reply.body[..]), (429, &b"slow"[..]));
        assert_eq!(reply.retry_after, meant.map(Duration::from_secs), "{written}");
    }
}

#[tokio::test]
async fn compressed_answers_are_undone() {
    let server = Server::start(|mut stream, _| async move {
        while let Some(request) = read_request(&mut stream).await {
            let mut packer =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            packer.write_all(request.body.as_bytes()).expect("in memory");
            let packed = packer.finish().expect("in memory");
            let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked";
            write(&mut stream, format!("{head}\r\n\r\n")).await;
            for piece in packed.chunks(100) {
                write(&mut stream, format!("{:x}\r\n", piece.len())).await;
                write(&mut stream, piece).await;
                write(&mut stream, "\r\n").await;
            }
            write(&mut stream, "0\r\n\r\n").await;
        }
    })
    .await;
    let upstream = Upstream::h1(&server).set(|s| s.answer_bytes_max = 1 << 20);
    let transport = upstream.transport();
    let question: String = (0..20_000).map(|n| n.to_string()).collect();
    assert_eq!(answer(&transport, &question).await, question);
    let bomb = "0".repeat((1 << 20) + 1);
    assert_eq!(fails(&transport, &bomb).await, (Kind::TooLarge, Sent::Maybe));
    assert_eq!(answer(&transport, "still well").await, "still well");
}

#[tokio::test]
async fn large_answers_arrive_whole() {
    let server = Server::start(|mut stream, _| async move {
        while let Some(request) = read_request(&mut stream).await {
            write(&mut stream, ok(&request.body.repeat(10_000))).await;
        }
    })
    .await;
    let transport = Upstream::h1(&server).transport();
    let question = "0123456789".repeat(100);
    assert!(answer(&transport, &question).await == question.repeat(10_000));
    assert_eq!(answer(&transport, "x").await, "x".repeat(10_000));
    assert_eq!(server.accepted(), 1);
}

#[test]
fn nothing_prints_a_secret() {
    let mut endpoint =
        Endpoint::new(SecretUrl::parse("https://u:SECRET@a/SECRET?k=SECRET").expect("a URL"));
    endpoint.headers = vec![("x-key".to_owned(), Secret::new("SECRET"))];
    let mut upstream = Upstream::new("https://a/", HttpVersion::Auto);
    upstream.endpoint = endpoint;
    let transport = upstream.transport();
    for text in [format!("{:?}", upstream.endpoint), format!("{transport:?}")] {
        assert!(!text.contains("SECRET"), "{text}");
    }
}
