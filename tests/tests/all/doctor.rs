//! Goal: `berth doctor` names what is wrong, and nothing where nothing is. Method: a cluster of processes, of
//! which one part after another is killed, and commands with addresses and certificates that are wrong.

use std::fs;
use std::time::Duration;

use berth_tests::processes::{Cluster, Host, eventually};
use berth_tls::Role;
use serde_json::Value;

use crate::PROGRAMS;

/// Returns the findings that are not OK, as `check outcome of`.
fn wrong(findings: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let findings = findings.as_array().expect("a list").iter();
    let findings = findings.filter(|finding| finding["outcome"] != "OK");
    findings
        .map(|f| {
            assert!(f["hint"].is_string() || f["outcome"] == "UNKNOWN", "{f:#}");
            [&f["check"], &f["outcome"], &f["of"]].map(text).join(" ")
        })
        .collect()
}

/// Waits until these are the findings that are not OK, with this exit status.
#[track_caller]
fn finds(cluster: &Cluster, status: i32, expected: &[&str]) {
    eventually(&format!("{expected:?}"), || {
        let answer = cluster.berth(&["doctor"]);
        let findings = answer.json_with(status)?;
        let wrong = wrong(&findings);
        match wrong == expected {
            true => Ok(()),
            false => Err(format!("{wrong:#?} of {findings:#}")),
        }
    });
}

/// No member of these clusters has a schedule of backups.
const BACKUP: &str = "backup WARNING -";

#[test]
fn each_part_that_is_lost_is_named() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.wait();
    finds(&cluster, 0, &[BACKUP]);
    let checks: Vec<Value> = cluster
        .json(&["doctor"])
        .as_array()
        .expect("a list")
        .clone();
    let checks: Vec<&str> = checks
        .iter()
        .map(|f| f["check"].as_str().expect("a text"))
        .collect();
    let all = [
        "addresses",
        "certificate",
        "scheduler",
        "scheduler",
        "scheduler",
        "clock",
        "cluster",
        "leader",
        "members",
        "quorum",
        "version",
        "backup",
        "conductor",
        "hosts",
        "vms",
    ];
    assert_eq!(checks, all);

    cluster.agents[1].kill();
    finds(&cluster, 1, &[BACKUP, "hosts FAILED -"]);
    cluster.conductors[0].kill();
    let lost = ["conductor FAILED conductor-1", "hosts FAILED -"];
    finds(&cluster, 1, &[BACKUP, lost[0], lost[1]]);

    let leader = cluster.leader();
    let followers: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    cluster.schedulers[followers[0]].kill();
    let silent = |at: usize| format!("scheduler FAILED {}", cluster.schedulers[at].address);
    let silent = [silent(followers[0]), silent(followers[1])];
    let one = [&*silent[0], "members FAILED -", "quorum WARNING -", BACKUP];
    finds(&cluster, 1, &[&one[..], &lost].concat());

    cluster.schedulers[followers[1]].kill();
    let mut two = [&*silent[0], &*silent[1]];
    // They are named in the order of the addresses.
    two.sort_by_key(|line| {
        let address = line.rsplit(' ').next();
        let mut schedulers = cluster.schedulers.iter();
        schedulers.position(|s| Some(&*s.address) == address)
    });
    let rest = ["leader FAILED -", BACKUP, lost[0], "hosts UNKNOWN -"];
    finds(&cluster, 1, &[&two[..], &rest].concat());

    cluster.schedulers[leader].kill();
    let answer = cluster.berth(&["doctor"]).with_status(1);
    let wrong = wrong(&answer.json_with(1).expect("findings"));
    assert_eq!(wrong.len(), 6, "{wrong:#?}");
    assert_eq!(
        wrong[3..],
        ["conductor UNKNOWN -", "hosts UNKNOWN -", "vms UNKNOWN -"]
    );
}

#[test]
fn wrong_options_are_named() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .certified()
        .host(Host::new("h1"))
        .start();
    cluster.wait();
    let quorum = "quorum WARNING -";
    finds(&cluster, 0, &[quorum, BACKUP]);
    let certificates = cluster.certificates();

    // One that ends soon, and one of a program.
    let day = Duration::from_secs(24 * 60 * 60);
    let soon = certificates.files_for(Role::Reader, "soon", 10 * day);
    let seen = cluster
        .berth_as(&soon, &["doctor"])
        .json_with(0)
        .expect("findings");
    assert_eq!(wrong(&seen)[0], "certificate WARNING -", "{seen:#}");
    assert!(
        seen[1]["message"]
            .as_str()
            .expect("a text")
            .starts_with("reader:soon, valid for "),
        "{seen:#}"
    );
    let program = certificates.files(Role::Agent, "h9");
    let seen = cluster.berth_as(&program, &["doctor"]);
    assert!(seen.stdout.contains("it is that of a program"), "{seen:#?}");

    // A key of another certificate.
    let operator = certificates.files(Role::Operator, "ann");
    let mixed = berth_tls::Files {
        key: soon.key.clone(),
        ..operator.clone()
    };
    let seen = cluster
        .berth_as(&mixed, &["doctor"])
        .json_with(1)
        .expect("findings");
    assert_eq!(wrong(&seen), ["certificate FAILED -"], "{seen:#}");

    // A file that holds no certificate of an authority that the schedulers' are of.
    let other = tempfile::tempdir().expect("a directory");
    let ca = other.path().join("ca.pem");
    fs::copy(&operator.cert, &ca).expect("a copy");
    let foreign = berth_tls::Files { ca, ..operator };
    let seen = cluster.berth_as(&foreign, &["doctor"]).with_status(1);
    let seen = seen.json_with(1).expect("findings");
    assert!(
        wrong(&seen).iter().any(|line| line.contains("FAILED")),
        "{seen:#}"
    );

    // A program that is no scheduler.
    let conductor = cluster.conductors[0].address.clone();
    let seen = cluster
        .berth_at(&conductor, &["doctor"])
        .json_with(1)
        .expect("findings");
    let line = format!("scheduler FAILED {conductor}");
    assert!(wrong(&seen).contains(&line), "{seen:#}");
}
