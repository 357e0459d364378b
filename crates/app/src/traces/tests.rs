//! From a tracer to collectors that take, refuse, fail and hang.

use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use wellhead_kit::{ScriptedTransport, Step, status};
use wellhead_proxy::{FinishedTrace, SpanKind, SpanValue, TraceCounts, TraceLoss, TraceSpan};
use wellhead_telemetry::clock::ClockPair;
use wellhead_transport::{Sent, SpanId, TraceId, TransportErrorKind};

use super::deliver::{ExportAttempt, judge};
use super::encode::{body, rejected_spans};
use super::*;
use crate::config;

fn span(number: u64, began: Instant) -> TraceSpan {
    TraceSpan {
        trace_id: TraceId::of([7, number]),
        span_id: SpanId::of(number),
        parent: None,
        is_parent_remote: false,
        is_sampled: true,
        name: "eth_call".into(),
        kind: SpanKind::Server,
        began,
        ended: began + Duration::from_millis(2),
        attributes: vec![
            ("rpc.system", SpanValue::Word("jsonrpc")),
            ("peer.service", SpanValue::Text("geth-a".into())),
            ("wellhead.attempts", SpanValue::Count(3)),
        ],
        is_error: false,
    }
}

#[test]
fn spans_are_encoded_as_the_protocol_has_them() {
    let now = wellhead_dispatch::now();
    let clock = ClockPair { now, unix: Duration::from_nanos(1_700_000_000_000_000_123) };
    let root = span(1, now - Duration::from_millis(10));
    let child = TraceSpan {
        span_id: SpanId::of(2),
        parent: Some(root.span_id),
        kind: SpanKind::Client,
        is_error: true,
        ..span(1, now)
    };
    let remote = TraceSpan {
        parent: Some(SpanId::of(9)),
        is_parent_remote: true,
        is_sampled: false,
        ..span(3, now)
    };
    let resource = TraceResource { service: "rpc".to_owned(), instance: "a-1".to_owned() };
    let traces =
        [FinishedTrace { spans: vec![root, child] }, FinishedTrace { spans: vec![remote] }];
    let request =
        ExportTraceServiceRequest::decode(body(&traces, &resource, clock)).expect("protobuf");
    let [of_resource] = &request.resource_spans[..] else { panic!("{request:?}") };
    let named = |name: &str| {
        let attributes = &of_resource.resource.as_ref().expect("given").attributes;
        let value = attributes.iter().find(|it| it.key == name)?.value.clone()?.value?;
        match value {
            Value::StringValue(text) => Some(text),
            _ => None,
        }
    };
    assert_eq!(named("service.name").as_deref(), Some("rpc"));
    assert_eq!(named("service.instance.id").as_deref(), Some("a-1"));
    assert_eq!(named("service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
    let spans = &of_resource.scope_spans[0].spans;
    let times: Vec<_> =
        spans.iter().map(|it| (it.start_time_unix_nano, it.end_time_unix_nano)).collect();
    let at = 1_700_000_000_000_000_123;
    assert_eq!(times[0], (at - 10_000_000, at - 8_000_000));
    assert_eq!(times[1], (at, at + 2_000_000), "an end may lie after the moment of the clocks");
    assert_eq!(spans[0].parent_span_id, [0_u8; 0]);
    assert_eq!(spans[1].parent_span_id, spans[0].span_id);
    assert_eq!(spans[0].trace_id, spans[1].trace_id);
    assert_eq!((spans[0].kind, spans[1].kind), (2, 3));
    let codes: Vec<_> = spans.iter().map(|it| it.status.as_ref().map(|it| it.code)).collect();
    assert_eq!(codes, [Some(0), Some(2), Some(0)]);
    assert_eq!(spans.iter().map(|it| it.flags).collect::<Vec<_>>(), [0x101, 0x101, 0x300]);
    let values: Vec<_> = spans[0].attributes.iter().map(|it| it.value.clone()).collect();
    let values: Vec<_> = values.into_iter().flatten().filter_map(|it| it.value).collect();
    let text = |text: &str| Value::StringValue(text.to_owned());
    assert_eq!(values, [text("jsonrpc"), text("geth-a"), Value::IntValue(3)]);
}

#[test]
fn an_answer_says_what_becomes_of_a_batch() {
    let asked = Some(Duration::from_secs(7));
    let check =
        |status: u16, expected: ExportAttempt| assert_eq!(judge(status, asked, b""), expected);
    for status in [200, 202] {
        check(status, ExportAttempt::Taken(0));
    }
    for status in [429, 502, 503, 504] {
        check(status, ExportAttempt::Failed(format!("HTTP {status}"), asked));
    }
    for status in [301, 400, 401, 403, 404, 413, 415, 500, 501] {
        check(status, ExportAttempt::Refused(format!("HTTP {status}")));
    }
    let partial = ExportTracePartialSuccess { rejected_spans: 5, ..Default::default() };
    let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    assert_eq!(judge(200, None, &answer), ExportAttempt::Taken(5));
    assert_eq!(rejected_spans(b"<html>"), 0);
}

/// Traces to a collector that answers so, one by one, and then takes all.
fn traces(steps: impl IntoIterator<Item = Step>) -> (Arc<Traces>, Arc<ScriptedTransport>) {
    let source = "traces: { endpoint: \"http://collector/v1/traces\", queue: 1000, sample: 100% }\n\
                  chains: { a: { upstreams: [{ url: \"http://h\" }] } }";
    let settings = config::sound(source);
    let transport = Arc::new(ScriptedTransport::playing(steps, status(200, Bytes::new())));
    let config = settings.traces.expect("given");
    let shared = Arc::clone(&transport) as Arc<dyn Transport>;
    let now = wellhead_dispatch::now();
    (
        Traces::with_transport(
            &config,
            shared,
            Duration::from_secs(5),
            now,
            SmallRng::seed_from_u64(1),
        ),
        transport,
    )
}

fn lost(counts: &TraceCounts) -> Vec<u64> {
    TraceLoss::ALL.iter().map(|loss| counts.dropped(*loss)).collect()
}

/// The spans of each request that came.
fn arrived(transport: &ScriptedTransport) -> Vec<usize> {
    let spans = |body: Bytes| {
        let request = ExportTraceServiceRequest::decode(body).expect("protobuf");
        request.resource_spans[0].scope_spans[0].spans.len()
    };
    transport.arrivals().into_iter().map(|arrival| spans(arrival.body)).collect()
}

fn send(traces: &Traces, count: u64) {
    for number in 0..count {
        traces.tracer.record(vec![span(number, wellhead_dispatch::now())]);
    }
}

async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_leaves_when_it_is_full_or_after_a_second() {
    let (traces, transport) = traces([]);
    traces.start().await;
    send(&traces, 3);
    sleep(999).await;
    assert_eq!(arrived(&transport), [0; 0]);
    sleep(2).await;
    assert_eq!(arrived(&transport), [3]);
    send(&traces, 600);
    sleep(1).await;
    assert_eq!(arrived(&transport), [3, 512]);
    sleep(1_000).await;
    assert_eq!(arrived(&transport), [3, 512, 88]);
    let counts = traces.tracer.counts();
    assert_eq!((counts.sent(), lost(counts)), (603, vec![0; 4]));
}

/// Each trace that woke it would cost the worker a system call.
#[tokio::test(start_paused = true)]
async fn a_batch_that_fills_wakes_nothing_until_it_is_full() {
    let (traces, transport) = traces([]);
    let exporter = traces.prepared.lock().take().expect("it was not started");
    let mut run = Box::pin(exporter.run(traces.closing.subscribe()));
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    tokio::spawn(std::future::poll_fn(move |context| {
        counted.fetch_add(1, Relaxed);
        run.as_mut().poll(context)
    }));
    for number in 0..500 {
        traces.tracer.record(vec![span(number, wellhead_dispatch::now())]);
        sleep(1).await;
    }
    sleep(600).await;
    assert_eq!(arrived(&transport), [500]);
    // The start, the first trace, the end of the second, and the answer of the collector.
    assert!((1..=5).contains(&polls.load(Relaxed)), "{}", polls.load(Relaxed));
}

#[tokio::test(start_paused = true)]
async fn what_sends_traces_ends_with_their_tracer() {
    let (traces, transport) = traces([]);
    let exporter = traces.prepared.lock().take().expect("it was not started");
    let closing = traces.closing.subscribe();
    send(&traces, 3);
    drop(traces);
    tokio::time::timeout(Duration::from_secs(2), exporter.run(closing)).await.expect("it ends");
    assert_eq!(arrived(&transport), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_for_less_than_a_minute_loses_nothing() {
    let busy = Step::Status {
        status: 429,
        body: Bytes::new(),
        retry_after: Some(Duration::from_secs(20)),
    };
    let (traces, transport) = traces([Step::REFUSE, status(503, ""), busy]);
    traces.start().await;
    send(&traces, 3);
    // A second, one and two pauses of at most that many seconds.
    sleep(4_001).await;
    assert_eq!(arrived(&transport), [3, 3, 3]);
    send(&traces, 1_000);
    sleep(15_900).await;
    assert_eq!(arrived(&transport).len(), 3, "it asked for twenty seconds");
    sleep(6_000).await;
    assert_eq!(arrived(&transport), [3, 3, 3, 3, 512, 488]);
    let counts = traces.tracer.counts();
    assert_eq!((counts.sent(), lost(counts)), (1_003, vec![0; 4]));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_for_longer_loses_what_does_not_fit() {
    let silent = std::iter::repeat_n(Step::Fail(TransportErrorKind::Timeout, Sent::Maybe), 9);
    let (traces, transport) = traces(silent.chain([Step::Hang]));
    traces.start().await;
    send(&traces, 3);
    sleep(2_000).await;
    // No one waits: the queue holds a thousand spans.
    send(&traces, 1_500);
    let counts = Arc::clone(traces.tracer.counts());
    assert_eq!(lost(&counts), [0, 500, 0, 0]);
    let given_up = async {
        while counts.dropped(TraceLoss::Undelivered) == 0 {
            sleep(100).await;
        }
    };
    let is_given_up = tokio::time::timeout(Duration::from_secs(60), given_up).await.is_ok();
    assert!(is_given_up, "{:?}", arrived(&transport));
    assert_eq!(lost(&counts), [0, 500, 3, 0]);
    assert_eq!(counts.sent(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_collector_refuses_is_not_sent_again() {
    let (traces, transport) = traces([status(400, "no")]);
    traces.start().await;
    send(&traces, 3);
    sleep(2_000).await;
    send(&traces, 4);
    sleep(2_000).await;
    assert_eq!(arrived(&transport), [3, 4]);
    let counts = traces.tracer.counts();
    assert_eq!((counts.sent(), lost(counts)), (4, vec![0, 0, 0, 3]));
}

#[tokio::test(start_paused = true)]
async fn the_end_sends_what_is_left() {
    let (traces, transport) = traces([status(503, "")]);
    traces.start().await;
    send(&traces, 700);
    sleep(1).await;
    traces.end(Duration::ZERO).await;
    assert_eq!(arrived(&transport), [512, 512, 188]);
    assert_eq!(traces.tracer.counts().sent(), 700);
}

#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_for_a_collector_that_hangs() {
    let (traces, transport) = traces([Step::Hang]);
    send(&traces, 3);
    let began = tokio::time::Instant::now();
    traces.end(Duration::from_secs(1)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(4), "what is left of five seconds");
    traces.end(Duration::from_secs(9)).await;
    assert_eq!(arrived(&transport), [3]);
}
