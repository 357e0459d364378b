//! Which methods are asked by the hash of a block, and which upstreams are known to take one.
//!
//! What is done with it: [`crate::steps::by_hash`].

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wellhead_dispatch::now;
use wellhead_eth::{BY_HASH_METHODS, MethodRow};
use wellhead_upstream::{Slot, UPSTREAMS_MAX, UpstreamSet, VerdictClass};

/// The first pause.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// And the longest; after a quiet time of this length the next one is short again.
const PAUSE_MAX: Duration = Duration::from_secs(3_600);

/// Of one chain: the methods that are not sent by hash for a while, and the upstreams that are known
/// to accept a hash.
#[derive(Debug)]
pub(crate) struct ByHash {
    since: Instant,
    pauses: [Pause; BY_HASH_METHODS],
    /// By slot, the methods in which it took a hash, a bit each.
    takes: [AtomicU8; UPSTREAMS_MAX],
}

const _: () = assert!(BY_HASH_METHODS <= u8::BITS as usize, "there is a bit for each method");

/// In milliseconds from the start. Two that refuse at the same time may count as one.
#[derive(Debug, Default)]
struct Pause {
    until: AtomicU64,
    length: AtomicU64,
}

impl ByHash {
    pub(crate) fn new() -> Self {
        let takes = std::array::from_fn(|_| AtomicU8::new(0));
        Self { since: now(), pauses: Default::default(), takes }
    }

    /// Forgets what is known of upstreams in other slots than these.
    pub(crate) fn keep(&self, kept: UpstreamSet) {
        for (slot, takes) in (0..).map(Slot).zip(&self.takes) {
            if !kept.contains(slot) {
                takes.store(0, Relaxed);
            }
        }
    }

    fn ms(&self, at: Instant) -> u64 {
        let passed = at.saturating_duration_since(self.since).as_millis();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    /// Whether calls of this method may be asked by hash.
    pub(crate) fn may(&self, row: &MethodRow, now: Instant) -> bool {
        let pause = row.by_hash.and_then(|method| self.pauses.get(method));
        pause.is_some_and(|pause| pause.until.load(Relaxed) <= self.ms(now))
    }

    /// Notes that the upstream in `slot` took a hash.
    pub(crate) fn took(&self, row: &MethodRow, slot: Slot) {
        let (Some(method), Some(takes)) = (row.by_hash, self.takes.get(slot.index())) else {
            return;
        };
        let bit = 1 << method;
        // Nearly always it is there.
        if takes.load(Relaxed) & bit == 0 {
            takes.fetch_or(bit, Relaxed);
        }
    }

    /// Whether it took one in this method.
    pub(crate) fn takes(&self, row: &MethodRow, slot: Slot) -> bool {
        let takes = self.takes.get(slot.index()).map_or(0, |it| it.load(Relaxed));
        row.by_hash.is_some_and(|method| takes >> method & 1 == 1)
    }

    /// Notes that a hash was refused where the height was understood. Returns for how long no
    /// call of the method is asked so.
    pub(crate) fn refused(&self, row: &MethodRow, now: Instant) -> Duration {
        let Some(pause) = row.by_hash.and_then(|method| self.pauses.get(method)) else {
            return Duration::ZERO;
        };
        let (ms, max) = (self.ms(now), PAUSE_MAX.as_millis() as u64);
        let (until, last) = (pause.until.load(Relaxed), pause.length.load(Relaxed));
        let length = match last {
            // Those that were under way together are one.
            _ if until > ms => last,
            0 => PAUSE_MIN.as_millis() as u64,
            _ if until.saturating_add(max) < ms => PAUSE_MIN.as_millis() as u64,
            last => last.saturating_mul(2).min(max),
        };
        pause.length.store(length, Relaxed);
        pause.until.store(until.max(ms.saturating_add(length)), Relaxed);
        Duration::from_millis(length)
    }

    /// Whether a call by hash has to be repeated alone after this verdict on it as an item of a batch.
    pub(crate) fn must_repeat_alone(class: VerdictClass) -> bool {
        !matches!(class, VerdictClass::Answer | VerdictClass::Reverted)
    }
}

#[cfg(test)]
mod tests {
    use wellhead_eth::MethodTable;

    use super::*;

    #[test]
    fn a_refused_method_is_left_alone_for_longer_and_longer() {
        let (by_hash, call) = (ByHash::new(), MethodTable::standard().row("eth_call"));
        let mut at = by_hash.since;
        assert!(by_hash.may(call, at));
        for seconds in [1, 2, 4, 8] {
            assert_eq!(by_hash.refused(call, at), Duration::from_secs(seconds));
            assert_eq!(by_hash.refused(call, at), Duration::from_secs(seconds), "at once");
            at += Duration::from_secs(seconds) - Duration::from_millis(1);
            assert!(!by_hash.may(call, at));
            at += Duration::from_millis(1);
            assert!(by_hash.may(call, at));
        }
        assert!(by_hash.may(MethodTable::standard().row("eth_getBalance"), by_hash.since));
        for _ in 0..20 {
            at += by_hash.refused(call, at);
        }
        assert_eq!(by_hash.refused(call, at), PAUSE_MAX);
        at += PAUSE_MAX * 2 + Duration::from_millis(1);
        assert_eq!(by_hash.refused(call, at), PAUSE_MIN, "after a quiet time");
    }

    #[test]
    fn methods_that_take_no_hash_are_never_asked_by_one() {
        let by_hash = ByHash::new();
        let row = MethodTable::standard().row("eth_getBlockByNumber");
        assert!(!by_hash.may(row, by_hash.since));
        assert_eq!(by_hash.refused(row, by_hash.since), Duration::ZERO);
    }

    #[test]
    fn an_upstream_that_took_a_hash_is_known_by_method() {
        let by_hash = ByHash::new();
        let row = |name| MethodTable::standard().row(name);
        by_hash.took(row("eth_call"), Slot(1));
        assert!(by_hash.takes(row("eth_call"), Slot(1)));
        assert!(!by_hash.takes(row("eth_call"), Slot(0)));
        assert!(!by_hash.takes(row("eth_getCode"), Slot(1)));
    }
}
