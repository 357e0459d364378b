//! What operators see: status, readiness, metrics.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use support::{Plan, Stage, error, settle};
use wellhead_kit::{status, throttle};
use wellhead_proxy::Readiness;
use wellhead_upstream::VerdictClass;

/// Some traffic of every kind over two chains.
async fn busy_stage() -> Stage {
    let stage = Stage::new(vec![
        Plan { upstreams: 2, keeps: true, ..Plan::default() },
        Plan { name: "gnosis", aliases: &[], id: None, verified: false, ..Plan::default() },
    ]);
    stage.show_head(0, 100);
    stage.show_head(1, 10);
    stage.peer(0).next("eth_call", status(502, "bad \"gateway\"\n"));
    stage.peer(0).next("eth_call", error(3, "execution reverted"));
    for method in ["eth_call", "eth_call", "eth_chainId", "made_up", "eth_subscribe"] {
        let body = format!(r#"{{"id":1,"method":"{method}","params":[{{}}]}}"#);
        stage.send(Some("ethereum"), &body).await;
    }
    stage.send(Some("gnosis"), r#"{"id":1,"method":"eth_gasPrice"}"#).await;
    stage.send(Some("nowhere"), "{}").await;
    stage
}

fn fail(stage: &Stage, place: usize, class: VerdictClass) {
    (0..3).for_each(|_| settle(stage.upstream(place), "eth_call", class, Duration::ZERO));
}

/// Compares "ready; the chains that are not served".
fn check_readiness(stage: &Stage, expected: &str) {
    let Readiness { is_ready, unserved } = stage.proxy.readiness();
    let shown =
        format!("{} {}", if is_ready { "ready;" } else { "not ready;" }, unserved.join(" "));
    assert_eq!(shown.trim_end(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_chain_is_served_while_one_upstream_may_answer() {
    let stage = Stage::upstreams(2);
    check_readiness(&stage, "ready;");
    fail(&stage, 0, VerdictClass::Fault);
    check_readiness(&stage, "ready;");
    fail(&stage, 1, VerdictClass::Auth);
    check_readiness(&stage, "not ready; ethereum");
    let throttled = Stage::upstreams(1);
    fail(&throttled, 0, VerdictClass::Throttled);
    check_readiness(&throttled, "ready;");
    let unverified = Stage::new(vec![Plan { verified: false, ..Plan::default() }]);
    check_readiness(&unverified, "not ready; ethereum");
    unverified.verify(0, 1);
    check_readiness(&unverified, "ready;");
}

#[tokio::test(start_paused = true)]
async fn one_dead_chain_does_not_take_the_others_out() {
    let stage = Stage::new(vec![
        Plan::default(),
        Plan { name: "gnosis", aliases: &[], id: Some(100), verified: false, ..Plan::default() },
    ]);
    check_readiness(&stage, "ready; gnosis");
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_the_state_of_everything() {
    let stage = busy_stage().await;
    let status = serde_json::to_value(stage.proxy.status()).expect("as JSON");
    assert_eq!(status["requests"]["total"], 7);
    let chain = &status["chains"][0];
    assert_eq!(chain["name"], "ethereum");
    assert_eq!((&chain["id"], &chain["head"]), (&1.into(), &100.into()));
    // One answered elsewhere, one local, one unknown; one reverted; one refused.
    assert_eq!(
        chain["calls"],
        serde_json::json!({ "answered": 3, "upstream_error": 1, "failed": 0, "refused": 1 })
    );
    let [a, b] = [&chain["upstreams"][0], &chain["upstreams"][1]];
    assert_eq!(
        (&a["id"], &a["condition"], &a["head"]),
        (&"a".into(), &"ready".into(), &100.into())
    );
    assert_eq!((&b["lag_blocks"], &b["lagging"]), (&90.into(), &true.into()));
    assert_eq!(a["failures"], 1);
    assert!(a["last_problem"].as_str().expect("a problem").starts_with("fault: "), "{a}");
    let gnosis = &status["chains"][1];
    assert_eq!(
        (&gnosis["id"], &gnosis["head"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert_eq!(gnosis["upstreams"][0]["condition"], "unverified");
}

#[tokio::test(start_paused = true)]
async fn what_is_agreed_and_taken_back_is_told() {
    let stage = Stage::upstreams(1);
    stage.show_head(0, 100);
    // By more than an upstream may lag.
    stage.show_head(0, 10);
    let status = serde_json::to_value(stage.proxy.status()).expect("as JSON");
    let chain = &status["chains"][0];
    assert_eq!((&chain["head"], &chain["reorgs"]), (&10.into(), &1.into()), "{chain}");
    let reorg = &chain["last_reorg"];
    assert_eq!((&reorg["from"], &reorg["to"]), (&100.into(), &10.into()), "{chain}");
    assert_eq!(chain["upstreams"][0]["distance_blocks"], 0);
    assert_eq!(chain["upstreams"][0]["astray"], false);
    let text = stage.metrics();
    for line in [
        r#"wellhead_chain_block{chain="ethereum",tag="latest"} 10"#,
        r#"wellhead_chain_reorgs_total{chain="ethereum"} 1"#,
        r#"wellhead_upstream_astray{chain="ethereum",upstream="a"} 0"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_rule_knows_goes_once_elsewhere_and_is_counted_by_its_code() {
    let stage = Stage::upstreams(2);
    stage.peer(0).next("eth_call", error(-32042, "the moon is in the wrong house"));
    // Equals share, so that both are asked among a few calls.
    for _ in 0..20 {
        let said = stage.call("eth_call", "[{}]").await;
        assert!(!said.contains("moon"), "the other one answered: {said}");
    }
    let status = serde_json::to_value(stage.proxy.status()).expect("as JSON");
    let [a, b] = [0, 1].map(|place| &status["chains"][0]["upstreams"][place]);
    assert_eq!(a["unknown_errors"], serde_json::json!([{ "code": -32042, "count": 1 }]));
    assert_eq!(b["unknown_errors"], serde_json::json!([]));
    assert_eq!((&a["condition"], &a["failures"]), (&"ready".into(), &0.into()));
    let text = stage.metrics();
    let series = r#"unknown_errors_total{chain="ethereum",upstream="a",code="-32042"} 1"#;
    assert!(text.contains(series), "{text}");
    assert!(!text.contains("moon"), "words are never told");
}

/// A refusal pauses its method alone, which the condition of its upstream does not show.
#[tokio::test(start_paused = true)]
async fn methods_that_pause_alone_are_listed() {
    let stage = Stage::upstreams(1);
    let refuse = |method: &str, retry_after: Option<u64>| {
        throttle(stage.upstream(0), method, retry_after.map(Duration::from_secs));
    };
    let paused = || {
        let status = serde_json::to_value(stage.proxy.status()).expect("as JSON");
        let upstream = &status["chains"][0]["upstreams"][0];
        assert_eq!(upstream["condition"], "ready", "{upstream}");
        upstream["paused_methods"].clone()
    };
    assert_eq!(paused(), serde_json::json!([]));
    refuse("eth_getLogs", None);
    let listed =
        serde_json::json!({ "method": "eth_getLogs", "ends_in_ms": 1000, "reason": "refused" });
    assert_eq!(paused(), serde_json::json!([listed]));
    refuse("eth_getLogs", Some(40));
    tokio::time::advance(Duration::from_millis(500)).await;
    let listed =
        serde_json::json!({ "method": "eth_getLogs", "ends_in_ms": 39_500, "reason": "named" });
    assert_eq!(paused(), serde_json::json!([listed]));
    tokio::time::advance(Duration::from_secs(40)).await;
    assert_eq!(paused(), serde_json::json!([]));
}

/// Families of a text in the exposition format: type, and samples by name and labels.
#[derive(Default)]
struct Family {
    kind: String,
    has_help: bool,
    samples: BTreeMap<String, f64>,
}

fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut present = String::new();
    let body = text.strip_suffix("# EOF\n").expect("ends as the format asks");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name) = (words.next().expect("a word"), words.next().expect("a name"));
            let rest = words.next().unwrap_or_default();
            present = name.to_owned();
            let family = families.entry(present.clone()).or_default();
            assert!(family.samples.is_empty(), "{name} is described after its samples");
            match what {
                "HELP" => {
                    assert!(!family.has_help && !rest.is_empty(), "{line}");
                    family.has_help = true;
                }
                "TYPE" => {
                    assert!(family.kind.is_empty(), "{name} has two types");
                    family.kind = rest.to_owned();
                }
                "UNIT" => assert!(name.ends_with(rest), "{line}"),
                other => panic!("{other}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample");
        let name = series.split('{').next().expect("a name");
        assert!(name.starts_with(&present), "{line} stands under {present}");
        let suffix = &name[present.len()..];
        let family = families.get_mut(&present).expect("described before");
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{present} is a {other}"),
        };
        assert!(allowed.contains(&suffix), "{line} in a {}", family.kind);
        assert!(series.matches('"').count() % 2 == 0, "{line}");
        let value = value.parse().expect("a number");
        assert!(family.samples.insert(series.to_owned(), value).is_none(), "{series} twice");
    }
    families
}

#[tokio::test(start_paused = true)]
async fn metrics_are_well_formed() {
    let stage = busy_stage().await;
    let text = stage.metrics();
    let families = parse(&text);
    for (name, family) in &families {
        assert!(family.has_help && !family.kind.is_empty(), "{name} lacks HELP or TYPE");
        assert!(name.starts_with("wellhead_"), "{name}");
    }
    let names: BTreeSet<&str> = families.keys().map(String::as_str).collect();
    for name in [
        "wellhead_calls",
        "wellhead_call_duration_seconds",
        "wellhead_attempts",
        "wellhead_attempt_duration_seconds",
        "wellhead_upstream_head_block",
        "wellhead_upstream_lag_blocks",
        "wellhead_upstream_in_flight",
        "wellhead_upstream_condition",
        "wellhead_self_calls",
        "wellhead_self_credits",
        "wellhead_cache_calls",
        "wellhead_cache_not_kept",
        "wellhead_cache_bytes",
    ] {
        assert!(names.contains(name), "{name} of {names:?}");
    }
    let value = |family: &str, series: &str| {
        let samples = &families[family].samples;
        *samples.get(series).unwrap_or_else(|| panic!("{series} of {:?}", samples.keys()))
    };
    let calls = |method: &str, outcome: &str| {
        value(
            "wellhead_calls",
            &format!(
                r#"wellhead_calls_total{{chain="ethereum",method="{method}",outcome="{outcome}"}}"#
            ),
        )
    };
    assert_eq!(calls("eth_call", "answered"), 1.0);
    assert_eq!(calls("eth_call", "upstream_error"), 1.0);
    assert_eq!(calls("eth_subscribe", "refused"), 1.0);
    assert_eq!(calls("*", "answered"), 1.0, "a client's own word is no label");
    assert!(!text.contains("made_up"));
    let attempts = r#"wellhead_attempts_total{chain="ethereum",upstream="a",verdict="fault"}"#;
    assert_eq!(value("wellhead_attempts", attempts), 1.0);
    let head = r#"wellhead_upstream_head_block{chain="ethereum",upstream="a"}"#;
    assert_eq!(value("wellhead_upstream_head_block", head), 100.0);
    let condition =
        r#"wellhead_upstream_condition{chain="gnosis",upstream="a",condition="unverified"}"#;
    assert_eq!(value("wellhead_upstream_condition", condition), 1.0);
    let found = r#"wellhead_cache_calls_total{chain="ethereum",found="miss"}"#;
    assert!(value("wellhead_cache_calls", found) >= 1.0);
    let live = r#"wellhead_cache_not_kept_total{reason="live"}"#;
    assert!(value("wellhead_cache_not_kept", live) >= 1.0, "an unknown method");
    // Buckets only grow, and the last is the count.
    for (name, family) in families.iter().filter(|(_, family)| family.kind == "histogram") {
        let count: f64 =
            family.samples.iter().filter(|(it, _)| it.contains("_count")).map(|it| it.1).sum();
        let infinite: f64 =
            family.samples.iter().filter(|(it, _)| it.contains("le=\"+Inf\"")).map(|it| it.1).sum();
        assert_eq!(count, infinite, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_of_an_unused_proxy_are_well_formed() {
    let stage = Stage::new(vec![Plan { verified: false, ..Plan::default() }]);
    for (name, family) in parse(&stage.metrics()) {
        assert!(family.has_help && !family.kind.is_empty(), "{name} lacks HELP or TYPE");
    }
}

/// Lines of `/metrics` for one chain with this many upstreams that took no call.
fn lines_of_idle(upstreams: u8) -> usize {
    let stage = Stage::new(vec![Plan { upstreams: upstreams.into(), ..Plan::default() }]);
    (0..upstreams).for_each(|place| stage.show_head(place, 100));
    stage.metrics().lines().count()
}

#[tokio::test(start_paused = true)]
async fn an_upstream_without_traffic_adds_few_lines() {
    let (few, many) = (lines_of_idle(2), lines_of_idle(22));
    // Its head, lag, condition, calls in flight and how many may be, credits, the credits of
    // our own calls, and whether it is astray.
    assert_eq!(many - few, 20 * 8, "{few} lines for 2 upstreams, {many} for 22");
}
