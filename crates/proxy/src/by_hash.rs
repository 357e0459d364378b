//! States asked for by the hash of their block (EIP-1898).
//!
//! An answer about a height that may get another block does not tell of which block it is, and
//! so can never be kept. Most calls of dapps and wallets are such. Asked by the hash of the
//! agreed block, the answer is of that block or none at all, and is kept under it.
//!
//! A hash goes only to upstreams that were found to honour one (`wellhead_watch`); the others are
//! asked by the height in the course of the same call, and what they say is told and not kept.
//!
//! Not every such upstream takes a hash in every method. Whoever refuses one is asked again by the height, and
//! when that is understood no call of this method is asked by hash for a while: a second, and
//! twice as long with each refusal within an hour, up to an hour. What comes of the second call
//! is told and not kept. The word of an upstream that took a hash in this method before is not
//! doubted when it finds fault with the call.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wellhead_dispatch::{Bounds, Job, Trail, now};
use wellhead_eth::{BY_HASH_METHODS, MethodRow};
use wellhead_route::Ask;
use wellhead_upstream::{Slot, VerdictClass};

use crate::call::{Planned, Said, run, try_plan};
use crate::floor;
use crate::journey::Trip;
use crate::pin::Pin;

/// The first pause.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// And the longest; after a quiet time of this length the next one is short again.
const PAUSE_MAX: Duration = Duration::from_secs(3_600);

/// Of one chain: which methods are not to be asked by hash for a while, and who is known to
/// take one.
#[derive(Debug)]
pub(crate) struct ByHash {
    since: Instant,
    pauses: [Pause; BY_HASH_METHODS],
    /// By slot, the methods in which it took a hash, a bit each.
    takes: Box<[AtomicU8]>,
}

const _: () = assert!(BY_HASH_METHODS <= u8::BITS as usize, "there is a bit for each method");

/// In milliseconds from the start. Two that refuse at the same time may count as one.
#[derive(Debug, Default)]
struct Pause {
    until: AtomicU64,
    length: AtomicU64,
}

impl ByHash {
    pub(crate) fn new(upstreams: usize) -> Self {
        let takes = (0..upstreams).map(|_| AtomicU8::new(0)).collect();
        Self { since: now(), pauses: Default::default(), takes }
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

    fn takes(&self, row: &MethodRow, slot: Slot) -> bool {
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

    /// Whether what was said may be said of the hash alone, so that the height is worth a call.
    pub(crate) fn is_in_doubt(&self, row: &MethodRow, said: &Said, pin: &Pin) -> bool {
        let doubts = |slot: Slot, class| match class {
            VerdictClass::MissingData
            | VerdictClass::Null
            | VerdictClass::Unsupported
            | VerdictClass::Unknown => true,
            VerdictClass::CallerFault => !self.takes(row, slot),
            VerdictClass::Answer
            | VerdictClass::Reverted
            | VerdictClass::TransactionKnown
            | VerdictClass::TransactionRejected
            | VerdictClass::RangeTooLarge
            | VerdictClass::FilterTooLarge
            | VerdictClass::Throttled
            | VerdictClass::Billing
            | VerdictClass::Auth
            | VerdictClass::Fault
            | VerdictClass::Void => false,
        };
        match said {
            Said::Result { .. } => false,
            Said::Error { slot, trail, .. } => {
                let said = trail.attempts.iter().rev().find(|it| it.slot == *slot);
                said.is_some_and(|it| pin.is_by_hash_at(it.slot) && doubts(it.slot, it.class))
            }
            Said::Refused { trail, .. } => {
                let mut by_hash = trail.attempts.iter().filter(|it| pin.is_by_hash_at(it.slot));
                by_hash.any(|it| doubts(it.slot, it.class))
            }
        }
    }

    /// Whether a verdict on an item of a batch is to be heard again of the call alone.
    pub(crate) fn is_unsure(class: VerdictClass) -> bool {
        !matches!(class, VerdictClass::Answer | VerdictClass::Reverted)
    }
}

/// Asks as the call was pinned; where that was by the block's hash and may have been refused for
/// that, once more by its height.
pub(crate) async fn run_pinned(
    trip: &Trip<'_>,
    job: &Job<'_>,
    (ask, pin): (&Ask<'_>, &Pin),
    planned: Option<Planned>,
    began: Instant,
) -> Said {
    let (params, at_hash) = (pin.by_height(job.params), pin.at_block_hash());
    let flows_to = job.flows_to.filter(|_| !floor::is_open(trip, job.row, &pin.block));
    let as_sent = Job { params, at_hash, flows_to, ..*job };
    let attempts = (&trip.chain.bounds, Trail::default());
    let mut said = run(trip, &as_sent, (ask, &pin.block), planned, attempts, began).await;
    if !pin.is_by_hash() {
        return match floor::is_open(trip, job.row, &pin.block) {
            true => floor::kept_to(trip, job, (ask, &pin.block), said).await,
            false => said,
        };
    }
    let by_hash = &trip.chain.by_hash;
    if let Said::Result { slot, is_doubtful, .. } = &mut said {
        match slot.filter(|slot| pin.is_by_hash_at(*slot)) {
            Some(slot) => by_hash.took(job.row, slot),
            // It was asked by the height, so what it said may be of any block there.
            None => *is_doubtful = true,
        }
    }
    if now() >= job.deadline || !by_hash.is_in_doubt(job.row, &said, pin) {
        return said;
    }
    let before = std::mem::take(said.trail_mut());
    Box::pin(run_by_height(trip, job, (ask, pin), before)).await
}

/// Asks by the height what was refused by the hash. What comes of it may be of any block of that
/// height: it is told and not kept.
async fn run_by_height(
    trip: &Trip<'_>,
    job: &Job<'_>,
    (ask, pin): (&Ask<'_>, &Pin),
    before: Trail,
) -> Said {
    let by_height = Job { params: pin.by_height(job.params), at_hash: None, ..*job };
    let (chain, by_hash, bounds) = (trip.chain, &trip.chain.by_hash, &trip.chain.bounds);
    // Whoever failed otherwise has used up an attempt and is not asked first. Those that the hash
    // took are made up for, as it was our choice.
    let failures = before.attempts.iter().filter(|it| it.class.is_failure()).map(|it| it.slot);
    let attempts_max = bounds.attempts_max.saturating_sub(failures.clone().count()).max(1);
    let bounds = Bounds { attempts_max, ..*bounds };
    let began = now();
    let mut planned = try_plan(chain, trip.lane, (ask, &pin.block), began);
    planned.plan = planned.plan.with_last(failures.collect());
    let tried = before.line(&chain.roster);
    let attempts = (&bounds, before);
    let mut said = run(trip, &by_height, (ask, &pin.block), Some(planned), attempts, began).await;
    if let Said::Result { is_doubtful, .. } = &mut said {
        *is_doubtful = true;
        let pause = by_hash.refused(job.row, now());
        tracing::debug!(
            method = job.row.name, %tried, ?pause,
            "a block by its hash was refused: its height is asked for instead"
        );
    }
    said
}

#[cfg(test)]
mod tests {
    use wellhead_eth::MethodTable;

    use super::*;

    #[test]
    fn a_refused_method_is_left_alone_for_longer_and_longer() {
        let (by_hash, call) = (ByHash::new(2), MethodTable::standard().row("eth_call"));
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
        let by_hash = ByHash::new(1);
        let row = MethodTable::standard().row("eth_getBlockByNumber");
        assert!(!by_hash.may(row, by_hash.since));
        assert_eq!(by_hash.refused(row, by_hash.since), Duration::ZERO);
    }

    #[test]
    fn who_took_a_hash_is_known_by_method() {
        let by_hash = ByHash::new(2);
        let row = |name| MethodTable::standard().row(name);
        by_hash.took(row("eth_call"), Slot(1));
        assert!(by_hash.takes(row("eth_call"), Slot(1)));
        assert!(!by_hash.takes(row("eth_call"), Slot(0)));
        assert!(!by_hash.takes(row("eth_getCode"), Slot(1)));
    }
}
