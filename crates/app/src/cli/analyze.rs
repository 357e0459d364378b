//! Arguments of `wellhead analyze`.

pub mod endpoint;
pub mod gate;
pub mod limits;
pub mod several;
pub mod watch;

use std::ops::Deref;
use std::path::PathBuf;

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use wellhead_analyze::measure::plan::PER_USER;

use self::endpoint::{EndpointArgs, OwnCallsArgs, SecretArgs};
use self::gate::{ConditionArgs, EXIT_CODES, GateArgs, SchemaArgs};

/// The longest time that can be asked for.
const SECONDS_MAX: u64 = 30 * 86_400;
/// Seeds that are drawn.
const SEEDS: u64 = 1_000_000;
/// The most calls.
const CALLS_MAX: u64 = 1_000_000_000;

/// Arguments of `wellhead analyze`.
#[derive(Debug, Args)]
#[command(after_help = "\
Start with `quick`. It prints what it will send, and asks for confirmation before many calls.
Records and run.json are written to a directory; they contain no URL and no key.

Examples:
  wellhead analyze quick https://eth.example/v2/KEY
      identity, latency, streams per connection, whether low rates are refused
  wellhead analyze rate --to 200 --dry-run https://eth.example/v2/KEY
      the calls and the cost of finding a limit up to 200 calls per second
  wellhead analyze connection --requests 0 --idle 300 https://eth.example/v2/KEY
      the idle timeout of a connection, up to five minutes
  wellhead analyze agree https://eth.example/v2/KEY https://other.example http://127.0.0.1:8545
      whether they agree, which one is in the minority, and the smallest call that shows it
  wellhead analyze limits --max-calls 50000 https://a.example/KEY https://b.example/KEY
      streams, rate, window and silent shaping of two providers, in one report
  wellhead analyze quick https://eth.example/v2/KEY --profile eth.yaml
      as the first, and writes eth.yaml for the setting `profile: eth.yaml` of an upstream
  wellhead analyze report wellhead-analysis-eth.example-20261122-101500
      the conclusions, recomputed from the records, and report.html beside them
  wellhead analyze load --rates 50 --fail-if 'p95 > 200ms' --fail-if 'errors > 1%' URL
      exit code 4 if one of them holds, for CI; `wellhead analyze report --help` lists the
      conditions and the exit codes")]
pub struct Analyze {
    /// What to measure
    #[command(subcommand)]
    pub what: Experiment,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Experiment {
    /// A cheap first check: chain, head, client, protocol, latency, streams to 128, rates to 40/s
    Quick(CommonArgs),
    /// How many calls per second are served: rising rates in an open loop
    Rate(Measured<RateArgs>),
    /// How many concurrent streams one HTTP/2 connection allows: doubling, then bisecting
    Streams(Measured<StreamsArgs>),
    /// Whether higher concurrency is slowed down silently instead of being throttled
    Throttle(Measured<ThrottleArgs>),
    /// HTTP/1.1 compared with HTTP/2, by connections, concurrency and answer size
    Protocol(Measured<ProtocolArgs>),
    /// How many requests a connection serves, and how long it may stay idle
    Connection(Measured<ConnectionArgs>),
    /// How fast large responses arrive, and whether small calls wait behind them
    Bodies(Measured<BodiesArgs>),
    /// Which load the target sustains: stages of rates or of users
    Load(Measured<LoadArgs>),
    /// How recorded traffic would be served: calls from a file, at their times or faster
    Replay(Measured<endpoint::ReplayArgs>),
    /// Whether several endpoints agree on blocks that can no longer change
    Agree(Measured<AgreeArgs>),
    /// How soon each of several endpoints shows a new block
    Fresh(Measured<FreshArgs>),
    /// Which methods are served, how far back history goes, ranges, batches, WebSocket
    Reach(Measured<ReachArgs>),
    /// All limits in one report: rate, streams, throttle and window
    Limits(Measured<limits::LimitsArgs>),
    /// The kind of rate limit: its burst, its window, and how it refills
    Window(Measured<limits::WindowArgs>),
    /// How much each method counts against the limit, compared with the catalogue
    Cost(Measured<limits::CostArgs>),
    /// A long run: whether latency, errors or throughput drift or step
    Soak(Measured<limits::SoakArgs>),
    /// Watch targets until interrupted: gentle probes within a budget keep the profile current, with metrics
    Watch(watch::WatchArgs),
    /// Recompute the conclusions from the records of a run, and write its report
    Report(ReportDir),
    /// Resume an interrupted run: completed cells are kept
    Resume(ResumeArgs),
    /// Compare two runs: changed verdicts first, then latencies with their intervals
    Compare(CompareArgs),
    /// Trends: the figures of several runs in order of time
    History(several::HistoryArgs),
    /// Put runs from several regions side by side in one report
    Merge(several::MergeArgs),
    /// Print the JSON Schema of what --json writes, of the records, or of run.json
    Schema(SchemaArgs),
}

impl Experiment {
    /// URLs of WebSocket beside those of the targets.
    pub fn sockets_mut(&mut self) -> Option<&mut Vec<String>> {
        match self {
            Self::Reach(it) => Some(&mut it.args.ws),
            Self::Fresh(it) => Some(&mut it.args.ws),
            _ => None,
        }
    }

    /// The common arguments, of every experiment that sends calls.
    pub fn common_mut(&mut self) -> Option<&mut CommonArgs> {
        match self {
            Self::Quick(common) => Some(common),
            Self::Rate(it) => Some(&mut it.common),
            Self::Streams(it) => Some(&mut it.common),
            Self::Throttle(it) => Some(&mut it.common),
            Self::Protocol(it) => Some(&mut it.common),
            Self::Connection(it) => Some(&mut it.common),
            Self::Bodies(it) => Some(&mut it.common),
            Self::Load(it) => Some(&mut it.common),
            Self::Replay(it) => Some(&mut it.common),
            Self::Limits(it) => Some(&mut it.common),
            Self::Window(it) => Some(&mut it.common),
            Self::Cost(it) => Some(&mut it.common),
            Self::Soak(it) => Some(&mut it.common),
            Self::Agree(it) => Some(&mut it.common),
            Self::Fresh(it) => Some(&mut it.common),
            Self::Reach(it) => Some(&mut it.common),
            Self::Watch(_)
            | Self::Report(_)
            | Self::Resume(_)
            | Self::Compare(_)
            | Self::History(_)
            | Self::Merge(_)
            | Self::Schema(_) => None,
        }
    }
}

/// What is measured, and how: the arguments of all experiments, and those of one, which it dereferences to.
#[derive(Debug, Args)]
pub struct Measured<T: Args> {
    /// Arguments of all experiments.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Arguments of this one.
    #[command(flatten)]
    pub args: T,
}

impl<T: Args> Deref for Measured<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.args
    }
}

/// What is measured, by experiments and by `watch`.
#[derive(Debug, Clone, Args)]
pub struct TargetArgs {
    /// The targets, measured in turn (by `agree` and `fresh` at the same time); NAME=URL
    /// names a target in records, reports and metrics
    #[arg(value_name = "URL", required_unless_present = "upstreams")]
    pub urls: Vec<String>,
    /// How they are reached.
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// A remark for the records, such as the region of the measuring machine
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// The random seed: decides the calls and their order [default: a different one for each run]
    #[arg(long, value_name = "N", default_value_t = drawn_seed(), hide_default_value = true)]
    pub seed: u64,
}

/// Arguments of all experiments.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// What is measured.
    #[command(flatten)]
    pub targets: TargetArgs,
    /// The directory for records [default: wellhead-analysis-HOST-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the settings that follow from the results, for the `profile` of an upstream
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Upper bound on calls, for all targets together
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = calls(1))]
    pub max_calls: u64,
    /// Print the planned calls and their cost, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation before many calls
    #[arg(long)]
    pub yes: bool,
    /// Conditions for CI, and the run to compare with.
    #[command(flatten)]
    pub gate: GateArgs,
    /// The directory of the run to continue; set by `resume`.
    #[arg(skip)]
    pub goes_on: Option<PathBuf>,
}

#[cfg(test)]
impl CommonArgs {
    /// For a test: nothing is asked of a person.
    pub(crate) fn test(urls: Vec<String>) -> Self {
        Self {
            targets: TargetArgs { urls, endpoint: EndpointArgs::default(), note: None, seed: 1 },
            out: None,
            profile: None,
            max_calls: 100,
            dry_run: false,
            yes: true,
            gate: GateArgs::default(),
            goes_on: None,
        }
    }
}

/// Arguments of `wellhead analyze rate`.
#[derive(Debug, Args)]
pub struct RateArgs {
    /// The first rate, in calls per second
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = positive)]
    pub from: f64,
    /// The last rate, in calls per second
    #[arg(long, value_name = "N", default_value_t = 150.0, value_parser = positive)]
    pub to: f64,
    /// The factor from each rate to the next
    #[arg(long, value_name = "X", default_value_t = 2.0, value_parser = positive)]
    pub step: f64,
    /// How long each rate is held, seconds [default: 30, and at least 3 windows of a known provider]
    #[arg(long, value_name = "N", value_parser = seconds(1))]
    pub seconds: Option<u64>,
    /// The pause between rates, seconds [default: 2, and at least 2 windows of a known provider]
    #[arg(long, value_name = "N", value_parser = seconds(0))]
    pub rest: Option<u64>,
}

/// Arguments of `wellhead analyze streams`.
#[derive(Debug, Args)]
pub struct StreamsArgs {
    /// The highest concurrency to try, which is also the number of calls in each cell
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub up_to: u64,
}

/// Arguments of `wellhead analyze throttle`.
#[derive(Debug, Args)]
pub struct ThrottleArgs {
    /// Concurrent calls, one number per cell
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_value = "1,2,5,10,20,40,60,80,100,120",
        value_parser = at_once()
    )]
    pub at_once: Vec<usize>,
    /// Connections: two numbers distinguish a limit per connection from one per account
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "2,4", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub connections: Vec<usize>,
    /// Calls in each cell
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = calls(1))]
    pub calls: u64,
}

/// Arguments of `wellhead analyze protocol`.
#[derive(Debug, Args)]
pub struct ProtocolArgs {
    /// Connections of both protocols; by default 1 and 4 over HTTP/2, and over HTTP/1.1 one for each concurrent call
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: Vec<u16>,
    /// Concurrent calls
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "4,50", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub at_once: Vec<u16>,
    /// The kind of calls, by answer size
    #[arg(long, value_name = "KIND,KIND", value_delimiter = ',', default_value = "cheap,large")]
    pub bodies: Vec<WorkChoice>,
    /// Calls in each cell
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = calls(1))]
    pub calls: u64,
    /// How often each cell is repeated, each time in a different order
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
}

/// Arguments of `wellhead analyze connection`.
#[derive(Debug, Args)]
pub struct ConnectionArgs {
    /// The most requests on one connection; three connections are used. 0 skips this part
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = calls(0))]
    pub requests: u64,
    /// The longest idle time to test, seconds. 0 skips this part
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub idle: u64,
}

/// Arguments of `wellhead analyze bodies`.
#[derive(Debug, Args)]
pub struct BodiesArgs {
    /// Large responses in each cell, per concurrent call
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub calls: u64,
    /// Concurrent large responses, in the cells with more than one
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub at_once: u16,
    /// How often each cell is repeated, each time in a different order
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
}

/// Arguments of `wellhead analyze load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Stages by rate, in calls per second (open loop)
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "10,20,50", value_parser = positive)]
    pub rates: Vec<f64>,
    /// Stages by number of users instead, each of which calls again after an answer (closed loop)
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = at_once())]
    pub users: Vec<usize>,
    /// The pause of a user after an answer, milliseconds
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600_000), requires = "users")]
    pub think: u64,
    /// Upper bound on calls per user and second; the stage ends early when they are sent
    #[arg(long, value_name = "N", default_value_t = PER_USER, value_parser = clap::value_parser!(u64).range(1..=100_000), requires = "users")]
    pub per_user: u64,
    /// A spike instead: the first rate, the second rate for a third of the time, then the first again
    #[arg(long, value_name = "N,N", value_delimiter = ',', num_args = 1, conflicts_with = "users", value_parser = positive)]
    pub spike: Vec<f64>,
    /// How long a stage lasts, seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = seconds(1))]
    pub seconds: u64,
    /// The kind of calls
    #[arg(long, value_name = "KIND", default_value = "mix")]
    pub work: WorkChoice,
    /// Calls of one's own.
    #[command(flatten)]
    pub own: OwnCallsArgs,
    /// Calls per request: more than one are sent as a batch. Rates and users count requests
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub batch: u64,
    /// HTTP/2 connections; over HTTP/1.1 the default is 64. More if the rate
    /// needs them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: u16,
    /// The HTTP version
    #[arg(long, value_name = "HTTP", default_value = "auto")]
    pub http: Http,
}

/// The HTTP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Http {
    /// HTTP/2 if the target offers it
    Auto,
    /// HTTP/1.1
    #[value(name = "1.1")]
    H1,
    /// HTTP/2
    #[value(name = "2")]
    H2,
}

/// Arguments of `wellhead analyze agree`.
#[derive(Debug, Args)]
pub struct AgreeArgs {
    /// The newest block to ask about [default: the newest that is final at every endpoint]
    #[arg(long, value_name = "N")]
    pub block: Option<u64>,
    /// Blocks to examine, with their transactions, accounts, contracts and logs
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub blocks: u16,
    /// How far below the newest one they may be: full nodes keep 128 states
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    pub depth: u64,
    /// Questions to ask; one whose answers differ is repeated
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub asks: u32,
    /// The most calls per second to each endpoint
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = positive)]
    pub rate: f64,
}

/// Arguments of `wellhead analyze fresh`.
#[derive(Debug, Args)]
pub struct FreshArgs {
    /// How long to watch, seconds
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = seconds(1))]
    pub seconds: u64,
    /// The average time between two polls of one endpoint, milliseconds
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(20..=600_000))]
    pub every_ms: u64,
    /// Subscribe to new heads over WebSocket instead of polling: reports delays, missed heads and duplicates
    #[arg(long, conflicts_with = "every_ms")]
    pub subscribe: bool,
    /// The WebSocket URLs, one for each endpoint, in their order [default: the endpoint's URL]
    #[arg(long, value_name = "URL", requires = "subscribe")]
    pub ws: Vec<String>,
}

/// Arguments of `wellhead analyze reach`.
#[derive(Debug, Args)]
pub struct ReachArgs {
    /// The most blocks to try in one log search
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub range_up_to: u64,
    /// The most calls to try in one batch; finding a limit takes up to ten times as many
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub batch_up_to: u64,
    /// The WebSocket URLs, one for each endpoint, in their order [default: the endpoint's URL]
    #[arg(long, value_name = "URL")]
    pub ws: Vec<String>,
    /// The most calls per second to each endpoint
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = positive)]
    pub rate: f64,
}

/// The kind of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkChoice {
    /// `eth_blockNumber`
    Cheap,
    /// Recent blocks without transactions
    Small,
    /// Recent blocks with all transactions
    Large,
    /// Typical calls of dapps, wallets and indexers
    Mix,
}

/// Arguments of `wellhead analyze report`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ReportDir {
    /// The directory of a run
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Also write the settings that follow from the results, for the `profile` of an upstream
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Also write each chart as an SVG file to a directory
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Conditions for CI, and the run to compare with.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Arguments of `wellhead analyze resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
run.json keeps the arguments, but only the host of each URL. Give URLs with a path or a key
again.

Example:
  wellhead analyze resume wellhead-analysis-eth.example-20261122-101500 https://eth.example/v2/KEY")]
pub struct ResumeArgs {
    /// The directory of the run
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The URLs that have more than a host
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// What is not stored.
    #[command(flatten)]
    pub secrets: SecretArgs,
    /// Also write the settings that follow from the results, for the `profile` of an upstream
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Do not ask for confirmation before many calls
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `wellhead analyze compare`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Conditions apply to AFTER. The exit code is 0 if nothing differs, 3 if a verdict or a latency does
(a latency only if the 95 % interval excludes a negligible difference), and 6 if one is worse.

{EXIT_CODES}"))]
pub struct CompareArgs {
    /// The directory of the earlier run
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The directory of the later run
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Also write it as Markdown, for a pull request
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Also write it as an HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Conditions for CI.
    #[command(flatten)]
    pub conditions: ConditionArgs,
}

/// Runs with one seed ask for the blocks and accounts that the run before put into the caches of a
/// target. Six digits, which are easily typed again.
fn drawn_seed() -> u64 {
    u64::from(rand::random::<u32>()) % SEEDS
}

/// A rate, calls a second, or a factor.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.001..=1_000_000.0).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err("a number from 0.001 to 1000000 is needed".to_owned()),
    }
}

/// A duration in seconds, at most 30 days, so that sums of several do not overflow.
fn seconds(from: u64) -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(from..=SECONDS_MAX)
}

/// A number of calls.
fn calls(from: u64) -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(from..=CALLS_MAX)
}

/// Concurrent calls or users, at most as many as one cell can run.
fn at_once() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=10_000)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::Cli;

    fn parsed(words: &str) -> Result<Cli, clap::Error> {
        let words = ["wellhead", "analyze"].into_iter().chain(words.split_whitespace());
        Cli::try_parse_from(words.chain(["http://h.example"]))
    }

    #[test]
    fn what_cannot_be_played_is_not_begun() {
        let huge = "18446744073709551615";
        for words in [
            "quick --max-calls 0",
            "load --rates 0",
            "load --rates=-1",
            "load --rates NaN",
            "load --rates inf",
            "load --rates 1e300",
            "load --rates 1e-300",
            "load --seconds 0",
            "load --seconds HUGE",
            "load --users 0",
            "load --users HUGE",
            "load --users 1 --think HUGE",
            "load --spike 1,NaN",
            "load --connections 0",
            "rate --seconds 0",
            "rate --seconds HUGE",
            "rate --rest HUGE",
            "rate --step 0",
            "throttle --at-once 0",
            "throttle --at-once HUGE",
            "throttle --connections 0",
            "throttle --calls 0",
            "throttle --calls HUGE",
            "protocol --calls HUGE",
            "connection --requests HUGE",
            "window --flood NaN",
            "window --calls HUGE",
            "window --seconds HUGE",
            "window --rest HUGE",
            "cost --calls HUGE",
            "cost --seconds HUGE",
            "soak --users 0",
            "soak --minutes HUGE",
            "soak --every HUGE",
            "soak --rate 0",
            "limits --seconds HUGE",
            "fresh --seconds HUGE",
            "agree --rate 1e-300",
            "reach --range-up-to HUGE",
            "watch --calls-per-hour 0",
            "watch --calls-per-day HUGE",
            "watch --every 0",
            "watch --to NaN",
            "watch --seconds HUGE",
        ] {
            let words = words.replace("HUGE", huge);
            let told = parsed(&words).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(told.starts_with("error: invalid value"), "{words}: {told}");
        }
    }

    #[test]
    fn a_watch_that_is_only_asked_about_sends_nothing() {
        let cli = parsed("watch --dry-run --calls-per-hour 1000000000 --provider alchemy");
        let Ok(crate::cli::Command::Analyze(it)) = cli.map(|cli| cli.command) else {
            panic!("it is a command")
        };
        assert!(crate::analyze::command(&it.what).is_ok());
    }

    #[test]
    fn the_most_that_can_be_asked_for_adds_up() {
        for words in [
            "load --users 10000,10000 --think 1 --per-user 100000 --seconds 2592000",
            "load --rates 1000000,1000000 --seconds 2592000",
            "rate --from 0.001 --to 1000000 --step 1.0001 --seconds 2592000 --rest 2592000",
            "soak --users 10000 --minutes 43200 --every 2592000",
            "throttle --at-once 10000,10000 --connections 256,256 --calls 1000000000",
            "protocol --calls 1000000000 --repeats 100",
            "connection --requests 1000000000 --idle 86400",
            "window --calls 1000000000 --seconds 2592000 --rest 2592000 --flood 1000000",
            "cost --calls 1000000000 --seconds 2592000 --flood 0.001",
            "limits --to 1000000 --seconds 2592000",
            "fresh --seconds 2592000 --every-ms 20 http://g.example",
            "agree --rate 0.001 --asks 100000 http://g.example",
            "reach --rate 0.001 --range-up-to 1000000000",
        ] {
            let cli = parsed(&format!("{words} --dry-run --max-calls 1000000000"));
            let cli = cli.unwrap_or_else(|error| panic!("{words}: {error}"));
            let crate::cli::Command::Analyze(it) = cli.command else { panic!("{words}") };
            assert!(crate::analyze::command(&it.what).is_ok(), "{words}");
        }
    }
}
