//! Two runs beside each other: what each says, and whether the times differ.
//!
//! Targets are matched by id, cells by experiment and factors. How two runs differ is seen by how
//! the medians of their cells scatter. Where a run has one cell of a setting, its blocks stand in
//! for cells; they know nothing of other minutes, so that only a difference above a third is told.
//! All settings are decided together (`stat::ratio`): of a hundred that are equal, five would
//! differ by chance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::html::wrap;
use super::table::{cell, sentences};
use crate::conclude::profile::date;
use crate::conclude::verdict::{
    Confidence, ExperimentVerdict, VerdictFigure, figure, figures, see, verdicts,
};
use crate::record::{Record, RunRecord, trials};
use crate::stat::bootstrap::Interval;
use crate::stat::median;
use crate::stat::ratio::{Ratio, TELLING_OF_BLOCKS, family, tells, tells_beyond};
use crate::text::escaped;

/// Settings that are listed; those that differ go first.
const SETTINGS_MAX: usize = 100;

/// One of two runs.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// What it is called.
    pub name: &'a str,
    /// The run.
    pub run: &'a RunRecord,
    /// Its records.
    pub records: &'a [Record],
}

/// Two runs beside each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Whether a verdict or a time is another one.
    pub differs: bool,
    /// What is worse in the later run, a line each.
    pub worse: Vec<String>,
    /// For a terminal.
    pub text: String,
    /// For a pull request.
    pub markdown: String,
    /// A page of its own.
    pub html: String,
}

struct TimingChange {
    target: String,
    setting: String,
    before_ms: f64,
    after_ms: f64,
    /// `None` where there are too few calls.
    change: Option<Interval>,
    /// A run has one cell of it.
    single: bool,
}

impl TimingChange {
    fn differs(&self) -> bool {
        self.change.as_ref().is_some_and(|change| match self.single {
            true => tells_beyond(change, TELLING_OF_BLOCKS),
            false => tells(change),
        })
    }

    fn is_slower(&self) -> bool {
        self.differs() && self.after_ms > self.before_ms
    }

    /// What may be said of it: a word only where the interval excludes no difference.
    fn words(&self) -> String {
        let percent = |ratio: f64| format!("{:+.0}", (ratio - 1.0) * 100.0);
        let told = self.change.filter(|_| self.differs() || !self.single);
        let Some(Interval { point, low, high }) = told else {
            let ratio = percent(self.after_ms / self.before_ms);
            return format!("{ratio} %, which a single cell cannot distinguish from chance");
        };
        let word = match (self.differs(), point > 1.0) {
            (false, _) => "no difference",
            (true, true) => "slower",
            (true, false) => "faster",
        };
        format!("{word}: {} % ({} to {})", percent(point), percent(low), percent(high))
    }

    /// The cells of its row: what, both times and how they differ.
    fn cells(&self) -> [String; 5] {
        let (target, setting) = (self.target.clone(), self.setting.clone());
        [target, setting, figure(self.before_ms), figure(self.after_ms), self.words()]
    }
}

struct FindingRow {
    experiment: String,
    target: String,
    before: String,
    after: String,
    /// Another finding, or a figure more than 10 % off.
    changed: bool,
    /// The figures that are worse.
    worse: Vec<String>,
}

impl FindingRow {
    /// What it is about, and what both say.
    fn cells(&self) -> [&str; 4] {
        [&self.experiment, &self.target, &self.before, &self.after]
    }
}

/// Compares `after` with `before`.
pub fn compare(before: Side<'_>, after: Side<'_>) -> Comparison {
    if before.records == after.records && before.run.targets == after.run.targets {
        return unchanged(before, after);
    }
    let rows = said(before, after);
    let lines = times(before, after);
    Comparison {
        worse: worse(&rows, &lines),
        differs: rows.iter().any(|row| row.changed) || lines.iter().any(TimingChange::differs),
        text: text(before, after, &rows, &lines),
        markdown: markdown(before, after, &rows, &lines),
        html: html(before, after, &rows, &lines),
    }
}

/// Of a run and itself nothing is listed.
fn unchanged(before: Side<'_>, after: Side<'_>) -> Comparison {
    let told = "Both runs have the same records: nothing differs.";
    let (first, second) = (title(before), title(after));
    let text = format!("before: {first}\nafter:  {second}\n\n{told}\n");
    let html = format!("<header>\n<h1>Two runs compared</h1>\n</header>\n<p>{told}</p>\n");
    Comparison {
        differs: false,
        worse: Vec::new(),
        text: text.chars().filter(|c| *c == '\n' || !c.is_control()).collect(),
        markdown: format!("### Two runs compared\n\n{told}\n"),
        html: wrap("two runs compared", &html, &[]),
    }
}

/// What is slower, and verdicts with a figure on the worse side.
fn worse(rows: &[FindingRow], lines: &[TimingChange]) -> Vec<String> {
    let slower = lines.iter().filter(|line| line.is_slower());
    let slower = slower.map(|line| format!("{} {}: {}", line.target, line.setting, line.words()));
    rows.iter().flat_map(|row| row.worse.iter().cloned()).chain(slower).collect()
}

fn ids(side: Side<'_>) -> Vec<&str> {
    side.run.targets.iter().map(|target| target.id.as_str()).collect()
}

/// What both say, experiment by experiment.
fn said(before: Side<'_>, after: Side<'_>) -> Vec<FindingRow> {
    let told = |side: Side<'_>| verdicts(side.run, side.records);
    let (first, second) = (told(before), told(after));
    let mut names: Vec<&str> = Vec::new();
    for verdict in first.iter().chain(&second) {
        if !names.contains(&verdict.experiment.as_str()) {
            names.push(&verdict.experiment);
        }
    }
    let targets: BTreeSet<&str> = ids(before).into_iter().chain(ids(after)).collect();
    let mut rows = Vec::new();
    for experiment in names {
        for target in &targets {
            let one = own(before, &first, experiment, target);
            let other = own(after, &second, experiment, target);
            let words = |told: &[&ExperimentVerdict]| {
                let sentences = told.iter().map(|verdict| verdict.sentence.as_str());
                sentences.collect::<Vec<_>>().join("; ")
            };
            let pairs = || one.iter().zip(&other);
            let changed = one.len() != other.len()
                || pairs().any(|(one, other)| !one.finding.alike(&other.finding));
            let worse = match changed {
                true => worse_figures(target, &one, &other),
                false => Vec::new(),
            };
            let row = FindingRow {
                experiment: experiment.to_owned(),
                target: (*target).to_owned(),
                before: words(&one),
                after: words(&other),
                changed,
                worse,
            };
            if !row.before.is_empty() || !row.after.is_empty() {
                rows.push(row);
            }
        }
    }
    rows.sort_by_key(|row| !row.changed);
    rows
}

/// What one side says of one experiment at one target, by its id.
fn own<'a>(
    side: Side<'_>,
    told: &'a [ExperimentVerdict],
    experiment: &'a str,
    id: &str,
) -> Vec<&'a ExperimentVerdict> {
    let index = side.run.targets.iter().position(|target| target.id == id);
    index.map(|index| sentences(told, experiment, index).collect()).unwrap_or_default()
}

/// The figures of one side's verdicts that are worse than those of the other's, by more than a
/// tenth.
fn worse_figures(
    target: &str,
    before: &[&ExperimentVerdict],
    after: &[&ExperimentVerdict],
) -> Vec<String> {
    let sure = |verdict: &&&ExperimentVerdict| verdict.confidence > Confidence::Low;
    let mut worse = new_failures(target, before, after);
    for one in before.iter().filter(sure).flat_map(|it| figures(&it.finding)) {
        let same = |it: &VerdictFigure| it.word == one.word && it.unit == one.unit;
        for (other, of) in after.iter().filter(sure).flat_map(|it| {
            figures(&it.finding).into_iter().map(move |figure| (figure, it.experiment.as_str()))
        }) {
            if same(&other) && other.is_worse_than(&one) {
                worse.push(format!("{target} {of}.{}: {one} before, {other} after", one.word));
            }
        }
    }
    worse
}

/// Failures of which the other run, that played the experiment, has no verdict.
fn new_failures(
    target: &str,
    before: &[&ExperimentVerdict],
    after: &[&ExperimentVerdict],
) -> Vec<String> {
    const FAILURES: &str = "failures";
    let shares = |verdict: &&ExperimentVerdict| {
        let found = figures(&verdict.finding).into_iter();
        found.filter(|it| it.word == FAILURES).collect::<Vec<_>>()
    };
    if before.is_empty() || before.iter().any(|verdict| !shares(verdict).is_empty()) {
        return Vec::new();
    }
    let sure = after.iter().filter(|verdict| verdict.confidence > Confidence::Low);
    let told = |verdict: &&ExperimentVerdict| {
        let experiment = verdict.experiment.clone();
        shares(verdict).into_iter().map(move |share| {
            format!("{target} {experiment}.{FAILURES}: none before, {share} after")
        })
    };
    sure.flat_map(told).collect()
}

type TimesBySetting = BTreeMap<(String, String), Vec<Vec<f64>>>;

/// The times of the cells of each setting, in the order in which the calls were sent; cells that
/// conclude nothing are left out.
fn settings(side: Side<'_>) -> TimesBySetting {
    let mut times: TimesBySetting = BTreeMap::new();
    for trial in trials(side.records) {
        let Some(target) = side.run.targets.get(trial.target as usize) else { continue };
        for played in trial.sound().0 {
            let setting = format!("{}: {}", trial.experiment, played.cell.setting());
            let served = played.calls.iter().filter(|call| see::served(call));
            let taken: Vec<f64> = served.map(|call| see::took_ms(call)).collect();
            if median(&taken).is_some_and(|middle| taken.len() > 1 && middle > 0.0) {
                times.entry((target.id.clone(), setting)).or_default().push(taken);
            }
        }
    }
    times
}

fn times(before: Side<'_>, after: Side<'_>) -> Vec<TimingChange> {
    let (first, second) = (settings(before), settings(after));
    let mut lines = Vec::new();
    let mut ratios = Vec::new();
    for ((target, setting), before) in first {
        let key = (target, setting);
        let Some(after) = second.get(&key) else { continue };
        let medians = |cells: &[Vec<f64>]| -> Vec<f64> {
            cells.iter().filter_map(|times| median(times)).collect()
        };
        let (one, other) = (medians(&before), medians(after));
        let Some((before_ms, after_ms)) = median(&one).zip(median(&other)) else { continue };
        let (target, setting) = key;
        let single = before.len() == 1 || after.len() == 1;
        ratios.push(match single {
            true => Ratio::of_blocks(&after.concat(), &before.concat()),
            false => Ratio::of_cells(&other, &one),
        });
        lines.push(TimingChange { target, setting, before_ms, after_ms, change: None, single });
    }
    let mut intervals = family(&ratios.iter().copied().flatten().collect::<Vec<_>>()).into_iter();
    for (line, ratio) in lines.iter_mut().zip(ratios) {
        line.change = ratio.and_then(|_| intervals.next());
    }
    lines.sort_by_key(|line| (!line.differs(), line.single));
    lines
}

/// How many settings differ, of how many, and how many cannot be told.
fn counted(lines: &[TimingChange], how: &str) -> String {
    let differ = lines.iter().filter(|line| line.differs()).count();
    let single = lines.iter().filter(|line| line.single).count();
    let mut out = format!("{differ} of {} settings differ in time ({how})", lines.len());
    if single > 0 {
        let _ = write!(
            out,
            "; {single} were measured only once in a run, which shows no difference below a third"
        );
    }
    out
}

/// What is not listed.
fn unlisted(lines: &[TimingChange]) -> Option<String> {
    let more = lines.len().saturating_sub(SETTINGS_MAX);
    (more > 0).then(|| format!("{more} more settings are not listed; none of them differs more"))
}

fn title(side: Side<'_>) -> String {
    format!("{} ({} UTC)", side.name, date(side.run.started_unix))
}

fn text(before: Side<'_>, after: Side<'_>, rows: &[FindingRow], lines: &[TimingChange]) -> String {
    let mut out = format!("before: {}\nafter:  {}\n", title(before), title(after));
    let changed = rows.iter().filter(|row| row.changed).count();
    let _ = writeln!(out, "\n{changed} of {} verdicts changed", rows.len());
    for row in rows {
        let mark = if row.changed { "changed" } else { "same" };
        let _ = writeln!(out, "  {mark} {} {}", row.experiment, row.target);
        let told = |words: &str| if words.is_empty() { "-".to_owned() } else { words.to_owned() };
        if row.changed {
            let _ = writeln!(out, "    before: {}", told(&row.before));
            let _ = writeln!(out, "    after:  {}", told(&row.after));
        } else {
            let _ = writeln!(out, "    {}", told(&row.after));
        }
    }
    let _ = writeln!(out, "\n{}", counted(lines, "medians of cells, tested together"));
    for line in lines.iter().take(SETTINGS_MAX) {
        let [target, setting, before, after, words] = line.cells();
        let _ = writeln!(out, "  {target} {setting}: {before} ms, {after} ms, {words}");
    }
    if let Some(more) = unlisted(lines) {
        let _ = writeln!(out, "  {more}");
    }
    // What came from outside cannot move a cursor.
    out.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

fn markdown(
    before: Side<'_>,
    after: Side<'_>,
    rows: &[FindingRow],
    lines: &[TimingChange],
) -> String {
    let (first, second) = (cell(&title(before)), cell(&title(after)));
    let mut out =
        format!("### Two runs compared\n\n| | | {first} | {second} | |\n|---|---|---|---|---|\n");
    for row in rows {
        let changed = if row.changed { "changed" } else { "" };
        let cells = row.cells().map(cell).join(" | ");
        let _ = writeln!(out, "| {cells} | {changed} |");
    }
    let differ = lines.iter().filter(|line| line.differs()).count();
    let _ = writeln!(out, "\n{}.", counted(lines, "medians of cells, tested together"));
    if differ > 0 {
        out.push_str("\n| | | before, ms | after, ms | change |\n|---|---|---|---|---|\n");
    }
    for line in lines.iter().filter(|line| line.differs()).take(SETTINGS_MAX) {
        let _ = writeln!(out, "| {} |", line.cells().map(|it| cell(&it)).join(" | "));
    }
    out
}

fn html(before: Side<'_>, after: Side<'_>, rows: &[FindingRow], lines: &[TimingChange]) -> String {
    let (first, second) = (escaped(&title(before)), escaped(&title(after)));
    let mut out = format!(
        "<header>\n<h1>Two runs compared</h1>\n<p class=\"facts\">{first} and {second}</p>\n\
         <button id=\"theme\" type=\"button\">light or dark</button>\n</header>\n\
         <section><div class=\"wide\"><table class=\"overview plain\"><thead><tr><th></th><th></th>\
         <th>{first}</th><th>{second}</th></tr></thead><tbody>\n"
    );
    for row in rows {
        let changed = if row.changed { " class=\"changed\"" } else { "" };
        let [experiment, others @ ..] = row.cells().map(escaped);
        let others = others.join("</td><td>");
        let _ = writeln!(out, "<tr{changed}><th>{experiment}</th><td>{others}</td></tr>");
    }
    out.push_str(
        "</tbody></table></div></section>\n<section><h2>times</h2>\n<p class=\"question\">Medians \
         of the cell medians. A change is marked if its interval excludes zero, corrected over all \
         settings; for a setting with a single cell in a run, only if it exceeds a third.</p>\n\
         <div class=\"wide\"><table class=\"overview plain\"><thead><tr><th>target</th>\
         <th>setting</th><th>before, ms</th>\
         <th>after, ms</th><th>change</th></tr></thead><tbody>\n",
    );
    for line in lines.iter().take(SETTINGS_MAX) {
        let changed = if line.differs() { " class=\"changed\"" } else { "" };
        let [target, setting, figures @ ..] = line.cells().map(|it| escaped(&it));
        let figures = figures.join("</td><td class=\"n\">");
        let _ = writeln!(
            out,
            "<tr{changed}><td>{target}</td><td>{setting}</td><td class=\"n\">{figures}</td></tr>"
        );
    }
    out.push_str("</tbody></table></div>");
    if let Some(more) = unlisted(lines) {
        let _ = write!(out, "<p>{more}</p>");
    }
    out.push_str("</section>\n");
    wrap("two runs compared", &out, &[])
}
