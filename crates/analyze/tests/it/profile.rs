//! The settings that follow from verdicts: valid YAML, and a reason beside each.

use granit_parser::{Event, Parser};
use wellhead_analyze::conclude::profile::profile;
use wellhead_analyze::conclude::verdict::{
    CapWay, Confidence, ExperimentVerdict, Faster, Finding,
    FindingBound::{Found, NotUpTo},
    IdleClose, NoDifference, Recycle, Refilled, RefusalWay, RetryAfterWorth, Shaped, ShapingScope,
    StreamLimit, TokenLimit, verdicts,
};
use wellhead_analyze::record::{MeasuredTarget, RunRecord};

use super::synthetic::{Dials, World, elastic, metered, shaped};

fn of(dials: Vec<Dials>, experiments: &[&str]) -> String {
    let targets = dials.len();
    let mut world = World::new(7, dials);
    for target in 0..targets {
        experiments.iter().for_each(|experiment| world.play(experiment, target));
    }
    profile(&world.run, &verdicts(&world.run, &world.records))
}

#[test]
fn the_profile_of_three() {
    let experiments = ["streams", "connection", "rate", "window", "throttle", "reach"];
    let text = of(vec![metered(), shaped(), elastic()], &experiments);
    for line in [
        "measured: \"2026-11-18 11:06\"",
        "  - host: \"metered.quiknode.pro\"",
        "      credits_per_second: 2500 # at 20 API credit per call; rate: Rate limit: 125 req/s \
         sustained; excess gets 429",
        "      range_max: 10000 # reach: Log search: served for 10,000 blocks, not for 50,000",
        "    #   window: Token bucket: 125 req/s sustained, burst 125; excess gets 429 without Retry-After",
        "      streams_max: 93 # 1/16 below the measured value; streams: Connection is closed at the 100th concurrent stream (not announced; 3 of 3)",
        "      requests_max: 900 # 90 % of the measured value; connection: Connection is closed after 1,000 requests",
        "      idle: 48s # 80 % of the measured value; connection: Idle connection is closed after 60 s",
        "    # provider chainstack in the catalogue",
        "        - \"debug_traceCall\"",
    ] {
        assert!(text.lines().any(|seen| seen == line), "{line}\nin\n{text}");
    }
    let in_flight = text.lines().find(|line| line.contains("in_flight: ")).expect("a knee");
    assert!(
        in_flight
            .contains("above the knee, beyond which only latency grows; throttle: Shaped to 25")
    );
    assert_eq!(text.matches("_per_second:").count(), 1, "{text}");
}

#[test]
fn it_is_yaml_whatever_a_target_is_called() {
    let host = "h\n- e \"$${c}\"";
    let evil = Dials { id: "a", host, provider: None, ..metered() };
    let text = of(vec![evil], &["rate"]);
    let events: Result<Vec<_>, _> = Parser::new_from_str(&text).collect();
    let scalars: Vec<String> = events
        .expect("it is YAML")
        .into_iter()
        .filter_map(|(event, _)| match event {
            Event::Scalar(text, ..) => Some(text.into_owned()),
            _ => None,
        })
        .collect();
    let expected = [
        "measured",
        "2026-11-18 11:06",
        "upstreams",
        "host",
        "h\n- e \"$${c}\"",
        "id",
        "a",
        "chain_id",
        "1",
        "budget",
        "calls_per_second",
        "125",
    ];
    assert_eq!(scalars, expected, "{text}");
}

/// The settings that follow from one finding at a provider that is not known, without reasons.
fn check(finding: Finding, expected: &str) {
    check_all(vec![finding], expected);
}

/// And from several.
fn check_all(findings: Vec<Finding>, expected: &str) {
    let target =
        MeasuredTarget { id: "a".to_owned(), host: "h".to_owned(), ..MeasuredTarget::default() };
    let run = RunRecord { targets: vec![target], ..RunRecord::default() };
    let verdict = |finding: Finding| ExperimentVerdict {
        experiment: "protocol".to_owned(),
        target: 0,
        sentence: finding.to_string(),
        finding,
        confidence: Confidence::High,
        evidence: Vec::new(),
    };
    let text = profile(&run, &findings.into_iter().map(verdict).collect::<Vec<_>>());
    let lines = text.lines().skip_while(|line| !line.contains("    id: ")).skip(1);
    let values = lines.map(|line| line.split(" # ").next().unwrap_or_default().trim());
    let values: Vec<&str> =
        values.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(values.join(" "), expected, "{text}");
}

#[test]
fn calls_are_counted_in_the_time_and_the_bucket_that_were_found() {
    let bucket = |size: u64, refill_per_second: f64, refill: Refilled| {
        let window_s = size as f64 / refill_per_second;
        let (way, retry_after) = (RefusalWay::Status429, RetryAfterWorth::NotGiven);
        Finding::Bucket(Found(TokenLimit {
            size,
            refill_per_second,
            window_s,
            refill,
            way,
            retry_after,
        }))
    };
    check(
        bucket(500, 50.0, Refilled::Evenly),
        "budget: calls_per_second: 50 calls_window: 10s calls_burst: 500",
    );
    check(bucket(500, 50.0, Refilled::Window), "budget: calls_per_second: 50 calls_window: 10s");
    check(bucket(125, 125.0, Refilled::Evenly), "budget: calls_per_second: 125 calls_burst: 125");
    check(bucket(125, 125.0, Refilled::Window), "budget: calls_per_second: 125");
    // No setting tells less than a call a second.
    check(bucket(30, 0.5, Refilled::Window), "");
}

#[test]
fn what_ends_a_connection_is_kept_away_from() {
    let cap = |streams, way| {
        Finding::StreamCap(Found(StreamLimit { streams, way, seen: "3 of 3".to_owned() }))
    };
    check(cap(99, CapWay::Fatal), "connection: streams_max: 93");
    check(cap(8, CapWay::Fatal), "connection: streams_max: 7");
    check(cap(41, CapWay::Refused), "connection: streams_max: 41");
    check(cap(64, CapWay::Announced), "");
    check(Finding::IdleClose(Found(IdleClose { after_ms: 5_500 })), "connection: idle: 4400ms");
    check(Finding::IdleClose(Found(IdleClose { after_ms: 9_000_000 })), "connection: idle: 3600s");
    check(
        Finding::Recycle(Found(Recycle { after_calls: 1, orderly: true })),
        "connection: requests_max: 1",
    );
}

#[test]
fn http_1_is_asked_for_where_it_is_quicker_in_every_setting() {
    let faster = |what: &str, than: &str, held: &str| {
        Finding::Comparison(Found(Faster {
            what: what.to_owned(),
            than: than.to_owned(),
            percent: 30.0,
            low: 10.0,
            high: 50.0,
            held: held.to_owned(),
        }))
    };
    let (h1, h2) = ("http/1.1", "h2");
    let alike = || {
        Finding::Comparison(NotUpTo(NoDifference {
            what: h2.to_owned(),
            than: h1.to_owned(),
            low: -5.0,
            high: 7.0,
            held: "b".to_owned(),
        }))
    };
    let failed = || Finding::CannotTell { why: "up to 100 % of the calls failed".to_owned() };
    let connections = || faster("4 connections", "1 connection", "http/1.1");
    let first = || faster(h1, h2, "a");
    check_all(vec![first(), faster(h1, h2, "b"), connections()], "http: \"1.1\"");
    check_all(vec![first(), alike(), connections()], "");
    check_all(vec![alike(), first()], "");
    check_all(vec![first(), faster(h2, h1, "b")], "");
    check_all(vec![first(), failed()], "");
    check_all(vec![connections()], "");
}

#[test]
fn a_shaper_gets_a_little_more_than_it_can_serve_at_once() {
    let shaped =
        |scope| Finding::Shaping(Found(Shaped { calls_per_second: 250.0, scope, knee: 10.1 }));
    check(shaped(ShapingScope::Account), "budget: in_flight: 13");
    check(shaped(ShapingScope::Connection), "connection: streams_max: 13");
}

#[test]
fn what_cannot_be_told_sets_nothing() {
    let mut world = World::new(7, vec![shaped()]);
    world.play("throttle", 0);
    world.overload("throttle", 1);
    let text = profile(&world.run, &verdicts(&world.run, &world.records));
    assert!(!text.contains("budget"), "{text}");
    assert!(
        text.contains(
            "#   throttle: inconclusive: too few sound samples (the generator fell behind in "
        ),
        "{text}"
    );
}
