//! What the settings let an upstream be asked for is kept: calls at once, calls a second
//! and credits a day.
//!
//! Of clients' calls: those of the house are made in any case, and only make the others
//! wait longer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::check::Violation;
use crate::evidence::{At, Evidence, Exchange, Place};
use crate::scenario::Budget;

/// Calls a second are counted in spans a little shorter: timers are whole milliseconds.
const SECOND: Duration = Duration::from_millis(998);

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    for place in evidence.places() {
        let plan = &evidence.scenario.chains[place.chain].upstreams[place.slot];
        let Some(budget) = plan.budget else { continue };
        for (at, what) in excesses(evidence, place, budget) {
            let what = format!("{}: {what}", plan.name);
            violations.push(Violation { checker: "limits", at, what });
        }
    }
    violations
}

/// The first moment at which each bound was passed.
fn excesses(evidence: &Evidence, place: Place, budget: Budget) -> Vec<(At, String)> {
    let exchanges: Vec<&Exchange> =
        evidence.exchanges_of(place).filter(|exchange| !exchange.is_house()).collect();
    let calls: Vec<At> = exchanges
        .iter()
        .flat_map(|exchange| std::iter::repeat_n(exchange.began, exchange.calls.len()))
        .collect();
    let mut excesses = Vec::new();
    if let Some(most) = budget.in_flight
        && let Some(at) = crowded(&exchanges, most as usize)
    {
        excesses.push((at, format!("more than {most} exchanges at once")));
    }
    if let Some(most) = budget.calls_per_second {
        // A batch goes as a whole or not at all: it is let go when one call would be, and
        // what it is more than that is waited for afterwards.
        let largest = exchanges.iter().map(|exchange| exchange.calls.len()).max().unwrap_or(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(largest - 1);
        let mut spans = calls.iter().zip(calls.iter().skip(most));
        if let Some((_, at)) = spans.find(|(first, last)| **last - **first < SECOND) {
            excesses.push((*at, format!("more than {most} calls in a second")));
        }
    }
    if let Some(most) = budget.credits_per_day.filter(|_| !budget.overspend)
        && let Some(at) = calls.get(usize::try_from(most).unwrap_or(usize::MAX))
    {
        excesses.push((*at, format!("more than {most} credits in a day")));
    }
    excesses
}

/// When more than `most` of them were under way.
fn crowded(exchanges: &[&Exchange], most: usize) -> Option<At> {
    let mut changes: BTreeMap<At, i64> = BTreeMap::new();
    for exchange in exchanges {
        *changes.entry(exchange.began).or_default() += 1;
        // What begins when another ends has its place.
        if let Some(ended) = exchange.ended {
            *changes.entry(ended).or_default() -= 1;
        }
    }
    let mut inside = 0;
    changes.into_iter().find_map(|(at, change)| {
        inside += change;
        (usize::try_from(inside).unwrap_or(0) > most).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{evidence, exchange};
    use crate::evidence::Caller;

    const NONE: Budget =
        Budget { calls_per_second: None, in_flight: None, credits_per_day: None, overspend: false };

    /// Exchanges as `from-until` in milliseconds.
    fn check(budget: Budget, exchanges: &str, found: usize) {
        let ms = |text: &str| Duration::from_millis(text.parse().expect("milliseconds"));
        let exchanges = exchanges.split_whitespace().map(|span| {
            let (from, until) = span.split_once('-').expect("from-until");
            let mut one = exchange("x", None);
            (one.began, one.ended) = (ms(from), Some(ms(until)));
            one
        });
        let mut evidence = evidence(Vec::new(), exchanges.collect());
        evidence.scenario.chains[0].upstreams[0].budget = Some(budget);
        assert_eq!(super::check(&evidence).len(), found, "{budget:?}");
        evidence.exchanges.iter_mut().for_each(|exchange| exchange.caller = Caller::House);
        assert_eq!(super::check(&evidence).len(), 0, "our own are not held");
    }

    #[test]
    fn calls_at_once() {
        let two = Budget { in_flight: Some(2), ..NONE };
        check(two, "0-9 1-9 9-12", 0);
        check(two, "0-9 1-9 8-12", 1);
    }

    #[test]
    fn calls_a_second() {
        let two = Budget { calls_per_second: Some(2), ..NONE };
        check(two, "0-1 500-501 1000-1001", 0);
        check(two, "0-1 500-501 900-901", 1);
    }

    #[test]
    fn credits_a_day() {
        let two = Budget { credits_per_day: Some(2), ..NONE };
        check(two, "0-1 5000-5001", 0);
        check(two, "0-1 5000-5001 9000-9001", 1);
        check(Budget { overspend: true, ..two }, "0-1 5000-5001 9000-9001", 0);
    }
}
