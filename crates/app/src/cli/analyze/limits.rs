//! Arguments of `wellhead analyze limits`, `window`, `cost` and `soak`.

use clap::Args;
use wellhead_analyze::work::METHODS;

use super::{Common, Kind, at_once, calls, positive, seconds};

/// Arguments of `wellhead analyze limits`.
#[derive(Debug, Args)]
pub struct Limits {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// The highest rate, calls a second; floods are four times as fast
    #[arg(long, value_name = "N", default_value_t = 150.0, value_parser = positive)]
    pub to: f64,
    /// How long each rate is kept; 30 for a rate that is counted over 10 seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = seconds(1))]
    pub seconds: u64,
}

/// Arguments of `wellhead analyze window`.
#[derive(Debug, Args)]
pub struct Window {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// Calls a second of a flood; twice the limit or more, to see whether a window slides
    #[arg(long, value_name = "N", default_value_t = 400.0, value_parser = positive)]
    pub flood: f64,
    /// Calls of one flood and the knocks after it; there are three, and one more at most
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = calls(1))]
    pub calls: u64,
    /// How long a flood and its knocks last at most: twice the window, and a little
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = seconds(1))]
    pub seconds: u64,
    /// The silence before the first flood, seconds [default: 2, and 2 windows of a provider that is known]
    #[arg(long, value_name = "N", value_parser = seconds(0))]
    pub rest: Option<u64>,
}

/// Arguments of `wellhead analyze cost`.
#[derive(Debug, Args)]
pub struct Cost {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// Methods to compare
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "eth_blockNumber,eth_getBalance,eth_call,eth_getBlockByNumber,eth_getLogs",
        value_parser = clap::builder::PossibleValuesParser::new(METHODS)
    )]
    pub methods: Vec<String>,
    /// Calls a second of a flood, above the limit of the cheapest method
    #[arg(long, value_name = "N", default_value_t = 400.0, value_parser = positive)]
    pub flood: f64,
    /// Calls of each method at most, each of two times
    #[arg(long, value_name = "N", default_value_t = 1_500, value_parser = calls(1))]
    pub calls: u64,
    /// How long one of these lasts at most
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = seconds(1))]
    pub seconds: u64,
}

/// Arguments of `wellhead analyze soak`.
#[derive(Debug, Args)]
pub struct Soak {
    /// What all experiments take.
    #[command(flatten)]
    pub common: Common,
    /// Calls a second, open loop
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = positive)]
    pub rate: f64,
    /// Users instead, who each ask again when they have an answer; it ends early when they have made
    /// 20 calls a second each
    #[arg(long, value_name = "N", value_parser = at_once())]
    pub users: Option<usize>,
    /// How long it lasts
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=43_200))]
    pub minutes: u64,
    /// Seconds that one line of the records tells of; ten lines show a drift
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = seconds(1))]
    pub every: u64,
    /// What is asked
    #[arg(long, value_name = "KIND", default_value = "mix")]
    pub work: Kind,
    /// HTTP/2 connections; over HTTP/1.1 there are 64, or one for each user
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: u16,
}
