//! The directory of keys at several replicas before one server.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;
use wellhead_kit::RedisServer;
use wellhead_store::{DirectoryBounds, DirectoryError, DirectoryWrite, KeyDirectory, KeySnapshot};
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

/// Adds or replaces an entry; returns the number of the change.
async fn put(directory: &KeyDirectory, id: &str, value: &[u8]) -> Result<u64, DirectoryError> {
    let mut writer = directory.writer().await?;
    let entry = writer.read(id).await?;
    match writer.replace(&entry, value).await? {
        DirectoryWrite::Made(version) => Ok(version),
        DirectoryWrite::Changed => panic!("no other writes `{id}`"),
    }
}

/// As an operator takes an entry out.
async fn delete(raw: &mut MultiplexedConnection, id: &str) {
    raw_call(raw, &["HDEL", "wh:{test}:keys", id]).await;
    let mut count = redis::cmd("INCR");
    let version: u64 = count.arg("wh:{test}:keys:version").query_async(raw).await.expect("counts");
    raw_call(raw, &["PUBLISH", "wh:{test}:keys:changes", &format!("{version} {id}")]).await;
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
    let (redis, _time, one, other) = two().await;
    let mut raw = raw_connection(&redis).await;
    let reads = other.status().reads;
    put(&one, "a", b"first").await.expect("there is room");
    until(&other, |entries| value(entries, "a").as_deref() == Some("first")).await;
    put(&one, "a", b"second").await.expect("it is there");
    put(&one, "b", b"").await.expect("there is room");
    until(&other, |entries| value(entries, "a").as_deref() == Some("second")).await;
    until(&other, |entries| entries.len() == 2).await;
    delete(&mut raw, "a").await;
    until(&other, |entries| entries.len() == 1 && entries.get("a").is_none()).await;
    delete(&mut raw, "b").await;
    until(&other, KeySnapshot::is_empty).await;
    let status = other.status();
    assert_eq!((status.reads, status.changes), (reads, 5), "nothing was read as a whole");
}

#[tokio::test]
async fn a_change_that_was_not_heard_of_is_found() {
    let (redis, _time, one, other) = two().await;
    put(&one, "a", b"1").await.expect("there is room");
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
    assert_eq!(put(&directory, "more", b"1").await, Err(DirectoryError::Full));
    assert_eq!(put(&directory, "id1", b"again").await, Ok(1));
    assert_eq!(put(&directory, "id1", &[0; 4_097]).await, Err(DirectoryError::TooLarge));
    for id in ["", "with space", "ü", &"x".repeat(65)] {
        assert_eq!(put(&directory, id, b"1").await, Err(DirectoryError::TooLarge), "{id}");
    }
    delete(&mut raw, "large").await;
    assert!(put(&directory, "more", b"1").await.is_ok());
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
    put(&one, "a", b"1").await.expect("there is room");
    until(&other, |entries| entries.len() == 1).await;
    redis.signal("-KILL");
    time.set(2_000);
    until_away(&other).await;
    until_away(&one).await;
    assert_eq!(put(&one, "b", b"2").await, Err(DirectoryError::Away));
    let last = other.entries().borrow().clone().expect("it was read");
    assert_eq!(last.len(), 1);
    // Back without its data: no key is revoked by that.
    let port = redis.port();
    redis = RedisServer::valkey_at(port);
    let _up = super::lease_script::connect(&redis).await;
    let entries = other.entries().borrow().clone().expect("it was read");
    assert_eq!((entries.len(), entries.read_at), (1, last.read_at));
    // Nor are the others given up for one that is put.
    assert_eq!(put(&one, "c", b"3").await, Err(DirectoryError::Lost));
    // One that starts now begins anew.
    let third = start(&redis, bounds(), &time);
    until(&third, KeySnapshot::is_empty).await;
    put(&third, "c", b"3").await.expect("there is room");
    for directory in [&one, &other, &third] {
        until(directory, |entries| entries.get("c").is_some() && entries.len() == 1).await;
        assert_eq!(directory.status().away_since, None);
    }
}

/// A replica that made a change knows of it although it cannot read it.
#[tokio::test]
async fn a_loss_is_noticed_by_the_replica_that_made_the_only_change() {
    let redis = RedisServer::valkey();
    let mut raw = super::lease_script::connect(&redis).await;
    raw_call(&mut raw, &["HSET", "wh:{test}:keys", "large", "123"]).await;
    let bounds = DirectoryBounds { bytes_max: 2, ..bounds() };
    let directory = start(&redis, bounds, &Time::at(1_000));
    assert_eq!(put(&directory, "a", b"1").await, Ok(1));
    raw_call(&mut raw, &["FLUSHALL"]).await;
    assert_eq!(put(&directory, "b", b"2").await, Err(DirectoryError::Lost));
    assert!(directory.entries().borrow().is_none(), "it read nothing");
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

/// Of two that read one entry the first to replace it does, and the other hears that it is not as it was.
#[tokio::test]
async fn no_change_overwrites_another() {
    let (_redis, _time, one, other) = two().await;
    let (mut first, mut second) = (one.writer().await.unwrap(), other.writer().await.unwrap());
    for before in [None, Some("second")] {
        let (kept, late) = (first.read("a").await.unwrap(), second.read("a").await.unwrap());
        assert_eq!(kept.value.as_deref(), before.map(str::as_bytes));
        let DirectoryWrite::Made(version) = first.replace(&kept, b"first").await.unwrap() else {
            panic!("nothing came between");
        };
        assert_eq!(second.replace(&late, b"second").await, Ok(DirectoryWrite::Changed));
        until(&other, |entries| entries.version() == version).await;
        until(&other, |entries| value(entries, "a").as_deref() == Some("first")).await;
        let again = second.read("a").await.unwrap();
        let made = second.replace(&again, b"second").await;
        assert_eq!(made, Ok(DirectoryWrite::Made(version + 1)));
        until(&one, |entries| value(entries, "a").as_deref() == Some("second")).await;
    }
}

/// A server that hangs with a change in hand does not make it when it goes on: its caller was told otherwise.
#[tokio::test]
async fn what_was_given_up_is_not_made_later() {
    let redis = RedisServer::valkey();
    let hasty = DirectoryBounds { answer_within: Duration::from_millis(300), ..bounds() };
    let one = start(&redis, hasty, &Time::at(1_000));
    until(&one, KeySnapshot::is_empty).await;
    let mut writer = one.writer().await.expect("it is there");
    let entry = writer.read("a").await.expect("it is there");
    redis.signal("-STOP");
    assert_eq!(writer.replace(&entry, b"late").await, Err(DirectoryError::Unanswered));
    assert_eq!(one.writer().await.err(), Some(DirectoryError::Away));
    redis.signal("-CONT");
    let mut patient = start(&redis, bounds(), &Time::at(1_000)).writer().await.expect("it is back");
    assert_eq!(patient.read("a").await.expect("it is back").value, None);
}

#[tokio::test]
async fn a_refusal_says_why() {
    let (redis, _time, one, _other) = two().await;
    let mut raw = raw_connection(&redis).await;
    let check = async |raw: &mut MultiplexedConnection, words: [&[&str]; 2], why| {
        raw_call(raw, words[0]).await;
        assert_eq!(put(&one, "a", b"1").await, Err(DirectoryError::Refused(why)));
        raw_call(raw, words[1]).await;
    };
    let full: [&[&str]; 2] =
        [&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]];
    check(&mut raw, full, "its memory is full").await;
    let forbidden: [&[&str]; 2] =
        [&["ACL", "SETUSER", "default", "-eval"], &["ACL", "SETUSER", "default", "+eval"]];
    check(&mut raw, forbidden, "its user has no permission to change the keys").await;
    assert_eq!(put(&one, "a", b"1").await, Ok(1));
}
