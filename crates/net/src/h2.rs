//! One HTTP/2 connection: many exchanges at a time, written and read together.
//!
//! One task per connection moves bytes between the socket and `mux`, where the
//! exchanges leave their requests and find their answers: a burst of requests
//! leaves with one system call, and what arrived together is read with one. How
//! many connections there are, and which one an exchange takes, is for `pool`.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::time::{Instant, Sleep, sleep};
use wellhead_telemetry::clock;
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::caps::Ending;
use crate::dial::Stream;
use crate::endpoint::Prepared;
use crate::frame::{H2ErrorCode, put_goaway};
use crate::head::{AnswerHead, BodyHead, retry_after};
use crate::inflate::Encoding;
use crate::journal::{ConnectionLog, ExchangeTimeline, JournalEvent, SetUp, keep_limit};
use crate::mux::{Broken, Mux};
use crate::outgoing::OutgoingCall;
use crate::protocol::{CloseReason, Protocol};
use crate::settings::ClientSettings;
use crate::stats::ConnectionStats;

/// Room for one read: the answers of a burst.
const READ_BYTES: usize = 64 << 10;
/// Room for one read while large answers arrive: what exceeds the head of their next
/// frame would have to be copied.
const READ_BYTES_BETWEEN: usize = 8 << 10;
/// Reads and writes before other tasks get a turn.
const TURNS_MAX: usize = 32;
/// A buffer that grew beyond this for a large request is not kept.
const KEPT_BUFFER_MAX: usize = 512 << 10;

/// Why a connection is about to end; shared between its handle and its task.
#[derive(Debug, Clone)]
pub(crate) struct Fate(Arc<AtomicU8>);

impl Fate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(CloseReason::Peer as u8)))
    }

    pub(crate) fn set(&self, reason: CloseReason) {
        self.0.store(reason as u8, Relaxed);
    }

    pub(crate) fn get(&self) -> CloseReason {
        CloseReason::from_index(self.0.load(Relaxed))
    }
}

/// What the connection's task and its users share.
#[derive(Debug)]
struct H2Shared {
    mux: Mutex<Mux>,
    in_flight: AtomicUsize,
    /// What the peer allows; `usize::MAX` where it announced no limit.
    announced: AtomicUsize,
    /// Lowered when the peer refuses streams below what it announced.
    tolerated: AtomicUsize,
    /// The peer's SETTINGS arrived.
    settled: AtomicBool,
    leaving: AtomicBool,
    /// Abandoned streams that are still open.
    abandoned: AtomicUsize,
    /// Set by each use, cleared by the sweep.
    used: AtomicBool,
    stats: Arc<ConnectionStats>,
    /// Where a journal is kept: the connection's number, and how it came about until an
    /// exchange has told it.
    noted: Option<(u64, Mutex<Option<SetUp>>)>,
}

impl H2Shared {
    /// Takes over what the pool decides by; `true` when some of it changed.
    fn note(&self, mux: &Mux) -> bool {
        let (settled, leaving) = (mux.has_settings(), mux.is_leaving());
        let changed = self.settled.swap(settled, Relaxed) != settled;
        let left = self.leaving.swap(leaving, Relaxed) != leaving;
        let left = self.abandoned.swap(mux.abandoned(), Relaxed) > mux.abandoned() || left;
        let announced = self.announced.swap(mux.streams_max(), Relaxed) != mux.streams_max();
        if settled && (changed || announced) {
            self.stats.note_announced(mux.streams_max());
        }
        announced || changed || left
    }
}

/// A connection before HTTP/2 is spoken on it.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) stream: Stream,
    /// What a detection, which wrote the preface, read after it.
    pub(crate) read: Option<Bytes>,
    /// Where a journal is kept.
    pub(crate) page: Option<Box<ConnectionLog>>,
}

/// The handle of one connection. When the last handle is dropped the connection
/// ends; each stream on it has a handle.
#[derive(Debug)]
pub(crate) struct H2Connection {
    common: Arc<H2Shared>,
    fate: Fate,
    streams_max: usize,
    requests_max: u64,
    streams_before_settings: usize,
    /// A larger number of streams than is known to be borne, which this connection tries.
    trial: Option<usize>,
    requests: AtomicU64,
    /// To be replaced from then on.
    retire_at: Instant,
    /// The sweep that saw it used last.
    quiet_since: Mutex<Instant>,
}

/// Told by a connection's task when room or usability changed.
pub(crate) trait H2Observer: Send + Sync + 'static {
    /// More streams may fit, or the peer said GOAWAY.
    fn changed(&self);
    /// The peer ended the connection, or said that it will.
    fn ended(&self, ending: &Ending, now: Instant);
    /// The peer answered a ping with that many streams open.
    fn proven(&self, streams: usize, now: Instant);
}

impl H2Connection {
    /// Opens HTTP/2. The task holds `observer` until the connection has ended.
    pub(crate) fn open(
        Opening { stream, read, mut page }: Opening,
        fate: Fate,
        observer: impl H2Observer,
        settings: &ClientSettings,
        stats: &Arc<ConnectionStats>,
        retire_at: Instant,
    ) -> Result<Self, TransportError> {
        let mut mux = Mux::new(read.is_some(), !stream.is_tls());
        if page.is_some() {
            mux.tell();
        }
        let noted = page.as_mut().map(|page| (page.number, Mutex::new(page.set_up.take())));
        let now = Instant::now();
        let mut io = Io::new(stream, page, now);
        if let Some(read) = read {
            // Taken in at once, so that the first exchanges know the limits.
            io.read.extend_from_slice(&read);
            let taken = io.receive(&mut mux, now);
            io.note_happened(mux.take_happened(), now);
            if taken.is_err() || mux.is_leaving() {
                let detail = "the peer left at once";
                return Err(TransportError::new(TransportErrorKind::Connect, Sent::No, detail));
            }
        }
        let common = Arc::new(H2Shared {
            in_flight: AtomicUsize::new(0),
            announced: AtomicUsize::new(usize::MAX),
            tolerated: AtomicUsize::new(usize::MAX),
            settled: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            abandoned: AtomicUsize::new(0),
            used: AtomicBool::new(true),
            stats: Arc::clone(stats),
            noted,
            mux: Mutex::new(mux),
        });
        common.note(&common.mux.lock());
        let keep_alive = (settings.h2_ping_interval, settings.h2_ping_timeout);
        let task = drive(io, Arc::clone(&common), fate.clone(), observer, keep_alive);
        tokio::spawn(task);
        let streams_max = settings.h2_streams_max.max(1);
        Ok(Self {
            common,
            fate,
            streams_max,
            requests_max: settings.h2_requests_max.unwrap_or(u64::MAX),
            streams_before_settings: settings.h2_streams_before_settings.max(1),
            trial: stats.caps.trial(streams_max, now),
            requests: AtomicU64::new(0),
            retire_at,
            quiet_since: Mutex::new(now),
        })
    }

    /// Whether the peer's limits are still unknown.
    pub(crate) fn is_warming(&self) -> bool {
        !self.common.settled.load(Relaxed)
    }

    /// Whether no new exchange may start on it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.common.leaving.load(Relaxed)
    }

    /// Streams in flight, including abandoned ones.
    pub(crate) fn in_flight(&self) -> usize {
        self.common.in_flight.load(Relaxed) + self.common.abandoned.load(Relaxed)
    }

    /// Whether another connection is to take its place.
    pub(crate) fn is_worn(&self, now: Instant) -> bool {
        let requests_max = self.common.stats.caps.requests().min(self.requests_max);
        now >= self.retire_at
            || self.requests.load(Relaxed) >= requests_max
            || self.common.abandoned.load(Relaxed) * 2 > self.cap()
    }

    /// Exchanges that may be in flight.
    pub(crate) fn cap(&self) -> usize {
        let known = if self.is_warming() {
            self.streams_before_settings
        } else {
            self.common.announced.load(Relaxed)
        };
        let learnt = self.common.stats.caps.streams();
        let learnt = self.trial.map_or(learnt, |trial| trial.max(learnt));
        known.min(self.streams_max).min(learnt).min(self.common.tolerated.load(Relaxed))
    }

    pub(crate) fn enter(&self) {
        self.requests.fetch_add(1, Relaxed);
        self.common.in_flight.fetch_add(1, Relaxed);
        self.common.used.store(true, Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.common.in_flight.fetch_sub(1, Relaxed);
    }

    /// Since which sweep it has not been used; each sweep asks once.
    pub(crate) fn quiet_since(&self, now: Instant) -> Instant {
        let mut since = self.quiet_since.lock();
        if self.common.used.swap(false, Relaxed) || self.in_flight() > 0 {
            *since = now;
        }
        *since
    }

    pub(crate) fn will_close(&self, reason: CloseReason) {
        self.fate.set(reason);
    }

    /// Tells an exchange that waited for `waited` what carries it.
    pub(crate) fn board(&self, passage: &mut ExchangeTimeline, waited: Duration) {
        let Some((number, set_up)) = &self.common.noted else { return };
        passage.board(*number, Protocol::H2, set_up.lock().take(), waited);
    }

    /// Sends `outgoing` and reads the head of the answer, of which `wanted` bytes will
    /// be read together; a `passage` comes with when it was sent. Dropping the future, or the stream that it brings, resets
    /// the stream.
    pub(crate) async fn exchange(
        &self,
        prepared: &Prepared,
        outgoing: OutgoingCall,
        wanted: usize,
        mut passage: Option<(&mut ExchangeTimeline, Instant)>,
    ) -> Result<(AnswerHead, H2Stream), TransportError> {
        let id = self.common.mux.lock().request(&prepared.h2_head, outgoing, wanted)?;
        if let Some((passage, _)) = &mut passage {
            passage.stream = Some(id);
        }
        let stream = H2Stream { common: Arc::clone(&self.common), id, ended: false };
        let answered = poll_fn(|cx| self.common.mux.lock().poll_head(cx, id)).await;
        let (mut fields, at) = answered.inspect_err(|error| self.note_refusal(error))?;
        if let Some((passage, sent)) = passage {
            passage.arrive(sent, self.common.mux.lock().written_at(id), at);
            passage.limits = std::mem::take(&mut fields.limits);
            if let Some(value) = &fields.retry_after {
                keep_limit(&mut passage.limits, b"retry-after", value);
            }
        }
        let wait = fields.retry_after.as_deref();
        let answer = AnswerHead {
            // Only answers with a status come this far.
            status: fields.status.unwrap_or_default(),
            retry_after: retry_after(wait, fields.date.as_deref(), clock::unix_seconds),
            body: BodyHead {
                length: fields.length,
                encoding: fields.encoding.unwrap_or(Encoding::Identity),
            },
            at,
        };
        Ok((answer, stream))
    }

    /// The peer's true limit is below what was in flight, this one included.
    fn note_refusal(&self, error: &TransportError) {
        if error.sent == Sent::No && !self.is_leaving() {
            self.common.stats.refused.fetch_add(1, Relaxed);
            let below = self.in_flight().saturating_sub(1).max(1);
            self.common.tolerated.fetch_min(below, Relaxed);
            // A peer that refuses everything does so for other reasons.
            let borne = self.common.mux.lock().open();
            self.common.stats.caps.refused(borne, Instant::now());
        }
    }
}

impl Drop for H2Connection {
    fn drop(&mut self) {
        if self.trial.is_some() {
            self.common.stats.caps.trial_over();
        }
        self.common.mux.lock().close();
    }
}

/// An answer's body on its way. Dropped before its end it resets the stream.
#[derive(Debug)]
pub(crate) struct H2Stream {
    common: Arc<H2Shared>,
    id: u32,
    ended: bool,
}

impl H2Stream {
    pub(crate) fn is_end(&self) -> bool {
        self.ended
    }

    /// The next data. The peer may send as much again: it is asked for no faster
    /// than it is read.
    pub(crate) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        at_least: usize,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.common.mux.lock().poll_data(cx, self.id, at_least);
        Poll::Ready(match ready!(polled) {
            Some(Ok((data, is_last))) => {
                self.ended = is_last;
                Some(Ok(data))
            }
            Some(Err(error)) => Some(Err(error)),
            None => {
                self.ended = true;
                None
            }
        })
    }
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        let mut mux = self.common.mux.lock();
        if mux.release(self.id, Instant::now) {
            self.common.abandoned.store(mux.abandoned(), Relaxed);
            self.common.stats.left_open.fetch_add(1, Relaxed);
        }
    }
}

/// Time between pings, and how long to wait for the answer.
type KeepAlive = (Duration, Duration);

/// The socket and what is on its way through it.
#[derive(Debug)]
struct Io {
    stream: Stream,
    /// Arrived; starts with the beginning of something.
    read: Vec<u8>,
    /// What was read last was a piece of something large.
    large: bool,
    /// To be written, from `at` on.
    write: Vec<u8>,
    at: usize,
    /// Bytes that the socket took since the start.
    written: u64,
    /// Why nothing more can be written. What the peer said before is still read.
    write_error: Option<io::Error>,
    /// When something last arrived.
    last_read: Instant,
    /// Where a journal is kept.
    page: Option<Box<ConnectionLog>>,
}

/// What a read brought.
enum Arrived {
    /// The end.
    Nothing,
    /// Part of an answer, which has it already.
    Piece,
    /// Frames, to be taken apart.
    Frames,
}

/// Why the task ends.
enum H2Stop {
    /// Nothing is under way and nothing will come.
    Done,
    /// The peer closed the connection, or it broke.
    Lost(Option<io::Error>),
    /// The peer broke HTTP/2.
    Broken(Broken),
}

impl Io {
    fn new(stream: Stream, page: Option<Box<ConnectionLog>>, now: Instant) -> Self {
        Self {
            stream,
            read: Vec::new(),
            large: false,
            write: Vec::new(),
            at: 0,
            written: 0,
            write_error: None,
            last_read: now,
            page,
        }
    }

    fn note_happened(&self, happened: Vec<JournalEvent>, now: Instant) {
        let Some(page) = &self.page else { return };
        for what in happened {
            page.note(what, now);
        }
    }

    /// Writes all there is, or as much as the socket takes.
    fn poll_write(&mut self, cx: &mut Context<'_>, common: &H2Shared) -> Poll<io::Result<()>> {
        loop {
            if self.at == self.write.len() {
                self.at = 0;
                self.write.clear();
                if self.write.capacity() > KEPT_BUFFER_MAX {
                    self.write = Vec::new();
                }
                common.mux.lock().take_out(&mut self.write);
                if self.write.is_empty() {
                    return Pin::new(&mut self.stream).poll_flush(cx);
                }
            }
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.write[self.at..]);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                some => {
                    self.at += some;
                    self.written += some as u64;
                    if self.page.is_some() {
                        common.mux.lock().note_written(self.written, Instant::now());
                    }
                }
            }
        }
    }

    /// Reads a piece of a large answer to where it belongs, or else frames to be taken apart.
    fn poll_read(&mut self, cx: &mut Context<'_>, common: &H2Shared) -> Poll<io::Result<Arrived>> {
        let mut mux = common.mux.lock();
        if let Some(mut room) = mux.room() {
            let some = ready!(pin!(self.stream.read_buf(&mut room)).poll(cx))?;
            mux.received_directly(some);
            self.large = true;
            self.last_read = Instant::now();
            return Poll::Ready(Ok(if some == 0 { Arrived::Nothing } else { Arrived::Piece }));
        }
        drop(mux);
        let most = if self.large { READ_BYTES_BETWEEN } else { READ_BYTES };
        self.read.reserve(most);
        let some = ready!(pin!(self.stream.read_buf(&mut (&mut self.read).limit(most))).poll(cx))?;
        self.large = false;
        Poll::Ready(Ok(if some == 0 { Arrived::Nothing } else { Arrived::Frames }))
    }

    /// Hands what arrived to `mux`; keeps the beginning of what is not complete.
    fn receive(&mut self, mux: &mut Mux, now: Instant) -> Result<(), Broken> {
        let taken = mux.receive(&self.read, now)?;
        if taken == self.read.len() {
            self.read.clear();
        } else {
            self.read.drain(..taken);
        }
        Ok(())
    }

    /// Moves bytes both ways until neither moves any more.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        common: &H2Shared,
        observer: &impl H2Observer,
    ) -> Poll<H2Stop> {
        for _ in 0..TURNS_MAX {
            if self.write_error.is_none()
                && let Poll::Ready(Err(error)) = self.poll_write(cx, common)
            {
                self.write_error = Some(error);
            }
            match self.poll_read(cx, common) {
                Poll::Ready(Ok(Arrived::Nothing)) => return Poll::Ready(H2Stop::Lost(None)),
                Poll::Ready(Ok(Arrived::Piece)) => {}
                Poll::Ready(Ok(Arrived::Frames)) => {
                    let mut mux = common.mux.lock();
                    let now = Instant::now();
                    let received = self.receive(&mut mux, now);
                    let changed = common.note(&mux);
                    let (ending, proven) = (mux.take_ending(), mux.take_proven());
                    let happened = mux.take_happened();
                    drop(mux);
                    self.note_happened(happened, now);
                    if let Some(ending) = ending {
                        self.tell(ending, observer, now);
                    }
                    if let Some(streams) = proven {
                        observer.proven(streams, now);
                    }
                    self.last_read = now;
                    if changed {
                        observer.changed();
                    }
                    if let Err(broken) = received {
                        return Poll::Ready(H2Stop::Broken(broken));
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(H2Stop::Lost(Some(error))),
                Poll::Pending if self.write_error.is_some() => {
                    return Poll::Ready(H2Stop::Lost(self.write_error.take()));
                }
                Poll::Pending => {
                    let mut mux = common.mux.lock();
                    if mux.is_done() && self.at == self.write.len() {
                        return Poll::Ready(H2Stop::Done);
                    }
                    // While the socket is full, its waker is the one that matters.
                    if mux.sleep(cx.waker()) || self.at < self.write.len() {
                        return Poll::Pending;
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Fails the streams of a connection that stopped, and says why to the peer, to the pool and to
    /// the journal.
    fn end(
        &mut self,
        cx: &mut Context<'_>,
        stop: H2Stop,
        common: &H2Shared,
        fate: &Fate,
        observer: &impl H2Observer,
    ) {
        let peers_doing = matches!(stop, H2Stop::Lost(_)) && fate.get() != CloseReason::Stuck;
        let (kind, detail) = match stop {
            H2Stop::Done => (TransportErrorKind::Closed, String::new()),
            H2Stop::Lost(error) => {
                let detail = error.map_or_else(String::new, |error| error.to_string());
                (TransportErrorKind::Closed, detail)
            }
            H2Stop::Broken(Broken(reason, why)) => {
                fate.set(CloseReason::BadAnswer);
                self.part(cx, reason);
                (TransportErrorKind::Protocol, why.to_owned())
            }
        };
        let mut mux = common.mux.lock();
        if mux.was_told_to_leave() {
            fate.set(CloseReason::Replaced);
        }
        if peers_doing {
            mux.lost();
        }
        let lesson = mux.take_ending();
        if let Some(page) = &mut self.page {
            page.requests = mux.requests();
            page.closed(fate.get(), mux.open() + mux.disowned());
        }
        // Fails the streams in flight before the pool hears of the end.
        mux.end(kind, &detail, self.written);
        common.note(&mux);
        drop(mux);
        if let Some(lesson) = lesson {
            self.tell(lesson, observer, Instant::now());
        }
        // Under TLS this says farewell; what it would have to wait for is left.
        let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
    }

    /// Passes on how the peer ends the connection.
    fn tell(&self, ending: Ending, observer: &impl H2Observer, now: Instant) {
        let silence = now.saturating_duration_since(self.last_read);
        observer.ended(&Ending { silence, ..ending }, now);
    }

    /// Tells the peer why, if that takes no waiting.
    fn part(&mut self, cx: &mut Context<'_>, reason: H2ErrorCode) {
        self.write.drain(..self.at);
        self.at = 0;
        put_goaway(&mut self.write, reason);
        let _ = Pin::new(&mut self.stream).poll_write(cx, &self.write);
    }
}

/// Runs the connection until it ends, telling `observer` what changed.
async fn drive(
    mut io: Io,
    common: Arc<H2Shared>,
    fate: Fate,
    observer: impl H2Observer,
    (interval, patience): KeepAlive,
) {
    let mut pulse = H2KeepAlive { asked: false, interval, patience };
    let mut timer = pin!(sleep(interval));
    poll_fn(|cx| {
        let stop = match io.poll(cx, &common, &observer) {
            Poll::Ready(stop) => stop,
            Poll::Pending if pulse.poll_dead(cx, timer.as_mut(), &common) => {
                fate.set(CloseReason::Stuck);
                H2Stop::Lost(Some(io::Error::other("no answer to a ping")))
            }
            Poll::Pending => return Poll::Pending,
        };
        io.end(cx, stop, &common, &fate, &observer);
        Poll::Ready(())
    })
    .await;
    drop(io);
    drop(observer);
}

/// Asks a peer with open streams from time to time whether it is still there.
struct H2KeepAlive {
    asked: bool,
    interval: Duration,
    patience: Duration,
}

impl H2KeepAlive {
    fn poll_dead(
        &mut self,
        cx: &mut Context<'_>,
        mut timer: Pin<&mut Sleep>,
        common: &H2Shared,
    ) -> bool {
        if self.asked && common.mux.lock().pong {
            self.asked = false;
            timer.as_mut().reset(Instant::now() + self.interval);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let mut mux = common.mux.lock();
            // It is not needed; a peer that does not read must not keep it open.
            if self.asked || mux.is_closing() {
                return true;
            }
            let wait = if mux.has_streams() {
                self.asked = true;
                mux.ping();
                // The next turn writes it.
                cx.waker().wake_by_ref();
                self.patience
            } else {
                self.interval
            };
            drop(mux);
            timer.as_mut().reset(Instant::now() + wait);
        }
        false
    }
}
