//! What became of the first connection of a cell, from the records of its calls: for plans that ask
//! how long one lasts.

use crate::measure::plan::CellOutcome;
use crate::record::{CallRecord, WireEvent};

/// The first connection, and when the last answer on it was whole, microseconds of the run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct First(Option<(u64, u64)>);

impl First {
    /// What it carried, and whether it still does. Calls come in the order in which they ended.
    pub(super) fn follow(&mut self, call: &CallRecord, outcome: &mut CellOutcome) {
        let failed = call.error.is_some();
        match (&mut self.0, call.connection) {
            (none @ None, Some(connection)) => {
                *none = Some((connection, call.ended_at));
                outcome.on_first += 1;
                outcome.first_ended |= failed;
            }
            (Some((first, last)), Some(connection)) if *first == connection => {
                outcome.on_first += 1;
                outcome.first_ended |= failed;
                if !failed {
                    *last = call.ended_at;
                }
            }
            (Some(_), _) | (None, None) => outcome.first_ended = true,
        }
    }

    /// How long it had been silent when the other side ended it, milliseconds.
    pub(super) fn silent_ms<'a>(
        self,
        mut events: impl Iterator<Item = (u64, u64, &'a WireEvent)>,
    ) -> Option<u64> {
        let (first, last) = self.0?;
        let ends = |event: &WireEvent| {
            matches!(event, WireEvent::Goaway { .. } | WireEvent::Closed { .. })
        };
        let (at, _, _) = events
            .find(|(at, connection, event)| *connection == first && *at >= last && ends(event))?;
        Some((at - last) / 1_000)
    }
}
