//! Blocks and headers: their claimed hash, and whether their parts match it.

use alloy_primitives::{B256, Bloom, b256, keccak256};
use alloy_trie::EMPTY_ROOT_HASH;
use alloy_trie::root::ordered_trie_root_encoded;

use crate::audit::{Audit, BlockPosition, RequestedBlock, must, want};
use crate::finding::{Check, InvalidAnswer, Obstacle, Why};
use crate::header::BlockJson;
use crate::json::{HashOrObject, Value, hash_of, object};
use crate::rlp::RlpList;
use crate::transaction::{self, TransactionJson};

/// keccak(rlp([])): the hash of no uncles.
const EMPTY_UNCLES: B256 =
    b256!("0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347");
/// Most of a field's name that is told.
const FIELD_CHARS_MAX: usize = 40;

object! {
    WithdrawalJson {
        index: "index",
        validator_index: "validatorIndex",
        address: "address",
        amount: "amount",
    }
}

/// A block or header; `whole` says whether transactions were asked for whole, if known.
pub(crate) fn block(
    audit: &mut Audit<'_>,
    asked: RequestedBlock,
    whole: Option<bool>,
    answer: Value<'_>,
) -> Result<(), InvalidAnswer> {
    let block: BlockJson<'_> = answer.read()?;
    if asked.pending {
        audit.doubt(Why::Pending);
        return Ok(());
    }
    let place = BlockPosition {
        number: must(block.number, "number", Value::quantity)?,
        hash: must(block.hash, "hash", Value::hash)?,
    };
    audit.names(asked, place)?;
    if audit.full {
        block_hash(audit, &block, place.hash)?;
        uncles(audit, &block)?;
        withdrawals(audit, &block)?;
    }
    match block.transactions {
        Some(list) => transactions(audit, &block, list, whole, place),
        None => Ok(()),
    }
}

fn block_hash(
    audit: &mut Audit<'_>,
    block: &BlockJson<'_>,
    hash: B256,
) -> Result<(), InvalidAnswer> {
    let Some(header) = audit.take(encode(block))? else { return Ok(()) };
    let computed = keccak256(header);
    if computed == hash {
        return Ok(());
    }
    if let Some(field) = &block.other {
        let field = field.chars().take(FIELD_CHARS_MAX).collect();
        audit.doubt(Why::HeaderField { field });
        return Ok(());
    }
    audit.differs(Check::BlockHash, format!("named {hash}, computed {computed}"))
}

/// The header's RLP: fifteen fields of old, and those that forks added, one after another.
fn encode(block: &BlockJson<'_>) -> Result<Vec<u8>, Obstacle> {
    let mut list = RlpList::default();
    list.add(&want(block.parent_hash, "parentHash", Value::hash)?);
    list.add(&want(block.sha3_uncles, "sha3Uncles", Value::hash)?);
    list.add(&want(block.miner, "miner", Value::address)?);
    list.add(&want(block.state_root, "stateRoot", Value::hash)?);
    list.add(&want(block.transactions_root, "transactionsRoot", Value::hash)?);
    list.add(&want(block.receipts_root, "receiptsRoot", Value::hash)?);
    list.add(&want(block.logs_bloom, "logsBloom", |bloom| bloom.fixed::<256>().map(Bloom::new))?);
    list.add(&want(block.difficulty, "difficulty", Value::big)?);
    list.add(&want(block.number, "number", Value::big)?);
    list.add(&want(block.gas_limit, "gasLimit", Value::big)?);
    list.add(&want(block.gas_used, "gasUsed", Value::big)?);
    list.add(&want(block.timestamp, "timestamp", Value::big)?);
    list.add_bytes(want(block.extra_data, "extraData", Value::data)?);
    list.add(&want(block.mix_hash, "mixHash", Value::hash)?);
    list.add_bytes(want(block.nonce, "nonce", Value::fixed::<8>)?.to_vec());
    // London, Shanghai, Cancun (three), Prague. None can be there without those before it.
    let later = [
        (block.base_fee, "baseFeePerGas", false),
        (block.withdrawals_root, "withdrawalsRoot", true),
        (block.blob_gas_used, "blobGasUsed", false),
        (block.excess_blob_gas, "excessBlobGas", false),
        (block.parent_beacon_root, "parentBeaconBlockRoot", true),
        (block.requests_hash, "requestsHash", true),
    ];
    let count = later.iter().rposition(|(value, ..)| value.is_some()).map_or(0, |last| last + 1);
    for (value, name, is_hash) in later.into_iter().take(count) {
        if is_hash {
            list.add(&want(value, name, Value::hash)?);
        } else {
            list.add(&want(value, name, Value::big)?);
        }
    }
    Ok(list.close(None))
}

fn uncles(audit: &mut Audit<'_>, block: &BlockJson<'_>) -> Result<(), InvalidAnswer> {
    let Some(list) = block.uncles else { return Ok(()) };
    let Some(hash) = audit.take(want(block.sha3_uncles, "sha3Uncles", Value::hash))? else {
        return Ok(());
    };
    let mut count = 0;
    list.each::<Value<'_>>(|_, uncle| {
        count += 1;
        uncle.hash().map(|_| ()).ok_or_else(|| crate::audit::misshapen("uncles", uncle))
    })?;
    match (count == 0, hash == EMPTY_UNCLES) {
        (true, true) => Ok(()),
        (false, false) => {
            audit.doubt(Why::UnclesByHash);
            Ok(())
        }
        (true, false) | (false, true) => {
            audit.differs(Check::Uncles, format!("{count} uncles, but their hash is {hash}"))
        }
    }
}

fn withdrawals(audit: &mut Audit<'_>, block: &BlockJson<'_>) -> Result<(), InvalidAnswer> {
    let (Some(list), Some(root)) = (block.withdrawals, block.withdrawals_root) else {
        if block.withdrawals.is_some() {
            audit.doubt(Why::Missing { field: "withdrawalsRoot" });
        }
        return Ok(());
    };
    let root = must(Some(root), "withdrawalsRoot", Value::hash)?;
    let mut encoded = Some(Vec::new());
    list.each::<WithdrawalJson<'_>>(|_, withdrawal| {
        match (audit.take(encode_withdrawal(&withdrawal))?, &mut encoded) {
            (Some(bytes), Some(all)) => all.push(bytes),
            (None, _) => encoded = None,
            (Some(_), None) => {}
        }
        Ok(())
    })?;
    let Some(encoded) = encoded else { return Ok(()) };
    let computed = ordered_trie_root_encoded(&encoded);
    if computed == root {
        return Ok(());
    }
    audit.differs(Check::WithdrawalsRoot, format!("named {root}, computed {computed}"))
}

fn encode_withdrawal(withdrawal: &WithdrawalJson<'_>) -> Result<Vec<u8>, Obstacle> {
    let mut list = RlpList::default();
    list.add(&want(withdrawal.index, "index", Value::quantity)?);
    list.add(&want(withdrawal.validator_index, "validatorIndex", Value::quantity)?);
    list.add(&want(withdrawal.address, "address", Value::address)?);
    list.add(&want(withdrawal.amount, "amount", Value::quantity)?);
    Ok(list.close(None))
}

fn transactions(
    audit: &mut Audit<'_>,
    block: &BlockJson<'_>,
    list: Value<'_>,
    whole: Option<bool>,
    place: BlockPosition,
) -> Result<(), InvalidAnswer> {
    let (mut count, mut hashes) = (0, 0);
    let mut encoded = Vec::new();
    list.each::<HashOrObject<'_, TransactionJson<'_>>>(|index, entry| {
        count += 1;
        let is_whole = matches!(entry, HashOrObject::Whole(_));
        if whole.is_some_and(|whole| whole != is_whole) {
            let detail =
                format!("transaction {index} is {}", ["a hash", "whole"][usize::from(is_whole)]);
            return Err(InvalidAnswer::new(Check::Shape, detail));
        }
        match entry {
            HashOrObject::Hash(text) => {
                hashes += 1;
                let shape =
                    || InvalidAnswer::new(Check::Shape, format!("transaction {index} is no hash"));
                hash_of(text).map(|_| ()).ok_or_else(shape)
            }
            HashOrObject::Whole(tx) => {
                audit.stands(place, tx.block_number, tx.block_hash)?;
                transaction::numbered(audit, tx.index, index)?;
                encoded.extend(transaction::check(audit, &tx)?);
                Ok(())
            }
        }
    })?;
    // What could not be encoded is a doubt already.
    if !audit.full || (encoded.len() < count && hashes == 0) {
        return Ok(());
    }
    let named = want(block.transactions_root, "transactionsRoot", Value::hash);
    let Some(root) = audit.take(named)? else { return Ok(()) };
    if hashes > 0 {
        // Hashes alone do not make the root, but they say that there is something.
        return match root == EMPTY_ROOT_HASH {
            true => audit.differs(Check::TransactionsRoot, format!("{count} where none can be")),
            false => Ok(()),
        };
    }
    let computed = ordered_trie_root_encoded(&encoded);
    if computed == root {
        return Ok(());
    }
    audit.differs(Check::TransactionsRoot, format!("named {root}, computed {computed}"))
}
