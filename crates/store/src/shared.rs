//! The tier that replicas share: a Redis or Valkey, used as long as it is quick.
//!
//! One task keeps a proven link: two connections, one for gets and one for puts, so
//! that no get waits behind what is written. While there is no link, a `get` is a miss
//! and a `put` is dropped, both at once. A link ends when the [`breaker`] trips, when a
//! connection breaks or when a ping of the keeper fails; the keeper makes a new
//! one in the background and proves it with pings. No request ever tries whether
//! Redis is back.
//!
//! On one connection gets overtake each other as little as Redis does, so what a get
//! may fetch is bounded: a value of `value_bytes_max`, whatever is stored there.
//! Gets that are under way together are written together by the client; `MGET` would
//! make the first wait for the last.
//!
//! Deliberately absent: Redis Cluster and Sentinel, and trust: anything that can write to
//! this Redis decides what clients get.

pub(crate) mod breaker;
pub(crate) mod link;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use rand::rngs::SmallRng;
use redis::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wellhead_limit::{Held, Permits};
use wellhead_telemetry::SecretUrl;

use self::link::{Keeper, Link};
use crate::reconnect::{self, Reconnect};
use crate::record::{self, FORMAT, HEADER, Unusable};
use crate::stats::{Counters, Snapshot, State};
use crate::{AbortOnDrop, Clock, Digest};

/// What the shared tier may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedBounds {
    /// How long a get may take; past it, it is a miss. Tokio's clock counts whole
    /// milliseconds, so it may be one longer. More than one late get in a hundred, or
    /// five in a row, and Redis is left alone until it is quick again.
    pub get_within: Duration,
    /// Gets under way at once; a further one is a miss at once.
    pub gets_max: usize,
    /// Bytes of a value: larger ones are not put, and not fetched whole.
    pub value_bytes_max: usize,
    /// The longest that a value is kept; those put for longer are kept this long.
    pub ttl_max: Duration,
    /// Values that wait to be written; what does not fit is dropped.
    pub queue_items_max: usize,
    /// Bytes of values that wait to be written; what does not fit is dropped.
    pub queue_bytes_max: usize,
    /// How long a row of puts that are written together may take.
    pub put_within: Duration,
    /// How long connecting may take, logging in included.
    pub connect_within: Duration,
    /// How often a link that seems well is looked at. A ping may take `get_within`
    /// ten times before the link is given up: the callers judge sooner.
    pub ping_every: Duration,
    /// The pause after the first failure to get a link; it doubles with each.
    pub pause_min: Duration,
    /// The longest pause. A link that held longer than this makes the next pause short
    /// again.
    pub pause_max: Duration,
    /// What keys begin with, so that others may use the same Redis.
    pub prefix: String,
}

impl Default for SharedBounds {
    fn default() -> Self {
        Self {
            get_within: Duration::from_millis(2),
            gets_max: 256,
            value_bytes_max: 64 << 10,
            ttl_max: Duration::from_secs(24 * 60 * 60),
            queue_items_max: 4096,
            queue_bytes_max: 16 << 20,
            put_within: Duration::from_secs(1),
            connect_within: Duration::from_secs(1),
            ping_every: Duration::from_secs(1),
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
            prefix: "wellhead".to_owned(),
        }
    }
}

/// The URL is none of a Redis. Does not quote it: it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a usable URL of a Redis, such as `redis://host:6379/0` or `rediss://host`")]
pub struct NotRedis;

/// Values that are written together: at most this many, of `value_bytes_max` each.
const BATCH: usize = 32;

/// A handle on the tier; clones share it. The tasks end with the last one.
#[derive(Clone)]
pub struct SharedTier {
    inner: Arc<SharedCore>,
    jobs: mpsc::Sender<RedisJob>,
    _closer: Arc<AbortOnDrop>,
}

struct SharedCore {
    link: ArcSwapOption<Link>,
    counters: Counters,
    clock: Clock,
    bounds: SharedBounds,
    gets: Permits,
    queued_bytes: Held,
}

enum RedisJob {
    Put { digest: Digest, value: Bytes, put: u64, ttl: Duration },
    Forget(Digest),
}

impl SharedTier {
    /// Begins to look for the Redis at `url`, in tasks of this runtime, and is down
    /// until it was found. Handles may be used on any runtime with timers.
    ///
    /// `clock` tells seconds since 1970; `rng` spreads the attempts of replicas.
    pub fn start(
        url: &SecretUrl,
        bounds: SharedBounds,
        clock: Clock,
        rng: SmallRng,
    ) -> Result<Self, NotRedis> {
        let client = link::client(url).map_err(|_| NotRedis)?;
        let (jobs, queue) = mpsc::channel(bounds.queue_items_max.max(1));
        let inner = Arc::new(SharedCore {
            link: ArcSwapOption::empty(),
            counters: Counters::new(State::Down, clock()),
            clock,
            gets: Permits::new(bounds.gets_max),
            bounds,
            queued_bytes: Held::default(),
        });
        let keeper = Keeper { inner: Arc::clone(&inner), client, place: url.clone() };
        let reconnect = Reconnect::new(inner.bounds.pause_min, inner.bounds.pause_max);
        let closer = reconnect::keep(keeper, reconnect, rng);
        tokio::spawn(deliver(Arc::clone(&inner), queue));
        Ok(Self { inner, jobs, _closer: closer })
    }

    /// The value put under `digest`, by this replica or another, when it is there,
    /// whole, and told in time.
    ///
    /// May be dropped at any moment. Needs tokio's timers.
    pub async fn get(&self, digest: &Digest) -> Option<Bytes> {
        let SharedCore { link, counters, bounds, gets, .. } = &*self.inner;
        let Some(link) = link.load_full().filter(|link| !link.health.is_over()) else {
            counters.down.add(1);
            return None;
        };
        let Some(_permit) = gets.try_acquire() else {
            counters.busy.add(1);
            return None;
        };
        // One byte more than fits tells a value that is too large from a whole one.
        let command = redis::cmd("GETRANGE")
            .arg(bounds.key(digest))
            .arg(0)
            .arg(HEADER + bounds.value_bytes_max)
            .to_owned();
        let mut connection = link.reads.clone();
        match timeout(bounds.get_within, connection.send_packed_command(&command)).await {
            Ok(Ok(Value::BulkString(record))) => {
                link.health.answered();
                return self.found(digest, record);
            }
            Ok(Ok(Value::Nil)) => {
                link.health.answered();
                counters.misses.add(1);
            }
            Ok(Err(why)) if why.is_unrecoverable_error() => {
                counters.errors.add(1);
                link.health.end("the connection broke");
            }
            Ok(Ok(_) | Err(_)) => {
                counters.errors.add(1);
                link.health.failed("Redis answers with errors");
            }
            Err(_) => {
                counters.late.add(1);
                link.health.failed("Redis is slow or silent");
            }
        }
        None
    }

    /// Has the value written some time soon, unless it is too large, too many wait or
    /// Redis is down. Never waits.
    ///
    /// `ttl` is rounded up to whole seconds, and down to `ttl_max`.
    pub fn put(&self, digest: Digest, value: Bytes, ttl: Duration) {
        let SharedCore { link, counters, bounds, queued_bytes, .. } = &*self.inner;
        if value.len() > bounds.value_bytes_max || ttl.is_zero() {
            counters.refused.add(1);
            return;
        }
        let bytes = value.len();
        let job = RedisJob::Put {
            digest,
            value,
            put: (self.inner.clock)(),
            ttl: ttl.min(bounds.ttl_max),
        };
        // What waited for Redis to come back would be old, and in the way of the new.
        let taken = link.load().as_ref().is_some_and(|link| !link.health.is_over())
            && queued_bytes.try_raise(bytes, bounds.queue_bytes_max).is_some()
            && self.jobs.try_send(job).inspect_err(|_| queued_bytes.lower(bytes)).is_ok();
        if !taken {
            counters.dropped.add(1);
        }
    }

    /// What it did so far and how it is.
    pub fn stats(&self) -> Snapshot {
        self.inner.counters.snapshot(None, None)
    }

    fn found(&self, digest: &Digest, record: Vec<u8>) -> Option<Bytes> {
        let SharedCore { counters, bounds, clock, .. } = &*self.inner;
        // Redis does not tell an empty string from none.
        let readable = !record.is_empty() && record.len() <= HEADER + bounds.value_bytes_max;
        if readable {
            match record::check(&record, digest, clock()) {
                Ok(()) => {
                    counters.hits.add(1);
                    return Some(Bytes::from(record).slice(HEADER..));
                }
                Err(Unusable::Expired) => counters.expired.add(1),
                Err(Unusable::Damaged | Unusable::Other) => {
                    counters.damaged.add(1);
                    // If there is no room, the next reader that finds it tries again.
                    let _later = self.jobs.try_send(RedisJob::Forget(*digest));
                }
            }
        }
        counters.misses.add(1);
        None
    }
}

impl fmt::Debug for SharedTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTier").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl SharedBounds {
    fn key(&self, digest: &Digest) -> String {
        format!("{}:{FORMAT}:{digest:?}", self.prefix)
    }
}

/// Writes what was put, row by row, until no handle is left.
async fn deliver(inner: Arc<SharedCore>, mut queue: mpsc::Receiver<RedisJob>) {
    let mut jobs = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut jobs, BATCH).await > 0 {
        let mut row = redis::pipe();
        let (commands, mut puts) = (jobs.len(), 0);
        for job in jobs.drain(..) {
            match job {
                RedisJob::Put { digest, value, put, ttl } => {
                    inner.queued_bytes.lower(value.len());
                    let mut record = Vec::with_capacity(HEADER + value.len());
                    let expires = record::expiry(put, ttl);
                    record::append(&mut record, &digest, &value, put, expires);
                    let seconds = expires.saturating_sub(put);
                    row.cmd("SET").arg(inner.bounds.key(&digest)).arg(record);
                    row.arg("EX").arg(seconds);
                    puts += 1;
                }
                RedisJob::Forget(digest) => {
                    row.cmd("DEL").arg(inner.bounds.key(&digest));
                }
            }
        }
        let written = write(&inner, &row, commands).await;
        inner.counters.written.add(written);
        inner.counters.dropped.add(puts - written);
    }
}

/// Writes a row and returns how many values Redis took: `SET` alone answers `OK`.
async fn write(inner: &SharedCore, row: &redis::Pipeline, commands: usize) -> u64 {
    let Some(link) = inner.link.load_full() else { return 0 };
    let mut connection = link.writes.clone();
    let sent = connection.send_packed_commands(row, 0, commands);
    match timeout(inner.bounds.put_within, sent).await {
        Ok(Ok(answers)) => {
            answers.iter().filter(|answer| matches!(answer, Value::Okay)).count() as u64
        }
        // A Redis that is full, or a replica, takes no values and may still be read.
        Ok(Err(why)) if !why.is_unrecoverable_error() => 0,
        Ok(Err(_)) => {
            link.health.end("the connection broke");
            0
        }
        Err(_) => {
            link.health.end("Redis does not take what is put");
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_has_prefix_format_and_digest() {
        let bounds = SharedBounds::default();
        let key = bounds.key(&Digest([0xab; 32]));
        assert_eq!(key, format!("wellhead:1:{}", "ab".repeat(32)));
    }
}
