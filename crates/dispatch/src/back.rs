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

use crate::now;
use crate::run::{Ground, Next, Run};
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
    pub(crate) fn is_back(&self, ground: Ground<'_>, slot: Slot, now: Instant) -> bool {
        ground.plan.unwell().contains(&slot) && {
            let (upstream, row) = (ground.roster.upstream(slot), self.job.row);
            upstream.condition(now) == Condition::Ready
                && !upstream.class_rests(row.class, now)
                && upstream.offer(row, now) == Offer::Open
        }
    }

    /// Whether the call was not sent to `slot`, or that asked for a pause which it has had, or
    /// came back since.
    pub(crate) fn is_new_to(&self, ground: Ground<'_>, slot: Slot) -> bool {
        let upstream = ground.roster.upstream(slot);
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
    fn is_ready(&self, ground: Ground<'_>, slot: Slot, now: Instant) -> bool {
        let upstream = ground.roster.upstream(slot);
        upstream.condition(now) == Condition::Ready && !self.is_paused(upstream, now)
    }

    /// Those who were fit when the plan was made, and those who are back.
    pub(crate) fn fit_now<'a>(
        &'a self,
        ground: Ground<'a>,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        self.first_and_back(ground, ground.plan.fit(), now)
    }

    /// The same with those who are well and hold the block; see [`wellhead_route::Plan::holding`].
    pub(crate) fn holding_now<'a>(
        &'a self,
        ground: Ground<'a>,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        self.first_and_back(ground, ground.plan.holding(), now)
    }

    /// The same with all who are well; see [`wellhead_route::Plan::well`].
    pub(crate) fn well_now<'a>(
        &'a self,
        ground: Ground<'a>,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        self.first_and_back(ground, ground.plan.well(), now)
    }

    /// The same with all who are up; see [`wellhead_route::Plan::up`].
    pub(crate) fn up_now<'a>(
        &'a self,
        ground: Ground<'a>,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        self.first_and_back(ground, ground.plan.up(), now)
    }

    fn first_and_back<'a>(
        &'a self,
        ground: Ground<'a>,
        count: usize,
        now: Instant,
    ) -> impl Iterator<Item = Slot> + 'a {
        let first = ground.plan.candidates()[..count].iter();
        let back = ground.plan.unwell().iter();
        first.chain(back.filter(move |slot| self.is_back(ground, **slot, now))).copied()
    }

    /// Whether somebody else may be asked again who is ready, as `slot` is not: attempts are few.
    pub(crate) fn is_another_readier(&self, ground: Ground<'_>, slot: Slot) -> bool {
        let now = now();
        let mut up = self.up_now(ground, now);
        !self.is_ready(ground, slot, now)
            && up.any(|it| {
                it != slot && self.is_ready(ground, it, now) && self.may_have_been_a_moment(it)
            })
    }

    /// Whether the method is offered nowhere: all who are well said so, now or lately, and none
    /// of those who are not was seen to offer it.
    pub(crate) fn is_unoffered(&self, ground: Ground<'_>) -> bool {
        let now = now();
        let is_unsupported =
            |(_, verdict): &(Slot, Verdict)| verdict.class == VerdictClass::Unsupported;
        self.best.as_ref().is_some_and(is_unsupported)
            && ground.plan.candidates().iter().all(|slot| {
                let upstream = ground.roster.upstream(*slot);
                match upstream.condition(now) {
                    // One that asked for a pause is well, and its word is worth waiting for.
                    Condition::Ready | Condition::Throttled => self.refuses(ground, *slot, now),
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
    fn refuses(&self, ground: Ground<'_>, slot: Slot, now: Instant) -> bool {
        let mut attempts = self.trail.attempts.iter();
        let is_refusal = |it: &Attempt| it.slot == slot && it.class == VerdictClass::Unsupported;
        attempts.any(is_refusal)
            || ground.roster.upstream(slot).offer(self.job.row, now) != Offer::Open
    }

    /// Whether the call may be made once more, and nothing was said that a client can be told.
    pub(crate) fn may_wait_for_return(&self, ground: Ground<'_>) -> bool {
        let is_read = self.job.row.effect == Effect::Read && self.job.row.idempotent;
        is_read && !self.no_room && !self.has_something_to_say() && !self.is_unoffered(ground)
    }

    /// Asks whoever comes back, as soon as that shows.
    pub(crate) async fn wait_for_return(&mut self, ground: Ground<'_>) -> Next {
        let until = self.job.deadline.min(now() + RETURN_WAIT);
        while !self.check_over(ground) {
            let at = now();
            if at >= self.job.deadline {
                return Next::Stop;
            }
            if let Some(slot) = self.take_next(ground, at) {
                let next = match self.admit(ground, slot, at) {
                    Some(in_flight) => self.ask(ground, slot, in_flight).await,
                    None => Box::pin(self.wait_for_a_turn(ground)).await,
                };
                match next {
                    Next::Another if self.may_wait_for_return(ground) => continue,
                    // Also when the turn that it waited for brought only that.
                    Next::Another | Next::Stop if self.may_be_found(ground) => continue,
                    end => return end,
                }
            }
            let pause = ground.lane.with_rng(|rng| rng.random_range(LOOK_EVERY / 2..LOOK_EVERY));
            if at + pause >= until || !self.may_heal(ground, at) {
                return Next::Stop;
            }
            tokio::time::sleep(pause).await;
        }
        Next::Stop
    }

    /// Whether somebody lacks it who was known to be behind, and another one may have it.
    fn may_be_found(&self, ground: Ground<'_>) -> bool {
        self.lacks_data()
            && !self.no_room
            && !self.is_missing_where_it_should_be(ground)
            && self.new_and_ready(ground, now()).is_some()
    }

    /// Somebody who is well and was not asked since.
    fn new_and_ready(&self, ground: Ground<'_>, now: Instant) -> Option<Slot> {
        let mut up = self.up_now(ground, now);
        up.find(|it| self.is_ready(ground, *it, now) && self.is_new_to(ground, *it))
    }

    /// An upstream that is well and was not asked since it came back, at no cost. Else one that was
    /// asked and may have failed for a moment only, for a retry token.
    fn take_next(&self, ground: Ground<'_>, now: Instant) -> Option<Slot> {
        self.new_and_ready(ground, now).or_else(|| {
            let mut known = self.up_now(ground, now).filter(|it| self.is_ready(ground, *it, now));
            let known = known.find(|slot| self.may_have_been_a_moment(*slot))?;
            ground.lane.budgets().spend_retry(now).then_some(known)
        })
    }

    /// Whether one of the upstreams began to fail a short time ago, or is well but for a pause
    /// that is nearly over or for what asking it again costs.
    fn may_heal(&self, ground: Ground<'_>, now: Instant) -> bool {
        let offering =
            ground.plan.candidates().iter().filter(|it| !self.refuses(ground, **it, now));
        let mut upstreams = offering.map(|it| ground.roster.upstream(*it));
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
