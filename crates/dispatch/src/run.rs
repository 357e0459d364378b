//! The loop over candidates.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::Rng;
use wellhead_eth::{Effect, MethodRow};
use wellhead_jsonrpc::write;
use wellhead_route::{Plan, Roster};
use wellhead_transport::{Rest, Sent};
use wellhead_upstream::{Condition, Learnt, Payload, Slot, TryElsewhere, Verdict, VerdictClass};

use crate::allowance::Allowance;
use crate::attempt::{AttemptDeadline, Settled};
use crate::bounds::Bounds;
use crate::context::RunContext;
use crate::job::Job;
use crate::now;
use crate::outcome::{Failure, Outcome, Served};
use crate::trail::{Attempt, Trail};
use crate::wait_queue::{Holders, NoTurn};
use crate::worker_upstreams::WorkerUpstreams;

/// The id that every single call carries upstream; the client's own never travels.
const CALL_ID: u64 = 1;
/// The candidates are gone through at most so often: the second time and the third heal
/// what was a moment's fault when there is nobody else to ask.
const ROUNDS_MAX: u32 = 3;
/// The pause before the second round is drawn below this, the next below twice as much,
/// and so on (full jitter).
pub(crate) const ROUND_PAUSE_BASE: Duration = Duration::from_millis(100);
/// No pause is drawn from more.
pub(crate) const ROUND_PAUSE_CAP: Duration = Duration::from_secs(1);
/// Tries the candidates of `plan` until one settles `job`.
///
/// Resolves at `job.deadline` at the latest. Cancel-safe: dropping the future ends
/// the attempt under way and its count.
pub async fn run(
    job: &Job<'_>,
    plan: &Plan,
    roster: &Roster,
    worker: &WorkerUpstreams,
    bounds: &Bounds,
) -> Outcome {
    let mut run = Run {
        job,
        bodies: Bodies::default(),
        trail: Trail::default(),
        best: None,
        rest: None,
        retry_after: None,
        is_throttled: false,
        held_by: None,
        no_turn: None,
        opinion: None,
        is_agreed: false,
        no_room: false,
        has_waited_for_cheaper: false,
        dispute: None,
        begun: 0,
        is_spent: false,
    };
    worker.budgets().count_call();
    let context = RunContext { plan, roster, worker, bounds };
    let next = match job.ballot {
        // Boxed, as few calls need several.
        Some(ballot) => Box::pin(run.by_quorum(context, ballot)).await,
        None => run.by_one(context).await,
    };
    let served = match next {
        Next::Serve => run.serve(),
        Next::Another | Next::Stop => None,
    };
    let result = match served {
        Some(served) => Ok(served),
        None => run.give_up(plan),
    };
    Outcome { result, trail: run.trail }
}

/// A call as it goes to upstreams, each form written when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    usual: OnceLock<Bytes>,
    at_hash: OnceLock<Bytes>,
}

impl Bodies {
    /// The body for the upstream in `slot`.
    pub(crate) fn of(&self, job: &Job<'_>, slot: Slot) -> Bytes {
        let at_hash = job.at_hash.filter(|at_hash| at_hash.honoured_by.contains(slot));
        let (written, params) = match at_hash {
            Some(at_hash) => (&self.at_hash, Some(at_hash.params)),
            None => (&self.usual, job.params),
        };
        written.get_or_init(|| wire_body(job.method, params)).clone()
    }
}

fn wire_body(method: &str, params: Option<&[u8]>) -> Bytes {
    let mut body = Vec::with_capacity(64 + method.len() + params.map_or(2, <[u8]>::len));
    write::call(&mut body, CALL_ID, method, params);
    Bytes::from(body)
}

/// The state of one run: only what the next decision needs.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) bodies: Bodies,
    pub(crate) trail: Trail,
    /// The most telling failure so far, to fall back on.
    pub(crate) best: Option<(Slot, Verdict)>,
    /// What follows the beginning of the best, when it is a large answer.
    rest: Option<Box<dyn Rest>>,
    pub(crate) retry_after: Option<Duration>,
    /// Somebody was not asked because it wants to be left alone.
    pub(crate) is_throttled: bool,
    /// Who held the call in this round.
    pub(crate) held_by: Option<Holders>,
    /// Nobody would let the call go in time.
    pub(crate) no_turn: Option<NoTurn>,
    /// The last verdict that asked for a second opinion.
    opinion: Option<VerdictClass>,
    /// A second upstream was of the same opinion, which may yet be a fault of both.
    is_agreed: bool,
    /// There was an answer, and no room to hold it.
    pub(crate) no_room: bool,
    /// It waited for a cheaper tier before it asked a dearer one.
    pub(crate) has_waited_for_cheaper: bool,
    /// Those who had to agree do not.
    pub(crate) dispute: Option<Failure>,
    /// Exchanges that began.
    begun: u32,
    /// Another exchange was wanted, and the request may make none.
    is_spent: bool,
}

/// What to do after an attempt.
pub(crate) enum Next {
    /// Pass the best on.
    Serve,
    /// Ask the next candidate.
    Another,
    /// Nobody may be asked any more.
    Stop,
}

impl Run<'_> {
    /// Asks one after the other until one answers.
    async fn by_one(&mut self, context: RunContext<'_>) -> Next {
        match self.through(context).await {
            Next::Another | Next::Stop if self.may_wait_for_return(context) => {
                Box::pin(self.wait_for_return(context)).await
            }
            next => next,
        }
    }

    async fn through(&mut self, context: RunContext<'_>) -> Next {
        if self.job.row.effect == Effect::Broadcast
            && let Some(next) = Box::pin(self.broadcast(context)).await
        {
            return next;
        }
        for round in 0..ROUNDS_MAX {
            if round > 0 && !Box::pin(self.pause_before_round(context, round)).await {
                break;
            }
            match self.round(context, round).await {
                Next::Another if self.is_unoffered(context) => return Next::Stop,
                Next::Another => {}
                end => return end,
            }
            if self.is_held_briefly(context) {
                match Box::pin(self.wait_for_a_turn(context)).await {
                    Next::Another => {}
                    end => return end,
                }
            }
        }
        // Boxed: few calls wait, and those that do not should not carry its state.
        if (self.held_by.is_some() || self.retry_after.is_some())
            && let Next::Serve = Box::pin(self.wait_for_a_turn(context)).await
        {
            return Next::Serve;
        }
        Next::Another
    }

    /// Asks the candidates in their order, each at most once.
    pub(crate) async fn round(&mut self, context: RunContext<'_>, round: u32) -> Next {
        let RunContext { plan, bounds, .. } = context;
        // Those who failed are not asked so often that nothing is left for whoever is well
        // and only busy.
        let kept = usize::from(round > 0 && self.has_untried_holder(context));
        self.held_by = None;
        // Those behind them are known to refuse such a call: for its size, its age or its method.
        let accepting = plan.up() + plan.unwell().len();
        for (place, slot) in plan.candidates().iter().copied().enumerate() {
            if self.check_over(context) {
                return Next::Stop;
            }
            if self.asked() + kept >= bounds.attempts_max && self.has_asked(slot) {
                continue;
            }
            let is_back = self.is_back(context, slot, now());
            let is_fit = place < plan.fit() || is_back;
            let is_well = place < plan.well() || is_back;
            let is_known = self.has_asked(slot);
            if self.is_agreed && (!is_fit || is_known) {
                continue;
            }
            if !is_well && self.has_something_to_say() && !self.may_mend(context, slot) {
                continue;
            }
            if place >= accepting && !is_back && self.has_untried_holder_for_a_moment(context) {
                continue;
            }
            let is_worth_it =
                if round == 0 { !is_known } else { self.may_have_been_a_moment(slot) };
            if !is_worth_it || (round > 0 && self.is_another_readier(context, slot)) {
                continue;
            }
            if !self.may_have_opinion_of(context, slot) {
                continue;
            }
            if self.may_be_cheaper(context, slot) {
                match Box::pin(self.wait_for_cheaper(context, slot)).await {
                    Next::Another if self.check_over(context) => return Next::Stop,
                    Next::Another => {}
                    end => return end,
                }
            }
            let now = now();
            if now >= self.job.deadline {
                return Next::Stop;
            }
            if self.note_if_paused(context, slot, now)
                || !self.try_spend(
                    context,
                    (place < plan.up() || is_back)
                        && self.is_new_to(context, slot)
                        && !self.is_agreed,
                    now,
                )
            {
                continue;
            }
            let Some(in_flight) = self.admit(context, slot, now) else { continue };
            // Since the plan was made another call has begun to find out whether it is back.
            if in_flight.is_second_on_trial() && place + 1 < plan.fit() {
                continue;
            }
            match self.ask(context, slot, in_flight).await {
                Next::Another => {}
                end => return end,
            }
        }
        Next::Another
    }

    /// Pays for an attempt; false when there is no token. See [`crate::Budgets`] for the rule.
    fn try_spend(&self, context: RunContext<'_>, is_new_and_up: bool, now: Instant) -> bool {
        let budgets = context.worker.budgets();
        if self.asked() == 0 {
            return true;
        }
        if is_new_and_up {
            budgets.note_free_retry(now);
            return true;
        }
        budgets.spend_retry(now)
    }

    /// True when the call may make no further exchange: it has had its attempts, or
    /// [`Self::check_allowance`] finds none left.
    pub(crate) fn check_over(&mut self, context: RunContext<'_>) -> bool {
        self.asked() >= context.bounds.attempts_max.max(1) || !self.check_allowance()
    }

    /// True when the request can still pay for an exchange of this call; notes when it cannot.
    pub(crate) fn check_allowance(&mut self) -> bool {
        let is_left = self.job.allowance().is_none_or(|allowance| match self.begun {
            0 => self.job.is_first_paid || allowance.left() > 0,
            _ => allowance.to_spare() > 0,
        });
        self.is_spent |= !is_left;
        is_left
    }

    /// Notes that an exchange with `slot` begins, and pays for it.
    pub(crate) fn begin(&mut self, slot: Slot) {
        if let Some(progress) = self.job.progress {
            if self.begun > 0 || !self.job.is_first_paid {
                progress.allowance().take(1);
            }
            progress.begin(slot);
        }
        self.begun += 1;
    }

    /// Attempts so far, those that nobody waited for included.
    pub(crate) fn asked(&self) -> usize {
        self.trail.attempts.len() + self.trail.abandoned.len()
    }

    /// Whether the call went to `slot` before.
    pub(crate) fn has_asked(&self, slot: Slot) -> bool {
        self.trail.attempts.iter().any(|attempt| attempt.slot == slot)
            || self.trail.abandoned.iter().any(|attempt| attempt.slot == slot)
    }

    pub(crate) fn time_limit(
        &self,
        context: RunContext<'_>,
        slot: Slot,
        now: Instant,
    ) -> AttemptDeadline<'static> {
        let own = context.roster.upstream(slot).identity().attempt;
        context.bounds.time_limit(own, self.job.row.class, now, self.job.deadline)
    }

    /// Whether asking this candidate a second time could help.
    pub(crate) fn may_have_been_a_moment(&self, slot: Slot) -> bool {
        let last = self.trail.attempts.iter().rev().find(|attempt| attempt.slot == slot);
        last.is_none_or(|attempt| attempt.class.may_pass())
    }

    fn serve(&mut self) -> Option<Served> {
        let (slot, verdict) = self.best.take()?;
        Some(Served::new(slot, verdict, self.rest.take()))
    }

    /// Passes this on.
    pub(crate) fn serve_this(&mut self, slot: Slot, verdict: Verdict) {
        (self.best, self.rest) = (Some((slot, verdict)), None);
    }

    /// Records the attempt.
    pub(crate) fn note(&mut self, slot: Slot, settled: &Settled) {
        let Settled { verdict, began, ended, .. } = settled;
        let class = verdict.class;
        self.trail.attempts.push(Attempt {
            slot,
            after: began.saturating_duration_since(self.job.received_at),
            took: ended.saturating_duration_since(*began),
            class,
            rule: verdict.rule,
            learnt: verdict.learnt,
            detail: if class.is_answer() { String::new() } else { verdict.detail() },
        });
    }

    /// Records the attempt and decides what comes next.
    pub(crate) fn after(&mut self, slot: Slot, settled: Settled) -> Next {
        self.note(slot, &settled);
        let Settled { verdict, sent, rest, no_room, .. } = settled;
        let class = verdict.class;
        let elsewhere = match class {
            VerdictClass::Null if self.job.null_is_final => TryElsewhere::No,
            VerdictClass::Null if self.job.is_there => TryElsewhere::Yes,
            _ => verdict.elsewhere,
        };
        if no_room {
            self.no_room = true;
            return Next::Stop;
        }
        if let Some(pause) = verdict.retry_after {
            self.retry_after = Some(self.retry_after.map_or(pause, |least| least.min(pause)));
        }
        // Among equals the first is kept, unless the later one is final. A used nonce may be
        // this very transaction's, which can be looked up: no other refusal hides it.
        let is_final = elsewhere == TryElsewhere::No;
        let better = self.best.as_ref().is_none_or(|(_, best)| {
            let (new, old) = (class.telling(), best.class.telling());
            let can_be_looked_up = best.learnt == Some(Learnt::MaybeMined);
            new > old || (new == old && is_final && !can_be_looked_up)
        });
        if better {
            self.best = Some((slot, verdict));
            self.rest = rest;
        }
        match elsewhere {
            // Stops when something more telling came before, which is then passed on.
            TryElsewhere::No => return if better { Next::Serve } else { Next::Stop },
            // A fault that two share by chance looks like this as well: a third opinion is had
            // where it is paid for.
            TryElsewhere::Once if self.opinion == Some(class) && class.may_be_a_fault() => {
                self.is_agreed = true;
            }
            TryElsewhere::Once if self.opinion == Some(class) => return Next::Stop,
            TryElsewhere::Once => self.opinion = Some(class),
            TryElsewhere::Yes => {}
        }
        if may_repeat(self.job.row, sent) { Next::Another } else { Next::Stop }
    }

    /// Whether `slot` may be asked after what was said so far. Where that is a null of which a
    /// second opinion is wanted, no dearer tier is asked for it.
    fn may_have_opinion_of(&self, context: RunContext<'_>, slot: Slot) -> bool {
        let Some((of, verdict)) = &self.best else { return true };
        let is_opinion = verdict.class == VerdictClass::Null && !self.job.is_there;
        !is_opinion || context.is_in_scope(slot, context.tier(*of))
    }

    /// Whether an upstream already said something that a client can be told.
    pub(crate) fn has_something_to_say(&self) -> bool {
        self.best.as_ref().is_some_and(|(_, verdict)| verdict.class.is_tellable())
    }

    /// Whether what was said so far says nothing of somebody who is well, was not asked yet
    /// and, as far as is known, holds what is asked for: that one is worth waiting for.
    pub(crate) fn is_in_doubt(&self, context: RunContext<'_>) -> bool {
        let Some((_, verdict)) = &self.best else { return false };
        let mut holding = self.holding_now(context, now());
        // One opinion is none.
        let is_open = match verdict.class == VerdictClass::Unknown {
            true => !self.is_agreed,
            false => self.lacks_data() && !self.is_missing_where_it_should_be(context),
        };
        is_open && holding.any(|slot| !self.has_asked(slot))
    }

    /// Whether a last resort may have what all others lack: one that comes back just now or
    /// is well otherwise, or any, while those who lack it were known to be behind. Whoever is
    /// well otherwise may also have the second opinion that an unknown error needs.
    fn may_mend(&self, context: RunContext<'_>, slot: Slot) -> bool {
        let condition = || context.roster.upstream(slot).condition(now());
        if self.lacks_data() {
            return !self.is_missing_where_it_should_be(context)
                || matches!(condition(), Condition::HalfOpen | Condition::Ready);
        }
        let is_unknown = |verdict: &Verdict| verdict.class == VerdictClass::Unknown;
        self.best.as_ref().is_some_and(|(_, verdict)| is_unknown(verdict))
            && !self.is_agreed
            && condition() == Condition::Ready
    }

    /// Whether the most telling word so far is that the range or the filter is too large.
    pub(crate) fn is_too_large(&self) -> bool {
        self.best.as_ref().is_some_and(|(_, verdict)| {
            matches!(verdict.class, VerdictClass::RangeTooLarge | VerdictClass::FilterTooLarge)
        })
    }

    /// Whether the most telling word so far is that something is not there.
    pub(crate) fn lacks_data(&self) -> bool {
        self.best.as_ref().is_some_and(|(_, verdict)| {
            verdict.class == VerdictClass::MissingData
                || (verdict.class == VerdictClass::Null && self.job.is_there)
        })
    }

    /// Whether somebody lacks it who was to have it.
    pub(crate) fn is_missing_where_it_should_be(&self, context: RunContext<'_>) -> bool {
        let holding = &context.plan.candidates()[..context.plan.holding()];
        let lacks = |class| matches!(class, VerdictClass::MissingData | VerdictClass::Null);
        let mut attempts = self.trail.attempts.iter();
        attempts.any(|attempt| lacks(attempt.class) && holding.contains(&attempt.slot))
    }

    /// Pauses before going round again; false when that would not help.
    async fn pause_before_round(&mut self, context: RunContext<'_>, round: u32) -> bool {
        let is_over = self.check_over(context);
        let tried = &self.trail.attempts;
        if self.has_something_to_say()
            || is_over
            || !tried.iter().any(|attempt| self.may_have_been_a_moment(attempt.slot))
        {
            return false;
        }
        let most = ROUND_PAUSE_BASE.saturating_mul(1 << (round - 1)).min(ROUND_PAUSE_CAP);
        let pause = context.worker.with_rng(|rng| rng.random_range(Duration::ZERO..most));
        if now() + pause >= self.job.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    /// What the request could cost, if the call ends for want of it.
    fn spent(&self) -> Option<u32> {
        self.job.allowance().filter(|_| self.is_spent).map(Allowance::max_of_whole)
    }

    fn give_up(&mut self, plan: &Plan) -> Result<Served, Failure> {
        if plan.candidates().is_empty() {
            return Err(match plan.is_unoffered() {
                true => Failure::NotOffered,
                false => Failure::NobodyToAsk,
            });
        }
        if self.no_room {
            return Err(Failure::NoRoom);
        }
        if let Some(dispute) = self.dispute {
            return Err(dispute);
        }
        match self.best.take() {
            Some((slot, verdict)) if passes_on(&verdict) => Ok(Served::new(slot, verdict, None)),
            Some(_) | None if let Some(max) = self.spent() => Err(Failure::CallsSpent { max }),
            Some(_) if now() >= self.job.deadline => Err(Failure::Deadline),
            Some((_, verdict)) => {
                Err(Failure::Exhausted { class: verdict.class, retry_after: self.retry_after })
            }
            None => Err(match (self.throttled(), self.no_turn) {
                (Some(class), _) => Failure::Exhausted { class, retry_after: self.retry_after },
                (None, Some(NoTurn { bound, retry_after })) => Failure::Held { bound, retry_after },
                (None, None) => Failure::Deadline,
            }),
        }
    }
}

/// A call that may have run is repeated only when running it twice is harmless.
fn may_repeat(row: &MethodRow, sent: Sent) -> bool {
    match (sent, row.effect) {
        (Sent::No, _) | (Sent::Maybe, Effect::Broadcast) => true,
        (Sent::Maybe, Effect::Read | Effect::Sticky | Effect::Local) => row.idempotent,
        (Sent::Maybe, Effect::Write | Effect::Subscribe) => false,
    }
}

/// Whether the upstream's own words are good for the client when all failed.
fn passes_on(verdict: &Verdict) -> bool {
    let has_words = match verdict.payload {
        Payload::Result(_) | Payload::Error(_) => true,
        Payload::None { .. } => false,
    };
    has_words && !verdict.class.is_between_us_and_the_upstream()
}
