//! Filters that replicas share, before a real server.

use std::time::Duration;

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::time::{sleep, timeout};
use wellhead_kit::RedisServer;
use wellhead_store::{
    FilterLookup, FilterStoreBounds, FilterStoreError, FilterWrite, SharedFilters,
};
use wellhead_telemetry::SecretUrl;

use crate::support::{BROKEN, raw_connection};

/// Patient with the machine, and back soon.
fn bounds() -> FilterStoreBounds {
    FilterStoreBounds {
        cluster: "test".to_owned(),
        answer_within: Duration::from_secs(10),
        value_bytes_max: 100,
        ping_every: Duration::from_millis(20),
        pause_min: Duration::from_millis(5),
        pause_max: Duration::from_millis(50),
        ..FilterStoreBounds::default()
    }
}

/// Until looks are answered, or fail.
async fn until_here(filters: &SharedFilters, is_here: bool) {
    let seen = async {
        while filters.look("unknown", &[]).await.is_ok() != is_here {
            // Between two looks; the loop has a limit.
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(BROKEN, seen).await.expect("the store comes and goes");
}

async fn start(redis: &RedisServer, seed: u64) -> SharedFilters {
    let url = SecretUrl::parse(&redis.url()).unwrap();
    let filters = SharedFilters::start(&url, bounds(), SmallRng::seed_from_u64(seed)).unwrap();
    until_here(&filters, true).await;
    filters
}

fn found(stamp: u64, is_home: bool, value: Option<&str>) -> Result<FilterLookup, FilterStoreError> {
    let value = value.map(|value| Bytes::copy_from_slice(value.as_bytes()));
    Ok(FilterLookup::Found { stamp, is_home, value })
}

const NAME: &str = "main:0xf1";
const MISSING: Result<FilterLookup, FilterStoreError> = Ok(FilterLookup::Missing);
const REMOVED: Result<FilterLookup, FilterStoreError> = Ok(FilterLookup::Removed);
const WRITTEN: Result<FilterWrite, FilterStoreError> = Ok(FilterWrite::Written);
const SUPERSEDED: Result<FilterWrite, FilterStoreError> = Ok(FilterWrite::Superseded);

#[tokio::test]
async fn of_two_writes_that_replace_one_stamp_the_second_is_refused() {
    let redis = RedisServer::valkey();
    let (one, other) = (start(&redis, 1).await, start(&redis, 2).await);
    assert_eq!(one.look(NAME, &[]).await, MISSING);
    assert_eq!(one.write(NAME, "a", 1, &[]).await, WRITTEN);
    assert_eq!(other.look(NAME, &[]).await, found(1, false, Some("a")));
    assert_eq!(one.write(NAME, "b", 2, &[1]).await, WRITTEN);
    assert_eq!(other.write(NAME, "c", 3, &[1]).await, SUPERSEDED);
    assert_eq!(other.look(NAME, &[1]).await, found(2, false, Some("b")));
    // Either of two; and a write whose answer was lost, made again.
    assert_eq!(other.write(NAME, "c", 3, &[9, 2]).await, WRITTEN);
    assert_eq!(other.write(NAME, "c", 3, &[9, 2]).await, WRITTEN);
    assert_eq!(one.look(NAME, &[2]).await, found(3, false, Some("c")));
    assert_eq!(other.look(NAME, &[2, 3]).await, found(3, false, None), "it has the value");
    let large = "x".repeat(101);
    assert_eq!(one.write(NAME, &large, 4, &[3]).await, Err(FilterStoreError::TooLarge));
    assert_eq!(one.look("base:0xf1", &[]).await, MISSING, "another chain");
}

#[tokio::test]
async fn a_removed_filter_is_not_put_back() {
    let redis = RedisServer::valkey();
    let (one, other) = (start(&redis, 1).await, start(&redis, 2).await);
    assert_eq!(one.write(NAME, "a", 1, &[]).await, WRITTEN);
    assert_eq!(other.remove(NAME, false).await, Ok(true));
    assert_eq!(one.remove(NAME, true).await, Ok(false), "once");
    assert_eq!(one.look(NAME, &[1]).await, REMOVED);
    assert_eq!(one.write(NAME, "b", 2, &[1]).await, Ok(FilterWrite::Removed));
    // What the store lost is removed where a replica has it.
    assert_eq!(one.remove("lost", true).await, Ok(true));
    assert_eq!(other.remove("lost", true).await, Ok(false), "once");
    assert_eq!(one.remove("unknown", false).await, Ok(false));
    assert_eq!(other.look("lost", &[]).await, REMOVED);
    assert_eq!(other.look("unknown", &[]).await, MISSING);
}

#[tokio::test]
async fn a_filter_ends_when_no_replica_looks_at_it() {
    let redis = RedisServer::valkey();
    let one = start(&redis, 1).await;
    let mut raw = raw_connection(&redis).await;
    let key = format!("wh:{{test}}:filter:{NAME}");
    let left_ms = async |raw: &mut redis::aio::MultiplexedConnection| {
        let left: i64 = redis::cmd("PTTL").arg(&key).query_async(raw).await.expect("a number");
        left
    };
    one.write(NAME, "a", 1, &[]).await.expect("here");
    assert!((200_000..=300_000).contains(&left_ms(&mut raw).await));
    let shorten = redis::cmd("PEXPIRE").arg(&key).arg(100_000).to_owned();
    let _set: i64 = shorten.query_async(&mut raw).await.expect("there");
    one.look(NAME, &[1]).await.expect("here");
    assert!(left_ms(&mut raw).await > 200_000, "a look keeps it");
    let _set: i64 = shorten.query_async(&mut raw).await.expect("there");
    one.write(NAME, "b", 2, &[1]).await.expect("here");
    assert!(left_ms(&mut raw).await > 200_000, "a write keeps it");
    one.remove(NAME, true).await.expect("here");
    assert!(left_ms(&mut raw).await > 200_000, "the mark is kept as long");
    let _gone: i64 =
        redis::cmd("PEXPIRE").arg(&key).arg(0).query_async(&mut raw).await.expect("there");
    assert_eq!(one.look(NAME, &[2]).await, MISSING);
}

#[tokio::test]
async fn a_replica_is_the_home_of_what_it_made_and_polls_alone() {
    let redis = RedisServer::valkey();
    let (one, other) = (start(&redis, 1).await, start(&redis, 2).await);
    one.write(NAME, "a", 1, &[]).await.expect("here");
    assert_eq!(one.look(NAME, &[1]).await, found(1, true, None), "made here");
    assert_eq!(other.look(NAME, &[1]).await, found(1, false, None));
    assert_eq!(one.look(NAME, &[1]).await, found(1, false, None), "the other has polled it");
    // Fifteen polls in a row and a write among them, which counts as none.
    for _ in 0..14 {
        assert_eq!(one.look(NAME, &[1, 2]).await, found(1, false, None));
    }
    assert_eq!(one.write(NAME, "b", 2, &[1]).await, WRITTEN);
    assert_eq!(one.look(NAME, &[2]).await, found(2, true, None));
    assert_eq!(other.look(NAME, &[2]).await, found(2, false, None));
}

#[tokio::test]
async fn a_frozen_store_is_waited_for_a_bounded_time_and_then_not_at_all() {
    let redis = RedisServer::valkey();
    let url = SecretUrl::parse(&redis.url()).unwrap();
    // No ping finds out before the calls do.
    let bounds = FilterStoreBounds { ping_every: Duration::from_secs(3_600), ..bounds() };
    let within = bounds.answer_within + Duration::from_millis(1);
    let filters = SharedFilters::start(&url, bounds, SmallRng::seed_from_u64(1)).unwrap();
    until_here(&filters, true).await;
    assert_eq!(filters.write(NAME, "a", 1, &[]).await, WRITTEN);
    redis.signal("-STOP");
    tokio::time::pause();
    for _ in 0..5 {
        let begin = tokio::time::Instant::now();
        assert_eq!(filters.look(NAME, &[]).await, Err(FilterStoreError::Unanswered));
        assert!(begin.elapsed() <= within);
    }
    let begin = tokio::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(filters.look(NAME, &[]).await, Err(FilterStoreError::Away));
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    tokio::time::resume();
    redis.signal("-CONT");
    until_here(&filters, false).await;
    until_here(&filters, true).await;
    assert_eq!(filters.look(NAME, &[1]).await, found(1, true, None));
}

#[tokio::test]
async fn a_store_that_was_killed_is_found_again_with_nothing_in_it() {
    let mut redis = RedisServer::valkey();
    let one = start(&redis, 1).await;
    assert_eq!(one.write(NAME, "a", 1, &[]).await, WRITTEN);
    redis.signal("-KILL");
    until_here(&one, false).await;
    assert_eq!(one.look(NAME, &[1]).await, Err(FilterStoreError::Away));
    assert_eq!(one.write(NAME, "b", 2, &[1]).await, Err(FilterStoreError::Away));
    redis = RedisServer::valkey_at(redis.port());
    until_here(&one, true).await;
    assert_eq!(one.look(NAME, &[1]).await, MISSING);
    assert_eq!(one.write(NAME, "b", 2, &[1]).await, WRITTEN, "it is put back");
    drop(redis);
}

#[tokio::test]
async fn what_others_keep_there_is_not_touched() {
    let redis = RedisServer::valkey();
    let one = start(&redis, 1).await;
    let mut raw = raw_connection(&redis).await;
    let key = format!("wh:{{test}}:filter:{NAME}");
    let _ok: () = redis::cmd("SET").arg(&key).arg("text").query_async(&mut raw).await.unwrap();
    assert_eq!(one.look(NAME, &[]).await, Err(FilterStoreError::Away));
    assert_eq!(one.write(NAME, "a", 1, &[]).await, Err(FilterStoreError::Away));
    let kept: String = redis::cmd("GET").arg(&key).query_async(&mut raw).await.unwrap();
    assert_eq!(kept, "text");
}
