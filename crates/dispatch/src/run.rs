//! The loop over the steps of a call: [`crate::decide`] says what to do next, and here it is done.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use rand::Rng;
use wellhead_eth::{Effect, MethodRow};
use wellhead_jsonrpc::write;
use wellhead_route::{Plan, Roster};
use wellhead_upstream::{CALL_ID, InFlight, LimitedBy, Slot, Upstream};

use crate::attempt::{AttemptDeadline, AttemptResult, SingleCall};
use crate::attempts::{Attempts, Consequence, Position, StepResult};
use crate::bounds::Bounds;
use crate::candidate::Survey;
use crate::client_id::ClientId;
use crate::context::RunContext;
use crate::decide::{
    AttemptPrice, CallStep, CallTerms, Decision, SendStep, TurnStep, WaitScope, next,
};
use crate::job::Job;
use crate::now;
use crate::outcome::{Failure, Outcome};
use crate::wait_queue::{Claim, latest_turn};
use crate::worker_upstreams::WorkerUpstreams;

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
    let mut run = Run { job, bodies: CallBodies::default(), attempts: Attempts::default() };
    worker.retry_budget().count_call();
    let context = RunContext { plan, roster, worker, bounds };
    let end = match job.ballot {
        // Boxed, as few calls need several.
        Some(ballot) => Box::pin(run.by_quorum(context, ballot)).await,
        None => run.by_one(context).await,
    };
    let served = match end {
        Consequence::Serve => run.attempts.serve(),
        Consequence::GoOn | Consequence::Stop => None,
    };
    let result = match served {
        Some(served) => Ok(served),
        None if plan.is_unoffered() && plan.candidates().is_empty() => Err(Failure::NotOffered),
        None if plan.candidates().is_empty() => Err(Failure::EmptyPlan),
        None => run.attempts.give_up(job, now()),
    };
    Outcome { result, trail: run.attempts.trail }
}

/// A call as it goes to upstreams, each form written when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct CallBodies {
    usual: OnceLock<Bytes>,
    at_hash: OnceLock<Bytes>,
}

impl CallBodies {
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

/// The body under our id: the client's own never travels.
fn wire_body(method: &str, params: Option<&[u8]>) -> Bytes {
    let mut body = Vec::with_capacity(64 + method.len() + params.map_or(2, <[u8]>::len));
    write::call(&mut body, CALL_ID, method, params);
    Bytes::from(body)
}

/// One run: the call, and what happened to it.
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) bodies: CallBodies,
    pub(crate) attempts: Attempts,
}

impl<'r> Run<'r> {
    /// Asks one after the other until one answers.
    async fn by_one(&mut self, context: RunContext<'_>) -> Consequence {
        if self.job.row.effect == Effect::Broadcast {
            match Box::pin(self.broadcast(context)).await {
                Some(Consequence::Serve) => return Consequence::Serve,
                Some(Consequence::GoOn | Consequence::Stop) => {
                    self.attempts.position = Position::Over;
                }
                None => self.attempts.begin_round(0, 0),
            }
        }
        self.follow(context, false).await
    }

    /// Executes the steps of the call, or of what one tier is asked, until it ends.
    pub(crate) async fn follow(
        &mut self,
        context: RunContext<'_>,
        is_one_tier: bool,
    ) -> Consequence {
        loop {
            let admitted = match self.decide(context, is_one_tier) {
                CallStep::Finish(end) => return end,
                CallStep::Send(step) => self.admit_step(context, step),
                // Boxed, as few calls wait.
                step => Box::pin(self.prepare(context, step)).await,
            };
            self.attempts.result = match admitted {
                Ok((slot, in_flight)) => StepResult::Sent(self.ask(context, slot, in_flight).await),
                Err(result) => result,
            };
        }
    }

    /// Executes a step that leads to no attempt, or to one after a wait.
    pub(crate) async fn prepare(
        &mut self,
        context: RunContext<'_>,
        step: CallStep,
    ) -> Result<(Slot, InFlight), StepResult> {
        match step {
            CallStep::BeginRound { round, kept } => self.attempts.begin_round(round, kept),
            CallStep::Hold { slot, held } => {
                context.roster.upstream(slot).note_held(held.bound);
                self.attempts.hold(slot, held);
            }
            CallStep::Pause { until } => tokio::time::sleep_until(until.into()).await,
            CallStep::Send(step) => return self.admit_step(context, step),
            CallStep::Turn(step) => return self.turn(context, step).await,
            CallStep::Finish(_) => {}
        }
        Err(StepResult::Done)
    }

    fn decide(&mut self, context: RunContext<'_>, is_one_tier: bool) -> CallStep {
        let now = now();
        let draw = |range| context.worker.with_rng(|rng| rng.random_range(range));
        let terms = self.terms(context, is_one_tier);
        let survey = self.survey(context, now);
        let Decision { step, position, is_spent } = next(&self.attempts, &survey, terms, now, draw);
        self.attempts.position = position;
        self.attempts.is_spent |= is_spent;
        step
    }

    pub(crate) fn terms<'a>(&self, context: RunContext<'a>, is_one_tier: bool) -> CallTerms<'a>
    where
        'r: 'a,
    {
        CallTerms { job: self.job, bounds: context.bounds, is_one_tier }
    }

    pub(crate) fn survey<'a>(&'a self, context: RunContext<'a>, now: Instant) -> Survey<'a> {
        Survey { context, job: self.job, trail: &self.attempts.trail, now }
    }

    /// Pays for an attempt, and lets the call go to its upstream.
    fn admit_step(
        &mut self,
        context: RunContext<'_>,
        step: SendStep,
    ) -> Result<(Slot, InFlight), StepResult> {
        let (now, SendStep { slot, price, gives_way }) = (now(), step);
        if !try_pay(context, price, now) {
            return Err(StepResult::Unpaid);
        }
        let Some(in_flight) = self.admit(context, slot, now) else {
            return Err(StepResult::Held);
        };
        // Since the plan was made another call has begun to find out whether it is back.
        match gives_way && in_flight.is_second_on_trial() {
            true => Err(StepResult::Done),
            false => Ok((slot, in_flight)),
        }
    }

    /// Lets the call go to `slot`, or remembers what holds it.
    pub(crate) fn admit(
        &mut self,
        context: RunContext<'_>,
        slot: Slot,
        now: Instant,
    ) -> Option<InFlight> {
        if !self.check_allowance(context) {
            return None;
        }
        let (row, worker) = (self.job.row, context.worker);
        let upstream = context.roster.upstream(slot);
        let claim = Claim::of(row, self.job.client());
        match worker.wait_queue().admit(
            upstream,
            claim,
            try_admit(worker, row, self.job.client()),
            now,
        ) {
            Ok(in_flight) => {
                self.begin(slot);
                Some(in_flight)
            }
            Err(held) => {
                self.attempts.hold(slot, held);
                None
            }
        }
    }

    /// Pays for a wait in the queue, and waits until an upstream lets the call go.
    pub(crate) async fn turn(
        &mut self,
        context: RunContext<'_>,
        step: TurnStep,
    ) -> Result<(Slot, InFlight), StepResult> {
        let TurnStep { by, until, price, scope } = step;
        if !try_pay(context, price, now()) {
            return Err(StepResult::Unpaid);
        }
        let RunContext { plan, roster, worker, .. } = context;
        let (candidates, row) = (plan.candidates(), self.job.row);
        let latest = match scope {
            WaitScope::Cheaper => {
                self.attempts.has_waited_for_cheaper = true;
                until
            }
            WaitScope::All | WaitScope::OneTier => latest_turn(candidates, by, roster, until),
        };
        let claim = Claim::of(row, self.job.client());
        let queue = worker.wait_queue();
        let turn = queue.wait(
            candidates,
            by,
            claim,
            try_admit(worker, row, self.job.client()),
            roster,
            latest,
        );
        match turn.await {
            // Others of the same request may have spent it meanwhile.
            Ok(_) if !self.check_allowance(context) => Err(StepResult::NoTurn),
            Ok((slot, in_flight)) => {
                self.begin(slot);
                if scope != WaitScope::Cheaper {
                    self.attempts.held_by = by.without([slot].into_iter().collect());
                }
                Ok((slot, in_flight))
            }
            Err(no_turn) => {
                // Without a turn at a cheaper tier nothing was lost but the moment, and another
                // tier may let the call go.
                if scope == WaitScope::All {
                    self.attempts.no_turn = Some(no_turn);
                }
                Err(StepResult::NoTurn)
            }
        }
    }

    /// True when the request can still pay for an exchange of this call; notes when it cannot.
    pub(crate) fn check_allowance(&mut self, context: RunContext<'_>) -> bool {
        let is_left = self.terms(context, false).may_begin(self.attempts.begun);
        self.attempts.is_spent |= !is_left;
        is_left
    }

    /// Notes that an exchange with `slot` begins, and pays for it.
    fn begin(&mut self, slot: Slot) {
        if let Some(progress) = self.job.progress {
            if self.attempts.begun > 0 || !self.job.is_first_paid {
                progress.allowance().take(1);
            }
            progress.begin(slot);
        }
        self.attempts.begun += 1;
    }

    /// An attempt at `slot` ended.
    pub(crate) fn end(
        &mut self,
        context: RunContext<'_>,
        slot: Slot,
        settled: AttemptResult,
    ) -> Consequence {
        self.attempts.end(self.job, slot, context.tier(slot), settled)
    }

    /// The call as it goes to `slot`.
    pub(crate) fn single_call<'a>(&self, context: RunContext<'a>, slot: Slot) -> SingleCall<'a>
    where
        'r: 'a,
    {
        SingleCall {
            row: self.job.row,
            body: self.bodies.of(self.job, slot),
            upstream: context.roster.upstream(slot),
            transport: context.worker.transport(slot),
            origin: self.job.traced(),
        }
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
}

/// Takes what an attempt costs; false when there is not enough.
pub(crate) fn try_pay(context: RunContext<'_>, price: AttemptPrice, now: Instant) -> bool {
    let budget = context.worker.retry_budget();
    match price {
        AttemptPrice::Nothing => true,
        AttemptPrice::Counted => {
            budget.note_free_retry(now);
            true
        }
        AttemptPrice::Retry => budget.spend_retry(now),
        AttemptPrice::Hedge => budget.spend_hedge(now),
    }
}

fn try_admit(
    worker: &WorkerUpstreams,
    row: &MethodRow,
    client: Option<ClientId>,
) -> impl Fn(&Arc<Upstream>, Instant) -> Result<InFlight, LimitedBy> {
    move |upstream, now| {
        worker.try_admit(upstream, std::iter::once(row), row.class.is_heavy(), client, now)
    }
}
