//! Calls over WebSocket: which connection they get on, and when they go by HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};
use wellhead_net::{
    ClientSettings, CloseReason, Endpoint, EndpointError, HttpVersion, Protocol, WsTransport,
};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::{
    Exchange, FREE_BYTES, Sent, Shortage, Transport as _, TransportErrorKind as Kind,
};

use crate::support::*;

/// An upstream with both: a server of WebSocket connections and one of HTTP.
struct Both {
    sockets: Server,
    http: Server,
    upstream: Upstream,
    transport: WsTransport,
}

fn transport(upstream: &Upstream, url: &str) -> Result<WsTransport, EndpointError> {
    let endpoint = Endpoint::new(SecretUrl::parse(url).expect("a URL"));
    let (settings, shared) = (upstream.settings.clone(), upstream.shared.clone());
    WsTransport::new(&endpoint, settings, shared, upstream.transport(), 1)
}

impl Both {
    /// `serve` has each WebSocket connection, after the handshake, with its number.
    async fn start<F, Fut>(change: impl FnOnce(&mut ClientSettings), serve: F) -> Self
    where
        F: Fn(WebSocketStream<TcpStream>, usize) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let sockets = Server::start(move |stream, number| {
            let serve = serve.clone();
            async move {
                let stream = accept_async(stream).await.expect("a handshake");
                serve(stream, number).await;
            }
        })
        .await;
        Self::with(sockets, change).await
    }

    async fn with(sockets: Server, change: impl FnOnce(&mut ClientSettings)) -> Self {
        let http = Server::start(|mut stream, _| async move {
            while read_request(&mut stream).await.is_some() {
                write(&mut stream, ok("by http")).await;
            }
        })
        .await;
        let upstream = Upstream::new(&http.url(), HttpVersion::H1).set(change);
        let url = format!("ws://{}/ws/SECRET", sockets.address);
        let transport = transport(&upstream, &url).expect("usable");
        Self { sockets, http, upstream, transport }
    }

    fn open(&self) -> u64 {
        self.upstream.shared.stats.open(Protocol::Ws)
    }

    fn closed(&self, reason: CloseReason) -> u64 {
        self.upstream.shared.stats.closed(Protocol::Ws, reason)
    }
}

fn call(words: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"echo","params":["{words}"]}}"#)
}

/// Sends each call back as it came, under its number.
async fn echo_messages(mut peer: WebSocketStream<TcpStream>) {
    while let Some(Ok(message)) = peer.next().await {
        if message.is_text() && peer.send(message).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn calls_go_over_one_socket_and_none_by_http() {
    let both = Both::start(|_| {}, |peer, _| echo_messages(peer)).await;
    for n in 0..20 {
        let question = call(&n.to_string());
        assert_eq!(answer(&both.transport, &question).await, question);
    }
    assert_eq!((both.sockets.accepted(), both.http.accepted()), (1, 0));
    assert_eq!((both.open(), both.upstream.shared.stats.on_sockets()), (1, 0));
}

#[tokio::test]
async fn where_there_is_no_http_all_goes_over_sockets() {
    let both = Both::start(|_| {}, |peer, _| echo_messages(peer)).await;
    let alone = |url: &str| {
        let endpoint = Endpoint::new(SecretUrl::parse(url).expect("a URL"));
        let (settings, shared) = (both.upstream.settings.clone(), both.upstream.shared.clone());
        WsTransport::alone(&endpoint, settings, shared, 1).expect("usable")
    };
    let transport = alone(&format!("ws://{}/ws/SECRET", both.sockets.address));
    let calls: Vec<_> = (1..=40)
        .map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"echo","params":[{id}]}}"#))
        .collect();
    let batch = format!("[{}]", calls.join(","));
    assert_eq!(answer(&transport, &calls[0]).await, calls[0]);
    assert_eq!(answer(&transport, &batch).await, batch, "in order");
    let bulky = ask_bulky_aside(&transport, &calls[1]).await.expect("no panic");
    assert_eq!(bulky.expect("an answer").body, calls[1]);
    assert_eq!((both.sockets.accepted(), both.http.accepted()), (1, 0));
    let nothing = alone("ws://127.0.0.1:1/");
    for body in [&calls[0], &batch] {
        assert_eq!(fails(&nothing, body).await.0, Kind::Connect);
    }
}

#[tokio::test]
async fn a_hundred_calls_are_in_flight_on_one_connection() {
    let both = Both::start(
        |settings| (settings.ws_connections_max, settings.ws_calls_max) = (1, 100),
        |mut peer, _| async move {
            let mut asked = Vec::new();
            while asked.len() < 100 {
                match peer.next().await {
                    Some(Ok(message)) if message.is_text() => asked.push(message),
                    Some(Ok(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
            for message in asked.into_iter().rev() {
                peer.feed(message).await.expect("taken");
            }
            peer.flush().await.expect("written");
            while let Some(Ok(_)) = peer.next().await {}
        },
    )
    .await;
    let questions: Vec<_> = (0..100).map(|n| call(&n.to_string())).collect();
    let answers = join_all(questions.iter().map(|it| answer(&both.transport, it))).await;
    assert_eq!(answers, questions);
    assert_eq!((both.sockets.accepted(), both.http.accepted()), (1, 0));
}

/// A peer that turned hostile: of 100 calls under way each gets answers under numbers that were
/// never given out, under spellings of its number that are none, and, once it was answered, a
/// second answer with another call's words.
#[tokio::test]
async fn answers_for_another_call_reach_no_call() {
    const CALLS: usize = 100;
    let both = Both::start(
        |settings| (settings.ws_connections_max, settings.ws_calls_max) = (1, CALLS),
        |mut peer, _| async move {
            let mut asked: Vec<String> = Vec::new();
            while asked.len() < CALLS {
                match peer.next().await {
                    Some(Ok(Message::Text(text))) => asked.push(text.to_string()),
                    Some(Ok(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
            let number_of = |text: &str| -> u64 {
                let digits = text.split("\"id\":").nth(1).and_then(|it| it.split(',').next());
                digits.and_then(|digits| digits.parse().ok()).expect("a number")
            };
            for (index, own) in asked.iter().enumerate() {
                let number = number_of(own);
                let others = &asked[(index + 1) % CALLS];
                let lie = |id: String| others.replace(&number_of(others).to_string(), &id);
                for id in [
                    format!("{}", number + 1_000_000),
                    "1".to_owned(),
                    format!("\"{number}\""),
                    format!("{number}.0"),
                    format!("0{number}"),
                    format!("[{number}]"),
                    "null".to_owned(),
                ] {
                    peer.feed(Message::text(lie(id))).await.expect("taken");
                }
                peer.feed(Message::text(own.clone())).await.expect("taken");
                peer.feed(Message::text(lie(number.to_string()))).await.expect("taken");
            }
            peer.flush().await.expect("written");
            while let Some(Ok(_)) = peer.next().await {}
        },
    )
    .await;
    let questions: Vec<_> = (0..CALLS).map(|n| call(&format!("call {n}"))).collect();
    let answers = join_all(questions.iter().map(|it| answer(&both.transport, it))).await;
    assert_eq!(answers, questions);
    assert_eq!(both.http.accepted(), 0);
}

#[tokio::test]
async fn answers_count_against_the_memory_budget() {
    let both = Both::start(|_| {}, |peer, _| echo_messages(peer)).await;
    let answers = Arc::clone(&both.upstream.shared.answers);
    let question = call(&"x".repeat(3 * FREE_BYTES));
    let reply = ask(&both.transport, &question).await.expect("an answer");
    assert_eq!(reply.body, question);
    assert!(answers.held() >= question.len());
    drop(reply);
    assert_eq!(answers.held(), 0);

    let all = answers.try_hold(answers.bytes_max()).expect("room");
    assert_eq!(fails(&both.transport, &question).await, (Kind::NoRoom, Sent::Maybe));
    assert_eq!(answers.shortages(Shortage::Refused), 1);
    drop(all);
    assert_eq!(answer(&both.transport, &question).await, question);
}

#[tokio::test]
async fn batches_and_bulky_calls_go_by_http() {
    let both = Both::start(|_| {}, |peer, _| echo_messages(peer)).await;
    let batch = format!("[{}]", call("x"));
    assert_eq!(answer(&both.transport, &batch).await, "by http");
    let foreign = r#"{"id":"a","method":"x"}"#;
    assert_eq!(answer(&both.transport, foreign).await, "by http");
    let exchange = Exchange { bulky: true, ..exchange(&call("x"), PATIENCE) };
    let reply = both.transport.exchange(exchange).await.expect("an answer");
    assert_eq!(reply.body, "by http");
    assert_eq!(both.sockets.accepted(), 0);
}

#[tokio::test]
async fn a_long_answer_is_held_and_handed_on_in_pieces() {
    let both = Both::start(|_| {}, |peer, _| echo_messages(peer)).await;
    let question = call(&"x".repeat(300_000));
    let exchange = Exchange { whole_max: 1000, ..exchange(&question, PATIENCE) };
    let mut reply = both.transport.exchange(exchange).await.expect("an answer");
    let mut rest = reply.rest.take().expect("there is more");
    let mut whole = reply.body.to_vec();
    assert_eq!(whole.len(), 1000);
    while let Some(piece) = rest.next().await {
        whole.extend_from_slice(&piece.expect("in memory"));
    }
    assert_eq!(whole, question.as_bytes());
}

#[tokio::test]
async fn without_a_socket_calls_go_by_http() {
    let sockets = Server::start(|mut stream, _| async move {
        read_request(&mut stream).await;
        write(&mut stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
    })
    .await;
    let both = Both::with(sockets, |_| {}).await;
    for _ in 0..5 {
        assert_eq!(answer(&both.transport, &call("x")).await, "by http");
    }
    assert!(both.upstream.shared.stats.connect_failed() >= 1);
    assert_eq!((both.open(), both.http.accepted()), (0, 1));
}

#[tokio::test]
async fn a_connection_that_breaks_is_replaced_by_the_next_call() {
    let both = Both::start(
        |_| {},
        |mut peer, number| async move {
            let first = peer.next().await.expect("a message").expect("whole");
            peer.send(first).await.expect("sent");
            if number == 0 {
                let _ = peer.next().await;
                return;
            }
            echo_messages(peer).await;
        },
    )
    .await;
    assert_eq!(answer(&both.transport, &call("a")).await, call("a"));
    assert_eq!(fails(&both.transport, &call("b")).await, (Kind::Closed, Sent::Maybe));
    until("noticed", || both.open() == 0).await;
    assert_eq!(answer(&both.transport, &call("c")).await, call("c"));
    assert_eq!((both.sockets.accepted(), both.http.accepted()), (2, 0));
    assert_eq!(both.closed(CloseReason::Peer), 1);
}

#[tokio::test]
async fn a_peer_that_ends_connections_unanswered_is_not_asked_again_at_once() {
    let both = Both::start(
        |_| {},
        |mut peer, _| async move {
            let _ = peer.next().await;
        },
    )
    .await;
    assert_eq!(fails(&both.transport, &call("a")).await, (Kind::Closed, Sent::Maybe));
    until("counted", || both.closed(CloseReason::Peer) == 1).await;
    assert_eq!(answer(&both.transport, &call("b")).await, "by http");
}

/// Answers as many calls as there are permits.
async fn echo_when_told(mut peer: WebSocketStream<TcpStream>, permits: Arc<Semaphore>) {
    while let Some(Ok(message)) = peer.next().await {
        if message.is_text() {
            permits.acquire().await.expect("never closed").forget();
            peer.send(message).await.expect("sent");
        }
    }
}

#[tokio::test]
async fn calls_wait_for_room_and_too_many_are_refused() {
    let permits = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&permits);
    let narrow = |settings: &mut ClientSettings| {
        (settings.ws_connections_max, settings.ws_calls_max, settings.queue_max) = (1, 1, 1);
    };
    let both = Both::start(narrow, move |peer, _| echo_when_told(peer, Arc::clone(&told))).await;
    let stats = Arc::clone(&both.upstream.shared.stats);
    assert!(both.transport.has_room(false));
    let first = ask_aside(&both.transport, &call("first"));
    until("the first is under way", || stats.on_sockets() == 1).await;
    assert!(!both.transport.has_room(false), "the only socket is full");
    assert!(both.transport.has_room(true), "what is bulky goes by HTTP");
    let second = ask_aside(&both.transport, &call("second"));
    until("the second waits", || stats.waiting() == 1).await;
    assert_eq!(fails(&both.transport, &call("third")).await, (Kind::PoolFull, Sent::No));
    permits.add_permits(2);
    for (asked, words) in [(first, "first"), (second, "second")] {
        let reply = asked.await.expect("no panic").expect("an answer");
        assert_eq!(reply.body, call(words));
    }
    assert_eq!((both.sockets.accepted(), stats.waiting()), (1, 0));
}

#[tokio::test]
async fn a_call_that_waits_too_long_for_room_is_told_so() {
    let permits = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&permits);
    let narrow = |settings: &mut ClientSettings| {
        (settings.ws_connections_max, settings.ws_calls_max) = (1, 1);
    };
    let both = Both::start(narrow, move |peer, _| echo_when_told(peer, Arc::clone(&told))).await;
    let stats = Arc::clone(&both.upstream.shared.stats);
    let first = ask_aside(&both.transport, &call("first"));
    until("the first is under way", || stats.on_sockets() == 1).await;
    let second = exchange(&call("second"), Duration::from_millis(5));
    let late = both.transport.exchange(second).await.expect_err("no room");
    assert_eq!((late.kind, late.sent), (Kind::Timeout, Sent::No));
    assert_eq!(stats.waiting(), 0);
    // A call that is given up leaves the room taken until the peer has answered.
    first.abort();
    let third = ask_aside(&both.transport, &call("third"));
    until("the third waits", || stats.waiting() == 1).await;
    permits.add_permits(2);
    let reply = third.await.expect("no panic").expect("an answer");
    assert_eq!((reply.body, stats.unclaimed()), (Bytes::from(call("third")), 1));
}

#[tokio::test]
async fn busy_connections_get_company_up_to_their_bound() {
    let permits = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&permits);
    let narrow = |settings: &mut ClientSettings| {
        (settings.ws_connections_max, settings.ws_calls_max) = (3, 2);
    };
    let both = Both::start(narrow, move |peer, _| echo_when_told(peer, Arc::clone(&told))).await;
    let stats = Arc::clone(&both.upstream.shared.stats);
    let asked: Vec<_> = (0..8).map(|n| ask_aside(&both.transport, &call(&n.to_string()))).collect();
    until("three are full", || stats.on_sockets() == 6).await;
    assert_eq!((both.sockets.accepted(), stats.waiting()), (3, 2));
    permits.add_permits(8);
    for (n, asked) in asked.into_iter().enumerate() {
        let reply = asked.await.expect("no panic").expect("an answer");
        assert_eq!(reply.body, call(&n.to_string()));
    }
    assert_eq!((both.sockets.accepted(), both.http.accepted()), (3, 0));
}

#[tokio::test]
async fn connections_end_with_their_transport() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let both = Both::start(
        |_| {},
        move |mut peer, _| {
            let tell = tell.clone();
            async move {
                while let Some(Ok(message)) = peer.next().await {
                    if matches!(message, Message::Close(_)) {
                        tell.send(()).expect("heard");
                    } else {
                        peer.send(message).await.expect("sent");
                    }
                }
            }
        },
    )
    .await;
    assert_eq!(answer(&both.transport, &call("x")).await, call("x"));
    let Both { transport, upstream, sockets, http } = both;
    drop(transport);
    tokio::time::timeout(PATIENCE, told.recv()).await.expect("in time").expect("a farewell");
    let stats = upstream.shared.stats;
    until("counted", || stats.closed(Protocol::Ws, CloseReason::Shutdown) == 1).await;
    drop((sockets, http));
}

#[test]
fn the_scheme_has_to_be_that_of_a_websocket() {
    let upstream = Upstream::new("http://127.0.0.1:1/", HttpVersion::H1);
    let error = transport(&upstream, "http://127.0.0.1:1/").expect_err("refused");
    assert!(matches!(error, EndpointError::Scheme(..)), "{error}");
}
