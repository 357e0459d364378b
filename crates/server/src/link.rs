//! What is known of one connection's pace, and the rule for when it is too slow.
//!
//! The socket, the requests and the connection's task write moments here; the
//! task looks at them now and then with one timer for the whole life of the
//! connection, instead of arming one for each request. Answers that the client does not
//! take are in the `backlog`. Where addresses have shares, `peers` knows each connection and
//! may end one for another's sake.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use crate::Settings;
use crate::backlog::{AnswerPools, Backlog, BegunAnswer, WRITE_PROGRESS_BYTES};
use crate::certificate::ClientName;
use crate::protocol::ClientProtocol;
use crate::share::AddressShare;
use crate::shared::ServerShared;

/// How long we read on after a refusal, so that the client can read it: closing
/// a socket with unread data in it resets the connection.
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(1);

/// An HTTP/2 connection that read so much in one turn lets other tasks of its worker run. As many
/// streams begin in a turn as fit into these bytes, about 50, and each is a task of about 20 us.
/// Without a bound, 35 connections on which 256 streams come at once delay each step of every
/// other call by 180 ms, as a worker runs its tasks in the order in which they become ready.
const TURN_BYTES: u32 = 8 * 1000;

/// "Not happening". Moments are microseconds since the connection was opened.
const NEVER: u64 = u64::MAX;

/// No protocol yet.
const UNKNOWN: u8 = u8::MAX;

/// The client was not silent for long.
const NO_PING: u8 = 0;
/// It was, and has to be pinged.
const PING_DUE: u8 = 1;
/// It was pinged, and nothing came since then.
const PINGED: u8 = 2;

/// One connection, as seen by its socket, its requests and its task.
#[derive(Debug)]
pub(crate) struct ClientLink {
    pub(crate) shared: Arc<ServerShared>,
    pub(crate) peer: SocketAddr,
    /// What its address holds; `None` where addresses have no shares.
    pub(crate) share: Option<Arc<AddressShare>>,
    /// What the other end has proved to be, before its first request.
    proof: OnceLock<Box<PeerProof>>,
    /// Where `peers` has it in its list of this address's connections.
    pub(crate) index: AtomicU32,
    opened: Instant,
    /// [`UNKNOWN`], or the place of one among all.
    protocol: AtomicU8,
    times: LinkTimes,
    backlog: Backlog,
    /// Read since the connection's task began to run. For HTTP/2.
    turn_bytes: AtomicU32,
    draining: AtomicBool,
    /// It is closed if no request has begun.
    leaving: AtomicBool,
    /// The client has to hear that it let too much wait.
    is_hoarder: AtomicBool,
    has_place: AtomicBool,
    displaced: AtomicBool,
    /// Something rare happened: see [`ClientLink::ring`].
    rung: AtomicBool,
    /// The last look found nothing under way, so the next one is at the end of the silence that is allowed.
    rests: AtomicBool,
    /// [`NO_PING`], [`PING_DUE`] or [`PINGED`]. For WebSocket.
    ping: AtomicU8,
    task: AtomicWaker,
}

/// The moments, apart from the connection so that the rule can be tested.
#[derive(Debug)]
struct LinkTimes {
    /// Requests from the complete head to the last byte of the answer.
    requests: AtomicU32,
    /// The latest read from the socket.
    read_at: AtomicU64,
    /// The first byte of a request head that is not complete yet.
    head_since: AtomicU64,
    /// No request since then.
    idle_since: AtomicU64,
    /// The socket takes no more since then, or since its last good progress.
    stalled_since: AtomicU64,
    stalled_bytes: AtomicU64,
    lingering_since: AtomicU64,
    /// When the current answer was made, for later use: it saves a clock reading per request.
    answered_at: AtomicU64,
}

/// Why a connection is ended by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooSlow {
    Idle,
    Head,
    Reader,
    Linger,
    /// Not a byte came, not even the answer to a ping. For WebSocket.
    Silent,
    /// It let too many answers wait.
    Hoarder,
}

/// What the other end of a connection has proved to be.
#[derive(Debug)]
pub(crate) enum PeerProof {
    /// It has the key of a certificate that was verified, with these names.
    Certificate(Box<[ClientName]>),
    /// It was let in by the mode of a socket file: the user of its process, where that is known.
    LocalUser(Option<u32>),
}

/// How much a connection is worth to its client, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Worth {
    /// No request is under way since then.
    Idle(Instant),
    /// A request is under way, and nothing was heard of the client since then.
    Busy(Instant),
}

impl ClientLink {
    /// A connection that was just accepted.
    pub(crate) fn new(
        shared: Arc<ServerShared>,
        peer: SocketAddr,
        share: Option<Arc<AddressShare>>,
        now: Instant,
    ) -> Self {
        let times = LinkTimes {
            requests: AtomicU32::new(0),
            read_at: AtomicU64::new(0),
            head_since: AtomicU64::new(NEVER),
            idle_since: AtomicU64::new(0),
            stalled_since: AtomicU64::new(NEVER),
            stalled_bytes: AtomicU64::new(0),
            lingering_since: AtomicU64::new(NEVER),
            answered_at: AtomicU64::new(NEVER),
        };
        Self {
            shared,
            peer,
            share,
            proof: OnceLock::new(),
            index: AtomicU32::new(0),
            opened: now,
            protocol: AtomicU8::new(UNKNOWN),
            times,
            backlog: Backlog::new(),
            turn_bytes: AtomicU32::new(0),
            draining: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            is_hoarder: AtomicBool::new(false),
            has_place: AtomicBool::new(true),
            displaced: AtomicBool::new(false),
            rung: AtomicBool::new(true),
            rests: AtomicBool::new(false),
            ping: AtomicU8::new(NO_PING),
            task: AtomicWaker::new(),
        }
    }

    /// Keeps what the other end has proved; a second proof changes nothing.
    pub(crate) fn prove(&self, proof: PeerProof) {
        let _ = self.proof.set(Box::new(proof));
    }

    /// What the other end has proved.
    pub(crate) fn proof(&self) -> Option<&PeerProof> {
        self.proof.get().map(AsRef::as_ref)
    }

    /// The names in its certificate; none without one.
    pub(crate) fn names(&self) -> &[ClientName] {
        match self.proof() {
            Some(PeerProof::Certificate(names)) => names,
            Some(PeerProof::LocalUser(_)) | None => &[],
        }
    }

    /// Its first bytes have arrived, and tell its protocol.
    pub(crate) fn speak(&self, protocol: ClientProtocol) {
        let now = self.clock();
        self.times.idle_since.store(now, Relaxed);
        self.times.read_at.store(now, Relaxed);
        match protocol {
            ClientProtocol::Http1 => {
                self.times.head_since.store(now, Relaxed);
                self.protocol.store(protocol as u8, Relaxed);
            }
            // Frames, not heads: h2 bounds what a header block may hold.
            ClientProtocol::Http2 => self.protocol.store(protocol as u8, Relaxed),
            ClientProtocol::WebSocket => self.upgrade(),
        }
    }

    /// From now on it speaks WebSocket, which HTTP/1.1 was upgraded to.
    pub(crate) fn upgrade(&self) {
        self.shared.counters.close(ClientProtocol::Http1);
        self.shared.counters.open(ClientProtocol::WebSocket);
        self.protocol.store(ClientProtocol::WebSocket as u8, Relaxed);
        self.times.head_since.store(NEVER, Relaxed);
        self.times.read_at.store(self.clock(), Relaxed);
    }

    /// What the client speaks; `None` before its first bytes.
    pub(crate) fn protocol(&self) -> Option<ClientProtocol> {
        ClientProtocol::ALL.get(usize::from(self.protocol.load(Relaxed))).copied()
    }

    fn is_http2(&self) -> bool {
        self.protocol() == Some(ClientProtocol::Http2)
    }

    /// Whether its answers come one by one. Where several are on their way each says itself what is
    /// taken of it.
    fn has_one_answer(&self) -> bool {
        self.protocol() == Some(ClientProtocol::Http1)
    }

    fn is_websocket(&self) -> bool {
        self.protocol() == Some(ClientProtocol::WebSocket)
    }

    fn micros(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.opened).as_micros()).unwrap_or(NEVER - 1)
    }

    fn clock(&self) -> u64 {
        self.micros(Instant::now())
    }

    /// The socket was read (or is at its end).
    pub(crate) fn note_read(&self) {
        if self.is_http2() {
            return;
        }
        let now = self.clock();
        self.times.read_at.store(now, Relaxed);
        if self.is_websocket() {
            // A pong, or anything else: the client is there.
            self.ping.store(NO_PING, Relaxed);
            return;
        }
        if self.times.requests.load(Relaxed) == 0 && self.times.head_since.load(Relaxed) == NEVER {
            self.times.head_since.store(now, Relaxed);
        }
    }

    /// A message began that is not whole, or is. For WebSocket.
    pub(crate) fn note_unfinished(&self, is_unfinished: bool) {
        let since = &self.times.head_since;
        if !is_unfinished {
            since.store(NEVER, Relaxed);
        } else if since.load(Relaxed) == NEVER {
            since.store(self.times.read_at.load(Relaxed), Relaxed);
        }
    }

    /// True once when the client was silent for the ping interval. For WebSocket.
    pub(crate) fn take_ping(&self) -> bool {
        let is_due = self.ping.load(Relaxed) == PING_DUE;
        if is_due {
            self.ping.store(PINGED, Relaxed);
        }
        is_due
    }

    /// The connection's task runs.
    pub(crate) fn begin_turn(&self) {
        self.turn_bytes.store(0, Relaxed);
    }

    /// Adds `bytes` that the task has read from its client to those of this turn.
    pub(crate) fn note_turn_bytes(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.turn_bytes.store(self.turn_bytes.load(Relaxed).saturating_add(bytes), Relaxed);
    }

    /// Whether the connection's task has read enough for now.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.turn_bytes.load(Relaxed) >= TURN_BYTES
    }

    /// Notes a write of some bytes, and passes it on. That none was taken is an error.
    pub(crate) fn note_some(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            _ => self.note_write(written),
        }
    }

    /// Notes what a write came to, and passes it on.
    pub(crate) fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.note_written(*bytes),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.note_stalled(),
        }
        written
    }

    /// Notes whether the socket has taken everything, and passes it on.
    pub(crate) fn note_flush(&self, flushed: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        match &flushed {
            Poll::Ready(Ok(())) => self.note_flushed(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.note_stalled(),
        }
        flushed
    }

    /// The socket took `bytes`.
    fn note_written(&self, bytes: usize) {
        if self.times.stalled_since.load(Relaxed) == NEVER {
            return;
        }
        if self.has_one_answer() {
            self.note_taken(bytes);
        }
        let so_far = self.times.stalled_bytes.load(Relaxed) + bytes as u64;
        if so_far >= WRITE_PROGRESS_BYTES {
            self.times.stalled_bytes.store(0, Relaxed);
            self.times.stalled_since.store(self.clock(), Relaxed);
        } else {
            self.times.stalled_bytes.store(so_far, Relaxed);
        }
    }

    /// The socket takes no more.
    fn note_stalled(&self) {
        if self.times.stalled_since.load(Relaxed) == NEVER {
            self.times.stalled_bytes.store(0, Relaxed);
            self.times.stalled_since.store(self.clock(), Relaxed);
            self.note_shut();
        }
    }

    /// A window of the client is shut.
    pub(crate) fn note_shut(&self) {
        self.backlog.stall(self.clock(), self.pools());
    }

    /// More bytes of an answer that flows are on their way. For HTTP/1.1.
    pub(crate) fn note_more(&self, bytes: usize) {
        self.backlog.grow(bytes, self.pools());
    }

    /// All that was there to send is with the system, and what flows waits for its upstream. For
    /// HTTP/1.1, which has one answer at a time.
    pub(crate) fn note_all_taken(&self) {
        self.note_taken(usize::MAX);
    }

    /// Records that `bytes` of an answer were taken, or were abandoned.
    pub(crate) fn note_taken(&self, bytes: usize) {
        self.backlog.took(bytes, || self.clock(), self.pools());
    }

    /// The answers that are on their way to the client.
    pub(crate) fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// What its requests and answers take from.
    pub(crate) fn pools(&self) -> AnswerPools<'_> {
        AnswerPools::of(&self.shared, self.share.as_ref())
    }

    /// One answer is done, of which so many bytes were not told as taken before.
    pub(crate) fn end_answer(&self, bytes: usize, begun: BegunAnswer) {
        self.backlog.end(bytes, begun, || self.clock(), self.pools());
    }

    /// Everything there was to write is written.
    fn note_flushed(&self) {
        if self.times.stalled_since.load(Relaxed) != NEVER {
            self.times.stalled_since.store(NEVER, Relaxed);
            // Idleness begins when the last byte is out, not when it was handed on.
            self.times.idle_since.store(self.clock(), Relaxed);
        }
    }

    /// Draining has begun: the next answer is the last.
    pub(crate) fn note_draining(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// The connection is closed as soon as it waits for a request.
    pub(crate) fn note_leaving(&self) {
        self.note_draining();
        self.leaving.store(true, Relaxed);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    /// The client is told that it let too much wait, as far as it can be.
    pub(crate) fn note_hoarder(&self) {
        self.is_hoarder.store(true, Relaxed);
    }

    pub(crate) fn is_hoarder(&self) -> bool {
        self.is_hoarder.load(Relaxed)
    }

    /// Whether the socket took everything so far.
    pub(crate) fn is_flushed(&self) -> bool {
        self.times.stalled_since.load(Relaxed) == NEVER
    }

    /// Gives up its place among the connections; false when it has none any more.
    pub(crate) fn release_place(&self) -> bool {
        self.has_place.swap(false, Relaxed)
    }

    /// Whether it still has its place among the connections.
    pub(crate) fn has_place(&self) -> bool {
        self.has_place.load(Relaxed)
    }

    /// Has the connection end, as another one took its place.
    pub(crate) fn displace(&self) {
        self.displaced.store(true, Release);
        self.rung.store(true, Release);
        self.task.wake();
    }

    /// Whether another connection took the place of this one.
    pub(crate) fn is_displaced(&self) -> bool {
        self.displaced.load(Acquire)
    }

    /// Has the connection's task look at what is rare: the drain, the timer, whether it is
    /// displaced. Tells their wake-ups from those of requests, each of which wakes the task
    /// twice: to poll all of these each time would cost more than handing the request to the
    /// handler does.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Relaxed);
    }

    /// From now on what is rare wakes the task of `cx`.
    pub(crate) fn wakes(&self, cx: &Context<'_>) {
        self.task.register(cx.waker());
    }

    pub(crate) fn was_rung(&self) -> bool {
        // Acquires what the ringer wrote before it rang.
        self.rung.load(Relaxed) && self.rung.swap(false, Acquire)
    }

    /// How much it is worth to its client, as far as can be told from outside.
    pub(crate) fn worth(&self) -> Worth {
        let at = |micros: u64| self.opened + Duration::from_micros(micros);
        let idle_since = self.times.idle_since.load(Relaxed);
        match self.times.requests.load(Relaxed) {
            // It may wait for what it subscribed to; that it is there, its pongs tell.
            _ if self.is_websocket() => Worth::Busy(at(self.times.read_at.load(Relaxed))),
            0 => Worth::Idle(at(idle_since)),
            _ => Worth::Busy(at(idle_since.max(self.times.read_at.load(Relaxed)))),
        }
    }

    /// The last answer is out, and what the client still sends is read and forgotten.
    pub(crate) fn note_lingering(&self) {
        self.times.lingering_since.store(self.clock(), Relaxed);
    }

    /// A head is complete. Says when it was: the read that completed it, but for
    /// pipelined requests, which waited their turn, now.
    pub(crate) fn begin_request(&self) -> Instant {
        self.times.requests.fetch_add(1, Relaxed);
        if self.is_websocket() {
            return Instant::now();
        }
        if self.times.head_since.swap(NEVER, Relaxed) == NEVER {
            Instant::now()
        } else {
            self.opened + Duration::from_micros(self.times.read_at.load(Relaxed))
        }
    }

    /// An answer was put together, and is sent next. Returns now. For HTTP/1.1, which
    /// has one at a time.
    pub(crate) fn note_answered(&self) -> Instant {
        let now = Instant::now();
        self.times.answered_at.store(self.micros(now), Relaxed);
        now
    }

    /// An answer was sent (HTTP/2: was handed to hyper), or abandoned. One that took long to send
    /// has recorded the time of its last byte.
    pub(crate) fn end_request(&self) {
        let answered_at = self.times.answered_at.load(Relaxed);
        let since = if answered_at == NEVER { self.clock() } else { answered_at };
        self.times.answered_at.store(NEVER, Relaxed);
        self.times.idle_since.fetch_max(since, Relaxed);
        self.times.requests.fetch_sub(1, Relaxed);
    }

    /// Says that the connection is too slow, or when to look again. A connection on which nothing is under way may be
    /// looked at after a long time: [`ClientLink::leave_rest`] shortens that when something begins.
    pub(crate) fn look(&self, now: Instant) -> Result<Instant, TooSlow> {
        let now = self.micros(now);
        self.rests.store(self.times.is_at_rest(), Relaxed);
        let next = if self.is_websocket() {
            let next = self.times.look_websocket(now, &self.shared.settings)?;
            if next.is_ping_due && self.ping.load(Relaxed) == NO_PING {
                self.ping.store(PING_DUE, Relaxed);
                self.task.wake();
            }
            next.again
        } else {
            self.times.look(now, &self.shared.settings)?
        };
        if self.backlog.is_too_much(now, self.pools()) {
            return Err(TooSlow::Hoarder);
        }
        Ok(self.opened + Duration::from_micros(next))
    }

    /// Ends the rest of a connection on which something began since the last look, and returns the time of the next look;
    /// `None` if there is nothing to change. To be called after each turn of the task. A WebSocket connection that rests is
    /// looked at twice in 30 s instead of each second.
    pub(crate) fn leave_rest(&self) -> Option<Instant> {
        if !self.rests.load(Relaxed) || self.times.is_at_rest() {
            return None;
        }
        self.rests.store(false, Relaxed);
        Some(Instant::now() + shortest(&self.shared.settings))
    }
}

/// As the waker of what is rare.
impl Wake for ClientLink {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Release);
        self.task.wake();
    }
}

/// When to look at a WebSocket connection again, and what to do now.
#[derive(Debug, PartialEq, Eq)]
struct NextLook {
    again: u64,
    is_ping_due: bool,
}

/// The moment `timeout` after another one.
fn after(since: u64, timeout: Duration) -> u64 {
    since.saturating_add(u64::try_from(timeout.as_micros()).unwrap_or(NEVER))
}

/// Whatever begins after a look cannot be late before the shortest timeout.
fn shortest(settings: &Settings) -> Duration {
    LINGER_TIME
        .min(settings.stall_timeout / 5)
        .min(settings.write_timeout)
        .min(settings.head_timeout)
        .min(settings.idle_timeout)
        .max(Duration::from_millis(1))
}

impl LinkTimes {
    /// Whether nothing is under way that has a time limit of its own.
    fn is_at_rest(&self) -> bool {
        let none = [&self.head_since, &self.stalled_since, &self.lingering_since];
        self.requests.load(Relaxed) == 0 && none.iter().all(|since| since.load(Relaxed) == NEVER)
    }

    fn look(&self, now: u64, settings: &Settings) -> Result<u64, TooSlow> {
        let again = after(now, shortest(settings));
        let head = self.head_since.load(Relaxed);
        let (due, why) = if let Some(due) = self.end_of_answer(settings) {
            due
        } else if self.requests.load(Relaxed) > 0 {
            return Ok(again);
        } else if head != NEVER {
            (after(head, settings.head_timeout), TooSlow::Head)
        } else {
            (after(self.idle_since.load(Relaxed), settings.idle_timeout), TooSlow::Idle)
        };
        match now >= due {
            true => Err(why),
            false if self.is_at_rest() => Ok(due),
            false => Ok(due.min(again)),
        }
    }

    /// A client that is silent is pinged, whatever is under way: one that is gone leaves no trace.
    fn look_websocket(&self, now: u64, settings: &Settings) -> Result<NextLook, TooSlow> {
        let again = after(now, shortest(settings));
        let read_at = self.read_at.load(Relaxed);
        let message = self.head_since.load(Relaxed);
        let (due, why) = if let Some(due) = self.end_of_answer(settings) {
            due
        } else if message != NEVER {
            (after(message, settings.body_timeout), TooSlow::Head)
        } else if self.requests.load(Relaxed) > 0 {
            // With many under way nothing is read, and a call has its own deadline.
            (NEVER, TooSlow::Silent)
        } else {
            (after(read_at, settings.silence_timeout), TooSlow::Silent)
        };
        if now >= due {
            return Err(why);
        }
        let ping_at = after(read_at, settings.silence_ping);
        let is_ping_due = now >= ping_at;
        // The answer to a ping begins the next silence.
        let ping_at = if is_ping_due { after(now, settings.silence_ping) } else { ping_at };
        let again = if self.is_at_rest() { NEVER } else { again };
        Ok(NextLook { again: due.min(ping_at).min(again), is_ping_due })
    }

    /// When a client that does not take what is sent is too slow, if it takes nothing now.
    fn end_of_answer(&self, settings: &Settings) -> Option<(u64, TooSlow)> {
        let lingering = self.lingering_since.load(Relaxed);
        let stalled = self.stalled_since.load(Relaxed);
        if lingering != NEVER {
            Some((after(lingering, LINGER_TIME), TooSlow::Linger))
        } else if stalled != NEVER {
            Some((after(stalled, settings.write_timeout), TooSlow::Reader))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// head 10 s, idle 75 s, write 30 s; in seconds, `-` for never.
    fn check(now: u64, requests: u32, moments: &str, expected: Result<u64, TooSlow>) {
        let mut moments = moments.split_whitespace().map(|word| match word {
            "-" => AtomicU64::new(NEVER),
            seconds => AtomicU64::new(seconds.parse::<u64>().unwrap() * 1_000_000),
        });
        let mut next = || moments.next().unwrap();
        let times = LinkTimes {
            requests: AtomicU32::new(requests),
            read_at: AtomicU64::new(0),
            idle_since: next(),
            head_since: next(),
            stalled_since: next(),
            stalled_bytes: AtomicU64::new(0),
            lingering_since: next(),
            answered_at: AtomicU64::new(NEVER),
        };
        let looked = times.look(now * 1_000_000, &Settings::default());
        assert_eq!(looked.map(|at| at / 1_000_000), expected);
    }

    #[test]
    fn idle_connections_have_their_time() {
        check(10, 0, "0 - - -", Ok(75));
        check(74, 0, "0 - - -", Ok(75));
        check(75, 0, "0 - - -", Err(TooSlow::Idle));
    }

    #[test]
    fn a_request_under_way_has_no_limit_here() {
        check(1000, 1, "0 - - -", Ok(1001));
    }

    #[test]
    fn a_head_has_its_time() {
        check(69, 0, "0 60 - -", Ok(70));
        check(70, 0, "0 60 - -", Err(TooSlow::Head));
    }

    #[test]
    fn a_reader_has_its_time_even_when_the_request_is_done() {
        check(99, 0, "0 - 70 -", Ok(100));
        check(100, 0, "0 - 70 -", Err(TooSlow::Reader));
        check(100, 1, "0 - 70 -", Err(TooSlow::Reader));
    }

    #[test]
    fn lingering_is_short() {
        check(5, 1, "0 0 0 5", Ok(6));
        check(6, 1, "0 0 0 5", Err(TooSlow::Linger));
    }

    /// A connection of this protocol that has had its first answer.
    fn rested(protocol: ClientProtocol) -> ClientLink {
        let shared = Arc::new(ServerShared::new(Settings::default()));
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        shared.counters.open(ClientProtocol::Http1);
        let link = ClientLink::new(shared, peer, None, Instant::now());
        link.speak(ClientProtocol::Http1);
        link.begin_request();
        link.end_request();
        if protocol == ClientProtocol::WebSocket {
            link.upgrade();
        }
        link
    }

    #[tokio::test(start_paused = true)]
    async fn what_rests_is_looked_at_late_and_what_begins_then_in_time() {
        for (protocol, rest) in [(ClientProtocol::Http1, 75), (ClientProtocol::WebSocket, 30)] {
            let (link, opened) = (rested(protocol), Instant::now());
            let at = |seconds| opened + Duration::from_secs(seconds);
            assert_eq!(link.look(opened), Ok(at(rest)), "{protocol:?}");
            assert_eq!(link.leave_rest(), None);
            tokio::time::advance(Duration::from_secs(20)).await;
            link.begin_request();
            assert_eq!(link.leave_rest(), Some(at(21)), "{protocol:?}");
            assert_eq!(link.leave_rest(), None, "it is known");
            assert_eq!(link.look(at(21)), Ok(at(22)));
            link.end_request();
            assert!(link.look(at(22)).is_ok_and(|next| next >= at(30)), "{protocol:?}");
            let _ = link.note_flush(Poll::Pending);
            assert_eq!(link.leave_rest(), Some(at(21)), "{protocol:?}");
            assert_eq!(link.look(at(50)), Err(TooSlow::Reader));
        }
    }

    /// The answer to a ping begins the next silence.
    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_looked_at_when_its_next_ping_is_due() {
        let (link, opened) = (rested(ClientProtocol::WebSocket), Instant::now());
        let at = |seconds| opened + Duration::from_secs(seconds);
        assert_eq!((link.look(at(30)), link.take_ping()), (Ok(at(60)), true));
        tokio::time::advance(Duration::from_secs(31)).await;
        link.note_read();
        assert_eq!((link.look(at(60)), link.take_ping()), (Ok(at(61)), false));
        assert_eq!((link.look(at(61)), link.take_ping()), (Ok(at(91)), true));
        assert_eq!((link.look(at(91)), link.take_ping()), (Ok(at(106)), false));
        assert_eq!(link.look(at(106)), Err(TooSlow::Silent));
    }

    /// Each idle connection has one.
    #[test]
    fn a_link_is_small() {
        assert!(size_of::<ClientLink>() <= 256, "{}", size_of::<ClientLink>());
    }
}
