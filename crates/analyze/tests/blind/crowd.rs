//! Connections of ours that are full: there are as many as a rate needs, and where there cannot be,
//! nothing is said of the provider but what its own slowness proves.

use wellhead_analyze::conclude::verdict::{
    Finding,
    FindingBound::{Found, NotUpTo},
    LoadCapacity, NoLoadCapacity, verdicts,
};
use wellhead_analyze::measure::knock::Knocking;
use wellhead_analyze::measure::plan::{
    ExperimentPlan, FixedPlan, LoadTerms, RatePlan, SoakPlan, Stage, WindowPlan,
};
use wellhead_analyze::record::{CellDoubt, Record};
use wellhead_analyze::work::WorkKind;
use wellhead_sim::ProviderDials;
use wellhead_sim::node::LatencyDial;
use wellhead_sim::provider::{LimitScope, Shaping, StreamCap, StreamWay};

use crate::harness::{SECOND, concluded, idle, near, only, played, provider, rng};

/// Answers after 200 ms.
fn far() -> ProviderDials {
    let latency = LatencyDial::even(SECOND / 5, SECOND / 100);
    ProviderDials { latency, ..ProviderDials::default() }
}

/// And bears so few calls at once on a connection that ours are full at 100 calls a second.
fn narrow() -> ProviderDials {
    let stream_cap = Some(StreamCap { max: 3, way: StreamWay::Announced });
    ProviderDials { stream_cap, http2: true, ..far() }
}

fn load(rate: f64) -> FixedPlan {
    FixedPlan::load(&LoadTerms::new(vec![Stage::Rate(rate)], SECOND * 5, WorkKind::Cheap, 4))
}

#[tokio::test(start_paused = true)]
async fn over_http_1_there_are_as_many_as_the_rate_needs() {
    // 80 are under way at a time.
    let told = only(concluded(ProviderDials { http2: false, ..far() }, load(400.0)).await);
    let Finding::Capacity(NotUpTo(NoLoadCapacity { up_to_per_second, p99_ms, .. })) = told.finding
    else {
        panic!("{told:#?}");
    };
    near(up_to_per_second, 400.0, &told);
    assert!(p99_ms < 400.0, "no call waited for a connection: {told:#?}");
}

#[tokio::test(start_paused = true)]
async fn where_ours_are_full_nothing_is_said() {
    let knock = Knocking { settle: SECOND, per_second: 100.0, calls: 300, within: SECOND * 9 };
    let plans: Vec<Box<dyn ExperimentPlan>> = vec![
        Box::new(load(100.0)),
        Box::new(RatePlan::new(100.0, 100.0, 2.0, SECOND * 5, SECOND)),
        Box::new(WindowPlan::new(100.0, 300, SECOND * 20, SECOND)),
        Box::new(FixedPlan::cost(&["eth_call", "eth_getLogs"], knock, SECOND, &mut rng(1))),
        Box::new(SoakPlan::new(Stage::Rate(100.0), SECOND * 20, SECOND * 5, WorkKind::Cheap, 4)),
    ];
    for mut plan in plans {
        let provider = provider(narrow());
        let (run, records) = played(&provider, &mut *plan, idle).await;
        let full = records.iter().filter(|record| match record {
            Record::Cell(cell) => cell.load.doubted() == Some(CellDoubt::Full),
            Record::Rollup(rollup) => rollup.load.doubted() == Some(CellDoubt::Full),
            Record::Call(_) | Record::Wire(_) => false,
        });
        assert!(full.count() > 0, "{}", plan.name());
        for told in verdicts(&run, &records) {
            let silent = matches!(told.finding, Finding::CannotTell { .. });
            // A soak says of each part that it is left out.
            let why = plan.name() == "soak"
                || told.sentence.contains("the analyser's connections were all busy");
            assert!(silent && why, "{told:#?}");
        }
    }
}

/// Ours are full as well, and what filled them is that it does not keep up.
#[tokio::test(start_paused = true)]
async fn a_target_that_grows_slow_is_the_bound() {
    let shaping = Some(Shaping { per_second: 50.0, scope: LimitScope::Account });
    let stages = vec![Stage::Rate(40.0), Stage::Rate(100.0)];
    let terms = LoadTerms::new(stages, SECOND * 10, WorkKind::Cheap, 4);
    let plan = FixedPlan::load(&LoadTerms { rest: SECOND * 5, ..terms });
    let stream_cap = Some(StreamCap { max: 16, way: StreamWay::Announced });
    let dials = ProviderDials { shaping, stream_cap, ..far() };
    let provider = provider(dials);
    let mut plan: Box<dyn ExperimentPlan> = Box::new(plan);
    let (run, records) = played(&provider, &mut *plan, idle).await;
    let waited = records.iter().filter_map(Record::call).filter_map(|call| call.queue).max();
    assert!(waited > Some(100_000), "all places were taken: {waited:?}");
    let told = only(verdicts(&run, &records));
    let Finding::Capacity(Found(LoadCapacity { per_second, .. })) = told.finding else {
        panic!("{told:#?}")
    };
    near(per_second, 40.0, &told);
}
