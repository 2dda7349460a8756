//! Goal: what the failure of a host would mean is proven by a plan, the plan comes true, and new guests
//! leave room for it where the policy says so.
//!
//! Method: for what dies, real processes on loopback with simulated hypervisors; for the rest a whole
//! Berth in this process. The real command asks.

use std::collections::BTreeMap;

use berth_tests::processes::{Answer, Cluster, Host, eventually, verdict};
use berth_tests::small::{Small, text};
use serde_json::Value;

use crate::PROGRAMS;

/// The status of `berth verify` where the answer is no.
const NO: i32 = 4;

/// Returns what `berth verify` told that says no.
fn no(answer: Answer) -> Value {
    serde_json::from_str(&answer.with_status(NO).stdout).expect("JSON")
}

/// Returns the plan of a failure: VM and host.
fn plan(judged: &Value) -> BTreeMap<String, String> {
    let plan = judged["plan"].as_array().expect("a plan").iter();
    plan.map(|step| (text(&step["vm"]), text(&step["host"])))
        .collect()
}

/// Four hosts, and flavors of one, two and three dedicated CPUs.
fn four_hosts() -> Cluster {
    let mut builder = Cluster::builder(PROGRAMS).schedulers(1).conductors(1);
    for name in ["h1", "h2", "h3", "h4"] {
        builder = builder.host(Host::new(name));
    }
    let mut cluster = builder.start();
    cluster.wait();
    for (flavor, vcpus) in [("one", 1), ("two", 2), ("three", 3)] {
        cluster.pinned_flavor(flavor, vcpus);
    }
    cluster
}

/// Ends the agent of the first host, and fences the host.
fn fence_first(cluster: &mut Cluster) {
    cluster.agents[0].kill();
    let script = cluster.folder().join("fence.sh");
    std::fs::write(&script, "echo \"$1 is off\"\n").unwrap();
    cluster.run(&["host", "fence", "h1"]);
}

/// Goal: the plan is the only one that there is, and `berth host evacuate` follows it, though each
/// guest alone would have gone elsewhere. Method: six CPUs are left on three hosts, in pieces of
/// three, two and one, for guests of these sizes.
#[test]
fn the_vms_of_a_dead_host_come_up_where_the_plan_had_them() {
    let mut cluster = four_hosts();
    for (vm, flavor, host) in [
        ("f2", "three", "h2"),
        ("f3", "three", "h3"),
        ("g3", "one", "h3"),
        ("f4", "three", "h4"),
        ("g4", "two", "h4"),
        ("c", "three", "h1"),
        ("b", "two", "h1"),
        ("a", "one", "h1"),
    ] {
        let _ = cluster.boot(vm, flavor, host);
    }
    let judged = cluster.json(&["verify", "h1"]);
    let wanted = [("a", "h4"), ("b", "h3"), ("c", "h2")];
    let wanted = wanted.map(|(vm, host)| (vm.to_owned(), host.to_owned()));
    assert_eq!(
        plan(&judged["domains"][0]),
        wanted.clone().into(),
        "{judged:#}"
    );

    // One more guest anywhere, and there is no way any more: that is told with the numbers.
    cluster.run(&[&Cluster::create("d", "one")[..], &["--host", "h4"]].concat());
    let answer = cluster.berth(&["verify", "h1"]);
    let refuted = no(answer);
    let domain = &refuted["domains"][0];
    assert_eq!(domain["verdict"], "refuted", "{refuted:#}");
    assert!(
        text(&domain["reason"]["message"]).contains("h1"),
        "{refuted:#}"
    );
    cluster.run(&["vm", "delete", "d"]);

    fence_first(&mut cluster);
    let moved = cluster.json(&["host", "evacuate", "h1"]);
    let came: BTreeMap<String, String> = moved["moved"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|moved| (text(&moved["vm"]), text(&moved["host"])))
        .collect();
    assert_eq!(came, wanted.into(), "{moved:#}");
    let programs = &cluster.programs;
    cluster.agents[0].start(programs);
    eventually("the fence is lifted", || {
        let shown = cluster.ask(&["host", "show", "h1"])?;
        let fenced = shown["host"]["fenced"].clone();
        fenced.is_null().then_some(()).ok_or(format!("{fenced}"))
    });
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}

/// Goal: members of an affinity group leave a dead host together, to one that has room for all of them.
/// Method: the first of them alone fits on each host, and best on the one where the second does not.
#[test]
fn an_affinity_group_leaves_a_dead_host_together() {
    let mut cluster = four_hosts();
    cluster.run(&["server-group", "create", "pair", "--policy", "affinity"]);
    for (vm, flavor, host) in [
        ("f2", "three", "h2"),
        ("f3", "three", "h3"),
        ("f4", "three", "h4"),
        ("g4", "two", "h4"),
        ("c", "three", "h1"),
    ] {
        let _ = cluster.boot(vm, flavor, host);
    }
    for (vm, flavor) in [("a", "one"), ("b", "two")] {
        let more = ["--host", "h1", "--server-group", "pair"];
        cluster.run(&create(vm, flavor, &more));
    }
    let judged = cluster.json(&["verify", "h1"]);
    let planned = plan(&judged["domains"][0]);
    assert_eq!(planned["a"], planned["b"], "{judged:#}");

    fence_first(&mut cluster);
    let moved = cluster.json(&["host", "evacuate", "h1"]);
    let host = |vm: &str| text(&cluster.json(&["vm", "show", vm])["vm"]["host"]);
    assert_eq!(host("a"), planned["a"], "{moved:#}");
    assert_eq!(host("b"), planned["a"], "{moved:#}");
    assert_eq!(host("c"), planned["c"], "{moved:#}");
    let group = cluster.json(&["server-group", "show", "pair"]);
    assert!(group["separated_at"].is_null(), "{group:#}");
}

fn create<'a>(vm: &'a str, flavor: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let kernel = ["--kernel", "vmlinuz", "--initrd", "initrd.gz"];
    let words = ["vm", "create", vm, "--flavor", flavor];
    [&words[..], &kernel, more].concat()
}

/// Goal: guests are let in up to where a failure would not be survived any more and not beyond; with
/// `warn` that is told; and what is kept free is there for those that need it.
#[test]
fn new_guests_leave_room_for_those_of_a_host_that_dies() {
    let world = Small::with_hosts(PROGRAMS, 3);
    let size = ["--vcpus", "2", "--memory-mib", "64"];
    let spec = ["--spec", "hw:cpu_policy=dedicated"];
    world.done(&[&["flavor", "create", "two"][..], &size, &spec].concat());
    world.done(&["policy", "set", "failover.admission=refuse"]);
    let mut booted = 0;
    let refused = loop {
        let name = format!("vm{booted}");
        let answer = world.berth(&create(&name, "two", &[]));
        if answer.status == Some(0) {
            booted += 1;
            assert!(booted < 100, "somebody has to be refused");
            continue;
        }
        let told: Value = serde_json::from_str(&answer.refused(1).stderr).unwrap();
        break told["error"].clone();
    };
    assert_eq!(text(&refused["reason"]), "FAILOVER_CAPACITY", "{refused:#}");
    assert!(booted > 0, "there is room for some");
    let verified = world.done(&["verify"]);
    assert_eq!(verified["ok"], true, "{verified:#}");
    // It is refused for the sake of the failure alone.
    world.done(&["policy", "set", "failover.admission=warn"]);
    let asked = world.done(&create("more", "two", &["--validate-only"]));
    let warnings = asked["warnings"].as_array().expect("a list");
    assert!(text(&warnings[0]).contains("could not fail"), "{asked:#}");
    world.done(&create("more", "two", &[]));
    let verified = no(world.berth(&["verify"]));
    assert_eq!(verified["ok"], false, "{verified:#}");
    // What is there is moved about as ever.
    world.done(&["policy", "set", "failover.admission=refuse"]);
    world.done(&["vm", "delete", "vm0"]);
    world.done(&["vm", "migrate", "more"]);
}

/// Goal: guests that all sit on one host are spread by live migration, but for those that are to be
/// left alone; then there is nothing more to do.
#[test]
fn guests_are_spread_by_the_plan_and_pinned_ones_stay() {
    let world = Small::with_hosts(PROGRAMS, 3);
    let size = ["--vcpus", "1", "--memory-mib", "2048"];
    let alone = ["--spec", "berth:auto_balance=false"];
    world.done(&[&["flavor", "create", "one"][..], &size].concat());
    world.done(&[&["flavor", "create", "fixed"][..], &size, &alone].concat());
    world.done(&["policy", "set", "failover.admission=refuse"]);
    let hosts = world.done(&["host", "list"]);
    let first = text(&hosts[0]["host"]["name"]);
    for (vm, flavor) in [("a", "one"), ("b", "one"), ("c", "fixed"), ("d", "one")] {
        world.done(&create(vm, flavor, &["--host", &first]));
    }
    let before = world.done(&["score"])["score"].as_f64().unwrap();
    let told = world.done(&["balance"]);
    assert!(!told["moves"].as_array().unwrap().is_empty(), "{told:#}");
    assert_eq!(world.done(&["score"])["score"].as_f64(), Some(before));
    let done = world.done(&["balance", "--execute", "--yes"]);
    let after = world.done(&["score"])["score"].as_f64().unwrap();
    assert!(after < before, "{done:#}");
    let promised = done["score_after"].as_f64().unwrap();
    assert!((after - promised).abs() < 1e-6, "{after}, not {promised}");
    let on_first = |vm: &str| text(&world.done(&["vm", "show", vm])["vm"]["host"]) == first;
    assert!(on_first("c"), "it is left alone");
    assert!(
        ["a", "b", "d"]
            .into_iter()
            .filter(|vm| on_first(vm))
            .count()
            < 2
    );
    let again = world.done(&["balance"]);
    assert_eq!(again["moves"].as_array().unwrap().len(), 0, "{again:#}");
}

/// Goal: what cannot be answered is refused with what is wrong, and no plan is made.
#[test]
fn questions_that_make_no_sense_are_refused() {
    let world = Small::with_hosts(PROGRAMS, 1);
    let refused = |words: &[&str], reason: &str| {
        let told = world.refused(words);
        assert_eq!(text(&told["reason"]), reason, "{words:?}: {told:#}");
        text(&told["message"])
    };
    refused(&["verify", "nowhere"], "HOST_NOT_FOUND");
    refused(
        &["verify", "--zones", "nowhere"],
        "AVAILABILITY_ZONE_NOT_FOUND",
    );
    refused(
        &["verify", "--aggregates", "nowhere"],
        "AGGREGATE_NOT_FOUND",
    );
    refused(&["verify", "--budget", "100000001"], "INVALID_FIELD");
    refused(&["capacity", "nothing"], "FLAVOR_NOT_FOUND");
    refused(&["balance", "--room-for", "nothing"], "FLAVOR_NOT_FOUND");
    refused(&["balance", "--gain-min=-1"], "INVALID_BALANCE");
    refused(&["balance", "--usage=nan"], "INVALID_BALANCE");
    world.done(&[
        "flavor",
        "create",
        "huge",
        "--vcpus",
        "1",
        "--memory-mib",
        "65536",
    ]);
    let told = refused(&["capacity", "huge", "--ratio", "0.5"], "INVALID_FIELD");
    assert!(told.contains("1000 to 16000"), "{told}");
    let told = refused(&["balance", "--room-for", "huge"], "NO_ROOM_CAN_BE_MADE");
    assert!(told.contains("huge"), "{told}");
    let fits = world.done(&["capacity", "huge"]);
    assert_eq!(fits["ratios"][0]["vms"], 0, "{fits:#}");
    assert!(fits["ratios"][0]["limiting"].is_string(), "{fits:#}");
}

/// Goal: how many fit is how many come; at a ratio of 2 twice as many.
#[test]
fn as_many_fit_as_are_told() {
    let world = Small::with_hosts(PROGRAMS, 2);
    world.done(&[
        "flavor",
        "create",
        "big",
        "--vcpus",
        "1",
        "--memory-mib",
        "6000",
    ]);
    let told = world.done(&[
        "capacity", "big", "--ratio", "1", "--ratio", "2", "--tiered",
    ]);
    let [now, twice] = [0, 1].map(|at| told["ratios"][at].clone());
    assert_eq!(
        (&now["vms"], &twice["vms"]),
        (&4.into(), &10.into()),
        "{told:#}"
    );
    assert_eq!(now["vms_after_failure"], 2, "{told:#}");
    assert!(now["tiers"].as_array().unwrap().len() > 1, "{told:#}");
    for number in 0..4 {
        world.done(&create(&format!("vm{number}"), "big", &[]));
    }
    let refused = world.refused(&create("more", "big", &[]));
    assert_eq!(text(&refused["reason"]), "NO_VALID_HOST", "{refused:#}");
    assert_eq!(world.done(&["capacity", "big"])["ratios"][0]["vms"], 0);
}

/// Goal: room is made for a guest that fits nowhere, by the moves that are told, and it boots then.
#[test]
fn room_is_made_for_a_guest_that_fits_nowhere() {
    let world = Small::with_hosts(PROGRAMS, 2);
    for (name, mib) in [("half", "8192"), ("small", "4096"), ("most", "12288")] {
        world.done(&[
            "flavor",
            "create",
            name,
            "--vcpus",
            "1",
            "--memory-mib",
            mib,
        ]);
    }
    let hosts = world.done(&["host", "list"]);
    for (vm, at) in [("a", 0), ("b", 1)] {
        let host = text(&hosts[at]["host"]["name"]);
        world.done(&create(vm, "half", &["--host", &host]));
    }
    let refused = world.refused(&create("c", "most", &[]));
    assert_eq!(text(&refused["reason"]), "NO_VALID_HOST", "{refused:#}");
    let done = world.done(&["balance", "--room-for", "most", "--execute", "--yes"]);
    assert_eq!(done["moves"].as_array().unwrap().len(), 1, "{done:#}");
    world.done(&create("c", "most", &[]));
}

/// Goal: a resize is admitted like a boot of its new size, and what waits to be confirmed is not told
/// to be evacuable.
#[test]
fn a_resize_leaves_room_too_and_is_not_evacuated_before_it_is_confirmed() {
    let world = Small::with_hosts(PROGRAMS, 3);
    for (name, mib) in [("five", "5000"), ("two", "2000"), ("fifteen", "15000")] {
        world.done(&[
            "flavor",
            "create",
            name,
            "--vcpus",
            "1",
            "--memory-mib",
            mib,
        ]);
    }
    let hosts = world.done(&["host", "list"]);
    let host = |at: usize| text(&hosts[at]["host"]["name"]);
    for (vm, flavor, at) in [("x1", "five", 0), ("x2", "five", 1), ("r", "two", 0)] {
        world.done(&create(vm, flavor, &["--host", &host(at)]));
    }
    world.done(&["policy", "set", "failover.admission=refuse"]);
    let refused = world.refused(&create("q", "fifteen", &[]));
    assert_eq!(text(&refused["reason"]), "FAILOVER_CAPACITY", "{refused:#}");
    let resize = ["vm", "resize", "r", "--flavor", "fifteen"];
    let refused = world.refused(&resize);
    assert_eq!(text(&refused["reason"]), "FAILOVER_CAPACITY", "{refused:#}");
    world.done(&["policy", "set", "failover.admission=off"]);
    world.done(&["vm", "resize", "r", "--flavor", "five"]);
    let at = text(&world.done(&["vm", "show", "r"])["vm"]["host"]);
    let told = no(world.berth(&["verify", &at]));
    let why = text(&told["domains"][0]["reason"]["message"]);
    assert!(why.contains("its resize waits"), "{told:#}");
    world.done(&["vm", "confirm-resize", "r"]);
    let told = world.done(&["verify", &at]);
    assert_eq!(told["domains"][0]["verdict"], "proven", "{told:#}");
}
