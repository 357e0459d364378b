//! What a loop remembers of its upstream from one question to the next.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// One that does not know a tag is left alone for this long in the end; after its first refusal,
/// which may be a fault, it is asked again at the usual time, and then each time twice as late.
const FINALITY_REFUSED: Duration = Duration::from_secs(600);
/// A fall of one upstream is logged at most this often: a broken feed can fall back
/// thousands of times a second.
const FALL_TOLD_EVERY: Duration = Duration::from_secs(60);

/// What it last said of itself.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) asked: Option<Instant>,
    pub(crate) syncing: bool,
    pub(crate) isolated: bool,
    pub(crate) finality: FinalityQuestions,
    pub(crate) origin_due: Option<Instant>,
    pub(crate) block_hash: HashProbe,
}

/// When it was asked for safe and final blocks, and which of the two it refuses.
#[derive(Debug, Default)]
pub(crate) struct FinalityQuestions {
    pub(crate) asked: Option<Instant>,
    pub(crate) finalized: TagRefusal,
    pub(crate) safe: TagRefusal,
}

/// How long a tag that was refused is not asked for.
#[derive(Debug, Default)]
pub(crate) struct TagRefusal {
    pause: Duration,
    until: Option<Instant>,
}

impl TagRefusal {
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Notes whether the tag was known, where it is asked for each `every`.
    pub(crate) fn note(&mut self, was_known: bool, every: Duration, now: Instant) {
        *self = match was_known {
            true => Self::default(),
            false => {
                let pause = (self.pause * 2).clamp(every, FINALITY_REFUSED);
                Self { pause, until: Some(now + pause) }
            }
        };
    }
}

/// What was found out of one upstream.
#[derive(Debug, Default)]
pub(crate) struct HashProbe {
    pub(crate) due: Option<Instant>,
    /// The name and version that it last gave itself.
    pub(crate) version: Option<String>,
    /// Whether it is known whether it honours hashes.
    pub(crate) is_known: bool,
    /// The pause before the next question, while it is not.
    pub(crate) pause: Duration,
}

/// When a fall of one upstream was last logged.
#[derive(Debug, Default)]
pub(crate) struct Falls(Mutex<Option<Instant>>);

impl Falls {
    /// Notes a fall at `now`; true when it is to be logged.
    pub(crate) fn tell(&self, now: Instant) -> bool {
        let mut told = self.0.lock();
        let due = told.is_none_or(|at| now.saturating_duration_since(at) >= FALL_TOLD_EVERY);
        if due {
            *told = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_are_told_once_a_minute() {
        let (falls, begun) = (Falls::default(), crate::ask::now());
        let told: Vec<u64> =
            (0..=120).filter(|second| falls.tell(begun + Duration::from_secs(*second))).collect();
        assert_eq!(told, [0, 60, 120]);
    }
}
