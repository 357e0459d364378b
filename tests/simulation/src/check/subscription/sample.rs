//! Connections for the checkers' own tests.

use std::time::Duration;

use alloy_primitives::B256;

use crate::check::sample;
use crate::evidence::{At, Evidence};
use crate::session::{Crossing, HeadNotice, LogNotice, Notice, Session, SessionCall, SessionEnd};

/// The subscription of these connections.
pub(super) const ID: &str = "0x9";
/// When they are opened.
pub(super) const OPENED: At = Duration::from_secs(50);
/// When their clients leave.
pub(super) const LEFT: At = Duration::from_secs(1_000);

/// These connections to one chain, without a world.
pub(super) fn evidence(sessions: Vec<Session>) -> Evidence {
    let mut evidence = sample::evidence(Vec::new(), vec![sample::verified_at_once()]);
    evidence.scenario.chains[0].turns.clear();
    evidence.sessions = sessions;
    evidence
}

/// A connection on which this crosses, one second after the other, after the answer to a call to subscribe.
pub(super) fn session(call: SessionCall, crossings: Vec<Crossing>) -> Session {
    let begin = [Crossing::Asked(1, call), Crossing::Answered(1, Ok(format!("\"{ID}\"")))];
    let crossed = begin.into_iter().chain(crossings).zip(0..);
    let crossed = crossed.map(|(it, second)| (OPENED + Duration::from_secs(second), it)).collect();
    let closed = Some((LEFT, SessionEnd::Left));
    Session { subscriber: 0, chain: 0, opened: OPENED, closed, crossed }
}

/// One that is told of these blocks: `9a` is block 9 of the branch `a`; `9b<8a` stands on another branch.
pub(super) fn heads(told: &str) -> Session {
    session(SessionCall::Heads, told.split_whitespace().map(head).collect())
}

pub(super) fn head(text: &str) -> Crossing {
    let (block, parent) = text.split_once('<').map_or((text, None), |(it, on)| (it, Some(on)));
    let (number, hash) = self::block(block);
    let parent = parent.map_or_else(|| hash_of(number - 1, branch(block)), |on| self::block(on).1);
    let body = block.to_owned();
    let head = HeadNotice { number, hash, parent, body };
    Crossing::Told(Notice::Head(ID.to_owned(), head))
}

/// One that is told of these logs: `9a.2` is the third log of block `9a`, and `-9a.2` takes it back.
pub(super) fn logs(told: &str) -> Session {
    session(SessionCall::Logs("{}".to_owned()), told.split_whitespace().map(log).collect())
}

pub(super) fn log(text: &str) -> Crossing {
    let (is_removed, place) = text.strip_prefix('-').map_or((false, text), |place| (true, place));
    let (block, index) = place.split_once('.').expect("a block and an index");
    let (number, hash) = self::block(block);
    let index = index.parse().expect("an index");
    let log = LogNotice { number, hash, index, is_removed, body: text.to_owned() };
    Crossing::Told(Notice::Log(ID.to_owned(), log))
}

pub(super) fn block(text: &str) -> (u64, B256) {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_lowercase());
    let number = digits.parse().expect("a height");
    (number, hash_of(number, branch(text)))
}

fn branch(text: &str) -> u8 {
    *text.as_bytes().last().expect("a block")
}

fn hash_of(number: u64, branch: u8) -> B256 {
    let mut hash = B256::with_last_byte(branch);
    hash.0[..8].copy_from_slice(&number.to_be_bytes());
    hash
}
