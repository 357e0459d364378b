//! What is told of an upstream's failures, in its status and in the log.

use std::time::Instant;

use wellhead_eth::MethodRow;
use wellhead_upstream::{Change, HealthEffect, Upstream, Verdict};

/// Words for the upstream's status and, when something changed, for the log.
pub(crate) fn note(
    upstream: &Upstream,
    row: &MethodRow,
    verdict: &Verdict,
    change: Change,
    was_unwell: bool,
    now: Instant,
) {
    let id = &upstream.identity().id;
    if change == Change::Recovered {
        tracing::info!(upstream = %id, "upstream recovered");
    }
    match verdict.health {
        HealthEffect::Good | HealthEffect::Neutral => return,
        HealthEffect::Throttled
        | HealthEffect::Failed
        | HealthEffect::FailedAtOnce
        | HealthEffect::OutOfService => {}
    }
    let detail = verdict.detail();
    upstream.note_failure(verdict.class, format!("{}: {detail}", verdict.class.word()), now);
    let (method, rule) = (row.name, verdict.rule);
    match change {
        // It rested before and goes on: that was said when it began.
        Change::Rests if was_unwell => {
            tracing::debug!(upstream = %id, method, rule, %detail, "upstream failed again: its breaker stays open longer");
        }
        Change::Rests => {
            tracing::warn!(upstream = %id, method, rule, %detail, "upstream failed: its breaker is open; sending calls to other upstreams");
        }
        Change::ClassRests => {
            let class = row.class.word();
            tracing::warn!(upstream = %id, class, method, rule, %detail, "upstream fails calls of this class; sending them to other upstreams");
        }
        Change::WentOutOfService => {
            tracing::error!(upstream = %id, method, rule, %detail, "upstream refused the key or account; out of service until a probe succeeds");
        }
        Change::None | Change::Recovered => {
            tracing::debug!(upstream = %id, method, rule, %detail, "attempt failed");
        }
    }
}
