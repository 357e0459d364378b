//! The link to Redis: how it is made and proven, when it ends, and the pause between.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisResult, Value,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use wellhead_telemetry::SecretUrl;

use super::SharedCore;
use super::breaker::Breaker;
use crate::reconnect::{KeptConnection, LinkEnd};
use crate::stats::State;

/// Pings in a row, each within `get_within`, that a new link has to answer.
const PROOF: usize = 3;

/// How many times longer than a get a ping may take before the link is given up.
const PING_PATIENCE: u32 = 10;

/// Two connections that were well when it began.
pub(super) struct Link {
    pub(super) reads: MultiplexedConnection,
    pub(super) writes: MultiplexedConnection,
    pub(super) health: LinkHealth,
}

/// Whether a link is of use: it ends when calls failed too often, or for a reason that is told.
#[derive(Default)]
pub(crate) struct LinkHealth {
    breaker: Breaker,
    /// Why it is over; the first reason stays.
    over: OnceLock<&'static str>,
    ended: Notify,
}

impl LinkHealth {
    /// A call was answered well.
    pub(crate) fn answered(&self) {
        self.breaker.answered();
    }

    /// A call failed for this reason; the link ends if that was one too many.
    pub(crate) fn failed(&self, reason: &'static str) {
        if self.breaker.failed() {
            self.end(reason);
        }
    }

    /// Ends the link: the keeper takes it away.
    pub(crate) fn end(&self, reason: &'static str) {
        if self.over.set(reason).is_ok() {
            self.ended.notify_one();
        }
    }

    /// Whether it was found to be over.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get().is_some()
    }

    /// Looks at this connection of the link each `ping_every` until the link is over; returns why it is.
    pub(crate) async fn watch(
        &self,
        mut connection: MultiplexedConnection,
        ping_every: Duration,
        within: Duration,
    ) -> &'static str {
        loop {
            tokio::select! {
                () = self.ended.notified() => return self.over.get().copied().unwrap_or_default(),
                () = sleep(ping_every) => {}
            }
            if let Err(reason) = ping(&mut connection, within).await {
                self.end(reason);
            }
        }
    }
}

/// What makes connections. The error may quote the URL.
pub(crate) fn client(url: &SecretUrl) -> RedisResult<Client> {
    Client::open(place(url)?)
}

/// As [`client`], for connections on which messages are pushed: RESP3, a Redis from 6 on.
pub(crate) fn subscriber(url: &SecretUrl) -> RedisResult<Client> {
    let place = place(url)?;
    let settings = place.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Client::open(place.set_redis_settings(settings))
}

fn place(url: &SecretUrl) -> RedisResult<ConnectionInfo> {
    // Without this, a get would wait for the answer to the one before it.
    let tcp = TcpSettings::default().set_nodelay(true);
    Ok(url.expose().as_str().into_connection_info()?.set_tcp_settings(tcp))
}

/// Opens links, checks and closes them.
pub(super) struct Keeper {
    pub(super) inner: Arc<SharedCore>,
    pub(super) client: Client,
    /// Prints without its secrets.
    pub(super) place: SecretUrl,
}

impl KeptConnection for Keeper {
    async fn serve(&mut self) -> Result<LinkEnd, &'static str> {
        let link = Arc::new(self.link().await?);
        let since = Instant::now();
        let reason = self.watch(link).await;
        Ok(LinkEnd { since, reason })
    }

    fn log_away(&self, reason: &'static str) {
        warn!(redis = %self.place, reason, "the shared store is down: answers are served without");
    }
}

impl Keeper {
    /// Makes a link and proves that it is quick.
    async fn link(&self) -> Result<Link, &'static str> {
        let bounds = &self.inner.bounds;
        let config = AsyncConnectionConfig::new().set_pipeline_buffer_size(bounds.gets_max.max(1));
        let connect = || Box::pin(connect(&self.client, &config, bounds.connect_within));
        let mut reads = connect().await?;
        let writes = connect().await?;
        prove(&mut reads, bounds.get_within).await?;
        Ok(Link { reads, writes, health: LinkHealth::default() })
    }

    /// Lets a link be used until it is over; returns why it is.
    async fn watch(&self, link: Arc<Link>) -> &'static str {
        let bounds = &self.inner.bounds;
        self.inner.link.store(Some(Arc::clone(&link)));
        if self.turn(State::Up) {
            info!(redis = %self.place, "the shared store is up");
        }
        let patience = bounds.get_within.saturating_mul(PING_PATIENCE);
        let reason = link.health.watch(link.reads.clone(), bounds.ping_every, patience).await;
        self.inner.link.store(None);
        self.turn(State::Down);
        reason
    }

    fn turn(&self, state: State) -> bool {
        self.inner.counters.turn(state, (self.inner.clock)())
    }
}

/// A connection, logged in, or why there is none.
pub(crate) async fn connect(
    client: &Client,
    config: &AsyncConnectionConfig,
    within: Duration,
) -> Result<MultiplexedConnection, &'static str> {
    // Each command of ours has a limit of its own, and logging in has this one's.
    let config = config.clone().set_connection_timeout(Some(within)).set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    match timeout(within, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(why)) if why.kind() == redis::ErrorKind::AuthenticationFailed => {
            Err("Redis refuses the password")
        }
        Ok(Err(_)) => Err("it cannot be connected to"),
        Err(_) => Err("connecting takes too long"),
    }
}

/// Pings in a row, each within the time, that show a new connection to be quick.
pub(crate) async fn prove(
    connection: &mut MultiplexedConnection,
    within: Duration,
) -> Result<(), &'static str> {
    for _ in 0..PROOF {
        ping(connection, within).await?;
    }
    Ok(())
}

pub(crate) async fn ping(
    connection: &mut MultiplexedConnection,
    within: Duration,
) -> Result<(), &'static str> {
    match timeout(within, connection.send_packed_command(&redis::cmd("PING"))).await {
        Ok(Ok(Value::SimpleString(pong))) if pong == "PONG" => Ok(()),
        // It loads its data, wants a password, or is no Redis.
        Ok(Ok(_)) => Err("it answers a ping with an error"),
        Ok(Err(why)) if why.is_unrecoverable_error() => Err("the connection broke"),
        Ok(Err(_)) => Err("it answers a ping with an error"),
        Err(_) => Err("it answers a ping too late"),
    }
}
