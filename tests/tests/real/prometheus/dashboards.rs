//! The shipped dashboards of Grafana: each is complete, and a Prometheus answers every query.
//!
//! What it is not: Grafana. The JSON is read as its model of dashboards; how it looks is not compared.
//!
//! Invariant: no query is left out: panels, and the variables that are read from series.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use berth_tests::processes::eventually;
use serde_json::Value;

use super::root;
use super::server::Prometheus;
use super::shortened;

/// Where the dashboards are.
const FOLDER: &str = "deploy/grafana";

/// The panels without series in a cluster that is well: the dashboard, the panel, and why.
const MAY_BE_EMPTY: [(&str, &str, &str); 3] = [
    (
        "berth-cluster",
        "Age of the newest checkpoint",
        "a new cluster has no checkpoint",
    ),
    ("berth-capacity", "Steps that failed", "no step has failed"),
    ("berth-host", "Calls that failed", "no call has failed"),
];

/// A panel that shows series.
struct Panel {
    dashboard: String,
    title: String,
    queries: Vec<String>,
}

/// Returns the dashboards by the names of their files.
fn dashboards() -> BTreeMap<String, Value> {
    let files = fs::read_dir(root().join(FOLDER)).expect("the directory");
    let read = files.map(|file| {
        let path = file.expect("an entry").path();
        let name = path.file_stem().expect("a name").display().to_string();
        let text = fs::read_to_string(&path).expect("a file of the project");
        let parsed = serde_json::from_str(&text);
        (name, parsed.unwrap_or_else(|why| panic!("{path:?}: {why}")))
    });
    read.collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[track_caller]
fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    let text = value[key].as_str().unwrap_or_default();
    assert!(!text.trim().is_empty(), "no {key}: {value}");
    text
}

/// Returns the panels of a dashboard that show series.
fn panels(dashboard: &Value) -> Vec<Panel> {
    let shown = list(&dashboard["panels"]).iter();
    let shown = shown.filter(|panel| panel["type"] != "row");
    let panel = |panel: &Value| Panel {
        dashboard: text(dashboard, "uid").to_owned(),
        title: text(panel, "title").to_owned(),
        queries: list(&panel["targets"])
            .iter()
            .map(|target| text(target, "expr").to_owned())
            .collect(),
    };
    shown.map(panel).collect()
}

/// Returns the expressions from which a dashboard reads the values of its variables.
fn variable_queries(dashboard: &Value) -> Vec<String> {
    let variables = list(&dashboard["templating"]["list"]).iter();
    let queried = variables.filter(|variable| variable["type"] == "query");
    queried
        .map(|variable| {
            let query = text(variable, "query");
            let of = query.strip_prefix("label_values(");
            let of = of.and_then(|of| of.strip_suffix(')')?.split_once(", "));
            let (metric, label) = of.unwrap_or_else(|| panic!("{query} is no label_values"));
            format!("count by ({label}) ({metric})")
        })
        .collect()
}

/// Goal: what an operator imports works and is explained. Method: the rules that hold of every panel, and
/// the documents.
pub(crate) fn every_dashboard_is_complete() {
    let dashboards = dashboards();
    assert!(dashboards.len() >= 3, "{:?}", dashboards.keys());
    let document = fs::read_to_string(root().join("docs/dashboards.md")).expect("the document");
    let metrics = fs::read_to_string(root().join("docs/metrics.md")).expect("the document");
    for (name, dashboard) in &dashboards {
        assert_eq!(text(dashboard, "uid"), name, "the file is named after it");
        let link = format!("[`{name}.json`](../{FOLDER}/{name}.json)");
        assert!(document.contains(&link), "{name} is not documented");
        let whole = dashboard.to_string();
        assert!(!whole.contains("://"), "{name} names a host");
        check_panels(name, dashboard);
        let mut expressions = variable_queries(dashboard);
        expressions.extend(
            panels(dashboard)
                .into_iter()
                .flat_map(|panel| panel.queries),
        );
        let declared = list(&dashboard["templating"]["list"]).iter();
        let declared: BTreeSet<&str> = declared.map(|variable| text(variable, "name")).collect();
        assert!(declared.contains("datasource"), "{name}: {declared:?}");
        for expression in &expressions {
            for variable in variables(expression) {
                let is_known = variable == "__rate_interval" || declared.contains(variable);
                assert!(is_known, "{name}: ${variable} is not declared");
            }
            for metric in metric_names(expression) {
                let bare = metric.strip_suffix("_bucket").unwrap_or(metric);
                let row = format!("| `{bare}` |");
                assert!(metrics.contains(&row), "{name}: {metric} is not documented");
            }
        }
    }
    for (dashboard, title, why) in MAY_BE_EMPTY {
        let mut all = dashboards.get(dashboard).into_iter().flat_map(panels);
        assert!(all.any(|panel| panel.title == title), "{title}: {why}");
    }
}

fn check_panels(name: &str, dashboard: &Value) {
    let mut ids = BTreeSet::new();
    let mut titles = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in list(&dashboard["panels"]) {
        let title = text(panel, "title");
        let id = panel["id"].as_u64().expect("a number");
        assert!(ids.insert(id), "{name}: {id} is there twice");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a position");
        assert!(at("x") + at("w") <= 24, "{name}: {title} is too wide");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{name}: {title} covers another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(titles.insert(title), "{name}: {title} is there twice");
        let description = text(panel, "description");
        assert!(description.ends_with('.'), "{name}: {title}: {description}");
        text(&panel["fieldConfig"]["defaults"], "unit");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = list(&panel["targets"]);
        let references: BTreeSet<&str> = targets.iter().map(|t| text(t, "refId")).collect();
        assert!(!targets.is_empty(), "{name}: {title} shows nothing");
        assert_eq!(references.len(), targets.len(), "{name}: {title}");
    }
}

/// Returns the names of the variables in an expression.
fn variables(expression: &str) -> Vec<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let parts = expression.split('$').skip(1);
    let names = parts.map(|part| {
        let end = part.find(|c| !is_of_name(c));
        &part[..end.unwrap_or(part.len())]
    });
    names.collect()
}

/// Returns the names of the metrics in an expression, but for what Prometheus makes itself.
fn metric_names(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_ours = |word: &&str| word.starts_with("berth_") || word.starts_with("process_");
    words.filter(is_ours).collect()
}

/// Returns an expression with the values that Grafana puts in place of variables.
fn substituted(expression: &str) -> String {
    let mut text = expression.replace("$__rate_interval", shortened::RANGE);
    for variable in variables(expression) {
        text = text.replace(&format!("${variable}"), ".*");
    }
    text
}

/// Asserts that a Prometheus which scrapes a whole cluster answers every query, with series but for
/// [`MAY_BE_EMPTY`].
pub(super) fn answered_by(prometheus: &Prometheus) {
    let mut answered = 0;
    for dashboard in dashboards().values() {
        for query in variable_queries(dashboard) {
            eventually(&query, || match prometheus.query(&query)?.len() {
                0 => Err("no value".to_owned()),
                _ => Ok(()),
            });
        }
        for panel in panels(dashboard) {
            let may_be_empty = MAY_BE_EMPTY.iter().any(|(dashboard, title, _)| {
                (*dashboard, *title) == (&*panel.dashboard, &*panel.title)
            });
            for query in panel.queries {
                let query = substituted(&query);
                let what = format!("{}: {}: {query}", panel.dashboard, panel.title);
                // An error is one of the query: it is not repeated.
                let first = prometheus.query(&query);
                let first = first.unwrap_or_else(|why| panic!("{what}: {why}"));
                if first.is_empty() && !may_be_empty {
                    eventually(&what, || match prometheus.query(&query)?.len() {
                        0 => Err("no series".to_owned()),
                        _ => Ok(()),
                    });
                }
                answered += 1;
            }
        }
    }
    println!("{answered} queries of dashboards are answered");
}
