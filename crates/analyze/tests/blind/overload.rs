//! A machine that has too much to do measures itself. Whatever was planted, nothing is said then.

use std::cell::Cell as Slot;
use std::time::Duration;

use tokio::time::Instant;
use wellhead_analyze::knock::Knocking;
use wellhead_analyze::plan::{Cost, Load, Pace, Plan, Rate, Soak, Stage, Throttle, Window};
use wellhead_analyze::record::Record;
use wellhead_analyze::run::CpuClock;
use wellhead_analyze::verdict::{Finding, verdicts};
use wellhead_analyze::work::Work;
use wellhead_net::HttpVersion;
use wellhead_sim::provider::Subject;

use crate::harness::{SECOND, drawn, played, provider, rng};

thread_local! {
    static BEGUN: Slot<Option<Instant>> = const { Slot::new(None) };
}

/// The thread that sends has been busy for nine tenths of the time.
fn busy() -> Option<Duration> {
    let begun = BEGUN.get().unwrap_or_else(Instant::now);
    BEGUN.set(Some(begun));
    Some(begun.elapsed().mul_f64(0.9))
}

fn plans() -> Vec<(Box<dyn Plan>, Subject)> {
    let knock = Knocking { settle: SECOND, per_second: 100.0, calls: 200, within: SECOND * 9 };
    let auto = HttpVersion::Auto;
    let throttle = Throttle::new(&[5, 20, 60, 100], &[2, 4], 120, auto, SECOND, &mut rng(1));
    vec![
        (Box::new(Rate::new(40.0, 160.0, 2.0, SECOND * 5, SECOND)), Subject::Bucket),
        (Box::new(throttle), Subject::Shaping),
        (Box::new(Window::new(100.0, 300, SECOND * 20, SECOND)), Subject::Window),
        (
            Box::new(Cost::new(&["eth_call", "eth_getLogs"], knock, SECOND, &mut rng(1))),
            Subject::Costs,
        ),
        (
            Box::new(Load::new(vec![Stage::Rate(50.0)], SECOND * 5, Work::Cheap, 2)),
            Subject::Nothing,
        ),
        (
            Box::new(Soak::new(Pace::Rate(5.0), SECOND * 60, SECOND * 5, Work::Cheap, 1)),
            Subject::Nothing,
        ),
    ]
}

async fn says_nothing(plan: &mut dyn Plan, subject: Subject, cpu: CpuClock) {
    let (dials, _) = drawn(5, subject);
    let provider = provider(dials);
    let (run, records) = played(&provider, plan, cpu).await;
    let marked = records.iter().any(|record| match record {
        Record::Cell(cell) => cell.saturated,
        Record::Rollup(rollup) => rollup.saturated,
        Record::Call(_) | Record::Wire(_) => false,
    });
    assert!(marked, "{}: no record says that it was overloaded", plan.name());
    let told = verdicts(&run, &records);
    assert!(!told.is_empty(), "{}", plan.name());
    for verdict in &told {
        let silent = matches!(verdict.finding, Finding::CannotTell { .. });
        assert!(silent && verdict.sentence.contains("fell behind"), "{}: {told:#?}", plan.name());
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_processor_nothing_is_said() {
    for (mut plan, subject) in plans() {
        says_nothing(&mut *plan, subject, busy).await;
    }
}

/// Not paused: another task has the only thread for 40 ms of each 41, whatever the machine. Calls
/// that are due every 10 ms begin too late, and are known to.
#[tokio::test]
async fn on_a_busy_core_nothing_is_said() {
    let hog = tokio::spawn(async {
        loop {
            let until = Instant::now() + Duration::from_millis(40);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let mut plan = Rate::new(100.0, 100.0, 2.0, SECOND, Duration::ZERO);
    says_nothing(&mut plan, Subject::Nothing, || None).await;
    hog.abort();
}
