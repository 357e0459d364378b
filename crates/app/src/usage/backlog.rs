//! What waits for an outlet: bounded, the oldest goes at the bound.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// Things in order, each of some weight. One that was taken out is the taker's: it is in no sum here.
#[derive(Debug)]
pub(super) struct OutletBacklog<T> {
    waiting: Mutex<BacklogContent<T>>,
    weight_max: usize,
    arrived: Notify,
}

#[derive(Debug)]
struct BacklogContent<T> {
    things: VecDeque<(T, usize)>,
    weight: usize,
}

impl<T> OutletBacklog<T> {
    /// Nothing yet, and at most so much. A thing that is heavier by itself waits alone.
    pub(super) fn new(weight_max: usize) -> Self {
        let waiting = Mutex::new(BacklogContent { things: VecDeque::new(), weight: 0 });
        Self { waiting, weight_max, arrived: Notify::new() }
    }

    /// Puts a thing at the end. Returns the weight of what had to go for it.
    pub(super) fn push(&self, thing: T, weight: usize) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.things.push_back((thing, weight));
        waiting.weight += weight;
        let mut dropped = 0;
        while waiting.weight > self.weight_max && waiting.things.len() > 1 {
            let Some((_, weight)) = waiting.things.pop_front() else { break };
            waiting.weight -= weight;
            dropped += weight;
        }
        drop(waiting);
        self.arrived.notify_one();
        dropped
    }

    /// Puts a part of what was just taken back to the begin.
    pub(super) fn put_back(&self, thing: T, weight: usize) {
        let mut waiting = self.waiting.lock();
        waiting.things.push_front((thing, weight));
        waiting.weight += weight;
    }

    fn pop(&self) -> Option<T> {
        let mut waiting = self.waiting.lock();
        let (thing, weight) = waiting.things.pop_front()?;
        waiting.weight -= weight;
        Some(thing)
    }

    /// The next thing, as soon as there is one; `None` when there is none and `closing` says that none
    /// will come.
    pub(super) async fn next(&self, closing: &mut watch::Receiver<bool>) -> Option<T> {
        loop {
            if let Some(thing) = self.pop() {
                return Some(thing);
            }
            if *closing.borrow_and_update() {
                return None;
            }
            tokio::select! {
                () = self.arrived.notified() => {}
                // That it is gone says that none will come, too.
                changed = closing.changed() => if changed.is_err() {
                    return self.pop();
                },
            }
        }
    }

    /// Of all that waits.
    pub(super) fn weight(&self) -> usize {
        self.waiting.lock().weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_goes_at_the_bound() {
        let backlog = OutletBacklog::new(10);
        let mut dropped = Vec::new();
        for (thing, weight) in [("a", 4), ("b", 6), ("c", 1), ("d", 30), ("e", 2)] {
            dropped.push(backlog.push(thing, weight));
        }
        assert_eq!(dropped, [0, 0, 4, 7, 30]);
        let closing = watch::Sender::new(true);
        let mut closed = closing.subscribe();
        assert_eq!(backlog.weight(), 2);
        assert_eq!(backlog.next(&mut closed).await, Some("e"));
        backlog.put_back("f", 1);
        assert_eq!(backlog.next(&mut closed).await, Some("f"));
        assert_eq!((backlog.next(&mut closed).await, backlog.weight()), (None, 0));
    }

    #[tokio::test]
    async fn the_wait_ends_with_a_thing_or_the_end() {
        let backlog = OutletBacklog::new(10);
        let closing = watch::Sender::new(false);
        let mut closed = closing.subscribe();
        let (next, _) = tokio::join!(backlog.next(&mut closed), async { backlog.push("a", 1) });
        assert_eq!(next, Some("a"));
        let ends = async { closing.send_replace(true) };
        let (next, _) = tokio::join!(backlog.next(&mut closed), ends);
        assert_eq!(next, None);
    }
}
