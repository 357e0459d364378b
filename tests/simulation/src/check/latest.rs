//! For one client the newest height never goes back.
//!
//! NOT ENFORCED YET: nothing in the proxy promises it, since each `eth_blockNumber` is
//! answered by whoever is cheapest. The checker and its test are here for the mechanism
//! to come; [`ENFORCED`] turns it on.

use std::collections::HashMap;

use crate::check::{Violation, replies};
use crate::evidence::{Ask, Evidence};

/// Whether the proxy promises it.
const ENFORCED: bool = false;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    if ENFORCED { falls(evidence) } else { Vec::new() }
}

/// Every fall of a height between two answers, of which the first had arrived before the
/// second was asked for.
fn falls(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut told: HashMap<usize, Vec<(crate::evidence::At, u64)>> = HashMap::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        let [item] = request.items.as_slice() else { continue };
        if item.ask != Ask::Height {
            continue;
        }
        let Ok(replies) = replies(&answered.body, false) else { continue };
        let Some(height) = replies.first().and_then(|reply| height(reply.outcome().ok()?)) else {
            continue;
        };
        let before = told.entry(request.client).or_default();
        let highest = before.iter().filter(|(at, _)| *at <= request.at).map(|(_, it)| *it).max();
        if let Some(highest) = highest.filter(|highest| height < *highest) {
            let what = format!("#{number}: height {height} after {highest}");
            violations.push(Violation { checker: "latest", at: answered.at, what });
        }
        before.push((answered.at, height));
    }
    violations
}

fn height(result: &str) -> Option<u64> {
    u64::from_str_radix(result.trim_matches('"').strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::sample::{answered, evidence, read, request};

    /// `client@asked-answered:height`, in milliseconds.
    fn check(answers: &str, falls: usize) {
        let requests = answers.split_whitespace().map(|text| {
            let mut parts = text.split(['@', '-', ':']).map(|part| part.parse::<u64>().unwrap());
            let mut next = || parts.next().unwrap();
            let mut request = request(vec![read("1")]);
            request.items[0].ask = Ask::Height;
            request.client = next() as usize;
            request.at = Duration::from_millis(next());
            let at = Duration::from_millis(next());
            let mut answer = answered(&format!(r#"{{"id":1,"result":"{:#x}"}}"#, next()));
            answer.at = at;
            request.answered = Some(answer);
            request
        });
        let evidence = evidence(requests.collect(), Vec::new());
        assert_eq!(super::falls(&evidence).len(), falls, "{answers}");
    }

    #[test]
    fn falls_are_seen() {
        check("0@0-1:5 0@2-3:6 0@4-5:6", 0);
        check("0@0-1:5 0@2-3:4", 1);
        check("0@0-1:5 1@2-3:4", 0);
        // Asked side by side, they may come in any order.
        check("0@0-5:5 0@2-6:4", 0);
    }
}
