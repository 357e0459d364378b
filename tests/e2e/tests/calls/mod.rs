//! The calls that `conformance` makes, and the chain they are about.
//!
//! A list, not a program: each line is a method and its params. `fine` marks
//! those that must have a result, `fails` those that must have an error, so
//! that a slip in the list does not quietly compare two errors.

use serde_json::{Value, json};
use wellhead_e2e::Node;

/// What a call is expected to be, by the node's own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Fine,
    Fails,
}

/// One line of the list.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) method: String,
    pub(crate) params: Value,
}

fn fine(method: &str, params: Value) -> Call {
    Call { kind: Kind::Fine, method: method.to_owned(), params }
}

fn fails(method: &str, params: Value) -> Call {
    Call { kind: Kind::Fails, method: method.to_owned(), params }
}

/// What the prepared chain holds.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) account: String,
    pub(crate) contract: String,
    /// Called the contract with nothing: stored, logged, returned.
    pub(crate) transaction: String,
    /// The block of that transaction, by number and by hash.
    pub(crate) block: String,
    pub(crate) block_hash: String,
    /// A transaction that was mined and reverted.
    pub(crate) reverted: String,
    pub(crate) chain_id: u64,
}

/// Deploys a contract whose first byte of call data chooses what it does:
/// none: store 42, log, return 42; 01: revert with a custom error; 02: revert
/// with the reason "no"; 03: an invalid opcode; 04: loop until the gas is gone;
/// 05: revert with nothing; else: return what is stored.
const CONTRACT: &str = "0x609580600b6000396000f336601a57602a600055602a60005260aa60206000a160206000\
    f35b60003560f81c80600114604f57806002146065578060031460895780600414608b5780600514608f57600054\
    60005260206000f35b63cafebabe60e01b600052602a60045260246000fd5b6308c379a060e01b60005260206004\
    526002602452616e6f60f01b60445260646000fd5bfe5b608b565b60006000fd";

/// Creation code that reverts with a custom error, for `eth_call` without `to`.
const REVERTING_CREATION: &str = "0x63cafebabe60e01b600052600460006000fd";

const NO_ACCOUNT: &str = "0x00000000000000000000000000000000000000aa";
const NO_HASH: &str = "0x00000000000000000000000000000000000000000000000000000000000000ff";
const TOPIC: &str = "0x00000000000000000000000000000000000000000000000000000000000000aa";
const SLOT_0: &str = "0x0000000000000000000000000000000000000000000000000000000000000000";

impl Facts {
    /// Deploys the contract, calls it well, calls it badly.
    pub(crate) async fn prepare(node: &Node, chain_id: u64) -> Self {
        let accounts = node.rpc().result("eth_accounts", json!([])).await.unwrap();
        let account = text(&accounts[0]);
        let send = async |fields: Value| {
            let mut transaction = json!({ "from": account, "gas": "0x7a120" });
            for (name, value) in fields.as_object().unwrap() {
                transaction[name] = value.clone();
            }
            node.transact(transaction).await.unwrap()
        };
        let deployed = send(json!({ "data": CONTRACT })).await;
        assert_eq!(deployed["status"], "0x1", "{deployed}");
        let contract = text(&deployed["contractAddress"]);
        let called = send(json!({ "to": contract })).await;
        assert_eq!(called["status"], "0x1", "{called}");
        let reverted = send(json!({ "to": contract, "data": "0x01" })).await;
        assert_eq!(reverted["status"], "0x0", "{reverted}");
        // Some blocks on top, so that the ones asked about stand still.
        node.wait_for_block(node.head().await.unwrap() + 2).await;
        Self {
            account,
            contract,
            transaction: text(&called["transactionHash"]),
            block: text(&called["blockNumber"]),
            block_hash: text(&called["blockHash"]),
            reverted: text(&reverted["transactionHash"]),
            chain_id,
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no string")).to_owned()
}

/// Every call is answered by the node as its line says.
pub(crate) async fn understood(node: &Node, calls: &[Call]) {
    let mut wrong = Vec::new();
    for call in calls {
        let reply = node.rpc().call(&call.method, call.params.clone()).await.unwrap();
        let kind = if reply.get("error").is_some() { Kind::Fails } else { Kind::Fine };
        if kind != call.kind {
            wrong.push(format!("{} {}: {reply:.400}", call.method, call.params));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), calls.len(), wrong.join("\n"));
}

/// What every node answers alike in kind.
fn common(facts: &Facts) -> Vec<Call> {
    let Facts { account, contract, transaction, block, block_hash, reverted, chain_id } = facts;
    let mut calls = vec![
        // Who and where.
        fine("eth_chainId", json!([])),
        fine("net_version", json!([])),
        fine("net_listening", json!([])),
        fine("eth_accounts", json!([])),
        fine("eth_syncing", json!([])),
        fine("web3_sha3", json!(["0x68656c6c6f"])),
        fails("web3_sha3", json!(["not hex"])),
        // The head, and what moves with it.
        fine("eth_blockNumber", json!([])),
        fine("eth_gasPrice", json!([])),
        fine("eth_maxPriorityFeePerGas", json!([])),
        fine("eth_blobBaseFee", json!([])),
        fine("eth_getBlockByNumber", json!(["latest", false])),
        fine("eth_getBlockByNumber", json!(["safe", false])),
        fine("eth_getBlockByNumber", json!(["finalized", false])),
        fine("eth_getBalance", json!([NO_ACCOUNT, "latest"])),
        fine("eth_getTransactionCount", json!([account, "latest"])),
        fine("eth_getTransactionCount", json!([account, "pending"])),
        // Blocks.
        fine("eth_getBlockByNumber", json!([block, false])),
        fine("eth_getBlockByNumber", json!([block, true])),
        fine("eth_getBlockByNumber", json!(["0x0", false])),
        fine("eth_getBlockByNumber", json!(["0x1", true])),
        fine("eth_getBlockByNumber", json!(["earliest", false])),
        fine("eth_getBlockByNumber", json!(["0xffffffff", false])),
        fails("eth_getBlockByNumber", json!(["yesterday", false])),
        fails("eth_getBlockByNumber", json!(["0xzz", false])),
        fails("eth_getBlockByNumber", json!([])),
        fine("eth_getBlockByHash", json!([block_hash, false])),
        fine("eth_getBlockByHash", json!([block_hash, true])),
        fine("eth_getBlockByHash", json!([NO_HASH, false])),
        fails("eth_getBlockByHash", json!(["0x12", false])),
        fine("eth_getBlockTransactionCountByNumber", json!([block])),
        fine("eth_getBlockTransactionCountByNumber", json!(["0x0"])),
        fine("eth_getBlockTransactionCountByHash", json!([block_hash])),
        fine("eth_getUncleCountByBlockNumber", json!([block])),
        fine("eth_getUncleCountByBlockHash", json!([block_hash])),
        fine("eth_getUncleByBlockNumberAndIndex", json!([block, "0x0"])),
        fine("eth_getUncleByBlockHashAndIndex", json!([block_hash, "0x0"])),
        fine("eth_getBlockReceipts", json!([block])),
        fine("eth_getBlockReceipts", json!(["0x0"])),
        // Transactions.
        fine("eth_getTransactionByHash", json!([transaction])),
        fine("eth_getTransactionByHash", json!([reverted])),
        fine("eth_getTransactionByHash", json!([NO_HASH])),
        fails("eth_getTransactionByHash", json!(["0x12"])),
        fails("eth_getTransactionByHash", json!([])),
        fine("eth_getTransactionByBlockNumberAndIndex", json!([block, "0x0"])),
        fine("eth_getTransactionByBlockNumberAndIndex", json!([block, "0x63"])),
        fine("eth_getTransactionByBlockHashAndIndex", json!([block_hash, "0x0"])),
        fine("eth_getTransactionByBlockHashAndIndex", json!([NO_HASH, "0x0"])),
        fine("eth_getTransactionReceipt", json!([transaction])),
        fine("eth_getTransactionReceipt", json!([reverted])),
        fine("eth_getTransactionReceipt", json!([NO_HASH])),
        fails("eth_sendRawTransaction", json!(["0x"])),
        fails("eth_sendRawTransaction", json!(["0x01"])),
        fails("eth_sendRawTransaction", json!(["0x02f8"])),
        fails("eth_sendRawTransaction", json!([])),
        // State, at one block.
        fine("eth_getBalance", json!([account, block])),
        fine("eth_getBalance", json!([account, "0x0"])),
        fine("eth_getBalance", json!([account, { "blockNumber": block }])),
        fine("eth_getBalance", json!([account, { "blockHash": block_hash }])),
        fails("eth_getBalance", json!(["0x12", block])),
        fails("eth_getBalance", json!([])),
        fine("eth_getTransactionCount", json!([account, block])),
        fine("eth_getTransactionCount", json!([account, "0x0"])),
        fine("eth_getCode", json!([contract, block])),
        fine("eth_getCode", json!([contract, "0x0"])),
        fine("eth_getCode", json!([NO_ACCOUNT, block])),
        fine("eth_getStorageAt", json!([contract, "0x0", block])),
        fine("eth_getStorageAt", json!([contract, "0x0", "0x0"])),
        fine("eth_getStorageAt", json!([contract, SLOT_0, { "blockHash": block_hash }])),
        fine("eth_getProof", json!([contract, [SLOT_0], "latest"])),
        fails("eth_getProof", json!([contract, "no list", block])),
        // Calls, and every way they fail.
        fine("eth_call", json!([{ "to": contract }, block])),
        fine("eth_call", json!([{ "to": contract, "data": "0x06" }, block])),
        fine("eth_call", json!([{ "to": contract, "input": "0x06" }, { "blockHash": block_hash }])),
        fine("eth_call", json!([{ "to": contract, "data": "0x06" }, "0x0"])),
        fine("eth_call", json!([{ "to": NO_ACCOUNT, "value": "0x1", "from": account }, block])),
        fine(
            "eth_call",
            json!([{ "to": contract, "data": "0x06" }, block, { contract: { "stateDiff": { SLOT_0: TOPIC } } }]),
        ),
        fine(
            "eth_call",
            json!([{ "to": NO_ACCOUNT, "data": "0x" }, block, { NO_ACCOUNT: { "balance": "0x1" } }]),
        ),
        fails("eth_call", json!([{ "to": contract, "data": "0x01" }, block])),
        fails("eth_call", json!([{ "to": contract, "data": "0x02" }, block])),
        fails("eth_call", json!([{ "to": contract, "data": "0x03" }, block])),
        fails("eth_call", json!([{ "to": contract, "data": "0x04", "gas": "0xc350" }, block])),
        fails("eth_call", json!([{ "to": contract, "data": "0x05" }, block])),
        fails("eth_call", json!([{ "to": contract, "data": "0x01" }, "latest"])),
        fails("eth_call", json!([{ "data": REVERTING_CREATION }, block])),
        fails("eth_call", json!([{ "to": "0x12" }, block])),
        fails("eth_call", json!(["no call", block])),
        fails("eth_call", json!([])),
        fine(
            "eth_estimateGas",
            json!([{ "from": account, "to": NO_ACCOUNT, "value": "0x1" }, block]),
        ),
        fine("eth_estimateGas", json!([{ "from": account, "to": contract }, block])),
        fails(
            "eth_estimateGas",
            json!([{ "from": account, "to": contract, "data": "0x01" }, block]),
        ),
        fails(
            "eth_estimateGas",
            json!([{ "from": account, "to": contract, "data": "0x02" }, block]),
        ),
        fails(
            "eth_estimateGas",
            json!([{ "from": account, "to": contract, "data": "0x03" }, block]),
        ),
        fine(
            "eth_createAccessList",
            json!([{ "from": account, "to": contract, "data": "0x06" }, block]),
        ),
        fine(
            "eth_simulateV1",
            json!([{ "blockStateCalls": [{ "calls": [{ "to": contract, "data": "0x06" }] }] }, "0x1"]),
        ),
        // Logs.
        fine("eth_getLogs", json!([{ "fromBlock": block, "toBlock": block }])),
        fine("eth_getLogs", json!([{ "fromBlock": "0x0", "toBlock": block }])),
        fine(
            "eth_getLogs",
            json!([{ "fromBlock": "earliest", "toBlock": block, "address": contract }]),
        ),
        fine(
            "eth_getLogs",
            json!([{ "fromBlock": block, "toBlock": block, "address": [contract, NO_ACCOUNT] }]),
        ),
        fine("eth_getLogs", json!([{ "fromBlock": block, "toBlock": block, "topics": [TOPIC] }])),
        fine("eth_getLogs", json!([{ "fromBlock": block, "toBlock": block, "topics": [null] }])),
        fine(
            "eth_getLogs",
            json!([{ "fromBlock": block, "toBlock": block, "topics": [[TOPIC, NO_HASH]] }]),
        ),
        fine("eth_getLogs", json!([{ "blockHash": block_hash }])),
        fine("eth_getLogs", json!([{ "blockHash": block_hash, "address": NO_ACCOUNT }])),
        fails("eth_getLogs", json!([{ "fromBlock": "nonsense" }])),
        fails("eth_getLogs", json!(["no filter"])),
        // Fees.
        fine("eth_feeHistory", json!(["0x2", block, [10, 50]])),
        fine("eth_feeHistory", json!(["0x1", block, []])),
        fails("eth_feeHistory", json!(["0x1", "nonsense", []])),
        // Traces.
        fine("debug_traceTransaction", json!([transaction, { "tracer": "callTracer" }])),
        fine("debug_traceTransaction", json!([reverted, { "tracer": "callTracer" }])),
        fine("debug_traceTransaction", json!([transaction, { "tracer": "prestateTracer" }])),
        fine("debug_traceTransaction", json!([transaction, {}])),
        fine(
            "debug_traceCall",
            json!([{ "to": contract, "data": "0x06" }, block, { "tracer": "callTracer" }]),
        ),
        // Filters that were never made, methods that no node has.
        fails("eth_getFilterLogs", json!(["0xdeadbeef"])),
        fails("eth_noSuchMethod", json!([])),
        fails("nonsense", json!([1, 2, 3])),
    ];
    // A call that says which chain it is for.
    let chain_id = format!("{chain_id:#x}");
    calls.push(fine(
        "eth_call",
        json!([{ "to": contract, "data": "0x06", "chainId": chain_id }, block]),
    ));
    calls
}

/// The list for geth.
pub(crate) fn geth(facts: &Facts) -> Vec<Call> {
    let Facts { account, contract, transaction, block, block_hash, reverted, .. } = facts;
    let mut calls = common(facts);
    calls.extend([
        fine("net_peerCount", json!([])),
        fine("rpc_modules", json!([])),
        fine("eth_getRawTransactionByHash", json!([transaction])),
        fine("eth_getRawTransactionByBlockNumberAndIndex", json!([block, "0x0"])),
        fine("eth_getHeaderByNumber", json!([block])),
        fine("eth_getHeaderByHash", json!([block_hash])),
        fails("eth_getFilterChanges", json!(["0xdeadbeef"])),
        fails("eth_sign", json!([account, "no hex"])),
        fine("txpool_status", json!([])),
        fine("txpool_content", json!([])),
        fine("txpool_inspect", json!([])),
        fine("txpool_contentFrom", json!([account])),
        fine("debug_getRawBlock", json!([block])),
        fine("debug_getRawHeader", json!([block])),
        fine("debug_getRawReceipts", json!([block])),
        fine("debug_getRawTransaction", json!([transaction])),
        fine("debug_traceBlockByNumber", json!([block, { "tracer": "callTracer" }])),
        fine("debug_traceBlockByHash", json!([block_hash, { "tracer": "callTracer" }])),
        fine("debug_traceTransaction", json!([reverted, { "tracer": "4byteTracer" }])),
        fine("debug_storageRangeAt", json!([block_hash, 0, contract, "0x00", 10])),
        fails("debug_traceTransaction", json!([transaction, { "tracer": "noSuchTracer" }])),
        fails("debug_traceTransaction", json!([NO_HASH, {}])),
        fails("debug_traceBlockByNumber", json!(["0xffffffff", {}])),
    ]);
    calls
}

/// The list for anvil, less what only geth has.
pub(crate) fn anvil(facts: &Facts) -> Vec<Call> {
    let Facts { account, block, .. } = facts;
    let mut calls = common(facts);
    calls.extend([
        fails("net_peerCount", json!([])),
        fine("txpool_status", json!([])),
        fine("txpool_content", json!([])),
        fine("anvil_getAutomine", json!([])),
        fine("evm_setAccountNonce", json!([NO_ACCOUNT, "0x0"])),
        fine("anvil_setBalance", json!([NO_ACCOUNT, "0x0"])),
        fine("trace_block", json!([block])),
        fine("eth_sign", json!([account, "0x68656c6c6f"])),
    ]);
    calls
}
