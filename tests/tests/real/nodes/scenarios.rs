//! What happens inside the machine with four nodes, and what its kernel says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use berth_driver::libvirt::{Connection, DomainState, Migration, running};
use berth_tests::lab::{Console, free_pages, set_pages};
use berth_tests::processes::Answer;

use crate::site::{PATIENCE, Site, eventually, list};

/// What the agents are told. No page of node 3 is for anybody: they are there so that a guest
/// whose memory is not bound has free pages to land on.
const HOSTS: [(&str, &str); 2] = [
    (
        "host-a",
        r#"cpu_dedicated_set = "2-4,6"
reserved_pages = [
    { cell = 0, size_kib = 2048, count = 16 },
    { cell = 1, size_kib = 2048, count = 16 },
    { cell = 3, size_kib = 2048, count = 32 },
]"#,
    ),
    (
        "host-b",
        r#"cpu_dedicated_set = "0-2,4-5"
reserved_pages = [
    { cell = 2, size_kib = 2048, count = 16 },
    { cell = 3, size_kib = 2048, count = 32 },
]"#,
    ),
];

/// The pages of each node, and so what is free of them before anything runs.
const POOLS: [u64; 4] = [16, 16, 16, 32];

/// The memory of every guest cell.
const CELL_MIB: u64 = 32;

/// How many numbers may be missing between two lines of a console: what was on its way through
/// the serial line when the guest moved.
const LOST_MAX: u64 = 2;

/// A guest cell as it must be: its node, the CPUs of its vCPUs in order.
type Cell<'a> = (u32, &'a [u32]);

/// Plays all scenarios.
pub(crate) fn play() {
    let begun = Instant::now();
    let told = |what: &str| println!("[{:5.1}] {what}", begun.elapsed().as_secs_f32());
    for (node, count) in (0..).zip(POOLS) {
        set_pages(node, count).unwrap();
    }
    let mut site = Site::start(&HOSTS);
    site.flavor("paged", "1", "32", &["hw:mem_page_size=2MB"]);
    let two = ["hw:numa_nodes=2", "hw:numa_cpus.0=0,1", "hw:numa_cpus.1=2"];
    let memory = ["hw:numa_mem.0=32", "hw:numa_mem.1=32"];
    site.flavor("two-cells", "3", "64", &[two.as_slice(), &memory].concat());
    told("two hosts on one kernel with four nodes");
    a_guest_gets_pages_of_its_node_only(&site);
    told("strict placement on node 2");
    its_pages_are_others_after_a_migration(&site);
    told("from node 2 to node 0");
    a_full_node_is_passed_over(&site);
    told("node 0 is full: node 1");
    what_has_no_pages_is_refused(&site);
    told("too few pages: refused");
    without_the_new_description_libvirt_refuses(&site);
    told("the old description: refused");
    two_cells_go_to_two_nodes(&site);
    told("from nodes 1 and 3 to nodes 2 and 0");
    pages_that_others_took_are_not_given(&site);
    told("pages that somebody else took");
    huge_pages_follow_by_post_copy(&site);
    told("post-copy with huge pages");
    an_old_agent_gets_none(&mut site);
    told("an agent of an older service version: refused");
}

fn a_guest_gets_pages_of_its_node_only(site: &Site) {
    site.json(&Site::create("a", "paged", "host-a"));
    free([16, 16, 0, 32]);
    stands(site, "a", "host-a", &[(2, &[4])], Some(16));
    // There are free pages on node 3, and CPU 6: but not for this host's guests.
    let refused = site.berth(&Site::create("x", "paged", "host-a"));
    says(&refused, &["host-a", "0 free 2 MiB pages", "needs 16"]);
    free([16, 16, 0, 32]);
}

fn its_pages_are_others_after_a_migration(site: &Site) {
    site.json(&["vm", "migrate", "a", "--host", "host-b"]);
    stands(site, "a", "host-b", &[(0, &[0])], Some(16));
    free([0, 16, 16, 32]);
}

/// The second example of the specification: both guests had node 0 in mind.
fn a_full_node_is_passed_over(site: &Site) {
    site.json(&Site::create("b", "paged", "host-a"));
    stands(site, "b", "host-a", &[(2, &[4])], Some(16));
    site.json(&["vm", "migrate", "b", "--host", "host-b"]);
    stands(site, "b", "host-b", &[(1, &[2])], Some(16));
    stands(site, "a", "host-b", &[(0, &[0])], Some(16));
    free([0, 0, 16, 32]);
}

/// Two CPUs of the destination are free on node 2, one on node 0; pages are not.
fn what_has_no_pages_is_refused(site: &Site) {
    site.json(&Site::create("c", "paged", "host-a"));
    stands(site, "c", "host-a", &[(2, &[4])], Some(16));
    let refused = site.berth(&["vm", "migrate", "c", "--host", "host-b"]);
    says(&refused, &["host-b", "0 free 2 MiB pages", "needs 16"]);
    stands(site, "c", "host-a", &[(2, &[4])], Some(16));
    free([0, 0, 0, 32]);
}

/// The control: as the guest is described on the source, it can only be on node 0. So what the
/// other scenarios see comes of what the destination's claim says.
fn without_the_new_description_libvirt_refuses(site: &Site) {
    let connection = Connection::open(&site.machine("host-b").libvirt_uri()).unwrap();
    let domain = connection.domain_by_name("a").unwrap();
    let as_it_is = Migration {
        disks_are_shared: true,
        ..Migration::default()
    };
    let peer = site.machine("host-a").peer_uri();
    let error = domain.migrate(&peer, &as_it_is).unwrap_err().to_string();
    assert!(error.contains("unable to map backing store"), "{error}");
    stands(site, "a", "host-b", &[(0, &[0])], Some(16));
    free([0, 0, 0, 32]);
}

/// Small pages, whose number forces nothing: only the policy keeps them on their node.
fn two_cells_go_to_two_nodes(site: &Site) {
    site.json(&Site::create("d", "two-cells", "host-a"));
    stands(site, "d", "host-a", &[(1, &[2, 3]), (3, &[6])], None);
    site.json(&["vm", "migrate", "d", "--host", "host-b"]);
    stands(site, "d", "host-b", &[(2, &[4, 5]), (0, &[1])], None);
}

/// The scheduler knows what the agents reported when they started. What has changed since then the
/// destination's agent finds before anything moves: it refuses the claim, or swaps it.
fn pages_that_others_took_are_not_given(site: &Site) {
    site.json(&["vm", "delete", "a"]);
    site.json(&["vm", "delete", "b"]);
    free([16, 16, 0, 32]);
    set_pages(0, 0).unwrap();
    set_pages(1, 0).unwrap();
    let refused = site.berth(&["vm", "migrate", "c", "--host", "host-b"]);
    says(&refused, &["host-b", "0 free 2 MiB pages", "needs 16"]);
    stands(site, "c", "host-a", &[(2, &[4])], Some(16));

    set_pages(1, 16).unwrap();
    site.json(&["vm", "migrate", "c", "--host", "host-b"]);
    stands(site, "c", "host-b", &[(1, &[2])], Some(16));
    free([0, 0, 16, 32]);
}

/// The guest goes on at the destination while most of its memory is on the source. It fetches whole
/// huge pages then, by faults that the kernel hands to QEMU, into pages of the claim's node.
fn huge_pages_follow_by_post_copy(site: &Site) {
    let head = ["vm", "migrate", "c", "--host", "host-a", "--no-wait"];
    // Otherwise all of it may be there before the wish is.
    let slowly = ["--bandwidth-mib-s", "1", "--post-copy"];
    let started = site.json(&[&head[..], &slowly].concat());
    let operation = started["operation"].as_str().expect("an id");
    let all = list(&site.json(&["migration", "list", "--vm", "c"]));
    let last = all.last().expect("the one that was begun");
    let migration = last["id"].as_str().expect("an id");
    std::thread::scope(|scope| {
        scope.spawn(|| site.json(&["migration", "force-complete", migration]));
        runs_before_its_memory_is_there(site, "c", "host-a");
    });
    site.json(&["operation", "wait", operation]);
    stands(site, "c", "host-a", &[(2, &[4])], Some(16));
    free([0, 16, 0, 32]);
}

/// Looks until the guest runs on the destination, and checks that the source still holds memory of
/// it.
#[track_caller]
fn runs_before_its_memory_is_there(site: &Site, vm: &str, host: &str) {
    let connection = Connection::open(&site.machine(host).libvirt_uri()).unwrap();
    let reason = eventually("the guest on the other host", || {
        let domain = connection.domain_by_name(vm);
        let status = domain.and_then(|domain| domain.status());
        let status = status.map_err(|error| error.to_string())?;
        (status.state == DomainState::Running)
            .then_some(status.reason)
            .ok_or_else(|| format!("{status:?}"))
    });
    assert_eq!(reason, running::POST_COPY, "{vm}");
}

fn an_old_agent_gets_none(site: &mut Site) {
    site.start_agent("host-b", &["--service-version", "1"]);
    site.waits_for("host-b", "registered");
    let shown = site.json(&["host", "show", "host-b"]);
    assert_eq!(shown["host"]["report"]["service_version"], 1);
    let refused = site.berth(&["vm", "migrate", "c", "--host", "host-b"]);
    says(&refused, &["SERVICE_VERSION_TOO_OLD"]);
    stands(site, "c", "host-a", &[(2, &[4])], Some(16));
    free([0, 16, 0, 32]);
}

/// Checks how many pages of each node the kernel says are free. What a guest had is free when its
/// process is gone, a moment after it is said to be.
#[track_caller]
fn free(expected: [u64; 4]) {
    let expected: BTreeMap<u32, u64> = (0..).zip(expected).collect();
    eventually("free pages", || {
        let seen = free_pages().map_err(|error| error.to_string())?;
        (seen == expected)
            .then_some(())
            .ok_or_else(|| format!("{seen:?}, not {expected:?}"))
    });
}

/// Checks that a command was refused, and why.
#[track_caller]
fn says(refused: &Answer, words: &[&str]) {
    assert_eq!(refused.status, Some(1), "{refused:?}");
    for word in words {
        assert!(refused.stderr.contains(word), "no {word:?}: {refused:?}");
    }
}

/// Checks that a guest runs on a host and nowhere else, that its claim, its threads and its memory
/// are where they must be, and that its memory is as it wrote it.
#[track_caller]
fn stands(site: &Site, vm: &str, host: &str, cells: &[Cell<'_>], huge: Option<u64>) {
    let (claim, console) = site.is_active(vm, host);
    let claimed: Vec<(u32, Vec<u32>)> = claim
        .assignment
        .cells
        .iter()
        .map(|cell| {
            let cpus = cell.pins.values().map(|cpu| cpu.0).collect();
            (cell.host_cell.0, cpus)
        })
        .collect();
    let expected = cells.iter().map(|(node, cpus)| (*node, cpus.to_vec()));
    assert_eq!(claimed, expected.collect::<Vec<_>>(), "the claim of {vm}");
    for (name, _) in HOSTS {
        let runs = site.machine(name).qemu_pid(vm).is_ok();
        assert_eq!(runs, name == host, "whether {vm} runs on {name}");
    }
    threads(site, vm, host, cells);
    // It has all of its memory once it has looked at it.
    counts_on(vm, &console);
    memory(site, vm, host, cells, huge);
}

#[track_caller]
fn threads(site: &Site, vm: &str, host: &str, cells: &[Cell<'_>]) {
    let all: BTreeSet<u32> = cells.iter().flat_map(|(_, cpus)| *cpus).copied().collect();
    let each = cells.iter().flat_map(|(_, cpus)| *cpus);
    let expected: BTreeMap<u32, BTreeSet<u32>> =
        (0..).zip(each.map(|cpu| BTreeSet::from([*cpu]))).collect();
    let machine = site.machine(host);
    assert_eq!(
        machine.vcpu_affinity(vm).unwrap(),
        expected,
        "vCPUs of {vm}"
    );
    // QEMU zeroes huge pages before the guest runs in threads of a context that libvirt ties to the
    // node; what is left of it only waits.
    let of_nodes: BTreeSet<u32> = cells.iter().flat_map(|(n, _)| [n * 2, n * 2 + 1]).collect();
    for thread in machine.qemu_threads(vm).unwrap() {
        let is_context = thread.name.starts_with("TC ");
        let allowed = if is_context { &of_nodes } else { &all };
        assert!(thread.cpus.is_subset(allowed), "{thread:?} of {vm}");
    }
}

/// Every mapping that is large enough to be the memory of a guest cell is bound to the cell's node,
/// and has its pages there and nowhere else.
#[track_caller]
fn memory(site: &Site, vm: &str, host: &str, cells: &[Cell<'_>], huge: Option<u64>) {
    // Small pages that the guest has never written are not sent.
    let found = site
        .machine(host)
        .guest_memory(vm, CELL_MIB * 3 / 4)
        .unwrap();
    let mut nodes: Vec<u32> = cells.iter().map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    println!("    {vm} {found:?}");
    let seen: Vec<Vec<u32>> = found
        .iter()
        .map(|m| m.pages.keys().copied().collect())
        .collect();
    let expected: Vec<Vec<u32>> = nodes.iter().map(|node| vec![*node]).collect();
    assert_eq!(seen, expected, "{vm}: {found:?}");
    for (memory, node) in found.iter().zip(nodes) {
        assert_eq!(memory.policy, format!("bind:{node}"), "{vm}: {found:?}");
        let page_kib = if huge.is_some() { 2048 } else { 4 };
        assert_eq!(memory.page_kib, page_kib, "{vm}: {found:?}");
        if let Some(count) = huge {
            assert_eq!(memory.pages[&node], count, "{vm}: {found:?}");
        }
    }
}

/// Checks that the guest was started once, counts on without a gap, has looked at all of its memory
/// once more, and has found every page as it wrote it.
#[track_caller]
fn counts_on(vm: &str, console: &Console) {
    let numbers = |what: &str| -> Vec<u64> {
        let lines = console.lines();
        let numbers = lines.iter().filter_map(|line| line.strip_prefix(what));
        numbers
            .filter_map(|number| number.trim().parse().ok())
            .collect()
    };
    let checked = numbers("checked ").last().copied().unwrap_or(0);
    // The pass that is under way began before.
    let next = format!("checked {}", checked + 2);
    console.wait_for(&next, PATIENCE).unwrap();
    let lines = console.lines();
    let said = |what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
    assert_eq!((said("up "), said("bad")), (1, 0), "{vm}: {lines:?}");
    for pair in numbers("count ").windows(2) {
        let next = pair[0] + 1..=pair[0] + 1 + LOST_MAX;
        assert!(next.contains(&pair[1]), "{vm} counts {pair:?}");
    }
}
