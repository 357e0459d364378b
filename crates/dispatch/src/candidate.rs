//! The candidates of a call as plain values: how each of them stands at one moment.
//!
//! [`Survey`] reads them from the roster as they are needed; tests write them down.

use std::time::{Duration, Instant};

use wellhead_upstream::{Condition, LimitedBy, Offer, Slot, Tier, VerdictClass};

use crate::context::RunContext;
use crate::job::Job;
use crate::trail::Trail;

/// Where the plan put a candidate, the best first; see [`wellhead_route::Plan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// It can serve the call.
    Fit,
    /// It can, once its rate or its pause lets the call go.
    Limited,
    /// It was not known to hold the block when it was last heard of.
    Behind,
    /// It lags, stands astray, or fails calls of this class more often than others.
    Up,
    /// Its condition alone kept it out.
    Unwell,
    /// It is known to refuse such a call: for its size, its age or its method.
    Refusing,
}

/// One candidate at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) slot: Slot,
    pub(crate) tier: Tier,
    /// As it was when the plan was made.
    pub(crate) rank: Rank,
    /// As it is now.
    pub(crate) condition: Condition,
    /// Calls of this class fail there too often.
    pub(crate) class_rests: bool,
    /// Whether it offers the method, as far as its answers say.
    pub(crate) offer: Offer,
    /// It was seen to offer the method.
    pub(crate) has_offered: bool,
    /// The pause that it asked for with such calls.
    pub(crate) pause: Option<LimitedBy>,
    /// Its rate would let the call go now.
    pub(crate) has_rate: bool,
    /// How long it has been failing.
    pub(crate) outage: Option<Duration>,
    /// The call was not sent to it, or it came back since, or it has had the pause that it asked
    /// for.
    pub(crate) is_new: bool,
}

impl Candidate {
    /// It was not well when the plan was made, and is now.
    pub(crate) fn is_back(&self) -> bool {
        self.rank == Rank::Unwell
            && self.condition == Condition::Ready
            && !self.class_rests
            && self.offer == Offer::Open
    }

    /// It can serve the call, as far as is known.
    pub(crate) fn is_fit(&self) -> bool {
        self.rank == Rank::Fit || self.is_back()
    }

    /// It is well and holds the block, as far as is known.
    pub(crate) fn is_holding(&self) -> bool {
        self.rank <= Rank::Limited || self.is_back()
    }

    /// It is well.
    pub(crate) fn is_well(&self) -> bool {
        self.rank <= Rank::Behind || self.is_back()
    }

    /// It is up: well, or it lags, stands astray or fails calls of this class.
    pub(crate) fn is_up(&self) -> bool {
        self.rank <= Rank::Up || self.is_back()
    }

    /// It would take the call now, as far as its condition and its pauses say.
    pub(crate) fn is_ready(&self) -> bool {
        self.condition == Condition::Ready && self.pause.is_none()
    }
}

/// The candidates of a call, in the order of its plan.
pub(crate) trait Candidates {
    /// How many there are.
    fn count(&self) -> usize;

    /// The one at `place`, which is less than their count.
    fn at(&self, place: usize) -> Candidate;

    /// All of them.
    fn all(&self) -> impl Iterator<Item = Candidate> {
        (0..self.count()).map(|place| self.at(place))
    }
}

/// The candidates of a plan as their upstreams stand at `now`.
#[derive(Clone, Copy)]
pub(crate) struct Survey<'a> {
    pub(crate) context: RunContext<'a>,
    pub(crate) job: &'a Job<'a>,
    /// What the call was sent to before.
    pub(crate) trail: &'a Trail,
    pub(crate) now: Instant,
}

impl Survey<'_> {
    fn rank(&self, place: usize) -> Rank {
        let plan = self.context.plan;
        let up = plan.up();
        match place {
            place if place < plan.fit() => Rank::Fit,
            place if place < plan.holding() => Rank::Limited,
            place if place < plan.well() => Rank::Behind,
            place if place < up => Rank::Up,
            place if place < up + plan.unwell().len() => Rank::Unwell,
            _ => Rank::Refusing,
        }
    }

    fn is_new(&self, slot: Slot, is_paused: bool) -> bool {
        let upstream = self.context.roster.upstream(slot);
        let is_past = |after| upstream.came_back_after(self.job.received_at + after);
        let had_its_pause = |class| class == VerdictClass::Throttled && !is_paused;
        let mut attempts = self.trail.attempts.iter().filter(|it| it.slot == slot);
        let mut abandoned = self.trail.abandoned.iter().filter(|it| it.slot == slot);
        attempts.all(|it| is_past(it.after) || had_its_pause(it.class))
            && abandoned.all(|it| is_past(it.after))
    }
}

impl Candidates for Survey<'_> {
    fn count(&self) -> usize {
        self.context.plan.candidates().len()
    }

    fn at(&self, place: usize) -> Candidate {
        let Self { context, job: Job { row, .. }, now, .. } = *self;
        let slot = context.plan.candidates()[place];
        let upstream = context.roster.upstream(slot);
        let pause = upstream.paused_for(row, now);
        Candidate {
            slot,
            tier: upstream.identity().tier,
            rank: self.rank(place),
            condition: upstream.condition(now),
            class_rests: upstream.class_rests(row.class, now),
            offer: upstream.offer(row, now),
            has_offered: upstream.has_offered(row),
            pause,
            has_rate: upstream.rate_wait(row, now).is_zero(),
            outage: upstream.down_for(now),
            is_new: self.is_new(slot, pause.is_some()),
        }
    }
}
