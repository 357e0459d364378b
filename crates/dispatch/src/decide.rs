//! What a call does next: a plain function of what happened so far, of how the candidates stand,
//! of what the call and the settings allow, and of the moment.
//!
//! [`next`] returns one [`CallStep`]; `run` executes it, notes in [`Attempts`] what came of it,
//! and asks again. Nothing is sent, counted, paid for or waited for here, and one decision sees
//! one moment.
//!
//! A call goes through these positions, each at most as often as its bound says:
//!
//! | position | what is decided there | then |
//! |---|---|---|
//! | `Round` | the next candidate that is worth an attempt: [`CallStep::Send`]; one that asked for a pause is passed over: [`CallStep::Hold`]; before a dearer tier a wait for a cheaper one | the next candidate; after the last one a wait for a turn, or the next round |
//! | `Cheaper` | as `Round`, for the candidate that was chosen before the wait | `Round` |
//! | `BeforeRound` | the pause is over, and the candidates are gone through again ([`ROUNDS_MAX`]) | `Round` |
//! | `Turn` | a wait in the queue for the upstreams that hold the call ([`WAITS_MAX`] in a row) | what [`AfterTurn`] says |
//! | `Return` | an upstream that is back, or another look in a moment ([`RETURN_WAIT`]) | `Return` |
//! | `Over` | whether to wait for an upstream that comes back | `Return`, or the end |
//!
//! In a round a candidate is passed over by the first rule that holds:
//!
//! 1. The call was sent there, and the attempts that are left are for candidates that were not asked.
//! 2. Two upstreams gave one opinion that may be a fault of both: only a fit candidate that was not
//!    asked gives a third.
//! 3. A client can be told something, and this candidate, which is not well, would not mend it.
//! 4. It is known to refuse such calls, and one that was not asked holds the call for a moment only.
//! 5. It was asked in this round; in a later round, what it said then does not pass in a moment.
//! 6. In a later round: it is not ready, and another that may be asked again is.
//! 7. It would give a second opinion of a null, in a dearer tier than the first.
//!
//! An attempt is free when it is the first, or at an upstream that is up and was not asked since it
//! last came back: while one upstream is well, no budget makes a read fail. Every other one costs a
//! token of the [`RetryBudget`](wellhead_limit::RetryBudget); what is free is noted there too.
//!
//! **Upstreams that hold a call** are passed over at no cost. One that asked for a pause is not
//! asked before it is over, whatever else fails; one at another bound is not asked now. Another of
//! its tier is asked at once; a dearer tier only when the cheaper one would hold the call for longer
//! than [`HOLD_SHORT`], as that is paid for. When no other upstream answered, the call waits for its
//! turn in the worker's queue, if that is in time; otherwise the client hears at once how long to
//! wait.
//!
//! **Upstreams that come back.** A plan is made once a call, and a call may last for seconds: an
//! upstream that rested when it was made may be well by now, while those that were fit have failed.
//! So an upstream that was left out for its condition alone counts as fit from the moment it is
//! ready again, and one that was asked before it came back, or has had the pause that it asked for,
//! counts as not asked. When none is left, and that has not been so for long, a call waits for the
//! first upstream that comes back: probes find that within half a second while none is well, and
//! then it is one call more and not a failed one. Waiting costs no upstream anything. A call does
//! not wait where all upstreams that are well say that they do not offer the method, and none of the
//! others was ever seen to: that is an answer.

use std::ops::Range;
use std::time::{Duration, Instant};

use wellhead_eth::Effect;
use wellhead_route::HOLD_SHORT;
use wellhead_upstream::{
    Bound, Condition, LimitedBy, Offer, Slot, Tier, UpstreamSet, VerdictClass,
};

use crate::attempts::{AfterTurn, Attempts, Consequence, Position, RoundPlace, StepResult};
use crate::bounds::{Bounds, TierScope};
use crate::candidate::{Candidate, Candidates, Rank};
use crate::job::Job;
use crate::wait_queue::Holders;

/// The candidates are gone through at most this often: the second time and the third heal a fault
/// of a moment when there is no other upstream to ask.
pub(crate) const ROUNDS_MAX: u32 = 3;
/// The pause before the second round is drawn below this, the next below twice as much,
/// and so on (full jitter).
pub(crate) const ROUND_PAUSE_BASE: Duration = Duration::from_millis(100);
/// No pause is drawn from more.
const ROUND_PAUSE_CAP: Duration = Duration::from_secs(1);
/// A call waits for its turn at most this often in a row.
const WAITS_MAX: u32 = 2;
/// How long a call waits for an upstream to come back.
const RETURN_WAIT: Duration = Duration::from_secs(2);
/// How long one look is from the next at most; drawn, so that not all come at once.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A call does not wait once the upstream that failed last has been failing for this long: what
/// lasts longer is not over in a moment.
const OUTAGE_IS_NEW: Duration = Duration::from_secs(10);
/// How long a transaction waits for its turn in a tier before a dearer one is asked.
const TIER_HOLD_MAX: Duration = Duration::from_secs(2);

/// What the call and the settings allow.
#[derive(Clone, Copy)]
pub(crate) struct CallTerms<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) bounds: &'a Bounds,
    /// The candidates are one tier of several: one round, one wait for a turn, no return.
    pub(crate) is_one_tier: bool,
}

impl CallTerms<'_> {
    /// Whether the request can still pay for an exchange of a call of which `begun` began.
    pub(crate) fn may_begin(&self, begun: u32) -> bool {
        self.job.allowance().is_none_or(|allowance| match begun {
            0 => self.job.is_first_paid || allowance.left() > 0,
            _ => allowance.to_spare() > 0,
        })
    }
}

/// What an attempt costs the chain's budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptPrice {
    /// Nothing, and it is not counted.
    Nothing,
    /// Nothing, and it is counted: see [`RetryBudget`](wellhead_limit::RetryBudget).
    Counted,
    /// A token of the retries.
    Retry,
    /// A token of the retries and one of the hedges.
    Hedge,
}

/// One attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendStep {
    pub(crate) slot: Slot,
    pub(crate) price: AttemptPrice,
    /// Where another call tries since a moment ago whether the upstream is back, the next
    /// candidate is asked instead.
    pub(crate) gives_way: bool,
}

/// For which upstreams a call waits in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitScope {
    /// For all that are worth it.
    All,
    /// For those of cheaper tiers, before a dearer one is asked.
    Cheaper,
    /// For those of one tier of several.
    OneTier,
}

/// A wait in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnStep {
    pub(crate) by: Holders,
    pub(crate) until: Instant,
    pub(crate) price: AttemptPrice,
    pub(crate) scope: WaitScope,
}

/// What to do next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallStep {
    /// Go through the candidates once more.
    BeginRound { round: u32, kept: usize },
    /// Note that the upstream asked for a pause.
    Hold { slot: Slot, held: LimitedBy },
    /// Send the call.
    Send(SendStep),
    /// Wait in the queue, and send the call to the upstream that lets it go.
    Turn(TurnStep),
    /// Wait until then.
    Pause { until: Instant },
    /// End: pass the best on, or say why there is nothing.
    Finish(Consequence),
}

/// A step, and where the call is then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decision {
    pub(crate) step: CallStep,
    pub(crate) position: Position,
    /// Another exchange was wanted, and the request may make none.
    pub(crate) is_spent: bool,
}

/// What a call does next. `draw` is chance, from a range.
pub(crate) fn next(
    attempts: &Attempts,
    candidates: &impl Candidates,
    terms: CallTerms<'_>,
    now: Instant,
    draw: impl FnMut(Range<Duration>) -> Duration,
) -> Decision {
    let scene = Scene { attempts, candidates, terms, now };
    let mut decider = Decider { scene, draw, is_spent: false };
    let (step, position) = decider.step();
    Decision { step, position, is_spent: decider.is_spent }
}

/// An attempt that takes long, and how its upstream stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AwaitedAttempt {
    pub(crate) slot: Slot,
    pub(crate) tier: Tier,
    /// The upstream rested and came back since it was asked.
    pub(crate) came_back: bool,
    /// It stalls, or has been away since: the call has to go on to another one.
    pub(crate) is_lost: bool,
    /// It has answered no call since, and that is long.
    pub(crate) is_quiet: bool,
}

/// The attempt to be made beside one that takes long.
pub(crate) fn hedge(
    attempts: &Attempts,
    candidates: &impl Candidates,
    terms: CallTerms<'_>,
    awaited: &AwaitedAttempt,
    now: Instant,
) -> Option<SendStep> {
    let scene = Scene { attempts, candidates, terms, now };
    let slot = scene.hedge_candidate(awaited)?;
    // Leaving one that is lost is failing over; any other second attempt is a bet.
    let price = if awaited.is_lost { AttemptPrice::Counted } else { AttemptPrice::Hedge };
    Some(SendStep { slot, price, gives_way: false })
}

/// What a decision is made from.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a, C> {
    pub(crate) attempts: &'a Attempts,
    pub(crate) candidates: &'a C,
    pub(crate) terms: CallTerms<'a>,
    pub(crate) now: Instant,
}

struct Decider<'a, C, D> {
    scene: Scene<'a, C>,
    draw: D,
    is_spent: bool,
}

type Transition = (CallStep, Position);

fn finish(consequence: Consequence) -> Transition {
    (CallStep::Finish(consequence), Position::Over)
}

impl<C: Candidates, D: FnMut(Range<Duration>) -> Duration> Decider<'_, C, D> {
    fn step(&mut self) -> Transition {
        let Attempts { position, result, .. } = *self.scene.attempts;
        match (position, result) {
            (Position::Round(_) | Position::Cheaper(_), StepResult::Sent(Consequence::Serve)) => {
                finish(Consequence::Serve)
            }
            (Position::Round(_) | Position::Cheaper(_), StepResult::Sent(Consequence::Stop)) => {
                self.over()
            }
            (Position::Round(at), _) => self.round(at),
            (Position::Cheaper(_), _) if self.check_over() => self.over(),
            (Position::Cheaper(at), _) => self.send(self.scene.candidates.at(at.place), at),
            (Position::BeforeRound(round), _) => {
                let kept = usize::from(self.scene.has_untried_holder());
                let at = RoundPlace { round, place: 0, kept };
                (CallStep::BeginRound { round, kept }, Position::Round(at))
            }
            (Position::Turn { waits, then }, StepResult::Sent(Consequence::GoOn)) => {
                self.turn(waits, then)
            }
            (Position::Turn { then, .. }, StepResult::Sent(end)) => self.after_turn(end, then),
            (Position::Turn { then: AfterTurn::Tier, .. }, _) => finish(Consequence::GoOn),
            (Position::Turn { then, .. }, _) => self.after_turn(Consequence::Stop, then),
            (Position::Return { until }, StepResult::Sent(end)) => self.after_return(end, until),
            (Position::Return { until }, StepResult::Held) => {
                self.turn(0, AfterTurn::Return(until))
            }
            (Position::Return { until }, result) => {
                self.wait_for_return(until, result != StepResult::Unpaid)
            }
            (Position::Over, _) => self.over(),
        }
    }

    /// Whether the call may make no further exchange: it has had its attempts, or
    /// [`CallTerms::may_begin`] none. Notes the latter.
    fn check_over(&mut self) -> bool {
        let Scene { attempts, terms, .. } = self.scene;
        if attempts.count() >= terms.bounds.attempts_max.max(1) {
            return true;
        }
        let is_left = terms.may_begin(attempts.begun);
        self.is_spent |= !is_left;
        !is_left
    }

    /// The next candidate that is worth an attempt, from this place on.
    fn round(&mut self, at: RoundPlace) -> Transition {
        for place in at.place..self.scene.candidates.count() {
            if self.check_over() {
                return self.over();
            }
            let (candidate, at) = (self.scene.candidates.at(place), RoundPlace { place, ..at });
            if !self.scene.is_worth_asking(&candidate, at) {
                continue;
            }
            if let Some(by) = self.scene.cheaper_in_a_moment(&candidate) {
                let until = self.scene.terms.job.deadline.min(self.scene.now + HOLD_SHORT);
                let (price, scope) = (AttemptPrice::Nothing, WaitScope::Cheaper);
                let step = CallStep::Turn(TurnStep { by, until, price, scope });
                return (step, Position::Cheaper(at));
            }
            return self.send(candidate, at);
        }
        if self.scene.terms.is_one_tier {
            return self.turn_in_tier();
        }
        if self.scene.is_unoffered() {
            return self.over();
        }
        match self.scene.is_held_briefly() {
            true => self.turn(0, AfterTurn::Round(at.round + 1)),
            false => self.before_round(at.round + 1),
        }
    }

    /// An attempt at a candidate that is worth it.
    fn send(&mut self, candidate: Candidate, at: RoundPlace) -> Transition {
        let Scene { attempts, candidates, terms, now } = self.scene;
        if now >= terms.job.deadline {
            return self.over();
        }
        let Candidate { slot, .. } = candidate;
        let next = at.place + 1;
        let then = Position::Round(RoundPlace { place: next, ..at });
        if let Some(held) = candidate.pause {
            return (CallStep::Hold { slot, held }, then);
        }
        let price = if attempts.count() == 0 {
            AttemptPrice::Nothing
        } else if candidate.is_up() && candidate.is_new && !attempts.is_agreed {
            AttemptPrice::Counted
        } else {
            AttemptPrice::Retry
        };
        let gives_way = next < candidates.count() && candidates.at(next).rank == Rank::Fit;
        (CallStep::Send(SendStep { slot, price, gives_way }), then)
    }

    /// One tier of several was gone through: waits for a while for the turn at one of it.
    fn turn_in_tier(&mut self) -> Transition {
        let is_over = self.check_over();
        let Some(by) = self.scene.holders().filter(|_| !is_over) else {
            return finish(Consequence::GoOn);
        };
        let until = self.scene.terms.job.deadline.min(self.scene.now + TIER_HOLD_MAX);
        let (price, scope) = (AttemptPrice::Nothing, WaitScope::OneTier);
        let position = Position::Turn { waits: WAITS_MAX, then: AfterTurn::Tier };
        (CallStep::Turn(TurnStep { by, until, price, scope }), position)
    }

    /// A pause before this round, or the end where another round would not help.
    fn before_round(&mut self, round: u32) -> Transition {
        if round == ROUNDS_MAX {
            return self.after_rounds();
        }
        let is_over = self.check_over();
        let Scene { attempts, terms, now, .. } = self.scene;
        let mut tried = attempts.trail.attempts.iter();
        if attempts.has_something_to_say()
            || is_over
            || !tried.any(|attempt| attempts.may_have_been_a_moment(attempt.slot))
        {
            return self.after_rounds();
        }
        let most = ROUND_PAUSE_BASE.saturating_mul(1 << (round - 1)).min(ROUND_PAUSE_CAP);
        let until = now + (self.draw)(Duration::ZERO..most);
        if until >= terms.job.deadline {
            return self.after_rounds();
        }
        (CallStep::Pause { until }, Position::BeforeRound(round))
    }

    /// A last wait for the upstreams that hold the call.
    fn after_rounds(&mut self) -> Transition {
        let Attempts { held_by, retry_after, .. } = self.scene.attempts;
        match held_by.is_some() || retry_after.is_some() {
            true => self.turn(0, AfterTurn::Over),
            false => self.over(),
        }
    }

    /// A wait for the turn at one of the upstreams that hold the call, or that asked for a pause
    /// when they refused it.
    fn turn(&mut self, waits: u32, then: AfterTurn) -> Transition {
        let Scene { attempts, terms, now, .. } = self.scene;
        if waits >= WAITS_MAX {
            return self.after_turn(Consequence::GoOn, then);
        }
        let is_worth_it = !attempts.has_something_to_say() || self.scene.is_held_briefly();
        if !is_worth_it || self.check_over() {
            return self.after_turn(Consequence::Stop, then);
        }
        let Some(by) = self.scene.holders() else {
            return self.after_turn(Consequence::GoOn, then);
        };
        let until = terms.job.deadline;
        let is_in_time = now.checked_add(by.first.wait).is_some_and(|turn| turn < until);
        let is_free =
            !is_in_time || attempts.count() == 0 || self.scene.is_held_by_new(Candidate::is_up);
        let price = if is_free { AttemptPrice::Nothing } else { AttemptPrice::Retry };
        let step = CallStep::Turn(TurnStep { by, until, price, scope: WaitScope::All });
        (step, Position::Turn { waits: waits + 1, then })
    }

    fn after_turn(&mut self, end: Consequence, then: AfterTurn) -> Transition {
        match (then, end) {
            (AfterTurn::Return(until), end) => self.after_return(end, until),
            (AfterTurn::Tier, end) => finish(end),
            (_, Consequence::Serve) => finish(end),
            (AfterTurn::Round(round), Consequence::GoOn) => self.before_round(round),
            (AfterTurn::Round(_) | AfterTurn::Over, _) => self.over(),
        }
    }

    /// The rounds are over: waits for an upstream that comes back, where one may.
    fn over(&mut self) -> Transition {
        let Scene { terms, now, .. } = self.scene;
        if terms.is_one_tier || !self.scene.may_wait_for_return() {
            return finish(Consequence::Stop);
        }
        self.wait_for_return(terms.job.deadline.min(now + RETURN_WAIT), true)
    }

    /// Asks an upstream that came back, or looks again in a moment.
    fn wait_for_return(&mut self, until: Instant, may_send: bool) -> Transition {
        if may_send {
            if self.check_over() || self.scene.now >= self.scene.terms.job.deadline {
                return finish(Consequence::Stop);
            }
            if let Some((slot, price)) = self.scene.returned() {
                let step = CallStep::Send(SendStep { slot, price, gives_way: false });
                return (step, Position::Return { until });
            }
        }
        let at = self.scene.now + (self.draw)(LOOK_EVERY / 2..LOOK_EVERY);
        if at >= until || !self.scene.may_heal() {
            return finish(Consequence::Stop);
        }
        (CallStep::Pause { until: at }, Position::Return { until })
    }

    fn after_return(&mut self, end: Consequence, until: Instant) -> Transition {
        let may_go_on = match end {
            Consequence::Serve => false,
            Consequence::GoOn => self.scene.may_wait_for_return() || self.scene.may_be_found(),
            // Also when the turn that it waited for brought only that.
            Consequence::Stop => self.scene.may_be_found(),
        };
        if may_go_on { self.wait_for_return(until, true) } else { finish(end) }
    }
}

impl<C: Candidates> Scene<'_, C> {
    /// Whether a call that no failure asks for may go to `tier`, after `before` was asked.
    fn is_in_scope(&self, tier: Tier, before: Tier) -> bool {
        match self.terms.bounds.extra_tiers {
            TierScope::Best => tier <= before,
            TierScope::All => true,
        }
    }

    /// The rules of the table at the top of this module, in their order.
    fn is_worth_asking(&self, candidate: &Candidate, at: RoundPlace) -> bool {
        let Self { attempts, terms, .. } = self;
        let RoundPlace { round, kept, .. } = at;
        let is_known = attempts.has_asked(candidate.slot);
        if is_known && attempts.count() + kept >= terms.bounds.attempts_max {
            return false;
        }
        if attempts.is_agreed && (!candidate.is_fit() || is_known) {
            return false;
        }
        if !candidate.is_well() && attempts.has_something_to_say() && !self.may_mend(candidate) {
            return false;
        }
        if candidate.rank == Rank::Refusing && self.has_untried_holder_for_a_moment() {
            return false;
        }
        let is_worth_it = match round {
            0 => !is_known,
            _ => {
                attempts.may_have_been_a_moment(candidate.slot)
                    && !self.is_another_readier(candidate)
            }
        };
        is_worth_it && self.may_have_opinion_of(candidate)
    }

    /// Whether a last resort may have what all others lack: one that comes back just now or
    /// is well otherwise, or any, while those that lack it were known to be behind. One that is
    /// well otherwise may also have the second opinion that an unknown error needs.
    fn may_mend(&self, candidate: &Candidate) -> bool {
        if self.lacks_data() {
            return !self.is_missing_where_it_should_be()
                || matches!(candidate.condition, Condition::HalfOpen | Condition::Ready);
        }
        self.attempts.best_class() == Some(VerdictClass::Unknown)
            && !self.attempts.is_agreed
            && candidate.condition == Condition::Ready
    }

    /// Whether the candidate may be asked after what was said so far. Where that is a null of which
    /// a second opinion is wanted, no dearer tier is asked for it.
    fn may_have_opinion_of(&self, candidate: &Candidate) -> bool {
        let Some(best) = &self.attempts.best else { return true };
        let is_opinion = best.verdict.class == VerdictClass::Null && !self.terms.job.is_there;
        !is_opinion || self.is_in_scope(candidate.tier, best.tier)
    }

    /// Whether another upstream may be asked again that is ready, as this one is not: attempts are
    /// few.
    fn is_another_readier(&self, candidate: &Candidate) -> bool {
        !candidate.is_ready()
            && self.candidates.all().any(|it| {
                it.slot != candidate.slot
                    && it.is_up()
                    && it.is_ready()
                    && self.attempts.may_have_been_a_moment(it.slot)
            })
    }

    /// Whether the most telling word so far is that something is not there.
    fn lacks_data(&self) -> bool {
        match self.attempts.best_class() {
            Some(VerdictClass::MissingData) => true,
            Some(VerdictClass::Null) => self.terms.job.is_there,
            _ => false,
        }
    }

    /// Whether an upstream lacks it that was to have it.
    fn is_missing_where_it_should_be(&self) -> bool {
        let lacks = |class| matches!(class, VerdictClass::MissingData | VerdictClass::Null);
        let attempts = &self.attempts.trail.attempts;
        self.candidates
            .all()
            .filter(|it| it.rank <= Rank::Limited)
            .any(|candidate| attempts.iter().any(|it| it.slot == candidate.slot && lacks(it.class)))
    }

    /// Whether what was said so far says nothing of an upstream that is well, was not asked yet
    /// and, as far as is known, holds what is asked for: that one is worth waiting for.
    fn is_in_doubt(&self) -> bool {
        // One opinion is none.
        let is_open = match self.attempts.best_class() {
            None => false,
            Some(VerdictClass::Unknown) => !self.attempts.is_agreed,
            Some(_) => self.lacks_data() && !self.is_missing_where_it_should_be(),
        };
        is_open
            && self.candidates.all().any(|it| it.is_holding() && !self.attempts.has_asked(it.slot))
    }

    /// Whether the method is offered nowhere: all that are well said so, now or lately, and none
    /// of those that are not was seen to offer it.
    fn is_unoffered(&self) -> bool {
        self.attempts.best_class() == Some(VerdictClass::Unsupported)
            && self.candidates.all().all(|candidate| match candidate.condition {
                // One that asked for a pause is well, and its word is worth waiting for.
                Condition::Ready | Condition::Throttled => self.refuses(&candidate),
                Condition::HalfOpen
                | Condition::Overspent
                | Condition::Syncing
                | Condition::BreakerOpen
                | Condition::OutOfService
                | Condition::Unverified
                | Condition::Spent
                | Condition::WrongChain => !candidate.has_offered,
            })
    }

    /// Whether the candidate said that it does not offer the method, to this call or lately.
    fn refuses(&self, candidate: &Candidate) -> bool {
        let mut attempts = self.attempts.trail.attempts.iter();
        candidate.offer != Offer::Open
            || attempts.any(|it| it.slot == candidate.slot && it.class == VerdictClass::Unsupported)
    }

    /// Those of cheaper tiers than the candidate that were fit, were not asked yet and hold the
    /// call, where one of them would take it within a moment. Each call waits for that once.
    fn cheaper_in_a_moment(&self, candidate: &Candidate) -> Option<Holders> {
        let by = self.attempts.held_by?;
        let is_moment = by.first.wait < HOLD_SHORT && is_timed(by.first.bound);
        if self.attempts.has_waited_for_cheaper || !is_moment {
            return None;
        }
        let cheaper = self.candidates.all().filter(|it| {
            it.rank == Rank::Fit
                && by.slots.contains(it.slot)
                && it.tier < candidate.tier
                && !self.attempts.has_asked(it.slot)
        });
        by.only(cheaper.map(|it| it.slot).collect())
    }

    /// Whether it is better to wait for an upstream that holds the call than to ask again those
    /// that failed: one that is well and was not asked yet, or one that holds it for no longer
    /// than the call would pause anyway.
    fn is_held_briefly(&self) -> bool {
        let Some(by) = self.attempts.held_by else { return false };
        match self.has_untried_holder() {
            true => by.first.wait <= ROUND_PAUSE_CAP || self.is_in_doubt(),
            false => !self.attempts.has_something_to_say() && by.first.wait <= ROUND_PAUSE_BASE,
        }
    }

    /// Whether an upstream that is well and was not asked yet holds the call so briefly that waiting
    /// is better than trying one that is known to refuse it. That refusal would cost a call, and
    /// would divide a search that the first upstream accepts whole.
    fn has_untried_holder_for_a_moment(&self) -> bool {
        self.attempts.held_by.is_some_and(|by| by.first.wait <= ROUND_PAUSE_CAP)
            && self.has_untried_holder()
    }

    /// Whether an upstream holds the call that is well and was not asked yet. What others said
    /// of missing data, or how they failed, must not speak for that one.
    fn has_untried_holder(&self) -> bool {
        self.is_held_by_new(Candidate::is_well)
    }

    /// Whether an upstream of which `is_one` is true holds the call and was not asked since it last
    /// came back.
    fn is_held_by_new(&self, is_one: impl Fn(&Candidate) -> bool) -> bool {
        self.attempts.held_by.is_some_and(|by| {
            self.candidates.all().any(|it| by.slots.contains(it.slot) && it.is_new && is_one(&it))
        })
    }

    /// All upstreams that are worth waiting for. The last attempt is kept for one that is well and
    /// was not asked yet, however soon one would take the call that refused it before.
    pub(crate) fn holders(&self) -> Option<Holders> {
        let is_last = self.attempts.count() + 1 >= self.terms.bounds.attempts_max.max(1);
        let only_new = is_last && self.has_untried_holder();
        let worth_it = || self.candidates.all().filter(|it| !only_new || it.is_new);
        let slots: UpstreamSet = worth_it().map(|it| it.slot).collect();
        let held_by = self.attempts.held_by.map(|by| by.among(slots));
        worth_it().fold(held_by, |by, candidate| match candidate.pause {
            Some(held) => Some(Holders::and(by, candidate.slot, held)),
            None => by,
        })
    }

    /// The best upstream that is fit, was not asked since it last came back, and is still well.
    /// That may be the one that is awaited, once it rested and came back. One of a dearer tier
    /// only where the call crosses tiers.
    fn hedge_candidate(&self, awaited: &AwaitedAttempt) -> Option<Slot> {
        if self.attempts.count() + 1 >= self.terms.bounds.attempts_max {
            return None;
        }
        let crosses_tiers = awaited.is_lost || awaited.is_quiet;
        let is_good = |it: &Candidate| {
            (it.slot != awaited.slot || awaited.came_back)
                && (crosses_tiers || self.is_in_scope(it.tier, awaited.tier))
                && it.is_fit()
                && it.is_new
                // A hedge that would be held is none.
                && it.condition == Condition::Ready
                && it.has_rate
        };
        let good = || self.candidates.all().filter(is_good).map(|it| it.slot);
        // One that had the pause it asked for is as good as new, and still it refused once.
        good().find(|slot| !self.attempts.has_asked(*slot)).or_else(|| good().next())
    }

    /// Whether the call may be made once more, and nothing was said that a client can be told.
    fn may_wait_for_return(&self) -> bool {
        let Self { attempts, terms, .. } = self;
        let is_read = terms.job.row.effect == Effect::Read && terms.job.row.idempotent;
        is_read && !attempts.no_room && !attempts.has_something_to_say() && !self.is_unoffered()
    }

    /// Whether an upstream lacks it that was known to be behind, and another one may have it.
    fn may_be_found(&self) -> bool {
        self.lacks_data()
            && !self.attempts.no_room
            && !self.is_missing_where_it_should_be()
            && self.new_and_ready().is_some()
    }

    /// An upstream that is well and was not asked since it came back.
    fn new_and_ready(&self) -> Option<Slot> {
        let mut all = self.candidates.all();
        all.find(|it| it.is_up() && it.is_ready() && it.is_new).map(|it| it.slot)
    }

    /// An upstream that is well and was not asked since it came back, at no cost. Else one that was
    /// asked and may have failed for a moment only, for a token.
    fn returned(&self) -> Option<(Slot, AttemptPrice)> {
        if let Some(slot) = self.new_and_ready() {
            return Some((slot, AttemptPrice::Nothing));
        }
        let mut known = self.candidates.all().filter(|it| it.is_up() && it.is_ready());
        let known = known.find(|it| self.attempts.may_have_been_a_moment(it.slot))?;
        Some((known.slot, AttemptPrice::Retry))
    }

    /// Whether one of the upstreams began to fail a short time ago, or is well but for a pause
    /// that is nearly over or for what asking it again costs.
    fn may_heal(&self) -> bool {
        let mut offering = self.candidates.all().filter(|it| !self.refuses(it));
        offering.any(|candidate| match (candidate.outage, candidate.condition) {
            (Some(outage), _) => outage < OUTAGE_IS_NEW,
            (None, Condition::Ready | Condition::Throttled) => match candidate.pause {
                Some(held) => held.wait < RETURN_WAIT,
                None => self.attempts.no_turn.is_none(),
            },
            (None, _) => false,
        })
    }
}

/// Whether the bound lets the next call go at a known time, or is likely to within a moment, as
/// one of many connections comes free. When one of a few calls under way ends is not known.
fn is_timed(bound: Bound) -> bool {
    match bound {
        Bound::Pause
        | Bound::MethodPause
        | Bound::Study
        | Bound::Credits
        | Bound::Calls
        | Bound::LearntRate
        | Bound::MethodRate
        | Bound::Queue
        | Bound::Connections
        | Bound::BulkyShare => true,
        Bound::Day | Bound::Month | Bound::InFlight | Bound::LearntLimit | Bound::ClientShare => {
            false
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
