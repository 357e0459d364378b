//! Makes the next block: waiting transactions first, then the world's own bots.
//!
//! A block follows from the seed, its parent and a salt alone (and from what
//! waits in the pool), never from when or how often it was read.

use std::sync::Arc;

use alloy_consensus::constants::EMPTY_ROOT_HASH;
use alloy_consensus::proofs::calculate_withdrawals_root;
use alloy_consensus::{Header, ReceiptEnvelope, Transaction};
use alloy_eips::eip4895::Withdrawal;
use alloy_eips::eip7685::EMPTY_REQUESTS_HASH;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::abi::{self, selector};
use super::block::{
    BlockBody, Receipt, SimBlock, bloom_of, receipts_root, rlp_size, transactions_root,
};
use super::contract::Contracts;
use super::execute::{self, BASE_GAS, apply, cost_max};
use super::key::AccountKey;
use super::state::State;
use super::tx::{Fee, Tx, TxBody};
use super::{GENESIS_BASE_FEE, WorldConfig};

/// Waiting transactions taken into one block.
const POOL_TXS_PER_BLOCK_MAX: usize = 200;
/// Withdrawals in every block.
const WITHDRAWALS_PER_BLOCK: u64 = 4;
/// Proposers that take turns.
const MINERS: u64 = 4;
/// Gas limit of a bot's contract call.
const CONTRACT_CALL_GAS: u64 = 150_000;

/// The accounts that act in the world.
#[derive(Debug)]
pub(super) struct Cast {
    /// For users of the simulation: bots never touch their nonces.
    pub(super) wallets: Vec<AccountKey>,
    /// Fill the blocks.
    pub(super) bots: Vec<AccountKey>,
    /// Submits the batches that use up gas.
    pub(super) batcher: AccountKey,
}

/// All that decides the next block.
#[derive(Debug)]
pub(super) struct Recipe<'a> {
    pub(super) config: &'a WorldConfig,
    pub(super) contracts: &'a Contracts,
    pub(super) cast: &'a Cast,
    pub(super) parent: &'a SimBlock,
    pub(super) parent_state: &'a State,
    pub(super) waiting: Vec<Arc<Tx>>,
    /// Differs between branches with the same parent.
    pub(super) salt: u64,
}

/// The block without parent.
pub(super) fn genesis(config: &WorldConfig, contracts: &Contracts, cast: &Cast) -> SimBlock {
    let ether = U256::from(10).pow(U256::from(18));
    let mut state = State::empty();
    let people: Vec<Address> =
        cast.wallets.iter().chain(&cast.bots).map(AccountKey::address).collect();
    for person in &people {
        state.account_mut(*person).balance = ether * U256::from(10_000);
    }
    state.account_mut(cast.batcher.address()).balance = ether * U256::from(1_000_000_000);
    contracts.deploy(&mut state, &people);
    let header = Header {
        state_root: keccak256([config.seed.to_be_bytes(), config.chain_id.to_be_bytes()].concat()),
        ..empty_header(config, 0)
    };
    let size = rlp_size(&header, &[], &[]);
    let body = BlockBody { txs: Vec::new(), receipts: Vec::new(), withdrawals: Vec::new(), size };
    SimBlock { hash: header.hash_slow(), header, body: Some(body), state: Some(state) }
}

/// The header of a block without content, parent and proposer, with the fields of the Prague fork.
///
/// The state root is no trie root: see the module `block`.
fn empty_header(config: &WorldConfig, number: u64) -> Header {
    Header {
        number,
        gas_limit: config.gas_limit,
        timestamp: config.timestamp_of(number),
        extra_data: Bytes::from_static(b"simulated"),
        base_fee_per_gas: Some(GENESIS_BASE_FEE),
        withdrawals_root: Some(EMPTY_ROOT_HASH),
        blob_gas_used: Some(0),
        excess_blob_gas: Some(0),
        parent_beacon_block_root: Some(B256::ZERO),
        requests_hash: Some(EMPTY_REQUESTS_HASH),
        ..Header::default()
    }
}

/// Makes the block after `recipe.parent`.
pub(super) fn build(recipe: Recipe<'_>) -> SimBlock {
    let Recipe { config, contracts, parent, .. } = recipe;
    let number = parent.number() + 1;
    let randao = keccak256(
        [&config.seed.to_be_bytes()[..], parent.hash.as_slice(), &recipe.salt.to_be_bytes()]
            .concat(),
    );
    let mut rng = SmallRng::from_seed(randao.0);
    let mut block = BlockDraft {
        config,
        contracts,
        state: recipe.parent_state.clone(),
        base_fee: parent.next_base_fee(),
        gas_used: 0,
        miner: miner(config.seed, rng.random_range(0..MINERS)),
        txs: Vec::new(),
        receipts: Vec::new(),
    };
    block.include_waiting(recipe.waiting);
    if config.txs_per_block > 0 {
        block.include_batch(&mut rng, &recipe.cast.batcher);
        let mean = config.txs_per_block;
        let wanted = rng.random_range(mean.div_ceil(2)..=mean + mean / 2);
        for _ in 0..wanted {
            block.include_bot(&mut rng, recipe.cast);
        }
    }
    let withdrawals = withdraw(&mut rng, recipe.cast, number, &mut block.state);

    let BlockDraft { state, base_fee, gas_used, miner, txs, receipts, .. } = block;
    let (transactions_root, receipts_root) = (transactions_root(&txs), receipts_root(&receipts));
    let header = Header {
        parent_hash: parent.hash,
        beneficiary: miner,
        state_root: execute::chain_state_root(
            parent.header.state_root,
            transactions_root,
            receipts_root,
        ),
        transactions_root,
        receipts_root,
        logs_bloom: bloom_of(&receipts),
        gas_used,
        mix_hash: randao,
        base_fee_per_gas: Some(base_fee),
        withdrawals_root: Some(calculate_withdrawals_root(&withdrawals)),
        parent_beacon_block_root: Some(keccak256(randao)),
        ..empty_header(config, number)
    };
    let size = rlp_size(&header, &txs, &withdrawals);
    let body = BlockBody { txs, receipts, withdrawals, size };
    SimBlock { hash: header.hash_slow(), header, body: Some(body), state: Some(state) }
}

/// A block while it fills.
struct BlockDraft<'a> {
    config: &'a WorldConfig,
    contracts: &'a Contracts,
    state: State,
    base_fee: u64,
    gas_used: u64,
    miner: Address,
    txs: Vec<Arc<Tx>>,
    receipts: Vec<Receipt>,
}

impl BlockDraft<'_> {
    /// Whether `tx` can be the next one.
    fn fits(&self, tx: &Tx) -> bool {
        tx.envelope.nonce() == self.state.nonce(tx.from)
            && tx.envelope.effective_tip_per_gas(self.base_fee).is_some()
            && self.gas_used + tx.envelope.gas_limit() <= self.config.gas_limit
            && self.state.balance(tx.from) >= cost_max(tx)
    }

    /// Runs `tx` when it fits.
    fn include(&mut self, tx: Arc<Tx>) {
        if !self.fits(&tx) {
            return;
        }
        let ran = apply(self.contracts, &mut self.state, &tx, self.base_fee, self.miner);
        self.gas_used += ran.gas_used;
        let receipt = alloy_consensus::Receipt {
            status: ran.outcome.is_ok().into(),
            cumulative_gas_used: self.gas_used,
            logs: ran.logs,
        };
        self.receipts.push(Receipt {
            envelope: ReceiptEnvelope::from_typed(tx.envelope.tx_type(), receipt),
            gas_used: ran.gas_used,
            contract: ran.contract,
        });
        self.txs.push(tx);
    }

    /// Best tip first, nonces in order.
    fn include_waiting(&mut self, mut waiting: Vec<Arc<Tx>>) {
        for _ in 0..POOL_TXS_PER_BLOCK_MAX {
            let best = (0..waiting.len()).filter(|index| self.fits(&waiting[*index])).max_by_key(
                |index| {
                    (
                        waiting[*index].envelope.effective_tip_per_gas(self.base_fee),
                        waiting[*index].hash,
                    )
                },
            );
            let Some(best) = best else { break };
            let tx = waiting.swap_remove(best);
            self.include(tx);
        }
    }

    /// Uses up gas so that the base fee swings around where it started instead
    /// of sinking to nothing under a handful of small transactions.
    fn include_batch(&mut self, rng: &mut SmallRng, batcher: &AccountKey) {
        let percent = match self.base_fee {
            fee if fee > GENESIS_BASE_FEE * 2 => rng.random_range(20..45),
            fee if fee < GENESIS_BASE_FEE / 2 => rng.random_range(55..85),
            _ => rng.random_range(30..70),
        };
        let wanted = self.config.gas_limit / 100 * percent;
        // What the bots will use, roughly.
        let others = u64::from(self.config.txs_per_block) * 45_000 + self.gas_used + 100_000;
        let gas = wanted.saturating_sub(others);
        let mut input = abi::call(selector::SUBMIT_BATCH, &[abi::word(U256::from(gas))]);
        input.extend((0..256).map(|_| rng.random::<u8>()));
        let fee = self.fee(rng);
        self.send(batcher, fee, gas + 100_000, self.contracts.rollup, U256::ZERO, input);
    }

    fn include_bot(&mut self, rng: &mut SmallRng, cast: &Cast) {
        let bot = &cast.bots[rng.random_range(0..cast.bots.len())];
        let other = match rng.random_range(0..cast.bots.len() + cast.wallets.len()) {
            index if index < cast.bots.len() => cast.bots[index].address(),
            index => cast.wallets[index - cast.bots.len()].address(),
        };
        let coin = &self.contracts.coins[rng.random_range(0..2)];
        let (coin_address, unit) = (coin.address, coin.unit());
        let (pair, closed) = (self.contracts.pair, self.contracts.closed);
        let few = U256::from(rng.random_range(1..500u64));
        let amount = abi::word(few * unit / U256::from(10));
        let fee = self.fee(rng);
        let (to, input) = match rng.random_range(0..100) {
            0..=44 => {
                let words = [abi::address_word(other), amount];
                (coin_address, abi::call(selector::TRANSFER, &words))
            }
            45..=69 => {
                let milliether = U256::from(10u64.pow(15));
                return self.send(bot, fee, BASE_GAS, other, few * milliether, Vec::new());
            }
            70..=84 => {
                let first = coin_address == self.contracts.coins[0].address;
                let words = [amount, abi::word(U256::from(u8::from(first)))];
                (pair, abi::call(selector::SWAP, &words))
            }
            85..=94 => {
                (coin_address, abi::call(selector::APPROVE, &[abi::address_word(pair), amount]))
            }
            95..=97 => {
                // More than any account has: a failed transaction with status 0.
                let words = [abi::address_word(other), B256::repeat_byte(0x0f)];
                (coin_address, abi::call(selector::TRANSFER, &words))
            }
            _ => (closed, vec![1, 2, 3, 4]),
        };
        self.send(bot, fee, CONTRACT_CALL_GAS, to, U256::ZERO, input);
    }

    fn fee(&self, rng: &mut SmallRng) -> Fee {
        let tip = u128::from(rng.random_range(50_000_000..2_000_000_000u64));
        let base = u128::from(self.base_fee);
        if rng.random_range(0..100) < 80 {
            Fee::Dynamic { max_fee: base * 2 + tip, max_tip: tip }
        } else {
            Fee::Legacy { gas_price: base + tip }
        }
    }

    fn send(
        &mut self,
        key: &AccountKey,
        fee: Fee,
        gas_limit: u64,
        to: Address,
        value: U256,
        input: Vec<u8>,
    ) {
        let nonce = self.state.nonce(key.address());
        let body = TxBody::transfer(self.config.chain_id, nonce, fee, to, value);
        let body = TxBody { gas_limit, input: input.into(), ..body };
        self.include(Arc::new(body.sign(key)));
    }
}

fn miner(seed: u64, index: u64) -> Address {
    let hash = keccak256([seed.to_be_bytes(), index.to_be_bytes(), *b"proposer"].concat());
    Address::from_slice(&hash[12..])
}

fn withdraw(rng: &mut SmallRng, cast: &Cast, number: u64, state: &mut State) -> Vec<Withdrawal> {
    (0..WITHDRAWALS_PER_BLOCK)
        .map(|index| {
            let address = cast.bots[rng.random_range(0..cast.bots.len())].address();
            let amount = rng.random_range(15_000_000..20_000_000u64);
            state.account_mut(address).balance += U256::from(amount) * U256::from(1_000_000_000u64);
            Withdrawal {
                index: (number - 1) * WITHDRAWALS_PER_BLOCK + index,
                validator_index: rng.random_range(0..1_000_000),
                address,
                amount,
            }
        })
        .collect()
}
