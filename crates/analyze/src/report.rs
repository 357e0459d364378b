//! What to look at: one HTML file, and the same as CSV, JSON and Markdown.
//!
//! All of it is made anew from the records and the same each time. The HTML needs no network:
//! styles, scripts and data are in it, and its policy forbids everything else. What came from
//! outside, such as a host or what a GOAWAY says, is escaped where it is written (`html`).
//! Charts are drawn by uPlot, kept in `assets`.

mod answers;
mod beside;
mod chart;
mod compare;
mod draw;
mod history;
mod html;
mod merge;
mod readme;
pub mod summary;
mod table;

use crate::conclude::profile;
use crate::conclude::verdict::{ExperimentVerdict, verdicts};
use crate::record::{Record, RunRecord};

pub use compare::{Comparison, Side, compare};
pub use history::{RunHistory, history};
pub use merge::{MERGED_FILES, merge};

/// One file of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFile {
    /// Its name, beside `records.jsonl`.
    pub name: &'static str,
    /// What is in it.
    pub text: String,
}

/// All files of the report on a run: `report.html`, `summary.csv`, `summary.md`,
/// `verdicts.json`, `profile.yaml` and `README.md`.
pub fn report(run: &RunRecord, records: &[Record]) -> Vec<ReportFile> {
    let verdicts = verdicts(run, records);
    vec![
        ReportFile { name: "report.html", text: html::page(run, records, &verdicts) },
        ReportFile { name: "summary.csv", text: table::csv(run, records) },
        ReportFile { name: "summary.md", text: table::markdown(run, &verdicts) },
        ReportFile { name: "verdicts.json", text: json(&verdicts) },
        ReportFile { name: "profile.yaml", text: profile::profile(run, &verdicts) },
        ReportFile { name: "README.md", text: readme::readme(run, records) },
    ]
}

fn json(verdicts: &[ExperimentVerdict]) -> String {
    let mut text = serde_json::to_string_pretty(verdicts)
        .expect("verdicts are plain data with finite numbers and text keys");
    text.push('\n');
    text
}
