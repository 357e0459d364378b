//! Traces: what a request leaves for OpenTelemetry when it has ended.
//!
//! ```text
//! begin ── ids, whether it is sampled ──> RequestTrace ── ended calls, with their trails ──┐
//!                                                                                         │ end: kept?
//! TraceReceiver <── bounded queue <── spans ([`span`]) <──────────────────────────────────┘
//! ```
//!
//! No span exists while a request runs: the [`Trail`] of a call has all that its spans say. Whether a trace is kept
//! is decided at the end, so that a request that failed, was hedged or was slow has its trace also when it was not
//! sampled. A proxy without a [`Tracer`] pays one comparison a request; one with a tracer two random numbers and a
//! second comparison. Ids ([`TraceSeed`]), spans and exemplars are made for those alone whose trace is kept, or for an
//! upstream that is told of it.
//!
//! What clients can cause is bounded: only the sample that is drawn here has no bound of its own. All other traces
//! ([`TraceCause`]) share a rate, as a client could send `traceparent` or cause failures with each of its requests.
//! A full queue drops the newest trace and counts it; no request waits.
//!
//! What leaves here goes to the control plane (`app::traces`), which encodes it and sends it.

pub(crate) mod queue;
pub(crate) mod span;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::RngCore;
use wellhead_dispatch::{TraceSeed, Trail};
use wellhead_eth::MethodRow;
use wellhead_limit::{Bucket, Pace};
use wellhead_transport::{TraceContext, TraceId};
use wellhead_upstream::Slot;

use crate::state::counts::{CacheResult, CallOutcome};
use crate::state::exemplars::Exemplars;
use queue::{TraceReceiver, TraceSender};
use span::{AttemptKind, RequestFacts, TraceSpan, spans};

/// Calls of a batch that have spans of their own. The others are counted.
const CALLS_MAX: usize = 64;

/// What a `traceparent` of a client means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentMode {
    /// Nothing: each request begins a trace.
    Ignore,
    /// The request continues the trace of its client; whether it is sampled is decided here.
    Continue,
    /// The request continues the trace of its client, and is sampled if its client says so.
    Follow,
}

/// Which traces are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceRules {
    /// The part of all requests that is sampled: 0 to 1.
    pub sample: f64,
    /// What a `traceparent` means.
    pub parent: ParentMode,
    /// Whether requests that could not be answered are kept.
    pub errors: bool,
    /// Whether requests with a hedged call are kept.
    pub hedged: bool,
    /// Requests that take at least this long are kept.
    pub slow: Duration,
    /// Traces a second that are kept for another cause than the sample; as many may come at once.
    pub per_second: u32,
}

/// Why a trace is kept. Its words stand in the attribute `wellhead.trace.cause`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum TraceCause {
    /// It was drawn.
    Sample,
    /// Its client sampled it.
    Parent,
    /// It could not be answered.
    Error,
    /// One of its calls was hedged.
    Hedged,
    /// It took long.
    Slow,
}

wellhead_word::words!(TraceCause);

/// Why a trace that was kept is not sent. Its words stand in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum TraceLoss {
    /// More were kept for their cause than may be in a second.
    Rate,
    /// The queue was full.
    QueueFull,
    /// The collector could not be reached for long, or when wellhead ended.
    Undelivered,
    /// The collector refused it.
    Refused,
}

wellhead_word::words!(TraceLoss);

/// What became of traces that were kept.
#[derive(Debug, Default)]
pub struct TraceCounts {
    sent: AtomicU64,
    dropped: [AtomicU64; TraceLoss::ALL.len()],
}

impl TraceCounts {
    /// Counts traces that a collector took.
    pub fn count_sent(&self, traces: u64) {
        self.sent.fetch_add(traces, Relaxed);
    }

    /// Counts traces that are lost.
    pub fn count_dropped(&self, loss: TraceLoss, traces: u64) {
        self.dropped[loss as usize].fetch_add(traces, Relaxed);
    }

    /// Traces that a collector took.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Traces that are lost for this reason.
    pub fn dropped(&self, loss: TraceLoss) -> u64 {
        self.dropped[loss as usize].load(Relaxed)
    }
}

/// Decides which requests leave a trace, for all workers.
#[derive(Debug)]
pub struct Tracer {
    rules: TraceRules,
    /// A draw of 63 bits below it is in the sample.
    sampled_below: u64,
    pace: Pace,
    intake: Arc<TraceIntake>,
}

/// Where traces that are kept go, and what bounds them: one for all rules that a process has had.
#[derive(Debug)]
struct TraceIntake {
    epoch: Instant,
    bucket: Bucket,
    sender: TraceSender,
    counts: Arc<TraceCounts>,
}

impl Tracer {
    /// A tracer, and where its traces come out. At most `spans_max` spans wait there.
    pub fn new(rules: TraceRules, spans_max: usize, epoch: Instant) -> (Arc<Self>, TraceReceiver) {
        let (sender, receiver) = queue::bounded(spans_max);
        let (bucket, counts) = (Bucket::default(), Arc::default());
        let intake = Arc::new(TraceIntake { epoch, bucket, sender, counts });
        (Self::keeping(rules, intake), receiver)
    }

    /// A tracer with other rules, whose traces come out where those of this one do.
    #[must_use]
    pub fn with_rules(&self, rules: TraceRules) -> Arc<Self> {
        Self::keeping(rules, Arc::clone(&self.intake))
    }

    fn keeping(rules: TraceRules, intake: Arc<TraceIntake>) -> Arc<Self> {
        let rate = f64::from(rules.per_second);
        Arc::new(Self {
            rules,
            sampled_below: (rules.sample.clamp(0.0, 1.0) * 2_f64.powi(63)) as u64,
            pace: Pace::new(rate, Duration::from_secs(1), rate),
            intake,
        })
    }

    /// What became of its traces.
    pub fn counts(&self) -> &Arc<TraceCounts> {
        &self.intake.counts
    }

    /// Begins the trace of a request, which comes with `parent`: draws two numbers, and compares one.
    pub(crate) fn begin(
        &self,
        parent: Option<Box<TraceContext>>,
        rng: &mut impl RngCore,
    ) -> RequestTrace<'_> {
        let numbers = [rng.next_u64(), rng.next_u64()];
        let is_drawn = numbers[0] >> 1 < self.sampled_below;
        let (parent, cause) = match (self.rules.parent, parent) {
            (ParentMode::Follow, Some(parent)) => {
                let is_sampled = parent.is_sampled;
                (Some(parent), is_sampled.then_some(TraceCause::Parent))
            }
            (ParentMode::Ignore, _) => (None, is_drawn.then_some(TraceCause::Sample)),
            (ParentMode::Continue | ParentMode::Follow, parent) => {
                (parent, is_drawn.then_some(TraceCause::Sample))
            }
        };
        RequestTrace {
            tracer: self,
            seed: TraceSeed::new(numbers, parent, cause.is_some()),
            cause,
            ended: Mutex::default(),
        }
    }

    /// Puts the spans of a trace into the queue; false, and counted, when there is no room for them.
    pub fn record(&self, spans: Vec<TraceSpan>) -> bool {
        let is_recorded = self.intake.sender.send(spans);
        if !is_recorded {
            self.counts().count_dropped(TraceLoss::QueueFull, 1);
        }
        is_recorded
    }
}

impl TraceRules {
    /// Why a trace that was not sampled is kept.
    fn cause(&self, is_error: bool, is_hedged: bool, took: Duration) -> Option<TraceCause> {
        match () {
            () if self.errors && is_error => Some(TraceCause::Error),
            () if self.hedged && is_hedged => Some(TraceCause::Hedged),
            () if took >= self.slow => Some(TraceCause::Slow),
            () => None,
        }
    }
}

/// The trace of a request that is under way: no ids, and nothing of its calls unless some span may tell of them.
#[derive(Debug)]
pub(crate) struct RequestTrace<'a> {
    tracer: &'a Tracer,
    seed: TraceSeed,
    /// Why it is kept, if that is decided.
    cause: Option<TraceCause>,
    /// The calls of a batch run on one thread, so nothing waits for it.
    ended: Mutex<Option<Box<EndedCalls>>>,
}

/// What the calls of a request came to.
#[derive(Debug, Default)]
pub(crate) struct EndedCalls {
    pub(crate) calls: Vec<TracedCall>,
    pub(crate) exchanges: Vec<TracedExchange>,
    /// Calls that are in neither list.
    pub(crate) left_out: usize,
    /// Calls that could not be answered.
    failed: usize,
    is_hedged: bool,
}

/// A call that has ended.
#[derive(Debug)]
pub(crate) struct TracedCall {
    pub(crate) row: &'static MethodRow,
    /// As the log names it.
    pub(crate) method: Cow<'static, str>,
    pub(crate) outcome: CallOutcome,
    pub(crate) found: Option<CacheResult>,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// As it was counted: what is in a batch also waited for its turn.
    pub(crate) took: Duration,
    pub(crate) trail: Trail,
}

impl TracedCall {
    /// Whether a second upstream was asked because the first took long.
    fn is_hedged(&self) -> bool {
        let is_hedge = |attempt| span::attempt_kind(self, &attempt) == AttemptKind::Hedge;
        self.trail.exchanges() > 1 && span::attempts_of(&self.trail).any(is_hedge)
    }
}

/// One exchange for several calls of a batch.
#[derive(Debug)]
pub(crate) struct TracedExchange {
    pub(crate) slot: Slot,
    pub(crate) calls: usize,
    /// The calls that this exchange settled; the others were sent again, each by itself.
    pub(crate) settled: usize,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
}

impl<'a> RequestTrace<'a> {
    /// What its ids are made of.
    pub(crate) fn seed(&self) -> &TraceSeed {
        &self.seed
    }

    /// Whether a call that is all of its request may be told of. Of one that is not, nothing need be noted.
    pub(crate) fn may_tell(&self, outcome: CallOutcome, took: Duration, trail: &Trail) -> bool {
        let rules = &self.tracer.rules;
        self.cause.is_some()
            || outcome == CallOutcome::Failed && rules.errors
            || trail.exchanges() > 1 && rules.hedged
            || took >= rules.slow
    }

    /// Notes a call that has ended.
    pub(crate) fn note_call(&self, call: TracedCall) {
        let mut ended = self.ended.lock();
        let ended = ended.get_or_insert_default();
        ended.failed += usize::from(call.outcome == CallOutcome::Failed);
        ended.is_hedged |= call.is_hedged();
        if ended.calls.is_empty() {
            // Most requests are one call.
            ended.calls.reserve_exact(1);
        }
        if ended.calls.len() < CALLS_MAX {
            ended.calls.push(call);
        } else {
            ended.left_out += 1;
        }
    }

    /// Notes an exchange for several calls.
    pub(crate) fn note_exchange(&self, exchange: TracedExchange) {
        let mut ended = self.ended.lock();
        let ended = ended.get_or_insert_default();
        if ended.exchanges.len() < CALLS_MAX {
            ended.exchanges.push(exchange);
        }
    }

    /// Why the trace of a request is kept that took so long and has ended; `is_error` if wellhead had no answer.
    pub(crate) fn cause_at_end(&mut self, is_error: bool, took: Duration) -> Option<TraceCause> {
        let ended = self.ended.get_mut();
        self.cause.or_else(|| {
            let (failed, is_hedged) = match ended {
                Some(ended) => (ended.failed, ended.is_hedged),
                None => (0, false),
            };
            self.tracer.rules.cause(failed > 0 || is_error, is_hedged, took)
        })
    }

    /// Hands out the spans of a trace that is kept, within the rate for its cause. Returns its id if they were taken.
    pub(crate) fn tell(
        self,
        cause: TraceCause,
        facts: &RequestFacts<'_>,
        exemplars: &Exemplars,
        name: impl Fn(Slot) -> Arc<str>,
    ) -> Option<TraceId> {
        let Self { tracer, seed, ended, .. } = self;
        let since = facts.ended.saturating_duration_since(tracer.intake.epoch);
        let bucket = &tracer.intake.bucket;
        if cause != TraceCause::Sample && bucket.take(1.0, tracer.pace, since).is_err() {
            tracer.counts().count_dropped(TraceLoss::Rate, 1);
            return None;
        }
        // Where nothing was noted of any.
        let untold = || EndedCalls { left_out: facts.calls, ..EndedCalls::default() };
        let ended = ended.into_inner().map_or_else(untold, |ended| *ended);
        let spans = spans(&seed, cause, facts, &ended, name);
        if !tracer.record(spans) {
            return None;
        }
        let trace_id = seed.context().trace_id;
        for TracedCall { row, took, ended, .. } in &ended.calls {
            exemplars.note(row.class, trace_id, *took, *ended);
        }
        Some(trace_id)
    }
}

#[cfg(test)]
mod tests;
