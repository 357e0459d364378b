//! Searches that could not be made of as many calls as one search may, so that the next one for
//! the same fails before its first call.
//!
//! What upstreams accept is remembered with each of them; but how dense the logs of one filter lie
//! in some blocks, and so how many calls they take, shows only when the calls are made. A search for
//! the same filter over the same blocks or more fares no better for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_upstream::UpstreamSet;

use crate::state::parts::Stuck;

/// As long as an upstream is believed to have too many results.
const REMEMBERED: Duration = Duration::from_secs(120);
/// Searches that are remembered; then the one that ends first makes room.
const SEARCHES_MAX: usize = 32;

/// What was searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The digest of addresses and topics.
    pub(crate) digest: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Those that may be asked.
    pub(crate) eligible: UpstreamSet,
}

impl Subject {
    /// How many blocks are searched.
    pub(crate) fn blocks(&self) -> u64 {
        (self.to - self.from).saturating_add(1)
    }

    /// Whether a search for `other` takes at least as many calls.
    fn is_within(&self, other: &Self) -> bool {
        self.digest == other.digest
            && self.eligible == other.eligible
            && other.from <= self.from
            && self.to <= other.to
    }
}

/// The searches of one chain that took too many calls.
#[derive(Debug, Default)]
pub(crate) struct Hopeless {
    searches: Mutex<Vec<(Subject, Stuck, Instant)>>,
    is_any: AtomicBool,
}

impl Hopeless {
    /// Remembers that a search got stuck; only what has a digest.
    pub(crate) fn note(&self, subject: Subject, why: Stuck, now: Instant) {
        if subject.digest == 0 {
            return;
        }
        let mut searches = self.searches.lock();
        searches.retain(|(it, _, until)| *until > now && *it != subject);
        if searches.len() >= SEARCHES_MAX {
            searches.remove(0);
        }
        searches.push((subject, why, now + REMEMBERED));
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Why a search for `subject` would get stuck, as far as is known.
    pub(crate) fn find(&self, subject: &Subject, now: Instant) -> Option<Stuck> {
        if !self.is_any.load(Ordering::Relaxed) {
            return None;
        }
        let searches = self.searches.lock();
        let mut known = searches.iter().filter(|(_, _, until)| *until > now);
        known.find(|(it, _, _)| it.is_within(subject)).map(|(_, why, _)| *why)
    }
}

#[cfg(test)]
mod tests {
    use wellhead_dispatch::now;

    use super::*;

    const WHY: Stuck = Stuck::TooManyCalls { span: 3, addresses: 1 };

    fn subject(digest: u64, from: u64, to: u64) -> Subject {
        Subject { digest, from, to, eligible: UpstreamSet::default() }
    }

    #[test]
    fn as_much_or_more_is_as_hopeless_for_a_while() {
        let (hopeless, at) = (Hopeless::default(), now());
        hopeless.note(subject(7, 10, 20), WHY, at);
        let found = |digest, from, to, at| hopeless.find(&subject(digest, from, to), at).is_some();
        assert!(found(7, 10, 20, at) && found(7, 9, 21, at));
        assert!(!found(7, 11, 20, at) && !found(7, 10, 19, at) && !found(8, 10, 20, at));
        assert!(!found(7, 10, 20, at + REMEMBERED));
    }

    #[test]
    fn few_are_remembered() {
        let (hopeless, at) = (Hopeless::default(), now());
        (0..=SEARCHES_MAX as u64).for_each(|it| hopeless.note(subject(it + 1, 1, 2), WHY, at));
        assert_eq!(hopeless.searches.lock().len(), SEARCHES_MAX);
        assert!(hopeless.find(&subject(1, 1, 2), at).is_none(), "the oldest made room");
        hopeless.note(subject(0, 1, 2), WHY, at);
        assert!(hopeless.find(&subject(0, 1, 2), at).is_none());
    }
}
