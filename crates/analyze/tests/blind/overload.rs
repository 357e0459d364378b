//! A machine that has too much to do measures itself. Whatever was planted, nothing else is said then than on
//! one that is idle, or nothing at all.

use std::cell::Cell as Slot;
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use wellhead_analyze::conclude::verdict::{
    Confidence, ExperimentVerdict, Finding, FindingBound::Found, verdicts,
};
use wellhead_analyze::measure::knock::Knocking;
use wellhead_analyze::measure::plan::{
    ConnectionPlan, ExperimentPlan, FixedPlan, LoadTerms, RatePlan, SoakPlan, Stage, Sweep,
    WindowPlan,
};
use wellhead_analyze::measure::run::{CpuClock, CpuTime};
use wellhead_analyze::record::Record;
use wellhead_analyze::work::WorkKind;
use wellhead_sim::provider::DrawnDial;

use crate::harness::{SECOND, drawn, idle, played, provider, rng};

thread_local! {
    static BEGUN: Slot<Option<Instant>> = const { Slot::new(None) };
}

/// Shares of the time that has passed.
fn taken(ran: f64, waited: f64) -> Option<CpuTime> {
    let now = Instant::now();
    // The clock of a test that was here before may have been ahead.
    let begun = BEGUN.get().filter(|begun| *begun <= now).unwrap_or(now);
    BEGUN.set(Some(begun));
    let passed = now - begun;
    Some(CpuTime { ran: passed.mul_f64(ran), waited: passed.mul_f64(waited) })
}

/// The thread that sends has been busy for nine tenths of the time.
fn busy() -> Option<CpuTime> {
    taken(0.9, 0.0)
}

/// It has a third of a core, and needs twice as much more.
fn starved() -> Option<CpuTime> {
    taken(0.3, 0.6)
}

/// Something else has the only thread for 40 ms of each 41.
async fn hog() {
    loop {
        sleep(Duration::from_millis(1)).await;
        advance(Duration::from_millis(40)).await;
    }
}

/// A plan, and what is planted where it is played.
type Played = (Box<dyn ExperimentPlan>, DrawnDial);

fn at(subject: DrawnDial, plan: impl ExperimentPlan + 'static) -> Played {
    (Box::new(plan), subject)
}

fn soak(load: Stage) -> SoakPlan {
    SoakPlan::new(load, SECOND * 60, SECOND * 5, WorkKind::Cheap, 1)
}

fn load(stage: Stage, lasting: Duration) -> LoadTerms {
    LoadTerms::new(vec![stage], lasting, WorkKind::Cheap, 2)
}

fn throttle() -> FixedPlan {
    let sizes = [5, 20, 60, 100];
    FixedPlan::throttle(&sizes, &[2, 4], 120, SECOND, &mut rng(1))
}

fn plans() -> Vec<Played> {
    let knock = Knocking { settle: SECOND, per_second: 100.0, calls: 200, within: SECOND * 9 };
    let methods = ["eth_call", "eth_getLogs"];
    vec![
        at(DrawnDial::Bucket, RatePlan::new(40.0, 160.0, 2.0, SECOND * 5, SECOND)),
        at(DrawnDial::Shaping, throttle()),
        at(DrawnDial::Window, WindowPlan::new(100.0, 300, SECOND * 20, SECOND)),
        at(DrawnDial::Costs, FixedPlan::cost(&methods, knock, SECOND, &mut rng(1))),
        at(DrawnDial::Nothing, FixedPlan::load(&load(Stage::Rate(50.0), SECOND * 5))),
        at(DrawnDial::Nothing, soak(Stage::Rate(5.0))),
    ]
}

/// No clock says when their calls begin.
fn closed_plans() -> Vec<Played> {
    let sweep = Sweep {
        connections: vec![2],
        http1_own: false,
        at_once: vec![4],
        bodies: vec![WorkKind::Cheap],
        calls: 20,
        repeats: 2,
    };
    let users = load(Stage::Users(4), SECOND * 3);
    vec![
        at(DrawnDial::Shaping, throttle()),
        at(DrawnDial::Nothing, FixedPlan::protocol(&sweep, SECOND, &mut rng(1))),
        at(DrawnDial::Nothing, FixedPlan::bodies(4, 2, 2, SECOND, &mut rng(1))),
        at(DrawnDial::Nothing, FixedPlan::load(&users)),
        at(DrawnDial::Nothing, FixedPlan::load(&LoadTerms { think: SECOND / 2, ..users })),
        at(DrawnDial::Nothing, FixedPlan::latency(30)),
        at(DrawnDial::Nothing, soak(Stage::Users(3))),
    ]
}

/// What is said, and whether a record says that the generator was overloaded.
async fn said(
    plan: &mut dyn ExperimentPlan,
    subject: DrawnDial,
    cpu: CpuClock,
) -> (Vec<ExperimentVerdict>, bool) {
    let dials = drawn(5, subject);
    let provider = provider(dials);
    let (run, records) = played(&provider, plan, cpu).await;
    let marked = records.iter().any(|record| match record {
        Record::Cell(cell) => cell.load.saturated,
        Record::Rollup(rollup) => rollup.load.saturated,
        Record::Call(_) | Record::Wire(_) => false,
    });
    (verdicts(&run, &records), marked)
}

/// Whether what is said by a busy machine is what an idle one says, or that nothing can be said.
fn agrees(told: &ExperimentVerdict, idle: &[ExperimentVerdict]) -> bool {
    let is_alike = || idle.iter().any(|other| other.finding.alike(&told.finding));
    told.confidence <= Confidence::Low || is_alike()
}

/// Plays each of the plans on an idle machine and on one that is busy as `beside` and `cpu` say.
async fn says_nothing_else<F: Future<Output = ()>>(
    plans: fn() -> Vec<Played>,
    cpu: CpuClock,
    beside: fn() -> F,
) {
    for ((mut plan, subject), (mut again, _)) in plans().into_iter().zip(plans()) {
        let name = plan.name();
        let (idle, _) = said(&mut *plan, subject, idle).await;
        let (told, marked) = tokio::select! {
            said = said(&mut *again, subject, cpu) => said,
            () = beside() => unreachable!("it has no end"),
        };
        assert!(marked, "{name}: no record says that it was overloaded");
        assert!(!told.is_empty(), "{name}");
        for verdict in &told {
            assert!(agrees(verdict, &idle), "{name}: {verdict:#?}, and when idle: {idle:#?}");
        }
    }
}

async fn nothing() {
    std::future::pending::<()>().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_processor_nothing_else_is_said() {
    says_nothing_else(plans, busy, nothing).await;
}

#[tokio::test(start_paused = true)]
async fn where_others_have_the_processor_nothing_else_is_said() {
    says_nothing_else(plans, starved, nothing).await;
    says_nothing_else(closed_plans, starved, nothing).await;
}

/// The thread uses little, and waits for no processor: it is a container's share that is used up.
#[tokio::test(start_paused = true)]
async fn a_closed_loop_that_lags_says_nothing_else() {
    says_nothing_else(closed_plans, idle, hog).await;
}

#[tokio::test(start_paused = true)]
async fn a_short_silence_that_was_not_timed_says_nothing_else() {
    let plans = || -> Vec<Played> {
        let plan = ConnectionPlan::new(0, SECOND, SECOND);
        vec![at(DrawnDial::Nothing, plan)]
    };
    says_nothing_else(plans, idle, hog).await;
}

/// Calls that are due every 10 ms begin too late, and are known to.
#[tokio::test(start_paused = true)]
async fn an_open_loop_that_lags_says_nothing_else() {
    let plans = || -> Vec<Played> {
        let plan = RatePlan::new(100.0, 100.0, 2.0, SECOND, Duration::ZERO);
        vec![at(DrawnDial::Nothing, plan)]
    };
    says_nothing_else(plans, idle, hog).await;
}

/// What is refused is refused, however late it is seen.
#[tokio::test(start_paused = true)]
async fn refusals_are_told_by_a_busy_machine() {
    for cpu in [busy as CpuClock, starved] {
        let mut rate = RatePlan::new(40.0, 160.0, 2.0, SECOND * 5, SECOND);
        let (told, marked) = said(&mut rate, DrawnDial::Bucket, cpu).await;
        assert!(marked && matches!(told[0].finding, Finding::Rate(Found(_))), "{told:#?}");
        assert!(told[0].confidence >= Confidence::Medium, "{told:#?}");
        let mut window = WindowPlan::new(400.0, 1_000, SECOND * 60, SECOND);
        let (told, marked) = said(&mut window, DrawnDial::Window, cpu).await;
        assert!(marked && matches!(told[0].finding, Finding::Bucket(Found(_))), "{told:#?}");
    }
}
