//! The snapshot of a chain that a request pins.

use std::time::{Duration, Instant};

use wellhead_eth::{BlockHash, BlockNumber};
use wellhead_upstream::Slot;

/// An upstream is left out only when it lags by at least this many blocks,
/// whatever the block time: two upstreams never hear of a block together.
const LAG_BLOCKS_MIN: u64 = 3;
/// And by about this long: on a chain of quick blocks three are nothing.
const LAG_TIME: Duration = Duration::from_secs(20);

/// What that is on a chain that makes four blocks a second, as the quickest do.
const LAG_BLOCKS_QUICKEST: u64 = 80;

/// The newest block that an upstream is known to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub number: BlockNumber,
    /// Its hash, where what taught us the number told it.
    pub hash: Option<BlockHash>,
    /// Its timestamp in seconds since 1970, where known.
    pub timestamp: Option<u64>,
    /// When we first heard of it.
    pub seen_at: Instant,
}

/// What is believed of a chain at one moment. Immutable.
#[derive(Debug, Clone)]
pub struct View {
    /// The highest block that a verified upstream reported.
    pub best: Option<Head>,
    /// By slot, each upstream's own head.
    pub heads: Box<[Option<Head>]>,
    /// The time between blocks, given or measured; `None` until two were seen.
    pub block_time: Option<Duration>,
    /// The lag in blocks from which an upstream is left out, when the settings say so.
    pub lag_blocks_max: Option<u64>,
}

impl View {
    /// A view of a chain of which nothing is known.
    pub fn unknown(
        upstreams: usize,
        block_time: Option<Duration>,
        lag_blocks_max: Option<u64>,
    ) -> Self {
        Self { best: None, heads: vec![None; upstreams].into(), block_time, lag_blocks_max }
    }

    /// The head of one upstream.
    pub fn head(&self, slot: Slot) -> Option<&Head> {
        self.heads.get(slot.index())?.as_ref()
    }

    /// How many blocks an upstream is behind the best; `None` while its head is unknown.
    pub fn lag_blocks(&self, slot: Slot) -> Option<u64> {
        let best = self.best?.number.0;
        Some(best.saturating_sub(self.head(slot)?.number.0))
    }

    /// How far behind it is in time: by the two blocks' timestamps where they are
    /// known, else by how long ago its head was first seen. Zero when it is not behind.
    pub fn lag_time(&self, slot: Slot, now: Instant) -> Option<Duration> {
        let (best, head) = (self.best?, self.head(slot)?);
        if head.number >= best.number {
            return Some(Duration::ZERO);
        }
        Some(match (best.timestamp, head.timestamp) {
            (Some(best), Some(own)) => Duration::from_secs(best.saturating_sub(own)),
            _ => now.saturating_duration_since(head.seen_at),
        })
    }

    /// Whether an upstream is so far behind that it should be left out.
    /// `own_bound` is the upstream's own setting and outranks the chain's.
    ///
    /// While the time between blocks is not known, a few blocks may be a minute or less
    /// than a second, and nobody is left out for what happened since it was polled: the
    /// blocks' own timestamps decide, and where there are none, as many blocks as the
    /// quickest chain makes in that time.
    pub fn is_lagging(&self, slot: Slot, own_bound: Option<u64>) -> bool {
        let Some(lag) = self.lag_blocks(slot).filter(|lag| *lag > 0) else { return false };
        let bound = own_bound.or(self.lag_blocks_max);
        if bound.is_some() || self.block_time.is_some() {
            return lag > bound.unwrap_or_else(|| self.lag_bound());
        }
        let timestamp = |head: Option<&Head>| head.and_then(|head| head.timestamp);
        match (timestamp(self.best.as_ref()), timestamp(self.head(slot))) {
            (Some(best), Some(own)) => {
                lag > LAG_BLOCKS_MIN && best.saturating_sub(own) > LAG_TIME.as_secs()
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
    fn before_the_pace_is_known_timestamps_tell_who_lags() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let now = Instant::now();
        let head = |number: u64, timestamp| Head {
            number: BlockNumber(number),
            hash: None,
            timestamp,
            seen_at: now,
        };
        let check = |blocks: u64, seconds: Option<u64>, lags| {
            let mut view = View::unknown(1, None, None);
            view.best = Some(head(1000, Some(5000)));
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
