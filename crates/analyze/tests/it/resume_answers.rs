//! Runs of `agree`, `reach` and `fresh` that are cut after any call, killed after any byte, and
//! gone on with: what is said is what a run says that was not cut, and no question is asked twice.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tempfile::TempDir;
use wellhead_analyze::conclude::verdict::{
    BlockLag, ExperimentVerdict, Extent, Finding,
    FindingBound::{Found, NotUpTo},
    verdicts,
};
use wellhead_analyze::measure::inquiry::{agree, fresh, reach};
use wellhead_analyze::measure::run::{
    CallBudget, EarlierRun, PanelMember, Player, RunError, StopSignal,
};
use wellhead_analyze::record::{Cell, Record};
use wellhead_sim::provider::{CreditBucket, Falsehood, RefusalForm};
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};

use super::answers::{Inquiry, endpoints, mining, start};
use super::support::{Cut, read, terms};

/// Calls of a greeting.
const GREETING: u64 = 3;
/// Points at which each is cut.
const CUTS: u64 = 6;

const UNCUT: u64 = u64::MAX;

/// What is played, where, and which targets have a seat.
struct Play<'a> {
    dir: &'a Path,
    providers: &'a [FakeProvider],
    inquiry: Inquiry,
    /// The targets that answer nothing.
    absent: Option<usize>,
    calls_max: u64,
}

impl<'a> Play<'a> {
    fn new(dir: &'a Path, providers: &'a [FakeProvider], inquiry: &Inquiry) -> Self {
        Self { dir, providers, inquiry: inquiry.clone(), absent: None, calls_max: 1_000_000 }
    }

    /// Begins the run, or goes on with it, until this many calls are over.
    async fn until(&self, calls: u64) -> Result<(), RunError> {
        let endpoints = endpoints(self.providers);
        let stop = StopSignal::default();
        let goes_on = self.dir.join("run.json").exists();
        let earlier = goes_on.then(|| EarlierRun::read(self.dir).unwrap());
        let spent = earlier.as_ref().map_or(0, |earlier| earlier.run().spent);
        let budget = CallBudget::new(self.calls_max).after(spent);
        let mut player = match earlier {
            Some(earlier) => Player::resume(self.dir, earlier, 5_000, &budget, &stop)?,
            None => Player::begin(self.dir, terms(), &endpoints, &budget, &stop)?,
        };
        let mut members = Vec::new();
        for (target, endpoint) in
            (0..).zip(&endpoints).filter(|(target, _)| self.absent != Some(*target as usize))
        {
            player.greet(target, endpoint).await?;
            members.push(PanelMember { target, endpoint });
        }
        let mut watch = Cut { cells: 0, calls, stop: &stop };
        let (name, version) = self.inquiry.named();
        let gap = Duration::from_millis(20);
        let mut panel = player.panel(name, version, &members, gap, &mut watch)?;
        self.inquiry.play(&mut panel).await
    }

    /// Calls that arrived.
    fn arrived(&self) -> u64 {
        self.providers.iter().map(|provider| provider.counts().calls).sum()
    }
}

fn said(dir: &Path) -> Vec<ExperimentVerdict> {
    let (run, records) = read(dir);
    verdicts(&run, &records)
}

fn cells(dir: &Path) -> Vec<Cell> {
    read(dir).1.iter().filter_map(Record::cell).cloned().collect()
}

fn calls<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> u64 {
    cells.into_iter().map(|cell| cell.calls).sum()
}

/// Calls that reach the target: a batch is one in the records.
fn sent<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> u64 {
    let each = |cell: &Cell| match cell.factors.get("probe").map(String::as_str) {
        Some("batch") => cell.factors["value"].parse().unwrap(),
        Some(_) | None => 1,
    };
    cells.into_iter().map(|cell| cell.calls * each(cell)).sum()
}

/// What a cell is about: of all cells of one run no two are about the same.
type About = (u32, BTreeMap<String, String>);

fn about(cells: &[Cell]) -> Vec<About> {
    cells.iter().map(|cell| (cell.target, cell.factors.clone())).collect()
}

/// A directory with the run as it is after this many bytes of records.
fn killed(whole: &Path, bytes: usize) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::copy(whole.join("run.json"), dir.path().join("run.json")).unwrap();
    let records = fs::read(whole.join("records.jsonl")).unwrap();
    fs::write(dir.path().join("records.jsonl"), &records[..bytes]).unwrap();
    dir
}

/// 31 blocks with a few transactions each.
fn busy() -> &'static Arc<World> {
    static WORLD: OnceLock<Arc<World>> = OnceLock::new();
    WORLD.get_or_init(|| {
        World::new(WorldConfig {
            history_blocks: 30,
            txs_per_block: 2,
            finalized_distance: 8,
            ..WorldConfig::default()
        })
    })
}

/// Three targets that know the chain, of which one lies.
fn liar() -> Vec<ProviderDials> {
    let methods = ["eth_getTransactionReceipt", "eth_getBlockByNumber", "eth_getLogs"];
    let methods = methods.map(str::to_owned).to_vec();
    let lie = Some(Falsehood { methods, percent: 40.0, seed: 3 });
    let honest = ProviderDials::default();
    vec![honest.clone(), ProviderDials { lie, ..honest.clone() }, honest]
}

fn questions() -> Inquiry {
    Inquiry::Agree(agree::AgreeTerms { asks: 48, blocks: 5, ..agree::AgreeTerms::default() })
}

/// A run that is not cut.
async fn whole(world: &Arc<World>, dials: &[ProviderDials], inquiry: &Inquiry) -> TempDir {
    let dir = TempDir::new().unwrap();
    let providers = start(world, dials);
    let play = Play::new(dir.path(), &providers, inquiry);
    play.until(UNCUT).await.unwrap();
    let greetings = GREETING * dials.len() as u64;
    assert_eq!(play.arrived(), sent(&cells(dir.path())) + greetings, "each call is in a record");
    dir
}

/// Cuts a run after several numbers of calls, twice each, and kills it after several numbers of
/// bytes. Whatever is left makes the same run of it, and the same is said.
async fn cut_anywhere(world: &Arc<World>, dials: &[ProviderDials], inquiry: &Inquiry) {
    let mut rng = SmallRng::seed_from_u64(11);
    let uncut = whole(world, dials, inquiry).await;
    let (expected, told) = (cells(uncut.path()), said(uncut.path()));
    let all = calls(&expected);
    let greetings = GREETING * dials.len() as u64;
    // All calls of one question, and those for the head.
    let one = expected.iter().map(|cell| sent([cell]) + 4).max().unwrap() * dials.len() as u64;
    for _ in 0..CUTS {
        let dir = TempDir::new().unwrap();
        let providers = start(world, dials);
        let play = Play::new(dir.path(), &providers, inquiry);
        let first = rng.random_range(1..all);
        play.until(first).await.unwrap();
        let (run, kept) = (read(dir.path()).0, cells(dir.path()));
        assert_eq!(about(&kept), about(&expected)[..kept.len()], "cut after {first} calls");
        assert!(run.spent >= play.arrived(), "what was sent is known");
        let second = rng.random_range(1..=all - calls(&kept));
        play.until(second).await.unwrap();
        play.until(UNCUT).await.unwrap();
        let found = cells(dir.path());
        let cuts = format!("cut after {first} and {second} calls");
        assert_eq!(about(&found), about(&expected), "{cuts}");
        assert_eq!(said(dir.path()), told, "{cuts}");
        let arrived = play.arrived();
        let most = sent(&found) + 3 * greetings + 2 * one;
        assert!(arrived <= most, "{cuts}: {arrived} calls arrived, of at most {most}");
        assert!(read(dir.path()).0.spent >= arrived);
        // Nothing is left.
        play.until(UNCUT).await.unwrap();
        assert_eq!(play.arrived(), arrived + greetings, "{cuts}");
    }
    for _ in 0..CUTS {
        let records = fs::read(uncut.path().join("records.jsonl")).unwrap();
        let bytes = rng.random_range(1..records.len());
        let dir = killed(uncut.path(), bytes);
        let providers = start(world, dials);
        let play = Play::new(dir.path(), &providers, inquiry);
        play.until(UNCUT).await.unwrap();
        let found = cells(dir.path());
        let (kept, new): (Vec<Cell>, Vec<Cell>) =
            found.into_iter().partition(|cell| cell.part == 0);
        assert_eq!(about(&kept), about(&expected)[..kept.len()]);
        assert_eq!(said(dir.path()), told, "killed after {bytes} bytes");
        assert_eq!(play.arrived(), sent(&new) + greetings, "killed after {bytes} bytes");
        // What was asked again is one question that not all cells were left of.
        let again: BTreeSet<_> = about(&new).into_iter().collect();
        let again: Vec<_> = about(&kept).into_iter().filter(|it| again.contains(it)).collect();
        let ask = |(_, factors): &About| factors.get("ask").cloned();
        let asks: BTreeSet<_> = again.iter().map(ask).collect();
        assert!(asks.len() <= 1 && again.len() < dials.len(), "{bytes} bytes: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_compared_as_in_an_uncut_run() {
    cut_anywhere(busy(), &liar(), &questions()).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_reached_is_found_as_in_an_uncut_run() {
    let mut dials = ProviderDials {
        unsupported: vec!["eth_feeHistory".to_owned(), "txpool_*".to_owned()],
        log_range_max: Some(21),
        batch_max: Some(13),
        ..ProviderDials::default()
    };
    dials.history.state_blocks = Some(11);
    let terms = reach::ReachTerms { range_max: 28, batch_max: 20 };
    cut_anywhere(busy(), &[dials, ProviderDials::default()], &Inquiry::Reach(terms)).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_spent_account_left_is_tried_when_it_is_filled_again() {
    let inquiry = Inquiry::Reach(reach::ReachTerms { range_max: 28, batch_max: 20 });
    let dials = [ProviderDials::default()];
    let uncut = whole(busy(), &dials, &inquiry).await;
    let (expected, told) = (cells(uncut.path()), said(uncut.path()));
    let all = calls(&expected);
    for paid in [20, all / 2, all * 2 / 3, all - 3] {
        let bucket = CreditBucket::spent_once(paid as f64, RefusalForm::payment_required());
        let providers =
            start(busy(), &[ProviderDials { buckets: vec![bucket], ..dials[0].clone() }]);
        let dir = TempDir::new().unwrap();
        let play = Play::new(dir.path(), &providers, &inquiry);
        play.until(UNCUT).await.unwrap();
        let is_note = |cell: &Cell| cell.factors["probe"] == "account";
        assert!(cells(dir.path()).last().is_some_and(is_note), "{paid} calls were paid");
        providers[0].turn(|dials| dials.buckets.clear());
        play.until(UNCUT).await.unwrap();
        let mut found = cells(dir.path());
        found.retain(|cell| !is_note(cell));
        assert_eq!(about(&found), about(&expected), "{paid} calls were paid");
        assert_eq!(said(dir.path()), told, "{paid} calls were paid");
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_has_grown_is_searched_to_its_beginning() {
    let terms = reach::ReachTerms { range_max: 100, batch_max: 4 };
    let inquiry = Inquiry::Reach(terms);
    let dials = [ProviderDials::default()];
    let all = calls(&cells(whole(busy(), &dials, &inquiry).await.path()));
    for first in [all / 2, all * 3 / 4, all - 8] {
        let config = WorldConfig { history_blocks: 30, ..WorldConfig::default() };
        let world = World::new(config);
        let providers = start(&world, &dials);
        let dir = TempDir::new().unwrap();
        let play = Play::new(dir.path(), &providers, &inquiry);
        play.until(first).await.unwrap();
        for _ in 0..9 {
            world.mine();
        }
        play.until(UNCUT).await.unwrap();
        for verdict in said(dir.path()) {
            let Finding::Reach { what, up_to, refused_at, whole } = &verdict.finding else {
                continue;
            };
            if *what == Extent::Batch {
                continue;
            }
            // Searched before it grew, or after. A search for logs ends two blocks below the head.
            let below = if *what == Extent::Range { 2 } else { 0 };
            let all = up_to.map(|up_to| up_to + below);
            assert!(matches!(all, Some(30 | 31 | 39 | 40)), "{first}: {verdict:?}");
            // A search goes no further than logs were found to: beyond that it tells nothing.
            let tells_all = *whole || *what == Extent::Range;
            assert!(refused_at.is_none() && tells_all, "{first}: {verdict:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_was_missing_is_asked_when_it_is_there_again() {
    let (inquiry, dials) = (questions(), liar());
    let uncut = whole(busy(), &dials, &inquiry).await;
    // The one that lies was not there at first.
    let providers = start(busy(), &dials);
    let dir = TempDir::new().unwrap();
    let without = Play { absent: Some(1), ..Play::new(dir.path(), &providers, &inquiry) };
    without.until(70).await.unwrap();
    let play = Play::new(dir.path(), &providers, &inquiry);
    play.until(UNCUT).await.unwrap();
    let findings = |dir: &Path| said(dir).into_iter().map(|it| it.finding).collect::<Vec<_>>();
    assert_eq!(findings(dir.path()), findings(uncut.path()));
    // One that goes away is left out of what is still to be asked.
    let providers = start(busy(), &dials);
    let dir = TempDir::new().unwrap();
    Play::new(dir.path(), &providers, &inquiry).until(100).await.unwrap();
    let before = cells(dir.path());
    let without = Play { absent: Some(2), ..Play::new(dir.path(), &providers, &inquiry) };
    without.until(UNCUT).await.unwrap();
    let all = cells(dir.path());
    let new = &all[before.len()..];
    let asked = |cells: &[Cell], target: u32| {
        let own = |cell: &&Cell| cell.target == target && cell.factors.contains_key("ask");
        cells.iter().filter(own).count()
    };
    assert_eq!([0, 1, 2].map(|target| asked(&all, target)), [48, 48, asked(&before, 2)]);
    assert!(!new.is_empty() && about(&all)[..before.len()] == about(&before)[..]);
}

#[tokio::test(start_paused = true)]
async fn all_parts_together_are_bounded() {
    let reach = Inquiry::Reach(reach::ReachTerms::default());
    for (inquiry, dials) in [(questions(), liar()), (reach, vec![ProviderDials::default()])] {
        let providers = start(busy(), &dials);
        let dir = TempDir::new().unwrap();
        let play = Play { calls_max: 90, ..Play::new(dir.path(), &providers, &inquiry) };
        for calls in [25, 20, UNCUT, UNCUT] {
            play.until(calls).await.unwrap();
            let spent = read(dir.path()).0.spent;
            assert!(play.arrived() <= spent && spent <= 90, "{} of {spent}", play.arrived());
        }
        assert!(read(dir.path()).0.spent > 80, "it went on");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_forgets_no_call() {
    for ms in [50, 333, 1_000] {
        let providers = start(busy(), liar());
        let dir = TempDir::new().unwrap();
        let inquiry = questions();
        let play = Play::new(dir.path(), &providers, &inquiry);
        let killed = tokio::time::timeout(Duration::from_millis(ms), play.until(UNCUT)).await;
        assert!(killed.is_err(), "{ms} ms are too many");
        let spent = read(dir.path()).0.spent;
        assert!(spent >= play.arrived(), "{spent} are known, {} arrived", play.arrived());
    }
}

#[tokio::test(start_paused = true)]
async fn what_connections_did_is_written() {
    let dir = whole(busy(), &liar(), &questions()).await;
    let (_, records) = read(dir.path());
    for target in 0..3 {
        let mut wires = records.iter().filter_map(Record::wire);
        let opened = wires.any(|wire| {
            let text = serde_json::to_string(wire).unwrap();
            wire.target == target && text.contains(r#""event":"opened""#)
        });
        assert!(opened, "target {target}");
    }
    let phases = records.iter().filter_map(Record::call).all(|call| {
        call.connection.is_some() && call.first_byte.is_some() && call.transfer.is_some()
    });
    assert!(phases, "each call tells its phases");
    assert!(!format!("{records:?}").contains("PATHKEY"), "no record holds a key");
}

const BLOCK_TIME: Duration = Duration::from_secs(2);

/// Two watch a chain that goes on, one of them two blocks late, and the run is cut or killed in
/// between for this long.
async fn watched(seed: u64, cut: Option<u64>, kill: bool, gap_blocks: u32) -> TempDir {
    let config = WorldConfig { block_time: BLOCK_TIME, txs_per_block: 0, ..WorldConfig::default() };
    let world = World::new(config);
    let late = ProviderDials { lag_blocks: 2, ..ProviderDials::default() };
    let providers = start(&world, &[ProviderDials::default(), late]);
    let mining = mining(world, BLOCK_TIME);
    let terms = fresh::FreshTerms { lasting: BLOCK_TIME * 24, every: BLOCK_TIME / 8, seed };
    let calls_max = terms.calls_max() * 2 + GREETING * 4;
    let inquiry = Inquiry::Fresh(terms);
    let mut dir = TempDir::new().unwrap();
    if let Some(calls) = cut {
        Play::new(dir.path(), &providers, &inquiry).until(calls).await.unwrap();
        if kill {
            // The last cells say how long was watched; a kill leaves none of them.
            let text = fs::read_to_string(dir.path().join("records.jsonl")).unwrap();
            let end = text.find("watched_ms").unwrap();
            dir = killed(dir.path(), end);
        }
        tokio::time::sleep(BLOCK_TIME * gap_blocks).await;
    }
    Play::new(dir.path(), &providers, &inquiry).until(UNCUT).await.unwrap();
    let play = Play::new(dir.path(), &providers, &inquiry);
    let arrived = play.arrived();
    assert!(arrived <= calls_max, "{arrived} of {calls_max}");
    // The time is over.
    play.until(UNCUT).await.unwrap();
    assert_eq!(play.arrived(), arrived + GREETING * 2);
    mining.abort();
    dir
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_no_lag() {
    let planted = 2.0 * BLOCK_TIME.as_secs_f64() * 1_000.0;
    let mut rng = SmallRng::seed_from_u64(5);
    let mut all = vec![(1, None, false, 0)];
    for seed in 2..2 + CUTS {
        let cut = Some(rng.random_range(30..320));
        all.push((seed, cut, seed % 2 == 0, [0, 1, 7, 200][seed as usize % 4]));
    }
    for case @ (seed, cut, kill, gap) in all {
        let dir = watched(seed, cut, kill, gap).await;
        let told = said(dir.path());
        let Finding::Lag(Found(BlockLag { ms, blocks, p95_blocks, p95_ms, seen, .. })) =
            told[1].finding
        else {
            panic!("{case:?}: {told:?}");
        };
        let off = (ms / planted - 1.0).abs();
        assert!(off < 0.1 && (2, true) == (blocks, p95_blocks <= 3), "{case:?}: {told:?}");
        assert!(p95_ms < planted * 1.2 && seen >= 16, "{case:?}: {told:?}");
        assert!(matches!(told[0].finding, Finding::Lag(NotUpTo(_))), "{case:?}: {told:?}");
        // No block that was new after the gap is counted across it.
        let cells = cells(dir.path());
        let longest = cells.iter().filter(|cell| cell.factors.contains_key("block"));
        let longest = longest.map(|cell| cell.ended_at - cell.begun_at).max().unwrap();
        assert!(longest < 2_000_000, "{case:?}: {longest} us between two polls");
        let watched: BTreeMap<u32, u64> = cells
            .iter()
            .filter_map(|cell| Some((cell.part, cell.factors.get("watched_ms")?.parse().ok()?)))
            .collect();
        let sum: u64 = watched.values().sum();
        let lasting = (BLOCK_TIME * 24).as_millis() as u64;
        assert!(kill || (lasting..=lasting + 2).contains(&sum), "{case:?}: {watched:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_version_played_is_not_gone_on_with() {
    let (inquiry, dials) = (questions(), liar());
    let dir = whole(busy(), &dials, &inquiry).await;
    let path = dir.path().join("records.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace(r#""version":1"#, r#""version":0"#)).unwrap();
    let providers = start(busy(), &dials);
    let error = Play::new(dir.path(), &providers, &inquiry).until(UNCUT).await.unwrap_err();
    assert!(matches!(&error, RunError::Other(name) if name == "agree"), "{error}");
}
