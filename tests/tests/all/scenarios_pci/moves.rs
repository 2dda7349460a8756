//! Which guests with functions are moved while they run, and which function becomes which:
//! scenario 27 of Nova.

use std::collections::BTreeSet;

use berth_tests::processes::{Cluster, Host, verdict};
use serde_json::Value;

use super::bench::{alias, boot, delete, flavor, given, refused};
use crate::PROGRAMS;

/// Returns a card with three virtual functions, and a plain function beside it.
fn functions(bus: &str) -> String {
    let card = format!("0000:{bus}:00.0");
    let mut described = format!(
        "[[pci]]\naddress = \"0000:05:00.0\"\nvendor = \"8086\"\ndevice = \"1533\"\nnuma_node = 0\n\
         [[pci]]\naddress = \"{card}\"\nvendor = \"8086\"\ndevice = \"1572\"\nnuma_node = 1\n\
         sriov_totalvfs = 3\n"
    );
    for number in 0..3 {
        described += &format!(
            "[[pci]]\naddress = \"0000:{bus}:02.{number}\"\nvendor = \"8086\"\n\
             device = \"154c\"\nnuma_node = 1\nphysfn = \"{card}\"\n"
        );
    }
    described
}

fn rules(movable: bool) -> String {
    format!(
        "[[pci.device_spec]]\nproduct_id = \"154c\"\nlive_migratable = {movable}\n\
         [[pci.device_spec]]\nproduct_id = \"1533\"\n"
    )
}

fn cluster() -> Cluster {
    let host = |name, bus, movable| Host::new(name).with_pci(&functions(bus), &rules(movable));
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(host("h1", "82", true))
        .host(host("h2", "83", true))
        .host(host("h3", "84", false))
        .start();
    let vf = "product_id=154c,kind=vf";
    let movable = "product_id=154c,kind=vf,live_migratable=yes";
    alias(&cluster, "plain", None, &["product_id=1533"]);
    alias(&cluster, "quiet", Some("preferred"), &[vf]);
    alias(&cluster, "vf", Some("preferred"), &[movable]);
    alias(&cluster, "near", Some("required"), &[movable]);
    let pinned = "hw:cpu_policy=dedicated";
    for (name, asked) in [
        ("plain", "plain:1"),
        ("quiet", "quiet:1"),
        ("vf", "vf:1"),
        ("three", "vf:2,near:1"),
    ] {
        let asked = format!("pci_passthrough:alias={asked}");
        flavor(&cluster, name, 2, &[pinned, &asked]);
        flavor(&cluster, &format!("{name}-floating"), 1, &[&asked]);
    }
    cluster
}

/// Goal: the commands of the documentation do what it says. Method: they are typed, in order.
#[test]
fn the_documented_commands_work() {
    let host = |name, bus| Host::new(name).with_pci(&functions(bus), &rules(true));
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(host("h1", "82"))
        .host(host("h2", "83"))
        .start();
    let page = include_str!("../../../../docs/pci.md");
    let commands = page
        .lines()
        .filter_map(|line| line.strip_prefix("    berth "));
    let commands: Vec<&str> = commands.collect();
    assert_eq!(commands.len(), 8, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        let answer = cluster.berth(&words).with_status(0);
        if words[..2] == ["vm", "migrate"] {
            assert!(answer.stdout.contains("0000:83:02.0"), "{answer:#?}");
        }
    }
}

/// Goal: a move that cannot be is refused before anything is claimed; one that can be gives each
/// function a counterpart on the destination, and nothing is left behind.
#[test]
fn only_movable_functions_move() {
    let cluster = cluster();
    for flavor in ["plain", "plain-floating", "quiet"] {
        stays(&cluster, flavor);
    }
    // The alias wants movable functions, and the host has none.
    let told = boot(&cluster, "guest", "vf", "h3").unwrap_err();
    assert_eq!(told.causes, ["PCI_DEVICES"], "{told:?}");
    // Without that wish it boots there.
    let there = boot(&cluster, "guest", "quiet", "h3").unwrap();
    assert_eq!(there.functions, ["0000:84:02.0"]);
    delete(&cluster, "guest");

    // The first function of the destination is another guest's.
    let other = boot(&cluster, "other", "vf-floating", "h2").unwrap();
    assert_eq!(other.functions, ["0000:83:02.0"]);
    for flavor in ["vf", "vf-floating"] {
        let before = boot(&cluster, "guest", flavor, "h1").unwrap();
        assert_eq!(before.functions, ["0000:82:02.0"], "{flavor}");
        let answer = cluster.berth(&["vm", "migrate", "guest", "--host", "h3"]);
        let told = refused(answer);
        assert_eq!(told.causes, ["PCI_DEVICES"], "{told:?}");
        cluster.run(&["vm", "migrate", "guest", "--host", "h2"]);
        let after = given(&cluster, "guest", "h2");
        assert_eq!(after.functions, ["0000:83:02.1"], "{flavor}");
        assert_eq!(executed(&cluster, "guest", "h2"), [["0000:83:02.1"]]);
        assert_eq!(held(&cluster, "h1"), 0, "{flavor}");
        delete(&cluster, "guest");
    }
    delete(&cluster, "other");
    three_functions_move(&cluster);
    verdict::holds(&cluster);
}

fn stays(cluster: &Cluster, flavor: &str) {
    let before = boot(cluster, "guest", flavor, "h1").unwrap();
    assert_eq!(before.functions.len(), 1);
    let shown = cluster.json(&["vm", "show", "guest"]);
    for host in ["h2", "h3"] {
        let answer = cluster.berth(&["vm", "migrate", "guest", "--host", host]);
        let told = refused(
            answer
                .clone()
                .saying(&["FAILED_PRECONDITION", "live_migratable=yes"]),
        );
        assert_eq!(told.reason, "PCI_NOT_LIVE_MIGRATABLE", "{flavor}: {told:?}");
        assert!(told.message.contains(&before.functions[0]), "{told:?}");
    }
    assert_eq!(cluster.json(&["vm", "show", "guest"]), shown, "{flavor}");
    let begun = cluster.json(&["migration", "list", "--vm", "guest"]);
    assert_eq!(begun, Value::Array(Vec::new()), "{flavor}");
    delete(cluster, "guest");
}

/// Two aliases, three functions: there and back, each request keeps its number of functions.
fn three_functions_move(cluster: &Cluster) {
    let requests = |host| {
        let shown = cluster.json(&["vm", "show", "guest"]);
        assert_eq!(shown["vm"]["host"], host, "{shown:#}");
        let pci = shown["claims"][0]["assignment"]["pci"].clone();
        let counts: Vec<_> = pci
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r.as_array().map(Vec::len))
            .collect();
        assert_eq!(counts, [Some(2), Some(1)], "{shown:#}");
        shown["claims"][0]["assignment"]["cells"][0]["host_cell"].as_u64()
    };
    let _ = boot(cluster, "guest", "three", "h1").unwrap();
    assert_eq!(requests("h1"), Some(1), "near its required function");
    for host in ["h2", "h1"] {
        cluster.run(&["vm", "migrate", "guest", "--host", host]);
        assert_eq!(requests(host), Some(1));
        let bus = if host == "h1" {
            "0000:82:02."
        } else {
            "0000:83:02."
        };
        let functions = given(cluster, "guest", host).functions;
        assert!(
            functions.iter().all(|f| f.starts_with(bus)),
            "{functions:?}"
        );
        let distinct: BTreeSet<_> = functions.iter().collect();
        assert_eq!(distinct.len(), 3, "{functions:?}");
        assert_eq!(executed(cluster, "guest", host).concat(), functions);
    }
    delete(cluster, "guest");
}

/// Returns the functions that a guest really has, request by request.
fn executed(cluster: &Cluster, vm: &str, host: &str) -> Vec<Vec<String>> {
    let text = std::fs::read(cluster.guests_file(host)).expect("a file of guests");
    let guests: Value = serde_json::from_slice(&text).expect("JSON");
    let mut guests = guests.as_array().into_iter().flatten();
    let guest = guests.find(|guest| guest["spec"]["vm"] == vm);
    let pci = &guest.expect("it runs")["spec"]["assignment"]["pci"];
    serde_json::from_value(pci.clone()).expect("addresses")
}

/// Returns how many claims a host has.
fn held(cluster: &Cluster, host: &str) -> usize {
    let shown = cluster.json(&["host", "show", host]);
    shown["claims"].as_array().map_or(0, Vec::len)
}
