//! One document by HTTP: a GET, its answer, and the connection is closed.
//!
//! For the few documents that are fetched now and then, such as the keys of an issuer of tokens. Over
//! HTTP/1.1 and the dialer of the upstreams, so that names, addresses and certificates are treated as
//! theirs are. What calls need is not here: no pool, no HTTP/2, no second attempt, no content codings. A
//! redirect is not followed: the place of a document is said by the settings, not by the server that answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::time::{Instant, timeout_at};
use wellhead_transport::{MemoryBudget, TransportError, TransportErrorKind};

use crate::body::{BodyLimits, receive};
use crate::dial::{DialStep, Dialer, Resolver, TlsClient};
use crate::endpoint::{Endpoint, EndpointError, HttpVersion, Prepared, Purpose};
use crate::h1::H1Connection;

use crate::inflate::Encoding;
use crate::outgoing::OutgoingCall;

/// Bounds of one fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// The largest document. One that is announced or sent longer is an error.
    pub bytes_max: usize,
    /// From the name look-up to the last byte.
    pub timeout: Duration,
}

/// Fetches the document of one URL, again and again.
pub struct DocumentFetcher {
    prepared: Prepared,
    dialer: Dialer,
    limits: FetchLimits,
    /// Never full: `limits` bound what is held here.
    memory: Arc<MemoryBudget>,
}

/// A document as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedDocument {
    /// All of it.
    pub body: Bytes,
}

/// Why a document did not come. No text has a part of its URL, nor of what the server wrote.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FetchError {
    /// The server could not be reached, or did not answer in HTTP.
    #[error("{0}")]
    Transport(TransportError),
    /// It did not come to its end in time.
    #[error("{0}")]
    Timeout(&'static str),
    /// It is elsewhere, says the server.
    #[error("the server redirects (HTTP {0}), which is not followed")]
    Redirect(u16),
    /// Any other status but 200.
    #[error("the server answered with HTTP {0}")]
    Status(u16),
    /// It is longer than this number of bytes.
    #[error("the document is longer than {0} bytes")]
    TooLong(usize),
    /// It is compressed, which was not asked for.
    #[error("the document has a content coding that was not asked for")]
    Coded,
}

impl DocumentFetcher {
    /// Checks `endpoint`, whose `version` does not count; opens no connection yet. `seed` spreads the
    /// order in which the addresses of a name are tried.
    ///
    /// # Errors
    ///
    /// If the URL is none of `http` or `https`, or a header cannot be sent.
    pub fn new(
        endpoint: &Endpoint,
        limits: FetchLimits,
        resolver: Arc<Resolver>,
        tls: &TlsClient,
        seed: u64,
    ) -> Result<Self, EndpointError> {
        let endpoint = Endpoint { version: HttpVersion::H1, ..endpoint.clone() };
        let prepared = Prepared::new(&endpoint, Purpose::Document)?;
        let dialer = Dialer::new(&prepared, resolver, tls, seed as usize);
        Ok(Self { prepared, dialer, limits, memory: Arc::default() })
    }

    /// Fetches it over a connection of its own. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`FetchError`]; there is no second attempt.
    pub async fn fetch(&self) -> Result<FetchedDocument, FetchError> {
        let deadline = Instant::now() + self.limits.timeout;
        let mut step = DialStep::LookUp;
        let fetched = timeout_at(deadline, self.fetch_before(deadline, &mut step)).await;
        fetched.unwrap_or_else(|_| Err(FetchError::Timeout(out_of_time(step))))
    }

    async fn fetch_before(
        &self,
        deadline: Instant,
        step: &mut DialStep,
    ) -> Result<FetchedDocument, FetchError> {
        let dialed = self.dialer.dial(deadline, step).await;
        let (stream, _) = dialed.map_err(FetchError::Transport)?;
        *step = DialStep::Http;
        let now = Instant::now();
        // Not given back to a pool: when it would retire does not matter.
        let mut connection = H1Connection::new(stream, now, deadline);
        let head = connection
            .exchange(&self.prepared, &OutgoingCall::new(Bytes::new()), now)
            .await
            .map_err(FetchError::Transport)?;
        match head.status {
            200 => {}
            status @ 300..=399 => return Err(FetchError::Redirect(status)),
            status => return Err(FetchError::Status(status)),
        }
        if head.body.encoding != Encoding::Identity {
            return Err(FetchError::Coded);
        }
        let bytes_max = self.limits.bytes_max;
        let limits = BodyLimits { whole_max: usize::MAX, answer_bytes_max: bytes_max };
        let received = receive(&mut connection, head.body, limits, &self.memory).await;
        let received = received.map_err(|error| match error.kind {
            TransportErrorKind::TooLarge => FetchError::TooLong(bytes_max),
            _ => FetchError::Transport(error),
        })?;
        connection.close();
        Ok(FetchedDocument { body: received.body })
    }
}

fn out_of_time(step: DialStep) -> &'static str {
    match step {
        DialStep::LookUp => "the host name was still being looked up when the time was over",
        DialStep::Tcp => "there was no TCP connection when the time was over",
        DialStep::Tls => "the TLS handshake had not finished when the time was over",
        DialStep::Http => "the answer was not complete when the time was over",
    }
}

impl fmt::Debug for DocumentFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentFetcher")
            .field("endpoint", &self.prepared)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
