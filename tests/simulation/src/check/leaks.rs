//! When all clients are gone nothing is left: no call in flight, no exchange open, no task.

use crate::check::Violation;
use crate::evidence::{Evidence, Left};

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let Left { in_flight, open, tasks } = &evidence.left;
    let mut violations = Vec::new();
    let mut say = |what: String| {
        violations.push(Violation { checker: "leaks", at: evidence.scenario.length, what });
    };
    for (upstream, calls) in in_flight {
        say(format!("{upstream} still counts {calls} calls in flight"));
    }
    if *open > 0 {
        say(format!("{open} exchanges are still open"));
    }
    if *tasks > 0 {
        say(format!("{tasks} tasks did not end"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::evidence;

    #[test]
    fn what_is_left_is_told() {
        let check = |left: Left, found: usize| {
            let mut evidence = evidence(Vec::new(), Vec::new());
            evidence.left = left;
            assert_eq!(super::check(&evidence).len(), found);
        };
        check(Left::default(), 0);
        check(Left { in_flight: vec![("a".into(), 1)], ..Left::default() }, 1);
        check(Left { open: 1, ..Left::default() }, 1);
        check(Left { tasks: 1, ..Left::default() }, 1);
    }
}
