//! What is wrong is told: what, where, and what to do about it; with an exit status that is not
//! 0 where it cannot go on, and with nothing lost.
//!
//! Method: the real programs are given wrong files, flags, names, directories and disks.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use berth_tests::processes::{
    Addresses, Answer, Cluster, Host, Process, Programs, eventually, verdict,
};
use serde_json::Value;

const PROGRAMS: &str = env!("CARGO_BIN_EXE_berth-programs");

/// The programs, and a directory for what they are given.
struct Bench {
    programs: Programs,
    folder: tempfile::TempDir,
    addresses: Addresses,
}

impl Bench {
    fn new() -> Self {
        Self {
            programs: Programs::new(PROGRAMS),
            folder: tempfile::tempdir().expect("a directory"),
            addresses: Addresses::new(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        path
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) -> Answer {
        let mut command = self.programs.command(program);
        command.args(["--log-filter", "error"]).args(arguments);
        Answer::of(command)
    }

    /// Starts a scheduler that is expected to run.
    #[track_caller]
    fn member(&self, arguments: &[&str]) -> Process {
        let mut command = self.programs.command("berth-scheduler");
        command.args(arguments);
        Process::start(command, &self.folder.path().join("member.log"))
    }

    /// Runs an agent with a simulated hypervisor on this machine file.
    #[track_caller]
    fn agent(&mut self, machine: &str, more: &[&str]) -> Answer {
        let address = self.addresses.free();
        let begin = ["--driver", "sim", "--name", "h1", "--listen", &address];
        let machine = ["--machine-file", machine];
        self.run(
            "berth-compute-agent",
            &[&begin[..], &machine, more].concat(),
        )
    }
}

/// Goal: unknown keys and wrong values are refused, all of them at once, by each program.
#[test]
fn wrong_configurations_are_told_with_all_their_faults() {
    let bench = Bench::new();
    let data = bench.path("data");
    let config = bench.file(
        "scheduler.toml",
        "lissten = \"x\"\nraft_tick_ms = 0\nlog_format = \"xml\"\n",
    );
    let words = [
        "unknown key lissten",
        "raft_tick_ms = 0",
        "log_format",
        "xml",
    ];
    let arguments = ["--data-dir", &data, "--config", &config];
    let _ = bench
        .run("berth-scheduler", &arguments)
        .with_status(2)
        .saying(&words);
    assert!(!Path::new(&data).exists(), "nothing was begun");

    let config = bench.file(
        "conductor.toml",
        "nmae = \"c\"\ncalls_max = 0\nschedulers = [\"nowhere\"]\n",
    );
    let words = [
        "unknown key nmae",
        "calls_max = 0",
        "\"nowhere\"",
        "host:port",
    ];
    let answer = bench.run("berth-conductor", &["--config", &config]);
    let _ = answer.with_status(2).saying(&words);

    let config = bench.file(
        "agent.toml",
        "name = \"-\"\ndriver = \"xen\"\nbogus = 1\n[sim]\ntransfer = 1\n[libvirt]\ndisk_cache = \"x\"\n",
    );
    let words = [
        "unknown key bogus",
        "driver",
        "xen",
        "sim.transfer",
        "libvirt.disk_cache",
        "\"-\"",
    ];
    let answer = bench.run("berth-compute-agent", &["--config", &config]);
    let _ = answer.with_status(2).saying(&words);

    for program in ["berth-scheduler", "berth-conductor", "berth-compute-agent"] {
        let missing = bench.path("missing.toml");
        let answer = bench.run(program, &["--config", &missing]);
        let _ = answer
            .with_status(2)
            .saying(&["missing.toml", "cannot be read"]);
        let broken = bench.file("broken.toml", "listen = [\n");
        let _ = bench.run(program, &["--config", &broken]).with_status(2);
        let _ = bench
            .run(program, &["--bogus"])
            .with_status(2)
            .saying(&["--bogus"]);
    }
}

/// Goal: no program listens where strangers are unless it was told that this is meant.
#[test]
fn listening_beyond_loopback_takes_a_word() {
    let bench = Bench::new();
    let data = bench.path("data");
    let cases: [(&str, &[&str]); 3] = [
        ("berth-scheduler", &["--data-dir", &data, "--bootstrap"]),
        ("berth-conductor", &[]),
        ("berth-compute-agent", &["--driver", "sim", "--name", "h1"]),
    ];
    for (program, more) in cases {
        let listen = ["--listen", "0.0.0.0:0"];
        let answer = bench.run(program, &[&listen[..], more].concat());
        let words = [
            "0.0.0.0:0",
            "not loopback",
            "--insecure-listen",
            "advertise",
        ];
        let _ = answer.with_status(2).saying(&words);
    }
    assert!(!Path::new(&data).exists(), "nothing was begun");
}

/// Goal: an address that is taken is named, by each program.
#[test]
fn an_address_in_use_is_named() {
    let mut bench = Bench::new();
    let taken = bench.addresses.free();
    let _listener = TcpListener::bind(&taken).expect("it is free");
    let machine = bench.file("machine.toml", MACHINE);
    let data = bench.path("data");
    let cases: [(&str, &[&str]); 3] = [
        ("berth-scheduler", &["--data-dir", &data, "--bootstrap"]),
        ("berth-conductor", &[]),
        (
            "berth-compute-agent",
            &[
                "--driver",
                "sim",
                "--name",
                "h1",
                "--machine-file",
                &machine,
            ],
        ),
    ];
    for (program, more) in cases {
        let listen = ["--listen", taken.as_str()];
        let answer = bench.run(program, &[&listen[..], more].concat());
        let _ = answer
            .with_status(1)
            .saying(&["cannot listen on", &taken, "in use"]);
    }
    assert!(!Path::new(&data).exists(), "nothing was begun");
}

const MACHINE: &str = "[[cells]]\nid = 0\ncpus = \"0-3\"\nmemory_mib = 4096\n";

/// Goal: descriptions of machines that cannot be are refused with the file, the cell and every
/// fault; so are CPU sets that do not go with the machine.
#[test]
fn wrong_topology_files_are_told() {
    let mut bench = Bench::new();
    let cases = [
        ("no TOML", "cells = [", vec!["machine.toml"]),
        (
            "an unknown key",
            "[[cells]]\nid = 0\nmemory_mib = 1\nsockte = 0\n",
            vec!["sockte"],
        ),
        (
            "a CPU list that is none",
            "[[cells]]\nid = 0\ncpus = \"3-0\"\nmemory_mib = 1\n",
            vec!["3-0"],
        ),
        (
            "no memory",
            "[[cells]]\nid = 0\ncpus = \"0\"\n",
            vec!["memory_mib"],
        ),
        ("no cells", "cells = []\n", vec!["machine.toml"]),
        (
            "four faults",
            "distances = [[10]]\n\
             [[cells]]\nid = 0\ncpus = \"0-3\"\ncores = [\"0-1\"]\nmemory_mib = 64\n\
             [[cells]]\nid = 1\ncpus = \"3-5\"\nmemory_mib = 64\n\
             huge_pages = [{ size_kib = 2048, total = 512 }]\n",
            vec![
                "distances",
                "cores of cell 0",
                "CPUs 3",
                "cell 1",
                "huge pages",
                "more than its memory",
            ],
        ),
        (
            "a cell twice",
            "[[cells]]\nid = 0\ncpus = \"0\"\nmemory_mib = 64\n\
             [[cells]]\nid = 0\ncpus = \"1\"\nmemory_mib = 64\n",
            vec!["cell"],
        ),
    ];
    for (what, text, words) in cases {
        let machine = bench.file("machine.toml", text);
        let answer = bench.agent(&machine, &[]);
        assert_eq!(answer.status, Some(1), "{what}: {answer:#?}");
        let _ = answer.saying(&words).saying(&["error: ", "machine.toml"]);
    }

    let machine = bench.file("machine.toml", MACHINE);
    let sets = ["--cpu-dedicated-set", "2-5", "--cpu-shared-set", "0-2"];
    let words = [
        "cpu_dedicated_set",
        "4-5",
        "online are 0-3",
        "CPUs 2 are in",
    ];
    let _ = bench.agent(&machine, &sets).with_status(1).saying(&words);
    let missing = bench.path("nothing.toml");
    let _ = bench
        .agent(&missing, &[])
        .with_status(1)
        .saying(&["nothing.toml", "No such file"]);

    // The kernel's files, as far as somebody wrote them down.
    let root = bench.folder.path().join("root");
    let node = root.join("sys/devices/system/node/node0");
    fs::create_dir_all(&node).expect("a directory");
    fs::write(node.join("cpulist"), "zero\n").expect("a file");
    let text = format!("driver = \"sim\"\nname = \"h1\"\nroot = {root:?}\n");
    let config = bench.file("agent.toml", &text);
    let address = bench.addresses.free();
    let arguments = ["--config", config.as_str(), "--listen", &address];
    let answer = bench.run("berth-compute-agent", &arguments).with_status(1);
    let _ = answer.saying(&["error: ", &root.display().to_string()]);
}

/// Goal: a file of simulated guests that cannot be read is told, and left as it is.
#[test]
fn a_damaged_file_of_guests_is_told() {
    let mut bench = Bench::new();
    let machine = bench.file("machine.toml", MACHINE);
    let guests = bench.file("guests.json", "[{");
    let text = format!("driver = \"sim\"\n[sim]\nstate_file = {guests:?}\n");
    let config = bench.file("agent.toml", &text);
    let answer = bench.agent(&machine, &["--config", &config]).with_status(1);
    let _ = answer.saying(&["guests.json", "cannot be read"]);
    assert_eq!(fs::read_to_string(&guests).expect("it is there"), "[{");
}

/// Goal: impossible flavors are refused with the key and the rule, several faults at once.
#[test]
fn impossible_flavors_are_refused() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .start();
    let cases: [(&[&str], &[&str]); 9] = [
        (&["hw:cpu_polcy=dedicated"], &["hw:cpu_polcy", "known are"]),
        (&["hw:cpu_policy=greedy"], &["hw:cpu_policy", "greedy"]),
        (
            &["hw:mem_page_size=plenty"],
            &["hw:mem_page_size", "plenty"],
        ),
        (&["hw:mem_page_size=3"], &["hw:mem_page_size", "3"]),
        (&["hw:numa_nodes=0"], &["hw:numa_nodes", "must be a number"]),
        (&["hw:numa_nodes=3"], &["hw:numa_nodes", "3"]),
        (
            &[
                "hw:numa_nodes=2",
                "hw:numa_cpus.0=0-2",
                "hw:numa_cpus.1=2-3",
            ],
            &["hw:numa_cpus"],
        ),
        (
            &[
                "hw:numa_nodes=2",
                "hw:numa_cpus.0=0-1",
                "hw:numa_mem.0=64",
                "hw:numa_cpus.1=2-3",
                "hw:numa_mem.1=65",
            ],
            &["hw:numa_mem", "sum", "128"],
        ),
        (
            &[
                "hw:cpu_polcy=x",
                "hw:numa_nodes=many",
                "hw:emulator_threads_policy=x",
                "nowhere=1",
            ],
            &[
                "hw:cpu_polcy",
                "hw:numa_nodes",
                "hw:emulator_threads_policy",
                "nowhere",
                "a key needs a namespace",
            ],
        ),
    ];
    for (specs, words) in cases {
        let specs: Vec<&str> = specs.iter().flat_map(|spec| ["--spec", spec]).collect();
        let create = [
            "flavor",
            "create",
            "bad",
            "--vcpus",
            "4",
            "--memory-mib",
            "128",
        ];
        let answer = cluster.berth(&[&create[..], &specs].concat());
        let _ = answer.with_status(1).saying(words).saying(&["error: "]);
    }
    for size in [
        ["--vcpus", "0", "--memory-mib", "64"],
        ["--vcpus", "1", "--memory-mib", "0"],
    ] {
        let answer = cluster.berth(&[&["flavor", "create", "bad"][..], &size].concat());
        let _ = answer.with_status(1).saying(&["error: "]);
    }
    let named = [
        "flavor",
        "create",
        "no/slash",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ];
    let _ = cluster.berth(&named).with_status(1).saying(&["no/slash"]);
    let flavors = cluster.json(&["flavor", "list"]);
    assert_eq!(flavors.as_array().map(Vec::len), Some(0), "{flavors:#}");
}

/// Goal: whatever is asked of something that is not there, the answer names it and its kind.
#[test]
fn unknown_names_are_told_by_every_verb() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let before = cluster.json(&["vm", "list"]);
    let id = "00000000-0000-4000-8000-000000000000";
    let cases: [(&[&str], &str); 22] = [
        (&["host", "show", "nobody"], "HOST_NOT_FOUND"),
        (&["host", "cordon", "nobody"], "HOST_NOT_FOUND"),
        (&["host", "uncordon", "nobody"], "HOST_NOT_FOUND"),
        (&["host", "remove", "nobody"], "HOST_NOT_FOUND"),
        (&["flavor", "show", "nobody"], "FLAVOR_NOT_FOUND"),
        (&["flavor", "delete", "nobody"], "FLAVOR_NOT_FOUND"),
        (&["vm", "show", "nobody"], "VM_NOT_FOUND"),
        (&["vm", "migrate", "nobody"], "VM_NOT_FOUND"),
        (&["vm", "delete", "nobody"], "VM_NOT_FOUND"),
        (&["vm", "console", "nobody"], "VM_NOT_FOUND"),
        (
            &["vm", "migrate", "a", "--host", "nobody"],
            "HOST_NOT_FOUND",
        ),
        (&["migration", "show", id], "MIGRATION_NOT_FOUND"),
        (&["operation", "show", id], "OPERATION_NOT_FOUND"),
        (&["operation", "wait", id], "OPERATION_NOT_FOUND"),
        (&["operation", "cancel", id], "OPERATION_NOT_FOUND"),
        (&["cluster", "remove-member", "99"], "MEMBER_NOT_FOUND"),
        (&["cluster", "transfer-leader", "99"], "MEMBER_NOT_FOUND"),
        (&["provider", "show", id], "PROVIDER_NOT_FOUND"),
        (
            &["provider", "set-inventories", id, "--inventory", "VCPU=1"],
            "PROVIDER_NOT_FOUND",
        ),
        (
            &["provider", "set-traits", id, "--trait", "HW_NUMA"],
            "PROVIDER_NOT_FOUND",
        ),
        (&["provider", "delete", id], "PROVIDER_NOT_FOUND"),
        (
            &["provider", "create", "x", "--parent", id],
            "PROVIDER_NOT_FOUND",
        ),
    ];
    for (arguments, reason) in cases {
        let named = if arguments.contains(&"99") { "99" } else { "" };
        let named = if arguments.contains(&"nobody") {
            "nobody"
        } else {
            named
        };
        let named = if arguments.contains(&id) { id } else { named };
        let _ = cluster
            .berth(arguments)
            .with_status(1)
            .saying(&["error: ", reason, named]);
    }
    let create = Cluster::create("b", "nobody");
    let _ = cluster
        .berth(&create)
        .with_status(1)
        .saying(&["FLAVOR_NOT_FOUND", "nobody"]);
    let create = [&Cluster::create("b", "one")[..], &["--host", "nobody"]].concat();
    let words = ["HOST_NOT_FOUND", "nobody", "not part of this cluster"];
    let _ = cluster.berth(&create).with_status(1).saying(&words);
    let _ = cluster
        .berth(&["operation", "show", "x"])
        .with_status(1)
        .saying(&["operations/{operation}", "UUID"]);
    let _ = cluster.berth(&["vm", "show", "-a-"]).with_status(2);
    let _ = cluster
        .berth(&["vm", "show", "A B"])
        .with_status(1)
        .saying(&["A B"]);
    let again = cluster.berth(&Cluster::create("a", "one"));
    let _ = again.with_status(1).saying(&["VM_EXISTS"]);
    let nothing = cluster.berth(&["vm", "create", "b", "--flavor", "one"]);
    let _ = nothing
        .with_status(1)
        .saying(&["boot from", "--kernel", "--disk"]);
    assert_eq!(cluster.json(&["vm", "list"]), before, "nothing changed");
    verdict::holds(&cluster);

    let nobody = cluster.berth_at("127.0.0.1:1", &["vm", "list"]);
    let _ = nobody.with_status(3).saying(&["error: ", "127.0.0.1:1"]);
    let _ = cluster
        .berth(&["vm", "lsit"])
        .with_status(2)
        .saying(&["lsit"]);
}

/// A member that has written two checkpoints and was killed; its flavor "kept" must never be lost.
fn used_member() -> Cluster {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .checkpoint_entries(100)
        .start();
    let folder = checkpoints(&cluster);
    let first = files(&folder);
    cluster.pinned_flavor("kept", 1);
    // The flavor must be in both, and neither be the one that the cluster began with.
    eventually("two checkpoints of later states", || {
        cluster.keep_busy(100);
        let found = files(&folder);
        let later = found.iter().all(|file| file != &first[0]);
        (later && found.len() == 2)
            .then_some(())
            .ok_or_else(|| format!("{found:?}"))
    });
    cluster.schedulers[0].kill();
    cluster
}

fn checkpoints(cluster: &Cluster) -> PathBuf {
    cluster.data_dir(0).join("checkpoints")
}

/// Returns the files of a directory by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a directory");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

fn damage(file: &Path) {
    let mut bytes = fs::read(file).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).expect("it is damaged");
}

#[track_caller]
fn nothing_is_lost(cluster: &mut Cluster) {
    cluster.schedulers[0].start(&cluster.programs);
    cluster.wait();
    assert_eq!(cluster.json(&["flavor", "show", "kept"])["name"], "kept");
}

/// Goal: one damaged checkpoint is repaired from the other and the log, and told; with both
/// damaged, and the table gone, the member refuses to make up a state.
#[test]
fn damaged_checkpoints_are_repaired_or_refused() {
    let mut cluster = used_member();
    let folder = checkpoints(&cluster);
    let table = cluster.data_dir(0).join("table");
    let found = files(&folder);
    assert_eq!(found.len(), 2, "{found:?}");

    damage(&found[1]);
    fs::remove_dir_all(&table).expect("a table");
    nothing_is_lost(&mut cluster);
    let said = cluster.schedulers[0].said();
    assert!(
        said.contains("WARN") && said.contains("checkpoint"),
        "{said}"
    );
    assert!(
        said.contains("was removed") && said.contains("the log"),
        "{said}"
    );

    cluster.keep_busy(300);
    cluster.schedulers[0].kill();
    fs::remove_dir_all(&table).expect("a table");
    let copy: Vec<_> = files(&folder);
    let whole: Vec<_> = copy
        .iter()
        .map(|file| fs::read(file).expect("a file"))
        .collect();
    for file in &copy {
        damage(file);
    }
    let said = cluster.schedulers[0].fails(&cluster.programs, 1);
    for word in ["no usable checkpoint", "Remove", "join again"] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
    // It has touched nothing: with the files as they were it goes on.
    for (file, bytes) in copy.iter().zip(whole) {
        fs::write(file, bytes).expect("a file");
    }
    nothing_is_lost(&mut cluster);
}

/// Goal: a table that is empty, gone or damaged is rebuilt, and told.
#[test]
fn an_emptied_table_is_rebuilt() {
    let mut cluster = used_member();
    let table = cluster.data_dir(0).join("table");
    let ways: [fn(&Path); 3] = [
        |table| fs::remove_dir_all(table).expect("a table"),
        |table| {
            fs::remove_dir_all(table).expect("a table");
            fs::create_dir(table).expect("an empty directory");
        },
        |table| {
            files(table)
                .iter()
                .filter(|file| file.is_file())
                .for_each(|file| damage(file))
        },
    ];
    for way in ways {
        way(&table);
        nothing_is_lost(&mut cluster);
        let said = cluster.schedulers[0].said();
        assert!(said.contains("WARN") && said.contains("table"), "{said}");
        assert!(
            said.contains("rebuilt") || said.contains("deleted"),
            "{said}"
        );
        cluster.schedulers[0].kill();
    }
}

/// Goal: a directory belongs to one cluster, one member and one process.
#[test]
fn directories_are_not_mixed_up() {
    let mut first = used_member();
    let mut second = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .start();
    let id = second.json(&["cluster", "status"])["cluster_id"].clone();
    let id = id.as_str().expect("a cluster has an id").to_owned();
    let directory = first.data_dir(0).display().to_string();

    let address = second.schedulers[0].address.clone();
    let joining = ["--join", &address];
    first.schedulers[0].start_with(&first.programs, &joining);
    assert_eq!(first.schedulers[0].process().wait(), 1);
    first.schedulers[0].kill();
    let said = first.schedulers[0].said();
    for word in [&directory, "belongs to cluster", &id] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }

    first.schedulers[0].start_with(&first.programs, &["--cluster-id", &id]);
    assert_eq!(first.schedulers[0].process().wait(), 1);
    first.schedulers[0].kill();
    let said = first.schedulers[0].said();
    assert!(
        said.contains("belongs to cluster") && said.contains(&id),
        "{said}"
    );

    // The other cluster's directory in place of its own: its peers refuse what it says.
    let running = second.data_dir(0).display().to_string();
    let bench = Bench::new();
    let mut addresses = Addresses::new();
    let free = addresses.free();
    let answer = bench.run(
        "berth-scheduler",
        &["--data-dir", &running, "--listen", &free],
    );
    let _ = answer
        .with_status(1)
        .saying(&[&running, "in use by another process"]);
    let answer = bench.run(
        "berth-scheduler",
        &["--data-dir", &directory, "--listen", &free, "--bootstrap"],
    );
    let _ = answer
        .with_status(1)
        .saying(&[&directory, "already holds member 1"]);
    let empty = bench.path("empty");
    let answer = bench.run(
        "berth-scheduler",
        &["--data-dir", &empty, "--listen", &free],
    );
    let _ = answer
        .with_status(1)
        .saying(&[&empty, "--bootstrap", "--join"]);
    let occupied = bench.path("occupied");
    fs::create_dir(&occupied).expect("a directory");
    fs::write(Path::new(&occupied).join("thesis.txt"), "mine").expect("a file");
    let arguments = ["--data-dir", &occupied, "--listen", &free, "--bootstrap"];
    let answer = bench.run("berth-scheduler", &arguments);
    let _ = answer.with_status(1).saying(&[&occupied, "not empty"]);

    nothing_is_lost(&mut first);
    second.wait();
}

/// Goal: a member whose disk is full does not start, says so and loses nothing; a new one leaves
/// nothing behind that is in the way once there is room, neither there nor in the cluster.
#[test]
fn a_full_disk_is_told_at_the_start() {
    let Some(disk) = SmallDisk::make() else {
        return;
    };
    let mut cluster = used_member();
    let mut bench = Bench::new();
    let [address, joining] = [(); 2].map(|()| bench.addresses.free());
    let new = disk.path("new");
    let begin = ["--data-dir", &new, "--listen", &address, "--bootstrap"];
    for left_mib in [0, 20] {
        let _filler = disk.fill(left_mib);
        let answer = bench.run("berth-scheduler", &begin).with_status(1);
        let full = ["is full", "No space left"]
            .iter()
            .any(|word| answer.stderr.contains(word));
        assert!(full && answer.stderr.contains(&new), "{answer:#?}");
    }
    let mut part = bench.member(&begin);
    answers(&bench, &address, &["cluster", "status"]);

    let join = disk.path("join");
    let join = [
        "--data-dir",
        &join,
        "--listen",
        &joining,
        "--join",
        &address,
    ];
    let filler = disk.fill(20);
    let answer = bench.run("berth-scheduler", &join).with_status(1);
    let _ = answer.saying(&["is full", "MiB are free", "MiB are needed"]);
    let status = answers(&bench, &address, &["cluster", "status"]);
    assert_eq!(
        status["members"].as_array().map(Vec::len),
        Some(1),
        "{status:#}"
    );
    drop(filler);
    part.kill();

    // A member that has a state.
    let used = disk.path("used");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(cluster.data_dir(0))
        .arg(&used)
        .status();
    assert!(copied.expect("cp runs").success());
    let address = cluster.schedulers[0].address.clone();
    let again = ["--data-dir", &used, "--listen", &address];
    let filler = disk.fill(0);
    let answer = bench.run("berth-scheduler", &again).with_status(1);
    let _ = answer.saying(&["is full", "MiB are free", "MiB are needed", &used]);
    drop(filler);
    let mut part = bench.member(&again);
    answers(&bench, &address, &["flavor", "show", "kept"]);
    part.kill();
    nothing_is_lost(&mut cluster);
}

/// Waits until a scheduler answers this, and returns the answer.
#[track_caller]
fn answers(bench: &Bench, address: &str, arguments: &[&str]) -> Value {
    eventually("an answer", || {
        let mut command = bench.programs.command("berth");
        command.args(["--output", "json", "--scheduler", address]);
        command.args(arguments);
        Answer::of(command).json()
    })
}

/// A file system of 200 MiB in a mount namespace of its own, which ends with a process.
struct SmallDisk {
    holder: Child,
    root: PathBuf,
}

impl SmallDisk {
    /// Makes one; says why there is none where the test may not mount.
    fn make() -> Option<Self> {
        // As root, or else as the root of a user namespace.
        for more in [&["--mount"][..], &["--map-root-user", "--mount"]] {
            if let Some(disk) = Self::make_with(more) {
                return Some(disk);
            }
        }
        let why = "a small file system cannot be mounted here, which takes root";
        assert_ne!(
            std::env::var("BERTH_REAL").as_deref(),
            Ok("require"),
            "{why}"
        );
        eprintln!("skipped: {why}");
        None
    }

    fn make_with(namespaces: &[&str]) -> Option<Self> {
        let script = "mount --make-rprivate / && mount -t tmpfs -o size=200m small /mnt \
                      && echo ready && read -r _";
        let mut holder = Command::new("unshare")
            .args(namespaces)
            .args(["sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let output = holder.stdout.take().expect("it is piped");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let disk = Self {
            root: PathBuf::from(format!("/proc/{}/root/mnt", holder.id())),
            holder,
        };
        (read.is_ok() && line == "ready\n").then_some(disk)
    }

    fn path(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    /// Takes all space but so many MiB, until the guard is dropped.
    fn fill(&self, left_mib: u64) -> Filler {
        let filler = Filler(self.root.join("filler"));
        let mut file = File::create(&filler.0).expect("a file");
        let part = [0; 1 << 16];
        let mut written = 0;
        while let Ok(count @ 1..) = file.write(&part) {
            written += count as u64;
        }
        let kept = written.saturating_sub(left_mib << 20);
        file.set_len(kept).expect("it was longer");
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Its input ends here, and with it the namespace; killed, should it not read.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A file that takes space away while it lives.
struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("it was made");
    }
}
