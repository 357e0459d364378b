//! Spans as OTLP, and what a collector answers. No clock: the wall time of one moment is told.

use std::time::Instant;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{
    ResourceSpans, ScopeSpans, Span as OtlpSpan, Status, span::SpanKind as OtlpKind,
    status::StatusCode,
};
use prost::Message as _;
use wellhead_proxy::{FinishedTrace, SpanKind, SpanValue, TraceSpan};
use wellhead_telemetry::clock::ClockPair;

use crate::otlp;

/// Bits of `flags`: those of W3C, whether it is known that the parent is remote, and whether it is.
const SAMPLED: u32 = 1;
const IS_REMOTE_KNOWN: u32 = 1 << 8;
const IS_REMOTE: u32 = 1 << 9;

/// What all spans of this process have in common.
#[derive(Debug, Clone)]
pub(super) struct TraceResource {
    /// `service.name`.
    pub(super) service: String,
    /// `service.instance.id`.
    pub(super) instance: String,
}

/// The body of one request.
pub(super) fn body(traces: &[FinishedTrace], resource: &TraceResource, clock: ClockPair) -> Bytes {
    let spans = traces.iter().flat_map(|trace| &trace.spans).map(|it| span(it, clock)).collect();
    let scope = Some(otlp::scope());
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(otlp::resource(&resource.service, &resource.instance)),
            scope_spans: vec![ScopeSpans { scope, spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }],
    };
    request.encode_to_vec().into()
}

fn span(span: &TraceSpan, clock: ClockPair) -> OtlpSpan {
    let kind = match span.kind {
        SpanKind::Server => OtlpKind::Server,
        SpanKind::Client => OtlpKind::Client,
        SpanKind::Internal => OtlpKind::Internal,
    };
    let code = if span.is_error { StatusCode::Error } else { StatusCode::Unset };
    let attributes = span.attributes.iter().map(|(name, value)| {
        let value = match value {
            SpanValue::Word(word) => otlp::text(word),
            SpanValue::Text(text) => otlp::text(text),
            SpanValue::Address(address) => Value::StringValue(address.to_string()),
            SpanValue::Count(count) => Value::IntValue(i64::try_from(*count).unwrap_or(i64::MAX)),
        };
        otlp::attribute(name, value)
    });
    OtlpSpan {
        trace_id: span.trace_id.bytes().to_vec(),
        span_id: span.span_id.bytes().to_vec(),
        parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.bytes().to_vec()),
        flags: IS_REMOTE_KNOWN
            | if span.is_parent_remote { IS_REMOTE } else { 0 }
            | if span.is_sampled { SAMPLED } else { 0 },
        name: span.name.clone().into_owned(),
        kind: kind.into(),
        start_time_unix_nano: nanos(clock, span.began),
        end_time_unix_nano: nanos(clock, span.ended),
        attributes: attributes.collect(),
        status: Some(Status { code: code.into(), message: String::new() }),
        ..OtlpSpan::default()
    }
}

/// Since 1970.
fn nanos(clock: ClockPair, at: Instant) -> u64 {
    u64::try_from(clock.unix_at(at).as_nanos()).unwrap_or(u64::MAX)
}

/// The spans that a collector did not take, by its answer to a request that it took. An answer that cannot be read
/// says nothing of that.
pub(super) fn rejected_spans(answer: &[u8]) -> u64 {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let rejected = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
    u64::try_from(rejected).unwrap_or(0)
}
