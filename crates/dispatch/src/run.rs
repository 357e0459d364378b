//! The loop over candidates.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::Rng;
use wellhead_eth::{CostClass, Effect, MethodRow};
use wellhead_jsonrpc::write;
use wellhead_route::{Plan, Roster};
use wellhead_transport::{Rest, Sent};
use wellhead_upstream::{Learnt, Payload, Slot, TryElsewhere, Verdict, VerdictClass};

use crate::attempt::{Patience, Room, Settled, attempt};
use crate::lane::Lane;
use crate::now;
use crate::trail::{Attempt, Trail};

/// The id that every single call carries upstream; the client's own never travels.
const CALL_ID: u64 = 1;
/// The candidates are gone through at most so often: the second time heals what was
/// a moment's fault when there is nobody else to ask.
const ROUNDS_MAX: usize = 2;
/// The pause before the second round is drawn below this (full jitter).
const ROUND_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Logs and traces may take so many times longer than a plain call.
const HEAVY_FACTOR: u32 = 4;

/// An upstream is blamed for silence when it had this share of its time (one half).
const BLAME_SHARE: u32 = 2;

/// How long and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Attempts per call, the first included; zero counts as one.
    pub attempts_max: usize,
    /// One attempt of a plain call, connection set-up included. Logs and traces get
    /// four times as long.
    pub attempt: Duration,
    /// A longer answer is passed on as it arrives, when the job allows it.
    pub whole_bytes_max: usize,
    /// No longer answer is ever held.
    pub answer_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            attempts_max: 4,
            attempt: Duration::from_secs(5),
            whole_bytes_max: 1 << 20,
            answer_bytes_max: 128 << 20,
        }
    }
}

impl Bounds {
    /// How long to wait for an attempt that begins now. `own` is the upstream's own
    /// setting, `latest` when the client must have an answer.
    pub(crate) fn patience(
        &self,
        own: Option<Duration>,
        class: CostClass,
        now: Instant,
        latest: Instant,
    ) -> Patience {
        let attempt = own.unwrap_or(self.attempt);
        let time = match class {
            CostClass::Logs | CostClass::Trace => attempt.saturating_mul(HEAVY_FACTOR),
            CostClass::Light
            | CostClass::State
            | CostClass::Block
            | CostClass::Call
            | CostClass::Write => attempt,
        };
        // What overflows the clock is later than any deadline.
        let deadline = now.checked_add(time).map_or(latest, |end| end.min(latest));
        Patience { deadline, blame_after: attempt / BLAME_SHARE }
    }

    fn room(&self, may_flow: bool) -> Room {
        let answer_max = self.answer_bytes_max;
        let whole_max = if may_flow { self.whole_bytes_max.min(answer_max) } else { usize::MAX };
        Room { whole_max, answer_max }
    }
}

/// One call to be answered.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The row of its method.
    pub row: &'a MethodRow,
    /// The method as the client wrote it.
    pub method: &'a str,
    /// Its params as raw JSON.
    pub params: Option<&'a [u8]>,
    /// When the request arrived; the trail counts from here.
    pub received_at: Instant,
    /// When the client must have an answer.
    pub deadline: Instant,
    /// A null is the truth, whoever says it: the call asks for a block that is not
    /// there yet. Asking elsewhere would multiply the load of everybody who polls.
    pub null_is_final: bool,
    /// The caller takes a large result as it arrives; see [`Served::rest`].
    pub may_flow: bool,
}

/// What an upstream said, to be passed on.
#[derive(Debug)]
pub struct Served {
    /// Who said it.
    pub slot: Slot,
    /// What it was judged to be: an answer, or a refusal that nobody else can heal.
    pub class: VerdictClass,
    /// What its words give away.
    pub learnt: Option<Learnt>,
    /// The raw result or the raw error object.
    pub payload: Payload,
    /// When present, `payload` is a result of which only the beginning has arrived;
    /// what follows is the remainder of the result and the end of the envelope.
    pub rest: Option<Box<dyn Rest>>,
}

impl Served {
    fn new(slot: Slot, verdict: Verdict, rest: Option<Box<dyn Rest>>) -> Self {
        let Verdict { class, learnt, payload, .. } = verdict;
        Self { slot, class, learnt, payload, rest }
    }
}

/// Why there is nothing to pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The plan was empty.
    NobodyToAsk,
    /// The time was over.
    Deadline,
    /// All who could be asked failed; `class` is what their failures have in common best.
    Exhausted {
        /// The most telling verdict.
        class: VerdictClass,
        /// The shortest pause that any of them asked for.
        retry_after: Option<Duration>,
    },
}

/// The end of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What to pass on, or why there is nothing.
    pub result: Result<Served, Failure>,
    /// What was tried.
    pub trail: Trail,
}

/// Tries the candidates of `plan` until one settles `job`.
///
/// Resolves at `job.deadline` at the latest. Cancel-safe: dropping the future ends
/// the attempt under way and its count.
pub async fn run(
    job: &Job<'_>,
    plan: &Plan,
    roster: &Roster,
    lane: &Lane,
    bounds: &Bounds,
) -> Outcome {
    let mut run = Run {
        job,
        body: wire_body(job),
        trail: Trail::default(),
        best: None,
        rest: None,
        retry_after: None,
        once_used: false,
    };
    let result = match run.rounds(plan, roster, lane, bounds).await {
        Some(served) => Ok(served),
        None => run.give_up(plan),
    };
    Outcome { result, trail: run.trail }
}

fn wire_body(job: &Job<'_>) -> Bytes {
    let params = job.params.map_or(2, <[u8]>::len);
    let mut body = Vec::with_capacity(64 + job.method.len() + params);
    write::call(&mut body, CALL_ID, job.method, job.params);
    Bytes::from(body)
}

/// The state of one run: only what the next decision needs.
struct Run<'a> {
    job: &'a Job<'a>,
    body: Bytes,
    trail: Trail,
    /// The most telling failure so far, to fall back on.
    best: Option<(Slot, Verdict)>,
    /// What follows the beginning of the best, when it is a large answer.
    rest: Option<Box<dyn Rest>>,
    retry_after: Option<Duration>,
    /// A verdict that allows one more try was given before.
    once_used: bool,
}

/// What to do after an attempt.
enum Next {
    /// Pass it on.
    Serve,
    /// Ask the next candidate.
    Another,
    /// Nobody may be asked any more.
    Stop,
}

impl Run<'_> {
    async fn rounds(
        &mut self,
        plan: &Plan,
        roster: &Roster,
        lane: &Lane,
        bounds: &Bounds,
    ) -> Option<Served> {
        for round in 0..ROUNDS_MAX {
            if round > 0 && !self.another_round(lane, bounds).await {
                return None;
            }
            for (place, slot) in plan.candidates().iter().copied().enumerate() {
                if self.trail.attempts.len() >= bounds.attempts_max.max(1) {
                    return None;
                }
                if place >= plan.fit() && self.has_something_to_say() {
                    break;
                }
                if round > 0 && !self.may_have_been_a_moment(slot) {
                    continue;
                }
                let (row, now) = (self.job.row, now());
                if now >= self.job.deadline {
                    return None;
                }
                let upstream = roster.upstream(slot);
                let own = upstream.identity().attempt;
                let patience = bounds.patience(own, row.class, now, self.job.deadline);
                let body = self.body.clone();
                let room = bounds.room(self.job.may_flow);
                let settled =
                    attempt(row, body, upstream, lane.transport(slot), now, patience, room).await;
                match self.after(slot, settled) {
                    Next::Serve => {
                        let (slot, verdict) = self.best.take()?;
                        return Some(Served::new(slot, verdict, self.rest.take()));
                    }
                    Next::Another => {}
                    Next::Stop => return None,
                }
            }
        }
        None
    }

    /// Whether asking this candidate a second time could help: a failure may be over
    /// in a moment, a limit, a refused key or a missing method is not.
    fn may_have_been_a_moment(&self, slot: Slot) -> bool {
        let last = self.trail.attempts.iter().rev().find(|attempt| attempt.slot == slot);
        last.is_none_or(|attempt| match attempt.class {
            VerdictClass::Fault => true,
            VerdictClass::Answer
            | VerdictClass::Null
            | VerdictClass::Reverted
            | VerdictClass::CallerFault
            | VerdictClass::TransactionKnown
            | VerdictClass::TransactionRejected
            | VerdictClass::MissingData
            | VerdictClass::RangeTooLarge
            | VerdictClass::Throttled
            | VerdictClass::Billing
            | VerdictClass::Auth
            | VerdictClass::Unsupported
            | VerdictClass::Unknown => false,
        })
    }

    /// Records the attempt and decides what comes next.
    fn after(&mut self, slot: Slot, settled: Settled) -> Next {
        let Settled { verdict, began, ended, sent, rest } = settled;
        let class = verdict.class;
        let elsewhere = match class {
            VerdictClass::Null if self.job.null_is_final => TryElsewhere::No,
            _ => verdict.elsewhere,
        };
        self.trail.attempts.push(Attempt {
            slot,
            after: began.saturating_duration_since(self.job.received_at),
            took: ended.saturating_duration_since(began),
            class,
            rule: verdict.rule,
            detail: if class.is_answer() { String::new() } else { verdict.detail() },
        });
        if let Some(pause) = verdict.retry_after {
            self.retry_after = Some(self.retry_after.map_or(pause, |least| least.min(pause)));
        }
        // Among equals the first is kept, unless the later one is final.
        let is_final = elsewhere == TryElsewhere::No;
        let better = self.best.as_ref().is_none_or(|(_, best)| {
            let (new, old) = (telling(class), telling(best.class));
            new > old || (new == old && is_final)
        });
        if better {
            self.best = Some((slot, verdict));
            self.rest = rest;
        }
        match elsewhere {
            // Stops when something more telling came before, which is then passed on.
            TryElsewhere::No => return if better { Next::Serve } else { Next::Stop },
            TryElsewhere::Once if self.once_used => return Next::Stop,
            TryElsewhere::Once => self.once_used = true,
            TryElsewhere::Yes => {}
        }
        if may_repeat(self.job.row, sent) { Next::Another } else { Next::Stop }
    }

    /// Whether an upstream already said something that a client can be told.
    fn has_something_to_say(&self) -> bool {
        self.best.as_ref().is_some_and(|(_, verdict)| telling(verdict.class) >= TELLABLE)
    }

    /// Pauses before going round again; false when that would not help.
    async fn another_round(&mut self, lane: &Lane, bounds: &Bounds) -> bool {
        let tried = &self.trail.attempts;
        if self.has_something_to_say()
            || tried.len() >= bounds.attempts_max
            || !tried.iter().any(|attempt| self.may_have_been_a_moment(attempt.slot))
        {
            return false;
        }
        let pause = lane.with_rng(|rng| rng.random_range(Duration::ZERO..ROUND_PAUSE_MAX));
        if now() + pause >= self.job.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    fn give_up(&mut self, plan: &Plan) -> Result<Served, Failure> {
        if plan.candidates().is_empty() {
            return Err(Failure::NobodyToAsk);
        }
        match self.best.take() {
            Some((slot, verdict)) if passes_on(&verdict) => Ok(Served::new(slot, verdict, None)),
            Some(_) if now() >= self.job.deadline => Err(Failure::Deadline),
            Some((_, verdict)) => {
                Err(Failure::Exhausted { class: verdict.class, retry_after: self.retry_after })
            }
            None => Err(Failure::Deadline),
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

/// From here on a verdict is about the request and not about the upstream.
const TELLABLE: u8 = 10;

/// How much a verdict tells the client: with several failures, the most telling is passed on.
fn telling(class: VerdictClass) -> u8 {
    match class {
        VerdictClass::Answer | VerdictClass::TransactionKnown => 30,
        VerdictClass::Reverted => 29,
        VerdictClass::TransactionRejected => 28,
        VerdictClass::Null => 20,
        VerdictClass::RangeTooLarge => 18,
        VerdictClass::CallerFault => 16,
        VerdictClass::MissingData => 14,
        VerdictClass::Unknown => 12,
        VerdictClass::Unsupported => 8,
        VerdictClass::Throttled => 6,
        VerdictClass::Fault => 4,
        VerdictClass::Billing => 2,
        VerdictClass::Auth => 1,
    }
}

/// Whether the upstream's own words are good for the client when all failed.
fn passes_on(verdict: &Verdict) -> bool {
    let has_words = match verdict.payload {
        Payload::Result(_) | Payload::Error(_) => true,
        Payload::None { .. } => false,
    };
    let ours_to_word = match verdict.class {
        VerdictClass::Throttled | VerdictClass::Billing | VerdictClass::Auth => true,
        VerdictClass::Answer
        | VerdictClass::Null
        | VerdictClass::Reverted
        | VerdictClass::CallerFault
        | VerdictClass::TransactionKnown
        | VerdictClass::TransactionRejected
        | VerdictClass::MissingData
        | VerdictClass::RangeTooLarge
        | VerdictClass::Unsupported
        | VerdictClass::Fault
        | VerdictClass::Unknown => false,
    };
    has_words && !ours_to_word
}
