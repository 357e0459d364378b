//! Runs that are cut after each cell, or within one, and gone on with: the cells are those of a
//! run that was not cut.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tempfile::TempDir;
use wellhead_analyze::conclude::verdict::{Finding, verdicts};
use wellhead_analyze::measure::plan::{
    ConnectionPlan, ExperimentPlan, FixedPlan, RatePlan, SoakPlan, Stage, StreamsPlan,
};
use wellhead_analyze::measure::run::{CallBudget, EarlierRun, Player, RunError, StopSignal};
use wellhead_analyze::record::{Cell, Record, RunRecord, trials};
use wellhead_analyze::work::WorkKind;
use wellhead_sim::provider::{CreditBucket, RefusalForm, StreamCap, StreamWay};
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};

use super::support::{Cut, endpoint, read, terms};

const SECOND: Duration = Duration::from_secs(1);

/// A provider whose limits make the plans ask for more cells than one.
fn provider() -> FakeProvider {
    let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
    let stream_cap = Some(StreamCap { max: 11, way: StreamWay::Refused { announced: None } });
    let buckets = vec![CreditBucket::steady(40.0, SECOND, RefusalForm::too_many(None))];
    let latency = wellhead_sim::node::LatencyDial::even(SECOND / 50, Duration::ZERO);
    let recycle_after = Some(30);
    let dials =
        ProviderDials { stream_cap, buckets, latency, recycle_after, ..ProviderDials::default() };
    FakeProvider::start("provider", world, dials).expect("a port")
}

fn plans() -> Vec<Box<dyn ExperimentPlan>> {
    let mut rng = SmallRng::seed_from_u64(7);
    vec![
        Box::new(StreamsPlan::new(8, 16, SECOND)),
        Box::new(FixedPlan::throttle(&[2, 4, 8], &[2], 20, SECOND, &mut rng)),
        Box::new(RatePlan::new(30.0, 90.0, 1.3, SECOND, SECOND)),
        Box::new(ConnectionPlan::new(100, Duration::ZERO, SECOND * 2)),
    ]
}

const UNCUT: (usize, u64) = (usize::MAX, u64::MAX);

/// Plays all plans, or goes on with them, until it is cut; the calls that were sent by then.
async fn play(dir: &Path, provider: &FakeProvider, cut: (usize, u64)) -> Result<u64, RunError> {
    play_these(dir, provider, cut, plans()).await
}

async fn play_these(
    dir: &Path,
    provider: &FakeProvider,
    (cells, calls): (usize, u64),
    plans: Vec<Box<dyn ExperimentPlan>>,
) -> Result<u64, RunError> {
    let endpoints = [endpoint(&format!("{}/v2/PATHKEY", provider.url()))];
    let stop = StopSignal::default();
    let earlier = dir.join("run.json").exists().then(|| EarlierRun::read(dir).expect("a run"));
    let spent = earlier.as_ref().map_or(0, |earlier| earlier.run().spent);
    let budget = CallBudget::new(1_000_000).after(spent);
    let mut player = match earlier {
        Some(earlier) => Player::resume(dir, earlier, 100, &budget, &stop)?,
        None => Player::begin(dir, terms(), &endpoints, &budget, &stop)?,
    };
    // Seconds of paused time pass in none of the processor's.
    player = player.with_cpu(|| None);
    let greeting = player.greet(0, &endpoints[0]).await?;
    let mut watch = Cut { cells, calls, stop: &stop };
    for mut plan in plans {
        player.play(&mut *plan, 0, &endpoints[0], &greeting, &mut watch).await?;
        if stop.is_set() {
            break;
        }
    }
    Ok(budget.spent())
}

/// What was played to its end, in its order.
fn cells(records: &[Record]) -> Vec<(String, String, u32, u64)> {
    let cell = |cell: &Cell| {
        let factors = format!("{:?}", cell.factors);
        (cell.experiment.clone(), factors, cell.repeat, cell.calls)
    };
    records.iter().filter_map(Record::cell).map(cell).collect()
}

async fn whole(provider: &FakeProvider) -> (TempDir, Vec<(String, String, u32, u64)>) {
    let dir = TempDir::new().expect("a directory");
    play(dir.path(), provider, UNCUT).await.expect("played");
    let found = cells(&read(dir.path()).1);
    (dir, found)
}

#[tokio::test(start_paused = true)]
async fn cut_after_each_cell_a_run_has_the_cells_of_one_that_was_not() {
    let provider = provider();
    let (_, expected) = whole(&provider).await;
    assert!(expected.len() > 12, "{expected:?}");
    let dir = TempDir::new().expect("a directory");
    // Each time one cell more, and all that were played before are kept.
    for played in 1..=expected.len() {
        play(dir.path(), &provider, (1, 0)).await.expect("played");
        assert_eq!(cells(&read(dir.path()).1), expected[..played]);
    }
    play(dir.path(), &provider, UNCUT).await.expect("nothing is left");
    let (run, records) = read(dir.path());
    assert_eq!(cells(&records), expected);
    assert_eq!(run.experiments, ["streams", "throttle", "rate", "connection"]);
    let cells = records.iter().filter_map(Record::cell);
    let times: Vec<_> = cells.map(|cell| (cell.begun_at, cell.ended_at)).collect();
    assert!(times.windows(2).all(|pair| pair[0].1 < pair[1].0), "times go on: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn cut_within_each_cell_it_is_played_again_as_a_whole() {
    let provider = provider();
    let (uncut, expected) = whole(&provider).await;
    let said = |dir: &Path| {
        let (run, records) = read(dir);
        verdicts(&run, &records).into_iter().map(|verdict| verdict.finding).collect::<Vec<_>>()
    };
    for before in 0..expected.len() {
        let dir = TempDir::new().expect("a directory");
        let spent = play(dir.path(), &provider, (before, 3)).await.expect("played");
        let (run, records) = read(dir.path());
        assert_eq!(cells(&records), expected[..before]);
        assert_eq!(run.spent, spent, "what was sent is known");
        // What kill -9 leaves behind.
        let file = OpenOptions::new().append(true).open(dir.path().join("records.jsonl"));
        file.and_then(|mut file| file.write_all(b"{\"kind\":\"call\",\"exp")).expect("torn");
        play(dir.path(), &provider, UNCUT).await.expect("played");
        let (_, records) = read(dir.path());
        assert_eq!(cells(&records), expected, "after {before} cells");
        // The calls of the cell that was cut count for nothing.
        for trial in trials(&records) {
            for played in &trial.played {
                assert_eq!(played.calls.len() as u64, played.cell.calls);
            }
        }
        let (found, told) = (said(dir.path()), said(uncut.path()));
        assert_eq!(found.len(), told.len());
        assert!(found.iter().zip(&told).all(|(one, other)| one.alike(other)), "{found:?} {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_of_other_cells_is_not_gone_on_with() {
    let provider = provider();
    let (dir, _) = whole(&provider).await;
    let path = dir.path().join("records.jsonl");
    let text = fs::read_to_string(&path).expect("records");
    fs::write(&path, text.replace(r#"{"streams":"8"}"#, r#"{"streams":"9"}"#)).expect("a file");
    let error = play(dir.path(), &provider, UNCUT).await.expect_err("another plan");
    assert!(matches!(&error, RunError::Other(name) if name == "streams"), "{error}");
}

#[test]
fn a_directory_without_a_run_is_told() {
    let dir = TempDir::new().expect("a directory");
    let error = EarlierRun::read(dir.path()).expect_err("nothing is there");
    assert!(error.to_string().starts_with("it is not a readable run: "), "{error}");
    let run = RunRecord { format: 99, ..RunRecord::default() };
    let text = serde_json::to_string(&run).expect("plain data");
    fs::write(dir.path().join("run.json"), text).expect("a file");
    let error = EarlierRun::read(dir.path()).expect_err("another format").to_string();
    assert_eq!(error, "it has format 99, and this wellhead reads 1 to 2");
}

/// Ten minutes in all, whatever lies between: what was watched is not watched again, also where the
/// run was killed, and the time in which nothing was watched is no part of it.
#[tokio::test(start_paused = true)]
async fn a_soak_goes_on_for_the_time_that_is_left() {
    let provider = provider();
    let dir = TempDir::new().expect("a directory");
    let soak = || -> Vec<Box<dyn ExperimentPlan>> {
        let (pace, lasting) = (Stage::Rate(2.0), SECOND * 600);
        vec![Box::new(SoakPlan::new(pace, lasting, SECOND * 20, WorkKind::Cheap, 1))]
    };
    // Stopped after 250 s and after 150 s more.
    for calls in [500, 300] {
        play_these(dir.path(), &provider, (0, calls), soak()).await.expect("stopped");
        assert!(cells(&read(dir.path()).1).is_empty());
    }
    // As a kill leaves it: nothing was written of what came after the last whole part.
    let records = fs::read_to_string(dir.path().join("records.jsonl")).expect("records");
    let kept: Vec<&str> = records.lines().collect();
    let kept = kept[..kept.len() - 1].join("\n") + "\n";
    fs::write(dir.path().join("records.jsonl"), kept).expect("written");
    play_these(dir.path(), &provider, UNCUT, soak()).await.expect("played to its end");
    let (run, records) = read(dir.path());
    assert_eq!(cells(&records).len(), 1);
    let rollups: Vec<_> = records.iter().filter_map(Record::rollup).collect();
    let watched: u64 = rollups.iter().map(|it| it.ended_at - it.begun_at).sum();
    assert!((598_000_000..=602_000_000).contains(&watched), "{watched} us");
    let told = verdicts(&run, &records);
    assert!(matches!(told[0].finding, Finding::Held { minutes: 10, .. }), "{told:#?}");
    let ended: u64 = rollups.iter().filter_map(|it| it.wire.get("closed")).sum();
    assert!(ended > 20, "Connection is closed after 30 requests: {ended}");
    assert!(told[0].evidence.iter().any(|line| line.starts_with("connections: ")), "{told:#?}");
    assert!(records.iter().all(|record| record.wire().is_none()));
    let spent = play_these(dir.path(), &provider, UNCUT, soak()).await.expect("nothing is left");
    assert!(spent < run.spent + 4, "{spent}, {} before", run.spent);
}
