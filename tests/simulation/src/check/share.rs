//! What one address takes, others do not wait for.
//!
//! Judged in the stories of a crowd (`--crowd`), in which all upstreams are well all the time: a call of
//! a client that is not rude, made once all upstreams were seen to be well, is answered within
//! [`LIGHT`], a search for logs and a batch within [`HEAVY`], however many calls, answers and searches
//! the rude address has under way. That it does not fail is looked at by `reads`.

use std::time::Duration;

use crate::check::Violation;
use crate::evidence::{Evidence, Request};

/// Upstreams answer within 120 ms; a call may stand behind some others.
const LIGHT: Duration = Duration::from_millis(500);
/// What is made of several calls, or may be. Searches stand behind all other calls in a line, for two
/// seconds at most, each of their parts.
const HEAVY: Duration = Duration::from_secs(3);

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    if !evidence.scenario.is_crowd {
        return Vec::new();
    }
    let polite =
        evidence.requests.iter().enumerate().filter(|(_, request)| !evidence.is_rude(request));
    polite.filter_map(|(number, request)| late(number, request)).collect()
}

fn late(number: usize, request: &Request) -> Option<Violation> {
    let answered = request.answered.as_ref()?;
    let is_search = request.items.iter().any(|item| item.method == "eth_getLogs");
    let bound = if is_search || request.is_batch { HEAVY } else { LIGHT };
    let took = answered.at.saturating_sub(request.at);
    let what = || format!("#{number}: {} answered after {took:?}", request.items[0].method);
    (took > bound).then(|| Violation { checker: "share", at: answered.at, what: what() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{answered, evidence, read, request};

    fn check(is_crowd: bool, is_rude: bool, took: Duration, found: usize) {
        let mut request = request(vec![read("1")]);
        let mut answer = answered(r#"{"id":1,"result":"0x1"}"#);
        answer.at = request.at + took;
        request.answered = Some(answer);
        let mut evidence = evidence(vec![request], Vec::new());
        evidence.scenario.is_crowd = is_crowd;
        evidence.scenario.clients[0].is_rude = is_rude;
        assert_eq!(super::check(&evidence).len(), found, "{is_crowd} {is_rude} {took:?}");
    }

    #[test]
    fn a_late_answer_is_seen() {
        check(true, false, LIGHT, 0);
        check(true, false, LIGHT * 2, 1);
        check(true, true, LIGHT * 2, 0);
        check(false, false, LIGHT * 2, 0);
    }
}
