//! Nothing is answered after its deadline.
//!
//! Of an answer that flows, its beginning counts: how long the rest may take is decided
//! by its reader.

use std::time::Duration;

use crate::check::Violation;
use crate::evidence::Evidence;

/// Timers are whole milliseconds, and there may be some of them on the way.
const SLACK: Duration = Duration::from_millis(20);

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let total = evidence.scenario.settings.total;
    let mut violations = Vec::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        let took = answered.at.saturating_sub(request.at);
        if took > total + SLACK {
            let what = format!("#{number}: took {took:?}, of {total:?}");
            violations.push(Violation { checker: "deadline", at: answered.at, what });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{answered, evidence, read, request};

    fn check(took: Duration, late: bool) {
        let mut request = request(vec![read("1")]);
        request.answered = Some(answered("{}"));
        request.answered.as_mut().expect("just set").at = request.at + took;
        let evidence = evidence(vec![request], Vec::new());
        assert_eq!(!super::check(&evidence).is_empty(), late, "{took:?}");
    }

    #[test]
    fn late_answers_are_seen() {
        let total = evidence(Vec::new(), Vec::new()).scenario.settings.total;
        check(Duration::ZERO, false);
        check(total, false);
        check(total + SLACK, false);
        check(total + SLACK + Duration::from_millis(1), true);
    }
}
