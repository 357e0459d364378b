//! A block is told soon after it was made, and so are its logs, while all upstreams are well.
//!
//! How soon follows from how upstreams tell new blocks: two that push each one are waited for only as long as
//! calls take; polls come a little slower than blocks, one after the other; and a feed that lost a block is
//! trusted for a few more. Left out: blocks made in the first seconds of a subscription, those that
//! were left in that time, those made while the headers or logs that an outage left out are still fetched, and
//! those made after the chain became much shorter: a head below all that is known may be that of an upstream
//! that lags, and is not believed at once.

use std::collections::HashMap;
use std::time::Duration;

use super::Heard;
use super::stream::{Stream, StreamKind, left_at, made};
use crate::check::Finding;
use crate::evidence::{At, Caller, Place};
use crate::upstream::{LOGS, RECEIPTS};

/// A subscription that just began may have to wait for the first poll, or for a feed to open.
const SETTLES: Duration = Duration::from_secs(15);
/// What all calls for a block take, beside the latency of upstreams.
const CALLS: Duration = Duration::from_secs(2);
/// Calls for a block that follow each other, at most.
const CALLS_MAX: u32 = 10;
/// Further below the newest block what was told is being made up for.
const BEHIND_BLOCKS: u64 = 8;
/// And logs are, for so long after a trouble.
const CATCHES_UP: Duration = Duration::from_secs(30);
/// And for so long, while those of far older blocks are still read.
const CATCHES_UP_MAX: Duration = Duration::from_secs(90);
/// A chain that became shorter by more than so many blocks is believed after so long: half a minute until an
/// upstream's own word counts, as much again until subscribers are closed, and until they have come back.
const SHORTER_BLOCKS: u64 = 4;
const BELIEVED_AFTER: Duration = Duration::from_secs(75);
/// So many have to hold a block, or all where there are fewer: the default of `agreement`.
const AGREEMENT: usize = 2;

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for chain in 0..heard.evidence.scenario.chains.len() {
        let logs_read = logs_read(heard, chain);
        for (at, number, hash) in made(heard.evidence, chain) {
            let within = bound(heard, chain, at);
            let by = at + within;
            let stays = left_at(heard.evidence, chain, hash, at).is_none_or(|left| left > by);
            if at.is_zero() || !stays || !heard.are_all_well(chain, at.saturating_sub(CALLS), by) {
                continue;
            }
            if is_behind(heard, chain, at, number) || is_set_back(heard, chain, at) {
                continue;
            }
            let are_well_since = |since| heard.are_all_well(chain, at.saturating_sub(since), by);
            let reads_old = logs_read
                .iter()
                .any(|(read, of)| (at..=by).contains(read) && of + BEHIND_BLOCKS < number);
            let has_caught_up =
                are_well_since(CATCHES_UP) && (!reads_old || are_well_since(CATCHES_UP_MAX));
            let listens = |it: &&Stream<'_>| it.since + SETTLES <= at && it.listens(at, by);
            for stream in
                heard.streams.iter().filter(|it| it.session.chain == chain).filter(listens)
            {
                let is_told = match &stream.kind {
                    StreamKind::Heads(told) => {
                        told.iter().any(|it| it.notice.hash == hash && it.at <= by)
                    }
                    // Logs are read one block after the other, and may still be made up for.
                    StreamKind::Logs(..) if !has_caught_up => true,
                    // What is in pools is for `pending_once`.
                    StreamKind::Pending(..) => true,
                    StreamKind::Logs(criteria, told) => {
                        let world = heard.evidence.worlds.get(chain);
                        let block = world.and_then(|it| it.chain().by_hash(&hash).cloned());
                        let logs = block.and_then(|block| criteria.in_block(&block));
                        logs.unwrap_or_default().is_empty()
                            || told.iter().any(|it| it.notice.hash == hash && it.at <= by)
                    }
                };
                if !is_told {
                    let what = format!("{}: not told of block {number} {hash}", stream.name());
                    findings.push((by, format!("{what} within {} ms", within.as_millis())));
                }
            }
        }
    }
    findings
}

/// Whether all that was told by then is far below a block that is made.
fn is_behind(heard: &Heard<'_>, chain: usize, at: At, number: u64) -> bool {
    let told = heard.head_streams(chain).flat_map(Stream::heads);
    let newest = told.filter(|told| told.at <= at).map(|told| told.notice.number).max();
    newest.is_some_and(|newest| newest + BEHIND_BLOCKS < number)
}

/// Whether the chain became much shorter a while ago.
fn is_set_back(heard: &Heard<'_>, chain: usize, at: At) -> bool {
    let height_at = |time| {
        let heights = heard.evidence.heights[chain].iter();
        heights.rev().find(|(made, _)| *made <= time).map_or(0, |(_, number)| *number)
    };
    let reorgs = heard.evidence.reorgs[chain].iter();
    let mut recent = reorgs.filter(|it| it.at <= at && at <= it.at + BELIEVED_AFTER);
    recent.any(|it| height_at(it.at) + SHORTER_BLOCKS < it.head.0)
}

/// When logs were read to be told, and of which height.
fn logs_read(heard: &Heard<'_>, chain: usize) -> Vec<(At, u64)> {
    let blocks = heard.evidence.blocks[chain].iter();
    let number_of: HashMap<String, u64> = blocks
        .flat_map(|(number, hashes)| hashes.iter().map(move |hash| (hash.to_string(), *number)))
        .collect();
    let exchanges = heard.evidence.exchanges.iter().filter(|it| it.place.chain == chain);
    let announced = exchanges.filter(|it| it.caller == Caller::Announcer);
    let calls = announced.flat_map(|it| it.calls.iter().map(|call| (it.began, &call.key)));
    let of_logs = calls.filter(|(_, key)| key.starts_with(LOGS) || key.starts_with(RECEIPTS));
    let height = |key: &str| {
        let hash = key.split('"').find(|word| word.starts_with("0x"))?;
        number_of.get(hash).copied()
    };
    of_logs.filter_map(|(began, key)| Some((began, height(key)?))).collect()
}

/// How soon a block is told that is made at this moment.
pub(super) fn bound(heard: &Heard<'_>, chain: usize, at: At) -> At {
    let upstreams = &heard.evidence.scenario.chains[chain].upstreams;
    let block_time = heard.evidence.scenario.chains[chain].world.block_time;
    let slowest = upstreams.iter().map(|it| it.latency + it.jitter).max().unwrap_or_default();
    let calls = CALLS + slowest * CALLS_MAX;
    let is_open = |place: Place| {
        let feeds = heard.evidence.feeds.iter().filter(|it| !it.is_of_pool);
        let mut feeds = feeds.filter(|it| it.place == place);
        feeds.any(|it| it.opened <= at && it.closed.is_none_or(|closed| closed > at + calls))
    };
    let prompt = heard.places(chain).filter(|(_, it)| it.feed_habit.is_prompt());
    // The word of one whose breaker is still open does not count, though its feed may be open.
    let counts = |place| heard.wellness.is_well(place, at.saturating_sub(CATCHES_UP), at);
    let prompt = prompt.filter(|(place, _)| is_open(*place) && counts(*place)).count();
    let is_odd = upstreams.iter().any(|it| it.has_feed && !it.feed_habit.is_prompt());
    let paces = match () {
        () if is_odd => 6,
        () if prompt >= AGREEMENT.min(upstreams.len()) => return calls,
        () => 3,
    };
    calls + block_time.max(Duration::from_secs(1)) * paces
}

#[cfg(test)]
mod tests {
    use super::super::sample::{OPENED, block, evidence, heads};
    use super::*;
    use crate::check::sample::PLACE;
    use crate::evidence::OpenedFeed;

    /// Block `9a` is made so many seconds after the connection was opened, which is told of heads one a second.
    fn check(told: &str, made: u64, found: usize) {
        let mut evidence = evidence(vec![heads(told)]);
        let (number, hash) = block("9a");
        let upstream = &mut evidence.scenario.chains[0].upstreams[0];
        (upstream.latency, upstream.jitter) = (At::ZERO, At::ZERO);
        evidence.feeds =
            vec![OpenedFeed { place: PLACE, opened: At::ZERO, closed: None, is_of_pool: false }];
        evidence.heights[0].push((OPENED + Duration::from_secs(made), number));
        evidence.blocks[0].insert(number, vec![hash]);
        assert_eq!(super::check(&Heard::of(&evidence)).len(), found, "{told}, made at {made}");
    }

    #[test]
    fn what_is_late_is_seen() {
        let told = "1a 2a 3a 4a 5a 6a 7a 8a 1b 2b 3b 4b 5b 6b 7b 8b 9b 9a";
        check(told, 18, 0);
        check(told, 17, 0);
        check(told, 16, 1);
        check("8a", 17, 1);
        check("8a", 10, 0);
    }
}
