//! What comes through wellhead is what the node itself would have said.
//!
//! A chain is prepared with a contract that logs, returns, and fails in every
//! way there is; then each call of a long list is made directly and through
//! wellhead, and result or error must be the same JSON. A call whose answer
//! moves with the head is asked until two direct answers agree around the
//! proxied one. What wellhead does when a node fails is in `faults`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop at what it does not expect"
)]

mod calls;

use std::collections::BTreeSet;
use std::time::Duration;

use calls::{Call, Facts};
use serde_json::{Value, json};
use wellhead_e2e::{Node, Rpc, Upstream, Wellhead, until};

/// Tries for two equal direct answers; heads move once a second.
const TRIES: usize = 200;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
const AT_LEAST: usize = 100;

/// Result or error, without the envelope.
fn outcome(reply: &Value) -> Value {
    match reply.get("error") {
        Some(error) => json!({ "error": error }),
        None => json!({ "result": reply.get("result") }),
    }
}

/// The direct and the proxied answer, of a moment in which the direct one did not change, and both were at one
/// block: a proof changes with each.
async fn both(direct: &Rpc, proxied: &Rpc, call: &Call) -> Result<(Value, Value), String> {
    let ask = async |rpc: &Rpc| {
        let reply = rpc.call(&call.method, call.params.clone()).await;
        reply.map(|reply| outcome(&reply)).map_err(|why| format!("{}: {why}", call.method))
    };
    let height = async |rpc: &Rpc| rpc.result("eth_blockNumber", json!([])).await;
    for _ in 0..TRIES {
        let known = height(proxied).await?;
        let before = ask(direct).await?;
        let through = ask(proxied).await?;
        if before == ask(direct).await? && known == height(direct).await? {
            return Ok((before, through));
        }
        // Between two looks; the loop has a limit.
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("{}: the node's own answer never stands still", call.method))
}

/// Makes each call both ways and names every difference.
async fn compare(node: &Node, wellhead: &Wellhead, calls: &[Call]) {
    let distinct: BTreeSet<String> =
        calls.iter().map(|call| format!("{} {}", call.method, call.params)).collect();
    assert!(distinct.len() >= AT_LEAST, "{} different calls", distinct.len());
    assert_eq!(distinct.len(), calls.len(), "a call is listed twice");

    let mut differences = Vec::new();
    let (mut errors, mut with_data) = (0, 0);
    for call in calls {
        match both(node.rpc(), wellhead.rpc(), call).await {
            Ok((direct, through)) if direct == through => {
                errors += usize::from(direct.get("error").is_some());
                with_data += usize::from(direct.pointer("/error/data").is_some());
            }
            Ok((direct, through)) => differences.push(format!(
                "{} {}\n  direct:  {direct}\n  through: {through}",
                call.method, call.params,
            )),
            Err(why) => differences.push(why),
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} calls differ:\n{}\n{}",
        differences.len(),
        calls.len(),
        differences.join("\n"),
        wellhead.process.log(),
    );
    assert!(errors >= 10 && with_data >= 3, "{errors} errors, {with_data} of them with data");
    println!("{} calls, {errors} errors, {with_data} reverts with data", calls.len());
}

/// Filters are named by the node that keeps them, so they are compared by what they do.
async fn filters(node: &Node, wellhead: &Wellhead) {
    let rpc = wellhead.rpc();
    let filter = rpc.result("eth_newBlockFilter", json!([])).await.unwrap();
    node.wait_for_block(node.head().await.unwrap() + 1).await;
    let changes = until(Duration::from_secs(5), || async {
        let changes = rpc.result("eth_getFilterChanges", json!([filter])).await.unwrap();
        changes.as_array().is_some_and(|changes| !changes.is_empty()).then_some(changes)
    });
    assert!(changes.await.is_some(), "a new block is a change");
    assert_eq!(rpc.result("eth_uninstallFilter", json!([filter])).await.unwrap(), true);
    assert_eq!(rpc.result("eth_uninstallFilter", json!([filter])).await.unwrap(), false);
}

/// Items of every kind in one batch, compared one by one.
async fn batch(node: &Node, wellhead: &Wellhead, facts: &Facts) {
    let batch = json!([
        { "jsonrpc": "2.0", "id": "a", "method": "eth_getBlockByNumber", "params": [facts.block, false] },
        { "jsonrpc": "2.0", "id": 2, "method": "eth_call", "params": [{ "to": facts.contract, "data": "0x01" }, facts.block] },
        { "jsonrpc": "2.0", "id": 3, "method": "eth_getTransactionReceipt", "params": [facts.transaction] },
        { "jsonrpc": "2.0", "method": "eth_chainId", "params": [] },
        { "jsonrpc": "2.0", "id": 4, "method": "eth_noSuchMethod", "params": [] },
    ]);
    let by_id = async |rpc: &Rpc| {
        let replies = rpc.post(batch.to_string()).await.unwrap().json().unwrap();
        let mut replies = replies.as_array().expect("a batch answers a batch").clone();
        replies.sort_by_key(|reply| reply["id"].to_string());
        replies
    };
    let (direct, through) = (by_id(node.rpc()).await, by_id(wellhead.rpc()).await);
    assert_eq!(through.len(), 4, "a notification gets no answer");
    for (direct, through) in direct.iter().zip(&through) {
        assert_eq!(direct["id"], through["id"]);
        assert_eq!(outcome(direct), outcome(through));
    }
}

/// Ids come back byte for byte, whatever a number type would make of them.
async fn ids(wellhead: &Wellhead) {
    let ids = ["1e2", "1.0", "-0", "18446744073709551617", r#""\u0061\"b""#, r#""""#, "null"];
    for id in ids {
        let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_blockNumber"}}"#);
        let reply = wellhead.rpc().post(call).await.unwrap();
        let text = reply.text();
        assert!(text.contains(&format!(r#""id":{id},"#)), "{id}: {text}");
        assert!(text.contains(r#""result":"0x"#), "{id}: {text}");
    }
}

async fn conforms(node: &Node, chain_id: u64, calls: impl Fn(&Facts) -> Vec<Call>) {
    let upstream = Upstream::new("node", &node.url());
    let wellhead = conforms_by(upstream, node, chain_id, calls).await;
    assert_eq!(opened(&wellhead, "ws").await, 0);
}

async fn conforms_by(
    upstream: Upstream,
    node: &Node,
    chain_id: u64,
    calls: impl Fn(&Facts) -> Vec<Call>,
) -> Wellhead {
    let facts = Facts::prepare(node, chain_id).await;
    let wellhead = Wellhead::start(chain_id, &[upstream]).await;
    compare(node, &wellhead, &calls(&facts)).await;
    batch(node, &wellhead, &facts).await;
    filters(node, &wellhead).await;
    ids(&wellhead).await;
    wellhead
}

/// As [`conforms`], while single calls travel over WebSocket, to which no connection was lost.
async fn conforms_over_websocket(node: &Node, chain_id: u64, calls: impl Fn(&Facts) -> Vec<Call>) {
    let fields = format!("ws: \"{}\", calls_over: websocket", node.ws_url());
    let upstream = Upstream::new("node", &node.url()).with(&fields);
    let wellhead = conforms_by(upstream, node, chain_id, calls).await;
    let sockets = opened(&wellhead, "ws").await;
    assert!(sockets > 0, "no WebSocket was opened:\n{}", wellhead.process.log());
    assert_eq!(told(&wellhead, "connections", r#"protocol="ws""#).await, sockets);
    assert_eq!(told(&wellhead, "socket_unclaimed_total", r#"protocol="ws""#).await, 0);
}

/// Connections to upstreams that were opened for this protocol.
async fn opened(wellhead: &Wellhead, protocol: &str) -> u64 {
    told(wellhead, "connections_opened_total", &format!("protocol=\"{protocol}\"")).await
}

/// A number among the metrics of upstreams; 0 where its series has counted nothing yet.
async fn told(wellhead: &Wellhead, name: &str, label: &str) -> u64 {
    let text = wellhead.admin().get("/metrics").await.unwrap().text();
    let family = format!("# TYPE wellhead_upstream_{} ", name.trim_end_matches("_total"));
    assert!(text.contains(&family), "no `{family}`:\n{text}");
    let name = format!("wellhead_upstream_{name}{{");
    let line = text.lines().find(|line| line.starts_with(&name) && line.contains(label));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

mod with_geth {
    use wellhead_e2e::Geth;

    use super::*;

    #[tokio::test]
    async fn answers_are_geth_s() {
        let node = Geth::start().await;
        conforms(&node, Geth::CHAIN_ID, calls::geth).await;
    }

    /// Of geth alone: anvil words what it refuses in another way over WebSocket.
    #[tokio::test]
    async fn answers_over_websocket_are_geth_s() {
        let node = Geth::start().await;
        conforms_over_websocket(&node, Geth::CHAIN_ID, calls::geth).await;
    }

    /// The list is worth what it holds: shown without wellhead in between.
    #[tokio::test]
    async fn calls_are_understood_by_geth() {
        let node = Geth::start().await;
        let facts = Facts::prepare(&node, Geth::CHAIN_ID).await;
        calls::understood(&node, &calls::geth(&facts)).await;
    }
}

mod with_anvil {
    use wellhead_e2e::Anvil;

    use super::*;

    #[tokio::test]
    async fn answers_are_anvil_s() {
        let node = Anvil::start(31337).await;
        conforms(&node, 31337, calls::anvil).await;
    }

    #[tokio::test]
    async fn calls_are_understood_by_anvil() {
        let node = Anvil::start(31337).await;
        let facts = Facts::prepare(&node, 31337).await;
        calls::understood(&node, &calls::anvil(&facts)).await;
    }
}
