//! Work for threads: a queue that is full rather than long.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Bounded by number and by bytes. Pushing never waits; popping does.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    items_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(items_max: usize, bytes_max: usize) -> Self {
        let state = State { items: VecDeque::new(), bytes: 0, closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new(), items_max, bytes_max }
    }

    /// Gives the item back when there is no room for it or the queue is closed.
    pub(super) fn push(&self, item: T, bytes: usize) -> Result<(), T> {
        let mut state = self.state.lock();
        let full = state.items.len() >= self.items_max
            || state.bytes.saturating_add(bytes) > self.bytes_max;
        if state.closed || full {
            return Err(item);
        }
        state.bytes += bytes;
        state.items.push_back((item, bytes));
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits for an item and takes up to `items` of them; nothing when the queue is
    /// closed and empty. What is taken no longer counts.
    pub(super) fn take(&self, items: usize) -> Vec<T> {
        let mut state = self.state.lock();
        while state.items.is_empty() && !state.closed {
            self.filled.wait(&mut state);
        }
        let count = items.min(state.items.len());
        let taken: Vec<(T, usize)> = state.items.drain(..count).collect();
        state.bytes -= taken.iter().map(|(_, bytes)| bytes).sum::<usize>();
        taken.into_iter().map(|(item, _)| item).collect()
    }

    /// No more can be pushed; what is there can still be taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_by_number_or_bytes() {
        let queue = Queue::new(2, 10);
        assert_eq!(queue.push('a', 11), Err('a'));
        assert_eq!(queue.push('b', 10), Ok(()));
        assert_eq!(queue.push('c', 1), Err('c'));
        assert_eq!(queue.push('d', 0), Ok(()));
        assert_eq!(queue.push('e', 0), Err('e'));
        assert_eq!(queue.take(1), ['b']);
        assert_eq!(queue.push('f', 10), Ok(()));
    }
    #[test]
    fn what_is_left_can_be_taken_after_closing() {
        let queue = Queue::new(2, 10);
        assert_eq!(queue.push('a', 1), Ok(()));
        queue.close();
        assert_eq!(queue.push('b', 1), Err('b'));
        assert_eq!(queue.take(5), ['a']);
        assert_eq!(queue.take(5), [' '; 0]);
    }
}
