//! One HTTP/2 connection: many exchanges at a time.
//!
//! Speaks through the `h2` library itself rather than through hyper: hyper
//! spawns a task and a channel message per request, and hides the reset reasons
//! and limits that retries and pooling need. How many connections there are, and
//! which one an exchange takes, is for `pool`; what went by on the wire is in `frame`.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::h2::client::{Builder, Connection, SendRequest};
use ::h2::{Ping, PingPong, Reason, RecvStream};
use ::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, DATE, RETRY_AFTER};
use ::http::{HeaderValue, Method, Request, Version};
use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep};
use wellhead_telemetry::clock;
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::body::{BodyHead, retry_after};
use crate::endpoint::Prepared;
use crate::frame::{Sightings, Watched};
use crate::http::AnswerHead;
use crate::inflate::Encoding;
use crate::settings::ClientSettings;
use crate::stats::CloseReason;

/// Bytes of one answer that may be on their way or wait unread: enough for
/// 40 Mbit/s at 100 ms, and what a client that reads slowly costs in memory.
const STREAM_WINDOW: u32 = 512 << 10;
/// Bytes of all answers together: answers that nobody reads must leave room for
/// the others, or one slow client would hold up all that share the connection.
const CONNECTION_WINDOW: u32 = 64 << 20;
/// Larger than the usual 16 KiB: large answers arrive in fewer frames.
const FRAME_MAX: u32 = 64 << 10;
/// Response headers; real ones are below 8 KiB.
const HEADER_LIST_MAX: u32 = 64 << 10;

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

/// What the connection's task and its users tell each other.
#[derive(Debug)]
struct Vitals {
    sightings: Arc<Sightings>,
    in_flight: AtomicUsize,
    /// What the peer allows, as far as known.
    announced: AtomicUsize,
    /// Lowered when the peer refuses streams below what it announced.
    tolerated: AtomicUsize,
    ended: AtomicBool,
    /// Set by each use, cleared by the sweep.
    used: AtomicBool,
}

/// The handle of one connection. When the last handle is dropped the connection
/// ends, after the streams in flight.
#[derive(Debug)]
pub(crate) struct H2Connection {
    sender: SendRequest<Bytes>,
    vitals: Arc<Vitals>,
    fate: Fate,
    streams_max: usize,
    streams_before_settings: usize,
    /// To be replaced from then on.
    pub(crate) retire_at: Instant,
    /// How many sweeps found it unused.
    pub(crate) quiet_sweeps: AtomicUsize,
}

/// Told by a connection's task when room or usability changed.
pub(crate) trait Observer: Send + Sync + 'static {
    /// More streams may fit, or the peer said GOAWAY.
    fn changed(&self);
}

impl H2Connection {
    /// Opens HTTP/2 on `io`. The task holds `observer` until the connection has ended.
    pub(crate) async fn open(
        io: Watched,
        sightings: Arc<Sightings>,
        fate: Fate,
        observer: impl Observer,
        settings: &ClientSettings,
        retire_at: Instant,
    ) -> Result<Self, TransportError> {
        let before_settings = settings.h2_streams_before_settings.max(1);
        let settings_came = io.has_read();
        let (sender, mut connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME_MAX)
            .max_header_list_size(HEADER_LIST_MAX)
            .initial_max_send_streams(before_settings)
            .handshake(io)
            .await
            .map_err(|e| {
                TransportError::new(TransportErrorKind::Connect, Sent::No, describe(&e))
            })?;
        let vitals = Arc::new(Vitals {
            sightings,
            in_flight: AtomicUsize::new(0),
            announced: AtomicUsize::new(before_settings),
            tolerated: AtomicUsize::new(usize::MAX),
            ended: AtomicBool::new(false),
            used: AtomicBool::new(true),
        });
        if settings_came {
            // Takes in what detection read, so that the first exchanges know the limits.
            let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll(cx))).await;
            if first.is_ready() || vitals.sightings.goaway() {
                let detail = "the peer left at once";
                return Err(TransportError::new(TransportErrorKind::Connect, Sent::No, detail));
            }
            vitals.announced.store(connection.max_concurrent_send_streams(), Relaxed);
        }
        let keep_alive = (settings.h2_ping_interval, settings.h2_ping_timeout);
        tokio::spawn(drive(connection, Arc::clone(&vitals), fate.clone(), observer, keep_alive));
        Ok(Self {
            sender,
            vitals,
            fate,
            streams_max: settings.h2_streams_max.max(1),
            streams_before_settings: before_settings,
            retire_at,
            quiet_sweeps: AtomicUsize::new(0),
        })
    }

    /// Whether the peer's limits are still unknown.
    pub(crate) fn is_warming(&self) -> bool {
        !self.vitals.sightings.settings()
    }

    /// Whether no new exchange may start on it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.vitals.ended.load(Relaxed) || self.vitals.sightings.goaway()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.vitals.in_flight.load(Relaxed)
    }

    /// Exchanges that may be in flight.
    pub(crate) fn cap(&self) -> usize {
        let known = if self.is_warming() {
            self.streams_before_settings
        } else {
            self.vitals.announced.load(Relaxed)
        };
        known.min(self.streams_max).min(self.vitals.tolerated.load(Relaxed))
    }

    pub(crate) fn enter(&self) {
        self.vitals.in_flight.fetch_add(1, Relaxed);
        self.vitals.used.store(true, Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.vitals.in_flight.fetch_sub(1, Relaxed);
    }

    /// Whether it was used since this was last asked.
    pub(crate) fn was_used(&self) -> bool {
        self.vitals.used.swap(false, Relaxed) || self.in_flight() > 0
    }

    pub(crate) fn will_close(&self, reason: CloseReason) {
        self.fate.set(reason);
    }

    /// Sends `body` and reads the head of the answer. Dropping the future, or the
    /// stream that it brings, resets the stream.
    ///
    /// Sets `sent` as soon as the request may be on its way.
    pub(crate) async fn exchange(
        &self,
        prepared: &Prepared,
        body: Bytes,
        sent: &mut Sent,
    ) -> Result<(AnswerHead, H2Stream), TransportError> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = prepared.h2_uri.clone();
        let mut headers = prepared.h2_headers.clone();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        *request.headers_mut() = headers;

        let unsent = |e: &::h2::Error| {
            TransportError::new(TransportErrorKind::Closed, Sent::No, describe(e))
        };
        let (response, mut stream) =
            self.sender.clone().send_request(request, false).map_err(|e| unsent(&e))?;
        let id = response.stream_id().as_u32();
        *sent = Sent::Maybe;
        // Queued whole and written as the peer's window opens: the body is in memory anyway.
        stream.send_data(body, true).map_err(|e| self.failure(&e, id, sent, false))?;
        let response = match response.await {
            Ok(response) => response,
            Err(error) => return Err(self.failure(&error, id, sent, false)),
        };
        let (head, incoming) = response.into_parts();
        let value = |name| head.headers.get(name).map(HeaderValue::as_bytes);
        let length = value(CONTENT_LENGTH).and_then(|v| std::str::from_utf8(v).ok());
        let answer = AnswerHead {
            status: head.status.as_u16(),
            retry_after: retry_after(value(RETRY_AFTER), value(DATE), clock::unix_seconds),
            body: BodyHead {
                length: length.and_then(|v| v.trim().parse().ok()),
                encoding: Encoding::of(value(CONTENT_ENCODING)),
            },
            at: Instant::now(),
        };
        Ok((answer, H2Stream { incoming, id }))
    }

    fn failure(
        &self,
        error: &::h2::Error,
        stream: u32,
        sent: &mut Sent,
        inside: bool,
    ) -> TransportError {
        let refused =
            error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
        if refused {
            // The peer's true limit is below what was in flight, this one included.
            let below = self.in_flight().saturating_sub(1).max(1);
            self.vitals.tolerated.fetch_min(below, Relaxed);
        }
        if refused || self.vitals.sightings.unprocessed(stream) {
            *sent = Sent::No;
        }
        let kind = match inside {
            // Includes a body that does not fit its content-length, which the library resets.
            true => TransportErrorKind::Truncated,
            false if error.is_library() => TransportErrorKind::Protocol,
            false => TransportErrorKind::Closed,
        };
        TransportError::new(kind, *sent, describe(error))
    }
}

/// An answer's body on its way. Dropped before its end it resets the stream.
#[derive(Debug)]
pub(crate) struct H2Stream {
    incoming: RecvStream,
    id: u32,
}

impl H2Stream {
    pub(crate) fn is_end(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// The next frame's data, on `connection`, which it came by. The peer may
    /// send as much again: it is asked for no faster than it is read.
    pub(crate) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        connection: &H2Connection,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        loop {
            return Poll::Ready(match ready!(self.incoming.poll_data(cx)) {
                None => None,
                Some(Ok(data)) => {
                    // Fails only when the stream has ended meanwhile, which the next poll tells.
                    let _ = self.incoming.flow_control().release_capacity(data.len());
                    if data.is_empty() {
                        continue;
                    }
                    Some(Ok(data))
                }
                // How a server leaves that has answered whole and will not read the rest of
                // the request (RFC 9113, section 8.1). Lengths are checked by the reader.
                Some(Err(error))
                    if error.is_remote() && error.reason() == Some(Reason::NO_ERROR) =>
                {
                    None
                }
                Some(Err(error)) => {
                    let mut sent = Sent::Maybe;
                    Some(Err(connection.failure(&error, self.id, &mut sent, true)))
                }
            });
        }
    }
}

/// Names the reason only: GOAWAY's debug data may quote a path.
fn describe(error: &::h2::Error) -> String {
    let who = if error.is_remote() { "by the peer" } else { "by us" };
    match (error.reason(), error.get_io()) {
        (Some(reason), _) if error.is_go_away() => format!("connection ended {who}: {reason:?}"),
        (Some(reason), _) if error.is_reset() => format!("stream reset {who}: {reason:?}"),
        (Some(reason), _) => format!("{reason:?}"),
        (None, Some(io)) => io.to_string(),
        (None, None) => "HTTP/2 misuse".to_owned(),
    }
}

/// Time between pings, and how long to wait for the answer.
type KeepAlive = (Duration, Duration);

/// Runs the connection until it ends, telling `observer` what changed.
async fn drive(
    mut connection: Connection<Watched, Bytes>,
    vitals: Arc<Vitals>,
    fate: Fate,
    observer: impl Observer,
    (interval, patience): KeepAlive,
) {
    let mut pulse = Pulse { pings: connection.ping_pong(), asked: false, interval, patience };
    let mut timer = pin!(sleep(interval));
    let mut known = (false, false, 0);
    poll_fn(|cx| {
        if Pin::new(&mut connection).poll(cx).is_ready() {
            if vitals.sightings.goaway() {
                fate.set(CloseReason::Replaced);
            }
            return Poll::Ready(());
        }
        let now = (
            vitals.sightings.settings(),
            vitals.sightings.goaway(),
            connection.max_concurrent_send_streams(),
        );
        if now != known {
            known = now;
            vitals.announced.store(now.2, Relaxed);
            observer.changed();
        }
        if pulse.poll_dead(cx, timer.as_mut(), vitals.in_flight.load(Relaxed) > 0) {
            fate.set(CloseReason::Stuck);
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
    vitals.ended.store(true, Relaxed);
    // Fails the streams in flight before the pool hears of the end.
    drop(connection);
    drop(observer);
}

/// Asks a peer with open streams from time to time whether it is still there.
struct Pulse {
    pings: Option<PingPong>,
    asked: bool,
    interval: Duration,
    patience: Duration,
}

impl Pulse {
    fn poll_dead(
        &mut self,
        cx: &mut Context<'_>,
        mut timer: Pin<&mut Sleep>,
        streams_open: bool,
    ) -> bool {
        let Some(pings) = &mut self.pings else { return false };
        if self.asked && pings.poll_pong(cx).is_ready() {
            self.asked = false;
            timer.as_mut().reset(Instant::now() + self.interval);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if self.asked {
                return true;
            }
            let wait = if streams_open && pings.send_ping(Ping::opaque()).is_ok() {
                self.asked = true;
                // Registers for the answer.
                let _ = pings.poll_pong(cx);
                self.patience
            } else {
                self.interval
            };
            timer.as_mut().reset(Instant::now() + wait);
        }
        false
    }
}
