//! A pending transaction is told to a subscription at most once, however many upstreams push it and
//! however often it comes back to a pool; it is one that did enter a pool; and what an upstream pushes is told.
//!
//! Not owed: what no upstream pushed while the subscription was there, and what was pushed while its client
//! read nothing. Where pools are polled, a transaction that a block took meanwhile is not seen.

use std::collections::HashSet;
use std::time::Duration;

use super::Heard;
use super::stream::{Stream, StreamKind};
use crate::check::Finding;

/// What is pushed is told at once; in a simulated world that takes no time but that of a pause between looks.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    heard.streams.iter().flat_map(|stream| check_stream(heard, stream)).collect()
}

fn check_stream(heard: &Heard<'_>, stream: &Stream<'_>) -> Vec<Finding> {
    let StreamKind::Pending(form, told) = &stream.kind else { return Vec::new() };
    let (chain, name) = (stream.session.chain, stream.name());
    let pooled = heard.evidence.pooled.iter().filter(|it| it.chain == chain);
    let pooled: HashSet<_> = pooled.map(|it| it.hash).collect();
    let (mut findings, mut seen) = (Vec::new(), HashSet::new());
    for told in told {
        let hash = told.notice;
        if !seen.insert(*hash) {
            findings.push((told.at, format!("{name}: {hash} is told twice")));
        }
        if !pooled.contains(hash) {
            findings.push((told.at, format!("{name}: {hash} was in no pool")));
        }
    }
    let pushed = heard.evidence.pushed.iter();
    for push in pushed.filter(|it| it.place.chain == chain && it.form == *form) {
        let by = push.at + TOLD_WITHIN;
        // What was told before the subscription began is not told again.
        let is_first = !heard.evidence.pushed.iter().any(|it| {
            it.hash == push.hash && it.place.chain == chain && it.form == *form && it.at < push.at
        });
        if is_first
            && stream.since < push.at
            && stream.listens(push.at, by)
            && !seen.contains(&push.hash)
        {
            findings.push((by, format!("{name}: {} is pushed and not told", push.hash)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::super::sample::{ID, OPENED, evidence, session};
    use super::*;
    use crate::check::sample::PLACE;
    use crate::evidence::{At, PooledTransaction, PushedTransaction};
    use crate::session::{Crossing, Notice, PendingForm, SessionCall};

    /// Transactions `told`, one a second, to a client that subscribed a second after its connection was
    /// opened; 1 to 4 entered the pool, and `pushed` came two seconds after the connection was opened.
    fn check(told: &[u8], pushed: &[u8], found: usize) {
        let tell = |it: &u8| Crossing::Told(Notice::Pending(ID.to_owned(), B256::repeat_byte(*it)));
        let told: Vec<_> = told.iter().map(tell).collect();
        let mut evidence =
            evidence(vec![session(SessionCall::Pending(PendingForm::Hashes), told.clone())]);
        let enter = |it| PooledTransaction { chain: 0, at: At::ZERO, hash: B256::repeat_byte(it) };
        evidence.pooled = (1..=4).map(enter).collect();
        let push = |it: &u8| PushedTransaction {
            place: PLACE,
            at: OPENED + Duration::from_secs(2),
            form: PendingForm::Hashes,
            hash: B256::repeat_byte(*it),
        };
        evidence.pushed = pushed.iter().map(push).collect();
        let findings = super::check(&Heard::of(&evidence));
        assert_eq!(findings.len(), found, "{told:?}: {findings:?}");
    }

    #[test]
    fn each_is_told_once_and_none_is_lost_or_invented() {
        check(&[1, 2, 3], &[1, 2, 3], 0);
        check(&[1, 2, 1], &[1, 2], 1);
        check(&[1], &[1, 2], 1);
        check(&[1, 9], &[1], 1);
        check(&[1, 2], &[], 0);
        check(&[], &[], 0);
    }
}
