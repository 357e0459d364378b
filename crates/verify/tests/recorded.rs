//! What a real node answers is sound, and each way of forging it is found.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]
#![allow(clippy::needless_pass_by_value, reason = "`json!` at the call reads best by value")]

mod support;

use serde_json::{Value, json};
use support::{dev, header, named, not_checked, recorded, sound, void};
use wellhead_eth::{BlockHash, BlockNumber, ChainId};
use wellhead_verify::{
    AnswerFinding, Check, KnownFacts, Level, RawTransaction, Rules, Why, sender_of_raw,
};

/// The header that an answer is compared with.
fn block_of(name: &str) -> Option<&'static str> {
    match name {
        "genesis" | "logs" | "transaction" | "receipt" | "raw" => None,
        "block" | "receipts" => Some("block"),
        sent if sent.starts_with("sent") => None,
        _ => Some("blob block"),
    }
}

#[test]
fn what_geth_answers_is_sound() {
    for answer in recorded() {
        let header = block_of(&answer.name).map(|name| header(&named(name)));
        sound(&answer, &dev(header.as_ref()));
        // With rules that are not known it is sound all the same.
        let known = KnownFacts { header: header.as_ref(), ..KnownFacts::default() };
        sound(&answer, &known);
    }
}

#[track_caller]
fn forged(name: &str, pointer: &str, value: Value, check: Check) {
    let header = block_of(name).map(|name| header(&named(name)));
    // A header that is known would find more by `pinned`.
    let header = header.filter(|_| name.contains("receipts") || name.contains("proof"));
    void(&named(name).forged(pointer, value), &dev(header.as_ref()), check);
}

/// What only the level `full` reads does not have the form it must have.
#[track_caller]
fn misshapen(name: &str, pointer: &str, value: Value) {
    let header = block_of(name).map(|name| header(&named(name)));
    let found = named(name).forged(pointer, value).find(Level::Full, &dev(header.as_ref()));
    assert!(matches!(found, AnswerFinding::Void { check: Check::Shape, .. }), "{found:?}");
}

const OTHER_HASH: &str = "0x7777777777777777777777777777777777777777777777777777777777777777";
const OTHER_ADDRESS: &str = "0x7777777777777777777777777777777777777777";

#[test]
fn another_block() {
    forged("block", "/number", json!("0x8"), Check::AskedNumber);
    forged("block", "/number", json!("eight"), Check::Shape);
    forged("block", "/number", Value::Null, Check::Shape);
    forged("block", "/hash", json!("0x1234"), Check::Shape);
    forged("block", "", json!([]), Check::Shape);
    forged("block", "", json!("0x1"), Check::Shape);
    let mut by_hash = named("block");
    by_hash.method = "eth_getBlockByHash".to_owned();
    by_hash.params = json!([by_hash.result["hash"], true]).to_string();
    sound(&by_hash, &dev(None));
    by_hash.params = json!([OTHER_HASH, true]).to_string();
    void(&by_hash, &dev(None), Check::AskedHash);
}

#[test]
fn another_block_than_the_pinned_one() {
    let mut latest = named("block");
    latest.params = json!(["latest", true]).to_string();
    sound(&latest, &dev(None));
    let number = BlockNumber(6);
    let hash: BlockHash = latest.result["hash"].as_str().unwrap().parse().unwrap();
    sound(&latest, &KnownFacts { number: Some(number), hash: Some(hash), ..dev(None) });
    let other = BlockHash([7; 32]);
    void(&latest, &KnownFacts { number: Some(BlockNumber(7)), ..dev(None) }, Check::Pinned);
    void(&latest, &KnownFacts { hash: Some(other), ..dev(None) }, Check::Pinned);
    void(&latest, &dev(Some(&header(&named("blob block")))), Check::Pinned);
}

#[test]
fn a_header_that_is_not_of_its_hash() {
    for (member, value) in [
        ("parentHash", json!(OTHER_HASH)),
        ("stateRoot", json!(OTHER_HASH)),
        ("receiptsRoot", json!(OTHER_HASH)),
        ("miner", json!(OTHER_ADDRESS)),
        ("timestamp", json!("0x1")),
        ("baseFeePerGas", json!("0x1")),
        ("extraData", json!("0x")),
        ("mixHash", json!(OTHER_HASH)),
        ("nonce", json!("0x0000000000000001")),
        ("blobGasUsed", json!("0x1")),
        ("parentBeaconBlockRoot", json!(OTHER_HASH)),
        ("requestsHash", json!(OTHER_HASH)),
        ("requestsHash", Value::Null),
        ("gasUsed", json!("0x1")),
    ] {
        forged("block", &format!("/{member}"), value, Check::BlockHash);
    }
    misshapen("block", "/timestamp", json!("now"));
}

#[test]
fn transactions_that_are_not_the_blocks() {
    forged("block", "/transactions/1/blockHash", json!(OTHER_HASH), Check::OneBlock);
    forged("block", "/transactions/1/blockNumber", json!("0x5"), Check::OneBlock);
    forged("block", "/transactions/1/transactionIndex", json!("0x2"), Check::Order);
    forged("block", "/transactions/1", json!(OTHER_HASH), Check::Shape);
    forged("block", "/transactions/1", json!(7), Check::Shape);
    forged("block", "/transactions/0/v", json!("0x25"), Check::ChainId);
    forged("block", "/transactions/2/chainId", json!("0x1"), Check::ChainId);
    for (place, member, value) in [
        (0, "value", json!("0x1")),
        (0, "gasPrice", json!("0x1")),
        (0, "to", Value::Null),
        (1, "accessList", json!([])),
        (1, "accessList/0/storageKeys/0", json!(OTHER_HASH)),
        (2, "maxFeePerGas", json!("0x1")),
        (2, "maxPriorityFeePerGas", json!("0x1")),
        (2, "input", json!("0x")),
        (2, "nonce", json!("0x99")),
        (2, "gas", json!("0x99")),
        (2, "s", json!("0x99")),
        (2, "yParity", json!("0x7")),
        (3, "authorizationList/0/nonce", json!("0x7")),
        (3, "authorizationList/0/address", json!(OTHER_ADDRESS)),
        (3, "hash", json!(OTHER_HASH)),
    ] {
        let pointer = format!("/transactions/{place}/{member}");
        forged("block", &pointer, value, Check::TransactionHash);
    }
    let blob = "/transactions/0/";
    let hashes = format!("{blob}blobVersionedHashes/0");
    forged("blob block", &hashes, json!(OTHER_HASH), Check::TransactionHash);
    forged("blob block", &format!("{blob}maxFeePerBlobGas"), json!("0x1"), Check::TransactionHash);
    forged("block", "/transactions/4/from", json!(OTHER_ADDRESS), Check::Sender);
}

#[test]
fn a_transaction_too_few_or_too_many() {
    let mut short = named("block");
    short.result["transactions"].as_array_mut().unwrap().pop();
    void(&short, &dev(None), Check::TransactionsRoot);
    short.result["transactions"] = json!([]);
    void(&short, &dev(None), Check::TransactionsRoot);
    let mut hashes = named("hashes");
    hashes.result["transactions"] = json!([]);
    void(&hashes, &dev(None), Check::TransactionsRoot);
    hashes.result["transactions"] = json!(["0x12"]);
    void(&hashes, &dev(None), Check::Shape);
    let mut empty = named("genesis");
    empty.result["transactions"] = json!([OTHER_HASH]);
    empty.params = json!(["0x0", false]).to_string();
    void(&empty, &dev(None), Check::TransactionsRoot);
}

#[test]
fn withdrawals_and_uncles() {
    let withdrawal =
        json!({"index": "0x0", "validatorIndex": "0x1", "address": OTHER_ADDRESS, "amount": "0x5"});
    forged("block", "/withdrawals", json!([withdrawal]), Check::WithdrawalsRoot);
    forged("block", "/uncles", json!([OTHER_HASH]), Check::Uncles);
    misshapen("block", "/uncles", json!(["x"]));
}

#[test]
fn receipts() {
    forged("receipts", "/1/blockHash", json!(OTHER_HASH), Check::OneBlock);
    forged("receipts", "/0/blockHash", json!(OTHER_HASH), Check::Pinned);
    forged("receipts", "/0/blockNumber", json!("0x5"), Check::AskedNumber);
    forged("receipts", "/1/transactionIndex", json!("0x0"), Check::Order);
    forged("receipts", "/1/logs/0/blockNumber", json!("0x5"), Check::OneBlock);
    forged("receipts", "/1/logs/0/transactionHash", json!(OTHER_HASH), Check::OneBlock);
    forged("receipts", "/1/logs/0/transactionIndex", json!("0x0"), Check::OneBlock);
    forged("receipts", "/1/logs/0/logIndex", json!("0x0"), Check::Order);
    misshapen("receipts", "/1/logs/0/topics/0", json!("0x12"));
    forged("receipts", "/1/logs/0/topics/0", json!(OTHER_HASH), Check::ReceiptBloom);
    forged("receipts", "/1/logs/0/address", json!(OTHER_ADDRESS), Check::ReceiptBloom);
    forged("receipts", "/1/logs", json!([]), Check::ReceiptBloom);
    forged("receipts", "/1/logs/0/data", json!("0x01"), Check::ReceiptsRoot);
    forged("receipts", "/1/status", json!("0x0"), Check::ReceiptsRoot);
    misshapen("receipts", "/1/status", json!("0x2"));
    forged("receipts", "/1/type", json!("0x2"), Check::ReceiptsRoot);
    forged("receipts", "/1/gasUsed", json!("0x1"), Check::Gas);
    forged("receipts", "/1/cumulativeGasUsed", json!("0x1"), Check::Gas);
    forged("receipts", "", json!([]), Check::ReceiptsRoot);
    forged("receipts", "", json!({}), Check::Shape);
    let without = Why::NoHeader;
    not_checked(&named("receipts"), Level::Full, &dev(None), &without);
}

#[test]
fn the_sums_of_the_header() {
    let mut header = header(&named("block"));
    header.gas_used += 1;
    void(&named("receipts"), &dev(Some(&header)), Check::Gas);
    header.logs_bloom = Default::default();
    void(&named("receipts"), &dev(Some(&header)), Check::BlockBloom);
}

#[test]
fn one_receipt() {
    forged("receipt", "/transactionHash", json!(OTHER_HASH), Check::AskedHash);
    forged("receipt", "/logs/1/blockHash", json!(OTHER_HASH), Check::OneBlock);
    forged("receipt", "/logs/1/transactionHash", json!(OTHER_HASH), Check::OneBlock);
    forged("receipt", "/logs/1/logIndex", json!("0x0"), Check::Order);
    forged("receipt", "/logsBloom", json!(format!("0x{}", "00".repeat(256))), Check::ReceiptBloom);
}

#[test]
fn one_transaction() {
    forged("transaction", "/hash", json!(OTHER_HASH), Check::AskedHash);
    forged("transaction", "/chainId", json!("0x1"), Check::ChainId);
    forged("transaction", "/value", json!("0x1"), Check::TransactionHash);
    forged("transaction", "/from", json!(OTHER_ADDRESS), Check::Sender);
    forged("raw", "", json!("0x00"), Check::TransactionHash);
    forged("raw", "", json!("raw"), Check::Shape);
    forged("sent 2", "", json!(OTHER_HASH), Check::TransactionHash);
    // One that waits is in no block.
    let mut waiting = named("transaction");
    for member in ["blockHash", "blockNumber", "transactionIndex"] {
        waiting.result[member] = Value::Null;
    }
    sound(&waiting, &dev(None));
}

#[test]
fn a_transaction_by_its_place() {
    let mut placed = named("transaction");
    placed.method = "eth_getTransactionByBlockNumberAndIndex".to_owned();
    placed.params = json!(["0x6", "0x2"]).to_string();
    sound(&placed, &dev(None));
    void(&placed.forged("/blockNumber", json!("0x7")), &dev(None), Check::AskedNumber);
    void(&placed.forged("/transactionIndex", json!("0x1")), &dev(None), Check::AskedIndex);
    placed.method = "eth_getTransactionByBlockHashAndIndex".to_owned();
    placed.params = json!([placed.result["blockHash"], "0x2"]).to_string();
    sound(&placed, &dev(None));
    void(&placed.forged("/blockHash", json!(OTHER_HASH)), &dev(None), Check::AskedHash);
    placed.method = "eth_getTransactionBySenderAndNonce".to_owned();
    placed.params = json!([placed.result["from"], placed.result["nonce"]]).to_string();
    sound(&placed, &dev(None));
    void(&placed.forged("/nonce", json!("0x1")), &dev(None), Check::AskedIndex);
    void(&placed.forged("/from", json!(OTHER_ADDRESS)), &dev(None), Check::AskedIndex);
}

#[test]
fn logs() {
    forged("logs", "/0/blockNumber", json!("0x5"), Check::Range);
    forged("logs", "/0/blockNumber", json!("0x8"), Check::Range);
    forged("logs", "/0/blockNumber", json!("0x7"), Check::Order);
    forged("logs", "/1/blockHash", json!(OTHER_HASH), Check::OneBlock);
    forged("logs", "/1/logIndex", json!("0x0"), Check::Order);
    forged("logs", "/1/address", json!(OTHER_ADDRESS), Check::Filter);
    forged("logs", "/1/address", Value::Null, Check::Shape);
    forged("logs", "/1/topics", json!(vec![OTHER_HASH; 5]), Check::Shape);
    forged("logs", "", json!("none"), Check::Shape);
}

#[track_caller]
fn filter(filter: Value, want: Result<(), Check>) {
    let mut logs = named("logs");
    logs.params = json!([filter]).to_string();
    match want {
        Ok(()) => sound(&logs, &dev(None)),
        Err(check) => void(&logs, &dev(None), check),
    }
}

#[test]
fn filters() {
    let logs = named("logs").result;
    let contract = logs[0]["address"].clone();
    // The contract's first log has two topics, its second none, its third four.
    let topics: Vec<Value> = (0..3).map(|at| logs[at]["topics"].clone()).collect();
    assert_eq!([2, 0, 4], [0, 1, 2].map(|at: usize| topics[at].as_array().unwrap().len()));
    filter(json!({"fromBlock": "0x0", "toBlock": "latest"}), Ok(()));
    filter(json!({"fromBlock": "earliest", "toBlock": "0x6"}), Err(Check::Range));
    filter(json!({"fromBlock": "0x7"}), Err(Check::Range));
    filter(json!({"address": [OTHER_ADDRESS, contract]}), Ok(()));
    filter(json!({"address": []}), Ok(()));
    filter(json!({"address": [OTHER_ADDRESS]}), Err(Check::Filter));
    filter(json!({"topics": []}), Ok(()));
    filter(json!({"topics": [null, []]}), Ok(()));
    filter(json!({"topics": [[OTHER_HASH, null]]}), Ok(()));
    filter(json!({"topics": [topics[0][0]]}), Err(Check::Filter));
    filter(json!({"topics": [null, [OTHER_HASH]]}), Err(Check::Filter));
    filter(json!({"blockHash": OTHER_HASH}), Err(Check::AskedHash));

    let mut by_topic = named("logs");
    by_topic.result = json!([logs[0], logs[3]]);
    by_topic.params = json!([{"topics": [[topics[0][0], OTHER_HASH], topics[0][1]]}]).to_string();
    sound(&by_topic, &dev(None));
    for unclear in [
        json!([]),
        json!([{"topics": 5}]),
        json!([{"topics": ["0x1"]}]),
        json!([{"address": "0x1"}]),
        json!([{"ADDRESS": OTHER_ADDRESS}]),
        json!([{"blockHash": OTHER_HASH, "fromBlock": "0x1"}]),
    ] {
        by_topic.params = unclear.to_string();
        not_checked(&by_topic, Level::Full, &dev(None), &Why::Params);
    }
}

#[test]
fn proofs() {
    for name in ["contract proof", "wallet proof", "absent proof"] {
        forged(name, "/address", json!(OTHER_ADDRESS), Check::ProofAsked);
        forged(name, "/balance", json!("0x77"), Check::AccountProof);
        forged(name, "/nonce", json!("0x77"), Check::AccountProof);
        forged(name, "/codeHash", json!(OTHER_HASH), Check::AccountProof);
        forged(name, "/storageHash", json!(OTHER_HASH), Check::AccountProof);
        forged(name, "/accountProof", json!([]), Check::AccountProof);
        forged(name, "/accountProof/0", json!("0x"), Check::AccountProof);
        forged(name, "/accountProof/0", json!("0xc0"), Check::AccountProof);
        misshapen(name, "/accountProof/0", json!("c0"));
        let mut cut = named(name);
        cut.result["accountProof"].as_array_mut().unwrap().pop();
        void(&cut, &dev(Some(&header(&named("blob block")))), Check::AccountProof);
    }
    let slot = "/storageProof/0/";
    forged("contract proof", &format!("{slot}key"), json!("0x3"), Check::ProofAsked);
    forged("contract proof", &format!("{slot}value"), json!("0x8"), Check::StorageProof);
    forged("contract proof", &format!("{slot}value"), json!("0x0"), Check::StorageProof);
    forged("contract proof", &format!("{slot}proof"), json!([]), Check::StorageProof);
    forged("contract proof", "/storageProof/2/value", json!("0x1"), Check::StorageProof);
    forged("contract proof", "/storageProof", json!([]), Check::ProofAsked);
    forged("wallet proof", "/storageProof/0/value", json!("0x1"), Check::StorageProof);
    not_checked(&named("contract proof"), Level::Full, &dev(None), &Why::NoHeader);
    let mut header = header(&named("blob block"));
    header.state_root.0[0] ^= 1;
    void(&named("contract proof"), &dev(Some(&header)), Check::AccountProof);
}

#[test]
fn numbers() {
    let mut number = named("block");
    number.method = "eth_blockNumber".to_owned();
    for good in [json!("0x0"), json!("0x1b4"), json!(format!("0x{}", "f".repeat(64)))] {
        number.result = good;
        sound(&number, &dev(None));
    }
    for bad in
        [json!("0x"), json!(""), json!("7"), json!("0xg"), json!({}), json!([]), json!(false)]
    {
        number.result = bad;
        void(&number, &dev(None), Check::Quantity);
    }
}

#[test]
fn what_is_not_known_is_no_lie() {
    let full = |answer: &support::Answer, why| not_checked(answer, Level::Full, &dev(None), &why);
    let mut block = named("block");
    block.result["blockAccessListHash"] = json!(OTHER_HASH);
    sound(&block, &dev(None));
    block.result["timestamp"] = json!("0x1");
    full(&block, Why::HeaderField { field: "blockAccessListHash".to_owned() });
    full(
        &named("block").forged("/transactions/0/type", json!("0x7e")),
        Why::TransactionType { kind: 0x7e },
    );
    let mut unsigned = named("block");
    for member in ["v", "r", "s"] {
        unsigned.result["transactions"][0][member] = json!("0x0");
    }
    full(&unsigned, Why::Unsigned);
    full(&named("block").forged("/mixHash", Value::Null), Why::Missing { field: "mixHash" });
    full(&named("block").forged("", Value::Null), Why::Null);
    let mut pending = named("block").forged("/hash", Value::Null);
    pending.params = json!(["pending", true]).to_string();
    full(&pending, Why::Pending);
    pending.params = json!([{}, true]).to_string();
    full(&pending, Why::Params);
    pending.method = "eth_call".to_owned();
    full(&pending, Why::Method);
    not_checked(&pending, Level::Off, &dev(None), &Why::Off);
}

#[test]
fn where_the_rules_are_not_known_a_difference_is_a_doubt() {
    let known = KnownFacts { rules: Rules::Unknown, ..dev(None) };
    let forged = named("block").forged("/stateRoot", json!(OTHER_HASH));
    not_checked(&forged, Level::Full, &known, &Why::Rules { check: Check::BlockHash });
    let forged = named("transaction").forged("/from", json!(OTHER_ADDRESS));
    not_checked(&forged, Level::Full, &known, &Why::Rules { check: Check::Sender });
    let order = Why::Rules { check: Check::Order };
    let forged = named("block").forged("/transactions/1/transactionIndex", json!("0x2"));
    not_checked(&forged, Level::Cheap, &known, &order);
    let forged = named("logs").forged("/1/logIndex", json!("0x0"));
    not_checked(&forged, Level::Cheap, &known, &order);
    // What contradicts the call or itself is void on every chain.
    void(&named("block").forged("/number", json!("0x8")), &known, Check::AskedNumber);
}

#[test]
fn what_is_too_large_is_left_alone() {
    let block = named("block");
    let mut text = block.result.to_string();
    let bytes = wellhead_verify::FULL_BYTES_MAX + 1;
    text.insert_str(1, &" ".repeat(bytes - text.len()));
    let found = |level, text: &str| block.find_raw(level, &dev(None), text.as_bytes());
    let too_large = |bytes| AnswerFinding::NotChecked { why: Why::TooLarge { bytes } };
    assert_eq!(found(Level::Cheap, &text), AnswerFinding::Sound);
    assert_eq!(found(Level::Full, &text), too_large(bytes));
    let forged = text.replace(r#""number":"0x6""#, r#""number":"0x9""#);
    assert!(matches!(found(Level::Full, &forged), AnswerFinding::Void { .. }));
    let bytes = wellhead_verify::CHEAP_BYTES_MAX + 1;
    text.insert_str(1, &" ".repeat(bytes - text.len()));
    assert_eq!(found(Level::Cheap, &text), too_large(bytes));
}

#[test]
fn text_that_is_no_json() {
    let block = named("block");
    for text in ["", " ", "{", "{]", "nul", "{\"number\":\"0x6\",\"number\":\"0x6\"}", "\u{0}"] {
        let found = block.find_raw(Level::Full, &dev(None), text.as_bytes());
        assert!(
            matches!(found, AnswerFinding::Void { check: Check::Shape, .. }),
            "{text}: {found:?}"
        );
    }
    let found = block.find_raw(Level::Full, &dev(None), &[0xff]);
    assert!(matches!(found, AnswerFinding::Void { check: Check::Shape, .. }));
}

/// The header of Ethereum's first block, whose hash is well known.
#[test]
fn the_genesis_of_ethereum() {
    let bloom = format!("0x{}", "00".repeat(256));
    let zero = format!("0x{}", "00".repeat(32));
    let result = json!({
        "number": "0x0",
        "hash": "0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3",
        "parentHash": zero,
        "sha3Uncles": "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
        "miner": "0x0000000000000000000000000000000000000000",
        "stateRoot": "0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544",
        "transactionsRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
        "receiptsRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
        "logsBloom": bloom,
        "difficulty": "0x400000000",
        "gasLimit": "0x1388",
        "gasUsed": "0x0",
        "timestamp": "0x0",
        "extraData": "0x11bbe8db4e347b4e8c937c1c8370e4b5ed33adb3db69cbdb7a38e1e50b1b82fa",
        "mixHash": zero,
        "nonce": "0x0000000000000042",
        "totalDifficulty": "0x400000000",
        "size": "0x21c",
        "transactions": [],
        "uncles": [],
    });
    let genesis = support::Answer::new("eth_getBlockByNumber", &json!(["0x0", false]), result);
    let mainnet = ChainId(1);
    let known =
        KnownFacts { chain_id: Some(mainnet), rules: Rules::of(mainnet), ..KnownFacts::default() };
    sound(&genesis, &known);
    void(&genesis.forged("/nonce", json!("0x0000000000000043")), &known, Check::BlockHash);
    void(&genesis.forged("/difficulty", json!("0x400000001")), &known, Check::BlockHash);
}

#[test]
fn the_sender_is_recovered_from_the_signature() {
    let sender = named("transaction").result["from"].as_str().unwrap().parse().unwrap();
    let chain = Some(support::DEV);
    let want = [
        (0, chain),
        (0, chain),
        (1, chain),
        (2, chain),
        (4, chain),
        (2, chain),
        (0, None),
        (3, chain),
    ];
    for (nonce, (kind, chain_id)) in want.into_iter().enumerate() {
        let sent = named(&format!("sent {nonce}"));
        let params: Vec<String> = serde_json::from_str(&sent.params).unwrap();
        let raw = wellhead_eth::hex::decode(&params[0]).unwrap();
        assert_eq!(sender_of_raw(&raw), Some(sender), "{nonce}");
        let read = RawTransaction::read(&raw).unwrap();
        assert_eq!((read.kind, read.chain_id, read.nonce), (kind, chain_id, nonce as u64));
        assert_eq!(read.hash.to_string(), sent.result.as_str().unwrap());
        for cut in 0..raw.len() {
            assert_eq!(RawTransaction::read(&raw[..cut]), None, "{nonce} cut at {cut}");
        }
        if kind == 3 {
            with_blobs(&raw, &read);
        }
    }
    for not_one in [&[][..], &[0xc0], &[5, 0xc0], &[0x7e, 0xc0], &[3, 0xc1, 0xc0], &[0xff; 40]] {
        assert_eq!(sender_of_raw(not_one), None, "{not_one:?}");
    }
}

/// The blobs that travel along change neither the hash nor the sender.
fn with_blobs(raw: &[u8], bare: &RawTransaction) {
    let mut items = raw[1..].to_vec();
    items.extend([0x01, 0xc0, 0xc0, 0xc0]);
    let length = u8::try_from(items.len()).unwrap();
    let wrapped = [&[3, 0xf8, length][..], &items].concat();
    assert_eq!(RawTransaction::read(&wrapped).as_ref(), Some(bare));
}
