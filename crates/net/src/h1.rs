//! One HTTP/1.1 connection: one exchange at a time.
//!
//! The seam behind which the codec can be replaced: `pool` and `http` know only
//! [`H1Connection`]. Today hyper speaks, in a task of its own per connection.
//! When a connection may be used again, and how long it lives, is for `pool`.

use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use ::http::{Method, Request};
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use wellhead_telemetry::clock;
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::body::{Chunks, collect, retry_after};
use crate::dial::Stream;
use crate::endpoint::Prepared;
use crate::http::Answer;
use crate::stats::CloseReason;

/// Longest chain of causes quoted in an error.
const CAUSES_MAX: usize = 4;

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

/// The handle of one connection. Dropping it lets the connection end in good
/// order; [`H1Connection::abort`] ends it now.
#[derive(Debug)]
pub(crate) struct H1Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    fate: Fate,
    /// Not used again from then on.
    pub(crate) retire_at: Instant,
    /// When it was last given back.
    pub(crate) idle_since: Instant,
    /// Whether an exchange was completed on it.
    pub(crate) reused: bool,
}

impl H1Connection {
    /// Starts the connection's task, which holds `member` until the connection has ended.
    pub(crate) async fn open(
        stream: Stream,
        fate: Fate,
        member: impl Send + 'static,
        opened: Instant,
        retire_at: Instant,
    ) -> Result<Self, TransportError> {
        let (sender, connection) = http1::Builder::new()
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| failure(TransportErrorKind::Connect, Sent::No, &e))?;
        let driver = tokio::spawn(async move {
            let _member = member;
            // The exchange under way, if any, is told of the error by hyper.
            let _ = connection.await;
        });
        Ok(Self {
            sender,
            driver: driver.abort_handle(),
            fate,
            retire_at,
            idle_since: opened,
            reused: false,
        })
    }

    /// Whether the next exchange may start now.
    pub(crate) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// Waits until the next exchange may start; `false` when there will be none.
    pub(crate) async fn becomes_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Lets the connection end in good order.
    pub(crate) fn close(self, reason: CloseReason) {
        self.fate.set(reason);
    }

    /// Ends the connection now, whatever is under way on it.
    pub(crate) fn abort(self, reason: CloseReason) {
        self.fate.set(reason);
        self.driver.abort();
    }

    /// Sends `body` and reads the whole answer.
    ///
    /// Sets `sent` as soon as the request may be on its way. After an error the
    /// connection must not be used again.
    pub(crate) async fn exchange(
        &mut self,
        prepared: &Prepared,
        body: Bytes,
        answer_bytes_max: usize,
        sent: &mut Sent,
    ) -> Result<Answer, TransportError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = prepared.h1_uri.clone();
        *request.headers_mut() = prepared.h1_headers.clone();
        let answering = self.sender.try_send_request(request);
        *sent = Sent::Maybe;
        let response = match answering.await {
            Ok(response) => response,
            Err(mut refused) => {
                // Given back whole: nothing of it was written.
                let unsent = refused.take_message().is_some();
                *sent = if unsent { Sent::No } else { Sent::Maybe };
                return Err(before_answer(refused.error(), *sent));
            }
        };
        let head_at = Instant::now();
        let (head, incoming) = response.into_parts();
        let retry_after = retry_after(&head.headers, clock::unix_seconds);
        let body = collect(&mut H1Body(incoming), &head.headers, answer_bytes_max).await?;
        Ok(Answer { status: head.status.as_u16(), retry_after, body, head_at })
    }
}

struct H1Body(Incoming);

impl Chunks for H1Body {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, TransportError>>> {
        loop {
            match ready!(Pin::new(&mut self.0).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(inside_answer(&error)))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Poll::Ready(Some(Ok(data))),
                    // Trailers say nothing to us.
                    Err(_) => continue,
                },
            }
        }
    }
}

fn before_answer(error: &hyper::Error, sent: Sent) -> TransportError {
    let kind =
        if error.is_parse() { TransportErrorKind::Protocol } else { TransportErrorKind::Closed };
    failure(kind, sent, error)
}

fn inside_answer(error: &hyper::Error) -> TransportError {
    let io_kind = error.source().and_then(|cause| {
        // A body error wraps hyper's own, which wraps what the socket or the decoder said.
        let inner = cause.source().unwrap_or(cause);
        inner.downcast_ref::<io::Error>().or(cause.downcast_ref::<io::Error>()).map(io::Error::kind)
    });
    let kind = match io_kind {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            TransportErrorKind::Protocol
        }
        _ => TransportErrorKind::Truncated,
    };
    failure(kind, Sent::Maybe, error)
}

/// hyper's own words and the causes beneath: none of them quotes what was sent.
fn failure(kind: TransportErrorKind, sent: Sent, error: &hyper::Error) -> TransportError {
    let mut detail = error.to_string();
    let mut cause = error.source();
    for _ in 0..CAUSES_MAX {
        let Some(inner) = cause else { break };
        detail.push_str(": ");
        detail.push_str(&inner.to_string());
        cause = inner.source();
    }
    TransportError::new(kind, sent, detail)
}
