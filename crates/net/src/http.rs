//! The transport over HTTP: one exchange, from a body to a reply.
//!
//! Takes a connection from `pool`, sends, reads the answer and tells how long
//! each phase took. Repeats an exchange at most
//! once, and only when its first connection certainly did not process it; any
//! other retry is for the caller, which knows what the call does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;
use wellhead_transport::{
    Exchange, ExchangeFuture, MemoryBudget, Rest, Sent, Timing, Transport, TransportError,
    TransportErrorKind, WireReply,
};

use crate::body::{BodyLimits, Received, receive};
use crate::connect::Connector;
use crate::detect::LearntProtocol;
use crate::dial::{Dialer, Resolver, TlsClient};
use crate::endpoint::{Endpoint, EndpointError, Prepared, Purpose};
use crate::h2::H2Connection;
use crate::head::AnswerHead;
use crate::incoming::{Incoming, Remainder, close_reason};
use crate::journal::ExchangeTimeline;
use crate::outgoing::OutgoingCall;
use crate::pool::{Choice, Grant, Lease, Pool};
use crate::protocol::Protocol;
use crate::settings::ClientSettings;
use crate::stats::ConnectionStats;

/// What the workers' transports of one upstream have in common.
#[derive(Debug, Clone)]
pub struct TransportResources {
    /// Names and their addresses; one for the whole process.
    pub resolver: Arc<Resolver>,
    /// TLS settings and session tickets; one for the whole process.
    pub tls: Arc<TlsClient>,
    /// The protocol the upstream speaks; one per upstream.
    pub learnt: Arc<LearntProtocol>,
    /// Counters; one per upstream.
    pub stats: Arc<ConnectionStats>,
    /// Where answers are counted while they are held; one for the whole process.
    pub answers: Arc<MemoryBudget>,
}

impl TransportResources {
    /// Those of an upstream of which nothing is known yet, which counts its answers by itself.
    pub fn new(resolver: Arc<Resolver>, tls: Arc<TlsClient>) -> Self {
        let (learnt, stats, answers) = (Arc::default(), Arc::default(), Arc::default());
        Self { resolver, tls, learnt, stats, answers }
    }
}

/// HTTP/1.1 and HTTP/2 to one upstream, for one worker thread.
///
/// Must be used within a tokio runtime, where it runs its connections as tasks.
/// The deadline of an exchange bounds its wait for a connection; from then on
/// the caller bounds it, by dropping the future. A clone shares the pool.
#[derive(Clone)]
pub struct HttpTransport {
    prepared: Arc<Prepared>,
    pool: Arc<Pool>,
    stats: Arc<ConnectionStats>,
    learnt: Arc<LearntProtocol>,
    answers: Arc<MemoryBudget>,
    answer_bytes_max: usize,
    resend: bool,
    propagate_trace: bool,
}

impl HttpTransport {
    /// Checks `endpoint`; opens no connection yet.
    ///
    /// `seed` spreads the ages of connections and the order of addresses: give
    /// each worker its own.
    pub fn new(
        endpoint: &Endpoint,
        settings: ClientSettings,
        shared: TransportResources,
        seed: u64,
    ) -> Result<Self, EndpointError> {
        let purpose = Purpose::Calls { compression: settings.compression };
        let prepared = Prepared::new(endpoint, purpose)?;
        let TransportResources { resolver, tls, learnt, stats, answers } = shared;
        let dialer = Dialer::new(&prepared, resolver, &tls, seed as usize);
        let connector = Connector::new(
            dialer,
            &prepared,
            Arc::clone(&learnt),
            Arc::clone(&stats),
            settings.clone(),
            seed,
        );
        let ClientSettings { answer_bytes_max, resend, propagate_trace, .. } = settings;
        let pool = Pool::new(connector, settings, Arc::clone(&stats));
        let prepared = Arc::new(prepared);
        Ok(Self {
            prepared,
            pool,
            stats,
            learnt,
            answers,
            answer_bytes_max,
            resend,
            propagate_trace,
        })
    }

    /// Counters of this upstream's connections, over all workers.
    pub fn stats(&self) -> &Arc<ConnectionStats> {
        &self.stats
    }

    /// The protocol that the upstream was found to speak.
    pub fn protocol(&self) -> Option<Protocol> {
        self.learnt.protocol()
    }

    /// As [`Transport::exchange`], and fills in what the exchange meets, as far as it came when
    /// it failed or is dropped. Tells more where connections are noted in a
    /// [`Journal`](crate::Journal).
    ///
    /// # Errors
    ///
    /// As [`Transport::exchange`].
    pub async fn exchange_told(
        &self,
        exchange: Exchange,
        passage: &mut ExchangeTimeline,
    ) -> Result<WireReply, TransportError> {
        self.run(exchange, Some(passage)).await
    }

    /// One attempt, and a second one if the first was certainly not processed.
    async fn run(
        &self,
        exchange: Exchange,
        mut passage: Option<&mut ExchangeTimeline>,
    ) -> Result<WireReply, TransportError> {
        let Exchange { body, deadline, whole_max, bulky, trace } = exchange;
        let outgoing = OutgoingCall { body, trace: trace.filter(|_| self.propagate_trace) };
        let started = Instant::now();
        let deadline = Instant::from_std(deadline);
        if deadline <= started {
            let detail = "the deadline had passed before the start";
            return Err(TransportError::new(TransportErrorKind::Timeout, Sent::No, detail));
        }
        let limits = BodyLimits { whole_max, answer_bytes_max: self.answer_bytes_max };
        let bulky = bulky.then(|| self.pool.enter_bulky());
        let is_bulky = bulky.is_some();
        let mut grant = self.pool.acquire(Choice::Any, started, deadline).await?;
        grant.lease.carries(bulky);
        let (error, retry) =
            match self.attempt(grant, &outgoing, started, limits, passage.as_deref_mut()).await {
                Ok(reply) => return Ok(reply),
                Err((error, _)) if !self.resend => return Err(error),
                Err(failed) => failed,
            };
        let choice = match &retry {
            Retry::No => return Err(error),
            Retry::NotIdle => Choice::NotIdle,
            Retry::NotOn(refused) => Choice::NotThis(refused),
        };
        self.stats.resent.fetch_add(1, Relaxed);
        let bulky = is_bulky.then(|| self.pool.enter_bulky());
        let mut grant = self.pool.acquire(choice, Instant::now(), deadline).await?;
        grant.lease.carries(bulky);
        self.attempt(grant, &outgoing, started, limits, passage).await.map_err(|(error, _)| error)
    }

    async fn attempt(
        &self,
        Grant { lease, connect, at: sent_at }: Grant,
        outgoing: &OutgoingCall,
        started: Instant,
        limits: BodyLimits,
        mut passage: Option<&mut ExchangeTimeline>,
    ) -> Result<WireReply, (TransportError, Retry)> {
        let waited = sent_at - started;
        let (mut incoming, head, reused) = match lease {
            Lease::H1(mut lease) => {
                let connection = lease.connection();
                let reused = connection.reused;
                if let Some(passage) = passage.as_deref_mut() {
                    connection.board(passage, waited);
                }
                match connection.exchange(&self.prepared, outgoing, sent_at).await {
                    Ok(head) => {
                        if let Some(passage) = passage {
                            connection.arrive(passage, sent_at, head.at);
                        }
                        (Incoming::H1(lease), head, reused)
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
                let wanted = limits.wanted();
                let passage = passage.map(|passage| {
                    connection.board(passage, waited);
                    (passage, sent_at)
                });
                let exchanged =
                    connection.exchange(&self.prepared, outgoing.clone(), wanted, passage);
                match exchanged.await {
                    Ok((head, stream)) => {
                        (Incoming::H2 { stream, _lease: lease }, head, connect.is_zero())
                    }
                    Err(error) if error.sent == Sent::No => {
                        return Err((error, Retry::NotOn(Arc::clone(connection))));
                    }
                    Err(error) => return Err((error, Retry::No)),
                }
            }
        };
        let came_whole = incoming.has_arrived();
        let received = match receive(&mut incoming, head.body, limits, &self.answers).await {
            Ok(received) => received,
            Err(error) => {
                incoming.fail(error.kind);
                return Err((error, Retry::No));
            }
        };
        let done = if came_whole { head.at } else { Instant::now() };
        // A connection opened for another exchange may be older than the wait.
        let connect = connect.min(waited);
        let timing = Timing {
            queued: waited - connect,
            connect,
            first_byte: head.at - sent_at,
            total: done - started,
            reused,
        };
        Ok(reply(&head, received, incoming, timing, done))
    }
}

/// The reply; what was not read of its body comes as its rest, together with the connection.
fn reply(
    head: &AnswerHead,
    Received { body, more }: Received,
    incoming: Incoming,
    timing: Timing,
    done: Instant,
) -> WireReply {
    let rest: Option<Box<dyn Rest>> = match more {
        Some(decoding) => Some(Box::new(Remainder::new(incoming, decoding))),
        None => {
            incoming.finish(done);
            None
        }
    };
    WireReply { status: head.status, retry_after: head.retry_after, body, rest, timing }
}

impl Transport for HttpTransport {
    fn is_told_of_traces(&self) -> bool {
        self.propagate_trace
    }

    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_> {
        Box::pin(self.run(exchange, None))
    }

    fn has_room(&self, bulky: bool) -> bool {
        self.pool.has_room(bulky)
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

/// Whether a failed attempt is worth repeating here.
#[derive(Debug)]
enum Retry {
    No,
    NotIdle,
    NotOn(Arc<H2Connection>),
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::dial::TrustedRoots;
    use wellhead_telemetry::SecretUrl;

    #[test]
    fn an_exchange_stays_small() {
        let endpoint = Endpoint::new(SecretUrl::parse("http://localhost/").expect("a URL"));
        let shared = TransportResources {
            resolver: Arc::default(),
            tls: Arc::new(TlsClient::new(TrustedRoots::Public).expect("a TLS client")),
            learnt: Arc::default(),
            stats: Arc::default(),
            answers: Arc::default(),
        };
        let transport = HttpTransport::new(&endpoint, ClientSettings::default(), shared, 1);
        let transport = transport.expect("a good endpoint");
        let now = Instant::now().into_std();
        let exchange = Exchange {
            body: Bytes::new(),
            deadline: now,
            whole_max: usize::MAX,
            bulky: false,
            trace: None,
        };
        // Allocated and initialised per attempt: what is held across awaits costs time.
        let size = size_of_val(&transport.run(exchange, None));
        assert!(size <= 2200, "{size} bytes");
    }
}
