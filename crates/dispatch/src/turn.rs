//! Upstreams that hold a call: passed over at no cost, and waited for when nobody else
//! answered.
//!
//! An upstream that asked to be left alone is not asked before its pause is over, whatever
//! else fails; one at another bound is not asked now. Another of its tier is asked instead,
//! at once; a dearer tier only when the cheaper one would hold the call for longer than
//! [`HOLD_SHORT`], as that is paid for. When nobody else answered, the call
//! waits its turn in the worker's queue, if that is in time; otherwise the client hears at
//! once how long to wait.

use std::sync::Arc;
use std::time::Instant;

use wellhead_eth::MethodRow;
use wellhead_route::HOLD_SHORT;
use wellhead_upstream::{Bound, InFlight, LimitedBy, Slot, Upstream, UpstreamSet, VerdictClass};

use crate::context::RunContext;
use crate::now;
use crate::run::{Next, ROUND_PAUSE_BASE, ROUND_PAUSE_CAP, Run};
use crate::wait_queue::{Claim, Holders, latest_turn};
use crate::worker_upstreams::WorkerUpstreams;

/// A call waits for its turn at most so often.
const WAITS_MAX: usize = 2;

impl Run<'_> {
    /// Notes a pause that upstream `slot` asked for with such calls, and holds the call there; false
    /// when it asked for none.
    pub(crate) fn note_if_paused(
        &mut self,
        context: RunContext<'_>,
        slot: Slot,
        now: Instant,
    ) -> bool {
        let upstream = context.roster.upstream(slot);
        let Some(held) = upstream.paused_for(self.job.row, now) else { return false };
        upstream.note_held(held.bound);
        self.held(slot, held);
        true
    }

    /// Lets the call go to `slot`, or remembers what holds it.
    pub(crate) fn admit(
        &mut self,
        context: RunContext<'_>,
        slot: Slot,
        now: Instant,
    ) -> Option<InFlight> {
        if !self.check_allowance() {
            return None;
        }
        let (row, worker) = (self.job.row, context.worker);
        let upstream = context.roster.upstream(slot);
        let claim = Claim::of(row, self.job.client());
        match worker.wait_queue().admit(upstream, claim, try_admit(worker, row), now) {
            Ok(in_flight) => {
                self.begin(slot);
                Some(in_flight)
            }
            Err(held) => {
                self.held(slot, held);
                None
            }
        }
    }

    fn held(&mut self, slot: Slot, held: LimitedBy) {
        if held.bound.is_pause() {
            let least = self.retry_after.map_or(held.wait, |least| least.min(held.wait));
            self.retry_after = Some(least);
            self.is_throttled = true;
        }
        self.trail.hold(slot, held);
        self.held_by = Some(Holders::and(self.held_by, slot, held));
    }

    /// Whether it is better to wait for somebody who holds the call than to ask again those
    /// who failed: one who is well and was not asked yet, or one who holds it for no longer
    /// than the call would pause anyway.
    pub(crate) fn is_held_briefly(&self, context: RunContext<'_>) -> bool {
        let Some(by) = self.held_by else { return false };
        match self.has_untried_holder(context) {
            true => by.first.wait <= ROUND_PAUSE_CAP || self.is_in_doubt(context),
            false => !self.has_something_to_say() && by.first.wait <= ROUND_PAUSE_BASE,
        }
    }

    /// Whether a healthy upstream that the call has not tried yet holds it back so briefly that waiting is
    /// better than trying an upstream that is known to refuse it. That refusal would cost a call, and would
    /// divide a search that the first upstream accepts whole.
    pub(crate) fn has_untried_holder_for_a_moment(&self, context: RunContext<'_>) -> bool {
        self.held_by.is_some_and(|by| by.first.wait <= ROUND_PAUSE_CAP)
            && self.has_untried_holder(context)
    }

    /// Whether somebody holds the call who is well and was not asked yet. What others said
    /// of missing data, or how they failed, must not speak for that one.
    pub(crate) fn has_untried_holder(&self, context: RunContext<'_>) -> bool {
        self.is_held_by_new(self.well_now(context, now()), context)
    }

    /// Whether one of these holds the call and was not asked since it last came back.
    fn is_held_by_new(
        &self,
        mut slots: impl Iterator<Item = Slot>,
        context: RunContext<'_>,
    ) -> bool {
        self.held_by.is_some_and(|by| {
            slots.any(|slot| by.slots.contains(slot) && self.is_new_to(context, slot))
        })
    }

    /// Whether a cheaper tier than that of `slot` would take the call within a moment. Each
    /// call waits for that once.
    pub(crate) fn may_be_cheaper(&self, context: RunContext<'_>, slot: Slot) -> bool {
        !self.has_waited_for_cheaper
            && self.held_by.is_some_and(|by| by.first.wait < HOLD_SHORT && is_timed(by.first.bound))
            && self.cheaper_holders(context, slot).is_some()
    }

    /// Those of cheaper tiers than `slot` who are well, were not asked yet and hold the call.
    fn cheaper_holders(&self, context: RunContext<'_>, slot: Slot) -> Option<Holders> {
        let tier = |slot: Slot| context.roster.upstream(slot).identity().tier;
        let by = self.held_by?;
        let fit = context.plan.candidates()[..context.plan.fit()].iter().copied();
        let slots: UpstreamSet = fit
            .filter(|other| by.slots.contains(*other) && tier(*other) < tier(slot))
            .filter(|other| !self.has_asked(*other))
            .collect();
        by.only(slots)
    }

    /// Waits for a moment until one of a cheaper tier than that of `slot` lets the call go,
    /// and asks it. Without a turn by then nothing was lost but the moment.
    pub(crate) async fn wait_for_cheaper(&mut self, context: RunContext<'_>, slot: Slot) -> Next {
        self.has_waited_for_cheaper = true;
        let Some(by) = self.cheaper_holders(context, slot) else { return Next::Another };
        let (row, until) = (self.job.row, self.job.deadline.min(now() + HOLD_SHORT));
        let (queue, claim) = (context.worker.wait_queue(), Claim::of(row, self.job.client()));
        let (candidates, may_go) = (context.plan.candidates(), try_admit(context.worker, row));
        match queue.wait(candidates, by, claim, may_go, context.roster, until).await {
            Ok((slot, in_flight)) if self.check_allowance() => {
                self.begin(slot);
                self.ask(context, slot, in_flight).await
            }
            Ok(_) | Err(_) => Next::Another,
        }
    }

    /// Waits for the turn at one of those who hold the call, or who asked for a pause when
    /// they were asked, and asks that one.
    pub(crate) async fn wait_for_a_turn(&mut self, context: RunContext<'_>) -> Next {
        for _ in 0..WAITS_MAX {
            let is_worth_it = !self.has_something_to_say() || self.is_held_briefly(context);
            if !is_worth_it || self.check_over(context) {
                return Next::Stop;
            }
            let Some(by) = self.holders(context, now()) else { return Next::Another };
            let began = now();
            if began.checked_add(by.first.wait).is_some_and(|turn| turn < self.job.deadline)
                && self.asked() > 0
                && !self.is_held_by_new(self.up_now(context, began), context)
                && !context.worker.budgets().spend_retry(began)
            {
                return Next::Stop;
            }
            let Some((slot, in_flight)) = self.turn(context, by, self.job.deadline).await else {
                return Next::Stop;
            };
            match self.ask(context, slot, in_flight).await {
                Next::Another => {}
                end => return end,
            }
        }
        Next::Another
    }

    /// Waits until one of these lets the call go; `None`: not in time.
    pub(crate) async fn turn(
        &mut self,
        context: RunContext<'_>,
        by: Holders,
        until: Instant,
    ) -> Option<(Slot, InFlight)> {
        let row = self.job.row;
        let (queue, claim) = (context.worker.wait_queue(), Claim::of(row, self.job.client()));
        let candidates = context.plan.candidates();
        let latest = latest_turn(candidates, by, context.roster, until);
        let may_go = try_admit(context.worker, row);
        let turn = queue.wait(candidates, by, claim, may_go, context.roster, latest);
        match turn.await {
            // Others of the same request may have spent it meanwhile.
            Ok(_) if !self.check_allowance() => None,
            Ok((slot, in_flight)) => {
                self.begin(slot);
                self.held_by = by.without([slot].into_iter().collect());
                Some((slot, in_flight))
            }
            Err(no_turn) => {
                self.no_turn = Some(no_turn);
                None
            }
        }
    }

    /// Everybody worth waiting for. The last attempt is kept for somebody who is well and was
    /// not asked yet, however soon one would take the call that refused it before.
    pub(crate) fn holders(&self, context: RunContext<'_>, now: Instant) -> Option<Holders> {
        let is_last = self.asked() + 1 >= context.bounds.attempts_max.max(1);
        let only_new = is_last && self.has_untried_holder(context);
        let is_worth_it = |slot: Slot| !only_new || self.is_new_to(context, slot);
        let candidates = || context.plan.candidates().iter().copied().filter(|it| is_worth_it(*it));
        let slots: UpstreamSet = candidates().collect();
        let held_by = self.held_by.map(|by| by.among(slots));
        candidates().fold(held_by, |by, slot| {
            match context.roster.upstream(slot).paused_for(self.job.row, now) {
                Some(held) => Some(Holders::and(by, slot, held)),
                None => by,
            }
        })
    }

    /// The failure of a call that nobody was asked for, because all wanted to be left alone.
    pub(crate) fn throttled(&self) -> Option<VerdictClass> {
        self.is_throttled.then_some(VerdictClass::Throttled)
    }
}

/// Whether the bound lets the next call go at a known time, or is likely to within a moment, as
/// one of many connections comes free. When one of a few calls under way ends is not known.
fn is_timed(bound: Bound) -> bool {
    match bound {
        Bound::Pause
        | Bound::MethodPause
        | Bound::Credits
        | Bound::Calls
        | Bound::LearntRate
        | Bound::MethodRate
        | Bound::Line
        | Bound::Connections
        | Bound::BulkyShare => true,
        Bound::Day | Bound::Month | Bound::InFlight | Bound::LearntLimit => false,
    }
}

fn try_admit(
    worker: &WorkerUpstreams,
    row: &MethodRow,
) -> impl Fn(&Arc<Upstream>, Instant) -> Result<InFlight, LimitedBy> {
    move |upstream, now| worker.try_admit(upstream, std::iter::once(row), row.class.is_heavy(), now)
}
