//! What clients ask: calls drawn by chance, from what the client itself has learnt.

use alloy_primitives::{Address, B256, Bytes, U256, hex, keccak256};
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use wellhead_sim::World;
use wellhead_sim::world::abi::{self, selector};
use wellhead_sim::world::{AccountKey, Fee, KnownWorld, TxBody};

use crate::evidence::{Ask, Item};

/// Hashes that a client remembers.
const REMEMBERED_MAX: usize = 16;
/// And so many reads.
const ASKED_MAX: usize = 4;
/// A client asks for heights so far below what it has seen.
const DEPTH_MAX: u64 = 6;
/// A gas price that every block takes.
pub(crate) const GAS_PRICE: u128 = 100_000_000_000;

/// One client's knowledge and chance.
#[derive(Debug)]
pub struct Asker {
    /// Its chance.
    pub rng: SmallRng,
    /// Makes texts that occur once in a scenario.
    name: usize,
    made: u64,
    known: KnownWorld,
    chain_id: u64,
    /// The highest block that an answer showed.
    seen: u64,
    hashes: Vec<String>,
    txs: Vec<String>,
    /// The next nonce of its wallet.
    nonce: u64,
    /// The last transaction, to be sent again.
    sent: Option<Item>,
    /// Where answers are kept, a chance of its own to ask for the same again.
    again: Option<SmallRng>,
    /// The last reads that others may make too.
    asked: Vec<Item>,
}

impl Asker {
    /// Client number `name` of `world`, which knows its accounts and nothing newer than
    /// the history.
    pub fn new(rng: SmallRng, name: usize, world: &World) -> Self {
        let known = world.known();
        Self {
            rng,
            name,
            made: 0,
            seen: world.config().history_blocks,
            chain_id: world.config().chain_id,
            known,
            hashes: Vec::new(),
            txs: Vec::new(),
            nonce: 0,
            sent: None,
            again: None,
            asked: Vec::new(),
        }
    }

    /// Often asks for the same again.
    #[must_use]
    pub fn asking_again(self, rng: SmallRng) -> Self {
        Self { again: Some(rng), ..self }
    }

    fn unique(&mut self) -> u64 {
        self.made += 1;
        (self.name as u64) << 32 | self.made
    }

    /// An id as clients make them up: no two parsers agree on some of these numbers.
    fn id(&mut self) -> String {
        let number = self.unique();
        match self.rng.random_range(0..10) {
            0 => format!("\"{number}\""),
            1 => format!(r#""a\u0062 \"{number}\" \\ é""#),
            2 => format!("98765432109876543210987654321{number}"),
            3 => format!("-{number}"),
            4 => format!("{number}.50"),
            5 => format!("{number}e3"),
            6 => "null".to_owned(),
            _ => number.to_string(),
        }
    }

    fn item(&mut self, ask: Ask, method: &str, params: &Value) -> Item {
        let id = Some(self.id());
        Item { id, ask, method: method.to_owned(), params: params.to_string() }
    }

    /// A read.
    pub fn read(&mut self) -> Item {
        if let Some(again) = &mut self.again
            && !self.asked.is_empty()
            && again.random_ratio(1, 2)
        {
            let item = self.asked[again.random_range(0..self.asked.len())].clone();
            return Item { id: Some(self.id()), ..item };
        }
        let item = self.new_read();
        let is_anybodys = matches!(item.ask, Ask::Read | Ask::Pinned(_));
        if self.again.is_some() && is_anybodys && item.method != "web3_sha3" {
            if self.asked.len() >= ASKED_MAX {
                self.asked.remove(0);
            }
            self.asked.push(item.clone());
        }
        item
    }

    fn new_read(&mut self) -> Item {
        let height = self.seen.saturating_sub(self.rng.random_range(0..=DEPTH_MAX)).max(1);
        let at = format!("{height:#x}");
        let account = self.account();
        let coin = self.known.coins[0];
        let owner = abi::call(selector::BALANCE_OF, &[abi::address_word(account)]);
        let owner = Bytes::from(owner);
        match self.rng.random_range(0..100) {
            // No other call asks for this, so its answer cannot be that of another one.
            0..=24 => {
                let data = format!("0x{:016x}", self.unique());
                self.item(Ask::Read, "web3_sha3", &json!([data]))
            }
            25..=39 => self.item(Ask::Height, "eth_blockNumber", &json!([])),
            40..=49 => self.item(Ask::Read, "eth_getBalance", &json!([account, "latest"])),
            50..=57 => self.item(Ask::Pinned(height), "eth_getBalance", &json!([account, at])),
            58..=65 => {
                let whole = self.rng.random_bool(0.5);
                self.item(Ask::Pinned(height), "eth_getBlockByNumber", &json!([at, whole]))
            }
            66..=71 => self.item(Ask::Read, "eth_getBlockByNumber", &json!(["latest", false])),
            72..=77 => {
                let call = json!({"to": coin, "input": owner});
                self.item(Ask::Pinned(height), "eth_call", &json!([call, at]))
            }
            78..=82 => {
                let call = json!({"to": self.known.closed, "input": "0x01020304"});
                self.item(Ask::Read, "eth_call", &json!([call, "latest"]))
            }
            83..=88 => {
                let from = format!("{:#x}", height.saturating_sub(3));
                let span = json!({"fromBlock": from, "toBlock": at});
                self.item(Ask::Read, "eth_getLogs", &json!([span]))
            }
            89..=93 => match pick(&mut self.rng, &self.hashes) {
                Some(hash) => self.item(Ask::Read, "eth_getBlockByHash", &json!([hash, true])),
                None => self.item(Ask::Height, "eth_blockNumber", &json!([])),
            },
            94..=96 => match pick(&mut self.rng, &self.txs) {
                Some(hash) => self.item(Ask::Read, "eth_getTransactionByHash", &json!([hash])),
                None => self.item(Ask::Read, "eth_gasPrice", &json!([])),
            },
            97 | 98 => {
                let expected = format!("\"{:#x}\"", self.chain_id);
                self.item(Ask::Local(expected), "eth_chainId", &json!([]))
            }
            _ => self.item(Ask::Refused(-32601), "eth_subscribe", &json!(["newHeads"])),
        }
    }

    /// A search over all blocks.
    pub fn wide_search(&mut self) -> Item {
        let last = format!("{:#x}", self.seen);
        self.item(Ask::Read, "eth_getLogs", &json!([{"fromBlock": "0x1", "toBlock": last}]))
    }

    /// An answer that is long.
    pub fn large_read(&mut self) -> Item {
        let height = self.seen.saturating_sub(self.rng.random_range(0..=DEPTH_MAX)).max(1);
        let at = format!("{height:#x}");
        match self.rng.random_range(0..3) {
            0 => self.item(Ask::Pinned(height), "eth_getBlockByNumber", &json!([at, true])),
            1 => self.item(Ask::Read, "eth_getBlockReceipts", &json!([at])),
            _ => {
                let span = json!({"fromBlock": "0x1", "toBlock": at});
                self.item(Ask::Read, "eth_getLogs", &json!([span]))
            }
        }
    }

    /// A write that must not run twice.
    pub fn write(&mut self) -> Item {
        let mark = format!("0x{:016x}", self.unique());
        let method = match self.rng.random_range(0..3) {
            0 => "eth_sendTransaction",
            1 => "eth_sendPrivateTransaction",
            // Nothing is known of it, so nothing is assumed.
            _ => "acme_transferEverything",
        };
        self.item(Ask::Write, method, &json!([{"data": mark}]))
    }

    /// A signed transaction: the next one, or the last one again.
    pub fn transaction(&mut self, key: &AccountKey) -> Item {
        if let Some(sent) = &self.sent
            && self.rng.random_ratio(1, 3)
        {
            let again = sent.clone();
            return Item { id: Some(self.id()), ..again };
        }
        let to = self.account();
        let (fee, value) = (Fee::Legacy { gas_price: GAS_PRICE }, U256::from(self.unique()));
        let body = TxBody::transfer(self.chain_id, self.nonce, fee, to, value);
        self.nonce += 1;
        let tx = body.sign(key);
        let raw = hex::encode_prefixed(&tx.raw);
        self.txs.push(tx.hash.to_string());
        let item = self.item(Ask::Transaction(tx.hash), "eth_sendRawTransaction", &json!([raw]));
        self.sent = Some(item.clone());
        item
    }

    /// Makes a filter.
    pub fn make_filter(&mut self) -> Item {
        self.item(Ask::Filter, "eth_newBlockFilter", &json!([]))
    }

    /// Uses, or ends, a filter.
    pub fn use_filter(&mut self, filter: &str) -> Item {
        let method = match self.rng.random_range(0..5) {
            0 => "eth_uninstallFilter",
            _ => "eth_getFilterChanges",
        };
        self.item(Ask::Filter, method, &json!([filter]))
    }

    /// Something in a batch that is not a call.
    pub fn malformed(&mut self) -> Item {
        let number = self.unique();
        let (text, id) = match self.rng.random_range(0..5) {
            0 => ("1".to_owned(), "null".to_owned()),
            1 => ("[]".to_owned(), "null".to_owned()),
            2 => (format!(r#"{{"id":{number}}}"#), number.to_string()),
            3 => (
                format!(r#"{{"jsonrpc":"1.0","id":"x{number}","method":"eth_blockNumber"}}"#),
                format!("\"x{number}\""),
            ),
            _ => (format!(r#"{{"id":{number},"method":7}}"#), number.to_string()),
        };
        Item { id: Some(id), ask: Ask::Malformed, method: String::new(), params: text }
    }

    /// An item of a batch.
    pub fn batch_item(&mut self) -> Item {
        match self.rng.random_range(0..20) {
            0 => self.malformed(),
            1 => Item { id: None, ..self.read() },
            2 => self.write(),
            _ => self.read(),
        }
    }

    /// What the client learns from a result.
    pub fn learn(&mut self, item: &Item, result: &str) {
        if result.len() > 1 << 16 {
            return;
        }
        let Ok(value) = serde_json::from_str::<Value>(result) else { return };
        let number = match item.method.as_str() {
            "eth_blockNumber" => value.as_str(),
            "eth_getBlockByNumber" => {
                if let Some(hash) = value["hash"].as_str() {
                    remember(&mut self.hashes, hash);
                }
                let first = &value["transactions"][0];
                if let Some(hash) = first.as_str().or_else(|| first["hash"].as_str()) {
                    remember(&mut self.txs, hash);
                }
                value["number"].as_str()
            }
            _ => None,
        };
        let number = number.and_then(|text| text.strip_prefix("0x"));
        if let Some(number) = number.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            self.seen = self.seen.max(number);
        }
    }

    fn account(&mut self) -> Address {
        self.known.accounts[self.rng.random_range(0..self.known.accounts.len())]
    }
}

fn remember(texts: &mut Vec<String>, text: &str) {
    if texts.len() >= REMEMBERED_MAX {
        texts.remove(0);
    }
    texts.push(text.to_owned());
}

fn pick(rng: &mut SmallRng, texts: &[String]) -> Option<String> {
    (!texts.is_empty()).then(|| texts[rng.random_range(0..texts.len())].clone())
}

/// The true answer to a `web3_sha3`, from its params.
pub fn sha3_of(params: &str) -> Option<B256> {
    let params: Value = serde_json::from_str(params).ok()?;
    hex::decode(params.get(0)?.as_str()?).ok().map(keccak256)
}

/// A filter, drawn from the logs that the world has.
pub(crate) fn criteria(world: &World, rng: &mut SmallRng) -> Value {
    let sample = {
        let chain = world.chain();
        let number = rng.random_range(1..=chain.head().number());
        let body = chain.canonical(number).and_then(|block| block.body.as_ref());
        let logs =
            body.iter().flat_map(|body| &body.receipts).flat_map(|receipt| receipt.envelope.logs());
        let logs: Vec<_> = logs.cloned().collect();
        (!logs.is_empty()).then(|| logs[rng.random_range(0..logs.len())].clone())
    };
    let Some(log) = sample else { return json!({}) };
    let other = world.contracts().coins[0].address;
    let address = match rng.random_range(0..6) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!(log.address.to_string().to_lowercase()),
        3 => json!(log.address.to_string().to_uppercase().replacen("0X", "0x", 1)),
        4 => json!([log.address, other]),
        _ => return json!({"topics": topics(log.topics(), rng)}),
    };
    match rng.random() {
        true => json!({"address": address}),
        false => json!({"address": address, "topics": topics(log.topics(), rng)}),
    }
}

fn topics(of_log: &[B256], rng: &mut SmallRng) -> Value {
    let count = rng.random_range(0..=of_log.len());
    let places = of_log[..count].iter().map(|topic| match rng.random_range(0..4) {
        0 => Value::Null,
        1 => json!([topic, B256::repeat_byte(7)]),
        _ => json!(topic),
    });
    Value::Array(places.collect())
}
