//! Plain calls over a few WebSocket connections instead of HTTP, many at a time.
//!
//! HTTP costs a head each way, and with HTTP/1.1 a connection per call under way. Here a
//! call is one message and its answer another one: calls that come together leave with one
//! system call, and what is answered together is read with one. From outside in: this file
//! chooses between the sockets and HTTP, `ws_pool` the connection, `socket` runs one, `ws_mux`
//! knows whose each message is.
//!
//! Every call gets a number of its connection in place of its id, and its answer the id
//! again: both are copied once, so that a message never pins the buffer it was read to.
//! Only the outermost id is looked for (`wellhead_jsonrpc::scan_id`), which is at the
//! beginning of nearly every message.
//!
//! | | sockets | HTTP |
//! |---|---|---|
//! | a single call | yes | while no socket can be opened, or one ended before the call was written |
//! | a batch; logs and traces ([`Exchange::bulky`]) | no: nothing on a socket can flow or be given up, and one long answer holds up all others | yes |
//!
//! An upstream may have WebSocket alone ([`WsTransport::alone`]). Then all goes over sockets: the calls of a batch
//! as single ones, a few at a time, whose answers are put together; a call fails while no socket can be opened.
//!
//! What is bounded: connections, calls on each (those given up count until they are
//! answered), calls that wait for room, the size of an answer (a socket that brings a
//! longer one is closed, because its call cannot be identified), the time without a word from the
//! peer, the pause between attempts to connect. At a bound a call fails, or goes by HTTP.
//!
//! Not promised: that a call which was given up stops at the upstream. WebSocket has no
//! word for that.

mod socket;
#[cfg(test)]
mod tests;
mod ws_mux;
mod ws_pool;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::time::Instant;
use wellhead_jsonrpc::{Span, raw};
use wellhead_transport::{
    Exchange, ExchangeFuture, FREE_BYTES, MemoryBudget, Sent, Shortage, Timing, Transport,
    TransportError, TransportErrorKind, WireReply,
};

use crate::endpoint::{Endpoint, EndpointError};
use crate::http::{HttpTransport, TransportResources};
use crate::settings::ClientSettings;
use crate::stats::ConnectionStats;
use crate::ws::{FeedSettings, WsClient};
use ws_mux::own_id;
use ws_pool::{Refused, WsPool};

/// Calls of a batch that are on their way at one time where there is no HTTP: one batch does not take all places of
/// the sockets.
const BATCH_AT_ONCE: usize = 16;

/// WebSocket and HTTP to one upstream, for one worker thread.
///
/// Must be used within a tokio runtime, where it runs its connections as tasks. The
/// deadline of an exchange bounds its wait for a connection; from then on the caller
/// bounds it, by dropping the future. A clone shares the connections.
#[derive(Clone)]
pub struct WsTransport {
    pool: Arc<WsPool>,
    /// `None` where the upstream has WebSocket alone.
    http: Option<HttpTransport>,
    stats: Arc<ConnectionStats>,
    answers: Arc<MemoryBudget>,
}

impl WsTransport {
    /// Checks `endpoint`, whose scheme must be `ws` or `wss`; opens nothing yet. What does
    /// not go over WebSocket goes over `http`.
    ///
    /// `seed` spreads the ages of connections and the pauses: give each worker its own.
    pub fn new(
        endpoint: &Endpoint,
        settings: ClientSettings,
        shared: TransportResources,
        http: HttpTransport,
        seed: u64,
    ) -> Result<Self, EndpointError> {
        let alone = Self::alone(endpoint, settings, shared, seed)?;
        Ok(Self { http: Some(http), ..alone })
    }

    /// As [`WsTransport::new`], for an upstream without HTTP.
    pub fn alone(
        endpoint: &Endpoint,
        settings: ClientSettings,
        shared: TransportResources,
        seed: u64,
    ) -> Result<Self, EndpointError> {
        let feed = FeedSettings {
            connect_timeout: settings.connect_timeout,
            message_bytes_max: settings.answer_bytes_max,
            ..FeedSettings::default()
        };
        let TransportResources { resolver, tls, stats, answers, .. } = shared;
        let client = WsClient::new(endpoint, feed, resolver, &tls)?;
        let pool = WsPool::new(client, settings, Arc::clone(&stats), seed);
        Ok(Self { pool, http: None, stats, answers })
    }

    async fn run(&self, exchange: Exchange, own: (Span, u64)) -> Result<WireReply, TransportError> {
        let started = Instant::now();
        let deadline = Instant::from_std(exchange.deadline);
        if deadline <= started {
            let detail = "the deadline had passed before the start";
            return Err(TransportError::new(TransportErrorKind::Timeout, Sent::No, detail));
        }
        let place = match self.pool.acquire(started, deadline).await {
            Ok(place) => place,
            Err(Refused::Full(error)) => return Err(error),
            Err(Refused::Down) => return self.by_http(exchange, started).await,
        };
        let sent_at = Instant::now();
        let answer = match place.socket().call(&exchange.body, own, sent_at).await {
            Ok(answer) => answer,
            Err(error) if error.sent == Sent::No && self.http.is_some() => {
                drop(place);
                self.stats.resent.fetch_add(1, Relaxed);
                return self.by_http(exchange, started).await;
            }
            Err(error) => return Err(error),
        };
        let queued = sent_at - started;
        let timing = Timing {
            queued,
            connect: Duration::ZERO,
            first_byte: answer.at - sent_at,
            total: answer.at - started,
            reused: queued.is_zero(),
        };
        let body = self.counted(answer.body)?;
        Ok(WireReply::whole(200, body, timing).shortened(exchange.whole_max))
    }

    /// A message cannot be read in part, so it is counted when it is there, and given up when
    /// there is no room for it: beyond the budget there is one a connection at most.
    fn counted(&self, body: Bytes) -> Result<Bytes, TransportError> {
        if body.len() <= FREE_BYTES {
            return Ok(body);
        }
        let Some(reservation) = self.answers.try_hold(body.len()) else {
            self.answers.note(Shortage::Refused);
            return Err(TransportError::new(TransportErrorKind::NoRoom, Sent::Maybe, ""));
        };
        Ok(reservation.around(body))
    }

    /// A batch without HTTP: its calls one by one, a few at a time. The first that fails fails the batch.
    async fn one_by_one(&self, batch: Exchange) -> Result<WireReply, TransportError> {
        let started = Instant::now();
        // A message over WebSocket has no place for a trace.
        let Exchange { body, deadline, whole_max, bulky, trace: _ } = batch;
        let items: Vec<_> = match body.first() {
            Some(b'[') => raw::items(&body).map(|call| body.slice_ref(call)).collect(),
            _ => Vec::new(),
        };
        let calls = items.into_iter().map(|body| async move {
            let Some(own) = own_id(&body) else {
                let detail = "a call without an id of ours";
                return Err(TransportError::new(TransportErrorKind::Protocol, Sent::No, detail));
            };
            let trace = None;
            self.run(Exchange { body, deadline, whole_max: usize::MAX, bulky, trace }, own).await
        });
        let answers = futures_util::stream::iter(calls).buffered(BATCH_AT_ONCE);
        let mut answers = std::pin::pin!(answers);
        let (mut text, mut timing) = (vec![b'['], Timing::default());
        while let Some(answer) = answers.next().await {
            // Calls before it may have been sent.
            let answer = answer.map_err(|error| TransportError { sent: Sent::Maybe, ..error })?;
            if text.len() > 1 {
                text.push(b',');
            }
            text.extend_from_slice(&answer.body);
            timing = Timing { total: started.elapsed(), ..answer.timing };
        }
        text.push(b']');
        let body = self.counted(text.into())?;
        Ok(WireReply::whole(200, body, timing).shortened(whole_max))
    }

    /// The other way, for a call that waited for a socket since `started`.
    async fn by_http(
        &self,
        exchange: Exchange,
        started: Instant,
    ) -> Result<WireReply, TransportError> {
        let waited = started.elapsed();
        let Some(http) = &self.http else {
            let detail = "no WebSocket connection can be opened";
            return Err(TransportError::new(TransportErrorKind::Connect, Sent::No, detail));
        };
        let mut reply = http.exchange(exchange).await?;
        reply.timing.queued += waited;
        reply.timing.total += waited;
        Ok(reply)
    }
}

impl Transport for WsTransport {
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_> {
        match (own_id(&exchange.body), &self.http) {
            (_, Some(http)) if exchange.bulky => http.exchange(exchange),
            (Some(own), _) => Box::pin(self.run(exchange, own)),
            (None, Some(http)) => http.exchange(exchange),
            (None, None) => Box::pin(self.one_by_one(exchange)),
        }
    }

    fn has_room(&self, bulky: bool) -> bool {
        match (self.pool.free_places(), &self.http) {
            (Some(free), http) if !bulky || http.is_none() => free > 0,
            (_, Some(http)) => http.has_room(bulky),
            // There is no way now, which the call is to find out.
            (_, None) => true,
        }
    }

    fn is_told_of_traces(&self) -> bool {
        self.http.as_ref().is_some_and(Transport::is_told_of_traces)
    }
}

impl fmt::Debug for WsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WsTransport").field("http", &self.http).finish_non_exhaustive()
    }
}
