//! A connection that was upgraded to WebSocket: messages in, answers out.
//!
//! Each message is one request, answered as over HTTP by the [`Handler`]; several run at once, and
//! their answers go out as they come. A connection is one task without a queue of its own: at
//! [`CALLS_MAX`] requests whose answers are not sent the socket is not read, so that TCP holds the
//! client back. What the frames are is in the crate `websocket`, how they leave in `outbox`, how
//! slow a client may be in `link`, and how a connection can end in `ws_end`.

mod outbox;

use std::any::Any;
use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use http::StatusCode;
use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep};
use wellhead_websocket::{
    CloseCode, CloseFrame, DecodeStep, MessageDecoder, MessageLimits, WsEvent, WsRole,
};

use crate::count::ServerCounters;
use crate::end::ConnectionEnd;
use crate::linger::linger;
use crate::link::ClientLink;
use crate::read_buffer::with_read_buffer;
use crate::socket::ClientStream;
use crate::ticket::{FREE_BYTES, Ticket};
use crate::ws_end::WsEnd;
use crate::{
    AnswerBody, ClientSession, Handler, HttpAnswer, HttpRefusal, HttpRequest, RequestPath,
    SessionClose, SessionEvent, SessionHead,
};
use outbox::Outbox;

/// Requests of one connection that are under way or whose answers wait; at the bound the socket is
/// not read.
const CALLS_MAX: usize = 256;

/// Frames of one message. Clients send their messages whole, or in pieces of a few KiB.
const FRAGMENTS_MAX: u32 = 16_384;

/// Reads, and batches of notifications, between two looks at the other tasks of the worker.
const TURNS_MAX: usize = 4;

/// Requests that begin in one turn: each is a task of some 20 us, as in HTTP/2.
const CALLS_A_TURN: usize = 50;

/// After our close we read and forget at most this much.
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// In a drain the connections are closed one after the other: their clients come back, and all at
/// once they would be a stampede.
const LEAVE_INTERVAL: Duration = Duration::from_millis(10);

/// What is known of a connection when it is upgraded.
#[derive(Debug)]
pub(crate) struct Upgraded<C> {
    /// The chain and the labels of all its calls.
    pub(crate) path: RequestPath,
    /// What they come from.
    pub(crate) caller: C,
    /// The web page that it was sent by, as it came.
    pub(crate) origin: Option<Box<[u8]>>,
}

/// What a client is told when its session ends the connection.
fn farewell(close: SessionClose) -> (CloseFrame, WsEnd) {
    let (code, reason, end) = match close {
        SessionClose::TooSlow => (CloseCode::POLICY, "the subscriber is too slow", WsEnd::Policy),
        SessionClose::Resync => {
            let reason = "blocks were missed: read the chain anew, and subscribe again";
            (CloseCode::TRY_AGAIN_LATER, reason, WsEnd::Overload)
        }
        SessionClose::OverLimit => {
            let reason = "too many connections are open with this key";
            (CloseCode::TRY_AGAIN_LATER, reason, WsEnd::Overload)
        }
        SessionClose::KeysUnknown => {
            (CloseCode::TRY_AGAIN_LATER, "keys cannot be checked now", WsEnd::Overload)
        }
        SessionClose::KeyEnded => (
            CloseCode::POLICY,
            "the key or token is no longer valid, or not for this connection",
            WsEnd::Policy,
        ),
    };
    (CloseFrame::new(code, reason), end)
}

/// One request of the connection until it is answered.
type CallFuture = Pin<Box<dyn Future<Output = (CallAnswer, Ticket)> + Send>>;
/// An error: the handler panicked.
type CallAnswer = Result<HttpAnswer, Box<dyn Any + Send>>;

/// Serves the messages of a connection to its end. `unread` came behind the upgrade request.
pub(crate) async fn serve<S: ClientStream, H: Handler>(
    stream: S,
    unread: Vec<u8>,
    link: &Arc<ClientLink>,
    handler: &Arc<H>,
    upgraded: Upgraded<H::Caller>,
) -> ConnectionEnd {
    let Upgraded { path, caller, origin } = upgraded;
    let head = SessionHead { path: &path, origin: origin.as_deref(), names: link.names() };
    let session = Arc::new(handler.open_session(&caller, head));
    drop(origin);
    let mut connection = UpgradedConnection {
        stream,
        link,
        handler,
        session,
        path,
        caller,
        limits: MessageLimits {
            message_bytes_max: link.shared.settings.body_bytes_max,
            fragments_max: FRAGMENTS_MAX,
        },
        decoder: MessageDecoder::new(WsRole::Server),
        unread,
        unfinished: None,
        calls: FuturesUnordered::new(),
        outbox: Outbox::default(),
        phase: WsPhase::Open,
        begun: 0,
        leave_at: None,
    };
    // Counted also where the connection is dropped: it takes nothing, or the drain is over.
    let mut counted = CountedEnd { link, end: WsEnd::Lost };
    let end = poll_fn(|cx| connection.poll(cx)).await;
    counted.end = end;
    drop(counted);
    tracing::debug!(peer = %link.peer, end = end.word(), "WebSocket connection ended");
    if end != WsEnd::Lost {
        linger(&mut connection.stream, link, LINGER_BYTES_MAX).await;
    }
    ConnectionEnd::ByItself
}

/// Counts how a connection ended when it is dropped.
struct CountedEnd<'a> {
    link: &'a Arc<ClientLink>,
    end: WsEnd,
}

impl Drop for CountedEnd<'_> {
    fn drop(&mut self) {
        let ended = &self.link.shared.counters.websocket_ended;
        ServerCounters::add(&ended[self.end as usize]);
    }
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WsPhase {
    Open,
    /// No more messages are read, and a close follows the answers under way.
    Leaving,
    /// A close is sent, or on its way: nothing follows it.
    Closed(WsEnd),
}

/// What was taken from a session.
struct TakenEvents {
    has_any: bool,
    /// It has nothing more, and wakes the task when it has.
    is_empty: bool,
}

struct UpgradedConnection<'a, S, H: Handler> {
    stream: S,
    link: &'a Arc<ClientLink>,
    handler: &'a Arc<H>,
    session: Arc<H::Session>,
    path: RequestPath,
    caller: H::Caller,
    limits: MessageLimits,
    decoder: MessageDecoder,
    /// Read, and not decoded because too many requests are under way.
    unread: Vec<u8>,
    /// Of a large message that is not whole: its bytes count with those of HTTP bodies.
    unfinished: Option<Ticket>,
    calls: FuturesUnordered<CallFuture>,
    outbox: Outbox,
    phase: WsPhase,
    /// Requests that began in this turn.
    begun: usize,
    /// In a drain: when it is closed.
    leave_at: Option<Pin<Box<Sleep>>>,
}

impl<S: ClientStream, H: Handler> UpgradedConnection<'_, S, H> {
    /// Ready when the connection is at its end, but for the client's part.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<WsEnd> {
        let mut turns = 0;
        self.begun = 0;
        // What was found empty wakes the task when it no longer is: it is not asked again in this turn.
        let (mut is_session_empty, mut is_socket_empty) = (false, false);
        loop {
            // An answer may begin a subscription.
            is_session_empty &= !self.poll_calls(cx);
            self.poll_leave(cx);
            if self.link.take_ping() {
                self.outbox.ping();
            }
            let sent = match self.outbox.poll_send(cx, &mut self.stream, self.link) {
                Poll::Ready(Err(_)) => return Poll::Ready(WsEnd::Lost),
                Poll::Ready(Ok(())) => true,
                Poll::Pending => false,
            };
            match self.phase {
                WsPhase::Closed(end) if sent => return Poll::Ready(end),
                WsPhase::Closed(_) => return Poll::Pending,
                WsPhase::Leaving if sent && self.calls.is_empty() => {
                    let frame = CloseFrame::new(CloseCode::RESTART, "the service restarts");
                    self.close(frame, WsEnd::Restart);
                    continue;
                }
                WsPhase::Leaving => return Poll::Pending,
                WsPhase::Open => {}
            }
            if turns == TURNS_MAX || self.begun >= CALLS_A_TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            turns += 1;
            let has_more = sent && !is_session_empty && {
                let taken = self.poll_session(cx);
                is_session_empty = taken.is_empty;
                taken.has_any
            };
            let may_read = !self.is_full() && !is_socket_empty;
            if !may_read && !has_more {
                return Poll::Pending;
            }
            if may_read {
                match self.poll_receive(cx) {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => return Poll::Ready(WsEnd::Lost),
                    Poll::Pending if has_more => is_socket_empty = true,
                    Poll::Pending => return Poll::Pending,
                }
            }
        }
    }

    /// Takes the answers that are there; false when there is none.
    fn poll_calls(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_any = false;
        if self.calls.is_empty() {
            return has_any;
        }
        // Polled empty, a set of futures registers no waker, which is well: each call is polled
        // when it begins.
        while let Poll::Ready(Some((answer, mut ticket))) = self.calls.poll_next_unpin(cx) {
            has_any = true;
            let answer = answer.unwrap_or_else(|_panic| {
                tracing::error!(peer = %self.link.peer, "the handler panicked; answered with an error");
                let refusal = HttpRefusal::HandlerFailed;
                let (status, body) = (refusal.status().as_u16(), self.refusal(refusal));
                HttpAnswer { status, body, ..HttpAnswer::default() }
            });
            debug_assert!(answer.rest.is_none(), "asked for a whole answer");
            let status = StatusCode::from_u16(answer.status);
            ticket.answered(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
            ticket.hold_for_handler(answer.held);
            if !answer.body.is_empty() {
                self.outbox.push(answer.body, ticket);
            }
            if let Some(on_queued) = answer.on_queued {
                (on_queued.0)();
            }
        }
        has_any
    }

    /// Sends what the session has, as much as fits one batch.
    fn poll_session(&mut self, cx: &mut Context<'_>) -> TakenEvents {
        let mut taken = TakenEvents { has_any: false, is_empty: false };
        while self.outbox.takes_notifications() {
            match self.session.poll_event(cx) {
                Poll::Pending => {
                    taken.is_empty = true;
                    break;
                }
                Poll::Ready(SessionEvent::Message(parts)) => self.outbox.notify(parts),
                Poll::Ready(SessionEvent::Close(close)) => {
                    let (frame, end) = farewell(close);
                    self.close(frame, end);
                }
            }
            taken.has_any = true;
        }
        taken
    }

    /// Begins to leave when the time of this connection in the drain has come, or when another
    /// connection took its place.
    fn poll_leave(&mut self, cx: &mut Context<'_>) {
        if self.phase != WsPhase::Open {
            return;
        }
        if self.link.is_displaced() {
            let frame = CloseFrame::new(CloseCode::TRY_AGAIN_LATER, "too many connections");
            self.close(frame, WsEnd::Overload);
        } else if self.link.is_hoarder() {
            self.close(CloseFrame::new(CloseCode::POLICY, "too many answers wait"), WsEnd::Policy);
        } else if self.link.is_draining() {
            let link = self.link;
            let timer = self.leave_at.get_or_insert_with(|| {
                Box::pin(tokio::time::sleep_until(Instant::now() + leave_after(link)))
            });
            if timer.as_mut().poll(cx).is_ready() {
                self.phase = WsPhase::Leaving;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.calls.len() + self.outbox.len() >= CALLS_MAX
    }

    /// Reads once, and takes what is there; false when the client is gone.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if !self.unread.is_empty() {
            self.link.note_read();
            let mut unread = std::mem::take(&mut self.unread);
            let used = self.receive(&mut unread);
            unread.drain(..used);
            // An idle connection holds nothing.
            self.unread = if unread.is_empty() { Vec::new() } else { unread };
            return Poll::Ready(true);
        }
        with_read_buffer(|buffer| {
            let mut buf = ReadBuf::new(buffer);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Ready(Ok(())) => {}
            }
            let read = buf.filled().len();
            if read == 0 {
                return Poll::Ready(false);
            }
            self.link.note_read();
            let bytes = &mut buffer[..read];
            let used = self.receive(bytes);
            self.unread.extend_from_slice(&bytes[used..]);
            Poll::Ready(true)
        })
    }

    /// Takes the events in `bytes`, as far as there is room for requests; returns how many bytes
    /// were taken.
    fn receive(&mut self, bytes: &mut [u8]) -> usize {
        let mut used = 0;
        while self.phase == WsPhase::Open && !self.is_full() && self.begun < CALLS_A_TURN {
            let step = match self.decoder.decode(&self.limits, &mut bytes[used..]) {
                Ok(step) => step,
                Err(error) => {
                    tracing::debug!(peer = %self.link.peer, %error, "closing a WebSocket connection");
                    self.close(CloseFrame::from(error), WsEnd::of(error));
                    return bytes.len();
                }
            };
            let DecodeStep { used: more, event } = step;
            match event {
                None => {
                    self.note_unfinished();
                    return bytes.len();
                }
                Some(WsEvent::Message { payload, .. }) => self.begin_call(payload),
                Some(WsEvent::Ping(payload)) => self.outbox.pong(payload),
                // A sign of life, which the read was already.
                Some(WsEvent::Pong(_)) => {}
                Some(WsEvent::Close(frame)) => {
                    let echo =
                        frame.code().map_or(CloseFrame::EMPTY, |code| CloseFrame::new(code, ""));
                    self.close(echo, WsEnd::Client);
                    return bytes.len();
                }
            }
            used += more;
        }
        if self.phase == WsPhase::Open { used } else { bytes.len() }
    }

    /// Counts the bytes and the time of a message that is not whole.
    fn note_unfinished(&mut self) {
        self.link.note_unfinished(self.decoder.is_unfinished());
        let held = self.decoder.held_bytes();
        if held <= FREE_BYTES {
            return;
        }
        let ticket = self.unfinished.get_or_insert_with(|| {
            let mut ticket = Ticket::open(self.link).0;
            if !ticket.has_room() {
                // Its bytes are bounded by themselves.
                ticket.give_place();
            }
            ticket
        });
        if let Err(refusal) = ticket.hold(held) {
            self.link.shared.counters.refuse(refusal);
            ticket.answered(refusal.status());
            let frame =
                CloseFrame::new(CloseCode::TRY_AGAIN_LATER, "too much request data under way");
            self.close(frame, WsEnd::Overload);
        }
    }

    /// Has a message answered.
    fn begin_call(&mut self, message: Cow<'_, [u8]>) {
        self.link.note_unfinished(false);
        self.begun += 1;
        let (mut ticket, received_at) = match self.unfinished.take() {
            Some(ticket) => (ticket, Instant::now()),
            None => Ticket::open(self.link),
        };
        if !ticket.has_room() {
            ticket.give_place();
            return self.refuse(HttpRefusal::RequestsFull, ticket);
        }
        if let Err(refusal) = ticket.hold(message.len()) {
            return self.refuse(refusal, ticket);
        }
        let body = match message {
            Cow::Borrowed(bytes) => Bytes::copy_from_slice(bytes),
            Cow::Owned(bytes) => bytes.into(),
        };
        let request = HttpRequest {
            caller: self.caller.clone(),
            received_at: received_at.into_std(),
            peer: self.link.peer,
            path: self.path.clone(),
            want_trail: false,
            known_block: None,
            may_stream: false,
            // That of the handshake is older than the message, and would make one trace of a whole connection.
            trace_parent: None,
            body,
        };
        ticket.hand_over();
        let (handler, session) = (Arc::clone(self.handler), Arc::clone(&self.session));
        self.calls.push(Box::pin(async move {
            // A panic would take the other requests of the connection along.
            let answer =
                AssertUnwindSafe(handler.handle_message(&session, request)).catch_unwind().await;
            (answer, ticket)
        }));
    }

    /// Answers a message that no handler gets.
    fn refuse(&mut self, refusal: HttpRefusal, mut ticket: Ticket) {
        let shared = &self.link.shared;
        shared.counters.refuse(refusal);
        shared.tell(self.link.peer, refusal.status().as_u16(), refusal.word());
        ticket.answered(refusal.status());
        let body = self.refusal(refusal);
        self.outbox.push(body, ticket);
    }

    fn refusal(&self, refusal: HttpRefusal) -> AnswerBody {
        self.link.shared.refusals.of(refusal).into()
    }

    /// Nothing more is answered, and `frame` is the last that is sent.
    fn close(&mut self, frame: CloseFrame, end: WsEnd) {
        self.phase = WsPhase::Closed(end);
        self.calls.clear();
        self.unfinished = None;
        self.unread = Vec::new();
        self.outbox.close(frame);
    }
}

/// When a connection leaves, counted from the beginning of the drain: each its own moment within
/// the first part of the time.
fn leave_after(link: &ClientLink) -> Duration {
    let open = u32::try_from(link.shared.counters.websocket_open.get()).unwrap_or(u32::MAX);
    let most = link.shared.settings.drain_timeout * 4 / 5;
    let spread = LEAVE_INTERVAL.saturating_mul(open).min(most);
    // Clients on one host differ in their ports: a multiplicative hash of it, as a part of 65,536.
    let part = (u32::from(link.peer.port()).wrapping_mul(0x9e37_79b1)) >> 16;
    spread * part / 65_536
}
