//! The snapshot of a chain that a request pins.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_eth::{BlockHash, BlockNumber, BlockTag};
use wellhead_upstream::{Slot, UpstreamSet};

use crate::reorg::{Canonical, CanonicalChain, Reorgs};

/// An upstream is left out only when it lags by at least this many blocks,
/// whatever the block time: two upstreams never hear of a block together.
const LAG_BLOCKS_MIN: u64 = 3;
/// And by about this long: on a chain of quick blocks three are nothing.
const LAG_TIME: Duration = Duration::from_secs(20);

/// The quickest chains make four blocks a second.
pub(crate) const BLOCK_TIME_QUICKEST: Duration = Duration::from_millis(250);
/// What [`LAG_TIME`] is on such a chain.
pub(crate) const LAG_BLOCKS_QUICKEST: u64 = 80;

/// What was heard of the newest block is fresh for so many block times: a poll comes a
/// little slower than a block, and a slot may be missed.
const FRESH_BLOCKS: u32 = 3;
/// But for this at least.
const FRESH_MIN: Duration = Duration::from_secs(5);
/// A safe or final block that was told longer ago is not what the tag means today. Upstreams
/// are asked for one of the two in turns, once a minute at least while clients want to know.
const MARK_FRESH: Duration = Duration::from_secs(300);

/// The newest block that an upstream is known to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamHead {
    /// Its number.
    pub number: BlockNumber,
    /// Its hash, where what taught us the number told it.
    pub hash: Option<BlockHash>,
    /// Its timestamp in seconds since 1970, where known.
    pub timestamp: Option<u64>,
    /// When we first heard of it.
    pub seen_at: Instant,
}

/// The tags of blocks that stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// `safe`.
    Safe,
    /// `finalized`.
    Finalized,
}

impl Tag {
    /// How many there are.
    pub(crate) const COUNT: usize = 2;
}

/// A block that is held to be safe or final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its number.
    pub number: BlockNumber,
    /// Its hash, if it was reported.
    pub hash: Option<BlockHash>,
    /// The time of the last report.
    pub told_at: Instant,
}

/// The state of a chain at one moment, as far as it is known. Immutable.
#[derive(Debug, Clone)]
pub struct View {
    /// The newest block that enough upstreams hold. From one view to the next it never
    /// goes back without a reorg in [`View::reorgs`].
    pub latest: Option<UpstreamHead>,
    /// The highest head of an upstream that is not astray, which other upstreams may not hold. If
    /// that upstream then reports a slightly lower head, and no reorg is known, this stays for as
    /// long as the view is fresh ([`View::fresh_for`]).
    pub best: Option<UpstreamHead>,
    /// By slot, each upstream's own head.
    pub heads: Box<[Option<UpstreamHead>]>,
    /// The upstreams that are known to be on another branch than `latest`, or that claim more
    /// blocks than can have been made.
    pub astray: UpstreamSet,
    /// The upstreams whose heads are polled at most once a minute: the last report shows the
    /// height at that time, and not the present one.
    pub idle: UpstreamSet,
    /// By slot, the agreed head at the time of an idle upstream's last report, from which its lag
    /// is counted.
    pub(crate) agreed_then: Arc<[Option<UpstreamHead>]>,
    /// The last report of an upstream that holds `latest`.
    pub confirmed_at: Option<Instant>,
    /// How long [`View::is_fresh`] holds. Each request needs it several times, so it is computed once.
    pub(crate) fresh_until: Option<Instant>,
    /// The time between blocks, given or measured; `None` until two were seen.
    pub block_time: Option<Duration>,
    /// The lag in blocks from which an upstream is excluded, if the settings give it.
    pub lag_blocks_max: Option<u64>,
    /// Upstreams are not polled more often than this.
    pub(crate) poll_min: Duration,
    /// Some upstream is polled for its head, or pushes it.
    pub(crate) is_followed: bool,
    pub(crate) marks: [Option<Mark>; Tag::COUNT],
    pub(crate) canon: Arc<CanonicalChain>,
}

impl View {
    /// A view of a chain about which nothing is known.
    pub fn unknown(
        upstreams: usize,
        block_time: Option<Duration>,
        lag_blocks_max: Option<u64>,
    ) -> Self {
        Self {
            latest: None,
            best: None,
            heads: vec![None; upstreams].into(),
            astray: UpstreamSet::default(),
            idle: UpstreamSet::default(),
            agreed_then: Arc::default(),
            confirmed_at: None,
            fresh_until: None,
            block_time,
            lag_blocks_max,
            poll_min: Duration::ZERO,
            is_followed: true,
            marks: [None; Tag::COUNT],
            canon: Arc::default(),
        }
    }

    /// The head of one upstream.
    pub fn head(&self, slot: Slot) -> Option<&UpstreamHead> {
        self.heads.get(slot.index())?.as_ref()
    }

    /// Whether the head of this upstream is asked for rarely, and what is known of it is old.
    pub fn is_idle(&self, slot: Slot) -> bool {
        self.idle.contains(slot)
    }

    /// The newest block that an upstream holds now, as far as is known: `None` for one that is
    /// idle, which has gone on since its last word.
    pub fn tip(&self, slot: Slot) -> Option<BlockNumber> {
        self.head(slot).filter(|_| !self.is_idle(slot)).map(|head| head.number)
    }

    /// The head that the lag of an upstream is counted from: the agreed one, or what that was
    /// when an idle upstream last told its own.
    fn agreed_for(&self, slot: Slot) -> Option<UpstreamHead> {
        match self.is_idle(slot) {
            true => self.agreed_then.get(slot.index()).copied().flatten(),
            false => self.latest,
        }
    }

    /// The agreed block behind `safe` or `finalized`, however long ago it was told: it
    /// stays what it is, only the tag moves on.
    pub fn mark(&self, tag: Tag) -> Option<&Mark> {
        self.marks[tag as usize].as_ref()
    }

    /// The number that a tag stands for, while that is fresh. `None` for `earliest`, which
    /// differs from one upstream to the next, and `pending`, which has none.
    pub fn number_of(&self, tag: BlockTag, now: Instant) -> Option<BlockNumber> {
        let mark = |tag: Tag| {
            let is_fresh = |mark: &&Mark| now.saturating_duration_since(mark.told_at) <= MARK_FRESH;
            self.mark(tag).filter(is_fresh).map(|mark| mark.number)
        };
        match tag {
            BlockTag::Latest if self.is_fresh(now) => self.latest.map(|head| head.number),
            BlockTag::Safe => mark(Tag::Safe),
            BlockTag::Finalized => mark(Tag::Finalized),
            BlockTag::Latest | BlockTag::Earliest | BlockTag::Pending => None,
        }
    }

    /// Whether `latest` was heard of lately: it is then what a well upstream would say, or
    /// said when it was last polled. Never, where heads are known from answers alone.
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.fresh_until.is_some_and(|until| now <= until)
    }

    /// Whether an upstream is polled for its head, or pushes it. Otherwise a view is never fresh.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// To be called when something changed that [`View::is_fresh`] depends on.
    pub(crate) fn tell_freshness(&mut self) {
        let confirmed_at = self.confirmed_at.filter(|_| self.is_followed);
        self.fresh_until = confirmed_at.map(|at| at + self.fresh_for());
    }

    /// For so long the word of an upstream counts.
    pub fn fresh_for(&self) -> Duration {
        let blocks = self.block_time.unwrap_or_default().saturating_mul(FRESH_BLOCKS);
        blocks.max(self.poll_min.saturating_mul(2)).max(FRESH_MIN)
    }

    /// Whether a block is on the agreed chain. Knows the newest 256 heights, and not all
    /// of them where upstreams are polled more slowly than blocks come.
    pub fn canonical(&self, number: BlockNumber, hash: &BlockHash) -> Canonical {
        self.canon.is_canonical(number, hash)
    }

    /// The block at this height of the agreed chain, as far as the newest block is known to
    /// stand on it; see [`View::canonical`].
    pub fn hash_at(&self, number: BlockNumber) -> Option<BlockHash> {
        self.canon.linked_at(number.0)
    }

    /// The blocks of these heights, both included, as [`View::hash_at`] knows them.
    pub(crate) fn canonical_in(
        &self,
        from: BlockNumber,
        to: BlockNumber,
    ) -> impl Iterator<Item = (BlockNumber, BlockHash)> + '_ {
        self.canon.linked_in(from.0, to.0).map(|(number, hash)| (BlockNumber(number), hash))
    }

    /// The height of a block that is on the agreed chain or was taken back lately. Goes
    /// through all that is remembered: some hundred nanoseconds.
    pub fn height_of(&self, hash: &BlockHash) -> Option<BlockNumber> {
        self.canon.height_of(hash)
    }

    /// What was taken back lately.
    pub fn reorgs(&self) -> &Reorgs {
        &self.canon.reorgs
    }

    /// Whether an upstream is on another branch, or claims what cannot be.
    pub fn is_astray(&self, slot: Slot) -> bool {
        self.astray.contains(slot)
    }

    /// How many blocks an upstream is behind the agreed head; `None` while its own is
    /// unknown. Of an idle one: how many it was behind at its last word.
    pub fn lag_blocks(&self, slot: Slot) -> Option<u64> {
        let latest = self.agreed_for(slot)?.number.0;
        Some(latest.saturating_sub(self.head(slot)?.number.0))
    }

    /// How many blocks an upstream is ahead of the agreed head, negative when behind.
    pub fn distance(&self, slot: Slot) -> Option<i64> {
        let (own, latest) = (self.head(slot)?.number.0, self.agreed_for(slot)?.number.0);
        let blocks = i64::try_from(own.abs_diff(latest)).unwrap_or(i64::MAX);
        Some(if own < latest { -blocks } else { blocks })
    }

    /// How far behind it is in time: by the two blocks' timestamps where they are
    /// known, else by how long ago its head was first seen. Zero when it is not behind.
    pub fn lag_time(&self, slot: Slot, now: Instant) -> Option<Duration> {
        let (latest, head) = (self.agreed_for(slot)?, self.head(slot)?);
        if head.number >= latest.number {
            return Some(Duration::ZERO);
        }
        Some(match (latest.timestamp, head.timestamp) {
            (Some(latest), Some(own)) => Duration::from_secs(latest.saturating_sub(own)),
            _ => now.saturating_duration_since(head.seen_at),
        })
    }

    /// Whether an upstream is so far behind that it should be left out.
    /// `own_bound` is the upstream's own setting and outranks the chain's.
    ///
    /// While the block time is not known, a few blocks may take a minute or less than a second,
    /// and no upstream is excluded for blocks since its last poll: the blocks' own timestamps
    /// decide, and if there are none, as many blocks as the fastest chain makes in that time.
    pub fn is_lagging(&self, slot: Slot, own_bound: Option<u64>) -> bool {
        let Some(lag) = self.lag_blocks(slot).filter(|lag| *lag > 0) else { return false };
        let bound = own_bound.or(self.lag_blocks_max);
        if bound.is_some() || self.block_time.is_some() {
            return lag > bound.unwrap_or_else(|| self.lag_bound());
        }
        let timestamp = |head: Option<&UpstreamHead>| head.and_then(|head| head.timestamp);
        match (timestamp(self.agreed_for(slot).as_ref()), timestamp(self.head(slot))) {
            (Some(latest), Some(own)) => {
                lag > LAG_BLOCKS_MIN && latest.saturating_sub(own) > LAG_TIME.as_secs()
            }
            _ => lag > LAG_BLOCKS_QUICKEST,
        }
    }

    /// The lag in blocks up to which an upstream is used.
    pub fn lag_bound(&self) -> u64 {
        self.lag_blocks_max.unwrap_or_else(|| {
            let block_ms = self.block_time.map_or(0, |time| time.as_millis());
            match block_ms {
                0 => LAG_BLOCKS_MIN,
                ms => {
                    u64::try_from(LAG_TIME.as_millis() / ms).unwrap_or(u64::MAX).max(LAG_BLOCKS_MIN)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(block_time_ms: Option<u64>, given: Option<u64>) -> u64 {
        View::unknown(1, block_time_ms.map(Duration::from_millis), given).lag_bound()
    }

    #[test]
    fn before_the_pace_is_known_timestamps_tell_which_upstream_lags() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let now = Instant::now();
        let head = |number: u64, timestamp| UpstreamHead {
            number: BlockNumber(number),
            hash: None,
            timestamp,
            seen_at: now,
        };
        let check = |blocks: u64, seconds: Option<u64>, lags| {
            let mut view = View::unknown(1, None, None);
            view.latest = Some(head(1000, Some(5000)));
            view.heads[0] = Some(head(1000 - blocks, seconds.map(|seconds| 5000 - seconds)));
            assert_eq!(view.is_lagging(Slot(0), None), lags, "{blocks} blocks, {seconds:?} s");
            assert_eq!(view.is_lagging(Slot(0), Some(4)), blocks > 4, "the setting outranks");
        };
        check(4, Some(1), false);
        check(20, Some(20), false);
        check(20, Some(21), true);
        check(3, Some(36), false);
        check(4, Some(48), true);
        check(80, None, false);
        check(81, None, true);
    }

    #[test]
    fn the_lag_bound_follows_the_block_time() {
        assert_eq!(bound(None, None), 3);
        assert_eq!(bound(Some(12_000), None), 3);
        assert_eq!(bound(Some(2_000), None), 10);
        assert_eq!(bound(Some(250), None), 80);
        assert_eq!(bound(Some(250), Some(5)), 5);
    }
}
