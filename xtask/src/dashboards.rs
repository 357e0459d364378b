//! The Grafana dashboards of `deploy/grafana`, made from a few lines for each panel.
//!
//! A dashboard is rows of panels, a panel a title, a unit and queries. Everything else that Grafana's JSON holds is the
//! same for all and stands here once. The queries are run by a test against a Prometheus that scrapes a wellhead
//! (`tests/e2e/tests/monitoring`); Grafana itself takes no part.

mod content;

use serde_json::{Value, json};

use content::{OVERVIEW, TENANTS, UPSTREAM};

/// Of Grafana 10, which newer ones read.
const SCHEMA_VERSION: u32 = 39;
/// The columns of Grafana's grid.
const COLUMNS: usize = 24;
const PANEL_HEIGHT: usize = 8;

/// One dashboard.
struct Dashboard {
    uid: &'static str,
    title: &'static str,
    description: &'static str,
    variables: &'static [Variable],
    rows: &'static [Row],
}

/// What the reader chooses from; each is named by the label that it filters.
#[derive(Clone, Copy)]
struct Variable {
    label: &'static str,
    /// The series whose labels are offered.
    of: &'static str,
}

struct Row {
    title: &'static str,
    panels: &'static [DashboardPanel],
}

struct DashboardPanel {
    title: &'static str,
    kind: PanelKind,
    /// In Grafana's words: `reqps`, `s`, `percentunit`, `short`.
    unit: &'static str,
    /// A line for each: its legend, a bar and its expression.
    queries: &'static str,
}

impl DashboardPanel {
    fn queries(&self) -> impl Iterator<Item = Query> {
        let lines = self.queries.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| {
            let (legend, expression) = line.split_once('|').expect("a bar after the legend");
            Query { expression: expression.trim(), legend: legend.trim() }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PanelKind {
    Lines,
    /// One number.
    Number,
    Table,
    Heatmap,
}

struct Query {
    /// With a name in the place of a selector, as [`expanded`] reads it.
    expression: &'static str,
    /// `{{chain}}` stands for the value of a label.
    legend: &'static str,
}

/// The labels that queries select by, each the value of a variable, under the name that stands for them.
const SELECTORS: [(&str, &[&str]); 4] = [
    ("job", &["job"]),
    ("chain", &["job", "chain"]),
    ("upstream", &["job", "chain", "upstream"]),
    ("tenant", &["job", "tenant"]),
];

/// Few rows and totals.
pub(crate) fn overview() -> String {
    text(&OVERVIEW)
}

/// One upstream after the other.
pub(crate) fn upstream() -> String {
    text(&UPSTREAM)
}

/// Callers and their limits.
pub(crate) fn tenants() -> String {
    text(&TENANTS)
}

fn text(dashboard: &Dashboard) -> String {
    let mut text =
        serde_json::to_string_pretty(&whole(dashboard)).expect("plain values are always JSON");
    text.push('\n');
    text
}

fn whole(dashboard: &Dashboard) -> Value {
    json!({
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["wellhead"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": { "from": "now-3h", "to": "now" },
        "links": [{
            "type": "dashboards", "tags": ["wellhead"], "title": "wellhead", "asDropdown": true,
            "includeVars": true, "keepTime": true,
        }],
        "templating": { "list": variables(dashboard.variables) },
        "panels": panels(dashboard.rows),
    })
}

fn variables(variables: &[Variable]) -> Vec<Value> {
    let source = json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        "refresh": 1, "hide": 0,
    });
    let mut list = vec![source];
    let mut selector = String::new();
    for Variable { label, of } in variables {
        let query = format!("label_values({of}{{{selector}}}, {label})");
        list.push(json!({
            "name": label, "label": label, "type": "query", "datasource": datasource(),
            "definition": query, "query": { "query": query, "refId": label },
            "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
            "current": { "text": ["All"], "value": ["$__all"] },
        }));
        // What is offered next is what is there of what was chosen.
        if !selector.is_empty() {
            selector.push(',');
        }
        selector.push_str(&chosen(label));
    }
    list
}

/// What is chosen of a label.
fn chosen(label: &str) -> String {
    format!("{label}=~\"${label}\"")
}

/// The query with its selectors written out: `up{chain}` is `up{job=~"$job",chain=~"$chain"}`.
fn expanded(expression: &str) -> String {
    let mut text = expression.to_owned();
    for (name, labels) in SELECTORS {
        let selector = labels.iter().map(|label| chosen(label)).collect::<Vec<_>>().join(",");
        for end in ['}', ','] {
            text = text.replace(&format!("{{{name}{end}"), &format!("{{{selector}{end}"));
        }
    }
    text
}

fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn panels(rows: &[Row]) -> Vec<Value> {
    let (mut list, mut y) = (Vec::new(), 0);
    for row in rows {
        list.push(json!({
            "id": list.len() + 1, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": { "x": 0, "y": y, "w": COLUMNS, "h": 1 },
        }));
        y += 1;
        let width = COLUMNS / row.panels.len().max(1);
        for (place, panel) in row.panels.iter().enumerate() {
            let at = json!({ "x": place * width, "y": y, "w": width, "h": PANEL_HEIGHT });
            list.push(panel_json(list.len() + 1, panel, &at));
        }
        y += PANEL_HEIGHT;
    }
    list
}

fn panel_json(id: usize, panel: &DashboardPanel, at: &Value) -> Value {
    let (kind, format) = match panel.kind {
        PanelKind::Lines => ("timeseries", "time_series"),
        PanelKind::Number => ("stat", "time_series"),
        PanelKind::Table => ("table", "table"),
        PanelKind::Heatmap => ("heatmap", "heatmap"),
    };
    let targets = panel.queries().zip('A'..).map(|(query, letter)| {
        json!({
            "refId": letter.to_string(), "datasource": datasource(), "expr": expanded(query.expression),
            "legendFormat": query.legend, "format": format,
            "instant": panel.kind == PanelKind::Table, "range": panel.kind != PanelKind::Table,
        })
    });
    let mut json = json!({
        "id": id, "type": kind, "title": panel.title, "gridPos": at, "datasource": datasource(),
        "targets": targets.collect::<Vec<_>>(),
        "fieldConfig": { "defaults": { "unit": panel.unit, "min": 0 }, "overrides": [] },
        "options": options(panel.kind),
    });
    if panel.kind == PanelKind::Table {
        // One line for each upstream with a column for each query.
        let names = panel.queries().zip('A'..);
        let names = names.map(|(query, letter)| (format!("Value #{letter}"), json!(query.legend)));
        let names: serde_json::Map<String, Value> = names.collect();
        json["transformations"] = json!([
            { "id": "merge", "options": {} },
            { "id": "organize", "options": { "excludeByName": { "Time": true }, "renameByName": names } },
        ]);
    }
    json
}

fn options(kind: PanelKind) -> Value {
    match kind {
        PanelKind::Lines => json!({
            "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true },
            "tooltip": { "mode": "multi", "sort": "desc" },
        }),
        PanelKind::Number => json!({
            "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
            "colorMode": "value", "graphMode": "area", "textMode": "auto",
        }),
        PanelKind::Table => json!({ "showHeader": true, "cellHeight": "sm" }),
        PanelKind::Heatmap => json!({
            "calculate": false, "yAxis": { "unit": "s" }, "color": { "mode": "scheme", "scheme": "Oranges" },
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALL: [&Dashboard; 3] = [&OVERVIEW, &UPSTREAM, &TENANTS];

    fn queries() -> impl Iterator<Item = (&'static Dashboard, String)> {
        let panels = ALL
            .into_iter()
            .flat_map(|it| it.rows.iter().flat_map(|row| row.panels).map(move |panel| (it, panel)));
        panels.flat_map(|(it, panel)| {
            panel.queries().map(move |query| (it, expanded(query.expression)))
        })
    }

    #[test]
    fn each_query_filters_by_variables_of_its_dashboard() {
        for (dashboard, expression) in queries() {
            assert!(expression.contains("job=~\"$job\""), "{expression}");
            for part in expression.split("=~\"$").skip(1) {
                let (name, _) = part.split_once('"').expect("a closed text");
                let is_known = dashboard.variables.iter().any(|it| it.label == name);
                assert!(is_known, "`${name}` of {expression}");
            }
        }
    }

    #[test]
    fn each_metric_of_a_query_is_documented() {
        let page = wellhead_app::metrics::page();
        let mut compared = 0;
        for (_, expression) in queries() {
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words.filter(|it| it.starts_with("wellhead_") || it.starts_with("process_"))
            {
                let name = word.strip_suffix("_bucket").unwrap_or(word);
                assert!(page.contains(&format!("| `{name}` |")), "{word} of {expression}");
                compared += 1;
            }
        }
        assert!(compared > 30, "{compared}");
    }

    #[test]
    fn names_are_used_once_and_panels_do_not_overlap() {
        let uids: BTreeSet<_> = ALL.iter().map(|it| it.uid).collect();
        assert_eq!(uids.len(), ALL.len());
        for dashboard in ALL {
            let panels = panels(dashboard.rows);
            let places: BTreeSet<String> = panels
                .iter()
                .map(|it| format!("{} {}", it["gridPos"]["x"], it["gridPos"]["y"]))
                .collect();
            let titles: BTreeSet<&str> =
                panels.iter().filter_map(|it| it["title"].as_str()).collect();
            assert_eq!(
                (places.len(), titles.len()),
                (panels.len(), panels.len()),
                "{}",
                dashboard.title
            );
        }
    }
}
