//! `wellhead analyze`: what is asked for becomes plans, and their records become lines.
//!
//! Before a run it prints how many calls it may send and what they cost, and asks for confirmation
//! if there are many and they go to a third party.

mod compare;
mod endpoint;
mod gate;
mod limits;
mod live;
mod own_calls;
mod resume;
mod several;
mod together;
mod watch;

use std::fs;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::signal::unix::{SignalKind, signal};
use wellhead_analyze::conclude::profile::plain;
use wellhead_analyze::conclude::verdict::{ExperimentVerdict, verdicts};
use wellhead_analyze::gate::DOCUMENT_SCHEMA;
use wellhead_analyze::measure::budget::Forecast;
use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::plan::{self, ExperimentPlan, FixedPlan, LoadTerms, Stage};
use wellhead_analyze::measure::run::{
    CallBudget, EarlierRun, Greeting, PlacedPlan, Player, RunError, StopSignal,
};
use wellhead_analyze::record::{self, Record};
use wellhead_analyze::report::summary;
use wellhead_analyze::stored::StoredRun;
use wellhead_analyze::work::{GREETING, WorkKind};
use wellhead_net::{HttpVersion, Protocol};
use wellhead_telemetry::clock;
use wellhead_upstream::Metering;

use self::gate::{JudgedRun, tell};
use self::live::{Ahead, Live, draws};
use crate::cli::analyze::gate::{ConditionArgs, SchemaChoice};
use crate::cli::analyze::{
    BodiesArgs, CommonArgs, ConnectionArgs, Experiment, Http, LoadArgs, Measured, ProtocolArgs,
    RateArgs, TargetArgs, ThrottleArgs, WorkChoice,
};
use crate::serve;
use crate::target::run_terms;
use crate::terminal::{CommandError, complain, say};

/// Calls that are sent to a stranger without a question.
const UNASKED_MAX: u64 = 300;
/// The exit code of a process that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;
/// Calls that greet a target.
const GREETING_CALLS: u64 = GREETING.len() as u64;
/// The pause between cells that are no burst at any provider.
const REST: Duration = Duration::from_secs(1);
/// Between rates, where nothing is known of the provider's window.
const RATE_REST: Duration = Duration::from_secs(2);
/// For each rate, likewise.
const RATE_LASTS: Duration = Duration::from_secs(30);
/// Of `protocol`, over HTTP/2.
const PROTOCOL_CONNECTIONS: [usize; 2] = [1, 4];
/// Of `quick`.
const QUICK_LATENCY_CALLS: u64 = 50;
/// Of `quick`: its streams go up to here.
const QUICK_STREAMS: u64 = 128;

/// Does what `wellhead analyze` was asked for.
pub(crate) fn command(what: &Experiment) -> Result<(), CommandError> {
    match what {
        Experiment::Quick(common) => measure(common, &quick),
        Experiment::Rate(it) => measure(&it.common, &|target| vec![rate(it, target)]),
        Experiment::Streams(it) => {
            let plan = || Box::new(plan::StreamsPlan::new(8, it.up_to, REST));
            measure(&it.common, &|_| vec![plan()])
        }
        Experiment::Throttle(it) => {
            if it.at_once.contains(&0) || it.connections.contains(&0) {
                return Err(CommandError::Config(
                    "`--at-once` and `--connections` begin at 1".into(),
                ));
            }
            measure(&it.common, &|_| vec![throttle(it)])
        }
        Experiment::Protocol(it) => measure(&it.common, &|_| vec![protocol(it)]),
        Experiment::Connection(it) => measure(&it.common, &|_| vec![connection(it)]),
        Experiment::Bodies(it) => measure(&it.common, &|_| vec![bodies(it)]),
        Experiment::Agree(it) => together::measure(&it.common, &together::Inquiry::Agree(it)),
        Experiment::Fresh(it) => together::measure(&it.common, &together::Inquiry::Fresh(it)),
        Experiment::Reach(it) => together::measure(&it.common, &together::Inquiry::Reach(it)),
        Experiment::Limits(it) => measure(&it.common, &|target| limits::limits(it, target)),
        Experiment::Window(it) => measure(&it.common, &|target| vec![limits::window(it, target)]),
        Experiment::Cost(it) => {
            limits::cost(it)?;
            measure(&it.common, &|_| limits::cost(it).into_iter().collect())
        }
        Experiment::Soak(it) => {
            let work = own_calls::own_or(it.work, &it.own)?;
            measure(&it.common, &|_| vec![limits::soak(it, work)])
        }
        Experiment::Replay(it) => own_calls::replay(it),
        Experiment::Load(it) => loaded(it),
        Experiment::Watch(it) => watch::command(it),
        Experiment::Report(it) => {
            gate::check(&it.gate)?;
            let (run, records) = report(&it.dir, it.profile.as_deref(), &it.gate.conditions)?;
            if let Some(dir) = &it.svg {
                write_charts(dir, &run, &records)?;
            }
            gate::pack(&it.gate, &it.dir)?;
            let judged = JudgedRun { run: &run, records: &records, is_interrupted: false };
            gate::conclude(&it.gate, &judged)
        }
        Experiment::Resume(it) => resume::command(it),
        Experiment::Compare(it) => compare::command(it),
        Experiment::History(it) => several::trends(it),
        Experiment::Merge(it) => several::regions(it),
        Experiment::Schema(it) => {
            say(match it.what {
                SchemaChoice::Document => DOCUMENT_SCHEMA,
                SchemaChoice::Records => record::RECORDS_SCHEMA,
                SchemaChoice::Run => record::RUN_SCHEMA,
            });
            Ok(())
        }
    }
}

type Plans = Vec<Box<dyn ExperimentPlan>>;

fn loaded(it: &Measured<LoadArgs>) -> Result<(), CommandError> {
    if !matches!(it.spike.len(), 0 | 2) {
        return Err(CommandError::Config("`--spike` takes two rates: `--spike 10,500`".into()));
    }
    let work = own_calls::own_or(it.work, &it.own)?;
    if it.batch > 1
        && endpoint::endpoints(&it.common.targets)?.iter().any(TargetEndpoint::is_socket)
    {
        let text = "`--batch`: over WebSocket the calls of a batch are sent one by one";
        return Err(CommandError::Config(text.to_owned()));
    }
    measure(&it.common, &|_| vec![load(it, work)])
}

fn throttle(it: &Measured<ThrottleArgs>) -> Box<dyn ExperimentPlan> {
    let mut rng = SmallRng::seed_from_u64(it.common.targets.seed);
    let calls = it.calls.max(1);
    Box::new(FixedPlan::throttle(&it.at_once, &it.connections, calls, REST, &mut rng))
}

fn protocol(it: &Measured<ProtocolArgs>) -> Box<dyn ExperimentPlan> {
    let many = |counts: &[u16]| counts.iter().map(|n| usize::from(*n)).collect();
    let is_usual = it.connections.is_empty();
    let sweep = plan::Sweep {
        connections: if is_usual { PROTOCOL_CONNECTIONS.to_vec() } else { many(&it.connections) },
        http1_own: is_usual,
        at_once: many(&it.at_once),
        bodies: it.bodies.iter().map(|kind| work(*kind)).collect(),
        calls: it.calls,
        repeats: it.repeats,
    };
    let mut rng = SmallRng::seed_from_u64(it.common.targets.seed);
    Box::new(FixedPlan::protocol(&sweep, REST, &mut rng))
}

fn quick(_: &TargetEndpoint) -> Plans {
    vec![
        Box::new(FixedPlan::latency(QUICK_LATENCY_CALLS)),
        Box::new(plan::StreamsPlan::new(32, QUICK_STREAMS, REST)),
        Box::new(plan::RatePlan::new(10.0, 40.0, 2.0, Duration::from_secs(3), RATE_REST)),
    ]
}

fn rate(it: &RateArgs, endpoint: &TargetEndpoint) -> Box<dyn ExperimentPlan> {
    let window = window(endpoint);
    let lasting = it.seconds.map_or(RATE_LASTS.max(window * 3), Duration::from_secs);
    let rest = it.rest.map_or_else(|| rest_between_rates(endpoint), Duration::from_secs);
    let lasting = lasting.max(Duration::from_secs(1));
    Box::new(plan::RatePlan::new(it.from.min(it.to), it.to, it.step, lasting, rest))
}

/// The window of a provider that is known.
fn window(endpoint: &TargetEndpoint) -> Duration {
    let metering = endpoint.provider().and_then(|provider| provider.rate.as_ref());
    metering.map_or(Duration::ZERO, Metering::window)
}

/// In which buckets fill.
fn rest_between_rates(endpoint: &TargetEndpoint) -> Duration {
    RATE_REST.max(window(endpoint) * 2)
}

fn load(it: &LoadArgs, work: WorkKind) -> Box<dyn ExperimentPlan> {
    let stages = if it.users.is_empty() {
        it.rates.iter().map(|rate| Stage::Rate(*rate)).collect()
    } else {
        it.users.iter().map(|users| Stage::Users(*users)).collect()
    };
    let lasting = Duration::from_secs(it.seconds);
    let connections = it.connections.into();
    let version = match it.http {
        Http::Auto => HttpVersion::Auto,
        Http::H1 => HttpVersion::H1,
        Http::H2 => HttpVersion::H2,
    };
    let terms = match it.spike[..] {
        [usual, peak] => LoadTerms::spike((usual, peak), lasting, work, connections),
        _ => LoadTerms::new(stages, lasting, work, connections),
    };
    let (think, per_user) = (Duration::from_millis(it.think), it.per_user);
    let terms = LoadTerms { think, per_user, version, batch: it.batch, ..terms };
    Box::new(FixedPlan::load(&terms))
}

fn work(kind: WorkChoice) -> WorkKind {
    match kind {
        WorkChoice::Cheap => WorkKind::Cheap,
        WorkChoice::Small => WorkKind::SmallBlocks,
        WorkChoice::Large => WorkKind::LargeBlocks,
        WorkChoice::Mix => WorkKind::Mix,
    }
}

fn connection(it: &ConnectionArgs) -> Box<dyn ExperimentPlan> {
    let idle = Duration::from_secs(it.idle);
    Box::new(plan::ConnectionPlan::new(it.requests, idle, REST))
}

fn bodies(it: &Measured<BodiesArgs>) -> Box<dyn ExperimentPlan> {
    let mut rng = SmallRng::seed_from_u64(it.common.targets.seed);
    let at_once = it.at_once.into();
    Box::new(FixedPlan::bodies(it.calls, at_once, it.repeats, REST, &mut rng))
}

/// What lines call them.
fn names(endpoints: &[TargetEndpoint]) -> Vec<String> {
    summary::names(endpoints.iter().map(|endpoint| &endpoint.target))
}

/// `NAME=URL`, or the URL alone. A name has letters, digits and `-`, so that no part of a URL is
/// taken for one.
fn named(text: &str) -> (Option<&str>, &str) {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '-')
    };
    match text.split_once('=') {
        Some((name, url)) if is_name(name) => (Some(name), url),
        Some(_) | None => (None, text),
    }
}

fn measure(
    common: &CommonArgs,
    plans: &dyn Fn(&TargetEndpoint) -> Plans,
) -> Result<(), CommandError> {
    let endpoints = endpoint::endpoints(&common.targets)?;
    let forecasts: Vec<Forecast> =
        endpoints.iter().map(|endpoint| Forecast::of(endpoint, &plans(endpoint))).collect();
    let Some(run) = confirm(common, &endpoints, &forecasts)? else { return Ok(()) };
    let (dir, ahead) = (run.dir.clone(), ahead(&endpoints, &forecasts, plans, run.calls));
    finish(common, &dir, play(common, run, &endpoints, ahead, plans))
}

/// How a run ended.
struct PlayedRun {
    /// A target answered.
    is_answered: bool,
    /// A signal ended it before it was over.
    is_interrupted: bool,
}

/// Plays a run, writes the report on it and decides what it comes to.
fn finish(
    common: &CommonArgs,
    dir: &Path,
    play: impl Future<Output = Result<PlayedRun, CommandError>>,
) -> Result<(), CommandError> {
    let runtime = serve::runtime().map_err(CommandError::system)?;
    let played = runtime.block_on(play)?;
    let (run, records) = report(dir, common.profile.as_deref(), &common.gate.conditions)?;
    gate::pack(&common.gate, dir)?;
    let is_interrupted = played.is_interrupted;
    let decided =
        gate::conclude(&common.gate, &JudgedRun { run: &run, records: &records, is_interrupted });
    if played.is_answered || is_interrupted {
        return decided;
    }
    Err(CommandError::System("nothing was measured".to_owned()))
}

/// A run that may be played.
struct ConfirmedRun {
    dir: PathBuf,
    now: u64,
    /// Calls at most, those of the earlier run and spare ones included.
    calls: u64,
    budget: CallBudget,
    earlier: Option<EarlierRun>,
}

impl ConfirmedRun {
    /// Goes on with the earlier run, or begins one. `sockets` are URLs beside those of the targets.
    fn player<'a>(
        &'a self,
        earlier: Option<EarlierRun>,
        common: &CommonArgs,
        endpoints: &[TargetEndpoint],
        sockets: &[String],
        stop: &'a StopSignal,
    ) -> Result<Player<'a>, RunError> {
        let Self { dir, now, budget, .. } = self;
        let player = match earlier {
            Some(earlier) => Player::resume(dir, earlier, *now, budget, stop)?,
            None => {
                let TargetArgs { seed, note, .. } = &common.targets;
                let terms = run_terms(*seed, *now, note.clone());
                let words = resume::words(common, sockets);
                Player::begin(dir, terms, endpoints, budget, stop)?.asking(words)?
            }
        };
        player.stamping(run_id(), clock::unix_time())
    }
}

/// Why a run is over before all cells were played.
fn cut_short(stop: &StopSignal, budget: &CallBudget) -> Option<&'static str> {
    if stop.is_set() {
        return Some("interrupted: completed cells are kept");
    }
    let over = "the bound on calls is reached; the remaining cells were not run";
    budget.is_over().then_some(over)
}

/// Reads the run that is to be continued, and tells and asks what has to be known before a call is
/// sent; `None` where nothing is to be sent.
fn confirm(
    common: &CommonArgs,
    endpoints: &[TargetEndpoint],
    forecasts: &[Forecast],
) -> Result<Option<ConfirmedRun>, CommandError> {
    let earlier = match &common.goes_on {
        Some(dir) => Some(resume::read(dir)?),
        None => None,
    };
    let spent = earlier.as_ref().map_or(0, |earlier| earlier.run().spent);
    let Some(CallAllowance { most, spare }) = may_send(common, endpoints, forecasts, spent)? else {
        return Ok(None);
    };
    let now = clock::unix_seconds();
    let named = common.goes_on.clone().or_else(|| common.out.clone());
    let dir = named.unwrap_or_else(|| default_dir(endpoints, now));
    let budget = CallBudget::new(most).after(spent).with_spare(spare);
    Ok(Some(ConfirmedRun { dir, now, calls: most + spare, budget, earlier }))
}

/// Calls that may be sent.
struct CallAllowance {
    /// Those of the earlier run included.
    most: u64,
    /// Beside these, for cells that are played again because their times were doubted.
    spare: u64,
}

/// Tells what may be sent and what it costs, and asks where it is much. The calls that may be
/// sent at most, those included that were `spent` before; `None` where nothing is to be sent.
fn may_send(
    common: &CommonArgs,
    endpoints: &[TargetEndpoint],
    forecasts: &[Forecast],
    spent: u64,
) -> Result<Option<CallAllowance>, CommandError> {
    common.profile.as_deref().map_or(Ok(()), has_place)?;
    gate::check(&common.gate)?;
    let lines: Vec<String> = forecasts.iter().flat_map(Forecast::lines).collect();
    complain(&lines.join("\n"));
    let predicted: u64 = forecasts.iter().map(|forecast| forecast.calls() + GREETING_CALLS).sum();
    let most = predicted.saturating_add(spent).min(common.max_calls);
    let spare: u64 = forecasts.iter().map(|forecast| forecast.spare).sum();
    let spare = spare.min(common.max_calls - most);
    complain(&format!("at most {most} calls in all, drawn with `--seed {}`", common.targets.seed));
    if spare > 0 {
        complain(&format!(
            "and at most {spare} more, if cells are measured again because this machine was too busy"
        ));
    }
    if common.dry_run {
        tell(&common.gate.conditions, "nothing was sent");
        return Ok(None);
    }
    let strangers: u64 = endpoints
        .iter()
        .zip(forecasts)
        .filter(|(endpoint, _)| !endpoint.is_private())
        .map(|(_, forecast)| forecast.calls() + forecast.spare + GREETING_CALLS)
        .sum();
    if strangers.min(common.max_calls) > UNASKED_MAX && !common.yes && !is_meant()? {
        return Err(CommandError::Config("nothing was sent".to_owned()));
    }
    Ok(Some(CallAllowance { most, spare }))
}

/// Whether a file can be where it is to be written in the end: hours later is late to be told.
fn has_place(file: &Path) -> Result<(), CommandError> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let why = if file.is_dir() {
        "it is a directory"
    } else if !parent.is_none_or(Path::is_dir) {
        "its directory does not exist"
    } else {
        return Ok(());
    };
    Err(CommandError::Config(format!("`{}` cannot be written: {why}", file.display())))
}

/// Asks for confirmation on the terminal. Without a terminal it is an error that says what to do.
fn is_meant() -> Result<bool, CommandError> {
    if !std::io::stdin().is_terminal() {
        let text = "too many calls for an endpoint of a third party: confirm with `--yes`";
        return Err(CommandError::Config(text.to_owned()));
    }
    let mut error = std::io::stderr();
    let _ = write!(error, "send them? [y/N] ");
    let _ = error.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(CommandError::system)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn default_dir(endpoints: &[TargetEndpoint], now: u64) -> PathBuf {
    PathBuf::from(format!("wellhead-analysis-{}-{}", host_of(endpoints), stamp(now)))
}

/// The host of the first target, as it stands in the name of a directory.
fn host_of(endpoints: &[TargetEndpoint]) -> String {
    let host = endpoints.first().map_or("", |endpoint| endpoint.target.host.as_str());
    let safe = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    host.chars().map(|letter| if letter == '.' { letter } else { safe(letter) }).collect()
}

/// `20261122-101500`, UTC.
fn stamp(unix: u64) -> String {
    let (days, second) = (unix / 86_400, unix % 86_400);
    let (year, month, day) = wellhead_limit::civil(u32::try_from(days).unwrap_or(u32::MAX));
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// What is told while it is played.
fn ahead(
    endpoints: &[TargetEndpoint],
    forecasts: &[Forecast],
    plans: &dyn Fn(&TargetEndpoint) -> Plans,
    calls: u64,
) -> Ahead {
    let mut ahead = Ahead { names: names(endpoints), calls, ..Ahead::default() };
    for (target, endpoint) in (0..).zip(endpoints) {
        ahead.lasts.extend(plans(endpoint).iter().map(|plan| (target, plan.name(), plan.lasts())));
    }
    let credits = forecasts.iter().map(Forecast::credits_max);
    let unit = forecasts.first().and_then(|forecast| forecast.unit);
    let same = forecasts.iter().all(|forecast| forecast.unit == unit);
    ahead.credits = credits.sum::<Option<f64>>().zip(unit).filter(|_| same);
    ahead
}

/// A target that answered a call, and is measured.
struct GreetedTarget<'a> {
    index: u32,
    endpoint: &'a TargetEndpoint,
    greeting: Greeting,
    name: &'a str,
}

/// Plays an experiment run.
async fn play(
    common: &CommonArgs,
    mut run: ConfirmedRun,
    endpoints: &[TargetEndpoint],
    ahead: Ahead,
    plans: &dyn Fn(&TargetEndpoint) -> Plans,
) -> Result<PlayedRun, CommandError> {
    let names = ahead.names.clone();
    let stop = stop_at_signals();
    let term = std::env::var("TERM").ok();
    let drawn = draws(std::io::stderr().is_terminal(), term.as_deref());
    let (earlier, budget) = (run.earlier.take(), &run.budget);
    let mut live = Live::new(budget, &stop, ahead, drawn);
    let played = async {
        let mut player = run.player(earlier, common, endpoints, &[], &stop)?.precise();
        let mut greeted = Vec::new();
        for ((index, endpoint), name) in (0..).zip(endpoints).zip(&names) {
            let greeting = player.greet(index, endpoint).await?;
            tell(&common.gate.conditions, &greeting_line(name, endpoint, &greeting));
            if greeting.chain_id.is_some() || greeting.block.is_some() {
                greeted.push(GreetedTarget { index, endpoint, greeting, name });
            } else if !stop.is_set() && !budget.is_over() {
                complain("it answers no call, so it is not measured");
            }
        }
        // Experiment by experiment, and in each of them cell by cell in turn.
        let mut left: Vec<_> = greeted.iter().map(|it| plans(it.endpoint).into_iter()).collect();
        loop {
            let mut parts = next_experiment(&greeted, &mut left, &mut live);
            if parts.is_empty() && left.iter().all(|plans| plans.as_slice().is_empty()) {
                break;
            }
            player.play_in_turn(&mut parts, &mut live).await?;
            if let Some(why) = cut_short(&stop, budget) {
                live.line(why);
                break;
            }
        }
        Ok(PlayedRun { is_answered: !greeted.is_empty(), is_interrupted: stop.is_set() })
    };
    let outcome = played.await;
    live.clear();
    outcome.map_err(|error: RunError| ended(&error))
}

/// The next plan of each target, without those that the target cannot serve.
fn next_experiment<'a>(
    greeted: &'a [GreetedTarget<'a>],
    left: &mut [std::vec::IntoIter<Box<dyn ExperimentPlan>>],
    live: &mut Live<'_>,
) -> Vec<PlacedPlan<'a>> {
    let mut parts = Vec::new();
    for (GreetedTarget { index, endpoint, greeting, name }, plans) in greeted.iter().zip(left) {
        let Some(plan) = plans.next() else { continue };
        // Connections of WebSocket are kept open by pings, and are not noted one by one.
        if endpoint.is_socket() && matches!(plan.name(), "connection" | "bodies") {
            let plan = plan.name();
            live.line(&format!("{plan}: left out, for {name} is measured over WebSocket"));
            continue;
        }
        let needs_h2 = matches!(plan.name(), "streams" | "protocol");
        if needs_h2 && greeting.protocol != Some(Protocol::H2) {
            let plan = plan.name();
            live.line(&format!("{plan}: left out, for {name} does not speak HTTP/2"));
            continue;
        }
        parts.push(PlacedPlan { plan, target: *index, endpoint, greeting });
    }
    parts
}

/// What ends a run early, as it is told.
fn ended(error: &RunError) -> CommandError {
    match error {
        RunError::Other(_) => CommandError::Config(error.to_string()),
        RunError::Taken(_) | RunError::Write(..) | RunError::Client(..) => {
            CommandError::system(error)
        }
    }
}

/// What no other run is called.
fn run_id() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// Is set at the first signal; the second one ends the process. They are listened to on a thread of its own: a
/// report that takes long is written while the runtime of the run is not driven.
fn stop_at_signals() -> Arc<StopSignal> {
    let stop = Arc::new(StopSignal::default());
    let own = Arc::clone(&stop);
    let listen = move || {
        let Ok(runtime) = serve::runtime() else { return };
        runtime.block_on(signals(&own));
    };
    let _ = std::thread::Builder::new().name("wellhead-signal".to_owned()).spawn(listen);
    stop
}

async fn signals(stop: &StopSignal) {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.set();
    // A second signal does not wait for calls in progress.
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    std::process::exit(INTERRUPTED);
}

/// What a target said of itself, with the host beside its name.
fn greeting_line(name: &str, endpoint: &TargetEndpoint, greeting: &Greeting) -> String {
    let number = |it: Option<u64>| it.map_or("unknown".to_owned(), |it| it.to_string());
    let protocol = match greeting.protocol {
        Some(Protocol::H2) => "HTTP/2",
        Some(Protocol::H1) => "HTTP/1.1",
        Some(Protocol::Ws) => "WebSocket",
        None => "no protocol",
    };
    let host = &endpoint.target.host;
    let at = if name == host { String::new() } else { format!(" ({host})") };
    let mut text = format!(
        "{name}{at}: {protocol}, chain {}, block {}, client {}",
        number(greeting.chain_id),
        number(greeting.block),
        greeting.client.as_deref().unwrap_or("unknown"),
    );
    if let Some(trouble) = &greeting.trouble {
        text.push_str(&format!("\n  {trouble}"));
    }
    text
}

/// Prints what the records of a run say, and writes the report beside them.
fn report(
    dir: &Path,
    profile: Option<&Path>,
    conditions: &ConditionArgs,
) -> Result<(record::RunRecord, Vec<Record>), CommandError> {
    let (run, records) = read(dir)?;
    let told = summary::lines(&run, &records).into_iter();
    for line in told.chain(concluded(&run, &verdicts(&run, &records))) {
        // Some of it is in the words of the other side.
        tell(conditions, &plain(&line));
    }
    let files = wellhead_analyze::report::report(&run, &records);
    for file in &files {
        write(&dir.join(&file.name), &file.text)?;
    }
    if let Some(profile) = profile {
        if let Some(file) = files.iter().find(|file| file.name == "profile.yaml") {
            write(profile, &file.text)?;
        }
        tell(conditions, &format!("for `profile` of an upstream: {}", profile.display()));
    }
    tell(conditions, &format!("records and report.html: {}", dir.display()));
    Ok((run, records))
}

/// Writes each chart of a run to a directory of its own, which need not exist.
fn write_charts(
    dir: &Path,
    run: &record::RunRecord,
    records: &[Record],
) -> Result<(), CommandError> {
    fs::create_dir_all(dir).map_err(failed_at(dir))?;
    for file in wellhead_analyze::report::charts(run, records) {
        write(&dir.join(file.name), &file.text)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    fs::write(path, text).map_err(failed_at(path))
}

/// What went wrong with a file or directory.
fn failed_at(path: &Path) -> impl FnOnce(std::io::Error) -> CommandError {
    move |error| CommandError::System(format!("`{}`: {error}", path.display()))
}

/// A run and its records.
fn read(dir: &Path) -> Result<(record::RunRecord, Vec<Record>), CommandError> {
    let StoredRun { run, records, torn } = StoredRun::read(dir).map_err(|why| {
        CommandError::Config(format!("`{}` is not a readable run: {why}", dir.display()))
    })?;
    if let Some(line) = torn {
        complain(&format!("line {line} of the records is truncated and ignored"));
    }
    Ok((run, records))
}

/// What was found out, and what each sentence rests on.
fn concluded(run: &record::RunRecord, verdicts: &[ExperimentVerdict]) -> Vec<String> {
    let mut lines = Vec::new();
    let names = summary::names(&run.targets);
    for verdict in verdicts {
        let name = names.get(verdict.target as usize).map_or("?", String::as_str);
        let sure = verdict.confidence_note();
        lines.push(format!("{name} {}: {}{sure}", verdict.experiment, verdict.sentence));
        lines.extend(verdict.evidence.iter().map(|line| format!("  {line}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use wellhead_analyze::conclude::verdict::{Confidence, Finding, FindingBound, NoCountLimit};

    use super::*;

    fn endpoints(urls: &[String]) -> Result<Vec<TargetEndpoint>, CommandError> {
        endpoint::endpoints(&CommonArgs::test(urls.to_vec()).targets)
    }

    #[test]
    fn a_stamp_is_a_date() {
        for (unix, text) in [
            (0, "19700101-000000"),
            (951_782_400, "20000229-000000"),
            (1_795_306_500, "20261122-001500"),
        ] {
            assert_eq!(stamp(unix), text);
        }
    }

    #[test]
    fn a_directory_is_named_for_the_host_and_nothing_else_of_the_url() {
        let endpoints = endpoints(&["http://u:PASSKEY@h.example:8545/v2/PATHKEY".to_owned()]);
        let endpoints = endpoints.unwrap_or_default();
        let dir = default_dir(&endpoints, 0);
        assert_eq!(dir, PathBuf::from("wellhead-analysis-h.example-8545-19700101-000000"));
    }
    #[test]
    fn a_target_may_have_a_name() {
        let endpoints = endpoints(&[
            "fast-1=http://h.example/v2/PATHKEY".to_owned(),
            "http://h.example/?key=QUERYKEY".to_owned(),
        ]);
        let ids: Vec<String> =
            endpoints.unwrap_or_default().into_iter().map(|endpoint| endpoint.target.id).collect();
        assert_eq!(ids, ["fast-1", "target-2"]);
    }
    #[test]
    fn a_dry_run_opens_no_connection_and_no_directory() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let place = tempfile::tempdir().expect("a directory");
        let dir = place.path().join("run");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (out, common) = (Some(dir.clone()), CommonArgs::test(vec![url]));
        let common = CommonArgs { out, dry_run: true, ..common };
        assert!(measure(&common, &quick).is_ok());
        assert!(!dir.exists());
        let accepted = listener.accept().map_err(|error| error.kind());
        assert_eq!(accepted.err(), Some(std::io::ErrorKind::WouldBlock));
    }

    #[test]
    fn lines_call_a_target_by_its_name() {
        let endpoints =
            endpoints(&["fast=http://h.example/PATHKEY".to_owned()]).unwrap_or_default();
        let names = names(&endpoints);
        let greeting = Greeting { chain_id: Some(1), ..Greeting::default() };
        let told = greeting_line(&names[0], &endpoints[0], &greeting);
        let expected = "fast (h.example): no protocol, chain 1, block unknown, client unknown";
        assert_eq!(told, expected);
        let told = greeting_line("h.example", &endpoints[0], &greeting);
        assert!(told.starts_with("h.example: "), "{told}");
        let targets = endpoints.into_iter().map(|endpoint| endpoint.target).collect();
        let run = record::RunRecord { targets, ..record::RunRecord::default() };
        let finding = Finding::StreamCap(FindingBound::NotUpTo(NoCountLimit { up_to: 128 }));
        let verdict = ExperimentVerdict {
            experiment: "streams".to_owned(),
            target: 0,
            sentence: finding.to_string(),
            finding,
            confidence: Confidence::High,
            evidence: Vec::new(),
        };
        let told = concluded(&run, &[verdict]);
        assert!(told[0].starts_with("fast streams: "), "{told:?}");
        assert!(!told[0].contains("h.example"), "{told:?}");
    }

    fn refused<T>(outcome: Result<T, CommandError>) -> String {
        outcome.map_or_else(CommandError::text, |_| String::new())
    }

    #[test]
    fn two_targets_have_two_names() {
        let texts = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let hint = "give each its own NAME=URL";
        for (urls, expected) in [
            (["http://h.example", "http://h.example"], String::new()),
            (["a=http://h.example", "b=http://h.example"], String::new()),
            (
                ["a=http://h.example", "a=http://g.example"],
                format!("URL 2: another target is called `a`: {hint}"),
            ),
            (
                ["target-2=http://h.example", "http://g.example"],
                format!("URL 2: another target is called `target-2`: {hint}"),
            ),
        ] {
            assert_eq!(refused(endpoints(&texts(&urls))), expected);
        }
    }

    #[test]
    fn a_profile_without_a_place_is_told_before_anything_is_sent() {
        let place = tempfile::tempdir().expect("a directory");
        assert_eq!(refused(has_place(&place.path().join("eth.yaml"))), "");
        assert_eq!(refused(has_place(Path::new("eth.yaml"))), "");
        let told = refused(has_place(place.path()));
        assert!(told.ends_with("cannot be written: it is a directory"), "{told}");
        let told = refused(has_place(&place.path().join("no/eth.yaml")));
        assert!(told.ends_with("cannot be written: its directory does not exist"), "{told}");
    }

    #[test]
    fn a_run_of_another_format_is_not_concluded_from() {
        let place = tempfile::tempdir().expect("a directory");
        let run = record::RunRecord { format: record::FORMAT + 1, ..record::RunRecord::default() };
        let text = serde_json::to_string(&run).expect("plain data");
        fs::write(place.path().join("run.json"), text).expect("it can be written");
        fs::write(place.path().join("records.jsonl"), "").expect("it can be written");
        let told = refused(report(place.path(), None, &ConditionArgs::default()));
        assert!(told.ends_with("it has format 3, and this wellhead reads 1 to 2"), "{told}");
    }

    #[test]
    fn where_no_target_answers_nothing_was_measured() {
        // Each connection is accepted and closed.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let place = tempfile::tempdir().expect("a directory");
        let out = Some(place.path().join("run"));
        let common = CommonArgs { out, ..CommonArgs::test(vec![url]) };
        assert_eq!(refused(measure(&common, &quick)), "nothing was measured");
    }
}
