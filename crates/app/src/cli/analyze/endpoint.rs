//! Arguments that say how targets are reached, and which calls of one's own they are sent.

use std::path::PathBuf;

use clap::Args;

use super::positive;

/// How targets are reached.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "How targets are reached")]
pub struct EndpointArgs {
    /// A header for every request, `Name: value`; @FILE reads one per line from a file, which keeps
    /// values out of the process list. Values are not recorded
    #[arg(long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// A file with a token, sent as `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    pub bearer_file: Option<PathBuf>,
    /// Certificates (PEM) of the authorities to trust, instead of the public ones
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// A certificate (PEM) to show to a target that asks for one (mTLS)
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_cert: Option<PathBuf>,
    /// The private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub client_key: Option<PathBuf>,
    /// An HTTP proxy to go through: `http://[USER:PASSWORD@]HOST:PORT`
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,
    /// The address of a name, instead of a look-up: `HOST:PORT:ADDRESS`
    #[arg(long, value_name = "HOST:PORT:ADDRESS")]
    pub resolve: Vec<String>,
    /// The config file of the proxy, for `--upstream` [default: the file that `serve` reads]
    #[arg(long, value_name = "FILE", requires = "upstreams")]
    pub config: Option<PathBuf>,
    /// An upstream of the config file as a target, with its URL, headers, credentials and certificates
    #[arg(long = "upstream", id = "upstreams", value_name = "ID")]
    pub upstreams: Vec<String>,
    /// The provider in the catalogue whose prices apply [default: derived from the host]
    #[arg(long, value_name = "ID")]
    pub provider: Option<String>,
    /// The provider's plan: costs are also given as a share of its monthly credits
    #[arg(long, value_name = "NAME")]
    pub plan: Option<String>,
    /// Price of a million credits, US dollars: costs are also given in money
    #[arg(long, value_name = "USD", value_parser = positive)]
    pub usd_per_million: Option<f64>,
}

/// Calls of one's own.
#[derive(Debug, Clone, Default, Args)]
pub struct OwnCallsArgs {
    /// A file of calls to draw from instead of the built-in kinds: one JSON-RPC request per line,
    /// reads only
    #[arg(long, value_name = "FILE", conflicts_with = "work")]
    pub calls_from: Option<PathBuf>,
}

/// Arguments of `wellhead analyze replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The recorded calls: JSON-RPC requests with a `timestamp`, or the log of the proxy, whose
    /// request lines have no params, so that these are drawn
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// How much faster than recorded
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive)]
    pub speed: f64,
    /// HTTP/2 connections; over HTTP/1.1 there are 64. More if the rate needs them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: u16,
}

/// What `resume` needs again, as a run does not keep it.
#[derive(Debug, Clone, Default, Args)]
pub struct SecretArgs {
    /// A header whose value is not stored, `Name: value`
    #[arg(long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// The proxy, if its URL has a password
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,
}
