//! The bytes of answers that may be held at once, over all threads.
//!
//! A holder of an answer of more than [`FREE_BYTES`] has a [`Reservation`], which travels with
//! the bytes ([`Reservation::around`]) and gives them back when the last of them is dropped:
//! read, judged, written or abandoned. Nothing waits here, and nothing is refused that is
//! there already: a holder that may not hold more is told so, and decides.
//!
//! Bytes are counted as there are in the answer; what the allocator rounds up to is not.
//!
//! The answers of one batch have a budget of their own within that of all ([`MemoryBudget::part`]). One
//! answer at a time may go beyond it, so that an answer that is larger than the part can be had.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use wellhead_limit::{Held, Permit, Permits};

/// Answers up to this size are not counted: nearly all are smaller, and pay nothing. As
/// many as there are requests under way may be held beside the budget.
pub const FREE_BYTES: usize = 16 << 10;

/// No answer of a batch is given more room than this before it is asked for.
const STEP_MAX: usize = 256 << 10;

/// Answers that may wait for room at a time. Each has begun to read, and so holds a little; together
/// they must never be what fills the budget.
const WAITING_MAX: usize = 64;

/// What became of an answer for which there was no room. Its words stand in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum Shortage {
    /// It was passed on as it arrived, earlier than it would have been.
    Flowed,
    /// It waited, and then had room.
    Waited,
    /// It was given up.
    Refused,
}

wellhead_word::words!(Shortage);

/// The bound, and what is held within it.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: usize,
    /// Of which this is a part: what is held here is held there as well.
    whole: Option<Arc<Self>>,
    /// An answer goes beyond the part.
    is_overdrawn: AtomicBool,
    held: Held,
    peak: AtomicUsize,
    waiting: Permits,
    shortages: [AtomicU64; Shortage::ALL.len()],
}

/// None: everything is counted and nothing refused.
impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl MemoryBudget {
    /// A budget of `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            whole: None,
            is_overdrawn: AtomicBool::new(false),
            held: Held::default(),
            peak: AtomicUsize::new(0),
            waiting: Permits::new(WAITING_MAX),
            shortages: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// A part of this one, for the answers to one batch: together at most `bytes_max`, and one
    /// answer more.
    pub fn part(self: &Arc<Self>, bytes_max: usize) -> Self {
        Self { whole: Some(Arc::clone(self)), ..Self::new(bytes_max) }
    }

    /// The room that an answer is given before it is asked for, where it has to fit a part.
    pub fn step(&self) -> usize {
        (self.bytes_max / 4).clamp(FREE_BYTES, STEP_MAX)
    }

    /// Whether an answer goes beyond this part.
    pub fn is_overdrawn(&self) -> bool {
        self.is_overdrawn.load(Relaxed)
    }

    /// Whether others may give back `bytes` for which there is no room. What is held of a part
    /// waits for the end of its batch.
    pub fn is_worth_waiting(&self, bytes: usize) -> bool {
        self.whole.is_none() || self.held().saturating_add(bytes) <= self.bytes_max
    }

    /// Bytes that may be held.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.get()
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
        if let Some(whole) = &self.whole {
            return whole.note(shortage);
        }
        self.shortages[shortage as usize].fetch_add(1, Relaxed);
    }

    /// Room for `bytes`, if there is so much.
    pub fn try_hold(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let mut reservation = self.reservation();
        reservation.grow(bytes).then_some(reservation)
    }

    /// Room for `bytes`, never beyond a part.
    pub fn try_hold_within(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let mut reservation = self.reservation();
        reservation.grow_within(bytes).then_some(reservation)
    }

    fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { memory: Arc::clone(self), bytes: 0, is_over: false }
    }

    /// Counts an answer that is there already, with the reservation that it has: exactly as long
    /// as it is, also beyond the budget. A small one is not counted.
    #[must_use]
    pub fn around(self: &Arc<Self>, body: Bytes, reservation: Option<Reservation>) -> Bytes {
        if body.len() <= FREE_BYTES {
            return body;
        }
        reservation.unwrap_or_else(|| self.reservation()).around(body)
    }

    /// A place among the answers that wait for room; `None` when no more may wait.
    pub fn queue(&self) -> Option<Permit<&Permits>> {
        self.waiting.try_acquire()
    }

    fn add(&self, bytes: usize) {
        self.peak.fetch_max(self.held.raise(bytes), Relaxed);
    }

    /// Adds `more`, if there is so much room here.
    fn take(&self, more: usize) -> bool {
        let held = self.held.try_raise(more, self.bytes_max);
        held.inspect(|held| _ = self.peak.fetch_max(*held, Relaxed)).is_some()
    }
}

/// What one answer holds, given back when dropped.
pub struct Reservation {
    memory: Arc<MemoryBudget>,
    bytes: usize,
    /// It goes beyond the part, and is counted in the whole alone.
    is_over: bool,
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Reservation {
    /// Bytes that it may hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Room for `bytes` in all; false, and all as before, when there is not so much.
    pub fn grow(&mut self, bytes: usize) -> bool {
        if self.grow_within(bytes) {
            return true;
        }
        if !self.is_over && !self.overdraw() {
            return false;
        }
        let more = bytes.saturating_sub(self.bytes);
        let fits = self.memory.whole.as_ref().is_some_and(|whole| whole.take(more));
        self.bytes += if fits { more } else { 0 };
        fits
    }

    /// As [`Reservation::grow`], but never beyond a part, and not for an answer that is beyond it: that one
    /// gets no more room than it needs.
    pub fn grow_within(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let memory = &*self.memory;
        if self.is_over || !memory.take(more) {
            return false;
        }
        if let Some(whole) = &memory.whole
            && !whole.take(more)
        {
            memory.held.lower(more);
            return false;
        }
        self.bytes += more;
        true
    }

    /// Goes beyond the part, if no other answer does.
    fn overdraw(&mut self) -> bool {
        let memory = &*self.memory;
        if self.is_over || memory.whole.is_none() || memory.is_overdrawn.swap(true, Relaxed) {
            return false;
        }
        memory.held.lower(self.bytes);
        self.is_over = true;
        true
    }

    /// `body`, counted until the last part of it is dropped.
    #[must_use]
    pub fn around(mut self, body: Bytes) -> Bytes {
        let bytes = body.len();
        let own = (!self.is_over).then_some(&self.memory);
        for memory in own.into_iter().chain(&self.memory.whole) {
            if bytes > self.bytes {
                memory.add(bytes - self.bytes);
            } else {
                memory.held.lower(self.bytes - bytes);
            }
        }
        self.bytes = bytes;
        Bytes::from_owner(Counted { body, reservation: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        match self.is_over {
            true => self.memory.is_overdrawn.store(false, Relaxed),
            false => self.memory.held.lower(self.bytes),
        }
        if let Some(whole) = &self.memory.whole {
            whole.held.lower(self.bytes);
        }
    }
}

/// Bytes and their reservation, dropped together.
struct Counted {
    body: Bytes,
    #[allow(dead_code, reason = "held for its drop")]
    reservation: Reservation,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.body
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
        let memory = Arc::new(MemoryBudget::new(100));
        let mut first = memory.try_hold(60).expect("room");
        assert!(memory.try_hold(41).is_none());
        let second = memory.try_hold(40).expect("exactly the rest");
        assert!(!first.grow(61));
        assert!(first.grow(50), "it has more than that");
        assert_eq!((first.bytes(), memory.held()), (60, 100));
        drop(second);
        assert!(first.grow(100));
        drop(first);
        assert_eq!((memory.held(), memory.peak()), (0, 100));
    }

    #[test]
    fn bytes_are_counted_as_many_as_there_are_until_the_last_slice_is_dropped() {
        let memory = Arc::new(MemoryBudget::new(1 << 20));
        let reservation = memory.try_hold(1 << 20);
        let whole = memory.around(body(100_000), reservation);
        assert_eq!(memory.held(), 100_000);
        let part = whole.slice(10..20);
        drop(whole);
        assert_eq!((memory.held(), &*part), (100_000, &[b'x'; 10][..]));
        drop(part);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn what_is_there_is_counted_beyond_the_budget_too() {
        let memory = Arc::new(MemoryBudget::new(10));
        let held = memory.around(body(FREE_BYTES + 1), None);
        assert_eq!(memory.held(), FREE_BYTES + 1);
        assert!(memory.try_hold(1).is_none());
        drop(held);
        assert_eq!((memory.held(), memory.peak()), (0, FREE_BYTES + 1));
    }

    #[test]
    fn a_part_holds_its_bytes_and_one_answer_more() {
        let whole = Arc::new(MemoryBudget::new(1_000));
        let part = Arc::new(whole.part(100));
        let mut first = part.try_hold(60).expect("room");
        let second = part.try_hold(40).expect("exactly the rest");
        assert_eq!((part.held(), whole.held()), (100, 100));
        assert!(part.try_hold_within(1).is_none() && !part.is_overdrawn());
        assert!(first.grow(500), "one goes beyond");
        assert_eq!((part.held(), whole.held(), part.is_overdrawn()), (40, 540, true));
        let third = part.try_hold(60).expect("what it left");
        assert!(part.try_hold(1).is_none(), "and no second one");
        assert!(!first.grow(1_000), "nor beyond the whole");
        assert!(!part.is_worth_waiting(1));
        drop(first);
        assert_eq!((part.held(), whole.held(), part.is_overdrawn()), (100, 100, false));
        drop((second, third));
        assert_eq!((part.held(), whole.held(), whole.peak()), (0, 0, 600));
    }

    #[test]
    fn bytes_of_a_part_are_given_back_to_both() {
        let whole = Arc::new(MemoryBudget::new(1 << 20));
        let part = Arc::new(whole.part(100_000));
        let reservation = part.try_hold(50_000);
        let within = part.around(body(40_000), reservation);
        let reservation = part.try_hold(200_000);
        let beyond = part.around(body(150_000), reservation);
        assert_eq!((part.held(), whole.held()), (40_000, 190_000));
        drop(beyond);
        assert_eq!((part.held(), whole.held(), part.is_overdrawn()), (40_000, 40_000, false));
        drop(within);
        assert_eq!((part.held(), whole.held()), (0, 0));
    }

    #[test]
    fn small_answers_are_not_counted() {
        let memory = Arc::new(MemoryBudget::new(10));
        let small = memory.around(body(FREE_BYTES), None);
        assert_eq!((small.len(), memory.held(), memory.peak()), (FREE_BYTES, 0, 0));
    }

    #[test]
    fn few_wait_at_a_time() {
        let memory = MemoryBudget::new(1);
        let mut waiting: Vec<_> = std::iter::from_fn(|| memory.queue()).collect();
        assert_eq!(waiting.len(), WAITING_MAX);
        waiting.pop();
        assert!(memory.queue().is_some());
    }
}
