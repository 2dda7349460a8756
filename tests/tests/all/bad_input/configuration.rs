//! Wrong flags, configuration files, machine files and addresses.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use berth_tests::processes::Bench;

use crate::PROGRAMS;

/// Goal: unknown keys and wrong values are refused, all of them at once, by each program.
#[test]
fn wrong_configurations_are_told_with_all_their_faults() {
    let bench = Bench::new(PROGRAMS);
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
    let bench = Bench::new(PROGRAMS);
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
    let mut bench = Bench::new(PROGRAMS);
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
            .saying(&["cannot listen on", &taken, "in use"])
            .saying(&["hint:", "--metrics-listen", "code address-in-use"]);
    }
    // A free port for clients, and the taken one for readers of metrics.
    let (config, socket) = (bench.file("csi.toml", ""), bench.path("csi.sock"));
    let controller = [
        "--config".to_owned(),
        config,
        "--csi-endpoint".to_owned(),
        format!("unix://{socket}"),
    ];
    let controller: Vec<&str> = controller.iter().map(String::as_str).collect();
    let free = ["--listen", "127.0.0.1:0"];
    for (program, more) in [
        ("berth-scheduler", [&free[..], cases[0].1].concat()),
        ("berth-conductor", free.to_vec()),
        ("berth-compute-agent", [&free[..], cases[2].1].concat()),
        ("berth-csi-controller", controller),
    ] {
        let answer = bench.run(
            program,
            &[&["--metrics-listen", &taken][..], &more].concat(),
        );
        let _ = answer
            .with_status(1)
            .saying(&["cannot listen on", &taken, "in use"])
            .saying(&["hint:", "--metrics-listen", "code address-in-use"]);
    }
    assert!(!Path::new(&data).exists(), "nothing was begun");
}

const MACHINE: &str = "[[cells]]\nid = 0\ncpus = \"0-3\"\nmemory_mib = 4096\n";

/// Goal: descriptions of machines that cannot be are refused with the file, the cell and every
/// fault; so are CPU sets that do not go with the machine.
#[test]
fn wrong_topology_files_are_told() {
    let mut bench = Bench::new(PROGRAMS);
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
                "cores of NUMA node 0",
                "CPUs 3",
                "NUMA node 1",
                "huge pages",
                "more than its memory",
            ],
        ),
        (
            "a cell twice",
            "[[cells]]\nid = 0\ncpus = \"0\"\nmemory_mib = 64\n\
             [[cells]]\nid = 0\ncpus = \"1\"\nmemory_mib = 64\n",
            vec!["NUMA node"],
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
    let _ = bench.agent(&machine, &sets).with_status(2).saying(&words);
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
    let mut bench = Bench::new(PROGRAMS);
    let machine = bench.file("machine.toml", MACHINE);
    let guests = bench.file("guests.json", "[{");
    let text = format!("driver = \"sim\"\n[sim]\nstate_file = {guests:?}\n");
    let config = bench.file("agent.toml", &text);
    let answer = bench.agent(&machine, &["--config", &config]).with_status(1);
    let _ = answer.saying(&["guests.json", "cannot be read"]);
    assert_eq!(fs::read_to_string(&guests).expect("it is there"), "[{");
}
