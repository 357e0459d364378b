//! The table of the kinds of findings: what each is about, and the figures that it holds with the words that
//! a condition can name.
//!
//! A finding that no limit was found has the same figures as one that found it; the table says what
//! such a figure bounds.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use self::Better::{Higher, Lower, Neither};
use self::FigureBound::{AtLeast, AtMost, Exactly};
use self::Unit::{BytesPerSecond, Count, Milliseconds, PerSecond, Percent};
use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{ALIKE, Drift, Drifting, Extent, Finding};
use super::sentence::figure;

/// In what a figure is given. Its words stand in conditions; that of a count is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::VariantArray, strum::VariantNames)]
pub enum Unit {
    /// Milliseconds.
    #[serde(rename = "ms")]
    #[strum(serialize = "ms")]
    Milliseconds,
    /// Percent.
    #[serde(rename = "%")]
    #[strum(serialize = "%")]
    Percent,
    /// Calls per second.
    #[serde(rename = "/s")]
    #[strum(serialize = "/s")]
    PerSecond,
    /// Bytes per second.
    #[serde(rename = "B/s")]
    #[strum(serialize = "B/s")]
    BytesPerSecond,
    /// A number of things.
    #[serde(rename = "")]
    #[strum(serialize = "")]
    Count,
}

wellhead_word::words!(Unit);

/// What a figure says of the true value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureBound {
    /// It was measured.
    Exactly,
    /// All that was tried passed: the true value is not below.
    AtLeast,
    /// Nothing above was seen: the true value is not above.
    AtMost,
}

/// Which direction is the better one for the user of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More.
    Higher,
    /// Less.
    Lower,
    /// Neither, or it takes an interval to tell.
    Neither,
}

/// One figure of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VerdictFigure {
    /// Its name within the experiment: `limit` in `rate.limit`.
    pub word: &'static str,
    /// The value.
    pub value: f64,
    /// What the value says.
    pub bound: FigureBound,
    /// Its unit.
    pub unit: Unit,
    /// The better direction.
    #[serde(skip)]
    pub better: Better,
}

impl VerdictFigure {
    /// Whether this one is on the worse side of `before` by more than a tenth, whatever the true
    /// values within the bounds are.
    pub fn is_worse_than(&self, before: &Self) -> bool {
        let (higher, lower) = match self.better {
            Better::Higher => (before, self),
            Better::Lower => (self, before),
            Better::Neither => return false,
        };
        // Only where the bounds leave no doubt which of them is the higher one.
        higher.bound != FigureBound::AtMost
            && lower.bound != FigureBound::AtLeast
            && higher.value - lower.value > ALIKE * higher.value.abs()
    }
}

impl fmt::Display for VerdictFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            FigureBound::Exactly => "",
            FigureBound::AtLeast => "at least ",
            FigureBound::AtMost => "at most ",
        };
        let space = if matches!(self.unit, Unit::Count | Unit::PerSecond) { "" } else { " " };
        write!(f, "{bound}{}{space}{}", figure(self.value), self.unit.word())
    }
}

/// What is known of one figure of a kind of findings.
#[derive(Debug)]
pub struct FigureTerms {
    /// Its name within the experiment: `limit` in `rate.limit`.
    pub word: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The better direction.
    pub better: Better,
    /// What it says where no limit was found.
    pub unmet: FigureBound,
}

/// What is known of one kind of findings.
#[derive(Debug)]
pub struct FindingKind {
    /// As a verdict in JSON names it, under `finding`.
    pub word: &'static str,
    /// What it is about.
    pub subject: &'static str,
    /// Its figures; a finding may lack some.
    pub figures: &'static [FigureTerms],
}

const fn terms(word: &'static str, unit: Unit, better: Better, unmet: FigureBound) -> FigureTerms {
    FigureTerms { word, unit, better, unmet }
}

/// A time that is told beside something else, or that has no better direction by itself.
const fn time(word: &'static str) -> FigureTerms {
    terms(word, Milliseconds, Neither, Exactly)
}

/// What can be reached: the more the better, and at least what was tried.
const fn most(word: &'static str, unit: Unit) -> FigureTerms {
    terms(word, unit, Higher, AtLeast)
}

/// The change in percent of what was there at the begin; of errors, in percent of the calls.
const DRIFTS: &[FigureTerms] = &[
    terms("drift_p50", Percent, Lower, Exactly),
    terms("drift_p99", Percent, Lower, Exactly),
    terms("drift_errors", Percent, Lower, Exactly),
    terms("drift_throughput", Percent, Neither, Exactly),
];

const fn kind(
    word: &'static str,
    subject: &'static str,
    figures: &'static [FigureTerms],
) -> FindingKind {
    FindingKind { word, subject, figures }
}

/// All kinds.
pub const FINDING_KINDS: [FindingKind; 26] = [
    kind("takes", "latency of one call at a time", &[time("p50"), time("p95")]),
    kind("stream_cap", "concurrent streams per connection", &[most("cap", Count)]),
    kind("recycle", "requests per connection", &[most("requests", Count)]),
    kind("idle_close", "idle connections", &[most("idle", Milliseconds)]),
    kind("rate", "sustained rate", &[most("limit", PerSecond)]),
    kind("in_flight", "concurrent calls", &[most("in_flight", Count)]),
    kind("connection_cap", "connections per address", &[most("connections", Count)]),
    kind(
        "bucket",
        "burst and refill",
        &[most("burst", Count), most("refill", PerSecond), time("window")],
    ),
    kind("shaping", "shaping without refusals", &[most("shaping", PerSecond)]),
    kind("comparison", "comparison of two protocols", &[terms("faster", Percent, Neither, AtMost)]),
    kind("body_pace", "throughput of large responses", &[most("pace", BytesPerSecond)]),
    kind(
        "small_wait",
        "small calls beside large responses",
        &[terms("wait", Milliseconds, Lower, AtMost)],
    ),
    kind("cost", "cost of a method", &[terms("ratio", Count, Neither, Exactly)]),
    kind(
        "lag",
        "lag behind the other targets",
        &[terms("lag", Milliseconds, Lower, AtMost), terms("lag_blocks", Count, Neither, Exactly)],
    ),
    kind(
        "answers",
        "agreement with the other targets",
        &[terms("differences", Count, Lower, Exactly)],
    ),
    kind(
        "reach",
        "history and request sizes",
        &[
            most("state", Count),
            most("blocks", Count),
            most("logs", Count),
            most("traces", Count),
            most("range", Count),
            most("batch", Count),
        ],
    ),
    kind(
        "methods",
        "methods that are served",
        &[terms("served", Count, Higher, Exactly), terms("missing", Count, Lower, Exactly)],
    ),
    kind("web_socket", "calls over WebSocket", &[]),
    kind("capacity", "capacity under load", &[most("capacity", PerSecond), time("p99")]),
    kind("users", "load by users", &[terms("served", PerSecond, Neither, Exactly)]),
    kind("adds", "latency against another target", &[time("added")]),
    kind("held", "a long run", &[time("p50"), time("p99")]),
    kind("drift", "drift in a long run", DRIFTS),
    kind("step", "steps in a long run", DRIFTS),
    kind("fails", "failed calls", &[terms("failures", Percent, Lower, Exactly)]),
    kind("ended", "end of sending", &[terms("ended_after", Count, Neither, Exactly)]),
];

/// All words that [`figures`] gives.
pub fn figure_words() -> Vec<&'static str> {
    let terms = FINDING_KINDS.iter().flat_map(|kind| kind.figures);
    let words: BTreeSet<&str> = terms.map(|terms| terms.word).collect();
    words.into_iter().collect()
}

/// The figures of a finding. What has none, such as that nothing can be concluded, gives none.
pub fn figures(finding: &Finding) -> Vec<VerdictFigure> {
    let Some(kind) = finding.kind() else { return Vec::new() };
    let told = kind.figures.iter().zip(values(finding));
    let figure = |(terms, value): (&FigureTerms, Option<f64>)| {
        let bound = if finding.is_unmet() { terms.unmet } else { Exactly };
        let FigureTerms { word, unit, better, .. } = *terms;
        Some(VerdictFigure { word, value: value?, bound, unit, better })
    };
    told.filter_map(figure).collect()
}

impl Finding {
    /// Its row in the table, by its word in JSON; none where nothing was found out.
    pub fn kind(&self) -> Option<&'static FindingKind> {
        let word: &str = self.into();
        FINDING_KINDS.iter().find(|kind| kind.word == word)
    }

    /// Whether it says that no limit, and no difference, was found.
    pub fn is_unmet(&self) -> bool {
        match self {
            Self::StreamCap(bound) => matches!(bound, NotUpTo(_)),
            Self::Recycle(bound) => matches!(bound, NotUpTo(_)),
            Self::IdleClose(bound) => matches!(bound, NotUpTo(_)),
            Self::Rate(bound) => matches!(bound, NotUpTo(_)),
            Self::Bucket(bound) => matches!(bound, NotUpTo(_)),
            Self::Shaping(bound) => matches!(bound, NotUpTo(_)),
            Self::Comparison(bound) => matches!(bound, NotUpTo(_)),
            Self::BodyPace(bound) => matches!(bound, NotUpTo(_)),
            Self::SmallWait(bound) => matches!(bound, NotUpTo(_)),
            Self::Lag(bound) => matches!(bound, NotUpTo(_)),
            Self::Answers(bound) => matches!(bound, NotUpTo(_)),
            Self::Capacity(bound) => matches!(bound, NotUpTo(_)),
            Self::Drift(bound) => matches!(bound, NotUpTo(_)),
            Self::Reach { refused_at, .. } => refused_at.is_none(),
            _ => false,
        }
    }
}

/// The values of the figures, in the order of the row.
fn values(finding: &Finding) -> Vec<Option<f64>> {
    let count = |n: u64| vec![Some(n as f64)];
    match finding {
        Finding::Takes { p50_ms, p95_ms } => vec![Some(*p50_ms), Some(*p95_ms)],
        Finding::StreamCap(Found(it)) => count(it.streams),
        Finding::StreamCap(NotUpTo(it)) => count(it.up_to),
        Finding::Recycle(Found(it)) => count(it.after_calls),
        Finding::Recycle(NotUpTo(it)) => count(it.up_to),
        Finding::IdleClose(Found(it)) => count(it.after_ms),
        Finding::IdleClose(NotUpTo(it)) => count(it.up_to_ms),
        Finding::Rate(Found(it)) => vec![Some(it.per_second)],
        Finding::Rate(NotUpTo(it)) => vec![Some(it.up_to_per_second)],
        Finding::InFlight { calls, .. } => count(*calls),
        Finding::ConnectionCap { connections, .. } => count(*connections),
        Finding::Bucket(Found(it)) => {
            let window_ms = it.window_s * 1_000.0;
            vec![Some(it.size as f64), Some(it.refill_per_second), Some(window_ms)]
        }
        Finding::Bucket(NotUpTo(it)) => count(it.up_to),
        Finding::Shaping(Found(it)) => vec![Some(it.calls_per_second)],
        Finding::Shaping(NotUpTo(it)) => vec![Some(it.up_to)],
        Finding::Comparison(Found(it)) => vec![Some(it.percent)],
        Finding::Comparison(NotUpTo(it)) => vec![Some(it.low.abs().max(it.high.abs()))],
        Finding::BodyPace(Found(it)) => vec![Some(it.bytes_per_second)],
        Finding::BodyPace(NotUpTo(it)) => vec![Some(it.up_to_bytes_per_second)],
        Finding::SmallWait(Found(it)) => vec![Some(it.ms)],
        Finding::SmallWait(NotUpTo(it)) => vec![Some(it.high.max(0.0))],
        Finding::Lag(Found(it)) => vec![Some(it.ms), Some(it.blocks as f64)],
        Finding::Lag(NotUpTo(it)) => vec![Some(it.within_ms)],
        Finding::Capacity(Found(it)) => vec![Some(it.per_second), Some(it.p99_ms)],
        Finding::Capacity(NotUpTo(it)) => vec![Some(it.up_to_per_second), Some(it.p99_ms)],
        Finding::Drift(Found(Drift { what, from, to, .. }))
        | Finding::Step { what, from, to, .. } => drifts(*what, *from, *to),
        Finding::Drift(NotUpTo(_)) => vec![Some(0.0); DRIFTS.len()],
        _ => values_of_answers(finding),
    }
}

/// Of what has no bound.
fn values_of_answers(finding: &Finding) -> Vec<Option<f64>> {
    let count = |n: u64| Some(n as f64);
    match finding {
        Finding::Held { p50_ms, p99_ms, .. } => vec![Some(*p50_ms), Some(*p99_ms)],
        Finding::Adds { ms, .. } => vec![Some(*ms)],
        Finding::Cost { observed_ratio, .. } => vec![Some(*observed_ratio)],
        Finding::Answers(Found(it)) => vec![count(it.calls)],
        Finding::Answers(NotUpTo(_)) => vec![count(0)],
        Finding::Reach { what, up_to, .. } => {
            let value = count(up_to.unwrap_or(0));
            Extent::ALL.map(|extent| value.filter(|_| extent == *what)).to_vec()
        }
        Finding::Methods { served, missing } => vec![count(*served), count(missing.len() as u64)],
        Finding::Users { stages } => {
            vec![Some(stages.iter().map(|stage| stage.per_second).fold(0.0, f64::max))]
        }
        Finding::Fails { percent, .. } => vec![Some(*percent)],
        Finding::Ended { after_calls, .. } => vec![count(*after_calls)],
        _ => Vec::new(),
    }
}

/// Of [`DRIFTS`], the one that moved.
fn drifts(what: Drifting, from: f64, to: f64) -> Vec<Option<f64>> {
    let relative = if from > 0.0 { (to / from - 1.0) * 100.0 } else { 0.0 };
    let order = [Drifting::Time, Drifting::Tail, Drifting::Errors, Drifting::Throughput];
    let change = if what == Drifting::Errors { to - from } else { relative };
    order.iter().map(|it| Some(change).filter(|_| *it == what)).collect()
}
