//! A raw transaction goes to several upstreams at once.
//!
//! One acceptance is enough, and "already known" is one. The other attempts may finish, each
//! as a separate task and within its attempt's time, because every pool that holds the
//! transaction makes it likelier to be mined. A refusal is accepted when all have answered,
//! or a little after the first: an upstream that is behind refuses what the next one takes.
//!
//! The transaction stays in the best tier with a healthy upstream, unless the settings say
//! otherwise: the operator chooses which providers see transactions before they are mined. A tier
//! has failed when all of its healthy upstreams did, or would delay the transaction for longer than
//! two seconds; then the next tier is used. A refusal is no failure.
//! If no upstream accepted or refused it, [`run`](crate::run) continues with those not tried yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use wellhead_eth::MethodTable;
use wellhead_upstream::{Slot, Tier};

use crate::attempt::{AnswerLimits, AttemptResult, SingleCall, attempt};
use crate::attempts::Consequence;
use crate::bounds::TierScope;
use crate::context::RunContext;
use crate::now;
use crate::run::Run;
use crate::trace_seed::TracedOrigin;

/// So long after a refusal the others may still take the transaction.
const GRACE: Duration = Duration::from_millis(500);

impl Run<'_> {
    /// Sends to as many fit upstreams as the settings say, tier by tier. `None`: nothing came
    /// of it, or there are not two to send to; the ordinary rounds go on.
    pub(crate) async fn broadcast(&mut self, context: RunContext<'_>) -> Option<Consequence> {
        let well = &context.plan.candidates()[..context.plan.well()];
        let mut tiers: Vec<Tier> = well.iter().map(|slot| context.tier(*slot)).collect();
        tiers.sort_unstable();
        tiers.dedup();
        if tiers.len() < 2 || context.bounds.broadcast_tiers == TierScope::All {
            return self.broadcast_among(context).await;
        }
        for tier in tiers {
            let of_tier = well.iter().copied().filter(|slot| context.tier(*slot) == tier);
            let plan = context.plan.only(of_tier.collect());
            let part = RunContext { plan: &plan, ..context };
            if let Some(next) = self.broadcast_among(part).await {
                return Some(next);
            }
            self.attempts.begin_round(0, 0);
            match self.follow(part, true).await {
                Consequence::GoOn => {}
                end => return Some(end),
            }
        }
        None
    }

    async fn broadcast_among(&mut self, context: RunContext<'_>) -> Option<Consequence> {
        let fit = &context.plan.candidates()[..context.plan.fit()];
        // What another tier was sent before counts.
        let left = match self.attempts.count() {
            0 => usize::MAX,
            asked => context.bounds.attempts_max.saturating_sub(asked),
        };
        let slots = &fit[..fit.len().min(context.bounds.broadcast_max).min(left)];
        let began = now();
        if slots.len() < 2 || began >= self.job.deadline {
            return None;
        }
        let (mut waiting, mut settled) = self.send_to_all(context, slots, began);
        let mut until = self.job.deadline;
        let mut is_refused = false;
        while let Ok(Some((slot, settled))) =
            tokio::time::timeout_at(until.into(), settled.recv()).await
        {
            waiting.retain(|other| *other != slot);
            let is_accepted = settled.verdict.class.is_accepted();
            match self.end(context, slot, settled) {
                Consequence::GoOn => {}
                Consequence::Serve | Consequence::Stop => is_refused = true,
            }
            if is_accepted {
                self.still_under_way(&waiting, began);
                return Some(Consequence::Serve);
            }
            if is_refused {
                until = until.min(now() + GRACE);
            }
        }
        self.still_under_way(&waiting, began);
        is_refused.then_some(Consequence::Serve)
    }

    /// Sends to those of `slots` that let the call go: which those are, and what their attempts
    /// bring.
    fn send_to_all(
        &mut self,
        context: RunContext<'_>,
        slots: &[Slot],
        began: Instant,
    ) -> (Vec<Slot>, mpsc::Receiver<(Slot, AttemptResult)>) {
        let row = &MethodTable::standard().rows()[self.job.row.index.get()];
        let (sender, settled) = mpsc::channel(slots.len());
        let mut waiting: Vec<Slot> = Vec::with_capacity(slots.len());
        for slot in slots.iter().copied() {
            // The tasks outlive the call, so they are counted; without room for another
            // one the call makes do with those it has.
            let Some(permit) = context.worker.outliving().try_acquire_owned() else { break };
            // One that holds the call is asked later, when no other upstream took it.
            let Some(in_flight) = self.admit(context, slot, began) else { continue };
            let upstream = Arc::clone(context.roster.upstream(slot));
            let transport = context.worker.shared_transport(slot);
            let time_limit = self.time_limit(context, slot, began);
            let answer_max = context.bounds.answer_bytes_max;
            let inspect = context.worker.shared_inspect();
            let (body, sender) = (self.bodies.of(self.job, slot), sender.clone());
            let (seed, received_at) = (self.job.trace.cloned(), self.job.received_at);
            waiting.push(slot);
            tokio::spawn(async move {
                let inspect = inspect.as_deref();
                let (flows, answers) = (None, None);
                let limits =
                    AnswerLimits { whole_max: answer_max, answer_max, flows, answers, inspect };
                let (upstream, transport) = (&upstream, &*transport);
                let origin = seed.as_ref().map(|seed| TracedOrigin { seed, received_at });
                let call = SingleCall { row, body, upstream, transport, origin };
                let settled = attempt(call, in_flight, time_limit, limits).await;
                drop(permit);
                // The receiver is gone once one upstream has accepted.
                let _ = sender.send((slot, settled)).await;
            });
        }
        (waiting, settled)
    }

    fn still_under_way(&mut self, slots: &[Slot], began: Instant) {
        let now = now();
        slots.iter().for_each(|slot| self.attempts.abandon(self.job, *slot, began, now));
    }
}
