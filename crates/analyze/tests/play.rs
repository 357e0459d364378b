//! Whole experiments, played against the fake provider: what was planted is found in the
//! records, bounds hold, and no file tells a key.
//!
//! Time is paused: what is waited for passes when no task has anything to do.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use support::{Cut, endpoint, read, terms};
use tempfile::TempDir;
use wellhead_analyze::conclude::verdict::{Finding, FindingBound::NotUpTo, NoCountLimit, verdicts};
use wellhead_analyze::ending::SendingEnd;
use wellhead_analyze::measure::plan::{
    CellOutcome, ExperimentPlan, FixedPlan, LoadTerms, RatePlan, SoakPlan, Stage, StreamsPlan,
    WindowPlan,
};
use wellhead_analyze::measure::run::{CallBudget, Player, StopSignal, Watch};
use wellhead_analyze::record::{CallRecord, Cell, Record, RunRecord, WireEvent};
use wellhead_analyze::work::WorkKind;
use wellhead_sim::node::LatencyDial as Pace;
use wellhead_sim::provider::{CreditBucket, RefusalForm, StreamCap, StreamWay};
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};

const SECOND: Duration = Duration::from_secs(1);

/// Makes the provider answer later than any client waits, once a cell has been played.
struct Hangs<'a>(&'a FakeProvider, Vec<String>);

impl Watch for Hangs<'_> {
    fn played(&mut self, _: &str, _: &Cell, _: &CellOutcome) {
        self.0.turn(|dials| dials.latency = Pace::even(SECOND * 3_600, Duration::ZERO));
    }

    fn silent(&mut self, experiment: &str, target: u32) {
        self.1.push(format!("{experiment} {target}"));
    }
}

struct Played {
    dir: TempDir,
    run: RunRecord,
    records: Vec<Record>,
    /// Calls that arrived.
    arrived: u64,
}

impl Played {
    fn cells(&self) -> Vec<&Cell> {
        let cells: Vec<&Cell> = self.records.iter().filter_map(Record::cell).collect();
        assert!(cells.iter().all(|cell| !cell.load.saturated), "{cells:?}");
        cells
    }

    fn calls(&self) -> impl Iterator<Item = &CallRecord> {
        self.records.iter().filter_map(Record::call)
    }

    fn events(&self) -> Vec<&WireEvent> {
        self.records.iter().filter_map(Record::wire).map(|wire| &wire.event).collect()
    }

    /// By the value of a factor: how many of its calls are such.
    fn count(&self, factor: &str, is: impl Fn(&CallRecord) -> bool) -> BTreeMap<u64, Vec<u64>> {
        let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for cell in self.cells() {
            let value: f64 = cell.factors[factor].parse().unwrap();
            let those = self.calls().filter(|call| call.cell == cell.cell && is(call)).count();
            found.entry(value as u64).or_default().push(those as u64);
        }
        found
    }
}

fn dials() -> ProviderDials {
    let latency = Pace::even(Duration::from_millis(20), Duration::ZERO);
    ProviderDials { latency, ..ProviderDials::default() }
}

async fn play(dials: ProviderDials, plan: impl ExperimentPlan + 'static) -> Played {
    play_within(dials, plan, u64::MAX, usize::MAX).await
}

async fn play_within(
    dials: ProviderDials,
    plan: impl ExperimentPlan + 'static,
    calls_max: u64,
    cells_max: usize,
) -> Played {
    let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
    let provider = FakeProvider::start("provider", world, dials).unwrap();
    let (budget, stop) = (CallBudget::new(calls_max), StopSignal::default());
    let mut watch = Cut { cells: cells_max, calls: 0, stop: &stop };
    let dir = played(&provider, vec![Box::new(plan)], &budget, &stop, &mut watch).await;
    let (run, records) = read(dir.path());
    let arrived = provider.counts().calls;
    assert!(arrived <= budget.spent(), "{arrived} calls arrived, {} counted", budget.spent());
    Played { dir, run, records, arrived }
}

/// Where these plans were played, one after the other.
async fn played(
    provider: &FakeProvider,
    plans: Vec<Box<dyn ExperimentPlan>>,
    budget: &CallBudget,
    stop: &StopSignal,
    watch: &mut dyn Watch,
) -> TempDir {
    let url = format!("http://me:PASSKEY@{}/v2/PATHKEY?k=QUERYKEY", provider.addr());
    let (endpoints, dir) = ([endpoint(&url)], TempDir::new().unwrap());
    let player = Player::begin(dir.path(), terms(), &endpoints, budget, stop).unwrap();
    // Seconds of paused time pass in none of the processor's.
    let mut player = player.with_cpu(|| None);
    let greeting = player.greet(0, &endpoints[0]).await.unwrap();
    for mut plan in plans {
        player.play(&mut *plan, 0, &endpoints[0], &greeting, watch).await.unwrap();
    }
    dir
}

async fn streams(cap: Option<(u32, StreamWay)>) -> Played {
    let stream_cap = cap.map(|(max, way)| StreamCap { max, way });
    play(ProviderDials { stream_cap, ..dials() }, StreamsPlan::new(8, 128, SECOND)).await
}

/// The largest number with no failure in three cells, where one more failed in three.
fn cap(played: &Played) -> Option<u64> {
    let failed = played.count("streams", |call| call.error.is_some());
    let holds = |cells: &Vec<u64>| cells.len() == 3 && cells.iter().all(|failed| *failed == 0);
    let fails = |cells: &Vec<u64>| cells.len() == 3 && cells.iter().all(|failed| *failed > 0);
    let found = failed.iter().rfind(|(_, cells)| holds(cells)).map(|(size, _)| *size);
    found.filter(|size| failed.get(&(size + 1)).is_some_and(fails))
}

fn refusals(played: &Played) -> usize {
    let refused = |event: &&&WireEvent| matches!(event, WireEvent::Reset { code: 7, .. });
    played.events().iter().filter(refused).count()
}

fn announced(played: &Played) -> Vec<Option<u32>> {
    let mut found: Vec<Option<u32>> = played
        .events()
        .iter()
        .filter_map(|event| match event {
            WireEvent::Settings { max_streams, .. } => Some(*max_streams),
            WireEvent::Opened { .. }
            | WireEvent::Goaway { .. }
            | WireEvent::Reset { .. }
            | WireEvent::Closed { .. } => None,
        })
        .collect();
    found.dedup();
    found
}

#[tokio::test(start_paused = true)]
async fn a_fatal_cap_is_found_to_the_stream() {
    for goaway in [None, Some(0), Some(11)] {
        let way = StreamWay::Fatal { goaway, announced: Some(120) };
        let played = streams(Some((99, way))).await;
        assert_eq!((cap(&played), refusals(&played)), (Some(99), 0), "{goaway:?}");
        assert_eq!(announced(&played), [Some(120)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusing_cap_is_found_to_the_stream() {
    let played = streams(Some((41, StreamWay::Refused { announced: None }))).await;
    assert_eq!(cap(&played), Some(41));
    assert!(refusals(&played) >= 3, "{} refusals", refusals(&played));
}

#[tokio::test(start_paused = true)]
async fn an_announced_cap_is_kept_to() {
    let played = streams(Some((64, StreamWay::Announced))).await;
    assert!(played.calls().all(|call| call.error.is_none()));
    assert_eq!(announced(&played), [Some(64)]);
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_cap_none_is_found() {
    let played = streams(None).await;
    assert_eq!(cap(&played), None);
    let failed = played.count("streams", |call| call.error.is_some());
    assert_eq!(failed.get(&128), Some(&vec![0, 0, 0]));
    // One connection each, and the number of it.
    assert!(played.calls().all(|call| call.connection.is_some()));
}

#[tokio::test(start_paused = true)]
async fn the_rates_that_pass_are_those_below_the_limit() {
    for refusal in [RefusalForm::too_many(Some(SECOND)), RefusalForm::too_many_in_body()] {
        let in_body = matches!(refusal, RefusalForm::InBody { .. });
        let buckets = vec![CreditBucket::steady(50.0, SECOND, refusal)];
        let plan = RatePlan::new(20.0, 200.0, 1.25, SECOND * 10, SECOND * 2);
        let played = play(ProviderDials { buckets, ..dials() }, plan).await;
        let refused = played.count("rate", |call| call.class == "throttled");
        for (rate, cells) in &refused {
            assert_eq!(cells[0] > 0, *rate > 55, "{rate}/s: {cells:?}");
        }
        assert_eq!(refused.len(), 7, "two above the limit and no more: {refused:?}");
        let call = played.calls().find(|call| call.class == "throttled").unwrap();
        let told = (call.status, call.code.is_some(), call.retry_after_ms);
        let pause = if in_body { None } else { Some(1_000) };
        assert_eq!(told, (Some(if in_body { 200 } else { 429 }), true, pause));
    }
}

/// The only finding.
fn finding(played: &Played) -> Finding {
    let mut found = verdicts(&played.run, &played.records);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).finding
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept_to_by_the_clock() {
    let played = play(dials(), RatePlan::new(40.0, 40.0, 2.0, SECOND * 5, SECOND)).await;
    let mut calls: Vec<&CallRecord> = played.calls().collect();
    calls.sort_by_key(|call| call.n);
    assert_eq!(calls.len(), 200);
    let first = calls[0].intended_at;
    for (n, call) in calls.iter().enumerate() {
        assert_eq!((call.intended_at - first).div_ceil(25_000), n as u64, "call {n}");
        assert!(call.begun_at >= call.intended_at && call.ended_at > call.begun_at);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_of_throttle_are_as_many_as_it_says() {
    let mut rng = SmallRng::seed_from_u64(1);
    let plan = FixedPlan::throttle(&[2, 12], &[2, 4], 40, SECOND, &mut rng);
    let played = play(dials(), plan).await;
    for cell in played.cells() {
        let mut used: Vec<Option<u64>> = played
            .calls()
            .filter(|call| call.cell == cell.cell)
            .map(|call| call.connection)
            .collect();
        used.sort_unstable();
        used.dedup();
        let of = |name: &str| -> usize { cell.factors[name].parse().unwrap() };
        assert_eq!(used.len(), of("connections").min(of("concurrency")), "{:?}", cell.factors);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mix_is_answered() {
    let stages = vec![Stage::Rate(50.0), Stage::Users(3)];
    let terms = LoadTerms::new(stages, SECOND * 2, WorkKind::Mix, 2);
    let played = play(dials(), FixedPlan::load(&terms)).await;
    let odd: Vec<&CallRecord> = played.calls().filter(|call| call.class != "answer").collect();
    assert!(odd.is_empty(), "{odd:?}");
    assert!(played.calls().count() > 100);
}

#[tokio::test(start_paused = true)]
async fn not_one_call_more_than_the_budget_is_sent() {
    for budget in [0, 2, 3, 4, 37] {
        let plan = StreamsPlan::new(8, 64, SECOND);
        let played = play_within(dials(), plan, budget, usize::MAX).await;
        assert_eq!(played.arrived, budget);
    }
}

/// Of its 128 calls at once 40 were sent: these show nothing of 128.
#[tokio::test(start_paused = true)]
async fn a_cell_that_the_budget_cuts_is_none() {
    // Three that greet, and with each cell one that warms up.
    let budget = 3 + (1 + 256) + (1 + 40);
    let played = play_within(dials(), StreamsPlan::new(64, 256, SECOND), budget, usize::MAX).await;
    assert_eq!(played.arrived, budget);
    let sizes: Vec<&str> = played.cells().iter().map(|cell| &cell.factors["streams"][..]).collect();
    assert_eq!(sizes, ["64"]);
    let found = finding(&played);
    assert!(matches!(found, Finding::StreamCap(NotUpTo(NoCountLimit { up_to: 64 }))), "{found:?}");
    let played =
        play_within(dials(), StreamsPlan::new(64, 256, SECOND), 3 + 1 + 40, usize::MAX).await;
    assert!(verdicts(&played.run, &played.records).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_stopped_keeps_what_was_played() {
    let played = play_within(dials(), StreamsPlan::new(8, 64, SECOND), u64::MAX, 2).await;
    assert_eq!(played.cells().len(), 2);
    assert_eq!(played.run.experiments, ["streams"]);
    assert_eq!(played.run.targets[0].chain_id, Some(1337));
}

#[tokio::test(start_paused = true)]
async fn no_file_tells_a_key() {
    let played = play(dials(), FixedPlan::latency(5)).await;
    let mut files = 0;
    for file in fs::read_dir(played.dir.path()).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("KEY") && !text.contains("/v2"), "{text}");
        files += 1;
    }
    assert_eq!((files, played.calls().count()), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn records_of_another_run_are_left_alone() {
    let played = play(dials(), FixedPlan::latency(1)).await;
    let (budget, stop) = (CallBudget::new(1), StopSignal::default());
    let again = Player::begin(played.dir.path(), terms(), &[], &budget, &stop);
    assert!(again.is_err());
    assert_eq!(read(played.dir.path()).1, played.records);
}

/// Each call waits for 15 s: what would take hours is given up after a minute, and nothing else is
/// asked of that target.
#[tokio::test(start_paused = true)]
async fn a_target_that_answers_nothing_any_more_is_asked_no_more() {
    let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
    let provider = FakeProvider::start("provider", world, dials()).unwrap();
    let (budget, stop) = (CallBudget::new(10_000), StopSignal::default());
    let begun = tokio::time::Instant::now();
    let mut watch = Hangs(&provider, Vec::new());
    let plan = |calls| -> Box<dyn ExperimentPlan> {
        let mut rng = SmallRng::seed_from_u64(1);
        Box::new(FixedPlan::throttle(&[1, 2], &[2, 4], calls, SECOND, &mut rng))
    };
    let dir = played(&provider, vec![plan(600), plan(50)], &budget, &stop, &mut watch).await;
    assert_eq!(watch.1, ["throttle 0"]);
    assert!(begun.elapsed() < SECOND * 180, "{:?}", begun.elapsed());
    let (_, records) = read(dir.path());
    assert_eq!(records.iter().filter_map(Record::cell).count(), 1);
}

/// What a provider does that serves nothing for long after so many calls, the sentence that says so, and
/// how many calls arrive at most.
type Closing = (CreditBucket, &'static str, u64);

/// Is told when a target is asked no more.
#[derive(Default)]
struct Endings(Vec<(String, SendingEnd)>);

impl Watch for Endings {
    fn ended(&mut self, experiment: &str, _: u32, why: SendingEnd) {
        self.0.push((experiment.to_owned(), why));
    }
}

/// `rate`, `window` and `throttle`, one after the other, as `limits` has them.
fn limits() -> Vec<Box<dyn ExperimentPlan>> {
    let mut rng = SmallRng::seed_from_u64(1);
    vec![
        Box::new(RatePlan::new(10.0, 40.0, 2.0, SECOND * 5, SECOND)),
        Box::new(WindowPlan::new(160.0, 2_000, SECOND * 150, SECOND)),
        Box::new(FixedPlan::throttle(&[1, 5, 20, 40, 80], &[2, 4], 300, SECOND, &mut rng)),
    ]
}

async fn closing((bucket, sentence, most): Closing, plans: Vec<Box<dyn ExperimentPlan>>) {
    let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
    let dials = ProviderDials { buckets: vec![bucket], ..dials() };
    let provider = FakeProvider::start("provider", world, dials).unwrap();
    let (budget, stop) = (CallBudget::new(1_000_000), StopSignal::default());
    let mut watch = Endings::default();
    let dir = played(&provider, plans, &budget, &stop, &mut watch).await;
    let arrived = provider.counts().calls;
    assert!(arrived <= most, "{arrived} calls arrived: {sentence}");
    let (run, records) = read(dir.path());
    let told = verdicts(&run, &records);
    let said = told.iter().filter(|it| matches!(it.finding, Finding::Ended { .. }));
    let said: Vec<&str> = said.map(|it| it.sentence.as_str()).collect();
    match sentence {
        "" => assert!(said.is_empty() && watch.0.is_empty(), "{told:#?}"),
        _ => {
            assert!(said.len() == 1 && said[0].contains(sentence), "{sentence}: {told:#?}");
            assert_eq!(watch.0.len(), 1, "{:?}", watch.0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_serves_nothing_for_long_is_asked_no_more() {
    let hour = SECOND * 3_600;
    let told = RefusalForm::too_many(Some(hour));
    for case in [
        (
            CreditBucket::fixed(100.0, hour, told),
            "served calls: throttled with a Retry-After of 60 min",
            150,
        ),
        (
            CreditBucket::spent_once(400.0, RefusalForm::month_spent()),
            "served calls: the quota is spent",
            450,
        ),
        // It says nothing, and `window` waits for it as long as it may.
        (
            CreditBucket::fixed(400.0, hour, RefusalForm::too_many(None)),
            "(a ban, a spent quota or a long window)",
            900,
        ),
    ] {
        closing(case, limits()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_soak_ends_where_a_long_pause_is_asked_for() {
    let hour = SECOND * 3_600;
    let bucket = CreditBucket::fixed(300.0, hour, RefusalForm::too_many(Some(hour)));
    let soak = SoakPlan::new(Stage::Rate(5.0), SECOND * 600, SECOND * 20, WorkKind::Cheap, 1);
    closing((bucket, "throttled with a Retry-After of 60 min", 320), vec![Box::new(soak)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_window_of_a_minute_ends_nothing() {
    let minute = SECOND * 60;
    for refusal in [RefusalForm::too_many(Some(minute)), RefusalForm::too_many(None)] {
        let bucket = CreditBucket::fixed(500.0, minute, refusal);
        closing((bucket, "", u64::MAX), limits()).await;
    }
}
