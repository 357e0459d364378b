//! WebSocket: a feed of heads as geth sends it, and peers that fail.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{WebSocketStream, accept_async, accept_hdr_async};
use wellhead_net::{Auth, Endpoint, FeedSettings, Resolver, TlsClient, TrustedRoots, WsClient};
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_transport::feed::{Feed, FeedConnector as _};
use wellhead_transport::{Sent, TransportError, TransportErrorKind as Kind};

use crate::support::*;
use crate::tls::Authority;

const SUBSCRIBE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#;

fn client(url: &str, settings: FeedSettings, tls: &TlsClient) -> WsClient {
    let mut endpoint = Endpoint::new(SecretUrl::parse(url).expect("a URL"));
    endpoint.auth = Auth::Bearer(Secret::new("SECRET"));
    endpoint.headers = vec![("x-api-key".to_owned(), Secret::new("SECRET"))];
    WsClient::new(&endpoint, settings, Arc::new(Resolver::new()), tls).expect("usable")
}

fn plain(server: &Server, settings: FeedSettings) -> WsClient {
    let tls = TlsClient::new(TrustedRoots::Public).expect("a TLS client");
    client(&format!("ws://{}/ws/SECRET", server.address), settings, &tls)
}

async fn heads<S: AsyncRead + AsyncWrite + Unpin>(mut peer: WebSocketStream<S>) {
    let asked = peer.next().await.expect("a message").expect("whole");
    assert_eq!(asked, Message::text(SUBSCRIBE));
    peer.send(Message::text(r#"{"id":1,"result":"0x9"}"#)).await.expect("sent");
    peer.send(Message::Ping(Bytes::from_static(b"there?"))).await.expect("sent");
    let answer = peer.next().await.expect("a message").expect("whole");
    assert_eq!(answer, Message::Pong(Bytes::from_static(b"there?")));
    for n in 1..=3 {
        peer.send(Message::text(format!("head {n}"))).await.expect("sent");
    }
    peer.close(None).await.expect("closed");
    while let Some(Ok(_)) = peer.next().await {}
}

async fn follow(client: &WsClient) {
    let mut feed = client.connect().await.expect("a connection");
    feed.send(Bytes::from_static(SUBSCRIBE.as_bytes())).await.expect("sent");
    for expected in [r#"{"id":1,"result":"0x9"}"#, "head 1", "head 2", "head 3"] {
        assert_eq!(feed.next().await.expect("a message").expect("whole"), expected);
    }
    assert!(feed.next().await.is_none(), "closed in good order");
}

#[tokio::test]
async fn heads_are_followed_until_the_peer_closes() {
    let server = Server::start(|stream, _| async move {
        #[allow(clippy::result_large_err, reason = "the library's own type")]
        let check = |request: &Request, response: Response| {
            assert_eq!(request.uri().path(), "/ws/SECRET");
            assert_eq!(request.headers()["authorization"], "Bearer SECRET");
            assert_eq!(request.headers()["x-api-key"], "SECRET");
            Ok(response)
        };
        heads(accept_hdr_async(stream, check).await.expect("a handshake")).await;
    })
    .await;
    follow(&plain(&server, FeedSettings::default())).await;
}

#[tokio::test]
async fn heads_are_followed_over_tls() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(&["h2", "http/1.1"]);
    let server = Server::start(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let stream = acceptor.accept(stream).await.expect("a handshake");
            heads(accept_async(stream).await.expect("a handshake")).await;
        }
    })
    .await;
    let tls = TlsClient::new(TrustedRoots::Only(authority.pem.as_bytes())).expect("a certificate");
    let url = format!("wss://localhost:{}/SECRET", server.address.port());
    follow(&client(&url, FeedSettings::default(), &tls)).await;

    let stranger = TlsClient::new(TrustedRoots::Public).expect("a TLS client");
    let error = client(&url, FeedSettings::default(), &stranger).open().await;
    assert_eq!(error.expect_err("not trusted").kind, Kind::Tls);
}

#[tokio::test]
async fn a_call_returns_its_answer() {
    let server = Server::start(|stream, _| async move {
        let mut peer = accept_async(stream).await.expect("a handshake");
        let asked = peer.next().await.expect("a message").expect("whole");
        peer.send(asked).await.expect("sent");
        peer.close(None).await.expect("closed");
        while let Some(Ok(_)) = peer.next().await {}
    })
    .await;
    let mut feed = plain(&server, FeedSettings::default()).open().await.expect("a connection");
    assert_eq!(feed.call(Bytes::from_static(b"question")).await.expect("an answer"), "question");
    let error = feed.call(Bytes::from_static(b"more")).await.expect_err("closed");
    assert_eq!((error.kind, error.sent), (Kind::Closed, Sent::Maybe));
}

#[tokio::test]
async fn next_may_be_dropped_without_losing_a_message() {
    let server = Server::start(|stream, _| async move {
        let mut peer = accept_async(stream).await.expect("a handshake");
        while let Some(Ok(Message::Text(text))) = peer.next().await {
            peer.send(Message::Text(text)).await.expect("sent");
        }
    })
    .await;
    let mut feed = plain(&server, FeedSettings::default()).open().await.expect("a connection");
    for n in 0..50 {
        let text = format!("message {n}");
        feed.send(Bytes::from(text.clone())).await.expect("sent");
        let answer = loop {
            tokio::select! {
                biased;
                answer = feed.next() => break answer,
                () = tokio::task::yield_now() => {}
            }
        };
        assert_eq!(answer.expect("a message").expect("whole"), text);
    }
}

/// What a reader of a feed sees at last when the server does `act` after the handshake.
async fn ends<F, Fut>(settings: FeedSettings, act: F) -> Option<TransportError>
where
    F: Fn(WebSocketStream<TcpStream>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let act = Arc::new(act);
    let server = Server::start(move |stream, _| {
        let act = Arc::clone(&act);
        async move { act(accept_async(stream).await.expect("a handshake")).await }
    })
    .await;
    let mut feed = plain(&server, settings).open().await.expect("a connection");
    loop {
        match feed.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                assert!(!error.to_string().contains("SECRET"), "{error}");
                return Some(error);
            }
            None => return None,
        }
    }
}

#[tokio::test]
async fn a_peer_that_vanishes_is_an_error() {
    let error = ends(FeedSettings::default(), |peer| async move { drop(peer) }).await;
    assert_eq!(error.expect("no farewell").kind, Kind::Closed);
}

#[tokio::test]
async fn the_code_of_a_close_is_told() {
    for (farewell, code) in [
        (None, None),
        (Some(CloseFrame { code: CloseCode::Policy, reason: "limit reached".into() }), Some(1008)),
    ] {
        let server = Server::start(move |stream, _| {
            let farewell = farewell.clone();
            async move {
                let mut peer = accept_async(stream).await.expect("a handshake");
                peer.close(farewell).await.expect("closed");
                while let Some(Ok(_)) = peer.next().await {}
            }
        })
        .await;
        let mut feed = plain(&server, FeedSettings::default()).connect().await.expect("connected");
        assert_eq!(feed.close_code(), None);
        assert!(feed.next().await.is_none());
        assert_eq!(feed.close_code(), code);
    }
}

#[tokio::test]
async fn a_message_beyond_the_bound_is_an_error() {
    let settings = FeedSettings { message_bytes_max: 1000, ..FeedSettings::default() };
    let error = ends(settings, |mut peer| async move {
        peer.send(Message::text("x".repeat(1000))).await.expect("sent");
        peer.send(Message::text("x".repeat(1001))).await.expect("sent");
        while let Some(Ok(_)) = peer.next().await {}
    });
    assert_eq!(error.await.expect("too large").kind, Kind::TooLarge);
}

#[tokio::test]
async fn a_silent_peer_is_dead_after_two_pings() {
    let settings =
        FeedSettings { ping_interval: Duration::from_millis(20), ..FeedSettings::default() };
    let start = std::time::Duration::from_millis(40);
    let asked = tokio::time::Instant::now();
    let error = ends(settings, |peer| async move {
        // Holds the connection without reading, so that no pong is sent.
        let _peer = peer;
        std::future::pending::<()>().await;
    });
    assert_eq!(error.await.expect("dead").kind, Kind::Closed);
    assert!(asked.elapsed() >= start);
}

#[tokio::test]
async fn a_peer_that_answers_pings_is_alive() {
    let settings =
        FeedSettings { ping_interval: Duration::from_millis(5), ..FeedSettings::default() };
    let error = ends(settings, |mut peer| async move {
        let mut pings = 0;
        while let Some(Ok(message)) = peer.next().await {
            pings += usize::from(message.is_ping());
            if pings == 10 {
                peer.close(None).await.expect("closed");
            }
        }
        assert!(pings >= 10);
    });
    assert_eq!(error.await, None, "closed in good order");
}

#[tokio::test]
async fn a_refused_handshake_names_the_status_only() {
    let server = Server::start(|mut stream, _| async move {
        read_request(&mut stream).await.expect("a request");
        write(&mut stream, "HTTP/1.1 401 SECRET\r\ncontent-length: 6\r\n\r\nSECRET").await;
        closed(&mut stream).await;
    })
    .await;
    let error = plain(&server, FeedSettings::default()).open().await.expect_err("refused");
    assert_eq!((error.kind, error.sent), (Kind::Protocol, Sent::No));
    assert!(error.detail.contains("401") && !error.detail.contains("SECRET"), "{error}");
}

#[tokio::test]
async fn connecting_is_bounded_and_refusals_are_told() {
    let settings =
        FeedSettings { connect_timeout: Duration::from_millis(30), ..FeedSettings::default() };
    let server = Server::start(|mut stream, _| async move { closed(&mut stream).await }).await;
    let silent = plain(&server, settings.clone());
    assert_eq!(silent.open().await.expect_err("silent").kind, Kind::ConnectTimeout);
    let settings = FeedSettings { connect_timeout: PATIENCE, ..settings };
    let dead = DeadPort::new();
    let tls = TlsClient::new(TrustedRoots::Public).expect("a TLS client");
    let client = client(&format!("ws://{}/ws/SECRET", dead.address), settings, &tls);
    assert_eq!(client.open().await.expect_err("refused").kind, Kind::Connect);
    assert!(!format!("{client:?}").contains("SECRET"));
}

#[test]
fn a_feed_can_be_kept_behind_the_trait() {
    fn kept(feed: wellhead_net::WsConnection) -> Box<dyn Feed> {
        Box::new(feed)
    }
    fn takes_any<T: Send>(_: fn(T) -> Box<dyn Feed>) -> bool {
        true
    }
    assert!(takes_any(kept));
}
