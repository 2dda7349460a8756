//! Scenarios of OpenStack's functional tests of NUMA guests, and the rows on their migration,
//! through the whole system: what a user asks for, what is claimed, what the hypervisor runs.
//!
//! Method: a scheduler, a conductor and agents with described machines, as processes, asked by the
//! real command; one cluster serves all scenarios that do not disturb each other. Before each boot
//! and move the same is asked with `--validate-only`, which must tell what then happens and change
//! nothing. A refusal is told with its cause and its words, and leaves nothing behind.
//!
//! Not here: the fit itself against a solver (`domain/tests/all/exact.rs`), and networks.

mod races;
mod world;

use berth_domain::resource::ResourceClass;
use berth_domain::topology::CellId;
use berth_tests::processes::verdict;
use world::{Cell, World, cpus, host, legacy_host, only_cell};

const GIB_KIB: u64 = 1024 * 1024;

/// Hosts by what is special about them.
fn world() -> World {
    let cell = Cell::new;
    let two_mib = |id, total| cell(id, 4).pages(2048, total);
    let gigantic = |name| {
        let cell = |id| cell(id, 4).pages(GIB_KIB, 8);
        host(name, &[cell(0), cell(1)], "0-7", "")
    };
    let four = [
        cell(0, 4),
        cell(1, 4),
        cell(2, 4).pages(GIB_KIB, 8),
        cell(3, 4),
    ];
    World::start(vec![
        host("single", &[two_mib(0, 512)], "", "0-3"),
        host("twin", &[two_mib(0, 1024), two_mib(1, 1024)], "", "0-7"),
        host("ten", &[cell(0, 10)], "0-9", ""),
        host("split", &[cell(0, 4), cell(1, 4)], "4-7", "0-3"),
        host("threads", &[cell(0, 8).threads(2)], "0-7", ""),
        legacy_host("legacy", &[cell(0, 8).threads(2)], "0-7"),
        host("left", &[cell(0, 4)], "0-3", ""),
        host("right", &[cell(0, 4)], "0-3", ""),
        gigantic("west"),
        gigantic("east"),
        host("four", &four, "0-15", ""),
    ])
}

/// Goal: scenarios 29 to 33, and the rows on what a live migration fits anew.
#[test]
fn guests_are_placed_refused_and_moved_as_their_flavors_say() {
    let world = world();
    cells(&world);
    pages(&world);
    dedicated(&world);
    mixed(&world);
    isolated(&world);
    pins_are_fitted_anew(&world);
    pages_are_fitted_anew(&world);
    cells_are_fitted_anew(&world);
    verdict::holds(&world.cluster);
    verdict::runs_what_is_claimed(&world.cluster);
}

/// Scenario 29: two guest cells need two host cells.
fn cells(world: &World) {
    world.flavor("two-cells", 2, 512, &["hw:numa_nodes=2"]);
    let claim = world.boots("two-cells", "two-cells", Some("twin"));
    let cells = claim.assignment.cells.iter().map(|c| c.host_cell);
    assert_eq!(cells.collect::<Vec<_>>(), [CellId(0), CellId(1)]);
    let words = "the guest has 2 NUMA nodes, the host only 1";
    world.refuses("two-cells", "single", "CELLS", words);
}

/// Scenario 30: 2 GiB in large pages of 2 MiB, of which there are enough, or half of that.
fn pages(world: &World) {
    world.flavor("large", 1, 2048, &["hw:mem_page_size=large"]);
    let claim = world.boots("large", "large", Some("twin"));
    assert_eq!(claim.assignment.cells[0].page_size_kib, Some(2048));
    assert_eq!(claim.assignment.cells[0].pages(), 1024);
    let words = "NUMA node 0: 512 free 2 MiB pages, guest NUMA node 0 needs 1024";
    world.refuses("large", "single", "PAGES", words);
    // Of the other cell all pages are left.
    let second = world.boots("large-2", "large", Some("twin"));
    assert_ne!(only_cell(&claim).0, only_cell(&second).0);
    let words = "NUMA node 0: 0 free 2 MiB pages, guest NUMA node 0 needs 1024";
    world.refuses("large", "twin", "PAGES", words);
}

/// Scenario 31: five dedicated CPUs are counted as such, and not had where none are dedicated.
fn dedicated(world: &World) {
    world.flavor("five", 5, 512, &["hw:cpu_policy=dedicated"]);
    let claim = world.boots("five", "five", Some("ten"));
    assert_eq!(claim.resources.get(&ResourceClass::pcpu()), Some(&5));
    assert_eq!(claim.resources.get(&ResourceClass::vcpu()), None);
    assert_eq!(only_cell(&claim), (0, cpus("0-4")));
    let words = "NUMA node 0: 0 free dedicated CPUs, guest NUMA node 0 needs 5";
    world.refuses("five", "twin", "DEDICATED_CPUS", words);
}

/// Scenario 32: the shared and the dedicated CPUs of a mixed guest cell are those of one host
/// cell; guest cells that have only the one or the other fit on cells that have only these.
fn mixed(world: &World) {
    let mixed = "hw:cpu_policy=mixed";
    let symmetric = [mixed, "hw:cpu_dedicated_mask=3"];
    world.flavor("mixed", 4, 512, &symmetric);
    let words = "NUMA node 0: 0 free dedicated CPUs, guest NUMA node 0 needs 1";
    world.refuses("mixed", "split", "DEDICATED_CPUS", words);
    let asymmetric = [
        mixed,
        "hw:cpu_dedicated_mask=2-3",
        "hw:numa_nodes=2",
        "hw:numa_cpus.0=0-1",
        "hw:numa_cpus.1=2-3",
        "hw:numa_mem.0=256",
        "hw:numa_mem.1=256",
    ];
    world.flavor("asymmetric", 4, 512, &asymmetric);
    // No other host has shared CPUs in one cell and dedicated ones in another.
    let claim = world.boots("asymmetric", "asymmetric", None);
    assert_eq!(claim.host.as_str(), "split");
    let [floating, pinned] = &claim.assignment.cells[..] else {
        panic!("{claim:?}");
    };
    assert_eq!(
        (floating.host_cell, pinned.host_cell),
        (CellId(0), CellId(1))
    );
    assert_eq!(
        (floating.shared_vcpus, &floating.floating),
        (2, &cpus("0-3"))
    );
    assert!(
        floating.pins.is_empty() && pinned.pins.len() == 2,
        "{claim:?}"
    );
    let counted = [ResourceClass::vcpu(), ResourceClass::pcpu()];
    let counted = counted.map(|class| claim.resources.get(&class).copied());
    assert_eq!(counted, [Some(2), Some(2)]);
}

/// Scenario 33: isolated threads.
fn isolated(world: &World) {
    let isolate = ["hw:cpu_policy=dedicated", "hw:cpu_thread_policy=isolate"];
    world.flavor("isolated", 2, 512, &isolate);
    let words = "NUMA node 0: its cores have several threads and are not for guests of both kinds \
                 (vcpu_pin_set), guest NUMA node 0 needs isolated threads, which are refused there";
    world.refuses("isolated", "threads", "CPU_THREADS", words);
    // Where no core has two threads there is nobody to be isolated from.
    let claim = world.boots("alone", "isolated", Some("ten"));
    assert_eq!(claim.assignment.taken(), claim.assignment.dedicated());

    // Two vCPUs take two whole cores of four: the siblings are consumed.
    let claim = world.boots("isolated", "isolated", Some("legacy"));
    assert_eq!(claim.assignment.dedicated().len(), 2);
    assert_eq!(claim.assignment.taken(), cpus("4-7"));
    let claim = world.boots("isolated-2", "isolated", Some("legacy"));
    assert_eq!(claim.assignment.taken(), cpus("0-3"));
    world.flavor("one", 1, 512, &["hw:cpu_policy=dedicated"]);
    let words = "NUMA node 0: 0 free dedicated CPUs, guest NUMA node 0 needs 1";
    world.refuses("one", "legacy", "DEDICATED_CPUS", words);
    world.flavor("floating", 1, 512, &[]);
    let words = "its CPUs are for guests of one kind at a time, and it has guests with dedicated \
                 CPUs";
    world.refuses("floating", "legacy", "CPU_KINDS", words);
    let words = "its CPUs are for guests of one kind at a time, the guest wants dedicated CPUs \
                 and floats over others";
    world.refuses("mixed", "legacy", "CPU_KINDS", words);
    for vm in ["isolated", "isolated-2"] {
        world.cluster.run(&["vm", "delete", vm]);
    }
    let _ = world.boots("floating", "floating", Some("legacy"));
    let words =
        "its CPUs are for guests of one kind at a time, and it has guests whose vCPUs float";
    world.refuses("one", "legacy", "CPU_KINDS", words);
}

/// Row N4: on both hosts a guest has CPUs 0 and 1; the one that moves arrives on 2 and 3.
fn pins_are_fitted_anew(world: &World) {
    world.flavor("pair", 2, 512, &["hw:cpu_policy=dedicated"]);
    for (vm, host) in [("a", "left"), ("b", "right")] {
        let claim = world.boots(vm, "pair", Some(host));
        assert_eq!(only_cell(&claim), (0, cpus("0-1")));
    }
    let moved = world.moves("a", Some("right"));
    assert_eq!(only_cell(&moved), (0, cpus("2-3")));
    assert_eq!(only_cell(&world.runs("b")), (0, cpus("0-1")));
    assert!(world::running(&world.cluster, "left").is_empty());
    // What it left is free again, what it has now is not.
    let words = "NUMA node 0: 0 free dedicated CPUs, guest NUMA node 0 needs 2";
    world.refuses("pair", "right", "DEDICATED_CPUS", words);
    let claim = world.boots("c", "pair", Some("left"));
    assert_eq!(only_cell(&claim), (0, cpus("0-1")));
    world.refuses_to_move("c", "right", "DEDICATED_CPUS", words);
}

/// Row N5: on both hosts a guest has all pages of 1 GiB of cell 0; the one that moves arrives on
/// cell 1. Pages of another size will not do (scenario 8).
fn pages_are_fitted_anew(world: &World) {
    let specs = ["hw:mem_page_size=large", "hw:cpu_policy=dedicated"];
    world.flavor("gigantic", 2, 8 * 1024, &specs);
    for (vm, host) in [("d", "west"), ("e", "east")] {
        let claim = world.boots(vm, "gigantic", Some(host));
        assert_eq!(only_cell(&claim).0, 0);
        assert_eq!(claim.assignment.cells[0].page_size_kib, Some(GIB_KIB));
        assert_eq!(claim.assignment.cells[0].pages(), 8);
    }
    let moved = world.moves("d", Some("east"));
    assert_eq!(only_cell(&moved).0, 1);
    assert_eq!(moved.assignment.cells[0].pages(), 8);
    let words = "NUMA node 0: 0 free 1 GiB pages, guest NUMA node 0 needs 8";
    world.refuses("gigantic", "east", "PAGES", words);
}

/// Row N6: a guest on cell 2 of a host with four cells moves to a host with two.
fn cells_are_fitted_anew(world: &World) {
    let claim = world.boots("f", "gigantic", Some("four"));
    assert_eq!(only_cell(&claim), (2, cpus("8-9")));
    let moved = world.moves("f", Some("west"));
    assert_eq!(only_cell(&moved), (0, cpus("0-1")));
}
