//! What is said of the answers of providers whose truth was drawn: blind, over sockets, with the
//! clock paused.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use wellhead_analyze::conclude::verdict::{
    AnswersAgree, AnswersDiffer, BlockLag, Confidence, ExperimentVerdict, Extent, Finding,
    FindingBound::{Found, NotUpTo},
    NoBlockLag, verdicts,
};
use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::inquiry::{agree, fresh, reach};
use wellhead_analyze::measure::run::{
    CallBudget, Panel, PanelMember, Player, RunError, StopSignal, Unwatched, Watch,
};
use wellhead_analyze::method_list::methods;
use wellhead_analyze::record::{Cell, Record, RunRecord};
use wellhead_eth::canonical;
use wellhead_sim::node::SimNode;
use wellhead_sim::provider::{CreditBucket, Matter, RefusalForm};
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};
use wellhead_telemetry::SecretUrl;

use super::support::{near, read, terms};

/// Random settings of each kind.
const SEEDS: u64 = 20;

#[derive(Debug, Clone)]
pub(crate) enum Inquiry {
    Agree(agree::AgreeTerms),
    Fresh(fresh::FreshTerms),
    Reach(reach::ReachTerms),
}

impl Inquiry {
    /// What the records call it, and its version.
    pub(crate) fn named(&self) -> (&'static str, u32) {
        match self {
            Self::Agree(_) => (agree::NAME, agree::VERSION),
            Self::Fresh(_) => (fresh::NAME, fresh::VERSION),
            Self::Reach(_) => (reach::NAME, reach::VERSION),
        }
    }

    pub(crate) async fn play(&self, panel: &mut Panel<'_, '_>) -> Result<(), RunError> {
        match self {
            Self::Agree(terms) => agree::play(panel, terms).await,
            Self::Fresh(terms) => fresh::play(panel, terms).await,
            Self::Reach(terms) => reach::play(panel, terms, &[]).await,
        }
    }
}

pub(crate) struct Played {
    pub(crate) run: RunRecord,
    pub(crate) records: Vec<Record>,
    pub(crate) verdicts: Vec<ExperimentVerdict>,
    /// Calls that were paid for.
    pub(crate) spent: u64,
}

impl Played {
    pub(crate) fn cells(&self, target: u32) -> impl Iterator<Item = &Cell> {
        self.records.iter().filter_map(Record::cell).filter(move |cell| cell.target == target)
    }

    pub(crate) fn of(&self, target: u32) -> Vec<&Finding> {
        let own = self.verdicts.iter().filter(|verdict| verdict.target == target);
        own.map(|verdict| &verdict.finding).collect()
    }
}

/// One target for each provider; a key is in each URL.
pub(crate) fn endpoints(providers: &[FakeProvider]) -> Vec<TargetEndpoint> {
    let endpoint = |(n, provider): (usize, &FakeProvider)| {
        let url = format!("http://{}/v2/PATHKEY", provider.addr());
        TargetEndpoint::new(format!("target-{}", n + 1), SecretUrl::parse(&url).unwrap())
    };
    providers.iter().enumerate().map(endpoint).collect()
}

pub(crate) async fn play(providers: &[FakeProvider], inquiry: Inquiry) -> Played {
    play_within(providers, inquiry, u64::MAX).await
}

async fn play_within(providers: &[FakeProvider], inquiry: Inquiry, calls_max: u64) -> Played {
    play_watched(providers, inquiry, calls_max, &mut Unwatched).await
}

pub(crate) async fn play_watched(
    providers: &[FakeProvider],
    inquiry: Inquiry,
    calls_max: u64,
    watch: &mut dyn Watch,
) -> Played {
    let endpoints = endpoints(providers);
    let dir = TempDir::new().unwrap();
    let (budget, stop) = (CallBudget::new(calls_max), StopSignal::default());
    let mut player = Player::begin(dir.path(), terms(), &endpoints, &budget, &stop).unwrap();
    let mut members = Vec::new();
    for (target, endpoint) in (0..).zip(&endpoints) {
        player.greet(target, endpoint).await.unwrap();
        members.push(PanelMember { target, endpoint });
    }
    let gap = Duration::from_millis(20);
    let (name, version) = inquiry.named();
    let mut panel = player.panel(name, version, &members, gap, watch).unwrap();
    inquiry.play(&mut panel).await.unwrap();
    let (run, records) = read(dir.path());
    let arrived: u64 = providers.iter().map(|provider| provider.counts().calls).sum();
    assert!(arrived <= budget.spent(), "{arrived} calls arrived, {} counted", budget.spent());
    let verdicts = verdicts(&run, &records);
    Played { run, records, verdicts, spent: budget.spent() }
}

fn draw(seed: u64, matter: Matter) -> (SmallRng, ProviderDials) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let dials = ProviderDials::draw_knowledge(&mut rng, matter);
    (rng, dials)
}

pub(crate) fn start(world: &Arc<World>, dials: impl AsRef<[ProviderDials]>) -> Vec<FakeProvider> {
    let provider = |dials: &ProviderDials| {
        FakeProvider::start("provider", Arc::clone(world), dials.clone()).unwrap()
    };
    dials.as_ref().iter().map(provider).collect()
}

/// A new block each `block_time`, until it is aborted.
pub(crate) fn mining(world: Arc<World>, block_time: Duration) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(block_time).await;
            world.mine();
        }
    })
}

/// 60 blocks with a few transactions each, of which 16 may still be replaced.
pub(crate) fn busy() -> &'static Arc<World> {
    static WORLD: OnceLock<Arc<World>> = OnceLock::new();
    WORLD.get_or_init(|| {
        World::new(WorldConfig {
            history_blocks: 60,
            txs_per_block: 3,
            finalized_distance: 16,
            ..WorldConfig::default()
        })
    })
}

/// What a node says and what a liar says instead: whether they mean the same.
fn is_a_lie(node: &SimNode, dials: &ProviderDials, method: &str, params: &str) -> bool {
    let params: Value = serde_json::from_str(params).unwrap();
    let Ok(truth) = node.ask(method, Some(&params)) else { return false };
    let lie = dials.lie.as_ref().unwrap();
    let told = lie.instead_of(method, Some(&params), truth.clone());
    canonical(truth.to_string().as_bytes()) != canonical(told.to_string().as_bytes())
}

#[tokio::test(start_paused = true)]
async fn every_lie_is_found_and_no_honest_target_is_accused() {
    let mut lies_told = 0;
    for seed in 0..SEEDS {
        let (mut rng, dials) = draw(seed, Matter::Lie);
        let targets = rng.random_range(2..=4);
        let liar = rng.random_range(0..targets);
        let honest = |_| ProviderDials::draw_knowledge(&mut rng, Matter::Nothing);
        let mut all: Vec<ProviderDials> = (0..targets).map(honest).collect();
        all[liar] = dials.clone();
        let providers = start(busy(), all);
        let terms = agree::AgreeTerms { asks: 150, seed, ..agree::AgreeTerms::default() };
        let played = play(&providers, Inquiry::Agree(terms)).await;
        let node = providers[liar].node();
        let (mut asked, mut lies, mut compared) = (0, 0, 0);
        for cell in played.cells(liar as u32) {
            let Some(method) = cell.factors.get("method") else { continue };
            asked += 1;
            // No target has proofs here.
            compared += u64::from(cell.factors.contains_key("digest"));
            assert_eq!(cell.factors.contains_key("digest"), method != "eth_getProof");
            let is_lie = is_a_lie(node, &dials, method, &cell.factors["params"]);
            lies += u64::from(is_lie);
            let told = cell.factors.contains_key("path");
            assert_eq!(told, is_lie, "seed {seed}: {cell:?}");
            if let Some(small) = cell.factors.get("small_method") {
                let params = &cell.factors["small_params"];
                assert!(is_a_lie(node, &dials, small, params), "seed {seed}: {cell:?}");
            }
        }
        assert_eq!(asked, 150, "seed {seed}");
        lies_told += lies;
        for target in 0..targets {
            let found = played.of(target as u32);
            let accused = lies > 0 && (target == liar || targets == 2);
            match (accused, found[0]) {
                (
                    true,
                    Finding::Answers(Found(AnswersDiffer {
                        calls,
                        of,
                        outvoted,
                        method,
                        params,
                        ..
                    })),
                ) => {
                    assert_eq!(*of, compared, "seed {seed}");
                    assert_eq!(*calls, lies, "seed {seed}");
                    assert_eq!(*outvoted, if targets > 2 { lies } else { 0 }, "seed {seed}");
                    assert!(is_a_lie(node, &dials, method, params), "seed {seed}: {found:?}");
                }
                (false, Finding::Answers(NotUpTo(AnswersAgree { calls }))) => {
                    assert_eq!(*calls, compared);
                }
                (_, other) => panic!("seed {seed}, {target} of {targets}, {lies} lies: {other:?}"),
            }
        }
    }
    assert!(lies_told > 100, "{lies_told} lies are few");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_asks_the_same() {
    let ask = |seed| async move {
        let providers = start(busy(), vec![ProviderDials::default(); 2]);
        let terms = agree::AgreeTerms { asks: 80, seed, ..agree::AgreeTerms::default() };
        let played = play(&providers, Inquiry::Agree(terms)).await;
        let told = |cell: &Cell| Some((cell.factors.get("method")?.clone(), cell.factors.clone()));
        played.cells(0).filter_map(told).collect::<Vec<_>>()
    };
    let first = ask(1).await;
    assert_eq!(first.len(), 80);
    assert_eq!(first, ask(1).await);
    assert_ne!(first, ask(2).await);
    let mut methods: Vec<&String> = first.iter().map(|(method, _)| method).collect();
    methods.sort();
    methods.dedup();
    assert!(methods.len() >= 15, "{methods:?}");
}

#[tokio::test(start_paused = true)]
async fn what_one_does_not_tell_is_no_difference() {
    let mut dials = vec![ProviderDials::default(); 2];
    dials[1].unsupported = vec!["eth_getBlockReceipts".to_owned(), "eth_feeHistory".to_owned()];
    dials[1].history.state_blocks = Some(20);
    let providers = start(busy(), dials);
    let terms = agree::AgreeTerms { asks: 200, ..agree::AgreeTerms::default() };
    let played = play(&providers, Inquiry::Agree(terms)).await;
    for verdict in &played.verdicts {
        assert!(
            matches!(verdict.finding, Finding::Answers(NotUpTo(AnswersAgree { calls })) if calls > 100),
            "{verdict:?}"
        );
    }
    let notes = played.verdicts[1].evidence.join("\n");
    for class in ["(unsupported)", "(missing_data)"] {
        assert!(notes.contains(class), "{notes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_refuses_for_the_rate_is_asked_again_and_not_accused() {
    let second = Duration::from_secs(1);
    for refusal in [RefusalForm::too_many(None), RefusalForm::too_many_in_body()] {
        let mut dials = vec![ProviderDials::default(); 2];
        dials[1].buckets = vec![CreditBucket::steady(5.0, second, refusal)];
        let providers = start(busy(), dials);
        let terms = agree::AgreeTerms { asks: 60, ..agree::AgreeTerms::default() };
        let played = play(&providers, Inquiry::Agree(terms)).await;
        assert!(providers[1].counts().refusals > 0, "it did refuse");
        for verdict in &played.verdicts {
            let agrees = matches!(verdict.finding, Finding::Answers(NotUpTo(AnswersAgree { calls })) if calls > 50);
            assert!(agrees, "{verdict:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_bars_all_calls_is_not_compared() {
    let mut dials = vec![ProviderDials::default(); 3];
    dials[2].barred = Some(RefusalForm::no_key());
    let providers = start(busy(), dials);
    let terms = agree::AgreeTerms { asks: 40, ..agree::AgreeTerms::default() };
    let played = play(&providers, Inquiry::Agree(terms)).await;
    let kinds: Vec<bool> =
        (0..3).map(|n| matches!(played.of(n)[0], Finding::Answers(NotUpTo(_)))).collect();
    assert_eq!(kinds, [true, true, false]);
    assert!(matches!(played.of(2)[0], Finding::CannotTell { .. }), "{:?}", played.verdicts);
}

#[tokio::test(start_paused = true)]
async fn not_one_call_more_than_the_budget_is_sent() {
    for budget in [0, 5, 7, 60] {
        let providers = start(busy(), vec![ProviderDials::default(); 2]);
        let terms = agree::AgreeTerms::default();
        let played = play_within(&providers, Inquiry::Agree(terms), budget).await;
        let arrived: u64 = providers.iter().map(|provider| provider.counts().calls).sum();
        assert!(arrived <= budget && played.spent <= budget, "{arrived} of {budget}");
        let dials = vec![ProviderDials::default()];
        let providers = start(busy(), dials);
        let played =
            play_within(&providers, Inquiry::Reach(reach::ReachTerms::default()), budget).await;
        assert!(providers[0].counts().calls <= budget && played.spent <= budget);
    }
}

/// Targets of one chain that goes on, watched for this many blocks.
async fn watch(seed: u64, dials: Vec<ProviderDials>, blocks: u32) -> (Duration, Played) {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0xb10c);
    let block_time = Duration::from_secs([1, 2, 5, 12][rng.random_range(0..4)]);
    let world = World::new(WorldConfig {
        seed,
        history_blocks: 12,
        txs_per_block: 0,
        block_time,
        ..WorldConfig::default()
    });
    let providers = start(&world, dials);
    let mining = mining(world, block_time);
    let terms = fresh::FreshTerms { lasting: block_time * blocks, every: block_time / 8, seed };
    let played = play(&providers, Inquiry::Fresh(terms)).await;
    mining.abort();
    (block_time, played)
}

#[tokio::test(start_paused = true)]
async fn a_lag_is_found_and_whose_it_is() {
    for seed in 0..SEEDS {
        let (mut rng, dials) = draw(seed, Matter::Lag);
        let targets = rng.random_range(2..=3);
        let late = rng.random_range(0..targets);
        let prompt = |_| ProviderDials::draw_knowledge(&mut rng, Matter::Nothing);
        let mut all: Vec<ProviderDials> = (0..targets).map(prompt).collect();
        all[late] = dials.clone();
        let (block_time, played) = watch(seed, all, 24).await;
        let planted = dials.lag_blocks as f64 * block_time.as_secs_f64() * 1_000.0;
        for target in 0..targets {
            match (target == late, played.of(target as u32)[0]) {
                (true, Finding::Lag(Found(BlockLag { ms, low_ms, high_ms, blocks, .. }))) => {
                    near(*ms, planted, &seed);
                    assert!(low_ms <= ms && ms <= high_ms, "{played:?}", played = played.verdicts);
                    assert_eq!(*blocks, dials.lag_blocks, "seed {seed}");
                }
                (false, Finding::Lag(NotUpTo(NoBlockLag { within_ms, .. }))) => {
                    assert!(*within_ms < block_time.as_secs_f64() * 500.0, "seed {seed}");
                }
                (_, other) => panic!("seed {seed}: {target}, late is {late}: {other:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_no_target_lags_no_lag_is_found() {
    for seed in 0..SEEDS {
        let all = (0..3).map(|n| draw(seed * 3 + n, Matter::Nothing).1).collect();
        let (_, played) = watch(seed, all, 24).await;
        for verdict in &played.verdicts {
            assert!(
                matches!(verdict.finding, Finding::Lag(NotUpTo(_))),
                "seed {seed}: {verdict:?}"
            );
        }
        assert_eq!(played.verdicts.len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn few_blocks_tell_nothing() {
    let (_, played) = watch(1, vec![ProviderDials::default(); 2], 3).await;
    for verdict in &played.verdicts {
        assert!(matches!(verdict.finding, Finding::CannotTell { .. }), "{verdict:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_alone_is_never_late() {
    let (_, played) = watch(1, vec![ProviderDials::default()], 10).await;
    let why = &played.verdicts[0].sentence;
    assert!(why.contains("measured against other targets"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_stands_still_is_told_by_its_distance() {
    let world = World::new(WorldConfig { txs_per_block: 0, ..WorldConfig::default() });
    let providers = start(&world, vec![ProviderDials::default(); 2]);
    providers[1].node().freeze();
    let mining = mining(world, Duration::from_secs(2));
    let every = Duration::from_millis(500);
    let terms = fresh::FreshTerms { lasting: Duration::from_secs(60), every, seed: 1 };
    let played = play(&providers, Inquiry::Fresh(terms)).await;
    mining.abort();
    let Finding::Lag(Found(BlockLag { blocks, seen: 0, .. })) = played.of(1)[0] else {
        panic!("{:?}", played.verdicts)
    };
    assert!((13..=16).contains(blocks), "half of the 30 that came: {blocks}");
    assert_eq!(played.verdicts[1].confidence, Confidence::Low);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_goes_back_is_told() {
    let world = World::new(WorldConfig { txs_per_block: 0, ..WorldConfig::default() });
    let providers = start(&world, vec![ProviderDials::default(); 2]);
    // As behind one URL with two nodes: every second moment it is a block behind.
    let flighty = Arc::clone(providers[1].node());
    let moving = tokio::spawn(async move {
        for moment in 0.. {
            tokio::time::sleep(Duration::from_secs(1)).await;
            flighty.turn(|dials| dials.lag_blocks = moment % 2);
            if moment % 4 == 0 {
                world.mine();
            }
        }
    });
    let every = Duration::from_millis(200);
    let terms = fresh::FreshTerms { lasting: Duration::from_secs(60), every, seed: 1 };
    let played = play(&providers, Inquiry::Fresh(terms)).await;
    moving.abort();
    let told =
        |verdict: &ExperimentVerdict| verdict.evidence.join("\n").contains("height went backwards");
    assert!(!told(&played.verdicts[0]) && told(&played.verdicts[1]), "{:?}", played.verdicts);
}

/// 600 blocks.
pub(crate) fn long() -> &'static Arc<World> {
    static WORLD: OnceLock<Arc<World>> = OnceLock::new();
    WORLD.get_or_init(|| {
        World::new(WorldConfig { history_blocks: 599, txs_per_block: 1, ..WorldConfig::default() })
    })
}

pub(crate) const BLOCKS: u64 = 600;

/// What a provider was found to reach, beside what it should.
async fn reached(seed: u64, matter: Matter) {
    let dials = draw(seed, matter).1;
    let providers = start(long(), vec![dials.clone()]);
    let terms = reach::ReachTerms { range_max: 550, batch_max: 110 };
    let played = play(&providers, Inquiry::Reach(terms.clone())).await;
    let limit = |limit: Option<u64>, max: u64| match limit {
        Some(limit) if limit < max => (Some(limit), Some(limit + 1), false),
        Some(_) | None => (Some(max), None, max == BLOCKS),
    };
    let history = dials.history;
    let range = limit(dials.log_range_max, terms.range_max);
    let kept = limit(history.body_blocks, BLOCKS);
    let expected = [
        (Extent::State, limit(history.state_blocks, BLOCKS)),
        (Extent::Blocks, kept),
        (Extent::Logs, kept),
        // Where logs end nothing can be said of wider searches, which end two blocks below the head.
        (
            Extent::Range,
            match kept.0.map(|kept| kept - 2) {
                Some(kept) if kept < terms.range_max => (Some(kept), None, false),
                Some(_) | None => range,
            },
        ),
        (Extent::Batch, limit(dials.batch_max.map(|max| max as u64), terms.batch_max)),
    ];
    let found = played.of(0);
    for (what, (up_to, refused_at, whole)) in expected {
        let finding = Finding::Reach { what, up_to, refused_at, whole };
        assert!(found.contains(&&finding), "seed {seed}, {dials:?}: {finding:?} in {found:#?}");
    }
    // What is unknown to the node is missing, and nothing else.
    let unknown = |name: &str| {
        let params = serde_json::json!([]);
        let answer = providers[0].node().ask(name, Some(&params));
        answer.is_err_and(|error| error.code == -32601)
    };
    let mut missing: Vec<String> = methods()
        .iter()
        .map(|listed| listed.name.to_owned())
        .filter(|name| unknown(name))
        .collect();
    missing.sort();
    let served = (methods().len() - missing.len()) as u64;
    let finding = Finding::Methods { served, missing };
    let verdicts = &played.verdicts;
    assert!(found.contains(&&finding), "seed {seed}, {dials:?}: {finding:?} in {verdicts:?}");
    assert!(found.contains(&&Finding::WebSocket { served: false }), "{found:?}");
    assert_eq!(found.len(), 7, "and nothing else: {found:?}");
    let most: u64 = terms.parts().iter().map(|(_, _, calls)| calls).sum();
    assert!(played.spent <= most + 3, "{} of {most} calls", played.spent);
    let text = serde_json::to_string(&played.run).unwrap() + &format!("{:?}", played.records);
    assert!(!text.contains("PATHKEY"), "no record holds a key");
}

#[tokio::test(start_paused = true)]
async fn the_history_the_widest_search_the_largest_batch_and_the_methods_are_found() {
    for (matter, seeds) in [
        (Matter::History, SEEDS),
        (Matter::LogRange, SEEDS),
        (Matter::Batch, SEEDS),
        (Matter::Methods, SEEDS),
        (Matter::Nothing, 3),
    ] {
        for seed in 0..seeds {
            reached(seed, matter).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn logs_that_are_denied_are_gone() {
    let providers = start(busy(), vec![ProviderDials::default()]);
    providers[0].node().turn(|dials| dials.facts.hides_logs = true);
    let played = play(&providers, Inquiry::Reach(reach::ReachTerms::default())).await;
    let gone =
        Finding::Reach { what: Extent::Logs, up_to: None, refused_at: Some(3), whole: false };
    assert!(played.of(0).contains(&&gone), "{:?}", played.verdicts);
}
