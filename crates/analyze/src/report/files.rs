//! Each chart of a run as an SVG file, with a name that says what it shows.

use std::collections::BTreeSet;

use super::chart::Chart;
use super::draw::{self, ExperimentCharts};
use super::html::experiments;
use super::{ReportFile, svg};
use crate::conclude::verdict::verdicts;
use crate::record::{Record, RunRecord, trials};

/// Letters of a part of a name.
const LETTERS_MAX: usize = 60;

/// All charts of a run, in the order of its report: whole SVG documents in the light colours, which need no other file.
pub fn charts(run: &RunRecord, records: &[Record]) -> Vec<ReportFile> {
    let (trials, verdicts) = (trials(records), verdicts(run, records));
    let mut names = BTreeSet::new();
    let mut files = Vec::new();
    for experiment in experiments(run, &verdicts) {
        let ExperimentCharts { together, of_targets } =
            draw::of_experiment(run, &experiment, &trials, &verdicts);
        let mut add = |target: &str, charts: &[Chart]| {
            for chart in charts {
                let name = free(&mut names, &[&experiment, target, chart.title()]);
                let text = svg::file(chart, &format!("{experiment}, {target}"));
                files.push(ReportFile { name, text });
            }
        };
        add("all", &together);
        for (target, charts) in run.targets.iter().zip(&of_targets) {
            add(&target.id, charts);
        }
    }
    files
}

/// A name that no other file has. What comes from outside is letters, digits and `-` in it.
fn free(taken: &mut BTreeSet<String>, parts: &[&str]) -> String {
    let plain = |text: &str| {
        let letters = text.chars().take(LETTERS_MAX);
        let letters = letters.map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' });
        let text: String = letters.collect::<String>().to_ascii_lowercase();
        text.split_whitespace().collect::<Vec<_>>().join("-")
    };
    let name = parts.iter().map(|part| plain(part)).collect::<Vec<_>>().join("_");
    let numbered = (2_u64..).map(|n| format!("{name}-{n}.svg"));
    let mut names = std::iter::once(format!("{name}.svg")).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}
