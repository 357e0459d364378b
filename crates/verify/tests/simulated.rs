//! The simulated chain, which is built by other code, verifies: blocks with withdrawals
//! and many transactions, receipts, logs. And what blooms say of answers without logs.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::sync::Arc;

use serde_json::{Value, json};
use support::{Answer, dev, sound, void};
use wellhead_eth::MethodTable;
use wellhead_sim::{SimNode, World, WorldConfig};
use wellhead_verify::{AnswerFinding, Check, Filter, HeaderFacts, KnownFacts, Level};

struct Bench {
    node: Arc<SimNode>,
}

impl Bench {
    fn new(seed: u64, txs_per_block: u32) -> Self {
        let world = World::new(WorldConfig { txs_per_block, ..WorldConfig::seeded(seed) });
        Self { node: SimNode::new("node", world) }
    }

    fn ask(&self, method: &str, params: &Value) -> Answer {
        let result = self.node.ask(method, Some(params));
        Answer::new(method, params, result.unwrap_or_else(|error| panic!("{method}: {error:?}")))
    }

    fn block(&self, number: u64, whole: bool) -> Answer {
        self.ask("eth_getBlockByNumber", &json!([format!("{number:#x}"), whole]))
    }

    fn headers(&self, numbers: std::ops::RangeInclusive<u64>) -> Vec<HeaderFacts> {
        numbers.map(|number| support::header(&self.block(number, false))).collect()
    }
}

#[test]
fn every_answer_about_every_block() {
    for (seed, txs_per_block) in [(1, 0), (2, 6), (3, 40)] {
        let bench = Bench::new(seed, txs_per_block);
        for number in 0..=16 {
            let block = bench.block(number, true);
            sound(&block, &dev(None));
            sound(&bench.block(number, false), &dev(None));
            let header = support::header(&block);
            let quantity = format!("{number:#x}");
            let receipts = bench.ask("eth_getBlockReceipts", &json!([quantity]));
            sound(&receipts, &dev(Some(&header)));
            let logs = bench.ask("eth_getLogs", &json!([{"blockHash": block.result["hash"]}]));
            sound(&logs, &dev(None));
            if let Some(first) = block.result.pointer("/transactions/0/hash") {
                sound(&bench.ask("eth_getTransactionByHash", &json!([first])), &dev(None));
                sound(&bench.ask("eth_getTransactionReceipt", &json!([first])), &dev(None));
            }
        }
        let range = json!([{"fromBlock": "0x1", "toBlock": "0x10"}]);
        sound(&bench.ask("eth_getLogs", &range), &dev(None));
    }
}

#[test]
fn withdrawals_are_proven() {
    let bench = Bench::new(2, 6);
    let block = bench.block(9, true);
    assert!(!block.result["withdrawals"].as_array().unwrap().is_empty());
    for (member, value) in [("amount", "0x1"), ("index", "0x77"), ("validatorIndex", "0x77")] {
        let forged = block.forged(&format!("/withdrawals/0/{member}"), json!(value));
        void(&forged, &dev(None), Check::WithdrawalsRoot);
    }
    let mut fewer = block;
    fewer.result["withdrawals"] = json!([]);
    void(&fewer, &dev(None), Check::WithdrawalsRoot);
}

fn filter(value: &Value) -> Filter {
    let params = json!([value]).to_string();
    let row = MethodTable::standard().row("eth_getLogs");
    Filter::read(row, Some(params.as_bytes())).unwrap()
}

#[test]
fn a_sieve_says_what_blooms_say_and_how_much_that_is_worth() {
    let bench = Bench::new(2, 6);
    let headers = bench.headers(1..=16);
    let range = json!([{"fromBlock": "0x1", "toBlock": "0x10"}]);
    let log = &bench.ask("eth_getLogs", &range).result[0];
    let unseen = format!("0x{}", "12".repeat(20));
    let check = |wanted: Value, may_fit: bool| {
        let sieve = filter(&wanted).sieve(8).expect("few names");
        let sifted: Vec<_> = headers.iter().map(|it| sieve.sift(&it.logs_bloom.0)).collect();
        assert_eq!(sifted.iter().any(|it| it.may_fit), may_fit, "{wanted}");
        sifted.iter().map(|it| it.chance).fold(0.0, f64::max)
    };
    let one = check(json!({"address": log["address"]}), true);
    let both = check(json!({"address": log["address"], "topics": [log["topics"][0]]}), true);
    let either = check(json!({"address": [unseen, log["address"]]}), true);
    assert!(0.0 < both && both < one && one < either && either < 0.01, "{both} {one} {either}");
    check(json!({"address": unseen}), false);
    check(json!({"topics": [null, [log["topics"][1], log["topics"][0]]]}), true);
    check(json!({"address": [unseen, log["address"]], "topics": log["topics"]}), true);
    let other = format!("0x{}", "12".repeat(32));
    check(json!({"address": log["address"], "topics": [other]}), false);
    assert_eq!(check(json!({}), true), 0.0, "what is in a block is no chance");
    let all = filter(&json!({})).sieve(8).expect("no names");
    assert!(all.sift(&[1; 256]).may_fit && !all.sift(&[0; 256]).may_fit);
    let sieve = filter(&json!({"address": unseen})).sieve(8).expect("one name");
    assert_eq!((sieve.sift(&[255; 256]).may_fit, sieve.sift(&[255; 256]).chance), (true, 1.0));
    let nine: Vec<String> = (1..10).map(|byte| format!("0x{byte:040x}")).collect();
    assert!(filter(&json!({"address": nine})).sieve(8).is_none());
    assert!(
        filter(&json!({"address": vec![unseen; 9]})).sieve(8).is_some(),
        "one name, nine times"
    );
}

/// Whatever happens to a good answer, nothing panics, and a level finds what those below find.
#[test]
fn damaged_answers_are_survived() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    let header = support::header(&support::named("blob block"));
    let answers = support::recorded();
    let mut runner = TestRunner::new(Config::with_cases(1_000));
    let damage =
        proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..5_u8), 1..4);
    let case = (any::<prop::sample::Index>(), damage, any::<bool>());
    runner
        .run(&case, |(which, damage, with_header)| {
            let answer = which.get(&answers);
            let mut text = answer.result.to_string().into_bytes();
            for (at, byte, kind) in damage {
                let at = at.index(text.len());
                match kind {
                    0 => text[at] = byte,
                    1 => text[at] = b"\"{}[],:0x"[usize::from(byte) % 9],
                    2 => text.truncate(at.max(1)),
                    3 => drop(text.drain(at..(at + usize::from(byte)).min(text.len() - 1).max(at))),
                    _ => text.insert(at, byte),
                }
            }
            let known = dev(with_header.then_some(&header));
            let cheap = answer.find_raw(Level::Cheap, &known, &text);
            let full = answer.find_raw(Level::Full, &known, &text);
            if matches!(cheap, AnswerFinding::Void { .. }) {
                prop_assert!(matches!(full, AnswerFinding::Void { .. }), "{:?} {:?}", cheap, full);
            }
            // Nor does anything when nothing is known, and the text begins anywhere.
            let half = &text[text.len() / 2..];
            let _ = answer.find_raw(Level::Full, &KnownFacts::default(), half);
            Ok(())
        })
        .unwrap();
}
