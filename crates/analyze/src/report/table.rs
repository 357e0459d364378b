//! The figures of each cell as CSV, and the verdicts as Markdown for a pull request.

use std::fmt::Write as _;

use crate::conclude::profile::date;
use crate::conclude::verdict::{Confidence, ExperimentVerdict, see};
use crate::record::{Record, RunRecord, trials};
use crate::stat::quantile_of_sorted;
use crate::text::is_bidi_control;

/// The verdicts of one experiment at one target.
pub(super) fn sentences<'a>(
    verdicts: &'a [ExperimentVerdict],
    experiment: &'a str,
    target: usize,
) -> impl Iterator<Item = &'a ExperimentVerdict> {
    verdicts.iter().filter(move |verdict| {
        verdict.experiment == experiment && verdict.target as usize == target
    })
}

/// One line a cell, in the order of records, and one for each part of a cell that is rolled up. Times are milliseconds from the intended start, of
/// calls that were served; empty where none was.
pub(super) fn csv(run: &RunRecord, records: &[Record]) -> String {
    let mut out = String::from(
        "experiment,target,cell,repeat,factors,calls,served,throttled,failed,\
         calls_per_second,p50_ms,p95_ms,p99_ms,late_p99_ms,cpu,saturated\n",
    );
    for trial in trials(records) {
        let target = run.targets.get(trial.target as usize).map_or("", |target| &target.id);
        for played in &trial.played {
            let cell = played.cell;
            let factors: Vec<String> =
                cell.factors.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let served = played.calls.iter().filter(|call| see::served(call)).count();
            let throttled = played.calls.iter().filter(|call| see::throttled(call)).count();
            let times = played.times();
            let took = |q: f64| number(quantile_of_sorted(&times, q));
            let _ = writeln!(
                out,
                "{},{},{},{},{},{},{served},{throttled},{},{},{},{},{},{:.3},{:.3},{}",
                field(trial.experiment),
                field(target),
                cell.cell,
                cell.repeat,
                field(&factors.join(" ")),
                played.calls.len(),
                played.calls.len() - served - throttled,
                number(played.throughput()),
                took(0.5),
                took(0.95),
                took(0.99),
                cell.load.late_p99 as f64 / 1_000.0,
                cell.load.cpu,
                cell.load.saturated,
            );
        }
        for rollup in &trial.rollups {
            let span = (rollup.ended_at - rollup.begun_at) as f64 / 1e6;
            let took = |us: Option<u64>| number(us.map(|us| us as f64 / 1_000.0));
            let throttled = rollup.unserved.get("throttled").copied().unwrap_or(0);
            let _ = writeln!(
                out,
                "{},{},{},0,{},{},{},{throttled},{},{},{},{},{},{:.3},{:.3},{}",
                field(trial.experiment),
                field(target),
                rollup.cell,
                field(&format!("from_s={:.0}", rollup.begun_at as f64 / 1e6)),
                rollup.calls,
                rollup.served,
                rollup.calls - rollup.served - throttled,
                number((span > 0.0).then(|| rollup.served as f64 / span)),
                took(rollup.p50),
                took(rollup.p95),
                took(rollup.p99),
                rollup.load.late_p99 as f64 / 1_000.0,
                rollup.load.cpu,
                rollup.load.saturated,
            );
        }
    }
    out
}

fn number(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.3}")).unwrap_or_default()
}

/// One field as RFC 4180 has it. What a spreadsheet would take for a formula gets a quote mark
/// before it.
fn field(text: &str) -> String {
    let text: String = text.chars().filter(|letter| !is_bidi_control(*letter)).collect();
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text };
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

/// A table of experiments and targets.
pub(super) fn markdown(run: &RunRecord, verdicts: &[ExperimentVerdict]) -> String {
    let mut out = format!(
        "### What was measured\n\n{} UTC, wellhead {}, seed {}.\n\n| |",
        date(run.started_unix),
        cell(&run.wellhead),
        run.seed
    );
    for target in &run.targets {
        let _ = write!(out, " {} |", cell(&target.id));
    }
    out.push_str("\n|---|");
    out.push_str(&"---|".repeat(run.targets.len()));
    out.push('\n');
    for experiment in &run.experiments {
        let told = |target| {
            let own = sentences(verdicts, experiment, target).map(|verdict| {
                let sure = match verdict.confidence {
                    Confidence::None | Confidence::High => String::new(),
                    Confidence::Low | Confidence::Medium => verdict.confidence_note(),
                };
                format!("{}{sure}", cell(&verdict.sentence))
            });
            own.collect::<Vec<_>>().join("<br>")
        };
        let row: Vec<String> = (0..run.targets.len()).map(told).collect();
        if row.iter().any(|told| !told.is_empty()) {
            let _ = writeln!(out, "| {} | {} |", cell(experiment), row.join(" | "));
        }
    }
    out
}

/// Text within a cell of a Markdown table: what would be markup, a mention or a link is not.
pub(super) fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '@' => out.push_str("&#64;"),
            c if c.is_control() || is_bidi_control(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_neither_formula_nor_turned_around() {
        for (text, expected) in [
            ("rate=10", "rate=10"),
            ("=cmd()", "'=cmd()"),
            ("\u{202e}=cmd()", "'=cmd()"),
            ("a\u{2066}b,\"c\"", "\"ab,\"\"c\"\"\""),
        ] {
            assert_eq!(field(text), expected, "{text}");
        }
    }
}
