//! Upstreams that come back while a call is under way.
//!
//! A plan is made once a call, and a call may last for seconds: whoever rested when it was
//! made may be well by now, while those who were fit have failed. So an upstream that was
//! left out for its condition alone counts as fit from the moment it is ready again, and one
//! that was asked before it came back, or has had the pause that it asked for, counts as not
//! asked.
//!
//! When nobody is left, and that has not been so for long, a call waits for whoever comes
//! back first: probes find that within half a second while nobody is well, and then it is
//! one call more and not a failed one. Waiting costs no upstream anything.
//!
//! Nobody is waited for where all who are well say that they do not offer the method, and none of
//! the others was ever seen to: that is an answer.

use std::time::{Duration, Instant};

use rand::Rng;
use wellhead_eth::Effect;
use wellhead_upstream::{Condition, Offer, Slot, Upstream, Verdict, VerdictClass};

use crate::context::RunContext;
use crate::now;
use crate::run::{Next, Run};
use crate::trail::Attempt;

/// So long a call waits for somebody to come back.
const RETURN_WAIT: Duration = Duration::from_secs(2);
/// How long one look is from the next at most; drawn, so that not all come at once.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Nobody waits once the upstream that failed last has been failing for so long: what lasts
/// longer is not over in a moment.
const OUTAGE_IS_NEW: Duration = Duration::from_secs(10);

impl Run<'_> {
    /// Whether `slot` was not well when the plan was made, and is now.
    pub(crate) fn is_back(&self, context: RunContext<'_>, slot: Slot, now: Instant) -> bool {
        context.plan.unwell().contains(&slot) && {
            let (upstream, row) = (context.roster.upstream(slot), self.job.row);
            upstream.condition(now) == Condition::Ready
                && !upstream.class_rests(row.class, now)
                && upstream.offer(row, now) == Offer::Open
        }
    }

    /// Whether the call was not sent to `slot`, or that asked for a pause which it has had, or
    /// came back since.
    pub(crate) fn is_new_to(&self, context: RunContext<'_>, slot: Slot) -> bool {
        let upstream = context.roster.upstream(slot);
        let is_past = |after| upstream.came_back_after(self.job.received_at + after);
        let had_its_pause =
            |class| class == VerdictClass::Throttled && !self.is_paused(upstream, now());
        let mut attempts = self.trail.attempts.iter().filter(|it| it.slot == slot);
        let mut abandoned = self.trail.abandoned.iter().filter(|it| it.slot == slot);
        attempts.all(|it| is_past(it.after) || had_its_pause(it.class))
            && abandoned.all(|it| is_past(it.after))
    }

    fn is_paused(&self, upstream: &Upstream, now: Instant) -> bool {
        upstream.paused_for(self.job.row, now).is_some()
    }

    /// Whether `slot` would take the call now, as far as its condition and its pauses say.
    fn is_ready(&self, context: RunContext<'_>, slot: Slot, now: Instant) -> bool {
        let upstream = context.roster.upstream(slot);
        upstream.condition(now) == Condition::Ready && !self.is_paused(upstream, now)
    }

    /// Those who were fit when the plan was made, and those who are back.
    pub(crate) fn fit_now<'a>(
        &'a self,
        context: RunContext<'a>,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        self.first_and_back(context, context.plan.fit(), now)
    }

    /// The same with those who are well and hold the block; see [`wellhead_route::Plan::holding`].
    pub(crate) fn holding_now<'a>(
        &'a self,
        context: RunContext<'a>,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        self.first_and_back(context, context.plan.holding(), now)
    }

    /// The same with all who are well; see [`wellhead_route::Plan::well`].
    pub(crate) fn well_now<'a>(
        &'a self,
        context: RunContext<'a>,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        self.first_and_back(context, context.plan.well(), now)
    }

    /// The same with all who are up; see [`wellhead_route::Plan::up`].
    pub(crate) fn up_now<'a>(
        &'a self,
        context: RunContext<'a>,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        self.first_and_back(context, context.plan.up(), now)
    }

    fn first_and_back<'a>(
        &'a self,
        context: RunContext<'a>,
        count: usize,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        let first = context.plan.candidates()[..count].iter();
        let back = context.plan.unwell().iter();
        first.chain(back.filter(move |slot| self.is_back(context, **slot, now))).copied()
    }

    /// Whether somebody else may be asked again who is ready, as `slot` is not: attempts are few.
    pub(crate) fn is_another_readier(&self, context: RunContext<'_>, slot: Slot) -> bool {
        let now = now();
        let mut up = self.up_now(context, now);
        !self.is_ready(context, slot, now)
            && up.any(|it| {
                it != slot && self.is_ready(context, it, now) && self.may_have_been_a_moment(it)
            })
    }

    /// Whether the method is offered nowhere: all who are well said so, now or lately, and none
    /// of those who are not was seen to offer it.
    pub(crate) fn is_unoffered(&self, context: RunContext<'_>) -> bool {
        let now = now();
        let is_unsupported =
            |(_, verdict): &(Slot, Verdict)| verdict.class == VerdictClass::Unsupported;
        self.best.as_ref().is_some_and(is_unsupported)
            && context.plan.candidates().iter().all(|slot| {
                let upstream = context.roster.upstream(*slot);
                match upstream.condition(now) {
                    // One that asked for a pause is well, and its word is worth waiting for.
                    Condition::Ready | Condition::Throttled => self.refuses(context, *slot, now),
                    Condition::HalfOpen
                    | Condition::Overspent
                    | Condition::Syncing
                    | Condition::Resting
                    | Condition::OutOfService
                    | Condition::Draining
                    | Condition::Unverified
                    | Condition::Spent
                    | Condition::WrongChain => !upstream.has_offered(self.job.row),
                }
            })
    }

    /// Whether `slot` said of the method that it does not offer it, to this call or lately.
    fn refuses(&self, context: RunContext<'_>, slot: Slot, now: Instant) -> bool {
        let mut attempts = self.trail.attempts.iter();
        let is_refusal = |it: &Attempt| it.slot == slot && it.class == VerdictClass::Unsupported;
        attempts.any(is_refusal)
            || context.roster.upstream(slot).offer(self.job.row, now) != Offer::Open
    }

    /// Whether the call may be made once more, and nothing was said that a client can be told.
    pub(crate) fn may_wait_for_return(&self, context: RunContext<'_>) -> bool {
        let is_read = self.job.row.effect == Effect::Read && self.job.row.idempotent;
        is_read && !self.no_room && !self.has_something_to_say() && !self.is_unoffered(context)
    }

    /// Asks whoever comes back, as soon as that shows.
    pub(crate) async fn wait_for_return(&mut self, context: RunContext<'_>) -> Next {
        let until = self.job.deadline.min(now() + RETURN_WAIT);
        while !self.check_over(context) {
            let at = now();
            if at >= self.job.deadline {
                return Next::Stop;
            }
            if let Some(slot) = self.take_next(context, at) {
                let next = match self.admit(context, slot, at) {
                    Some(in_flight) => self.ask(context, slot, in_flight).await,
                    None => Box::pin(self.wait_for_a_turn(context)).await,
                };
                match next {
                    Next::Another if self.may_wait_for_return(context) => continue,
                    // Also when the turn that it waited for brought only that.
                    Next::Another | Next::Stop if self.may_be_found(context) => continue,
                    end => return end,
                }
            }
            let pause = context.worker.with_rng(|rng| rng.random_range(LOOK_EVERY / 2..LOOK_EVERY));
            if at + pause >= until || !self.may_heal(context, at) {
                return Next::Stop;
            }
            tokio::time::sleep(pause).await;
        }
        Next::Stop
    }

    /// Whether somebody lacks it who was known to be behind, and another one may have it.
    fn may_be_found(&self, context: RunContext<'_>) -> bool {
        self.lacks_data()
            && !self.no_room
            && !self.is_missing_where_it_should_be(context)
            && self.new_and_ready(context, now()).is_some()
    }

    /// Somebody who is well and was not asked since.
    fn new_and_ready(&self, context: RunContext<'_>, now: Instant) -> Option<Slot> {
        let mut up = self.up_now(context, now);
        up.find(|it| self.is_ready(context, *it, now) && self.is_new_to(context, *it))
    }

    /// An upstream that is well and was not asked since it came back, at no cost. Else one that was
    /// asked and may have failed for a moment only, for a retry token.
    fn take_next(&self, context: RunContext<'_>, now: Instant) -> Option<Slot> {
        self.new_and_ready(context, now).or_else(|| {
            let mut known = self.up_now(context, now).filter(|it| self.is_ready(context, *it, now));
            let known = known.find(|slot| self.may_have_been_a_moment(*slot))?;
            context.worker.budgets().spend_retry(now).then_some(known)
        })
    }

    /// Whether one of the upstreams began to fail a short time ago, or is well but for a pause
    /// that is nearly over or for what asking it again costs.
    fn may_heal(&self, context: RunContext<'_>, now: Instant) -> bool {
        let offering =
            context.plan.candidates().iter().filter(|it| !self.refuses(context, **it, now));
        let mut upstreams = offering.map(|it| context.roster.upstream(*it));
        upstreams.any(|upstream| match (upstream.down_for(now), upstream.condition(now)) {
            (Some(outage), _) => outage < OUTAGE_IS_NEW,
            (None, Condition::Ready | Condition::Throttled) => {
                match upstream.paused_for(self.job.row, now) {
                    Some(held) => held.wait < RETURN_WAIT,
                    None => self.no_turn.is_none(),
                }
            }
            (None, _) => false,
        })
    }
}
