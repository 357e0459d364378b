//! One connection: which protocol it speaks, and when it ends.
//!
//! HTTP/1.1 is served by `h1`, HTTP/2 by hyper; the clock (`link`), the drain and
//! the counts are looked after here. What a request means is the service's business.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use wellhead_prefetch::FetchAddress;

use crate::admission::ConnectionPermit;
use crate::count::ServerCounters;
use crate::drain::Drain;
use crate::end::ConnectionEnd;
use crate::frames::Frames;
use crate::h1;
use crate::handshake::Handshakes;
use crate::head::{RequestHead, RequestTarget};
use crate::headers::RequestHeaders;
use crate::link::{ClientLink, PeerProof, TooSlow};
use crate::protocol::ClientProtocol;
use crate::proxied::{Announced, ProxyFailure, read_announced};
use crate::request::collect;
use crate::service::HttpService;
use crate::shared::ServerShared;
use crate::socket::{ClientSocket, ClientStream, FirstBytes};
use crate::stream::StreamExecutor;
use crate::ticket::Ticket;
use crate::tls::{self, HandshakeFailure, TlsStream};

/// A client that has connected and not begun its request when draining begins, or is in the accept queue,
/// gets this long to begin it, and before that as long for the handshake of TLS.
const LATE_OPENING_TIME: Duration = Duration::from_secs(1);

/// An idle connection that was told to close gets this long to do so.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// A client that is turned away gets this long to read why.
const TURN_AWAY_TIME: Duration = Duration::from_millis(500);

/// hyper buffers this much of an answer for one HTTP/2 stream.
const STREAM_SEND_BYTES: usize = 128 * 1024;

/// Windows of HTTP/2: what one stream and one connection may send ahead of us.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Streams that a client opened and reset before we looked at them, and
/// streams that we reset; more ends the connection (the "rapid reset" attack).
const RESETS_MAX: usize = 64;

/// What the connections of one worker share.
#[derive(Debug)]
pub(crate) struct Worker<E> {
    pub(crate) shared: Arc<ServerShared>,
    pub(crate) service: E,
    pub(crate) drain: Drain,
    /// Whose step of a TLS handshake is next.
    turn: Semaphore,
    http2: http2::Builder<StreamExecutor>,
}

impl<E> Worker<E> {
    pub(crate) fn new(shared: Arc<ServerShared>, service: E, drain: Drain) -> Self {
        let http2 = http2_builder(&shared);
        Self { shared, service, drain, turn: Semaphore::new(1), http2 }
    }
}

fn http2_builder(shared: &Arc<ServerShared>) -> http2::Builder<StreamExecutor> {
    let settings = &shared.settings;
    let head_bytes_max = u32::try_from(settings.head_bytes_max).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(StreamExecutor { shared: Arc::clone(shared) });
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.streams_max)
        .max_header_list_size(head_bytes_max)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(STREAM_SEND_BYTES)
        .keep_alive_interval(settings.ping_interval)
        .keep_alive_timeout(settings.ping_timeout);
    builder
}

/// Shakes hands, and serves the connection to its end.
pub(crate) async fn run_tls<E: HttpService>(
    stream: TcpStream,
    handshakes: Arc<Handshakes>,
    worker: Arc<Worker<E>>,
    permit: ConnectionPermit,
) {
    // Boxed: its room is not wanted any more afterwards.
    match Box::pin(shake_hands(stream, &handshakes, &worker, permit.link())).await {
        Ok(shaken) if tls::was_challenge(&shaken) => {
            tracing::debug!(peer = %permit.link().peer, "an ACME server has seen the proof of a domain");
        }
        Ok(shaken) => {
            ServerCounters::add(&worker.shared.counters.tls_total);
            let agreed = tls::agreed(&shaken);
            if let Some(names) = tls::client_names(&shaken) {
                permit.link().prove(PeerProof::Certificate(names));
            }
            run(shaken, agreed, Vec::new(), worker, permit).await;
        }
        Err(failure) => {
            tracing::debug!(peer = %permit.link().peer, why = failure.word(), "no TLS handshake");
            worker.shared.counters.fail_handshake(failure);
        }
    }
}

async fn shake_hands<E>(
    stream: TcpStream,
    handshakes: &Handshakes,
    worker: &Worker<E>,
    link: &Arc<ClientLink>,
) -> Result<Box<TlsStream<TcpStream>>, HandshakeFailure> {
    // The answers of a handshake are small, and each is waited for.
    let _ = stream.set_nodelay(true);
    tokio::select! {
        biased;
        shaken = handshakes.shake_hands(stream, link, &worker.turn) => shaken.map(Box::new),
        () = too_long(worker) => Err(HandshakeFailure::Slow),
        () = displaced(link) => Err(HandshakeFailure::Full),
    }
}

/// Ready when the drain has begun and a client that has not begun a request has had its time.
async fn late<E>(worker: &Worker<E>) {
    worker.drain.begun.cancelled().await;
    tokio::time::sleep(LATE_OPENING_TIME).await;
}

/// Ready when a client has had its time for what comes before its first request.
async fn too_long<E>(worker: &Worker<E>) {
    tokio::select! {
        () = late(worker) => {}
        () = tokio::time::sleep(worker.shared.settings.head_timeout) => {}
    }
}

/// Reads which client a trusted proxy has connected.
pub(crate) async fn read_client<E>(
    stream: &mut TcpStream,
    is_required: bool,
    worker: &Worker<E>,
) -> Result<Announced, ProxyFailure> {
    tokio::select! {
        biased;
        announced = read_announced(stream, is_required) => announced,
        () = too_long(worker) => Err(ProxyFailure::Slow),
    }
}

/// Serves one connection to its end. Under TLS the protocol may be agreed already. `unread` came before
/// all that the stream gives.
pub(crate) async fn run<S: ClientStream, E: HttpService>(
    mut stream: S,
    agreed: Option<ClientProtocol>,
    unread: Vec<u8>,
    worker: Arc<Worker<E>>,
    permit: ConnectionPermit,
) {
    stream.send_at_once();
    let Some(opening) = open(&mut stream, unread, &worker, permit.link()).await else { return };
    let protocol = opening.protocol;
    if agreed.is_some_and(|agreed| agreed != protocol) {
        ConnectionEnd::BadHttp.count(permit.link());
        return;
    }
    permit.speak(protocol);
    let link = Arc::clone(permit.link());
    let ended = match protocol {
        // The first bytes are never those of WebSocket, which begins as HTTP/1.1.
        ClientProtocol::Http1 | ClientProtocol::WebSocket => {
            let connection = pin!(h1::serve(stream, opening.bytes(), &link, &worker.service));
            drive(connection, |_| {}, &link, &worker.drain).await
        }
        // Boxed: ten thousand idle HTTP/1.1 connections must not carry its room about.
        ClientProtocol::Http2 => Box::pin(speak_http2(stream, opening, &link, &worker)).await,
    };
    ended.count(&link);
}

async fn speak_http2<S: ClientStream, E: HttpService>(
    stream: S,
    opening: FirstBytes,
    link: &Arc<ClientLink>,
    worker: &Arc<Worker<E>>,
) -> ConnectionEnd {
    let socket = ClientSocket::new(stream, opening, Arc::clone(link));
    let service = service_fn({
        let worker = Arc::clone(worker);
        let link = Arc::clone(link);
        move |request| {
            let worker = Arc::clone(&worker);
            let link = Arc::clone(&link);
            async move { Ok::<_, Infallible>(answer_stream(&worker, &link, request).await) }
        }
    });
    let connection = pin!(worker.http2.serve_connection(TokioIo::new(socket), service));
    drive(connection, http2::Connection::graceful_shutdown, link, &worker.drain).await
}

async fn answer_stream<E: HttpService>(
    worker: &Worker<E>,
    link: &Arc<ClientLink>,
    request: Request<Incoming>,
) -> Response<Frames> {
    let (mut ticket, received_at) = Ticket::open(link);
    let (parts, body) = request.into_parts();
    let head = RequestHead {
        method: parts.method.as_str(),
        target: RequestTarget::Uri(&parts.uri),
        headers: RequestHeaders::Map(&parts.headers),
        may_upgrade: false,
    };
    let route = worker.service.route(&ticket, &head);
    // Headers are counted nowhere, so they are not kept for as long as the answer takes.
    drop(parts);
    let body = if E::wants_body(&route) {
        collect(body, &worker.shared.settings, &mut ticket).await
    } else {
        Ok(Bytes::new())
    };
    // Boxed: neither a stream whose body is yet to come nor one whose answer waits for its client
    // has room for the state of the handler, which is most of what a call takes.
    let reply = Box::pin(worker.service.answer(route, body, received_at, ticket)).await;
    reply.response.into_response()
}

/// Reads the first bytes; `None` when there is nothing to serve.
async fn open<E>(
    stream: &mut impl ClientStream,
    unread: Vec<u8>,
    worker: &Worker<E>,
    link: &ClientLink,
) -> Option<FirstBytes> {
    let counters = &worker.shared.counters;
    let opening = FirstBytes::read(stream, &unread);
    tokio::select! {
        biased;
        opening = opening => opening.ok()?,
        // Its request may be on its way.
        () = late(worker) => None,
        () = displaced(link) => None,
        () = tokio::time::sleep(worker.shared.settings.head_timeout) => {
            ServerCounters::add(&counters.slow_head_total);
            None
        }
    }
}

/// Ready when another connection took the place of this one.
async fn displaced(link: &ClientLink) {
    poll_fn(|cx| {
        link.wakes(cx);
        if link.is_displaced() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Runs a connection to its end, which is told to come by `close` and by the link.
async fn drive<C: Future<Output: Into<ConnectionEnd>>>(
    mut connection: Pin<&mut C>,
    close: impl Fn(Pin<&mut C>),
    link: &Arc<ClientLink>,
    drain: &Drain,
) -> ConnectionEnd {
    let leave = |connection: Pin<&mut C>| {
        link.note_leaving();
        close(connection);
    };
    let mut signals = Signals {
        link,
        waker: Waker::from(Arc::clone(link)),
        begun: pin!(drain.begun.cancelled()),
        cut: pin!(drain.cut.cancelled()),
        timer: pin!(tokio::time::sleep_until(Instant::now())),
        stage: DrainStage::NotBegun { idle_over: &drain.idle_over },
    };
    let mut idle = false;
    if drain.begun.is_cancelled() {
        link.note_draining();
        // Out of the accept queue, with a request, that begins after the drain has: hyper closes one
        // that it has read nothing of, so it reads before it hears of the drain.
        if let Poll::Ready(ended) = once(connection.as_mut()).await {
            return ended.into();
        }
    }
    loop {
        // What was handled is polled again, and what was not yet polled is.
        link.ring();
        match poll_fn(|cx| signals.poll_event(connection.as_mut(), cx)).await {
            ConnectionEvent::DrainBegun => {
                link.note_draining();
                close(connection.as_mut());
            }
            ConnectionEvent::IdleOver => link.note_leaving(),
            ConnectionEvent::Ended(_) if idle => return ConnectionEnd::TooSlow(TooSlow::Idle),
            ConnectionEvent::Ended(ended) => return ended.into(),
            ConnectionEvent::Cut => return ConnectionEnd::Cut,
            ConnectionEvent::Displaced => {
                leave(connection.as_mut());
                let _ = once(connection).await;
                return ConnectionEnd::Displaced;
            }
            ConnectionEvent::TooSlow(TooSlow::Idle) if !idle => {
                // Not dropped: a request may be on its way, which HTTP/2 can still answer.
                idle = true;
                leave(connection.as_mut());
                signals.timer.as_mut().reset(Instant::now() + CLOSE_TIME);
            }
            ConnectionEvent::TooSlow(TooSlow::Hoarder) => {
                link.note_hoarder();
                let _ = once(connection).await;
                return ConnectionEnd::TooSlow(TooSlow::Hoarder);
            }
            ConnectionEvent::TooSlow(too_slow) => return ConnectionEnd::TooSlow(too_slow),
        }
    }
}

/// What makes a connection's task act, beside the connection itself.
struct Signals<'a, 'd> {
    link: &'a Arc<ClientLink>,
    /// Rings the link: what is polled with it is polled when the link was rung.
    waker: Waker,
    /// The next stage of the drain.
    begun: Pin<&'a mut WaitForCancellationFuture<'d>>,
    cut: Pin<&'a mut WaitForCancellationFuture<'d>>,
    /// Rings at the time of the next look at the link.
    timer: Pin<&'a mut Sleep>,
    stage: DrainStage<'d>,
}

/// What a connection knows of the drain.
#[derive(Debug, Clone, Copy)]
enum DrainStage<'d> {
    NotBegun { idle_over: &'d CancellationToken },
    Begun,
    IdleOver,
}

impl Signals<'_, '_> {
    /// Moves on to the next stage of the drain, and waits for the one after it in the room of that.
    fn next_stage<O>(&mut self) -> ConnectionEvent<O> {
        match self.stage {
            DrainStage::NotBegun { idle_over } => {
                self.stage = DrainStage::Begun;
                self.begun.set(idle_over.cancelled());
                ConnectionEvent::DrainBegun
            }
            DrainStage::Begun | DrainStage::IdleOver => {
                self.stage = DrainStage::IdleOver;
                ConnectionEvent::IdleOver
            }
        }
    }

    /// Ready with what the task has to react to. Gives the connection its turn.
    fn poll_event<C: Future>(
        &mut self,
        connection: Pin<&mut C>,
        cx: &mut Context<'_>,
    ) -> Poll<ConnectionEvent<C::Output>> {
        // With many connections each is in no cache, and is needed from the next line on to the end of the turn.
        FetchAddress::of_shared(self.link).fetch(size_of::<ClientLink>());
        self.link.wakes(cx);
        let rung = self.link.was_rung();
        let rare = &mut Context::from_waker(&self.waker);
        // Before the connection, so that an answer made after the drain
        // began says that it is the last.
        let is_last = matches!(self.stage, DrainStage::IdleOver);
        if rung && !is_last && self.begun.as_mut().poll(rare).is_ready() {
            return Poll::Ready(self.next_stage());
        }
        self.link.begin_turn();
        if let Poll::Ready(ended) = connection.poll(cx) {
            return Poll::Ready(ConnectionEvent::Ended(ended));
        }
        if rung && self.link.is_displaced() {
            return Poll::Ready(ConnectionEvent::Displaced);
        }
        if rung && self.cut.as_mut().poll(rare).is_ready() {
            return Poll::Ready(ConnectionEvent::Cut);
        }
        let sooner = self.link.leave_rest();
        if let Some(look) = sooner.filter(|look| *look < self.timer.deadline()) {
            self.timer.as_mut().reset(look);
        }
        while (rung || sooner.is_some()) && self.timer.as_mut().poll(rare).is_ready() {
            match self.link.look(Instant::now()) {
                Ok(next) => self.timer.as_mut().reset(next),
                Err(too_slow) => return Poll::Ready(ConnectionEvent::TooSlow(too_slow)),
            }
        }
        Poll::Pending
    }
}

/// Gives a connection one turn, in which it says what it has to say before it is dropped.
async fn once<C: Future>(mut connection: Pin<&mut C>) -> Poll<C::Output> {
    poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx))).await
}

/// What a connection's task has to react to.
enum ConnectionEvent<O> {
    Ended(O),
    DrainBegun,
    IdleOver,
    Displaced,
    Cut,
    TooSlow(TooSlow),
}

/// Tells a client that speaks no TLS that there is no room, and closes.
pub(crate) async fn turn_away(mut stream: impl ClientStream, status: StatusCode, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let talk = async {
        stream.write_all(&[head.as_bytes(), body].concat()).await?;
        stream.shutdown().await?;
        // Read on, or what the client has sent makes the close a reset.
        let mut waste = [0; 4096];
        while stream.read(&mut waste).await? > 0 {}
        std::io::Result::Ok(())
    };
    // Whatever comes of it, there was no room.
    let _ = tokio::time::timeout(TURN_AWAY_TIME, talk).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::AdminService;

    fn size_of_serve<A, B, C, D, F>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    fn size_of_run<A, B, C, D, G, F>(_: impl FnOnce(A, B, C, D, G) -> F) -> usize {
        size_of::<F>()
    }

    /// Ten thousand idle connections each have the room of their task. An `async fn` that takes a future by value has
    /// room for it twice.
    #[test]
    fn a_task_has_room_for_its_protocol_once() {
        type Tls = Box<TlsStream<TcpStream>>;
        let plain = size_of_serve(h1::serve::<TcpStream, AdminService>);
        let bare = size_of_run(run::<TcpStream, AdminService>);
        assert!(bare < plain + 640, "{plain} of {bare}");
        let ciphered = size_of_run(run::<Tls, AdminService>);
        let with_handshake = size_of_serve(run_tls::<AdminService>);
        assert!(with_handshake < ciphered + 160, "{ciphered} of {with_handshake}");
    }
}
