//! Arguments of `wellhead analyze history` and `merge`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `wellhead analyze history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The directories of the runs, in any order
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// Also write an HTML page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `wellhead analyze merge`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each run keeps its own conclusions. A target is called ID@NOTE, by the --note of its run, or
ID@DIR.

Example:
  wellhead analyze merge runs/frankfurt runs/tokyo --out regions")]
pub struct MergeArgs {
    /// The directories of the runs
    #[arg(value_name = "DIR", required = true, num_args = 2..)]
    pub dirs: Vec<PathBuf>,
    /// The directory for the report; it must not contain one yet
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}
