//! Streams whose readers have gone.
//!
//! RST_STREAM tells the peer that it need not finish the answer.
//! But since resets were used to attack servers, many count them and close
//! the connection of a client that sends too many: hedges and timeouts must not cause that.
//! A connection is therefore sent at most [`RESETS_MAX`] of them in [`RESETS_WINDOW`]. Beyond
//! that a stream stays open: it keeps its place among the streams that the peer allows,
//! its answer is discarded as it arrives, and it is reset when there is
//! budget again, the oldest first.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Mux;
use crate::frame::H2ErrorCode;

/// Resets of our own within one window: half of what the strictest of the known
/// servers allows (200 in 30 s).
pub(super) const RESETS_MAX: usize = 100;
/// The time in which they are counted.
pub(super) const RESETS_WINDOW: Duration = Duration::from_secs(30);

/// An abandoned answer that is longer waits in its window for its reset.
pub(super) const DISCARDED_MAX: u64 = 1 << 20;

/// The budget of resets, and the streams that wait for it.
#[derive(Debug, Default)]
pub(super) struct ResetBudget {
    window_began: Option<Instant>,
    sent: usize,
    /// Oldest first; bounded by the streams of the connection.
    waiting: VecDeque<u32>,
}

impl ResetBudget {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes one reset from the budget of the window; false when none is left.
    fn take_reset(&mut self, now: Instant) -> bool {
        let fresh =
            self.window_began.is_none_or(|b| now.saturating_duration_since(b) >= RESETS_WINDOW);
        if fresh {
            (self.window_began, self.sent) = (Some(now), 0);
        }
        let is_left = self.sent < RESETS_MAX;
        self.sent += usize::from(is_left);
        is_left
    }
}

impl Mux {
    /// The reader of stream `id` is done with it; the peer is told unless it is too,
    /// or has been told that often lately. Returns whether the stream stays open.
    pub(crate) fn release(&mut self, id: u32, now: impl FnOnce() -> Instant) -> bool {
        let Some(mut stream) = self.streams.remove(&id) else { return false };
        if let Some(told) = &mut self.told {
            told.forget(id);
        }
        // After an early answer the rest of the request is not needed.
        let unsent = !stream.request.is_empty();
        let unfinished = stream.end.is_none() || unsent;
        let mut stays = false;
        if unfinished && self.ended.is_none() && !matches!(stream.end, Some(Err(_))) {
            // The rest of a large request would cost more than a reset too many.
            if self.abandoned.take_reset(now()) || unsent {
                self.reset(id, H2ErrorCode::CANCEL);
            } else {
                stream.abandoned = true;
                stream.waker = None;
                stream.data = Default::default();
                self.streams.insert(id, stream);
                self.abandoned.waiting.push_back(id);
                // What has arrived unread is given back.
                self.credit(id);
                stays = true;
            }
        }
        if unsent {
            self.unsent.retain(|waiting| *waiting != id);
        }
        if self.is_leaving() || self.closing {
            self.wake_task();
        }
        stays
    }

    /// Abandoned streams that are still open.
    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned.len()
    }

    /// Lets go of abandoned streams that have ended, and resets others while it may.
    pub(super) fn tend_abandoned(&mut self, now: Instant) {
        if self.abandoned.waiting.is_empty() {
            return;
        }
        let Self { abandoned, streams, .. } = self;
        abandoned.waiting.retain(|id| {
            let open = streams.get(id).is_some_and(|stream| stream.end.is_none());
            if !open {
                streams.remove(id);
            }
            open
        });
        while !self.abandoned.waiting.is_empty() && self.abandoned.take_reset(now) {
            if let Some(id) = self.abandoned.waiting.pop_front() {
                self.streams.remove(&id);
                self.reset(id, H2ErrorCode::CANCEL);
            }
        }
    }
}
