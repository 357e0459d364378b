//! `rate`: the calls a second that pass in the long run, whatever refills them.

use wellhead_analyze::conclude::verdict::{
    Confidence, Finding,
    FindingBound::{Found, NotUpTo},
    NoRateLimit, RefusalWay, RefusedRate,
};
use wellhead_analyze::measure::plan::RatePlan;
use wellhead_sim::provider::{CreditBucket, DrawnDial, LimitScope, Refill, RefusalForm, Shaping};

use crate::harness::{SECOND, concluded, drawn, near, only};

/// Each rate for three of the longest windows, as the command has it.
fn plan(from: f64, to: f64) -> RatePlan {
    RatePlan::new(from, to, 2.0, SECOND * 30, SECOND * 2)
}

async fn limited(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut dials = drawn(seed, DrawnDial::Bucket);
        let mut bucket = dials.buckets.remove(0);
        // A quarter of it, 5 to 50 calls a second, so that fewer calls find it.
        bucket.size /= 4.0;
        if let Refill::Steady { per_second } = &mut bucket.refill {
            *per_second /= 4.0;
        }
        dials.buckets = vec![bucket.clone()];
        dials.http2 = seed % 4 != 0;
        let told = only(concluded(dials, plan(10.0, 100.0)).await);
        let Finding::Rate(Found(RefusedRate { per_second, way })) = told.finding else {
            panic!("seed {seed}, {bucket:?}: {told:#?}");
        };
        near(per_second, bucket.calls_per_second("eth_blockNumber"), &(seed, &bucket, &told));
        let planted = match bucket.refusal {
            RefusalForm::Status { .. } => RefusalWay::Status429,
            RefusalForm::InBody { .. } => RefusalWay::InBody,
        };
        assert_eq!(way, planted, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_of_the_first_seeds() {
    limited(0..10).await;
}

#[tokio::test(start_paused = true)]
async fn limits_of_further_seeds() {
    limited(10..20).await;
}

#[tokio::test(start_paused = true)]
async fn no_limit_where_there_is_none() {
    for seed in 0..4 {
        let mut dials = drawn(seed, DrawnDial::Nothing);
        dials.http2 = seed % 2 == 0;
        let told = only(concluded(dials, plan(15.0, 60.0)).await);
        let Finding::Rate(NotUpTo(NoRateLimit { up_to_per_second, kept_s })) = told.finding else {
            panic!("seed {seed}: {told:#?}");
        };
        near(up_to_per_second, 60.0, &seed);
        near(kept_s, 30.0, &seed);
    }
}

/// Of a window of a minute half a minute shows too little, and that is what is said.
#[tokio::test(start_paused = true)]
async fn too_short_a_look_tells_nothing() {
    let mut dials = drawn(1, DrawnDial::Nothing);
    dials.buckets = vec![CreditBucket::fixed(600.0, SECOND * 60, RefusalForm::too_many(None))];
    let told = only(concluded(dials, plan(20.0, 80.0)).await);
    assert!(matches!(told.finding, Finding::CannotTell { .. }), "{told:#?}");
    assert!(told.sentence.contains("run `window`"), "{told:#?}");
}

/// A provider that lets calls wait serves no more than it does: served against offered tells that, and no refusal.
#[tokio::test(start_paused = true)]
async fn a_limit_that_lets_calls_wait() {
    for seed in 0..6 {
        let mut dials = drawn(seed, DrawnDial::Nothing);
        let per_second = 12.0 + 7.0 * seed as f64;
        dials.shaping = Some(Shaping { per_second, scope: LimitScope::Account });
        dials.http2 = seed % 2 == 0;
        let told = only(concluded(dials, plan(10.0, 100.0)).await);
        let Finding::Rate(Found(RefusedRate { per_second: found, way })) = told.finding else {
            panic!("seed {seed}, {per_second}: {told:#?}");
        };
        near(found, per_second, &(seed, &told));
        assert_eq!(way, RefusalWay::Queued, "{told:#?}");
        assert!(told.confidence >= Confidence::Medium, "{told:#?}");
        assert!(told.sentence.ends_with("; excess waits"), "{told:#?}");
    }
}

/// A limit is one whatever status tells it: what fails comes with the rate.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_told_by_another_status() {
    for (seed, status) in [(0, 503), (1, 403), (2, 500), (3, 502)] {
        let mut dials = drawn(seed, DrawnDial::Nothing);
        let message = "no".to_owned();
        let refusal = RefusalForm::Status { status, code: -32_000, message, retry_after: None };
        dials.buckets = vec![CreditBucket::fixed(25.0, SECOND, refusal)];
        let told = only(concluded(dials, plan(10.0, 100.0)).await);
        let Finding::Rate(Found(RefusedRate { per_second, way })) = told.finding else {
            panic!("seed {seed}: {told:#?}");
        };
        near(per_second, 25.0, &(seed, &told));
        assert_eq!(way, RefusalWay::OtherStatus(status), "{told:#?}");
        assert!(told.confidence >= Confidence::Medium, "{told:#?}");
    }
}
