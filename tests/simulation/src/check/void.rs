//! No lie reaches a client, and an upstream that tells the truth is not called a liar.
//!
//! A lie is an answer of [`Kind::Lie`]. Some other weather makes answers that cannot be true
//! either, and may be found out; an upstream that had neither must not stand in the metrics.

use std::collections::BTreeSet;

use crate::check::{Violation, replies};
use crate::evidence::{Evidence, Exchange};
use crate::scenario::UpstreamPlan;
use crate::weather::Kind;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let lies: BTreeSet<&str> = lies(evidence).collect();
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        // What cannot be read is told by `answers`.
        let Ok(replies) = replies(&answered.body, request.is_batch) else { continue };
        let results = replies.iter().filter_map(|reply| reply.outcome().ok());
        for lie in results.filter(|result| lies.contains(result)) {
            let what = format!("#{number}: a client was told {}", super::content::cut(lie));
            violations.push(Violation { checker: "void", at: answered.at, what });
        }
    }
    for name in accused(evidence) {
        let upstreams = evidence.scenario.chains.iter().flat_map(|chain| &chain.upstreams);
        if !upstreams.filter(|plan| plan.name == name).any(may_be_void) {
            let what = format!("an answer of `{name}` was found void, which tells the truth");
            let at = evidence.scenario.length;
            violations.push(Violation { checker: "void", at, what });
        }
    }
    violations
}

/// What was told instead of the truth.
pub(super) fn lies(evidence: &Evidence) -> impl Iterator<Item = &str> {
    let is_lying = move |exchange: &&Exchange| {
        let place = exchange.place;
        let plan = &evidence.scenario.chains[place.chain].upstreams[place.slot];
        plan.spells.iter().any(|spell| spell.kind == Kind::Lie)
    };
    let told = evidence.exchanges.iter().filter(is_lying).flat_map(|exchange| &exchange.calls);
    let told = told.filter_map(|call| call.told.as_ref()).filter(|told| !told.is_honest);
    told.filter_map(|told| told.outcome.as_deref().ok()).filter(|lie| is_made_up(lie))
}

/// Whether no upstream says this but for a lie: what other weather does to an answer leaves
/// its result as it is, and it may have been told well by another one.
fn is_made_up(result: &str) -> bool {
    result.contains(r#""0xbad""#) || result.contains(&"ff".repeat(256))
}

/// Whether an upstream may give answers that cannot be true.
fn may_be_void(plan: &UpstreamPlan) -> bool {
    let spoils = |kind| matches!(kind, Kind::Lie | Kind::Garble | Kind::Flaky(_));
    plan.is_elsewhere || plan.spells.iter().any(|spell| spoils(spell.kind))
}

/// Upstreams that gave void answers, by the metrics.
fn accused(evidence: &Evidence) -> BTreeSet<&str> {
    let pages = evidence.pages.iter().filter(|(name, _)| *name == "metrics");
    let lines = pages.flat_map(|(_, text)| text.lines());
    let lines = lines.filter(|line| line.starts_with("wellhead_verify_void_total{"));
    lines.filter_map(|line| line.split("upstream=\"").nth(1)?.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::sample::{answered, evidence, exchange, read, request};
    use crate::evidence::Told;
    use crate::weather::Spell;

    const LIE: &str = r#"{"gasUsed":"0xbad"}"#;

    /// An upstream in this weather that told [`LIE`], and a client that got `result`.
    fn check(kind: Kind, result: &str, metrics: &str, found: usize) {
        let item = read("1");
        let told = Told { is_honest: false, outcome: Ok(LIE.to_owned()) };
        let exchange = exchange(&item.key(), Some(told));
        let mut request = request(vec![item]);
        request.answered = Some(answered(&format!(r#"{{"id":1,"result":{result}}}"#)));
        let mut evidence = evidence(vec![request], vec![exchange]);
        let plan = &mut evidence.scenario.chains[0].upstreams[0];
        let until = Duration::from_secs(9);
        plan.spells = vec![Spell { from: Duration::ZERO, until, kind }];
        plan.is_elsewhere = false;
        let metrics = metrics.replace("NAME", &plan.name);
        evidence.pages.push(("metrics", metrics));
        assert_eq!(super::check(&evidence).len(), found, "{kind:?} {result}");
        assert_eq!(lies(&evidence).count(), usize::from(kind == Kind::Lie));
    }

    #[test]
    fn lies_are_not_told_to_clients() {
        check(Kind::Lie, "\"0x1\"", "", 0);
        check(Kind::Lie, LIE, "", 1);
    }

    #[test]
    fn an_upstream_that_tells_the_truth_is_not_accused() {
        let metrics = r#"wellhead_verify_void_total{chain="ethereum",upstream="NAME"} 1"#;
        check(Kind::Lie, "\"0x1\"", metrics, 0);
        check(Kind::Slow(Duration::ZERO), "\"0x1\"", metrics, 1);
    }
}
