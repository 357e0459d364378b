//! Real nodes: geth and anvil, each with a chain of its own making.
//!
//! Both make a block a second and hold one rich account. They share neither
//! state nor history; where a test needs two upstreams with one history, it
//! puts a [`FaultProxy`](crate::FaultProxy) before the same node. Two that really have
//! one history are [`Geth::two`], and two of [`Anvil::by_hand`] that are told the same; geths whose every
//! block and reorg a test decides are those of [`ConsensusDriver`](crate::ConsensusDriver).

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Process, Signal, tool};
use crate::{Rpc, free_port, until};

/// Far more than either needs (half a second), for a machine that is busy.
pub(crate) const READY_MAX: Duration = Duration::from_secs(30);

/// What every node has, whichever program it is.
#[derive(Debug)]
pub struct Node {
    /// The program that runs.
    pub process: Process,
    /// Where it answers HTTP on the loopback.
    pub port: u16,
    /// Where it answers WebSocket on the loopback.
    pub ws_port: u16,
    rpc: Rpc,
    command: Vec<String>,
    // Removed after the process has gone: fields drop in this order.
    folder: TempDir,
}

impl Node {
    /// Starts any program that serves JSON-RPC at `port`, and waits until it answers.
    pub async fn start(command: Vec<String>, port: u16, ws_port: u16) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a log");
        Self::start_in(folder, command, port, ws_port).await
    }

    pub(crate) async fn start_in(
        folder: TempDir,
        mut command: Vec<String>,
        port: u16,
        ws_port: u16,
    ) -> Self {
        command[0] = tool(&command[0]);
        let process = Process::start(&command, folder.path().join("log"));
        let node = Self { process, port, ws_port, rpc: Rpc::new(port, "/"), command, folder };
        node.answers().await;
        node
    }

    /// Kills it and starts it again with its folder and its ports, as after a loss of power: it may have lost
    /// its newest blocks.
    pub async fn restart(&mut self) {
        self.process.signal(Signal::Kill);
        let _killed = self.process.exit_code(READY_MAX).await;
        self.process = Process::start(&self.command, self.folder.path().join("log"));
        self.answers().await;
    }

    async fn answers(&self) {
        let ask = || async { self.rpc.result("eth_chainId", json!([])).await.ok() };
        if until(READY_MAX, ask).await.is_none() {
            panic!("`{}` does not answer:\n{}", self.command.join(" "), self.process.log());
        }
    }

    /// A client that talks to it directly.
    #[must_use]
    pub fn rpc(&self) -> &Rpc {
        &self.rpc
    }

    /// Its HTTP address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its WebSocket address.
    #[must_use]
    pub fn ws_url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.ws_port)
    }

    /// The number of its newest block.
    pub async fn head(&self) -> Result<u64, String> {
        quantity(&self.rpc.result("eth_blockNumber", json!([])).await?)
    }

    /// Waits until it has a block of this number.
    pub async fn wait_for_block(&self, number: u64) {
        let seen = until(READY_MAX, || async { self.head().await.ok().filter(|h| *h >= number) });
        assert!(seen.await.is_some(), "block {number} did not come:\n{}", self.process.log());
    }

    /// Sends a transaction from an account that the node signs for, and waits
    /// for its receipt.
    pub async fn transact(&self, transaction: Value) -> Result<Value, String> {
        let hash = self.rpc.result("eth_sendTransaction", json!([transaction])).await?;
        let receipt = until(READY_MAX, || async {
            let params = json!([hash]);
            let receipt = self.rpc.result("eth_getTransactionReceipt", params).await.ok()?;
            (!receipt.is_null()).then_some(receipt)
        });
        receipt.await.ok_or_else(|| format!("no receipt for {hash}"))
    }
}

/// The number in a quantity as Ethereum writes them.
pub(crate) fn quantity(value: &Value) -> Result<u64, String> {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| format!("{value} is no quantity"))
}

/// `geth --dev`: chain id 1337, a block a second.
#[derive(Debug)]
pub struct Geth;

impl Geth {
    /// The chain id of every `geth --dev`.
    pub const CHAIN_ID: u64 = 1337;
    /// The key of the account that `--dev` funds; it is public.
    pub const RICH_KEY: &str = "0xb71c71a67e1177ad4e901695e1b4b9ee17ae16c6668d313eac2f96dbcda3f291";

    /// The address that goes with [`Geth::RICH_KEY`].
    pub const RICH_ADDRESS: &str = "0x71562b71999873db5b286df957af199ec94617f7";

    /// Starts one with a fresh chain, and waits until it answers.
    pub async fn start() -> Node {
        Self::start_in(tempfile::tempdir().expect("there is room for a chain"), 1).await
    }

    /// Starts two of one history: the first goes on, a block a second, and the second stands
    /// where they parted, at `number` or a little above.
    pub async fn two(number: u64) -> (Node, Node) {
        let node = Self::start().await;
        node.wait_for_block(number).await;
        Self::parted(node).await
    }

    /// Two with the history of this one, which ends: the first goes on, a block a second, and the
    /// second stands where they parted.
    pub async fn parted(node: Node) -> (Node, Node) {
        let Node { mut process, folder, .. } = node;
        process.signal(Signal::Term);
        assert_eq!(process.exit_code(READY_MAX).await, Some(0), "{}", process.log());
        let other = tempfile::tempdir().expect("there is room for a chain");
        copy(&folder.path().join("chain"), &other.path().join("chain"));
        (Self::start_in(folder, 1).await, Self::start_in(other, 0).await)
    }

    /// With the chain that is in the folder, if there is one, and so many seconds from block
    /// to block; with zero it makes none but for transactions.
    async fn start_in(folder: TempDir, period: u64) -> Node {
        let (port, ws_port) = (free_port(), free_port());
        let namespaces = "eth,net,web3,debug,txpool,admin";
        let datadir = folder.path().display();
        let command = format!(
            "geth --dev --dev.period {period} --datadir {datadir}/chain --ipcdisable --verbosity 2 \
             --http --http.port {port} --http.api {namespaces} \
             --ws --ws.port {ws_port} --ws.api {namespaces} \
             --authrpc.port {} --port 0 --nodiscover --maxpeers 0",
            free_port(),
        );
        Node::start_in(folder, words(&command), port, ws_port).await
    }
}

/// All that is in a folder, to a new one.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("the folder is ours");
    for entry in std::fs::read_dir(from).expect("a folder").map(|it| it.expect("an entry")) {
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).expect("there is room for a chain");
        }
    }
}

/// anvil: any chain id, any block time; HTTP and WebSocket on one port.
#[derive(Debug)]
pub struct Anvil;

impl Anvil {
    /// The key of its first account; it is public.
    pub const RICH_KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
    /// The address that goes with [`Anvil::RICH_KEY`].
    pub const RICH_ADDRESS: &str = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";

    /// Starts one with a fresh chain and a block a second.
    pub async fn start(chain_id: u64) -> Node {
        Self::start_at(chain_id, free_port(), &[]).await
    }

    /// Starts one with so many seconds from block to block: `0.25`.
    pub async fn every(chain_id: u64, seconds: f64) -> Node {
        let port = free_port();
        let command = words(&format!(
            "anvil --chain-id {chain_id} --block-time {seconds} --port {port} --host 127.0.0.1 --silent"
        ));
        Node::start(command, port, port).await
    }

    /// Starts one that makes blocks only when told to, from a genesis of this time: seconds
    /// since 1970. Two that are told the same make the same blocks.
    pub async fn by_hand(chain_id: u64, genesis: u64) -> Node {
        let port = free_port();
        let command = words(&format!(
            "anvil --chain-id {chain_id} --no-mining --timestamp {genesis} --port {port} \
             --host 127.0.0.1 --silent"
        ));
        Node::start(command, port, port).await
    }

    /// Starts one that makes no blocks and has those of another node up to this one.
    pub async fn forked(from: &Node, block: u64) -> Node {
        let port = free_port();
        let command = words(&format!(
            "anvil --fork-url {} --fork-block-number {block} --no-mining --port {port} \
             --host 127.0.0.1 --silent",
            from.url()
        ));
        Node::start(command, port, port).await
    }

    /// Starts one at a given port, as when a killed node comes back.
    pub async fn start_at(chain_id: u64, port: u16, more: &[&str]) -> Node {
        let mut command = words(&format!(
            "anvil --chain-id {chain_id} --block-time 1 --port {port} --host 127.0.0.1 --silent"
        ));
        command.extend(more.iter().map(|word| (*word).to_owned()));
        Node::start(command, port, port).await
    }
}

pub(crate) fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}
