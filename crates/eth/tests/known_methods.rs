//! What the table says of common methods, as a specification.
//!
//! The rows were judged one by one; these cases keep the judgements that cost
//! most when wrong: a stale answer kept for ever, a transaction sent twice, a
//! poll multiplied. Reading parameters in all their shapes is tested in `param`.

use proptest::prelude::*;
use wellhead_eth::{CostClass, Effect, Finality, MethodRow, MethodTable, StickyRole};

fn row(name: &str) -> &'static MethodRow {
    let row = MethodTable::standard().row(name);
    assert!(!row.is_unknown(), "`{name}` is not listed");
    row
}

/// `'` stands for `"`; the answer is compared as text.
#[track_caller]
fn speaks_of(name: &str, params: &str, want: &str) {
    let params = params.replace('\'', "\"");
    assert_eq!(row(name).block_ref(Some(params.as_bytes())).to_string(), want, "{name} {params}");
}

const HASH: &str = "0xabababababababababababababababababababababababababababababababab";

#[test]
fn state_is_read_at_the_block_asked_for_or_at_latest() {
    for name in ["eth_getBalance", "eth_getCode", "eth_getTransactionCount"] {
        speaks_of(name, "['0xaddress', '0x10']", "16");
        speaks_of(name, "['0xaddress']", "latest");
    }
    for name in ["eth_getStorageAt", "eth_getProof"] {
        speaks_of(name, "['0xaddress', '0x0', 'safe']", "safe");
        speaks_of(name, "['0xaddress', '0x0']", "latest");
    }
    speaks_of("eth_getStorageValues", "[{'0xaddress':['0x0']}, '0x1']", "1");
}

#[test]
fn calls_run_at_the_block_asked_for_or_at_latest() {
    for name in ["eth_call", "eth_estimateGas", "eth_createAccessList", "eth_simulateV1"] {
        speaks_of(name, "[{}]", "latest");
        speaks_of(name, "[{}, 'pending', {}]", "pending");
        speaks_of(name, &format!("[{{}}, {{'blockHash':'{HASH}'}}]"), HASH);
        assert_eq!(row(name).class, CostClass::Call);
    }
    speaks_of("eth_callMany", "[[], {'blockNumber':'0x5','transactionIndex':1}]", "5");
    speaks_of("eth_callBundle", "[{'blockNumber':'0x6','stateBlockNumber':'0x5'}]", "5");
    speaks_of("trace_call", "[{}, ['trace'], '0x5']", "5");
    speaks_of("trace_callMany", "[[], '0x5']", "5");
    speaks_of("debug_traceCall", "[{}, '0x5', {}]", "5");
}

#[test]
fn blocks_are_named_by_number_or_hash() {
    for name in [
        "eth_getBlockByNumber",
        "eth_getBlockReceipts",
        "eth_getTransactionByBlockNumberAndIndex",
        "debug_traceBlockByNumber",
        "debug_getRawBlock",
        "trace_block",
        "trace_replayBlockTransactions",
        "erigon_getHeaderByNumber",
        "zks_getBlockDetails",
    ] {
        speaks_of(name, "['0x5', false]", "5");
        speaks_of(name, "[5, false]", "5");
        speaks_of(name, "['finalized', false]", "finalized");
        speaks_of(name, "[]", "unreadable");
    }
    for name in
        ["eth_getBlockByHash", "eth_getBlockTransactionCountByHash", "debug_traceBlockByHash"]
    {
        speaks_of(name, &format!("['{HASH}', true]"), HASH);
        speaks_of(name, "['latest', true]", "unreadable");
    }
    speaks_of("eth_feeHistory", "['0x5', 'latest', []]", "latest");
}

#[test]
fn ranges() {
    speaks_of("eth_getLogs", "[{'fromBlock':'0x1','toBlock':'0x5'}]", "1..5");
    speaks_of("eth_getLogs", "[{'address':[]}]", "latest..latest");
    speaks_of("eth_getLogs", &format!("[{{'blockHash':'{HASH}'}}]"), HASH);
    speaks_of("trace_filter", "[{'toBlock':'0x5'}]", "earliest..5");
    speaks_of("debug_traceChain", "['0x1', '0x5']", "1..5");
    speaks_of("bor_getRootHash", "[1, 5]", "1..5");
}

#[test]
fn numbers_that_are_not_blocks_are_not_taken_for_blocks() {
    // A batch, a page start where 0 means the head, a nonce, a timestamp.
    speaks_of("zks_getL1BatchDetails", "[5]", "none");
    speaks_of("zks_getProof", "['0xaddress', [], 5]", "none");
    speaks_of("ots_searchTransactionsBefore", "['0xaddress', 0, 25]", "none");
    speaks_of("eth_getTransactionBySenderAndNonce", "['0xaddress', '0x5']", "none");
    speaks_of("erigon_getBlockByTimestamp", "['0x5', false]", "none");
}

#[track_caller]
fn lasts(finality: Finality, names: &[&str]) {
    for name in names {
        assert_eq!(row(name).finality, finality, "{name}");
    }
}

#[test]
fn how_long_answers_last() {
    lasts(Finality::Fixed, &["web3_sha3", "eth_chainId", "net_version"]);
    lasts(Finality::Block, &["eth_call", "eth_getLogs", "eth_getBlockByHash", "trace_block"]);
    lasts(
        Finality::Inclusion,
        &[
            "eth_getTransactionByHash",
            "eth_getTransactionReceipt",
            "debug_traceTransaction",
            "trace_transaction",
            "trace_replayTransaction",
        ],
    );
    lasts(Finality::Head, &["eth_blockNumber", "eth_gasPrice", "eth_blobBaseFee"]);
    lasts(Finality::Live, &["txpool_content", "eth_syncing", "eth_sendRawTransaction"]);
    // Its block is fixed, but it settles on the parent chain later.
    lasts(Finality::Head, &["zks_getBlockDetails", "zkevm_isBlockConsolidated"]);
}

#[test]
fn what_null_means() {
    for name in [
        "eth_getTransactionReceipt",
        "eth_getUncleByBlockHashAndIndex",
        "eth_getUserOperationReceipt",
        "eth_getBorBlockReceipt",
        "anvil_setBalance",
        "trace_get",
    ] {
        assert!(row(name).null_is_answer, "{name}");
    }
    for name in [
        "eth_getBlockByNumber",
        "eth_getBlockByHash",
        "eth_getBlockReceipts",
        "eth_getTransactionByHash",
        "eth_call",
        "eth_getLogs",
        "trace_block",
        "debug_traceTransaction",
        "eth_sendRawTransaction",
    ] {
        assert!(!row(name).null_is_answer, "{name}");
    }
}

#[track_caller]
fn does(effect: Effect, names: &[&str]) {
    for name in names {
        assert_eq!(row(name).effect, effect, "{name}");
    }
}

#[test]
fn what_calls_do() {
    does(Effect::Local, &["eth_chainId", "net_version", "web3_clientVersion"]);
    does(Effect::Subscribe, &["eth_subscribe", "eth_unsubscribe"]);
    does(Effect::Broadcast, &["eth_sendRawTransaction", "eth_sendRawTransactionConditional"]);
    does(Effect::Read, &["web3_sha3", "eth_accounts", "personal_listAccounts", "anvil_nodeInfo"]);
    // Private, or answered by something else than a hash.
    does(
        Effect::Write,
        &["eth_sendPrivateTransaction", "eth_sendBundle", "eth_sendRawTransactionSync"],
    );
    does(
        Effect::Write,
        &["eth_sendTransaction", "eth_sign", "personal_sign", "debug_setHead", "miner_start"],
    );
    does(Effect::Write, &["anvil_mine", "hardhat_reset", "evm_snapshot", "admin_addPeer"]);
    does(Effect::Write, &["eth_sendUserOperation", "eth_submitWork"]);
}

#[test]
fn families_that_change_a_node_do_so_unless_they_only_look() {
    let looks = ["get", "list", "info", "metadata", "nodeInfo", "dumpState", "ecRecover"];
    for row in MethodTable::standard().rows() {
        let Some((family, verb)) = row.name.split_once('_') else { continue };
        if ["anvil", "hardhat", "evm", "personal", "miner"].contains(&family)
            && !looks.iter().any(|look| verb.starts_with(look))
        {
            assert_eq!(row.effect, Effect::Write, "{}", row.name);
        }
        if family == "engine" {
            assert_eq!(row.effect, Effect::Write, "{}", row.name);
        }
    }
}

#[test]
fn filters_are_made_used_and_dropped() {
    let cases = [
        ("eth_newPendingTransactionFilter", StickyRole::Create),
        ("eth_getFilterChanges", StickyRole::Use),
        ("eth_getFilterLogs", StickyRole::Use),
        ("eth_uninstallFilter", StickyRole::Drop),
    ];
    for (name, role) in cases {
        assert_eq!((row(name).effect, row(name).sticky), (Effect::Sticky, Some(role)), "{name}");
    }
    for name in ["eth_newFilter", "eth_newBlockFilter"] {
        assert_eq!((row(name).effect, row(name).sticky), (Effect::Filter, None), "{name}");
    }
    assert!(!row("eth_getFilterChanges").idempotent, "reading takes the changes away");
}

#[test]
fn what_may_be_sent_twice() {
    for name in ["eth_call", "eth_sendRawTransaction", "eth_getLogs", "eth_chainId"] {
        assert!(row(name).idempotent, "{name}");
    }
    for name in ["eth_newFilter", "eth_subscribe", "pm_getPaymasterData", "eth_getWork"] {
        assert!(!row(name).idempotent, "{name}");
    }
}

proptest! {
    #[test]
    fn no_row_is_upset_by_any_parameters(
        index in 0..MethodTable::standard().len(),
        bytes: Vec<u8>,
        text in r#"[\[{][\[\]{}",:0xalest fromBlckNubH]{0,60}"#,
    ) {
        let row = &MethodTable::standard().rows()[index];
        let readings = [None, Some(bytes.as_slice()), Some(text.as_bytes())];
        for params in readings {
            // The same question has the same answer.
            prop_assert_eq!(row.block_ref(params), row.block_ref(params));
        }
    }
}
