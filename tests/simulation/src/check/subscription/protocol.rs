//! What crosses a connection is what a node would send: a notification has its members and no id, comes after
//! the answer that told its subscription's id and not after the answer that ended it, and is of the kind that
//! was subscribed to; each call is answered, and `eth_unsubscribe` says whether the subscription was
//! there. Connections are closed only for a reason.
//!
//! Left out: calls that the client did not wait for, and subscriptions that begin while no upstream is well.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Heard;
use super::stream::is_stalled;
use crate::check::Finding;
use crate::evidence::{At, End};
use crate::session::{Crossing, Notice, Session, SessionCall, SessionEnd};

/// The journal holds the chain this deep when it begins, so a reorg may reach below it.
const GAP_BLOCKS_MAX: u64 = 256;
/// An answer needs no longer while an upstream is well.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// For this long after a refusal the learnt rate may be far below what the upstream allows. A subscription to pending
/// transactions, which needs a call to it, may then take the whole time of a call.
const RATE_IS_LOW: Duration = Duration::from_secs(60);
/// But for a poll of a filter, which may read each new block: it has its whole time, and this.
const FILTERS_LONGER: Duration = Duration::from_secs(1);

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, session) in heard.evidence.sessions.iter().enumerate() {
        let mut connection = Connection::default();
        for (at, crossing) in &session.crossed {
            if let Err(what) = connection.cross(heard, session, *at, crossing) {
                findings.push((*at, format!("s{number}: {what}")));
            }
        }
        findings.extend(
            unanswered(heard, session, &connection)
                .map(|it| (it.0, format!("s{number}: {}", it.1))),
        );
        if let Some((at, end)) = session.closed
            && !has_reason(heard, session, end)
        {
            findings.push((at, format!("s{number}: closed for no reason: {end:?}")));
        }
    }
    findings
}

/// What a client knows of its connection.
#[derive(Default)]
struct Connection<'a> {
    calls: BTreeMap<u64, (At, &'a SessionCall)>,
    /// Open subscriptions.
    open: BTreeMap<String, NoticeKind>,
}

/// What a subscription is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoticeKind {
    Head,
    Log,
    Pending,
}

impl<'a> Connection<'a> {
    fn cross(
        &mut self,
        heard: &Heard<'_>,
        session: &Session,
        at: At,
        crossing: &'a Crossing,
    ) -> Result<(), String> {
        match crossing {
            Crossing::Asked(id, call) => drop(self.calls.insert(*id, (at, call))),
            Crossing::Answered(id, outcome) => {
                let call = self.calls.remove(id);
                let (asked, call) = call.ok_or_else(|| format!("call {id} is answered twice"))?;
                return self.answered(heard, session, (asked, at), call, outcome);
            }
            Crossing::Told(Notice::Malformed(text)) => return Err(format!("not a notice: {text}")),
            Crossing::Told(Notice::Head(id, _)) => return self.told(id, NoticeKind::Head),
            Crossing::Told(Notice::Log(id, _)) => return self.told(id, NoticeKind::Log),
            Crossing::Told(Notice::Pending(id, _)) => return self.told(id, NoticeKind::Pending),
            Crossing::Stalled | Crossing::Resumed => {}
        }
        Ok(())
    }

    fn answered(
        &mut self,
        heard: &Heard<'_>,
        session: &Session,
        (asked, at): (At, At),
        call: &SessionCall,
        outcome: &Result<String, String>,
    ) -> Result<(), String> {
        match (call, outcome) {
            (SessionCall::Unsubscribe(id), outcome) => {
                let was_there = self.open.remove(id).is_some().to_string();
                match outcome {
                    Ok(answer) if *answer == was_there => Ok(()),
                    outcome => Err(format!("unsubscribed from {id}: {outcome:?}")),
                }
            }
            // What they are told is for `filters_exact`.
            (SessionCall::Filter(..), _) => Ok(()),
            (SessionCall::Heads | SessionCall::Logs(_) | SessionCall::Pending(_), Ok(id)) => {
                let id = id.trim_matches('"').to_owned();
                let kind = match call {
                    SessionCall::Logs(_) => NoticeKind::Log,
                    SessionCall::Pending(_) => NoticeKind::Pending,
                    _ => NoticeKind::Head,
                };
                match self.open.insert(id.clone(), kind) {
                    None => Ok(()),
                    Some(_) => Err(format!("subscription {id} is there twice")),
                }
            }
            // A pool that is polled is that of one upstream.
            (SessionCall::Pending(_), Err(_)) if !heard.are_all_well(session.chain, asked, at) => {
                Ok(())
            }
            (_, Err(error)) if heard.is_one_well(session.chain, asked, at) => {
                Err(format!("not subscribed: {error}"))
            }
            (_, Err(_)) => Ok(()),
        }
    }

    fn told(&self, id: &str, kind: NoticeKind) -> Result<(), String> {
        match self.open.get(id) {
            Some(expected) if *expected == kind => Ok(()),
            Some(_) => Err(format!("a notice of another kind for {id}")),
            None => Err(format!("a notice for {id}, which is not there")),
        }
    }
}

/// Whether each upstream of the chain refused a call lately, so that its learnt rate may be low.
fn is_rate_low(heard: &Heard<'_>, session: &Session, asked: At) -> bool {
    let refused_lately = |place| {
        heard.evidence.exchanges_of(place).any(|it| {
            let is_recent = it.began <= asked && it.began + RATE_IS_LOW >= asked;
            is_recent && matches!(it.end, End::Refused(_))
        })
    };
    heard.places(session.chain).all(|(place, _)| refused_lately(place))
}

/// A call that the client waited for in vain.
fn unanswered(
    heard: &Heard<'_>,
    session: &Session,
    connection: &Connection<'_>,
) -> Option<Finding> {
    let total = heard.evidence.scenario.settings.total;
    connection.calls.iter().find_map(|(id, (asked, call))| {
        let by = *asked
            + match call {
                SessionCall::Filter(..) => total + FILTERS_LONGER,
                // Waits for an upstream's word.
                SessionCall::Pending(_) if is_rate_low(heard, session, *asked) => total,
                SessionCall::Heads
                | SessionCall::Logs(_)
                | SessionCall::Pending(_)
                | SessionCall::Unsubscribe(_) => ANSWERED_WITHIN,
            };
        let waited = session.closed.is_none_or(|(closed, _)| closed > by)
            && !is_stalled(session, *asked, by)
            && heard.is_one_well(session.chain, *asked, by);
        waited.then(|| (by, format!("call {id} is not answered")))
    })
}

fn has_reason(heard: &Heard<'_>, session: &Session, end: SessionEnd) -> bool {
    let chain = session.chain;
    let plan = &heard.evidence.scenario.chains[chain];
    match end {
        SessionEnd::Left => true,
        // It fell behind while it stalled, or while the logs of a block could not be had.
        SessionEnd::TooSlow => {
            let spells = plan.upstreams.iter().flat_map(|it| &it.spells);
            is_stalled(session, At::ZERO, At::MAX) || spells.count() > 0
        }
        SessionEnd::Resync => {
            let block_time = plan.world.block_time.max(Duration::from_millis(1));
            let gap = block_time * u32::try_from(GAP_BLOCKS_MAX).unwrap_or(u32::MAX);
            let mut spells = plan.upstreams.iter().flat_map(|it| &it.spells);
            !heard.evidence.reorgs[chain].is_empty()
                || spells.any(|spell| spell.until.saturating_sub(spell.from) + gap / 4 >= gap)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{ID, OPENED, evidence, head, heads, log, session};
    use super::*;
    use crate::check::sample::exchange;
    use crate::session::PendingForm;

    fn check(crossings: &[Crossing], found: usize) {
        let evidence = evidence(vec![session(SessionCall::Heads, crossings.to_vec())]);
        let findings = super::check(&Heard::of(&evidence));
        assert_eq!(findings.len(), found, "{crossings:?}: {findings:?}");
    }

    fn unsubscribe(answer: &str) -> [Crossing; 2] {
        let call = SessionCall::Unsubscribe(ID.to_owned());
        [Crossing::Asked(2, call), Crossing::Answered(2, Ok(answer.to_owned()))]
    }

    #[test]
    fn notices_come_between_the_answers() {
        let end = || unsubscribe("true");
        check(&[head("7a"), head("8a")], 0);
        check(&[vec![head("7a")], end().to_vec()].concat(), 0);
        check(&[end().to_vec(), vec![head("7a")]].concat(), 1);
        let mut early = heads("7a 8a");
        early.crossed.swap(1, 2);
        assert_eq!(super::check(&Heard::of(&evidence(vec![early]))).len(), 1);
    }

    #[test]
    fn notices_are_what_was_asked_for() {
        check(&[log("7a.0")], 1);
        check(&[Crossing::Told(Notice::Malformed("{}".to_owned()))], 1);
    }

    #[test]
    fn answers_are_true() {
        check(&unsubscribe("false"), 1);
        check(&[unsubscribe("true").to_vec(), vec![unsubscribe("true")[1].clone()]].concat(), 1);
        check(&[Crossing::Asked(3, SessionCall::Heads)], 1);
        let refused = Crossing::Answered(3, Err("no".to_owned()));
        check(&[Crossing::Asked(3, SessionCall::Heads), refused], 1);
    }

    #[test]
    fn pending_transactions_may_wait_while_the_rate_is_low() {
        let found = |refused_before: Option<u64>| {
            let asked = Crossing::Asked(3, SessionCall::Pending(PendingForm::Hashes));
            let mut session = session(SessionCall::Heads, vec![asked]);
            session.closed = Some((OPENED + Duration::from_secs(20), SessionEnd::Left));
            let mut evidence = evidence(vec![session]);
            evidence.exchanges.extend(refused_before.map(|seconds| {
                let at = OPENED.saturating_sub(Duration::from_secs(seconds));
                let mut refused = exchange("x", None);
                (refused.began, refused.ended, refused.end) = (at, Some(at), End::Refused(None));
                refused
            }));
            super::check(&Heard::of(&evidence)).len()
        };
        assert_eq!([found(None), found(Some(30))], [1, 0]);
    }

    #[test]
    fn a_connection_is_closed_for_a_reason() {
        for (end, found) in
            [(SessionEnd::Left, 0), (SessionEnd::TooSlow, 1), (SessionEnd::Resync, 1)]
        {
            let mut session = heads("7a");
            session.closed = session.closed.map(|(at, _)| (at, end));
            assert_eq!(super::check(&Heard::of(&evidence(vec![session]))).len(), found, "{end:?}");
        }
    }
}
