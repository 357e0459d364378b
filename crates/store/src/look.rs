//! One look at a Redis or Valkey: whether it answers, and which version it is.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};
use tokio::time::{Instant, timeout};
use wellhead_telemetry::SecretUrl;

use crate::NotRedis;
use crate::shared::link;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// `redis` or `valkey`; empty where it does not say.
    pub software: String,
    /// Its version; empty where it does not say.
    pub version: String,
    /// How long it took to answer a ping on an open connection.
    pub ping: Duration,
}

/// Why nothing can be said of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// See there.
    #[error(transparent)]
    Url(#[from] NotRedis),
    /// In words, without a part of the URL.
    #[error("{0}")]
    Away(&'static str),
}

/// Connects, pings and asks for the version, within this time in all.
///
/// # Errors
///
/// [`LookError`]. That a server hides its version is none.
pub async fn look_at(url: &SecretUrl, within: Duration) -> Result<StoreReport, LookError> {
    let client = link::client(url).map_err(|_| NotRedis)?;
    let deadline = Instant::now() + within;
    let config = AsyncConnectionConfig::new();
    let mut connection = link::connect(&client, &config, within).await.map_err(LookError::Away)?;
    let left = || deadline.saturating_duration_since(Instant::now());
    let begun = Instant::now();
    link::ping(&mut connection, left()).await.map_err(LookError::Away)?;
    let ping = begun.elapsed();
    let told = timeout(left(), info(&mut connection)).await.ok().flatten().unwrap_or_default();
    let (software, version) = software(&told);
    Ok(StoreReport { software, version, ping })
}

async fn info(connection: &mut MultiplexedConnection) -> Option<String> {
    let told = connection.send_packed_command(redis::cmd("INFO").arg("server")).await.ok()?;
    match told {
        Value::BulkString(text) => String::from_utf8(text).ok(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// Name and version; Valkey tells the version of Redis that it is compatible with, too.
fn software(info: &str) -> (String, String) {
    let field = |name: &str| {
        let mut lines = info.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
    };
    match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => ("valkey".to_owned(), version),
        (None, Some(version)) => ("redis".to_owned(), version),
        (None, None) => (String::new(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_their_versions() {
        for (info, expected) in [
            ("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n", ("redis", "7.0.15")),
            (
                "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.8\r\n",
                ("valkey", "8.1.8"),
            ),
            ("", ("", "")),
        ] {
            let (name, version) = software(info);
            assert_eq!((&*name, &*version), expected, "{info}");
        }
    }
}
