//! Why an exchange brought no answer, and whether it may have had an effect.

use std::fmt;

/// Whether the upstream may have seen the request.
///
/// A call that must not run twice is repeated only after [`Sent::No`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Certainly not processed: never written, or the peer said so (HTTP/2
    /// REFUSED_STREAM, a stream above GOAWAY's last id).
    No,
    /// Some of it may have been written: it may have been executed.
    Maybe,
}

/// What went wrong on the way. Its words stand in metrics, the trail and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum TransportErrorKind {
    /// The host name did not resolve.
    Dns,
    /// No TCP connection: refused, unreachable, reset.
    Connect,
    /// The TLS handshake failed: certificate, name, version.
    Tls,
    /// No connection within the connect timeout.
    ConnectTimeout,
    /// The deadline passed with the request under way.
    Timeout,
    /// The connection ended before the first byte of an answer.
    Closed,
    /// The connection ended inside the answer.
    Truncated,
    /// The peer broke HTTP, or sent a body whose encoding cannot be undone.
    Protocol,
    /// The answer is larger than the bound on a buffered answer.
    TooLarge,
    /// Our own pool is full: too many exchanges wait for a connection.
    PoolFull,
    /// Our own memory for answers is full.
    NoRoom,
}

wellhead_word::words!(TransportErrorKind);

/// An exchange that brought no complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportError {
    /// What went wrong.
    pub kind: TransportErrorKind,
    /// Whether the request may have been executed.
    pub sent: Sent,
    /// For a person: what the system said. Must not hold a URL, whose path may be a key.
    pub detail: String,
}

impl TransportError {
    /// Builds an error; `detail` must be free of secrets.
    pub fn new(kind: TransportErrorKind, sent: Sent, detail: impl Into<String>) -> Self {
        Self { kind, sent, detail: detail.into() }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TransportErrorKind::Dns => f.write_str("host name did not resolve")?,
            TransportErrorKind::Connect => f.write_str("could not connect")?,
            TransportErrorKind::Tls => f.write_str("TLS handshake failed")?,
            TransportErrorKind::ConnectTimeout => f.write_str("connecting took too long")?,
            TransportErrorKind::Timeout => f.write_str("no answer in time")?,
            TransportErrorKind::Closed => f.write_str("connection closed before an answer")?,
            TransportErrorKind::Truncated => f.write_str("answer was cut short")?,
            TransportErrorKind::Protocol => f.write_str("answer is not valid HTTP")?,
            TransportErrorKind::TooLarge => f.write_str("answer is larger than allowed")?,
            TransportErrorKind::PoolFull => f.write_str("too many calls wait for a connection")?,
            TransportErrorKind::NoRoom => f.write_str("too many large answers are held")?,
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

impl std::error::Error for TransportError {}
