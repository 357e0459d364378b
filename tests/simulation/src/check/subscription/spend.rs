//! What is told costs one call a block for its head and one for its logs, and at most two feeds, however
//! many subscribe.
//!
//! Counted are the calls of the loop that announces blocks which brought something; those that
//! brought nothing are made again, and an empty list of logs is asked for once more where its upstream is not known
//! to hold the block (`steps::empty_logs`). A pool that no upstream pushes is polled at most once a second. A slow one may be made twice at once where `hedging` is on. A journal that
//! begins, or begins anew, reads a few headers again.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Heard;
use super::stream::times_made;
use crate::check::Finding;
use crate::evidence::{At, Caller, Evidence, OpenedFeed, Told};
use crate::session::SessionEnd;
use crate::upstream::{LOGS, RECEIPTS};

/// How a pool is polled.
const POOL_METHODS: [&str; 3] =
    ["eth_newPendingTransactionFilter", "eth_getFilterChanges", "eth_uninstallFilter"];
/// Feeds of one chain at a time.
const FEEDS_MAX: usize = 2;

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let evidence = heard.evidence;
    let mut findings = Vec::new();
    for chain in 0..evidence.scenario.chains.len() {
        let at_once = 1 + usize::from(evidence.scenario.settings.hedging.is_some());
        // By what is asked for: the header of a block, or its logs, by either method.
        let mut brought: HashMap<(bool, &str), usize> = HashMap::new();
        let mut without_logs: HashSet<&str> = HashSet::new();
        let mut unread: Vec<(At, &str)> = Vec::new();
        // By second and call.
        let mut pool_polls: HashMap<(u64, &str), usize> = HashMap::new();
        let exchanges = evidence.exchanges.iter().filter(|it| it.place.chain == chain);
        for exchange in exchanges.filter(|it| it.caller == Caller::Announcer) {
            for call in &exchange.calls {
                let told = call.told.as_ref().filter(|told| told.is_honest);
                let is_of_use =
                    told.is_some_and(|it| it.outcome.as_ref().is_ok_and(|it| it != "null"));
                if !is_of_use {
                    continue;
                }
                let is_of_logs = call.key.starts_with(LOGS) || call.key.starts_with(RECEIPTS);
                let is_of_header = call.key.starts_with("eth_getBlockBy");
                match call.key.split('"').find(|word| word.starts_with("0x")) {
                    Some(block) if is_of_logs || is_of_header => {
                        *brought.entry((is_of_logs, block)).or_default() += 1;
                        let is_empty = call.key.starts_with(LOGS) && told.is_some_and(is_empty);
                        without_logs.extend(is_empty.then_some(block));
                    }
                    _ if POOL_METHODS.iter().any(|method| call.key.starts_with(method)) => {
                        let poll = (exchange.began.as_secs(), &*call.key);
                        *pool_polls.entry(poll).or_default() += 1;
                    }
                    _ => unread.push((exchange.began, &call.key)),
                }
            }
        }
        let begins = begins(evidence, chain);
        let fallen = fallen(heard, chain);
        for ((is_of_logs, block), count) in brought {
            // The logs of a branch that comes back are read again.
            let hash = block.parse().unwrap_or_default();
            let made = times_made(evidence, chain, hash).max(1);
            let asked_again = usize::from(without_logs.contains(block));
            let most = at_once * if is_of_logs { made + fallen + asked_again } else { 1 + begins };
            if count > most {
                let of = if is_of_logs { "logs" } else { "header" };
                let what = format!("the {of} of {block} was read {count} times, of {most} allowed");
                findings.push((At::ZERO, what));
            }
        }
        findings.extend(polled_too_often(evidence, at_once, pool_polls));
        findings.extend(feeds(evidence, chain));
        findings.extend(unread.into_iter().map(|(at, key)| (at, format!("the announcer: {key}"))));
    }
    findings
}

/// Whether a call was answered with an empty list.
fn is_empty(told: &Told) -> bool {
    told.outcome.as_ref().is_ok_and(|it| it == "[]")
}

/// Polls of the pool, by second and call, that were more than allowed, or for which there was no subscriber.
fn polled_too_often(
    evidence: &Evidence,
    at_once: usize,
    polls: HashMap<(u64, &str), usize>,
) -> impl Iterator<Item = Finding> {
    let are_wanted = evidence.scenario.subscribers.iter().any(|it| it.pending.is_some());
    let too_often = polls.into_iter().filter(move |(_, count)| *count > at_once || !are_wanted);
    too_often.map(|((second, key), count)| {
        let what = format!("the pool was polled {count} times in a second: {key}");
        (At::from_secs(second), what)
    })
}

/// A moment at which more feeds of a chain are open than it needs.
fn feeds(evidence: &Evidence, chain: usize) -> Option<Finding> {
    // All upstreams that push free of charge tell what enters their pools.
    let feeds = evidence.feeds.iter().filter(|it| it.place.chain == chain && !it.is_of_pool);
    let feeds: Vec<_> = feeds.collect();
    let is_open = |feed: &OpenedFeed, at: At| {
        feed.opened <= at && feed.closed.is_none_or(|closed| closed > at)
    };
    feeds.iter().find_map(|feed| {
        let open = feeds.iter().filter(|it| is_open(it, feed.opened)).count();
        (open > FEEDS_MAX).then(|| (feed.opened, format!("{open} feeds are open")))
    })
}

/// How often the journal may have begun anew below blocks that it had told: the only upstream that is heard
/// shows older ones.
fn fallen(heard: &Heard<'_>, chain: usize) -> usize {
    let missed = missed(heard.evidence, chain).into_iter();
    missed.filter(|at| heard.is_held_down(chain, *at, *at)).count()
}

/// When connections were closed because blocks were missed.
fn missed(evidence: &Evidence, chain: usize) -> BTreeSet<At> {
    let sessions = evidence.sessions.iter().filter(|it| it.chain == chain);
    let ends = sessions.filter_map(|it| it.closed);
    ends.filter(|(_, end)| *end == SessionEnd::Resync).map(|(closed, _)| closed).collect()
}

/// How often a journal may have begun: when it was first wanted, when nothing had read it for a while, and
/// when blocks were missed.
fn begins(evidence: &Evidence, chain: usize) -> usize {
    let sessions = evidence.sessions.iter().filter(|it| it.chain == chain);
    let mut spans: Vec<(At, At)> = Vec::new();
    for session in sessions {
        let closed = session.closed.map_or(At::MAX, |(closed, _)| closed);
        spans.push((session.opened, closed));
    }
    spans.sort();
    let mut until = None;
    let mut gaps = 0;
    for (opened, closed) in spans {
        gaps += usize::from(until.is_none_or(|until| opened > until));
        until = until.max(Some(closed));
    }
    // A connection that lived without a subscription does not keep the journal written.
    gaps + missed(evidence, chain).len() + 1
}

#[cfg(test)]
mod tests {
    use super::super::sample::{evidence, heads};
    use super::*;
    use crate::check::sample::{PLACE, exchange};

    fn check(calls: &[(&str, &str)], found: usize) {
        let told = |result: &str| Told { is_honest: true, outcome: Ok(result.to_owned()) };
        let mut evidence = evidence(vec![heads("7a")]);
        evidence.scenario.settings.hedging = None;
        evidence.exchanges.extend(calls.iter().map(|(key, result)| {
            let mut exchange = exchange(key, Some(told(result)));
            exchange.caller = Caller::Announcer;
            exchange
        }));
        let findings = super::check(&Heard::of(&evidence));
        assert_eq!(findings.len(), found, "{calls:?}: {findings:?}");
    }

    #[test]
    fn two_feeds_are_enough() {
        let check = |closed: Option<At>, found: usize| {
            let mut evidence = evidence(vec![heads("7a")]);
            let feed =
                |opened| OpenedFeed { place: PLACE, opened, closed: None, is_of_pool: false };
            let (first, second) = (At::from_secs(1), At::from_secs(2));
            evidence.feeds =
                vec![OpenedFeed { closed, ..feed(At::ZERO) }, feed(first), feed(second)];
            assert_eq!(super::check(&Heard::of(&evidence)).len(), found, "{closed:?}");
        };
        check(None, 1);
        check(Some(At::from_secs(2)), 0);
    }

    #[test]
    fn a_block_is_read_once() {
        let header = (r#"eth_getBlockByHash["0x01",false]"#, "{}");
        let logs = (r#"eth_getLogs[{"blockHash":"0x01"}]"#, "[{}]");
        let no_logs = (logs.0, "[]");
        let receipts = (r#"eth_getBlockReceipts["0x01"]"#, "[]");
        let nothing = (r#"eth_getBlockReceipts["0x01"]"#, "null");
        check(&[header, header, header, logs], 0);
        check(&[header, header, header, header], 1);
        check(&[logs, logs], 1);
        check(&[logs, receipts], 1);
        check(&[logs, nothing, nothing], 0);
        check(&[("eth_getBalance[]", "0x0")], 1);
        // An empty list is doubted once.
        check(&[no_logs; 2], 0);
        check(&[no_logs; 3], 1);
    }
}
