//! Metrics and health of all programs: what the document lists is served, and what is served is listed.
//!
//! Method: whole processes. Each scrape is read strictly; values are compared before and after what changes
//! them. What clients may do to the listener is in `process/tests`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use berth_tests::processes::scrape::{self, Scrape};
use berth_tests::processes::{Cluster, Host, Part, eventually};

use crate::PROGRAMS;

/// A row of the document: type, unit and labels.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Documented {
    kind: String,
    unit: String,
    labels: BTreeSet<String>,
}

type Table = BTreeMap<String, Documented>;

/// Reads the tables of `docs/metrics.md`, by the heading above each.
fn documented() -> BTreeMap<String, Table> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = fs::read_to_string(path).expect("the document is read");
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    let mut heading = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            name.clone_into(&mut heading);
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, kind, unit, labels, meaning, ""] = cells[..] else {
            continue;
        };
        let Some(name) = name
            .strip_prefix('`')
            .and_then(|name| name.strip_suffix('`'))
        else {
            continue;
        };
        assert!(meaning.ends_with('.'), "{name} has no sentence");
        let labels = labels.split(", ").filter(|label| *label != "-");
        let row = Documented {
            kind: kind.to_owned(),
            unit: unit.to_owned(),
            labels: labels
                .map(|label| label.trim_matches('`').to_owned())
                .collect(),
        };
        let table = tables.entry(heading.clone()).or_default();
        assert_eq!(
            table.insert(name.to_owned(), row),
            None,
            "{name} is listed twice"
        );
    }
    tables
}

fn documented_of(program: &str) -> Table {
    let mut tables = documented();
    let mut all = tables.remove("Every program").expect("a table of all");
    all.extend(tables.remove(program).unwrap_or_default());
    all
}

/// Returns the name of a metric by its family and type.
fn name_of(family: &str, kind: &str) -> String {
    match kind {
        "counter" => format!("{family}_total"),
        "info" => format!("{family}_info"),
        _ => family.to_owned(),
    }
}

/// Compares what a program serves with its tables, in both directions.
#[track_caller]
fn compare(part: &Part, program: &str) -> BTreeSet<String> {
    let scrape = Scrape::of(part.watch()).unwrap_or_else(|why| panic!("{}: {why}", part.name));
    let documented = documented_of(program);
    let mut served = BTreeSet::new();
    let mut with_series = BTreeSet::new();
    for (family, found) in &scrape.0 {
        let name = name_of(family, &found.kind);
        let row = documented.get(&name);
        let row = row.unwrap_or_else(|| panic!("{name} of {} is not documented", part.name));
        assert_eq!(row.kind, found.kind, "{name}");
        let unit = ["seconds", "bytes"];
        let unit = unit
            .iter()
            .find(|unit| family.ends_with(&format!("_{unit}")));
        assert_eq!(row.unit, unit.copied().unwrap_or("-"), "{name}");
        if let Some(labels) = found.label_names() {
            assert_eq!(row.labels, labels, "{name}");
            with_series.insert(name.clone());
        }
        served.insert(name);
    }
    let missing: Vec<_> = documented
        .keys()
        .filter(|name| !served.contains(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "{} does not serve {missing:?}",
        part.name
    );
    with_series
}

fn value(part: &Part, name: &str, labels: &[(&str, &str)]) -> f64 {
    let scrape = Scrape::of(part.watch()).unwrap_or_else(|why| panic!("{}: {why}", part.name));
    scrape.value(name, labels).unwrap_or(0.0)
}

#[track_caller]
fn becomes(part: &Part, name: &str, labels: &[(&str, &str)], is_right: impl Fn(f64) -> bool) {
    eventually(name, || {
        let value = value(part, name, labels);
        is_right(value)
            .then_some(())
            .ok_or(format!("{labels:?} is {value}"))
    });
}

fn readiness(part: &Part) -> Result<u16, String> {
    Ok(scrape::get(part.watch(), "/readyz")?.status)
}

#[track_caller]
fn becomes_ready(part: &Part, status: u16) {
    eventually("readiness", || {
        let response = scrape::get(part.watch(), "/readyz?verbose")?;
        (response.status == status)
            .then_some(())
            .ok_or(response.body)
    });
}

/// Goal: the document is complete and true, for all programs; values change when the thing happens.
/// Method: a cluster in which a VM is booted, moved and refused, and a leader is killed.
#[test]
fn what_is_documented_is_served_and_changes() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .host(Host::new("h1").with_volumes("sim", &["region0:1024"], ""))
        .host(Host::new("h2"))
        // Long enough that the conductor waits for its end, however busy the machine is.
        .transfer_ms(3_000)
        .watched()
        .start();
    let _csi = cluster.add_csi_controller();
    cluster.pinned_flavor("pinned", 2);
    cluster.pinned_flavor("wide", 3);
    let leader = cluster.leader();

    let boots = [("kind", "boot"), ("result", "done")];
    let before = value(&cluster.schedulers[leader], "berth_decisions_total", &boots);
    let _ = cluster.boot("a", "pinned", "h1");
    let after = value(&cluster.schedulers[leader], "berth_decisions_total", &boots);
    assert!((after - before - 1.0).abs() < 0.5, "{before} {after}");
    let _ = cluster.boot("wide", "wide", "h1");
    let moved = cluster.begin(&["vm", "migrate", "a", "--host", "h2"]);
    cluster.succeeds(&moved);

    let reason = [("reason", "NO_VALID_HOST")];
    let refused = value(&cluster.schedulers[leader], "berth_refusals_total", &reason);
    let create = Cluster::create("b", "no-such-flavor");
    let _ = cluster.berth(&create).with_status(1);
    let unknown = [("reason", "FLAVOR_NOT_FOUND")];
    let scheduler = &cluster.schedulers[leader];
    becomes(scheduler, "berth_refusals_total", &unknown, |count| {
        count >= 1.0
    });
    let still = value(scheduler, "berth_refusals_total", &reason);
    assert!(
        (still - refused).abs() < 0.5,
        "another reason is not counted"
    );

    // Counts of the state, of every member.
    for scheduler in &cluster.schedulers {
        becomes(scheduler, "berth_vms", &[("state", "active")], |vms| {
            vms == 2.0
        });
        becomes(scheduler, "berth_hosts", &[("state", "up")], |hosts| {
            hosts == 2.0
        });
        becomes(
            scheduler,
            "berth_claims",
            &[("state", "active")],
            |claims| claims == 2.0,
        );
        let kind = [("kind", "live_migrate"), ("state", "succeeded")];
        becomes(scheduler, "berth_operations", &kind, |count| count == 1.0);
        becomes(
            scheduler,
            "berth_used",
            &[("resource_class", "PCPU")],
            |used| used == 5.0,
        );
        becomes(scheduler, "berth_raft_members", &[], |members| {
            members == 3.0
        });
        becomes(
            scheduler,
            "berth_disk_used_bytes",
            &[("part", "log")],
            |bytes| bytes > 0.0,
        );
    }
    let scheduler = &cluster.schedulers[leader];
    let survived = [("verdict", "survived")];
    becomes(scheduler, "berth_failover_hosts", &survived, |hosts| {
        hosts >= 1.0
    });
    let syncs = "berth_raft_log_sync_duration_seconds_count";
    becomes(scheduler, syncs, &[], |count| count > 0.0);

    let conductor = &cluster.conductors[0];
    let booted = [("kind", "boot"), ("result", "succeeded")];
    becomes(
        conductor,
        "berth_conductor_operations_total",
        &booted,
        |count| count == 2.0,
    );
    let spawned = [("step", "spawn"), ("result", "ok")];
    becomes(
        conductor,
        "berth_conductor_steps_total",
        &spawned,
        |count| count == 2.0,
    );
    let transfers = "berth_conductor_transfer_duration_seconds_count";
    becomes(conductor, transfers, &[], |count| count == 1.0);

    let agent = &cluster.agents[0];
    let created = [("kind", "create"), ("result", "ok")];
    becomes(agent, "berth_driver_calls_total", &created, |count| {
        count == 2.0
    });
    let beats = [("result", "acknowledged")];
    becomes(agent, "berth_heartbeats_total", &beats, |count| count > 0.0);
    becomes(agent, "berth_guests", &[("state", "running")], |guests| {
        guests == 1.0
    });
    // The guest that moved has 64 MiB, and did not write.
    let arrived = &cluster.agents[1];
    becomes(arrived, "berth_migrations_arrived_total", &[], |count| {
        count == 1.0
    });
    let bytes = value(arrived, "berth_migration_transferred_bytes_total", &[]);
    assert!((bytes - f64::from(64 << 20)).abs() < 0.5, "{bytes}");
    let downtimes = "berth_migration_downtime_seconds_count";
    assert!((value(arrived, downtimes, &[]) - 1.0).abs() < 0.5);
    assert!(value(agent, "berth_migrations_arrived_total", &[]) < 0.5);
    // Three CPUs of one node, whichever it is.
    eventually("pinned CPUs", || {
        let on = |node| {
            let labels = [("numa_node", node), ("use", "dedicated_pinned")];
            value(agent, "berth_host_cpus", &labels)
        };
        let pinned = on("0") + on("1");
        (pinned == 3.0).then_some(()).ok_or(pinned)
    });

    everything_is_documented(&cluster, leader);
    a_new_leader_has_another_term(&mut cluster, leader);
}

/// Every metric has a series somewhere, but for those of what this cluster does not have.
fn everything_is_documented(cluster: &Cluster, leader: usize) {
    let mut seen = BTreeSet::new();
    for (number, scheduler) in cluster.schedulers.iter().enumerate() {
        let series = compare(scheduler, "Scheduler");
        if number == leader {
            seen.extend(series);
        }
    }
    for (parts, program) in [
        (&cluster.conductors, "Conductor"),
        (&cluster.agents, "Agent"),
        (&cluster.csi_controllers, "Controller"),
    ] {
        assert!(!parts.is_empty(), "there is a {program}");
        for part in parts {
            seen.extend(compare(part, program));
        }
    }
    let all = documented();
    let all: BTreeSet<String> = all.into_values().flatten().map(|(name, _)| name).collect();
    let without = [
        "berth_backup_failing",
        "berth_backup_failures_total",
        "berth_backup_last_success_timestamp_seconds",
        "berth_certificate_not_after_seconds",
        "berth_placement_request_duration_seconds",
        "berth_placement_requests_total",
    ];
    let without: BTreeSet<String> = without.map(str::to_owned).into();
    let missing: BTreeSet<String> = all.difference(&seen).cloned().collect();
    assert_eq!(missing, without, "metrics without a series");
}

fn a_new_leader_has_another_term(cluster: &mut Cluster, leader: usize) {
    let term = value(&cluster.schedulers[leader], "berth_raft_term", &[]);
    let other = (leader + 1) % 3;
    let changes = "berth_raft_leader_changes_total";
    let before = value(&cluster.schedulers[other], changes, &[]);
    cluster.schedulers[leader].kill();
    let scheduler = &cluster.schedulers[other];
    becomes(scheduler, "berth_raft_term", &[], |now| now > term);
    becomes(scheduler, changes, &[], |now| now > before);
    let next = cluster.leader();
    becomes(
        &cluster.schedulers[next],
        "berth_raft_is_leader",
        &[],
        |is| is == 1.0,
    );
}

/// Goal: health follows what programs can do. Method: two of three schedulers are killed, and one of
/// them is started again.
#[test]
fn readiness_follows_the_quorum() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .host(Host::new("h1"))
        .watched()
        .start();
    let _csi = cluster.add_csi_controller();
    let parts = |cluster: &Cluster| -> Vec<String> {
        let others = cluster.conductors.iter().chain(&cluster.agents);
        let all = cluster
            .schedulers
            .iter()
            .chain(others)
            .chain(&cluster.csi_controllers);
        all.map(|part| part.watch().to_owned()).collect()
    };
    for watch in parts(&cluster) {
        for path in ["/livez", "/readyz"] {
            eventually(path, || {
                let response = scrape::get(&watch, path)?;
                let is_ok = (response.status, response.body.as_str()) == (200, "ok");
                is_ok.then_some(()).ok_or(format!("{response:?}"))
            });
        }
    }
    let verbose =
        scrape::get(cluster.schedulers[0].watch(), "/readyz?verbose").expect("it answers");
    assert!(verbose.body.contains("[+]leader ok\n"), "{verbose:?}");

    cluster.schedulers[1].kill();
    cluster.schedulers[2].kill();
    becomes_ready(&cluster.schedulers[0], 503);
    becomes_ready(&cluster.conductors[0], 503);
    becomes_ready(&cluster.csi_controllers[0], 503);
    let alive = scrape::get(cluster.schedulers[0].watch(), "/livez").expect("it answers");
    assert_eq!(alive.status, 200, "{alive:?}");
    assert_eq!(readiness(&cluster.agents[0]), Ok(200), "its guests go on");

    let programs = cluster.programs.clone();
    cluster.schedulers[1].start(&programs);
    becomes_ready(&cluster.schedulers[0], 200);
    becomes_ready(&cluster.schedulers[1], 200);
    becomes_ready(&cluster.conductors[0], 200);
    becomes_ready(&cluster.csi_controllers[0], 200);
}
