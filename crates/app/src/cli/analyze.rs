//! Arguments of `wellhead analyze`.

pub mod limits;

use std::path::PathBuf;

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use wellhead_analyze::plan::PER_USER;

/// The longest time that can be asked for.
const SECONDS_MAX: u64 = 30 * 86_400;
/// The most calls.
const CALLS_MAX: u64 = 1_000_000_000;

/// Arguments of `wellhead analyze`.
#[derive(Debug, Args)]
#[command(after_help = "\
Start with `quick`: it says what it will send and asks before it sends much.
Records and run.json go to a directory; no URL and no key is written there.

Examples:
  wellhead analyze quick https://eth.example/v2/KEY
      who it is, how fast, streams on a connection, whether small rates are refused
  wellhead analyze rate --to 200 --dry-run https://eth.example/v2/KEY
      what finding the limit up to 200 calls a second would send and cost
  wellhead analyze connection --requests 0 --idle 300 https://eth.example/v2/KEY
      after how long a silence a connection is closed, up to five minutes
  wellhead analyze agree https://eth.example/v2/KEY https://other.example http://127.0.0.1:8545
      whether they say the same, who is alone, and the smallest call that shows it
  wellhead analyze limits --max-calls 50000 https://a.example/KEY https://b.example/KEY
      streams, rate, window and silent shaping of two providers, in one report
  wellhead analyze quick https://eth.example/v2/KEY --profile eth.yaml
      as the first, and eth.yaml for `profile: eth.yaml` of an upstream that `serve` uses
  wellhead analyze report wellhead-analysis-eth.example-20261122-101500
      the same conclusions again, from the records, and report.html beside them")]
pub struct Analyze {
    /// What to find out
    #[command(subcommand)]
    pub what: Experiment,
}

/// What to find out.
#[derive(Debug, Subcommand)]
pub enum Experiment {
    /// A cheap first look: chain, head, client, protocol, latency, streams to 128, rates to 40/s
    Quick(Quick),
    /// How many calls a second are let through: rates from low to high, open loop
    Rate(Rate),
    /// How many calls one HTTP/2 connection bears at once: doubling, then bisecting
    Streams(Streams),
    /// Whether more calls at once become slower instead of being refused
    Throttle(Throttle),
    /// HTTP/1.1 against HTTP/2, by connections, calls at a time and the size of answers
    Protocol(Protocol),
    /// How many requests a connection bears, and how long it may be silent
    Connection(Connection),
    /// How fast large answers come, and whether small ones wait for them
    Bodies(Bodies),
    /// What becomes of a load that you set: rates, or users, stage after stage
    Load(Load),
    /// Whether several endpoints answer alike at blocks that cannot change any more
    Agree(Agree),
    /// How soon each of several endpoints shows a new block, watched side by side
    Fresh(Fresh),
    /// Methods served, how far back states, blocks, logs and traces go, ranges, batches, WebSocket
    Reach(Reach),
    /// All about limits in one report: streams, rate, window and throttle
    Limits(limits::Limits),
    /// How many calls pass at once, and how they pass again: a bucket, or a window of which kind
    Window(limits::Window),
    /// What methods count against the limit, compared with each other and with the catalogue
    Cost(limits::Cost),
    /// How it does over a long time, and whether times or errors drift
    Soak(limits::Soak),
    /// Conclude again from the records of a run, and write its report
    Report(ReportDir),
    /// Go on with a run that was cut: cells that were played to their end are kept
    Resume(Resume),
    /// Put two runs beside each other: changed verdicts first, times with their intervals
    Compare(Compare),
}

impl Experiment {
    /// What all that send something take.
    pub fn common_mut(&mut self) -> Option<&mut Common> {
        match self {
            Self::Quick(it) => Some(&mut it.common),
            Self::Rate(it) => Some(&mut it.common),
            Self::Streams(it) => Some(&mut it.common),
            Self::Throttle(it) => Some(&mut it.common),
            Self::Protocol(it) => Some(&mut it.common),
            Self::Connection(it) => Some(&mut it.common),
            Self::Bodies(it) => Some(&mut it.common),
            Self::Load(it) => Some(&mut it.common),
            Self::Limits(it) => Some(&mut it.common),
            Self::Window(it) => Some(&mut it.common),
            Self::Cost(it) => Some(&mut it.common),
            Self::Soak(it) => Some(&mut it.common),
            Self::Agree(it) => Some(&mut it.common),
            Self::Fresh(it) => Some(&mut it.common),
            Self::Reach(it) => Some(&mut it.common),
            Self::Report(_) | Self::Resume(_) | Self::Compare(_) => None,
        }
    }
}

/// What all experiments take.
#[derive(Debug, Args)]
pub struct Common {
    /// Whom to measure: one after another, or side by side where they are compared; NAME=URL gives
    /// one a name in the report
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Where records go [default: wellhead-analysis-HOST-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write what follows for the settings of an upstream, for its `profile`
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// The seed of chance: what is asked, and in which order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Not one call more is sent, to all targets together
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = calls(1))]
    pub max_calls: u64,
    /// Say what would be sent and what it would cost, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask before many calls
    #[arg(long)]
    pub yes: bool,
    /// The directory of a run that is gone on with; set by `resume`.
    #[arg(skip)]
    pub goes_on: Option<PathBuf>,
}

/// Arguments of `wellhead analyze quick`.
#[derive(Debug, Args)]
pub struct Quick {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
}

/// Arguments of `wellhead analyze rate`.
#[derive(Debug, Args)]
pub struct Rate {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// The first rate, calls a second
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = positive)]
    pub from: f64,
    /// The last rate, calls a second
    #[arg(long, value_name = "N", default_value_t = 150.0, value_parser = positive)]
    pub to: f64,
    /// Each rate is so many times the one before
    #[arg(long, value_name = "X", default_value_t = 2.0, value_parser = positive)]
    pub step: f64,
    /// How long each rate is kept [default: 30, and 3 windows of a provider that is known]
    #[arg(long, value_name = "N", value_parser = seconds(1))]
    pub seconds: Option<u64>,
    /// The rest between rates, seconds [default: 2, and 2 windows of a provider that is known]
    #[arg(long, value_name = "N", value_parser = seconds(0))]
    pub rest: Option<u64>,
}

/// Arguments of `wellhead analyze streams`.
#[derive(Debug, Args)]
pub struct Streams {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// The largest number that is tried; each cell has so many calls
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub up_to: u64,
}

/// Arguments of `wellhead analyze throttle`.
#[derive(Debug, Args)]
pub struct Throttle {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// Calls at once, one number a cell
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_value = "1,2,5,10,20,40,60,80,100,120",
        value_parser = at_once()
    )]
    pub at_once: Vec<usize>,
    /// Connections: two numbers tell a limit of the connection from one of the account
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "2,4", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub connections: Vec<usize>,
    /// Calls of a cell
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = calls(1))]
    pub calls: u64,
}

/// Arguments of `wellhead analyze protocol`.
#[derive(Debug, Args)]
pub struct Protocol {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// Connections; over HTTP/1.1 a call has one for itself as long as it lasts
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,4", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: Vec<u16>,
    /// Calls at a time
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "4,50", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub at_once: Vec<u16>,
    /// What is asked: small, medium and large answers are cheap, small and large work
    #[arg(long, value_name = "KIND,KIND", value_delimiter = ',', default_value = "cheap,large")]
    pub bodies: Vec<Kind>,
    /// Calls of a cell
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = calls(1))]
    pub calls: u64,
    /// How often each cell is played, each time in another order
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
}

/// Arguments of `wellhead analyze connection`.
#[derive(Debug, Args)]
pub struct Connection {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// Requests on one connection at most; three connections are used up. 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = calls(0))]
    pub requests: u64,
    /// The longest silence, seconds. 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub idle: u64,
}

/// Arguments of `wellhead analyze bodies`.
#[derive(Debug, Args)]
pub struct Bodies {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// Large answers of a cell, for each at a time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub calls: u64,
    /// Large answers at a time, where it is more than one
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub at_once: u16,
    /// How often each cell is played, each time in another order
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
}

/// Arguments of `wellhead analyze load`.
#[derive(Debug, Args)]
pub struct Load {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// Stages by rate, calls a second, open loop
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "10,20,50", value_parser = positive)]
    pub rates: Vec<f64>,
    /// Stages by users instead, who each ask again when they have an answer
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = at_once())]
    pub users: Vec<usize>,
    /// Users think for so long before they ask again, milliseconds
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600_000), requires = "users")]
    pub think: u64,
    /// Calls that a user makes in a second at most: a stage ends early when they are made
    #[arg(long, value_name = "N", default_value_t = PER_USER, value_parser = clap::value_parser!(u64).range(1..=100_000), requires = "users")]
    pub per_user: u64,
    /// A spike instead: the first rate, the second for a third of the time, and the first again
    #[arg(long, value_name = "N,N", value_delimiter = ',', num_args = 1, conflicts_with = "users", value_parser = positive)]
    pub spike: Vec<f64>,
    /// How long a stage lasts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = seconds(1))]
    pub seconds: u64,
    /// What is asked
    #[arg(long, value_name = "KIND", default_value = "mix")]
    pub work: Kind,
    /// HTTP/2 connections; over HTTP/1.1 there are 64, if you do not ask for it
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: u16,
    /// Which HTTP to speak
    #[arg(long, value_name = "HTTP", default_value = "auto")]
    pub http: Http,
}

/// Which HTTP to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Http {
    /// HTTP/2 where the target offers it
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
pub struct Agree {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// The newest block that is asked about [default: the newest that is final everywhere]
    #[arg(long, value_name = "N")]
    pub block: Option<u64>,
    /// Blocks that are looked into, and their transactions, accounts, contracts and logs
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub blocks: u16,
    /// How far below the newest one they may be: nodes that are no archive keep 128 states
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    pub depth: u64,
    /// Questions; each that is answered differently is asked again
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub asks: u32,
    /// Calls a second to each endpoint at most
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = positive)]
    pub rate: f64,
}

/// Arguments of `wellhead analyze fresh`.
#[derive(Debug, Args)]
pub struct Fresh {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// How long they are watched
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = seconds(1))]
    pub seconds: u64,
    /// Between two polls of one endpoint, on the average
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(20..=600_000))]
    pub every_ms: u64,
}

/// Arguments of `wellhead analyze reach`.
#[derive(Debug, Args)]
pub struct Reach {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// Blocks in one search for logs that are tried at most
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub range_up_to: u64,
    /// Calls in one batch that are tried at most; finding a limit takes up to ten times as many
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub batch_up_to: u64,
    /// Where WebSocket is, once for each endpoint in their order [default: the same URL]
    #[arg(long, value_name = "URL")]
    pub ws: Vec<String>,
    /// Calls a second to each endpoint at most
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = positive)]
    pub rate: f64,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `eth_blockNumber`
    Cheap,
    /// Late blocks without transactions
    Small,
    /// Late blocks with all transactions
    Large,
    /// What dapps, wallets and indexers ask
    Mix,
}

/// Arguments of `wellhead analyze report`.
#[derive(Debug, Args)]
pub struct ReportDir {
    /// The directory of a run
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Also write what follows for the settings of an upstream, for its `profile`
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

/// Arguments of `wellhead analyze resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
run.json says what was asked for, but of URLs the host alone: those with a path or a key have
to be given again.

Example:
  wellhead analyze resume wellhead-analysis-eth.example-20261122-101500 https://eth.example/v2/KEY")]
pub struct Resume {
    /// The directory of the run
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// URLs that hold more than a host
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// Also write what follows for the settings of an upstream, for its `profile`
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Do not ask before many calls
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `wellhead analyze compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exits with 0 where nothing differs, with 3 where a verdict or a time does: a time only where the
interval of 95 % excludes no difference. With 1 where a run cannot be read.")]
pub struct Compare {
    /// The directory of the earlier run
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The directory of the later run
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Also write it as Markdown, for a pull request
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Also write it as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// A rate, calls a second, or a factor.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.001..=1_000_000.0).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err("a number from 0.001 to 1000000 is needed".to_owned()),
    }
}

/// A length in seconds, 30 days at most: what adds up of them still is one.
fn seconds(from: u64) -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(from..=SECONDS_MAX)
}

/// A number of calls.
fn calls(from: u64) -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(from..=CALLS_MAX)
}

/// Calls or users at once: of more than that no cell bears all.
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
        ] {
            let words = words.replace("HUGE", huge);
            let told = parsed(&words).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(told.starts_with("error: invalid value"), "{words}: {told}");
        }
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
