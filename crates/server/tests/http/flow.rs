//! Answers that flow, as HTTP/1.1 frames them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use wellhead_server::{
    ClientHead, Handler, HttpAnswer, HttpRefusal, HttpRequest, Identified, Listener, Server,
    SessionHead, Settings, Shutdown,
};
use wellhead_transport::{BoxFuture, Pieces, Rest, Sent, TransportError, TransportErrorKind};

use crate::wire::Wire;

/// Answers `[` and then, piece by piece, what the path asks for.
struct Flowing;

const PIECES: usize = 3;
const PIECE_BYTES: usize = 64 * 1024;

/// How long a client may take nothing, and less than an upstream says nothing.
const WRITE_TIMEOUT: Duration = Duration::from_millis(50);
const SILENCE: Duration = Duration::from_millis(60);
const DROPS: usize = 5;

/// An upstream that is silent before each of its pieces.
#[derive(Debug)]
struct Dripping(usize);

impl Rest for Dripping {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(async {
            // The silence of the upstream is what is tested.
            tokio::time::sleep(SILENCE).await;
            self.0 = self.0.checked_sub(1)?;
            Some(Ok(Bytes::from_static(b"drop")))
        })
    }
}

impl Handler for Flowing {
    type Session = ();
    type Caller = ();

    fn identify(&self, _head: &ClientHead<'_>) -> Result<Identified<()>, HttpRefusal> {
        Ok(Identified::as_it_came(()))
    }

    fn open_session(&self, _caller: &(), _head: SessionHead<'_>) {}

    async fn handle_message(&self, _session: &Arc<()>, request: HttpRequest<()>) -> HttpAnswer {
        self.handle(request).await
    }

    async fn handle(&self, request: HttpRequest<()>) -> HttpAnswer {
        if request.path.chain() == Some("drip") {
            let body = Bytes::from_static(b"[").into();
            let rest: Box<dyn Rest> = Box::new(Dripping(DROPS));
            return HttpAnswer { status: 200, body, rest: Some(rest), ..HttpAnswer::default() };
        }
        let pieces = Pieces::of(Bytes::from(vec![b'x'; PIECES * PIECE_BYTES]));
        let rest = match request.path.chain() {
            Some("cut") => {
                let kind = TransportErrorKind::Truncated;
                pieces.then_fail(TransportError::new(kind, Sent::Maybe, String::new()))
            }
            _ => pieces,
        };
        let body = if request.path.flag("bare") { Bytes::new() } else { Bytes::from_static(b"[") };
        HttpAnswer {
            status: 200,
            body: body.into(),
            rest: Some(Box::new(rest)),
            ..HttpAnswer::default()
        }
    }
}

/// Everything that comes back for one request, and whether the end was a good one.
async fn asked(request: &str) -> (String, bool) {
    let server = Server::new(Settings::default());
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
    let address = listener.address();
    tokio::spawn(async move { server.serve(listener, Arc::new(Flowing), &Shutdown::new()).await });
    let mut wire = Wire::connect(address).await;
    wire.send(request).await;
    let mut all = Vec::new();
    let ended = wire.stream.read_to_end(&mut all).await;
    (String::from_utf8(all).unwrap(), ended.is_ok())
}

fn expected_chunks(bare: bool) -> String {
    let piece = "x".repeat(PIECE_BYTES);
    let first = if bare { "" } else { "1\r\n[\r\n" };
    format!("{first}{}", format!("{PIECE_BYTES:x}\r\n{piece}\r\n").repeat(PIECES))
}

#[tokio::test]
async fn what_flows_is_sent_in_chunks() {
    for bare in [false, true] {
        let target = if bare { "/?bare" } else { "/" };
        let close = "connection: close";
        let request = format!("POST {target} HTTP/1.1\r\nhost: a\r\n{close}\r\n\r\n");
        let (all, _) = asked(&request).await;
        let (head, body) = all.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("transfer-encoding: chunked") && head.contains(close), "{head}");
        assert!(!head.contains("content-length"), "{head}");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(body == format!("{}0\r\n\r\n", expected_chunks(bare)));
    }
}

/// Without its last chunk an answer is not whole, and every client knows.
#[tokio::test]
async fn a_flow_that_is_cut_has_no_last_chunk() {
    let (all, _) = asked("POST /cut HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let (_, body) = all.split_once("\r\n\r\n").unwrap();
    // The end of a chunk is sent with the next one.
    assert!(format!("{body}\r\n") == expected_chunks(false), "{}", body.len());
}

#[tokio::test]
async fn an_old_client_gets_it_until_the_end_of_the_connection() {
    let (all, well) = asked("POST / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await;
    let (head, body) = all.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("connection: close") && !head.contains("chunked"), "{head}");
    assert!(body == format!("[{}", "x".repeat(PIECES * PIECE_BYTES)));
    assert!(well);
}

/// The end of the connection is the end of its answer, so a cut one is a reset.
#[tokio::test]
async fn an_old_client_is_reset_when_the_flow_is_cut() {
    let (_, well) = asked("POST /cut HTTP/1.0\r\n\r\n").await;
    assert!(!well);
}

/// It flows for far longer than twice the write timeout, while its client takes everything.
#[tokio::test]
async fn an_upstream_that_takes_its_time_costs_its_client_no_connection() {
    let settings = Settings {
        write_timeout: WRITE_TIMEOUT,
        stall_timeout: WRITE_TIMEOUT,
        ..Settings::default()
    };
    let server = Server::new(settings);
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
    let address = listener.address();
    let serving = Arc::clone(&server);
    tokio::spawn(async move { serving.serve(listener, Arc::new(Flowing), &Shutdown::new()).await });

    let mut wire = Wire::connect(address).await;
    wire.send("POST /drip HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    let mut all = String::new();
    wire.stream.read_to_string(&mut all).await.unwrap();
    let (_, body) = all.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, format!("1\r\n[\r\n{}0\r\n\r\n", "4\r\ndrop\r\n".repeat(DROPS)));

    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap();
    let request = Request::post("http://test/drip").body(Full::default()).unwrap();
    let answer = client.send_request(request).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, format!("[{}", "drop".repeat(DROPS)));
    assert_eq!(server.counts().hoarders_total, 0);
}
