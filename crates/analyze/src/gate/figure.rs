//! Which figures a finding holds, each with a word that a condition can name.

use std::fmt;

use serde::Serialize;

use self::Better::{Higher, Lower, Neither};
use self::FigureBound::{AtLeast, AtMost, Exactly};
use self::Unit::{BytesPerSecond, Count, Milliseconds, PerSecond, Percent};
use crate::conclude::verdict::{Drifting, Extent, Finding, figure};

/// A figure that moved by less is the same.
const ALIKE: f64 = 0.1;

/// In what a figure is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Percent.
    #[serde(rename = "%")]
    Percent,
    /// Calls per second.
    #[serde(rename = "/s")]
    PerSecond,
    /// Bytes per second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// A number of things.
    #[serde(rename = "")]
    Count,
}

impl Unit {
    /// As a condition writes it; empty for a count.
    pub fn word(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Percent => "%",
            Self::PerSecond => "/s",
            Self::BytesPerSecond => "B/s",
            Self::Count => "",
        }
    }
}

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

/// All words that [`figures`] gives.
pub(super) const WORDS: [&str; 36] = [
    "added",
    "batch",
    "blocks",
    "burst",
    "cap",
    "capacity",
    "connections",
    "differences",
    "drift_errors",
    "drift_p50",
    "drift_p99",
    "drift_throughput",
    "ended_after",
    "failures",
    "faster",
    "idle",
    "in_flight",
    "lag",
    "lag_blocks",
    "limit",
    "logs",
    "missing",
    "p50",
    "p95",
    "p99",
    "pace",
    "range",
    "ratio",
    "refill",
    "requests",
    "served",
    "shaping",
    "state",
    "traces",
    "wait",
    "window",
];

/// The figures of a finding. What has none, such as that nothing can be concluded, gives none.
pub fn figures(finding: &Finding) -> Vec<VerdictFigure> {
    limits(finding).or_else(|| times(finding)).unwrap_or_else(|| answers(finding))
}

fn one(
    word: &'static str,
    value: f64,
    bound: FigureBound,
    unit: Unit,
    better: Better,
) -> VerdictFigure {
    VerdictFigure { word, value, bound, unit, better }
}

fn time(word: &'static str, value: f64) -> VerdictFigure {
    one(word, value, Exactly, Milliseconds, Neither)
}

/// Of what bounds the calls that pass.
fn limits(finding: &Finding) -> Option<Vec<VerdictFigure>> {
    let count = |word, value: u64, bound| one(word, value as f64, bound, Count, Higher);
    let rate = |word, value: f64, bound| one(word, value, bound, PerSecond, Higher);
    Some(match finding {
        Finding::StreamCap { streams, .. } => vec![count("cap", (*streams).into(), Exactly)],
        Finding::NoStreamCap { up_to } => vec![count("cap", (*up_to).into(), AtLeast)],
        Finding::Recycle { after_calls, .. } => vec![count("requests", *after_calls, Exactly)],
        Finding::NoRecycle { up_to } => vec![count("requests", *up_to, AtLeast)],
        Finding::IdleClose { after_ms } => {
            vec![one("idle", *after_ms as f64, Exactly, Milliseconds, Higher)]
        }
        Finding::NoIdleClose { up_to_ms } => {
            vec![one("idle", *up_to_ms as f64, AtLeast, Milliseconds, Higher)]
        }
        Finding::Rate { per_second, .. } => vec![rate("limit", *per_second, Exactly)],
        Finding::NoRateLimit { up_to_per_second, .. } => {
            vec![rate("limit", *up_to_per_second, AtLeast)]
        }
        Finding::InFlight { calls, .. } => vec![count("in_flight", *calls, Exactly)],
        Finding::ConnectionCap { connections, .. } => {
            vec![count("connections", *connections, Exactly)]
        }
        Finding::Bucket { size, refill_per_second, window_s, .. } => vec![
            count("burst", *size, Exactly),
            rate("refill", *refill_per_second, Exactly),
            time("window", *window_s * 1_000.0),
        ],
        Finding::NoBucket { up_to } => vec![count("burst", *up_to, AtLeast)],
        Finding::Shaped { calls_per_second, .. } => {
            vec![rate("shaping", *calls_per_second, Exactly)]
        }
        Finding::NotShaped { up_to } => vec![rate("shaping", *up_to, AtLeast)],
        Finding::BodyPace { bytes_per_second, .. } => {
            vec![one("pace", *bytes_per_second, Exactly, BytesPerSecond, Higher)]
        }
        Finding::NoBodyPace { up_to_bytes_per_second } => {
            vec![one("pace", *up_to_bytes_per_second, AtLeast, BytesPerSecond, Higher)]
        }
        Finding::Capacity { per_second, p99_ms, .. } => {
            vec![rate("capacity", *per_second, Exactly), time("p99", *p99_ms)]
        }
        Finding::NoCapacityLimit { up_to_per_second, p99_ms, .. } => {
            vec![rate("capacity", *up_to_per_second, AtLeast), time("p99", *p99_ms)]
        }
        _ => return None,
    })
}

/// Of times, and of what changes in a long one.
fn times(finding: &Finding) -> Option<Vec<VerdictFigure>> {
    Some(match finding {
        Finding::Takes { p50_ms, p95_ms } => vec![time("p50", *p50_ms), time("p95", *p95_ms)],
        Finding::Held { p50_ms, p99_ms, .. } => vec![time("p50", *p50_ms), time("p99", *p99_ms)],
        Finding::SmallWait { ms, .. } => vec![one("wait", *ms, Exactly, Milliseconds, Lower)],
        Finding::SmallFlow { high, .. } => {
            vec![one("wait", high.max(0.0), AtMost, Milliseconds, Lower)]
        }
        Finding::Adds { ms, .. } => vec![time("added", *ms)],
        Finding::Faster { percent, .. } => vec![one("faster", *percent, Exactly, Percent, Neither)],
        Finding::NoDifference { low, high, .. } => {
            vec![one("faster", low.abs().max(high.abs()), AtMost, Percent, Neither)]
        }
        Finding::Lag { ms, blocks, .. } => vec![
            one("lag", *ms, Exactly, Milliseconds, Lower),
            one("lag_blocks", *blocks as f64, Exactly, Count, Neither),
        ],
        Finding::NoLag { within_ms, .. } => {
            vec![one("lag", *within_ms, AtMost, Milliseconds, Lower)]
        }
        Finding::Drift { what, from, to, .. } | Finding::Step { what, from, to, .. } => {
            vec![drift(*what, *from, *to)]
        }
        Finding::NoDrift { .. } => {
            [Drifting::Time, Drifting::Tail, Drifting::Errors, Drifting::Throughput]
                .map(|what| drift(what, 0.0, 0.0))
                .to_vec()
        }
        _ => return None,
    })
}

/// The change in percent of what was there at the begin; of errors, in percent of the calls.
fn drift(what: Drifting, from: f64, to: f64) -> VerdictFigure {
    let relative = if from > 0.0 { (to / from - 1.0) * 100.0 } else { 0.0 };
    match what {
        Drifting::Time => one("drift_p50", relative, Exactly, Percent, Lower),
        Drifting::Tail => one("drift_p99", relative, Exactly, Percent, Lower),
        Drifting::Errors => one("drift_errors", to - from, Exactly, Percent, Lower),
        Drifting::Throughput => one("drift_throughput", relative, Exactly, Percent, Neither),
    }
}

/// Of what is answered, and how much of it.
fn answers(finding: &Finding) -> Vec<VerdictFigure> {
    let count = |word, value: u64, better| one(word, value as f64, Exactly, Count, better);
    match finding {
        Finding::Cost { observed_ratio, .. } => {
            vec![one("ratio", *observed_ratio, Exactly, Count, Neither)]
        }
        Finding::Disagrees { calls, .. } => vec![count("differences", *calls, Lower)],
        Finding::Agrees { .. } => vec![count("differences", 0, Lower)],
        Finding::Reach { what, up_to, refused_at, .. } => {
            let bound = if refused_at.is_some() { Exactly } else { AtLeast };
            vec![one(extent(*what), up_to.unwrap_or(0) as f64, bound, Count, Higher)]
        }
        Finding::Methods { served, missing } => {
            vec![count("served", *served, Higher), count("missing", missing.len() as u64, Lower)]
        }
        Finding::Users { stages } => {
            let most = stages.iter().map(|stage| stage.per_second).fold(0.0, f64::max);
            vec![one("served", most, Exactly, PerSecond, Neither)]
        }
        Finding::Fails { percent, .. } => vec![one("failures", *percent, Exactly, Percent, Lower)],
        Finding::Ended { after_calls, .. } => vec![count("ended_after", *after_calls, Neither)],
        _ => Vec::new(),
    }
}

fn extent(what: Extent) -> &'static str {
    match what {
        Extent::State => "state",
        Extent::Blocks => "blocks",
        Extent::Logs => "logs",
        Extent::Traces => "traces",
        Extent::Range => "range",
        Extent::Batch => "batch",
    }
}
