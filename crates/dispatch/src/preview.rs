//! What a call would do next, and next after that, without doing any of it: the steps of
//! [`crate::decide`] where each attempt fails before the call is sent.
//!
//! It decides as a call does, in the order in which a call does, on the candidates as they stand at
//! this moment: nothing is sent, counted, paid for or waited for. What depends on how an upstream fails
//! is not foreseen, nor are second attempts beside one that takes long.

use std::time::{Duration, Instant};

use wellhead_eth::Effect;
use wellhead_route::{Plan, Roster};
use wellhead_transport::Sent;
use wellhead_upstream::{Bound, Payload, Slot, Verdict, VerdictClass};

use crate::attempt::AttemptResult;
use crate::attempts::{Attempts, Position, StepResult};
use crate::bounds::Bounds;
use crate::candidate::Survey;
use crate::context::RunContext;
use crate::decide::{AttemptPrice, CallStep, CallTerms, Decision, next};
use crate::job::Job;
use crate::worker_upstreams::WorkerUpstreams;

/// A preview is no longer. Three rounds of all candidates with a pause each are shorter wherever
/// attempts are few.
const STEPS_MAX: usize = 64;
/// Decisions looked at; one that only looks again is part of the pause before it.
const DECISIONS_MAX: usize = 512;

/// One thing that a call would do if all before it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviewStep {
    /// It goes to this upstream.
    Ask {
        /// Which one.
        slot: Slot,
        /// It takes a token of the retries; without one it is not made.
        takes_token: bool,
    },
    /// This upstream is passed over.
    Held {
        /// Which one.
        slot: Slot,
        /// What holds its calls.
        bound: Bound,
        /// For about how long.
        wait: Duration,
    },
    /// It waits for its turn at the upstreams that hold it.
    Turn {
        /// The longest wait.
        most: Duration,
    },
    /// It pauses before it goes through the candidates again.
    Pause {
        /// The longest pause that the draw allows.
        most: Duration,
    },
    /// It waits for an upstream that comes back.
    Return {
        /// The longest wait.
        most: Duration,
    },
}

/// What `job` would do from `now` on. Empty for calls whose first step is not one upstream: raw
/// transactions, and calls that several upstreams have to answer alike.
pub fn preview(
    job: &Job<'_>,
    plan: &Plan,
    roster: &Roster,
    worker: &WorkerUpstreams,
    bounds: &Bounds,
    now: Instant,
) -> Vec<PreviewStep> {
    if job.ballot.is_some() || job.row.effect == Effect::Broadcast {
        return Vec::new();
    }
    let context = RunContext { plan, roster, worker, bounds };
    let mut preview = Preview { job, context, attempts: Attempts::default(), now, steps: vec![] };
    for _ in 0..DECISIONS_MAX {
        if preview.steps.len() == STEPS_MAX || !preview.advance() {
            break;
        }
    }
    preview.steps
}

struct Preview<'a> {
    job: &'a Job<'a>,
    context: RunContext<'a>,
    attempts: Attempts,
    now: Instant,
    steps: Vec<PreviewStep>,
}

impl Preview<'_> {
    /// Takes one decision; false at the end of the call.
    fn advance(&mut self) -> bool {
        let Self { job, context, now, .. } = *self;
        let terms = CallTerms { job, bounds: context.bounds, is_one_tier: false };
        let survey = Survey { context, job, trail: &self.attempts.trail, now };
        let Decision { step, position, .. } =
            next(&self.attempts, &survey, terms, now, |range| range.end);
        self.attempts.position = position;
        self.attempts.result = StepResult::Done;
        match step {
            CallStep::Finish(_) => return false,
            CallStep::BeginRound { round, kept } => self.attempts.begin_round(round, kept),
            CallStep::Hold { slot, held } => {
                self.attempts.hold(slot, held);
                self.steps.push(PreviewStep::Held { slot, bound: held.bound, wait: held.wait });
            }
            CallStep::Pause { until } => self.pause(until),
            CallStep::Turn(turn) => {
                let most = turn.until.saturating_duration_since(now);
                self.steps.push(PreviewStep::Turn { most });
                self.now = turn.until;
                self.attempts.has_waited_for_cheaper = true;
                self.attempts.result = StepResult::NoTurn;
            }
            CallStep::Send(send) => {
                let takes_token = match send.price {
                    AttemptPrice::Nothing | AttemptPrice::Counted => false,
                    AttemptPrice::Retry | AttemptPrice::Hedge => true,
                };
                self.steps.push(PreviewStep::Ask { slot: send.slot, takes_token });
                self.fail(send.slot);
            }
        }
        true
    }

    /// The attempt at `slot` ends as one does that found no connection.
    fn fail(&mut self, slot: Slot) {
        let payload = Payload::None { detail: String::new() };
        let verdict = Verdict::new(VerdictClass::Fault, "connect", payload);
        let settled = AttemptResult::whole(verdict, self.now, self.now, Sent::No);
        self.attempts.begun += 1;
        let end = self.attempts.end(self.job, slot, self.context.tier(slot), settled);
        self.attempts.result = StepResult::Sent(end);
    }

    fn pause(&mut self, until: Instant) {
        let more = until.saturating_duration_since(self.now);
        self.now = until;
        match (self.attempts.position, self.steps.last_mut()) {
            (Position::Return { .. }, Some(PreviewStep::Return { most })) => *most += more,
            (Position::Return { .. }, _) => self.steps.push(PreviewStep::Return { most: more }),
            _ => self.steps.push(PreviewStep::Pause { most: more }),
        }
    }
}
