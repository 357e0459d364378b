//! The figures of each setting, the targets side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::conclude::verdict::{figure, see};
use crate::record::{CellDoubt, PlayedCell, RunRecord, Trial};
use crate::stat::median;
use crate::text::escaped;

/// Settings that are listed.
const ROWS_MAX: usize = 200;

/// One table for an experiment that repeats its settings in its cells; nothing for others.
pub(super) fn table(out: &mut String, run: &RunRecord, experiment: &str, all: &[Trial<'_>]) {
    if matches!(experiment, "agree" | "fresh" | "reach" | "soak" | "window") {
        return;
    }
    // In the order in which the settings sort, numbers as numbers.
    let mut rows: BTreeMap<Vec<FactorWord<'_>>, Vec<Vec<&PlayedCell<'_>>>> = BTreeMap::new();
    for trial in all.iter().filter(|trial| trial.experiment == experiment) {
        for played in &trial.played {
            let factors = played.cell.factors.iter();
            let setting = factors.map(|(name, value)| FactorWord::of(name, value)).collect();
            let row = rows.entry(setting).or_insert_with(|| vec![Vec::new(); run.targets.len()]);
            if let Some(cells) = row.get_mut(trial.target as usize) {
                cells.push(played);
            }
        }
    }
    if rows.is_empty() {
        return;
    }
    out.push_str(
        "<details class=\"beside\"><summary>all settings, side by side</summary>\
         <div class=\"wide\"><table><thead><tr><th rowspan=\"2\">setting</th>",
    );
    for target in &run.targets {
        let _ = write!(out, "<th colspan=\"4\">{}</th>", escaped(&target.id));
    }
    out.push_str("</tr><tr>");
    for _ in &run.targets {
        out.push_str(
            "<th class=\"n\">calls/s</th><th class=\"n\">half, ms</th>\
             <th class=\"n\">99 %, ms</th><th class=\"n\">failed</th>",
        );
    }
    out.push_str("</tr></thead><tbody>\n");
    for (setting, targets) in rows.iter().take(ROWS_MAX) {
        let words: Vec<String> =
            setting.iter().map(|word| format!("{} {}", word.name, word.value)).collect();
        let _ = write!(out, "<tr><td>{}</td>", escaped(&words.join(", ")));
        for cells in targets {
            figures(out, cells);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>");
    if rows.len() > ROWS_MAX {
        let _ = write!(
            out,
            "<p class=\"note\">The first {ROWS_MAX} of {} settings; all are in summary.csv.</p>",
            rows.len()
        );
    }
    out.push_str("</details>\n");
}

/// Medians over the repeats; cells that conclude nothing are left out.
fn figures(out: &mut String, cells: &[&PlayedCell<'_>]) {
    let sound = || cells.iter().filter(|played| !played.cell.load.saturated);
    if sound().next().is_none() {
        let why = match cells.first().and_then(|played| played.cell.load.doubted()) {
            Some(CellDoubt::Behind) => "fell behind",
            Some(CellDoubt::Full) => "connections full",
            Some(CellDoubt::Lost) => "calls lost",
            None => "",
        };
        let _ = write!(out, "<td class=\"n\">{why}</td><td></td><td></td><td></td>");
        return;
    }
    let middle = |of: &dyn Fn(&PlayedCell<'_>) -> Option<f64>| {
        let values: Vec<f64> = sound().filter_map(|played| of(played)).collect();
        median(&values).map(figure).unwrap_or_default()
    };
    let failed: Vec<f64> =
        sound().map(|played| played.share(|call| !see::served(call)) * 100.0).collect();
    let failed = median(&failed).unwrap_or(0.0);
    let class = if failed > 0.0 { "n bad" } else { "n" };
    let _ = write!(
        out,
        "<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"{class}\">{} %</td>",
        middle(&|played| played.throughput()),
        middle(&|played| played.took(0.5)),
        middle(&|played| played.took(0.99)),
        figure(failed),
    );
}

/// A factor that sorts by its number, where it is one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FactorWord<'a> {
    name: &'a str,
    /// Thousandths.
    number: Option<u64>,
    value: &'a str,
}

impl<'a> FactorWord<'a> {
    fn of(name: &'a str, value: &'a str) -> Self {
        let number = value.parse::<f64>().ok().filter(|number| *number >= 0.0);
        Self { name, number: number.map(|number| (number * 1_000.0) as u64), value }
    }
}
