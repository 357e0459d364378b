//! From the agreed head down to the journal: which header is missing, and what to publish.
//!
//! The agreed head is a number and a hash. What was between it and the journal's tip may never
//! have been heard of: a feed skips blocks, a poll sees every tenth. So the walk goes from the head
//! to its parent, by hash, until it meets the journal's chain. Reorgs at one height, of any depth,
//! shorter branches and a branch that comes back are no special cases of that.
//!
//! - Nothing is published before the walk has met the chain, then all of it at once.
//! - While a walk waits for a header, a higher agreed head does not replace it: it is walked next,
//!   so that a chain whose blocks come quicker than an answer is still told. If the higher head
//!   turns out not to stand on the first one, or a header of the first one cannot be had, the
//!   higher one takes its place.
//! - A head that is on the journal's chain already changes nothing: holders of the newest block
//!   went away, and no other block is in its place.
//! - Headers are kept across walks, so a reorg that comes back costs no fetch.
//!
//! A header is believed: the caller verifies what it fetches as far as `verify` can.

use std::collections::BTreeMap;

use wellhead_eth::{BlockHash, BlockNumber, NumberedBlock};

use crate::header::Header;
use crate::journal::{ChainJournal, Publication};

/// Blocks between the agreed head and the journal at most; beyond it the journal begins anew
/// ([`WalkStep::Resync`]).
///
/// On a chain with four blocks a second that is two minutes. They cost 512 calls, and while
/// they are walked at most 2,048 headers of some 700 bytes, 1.5 MB. The journal's 1,024 events hold
/// them all, and a reader that had read what was before them misses none.
const BLOCKS_MAX: usize = 512;

/// Headers that are kept, by blocks of the walk: siblings, and heads that were heard of meanwhile.
const HEADERS_PER_BLOCK: usize = 4;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalkStep {
    /// The journal has all that is agreed.
    Idle,
    /// A header is being fetched.
    Wait,
    /// Fetch the header of this block by its hash, and [`HeadWalk::supply`] it or tell that it
    /// [failed](HeadWalk::fail). It takes the place of a fetch that is still under way, which is
    /// of another branch: at most one is, so that a block that hangs holds up no other.
    Fetch(NumberedBlock),
    /// Publish this, then ask again.
    Publish(Publication),
    /// The journal cannot be continued: the head is too far away, or stands on another chain. It
    /// has to begin anew at this block, and each reader has to be told of the gap.
    Resync(NumberedBlock),
}

/// The walks of one chain.
#[derive(Debug)]
pub struct HeadWalk {
    blocks_max: usize,
    /// The agreed head that is walked from.
    target: Option<NumberedBlock>,
    /// A higher one, which is walked from next.
    next: Option<NumberedBlock>,
    headers: BTreeMap<(u64, BlockHash), Header>,
    fetching: Option<NumberedBlock>,
    failures: u32,
}

/// Where the way down from a block ends.
enum Trace {
    /// On the journal's chain: this many blocks are removed, and these headers added, descending.
    Met(usize, Vec<Header>),
    /// At a header that is not here.
    Missing(NumberedBlock),
    /// Nowhere within the bounds.
    Lost,
}

impl Default for HeadWalk {
    fn default() -> Self {
        Self::within(BLOCKS_MAX)
    }
}

impl HeadWalk {
    /// No walk yet; none is longer than this many blocks.
    fn within(blocks_max: usize) -> Self {
        Self {
            blocks_max,
            target: None,
            next: None,
            headers: BTreeMap::new(),
            fetching: None,
            failures: 0,
        }
    }

    /// Takes in the agreed head.
    pub fn agree(&mut self, head: NumberedBlock) {
        match self.target {
            Some(target) if target == head => self.next = None,
            Some(target) if head.number > target.number => self.next = Some(head),
            Some(_) | None => (self.target, self.next) = (Some(head), None),
        }
    }

    /// Takes in a header, fetched or heard of.
    pub fn supply(&mut self, header: Header) {
        if let Some(fetching) = self.fetching
            && header.id.hash == fetching.hash
        {
            self.fetching = None;
            if header.id != fetching {
                // The parent of a block is one below it. Any other answer helps nothing.
                return self.give_way();
            }
            self.failures = 0;
        }
        self.headers.insert((header.id.number.0, header.id.hash), header);
        self.forget_farthest();
    }

    /// Heights below the block whose header is being fetched at which no header is known, the highest first:
    /// the walk has to pass them on its way to the journal. The headers there may be fetched by number at the
    /// same time, and supplied. Each block is still found by the hash that its child names, so a header of
    /// another branch helps nothing and does no harm.
    pub fn next_heights(&self, journal: &ChainJournal, heights_max: usize) -> Vec<BlockNumber> {
        let (Some(fetching), Some(tip)) = (self.fetching, journal.tip()) else { return Vec::new() };
        let at_any_hash = |at: u64| (at, BlockHash([0; 32]))..=(at, BlockHash([0xff; 32]));
        let is_known = |at: u64| self.headers.range(at_any_hash(at)).next().is_some();
        let heights = (tip.number.0.saturating_add(1)..fetching.number.0).rev();
        heights.filter(|at| !is_known(*at)).take(heights_max).map(BlockNumber).collect()
    }

    /// Notes that a header could not be fetched. It is asked for again at the next step, unless a
    /// higher head is there to be walked from: the block may be gone for good. How long to wait
    /// before the next attempt is for the caller, which sees [`HeadWalk::failures`].
    pub fn fail(&mut self, hash: BlockHash) {
        if self.fetching.is_some_and(|fetching| fetching.hash == hash) {
            self.fetching = None;
            self.give_way();
        }
    }

    /// How many fetches failed since the last that did not.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Decides what to do next.
    pub fn step(&mut self, journal: &ChainJournal) -> WalkStep {
        self.merge();
        loop {
            let Some(target) = self.target else { return WalkStep::Idle };
            match self.trace(target, journal) {
                Trace::Met(_, added) if added.is_empty() => self.target = self.next.take(),
                Trace::Met(removed, mut added) => {
                    added.reverse();
                    return WalkStep::Publish(Publication { removed, added });
                }
                Trace::Missing(block) if self.fetching == Some(block) => return WalkStep::Wait,
                Trace::Missing(block) => {
                    self.fetching = Some(block);
                    return WalkStep::Fetch(block);
                }
                Trace::Lost => {
                    let newest = self.next.take().unwrap_or(target);
                    self.target = None;
                    // What was heard may be what leads nowhere.
                    self.headers.clear();
                    return WalkStep::Resync(newest);
                }
            }
        }
    }

    /// Lets the higher head take the place of the one that is walked from, if there is one.
    fn give_way(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if let Some(next) = self.next.take() {
            self.target = Some(next);
        }
    }

    /// One walk instead of two, where headers show how the two heads are related: the higher one
    /// stands on the other, or on a branch without it.
    fn merge(&mut self) {
        let (Some(target), Some(next)) = (self.target, self.next) else { return };
        let mut block = next;
        while block.number > target.number {
            match self.headers.get(&(block.number.0, block.hash)) {
                Some(header) => block = header.parent_id(),
                None => return,
            }
        }
        (self.target, self.next) = (Some(next), None);
    }

    fn trace(&self, target: NumberedBlock, journal: &ChainJournal) -> Trace {
        let (Some(base), Some(tip)) = (journal.base(), journal.tip()) else { return Trace::Lost };
        let mut added = Vec::new();
        let mut block = target;
        loop {
            if journal.hash_at(block.number) == Some(block.hash) {
                let above = tip.number.0 - block.number.0;
                return Trace::Met(usize::try_from(above).unwrap_or(usize::MAX), added);
            }
            let is_too_far = added.len() >= self.blocks_max
                || block.number <= base.number
                || self.is_too_far(block.number, added.len(), tip.number);
            if is_too_far {
                return Trace::Lost;
            }
            match self.headers.get(&(block.number.0, block.hash)) {
                None => return Trace::Missing(block),
                Some(header) => {
                    block = header.parent_id();
                    added.push(header.clone());
                }
            }
        }
    }

    /// Whether the journal's tip is farther below than a walk goes: no header has to be fetched
    /// to see that.
    fn is_too_far(&self, number: BlockNumber, walked: usize, tip: BlockNumber) -> bool {
        let below = number.0.saturating_sub(tip.0);
        let left = (self.blocks_max - walked) as u64;
        below > left
    }

    fn forget_farthest(&mut self) {
        // While no head is agreed: those that are heard of now are the highest, or lies.
        let newest = self.next.or(self.target).map_or(u64::MAX, |head| head.number.0);
        while self.headers.len() > HEADERS_PER_BLOCK * self.blocks_max {
            let distance = |end: Option<(&(u64, BlockHash), _)>| {
                end.map_or(0, |((number, _), _)| number.abs_diff(newest))
            };
            let lowest = distance(self.headers.first_key_value());
            let highest = distance(self.headers.last_key_value());
            let _farthest = match lowest > highest {
                true => self.headers.pop_first(),
                false => self.headers.pop_last(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::header::tests::{branch, hash, header, id};

    struct Chain {
        journal: ChainJournal,
        walk: HeadWalk,
        /// What upstreams have.
        world: HashMap<BlockHash, Header>,
        fetches: usize,
        publications: Vec<String>,
        resyncs: usize,
    }

    impl Chain {
        fn new(blocks_max: usize) -> Self {
            let mut journal = ChainJournal::default();
            journal.begin(id(10, 0));
            let walk = HeadWalk::within(blocks_max);
            let (world, publications) = (HashMap::new(), Vec::new());
            Self { journal, walk, world, fetches: 0, publications, resyncs: 0 }
        }

        fn make(&mut self, parent: BlockHash, from: u64, to: u64, fork: u8) {
            let headers = branch(parent, from, to, fork);
            self.world.extend(headers.into_iter().map(|header| (header.id.hash, header)));
        }

        /// Steps until nothing is left to do, or a fetch that is not answered.
        fn run(&mut self, answered: bool) -> Option<NumberedBlock> {
            for _ in 0..1000 {
                match self.walk.step(&self.journal) {
                    WalkStep::Idle | WalkStep::Wait => return None,
                    WalkStep::Fetch(block) => {
                        self.fetches += 1;
                        match self.world.get(&block.hash) {
                            Some(header) if answered => self.walk.supply(header.clone()),
                            Some(_) | None => return Some(block),
                        }
                    }
                    WalkStep::Publish(publication) => {
                        let added = publication.added.iter();
                        let added: Vec<_> = added
                            .map(|it| format!("{}.{}", it.id.number, it.id.hash.0[31]))
                            .collect();
                        let text = format!("-{} +{}", publication.removed, added.join(","));
                        self.publications.push(text);
                        self.journal.publish(publication).expect("linked");
                    }
                    WalkStep::Resync(block) => {
                        self.resyncs += 1;
                        self.journal.begin(block);
                    }
                }
            }
            panic!("the walk does not end");
        }

        fn agree(&mut self, number: u64, fork: u8) {
            self.walk.agree(id(number, fork));
            assert_eq!(self.run(true), None);
        }

        #[track_caller]
        fn told(&mut self, expected: &[&str]) {
            assert_eq!(self.publications, expected);
            self.publications.clear();
        }
    }

    #[test]
    fn a_jump_is_filled() {
        let mut chain = Chain::new(256);
        chain.make(hash(10, 0), 11, 15, 0);
        chain.agree(11, 0);
        chain.agree(15, 0);
        chain.told(&["-0 +11.0", "-0 +12.0,13.0,14.0,15.0"]);
        assert_eq!(chain.fetches, 5);
        chain.agree(15, 0);
        chain.told(&[]);
    }

    #[test]
    fn what_is_passed_next_may_be_fetched_by_number() {
        let mut chain = Chain::new(256);
        chain.make(hash(10, 0), 11, 20, 0);
        let heights = |chain: &Chain, most| {
            let heights = chain.walk.next_heights(&chain.journal, most);
            heights.into_iter().map(|it| it.0).collect::<Vec<_>>()
        };
        assert!(heights(&chain, 9).is_empty(), "nothing is fetched");
        chain.walk.agree(id(20, 0));
        assert_eq!(chain.run(false), Some(id(20, 0)));
        assert_eq!(heights(&chain, 3), [19, 18, 17]);
        // One is of another branch.
        for (number, fork) in [(20, 0), (19, 0), (18, 1), (17, 0)] {
            chain.walk.supply(header(id(number, fork), hash(number - 1, fork)));
        }
        assert_eq!(chain.run(false), Some(id(18, 0)));
        assert_eq!(heights(&chain, 9), [16, 15, 14, 13, 12, 11]);
        for header in branch(hash(10, 0), 11, 16, 0) {
            chain.walk.supply(header);
        }
        chain.walk.supply(header(id(18, 0), hash(17, 0)));
        assert_eq!(chain.run(false), None);
        chain.told(&["-0 +11.0,12.0,13.0,14.0,15.0,16.0,17.0,18.0,19.0,20.0"]);
        // The block above the tip, or at its height, has nothing below it that is missing.
        chain.make(hash(19, 0), 20, 21, 1);
        chain.walk.agree(id(20, 1));
        assert_eq!((chain.run(false), heights(&chain, 9)), (Some(id(20, 1)), Vec::new()));
    }

    #[test]
    fn what_was_heard_is_not_fetched() {
        let mut chain = Chain::new(256);
        for header in branch(hash(10, 0), 11, 14, 0) {
            chain.walk.supply(header);
        }
        chain.agree(14, 0);
        chain.told(&["-0 +11.0,12.0,13.0,14.0"]);
        assert_eq!(chain.fetches, 0);
    }

    #[test]
    fn reorgs() {
        let mut chain = Chain::new(256);
        chain.make(hash(10, 0), 11, 14, 0);
        chain.make(hash(13, 0), 14, 14, 1);
        chain.make(hash(11, 0), 12, 13, 2);
        chain.agree(14, 0);
        chain.told(&["-0 +11.0,12.0,13.0,14.0"]);
        chain.agree(14, 1);
        chain.told(&["-1 +14.1"]);
        chain.agree(14, 0);
        chain.told(&["-1 +14.0"]);
        let fetches = chain.fetches;
        chain.agree(14, 1);
        chain.agree(14, 0);
        chain.told(&["-1 +14.1", "-1 +14.0"]);
        assert_eq!(chain.fetches, fetches, "a branch that comes back is known");
        chain.agree(13, 2);
        chain.told(&["-3 +12.2,13.2"]);
    }

    #[test]
    fn a_head_that_falls_without_another_block_is_not_told() {
        let mut chain = Chain::new(256);
        chain.make(hash(10, 0), 11, 15, 0);
        chain.agree(15, 0);
        chain.agree(13, 0);
        chain.told(&["-0 +11.0,12.0,13.0,14.0,15.0"]);
        chain.make(hash(13, 0), 14, 14, 1);
        chain.agree(14, 1);
        chain.told(&["-2 +14.1"]);
    }

    #[test]
    fn a_higher_head_does_not_hold_up_the_one_that_is_walked_from() {
        let mut chain = Chain::new(256);
        chain.make(hash(10, 0), 11, 30, 0);
        chain.walk.agree(id(12, 0));
        assert_eq!(chain.run(false), Some(id(12, 0)));
        for number in 13..=20 {
            chain.walk.agree(id(number, 0));
            assert_eq!(chain.run(false), None, "one fetch at a time");
        }
        chain.walk.supply(chain.world[&hash(12, 0)].clone());
        assert_eq!(chain.run(false), Some(id(11, 0)));
        chain.walk.agree(id(22, 0));
        chain.walk.supply(chain.world[&hash(11, 0)].clone());
        assert_eq!(chain.run(false), Some(id(22, 0)));
        chain.told(&["-0 +11.0,12.0"]);
        chain.walk.supply(chain.world[&hash(22, 0)].clone());
        assert_eq!(chain.run(true), None);
        chain.told(&["-0 +13.0,14.0,15.0,16.0,17.0,18.0,19.0,20.0,21.0,22.0"]);
    }

    #[test]
    fn a_block_that_is_gone_gives_way() {
        let mut chain = Chain::new(256);
        chain.make(hash(10, 0), 11, 12, 1);
        chain.walk.agree(id(11, 0));
        assert_eq!(chain.run(true), Some(id(11, 0)), "no upstream has it");
        chain.walk.fail(hash(11, 0));
        assert_eq!(chain.run(true), Some(id(11, 0)), "asked again");
        chain.walk.agree(id(12, 1));
        chain.walk.fail(hash(11, 0));
        assert_eq!((chain.walk.failures(), chain.run(true)), (2, None));
        chain.told(&["-0 +11.1,12.1"]);
        assert_eq!(chain.walk.failures(), 0);
    }

    #[test]
    fn a_fetch_of_a_branch_that_was_left_is_replaced() {
        let mut chain = Chain::new(256);
        chain.make(hash(10, 0), 11, 12, 0);
        chain.make(hash(10, 0), 11, 12, 1);
        chain.walk.agree(id(12, 0));
        assert_eq!(chain.run(false), Some(id(12, 0)));
        chain.walk.agree(id(12, 1));
        assert_eq!(chain.run(false), Some(id(12, 1)));
        chain.walk.fail(hash(12, 0));
        assert_eq!((chain.run(false), chain.walk.failures()), (None, 0), "no longer of interest");
        chain.walk.supply(chain.world[&hash(12, 1)].clone());
        assert_eq!(chain.run(true), None);
        chain.told(&["-0 +11.1,12.1"]);
    }

    #[test]
    fn heads_on_two_branches_are_one_walk_once_that_is_seen() {
        let mut chain = Chain::new(256);
        chain.make(hash(10, 0), 11, 13, 1);
        chain.walk.agree(id(11, 0));
        assert_eq!(chain.run(true), Some(id(11, 0)));
        for header in branch(hash(10, 0), 11, 13, 1) {
            chain.walk.supply(header);
        }
        chain.walk.agree(id(13, 1));
        assert_eq!(chain.run(true), None);
        chain.told(&["-0 +11.1,12.1,13.1"]);
    }

    #[test]
    fn a_walk_is_bounded() {
        let mut chain = Chain::new(8);
        chain.make(hash(10, 0), 11, 40, 0);
        chain.agree(18, 0);
        assert_eq!((chain.fetches, chain.resyncs), (8, 0));
        chain.agree(27, 0);
        assert_eq!((chain.fetches, chain.resyncs), (8, 1), "no call for what is too far");
        chain.agree(28, 0);
        assert_eq!(chain.journal.tip(), Some(id(28, 0)));
        // A branch that parts below the journal.
        chain.make(hash(20, 0), 21, 29, 1);
        chain.agree(29, 1);
        assert_eq!((chain.resyncs, chain.journal.tip()), (2, Some(id(29, 1))));
        chain.agree(3, 0);
        assert_eq!((chain.resyncs, chain.journal.tip()), (3, Some(id(3, 0))), "another chain");
    }

    #[test]
    fn a_header_of_another_height_is_no_answer() {
        let mut chain = Chain::new(256);
        chain.walk.agree(id(11, 0));
        assert_eq!(chain.run(true), Some(id(11, 0)));
        let liar = NumberedBlock { number: BlockNumber(12), hash: hash(11, 0) };
        chain.walk.supply(header(liar, hash(10, 0)));
        assert_eq!((chain.walk.failures(), chain.run(true)), (1, Some(id(11, 0))));
    }

    #[test]
    fn headers_are_bounded() {
        let mut walk = HeadWalk::within(2);
        walk.agree(id(100, 0));
        for fork in 0..200 {
            walk.supply(header(id(100, fork), hash(99, 0)));
            walk.supply(header(id(u64::MAX - u64::from(fork), 0), hash(0, 0)));
        }
        assert_eq!(walk.headers.len(), 8);
        assert!(walk.headers.keys().all(|(number, _)| *number == 100));
    }

    /// A tree of blocks above block 10, each with the place of its parent, and what happens.
    fn worlds() -> impl Strategy<Value = (Vec<usize>, Vec<(u8, usize)>)> {
        let parents = prop::collection::vec(0..1000_usize, 1..40);
        let happenings = prop::collection::vec((0..6_u8, 0..1000_usize), 1..60);
        (parents, happenings)
    }

    /// The blocks of the tree, and of each its parent.
    fn tree(parents: &[usize]) -> Vec<(NumberedBlock, NumberedBlock)> {
        let mut blocks: Vec<(NumberedBlock, NumberedBlock)> = Vec::new();
        for (place, parent) in parents.iter().enumerate() {
            // The last few are likelier, so that branches become long.
            let parent = match parent % (place + 1) {
                0 => id(10, 0),
                _ if parent % 3 > 0 => blocks[place - 1].0,
                back => blocks[place - back].0,
            };
            let fork = u8::try_from(place + 1).expect("few blocks");
            blocks.push((id(parent.number.0 + 1, fork), parent));
        }
        blocks
    }

    proptest! {
        #[test]
        fn the_journal_ends_at_what_was_agreed((parents, happenings) in worlds()) {
            let blocks = tree(&parents);
            let parent_of: HashMap<NumberedBlock, NumberedBlock> = blocks.iter().copied().collect();
            let mut chain = Chain::new(256);
            for (block, parent) in &blocks {
                chain.world.insert(block.hash, header(*block, parent.hash));
            }
            let (mut agreed, mut in_flight) = (Vec::new(), None);
            for (kind, which) in happenings {
                let (block, _) = blocks[which % blocks.len()];
                match (kind, in_flight.take()) {
                    (0 | 1, open) => {
                        agreed.push(block);
                        chain.walk.agree(block);
                        in_flight = open;
                    }
                    (2, open) => {
                        chain.walk.supply(chain.world[&block.hash].clone());
                        in_flight = open.filter(|open| *open != block);
                    }
                    (3, Some(open)) => {
                        let open: NumberedBlock = open;
                        chain.walk.fail(open.hash);
                    }
                    (_, Some(open)) => chain.walk.supply(chain.world[&open.hash].clone()),
                    (_, None) => {}
                }
                // A new fetch takes the place of the one under way.
                in_flight = chain.run(false).or(in_flight);
                prop_assert_eq!(chain.walk.fetching, in_flight, "one fetch at a time");
            }
            // All answers come.
            while let Some(open) = in_flight {
                chain.walk.supply(chain.world[&open.hash].clone());
                in_flight = chain.run(false);
            }
            prop_assert_eq!(chain.resyncs, 0);
            let tip = chain.journal.tip().expect("begun");
            let Some(last) = agreed.last() else {
                prop_assert_eq!(tip, id(10, 0));
                return Ok(());
            };
            prop_assert_eq!(chain.journal.hash_at(last.number), Some(last.hash));
            prop_assert!(agreed.contains(&tip), "J2: {} was never agreed", tip);
            let mut block = tip;
            while block != id(10, 0) {
                prop_assert_eq!(chain.journal.hash_at(block.number), Some(block.hash));
                block = parent_of[&block];
            }
        }
    }
}
