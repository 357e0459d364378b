//! The page `docs/metrics.md`: every family that `/metrics` tells.
//!
//! Name, type and help are read from the text of an idle wellhead; labels and series come from the
//! tables beside the code, which a test compares with that text.

use std::fmt::Write as _;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::encoding::text::encode;
use wellhead_server::Server;
use wellhead_telemetry::family::{FamilyFacts, LabelFacts, LabelValues};
use wellhead_telemetry::histogram::BUCKETS_SECONDS;

use super::{MetricSources, facts, registry};
use crate::assemble::{Assembly, Recorders};
use crate::config::{self, Overrides};
use crate::heartbeat::Heartbeats;
use crate::usage::{Usage, UsageSettings};

const CONFIG: &str = "chains: { a: { id: 1, upstreams: [{ id: u, url: \"http://a\" }] } }";

/// The buckets of a histogram with the unbounded one, its sum and its count.
const HISTOGRAM_SERIES: usize = BUCKETS_SECONDS.len() + 3;
/// A label of more families is not told with all of them.
const FAMILIES_NAMED: usize = 6;

const INTRO: &str = "# Metrics

<!-- Generated from crates/app/src/metrics and crates/proxy/src/metrics by `cargo xtask docs`. Do not edit. -->

`/metrics` of the admin listener has the families below, in the OpenMetrics format. What to do with them is in
`deploy`: [alerts](operation.md#what-to-do-at-each-alert) in `deploy/prometheus/rules.yaml` and dashboards in
`deploy/grafana`.

- Names, types and labels are an interface: a change of one is in CHANGELOG.md.
- The head of each family is always there. A series with labels besides `chain` and `upstream`, and a histogram, mostly
  appears with its first count, so that a thousand upstreams without traffic do not cost megabytes at each scrape.
- A counter's series have the suffix `_total`, as in the table. A histogram's have `_bucket`, `_sum` and `_count`.
- `wellhead_call_duration_seconds_bucket` has exemplars: for each bucket the id (`trace_id`) of the newest
  [trace](traces.md) that was kept, for a client that names `application/openmetrics-text` in `Accept`, as Prometheus
  does. Prometheus keeps them with `--enable-feature=exemplar-storage`. A call whose trace is not kept costs nothing.
- No label holds what a client chose: methods outside of the table are `*`, tenants and keys come from your settings.

";

/// One family of the text.
#[derive(Debug)]
struct ExposedFamily {
    name: String,
    kind: String,
    help: String,
}

/// The whole page.
///
/// # Panics
/// When a family has no facts: a test fails first.
pub fn page() -> String {
    let mut page = INTRO.to_owned();
    page.push_str("| name | type | labels | meaning | series |\n|---|---|---|---|---|\n");
    let families = exposed();
    for family in &families {
        let suffix = if family.kind == "counter" { "_total" } else { "" };
        let facts = facts_of(&family.name).expect("each family has facts");
        let labels: Vec<_> = facts.labels.iter().map(|it| format!("`{}`", it.name)).collect();
        let (name, kind, help) = (&family.name, &family.kind, &family.help);
        let labels = labels.join(", ");
        let series = match (&**kind, facts.series) {
            ("histogram", "1") => HISTOGRAM_SERIES.to_string(),
            ("histogram", series) => format!("{series} × {HISTOGRAM_SERIES}"),
            (_, series) => series.to_owned(),
        };
        let _ = writeln!(page, "| `{name}{suffix}` | {kind} | {labels} | {help} | {series} |");
    }
    page.push_str("\n## Labels\n\n| label | of | values |\n|---|---|---|\n");
    for row in label_rows(&families) {
        let _ = writeln!(page, "| `{}` | {} | {} |", row.name, row.families.join(", "), row.values);
    }
    page
}

/// Labels of one name with the same values.
struct LabelRow {
    name: &'static str,
    values: String,
    families: Vec<String>,
}

fn label_rows(families: &[ExposedFamily]) -> Vec<LabelRow> {
    let mut rows: Vec<LabelRow> = Vec::new();
    for family in families {
        for label in facts_of(&family.name).map(|it| it.labels).unwrap_or_default() {
            let (values, name) = (values(label), format!("`{}`", family.name));
            match rows.iter_mut().find(|row| row.name == label.name && row.values == values) {
                Some(row) => row.families.push(name),
                None => rows.push(LabelRow { name: label.name, values, families: vec![name] }),
            }
        }
    }
    rows.sort_by_key(|row| row.name);
    // A label of most families is known by its name.
    for row in rows.iter_mut().filter(|row| row.families.len() > FAMILIES_NAMED) {
        row.families = vec![format!("{} families", row.families.len())];
    }
    rows
}

fn values(label: &LabelFacts) -> String {
    match label.values {
        LabelValues::From(words) => words.to_owned(),
        LabelValues::Words(all) => {
            all().iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
    }
}

fn facts() -> impl Iterator<Item = &'static FamilyFacts> {
    wellhead_proxy::FAMILIES.iter().chain(facts::FAMILIES)
}

fn facts_of(name: &str) -> Option<&'static FamilyFacts> {
    facts().find(|facts| facts.name == name)
}

/// The families of an idle wellhead, in the order of the text.
fn exposed() -> Vec<ExposedFamily> {
    let text = idle_text();
    let lines = text.lines().filter_map(|line| line.strip_prefix("# "));
    let mut families: Vec<ExposedFamily> = Vec::new();
    for (word, name, rest) in lines.filter_map(|line| {
        let (word, rest) = line.split_once(' ')?;
        let (name, rest) = rest.split_once(' ')?;
        Some((word, name, rest))
    }) {
        match word {
            "HELP" => families.push(ExposedFamily {
                name: name.to_owned(),
                kind: String::new(),
                help: rest.to_owned(),
            }),
            "TYPE" => {
                if let Some(family) = families.last_mut().filter(|it| it.name == name) {
                    rest.clone_into(&mut family.kind);
                }
            }
            _ => {}
        }
    }
    families
}

/// What there is to measure while nothing is listened on.
pub(crate) fn idle_sources(parts: &Assembly) -> MetricSources {
    let usage = Usage::new(&UsageSettings::of(&parts.settings), Arc::new(|| 0));
    MetricSources {
        proxy: parts.proxy.replaceable(),
        connections: Arc::new(ArcSwap::from_pointee(parts.connections())),
        server: Server::new(wellhead_server::Settings::default()),
        tls: Vec::new(),
        state: None,
        usage: usage.expect("usage in memory needs nothing"),
        beats: Arc::new(Heartbeats::new(1, wellhead_dispatch::now())),
        record: crate::reload::ReloadRecord::new(0),
        studies: crate::study::StudyRecord::default(),
    }
}

fn idle_text() -> String {
    let settings = config::parse("wellhead.yaml", CONFIG, &|_| None, Overrides::default());
    let settings = Arc::new(settings.expect("the config above is good").settings);
    let parts = Assembly::new(&settings, Recorders::default(), wellhead_dispatch::now())
        .expect("a plain upstream can be reached");
    let mut text = String::new();
    encode(&mut text, &registry(&parts, idle_sources(&parts)))
        .expect("writing to a String does not fail");
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_family_has_facts_and_all_facts_a_family() {
        let exposed: Vec<String> = exposed().into_iter().map(|family| family.name).collect();
        let distinct: BTreeSet<&str> = exposed.iter().map(String::as_str).collect();
        assert_eq!(distinct.len(), exposed.len(), "a family is told twice");
        let known: BTreeSet<&str> = facts().map(|facts| facts.name).collect();
        assert_eq!(known.len(), facts().count(), "facts are given twice");
        assert_eq!(distinct, known);
    }

    #[test]
    fn families_are_documented_and_named_by_the_conventions() {
        for ExposedFamily { name, kind, help } in exposed() {
            assert!(help.len() > 4, "{name} says nothing");
            assert!(name.starts_with("wellhead_") || name.starts_with("process_"), "{name}");
            assert!(["counter", "gauge", "histogram"].contains(&&*kind), "{name} is a {kind}");
            assert!(!help.contains('|'), "{name}: a table cannot hold `{help}`");
        }
    }

    /// Of the series that are there before a call.
    #[test]
    fn series_have_the_labels_of_the_facts() {
        let text = idle_text();
        let mut compared = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, rest) = line.split_once(['{', ' ']).expect("a name and a value");
            let name = ["", "_total", "_bucket", "_sum", "_count"]
                .iter()
                .filter_map(|suffix| name.strip_suffix(suffix))
                .find(|name| facts_of(name).is_some());
            let name = name.unwrap_or_else(|| panic!("{line}"));
            let labels = if line.contains('{') { rest } else { "" };
            let labels = labels.split("\",").filter_map(|pair| Some(pair.split_once("=\"")?.0));
            let labels: Vec<&str> = labels.filter(|label| *label != "le").collect();
            let known: Vec<&str> =
                facts_of(name).map(|it| it.labels.iter().map(|it| it.name).collect()).unwrap();
            assert_eq!(labels, known, "{line}");
            compared += 1;
        }
        assert!(compared > 50, "{compared}");
    }
}
