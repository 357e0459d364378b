//! What wellhead sends to other servers beside calls: usage and traces. How their connections are made, and how long
//! one waits before it tries again. What is sent, and for how long it is tried, is each sender's own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::Rng;
use tokio::sync::watch;
use tokio::time::Instant;
use wellhead_net::{
    ClientSettings, Endpoint, EndpointError, HttpTransport, Resolver, TlsClient, TlsSetupError,
    TransportResources, TrustedRoots,
};
use wellhead_transport::{Exchange, Transport, WireReply};

/// After the first failure, unless a test is in a hurry.
pub(crate) const PAUSE_MIN: Duration = Duration::from_secs(1);
/// After many.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A peer that asks for a longer pause is asked sooner.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// While the process ends: there is no time for more.
const PAUSE_AT_THE_END: Duration = Duration::from_millis(500);

/// Why nothing can be sent to a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutletError {
    /// The URL, a header or the credentials.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
}

/// A transport to a server, which trusts the public authorities. Opens no connection yet.
pub(crate) fn outlet_transport(
    endpoint: &Endpoint,
    timeout: Duration,
) -> Result<Arc<dyn Transport>, OutletError> {
    let tls = TlsClient::new(TrustedRoots::Public)?;
    let shared = TransportResources::new(Arc::new(Resolver::new()), Arc::new(tls));
    let transport = HttpTransport::new(endpoint, client_settings(timeout), shared, rand::random())?;
    Ok(Arc::new(transport))
}

/// Sends a body and reads at most `answer_bytes` of the answer; an error in words if there is none within `timeout`.
pub(crate) async fn post(
    transport: &dyn Transport,
    body: Bytes,
    timeout: Duration,
    answer_bytes: usize,
) -> Result<WireReply, String> {
    let deadline = Instant::now() + timeout;
    let exchange = Exchange {
        body,
        deadline: deadline.into_std(),
        whole_max: answer_bytes,
        bulky: false,
        trace: None,
    };
    match tokio::time::timeout_at(deadline, transport.exchange(exchange)).await {
        Err(_elapsed) => Err("it did not answer in time".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(reply)) => Ok(reply),
    }
}

/// One request at a time, so few connections; idle ones are not worth keeping for long.
fn client_settings(timeout: Duration) -> ClientSettings {
    ClientSettings {
        connect_timeout: timeout,
        connections_max: 2,
        connects_max: 1,
        queue_max: 4,
        compression: Some(false),
        ..ClientSettings::default()
    }
}

/// The name of this wellhead among others: as the settings say, or that of the host.
pub(crate) fn instance_name(configured: Option<&str>) -> String {
    let host = || std::fs::read_to_string("/etc/hostname").ok();
    let name = configured.map(str::to_owned).or_else(host);
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "wellhead".to_owned())
}

/// How long to wait after this many failures in a row: doubled from `pause_min` on to a minute, half of it by chance
/// so that replicas spread, or as long as the peer asked for if that is longer, up to ten minutes.
pub(crate) fn pause(
    pause_min: Duration,
    failures: u32,
    retry_after: Option<Duration>,
    rng: &mut impl Rng,
) -> Duration {
    let doubled = pause_min.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let most = doubled.min(PAUSE_MAX);
    let by_chance = (most / 2).mul_f64(1.0 + rng.random::<f64>());
    by_chance.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
}

/// Waits, but not for long when the process ends.
pub(crate) async fn wait(pause: Duration, closing: &mut watch::Receiver<bool>) {
    let short = pause.min(PAUSE_AT_THE_END);
    if *closing.borrow_and_update() {
        return tokio::time::sleep(short).await;
    }
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        // At once: it may be the last chance.
        _ = closing.changed() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    #[test]
    fn pauses_double_by_chance_up_to_a_bound_and_as_long_as_was_asked_for() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut check = |failures: u32, asked: Option<u64>, from_ms: u64, to_ms: u64| {
            for _ in 0..100 {
                let asked = asked.map(Duration::from_secs);
                let pause = pause(PAUSE_MIN, failures, asked, &mut rng);
                let range = Duration::from_millis(from_ms)..=Duration::from_millis(to_ms);
                assert!(range.contains(&pause), "{failures} {asked:?}: {pause:?}");
            }
        };
        check(1, None, 500, 1_000);
        check(2, None, 1_000, 2_000);
        check(7, None, 30_000, 60_000);
        check(u32::MAX, None, 30_000, 60_000);
        check(1, Some(30), 30_000, 30_000);
        check(1, Some(100_000), 600_000, 600_000);
    }
}
