//! Arguments that let a pipeline decide by a run: conditions, a baseline, files for machines.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use wellhead_analyze::gate::GateCondition;

/// The exit codes, for the help of each command that has them.
pub(super) const EXIT_CODES: &str = "\
Conditions: --fail-if '[EXPERIMENT.]MEASURE COMPARISON NUMBER UNIT', or
--fail-if 'verdict EXPERIMENT.FIGURE COMPARISON NUMBER UNIT':
  p50, p90, p95, p99, max   latency of served calls: us, ms, s, min
  errors, throttled         share of calls that failed, or were throttled: %
  throughput                served calls per second in the best cell: /s, /min
  calls                     calls made
  'p95 > 200ms'  'load.errors > 1%'  'verdict rate.limit < 100/s'  'verdict streams.cap < 100'

Exit codes:
    0  passed: no condition holds, and the run is not worse than its baseline
    1  the request cannot be carried out, or a run cannot be read
    2  the command line is invalid, the system failed, or no target answered
    3  compare: something differs, and nothing is worse
    4  a condition holds at one target or more
    5  inconclusive: a figure that a condition needs was not measured
    6  worse than the baseline, beyond the interval
  130  interrupted";

/// Conditions, and where their outcome is written.
#[derive(Debug, Clone, Default, Args)]
pub struct ConditionArgs {
    /// Exit with code 4 if this holds at any target, such as 'p95 > 200ms'; can be repeated
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<GateCondition>,
    /// Write one JSON document: figures, verdicts, conditions, outcome. To standard output
    /// without a FILE or with `-`; the other lines then go to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Write JUnit XML: a suite for each target, a test case for each condition
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

impl ConditionArgs {
    /// Whether standard output is the JSON document's.
    pub fn takes_stdout(&self) -> bool {
        self.json.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }
}

/// Conditions, a run to compare with, and how the records are kept.
#[derive(Debug, Clone, Default, Args)]
pub struct GateArgs {
    /// Conditions.
    #[command(flatten)]
    pub conditions: ConditionArgs,
    /// Compare with the run in DIR, and exit with code 6 if a latency or a verdict is worse
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    /// Compress the records to records.jsonl.gz when the run is over
    #[arg(long)]
    pub gzip: bool,
}

/// Arguments of `wellhead analyze schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Of what
    #[arg(value_name = "WHAT", default_value = "document")]
    pub what: SchemaChoice,
}

/// Which schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaChoice {
    /// What --json writes
    Document,
    /// One line of records.jsonl
    Records,
    /// run.json
    Run,
}
