//! Answers longer than what is kept of them: read on demand, over both protocols.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use wellhead_net::{CloseReason, HttpTransport, Protocol};
use wellhead_transport::{Rest, TransportErrorKind as Kind, WireReply};

use crate::h2::{Call, serve_h2};
use crate::support::*;

const LONG: usize = 3 << 20;
const WHOLE_MAX: usize = 100_000;

/// The long body: every byte tells its place.
fn long() -> Vec<u8> {
    (0..LONG as u32 / 4).flat_map(u32::to_le_bytes).collect()
}

/// Answers `long` with the long body, `cut` with half of what was announced, and
/// anything else with itself.
async fn serve_h1(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    while let Some(request) = read_request(&mut stream).await {
        let (length, body) = match request.body.as_str() {
            "long" => (LONG, long()),
            "cut" => (LONG, long()[..LONG / 2].to_vec()),
            other => (other.len(), other.as_bytes().to_vec()),
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        let answer = [head.as_bytes(), &body].concat();
        if stream.write_all(&answer).await.is_err() || body.len() < length {
            return;
        }
    }
}

async fn serve_h2_long(stream: impl AsyncRead + AsyncWrite + Unpin, resets: Arc<AtomicUsize>) {
    let handle = move |mut call: Call| {
        let resets = Arc::clone(&resets);
        async move {
            let Some(question) = call.body().await else { return };
            if question != "long" && question != "cut" {
                return call.answer(question);
            }
            let head = http::Response::new(());
            let mut stream = call.reply.send_response(head, false).expect("a stream");
            let mut body = Bytes::from(long());
            let end = if question == "cut" { LONG / 2 } else { 0 };
            while body.len() > end {
                stream.reserve_capacity(body.len() - end);
                match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                    Some(Ok(room)) => {
                        let piece = body.split_to(room.min(body.len() - end));
                        if stream.send_data(piece, body.is_empty()).is_err() {
                            break;
                        }
                    }
                    Some(Err(_)) | None => break,
                }
            }
            match body.len() {
                0 => {}
                _ if question == "cut" => stream.send_reset(h2::Reason::INTERNAL_ERROR),
                _ => _ = resets.fetch_add(1, SeqCst),
            }
        }
    };
    serve_h2(stream, handle, |_| {}, None).await;
}

async fn read_all(mut rest: Box<dyn Rest>) -> Result<Vec<u8>, Kind> {
    let mut read = Vec::new();
    while let Some(piece) = rest.next().await {
        let piece = piece.map_err(|error| error.kind)?;
        assert!(!piece.is_empty());
        read.extend_from_slice(&piece);
    }
    assert!(rest.next().await.is_none(), "the end stays the end");
    Ok(read)
}

async fn part(transport: &HttpTransport, question: &str) -> (Bytes, Box<dyn Rest>) {
    let WireReply { body, rest, .. } = ask_for_part(transport, question, WHOLE_MAX).await;
    // What came with it: over HTTP/2 as much as the window of a stream.
    let most = WHOLE_MAX + (576 << 10);
    assert!((WHOLE_MAX..most).contains(&body.len()), "{} bytes first", body.len());
    (body, rest.expect("more"))
}

/// What holds over either protocol.
async fn check(transport: &HttpTransport) {
    let short = ask_for_part(transport, "short", WHOLE_MAX).await;
    assert!(short.rest.is_none() && short.body == "short");
    for _ in 0..3 {
        let (first, rest) = part(transport, "long").await;
        let whole = [first.to_vec(), read_all(rest).await.expect("whole")].concat();
        assert!(whole == long());
    }
    let whole = ask_for_part(transport, "long", LONG).await;
    assert!(whole.rest.is_none() && whole.body == long());
    let (_, rest) = part(transport, "cut").await;
    assert_eq!(read_all(rest).await, Err(Kind::Truncated));
    assert_eq!(answer(transport, "and on").await, "and on");
}

#[tokio::test]
async fn over_h1() {
    let server = Server::start(|stream, _| serve_h1(stream)).await;
    let transport = Upstream::h1(&server).transport();
    check(&transport).await;
    assert_eq!(server.accepted(), 2, "only the cut answer cost its connection");

    // While one is read, another exchange needs another connection.
    let (_, rest) = part(&transport, "long").await;
    assert_eq!(answer(&transport, "meanwhile").await, "meanwhile");
    assert_eq!(server.accepted(), 3);
    drop(rest);
    let stats = transport.stats();
    assert_eq!(stats.closed(Protocol::H1, CloseReason::Abandoned), 1);
    assert_eq!(stats.open(Protocol::H1), 1);
}

#[tokio::test]
async fn over_h2() {
    let resets = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&resets);
    let server = Server::start(move |stream, _| serve_h2_long(stream, Arc::clone(&seen))).await;
    let upstream = Upstream::auto(&server).set(|s| s.h2_connections_max = 1);
    let transport = upstream.transport();
    check(&transport).await;

    // Many that are not read hold up neither each other nor other answers.
    let mut unread = Vec::new();
    for _ in 0..10 {
        unread.push(part(&transport, "long").await.1);
        assert_eq!(answer(&transport, "meanwhile").await, "meanwhile");
    }
    let read = read_all(unread.pop().expect("one of ten")).await.expect("whole");
    assert!(long().ends_with(&read));
    drop(unread);
    until("the streams are reset", || resets.load(SeqCst) == 9).await;
    assert_eq!(answer(&transport, "and on").await, "and on");
    assert_eq!(server.accepted(), 1);
}

/// The pieces of a body, and whether its length is announced.
type Plan = (Vec<Vec<u8>>, bool, u16);

fn plans() -> impl Strategy<Value = Plan> {
    let piece = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..50),
        1 => (1000..120_000usize).prop_map(|size| vec![b'x'; size]),
    ];
    let status = prop_oneof![4 => Just(200u16), 1 => Just(429), 1 => Just(503), 1 => Just(204)];
    (proptest::collection::vec(piece, 0..6), any::<bool>(), status)
}

async fn serve_plan(stream: tokio::net::TcpStream, plan: Arc<Plan>) {
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let plan = Arc::clone(&plan);
        async move {
            let _ = request.into_body().collect().await;
            let (pieces, announced, status) = &*plan;
            let body = if *announced {
                Full::new(Bytes::from(pieces.concat())).boxed()
            } else {
                let frames = pieces.clone().into_iter();
                let frames = frames.map(|p| Ok::<_, Infallible>(Frame::data(Bytes::from(p))));
                StreamBody::new(futures_util::stream::iter(frames)).boxed()
            };
            let mut response = hyper::Response::new(body);
            *response.status_mut() = hyper::StatusCode::from_u16(*status).expect("a status");
            Ok::<_, Infallible>(response)
        }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// What hyper's server writes is read as it was meant, whole or in part.
#[test]
fn a_real_server_is_understood() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut runner = TestRunner::new(Config::with_cases(60));
    let outcome = runner.run(&(plans(), 0..200_000usize), |(plan, whole_max)| {
        runtime.block_on(async {
            let plan = Arc::new(plan);
            let served = Arc::clone(&plan);
            let server = Server::start(move |s, _| serve_plan(s, Arc::clone(&served))).await;
            let transport = Upstream::h1(&server).transport();
            let (pieces, _, status) = &*plan;
            let meant = if *status == 204 { Vec::new() } else { pieces.concat() };
            for _ in 0..2 {
                let reply = ask_for_part(&transport, "question", whole_max).await;
                prop_assert_eq!(reply.status, *status);
                prop_assert_eq!(reply.rest.is_some(), meant.len() > whole_max);
                let mut read = reply.body.to_vec();
                if let Some(rest) = reply.rest {
                    read.extend(read_all(rest).await.expect("whole"));
                }
                prop_assert!(read == meant);
            }
            prop_assert_eq!(server.accepted(), 1);
            Ok(())
        })
    });
    outcome.expect("every answer is understood");
}
