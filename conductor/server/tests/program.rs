//! The program as a whole: what it says and with which status it ends.
//!
//! Goal: whoever starts it wrongly learns everything that is wrong at once, and whoever stops it
//! gets a clean end. Method: the real binary; no scheduler is needed for any of this.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth-conductor"));
    command.env_remove("BERTH_LOG").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = program().args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn write(folder: &Path, text: &str) -> String {
    let path = folder.join("conductor.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn help_is_data_and_no_error() {
    let (status, out, err) = run(&["--help"]);
    assert_eq!(status, Some(0));
    assert!(out.contains("--scheduler") && err.is_empty(), "{out}{err}");
}

#[test]
fn unknown_flags_end_with_status_2() {
    let (status, _, err) = run(&["--schedular", "x"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("--schedular"), "{err}");
}

#[test]
fn all_faults_of_file_and_flags_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "lease_ttl_ms = 1\nlisten_on = \"x\"\n");
    let (status, out, err) = run(&["--config", &file, "--scheduler", "nowhere"]);
    assert_eq!(status, Some(2));
    assert!(out.is_empty(), "{out}");
    for part in ["lease_ttl_ms = 1", "unknown key listen_on", "\"nowhere\""] {
        assert!(err.contains(part), "{part}: {err}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let (status, _, err) = run(&["--config", "/nowhere/conductor.toml"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("/nowhere/conductor.toml"), "{err}");
}

#[test]
fn beyond_loopback_needs_a_word() {
    let (status, _, err) = run(&["--listen", "0.0.0.0:0", "--advertise", "h1:7200"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("--insecure-listen"), "{err}");
}

#[test]
fn a_taken_address_ends_with_status_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (status, _, err) = run(&["--listen", &address]);
    assert_eq!(status, Some(1));
    assert!(
        err.contains(&format!("cannot listen on {address}")),
        "{err}"
    );
    assert!(err.contains("code address-in-use"), "{err}");
}

/// Ends the process however the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_waits_for_a_scheduler_and_stops_when_told() {
    // Nobody listens on a port that was just given back.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let scheduler = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let child = program()
        .args(["--listen", "127.0.0.1:0", "--scheduler", &scheduler])
        .args(["--log-format", "json"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    let lines = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let wait_for = |text: &str| loop {
        let line = receiver.recv_timeout(Duration::from_secs(60)).expect(text);
        if line.contains(text) {
            break;
        }
    };
    wait_for("serving");
    let told = Command::new("kill")
        .arg(running.0.id().to_string())
        .status();
    assert!(told.unwrap().success());
    wait_for("stopped");
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
}
