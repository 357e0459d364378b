//! One rate of a budget: a bucket or a window, of this process or shared by replicas.

use std::sync::Arc;
use std::time::Duration;

use wellhead_limit::lease::{LeaseShortage, LeasedBucket, LeasedLimit, LeasedWindow};
use wellhead_limit::{Bucket, FixedWindow};

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
    /// In the place of these, where replicas share the rate.
    shared: Option<SharedRate>,
}

/// A rate that replicas share.
#[derive(Debug)]
enum SharedRate {
    Bucket(Arc<LeasedBucket>),
    Window(Arc<LeasedWindow>),
}

fn limited_wait(shortage: LeaseShortage) -> Duration {
    match shortage {
        LeaseShortage::Refused(wait) => wait,
        LeaseShortage::Unanswered(wait) => wait.min(ANSWER_WAIT),
    }
}

impl RateState {
    /// Of a rate that replicas share; `share` gets what is to be served.
    pub(crate) fn shared(rate: BudgetRate, share: impl FnOnce(LeasedLimit)) -> Self {
        let shared = match rate {
            BudgetRate::Paced(pace) => {
                let bucket = Arc::new(LeasedBucket::new(pace.per_second(), pace.burst()));
                share(LeasedLimit::Bucket(Arc::clone(&bucket)));
                SharedRate::Bucket(bucket)
            }
            BudgetRate::Counted { credits, window } => {
                let window = Arc::new(LeasedWindow::new(credits, window));
                share(LeasedLimit::Window(Arc::clone(&window)));
                SharedRate::Window(window)
            }
        };
        Self { shared: Some(shared), ..Self::default() }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub(crate) fn take(
        &self,
        rate: BudgetRate,
        credits: f64,
        now: Duration,
        bound: Bound,
    ) -> Result<(), LimitedBy> {
        let taken = match (&self.shared, rate) {
            (Some(SharedRate::Bucket(shared)), _) => {
                shared.take(credits, now).map_err(limited_wait)
            }
            (Some(SharedRate::Window(shared)), _) => {
                shared.take(credits, now).map_err(limited_wait)
            }
            (None, BudgetRate::Paced(pace)) => self.bucket.take(credits, pace, now),
            (None, BudgetRate::Counted { credits: most, window }) => {
                self.window.take(credits as u64, most, window, now)
            }
        };
        taken.map_err(|wait| {
            let pace = match rate {
                BudgetRate::Paced(pace) => pace.time_of(credits),
                BudgetRate::Counted { credits: most, window } => {
                    window.mul_f64((credits / most.max(1) as f64).min(1.0))
                }
            };
            LimitedBy { bound, wait, pace }
        })
    }

    /// Takes what was spent regardless.
    pub(crate) fn charge(&self, rate: BudgetRate, credits: f64, now: Duration) {
        match (&self.shared, rate) {
            (Some(SharedRate::Bucket(shared)), _) => shared.charge(credits, now),
            (Some(SharedRate::Window(shared)), _) => shared.charge(credits, now),
            (None, BudgetRate::Paced(pace)) => self.bucket.charge(credits, pace, now),
            (None, BudgetRate::Counted { window, .. }) => {
                self.window.charge(credits as u64, window, now);
            }
        }
    }

    pub(crate) fn give_back(&self, rate: BudgetRate, credits: f64) {
        match (&self.shared, rate) {
            (Some(SharedRate::Bucket(shared)), _) => shared.give_back(credits),
            (Some(SharedRate::Window(shared)), _) => shared.give_back(credits),
            (None, BudgetRate::Paced(pace)) => self.bucket.give_back(credits, pace),
            (None, BudgetRate::Counted { .. }) => self.window.give_back(credits as u64),
        }
    }

    pub(crate) fn wait(&self, rate: BudgetRate, credits: f64, now: Duration) -> Duration {
        match (&self.shared, rate) {
            (Some(SharedRate::Bucket(shared)), _) => shared.wait(credits, now),
            (Some(SharedRate::Window(shared)), _) => shared.wait(credits, now),
            (None, BudgetRate::Paced(pace)) => self.bucket.wait(credits, pace, now),
            (None, BudgetRate::Counted { credits: most, window }) => {
                self.window.wait(credits as u64, most, window, now)
            }
        }
    }
}
