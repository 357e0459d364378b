//! `window`: size, length and kind of what refills, and what a `Retry-After` is worth.

use wellhead_analyze::conclude::verdict::{
    Finding,
    FindingBound::{Found, NotUpTo},
    NoCountLimit, Refilled, RefusalWay, RetryAfterWorth, TokenLimit,
};
use wellhead_analyze::measure::plan::WindowPlan;
use wellhead_sim::provider::{CreditBucket, DrawnDial, Refill, RefusalForm};

use crate::harness::{SECOND, concluded, drawn, near, only};

/// As the command has it.
fn plan() -> WindowPlan {
    WindowPlan::new(400.0, 3_000, SECOND * 150, SECOND * 2)
}

/// What its refusals are worth.
fn pause(bucket: &CreditBucket) -> RetryAfterWorth {
    let RefusalForm::Status { retry_after: Some(asked), .. } = bucket.refusal else {
        return RetryAfterWorth::NotGiven;
    };
    match bucket.refill {
        Refill::Window { length } | Refill::Sliding { length } if length > asked => {
            RetryAfterWorth::TooShort
        }
        Refill::Steady { .. } | Refill::Window { .. } | Refill::Sliding { .. } => {
            RetryAfterWorth::Holds
        }
    }
}

async fn found(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut dials = drawn(seed, DrawnDial::Window);
        dials.http2 = seed % 5 != 0;
        let bucket = dials.buckets[0].clone();
        let told = only(concluded(dials, plan()).await);
        let about = (seed, &bucket, &told);
        let Finding::Bucket(Found(TokenLimit {
            size,
            refill_per_second,
            window_s,
            refill,
            way,
            retry_after,
        })) = told.finding
        else {
            panic!("{about:#?}");
        };
        near(size as f64, bucket.calls_at_once("eth_blockNumber"), &about);
        near(refill_per_second, bucket.calls_per_second("eth_blockNumber"), &about);
        near(window_s, bucket.window().unwrap().as_secs_f64(), &about);
        let planted = match bucket.refill {
            Refill::Steady { .. } => Refilled::Evenly,
            Refill::Window { .. } => Refilled::Window,
            Refill::Sliding { .. } => Refilled::Sliding,
        };
        assert_eq!(refill, planted, "{about:#?}");
        assert_eq!(retry_after, pause(&bucket), "{about:#?}");
        let planted = match bucket.refusal {
            RefusalForm::Status { .. } => RefusalWay::Status429,
            RefusalForm::InBody { .. } => RefusalWay::InBody,
        };
        assert_eq!(way, planted, "{about:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn windows_of_the_first_seeds() {
    found(0..10).await;
}

#[tokio::test(start_paused = true)]
async fn windows_of_further_seeds() {
    found(10..20).await;
}

#[tokio::test(start_paused = true)]
async fn none_where_there_is_none() {
    for seed in 0..5 {
        let dials = drawn(seed, DrawnDial::Nothing);
        let plan = WindowPlan::new(400.0, 800, SECOND * 150, SECOND * 2);
        let told = only(concluded(dials, plan).await);
        assert!(
            matches!(told.finding, Finding::Bucket(NotUpTo(NoCountLimit { up_to: 800 }))),
            "{told:#?}"
        );
    }
}

/// The fake's windows of an hour are longer than the plan waits.
#[tokio::test(start_paused = true)]
async fn a_window_that_is_not_seen_to_its_end_is_not_guessed() {
    let mut dials = drawn(1, DrawnDial::Nothing);
    dials.buckets = vec![CreditBucket::fixed(100.0, SECOND * 3_600, RefusalForm::too_many(None))];
    let told = concluded(dials, plan()).await;
    let [limit, end] = &told[..] else { panic!("{told:#?}") };
    assert!(matches!(limit.finding, Finding::CannotTell { .. }), "{told:#?}");
    assert!(limit.sentence.contains(" calls are served and then none"), "{told:#?}");
    // And nothing more would be sent.
    assert!(matches!(end.finding, Finding::Ended { .. }), "{told:#?}");
}
