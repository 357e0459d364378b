//! Blocks as the chain stores them: header, body, receipts, and hashes that verify.
//!
//! The state root is the one commitment that is not a trie root: it chains the
//! changes of each block, so that it differs whenever the state does, but no
//! proof can be made against it (`eth_getProof` is not offered).

use std::sync::Arc;

use alloy_primitives::{Address, B64, B256, Bloom, Bytes, Log, U256, b256, keccak256};
use alloy_rlp::{Encodable, Header as RlpHeader, RlpEncodable};
use alloy_trie::root::ordered_trie_root_encoded;

use super::state::State;
use super::tx::Tx;

/// keccak(rlp([])): the hash of no uncles.
pub const EMPTY_UNCLES: B256 =
    b256!("1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347");
/// sha256 of nothing: no execution requests (EIP-7685).
pub const EMPTY_REQUESTS: B256 =
    b256!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");

/// A header with the fields of the Prague fork, in their RLP order.
#[derive(Debug, Clone, PartialEq, Eq, RlpEncodable)]
pub struct BlockHeader {
    /// Hash of the block before.
    pub parent_hash: B256,
    /// Always [`EMPTY_UNCLES`].
    pub uncles_hash: B256,
    /// The account that receives the tips.
    pub miner: Address,
    /// A chained commitment to the state; not a trie root, see the module text.
    pub state_root: B256,
    /// Trie root of the transactions.
    pub transactions_root: B256,
    /// Trie root of the receipts.
    pub receipts_root: B256,
    /// All addresses and topics of the block's logs.
    pub logs_bloom: Bloom,
    /// Zero since the merge.
    pub difficulty: U256,
    /// Height.
    pub number: u64,
    /// Most gas of the block.
    pub gas_limit: u64,
    /// Gas its transactions used.
    pub gas_used: u64,
    /// Unix seconds.
    pub timestamp: u64,
    /// Free text of the proposer.
    pub extra_data: Bytes,
    /// The beacon chain's randomness.
    pub mix_hash: B256,
    /// Zero since the merge.
    pub nonce: B64,
    /// Wei per gas that is burnt (EIP-1559).
    pub base_fee: u64,
    /// Trie root of the withdrawals.
    pub withdrawals_root: B256,
    /// Zero: this chain carries no blobs.
    pub blob_gas_used: u64,
    /// Zero: this chain carries no blobs.
    pub excess_blob_gas: u64,
    /// Root of the parent beacon block.
    pub parent_beacon_root: B256,
    /// Always [`EMPTY_REQUESTS`].
    pub requests_hash: B256,
}

impl BlockHeader {
    /// keccak of the RLP.
    pub fn hash(&self) -> B256 {
        keccak256(alloy_rlp::encode(self))
    }

    /// The base fee of the block after this one (EIP-1559).
    pub fn next_base_fee(&self) -> u64 {
        const CHANGE_DENOMINATOR: u128 = 8;
        const ELASTICITY: u64 = 2;
        let target = u128::from(self.gas_limit / ELASTICITY);
        let (used, base) = (u128::from(self.gas_used), u128::from(self.base_fee));
        let next = if used > target {
            base + (base * (used - target) / target / CHANGE_DENOMINATOR).max(1)
        } else {
            base.saturating_sub(base * (target - used) / target / CHANGE_DENOMINATOR)
        };
        u64::try_from(next).unwrap_or(u64::MAX)
    }
}

/// A validator's balance leaving the beacon chain.
#[derive(Debug, Clone, PartialEq, Eq, RlpEncodable)]
pub struct Withdrawal {
    /// Counts all withdrawals.
    pub index: u64,
    /// Whose stake.
    pub validator_index: u64,
    /// The account that receives it.
    pub address: Address,
    /// In gwei.
    pub amount: u64,
}

/// What one transaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The transaction's type byte.
    pub kind: u8,
    /// Whether it took effect.
    pub success: bool,
    /// Gas of the block up to and with this transaction.
    pub cumulative_gas_used: u64,
    /// Gas of this transaction alone; not part of the RLP.
    pub gas_used: u64,
    /// The logs it left.
    pub logs: Vec<Log>,
    /// Addresses and topics of `logs`.
    pub bloom: Bloom,
    /// Address of the contract it made; not part of the RLP.
    pub contract: Option<Address>,
}

impl Receipt {
    /// EIP-2718 bytes, as they stand in the receipts trie.
    pub fn encoded(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(400);
        self.success.encode(&mut payload);
        self.cumulative_gas_used.encode(&mut payload);
        self.bloom.encode(&mut payload);
        self.logs.encode(&mut payload);
        let mut out = Vec::with_capacity(payload.len() + 5);
        if self.kind != 0 {
            out.push(self.kind);
        }
        RlpHeader { list: true, payload_length: payload.len() }.encode(&mut out);
        out.extend_from_slice(&payload);
        out
    }
}

/// What is dropped when a block grows old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockBody {
    /// In block order.
    pub txs: Vec<Arc<Tx>>,
    /// One per transaction.
    pub receipts: Vec<Receipt>,
    /// In index order.
    pub withdrawals: Vec<Withdrawal>,
    /// Length of the whole block's RLP.
    pub size: u64,
}

impl BlockBody {
    /// Index in the block of the first log of the transaction at `tx_index`.
    pub fn first_log_index(&self, tx_index: usize) -> u64 {
        self.receipts[..tx_index].iter().map(|receipt| receipt.logs.len() as u64).sum()
    }
}

/// One block of the tree.
#[derive(Debug, Clone)]
pub struct SimBlock {
    /// The header.
    pub header: BlockHeader,
    /// Its hash.
    pub hash: B256,
    /// `None` once the block is older than the history kept.
    pub body: Option<BlockBody>,
    /// The state after the block; `None` once it is older than the history kept.
    pub state: Option<State>,
}

impl SimBlock {
    /// Height.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// The block with only its header kept.
    pub(super) fn pruned(&self) -> Self {
        Self { header: self.header.clone(), hash: self.hash, body: None, state: None }
    }
}

/// Trie root of transactions.
pub fn transactions_root(txs: &[Arc<Tx>]) -> B256 {
    let encoded: Vec<&[u8]> = txs.iter().map(|tx| tx.raw.as_ref()).collect();
    ordered_trie_root_encoded(&encoded)
}

/// Trie root of receipts.
pub fn receipts_root(receipts: &[Receipt]) -> B256 {
    let encoded: Vec<Vec<u8>> = receipts.iter().map(Receipt::encoded).collect();
    ordered_trie_root_encoded(&encoded)
}

/// Trie root of withdrawals.
pub fn withdrawals_root(withdrawals: &[Withdrawal]) -> B256 {
    let encoded: Vec<Vec<u8>> = withdrawals.iter().map(alloy_rlp::encode).collect();
    ordered_trie_root_encoded(&encoded)
}

/// The union of all receipts' blooms.
pub fn bloom_of(receipts: &[Receipt]) -> Bloom {
    let mut bloom = Bloom::ZERO;
    for receipt in receipts {
        bloom.accrue_bloom(&receipt.bloom);
    }
    bloom
}

/// Length of the RLP of the whole block: header, transactions, no uncles, withdrawals.
pub fn rlp_size(header: &BlockHeader, txs: &[Arc<Tx>], withdrawals: &[Withdrawal]) -> u64 {
    let typed_len = |tx: &Arc<Tx>| match tx.body.kind() {
        0 => tx.raw.len(),
        _ => tx.raw.length(),
    };
    let list = |payload: usize| payload + alloy_rlp::length_of_length(payload);
    let txs = list(txs.iter().map(typed_len).sum());
    let withdrawals = list(withdrawals.iter().map(Encodable::length).sum());
    list(header.length() + txs + 1 + withdrawals) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_what_they_say() {
        assert_eq!(EMPTY_UNCLES, keccak256([0xc0]));
        assert_eq!(transactions_root(&[]), alloy_trie::EMPTY_ROOT_HASH);
    }
}
