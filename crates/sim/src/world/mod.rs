//! One simulated chain: deterministic from a seed, advanced only by its owner.
//!
//! Hashes, trie roots, blooms, signatures and base fees verify, so that a
//! checker can tell a true answer from a lie without asking the world. There is
//! no EVM, no gossip and no clock: see `contract`, `pool`, and [`World::mine`].
//! What a node makes of it over JSON-RPC is in [`crate::rpc`].

pub mod abi;
pub mod block;
mod build;
mod chain;
pub mod contract;
pub mod execute;
pub mod key;
mod pool;
pub mod state;
pub mod tx;

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, B256};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

pub use self::block::{BlockBody, Receipt, SimBlock};
pub use self::chain::{BranchView, Chain, Standpoint};
pub use self::contract::Contracts;
pub use self::key::AccountKey;
pub use self::pool::{POOL_TXS_MAX, PoolError};
pub use self::tx::{Fee, Tx, TxBody};

use self::build::{Cast, Recipe};
use self::chain::Switch;
use self::pool::{PoolAdmission, TransactionPool};

/// The base fee of the first block, in wei: around 10 gwei, as on a quiet day.
pub const GENESIS_BASE_FEE: u64 = 10_000_000_000;
/// Of the transactions a reorg drops, the share in percent that never comes back.
const REORG_LOST_PERCENT: u32 = 25;
/// Recent blocks whose hashes and transactions [`World::known`] tells.
const KNOWN_BLOCKS: u64 = 64;

/// What a world is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldConfig {
    /// Everything random follows from it.
    pub seed: u64,
    /// `eth_chainId`.
    pub chain_id: u64,
    /// Unix seconds of block 0.
    pub genesis_time_secs: u64,
    /// Between two blocks.
    pub block_time: Duration,
    /// Blocks mined at the start.
    pub history_blocks: u64,
    /// Accounts with keys that the world itself never uses.
    pub wallets: u32,
    /// Accounts that fill the blocks.
    pub bots: u32,
    /// Mean number of bot transactions in a block; zero for empty blocks.
    pub txs_per_block: u32,
    /// Most gas of a block.
    pub gas_limit: u64,
    /// Newest blocks that keep body and state.
    pub full_blocks: usize,
    /// Newest blocks that keep their header.
    pub headers_max: usize,
    /// How far behind the head the safe block is.
    pub safe_distance: u64,
    /// How far behind the head the finalized block is; no reorg goes deeper.
    pub finalized_distance: u64,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            chain_id: 1337,
            genesis_time_secs: 1_750_000_000,
            block_time: Duration::from_secs(12),
            history_blocks: 16,
            wallets: 8,
            bots: 24,
            txs_per_block: 6,
            gas_limit: 36_000_000,
            full_blocks: 4096,
            headers_max: 65_536,
            safe_distance: 32,
            finalized_distance: 64,
        }
    }
}

impl WorldConfig {
    /// The default world with another seed.
    pub fn seeded(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Unix seconds of the block at this height. Block times below a second give
    /// neighbours the same second.
    pub fn timestamp_of(&self, number: u64) -> u64 {
        let millis = u128::from(number) * self.block_time.as_millis() / 1000;
        self.genesis_time_secs + u64::try_from(millis).unwrap_or(u64::MAX / 2)
    }
}

/// The newest canonical block, as told to watchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tip {
    /// Height.
    pub number: u64,
    /// Hash.
    pub hash: B256,
}

/// What a change of the canonical chain took away and brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalChange {
    /// Hashes no longer canonical, oldest first.
    pub dropped: Vec<B256>,
    /// Hashes now canonical, oldest first.
    pub adopted: Vec<B256>,
}

/// Why the tree cannot be changed so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// The branch would start below the finalized block, the genesis, or the history kept.
    #[error("the branch would start below the finalized block")]
    TooDeep,
    /// No such block.
    #[error("no such block")]
    UnknownBlock,
}

/// What clients may know of the world when they ask: heights, addresses, hashes.
#[derive(Debug, Clone, Default)]
pub struct KnownWorld {
    /// Canonical height.
    pub head: u64,
    /// People's accounts.
    pub accounts: Vec<Address>,
    /// ERC-20 contracts.
    pub coins: Vec<Address>,
    /// The pair contract.
    pub pair: Address,
    /// The contract that always reverts.
    pub closed: Address,
    /// Hashes of recent blocks, newest last.
    pub blocks: Vec<(u64, B256)>,
    /// Hashes of recent transactions, newest last.
    pub txs: Vec<B256>,
}

/// A simulated chain, shared by the nodes that show it.
#[derive(Debug)]
pub struct World {
    config: WorldConfig,
    contracts: Contracts,
    cast: Cast,
    /// Locked before `pool` where both are needed.
    chain: RwLock<Chain>,
    pool: Mutex<TransactionPool>,
    forks: Mutex<u64>,
    tip: watch::Sender<Tip>,
}

impl World {
    /// Builds the world and mines its history.
    pub fn new(config: WorldConfig) -> Arc<Self> {
        let contracts = Contracts::derive(config.seed);
        let keys = |from: u32, count: u32| {
            (from..from + count)
                .map(|index| AccountKey::derive(config.seed, index))
                .collect::<Vec<_>>()
        };
        let cast = Cast {
            batcher: AccountKey::derive(config.seed, 0),
            wallets: keys(1, config.wallets),
            bots: keys(1 + config.wallets, config.bots.max(1)),
        };
        let genesis = build::genesis(&config, &contracts, &cast);
        let tip = Tip { number: 0, hash: genesis.hash };
        let world = Self {
            chain: RwLock::new(Chain::new(genesis, config.full_blocks, config.headers_max)),
            pool: Mutex::default(),
            forks: Mutex::new(0),
            tip: watch::Sender::new(tip),
            contracts,
            cast,
            config,
        };
        for _ in 0..world.config.history_blocks {
            world.mine();
        }
        Arc::new(world)
    }

    /// What it was made from.
    pub fn config(&self) -> &WorldConfig {
        &self.config
    }

    /// Its contracts.
    pub fn contracts(&self) -> &Contracts {
        &self.contracts
    }

    /// Keys of the accounts that only users of the simulation send from.
    pub fn wallets(&self) -> &[AccountKey] {
        &self.cast.wallets
    }

    /// The block tree, locked for reading: keep it for moments.
    pub fn chain(&self) -> RwLockReadGuard<'_, Chain> {
        self.chain.read()
    }

    /// The newest canonical block.
    pub fn head(&self) -> Arc<SimBlock> {
        Arc::clone(self.chain.read().head())
    }

    /// Wakes every task that waits for heads.
    pub fn tips(&self) -> watch::Receiver<Tip> {
        self.tip.subscribe()
    }

    /// Mines one canonical block.
    pub fn mine(&self) -> Arc<SimBlock> {
        let mut chain = self.chain.write();
        let mut pool = self.pool.lock();
        let parent = Arc::clone(chain.head());
        let block = self.build(&parent, pool.all(), 0).expect("the head always keeps its state");
        let block = chain.push(block);
        if let Some(state) = &block.state {
            pool.drop_stale(state);
        }
        drop((chain, pool));
        self.tip.send_replace(Tip { number: block.number(), hash: block.hash });
        block
    }

    /// Builds a branch of `length` blocks that leaves the canonical chain `depth`
    /// blocks below its head, and returns the branch's head. No node follows it yet.
    pub fn fork(&self, depth: u64, length: u64) -> Result<Arc<SimBlock>, ForkError> {
        let mut chain = self.chain.write();
        let head = chain.head().number();
        let reach = depth.min(self.config.finalized_distance);
        let start = head.checked_sub(depth).ok_or(ForkError::TooDeep)?;
        if reach < depth {
            return Err(ForkError::TooDeep);
        }
        let mut parent = Arc::clone(chain.canonical(start).ok_or(ForkError::TooDeep)?);
        let salt = {
            let mut forks = self.forks.lock();
            *forks += 1;
            *forks
        };
        let mut rng = SmallRng::seed_from_u64(self.config.seed ^ salt.rotate_left(32));
        let replaced: Vec<Arc<SimBlock>> =
            (start + 1..=head).filter_map(|number| chain.canonical(number).cloned()).collect();
        let mut waiting = chain::txs_of(&replaced);
        waiting.retain(|_| rng.random_range(0..100) >= REORG_LOST_PERCENT);
        for _ in 0..length {
            let block = self.build(&parent, waiting.clone(), salt).ok_or(ForkError::TooDeep)?;
            parent = chain.push_side(block);
        }
        Ok(parent)
    }

    /// Makes `head` the canonical head. What the old branch had and the new one
    /// has not goes back to the pool.
    pub fn adopt(&self, head: &B256) -> Result<CanonicalChange, ForkError> {
        let mut chain = self.chain.write();
        if chain.by_hash(head).is_none() {
            return Err(ForkError::UnknownBlock);
        }
        let Switch { dropped, adopted } = chain.adopt(head).ok_or(ForkError::TooDeep)?;
        let new_head = Arc::clone(chain.head());
        let mut pool = self.pool.lock();
        if let Some(state) = &new_head.state {
            pool.drop_stale(state);
            let wallets: Vec<Address> = self.cast.wallets.iter().map(AccountKey::address).collect();
            for tx in chain::txs_of(&dropped) {
                // The bots send anew rather than insist, so that some transactions
                // vanish for good; a user's transaction never does.
                if wallets.contains(&tx.from) {
                    pool.put_back(state, &tx);
                }
            }
        }
        drop((chain, pool));
        self.tip.send_replace(Tip { number: new_head.number(), hash: new_head.hash });
        let hashes = |blocks: &[Arc<SimBlock>]| blocks.iter().map(|block| block.hash).collect();
        Ok(CanonicalChange { dropped: hashes(&dropped), adopted: hashes(&adopted) })
    }

    /// Replaces the newest `depth` blocks by `depth + 1` others.
    pub fn reorg(&self, depth: u64) -> Result<CanonicalChange, ForkError> {
        let head = self.fork(depth, depth + 1)?;
        self.adopt(&head.hash)
    }

    /// Takes a signed transaction into the pool; the next block holds it when it can.
    pub fn submit(&self, raw: &[u8]) -> Result<B256, PoolError> {
        self.submit_on(&self.chain.read(), raw)
    }

    /// As [`Self::submit`], for a caller that holds the chain already: a second lock while
    /// a writer waits would never be given.
    pub(crate) fn submit_on(&self, chain: &Chain, raw: &[u8]) -> Result<B256, PoolError> {
        let tx = Tx::decode(raw).map_err(PoolError::Decode)?;
        let hash = tx.hash;
        let state = chain.head().state.as_ref().expect("the head always keeps its state");
        let gate = PoolAdmission {
            chain_id: self.config.chain_id,
            gas_limit: self.config.gas_limit,
            state,
        };
        self.pool.lock().add(gate, tx)?;
        Ok(hash)
    }

    /// A waiting transaction.
    pub fn waiting(&self, hash: &B256) -> Option<Arc<Tx>> {
        self.pool.lock().get(hash)
    }

    /// All waiting transactions, by sender and nonce.
    pub fn all_waiting(&self) -> Vec<Arc<Tx>> {
        self.pool.lock().all()
    }

    /// Their hashes.
    pub fn waiting_hashes(&self) -> Vec<B256> {
        self.all_waiting().iter().map(|tx| tx.hash).collect()
    }

    /// The nonce after those of `account` that wait, seen from `state`.
    pub fn pending_nonce(&self, state: &state::State, account: Address) -> u64 {
        self.pool.lock().next_nonce(state, account)
    }

    /// Waiting transactions that could be mined now, and those behind a gap.
    pub fn pool_counts(&self) -> (u64, u64) {
        self.pool_counts_on(&self.chain.read())
    }

    pub(crate) fn pool_counts_on(&self, chain: &Chain) -> (u64, u64) {
        match &chain.head().state {
            Some(state) => self.pool.lock().counts(state),
            None => (0, 0),
        }
    }

    /// What a client of this world may know at this moment.
    pub fn known(&self) -> KnownWorld {
        let chain = self.chain.read();
        let head = chain.head().number();
        let recent: Vec<&Arc<SimBlock>> = (head.saturating_sub(KNOWN_BLOCKS)..=head)
            .filter_map(|number| chain.canonical(number))
            .collect();
        let people = self.cast.wallets.iter().chain(&self.cast.bots);
        KnownWorld {
            head,
            accounts: people.map(AccountKey::address).collect(),
            coins: self.contracts.coins.iter().map(|coin| coin.address).collect(),
            pair: self.contracts.pair,
            closed: self.contracts.closed,
            blocks: recent.iter().map(|block| (block.number(), block.hash)).collect(),
            txs: recent
                .iter()
                .filter_map(|block| block.body.as_ref())
                .flat_map(|body| body.txs.iter().map(|tx| tx.hash))
                .collect(),
        }
    }

    /// `None` when the parent's state is no longer kept.
    fn build(&self, parent: &SimBlock, waiting: Vec<Arc<Tx>>, salt: u64) -> Option<SimBlock> {
        let parent_state = parent.state.as_ref()?;
        Some(build::build(Recipe {
            config: &self.config,
            contracts: &self.contracts,
            cast: &self.cast,
            parent,
            parent_state,
            waiting,
            salt,
        }))
    }
}
