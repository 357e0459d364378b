//! Moments in a form that threads can share.
//!
//! A moment is kept in an atomic, so it is a number: whole milliseconds since the upstream was made, or whatever else
//! it is a moment of.
//! [`Stamp`] keeps that number apart from other numbers. It is never zero, which is how a
//! [`StampCell`] stores that there is none.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A moment: milliseconds since its owner was made, and one, so that it is never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(NonZeroU64);

impl Stamp {
    /// The moment `since_start` after its owner was made.
    pub fn at(since_start: Duration) -> Self {
        Self(NonZeroU64::MIN.saturating_add(whole_ms(since_start)))
    }

    /// The stamp with this number; `None` for zero.
    pub(crate) fn from_ms(ms: u64) -> Option<Self> {
        NonZeroU64::new(ms).map(Self)
    }

    /// Its number.
    pub(crate) fn ms(self) -> u64 {
        self.0.get()
    }

    /// The moment `time` after this one.
    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(whole_ms(time)))
    }

    /// How long `earlier` is ago at this moment; zero when it is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.ms().saturating_sub(earlier.ms()))
    }
}

/// In two steps, as a division of 128 bits is dear.
fn whole_ms(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1_000);
    seconds.saturating_add(u64::from(time.subsec_millis()))
}

/// When an exchange began and when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExchangeSpan {
    pub(crate) began: Stamp,
    pub(crate) ended: Stamp,
}

/// A stamp that threads share, or none. Says nothing of the order of other writes.
#[derive(Debug, Default)]
pub struct StampCell(AtomicU64);

impl StampCell {
    /// The stamp, if there is one.
    pub fn get(&self) -> Option<Stamp> {
        Stamp::from_ms(self.0.load(Relaxed))
    }

    /// Stores `stamp`.
    pub fn set(&self, stamp: Stamp) {
        self.0.store(stamp.ms(), Relaxed);
    }

    /// Whether the stamp is at most `time` ago.
    pub fn is_within(&self, time: Duration, now: Stamp) -> bool {
        self.get().is_some_and(|stamp| now <= stamp.after(time))
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Stores `stamp`; what was there before.
    pub(crate) fn swap(&self, stamp: Stamp) -> Option<Stamp> {
        Stamp::from_ms(self.0.swap(stamp.ms(), Relaxed))
    }

    /// Stores `new` if there is still `old`; whether it did.
    pub(crate) fn replace(&self, old: Option<Stamp>, new: Option<Stamp>) -> bool {
        let number = |stamp: Option<Stamp>| stamp.map_or(0, Stamp::ms);
        self.0.compare_exchange(number(old), number(new), Relaxed, Relaxed).is_ok()
    }

    /// Stores `stamp` unless there is a later one; whether it did.
    pub(crate) fn advance(&self, stamp: Stamp) -> bool {
        self.0.fetch_max(stamp.ms(), Relaxed) < stamp.ms()
    }

    /// Stores `stamp` unless there is an earlier one.
    pub(crate) fn keep_earliest(&self, stamp: Stamp) {
        let earlier = |ms: u64| (ms == 0 || ms > stamp.ms()).then_some(stamp.ms());
        // It fails when an earlier one is there.
        let _ = self.0.fetch_update(Relaxed, Relaxed, earlier);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A stamp of a script.
    pub(crate) fn ms(ms: u64) -> Stamp {
        Stamp::from_ms(ms).expect("a moment is never zero")
    }

    /// A span of a script.
    pub(crate) fn span(began: u64, ended: u64) -> ExchangeSpan {
        ExchangeSpan { began: ms(began), ended: ms(ended) }
    }

    #[test]
    fn a_stamp_counts_whole_milliseconds_from_one() {
        assert_eq!(Stamp::at(Duration::ZERO), ms(1));
        assert_eq!(Stamp::at(Duration::from_micros(2_999)), ms(3));
        assert_eq!(Stamp::at(Duration::MAX), ms(u64::MAX));
        assert_eq!(ms(5).after(Duration::from_micros(1_999)), ms(6));
        assert_eq!(ms(5).after(Duration::MAX), ms(u64::MAX));
        assert_eq!(ms(7).since(ms(5)), Duration::from_millis(2));
        assert_eq!(ms(5).since(ms(7)), Duration::ZERO);
    }

    #[test]
    fn a_cell_keeps_one_stamp_or_none() {
        let cell = StampCell::default();
        assert_eq!(cell.get(), None);
        cell.keep_earliest(ms(5));
        cell.keep_earliest(ms(7));
        assert_eq!(cell.get(), Some(ms(5)));
        assert_eq!(
            (cell.advance(ms(5)), cell.advance(ms(6)), cell.advance(ms(4))),
            (false, true, false)
        );
        assert_eq!(cell.swap(ms(3)), Some(ms(6)));
        assert!(!cell.replace(None, Some(ms(9))) && cell.replace(Some(ms(3)), None));
        assert_eq!(cell.get(), None);
    }
}
