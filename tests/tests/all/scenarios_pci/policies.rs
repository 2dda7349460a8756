//! Which hosts a guest may be on under which policy.
//!
//! One host for each shape of the scenarios, and every guest is asked onto the host of its own: so
//! one cluster serves them all.

use berth_tests::processes::{Cluster, Host, verdict};

use super::bench::{ANY, Machine, OFFERED, alias, boot, delete, flavor, functions};
use crate::PROGRAMS;

/// Two cells of which only the second is for guests.
const SECOND_ONLY: Machine = Machine {
    sockets: &[0, 1],
    cpus: 4,
    dedicated: "4-7",
};

/// The sentence of a refusal, or none where the guest is to be ACTIVE.
type Expected = Option<&'static str>;

struct Case {
    /// The scenario's number in Nova's tests, or the drawing.
    scenario: &'static str,
    host: &'static str,
    flavor: &'static str,
    expected: Expected,
}

const fn case(
    scenario: &'static str,
    host: &'static str,
    flavor: &'static str,
    expected: Expected,
) -> Case {
    Case {
        scenario,
        host,
        flavor,
        expected,
    }
}

const ON_CELL_0: Expected = Some("one is free on NUMA node 0");
const ON_SOCKET_1: Expected = Some("one is free on socket 1");
const NOT_KNOWN: Expected = Some("no device 8086:* on NUMA node 1");

const CASES: [Case; 27] = [
    case("13", "unknown", "preferred", None),
    case("13", "far", "preferred", None),
    case("13", "near", "preferred", None),
    case("14", "unknown", "silent", None),
    case("14", "far", "silent", ON_CELL_0),
    case("14", "near", "silent", None),
    case("15", "unknown", "required", NOT_KNOWN),
    case("15", "far", "required", ON_CELL_0),
    case("15", "near", "required", None),
    case("16", "unknown", "alias-preferred", None),
    case("16", "far", "alias-preferred", None),
    case("16", "near", "alias-preferred", None),
    case("17", "unknown", "alias-legacy", None),
    case("17", "far", "alias-legacy", ON_CELL_0),
    case("17", "near", "alias-legacy", None),
    case("18", "unknown", "alias-required", NOT_KNOWN),
    case("18", "far", "alias-required", ON_CELL_0),
    case("18", "near", "alias-required", None),
    case("19", "one-socket", "socket", None),
    case("20", "two-sockets", "socket", ON_SOCKET_1),
    case("21", "three-of-four", "socket-3", None),
    case("22", "one-socket", "alias-socket", None),
    case("23", "two-sockets", "alias-socket", ON_SOCKET_1),
    case("24", "three-of-four", "alias-socket-3", None),
    // A device without a cell is on no socket.
    case(
        "socket, no cell",
        "unknown",
        "socket",
        Some("no device 8086:* on socket 1"),
    ),
    // Without cells of its own a guest does not care.
    case("no cells", "plain", "floating", None),
    case("28", "near", "two", Some("1 free device 8086:*")),
];

/// Goal: scenarios 13 to 24 of Nova: ACTIVE, or refused for the device and nothing else.
#[test]
fn policies_decide_where_guests_may_be() {
    let one_socket = Machine {
        sockets: &[0, 0],
        cpus: 4,
        dedicated: "0-3",
    };
    let two_sockets = Machine {
        sockets: &[0, 1],
        ..one_socket
    };
    let three_of_four = Machine {
        sockets: &[0, 0, 1, 1],
        cpus: 2,
        dedicated: "2-7",
    };
    // Its first CPU of each cell is shared.
    let plain = Host::new("plain").with_pci(&functions(&[None]), OFFERED);
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(SECOND_ONLY.host("unknown", &[None]))
        .host(SECOND_ONLY.host("far", &[Some(0)]))
        .host(plain)
        .host(SECOND_ONLY.host("near", &[Some(1)]))
        .host(one_socket.host("one-socket", &[Some(1)]))
        .host(two_sockets.host("two-sockets", &[Some(1)]))
        .host(three_of_four.host("three-of-four", &[Some(0)]))
        .start();
    make_flavors(&cluster);
    for Case {
        scenario,
        host,
        flavor,
        expected,
    } in &CASES
    {
        let what = format!("scenario {scenario}: {flavor} on {host}");
        match (boot(&cluster, "guest", flavor, host), expected) {
            (Ok(given), None) => {
                assert_eq!(given.functions, ["0000:81:00.0"], "{what}");
                delete(&cluster, "guest");
            }
            (Err(refused), Some(words)) => {
                assert_eq!(refused.reason, "NO_VALID_HOST", "{what}: {refused:?}");
                assert_eq!(refused.causes, ["PCI_DEVICES"], "{what}: {refused:?}");
                assert!(refused.message.contains(words), "{what}: {refused:?}");
            }
            (came, _) => panic!("{what}: expected {expected:?}, was {came:?}"),
        }
    }
    verdict::holds(&cluster);
}

fn make_flavors(cluster: &Cluster) {
    alias(cluster, "any", None, &[ANY]);
    let pinned = "hw:cpu_policy=dedicated";
    let one = "pci_passthrough:alias=any:1";
    flavor(cluster, "silent", 2, &[pinned, one]);
    flavor(cluster, "two", 2, &[pinned, "pci_passthrough:alias=any:2"]);
    let three = "hw:numa_nodes=3";
    for policy in ["required", "preferred", "legacy", "socket"] {
        let named = format!("alias-{policy}");
        alias(cluster, &named, Some(policy), &[ANY]);
        let asked = format!("pci_passthrough:alias={named}:1");
        flavor(cluster, &named, 2, &[pinned, &asked]);
        // What the flavor says goes before what the alias says.
        let said = format!("hw:pci_numa_affinity_policy={policy}");
        let other = "pci_passthrough:alias=alias-preferred:1";
        let other = if policy == "required" { other } else { one };
        flavor(cluster, policy, 2, &[pinned, other, &said]);
        if policy == "socket" {
            flavor(cluster, "socket-3", 3, &[pinned, three, one, &said]);
            flavor(cluster, "alias-socket-3", 3, &[pinned, three, &asked]);
        }
    }
    flavor(
        cluster,
        "floating",
        1,
        &["pci_passthrough:alias=alias-required:1"],
    );
}
