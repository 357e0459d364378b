//! What a node answers, method by method, against the world's own truth.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]
#![allow(clippy::needless_pass_by_value, reason = "`json!` at the call reads best by value")]

use std::sync::Arc;

use alloy_primitives::{Address, B256, Bytes, U256};
use serde_json::{Value, json};
use wellhead_sim::rpc::{History, RpcError};
use wellhead_sim::world::abi::{self, selector};
use wellhead_sim::world::block::SimBlock;
use wellhead_sim::world::contract::CLOSED_REASON;
use wellhead_sim::world::{Fee, Standpoint, Tx, TxBody};
use wellhead_sim::{SimNode, World, WorldConfig};

struct Bench {
    world: Arc<World>,
    node: Arc<SimNode>,
}

impl Bench {
    fn new() -> Self {
        Self::with(WorldConfig::seeded(7))
    }

    fn with(config: WorldConfig) -> Self {
        let world = World::new(config);
        let node = SimNode::new("node", Arc::clone(&world));
        Self { world, node }
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        self.node.ask(method, Some(&params)).unwrap_or_else(|error| panic!("{method}: {error:?}"))
    }

    fn refused(&self, method: &str, params: Value) -> RpcError {
        self.node.ask(method, Some(&params)).unwrap_err()
    }

    fn check_refused(&self, method: &str, params: Value, code: i64, words: &str) {
        let error = self.refused(method, params);
        assert_eq!((error.code, error.message.as_str()), (code, words), "{method}");
    }

    fn block(&self, number: u64) -> Arc<SimBlock> {
        Arc::clone(self.world.chain().canonical(number).unwrap())
    }

    fn call(&self, to: Address, input: Vec<u8>) -> Result<Bytes, RpcError> {
        let object = json!({"to": to, "input": Bytes::from(input)});
        self.node
            .ask("eth_call", Some(&json!([object, "latest"])))
            .map(|value| serde_json::from_value(value).unwrap())
    }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

fn transfer(world: &World, wallet: usize, nonce: u64) -> Tx {
    let fee = Fee::Legacy { gas_price: 100_000_000_000 };
    let (chain_id, to) = (world.config().chain_id, Address::repeat_byte(0xaa));
    TxBody::transfer(chain_id, nonce, fee, to, U256::from(1000)).sign(&world.wallets()[wallet])
}

#[test]
fn heights_and_tags() {
    let config = WorldConfig {
        history_blocks: 20,
        safe_distance: 4,
        finalized_distance: 8,
        ..WorldConfig::seeded(7)
    };
    let bench = Bench::with(config);
    let check = |tag: &str, expected: u64| {
        let block = bench.ask("eth_getBlockByNumber", json!([tag, false]));
        assert_eq!(number(&block["number"]), expected, "{tag}");
    };
    assert_eq!(bench.ask("eth_blockNumber", json!([])), json!("0x14"));
    check("latest", 20);
    check("safe", 16);
    check("finalized", 12);
    check("earliest", 0);
    check("0x7", 7);
    check("pending", 21);
    assert_eq!(bench.ask("eth_getBlockByNumber", json!(["0x15", false])), Value::Null);
}

#[test]
fn a_block_shows_the_header_that_was_hashed() {
    let bench = Bench::new();
    let block = bench.block(9);
    let shown = bench.ask("eth_getBlockByNumber", json!(["0x9", true]));
    assert_eq!(shown["hash"], json!(block.hash));
    assert_eq!(shown["parentHash"], json!(block.header.parent_hash));
    assert_eq!(shown["receiptsRoot"], json!(block.header.receipts_root));
    assert_eq!(shown["logsBloom"], json!(block.header.logs_bloom));
    assert_eq!(number(&shown["baseFeePerGas"]), block.base_fee());
    assert_eq!(number(&shown["size"]), block.body.as_ref().unwrap().size);
    let txs = shown["transactions"].as_array().unwrap();
    assert_eq!(txs.len(), block.body.as_ref().unwrap().txs.len());
    assert_eq!(shown["withdrawals"].as_array().unwrap().len(), 4);
    assert_eq!(bench.ask("eth_getBlockByHash", json!([block.hash, true])), shown);
    for (index, tx) in txs.iter().enumerate() {
        assert_eq!(bench.ask("eth_getTransactionByHash", json!([tx["hash"]])), *tx);
        let by_index =
            bench.ask("eth_getTransactionByBlockNumberAndIndex", json!(["0x9", hex(index as u64)]));
        assert_eq!(by_index, *tx);
        let raw = bench.ask("eth_getRawTransactionByHash", json!([tx["hash"]]));
        let raw: Bytes = serde_json::from_value(raw).unwrap();
        assert_eq!(json!(Tx::decode(&raw).unwrap().from), tx["from"]);
    }
}

#[test]
fn receipts_agree_with_each_other() {
    let bench = Bench::new();
    for height in 1..=16 {
        let all = bench.ask("eth_getBlockReceipts", json!([hex(height)]));
        let mut next_log = 0;
        for receipt in all.as_array().unwrap() {
            let one = bench.ask("eth_getTransactionReceipt", json!([receipt["transactionHash"]]));
            assert_eq!(one, *receipt);
            for log in receipt["logs"].as_array().unwrap() {
                assert_eq!(number(&log["logIndex"]), next_log);
                assert_eq!(log["transactionHash"], receipt["transactionHash"]);
                next_log += 1;
            }
        }
    }
}

#[test]
fn a_balance_is_that_of_the_block_asked_for() {
    let bench = Bench::new();
    let account = bench.world.known().accounts[10];
    let mut seen = Vec::new();
    for height in 0..=16 {
        let truth = bench.block(height).state.as_ref().unwrap().balance(account);
        let shown = bench.ask("eth_getBalance", json!([account, hex(height)]));
        assert_eq!(shown, json!(format!("{truth:#x}")));
        let by_hash = json!([account, {"blockHash": bench.block(height).hash}]);
        assert_eq!(bench.ask("eth_getBalance", by_hash), shown);
        seen.push(truth);
    }
    seen.dedup();
    assert!(seen.len() > 1, "the account's balance never changed");
}

#[test]
fn the_coin_answers_as_an_erc20_does() {
    let bench = Bench::new();
    let coin = &bench.world.contracts().coins[0];
    let owner = bench.world.known().accounts[9];
    let head = bench.world.head();
    let truth = coin.balance(head.state.as_ref().unwrap(), owner);
    let input = abi::call(selector::BALANCE_OF, &[abi::address_word(owner)]);
    assert_eq!(bench.call(coin.address, input).unwrap().to_vec(), abi::word(truth).to_vec());
    let stored =
        bench.ask("eth_getStorageAt", json!([coin.address, coin.balance_slot(owner), "latest"]));
    assert_eq!(stored, json!(abi::word(truth)));
    let decimals = bench.call(coin.address, abi::call(selector::DECIMALS, &[])).unwrap();
    assert_eq!(decimals.to_vec(), abi::word(U256::from(18)).to_vec());
    let symbol = bench.call(coin.address, abi::call(selector::SYMBOL, &[])).unwrap();
    assert_eq!(symbol.to_vec(), abi::string("ARTS"));
    assert_eq!(bench.call(Address::repeat_byte(9), vec![1]).unwrap(), Bytes::new());
    let supply = bench.call(coin.address, abi::call(selector::TOTAL_SUPPLY, &[])).unwrap();
    let slot = bench.ask("eth_getStorageAt", json!([coin.address, "0x2", "latest"]));
    assert_eq!(json!(supply), slot);
}

#[test]
fn no_coin_is_made_or_lost() {
    let bench = Bench::new();
    bench.world.reorg(3).unwrap();
    for coin in &bench.world.contracts().coins {
        let total = |block: &SimBlock| {
            let state = block.state.as_ref().unwrap();
            let mut owners = bench.world.known().accounts;
            owners.push(bench.world.contracts().pair);
            owners.iter().map(|owner| coin.balance(state, *owner)).sum::<U256>()
        };
        let start = total(&bench.block(0));
        assert!(start > U256::ZERO);
        assert_eq!(total(&bench.world.head()), start);
    }
}

#[test]
fn reverts_carry_code_3_and_the_reason() {
    let bench = Bench::new();
    let error = bench.call(bench.world.contracts().closed, vec![1, 2, 3, 4]).unwrap_err();
    assert_eq!(error.code, 3);
    assert_eq!(error.message, format!("execution reverted: {CLOSED_REASON}"));
    let data = error.data.unwrap();
    assert!(data.as_str().unwrap().starts_with("0x08c379a0"), "{data}");
    let unknown = bench.call(bench.world.contracts().coins[0].address, vec![0; 4]).unwrap_err();
    assert_eq!((unknown.message.as_str(), unknown.data), ("execution reverted", Some(json!("0x"))));
    let object = json!({"to": bench.world.contracts().closed, "data": "0x01020304"});
    assert_eq!(bench.refused("eth_estimateGas", json!([object])).code, 3);
}

#[test]
fn an_estimate_is_what_is_used() {
    let bench = Bench::new();
    let from = bench.world.wallets()[0].address();
    let to = Address::repeat_byte(0xaa);
    let plain = bench.ask("eth_estimateGas", json!([{"from": from, "to": to, "value": "0x3e8"}]));
    assert_eq!(number(&plain), 21_000);
    let tx = transfer(&bench.world, 0, 0);
    bench.ask("eth_sendRawTransaction", json!([tx.raw]));
    bench.world.mine();
    let receipt = bench.ask("eth_getTransactionReceipt", json!([tx.hash]));
    assert_eq!(number(&receipt["gasUsed"]), 21_000);
    assert_eq!(receipt["status"], json!("0x1"));
}

#[test]
fn a_sent_transaction_can_be_followed() {
    let bench = Bench::new();
    let tx = transfer(&bench.world, 3, 0);
    let nonce = |tag: &str| number(&bench.ask("eth_getTransactionCount", json!([tx.from, tag])));
    assert_eq!(bench.ask("eth_sendRawTransaction", json!([tx.raw])), json!(tx.hash));
    assert_eq!(bench.refused("eth_sendRawTransaction", json!([tx.raw])).message, "already known");
    assert_eq!((nonce("latest"), nonce("pending")), (0, 1));
    assert_eq!(bench.ask("txpool_status", json!([])), json!({"pending": "0x1", "queued": "0x0"}));
    let waiting = bench.ask("eth_getTransactionByHash", json!([tx.hash]));
    assert_eq!(waiting["blockHash"], Value::Null);
    assert_eq!(bench.ask("eth_getTransactionReceipt", json!([tx.hash])), Value::Null);
    bench.world.mine();
    assert_eq!((nonce("latest"), nonce("pending")), (1, 1));
    let mined = bench.ask("eth_getTransactionByHash", json!([tx.hash]));
    assert_eq!(mined["blockNumber"], json!("0x11"));
    assert_eq!(
        bench.refused("eth_sendRawTransaction", json!([tx.raw])).message,
        "nonce too low: next nonce 1, tx nonce 0"
    );
}

/// Every log of the canonical chain, the slow way.
fn all_logs(bench: &Bench) -> Vec<(u64, Value)> {
    let head = bench.world.head().number();
    (0..=head)
        .flat_map(|height| {
            let receipts = bench.ask("eth_getBlockReceipts", json!([hex(height)]));
            let receipts = receipts.as_array().unwrap().clone();
            receipts.into_iter().flat_map(move |receipt| {
                let logs = receipt["logs"].as_array().unwrap().clone();
                logs.into_iter().map(move |log| (height, log))
            })
        })
        .collect()
}

#[test]
fn get_logs_finds_what_brute_force_finds() {
    let bench = Bench::new();
    bench.world.reorg(2).unwrap();
    let all = all_logs(&bench);
    let coins = &bench.world.contracts().coins;
    let (coin, pair) = (json!(coins[0].address), json!(bench.world.contracts().pair));
    let receiver = json!(abi::address_word(bench.world.known().accounts[12]));
    let (moved, swap) = (json!(abi::TRANSFER), json!(abi::SWAP));
    let topic = |log: &Value, index: usize| log["topics"].get(index).cloned();
    let check = |criteria: Value, low: u64, high: u64, wanted: &dyn Fn(&Value) -> bool| {
        let mut criteria = criteria;
        criteria["fromBlock"] = json!(hex(low));
        criteria["toBlock"] = json!(hex(high));
        let found = bench.ask("eth_getLogs", json!([criteria]));
        let expected: Vec<Value> = all
            .iter()
            .filter(|(height, log)| (low..=high).contains(height) && wanted(log))
            .map(|(_, log)| log.clone())
            .collect();
        assert_eq!(found, Value::Array(expected.clone()), "{criteria}");
        expected.len()
    };
    let mut total = 0;
    for (low, high) in [(0, 17), (5, 9), (17, 17)] {
        total += check(json!({}), low, high, &|_| true);
        total += check(json!({"address": coin}), low, high, &|log| log["address"] == coin);
        total += check(json!({"address": [coin, pair]}), low, high, &|log| {
            log["address"] == coin || log["address"] == pair
        });
        total += check(json!({"topics": [moved]}), low, high, &|log| {
            topic(log, 0).as_ref() == Some(&moved)
        });
        total += check(json!({"topics": [[moved, swap]]}), low, high, &|log| {
            [Some(&moved), Some(&swap)].contains(&topic(log, 0).as_ref())
        });
        total += check(json!({"topics": [null, receiver]}), low, high, &|log| {
            topic(log, 1).as_ref() == Some(&receiver)
        });
        total +=
            check(json!({"address": coin, "topics": [moved, null, receiver]}), low, high, &|log| {
                log["address"] == coin
                    && topic(log, 0).as_ref() == Some(&moved)
                    && topic(log, 2).as_ref() == Some(&receiver)
            });
        check(json!({"address": Address::repeat_byte(1)}), low, high, &|_| false);
    }
    assert!(total > 100, "only {total} logs were compared");
    let block = bench.block(6);
    let by_hash = bench.ask("eth_getLogs", json!([{"blockHash": block.hash}]));
    let expected: Vec<_> =
        all.iter().filter(|(at, _)| *at == 6).map(|(_, log)| log.clone()).collect();
    assert_eq!(by_hash, Value::Array(expected));
}

#[test]
fn bad_log_ranges_are_refused() {
    let bench = Bench::new();
    let check = |criteria: Value, code: i64, words: &str| {
        bench.check_refused("eth_getLogs", json!([criteria]), code, words);
    };
    check(json!({"fromBlock": "0x5", "toBlock": "0x4"}), -32602, "invalid block range params");
    check(json!({"blockHash": B256::repeat_byte(1)}), -32000, "unknown block");
    check(json!({"topics": [null, null, null, null, null]}), -32000, "exceed max topics");
    check(
        json!({"blockHash": B256::ZERO, "fromBlock": "0x1"}),
        -32602,
        "invalid argument 0: cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other",
    );
    let beyond = json!([{"fromBlock": "0x5", "toBlock": "0xffff"}]);
    assert!(!bench.ask("eth_getLogs", beyond).as_array().unwrap().is_empty());
    bench.node.turn(|dials| {
        dials.facts.log_range_max = Some(10);
        dials.facts.log_results_max = 20;
    });
    check(json!({"fromBlock": "0x0", "toBlock": "0xa"}), -32000, "exceed maximum block range: 10");
    let error = bench.refused("eth_getLogs", json!([{"fromBlock": "0x7", "toBlock": "0x10"}]));
    assert_eq!(error.code, -32005);
    assert!(error.message.starts_with("query returned more than 20 results."), "{error:?}");
}

#[test]
fn what_is_pruned_is_refused_in_geths_words() {
    let bench = Bench::new();
    bench.node.turn(|dials| {
        dials.facts.history = History { state_blocks: Some(4), body_blocks: Some(8) };
    });
    let account = bench.world.known().accounts[0];
    bench.ask("eth_getBalance", json!([account, "0xd"]));
    let error = bench.refused("eth_getBalance", json!([account, "0xc"]));
    assert_eq!(error.code, -32000);
    assert!(error.message.starts_with("missing trie node "), "{error:?}");
    bench.ask("eth_getBlockByNumber", json!(["0x9", true]));
    for (method, params) in [
        ("eth_getBlockByNumber", json!(["0x8", true])),
        ("eth_getBlockReceipts", json!(["0x8"])),
        ("eth_getLogs", json!([{"fromBlock": "0x8", "toBlock": "0x9"}])),
    ] {
        bench.check_refused(method, params, 4444, "pruned history unavailable");
    }
    let old = bench.block(8).body.as_ref().unwrap().txs[0].hash;
    assert_eq!(bench.ask("eth_getTransactionReceipt", json!([old])), Value::Null);
}

#[test]
fn refusals_have_geths_codes_and_words() {
    let bench = Bench::new();
    let check = |method: &str, params: Value, code: i64, words: &str| {
        bench.check_refused(method, params, code, words);
    };
    let account = json!(Address::ZERO);
    check("eth_foo", json!([]), -32601, "the method eth_foo does not exist/is not available");
    check(
        "eth_getProof",
        json!([]),
        -32601,
        "the method eth_getProof does not exist/is not available",
    );
    check(
        "debug_traceTransaction",
        json!([]),
        -32601,
        "the method debug_traceTransaction does not exist/is not available",
    );
    check("eth_getBalance", json!([]), -32602, "missing value for required argument 0");
    check("eth_getBalance", json!({"a": 1}), -32602, "non-array args");
    check("eth_getBalance", json!([account, "0xffff"]), -32000, "header not found");
    check(
        "eth_getBalance",
        json!([account, {"blockHash": B256::ZERO}]),
        -32000,
        "header for hash not found",
    );
    check(
        "eth_getBalance",
        json!([account, "latest", 1]),
        -32602,
        "too many arguments, want at most 2",
    );
    check("eth_getFilterChanges", json!(["0x1"]), -32000, "filter not found");
    check("eth_subscribe", json!(["newHeads"]), -32601, "notifications not supported");
    check("eth_sendTransaction", json!([{}]), -32000, "unknown account");
    check(
        "eth_feeHistory",
        json!(["0x1", "0xffff", []]),
        -32000,
        "request beyond head block: requested 65535, head 16",
    );
}

#[test]
fn a_hash_off_the_canonical_chain_can_be_refused() {
    let bench = Bench::new();
    let old = bench.world.head().hash;
    bench.world.reorg(1).unwrap();
    let account = Address::ZERO;
    bench.ask("eth_getBalance", json!([account, {"blockHash": old}]));
    let strict = json!([account, {"blockHash": old, "requireCanonical": true}]);
    assert_eq!(bench.refused("eth_getBalance", strict).message, "hash is not currently canonical");
}

#[test]
fn fees_follow_the_recent_blocks() {
    let bench = Bench::new();
    let head = bench.world.head();
    let history = bench.ask("eth_feeHistory", json!(["0x4", "latest", [0, 50, 100]]));
    assert_eq!(history["oldestBlock"], json!("0xd"));
    let base_fees = history["baseFeePerGas"].as_array().unwrap();
    assert_eq!(base_fees.len(), 5);
    assert_eq!(number(&base_fees[3]), head.base_fee());
    assert_eq!(number(&base_fees[4]), head.next_base_fee());
    for rewards in history["reward"].as_array().unwrap() {
        let rewards: Vec<u64> = rewards.as_array().unwrap().iter().map(number).collect();
        assert!(rewards.is_sorted() && rewards[0] > 0, "{rewards:?}");
    }
    let tip = number(&bench.ask("eth_maxPriorityFeePerGas", json!([])));
    assert_eq!(number(&bench.ask("eth_gasPrice", json!([]))), head.base_fee() + tip);
}

#[test]
fn filters_tell_what_is_new_and_what_is_undone() {
    let bench = Bench::new();
    let blocks = bench.ask("eth_newBlockFilter", json!([]));
    let logs = bench.ask("eth_newFilter", json!([{"topics": [abi::TRANSFER]}]));
    let pending = bench.ask("eth_newPendingTransactionFilter", json!([]));
    assert_eq!(bench.ask("eth_getFilterChanges", json!([blocks])), json!([]));
    let one = bench.world.mine();
    let two = bench.world.mine();
    let changes = bench.ask("eth_getFilterChanges", json!([blocks]));
    assert_eq!(changes, json!([one.hash, two.hash]));
    assert_eq!(bench.ask("eth_getFilterChanges", json!([blocks])), json!([]));
    let found = bench.ask("eth_getFilterChanges", json!([logs]));
    let range = json!([{"fromBlock": "0x11", "toBlock": "0x12", "topics": [abi::TRANSFER]}]);
    assert_eq!(found, bench.ask("eth_getLogs", range));

    let reorg = bench.world.reorg(1).unwrap();
    assert_eq!(bench.ask("eth_getFilterChanges", json!([blocks])), json!(reorg.adopted));
    let undone = bench.ask("eth_getFilterChanges", json!([logs]));
    let removed = |log: &&Value| log["removed"] == json!(true);
    let gone: Vec<&Value> = undone.as_array().unwrap().iter().filter(removed).collect();
    assert!(!gone.is_empty() && gone.iter().all(|log| log["blockHash"] == json!(two.hash)));

    let tx = transfer(&bench.world, 0, 0);
    bench.ask("eth_sendRawTransaction", json!([tx.raw]));
    let waiting = bench.ask("eth_getFilterChanges", json!([pending]));
    assert!(waiting.as_array().unwrap().contains(&json!(tx.hash)));
    assert_eq!(bench.ask("eth_uninstallFilter", json!([blocks])), json!(true));
    assert_eq!(bench.ask("eth_uninstallFilter", json!([blocks])), json!(false));
    assert_eq!(bench.refused("eth_getFilterChanges", json!([blocks])).message, "filter not found");
}

#[test]
fn a_filter_lives_on_one_node_alone() {
    let bench = Bench::new();
    let other = SimNode::new("other", Arc::clone(&bench.world));
    let id = bench.ask("eth_newBlockFilter", json!([]));
    let error = other.ask("eth_getFilterChanges", Some(&json!([id]))).unwrap_err();
    assert_eq!(error.message, "filter not found");
    assert_ne!(other.ask("eth_newBlockFilter", None).unwrap(), id);
}

#[test]
fn state_overrides_are_applied() {
    let bench = Bench::new();
    let coin = &bench.world.contracts().coins[1];
    let owner = Address::repeat_byte(0x77);
    let input = Bytes::from(abi::call(selector::BALANCE_OF, &[abi::address_word(owner)]));
    let word = abi::word(U256::from(55));
    let slot = coin.balance_slot(owner).to_string();
    let overrides = json!({coin.address.to_string(): {"stateDiff": {slot: word}}});
    let shown =
        bench.ask("eth_call", json!([{"to": coin.address, "input": input}, "latest", overrides]));
    assert_eq!(shown, json!(word));
}

#[test]
fn logs_are_hidden_only_where_it_was_asked_for() {
    let bench = Bench::new();
    let (honest, params) =
        (SimNode::new("honest", Arc::clone(&bench.world)), json!([{"fromBlock": "0x0"}]));
    bench.node.turn(|dials| dials.facts.hides_logs = true);
    assert_eq!(bench.ask("eth_getLogs", params.clone()), json!([]));
    assert_ne!(honest.ask("eth_getLogs", Some(&params)).unwrap(), json!([]));
}

#[test]
fn lag_hides_the_newest_blocks_and_their_transactions() {
    let bench = Bench::new();
    bench.node.turn(|dials| dials.lag_blocks = 2);
    assert_eq!(bench.ask("eth_blockNumber", json!([])), json!("0xe"));
    assert_eq!(bench.ask("eth_getBlockByNumber", json!(["0xf", false])), Value::Null);
    let newest = bench.world.head();
    assert_eq!(bench.ask("eth_getBlockByHash", json!([newest.hash, false])), Value::Null);
    let tx = newest.body.as_ref().unwrap().txs[0].hash;
    assert_eq!(bench.ask("eth_getTransactionReceipt", json!([tx])), Value::Null);
    assert_eq!(
        bench.refused("eth_getBalance", json!([Address::ZERO, "0xf"])).message,
        "header not found"
    );
    bench.node.turn(|dials| dials.lag_blocks = 0);
    assert!(bench.ask("eth_getTransactionReceipt", json!([tx]))["status"].is_string());
}

#[test]
fn a_stuck_node_stays_on_the_branch_it_saw() {
    let bench = Bench::new();
    bench.node.freeze();
    let old = bench.world.head();
    bench.world.reorg(2).unwrap();
    bench.world.mine();
    assert_eq!(
        bench.ask("eth_getBlockByNumber", json!(["latest", false]))["hash"],
        json!(old.hash)
    );
    let chain = bench.world.chain();
    let orphan = chain.view(Standpoint::At(old.hash)).at(15).unwrap();
    drop(chain);
    assert_eq!(
        bench.ask("eth_getBlockByNumber", json!(["0xf", false]))["hash"],
        json!(orphan.hash)
    );
    bench.node.turn(|dials| dials.stuck_at = None);
    assert_eq!(bench.ask("eth_blockNumber", json!([])), json!(hex(bench.world.head().number())));
}

#[test]
fn a_node_can_say_what_is_not_so_of_itself() {
    let bench = Bench::new();
    assert_eq!(bench.ask("eth_syncing", json!([])), json!(false));
    assert_eq!(bench.ask("eth_chainId", json!([])), json!("0x539"));
    bench.node.turn(|dials| {
        dials.facts.syncing = true;
        dials.facts.chain_id = 5;
        dials.facts.unsupported = vec!["eth_getLogs".into(), "txpool_*".into()];
    });
    assert_eq!(bench.ask("eth_syncing", json!([]))["currentBlock"], json!("0x10"));
    assert_eq!(bench.ask("net_version", json!([])), json!("5"));
    assert_eq!(bench.refused("eth_getLogs", json!([{}])).code, -32601);
    assert_eq!(bench.refused("txpool_status", json!([])).code, -32601);
}
