//! Goal: the program says what is wrong with what it is given, in the status and in words, and
//! stops when it is told to.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const MACHINE: &str = "[[cells]]\nid = 0\ncpus = \"0-3\"\nmemory_mib = 1024\n";

fn agent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth-compute-agent"));
    command.env("BERTH_LOG", "info").stdin(Stdio::null());
    command
}

fn ended(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn wrong_use_is_status_2_with_every_fault() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(
        directory.path(),
        "agent.toml",
        "colour = 1\ndisk_gib = \"much\"\n[sim]\nspeed = 2\n",
    );
    let (status, said) = ended(agent().args(["--config", &file, "--listen", "0.0.0.0:0"]));
    assert_eq!(status, 2, "{said}");
    for part in [
        "colour",
        "disk_gib",
        "sim.speed",
        "not loopback",
        "set advertise",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for flags in [
        vec!["--config", "/nonexistent.toml"],
        vec!["--service-version", "9"],
        vec!["--cpu-dedicated-set", "3-1"],
        vec!["--cpu-dedicated-set", "8000"],
        vec!["--driver", "xen"],
        vec!["--surprise"],
    ] {
        let (status, said) = ended(agent().args(&flags));
        assert_eq!(status, 2, "{flags:?}: {said}");
    }
}

#[test]
fn what_keeps_it_from_starting_is_status_1_with_the_cause() {
    let directory = tempfile::tempdir().unwrap();
    let good = write(directory.path(), "machine.toml", MACHINE);
    let bad = write(directory.path(), "bad.toml", "[[cells]]\nid = 0\n");
    let state = write(directory.path(), "guests.json", "not JSON");
    let config = format!("[sim]\nstate_file = {state:?}\n");
    let damaged = write(directory.path(), "agent.toml", &config);
    let sim = ["--name", "h1", "--driver", "sim", "--listen", "127.0.0.1:0"];
    for (flags, cause) in [
        (vec!["--machine-file", &*bad], "memory_mib"),
        (vec!["--machine-file", "/nonexistent.toml"], "No such file"),
        (
            vec!["--machine-file", &*good, "--config", &*damaged],
            "guests.json cannot be read",
        ),
    ] {
        let (status, said) = ended(agent().args(sim).args(&flags));
        assert_eq!(status, 1, "{flags:?}: {said}");
        assert!(said.contains(cause), "{flags:?}: {said}");
    }
}

/// Goal: an agent whose schedulers are another program, or nothing, says so in its first attempt. Method:
/// another agent, and a port at which nothing listens.
#[test]
fn a_wrong_address_of_the_schedulers_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let machine = write(directory.path(), "machine.toml", MACHINE);
    let start = |scheduler: &str| {
        let mut command = agent();
        command.args(["--name", "h1", "--driver", "sim", "--listen", "127.0.0.1:0"]);
        command.args(["--scheduler", scheduler, "--machine-file", &machine]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    // Returns the first line with this word.
    let until = |lines: &mut BufReader<std::process::ChildStderr>, word: &str| {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
        }
        line
    };
    let mut lost = start("127.0.0.1:1");
    let mut lines = BufReader::new(lost.stderr.take().unwrap());
    let serving = until(&mut lines, "serving");
    let failed = until(&mut lines, "registration failed");
    assert!(
        failed.contains("no scheduler answers at http://127.0.0.1:1"),
        "{failed}"
    );
    let address = serving.split_whitespace().find_map(|word| {
        let at = word.find("127.0.0.1:")?;
        let address = word[at..].trim_matches(|c: char| !c.is_ascii_digit());
        Some(address.to_owned())
    });
    let address = address.expect("where it listens");
    let mut misdirected = start(&address);
    let mut lines = BufReader::new(misdirected.stderr.take().unwrap());
    let failed = until(&mut lines, "registration failed");
    for part in [
        &*address,
        "is no scheduler",
        "name the schedulers with --scheduler",
    ] {
        assert!(failed.contains(part), "{part}: {failed}");
    }
    for child in [&mut lost, &mut misdirected] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn it_stops_when_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let machine = write(directory.path(), "machine.toml", MACHINE);
    let mut child = agent()
        .args(["--name", "h1", "--driver", "sim", "--listen", "127.0.0.1:0"])
        .args(["--scheduler", "127.0.0.1:1", "--machine-file", &machine])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("serving") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let told = Command::new("kill").arg(child.id().to_string()).status();
    assert!(told.unwrap().success());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("stopped"), "{rest}");
}
