//! One HTTP/1.1 connection: a request, its answer, the next request.
//!
//! A connection that waits holds no buffer: bytes are read into one that the worker's
//! connections share, and only what is left over of a read stays with its connection.
//! A request that arrives whole is judged where it lies; what is kept of it is what the
//! head asks for and a copy of the body. An answer leaves with one system call.
//!
//! What the bytes of a head mean is in `http1`; `write` puts the answer together.
//! How slow a client may be is decided by `link`, when to stop by `connection`.

mod body;
mod write;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::Uri;
use tokio::io::{AsyncWriteExt as _, ReadBuf};
use tokio::time::Instant;
use wellhead_http1::request::{BadHead, RequestFraming, Room, head};

use crate::answer;
use crate::end::ConnectionEnd;
use crate::head::{RequestHead, RequestTarget};
use crate::headers::RequestHeaders;
use crate::linger::linger;
use crate::link::ClientLink;
use crate::read_buffer::with_read_buffer;
use crate::request::ROOM_BYTES_MAX;
use crate::service::{HttpService, ServiceReply};
use crate::socket::ClientStream;
use crate::ticket::Ticket;
use crate::{HttpRefusal, Settings};
use body::BodyStart;
use write::ResponseMode;

/// A client that sends the next requests before it has its answer is read ahead by
/// this much at most, and one read more.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// After a refusal we read and forget at most this much. A client that still
/// sends then gets a reset, which is all that can be told it.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Serves one connection, of which `opening` was read, to its end.
pub(crate) async fn serve<S: ClientStream, E: HttpService>(
    stream: S,
    opening: &[u8],
    link: &Arc<ClientLink>,
    service: &E,
) -> ConnectionEnd {
    let mut wire = H1Wire { stream, link, unread: opening.to_vec(), looked_at: 0 };
    // What ends the loop is handled behind it: a request then has no room of its own in the future of its connection.
    let end = loop {
        let request = match wire.next(service).await {
            NextRequest::Request(request) => request,
            NextRequest::End => break H1End::Part,
            NextRequest::Bad(refusal) => break H1End::Refuse(refusal),
        };
        if let Some(end) = wire.respond(request, service).await {
            break end;
        }
    };
    match end {
        H1End::Part => wire.part().await,
        H1End::Refuse(refusal) => {
            let reply = answer::refuse(refusal, Ticket::open(link).0);
            let manner = ResponseMode { keeps_open: false, newest: true, to_head: false };
            if wire.send(reply, manner).await.is_ok() {
                wire.linger().await;
            }
            return ConnectionEnd::BadHttp;
        }
        H1End::Drop => {}
        // What cannot be closed well is closed already.
        H1End::Close => _ = wire.stream.shutdown().await,
        H1End::Linger => wire.linger().await,
        H1End::Upgrade(upgraded) => {
            let H1Wire { stream, link, unread, .. } = wire;
            link.upgrade();
            // Boxed: connections of HTTP/1.1 must not carry its room about.
            return Box::pin(service.serve_upgraded(*upgraded, stream, unread, link)).await;
        }
    }
    ConnectionEnd::ByItself
}

/// What follows the last request of a connection.
enum H1End<U> {
    /// Nothing is under way.
    Part,
    Refuse(HttpRefusal),
    Close,
    /// Part of the request is unread: closing now could destroy the answer.
    Linger,
    /// The client is gone, or the answer could not be completed.
    Drop,
    /// The bytes that follow are of another protocol.
    Upgrade(Box<U>),
}

/// What the bytes of a connection turn out to be.
enum NextRequest<A> {
    Request(H1Request<A>),
    /// Nothing more will come, or nothing more is wanted.
    End,
    Bad(HttpRefusal),
}

/// One request whose head is complete.
struct H1Request<A> {
    route: A,
    ticket: Ticket,
    received_at: Instant,
    body: BodyStart,
    expects_continue: bool,
    manner: ResponseMode,
}

/// A socket and what was read ahead of it.
struct H1Wire<'a, S> {
    stream: S,
    link: &'a Arc<ClientLink>,
    unread: Vec<u8>,
    /// So many of the unread bytes hold no complete head.
    looked_at: usize,
}

impl<S: ClientStream> H1Wire<'_, S> {
    fn settings(&self) -> &Settings {
        &self.link.shared.settings
    }

    /// Waits for the next request.
    async fn next<E: HttpService>(&mut self, service: &E) -> NextRequest<E::Route> {
        poll_fn(|cx| {
            if self.looked_at < self.unread.len() {
                let unread = std::mem::take(&mut self.unread);
                let taken = take(&unread, self.link, service);
                self.unread = unread;
                if let Some(next) = self.taken(taken) {
                    return Poll::Ready(next);
                }
            }
            with_read_buffer(|shared| {
                loop {
                    let read = match self.poll_read(cx, shared) {
                        Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(NextRequest::End),
                        Poll::Ready(Ok(read)) => read,
                        Poll::Pending if self.unread.is_empty() && self.link.is_leaving() => {
                            return Poll::Ready(NextRequest::End);
                        }
                        Poll::Pending => return Poll::Pending,
                    };
                    if self.unread.is_empty() {
                        let bytes = &shared[..read];
                        let taken = take(bytes, self.link, service);
                        let used = match &taken {
                            ParseStep::Request(_, used) => *used,
                            ParseStep::More | ParseStep::Bad(_) => 0,
                        };
                        self.unread.extend_from_slice(&bytes[used..]);
                        match taken {
                            ParseStep::Request(request, _) => {
                                return Poll::Ready(NextRequest::Request(request));
                            }
                            ParseStep::Bad(refusal) => {
                                return Poll::Ready(NextRequest::Bad(refusal));
                            }
                            ParseStep::More => self.looked_at = self.unread.len(),
                        }
                        continue;
                    }
                    self.unread.extend_from_slice(&shared[..read]);
                    // A head ends with a line; without one there is nothing new to learn.
                    let too_long = self.unread.len() > self.settings().head_bytes_max;
                    if too_long || shared[..read].contains(&b'\n') {
                        let unread = std::mem::take(&mut self.unread);
                        let taken = take(&unread, self.link, service);
                        self.unread = unread;
                        if let Some(next) = self.taken(taken) {
                            return Poll::Ready(next);
                        }
                    }
                }
            })
        })
        .await
    }

    /// Forgets of the unread bytes what was taken of them.
    fn taken<A>(&mut self, taken: ParseStep<A>) -> Option<NextRequest<A>> {
        match taken {
            ParseStep::More => {
                self.looked_at = self.unread.len();
                None
            }
            ParseStep::Bad(refusal) => Some(NextRequest::Bad(refusal)),
            ParseStep::Request(request, used) => {
                if used == self.unread.len() {
                    // An idle connection holds nothing.
                    self.unread = Vec::new();
                } else {
                    self.unread.drain(..used);
                }
                self.looked_at = 0;
                Some(NextRequest::Request(request))
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(into);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
        self.link.note_read();
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Reads the body if it is wanted, has the request answered, and sends the answer. `None`: the next request follows.
    async fn respond<E: HttpService>(
        &mut self,
        request: H1Request<E::Route>,
        service: &E,
    ) -> Option<H1End<E::Upgrade>> {
        let H1Request { route, mut ticket, received_at, body, expects_continue, mut manner } =
            request;
        let (body, mut lingers) = match body {
            BodyStart::Whole(body) => (body, false),
            BodyStart::Unread => (Ok(Bytes::new()), true),
            body => {
                let read = Box::pin(self.read_body(body, expects_continue, &mut ticket)).await;
                let lingers = read.is_err();
                (read, lingers)
            }
        };
        if matches!(body, Err(HttpRefusal::BodyTooLarge)) {
            lingers = true;
        }
        // Boxed, so that it takes no room while there is no request.
        let answer = Box::pin(service.answer(route, body, received_at, ticket));
        let Some(reply) = self.unless_gone(answer).await else { return Some(H1End::Drop) };
        let ServiceReply { response: reply, upgraded } = reply;
        // To an old client the end of the connection is the end of what flows.
        let has_end = manner.newest || reply.rest.is_none();
        let is_next = manner.keeps_open && !lingers && !reply.closes && has_end;
        manner.keeps_open = is_next || upgraded.is_some();
        match (self.send(reply, manner).await, upgraded) {
            (Err(_), _) => Some(H1End::Drop),
            (Ok(()), Some(upgraded)) => Some(H1End::Upgrade(upgraded)),
            (Ok(()), None) if lingers => Some(H1End::Linger),
            (Ok(()), None) if is_next => None,
            (Ok(()), None) => Some(H1End::Close),
        }
    }

    /// Waits for the answer for as long as the client does; `None` when it has left.
    async fn unless_gone<T>(&mut self, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(Some(answer));
            }
            while self.unread.len() < AHEAD_BYTES_MAX {
                let read = with_read_buffer(|shared| {
                    let read = self.poll_read(cx, shared)?;
                    if let Poll::Ready(bytes) = read {
                        self.unread.extend_from_slice(&shared[..bytes]);
                    }
                    read.map(io::Result::Ok)
                });
                match read {
                    Poll::Pending => break,
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(None),
                    Poll::Ready(Ok(_)) => {}
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Closes a connection on which nothing is under way. Bare TCP is closed by dropping it;
    /// under TLS a client could not tell that from being cut off.
    async fn part(&mut self) {
        if S::SAYS_WHEN_IT_ENDS {
            // A client that is gone cannot be told.
            let _ = self.stream.shutdown().await;
        }
    }

    async fn linger(&mut self) {
        linger(&mut self.stream, self.link, LINGER_BYTES_MAX).await;
    }
}

/// What bytes turn out to be.
enum ParseStep<A> {
    /// The beginning of a head.
    More,
    Bad(HttpRefusal),
    /// A request, and how many of the bytes were used for it.
    Request(H1Request<A>, usize),
}

/// Takes a request from the start of `bytes`, with its body if that is there.
fn take<E: HttpService>(bytes: &[u8], link: &Arc<ClientLink>, service: &E) -> ParseStep<E::Route> {
    let settings = &link.shared.settings;
    let mut room = Room::new();
    let read = match head(bytes, settings.head_bytes_max, &mut room) {
        Ok(Some(head)) => head,
        Ok(None) => return ParseStep::More,
        Err(BadHead::TooLong) => return ParseStep::Bad(HttpRefusal::HeadTooLong),
        Err(BadHead::Malformed(why)) => {
            tracing::debug!(peer = %link.peer, why = why.0, "not HTTP");
            return ParseStep::Bad(HttpRefusal::NotHttp);
        }
    };
    let uri: Uri;
    let target = if read.target.starts_with('/') {
        RequestTarget::Origin(read.target)
    } else {
        let Ok(parsed) = read.target.parse() else { return ParseStep::Bad(HttpRefusal::NotHttp) };
        uri = parsed;
        RequestTarget::Uri(&uri)
    };
    let (mut ticket, received_at) = Ticket::open(link);
    let head = RequestHead {
        method: read.method,
        target,
        headers: RequestHeaders::Lines(read.headers),
        may_upgrade: read.newest,
    };
    let route = service.route(&ticket, &head);
    let wanted = E::wants_body(&route);
    let (body, used) = begin_body(&bytes[read.len..], read.framing, wanted, &mut ticket);
    let request = H1Request {
        route,
        ticket,
        received_at,
        body,
        expects_continue: read.expects_continue,
        manner: ResponseMode {
            keeps_open: read.keeps_open,
            newest: read.newest,
            to_head: read.method == "HEAD",
        },
    };
    ParseStep::Request(request, read.len + used)
}

/// What there is of a body behind its head, and how many of the bytes that is.
fn begin_body(
    rest: &[u8],
    framing: RequestFraming,
    is_wanted: bool,
    ticket: &mut Ticket,
) -> (BodyStart, usize) {
    match framing {
        // Little enough to be there, and the connection can go on.
        RequestFraming::Length(length) if !is_wanted => match skipped(rest, length) {
            Some(skipped) => (BodyStart::Whole(Ok(Bytes::new())), skipped),
            None => (BodyStart::Unread, 0),
        },
        RequestFraming::Chunked if !is_wanted => (BodyStart::Unread, 0),
        RequestFraming::Length(length) => match usize::try_from(length) {
            Ok(length) if length <= ticket.link().shared.settings.body_bytes_max => {
                match rest.get(..length) {
                    Some(body) => {
                        let held = ticket.hold(length);
                        (BodyStart::Whole(held.map(|()| Bytes::copy_from_slice(body))), length)
                    }
                    None => {
                        let mut so_far = BytesMut::with_capacity(length.min(ROOM_BYTES_MAX));
                        so_far.extend_from_slice(rest);
                        (BodyStart::Length { so_far, length }, rest.len())
                    }
                }
            }
            _ => (BodyStart::Whole(Err(HttpRefusal::BodyTooLarge)), 0),
        },
        RequestFraming::Chunked => (BodyStart::Chunked, 0),
    }
}

/// The length of a body to skip, if all of it is there.
fn skipped(rest: &[u8], length: u64) -> Option<usize> {
    usize::try_from(length).ok().filter(|length| *length <= rest.len())
}
