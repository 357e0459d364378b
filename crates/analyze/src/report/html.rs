//! The page: what is said in HTML, what is drawn as JSON for the script.
//!
//! Whatever is written into the page goes through [`escaped`], or through [`embedded`] where it is
//! JSON. The script only ever sets text, never HTML.

use std::fmt::Write as _;

use serde::Serialize;

use super::chart::Chart;
use super::draw::ExperimentCharts;
use super::table::sentences;
use super::{answers, beside, card, draw, svg};
use crate::conclude::profile::date;
use crate::conclude::verdict::{Confidence, ExperimentVerdict};
use crate::experiment::question;
use crate::record::{CellDoubt, Record, RunRecord, Trial, WireEvent, trials};
use crate::text::{escaped, is_bidi_control};

const STYLE: &str = include_str!("../../assets/report.css");
const SCRIPT: &str = include_str!("../../assets/report.js");

/// Things that connections did that are listed.
const EXAMPLES_MAX: usize = 20;

/// The whole page.
pub(super) fn page(run: &RunRecord, records: &[Record], verdicts: &[ExperimentVerdict]) -> String {
    let trials = trials(records);
    let mut charts: Vec<Chart> = Vec::new();
    let mut body = String::new();
    header(&mut body, run, records);
    card::cards(&mut body, run, records, &trials, verdicts);
    overview(&mut body, run, verdicts);
    for experiment in experiments(run, verdicts) {
        section(&mut body, run, &experiment, &trials, verdicts, &mut charts);
    }
    wrap("what a provider really delivers", &body, &charts)
}

/// The page around a body.
pub(super) fn wrap(title: &str, body: &str, charts: &[Chart]) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n");
    let _ = write!(
        out,
        "<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>wellhead: {}</title>\n<style id=\"chart-style\">\n{}</style>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n",
        escaped(title),
        svg::STYLE,
    );
    if !charts.is_empty() {
        let _ = writeln!(
            out,
            "<script type=\"application/json\" id=\"charts\">{}</script>",
            embedded(&charts),
        );
    }
    let _ = write!(out, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    out
}

/// Those of the run, in its order, then any others that verdicts name.
pub(super) fn experiments(run: &RunRecord, verdicts: &[ExperimentVerdict]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let known = run
        .experiments
        .iter()
        .filter(|name| verdicts.iter().any(|verdict| verdict.experiment == **name));
    for name in known.chain(verdicts.iter().map(|verdict| &verdict.experiment)) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn header(out: &mut String, run: &RunRecord, records: &[Record]) {
    let (mut calls, mut cells) = (0_u64, 0_u64);
    let (mut behind, mut full) = (0_u64, 0_u64);
    for record in records {
        match record {
            Record::Call(_) => calls += 1,
            Record::Cell(cell) => {
                cells += 1;
                behind += u64::from(cell.load.doubted() == Some(CellDoubt::Behind));
                full += u64::from(cell.load.doubted() == Some(CellDoubt::Full));
            }
            Record::Rollup(rollup) => calls += rollup.calls,
            Record::Wire(_) => {}
        }
    }
    let note = run.machine.note.as_deref().map(|note| format!(", {note}")).unwrap_or_default();
    let _ = write!(
        out,
        "<header>\n<h1>What a provider really delivers</h1>\n\
         <p class=\"facts\">{} UTC · wellhead {} · {}, {} cores{} · {calls} calls in {cells} cells · seed {}</p>\n\
         <button id=\"theme\" type=\"button\">light or dark</button>\n</header>\n",
        date(run.started_unix),
        escaped(&run.wellhead),
        escaped(&run.machine.os),
        run.machine.cores,
        escaped(&note),
        run.seed,
    );
    if behind > 0 {
        let _ = writeln!(
            out,
            "<p class=\"warning\">The generator fell behind in {behind} of {cells} cells. \
             Their latencies are not used: run it on a less busy machine.</p>"
        );
    }
    if full > 0 {
        let _ = writeln!(
            out,
            "<p class=\"warning\">The analyser's connections were all busy in {full} of \
             {cells} cells, which are not used: lower the rate, or allow more connections.</p>"
        );
    }
}

/// The targets side by side.
fn overview(out: &mut String, run: &RunRecord, verdicts: &[ExperimentVerdict]) {
    out.push_str(
        "<section id=\"overview\">\n<h2>All verdicts, side by side</h2>\n<div class=\"wide\"><table class=\"overview\">\n\
         <thead><tr><th></th>",
    );
    for target in &run.targets {
        let provider = target.provider.as_deref().unwrap_or("unknown provider");
        let chain = target.chain_id.map(|id| format!(", chain {id}")).unwrap_or_default();
        let _ = write!(
            out,
            "<th>{}<small>{}<br>{}{chain}</small></th>",
            escaped(&target.id),
            escaped(&target.host),
            escaped(provider),
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for experiment in experiments(run, verdicts) {
        let name = escaped(&experiment);
        let _ = write!(out, "<tr><th><a href=\"#{name}\">{name}</a></th>");
        for target in 0..run.targets.len() {
            out.push_str("<td>");
            for verdict in sentences(verdicts, &experiment, target) {
                let _ = write!(
                    out,
                    "<p class=\"{}\">{}</p>",
                    tone(verdict.confidence),
                    escaped(&verdict.sentence)
                );
            }
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n</section>\n");
}

fn tone(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::None => "open",
        Confidence::Low | Confidence::Medium | Confidence::High => "told",
    }
}

fn section(
    out: &mut String,
    run: &RunRecord,
    experiment: &str,
    trials: &[Trial<'_>],
    verdicts: &[ExperimentVerdict],
    charts: &mut Vec<Chart>,
) {
    let name = escaped(experiment);
    let _ = write!(
        out,
        "<section id=\"{name}\">\n<h2>{name}</h2>\n<p class=\"question\">{}</p>\n",
        question(experiment)
    );
    let ExperimentCharts { together, of_targets } =
        draw::of_experiment(run, experiment, trials, verdicts);
    if !together.is_empty() {
        out.push_str("<div class=\"cards\"><article class=\"card all\">\n<div class=\"plots\">\n");
        place(out, together, charts);
        out.push_str("</div>\n</article></div>\n");
    }
    out.push_str("<div class=\"cards\">\n");
    for (index, own_charts) in of_targets.into_iter().enumerate() {
        let own: Vec<&ExperimentVerdict> = sentences(verdicts, experiment, index).collect();
        if own.is_empty() {
            continue;
        }
        let id = escaped(&run.targets[index].id);
        let _ = writeln!(out, "<article class=\"card\">\n<h3>{id}</h3>");
        own.iter().for_each(|verdict| say(out, verdict));
        place_own(out, own_charts, charts);
        let of_target = trials
            .iter()
            .find(|trial| trial.experiment == experiment && trial.target as usize == index);
        if let Some(trial) = of_target {
            wires(out, trial);
            if experiment == "agree" {
                answers::differences(out, run, trial, trials);
            }
        }
        out.push_str("</article>\n");
    }
    out.push_str("</div>\n");
    if experiment == "reach" {
        answers::served(out, run, trials);
    }
    beside::table(out, run, experiment, trials);
    out.push_str("</section>\n");
}

/// Facets first: a column for each protocol, a row for each number of connections.
fn place_own(out: &mut String, own: Vec<Chart>, charts: &mut Vec<Chart>) {
    let (facets, others): (Vec<Chart>, Vec<Chart>) =
        own.into_iter().partition(|chart| matches!(chart, Chart::Waterfall(_)));
    for (class, group) in [("facets", facets), ("plots", others)] {
        if !group.is_empty() {
            let _ = writeln!(out, "<div class=\"{class}\">");
            place(out, group, charts);
            out.push_str("</div>\n");
        }
    }
}

/// The sentence, how sure it is, and behind a click what it rests on.
fn say(out: &mut String, verdict: &ExperimentVerdict) {
    let _ = write!(
        out,
        "<div class=\"verdict {}\"><p>{}</p>",
        tone(verdict.confidence),
        escaped(&verdict.sentence)
    );
    if !verdict.evidence.is_empty() {
        let _ =
            write!(out, "<details><summary>evidence{}</summary><ul>", verdict.confidence_note());
        for line in &verdict.evidence {
            let _ = write!(out, "<li>{}</li>", escaped(line));
        }
        out.push_str("</ul></details>");
    }
    out.push_str("</div>\n");
}

/// Draws each chart; the script adds its table and files.
pub(super) fn place(out: &mut String, new: Vec<Chart>, charts: &mut Vec<Chart>) {
    for chart in new {
        let class = if matches!(chart, Chart::Matrix(_)) { " class=\"matrix\"" } else { "" };
        let n = charts.len();
        let _ = writeln!(
            out,
            "<figure{class} data-chart=\"{n}\"><figcaption>{}</figcaption>\
             <div class=\"canvas\">{}</div></figure>",
            escaped(chart.title()),
            svg::inline(&chart, &format!("chart-{n}")),
        );
        charts.push(chart);
    }
}

/// How connections ended, counted.
fn wires(out: &mut String, trial: &Trial<'_>) {
    let mut told: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    for wire in trial.played.iter().flat_map(|played| &played.wires) {
        let text = match &wire.event {
            WireEvent::Goaway { code, last_stream, debug } => {
                format!("GOAWAY, code {code}, last stream {last_stream}: {debug}")
            }
            WireEvent::Reset { code, .. } => format!("stream reset, code {code}"),
            WireEvent::Closed { reason, .. } => format!("closed: {reason}"),
            WireEvent::Settings { max_streams, others } => {
                let streams = max_streams.map_or("no limit on streams".to_owned(), |streams| {
                    format!("{streams} concurrent streams")
                });
                let others = others.iter().map(|(name, value)| format!(", {name} {value}"));
                format!("settings: {streams}{}", others.collect::<String>())
            }
            WireEvent::Opened { protocol, alpn: Some(_), .. } => {
                format!("opened: {protocol}, agreed on by ALPN")
            }
            WireEvent::Opened { protocol, alpn: None, .. } => format!("opened: {protocol}"),
        };
        *told.entry(text).or_default() += 1;
    }
    if told.is_empty() {
        return;
    }
    out.push_str("<details><summary>connection events</summary><table><tbody>");
    for (text, count) in told.iter().take(EXAMPLES_MAX) {
        let _ = write!(out, "<tr><td>{}</td><td class=\"n\">{count}</td></tr>", escaped(text));
    }
    out.push_str("</tbody></table></details>\n");
}

/// JSON that cannot end the script that it stands in.
fn embedded(value: &impl Serialize) -> String {
    serde_json::to_string(value)
        .expect("charts are plain data with text keys")
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace(is_bidi_control, "\u{fffd}")
}
