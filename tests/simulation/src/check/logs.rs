//! No client is told that there are no logs where a header says that there are.
//!
//! Looked at in scenarios in which one upstream hides logs. What it may be believed in:
//! blocks that were there before any upstream told a header, and those so new that the headers,
//! or the upstreams that hold them, may not be known yet.

use std::time::Duration;

use serde_json::Value;

use crate::check::content::computed;
use crate::check::{Outcome, Violation, outcomes};
use crate::evidence::{Answered, Evidence, Flow, Item, Request};
use crate::upstream::LOGS;

/// A block is known so long after it was made, with the one before it.
const KNOWN_AFTER: Duration = Duration::from_secs(3);

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    if !evidence.scenario.hides_logs() {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        // One that is alone is believed, with a warning.
        if evidence.scenario.chains[request.chain].upstreams.len() < 2 {
            continue;
        }
        for item in empty(request, answered) {
            if let Some(block) = missed(evidence, request, item) {
                let what = format!("#{number}: {}: there are logs in block {block}", item.key());
                violations.push(Violation { checker: "logs", at: answered.at, what });
            }
        }
    }
    violations
}

/// Searches that an upstream said to find nothing, untruly.
pub(super) fn hidden(evidence: &Evidence) -> usize {
    let calls = evidence.exchanges.iter().flat_map(|exchange| &exchange.calls);
    let is_hidden = |call: &&crate::evidence::Received| {
        let is_untrue = call.told.as_ref().is_some_and(|told| !told.is_honest);
        is_untrue && call.key.starts_with(LOGS)
    };
    calls.filter(is_hidden).count()
}

/// The searches that were told to find nothing.
fn empty<'a>(request: &'a Request, answered: &'a Answered) -> Vec<&'a Item> {
    if answered.flow == Flow::Cut {
        return Vec::new();
    }
    let is_empty =
        |(item, outcome): &(&Item, Outcome<'_>)| item.method == LOGS && *outcome == Ok("[]");
    outcomes(request, answered).into_iter().filter(is_empty).map(|(item, _)| item).collect()
}

/// A block whose logs should have been found.
fn missed(evidence: &Evidence, request: &Request, item: &Item) -> Option<u64> {
    let (world, blocks) =
        (evidence.worlds.get(request.chain)?, evidence.blocks.get(request.chain)?);
    let head = blocks.values().next_back()?.first()?;
    let found: Value = serde_json::from_str(&computed(world, *head, item)).ok()?;
    let number = |log: &Value| {
        let digits = log["blockNumber"].as_str()?.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let known = evidence.heights[request.chain]
        .iter()
        .filter(|(made, _)| !made.is_zero() && *made + KNOWN_AFTER <= request.at);
    // The header of a block that took the place of another one may not be known.
    let stayed = |height: &u64| blocks.get(height).is_some_and(|hashes| hashes.len() == 1);
    let known: Vec<u64> = known.map(|(_, height)| *height).filter(stayed).collect();
    found.as_array()?.iter().filter_map(number).find(|number| known.contains(number))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wellhead_sim::{World, WorldConfig};

    use super::*;
    use crate::check::sample::{answered, evidence, read, request};
    use crate::scenario::{Scale, Scenario};

    /// A search over all blocks is told to find nothing, where the newest was made at `made`
    /// and the search came at `at`, seconds from the start.
    fn check(hides: bool, made: u64, at: u64, found: usize) {
        let world = World::new(WorldConfig { history_blocks: 4, ..WorldConfig::seeded(7) });
        let mut item = read("1");
        item.method = LOGS.to_owned();
        item.params = r#"[{"fromBlock":"0x0","toBlock":"0x4"}]"#.to_owned();
        let mut request = request(vec![item]);
        request.at = Duration::from_secs(at);
        request.answered = Some(answered(r#"{"id":1,"result":[]}"#));
        let mut evidence = evidence(vec![request], Vec::new());
        if hides {
            evidence.scenario = Scenario::silence(1, Scale::Short);
        }
        let head = world.chain().canonical(4).expect("it was mined").hash;
        evidence.blocks[0].insert(4, vec![head]);
        evidence.heights[0].push((Duration::from_secs(made), 4));
        evidence.worlds = vec![Arc::clone(&world)];
        let violations = super::check(&evidence);
        assert_eq!(violations.len(), found, "{made} {at}: {violations:?}");
    }

    #[test]
    fn what_is_known_is_not_hidden() {
        check(true, 1, 4, 1);
        check(true, 1, 3, 0);
        check(true, 0, 9, 0);
        check(false, 1, 4, 0);
    }
}
