//! `cost`: what methods count, with an interval that holds the truth.

use wellhead_analyze::conclude::verdict::{Confidence, Finding};
use wellhead_analyze::measure::knock::Knocking;
use wellhead_analyze::measure::plan::FixedPlan;
use wellhead_sim::provider::{CreditBucket, DrawnDial, Refill};

use crate::harness::{SECOND, concluded, drawn, near, rng};

const METHODS: [&str; 5] =
    ["eth_blockNumber", "eth_chainId", "eth_getBalance", "eth_call", "eth_getLogs"];

fn plan(seed: u64) -> FixedPlan {
    let terms = Knocking { settle: SECOND, per_second: 300.0, calls: 900, within: SECOND * 60 };
    FixedPlan::cost(&METHODS, terms, SECOND, &mut rng(seed))
}

/// Calls of a method that fit: of a window, what is left of the last is lost.
fn fit(bucket: &CreditBucket, method: &str) -> f64 {
    match bucket.refill {
        Refill::Steady { .. } => bucket.calls_per_second(method),
        Refill::Window { .. } | Refill::Sliding { .. } => bucket.calls_at_once(method).floor(),
    }
}

async fn costs(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let dials = drawn(seed, DrawnDial::Costs);
        let bucket = dials.buckets[0].clone();
        let told = concluded(dials, plan(seed)).await;
        assert_eq!(told.len(), METHODS.len() - 1, "{told:#?}");
        for verdict in &told {
            let about = (seed, &bucket, verdict);
            let Finding::Cost { method, base, observed_ratio, low, high, .. } = &verdict.finding
            else {
                panic!("{about:#?}");
            };
            assert!(verdict.confidence > Confidence::Low, "{about:#?}");
            let planted = bucket.cost(method) / bucket.cost(base);
            assert!(*low <= planted && planted <= *high * 1.02, "{planted}: {about:#?}");
            match planted {
                0.0 => assert!(*observed_ratio == 0.0 && *high < 0.6, "{about:#?}"),
                _ => near(*observed_ratio, fit(&bucket, base) / fit(&bucket, method), &about),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn costs_of_the_first_seeds() {
    costs(0..10).await;
}

#[tokio::test(start_paused = true)]
async fn costs_of_further_seeds() {
    costs(10..20).await;
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_refused_nothing_is_said() {
    let dials = drawn(3, DrawnDial::Nothing);
    let told = concluded(dials, plan(3)).await;
    assert!(matches!(told[0].finding, Finding::CannotTell { .. }), "{told:#?}");
}
