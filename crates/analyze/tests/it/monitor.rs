//! A provider that is watched for hours of paused time, and whose limit changes meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;
use wellhead_analyze::measure::client::{CallMeter, TargetEndpoint};
use wellhead_analyze::measure::run::StopSignal;
use wellhead_analyze::monitor::{
    Monitor, MonitorEvent, MonitorObserver, MonitorRunTerms, MonitorTerms, MonitoredTarget,
    SpendBounds,
};
use wellhead_sim::node::LatencyDial;
use wellhead_sim::provider::{CreditBucket, RefusalForm};
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};
use wellhead_telemetry::SecretUrl;

use crate::support;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const PER_HOUR: u64 = 12_000;

/// Calls of a bucket of a second.
fn bucket(per_second: f64) -> CreditBucket {
    CreditBucket::steady(per_second, SECOND, RefusalForm::too_many(None))
}

fn provider(per_second: f64) -> FakeProvider {
    provider_of(World::new(WorldConfig { history_blocks: 4, ..WorldConfig::default() }), per_second)
}

fn provider_of(world: Arc<World>, per_second: f64) -> FakeProvider {
    let latency = LatencyDial::even(Duration::from_millis(20), Duration::ZERO);
    let buckets = vec![bucket(per_second)];
    let dials = ProviderDials { latency, buckets, ..ProviderDials::default() };
    FakeProvider::start("provider", world, dials).expect("a free port")
}

/// What a monitor told, and when.
struct Told {
    begun: Instant,
    changes: Vec<(Duration, f64)>,
    events: Vec<String>,
    profiles: Vec<(Duration, String)>,
    /// The most calls of any hour, with those that were handed out and not sent yet; and the last.
    spent_max: u64,
    spent: u64,
    calls: u64,
    /// What was said of new blocks at each target, whenever that changed.
    lags: Vec<(Duration, Vec<String>)>,
    /// From this time on it gives no turns.
    turns_until: Duration,
    has_turn: bool,
    /// When calls began to lean on the limit, and for how long they did.
    leaned: Vec<(Duration, Duration)>,
    leans_since: Option<Duration>,
}

impl Told {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            changes: Vec::new(),
            events: Vec::new(),
            profiles: Vec::new(),
            spent_max: 0,
            spent: 0,
            calls: 0,
            lags: Vec::new(),
            turns_until: Duration::MAX,
            has_turn: false,
            leaned: Vec::new(),
            leans_since: None,
        }
    }

    /// The first limit that was told after this time.
    #[track_caller]
    fn after(&self, at: Duration) -> (Duration, f64) {
        let found = self.changes.iter().find(|(when, _)| *when >= at);
        *found.unwrap_or_else(|| panic!("nothing after {at:?}: {:?}", self.events))
    }
}

/// What is said of new blocks at a target; empty where nothing is.
fn lag(target: &MonitoredTarget) -> String {
    let told = target.verdicts.iter().filter(|verdict| verdict.experiment == "fresh");
    told.map(|verdict| &*verdict.sentence).collect()
}

impl MonitorObserver for Told {
    fn event(&mut self, _: &MonitoredTarget, event: &MonitorEvent) {
        let now = self.begun.elapsed();
        self.events.push(format!("{now:?} {event}"));
        if let MonitorEvent::Found(to) | MonitorEvent::Changed { to, .. } = event {
            self.changes.push((now, to.per_second().unwrap_or(f64::INFINITY)));
        }
    }

    fn updated(&mut self, targets: &[MonitoredTarget], now_unix: u64) {
        self.spent = targets[0].spent_in_hour(now_unix);
        self.spent_max = self.spent_max.max(self.spent);
        self.calls = targets[0].counts.calls;
        for target in targets {
            self.spent_max = self.spent_max.max(target.spent_in_hour(now_unix));
        }
        let lags: Vec<String> = targets.iter().map(lag).collect();
        if self.lags.last().is_none_or(|(_, last)| *last != lags) {
            self.lags.push((self.begun.elapsed(), lags));
        }
    }

    fn profile(&mut self, text: &str) {
        self.profiles.push((self.begun.elapsed(), text.to_owned()));
    }

    fn take_turn(&mut self, _: &MonitoredTarget, calls: u64) -> bool {
        assert!(calls > 0 && !self.has_turn, "one at a time");
        self.has_turn = self.begun.elapsed() < self.turns_until;
        self.has_turn
    }

    fn end_turn(&mut self, _: &MonitoredTarget) {
        assert!(std::mem::take(&mut self.has_turn) && self.leans_since.is_none());
    }

    fn leans(&mut self, _: &MonitoredTarget) {
        assert!(self.has_turn);
        self.leans_since.get_or_insert_with(|| self.begun.elapsed());
    }

    fn leans_no_more(&mut self, _: &MonitoredTarget) {
        let since = self.leans_since.take().expect("they did");
        self.leaned.push((since, self.begun.elapsed() - since));
    }
}

fn terms() -> MonitorTerms {
    MonitorTerms {
        bounds: SpendBounds { per_hour: PER_HOUR, per_day: 24 * PER_HOUR },
        every: MINUTE,
        rate_max: 100.0,
        rate_lasting: SECOND * 5,
    }
}

/// Watches for `lasting`; `meanwhile` runs beside it.
async fn watch(
    dir: &TempDir,
    endpoints: &[TargetEndpoint],
    told: &mut Told,
    lasting: Duration,
    meanwhile: impl Future<Output = ()>,
) {
    let (stop, end) = (StopSignal::default(), tokio::time::sleep(lasting));
    let run = wellhead_analyze::measure::run::RunTerms {
        started_unix: 1_800_000_000 + told.begun.elapsed().as_secs(),
        ..support::terms()
    };
    // Paused time does not pass while we work: no share of a core can be told from it.
    let play = MonitorRunTerms { run, is_precise: false, cpu: Some(|| None) };
    let monitor =
        Monitor::new(dir.path(), terms(), play, endpoints, &stop, told).expect("it begins");
    let over = async {
        tokio::join!(end, meanwhile);
        stop.set();
    };
    let (ended, ()) = tokio::join!(monitor.run(), over);
    ended.expect("it is written");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_changes_in_an_hour_is_followed_within_five_minutes() {
    let (dir, provider) = (TempDir::new().expect("a directory"), provider(30.0));
    let endpoints = [support::endpoint(&provider.url())];
    let mut told = Told::new();
    let (fall, rise) = (MINUTE * 20, MINUTE * 40);
    let meanwhile = async {
        tokio::time::sleep(fall).await;
        provider.turn(|dials| dials.buckets = vec![bucket(12.0)]);
        tokio::time::sleep(rise - fall).await;
        provider.turn(|dials| dials.buckets = vec![bucket(50.0)]);
    };
    watch(&dir, &endpoints, &mut told, MINUTE * 60, meanwhile).await;

    for (at, expected) in [(Duration::ZERO, 30.0), (fall, 12.0), (rise, 50.0)] {
        let (when, found) = told.after(at);
        assert!((found / expected - 1.0).abs() < 0.1, "{found} for {expected}: {:?}", told.events);
        assert!(when - at <= MINUTE * 5, "after {:?}: {:?}", when - at, told.events);
        let profile = told.profiles.iter().find(|(written, _)| *written >= when);
        let (written, profile) = profile.expect("it follows");
        assert!(*written - at <= MINUTE * 5, "{written:?}");
        let line = format!("calls_per_second: {} #", found.floor());
        assert!(profile.contains(&line), "{line}: {profile}");
    }
    assert_eq!(told.changes.len(), 3, "nothing else changed: {:?}", told.events);
    assert!(told.spent_max <= PER_HOUR, "{} calls", told.spent_max);
    // What it says that it sent is what the provider was sent.
    assert_eq!(told.calls, provider.counts().calls, "{:?}", told.events);
}

#[tokio::test(start_paused = true)]
async fn a_restart_knows_the_limit_and_what_was_spent() {
    let (dir, provider) = (TempDir::new().expect("a directory"), provider(30.0));
    let endpoints = [support::endpoint(&provider.url())];
    let mut told = Told::new();
    watch(&dir, &endpoints, &mut told, MINUTE * 4, async {}).await;
    let (spent, calls) = (told.spent, told.calls);
    assert_eq!(told.changes.len(), 1, "{:?}", told.events);
    watch(&dir, &endpoints, &mut told, MINUTE * 4, async {}).await;
    assert_eq!(told.changes.len(), 1, "it is not studied again: {:?}", told.events);
    assert!(told.spent > spent && told.calls > calls, "{} {}", told.spent, told.calls);
    assert_eq!(told.calls, provider.counts().calls);
    assert!(told.spent_max <= PER_HOUR);
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_a_limit_costs_little() {
    let (dir, provider) = (TempDir::new().expect("a directory"), provider(30.0));
    provider.turn(|dials| dials.buckets.clear());
    let endpoints = [support::endpoint(&provider.url())];
    let mut told = Told::new();
    watch(&dir, &endpoints, &mut told, MINUTE * 20, async {}).await;
    assert!(told.events[0].contains("rate limit: none up to 100 calls/s"), "{:?}", told.events);
    assert_eq!(told.events.len(), 1, "{:?}", told.events);
    // The study, and a round each minute.
    assert!(told.calls < 2_000 + 20 * 97, "{}", told.calls);
    assert!(matches!(told.changes[..], [(_, rate)] if rate == f64::INFINITY));
}

/// Two providers of a chain with a block each 5 s.
fn two_providers() -> (Arc<World>, [FakeProvider; 2]) {
    let world = World::new(WorldConfig { history_blocks: 16, ..WorldConfig::default() });
    let providers = [30.0, 40.0].map(|rate| provider_of(Arc::clone(&world), rate));
    (world, providers)
}

fn named(providers: &[FakeProvider; 2]) -> [TargetEndpoint; 2] {
    let endpoint = |id: &str, provider: &FakeProvider| {
        let url = SecretUrl::parse(&provider.url()).expect("a URL");
        TargetEndpoint::new(id.to_owned(), url)
    };
    [endpoint("one", &providers[0]), endpoint("other", &providers[1])]
}

/// A block each 5 s.
async fn mine(world: Arc<World>) {
    loop {
        tokio::time::sleep(SECOND * 5).await;
        world.mine();
    }
}

/// `fresh` looks at both when the monitor begins and each quarter of an hour: a target that falls behind is told, and
/// told no longer when it has caught up. Meanwhile the limits of both are found, and the bounds hold.
#[tokio::test(start_paused = true)]
async fn of_two_targets_the_one_that_falls_behind_is_told() {
    let dir = TempDir::new().expect("a directory");
    let (world, providers) = two_providers();
    let endpoints = named(&providers);
    let mining = tokio::spawn(mine(world));
    let mut told = Told::new();
    let meanwhile = async {
        tokio::time::sleep(MINUTE * 5).await;
        providers[1].turn(|dials| dials.lag_blocks = 2);
        tokio::time::sleep(MINUTE * 15).await;
        providers[1].turn(|dials| dials.lag_blocks = 0);
    };
    watch(&dir, &endpoints, &mut told, MINUTE * 34, meanwhile).await;
    mining.abort();

    let is_late = |text: &str| text.contains("later than at one,");
    let changes: Vec<(u64, bool, bool)> = told
        .lags
        .iter()
        .filter(|(_, lags)| lags.iter().all(|text| !text.is_empty()))
        .map(|(at, lags)| {
            (at.as_secs() / 60, lags[0].contains("later than at other,"), is_late(&lags[1]))
        })
        .collect();
    let late: Vec<(u64, bool)> = changes.iter().map(|it| (it.0, it.2)).collect();
    let [(first, false), (behind, true), (caught_up, false)] = late[..] else {
        panic!("{:#?}", told.lags);
    };
    assert!(changes.iter().all(|(_, one, _)| !one), "the first is never late: {:#?}", told.lags);
    // A look lasts 75 s, and a round or a study that is under way ends before.
    for (at, due) in [(first, 0), (behind, 15), (caught_up, 30)] {
        assert!(
            (due + 1..=due + 3).contains(&at),
            "at {at} min, due after {due}: {:#?}",
            told.lags
        );
    }
    let late = told.lags.iter().map(|(_, lags)| &lags[1]).find(|text| is_late(text));
    // Two blocks of 5 s, within the half of a poll that the middle of an interval is off.
    let late = late.expect("it was late");
    let ms = late.strip_prefix("New blocks appear ").and_then(|text| text.split(' ').next());
    let seconds: f64 = ms.and_then(|text| text.parse().ok()).expect(late);
    assert!((seconds - 10.0).abs() < 2.0, "{late}");
    let limits: Vec<f64> = told.changes.iter().map(|(_, limit)| *limit).collect();
    for expected in [30.0, 40.0] {
        let is_found = limits.iter().any(|found| (found / expected - 1.0).abs() < 0.1);
        assert!(is_found, "{expected}: {limits:?}");
    }
    assert!(told.spent_max <= PER_HOUR, "{} calls", told.spent_max);
    // Polls are charged before they are sent, and not all of them are.
    let arrived = providers[0].counts().calls;
    assert!(arrived <= told.calls && told.calls < arrived + 3 * 43, "{arrived} {}", told.calls);
}

/// Of one target alone nothing is said of new blocks, and the other one is watched all the same.
#[tokio::test(start_paused = true)]
async fn heads_are_not_compared_with_a_target_that_is_down() {
    let dir = TempDir::new().expect("a directory");
    let (world, providers) = two_providers();
    let endpoints = named(&providers);
    let mining = tokio::spawn(mine(world));
    let [one, other] = providers;
    drop(other);
    let mut told = Told::new();
    watch(&dir, &endpoints, &mut told, MINUTE * 18, async {}).await;
    mining.abort();
    assert_eq!(told.lags.len(), 1, "{:?}", told.lags);
    assert_eq!(told.lags[0].1, ["", ""]);
    let rests = told.events.iter().filter(|text| text.ends_with("asked again in 15 minutes"));
    assert_eq!(rests.count(), 1, "{:?}", told.events);
    let (_, found) = told.after(Duration::ZERO);
    assert!((found / 30.0 - 1.0).abs() < 0.1, "{:?}", told.events);
    assert!(told.calls >= one.counts().calls);
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_its_turn_and_tells_when_it_leans_on_the_limit() {
    let (dir, provider) = (TempDir::new().expect("a directory"), provider(30.0));
    let endpoints = [support::endpoint(&provider.url())];
    let mut told = Told { turns_until: MINUTE * 10, ..Told::new() };
    let mut at_ten = 0;
    let meanwhile = async {
        tokio::time::sleep(MINUTE * 11).await;
        at_ten = provider.counts().calls;
    };
    watch(&dir, &endpoints, &mut told, MINUTE * 20, meanwhile).await;
    assert_eq!(told.changes.len(), 1, "{:?}", told.events);
    assert_eq!(provider.counts().calls, at_ten, "nothing is sent without a turn");
    // The study, and two cells of each round.
    assert!(told.leaned.len() > 16, "{:?}", told.leaned);
    let most = told.leaned.iter().map(|(_, lasted)| *lasted).max();
    assert!(most <= Some(SECOND * 8 + SECOND / 2), "{:?}", told.leaned);
    let free: Duration = MINUTE * 10 - told.leaned.iter().map(|(_, it)| *it).sum::<Duration>();
    assert!(free > MINUTE * 7, "{:?}", told.leaned);
}

#[derive(Debug, Default)]
struct Meter(std::sync::Mutex<std::collections::BTreeMap<&'static str, u64>>);

impl CallMeter for Meter {
    fn sends(&self, method: &'static str) {
        *self.0.lock().expect("no panic").entry(method).or_default() += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_meter_is_told_of_all_calls() {
    let (dir, provider) = (TempDir::new().expect("a directory"), provider(30.0));
    let meter = Arc::new(Meter::default());
    let endpoints = [support::endpoint(&provider.url()).metered(Arc::clone(&meter) as _)];
    let mut told = Told::new();
    watch(&dir, &endpoints, &mut told, MINUTE * 4, async {}).await;
    let metered = meter.0.lock().expect("no panic").values().sum::<u64>();
    assert!(told.calls > 500);
    assert_eq!((metered, provider.counts().calls), (told.calls, told.calls));
}
