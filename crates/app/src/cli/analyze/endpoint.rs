//! Arguments that say how targets are reached.

use std::path::PathBuf;

use clap::Args;

/// How targets are reached.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "How targets are reached")]
pub struct EndpointArgs {
    /// A header of every request, `Name: value`. With @FILE one from each line of a file, which
    /// keeps values out of the list of processes. Values are not written into records
    #[arg(long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// A file with a token, which is sent as `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    pub bearer_file: Option<PathBuf>,
    /// Certificates (PEM) of the authorities to trust, instead of the public ones
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// An HTTP proxy to go through: `http://[USER:PASSWORD@]HOST:PORT`
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,
    /// The address of a name, instead of a look-up: `HOST:PORT:ADDRESS`
    #[arg(long, value_name = "HOST:PORT:ADDRESS")]
    pub resolve: Vec<String>,
    /// The config file of the proxy, for `--upstream` [default: the file that `serve` reads]
    #[arg(long, value_name = "FILE", requires = "upstreams")]
    pub config: Option<PathBuf>,
    /// An upstream of the config file as a target, with its URL, headers, credentials and authorities
    #[arg(long = "upstream", id = "upstreams", value_name = "ID")]
    pub upstreams: Vec<String>,
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
