//! A provider that serves so many calls at a time and refuses the others: that is what is said of it,
//! whatever is played, and not a rate or a window.

use std::time::Duration;

use rand::Rng as _;
use wellhead_analyze::conclude::profile::profile;
use wellhead_analyze::conclude::verdict::{
    Confidence, Finding, FindingBound::Found, RefusalWay, RefusedRate, verdicts,
};
use wellhead_analyze::measure::plan::{ExperimentPlan, FixedPlan, RatePlan, WindowPlan};
use wellhead_sim::ProviderDials;
use wellhead_sim::node::LatencyDial;
use wellhead_sim::provider::{AtOnce, DrawnDial, RefusalForm};

use crate::harness::{SECOND, drawn, idle, only, played, provider, rng};

/// A provider, how many calls it serves at a time, what one takes, and how the others are refused.
fn bounded(seed: u64) -> (ProviderDials, u64, Duration, RefusalWay) {
    let mut rng = rng(seed);
    let mut dials = drawn(seed, DrawnDial::Nothing);
    let calls = rng.random_range(4..40_u64);
    let takes = Duration::from_millis(rng.random_range(40..200));
    dials.latency = LatencyDial::even(takes, takes / 10);
    dials.http2 = seed.is_multiple_of(2);
    let (refusal, way) = match seed % 3 {
        0 => (RefusalForm::too_many(None), RefusalWay::Status429),
        1 => (RefusalForm::status(503, -32_000, "busy"), RefusalWay::OtherStatus(503)),
        _ => (RefusalForm::too_many_in_body(), RefusalWay::InBody),
    };
    dials.at_once = Some(AtOnce { max: calls as usize, refusal: Some(refusal) });
    (dials, calls, takes, way)
}

fn plans(calls: u64, takes: Duration) -> Vec<Box<dyn ExperimentPlan>> {
    // What it serves, calls a second.
    let served = calls as f64 / takes.as_secs_f64();
    let sizes = [1, 5, 10, 20, 40, 80];
    vec![
        Box::new(RatePlan::new(served / 2.0, served * 4.0, 1.5, SECOND * 4, SECOND)),
        Box::new(WindowPlan::new(served * 2.0, 2_000, SECOND * 60, SECOND)),
        Box::new(FixedPlan::throttle(&sizes, &[2, 4], 300, SECOND, &mut rng(calls))),
    ]
}

async fn found(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (dials, calls, takes, way) = bounded(seed);
        for mut plan in plans(calls, takes) {
            let provider = provider(dials.clone());
            let (run, records) = played(&provider, &mut *plan, idle).await;
            let told = only(verdicts(&run, &records));
            let about = format!("seed {seed}, {calls} at {takes:?}, {}: {told:#?}", plan.name());
            assert_eq!(told.finding, Finding::InFlight { calls, way }, "{about}");
            // A flood ends at refusals that say what they are: of others one is played, and seen once.
            if plan.name() == "window" && matches!(way, RefusalWay::OtherStatus(_)) {
                continue;
            }
            assert!(told.confidence >= Confidence::Medium, "{about}");
            let text = profile(&run, &[told]);
            assert!(text.contains(&format!("      in_flight: {calls} # ")), "{text}");
            assert!(!text.contains("calls_per_second"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bounds_of_the_first_seeds() {
    found(0..6).await;
}

#[tokio::test(start_paused = true)]
async fn bounds_of_further_seeds() {
    found(6..12).await;
}

/// One that lets calls wait instead refuses nothing.
#[tokio::test(start_paused = true)]
async fn where_calls_wait_it_is_what_is_served() {
    let (mut dials, calls, takes, _) = bounded(0);
    dials.at_once = Some(AtOnce { max: calls as usize, refusal: None });
    let provider = provider(dials);
    let mut plan = plans(calls, takes).remove(0);
    let (run, records) = played(&provider, &mut *plan, idle).await;
    let told = only(verdicts(&run, &records));
    let Finding::Rate(Found(RefusedRate { per_second, way: RefusalWay::Queued })) = told.finding
    else {
        panic!("{told:#?}");
    };
    crate::harness::near(per_second, calls as f64 / takes.as_secs_f64(), &told);
}
