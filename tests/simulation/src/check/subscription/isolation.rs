//! A client that reads nothing, or storms, delays no other one: all that listen are told of a block at one
//! moment, whatever the others do.
//!
//! Judged against the subscription to heads that was told most, and, of logs, against the first that was told
//! one of the block among those that began no later: one that began later does not wait for the logs of blocks
//! before it, if these cannot be had. Left out: clients that do not read at that moment, and what a stalled
//! reader holds in memory.

use std::collections::HashMap;
use std::time::Duration;

use alloy_primitives::B256;

use super::Heard;
use super::stream::{Stream, left_at};
use crate::check::Finding;
use crate::evidence::At;

/// In a simulated world work takes no time.
const SPREAD: Duration = Duration::from_millis(50);

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for chain in 0..heard.evidence.scenario.chains.len() {
        findings.extend(late_heads(heard, chain));
        findings.extend(late_logs(heard, chain));
    }
    findings
}

fn late_heads(heard: &Heard<'_>, chain: usize) -> Vec<Finding> {
    let Some(longest) = heard.head_streams(chain).max_by_key(|it| it.heads().len()) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for head in longest.heads() {
        let (from, until) = (head.at.saturating_sub(SPREAD), head.at + SPREAD);
        if !longest.listens(from, until) {
            continue;
        }
        let others = heard.head_streams(chain).filter(|it| it.listens(from, until));
        for other in others {
            let first = other.heads().partition_point(|it| it.at < from);
            let mut near = other.heads()[first..].iter().take_while(|it| it.at <= until);
            if !near.any(|it| it.notice.hash == head.notice.hash) {
                let (name, number) = (other.name(), head.notice.number);
                let what = format!("{name}: head {number} not when {} hears it", longest.name());
                findings.push((head.at, what));
            }
        }
    }
    findings
}

fn late_logs(heard: &Heard<'_>, chain: usize) -> Vec<Finding> {
    // Each subscription that was told logs of a block, and when it was told the first of them. A branch that comes
    // back is told anew.
    let mut told: HashMap<B256, Vec<(&Stream<'_>, At)>> = HashMap::new();
    for stream in heard.log_streams(chain) {
        let mut first: HashMap<B256, At> = HashMap::new();
        for log in stream.logs() {
            first.entry(log.notice.hash).or_insert(log.at);
        }
        first.retain(|hash, _| left_at(heard.evidence, chain, *hash, At::ZERO).is_none());
        for (hash, at) in first {
            told.entry(hash).or_default().push((stream, at));
        }
    }
    let mut findings = Vec::new();
    for stream in heard.log_streams(chain) {
        let late = stream.logs().iter().find(|log| {
            let others = told.get(&log.notice.hash).into_iter().flatten();
            // The answer of one whose client stalls is read long after it began.
            let began_no_later =
                |it: &Stream<'_>| it.asked <= stream.asked && it.since <= stream.since;
            let others = others.filter(|(other, _)| began_no_later(other));
            let first = others.map(|(_, at)| *at).min();
            first.is_some_and(|first| log.at > first + SPREAD && stream.listens(first, log.at))
        });
        findings.extend(late.map(|log| {
            (log.at, format!("{}: late with logs of {}", stream.name(), log.notice.number))
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::sample::{evidence, heads, logs};
    use super::*;
    use crate::session::{Crossing, Session};

    fn check(sessions: Vec<Session>, found: usize) {
        let evidence = evidence(sessions);
        let findings = super::check(&Heard::of(&evidence));
        assert_eq!(findings.len(), found, "{findings:?}");
    }

    /// From its crossing of this number on it is so much later.
    fn delayed(mut session: Session, from: usize, by: Duration) -> Session {
        session.crossed[from..].iter_mut().for_each(|(at, _)| *at += by);
        session
    }

    #[test]
    fn all_hear_at_one_moment() {
        let late = Duration::from_secs(30);
        check(vec![heads("7a 8a"), heads("7a 8a")], 0);
        check(vec![heads("7a 8a 9a"), delayed(heads("7a 8a"), 3, late)], 2);
        check(vec![logs("7a.0 8a.0"), logs("7a.0 8a.0")], 0);
        check(vec![logs("7a.0 8a.0"), delayed(logs("7a.0 8a.0"), 3, late)], 1);
    }

    #[test]
    fn a_subscription_to_logs_may_be_told_before_those_that_began_before_it() {
        let (soon, late) = (Duration::from_secs(10), Duration::from_secs(30));
        // Answered ten seconds after the other one, which is told of block 8 another twenty seconds later.
        let second = || delayed(logs("8a.0"), 0, soon);
        check(vec![delayed(logs("7a.0 8a.0"), 2, late), second()], 0);
        check(vec![delayed(logs("7a.0 8a.0"), 3, 2 * soon), delayed(second(), 2, late)], 1);
    }

    #[test]
    fn one_that_does_not_read_is_owed_nothing_meanwhile() {
        let late = Duration::from_secs(30);
        let mut stalled = delayed(heads("7a 8a"), 3, late);
        let at = stalled.crossed[2].0;
        stalled.crossed.insert(3, (at, Crossing::Stalled));
        stalled.crossed.insert(4, (at + late, Crossing::Resumed));
        check(vec![heads("7a 8a 9a"), stalled], 0);
    }
}
