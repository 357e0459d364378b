//! What is told of an upstream's failures, in its status and in the log.

use std::time::Instant;

use wellhead_eth::MethodRow;
use wellhead_upstream::{Change, HealthEffect, Upstream, Verdict};

/// An exchange with an upstream, which is settled there and told of.
#[derive(Clone, Copy)]
pub(crate) struct ExchangeRecord<'a> {
    pub(crate) upstream: &'a Upstream,
    /// The row by which it is timed.
    pub(crate) row: &'a MethodRow,
    pub(crate) began: Instant,
    /// It rested when the exchange began.
    pub(crate) was_unwell: bool,
}

impl<'a> ExchangeRecord<'a> {
    pub(crate) fn new(upstream: &'a Upstream, row: &'a MethodRow, began: Instant) -> Self {
        Self { upstream, row, began, was_unwell: upstream.probe_due(began).is_some() }
    }

    /// Takes the verdict into account, as of `came`, and tells of it at `now`.
    pub(crate) fn settle(self, verdict: &Verdict, came: Instant, now: Instant) {
        let change = self.upstream.settle(self.row, verdict, self.began, came);
        self.tell(verdict, change, now);
    }

    /// Words for the upstream's status and, when something changed, for the log.
    pub(crate) fn tell(self, verdict: &Verdict, change: Change, now: Instant) {
        let Self { upstream, row, was_unwell, .. } = self;
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
}
