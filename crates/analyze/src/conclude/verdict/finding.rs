//! What can be found. The sentence for each is in `sentence`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a connection bears no more streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapWay {
    /// It says so in its settings, and keeps to it.
    Announced,
    /// It refuses the streams above and serves the others.
    Refused,
    /// It ends, with all that are on it.
    Fatal,
}

/// How a call above a rate is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalWay {
    /// With HTTP status 429.
    Status429,
    /// With status 200 and an error in the body.
    InBody,
    /// With this status.
    OtherStatus(u16),
    /// It is not answered, or its connection ends.
    Unanswered,
    /// It is not refused: it waits for its turn.
    Queued,
}

/// How a limit lets calls pass again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refilled {
    /// Bit by bit: a token bucket.
    Evenly,
    /// All at once, when a window is over.
    Window,
    /// Each call when it is one window old.
    Sliding,
    /// All at once; whether the window slides was not seen.
    AtOnce,
}

/// What a `Retry-After` is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfterWorth {
    /// There is none.
    NotGiven,
    /// A call after that time is served.
    Holds,
    /// A call after that time is refused again.
    TooShort,
    /// Longer than any call of the measurement waited, or the bound was not met.
    Untried,
}

/// What may drift in a long time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drifting {
    /// The median time of a call, milliseconds.
    Time,
    /// The 99th percentile, milliseconds.
    Tail,
    /// Calls that are not served, percent.
    Errors,
    /// Calls a second that end, however they do.
    Throughput,
}

/// How calls fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureWay {
    /// With an answer that is none.
    Refused(RefusalWay),
    /// The transport fails, by its word.
    Transport(String),
    /// By the class of the verdict, where no more is known.
    Class(String),
}

/// Where calls fail as often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureSpan {
    /// At each rate that was tried.
    AnyRate,
    /// However many are in flight.
    AnyConcurrency,
    /// From the begin to the end.
    AnyTime,
}

/// Why a target was asked no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Refusals ask for a pause.
    LongPause {
        /// Its length in seconds.
        seconds: u64,
    },
    /// Refusals say that a quota is spent.
    Spent,
    /// All calls were refused.
    Refused {
        /// How long, in seconds.
        seconds: u64,
    },
}

/// What shaping counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShapingScope {
    /// Each connection.
    Connection,
    /// All of them together.
    Account,
    /// One number of connections was tried.
    Open,
}

/// What comes at a pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacedFlow {
    /// Each answer, whatever comes beside it.
    Each,
    /// All answers of a connection together.
    Together,
}

/// How far something reaches that is tried at growing sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// States of this many newest blocks.
    State,
    /// This many newest blocks.
    Blocks,
    /// Logs and receipts of this many newest blocks.
    Logs,
    /// Traces of this many newest blocks.
    Traces,
    /// Blocks that one search may go over.
    Range,
    /// Calls in one batch.
    Batch,
}

impl Extent {
    /// As a cell names it.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "state" => Some(Self::State),
            "blocks" => Some(Self::Blocks),
            "logs" => Some(Self::Logs),
            "traces" => Some(Self::Traces),
            "range" => Some(Self::Range),
            "batch" => Some(Self::Batch),
            _ => None,
        }
    }
}

/// What the provider served to this many users, each of which sends its next call when it has an answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ServedUsers {
    /// Users.
    pub users: u64,
    /// Calls a second.
    pub per_second: f64,
    /// Of the time of a call.
    pub p99_ms: f64,
    /// What was not served.
    #[serde(default)]
    pub failed: FailedCalls,
}

/// Calls that were not served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCalls {
    /// These.
    pub failed: u64,
    /// Of this many.
    pub of: u64,
    /// Of those that failed, those that were never answered.
    pub unanswered: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// A call takes this long when nothing else is asked.
    Takes {
        /// The median, milliseconds.
        p50_ms: f64,
        /// The 95th percentile.
        p95_ms: f64,
    },
    /// One connection bears this many streams at once.
    StreamCap {
        /// Streams.
        streams: u32,
        /// What happens above.
        way: CapWay,
        /// How often of how often, such as `3 of 3`.
        seen: String,
    },
    /// It bears all that were tried.
    NoStreamCap {
        /// Streams.
        up_to: u32,
    },
    /// A connection ends after this many requests.
    Recycle {
        /// Requests.
        after_calls: u64,
        /// Whether nothing that it carried is lost.
        orderly: bool,
    },
    /// It bears all that were tried.
    NoRecycle {
        /// Requests.
        up_to: u64,
    },
    /// A connection that carries nothing is closed.
    IdleClose {
        /// After this long.
        after_ms: u64,
    },
    /// It stays open.
    NoIdleClose {
        /// As long as was tried.
        up_to_ms: u64,
    },
    /// This many calls a second pass.
    Rate {
        /// Calls.
        per_second: f64,
        /// How others are refused.
        way: RefusalWay,
    },
    /// All pass.
    NoRateLimit {
        /// As many as were tried.
        up_to_per_second: f64,
        /// For this long, seconds: a limit that counts over longer does not show.
        kept_s: f64,
    },
    /// No more calls than this are taken at a time.
    InFlight {
        /// Calls.
        calls: u64,
        /// How others are refused.
        way: RefusalWay,
    },
    /// No more connections than this are taken from one address.
    ConnectionCap {
        /// Connections.
        connections: u64,
        /// How calls on others are refused.
        way: RefusalWay,
    },
    /// This many calls pass at once.
    Bucket {
        /// Calls.
        size: u64,
        /// Calls a second that pass for ever.
        refill_per_second: f64,
        /// Size / refill, seconds.
        window_s: f64,
        /// How they pass again.
        refill: Refilled,
        /// How others are refused.
        way: RefusalWay,
        /// Whether they are told when to come again.
        retry_after: RetryAfterWorth,
    },
    /// A burst passes whole.
    NoBucket {
        /// As many calls as were tried.
        up_to: u64,
    },
    /// More at a time only takes longer, and nothing says so.
    Shaped {
        /// Calls a second, whatever is sent.
        calls_per_second: f64,
        /// What is counted.
        scope: ShapingScope,
        /// Calls at a time from which on it shows.
        knee: f64,
    },
    /// More at a time is served as quickly.
    NotShaped {
        /// Calls a second that were reached.
        up_to: f64,
    },
    /// Calls take less time.
    Faster {
        /// One way.
        what: String,
        /// The other.
        than: String,
        /// By this many percent of the other's median.
        percent: f64,
        /// The interval of 95 %.
        low: f64,
        /// Likewise.
        high: f64,
        /// What was held.
        held: String,
    },
    /// The interval of 95 % holds zero.
    NoDifference {
        /// One way.
        what: String,
        /// The other.
        than: String,
        /// Percent of the other's median.
        low: f64,
        /// Likewise.
        high: f64,
        /// What was held.
        held: String,
    },
    /// Large answers come at a pace.
    BodyPace {
        /// Bytes a second.
        bytes_per_second: f64,
        /// Of what.
        of: PacedFlow,
    },
    /// Large answers come as quickly as can be told.
    NoBodyPace {
        /// Bytes a second that were reached at least.
        up_to_bytes_per_second: f64,
    },
    /// Small calls beside large ones on the same connection take longer.
    SmallWait {
        /// By so much, milliseconds.
        ms: f64,
        /// The interval of 95 %.
        low: f64,
        /// Likewise.
        high: f64,
        /// What they take without large ones beside them.
        alone_ms: f64,
    },
    /// They do not.
    SmallFlow {
        /// The interval of 95 % of what they take longer, milliseconds.
        low: f64,
        /// Likewise.
        high: f64,
    },
    /// What a method counts against the rate.
    Cost {
        /// The method.
        method: String,
        /// Compared with this one.
        base: String,
        /// By what passed. 0 where it was never refused.
        observed_ratio: f64,
        /// No less, by what counting to one call and the repeats allow.
        low: f64,
        /// Likewise, no more.
        high: f64,
        /// By the catalogue, where it knows the provider.
        catalogue_ratio: Option<f64>,
    },
    /// A new block is shown so much later than by the quickest other target.
    Lag {
        /// The median, milliseconds.
        ms: f64,
        /// The interval of 95 % of the median.
        low_ms: f64,
        /// Likewise.
        high_ms: f64,
        /// The 95th percentile of single blocks.
        p95_ms: f64,
        /// Blocks below the highest other target, half of the time or more.
        blocks: u64,
        /// Blocks, 95 % of the time or more.
        p95_blocks: u64,
        /// Blocks that came here and there.
        seen: u64,
        /// The quickest target.
        behind: String,
    },
    /// A new block is shown when the others show it.
    NoLag {
        /// Less than so much later, milliseconds.
        within_ms: f64,
        /// Blocks that came here and there.
        seen: u64,
    },
    /// Answers differ from those of the others.
    Disagrees {
        /// That many.
        calls: u64,
        /// Of this many.
        of: u64,
        /// Of those that differ: where most targets agree on something else.
        outvoted: u64,
        /// The smallest call that shows it.
        method: String,
        /// Its parameters.
        params: String,
        /// Where the answers differ.
        difference: Option<String>,
    },
    /// All answers are those of the others.
    Agrees {
        /// This many.
        calls: u64,
    },
    /// How far it reaches.
    Reach {
        /// In what.
        what: Extent,
        /// The largest size that was served.
        up_to: Option<u64>,
        /// The smallest that was not.
        refused_at: Option<u64>,
        /// The largest is all that there is.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        whole: bool,
    },
    /// Which methods are served.
    Methods {
        /// How many of those that were tried.
        served: u64,
        /// The others.
        missing: Vec<String>,
    },
    /// Whether calls go over WebSocket.
    WebSocket {
        /// They do.
        served: bool,
    },
    /// The highest load that is borne.
    Capacity {
        /// Calls a second.
        per_second: f64,
        /// There, from the intended start.
        p99_ms: f64,
        /// There.
        #[serde(default)]
        failed: FailedCalls,
    },
    /// All load that was tried is borne.
    NoCapacityLimit {
        /// Calls a second.
        up_to_per_second: f64,
        /// There, from the intended start.
        p99_ms: f64,
        /// There.
        #[serde(default)]
        failed: FailedCalls,
    },
    /// What users were served. They offer no more than that, so it is no capacity.
    Users {
        /// In the order in which they were played.
        stages: Vec<ServedUsers>,
    },
    /// Time that calls take more than at another target, such as one behind a proxy than the
    /// same one without.
    Adds {
        /// The other target's id.
        than: String,
        /// Of the medians, milliseconds.
        ms: f64,
        /// The interval of 95 %.
        low: f64,
        /// Likewise.
        high: f64,
        /// What both were asked.
        held: String,
    },
    /// How it did over a long time.
    Held {
        /// Minutes that were watched.
        minutes: u64,
        /// Parts in which they were rolled up.
        parts: u64,
        /// Of these, those with an error.
        with_errors: u64,
        /// The median, milliseconds, in the middle one of the parts.
        p50_ms: f64,
        /// The 99th percentile, likewise.
        p99_ms: f64,
    },
    /// Something rose or fell in a long time.
    Drift {
        /// What.
        what: Drifting,
        /// At the begin, by a straight line.
        from: f64,
        /// At the end.
        to: f64,
        /// Minutes that were watched.
        minutes: u64,
    },
    /// Something is another from one moment on.
    Step {
        /// What.
        what: Drifting,
        /// The median before.
        from: f64,
        /// The median after.
        to: f64,
        /// Minutes that had been watched by then.
        after_minutes: u64,
        /// Minutes that were watched.
        minutes: u64,
    },
    /// Some calls fail, for a reason that is no limit.
    Fails {
        /// Percent of the calls.
        percent: f64,
        /// The interval of 95 %.
        low: f64,
        /// Likewise.
        high: f64,
        /// How they fail.
        how: FailureWay,
        /// Where that is so.
        when: FailureSpan,
    },
    /// Nothing rose or fell.
    NoDrift {
        /// Minutes that were watched.
        minutes: u64,
    },
    /// The target was asked no more.
    Ended {
        /// Calls that were served before.
        after_calls: u64,
        /// Because.
        reason: EndReason,
    },
    /// Nothing can be concluded.
    CannotTell {
        /// Because.
        why: String,
    },
}

/// What a comparison held, and its two ways.
type Named<'a> = (&'a str, &'a str, &'a str);

/// Figures of two runs that differ by less are the same finding.
const ALIKE: f64 = 0.1;

/// And so are lags that differ by less, in milliseconds.
const ALIKE_MS: f64 = 50.0;

impl Finding {
    /// Whether two runs found the same: the same kind and words, and figures within 10 %. Figures
    /// that have an interval are the same where these overlap. Times without one are not compared:
    /// they differ from one minute to the next, and no two runs met the same minutes.
    pub fn alike(&self, other: &Self) -> bool {
        if let (Some((held, one)), Some((held_2, two))) = (self.ratio(), other.ratio()) {
            return held == held_2 && one.0 <= two.1 && two.0 <= one.1;
        }
        match (self, other) {
            (Self::SmallFlow { .. }, Self::SmallFlow { .. })
            | (Self::Takes { .. }, Self::Takes { .. }) => true,
            (
                Self::SmallWait { low, high, .. },
                Self::SmallWait { low: low_2, high: high_2, .. },
            ) => low <= high_2 && low_2 <= high,
            (
                Self::Adds { than, held, low, high, .. },
                Self::Adds { than: than_2, held: held_2, low: low_2, high: high_2, .. },
            ) => than == than_2 && held == held_2 && low <= high_2 && low_2 <= high,
            (Self::Lag { ms, .. }, Self::Lag { ms: other, .. }) => {
                (ms - other).abs() < ALIKE_MS.max(ALIKE * ms.max(*other))
            }
            (Self::NoLag { .. }, Self::NoLag { .. }) => true,
            // Where the first refusal came depends on what was sent before.
            (Self::Ended { reason, .. }, Self::Ended { reason: other, .. }) => {
                std::mem::discriminant(reason) == std::mem::discriminant(other)
            }
            (
                Self::Fails { how, when, low, high, .. },
                Self::Fails { how: how_2, when: when_2, low: low_2, high: high_2, .. },
            ) => how == how_2 && when == when_2 && low <= high_2 && low_2 <= high,
            (one, other) => match (serde_json::to_value(one), serde_json::to_value(other)) {
                (Ok(one), Ok(other)) => alike(&one, &other),
                (Err(_), _) | (_, Err(_)) => false,
            },
        }
    }

    /// Whether it says that `what` is another at the end than at the begin.
    pub(super) fn moves(&self, what: Drifting) -> bool {
        let (Self::Drift { what: moved, .. } | Self::Step { what: moved, .. }) = self else {
            return false;
        };
        *moved == what
    }

    /// What a comparison held and compared, and the interval of the time of the way that comes
    /// first in the order of names over that of the other. Which of two is told first may be
    /// chance.
    fn ratio(&self) -> Option<(Named<'_>, (f64, f64))> {
        let (Self::Faster { what, than, low, high, held, .. }
        | Self::NoDifference { what, than, low, high, held }) = self
        else {
            return None;
        };
        let (low, high) = (1.0 - high / 100.0, 1.0 - low / 100.0);
        Some(match what <= than {
            true => ((held, what, than), (low, high)),
            false => ((held, than, what), (1.0 / high, 1.0 / low)),
        })
    }

    /// With six figures in each number: more were never measured, and this many come back from
    /// JSON as they were.
    pub(super) fn rounded(mut self) -> Self {
        for number in self.numbers() {
            *number = format!("{number:.5e}").parse().unwrap_or(*number);
        }
        self
    }

    /// The numbers that were computed; what was counted or set stays as it is.
    fn numbers(&mut self) -> Vec<&mut f64> {
        match self {
            Self::Rate { per_second: a, .. }
            | Self::NotShaped { up_to: a }
            | Self::BodyPace { bytes_per_second: a, .. }
            | Self::NoBodyPace { up_to_bytes_per_second: a }
            | Self::NoLag { within_ms: a, .. } => vec![a],
            Self::Bucket { refill_per_second: a, window_s: b, .. }
            | Self::NoRateLimit { up_to_per_second: a, kept_s: b }
            | Self::Drift { from: a, to: b, .. }
            | Self::Step { from: a, to: b, .. }
            | Self::Takes { p50_ms: a, p95_ms: b }
            | Self::Shaped { calls_per_second: a, knee: b, .. }
            | Self::NoDifference { low: a, high: b, .. }
            | Self::SmallFlow { low: a, high: b }
            | Self::Capacity { per_second: a, p99_ms: b, .. }
            | Self::NoCapacityLimit { up_to_per_second: a, p99_ms: b, .. }
            | Self::Held { p50_ms: a, p99_ms: b, .. } => vec![a, b],
            Self::Adds { ms: a, low: b, high: c, .. }
            | Self::Fails { percent: a, low: b, high: c, .. }
            | Self::Faster { percent: a, low: b, high: c, .. } => vec![a, b, c],
            Self::Lag { ms: a, low_ms: b, high_ms: c, p95_ms: d, .. }
            | Self::SmallWait { ms: a, low: b, high: c, alone_ms: d } => vec![a, b, c, d],
            Self::Cost { observed_ratio, low, high, catalogue_ratio, .. } => {
                [observed_ratio, low, high].into_iter().chain(catalogue_ratio).collect()
            }
            Self::Users { stages } => stages
                .iter_mut()
                .flat_map(|stage| [&mut stage.per_second, &mut stage.p99_ms])
                .collect(),
            Self::StreamCap { .. }
            | Self::NoStreamCap { .. }
            | Self::Recycle { .. }
            | Self::NoRecycle { .. }
            | Self::IdleClose { .. }
            | Self::NoIdleClose { .. }
            | Self::NoBucket { .. }
            | Self::InFlight { .. }
            | Self::ConnectionCap { .. }
            | Self::Disagrees { .. }
            | Self::Agrees { .. }
            | Self::Reach { .. }
            | Self::Methods { .. }
            | Self::WebSocket { .. }
            | Self::NoDrift { .. }
            | Self::Ended { .. }
            | Self::CannotTell { .. } => Vec::new(),
        }
    }
}

/// Figures of few calls, which are not compared without an interval.
const TAILS: [&str; 3] = ["p95_ms", "p99_ms", "failed"];

fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap_or(0.0), other.as_f64().unwrap_or(0.0));
            (one - other).abs() <= ALIKE * one.abs().max(other.abs())
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| {
                    let same = |other| TAILS.contains(&key.as_str()) || alike(value, other);
                    other.get(key).is_some_and(same)
                })
        }
        (one, other) => one == other,
    }
}
