//! No key of an upstream is in any answer, trail, page or line of the log.

use crate::check::Violation;
use crate::evidence::Evidence;
use crate::scenario::KEY_MARK;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        let body = String::from_utf8_lossy(&answered.body);
        let texts = [Some(&*body), answered.trail.as_deref(), answered.upstream.as_deref()];
        if texts.into_iter().flatten().any(|text| text.contains(KEY_MARK)) {
            let what = format!("#{number}: a key is in the answer: {body}");
            violations.push(Violation { checker: "secrets", at: answered.at, what });
        }
    }
    let leaking = evidence.pages.iter().filter(|(_, text)| text.contains(KEY_MARK));
    violations.extend(leaking.map(|(name, text)| Violation {
        checker: "secrets",
        at: evidence.scenario.length,
        what: format!("a key is in the {name}: {text}"),
    }));
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{answered, evidence, read, request};

    #[test]
    fn keys_are_seen_wherever_they_are() {
        let text = format!("POST /v2/{KEY_MARK}0123456789abcdef");
        let check = |place: usize, found: usize| {
            let mut request = request(vec![read("1")]);
            let mut answer = answered("{}");
            match place {
                0 => answer.body = text.clone().into(),
                1 => answer.trail = Some(text.clone()),
                2 => answer.upstream = Some(text.clone()),
                _ => {}
            }
            request.answered = Some(answer);
            let mut evidence = evidence(vec![request], Vec::new());
            if place == 3 {
                evidence.pages.push(("log", text.clone()));
            }
            assert_eq!(super::check(&evidence).len(), found, "{place}");
        };
        (0..4).for_each(|place| check(place, 1));
        check(4, 0);
    }
}
