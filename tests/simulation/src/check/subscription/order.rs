//! What a connection is told comes in the order of the chain: a head before the logs of its block; logs by
//! block and index; those of blocks that were left are taken back, the newest block first, before the
//! logs of the blocks in their place.
//!
//! Left out: the order between connections, and between a head and logs of another block; and, of a head and
//! its logs, blocks that were left and came back, as a subscription may begin in between, and what was told
//! before the answer to the call that asked for heads.

use super::Heard;
use super::stream::{Stream, times_made};
use crate::check::Finding;
use crate::session::LogNotice;

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for stream in heard.streams.iter().filter(|it| it.is_of_logs()) {
        findings.extend(unordered(stream));
        let own = heard.streams.iter().filter(|it| it.number == stream.number && it.is_of_heads());
        for heads in own {
            findings.extend(ahead(heard, stream, heads));
        }
    }
    findings
}

/// The first log that does not follow from what was told before it.
fn unordered(stream: &Stream<'_>) -> Option<Finding> {
    let mut branch: Vec<&LogNotice> = Vec::new();
    for told in stream.logs() {
        let log = told.notice;
        let is_in_order = match (log.is_removed, branch.last()) {
            (false, None) => true,
            (false, Some(last)) => {
                last.number < log.number || (last.hash == log.hash && last.index < log.index)
            }
            // The first log of the newest block.
            (true, Some(last)) => {
                last.hash == log.hash
                    && branch.iter().find(|it| it.hash == log.hash).map(|it| it.index)
                        == Some(log.index)
            }
            // For `logs_exact`.
            (true, None) => true,
        };
        match log.is_removed {
            true => branch.retain(|it| (it.hash, it.index) != (log.hash, log.index)),
            false => branch.push(log),
        }
        if !is_in_order {
            let is = if log.is_removed { "removed log" } else { "log" };
            let place = format!("{is} {} of {} {}", log.index, log.number, log.hash);
            return Some((told.at, format!("{}: {place} is out of order", stream.name())));
        }
    }
    None
}

/// The first log that was told before the head of its block.
fn ahead(heard: &Heard<'_>, logs: &Stream<'_>, heads: &Stream<'_>) -> Option<Finding> {
    let is_ahead = |log: &super::stream::Told<'_, LogNotice>| {
        let head = heads.heads().iter().find(|head| head.notice.hash == log.notice.hash);
        let chain = logs.session.chain;
        head.is_some_and(|head| head.place > log.place)
            && heads.since <= log.at
            && !log.notice.is_removed
            && times_made(heard.evidence, chain, log.notice.hash) <= 1
            && heard.times_announced(chain, log.notice.hash) <= 1
    };
    let log = logs.logs().iter().find(|log| is_ahead(log))?;
    let what = format!("{}: a log of block {} before its head", logs.name(), log.notice.number);
    Some((log.at, what))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{OPENED, evidence, head, log, logs, session};
    use super::*;
    use crate::session::{Crossing, Notice, SessionCall};

    fn check(told: &str, found: usize) {
        let evidence = evidence(vec![logs(told)]);
        assert_eq!(super::check(&Heard::of(&evidence)).len(), found, "{told}");
    }

    #[test]
    fn logs_follow_the_chain() {
        check("7a.0 7a.2 8a.0 9a.1", 0);
        check("7a.2 7a.0", 1);
        check("8a.0 7a.0", 1);
        check("7a.0 7b.1", 1);
    }

    #[test]
    fn what_was_left_is_taken_back_first() {
        check("7a.0 7a.1 8a.0 -8a.0 -7a.0 -7a.1 7b.0", 0);
        check("7a.0 8a.0 -7a.0", 1);
        check("7a.0 7a.1 -7a.1", 1);
        check("7a.0 8a.0 8b.0 -8a.0", 1);
    }

    #[test]
    fn a_head_comes_before_its_logs() {
        let check = |told: &[&str], found: usize| {
            let crossing = |text: &&str| match text.contains('.') {
                true => log(text),
                false => match head(text) {
                    Crossing::Told(Notice::Head(_, head)) => {
                        Crossing::Told(Notice::Head("0x8".to_owned(), head))
                    }
                    other => other,
                },
            };
            let call = SessionCall::Logs("{}".to_owned());
            let mut session = session(call, told.iter().map(crossing).collect());
            let heads = [
                (OPENED, Crossing::Asked(2, SessionCall::Heads)),
                (OPENED, Crossing::Answered(2, Ok("\"0x8\"".to_owned()))),
            ];
            session.crossed.splice(0..0, heads);
            let evidence = evidence(vec![session]);
            assert_eq!(super::check(&Heard::of(&evidence)).len(), found, "{told:?}");
        };
        check(&["7a", "7a.0", "8a", "8a.0"], 0);
        check(&["7a", "8a", "7a.0", "8a.0"], 0);
        check(&["7a", "8a.0", "8a"], 1);
        // Of a block that was the newest when it subscribed to heads.
        check(&["7a.0", "8a", "8a.0"], 0);
    }
}
