//! What a run says of itself: what was asked for, and which run its lines are of.

use std::time::Duration;

use tokio::time::Instant;

use super::{Player, RunError};
use crate::record::RecordStamp;

impl Player<'_> {
    /// Remembers what was asked for, see [`RunRecord::asked`](crate::record::RunRecord::asked).
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn asking(mut self, words: Vec<String>) -> Result<Self, RunError> {
        self.run.asked = words;
        self.save()?;
        Ok(self)
    }

    /// Says in each line of the records which run and target it is of, and when it was by the wall
    /// clock, which is `now` since 1970. A run that goes on keeps its id.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn stamping(mut self, id: String, now: Duration) -> Result<Self, RunError> {
        if self.run.id.is_empty() {
            self.run.id = id;
        }
        let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let origin_us = now_us.saturating_sub(self.origin.micros(Instant::now()));
        self.records.stamp(RecordStamp::new(&self.run, origin_us));
        self.save()?;
        Ok(self)
    }
}
