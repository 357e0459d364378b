//! A bounded sequence with one writer and any number of readers that never wait.
//!
//! The writer replaces an immutable [`RingView`] behind an `ArcSwap`: a reader loads it with one
//! atomic operation and then reads it for as long as it likes, while the writer goes on. The
//! items are in segments of at most 64 that views share, so an append copies the last segment and
//! the list of segments and nothing else: for 1,024 items 16 + 63 references at most, about a
//! microsecond, a few times a second. A lock would cost the writer less, and would let a reader
//! that is descheduled while it holds the lock stop the writer, and with it all others.
//!
//! Several items appended together appear together: no view has some of them.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// Items of a segment at most.
const SEGMENT_ITEMS: usize = 64;

/// A place between two items of a ring: what follows it was not read yet.
///
/// Belongs to the ring that gave it; in another one it means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cursor(u64);

impl Cursor {
    /// The sequence number of the next item.
    pub fn sequence(self) -> u64 {
        self.0
    }

    /// The cursor behind the next item.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Items that follow the cursor are no longer in the ring: the reader missed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lagged {
    /// How many it missed; `None` where the sequence began anew.
    pub missed: Option<u64>,
    /// The oldest place from which reading can go on.
    pub oldest: Cursor,
}

#[derive(Debug)]
struct RingSegment<T> {
    first: u64,
    items: Vec<T>,
}

impl<T> RingSegment<T> {
    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }
}

/// What a ring held at one moment. Immutable.
#[derive(Debug)]
pub struct RingView<T> {
    /// No gap from one to the next, none is empty.
    segments: Vec<Arc<RingSegment<T>>>,
    next: u64,
    /// Cursors before this are of a sequence that ended.
    began: u64,
}

impl<T> RingView<T> {
    /// The place behind the newest item.
    pub fn tip(&self) -> Cursor {
        Cursor(self.next)
    }

    /// The place before the oldest item.
    pub fn oldest(&self) -> Cursor {
        Cursor(self.segments.first().map_or(self.next, |segment| segment.first))
    }

    /// The place before the newest item, or the tip where there is none.
    pub fn newest(&self) -> Cursor {
        Cursor(if self.is_empty() { self.next } else { self.next - 1 })
    }

    /// The items behind `cursor`, oldest first, each with its sequence number.
    pub fn since(
        &self,
        cursor: Cursor,
    ) -> Result<impl DoubleEndedIterator<Item = (u64, &T)>, Lagged> {
        let oldest = self.oldest();
        if cursor < oldest {
            let missed = (cursor.0 >= self.began).then(|| oldest.0 - cursor.0);
            return Err(Lagged { missed, oldest });
        }
        let from = self.segments.partition_point(|segment| segment.end() <= cursor.0);
        let items = self.segments[from..].iter().flat_map(|segment| {
            let items = segment.items.iter().enumerate();
            items.map(|(place, item)| (segment.first + place as u64, item))
        });
        // Only the first segment can have items before the cursor.
        Ok(items.filter(move |(sequence, _)| *sequence >= cursor.0))
    }

    /// All items, oldest first, each with its sequence number.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        self.segments.iter().flat_map(|segment| {
            let items = segment.items.iter().enumerate();
            items.map(|(place, item)| (segment.first + place as u64, item))
        })
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        usize::try_from(self.next - self.oldest().0).unwrap_or(usize::MAX)
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

/// The writer's end. Items are cloned when their segment is copied: let them be cheap to clone.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    view: Arc<ArcSwap<RingView<T>>>,
}

impl<T: Clone> Ring<T> {
    pub(crate) fn new() -> Self {
        let view = RingView { segments: Vec::new(), next: 0, began: 0 };
        Self { view: Arc::new(ArcSwap::from_pointee(view)) }
    }

    pub(crate) fn reader(&self) -> RingReader<T> {
        RingReader { view: Arc::clone(&self.view) }
    }

    pub(crate) fn view(&self) -> Arc<RingView<T>> {
        self.view.load_full()
    }

    /// Drops the `dropped` oldest items and appends `items`, in one step for readers.
    pub(crate) fn append(&mut self, dropped: usize, items: impl IntoIterator<Item = T>) {
        let old = self.view.load();
        let mut segments = without(&old.segments, dropped);
        let mut next = old.next;
        let mut last = match segments.pop_if(|last| last.items.len() < SEGMENT_ITEMS) {
            Some(last) => RingSegment { first: last.first, items: last.items.clone() },
            None => RingSegment { first: next, items: Vec::new() },
        };
        for item in items {
            if last.items.len() == SEGMENT_ITEMS {
                segments.push(Arc::new(last));
                last = RingSegment { first: next, items: Vec::new() };
            }
            last.items.push(item);
            next += 1;
        }
        if !last.items.is_empty() {
            segments.push(Arc::new(last));
        }
        let began = old.began;
        drop(old);
        self.view.store(Arc::new(RingView { segments, next, began }));
    }

    /// Drops all items and begins a new sequence, for which every cursor so far is too old.
    pub(crate) fn restart(&mut self) {
        let next = self.view.load().next + 1;
        self.view.store(Arc::new(RingView { segments: Vec::new(), next, began: next }));
    }
}

/// The segments without the `dropped` oldest items.
fn without<T: Clone>(
    segments: &[Arc<RingSegment<T>>],
    mut dropped: usize,
) -> Vec<Arc<RingSegment<T>>> {
    let mut kept = Vec::with_capacity(segments.len() + 2);
    for segment in segments {
        match segment.items.len() {
            length if length <= dropped => dropped -= length,
            _ if dropped > 0 => {
                let (first, items) = (segment.first + dropped as u64, &segment.items[dropped..]);
                kept.push(Arc::new(RingSegment { first, items: items.to_vec() }));
                dropped = 0;
            }
            _ => kept.push(Arc::clone(segment)),
        }
    }
    kept
}

/// A reader's end. Clones read the one ring.
#[derive(Debug)]
pub struct RingReader<T> {
    view: Arc<ArcSwap<RingView<T>>>,
}

impl<T> RingReader<T> {
    /// The items as they are now: one atomic load, no lock.
    pub fn load(&self) -> Arc<RingView<T>> {
        self.view.load_full()
    }

    /// The place behind the newest item: where a new subscription begins.
    pub fn tip(&self) -> Cursor {
        self.load().tip()
    }
}

impl<T> Clone for RingReader<T> {
    fn clone(&self) -> Self {
        Self { view: Arc::clone(&self.view) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reader_reads_what_follows_its_cursor() {
        let mut ring = Ring::new();
        let reader = ring.reader();
        let start = reader.load().tip();
        ring.append(0, 0..100);
        let view = reader.load();
        assert_eq!(view.since(start).expect("all").map(|(_, item)| *item).sum::<u64>(), 4950);
        assert_eq!(view.since(view.tip()).expect("none").count(), 0);
        assert_eq!(view.since(start.next()).expect("more").next(), Some((1, &1)));
        ring.append(70, 100..101);
        assert_eq!(reader.load().oldest().sequence(), 70);
        let lagged = reader.load().since(start).map(|_| ()).expect_err("dropped");
        assert_eq!((lagged.missed, lagged.oldest), (Some(70), reader.load().oldest()));
        assert_eq!(view.len(), 100, "a view stays as it was");
    }

    #[test]
    fn after_a_restart_every_cursor_is_too_old() {
        let mut ring = Ring::new();
        ring.append(0, 0..3);
        let tip = ring.view().tip();
        ring.restart();
        let view = ring.view();
        let lagged = view.since(tip).map(|_| ()).expect_err("another sequence");
        assert_eq!(lagged, Lagged { missed: None, oldest: view.tip() });
        ring.append(0, 7..8);
        assert_eq!(ring.view().since(view.tip()).expect("new").next(), Some((4, &7)));
    }

    proptest! {
        #[test]
        fn it_is_a_queue(steps in prop::collection::vec((0..90_usize, 0..90_u64), 0..30)) {
            let (mut ring, mut model) = (Ring::new(), VecDeque::new());
            let mut next = 0;
            for (dropped, added) in steps {
                let dropped = dropped.min(model.len());
                ring.append(dropped, next..next + added);
                model.drain(..dropped);
                model.extend(next..next + added);
                next += added;
                let view = ring.view();
                prop_assert!(view.iter().map(|(_, item)| *item).eq(model.iter().copied()));
                prop_assert!(view.iter().all(|(sequence, item)| sequence == *item));
                prop_assert_eq!((view.tip().sequence(), view.len()), (next, model.len()));
                for from in view.oldest().sequence()..=next {
                    let read = view.since(Cursor(from)).expect("there");
                    prop_assert!(read.map(|(sequence, _)| sequence).eq(from..next));
                }
                let mut backwards: Vec<u64> = view.iter().rev().map(|(it, _)| it).collect();
                backwards.reverse();
                prop_assert!(backwards.into_iter().eq(view.oldest().sequence()..next));
            }
        }
    }
}
