//! Scenario 28: guests with PCI functions through every kind of move; who has which function, what
//! is claimed and what runs agree after each.

use std::collections::BTreeMap;

use berth_tests::processes::{Cluster, Host, eventually};
use serde_json::Value;

use super::stage::Stage;

const HOSTS: [&str; 3] = ["h1", "h2", "h3"];
const RULE: &str = "[[pci.device_spec]]\nproduct_id = \"1533\"\n";

fn stage() -> Stage {
    let function = |number: u32| {
        format!(
            "[[pci]]\naddress = \"0000:81:00.{number}\"\nvendor = \"8086\"\ndevice = \"1533\"\n\
             numa_node = {number}\n"
        )
    };
    let both = [function(0), function(1)].concat();
    let hosts = HOSTS.map(|name| Host::new(name).with_pci(&both, RULE));
    let stage = Stage::with(hosts.into());
    let alias = ["pci-alias", "create", "nic", "--match", "product_id=1533"];
    stage
        .cluster
        .run(&[&alias[..], &["--policy", "preferred"]].concat());
    stage.cluster.pinned_flavor("none", 1);
    for (name, count) in [("one", 1), ("two", 2), ("three", 3)] {
        let alias = format!("pci_passthrough:alias=nic:{count}");
        let words = [
            "flavor",
            "create",
            name,
            "--vcpus",
            "1",
            "--memory-mib",
            "64",
        ];
        let specs = ["--spec", "hw:cpu_policy=dedicated", "--spec", &alias];
        stage.cluster.run(&[&words[..], &specs].concat());
    }
    stage
}

/// Returns how many functions are given away on each host that gives any.
#[track_caller]
fn given(stage: &Stage) -> BTreeMap<String, usize> {
    let count = |host: &str| {
        let claims = stage.claims(host);
        claims
            .iter()
            .flat_map(|c| c.assignment.pci.iter().flatten())
            .count()
    };
    let counts = HOSTS.map(|host| (host.to_owned(), count(host)));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Asserts that a VM is ACTIVE with one claim of so many functions, which are all that is given,
/// and returns its host.
#[track_caller]
fn has(stage: &Stage, vm: &str, count: usize) -> String {
    let shown = stage.cluster.json(&["vm", "show", vm]);
    let host = shown["vm"]["host"].as_str().expect("a host").to_owned();
    let _ = stage.cluster.pins_on(vm, &host);
    let expected = [(host.clone(), count)];
    let expected = expected.into_iter().filter(|(_, count)| *count > 0);
    assert_eq!(given(stage), expected.collect(), "{shown:#}");
    stage.holds();
    host
}

/// Cold migration, resize from one function to two, to none and back, reverted and confirmed,
/// shelving and unshelving.
#[test]
fn functions_follow_a_guest_that_is_moved_while_it_does_not_run() {
    let stage = stage();
    let run = |words: &[&str]| stage.cluster.run(words);
    run(&[&Cluster::create("g", "one")[..], &["--host", "h1"]].concat());
    assert_eq!(has(&stage, "g", 1), "h1");
    run(&["vm", "migrate", "g", "--cold", "--host", "h2"]);
    assert_eq!(has(&stage, "g", 1), "h2");

    let before = stage.claims("h2");
    run(&["vm", "resize", "g", "--flavor", "two"]);
    assert_eq!(given(&stage).values().sum::<usize>(), 3, "both are held");
    run(&["vm", "revert-resize", "g"]);
    assert_eq!(has(&stage, "g", 1), "h2");
    let after = stage.claims("h2");
    assert_eq!(
        after[0].assignment, before[0].assignment,
        "the very function"
    );
    run(&["vm", "resize", "g", "--flavor", "two"]);
    run(&["vm", "confirm-resize", "g"]);
    has(&stage, "g", 2);
    run(&["vm", "resize", "g", "--flavor", "none", "--no-verify"]);
    has(&stage, "g", 0);
    run(&["vm", "resize", "g", "--flavor", "one", "--no-verify"]);
    has(&stage, "g", 1);
    let refused = stage
        .cluster
        .berth(&["vm", "resize", "g", "--flavor", "three"]);
    let _ = refused.refused(1).saying(&["NO_VALID_HOST", "PCI_DEVICES"]);
    has(&stage, "g", 1);

    run(&["vm", "shelve", "g"]);
    assert_eq!(given(&stage), BTreeMap::new());
    for host in HOSTS {
        let name = format!("x-{host}");
        run(&[&Cluster::create(&name, "two")[..], &["--host", host]].concat());
    }
    let refused = stage.cluster.berth(&["vm", "unshelve", "g"]).refused(1);
    let _ = refused.saying(&["NO_VALID_HOST", "PCI_DEVICES"]);
    for host in HOSTS {
        run(&["vm", "delete", &format!("x-{host}")]);
    }
    run(&["vm", "unshelve", "g"]);
    has(&stage, "g", 1);
}

/// Goal: a drain stops only the guests that cannot move while they run, and only where that is
/// permitted. Method: one guest with a function that is not live-migratable, and one without.
#[test]
fn a_drain_stops_who_cannot_move_live_only_if_permitted() {
    let stage = stage();
    for (vm, flavor) in [("g", "one"), ("live", "none")] {
        stage
            .cluster
            .run(&[&Cluster::create(vm, flavor)[..], &["--host", "h1"]].concat());
    }
    let drain = ["host", "drain", "h1"];
    let stayed = stage.cluster.berth(&drain).with_status(1);
    let _ = stayed.saying(&["VMS_STAY", "berth host drain h1 --cold"]);
    let host = |vm: &str| stage.cluster.json(&["vm", "show", vm])["vm"]["host"].clone();
    assert_eq!(host("g"), "h1");
    assert_ne!(host("live"), "h1");
    stage.cluster.run(&["host", "uncordon", "h1"]);
    stage
        .cluster
        .run(&["vm", "migrate", "live", "--host", "h1"]);

    let drained = stage.cluster.json(&[&drain[..], &["--cold"]].concat());
    let how = |vm: &str| {
        let plan = drained["plan"].as_array().expect("a plan");
        let planned = plan.iter().find(|planned| planned["vm"] == vm);
        planned.expect("it is planned")["how"].clone()
    };
    assert_eq!(how("g"), "stopped");
    assert_eq!(how("live"), "while it runs");
    for vm in ["g", "live"] {
        let shown = stage.cluster.json(&["vm", "show", vm]);
        assert_ne!(shown["vm"]["host"], "h1", "{shown:#}");
        assert_eq!(shown["vm"]["state"], "Active", "{shown:#}");
    }
    stage.holds();
}

/// Evacuation: the functions of the dead host are nobody's, and when it is back, free.
#[test]
fn functions_of_a_dead_host_are_had_elsewhere() {
    let mut stage = stage();
    stage
        .cluster
        .run(&[&Cluster::create("g", "two")[..], &["--host", "h1"]].concat());
    stage.cluster.agents[0].kill();
    eventually("h1 is not heard of", || {
        let host = stage.cluster.ask(&["host", "show", "h1"])?["host"]["liveness"].clone();
        (host == "Down").then_some(()).ok_or(format!("{host}"))
    });
    stage.cluster.run(&["host", "fence", "h1", "--confirm-off"]);
    stage.cluster.run(&["vm", "evacuate", "g"]);
    let shown = stage.cluster.json(&["vm", "show", "g"]);
    assert_ne!(shown["vm"]["host"], "h1", "{shown:#}");
    stage.cluster.agents[0].start(&stage.cluster.programs);
    eventually("the fence is lifted", || {
        let fenced = stage.cluster.ask(&["host", "show", "h1"])?["host"]["fenced"].clone();
        fenced.is_null().then_some(()).ok_or(format!("{fenced}"))
    });
    has(&stage, "g", 2);
    let create = Cluster::create("other", "two");
    stage
        .cluster
        .run(&[&create[..], &["--host", "h1"]].concat());
    assert_eq!(given(&stage).values().sum::<usize>(), 4);
    stage.holds();
}

/// A host that refuses a boot gives its functions back before the next one is asked; of many boots
/// at once as many succeed as there are functions.
#[test]
fn functions_are_given_back_when_a_boot_goes_elsewhere_and_never_given_twice() {
    let stage = stage();
    stage.cluster.run(&["host", "cordon", "h3"]);
    let load = Cluster::create("load", "none");
    stage.cluster.run(&[&load[..], &["--host", "h2"]].concat());
    stage.cluster.happens("h1", "refuse create 1");
    stage.cluster.run(&Cluster::create("g", "two"));
    assert_eq!(has(&stage, "g", 2), "h2", "h1 was less used, and refused");
    stage.cluster.run(&["vm", "delete", "g"]);
    stage.cluster.run(&["host", "uncordon", "h3"]);

    let names: Vec<String> = (0..9).map(|number| format!("m{number}")).collect();
    let outcomes: Vec<Option<i32>> = std::thread::scope(|scope| {
        let boot = |name: &String| {
            let words: Vec<String> = Cluster::create(name, "one")
                .iter()
                .map(|w| (*w).to_owned())
                .collect();
            let cluster = &stage.cluster;
            scope.spawn(move || {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                cluster.berth(&words).status
            })
        };
        let boots: Vec<_> = names.iter().map(boot).collect();
        boots
            .into_iter()
            .map(|boot| boot.join().expect("an answer"))
            .collect()
    });
    let booted = outcomes.iter().filter(|status| **status == Some(0)).count();
    assert_eq!(booted, 6, "{outcomes:?}");
    assert!(given(&stage).values().all(|count| *count == 2));
    stage.holds();
    let vms = stage.cluster.json(&["vm", "list"]);
    let left = vms
        .as_array()
        .map(|vms| vms.iter().filter(|v| v["state"] != "Active").count());
    assert_eq!(left, Some(0), "nothing is left of those refused: {vms:#}");
    // Two where one is left.
    let first = outcomes.iter().position(|status| *status == Some(0));
    stage
        .cluster
        .run(&["vm", "delete", &names[first.expect("one that runs")]]);
    let is_there = |vms: &Value| vms.as_array().map_or(0, Vec::len);
    let before = is_there(&stage.cluster.json(&["vm", "list"]));
    let refused = stage
        .cluster
        .berth(&Cluster::create("last", "two"))
        .refused(1);
    let _ = refused.saying(&["NO_VALID_HOST", "PCI_DEVICES"]);
    assert_eq!(is_there(&stage.cluster.json(&["vm", "list"])), before);
}
