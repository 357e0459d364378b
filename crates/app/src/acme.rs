//! When the certificate of `listen` is ordered from an ACME server, and what the log says of it.
//!
//! An order itself is `server`'s business. A failed one is repeated, each time after a longer pause,
//! and the certificate in use stays meanwhile. Each failed order leaves one line in the log.

use std::time::Duration;

use tokio::time::sleep;
use wellhead_server::{AcmeFailure, AcmeIssue, AcmeOrders};
use wellhead_telemetry::clock;

/// A machine may sleep, and its clock may be set: the time is looked at again so often.
const LOOK_EVERY: Duration = Duration::from_secs(10 * 60);

/// The pause after the first failure, and the longest one.
struct Pauses {
    first: Duration,
    longest: Duration,
}

/// For an ACME server that is away.
const UNAVAILABLE: Pauses =
    Pauses { first: Duration::from_secs(5), longest: Duration::from_secs(60 * 60) };

/// For an ACME server that refused. Let's Encrypt allows five failed proofs of a domain an hour, and
/// five certificates for the same domains a week.
const REFUSED: Pauses =
    Pauses { first: Duration::from_secs(10 * 60), longest: Duration::from_secs(6 * 60 * 60) };

/// Orders certificates until it is dropped.
pub(crate) async fn run(orders: AcmeOrders) {
    let mut failures = 0;
    if orders.due() > now() {
        let (valid_h, order_in_h) = (hours_to(orders.end()), hours_to(Some(orders.due())));
        tracing::info!(valid_h, order_in_h, "the TLS certificate that was kept is in use");
    }
    loop {
        wait_until(orders.due()).await;
        let pause = match orders.order().await {
            Ok(issue) if orders.due() > now() => {
                tell_issue(&orders, &issue);
                failures = 0;
                continue;
            }
            // Without a pause the next order would follow at once, and so on.
            Ok(_) => {
                let pause = pause(&REFUSED, failures);
                tracing::warn!(
                    next_order_in_s = pause.as_secs(),
                    "the new TLS certificate is due for renewal already: does the clock of this machine go right?"
                );
                pause
            }
            Err(failure) => {
                let pause = pause(pauses(&failure), failures);
                tell_failure(&orders, &failure, pause);
                pause
            }
        };
        failures += 1;
        sleep(pause).await;
    }
}

fn now() -> Duration {
    Duration::from_secs(clock::unix_seconds())
}

fn hours_to(end: Option<Duration>) -> u64 {
    end.unwrap_or_default().saturating_sub(now()).as_secs() / 3600
}

async fn wait_until(due: Duration) {
    loop {
        let left = due.saturating_sub(now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK_EVERY)).await;
    }
}

fn pauses(failure: &AcmeFailure) -> &'static Pauses {
    match failure {
        AcmeFailure::Unavailable(_) => &UNAVAILABLE,
        AcmeFailure::Refused(_) | AcmeFailure::File(_) => &REFUSED,
    }
}

/// Twice as long after each failure in a row.
fn pause(pauses: &Pauses, failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures);
    pauses.first.saturating_mul(factor).min(pauses.longest)
}

fn tell_issue(orders: &AcmeOrders, issue: &AcmeIssue) {
    let domains = orders.domains().join(" ");
    let valid_h = hours_to(orders.end());
    tracing::info!(domains, valid_h, "a TLS certificate was issued; new connections get it");
    if let Some(problem) = &issue.not_kept {
        tracing::error!(%problem, "the TLS certificate cannot be kept; the next start will order another");
    }
}

fn tell_failure(orders: &AcmeOrders, failure: &AcmeFailure, pause: Duration) {
    let (domains, retry_in_s) = (orders.domains().join(" "), pause.as_secs());
    match orders.end() {
        Some(end) if end > now() => {
            let valid_h = hours_to(Some(end));
            tracing::warn!(
                domains, %failure, valid_h, retry_in_s,
                "the TLS certificate cannot be renewed; the one in use stays"
            );
        }
        Some(_) => tracing::error!(
            domains, %failure, retry_in_s,
            "the TLS certificate has expired and cannot be renewed"
        ),
        None => tracing::error!(
            domains, %failure, retry_in_s,
            "there is no TLS certificate yet: clients cannot connect to `listen`"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(failure: &AcmeFailure, seconds: &[u64]) {
        let found: Vec<_> =
            (0..).map(|n| pause(pauses(failure), n).as_secs()).take(seconds.len()).collect();
        assert_eq!(found, seconds);
        assert_eq!(pause(pauses(failure), u32::MAX), pauses(failure).longest);
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let why = || "why".to_owned();
        let away = [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600];
        check(&AcmeFailure::Unavailable(why()), &away);
        check(&AcmeFailure::Refused(why()), &[600, 1200, 2400, 4800, 9600, 19200, 21600, 21600]);
    }
}
