//! Blocks as the chain stores them: header, body, receipts, and hashes that verify.
//!
//! The state root is the one commitment that is not a trie root: it chains the
//! changes of each block, so that it differs whenever the state does, but no
//! proof can be made against it (`eth_getProof` is not offered).

use std::sync::Arc;

use alloy_consensus::{Header, ReceiptEnvelope};
use alloy_eips::eip1559::BaseFeeParams;
use alloy_eips::eip2718::Encodable2718;
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256, Bloom};
use alloy_rlp::Encodable;
use alloy_trie::root::{ordered_trie_root_encoded, ordered_trie_root_with_encoder};

use super::state::State;
use super::tx::Tx;

/// What one transaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// What stands in the receipts trie.
    pub envelope: ReceiptEnvelope,
    /// Gas of this transaction alone.
    pub gas_used: u64,
    /// Address of the contract it made.
    pub contract: Option<Address>,
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
        self.receipts[..tx_index].iter().map(|receipt| receipt.envelope.logs().len() as u64).sum()
    }
}

/// One block of the tree.
#[derive(Debug, Clone)]
pub struct SimBlock {
    /// The header.
    pub header: Header,
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

    /// Wei per gas that is burnt (EIP-1559).
    pub fn base_fee(&self) -> u64 {
        self.header.base_fee_per_gas.unwrap_or_default()
    }

    /// The base fee of the block after this one.
    pub fn next_base_fee(&self) -> u64 {
        self.header.next_block_base_fee(BaseFeeParams::ethereum()).unwrap_or_default()
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
    ordered_trie_root_with_encoder(receipts, |receipt, out| receipt.envelope.encode_2718(out))
}

/// The union of all receipts' blooms.
pub fn bloom_of(receipts: &[Receipt]) -> Bloom {
    let mut bloom = Bloom::ZERO;
    for receipt in receipts {
        bloom.accrue_bloom(receipt.envelope.logs_bloom());
    }
    bloom
}

/// Length of the RLP of the whole block: header, transactions, no uncles, withdrawals.
pub fn rlp_size(header: &Header, txs: &[Arc<Tx>], withdrawals: &[Withdrawal]) -> u64 {
    let list = |payload: usize| payload + alloy_rlp::length_of_length(payload);
    let txs = list(txs.iter().map(|tx| tx.envelope.network_len()).sum());
    let withdrawals = list(withdrawals.iter().map(Encodable::length).sum());
    list(header.length() + txs + 1 + withdrawals) as u64
}
