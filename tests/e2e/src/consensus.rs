//! Real geths of one chain whose blocks a test makes, as a consensus client would: over the engine API.
//!
//! [`ConsensusDriver::start`] gives any number of geths with one genesis and no peers. Nothing happens on
//! them by itself: the test says which block is made on which parent with which transactions
//! ([`mine`](ConsensusDriver::mine), [`mine_on`](ConsensusDriver::mine_on)), which node holds it
//! ([`import_to`](ConsensusDriver::import_to)), and which head each node has
//! ([`set_head`](ConsensusDriver::set_head)). So a node can lag by any number of blocks, and a reorg of any
//! depth is two calls, or one: [`reorg`](ConsensusDriver::reorg).
//!
//! Blocks are made by one more geth, the builder, which no client should ask: it moves its head to and fro
//! between branches, and the others go to a new branch in one step, as nodes do in a network. Transactions
//! travel from node to node only within blocks: what shall be in the pool of two nodes is sent to
//! both.
//!
//! What it is not: it checks nothing of consensus, and two drivers have different chains.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

use alloy_primitives::{Address, Bytes, U256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::crypto::tls13::OkmBlock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use wellhead_sim::world::{AccountKey, Fee, TxBody};

use crate::free_port;
use crate::node::{Node, READY_MAX, words};
use crate::process::{Process, tool};
use crate::{Anvil, Geth, Rpc, until, wall_clock};

/// Shared by the driver and its geths, which listen to the loopback only.
const JWT_SECRET: [u8; 32] = [0x11; 32];
/// Public: accounts of no other chain follow from it.
const KEYS_SEED: u64 = 0x7e57;
/// The genesis is this much older than the machine's clock, so that blocks a second apart do not run into
/// the future however quickly they are made.
const GENESIS_AGE_S: u64 = 24 * 3600;
/// Seconds from block to block.
const BLOCK_TIME_S: u64 = 1;
/// What fits into one block; the rest of a pool waits for the next one.
const BLOCK_TXS_MAX: usize = 200;
/// 1,000 ether, in wei.
const RICH: &str = "0x3635c9adc5dea00000";
const ZERO_HASH: &str = "0x0000000000000000000000000000000000000000000000000000000000000000";

/// Code of [`ConsensusDriver::LOGGER`]:
/// `storage[0] += 1; emit Transfer(caller, calldata[0..32], calldata[32..64]); return storage[0]`.
pub const LOGGER_CODE: &str = "0x\
    600054600101600055\
    60206020600037\
    60003533\
    7fddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef\
    60206000a3\
    60005460005260206000f3";

/// A block that the driver has made, on whichever branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its hash, as nodes write it.
    pub hash: String,
    /// Its height.
    pub number: u64,
    /// The hash of its parent.
    pub parent: String,
    time: u64,
}

impl Block {
    /// Its height as a quantity: `0x1f`.
    #[must_use]
    pub fn quantity(&self) -> String {
        format!("{:#x}", self.number)
    }
}

/// What a new block holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transactions {
    /// Nothing.
    None,
    /// What waits in the pool of this node and can follow the parent.
    PoolOf(usize),
    /// These signed ones, in this order. One that cannot follow the parent ends the test.
    These(Vec<String>),
}

/// What [`ConsensusDriver::reorg`] did.
#[derive(Debug, Clone)]
pub struct Reorg {
    /// The newest block that both branches have.
    pub fork: Block,
    /// The blocks that the node left, from the oldest.
    pub abandoned: Vec<Block>,
    /// The blocks that it took instead, from the oldest.
    pub branch: Vec<Block>,
}

/// Geths of one chain and the blocks that were made for them.
#[derive(Debug)]
pub struct ConsensusDriver {
    builder: Member,
    members: Vec<Member>,
    genesis: Block,
    sealed: Mutex<HashMap<String, Sealed>>,
    /// Moving the builder's head and making a block on it are two calls.
    building: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Sealed {
    block: Block,
    payload: Value,
    requests: Value,
}

impl ConsensusDriver {
    /// The chain id of every driver's chain.
    pub const CHAIN_ID: u64 = 7357;
    /// A contract of the genesis that counts its calls, logs each as a `Transfer` from the caller with
    /// the first two words of the calldata, and returns the count.
    pub const LOGGER: &str = "0x000000000000000000000000000000000000c0de";
    /// How many accounts of [`Self::key`] are rich.
    pub const KEYS: u32 = 4;

    /// Starts so many nodes, and the builder. All stand at the genesis, in which [`Geth::RICH_KEY`],
    /// [`Anvil::RICH_KEY`] and the first [`Self::KEYS`] of [`Self::key`] have 1,000 ether each.
    pub async fn start(nodes: usize) -> Self {
        Self::start_with(nodes, "").await
    }

    /// As [`Self::start`], of nodes that write the state of each block to the disk, so that one that is killed
    /// comes back with its head.
    pub async fn start_durable(nodes: usize) -> Self {
        Self::start_with(nodes, "--state.scheme hash --gcmode archive").await
    }

    async fn start_with(nodes: usize, options: &'static str) -> Self {
        let genesis = genesis();
        let starting = (0..=nodes).map(|_| tokio::spawn(Member::start(genesis.clone(), options)));
        let mut members = Vec::new();
        for member in starting.collect::<Vec<_>>() {
            members.push(member.await.expect("a geth comes up"));
        }
        let builder = members.pop().expect("one more than was asked for");
        let first = builder.node.rpc().result("eth_getBlockByNumber", json!(["0x0", false])).await;
        let genesis = block_of(&first.expect("every chain has a genesis"), "hash", "number");
        for member in members.iter().chain([&builder]) {
            member.held().insert(genesis.hash.clone());
            *member.head.lock().expect(UNPOISONED) = Some(genesis.clone());
        }
        let (sealed, building) = (Mutex::default(), tokio::sync::Mutex::new(()));
        Self { builder, members, genesis, sealed, building }
    }

    /// One of the nodes, counted from zero.
    #[must_use]
    pub fn node(&self, node: usize) -> &Node {
        &self.members[node].node
    }

    /// The first block, which all nodes hold.
    #[must_use]
    pub fn genesis(&self) -> &Block {
        &self.genesis
    }

    /// The head that this node was last given.
    #[must_use]
    pub fn head(&self, node: usize) -> Block {
        let head = self.members[node].head.lock().expect(UNPOISONED).clone();
        head.expect("set to the genesis when the driver starts")
    }

    /// The block so many before this one on its own branch; the genesis where there are not as many.
    #[must_use]
    pub fn ancestor(&self, block: &Block, blocks: u64) -> Block {
        let sealed = self.sealed.lock().expect(UNPOISONED);
        let mut at = block.clone();
        for _ in 0..blocks.min(block.number) {
            at = sealed.get(&at.parent).map_or_else(|| self.genesis.clone(), |it| it.block.clone());
        }
        at
    }

    /// Makes a block of what waits in the pool of this node on its head, and makes it the head. Other
    /// nodes are told nothing.
    pub async fn mine(&self, node: usize) -> Block {
        let block = self.mine_on(&self.head(node), Transactions::PoolOf(node)).await;
        self.set_head(node, &block).await;
        block
    }

    /// Makes a block on this parent, whatever else stands on it. No node but the builder holds it yet.
    /// No two blocks are equal, as each has a fee recipient of its own.
    pub async fn mine_on(&self, parent: &Block, transactions: Transactions) -> Block {
        let _turn = self.building.lock().await;
        self.builder.fork_choice(parent, None).await;
        let transactions = match transactions {
            Transactions::None => Vec::new(),
            Transactions::These(raw) => raw,
            Transactions::PoolOf(node) => self.waiting(node, parent).await,
        };
        let number = self.sealed.lock().expect(UNPOISONED).len() + 1;
        let attributes = json!({
            "timestamp": format!("{:#x}", parent.time + BLOCK_TIME_S),
            "prevRandao": ZERO_HASH,
            "suggestedFeeRecipient": format!("0xfee{number:037x}"),
            "withdrawals": [],
            "parentBeaconBlockRoot": ZERO_HASH,
        });
        // `engine_getPayload` gives an empty block until a task of geth's has filled it. This one
        // is full at once, and holds what we say.
        let params = json!([parent.hash, attributes, transactions, "0x"]);
        let built = self.builder.node.rpc().result("testing_buildBlockV1", params).await;
        let mut built = built.unwrap_or_else(|why| panic!("no block on {parent:?}: {why}"));
        let payload = built["executionPayload"].take();
        let block = block_of(&payload, "blockHash", "blockNumber");
        let requests = built["executionRequests"].take();
        let sealed = Sealed { block: block.clone(), payload, requests };
        self.builder.new_payload(&sealed).await;
        self.sealed.lock().expect(UNPOISONED).insert(block.hash.clone(), sealed);
        block
    }

    /// Gives a block to a node, with all that it lacks before it. Its head stays where it is.
    pub async fn import_to(&self, node: usize, block: &Block) {
        let member = &self.members[node];
        let mut missing = Vec::new();
        {
            let (sealed, held) = (self.sealed.lock().expect(UNPOISONED), member.held());
            let mut at = &block.hash;
            while !held.contains(at) {
                let found = sealed.get(at).unwrap_or_else(|| panic!("{at} is of another driver"));
                missing.push(found.clone());
                at = &found.block.parent;
            }
        }
        for sealed in missing.iter().rev() {
            member.new_payload(sealed).await;
        }
    }

    /// Makes a block the head of a node, which gets all that it lacks. The block may be on another branch,
    /// and before the present head. `safe` and `finalized` stay as they are.
    pub async fn set_head(&self, node: usize, head: &Block) {
        self.import_to(node, head).await;
        self.members[node].fork_choice(head, None).await;
    }

    /// As [`Self::set_head`], and says which of its ancestors are `safe` and `finalized`. A node does not
    /// go back behind a finalized block.
    pub async fn set_head_and_finality(
        &self,
        node: usize,
        head: &Block,
        safe: &Block,
        finalized: &Block,
    ) {
        self.import_to(node, head).await;
        self.members[node].fork_choice(head, Some((safe, finalized))).await;
    }

    /// Leaves the newest `depth` blocks of a node for a branch of new ones, one for each of `blocks`. The node
    /// holds them all before it goes there, in one step.
    pub async fn reorg(&self, node: usize, depth: u64, blocks: Vec<Transactions>) -> Reorg {
        let head = self.head(node);
        assert!(head.number >= depth, "{} blocks are fewer than {depth}", head.number);
        let fork = self.ancestor(&head, depth);
        let abandoned = (0..depth).rev().map(|back| self.ancestor(&head, back)).collect();
        let (mut parent, mut branch) = (fork.clone(), Vec::new());
        for transactions in blocks {
            parent = self.mine_on(&parent, transactions).await;
            branch.push(parent.clone());
        }
        self.set_head(node, &parent).await;
        Reorg { fork, abandoned, branch }
    }

    /// Kills a node of [`Self::start_durable`] and starts it again. It gets all blocks again with its next head,
    /// as it may have lost the newest.
    pub async fn restart(&mut self, node: usize) {
        let member = &mut self.members[node];
        member.node.restart().await;
        member.listens().await;
        *member.held() = HashSet::from([self.genesis.hash.clone()]);
    }

    /// Asks a node whether its pool holds a transaction for its next block.
    pub async fn ask_waiting(&self, node: usize) -> bool {
        let status = self.node(node).rpc().result("txpool_status", json!([])).await;
        status.expect("the pool is served")["pending"] != "0x0"
    }

    /// One of the accounts that the genesis made rich.
    #[must_use]
    pub fn key(index: u32) -> AccountKey {
        assert!(index < Self::KEYS, "account {index} has nothing");
        AccountKey::derive(KEYS_SEED, index)
    }

    /// A signed transaction: account `index` calls [`Self::LOGGER`], which logs this value.
    #[must_use]
    pub fn log_call(index: u32, nonce: u64, value: u64) -> String {
        let mut input = vec![0; 64];
        input[31] = 0xbb;
        input[56..].copy_from_slice(&value.to_be_bytes());
        let to: Address = Self::LOGGER.parse().expect("an address");
        let fee = Fee::Dynamic { max_fee: 10_000_000_000, max_tip: 1_000_000_000 };
        let body = TxBody::transfer(Self::CHAIN_ID, nonce, fee, to, U256::ZERO);
        let body = TxBody { gas_limit: 100_000, input: Bytes::from(input), ..body };
        body.sign(&Self::key(index)).raw.to_string()
    }

    /// What waits in the pool of a node and can follow this parent: of each sender in a row from its next
    /// nonce there. A pool learns of a new head a moment later than the caller that asks for it, so it may
    /// still hold what the parent's branch has, or miss what an abandoned one had.
    async fn waiting(&self, node: usize, parent: &Block) -> Vec<String> {
        let rpc = self.members[node].node.rpc();
        let content = rpc.result("txpool_content", json!([])).await.expect("the pool is served");
        let senders: BTreeMap<String, BTreeMap<String, Value>> =
            serde_json::from_value(content["pending"].clone()).expect("senders and their nonces");
        let mut waiting = Vec::new();
        for (sender, by_nonce) in senders {
            let params = json!([sender, { "blockHash": parent.hash }]);
            let next = self.builder.node.rpc().result("eth_getTransactionCount", params).await;
            let first = quantity(&next.expect("the builder has the state of every block"));
            for transaction in (first..).map_while(|nonce| by_nonce.get(&nonce.to_string())) {
                let params = json!([transaction["hash"]]);
                let raw = rpc.result("eth_getRawTransactionByHash", params).await;
                let Ok(Value::String(raw)) = raw else { break };
                waiting.push(raw);
            }
        }
        waiting.truncate(BLOCK_TXS_MAX);
        waiting
    }
}

/// Nothing is done under these locks that could panic.
const UNPOISONED: &str = "no holder of this lock panics";

/// One geth and what it was told.
#[derive(Debug)]
struct Member {
    node: Node,
    engine: Rpc,
    engine_port: u16,
    held: Mutex<HashSet<String>>,
    head: Mutex<Option<Block>>,
}

impl Member {
    async fn start(genesis: Value, options: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a chain");
        let (port, ws_port, engine_port) = (free_port(), free_port(), free_port());
        initialise(&folder, &genesis, options).await;
        let namespaces = "eth,net,web3,debug,txpool,testing";
        let at = folder.path().display();
        let command = format!(
            "geth --datadir {at}/chain --networkid {} --syncmode full --ipcdisable --verbosity 2 \
             {options} --http --http.port {port} --http.api {namespaces} \
             --ws --ws.port {ws_port} --ws.api {namespaces} \
             --authrpc.port {engine_port} --authrpc.jwtsecret {at}/jwt \
             --port 0 --nodiscover --maxpeers 0",
            ConsensusDriver::CHAIN_ID,
        );
        let node = Node::start_in(folder, words(&command), port, ws_port).await;
        let engine = Rpc::new(engine_port, "/");
        let member =
            Self { node, engine, engine_port, held: Mutex::default(), head: Mutex::default() };
        member.listens().await;
        member
    }

    /// Waits for the engine API: geth opens it last, when it answers on the other ports already.
    async fn listens(&self) {
        let listens = || async { TcpStream::connect(("127.0.0.1", self.engine_port)).await.ok() };
        if until(READY_MAX, listens).await.is_none() {
            panic!("the engine API does not listen:\n{}", self.node.process.log());
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.held.lock().expect(UNPOISONED)
    }

    /// Gives it a block whose parent it holds.
    async fn new_payload(&self, sealed: &Sealed) {
        let Sealed { block, payload, requests } = sealed;
        let params = json!([payload, [], ZERO_HASH, requests]);
        let status = self.call("engine_newPayloadV4", params).await;
        assert_eq!(status["status"], "VALID", "{block:?}: {status}\n{}", self.node.process.log());
        self.held().insert(block.hash.clone());
    }

    /// Moves its head to a block that it holds, and its `safe` and `finalized`.
    async fn fork_choice(&self, head: &Block, finality: Option<(&Block, &Block)>) {
        // Zeros leave as it is what was said before.
        let (safe, finalized) = finality
            .map_or((ZERO_HASH, ZERO_HASH), |(safe, finalized)| (&safe.hash, &finalized.hash));
        let state = json!({
            "headBlockHash": head.hash,
            "safeBlockHash": safe,
            "finalizedBlockHash": finalized,
        });
        let reply = self.call("engine_forkchoiceUpdatedV3", json!([state, null])).await;
        let status = &reply["payloadStatus"]["status"];
        assert_eq!(status, "VALID", "{head:?}: {reply}\n{}", self.node.process.log());
        *self.head.lock().expect(UNPOISONED) = Some(head.clone());
    }

    /// One call of the engine API, with the token that it asks for.
    async fn call(&self, method: &str, params: Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let bearer = format!("Bearer {}", token(wall_clock().as_secs()));
        let headers = [("content-type", "application/json"), ("authorization", &*bearer)];
        let reply = self.engine.send("POST", "/", &headers, call.to_string().into()).await;
        let reply = reply.and_then(|reply| reply.json());
        let mut reply = reply.unwrap_or_else(|why| panic!("{method}: {why}"));
        assert!(reply.get("error").is_none(), "{method}: {reply}\n{}", self.node.process.log());
        reply["result"].take()
    }
}

/// Writes the first block into the folder of a geth that does not run yet.
async fn initialise(folder: &TempDir, genesis: &Value, options: &str) {
    let at = folder.path();
    std::fs::write(at.join("jwt"), hex(&JWT_SECRET)).expect("the folder is ours");
    std::fs::write(at.join("genesis.json"), genesis.to_string()).expect("the folder is ours");
    let at = at.display();
    let mut command = words(&format!("geth --datadir {at}/chain {options} init {at}/genesis.json"));
    command[0] = tool(&command[0]);
    let mut process = Process::start(&command, folder.path().join("init"));
    assert_eq!(process.exit_code(READY_MAX).await, Some(0), "{}", process.log());
}

/// The genesis of `geth --dev`, which has all forks of this geth and the contracts that they need, with a
/// chain id, accounts and a time of its own.
fn genesis() -> Value {
    let dumped = std::process::Command::new(tool("geth")).args(["--dev", "dumpgenesis"]).output();
    let mut genesis: Value = serde_json::from_slice(&dumped.expect("geth runs").stdout)
        .expect("`geth --dev dumpgenesis` prints a genesis");
    let fields = genesis.as_object_mut().expect("a genesis is an object");
    fields.retain(|_, value| !value.is_null());
    // geth 1.17 names a fork there whose payloads its engine API does not take yet.
    genesis["config"].as_object_mut().expect("an object").remove("bogotaTime");
    genesis["config"]["chainId"] = json!(ConsensusDriver::CHAIN_ID);
    genesis["gasLimit"] = json!("0x1c9c380");
    genesis["timestamp"] = json!(format!("{:#x}", wall_clock().as_secs() - GENESIS_AGE_S));
    let keys = (0..ConsensusDriver::KEYS).map(ConsensusDriver::key);
    let rich = keys.map(|key| key.address().to_string().to_lowercase());
    for address in rich.chain([Geth::RICH_ADDRESS.into(), Anvil::RICH_ADDRESS.into()]) {
        genesis["alloc"][address] = json!({ "balance": RICH });
    }
    genesis["alloc"][ConsensusDriver::LOGGER] = json!({ "balance": "0x0", "code": LOGGER_CODE });
    genesis
}

/// A JSON web token, HS256, as the engine API wants it: good for a minute.
fn token(now_s: u64) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = URL_SAFE_NO_PAD.encode(json!({ "iat": now_s }).to_string());
    let signed = format!("{header}.{claims}");
    // HMAC-SHA256 as rustls has it for its own handshakes.
    let suite = TLS13_CHACHA20_POLY1305_SHA256.tls13().expect("a suite of TLS 1.3");
    let tag = suite.hkdf_provider.hmac_sign(&OkmBlock::new(&JWT_SECRET), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

/// What we keep of a block, from a payload or from a block of the `eth` namespace.
fn block_of(value: &Value, hash: &str, number: &str) -> Block {
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let (number, time) = (quantity(&value[number]), quantity(&value["timestamp"]));
    Block { hash: text(&value[hash]), number, parent: text(&value["parentHash"]), time }
}

fn quantity(value: &Value) -> u64 {
    crate::node::quantity(value).expect("geth writes quantities")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `printf '%s' HEADER.CLAIMS | openssl dgst -sha256 -mac HMAC -macopt hexkey:1111...`.
    #[test]
    fn a_token_is_signed_as_others_sign_it() {
        assert_eq!(
            token(1_700_000_000),
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpYXQiOjE3MDAwMDAwMDB9.\
             Hb09lNHg9IiC1UttHzXRW1voUqjM97m4oEuKWkSux5g",
        );
    }
}
