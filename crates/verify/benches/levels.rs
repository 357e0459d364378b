//! What verifying costs, by level: microseconds an answer, and nanoseconds a byte.
//!
//! `cargo bench -p wellhead-verify` prints the median and the best of many rounds; it
//! asserts nothing but that the answers are sound. The answers are of the simulated chain.

#![allow(clippy::print_stdout, reason = "a bench prints what it found")]

#[path = "../../jsonrpc/benches/support/rounds.rs"]
mod rounds;

use std::time::Duration;

use serde_json::{Value, json};
use wellhead_eth::{ChainId, MethodTable};
use wellhead_sim::{SimNode, World, WorldConfig};
use wellhead_verify::{
    AnswerFinding, HeaderFacts, KnownFacts, Level, Rules, sender_of_raw, verify,
};

use rounds::Rounds;

const ROUNDS: usize = 25;
/// A round lasts about this long, and at least one call.
const ROUND: Duration = Duration::from_millis(20);

fn main() {
    let config =
        WorldConfig { txs_per_block: 210, gas_limit: 120_000_000, ..WorldConfig::seeded(3) };
    let node = SimNode::new("node", World::new(config));
    let ask = |method: &str, params: &Value| {
        node.ask(method, Some(params)).expect("the simulated node answers").to_string()
    };
    let number = "0x9";
    let block = ask("eth_getBlockByNumber", &json!([number, true]));
    let header = HeaderFacts::read(block.as_bytes()).expect("a block has a header");
    let parsed: Value = serde_json::from_str(&block).expect("the block is JSON");
    let count = parsed["transactions"].as_array().map_or(0, Vec::len);
    println!("the block has {count} transactions");
    let hash = &parsed["transactions"][0]["hash"];
    let range = json!([{"fromBlock": "0x9", "toBlock": "0x9"}]);
    for (what, method, params) in [
        ("a header", "eth_getHeaderByNumber", json!([number])),
        ("a block with hashes", "eth_getBlockByNumber", json!([number, false])),
        ("a block with transactions", "eth_getBlockByNumber", json!([number, true])),
        ("its receipts", "eth_getBlockReceipts", json!([number])),
        ("its logs", "eth_getLogs", range),
        ("a receipt", "eth_getTransactionReceipt", json!([hash])),
        ("a transaction", "eth_getTransactionByHash", json!([hash])),
        ("a number", "eth_blockNumber", json!([])),
    ] {
        let result = ask(method, &params);
        let params = params.to_string();
        for level in [Level::Cheap, Level::Full] {
            let known = KnownFacts {
                chain_id: Some(ChainId(1337)),
                rules: Rules::Ethereum,
                header: Some(&header).filter(|_| method == "eth_getBlockReceipts"),
                ..KnownFacts::default()
            };
            let row = MethodTable::standard().row(method);
            let run = || verify(level, row, Some(params.as_bytes()), result.as_bytes(), &known);
            assert_eq!(run(), AnswerFinding::Sound, "{what}");
            measure(&format!("{what}, {level}"), result.len(), || {
                std::hint::black_box(run());
            });
        }
    }
    let raw = ask("eth_getRawTransactionByHash", &json!([hash]));
    let raw: String = serde_json::from_str(&raw).expect("raw bytes are a string");
    let raw = wellhead_eth::hex::decode(&raw).expect("raw bytes are hex");
    measure("the sender of raw bytes", raw.len(), || {
        std::hint::black_box(sender_of_raw(&raw));
    });
}

fn measure(what: &str, bytes: usize, run: impl Fn()) {
    let Rounds { best, median } = Rounds::of(ROUNDS, ROUND, run);
    let [median, best] = [median, best].map(|nanos| Duration::from_nanos(nanos as u64));
    let per_byte = best.as_nanos() as f64 / bytes as f64;
    println!(
        "{what:<36} {bytes:>8} B  median {median:>9.1?}  best {best:>9.1?}  {per_byte:>6.2} ns/B"
    );
}
