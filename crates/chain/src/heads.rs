//! The one owner of what is known of a chain's heads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use wellhead_eth::{BlockHash, BlockNumber};
use wellhead_jsonrpc::raw;
use wellhead_upstream::Slot;

use crate::pace::Pace;
use crate::view::{Head, View};

/// How we heard of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The upstream's own word on its newest block (a feed or a poll): may also lower its head.
    Word,
    /// An answer that named a block: shows that the upstream holds at least that.
    Answer,
}

/// A block that an upstream showed to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Its number.
    pub number: BlockNumber,
    /// Its hash, where told.
    pub hash: Option<BlockHash>,
    /// Its timestamp in seconds since 1970, where told.
    pub timestamp: Option<u64>,
}

impl Observation {
    /// Reads the raw JSON of a block or header object; `None` without a number.
    pub fn of_block(block: &[u8]) -> Option<Self> {
        let number = raw::quantity(raw::field(block, "number")?).map(BlockNumber)?;
        let hash = raw::field(block, "hash").and_then(raw::string);
        Some(Self {
            number,
            hash: hash.and_then(|hash| hash.parse::<BlockHash>().ok()),
            timestamp: raw::field(block, "timestamp").and_then(raw::quantity),
        })
    }
}

/// What an observation changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    Known,
    /// This upstream's head.
    OwnHead,
    /// The best head of the chain.
    BestHead,
}

/// Takes observations, publishes views.
#[derive(Debug)]
pub struct Heads {
    view: ArcSwap<View>,
    /// Writers take turns; readers never wait. The pace is theirs alone.
    writer: Mutex<Pace>,
    /// Given by the settings; outranks what is measured.
    block_time_given: Option<Duration>,
}

impl Heads {
    /// Heads of a chain with so many upstreams. `block_time` and `lag_blocks_max`
    /// come from the settings where they are given.
    pub fn new(
        upstreams: usize,
        block_time: Option<Duration>,
        lag_blocks_max: Option<u64>,
    ) -> Self {
        Self {
            view: ArcSwap::from_pointee(View::unknown(upstreams, block_time, lag_blocks_max)),
            writer: Mutex::default(),
            block_time_given: block_time,
        }
    }

    /// The present view. One atomic load; pin it once per request.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Looks at what is believed now, without a count that all workers would share. To be
    /// used for a moment: what replaces the view waits for no one, but keeps it for him.
    pub fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.view.load())
    }

    /// Takes in what `slot` showed. Cheap when it is no news: no lock, no new view.
    pub fn observe(&self, slot: Slot, seen: Observation, source: Source, now: Instant) -> News {
        if !is_news(self.view.load().head(slot), &seen, source) {
            return News::Known;
        }
        let mut pace = self.writer.lock();
        let present = self.view.load();
        // Another writer may have been first.
        if slot.index() >= present.heads.len() || !is_news(present.head(slot), &seen, source) {
            return News::Known;
        }
        let head =
            Head { number: seen.number, hash: seen.hash, timestamp: seen.timestamp, seen_at: now };
        let mut next = View::clone(&present);
        next.heads[slot.index()] = Some(head);
        let is_best = next.best.is_none_or(|best| seen.number > best.number);
        if is_best {
            next.best = Some(head);
            pace.observe(seen.number.0, now);
            next.block_time = self.block_time_given.or_else(|| pace.block_time());
        }
        self.view.store(Arc::new(next));
        if is_best { News::BestHead } else { News::OwnHead }
    }

    /// Forgets the head of an upstream of which nobody told lately: how far it is is not
    /// known any more. The best head stays, as what was there is still there.
    pub fn fade(&self, slot: Slot) {
        let _writer = self.writer.lock();
        let mut next = View::clone(&self.view.load());
        if let Some(head) = next.heads.get_mut(slot.index()) {
            *head = None;
        }
        self.view.store(Arc::new(next));
    }

    /// Forgets the head of an upstream that turned out not to be on this chain,
    /// and the best head with it if nobody else holds it.
    pub fn forget(&self, slot: Slot) {
        let _writer = self.writer.lock();
        let mut next = View::clone(&self.view.load());
        if let Some(head) = next.heads.get_mut(slot.index()) {
            *head = None;
        }
        next.best = next.heads.iter().flatten().max_by_key(|head| head.number).copied();
        self.view.store(Arc::new(next));
    }
}

fn is_news(known: Option<&Head>, seen: &Observation, source: Source) -> bool {
    let Some(known) = known else { return true };
    match source {
        Source::Answer => seen.number > known.number,
        Source::Word => {
            seen.number != known.number
                || (seen.hash.is_some() && seen.hash != known.hash)
                || (seen.timestamp.is_some() && known.timestamp.is_none())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `slot:number` (its word) and `slot~number` (an answer), then compares
    /// "best | heads".
    fn check(script: &str, expected: &str) {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let now = Instant::now();
        let heads = Heads::new(3, None, None);
        for step in script.split_whitespace() {
            let source = if step.contains(':') { Source::Word } else { Source::Answer };
            let (slot, number) = step.split_once([':', '~']).expect("slot:number");
            let number = BlockNumber(number.parse().expect("a number"));
            let seen = Observation { number, hash: None, timestamp: None };
            heads.observe(Slot(slot.parse().expect("a slot")), seen, source, now);
        }
        let view = heads.view();
        let word =
            |head: &Option<Head>| head.map_or_else(|| "-".into(), |head| head.number.0.to_string());
        let own: Vec<String> = view.heads.iter().map(word).collect();
        assert_eq!(format!("{} | {}", word(&view.best), own.join(" ")), expected, "{script}");
    }

    #[test]
    fn the_highest_is_the_best() {
        check("", "- | - - -");
        check("0:5 1:7 2:6", "7 | 5 7 6");
    }

    #[test]
    fn an_answer_only_raises() {
        check("0~5 0~4", "5 | 5 - -");
        check("0:5 0~9", "9 | 9 - -");
    }

    #[test]
    fn its_own_word_may_lower_it_but_not_the_best() {
        check("0:5 1:5 0:3", "5 | 3 5 -");
    }

    #[test]
    fn an_unknown_slot_is_ignored() {
        check("9:5", "- | - - -");
    }

    #[test]
    fn lag_is_counted_from_the_best() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let now = Instant::now();
        let heads = Heads::new(2, None, Some(2));
        let seen = |number, timestamp| Observation {
            number: BlockNumber(number),
            hash: None,
            timestamp: Some(timestamp),
        };
        heads.observe(Slot(0), seen(10, 1000), Source::Word, now);
        heads.observe(Slot(1), seen(7, 964), Source::Word, now);
        let view = heads.view();
        assert_eq!((view.lag_blocks(Slot(0)), view.lag_blocks(Slot(1))), (Some(0), Some(3)));
        assert_eq!(view.lag_time(Slot(1), now), Some(Duration::from_secs(36)));
        assert!(view.is_lagging(Slot(1), None));
        assert!(!view.is_lagging(Slot(1), Some(3)), "the upstream's own bound outranks");
        assert!(!view.is_lagging(Slot(0), None));
    }

    #[test]
    fn a_forgotten_upstream_no_longer_leads() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let now = Instant::now();
        let heads = Heads::new(2, None, None);
        let seen =
            |number| Observation { number: BlockNumber(number), hash: None, timestamp: None };
        heads.observe(Slot(0), seen(900), Source::Word, now);
        heads.observe(Slot(1), seen(7), Source::Word, now);
        heads.forget(Slot(0));
        assert_eq!(heads.view().best.map(|head| head.number), Some(BlockNumber(7)));
    }

    #[test]
    fn a_faded_head_is_unknown_and_what_it_showed_is_still_there() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let now = Instant::now();
        let heads = Heads::new(2, None, Some(3));
        let seen =
            |number| Observation { number: BlockNumber(number), hash: None, timestamp: None };
        heads.observe(Slot(0), seen(900), Source::Answer, now);
        heads.observe(Slot(1), seen(7), Source::Answer, now);
        assert!(heads.view().is_lagging(Slot(1), None));
        heads.fade(Slot(1));
        heads.fade(Slot(0));
        let view = heads.view();
        assert!(!view.is_lagging(Slot(1), None), "nobody knows");
        assert_eq!(view.best.map(|head| head.number), Some(BlockNumber(900)));
        // The next word counts, however low.
        heads.observe(Slot(1), seen(8), Source::Answer, now);
        assert!(heads.view().is_lagging(Slot(1), None));
    }

    #[test]
    fn a_header_teaches_number_hash_and_time() {
        let hash = "0x00000000000000000000000000000000000000000000000000000000000000ff";
        let block = format!(r#"{{"timestamp":"0x10","hash":"{hash}","number":"0x1b4"}}"#);
        let seen = Observation::of_block(block.as_bytes()).expect("a block");
        assert_eq!((seen.number, seen.timestamp), (BlockNumber(436), Some(16)));
        assert_eq!(seen.hash.map(|hash| hash.to_string()), Some(hash.to_owned()));
        assert_eq!(Observation::of_block(b"null"), None);
    }
}
