//! What is spent of a cap survives a restart and a kill, although the settings name no `state`.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use wellhead_e2e::{Signal, Wellhead, until};
use wellhead_sim::{FakeUpstream, SimNode, World, WorldConfig};

/// The file is written every 10 s.
const BOUND: Duration = Duration::from_secs(40);
const CALLS: u64 = 40;

/// Serves `upstream` for a user whose state is kept under `home`.
async fn serve(upstream: &FakeUpstream, home: &Path) -> Wellhead {
    let chains = format!(
        "  main:\n    id: 7\n    upstreams:\n      - {{ id: a, url: \"{}\", budget: {{ credits_per_day: 1M }} }}\n",
        upstream.url()
    );
    let state = format!("XDG_STATE_HOME={}", home.display());
    // Each call reaches the upstream, and is paid for.
    let settings = "cache: { enabled: false }\n";
    Wellhead::spawn_under(&["env", "-u", "STATE_DIRECTORY", &state], settings, &chains)
        .ready()
        .await
}

/// Credits of today, as `/status` tells them.
async fn spent(wellhead: &Wellhead) -> Option<u64> {
    let reply = wellhead.admin().get("/status").await.ok()?;
    let status: Value = serde_json::from_slice(&reply.body).ok()?;
    status["chains"][0]["upstreams"][0]["credits_today"].as_u64()
}

/// Whether the file holds so many credits of the day.
fn is_written(file: &Path, credits: u64) -> Option<()> {
    let text = std::fs::read_to_string(file).ok()?;
    let rows: Value = serde_json::from_str(text.split_once('\n')?.1).ok()?;
    (rows["spending"][0]["day_credits"].as_u64()? >= credits).then_some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_spent_survives_kills_and_restarts_without_a_setting() {
    let world = World::new(WorldConfig { chain_id: 7, ..WorldConfig::seeded(1) });
    let upstream = FakeUpstream::start(SimNode::new("a", world)).expect("a port");
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("wellhead/wellhead.state");
    let mut known = 0;
    for round in 0..3 {
        let mut wellhead = serve(&upstream, home.path()).await;
        let log = wellhead.process.log();
        assert!(log.contains("wellhead.state"), "one line says where: {log}");
        let begins_at = spent(&wellhead).await.expect("told");
        assert!(begins_at >= known, "round {round} begins at {begins_at}, {known} were written");
        for id in 0..CALLS {
            let call =
                json!({ "jsonrpc": "2.0", "id": id, "method": "eth_gasPrice", "params": [] });
            let reply = wellhead.rpc().post(call.to_string()).await.expect("an answer");
            assert!(reply.json().is_ok_and(|body| body["result"].is_string()), "{reply:?}");
        }
        let total = spent(&wellhead).await.expect("told");
        assert!(total >= known + CALLS, "{total}");
        if round == 1 {
            // An end in order writes at once.
            wellhead.process.signal(Signal::Term);
            assert_eq!(wellhead.process.exit_code(BOUND).await, Some(0));
            assert!(is_written(&file, total).is_some(), "{:?}", std::fs::read_to_string(&file));
        } else {
            // Another process does not write over it, and says so.
            let other = serve(&upstream, home.path()).await;
            let told = until(BOUND, || async {
                other.process.log().contains("another process writes").then_some(())
            });
            assert!(told.await.is_some(), "{}", other.process.log());
            other.process.signal(Signal::Kill);
            drop(other);
            let written = until(BOUND, || async { is_written(&file, total) }).await;
            assert!(
                written.is_some(),
                "within ten seconds and a little: {}",
                wellhead.process.log()
            );
            wellhead.process.signal(Signal::Kill);
            assert_eq!(wellhead.process.exit_code(BOUND).await, Some(137));
        }
        known = total;
    }
}
