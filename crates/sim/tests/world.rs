//! The world verifies: hashes, roots, blooms, senders, fees, forks, history.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::sync::Arc;
use std::time::Duration;

use alloy_consensus::Typed2718;
use alloy_consensus::proofs::calculate_withdrawals_root;
use alloy_primitives::{Address, B256, Bloom, U256, keccak256};
use wellhead_sim::world::block::{SimBlock, bloom_of, receipts_root, rlp_size, transactions_root};
use wellhead_sim::world::{Fee, ForkError, PoolError, Standpoint, Tx, TxBody};
use wellhead_sim::{World, WorldConfig};

fn world() -> Arc<World> {
    World::new(WorldConfig::seeded(42))
}

fn blocks(world: &World) -> Vec<Arc<SimBlock>> {
    let chain = world.chain();
    (0..=chain.head().number()).map(|number| chain.canonical(number).unwrap().clone()).collect()
}

fn body(world: &World, nonce: u64) -> TxBody {
    let fee = Fee::Dynamic { max_fee: 100_000_000_000, max_tip: 3_000_000_000 };
    let (chain_id, to) = (world.config().chain_id, Address::repeat_byte(0xaa));
    TxBody::transfer(chain_id, nonce, fee, to, U256::from(1000))
}

fn transfer(world: &World, wallet: usize, nonce: u64) -> Tx {
    body(world, nonce).sign(&world.wallets()[wallet])
}

#[test]
fn every_commitment_of_a_header_can_be_recomputed() {
    let world = world();
    let all = blocks(&world);
    assert_eq!(all.len(), 17);
    for block in &all {
        let (header, body) = (&block.header, block.body.as_ref().unwrap());
        assert_eq!(block.hash, keccak256(alloy_rlp::encode(header)));
        assert_eq!(header.transactions_root, transactions_root(&body.txs));
        assert_eq!(header.receipts_root, receipts_root(&body.receipts));
        assert_eq!(header.withdrawals_root, Some(calculate_withdrawals_root(&body.withdrawals)));
        assert_eq!(header.logs_bloom, bloom_of(&body.receipts));
        let mut bloom = Bloom::ZERO;
        for receipt in &body.receipts {
            bloom.accrue_logs(receipt.envelope.logs());
        }
        assert_eq!(header.logs_bloom, bloom);
        let gas: u64 = body.receipts.iter().map(|receipt| receipt.gas_used).sum();
        assert_eq!(header.gas_used, gas);
        assert_eq!(body.size, rlp_size(header, &body.txs, &body.withdrawals));
    }
    for pair in all.windows(2) {
        assert_eq!(pair[1].header.parent_hash, pair[0].hash);
        assert_eq!(pair[1].base_fee(), pair[0].next_base_fee());
        assert_eq!(pair[1].header.timestamp, pair[0].header.timestamp + 12);
    }
}

#[test]
fn every_transaction_decodes_to_itself_and_its_sender() {
    let world = world();
    let mut seen = 0;
    for block in blocks(&world) {
        for tx in &block.body.as_ref().unwrap().txs {
            assert_eq!(Tx::decode(&tx.raw).as_ref(), Ok(&**tx));
            seen += 1;
        }
    }
    assert!(seen > 60, "only {seen} transactions in the history");
}

#[test]
fn there_is_some_of_everything() {
    let world = world();
    let all = blocks(&world);
    let receipts = || all.iter().flat_map(|block| &block.body.as_ref().unwrap().receipts);
    assert!(receipts().any(|receipt| !receipt.envelope.status()));
    assert!(receipts().any(|receipt| receipt.envelope.is_legacy()));
    assert!(receipts().any(|receipt| receipt.envelope.is_eip1559()));
    assert!(receipts().any(|receipt| receipt.envelope.logs().len() == 4), "no swap");
}

#[test]
fn the_same_seed_gives_the_same_hashes() {
    let hashes = |seed| -> Vec<B256> {
        let world = World::new(WorldConfig::seeded(seed));
        world.reorg(2).unwrap();
        world.mine();
        blocks(&world).iter().map(|block| block.hash).collect()
    };
    assert_eq!(hashes(5), hashes(5));
    assert_ne!(hashes(5), hashes(6));
}

#[test]
fn looking_does_not_change_what_is_mined() {
    let (looked_at, alone) = (world(), world());
    let _ = (looked_at.known(), looked_at.pool_counts(), looked_at.head());
    assert_eq!(looked_at.mine().hash, alone.mine().hash);
}

#[test]
fn the_base_fee_stays_within_reason() {
    let world = World::new(WorldConfig { history_blocks: 150, ..WorldConfig::seeded(3) });
    for block in blocks(&world) {
        let gwei = block.base_fee() as f64 / 1e9;
        assert!((1.0..100.0).contains(&gwei), "{gwei} gwei in block {}", block.number());
    }
}

#[test]
fn block_times_below_a_second_keep_timestamps_in_order() {
    let config = WorldConfig { block_time: Duration::from_millis(250), ..WorldConfig::seeded(1) };
    let stamps: Vec<u64> =
        blocks(&World::new(config)).iter().map(|block| block.header.timestamp).collect();
    assert!(stamps.is_sorted());
    assert_eq!(stamps[16] - stamps[0], 4);
}

#[test]
fn a_reorg_replaces_the_newest_blocks_and_grows_the_chain() {
    let world = world();
    let before = blocks(&world);
    let reorg = world.reorg(3).unwrap();
    let after = blocks(&world);
    assert_eq!(reorg.dropped, before[14..].iter().map(|block| block.hash).collect::<Vec<_>>());
    assert_eq!(reorg.adopted, after[14..].iter().map(|block| block.hash).collect::<Vec<_>>());
    assert_eq!((reorg.dropped.len(), reorg.adopted.len()), (3, 4));
    assert_eq!(before[13].hash, after[13].hash);
    assert_ne!(before[14].hash, after[14].hash);
    for pair in after.windows(2) {
        assert_eq!(pair[1].header.parent_hash, pair[0].hash);
    }
    assert_eq!(world.chain().side_heads(), vec![before[16].hash]);
}

#[test]
fn a_reorg_moves_some_transactions_and_loses_others() {
    let world = World::new(WorldConfig { txs_per_block: 12, ..WorldConfig::seeded(9) });
    let before = blocks(&world);
    world.reorg(4).unwrap();
    let chain = world.chain();
    let view = chain.view(Standpoint::Lag(0));
    let (mut moved, mut lost) = (0, 0);
    for block in &before[13..] {
        for tx in &block.body.as_ref().unwrap().txs {
            match view.tx(&tx.hash) {
                Some((other, _)) => {
                    assert_ne!(other.hash, block.hash);
                    moved += 1;
                }
                None => lost += 1,
            }
        }
    }
    assert!(moved > 0 && lost > 0, "{moved} moved, {lost} lost");
}

#[test]
fn no_reorg_goes_below_the_finalized_block() {
    let world = world();
    assert_eq!(world.reorg(17), Err(ForkError::TooDeep));
    let config = WorldConfig { finalized_distance: 2, ..WorldConfig::seeded(1) };
    let world = World::new(config);
    assert_eq!(world.reorg(3), Err(ForkError::TooDeep));
    assert!(world.reorg(2).is_ok());
    assert_eq!(world.adopt(&B256::repeat_byte(1)), Err(ForkError::UnknownBlock));
}

#[test]
fn side_branches_grow_unseen_until_adopted() {
    let world = world();
    let head = world.head();
    let side = world.fork(1, 3).unwrap();
    assert_eq!(world.head().hash, head.hash);
    assert_eq!(world.chain().side_heads(), vec![side.hash]);
    let reorg = world.adopt(&side.hash).unwrap();
    assert_eq!((reorg.dropped.len(), reorg.adopted.len()), (1, 3));
    assert_eq!(world.head().hash, side.hash);
    // And back again.
    let back = world.adopt(&head.hash).unwrap();
    assert_eq!((back.dropped.len(), back.adopted.len()), (3, 1));
    assert_eq!(world.head().hash, head.hash);
}

#[test]
fn a_sent_transaction_is_in_the_next_block() {
    let world = world();
    let tx = transfer(&world, 0, 0);
    assert_eq!(world.submit(&tx.raw), Ok(tx.hash));
    assert_eq!(world.submit(&tx.raw), Err(PoolError::AlreadyKnown));
    assert_eq!(world.pool_counts(), (1, 0));
    let block = world.mine();
    assert!(block.body.as_ref().unwrap().txs.iter().any(|mined| mined.hash == tx.hash));
    let state = block.state.as_ref().unwrap();
    assert_eq!(state.balance(Address::repeat_byte(0xaa)), U256::from(1000));
    assert_eq!(state.nonce(world.wallets()[0].address()), 1);
    assert_eq!(world.pool_counts(), (0, 0));
    assert_eq!(world.submit(&tx.raw), Err(PoolError::NonceTooLow { next: 1, sent: 0 }));
}

#[test]
fn a_gap_in_the_nonces_makes_a_transaction_wait() {
    let world = world();
    world.submit(&transfer(&world, 0, 1).raw).unwrap();
    world.submit(&transfer(&world, 0, 3).raw).unwrap();
    assert_eq!(world.pool_counts(), (0, 2));
    world.mine();
    assert_eq!(world.pool_counts(), (0, 2));
    world.submit(&transfer(&world, 0, 0).raw).unwrap();
    assert_eq!(world.pool_counts(), (2, 1));
    let block = world.mine();
    assert_eq!(block.state.as_ref().unwrap().nonce(world.wallets()[0].address()), 2);
    assert_eq!(world.pool_counts(), (0, 1));
}

#[test]
fn a_users_transaction_survives_every_reorg() {
    for seed in 0..6 {
        let world = World::new(WorldConfig::seeded(seed));
        let tx = transfer(&world, 2, 0);
        world.submit(&tx.raw).unwrap();
        world.mine();
        world.reorg(1).unwrap();
        world.mine();
        let chain = world.chain();
        assert!(chain.view(Standpoint::Lag(0)).tx(&tx.hash).is_some(), "seed {seed}");
    }
}

#[test]
fn the_pool_refuses_in_geths_words() {
    let world = world();
    let sign = |body: TxBody| body.sign(&world.wallets()[1]).raw;
    let good = body(&world, 0);
    let check = |raw: &[u8], words: &str| {
        let error = world.submit(raw).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    };
    check(&[], "typed transaction too short");
    check(&sign(TxBody { gas_limit: 20_999, ..good.clone() }), "intrinsic gas too low: gas 20999");
    check(&sign(TxBody { gas_limit: 40_000_000, ..good.clone() }), "exceeds block gas limit");
    check(
        &sign(TxBody { chain_id: Some(5), ..good.clone() }),
        "invalid sender: invalid chain id for signer: have 5 want 1337",
    );
    let rich = U256::from(10).pow(U256::from(24));
    check(
        &sign(TxBody { value: rich, ..good.clone() }),
        "insufficient funds for gas * price + value: balance 1000",
    );
    let upside_down = Fee::Dynamic { max_fee: 1, max_tip: 2 };
    check(
        &sign(TxBody { fee: upside_down, ..good.clone() }),
        "max priority fee per gas higher than max fee per gas",
    );
    let unprotected = TxBody { chain_id: None, fee: Fee::Legacy { gas_price: 1 }, ..good.clone() };
    check(&sign(unprotected), "only replay-protected (EIP-155) transactions allowed over RPC");
    world.submit(&sign(good.clone())).unwrap();
    check(&sign(TxBody { value: U256::from(7), ..good }), "replacement transaction underpriced");
}

#[test]
fn old_blocks_lose_their_bodies_and_very_old_ones_vanish() {
    let world = World::new(WorldConfig {
        history_blocks: 40,
        full_blocks: 8,
        headers_max: 16,
        ..WorldConfig::seeded(1)
    });
    let chain = world.chain();
    let check = |number: u64, header: bool, full: bool| {
        let block = chain.canonical(number);
        assert_eq!(block.is_some(), header, "block {number}");
        let has_body = block.is_some_and(|block| block.body.is_some() && block.state.is_some());
        assert_eq!(has_body, full, "block {number}");
    };
    check(0, true, true);
    check(1, false, false);
    check(24, false, false);
    check(25, true, false);
    check(32, true, false);
    check(33, true, true);
    check(40, true, true);
    check(41, false, false);
}

#[test]
fn a_view_knows_only_its_own_past() {
    let world = world();
    let old_head = world.head();
    world.reorg(2).unwrap();
    let chain = world.chain();
    let new_head = chain.head();
    let behind = chain.view(Standpoint::Lag(1));
    assert_eq!(behind.head().number(), new_head.number() - 1);
    assert!(behind.at(new_head.number()).is_none());
    assert!(behind.by_hash(&new_head.hash).is_none());

    let stuck = chain.view(Standpoint::At(old_head.hash));
    assert_eq!(stuck.at(old_head.number()).unwrap().hash, old_head.hash);
    assert_eq!(stuck.at(3).unwrap().hash, chain.canonical(3).unwrap().hash);
    assert_ne!(stuck.at(15).unwrap().hash, chain.canonical(15).unwrap().hash);
    // Never heard of the branch that won.
    assert!(stuck.by_hash(&chain.canonical(15).unwrap().hash).is_none());

    let following = chain.view(Standpoint::Lag(0));
    assert!(following.by_hash(&old_head.hash).is_some());
    assert!(!following.is_ancestor(&old_head));
}

#[test]
fn watchers_are_woken_by_each_head() {
    let world = world();
    let mut tips = world.tips();
    tips.mark_unchanged();
    let block = world.mine();
    assert!(tips.has_changed().unwrap());
    assert_eq!(tips.borrow_and_update().hash, block.hash);
    let reorg = world.reorg(1).unwrap();
    assert_eq!(Some(&tips.borrow_and_update().hash), reorg.adopted.last());
}
