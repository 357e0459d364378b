//! HTTP/2 of a fake provider, with frames sent on purpose: what SETTINGS announce,
//! which stream is refused, when GOAWAY comes and with which code.
//!
//! One task a connection. New streams are looked at before answers are, so that those
//! which arrive together are together under way.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::count::count;
use super::desk::{ConnectionState, Desk, ProviderAnswer, Welcome};
use super::dial::StreamCap;
use super::meter::pieces;
use super::wire::ProviderSocket;

/// Until a client that was told GOAWAY, and has nothing under way, has to be gone.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Largest request.
const REQUEST_BYTES_MAX: usize = 5 * 1024 * 1024;
/// What is sent without asking for room first.
const SMALL_BYTES: usize = 16 * 1024;
/// Windows for requests, of a stream and of a connection.
const WINDOWS: (u32, u32) = (1 << 20, 4 << 20);
/// Refused streams that are remembered: what a client had sent to a forgotten one
/// would be an error of the whole connection.
const REFUSED_KEPT: usize = 16 * 1024;

type Session = Connection<ProviderSocket, Bytes>;

/// Held by the body that goes out, where they go out in turn.
type SendTurn = tokio::sync::Mutex<()>;

/// Serves until either side closes.
pub(super) async fn serve(wire: ProviderSocket, desk: &Desk) -> Result<(), h2::Error> {
    count(&desk.counters.http2);
    let announced = desk.read(|dials| dials.stream_cap.and_then(|cap: StreamCap| cap.announced()));
    let handshake = builder(announced).handshake::<_, Bytes>(wire);
    let Ok(session) = tokio::time::timeout(super::HANDSHAKE_MAX, handshake).await else {
        return Ok(());
    };
    let mut session = session?;
    let mut turns = desk.turns();
    let (place, roll, turn) = (ConnectionState::default(), Roll::default(), SendTurn::default());
    let mut work = FuturesUnordered::new();
    let (mut taken, mut leaving, mut quiet_since) = (0u64, false, Instant::now());
    loop {
        let quiet = work.is_empty().then_some(quiet_since);
        let idle = desk.read(|dials| dials.idle_close).filter(|_| !leaving);
        let idle_at = quiet.zip(idle).map(|(since, idle)| since + idle);
        let gone_at = quiet.filter(|_| leaving).map(|since| since + LEAVE_MAX);
        tokio::select! {
            biased;
            stream = session.accept() => {
                let Some(stream) = stream else { return Ok(()) };
                let (request, mut respond) = stream?;
                if desk.has_its_share(taken, true) {
                    count(&desk.counters.recycled);
                    return Ok(());
                }
                if desk.is_full(work.len()) {
                    roll.call(&mut work);
                }
                match desk.welcome(work.len() + 1) {
                    Welcome::Served => {}
                    Welcome::Refused => {
                        respond.send_reset(Reason::REFUSED_STREAM);
                        continue;
                    }
                    Welcome::Fatal(goaway) => return end(session, desk, goaway).await,
                }
                work.push(exchange(desk, (&place, &turn), &roll, request, respond));
                taken += 1;
                if !leaving && desk.has_its_share(taken, false) {
                    leaving = true;
                    count(&desk.counters.recycled);
                    leave(&mut session, desk);
                }
            }
            Some(()) = work.next(), if !work.is_empty() => quiet_since = Instant::now(),
            () = super::at(idle_at) => {
                (leaving, quiet_since) = (true, Instant::now());
                count(&desk.counters.idle_closed);
                leave(&mut session, desk);
            }
            () = super::at(gone_at) => return Ok(()),
            _ = turns.changed() => {}
        }
    }
}

fn builder(announced: Option<u32>) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_concurrent_reset_streams(REFUSED_KEPT)
        .max_pending_accept_reset_streams(REFUSED_KEPT);
    if let Some(max) = announced {
        builder.max_concurrent_streams(max);
    }
    builder
}

/// Tells the client to go. What is under way is answered; a stream opened before the
/// client has heard of it is served as well.
fn leave(session: &mut Session, desk: &Desk) {
    count(&desk.counters.goaways);
    session.graceful_shutdown();
}

/// Ends the connection and all that is under way.
async fn end(mut session: Session, desk: &Desk, goaway: Option<u32>) -> Result<(), h2::Error> {
    let Some(code) = goaway else { return Ok(()) };
    count(&desk.counters.goaways);
    session.abrupt_shutdown(Reason::from(code));
    let closed = poll_fn(|context| session.poll_closed(context));
    tokio::time::timeout(LEAVE_MAX, closed).await.unwrap_or(Ok(()))
}

/// A roll call of the open streams, before one is judged to be one too many: a client may
/// have given one up and opened the next at once, and both arrived together.
#[derive(Debug, Default)]
struct Roll {
    /// Streams only look whether their client has gone.
    called: AtomicBool,
    /// Streams that would have gone on meanwhile.
    held: Mutex<Vec<Waker>>,
}

impl Roll {
    fn call(&self, work: &mut (impl Stream<Item = ()> + Unpin)) {
        self.called.store(true, Ordering::Relaxed);
        while let Some(Some(())) = work.next().now_or_never() {}
        self.called.store(false, Ordering::Relaxed);
        self.held.lock().drain(..).for_each(Waker::wake);
    }

    fn holds(&self, context: &Context<'_>) -> bool {
        let holds = self.called.load(Ordering::Relaxed);
        if holds {
            self.held.lock().push(context.waker().clone());
        }
        holds
    }
}

/// One stream, until its answer is sent or the client has lost interest.
async fn exchange(
    desk: &Desk,
    (place, turn): (&ConnectionState, &SendTurn),
    roll: &Roll,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let answer = {
        let mut answer = pin!(answer(desk, place, request));
        poll_fn(|context| {
            if respond.poll_reset(context).is_ready() {
                return Poll::Ready(None);
            }
            if roll.holds(context) {
                return Poll::Pending;
            }
            answer.as_mut().poll(context).map(Some)
        })
        .await
    };
    let sent = match answer {
        None => return,
        Some(Ok(answer)) => {
            let in_turn = desk.read(|dials| dials.bodies_in_turn);
            let _turn = if in_turn { Some(turn.lock().await) } else { None };
            send(desk, answer, respond).await
        }
        Some(Err(error)) => Err(error),
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "a stream of a fake provider broke");
    }
}

async fn answer(
    desk: &Desk,
    place: &ConnectionState,
    request: Request<RecvStream>,
) -> Result<ProviderAnswer, h2::Error> {
    if request.method() != Method::POST {
        return Ok(ProviderAnswer::bare(405));
    }
    let mut stream = request.into_body();
    let mut body = Vec::new();
    while let Some(part) = stream.data().await {
        let part = part?;
        stream.flow_control().release_capacity(part.len())?;
        if body.len() + part.len() > REQUEST_BYTES_MAX {
            return Ok(ProviderAnswer::bare(413));
        }
        body.extend_from_slice(&part);
    }
    let answer = desk.answer(place, &body).await;
    let delay = desk.read(|dials| dials.http2_delay);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    Ok(answer)
}

async fn send(
    desk: &Desk,
    answer: ProviderAnswer,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let ProviderAnswer { status, retry_after, body } = answer;
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    let mut stream = respond.send_response(response, body.is_empty())?;
    if body.is_empty() {
        return Ok(());
    }
    let pace = desk.read(|dials| dials.body_bytes_per_second);
    let Some(per_second) = pace else {
        return send_part(&mut stream, body, true).await;
    };
    let (began, mut left) = (Instant::now(), body.len());
    for (after, piece) in pieces(&body, per_second) {
        tokio::time::sleep_until(began + after).await;
        left -= piece.len();
        send_part(&mut stream, piece, left == 0).await?;
    }
    Ok(())
}

/// As the client's windows allow, but for small parts, which the library keeps until
/// there is room.
async fn send_part(
    stream: &mut SendStream<Bytes>,
    mut part: Bytes,
    last: bool,
) -> Result<(), h2::Error> {
    while part.len() > SMALL_BYTES {
        stream.reserve_capacity(part.len());
        match poll_fn(|context| stream.poll_capacity(context)).await {
            None => return Ok(()),
            Some(room) => {
                let piece = part.split_to(room?.min(part.len() - 1));
                stream.send_data(piece, false)?;
            }
        }
    }
    stream.send_data(part, last)
}
