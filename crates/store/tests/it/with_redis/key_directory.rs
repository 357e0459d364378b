//! The directory of keys at several replicas before one server.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;
use wellhead_kit::RedisServer;
use wellhead_store::{DirectoryBounds, DirectoryError, KeyDirectory, KeySnapshot};
use wellhead_telemetry::SecretUrl;

use super::{told, until_seen};
use crate::support::{Time, raw_connection};

fn bounds() -> DirectoryBounds {
    DirectoryBounds {
        cluster: "test".to_owned(),
        entries_max: 3_000,
        look_every: Duration::from_millis(50),
        answer_within: Duration::from_secs(10),
        pause_min: Duration::from_millis(5),
        pause_max: Duration::from_millis(50),
        ..DirectoryBounds::default()
    }
}

fn start(redis: &RedisServer, bounds: DirectoryBounds, time: &Time) -> KeyDirectory {
    let url = SecretUrl::parse(&redis.url()).unwrap();
    KeyDirectory::start(&url, bounds, time.clock(), SmallRng::seed_from_u64(1)).unwrap()
}

/// Until the replica has what is looked for.
async fn until(directory: &KeyDirectory, has: impl Fn(&KeySnapshot) -> bool) {
    told(directory.entries(), |entries| entries.as_ref().is_some_and(|it| has(it))).await;
}

async fn until_away(directory: &KeyDirectory) {
    until_seen("away", || directory.status().away_since.is_some()).await;
}

fn value(entries: &KeySnapshot, id: &str) -> Option<String> {
    entries.get(id).map(|value| String::from_utf8_lossy(value).into_owned())
}

async fn two() -> (RedisServer, Time, KeyDirectory, KeyDirectory) {
    let (redis, time) = (RedisServer::valkey(), Time::at(1_000));
    let (one, other) = (start(&redis, bounds(), &time), start(&redis, bounds(), &time));
    for directory in [&one, &other] {
        until(directory, KeySnapshot::is_empty).await;
    }
    (redis, time, one, other)
}

async fn raw_call(connection: &mut MultiplexedConnection, words: &[&str]) {
    let mut call = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| {
        call.arg(*word);
    });
    let _done: redis::Value = call.query_async(connection).await.expect("the server obeys");
}

#[tokio::test]
async fn a_change_reaches_the_others_by_itself() {
    let (_redis, _time, one, other) = two().await;
    let reads = other.status().reads;
    one.put("a", b"first").await.expect("there is room");
    until(&other, |entries| value(entries, "a").as_deref() == Some("first")).await;
    one.put("a", b"second").await.expect("it is there");
    one.put("b", b"").await.expect("there is room");
    until(&other, |entries| value(entries, "a").as_deref() == Some("second")).await;
    until(&other, |entries| entries.len() == 2).await;
    assert_eq!(one.delete("a").await, Ok(true));
    assert_eq!(one.delete("a").await, Ok(false));
    until(&other, |entries| entries.len() == 1 && entries.get("a").is_none()).await;
    assert_eq!(one.delete("b").await, Ok(true));
    until(&other, KeySnapshot::is_empty).await;
    let status = other.status();
    assert_eq!((status.reads, status.changes), (reads, 5), "nothing was read as a whole");
}

#[tokio::test]
async fn a_change_that_was_not_heard_of_is_found() {
    let (redis, _time, one, other) = two().await;
    one.put("a", b"1").await.expect("there is room");
    until(&other, |entries| entries.len() == 1).await;
    let reads = other.status().reads;
    let mut raw = raw_connection(&redis).await;
    // As if the message had been lost.
    raw_call(&mut raw, &["HSET", "wh:{test}:keys", "b", "2"]).await;
    raw_call(&mut raw, &["INCR", "wh:{test}:keys:version"]).await;
    until(&other, |entries| value(entries, "b").as_deref() == Some("2")).await;
    assert_eq!(other.status().reads, reads + 1);
}

#[tokio::test]
async fn many_are_read_and_bounds_hold() {
    let redis = RedisServer::valkey();
    let mut raw = super::lease_script::connect(&redis).await;
    let mut fill = redis::cmd("HSET");
    fill.arg("wh:{test}:keys");
    for n in 0..2_999 {
        fill.arg(format!("id{n}")).arg(format!("value {n}"));
    }
    fill.arg("large").arg(vec![b'x'; 5_000]);
    let _done: i64 = fill.query_async(&mut raw).await.expect("the server obeys");
    let directory = start(&redis, bounds(), &Time::at(1_000));
    until(&directory, |entries| entries.len() == 2_999).await;
    until(&directory, |entries| value(entries, "id7").as_deref() == Some("value 7")).await;
    assert_eq!(directory.status().left_out, 1);
    assert_eq!(directory.put("more", b"1").await, Err(DirectoryError::Full));
    assert_eq!(directory.put("id1", b"again").await, Ok(()));
    assert_eq!(directory.put("id1", &[0; 4_097]).await, Err(DirectoryError::TooLarge));
    for id in ["", "with space", "ü", &"x".repeat(65)] {
        assert_eq!(directory.put(id, b"1").await, Err(DirectoryError::TooLarge), "{id}");
    }
    assert_eq!(directory.delete("large").await, Ok(true));
    assert_eq!(directory.put("more", b"1").await, Ok(()));
    until(&directory, |entries| value(entries, "id1").as_deref() == Some("again")).await;
    until(&directory, |entries| entries.len() == 3_000).await;
    let small = start(&redis, DirectoryBounds { bytes_max: 1_000, ..bounds() }, &Time::at(1_000));
    let few = start(&redis, DirectoryBounds { entries_max: 10, ..bounds() }, &Time::at(1_000));
    until(&few, |entries| entries.len() == 10).await;
    assert_eq!(few.status().left_out, 2_990);
    assert!(small.entries().borrow().is_none(), "too many bytes are not read");
}

#[tokio::test]
async fn away_it_stays_as_it_was() {
    let (mut redis, time, one, other) = two().await;
    one.put("a", b"1").await.expect("there is room");
    until(&other, |entries| entries.len() == 1).await;
    redis.signal("-KILL");
    time.set(2_000);
    until_away(&other).await;
    until_away(&one).await;
    assert_eq!(one.put("b", b"2").await, Err(DirectoryError::Away));
    let last = other.entries().borrow().clone().expect("it was read");
    assert_eq!(last.len(), 1);
    // Back without its data: no key is revoked by that.
    let port = redis.port();
    redis = RedisServer::valkey_at(port);
    let _up = super::lease_script::connect(&redis).await;
    let entries = other.entries().borrow().clone().expect("it was read");
    assert_eq!((entries.len(), entries.read_at), (1, last.read_at));
    // What is put now is the directory.
    one.put("c", b"3").await.expect("there is room");
    for directory in [&one, &other] {
        until(directory, |entries| entries.get("c").is_some() && entries.len() == 1).await;
        assert_eq!(directory.status().away_since, None);
    }
}

#[tokio::test]
async fn a_look_that_finds_nothing_new_says_so() {
    let (_redis, time, one, _other) = two().await;
    let first = one.entries().borrow().clone().expect("it was read");
    // The wall clock is set back by years, which makes no entry younger or older.
    time.set(1);
    until(&one, |entries| entries.read_at > first.read_at).await;
    let later = one.entries().borrow().clone().expect("it was read");
    assert!(later.has_entries_of(&first) && later.read_at <= Instant::now().into_std());
}
