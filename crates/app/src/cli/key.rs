//! The arguments of `wellhead key`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::config::{lifetime, overlap};

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key; prints it once
    Create(CreateKey),
    /// List the keys
    List(ListKeys),
    /// Show one key, without its secret
    Show(ShowKey),
    /// End a key for good
    Revoke(RevokeKey),
    /// Give a key a new secret; prints it once, the old one stays valid for a while
    Rotate(RotateKey),
    /// Take the keys of another proxy in
    Import(ImportKeys),
}

/// Where the keys are.
#[derive(Debug, Args)]
pub struct KeyPlaceArguments {
    /// The config: its file of keys, its pepper, its tenants, quotas and chains
    /// [default: ./wellhead.yaml or /etc/wellhead/wellhead.yaml, without --file]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The file of keys, in the place of the config's; alone it needs no config
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Arguments of `wellhead key create`.
#[derive(Debug, Args)]
#[command(after_help = "\
The key is printed this once: the file has a hash of it. A running wellhead that reads the file
takes it within 2 s.

Examples:
  wellhead key create --file keys.jsonl --tenant acme
      no config is needed; `wellhead serve http://geth:8545 --keys keys.jsonl` accepts the key
  wellhead key create -c wellhead.yaml --tenant acme --quota pro --expires 90d --deny 'debug_*'
      into the file that `access.keys.file` names, with a limit and an end
  wellhead key create -c wellhead.yaml --tenant acme --yaml
      for `access.keys.list`, without a file")]
pub struct CreateKey {
    /// Where the keys are.
    #[command(flatten)]
    pub place: KeyPlaceArguments,
    /// The tenant that it belongs to
    #[arg(long, value_name = "NAME")]
    pub tenant: String,
    /// A quota of its own [default: the `key_quota` of its tenant]
    #[arg(long, value_name = "NAME")]
    pub quota: Option<String>,
    /// A line for people
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// How long it is valid: `90d`, `12h` [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub expires: Option<Duration>,
    /// The chains that it may call, by their names in the config [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub chains: Vec<String>,
    /// The methods that it may call, such as 'eth_*' [default: all]
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', num_args = 1..)]
    pub methods: Vec<String>,
    /// Methods that it may not call
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', num_args = 1..)]
    pub deny: Vec<String>,
    /// The web pages that may use it, such as `https://app.example` [default: all, and programs]
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', num_args = 1..)]
    pub origins: Vec<String>,
    /// The networks from which it may be used: 10.0.0.0/8 [default: all]
    #[arg(long, value_name = "CIDR", value_delimiter = ',', num_args = 1..)]
    pub networks: Vec<String>,
    /// The first word of the key [default: the config's, or `live`]
    #[arg(long, value_name = "WORD")]
    pub env: Option<String>,
    /// Print the item for `access.keys.list` instead of writing a file
    #[arg(long, conflicts_with_all = ["file", "json"])]
    pub yaml: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wellhead key list`.
#[derive(Debug, Args)]
pub struct ListKeys {
    /// Where the keys are.
    #[command(flatten)]
    pub place: KeyPlaceArguments,
    /// Only the keys of this tenant
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wellhead key show`.
#[derive(Debug, Args)]
pub struct ShowKey {
    /// The id: the third part of the key, `wh_live_ID_...`
    #[arg(value_name = "ID")]
    pub id: String,
    /// Where the keys are.
    #[command(flatten)]
    pub place: KeyPlaceArguments,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wellhead key revoke`.
#[derive(Debug, Args)]
#[command(after_help = "\
A running wellhead that reads the file refuses the key within 2 s. The record stays, so that its id
is not used again.")]
pub struct RevokeKey {
    /// The id: the third part of the key, `wh_live_ID_...`
    #[arg(value_name = "ID")]
    pub id: String,
    /// Where the keys are.
    #[command(flatten)]
    pub place: KeyPlaceArguments,
}

/// Arguments of `wellhead key rotate`.
#[derive(Debug, Args)]
#[command(after_help = "\
A key has two secrets at most: an old one from the rotation before ends now.

Examples:
  wellhead key rotate 7c9xk2ma --file keys.jsonl --overlap 24h")]
pub struct RotateKey {
    /// The id: the third part of the key, `wh_live_ID_...`
    #[arg(value_name = "ID")]
    pub id: String,
    /// Where the keys are.
    #[command(flatten)]
    pub place: KeyPlaceArguments,
    /// How long the old secret stays valid; `0s` ends it now
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = overlap)]
    pub overlap: Duration,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wellhead key import`.
#[derive(Debug, Args)]
#[command(after_help = "\
The secrets stay what they are, and only their hashes are kept. Keys that people chose can be guessed
from their hashes, so the config needs `access.keys.pepper`, and `access.keys.foreign: true`
to accept them. A key that is already there is left as it is.

Examples:
  wellhead key import proxyd.toml -c wellhead.yaml --tenant acme
  wellhead key import secrets.txt -c wellhead.yaml --tenant acme --format plain
      `secret` or `secret,note` on each line")]
pub struct ImportKeys {
    /// The file of the other proxy
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Where the keys are.
    #[command(flatten)]
    pub place: KeyPlaceArguments,
    /// The tenant that they belong to
    #[arg(long, value_name = "NAME")]
    pub tenant: String,
    /// A quota for each [default: the `key_quota` of the tenant]
    #[arg(long, value_name = "NAME")]
    pub quota: Option<String>,
    /// How the file is written [default: by its name: .toml proxyd, .yaml or .yml nodecore, else plain]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<ImportFormat>,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// The TOML of proxyd: `[authentication]`, `"secret" = "alias"`
    Proxyd,
    /// The YAML of nodecore: `auth.key-management`
    Nodecore,
    /// `secret` or `secret,note` on each line
    Plain,
}
