//! HTTP/2 with prior knowledge.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::site::{ENDLESS_BYTES, GUARD, SOON, Site, big};
use wellhead_server::Settings;

type Client = SendRequest<Full<Bytes>>;

/// A client whose streams may receive `window` bytes before it must read.
async fn connect(site: &Site, window: u32) -> Client {
    let stream = TcpStream::connect(site.address).await.unwrap();
    let (client, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

fn post(target: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("http://test{target}")).body(Full::new(body.into())).unwrap()
}

async fn send(client: &mut Client, request: Request<Full<Bytes>>) -> Response<Incoming> {
    client.ready().await.unwrap();
    tokio::time::timeout(GUARD, client.send_request(request)).await.unwrap().unwrap()
}

async fn read(response: Response<Incoming>) -> (StatusCode, Bytes) {
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn calls_share_one_connection() {
    let site = Site::open(Settings::default());
    let mut client = connect(&site, 1 << 20).await;
    let mut answers = Vec::new();
    for n in 0..100 {
        client.ready().await.unwrap();
        answers.push(client.send_request(post(&format!("/c{n}"), "{}")));
    }
    for (n, answer) in answers.into_iter().enumerate() {
        let (status, body) = read(answer.await.unwrap()).await;
        assert_eq!((status, body), (StatusCode::OK, format!("\"c{n}\"").into()));
    }
    let counts = site.server.counts();
    assert_eq!((counts.http2_open, counts.http2_total, counts.http1_total), (1, 1, 0));
}

#[tokio::test]
async fn a_slow_answer_holds_up_no_other() {
    let site = Site::open(Settings::default());
    let mut client = connect(&site, 1 << 20).await;
    let slow = client.send_request(post("/wait", "1"));
    site.until_arrived(1).await;
    assert_eq!(read(send(&mut client, post("/", "2")).await).await.1, "2");
    site.handler.gate.add_permits(1);
    assert_eq!(read(slow.await.unwrap()).await.1, "1");
}

#[tokio::test]
async fn large_bodies_pass_both_ways() {
    let site = Site::open(Settings::default());
    let mut client = connect(&site, 1 << 20).await;
    let body = Bytes::from(vec![b' '; 5_000_000]);
    let (status, echo) = read(send(&mut client, post("/", body.clone())).await).await;
    assert_eq!(status, StatusCode::OK);
    assert!(echo == body);
    let response = send(&mut client, post("/big", "{}")).await;
    let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
    let (_, body) = read(response).await;
    assert_eq!(body.len(), length);
    assert!(body == big().concat());
}

#[tokio::test]
async fn what_a_handler_holds_is_dropped_when_its_answer_is_sent_or_its_client_is_gone() {
    let site = Site::open(Settings::default());
    let mut client = connect(&site, 1 << 20).await;
    let ask = async || send(&mut client, post("/endless", "{}")).await;
    let read = async |answer: &mut Response<Incoming>| {
        let body = answer.body_mut().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), ENDLESS_BYTES);
    };
    site.held_until_sent(ask, read).await;
}

#[tokio::test]
async fn refusals_end_a_stream_and_not_the_connection() {
    let site = Site::open(Settings { body_bytes_max: 1000, ..Settings::default() });
    let mut client = connect(&site, 1 << 20).await;
    for (request, status) in [
        (post("/1/2", "{}"), 404),
        (post("/", vec![b' '; 1001]), 413),
        (post("/panic", "{}"), 500),
        (Request::get("http://test/").body(Full::default()).unwrap(), 405),
    ] {
        let response = send(&mut client, request).await;
        assert_eq!(response.status().as_u16(), status);
        assert!(!response.headers().contains_key("connection"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(json["jsonrpc"], "2.0");
    }
    assert_eq!(read(send(&mut client, post("/", "{}")).await).await.0, StatusCode::OK);
    assert_eq!(site.server.counts().accepted_total, 1);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_431() {
    let site = Site::open(Settings { head_bytes_max: 2048, ..Settings::default() });
    let mut client = connect(&site, 1 << 20).await;
    let mut request = post("/", "{}");
    request.headers_mut().insert("x", "y".repeat(3000).parse().unwrap());
    // Our client heeds the bound that the server announced; either way the handler sees nothing.
    client.ready().await.unwrap();
    match client.send_request(request).await {
        Ok(response) => assert_eq!(response.status().as_u16(), 431),
        Err(error) => assert!(!error.is_timeout(), "{error}"),
    }
    assert_eq!(site.handler.arrived.load(Ordering::Relaxed), 0);
    let mut client = connect(&site, 1 << 20).await;
    assert_eq!(read(send(&mut client, post("/", "{}")).await).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_cancelled_call_is_abandoned() {
    let site = Site::open(Settings::default());
    let mut client = connect(&site, 1 << 20).await;
    let waiting = client.send_request(post("/wait", "{}"));
    site.until_arrived(1).await;
    drop(waiting);
    site.until("the request is abandoned", |counts| counts.requests_open == 0).await;
    assert_eq!(site.handler.abandoned.load(Ordering::Relaxed), 1);
    assert_eq!(site.server.counts().http2_open, 1);
}

#[tokio::test]
async fn a_stream_that_is_not_read_is_reset_and_its_neighbours_live() {
    let site = Site::open(Settings { write_timeout: SOON, ..Settings::default() });
    let mut client = connect(&site, 100_000).await;
    let unread = send(&mut client, post("/endless", "{}")).await;
    site.until("the stream is given up", |counts| counts.slow_reader_total == 1).await;
    assert!(unread.into_body().collect().await.is_err(), "a cut answer shows");
    assert_eq!(read(send(&mut client, post("/", "{}")).await).await.0, StatusCode::OK);
    site.until("its answer is let go", |counts| counts.requests_open == 0).await;
    assert_eq!(site.server.counts().http2_open, 1);
}

#[tokio::test]
async fn an_idle_connection_is_told_to_go() {
    let site = Site::open(Settings { idle_timeout: SOON, ..Settings::default() });
    let mut client = connect(&site, 1 << 20).await;
    assert_eq!(read(send(&mut client, post("/", "{}")).await).await.0, StatusCode::OK);
    site.until("it is closed", |counts| counts.idle_closed_total == 1).await;
    assert_eq!(site.server.counts().connections_open, 0);
}

#[tokio::test]
async fn draining_finishes_what_is_under_way() {
    let site = Site::open(Settings::default());
    let mut client = connect(&site, 1 << 20).await;
    let waiting = client.send_request(post("/wait", "{}"));
    let mut idle = connect(&site, 1 << 20).await;
    assert_eq!(read(send(&mut idle, post("/", "{}")).await).await.0, StatusCode::OK);
    site.until_arrived(2).await;
    site.shutdown.begin();
    site.until("the idle one is gone", |counts| counts.http2_open == 1).await;
    site.handler.gate.add_permits(1);
    assert_eq!(read(waiting.await.unwrap()).await.0, StatusCode::OK);
    assert_eq!(site.drained().await.dropped, 0);
}

/// The "rapid reset" attack: open a stream, reset it, again and again. The
/// handler is kept busy by little of it, and the connection ends.
#[tokio::test]
async fn a_flood_of_resets_ends_the_connection() {
    let site = Site::open(Settings::default());
    let stream = TcpStream::connect(site.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let flood = async {
        for _ in 0..100_000 {
            client = client.clone().ready().await?;
            let request = Request::post("http://test/wait").body(()).unwrap();
            let (_, mut stream) = client.send_request(request, true)?;
            stream.send_reset(h2::Reason::CANCEL);
            tokio::task::yield_now().await;
        }
        Ok::<_, h2::Error>(())
    };
    let ended = tokio::time::timeout(GUARD, flood).await.expect("it ends by itself");
    let reason = ended.unwrap_err().reason();
    assert!(matches!(reason, Some(h2::Reason::ENHANCE_YOUR_CALM) | None), "{reason:?}");
    assert!(connection.await.unwrap().is_err());
    site.until("nothing is left of it", |counts| counts.connections_open == 0).await;
    site.until("nothing is left of it", |counts| counts.requests_open == 0).await;
    assert_eq!(site.server.counts().floods_total, 1);
}
