//! What to look at: one HTML file, and the same as CSV, JSON and Markdown.
//!
//! All of it is made anew from the records and the same each time. The HTML needs no network:
//! styles, scripts and data are in it, and its policy forbids everything else. What came from
//! outside, such as a host or what a GOAWAY says, is escaped where it is written (`html`).
//! The first screen is a card for each target (`card`), what follows is evidence. Charts are
//! described once (`chart`), from calls (`draw`), with the same axes for all targets (`axes`), and
//! drawn as SVG (`svg`): in the page, and as files ([`charts`]).

mod answers;
mod axes;
mod beside;
mod card;
mod chart;
mod compare;
mod describe;
mod draw;
mod files;
mod history;
mod html;
mod merge;
mod readme;
mod scale;
pub mod summary;
mod svg;
mod table;
mod weight;

use crate::conclude::profile;
use crate::conclude::verdict::{ExperimentVerdict, verdicts};
use crate::record::{Record, RunRecord};

pub use compare::{Comparison, Side, compare};
pub use files::charts;
pub use history::{RunHistory, history};
pub use merge::{MERGED_FILES, merge};

/// One file of a report, beside `records.jsonl`, or a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFile {
    /// Its name; of a chart the experiment, the target or `all`, and the title, with `.svg`.
    pub name: String,
    /// What is in it.
    pub text: String,
}

impl ReportFile {
    fn new(name: &str, text: String) -> Self {
        Self { name: name.to_owned(), text }
    }
}

/// All files of the report on a run: `report.html`, `summary.csv`, `summary.md`,
/// `verdicts.json`, `profile.yaml` and `README.md`.
pub fn report(run: &RunRecord, records: &[Record]) -> Vec<ReportFile> {
    let verdicts = verdicts(run, records);
    let mut files = files_of(run, records, &verdicts);
    files.push(ReportFile::new("profile.yaml", profile::profile(run, &verdicts)));
    files.push(ReportFile::new("README.md", readme::readme(run, records)));
    files
}

/// Those of [`MERGED_FILES`].
fn files_of(
    run: &RunRecord,
    records: &[Record],
    verdicts: &[ExperimentVerdict],
) -> Vec<ReportFile> {
    let [page, csv, markdown, list] = MERGED_FILES;
    vec![
        ReportFile::new(page, html::page(run, records, verdicts)),
        ReportFile::new(csv, table::csv(run, records)),
        ReportFile::new(markdown, table::markdown(run, verdicts)),
        ReportFile::new(list, json(verdicts)),
    ]
}

fn json(verdicts: &[ExperimentVerdict]) -> String {
    let mut text = serde_json::to_string_pretty(verdicts)
        .expect("verdicts are plain data with finite numbers and text keys");
    text.push('\n');
    text
}
