//! What a chain was seen to contain, and the calls that ask for it.
//!
//! Answers of all targets are taken in, so that what one of them hides or makes up is asked of
//! the others as well. Calls are drawn by kinds in turn, each kind in an order that the seed
//! decides: where a chain is small enough, everything is asked.
//!
//! It can be written as words and read again, for a run that is cut and gone on with: answers are
//! not kept.

use std::collections::{BTreeMap, BTreeSet};

use rand::seq::SliceRandom as _;
use rand::{Rng, RngCore};
use serde_json::Value;

use super::{is_hex, logs_of};
use crate::work::WorkCall;

/// Transactions of one block that are looked at.
const TRANSACTIONS_MAX: usize = 40;
/// Logs of one block, likewise.
const LOGS_MAX: usize = 60;
/// Calls that read a contract, with parameters for which an address is put.
const SELECTORS: [&str; 5] = [
    // name(), symbol(), decimals(), totalSupply() of ERC-20.
    "0x06fdde03",
    "0x95d89b41",
    "0x313ce567",
    "0x18160ddd",
    // balanceOf(address)
    "0x70a08231",
];
/// Slots that are read of a contract.
const SLOTS: u64 = 4;

/// See the module. All of it is sorted, so that the same chain gives the same calls.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Material {
    /// By number: what their hashes are said to be.
    blocks: BTreeMap<u64, BTreeSet<String>>,
    /// By hash: block and place.
    transactions: BTreeMap<String, (u64, u64)>,
    accounts: BTreeSet<String>,
    contracts: BTreeSet<String>,
    /// Block, contract and first topic.
    logs: BTreeSet<(u64, String, Option<String>)>,
}

impl Material {
    /// A block with all of its transactions, as `eth_getBlockByNumber` tells it.
    pub(super) fn take_block(&mut self, block: &Value) {
        let Some(number) = block.get("number").and_then(super::quantity) else { return };
        let hashes = self.blocks.entry(number).or_default();
        hashes.extend(text(block, "hash", 66));
        self.accounts.extend(text(block, "miner", 42));
        let list = block.get("transactions").and_then(Value::as_array);
        for transaction in list.into_iter().flatten().take(TRANSACTIONS_MAX) {
            let Some(hash) = text(transaction, "hash", 66) else { continue };
            let place = transaction.get("transactionIndex").and_then(super::quantity);
            self.transactions.insert(hash, (number, place.unwrap_or(0)));
            self.accounts.extend(text(transaction, "from", 42));
            let Some(to) = text(transaction, "to", 42) else { continue };
            let is_call = transaction.get("input").and_then(Value::as_str) != Some("0x");
            if is_call {
                self.contracts.insert(to.clone());
            }
            self.accounts.insert(to);
        }
    }

    /// A list of logs, as `eth_getLogs` tells it.
    pub(super) fn take_logs(&mut self, logs: &Value) {
        for log in logs.as_array().into_iter().flatten().take(LOGS_MAX) {
            let number = log.get("blockNumber").and_then(super::quantity);
            let (Some(number), Some(address)) = (number, text(log, "address", 42)) else {
                continue;
            };
            let topic = log.get("topics").and_then(|topics| topics.get(0)?.as_str());
            let topic = topic.and_then(|topic| hex(topic, 66));
            self.contracts.insert(address.clone());
            self.logs.insert((number, address, topic));
        }
    }

    /// Takes in what another one has.
    pub(super) fn add(&mut self, other: Self) {
        for (number, hashes) in other.blocks {
            self.blocks.entry(number).or_default().extend(hashes);
        }
        self.transactions.extend(other.transactions);
        self.accounts.extend(other.accounts);
        self.contracts.extend(other.contracts);
        self.logs.extend(other.logs);
    }

    /// What is not in `known`.
    pub(super) fn without(mut self, known: &Self) -> Self {
        self.blocks.retain(|number, hashes| {
            hashes.retain(|hash| !known.blocks.get(number).is_some_and(|all| all.contains(hash)));
            !hashes.is_empty() || !known.blocks.contains_key(number)
        });
        self.transactions.retain(|hash, place| known.transactions.get(hash) != Some(place));
        self.accounts.retain(|account| !known.accounts.contains(account));
        self.contracts.retain(|contract| !known.contracts.contains(contract));
        self.logs.retain(|log| !known.logs.contains(log));
        self
    }

    /// As words with a blank between two: `block:5:0x..`, `tx:0x..:5:0` with block and place,
    /// `account:0x..`, `contract:0x..`, `log:5:0x..:0x..` with block, contract and first topic.
    pub(super) fn words(&self) -> String {
        let mut words = Vec::new();
        for (number, hashes) in &self.blocks {
            if hashes.is_empty() {
                words.push(format!("block:{number}"));
            }
            words.extend(hashes.iter().map(|hash| format!("block:{number}:{hash}")));
        }
        let transactions = self.transactions.iter();
        words.extend(
            transactions.map(|(hash, (block, place))| format!("tx:{hash}:{block}:{place}")),
        );
        words.extend(self.accounts.iter().map(|account| format!("account:{account}")));
        words.extend(self.contracts.iter().map(|contract| format!("contract:{contract}")));
        for (number, contract, topic) in &self.logs {
            let topic = topic.as_ref().map_or(String::new(), |topic| format!(":{topic}"));
            words.push(format!("log:{number}:{contract}{topic}"));
        }
        words.join(" ")
    }

    /// Takes in what [`words`](Self::words) has written. What is no such word is left out.
    pub(super) fn take_words(&mut self, words: &str) {
        for word in words.split_whitespace() {
            self.take_word(&word.split(':').collect::<Vec<_>>());
        }
    }

    fn take_word(&mut self, parts: &[&str]) -> Option<()> {
        match parts {
            ["block", number] => {
                self.blocks.entry(number.parse().ok()?).or_default();
            }
            ["block", number, hash] => {
                let hash = hex(hash, 66)?;
                self.blocks.entry(number.parse().ok()?).or_default().insert(hash);
            }
            ["tx", hash, number, place] => {
                let place = (number.parse().ok()?, place.parse().ok()?);
                self.transactions.insert(hex(hash, 66)?, place);
            }
            ["account", account] => {
                self.accounts.insert(hex(account, 42)?);
            }
            ["contract", contract] => {
                self.contracts.insert(hex(contract, 42)?);
            }
            ["log", number, contract] => {
                self.logs.insert((number.parse().ok()?, hex(contract, 42)?, None));
            }
            ["log", number, contract, topic] => {
                let topic = Some(hex(topic, 66)?);
                self.logs.insert((number.parse().ok()?, hex(contract, 42)?, topic));
            }
            _ => return None,
        }
        Some(())
    }

    /// Calls for what is there, at most this many, none of those in `asked`. States are asked for
    /// at the blocks of the material, at `pin` for sure.
    pub(super) fn asks(
        &self,
        pin: u64,
        calls_max: usize,
        asked: &[WorkCall],
        rng: &mut impl Rng,
    ) -> Vec<WorkCall> {
        let mut kinds = self.kinds(pin, rng);
        for kind in &mut kinds {
            kind.retain(|ask| !asked.contains(ask));
            kind.shuffle(rng);
        }
        let mut asks: Vec<WorkCall> = Vec::new();
        while asks.len() < calls_max && kinds.iter().any(|kind| !kind.is_empty()) {
            for kind in &mut kinds {
                if asks.len() < calls_max
                    && let Some(ask) = kind.pop()
                    && !asks.contains(&ask)
                {
                    asks.push(ask);
                }
            }
        }
        asks
    }

    /// Calls by method. The order of the draws from `rng` is part of a seed's meaning.
    fn kinds(&self, pin: u64, rng: &mut impl Rng) -> Vec<Vec<WorkCall>> {
        let mut calls = CallsByMethod::default();
        self.block_calls(&mut calls);
        self.transaction_calls(&mut calls);
        let numbers: Vec<u64> = self.blocks.keys().copied().collect();
        let mut height = |rng: &mut dyn RngCore| match numbers.len() {
            0 => pin,
            // Of two states one is the newest, which each target has.
            _ if rng.random_bool(0.5) => pin,
            many => numbers[rng.random_range(0..many)],
        };
        self.account_calls(&mut calls, rng, &mut height);
        self.contract_calls(&mut calls, rng, &mut height);
        self.log_calls(&mut calls);
        calls.0.into_values().collect()
    }

    fn block_calls(&self, calls: &mut CallsByMethod) {
        for (number, hashes) in &self.blocks {
            calls.add("eth_getBlockByNumber", format!(r#"["0x{number:x}",false]"#));
            calls.add("eth_getBlockReceipts", format!(r#"["0x{number:x}"]"#));
            calls.add("eth_getBlockTransactionCountByNumber", format!(r#"["0x{number:x}"]"#));
            calls.add("eth_feeHistory", format!(r#"["0x3","0x{number:x}",[25,75]]"#));
            for hash in hashes {
                calls.add("eth_getBlockByHash", format!(r#"["{hash}",false]"#));
                calls.add("eth_getBlockTransactionCountByHash", format!(r#"["{hash}"]"#));
                calls.add("eth_getLogs", format!(r#"[{{"blockHash":"{hash}"}}]"#));
            }
        }
    }

    fn transaction_calls(&self, calls: &mut CallsByMethod) {
        for (hash, (number, place)) in &self.transactions {
            calls.add("eth_getTransactionByHash", format!(r#"["{hash}"]"#));
            calls.add("eth_getTransactionReceipt", format!(r#"["{hash}"]"#));
            let method = "eth_getTransactionByBlockNumberAndIndex";
            calls.add(method, format!(r#"["0x{number:x}","0x{place:x}"]"#));
        }
    }

    fn account_calls(
        &self,
        calls: &mut CallsByMethod,
        rng: &mut impl Rng,
        height: &mut dyn FnMut(&mut dyn RngCore) -> u64,
    ) {
        for account in &self.accounts {
            for method in ["eth_getBalance", "eth_getTransactionCount"] {
                calls.add(method, format!(r#"["{account}","0x{:x}"]"#, height(rng)));
            }
            calls.add("eth_getProof", format!(r#"["{account}",[],"0x{:x}"]"#, height(rng)));
        }
    }

    fn contract_calls(
        &self,
        calls: &mut CallsByMethod,
        rng: &mut impl Rng,
        height: &mut dyn FnMut(&mut dyn RngCore) -> u64,
    ) {
        let accounts: Vec<&String> = self.accounts.iter().collect();
        for contract in &self.contracts {
            calls.add("eth_getCode", format!(r#"["{contract}","0x{:x}"]"#, height(rng)));
            for slot in 0..SLOTS {
                let params = format!(r#"["{contract}","0x{slot:x}","0x{:x}"]"#, height(rng));
                calls.add("eth_getStorageAt", params);
            }
            for selector in SELECTORS {
                let holder = match accounts.len() {
                    0 => contract,
                    many => accounts[rng.random_range(0..many)],
                };
                let of = if selector == "0x70a08231" { word(holder) } else { String::new() };
                let call = format!(r#"{{"to":"{contract}","data":"{selector}{of}"}}"#);
                calls.add("eth_call", format!(r#"[{call},"0x{:x}"]"#, height(rng)));
            }
        }
    }

    fn log_calls(&self, calls: &mut CallsByMethod) {
        for (number, address, topic) in &self.logs {
            calls.push(logs_of(number.saturating_sub(3), *number, address, topic.as_deref()));
        }
    }
}

#[derive(Default)]
struct CallsByMethod(BTreeMap<&'static str, Vec<WorkCall>>);

impl CallsByMethod {
    fn add(&mut self, method: &'static str, params: String) {
        self.push(WorkCall { method, params });
    }

    fn push(&mut self, call: WorkCall) {
        self.0.entry(call.method).or_default().push(call);
    }
}

/// An address as a parameter of a contract.
fn word(address: &str) -> String {
    format!("{:0>64}", address.trim_start_matches("0x"))
}

/// A member that is hex of this length. Only such text is put into a call.
fn text(value: &Value, name: &str, length: usize) -> Option<String> {
    hex(value.get(name)?.as_str()?, length)
}

fn hex(text: &str, length: usize) -> Option<String> {
    is_hex(text, length).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;
    use serde_json::json;

    use super::*;

    fn material() -> Material {
        let (hash, account) = (format!("0x{:064x}", 7), format!("0x{:040X}", 0xab));
        let mut material = Material::default();
        material.take_block(&json!({
            "number": "0x5", "hash": hash, "miner": account,
            "transactions": [
                { "hash": hash, "transactionIndex": "0x0", "from": account, "to": account, "input": "0x01" },
                // What is no hash becomes no call.
                { "hash": "0x\"],evil", "from": account },
            ],
        }));
        material
            .take_logs(&json!([{ "blockNumber": "0x5", "address": account, "topics": [hash] }]));
        material
    }

    #[test]
    fn calls_are_valid_drawn_by_the_seed_and_asked_once() {
        let draw = |seed| {
            let mut rng = SmallRng::seed_from_u64(seed);
            material().asks(5, 1_000, &[], &mut rng)
        };
        let asks = draw(1);
        assert_eq!(asks, draw(1));
        assert_ne!(asks, draw(2));
        for (place, ask) in asks.iter().enumerate() {
            let params: Value = serde_json::from_str(&ask.params).expect("valid JSON");
            assert!(params.is_array() && !asks[..place].contains(ask), "{ask:?}");
        }
        let methods: BTreeSet<&str> = asks.iter().map(|ask| ask.method).collect();
        assert_eq!(methods.len(), 16, "{methods:?}");
        assert!(asks.iter().all(|ask| !ask.params.contains("evil")));
    }

    #[test]
    fn what_was_written_is_read_again() {
        let (material, mut again) = (material(), Material::default());
        again.take_words(&material.words());
        assert_eq!(again, material);
        again.take_words("log:5 tx:0x1:2:3 account:0x\"],evil block:x evil");
        assert_eq!(again, material, "what is no such word is left out");
    }

    #[test]
    fn what_is_new_completes_what_was_known() {
        let (all, mut known) = (material(), Material::default());
        known.take_block(&json!({ "number": "0x5" }));
        known.take_block(&json!({ "number": "0x6", "hash": format!("0x{:064x}", 8) }));
        let mut both = known.clone();
        both.add(all.clone());
        let new = all.clone().without(&known);
        assert!(!new.words().contains("block:6") && new != all.clone().without(&all));
        known.add(new);
        assert_eq!(known, both);
        assert_eq!(all.clone().without(&all), Material::default());
    }

    #[test]
    fn every_kind_has_its_turn_and_what_was_asked_is_not_asked_again() {
        let mut rng = SmallRng::seed_from_u64(1);
        let few = material().asks(5, 16, &[], &mut rng);
        let methods: BTreeSet<&str> = few.iter().map(|ask| ask.method).collect();
        assert_eq!((few.len(), methods.len()), (16, 16));
        let rest = material().asks(5, 1_000, &few, &mut SmallRng::seed_from_u64(1));
        assert!(few.iter().all(|ask| !rest.contains(ask)));
    }
}
