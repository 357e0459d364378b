//! The parts of a search over many blocks: which is asked for next, how long, and what all
//! of them found, in order. Decides only; who asks is `search`.
//!
//! Parts begin as long as the widest upstream allows. One that is refused for its size is
//! cut to what the refusal suggests, else in half, and so are those that follow; after
//! [`GROW_AFTER`] that went well the length doubles again, up to where it began, since
//! dense blocks lie together. The number of calls is bounded: a search that needs more even
//! if all goes well from now on ends at once, at best before it is begun.
//!
//! What is found is taken from the front on, all at the end or piece by piece; whoever takes
//! it so may say how much may wait behind a part that is not there yet. Where answers are
//! kept, parts are cut at multiples of their length, so that searches that overlap have
//! parts in common.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Parts in a row that went well, after which the next are twice as long.
const GROW_AFTER: u32 = 4;

/// Why a search cannot be made in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// It needs more calls than it may make.
    TooManyCalls {
        /// Blocks that one call may go over here.
        span: u64,
    },
    /// A single block is refused for its size.
    OneBlock,
    /// What was found is more than may be held.
    TooManyBytes,
    /// An upstream answered with something other than a list.
    NoList,
}

/// One search.
#[derive(Debug)]
pub(crate) struct Parts {
    /// By their first block; they follow each other without a gap.
    parts: BTreeMap<u64, Part>,
    span: u64,
    span_max: u64,
    went_well: u32,
    calls_left: u64,
    bytes_left: usize,
    /// What was found and not taken yet.
    held: usize,
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
struct Part {
    to: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting,
    Asked,
    Found(Bytes),
}

impl Parts {
    /// A search from `from` to `to`, both included, in parts of `span` blocks at first.
    pub(crate) fn new(
        from: u64,
        to: u64,
        span: u64,
        calls_max: usize,
        bytes_max: usize,
        cut: Cut,
    ) -> Result<Self, Stuck> {
        let span = span.max(1);
        let mut parts = Self {
            parts: [(from, Part { to, state: State::Waiting })].into(),
            span,
            span_max: span,
            went_well: 0,
            calls_left: calls_max as u64,
            bytes_left: bytes_max,
            held: 0,
            cut,
            list: List::Unopened,
        };
        if parts.check_calls().is_err() {
            parts.cut = Cut::Anywhere;
        }
        parts.check_calls()?;
        Ok(parts)
    }

    /// The next part to ask for; `None` while all are asked for or found, and while more than
    /// `behind_max` bytes wait behind the first that is not.
    pub(crate) fn next(&mut self, behind_max: usize) -> Result<Option<(u64, u64)>, Stuck> {
        self.check_calls()?;
        let is_waiting = |part: &Part| matches!(part.state, State::Waiting);
        let first = self.parts.keys().next().copied();
        let Some((from, part)) = self.parts.iter_mut().find(|(_, part)| is_waiting(part)) else {
            return Ok(None);
        };
        let (from, end) = (*from, part.to);
        if Some(from) != first && self.held > behind_max {
            return Ok(None);
        }
        let last = match self.cut {
            Cut::Anywhere => from.saturating_add(self.span - 1),
            Cut::AtMultiples => (from - from % self.span).saturating_add(self.span - 1),
        };
        let to = end.min(last);
        *part = Part { to, state: State::Asked };
        if to < end {
            self.parts.insert(to + 1, Part { to: end, state: State::Waiting });
        }
        self.calls_left = self.calls_left.saturating_sub(1);
        Ok(Some((from, to)))
    }

    /// The part that begins at `from` found `list`, raw JSON.
    pub(crate) fn found(&mut self, from: u64, list: Bytes) -> Result<(), Stuck> {
        if !(list.starts_with(b"[") && list.ends_with(b"]")) {
            return Err(Stuck::NoList);
        }
        self.bytes_left = self.bytes_left.checked_sub(list.len()).ok_or(Stuck::TooManyBytes)?;
        self.held += list.len();
        if let Some(part) = self.parts.get_mut(&from) {
            part.state = State::Found(list);
        }
        self.went_well += 1;
        if self.went_well >= GROW_AFTER {
            self.went_well = 0;
            self.span = self.span.saturating_mul(2).min(self.span_max);
        }
        Ok(())
    }

    /// The part that begins at `from` was refused for its size; `hint`: so many blocks
    /// would be answered.
    pub(crate) fn too_large(&mut self, from: u64, hint: Option<u64>) -> Result<(), Stuck> {
        let Some(part) = self.parts.get_mut(&from) else { return Ok(()) };
        let len = part.to - from + 1;
        if len == 1 {
            return Err(Stuck::OneBlock);
        }
        part.state = State::Waiting;
        // A hint may be the very range that was asked for.
        let shorter = hint.filter(|hint| (1..len).contains(hint)).unwrap_or(len / 2);
        self.span = self.span.min(shorter);
        self.went_well = 0;
        Ok(())
    }

    /// The part that begins at `from` is to be asked for again.
    pub(crate) fn again(&mut self, from: u64) {
        if let Some(part) = self.parts.get_mut(&from) {
            part.state = State::Waiting;
        }
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
        self.held
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
            let Some((_, Part { state: State::Found(list), .. })) = self.parts.pop_first() else {
                break;
            };
            self.held -= list.len();
            self.bytes_left += list.len();
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

    fn check_calls(&self) -> Result<(), Stuck> {
        let waiting = self.parts.iter().filter(|(_, part)| matches!(part.state, State::Waiting));
        let calls = waiting
            .map(|(from, part)| match self.cut {
                Cut::Anywhere => (part.to - from) / self.span_max + 1,
                Cut::AtMultiples => part.to / self.span_max - from / self.span_max + 1,
            })
            .fold(0, u64::saturating_add);
        match calls <= self.calls_left {
            true => Ok(()),
            false => Err(Stuck::TooManyCalls { span: self.span }),
        }
    }
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

    fn search_cut(
        cut: Cut,
        (from, to): (u64, u64),
        span: u64,
        most: impl Fn(u64, u64) -> u64,
    ) -> (String, String) {
        let mut asked = Vec::new();
        let end = (|| {
            let mut parts = Parts::new(from, to, span, CALLS, 1000, cut)?;
            while let Some((from, to)) = parts.next(usize::MAX)? {
                asked.push(format!("{from}-{to}"));
                if to - from < most(from, to) {
                    let list: Vec<String> = (from..=to).map(|block| block.to_string()).collect();
                    parts.found(from, Bytes::from(format!("[{}]", list.join(","))))?;
                } else {
                    parts.too_large(from, None)?;
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

    #[test]
    fn a_hint_counts_only_when_it_is_shorter() {
        let mut parts = Parts::new(1, 100, 100, CALLS, 1000, Cut::Anywhere).expect("few");
        let next = |parts: &mut Parts| parts.next(usize::MAX);
        assert_eq!(next(&mut parts), Ok(Some((1, 100))));
        parts.too_large(1, Some(100)).expect("half of it");
        assert_eq!(next(&mut parts), Ok(Some((1, 50))));
        parts.too_large(1, Some(30)).expect("less");
        assert_eq!(next(&mut parts), Ok(Some((1, 30))));
        assert_eq!(next(&mut parts), Ok(Some((31, 50))));
        assert_eq!(next(&mut parts), Ok(Some((51, 80))), "what comes later stays in its place");
    }

    #[test]
    fn hopeless_searches_end_early() {
        let (asked, said) = search(0, u64::MAX - 1, 2000, |_, _| 2000);
        assert_eq!((asked.as_str(), said.as_str()), ("", "TooManyCalls { span: 2000 }"));
        let (_, said) = search(1, 10, 10, |_, _| 0);
        assert_eq!(said, "OneBlock");
        let (asked, said) = search(1, 1000, 1000, |_, _| 10);
        assert!(said.starts_with("TooManyCalls"), "{said}");
        assert!(asked.split_whitespace().count() <= CALLS, "{asked}");
    }

    #[test]
    fn only_lists_and_only_so_much() {
        let mut parts = Parts::new(1, 2, 1, CALLS, 8, Cut::Anywhere).expect("few");
        assert_eq!(parts.next(0), Ok(Some((1, 1))));
        assert_eq!(parts.found(1, Bytes::from_static(b"null")), Err(Stuck::NoList));
        assert_eq!(parts.found(1, Bytes::from_static(b"[1234]")), Ok(()));
        assert_eq!(parts.next(8), Ok(Some((2, 2))));
        assert_eq!(parts.found(2, Bytes::from_static(b"[56]")), Err(Stuck::TooManyBytes));
        assert_eq!(parts.found(2, Bytes::from_static(b"[]")), Ok(()));
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
        let mut parts = Parts::new(1, 4, 1, CALLS, 12, Cut::Anywhere).expect("few");
        for block in 1..=3 {
            assert_eq!(parts.next(5), Ok(Some((block, block))));
        }
        parts.found(3, Bytes::from_static(b"[333]")).expect("a list");
        parts.found(2, Bytes::from_static(b"[ ]")).expect("a list");
        assert!(!parts.is_begun());
        assert_eq!(parts.take(), ["["], "nobody knows yet what comes first");
        assert_eq!((parts.next(5), parts.held()), (Ok(None), 8), "enough waits behind the first");
        parts.again(1);
        assert_eq!(parts.next(5), Ok(Some((1, 1))), "which is what is asked for again");
        parts.found(1, Bytes::from_static(b"[1]")).expect("a list");
        assert_eq!(parts.take().concat(), b"1,333");
        assert_eq!((parts.next(5), parts.held()), (Ok(Some((4, 4))), 0));
        parts.found(4, Bytes::from_static(b"[44,4444]")).expect("room for as much again");
        assert!(!parts.is_taken());
        assert_eq!(parts.take().concat(), b",44,4444]");
        assert!(parts.is_taken() && parts.take().is_empty());
    }
}
