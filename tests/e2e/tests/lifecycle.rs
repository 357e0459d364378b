//! Starting, refusing the wrong chain, and stopping without losing a call.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

use std::time::Duration;

use serde_json::json;
use wellhead_e2e::{Upstream, Wellhead, until};

const BOUND: Duration = Duration::from_secs(30);

/// With no upstream that answers it serves no call, says so, and stays up.
#[tokio::test]
async fn nothing_to_serve_from() {
    let dead = format!("http://127.0.0.1:{}", wellhead_e2e::free_port());
    let chains =
        format!("  main:\n    id: 7\n    upstreams:\n      - {{ id: a, url: \"{dead}\" }}\n");
    let mut wellhead = Wellhead::spawn("", &chains);
    let alive = until(BOUND, || async {
        wellhead.admin().get("/livez").await.ok().filter(|reply| reply.status == 200)
    });
    assert!(alive.await.is_some(), "{}", wellhead.process.log());
    assert_eq!(wellhead.admin().get("/readyz").await.unwrap().status, 503);
    let reply = wellhead.rpc().post(
        json!({ "jsonrpc": "2.0", "id": "x", "method": "eth_getBalance", "params": ["0xaa", "latest"] })
            .to_string(),
    );
    let reply = reply.await.unwrap();
    assert_eq!(reply.status, 503, "{reply:?}");
    let body = reply.json().unwrap();
    assert_eq!(body["id"], "x");
    assert!(body["error"]["message"].is_string(), "{body}");
    assert_eq!(wellhead.process.exit_code(Duration::ZERO).await, None);
}

mod with_anvil {
    use tokio::time::Instant;
    use wellhead_e2e::load::Gauge;
    use wellhead_e2e::{Anvil, Fault, FaultProxy, Signal, load};

    use super::*;

    /// How often each is measured: the shortest is what the machine did not disturb.
    const MEASURED: usize = 5;

    /// How long it takes until a call is answered, from the start of the process.
    async fn start_to_first_answer(node: &wellhead_e2e::Node) -> Duration {
        let began = Instant::now();
        let chains = format!(
            "  main:\n    id: 7\n    upstreams:\n      - {{ id: a, url: \"{}\" }}\n",
            node.url()
        );
        let wellhead = Wellhead::spawn("", &chains);
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", "params": [] });
        let call = &call.to_string();
        let answer = until(BOUND, || async {
            let reply = wellhead.rpc().post(call.clone()).await.ok()?;
            reply.json().ok().filter(|reply| reply["result"].is_string())
        });
        assert!(answer.await.is_some(), "{}", wellhead.process.log());
        began.elapsed()
    }

    /// As a multiple of what the program takes to start and say its version, and of what the node
    /// takes for a call, on the same machine at the same time.
    #[tokio::test]
    async fn the_first_answer_comes_soon_after_the_start() {
        const TIMES_MAX: u32 = 50;
        let node = Anvil::start(7).await;
        let (mut served, mut bare, mut direct) = (Duration::MAX, Duration::MAX, Duration::MAX);
        for _ in 0..MEASURED {
            let began = Instant::now();
            let mut program = std::process::Command::new(wellhead_e2e::binary());
            assert!(program.arg("--version").output().unwrap().status.success());
            bare = bare.min(began.elapsed());
            let began = Instant::now();
            node.rpc().result("eth_chainId", json!([])).await.unwrap();
            direct = direct.min(began.elapsed());
            served = served.min(start_to_first_answer(&node).await);
        }
        println!("start to first answer: {served:?}; `--version`: {bare:?}, a call: {direct:?}");
        assert!(served < (bare + direct) * TIMES_MAX, "{served:?}, {bare:?}, {direct:?}");
    }

    #[tokio::test]
    async fn upstream_of_another_chain_is_never_used() {
        let (right, wrong) = (Anvil::start(7).await, Anvil::start(8).await);
        let wellhead = Wellhead::start(
            7,
            &[Upstream::new("wrong", &wrong.url()), Upstream::new("right", &right.url())],
        )
        .await;
        let gauge = Gauge::default();
        load(wellhead.rpc(), &gauge, 4, 400).await;
        let tally = gauge.take();
        let log = wellhead.process.log();
        assert_eq!((tally.answered, tally.failed), (400, 0), "{tally:?}\n{log}");
        // No upstream is asked for what the view or the cache answers.
        let named =
            tally.by_upstream.keys().filter(|name| !matches!(name.as_str(), "view" | "cache"));
        assert_eq!(named.collect::<Vec<_>>(), ["right"]);
        let told = log.lines().any(|line| line.contains("wrong") && line.contains("chain"));
        assert!(told, "nothing in the log about it:\n{log}");
        let status = wellhead.admin().get("/status").await.unwrap();
        assert!(status.text().contains("wrong"), "{status:?}");
    }

    #[tokio::test]
    async fn only_upstreams_of_another_chain() {
        let wrong = Anvil::start(8).await;
        let chains = format!(
            "  main:\n    id: 7\n    upstreams:\n      - {{ id: wrong, url: \"{}\" }}\n",
            wrong.url()
        );
        let wellhead = Wellhead::spawn("", &chains);
        let told = until(BOUND, || async {
            let log = wellhead.process.log();
            log.lines().any(|line| line.contains("wrong") && line.contains("chain")).then_some(())
        });
        assert!(told.await.is_some(), "{}", wellhead.process.log());
        assert_eq!(wellhead.admin().get("/readyz").await.unwrap().status, 503);
        let reply =
            wellhead.rpc().call("eth_getBalance", json!([Anvil::RICH_ADDRESS, "latest"])).await;
        assert!(reply.unwrap().get("error").is_some());
    }

    /// Readiness goes first, the call that is running is answered, and the exit code is 0.
    #[tokio::test]
    async fn drain_loses_no_call() {
        let node = Anvil::start(7).await;
        let proxy = FaultProxy::start(node.port).await;
        let mut wellhead = Wellhead::start(7, &[Upstream::new("a", &proxy.url())]).await;
        proxy.set(Fault::Hold("eth_getBalance"));
        let params = json!([Anvil::RICH_ADDRESS, "latest"]);
        let running = wellhead.rpc().result("eth_getBalance", params);
        let drain = async {
            let held = until(BOUND, || async { (proxy.held() > 0).then_some(()) });
            assert!(held.await.is_some(), "the call did not reach the upstream");
            wellhead.process.signal(Signal::Term);
            let not_ready = until(BOUND, || async {
                let reply = wellhead.admin().get("/readyz").await;
                reply.ok().filter(|reply| reply.status == 503)
            });
            assert!(not_ready.await.is_some(), "still ready:\n{}", wellhead.process.log());
            proxy.set(Fault::None);
        };
        let (balance, ()) = tokio::join!(running, drain);
        assert!(balance.as_ref().is_ok_and(serde_json::Value::is_string), "{balance:?}");
        assert_eq!(wellhead.process.exit_code(BOUND).await, Some(0), "{}", wellhead.process.log());
    }
}
