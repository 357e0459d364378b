//! A ceiling on the bytes of answers that are held at once, over all threads.
//!
//! Whoever holds an answer of more than [`FREE_BYTES`] has a [`Share`], which travels with
//! the bytes ([`Share::around`]) and gives them back when the last of them is dropped:
//! read, judged, written or abandoned. Nothing waits here, and nothing is refused that is
//! there already: who may not hold more is told so, and decides.
//!
//! Bytes are counted as there are in the answer; what the allocator rounds up to is not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

/// Answers up to this size are not counted: nearly all are smaller, and pay nothing. As
/// many as there are requests under way may be held beside the ceiling.
pub const FREE_BYTES: usize = 16 << 10;

/// Who may wait for room at a time. Each has begun to read, and so holds a little; together
/// they must never be what fills the ceiling.
const WAITING_MAX: usize = 64;

/// What became of an answer for which there was no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Shortage {
    /// It was passed on as it arrived, earlier than it would have been.
    Flowed,
    /// It waited, and then had room.
    Waited,
    /// It was given up.
    Refused,
}

impl Shortage {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 3] = [Self::Flowed, Self::Waited, Self::Refused];

    /// A stable word for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Flowed => "flowed",
            Self::Waited => "waited",
            Self::Refused => "refused",
        }
    }
}

/// The bound, and what is held below it.
#[derive(Debug)]
pub struct Ceiling {
    bytes_max: usize,
    held: AtomicUsize,
    peak: AtomicUsize,
    waiting: AtomicUsize,
    shortages: [AtomicU64; Shortage::ALL.len()],
}

/// None: everything is counted and nothing refused.
impl Default for Ceiling {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Ceiling {
    /// A ceiling of `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            shortages: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Bytes that may be held.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// The most that was ever held.
    pub fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }

    /// How often there was no room, by what became of the answer.
    pub fn shortages(&self, shortage: Shortage) -> u64 {
        self.shortages[shortage as usize].load(Relaxed)
    }

    /// Counts an answer for which there was no room.
    pub fn note(&self, shortage: Shortage) {
        self.shortages[shortage as usize].fetch_add(1, Relaxed);
    }

    /// Room for `bytes`, if there is so much.
    pub fn try_hold(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        let mut share = Share { ceiling: Arc::clone(self), bytes: 0 };
        share.grow(bytes).then_some(share)
    }

    /// Counts an answer that is there already, with the share that it has: exactly as long
    /// as it is, also beyond the ceiling. A small one is not counted.
    #[must_use]
    pub fn around(self: &Arc<Self>, body: Bytes, share: Option<Share>) -> Bytes {
        if body.len() <= FREE_BYTES {
            return body;
        }
        share.unwrap_or_else(|| Share { ceiling: Arc::clone(self), bytes: 0 }).around(body)
    }

    /// A place among those who wait for room; `None` when enough do.
    pub fn queue(&self) -> Option<Waiting<'_>> {
        let more = |waiting: usize| (waiting < WAITING_MAX).then_some(waiting + 1);
        self.waiting.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Waiting(self))
    }

    fn add(&self, bytes: usize) {
        let held = self.held.fetch_add(bytes, Relaxed).saturating_add(bytes);
        self.peak.fetch_max(held, Relaxed);
    }
}

/// What one answer holds, given back when dropped.
pub struct Share {
    ceiling: Arc<Ceiling>,
    bytes: usize,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Share {
    /// Bytes that it may hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Room for `bytes` in all; false, and all as before, when there is not so much.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let ceiling = &*self.ceiling;
        let fits = |held: usize| held.checked_add(more).filter(|sum| *sum <= ceiling.bytes_max);
        let Ok(before) = ceiling.held.fetch_update(Relaxed, Relaxed, fits) else { return false };
        ceiling.peak.fetch_max(before + more, Relaxed);
        self.bytes += more;
        true
    }

    /// The same bytes, counted until the last part of them is dropped.
    #[must_use]
    pub fn around(mut self, body: Bytes) -> Bytes {
        let bytes = body.len();
        if bytes > self.bytes {
            self.ceiling.add(bytes - self.bytes);
        } else {
            self.ceiling.held.fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
        Bytes::from_owner(Counted { body, share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.ceiling.held.fetch_sub(self.bytes, Relaxed);
    }
}

/// Bytes and their share, dropped together.
struct Counted {
    body: Bytes,
    #[allow(dead_code, reason = "held for its drop")]
    share: Share,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// One who waits for room.
#[derive(Debug)]
pub struct Waiting<'a>(&'a Ceiling);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(len: usize) -> Bytes {
        Bytes::from(vec![b'x'; len])
    }

    #[test]
    fn shares_fit_or_are_refused_and_give_back_all() {
        let ceiling = Arc::new(Ceiling::new(100));
        let mut first = ceiling.try_hold(60).expect("room");
        assert!(ceiling.try_hold(41).is_none());
        let second = ceiling.try_hold(40).expect("exactly the rest");
        assert!(!first.grow(61));
        assert!(first.grow(50), "it has more than that");
        assert_eq!((first.bytes(), ceiling.held()), (60, 100));
        drop(second);
        assert!(first.grow(100));
        drop(first);
        assert_eq!((ceiling.held(), ceiling.peak()), (0, 100));
    }

    #[test]
    fn bytes_are_counted_as_many_as_there_are_until_the_last_slice_is_dropped() {
        let ceiling = Arc::new(Ceiling::new(1 << 20));
        let share = ceiling.try_hold(1 << 20);
        let whole = ceiling.around(body(100_000), share);
        assert_eq!(ceiling.held(), 100_000);
        let part = whole.slice(10..20);
        drop(whole);
        assert_eq!((ceiling.held(), &*part), (100_000, &[b'x'; 10][..]));
        drop(part);
        assert_eq!(ceiling.held(), 0);
    }

    #[test]
    fn what_is_there_is_counted_beyond_the_ceiling_too() {
        let ceiling = Arc::new(Ceiling::new(10));
        let held = ceiling.around(body(FREE_BYTES + 1), None);
        assert_eq!(ceiling.held(), FREE_BYTES + 1);
        assert!(ceiling.try_hold(1).is_none());
        drop(held);
        assert_eq!((ceiling.held(), ceiling.peak()), (0, FREE_BYTES + 1));
    }

    #[test]
    fn small_answers_are_not_counted() {
        let ceiling = Arc::new(Ceiling::new(10));
        let small = ceiling.around(body(FREE_BYTES), None);
        assert_eq!((small.len(), ceiling.held(), ceiling.peak()), (FREE_BYTES, 0, 0));
    }

    #[test]
    fn few_wait_at_a_time() {
        let ceiling = Ceiling::new(1);
        let mut waiting: Vec<_> = std::iter::from_fn(|| ceiling.queue()).collect();
        assert_eq!(waiting.len(), WAITING_MAX);
        waiting.pop();
        assert!(ceiling.queue().is_some());
    }
}
