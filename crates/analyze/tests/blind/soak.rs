//! `soak`: drifts of times and errors that were planted, and none where nothing drifts.

use std::time::Duration;

use rand::Rng as _;
use tokio::time::sleep;
use wellhead_analyze::conclude::verdict::{
    Drift, Drifting, ExperimentVerdict, Finding,
    FindingBound::{Found, NotUpTo},
    NoDrift, verdicts,
};
use wellhead_analyze::measure::plan::{SoakPlan, Stage};
use wellhead_analyze::record::Record;
use wellhead_analyze::work::WorkKind;
use wellhead_sim::FakeProvider;
use wellhead_sim::provider::{DrawnDial, RefusalForm};

use crate::harness::{SECOND, drawn, idle, played, provider, rng};

const PART: Duration = Duration::from_secs(20);
const PARTS: u32 = 30;

/// What a provider does over the time of a soak.
#[derive(Debug, Clone, Copy)]
enum Life {
    Even,
    /// Its time grows by this many times itself.
    Slower(f64),
    /// Of each part, it refuses a share that grows up to this one.
    Failing(f64),
    /// From this part on it takes this many times as long.
    Steps(u32, f64),
}

fn life(seed: u64) -> Life {
    let mut rng = rng(seed);
    match seed % 3 {
        0 => Life::Even,
        1 => Life::Slower(rng.random_range(0.3..1.5)),
        _ => Life::Failing(rng.random_range(0.2..0.8)),
    }
}

/// Turns the dials, part by part.
async fn live(provider: &FakeProvider, life: Life) {
    let base = provider.dials().latency.base;
    for part in 0..=PARTS {
        let share = f64::from(part) / f64::from(PARTS);
        match life {
            Life::Even => sleep(PART).await,
            Life::Slower(by) => {
                provider.turn(|dials| dials.latency.base = base.mul_f64(1.0 + by * share));
                sleep(PART).await;
            }
            Life::Steps(at, by) => {
                if part == at {
                    provider.turn(|dials| dials.latency.base = base.mul_f64(by));
                }
                sleep(PART).await;
            }
            Life::Failing(most) => {
                let failing = PART.mul_f64(most * share);
                provider
                    .turn(|dials| dials.barred = Some(RefusalForm::status(503, -32000, "down")));
                sleep(failing).await;
                provider.turn(|dials| dials.barred = None);
                sleep(PART - failing).await;
            }
        }
    }
    std::future::pending::<()>().await;
}

async fn soaked(seed: u64, life: Life, pace: Stage) -> (Vec<ExperimentVerdict>, Vec<Record>) {
    let dials = drawn(seed, DrawnDial::Nothing);
    let provider = provider(dials);
    let mut plan = SoakPlan::new(pace, PART * PARTS, PART, WorkKind::Cheap, 2);
    let (run, records) = tokio::select! {
        played = played(&provider, &mut plan, idle) => played,
        () = live(&provider, life) => unreachable!("it lives for ever"),
    };
    (verdicts(&run, &records), records)
}

fn drifts(told: &[ExperimentVerdict]) -> Vec<(Drifting, f64, f64)> {
    let drift = |verdict: &ExperimentVerdict| match verdict.finding {
        Finding::Drift(Found(Drift { what, from, to, .. })) => Some((what, from, to)),
        _ => None,
    };
    told.iter().filter_map(drift).collect()
}

async fn found(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let life = life(seed);
        let (told, _) = soaked(seed, life, Stage::Rate(3.0)).await;
        assert!(matches!(told[0].finding, Finding::Held { .. }), "seed {seed}: {told:#?}");
        match (life, drifts(&told).as_slice()) {
            (Life::Even, []) => {
                let is_even = |it: &ExperimentVerdict| {
                    matches!(it.finding, Finding::Drift(NotUpTo(NoDrift { minutes: 10 })))
                };
                assert!(told.iter().any(is_even), "seed {seed}: {told:#?}");
            }
            (Life::Slower(by), [(Drifting::Time, from, to)]) => {
                let seen = to / from - 1.0;
                assert!((seen - by).abs() < 0.1 * (1.0 + by), "seed {seed}, {by}: {told:#?}");
            }
            (Life::Failing(most), [(Drifting::Errors, from, to)]) => {
                let seen = to - from;
                let off = (seen - 100.0 * most).abs();
                assert!(off < 10.0 * most + 2.0, "seed {seed}, {most}: {told:#?}");
            }
            (life, _) => panic!("seed {seed}, {life:?}: {told:#?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn drifts_of_the_first_seeds() {
    found(0..10).await;
}

#[tokio::test(start_paused = true)]
async fn drifts_of_further_seeds() {
    found(10..20).await;
}

/// A step of some parts is found where it is, and is no drift.
#[tokio::test(start_paused = true)]
async fn steps() {
    for seed in 0..6 {
        let mut rng = rng(100 + seed);
        let (at, by) = (rng.random_range(7..23_u32), rng.random_range(1.5..3.0));
        let (told, _) = soaked(seed, Life::Steps(at, by), Stage::Rate(3.0)).await;
        assert_eq!(drifts(&told), [], "seed {seed}: {told:#?}");
        let step = |it: &ExperimentVerdict| match it.finding {
            Finding::Step { what: Drifting::Time, from, to, after_minutes, .. } => {
                Some((to / from, after_minutes))
            }
            _ => None,
        };
        let found: Vec<(f64, u64)> = told.iter().filter_map(step).collect();
        let [(seen, after)] = found[..] else { panic!("seed {seed}, {at}, {by}: {told:#?}") };
        // What a call takes besides the base stays as it is.
        assert!((0.7 * by..1.1 * by).contains(&seen), "seed {seed}, {by}: {told:#?}");
        let minutes = f64::from(at) * PART.as_secs_f64() / 60.0;
        assert!((after as f64 - minutes).abs() <= 1.0, "seed {seed}, {at}: {told:#?}");
    }
}

/// However many calls there are, a line a part is written and no more.
#[tokio::test(start_paused = true)]
async fn records_do_not_grow_with_the_calls() {
    for rate in [1.0, 10.0] {
        let (_, records) = soaked(1, Life::Even, Stage::Rate(rate)).await;
        let calls = records.iter().filter_map(Record::call).count();
        let rollups = records.iter().filter_map(Record::rollup);
        let rollups: Vec<u64> = rollups.map(|rollup| rollup.calls).collect();
        assert_eq!(calls, 0);
        assert!((PARTS as usize..=PARTS as usize + 1).contains(&rollups.len()), "{rollups:?}");
        let total = rollups.iter().sum::<u64>() as f64;
        assert_eq!(total, rate * (PART * PARTS).as_secs_f64());
    }
}

#[tokio::test(start_paused = true)]
async fn users_that_ask_again_at_once_are_told_as_well() {
    let dials = drawn(2, DrawnDial::Nothing);
    let provider = provider(dials);
    let mut plan = SoakPlan::new(Stage::Users(2), SECOND * 24, SECOND, WorkKind::Cheap, 1);
    let (run, records) = played(&provider, &mut plan, idle).await;
    let told = verdicts(&run, &records);
    assert!(
        matches!(told[0].finding, Finding::Held { parts: 10.., with_errors: 0, .. }),
        "{told:#?}"
    );
    assert!(matches!(told[1].finding, Finding::Drift(NotUpTo(_))), "{told:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_short_soak_does_not_judge_a_drift() {
    let dials = drawn(1, DrawnDial::Nothing);
    let provider = provider(dials);
    let mut plan = SoakPlan::new(Stage::Rate(5.0), SECOND * 30, SECOND * 10, WorkKind::Cheap, 1);
    let (run, records) = played(&provider, &mut plan, idle).await;
    let told = verdicts(&run, &records);
    assert!(matches!(told[1].finding, Finding::CannotTell { .. }), "{told:#?}");
}
