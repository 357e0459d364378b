//! For one client the newest height never goes back, whether it asks for the height alone or
//! for the newest block.
//!
//! Promised where tags are pinned and heads are followed, and as long as the chain itself
//! does not go back: a chain with reorgs is left out, as a shorter branch may win. So is one
//! of which an upstream falls back while nobody is well all the time: when it alone can be
//! heard, its word is the truth, and that is what a chain that was reset looks like.

use std::collections::HashMap;

use serde_json::Value;
use wellhead_watch::Mode;

use crate::check::{Violation, height, replies};
use crate::evidence::{Ask, Evidence, Item};
use crate::scenario::{Turn, UpstreamPlan};
use crate::weather::Kind;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let settings = &evidence.scenario.settings;
    match settings.checks {
        Mode::On if settings.pins => falls(evidence),
        Mode::On | Mode::Ephemeral | Mode::Off => Vec::new(),
    }
}

/// Every fall of a height between two answers, of which the first had arrived before the
/// second was asked for.
fn falls(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut told: HashMap<usize, Vec<(crate::evidence::At, u64)>> = HashMap::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        let is_reorg = |(_, turn): &(_, Turn)| matches!(turn, Turn::Reorg(_));
        let chain = &evidence.scenario.chains[request.chain];
        let seems_reset =
            chain.upstreams.iter().any(falls_back) && !chain.upstreams.iter().any(is_steady);
        if seems_reset || chain.turns.iter().any(is_reorg) {
            continue;
        }
        let [item] = request.items.as_slice() else { continue };
        let Ok(replies) = replies(&answered.body, false) else { continue };
        let said = replies.first().and_then(|reply| newest(item, reply.outcome().ok()?));
        let Some(height) = said else { continue };
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

/// The newest height by this answer, if that was asked for.
fn newest(item: &Item, result: &str) -> Option<u64> {
    if item.ask == Ask::Height {
        return height(result);
    }
    let asks_for_it =
        item.method == "eth_getBlockByNumber" && item.params.starts_with(r#"["latest""#);
    let block: Value = serde_json::from_str(result).ok().filter(|_| asks_for_it)?;
    height(block.get("number")?.as_str()?)
}

/// Whether there is a time at which it shows less than before.
fn falls_back(plan: &UpstreamPlan) -> bool {
    plan.spells.iter().any(|spell| matches!(spell.kind, Kind::Lag(_) | Kind::Syncing))
}

/// Whether it is heard of all the time.
fn is_steady(plan: &UpstreamPlan) -> bool {
    let is_held = plan.meter.is_some() || plan.shaped.is_some();
    plan.spells.is_empty() && !is_held && !plan.is_elsewhere
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
        let mut evidence = evidence(requests.collect(), Vec::new());
        evidence.scenario.chains[0].turns.clear();
        assert_eq!(super::falls(&evidence).len(), falls, "{answers}");
    }

    #[test]
    fn the_newest_block_counts_as_well() {
        let of = |method: &str, params: &str, result: &str| {
            let mut item = read("1");
            (item.method, item.params) = (method.to_owned(), params.to_owned());
            newest(&item, result)
        };
        let block = r#"{"number":"0x1f","hash":"0xab"}"#;
        assert_eq!(of("eth_getBlockByNumber", r#"["latest",false]"#, block), Some(0x1f));
        assert_eq!(of("eth_getBlockByNumber", r#"["0x1f",false]"#, block), None);
        assert_eq!(of("eth_getBlockByNumber", r#"["latest",false]"#, "null"), None);
        assert_eq!(of("eth_getBlockByHash", r#"["latest",false]"#, block), None);
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
