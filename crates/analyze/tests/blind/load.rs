//! `load`: the highest of the offered rates that is borne, whatever bounds it.

use std::time::Duration;

use rand::Rng as _;
use wellhead_analyze::conclude::verdict::{
    Finding,
    FindingBound::{Found, NotUpTo},
    LoadCapacity, NoLoadCapacity,
};
use wellhead_analyze::measure::plan::{FixedPlan, LoadTerms, Stage};
use wellhead_analyze::work::WorkKind;
use wellhead_sim::ProviderDials;
use wellhead_sim::provider::{DrawnDial, LimitScope, Refill};

use crate::harness::{SECOND, concluded, drawn, near, only, rng};

/// Each rate is so much more than the one before.
const STEP: f64 = 1.1;

/// From about half of `limit` to about one and a half, from where chance has it.
fn plan(seed: u64, limit: f64, lasting: Duration) -> FixedPlan {
    let first = limit * rng(seed).random_range(0.5..0.6);
    let stages = (0..11).map(|nth| Stage::Rate(first * STEP.powi(nth)));
    let terms = LoadTerms::new(stages.collect(), lasting, WorkKind::Cheap, 2);
    FixedPlan::load(&LoadTerms { rest: SECOND * 10, ..terms })
}

async fn borne(seed: u64, dials: ProviderDials, limit: f64, lasting: Duration) {
    let told = only(concluded(dials, plan(seed, limit, lasting)).await);
    let Finding::Capacity(Found(LoadCapacity { per_second, .. })) = told.finding else {
        panic!("seed {seed}, limit {limit}: {told:#?}");
    };
    near(per_second, limit, &(seed, limit, &told));
}

#[tokio::test(start_paused = true)]
async fn what_a_limit_lets_pass() {
    for seed in 0..10 {
        let mut dials = drawn(seed, DrawnDial::Bucket);
        let mut bucket = dials.buckets.remove(0);
        let window = bucket.window().unwrap();
        // 10 to 100 calls a second, or 1 to 10 where that takes longer.
        let part = if window > SECOND { 20.0 } else { 2.0 };
        bucket.size /= part;
        if let Refill::Steady { per_second } = &mut bucket.refill {
            *per_second /= part;
        }
        dials.buckets = vec![bucket.clone()];
        dials.http2 = seed % 4 != 0;
        // A tenth too much empties a full bucket in ten times what fills it.
        let limit = bucket.calls_per_second("eth_blockNumber");
        borne(seed, dials, limit, window * 12).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_served_where_calls_wait_in_silence() {
    for seed in 10..20 {
        let mut dials = drawn(seed, DrawnDial::Shaping);
        let shaping = dials.shaping.as_mut().unwrap();
        shaping.per_second /= 10.0;
        // `plan` has two connections.
        let lines = match shaping.scope {
            LimitScope::Connection => 2.0,
            LimitScope::Account => 1.0,
        };
        let limit = shaping.per_second * lines;
        borne(seed, dials, limit, SECOND * 20).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_limit_where_there_is_none() {
    for seed in 0..4 {
        let mut dials = drawn(seed, DrawnDial::Nothing);
        dials.http2 = seed % 2 == 0;
        let stages = vec![Stage::Rate(10.0), Stage::Rate(40.0)];
        let load = FixedPlan::load(&LoadTerms::new(stages, SECOND * 10, WorkKind::Mix, 2));
        let told = only(concluded(dials, load).await);
        let Finding::Capacity(NotUpTo(NoLoadCapacity { up_to_per_second, .. })) = told.finding
        else {
            panic!("seed {seed}: {told:#?}");
        };
        near(up_to_per_second, 40.0, &seed);
    }
}
