//! For one client the newest height goes back only with a reorg that the client could see, whether
//! it asks for the height alone or for the newest block, alone or in a batch, however upstreams are
//! followed. All calls from one address are one client: what one of them is told, the others
//! were told, too.
//!
//! Promised where tags are pinned. A reorg explains a fall when it replaced the block that the client
//! was shown before, no later than the lower height was told, and had not been seen for certain when
//! the higher one was asked for; a fall that it explains is where the next one is counted from.
//!
//! Left out: a chain of which an upstream falls back, and the time in which one stands still, while no
//! upstream is well all the time. When that one alone can be heard, its word is the truth, and that is what a chain that was
//! reset looks like.

use std::collections::HashMap;

use serde_json::Value;

use crate::check::kept::Memory;
use crate::check::{Violation, height, outcomes};
use crate::evidence::{Ask, At, Evidence, Item};
use crate::scenario::UpstreamPlan;
use crate::weather::Kind;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    if evidence.scenario.settings.pins { falls(evidence) } else { Vec::new() }
}

/// A height that a client was told.
#[derive(Debug, Clone, Copy)]
struct Shown {
    asked: At,
    told: At,
    height: u64,
}

/// Every fall of a height between two answers, of which the first had arrived before the
/// second was asked for.
fn falls(evidence: &Evidence) -> Vec<Violation> {
    let memory = Memory::of(evidence);
    let mut violations = Vec::new();
    // By chain and address.
    let mut shown: HashMap<(usize, bool), Vec<Shown>> = HashMap::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        let chain = &evidence.scenario.chains[request.chain];
        let may_fall = |it: &UpstreamPlan| falls_back(it) || is_stuck(it, answered.at);
        if chain.upstreams.iter().any(may_fall) && !chain.upstreams.iter().any(is_steady) {
            continue;
        }
        let outcomes = outcomes(request, answered).into_iter();
        let heights: Vec<u64> =
            outcomes.filter_map(|(item, outcome)| newest(item, outcome.ok()?)).collect();
        let before = shown.entry((request.chain, evidence.is_rude(request))).or_default();
        for height in &heights {
            let now = Shown { asked: request.at, told: answered.at, height: *height };
            let earlier = before.iter().filter(|it| it.told <= now.asked);
            let Some(highest) = earlier.max_by_key(|it| it.height).copied() else { continue };
            if now.height >= highest.height {
                continue;
            }
            if !is_explained(&memory, evidence, request.chain, (highest, now)) {
                let what = format!("#{number}: height {height} after {}", highest.height);
                violations.push(Violation { checker: "latest", at: answered.at, what });
            }
            before.retain(|it| it.height <= now.height);
        }
        let (asked, told) = (request.at, answered.at);
        before.extend(heights.into_iter().map(|height| Shown { asked, told, height }));
    }
    violations
}

/// Whether a reorg replaced the block that was shown `before`, and could be news `now`.
fn is_explained(
    memory: &Memory<'_>,
    evidence: &Evidence,
    chain: usize,
    (before, now): (Shown, Shown),
) -> bool {
    evidence.reorgs[chain].iter().any(|reorg| {
        let fork = reorg.head.0.saturating_sub(reorg.dropped.len() as u64);
        let is_of_it = (fork + 1..=reorg.head.0).contains(&before.height) && now.height >= fork;
        let was_seen = memory.seen_at(chain, reorg).is_some_and(|seen| seen < before.asked);
        is_of_it && reorg.at <= now.told && !was_seen
    })
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

/// Whether it stands still at this moment, and shows less than others showed.
fn is_stuck(plan: &UpstreamPlan, at: At) -> bool {
    let mut spells = plan.spells.iter();
    spells.any(|spell| spell.kind == Kind::Stuck && (spell.from..spell.until).contains(&at))
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
    use crate::evidence::Replaced;

    /// `client@asked-answered:height`, in milliseconds.
    fn told(answers: &str) -> Evidence {
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
        evidence
    }

    fn check(answers: &str, falls: usize) {
        assert_eq!(super::falls(&told(answers)).len(), falls, "{answers}");
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

    /// As [`check`], after a reorg at 10 ms that replaced blocks 5 to 7, which no upstream told.
    fn check_reorg(answers: &str, falls: usize) {
        let mut evidence = told(answers);
        let dropped = vec![alloy_primitives::B256::ZERO; 3];
        let head = (7, alloy_primitives::B256::ZERO);
        evidence.reorgs[0] = vec![Replaced { at: Duration::from_millis(10), head, dropped }];
        assert_eq!(super::falls(&evidence).len(), falls, "{answers}");
    }

    #[test]
    fn a_reorg_explains_the_fall_below_the_blocks_that_it_replaced() {
        check_reorg("0@0-1:7 0@11-12:5", 0);
        check_reorg("0@0-1:7 0@11-12:4", 0);
        // Above it, before it, below its fork, and once more.
        check_reorg("0@0-1:8 0@11-12:6", 1);
        check_reorg("0@0-1:7 0@2-3:5", 1);
        check_reorg("0@0-1:7 0@11-12:3", 1);
        check_reorg("0@0-1:7 0@11-12:5 0@13-14:4", 0);
        check_reorg("0@0-1:7 0@11-12:4 0@13-14:3", 1);
    }

    #[test]
    fn falls_are_seen() {
        check("0@0-1:5 0@2-3:6 0@4-5:6", 0);
        check("0@0-1:5 0@2-3:4", 1);
        // Another one from that address.
        check("0@0-1:5 1@2-3:4", 1);
        // Asked side by side, they may come in any order.
        check("0@0-5:5 0@2-6:4", 0);
    }
}
