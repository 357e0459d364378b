//! What a verdict says, in a word and a figure, and whether that is so.

use wellhead_analyze::conclude::verdict::{
    CapWay, Confidence, Drift, Drifting, ExperimentVerdict, Finding,
    FindingBound::{Found, NotUpTo},
    IdleClose, LoadCapacity, NoLoadCapacity, NoRateLimit, Recycle, Refilled, RefusedRate, Shaped,
    ShapingScope, StreamLimit, TokenLimit,
};
use wellhead_analyze::ending::SendingEnd;

/// What a finding says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    /// A word of its own for each kind of truth.
    pub(crate) kind: &'static str,
    /// What makes one of a kind differ from another.
    pub(crate) figure: Option<f64>,
}

/// The only place that knows how findings are written.
pub(crate) fn read(finding: &Finding) -> Reading {
    let of = |kind, figure| Reading { kind, figure: Some(figure) };
    let bare = |kind| Reading { kind, figure: None };
    match finding {
        Finding::Takes { p50_ms, .. } => of("latency", *p50_ms),
        Finding::StreamCap(Found(StreamLimit { streams, way, .. })) => of(
            match way {
                CapWay::Announced => "streams announced",
                CapWay::Refused => "streams refused",
                CapWay::Fatal => "streams fatal",
            },
            *streams as f64,
        ),
        Finding::StreamCap(NotUpTo(_)) => bare("no stream cap"),
        Finding::Recycle(Found(Recycle { after_calls, .. })) => of("recycle", *after_calls as f64),
        Finding::Recycle(NotUpTo(_)) => bare("no recycle"),
        Finding::IdleClose(Found(IdleClose { after_ms })) => of("idle", *after_ms as f64),
        Finding::IdleClose(NotUpTo(_)) => bare("no idle close"),
        Finding::Rate(Found(RefusedRate { per_second, .. })) => of("rate", *per_second),
        Finding::Rate(NotUpTo(NoRateLimit { up_to_per_second, .. })) => {
            of("no rate limit", *up_to_per_second)
        }
        Finding::InFlight { calls, .. } => of("in flight", *calls as f64),
        Finding::ConnectionCap { connections, .. } => of("connections", *connections as f64),
        Finding::Bucket(Found(TokenLimit { refill_per_second, refill, .. })) => of(
            match refill {
                Refilled::Evenly => "token bucket",
                Refilled::Window => "fixed window",
                Refilled::Sliding => "sliding window",
                Refilled::AtOnce => "window",
            },
            *refill_per_second,
        ),
        Finding::Bucket(NotUpTo(_)) => bare("no bucket"),
        Finding::Shaping(Found(Shaped { calls_per_second, scope, .. })) => of(
            match scope {
                ShapingScope::Account => "shaped by account",
                ShapingScope::Connection => "shaped by connection",
                ShapingScope::Open => "shaped",
            },
            *calls_per_second,
        ),
        Finding::Shaping(NotUpTo(_)) => bare("not shaped"),
        Finding::Capacity(Found(LoadCapacity { per_second, .. })) => of("capacity", *per_second),
        Finding::Capacity(NotUpTo(NoLoadCapacity { up_to_per_second, .. })) => {
            of("no capacity limit", *up_to_per_second)
        }
        Finding::Held { p50_ms, .. } => of("held", *p50_ms),
        Finding::Drift(Found(Drift { what: Drifting::Time, to, .. })) => of("ramp", *to),
        Finding::Step { what: Drifting::Time, to, .. } => of("step", *to),
        Finding::Drift(Found(_)) => bare("other ramp"),
        Finding::Step { .. } => bare("other step"),
        Finding::Drift(NotUpTo(_)) => bare("no drift"),
        Finding::Fails { percent, .. } => of("failures", *percent),
        Finding::Ended { reason, .. } => bare(match reason {
            SendingEnd::LongPause { .. } => "ended: long pause",
            SendingEnd::Spent => "ended: spent",
            SendingEnd::Refused { .. } => "ended: refused",
        }),
        Finding::CannotTell { .. } => bare(INCONCLUSIVE),
        Finding::Users { .. }
        | Finding::Comparison(_)
        | Finding::BodyPace(_)
        | Finding::SmallWait(_)
        | Finding::Cost { .. }
        | Finding::Lag(_)
        | Finding::Answers(_)
        | Finding::Reach { .. }
        | Finding::Methods { .. }
        | Finding::WebSocket { .. }
        | Finding::Adds { .. } => bare("another"),
    }
}

/// The word for a verdict that nothing can be said.
pub(crate) const INCONCLUSIVE: &str = "inconclusive";

/// A reading that is true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TrueReading {
    pub(crate) kind: &'static str,
    /// Any figure, where there is none.
    pub(crate) range: Option<(f64, f64)>,
}

impl TrueReading {
    fn holds(&self, reading: Reading) -> bool {
        let fits = |(from, to): (f64, f64)| {
            reading.figure.is_some_and(|figure| (from..=to).contains(&figure))
        };
        self.kind == reading.kind && self.range.is_none_or(fits)
    }
}

/// Of this kind, whatever its figure.
pub(crate) fn any(kind: &'static str) -> TrueReading {
    TrueReading { kind, range: None }
}

/// Of this kind, within a tenth.
pub(crate) fn about(kind: &'static str, figure: f64) -> TrueReading {
    between(kind, 0.9 * figure, 1.1 * figure)
}

/// Of this kind, with this count.
pub(crate) fn exactly(kind: &'static str, count: f64) -> TrueReading {
    between(kind, count - 0.5, count + 0.5)
}

/// Of this kind, with a figure in this range.
pub(crate) fn between(kind: &'static str, from: f64, to: f64) -> TrueReading {
    TrueReading { kind, range: Some((from, to)) }
}

/// In the place of an experiment: one of them should say it.
pub(crate) const ANY: &str = "any";

/// What an experiment should say of a server.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    pub(crate) experiment: &'static str,
    /// One of these has to be told.
    pub(crate) told: Vec<TrueReading>,
    /// These may be told beside it.
    pub(crate) beside: Vec<TrueReading>,
}

impl Truth {
    pub(crate) fn new(experiment: &'static str, told: Vec<TrueReading>) -> Self {
        Self { experiment, told, beside: Vec::new() }
    }

    pub(crate) fn beside(self, beside: Vec<TrueReading>) -> Self {
        Self { beside, ..self }
    }
}

/// What the verdicts of an experiment are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worth {
    Right,
    /// Nothing is said, or with low confidence.
    Inconclusive,
    /// Something else is said, with medium or high confidence.
    Wrong,
}

/// The grade of one truth.
#[derive(Debug, Clone)]
pub(crate) struct Grade {
    pub(crate) worth: Worth,
    /// The kind that was told, for the matrix.
    pub(crate) told: &'static str,
    /// All verdicts of the experiment, a line each.
    pub(crate) lines: Vec<String>,
}

/// Grades what was said of a server.
pub(crate) fn grade(truth: &Truth, verdicts: &[ExperimentVerdict]) -> Grade {
    let is_own = |verdict: &&ExperimentVerdict| match truth.experiment {
        // Which of them noticed it depends on what was sent before.
        ANY => truth.told.iter().any(|it| it.kind == read(&verdict.finding).kind),
        name => verdict.experiment == name,
    };
    let own: Vec<&ExperimentVerdict> = verdicts.iter().filter(is_own).collect();
    let is_told = |verdict: &&&ExperimentVerdict| {
        truth.told.iter().any(|it| it.holds(read(&verdict.finding)))
    };
    let is_true = |verdict: &&ExperimentVerdict| {
        let reading = read(&verdict.finding);
        truth.told.iter().chain(&truth.beside).any(|it| it.holds(reading))
    };
    let wrong = own.iter().find(|verdict| {
        verdict.confidence >= Confidence::Medium
            && read(&verdict.finding).kind != INCONCLUSIVE
            && !is_true(verdict)
    });
    let right = own.iter().find(is_told);
    let (worth, told) = match (wrong, right) {
        (Some(wrong), _) => (Worth::Wrong, read(&wrong.finding).kind),
        (None, Some(right)) => (Worth::Right, read(&right.finding).kind),
        (None, None) => (Worth::Inconclusive, INCONCLUSIVE),
    };
    let line = |verdict: &&ExperimentVerdict| {
        let sure = verdict.confidence.word();
        format!("{}: {} ({sure})", verdict.experiment, verdict.sentence)
    };
    let lines = own.iter().map(line).collect();
    Grade { worth, told, lines }
}
