//! The command line: its arguments, and the texts of `--help`.
//!
//! Only shapes and texts; `serve` and its neighbours do the work.

pub mod analyze;
pub mod key;
pub mod man;
pub mod sentences;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use wellhead_server::AdminRole;

use crate::config::{Admin, parse_admin, parse_duration, parse_listen, parse_role};

/// One dependable JSON-RPC endpoint in front of many Ethereum nodes and providers.
#[derive(Debug, Parser)]
#[command(name = "wellhead", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the chains of a config, or one chain from the given URLs
    Serve(Serve),
    /// Demonstrate the proxy: a simulated chain with unreliable upstreams, traffic and a dashboard
    Demo(Demo),
    /// Check a config: print the resolved settings, or every problem
    Check(Check),
    /// Look for what is wrong: config, machine, upstreams, the wellhead that runs; say what to do
    Doctor(Doctor),
    /// Explain how a running wellhead would handle a call: block, cache, upstreams and reasons
    Explain(Explain),
    /// Show the log filter of a running wellhead, or change it for a while
    Log(LogCommand),
    /// Have a running wellhead read its config again, and show what changes
    Reload(ReloadCommand),
    /// Hand the listening sockets of a running wellhead over to a new process of its binary
    Upgrade(UpgradeCommand),
    /// Make, list, revoke, rotate and import the keys of clients
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Make a token for the admin listener; prints it once, with the settings that accept it
    Token(NewToken),
    /// Measure what a provider delivers: limits, streams, latency; shows the cost first
    Analyze(Box<analyze::Analyze>),
    /// Print the JSON schema of the config, for editors
    Schema,
    /// Print a completion script for a shell
    Completions(Completions),
    /// Write the manual pages, one for each command
    Man(ManPages),
}

/// Arguments of `wellhead serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wellhead serve http://geth:8545 ws://geth:8546 https://eth.example/v2/KEY
      one chain, detected with `eth_chainId`; a WebSocket URL is the block feed
      of the upstream on that host
  wellhead serve -c wellhead.yaml --listen 0.0.0.0:4545
      the config, with another listen address
  wellhead serve http://geth:8545 --keys keys.jsonl
      only for clients with a key of that file, which `wellhead key create --file keys.jsonl` makes
  wellhead serve
      ./wellhead.yaml, or /etc/wellhead/wellhead.yaml")]
pub struct Serve {
    /// Upstreams of one chain, instead of a config
    #[arg(value_name = "URL", conflicts_with = "config")]
    pub urls: Vec<String>,
    /// The config file
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A file of keys: clients need one of them. Every tenant that it names exists, without limits;
    /// for limits write a config
    #[arg(long, value_name = "FILE", requires = "urls")]
    pub keys: Option<PathBuf>,
    /// The address for clients [default: the config's, or 127.0.0.1:4545]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    pub listen: Option<SocketAddr>,
    /// The address of metrics, health and dashboard, `unix:/path`, or `off` [default: the config's, or 127.0.0.1:4546]
    #[arg(long, value_name = "ADDR", value_parser = parse_admin)]
    pub admin: Option<Admin>,
}

/// Arguments of `wellhead demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wellhead demo
      until interrupted; the dashboard is at http://127.0.0.1:4546/
  wellhead demo --seconds 20 --plain --seed 7
      a repeatable run, as lines of text")]
pub struct Demo {
    /// The address for clients
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4545", value_parser = parse_listen)]
    pub listen: SocketAddr,
    /// The address of metrics, health and dashboard, `unix:/path`, or `off`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4546", value_parser = parse_admin)]
    pub admin: Admin,
    /// Stop after N seconds [default: run until interrupted]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,
    /// Print lines instead of a live table
    #[arg(long)]
    pub plain: bool,
    /// Calls per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// The random seed: equal seeds make equal faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Arguments of `wellhead check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Secrets are printed as `***`. The exit code is 1 if the config has an error.

Examples:
  wellhead check -c wellhead.yaml
  wellhead check
      ./wellhead.yaml, or /etc/wellhead/wellhead.yaml")]
pub struct Check {
    /// The config file
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Arguments of `wellhead doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is `ok`, `warn` or `FAIL`, with a reason and what to do. The exit code is 1 if a line is
`FAIL`. All checks run side by side. Nothing is changed; an upstream gets five calls, and two
over its `ws`. Secrets are not printed. Limits and rights are those of this process: run it as the
user of the service. For the version of a wellhead whose admin listener needs a token, put one
with the role `view` into the environment variable WELLHEAD_ADMIN_TOKEN.

Examples:
  wellhead doctor -c wellhead.yaml
  wellhead doctor
      ./wellhead.yaml, or /etc/wellhead/wellhead.yaml
  wellhead doctor https://eth.example/v2/KEY http://geth:8545
      upstreams of one chain, without a config")]
pub struct Doctor {
    /// Upstreams of one chain, instead of a config
    #[arg(value_name = "URL", conflicts_with = "config")]
    pub urls: Vec<String>,
    /// The config file
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address for clients, if `serve` is given another than the config's
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    pub listen: Option<SocketAddr>,
    /// The admin address, if `serve` is given another than the config's
    #[arg(long, value_name = "ADDR", value_parser = parse_admin)]
    pub admin: Option<Admin>,
    /// Time for all checks of one upstream, and for each other check
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wellhead explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is sent to an upstream. Among upstreams of equal fitness, tier and cost the order may
differ for the next call. GET /explain on the admin listener returns this as JSON. If it needs a
token, put one with the role `view` into the environment variable WELLHEAD_ADMIN_TOKEN.

Examples:
  wellhead explain eth_getBalance '[\"0x00000000219ab540356cBB839Cbe05303d7705Fa\",\"latest\"]'
      the block that `latest` stands for, whether the answer may be cached, and which upstreams
      would be called
  wellhead explain --chain base --client 10.0.0.7 eth_getTransactionReceipt '[\"0x...\"]'
      on another chain, as the client at that address")]
pub struct Explain {
    /// The method
    #[arg(value_name = "METHOD")]
    pub method: String,
    /// Its parameters, as JSON
    #[arg(value_name = "PARAMS")]
    pub params: Option<String>,
    /// The chain: its name, alias or id; required if several are served
    #[arg(long, value_name = "NAME")]
    pub chain: Option<String>,
    /// The client's address: the blocks it has seen affect its `latest` [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub client: Option<IpAddr>,
    /// Only upstreams with this label, as in the query of a request; may be given several times
    #[arg(long, value_name = "LABEL=VALUE")]
    pub select: Vec<String>,
    /// The running wellhead, and how its answer is printed
    #[command(flatten)]
    pub asked: AskedWellhead,
}

/// The running wellhead that a command asks, and how the command prints the answer.
#[derive(Debug, Args)]
pub struct AskedWellhead {
    /// The address of the running wellhead's admin listener, or `unix:/path`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4546", value_parser = parse_admin)]
    pub admin: Admin,
    /// Print the JSON object unchanged
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wellhead log`.
#[derive(Debug, Args)]
#[command(after_help = "\
A level (`error`, `warn`, `info`, `debug`, `trace`, `off`) alone is the new general level;
`module=level` changes one module; several are separated by commas. They hold over `log.level` of
the settings, and end by themselves. If the admin listener needs a token, put one with the role
`operate` into the environment variable WELLHEAD_ADMIN_TOKEN; to show the filter `view` will do.

Examples:
  wellhead log
      what holds now, and for how long
  wellhead log wellhead_watch=debug --for 10m
      why an upstream is not used; then the settings hold again
  wellhead log --reset
      the settings hold again at once")]
pub struct LogCommand {
    /// Levels and modules; without it the filter is shown
    #[arg(value_name = "FILTER", conflicts_with = "reset")]
    pub filter: Option<String>,
    /// For how long, at most 24h
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub lasting: Duration,
    /// Let the settings hold again
    #[arg(long)]
    pub reset: bool,
    /// The running wellhead, and how its answer is printed
    #[command(flatten)]
    pub asked: AskedWellhead,
}

/// Arguments of `wellhead reload`.
#[derive(Debug, Args)]
#[command(after_help = "\
The exit code is 1 if the config cannot be used: then nothing changes. A token for the admin
listener is taken from WELLHEAD_ADMIN_TOKEN; it needs the role `operate`.

Examples:
  wellhead reload --dry-run
      what would change, and which settings need a restart
  wellhead reload --admin unix:/run/wellhead/admin.sock
      read the config and apply it")]
pub struct ReloadCommand {
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// The running wellhead, and how its answer is printed
    #[command(flatten)]
    pub asked: AskedWellhead,
}

/// Arguments of `wellhead upgrade`.
#[derive(Debug, Args)]
#[command(after_help = "\
The running wellhead starts its binary again with its own arguments and hands its listening sockets
over: no connection is refused. SIGUSR2 does so, too. If the new process is not ready within 30 s,
the old one goes on, and the exit code is 1. A token for the admin listener is taken from
WELLHEAD_ADMIN_TOKEN; it needs the role `operate`.

Examples:
  install -m 755 wellhead-new /usr/local/bin/wellhead && wellhead upgrade
      the new binary takes over
  wellhead upgrade --admin unix:/run/wellhead/admin.sock
      a restart by which settings hold that need one, except for `listen` and `admin`")]
pub struct UpgradeCommand {
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// The running wellhead, and how its answer is printed
    #[command(flatten)]
    pub asked: AskedWellhead,
}

/// Arguments of `wellhead token`.
#[derive(Debug, Args)]
#[command(after_help = "\
The token itself is not kept anywhere: the settings have its hash.

Examples:
  wellhead token prometheus --role view
      for metrics, status and the dashboard
  wellhead token ops --role operate --role keys
      for every action")]
pub struct NewToken {
    /// How audit lines name it: letters, digits, `-`, `_` and `.`
    #[arg(value_name = "NAME", value_parser = token_name)]
    pub name: String,
    /// What it may do: `view`, `operate` (includes `view`) or `keys`; may be given several times
    #[arg(long, value_name = "ROLE", default_value = "view", value_parser = parse_role)]
    pub role: Vec<AdminRole>,
}

/// A name that needs no quotes in YAML.
fn token_name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    match begins && text.len() <= 64 && text.bytes().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("begin with a letter; then letters, digits, `-`, `_` and `.`".to_owned()),
    }
}

/// Arguments of `wellhead completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wellhead completions bash > /etc/bash_completion.d/wellhead
  wellhead completions zsh > \"${fpath[1]}/_wellhead\"
  wellhead completions fish > ~/.config/fish/completions/wellhead.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `wellhead man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wellhead man /usr/local/share/man/man1
      then `man wellhead-serve`; `make install` does this")]
pub struct ManPages {
    /// The directory for them; it is made if it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Writes the completion script of a shell.
pub fn completions(shell: Shell, out: &mut dyn io::Write) {
    clap_complete::generate(shell, &mut Cli::command(), "wellhead", out);
}

impl Demo {
    /// How long to run; `None` until interrupted.
    pub fn duration(&self) -> Option<Duration> {
        self.seconds.map(|seconds| Duration::from_secs(u64::from(seconds)))
    }
}
