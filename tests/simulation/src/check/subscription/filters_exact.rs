//! What the polls of a filter told, put together, is what the world has: each block, or each log that matches,
//! from the block at which the filter was made, once; none that was left; none that was taken back without
//! having been told. What is taken back comes first, the newest block first.
//!
//! That holds after each poll, of the branch of the newest block that it told. When nothing has changed for a
//! while it holds of the whole chain; and a client that was told of a head finds in its next poll
//! what is new up to there. A poll fails only while no upstream is well, or while a reorg is news: upstreams
//! no longer have the newest block that the proxy knows. A filter that its client neither removed nor
//! forgot is not found only after a reorg that reached below the block at which it was made.
//!
//! Left out: the newest changes of a filter that its client stopped to poll; what is new while the chain is
//! shorter than when the filter was made; whether a client that was told of a head finds it while an upstream
//! shows an older block than others; and what a filter tells from the moment on at which it is polled while
//! the only upstream that is well hides logs: a search cannot show that.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use serde_json::{Value, json};
use wellhead_sim::World;
use wellhead_sim::rpc::logs::Criteria;
use wellhead_sim::world::SimBlock;

use super::Heard;
use super::fresh::bound;
use super::stream::{Stream, left_at, made};
use crate::check::Finding;
use crate::evidence::At;
use crate::filter::{AnsweredPoll, FilterChange, FilterEnd, KeptFilter};
use crate::session::LogNotice;
use crate::weather::Kind;

/// Polls in the last part of a story, when all has come to rest, are judged by the whole chain.
const LAST: Duration = Duration::from_secs(10);

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (chain, world) in heard.evidence.worlds.iter().enumerate() {
        let blocks = MadeBlocks::of(heard, chain);
        let filters = heard.evidence.filters.iter().enumerate();
        for (number, filter) in filters.filter(|(_, filter)| filter.chain == chain) {
            let name = format!("filter {number}");
            let mut account = Account::new(heard, filter, world, &blocks);
            let told = account.polls().into_iter().chain(account.end());
            findings.extend(told.map(|(at, what)| (at, format!("{name}: {what}"))));
        }
    }
    findings
}

/// The blocks of a chain.
struct MadeBlocks {
    /// In the order in which they were made or came back.
    all: Vec<(At, u64, B256)>,
    /// When each was made first.
    first: HashMap<B256, At>,
}

impl MadeBlocks {
    fn of(heard: &Heard<'_>, chain: usize) -> Self {
        let all = made(heard.evidence, chain);
        let mut first: HashMap<B256, At> = HashMap::new();
        for (at, _, hash) in &all {
            first.entry(*hash).or_insert(*at);
        }
        Self { all, first }
    }
}

/// A log that was told, or a block (then the index is zero).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ToldItem {
    number: u64,
    hash: B256,
    index: u64,
}

/// What one filter told so far.
struct Account<'a> {
    heard: &'a Heard<'a>,
    filter: &'a KeptFilter,
    /// `None` for a filter of blocks.
    criteria: Option<Criteria>,
    world: &'a World,
    blocks: &'a MadeBlocks,
    /// What was told and not taken back, in the order in which it was told.
    branch: Vec<ToldItem>,
    /// What the world has to tell, by block.
    expected: HashMap<B256, Vec<Value>>,
}

impl<'a> Account<'a> {
    fn new(
        heard: &'a Heard<'a>,
        filter: &'a KeptFilter,
        world: &'a World,
        blocks: &'a MadeBlocks,
    ) -> Self {
        let criteria = filter.criteria.as_deref().map(|text| {
            let object = serde_json::from_str(text).expect("the client wrote it");
            Criteria::read(&object).expect("the client wrote a filter")
        });
        let (branch, expected) = (Vec::new(), HashMap::new());
        Self { heard, filter, criteria, world, blocks, branch, expected }
    }

    /// What is wrong with the first of its polls with which something is.
    fn polls(&mut self) -> Option<Finding> {
        for poll in &self.filter.polls {
            if self.are_logs_hidden(poll) {
                break;
            }
            let wrong = match &poll.outcome {
                Ok(result) => self.told(poll, result),
                Err(error) if self.is_owed(poll) => vec![format!("a poll failed: {error}")],
                Err(_) => Vec::new(),
            };
            // What follows from the first is of no interest.
            if let Some(first) = wrong.into_iter().next() {
                return Some((poll.answered, first));
            }
        }
        None
    }

    /// Whether it may be answered by an upstream that hides logs, without another one to say so.
    fn are_logs_hidden(&self, poll: &AnsweredPoll) -> bool {
        let places = self.heard.places(self.filter.chain);
        let hides = places.filter(|(_, plan)| {
            let mut spells = plan.spells.iter().filter(|spell| spell.kind == Kind::NoLogs);
            spells.any(|spell| spell.from <= poll.answered && spell.until >= poll.asked)
        });
        hides.count() > 0 && !self.heard.is_one_well(self.filter.chain, poll.asked, poll.answered)
    }

    /// Whether the poll has to succeed.
    fn is_owed(&self, poll: &AnsweredPoll) -> bool {
        let (chain, evidence) = (self.filter.chain, self.heard.evidence);
        let seen_within = bound(self.heard, chain, poll.asked);
        let is_news = |at: At| at <= poll.answered && at + seen_within >= poll.asked;
        self.heard.is_one_well(chain, poll.asked, poll.answered)
            && !evidence.reorgs[chain].iter().any(|reorg| is_news(reorg.at))
    }

    fn told(&mut self, poll: &AnsweredPoll, result: &str) -> Vec<String> {
        let changes = FilterChange::read_all(result);
        let mut wrong: Vec<String> =
            changes.iter().filter_map(|change| self.change(change).err()).collect();
        wrong.extend(disorder(&changes));
        if wrong.is_empty() && !changes.is_empty() {
            let tip = self.branch.last().map(|newest| newest.hash);
            wrong.extend(tip.and_then(|tip| self.missing(tip, true)));
        }
        let scenario = &self.heard.evidence.scenario;
        let quiet_from = scenario.quiet_from(self.filter.chain);
        let newest = self.blocks.all.iter().rfind(|(at, ..)| *at <= quiet_from);
        // A feed that lost it is trusted for a few blocks more.
        let is_known = |at: At| at + bound(self.heard, self.filter.chain, at) <= poll.asked;
        let newest =
            newest.filter(|(at, number, _)| *number >= self.height_made_at() && is_known(*at));
        if let Some((.., head)) = newest.filter(|_| poll.asked + LAST >= scenario.length)
            && wrong.is_empty()
        {
            wrong.extend(self.missing(*head, true));
        } else if let Some(head) = self.head_told(poll).filter(|_| wrong.is_empty()) {
            wrong.extend(self.missing(head, false));
        }
        wrong
    }

    /// Takes in one change.
    fn change(&mut self, change: &FilterChange) -> Result<(), String> {
        match (change, &self.criteria) {
            (FilterChange::Block(hash), None) => self.block(*hash),
            (FilterChange::Log(log), Some(_)) => self.log(log),
            (change, _) => Err(format!("not a change of this filter: {change:?}")),
        }
    }

    fn block(&mut self, hash: B256) -> Result<(), String> {
        let block = self.world.chain().by_hash(&hash).cloned();
        let block = block.ok_or_else(|| format!("no such block: {hash}"))?;
        let (number, parent) = (block.number(), block.header.parent_hash);
        if self.branch.iter().any(|it| it.hash == hash) {
            return Err(format!("block {number} {hash} is told twice"));
        }
        match self.branch.iter().position(|it| it.hash == parent) {
            Some(place) => self.branch.truncate(place + 1),
            None if self.branch.first().is_some_and(|lowest| number > lowest.number) => {
                return Err(format!("block {number} {hash} stands on none that was told"));
            }
            // The first one, or a reorg of all that was told.
            None => self.branch.clear(),
        }
        self.branch.push(ToldItem { number, hash, index: 0 });
        Ok(())
    }

    fn log(&mut self, log: &LogNotice) -> Result<(), String> {
        let LogNotice { number, hash, index, is_removed, .. } = *log;
        let item = ToldItem { number, hash, index };
        let wrong = |what: &str| Err(format!("log {index} of {number} {hash} {what}"));
        if !self.look_up(log) {
            return wrong(&format!("is not so: {}", log.body));
        }
        match (is_removed, self.branch.iter().position(|it| *it == item)) {
            (true, Some(place)) => drop(self.branch.remove(place)),
            (true, None) => return wrong("is taken back and was not told"),
            (false, Some(_)) => return wrong("is told twice"),
            (false, None) => self.branch.push(item),
        }
        Ok(())
    }

    /// Looks the log up in the world: false if it is not there, or does not match.
    fn look_up(&mut self, log: &LogNotice) -> bool {
        let Some(block) = self.world.chain().by_hash(&log.hash).cloned() else { return false };
        let Ok(mut body) = serde_json::from_str::<Value>(&log.body) else { return false };
        body["removed"] = json!(false);
        self.expected_of(&block).contains(&body)
    }

    /// What there is to be told of a block: its logs that match, or itself.
    fn expected_of(&mut self, block: &SimBlock) -> &[Value] {
        let criteria = self.criteria.as_ref();
        self.expected.entry(block.hash).or_insert_with(|| match criteria {
            Some(criteria) => criteria.in_block(block).unwrap_or_default(),
            None => vec![json!({"logIndex": "0x0"})],
        })
    }

    /// What was not told of the branch of a block; and, if that is all there is, what was told of others.
    fn missing(&mut self, tip: B256, is_all: bool) -> Option<String> {
        let lowest = self.branch.iter().map(|it| it.number).min().unwrap_or(u64::MAX);
        let told: HashSet<ToldItem> = self.branch.iter().copied().collect();
        let mut seen = 0;
        let mut next = self.world.chain().by_hash(&tip).cloned();
        while let Some(block) = next {
            let (number, hash) = (block.number(), block.hash);
            let is_new = self.blocks.first.get(&hash).is_some_and(|at| *at > self.filter.made);
            if !is_new && number < lowest {
                break;
            }
            for item in self.expected_of(&block) {
                let index = item["logIndex"].as_str().and_then(crate::check::height);
                let index = index.unwrap_or_default();
                if !told.contains(&ToldItem { number, hash, index }) {
                    return Some(format!("not told of block {number} {hash}, log {index}"));
                }
                seen += 1;
            }
            next = self.parent(&block);
        }
        (is_all && seen < told.len()).then(|| {
            let left = told.iter().find(|it| !self.is_below(it, tip));
            format!("{left:?} was told and not taken back")
        })
    }

    fn parent(&self, block: &SimBlock) -> Option<Arc<SimBlock>> {
        self.world.chain().by_hash(&block.header.parent_hash).cloned()
    }

    /// Whether it is of the branch of a block.
    fn is_below(&self, item: &ToldItem, tip: B256) -> bool {
        let mut next = self.world.chain().by_hash(&tip).cloned();
        while let Some(block) = next.filter(|block| block.number() >= item.number) {
            if block.hash == item.hash {
                return true;
            }
            next = self.parent(&block);
        }
        false
    }

    /// The newest head that a client was told before it polled, if it was not left until it had the answer.
    fn head_told(&self, poll: &AnsweredPoll) -> Option<B256> {
        let chain = self.filter.chain;
        if self.heard.is_held_down(chain, poll.asked, poll.answered) {
            return None;
        }
        let streams = self.heard.head_streams(chain);
        let of_client = streams.filter(|it| it.session.subscriber == self.filter.keeper);
        let told = of_client.flat_map(Stream::heads).filter(|told| told.at < poll.asked);
        let newest = told.max_by_key(|told| told.at)?.notice;
        if newest.number < self.height_made_at() {
            return None;
        }
        let left = left_at(self.heard.evidence, chain, newest.hash, At::ZERO);
        left.is_none().then_some(newest.hash)
    }

    /// The greatest height that the chain had when the filter was made.
    fn height_made_at(&self) -> u64 {
        let heights = self.heard.evidence.heights[self.filter.chain].iter();
        let made = heights.filter(|(at, _)| *at <= self.filter.made);
        made.map(|(_, number)| *number).max().unwrap_or_default()
    }

    /// What is wrong with how it ended.
    fn end(&self) -> Option<Finding> {
        let (at, FilterEnd::NotFound) = self.filter.ended? else { return None };
        let chain = self.filter.chain;
        let height = self.height_made_at();
        let has_reason = self.heard.evidence.reorgs[chain].iter().any(|reorg| {
            let fork = reorg.head.0.saturating_sub(reorg.dropped.len() as u64);
            reorg.at <= at && fork < height
        });
        (!has_reason).then(|| (at, "is not found, and no reorg reached so deep".to_owned()))
    }
}

/// What does not come in its order: what is taken back first, the newest block first; then what is new, by
/// block and index.
fn disorder(changes: &[FilterChange]) -> Option<String> {
    let logs = changes.iter().filter_map(|change| match change {
        FilterChange::Log(log) => Some(log),
        FilterChange::Block(_) | FilterChange::Malformed(_) => None,
    });
    let place = |log: &&LogNotice| match log.is_removed {
        true => (0, u64::MAX - log.number, 0),
        false => (1, log.number, log.index),
    };
    let logs: Vec<&LogNotice> = logs.collect();
    let wrong = logs.windows(2).find(|pair| place(&pair[0]) > place(&pair[1]))?;
    Some(format!("log {} of {} comes too late", wrong[1].index, wrong[1].number))
}

#[cfg(test)]
mod tests {
    use wellhead_sim::WorldConfig;

    use super::super::sample::{LEFT, OPENED, evidence};
    use super::*;
    use crate::evidence::{Evidence, Replaced};

    /// The block at which the filter is made.
    const MADE_AT: u64 = 3;
    const ALL: Criteria = Criteria {
        span: wellhead_sim::rpc::logs::LogRange::Block(B256::ZERO),
        addresses: Vec::new(),
        topics: Vec::new(),
    };

    /// The logs of a block, or its hash, as a poll tells it.
    fn items(block: &SimBlock, is_of_logs: bool, is_removed: bool) -> Vec<Value> {
        if !is_of_logs {
            return if is_removed { Vec::new() } else { vec![json!(block.hash)] };
        }
        let mut logs = ALL.in_block(block).expect("its body is there");
        logs.iter_mut().for_each(|log| log["removed"] = json!(is_removed));
        logs
    }

    /// A filter of a world of six blocks that is polled after each new one and, when the last two
    /// were replaced, once more, at the end of the story. `spoil` changes what the polls told.
    fn story(is_of_logs: bool, spoil: impl FnOnce(&mut Vec<Vec<Value>>)) -> Evidence {
        let world = World::new(WorldConfig { history_blocks: 6, ..WorldConfig::seeded(7) });
        let mut evidence = evidence(Vec::new());
        let at = |second: u64| OPENED + Duration::from_secs(second);
        let mut polls: Vec<Vec<Value>> = Vec::new();
        let canonical = |number| world.chain().canonical(number).cloned().expect("it was mined");
        for number in 0..=6 {
            let block = canonical(number);
            let made = if number <= MADE_AT { At::ZERO } else { at(number * 10) };
            evidence.heights[0].push((made, number));
            evidence.blocks[0].insert(number, vec![block.hash]);
            if number > MADE_AT {
                polls.push(items(&block, is_of_logs, false));
            }
        }
        let (old, head) = ([canonical(6), canonical(5)], world.head());
        let change = world.reorg(2).expect("six blocks are there");
        let (at_once, head) = (at(70), (head.number(), head.hash));
        evidence.reorgs[0].push(Replaced { at: at_once, head, dropped: change.dropped });
        let mut last: Vec<Value> =
            old.iter().flat_map(|block| items(block, is_of_logs, true)).collect();
        for (number, hash) in (5..).zip(change.adopted) {
            evidence.heights[0].push((at_once, number));
            evidence.blocks[0].entry(number).or_default().push(hash);
            let block = world.chain().by_hash(&hash).cloned().expect("it was adopted");
            last.extend(items(&block, is_of_logs, false));
        }
        polls.push(last);
        spoil(&mut polls);
        let poll = |(place, changes): (usize, Vec<Value>)| {
            let second = if place < 3 { 45 + 10 * place as u64 } else { 940 };
            let (asked, answered) = (at(second), at(second + 1));
            AnsweredPoll { asked, answered, outcome: Ok(Value::Array(changes).to_string()) }
        };
        let polls = polls.into_iter().enumerate().map(poll).collect();
        let criteria = is_of_logs.then(|| "{}".to_owned());
        let (keeper, chain, made, ended) = (0, 0, at(1), None);
        evidence.filters = vec![KeptFilter { keeper, chain, criteria, made, polls, ended }];
        evidence.scenario.length = LEFT;
        evidence.scenario.chains[0].world.block_time = Duration::from_secs(1);
        evidence.worlds = vec![world];
        evidence
    }

    fn found(evidence: &Evidence) -> Vec<Finding> {
        super::check(&Heard::of(evidence))
    }

    #[test]
    fn a_block_that_is_new_may_be_missing_in_the_last_poll() {
        let mut evidence = story(true, |polls| polls[3].clear());
        assert_eq!(found(&evidence).len(), 1);
        let (then, now) = (OPENED + Duration::from_secs(70), OPENED + Duration::from_secs(939));
        evidence.reorgs[0].iter_mut().for_each(|reorg| reorg.at = now);
        let late = evidence.heights[0].iter_mut().filter(|(at, _)| *at == then);
        late.for_each(|(at, _)| *at = now);
        assert_eq!(found(&evidence), []);
    }

    fn check(is_of_logs: bool, spoil: impl FnOnce(&mut Vec<Vec<Value>>), words: &str) {
        let findings = found(&story(is_of_logs, spoil));
        let is_right = match words {
            "" => findings.is_empty(),
            words => findings.len() == 1 && findings[0].1.contains(words),
        };
        assert!(is_right, "{words}: {findings:?}");
    }

    #[test]
    fn what_polls_of_logs_tell_adds_up() {
        check(true, |_| {}, "");
        check(true, |polls| drop(polls[0].remove(0)), "not told of block 4");
        check(true, |polls| drop(polls[3].pop()), "not told of block ");
        check(true, |polls| polls[1] = polls[0].clone(), "is told twice");
        check(true, |polls| drop(polls[3].remove(0)), "not taken back");
        check(true, |polls| drop(polls[2].remove(0)), "not told of block ");
        check(true, |polls| polls[0][0]["data"] = json!("0x1234"), "is not so");
        check(true, |polls| polls[3].reverse(), "comes too late");
        check(true, |polls| polls[0].push(json!(B256::ZERO)), "not a change of this filter");
    }

    #[test]
    fn what_polls_of_blocks_tell_adds_up() {
        check(false, |_| {}, "");
        check(false, |polls| polls[1].clear(), "stands on none that was told");
        check(false, |polls| drop(polls[3].pop()), "not told of block ");
        check(false, |polls| polls[1] = polls[0].clone(), "is told twice");
        check(false, |polls| polls[3].clear(), "not told of block ");
        check(false, |polls| polls[0][0] = json!(B256::ZERO), "no such block");
    }

    #[test]
    fn a_filter_fails_and_ends_for_a_reason() {
        let check = |change: fn(&mut Evidence), words: &str| {
            let mut evidence = story(true, |_| {});
            change(&mut evidence);
            let findings = found(&evidence);
            let is_right = findings.first().map_or(words.is_empty(), |it| it.1.contains(words));
            assert!(is_right, "{words}: {findings:?}");
        };
        check(|it| it.filters[0].polls[1].outcome = Err("no luck".to_owned()), "a poll failed");
        check(
            |it| {
                let at = OPENED + Duration::from_secs(80);
                it.filters[0].ended = Some((at, FilterEnd::NotFound));
            },
            "is not found",
        );
        check(
            |it| {
                let at = OPENED + Duration::from_secs(80);
                it.filters[0].ended = Some((at, FilterEnd::NotFound));
                // It reached below the block at which the filter was made.
                it.reorgs[0][0].dropped.extend([B256::ZERO; 2]);
            },
            "",
        );
    }
}
