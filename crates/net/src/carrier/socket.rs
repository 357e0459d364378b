//! One WebSocket connection that carries calls: its task, and the handle by which calls
//! get on it.
//!
//! The task moves messages between the socket and `ws_mux`: calls that came together leave
//! with one system call, answers that arrive together are read with one. It notices a peer
//! that fell silent, and one that reads nothing. How many connections there are, and
//! which one a call takes, is for `ws_pool`.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink as _, Stream as _};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use wellhead_jsonrpc::Span;
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use super::ws_mux::{WsAnswer, WsMux};
use crate::dial::Stream;
use crate::protocol::{CloseReason, Protocol};
use crate::settings::ClientSettings;
use crate::stats::ConnectionStats;
use crate::ws::failure;

/// Messages read before other tasks get a turn.
const TURNS_MAX: usize = 64;
/// Doubts about a peer from which something arrived so lately are not followed by a ping.
const DOUBT_AFTER: Duration = Duration::from_secs(1);
/// How long the farewell to a peer may take.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

pub(super) type WsStream = WebSocketStream<Stream>;

/// What the task and its users share.
#[derive(Debug)]
struct SocketShared {
    mux: Mutex<WsMux>,
    /// As the mux's, readable without its lock.
    lost: AtomicUsize,
    over: AtomicBool,
    /// Another connection takes its place.
    replaced: AtomicBool,
    stats: Arc<ConnectionStats>,
}

/// The handle of one connection. When it is dropped the connection ends, after the
/// answers to the calls under way.
#[derive(Debug)]
pub(super) struct Socket {
    common: Arc<SocketShared>,
    in_flight: AtomicUsize,
    calls_max: usize,
    /// To be replaced from then on.
    retire_at: Instant,
}

impl Socket {
    /// Carries calls over `stream`, which has shaken hands, until either side ends it.
    /// Then the task tells `ended` whether that was well: as we wanted, or after it had answered
    /// something.
    pub(super) fn open(
        stream: WsStream,
        ended: impl FnOnce(bool) + Send + 'static,
        settings: &ClientSettings,
        stats: &Arc<ConnectionStats>,
        retire_at: Instant,
    ) -> Self {
        let now = Instant::now();
        let common = Arc::new(SocketShared {
            mux: Mutex::new(WsMux::new(now)),
            lost: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            stats: Arc::clone(stats),
        });
        stats.note_opened(Protocol::Ws);
        let pulse = SocketKeepAlive {
            heard: now,
            asked: None,
            blocked: None,
            interval: settings.ws_ping_interval,
            patience: settings.ws_ping_timeout,
            idle: settings.idle,
        };
        let member = SocketTask { common: Arc::clone(&common), reason: CloseReason::Shutdown };
        tokio::spawn(drive(stream, member, ended, pulse));
        let calls_max = settings.ws_calls_max.max(1);
        Self { common, in_flight: AtomicUsize::new(0), calls_max, retire_at }
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.common.over.load(Relaxed)
    }

    /// Calls under way, with those that were given up and not answered yet.
    pub(super) fn load(&self) -> usize {
        self.in_flight.load(Relaxed) + self.common.lost.load(Relaxed)
    }

    /// Whether one more call may get on it.
    pub(super) fn has_room(&self) -> bool {
        self.load() < self.calls_max
    }

    /// Whether `percent` of its room would be taken by one more call.
    pub(super) fn is_filled(&self, percent: usize) -> bool {
        (self.load() + 1) * 100 > self.calls_max * percent
    }

    /// Whether another connection is to take its place: it is old, or half of its room is
    /// taken by calls that were given up.
    pub(super) fn is_worn(&self, now: Instant) -> bool {
        now >= self.retire_at || self.common.lost.load(Relaxed) * 2 > self.calls_max
    }

    /// Lets the calls under way finish, as another connection takes the others.
    pub(super) fn retire(&self) {
        self.common.replaced.store(true, Relaxed);
        self.common.mux.lock().leave();
    }

    pub(super) fn enter(&self) {
        self.in_flight.fetch_add(1, Relaxed);
        self.common.stats.on_sockets.fetch_add(1, Relaxed);
    }

    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
        self.common.stats.on_sockets.fetch_sub(1, Relaxed);
    }

    /// Sends a call that carries the id `own` and waits for its answer. Dropping the future
    /// forgets the call.
    pub(super) async fn call(
        &self,
        body: &[u8],
        own: (Span, u64),
        now: Instant,
    ) -> Result<WsAnswer, TransportError> {
        let number = self.common.mux.lock().hand_in(body, own, now)?;
        let call = CallGuard { common: &self.common, number };
        poll_fn(|cx| call.common.mux.lock().poll_answer(cx, call.number)).await
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.common.mux.lock().leave();
    }
}

/// A call under way, forgotten when dropped.
struct CallGuard<'a> {
    common: &'a SocketShared,
    number: u64,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut mux = self.common.mux.lock();
        mux.forget(self.number);
        self.common.lost.store(mux.lost(), Relaxed);
    }
}

/// Ends the calls and the count when the task does, also when its runtime is gone.
struct SocketTask {
    common: Arc<SocketShared>,
    reason: CloseReason,
}

impl SocketTask {
    fn end(&mut self, kind: TransportErrorKind, detail: &str, reason: CloseReason) {
        self.common.mux.lock().end(kind, detail);
        self.common.over.store(true, Relaxed);
        self.reason = reason;
    }
}

impl Drop for SocketTask {
    fn drop(&mut self) {
        let mut mux = self.common.mux.lock();
        if !mux.is_over() {
            mux.end(TransportErrorKind::Closed, "the worker is stopping");
        }
        drop(mux);
        self.common.over.store(true, Relaxed);
        self.common.stats.note_closed(Protocol::Ws, self.reason);
    }
}

/// Why a connection ends.
enum SocketStop {
    /// It is not needed any more.
    Done,
    /// It was idle for too long.
    Idle,
    /// The peer closed it.
    Farewell,
    /// It broke, or the peer broke the protocol.
    Broken(WsError),
    /// The peer says nothing, or reads nothing.
    Dead(&'static str),
}

/// Runs the connection until it ends.
async fn drive(
    mut stream: WsStream,
    mut member: SocketTask,
    ended: impl FnOnce(bool),
    mut pulse: SocketKeepAlive,
) {
    let common = Arc::clone(&member.common);
    let stop = {
        let mut timer = pin!(sleep_until(pulse.due(&common.mux.lock())));
        poll_fn(|cx| poll_drive(Pin::new(&mut stream), cx, &common, &mut pulse, timer.as_mut()))
            .await
    };
    let (was_well, under_way) = {
        let mux = common.mux.lock();
        let as_wanted = matches!(stop, SocketStop::Done | SocketStop::Idle);
        (mux.has_answered() || as_wanted, mux.under_way())
    };
    let is_polite = matches!(stop, SocketStop::Done | SocketStop::Idle | SocketStop::Farewell);
    let (kind, detail, reason) = match stop {
        SocketStop::Done if common.replaced.load(Relaxed) => {
            (TransportErrorKind::Closed, String::new(), CloseReason::Replaced)
        }
        stop => ending(stop, under_way),
    };
    member.end(kind, &detail, reason);
    ended(was_well);
    if is_polite {
        // A peer that does not take it is left without.
        let _ = timeout(FAREWELL_MAX, stream.close(None)).await;
    }
    drop(stream);
    drop(member);
}

fn ending(stop: SocketStop, under_way: usize) -> (TransportErrorKind, String, CloseReason) {
    use TransportErrorKind as Kind;
    match stop {
        SocketStop::Done => (Kind::Closed, String::new(), CloseReason::Shutdown),
        SocketStop::Idle => (Kind::Closed, String::new(), CloseReason::Idle),
        SocketStop::Farewell => {
            (Kind::Closed, "the peer closed the connection".to_owned(), CloseReason::Peer)
        }
        SocketStop::Dead(why) => (Kind::Closed, why.to_owned(), CloseReason::Stuck),
        SocketStop::Broken(error) => {
            let TransportError { kind, detail, .. } = failure(&error, Kind::Closed, Sent::Maybe);
            match kind {
                // It cannot be told whose the answer was: the others must not be blamed.
                Kind::TooLarge if under_way > 1 => {
                    let detail = format!("an answer to one of {under_way} calls: {detail}");
                    (Kind::Closed, detail, CloseReason::BadAnswer)
                }
                Kind::TooLarge | Kind::Protocol => (kind, detail, CloseReason::BadAnswer),
                Kind::Dns
                | Kind::Connect
                | Kind::Tls
                | Kind::ConnectTimeout
                | Kind::Timeout
                | Kind::Closed
                | Kind::Truncated
                | Kind::PoolFull
                | Kind::NoRoom => (Kind::Closed, detail, CloseReason::Peer),
            }
        }
    }
}

/// Reads all that arrived, then writes all there is, until neither moves any more.
fn poll_drive(
    mut stream: Pin<&mut WsStream>,
    cx: &mut Context<'_>,
    common: &SocketShared,
    pulse: &mut SocketKeepAlive,
    mut timer: Pin<&mut Sleep>,
) -> Poll<SocketStop> {
    let mut turns = TURNS_MAX;
    loop {
        if let Poll::Ready(stop) = poll_receive(stream.as_mut(), cx, common, pulse, &mut turns) {
            return Poll::Ready(stop);
        }
        let mut mux = common.mux.lock();
        if mux.take_doubt() && pulse.doubts() {
            pulse.ping(stream.as_mut());
        }
        let due = pulse.due(&mux);
        if due < timer.deadline() {
            timer.as_mut().reset(due);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if let Some(stop) = pulse.look(stream.as_mut(), &mut mux) {
                return Poll::Ready(stop);
            }
            timer.as_mut().reset(pulse.due(&mux));
        }
        drop(mux);
        let was_blocked = pulse.blocked.is_some();
        if let Err(error) = poll_send(stream.as_mut(), cx, common, pulse) {
            // What the peer said before it went is still read.
            let rest = poll_receive(stream.as_mut(), cx, common, pulse, &mut { TURNS_MAX });
            return Poll::Ready(match rest {
                Poll::Ready(stop) => stop,
                Poll::Pending => SocketStop::Broken(error),
            });
        }
        if pulse.blocked.is_some() && !was_blocked {
            // The timer has to know.
            continue;
        }
        let mut mux = common.mux.lock();
        if mux.is_done() {
            return Poll::Ready(SocketStop::Done);
        }
        if turns == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // While the socket is full, its waker is the one that matters.
        if mux.sleep(cx.waker()) || pulse.blocked.is_some() {
            return Poll::Pending;
        }
    }
}

/// Hands what arrived to the mux, at most `turns` messages.
fn poll_receive(
    mut stream: Pin<&mut WsStream>,
    cx: &mut Context<'_>,
    common: &SocketShared,
    pulse: &mut SocketKeepAlive,
    turns: &mut usize,
) -> Poll<SocketStop> {
    let mut arrived_at = None;
    while *turns > 0 {
        let arrived = ready!(stream.as_mut().poll_next(cx));
        *turns -= 1;
        let now = *arrived_at.get_or_insert_with(Instant::now);
        pulse.heard = now;
        pulse.asked = None;
        let message: Bytes = match arrived {
            Some(Ok(Message::Text(text))) => text.into(),
            Some(Ok(Message::Binary(data))) => data,
            // The library answers pings by itself.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(
                Ok(Message::Close(_)) | Err(WsError::ConnectionClosed | WsError::AlreadyClosed),
            )
            | None => return Poll::Ready(SocketStop::Farewell),
            Some(Err(error)) => return Poll::Ready(SocketStop::Broken(error)),
        };
        let mut mux = common.mux.lock();
        let is_claimed = mux.receive(&message, now);
        common.lost.store(mux.lost(), Relaxed);
        drop(mux);
        if !is_claimed {
            common.stats.unclaimed.fetch_add(1, Relaxed);
        }
    }
    Poll::Pending
}

/// Writes what waits, all of it with one system call if it is not much.
fn poll_send(
    mut stream: Pin<&mut WsStream>,
    cx: &mut Context<'_>,
    common: &SocketShared,
    pulse: &mut SocketKeepAlive,
) -> Result<(), WsError> {
    // What the socket did not take yet comes first: a call stays unwritten meanwhile.
    if pulse.blocked.is_some() && stream.as_mut().poll_flush(cx)?.is_pending() {
        return Ok(());
    }
    pulse.blocked = None;
    loop {
        match stream.as_mut().poll_ready(cx)? {
            Poll::Ready(()) => {}
            Poll::Pending => {
                pulse.blocked.get_or_insert_with(Instant::now);
                return Ok(());
            }
        }
        let Some(message) = common.mux.lock().take_unwritten() else { break };
        stream.as_mut().start_send(match String::from_utf8(message) {
            Ok(text) => Message::text(text),
            Err(not_text) => Message::binary(not_text.into_bytes()),
        })?;
    }
    match stream.as_mut().poll_flush(cx)? {
        Poll::Ready(()) => {}
        Poll::Pending => {
            pulse.blocked.get_or_insert_with(Instant::now);
        }
    }
    Ok(())
}

/// Whether the peer is still alive, and whether the connection is in use.
struct SocketKeepAlive {
    /// When something last arrived.
    heard: Instant,
    /// When a ping was sent, if nothing arrived since.
    asked: Option<Instant>,
    /// Since when the socket takes nothing more.
    blocked: Option<Instant>,
    interval: Duration,
    patience: Duration,
    idle: Duration,
}

impl SocketKeepAlive {
    /// When to look next.
    fn due(&self, mux: &WsMux) -> Instant {
        let ping = self.asked.map_or(self.heard + self.interval, |asked| asked + self.patience);
        let blocked = self.blocked.map_or(ping, |since| since + self.patience);
        let idle = mux.idle_at(self.idle).unwrap_or(ping);
        ping.min(blocked).min(idle)
    }

    /// Whether a doubt deserves a ping.
    fn doubts(&self) -> bool {
        self.asked.is_none() && self.heard.elapsed() >= DOUBT_AFTER
    }

    fn ping(&mut self, stream: Pin<&mut WsStream>) {
        self.asked = Some(Instant::now());
        if self.blocked.is_none() {
            // Queued behind what is being written; a failure shows when that is flushed.
            let _ = stream.start_send(Message::Ping(Bytes::new()));
        }
    }

    /// What time it is for. Whatever was due before is settled afterwards.
    fn look(&mut self, stream: Pin<&mut WsStream>, mux: &mut WsMux) -> Option<SocketStop> {
        let now = Instant::now();
        let over = |since: Option<Instant>| since.is_some_and(|at| now >= at + self.patience);
        if over(self.asked) {
            return Some(SocketStop::Dead("the peer answered no ping"));
        }
        if over(self.blocked) {
            return Some(SocketStop::Dead("the peer does not read"));
        }
        if mux.leave_if_idle(self.idle, now) {
            return Some(SocketStop::Idle);
        }
        if self.asked.is_none() && now >= self.heard + self.interval {
            self.ping(stream);
        }
        None
    }
}
