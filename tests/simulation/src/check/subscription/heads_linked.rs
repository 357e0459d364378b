//! The heads of a subscription are one chain: each stands on the one told before it or, after a reorg, on
//! an earlier one; none is told twice unless it was left in between; each is the block of its hash, in one
//! form whichever upstream delivered it; and all clients that listen are told of the same blocks.
//!
//! Left out: whether a block that was the newest for a moment only had to be told. That none is missing
//! between two that were follows from the links; whether the last one came is for `alive` to say.

use std::collections::HashMap;

use alloy_primitives::B256;
use serde_json::Value;
use wellhead_sim::rpc::json as shape;

use super::Heard;
use super::stream::{Stream, is_stalled};
use crate::check::Finding;
use crate::evidence::At;

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for chain in 0..heard.evidence.scenario.chains.len() {
        let streams: Vec<&Stream<'_>> = heard.head_streams(chain).collect();
        let mut bodies: HashMap<B256, &str> = HashMap::new();
        for stream in &streams {
            findings.extend(unlinked(stream));
            for told in stream.heads() {
                let head = told.notice;
                let known = bodies.insert(head.hash, &head.body);
                let is_right = match known {
                    Some(body) => body == head.body,
                    None => is_as_in_the_world(heard, chain, head.hash, &head.body),
                };
                if !is_right {
                    let what = format!("{}: head {} is {}", stream.name(), head.number, head.body);
                    findings.push((told.at, what));
                }
            }
        }
        findings.extend(differing(&streams));
    }
    findings
}

/// Heads that do not stand on what was told before.
fn unlinked(stream: &Stream<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    // What was told and not left.
    let mut branch: Vec<(u64, B256)> = Vec::new();
    for told in stream.heads() {
        let head = told.notice;
        let mut say = |what: &str| {
            let what = format!("{}: head {} {} {what}", stream.name(), head.number, head.hash);
            findings.push((told.at, what));
        };
        let parent = branch.iter().position(|(_, hash)| *hash == head.parent);
        if branch.iter().any(|(_, hash)| *hash == head.hash) {
            say("is told twice");
        } else if let Some(parent) = parent {
            if branch[parent].0 + 1 != head.number {
                say("is not one above its parent");
            }
            branch.truncate(parent + 1);
        } else if branch.first().is_some_and(|(lowest, _)| head.number > *lowest) {
            say("stands on no head that was told");
            branch.clear();
        } else {
            // The first one, or a reorg of all that was told.
            branch.clear();
        }
        branch.push((head.number, head.hash));
    }
    findings
}

fn is_as_in_the_world(heard: &Heard<'_>, chain: usize, hash: B256, body: &str) -> bool {
    let Some(world) = heard.evidence.worlds.get(chain) else { return true };
    let expected = world.chain().by_hash(&hash).map(|it| shape::header(&it.header, it.hash));
    serde_json::from_str::<Value>(body).ok() == expected
}

/// Subscriptions that were told of other blocks than the longest of them, while both listened.
fn differing(streams: &[&Stream<'_>]) -> Option<Finding> {
    let all: Vec<&&Stream<'_>> =
        streams.iter().filter(|it| !is_stalled(it.session, At::ZERO, At::MAX)).collect();
    let longest = all.iter().max_by_key(|it| it.heads().len())?;
    all.iter().find_map(|stream| {
        let (from, until) = (stream.since.max(longest.since), stream.until.min(longest.until));
        let within = |it: &Stream<'_>| -> Vec<B256> {
            let told = it.heads().iter().filter(|told| told.at > from && told.at < until);
            told.map(|told| told.notice.hash).collect()
        };
        let (one, other) = (within(stream), within(longest));
        let what = || format!("{} was told of other heads than {}", stream.name(), longest.name());
        (one != other).then(|| (stream.since, what()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::{evidence, heads};
    use super::*;

    fn check(told: &str, found: usize) {
        let evidence = evidence(vec![heads(told)]);
        let findings = super::check(&Heard::of(&evidence));
        assert_eq!(findings.len(), found, "{told}: {findings:?}");
    }

    #[test]
    fn one_chain() {
        check("7a 8a 9a", 0);
        check("7a 9a", 1);
        check("7a 8a 8a", 1);
        check("7a 8a 9b", 1);
    }

    #[test]
    fn reorgs() {
        check("7a 8a 9a 8b<7a 9b 10b", 0);
        check("7a 8a 8b<7a 8a<7a 9a", 0);
        check("7a 8a 9a 8b<7a 9a", 1);
        // Of all that was told.
        check("7a 8a 6b 7b 8b", 0);
    }

    #[test]
    fn all_are_told_alike() {
        let check = |one: &str, other: &str, found: usize| {
            let evidence = evidence(vec![heads(one), heads(other)]);
            assert_eq!(super::check(&Heard::of(&evidence)).len(), found, "{one}, {other}");
        };
        check("7a 8a 9a", "7a 8a 9a", 0);
        check("7a 8a 8b<7a 8a<7a", "7a 8a", 1);
    }
}
