//! What replicas tell each other of upstreams, before a real server.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wellhead_kit::RedisServer;
use wellhead_store::{BroadcastBounds, PauseChannel, PauseNotice};
use wellhead_telemetry::SecretUrl;

use super::{BROKEN, until_seen};

type Received = mpsc::Receiver<PauseNotice>;

/// Patient with the machine, and back soon.
pub(super) fn bounds() -> BroadcastBounds {
    BroadcastBounds {
        cluster: "test".to_owned(),
        waiting_max: 8,
        answer_within: Duration::from_secs(10),
        ping_every: Duration::from_millis(20),
        pause_min: Duration::from_millis(5),
        pause_max: Duration::from_millis(50),
    }
}

fn start(redis: &RedisServer, seed: u64) -> (PauseChannel, Received) {
    let url = SecretUrl::parse(&redis.url()).unwrap();
    PauseChannel::start(&url, bounds(), SmallRng::seed_from_u64(seed)).unwrap()
}

fn notice(key: &str, method: Option<&str>, left_s: u64) -> PauseNotice {
    let method = method.map(str::to_owned);
    PauseNotice { key: key.to_owned(), method, left: Duration::from_secs(left_s) }
}

async fn next(received: &mut Received) -> PauseNotice {
    timeout(BROKEN, received.recv()).await.expect("it comes").expect("the task lives")
}

#[tokio::test]
async fn one_tells_the_others_and_not_itself() {
    let mut redis = RedisServer::valkey();
    let (one, mut own) = start(&redis, 1);
    let (other, mut received) = start(&redis, 2);
    until_seen("both", || one.status().is_here && other.status().is_here).await;
    let told = [
        notice("main:alchemy", None, 3),
        notice("main:alchemy of a team", Some("eth_getLogs"), 600),
    ];
    for notice in &told {
        one.publish(notice);
        assert_eq!(next(&mut received).await, *notice);
    }
    // Too long a pause, and too long a key.
    one.publish(&notice("k", None, 2 * 3_600));
    one.publish(&notice(&"k".repeat(201), None, 1));
    until_seen("malformed", || other.status().malformed == 1).await;
    assert!(own.try_recv().is_err() && received.try_recv().is_err());
    let seen = (one.status().published, one.status().dropped, other.status().received);
    assert_eq!(seen, (3, 1, 2));

    redis.signal("-KILL");
    until_seen("away", || !one.status().is_here && !other.status().is_here).await;
    one.publish(&told[0]);
    assert_eq!(one.status().dropped, 2, "it is not connected");
    let port = redis.port();
    redis = RedisServer::valkey_at(port);
    until_seen("back", || one.status().is_here && other.status().is_here).await;
    one.publish(&told[0]);
    assert_eq!(next(&mut received).await, told[0]);
    drop(redis);
}

#[tokio::test]
async fn what_is_not_taken_is_dropped() {
    let redis = RedisServer::valkey();
    let (one, _own) = start(&redis, 1);
    let (other, mut received) = start(&redis, 2);
    until_seen("both", || one.status().is_here && other.status().is_here).await;
    for n in 0..40 {
        let before = one.status().published;
        one.publish(&notice(&format!("k{n}"), None, 1));
        until_seen("published", || one.status().published > before).await;
    }
    until_seen("dropped", || other.status().received == 8 && other.status().dropped > 0).await;
    let first = next(&mut received).await;
    assert_eq!(first.key, "k0", "the newest are lost, and the older ones can still be taken");
    assert_eq!(one.status().malformed, 0);
}
