//! `wellhead analyze` before real nodes, as far as it looks at answers: every lie is found and
//! nothing that is none, and bounds are those that the node has.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::time::Duration;

use serde_json::{Value, json};
use wellhead_e2e::{Geth, Node, Process, Rpc, binary};

/// Far more than a run needs (some seconds), for a machine that is busy.
const BOUND: Duration = Duration::from_secs(180);

/// Deploys what writes a log with the value that it was sent, and the time as its topic: PUSH9
/// (CALLVALUE, PUSH0, MSTORE, TIMESTAMP, PUSH1 32, PUSH0, LOG1, STOP), and returns that.
const LOGGER: &str = "0x68345f524260205fa1005f5260096017f3";

/// A run that is over.
struct Ran {
    verdicts: Vec<Value>,
    /// The factors of each question's cell, by target.
    questions: Vec<(u64, Value)>,
    /// All that was printed and written.
    text: String,
}

impl Ran {
    fn verdict(&self, target: u64) -> &Value {
        let found = self.verdicts.iter().find(|verdict| verdict["target"] == target);
        found.unwrap_or_else(|| panic!("nothing is said of {target}: {:?}", self.verdicts))
    }

    fn of(&self, target: u64) -> impl Iterator<Item = &Value> {
        self.questions.iter().filter(move |(its, _)| *its == target).map(|(_, factors)| factors)
    }
}

async fn agree(urls: &[String], more: &[&str]) -> Ran {
    analyze("agree", urls, more).await
}

async fn analyze(experiment: &str, urls: &[String], more: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut command = vec![binary().display().to_string()];
    let words = ["analyze", experiment, "--yes", "--rate", "500", "--out"];
    command.extend(words.map(str::to_owned));
    command.push(out.display().to_string());
    command.extend(more.iter().map(|word| (*word).to_owned()));
    command.extend(urls.iter().cloned());
    let mut process = Process::start(&command, folder.path().join("log"));
    let code = process.exit_code(BOUND).await;
    let log = process.log();
    assert_eq!(code, Some(0), "{log}");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let records = read("records.jsonl");
    let cell = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let is_question = record["kind"] == "cell" && record["factors"]["ask"].is_string();
        is_question.then(|| (record["target"].as_u64().unwrap(), record["factors"].clone()))
    };
    Ran {
        verdicts: serde_json::from_str(&read("verdicts.json")).unwrap(),
        questions: records.lines().filter_map(cell).collect(),
        text: [log, records, read("report.html"), read("summary.md")].concat(),
    }
}

/// What a chain was made to contain.
struct Story {
    /// The account that was paid.
    paid: String,
    /// Receipts: of three logs, of the payment, of a transaction that failed.
    receipts: Vec<Value>,
}

/// A chain with a contract, logs, a payment, and a transaction that failed; a block each.
async fn story(node: &Node) -> Story {
    let accounts = node.rpc().result("eth_accounts", json!([])).await.unwrap();
    let paid = format!("0x{:040x}", 0xfeed);
    let transact = |more: Value| {
        let mut transaction = json!({
            "from": accounts[0], "gas": "0x40000",
            "maxFeePerGas": "0x174876e800", "maxPriorityFeePerGas": "0x1",
        });
        let more = more.as_object().unwrap().clone();
        transaction.as_object_mut().unwrap().extend(more);
        node.transact(transaction)
    };
    let logger = transact(json!({ "data": LOGGER })).await.unwrap()["contractAddress"].clone();
    let mut receipts = Vec::new();
    for value in ["0x5", "0x6", "0x7"] {
        receipts.push(transact(json!({ "to": logger, "value": value })).await.unwrap());
    }
    receipts.push(transact(json!({ "to": paid, "value": "0x1234" })).await.unwrap());
    receipts.push(transact(json!({ "data": "0xfe" })).await.unwrap());
    let statuses: Vec<&Value> = receipts.iter().map(|receipt| &receipt["status"]).collect();
    assert_eq!(statuses, ["0x1", "0x1", "0x1", "0x1", "0x0"]);
    Story { paid, receipts }
}

mod with_geth {
    use wellhead_e2e::{Fault, FaultProxy, Rewrite};

    use super::*;

    /// Changes what is said of five things, each in answers to some methods only.
    fn lies(story: &Story) -> Rewrite {
        let Story { paid, receipts } = story;
        let (paid, receipts) = (paid.clone(), receipts.clone());
        Rewrite::new(move |call, reply| {
            let method = call["method"].as_str().unwrap_or_default();
            let is_block = method == "eth_getBlockByNumber" || method == "eth_getBlockByHash";
            let result = &mut reply["result"];
            if method == "eth_getBalance" && call["params"][0] == paid.as_str() {
                *result = json!("0x1");
            } else if method == "eth_getLogs"
                && let Some(logs) = result.as_array_mut()
            {
                logs.retain(|log| log["transactionHash"] != receipts[0]["transactionHash"]);
            } else if method == "eth_getTransactionReceipt"
                && result["transactionHash"] == receipts[1]["transactionHash"]
            {
                result["status"] = json!("0x0");
            } else if is_block && result["hash"] == receipts[2]["blockHash"] {
                result["gasLimit"] = json!("0x1");
            } else if is_block && result["hash"] == receipts[3]["blockHash"] {
                result["transactions"] = json!([]);
            }
        })
    }

    /// Whether a node says something else about this question than a proxy before it.
    async fn is_bent(node: &Rpc, proxy: &Rpc, question: &Value, prefix: &str) -> bool {
        let part = |name: &str| question[format!("{prefix}{name}")].as_str().unwrap();
        let params: Value = serde_json::from_str(part("params")).unwrap();
        let truth = node.call(part("method"), params.clone()).await.unwrap();
        let told = proxy.call(part("method"), params).await.unwrap();
        truth["result"] != told["result"]
    }

    #[tokio::test]
    async fn every_lie_is_found_and_nothing_else() {
        let node = Geth::start().await;
        let story = story(&node).await;
        let (higher, lower) = Geth::parted(node).await;
        let liar = FaultProxy::start(lower.port).await;
        liar.set(Fault::Rewritten(lies(&story)));
        let proxy = Rpc::new(liar.port(), "/");
        let urls = [higher.url(), lower.url(), liar.url()];

        // Two honest ones, one of which goes on.
        let ran = agree(&urls[..2], &[]).await;
        for target in 0..2 {
            assert_eq!(ran.verdict(target)["bound"], "not_up_to", "{}", ran.verdict(target));
            let compared = ran.of(target).filter(|it| it["digest"].is_string()).count();
            assert!(compared > 60, "{compared} answers of {}", ran.of(target).count());
        }

        // Three: the liar is in the minority. Two: there is no majority.
        for (urls, liar) in [(&urls[..], 2), (&urls[1..], 1)] {
            let ran = agree(urls, &[]).await;
            let mut found: Vec<String> = Vec::new();
            for question in ran.of(liar) {
                let bent = is_bent(lower.rpc(), &proxy, question, "").await;
                assert_eq!(question["path"].is_string(), bent, "{question}");
                if bent {
                    let path = question["path"].as_str().unwrap();
                    let place = path.find('[').unwrap_or(path.len());
                    found.push(format!(
                        "{} {}",
                        question["method"].as_str().unwrap(),
                        &path[..place]
                    ));
                    let small = question["small_method"].is_string();
                    assert!(!small || is_bent(lower.rpc(), &proxy, question, "small_").await);
                }
            }
            let calls = found.len();
            found.sort();
            found.dedup();
            let planted = [
                "eth_getBalance result",
                "eth_getBlockByHash result.gasLimit",
                "eth_getBlockByHash result.transactions",
                "eth_getBlockByNumber result.gasLimit",
                "eth_getBlockByNumber result.transactions",
                "eth_getLogs result",
                "eth_getTransactionReceipt result.status",
            ];
            assert_eq!(found, planted);
            let accused = ran.verdict(liar);
            assert_eq!(accused["bound"], "found", "{accused}");
            assert_eq!(accused["calls"], calls, "{accused}");
            let outvoted = if urls.len() == 3 { calls } else { 0 };
            assert_eq!(accused["outvoted"], outvoted, "{accused}");
            let expected = if urls.len() == 3 { "not_up_to" } else { "found" };
            for target in 0..liar {
                assert_eq!(ran.verdict(target)["bound"], expected, "{}", ran.verdict(target));
            }
            let line = "do curl -s \"$url\" -H 'content-type: application/json' -d '{";
            assert!(ran.text.contains(line), "a line to see it oneself");
            assert!(!accused.to_string().contains("http://"), "with no URL in it: {accused}");
        }
    }

    /// As another client would write what this one says.
    fn in_other_words() -> Rewrite {
        fn rewrite(value: &mut Value) {
            match value {
                Value::Array(items) => items.iter_mut().for_each(rewrite),
                Value::Object(members) => {
                    for name in ["blockTimestamp", "yParity", "withdrawals", "accessList"] {
                        members.remove(name);
                    }
                    if members.contains_key("stateRoot") {
                        members.insert("totalDifficulty".to_owned(), json!("0x0"));
                    }
                    if members.contains_key("logs") {
                        members.insert("revertReason".to_owned(), json!("0x"));
                    }
                    for part in ["r", "s"] {
                        if let Some(text) = members.get(part).and_then(Value::as_str) {
                            let padded = format!("0x{:0>64}", &text[2..]);
                            members.insert(part.to_owned(), json!(padded));
                        }
                    }
                    members.values_mut().for_each(rewrite);
                }
                Value::String(text) if text.starts_with("0x") => *text = text.to_uppercase(),
                _ => {}
            }
        }
        Rewrite::new(|call, reply| {
            // The greeting and the heights are read as they are.
            let asked = call["method"].as_str().unwrap_or_default();
            if asked.starts_with("eth_get") && call["params"][0] != "finalized" {
                rewrite(&mut reply["result"]);
            }
        })
    }

    #[tokio::test]
    async fn the_bounds_of_a_node_are_found() {
        let node = Geth::start().await;
        story(&node).await;
        let ws = node.ws_url();
        let ran = analyze("reach", &[node.url()], &["--batch-up-to", "1100", "--ws", &ws]).await;
        let found = |what: &str| {
            let of = |name: &str| ran.verdicts.iter().find(|verdict| verdict[name] == what);
            of("what").or_else(|| of("finding")).unwrap_or_else(|| panic!("no {what}"))
        };
        // geth's own default.
        let batch = found("batch");
        assert_eq!((&batch["up_to"], &batch["refused_at"]), (&json!(1_000), &json!(1_001)));
        for what in ["state", "blocks", "logs", "traces", "range"] {
            assert_eq!(found(what)["whole"], true, "a short chain is kept whole: {}", found(what));
        }
        assert_eq!(found("web_socket")["served"], true);
        let missing = found("methods")["missing"].as_array().unwrap();
        let of = |namespace: &str| {
            missing.iter().filter(|name| name.as_str().unwrap().starts_with(namespace)).count()
        };
        // The namespaces that it was started with are whole, those of other clients are not there.
        assert_eq!([of("eth_"), of("net_"), of("web3_"), of("debug_"), of("txpool_")], [0; 5]);
        assert_eq!(missing.len(), of("trace_") + of("erigon_") + of("ots_") + of("parity_"));
        assert!(of("trace_") > 5, "{missing:?}");
    }

    #[tokio::test]
    async fn other_words_are_named_and_are_no_difference() {
        let node = Geth::start().await;
        story(&node).await;
        let other = FaultProxy::start(node.port).await;
        other.set(Fault::Rewritten(in_other_words()));
        let ran = agree(&[node.url(), other.url()], &[]).await;
        for target in 0..2 {
            assert_eq!(ran.verdict(target)["bound"], "not_up_to", "{}", ran.verdict(target));
        }
        let evidence = ran.verdict(1)["evidence"].to_string();
        for member in [
            "blockTimestamp",
            "yParity",
            "withdrawals",
            "accessList",
            "totalDifficulty",
            "revertReason",
        ] {
            assert!(evidence.contains(&format!("no difference: `{member}`")), "{evidence}");
        }
    }

    mod with_anvil {
        use wellhead_e2e::Anvil;

        use super::*;

        /// Two clients of one chain say the same.
        #[tokio::test]
        async fn another_client_with_the_same_chain_agrees() {
            let geth = Geth::start().await;
            let story = story(&geth).await;
            let last = story.receipts.last().unwrap()["blockNumber"].as_str().unwrap();
            let block = u64::from_str_radix(&last[2..], 16).unwrap();
            geth.wait_for_block(block + 1).await;
            // Of the very block at which it forks anvil has no transactions.
            let anvil = Anvil::forked(&geth, block + 1).await;
            let block = block.to_string();
            let ran = agree(&[geth.url(), anvil.url()], &["--block", &block]).await;
            let differing: Vec<&Value> = ran.of(1).filter(|it| it["path"].is_string()).collect();
            assert!(differing.is_empty(), "{differing:#?}");
            for target in 0..2 {
                assert_eq!(ran.verdict(target)["bound"], "not_up_to", "{}", ran.verdict(target));
            }
            let compared = ran.of(1).filter(|it| it["digest"].is_string()).count();
            assert!(compared > 60, "{compared} answers");
        }
    }
}
