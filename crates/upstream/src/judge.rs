//! From the bytes of a reply to a [`Verdict`].
//!
//! The envelope is judged here, in code, because all upstreams use one format; the
//! message inside is judged by the rules in `data/rules`, because every provider has
//! its own. The rules do not apply to a reply with a result.
//!
//! Not judged: whether a result is true (see `verify`), fits the method, or holds an
//! error inside (a trace whose entries timed out, the bytes of `Error(string)`
//! returned by `eth_call` without a revert): those are answers.

use std::borrow::Cow;
use std::sync::OnceLock;

use bytes::Bytes;
use wellhead_eth::MethodRow;
use wellhead_jsonrpc::{
    Envelope, ErrorObject, Nesting, ReplyHead, ReplyOutcome, ScanError, Span, raw, scan,
    scan_error, scan_head, write,
};
use wellhead_transport::{Sent, TransportError, TransportErrorKind, WireReply};

use crate::rule::{CALL_ID, ErrorSubject, RuleScope, RuleSet, VerdictRule, learn};
use crate::verdict::{HealthEffect, Payload, TryElsewhere, Verdict, VerdictClass};

/// How much of a body that is not JSON-RPC is looked at: enough for any error
/// page's title.
const PAGE_HEAD_BYTES_MAX: usize = 4096;
/// Of a longer error that may quote a method's name, and is no answer of the chain ...
const QUOTED_BYTES_MAX: usize = 4096;
/// ... this much of its message is passed on.
const QUOTED_CHARS_MAX: usize = 512;

/// The verdicts that need no rule: name, class, what they mean. The page lists them.
pub(crate) const BUILT_IN: &[(&str, VerdictClass, &str)] = &[
    ("result", VerdictClass::Answer, "a result under wellhead's id"),
    ("sound-cheap", VerdictClass::Answer, "a result that passed the checks of the level `cheap`"),
    ("sound-full", VerdictClass::Answer, "a result that passed the checks of the level `full`"),
    (
        "result-null",
        VerdictClass::Null,
        "`null`, for a method whose `null` is `missing` in the method table",
    ),
    ("result-beside-status", VerdictClass::Fault, "a result, with an HTTP status of a failure"),
    ("id-missing", VerdictClass::Fault, "a result without an id"),
    ("id-wrong", VerdictClass::Fault, "an id that is not the one that was sent"),
    ("body-empty", VerdictClass::Fault, "no body"),
    ("body-html", VerdictClass::Fault, "a web page"),
    ("body-not-json", VerdictClass::Fault, "neither JSON nor a web page"),
    ("body-truncated", VerdictClass::Fault, "JSON that ends too early"),
    ("body-array", VerdictClass::Fault, "an array in reply to a single call"),
    ("body-not-object", VerdictClass::Fault, "JSON, but not an object"),
    ("body-no-outcome", VerdictClass::Fault, "neither `result` nor `error`"),
    ("body-both-outcomes", VerdictClass::Fault, "`result` and `error` at once"),
    ("body-duplicate-key", VerdictClass::Fault, "`id`, `result` or `error` twice"),
    ("body-too-deep", VerdictClass::Fault, "arrays and objects nested too deeply"),
    ("body-too-large", VerdictClass::Fault, "4 GiB or more"),
    ("error-unreadable", VerdictClass::Fault, "`error` is neither an object nor a string"),
    ("unknown-error", VerdictClass::Unknown, "an error that matches no rule"),
    ("transport-dns", VerdictClass::Fault, "the host name did not resolve"),
    ("transport-connect", VerdictClass::Fault, "no connection"),
    ("transport-tls", VerdictClass::Fault, "the TLS handshake failed"),
    ("transport-connect-timeout", VerdictClass::Fault, "connecting took too long"),
    ("transport-timeout", VerdictClass::Fault, "no answer in time"),
    ("transport-closed", VerdictClass::Fault, "closed before an answer"),
    (
        "transport-refused",
        VerdictClass::Fault,
        "refused before it was read, for example by a connection that is shutting down",
    ),
    ("transport-truncated", VerdictClass::Fault, "closed in the middle of the answer"),
    ("transport-protocol", VerdictClass::Fault, "not HTTP"),
    ("transport-too-large", VerdictClass::RangeTooLarge, "larger than wellhead's limits allow"),
    ("transport-pool-full", VerdictClass::Fault, "too many calls wait for a connection"),
    ("transport-no-room", VerdictClass::Fault, "no memory for another large answer"),
];

/// From here on a reply is not parsed from end to end; see [`large`].
const LARGE_BYTES: usize = 64 * 1024;

/// Judges replies by a set of rules.
#[derive(Debug)]
pub struct Judge {
    rules: RuleSet,
}

/// What the id of a reply says about its call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Address {
    Ours,
    Missing,
    SomeoneElse,
}

impl Judge {
    /// The judge with the rules of `data/rules`, read once.
    pub fn standard() -> &'static Self {
        static STANDARD: OnceLock<Judge> = OnceLock::new();
        STANDARD.get_or_init(|| Self {
            rules: RuleSet::standard()
                .expect("the rules are compiled in, and a test reads every one of them"),
        })
    }

    /// The rules, in the order in which they are asked.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Judges the reply to a single call sent with the id [`CALL_ID`].
    pub fn reply(&self, row: &MethodRow, reply: &WireReply) -> Verdict {
        self.reply_to(row, reply, CALL_ID)
    }

    /// Judges the reply to a single call sent with this id.
    pub fn reply_to(&self, row: &MethodRow, reply: &WireReply, id: u64) -> Verdict {
        if let Some(verdict) = large(reply, id) {
            return verdict;
        }
        match scan(&reply.body) {
            Ok(envelope) => {
                let address = address(&reply.body, envelope.id, id);
                self.envelope(row, reply, &envelope, address)
            }
            Err(error) => self.unreadable(row, reply, &error),
        }
    }

    /// Judges one item of a batch. The caller has found it by its id, so the id
    /// is not looked at again; spans are those of the whole body.
    pub fn item(&self, row: &MethodRow, reply: &WireReply, item: &Envelope) -> Verdict {
        self.envelope(row, reply, item, Address::Ours)
    }

    /// Judges a large reply by its beginning, which is all that has arrived: our id
    /// first and then a result, with a good status. The payload is then the beginning
    /// of the result. `None` where the beginning does not say enough.
    pub fn beginning(&self, reply: &WireReply) -> Option<Verdict> {
        let ReplyHead::Result { id: Some(id), value_at } = scan_head(&reply.body) else {
            return None;
        };
        let is_ours = address(&reply.body, Some(id), CALL_ID) == Address::Ours;
        (is_ours && is_success(reply.status)).then(|| {
            let payload = Payload::Result(reply.body.slice(value_at as usize..));
            Verdict::new(VerdictClass::Answer, "result", payload)
        })
    }

    /// Judges an exchange that brought no reply.
    pub fn transport(&self, error: &TransportError) -> Verdict {
        use TransportErrorKind as Kind;
        // `health` stays the class's, Failed, but where one sign is proof enough,
        // or where it is no sign at all.
        let (rule, health) = match error.kind {
            Kind::Dns => ("transport-dns", HealthEffect::FailedAtOnce),
            Kind::Connect => ("transport-connect", HealthEffect::FailedAtOnce),
            Kind::Tls => ("transport-tls", HealthEffect::FailedAtOnce),
            Kind::ConnectTimeout => ("transport-connect-timeout", HealthEffect::Failed),
            Kind::Timeout => ("transport-timeout", HealthEffect::Failed),
            Kind::Closed => match error.sent {
                Sent::No => ("transport-refused", HealthEffect::Neutral),
                Sent::Maybe => ("transport-closed", HealthEffect::Failed),
            },
            Kind::Truncated => ("transport-truncated", HealthEffect::Failed),
            Kind::Protocol => ("transport-protocol", HealthEffect::Failed),
            Kind::TooLarge => ("transport-too-large", HealthEffect::Neutral),
            Kind::PoolFull => ("transport-pool-full", HealthEffect::Neutral),
            Kind::NoRoom => ("transport-no-room", HealthEffect::Neutral),
        };
        let mut verdict = Verdict::new(built_in(rule), rule, none(error.to_string()));
        if error.kind == Kind::NoRoom {
            // It would bring the same answer, and there would be no more room for that.
            verdict.elsewhere = TryElsewhere::No;
        }
        Verdict { health, ..verdict }
    }

    fn envelope(
        &self,
        row: &MethodRow,
        reply: &WireReply,
        envelope: &Envelope,
        address: Address,
    ) -> Verdict {
        match envelope.outcome {
            ReplyOutcome::Result(span) => result(row, reply, span, address),
            ReplyOutcome::Error(span) => self.error(row, reply, span, address),
        }
    }

    fn error(&self, row: &MethodRow, reply: &WireReply, span: Span, address: Address) -> Verdict {
        let raw = span.of(&reply.body);
        let Some(error) = scan_error(raw) else {
            return fault("error-unreadable", "`error` is neither an object nor a string".into());
        };
        let subject = ErrorSubject {
            status: reply.status,
            code: Some(error.code),
            message: &error.message,
            data: error.data,
            method: row.name,
        };
        let found = self.rules.find(&subject, RuleScope::Reply);
        let class = found.map_or(VerdictClass::Unknown, |rule| rule.class);
        // Under another id an error may show the state of the upstream, never the result of this
        // call: on a mixed-up connection it is the revert of another call.
        if address == Address::SomeoneElse && !class.is_about_upstream() {
            return fault("id-wrong", "an error with an id that we did not send".into());
        }
        let payload = if class.is_private() {
            none(class.about())
        } else {
            Payload::Error(presentable(&reply.body, span, class, &error))
        };
        conclude(found, "unknown-error", payload, reply, &subject)
    }

    /// Judges a body that is no JSON-RPC reply: by its status, by the words of a
    /// JSON error in another dress, or else as what it is.
    fn unreadable(&self, row: &MethodRow, reply: &WireReply, error: &ScanError) -> Verdict {
        let (rule, what) = shape(&reply.body, error);
        let dressed =
            if *error == ScanError::NoOutcome { scan_error(raw::trim(&reply.body)) } else { None };
        let page;
        let subject = match &dressed {
            Some(error) => ErrorSubject {
                status: reply.status,
                code: Some(error.code),
                message: &error.message,
                data: error.data,
                method: row.name,
            },
            None => {
                page = page_head(&reply.body);
                ErrorSubject {
                    status: reply.status,
                    code: None,
                    // The words of a failed page count only when HTTP says that it
                    // failed: what is left of a cut answer may be the words of any sender.
                    message: if is_success(reply.status) { "" } else { &page },
                    data: None,
                    method: row.name,
                }
            }
        };
        let detail = format!("HTTP {} with {what}", reply.status);
        if let Some(found) = self.rules.find(&subject, RuleScope::Page) {
            let detail = format!("{}: {detail}", found.class.about());
            return conclude(Some(found), rule, none(detail), reply, &subject);
        }
        let mut verdict = fault(rule, detail);
        verdict.retry_after = reply.retry_after;
        // A client can provoke a 4xx page at will, and must not talk an
        // upstream out of service with it.
        if (400..500).contains(&reply.status) {
            verdict.health = HealthEffect::Neutral;
            verdict.elsewhere = TryElsewhere::Once;
        }
        verdict
    }
}

/// A whole large reply, judged without parsing it: our id and a result first, the brace that
/// closes the reply last, and a result in between whose brackets close with its last byte.
/// HTTP vouches that nothing is missing, but a gateway that cuts a text frames it anew, and a
/// cut at `}}` or `]}` has the right two ends; counting brackets finds every cut. A parse takes
/// more than twice as long as the count. Where the count does not fit, `None`: the reply is
/// then read from end to end, which says what is wrong with it.
fn large(reply: &WireReply, id: u64) -> Option<Verdict> {
    if reply.body.len() < LARGE_BYTES || !is_success(reply.status) {
        return None;
    }
    let ReplyHead::Result { id: Some(span), value_at } = scan_head(&reply.body) else {
        return None;
    };
    if address(&reply.body, Some(span), id) != Address::Ours {
        return None;
    }
    let value_at = value_at as usize;
    let closing = reply.body.trim_ascii_end().len().checked_sub(1)?;
    if reply.body[closing] != b'}' || !is_one_value(reply.body.get(value_at..closing)?) {
        return None;
    }
    let payload = Payload::Result(reply.body.slice(value_at..closing));
    Some(Verdict::new(VerdictClass::Answer, "result", payload))
}

/// Whether `text` is one list, object or string from its first byte to its last but white
/// space, as far as brackets and quotes tell. May be `false` of a string with escapes.
fn is_one_value(text: &[u8]) -> bool {
    let Some((first, rest)) = text.trim_ascii_end().split_first() else { return false };
    let Some((last, inner)) = rest.split_last() else { return false };
    match (first, last) {
        (b'{', b'}') | (b'[', b']') => {
            let mut nesting = Nesting::in_object();
            nesting.read(rest);
            nesting.is_whole()
        }
        (b'"', b'"') => !inner.contains(&b'"') && inner.last() != Some(&b'\\'),
        _ => false,
    }
}

/// The way of nearly every reply: no rule, no allocation.
fn result(row: &MethodRow, reply: &WireReply, span: Span, address: Address) -> Verdict {
    if !is_success(reply.status) {
        return fault("result-beside-status", format!("a result beside HTTP {}", reply.status));
    }
    match address {
        Address::Ours => {}
        Address::Missing => return fault("id-missing", "a result without an id".into()),
        Address::SomeoneElse => {
            return fault("id-wrong", "a result with an id that we did not send".into());
        }
    }
    let payload = Payload::Result(span.bytes(&reply.body));
    if !row.null_is_answer && raw::is_null(span.of(&reply.body)) {
        return Verdict::new(VerdictClass::Null, "result-null", payload);
    }
    Verdict::new(VerdictClass::Answer, "result", payload)
}

fn conclude(
    found: Option<&VerdictRule>,
    otherwise: &'static str,
    payload: Payload,
    reply: &WireReply,
    subject: &ErrorSubject<'_>,
) -> Verdict {
    let mut verdict = match found {
        Some(rule) => Verdict {
            elsewhere: rule.elsewhere,
            health: rule.health,
            learnt: rule.learn(subject),
            ..Verdict::new(rule.class, rule.name, payload)
        },
        None => Verdict::new(VerdictClass::Unknown, otherwise, payload),
    };
    verdict.retry_after = reply.retry_after;
    if verdict.class == VerdictClass::Throttled && verdict.retry_after.is_none() {
        verdict.retry_after = subject.data.and_then(learn::backoff);
    }
    verdict
}

fn fault(rule: &'static str, detail: String) -> Verdict {
    Verdict::new(VerdictClass::Fault, rule, none(detail))
}

fn none(detail: impl Into<String>) -> Payload {
    Payload::None { detail: detail.into() }
}

fn built_in(rule: &str) -> VerdictClass {
    BUILT_IN
        .iter()
        .find(|(name, _, _)| *name == rule)
        .map_or(VerdictClass::Fault, |(_, class, _)| *class)
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

fn address(body: &[u8], id: Option<Span>, sent: u64) -> Address {
    let Some(id) = id.map(|span| span.of(body)) else { return Address::Missing };
    if raw::is_null(id) {
        return Address::Missing;
    }
    // Digits only: a text "1" or a 1.0 is an upstream that rewrites ids, and one
    // that rewrites them may mix them up.
    let number =
        std::str::from_utf8(id).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match number.and_then(|text| text.parse::<u64>().ok()) {
        Some(number) if number == sent => Address::Ours,
        Some(_) | None => Address::SomeoneElse,
    }
}

/// The error as received, or rebuilt when it lacks the code or the message that
/// every client library expects.
fn presentable(body: &Bytes, span: Span, class: VerdictClass, error: &ErrorObject<'_>) -> Bytes {
    let raw = span.of(body);
    let (mut message, mut data) = (Cow::Borrowed(&*error.message), error.data);
    // What quotes the name of a method that is as long as a body is not sent back as long.
    let may_quote = matches!(class, VerdictClass::Unsupported | VerdictClass::Unknown);
    let is_long = may_quote && raw.len() > QUOTED_BYTES_MAX;
    if is_long {
        message = message.chars().take(QUOTED_CHARS_MAX).collect::<String>().into();
        data = data.filter(|data| data.len() <= QUOTED_BYTES_MAX);
    }
    let is_integer =
        |code: &[u8]| std::str::from_utf8(code).is_ok_and(|c| c.parse::<i64>().is_ok());
    let is_whole = raw::trim(raw).starts_with(b"{")
        && raw::field(raw, "code").is_some_and(is_integer)
        && raw::field(raw, "message").is_some_and(|message| raw::string(message).is_some());
    if is_whole && !is_long {
        return span.bytes(body);
    }
    // Some write the code as a text.
    let code = raw::field(raw, "code").and_then(|code| {
        let text = raw::string(code).unwrap_or_else(|| String::from_utf8_lossy(code));
        text.trim().parse::<i64>().ok()
    });
    let code = code.unwrap_or_else(|| class.client_code());
    error_object(code, if message.is_empty() { class.about() } else { &message }, data).into()
}

/// An error object in JSON; `data` is raw JSON.
pub(crate) fn error_object(code: i64, message: &str, data: Option<&[u8]>) -> Vec<u8> {
    let mut out = format!("{{\"code\":{code},\"message\":").into_bytes();
    write::string(&mut out, message);
    if let Some(data) = data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data);
    }
    out.push(b'}');
    out
}

fn page_head(body: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&body[..body.len().min(PAGE_HEAD_BYTES_MAX)])
}

/// What an unreadable body is: its rule, and words for a person that repeat
/// nothing of it.
fn shape(body: &[u8], error: &ScanError) -> (&'static str, &'static str) {
    let start = body.trim_ascii_start();
    match error {
        ScanError::Empty => ("body-empty", "an empty body"),
        ScanError::NotJson { .. } if start.is_empty() => ("body-empty", "an empty body"),
        ScanError::NotJson { .. } if start.starts_with(b"<") => {
            ("body-html", "a web page instead of JSON")
        }
        ScanError::NotJson { .. } => ("body-not-json", "a body that is not JSON"),
        ScanError::Truncated => ("body-truncated", "JSON that ends too early"),
        ScanError::NotAnObject if start.starts_with(b"[") => {
            ("body-array", "an array in reply to a single call")
        }
        ScanError::NotAnObject if start.starts_with(b"<") => {
            ("body-html", "a web page instead of JSON")
        }
        ScanError::NotAnObject => ("body-not-object", "JSON that is not an object"),
        ScanError::NoOutcome => ("body-no-outcome", "neither `result` nor `error`"),
        ScanError::BothOutcomes => ("body-both-outcomes", "both `result` and `error`"),
        ScanError::DuplicateKey => ("body-duplicate-key", "a duplicate key"),
        ScanError::TooDeep => ("body-too-deep", "JSON nested too deeply"),
        ScanError::TooLarge => ("body-too-large", "a body beyond what we can address"),
        // `scan` reads one object and never says these.
        ScanError::NotAnArray | ScanError::TooManyItems => {
            ("body-not-object", "JSON that is not an object")
        }
    }
}

#[cfg(test)]
mod tests {
    use wellhead_eth::MethodTable;
    use wellhead_transport::Timing;

    use super::*;

    /// What is passed on of an error with this message and the same as data.
    fn passed_on(message: &str) -> (VerdictClass, usize) {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32601,"message":"{message}","data":"{message}"}}}}"#
        );
        let reply = WireReply::whole(200, body, Timing::default());
        let verdict = Judge::standard().reply(MethodTable::standard().row("x_y"), &reply);
        let Payload::Error(raw) = &verdict.payload else { panic!("an error") };
        assert!(scan_error(raw).is_some_and(|error| error.code == -32601), "{raw:?}");
        (verdict.class, raw.len())
    }

    #[test]
    fn an_error_that_quotes_a_long_method_is_cut() {
        let refusal = |name: &str| format!("the method {name} does not exist/is not available");
        let (class, bytes) = passed_on(&refusal(&"é".repeat(1 << 20)));
        assert_eq!(class, VerdictClass::Unsupported);
        assert!((512..2_048).contains(&bytes), "{bytes}");
        let (_, bytes) = passed_on(&refusal("eth_foo"));
        assert!(bytes > 2 * refusal("eth_foo").len(), "unchanged");
    }
}
