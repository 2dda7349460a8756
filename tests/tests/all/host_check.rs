//! `berth host check` on processes: what is wrong with a host is reported before a guest meets it.
//!
//! Method: simulated hypervisors; agents that are stopped, that hang, and that are configured so that
//! no guest can move.

use std::process::Command;

use berth_tests::processes::{Answer, Cluster, Host, certs, eventually};
use berth_tls::Role;
use rustix::process::Signal;
use serde_json::Value;

use crate::PROGRAMS;

/// Returns the exit status of a check, and its findings as `host>peer check OUTCOME`.
#[track_caller]
fn check(cluster: &Cluster, words: &[&str]) -> (Option<i32>, Vec<String>, Value) {
    let answer = cluster.berth(&[&["host", "check"][..], words].concat());
    let printed: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
    let findings = printed.as_array().unwrap_or_else(|| panic!("{answer:#?}"));
    let line = |finding: &Value| {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        let bad = finding["outcome"] != "OK";
        assert_eq!(bad, finding["hint"].is_string(), "{finding:#}");
        let (host, peer) = (text("host"), text("peer"));
        format!("{host}>{peer} {} {}", text("check"), text("outcome"))
    };
    let lines = findings.iter().map(line).collect();
    (answer.status, lines, printed)
}

fn bad(lines: &[String]) -> Vec<&str> {
    let bad = lines.iter().filter(|line| !line.ends_with(" OK"));
    bad.map(String::as_str).collect()
}

/// Everything that is reported of a host, and of its way to others, when nothing is wrong.
fn all_good(host: &str, peers: &[&str]) -> Vec<String> {
    let own = ["hypervisor", "encryption", "huge pages", "clock"];
    let own = own.map(|check| format!("{host}> {check} OK"));
    let peers = peers.iter().map(|peer| format!("{host}>{peer} peer OK"));
    own.into_iter().chain(peers).collect()
}

/// Goal: each fault is named with its host, and hides nothing of the others.
#[test]
fn a_fault_is_named_and_the_other_hosts_are_checked() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .host(Host::new("h3"))
        .start();
    cluster.wait();
    let (status, lines, _) = check(&cluster, &[]);
    let expected = [
        all_good("h1", &["h2", "h3"]),
        all_good("h2", &["h1", "h3"]),
        all_good("h3", &["h1", "h2"]),
    ];
    assert_eq!((status, lines), (Some(0), expected.concat()));

    // Of a peer only the way to the host is reported, and the way back.
    let (status, lines, _) = check(&cluster, &["h1", "--peer", "h2"]);
    let mut expected = all_good("h1", &["h2"]);
    expected.push("h2>h1 peer OK".to_owned());
    assert_eq!((status, lines), (Some(0), expected));

    let names: Vec<String> = (0..33).map(|n| format!("x{n}")).collect();
    let mut many = vec!["host", "check"];
    many.extend(names.iter().map(String::as_str));
    let _ = cluster
        .berth(&many)
        .refused(1)
        .saying(&["TOO_MANY_HOSTS", "--peer"]);
    let unknown = cluster.berth(&["host", "check", "h9"]);
    let _ = unknown.refused(1).saying(&["HOST_NOT_FOUND"]);

    // Another process has huge pages: guests are refused, but not all.
    std::fs::write(cluster.story_file("h2"), "take 0 2048 100\n").unwrap();
    let printed = eventually("the missing pages", || {
        let (status, lines, printed) = check(&cluster, &[]);
        let is_it = bad(&lines) == ["h2> huge pages WARNING"] && status == Some(0);
        is_it
            .then_some(printed)
            .ok_or(format!("{status:?} {lines:#?}"))
    });
    let text = printed.to_string();
    assert!(
        text.contains("NUMA node 0 has 3996 free pages of 2048 KiB"),
        "{text}"
    );

    let all = ["h1", "h2", "h3", "--timeout", "5"];
    cluster.agents[2].signal(Signal::STOP);
    let (status, lines, _) = check(&cluster, &all);
    cluster.agents[2].signal(Signal::CONT);
    assert_eq!(status, Some(1));
    assert!(bad(&lines).contains(&"h3> agent FAILED"), "{lines:#?}");
    for line in all_good("h1", &["h2"]) {
        assert!(lines.contains(&line), "{line} is not in {lines:#?}");
    }
    assert!(lines.contains(&"h2>h1 peer OK".to_owned()), "{lines:#?}");

    let programs = cluster.programs.clone();
    cluster.agents[2].kill();
    cluster.agents[2].start_with(&programs, &["--service-version", "3"]);
    cluster.wait();
    let (status, lines, printed) = check(&cluster, &["h1", "h3"]);
    assert_eq!(bad(&lines), ["h3> agent UNKNOWN"], "{printed:#}");
    assert_eq!(status, Some(0));
    let text = printed.to_string();
    assert!(text.contains("too old to check its host"), "{text}");

    cluster.agents[2].kill();
    let (status, lines, printed) = check(&cluster, &["h1", "h2", "h3"]);
    assert_eq!(status, Some(1));
    let expected = [
        "h1>h3 peer FAILED",
        "h2> huge pages WARNING",
        "h2>h3 peer FAILED",
        "h3> agent FAILED",
    ];
    assert_eq!(bad(&lines), expected, "{printed:#}");
    cluster.agents[2].start(&programs);
    cluster.wait();
}

/// Goal: hosts between which no guest can move encrypted are named in pairs; a reader may not have hosts
/// connect to each other.
#[test]
fn hosts_that_disagree_on_encryption_are_named() {
    let off = Host::new("h2").with_config("[migration]\ntls = \"off\"\n");
    let unable = Host::new("h3").with_config("can_encrypt = false\n");
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .host(off)
        .host(unable)
        .certified()
        .start();
    cluster.wait();
    let (status, lines, printed) = check(&cluster, &[]);
    assert_eq!(status, Some(1));
    let pairs = ["h1>h2", "h1>h3", "h2>h1", "h2>h3", "h3>h1", "h3>h2"];
    let mut expected: Vec<String> = pairs.map(|pair| format!("{pair} encryption FAILED")).into();
    expected.insert(4, "h3> encryption FAILED".to_owned());
    assert_eq!(bad(&lines), expected, "{printed:#}");
    let log = cluster.agents[2].log();
    assert!(log.contains("live migrations cannot be encrypted"), "{log}");

    let mut command: Command = cluster.programs.command("berth");
    command.args(["--output", "json", "--scheduler", &cluster.addresses()]);
    let reader = cluster.certificates().files(Role::Reader, "bob");
    for (flag, file) in certs::flags(&reader) {
        command.args([flag, &file]);
    }
    command.args(["host", "check"]);
    let _ = Answer::of(command).refused(1).saying(&["ROLE_NOT_ALLOWED"]);
}
