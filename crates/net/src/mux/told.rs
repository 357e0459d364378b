//! What a connection tells a journal; there is none on the path of a proxy.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::Mux;
use crate::journal::JournalEvent;

/// Noted until the connection's task or an exchange asks.
#[derive(Debug, Default)]
pub(super) struct Told {
    happened: Vec<JournalEvent>,
    /// Where requests end in what was appended, in order.
    unwritten: VecDeque<(u64, u32)>,
    /// When the socket had all of a request.
    written: HashMap<u32, Instant>,
    /// Streams that a GOAWAY left without an answer.
    pub(super) disowned: usize,
}

impl Told {
    pub(super) fn happens(&mut self, what: JournalEvent) {
        self.happened.push(what);
    }

    /// The request of stream `id` ends at `at` in what was appended.
    pub(super) fn appended(&mut self, id: u32, at: u64) {
        self.unwritten.push_back((at, id));
    }

    pub(super) fn forget(&mut self, id: u32) {
        self.written.remove(&id);
        self.unwritten.retain(|(_, waiting)| *waiting != id);
    }
}

impl Mux {
    /// Notes what happens from now on.
    pub(crate) fn tell(&mut self) {
        self.told = Some(Box::default());
        self.decoder.keeps_limits = true;
    }

    /// What happened since the last time.
    pub(crate) fn take_happened(&mut self) -> Vec<JournalEvent> {
        self.told.as_mut().map(|told| std::mem::take(&mut told.happened)).unwrap_or_default()
    }

    /// The socket took `written` bytes since the start.
    pub(crate) fn note_written(&mut self, written: u64, now: Instant) {
        let Some(told) = &mut self.told else { return };
        while told.unwritten.front().is_some_and(|(end, _)| *end <= written) {
            if let Some((_, id)) = told.unwritten.pop_front() {
                told.written.insert(id, now);
            }
        }
    }

    /// When the socket had all of the request on stream `id`.
    pub(crate) fn written_at(&self, id: u32) -> Option<Instant> {
        self.told.as_ref()?.written.get(&id).copied()
    }

    /// Streams that a GOAWAY left without an answer.
    pub(crate) fn disowned(&self) -> usize {
        self.told.as_ref().map_or(0, |told| told.disowned)
    }

    /// Requests that were begun.
    pub(crate) fn requests(&self) -> u64 {
        u64::from(self.next_id / 2)
    }
}
