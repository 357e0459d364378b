//! The state after one block: accounts and contract storage.
//!
//! Each block keeps its own [`State`], so that a question about block N is
//! answered from block N and forks need no undo. Maps are split into shards
//! behind `Arc`s: a new block copies 128 pointers and the shards it touches,
//! not the world. Which contract means what by a slot is decided in `contract`.

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};

/// Shards of each map. More make a change cheaper and an idle block dearer:
/// with a few hundred accounts a shard holds a handful.
const SHARDS: usize = 64;

/// One account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Wei.
    pub balance: U256,
    /// Transactions sent.
    pub nonce: u64,
    /// Empty for accounts with keys.
    pub code: Bytes,
}

/// All accounts and storage after one block. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct State {
    accounts: Shards<Address, Account>,
    storage: Shards<(Address, B256), U256>,
}

impl State {
    /// A state without accounts.
    pub fn empty() -> Self {
        Self { accounts: Shards::new(), storage: Shards::new() }
    }

    /// The account, if anything is known of it.
    pub fn account(&self, address: Address) -> Option<&Account> {
        self.accounts.get(shard_of(address.as_slice()), &address)
    }

    /// Wei of `address`.
    pub fn balance(&self, address: Address) -> U256 {
        self.account(address).map(|account| account.balance).unwrap_or_default()
    }

    /// Transactions sent by `address`.
    pub fn nonce(&self, address: Address) -> u64 {
        self.account(address).map(|account| account.nonce).unwrap_or_default()
    }

    /// Code of `address`, empty for none.
    pub fn code(&self, address: Address) -> Bytes {
        self.account(address).map(|account| account.code.clone()).unwrap_or_default()
    }

    /// The account to change, made when missing.
    pub fn account_mut(&mut self, address: Address) -> &mut Account {
        self.accounts.get_mut(shard_of(address.as_slice()), address)
    }

    /// One storage word; zero when never written.
    pub fn slot(&self, address: Address, slot: B256) -> U256 {
        let key = (address, slot);
        self.storage.get(shard_of(slot.as_slice()), &key).copied().unwrap_or_default()
    }

    /// Writes one storage word.
    pub fn set_slot(&mut self, address: Address, slot: B256, value: U256) {
        *self.storage.get_mut(shard_of(slot.as_slice()), (address, slot)) = value;
    }
}

/// Where Solidity keeps `mapping[key]` when the mapping is declared at `index`.
pub fn mapping_slot(key: B256, index: B256) -> B256 {
    keccak256([key.as_slice(), index.as_slice()].concat())
}

fn shard_of(key: &[u8]) -> usize {
    key.last().map_or(0, |byte| usize::from(*byte) % SHARDS)
}

#[derive(Debug, Clone)]
struct Shards<K, V> {
    shards: Vec<Arc<BTreeMap<K, V>>>,
}

impl<K: Ord + Clone, V: Default + Clone> Shards<K, V> {
    fn new() -> Self {
        Self { shards: vec![Arc::default(); SHARDS] }
    }

    fn get(&self, shard: usize, key: &K) -> Option<&V> {
        self.shards[shard].get(key)
    }

    fn get_mut(&mut self, shard: usize, key: K) -> &mut V {
        Arc::make_mut(&mut self.shards[shard]).entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_state_does_not_see_later_changes() {
        let (alice, slot) = (Address::repeat_byte(1), B256::repeat_byte(2));
        let mut state = State::empty();
        state.account_mut(alice).balance = U256::from(5);
        let before = state.clone();
        state.account_mut(alice).balance = U256::from(6);
        state.set_slot(alice, slot, U256::from(7));
        assert_eq!(before.balance(alice), U256::from(5));
        assert_eq!(before.slot(alice, slot), U256::ZERO);
        assert_eq!(state.balance(alice), U256::from(6));
        assert_eq!(state.slot(alice, slot), U256::from(7));
    }
}
