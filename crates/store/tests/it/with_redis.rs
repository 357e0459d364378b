//! The shared tier before a real Redis (or Valkey) of the machine, which is killed,
//! frozen, flushed, filled and started again.
//!
//! Limits are so long that a busy machine meets them. Where one has to pass, Redis is
//! frozen, so that no answer can come, and tokio's clock is paused, so that it
//! passes at once.

mod filters;
mod key_directory;
mod lease;
mod lease_script;
mod look;
mod pauses;
mod replicas;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use wellhead_kit::{RedisServer, free_port};
use wellhead_store::{SharedBounds, SharedTier, State};
use wellhead_telemetry::SecretUrl;

use crate::support::{BROKEN, Time, digest, raw_connection, until_seen, value};

const HOUR: Duration = Duration::from_secs(3600);

/// Patient with the machine, and back soon.
fn bounds() -> SharedBounds {
    SharedBounds {
        get_within: Duration::from_secs(10),
        put_within: Duration::from_secs(10),
        connect_within: Duration::from_secs(10),
        pause_min: Duration::from_millis(1),
        pause_max: Duration::from_millis(20),
        value_bytes_max: 10_000,
        ttl_max: HOUR,
        ..SharedBounds::default()
    }
}

fn start(url: &str, bounds: SharedBounds, time: &Time) -> SharedTier {
    let url = SecretUrl::parse(url).unwrap();
    SharedTier::start(&url, bounds, time.clock(), SmallRng::seed_from_u64(1)).unwrap()
}

/// Until a task tells this.
async fn told<T>(mut changes: watch::Receiver<T>, is: impl FnMut(&T) -> bool) {
    let seen = timeout(BROKEN, changes.wait_for(is)).await;
    let _held = seen.expect("it comes").expect("the task lives");
}

async fn until(shared: &SharedTier, state: State) {
    until_seen(&format!("{state:?}"), || shared.stats().state == state).await;
}

/// A Redis and a tier that is up.
async fn up() -> (RedisServer, SharedTier) {
    let redis = RedisServer::start();
    let shared = start(&redis.url(), bounds(), &Time::at(1000));
    until(&shared, State::Up).await;
    (redis, shared)
}

/// Puts the values of these numbers, and waits until they are written or lost.
async fn fill(shared: &SharedTier, numbers: std::ops::Range<u64>) {
    let ended = || shared.stats().written + shared.stats().dropped + shared.stats().refused;
    let all = ended() + numbers.end - numbers.start;
    for n in numbers {
        shared.put(digest(n), value(n, 10_000), HOUR);
    }
    until_seen("the end of all puts", || ended() == all).await;
}

async fn found(shared: &SharedTier, numbers: std::ops::Range<u64>) -> u64 {
    let mut found = 0;
    for n in numbers {
        if let Some(got) = shared.get(&digest(n)).await {
            assert_eq!(got, value(n, 10_000), "value {n} is not what was put");
            found += 1;
        }
    }
    found
}

fn key(n: u64) -> String {
    format!("wellhead:1:{:?}", digest(n))
}

#[tokio::test]
async fn what_one_puts_another_gets() {
    let (redis, shared) = up().await;
    fill(&shared, 0..100).await;
    let other = start(&redis.url(), bounds(), &Time::at(1000));
    until(&other, State::Up).await;
    assert_eq!(found(&other, 0..100).await, 100);
    assert_eq!(found(&other, 100..101).await, 0);
    assert_eq!((shared.stats().written, shared.stats().dropped), (100, 0));
    let seen = other.stats();
    assert_eq!((seen.hits, seen.misses, seen.errors, seen.late), (100, 1, 0, 0));
}

#[tokio::test]
async fn empty_value_is_a_value() {
    let (_redis, shared) = up().await;
    shared.put(digest(1), Bytes::new(), HOUR);
    until_seen("the value", || shared.stats().written == 1).await;
    assert_eq!(shared.get(&digest(1)).await, Some(Bytes::new()));
}

#[tokio::test]
async fn values_live_as_long_as_told_and_no_longer_than_allowed() {
    let redis = RedisServer::start();
    let time = Time::at(1000);
    let shared = start(&redis.url(), bounds(), &time);
    until(&shared, State::Up).await;
    shared.put(digest(1), Bytes::from("short"), Duration::from_millis(99_500));
    shared.put(digest(2), Bytes::from("for ever"), Duration::MAX);
    shared.put(digest(3), Bytes::from("never"), Duration::ZERO);
    until_seen("the values", || shared.stats().written == 2).await;
    let mut raw = raw_connection(&redis).await;
    for (n, seconds) in [(1, 100), (2, 3600)] {
        let left: i64 =
            redis::cmd("TTL").arg(key(n)).query_async(&mut raw).await.expect("Redis answers");
        // Redis has its own clock; a test takes less than a minute.
        assert!((seconds - 60..=seconds).contains(&left), "value {n}: {left} s left");
    }
    // Should Redis keep it for longer, it says itself when it ends.
    time.set(1099);
    assert!(shared.get(&digest(1)).await.is_some());
    time.set(1100);
    assert!(shared.get(&digest(1)).await.is_none());
    let seen = shared.stats();
    assert_eq!((seen.expired, seen.misses, seen.refused), (1, 1, 1));
}

#[tokio::test]
async fn killed_in_use_it_is_left_alone_until_it_is_back() {
    let (redis, shared) = up().await;
    fill(&shared, 0..50).await;
    let asking: Vec<_> = (0..50)
        .map(|n| {
            let shared = shared.clone();
            tokio::spawn(async move { found(&shared, n..n + 1).await })
        })
        .collect();
    let port = redis.port();
    drop(redis);
    for one in asking {
        one.await.expect("no get panics");
    }
    until(&shared, State::Down).await;
    let before = shared.stats();
    fill(&shared, 0..10).await;
    assert_eq!(found(&shared, 0..50).await, 0);
    let seen = shared.stats();
    assert_eq!(seen.down - before.down, 50, "none of them asked");
    assert_eq!(seen.dropped - before.dropped, 10);
    let _redis = RedisServer::start_at(port, &[]);
    until(&shared, State::Up).await;
    fill(&shared, 0..50).await;
    assert_eq!(found(&shared, 0..50).await, 50);
}

#[tokio::test]
async fn frozen_it_costs_a_few_waits_and_then_nothing() {
    let (redis, shared) = up().await;
    fill(&shared, 0..10).await;
    redis.signal("-STOP");
    tokio::time::pause();
    let start = Instant::now();
    let limit = bounds().get_within + Duration::from_millis(1);
    assert_eq!(found(&shared, 0..1000).await, 0);
    let seen = shared.stats();
    assert!(seen.late <= 5, "{seen:?}");
    assert_eq!(seen.late + seen.down, 1000);
    assert!(start.elapsed() <= limit * 5, "{:?}", start.elapsed());
    until(&shared, State::Down).await;
    // The keeper tries again and again; nothing else waits for it.
    let start = Instant::now();
    assert_eq!(found(&shared, 0..10).await, 0);
    assert_eq!(start.elapsed(), Duration::ZERO);
    tokio::time::resume();
    redis.signal("-CONT");
    until(&shared, State::Up).await;
    assert_eq!(found(&shared, 0..10).await, 10);
}

#[tokio::test]
async fn frozen_it_holds_many_at_once_no_longer_than_one() {
    let (redis, shared) = up().await;
    redis.signal("-STOP");
    tokio::time::pause();
    let start = Instant::now();
    let asking: Vec<_> = (0..400)
        .map(|n| {
            let shared = shared.clone();
            tokio::spawn(async move { shared.get(&digest(n)).await })
        })
        .collect();
    for one in asking {
        assert_eq!(one.await.expect("no get panics"), None);
    }
    assert!(start.elapsed() <= bounds().get_within + Duration::from_millis(1));
    let seen = shared.stats();
    assert_eq!((seen.late, seen.busy), (256, 144), "{seen:?}");
    tokio::time::resume();
    redis.signal("-CONT");
}

#[tokio::test]
async fn frozen_between_calls_it_is_found_out_by_the_keeper() {
    let (redis, shared) = up().await;
    redis.signal("-STOP");
    tokio::time::pause();
    until(&shared, State::Down).await;
    let seen = shared.stats();
    assert_eq!((seen.late, seen.down), (0, 0), "no call was needed");
    tokio::time::resume();
    redis.signal("-CONT");
    until(&shared, State::Up).await;
}

#[tokio::test]
async fn puts_are_bounded_and_lost_when_it_takes_none() {
    let redis = RedisServer::start();
    let bounds = SharedBounds { queue_bytes_max: 20_000, ..bounds() };
    let shared = start(&redis.url(), bounds, &Time::at(1000));
    until(&shared, State::Up).await;
    shared.put(digest(1), Bytes::from(vec![0; 10_001]), HOUR);
    assert_eq!(shared.stats().refused, 1);
    redis.signal("-STOP");
    // The task that writes has no turn meanwhile: two fit, two do not.
    for n in 0..4 {
        shared.put(digest(n), Bytes::from(vec![0; 10_000]), HOUR);
    }
    assert_eq!(shared.stats().dropped, 2);
    tokio::time::pause();
    until_seen("that all are lost", || shared.stats().dropped == 4).await;
    assert_eq!(shared.stats().written, 0);
    until(&shared, State::Down).await;
    tokio::time::resume();
    redis.signal("-CONT");
    until(&shared, State::Up).await;
    shared.put(digest(9), Bytes::from(vec![9; 10_000]), HOUR);
    until_seen("the value", || shared.stats().written == 1).await;
    assert!(shared.get(&digest(9)).await.is_some(), "the room was given back");
}

#[tokio::test]
async fn flushed_it_misses() {
    let (redis, shared) = up().await;
    fill(&shared, 0..10).await;
    let mut raw = raw_connection(&redis).await;
    let _ok: () = redis::cmd("FLUSHALL").query_async(&mut raw).await.expect("Redis answers");
    assert_eq!(found(&shared, 0..10).await, 0);
    fill(&shared, 0..10).await;
    assert_eq!(found(&shared, 0..10).await, 10);
    assert_eq!(shared.stats().state, State::Up);
}

#[tokio::test]
async fn what_is_not_ours_is_a_miss() {
    let (redis, shared) = up().await;
    fill(&shared, 0..2).await;
    let mut raw = raw_connection(&redis).await;
    let copied: Vec<u8> =
        redis::cmd("GET").arg(key(1)).query_async(&mut raw).await.expect("Redis answers");
    let too_large = vec![7_u8; 20_000];
    redis::pipe()
        // Whole, and about another digest.
        .cmd("SET")
        .arg(key(0))
        .arg(&copied)
        // Cut short.
        .cmd("SET")
        .arg(key(1))
        .arg(&copied[..copied.len() - 1])
        .cmd("SET")
        .arg(key(2))
        .arg("nonsense")
        // Put by a replica that allows for more.
        .cmd("SET")
        .arg(key(3))
        .arg(&too_large)
        .cmd("RPUSH")
        .arg(key(4))
        .arg("no string")
        .exec_async(&mut raw)
        .await
        .expect("Redis answers");
    assert_eq!(found(&shared, 0..5).await, 0);
    let seen = shared.stats();
    assert_eq!((seen.damaged, seen.misses, seen.errors), (3, 4, 1), "{seen:?}");
    assert_eq!(seen.state, State::Up);
    // Written after all that was to be deleted.
    fill(&shared, 5..6).await;
    let left: u64 = redis::cmd("EXISTS")
        .arg(&[key(0), key(1), key(2), key(3), key(4)])
        .query_async(&mut raw)
        .await
        .expect("Redis answers");
    assert_eq!(left, 2, "what is damaged is deleted, what others use is not");
}

#[tokio::test]
async fn full_redis_takes_nothing_and_is_still_read() {
    let (redis, shared) = up().await;
    fill(&shared, 0..5).await;
    let mut raw = raw_connection(&redis).await;
    redis::pipe()
        .cmd("CONFIG")
        .arg("SET")
        .arg("maxmemory-policy")
        .arg("noeviction")
        .cmd("CONFIG")
        .arg("SET")
        .arg("maxmemory")
        .arg(1)
        .exec_async(&mut raw)
        .await
        .expect("Redis answers");
    fill(&shared, 5..10).await;
    assert_eq!(found(&shared, 0..10).await, 5);
    let seen = shared.stats();
    assert_eq!((seen.written, seen.dropped, seen.state), (5, 5, State::Up));
}

#[tokio::test]
async fn get_may_be_dropped_at_any_moment() {
    let (_redis, shared) = up().await;
    fill(&shared, 0..100).await;
    for n in 0..100 {
        let wanted = digest(n);
        let mut get = Box::pin(shared.get(&wanted));
        let _begun = std::future::poll_fn(|context| {
            std::task::Poll::Ready(get.as_mut().poll(context).is_pending())
        })
        .await;
    }
    assert_eq!(found(&shared, 0..100).await, 100, "each gets its own answer");
    assert_eq!(shared.stats().state, State::Up);
}

#[tokio::test]
async fn connections_end_with_the_last_handle() {
    let (redis, shared) = up().await;
    let clone = shared.clone();
    drop(shared);
    fill(&clone, 0..1).await;
    assert_eq!(found(&clone, 0..1).await, 1);
    drop(clone);
    let mut raw = raw_connection(&redis).await;
    let only_ours = async {
        loop {
            let list: String = redis::cmd("CLIENT")
                .arg("LIST")
                .query_async(&mut raw)
                .await
                .expect("Redis answers");
            if list.lines().count() == 1 {
                return;
            }
        }
    };
    timeout(BROKEN, only_ours).await.expect("the tier hangs up");
}

/// What was logged by this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn password_is_used_and_never_printed() {
    let redis = RedisServer::start_at(free_port(), &["--requirepass", "hunter2"]);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let url = format!("redis://:hunter2@127.0.0.1:{}/0", redis.port());
    let shared = start(&url, bounds(), &Time::at(1000));
    until(&shared, State::Up).await;
    fill(&shared, 0..1).await;
    assert_eq!(found(&shared, 0..1).await, 1);

    log.0.lock().unwrap().clear();
    let wrong = start(&url.replace("hunter2", "hunter3"), bounds(), &Time::at(1000));
    let told = async {
        while log.0.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(BROKEN, told).await.expect("it says that it cannot log in");
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("the shared store is down"), "{text}");
    assert!(text.contains("refuses the password"), "{text}");
    let shown = format!("{text} {wrong:?} {shared:?}");
    assert!(shown.contains(&redis.port().to_string()) && !shown.contains("hunter"), "{shown}");
    assert_eq!(wrong.stats().state, State::Down);
}

#[tokio::test]
async fn no_server_there() {
    let shared = start(&format!("redis://127.0.0.1:{}", free_port()), bounds(), &Time::at(1000));
    fill(&shared, 0..10).await;
    assert_eq!(found(&shared, 0..10).await, 0);
    let seen = shared.stats();
    assert_eq!((seen.down, seen.dropped, seen.state), (10, 10, State::Down));
}

#[test]
fn url_of_something_else() {
    let url = SecretUrl::parse("https://user:hunter2@127.0.0.1/key").unwrap();
    let started =
        SharedTier::start(&url, bounds(), Time::at(1000).clock(), SmallRng::seed_from_u64(1));
    let why = started.expect_err("no URL of a Redis").to_string();
    assert!(!why.contains("hunter2") && !why.contains("key"), "{why}");
}
