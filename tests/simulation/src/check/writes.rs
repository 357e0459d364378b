//! A write reaches upstreams no oftener than promised.
//!
//! One that must not run twice: after it may have run somewhere, no upstream receives it any
//! more. A raw transaction may be repeated: each time that a client sends it, it goes to
//! some at once and then to as many as any call may.

use std::collections::HashMap;

use crate::check::Violation;
use crate::evidence::{Ask, Evidence, Exchange};

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut received: HashMap<&str, Vec<&Exchange>> = HashMap::new();
    for exchange in &evidence.exchanges {
        for call in &exchange.calls {
            received.entry(&call.key).or_default().push(exchange);
        }
    }
    let mut sent: HashMap<String, usize> = HashMap::new();
    let mut violations = Vec::new();
    for item in evidence.requests.iter().flat_map(|request| &request.items) {
        let key = item.key();
        let times = received.get(key.as_str()).map_or(&[][..], Vec::as_slice);
        match item.ask {
            Ask::Write => {
                let first = times.iter().position(|exchange| exchange.may_have_run);
                if let Some(first) = first
                    && let Some(again) = times.get(first + 1)
                {
                    let what = format!("{key} may have run, and was sent again");
                    violations.push(Violation { checker: "writes", at: again.began, what });
                }
            }
            Ask::Transaction(_) => *sent.entry(key).or_default() += 1,
            Ask::Read
            | Ask::Pinned(_)
            | Ask::Height
            | Ask::Filter
            | Ask::Local(_)
            | Ask::Refused(_)
            | Ask::Malformed => {}
        }
    }
    let settings = &evidence.scenario.settings;
    for (key, times) in sent {
        let bound = times * (settings.attempts_max + settings.broadcast_max);
        let count = received.get(key.as_str()).map_or(0, Vec::len);
        if count > bound {
            let what = format!("{key} was sent {times} times and received {count} times");
            let at = evidence.scenario.length;
            violations.push(Violation { checker: "writes", at, what });
        }
    }
    violations.sort_by(|a, b| (a.at, &a.what).cmp(&(b.at, &b.what)));
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{evidence, exchange, read, request};

    /// Receptions in order, `r` where it may have run and `u` where it was not read.
    fn check(ask: Ask, receptions: &str, found: usize) {
        let mut item = read("1");
        item.ask = ask;
        let exchanges = receptions.chars().map(|how| {
            let mut exchange = exchange(&item.key(), None);
            exchange.may_have_run = how == 'r';
            exchange
        });
        let exchanges = exchanges.collect();
        let evidence = evidence(vec![request(vec![item])], exchanges);
        assert_eq!(super::check(&evidence).len(), found, "{receptions}");
    }

    #[test]
    fn what_may_have_run_is_not_sent_again() {
        check(Ask::Write, "", 0);
        check(Ask::Write, "r", 0);
        check(Ask::Write, "uur", 0);
        check(Ask::Write, "ru", 1);
        check(Ask::Write, "urr", 1);
        check(Ask::Read, "rrr", 0);
    }

    #[test]
    fn transactions_are_repeated_within_their_attempts() {
        let transaction = || Ask::Transaction(alloy_primitives::B256::ZERO);
        let settings = evidence(Vec::new(), Vec::new()).scenario.settings;
        let bound = settings.attempts_max + settings.broadcast_max;
        check(transaction(), &"r".repeat(bound), 0);
        check(transaction(), &"r".repeat(bound + 1), 1);
    }
}
