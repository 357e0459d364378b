//! `streams`: the cap to the stream and its way, also where calls are metered besides.

use wellhead_analyze::conclude::verdict::{
    CapWay, ExperimentVerdict, Finding,
    FindingBound::{Found, NotUpTo},
    NoCountLimit, StreamLimit,
};
use wellhead_analyze::measure::plan::StreamsPlan;
use wellhead_sim::ProviderDials;
use wellhead_sim::provider::{CreditBucket, DrawnDial, RefusalForm, StreamCap, StreamWay};

use crate::harness::{SECOND, concluded, drawn, only};

async fn told(dials: ProviderDials) -> ExperimentVerdict {
    only(concluded(dials, StreamsPlan::new(8, 256, SECOND)).await)
}

/// The cap is told to the stream, and how it is kept.
#[track_caller]
fn is_told(seed: u64, cap: StreamCap, told: &ExperimentVerdict) {
    let Finding::StreamCap(Found(StreamLimit { streams, way, .. })) = told.finding else {
        panic!("seed {seed}, {cap:?}: {told:#?}");
    };
    let planted = match cap.way {
        StreamWay::Announced => CapWay::Announced,
        StreamWay::Refused { .. } => CapWay::Refused,
        StreamWay::Fatal { .. } => CapWay::Fatal,
    };
    assert_eq!((streams, way), (u64::from(cap.max), planted), "seed {seed}, {cap:?}: {told:#?}");
}

#[tokio::test(start_paused = true)]
async fn caps() {
    for seed in 0..20 {
        let dials = drawn(seed, DrawnDial::Streams);
        is_told(seed, dials.stream_cap.unwrap(), &told(dials).await);
    }
}

#[tokio::test(start_paused = true)]
async fn no_cap_where_there_is_none() {
    for seed in 0..5 {
        let dials = drawn(seed, DrawnDial::Nothing);
        let told = told(dials).await;
        assert!(
            matches!(told.finding, Finding::StreamCap(NotUpTo(NoCountLimit { up_to: 256 }))),
            "{told:#?}"
        );
    }
}

/// Most providers meter calls as well: their refusals are streams as others are.
#[tokio::test(start_paused = true)]
async fn caps_of_providers_that_meter() {
    for seed in 20..30 {
        let mut dials = drawn(seed, DrawnDial::Streams);
        let refusal = match seed % 2 {
            0 => RefusalForm::too_many(None),
            _ => RefusalForm::too_many_in_body(),
        };
        dials.buckets = vec![CreditBucket::steady(60.0, SECOND, refusal)];
        is_told(seed, dials.stream_cap.unwrap(), &told(dials).await);
    }
    let mut dials = drawn(1, DrawnDial::Nothing);
    dials.buckets = vec![CreditBucket::steady(60.0, SECOND, RefusalForm::too_many(None))];
    let told = told(dials).await;
    assert!(
        matches!(told.finding, Finding::StreamCap(NotUpTo(NoCountLimit { up_to: 256 }))),
        "{told:#?}"
    );
    assert!(told.evidence.iter().any(|line| line.contains("calls were throttled in")));
}

/// Whose connections end after some requests, however few at a time, has no cap on streams to tell.
#[tokio::test(start_paused = true)]
async fn an_end_after_some_requests_is_no_cap() {
    for (seed, requests) in [1, 1, 5, 5, 20, 60, 120].into_iter().enumerate() {
        let mut dials = drawn(seed as u64, DrawnDial::Nothing);
        dials.recycle_after = Some(requests);
        dials.recycle_abruptly = seed % 2 == 0;
        let told = told(dials).await;
        assert!(!matches!(told.finding, Finding::StreamCap(Found(_))), "{requests}: {told:#?}");
    }
}
