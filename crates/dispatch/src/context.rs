//! What a run stands on.

use wellhead_route::{Plan, Roster};
use wellhead_upstream::{Slot, Tier};

use crate::attempt::AnswerLimits;
use crate::bounds::Bounds;
use crate::flows::MayFlow;
use crate::job::Job;
use crate::worker_upstreams::WorkerUpstreams;

/// What a run stands on: none of it changes while it lasts.
#[derive(Clone, Copy)]
pub(crate) struct RunContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) roster: &'a Roster,
    pub(crate) worker: &'a WorkerUpstreams,
    pub(crate) bounds: &'a Bounds,
}

impl<'a> RunContext<'a> {
    pub(crate) fn tier(self, slot: Slot) -> Tier {
        self.roster.upstream(slot).identity().tier
    }

    /// For an answer to `job`, which a client may take as it comes where it `may_flow`.
    pub(crate) fn answer_limits(
        self,
        job: &Job<'a>,
        may_flow: bool,
        slot: Slot,
    ) -> AnswerLimits<'a> {
        let Bounds { whole_bytes_max, answer_bytes_max: answer_max, .. } = *self.bounds;
        let (row, inspect) = (job.row, self.worker.inspect());
        let answers = Some(job.room.unwrap_or(self.worker.answers()));
        match job.flows_to.filter(|_| may_flow) {
            Some(client) => {
                let upstream = self.roster.upstream(slot);
                let to_look_at = inspect.map_or(0, |inspect| inspect.whole_bytes(upstream, row));
                let whole_max = whole_bytes_max.max(to_look_at).min(answer_max);
                let flows = self.worker.flows(slot);
                let flows = flows.map(|flows| MayFlow { flows, upstream, client });
                AnswerLimits { whole_max, answer_max, flows, answers, inspect }
            }
            None => {
                // What goes beyond that is read as it fits.
                let whole_max = job.room.map_or(answer_max, |room| room.step().min(answer_max));
                AnswerLimits { whole_max, answer_max, flows: None, answers, inspect }
            }
        }
    }
}
