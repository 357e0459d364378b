//! What happened to a call so far, as values. Only what the next decision needs, and only what
//! happened: what follows from it is decided in [`crate::decide`].

use std::time::{Duration, Instant};

use wellhead_eth::{Effect, MethodRow};
use wellhead_transport::{Rest, Sent};
use wellhead_upstream::{
    Learnt, LimitedBy, Payload, Slot, Tier, TryElsewhere, Verdict, VerdictClass,
};

use crate::attempt::AttemptResult;
use crate::job::Job;
use crate::outcome::{Failure, Served};
use crate::trail::{Abandoned, Attempt, Trail};
use crate::wait_queue::{Holders, NoTurn};

/// What the end of an attempt means for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// Pass the best on.
    Serve,
    /// Another candidate may be asked.
    GoOn,
    /// None may be asked any more.
    Stop,
}

/// What came of the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum StepResult {
    /// What it was for.
    #[default]
    Done,
    /// There was no token for it.
    Unpaid,
    /// The upstream is at a bound, or the request may begin no further exchange.
    Held,
    /// No upstream let the call go in time.
    NoTurn,
    /// An attempt ended.
    Sent(Consequence),
}

/// A place in the order of the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RoundPlace {
    /// How often the candidates were gone through before.
    pub(crate) round: u32,
    /// The next candidate.
    pub(crate) place: usize,
    /// So many attempts are for upstreams that were not asked yet.
    pub(crate) kept: usize,
}

/// What follows a wait in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterTurn {
    /// This round.
    Round(u32),
    /// The end of the rounds.
    Over,
    /// Waiting until then for an upstream that comes back.
    Return(Instant),
    /// The end of what one tier is asked.
    Tier,
}

/// Where a call is between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// Goes through the candidates.
    Round(RoundPlace),
    /// Waited for a cheaper tier than that of the candidate there.
    Cheaper(RoundPlace),
    /// Paused before this round.
    BeforeRound(u32),
    /// Waited in the queue for the `waits`th time in a row.
    Turn { waits: u32, then: AfterTurn },
    /// Waits until then for an upstream that comes back.
    Return { until: Instant },
    /// The rounds are over.
    Over,
}

impl Default for Position {
    fn default() -> Self {
        Self::Round(RoundPlace::default())
    }
}

/// What is passed on if nothing better comes.
#[derive(Debug)]
pub(crate) struct Best {
    pub(crate) slot: Slot,
    pub(crate) tier: Tier,
    pub(crate) verdict: Verdict,
    /// What follows its beginning, when it is a large answer.
    rest: Option<Box<dyn Rest>>,
}

/// The attempts of one call, and what else happened to it.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) trail: Trail,
    pub(crate) position: Position,
    /// What came of the step that led there.
    pub(crate) result: StepResult,
    /// The most telling verdict so far, to fall back on.
    pub(crate) best: Option<Best>,
    /// The shortest pause that an upstream asked for.
    pub(crate) retry_after: Option<Duration>,
    /// An upstream was not asked because it had asked for a pause.
    is_throttled: bool,
    /// The upstreams that held the call in this round.
    pub(crate) held_by: Option<Holders>,
    /// No upstream would let the call go in time.
    pub(crate) no_turn: Option<NoTurn>,
    /// The last verdict that asked for a second opinion.
    opinion: Option<VerdictClass>,
    /// A second upstream was of the same opinion, which may yet be a fault of both.
    pub(crate) is_agreed: bool,
    /// There was an answer, and no room to hold it.
    pub(crate) no_room: bool,
    /// It waited for a cheaper tier before it asked a dearer one.
    pub(crate) has_waited_for_cheaper: bool,
    /// Upstreams that had to agree do not.
    pub(crate) dispute: Option<Failure>,
    /// Exchanges that began.
    pub(crate) begun: u32,
    /// Another exchange was wanted, and the request may make none.
    pub(crate) is_spent: bool,
}

impl Attempts {
    /// Attempts so far, those that were left included.
    pub(crate) fn count(&self) -> usize {
        self.trail.exchanges()
    }

    /// Whether the call went to `slot` before.
    pub(crate) fn has_asked(&self, slot: Slot) -> bool {
        self.trail.attempts.iter().any(|attempt| attempt.slot == slot)
            || self.trail.abandoned.iter().any(|attempt| attempt.slot == slot)
    }

    /// Whether asking `slot` a second time could help.
    pub(crate) fn may_have_been_a_moment(&self, slot: Slot) -> bool {
        let last = self.trail.attempts.iter().rev().find(|attempt| attempt.slot == slot);
        last.is_none_or(|attempt| attempt.class.may_pass())
    }

    /// The class of the most telling verdict so far.
    pub(crate) fn best_class(&self) -> Option<VerdictClass> {
        self.best.as_ref().map(|best| best.verdict.class)
    }

    /// Whether an upstream already said something that a client can be told.
    pub(crate) fn has_something_to_say(&self) -> bool {
        self.best_class().is_some_and(VerdictClass::is_tellable)
    }

    /// Whether the most telling word so far is that the range or the filter is too large.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(
            self.best_class(),
            Some(VerdictClass::RangeTooLarge | VerdictClass::FilterTooLarge)
        )
    }

    /// The candidates are gone through from the first one on.
    pub(crate) fn begin_round(&mut self, round: u32, kept: usize) {
        self.held_by = None;
        self.result = StepResult::Done;
        self.position = Position::Round(RoundPlace { round, place: 0, kept });
    }

    /// A bound holds the call at `slot`.
    pub(crate) fn hold(&mut self, slot: Slot, held: LimitedBy) {
        if held.bound.is_pause() {
            self.note_pause(held.wait);
            self.is_throttled = true;
        }
        self.trail.hold(slot, held);
        self.held_by = Some(Holders::and(self.held_by, slot, held));
    }

    fn note_pause(&mut self, pause: Duration) {
        self.retry_after = Some(self.retry_after.map_or(pause, |least| least.min(pause)));
    }

    /// An attempt is not waited for any more.
    pub(crate) fn abandon(&mut self, job: &Job<'_>, slot: Slot, began: Instant, now: Instant) {
        self.trail.abandoned.push(Abandoned {
            slot,
            after: began.saturating_duration_since(job.received_at),
            took: now.saturating_duration_since(began),
        });
    }

    /// Notes an attempt that ended.
    pub(crate) fn note(&mut self, job: &Job<'_>, slot: Slot, settled: &AttemptResult) {
        let AttemptResult { verdict, began, ended, .. } = settled;
        let class = verdict.class;
        self.trail.attempts.push(Attempt {
            slot,
            after: began.saturating_duration_since(job.received_at),
            took: ended.saturating_duration_since(*began),
            class,
            rule: verdict.rule,
            learnt: verdict.learnt,
            detail: if class.is_answer() { String::new() } else { verdict.detail() },
        });
    }

    /// An attempt at `slot`, which is of `tier`, ended.
    pub(crate) fn end(
        &mut self,
        job: &Job<'_>,
        slot: Slot,
        tier: Tier,
        settled: AttemptResult,
    ) -> Consequence {
        self.note(job, slot, &settled);
        let AttemptResult { verdict, sent, rest, no_room, .. } = settled;
        let class = verdict.class;
        let elsewhere = match class {
            VerdictClass::Null if job.null_is_final => TryElsewhere::No,
            VerdictClass::Null if job.is_there => TryElsewhere::Yes,
            _ => verdict.elsewhere,
        };
        if no_room {
            self.no_room = true;
            return Consequence::Stop;
        }
        if let Some(pause) = verdict.retry_after {
            self.note_pause(pause);
        }
        // Among equals the first is kept, unless the later one is final. A used nonce may be
        // this very transaction's, which can be looked up: no other refusal hides it.
        let is_final = elsewhere == TryElsewhere::No;
        let better = self.best.as_ref().is_none_or(|Best { verdict: best, .. }| {
            let (new, old) = (class.telling(), best.class.telling());
            let can_be_looked_up = best.learnt == Some(Learnt::MaybeMined);
            new > old || (new == old && is_final && !can_be_looked_up)
        });
        if better {
            self.best = Some(Best { slot, tier, verdict, rest });
        }
        match elsewhere {
            // Stops when something more telling came before, which is then passed on.
            TryElsewhere::No => {
                return if better { Consequence::Serve } else { Consequence::Stop };
            }
            // A fault that two share by chance looks like this as well: a third opinion is had
            // where it is paid for.
            TryElsewhere::Once if self.opinion == Some(class) && class.may_be_a_fault() => {
                self.is_agreed = true;
            }
            TryElsewhere::Once if self.opinion == Some(class) => return Consequence::Stop,
            TryElsewhere::Once => self.opinion = Some(class),
            TryElsewhere::Yes => {}
        }
        if may_repeat(job.row, sent) { Consequence::GoOn } else { Consequence::Stop }
    }

    /// Passes this on.
    pub(crate) fn serve_this(&mut self, slot: Slot, tier: Tier, verdict: Verdict) {
        self.best = Some(Best { slot, tier, verdict, rest: None });
    }

    /// The best, to be passed on.
    pub(crate) fn serve(&mut self) -> Option<Served> {
        let Best { slot, verdict, rest, .. } = self.best.take()?;
        Some(Served::new(slot, verdict, rest))
    }

    /// Why there is nothing to pass on at `now`, or the best of what there is.
    pub(crate) fn give_up(&mut self, job: &Job<'_>, now: Instant) -> Result<Served, Failure> {
        if self.no_room {
            return Err(Failure::NoRoom);
        }
        if let Some(dispute) = self.dispute {
            return Err(dispute);
        }
        let spent = job.allowance().filter(|_| self.is_spent);
        let retry_after = self.retry_after;
        match self.best.take() {
            Some(Best { slot, verdict, .. }) if passes_on(&verdict) => {
                Ok(Served::new(slot, verdict, None))
            }
            Some(_) | None if let Some(spent) = spent => {
                Err(Failure::CallsSpent { max: spent.max_of_whole() })
            }
            Some(_) if now >= job.deadline => Err(Failure::Deadline),
            Some(Best { verdict, .. }) => {
                Err(Failure::Exhausted { class: verdict.class, retry_after })
            }
            None if self.is_throttled => {
                Err(Failure::Exhausted { class: VerdictClass::Throttled, retry_after })
            }
            None => Err(match self.no_turn {
                Some(NoTurn { bound, retry_after }) => Failure::Held { bound, retry_after },
                None => Failure::Deadline,
            }),
        }
    }
}

/// A call that may have run is repeated only when running it twice is harmless.
fn may_repeat(row: &MethodRow, sent: Sent) -> bool {
    match (sent, row.effect) {
        (Sent::No, _) | (Sent::Maybe, Effect::Broadcast) => true,
        (Sent::Maybe, Effect::Read | Effect::Filter | Effect::Sticky | Effect::Local) => {
            row.idempotent
        }
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
