//! Digests, values that follow from them, and stores with bounds for tests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use tokio::time::{sleep, timeout};
use wellhead_kit::RedisServer;
use wellhead_store::{Clock, Digest, Disk, DiskBounds};

pub(crate) const FOREVER: Duration = Duration::MAX;

/// The longest wait: a step that takes longer has failed. No limit of the tests is longer, nor is the time in which a
/// keeper expects the answer to a ping.
pub(crate) const BROKEN: Duration = Duration::from_secs(120);

/// A clock that the test sets.
#[derive(Clone)]
pub(crate) struct Time(Arc<AtomicU64>);

impl Time {
    pub(crate) fn at(now: u64) -> Self {
        Self(Arc::new(AtomicU64::new(now)))
    }

    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, Ordering::SeqCst);
    }

    pub(crate) fn clock(&self) -> Clock {
        let time = self.clone();
        Arc::new(move || time.0.load(Ordering::SeqCst))
    }
}

/// The `n`th digest.
pub(crate) fn digest(n: u64) -> Digest {
    let mut bytes = [0; 32];
    SmallRng::seed_from_u64(n).fill_bytes(&mut bytes);
    Digest(bytes)
}

/// The value of the `n`th digest, always the same: up to `bytes_max` bytes, many
/// of them few.
pub(crate) fn value(n: u64, bytes_max: usize) -> Bytes {
    let mut rng = SmallRng::seed_from_u64(!n);
    let bytes_max = if rng.random_bool(0.5) { bytes_max / 16 } else { bytes_max };
    let mut value = vec![0; rng.random_range(0..=bytes_max)];
    rng.fill_bytes(&mut value);
    Bytes::from(value)
}

/// A small store whose gets are never late: the machine may be busy.
pub(crate) fn bounds(bytes_max: u64) -> DiskBounds {
    DiskBounds {
        bytes_max,
        entries_max: 20_000,
        // Small stores have segments of 64 KiB then.
        value_bytes_max: 100_000.min(bytes_max as usize / 64),
        queue_items_max: 100_000,
        queue_bytes_max: usize::MAX,
        read_within: Duration::from_secs(3600),
        ..DiskBounds::default()
    }
}

pub(crate) fn open(directory: &Path, bytes_max: u64) -> Disk {
    Disk::open(directory, &bounds(bytes_max), Time::at(1000).clock()).expect("the store opens")
}

/// Until this is so.
pub(crate) async fn until_seen(what: &str, is: impl Fn() -> bool) {
    let seen = async {
        while !is() {
            // Between two looks at a status, which has no waiter; the loop has a limit.
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(BROKEN, seen).await.unwrap_or_else(|_| panic!("not seen: {what}"));
}

/// Puts the values of these numbers, and waits until they are written or lost.
pub(crate) async fn fill(disk: &Disk, numbers: std::ops::Range<u64>, bytes_max: usize) {
    let ended = || disk.stats().written + disk.stats().dropped + disk.stats().refused;
    let all = ended() + numbers.end - numbers.start;
    for n in numbers {
        disk.put(digest(n), value(n, bytes_max), FOREVER);
    }
    until_seen("the end of all puts", || ended() == all).await;
}

/// How many of these numbers are found.
///
/// # Panics
/// When one is found with another value than was put.
pub(crate) async fn found(disk: &Disk, numbers: std::ops::Range<u64>, bytes_max: usize) -> u64 {
    let mut found = 0;
    for n in numbers {
        if let Some(got) = disk.get(&digest(n)).await {
            assert_eq!(got, value(n, bytes_max), "value {n} is not what was put");
            found += 1;
        }
    }
    found
}

/// Bytes of all files.
pub(crate) fn bytes_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("the directory is there");
    entries.map(|entry| entry.and_then(|entry| entry.metadata()).expect("a file").len()).sum()
}

/// A connection of the test's own; Redis must be up.
pub(crate) async fn raw_connection(server: &RedisServer) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}
