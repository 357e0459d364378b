//! The spans that requests leave: which there are, below which, and what upstreams were told of them.

mod support;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::{Plan, Stage, Step};
use wellhead_dispatch::{Quorum, now};
use wellhead_kit::{error, ms, result};
use wellhead_proxy::{
    Ctx, FinishedTrace, ParentMode, Proxy, QuorumRule, SpanKind, SpanValue, SubscriberMessage,
    Target, TraceLoss, TraceReceiver, TraceRules, TraceSpan, Tracer,
};
use wellhead_telemetry::clock::ClockPair;
use wellhead_transport::TraceContext;

const ALL: TraceRules = TraceRules {
    sample: 1.0,
    parent: ParentMode::Continue,
    errors: true,
    hedged: true,
    slow: Duration::from_secs(2),
    per_second: 5,
};
/// None is sampled.
const NOTABLE: TraceRules = TraceRules { sample: 0.0, ..ALL };
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const BALANCE: &str = r#"{"id":1,"method":"eth_getBalance","params":["0xab","latest"]}"#;

/// What traces say that is no time, no id and not alike for all.
const TOLD: &[&str] = &[
    "error.type",
    "http.response.status_code",
    "network.protocol.name",
    "peer.service",
    "wellhead.attempt",
    "wellhead.attempts",
    "wellhead.cache",
    "wellhead.calls",
    "wellhead.calls_left_out",
    "wellhead.cut",
    "wellhead.failed",
    "wellhead.held_by",
    "wellhead.outcome",
    "wellhead.quorum.agreed",
    "wellhead.rule",
    "wellhead.settled",
    "wellhead.trace.cause",
    "wellhead.verdict",
];

/// A stage whose proxy leaves traces.
struct Traced {
    stage: Stage,
    tracer: Arc<Tracer>,
    traces: TraceReceiver,
}

impl Traced {
    fn new(stage: Stage, rules: TraceRules) -> Self {
        Self::queueing(stage, rules, 1_000)
    }

    fn queueing(mut stage: Stage, rules: TraceRules, spans_max: usize) -> Self {
        let (tracer, traces) = Tracer::new(rules, spans_max, now());
        let chains = stage.proxy.chains().to_vec();
        let settings = support::request_settings();
        let proxy = Proxy::new(chains, settings).tracing(Some(Arc::clone(&tracer)));
        stage.proxy = Arc::new(proxy);
        Self { stage, tracer, traces }
    }

    /// The tree of spans of the trace that comes next.
    #[track_caller]
    fn tree(&mut self) -> String {
        tree(&self.traces.try_next().expect("a trace"))
    }

    #[track_caller]
    fn check(&mut self, expected: &[&str]) {
        let tree = self.tree();
        assert_eq!(tree.lines().collect::<Vec<_>>(), expected);
    }
}

fn call(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[]}}"#)
}

/// A line a span, those below another one under it and to the right.
fn tree(trace: &FinishedTrace) -> String {
    let (mut text, root) = (String::new(), &trace.spans[0]);
    assert!(trace.spans.iter().all(|span| span.trace_id == root.trace_id));
    let written = write_below(&mut text, trace, root, 0);
    assert_eq!(written, trace.spans.len(), "spans that are below none: {trace:?}");
    text
}

fn write_below(text: &mut String, trace: &FinishedTrace, span: &TraceSpan, depth: usize) -> usize {
    let kind = match span.kind {
        SpanKind::Server => "server",
        SpanKind::Client => "client",
        SpanKind::Internal => "internal",
    };
    let _ = write!(text, "{}{kind} {}", "  ".repeat(depth), span.name);
    for name in TOLD {
        let _ = match value(span, name) {
            Some(SpanValue::Word(word)) => write!(text, " {word}"),
            Some(SpanValue::Text(word)) => write!(text, " {word}"),
            Some(SpanValue::Address(address)) => write!(text, " {address}"),
            Some(SpanValue::Count(count)) => {
                write!(text, " {}={count}", name.rsplit('.').next().unwrap_or(name))
            }
            None => Ok(()),
        };
    }
    let ms = |at| now().saturating_duration_since(at).as_millis();
    let took = ms(span.began) - ms(span.ended);
    let _ = writeln!(text, " {took}ms{}", if span.is_error { " ERROR" } else { "" });
    let below = trace.spans[1..].iter().filter(|it| it.parent == Some(span.span_id));
    1 + below.map(|it| write_below(text, trace, it, depth + 1)).sum::<usize>()
}

fn value<'a>(span: &'a TraceSpan, name: &str) -> Option<&'a SpanValue> {
    let mut values = span.attributes.iter().filter(|(known, _)| *known == name);
    let value = values.next().map(|(_, value)| value);
    assert!(values.next().is_none(), "{name} stands twice");
    value
}

#[tokio::test(start_paused = true)]
async fn a_call_that_failed_over_has_a_span_for_each_attempt() {
    let mut traced = Traced::new(Stage::upstreams(2), ALL);
    traced.stage.peer(0).next("eth_gasPrice", Step::REFUSE.after(ms(30)));
    traced.stage.peer(1).next("eth_gasPrice", result("\"0x1\"").after(ms(5)));
    traced.stage.send(None, &call("eth_gasPrice")).await;
    traced.check(&[
        "server eth_gasPrice status_code=200 http attempts=2 calls=1 failed=0 answered sample 35ms",
        "  client eth_gasPrice fault a first transport-connect fault 30ms ERROR",
        "  client eth_gasPrice b retry result answer 5ms",
    ]);
    assert!(traced.traces.try_next().is_none(), "one trace a request");
}

#[tokio::test(start_paused = true)]
async fn a_hedged_call_has_its_trace_though_it_was_not_sampled() {
    let mut traced = Traced::new(Stage::upstreams(2), NOTABLE);
    traced.stage.peer(0).next("eth_call", Step::Hang);
    traced.stage.peer(1).next("eth_call", result("\"0x1\"").after(ms(5)));
    traced.stage.send(None, &call("eth_gasPrice")).await;
    assert!(traced.traces.try_next().is_none(), "nothing notable");
    traced.stage.send(None, &call("eth_call")).await;
    let tree = traced.tree();
    let lines: Vec<_> =
        tree.lines().map(|line| line.rsplit_once(' ').map_or("", |it| it.0)).collect();
    assert_eq!(
        lines,
        [
            "server eth_call status_code=200 http attempts=2 calls=1 failed=0 answered hedged",
            "  client eth_call a first abandoned",
            "  client eth_call b hedge result answer",
        ],
        "{tree}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_no_upstream_could_answer_is_an_error() {
    let mut traced = Traced::new(Stage::upstreams(1), NOTABLE);
    traced.stage.peer(0).always("eth_feeHistory", Step::REFUSE);
    traced.stage.send(None, &call("eth_feeHistory")).await;
    let tree = traced.tree();
    let first = tree.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("server eth_feeHistory 503 status_code=503 http attempts="),
        "{tree}"
    );
    assert!(first.contains(" failed error ") && first.ends_with(" ERROR"), "{tree}");
    // What an upstream says of a call is an answer, and what a client does wrong is no failure.
    traced.stage.peer(0).next("eth_call", error(3, "execution reverted"));
    traced.stage.send(None, &call("eth_call")).await;
    traced.stage.send(None, &call("admin_peers")).await;
    traced.stage.send(None, "!").await;
    traced.stage.send(Some("nowhere"), &call("eth_gasPrice")).await;
    assert!(traced.traces.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_has_its_trace() {
    let mut traced = Traced::new(Stage::upstreams(1), NOTABLE);
    traced.stage.peer(0).next("eth_gasPrice", result("\"0x1\"").after(ms(1_999)));
    traced.stage.peer(0).next("eth_gasPrice", result("\"0x1\"").after(ms(2_000)));
    traced.stage.send(None, &call("eth_gasPrice")).await;
    assert!(traced.traces.try_next().is_none());
    traced.stage.send(None, &call("eth_gasPrice")).await;
    traced.check(&[
        "server eth_gasPrice status_code=200 http attempts=1 calls=1 failed=0 answered slow 2000ms",
        "  client eth_gasPrice a first result answer 2000ms",
    ]);
}

/// What is beside the series of the durations of calls that have an exemplar.
fn exemplars(traced: &Traced) -> Vec<String> {
    let text = traced.stage.metrics();
    let clock = ClockPair { now: now(), unix: Duration::from_secs(1_000) };
    let told = wellhead_proxy::with_exemplars(text.clone(), &traced.stage.proxy, clock);
    // Nothing else was changed.
    let bare: Vec<_> = told.lines().map(|line| line.split(" # {").next().unwrap_or(line)).collect();
    assert_eq!(bare, text.lines().collect::<Vec<_>>());
    told.lines().filter(|line| line.contains(" # {")).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_trace_that_is_kept_is_an_exemplar_of_its_calls() {
    let mut traced = Traced::new(Stage::upstreams(1), NOTABLE);
    traced.stage.peer(0).next("eth_gasPrice", result("\"0x1\"").after(ms(20)));
    traced.stage.peer(0).next("eth_gasPrice", result("\"0x1\"").after(ms(2_100)));
    traced.stage.send(None, &call("eth_gasPrice")).await;
    assert_eq!(exemplars(&traced), [""; 0], "its trace is not kept");
    traced.stage.send(None, &call("eth_gasPrice")).await;
    let id = traced.traces.try_next().expect("a trace").spans[0].trace_id;
    let series =
        r#"wellhead_call_duration_seconds_bucket{le="2.5",chain="ethereum",class="light"} 2"#;
    let expected = [format!("{series} # {{trace_id=\"{id}\"}} 2.1 1000.000")];
    assert_eq!(exemplars(&traced), expected);
    // A later look tells it as it was.
    tokio::time::advance(ms(5_000)).await;
    assert_eq!(exemplars(&traced), expected);
}

#[tokio::test(start_paused = true)]
async fn a_trace_that_is_lost_is_no_exemplar() {
    let traced = Traced::queueing(Stage::upstreams(1), ALL, 2);
    for method in ["eth_gasPrice", "eth_blobBaseFee"] {
        traced.stage.send(None, &call(method)).await;
    }
    assert_eq!(traced.tracer.counts().dropped(TraceLoss::QueueFull), 1);
    assert_eq!(exemplars(&traced).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_call_of_a_batch_is_an_exemplar_where_it_was_counted() {
    let traced = Traced::new(Stage::upstreams(1), ALL);
    let body = format!("[{},{BALANCE}]", call("eth_gasPrice"));
    traced.stage.send(None, &body).await;
    let told = exemplars(&traced);
    let classes: Vec<_> =
        told.iter().map(|it| (it.contains("light"), it.contains("state"))).collect();
    assert_eq!(classes, [(true, false), (false, true)], "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_the_cache_has_one_span() {
    let mut traced = Traced::new(Stage::keeping_to_100(1), ALL);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0xa",false]}"#;
    let header = r#"{"number":"0xa","hash":"0x0a00000000000000000000000000000000000000000000000000000000000000"}"#;
    traced.stage.peer(0).next("eth_getBlockByNumber", result(header));
    traced.stage.send(None, body).await;
    traced.stage.send(None, body).await;
    traced.check(&[
        "server eth_getBlockByNumber status_code=200 http attempts=1 miss calls=1 failed=0 answered sample 0ms",
        "  client eth_getBlockByNumber a first result answer 0ms",
    ]);
    traced.check(&[
        "server eth_getBlockByNumber status_code=200 http attempts=0 hit calls=1 failed=0 answered sample 0ms",
    ]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_batch_have_spans_of_their_own() {
    let mut traced = Traced::new(Stage::upstreams(2), ALL);
    let batch = format!(
        "[{},{},{},{},{},1]",
        call("eth_gasPrice"),
        call("eth_maxPriorityFeePerGas"),
        call("eth_chainId"),
        call("admin_peers"),
        call("debug_traceTransaction")
    );
    traced.stage.send(None, &batch).await;
    let tree = traced.tree();
    let mut lines: Vec<_> = tree.lines().collect();
    assert_eq!(
        lines.remove(0),
        "server batch status_code=200 http calls=6 failed=2 sample 0ms",
        "{tree}"
    );
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "    client debug_traceTransaction a first result answer 0ms",
            "  client batch a calls=2 settled=2 0ms",
            "  internal admin_peers attempts=0 refused 0ms",
            "  internal debug_traceTransaction attempts=1 answered 0ms",
            "  internal eth_chainId attempts=0 answered 0ms",
            "  internal eth_gasPrice attempts=0 answered 0ms",
            "  internal eth_maxPriorityFeePerGas attempts=0 answered 0ms",
        ],
        "{tree}"
    );
}

#[tokio::test(start_paused = true)]
async fn kept_calls_of_a_batch_say_so() {
    let mut traced = Traced::new(Stage::keeping_to_100(1), ALL);
    let block =
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0xa",false]}"#;
    let header = r#"{"number":"0xa","hash":"0x0a00000000000000000000000000000000000000000000000000000000000000"}"#;
    traced.stage.peer(0).next("eth_getBlockByNumber", result(header));
    traced.stage.send(None, block).await;
    traced.tree();
    traced.stage.send(None, &format!("[{block}]")).await;
    traced.check(&[
        "server batch status_code=200 http calls=1 failed=0 sample 0ms",
        "  internal eth_getBlockByNumber attempts=0 hit answered 0ms",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_has_spans_for_its_first_calls() {
    let mut traced = Traced::new(Stage::upstreams(1), ALL);
    let calls = vec![call("eth_gasPrice"); 150].join(",");
    traced.stage.send(None, &format!("[{calls}]")).await;
    let tree = traced.tree();
    assert_eq!(tree.matches("internal eth_gasPrice").count(), 64);
    assert!(
        tree.starts_with("server batch status_code=200 http calls=150 calls_left_out=86"),
        "{tree}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_quorum_has_a_span_for_each_vote() {
    let methods = vec!["eth_getBalance".parse().expect("a pattern")];
    let quorum = vec![QuorumRule { methods, quorum: Quorum::default() }];
    let plan = Plan { upstreams: 2, quorum, ..Plan::default() };
    let mut traced = Traced::new(Stage::new(vec![plan]), ALL);
    for place in 0..2_u8 {
        traced.stage.show_head(place, 100);
        traced.stage.peer(place.into()).next("eth_getBalance", result("\"0x1\""));
    }
    traced.stage.send(None, BALANCE).await;
    let tree = traced.tree();
    assert!(tree.contains("client eth_getBalance a first") && tree.contains("b quorum"), "{tree}");
    assert!(tree.contains(" agreed=2 "), "{tree}");
}

#[tokio::test(start_paused = true)]
async fn a_message_over_websocket_is_a_request() {
    let mut traced = Traced::new(Stage::upstreams(1), ALL);
    let (proxy, worker) = (&traced.stage.proxy, &traced.stage.worker);
    let subscriber = proxy.open_subscriber(worker, None).expect("one chain");
    let message = SubscriberMessage::new(&subscriber);
    let body = Bytes::from(call("eth_gasPrice"));
    proxy.handle_message(worker, Some(&message), ctx(None), Target::default(), body).await;
    traced.check(&[
        "server eth_gasPrice websocket attempts=1 calls=1 failed=0 answered sample 0ms",
        "  client eth_gasPrice a first result answer 0ms",
    ]);
}

fn ctx(traceparent: Option<&str>) -> Ctx {
    let given = traceparent.and_then(|it| TraceContext::parse(it.as_bytes()));
    Ctx { trace_parent: given.map(Box::new), ..support::whole() }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_is_told_the_span_that_is_reported_later() {
    let mut traced = Traced::new(Stage::upstreams(2), ALL);
    traced.stage.peer(0).next("eth_gasPrice", Step::REFUSE.after(ms(30)));
    let single = call("eth_gasPrice");
    let batch = format!("[{single},{single}]");
    for body in [single, batch] {
        let body = Bytes::from(body);
        traced.stage.proxy.handle(&traced.stage.worker, ctx(Some(PARENT)), None, body).await;
        let trace = traced.traces.try_next().expect("a trace");
        let given = TraceContext::parse(PARENT.as_bytes()).expect("sound");
        let root = &trace.spans[0];
        assert_eq!((root.trace_id, root.parent), (given.trace_id, Some(given.span_id)));
        assert!(root.is_parent_remote && !trace.spans[1].is_parent_remote);
        let mut reported: Vec<_> =
            trace.spans.iter().filter(|it| it.kind == SpanKind::Client).collect();
        assert!(!reported.is_empty());
        for place in 0..2 {
            for arrival in traced.stage.peer(place).transport.arrivals() {
                let told = arrival.trace.expect("each exchange belongs to the trace");
                assert_eq!((told.trace_id, told.is_sampled), (given.trace_id, true));
                let at = reported.iter().position(|it| it.span_id == told.span_id);
                reported.remove(at.unwrap_or_else(|| panic!("{told:?} is not in {reported:?}")));
            }
            traced.stage.peer(place).transport.forget();
        }
        assert!(reported.is_empty(), "{reported:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_tracer_upstreams_are_told_nothing() {
    let stage = Stage::upstreams(1);
    stage.proxy.handle(&stage.worker, ctx(Some(PARENT)), None, call("eth_gasPrice").into()).await;
    let arrivals = stage.peer(0).transport.arrivals();
    assert_eq!(arrivals.iter().map(|it| it.trace).collect::<Vec<_>>(), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_no_failure_of_ours() {
    let mut traced = Traced::new(Stage::upstreams(1), NOTABLE);
    traced.stage.peer(0).always("eth_gasPrice", Step::Hang);
    let body = call("eth_gasPrice");
    let give_up = async |traced: &Traced| {
        let asking = traced.stage.send(None, &body);
        assert!(tokio::time::timeout(ms(10), asking).await.is_err(), "it hangs");
    };
    give_up(&traced).await;
    assert!(traced.traces.try_next().is_none());
    // One that is cut at the end of a drain is.
    traced.stage.proxy.note_cut();
    give_up(&traced).await;
    traced.check(&[
        "server eth_gasPrice 503 status_code=503 http calls=0 drain_cut failed=0 error 10ms ERROR",
    ]);
}

#[tokio::test(start_paused = true)]
async fn traces_that_clients_can_cause_have_a_rate() {
    let rules = TraceRules { parent: ParentMode::Follow, per_second: 3, ..NOTABLE };
    let mut traced = Traced::new(Stage::upstreams(1), rules);
    for _ in 0..10 {
        let body = call("eth_gasPrice").into();
        traced.stage.proxy.handle(&traced.stage.worker, ctx(Some(PARENT)), None, body).await;
    }
    let sent = std::iter::from_fn(|| traced.traces.try_next()).count();
    assert_eq!((sent, traced.tracer.counts().dropped(TraceLoss::Rate)), (3, 7));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_counts() {
    let mut traced = Traced::queueing(Stage::upstreams(1), ALL, 5);
    for _ in 0..10 {
        traced.stage.send(None, &call("eth_gasPrice")).await;
    }
    // Each has two spans.
    let sent = std::iter::from_fn(|| traced.traces.try_next()).count();
    assert_eq!((sent, traced.tracer.counts().dropped(TraceLoss::QueueFull)), (2, 8));
    traced.stage.send(None, &call("eth_gasPrice")).await;
    assert!(traced.traces.try_next().is_some(), "there is room again");
}
