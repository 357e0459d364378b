//! The blocks that joined and left the agreed chain, in order.
//!
//! Invariants, checked where events are appended:
//!
//! - **J1** Folding the events from any place gives a linked chain: the parent of each block added
//!   is the tip before it, and each block removed is the tip.
//! - **J2** The tip was the agreed head, now or before: the caller stores the view first.
//! - **J3** A block is added with its header; its logs and other parts may follow, see
//!   [`AddedBlock::logs`].
//!
//! All events of one [`Publication`] appear together, so no reader sees half a reorg. The journal
//! is bounded in blocks and bytes; at the bound the oldest events go, and a reader that had not
//! read them gets [`Lagged`](crate::Lagged).

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use wellhead_eth::{BlockHash, BlockNumber, Bloom, NumberedBlock};
use wellhead_jsonrpc::raw;

use crate::header::Header;
use crate::logs::BlockLogs;
use crate::mined::BlockTransactions;
use crate::receipts::BlockReceipts;
use crate::ring::{Cursor, Ring, RingReader};
use crate::stream::StreamBounds;

/// About how many bytes an event holds beside its header and logs.
const EVENT_BYTES: usize = 128;

/// What happened to the chain. Cheap to clone.
#[derive(Debug, Clone)]
pub enum ChainEvent {
    /// The journal begins above this block, and nothing is told of what was before.
    Began(NumberedBlock),
    /// The block is the new tip.
    Added(Arc<AddedBlock>),
    /// The tip was taken back: what [`ChainEvent::Added`] told of this block no longer holds.
    Removed(Arc<AddedBlock>),
}

impl ChainEvent {
    /// The block that was added.
    pub fn added(&self) -> Option<&Arc<AddedBlock>> {
        match self {
            Self::Added(block) => Some(block),
            Self::Began(_) | Self::Removed(_) => None,
        }
    }

    /// The logs that a subscription which began at `since` is told, or, of a block removed, told to
    /// be taken back. Nothing for a block whose logs are not needed.
    pub fn logs_told(&self, since: Cursor) -> Option<&Arc<BlockLogs>> {
        let block = match self {
            Self::Began(_) => return None,
            Self::Added(block) => block,
            Self::Removed(block) => Some(block).filter(|it| it.sequence >= since.sequence())?,
        };
        block.logs()?.known()
    }

    fn bytes_held(&self) -> usize {
        match self {
            Self::Began(_) => EVENT_BYTES,
            // A removed block may be held by its removal alone: counting it twice errs on the
            // side of less.
            Self::Added(block) | Self::Removed(block) => EVENT_BYTES + block.bytes_held(),
        }
    }
}

/// A block of the journal, shared by the event that added it and the one that removed it.
#[derive(Debug)]
pub struct AddedBlock {
    header: Header,
    sequence: u64,
    logs: OnceLock<LogsState>,
    receipts: OnceLock<PartState<BlockReceipts>>,
    transactions: OnceLock<PartState<BlockTransactions>>,
}

impl AddedBlock {
    /// Its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its number and hash.
    pub fn id(&self) -> NumberedBlock {
        self.header.id
    }

    /// What its bloom says of its logs. Some chains leave blooms empty in blocks with logs: an empty one
    /// says nothing, but where the block used no gas.
    pub fn telling_bloom(&self) -> Option<&Bloom> {
        let bloom = self.header.bloom.as_deref()?;
        (!bloom.is_empty() || !self.has_used_gas()).then_some(bloom)
    }

    /// Whether it used gas, as far as its header says.
    pub fn has_used_gas(&self) -> bool {
        raw::field(&self.header.json(), "gasUsed").and_then(raw::quantity) != Some(0)
    }

    /// The sequence number of the event that added it. A subscription that began behind it was not
    /// told of the block, and is not told of its removal.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// What is known of its logs; `None` while they are awaited. A subscription to logs waits at
    /// this block until then, so that no block is skipped and the order is kept.
    pub fn logs(&self) -> Option<&LogsState> {
        self.logs.get()
    }

    /// What is known of its receipts, as [`AddedBlock::logs`].
    pub fn receipts(&self) -> Option<&PartState<BlockReceipts>> {
        self.receipts.get()
    }

    /// What is known of its transactions, as [`AddedBlock::logs`].
    pub fn transactions(&self) -> Option<&PartState<BlockTransactions>> {
        self.transactions.get()
    }

    fn new(header: Header, sequence: u64) -> Self {
        let (logs, receipts, transactions) = Default::default();
        Self { header, sequence, logs, receipts, transactions }
    }

    /// What is not known of it by now is not needed.
    fn settle(&self) {
        let _known_already = self.logs.set(PartState::Unneeded);
        let _known_already = self.receipts.set(PartState::Unneeded);
        let _known_already = self.transactions.set(PartState::Unneeded);
    }

    fn bytes_held(&self) -> usize {
        let logs = self.logs.get().and_then(PartState::known).map_or(0, |it| it.bytes_held());
        let receipts =
            self.receipts.get().and_then(PartState::known).map_or(0, |it| it.bytes_held());
        let transactions =
            self.transactions.get().and_then(PartState::known).map_or(0, |it| it.bytes_held());
        self.header.bytes_held() + logs + receipts + transactions
    }
}

/// What is known of a part of a block that is fetched after its header.
#[derive(Debug)]
pub enum PartState<T> {
    /// It is here.
    Known(Arc<T>),
    /// No subscription needs it, or the block was removed before it was known. Logs are not needed
    /// where the bloom excludes all groups, which says nothing to a filter that was not among them.
    Unneeded,
}

impl<T> PartState<T> {
    /// The part, if it is here.
    pub fn known(&self) -> Option<&Arc<T>> {
        match self {
            Self::Known(part) => Some(part),
            Self::Unneeded => None,
        }
    }
}

/// What is known of the logs of a block.
pub type LogsState = PartState<BlockLogs>;

/// The bounds of a journal. Only a single publication of more events is kept whole until the next one.
const BOUNDS: StreamBounds = StreamBounds { events_max: 1024, bytes_max: 64 << 20 };

/// Changes of the chain that readers see together: blocks removed from the tip downwards, then
/// blocks added upwards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Publication {
    /// How many blocks are removed, from the tip down.
    pub removed: usize,
    /// The blocks added, ascending.
    pub added: Vec<Header>,
}

/// The publication does not continue the journal. Nothing was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unlinked {
    /// The journal has not begun.
    #[error("the journal has not begun")]
    NotBegun,
    /// It removes more blocks than the journal has.
    #[error("the reorg is deeper than the journal")]
    TooDeep,
    /// The parent of this block is not the tip below it.
    #[error("block {0} does not follow the tip")]
    Parent(NumberedBlock),
}

/// The journal of one chain: the writer's end.
#[derive(Debug)]
pub struct ChainJournal {
    ring: Ring<ChainEvent>,
    bounds: StreamBounds,
    /// The block on which `chain` stands; `None` before the journal begins.
    base: Option<NumberedBlock>,
    /// The chain from `base` on, ascending: the fold of the events that are kept.
    chain: VecDeque<Arc<AddedBlock>>,
    bytes_held: usize,
}

impl Default for ChainJournal {
    /// A journal that has not begun, of at most 1,024 events and 64 MiB.
    fn default() -> Self {
        Self::new(BOUNDS)
    }
}

impl ChainJournal {
    /// A journal that has not begun.
    pub fn new(bounds: StreamBounds) -> Self {
        Self { ring: Ring::new(), bounds, base: None, chain: VecDeque::new(), bytes_held: 0 }
    }

    /// A reader's end.
    pub fn reader(&self) -> RingReader<ChainEvent> {
        self.ring.reader()
    }

    /// Begins above `base`, or begins anew there: every cursor so far is [`Lagged`](crate::Lagged)
    /// then. What lies between the old tip and the new base is never told.
    pub fn begin(&mut self, base: NumberedBlock) {
        self.ring.restart();
        self.chain.clear();
        self.base = Some(base);
        let event = ChainEvent::Began(base);
        self.bytes_held = event.bytes_held();
        self.ring.append(0, [event]);
    }

    /// The newest block; `None` before the journal begins.
    pub fn tip(&self) -> Option<NumberedBlock> {
        self.chain.back().map(|block| block.id()).or(self.base)
    }

    /// The lowest block that the journal still knows to be on the chain: reorgs that part below
    /// cannot be published.
    pub fn base(&self) -> Option<NumberedBlock> {
        self.base
    }

    /// The hash at this height of the journal's chain.
    pub fn hash_at(&self, number: BlockNumber) -> Option<BlockHash> {
        let base = self.base?;
        match number.0.checked_sub(base.number.0)? {
            0 => Some(base.hash),
            above => {
                let block = self.chain.get(usize::try_from(above - 1).ok()?)?;
                Some(block.id().hash)
            }
        }
    }

    /// Appends the events of a publication in one step for readers. An error changes nothing.
    pub fn publish(&mut self, publication: Publication) -> Result<(), Unlinked> {
        self.check(&publication)?;
        let Publication { removed, added } = publication;
        let mut events = Vec::with_capacity(removed + added.len());
        for _ in 0..removed {
            let block = self.chain.pop_back().expect("as many as are removed, by the check");
            // Logs that were never told are not taken back, and are not waited for.
            block.settle();
            events.push(ChainEvent::Removed(block));
        }
        let first = self.ring.view().tip().sequence() + events.len() as u64;
        for (sequence, header) in (first..).zip(added) {
            let block = Arc::new(AddedBlock::new(header, sequence));
            self.chain.push_back(Arc::clone(&block));
            events.push(ChainEvent::Added(block));
        }
        self.bytes_held += events.iter().map(ChainEvent::bytes_held).sum::<usize>();
        let dropped = self.make_room(&events);
        self.ring.append(dropped, events);
        debug_assert!(self.is_linked(), "J1: the chain is linked");
        Ok(())
    }

    /// The logs of a block that was removed, while the journal remembers them: a branch that comes back
    /// needs no second read.
    pub fn removed_logs(&self, id: NumberedBlock) -> Option<Arc<BlockLogs>> {
        let view = self.ring.view();
        let mut events = view.iter().map(|(_, event)| event);
        events.find_map(|event| match event {
            ChainEvent::Removed(block) if block.id() == id => block.logs()?.known().map(Arc::clone),
            ChainEvent::Removed(_) | ChainEvent::Began(_) | ChainEvent::Added(_) => None,
        })
    }

    /// Stores what is known of the logs of a block; false if that was known already, or the block
    /// is no longer on the journal's chain, so that no reader waits for them. They count as bytes
    /// of the journal.
    pub fn set_logs(&mut self, block: &AddedBlock, logs: LogsState) -> bool {
        self.set_part(block, &block.logs, logs, BlockLogs::block)
    }

    /// As [`ChainJournal::set_logs`], of receipts.
    pub fn set_receipts(&mut self, block: &AddedBlock, receipts: PartState<BlockReceipts>) -> bool {
        self.set_part(block, &block.receipts, receipts, BlockReceipts::block)
    }

    /// As [`ChainJournal::set_logs`], of transactions.
    pub fn set_transactions(
        &mut self,
        block: &AddedBlock,
        transactions: PartState<BlockTransactions>,
    ) -> bool {
        self.set_part(block, &block.transactions, transactions, BlockTransactions::block)
    }

    fn set_part<T>(
        &mut self,
        block: &AddedBlock,
        part: &OnceLock<PartState<T>>,
        state: PartState<T>,
        block_of: fn(&T) -> NumberedBlock,
    ) -> bool {
        debug_assert!(state.known().is_none_or(|it| block_of(it) == block.id()), "of this block");
        let is_on_chain = self.chain.iter().rev().any(|it| std::ptr::eq(&**it, block));
        if !is_on_chain {
            return false;
        }
        let before = block.bytes_held();
        if part.set(state).is_err() {
            return false;
        }
        self.bytes_held += block.bytes_held() - before;
        let dropped = self.make_room(&[]);
        if dropped > 0 {
            self.ring.append(dropped, []);
        }
        true
    }

    fn check(&self, publication: &Publication) -> Result<(), Unlinked> {
        let base = self.base.ok_or(Unlinked::NotBegun)?;
        let kept = self.chain.len().checked_sub(publication.removed).ok_or(Unlinked::TooDeep)?;
        let mut tip = match kept.checked_sub(1) {
            Some(last) => self.chain[last].id(),
            None => base,
        };
        for header in &publication.added {
            if header.parent != tip.hash || Some(header.id.number.0) != tip.number.0.checked_add(1)
            {
                return Err(Unlinked::Parent(header.id));
            }
            tip = header.id;
        }
        Ok(())
    }

    /// How many of the oldest events go, so that the rest and `more` are within the bounds. The
    /// chain no longer reaches below what stays.
    fn make_room(&mut self, more: &[ChainEvent]) -> usize {
        let view = self.ring.view();
        let mut dropped = 0;
        for (_, event) in view.iter() {
            // The newest event stays.
            let events = view.len() - dropped + more.len();
            let is_within =
                events <= self.bounds.events_max && self.bytes_held <= self.bounds.bytes_max;
            if is_within || events <= 1 {
                break;
            }
            dropped += 1;
            self.bytes_held = self.bytes_held.saturating_sub(event.bytes_held());
            if let ChainEvent::Added(block) = event
                && self.chain.front().is_some_and(|front| Arc::ptr_eq(front, block))
            {
                self.base = Some(block.id());
                self.chain.pop_front();
            }
        }
        dropped
    }

    fn is_linked(&self) -> bool {
        let Some(mut tip) = self.base else { return self.chain.is_empty() };
        self.chain.iter().all(|block| {
            let follows = block.header.parent == tip.hash;
            tip = block.id();
            follows
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::header::tests::{branch, hash, header, id};
    use crate::logs::{LogsReply, LogsScope};
    use crate::ring::{Lagged, RingView};

    fn begun(bounds: StreamBounds) -> ChainJournal {
        let mut journal = ChainJournal::new(bounds);
        journal.begin(id(10, 0));
        journal
    }

    fn extend(journal: &mut ChainJournal, removed: usize, added: Vec<Header>) {
        journal.publish(Publication { removed, added }).expect("linked");
    }

    fn told(view: &RingView<ChainEvent>, from: Cursor) -> Vec<String> {
        let events = view.since(from).expect("not too old");
        let words = events.map(|(_, event)| match event {
            ChainEvent::Began(base) => format!("={}", base.number),
            ChainEvent::Added(block) => format!("+{}.{}", block.id().number, block.id().hash.0[31]),
            ChainEvent::Removed(block) => {
                format!("-{}.{}", block.id().number, block.id().hash.0[31])
            }
        });
        words.collect()
    }

    /// The tip after an event.
    fn tip_after(event: &ChainEvent) -> NumberedBlock {
        match event {
            ChainEvent::Began(base) => *base,
            ChainEvent::Added(block) => block.id(),
            ChainEvent::Removed(block) => block.header.parent_id(),
        }
    }

    /// The tip of the chain that a view tells of.
    fn tip_of(view: &RingView<ChainEvent>) -> Option<NumberedBlock> {
        view.iter().next_back().map(|(_, event)| tip_after(event))
    }

    #[test]
    fn readers_see_a_whole_reorg_at_once() {
        let mut journal = begun(BOUNDS);
        let reader = journal.reader();
        let start = reader.tip();
        extend(&mut journal, 0, branch(hash(10, 0), 11, 13, 0));
        let middle = reader.tip();
        let before = reader.load();
        extend(&mut journal, 2, branch(hash(11, 0), 12, 12, 1));
        assert_eq!(told(&before, start), ["+11.0", "+12.0", "+13.0"]);
        assert_eq!(told(&reader.load(), middle), ["-13.0", "-12.0", "+12.1"]);
        assert_eq!(journal.tip(), Some(id(12, 1)));
        assert_eq!(tip_of(&reader.load()), Some(id(12, 1)));
        let at = |number| journal.hash_at(BlockNumber(number));
        assert_eq!(
            (at(10), at(11), at(12)),
            (Some(hash(10, 0)), Some(hash(11, 0)), Some(hash(12, 1)))
        );
        assert_eq!((at(9), at(13)), (None, None));
    }

    #[test]
    fn what_does_not_continue_the_journal_is_refused() {
        let publication = |removed, added| Publication { removed, added };
        let mut journal = ChainJournal::default();
        assert_eq!(journal.tip(), None);
        let first = || branch(hash(10, 0), 11, 11, 0);
        assert_eq!(journal.publish(publication(0, first())), Err(Unlinked::NotBegun));
        journal.begin(id(10, 0));
        let gap = branch(hash(11, 0), 12, 12, 0);
        assert_eq!(journal.publish(publication(0, gap)), Err(Unlinked::Parent(id(12, 0))));
        let number = vec![header(id(13, 0), hash(10, 0))];
        assert_eq!(journal.publish(publication(0, number)), Err(Unlinked::Parent(id(13, 0))));
        assert_eq!(journal.publish(publication(1, first())), Err(Unlinked::TooDeep));
        assert_eq!(journal.tip(), Some(id(10, 0)), "an error changes nothing");
        assert_eq!(journal.publish(publication(0, first())), Ok(()));
        assert_eq!(journal.publish(publication(2, Vec::new())), Err(Unlinked::TooDeep));
    }

    #[test]
    fn beginning_anew_is_told_to_each_reader() {
        let mut journal = begun(BOUNDS);
        let cursor = journal.reader().tip();
        journal.begin(id(500, 0));
        let view = journal.reader().load();
        let lagged = view.since(cursor).map(|_| ()).expect_err("a gap");
        assert_eq!(lagged, Lagged { missed: None, oldest: view.oldest() });
        assert_eq!(told(&view, lagged.oldest), ["=500"]);
    }

    #[test]
    fn logs_are_awaited_unless_their_block_is_removed() {
        let mut journal = begun(BOUNDS);
        extend(&mut journal, 0, branch(hash(10, 0), 11, 12, 0));
        let view = journal.reader().load();
        let blocks: Vec<_> = view.iter().filter_map(|(_, event)| event.added().cloned()).collect();
        assert!(blocks.iter().all(|block| block.logs().is_none()));
        assert!(journal.set_logs(&blocks[0], LogsState::Unneeded));
        assert!(!journal.set_logs(&blocks[0], LogsState::Unneeded), "known already");
        extend(&mut journal, 1, branch(hash(11, 0), 12, 12, 1));
        assert!(matches!(blocks[1].logs(), Some(LogsState::Unneeded)));
        assert!(!journal.set_logs(&blocks[1], LogsState::Unneeded), "no longer on the chain");
    }

    /// The events behind `cursor` up to the first block whose logs are awaited.
    fn with_logs_since(
        view: &RingView<ChainEvent>,
        cursor: Cursor,
    ) -> impl Iterator<Item = &ChainEvent> {
        let awaits = |event: &ChainEvent| event.added().is_some_and(|it| it.logs().is_none());
        let events = view.since(cursor).expect("not too old").map(|(_, event)| event);
        events.take_while(move |event| !awaits(event))
    }

    #[test]
    fn the_logs_of_a_removed_block_are_remembered() {
        let mut journal = begun(BOUNDS);
        extend(&mut journal, 0, branch(hash(10, 0), 11, 12, 0));
        let view = journal.reader().load();
        let block = view.iter().filter_map(|(_, event)| event.added()).next_back().expect("12");
        let logs = BlockLogs::read(id(12, 0), LogsReply::Logs(b"[]"), LogsScope::Whole(None), 100);
        let logs = Arc::new(logs.expect("logs"));
        journal.set_logs(block, LogsState::Known(Arc::clone(&logs)));
        assert!(journal.removed_logs(id(12, 0)).is_none(), "it is there");
        extend(&mut journal, 1, branch(hash(11, 0), 12, 12, 1));
        let remembered = journal.removed_logs(id(12, 0)).expect("remembered");
        assert!(Arc::ptr_eq(&remembered, &logs));
        assert!(journal.removed_logs(id(12, 1)).is_none(), "another block");
    }

    #[test]
    fn a_subscription_to_logs_waits_for_each_block_in_turn() {
        let mut journal = begun(BOUNDS);
        let start = journal.reader().tip();
        extend(&mut journal, 0, branch(hash(10, 0), 11, 13, 0));
        let ready =
            |journal: &ChainJournal| with_logs_since(&journal.reader().load(), start).count();
        let known = |journal: &mut ChainJournal, place: usize| {
            let block = Arc::clone(&journal.chain[place]);
            let logs = LogsState::Known(Arc::new(BlockLogs::none(block.id())));
            assert!(journal.set_logs(&block, logs));
        };
        assert_eq!(ready(&journal), 0);
        known(&mut journal, 1);
        assert_eq!(ready(&journal), 0, "the block before is awaited");
        known(&mut journal, 0);
        assert_eq!(ready(&journal), 2);
        let late = journal.reader().tip();
        extend(&mut journal, 2, branch(hash(11, 0), 12, 12, 1));
        assert_eq!(ready(&journal), 5, "up to the block of the other branch");
        let view = journal.reader().load();
        let told = |since: Cursor| -> Vec<bool> {
            let events = with_logs_since(&view, since);
            events.map(|event| event.logs_told(since).is_some()).collect()
        };
        // Block 13 was never told, 12 was.
        assert_eq!(told(start), [true, true, false, false, true]);
        assert_eq!(told(late), [false, false], "what was not told is not taken back");
    }

    #[test]
    fn receipts_are_held_and_counted_beside_logs() {
        let mut journal = begun(BOUNDS);
        extend(&mut journal, 0, branch(hash(10, 0), 11, 12, 0));
        let blocks: Vec<_> = journal.chain.iter().cloned().collect();
        let held = journal.bytes_held;
        let receipts = BlockReceipts::read(blocks[0].id(), b"[]", true, 100).expect("none");
        let bytes = receipts.bytes_held();
        assert!(journal.set_receipts(&blocks[0], PartState::Known(Arc::new(receipts))));
        assert_eq!(journal.bytes_held, held + bytes);
        assert!(!journal.set_receipts(&blocks[0], PartState::Unneeded), "known already");
        assert!(blocks[0].logs().is_none() && blocks[1].receipts().is_none());
        extend(&mut journal, 2, Vec::new());
        assert!(blocks[0].receipts().and_then(PartState::known).is_some());
        assert!(matches!(blocks[1].receipts(), Some(PartState::Unneeded)), "it was removed");
    }

    #[test]
    fn bytes_are_bounded() {
        let bytes_max = 10 * header(id(1, 0), hash(0, 0)).bytes_held();
        let mut journal = begun(StreamBounds { events_max: 1000, bytes_max });
        let start = journal.reader().tip();
        for header in branch(hash(10, 0), 11, 60, 0) {
            extend(&mut journal, 0, vec![header]);
            assert!(journal.bytes_held <= bytes_max);
        }
        let view = journal.reader().load();
        assert!(view.len() > 4 && view.len() < 10, "{}", view.len());
        assert!(view.since(start).is_err());
        assert_eq!(
            journal.publish(Publication { removed: 20, added: Vec::new() }),
            Err(Unlinked::TooDeep)
        );
    }

    /// Reads all events from each place and checks J1; the chain above what is known before them.
    fn check_folds(view: &RingView<ChainEvent>) {
        let oldest = view.oldest().sequence();
        let mut cursor = view.oldest();
        for _ in oldest..=view.tip().sequence() {
            let mut tip: Option<NumberedBlock> = None;
            for (_, event) in view.since(cursor).expect("there") {
                match event {
                    ChainEvent::Began(_) => {}
                    ChainEvent::Added(block) => {
                        let parent = block.header().parent_id();
                        assert!(tip.is_none_or(|tip| tip == parent), "J1: added above the tip");
                    }
                    ChainEvent::Removed(block) => {
                        assert!(tip.is_none_or(|tip| tip == block.id()), "J1: the tip is removed");
                    }
                }
                tip = Some(tip_after(event));
            }
            cursor = cursor.next();
        }
    }

    proptest! {
        #[test]
        fn folding_from_any_place_is_linked(
            steps in prop::collection::vec((0..6_usize, 0..9_u64), 1..30),
            events_max in 1..60_usize,
        ) {
            let mut journal = begun(StreamBounds { events_max, bytes_max: usize::MAX });
            let mut model = vec![id(10, 0)];
            for (step, (removed, added)) in (1..).zip(steps) {
                let removed = removed.min(journal.chain.len());
                model.truncate(model.len() - removed);
                let parent = *model.last().expect("the base stays");
                let first = parent.number.0 + 1;
                let headers = branch(parent.hash, first, parent.number.0 + added, step);
                model.extend(headers.iter().map(|header| header.id));
                extend(&mut journal, removed, headers);
                let view = journal.reader().load();
                check_folds(&view);
                prop_assert_eq!(journal.tip(), model.last().copied());
                prop_assert_eq!(tip_of(&view), model.last().copied());
                prop_assert!(view.len() <= events_max.max(removed + 10));
                for known in &model {
                    let found = journal.hash_at(known.number);
                    let is_above = Some(known.number) >= journal.base().map(|base| base.number);
                    prop_assert_eq!(found, is_above.then_some(known.hash));
                }
                let held: usize = view.iter().map(|(_, event)| event.bytes_held()).sum();
                prop_assert_eq!(journal.bytes_held, held);
            }
        }
    }
}
