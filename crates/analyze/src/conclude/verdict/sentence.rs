//! A plain sentence for each finding, and how figures are told.

use std::fmt;

use super::finding::{
    CapWay, Drifting, EndReason, Extent, FailedCalls, FailureSpan, FailureWay, Finding, PacedFlow,
    Refilled, RefusalWay, RetryAfterWorth, ServedUsers, ShapingScope,
};

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Takes { p50_ms, p95_ms } => write!(
                f,
                "one call at a time takes {}, 95 % within {}",
                time(*p50_ms),
                time(*p95_ms)
            ),
            Self::StreamCap { streams, way, seen } => {
                write!(f, "{} streams, {}, {seen}", figure(f64::from(*streams)), way.word())
            }
            Self::NoStreamCap { up_to } => {
                write!(f, "no cap on streams up to {}", figure(f64::from(*up_to)))
            }
            Self::Recycle { after_calls, orderly: true } => {
                write!(f, "a connection ends after {} requests", whole(*after_calls))
            }
            Self::Recycle { after_calls, orderly: false } => write!(
                f,
                "a connection ends after {} requests, and requests in flight are lost",
                whole(*after_calls)
            ),
            Self::NoRecycle { up_to } => {
                write!(f, "a connection serves at least {} requests", whole(*up_to))
            }
            Self::BodyPace { bytes_per_second, of } => {
                write!(f, "large answers arrive at {}/s {}", bytes(*bytes_per_second), of.about())
            }
            Self::NoBodyPace { up_to_bytes_per_second } => {
                let reached = bytes(*up_to_bytes_per_second);
                write!(f, "large answers are not paced up to {reached}/s")
            }
            Self::SmallWait { ms, low, high, alone_ms } => write!(
                f,
                "small calls wait for large ones on their connection: they take {} longer ({} to {}), alone {}",
                time(*ms),
                time(*low),
                time(*high),
                time(*alone_ms)
            ),
            Self::SmallFlow { low, high } => write!(
                f,
                "small calls do not wait for large ones on their connection ({} to {} longer)",
                time(*low),
                time(*high)
            ),
            Self::IdleClose { after_ms } => {
                write!(f, "an idle connection is closed after {}", time(*after_ms as f64))
            }
            Self::NoIdleClose { up_to_ms } => {
                write!(f, "an idle connection stays open for at least {}", time(*up_to_ms as f64))
            }
            Self::Rate { per_second, way } => {
                write!(f, "{} calls/s, above that {}", figure(*per_second), way.word())
            }
            Self::NoRateLimit { up_to_per_second, kept_s } => write!(
                f,
                "no limit up to {} calls/s, sustained for {}",
                figure(*up_to_per_second),
                time(kept_s * 1_000.0)
            ),
            Self::InFlight { calls, way } => at_most(f, *calls, "calls in flight", *way),
            Self::ConnectionCap { connections, way } => {
                at_most(f, *connections, "connections per address", *way)
            }
            Self::Bucket { size, window_s, refill, way, retry_after, .. } => write!(
                f,
                "{}; above that {}, {}",
                refill.sentence(*size, *window_s),
                way.word(),
                retry_after.word()
            ),
            Self::NoBucket { up_to } => {
                write!(f, "a burst of {} calls passes without a refusal", whole(*up_to))
            }
            Self::Shaped { calls_per_second, scope, knee: _ } => {
                write!(f, "shaped at {} calls/s {}", figure(*calls_per_second), scope.about())
            }
            Self::NotShaped { up_to } => write!(f, "not shaped up to {} calls/s", figure(*up_to)),
            Self::Faster { what, than, percent, low, high, held } => write!(
                f,
                "{what} takes {} % less time than {than} ({} to {} %){}",
                round(*percent),
                round(*low),
                round(*high),
                held_by(held)
            ),
            Self::NoDifference { what, than, low, high, held } => write!(
                f,
                "no significant difference between {what} and {than} ({} to {} %){}",
                round(*low),
                round(*high),
                held_by(held)
            ),
            Self::Cost { method, base, observed_ratio, low, high, catalogue_ratio } => {
                cost(f, [method, base], *observed_ratio, [*low, *high])?;
                catalogued(f, *catalogue_ratio)
            }
            Self::Lag { ms, low_ms, high_ms, p95_ms, blocks, p95_blocks, seen: _, behind } => {
                write!(f, "shows a block {} after {behind}", time(*ms))?;
                write!(f, " ({} to {}), ", time(low_ms.max(0.0)), time(*high_ms))?;
                write!(f, "95 % within {}; ", time(*p95_ms))?;
                write!(f, "{} blocks behind, 95 % of the time {p95_blocks} or fewer", blocks)
            }
            Self::NoLag { within_ms, seen } => write!(
                f,
                "shows blocks no later than the others, to within {} ({} blocks)",
                time(*within_ms),
                whole(*seen)
            ),
            Self::Disagrees { calls, of, outvoted, method, params: _, difference: _ } => {
                write!(f, "{} of {} answers differ from ", whole(*calls), whole(*of))?;
                match *outvoted {
                    0 => {
                        write!(f, "the others, {method} among them; which one is right is unknown")
                    }
                    all if all == *calls => write!(f, "most others, {method} among them"),
                    some => write!(
                        f,
                        "the others, {} of them from most, {method} among them",
                        whole(some)
                    ),
                }
            }
            Self::Agrees { calls } => write!(f, "all {} answers agree", whole(*calls)),
            Self::Reach { what, up_to, refused_at, whole } => {
                write!(f, "{} {}", what.about(), reached(*up_to, *refused_at, *whole))
            }
            Self::Methods { served, missing } if missing.is_empty() => {
                write!(f, "all {} methods are served", whole(*served))
            }
            Self::Methods { served, missing } => write!(
                f,
                "{} of {} methods are served, not {}",
                whole(*served),
                whole(*served + missing.len() as u64),
                listed(missing)
            ),
            Self::WebSocket { served: true } => write!(f, "calls go over WebSocket"),
            Self::WebSocket { served: false } => write!(f, "no calls over WebSocket"),
            Self::Adds { than, ms, low, high, held } => write!(
                f,
                "takes {} than {than} ({} to {} ms){}",
                added(*ms, *low, *high),
                figure(*low),
                figure(*high),
                held_by(held)
            ),
            Self::Capacity { per_second, p99_ms, failed } => write!(
                f,
                "sustains {} calls/s with 99 % within {}, and no more; {failed}",
                figure(*per_second),
                time(*p99_ms)
            ),
            Self::NoCapacityLimit { up_to_per_second, p99_ms, failed } => write!(
                f,
                "sustains the whole offered load, {} calls/s with 99 % within {}; {failed}",
                figure(*up_to_per_second),
                time(*p99_ms)
            ),
            Self::Users { stages } => users(f, stages),
            Self::Held { minutes, parts, with_errors, p50_ms, p99_ms } => write!(
                f,
                "{}, {} of {} parts with errors; median {}, 99 % within {}",
                watched(*minutes),
                whole(*with_errors),
                whole(*parts),
                time(*p50_ms),
                time(*p99_ms)
            ),
            Self::Step { what, from, to, after_minutes, minutes } => {
                steps(f, *what, Moved { from: *from, to: *to }, *after_minutes, *minutes)
            }
            Self::Fails { percent, how, when, .. } => {
                write!(f, "{} % of calls {}, {}", figure(*percent), how.words(), when.words())
            }
            Self::Drift { what, from, to, minutes } => {
                drifts(f, *what, Moved { from: *from, to: *to }, *minutes)
            }
            Self::NoDrift { minutes } => even(f, *minutes),
            Self::Ended { after_calls, reason } => {
                let (after, why) = (whole(*after_calls), reason.words());
                write!(f, "sending was ended after {after} served calls: {why}")
            }
            Self::CannotTell { why } => write!(f, "cannot tell: {why}"),
        }
    }
}

impl Refilled {
    fn sentence(self, size: u64, window_s: f64) -> String {
        let (size, window) = (whole(size), time(window_s * 1_000.0));
        match self {
            Self::Evenly => format!("bucket of {size}, filled evenly in {window}"),
            Self::Window => format!("{size} in each window of {window}"),
            Self::Sliding => format!("{size} in a sliding window of {window}"),
            Self::AtOnce => format!("{size} per {window}, restored all at once"),
        }
    }
}

fn at_most(f: &mut fmt::Formatter<'_>, most: u64, of: &str, way: RefusalWay) -> fmt::Result {
    let of = if most == 1 { of.replacen('s', "", 1) } else { of.to_owned() };
    write!(f, "at most {} {of}, above that {}", whole(most), way.word())
}

/// Where a figure was, and where it is.
#[derive(Debug, Clone, Copy)]
struct Moved {
    from: f64,
    to: f64,
}

fn drifts(f: &mut fmt::Formatter<'_>, what: Drifting, moved: Moved, minutes: u64) -> fmt::Result {
    let subject = what.subject();
    let moves = if moved.to > moved.from { "rise" } else { "fall" };
    let s = if what.is_plural() { "" } else { "s" };
    write!(f, "{subject} {moves}{s} {} in {}", change(what, moved), watched(minutes))
}

fn steps(
    f: &mut fmt::Formatter<'_>,
    what: Drifting,
    moved: Moved,
    after: u64,
    minutes: u64,
) -> fmt::Result {
    let (after, minutes) = (whole(after), whole(minutes));
    let moves = if moved.to > moved.from { "jump" } else { "drop" };
    let s = if what.is_plural() { "" } else { "s" };
    write!(f, "{} {moves}{s} {}", what.subject(), change(what, moved))?;
    write!(f, " after {after} of {minutes} minutes")
}

fn even(f: &mut fmt::Formatter<'_>, minutes: u64) -> fmt::Result {
    write!(f, "no drift or step of times, errors or throughput in {}", watched(minutes))
}

fn change(what: Drifting, moved: Moved) -> String {
    let Moved { from, to } = moved;
    match what {
        Drifting::Time | Drifting::Tail => format!("from {} to {}", time(from), time(to)),
        Drifting::Errors => format!("from {} to {} %", figure(from), figure(to)),
        Drifting::Throughput => format!("from {} to {} calls/s", figure(from), figure(to)),
    }
}

impl fmt::Display for FailedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { failed, of, unanswered } = *self;
        if failed == 0 {
            return write!(f, "none failed");
        }
        let percent = figure(100.0 * failed as f64 / of.max(1) as f64);
        write!(f, "{percent} % failed")?;
        match unanswered {
            0 => write!(f, ", all of them answered"),
            some if some == failed => write!(f, " without an answer"),
            some => write!(f, ", {} of {} without an answer", whole(some), whole(failed)),
        }
    }
}

impl EndReason {
    fn words(self) -> String {
        let long = |seconds: u64| time(seconds as f64 * 1_000.0);
        match self {
            Self::LongPause { seconds } => format!("refusals ask for a pause of {}", long(seconds)),
            Self::Spent => "refusals say that the quota is spent".to_owned(),
            Self::Refused { seconds } => format!(
                "every call was refused for {}, by a ban, a spent quota or a long window",
                long(seconds)
            ),
        }
    }
}

impl FailureWay {
    fn words(&self) -> String {
        match self {
            Self::Refused(RefusalWay::Unanswered | RefusalWay::Queued) => {
                "are not answered".to_owned()
            }
            Self::Refused(way) => format!("fail with {}", way.word()),
            Self::Transport(error) => format!("are not answered ({})", error.replace('_', " ")),
            Self::Class(class) => format!("fail ({})", class.replace('_', " ")),
        }
    }
}

impl FailureSpan {
    fn words(self) -> &'static str {
        match self {
            Self::AnyRate => "at any rate",
            Self::AnyConcurrency => "at any concurrency",
            Self::AnyTime => "from the beginning to the end",
        }
    }
}

impl Drifting {
    /// What it is, for people.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Time => "the median time",
            Self::Tail => "the 99th percentile",
            Self::Errors => "calls that are not served",
            Self::Throughput => "throughput",
        }
    }

    fn is_plural(self) -> bool {
        self == Self::Errors
    }
}

fn cost(
    f: &mut fmt::Formatter<'_>,
    [method, base]: [&str; 2],
    ratio: f64,
    [low, high]: [f64; 2],
) -> fmt::Result {
    let most = figure(high);
    if ratio == 0.0 {
        return write!(f, "{method} was never refused: less than {most} times {base}");
    }
    write!(f, "{method} counts {} times {base} ({} to {most})", figure(ratio), figure(low))?;
    if low > 1.0 { write!(f, ", or has its own limit") } else { Ok(()) }
}

fn reached(up_to: Option<u64>, refused_at: Option<u64>, is_all: bool) -> String {
    match (up_to, refused_at) {
        (Some(up_to), None) if is_all => format!("all {}", whole(up_to)),
        (Some(up_to), Some(at)) => format!("{}, not {}", whole(up_to), whole(at)),
        (Some(up_to), None) => format!("{} and more", whole(up_to)),
        (None, Some(at)) => format!("none, not even {}", whole(at)),
        (None, None) => "not tried".to_owned(),
    }
}

fn added(ms: f64, low: f64, high: f64) -> String {
    match (low > 0.0, high < 0.0) {
        (true, _) => format!("{} ms more", figure(ms)),
        (_, true) => format!("{} ms less", figure(-ms)),
        (false, false) => "no more or less time".to_owned(),
    }
}

fn users(f: &mut fmt::Formatter<'_>, stages: &[ServedUsers]) -> fmt::Result {
    let shown = stages.len().min(LISTED_MAX);
    for (at, stage) in stages[..shown].iter().enumerate() {
        let (comma, p99) = (if at == 0 { "" } else { "; " }, time(stage.p99_ms));
        let (users, served) = (whole(stage.users), figure(stage.per_second));
        let word = if stage.users == 1 { "user" } else { "users" };
        let failed = stage.failed;
        write!(f, "{comma}{users} {word}: {served} calls/s, 99 % within {p99}, {failed}")?;
    }
    match stages.len() - shown {
        0 => Ok(()),
        1 => write!(f, "; and one more stage"),
        more => write!(f, "; and {more} more stages"),
    }
}

impl PacedFlow {
    fn about(self) -> &'static str {
        match self {
            Self::Each => "each, at any concurrency",
            Self::Together => "for all answers on a connection together",
        }
    }
}

fn catalogued(f: &mut fmt::Formatter<'_>, ratio: Option<f64>) -> fmt::Result {
    match ratio {
        Some(ratio) => write!(f, "; in the catalogue: {}", figure(ratio)),
        None => write!(f, "; not in the catalogue"),
    }
}

fn watched(minutes: u64) -> String {
    match minutes {
        0 => "less than a minute".to_owned(),
        1 => "1 minute".to_owned(),
        more => format!("{} minutes", whole(more)),
    }
}

impl RetryAfterWorth {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotGiven => "no Retry-After",
            Self::Holds => "a correct Retry-After",
            Self::TooShort => "a Retry-After that is too short",
            Self::Untried => "an untested Retry-After",
        }
    }
}

impl Extent {
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::State => "newest blocks with state:",
            Self::Blocks => "newest blocks served:",
            Self::Logs => "newest blocks with logs:",
            Self::Traces => "newest blocks with traces:",
            Self::Range => "blocks in one log search:",
            Self::Batch => "calls in a batch:",
        }
    }
}

impl CapWay {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Refused => "refused above",
            Self::Fatal => "fatal",
        }
    }
}

impl RefusalWay {
    /// For people.
    pub fn word(self) -> String {
        match self {
            Self::Status429 => "HTTP 429".to_owned(),
            Self::InBody => "an error in the body".to_owned(),
            Self::OtherStatus(status) => format!("HTTP {status}"),
            Self::Unanswered => "no answer".to_owned(),
            Self::Queued => "calls wait".to_owned(),
        }
    }
}

impl ShapingScope {
    fn about(self) -> &'static str {
        match self {
            Self::Connection => "per connection",
            Self::Account => "for the whole account",
            Self::Open => {
                "(per account or per connection: only one number of connections was tried)"
            }
        }
    }
}

/// Names that a sentence has room for.
const LISTED_MAX: usize = 5;

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn held_by(held: &str) -> String {
    if held.is_empty() { String::new() } else { format!(", {held}") }
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
