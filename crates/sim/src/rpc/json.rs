//! Blocks, transactions, receipts and logs as geth's JSON.

use alloy_primitives::{B256, Log, U256};
use serde_json::{Value, json};

use crate::world::block::{BlockBody, BlockHeader, Receipt, SimBlock};
use crate::world::tx::{Fee, Tx};

/// A number in hex.
pub fn quantity(number: u64) -> Value {
    Value::String(format!("{number:#x}"))
}

/// A large number in hex.
pub fn big(number: impl Into<U256>) -> Value {
    Value::String(format!("{:#x}", number.into()))
}

/// A header, as in `newHeads` and `eth_getHeaderByNumber`.
pub fn header(header: &BlockHeader, hash: B256) -> Value {
    json!({
        "number": quantity(header.number),
        "hash": hash,
        "parentHash": header.parent_hash,
        "nonce": header.nonce,
        "mixHash": header.mix_hash,
        "sha3Uncles": header.uncles_hash,
        "logsBloom": header.logs_bloom.to_string(),
        "stateRoot": header.state_root,
        "miner": header.miner.to_string().to_lowercase(),
        "difficulty": "0x0",
        "extraData": header.extra_data,
        "gasLimit": quantity(header.gas_limit),
        "gasUsed": quantity(header.gas_used),
        "timestamp": quantity(header.timestamp),
        "transactionsRoot": header.transactions_root,
        "receiptsRoot": header.receipts_root,
        "baseFeePerGas": quantity(header.base_fee),
        "withdrawalsRoot": header.withdrawals_root,
        "blobGasUsed": quantity(header.blob_gas_used),
        "excessBlobGas": quantity(header.excess_blob_gas),
        "parentBeaconBlockRoot": header.parent_beacon_root,
        "requestsHash": header.requests_hash,
    })
}

/// A block, with whole transactions or their hashes.
pub fn block(block: &SimBlock, body: &BlockBody, whole: bool) -> Value {
    let mut object = header(&block.header, block.hash);
    let transactions = match whole {
        true => (0..body.txs.len()).map(|index| mined_tx(block, body, index)).collect(),
        false => body.txs.iter().map(|tx| json!(tx.hash)).collect(),
    };
    let withdrawals = body
        .withdrawals
        .iter()
        .map(|withdrawal| {
            json!({
                "index": quantity(withdrawal.index),
                "validatorIndex": quantity(withdrawal.validator_index),
                "address": withdrawal.address,
                "amount": quantity(withdrawal.amount),
            })
        })
        .collect();
    object["size"] = quantity(body.size);
    object["transactions"] = Value::Array(transactions);
    object["uncles"] = json!([]);
    object["withdrawals"] = Value::Array(withdrawals);
    object
}

/// A transaction in its block.
pub fn mined_tx(block: &SimBlock, body: &BlockBody, index: usize) -> Value {
    let tx = &body.txs[index];
    let price = tx.effective_gas_price(block.header.base_fee);
    let mut object = tx_fields(tx, price);
    object["blockHash"] = json!(block.hash);
    object["blockNumber"] = quantity(block.number());
    object["transactionIndex"] = quantity(index as u64);
    object
}

/// A transaction that waits for a block.
pub fn waiting_tx(tx: &Tx) -> Value {
    let mut object = tx_fields(tx, tx.body.fee.ceiling());
    for missing in ["blockHash", "blockNumber", "transactionIndex"] {
        object[missing] = Value::Null;
    }
    object
}

fn tx_fields(tx: &Tx, gas_price: u128) -> Value {
    let mut object = json!({
        "hash": tx.hash,
        "type": quantity(u64::from(tx.body.kind())),
        "from": tx.from,
        "to": tx.body.to.to().copied(),
        "nonce": quantity(tx.body.nonce),
        "gas": quantity(tx.body.gas_limit),
        "gasPrice": big(U256::from(gas_price)),
        "value": big(tx.body.value),
        "input": tx.body.input,
    });
    if let Some(chain_id) = tx.body.chain_id {
        object["chainId"] = quantity(chain_id);
    }
    if let Fee::Dynamic { max_fee, max_tip } = tx.body.fee {
        let access_list = tx
            .body
            .access_list
            .iter()
            .map(|item| json!({"address": item.address, "storageKeys": item.storage_keys}))
            .collect();
        object["maxFeePerGas"] = big(U256::from(max_fee));
        object["maxPriorityFeePerGas"] = big(U256::from(max_tip));
        object["accessList"] = Value::Array(access_list);
        object["yParity"] = quantity(tx.v());
    }
    object["v"] = quantity(tx.v());
    object["r"] = big(tx.signature.r());
    object["s"] = big(tx.signature.s());
    object
}

/// The receipt of the transaction at `index`.
pub fn receipt(block: &SimBlock, body: &BlockBody, index: usize) -> Value {
    let (tx, receipt) = (&body.txs[index], &body.receipts[index]);
    let logs = logs_of(block, body, index, receipt, |_| true);
    json!({
        "transactionHash": tx.hash,
        "transactionIndex": quantity(index as u64),
        "blockHash": block.hash,
        "blockNumber": quantity(block.number()),
        "from": tx.from,
        "to": tx.body.to.to().copied(),
        "type": quantity(u64::from(receipt.kind)),
        "status": quantity(u64::from(receipt.success)),
        "cumulativeGasUsed": quantity(receipt.cumulative_gas_used),
        "gasUsed": quantity(receipt.gas_used),
        "effectiveGasPrice": big(U256::from(tx.effective_gas_price(block.header.base_fee))),
        "contractAddress": receipt.contract,
        "logs": logs,
        "logsBloom": receipt.bloom.to_string(),
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
    let logs = receipt.logs.iter().zip(first..);
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
