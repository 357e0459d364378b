//! The transport over HTTP: one exchange, from a body to a reply.
//!
//! Takes a connection from `pool`, sends, reads the whole answer within the
//! deadline and tells how long each phase took. Repeats an exchange at most
//! once, and only when its first connection certainly did not process it; any
//! other retry is for the caller, who knows what the call does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use wellhead_transport::{
    Exchange, ExchangeFuture, Sent, Timing, Transport, TransportError, TransportErrorKind,
    WireReply,
};

use crate::connect::Connector;
use crate::detect::Learnt;
use crate::dial::{Dialer, Resolver, TlsClient};
use crate::endpoint::{Endpoint, EndpointError, Prepared, Purpose};
use crate::h2::H2Connection;
use crate::pool::{Choice, Grant, Lease, Pool};
use crate::settings::ClientSettings;
use crate::stats::{CloseReason, ConnectionStats, Protocol};

/// What the workers' transports of one upstream have in common.
#[derive(Debug, Clone)]
pub struct Shared {
    /// Names and their addresses; one for the whole process.
    pub resolver: Arc<Resolver>,
    /// TLS settings and session tickets; one for the whole process.
    pub tls: Arc<TlsClient>,
    /// The protocol the upstream speaks; one per upstream.
    pub learnt: Arc<Learnt>,
    /// Counters; one per upstream.
    pub stats: Arc<ConnectionStats>,
}

/// HTTP/1.1 and HTTP/2 to one upstream, for one worker thread.
///
/// Must be used within a tokio runtime, where it runs its connections as tasks.
/// Enforces the deadline of an exchange itself. A clone shares the pool.
#[derive(Clone)]
pub struct HttpTransport {
    prepared: Arc<Prepared>,
    pool: Arc<Pool>,
    stats: Arc<ConnectionStats>,
    learnt: Arc<Learnt>,
    answer_bytes_max: usize,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
    /// When its head had arrived.
    pub(crate) head_at: Instant,
}

impl HttpTransport {
    /// Checks `endpoint`; opens no connection yet.
    ///
    /// `seed` spreads the ages of connections and the order of addresses: give
    /// each worker its own.
    pub fn new(
        endpoint: &Endpoint,
        settings: ClientSettings,
        shared: Shared,
        seed: u64,
    ) -> Result<Self, EndpointError> {
        let purpose = Purpose::Calls { compression: settings.compression };
        let prepared = Prepared::new(endpoint, purpose)?;
        let Shared { resolver, tls, learnt, stats } = shared;
        let dialer = Dialer::new(&prepared, resolver, &tls, seed as usize);
        let connector = Connector::new(
            dialer,
            &prepared,
            Arc::clone(&learnt),
            Arc::clone(&stats),
            settings.clone(),
            seed,
        );
        let answer_bytes_max = settings.answer_bytes_max;
        let pool = Pool::new(connector, settings, Arc::clone(&stats));
        Ok(Self { prepared: Arc::new(prepared), pool, stats, learnt, answer_bytes_max })
    }

    /// Counters of this upstream's connections, over all workers.
    pub fn stats(&self) -> &Arc<ConnectionStats> {
        &self.stats
    }

    /// The protocol that the upstream was found to speak.
    pub fn protocol(&self) -> Option<Protocol> {
        self.learnt.protocol()
    }

    async fn run(&self, exchange: Exchange) -> Result<WireReply, TransportError> {
        let started = Instant::now();
        let deadline = Instant::from_std(exchange.deadline);
        if deadline <= started {
            return Err(late(Sent::No, "the deadline had passed before the start"));
        }
        let mut progress = Progress { sent: Sent::No, phase: Phase::Waiting };
        match timeout_at(deadline, self.attempts(exchange.body, started, &mut progress)).await {
            Ok(result) => result,
            Err(_) => Err(late(progress.sent, progress.phase.phrase())),
        }
    }

    /// One attempt, and a second one if the first was certainly not processed.
    async fn attempts(
        &self,
        body: Bytes,
        started: Instant,
        progress: &mut Progress,
    ) -> Result<WireReply, TransportError> {
        let grant = self.pool.acquire(Choice::Any, started).await?;
        let (error, retry) = match self.attempt(grant, body.clone(), started, progress).await {
            Ok(reply) => return Ok(reply),
            Err(failed) => failed,
        };
        let choice = match &retry {
            Retry::No => return Err(error),
            Retry::NotIdle => Choice::NotIdle,
            Retry::NotOn(refused) => Choice::NotThis(refused),
        };
        self.stats.note_resent();
        progress.phase = Phase::Waiting;
        let grant = self.pool.acquire(choice, Instant::now()).await?;
        self.attempt(grant, body, started, progress).await.map_err(|(error, _)| error)
    }

    async fn attempt(
        &self,
        Grant { lease, connect }: Grant,
        body: Bytes,
        started: Instant,
        progress: &mut Progress,
    ) -> Result<WireReply, (TransportError, Retry)> {
        // Without a wait nothing happened since the start: one clock reading saved.
        let sent_at = if progress.phase == Phase::Waiting { Instant::now() } else { started };
        progress.phase = Phase::Answering;
        let (answer, reused) = match lease {
            Lease::H1(mut lease) => {
                let connection = lease.connection();
                let reused = connection.reused;
                let exchange = connection.exchange(
                    &self.prepared,
                    body,
                    self.answer_bytes_max,
                    &mut progress.sent,
                );
                match exchange.await {
                    Ok(answer) => {
                        let done = Instant::now();
                        lease.finish(done);
                        return Ok(reply(answer, started, sent_at, connect, reused, done));
                    }
                    Err(error) => {
                        lease.discard(close_reason(error.kind));
                        let stale = reused && error.sent == Sent::No;
                        return Err((error, if stale { Retry::NotIdle } else { Retry::No }));
                    }
                }
            }
            Lease::H2(lease) => {
                let connection = lease.connection();
                let exchange = connection.exchange(
                    &self.prepared,
                    body,
                    self.answer_bytes_max,
                    &mut progress.sent,
                );
                match exchange.await {
                    Ok(answer) => (answer, connect.is_zero()),
                    Err(error) if error.sent == Sent::No => {
                        return Err((error, Retry::NotOn(Arc::clone(connection))));
                    }
                    Err(error) => return Err((error, Retry::No)),
                }
            }
        };
        Ok(reply(answer, started, sent_at, connect, reused, Instant::now()))
    }
}

impl Transport for HttpTransport {
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_> {
        Box::pin(self.run(exchange))
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport")
            .field("endpoint", &self.prepared)
            .field("protocol", &self.protocol())
            .finish_non_exhaustive()
    }
}

/// How far an exchange came, for the one who ends it at the deadline.
#[derive(Debug)]
struct Progress {
    sent: Sent,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Answering,
}

impl Phase {
    fn phrase(self) -> &'static str {
        match self {
            Self::Waiting => "while waiting for a connection",
            Self::Answering => "while waiting for the answer",
        }
    }
}

/// Whether a failed attempt is worth repeating here.
#[derive(Debug)]
enum Retry {
    No,
    NotIdle,
    NotOn(Arc<H2Connection>),
}

fn late(sent: Sent, detail: &str) -> TransportError {
    TransportError::new(TransportErrorKind::Timeout, sent, detail)
}

fn close_reason(kind: TransportErrorKind) -> CloseReason {
    match kind {
        TransportErrorKind::Protocol | TransportErrorKind::TooLarge => CloseReason::BadAnswer,
        TransportErrorKind::Dns
        | TransportErrorKind::Connect
        | TransportErrorKind::Tls
        | TransportErrorKind::ConnectTimeout
        | TransportErrorKind::Timeout
        | TransportErrorKind::Closed
        | TransportErrorKind::Truncated
        | TransportErrorKind::PoolFull => CloseReason::Peer,
    }
}

fn reply(
    answer: Answer,
    started: Instant,
    sent_at: Instant,
    connect: Duration,
    reused: bool,
    done: Instant,
) -> WireReply {
    let waited = sent_at - started;
    // A connection opened for someone else may be older than the wait.
    let connect = connect.min(waited);
    let timing = Timing {
        queued: waited - connect,
        connect,
        first_byte: answer.head_at - sent_at,
        total: done - started,
        reused,
    };
    WireReply::whole(answer.status, answer.body, timing).with_retry_after(answer.retry_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wellhead_telemetry::SecretUrl;

    #[test]
    fn an_exchange_stays_small() {
        let endpoint = Endpoint::new(SecretUrl::parse("http://localhost/").expect("a URL"));
        let shared = Shared {
            resolver: Arc::default(),
            tls: Arc::new(TlsClient::new(None).expect("a TLS client")),
            learnt: Arc::default(),
            stats: Arc::default(),
        };
        let transport = HttpTransport::new(&endpoint, ClientSettings::default(), shared, 1);
        let transport = transport.expect("a good endpoint");
        let now = Instant::now().into_std();
        let exchange = Exchange { body: Bytes::new(), deadline: now, whole_max: usize::MAX };
        // Allocated and initialised per attempt: what is held across awaits costs time.
        let size = size_of_val(&transport.run(exchange));
        assert!(size <= 2200, "{size} bytes");
    }
}
