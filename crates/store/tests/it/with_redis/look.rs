//! One look at a real server: what it says, and what is said of one that is away or refuses.

use std::time::Duration;

use wellhead_kit::{RedisServer, free_port};
use wellhead_store::{LookError, StoreReport, look_at};
use wellhead_telemetry::SecretUrl;

use super::BROKEN;

async fn look(url: &str) -> Result<StoreReport, LookError> {
    look_at(&SecretUrl::parse(url).unwrap(), BROKEN).await
}

/// As [`look`], once the server listens.
async fn look_when_up(url: &str) -> Result<StoreReport, LookError> {
    loop {
        match look(url).await {
            Err(LookError::Away("it cannot be connected to")) => {
                // No message of the server says that it listens: it is tried again.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            other => return other,
        }
    }
}

#[tokio::test]
async fn a_server_tells_its_version() {
    let redis = RedisServer::start();
    let report = look_when_up(&redis.url()).await.unwrap();
    assert!(["redis", "valkey"].contains(&&*report.software), "{report:?}");
    assert!(report.version.contains('.'), "{report:?}");
}

#[tokio::test]
async fn one_that_is_away_or_refuses_says_why() {
    let dead = format!("redis://127.0.0.1:{}", free_port());
    assert_eq!(look(&dead).await, Err(LookError::Away("it cannot be connected to")));
    let guarded = RedisServer::start_at(free_port(), &["--requirepass", "s3cret"]);
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}", guarded.port());
    assert!(look_when_up(&url("s3cret")).await.is_ok());
    assert_eq!(look(&url("wrong")).await, Err(LookError::Away("Redis refuses the password")));
}
