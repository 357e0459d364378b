//! Blocks, transactions, receipts and logs as geth's JSON.

use alloy_consensus::{Header, Transaction, Typed2718};
use alloy_primitives::{B256, Log, U256};
use serde_json::{Value, json};

use crate::world::block::{BlockBody, Receipt, SimBlock};
use crate::world::tx::Tx;

/// A number in hex.
pub fn quantity(number: u64) -> Value {
    Value::String(format!("{number:#x}"))
}

/// A large number in hex.
pub fn big(number: impl Into<U256>) -> Value {
    Value::String(format!("{:#x}", number.into()))
}

/// A header, as in `newHeads` and `eth_getHeaderByNumber`.
pub fn header(header: &Header, hash: B256) -> Value {
    let mut object = json!(header);
    object["hash"] = json!(hash);
    object
}

/// A block, with whole transactions or their hashes.
pub fn block(block: &SimBlock, body: &BlockBody, whole: bool) -> Value {
    let mut object = header(&block.header, block.hash);
    let transactions = match whole {
        true => (0..body.txs.len()).map(|index| mined_tx(block, body, index)).collect(),
        false => body.txs.iter().map(|tx| json!(tx.hash)).collect(),
    };
    object["size"] = quantity(body.size);
    object["transactions"] = Value::Array(transactions);
    object["uncles"] = json!([]);
    object["withdrawals"] = json!(body.withdrawals);
    object
}

/// A transaction in its block.
pub fn mined_tx(block: &SimBlock, body: &BlockBody, index: usize) -> Value {
    let tx = &body.txs[index];
    let mut object = tx_fields(tx, Some(block.base_fee()));
    object["blockHash"] = json!(block.hash);
    object["blockNumber"] = quantity(block.number());
    object["transactionIndex"] = quantity(index as u64);
    object
}

/// A transaction that waits for a block.
pub fn waiting_tx(tx: &Tx) -> Value {
    let mut object = tx_fields(tx, None);
    for missing in ["blockHash", "blockNumber", "transactionIndex"] {
        object[missing] = Value::Null;
    }
    object
}

/// What is paid for gas at this base fee, or at most.
fn tx_fields(tx: &Tx, base_fee: Option<u64>) -> Value {
    let mut object = json!(tx.envelope);
    object["from"] = json!(tx.from);
    object["gasPrice"] = big(U256::from(tx.envelope.effective_gas_price(base_fee)));
    object
}

/// The receipt of the transaction at `index`.
pub fn receipt(block: &SimBlock, body: &BlockBody, index: usize) -> Value {
    let (tx, receipt) = (&body.txs[index], &body.receipts[index]);
    let price = tx.envelope.effective_gas_price(Some(block.base_fee()));
    json!({
        "transactionHash": tx.hash,
        "transactionIndex": quantity(index as u64),
        "blockHash": block.hash,
        "blockNumber": quantity(block.number()),
        "from": tx.from,
        "to": tx.envelope.to(),
        "type": quantity(u64::from(tx.envelope.ty())),
        "status": quantity(u64::from(receipt.envelope.status())),
        "cumulativeGasUsed": quantity(receipt.envelope.cumulative_gas_used()),
        "gasUsed": quantity(receipt.gas_used),
        "effectiveGasPrice": big(U256::from(price)),
        "contractAddress": receipt.contract,
        "logs": logs_of(block, body, index, receipt, |_| true),
        "logsBloom": receipt.envelope.logs_bloom(),
    })
}

/// The logs of one receipt that `wanted` picks, with their place in the block.
pub fn logs_of(
    block: &SimBlock,
    body: &BlockBody,
    tx_index: usize,
    receipt: &Receipt,
    wanted: impl Fn(&Log) -> bool,
) -> Vec<Value> {
    let first = body.first_log_index(tx_index);
    let logs = receipt.envelope.logs().iter().zip(first..);
    logs.filter(|(log, _)| wanted(log))
        .map(|(log, log_index)| {
            json!({
                "address": log.address,
                "topics": log.topics(),
                "data": log.data.data,
                "blockNumber": quantity(block.number()),
                "blockHash": block.hash,
                "blockTimestamp": quantity(block.header.timestamp),
                "transactionHash": body.txs[tx_index].hash,
                "transactionIndex": quantity(tx_index as u64),
                "logIndex": quantity(log_index),
                "removed": false,
            })
        })
        .collect()
}
