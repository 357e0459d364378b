//! The queue of a pool: exchanges that wait for a connection, first come, first served.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::stats::ConnectionStats;

/// Part of a pool's state, behind its lock.
#[derive(Debug)]
pub(crate) struct Waiters<G> {
    /// By the numbers of their tickets.
    queue: VecDeque<(u64, oneshot::Sender<G>)>,
    next: u64,
    max: usize,
    length: QueueLength,
    stats: Arc<ConnectionStats>,
}

/// How many wait, readable without the lock.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueLength(Arc<AtomicUsize>);

impl QueueLength {
    /// Whether none waits. Others may join or leave at the same moment.
    pub(crate) fn is_zero(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

impl<G> Waiters<G> {
    /// At most `max` wait.
    pub(crate) fn new(max: usize, stats: Arc<ConnectionStats>) -> Self {
        Self { queue: VecDeque::new(), next: 0, max, length: QueueLength::default(), stats }
    }

    pub(crate) fn length(&self) -> &QueueLength {
        &self.length
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether no further exchange may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.max
    }

    /// Adds an exchange at the end. To be called when the queue [is not full](Self::is_full).
    pub(crate) fn join(&mut self) -> WaitTicket<G> {
        debug_assert!(!self.is_full(), "the queue is bounded");
        let (grant, granted) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.queue.push_back((number, grant));
        self.stats.waiting.fetch_add(1, Relaxed);
        self.note_length();
        WaitTicket { number, granted }
    }

    /// Takes the first out, to be granted what it waits for.
    pub(crate) fn pop(&mut self) -> Option<oneshot::Sender<G>> {
        let (_, grant) = self.queue.pop_front()?;
        self.stats.waiting.fetch_sub(1, Relaxed);
        self.note_length();
        Some(grant)
    }

    /// Takes out the one with this number, if it waits yet.
    fn leave(&mut self, number: u64) {
        if let Ok(at) = self.queue.binary_search_by_key(&number, |(number, _)| *number) {
            self.queue.remove(at);
            self.stats.waiting.fetch_sub(1, Relaxed);
            self.note_length();
        }
    }

    fn note_length(&self) {
        self.length.0.store(self.queue.len(), Relaxed);
    }
}

/// One that has joined.
#[derive(Debug)]
pub(crate) struct WaitTicket<G> {
    number: u64,
    granted: oneshot::Receiver<G>,
}

impl<G> WaitTicket<G> {
    /// A place in the queue of `pool`, found in its state by `queue`; left when dropped.
    pub(crate) fn at<'a, S>(
        self,
        pool: &'a Mutex<S>,
        queue: fn(&mut S) -> &mut Waiters<G>,
        length: &'a QueueLength,
    ) -> Waiting<'a, S, G> {
        Waiting { granted: self.granted, number: self.number, pool, queue, length }
    }
}

/// A place in a queue, left when dropped.
pub(crate) struct Waiting<'a, S, G> {
    pub(crate) granted: oneshot::Receiver<G>,
    number: u64,
    pool: &'a Mutex<S>,
    queue: fn(&mut S) -> &mut Waiters<G>,
    length: &'a QueueLength,
}

impl<S, G> Drop for Waiting<'_, S, G> {
    fn drop(&mut self) {
        if !self.length.is_zero() {
            (self.queue)(&mut self.pool.lock()).leave(self.number);
        }
    }
}
