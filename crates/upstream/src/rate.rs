//! One rate of a budget: a bucket or a window, of this process or shared by replicas.

use std::sync::Arc;
use std::time::Duration;

use wellhead_limit::lease::{LeaseShortage, LeasedBucket, LeasedLimit, LeasedWindow};
use wellhead_limit::{Bucket, FixedWindow, Pace};

use crate::bound::{Bound, LimitedBy};
use crate::budget::BudgetRate;

/// How soon to look again, where replicas share a rate and their store has not said yet whether there is
/// something left: a store that is well answers within this.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_millis(6);

/// One rate, and what is counted against it.
#[derive(Debug)]
pub(crate) enum MeteredRate {
    Bucket(Pace, Bucket),
    Window { credits: u64, window: Duration, state: FixedWindow },
    SharedBucket(Pace, Arc<LeasedBucket>),
    SharedWindow { credits: u64, window: Duration, state: Arc<LeasedWindow> },
}

fn limited_wait(shortage: LeaseShortage) -> Duration {
    match shortage {
        LeaseShortage::Refused(wait) => wait,
        LeaseShortage::Unanswered(wait) => wait.min(ANSWER_WAIT),
    }
}

impl MeteredRate {
    /// Of this process alone.
    pub(crate) fn new(rate: BudgetRate) -> Self {
        match rate {
            BudgetRate::Paced(pace) => Self::Bucket(pace, Bucket::default()),
            BudgetRate::Counted { credits, window } => {
                Self::Window { credits, window, state: FixedWindow::default() }
            }
        }
    }

    /// Of a rate that replicas share; `share` gets what is to be served.
    pub(crate) fn shared(rate: BudgetRate, share: impl FnOnce(LeasedLimit)) -> Self {
        match rate {
            BudgetRate::Paced(pace) => {
                let bucket = Arc::new(LeasedBucket::new(pace.per_second(), pace.burst()));
                share(LeasedLimit::Bucket(Arc::clone(&bucket)));
                Self::SharedBucket(pace, bucket)
            }
            BudgetRate::Counted { credits, window } => {
                let state = Arc::new(LeasedWindow::new(credits, window));
                share(LeasedLimit::Window(Arc::clone(&state)));
                Self::SharedWindow { credits, window, state }
            }
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::SharedBucket(..) | Self::SharedWindow { .. })
    }

    /// Whether the provider counts in windows.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self, Self::Window { .. } | Self::SharedWindow { .. })
    }

    pub(crate) fn take(&self, credits: f64, now: Duration, bound: Bound) -> Result<(), LimitedBy> {
        let taken = match self {
            Self::Bucket(pace, bucket) => bucket.take(credits, *pace, now),
            Self::Window { credits: most, window, state } => {
                state.take(credits as u64, *most, *window, now)
            }
            Self::SharedBucket(_, bucket) => bucket.take(credits, now).map_err(limited_wait),
            Self::SharedWindow { state, .. } => state.take(credits, now).map_err(limited_wait),
        };
        taken.map_err(|wait| LimitedBy { bound, wait, pace: self.time_of(credits) })
    }

    /// The time in which this many credits come back.
    fn time_of(&self, credits: f64) -> Duration {
        match self {
            Self::Bucket(pace, _) | Self::SharedBucket(pace, _) => pace.time_of(credits),
            Self::Window { credits: most, window, .. }
            | Self::SharedWindow { credits: most, window, .. } => {
                window.mul_f64((credits / (*most).max(1) as f64).min(1.0))
            }
        }
    }

    /// Takes what was spent regardless.
    pub(crate) fn charge(&self, credits: f64, now: Duration) {
        match self {
            Self::Bucket(pace, bucket) => bucket.charge(credits, *pace, now),
            Self::Window { window, state, .. } => state.charge(credits as u64, *window, now),
            Self::SharedBucket(_, bucket) => bucket.charge(credits, now),
            Self::SharedWindow { state, .. } => state.charge(credits, now),
        }
    }

    /// Takes all that a bucket holds, where it is one.
    pub(crate) fn empty(&self, now: Duration) {
        if let Self::Bucket(pace, _) | Self::SharedBucket(pace, _) = self {
            self.charge(pace.burst(), now);
        }
    }

    pub(crate) fn give_back(&self, credits: f64) {
        match self {
            Self::Bucket(pace, bucket) => bucket.give_back(credits, *pace),
            Self::Window { state, .. } => state.give_back(credits as u64),
            Self::SharedBucket(_, bucket) => bucket.give_back(credits),
            Self::SharedWindow { state, .. } => state.give_back(credits),
        }
    }

    pub(crate) fn wait(&self, credits: f64, now: Duration) -> Duration {
        match self {
            Self::Bucket(pace, bucket) => bucket.wait(credits, *pace, now),
            Self::Window { credits: most, window, state } => {
                state.wait(credits as u64, *most, *window, now)
            }
            Self::SharedBucket(_, bucket) => bucket.wait(credits, now),
            Self::SharedWindow { state, .. } => state.wait(credits, now),
        }
    }
}
