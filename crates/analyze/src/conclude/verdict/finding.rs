//! What can be found: a kind, and whether a limit was found or none up to what was tried. What all
//! kinds have in common is one table in `kind`; the sentence for each is in `sentence`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::FindingBound::{Found, NotUpTo};
use crate::ending::SendingEnd;

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

/// How far something reaches that is tried at growing sizes. Its words stand in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[derive(strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
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

wellhead_word::words!(Extent);

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

/// What came of trying more and more of something, or of looking for a difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "bound", rename_all = "snake_case")]
pub enum FindingBound<F, N> {
    /// The limit, or the difference, was found.
    Found(F),
    /// There is none up to what was tried.
    NotUpTo(N),
}

/// All pass that were tried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoCountLimit {
    /// As many: streams at once, requests on one connection, or calls at once.
    pub up_to: u64,
}

/// One connection bears this many streams at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamLimit {
    /// Streams.
    pub streams: u64,
    /// What happens above.
    pub way: CapWay,
    /// How often of how often, such as `3 of 3`.
    pub seen: String,
}

/// A connection ends after this many requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recycle {
    /// Requests.
    pub after_calls: u64,
    /// Whether nothing that it carried is lost.
    pub orderly: bool,
}

/// A connection that carries nothing is closed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IdleClose {
    /// After this long.
    pub after_ms: u64,
}

/// It stays open.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoIdleClose {
    /// As long as was tried.
    pub up_to_ms: u64,
}

/// This many calls a second pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RefusedRate {
    /// Calls.
    pub per_second: f64,
    /// How others are refused.
    pub way: RefusalWay,
}

/// All pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoRateLimit {
    /// As many as were tried.
    pub up_to_per_second: f64,
    /// For this long, seconds: a limit that counts over longer does not show.
    pub kept_s: f64,
}

/// This many calls pass at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TokenLimit {
    /// Calls.
    pub size: u64,
    /// Calls a second that pass for ever.
    pub refill_per_second: f64,
    /// Size / refill, seconds.
    pub window_s: f64,
    /// How they pass again.
    pub refill: Refilled,
    /// How others are refused.
    pub way: RefusalWay,
    /// Whether they are told when to come again.
    pub retry_after: RetryAfterWorth,
}

/// More at a time only takes longer, and nothing says so.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shaped {
    /// Calls a second, whatever is sent.
    pub calls_per_second: f64,
    /// What is counted.
    pub scope: ShapingScope,
    /// Calls at a time from which on it shows.
    pub knee: f64,
}

/// More at a time is served as quickly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NotShaped {
    /// Calls a second that were reached.
    pub up_to: f64,
}

/// Calls take less time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Faster {
    /// One way.
    pub what: String,
    /// The other.
    pub than: String,
    /// By this many percent of the other's median.
    pub percent: f64,
    /// The interval of 95 %.
    pub low: f64,
    /// Likewise.
    pub high: f64,
    /// What was held.
    pub held: String,
}

/// The interval of 95 % holds zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoDifference {
    /// One way.
    pub what: String,
    /// The other.
    pub than: String,
    /// Percent of the other's median.
    pub low: f64,
    /// Likewise.
    pub high: f64,
    /// What was held.
    pub held: String,
}

/// Large answers come at a pace.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BodyPace {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Of what.
    pub of: PacedFlow,
}

/// Large answers come as quickly as can be told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoBodyPace {
    /// Bytes a second that were reached at least.
    pub up_to_bytes_per_second: f64,
}

/// Small calls beside large ones on the same connection take longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SmallWait {
    /// By so much, milliseconds.
    pub ms: f64,
    /// The interval of 95 %.
    pub low: f64,
    /// Likewise.
    pub high: f64,
    /// What they take without large ones beside them.
    pub alone_ms: f64,
}

/// They do not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SmallFlow {
    /// The interval of 95 % of what they take longer, milliseconds.
    pub low: f64,
    /// Likewise.
    pub high: f64,
}

/// A new block is shown so much later than by the quickest other target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockLag {
    /// The median, milliseconds.
    pub ms: f64,
    /// The interval of 95 % of the median.
    pub low_ms: f64,
    /// Likewise.
    pub high_ms: f64,
    /// The 95th percentile of single blocks.
    pub p95_ms: f64,
    /// Blocks below the highest other target, half of the time or more.
    pub blocks: u64,
    /// Blocks, 95 % of the time or more.
    pub p95_blocks: u64,
    /// Blocks that came here and there.
    pub seen: u64,
    /// The quickest target.
    pub behind: String,
}

/// A new block is shown when the others show it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoBlockLag {
    /// Less than so much later, milliseconds.
    pub within_ms: f64,
    /// Blocks that came here and there.
    pub seen: u64,
}

/// Answers differ from those of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnswersDiffer {
    /// That many.
    pub calls: u64,
    /// Of this many.
    pub of: u64,
    /// Of those that differ: where most targets agree on something else.
    pub outvoted: u64,
    /// The smallest call that shows it.
    pub method: String,
    /// Its parameters.
    pub params: String,
    /// Where the answers differ.
    pub difference: Option<String>,
}

/// All answers are those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AnswersAgree {
    /// This many.
    pub calls: u64,
}

/// The highest load that is borne.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadCapacity {
    /// Calls a second.
    pub per_second: f64,
    /// There, from the intended start.
    pub p99_ms: f64,
    /// There.
    #[serde(default)]
    pub failed: FailedCalls,
}

/// All load that was tried is borne.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoLoadCapacity {
    /// Calls a second.
    pub up_to_per_second: f64,
    /// There, from the intended start.
    pub p99_ms: f64,
    /// There.
    #[serde(default)]
    pub failed: FailedCalls,
}

/// Something rose or fell in a long time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// What.
    pub what: Drifting,
    /// At the begin, by a straight line.
    pub from: f64,
    /// At the end.
    pub to: f64,
    /// Minutes that were watched.
    pub minutes: u64,
}

/// Nothing rose or fell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoDrift {
    /// Minutes that were watched.
    pub minutes: u64,
}

/// What was found: its kind, by its figures and its words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(tag = "finding", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Finding {
    /// A call takes this long when nothing else is asked.
    Takes {
        /// The median, milliseconds.
        p50_ms: f64,
        /// The 95th percentile.
        p95_ms: f64,
    },
    /// Streams that one connection bears at once.
    StreamCap(FindingBound<StreamLimit, NoCountLimit>),
    /// Requests after which a connection ends.
    Recycle(FindingBound<Recycle, NoCountLimit>),
    /// How long a connection that carries nothing stays open.
    IdleClose(FindingBound<IdleClose, NoIdleClose>),
    /// Calls a second that pass for long.
    Rate(FindingBound<RefusedRate, NoRateLimit>),
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
    /// Calls that pass at once, and how they pass again.
    Bucket(FindingBound<TokenLimit, NoCountLimit>),
    /// Calls a second above which more at a time only takes longer, and nothing says so.
    Shaping(FindingBound<Shaped, NotShaped>),
    /// Which of two ways takes less time.
    Comparison(FindingBound<Faster, NoDifference>),
    /// The pace at which large answers come.
    BodyPace(FindingBound<BodyPace, NoBodyPace>),
    /// How small calls fare beside large ones on the same connection.
    SmallWait(FindingBound<SmallWait, SmallFlow>),
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
    /// How much later a new block is shown than by the quickest other target.
    Lag(FindingBound<BlockLag, NoBlockLag>),
    /// Whether answers are those of the other targets.
    Answers(FindingBound<AnswersDiffer, AnswersAgree>),
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
    Capacity(FindingBound<LoadCapacity, NoLoadCapacity>),
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
    /// What rose or fell in a long time.
    Drift(FindingBound<Drift, NoDrift>),
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
    /// The target was asked no more.
    Ended {
        /// Calls that were served before.
        after_calls: u64,
        /// Because.
        reason: SendingEnd,
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
pub(super) const ALIKE: f64 = 0.1;

/// And so are lags that differ by less, in milliseconds.
const ALIKE_MS: f64 = 50.0;

impl Finding {
    /// Whether two runs found the same: the same kind and words, and figures within 10 %. Figures
    /// that have an interval are the same where these overlap. Times without one are not compared:
    /// they differ from one minute to the next, and no two runs met the same minutes.
    pub fn alike(&self, other: &Self) -> bool {
        if let (Some((held, one)), Some((held_2, two))) = (self.ratio(), other.ratio()) {
            return held == held_2 && one.overlaps(two);
        }
        match (self, other) {
            (Self::SmallWait(NotUpTo(_)), Self::SmallWait(NotUpTo(_)))
            | (Self::Takes { .. }, Self::Takes { .. })
            | (Self::Lag(NotUpTo(_)), Self::Lag(NotUpTo(_))) => true,
            (Self::SmallWait(Found(one)), Self::SmallWait(Found(two))) => {
                ConfidenceSpan(one.low, one.high).overlaps(ConfidenceSpan(two.low, two.high))
            }
            (
                Self::Adds { than, held, low, high, .. },
                Self::Adds { than: than_2, held: held_2, low: low_2, high: high_2, .. },
            ) => {
                (than, held) == (than_2, held_2)
                    && ConfidenceSpan(*low, *high).overlaps(ConfidenceSpan(*low_2, *high_2))
            }
            (Self::Lag(Found(one)), Self::Lag(Found(two))) => {
                (one.ms - two.ms).abs() < ALIKE_MS.max(ALIKE * one.ms.max(two.ms))
            }
            // Where the first refusal came depends on what was sent before.
            (Self::Ended { reason, .. }, Self::Ended { reason: other, .. }) => {
                std::mem::discriminant(reason) == std::mem::discriminant(other)
            }
            (
                Self::Fails { how, when, low, high, .. },
                Self::Fails { how: how_2, when: when_2, low: low_2, high: high_2, .. },
            ) => {
                (how, when) == (how_2, when_2)
                    && ConfidenceSpan(*low, *high).overlaps(ConfidenceSpan(*low_2, *high_2))
            }
            (one, other) => match (serde_json::to_value(one), serde_json::to_value(other)) {
                (Ok(one), Ok(other)) => alike(&one, &other),
                (Err(_), _) | (_, Err(_)) => false,
            },
        }
    }

    /// Whether it says that `what` is another at the end than at the begin.
    pub(super) fn moves(&self, what: Drifting) -> bool {
        let (Self::Drift(Found(Drift { what: moved, .. })) | Self::Step { what: moved, .. }) = self
        else {
            return false;
        };
        *moved == what
    }

    /// What a comparison held and compared, and the interval of the time of the way that comes
    /// first in the order of names over that of the other. Which of two is told first may be
    /// chance.
    fn ratio(&self) -> Option<(Named<'_>, ConfidenceSpan)> {
        let Self::Comparison(compared) = self else { return None };
        let (Found(Faster { what, than, low, high, held, .. })
        | NotUpTo(NoDifference { what, than, low, high, held })) = compared;
        let (low, high) = (1.0 - high / 100.0, 1.0 - low / 100.0);
        Some(match what <= than {
            true => ((held, what, than), ConfidenceSpan(low, high)),
            false => ((held, than, what), ConfidenceSpan(1.0 / high, 1.0 / low)),
        })
    }

    /// With six figures in each number that was computed: more were never measured, and this many
    /// come back from JSON as they were. What was counted stays as it is.
    pub(super) fn rounded(self) -> Self {
        let rounded = serde_json::to_value(&self).map(|mut value| {
            round(&mut value);
            value
        });
        // A number that JSON does not have leaves the finding as it is.
        rounded.and_then(serde_json::from_value).unwrap_or(self)
    }
}

/// An interval, from its lower end to the upper one.
#[derive(Debug, Clone, Copy)]
struct ConfidenceSpan(f64, f64);

impl ConfidenceSpan {
    fn overlaps(self, other: Self) -> bool {
        self.0 <= other.1 && other.0 <= self.1
    }
}

fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().and_then(|it| format!("{it:.5e}").parse().ok());
            if let Some(rounded) = rounded.and_then(serde_json::Number::from_f64) {
                *number = rounded;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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
