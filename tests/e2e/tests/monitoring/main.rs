//! What `deploy/prometheus` and `deploy/grafana` promise: each alert is tested, explained and built from metrics that
//! the binary exports, and alerts and dashboards work with a real Prometheus and Alertmanager.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

mod with_prometheus;

/// A file of the checkout.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// The alerts of `rules.yaml`: name and expression.
fn alerts() -> Vec<(String, String)> {
    let text = text("deploy/prometheus/rules.yaml");
    let rules = text.split("\n      - alert: ").skip(1);
    let alerts = rules.map(|rule| {
        let (name, rest) = rule.split_once('\n').unwrap();
        let (_, expression) = rest.split_once("        expr: ").unwrap();
        // Up to the next key of the rule.
        let lines = expression.lines().enumerate();
        let lines = lines.take_while(|(line, text)| *line == 0 || text.starts_with("          "));
        let lines: Vec<&str> = lines.map(|(_, text)| text.trim()).collect();
        (name.to_owned(), lines.join(" ").trim_start_matches(">- ").to_owned())
    });
    let alerts: Vec<_> = alerts.collect();
    assert!(alerts.len() >= 20, "{alerts:?}");
    alerts
}

/// Name and expression of each query of the dashboards.
fn dashboard_queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for name in ["overview", "upstream", "tenants"] {
        let dashboard: serde_json::Value =
            serde_json::from_str(&text(&format!("deploy/grafana/{name}.json"))).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let title = format!("{name}, {}, {}", panel["title"], target["refId"]);
                queries.push((title, target["expr"].as_str().unwrap().to_owned()));
            }
        }
    }
    assert!(queries.len() >= 40, "{queries:?}");
    queries
}

/// The queries of the section *What to watch* of docs/operation.md.
fn page_queries() -> Vec<(String, String)> {
    let page = text("docs/operation.md");
    let (_, section) = page.split_once("\n## What to watch\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split(" | ").next().unwrap());
    // Between backticks; a cell may have several.
    let queries = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let queries: Vec<_> =
        queries.map(|it| ("docs/operation.md".to_owned(), it.to_owned())).collect();
    assert!(queries.len() >= 12, "{queries:?}");
    queries
}

/// The labels of each metric, by the name of its series, as docs/metrics.md has them.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = text("docs/metrics.md");
    let (table, _) = page.split_once("\n## Labels").unwrap();
    let mut metrics = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let labels = cells[3].split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels: BTreeSet<String> = labels.filter(|label| !label.is_empty()).collect();
        if cells[2] == "histogram" {
            let with_le: BTreeSet<String> =
                labels.iter().cloned().chain(["le".to_owned()]).collect();
            metrics.insert(format!("{name}_bucket"), with_le);
            metrics.insert(format!("{name}_sum"), labels.clone());
            metrics.insert(format!("{name}_count"), labels);
        } else {
            metrics.insert(name.to_owned(), labels);
        }
    }
    assert!(metrics.len() > 80, "{metrics:?}");
    metrics
}

/// A row of the labels of docs/metrics.md that lists all values.
struct ListedValues {
    label: String,
    families: Vec<String>,
    values: BTreeSet<String>,
}

fn listed_values() -> Vec<ListedValues> {
    let page = text("docs/metrics.md");
    let (_, table) = page.split_once("\n## Labels").unwrap();
    let word = |cell: &str| cell.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
    let rows = table.lines().filter(|line| line.starts_with("| `")).filter_map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        Some(ListedValues {
            label: word(cells[1])?,
            families: cells[2].split(", ").map(word).collect::<Option<_>>()?,
            values: cells[3].split(", ").map(word).collect::<Option<_>>()?,
        })
    });
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() > 25, "{}", rows.len());
    rows
}

/// The metrics that an expression names, each with the labels of its selector.
fn metrics_of(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = ["wellhead_", "process_"].iter().filter_map(|it| rest.find(it)).min() {
        rest = &rest[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let selector = after.strip_prefix('{').and_then(|it| it.split_once('}'));
        let selector = selector.map(|(selector, _)| selector).unwrap_or_default();
        // Between two texts in quotes is a comma, a label and an operator.
        let labels = selector.split('"').step_by(2).map(|it| it.trim_matches(|c| !is_word(c)));
        let labels = labels.filter(|it| !it.is_empty()).map(str::to_owned).collect();
        found.push((name.to_owned(), labels));
        rest = after;
    }
    found
}

/// The labels by which an expression groups.
fn grouped_by(expression: &str) -> BTreeSet<String> {
    let groups = expression.split("by (").skip(1).filter_map(|rest| rest.split_once(')'));
    let labels = groups.flat_map(|(labels, _)| labels.split(','));
    labels.map(|label| label.trim().to_owned()).collect()
}

/// Problems of an expression with metrics that are not there, or not with these labels.
fn unknown(expression: &str, metrics: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    // Prometheus adds these.
    let mut labels: BTreeSet<&str> = ["job", "instance"].into();
    let mut problems = Vec::new();
    for (name, selected) in metrics_of(expression) {
        let Some(known) = metrics.get(&name) else {
            problems.push(format!("no metric `{name}`: {expression}"));
            continue;
        };
        labels.extend(known.iter().map(String::as_str));
        let missing =
            selected.iter().filter(|it| *it != "job" && *it != "instance" && !known.contains(*it));
        problems.extend(missing.map(|it| format!("`{name}` has no label `{it}`: {expression}")));
    }
    let missing = grouped_by(expression).into_iter().filter(|it| !labels.contains(it.as_str()));
    problems.extend(missing.map(|it| format!("no metric has the label `{it}`: {expression}")));
    problems
}

#[test]
fn an_unknown_metric_or_label_is_found() {
    let known: BTreeSet<String> = ["chain".to_owned()].into();
    let metrics: BTreeMap<_, _> = [("wellhead_a".to_owned(), known)].into();
    let check = |expression: &str, problems: usize| {
        assert_eq!(unknown(expression, &metrics).len(), problems, "{expression}");
    };
    check("sum by (job, chain) (wellhead_a{chain=~\"x\",job=\"y\"})", 0);
    check("wellhead_b > 1", 1);
    check("wellhead_a{upstream=\"u\"} / wellhead_a{chain!=\"c\", tier=\"t\"}", 2);
    check("sum by (upstream) (wellhead_a)", 1);
}

#[test]
fn each_alert_says_what_to_do() {
    let page = text("docs/operation.md");
    let (_, section) = page.split_once("\n## What to do at each alert\n").unwrap();
    let sections: BTreeMap<&str, &str> =
        section.split("\n### ").skip(1).filter_map(|it| it.split_once('\n')).collect();
    let rules = text("deploy/prometheus/rules.yaml");
    let alerts = alerts();
    for (name, _) in &alerts {
        let body = sections.get(name.as_str()).unwrap_or_else(|| panic!("no section {name}"));
        for part in ["**Means:**", "**Look at:**", "**Do:**"] {
            assert!(body.contains(part), "{name}: {part}");
        }
        let url = format!("runbook_url: docs/operation.md#{}\n", name.to_lowercase());
        assert!(rules.contains(&url), "{url}");
    }
    assert_eq!(sections.len(), alerts.len(), "a section without an alert");
}

#[test]
fn each_alert_has_a_firing_and_a_silent_case() {
    let tests = text("deploy/prometheus/tests.yaml");
    let cases: Vec<&str> = tests.split("\n  - name: ").skip(1).collect();
    for (name, _) in alerts() {
        let case = |kind: &str| {
            let title = format!("{name} {kind}\n");
            cases.iter().find(|case| case.starts_with(&title)).unwrap_or_else(|| panic!("{title}"))
        };
        let fires = format!("alertname=\"{name}\",alertstate=\"firing\"");
        assert!(case("fires").contains(&fires), "{name}");
        assert!(!case("is silent").contains(&fires), "{name}");
    }
}

#[test]
fn dashboards_alerts_and_pages_use_documented_metrics_and_labels() {
    let metrics = documented();
    let problems: Vec<String> = alerts()
        .into_iter()
        .chain(dashboard_queries())
        .chain(page_queries())
        .flat_map(|(_, expression)| unknown(&expression, &metrics))
        .collect();
    assert_eq!(problems, Vec::<String>::new());
}
