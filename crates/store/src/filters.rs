//! Filters of clients that all replicas poll: a name, a stamp, and bytes that mean nothing here.
//!
//! In the store a filter is the hash `wh:{cluster}:filter:NAME`. It has the stamp of its last write, and a write
//! names the stamp that it replaces: of two replicas that poll at once the second one is told that it was. A filter
//! that is not looked at for [`FilterStoreBounds::keep`] ends there. One that was removed leaves a mark for as long,
//! so that no replica puts its copy back.
//!
//! A look also counts how many polls in a row this replica made. While the store is away, a replica can tell by that
//! whether its copy is likely to be the newest.
//!
//! One task keeps the link, as that of the shared tier does: while there is none, each call fails at once. A call
//! that is dropped may have been carried out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use rand::Rng;
use rand::rngs::SmallRng;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Value};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};
use wellhead_limit::Permits;
use wellhead_telemetry::SecretUrl;

use crate::reconnect::{self, KeptConnection, LinkEnd, Reconnect};
use crate::shared::link::{self, LinkHealth};
use crate::{AbortOnDrop, NotRedis};

/// What shared filters may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterStoreBounds {
    /// What the replicas have in common. No braces.
    pub cluster: String,
    /// How long connecting and each answer may take.
    pub answer_within: Duration,
    /// How long a filter is kept that no replica looks at.
    pub keep: Duration,
    /// Bytes of a filter; larger ones are refused.
    pub value_bytes_max: usize,
    /// Calls under way at once; a further one fails at once.
    pub calls_max: usize,
    /// How often the link is looked at.
    pub ping_every: Duration,
    /// The pause after the first failure to connect; it doubles with each.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for FilterStoreBounds {
    fn default() -> Self {
        Self {
            cluster: "wellhead".to_owned(),
            answer_within: Duration::from_millis(500),
            keep: Duration::from_secs(300),
            value_bytes_max: 128 << 10,
            calls_max: 1024,
            ping_every: Duration::from_secs(1),
            pause_min: Duration::from_millis(100),
            // Clients that change the replica wait for it.
            pause_max: Duration::from_secs(1),
        }
    }
}

/// Polls in a row at one replica after which it is likely that the next one comes there, too.
const HOME_ROW: u64 = 16;

/// What the store has under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterLookup {
    /// Nothing: it never had it, it ended, or the store lost its data.
    Missing,
    /// It was removed a short while ago.
    Removed,
    /// The filter.
    Found {
        /// Of the last write.
        stamp: u64,
        /// No other replica polled it lately.
        is_home: bool,
        /// The bytes; `None` where the stamp is one of those that the caller named.
        value: Option<Bytes>,
    },
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterWrite {
    /// The store has it.
    Written,
    /// Another replica wrote before.
    Superseded,
    /// The filter was removed a short while ago.
    Removed,
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterStoreError {
    /// The store is away, or refused the call: nothing was done.
    #[error("the store of filters cannot be reached")]
    Away,
    /// It did not answer in time: the call may have been carried out, or may be later.
    #[error("the store of filters did not answer in time")]
    Unanswered,
    /// The value is larger than it may be.
    #[error("the filter is too large to be shared")]
    TooLarge,
}

/// Reads and writes filters; clones share it. The task ends with the last one.
#[derive(Clone)]
pub struct SharedFilters {
    core: Arc<FilterStoreCore>,
    _closer: Arc<AbortOnDrop>,
}

struct FilterStoreCore {
    link: ArcSwapOption<FilterLink>,
    calls: Permits,
    bounds: FilterStoreBounds,
    /// The name of this replica in the store.
    replica: String,
}

struct FilterLink {
    connection: MultiplexedConnection,
    health: LinkHealth,
}

impl SharedFilters {
    /// Begins to look for the store at `url`, in a task of this runtime. Handles may be used on any runtime with
    /// timers.
    ///
    /// `rng` spreads the attempts of replicas and names this one.
    pub fn start(
        url: &SecretUrl,
        bounds: FilterStoreBounds,
        mut rng: SmallRng,
    ) -> Result<Self, NotRedis> {
        let client = link::client(url).map_err(|_| NotRedis)?;
        let core = Arc::new(FilterStoreCore {
            link: ArcSwapOption::empty(),
            calls: Permits::new(bounds.calls_max),
            bounds,
            replica: format!("{:016x}", rng.random::<u64>()),
        });
        let keeper = FilterLinkKeeper { core: Arc::clone(&core), client, place: url.clone() };
        let reconnect = Reconnect::new(core.bounds.pause_min, core.bounds.pause_max);
        Ok(Self { core, _closer: reconnect::keep(keeper, reconnect, rng) })
    }

    /// What the store has under `name`. A filter that is there is kept anew. `known` are stamps whose value the
    /// caller has, at most two.
    pub async fn look(&self, name: &str, known: &[u64]) -> Result<FilterLookup, FilterStoreError> {
        let mut call = self.core.call(name, "look");
        known.iter().for_each(|stamp| _ = call.arg(stamp_text(*stamp)));
        let answer = self.core.send(&call).await?;
        read_lookup(answer).ok_or(FilterStoreError::Away)
    }

    /// Writes a filter under a new stamp, if what the store has under `name` has one of these stamps, at most two,
    /// or is missing.
    pub async fn write(
        &self,
        name: &str,
        value: &str,
        stamp: u64,
        replaces: &[u64],
    ) -> Result<FilterWrite, FilterStoreError> {
        if value.len() > self.core.bounds.value_bytes_max {
            return Err(FilterStoreError::TooLarge);
        }
        let mut call = self.core.call(name, "write");
        call.arg(HOME_ROW).arg(stamp_text(stamp)).arg(value);
        replaces.iter().for_each(|stamp| _ = call.arg(stamp_text(*stamp)));
        match self.core.send(&call).await? {
            Value::Int(1) => Ok(FilterWrite::Written),
            Value::Int(0) => Ok(FilterWrite::Superseded),
            Value::Int(-1) => Ok(FilterWrite::Removed),
            _ => Err(FilterStoreError::Away),
        }
    }

    /// Removes a filter; says whether this call ended it: the store had it, or lost it while the caller had a
    /// copy (`was_here`), as others then may.
    pub async fn remove(&self, name: &str, was_here: bool) -> Result<bool, FilterStoreError> {
        let mut call = self.core.call(name, "remove");
        call.arg(u8::from(was_here));
        match self.core.send(&call).await? {
            Value::Int(removed) => Ok(removed == 1),
            _ => Err(FilterStoreError::Away),
        }
    }
}

impl fmt::Debug for SharedFilters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_here = self.core.link.load().is_some();
        f.debug_struct("SharedFilters").field("is_here", &is_here).finish_non_exhaustive()
    }
}

impl FilterStoreCore {
    /// The begin of a call of the script for the filter of this name.
    fn call(&self, name: &str, act: &str) -> Cmd {
        let mut call = redis::cmd("EVAL");
        call.arg(include_str!("filters/filter.lua")).arg(1);
        call.arg(format!("wh:{{{}}}:filter:{name}", self.bounds.cluster));
        call.arg(act).arg(self.bounds.keep.as_millis() as u64).arg(&*self.replica);
        call
    }

    async fn send(&self, call: &Cmd) -> Result<Value, FilterStoreError> {
        let link = self.link.load_full().filter(|link| !link.health.is_over());
        let link = link.ok_or(FilterStoreError::Away)?;
        let _permit = self.calls.try_acquire().ok_or(FilterStoreError::Away)?;
        let mut connection = link.connection.clone();
        match timeout(self.bounds.answer_within, connection.send_packed_command(call)).await {
            Ok(Ok(Value::ServerError(_))) => Err(FilterStoreError::Away),
            Ok(Ok(value)) => {
                link.health.answered();
                Ok(value)
            }
            Ok(Err(why)) if why.is_unrecoverable_error() => {
                link.health.end("the connection broke");
                Err(FilterStoreError::Unanswered)
            }
            // It is full, read only, or forbids it.
            Ok(Err(_)) => Err(FilterStoreError::Away),
            Err(_) => {
                link.health.failed("it is slow or silent");
                Err(FilterStoreError::Unanswered)
            }
        }
    }
}

fn stamp_text(stamp: u64) -> String {
    format!("{stamp:016x}")
}

fn read_lookup(answer: Value) -> Option<FilterLookup> {
    let Value::Array(items) = answer else { return None };
    let mut items = items.into_iter().map(|item| match item {
        Value::BulkString(text) => Some(text),
        _ => None,
    });
    let Some(stamp) = items.next() else { return Some(FilterLookup::Missing) };
    let stamp = stamp?;
    if stamp == b"removed" {
        return Some(FilterLookup::Removed);
    }
    let stamp = u64::from_str_radix(std::str::from_utf8(&stamp).ok()?, 16).ok()?;
    let row: u64 = std::str::from_utf8(&items.next()??).ok()?.parse().ok()?;
    let value = match items.next() {
        Some(value) => Some(Bytes::from(value?)),
        None => None,
    };
    Some(FilterLookup::Found { stamp, is_home: row >= HOME_ROW, value })
}

/// The task: it connects, and looks whether the link is well.
struct FilterLinkKeeper {
    core: Arc<FilterStoreCore>,
    client: Client,
    /// Prints without its secrets.
    place: SecretUrl,
}

impl KeptConnection for FilterLinkKeeper {
    async fn serve(&mut self) -> Result<LinkEnd, &'static str> {
        let bounds = &self.core.bounds;
        let config = AsyncConnectionConfig::new().set_pipeline_buffer_size(bounds.calls_max.max(1));
        let connecting = link::connect(&self.client, &config, bounds.answer_within);
        let mut connection = Box::pin(connecting).await?;
        link::prove(&mut connection, bounds.answer_within).await?;
        let since = Instant::now();
        let health = LinkHealth::default();
        let link = Arc::new(FilterLink { connection: connection.clone(), health });
        self.core.link.store(Some(Arc::clone(&link)));
        info!(redis = %self.place, "filters of clients are shared");
        let reason = link.health.watch(connection, bounds.ping_every, bounds.answer_within).await;
        self.core.link.store(None);
        Ok(LinkEnd { since, reason })
    }

    fn log_away(&self, reason: &'static str) {
        warn!(redis = %self.place, reason, "filters of clients are not shared: each replica goes on with its own");
    }
}
