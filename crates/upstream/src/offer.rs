//! Which methods an upstream offers, as far as its answers say.
//!
//! One that says that it does not know a method is a last resort for such calls for a while. One
//! that has never answered the method, or refuses it again [`CONFIRMED_AFTER`] after it first
//! did, **lacks** it and is not asked at all meanwhile. An upstream that refuses by mistake for a
//! moment, what it answered before, must not keep a method that works from clients for minutes.
//!
//! A refusal that is about the call and not about the method (a tracer of the caller's own, old
//! state that is not in a plan) shows that the method is there. What an upstream refused before
//! it rested is forgotten when it comes back: it may be another node by then.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wellhead_eth::{MethodRow, MethodTable};

use crate::stamp::Stamp;
use crate::{Learnt, Verdict, VerdictClass};

/// A method that an upstream does not know is kept from it for this long.
const REFUSED_FOR: Duration = Duration::from_secs(300);
/// A method that was answered before lacks when it is refused again this long after it first was.
const CONFIRMED_AFTER: Duration = Duration::from_secs(10);
/// Set where the method was answered, or is known to be there.
const IS_THERE: u64 = 1 << 63;

/// What is known of one method at one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Nothing speaks against asking.
    Open,
    /// It was refused lately, and may be there nevertheless.
    Refused,
    /// It is not there.
    Lacking,
}

/// By row of the method table, when the method was last refused (a [`Stamp`], zero for
/// never), and whether it was ever answered.
/// Room is taken with the first word.
#[derive(Debug, Default)]
pub(crate) struct Offers(OnceLock<Box<[AtomicU64]>>);

impl Offers {
    fn at(&self, row: &MethodRow) -> &AtomicU64 {
        let rows = MethodTable::standard().rows().len();
        let all = self.0.get_or_init(|| (0..rows).map(|_| AtomicU64::new(0)).collect());
        &all[row.index.get()]
    }

    fn value(&self, row: &MethodRow) -> u64 {
        self.0.get().map_or(0, |all| all[row.index.get()].load(Ordering::Relaxed))
    }

    /// Takes a verdict into account. `is_void` says of a time whether what was refused then is
    /// forgotten.
    pub(crate) fn settle(
        &self,
        row: &MethodRow,
        verdict: &Verdict,
        now: Stamp,
        is_void: impl Fn(Stamp) -> bool,
    ) {
        let is_there = matches!(verdict.learnt, Some(Learnt::MethodOffered | Learnt::NoHistory));
        match verdict.class {
            VerdictClass::Unsupported => self.refused(row, !is_there, now, is_void),
            class if class.shows_method() => self.answered(row),
            _ => {}
        }
    }

    /// Notes that the method was answered. One load, but for the first time.
    fn answered(&self, row: &MethodRow) {
        let known = self.at(row);
        if known.load(Ordering::Relaxed) != IS_THERE {
            known.store(IS_THERE, Ordering::Relaxed);
        }
    }

    /// Notes that a call was refused: because the method `is_unknown`, or for what it asked.
    fn refused(
        &self,
        row: &MethodRow,
        is_unknown: bool,
        now: Stamp,
        is_void: impl Fn(Stamp) -> bool,
    ) {
        // All calls of methods that are in no table share a row.
        if row.is_unknown() {
            return;
        }
        let known = self.at(row);
        let value = known.load(Ordering::Relaxed);
        let is_there = value & IS_THERE != 0;
        let value = match lasting(value, now, is_void) {
            _ if !is_unknown => now.ms() | IS_THERE,
            Some(since) if is_there && now < since.after(CONFIRMED_AFTER) => return,
            None if is_there => now.ms() | IS_THERE,
            Some(_) | None => now.ms(),
        };
        known.store(value, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, row: &MethodRow, now: Stamp, is_void: impl Fn(Stamp) -> bool) -> Offer {
        let value = self.value(row);
        match lasting(value, now, is_void) {
            None => Offer::Open,
            Some(_) if value & IS_THERE != 0 => Offer::Refused,
            Some(_) => Offer::Lacking,
        }
    }

    /// Whether the method was answered, and not refused for good since.
    pub(crate) fn is_there(&self, row: &MethodRow) -> bool {
        !row.is_unknown() && self.value(row) & IS_THERE != 0
    }
}

/// Since when it is refused, where that still counts.
fn lasting(value: u64, now: Stamp, is_void: impl Fn(Stamp) -> bool) -> Option<Stamp> {
    let since = Stamp::from_ms(value & !IS_THERE)?;
    (now < since.after(REFUSED_FOR) && !is_void(since)).then_some(since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::tests::ms;

    /// Plays `5a` (answered after 5 s in all), `5u` (refused as unknown), `5r` (refused for what
    /// was asked), `5b` (back after a rest) and compares what each `5?` says.
    fn check(script: &str, expected: &[Offer]) {
        let row = MethodTable::standard().row("trace_block");
        let offers = Offers::default();
        let (mut back_at, mut seen) = (None, Vec::new());
        for step in script.split_whitespace() {
            let (seconds, act) = step.split_at(step.len() - 1);
            let now = ms(1 + 1_000 * seconds.parse::<u64>().expect("seconds"));
            let is_void = |at| Some(at) <= back_at;
            match act {
                "a" => offers.answered(row),
                "u" => offers.refused(row, true, now, is_void),
                "r" => offers.refused(row, false, now, is_void),
                "b" => back_at = Some(now),
                "?" => seen.push(offers.of(row, now, is_void)),
                other => panic!("unknown act {other}"),
            }
        }
        assert_eq!(seen, expected, "{script}");
    }

    #[test]
    fn what_was_never_answered_is_lacking_until_the_refusal_is_old() {
        check("0? 1u 1? 300? 301?", &[Offer::Open, Offer::Lacking, Offer::Lacking, Offer::Open]);
        check("1u 300u 301? 599? 600?", &[Offer::Lacking, Offer::Lacking, Offer::Open]);
    }

    #[test]
    fn what_was_answered_before_is_refused_until_that_is_confirmed() {
        check("0a 1u 1? 5u 5? 301?", &[Offer::Refused, Offer::Refused, Offer::Open]);
        check("0a 1u 11u 11? 310? 311?", &[Offer::Lacking, Offer::Lacking, Offer::Open]);
        // An answer is proof.
        check("0u 1a 1? 2u 2?", &[Offer::Open, Offer::Refused]);
    }

    #[test]
    fn a_refusal_of_one_call_says_that_the_method_is_there() {
        check(
            "0r 0? 20r 20? 319? 320?",
            &[Offer::Refused, Offer::Refused, Offer::Refused, Offer::Open],
        );
    }

    #[test]
    fn one_that_comes_back_is_asked_again() {
        check("0u 5b 6? 7u 7?", &[Offer::Open, Offer::Lacking]);
        check("0a 1u 5b 6? 20u 20?", &[Offer::Open, Offer::Refused]);
    }

    #[test]
    fn methods_of_no_table_have_nothing_in_common() {
        let table = MethodTable::standard();
        let (row, offers) = (table.row("xyz_none"), Offers::default());
        offers.refused(row, true, ms(5), |_| false);
        offers.answered(row);
        assert_eq!((offers.of(row, ms(6), |_| false), offers.is_there(row)), (Offer::Open, false));
    }
}
