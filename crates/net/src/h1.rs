//! One HTTP/1.1 connection: one exchange at a time, polled by its caller.
//!
//! No task and no channel per connection: the exchange writes its request with
//! one system call and reads a small answer with one. What the bytes of an
//! answer mean is in `http1`; when a connection may be used again, and how long
//! it lives, is for `pool`.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, ReadBuf};
use tokio::time::Instant;
use wellhead_http1::answer::{self, HEAD_BYTES_MAX, ResponseFraming};
use wellhead_http1::{ChunkStep, Chunked, MalformedHttp};
use wellhead_jsonrpc::write;
use wellhead_telemetry::clock;
use wellhead_transport::{Sent, TRUSTED_LENGTH_MAX, TransportError, TransportErrorKind};

use crate::body::{Chunks, PIECE};
use crate::dial::Stream;
use crate::endpoint::Prepared;
use crate::head::{AnswerHead, BodyHead, retry_after};
use crate::inflate::Encoding;
use crate::journal::{ConnectionLog, ExchangeTimeline, keep_limit};
use crate::outgoing::OutgoingCall;
use crate::protocol::{CloseReason, Protocol};

/// Room for one read: most answers and their heads fit.
const READ_BYTES: usize = 8 << 10;
/// Data announced from which on it is read to where it stays, without a copy;
/// below, one more system call would cost more than the copy.
const DIRECT_BYTES_MIN: u64 = 32 << 10;
/// A request body up to this size is copied behind its head, to be written as one.
const JOINED_BODY_MAX: usize = 16 << 10;
/// Buffers larger than this are not kept for the next exchange.
const KEPT_BUFFER_MAX: usize = 24 << 10;
/// Chunks and reads between two looks at the other tasks. tokio counts reads alone, and
/// 8 MiB of one-byte chunks would keep the worker from all its clients meanwhile.
const STEPS_MAX: usize = 512;
/// Answers of status 1xx before the real one.
const INTERIM_MAX: usize = 8;
/// After lying idle for longer, the socket itself is asked whether it is still
/// open: what the runtime knows of it may be older than the peer's farewell.
/// Below, that system call would cost more than it finds.
const TRUSTED_IDLE_MAX: Duration = Duration::from_millis(500);

/// One open connection.
#[derive(Debug)]
pub(crate) struct H1Connection {
    stream: Stream,
    /// Arrived and, from `taken` on, not yet understood.
    read: Vec<u8>,
    taken: usize,
    /// The request under way, or its head when the body is large.
    write: Vec<u8>,
    exchange: H1Exchange,
    /// Not used again from then on.
    pub(crate) retire_at: Instant,
    /// When it was last given back.
    pub(crate) idle_since: Instant,
    /// Whether an exchange was completed on it.
    pub(crate) reused: bool,
    /// Where a journal is kept.
    page: Option<Box<ConnectionLog>>,
}

/// Where the exchange under way stands.
#[derive(Debug)]
struct H1Exchange {
    /// Bytes written, of `length` in all.
    written: usize,
    length: usize,
    /// Whether TLS still holds some of what was written.
    unflushed: bool,
    /// Why the rest of the request cannot be written.
    write_error: Option<io::Error>,
    /// Whether the answer came before the request was written.
    early: bool,
    /// The request's body, where it is still needed behind an early answer.
    unsent: Option<Bytes>,
    interims: usize,
    body: Body,
    /// What arrived of the piece that is being joined.
    joined: BytesMut,
    keeps_open: bool,
}

/// What is still to come of an answer's body.
#[derive(Debug)]
enum Body {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Ended,
}

impl H1Exchange {
    fn none() -> Self {
        Self {
            written: 0,
            length: 0,
            unflushed: false,
            write_error: None,
            early: false,
            unsent: None,
            interims: 0,
            body: Body::Ended,
            joined: BytesMut::new(),
            keeps_open: true,
        }
    }
}

impl H1Connection {
    pub(crate) fn new(stream: Stream, opened: Instant, retire_at: Instant) -> Self {
        Self {
            stream,
            read: Vec::new(),
            taken: 0,
            write: Vec::new(),
            exchange: H1Exchange::none(),
            retire_at,
            idle_since: opened,
            reused: false,
            page: None,
        }
    }

    /// What it does is noted from now on.
    pub(crate) fn noted_on(self, page: Option<Box<ConnectionLog>>) -> Self {
        Self { page, ..self }
    }

    /// Notes its end.
    pub(crate) fn note_end(&self, reason: CloseReason) {
        if let Some(page) = &self.page {
            page.closed(reason, usize::from(!matches!(self.exchange.body, Body::Ended)));
        }
    }

    /// Tells an exchange that waited for `waited` what carries it.
    pub(crate) fn board(&mut self, passage: &mut ExchangeTimeline, waited: Duration) {
        let Some(page) = &mut self.page else { return };
        passage.board(page.number, Protocol::H1, page.set_up.take(), waited);
    }

    /// Tells an exchange, sent at `sent`, what its answer's head says besides.
    pub(crate) fn arrive(
        &mut self,
        passage: &mut ExchangeTimeline,
        sent: Instant,
        answered: Instant,
    ) {
        let Some(page) = &mut self.page else { return };
        passage.arrive(sent, page.written, answered);
        passage.limits = std::mem::take(&mut page.limits);
    }

    /// Why no further exchange may start after a complete one; `None` if one may.
    pub(crate) fn unfit(&self) -> Option<CloseReason> {
        let H1Exchange { early, body, keeps_open, .. } = &self.exchange;
        if *early {
            // The peer may never read what is left of the request, and would take
            // the next one for its end.
            Some(CloseReason::Stuck)
        } else if !matches!(body, Body::Ended) {
            Some(CloseReason::Abandoned)
        } else if !keeps_open {
            Some(CloseReason::Replaced)
        } else if self.taken < self.read.len() {
            // There are unrequested bytes after the answer.
            Some(CloseReason::BadAnswer)
        } else {
            None
        }
    }

    /// Whether the peer has closed an idle connection, or sent unrequested bytes. Otherwise `cx` is
    /// woken when it does.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut byte = [MaybeUninit::uninit()];
        let mut byte = ReadBuf::uninit(&mut byte);
        Pin::new(&mut self.stream).poll_read(cx, &mut byte).map(|_| ())
    }

    /// True when the peer has closed it while it was idle, as far as the runtime knows. Over
    /// bare TCP this leaves no waker behind, which costs more than the look itself.
    async fn look_for_end(&mut self) -> bool {
        if let Stream::Plain(tcp) = &self.stream {
            return match tcp.try_read(&mut [0]) {
                Ok(_) => true,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            };
        }
        poll_fn(|cx| Poll::Ready(self.poll_ended(cx).is_ready())).await
    }

    /// Asks the socket itself, past what the runtime knows.
    fn is_ended_by_socket(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let Some(tcp) = self.stream.tcp() else { return false };
        match socket2::SockRef::from(tcp).peek(&mut byte) {
            // Data that waits unread is no answer to anything.
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Ends the connection; under TLS the peer is told, if that takes no waiting.
    pub(crate) fn close(mut self) {
        match &self.stream {
            Stream::Plain(_) => {}
            #[cfg(test)]
            Stream::Memory(_) => {}
            Stream::Tls(_) => {
                let mut cx = Context::from_waker(Waker::noop());
                let _ = Pin::new(&mut self.stream).poll_shutdown(&mut cx);
            }
        }
    }

    /// Sends `outgoing` and reads the head of the answer; [`Self::poll_chunk`] brings
    /// its body.
    ///
    /// An error says whether the request may have been on its way. After one, or
    /// when the future is dropped, the connection must not be used again.
    pub(crate) async fn exchange(
        &mut self,
        prepared: &Prepared,
        outgoing: &OutgoingCall,
        now: Instant,
    ) -> Result<AnswerHead, TransportError> {
        if self.reused {
            let asleep = now.saturating_duration_since(self.idle_since) > TRUSTED_IDLE_MAX;
            if self.look_for_end().await || (asleep && self.is_ended_by_socket()) {
                let detail = "the peer closed the idle connection";
                return Err(TransportError::new(TransportErrorKind::Closed, Sent::No, detail));
            }
        }
        self.begin(prepared, outgoing);
        let mut sent = Sent::No;
        poll_fn(|cx| self.poll_head(cx, &outgoing.body, &mut sent)).await
    }

    fn begin(&mut self, prepared: &Prepared, OutgoingCall { body, trace }: &OutgoingCall) {
        self.write.clear();
        self.write.extend_from_slice(&prepared.h1_head);
        if prepared.has_body {
            write::integer(&mut self.write, body.len() as u64);
        }
        if let Some(trace) = trace {
            self.write.extend_from_slice(b"\r\ntraceparent: ");
            self.write.extend_from_slice(&trace.header());
        }
        self.write.extend_from_slice(b"\r\n\r\n");
        let length = self.write.len() + body.len();
        if body.len() <= JOINED_BODY_MAX {
            self.write.extend_from_slice(body);
        }
        self.read.clear();
        self.taken = 0;
        if let Some(page) = &mut self.page {
            page.requests += 1;
            page.written = None;
            page.limits.clear();
        }
        // Until a head says otherwise, the connection is in the middle of something.
        self.exchange = H1Exchange { length, body: Body::UntilClose, ..H1Exchange::none() };
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        body: &Bytes,
        sent: &mut Sent,
    ) -> Poll<Result<AnswerHead, TransportError>> {
        self.poll_write(cx, body, sent)?;
        loop {
            let arrived = ready!(self.poll_fill(cx, READ_BYTES));
            let (fresh, ended) = match arrived {
                Ok(0) => (0, Some(None)),
                Ok(fresh) => (fresh, None),
                Err(error) => (0, Some(Some(error))),
            };
            // A head ends with a line: without a new one it is as incomplete as before.
            let unread = self.read.len() - fresh;
            if ended.is_none()
                && !self.read[unread..].contains(&b'\n')
                && unread + fresh < HEAD_BYTES_MAX
            {
                continue;
            }
            loop {
                match self.read_head() {
                    Ok(Some(head)) if head.status >= 200 => {
                        self.note_early(body);
                        return Poll::Ready(Ok(head));
                    }
                    Ok(Some(head))
                        if head.status == 101 || self.exchange.interims == INTERIM_MAX =>
                    {
                        let malformed = MalformedHttp("an unexpected interim answer");
                        return Poll::Ready(Err(protocol(malformed)));
                    }
                    Ok(Some(_)) => self.exchange.interims += 1,
                    Ok(None) => break,
                    Err(malformed) => return Poll::Ready(Err(protocol(malformed))),
                }
            }
            if let Some(error) = ended {
                return Poll::Ready(Err(self.ended_early(error, *sent)));
            }
        }
    }

    /// The answer begins: is the request out?
    fn note_early(&mut self, body: &Bytes) {
        let exchange = &mut self.exchange;
        let unwritten = exchange.written < exchange.length || exchange.unflushed;
        exchange.early = unwritten || exchange.write_error.is_some();
        if exchange.early && exchange.write_error.is_none() {
            exchange.unsent = Some(body.clone());
        }
    }

    /// Writes what the socket takes of the request.
    ///
    /// An error is not the end: the peer may have answered before it stopped
    /// reading. Only when nothing at all was taken is it certain that nothing ran.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        body: &Bytes,
        sent: &mut Sent,
    ) -> Result<(), TransportError> {
        let joined = self.write.len() == self.exchange.length;
        while self.exchange.written < self.exchange.length && self.exchange.write_error.is_none() {
            let written = self.exchange.written;
            let stream = Pin::new(&mut self.stream);
            let result = if joined {
                stream.poll_write(cx, &self.write[written..])
            } else if let Some(in_body) = written.checked_sub(self.write.len()) {
                stream.poll_write(cx, &body[in_body..])
            } else {
                let head = IoSlice::new(&self.write[written..]);
                stream.poll_write_vectored(cx, &[head, IoSlice::new(body)])
            };
            let error = match result {
                Poll::Ready(Ok(0)) => io::Error::from(io::ErrorKind::WriteZero),
                Poll::Ready(Ok(count)) => {
                    *sent = Sent::Maybe;
                    self.exchange.written += count;
                    continue;
                }
                Poll::Ready(Err(error)) => error,
                Poll::Pending => break,
            };
            if written == 0 && matches!(self.stream, Stream::Plain(_)) {
                let kind = TransportErrorKind::Closed;
                return Err(TransportError::new(kind, *sent, error.to_string()));
            }
            // TLS may have written part of it before it failed.
            *sent = Sent::Maybe;
            self.exchange.write_error = Some(error);
        }
        if matches!(self.stream, Stream::Tls(_)) && self.exchange.write_error.is_none() {
            // Takes what TLS holds back while the socket is full.
            *sent = Sent::Maybe;
            let flushed = Pin::new(&mut self.stream).poll_flush(cx);
            self.exchange.unflushed = flushed.is_pending();
            if let Poll::Ready(Err(error)) = flushed {
                self.exchange.write_error = Some(error);
            }
        }
        if let Some(page) = &mut self.page {
            let whole = self.exchange.written == self.exchange.length && !self.exchange.unflushed;
            if whole && page.written.is_none() {
                page.written = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Reads more into the buffer; `Ok(0)` is the end of the connection.
    fn poll_fill(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        if self.taken == self.read.len() {
            self.read.clear();
            self.taken = 0;
        }
        self.read.reserve(room);
        pin!(self.stream.read_buf(&mut self.read)).poll(cx)
    }

    /// Takes one head from the buffer, if it is complete.
    fn read_head(&mut self) -> Result<Option<AnswerHead>, MalformedHttp> {
        let Some(head) = answer::head(&self.read[self.taken..])? else { return Ok(None) };
        let answer = AnswerHead {
            status: head.status,
            retry_after: retry_after(head.retry_after, head.date, clock::unix_seconds),
            body: BodyHead {
                length: match head.framing {
                    ResponseFraming::Length(length) => Some(length),
                    ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
                },
                encoding: Encoding::of(head.content_encoding),
            },
            at: Instant::now(),
        };
        if let Some(page) = &mut self.page {
            for line in self.read[self.taken..self.taken + head.len].split(|byte| *byte == b'\n') {
                if let Some(colon) = line.iter().position(|byte| *byte == b':') {
                    keep_limit(&mut page.limits, &line[..colon], line[colon + 1..].trim_ascii());
                }
            }
        }
        self.taken += head.len;
        if head.status < 200 {
            return Ok(Some(answer));
        }
        self.exchange.keeps_open = head.keeps_open;
        self.exchange.body = match head.framing {
            ResponseFraming::Length(0) => Body::Ended,
            ResponseFraming::Length(length) => Body::Length(length),
            ResponseFraming::Chunked => Body::Chunked(Chunked::new()),
            ResponseFraming::UntilClose => Body::UntilClose,
        };
        Ok(Some(answer))
    }

    fn ended_early(&mut self, error: Option<io::Error>, sent: Sent) -> TransportError {
        let error = error.or_else(|| self.exchange.write_error.take());
        let detail = error.map_or_else(String::new, |error| error.to_string());
        let nothing = self.read.is_empty();
        let kind = if nothing { TransportErrorKind::Closed } else { TransportErrorKind::Truncated };
        TransportError::new(kind, sent, detail)
    }

    /// Whether all that was announced of the answer's body arrived with its head.
    pub(crate) fn has_arrived(&self) -> bool {
        match self.exchange.body {
            Body::Length(length) => length <= (self.read.len() - self.taken) as u64,
            Body::Ended => true,
            Body::Chunked(_) | Body::UntilClose => false,
        }
    }

    /// Whether the answer under way is complete.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self.exchange.body, Body::Ended)
    }

    /// The next piece of the answer's body, of `at_least` bytes unless it ends
    /// before. What is being joined is kept when the caller stops polling.
    pub(crate) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        at_least: usize,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        if let Some(body) = self.exchange.unsent.take() {
            self.write_on(cx, body);
        }
        for _ in 0..STEPS_MAX {
            let unread = &self.read[self.taken..];
            let next = match &mut self.exchange.body {
                Body::Ended => ChunkStep::End,
                Body::Length(left) => ChunkStep::Data(*left),
                Body::UntilClose => ChunkStep::Data(u64::MAX),
                Body::Chunked(chunked) => match chunked.advance(unread) {
                    Ok((used, next)) => {
                        self.taken += used;
                        next
                    }
                    Err(malformed) => return Poll::Ready(Some(Err(protocol(malformed)))),
                },
            };
            let unread = self.read.len() - self.taken;
            let fresh = match next {
                ChunkStep::End => {
                    self.exchange.body = Body::Ended;
                    let last = std::mem::take(&mut self.exchange.joined);
                    return Poll::Ready((!last.is_empty()).then(|| Ok(last.freeze())));
                }
                ChunkStep::Data(left) if unread > 0 => {
                    let some = unread.min(usize::try_from(left).unwrap_or(usize::MAX));
                    if let Some(piece) = self.take_unread(some, left, at_least) {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                    continue;
                }
                ChunkStep::Data(left) if self.reads_directly(left) => {
                    ready!(self.poll_join(cx, left, at_least))
                }
                ChunkStep::Data(_) | ChunkStep::More => ready!(self.poll_fill(cx, PIECE)),
            };
            match fresh {
                Ok(0) if matches!(self.exchange.body, Body::UntilClose) => {
                    self.exchange.body = Body::Ended;
                }
                Ok(0) => return Poll::Ready(Some(Err(cut(None)))),
                Ok(_) => {
                    if self.exchange.joined.len() >= at_least {
                        let piece = std::mem::take(&mut self.exchange.joined);
                        return Poll::Ready(Some(Ok(piece.freeze())));
                    }
                }
                Err(error) => return Poll::Ready(Some(Err(cut(Some(&error))))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes more of a request that is being answered: the peer may answer while it reads, and
    /// wait for the end to finish.
    fn write_on(&mut self, cx: &mut Context<'_>, body: Bytes) {
        let _ = self.poll_write(cx, &body, &mut Sent::Maybe);
        let whole = self.exchange.written == self.exchange.length && !self.exchange.unflushed;
        if !whole && self.exchange.write_error.is_none() {
            self.exchange.unsent = Some(body);
        }
    }

    /// Chunks smaller than a read are taken from one that brings several.
    fn reads_directly(&self, left: u64) -> bool {
        match self.exchange.body {
            Body::Length(_) | Body::UntilClose => true,
            Body::Chunked(_) => left >= DIRECT_BYTES_MIN,
            Body::Ended => false,
        }
    }

    /// Takes `some` bytes of data from the buffer; returns a piece when it is large
    /// enough or the last.
    fn take_unread(&mut self, some: usize, left: u64, at_least: usize) -> Option<Bytes> {
        let data = self.taken..self.taken + some;
        self.taken += some;
        let is_last = matches!(self.exchange.body, Body::Length(_)) && some as u64 == left;
        let piece = if self.exchange.joined.is_empty() && (is_last || some >= at_least) {
            Some(Bytes::copy_from_slice(&self.read[data]))
        } else {
            self.make_room(left, at_least, some);
            self.exchange.joined.extend_from_slice(&self.read[data]);
            let enough = is_last || self.exchange.joined.len() >= at_least;
            enough.then(|| std::mem::take(&mut self.exchange.joined).freeze())
        };
        self.passed(some);
        piece
    }

    /// Reads data to where it stays.
    fn poll_join(
        &mut self,
        cx: &mut Context<'_>,
        left: u64,
        at_least: usize,
    ) -> Poll<io::Result<usize>> {
        let step = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        if self.exchange.joined.capacity() == self.exchange.joined.len() {
            self.make_room(left, at_least, step);
        }
        let joined = &mut self.exchange.joined;
        let room = (joined.capacity() - joined.len()) as u64;
        let limit = room.min(left) as usize;
        let fresh = ready!(pin!(self.stream.read_buf(&mut joined.limit(limit))).poll(cx))?;
        self.passed(fresh);
        Poll::Ready(Ok(fresh))
    }

    /// Room for `some` bytes more, and at best for all that is announced or asked for.
    fn make_room(&mut self, left: u64, at_least: usize, some: usize) {
        let joined = &mut self.exchange.joined;
        if joined.capacity() - joined.len() >= some {
            return;
        }
        let announced = match self.exchange.body {
            Body::Length(_) => usize::try_from(left).unwrap_or(usize::MAX),
            // The length is unknown: it grows with what arrived.
            Body::Chunked(_) | Body::UntilClose | Body::Ended => joined.len().max(some),
        };
        let wanted = at_least.saturating_sub(joined.len()).max(PIECE);
        joined.reserve(announced.min(wanted).clamp(some, TRUSTED_LENGTH_MAX.max(some)));
    }

    fn passed(&mut self, count: usize) {
        match &mut self.exchange.body {
            Body::Length(left) => {
                *left -= count as u64;
                if *left == 0 {
                    self.exchange.body = Body::Ended;
                }
            }
            Body::Chunked(chunked) => chunked.passed(count as u64),
            Body::UntilClose | Body::Ended => {}
        }
    }

    /// Frees what the next exchange will not need.
    pub(crate) fn rest_until_next(&mut self, now: Instant) {
        self.idle_since = now;
        self.reused = true;
        if self.read.capacity() > KEPT_BUFFER_MAX {
            self.read = Vec::new();
            self.taken = 0;
        }
        if self.write.capacity() > KEPT_BUFFER_MAX {
            self.write = Vec::new();
        }
    }
}

impl Chunks for H1Connection {
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        at_least: usize,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        Self::poll_chunk(self, cx, at_least)
    }

    fn is_end(&self) -> bool {
        Self::is_end(self)
    }
}

fn protocol(MalformedHttp(why): MalformedHttp) -> TransportError {
    TransportError::new(TransportErrorKind::Protocol, Sent::Maybe, why)
}

fn cut(error: Option<&io::Error>) -> TransportError {
    let detail = error.map_or_else(String::new, ToString::to_string);
    TransportError::new(TransportErrorKind::Truncated, Sent::Maybe, detail)
}

#[cfg(test)]
mod tests;
