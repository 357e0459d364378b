//! The spans of one request, from what its calls left: plain values, no clock.
//!
//! | span | kind | when |
//! |---|---|---|
//! | the method, `batch`, or `request` for a body that is no call | server | each request |
//! | the method | internal | each call of a batch, at most 64 |
//! | `wait` | internal | before the first attempt of a call that limits held up |
//! | the method, or `batch` | client | each attempt, or each exchange for several calls of a batch |
//!
//! Attributes have the names of OpenTelemetry's semantic conventions where these have one, else `wellhead.*`. What a
//! client or an upstream wrote is in none: no params, no id of a call, no message of an error. An upstream is named
//! by its id (`peer.service`), not by its host (`server.address`), which may hold a key.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_dispatch::{TraceSeed, Trail, attempt_context};
use wellhead_eth::{BlockParam, Effect};
use wellhead_transport::{SpanId, TraceContext, TraceId};
use wellhead_upstream::{Slot, VerdictClass};

use super::{EndedCalls, TraceCause, TracedCall, TracedExchange};
use crate::state::counts::CallOutcome;

/// One span, as it is exported.
#[derive(Debug, Clone)]
pub struct TraceSpan {
    /// The trace that it belongs to.
    pub trace_id: TraceId,
    /// Its own id.
    pub span_id: SpanId,
    /// The span above it.
    pub parent: Option<SpanId>,
    /// The span above it is another program's.
    pub is_parent_remote: bool,
    /// Whether the upstreams were told that the trace is sampled.
    pub is_sampled: bool,
    /// Of few values.
    pub name: Cow<'static, str>,
    /// Its part in the exchange.
    pub kind: SpanKind,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// What is known of it.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// What it stands for failed, and not by its client's fault.
    pub is_error: bool,
}

/// A request that is one call has about so many.
const REQUEST_ATTRIBUTES: usize = 16;

/// The part of a span in an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A request of a client.
    Server,
    /// An exchange with an upstream.
    Client,
    /// Neither.
    Internal,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    /// A text that never changes.
    Word(&'static str),
    /// Any other text.
    Text(Arc<str>),
    /// A number.
    Count(u64),
    /// A client.
    Address(IpAddr),
}

impl From<&'static str> for SpanValue {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&Cow<'static, str>> for SpanValue {
    fn from(text: &Cow<'static, str>) -> Self {
        match text {
            Cow::Borrowed(word) => Self::Word(word),
            Cow::Owned(text) => Self::Text(text.as_str().into()),
        }
    }
}

impl From<usize> for SpanValue {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

/// What a span says of its request as a whole.
#[derive(Debug)]
pub(crate) struct RequestFacts<'a> {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// The name of its chain.
    pub(crate) chain: &'a Arc<str>,
    /// The method, `batch`, or `-` for a body that is no call.
    pub(crate) method: &'a Cow<'static, str>,
    pub(crate) client: IpAddr,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) key_id: Option<&'a str>,
    pub(crate) is_websocket: bool,
    /// The HTTP status, or what it would be.
    pub(crate) status: u16,
    pub(crate) calls: usize,
    pub(crate) failed: usize,
    pub(crate) bytes_in: usize,
    /// Why there was no answer.
    pub(crate) cut: Option<&'static str>,
}

/// Whether wellhead had no answer. What a client does wrong is no error here, and neither is a client that goes away:
/// both are up to clients.
pub(crate) fn is_failure(status: u16) -> bool {
    status >= 500
}

/// Why an attempt was made. Its words stand in the attribute `wellhead.attempt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(super) enum AttemptKind {
    /// It is the first of its call.
    First,
    /// One before it failed.
    Retry,
    /// One before it took long.
    Hedge,
    /// Several upstreams have to agree.
    Quorum,
    /// A transaction goes to several upstreams.
    Broadcast,
    /// A search goes out in parts.
    Part,
}

wellhead_word::words!(AttemptKind);

/// One attempt of a call: one that ended, or one that was abandoned and has no verdict.
#[derive(Debug, Clone, Copy)]
pub(super) struct TracedAttempt {
    slot: Slot,
    after: Duration,
    took: Duration,
    verdict: Option<VerdictClass>,
    rule: Option<&'static str>,
}

/// All attempts of a call.
pub(super) fn attempts_of(trail: &Trail) -> impl Iterator<Item = TracedAttempt> {
    let ended = trail.attempts.iter().map(|it| TracedAttempt {
        slot: it.slot,
        after: it.after,
        took: it.took,
        verdict: Some(it.class),
        rule: Some(it.rule),
    });
    let abandoned = trail.abandoned.iter().map(|it| TracedAttempt {
        slot: it.slot,
        after: it.after,
        took: it.took,
        verdict: None,
        rule: None,
    });
    ended.chain(abandoned)
}

/// Why an attempt was made, by what was under way when it began.
pub(super) fn attempt_kind(call: &TracedCall, attempt: &TracedAttempt) -> AttemptKind {
    let order = |it: &TracedAttempt| (it.after, it.slot.index());
    let earlier = || attempts_of(&call.trail).filter(|it| order(it) < order(attempt));
    if earlier().next().is_none() {
        return AttemptKind::First;
    }
    let row = call.row;
    let is_search = row.class.is_heavy() && matches!(row.block, BlockParam::Filter { .. });
    let is_beside = earlier().any(|it| attempt.after < it.after + it.took);
    match (row.effect, is_beside) {
        (Effect::Broadcast, _) => AttemptKind::Broadcast,
        _ if call.trail.heard.is_some() => AttemptKind::Quorum,
        (_, true) if is_search => AttemptKind::Part,
        (_, true) => AttemptKind::Hedge,
        (_, false) => AttemptKind::Retry,
    }
}

/// The spans of a request, its own first. `name` says the id of an upstream.
pub(super) fn spans(
    seed: &TraceSeed,
    cause: TraceCause,
    facts: &RequestFacts<'_>,
    ended: &EndedCalls,
    name: impl Fn(Slot) -> Arc<str>,
) -> Vec<TraceSpan> {
    let context = &seed.context();
    let mut tree =
        SpanTree { context, received_at: facts.began, spans: Vec::with_capacity(spans_of(ended)) };
    tree.request(seed.parent(), cause, facts);
    let alone = match ended.calls.as_slice() {
        [call] if facts.calls == 1 && facts.method.as_ref() != "batch" => Some(call),
        _ => None,
    };
    if let Some(call) = alone {
        let is_told = is_failure(facts.status);
        let of_call = call_attributes(call).into_iter();
        // The status says more than that the call failed.
        let of_call = of_call.filter(|(name, _)| !(is_told && *name == "error.type"));
        tree.spans[0].attributes.extend(of_call);
        tree.spans[0].is_error |= call.outcome == CallOutcome::Failed;
        tree.attempts(context.span_id, call, &name);
        return tree.spans;
    }
    if ended.left_out > 0 {
        tree.spans[0].attributes.push(("wellhead.calls_left_out", ended.left_out.into()));
    }
    for (nth, call) in ended.calls.iter().enumerate() {
        // Attempts are numbered from zero on; see `attempt_context`.
        let span_id = context.span_id.child(u64::MAX - nth as u64);
        let mut attributes = vec![("rpc.system", "jsonrpc".into())];
        attributes.push(("rpc.method", (&call.method).into()));
        attributes.extend(call_attributes(call));
        tree.spans.push(TraceSpan {
            span_id,
            name: call.method.clone(),
            began: call.began,
            ended: call.ended,
            attributes,
            is_error: call.outcome == CallOutcome::Failed,
            ..tree.blank(context.span_id, SpanKind::Internal)
        });
        tree.attempts(span_id, call, &name);
    }
    ended.exchanges.iter().for_each(|exchange| tree.exchange(exchange, &name));
    tree.spans
}

/// About how many spans there are, so that they need no second place.
fn spans_of(ended: &EndedCalls) -> usize {
    let attempts: usize = ended.calls.iter().map(|call| call.trail.exchanges()).sum();
    1 + attempts + ended.exchanges.len() + if ended.calls.len() > 1 { ended.calls.len() } else { 0 }
}

/// The spans so far.
struct SpanTree<'a> {
    context: &'a TraceContext,
    received_at: Instant,
    spans: Vec<TraceSpan>,
}

impl SpanTree<'_> {
    fn blank(&self, parent: SpanId, kind: SpanKind) -> TraceSpan {
        TraceSpan {
            trace_id: self.context.trace_id,
            span_id: parent,
            parent: Some(parent),
            is_parent_remote: false,
            is_sampled: self.context.is_sampled,
            name: "".into(),
            kind,
            began: self.received_at,
            ended: self.received_at,
            attributes: Vec::new(),
            is_error: false,
        }
    }

    fn request(&mut self, parent: Option<SpanId>, cause: TraceCause, facts: &RequestFacts<'_>) {
        let method = facts.method.as_ref();
        let is_call = method != "-" && method != "batch";
        let transport = if facts.is_websocket { "websocket" } else { "http" };
        let mut attributes = Vec::with_capacity(REQUEST_ATTRIBUTES);
        attributes.extend([
            ("rpc.system", "jsonrpc".into()),
            ("network.protocol.name", transport.into()),
            ("client.address", SpanValue::Address(facts.client)),
            ("wellhead.chain", SpanValue::Text(Arc::clone(facts.chain))),
            ("wellhead.trace.cause", cause.word().into()),
            ("wellhead.calls", facts.calls.into()),
            ("wellhead.failed", facts.failed.into()),
            ("wellhead.bytes_in", facts.bytes_in.into()),
        ]);
        if is_call {
            attributes.push(("rpc.method", facts.method.into()));
        }
        if !facts.is_websocket {
            attributes.push(("http.request.method", "POST".into()));
            attributes.push(("http.response.status_code", usize::from(facts.status).into()));
        }
        let caller = [("wellhead.tenant", facts.tenant), ("wellhead.key", facts.key_id)];
        let caller = caller.into_iter().filter_map(|(name, value)| Some((name, value?)));
        attributes.extend(caller.map(|(name, value)| (name, value.to_owned().into())));
        attributes.extend(facts.cut.map(|why| ("wellhead.cut", why.into())));
        if is_failure(facts.status) {
            attributes.push(("error.type", facts.status.to_string().into()));
        }
        let name = if method == "-" { "request".into() } else { facts.method.clone() };
        self.spans.push(TraceSpan {
            span_id: self.context.span_id,
            parent,
            is_parent_remote: parent.is_some(),
            name,
            ended: facts.ended,
            attributes,
            is_error: is_failure(facts.status),
            ..self.blank(self.context.span_id, SpanKind::Server)
        });
    }

    /// The attempts of one call, in the order in which they began, after what held it up.
    fn attempts(&mut self, parent: SpanId, call: &TracedCall, name: impl Fn(Slot) -> Arc<str>) {
        let mut attempts: Vec<_> = attempts_of(&call.trail).collect();
        attempts.sort_by_key(|it| (it.after, it.slot.index()));
        let holds = &call.trail.holds;
        if !holds.is_empty() {
            let first = attempts.first().map_or(call.ended, |it| self.received_at + it.after);
            let held =
                holds.iter().map(|hold| format!("{}/{}", name(hold.slot), hold.bound.word()));
            let held = held.collect::<Vec<_>>().join(",");
            self.spans.push(TraceSpan {
                span_id: parent.child(u64::MAX),
                name: "wait".into(),
                began: call.began,
                ended: first.max(call.began),
                attributes: vec![("wellhead.held_by", held.into())],
                ..self.blank(parent, SpanKind::Internal)
            });
        }
        for attempt in &attempts {
            let span = self.attempt(parent, call, attempt, name(attempt.slot));
            self.spans.push(span);
        }
    }

    fn attempt(
        &self,
        parent: SpanId,
        call: &TracedCall,
        attempt: &TracedAttempt,
        upstream: Arc<str>,
    ) -> TraceSpan {
        let TracedAttempt { slot, after, took, verdict, rule } = *attempt;
        let mut attributes = vec![
            ("rpc.system", "jsonrpc".into()),
            ("rpc.method", (&call.method).into()),
            ("peer.service", SpanValue::Text(upstream)),
            ("wellhead.attempt", attempt_kind(call, attempt).word().into()),
            ("wellhead.verdict", verdict.map_or("abandoned", VerdictClass::word).into()),
        ];
        attributes.extend(rule.map(|rule| ("wellhead.rule", rule.into())));
        let failure = verdict.filter(|class| !class.is_answer());
        attributes.extend(failure.map(|class| ("error.type", class.word().into())));
        let began = self.received_at + after;
        TraceSpan {
            span_id: attempt_context(self.context, slot, after).span_id,
            name: call.method.clone(),
            began,
            ended: began + took,
            attributes,
            is_error: failure.is_some(),
            ..self.blank(parent, SpanKind::Client)
        }
    }

    /// One exchange for several calls.
    fn exchange(&mut self, exchange: &TracedExchange, name: impl Fn(Slot) -> Arc<str>) {
        let TracedExchange { slot, calls, settled, began, took } = *exchange;
        let after = began.saturating_duration_since(self.received_at);
        self.spans.push(TraceSpan {
            span_id: attempt_context(self.context, slot, after).span_id,
            name: "batch".into(),
            began,
            ended: began + took,
            attributes: vec![
                ("rpc.system", "jsonrpc".into()),
                ("peer.service", SpanValue::Text(name(slot))),
                ("wellhead.calls", calls.into()),
                ("wellhead.settled", settled.into()),
            ],
            is_error: settled == 0,
            ..self.blank(self.context.span_id, SpanKind::Client)
        });
    }
}

/// What is told of a call, on its own span or on that of the request that is this call.
fn call_attributes(call: &TracedCall) -> Vec<(&'static str, SpanValue)> {
    let mut attributes = vec![
        ("wellhead.outcome", call.outcome.word().into()),
        ("wellhead.attempts", call.trail.exchanges().into()),
    ];
    if let Some(found) = call.found {
        attributes.push(("wellhead.cache", found.word().into()));
    }
    if call.outcome == CallOutcome::Failed {
        attributes.push(("error.type", call.outcome.word().into()));
    }
    if let Some(heard) = call.trail.heard {
        attributes.push(("wellhead.quorum.agreed", heard.agreed.into()));
        attributes.push(("wellhead.quorum.heard", heard.heard.into()));
    }
    attributes
}
