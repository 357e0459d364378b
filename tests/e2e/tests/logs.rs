//! The log of a running wellhead as an interface: another filter for a while, and a sample of many requests.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::process::Command;
use wellhead_e2e::{Upstream, Wellhead, binary, until};
use wellhead_sim::{FakeUpstream, SimNode, World, WorldConfig};

const BOUND: Duration = Duration::from_secs(30);

fn upstream() -> FakeUpstream {
    FakeUpstream::start(SimNode::new("node", World::new(WorldConfig::default()))).unwrap()
}

async fn start(more: &str, node: &FakeUpstream) -> Wellhead {
    Wellhead::start_with(more, 1337, &[Upstream::new("node", &node.url())]).await
}

/// `wellhead log` with these arguments: its exit code, and what it printed.
async fn log(wellhead: &Wellhead, arguments: &[&str]) -> (Option<i32>, String) {
    let admin = format!("127.0.0.1:{}", wellhead.admin_port);
    let mut command = Command::new(binary());
    let output = command.args(["log", "--admin", &admin]).args(arguments).output().await.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), text)
}

#[tokio::test]
async fn the_filter_is_another_one_for_a_while() {
    let node = upstream();
    let settings = "log: { level: warn, format: json, requests: true }";
    let wellhead = start(settings, &node).await;
    let call = || wellhead.rpc().result("eth_chainId", json!([]));
    let lines = || wellhead.process.lines_with(r#""message":"request""#);
    assert_eq!(log(&wellhead, &[]).await, (Some(0), "settings  warn\n".to_owned()));
    call().await.unwrap();
    assert_eq!(lines(), 0, "{}", wellhead.process.log());

    let (code, said) = log(&wellhead, &["info", "--for", "2s"]).await;
    assert!(code == Some(0) && said.contains("over it   info, for 0 min "), "{said}");
    call().await.unwrap();
    assert!(until(BOUND, || async { (lines() == 1).then_some(()) }).await.is_some());
    // It ends by itself.
    let is_over = || async { (log(&wellhead, &[]).await.1 == "settings  warn\n").then_some(()) };
    assert!(until(BOUND, is_over).await.is_some());
    call().await.unwrap();
    assert_eq!(lines(), 1, "{}", wellhead.process.log());

    // And at once when it is told so; what is asked for last counts.
    log(&wellhead, &["wellhead::request=info", "--for", "1h"]).await;
    log(&wellhead, &["wellhead::request=info,wellhead_net=debug"]).await;
    let (_, json) = log(&wellhead, &["--json"]).await;
    let told: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(told["over"], "wellhead::request=info,wellhead_net=debug");
    assert!(told["seconds_left"].as_u64().unwrap() <= 600, "{told}");
    let (code, said) = log(&wellhead, &["--reset"]).await;
    assert_eq!((code, said.as_str()), (Some(0), "settings  warn\n"));
    for (wrong, part) in
        [("nonsense=loud", "is no level (off"), ("audit=off", "`audit` is for the settings")]
    {
        let (code, said) = log(&wellhead, &[wrong]).await;
        assert!(code == Some(1) && said.contains(part), "{said}");
    }
    // Each change has its audit line, though the level of the settings is `warn`.
    let audited = wellhead.process.log();
    let audited: Vec<_> = audited.lines().filter(|it| it.contains(r#""target":"audit""#)).collect();
    for (action, outcome, count) in
        [("log.set", "done", 3), ("log.set", "failed", 2), ("log.reset", "done", 1)]
    {
        let parts = [format!(r#""action":"{action}""#), format!(r#""outcome":"{outcome}""#)];
        let found = audited.iter().filter(|it| parts.iter().all(|part| it.contains(part)));
        assert_eq!(found.count(), count, "{action} {outcome}: {audited:#?}");
    }
}

#[tokio::test]
async fn of_many_requests_a_sample_is_logged_and_the_rest_counted() {
    const CALLS: usize = 400;
    let node = upstream();
    let settings =
        "log: { level: info, format: json, requests_per_second: 20, failures_per_second: 5 }";
    let wellhead = start(settings, &node).await;
    for _ in 0..CALLS / 50 {
        let good = (0..40).map(|_| wellhead.rpc().result("eth_chainId", json!([])));
        let bad = (0..10).map(|_| wellhead.rpc().result("no_such_method", json!([])));
        let (good, bad) = tokio::join!(join_all(good), join_all(bad));
        assert!(good.iter().all(Result::is_ok) && bad.iter().all(Result::is_err));
    }
    let metrics = wellhead.admin().get("/metrics").await.unwrap().text();
    let count = |outcome: &str, result: &str| {
        let name = format!(r#"wellhead_log_lines_total{{outcome="{outcome}",result="{result}"}} "#);
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name} in:\n{metrics}")).parse::<usize>().unwrap()
    };
    let (ok, failed) = (count("ok", "written"), count("failed", "written"));
    let (ok_left_out, failed_left_out) = (count("ok", "left_out"), count("failed", "left_out"));
    assert_eq!((ok + ok_left_out, failed + failed_left_out), (CALLS / 5 * 4, CALLS / 5));
    assert!(ok_left_out > 0 && failed_left_out > 0, "{metrics}");
    assert_eq!(wellhead.process.lines_with(r#""message":"request""#), ok + failed);
    // Within a second or two all that was left out is told.
    let told = || {
        let log = wellhead.process.log();
        let lines = log.lines().filter(|line| line.contains("request lines left out"));
        let field = |line: &str, name: &str| {
            let told: Value = serde_json::from_str(line).unwrap();
            told[name].as_u64().unwrap() as usize
        };
        let sum = |(ok, failed), line: &str| {
            (ok + field(line, "left_out_ok"), failed + field(line, "left_out_failed"))
        };
        lines.fold((0, 0), sum)
    };
    let is_told = || async { (told() == (ok_left_out, failed_left_out)).then_some(()) };
    assert!(until(BOUND, is_told).await.is_some(), "{:?}", told());
}
