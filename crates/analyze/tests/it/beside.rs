//! Load at two targets, one of which takes longer, as a proxy before the other one does.

use std::time::Duration;

use tempfile::TempDir;
use wellhead_analyze::conclude::verdict::{Confidence, ExperimentVerdict, Finding, verdicts};
use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::plan::{CellOutcome, FixedPlan, LoadTerms, Stage};
use wellhead_analyze::measure::run::{CallBudget, PlacedPlan, Player, StopSignal, Watch};
use wellhead_analyze::record::{Cell, Record};
use wellhead_analyze::work::WorkKind;
use wellhead_sim::node::LatencyDial;
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};
use wellhead_telemetry::SecretUrl;

use super::support::{read, terms};

const SECOND: Duration = Duration::from_secs(1);

struct Order(Vec<u32>);

impl Watch for Order {
    fn played(&mut self, _: &str, cell: &Cell, _: &CellOutcome) {
        self.0.push(cell.target);
    }
}

fn three() -> Vec<Stage> {
    vec![Stage::Rate(20.0), Stage::Rate(40.0), Stage::Users(3)]
}

async fn play(
    latencies_ms: [u64; 2],
    stages: fn() -> Vec<Stage>,
) -> (Vec<u32>, Vec<ExperimentVerdict>) {
    let providers = latencies_ms.map(|ms| {
        let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
        let latency = LatencyDial::even(Duration::from_millis(ms), Duration::from_millis(5));
        let dials = ProviderDials { latency, seed: ms, ..ProviderDials::default() };
        FakeProvider::start("provider", world, dials).expect("a port")
    });
    let endpoints: Vec<TargetEndpoint> = (1..)
        .zip(&providers)
        .map(|(number, provider)| {
            let url = SecretUrl::parse(&provider.url()).expect("a URL");
            TargetEndpoint::new(format!("target-{number}"), url)
        })
        .collect();
    let (dir, budget, stop) =
        (TempDir::new().expect("a directory"), CallBudget::new(u64::MAX), StopSignal::default());
    let player =
        Player::begin(dir.path(), terms(), &endpoints, &budget, &stop).expect("a directory");
    // Seconds of paused time pass in none of the processor's.
    let mut player = player.with_cpu(|| None);
    let mut greetings = Vec::new();
    for (target, endpoint) in (0..).zip(&endpoints) {
        greetings.push(player.greet(target, endpoint).await.expect("a client"));
    }
    let mut parts: Vec<PlacedPlan<'_>> = (0..)
        .zip(endpoints.iter().zip(&greetings))
        .map(|(target, (endpoint, greeting))| {
            let terms = LoadTerms::new(stages(), SECOND * 5, WorkKind::Cheap, 2);
            let plan = FixedPlan::load(&LoadTerms { think: SECOND / 2, ..terms });
            PlacedPlan { plan: Box::new(plan), target, endpoint, greeting }
        })
        .collect();
    let mut order = Order(Vec::new());
    player.play_in_turn(&mut parts, &mut order).await.expect("played");
    let (_, records) = read(dir.path());
    let cells = records.iter().filter_map(Record::cell);
    let thinks = cells.filter(|cell| cell.factors.contains_key("users") && cell.calls <= 33);
    let users = stages().iter().filter(|stage| matches!(stage, Stage::Users(_))).count();
    assert_eq!(thinks.count(), 2 * users, "three users ask at most twice a second");
    (order.0, verdicts(player.run(), &records))
}

fn added(verdicts: &[ExperimentVerdict]) -> &ExperimentVerdict {
    let mut found =
        verdicts.iter().filter(|verdict| matches!(verdict.finding, Finding::Adds { .. }));
    let one = found.next().expect("a comparison");
    assert_eq!((one.target, found.count()), (1, 0), "the second is compared with the first");
    one
}

#[tokio::test(start_paused = true)]
async fn what_a_second_target_takes_more_is_told_stage_by_stage() {
    let (order, verdicts) = play([20, 26], three).await;
    // In the same minutes, and neither of them is always the first.
    let rounds: Vec<&[u32]> = order.chunks(2).collect();
    assert!([[0, 1], [1, 0]].contains(&[rounds[0][0], rounds[0][1]]), "{order:?}");
    assert!(rounds[1].iter().eq(rounds[0].iter().rev()) && rounds[2] == rounds[1], "{order:?}");
    let verdict = added(&verdicts);
    assert_eq!(verdict.confidence, Confidence::Medium);
    let Finding::Adds { than, ms, low, high, .. } = &verdict.finding else { panic!() };
    assert_eq!(than, "target-1");
    assert!((*ms - 6.0).abs() < 1.0 && low < ms && ms < high, "{verdict:?}");
    assert_eq!(verdict.evidence.len(), 3, "{verdict:?}");
    assert!(verdict.sentence.contains("ms slower than target-1, 95 % CI "), "{verdict:?}");
}

#[tokio::test(start_paused = true)]
async fn where_both_take_as_long_nothing_is_claimed() {
    let (_, verdicts) = play([20, 20], three).await;
    let verdict = added(&verdicts);
    let told = &verdict.sentence;
    assert!(told.starts_with("No significant difference from target-1, "), "{told}");
}

#[tokio::test(start_paused = true)]
async fn of_one_stage_little_is_sure() {
    let (_, verdicts) = play([20, 26], || vec![Stage::Rate(40.0)]).await;
    assert_eq!(added(&verdicts).confidence, Confidence::Low);
}
