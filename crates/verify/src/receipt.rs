//! Receipts, alone and of a whole block.

use alloy_primitives::{Address, B256, Bloom, BloomInput, Bytes};
use alloy_trie::root::ordered_trie_root_encoded;

use crate::audit::{Audit, BlockPosition, RequestedBlock, must, want};
use crate::finding::{Check, InvalidAnswer, Obstacle, Why};
use crate::header::HeaderFacts;
use crate::json::{Value, object};
use crate::log::{LogJson, order, topics};
use crate::rlp::RlpList;
use crate::transaction;

object! {
    ReceiptJson {
        hash: "transactionHash",
        index: "transactionIndex",
        block_hash: "blockHash",
        block_number: "blockNumber",
        kind: "type",
        status: "status",
        root: "root",
        cumulative_gas: "cumulativeGasUsed",
        gas: "gasUsed",
        bloom: "logsBloom",
        logs: "logs",
    }
}

/// The receipt of the transaction `asked`, or of any when the call named none.
pub(crate) fn one(
    audit: &mut Audit<'_>,
    asked: B256,
    answer: Value<'_>,
) -> Result<(), InvalidAnswer> {
    let receipt: ReceiptJson<'_> = answer.read()?;
    let hash = must(receipt.hash, "transactionHash", Value::hash)?;
    if hash != asked {
        let detail = format!("the receipt of {hash}, not of {asked}");
        return Err(InvalidAnswer::new(Check::AskedHash, detail));
    }
    let Some(place) = place(audit, &receipt)? else { return Ok(()) };
    inside(audit, &receipt, hash, place, &mut None)?;
    Ok(())
}

/// All receipts of a block.
pub(crate) fn all(
    audit: &mut Audit<'_>,
    asked: RequestedBlock,
    answer: Value<'_>,
) -> Result<(), InvalidAnswer> {
    let mut sum = Sum { last_log: None, gas: 0, bloom: Bloom::ZERO, encoded: Vec::new() };
    let mut of_block = None;
    let mut count = 0;
    if asked.pending {
        audit.doubt(Why::Pending);
        return Ok(());
    }
    answer.each::<ReceiptJson<'_>>(|index, receipt| {
        count += 1;
        let hash = must(receipt.hash, "transactionHash", Value::hash)?;
        transaction::numbered(audit, receipt.index, index)?;
        let block = match of_block {
            Some(block) => block,
            None => {
                let Some(place) = place(audit, &receipt)? else { return Ok(()) };
                audit.names(asked, place)?;
                *of_block.insert(place)
            }
        };
        audit.stands(block, receipt.block_number, receipt.block_hash)?;
        let made = inside(audit, &receipt, hash, block, &mut sum.last_log)?;
        if let Some(made) = made {
            gas(audit, &receipt, index, &mut sum.gas)?;
            sum.bloom.accrue_bloom(&made.bloom);
            sum.encoded.push(made.encoded);
        }
        Ok(())
    })?;
    if !audit.full || sum.encoded.len() < count {
        return Ok(());
    }
    match audit.known.header {
        Some(header) => sum.compare(audit, header),
        None => {
            audit.doubt(Why::NoHeader);
            Ok(())
        }
    }
}

/// What all receipts come to.
struct Sum {
    last_log: Option<u64>,
    gas: u64,
    bloom: Bloom,
    encoded: Vec<Vec<u8>>,
}

impl Sum {
    fn compare(&self, audit: &mut Audit<'_>, header: &HeaderFacts) -> Result<(), InvalidAnswer> {
        let root = ordered_trie_root_encoded(&self.encoded);
        if root != header.receipts_root {
            let detail = format!("the header says {}, computed {root}", header.receipts_root);
            audit.differs(Check::ReceiptsRoot, detail)?;
        }
        if self.bloom != header.logs_bloom {
            let detail = "the header's bloom is not that of the logs".to_owned();
            audit.differs(Check::BlockBloom, detail)?;
        }
        if self.gas != header.gas_used {
            let detail = format!("{} in all, the header says {}", self.gas, header.gas_used);
            audit.differs(Check::Gas, detail)?;
        }
        Ok(())
    }
}

/// Where the receipt says it stands; `None` when it does not say.
fn place(
    audit: &mut Audit<'_>,
    receipt: &ReceiptJson<'_>,
) -> Result<Option<BlockPosition>, InvalidAnswer> {
    let number = audit.take(want(receipt.block_number, "blockNumber", Value::quantity))?;
    let hash = audit.take(want(receipt.block_hash, "blockHash", Value::hash))?;
    Ok(number.zip(hash).map(|(number, hash)| BlockPosition { number, hash }))
}

/// What follows from a receipt that could be recomputed.
struct Made {
    bloom: Bloom,
    encoded: Vec<u8>,
}

/// The receipt's own logs, and at the level `full` its bloom and bytes.
fn inside(
    audit: &mut Audit<'_>,
    receipt: &ReceiptJson<'_>,
    hash: B256,
    place: BlockPosition,
    last_log: &mut Option<u64>,
) -> Result<Option<Made>, InvalidAnswer> {
    let Some(list) = audit.take(receipt.logs.ok_or(Why::Missing { field: "logs" }.into()))? else {
        return Ok(None);
    };
    let index = receipt.index.and_then(Value::quantity);
    let mut logs = RlpList::default();
    let mut bloom = Bloom::ZERO;
    let mut complete = audit.full;
    list.each::<LogJson<'_>>(|_, log| {
        audit.stands(place, log.block_number, log.block_hash)?;
        if let Some(named) = audit.take(want(log.transaction, "transactionHash", Value::hash))?
            && named != hash
        {
            let detail = format!("a log of {named} in the receipt of {hash}");
            return Err(InvalidAnswer::new(Check::OneBlock, detail));
        }
        let named = audit.take(want(log.transaction_index, "transactionIndex", Value::quantity))?;
        if let (Some(named), Some(index)) = (named, index)
            && named != index
        {
            let detail = format!("a log of transaction {named} in the receipt of {index}");
            return Err(InvalidAnswer::new(Check::OneBlock, detail));
        }
        order(audit, &log, last_log)?;
        if complete {
            match audit.take(encode_log(&log, &mut bloom))? {
                Some(encoded) => logs.add_encoded(&encoded),
                None => complete = false,
            }
        }
        Ok(())
    })?;
    if !complete {
        return Ok(None);
    }
    let named = want(receipt.bloom, "logsBloom", |bloom| bloom.fixed::<256>().map(Bloom::new));
    match audit.take(named)? {
        Some(named) if named != bloom => {
            audit
                .differs(Check::ReceiptBloom, format!("the bloom of {hash} is not of its logs"))?;
            Ok(None)
        }
        Some(_) => {
            let encoded = audit.take(encode(receipt, &bloom, &logs))?;
            Ok(encoded.map(|encoded| Made { bloom, encoded }))
        }
        None => Ok(None),
    }
}

fn encode_log(log: &LogJson<'_>, bloom: &mut Bloom) -> Result<Vec<u8>, Obstacle> {
    let address: Address = want(log.address, "address", Value::address)?;
    let (topics, count) = topics(log)?;
    let topics = &topics[..count];
    bloom.accrue(BloomInput::Raw(address.as_slice()));
    let mut hashes = RlpList::default();
    for topic in topics {
        bloom.accrue(BloomInput::Raw(topic.as_slice()));
        hashes.add(topic);
    }
    let mut list = RlpList::default();
    list.add(&address);
    list.add_encoded(&hashes.close(None));
    list.add(&Bytes::from(want(log.data, "data", Value::data)?));
    Ok(list.close(None))
}

/// The bytes that the block commits to.
fn encode(receipt: &ReceiptJson<'_>, bloom: &Bloom, logs: &RlpList) -> Result<Vec<u8>, Obstacle> {
    let prefix = transaction::prefix(transaction::kind(receipt.kind)?)?;
    let mut list = RlpList::default();
    match receipt.status {
        Some(status) => match status.quantity() {
            Some(status @ (0 | 1)) => list.add(&status),
            _ => return Err(crate::audit::misshapen("status", status).into()),
        },
        // Before Byzantium: the state after the transaction.
        None => list.add(&want(receipt.root, "status", Value::hash)?),
    }
    list.add(&want(receipt.cumulative_gas, "cumulativeGasUsed", Value::quantity)?);
    list.add(bloom);
    list.add_encoded(&logs.close(None));
    Ok(list.close(prefix))
}

/// The receipt's gas is what it adds to the sum.
fn gas(
    audit: &mut Audit<'_>,
    receipt: &ReceiptJson<'_>,
    index: usize,
    sum: &mut u64,
) -> Result<(), InvalidAnswer> {
    let own = audit.take(want(receipt.gas, "gasUsed", Value::quantity))?;
    let after = audit.take(want(receipt.cumulative_gas, "cumulativeGasUsed", Value::quantity))?;
    let (Some(own), Some(after)) = (own, after) else { return Ok(()) };
    let before = std::mem::replace(sum, after);
    if before.checked_add(own) == Some(after) {
        return Ok(());
    }
    audit.differs(Check::Gas, format!("receipt {index}: {before} and {own} make {after}"))
}
