//! Goal: what the kernel's files say is what the scheduler is told, and what they say wrongly is
//! an error that names the file.
//!
//! Method: recorded trees of two machines in `testdata`, and odd machines written by [`Tree`].

use std::path::{Path, PathBuf};

use berth_domain::cpu_set::CpuSet;
use berth_domain::resource::Trait;
use berth_domain::topology::{CellId, FarMemory, SocketId};
use berth_host::description::Description;
use berth_host::options::{self, Fault};
use berth_host::sysfs::{self, discover, free_pages};
use berth_host::{Discovery, Options, ReservedPages, Warning};

fn recorded(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(machine)
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn options(dedicated: &str, shared: &str) -> Options {
    Options {
        cpu_dedicated_set: Some(set(dedicated)),
        cpu_shared_set: Some(set(shared)),
        ..Options::default()
    }
}

/// Writes out one line per cell: id, socket, shared, dedicated, cores, memory, pages.
fn lines(discovery: &Discovery) -> Vec<String> {
    let line = |cell: &berth_domain::topology::HostCell| {
        let cores: Vec<_> = cell.cores.iter().map(ToString::to_string).collect();
        let pages: Vec<_> = cell
            .pages
            .iter()
            .map(|p| format!("{}x{}-{}", p.size_kib, p.total, p.reserved))
            .collect();
        format!(
            "{} socket {} shared {} dedicated {} cores {} {} MiB {}",
            cell.id,
            cell.socket.map_or("?".to_owned(), |s| s.to_string()),
            cell.shared,
            cell.dedicated,
            cores.join(" "),
            cell.memory_mib,
            pages.join(" ")
        )
    };
    discovery.topology.cells().iter().map(line).collect()
}

/// A machine made of files.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(online: &str) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.put("sys/devices/system/cpu/online", online);
        tree
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{content}\n")).unwrap();
    }

    fn nodes(self, online: &str) -> Self {
        self.put("sys/devices/system/node/online", online);
        self
    }

    fn node(self, id: u32, cpus: &str, memory_kib: u64, distances: &str) -> Self {
        let folder = format!("sys/devices/system/node/node{id}");
        let meminfo = format!("Node {id} MemTotal: {memory_kib} kB\nNode {id} MemFree: 1 kB");
        self.put(&format!("{folder}/cpulist"), cpus);
        self.put(&format!("{folder}/meminfo"), &meminfo);
        self.put(&format!("{folder}/distance"), distances);
        self
    }

    fn pages(self, id: u32, size_kib: u64, total: &str, free: &str) -> Self {
        let folder = format!("sys/devices/system/node/node{id}/hugepages/hugepages-{size_kib}kB");
        self.put(&format!("{folder}/nr_hugepages"), total);
        self.put(&format!("{folder}/free_hugepages"), free);
        self
    }

    fn cpu(self, cpu: u32, socket: &str, siblings: &str) -> Self {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        self.put(&format!("{folder}/physical_package_id"), socket);
        self.put(&format!("{folder}/thread_siblings_list"), siblings);
        self
    }

    fn discover(&self, options: &Options) -> Result<Discovery, sysfs::Error> {
        discover(self.0.path(), options)
    }
}

#[test]
fn a_machine_of_four_nodes_on_two_sockets() {
    let found = discover(&recorded("four-nodes"), &options("1,3,5,7", "0,2,4,6")).unwrap();
    assert_eq!(found.warnings, []);
    assert_eq!(
        lines(&found),
        [
            "0 socket 0 shared 0 dedicated 1 cores 0 1 502 MiB 4x120407-0 2048x16-0",
            "1 socket 0 shared 2 dedicated 3 cores 2 3 503 MiB 4x120666-0 2048x16-0",
            "2 socket 1 shared 4 dedicated 5 cores 4 5 503 MiB 4x120666-0 2048x16-0",
            "3 socket 1 shared 6 dedicated 7 cores 6 7 406 MiB 4x95929-0 2048x16-0",
        ]
    );
    assert_eq!(
        found.topology.distances(),
        [
            [10, 12, 32, 32],
            [12, 10, 32, 32],
            [32, 32, 10, 12],
            [32, 32, 12, 10]
        ]
    );
    let free = free_pages(&recorded("four-nodes")).unwrap();
    assert_eq!(free[&CellId(0)][&2048], 16);
}

#[test]
fn a_machine_of_one_node_whose_cpus_are_all_shared() {
    let found = discover(&recorded("one-node"), &Options::default()).unwrap();
    assert_eq!(found.warnings, []);
    assert_eq!(found.topology.sockets(), 1);
    assert_eq!(found.topology.shared(), set("0-1"));
    assert!(found.topology.dedicated().is_empty());
}

#[test]
fn the_machine_of_the_test_itself_can_be_read() {
    let found = discover(Path::new("/"), &Options::default()).unwrap();
    assert!(!found.topology.shared().is_empty());
    free_pages(Path::new("/")).unwrap();
}

#[test]
fn sibling_threads_make_cores_cut_to_the_configured_cpus() {
    let mut tree = Tree::new("0-7").nodes("0").node(0, "0-7", 4_194_304, "10");
    for cpu in 0..8 {
        tree = tree.cpu(cpu, "0", &format!("{},{}", cpu % 4, cpu % 4 + 4));
    }
    let found = tree.discover(&options("1-3,5-6", "0,4")).unwrap();
    assert_eq!(
        lines(&found),
        ["0 socket 0 shared 0,4 dedicated 1-3,5-6 cores 0,4 1,5 2,6 3 4096 MiB 4x1048576-0"]
    );
    assert!(found.traits.contains(&Trait::hyperthreading()));
    let split: Vec<_> = found.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        split,
        ["cpu_dedicated_set splits cores: not all threads of 3,7 are in it"]
    );
}

#[test]
fn pages_are_counted_per_size_and_reserved() {
    let tree = Tree::new("0-1")
        .nodes("0-1")
        .node(0, "0", 2_097_152, "10 20")
        .node(1, "1", 2_097_152, "20 10")
        .pages(0, 2048, "256", "200")
        .pages(0, 1_048_576, "0", "0")
        .pages(1, 1_048_576, "1", "1")
        .cpu(0, "0", "0")
        .cpu(1, "1", "1");
    let mut options = Options::default();
    let reserve = |cell, size_kib, count| ReservedPages {
        cell,
        size_kib,
        count,
    };
    options.reserved_pages = vec![reserve(0, 2048, 6), reserve(1, 4, 1000)];
    let found = tree.discover(&options).unwrap();
    assert_eq!(
        lines(&found),
        [
            "0 socket 0 shared 0 dedicated  cores 0 2048 MiB 4x393216-0 2048x256-6",
            "1 socket 1 shared 1 dedicated  cores 1 2048 MiB 4x262144-1000 1048576x1-0",
        ]
    );
    assert_eq!(free_pages(tree.0.path()).unwrap()[&CellId(0)][&2048], 200);
    options.reserved_pages = vec![
        reserve(0, 2048, 257),
        reserve(3, 2048, 1),
        reserve(0, 1_048_576, 1),
        reserve(0, 2048, 200),
        reserve(0, 2048, 100),
    ];
    options.memory_reserved_mib = Some(4097);
    options.cpu_dedicated_set = Some(set("9"));
    let refused = tree.discover(&options).unwrap_err().to_string();
    assert_eq!(
        refused,
        "cpu_dedicated_set names CPUs 9, which are not online; online are 0-1; \
         reserved_pages[0] requests 257 pages of 2048 KiB in NUMA node 0, which has 256; \
         reserved_pages[1] names NUMA node 3, which this machine does not have; its NUMA nodes are 0-1; \
         reserved_pages[2] names pages of 1048576 KiB, of which NUMA node 0 has none; it has pages of \
         4, 2048 KiB; \
         reserved_pages[4] requests 100 pages of 2048 KiB in NUMA node 0, which has 256, of which 200 \
         are reserved already; \
         memory_reserved_mib = 4097 is more than this machine has: 4096 MiB"
    );
}

#[test]
fn a_machine_with_far_memory() {
    let found = discover(&recorded("far-memory"), &Options::default()).unwrap();
    assert_eq!(found.warnings, []);
    assert_eq!(
        lines(&found),
        ["0 socket 0 shared 0-3 dedicated  cores 0-1 2-3 8192 MiB 4x2097152-0"]
    );
    assert_eq!(found.topology.memory_mib(), 8192);
    let far = |id, memory_mib| FarMemory {
        id: CellId(id),
        memory_mib,
    };
    let expected = [far(1, 65_536), far(2, 32_768)];
    assert_eq!(found.topology.far_memory(), expected);
    assert_eq!(found.topology.distances(), [[10]]);
    // No huge page of theirs is offered, and none can be reserved.
    let reserved = Options {
        reserved_pages: vec![ReservedPages {
            cell: 1,
            size_kib: 2048,
            count: 1,
        }],
        ..Options::default()
    };
    let refused = discover(&recorded("far-memory"), &reserved).unwrap_err();
    assert!(
        refused.to_string().contains("names NUMA node 1"),
        "{refused}"
    );
}

#[test]
fn a_machine_with_far_memory_alone_is_refused() {
    let tree = Tree::new("0-1")
        .nodes("0-1")
        .node(0, "0-1", 0, "10 20")
        .node(1, "", 1_048_576, "20 10")
        .cpu(0, "0", "0")
        .cpu(1, "0", "1");
    let refused = tree.discover(&Options::default()).unwrap_err();
    let text = "all memory of the host, 1024 MiB, is in NUMA nodes without CPUs";
    assert!(refused.to_string().contains(text), "{refused}");
}

#[test]
fn nodes_with_memory_alone_cpus_alone_or_nothing() {
    let tree = Tree::new("0-1")
        .nodes("0-3")
        .node(0, "0", 1_048_576, "10 20 20 20")
        .node(1, "1", 0, "20 10 20 20")
        .node(2, "", 1_048_576, "20 20 10 30")
        .node(3, "", 0, "20 20 30 10")
        .cpu(0, "0", "0")
        .cpu(1, "0", "1");
    let found = tree.discover(&Options::default()).unwrap();
    assert_eq!(
        lines(&found),
        [
            "0 socket 0 shared 0 dedicated  cores 0 1024 MiB 4x262144-0",
            "1 socket 0 shared 1 dedicated  cores 1 0 MiB 4x0-0",
        ]
    );
    let far = FarMemory {
        id: CellId(2),
        memory_mib: 1024,
    };
    assert_eq!(found.topology.far_memory(), [far]);
    assert_eq!(found.warnings, [Warning::EmptyNode { cell: CellId(3) }]);
    assert_eq!(found.topology.distances(), [[10, 20], [20, 10]]);
}

#[test]
fn what_the_machine_does_not_tell_is_a_warning() {
    let tree = Tree::new("0-3");
    tree.put("proc/meminfo", "MemTotal:        1048576 kB");
    tree.put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "4");
    tree.put(
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        "3",
    );
    let found = tree.discover(&Options::default()).unwrap();
    assert_eq!(
        lines(&found),
        ["0 socket ? shared 0-3 dedicated  cores 0 1 2 3 1024 MiB 4x260096-0 2048x4-0"]
    );
    let cell = CellId(0);
    let cpus = set("0-3");
    let expected = [Warning::NoNodes, Warning::UnknownCores { cell, cpus }];
    assert_eq!(found.warnings, expected);
    assert_eq!(free_pages(tree.0.path()).unwrap()[&cell][&2048], 3);

    let tree = Tree::new("0-2")
        .nodes("0")
        .node(0, "0-1", 1_048_576, "10")
        .cpu(0, "0", "0")
        .cpu(1, "1", "1");
    let found = tree.discover(&Options::default()).unwrap();
    let sockets = vec![SocketId(0), SocketId(1)];
    let cpus = set("2");
    let several = Warning::SeveralSockets { cell, sockets };
    assert_eq!(found.warnings, [Warning::Homeless { cpus }, several]);
    assert_eq!(found.topology.cells()[0].socket, None);

    let tree = Tree::new("0").nodes("0").node(0, "0", 1_048_576, "10");
    let tree = tree.cpu(0, "-1", "0");
    assert_eq!(tree.discover(&Options::default()).unwrap().warnings, []);
}

#[test]
fn options_that_do_not_go_with_the_machine_are_refused_all_at_once() {
    let tree = Tree::new("0-2,4")
        .nodes("0")
        .node(0, "0-2,4", 1_048_576, "10");
    let refused = tree.discover(&options("1-3", "2,9")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cpu_dedicated_set names CPUs 3, which are not online; online are 0-2,4; \
         cpu_shared_set names CPUs 9, which are not online; online are 0-2,4; \
         CPUs 2 are in cpu_dedicated_set and in cpu_shared_set"
    );
    let refused = tree.discover(&options("", "")).unwrap_err();
    let sysfs::Error::Host(options::Error::Options(faults)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(faults, [Fault::NoCpus]);
    let one = Options {
        cpu_dedicated_set: Some(set("1-2")),
        ..Options::default()
    };
    let found = tree.discover(&one).unwrap();
    assert!(found.topology.shared().is_empty(), "not named, not used");
}

/// Goal: CPUs can be for guests of both kinds, as long as nothing else is said of them.
#[test]
fn one_set_may_be_for_both_kinds_of_guests() {
    let tree = Tree::new("0-3").nodes("0").node(0, "0-3", 1_048_576, "10");
    let both = |list| Options {
        vcpu_pin_set: Some(set(list)),
        ..Options::default()
    };
    let found = tree.discover(&both("1-3")).unwrap().topology;
    assert_eq!(found.shared(), set("1-3"));
    assert_eq!(found.dedicated(), set("1-3"));
    let refused = tree.discover(&Options {
        vcpu_pin_set: Some(set("2-4")),
        ..options("1", "0")
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "vcpu_pin_set names CPUs 4, which are not online; online are 0-3; vcpu_pin_set cannot \
         be combined with cpu_dedicated_set and cpu_shared_set"
    );
    let refused = tree.discover(&both("")).unwrap_err();
    assert_eq!(refused.to_string(), "vcpu_pin_set is empty");
}

/// Method: one good machine, in which one file at a time is spoilt or taken away.
#[test]
fn a_spoilt_file_is_named() {
    let good = || {
        Tree::new("0")
            .nodes("0")
            .node(0, "0", 1_048_576, "10")
            .pages(0, 2048, "1", "1")
            .cpu(0, "0", "0")
    };
    good().discover(&Options::default()).unwrap();
    let node = "sys/devices/system/node/node0";
    let spoilt = [
        ("sys/devices/system/cpu/online".to_owned(), "many"),
        ("sys/devices/system/node/online".to_owned(), "3-1"),
        (format!("{node}/cpulist"), "0-99999"),
        (format!("{node}/meminfo"), "nothing"),
        (format!("{node}/meminfo"), "Node 0 MemTotal: lots kB"),
        (format!("{node}/meminfo"), "Node 0 MemTotal: 12 MB"),
        (format!("{node}/distance"), "10 20"),
        (format!("{node}/distance"), "near"),
        (
            format!("{node}/hugepages/hugepages-2048kB/nr_hugepages"),
            "-1",
        ),
        (
            "sys/devices/system/cpu/cpu0/topology/physical_package_id".to_owned(),
            "first",
        ),
        (
            "sys/devices/system/cpu/cpu0/topology/thread_siblings_list".to_owned(),
            "0;1",
        ),
    ];
    for (path, content) in spoilt {
        let tree = good();
        tree.put(&path, content);
        let error = tree.discover(&Options::default()).unwrap_err().to_string();
        assert!(error.contains(&path), "{path} {content:?}: {error}");
        // Of a line, the part that is wrong.
        let wrong = content.rsplit(": ").next().unwrap();
        let wrong = wrong.strip_suffix(" kB").unwrap_or(wrong);
        assert!(error.contains(wrong), "{path} {content:?}: {error}");
    }
    for path in [
        "sys/devices/system/cpu/online",
        "sys/devices/system/node/node0/cpulist",
    ] {
        let tree = good();
        std::fs::remove_file(tree.0.path().join(path)).unwrap();
        let error = tree.discover(&Options::default()).unwrap_err().to_string();
        assert!(error.contains(path) && error.contains("cannot be read"));
    }
}

#[test]
fn a_described_machine_is_what_it_says() {
    let text = r#"
        distances = [[10, 12], [12, 10]]
        [[cells]]
        id = 0
        socket = 0
        cpus = "0-3"
        cores = ["0,2", "1,3"]
        memory_mib = 2048
        huge_pages = [{ size_kib = 2048, total = 256 }]
        [[cells]]
        id = 2
        cpus = "4-5"
        memory_mib = 1024
    "#;
    let described = Description::parse(text).unwrap();
    let found = described.discover(&options("1-3", "0,4-5")).unwrap();
    let cores = vec![set("0,2")];
    assert_eq!(found.warnings, [Warning::SplitCores { cores }]);
    assert_eq!(
        lines(&found),
        [
            "0 socket 0 shared 0 dedicated 1-3 cores 0,2 1,3 2048 MiB 4x393216-0 2048x256-0",
            "2 socket ? shared 4-5 dedicated  cores 4 5 1024 MiB 4x262144-0",
        ]
    );
}

#[test]
fn a_wrong_description_is_refused_with_what_is_wrong() {
    let cell = |rest: &str| format!("[[cells]]\nid = 0\ncpus = \"0-1\"\nmemory_mib = 64\n{rest}");
    let other = "[[cells]]\nid = 1\ncpus = \"1-2\"\nmemory_mib = 64\n";
    for (text, expected) in [
        (cell("colour = 1"), "colour"),
        (String::new(), "cells"),
        (cell("cores = [\"0\"]"), "cores of NUMA node 0"),
        (cell("cores = [\"0-1\", \"1\"]"), "cores of NUMA node 0"),
        (format!("{}{other}", cell("")), "CPUs 1 are in NUMA node 1"),
        (
            format!("distances = [[10, 20]]\n{}", cell("")),
            "1 rows of 1",
        ),
        (
            cell("huge_pages = [{ size_kib = 2048, total = 33 }]"),
            "more than its memory",
        ),
        (
            cell("huge_pages = [{ size_kib = 3, total = 1 }]"),
            "distinct sizes",
        ),
        (format!("{}{}", cell(""), cell("")), "CPUs 0-1"),
    ] {
        let error = Description::parse(&text).and_then(|d| d.discover(&Options::default()));
        let error = error.unwrap_err();
        let mut words = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            words.push_str(&source.to_string());
        }
        assert!(words.contains(expected), "{text}: {words}");
    }
}
