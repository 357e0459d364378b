//! HTTP/2 as a client speaks it: frames in, frames out, streams in between; no
//! socket, no task, no clock.
//!
//! Exchanges append their requests to one buffer, which the connection's task
//! (`h2`) writes as one; what it reads is taken apart here and waits with its
//! stream. A stream's window opens only as its answer is taken, so that an
//! answer that is not read costs that window and no more; the connection's window
//! opens at once, so that it never holds up the others.
//!
//! What went wrong is told to each stream together with whether its request can
//! have been processed: RFC 9113 says so for GOAWAY and REFUSED_STREAM, and what
//! was never written cannot have been.

mod abandon;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod receive;
#[cfg(test)]
mod tests;
mod told;

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use wellhead_transport::{Sent, TRUSTED_LENGTH_MAX, TransportError, TransportErrorKind};

use crate::caps::{Ending, MANY, Manner};
use crate::detect::PREFACE;
use crate::frame::{self, FRAME_BYTES_MAX, H2ErrorCode};
use crate::hpack::{
    Blocks, Decoder, Fields, Undecodable, put_content_length, put_empty_table, put_literal,
};
use crate::outgoing::OutgoingCall;
use abandon::{DISCARDED_MAX, ResetBudget};
use told::Told;

/// Bytes of one answer that may be on their way or wait unread: enough for
/// 40 Mbit/s at 100 ms, and what a client that reads slowly costs in memory.
pub const STREAM_WINDOW: u32 = 512 << 10;
/// Bytes of all answers that may be on their way; bounded by the streams' windows.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Payload of one frame that the peer may send where the network is near: all that
/// fits the window of a stream. It is read straight to where it belongs, and with no
/// piece of another answer between. At 1 Gbit/s a small answer waits 4 ms for it.
const LARGE_FRAME_BYTES: usize = STREAM_WINDOW as usize;
/// What is left of a frame from which a read of its own is worth more than a copy.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// Windows before anything is agreed.
const WINDOW: u32 = 65_535;
/// Largest window that there can be.
const WINDOW_MAX: i64 = (1 << 31) - 1;
/// Headers of one answer, packed; real ones are below 8 KiB.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes taken from large requests at a time, so that small ones get between.
const SEND_AHEAD: usize = 256 << 10;
/// Beyond this the peer does not read what is sent: abandoned requests and answers
/// to its pings pile up.
const OUT_BYTES_MAX: usize = 4 << 20;
/// Streams of one connection; ids are not used again.
const LAST_STREAM: u32 = (1 << 31) - 3;

/// One connection's state, shared by its task and its exchanges.
#[derive(Debug)]
pub(crate) struct Mux {
    /// To be written; taken by the task as a whole.
    out: Vec<u8>,
    /// Bytes appended to `out` since the start.
    appended: u64,
    streams: HashMap<u32, StreamState, foldhash::fast::FixedState>,
    next_id: u32,
    /// Streams with a request that did not fit the windows.
    unsent: VecDeque<u32>,
    send_window: i64,
    peer: Peer,
    table: HeaderTable,
    decoder: Decoder,
    /// Payload that we announced to take.
    frame_bytes_max: usize,
    /// A frame of data of which more is to come.
    data: Option<DataUnderWay>,
    /// Headers of which more is to come.
    headers: Option<HeadersUnderWay>,
    /// Received and not yet given back to the connection's window.
    uncredited: u32,
    idle_frames: usize,
    /// Set while the task sleeps.
    task: Option<Waker>,
    /// Why nothing more will come.
    ended: Option<TransportError>,
    pub(crate) pong: bool,
    /// What the ping under way will prove: streams below this id, and how many
    /// were still open when it was answered.
    pinged: u32,
    proven: Option<usize>,
    /// The peer's last word: streams above are not processed.
    goaway: Option<u32>,
    closing: bool,
    abandoned: ResetBudget,
    /// The most streams that there were at once.
    peak: usize,
    /// Streams that the peer reset one after the other, with no answer between.
    resets_in_a_row: usize,
    /// Streams that we called off.
    called_off: u64,
    /// How the peer ended the connection, until it was read.
    ending: Option<Ending>,
    /// How it said GOAWAY.
    farewell: Option<Manner>,
    /// Where a journal is kept.
    told: Option<Box<Told>>,
}

/// What the peer announced.
#[derive(Debug, Clone, Copy)]
struct Peer {
    settings: bool,
    streams_max: usize,
    stream_window: i64,
}

/// What the peer's table holds of our headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderTable {
    Empty,
    Filled,
    /// To be declared empty before the next request.
    Shrinking,
    Unused,
}

#[derive(Debug)]
struct DataUnderWay {
    stream: u32,
    left: usize,
    padding: usize,
    ends: bool,
}

#[derive(Debug)]
struct HeadersUnderWay {
    stream: u32,
    ends: bool,
    block: Vec<u8>,
    parts: usize,
}

/// One exchange.
#[derive(Debug)]
struct StreamState {
    waker: Option<Waker>,
    /// Where its request starts in what was appended.
    begins_at: u64,
    /// What of the request's body did not fit the windows yet.
    request: Bytes,
    send_window: i64,
    head: Option<(Fields, Instant)>,
    answered: bool,
    /// What the head announced.
    length: Option<u64>,
    data: BytesMut,
    /// Bytes of data that its reader waits for.
    wanted: usize,
    received: u64,
    receive_window: i64,
    uncredited: u32,
    end: Option<Result<(), TransportError>>,
    /// It is abandoned, and the peer does not know.
    abandoned: bool,
}

impl StreamState {
    /// A stream whose headers are written, and of `request` nothing yet.
    fn new(begins_at: u64, request: Bytes, wanted: usize, send_window: i64) -> Self {
        Self {
            waker: None,
            begins_at,
            request,
            send_window,
            head: None,
            answered: false,
            length: None,
            data: BytesMut::new(),
            wanted,
            received: 0,
            receive_window: i64::from(STREAM_WINDOW),
            uncredited: 0,
            end: None,
            abandoned: false,
        }
    }
}

/// The connection cannot go on: our reason for the peer, and for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) H2ErrorCode, pub(crate) &'static str);

impl From<Undecodable> for Broken {
    fn from(Undecodable(why): Undecodable) -> Self {
        Self(H2ErrorCode::COMPRESSION_ERROR, why)
    }
}

impl Mux {
    /// A connection whose preface may have been written already; `is_near` requests large frames.
    pub(crate) fn new(preface_written: bool, is_near: bool) -> Self {
        let frame_bytes_max = if is_near { LARGE_FRAME_BYTES } else { FRAME_BYTES_MAX };
        let mut out = Vec::with_capacity(1024);
        if !preface_written {
            out.extend_from_slice(PREFACE);
        }
        let settings = [
            (frame::ENABLE_PUSH, 0),
            (frame::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (frame::MAX_FRAME_SIZE, frame_bytes_max as u32),
            (frame::MAX_HEADER_LIST_SIZE, HEADER_BYTES_MAX as u32),
        ];
        frame::put_settings(&mut out, &settings);
        frame::put_window_update(&mut out, 0, CONNECTION_WINDOW - WINDOW);
        Self {
            appended: out.len() as u64,
            out,
            streams: HashMap::default(),
            next_id: 1,
            unsent: VecDeque::new(),
            send_window: i64::from(WINDOW),
            peer: Peer {
                settings: false,
                streams_max: usize::MAX,
                stream_window: i64::from(WINDOW),
            },
            table: HeaderTable::Empty,
            decoder: Decoder::new(),
            frame_bytes_max,
            data: None,
            headers: None,
            uncredited: 0,
            idle_frames: 0,
            task: None,
            ended: None,
            pong: false,
            pinged: 0,
            proven: None,
            goaway: None,
            closing: false,
            abandoned: ResetBudget::default(),
            peak: 0,
            resets_in_a_row: 0,
            called_off: 0,
            ending: None,
            farewell: None,
            told: None,
        }
    }

    /// Whether the peer's SETTINGS arrived.
    pub(crate) fn has_settings(&self) -> bool {
        self.peer.settings
    }

    /// Streams that the peer allows.
    pub(crate) fn streams_max(&self) -> usize {
        self.peer.streams_max
    }

    /// Whether no new stream may be opened.
    pub(crate) fn is_leaving(&self) -> bool {
        self.goaway.is_some() || self.ended.is_some() || self.next_id > LAST_STREAM
    }

    /// Whether nothing is under way and nothing will be.
    pub(crate) fn is_done(&self) -> bool {
        (self.is_leaving() || self.closing) && !self.is_wanted() && self.out.is_empty()
    }

    /// Refuses a request for which no stream can be opened now.
    fn check_open(&self) -> Result<(), TransportError> {
        if let Some(error) = &self.ended {
            return Err(TransportError { sent: Sent::No, ..error.clone() });
        }
        if self.is_leaving() {
            let detail = "the connection takes no more streams";
            return Err(TransportError::new(TransportErrorKind::Closed, Sent::No, detail));
        }
        if self.out.len() >= OUT_BYTES_MAX {
            let detail = "the peer does not read what is sent";
            return Err(TransportError::new(TransportErrorKind::PoolFull, Sent::No, detail));
        }
        Ok(())
    }

    /// Opens a stream for a request; its reader will first want `wanted` bytes.
    pub(crate) fn request(
        &mut self,
        blocks: &Blocks,
        OutgoingCall { body, trace }: OutgoingCall,
        wanted: usize,
    ) -> Result<u32, TransportError> {
        self.check_open()?;
        let id = self.next_id;
        self.next_id += 2;
        let begins_at = self.appended;
        let before = self.out.len();
        let ends = body.is_empty();
        frame::put_headers(&mut self.out, id, ends, |out| {
            let block = match self.table {
                HeaderTable::Empty => &blocks.first,
                HeaderTable::Filled => &blocks.later,
                HeaderTable::Shrinking => {
                    put_empty_table(out);
                    &blocks.plain
                }
                HeaderTable::Unused => &blocks.plain,
            };
            out.extend_from_slice(block);
            put_content_length(out, body.len());
            if let Some(trace) = &trace {
                put_literal(out, "traceparent", &trace.header());
            }
        });
        self.table = match self.table {
            HeaderTable::Empty | HeaderTable::Filled => HeaderTable::Filled,
            HeaderTable::Shrinking | HeaderTable::Unused => HeaderTable::Unused,
        };
        self.appended += (self.out.len() - before) as u64;
        let mut stream = StreamState::new(begins_at, body, wanted, self.peer.stream_window);
        if !self.send(id, &mut stream) {
            self.unsent.push_back(id);
        }
        self.streams.insert(id, stream);
        self.peak = self.peak.max(self.streams.len());
        self.wake_task();
        Ok(id)
    }

    /// Appends what fits the windows; `true` when all did.
    fn send(&mut self, id: u32, stream: &mut StreamState) -> bool {
        while !stream.request.is_empty() {
            let window = self.send_window.min(stream.send_window).max(0) as usize;
            let some = stream.request.len().min(window).min(FRAME_BYTES_MAX);
            if some == 0 || self.out.len() >= SEND_AHEAD {
                return false;
            }
            let piece = stream.request.split_to(some);
            let before = self.out.len();
            frame::put_data(&mut self.out, id, &piece, stream.request.is_empty());
            self.appended += (self.out.len() - before) as u64;
            self.send_window -= some as i64;
            stream.send_window -= some as i64;
        }
        if let Some(told) = &mut self.told {
            told.appended(id, self.appended);
        }
        true
    }

    /// Appends more of the large requests, in turn.
    fn send_more(&mut self) {
        for _ in 0..self.unsent.len() {
            if self.send_window <= 0 || self.out.len() >= SEND_AHEAD {
                return;
            }
            let Some(id) = self.unsent.pop_front() else { return };
            let Some(mut stream) = self.streams.remove(&id) else { continue };
            let sent = self.send(id, &mut stream);
            self.streams.insert(id, stream);
            if !sent {
                self.unsent.push_back(id);
            }
        }
    }

    /// What is to be written now, in exchange for an empty buffer.
    pub(crate) fn take_out(&mut self, empty: &mut Vec<u8>) {
        self.send_more();
        std::mem::swap(&mut self.out, empty);
    }

    /// The task sleeps; `waker` is woken when there is something to write.
    /// Returns whether it may: not while something waits to be written.
    pub(crate) fn sleep(&mut self, waker: &Waker) -> bool {
        self.send_more();
        if !self.out.is_empty() {
            return false;
        }
        self.task = Some(waker.clone());
        true
    }

    fn wake_task(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// The head of the answer on stream `id`, once.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
    ) -> Poll<Result<(Fields, Instant), TransportError>> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(Err(unknown_stream()));
        };
        if let Some(head) = stream.head.take() {
            return Poll::Ready(Ok(head));
        }
        if let Some(Err(error)) = &stream.end {
            return Poll::Ready(Err(error.clone()));
        }
        stream.wait(cx);
        Poll::Pending
    }

    /// The next data on stream `id`, and whether it was the last; `None` at the
    /// end. Waits for `at_least` bytes or the end.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        at_least: usize,
    ) -> Poll<Option<Result<(Bytes, bool), TransportError>>> {
        let Some(stream) = self.streams.get_mut(&id) else { return Poll::Ready(None) };
        if stream.data.len() >= at_least.max(1) || (stream.end.is_some() && !stream.data.is_empty())
        {
            let data = std::mem::take(&mut stream.data).freeze();
            let is_last = matches!(stream.end, Some(Ok(())));
            stream.wanted = 0;
            self.credit(id);
            return Poll::Ready(Some(Ok((data, is_last))));
        }
        match &stream.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error.clone()))),
            None => {
                stream.wanted = at_least.max(1);
                stream.wait(cx);
                // The peer may go on: what waits is less than the reader wants.
                self.credit(id);
                Poll::Pending
            }
        }
    }

    /// Opens the window of stream `id` by what was received, if that is worth a frame.
    fn credit(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let unwanted = stream.abandoned && stream.received > DISCARDED_MAX;
        // All that is still to come may come already.
        let enough = stream.length.is_some_and(|length| {
            length.saturating_sub(stream.received) <= stream.receive_window.max(0) as u64
        });
        let worth = stream.uncredited >= STREAM_WINDOW / 2 && !enough && !unwanted;
        if stream.end.is_none() && worth {
            let before = self.out.len();
            frame::put_window_update(&mut self.out, id, stream.uncredited);
            self.appended += (self.out.len() - before) as u64;
            stream.receive_window += i64::from(stream.uncredited);
            stream.uncredited = 0;
            self.wake_task();
        }
    }

    fn reset(&mut self, id: u32, reason: H2ErrorCode) {
        let before = self.out.len();
        frame::put_reset(&mut self.out, id, reason);
        self.called_off += 1;
        self.appended += (self.out.len() - before) as u64;
        self.wake_task();
    }

    /// No further exchange will come.
    pub(crate) fn close(&mut self) {
        if !self.closing && self.ended.is_none() {
            self.closing = true;
            self.append(|out| frame::put_goaway(out, H2ErrorCode::NO_ERROR));
        }
        self.wake_task();
    }

    /// Asks the peer whether it is there; `pong` says that it is.
    pub(crate) fn ping(&mut self) {
        self.pong = false;
        self.pinged = self.next_id;
        self.append(|out| frame::put_ping(out, false, &[0; 8]));
    }

    fn append(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let before = self.out.len();
        put(&mut self.out);
        self.appended += (self.out.len() - before) as u64;
    }

    /// Whether the peer said GOAWAY.
    pub(crate) fn was_told_to_leave(&self) -> bool {
        self.goaway.is_some()
    }

    /// Whether no further request will come.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether requests are under way.
    pub(crate) fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether some request in progress is not abandoned.
    fn is_wanted(&self) -> bool {
        self.streams.len() > self.abandoned.len()
    }

    /// Streams without a whole answer.
    pub(crate) fn open(&self) -> usize {
        self.open_up_to(u32::MAX)
    }

    /// Streams up to `last` without a whole answer.
    fn open_up_to(&self, last: u32) -> usize {
        self.streams.iter().filter(|(id, stream)| **id <= last && stream.end.is_none()).count()
    }

    /// Notes that the peer ends the connection, and with what under way.
    fn note_ending(&mut self, manner: Manner, open: usize, last: u32) {
        let last = last.min(self.next_id - 1);
        let (peak, requests) = (self.peak, u64::from(last.div_ceil(2)));
        let (called_off, silence) = (self.called_off, Duration::ZERO);
        self.ending = Some(Ending { manner, open, peak, requests, called_off, silence });
    }

    /// How the peer ended the connection, or said that it would; once. How long it
    /// had been silent is for the caller to add.
    pub(crate) fn take_ending(&mut self) -> Option<Ending> {
        self.ending.take()
    }

    /// The streams that an answered ping has shown to be borne; once.
    pub(crate) fn take_proven(&mut self) -> Option<usize> {
        self.proven.take()
    }

    /// The peer closed the connection, or it broke: what that says of its bounds.
    pub(crate) fn lost(&mut self) {
        let open = self.open_up_to(self.goaway.unwrap_or(u32::MAX));
        let news = match self.farewell {
            None => !self.closing,
            // It did not spare them after all.
            Some(Manner::Orderly) => open >= MANY,
            Some(Manner::Abrupt) => false,
        };
        if news {
            let requests = (self.next_id / 2) as usize - open;
            self.note_ending(Manner::Abrupt, open, (2 * requests) as u32);
        }
    }

    /// The connection has ended after `written` bytes: all streams fail.
    pub(crate) fn end(&mut self, kind: TransportErrorKind, detail: &str, written: u64) {
        let error = TransportError::new(kind, Sent::Maybe, detail);
        let last = self.goaway.unwrap_or(u32::MAX);
        for (id, stream) in &mut self.streams {
            let unprocessed = *id > last || stream.begins_at >= written;
            stream.fail(kind, unprocessed, detail);
        }
        self.ended = Some(error);
    }
}

impl StreamState {
    fn wait(&mut self, cx: &mut Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ends without an answer, or inside it.
    fn fail(&mut self, kind: TransportErrorKind, unprocessed: bool, detail: &str) {
        if self.end.is_none() {
            let sent = if unprocessed { Sent::No } else { Sent::Maybe };
            let kind = if self.answered { TransportErrorKind::Truncated } else { kind };
            self.end = Some(Err(TransportError::new(kind, sent, detail)));
        }
        self.wake();
    }

    /// Room for `some` bytes more, and at best for all that is announced and wanted.
    fn make_room(&mut self, some: usize) {
        if self.data.capacity() - self.data.len() >= some {
            return;
        }
        let announced = self.length.map_or(some, |length| {
            usize::try_from(length.saturating_sub(self.received)).unwrap_or(usize::MAX)
        });
        let wanted = self.wanted.saturating_sub(self.data.len());
        self.data.reserve(announced.min(wanted).clamp(some, TRUSTED_LENGTH_MAX.max(some)));
    }
}

fn unknown_stream() -> TransportError {
    TransportError::new(TransportErrorKind::Closed, Sent::Maybe, "the stream has ended")
}
