//! What a block's header says: as it stands in an answer, and what other answers are compared with.

use alloy_primitives::{B256, Bloom};
use wellhead_eth::{BlockHash, BlockNumber};

use crate::json::{Value, object};

object! {
    /// A block, or its header alone.
    BlockJson {
        parent_hash: "parentHash",
        sha3_uncles: "sha3Uncles",
        miner: "miner",
        state_root: "stateRoot",
        transactions_root: "transactionsRoot",
        receipts_root: "receiptsRoot",
        logs_bloom: "logsBloom",
        difficulty: "difficulty",
        number: "number",
        gas_limit: "gasLimit",
        gas_used: "gasUsed",
        timestamp: "timestamp",
        extra_data: "extraData",
        mix_hash: "mixHash",
        nonce: "nonce",
        base_fee: "baseFeePerGas",
        withdrawals_root: "withdrawalsRoot",
        blob_gas_used: "blobGasUsed",
        excess_blob_gas: "excessBlobGas",
        parent_beacon_root: "parentBeaconBlockRoot",
        requests_hash: "requestsHash",
        hash: "hash",
        transactions: "transactions",
        uncles: "uncles",
        withdrawals: "withdrawals",
        // Not part of the header; named here so that it does not count as unknown.
        size: "size",
        total_difficulty: "totalDifficulty",
    }
}

/// What other answers about a block can be compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFacts {
    /// Height.
    pub number: BlockNumber,
    /// The block's name.
    pub hash: BlockHash,
    /// The block before.
    pub parent: BlockHash,
    /// Root of the accounts after the block.
    pub state_root: B256,
    /// Root of its receipts.
    pub receipts_root: B256,
    /// Addresses and topics of all its logs.
    pub logs_bloom: Bloom,
    /// Gas that its transactions used.
    pub gas_used: u64,
}

impl HeaderFacts {
    /// What a block's or header's answer says of itself; `None` when something is missing.
    ///
    /// Nothing is recomputed: believe it only after [`crate::verify`] found the answer
    /// sound at the level `full`, or because several upstreams say the same.
    pub fn read(result: &[u8]) -> Option<Self> {
        let block: BlockJson<'_> = Value::new(result)?.read().ok()?;
        Some(Self {
            number: BlockNumber(block.number?.quantity()?),
            hash: BlockHash(block.hash?.fixed()?),
            parent: BlockHash(block.parent_hash?.fixed()?),
            state_root: block.state_root?.hash()?,
            receipts_root: block.receipts_root?.hash()?,
            logs_bloom: Bloom::new(block.logs_bloom?.fixed()?),
            gas_used: block.gas_used?.quantity()?,
        })
    }
}
