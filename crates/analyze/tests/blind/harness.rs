//! A drawn provider, a plan, and the verdicts on what it sent.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tempfile::TempDir;
use wellhead_analyze::plan::ExperimentPlan;
use wellhead_analyze::record::{Machine, Record, RunRecord};
use wellhead_analyze::run::{
    CallBudget, CpuClock, CpuTime, Player, RunTerms, StopSignal, Unwatched,
};
use wellhead_analyze::stored::StoredRun;
use wellhead_analyze::verdict::{ExperimentVerdict, verdicts};
use wellhead_analyze::way::Goal;
use wellhead_sim::provider::{DrawnDial, Truth};
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};
use wellhead_telemetry::SecretUrl;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// A provider drawn from `seed`, and what it really does.
pub(crate) fn drawn(seed: u64, subject: DrawnDial) -> (ProviderDials, Truth) {
    ProviderDials::draw(&mut rng(seed), subject)
}

/// No processor's time passes.
pub(crate) fn idle() -> Option<CpuTime> {
    None
}

pub(crate) fn provider(dials: ProviderDials) -> FakeProvider {
    let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
    FakeProvider::start("provider", world, dials).unwrap()
}

/// Plays `plan` and says what follows.
pub(crate) async fn concluded(
    dials: ProviderDials,
    mut plan: impl ExperimentPlan,
) -> Vec<ExperimentVerdict> {
    let provider = provider(dials);
    let (run, records) = played(&provider, &mut plan, idle).await;
    verdicts(&run, &records)
}

/// Plays `plan`.
pub(crate) async fn played(
    provider: &FakeProvider,
    plan: &mut dyn ExperimentPlan,
    cpu: CpuClock,
) -> (RunRecord, Vec<Record>) {
    let url = SecretUrl::parse(&provider.url()).unwrap();
    let goals = [Goal::new("target-1".to_owned(), url)];
    let dir = TempDir::new().unwrap();
    let (budget, stop) = (CallBudget::new(plan.calls_max() + 3), StopSignal::default());
    let machine = Machine::default();
    let terms = RunTerms { seed: 7, started_unix: 1, wellhead: "test".to_owned(), machine };
    let player = Player::begin(dir.path(), terms, &goals, &budget, &stop).unwrap();
    let mut player = player.with_cpu(cpu);
    let greeting = player.greet(0, &goals[0]).await.unwrap();
    player.play(plan, 0, &goals[0], &greeting, &mut Unwatched).await.unwrap();
    let StoredRun { run, records, torn } = StoredRun::read(dir.path()).unwrap();
    assert_eq!(torn, None);
    (run, records)
}

/// The only verdict.
#[track_caller]
pub(crate) fn only(mut verdicts: Vec<ExperimentVerdict>) -> ExperimentVerdict {
    assert_eq!(verdicts.len(), 1, "{verdicts:#?}");
    verdicts.remove(0)
}

/// Within a tenth.
#[track_caller]
pub(crate) fn near(seen: f64, truth: f64, about: &dyn std::fmt::Debug) {
    assert!((seen / truth - 1.0).abs() <= 0.1, "{seen} for {truth}: {about:#?}");
}
