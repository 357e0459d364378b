//! Messages among replicas, before a real server.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wellhead_kit::RedisServer;
use wellhead_store::{ReplicaChannel, ReplicaMessage};
use wellhead_telemetry::SecretUrl;

use super::pauses::bounds;
use super::{BROKEN, until_seen};

type Received = mpsc::Receiver<ReplicaMessage>;

fn start(redis: &RedisServer, seed: u64) -> (ReplicaChannel, Received) {
    let url = SecretUrl::parse(&redis.url()).unwrap();
    ReplicaChannel::start(&url, bounds(), SmallRng::seed_from_u64(seed)).unwrap()
}

async fn next(received: &mut Received) -> ReplicaMessage {
    timeout(BROKEN, received.recv()).await.expect("it comes").expect("the task lives")
}

#[tokio::test]
async fn a_message_says_which_replica_sent_it() {
    let redis = RedisServer::valkey();
    let (one, mut own) = start(&redis, 1);
    let (other, mut received) = start(&redis, 2);
    until_seen("both", || one.is_here() && other.is_here()).await;
    assert_ne!(one.id(), other.id());
    let acked = one.publish_acked("block 7".to_owned());
    timeout(BROKEN, acked).await.expect("in time").expect("the store passed it on");
    let told = ReplicaMessage { from: one.id(), text: "block 7".into() };
    assert_eq!(next(&mut received).await, told);
    other.publish("block 8".to_owned());
    assert_eq!(next(&mut own).await.from, other.id());
}

#[tokio::test]
async fn without_a_store_nothing_is_acknowledged_and_nothing_waits() {
    let redis = RedisServer::valkey();
    let (one, _own) = start(&redis, 1);
    until_seen("here", || one.is_here()).await;
    let too_long = one.publish_acked("x".repeat(5_000));
    assert!(timeout(BROKEN, too_long).await.expect("in time").is_err());
    redis.signal("-KILL");
    until_seen("away", || !one.is_here()).await;
    let acked = one.publish_acked("block 7".to_owned());
    assert!(timeout(BROKEN, acked).await.expect("in time").is_err());
    assert_eq!(one.status().dropped, 2);
}
