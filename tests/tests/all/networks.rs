//! Goal: a VM on a network of the cluster runs on hosts that reach it, whatever their bridges are called, and
//! goes nowhere else, whatever moves it; what cannot be is refused with what is in the way. Networks outlive
//! restarts, and stay as long as a VM is on them.
//!
//! Method: real processes on loopback with simulated hypervisors: two hosts reach a physical network over
//! bridges of different names, one does not.

use std::fs;

use berth_tests::processes::{Cluster, Host};
use serde_json::{Value, json};

use crate::PROGRAMS;

fn cluster() -> Cluster {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1").with_network("physnet1", "br-one"))
        .host(Host::new("h2").with_network("physnet1", "br-two"))
        .host(Host::new("h3").with_network("physnet2", "br-three"))
        .start();
    cluster.wait();
    cluster.pinned_flavor("pinned", 1);
    let on_1 = ["--physical-network", "physnet1"];
    cluster.run(&[&["network", "create", "web", "--vlan", "120"][..], &on_1].concat());
    cluster.run(&[&["network", "create", "bulk", "--mtu", "9001"][..], &on_1].concat());
    cluster
}

/// Returns the arguments that create a VM on a network.
fn on<'a>(vm: &'a str, network: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let network = ["--network", network];
    [&Cluster::create(vm, "pinned")[..], &network, more].concat()
}

/// Returns the bridges that the hypervisor of a host records of a guest.
fn bridges(cluster: &Cluster, host: &str, vm: &str) -> Vec<String> {
    let text = fs::read_to_string(cluster.guests_file(host)).expect("the guests of a host");
    let guests: Value = serde_json::from_str(&text).expect("JSON");
    let mut bridges = Vec::new();
    collect(&guests, vm, &mut bridges);
    bridges
}

/// Finds the record of a guest, wherever it is in the file.
fn collect(value: &Value, vm: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if fields.get("vm") == Some(&json!(vm)) {
                let all = fields.get("bridges").and_then(Value::as_array);
                let names = all.into_iter().flatten();
                into.extend(names.map(|one| one["bridge"].as_str().expect("a name").to_owned()));
            } else {
                fields.values().for_each(|inner| collect(inner, vm, into));
            }
        }
        Value::Array(all) => all.iter().for_each(|inner| collect(inner, vm, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn host_of(cluster: &Cluster, vm: &str) -> String {
    let shown = cluster.json(&["vm", "show", vm]);
    shown["vm"]["host"].as_str().expect("a host").to_owned()
}

#[test]
fn vms_stay_on_hosts_that_reach_their_networks() {
    let cluster = cluster();
    // Chosen among the hosts that reach it, refused elsewhere, and by a bridge without the MTU.
    cluster.run(&on("a", "web", &["--host", "h1"]));
    assert_eq!(bridges(&cluster, "h1", "a"), ["br-one"]);
    for number in 0..3 {
        let name = format!("spread-{number}");
        cluster.run(&on(&name, "web", &[]));
        assert_ne!(host_of(&cluster, &name), "h3");
    }
    let _ = cluster
        .berth(&on("b", "web", &["--host", "h3"]))
        .refused(1)
        .saying(&["NETWORK_NOT_ON_HOST", "physnet1", "name no host"]);
    let _ = cluster.berth(&on("b", "bulk", &[])).refused(1).saying(&[
        "NETWORK_MTU_TOO_LARGE",
        "9001",
        "9000",
        "NETWORK_NOT_ON_HOST",
        "with an MTU of 9001 or more",
    ]);
    let _ = cluster
        .berth(&on("b", "absent", &[]))
        .refused(1)
        .saying(&["NETWORK_NOT_FOUND", "berth network list"]);

    // However it moves.
    let to = |host: &'static str| ["--host", host];
    let _ = cluster
        .berth(&[&["vm", "migrate", "a"][..], &to("h3")].concat())
        .refused(1)
        .saying(&["NETWORK_NOT_ON_HOST"]);
    cluster.run(&["vm", "migrate", "a"]);
    assert_eq!(host_of(&cluster, "a"), "h2");
    assert_eq!(bridges(&cluster, "h2", "a"), ["br-two"]);
    let _ = cluster
        .berth(&[&["vm", "migrate", "a", "--cold"][..], &to("h3")].concat())
        .refused(1)
        .saying(&["NETWORK_NOT_ON_HOST"]);
    cluster.run(&["vm", "migrate", "a", "--cold"]);
    assert_eq!(bridges(&cluster, "h1", "a"), ["br-one"]);
    cluster.run(&["vm", "stop", "a"]);
    cluster.run(&["vm", "start", "a"]);
    cluster.run(&["vm", "shelve", "a"]);
    cluster.run(&["vm", "unshelve", "a"]);
    assert_ne!(host_of(&cluster, "a"), "h3");
    cluster.run(&["host", "drain", "h1"]);
    assert_eq!(host_of(&cluster, "a"), "h2");
    assert_eq!(bridges(&cluster, "h2", "a"), ["br-two"]);
}

#[test]
fn networks_are_listed_shown_and_deleted_once_unused() {
    let mut cluster = cluster();
    let interfaces = [
        "--nic",
        "br0=52:54:00:00:00:01",
        "--network",
        "web=52:54:00:00:00:02",
    ];
    cluster.run(&on("a", "web", &interfaces));
    let shown = cluster.json(&["vm", "show", "a"]);
    let nics = shown["vm"]["spec"]["nics"].as_array().expect("interfaces");
    let link = json!({"physical_network": "physnet1", "vlan": 120});
    assert_eq!(nics.len(), 3);
    assert_eq!(
        nics[0],
        json!({"bridge": "br0", "mac": "52:54:00:00:00:01"})
    );
    for nic in &nics[1..] {
        assert_eq!(nic["network"], json!({"name": "web", "link": link}));
    }
    assert_eq!(nics[2]["mac"], "52:54:00:00:00:02");

    let web = json!({"name": "web", "physical_network": "physnet1", "vlan": 120, "host_count": 2, "vm_count": 1});
    let has = |value: &Value, expected: &Value| {
        for (key, value_of) in expected.as_object().expect("fields") {
            assert_eq!(&value[key], value_of, "{key} of {value:#}");
        }
    };
    let all = cluster.json(&["network", "list"]);
    let all = all.as_array().expect("a list");
    assert_eq!(all.len(), 2);
    has(
        &all[0],
        &json!({"name": "bulk", "mtu": 9001, "host_count": 0, "vm_count": 0}),
    );
    has(&all[1], &web);
    let one = cluster.json(&["network", "show", "web"]);
    has(&one, &web);
    assert_eq!(one["hosts"], json!(["h1", "h2"]));

    let _ = cluster
        .berth(&["network", "delete", "web"])
        .refused(1)
        .saying(&["NETWORK_IN_USE", "vm a is on it"]);
    let again = ["network", "create", "web", "--physical-network", "physnet2"];
    let _ = cluster.berth(&again).refused(1).saying(&["NETWORK_EXISTS"]);
    cluster.schedulers[0].kill();
    let programs = &cluster.programs;
    cluster.schedulers[0].start(programs);
    cluster.wait();
    has(&cluster.json(&["network", "show", "web"]), &web);
    cluster.run(&["vm", "delete", "a"]);
    cluster.run(&["network", "delete", "web"]);
    let _ = cluster
        .berth(&["network", "show", "web"])
        .refused(1)
        .saying(&["NETWORK_NOT_FOUND"]);
}
