//! Calls as clients make them, drawn from a seed.
//!
//! Three kinds of client: a wallet (balances, nonces, fees), a dapp (many
//! `eth_call`s at the head) and an indexer (blocks, receipts and logs, in
//! order). The stream knows only what [`KnownWorld`] tells; it never asks the world.

use alloy_primitives::{Address, B256, U256};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::world::KnownWorld;
use crate::world::abi::{self, selector};

/// One call to make.
#[derive(Debug, Clone, PartialEq)]
pub struct TrafficCall {
    /// The method.
    pub method: &'static str,
    /// Its parameters, a JSON array.
    pub params: Value,
}

impl TrafficCall {
    /// The call as a body with this id.
    pub fn body(&self, id: u64) -> Vec<u8> {
        json!({"jsonrpc": "2.0", "id": id, "method": self.method, "params": self.params})
            .to_string()
            .into_bytes()
    }
}

/// An endless stream of calls.
#[derive(Debug)]
pub struct Traffic {
    rng: SmallRng,
    known: KnownWorld,
    /// Where the indexer is.
    cursor: u64,
}

impl Traffic {
    /// The stream of this seed.
    pub fn new(seed: u64, known: KnownWorld) -> Self {
        let cursor = known.head.saturating_sub(32);
        Self { rng: SmallRng::seed_from_u64(seed), known, cursor }
    }

    /// Tells what is new in the world.
    pub fn learn(&mut self, known: KnownWorld) {
        self.known = known;
    }

    fn wallet(&mut self) -> TrafficCall {
        let account = self.account();
        match self.rng.random_range(0..100) {
            0..=24 => call("eth_getBalance", json!([account, "latest"])),
            25..=34 => call("eth_getTransactionCount", json!([account, "pending"])),
            35..=49 => call("eth_blockNumber", json!([])),
            50..=54 => call("eth_chainId", json!([])),
            55..=59 => call("eth_gasPrice", json!([])),
            60..=64 => call("eth_maxPriorityFeePerGas", json!([])),
            65..=69 => call("eth_feeHistory", json!(["0x5", "latest", [25, 50, 75]])),
            70..=74 => {
                let other = self.account();
                let object = json!({"from": account, "to": other, "value": "0x38d7ea4c68000"});
                call("eth_estimateGas", json!([object]))
            }
            75..=89 => call("eth_getTransactionReceipt", json!([self.tx()])),
            90..=96 => call("eth_getTransactionByHash", json!([self.tx()])),
            // What a user waits for while it is in no block yet.
            _ => call(
                "eth_getTransactionReceipt",
                json!([B256::from(self.rng.random::<[u8; 32]>())]),
            ),
        }
    }

    fn dapp(&mut self) -> TrafficCall {
        let coin = self.coin();
        match self.rng.random_range(0..100) {
            0..=44 => {
                let owner = abi::address_word(self.account());
                eth_call(coin, abi::call(selector::BALANCE_OF, &[owner]))
            }
            45..=64 => eth_call(self.known.pair, abi::call(selector::GET_RESERVES, &[])),
            65..=69 => eth_call(coin, abi::call(selector::SYMBOL, &[])),
            70..=74 => eth_call(coin, abi::call(selector::TOTAL_SUPPLY, &[])),
            // A quoter that reverts is daily bread, not a failure.
            75..=77 => eth_call(self.known.closed, vec![1, 2, 3, 4]),
            78..=82 => {
                let words = [abi::address_word(self.account()), abi::word(U256::from(1000))];
                let input = alloy_primitives::Bytes::from(abi::call(selector::TRANSFER, &words));
                let object = json!({"from": self.account(), "to": coin, "input": input});
                call("eth_estimateGas", json!([object]))
            }
            83..=91 => {
                let from = self.known.head.saturating_sub(self.rng.random_range(1..8));
                let range = json!({
                    "fromBlock": hex(from), "toBlock": "latest",
                    "address": coin, "topics": [abi::TRANSFER],
                });
                call("eth_getLogs", json!([range]))
            }
            92..=96 => call("eth_getBlockByNumber", json!(["latest", false])),
            97..=98 => call("eth_getCode", json!([coin, "latest"])),
            _ => call("eth_getStorageAt", json!([coin, "0x2", "latest"])),
        }
    }

    fn indexer(&mut self) -> TrafficCall {
        let at = self.cursor.min(self.known.head);
        match self.rng.random_range(0..100) {
            0..=29 => {
                // One step on, until the head is reached; then once more from the past.
                self.cursor = if at >= self.known.head { at.saturating_sub(48) } else { at + 1 };
                call("eth_getBlockByNumber", json!([hex(at), true]))
            }
            30..=54 => call("eth_getBlockReceipts", json!([hex(at)])),
            55..=74 => {
                let range = json!({"fromBlock": hex(at.saturating_sub(16)), "toBlock": hex(at)});
                call("eth_getLogs", json!([range]))
            }
            75..=89 => call("eth_getBlockByHash", json!([self.block(), true])),
            _ => call("eth_getBlockByNumber", json!(["finalized", false])),
        }
    }

    fn account(&mut self) -> Address {
        pick(&mut self.rng, &self.known.accounts).unwrap_or_default()
    }

    fn coin(&mut self) -> Address {
        pick(&mut self.rng, &self.known.coins).unwrap_or_default()
    }

    fn tx(&mut self) -> B256 {
        pick(&mut self.rng, &self.known.txs).unwrap_or_default()
    }

    fn block(&mut self) -> B256 {
        pick(&mut self.rng, &self.known.blocks).map(|(_, hash)| hash).unwrap_or_default()
    }
}

impl Iterator for Traffic {
    type Item = TrafficCall;

    /// Never ends.
    fn next(&mut self) -> Option<TrafficCall> {
        Some(match self.rng.random_range(0..100_u32) {
            0..=34 => self.wallet(),
            35..=84 => self.dapp(),
            _ => self.indexer(),
        })
    }
}

fn call(method: &'static str, params: Value) -> TrafficCall {
    TrafficCall { method, params }
}

fn eth_call(to: Address, input: Vec<u8>) -> TrafficCall {
    let input = alloy_primitives::Bytes::from(input);
    call("eth_call", json!([{"to": to, "input": input}, "latest"]))
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

fn pick<T: Copy>(rng: &mut SmallRng, items: &[T]) -> Option<T> {
    (!items.is_empty()).then(|| items[rng.random_range(0..items.len())])
}
