//! A drawn provider, a plan, and the verdicts on what it sent.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use wellhead_analyze::conclude::verdict::{ExperimentVerdict, verdicts};
use wellhead_analyze::measure::plan::ExperimentPlan;
use wellhead_analyze::measure::run::{CallBudget, CpuClock, CpuTime};
use wellhead_analyze::record::{Record, RunRecord};
use wellhead_sim::provider::DrawnDial;
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};

use super::support;
pub(crate) use super::support::near;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// A provider drawn from `seed`.
pub(crate) fn drawn(seed: u64, subject: DrawnDial) -> ProviderDials {
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
    let budget = CallBudget::new(plan.calls_max() + 3);
    support::played(&provider.url(), plan, &budget, cpu).await
}

/// The only verdict.
#[track_caller]
pub(crate) fn only(mut verdicts: Vec<ExperimentVerdict>) -> ExperimentVerdict {
    assert_eq!(verdicts.len(), 1, "{verdicts:#?}");
    verdicts.remove(0)
}
