//! Gas prices, as geth derives them from recent blocks.

use alloy_consensus::Transaction;
use alloy_primitives::U256;
use serde_json::{Value, json};

use super::CallContext;
use super::error::RpcError;
use super::json::{big, quantity};
use super::params::{BlockSelector, Params};
use crate::world::block::SimBlock;

/// Blocks one `eth_feeHistory` covers; a larger wish is cut, as geth does.
const FEE_HISTORY_BLOCKS_MAX: u64 = 1024;
/// Percentiles one `eth_feeHistory` may ask for.
const PERCENTILES_MAX: usize = 100;
/// Suggested where no transaction has set an example.
const DEFAULT_TIP: u128 = 1_000_000_000;

/// The middle of the tips in the newest block.
pub fn suggested_tip(head: &SimBlock) -> u128 {
    let tips = tips_of(head);
    tips.get(tips.len() / 2).map_or(DEFAULT_TIP, |(tip, _)| *tip)
}

/// `eth_feeHistory`.
pub fn history(asked: &CallContext<'_>, params: Params<'_>) -> Result<Value, RpcError> {
    let wanted = match params.required(0)? {
        Value::Number(number) => number.as_u64().unwrap_or_default(),
        _ => params.quantity(0)?,
    };
    let newest = match params.height(1)? {
        BlockSelector::Pending => asked.view.head().number(),
        point => asked.number_of(point),
    };
    let percentiles = match params.optional(2) {
        None => Vec::new(),
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_f64).collect(),
        Some(_) => return Err(RpcError::invalid_argument(2, "cannot unmarshal")),
    };
    if percentiles.len() > PERCENTILES_MAX {
        let words = format!("invalid reward percentile: over the query limit {PERCENTILES_MAX}");
        return Err(RpcError::server(words));
    }
    if let Some(wrong) = percentiles.iter().find(|share| !(0.0..=100.0).contains(*share)) {
        return Err(RpcError::server(format!("invalid reward percentile: {wrong}")));
    }
    let head = asked.view.head().number();
    if newest > head {
        let words = format!("request beyond head block: requested {newest}, head {head}");
        return Err(RpcError::server(words));
    }
    let count = wanted.min(FEE_HISTORY_BLOCKS_MAX).min(newest + 1);
    if count == 0 {
        return Ok(json!({"oldestBlock": "0x0", "gasUsedRatio": null}));
    }
    let oldest = newest + 1 - count;
    let mut base_fees = Vec::new();
    let mut ratios = Vec::new();
    let mut rewards = Vec::new();
    let mut next = 0;
    for number in oldest..=newest {
        let block = asked.view.at(number).ok_or_else(RpcError::pruned_history)?;
        base_fees.push(quantity(block.base_fee()));
        ratios.push(json!(block.header.gas_used as f64 / block.header.gas_limit as f64));
        if !percentiles.is_empty() {
            asked.body(&block)?;
            rewards.push(reward(&block, &percentiles));
        }
        next = block.next_base_fee();
    }
    base_fees.push(quantity(next));
    let blobs = usize::try_from(count).unwrap_or_default();
    let mut answer = json!({
        "oldestBlock": quantity(oldest),
        "baseFeePerGas": base_fees,
        "gasUsedRatio": ratios,
        "baseFeePerBlobGas": vec!["0x1"; blobs + 1],
        "blobGasUsedRatio": vec![0; blobs],
    });
    if !percentiles.is_empty() {
        answer["reward"] = Value::Array(rewards);
    }
    Ok(answer)
}

/// Tips by the share of the block's gas that paid at most so much.
fn reward(block: &SimBlock, percentiles: &[f64]) -> Value {
    let tips = tips_of(block);
    let of = |share: &f64| {
        let threshold = block.header.gas_used as f64 * share / 100.0;
        let mut sum = 0.0;
        for (tip, gas) in &tips {
            sum += *gas as f64;
            if sum >= threshold {
                return *tip;
            }
        }
        tips.last().map_or(0, |(tip, _)| *tip)
    };
    percentiles.iter().map(|share| big(U256::from(of(share)))).collect()
}

/// Tip and gas of each transaction, cheapest first.
fn tips_of(block: &SimBlock) -> Vec<(u128, u64)> {
    let Some(body) = &block.body else { return Vec::new() };
    let tip = |index: usize| {
        body.txs[index].envelope.effective_tip_per_gas(block.base_fee()).unwrap_or_default()
    };
    let mut tips: Vec<_> = body
        .receipts
        .iter()
        .enumerate()
        .map(|(index, receipt)| (tip(index), receipt.gas_used))
        .collect();
    tips.sort_unstable();
    tips
}
