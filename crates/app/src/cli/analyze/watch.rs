//! Arguments of `wellhead analyze watch`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use wellhead_analyze::monitor::CALLS_PER_HOUR_MIN;

use super::{CALLS_MAX, TargetArgs, positive, seconds};

/// Arguments of `wellhead analyze watch`.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// What is watched.
    #[command(flatten)]
    pub targets: TargetArgs,
    /// The directory for records and state; a restart with the same directory continues
    /// [default: wellhead-watch-HOST]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the resulting settings to this file, for the `profile` of an upstream, whenever a study finds a limit
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// The most calls to each target in any 60 minutes
    #[arg(long, value_name = "N", default_value_t = 6_000, value_parser = clap::value_parser!(u64).range(CALLS_PER_HOUR_MIN..=CALLS_MAX))]
    pub calls_per_hour: u64,
    /// The most calls to each target in any 24 hours
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(CALLS_PER_HOUR_MIN..=CALLS_MAX))]
    pub calls_per_day: u64,
    /// Seconds between two rounds of probes at one target; more if the budget requires it
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = seconds(5))]
    pub every: u64,
    /// The highest rate of a study, in calls per second; a probe goes up to twice the known limit
    #[arg(long, value_name = "N", default_value_t = 100.0, value_parser = positive)]
    pub to: f64,
    /// How long a study holds each rate, seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = seconds(1))]
    pub seconds: u64,
    /// Serve Prometheus metrics at this address, under `/metrics`
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Send metrics to an OpenTelemetry collector (OTLP over HTTP): `http://HOST:4318/v1/metrics`
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// A header for the collector, `Name: value`; @FILE reads one per line from a file
    #[arg(long, value_name = "HEADER", requires = "otlp")]
    pub otlp_header: Vec<String>,
    /// Print the budget and its cost, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}
