//! The parts of a search over many blocks or for many addresses: which is asked for next, how
//! long, and what all of them found, in order. Decides only; `search` asks.
//!
//! Parts begin as long as the widest upstream is known to allow. One that is refused for its
//! size is cut to what the refusal suggests, else in half, and so are those that follow; after
//! [`GROW_AFTER`] that went well the length grows again, up to what is known to be refused, since
//! dense blocks lie together. A part that is refused for its number of addresses is asked for in
//! groups of them, and what the groups found is put together by block and place of the log. The
//! number of calls is bounded, for blocks and groups together: a search that needs more even
//! if all goes well from now on ends at once, at best before it is begun.
//!
//! What is found is taken from the front on, all at the end or piece by piece; a caller that takes
//! it so may say how much may wait behind a part that is not there yet. Where answers are
//! kept, parts are cut at multiples of their length, so that searches that overlap have
//! parts in common.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use wellhead_jsonrpc::raw;
use wellhead_upstream::SizeLimit;

/// Parts in a row that went well, after which the next are longer. Twice that many where growth
/// was refused, up to [`GROW_AFTER_MAX`].
const GROW_AFTER: u32 = 4;
const GROW_AFTER_MAX: u32 = 64;

/// Why a search cannot be made in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// It needs more calls than it may make.
    TooManyCalls {
        /// Blocks that one call may go over here.
        span: u64,
        /// Addresses that one call may name here.
        addresses: usize,
    },
    /// A single block is refused for its size.
    OneBlock,
    /// The filter is refused for its size, and has not two addresses to divide it by.
    OneAddress,
    /// What was found is more than may be held.
    TooManyBytes,
    /// There is no room to put groups together.
    NoRoom,
    /// An upstream answered with something other than a list.
    NoList,
    /// An upstream answered with something other than logs with their block and place.
    NoLogs,
}

/// What is searched: blocks, both ends included, and addresses by their place in the filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) addresses: Range<usize>,
}

impl Tile {
    fn blocks(&self) -> u64 {
        (self.to - self.from).saturating_add(1)
    }
}

/// How much is asked for at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartSize {
    /// Blocks at first, and at most.
    pub(crate) blocks: SizeLimit,
    pub(crate) addresses: usize,
}

/// What a search may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartBounds {
    pub(crate) calls_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) cut: Cut,
}

/// One search.
#[derive(Debug)]
pub(crate) struct Parts {
    /// By their first block; they follow each other without a gap.
    parts: BTreeMap<u64, SearchPart>,
    span: u64,
    span_max: u64,
    addresses_at_once: usize,
    went_well: u32,
    grow_after: u32,
    has_grown: bool,
    asked: u64,
    calls_left: u64,
    was_refused: bool,
    bytes_max: usize,
    cut: Cut,
    list: List,
}

/// Where parts are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// As few as there can be.
    Anywhere,
    /// At multiples of their length, which makes one more at most.
    AtMultiples,
}

/// How much of the list was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Unopened,
    Empty,
    Begun,
    Closed,
}

#[derive(Debug)]
struct SearchPart {
    tile: Tile,
    state: State,
}

/// A part that was divided has no state of its own: it is found when all of its own are.
#[derive(Debug)]
enum State {
    Waiting,
    /// Under this number.
    Asked(u64),
    Found(Bytes),
    /// One after the other.
    ByBlock(Vec<SearchPart>),
    /// Groups of addresses, over the same blocks.
    ByAddress(Vec<SearchPart>),
}

impl Parts {
    /// A search for `whole`, in parts of `size` at first.
    pub(crate) fn new(whole: Tile, size: PartSize, bounds: PartBounds) -> Result<Self, Stuck> {
        let span = size.blocks.at_once.max(1);
        let mut parts = Self {
            parts: [(whole.from, SearchPart { tile: whole, state: State::Waiting })].into(),
            span,
            span_max: size.blocks.at_most.max(span),
            addresses_at_once: size.addresses.max(1),
            went_well: 0,
            grow_after: GROW_AFTER,
            has_grown: false,
            asked: 0,
            calls_left: bounds.calls_max as u64,
            was_refused: false,
            bytes_max: bounds.bytes_max,
            cut: bounds.cut,
            list: List::Unopened,
        };
        if parts.check_calls().is_err() {
            parts.cut = Cut::Anywhere;
        }
        parts.check_calls()?;
        Ok(parts)
    }

    /// The next part to ask for and its number; `None` while all are asked for or found, and
    /// while more than `behind_max` bytes wait behind the first that is not.
    pub(crate) fn next(&mut self, behind_max: usize) -> Result<Option<(u64, Tile)>, Stuck> {
        self.check_calls()?;
        let (first, held) = (self.parts.keys().next().copied(), self.held());
        let Some((from, part)) = self.parts.iter_mut().find(|(_, part)| part.is_waiting()) else {
            return Ok(None);
        };
        let from = *from;
        if Some(from) != first && held > behind_max {
            return Ok(None);
        }
        let mut behind = None;
        if matches!(part.state, State::Waiting) {
            let last = match self.cut {
                Cut::Anywhere => from.saturating_add(self.span - 1),
                Cut::AtMultiples => (from - from % self.span).saturating_add(self.span - 1),
            };
            if last < part.tile.to {
                behind = Some(Tile { from: last + 1, ..part.tile.clone() });
                part.tile.to = last;
            }
        }
        self.asked += 1;
        let tile = part.ask(self.asked, self.addresses_at_once);
        if let Some(tile) = behind {
            self.parts.insert(tile.from, SearchPart { tile, state: State::Waiting });
        }
        self.calls_left = self.calls_left.saturating_sub(1);
        Ok(tile.map(|tile| (self.asked, tile)))
    }

    /// Part `number` found `list`, raw JSON. Where that ends a part in groups, `hold` makes room
    /// for what they found together.
    pub(crate) fn found(
        &mut self,
        number: u64,
        list: Bytes,
        hold: impl Fn(Vec<u8>) -> Option<Bytes>,
    ) -> Result<(), Stuck> {
        if !(list.starts_with(b"[") && list.ends_with(b"]")) {
            return Err(Stuck::NoList);
        }
        if self.held() + list.len() > self.bytes_max {
            return Err(Stuck::TooManyBytes);
        }
        let found = State::Found(list);
        let mut parts = self.parts.values_mut();
        let Some(part) = parts.find_map(|part| part.asked(number).is_some().then_some(part)) else {
            return Ok(());
        };
        if let Some(leaf) = part.asked(number) {
            leaf.state = found;
        }
        part.settle(&hold)?;
        self.went_well += 1;
        if self.went_well >= self.grow_after {
            self.went_well = 0;
            let limit = SizeLimit { at_once: self.span, at_most: self.span_max };
            let grown = limit.grown(self.span);
            self.has_grown |= grown > self.span;
            self.span = grown;
        }
        Ok(())
    }

    /// Part `number` was refused for its size; `hint`: this number of blocks would be answered.
    /// More than `at_most` never would, if that is known.
    pub(crate) fn too_large(
        &mut self,
        number: u64,
        hint: Option<u64>,
        at_most: Option<u64>,
    ) -> Result<(), Stuck> {
        self.went_well = 0;
        self.was_refused = true;
        if self.has_grown {
            // Growing did not pay: these blocks are all alike.
            self.has_grown = false;
            self.grow_after = (self.grow_after * 2).min(GROW_AFTER_MAX);
        }
        let calls_left = self.calls_left;
        let Some((is_whole, leaf)) = self.asked(number) else { return Ok(()) };
        let len = leaf.tile.blocks();
        if len == 1 {
            let Range { start, end } = leaf.tile.addresses;
            if end - start < 2 {
                return Err(Stuck::OneBlock);
            }
            leaf.group((end - start).div_ceil(2));
            return Ok(());
        }
        // A hint may be the very range that was asked for.
        let shorter = hint.filter(|hint| (1..len).contains(hint)).unwrap_or(len / 2);
        leaf.state = State::Waiting;
        let is_affordable = len.div_ceil(shorter) <= calls_left;
        if !is_whole && is_affordable {
            leaf.state = State::ByBlock(leaf.cut(shorter));
        }
        let addresses = leaf.tile.addresses.len();
        self.span = self.span.min(shorter);
        self.span_max = self.span_max.min(at_most.unwrap_or(u64::MAX)).max(self.span);
        match is_whole || is_affordable {
            true => Ok(()),
            false => Err(Stuck::TooManyCalls { span: shorter, addresses }),
        }
    }

    /// Part `number` was refused for its number of addresses; `hint`: this number of them would
    /// be answered.
    pub(crate) fn filter_too_large(&mut self, number: u64, hint: Option<u64>) -> Result<(), Stuck> {
        self.was_refused = true;
        let Some((_, leaf)) = self.asked(number) else { return Ok(()) };
        let len = leaf.tile.addresses.len();
        if len < 2 {
            return Err(Stuck::OneAddress);
        }
        leaf.state = State::Waiting;
        let hint = hint.and_then(|hint| usize::try_from(hint).ok());
        let fewer = hint.filter(|hint| (1..len).contains(hint)).unwrap_or(len / 2);
        self.addresses_at_once = self.addresses_at_once.min(fewer);
        Ok(())
    }

    /// Part `number` is to be asked for again.
    pub(crate) fn again(&mut self, number: u64) {
        if let Some((_, leaf)) = self.asked(number) {
            leaf.state = State::Waiting;
        }
    }

    /// How many blocks part `number` goes over.
    pub(crate) fn blocks(&mut self, number: u64) -> Option<u64> {
        self.asked(number).map(|(_, part)| part.tile.blocks())
    }

    /// The part that was asked for under this number, and whether it is a part of the search
    /// itself, not of another part.
    fn asked(&mut self, number: u64) -> Option<(bool, &mut SearchPart)> {
        self.parts.values_mut().find_map(|part| {
            let is_whole = matches!(part.state, State::Asked(_));
            Some((is_whole, part.asked(number)?))
        })
    }

    /// Whether everything was found.
    pub(crate) fn is_complete(&self) -> bool {
        self.parts.values().all(|part| matches!(part.state, State::Found(_)))
    }

    /// Whether everything was taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.list == List::Closed
    }

    /// Bytes that were found and not taken yet.
    pub(crate) fn held(&self) -> usize {
        self.parts.values().map(SearchPart::held).sum()
    }

    /// Whether there is something to take.
    pub(crate) fn is_begun(&self) -> bool {
        self.parts.values().next().is_some_and(|part| matches!(part.state, State::Found(_)))
    }

    /// Takes what was found up to the first part that is not, in the order of the blocks, as
    /// pieces of one list. What is taken may be held no longer than it takes to send it: there
    /// is room for as much again.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        if self.list == List::Unopened {
            self.list = List::Empty;
            pieces.push(Bytes::from_static(b"["));
        }
        while self.is_begun() {
            let Some((_, SearchPart { state: State::Found(list), .. })) = self.parts.pop_first()
            else {
                break;
            };
            let inner = list.slice(1..list.len() - 1);
            if inner.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if self.list == List::Begun {
                pieces.push(Bytes::from_static(b","));
            }
            self.list = List::Begun;
            pieces.push(inner);
        }
        if self.parts.is_empty() && self.list != List::Closed {
            self.list = List::Closed;
            pieces.push(Bytes::from_static(b"]"));
        }
        pieces
    }

    /// How many calls may still be made.
    pub(crate) fn afford(&mut self, calls: u64) {
        self.calls_left = calls;
    }

    /// Whether a part was refused for its size.
    pub(crate) fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// Calls that what waits takes at least.
    pub(crate) fn needed(&self) -> u64 {
        let calls = |tile: &Tile| {
            let blocks = match self.cut {
                Cut::Anywhere => (tile.to - tile.from) / self.span_max + 1,
                Cut::AtMultiples => tile.to / self.span_max - tile.from / self.span_max + 1,
            };
            let groups = tile.addresses.len().div_ceil(self.addresses_at_once).max(1);
            blocks.saturating_mul(groups as u64)
        };
        let each = self.parts.values().map(|part| part.waiting(&calls));
        each.fold(0, u64::saturating_add)
    }

    /// What a search is told that has no call left.
    pub(crate) fn too_many_calls(&self) -> Stuck {
        Stuck::TooManyCalls { span: self.span, addresses: self.addresses_at_once }
    }

    fn check_calls(&self) -> Result<(), Stuck> {
        match self.needed() <= self.calls_left {
            true => Ok(()),
            false => Err(self.too_many_calls()),
        }
    }
}

impl SearchPart {
    fn parts(&self) -> &[Self] {
        match &self.state {
            State::ByBlock(parts) | State::ByAddress(parts) => parts,
            State::Waiting | State::Asked(_) | State::Found(_) => &[],
        }
    }

    fn parts_mut(&mut self) -> &mut [Self] {
        match &mut self.state {
            State::ByBlock(parts) | State::ByAddress(parts) => parts,
            State::Waiting | State::Asked(_) | State::Found(_) => &mut [],
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting) || self.parts().iter().any(Self::is_waiting)
    }

    /// What all that waits sums up to.
    fn waiting(&self, calls: &impl Fn(&Tile) -> u64) -> u64 {
        let own = if matches!(self.state, State::Waiting) { calls(&self.tile) } else { 0 };
        self.parts().iter().map(|part| part.waiting(calls)).fold(own, u64::saturating_add)
    }

    fn held(&self) -> usize {
        let own = self.list().map_or(0, Bytes::len);
        own + self.parts().iter().map(Self::held).sum::<usize>()
    }

    /// The first that waits, asked for under this number, for `addresses_max` at most.
    fn ask(&mut self, number: u64, addresses_max: usize) -> Option<Tile> {
        if matches!(self.state, State::Waiting) {
            if self.tile.addresses.len() <= addresses_max {
                self.state = State::Asked(number);
                return Some(self.tile.clone());
            }
            self.group(addresses_max);
        }
        let waiting = self.parts_mut().iter_mut().find(|part| part.is_waiting());
        waiting?.ask(number, addresses_max)
    }

    fn asked(&mut self, number: u64) -> Option<&mut Self> {
        if matches!(self.state, State::Asked(own) if own == number) {
            return Some(self);
        }
        self.parts_mut().iter_mut().find_map(|part| part.asked(number))
    }

    /// Divides it into groups of at most this number of addresses, about as large as each other.
    fn group(&mut self, addresses_max: usize) {
        let Range { start, end } = self.tile.addresses;
        let len = end - start;
        let size = len.div_ceil(len.div_ceil(addresses_max.max(1)).max(1)).max(1);
        let groups = (start..end).step_by(size).map(|first| Self {
            tile: Tile { addresses: first..end.min(first + size), ..self.tile.clone() },
            state: State::Waiting,
        });
        self.state = State::ByAddress(groups.collect());
    }

    /// Its blocks in parts of this length.
    fn cut(&self, span: u64) -> Vec<Self> {
        let Tile { from, to, .. } = self.tile;
        let starts = (0..self.tile.blocks().div_ceil(span)).map(|place| from + place * span);
        let part = |from: u64| Self {
            tile: Tile { from, to: to.min(from.saturating_add(span - 1)), ..self.tile.clone() },
            state: State::Waiting,
        };
        starts.map(part).collect()
    }

    /// Puts together what is found of all that it was divided into.
    fn settle(&mut self, hold: &impl Fn(Vec<u8>) -> Option<Bytes>) -> Result<(), Stuck> {
        for part in self.parts_mut() {
            part.settle(hold)?;
        }
        let lists: Option<Vec<&Bytes>> = self.parts().iter().map(Self::list).collect();
        let Some(lists) = lists.filter(|lists| !lists.is_empty()) else { return Ok(()) };
        let joined = match &self.state {
            State::ByBlock(_) => Ok(joined(&lists)),
            State::ByAddress(_) => merged(&lists),
            State::Waiting | State::Asked(_) | State::Found(_) => return Ok(()),
        };
        match joined {
            Ok(list) => self.state = State::Found(hold(list).ok_or(Stuck::NoRoom)?),
            Err(Apart::NoLogs) => return Err(Stuck::NoLogs),
            // They saw different branches: each is asked for again, as long as there are calls.
            Err(Apart::Branches) => {
                self.parts_mut().iter_mut().for_each(|part| part.state = State::Waiting);
            }
        }
        Ok(())
    }

    fn list(&self) -> Option<&Bytes> {
        match &self.state {
            State::Found(list) => Some(list),
            State::Waiting | State::Asked(_) | State::ByBlock(_) | State::ByAddress(_) => None,
        }
    }
}

/// Why lists cannot be put together.
#[derive(Debug, PartialEq, Eq)]
enum Apart {
    NoLogs,
    Branches,
}

/// The lists one after the other, as one.
fn joined(lists: &[&Bytes]) -> Vec<u8> {
    let inner = lists.iter().map(|list| raw::trim(&list[1..list.len() - 1]));
    written(inner.filter(|inner| !inner.is_empty()))
}

/// The logs of all lists, ordered by their block and their place in it, each once.
fn merged(lists: &[&Bytes]) -> Result<Vec<u8>, Apart> {
    let mut logs = Vec::new();
    for log in lists.iter().flat_map(|list| raw::items(list)) {
        let number = |key| raw::field(log, key).and_then(raw::quantity).ok_or(Apart::NoLogs);
        let place = (number("blockNumber")?, number("logIndex")?);
        logs.push((place, raw::field(log, "blockHash").unwrap_or_default(), log));
    }
    logs.sort_by_key(|(place, ..)| *place);
    let mut pairs = logs.iter().zip(logs.iter().skip(1));
    let is_split = |(((one, _), hash, _), ((other, _), others, _)): (&Log<'_>, &Log<'_>)| {
        one == other && !hash.eq_ignore_ascii_case(others)
    };
    if pairs.any(is_split) {
        return Err(Apart::Branches);
    }
    logs.dedup_by_key(|(place, ..)| *place);
    Ok(written(logs.into_iter().map(|(_, _, log)| log)))
}

/// A log's block and place in it, its block's hash, and itself.
type Log<'a> = ((u64, u64), &'a [u8], &'a [u8]);

fn written<'a>(items: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = vec![b'['];
    for item in items {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(item);
    }
    out.push(b']');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: usize = 20;

    /// An upstream that gives a list of the blocks of each part, if they are at most `most`;
    /// `asked` are the parts that it sees.
    fn search(from: u64, to: u64, span: u64, most: impl Fn(u64, u64) -> u64) -> (String, String) {
        search_cut(Cut::Anywhere, (from, to), span, most)
    }

    fn parts(
        (from, to): (u64, u64),
        span: u64,
        (bytes_max, cut): (usize, Cut),
    ) -> Result<Parts, Stuck> {
        let blocks = SizeLimit { at_once: span, at_most: span };
        let bounds = PartBounds { calls_max: CALLS, bytes_max, cut };
        Parts::new(Tile { from, to, addresses: 0..0 }, PartSize { blocks, addresses: 1 }, bounds)
    }

    fn room(list: Vec<u8>) -> Option<Bytes> {
        Some(list.into())
    }

    fn search_cut(
        cut: Cut,
        (from, to): (u64, u64),
        span: u64,
        most: impl Fn(u64, u64) -> u64,
    ) -> (String, String) {
        let mut asked = Vec::new();
        let end = (|| {
            let mut parts = parts((from, to), span, (1000, cut))?;
            while let Some((number, Tile { from, to, .. })) = parts.next(usize::MAX)? {
                asked.push(format!("{from}-{to}"));
                if to - from < most(from, to) {
                    let list: Vec<String> = (from..=to).map(|block| block.to_string()).collect();
                    parts.found(number, Bytes::from(format!("[{}]", list.join(","))), room)?;
                } else {
                    parts.too_large(number, None, None)?;
                }
            }
            assert!(parts.is_complete());
            Ok(parts.take())
        })();
        let said = end.map(|pieces| String::from_utf8(pieces.concat()).expect("ASCII"));
        (asked.join(" "), said.unwrap_or_else(|stuck: Stuck| format!("{stuck:?}")))
    }

    #[track_caller]
    fn check(span: u64, most: u64, asked: &str) {
        let (was_asked, said) = search(1, 10, span, |_, _| most);
        assert_eq!(was_asked, asked);
        assert_eq!(said, "[1,2,3,4,5,6,7,8,9,10]");
    }

    #[test]
    fn parts_are_as_long_as_is_allowed() {
        check(10, 10, "1-10");
        check(4, 4, "1-4 5-8 9-10");
        check(1, 1, "1-1 2-2 3-3 4-4 5-5 6-6 7-7 8-8 9-9 10-10");
    }

    #[test]
    fn what_is_refused_is_cut_in_half_and_so_is_what_follows() {
        check(10, 5, "1-10 1-5 6-10");
        check(10, 4, "1-10 1-5 1-2 3-4 5-5 6-7 8-10");
    }

    #[test]
    fn dense_blocks_do_not_slow_down_the_rest() {
        let (asked, said) = search(1, 40, 16, |from, _| if from < 5 { 2 } else { 16 });
        assert_eq!(asked, "1-16 1-8 1-4 1-2 3-4 5-6 7-8 9-12 13-16 17-20 21-24 25-32 33-40");
        assert!(said.starts_with("[1,2,") && said.ends_with(",40]"), "{said}");
    }

    /// The next part as `number:from-to`.
    fn next(parts: &mut Parts, behind_max: usize) -> String {
        match parts.next(behind_max) {
            Ok(Some((number, Tile { from, to, .. }))) => format!("{number}:{from}-{to}"),
            Ok(None) => "-".to_owned(),
            Err(stuck) => format!("{stuck:?}"),
        }
    }

    #[test]
    fn a_hint_counts_only_when_it_is_shorter() {
        let mut parts = parts((1, 100), 100, (1000, Cut::Anywhere)).expect("few");
        let next = |parts: &mut Parts| next(parts, usize::MAX);
        assert_eq!(next(&mut parts), "1:1-100");
        parts.too_large(1, Some(100), None).expect("half of it");
        assert_eq!(next(&mut parts), "2:1-50");
        parts.too_large(2, Some(30), None).expect("less");
        assert_eq!(next(&mut parts), "3:1-30");
        assert_eq!(next(&mut parts), "4:31-50");
        assert_eq!(next(&mut parts), "5:51-80", "what comes later stays in its place");
    }

    #[test]
    fn hopeless_searches_end_early() {
        let (asked, said) = search(0, u64::MAX - 1, 2000, |_, _| 2000);
        assert_eq!(
            (asked.as_str(), said.as_str()),
            ("", "TooManyCalls { span: 2000, addresses: 1 }")
        );
        let (_, said) = search(1, 10, 10, |_, _| 0);
        assert_eq!(said, "OneBlock");
        let (asked, said) = search(1, 1000, 1000, |_, _| 10);
        assert!(said.starts_with("TooManyCalls"), "{said}");
        assert!(asked.split_whitespace().count() <= CALLS, "{asked}");
    }

    #[test]
    fn only_lists_and_only_so_much() {
        let mut parts = parts((1, 2), 1, (8, Cut::Anywhere)).expect("few");
        assert_eq!(next(&mut parts, 0), "1:1-1");
        let found =
            |parts: &mut Parts, number, list| parts.found(number, Bytes::from_static(list), room);
        assert_eq!(found(&mut parts, 1, b"null"), Err(Stuck::NoList));
        assert_eq!(found(&mut parts, 1, b"[1234]"), Ok(()));
        assert_eq!(next(&mut parts, 8), "2:2-2");
        assert_eq!(found(&mut parts, 2, b"[56]"), Err(Stuck::TooManyBytes));
        assert_eq!(found(&mut parts, 2, b"[]"), Ok(()));
        assert_eq!(parts.take().concat(), b"[1234]");
        assert!(parts.is_taken());
    }

    #[test]
    fn cuts_at_multiples_are_the_same_for_searches_that_overlap() {
        let asked = |from, to| search_cut(Cut::AtMultiples, (from, to), 4, |_, _| 4).0;
        assert_eq!(asked(2, 13), "2-3 4-7 8-11 12-13");
        assert_eq!(asked(4, 15), "4-7 8-11 12-15");
        assert_eq!(asked(5, 6), "5-6");
        // One more part than there may be calls: then as few as there can be.
        let most = (CALLS * 4) as u64;
        assert!(asked(3, most + 2).starts_with("3-6 7-10 "));
        assert!(asked(4, most + 3).starts_with("4-7 8-11 "));
    }

    #[test]
    fn what_is_found_is_taken_from_the_front_on() {
        let mut parts = parts((1, 4), 1, (12, Cut::Anywhere)).expect("few");
        for block in 1..=3 {
            assert_eq!(next(&mut parts, 5), format!("{block}:{block}-{block}"));
        }
        let found = |parts: &mut Parts, number, list| {
            parts.found(number, Bytes::from_static(list), room).expect("a list");
        };
        found(&mut parts, 3, b"[333]");
        found(&mut parts, 2, b"[ ]");
        assert!(!parts.is_begun());
        assert_eq!(parts.take(), ["["], "what comes first is not known yet");
        let held = (next(&mut parts, 5), parts.held());
        assert_eq!(held, ("-".to_owned(), 8), "enough waits behind the first");
        parts.again(1);
        assert_eq!(next(&mut parts, 5), "4:1-1", "which is what is asked for again");
        found(&mut parts, 4, b"[1]");
        assert_eq!(parts.take().concat(), b"1,333");
        assert_eq!((next(&mut parts, 5), parts.held()), ("5:4-4".to_owned(), 0));
        found(&mut parts, 5, b"[44,4444]");
        assert!(!parts.is_taken());
        assert_eq!(parts.take().concat(), b",44,4444]");
        assert!(parts.is_taken() && parts.take().is_empty());
    }

    /// A log of address `address` in each block, `address` also its place there.
    fn log(block: u64, address: usize) -> String {
        format!(
            r#"{{"blockNumber":"0x{block:x}","logIndex":"0x{address:x}","blockHash":"0x{block:x}"}}"#
        )
    }

    /// An upstream that takes `most` blocks and `addresses` of them at once; what it is asked,
    /// and the blocks and places of the logs that are found, in their order.
    fn search_tiles(
        (to, addresses): (u64, usize),
        at_once: (u64, usize),
        most: (u64, usize),
    ) -> (String, String) {
        let mut asked = Vec::new();
        let end = (|| {
            let whole = Tile { from: 1, to, addresses: 0..addresses };
            let blocks = SizeLimit { at_once: at_once.0, at_most: to };
            let bounds = PartBounds { calls_max: CALLS, bytes_max: 1 << 20, cut: Cut::Anywhere };
            let mut parts = Parts::new(whole, PartSize { blocks, addresses: at_once.1 }, bounds)?;
            while let Some((number, tile)) = parts.next(usize::MAX)? {
                let Range { start, end } = tile.addresses;
                asked.push(format!("{}-{}:{start}-{}", tile.from, tile.to, end - 1));
                if end - start > most.1 {
                    parts.filter_too_large(number, None)?;
                } else if tile.to - tile.from >= most.0 {
                    parts.too_large(number, None, None)?;
                } else {
                    let blocks = tile.from..=tile.to;
                    let logs = blocks.flat_map(|block| (start..end).map(move |it| log(block, it)));
                    let list = format!("[{}]", logs.collect::<Vec<_>>().join(","));
                    parts.found(number, list.into(), room)?;
                }
            }
            assert!(parts.is_complete());
            Ok(parts.take())
        })();
        let said = end.map(|pieces| {
            let list = pieces.concat();
            let number = |log, key| raw::field(log, key).and_then(raw::quantity).expect("one");
            let place = |log| format!("{}.{}", number(log, "blockNumber"), number(log, "logIndex"));
            raw::items(&list).map(place).collect::<Vec<_>>().join(" ")
        });
        (asked.join(" "), said.unwrap_or_else(|stuck: Stuck| format!("{stuck:?}")))
    }

    #[track_caller]
    fn check_tiles(whole: (u64, usize), at_once: (u64, usize), most: (u64, usize), asked: &str) {
        let (was_asked, said) = search_tiles(whole, at_once, most);
        assert_eq!(was_asked, asked);
        let all = (1..=whole.0).flat_map(|block| (0..whole.1).map(move |it| (block, it)));
        let all: Vec<_> = all.map(|(block, address)| format!("{block}.{address}")).collect();
        assert_eq!(said, all.join(" "), "in the order of blocks and places");
    }

    #[test]
    fn addresses_are_asked_for_in_groups() {
        check_tiles((9, 4), (9, 4), (9, 4), "1-9:0-3");
        check_tiles((9, 4), (9, 4), (9, 2), "1-9:0-3 1-9:0-1 1-9:2-3");
        check_tiles((9, 5), (9, 5), (9, 2), "1-9:0-4 1-9:0-1 1-9:2-3 1-9:4-4");
        check_tiles((9, 4), (9, 2), (9, 2), "1-9:0-1 1-9:2-3");
        check_tiles((1, 3), (1, 3), (1, 1), "1-1:0-2 1-1:0-0 1-1:1-1 1-1:2-2");
    }

    #[test]
    fn blocks_and_addresses_are_divided_together() {
        check_tiles((4, 4), (2, 2), (2, 2), "1-2:0-1 1-2:2-3 3-4:0-1 3-4:2-3");
        check_tiles(
            (4, 2),
            (4, 2),
            (2, 1),
            "1-4:0-1 1-4:0-0 1-2:0-0 3-4:0-0 1-4:1-1 1-2:1-1 3-4:1-1",
        );
        // A block that holds too much is asked for in groups, too.
        check_tiles((1, 4), (1, 4), (1, 4), "1-1:0-3");
        let (asked, said) = search_tiles((1, 4), (1, 4), (0, 4));
        assert_eq!((asked.as_str(), said.as_str()), ("1-1:0-3 1-1:0-1 1-1:0-0", "OneBlock"));
    }

    #[test]
    fn all_calls_together_are_bounded() {
        let (asked, said) = search_tiles((5, 5), (1, 1), (1, 1));
        assert!(said.starts_with("1.0 1.1") || said.starts_with("TooMany"), "{said}");
        assert!(asked.split_whitespace().count() <= CALLS, "{asked}");
        let (asked, said) = search_tiles((5, 5), (5, 5), (1, 1));
        assert!(said.starts_with("TooManyCalls"), "{said}");
        assert!(asked.split_whitespace().count() <= CALLS, "{asked}");
        let (_, said) = search_tiles((5, 1), (5, 1), (5, 0));
        assert_eq!(said, "OneAddress");
    }

    fn merge(lists: &[&str]) -> Result<String, Apart> {
        let lists: Vec<Bytes> =
            lists.iter().map(|list| Bytes::copy_from_slice(list.as_bytes())).collect();
        let merged = merged(&lists.iter().collect::<Vec<_>>());
        merged.map(|list| String::from_utf8(list).expect("text"))
    }

    #[test]
    fn groups_are_put_together_by_block_and_place() {
        let (a, b, c, d) = (log(1, 5), log(1, 12), log(2, 0), log(16, 1));
        let all = format!("[{a},{b},{c},{d}]");
        let merged = merge(&[&format!("[{b} , {d}]"), " [ ] ", &format!("[{a},{c}]")]);
        assert_eq!(merged, Ok(all.clone()));
        let merged = merge(&[&format!("[{a},{b}]"), &format!("[{b},{c},{d}]")]);
        assert_eq!(merged, Ok(all), "none twice");
        assert_eq!(merge(&["[]", "[]"]), Ok("[]".to_owned()));
        assert_eq!(merge(&["[1]", "[]"]), Err(Apart::NoLogs));
        let other = log(1, 6).replace("Hash\":\"0x1", "Hash\":\"0x2");
        assert_eq!(merge(&[&format!("[{a}]"), &format!("[{other}]")]), Err(Apart::Branches));
    }

    #[test]
    fn groups_that_saw_two_branches_are_asked_for_again() {
        let blocks = SizeLimit { at_once: 9, at_most: 9 };
        let bounds = PartBounds { calls_max: CALLS, bytes_max: 1000, cut: Cut::Anywhere };
        let whole = Tile { from: 1, to: 9, addresses: 0..2 };
        let mut parts = Parts::new(whole, PartSize { blocks, addresses: 1 }, bounds).expect("few");
        let found = |parts: &mut Parts, number, log: String| {
            assert_eq!(next(parts, 0), format!("{number}:1-9"));
            parts.found(number, format!("[{log}]").into(), room).expect("a list");
        };
        found(&mut parts, 1, log(1, 0));
        found(&mut parts, 2, log(1, 1).replace("Hash\":\"0x1", "Hash\":\"0x2"));
        assert!(!parts.is_complete());
        found(&mut parts, 3, log(1, 0));
        found(&mut parts, 4, log(1, 1));
        assert!(parts.is_complete());
        assert_eq!(parts.take().concat(), format!("[{},{}]", log(1, 0), log(1, 1)).into_bytes());
    }

    #[test]
    fn growth_that_is_refused_is_tried_less_often() {
        let (asked, _) = search(1, 60, 10, |_, _| 3);
        let refused = |part: &str| {
            let (from, to) = part.split_once('-').expect("a range");
            to.parse::<u64>().expect("a number") - from.parse::<u64>().expect("a number") >= 3
        };
        let refused = asked.split_whitespace().filter(|part| refused(part)).count();
        assert!(refused <= 6, "{asked}");
    }
}
