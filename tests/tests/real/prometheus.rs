//! Metrics as Prometheus reads them, and the rules for alerts.
//!
//! Goal: the programs of Prometheus find no fault in what Berth serves and ships. Method: `promtool` on a
//! scrape of each program, a Prometheus that scrapes three schedulers, and the rules on values that are
//! made up ([`rules.yml`](prometheus/rules.yml)), of which each alert fires and none on a cluster that is
//! well; and a cluster whose alerts have real causes ([`alerts`]), which answers the dashboards too.

mod alerts;
mod dashboards;
mod disk;
mod server;
mod shortened;
mod world;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use berth_tests::processes::{Addresses, Cluster, Host, eventually, scrape};

pub(crate) use alerts::{CAUSED, every_alert_fires_for_its_cause_and_clears, play};
pub(crate) use dashboards::every_dashboard_is_complete;
use server::Prometheus;

use crate::PROGRAMS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs `promtool`, and returns what it printed.
#[track_caller]
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("promtool ends");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{arguments:?}: {printed}\n{input}");
    printed
}

pub(crate) fn promtool_finds_no_fault_in_any_scrape() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .watched()
        .start();
    let _csi = cluster.add_csi_controller();
    cluster.pinned_flavor("pinned", 2);
    let _ = cluster.boot("a", "pinned", "h1");
    let others = cluster.conductors.iter().chain(&cluster.agents);
    let parts = cluster.schedulers.iter().chain(others);
    for part in parts.chain(&cluster.csi_controllers) {
        let text = eventually("a scrape", || scrape::classic(part.watch()));
        let printed = promtool(&["check", "metrics"], &text);
        assert_eq!(printed, "", "{}", part.name);
    }
}

pub(crate) fn prometheus_scrapes_three_schedulers() {
    let cluster = Cluster::builder(PROGRAMS).watched().start();
    let targets = cluster.schedulers.iter().map(|part| part.watch());
    let targets: Vec<String> = targets.map(|watch| format!("{watch:?}")).collect();
    let rules = root().join("deploy/prometheus/berth.rules.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\n\
         scrape_configs:\n- job_name: berth-scheduler\n  static_configs: [{{targets: [{}]}}]\n",
        targets.join(", ")
    );
    let prometheus = Prometheus::start(cluster.folder(), Addresses::new().free(), &config);
    for (expression, expected) in [
        ("sum(up)", "3"),
        ("sum(berth_raft_is_leader)", "1"),
        ("max(berth_raft_members)", "3"),
        ("count(berth_raft_log_sync_duration_seconds_count)", "3"),
    ] {
        eventually(expression, || {
            let value = prometheus.value(expression)?;
            (value == expected).then_some(()).ok_or(value)
        });
    }
    // Of a cluster that is well, none is firing.
    assert_eq!(prometheus.firing(), Ok(Vec::new()));
}

pub(crate) fn every_rule_is_shortened_or_refused() {
    shortened::check_errors();
}

/// Returns the names that follow this beginning of a line.
fn names(path: &str, begin: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(path)).expect("a file of the project");
    let names = text.lines().filter_map(|line| line.strip_prefix(begin));
    names.map(|name| name.trim().to_owned()).collect()
}

pub(crate) fn every_alert_fires_and_has_a_runbook() {
    let rules = root().join("deploy/prometheus/berth.rules.yml");
    let tests = root().join("tests/tests/real/prometheus/rules.yml");
    let shown = |path: &Path| path.display().to_string();
    let checked = promtool(&["check", "rules", &shown(&rules)], "");
    assert!(checked.contains("SUCCESS"), "{checked}");
    let tested = promtool(&["test", "rules", &shown(&tests)], "");
    // It also succeeds where it has no rules.
    assert!(
        tested.contains("SUCCESS") && !tested.contains("WARNING"),
        "{tested}"
    );
    let alerts = names("deploy/prometheus/berth.rules.yml", "      - alert: ");
    assert!(alerts.len() >= 14, "{alerts:?}");
    let fired = names(
        "tests/tests/real/prometheus/rules.yml",
        "        alertname: ",
    );
    assert_eq!(fired, alerts, "each alert fires in a test");
    assert_eq!(names("docs/alerts.md", "## "), alerts, "each has a runbook");
    let expressions = fs::read_to_string(rules).expect("the rules");
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = expressions.split(|c: char| !is_of_name(c));
    let metrics: BTreeSet<&str> = words.filter(|word| word.starts_with("berth_")).collect();
    let document = fs::read_to_string(root().join("docs/metrics.md")).expect("the document");
    for metric in metrics {
        let bare = metric.strip_suffix("_bucket").unwrap_or(metric);
        let row = format!("| `{bare}` |");
        assert!(document.contains(&row), "{metric} is not documented");
    }
}
