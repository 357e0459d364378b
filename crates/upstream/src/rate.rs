//! One rate of a budget: a bucket or a window of this process, or a bucket that replicas share.

use std::sync::Arc;
use std::time::Duration;

use wellhead_limit::lease::{LeaseShortage, LeasedBucket};
use wellhead_limit::{Bucket, FixedWindow, Pace};

use crate::bound::{Bound, LimitedBy};
use crate::budget::BudgetRate;

/// How soon to look again, where replicas share a rate and their store has not said yet whether there is
/// something left: a store that is well answers within this.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_millis(6);

/// What is counted against one rate, whichever way it is metered.
#[derive(Debug, Default)]
pub(crate) struct RateState {
    bucket: Bucket,
    window: FixedWindow,
    /// In the place of the bucket, where replicas share it.
    pub(crate) shared: Option<Arc<LeasedBucket>>,
}

impl RateState {
    /// A rate that replicas share, where there is one.
    pub(crate) fn shared(shared: Option<Arc<LeasedBucket>>) -> Self {
        Self { shared, ..Self::default() }
    }

    pub(crate) fn take(
        &self,
        rate: BudgetRate,
        credits: f64,
        now: Duration,
        bound: Bound,
    ) -> Result<(), LimitedBy> {
        let (taken, pace) = match rate {
            BudgetRate::Paced(pace) => {
                let taken = match &self.shared {
                    None => self.bucket.take(credits, pace, now),
                    Some(shared) => shared.take(credits, now).map_err(|short| match short {
                        LeaseShortage::Refused(wait) => wait,
                        LeaseShortage::Unanswered(wait) => wait.min(ANSWER_WAIT),
                    }),
                };
                (taken, pace.time_of(credits))
            }
            BudgetRate::Counted { credits: most, window } => {
                let taken = self.window.take(credits as u64, most, window, now);
                (taken, window.mul_f64((credits / most.max(1) as f64).min(1.0)))
            }
        };
        taken.map_err(|wait| LimitedBy { bound, wait, pace })
    }

    pub(crate) fn charge(&self, pace: Pace, credits: f64, now: Duration) {
        match &self.shared {
            None => self.bucket.charge(credits, pace, now),
            Some(shared) => shared.charge(credits, now),
        }
    }

    pub(crate) fn give_back(&self, rate: BudgetRate, credits: f64) {
        match rate {
            BudgetRate::Paced(pace) => match &self.shared {
                None => self.bucket.give_back(credits, pace),
                Some(shared) => shared.give_back(credits),
            },
            BudgetRate::Counted { .. } => self.window.give_back(credits as u64),
        }
    }

    pub(crate) fn wait(&self, rate: BudgetRate, credits: f64, now: Duration) -> Duration {
        match rate {
            BudgetRate::Paced(pace) => match &self.shared {
                None => self.bucket.wait(credits, pace, now),
                Some(shared) => shared.wait(credits, now),
            },
            BudgetRate::Counted { credits: most, window } => {
                self.window.wait(credits as u64, most, window, now)
            }
        }
    }
}
