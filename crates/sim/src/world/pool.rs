//! Transactions that wait for a block, one pool for the whole world.
//!
//! Real nodes each have a pool and gossip; here gossip takes no time, so that a
//! transaction sent to one node is pending on all. Errors are in geth's words.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use alloy_consensus::Transaction;
use alloy_primitives::{Address, B256, U256};

use super::execute::{cost_max, intrinsic_gas};
use super::state::State;
use super::tx::{DecodeError, Tx};

/// Transactions held. At the bound a new one is refused as geth does.
pub const POOL_TXS_MAX: usize = 4096;
/// A replacement must offer this much more, in percent.
const REPLACE_BUMP_PERCENT: u128 = 10;
/// Largest transaction taken, as geth.
const TX_BYTES_MAX: usize = 128 * 1024;

/// Why a transaction was not taken, in geth's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Its bytes are no transaction.
    #[error(transparent)]
    Decode(DecodeError),
    /// The very same is already waiting.
    #[error("already known")]
    AlreadyKnown,
    /// The sender has used this nonce.
    #[error("nonce too low: next nonce {next}, tx nonce {sent}")]
    NonceTooLow {
        /// What would be next.
        next: u64,
        /// What was sent.
        sent: u64,
    },
    /// The sender cannot pay.
    #[error("insufficient funds for gas * price + value: balance {balance}, tx cost {cost}, overshot {}", .cost.saturating_sub(*.balance))]
    InsufficientFunds {
        /// Wei there are.
        balance: U256,
        /// Wei it could cost.
        cost: U256,
    },
    /// Less gas than its bytes alone cost.
    #[error("intrinsic gas too low: gas {have}, minimum needed {want}")]
    IntrinsicGas {
        /// Gas offered.
        have: u64,
        /// Gas needed.
        want: u64,
    },
    /// More gas than a block has.
    #[error("exceeds block gas limit")]
    ExceedsBlockGas,
    /// The tip is above the ceiling.
    #[error(
        "max priority fee per gas higher than max fee per gas: maxPriorityFeePerGas: {tip}, maxFeePerGas: {max_fee}"
    )]
    TipAboveFee {
        /// Wei per gas.
        tip: u128,
        /// Wei per gas.
        max_fee: u128,
    },
    /// Another with this nonce waits and offers about as much.
    #[error("replacement transaction underpriced")]
    ReplacementUnderpriced,
    /// For another chain.
    #[error("invalid sender: invalid chain id for signer: have {have} want {want}")]
    WrongChain {
        /// What it was signed for.
        have: u64,
        /// What this chain is.
        want: u64,
    },
    /// A legacy transaction without a chain id.
    #[error("only replay-protected (EIP-155) transactions allowed over RPC")]
    NotProtected,
    /// More bytes than taken.
    #[error("oversized data")]
    Oversized,
    /// No room.
    #[error("txpool is full")]
    Full,
}

/// What the chain is when a transaction asks to enter.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolAdmission<'a> {
    pub(super) chain_id: u64,
    pub(super) gas_limit: u64,
    pub(super) state: &'a State,
}

/// The waiting transactions, by sender and nonce.
#[derive(Debug, Default)]
pub(super) struct TransactionPool {
    by_sender: BTreeMap<(Address, u64), Arc<Tx>>,
    by_hash: HashMap<B256, (Address, u64)>,
}

impl TransactionPool {
    /// Takes `tx` when the rules allow.
    pub(super) fn add(&mut self, gate: PoolAdmission<'_>, tx: Tx) -> Result<(), PoolError> {
        check(gate, &tx)?;
        if self.by_hash.contains_key(&tx.hash) {
            return Err(PoolError::AlreadyKnown);
        }
        let place = (tx.from, tx.envelope.nonce());
        if let Some(waiting) = self.by_sender.get(&place) {
            let needed = waiting.envelope.max_fee_per_gas() * (100 + REPLACE_BUMP_PERCENT) / 100;
            if tx.envelope.max_fee_per_gas() < needed {
                return Err(PoolError::ReplacementUnderpriced);
            }
            self.by_hash.remove(&waiting.hash);
        } else if self.by_sender.len() >= POOL_TXS_MAX {
            return Err(PoolError::Full);
        }
        self.insert(Arc::new(tx));
        Ok(())
    }

    /// Takes back what a reorg dropped. What has no room is lost, as in life.
    pub(super) fn put_back(&mut self, state: &State, tx: &Arc<Tx>) {
        let place = (tx.from, tx.envelope.nonce());
        let stale = tx.envelope.nonce() < state.nonce(tx.from);
        if !stale && !self.by_sender.contains_key(&place) && self.by_sender.len() < POOL_TXS_MAX {
            self.insert(Arc::clone(tx));
        }
    }

    fn insert(&mut self, tx: Arc<Tx>) {
        let place = (tx.from, tx.envelope.nonce());
        self.by_hash.insert(tx.hash, place);
        self.by_sender.insert(place, tx);
    }

    /// Forgets what can no longer be mined on `state`.
    pub(super) fn drop_stale(&mut self, state: &State) {
        self.by_sender.retain(|(from, nonce), _| *nonce >= state.nonce(*from));
        let by_sender = &self.by_sender;
        self.by_hash.retain(|hash, place| by_sender.get(place).is_some_and(|tx| tx.hash == *hash));
    }

    pub(super) fn get(&self, hash: &B256) -> Option<Arc<Tx>> {
        self.by_hash.get(hash).and_then(|place| self.by_sender.get(place)).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Tx>> {
        self.by_sender.values().cloned().collect()
    }

    /// The nonce after `sender`'s unbroken run of waiting transactions.
    pub(super) fn next_nonce(&self, state: &State, sender: Address) -> u64 {
        let mut nonce = state.nonce(sender);
        for ((_, waiting), _) in self.by_sender.range((sender, nonce)..=(sender, u64::MAX)) {
            if *waiting != nonce {
                break;
            }
            nonce += 1;
        }
        nonce
    }

    /// How many could go into the next block, and how many wait behind a gap.
    pub(super) fn counts(&self, state: &State) -> (u64, u64) {
        let (mut pending, mut queued) = (0, 0);
        let mut expected: Option<(Address, u64)> = None;
        for place in self.by_sender.keys() {
            let next = match expected {
                Some((sender, nonce)) if sender == place.0 => nonce,
                _ => state.nonce(place.0),
            };
            if place.1 == next {
                pending += 1;
                expected = Some((place.0, next + 1));
            } else {
                queued += 1;
                expected = Some((place.0, next));
            }
        }
        (pending, queued)
    }
}

fn check(gate: PoolAdmission<'_>, tx: &Tx) -> Result<(), PoolError> {
    match tx.envelope.chain_id() {
        None => return Err(PoolError::NotProtected),
        Some(have) if have != gate.chain_id => {
            return Err(PoolError::WrongChain { have, want: gate.chain_id });
        }
        Some(_) => {}
    }
    if tx.raw.len() > TX_BYTES_MAX {
        return Err(PoolError::Oversized);
    }
    let (tip, max_fee) = (tx.envelope.priority_fee_or_price(), tx.envelope.max_fee_per_gas());
    if tip > max_fee {
        return Err(PoolError::TipAboveFee { tip, max_fee });
    }
    if tx.envelope.gas_limit() > gate.gas_limit {
        return Err(PoolError::ExceedsBlockGas);
    }
    let want = intrinsic_gas(tx.envelope.kind(), tx.envelope.input());
    if tx.envelope.gas_limit() < want {
        return Err(PoolError::IntrinsicGas { have: tx.envelope.gas_limit(), want });
    }
    let next = gate.state.nonce(tx.from);
    if tx.envelope.nonce() < next {
        return Err(PoolError::NonceTooLow { next, sent: tx.envelope.nonce() });
    }
    let (balance, cost) = (gate.state.balance(tx.from), cost_max(tx));
    if balance < cost {
        return Err(PoolError::InsufficientFunds { balance, cost });
    }
    Ok(())
}
