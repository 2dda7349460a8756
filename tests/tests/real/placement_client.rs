//! OpenStack's own client against Berth's face of Placement.
//!
//! Goal: who works with `openstack` and its plug-in osc-placement notices nothing. Method: the
//! real commands from PyPI, each as a person would type it: make a provider, give it inventory
//! and traits, take of it, ask for candidates and usages, and be refused.

use std::process::Command;

use berth_tests::lab::placement_python;
use berth_tests::processes::{Addresses, Answer, Process, Programs, eventually};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::PROGRAMS;

/// A server with nothing in it, and where the client finds it.
struct Server {
    address: String,
    // Ends before its program and its log are taken away.
    _process: Process,
    _programs: Programs,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let address = Addresses::new().free();
        let programs = Programs::new(PROGRAMS);
        let mut command = Command::new(programs.path("berth"));
        command
            .args(["dev", "--hosts", "0", "--ephemeral"])
            .args(["--placement-listen", &address])
            .args(["--placement-profile", "default"]);
        let process = Process::start(command, &folder.path().join("log"));
        let server = Self {
            address,
            _process: process,
            _programs: programs,
            _folder: folder,
        };
        eventually("an answer of the server", || {
            std::net::TcpStream::connect(&server.address).map(drop)
        });
        server
    }

    /// Types `openstack` and these words.
    fn openstack(&self, words: &[&str]) -> Answer {
        let mut command = Command::new(placement_python().with_file_name("openstack"));
        command
            .args(words)
            .env("OS_AUTH_TYPE", "admin_token")
            .env("OS_ENDPOINT", format!("http://{}", self.address))
            .env("OS_TOKEN", "admin")
            .env("OS_PLACEMENT_API_VERSION", "1.39");
        Answer::of(command)
    }

    /// Types them, and returns what is shown for programs.
    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        let answer = self.openstack(&[words, &["-f", "json"]].concat());
        answer.json().unwrap_or_else(|told| panic!("{told}"))
    }
}

pub(crate) fn openstacks_own_client_creates_lists_allocates_and_queries() {
    let server = Server::start();
    let made = server.json(&["resource", "provider", "create", "h1"]);
    let provider = made["uuid"].as_str().expect("a provider has a uuid");
    let listed = server.json(&["resource", "provider", "list"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["name"], "h1");

    let set = ["resource", "provider", "inventory", "set", provider];
    let stock = ["--resource", "VCPU=8", "--resource", "MEMORY_MB=4096"];
    server.json(&[&set[..], &stock].concat());
    let tagged = ["--trait", "HW_CPU_X86_AVX2", provider];
    server.json(&[&["resource", "provider", "trait", "set"], &tagged[..]].concat());

    let consumer = Uuid::new_v4().to_string();
    let allocate = |vcpus: u32| {
        let wanted = format!("rp={provider},VCPU={vcpus}");
        let words = [
            ["resource", "provider", "allocation", "set"],
            [&consumer, "--allocation", &wanted, "--project-id"],
            ["p", "--user-id", "u", "--consumer-type"],
        ]
        .concat();
        server.openstack(&[&words[..], &["INSTANCE", "-f", "json"]].concat())
    };
    let taken = allocate(2).json().expect("there is room for two");
    assert_eq!(taken[0]["resources"], json!({"VCPU": 2}), "{taken}");
    allocate(9).with_status(1).saying(&["exceed the capacity"]);

    let query = ["allocation", "candidate", "list", "--resource", "VCPU=4"];
    let found = |required: &str| server.json(&[&query[..], &["--required", required]].concat());
    let candidates = found("HW_CPU_X86_AVX2");
    assert_eq!(candidates[0]["resource provider"], provider, "{candidates}");
    assert_eq!(found("HW_CPU_X86_AVX512F"), json!([]));

    let usage = server.json(&["resource", "provider", "usage", "show", provider]);
    let of = |class: &str| {
        let rows = usage.as_array().into_iter().flatten();
        rows.filter(|row| row["resource_class"] == class)
            .map(|row| row["usage"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("VCPU"), [json!(2)], "{usage}");
    assert_eq!(of("MEMORY_MB"), [json!(0)], "{usage}");
}
