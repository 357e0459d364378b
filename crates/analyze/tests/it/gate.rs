//! Conditions, baselines and exit codes, over runs whose truth is known.

use wellhead_analyze::conclude::verdict::verdicts;
use wellhead_analyze::gate::{
    BaselineReport, DOCUMENT_SCHEMA, GateCondition, GateOutcome, MeasuredRun, decide, document,
    evaluate, junit,
};
use wellhead_analyze::record::Record;
use wellhead_analyze::report::{Side, compare};

use super::schema::problems;
use super::synthetic::{Dials, World, elastic, metered, shaped};

/// Runs of the table. Of the metered one p50 is near 40 ms and the limit 125 calls/s; the elastic
/// one takes 60 ms, and was tried up to 244 calls/s.
fn world(name: &str) -> World {
    let (dials, seed, experiments): (Dials, u64, &[&str]) = match name {
        "metered" => (metered(), 1, &["rate", "load"]),
        "metered again" => (metered(), 2, &["rate", "load"]),
        "metered, tighter" => {
            (Dials { bucket: Some((80.0, 80.0)), ..metered() }, 3, &["rate", "load"])
        }
        "elastic" => (elastic(), 4, &["rate", "load", "streams"]),
        "elastic again" => (elastic(), 5, &["rate", "load", "streams"]),
        "elastic, slower" => {
            (Dials { base_ms: 60.0 * 2.69, ..elastic() }, 6, &["rate", "load", "streams"])
        }
        "elastic, quicker" => {
            (Dials { base_ms: 20.0, ..elastic() }, 7, &["rate", "load", "streams"])
        }
        "shaped" => (shaped(), 8, &["streams", "soak"]),
        "failing" => (elastic(), 9, &["load"]),
        "elastic, loaded" => (elastic(), 12, &["load"]),
        "doubted" => (elastic(), 10, &["load"]),
        "silent" => (elastic(), 11, &[]),
        other => panic!("no world {other}"),
    };
    let mut world = World::new(seed, vec![dials]);
    experiments.iter().for_each(|experiment| world.play(experiment, 0));
    for (n, record) in world.records.iter_mut().enumerate() {
        match record {
            Record::Call(call) if name == "failing" && n % 20 == 0 => {
                (call.class, call.status) = ("fault".to_owned(), Some(500));
            }
            Record::Cell(cell) if name == "doubted" => cell.load.saturated = true,
            Record::Call(_) | Record::Wire(_) | Record::Cell(_) | Record::Rollup(_) => {}
        }
    }
    world
}

/// What a case comes to: the outcome of the gate, or that `compare` found a difference.
fn exit_code(name: &str, baseline: Option<&str>, conditions: &[&str], is_cut: bool) -> u8 {
    let this = world(name);
    let conditions: Vec<GateCondition> =
        conditions.iter().map(|text| text.parse().expect("a condition")).collect();
    let verdicts = verdicts(&this.run, &this.records);
    let measured = MeasuredRun::new(&this.run, &this.records);
    let results = evaluate(&conditions, &measured, &verdicts);
    let compared = baseline.map(|name| {
        let mut before = world(name);
        before.run.targets.clone_from(&this.run.targets);
        let side = |name, world: &World| (name, world.run.clone(), world.records.clone());
        let (a, b) = (side("before", &before), side("after", &this));
        compare(
            Side { name: a.0, run: &a.1, records: &a.2 },
            Side { name: b.0, run: &b.1, records: &b.2 },
        )
    });
    let is_worse = compared.as_ref().is_some_and(|it| !it.worse.is_empty());
    let outcome = decide(&results, is_worse, is_cut);
    let differs = compared.as_ref().is_some_and(|it| it.differs);
    let baseline =
        compared.map(|it| BaselineReport { started_unix: 1, differs: it.differs, worse: it.worse });
    let told = document(&measured, &verdicts, results, baseline, outcome);
    let told = serde_json::to_value(told).expect("plain data");
    let schema = serde_json::from_str(DOCUMENT_SCHEMA).expect("JSON");
    assert_eq!(problems(&schema, &told), Vec::<String>::new(), "{told:#}");
    match outcome {
        // As `compare` ends.
        GateOutcome::Passed if differs => 3,
        outcome => outcome.exit_code(),
    }
}

type Case = (&'static str, Option<&'static str>, &'static [&'static str], u8);

const CASES: [Case; 33] = [
    // Without conditions.
    ("metered", None, &[], 0),
    // Latency.
    ("metered", None, &["load.p50 > 100ms"], 0),
    ("metered", None, &["load.p50 > 20ms"], 4),
    ("metered", None, &["load.p50 > 0.02s"], 4),
    ("metered", None, &["p95 > 1s"], 0),
    ("metered", None, &["max > 1ms"], 4),
    ("elastic", None, &["rate.p99 > 200ms", "rate.p99 < 1ms"], 0),
    ("shaped", None, &["soak.p50 > 1ms"], 4),
    ("shaped", None, &["soak.p50 > 10s"], 0),
    // A long run keeps no p90, and a run without calls keeps nothing.
    ("shaped", None, &["soak.p90 > 1ms"], 5),
    ("silent", None, &["p95 > 1ms"], 5),
    ("silent", None, &["calls == 0"], 5),
    // Doubted cells are no measurement.
    ("doubted", None, &["p50 > 1ms"], 5),
    ("doubted", None, &["errors > 0%"], 5),
    // Shares.
    ("elastic", None, &["errors > 0%"], 0),
    ("failing", None, &["errors > 1%"], 4),
    ("failing", None, &["errors > 10%"], 0),
    ("metered", None, &["rate.throttled > 5%"], 4),
    ("elastic", None, &["throttled > 0%", "errors > 0%"], 0),
    // Verdicts: a measured limit, a bound, and what was not played or not found.
    ("metered", None, &["verdict rate.limit < 100/s"], 0),
    ("metered", None, &["verdict rate.limit < 150/s"], 4),
    ("elastic", None, &["verdict rate.limit < 200/s"], 0),
    ("elastic", None, &["verdict rate.limit < 500/s"], 5),
    ("metered", None, &["verdict streams.cap < 100"], 5),
    ("shaped", None, &["verdict streams.cap < 100"], 4),
    ("shaped", None, &["verdict streams.cap < 50ms"], 5),
    // A condition that holds comes before one that is inconclusive.
    ("metered", None, &["verdict streams.cap < 100", "p50 > 1ms"], 4),
    // Beside a baseline.
    ("metered again", Some("metered"), &[], 0),
    ("elastic, slower", Some("elastic"), &[], 6),
    ("elastic, quicker", Some("elastic"), &[], 3),
    ("failing", Some("elastic, loaded"), &[], 6),
    ("metered, tighter", Some("metered"), &["p50 > 1s"], 6),
    ("elastic, slower", Some("elastic again"), &["load.p50 > 100ms"], 4),
];

#[test]
fn exit_codes() {
    for (name, baseline, conditions, expected) in CASES {
        let found = exit_code(name, baseline, conditions, false);
        assert_eq!(found, expected, "{name} beside {baseline:?}: {conditions:?}");
    }
    // What was cut proves nothing, whatever its figures are.
    assert_eq!(exit_code("metered", None, &["p50 > 1ms"], true), 130);
}

#[test]
fn junit_has_a_suite_for_each_target() {
    let mut world = World::new(1, vec![metered(), elastic()]);
    world.play("rate", 0);
    world.play("rate", 1);
    let conditions: Vec<GateCondition> = ["verdict rate.limit < 150/s", "p50 > 10s"]
        .map(|text| text.parse().expect("a condition"))
        .to_vec();
    let measured = MeasuredRun::new(&world.run, &world.records);
    let results = evaluate(&conditions, &measured, &verdicts(&world.run, &world.records));
    let xml = junit(&results, Some(&["slower <\u{1b}>".to_owned()]));
    for part in [
        "<testsuite name=\"metered\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\">",
        "<testcase classname=\"metered\" name=\"verdict rate.limit &lt; 150/s\"><failure message=\"",
        "<testsuite name=\"elastic\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"0\">",
        "<testsuite name=\"baseline\" tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\">",
        "<failure message=\"slower &lt;\u{fffd}&gt;\"/>",
    ] {
        assert!(xml.contains(part), "{part}\n{xml}");
    }
    for (open, close) in [("<testsuite ", "</testsuite>"), ("<testcase ", "</testcase>")] {
        assert_eq!(xml.matches(open).count(), xml.matches(close).count(), "{xml}");
    }
}
