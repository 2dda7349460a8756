//! Guests with persistent memory through the whole system: schedulers, conductor and agents with
//! simulated hypervisors as processes, asked by the real command.
//!
//! What is on the simulated memory is in a file beside the guests: who wrote last on each
//! namespace, and whether a guest ever saw what another one wrote, or was erased under.

use std::fs;

use berth_tests::processes::{Answer, Cluster, Host, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

/// One namespace 4GB on cell 0 and two SMALL, one on each cell; none of these names is its size.
const MIXED: [(&str, u64, u32); 3] = [("big", 4096, 0), ("s0", 1024, 0), ("s1", 1024, 1)];
const MIXED_OPTION: &str = "4GB:big,small:s0|s1";

fn start(hosts: impl IntoIterator<Item = Host>) -> Cluster {
    let builder = Cluster::builder(PROGRAMS).schedulers(1).conductors(1);
    let builder = hosts.into_iter().fold(builder, |b, host| b.host(host));
    let cluster = builder.start();
    for (name, pmem) in [
        ("small", "SMALL"),
        ("both", "4gb,small"),
        ("big", "4GB"),
        ("twice", "SMALL,Small"),
    ] {
        flavor(&cluster, name, &[&format!("hw:pmem={pmem}")]);
    }
    cluster
}

fn mixed(name: &str) -> Host {
    Host::new(name).with_pmem(&MIXED, MIXED_OPTION)
}

fn flavor(cluster: &Cluster, name: &str, specs: &[&str]) {
    let mut words = vec!["flavor", "create", name, "--vcpus", "1"];
    words.extend(["--memory-mib", "512"]);
    words.extend(specs.iter().flat_map(|spec| ["--spec", spec]));
    cluster.run(&words);
}

fn boot(cluster: &Cluster, vm: &str, flavor: &str, host: &str) -> Answer {
    let words = [&Cluster::create(vm, flavor)[..], &["--host", host]].concat();
    cluster.berth(&words)
}

/// Returns the namespaces of a VM that is on that host, in order of its devices.
#[track_caller]
fn namespaces(cluster: &Cluster, vm: &str, host: &str) -> Vec<String> {
    let shown = cluster.json(&["vm", "show", vm]);
    assert_eq!(shown["vm"]["host"], host, "{shown:#}");
    let claims = shown["claims"].as_array().unwrap().iter();
    let mut here = claims.filter(|claim| claim["host"] == host);
    let claim = here.next().expect("it has a claim there");
    names(&claim["assignment"])
}

fn names(assignment: &Value) -> Vec<String> {
    let devices = assignment["pmem"].as_array().cloned().unwrap_or_default();
    let name = |device: &Value| device["name"].as_str().unwrap().to_owned();
    devices.iter().map(name).collect()
}

/// Returns the claims of a host that are given back and not erased yet.
fn releasing(cluster: &Cluster, host: &str) -> Vec<Value> {
    let shown = cluster.json(&["host", "show", host]);
    let claims = shown["claims"].as_array().unwrap().iter();
    let releasing = claims.filter(|claim| claim["state"] == "Releasing");
    releasing.cloned().collect()
}

/// Waits until nothing is left to erase on a host, and nothing is written on these namespaces.
#[track_caller]
fn erased(cluster: &Cluster, host: &str, names: &[&str]) {
    eventually(&format!("{names:?} of {host} are erased"), || {
        let left = releasing(cluster, host);
        let written = written(cluster, host);
        let is_clean = names.iter().all(|name| written[*name].is_null());
        let is_done = left.is_empty() && is_clean;
        is_done
            .then_some(())
            .ok_or(format!("{left:#?} {written:#}"))
    });
}

/// Returns who wrote last on each namespace of a host; nobody ever saw what is not theirs.
#[track_caller]
fn written(cluster: &Cluster, host: &str) -> Value {
    let file = cluster.guests_file(host).with_extension("pmem");
    let Ok(text) = fs::read_to_string(file) else {
        return Value::Null;
    };
    let contents: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(contents["leaks"], serde_json::json!([]), "{contents:#}");
    contents["written"].clone()
}

/// Starts the first agent again.
fn start_agent(cluster: &mut Cluster) {
    let Cluster {
        agents, programs, ..
    } = cluster;
    agents[0].start(programs);
    cluster.wait();
}

/// What a host offers of a class, and how much of it is taken.
fn counted(cluster: &Cluster, host: &str, class: &str) -> (Value, Value) {
    let shown = cluster.json(&["host", "list"]);
    let hosts = shown["hosts"].as_array().or(shown.as_array()).unwrap();
    let found = hosts
        .iter()
        .find(|h| h["name"] == host || h["host"]["name"] == host);
    let found = found.expect("the host is listed");
    (
        found["capacity"][class].clone(),
        found["used"][class].clone(),
    )
}

/// Nova's scenarios 9 and 10: what is configured is counted; two guests get one SMALL each, a third
/// none, and the next one gets what was left and erased.
#[test]
fn nova_9_and_10_a_namespace_is_one_guests_and_the_next_ones_when_it_is_erased() {
    let cluster = start([mixed("h1")]);
    let shown = cluster.json(&["host", "show", "h1"]);
    let report = &shown["host"]["report"]["topology"]["pmem"];
    assert_eq!(report.as_array().map(Vec::len), Some(3), "{report:#}");
    let _ = boot(&cluster, "a", "small", "h1").with_status(0);
    let _ = boot(&cluster, "b", "small", "h1").with_status(0);
    let mut given = [
        namespaces(&cluster, "a", "h1"),
        namespaces(&cluster, "b", "h1"),
    ]
    .concat();
    given.sort();
    assert_eq!(given, ["s0", "s1"]);
    let refused = boot(&cluster, "c", "small", "h1").refused(1);
    let _ = refused.saying(&["0 free pmem namespaces SMALL"]);
    let _ = boot(&cluster, "c", "big", "h1").with_status(0);
    assert_eq!(namespaces(&cluster, "c", "h1"), ["big"]);
    let left = namespaces(&cluster, "a", "h1").remove(0);
    // The delete is over at once; only the namespace is not free yet.
    cluster.happens("h1", "hold erase");
    cluster.run(&["vm", "delete", "a"]);
    let _ = cluster.berth(&["vm", "show", "a"]).refused(1);
    let waiting = releasing(&cluster, "h1");
    assert_eq!(waiting.len(), 1, "{waiting:#?}");
    assert_eq!(names(&waiting[0]["assignment"]), [left.as_str()]);
    let _ = boot(&cluster, "d", "small", "h1").refused(1);
    cluster.happens("h1", "let erase");
    erased(&cluster, "h1", &[&left]);
    let _ = boot(&cluster, "d", "small", "h1").with_status(0);
    assert_eq!(namespaces(&cluster, "d", "h1"), [left.as_str()]);
    let _ = written(&cluster, "h1");
    verdict::holds(&cluster);
}

/// Nova's scenario 11: a resize from SMALL to 4GB,SMALL on another host, reverted, then confirmed.
#[test]
fn nova_11_a_resize_to_another_host_takes_other_namespaces() {
    let cluster = start([mixed("h1"), mixed("h2")]);
    let _ = boot(&cluster, "a", "small", "h1").with_status(0);
    let before = namespaces(&cluster, "a", "h1");
    cluster.run(&["vm", "resize", "a", "--flavor", "both", "--host", "h2"]);
    let there = namespaces(&cluster, "a", "h2");
    assert_eq!(
        (there.len(), there[0].as_str()),
        (2, "big"),
        "in the order of the flavor"
    );
    cluster.run(&["vm", "revert-resize", "a"]);
    assert_eq!(namespaces(&cluster, "a", "h1"), before);
    let there: Vec<&str> = there.iter().map(String::as_str).collect();
    erased(&cluster, "h2", &there);
    cluster.run(&["vm", "resize", "a", "--flavor", "both", "--host", "h2"]);
    cluster.run(&["vm", "confirm-resize", "a"]);
    assert_eq!(namespaces(&cluster, "a", "h2")[0], "big");
    erased(&cluster, "h1", &["s0", "s1", "big"]);
    verdict::holds(&cluster);
}

/// Nova's scenario 12: the same on the host where it is.
#[test]
fn nova_12_a_resize_on_the_same_host_holds_both_sets_until_it_is_settled() {
    let cluster = start([mixed("h1")]);
    let _ = boot(&cluster, "a", "small", "h1").with_status(0);
    let before = namespaces(&cluster, "a", "h1");
    cluster.run(&["vm", "resize", "a", "--flavor", "both", "--host", "h1"]);
    // Neither of the two sets may be given to anybody.
    let _ = boot(&cluster, "b", "small", "h1").refused(1);
    cluster.run(&["vm", "revert-resize", "a"]);
    assert_eq!(namespaces(&cluster, "a", "h1"), before);
    erased(&cluster, "h1", &["big"]);
    cluster.run(&["vm", "resize", "a", "--flavor", "both", "--host", "h1"]);
    cluster.run(&["vm", "confirm-resize", "a"]);
    let after = namespaces(&cluster, "a", "h1");
    assert_eq!(after.len(), 2);
    assert!(!after.contains(&before[0]), "{before:?} {after:?}");
    erased(&cluster, "h1", &[&before[0]]);
    verdict::holds(&cluster);
}

/// Goal: contents travel with the guest, to namespaces of the same size; the source's are erased. What
/// is rolled back is erased on the destination. Post-copy is not for such guests.
#[test]
fn a_live_migration_claims_like_namespaces_and_erases_what_it_leaves() {
    // The first SMALL of h2 has another size: only the second one will do.
    let other = [("s0", 2048, 0), ("t1", 1024, 1)];
    let cluster = start([
        mixed("h1"),
        Host::new("h2").with_pmem(&other, "SMALL:s0|t1"),
    ]);
    let _ = boot(&cluster, "a", "small", "h1").with_status(0);
    let source = namespaces(&cluster, "a", "h1").remove(0);
    let post_copy = ["vm", "migrate", "a", "--host", "h2", "--post-copy"];
    let _ = cluster
        .berth(&post_copy)
        .refused(1)
        .saying(&["its persistent memory"]);
    cluster.happens("h2", "refuse prepare 1");
    let _ = cluster
        .berth(&["vm", "migrate", "a", "--host", "h2"])
        .refused(1);
    assert_eq!(namespaces(&cluster, "a", "h1"), [source.as_str()]);
    erased(&cluster, "h2", &["t1"]);
    cluster.run(&["vm", "migrate", "a", "--host", "h2"]);
    assert_eq!(namespaces(&cluster, "a", "h2"), ["t1"]);
    erased(&cluster, "h1", &[&source]);
    assert!(
        written(&cluster, "h2")["t1"].is_string(),
        "it came with the guest"
    );
    // Nothing on h1 is as large as what it has now, were it the other one.
    let _ = boot(&cluster, "b", "small", "h2").with_status(0);
    assert_eq!(namespaces(&cluster, "b", "h2"), ["s0"]);
    let refused = cluster
        .berth(&["vm", "migrate", "b", "--host", "h1"])
        .refused(1);
    let _ = refused.saying(&["2147483648 bytes"]);
    verdict::holds(&cluster);
}

/// Goal: stopping keeps contents; a rebuild, a cold migration and a shelving do not.
#[test]
fn what_keeps_contents_and_what_does_not() {
    let cluster = start([mixed("h1"), mixed("h2")]);
    let _ = boot(&cluster, "a", "small", "h1").with_status(0);
    let first = namespaces(&cluster, "a", "h1").remove(0);
    cluster.run(&["vm", "stop", "a"]);
    assert!(
        written(&cluster, "h1")[&first].is_string(),
        "it is the VM's"
    );
    cluster.run(&["vm", "rebuild", "a"]);
    assert_eq!(
        written(&cluster, "h1")[&first],
        Value::Null,
        "rebuilt while it was off"
    );
    assert_eq!(namespaces(&cluster, "a", "h1"), [first.as_str()]);
    cluster.run(&["vm", "start", "a"]);
    assert!(written(&cluster, "h1")[&first].is_string());
    cluster.run(&["vm", "migrate", "a", "--cold", "--host", "h2"]);
    erased(&cluster, "h1", &[&first]);
    let second = namespaces(&cluster, "a", "h2").remove(0);
    cluster.run(&["vm", "shelve", "a"]);
    erased(&cluster, "h2", &[&second]);
    cluster.run(&["vm", "unshelve", "a", "--host", "h1"]);
    assert_eq!(namespaces(&cluster, "a", "h1").len(), 1);
    cluster.run(&["vm", "delete", "a"]);
    erased(&cluster, "h1", &["s0", "s1"]);
    verdict::holds(&cluster);
}

/// Goal: near the guest's cell 0 if that is possible; required means refused otherwise.
#[test]
fn namespaces_are_near_the_guests_first_cell() {
    let both_far = [("f0", 1024, 1), ("f1", 1024, 1)];
    let cluster = start([
        mixed("h1"),
        Host::new("h2").with_pmem(&both_far, "SMALL:f0|f1"),
    ]);
    let required = "hw:pmem_numa_policy=required";
    flavor(&cluster, "near", &["hw:pmem=SMALL", required]);
    flavor(&cluster, "pair", &["hw:pmem=SMALL,SMALL", required]);
    let home = |vm: &str, host: &str| {
        let shown = cluster.json(&["vm", "show", vm]);
        assert_eq!(shown["vm"]["host"], host);
        shown["claims"][0]["assignment"]["cells"][0]["host_cell"].as_u64()
    };
    for (vm, expected) in [("a", 0), ("b", 1)] {
        let _ = boot(&cluster, vm, "near", "h1").with_status(0);
        let given = namespaces(&cluster, vm, "h1").remove(0);
        let cell = u64::from(given == "s1");
        assert_eq!(home(vm, "h1"), Some(cell), "{vm}: {given}, {expected}");
    }
    cluster.run(&["vm", "delete", "a"]);
    cluster.run(&["vm", "delete", "b"]);
    erased(&cluster, "h1", &["s0", "s1"]);
    let refused = boot(&cluster, "c", "pair", "h1").refused(1);
    let _ = refused.saying(&["hw:pmem_numa_policy=required"]);
    let _ = boot(&cluster, "c", "pair", "h2").with_status(0);
    assert_eq!(home("c", "h2"), Some(1));
    let _ = boot(&cluster, "d", "twice", "h1").with_status(0);
    assert_eq!(namespaces(&cluster, "d", "h1").len(), 2);
    verdict::holds(&cluster);
}

/// Goal: an agent that is killed in the middle of an erase begins it anew; one that fails is tried
/// again, quarantined in the end, and free once it works.
#[test]
fn an_erase_survives_its_agent_and_is_tried_until_it_works() {
    let mut cluster = start([mixed("h1")]);
    let _ = boot(&cluster, "a", "both", "h1").with_status(0);
    cluster.happens("h1", "hold erase");
    cluster.run(&["vm", "delete", "a"]);
    cluster.agents[0].kill();
    let _ = boot(&cluster, "b", "big", "h1").refused(1);
    start_agent(&mut cluster);
    assert_eq!(releasing(&cluster, "h1").len(), 1);
    cluster.happens("h1", "refuse erase 1");
    cluster.happens("h1", "let erase");
    eventually("a failure is told", || {
        let left = releasing(&cluster, "h1");
        let erasures = left.iter().flat_map(|claim| claim["erasures"].as_object());
        let mut failures = erasures
            .flat_map(|e| e.values())
            .map(|e| e["failures"].as_u64());
        let found = failures.any(|count| count == Some(1));
        found.then_some(()).ok_or(format!("{left:#?}"))
    });
    erased(&cluster, "h1", &["big", "s0", "s1"]);
    let _ = boot(&cluster, "b", "big", "h1").with_status(0);
    verdict::holds(&cluster);
}

/// Goal: a dead host's namespaces stay to be erased until its agent is back and has done it.
#[test]
fn what_an_evacuated_guest_had_is_erased_when_its_host_is_back() {
    let mut cluster = start([mixed("h1"), mixed("h2")]);
    let _ = boot(&cluster, "a", "small", "h1").with_status(0);
    let first = namespaces(&cluster, "a", "h1").remove(0);
    cluster.agents[0].kill();
    fs::write(cluster.folder().join("fence.sh"), "echo off\n").unwrap();
    cluster.run(&["host", "fence", "h1"]);
    cluster.run(&["vm", "evacuate", "a", "--host", "h2"]);
    let _ = namespaces(&cluster, "a", "h2");
    assert_eq!(releasing(&cluster, "h1").len(), 1);
    assert!(written(&cluster, "h1")[&first].is_string());
    start_agent(&mut cluster);
    erased(&cluster, "h1", &[&first]);
    verdict::holds(&cluster);
}

/// Goal: a namespace that a VM has cannot leave the configuration: the agent does not start, and says
/// whose it is. What is configured and is not there stops it too.
#[test]
fn an_agent_does_not_start_without_the_namespaces_that_are_used() {
    let mut cluster = start([mixed("h1")]);
    let _ = boot(&cluster, "a", "small", "h1").with_status(0);
    let given = namespaces(&cluster, "a", "h1").remove(0);
    let config = cluster.folder().join("h1.toml");
    let text = fs::read_to_string(&config).unwrap();
    let without = format!("pmem_namespaces = {:?}", "4GB:big");
    let with = format!("pmem_namespaces = {MIXED_OPTION:?}");
    assert!(text.contains(&with));
    cluster.agents[0].kill();
    let says = |cluster: &mut Cluster, option: &str, status, words: &[&str]| {
        fs::write(&config, text.replace(&with, option)).unwrap();
        let Cluster {
            agents, programs, ..
        } = cluster;
        let said = agents[0].fails(programs, status);
        for word in words {
            assert!(said.contains(word), "{word:?} is not said: {said}");
        }
    };
    says(
        &mut cluster,
        &without,
        1,
        &[&given, "vm a", "pmem_namespaces"],
    );
    let absent = format!("pmem_namespaces = {:?}", "4GB:big,small:s0|s1|s9");
    says(&mut cluster, &absent, 1, &["s9"]);
    let twice = format!("pmem_namespaces = {:?}", "4GB:big,small:s0|s1|big");
    says(&mut cluster, &twice, 2, &["big"]);
    fs::write(&config, &text).unwrap();
    start_agent(&mut cluster);
    assert_eq!(namespaces(&cluster, "a", "h1"), [given.as_str()]);
    assert_eq!(counted(&cluster, "h1", "CUSTOM_PMEM_NAMESPACE_SMALL").0, 2);
    verdict::holds(&cluster);
}

/// Goal: a namespace that is lost for good while a VM has it is written off: its agent starts without
/// it, the VM is told and can be deleted, the others go on; and should it come back, it is erased
/// before anybody is given it.
#[test]
fn a_namespace_that_is_lost_for_good_is_written_off() {
    let mut cluster = start([mixed("h1")]);
    let _ = boot(&cluster, "a", "small", "h1").with_status(0);
    let lost = namespaces(&cluster, "a", "h1").remove(0);
    let write_off = ["host", "pmem", "write-off", "h1", &lost];
    let _ = cluster
        .berth(&write_off)
        .refused(1)
        .saying(&["PMEM_NAMESPACE_WORKS"]);
    cluster.agents[0].kill();
    let files = ["h1.toml", "h1-machine.toml"].map(|name| cluster.folder().join(name));
    let texts = files.clone().map(|file| fs::read_to_string(file).unwrap());
    let other = if lost == "s0" { "s1" } else { "s0" };
    let without = texts[0].replace("small:s0|s1", &format!("small:{other}"));
    let name = format!("name = {lost:?}\n");
    let machine = texts[1]
        .split("[[pmem]]\n")
        .filter(|part| !part.starts_with(&name));
    let machine: Vec<_> = machine.collect();
    fs::write(&files[1], machine.join("[[pmem]]\n")).unwrap();
    let programs = cluster.programs.clone();
    let with = cluster.agents[0].fails(&programs, 1);
    assert!(with.contains(&lost), "{with}");
    fs::write(&files[0], &without).unwrap();
    let refused = cluster.agents[0].fails(&programs, 1);
    assert!(refused.contains("berth host pmem write-off"), "{refused}");

    // It counts as down at once, rather than after the liveness limit.
    fs::write(cluster.folder().join("fence.sh"), "echo off\n").unwrap();
    cluster.run(&["host", "fence", "h1"]);
    cluster.run(&write_off);
    start_agent(&mut cluster);
    eventually("the fence is lifted", || {
        let shown = cluster.ask(&["host", "show", "h1"])?["host"]["fenced"].clone();
        shown.is_null().then_some(()).ok_or(shown.to_string())
    });
    let class = "CUSTOM_PMEM_NAMESPACE_SMALL";
    assert_eq!(counted(&cluster, "h1", class).0, 1);
    let _ = boot(&cluster, "b", "small", "h1").with_status(0);
    cluster.run(&["vm", "delete", "a"]);
    assert_eq!(releasing(&cluster, "h1").len(), 1);

    cluster.agents[0].kill();
    for (file, text) in files.iter().zip(&texts) {
        fs::write(file, text).unwrap();
    }
    start_agent(&mut cluster);
    erased(&cluster, "h1", &[&lost]);
    let _ = boot(&cluster, "c", "small", "h1").with_status(0);
    assert_eq!(namespaces(&cluster, "c", "h1"), [lost]);
    verdict::holds(&cluster);
}
