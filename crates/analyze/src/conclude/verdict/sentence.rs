//! What verdicts say: a sentence for each kind of findings, and how figures are written in it.
//!
//! One word for one thing: a call above a limit is *throttled*, one that gets another status or an error
//! is *rejected*, a connection that ends under a call is *reset*, and a call without the rights is
//! *unauthorized*. `docs/analyze-sentences.md` shows every sentence.

use std::fmt;

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{
    AnswersDiffer, BlockLag, BodyPace, CapWay, Drifting, Extent, FailedCalls, FailureSpan,
    FailureWay, Faster, Finding, NoDifference, NoLoadCapacity, PacedFlow, Refilled, RefusalWay,
    RetryAfterWorth, ServedUsers, ShapingScope, SmallWait, StreamLimit, TokenLimit,
};
use crate::ending::SendingEnd;
use crate::text::{class_words, transport_words};

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self {
            Self::Takes { p50_ms, p95_ms } => {
                format!("p50 {}, p95 {}", time(*p50_ms), time(*p95_ms))
            }
            Self::StreamCap(_) | Self::Recycle(_) | Self::IdleClose(_) => self.of_connections(),
            Self::Rate(_)
            | Self::InFlight { .. }
            | Self::ConnectionCap { .. }
            | Self::Bucket(_)
            | Self::Shaping(_) => self.of_limits(),
            Self::Comparison(_)
            | Self::BodyPace(_)
            | Self::SmallWait(_)
            | Self::Cost { .. }
            | Self::Adds { .. } => self.of_comparisons(),
            Self::Lag(_)
            | Self::Answers(_)
            | Self::Reach { .. }
            | Self::Methods { .. }
            | Self::WebSocket { .. } => self.of_answers(),
            Self::Capacity(_)
            | Self::Users { .. }
            | Self::Held { .. }
            | Self::Drift(_)
            | Self::Step { .. }
            | Self::Fails { .. } => self.of_loads(),
            Self::Ended { after_calls, reason } => {
                let after = counted(*after_calls, "served call");
                format!("Sending stopped after {after}: {}", reason.words())
            }
            Self::CannotTell { why } => format!("inconclusive: {why}"),
        };
        f.write_str(&sentence)
    }
}

impl Finding {
    fn of_connections(&self) -> String {
        match self {
            Self::StreamCap(Found(it)) => it.sentence(),
            Self::StreamCap(NotUpTo(it)) => {
                format!("No limit up to {} per connection", streams(it.up_to))
            }
            Self::Recycle(Found(it)) => {
                let lost = if it.orderly { "" } else { "; requests in flight are lost" };
                format!("Connection is closed after {}{lost}", counted(it.after_calls, "request"))
            }
            Self::Recycle(NotUpTo(it)) => {
                format!("Connection serves at least {}", counted(it.up_to, "request"))
            }
            Self::IdleClose(Found(it)) => {
                format!("Idle connection is closed after {}", time(it.after_ms as f64))
            }
            Self::IdleClose(NotUpTo(it)) => {
                format!("Idle connection stays open for at least {}", time(it.up_to_ms as f64))
            }
            _ => String::new(),
        }
    }

    fn of_limits(&self) -> String {
        match self {
            Self::Rate(Found(it)) => {
                format!(
                    "Rate limit: {} req/s sustained; {}",
                    figure(it.per_second),
                    it.way.excess()
                )
            }
            Self::Rate(NotUpTo(it)) => format!(
                "No rate limit up to {} req/s, sustained for {}",
                figure(it.up_to_per_second),
                time(it.kept_s * 1_000.0)
            ),
            Self::InFlight { calls, way } => {
                format!("At most {}; {}", counted(*calls, "concurrent request"), way.excess())
            }
            Self::ConnectionCap { connections, way } => {
                let most = counted(*connections, "connection");
                format!("At most {most} per client address; {}", way.excess())
            }
            Self::Bucket(Found(it)) => it.sentence(),
            Self::Bucket(NotUpTo(it)) => {
                format!("Burst of {} is served without throttling", counted(it.up_to, "request"))
            }
            Self::Shaping(Found(it)) => format!(
                "Shaped to {} req/s {}; excess waits",
                figure(it.calls_per_second),
                it.scope.about()
            ),
            Self::Shaping(NotUpTo(it)) => format!("No shaping up to {} req/s", figure(it.up_to)),
            _ => String::new(),
        }
    }

    fn of_comparisons(&self) -> String {
        match self {
            Self::Comparison(Found(it)) => it.sentence(),
            Self::Comparison(NotUpTo(it)) => it.sentence(),
            Self::BodyPace(Found(it)) => it.sentence(),
            Self::BodyPace(NotUpTo(it)) => {
                let reached = bytes(it.up_to_bytes_per_second);
                format!("No bandwidth limit on large responses up to {reached}/s")
            }
            Self::SmallWait(Found(it)) => it.sentence(),
            Self::SmallWait(NotUpTo(it)) => format!(
                "Small calls do not wait for large responses on their connection (95 % CI {} to {})",
                time(it.low),
                time(it.high)
            ),
            Self::Cost { method, base, observed_ratio, low, high, catalogue_ratio } => {
                let cost = cost([method, base], *observed_ratio, [*low, *high]);
                format!("{cost}; {}", catalogued(*catalogue_ratio))
            }
            Self::Adds { than, ms, low, high, held } => {
                let interval = |low, high| format!("95 % CI {} to {}", time(low), time(high));
                let (held, usual) = (held_by(held), interval(*low, *high));
                match (*low > 0.0, *high < 0.0) {
                    (true, _) => format!("{} slower than {than}, {usual}{held}", time(*ms)),
                    (_, true) => {
                        let usual = interval(-high, -low);
                        format!("{} faster than {than}, {usual}{held}", time(-ms))
                    }
                    (_, _) => format!("No significant difference from {than}, {usual}{held}"),
                }
            }
            _ => String::new(),
        }
    }

    fn of_answers(&self) -> String {
        match self {
            Self::Lag(Found(it)) => it.sentence(),
            Self::Lag(NotUpTo(it)) => format!(
                "New blocks appear no later than at the other targets, within {} ({})",
                time(it.within_ms),
                counted(it.seen, "block")
            ),
            Self::Answers(Found(it)) => it.sentence(),
            Self::Answers(NotUpTo(it)) => {
                format!("All {} agree with the other targets", counted(it.calls, "answer"))
            }
            Self::Reach { what, up_to, refused_at, whole } => {
                what.sentence(*up_to, *refused_at, *whole)
            }
            Self::Methods { served, missing } if missing.is_empty() => {
                format!("All {} are served", counted(*served, "method"))
            }
            Self::Methods { served, missing } => {
                let all = counted(*served + missing.len() as u64, "method");
                format!("{} of {all} are served; missing: {}", whole(*served), listed(missing))
            }
            Self::WebSocket { served: true } => "Calls over WebSocket are served".to_owned(),
            Self::WebSocket { served: false } => "Calls over WebSocket are not served".to_owned(),
            _ => String::new(),
        }
    }

    fn of_loads(&self) -> String {
        match self {
            Self::Capacity(Found(it)) => format!(
                "Sustains at most {} req/s, at p99 {}; {}",
                figure(it.per_second),
                time(it.p99_ms),
                it.failed
            ),
            Self::Capacity(NotUpTo(NoLoadCapacity { up_to_per_second, p99_ms, failed })) => {
                let (most, p99) = (figure(*up_to_per_second), time(*p99_ms));
                format!("Sustains the whole offered load, {most} req/s at p99 {p99}; {failed}")
            }
            Self::Users { stages } => users(stages),
            Self::Held { minutes, parts, with_errors, p50_ms, p99_ms } => format!(
                "p50 {}, p99 {} over {}; errors in {} of {}",
                time(*p50_ms),
                time(*p99_ms),
                watched(*minutes),
                whole(*with_errors),
                counted(*parts, "interval")
            ),
            Self::Drift(Found(it)) => {
                let moves = if it.to > it.from { "rises" } else { "falls" };
                let change = it.what.change(it.from, it.to);
                format!("{} {moves} {change} in {}", it.what.subject(), watched(it.minutes))
            }
            Self::Drift(NotUpTo(it)) => format!(
                "No drift or step in latency, errors or throughput in {}",
                watched(it.minutes)
            ),
            Self::Step { what, from, to, after_minutes, minutes } => {
                let moves = if to > from { "jumps" } else { "drops" };
                let (after, all) = (whole(*after_minutes), counted(*minutes, "minute"));
                let change = what.change(*from, *to);
                format!("{} {moves} {change} after {after} of {all}", what.subject())
            }
            Self::Fails { percent, how, when, .. } => {
                format!("{} % of calls {}, {}", figure(*percent), how.words(), when.words())
            }
            _ => String::new(),
        }
    }
}

fn streams(n: u64) -> String {
    counted(n, "concurrent stream")
}

impl StreamLimit {
    fn sentence(&self) -> String {
        let (most, seen) = (self.streams, &self.seen);
        match self.way {
            CapWay::Announced => {
                format!("At most {} per connection (announced; {seen})", streams(most))
            }
            CapWay::Refused => format!(
                "At most {} per connection; more are rejected (not announced; {seen})",
                streams(most)
            ),
            CapWay::Fatal => format!(
                "Connection is closed at the {} concurrent stream (not announced; {seen})",
                ordinal(most + 1)
            ),
        }
    }
}

impl TokenLimit {
    fn sentence(&self) -> String {
        let (size, window) = (counted(self.size, "request"), time(self.window_s * 1_000.0));
        let limit = match self.refill {
            Refilled::Evenly => format!(
                "Token bucket: {} req/s sustained, burst {}",
                figure(self.refill_per_second),
                whole(self.size)
            ),
            Refilled::Window => format!("Fixed window: {size} per {window}"),
            Refilled::Sliding => format!("Sliding window: {size} per {window}"),
            Refilled::AtOnce => format!("Window, fixed or sliding: {size} per {window}"),
        };
        let retry_after = match self.way {
            RefusalWay::Status429 | RefusalWay::InBody | RefusalWay::OtherStatus(_) => {
                self.retry_after.word()
            }
            RefusalWay::Unanswered | RefusalWay::Queued => "",
        };
        format!("{limit}; {}{retry_after}", self.way.excess())
    }
}

impl RefusalWay {
    /// What becomes of a call above a limit.
    fn excess(self) -> String {
        match self {
            Self::Queued => "excess waits".to_owned(),
            Self::Status429 | Self::InBody | Self::OtherStatus(_) | Self::Unanswered => {
                format!("excess gets {}", self.word())
            }
        }
    }

    /// For people.
    pub fn word(self) -> String {
        match self {
            Self::Status429 => "429".to_owned(),
            Self::InBody => "an error in the body".to_owned(),
            Self::OtherStatus(status) => status.to_string(),
            Self::Unanswered => "no response".to_owned(),
            Self::Queued => "a wait".to_owned(),
        }
    }
}

impl RetryAfterWorth {
    fn word(self) -> &'static str {
        match self {
            Self::NotGiven => " without Retry-After",
            Self::Holds => " with a correct Retry-After",
            Self::TooShort => " with a Retry-After that is too short",
            Self::Untried => " with an untested Retry-After",
        }
    }
}

impl ShapingScope {
    fn about(self) -> &'static str {
        match self {
            Self::Connection => "per connection",
            Self::Account => "per account",
            Self::Open => "(per connection or per account: one number of connections was tried)",
        }
    }
}

impl Faster {
    fn sentence(&self) -> String {
        let Self { what, than, percent, low, high, held } = self;
        let (percent, low, high) = (round(*percent), round(*low), round(*high));
        let held = held_by(held);
        format!("{what} takes {percent} % less time than {than}, 95 % CI {low} to {high} %{held}")
    }
}

impl NoDifference {
    fn sentence(&self) -> String {
        let Self { what, than, low, high, held } = self;
        let (low, high, held) = (round(*low), round(*high), held_by(held));
        format!(
            "No significant difference between {what} and {than}, 95 % CI {low} to {high} %{held}"
        )
    }
}

impl BodyPace {
    fn sentence(&self) -> String {
        let pace = bytes(self.bytes_per_second);
        match self.of {
            PacedFlow::Each => format!("Large responses are limited to {pace}/s each"),
            PacedFlow::Together => {
                format!("Large responses on one connection are limited to {pace}/s together")
            }
        }
    }
}

impl SmallWait {
    fn sentence(&self) -> String {
        format!(
            "Small calls wait {} for large responses on their connection, 95 % CI {} to {}; alone they take {}",
            time(self.ms),
            time(self.low),
            time(self.high),
            time(self.alone_ms)
        )
    }
}

fn cost([method, base]: [&str; 2], ratio: f64, [low, high]: [f64; 2]) -> String {
    let most = figure(high);
    if ratio == 0.0 {
        return format!("{method} was never throttled: it costs less than {most} times {base}");
    }
    let own = if low > 1.0 { ", or has a limit of its own" } else { "" };
    let (ratio, low) = (figure(ratio), figure(low));
    let times = if ratio == "1" { "as much as".to_owned() } else { format!("{ratio} times") };
    format!("{method} costs {times} {base} ({low} to {most}){own}")
}

fn catalogued(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) => format!("catalogue: {}", figure(ratio)),
        None => "not in the catalogue".to_owned(),
    }
}

impl BlockLag {
    fn sentence(&self) -> String {
        let (p50, p95) = (time(self.ms), time(self.p95_ms));
        let (low, high) = (time(self.low_ms.max(0.0)), time(self.high_ms));
        format!(
            "New blocks appear {p50} later than at {}, 95 % CI {low} to {high}, p95 {p95}; {} behind at p50, {} at p95",
            self.behind,
            counted(self.blocks, "block"),
            whole(self.p95_blocks)
        )
    }
}

impl AnswersDiffer {
    fn sentence(&self) -> String {
        let (calls, of) = (whole(self.calls), counted(self.of, "answer"));
        let (verb, method) = (if self.calls == 1 { "differs" } else { "differ" }, &self.method);
        match self.outvoted {
            0 => format!(
                "{calls} of {of} {verb} from the other targets (such as {method}); which is right is unknown"
            ),
            all if all == self.calls => {
                format!("{calls} of {of} {verb} from most targets (such as {method})")
            }
            some => format!(
                "{calls} of {of} {verb} from the other targets, {} from most of them (such as {method})",
                whole(some)
            ),
        }
    }
}

impl Extent {
    /// What is tried at growing sizes.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::State => "State",
            Self::Blocks => "Blocks",
            Self::Logs => "Logs and receipts",
            Self::Traces => "Traces",
            Self::Range => "Log search",
            Self::Batch => "Batch",
        }
    }

    /// A size of it.
    fn size(self, n: u64) -> String {
        match self {
            Self::State | Self::Blocks | Self::Logs | Self::Traces => match n {
                1 => "the newest block".to_owned(),
                _ => format!("the newest {} blocks", whole(n)),
            },
            Self::Range => counted(n, "block"),
            Self::Batch => counted(n, "call"),
        }
    }

    fn sentence(self, up_to: Option<u64>, refused_at: Option<u64>, is_all: bool) -> String {
        let subject = self.subject();
        match (up_to, refused_at) {
            (Some(up_to), None) if is_all => match self {
                Self::Batch => format!("{subject}: served up to {}", self.size(up_to)),
                Self::State | Self::Blocks | Self::Logs | Self::Traces | Self::Range => {
                    format!("{subject}: served for all {}", counted(up_to, "block"))
                }
            },
            (Some(up_to), Some(at)) => {
                format!("{subject}: served for {}, not for {}", self.size(up_to), whole(at))
            }
            (Some(up_to), None) => format!("{subject}: served for at least {}", self.size(up_to)),
            (None, Some(at)) => format!("{subject}: not served, not even for {}", self.size(at)),
            (None, None) => format!("{subject}: not tried"),
        }
    }
}

impl fmt::Display for FailedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { failed, of, unanswered } = *self;
        if failed == 0 {
            return write!(f, "no call failed");
        }
        let percent = figure(100.0 * failed as f64 / of.max(1) as f64);
        write!(f, "{percent} % of calls failed")?;
        match unanswered {
            0 => write!(f, ", all with a response"),
            some if some == failed => write!(f, ", all without a response"),
            some => write!(f, ", {} of {} without a response", whole(some), whole(failed)),
        }
    }
}

fn users(stages: &[ServedUsers]) -> String {
    let shown = stages.len().min(LISTED_MAX);
    let one = |stage: &ServedUsers| {
        let (users, served) = (counted(stage.users, "user"), figure(stage.per_second));
        format!("{users}: {served} req/s, p99 {}, {}", time(stage.p99_ms), stage.failed)
    };
    let mut parts: Vec<String> = stages[..shown].iter().map(one).collect();
    match stages.len() - shown {
        0 => {}
        more => parts.push(format!("and {}", counted(more as u64, "more stage"))),
    }
    parts.join("; ")
}

impl SendingEnd {
    fn words(self) -> String {
        let long = |seconds: u64| time(seconds as f64 * 1_000.0);
        match self {
            Self::LongPause { seconds } => {
                format!("throttled with a Retry-After of {}", long(seconds))
            }
            Self::Spent => "the quota is spent".to_owned(),
            Self::Refused { seconds } => format!(
                "every call was throttled or unauthorized for {} (a ban, a spent quota or a long window)",
                long(seconds)
            ),
        }
    }
}

impl FailureWay {
    fn words(&self) -> String {
        match self {
            Self::Refused(RefusalWay::Unanswered | RefusalWay::Queued) => {
                "get no response".to_owned()
            }
            Self::Refused(way) => format!("fail with {}", way.word()),
            Self::Transport(error) => match transport_words(error).as_str() {
                "reset" => "are reset".to_owned(),
                words => format!("get {words}"),
            },
            Self::Class(class) => match class_words(class).as_str() {
                words @ ("unauthorized" | "throttled") => format!("are {words}"),
                "failed" => "fail".to_owned(),
                words => format!("fail ({words})"),
            },
        }
    }
}

impl FailureSpan {
    fn words(self) -> &'static str {
        match self {
            Self::AnyRate => "at any rate",
            Self::AnyConcurrency => "at any concurrency",
            Self::AnyTime => "throughout the run",
        }
    }
}

impl Drifting {
    /// What it is, for people.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Time => "p50",
            Self::Tail => "p99",
            Self::Errors => "Error rate",
            Self::Throughput => "Throughput",
        }
    }

    fn change(self, from: f64, to: f64) -> String {
        match self {
            Self::Time | Self::Tail => format!("from {} to {}", time(from), time(to)),
            Self::Errors => format!("from {} to {} %", figure(from), figure(to)),
            Self::Throughput => format!("from {} to {} req/s", figure(from), figure(to)),
        }
    }
}

fn watched(minutes: u64) -> String {
    match minutes {
        0 => "less than a minute".to_owned(),
        some => counted(some, "minute"),
    }
}

/// A number of things, such as `1 call` and `1,000 calls`.
fn counted(n: u64, thing: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {thing}{s}", whole(n))
}

fn ordinal(n: u64) -> String {
    let suffix = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        (_, _) => "th",
    };
    format!("{}{suffix}", whole(n))
}

/// Names that a sentence has room for.
const LISTED_MAX: usize = 5;

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {} more", whole(more as u64)) }
}

fn held_by(held: &str) -> String {
    if held.is_empty() { String::new() } else { format!(" ({held})") }
}

/// A whole percentage, without a negative zero.
fn round(percent: f64) -> i64 {
    percent.round() as i64
}

fn whole(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three figures or all before the point, thousands apart: `0.83`, `12.5`, `252`, `10,000`.
pub fn figure(x: f64) -> String {
    if !x.is_finite() {
        return "-".to_owned();
    }
    if x < 0.0 {
        return format!("-{}", figure(-x));
    }
    if x >= 99.95 {
        return whole(x.round() as u64);
    }
    let decimals = if x >= 9.995 { 1 } else { 2 };
    let text = format!("{x:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes with the unit that reads best.
pub(crate) fn bytes(n: f64) -> String {
    match n {
        1e9.. => format!("{} GB", figure(n / 1e9)),
        1e6.. => format!("{} MB", figure(n / 1e6)),
        1e3.. => format!("{} kB", figure(n / 1e3)),
        _ => format!("{} bytes", figure(n)),
    }
}

/// Milliseconds with the unit that reads best.
fn time(ms: f64) -> String {
    if ms >= 7_200_000.0 {
        format!("{} h", figure(ms / 3_600_000.0))
    } else if ms >= 120_000.0 {
        format!("{} min", figure(ms / 60_000.0))
    } else if ms >= 1_000.0 {
        let s = ms / 1_000.0;
        // A window of 0.98 to 1.02 s is one of a second; more figures were never measured.
        let s = if (s / s.round() - 1.0).abs() < 0.03 { s.round() } else { s };
        format!("{} s", figure(s))
    } else if ms >= 970.0 {
        "1 s".to_owned()
    } else {
        format!("{} ms", figure(ms))
    }
}
