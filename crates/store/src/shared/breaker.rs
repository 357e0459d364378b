//! When a connection has been late or wrong so often that it is not worth asking.

use std::sync::atomic::{AtomicU32, Ordering};

/// What a failure weighs. A good answer takes one off, so that in the long run one
/// failure in a hundred is borne, and the 99th percentile of gets is a good one.
const FAILURE: u32 = 99;

/// Five failures in a row are enough.
const TRIP_AT: u32 = 5 * FAILURE;

/// Counts for one connection. Once tripped, it stays so: the next
/// connection begins a new one.
#[derive(Debug, Default)]
pub(crate) struct Breaker(AtomicU32);

impl Breaker {
    pub(crate) fn answered(&self) {
        // Nearly always there is nothing to take off, and nothing to write.
        if self.0.load(Ordering::Relaxed) > 0 {
            let less = |score: u32| (score < TRIP_AT).then_some(score.saturating_sub(1));
            let _tripped_stays = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Says whether this failure was one too many; to one caller only.
    pub(crate) fn failed(&self) -> bool {
        let before = self.0.fetch_add(FAILURE, Ordering::Relaxed);
        before < TRIP_AT && before.saturating_add(FAILURE) >= TRIP_AT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `o` is a good answer, `x` a failure; the position of the one that trips.
    fn check(answers: &str, trips_at: Option<usize>) {
        let breaker = Breaker::default();
        let tripped: Vec<usize> = answers
            .chars()
            .enumerate()
            .filter(|(_, answer)| match answer {
                'o' => {
                    breaker.answered();
                    false
                }
                _ => breaker.failed(),
            })
            .map(|(at, _)| at)
            .collect();
        assert_eq!(tripped, Vec::from_iter(trips_at));
    }

    #[test]
    fn five_in_a_row() {
        check("xxxx", None);
        check("xxxxxxxx", Some(4));
    }
    #[test]
    fn good_answers_do_not_save_what_fails_often() {
        check(&"oooox".repeat(8), Some(4 * 5 + 4 + 5));
    }
    #[test]
    fn one_in_a_hundred_is_borne() {
        check(&format!("x{}", "o".repeat(99)).repeat(50), None);
    }
    #[test]
    fn one_in_fifty_is_not() {
        check(&format!("x{}", "o".repeat(49)).repeat(9), Some(400));
    }
}
