//! The one table of what a client is told: situation, JSON-RPC code, HTTP status.
//!
//! Everything that wellhead itself has to say is worded here and nowhere else.
//! Errors that an upstream wrote pass through untouched.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wellhead_access::{LimitDenied, RightDenied, SendingPlaces, mask_keys};
use wellhead_dispatch::{Attempt, Failure, Trail, now};
use wellhead_eth::Access;
use wellhead_jsonrpc::{ParseError, write};
use wellhead_route::{NotServed, Roster};
use wellhead_transport::Rest;
use wellhead_upstream::{Condition, Upstream, UpstreamSet, VerdictClass};

/// What goes back to the listener.
#[derive(Debug, Default)]
pub struct Answer {
    /// HTTP status; 204 when there is nothing to say.
    pub status: u16,
    /// The body, or its beginning when there is a `rest`; empty for 204.
    pub body: Vec<Bytes>,
    /// What follows, as it arrives. An error in it means that the answer is cut:
    /// the listener must not let it pass for whole.
    pub rest: Option<Box<dyn Rest>>,
    /// The places of its request in limits on what is under way: to be held until the last byte is sent.
    pub held: SendingPlaces,
    /// The source of the answer to a single call: an upstream, or `view` or `cache` if none was
    /// called.
    pub upstream: Option<Arc<str>>,
    /// Attempts, over all calls of a batch.
    pub attempts: u32,
    /// What the cache had for it, when it was one call that the cache was asked for.
    pub cache: Option<&'static str>,
    /// For `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The limit that refused it, for the fields `RateLimit` and `RateLimit-Policy`.
    pub rate_limit: Option<Box<LimitDenied>>,
    /// Why a client should not rely on it: `logs-doubted`.
    pub warning: Option<&'static str>,
    /// The newest block that the client was told of by now, if it said which one it knew before.
    pub block: Option<u64>,
    /// What was tried, when the client asked.
    pub trail: Option<String>,
}

/// Why a path leads to no chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSuchChain {
    /// The path names none and there are several.
    NotNamed,
    /// The name is not known.
    Unknown,
    /// It is a chain id, and some chain has not found out its own yet.
    NotYetKnown,
}

/// A refusal in wellhead's own words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: i64,
    pub(crate) message: String,
    /// Raw JSON.
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) retry_after: Option<Duration>,
    /// The limit of the caller that refused.
    pub(crate) limit: Option<Box<LimitDenied>>,
}

/// JSON-RPC: the body is not JSON.
pub(crate) const PARSE_ERROR: i64 = -32700;
/// JSON-RPC: not a call.
pub(crate) const INVALID_REQUEST: i64 = -32600;
/// JSON-RPC: no such method, or not here.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the params do not fit the method.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// EIP-1474: resource unavailable. No upstream could answer.
pub(crate) const UNAVAILABLE: i64 = -32002;
/// The caller may not do this; as refusals of the listener for want of a key.
pub(crate) const NOT_ALLOWED: i64 = -32001;
/// geth's code for an unknown filter.
pub(crate) const SERVER_ERROR: i64 = -32000;

/// geth's code for a batch whose replies are too large together.
pub(crate) const BATCH_TOO_LARGE: i64 = -32003;

/// What is said when the memory budget has no room for an answer.
const NO_ROOM: &str = "too many large answers are being sent to clients";

/// How long a client is asked to wait if no upstream could answer.
const RETRY_SOON: Duration = Duration::from_secs(1);
/// And at most, whatever an upstream asks of us: another may be well sooner.
const RETRY_LATE_MAX: Duration = Duration::from_secs(300);

/// This much is shown of a name that a client wrote, such as that of a method: it may be as long as
/// a body.
const NAME_CHARS_MAX: usize = 64;

/// At most this many upstreams are named in a message; `data` holds all.
const NAMED_MAX: usize = 16;
/// And so much is told there of each.
const DETAIL_CHARS_MAX: usize = 160;

impl Refusal {
    fn new(status: u16, code: i64, message: String) -> Self {
        Self { status, code, message, data: None, retry_after: None, limit: None }
    }

    pub(crate) fn no_such_chain(why: NoSuchChain, named: Option<&str>, known: &[&str]) -> Self {
        let known = known.join("`, `");
        let message = match why {
            NoSuchChain::NotNamed => {
                format!("several chains are served here: name one in the path; known: `{known}`")
            }
            NoSuchChain::Unknown => {
                let named = shown(named.unwrap_or_default());
                format!("unknown chain `{named}`; known: `{known}`")
            }
            NoSuchChain::NotYetKnown => {
                let message = "no upstream has reported its chain id yet".to_owned();
                return Self::unavailable(message);
            }
        };
        Self::new(404, INVALID_REQUEST, message)
    }

    pub(crate) fn not_served(why: NotServed, method: &str, selected: &str) -> Self {
        let (method, selected) = (shown(method), shown(selected));
        let message = match why {
            NotServed::Forbidden => format!("the method `{method}` is not allowed here"),
            NotServed::Dangerous(access) => {
                let why = match access {
                    // Never refused for it.
                    Access::Public => "it is refused",
                    Access::Admin => "it is intended for node operators",
                    Access::Keys => "it uses keys that a node holds",
                    Access::Dev => "it manipulates a test chain",
                };
                format!(
                    "the method `{method}` is off by default because {why}; the setting \
                     `methods.dangerous` of this chain allows it"
                )
            }
            NotServed::NoUpstream => format!("no upstream of this chain serves `{method}`"),
            NotServed::NotSelected => {
                format!("no upstream that `{selected}` selects serves `{method}`")
            }
        };
        Self::new(200, METHOD_NOT_FOUND, message)
    }

    /// The body holds no calls.
    pub(crate) fn unreadable(error: &ParseError) -> Self {
        debug_assert!(matches!(error.code(), PARSE_ERROR | INVALID_REQUEST));
        let which = match error {
            ParseError::BatchTooLarge { .. } => {
                ", the most that the setting `limits.batch_items` allows"
            }
            ParseError::Empty
            | ParseError::NotJson { .. }
            | ParseError::TooDeep { .. }
            | ParseError::EmptyBatch
            | ParseError::TooLarge => "",
        };
        Self::new(200, error.code(), format!("{error}{which}"))
    }

    /// The query of the request selects upstreams in a way that is not understood.
    pub(crate) fn bad_selection(message: String) -> Self {
        Self::new(400, INVALID_REQUEST, message)
    }

    /// In geth's words, which clients look for to poll instead.
    pub(crate) fn notifications_unsupported() -> Self {
        let message = "notifications not supported: a subscription needs a WebSocket connection";
        Self::new(200, METHOD_NOT_FOUND, message.to_owned())
    }

    /// In geth's words, too.
    pub(crate) fn no_such_subscription(name: &str) -> Self {
        let message = format!("no \"{}\" subscription in eth namespace", shown(name));
        Self::new(200, METHOD_NOT_FOUND, message)
    }

    /// A kind of subscription that upstreams have to tell, and none does. Clients fall back to polling.
    pub(crate) fn not_offered(name: &str) -> Self {
        let message = format!("no upstream offers the \"{}\" subscription", shown(name));
        Self::new(200, METHOD_NOT_FOUND, message)
    }

    /// As [`Refusal::not_offered`], where upstreams that may offer it did not answer in time.
    pub(crate) fn not_confirmed(name: &str) -> Self {
        let message = format!("no upstream confirmed the \"{}\" subscription in time", shown(name));
        Self::new(200, VerdictClass::Fault.client_code(), message)
    }

    pub(crate) fn too_many_subscriptions(most: usize) -> Self {
        let message = format!("too many subscriptions: a connection has at most {most}");
        Self::new(200, VerdictClass::Throttled.client_code(), message)
    }

    /// A connection is subscribed to the chain that its path named when it was opened.
    pub(crate) fn chain_replaced() -> Self {
        let message = "the settings give this path another chain than when the connection was opened: connect again";
        Self::new(200, VerdictClass::Fault.client_code(), message.to_owned())
    }

    /// The filters of all subscriptions are bounded in number and bytes.
    pub(crate) fn too_many_filters() -> Self {
        let message = "too many different filters are subscribed to: use fewer or broader ones";
        Self::new(200, VerdictClass::Throttled.client_code(), message.to_owned())
    }

    /// Filters are bounded in number and bytes.
    pub(crate) fn no_more_filters(whose: &str) -> Self {
        let message = format!("too many filters {whose}: end those that are not polled any more");
        Self::new(200, VerdictClass::Throttled.client_code(), message)
    }

    /// Two polls of one filter would both tell the same.
    pub(crate) fn filter_is_polled() -> Self {
        let message = "other calls poll this filter at the same time: poll it from one place";
        Self::new(200, VerdictClass::Throttled.client_code(), message.to_owned())
    }

    /// Another replica may know the filter, or may have told what this one has not.
    pub(crate) fn filters_away() -> Self {
        let message = "the filters that replicas share cannot be reached for now: poll again";
        Self::unavailable(message.to_owned())
    }

    /// A subscription begins behind the newest block, and none is known.
    pub(crate) fn no_head_yet() -> Self {
        Self::unavailable("no upstream has reported a block yet".to_owned())
    }

    pub(crate) fn invalid_request(message: &str) -> Self {
        Self::new(200, INVALID_REQUEST, message.to_owned())
    }

    /// In geth's words, which clients know.
    pub(crate) fn filter_not_found() -> Self {
        Self::new(200, SERVER_ERROR, "filter not found".to_owned())
    }

    pub(crate) fn invalid_params(message: &str) -> Self {
        Self::new(200, INVALID_PARAMS, message.to_owned())
    }

    /// In geth's words, too.
    pub(crate) fn missing_argument() -> Self {
        Self::invalid_params("missing value for required argument 0")
    }

    pub(crate) fn range_too_large(message: String) -> Self {
        Self::new(200, VerdictClass::RangeTooLarge.client_code(), message)
    }

    pub(crate) fn chain_id_unknown(roster: &Roster) -> Self {
        let all = roster.upstreams().iter().map(|upstream| upstream.slot()).collect();
        let each = each(&Trail::default(), roster, all);
        Self::unavailable(format!("no upstream has reported its chain id yet: {each}"))
    }

    fn unavailable(message: String) -> Self {
        Self { retry_after: Some(RETRY_SOON), ..Self::new(503, UNAVAILABLE, message) }
    }

    pub(crate) fn batch_too_large(bytes_max: usize) -> Self {
        let message =
            format!("response too large: the replies of this batch exceed {bytes_max} bytes");
        Self::new(200, BATCH_TOO_LARGE, message)
    }

    /// Whether it says that there was an answer, and no room for it.
    pub(crate) fn is_no_room(&self) -> bool {
        self.message.starts_with(NO_ROOM)
    }

    /// The caller has no right to this.
    pub(crate) fn denied(denied: &RightDenied) -> Self {
        let code = match denied {
            // As of a method that is not there: libraries know what to do about it.
            RightDenied::Method | RightDenied::Effect { .. } => METHOD_NOT_FOUND,
            RightDenied::Expired
            | RightDenied::Network
            | RightDenied::Origin
            | RightDenied::Chain
            | RightDenied::Contract { .. }
            | RightDenied::UnnamedContracts { .. }
            | RightDenied::Select
            | RightDenied::LogsRange { .. }
            | RightDenied::BatchItems { .. } => NOT_ALLOWED,
        };
        let mut data = br#"{"right":"#.to_vec();
        write::string(&mut data, denied.right());
        data.push(b'}');
        Self { data: Some(data), ..Self::new(403, code, denied.to_string()) }
    }

    /// A limit of the caller was reached.
    pub(crate) fn over_limit(denied: LimitDenied) -> Self {
        let LimitDenied { subject, limit, quota, most, retry_after, is_unanswered: _ } = &denied;
        let (subject, limit) = (subject.word(), limit.word());
        let seconds = retry_after.as_secs_f64();
        let message = format!(
            "limit exceeded: quota `{quota}` allows {most} {limit} for this {subject}; \
             retry in {seconds:.1} s"
        );
        let mut data = br#"{"limit":"#.to_vec();
        write::string(&mut data, limit);
        data.extend_from_slice(br#","quota":"#);
        write::string(&mut data, quota);
        let rest = format!(
            r#","subject":"{subject}","most":{most},"retry_after_s":{}}}"#,
            retry_after.as_secs_f64().ceil()
        );
        data.extend_from_slice(rest.as_bytes());
        Self {
            data: Some(data),
            retry_after: Some(*retry_after),
            limit: Some(Box::new(denied)),
            ..Self::new(429, VerdictClass::Throttled.client_code(), message)
        }
    }

    /// The request would need more upstream calls than one request may.
    pub(crate) fn calls_spent(max: u32) -> Self {
        let message = format!(
            "limit exceeded: this request has made {max} upstream calls, the most that the setting \
             `limits.upstream_calls` allows; ask for less, or in several requests"
        );
        Self::new(200, VerdictClass::Throttled.client_code(), message)
    }

    /// An item of a batch was answered, and there is no room to hold it until all are.
    pub(crate) fn no_room() -> Self {
        let code = VerdictClass::Throttled.client_code();
        let message = format!("{NO_ROOM}: try again later");
        Self { retry_after: Some(RETRY_SOON), ..Self::new(503, code, message) }
    }

    /// No upstream answered: names the last failure of each, or why it was not called.
    pub(crate) fn failed(
        failure: Failure,
        trail: &Trail,
        roster: &Roster,
        eligible: UpstreamSet,
    ) -> Self {
        let data = Some(data(trail, roster));
        let each = each(trail, roster, eligible);
        let (status, code, what, retry_after) = match failure {
            Failure::EmptyPlan => {
                let message = format!("no upstream is available: {each}");
                return Self { data, ..Self::unavailable(message) };
            }
            // As each of them said lately, in the words of geth, which programs look for.
            Failure::NotOffered => {
                let what = "the method does not exist/is not available: no healthy upstream \
                            offers it";
                return Self { data, ..Self::new(200, METHOD_NOT_FOUND, what.to_owned()) };
            }
            Failure::CallsSpent { max } => return Self { data, ..Self::calls_spent(max) },
            Failure::NoRoom => {
                (503, VerdictClass::Throttled.client_code(), NO_ROOM, Some(RETRY_SOON))
            }
            Failure::Disputed { agreed, heard, agree } => {
                let what = format!(
                    "the upstreams disagree: {agreed} of {heard} agreed, {agree} are required"
                );
                let message = format!("{what}; {}: {each}", tried(trail));
                return Self { data, ..Self::unavailable(message) };
            }
            Failure::TooFew { heard, agree } => {
                let what = format!("{heard} of the upstreams answered, {agree} must agree");
                let message = format!("{what}; {}: {each}", tried(trail));
                return Self { data, ..Self::unavailable(message) };
            }
            Failure::Deadline => (503, UNAVAILABLE, "no answer in time", Some(RETRY_SOON)),
            Failure::Held { bound, retry_after } => {
                let wait = retry_after.clamp(RETRY_SOON, RETRY_LATE_MAX);
                // How much may be asked is for the client to know; how many at once is ours.
                let status = if bound.is_place() { 503 } else { 429 };
                let code = VerdictClass::Throttled.client_code();
                (status, code, "all upstreams are at a limit", Some(wait))
            }
            Failure::Exhausted { class, retry_after } => exhausted(class, retry_after),
        };
        let message = format!("{what}; {}: {each}", tried(trail));
        Self { data, retry_after, ..Self::new(status, code, message) }
    }

    /// Appends the error reply.
    pub(crate) fn write(&self, out: &mut Vec<u8>, id: Option<&[u8]>) {
        write::error(out, id, self.code, &self.message, self.data.as_deref());
    }
}

/// Status, code, words and `Retry-After` where no attempt brought an answer; `class` is the most
/// specific of their verdicts.
fn exhausted(
    class: VerdictClass,
    retry_after: Option<Duration>,
) -> (u16, i64, &'static str, Option<Duration>) {
    match class {
        VerdictClass::Throttled => {
            let wait = retry_after.unwrap_or(RETRY_SOON).min(RETRY_LATE_MAX);
            (429, class.client_code(), "the upstreams rate-limit calls", Some(wait))
        }
        // About the call, but without a message that can be passed on: a second call
        // soon after would fare no better.
        class if class.is_about_call() => (200, class.client_code(), class.about(), None),
        VerdictClass::Void => {
            (503, UNAVAILABLE, "no upstream gave a valid answer", Some(RETRY_SOON))
        }
        _ => (503, UNAVAILABLE, "no upstream could answer", Some(RETRY_SOON)),
    }
}

fn tried(trail: &Trail) -> String {
    match trail.exchanges() {
        0 => "made no attempt".to_owned(),
        1 => "tried 1 upstream".to_owned(),
        n => format!("made {n} attempts"),
    }
}

/// What was tried, and how each upstream of the chain is now:
/// `{"attempts":[{"upstream":"geth-a","verdict":"fault","detail":"...","ms":3}],
/// "upstreams":[{"upstream":"geth-a","condition":"breaker_open","detail":"..."}]}`
fn data(trail: &Trail, roster: &Roster) -> Vec<u8> {
    let mut out = Vec::from(*br#"{"attempts":["#);
    for (place, attempt) in trail.attempts.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"upstream":"#);
        write::string(&mut out, roster.upstream(attempt.slot).identity().id.as_str());
        out.extend_from_slice(br#","verdict":"#);
        write::string(&mut out, attempt.class.word());
        out.extend_from_slice(br#","detail":"#);
        write::string(&mut out, told_to_clients(attempt));
        out.extend_from_slice(format!(r#","ms":{}}}"#, attempt.took.as_millis()).as_bytes());
    }
    out.extend_from_slice(br#"],"upstreams":["#);
    for (place, upstream) in roster.upstreams().iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        let condition = condition(trail, upstream);
        out.extend_from_slice(br#"{"upstream":"#);
        write::string(&mut out, upstream.identity().id.as_str());
        out.extend_from_slice(br#","condition":"#);
        write::string(&mut out, condition.word());
        out.extend_from_slice(br#","detail":"#);
        match last(trail, upstream) {
            Some(attempt) => write::string(&mut out, told_to_clients(attempt)),
            None => write::string(&mut out, &why(trail, upstream, condition)),
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out
}

/// Providers name the project or the plan when they limit it, which is the
/// operator's business: the log and the status page tell it.
fn told_to_clients(attempt: &Attempt) -> &str {
    match attempt.class.is_between_us_and_the_upstream() {
        true => attempt.class.about(),
        false => &attempt.detail,
    }
}

/// One line on each upstream that may serve the call: what it said last, or why it was not
/// asked: `geth-a: fault: could not connect; reth-b is wrong_chain: it is on chain 5`.
fn each(trail: &Trail, roster: &Roster, eligible: UpstreamSet) -> String {
    let mut text = String::new();
    let mut asked = roster.upstreams().iter().filter(|upstream| eligible.contains(upstream.slot()));
    for upstream in asked.by_ref().take(NAMED_MAX) {
        if !text.is_empty() {
            text.push_str("; ");
        }
        let id = &upstream.identity().id;
        // Writing to a String cannot fail.
        let _ = match last(trail, upstream) {
            Some(last) => {
                let (class, detail) = (last.class.word(), cut(told_to_clients(last)));
                write!(text, "{id}: {class}: {detail}")
            }
            None => {
                let condition = condition(trail, upstream);
                let why = why(trail, upstream, condition);
                write!(text, "{id} is {}: {}", condition.word(), cut(&why))
            }
        };
    }
    let others = asked.count();
    if others > 0 {
        let _ = write!(text, "; and {others} others");
    }
    if text.is_empty() { "none may serve this call".to_owned() } else { text }
}

/// The last attempt at one upstream.
fn last<'a>(trail: &'a Trail, upstream: &Upstream) -> Option<&'a Attempt> {
    trail.attempts.iter().rev().find(|attempt| attempt.slot == upstream.slot())
}

/// Its condition, as far as such a call is concerned.
fn condition(trail: &Trail, upstream: &Upstream) -> Condition {
    match upstream.condition(now()) {
        Condition::Ready if pause(trail, upstream).is_some() => Condition::Throttled,
        condition => condition,
    }
}

/// How long its pause held the call, when it did.
fn pause(trail: &Trail, upstream: &Upstream) -> Option<Duration> {
    let mut holds = trail.holds.iter().filter(|hold| hold.slot == upstream.slot());
    holds.find(|hold| hold.bound.is_pause()).map(|hold| hold.wait)
}

/// Why an upstream is in its condition, in words that clients may hear.
fn why(trail: &Trail, upstream: &Upstream, condition: Condition) -> String {
    let problem = || {
        upstream.last_problem().map_or_else(
            || "nothing is known about it".to_owned(),
            |problem| problem.told_to_clients().to_owned(),
        )
    };
    match condition {
        Condition::Ready => match trail.holds.iter().find(|hold| hold.slot == upstream.slot()) {
            Some(hold) => {
                let (bound, wait) = (hold.bound.word(), hold.wait.as_millis());
                format!("its limit `{bound}` delays calls for another {wait} ms")
            }
            None => "it was not tried".to_owned(),
        },
        Condition::Throttled => {
            let whole = upstream.throttled_for(now());
            let pause = whole.or_else(|| pause(trail, upstream)).unwrap_or_default();
            format!("it rate-limits calls for another {} ms", pause.as_millis())
        }
        Condition::Syncing => "it reports that it is syncing".to_owned(),
        Condition::OutOfService => "it refused the key or account".to_owned(),
        Condition::Spent | Condition::Overspent => "its budget is spent".to_owned(),
        Condition::HalfOpen
        | Condition::BreakerOpen
        | Condition::Unverified
        | Condition::WrongChain => problem(),
    }
}

/// The beginning of a name that a client wrote, which may be a key in the wrong place.
fn shown(name: &str) -> std::borrow::Cow<'_, str> {
    let name = mask_keys(name);
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]).into(),
        None => name,
    }
}

/// The beginning of `text`: an upstream may answer with a page.
fn cut(text: &str) -> &str {
    text.char_indices().nth(DETAIL_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_as_long_as_a_body_is_not_sent_back_as_long() {
        let long = "é".repeat(1 << 20);
        let reasons = [
            NotServed::Forbidden,
            NotServed::Dangerous(Access::Keys),
            NotServed::NoUpstream,
            NotServed::NotSelected,
        ];
        let of_method = reasons.map(|why| Refusal::not_served(why, &long, &long));
        let others = [
            Refusal::no_such_subscription(&long),
            Refusal::no_such_chain(NoSuchChain::Unknown, Some(&long), &["ethereum"]),
        ];
        for refusal in of_method.iter().chain(&others) {
            let told = refusal.message.chars().count();
            assert!((64..400).contains(&told), "{told}: {}", refusal.message);
            assert!(refusal.message.contains("éé…"), "{}", refusal.message);
        }
    }
}
