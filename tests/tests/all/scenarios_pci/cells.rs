//! Cells that have functions are kept for guests that need one; and the drawing of the socket
//! policy, played on a host.

use std::collections::BTreeMap;

use berth_tests::processes::{Cluster, verdict};

use super::bench::{ANY, Machine, alias, boot, delete, flavor};
use crate::PROGRAMS;

/// Four cells of two CPUs on two sockets.
const FOUR: Machine = Machine {
    sockets: &[0, 0, 1, 1],
    cpus: 2,
    dedicated: "0-7",
};
const ONE_CELL: &str = "hw:cpu_policy=dedicated";

fn cluster() -> Cluster {
    let two = Machine {
        sockets: &[0, 1],
        cpus: 2,
        dedicated: "0-3",
    };
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(two.host("two", &[Some(1)]))
        .host(FOUR.host("first", &[Some(0)]))
        .host(FOUR.host("second", &[Some(1)]))
        .start();
    flavor(&cluster, "filler", 2, &[ONE_CELL]);
    let pages = "hw:mem_page_size=1GB";
    flavor(&cluster, "paged", 2, &[ONE_CELL, pages]);
    for policy in ["legacy", "required", "preferred", "socket"] {
        alias(&cluster, policy, Some(policy), &[ANY]);
        let asked = format!("pci_passthrough:alias={policy}:1");
        flavor(&cluster, policy, 2, &[ONE_CELL, &asked]);
        let wide = format!("{policy}-2");
        flavor(&cluster, &wide, 4, &[ONE_CELL, "hw:numa_nodes=2", &asked]);
        let paged = format!("{policy}-paged");
        flavor(&cluster, &paged, 2, &[ONE_CELL, pages, &asked]);
    }
    cluster
}

/// Goal: scenarios 25 and 26 of Nova, and row S2 on a host.
#[test]
fn cells_with_functions_are_kept_for_those_who_need_one() {
    let cluster = cluster();
    only_preferred_leaves_the_cell_of_its_function(&cluster);
    guests_without_functions_keep_off(&cluster);
    the_drawing(&cluster);
    verdict::holds(&cluster);
}

/// Scenario 25.
fn only_preferred_leaves_the_cell_of_its_function(cluster: &Cluster) {
    let cells = |vm| boot(cluster, vm, "filler", "two").unwrap().cells;
    assert_eq!(cells("first"), [0], "the cell without a function");
    assert_eq!(cells("last"), [1], "the only one that is left");
    delete(cluster, "first");
    for policy in ["legacy", "required"] {
        let refused = boot(cluster, "guest", policy, "two").unwrap_err();
        assert_eq!(refused.reason, "NO_VALID_HOST", "{refused:?}");
        assert_eq!(refused.causes, ["PCI_DEVICES"], "{refused:?}");
        assert!(
            refused.message.contains("one is free on NUMA node 1"),
            "{refused:?}"
        );
    }
    let given = boot(cluster, "guest", "preferred", "two").unwrap();
    assert_eq!((given.cells, given.functions.len()), (vec![0], 1));
    delete(cluster, "guest");
    delete(cluster, "last");
}

/// Scenario 26: three guests in a row keep off the cell of the function; one that needs it is
/// there.
fn guests_without_functions_keep_off(cluster: &Cluster) {
    for (host, cell) in [("first", 0), ("second", 1)] {
        for vm in ["a", "b", "c"] {
            let given = boot(cluster, vm, "paged", host).unwrap();
            assert!(!given.cells.contains(&cell), "{vm} on {host}: {given:?}");
        }
        let given = boot(cluster, "guest", "legacy-paged", host).unwrap();
        assert_eq!(given.cells, [cell], "{host}");
        for vm in ["a", "b", "c", "guest"] {
            delete(cluster, vm);
        }
    }
}

/// Row S2: with the function on N0, one cell goes to N0 or N1, two to every pair but N2 and N3.
/// All cells but the chosen ones are full.
fn the_drawing(cluster: &Cluster) {
    let mut full: BTreeMap<u64, String> = BTreeMap::new();
    for number in 0..4 {
        let vm = format!("filler-{number}");
        full.insert(boot(cluster, &vm, "filler", "first").unwrap().cells[0], vm);
    }
    assert_eq!(full.len(), 4);
    for (flavor, chosen, fits) in [
        ("socket", &[0][..], true),
        ("socket", &[1], true),
        ("socket", &[2], false),
        ("socket", &[3], false),
        ("socket-2", &[0, 1], true),
        ("socket-2", &[0, 2], true),
        ("socket-2", &[0, 3], true),
        ("socket-2", &[1, 2], true),
        ("socket-2", &[1, 3], true),
        ("socket-2", &[2, 3], false),
    ] {
        for cell in chosen {
            delete(cluster, &full[cell]);
        }
        match boot(cluster, "guest", flavor, "first") {
            Ok(mut given) => {
                given.cells.sort_unstable();
                assert!(
                    fits && given.cells == chosen,
                    "{flavor} {chosen:?}: {given:?}"
                );
                assert_eq!(given.functions, ["0000:81:00.0"]);
                delete(cluster, "guest");
            }
            Err(refused) => {
                assert!(!fits, "{flavor} {chosen:?}: {refused:?}");
                assert_eq!(refused.causes, ["PCI_DEVICES"], "{refused:?}");
                assert!(refused.message.contains("on socket 0"), "{refused:?}");
            }
        }
        let vms: Vec<String> = chosen
            .iter()
            .map(|cell| full.remove(cell).unwrap())
            .collect();
        for vm in vms {
            full.insert(boot(cluster, &vm, "filler", "first").unwrap().cells[0], vm);
        }
    }
    for vm in full.values() {
        delete(cluster, vm);
    }
}
