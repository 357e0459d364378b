//! `throttle`: the pace that is kept in silence, and at what it is counted.

use wellhead_analyze::conclude::verdict::{
    Finding,
    FindingBound::{Found, NotUpTo},
    Shaped, ShapingScope as Whose,
};
use wellhead_analyze::measure::plan::FixedPlan;
use wellhead_sim::provider::{DrawnDial, LimitScope};

use crate::harness::{SECOND, concluded, drawn, near, only, rng};

/// As the command has it, but for fewer cells and calls.
fn plan(seed: u64) -> FixedPlan {
    let sizes = [2, 10, 20, 40, 80, 100, 120];
    FixedPlan::throttle(&sizes, &[2, 4], 250, SECOND, &mut rng(seed))
}

async fn shaped(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let dials = drawn(seed, DrawnDial::Shaping);
        let shaping = dials.shaping.unwrap();
        let told = only(concluded(dials, plan(seed)).await);
        let Finding::Shaping(Found(Shaped { calls_per_second, scope, .. })) = told.finding else {
            panic!("seed {seed}, {shaping:?}: {told:#?}");
        };
        let planted = match shaping.scope {
            LimitScope::Connection => Whose::Connection,
            LimitScope::Account => Whose::Account,
        };
        assert_eq!(scope, planted, "seed {seed}, {shaping:?}: {told:#?}");
        near(calls_per_second, shaping.per_second, &(seed, shaping, &told));
    }
}

#[tokio::test(start_paused = true)]
async fn shaping_of_the_first_seeds() {
    shaped(0..10).await;
}

#[tokio::test(start_paused = true)]
async fn shaping_of_further_seeds() {
    shaped(10..20).await;
}

#[tokio::test(start_paused = true)]
async fn no_shaping_where_there_is_none() {
    for seed in 0..4 {
        let mut dials = drawn(seed, DrawnDial::Nothing);
        dials.http2 = seed % 2 == 0;
        let told = only(concluded(dials, plan(seed)).await);
        assert!(matches!(told.finding, Finding::Shaping(NotUpTo(_))), "seed {seed}: {told:#?}");
    }
}

/// Over HTTP/1.1 each call has its connection: what is shaped shows, and whose it is does not.
#[tokio::test(start_paused = true)]
async fn shaping_over_http_1() {
    for seed in 0..4 {
        let mut dials = drawn(seed, DrawnDial::Shaping);
        dials.http2 = false;
        let shaping = dials.shaping.as_mut().unwrap();
        shaping.scope = LimitScope::Account;
        let planted = shaping.per_second;
        let told = only(concluded(dials, plan(seed)).await);
        let Finding::Shaping(Found(Shaped { calls_per_second, scope: Whose::Open, .. })) =
            told.finding
        else {
            panic!("seed {seed}: {told:#?}");
        };
        near(calls_per_second, planted, &(seed, &told));
    }
}
