//! One connection in memory, with the clock in our hands: what is written together, when a
//! silent peer is given up, what each call is told at the end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use wellhead_jsonrpc::write;
use wellhead_transport::{Sent, TransportError, TransportErrorKind as Kind};

use super::socket::Socket;
use super::ws_mux::own_id;
use crate::dial::Stream;
use crate::protocol::{CloseReason, Protocol};
use crate::settings::ClientSettings;
use crate::stats::ConnectionStats;

/// Counts how often it is written to.
#[derive(Debug)]
struct Counted {
    stream: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, SeqCst);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

struct Pair {
    socket: Socket,
    stats: Arc<ConnectionStats>,
    /// How the connection ended.
    ended: Arc<Mutex<Option<bool>>>,
    writes: Arc<AtomicUsize>,
    opened: Instant,
}

/// Bytes on the way that were not read.
const ROOM: usize = 1 << 20;
const INTERVAL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);
const ANSWER_MAX: usize = 1_000;

type Peer = WebSocketStream<DuplexStream>;

async fn pair(room: usize) -> (Pair, Peer) {
    let settings = ClientSettings {
        ws_ping_interval: INTERVAL,
        ws_ping_timeout: PATIENCE,
        idle: IDLE,
        ..ClientSettings::default()
    };
    let (near, far) = duplex(room);
    let writes = Arc::new(AtomicUsize::new(0));
    let near = Stream::Memory(Box::new(Counted { stream: near, writes: Arc::clone(&writes) }));
    let config = WebSocketConfig::default()
        .max_message_size(Some(ANSWER_MAX))
        .max_frame_size(Some(ANSWER_MAX));
    let near = WebSocketStream::from_raw_socket(near, Role::Client, Some(config)).await;
    let peer = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
    let (stats, ended) = (Arc::new(ConnectionStats::default()), Arc::new(Mutex::new(None)));
    let told = Arc::clone(&ended);
    let note_end = move |was_well| *told.lock() = Some(was_well);
    let opened = Instant::now();
    let retire_at = opened + Duration::from_secs(600);
    let socket = Socket::open(near, note_end, &settings, &stats, retire_at);
    (Pair { socket, stats, ended, writes, opened }, peer)
}

impl Pair {
    async fn call(&self, words: &str) -> Result<String, TransportError> {
        let mut body = Vec::new();
        let params = format!("[\"{words}\"]");
        write::call(&mut body, 1, "x", Some(params.as_bytes()));
        let own = own_id(&body).expect("an id");
        let answer = self.socket.call(&body, own, Instant::now()).await?;
        Ok(String::from_utf8(answer.body.to_vec()).expect("text"))
    }

    fn closed(&self, reason: CloseReason) -> u64 {
        self.stats.closed(Protocol::Ws, reason)
    }

    fn was_well(&self) -> Option<bool> {
        *self.ended.lock()
    }
}

/// The number of the next call that arrives.
async fn next_number(peer: &mut Peer) -> u64 {
    loop {
        let message = peer.next().await.expect("a message").expect("whole");
        if let Message::Text(text) = message {
            return own_id(text.as_bytes()).expect("a number").1;
        }
    }
}

fn answer(number: u64) -> Message {
    Message::text(format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{number}}}"#))
}

fn failed(kind: Kind, sent: Sent, detail: &str) -> Result<String, TransportError> {
    Err(TransportError::new(kind, sent, detail))
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_together_leave_together() {
    let (pair, mut peer) = pair(ROOM).await;
    let calls = join_all((0..50).map(|_| pair.call("together")));
    let serve = async {
        let mut numbers = Vec::new();
        for _ in 0..50 {
            numbers.push(next_number(&mut peer).await);
        }
        for number in numbers.into_iter().rev() {
            peer.feed(answer(number)).await.expect("taken");
        }
        peer.flush().await.expect("written");
    };
    let (answers, ()) = tokio::join!(calls, serve);
    let expected = |number| Ok(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{number}}}"#));
    assert_eq!(answers, (1000..1050).map(expected).collect::<Vec<_>>());
    assert_eq!(pair.writes.load(SeqCst), 1);
    assert_eq!(pair.socket.load(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_pinged_and_given_up() {
    let (pair, peer) = pair(ROOM).await;
    let died = pair.call("x").await;
    assert_eq!(died, failed(Kind::Closed, Sent::Maybe, "the peer answered no ping"));
    assert_eq!(pair.opened.elapsed(), INTERVAL + PATIENCE);
    assert_eq!(pair.was_well(), Some(false));
    assert!(pair.socket.is_over());
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_is_kept() {
    let (pair, mut peer) = pair(ROOM).await;
    let serve = async {
        let number = next_number(&mut peer).await;
        // Reading answers pings.
        let read = async { while let Some(Ok(_)) = peer.next().await {} };
        assert!(timeout(10 * INTERVAL, read).await.is_err(), "it was given up");
        peer.send(answer(number)).await.expect("sent");
        while let Some(Ok(_)) = peer.next().await {}
    };
    let asked = async {
        let answer = pair.call("slow").await;
        assert!(answer.is_ok(), "{answer:?}");
        assert!(pair.opened.elapsed() >= 10 * INTERVAL);
        // No call uses it any more.
        sleep(IDLE + INTERVAL).await;
        assert_eq!(pair.closed(CloseReason::Idle), 1);
        assert_eq!(pair.was_well(), Some(true));
    };
    tokio::join!(serve, asked);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_on_a_silent_peer_has_it_pinged() {
    let (pair, peer) = pair(ROOM).await;
    let patient = pair.call("patient");
    let hasty = async {
        let given_up = timeout(Duration::from_secs(2), pair.call("hasty")).await;
        assert!(given_up.is_err());
        assert_eq!(pair.socket.load(), 1, "the peer may still be at work on it");
    };
    let (died, ()) = tokio::join!(patient, hasty);
    assert_eq!(died, failed(Kind::Closed, Sent::Maybe, "the peer answered no ping"));
    assert_eq!(pair.opened.elapsed(), Duration::from_secs(2) + PATIENCE);
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn calls_stay_unwritten_while_the_peer_does_not_read() {
    let (pair, peer) = pair(16).await;
    let first = pair.call("the first one, which is longer than what is read");
    let second = async {
        sleep(Duration::from_secs(1)).await;
        pair.call("second").await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first, failed(Kind::Closed, Sent::Maybe, "the peer does not read"));
    assert_eq!(second, failed(Kind::Closed, Sent::No, "the peer does not read"));
    assert_eq!(pair.closed(CloseReason::Stuck), 1);
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn a_farewell_fails_what_is_under_way() {
    let (pair, mut peer) = pair(ROOM).await;
    let serve = async {
        let (first, _) = (next_number(&mut peer).await, next_number(&mut peer).await);
        peer.feed(answer(first)).await.expect("taken");
        peer.close(None).await.expect("closed");
        while let Some(Ok(_)) = peer.next().await {}
    };
    let (first, second, ()) = tokio::join!(pair.call("a"), pair.call("b"), serve);
    assert!(first.is_ok());
    assert_eq!(second, failed(Kind::Closed, Sent::Maybe, "the peer closed the connection"));
    assert_eq!(pair.was_well(), Some(true), "it had answered");
    let late = pair.call("c").await;
    assert_eq!(late, failed(Kind::Closed, Sent::No, "the peer closed the connection"));
}

/// What the calls under way are told when an answer is too long.
async fn too_long(calls: usize) -> Vec<Result<String, TransportError>> {
    let (pair, mut peer) = pair(ROOM).await;
    let serve = async {
        for _ in 1..calls {
            next_number(&mut peer).await;
        }
        let number = next_number(&mut peer).await;
        let long = "x".repeat(ANSWER_MAX);
        let long = Message::text(format!(r#"{{"id":{number},"result":"{long}"}}"#));
        // The other side may be gone before all of it is written.
        let _ = peer.send(long).await;
    };
    let (answers, ()) = tokio::join!(join_all((0..calls).map(|_| pair.call("x"))), serve);
    assert_eq!(pair.closed(CloseReason::BadAnswer), 1);
    answers
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_long_is_blamed_on_its_call_alone() {
    let only = too_long(1).await.pop().expect("one").expect_err("too long");
    assert_eq!((only.kind, only.sent), (Kind::TooLarge, Sent::Maybe));
    for error in too_long(2).await {
        let error = error.expect_err("ended");
        assert_eq!((error.kind, error.sent), (Kind::Closed, Sent::Maybe));
        assert!(error.detail.contains("one of 2 calls"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn garbage_and_announcements_reach_no_call() {
    let (pair, mut peer) = pair(ROOM).await;
    let serve = async {
        let number = next_number(&mut peer).await;
        for noise in [
            "garbage".to_owned(),
            String::new(),
            "[]".to_owned(),
            format!(r#"[{{"id":{number},"result":1}}]"#),
            format!(r#"{{"id":{},"result":1}}"#, number + 1),
            format!(r#"{{"method":"eth_subscription","params":{{"id":{number}}}}}"#),
        ] {
            peer.send(Message::text(noise)).await.expect("sent");
        }
        peer.send(Message::binary(vec![0xff, 0, 0xfe])).await.expect("sent");
        // The answer itself may be binary.
        peer.send(Message::binary(answer(number).into_data())).await.expect("sent");
    };
    let (answered, ()) = tokio::join!(pair.call("x"), serve);
    assert_eq!(answered, Ok(r#"{"jsonrpc":"2.0","id":1,"result":1000}"#.to_owned()));
    assert_eq!(pair.stats.unclaimed(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_dropped_and_counted() {
    let (pair, mut peer) = pair(ROOM).await;
    let serve = async {
        let late = next_number(&mut peer).await;
        let number = next_number(&mut peer).await;
        peer.send(answer(late)).await.expect("sent");
        peer.send(answer(number)).await.expect("sent");
    };
    let asked = async {
        assert!(timeout(Duration::from_millis(1), pair.call("hasty")).await.is_err());
        pair.call("patient").await
    };
    let (answered, ()) = tokio::join!(asked, serve);
    assert_eq!(answered, Ok(r#"{"jsonrpc":"2.0","id":1,"result":1001}"#.to_owned()));
    assert_eq!((pair.stats.unclaimed(), pair.socket.load()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_says_farewell_after_the_last_answer() {
    let (pair, mut peer) = pair(ROOM).await;
    let Pair { socket, stats, .. } = pair;
    drop(socket);
    let word = peer.next().await.expect("a message").expect("whole");
    assert!(matches!(word, Message::Close(_)), "{word:?}");
    while let Some(Ok(_)) = peer.next().await {}
    sleep(Duration::from_secs(2)).await;
    assert_eq!(stats.closed(Protocol::Ws, CloseReason::Shutdown), 1);
    assert_eq!(stats.open(Protocol::Ws), 0);
}
