//! Experiments on connections, played blind: providers whose dials are drawn from a seed, and
//! what is said of them.
//!
//! Time is paused: what is waited for passes when no task has anything to do.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use support::near;
use wellhead_analyze::conclude::verdict::{
    BodyPace, Faster, Finding,
    FindingBound::{Found, NotUpTo},
    IdleClose, NoBodyPace, NoCountLimit, NoDifference, NoIdleClose, PacedFlow, Recycle, SmallWait,
    verdicts,
};
use wellhead_analyze::measure::plan::{ConnectionPlan, ExperimentPlan, FixedPlan, Sweep};
use wellhead_analyze::measure::run::CallBudget;
use wellhead_analyze::record::{CallRecord, Record, RunRecord, WireEvent};
use wellhead_analyze::report::report;
use wellhead_analyze::work::WorkKind;
use wellhead_sim::node::LatencyDial as Pace;
use wellhead_sim::provider::RefusalForm;
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};

const SECOND: Duration = Duration::from_secs(1);
const SEEDS: u64 = 20;

struct Played {
    run: RunRecord,
    records: Vec<Record>,
}

impl Played {
    fn findings(&self) -> Vec<Finding> {
        verdicts(&self.run, &self.records).into_iter().map(|verdict| verdict.finding).collect()
    }

    fn calls(&self) -> impl Iterator<Item = &CallRecord> {
        self.records.iter().filter_map(Record::call)
    }

    fn events(&self) -> Vec<&WireEvent> {
        self.records.iter().filter_map(Record::wire).map(|wire| &wire.event).collect()
    }
}

/// A world whose blocks have this many transactions.
fn world(txs_per_block: u32) -> Arc<World> {
    World::new(WorldConfig { history_blocks: 4, txs_per_block, ..WorldConfig::default() })
}

async fn play(world: &Arc<World>, dials: ProviderDials, mut plan: impl ExperimentPlan) -> Played {
    let provider = FakeProvider::start("provider", Arc::clone(world), dials).unwrap();
    // Paused time does not pass while we work: no share of a core can be told from it.
    let budget = CallBudget::new(u64::MAX);
    let (run, records) = support::played(&provider.url(), &mut plan, &budget, || None).await;
    Played { run, records }
}

#[tokio::test(start_paused = true)]
async fn how_connections_end_is_found() {
    let world = world(1);
    for seed in 0..SEEDS {
        let dials = ProviderDials::draw_ends(&mut SmallRng::seed_from_u64(seed));
        let truth = (dials.recycle_after, !dials.recycle_abruptly, dials.idle_close);
        let (requests, gently, idle) = truth;
        let plan = ConnectionPlan::new(1_200, SECOND * 6, SECOND);
        let played = play(&world, dials, plan).await;
        let found = played.findings();
        let what = format!("seed {seed}, {truth:?}: {found:?}");
        let [first, second] = &found[..] else { panic!("{what}") };
        match (requests, first) {
            (Some(truth), Finding::Recycle(Found(Recycle { after_calls, orderly }))) => {
                assert_eq!((*after_calls, *orderly), (truth, gently), "{what}");
            }
            (None, Finding::Recycle(NotUpTo(NoCountLimit { up_to: 1_200 }))) => {}
            (_, _) => panic!("{what}"),
        }
        match (idle, second) {
            (Some(truth), Finding::IdleClose(Found(IdleClose { after_ms }))) => {
                near(*after_ms as f64, truth.as_millis() as f64, &what);
            }
            (None, Finding::IdleClose(NotUpTo(NoIdleClose { up_to_ms: 6_000 }))) => {}
            (_, _) => panic!("{what}"),
        }
    }
}

/// What is to be said of two ways, one of which takes `h1` and the other `h2`.
#[track_caller]
fn compared(found: &[Finding], held: &str, h1: f64, h2: f64, what: &str) {
    let is_held = |finding: &&Finding| match finding {
        Finding::Comparison(Found(Faster { what, held: in_fact, .. }))
        | Finding::Comparison(NotUpTo(NoDifference { what, held: in_fact, .. })) => {
            in_fact.starts_with(held) && !what.contains("connection")
        }
        _ => false,
    };
    let found: Vec<&Finding> = found.iter().filter(is_held).collect();
    let (quick, slow) = (h1.min(h2), h1.max(h2));
    match found[..] {
        [Finding::Comparison(NotUpTo(_))] => assert_eq!(quick, slow, "{what}"),
        [Finding::Comparison(Found(Faster { what: quicker, percent, low, high, .. }))] => {
            assert_eq!(quicker, if h1 < h2 { "http/1.1" } else { "h2" }, "{what}");
            near(*percent, (1.0 - quick / slow) * 100.0, &what);
            assert!(*low > 0.0 && low <= percent && percent <= high, "{what}");
        }
        ref other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_quicker_protocol_is_found_and_none_where_none_is() {
    let world = world(1);
    for seed in 0..SEEDS {
        let dials = ProviderDials::draw_protocol(&mut SmallRng::seed_from_u64(seed));
        let each = dials.latency.base + dials.latency.jitter / 2;
        let truth = (each + dials.http1_delay, each + dials.http2_delay);
        let sweep = Sweep {
            connections: vec![1, 4],
            http1_own: false,
            at_once: vec![4],
            bodies: vec![WorkKind::Cheap],
            calls: 60,
            repeats: 3,
        };
        let plan = FixedPlan::protocol(&sweep, SECOND, &mut SmallRng::seed_from_u64(seed));
        let played = play(&world, dials, plan).await;
        let found = played.findings();
        let what = format!("seed {seed}, {truth:?}: {found:#?}");
        let (h1, h2) = (truth.0.as_secs_f64(), truth.1.as_secs_f64());
        compared(&found, "4 connections", h1, h2, &what);
        // Where four calls share one connection, each waits for three others.
        let (h1, h2) = (4.0 * h1, h2);
        if (h1 / h2 - 1.0).abs() > 0.1 {
            compared(&found, "1 connection,", h1, h2, &what);
        }
        // Over HTTP/2 the number of connections makes no difference here.
        let more = |finding: &&Finding| match finding {
            Finding::Comparison(NotUpTo(NoDifference { held, .. })) => held.starts_with("h2"),
            _ => false,
        };
        assert_eq!(found.iter().filter(more).count(), 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn how_bodies_flow_is_found() {
    let world = world(60);
    for seed in 0..SEEDS {
        let dials = ProviderDials::draw_bodies(&mut SmallRng::seed_from_u64(seed));
        let truth = (dials.body_bytes_per_second, dials.bodies_in_turn);
        let (per_second, in_turn) = truth;
        let mut rng = SmallRng::seed_from_u64(seed);
        let plan = FixedPlan::bodies(5, 4, 3, SECOND, &mut rng);
        let played = play(&world, dials, plan).await;
        let found = played.findings();
        let what = format!("seed {seed}, {truth:?}: {found:?}");
        let [pace, small] = &found[..] else { panic!("{what}") };
        match (per_second, pace) {
            (Some(truth), Finding::BodyPace(Found(BodyPace { bytes_per_second, of }))) => {
                near(*bytes_per_second, truth as f64, &what);
                assert_eq!(*of == PacedFlow::Together, in_turn, "{what}");
            }
            (None, Finding::BodyPace(NotUpTo(NoBodyPace { up_to_bytes_per_second }))) => {
                assert!(*up_to_bytes_per_second > 100_000.0, "{what}");
            }
            (_, _) => panic!("{what}"),
        }
        match small {
            Finding::SmallWait(Found(SmallWait { ms, low, .. })) => {
                assert!(in_turn && *ms > 50.0 && *low > 0.0, "{what}");
            }
            Finding::SmallWait(NotUpTo(_)) => assert!(!in_turn, "{what}"),
            _ => panic!("{what}"),
        }
    }
}

/// The charts of the report, by their titles.
fn charts(played: &Played) -> Vec<(String, serde_json::Value)> {
    let files = report(&played.run, &played.records);
    let page = &files.iter().find(|file| file.name == "report.html").unwrap().text;
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"charts\">").unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    let charts: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    let titled =
        |chart: serde_json::Value| (chart["title"].as_str().unwrap_or_default().to_owned(), chart);
    charts.into_iter().map(titled).collect()
}

#[tokio::test(start_paused = true)]
async fn the_report_draws_phases_ends_and_bodies() {
    let world = world(20);
    let dials = ProviderDials { recycle_after: Some(30), ..dials() };
    let sweep = Sweep {
        connections: vec![1, 2],
        http1_own: false,
        at_once: vec![2],
        bodies: vec![WorkKind::SmallBlocks],
        calls: 8,
        repeats: 1,
    };
    let mut rng = SmallRng::seed_from_u64(1);
    let protocol = FixedPlan::protocol(&sweep, SECOND, &mut rng);
    let drawn = charts(&play(&world, dials.clone(), protocol).await);
    let waterfalls: Vec<_> =
        drawn.iter().filter(|(_, chart)| chart["kind"] == "waterfall").collect();
    assert_eq!(waterfalls.len(), 4, "two protocols, two numbers of connections");
    for (title, chart) in waterfalls {
        let parts = chart["parts"].as_array().unwrap();
        let steps = chart["steps"].as_array().unwrap();
        let begin = chart["begin"].as_array().unwrap();
        assert_eq!((parts.len(), steps.len()), (7, begin.len()), "{title}");
        for (steps, begin) in steps.iter().zip(begin) {
            let steps: Vec<f64> =
                steps.as_array().unwrap().iter().map(|at| at.as_f64().unwrap()).collect();
            assert!(steps.is_sorted() && begin.as_f64().unwrap() <= steps[0], "{title}: {steps:?}");
        }
        let word = chart["word"][0].as_str().unwrap();
        assert!(word.contains(", connection "), "{word}");
    }
    let plan = ConnectionPlan::new(50, SECOND, SECOND);
    let drawn = charts(&play(&world, dials.clone(), plan).await);
    let titles: Vec<&str> = drawn.iter().map(|(title, _)| title.as_str()).collect();
    assert_eq!(titles, ["requests served by a connection", "connections found closed on reuse"]);
    let bars = drawn[0].1["bars"].as_array().unwrap();
    let last = serde_json::json!(["connection 3", [30.0, 0.0]]);
    assert_eq!((bars.len(), bars.last()), (3, Some(&last)));
    let plan = FixedPlan::bodies(2, 2, 1, SECOND, &mut SmallRng::seed_from_u64(1));
    let drawn = charts(&play(&world, dials, plan).await);
    let titles: Vec<&str> = drawn.iter().map(|(title, _)| title.as_str()).collect();
    let phases = "phases of a small call, medians";
    assert_eq!(titles, ["throughput of a connection", "latency of small calls", phases]);
}

fn dials() -> ProviderDials {
    let latency = Pace::even(Duration::from_millis(20), Duration::ZERO);
    ProviderDials { latency, ..ProviderDials::default() }
}

#[tokio::test(start_paused = true)]
async fn records_tell_the_connection_the_stream_and_the_farewell() {
    let world = world(1);
    let dials = ProviderDials { recycle_after: Some(40), ..dials() };
    let plan = ConnectionPlan::new(100, Duration::ZERO, SECOND);
    let played = play(&world, dials, plan).await;
    let mut last = None;
    for call in played.calls() {
        let (connection, stream) = (call.connection.unwrap(), call.stream.unwrap());
        assert_eq!(stream % 2, 1, "{call:?}");
        assert_eq!(call.protocol.as_deref(), Some("h2"));
        assert!(call.queue.is_some() && call.write.is_some(), "{call:?}");
        // A millisecond is the clock's.
        let waited = call.first_byte.unwrap();
        assert!((20_000..=22_000).contains(&waited), "{call:?}");
        assert!(last.is_none_or(|last| connection >= last), "numbers of the run: {call:?}");
        last = Some(connection);
    }
    let events = played.events();
    let opened = |event: &&&WireEvent| matches!(event, WireEvent::Opened { protocol, alpn: None, .. } if protocol == "h2");
    assert!(events.iter().filter(opened).count() >= 3);
    let windows = events.iter().find_map(|event| match event {
        WireEvent::Settings { others, .. } => others.get("initial_window_size"),
        _ => None,
    });
    assert_eq!(windows, Some(&(1 << 20)));
    // Gently: first to all streams, then to the last that it took.
    let last: Vec<u32> = events
        .iter()
        .filter_map(|event| match event {
            WireEvent::Goaway { code: 0, last_stream, .. } => Some(*last_stream),
            _ => None,
        })
        .collect();
    assert!(last.contains(&((1 << 31) - 1)) && last.contains(&79), "{last:?}");
    let closed = |event: &&&WireEvent| matches!(event, WireEvent::Closed { reason, calls: 40, in_flight: 0 } if reason == "replaced");
    assert!(events.iter().filter(closed).count() >= 2, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn records_tell_what_headers_say_of_limits() {
    let world = world(1);
    for http2 in [true, false] {
        let refusal = RefusalForm::too_many(Some(SECOND * 7));
        let barred = ProviderDials { barred: Some(refusal), http2, ..dials() };
        let plan = ConnectionPlan::new(3, Duration::ZERO, SECOND);
        let played = play(&world, barred, plan).await;
        let mut calls = 0;
        for call in played.calls() {
            let told = call.limits.get("retry-after").map(String::as_str);
            assert_eq!((told, call.retry_after_ms), (Some("7"), Some(7_000)), "{call:?}");
            calls += 1;
        }
        assert_eq!(calls, 6);
    }
}
