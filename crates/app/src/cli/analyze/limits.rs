//! Arguments of `wellhead analyze limits`, `window`, `cost` and `soak`.

use clap::Args;
use wellhead_analyze::work::METHODS;

use super::endpoint::OwnCallsArgs;
use super::{WorkChoice, at_once, calls, positive, seconds};

/// Arguments of `wellhead analyze limits`.
#[derive(Debug, Args)]
pub struct LimitsArgs {
    /// The highest rate, in calls per second; floods are four times as fast
    #[arg(long, value_name = "N", default_value_t = 150.0, value_parser = positive)]
    pub to: f64,
    /// How long each rate is held, seconds; use 30 for a rate that is counted over 10 seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = seconds(1))]
    pub seconds: u64,
}

/// Arguments of `wellhead analyze window`.
#[derive(Debug, Args)]
pub struct WindowArgs {
    /// The rate of a flood, in calls per second; at least twice the limit, to detect a sliding window
    #[arg(long, value_name = "N", default_value_t = 400.0, value_parser = positive)]
    pub flood: f64,
    /// Calls of one flood and the probes after it; there are three floods, and at most one more
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = calls(1))]
    pub calls: u64,
    /// The longest time for a flood and its probes, seconds: slightly more than twice the window
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = seconds(1))]
    pub seconds: u64,
    /// Idle time before the first flood, seconds [default: 2, and at least 2 windows of a known provider]
    #[arg(long, value_name = "N", value_parser = seconds(0))]
    pub rest: Option<u64>,
}

/// Arguments of `wellhead analyze cost`.
#[derive(Debug, Args)]
pub struct CostArgs {
    /// Methods to compare
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "eth_blockNumber,eth_getBalance,eth_call,eth_getBlockByNumber,eth_getLogs",
        value_parser = clap::builder::PossibleValuesParser::new(METHODS)
    )]
    pub methods: Vec<String>,
    /// The rate of a flood, in calls per second; above the limit of the cheapest method
    #[arg(long, value_name = "N", default_value_t = 400.0, value_parser = positive)]
    pub flood: f64,
    /// The most calls of each method in each of two rounds
    #[arg(long, value_name = "N", default_value_t = 1_500, value_parser = calls(1))]
    pub calls: u64,
    /// The longest time for one method in one round, seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = seconds(1))]
    pub seconds: u64,
}

/// Arguments of `wellhead analyze soak`.
#[derive(Debug, Args)]
pub struct SoakArgs {
    /// Calls per second (open loop)
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = positive)]
    pub rate: f64,
    /// Users instead (closed loop), each of which calls again after an answer; the run ends early after
    /// an average of 20 calls per second and user
    #[arg(long, value_name = "N", value_parser = at_once())]
    pub users: Option<usize>,
    /// How long the run lasts, minutes
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=43_200))]
    pub minutes: u64,
    /// Seconds covered by one line of the records; ten lines are needed to detect a drift
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = seconds(1))]
    pub every: u64,
    /// The kind of calls
    #[arg(long, value_name = "KIND", default_value = "mix")]
    pub work: WorkChoice,
    /// Calls of one's own.
    #[command(flatten)]
    pub own: OwnCallsArgs,
    /// HTTP/2 connections; over HTTP/1.1 there are 64, or one per user
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: u16,
}
