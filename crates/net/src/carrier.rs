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
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wellhead_jsonrpc::Span;
use wellhead_transport::{
    Ceiling, Exchange, ExchangeFuture, FREE_BYTES, Sent, Shortage, Timing, Transport,
    TransportError, TransportErrorKind, WireReply,
};

use crate::endpoint::{Endpoint, EndpointError};
use crate::http::{HttpTransport, TransportResources};
use crate::settings::ClientSettings;
use crate::stats::ConnectionStats;
use crate::ws::{FeedSettings, WsClient};
use ws_mux::own_id;
use ws_pool::{Refused, WsPool};

/// WebSocket and HTTP to one upstream, for one worker thread.
///
/// Must be used within a tokio runtime, where it runs its connections as tasks. The
/// deadline of an exchange bounds its wait for a connection; from then on the caller
/// bounds it, by dropping the future. A clone shares the connections.
#[derive(Clone)]
pub struct WsTransport {
    pool: Arc<WsPool>,
    http: HttpTransport,
    stats: Arc<ConnectionStats>,
    answers: Arc<Ceiling>,
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
        let feed = FeedSettings {
            connect_timeout: settings.connect_timeout,
            message_bytes_max: settings.answer_bytes_max,
            ..FeedSettings::default()
        };
        let TransportResources { resolver, tls, stats, answers, .. } = shared;
        let client = WsClient::new(endpoint, feed, resolver, &tls)?;
        let pool = WsPool::new(client, settings, Arc::clone(&stats), seed);
        Ok(Self { pool, http, stats, answers })
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
            Err(error) if error.sent == Sent::No => {
                drop(place);
                self.stats.note_resent();
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
    /// there is no room for it: beyond the ceiling there is one a connection at most.
    fn counted(&self, body: Bytes) -> Result<Bytes, TransportError> {
        if body.len() <= FREE_BYTES {
            return Ok(body);
        }
        let Some(share) = self.answers.try_hold(body.len()) else {
            self.answers.note(Shortage::Refused);
            return Err(TransportError::new(TransportErrorKind::NoRoom, Sent::Maybe, ""));
        };
        Ok(share.around(body))
    }

    /// The other way, for a call that waited for a socket since `started`.
    async fn by_http(
        &self,
        exchange: Exchange,
        started: Instant,
    ) -> Result<WireReply, TransportError> {
        let waited = started.elapsed();
        let mut reply = self.http.exchange(exchange).await?;
        reply.timing.queued += waited;
        reply.timing.total += waited;
        Ok(reply)
    }
}

impl Transport for WsTransport {
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_> {
        if exchange.bulky {
            return self.http.exchange(exchange);
        }
        match own_id(&exchange.body) {
            Some(own) => Box::pin(self.run(exchange, own)),
            None => self.http.exchange(exchange),
        }
    }

    fn has_room(&self, bulky: bool) -> bool {
        match self.pool.free_places() {
            Some(free) if !bulky => free > 0,
            Some(_) | None => self.http.has_room(bulky),
        }
    }
}

impl fmt::Debug for WsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WsTransport").field("http", &self.http).finish_non_exhaustive()
    }
}
