//! What a subscription to logs was told, folded, is what the world has: each log that matches and is on the
//! chain, once, as the world has it; none that was left; none that was taken back without having been told.
//!
//! A block is owed if it was made after the client had the subscription's id, or if it stands above a block of
//! which a log was told. At the end of a story, when nothing has changed for a while, that is all up to
//! the newest block. A subscription that ended earlier, or whose connection was closed, is owed what is
//! below the last block of which it was told a log. Not owed is a block that was told to others before
//! the client subscribed, and it may not be told either, unless it was told to others again after that, as the
//! agreed chain had left it and came back, or an upstream that shows an older block held the agreed chain down
//! when the client subscribed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use alloy_primitives::B256;
use serde_json::{Value, json};
use wellhead_sim::World;
use wellhead_sim::rpc::logs::Criteria;
use wellhead_sim::world::SimBlock;

use super::Heard;
use super::stream::{Stream, StreamEnd, StreamKind, made};
use crate::check::Finding;
use crate::evidence::At;
use crate::session::{LogNotice, SessionEnd};

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for chain in 0..heard.evidence.scenario.chains.len() {
        let made = made(heard.evidence, chain);
        let told_last = told_last(heard, chain);
        for stream in heard.log_streams(chain) {
            let (branch, wrong) = fold(stream);
            findings.extend(wrong);
            let Some(world) = heard.evidence.worlds.get(chain) else { continue };
            findings.extend(untrue(stream, world));
            findings.extend(early(heard, stream, &told_last));
            let account = Account { heard, stream, world, made: &made };
            findings.extend(account.check(&branch));
        }
    }
    findings
}

/// When each block was last told as the newest to a client: by the one that was told the soonest, as others may
/// be told late. More than once only where the agreed chain had left it.
fn told_last(heard: &Heard<'_>, chain: usize) -> HashMap<B256, At> {
    let mut soonest: HashMap<(B256, usize), At> = HashMap::new();
    for stream in heard.head_streams(chain) {
        let mut times: HashMap<B256, usize> = HashMap::new();
        for told in stream.heads() {
            let time = times.entry(told.notice.hash).or_default();
            let at = soonest.entry((told.notice.hash, *time)).or_insert(told.at);
            (*at, *time) = (told.at.min(*at), *time + 1);
        }
    }
    let mut last: HashMap<B256, At> = HashMap::new();
    for ((hash, _), at) in soonest {
        let known = last.entry(hash).or_insert(at);
        *known = at.max(*known);
    }
    // One that came back was told again after that, also where no stream lived to be told of it twice.
    let mut seen = HashSet::new();
    for (at, _, hash) in made(heard.evidence, chain) {
        if !seen.insert(hash)
            && let Some(last) = last.get_mut(&hash)
        {
            let told = heard.head_streams(chain).flat_map(Stream::heads);
            let times = told.filter(|it| it.notice.hash == hash && it.at >= at).map(|it| it.at);
            *last = times.min().unwrap_or(at).max(*last);
        }
    }
    last
}

/// What was told and not taken back, and what does not add up.
fn fold<'a>(stream: &Stream<'a>) -> (Vec<&'a LogNotice>, Vec<Finding>) {
    let (mut branch, mut findings): (Vec<&LogNotice>, _) = (Vec::new(), Vec::new());
    for told in stream.logs() {
        let log = told.notice;
        let mut say = |what: &str| {
            let place = format!("log {} of {} {}", log.index, log.number, log.hash);
            findings.push((told.at, format!("{}: {place} {what}", stream.name())));
        };
        let known = branch.iter().position(|it| it.hash == log.hash && it.index == log.index);
        match (log.is_removed, known) {
            (true, Some(known)) => drop(branch.remove(known)),
            (true, None) => say("is taken back and was not told"),
            (false, Some(_)) => say("is told twice"),
            (false, None) => branch.push(log),
        }
    }
    (branch, findings)
}

/// Logs that the world does not have so, or that do not match.
fn untrue(stream: &Stream<'_>, world: &World) -> Vec<Finding> {
    let StreamKind::Logs(criteria, told) = &stream.kind else { return Vec::new() };
    let mut expected: HashMap<B256, Vec<Value>> = HashMap::new();
    let is_true = |log: &LogNotice| {
        let logs = expected.entry(log.hash).or_insert_with(|| {
            let block = world.chain().by_hash(&log.hash).cloned();
            block.map_or_else(Vec::new, |block| matching(criteria, &block))
        });
        let Ok(mut body) = serde_json::from_str::<Value>(&log.body) else { return false };
        body["removed"] = json!(false);
        logs.contains(&body)
    };
    let mut is_true = is_true;
    let wrong = told.iter().filter(|told| !is_true(told.notice));
    wrong
        .map(|told| (told.at, format!("{}: no such log: {}", stream.name(), told.notice.body)))
        .collect()
}

fn matching(criteria: &Criteria, block: &SimBlock) -> Vec<Value> {
    criteria.in_block(block).unwrap_or_default()
}

/// Logs of blocks that were told before the client subscribed.
fn early(heard: &Heard<'_>, stream: &Stream<'_>, last: &HashMap<B256, At>) -> Option<Finding> {
    let chain = stream.session.chain;
    // The agreed chain may have fallen below what was told.
    if heard.is_held_down(chain, stream.asked, stream.asked) {
        return None;
    }
    let is_early = |log: &&LogNotice| last.get(&log.hash).is_some_and(|last| *last < stream.asked);
    let mut logs = stream.logs().iter().map(|told| told.notice);
    let log = logs.find(|log| is_early(log))?;
    let what = format!("{}: a log of {}, told before it subscribed", stream.name(), log.number);
    Some((stream.since, what))
}

/// What one subscription was owed.
struct Account<'a> {
    heard: &'a Heard<'a>,
    stream: &'a Stream<'a>,
    world: &'a World,
    made: &'a [(At, u64, B256)],
}

impl Account<'_> {
    fn check(&self, branch: &[&LogNotice]) -> Option<Finding> {
        let StreamKind::Logs(criteria, _) = &self.stream.kind else { return None };
        let chain = self.stream.session.chain;
        let is_to_the_end = self.stream.end == StreamEnd::With(SessionEnd::Left)
            && self.stream.until >= self.heard.evidence.scenario.length;
        let quiet_from = self.heard.evidence.scenario.quiet_from(chain);
        let (tip, is_whole) = match (is_to_the_end, branch.last()) {
            (true, _) => (self.made.iter().rfind(|(at, ..)| *at <= quiet_from)?.2, true),
            (false, Some(last)) => (last.hash, false),
            (false, None) => return None,
        };
        let ancestors = self.ancestors(tip);
        let first_told = branch.iter().map(|log| log.number).min().unwrap_or(u64::MAX);
        let owed = ancestors.iter().filter(|block| {
            // Of the block at which it ended it may have been told a part.
            (is_whole || block.hash != tip)
                && (block.number() >= first_told || self.is_made_after(block, self.stream.since))
        });
        let at = self.stream.until;
        for block in owed {
            let missing = matching(criteria, block).into_iter().find(|log| {
                let index = log["logIndex"].as_str().map(str::to_owned).unwrap_or_default();
                !branch
                    .iter()
                    .any(|it| it.hash == block.hash && format!("{:#x}", it.index) == index)
            });
            if let Some(log) = missing {
                let (name, number) = (self.stream.name(), block.number());
                return Some((at, format!("{name}: not told of block {number}: {log}")));
            }
        }
        let stray = branch.iter().find(|log| !ancestors.iter().any(|it| it.hash == log.hash))?;
        let what = format!("{}: a log of {} is not taken back", self.stream.name(), stray.number);
        (is_whole && stray.number > 0).then_some((at, what))
    }

    /// A block and those below it, down to what was there at first.
    fn ancestors(&self, tip: B256) -> Vec<Arc<SimBlock>> {
        let chain = self.world.chain();
        let mut blocks: Vec<Arc<SimBlock>> = Vec::new();
        let mut next = chain.by_hash(&tip);
        while let Some(block) = next {
            blocks.push(Arc::clone(block));
            next = chain.by_hash(&block.header.parent_hash);
        }
        blocks
    }

    fn is_made_after(&self, block: &SimBlock, since: At) -> bool {
        let made = self.made.iter().find(|(_, _, hash)| *hash == block.hash);
        made.is_some_and(|(at, ..)| *at > since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wellhead_sim::WorldConfig;

    use super::super::sample::{LEFT, OPENED, evidence, logs, session};
    use super::*;
    use crate::session::{Crossing, Notice, SessionCall};

    fn check(told: &str, found: usize) {
        let evidence = evidence(vec![logs(told)]);
        let findings = super::check(&Heard::of(&evidence));
        assert_eq!(findings.len(), found, "{told}: {findings:?}");
    }

    #[test]
    fn what_is_told_adds_up() {
        check("7a.0 7a.1 8a.0 -8a.0 -7a.0 -7a.1 7b.0", 0);
        check("7a.0 7a.0", 1);
        check("-7a.0", 1);
        check("7a.0 -7a.0 -7a.0 7a.0", 1);
    }

    /// A subscription to all logs of a world whose blocks are made one a second once it is there, which is
    /// told of them as `spoil` leaves them.
    fn check_world(spoil: impl FnOnce(&mut Vec<LogNotice>), found: usize) {
        let world = World::new(WorldConfig { history_blocks: 6, ..WorldConfig::seeded(7) });
        let (mut told, mut evidence) = (Vec::new(), evidence(Vec::new()));
        for number in 0..=6 {
            let block = Arc::clone(world.chain().canonical(number).expect("it was mined"));
            let at = if number < 3 { At::ZERO } else { OPENED + Duration::from_secs(number) };
            evidence.heights[0].push((at, number));
            evidence.blocks[0].insert(number, vec![block.hash]);
            let all = Criteria::read(&json!({})).expect("a filter");
            let logs = matching(&all, &block).into_iter().zip(0..).map(|(log, index)| LogNotice {
                number,
                hash: block.hash,
                index,
                is_removed: false,
                body: log.to_string(),
            });
            told.extend(logs.filter(|_| at > At::ZERO));
        }
        assert!(told.len() > 6, "the world has logs");
        spoil(&mut told);
        let crossings =
            told.into_iter().map(|log| Crossing::Told(Notice::Log("0x9".to_owned(), log)));
        let session = session(SessionCall::Logs("{}".to_owned()), crossings.collect());
        evidence.scenario.length = LEFT;
        evidence.sessions = vec![session];
        evidence.worlds = vec![world];
        let findings = super::check(&Heard::of(&evidence));
        assert_eq!(findings.len(), found, "{findings:?}");
    }

    /// Logs of block 7 told to a client that subscribed a second after others were told `heads`, which are told
    /// one a second.
    fn check_early(heads: &str, told: &str, found: usize) {
        let mut late = logs(told);
        let count = u32::try_from(heads.split_whitespace().count()).expect("a few");
        // The head at this place is told as the client asks.
        let asked = OPENED + Duration::from_secs(1) + Duration::from_secs(1) * (count / 2 + 1);
        late.crossed[0].0 = asked;
        let evidence = evidence(vec![super::super::sample::heads(heads), late]);
        let heard = Heard::of(&evidence);
        let stream = heard.log_streams(0).next().expect("one");
        let findings = early(&heard, stream, &told_last(&heard, 0));
        assert_eq!(findings.iter().len(), found, "{heads}, then {told}");
    }

    #[test]
    fn what_was_told_before_is_not_told_unless_it_comes_back() {
        check_early("6a 7a 8a 9a", "7a.0", 1);
        check_early("6a 7a 8a 9a", "9a.0", 0);
        check_early("6a 7a 7b<6a 7a<6a", "7a.0", 0);
    }

    #[test]
    fn what_the_world_has_is_told() {
        check_world(|_| {}, 0);
        check_world(|told| drop(told.pop()), 1);
        check_world(|told| drop(told.remove(told.len() / 2)), 1);
        check_world(|told| told[1].body = told[1].body.replace("0x", "0x0"), 1);
        check_world(|told| told[1].index = 99, 1);
    }
}
