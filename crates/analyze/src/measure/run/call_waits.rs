//! Whether calls of an open loop waited here for each other, and which side caused that.
//!
//! Whatever number of connections we have, there is a rate at which all of them are full, and calls
//! wait until one of them has room. Where that is our bound, nothing is said of the provider. It
//! may as well be the provider's: one that is offered more than it bears grows slow, and one that
//! grows slow fills any number of connections. The two differ in what calls take once they are on
//! the wire: as long as before where we are the bound, and ever longer where the provider is.

use std::time::Duration;

use wellhead_transport::TransportErrorKind;

use super::sample::Sample;
use crate::measure::client::FinishedCall;
use crate::record::trial;

/// The provider has grown slow where calls take this many times what they took at first.
const GROWN: f64 = 1.5;
/// A call is alone where at most one of this many places is taken.
const ALONE: usize = 4;

/// Calls of a cell, or of a part of it. Times are microseconds.
#[derive(Debug, Default)]
pub(super) struct CallWaits {
    /// From when a call should have begun until it had a place, of all calls.
    late: Sample,
    /// On the wire, of calls that found most places free.
    alone: Sample,
    /// Likewise, of those that found none.
    waited: Sample,
    /// Calls that were never answered, and the places that there are for calls.
    unanswered: usize,
    places: usize,
}

impl CallWaits {
    /// A call that began `late_us` after it should have is over.
    pub(super) fn add(&mut self, done: &FinishedCall, late_us: f64) {
        let us = |length: Duration| length.as_secs_f64() * 1e6;
        let is_full = done.under_way >= done.places;
        self.late.add(late_us + if is_full { us(done.queued()) } else { 0.0 });
        self.places = self.places.max(done.places);
        let timeout = TransportErrorKind::Timeout.word();
        self.unanswered += usize::from(done.call.error.as_deref() == Some(timeout));
        if !trial::served(&done.call) {
            return;
        }
        if is_full {
            self.waited.add(us(done.on_the_wire()));
        } else if done.under_way <= done.places / ALONE {
            self.alone.add(us(done.on_the_wire()));
        }
    }

    /// Whether more than one call in a hundred was later than this many microseconds, because it
    /// waited for a place of ours.
    pub(super) fn is_ours(&self, late_max_us: f64) -> bool {
        let is_late = self.late.quantile(0.99).is_some_and(|late| late > late_max_us);
        let grown = match (self.alone.quantile(0.5), self.waited.quantile(0.5)) {
            (Some(alone), Some(waited)) => waited > GROWN * alone,
            (None, Some(_)) => false,
            // No call waited, or none that did was served.
            (_, None) => true,
        };
        // A provider that does not answer keeps the places that those calls have.
        let is_kept = self.unanswered * 2 >= self.places.max(1);
        is_late && !grown && !is_kept
    }

    /// For the next part: what a call takes alone is known from the first.
    pub(super) fn rolled(&mut self) -> Self {
        Self { alone: std::mem::take(&mut self.alone), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::time::Instant;

    use super::*;
    use crate::record::CallRecord;

    const PLACES: usize = 8;

    /// A call that ends `ms` milliseconds after it began, and that found `under_way` others in progress.
    fn done(call: CallRecord, ms: u64, under_way: usize) -> FinishedCall {
        let begun = Instant::now();
        let ended = begun + Duration::from_millis(ms);
        FinishedCall { call, begun, ended, body: Bytes::new(), under_way, places: PLACES }
    }

    /// An answer whose call waited `queue_ms` milliseconds for a place.
    fn answer(queue_ms: u64) -> CallRecord {
        let class = "answer".to_owned();
        CallRecord { queue: Some(queue_ms * 1_000), class, ..CallRecord::default() }
    }

    /// 100 calls, each of which finds as many under way as it is told, waits this many milliseconds
    /// where these are all, and then takes this many on the wire.
    fn cell(under_way: impl Fn(u64) -> usize, waits: u64, takes: impl Fn(u64) -> u64) -> CallWaits {
        let mut calls = CallWaits::default();
        for n in 0..100 {
            let queue = if under_way(n) >= PLACES { waits } else { 0 };
            calls.add(&done(answer(queue), queue + takes(n), under_way(n)), 500.0);
        }
        calls
    }

    #[test]
    fn full_and_as_quick_as_before_it_is_we() {
        assert!(cell(|n| n as usize, 300, |_| 200).is_ours(10_000.0));
        assert!(cell(|n| n as usize, 300, |n| 200 + n % 60).is_ours(10_000.0));
    }

    #[test]
    fn full_and_slow_it_is_they() {
        assert!(!cell(|n| n as usize, 300, |n| 200 + 10 * n).is_ours(10_000.0));
    }

    #[test]
    fn full_of_calls_that_are_never_answered_it_is_they() {
        let mut calls = cell(|n| n as usize, 300, |_| 200);
        for _ in 0..PLACES / 2 {
            assert!(calls.is_ours(10_000.0));
            let error = Some(TransportErrorKind::Timeout.word().to_owned());
            let call = CallRecord { error, ..CallRecord::default() };
            calls.add(&done(call, 15_000, PLACES), 0.0);
        }
        assert!(!calls.is_ours(10_000.0));
    }

    #[test]
    fn a_wait_that_is_short_or_rare_is_none() {
        assert!(!cell(|n| n as usize, 9, |_| 200).is_ours(10_000.0));
        assert!(!cell(|n| if n == 50 { PLACES } else { 1 }, 300, |_| 200).is_ours(10_000.0));
    }

    #[test]
    fn with_a_free_place_a_call_waits_for_the_provider() {
        // It closed the connection, and another one is opened.
        assert!(!cell(|_| 2, 300, |_| 200).is_ours(10_000.0));
    }

    #[test]
    fn what_a_call_takes_alone_is_remembered() {
        let mut first = cell(|n| n as usize, 300, |_| 200);
        let mut next = first.rolled();
        assert!(!next.is_ours(10_000.0), "nothing is over yet");
        next.add(&done(answer(300), 1_300, PLACES), 0.0);
        assert!(!next.is_ours(10_000.0), "it takes five times as long");
    }
}
