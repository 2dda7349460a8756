//! The command's nouns of counted placement, against a real process.
//!
//! Goal: what is typed is what happens, and both people and programs can read what came of it.
//! Method: hosts of two cells, asked for in the ways that the help texts teach.

use std::process::Command;

use berth_tests::processes::{Answer, Process, Programs, eventually};
use serde_json::{Value, json};

use crate::PROGRAMS;

/// A scheduler with nothing in it.
struct Server {
    address: String,
    // Ends before its program and its log are taken away.
    _process: Process,
    programs: Programs,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let programs = Programs::new(PROGRAMS);
        let mut command = Command::new(programs.path("berth"));
        command.args(["dev", "--hosts", "0", "--ephemeral"]);
        let process = Process::start(command, &log);
        // It says where it can be reached once it can be.
        let address = eventually("an address", || {
            let said = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
            let rest = said.split_once("1 scheduler (").map(|(_, rest)| rest);
            let address = rest.and_then(|rest| rest.split_once(')'));
            address.map(|(address, _)| address.to_owned()).ok_or(said)
        });
        Self {
            address,
            _process: process,
            programs,
            folder,
        }
    }

    fn command(&self) -> Command {
        let mut command = self.programs.command("berth");
        command.args(["--scheduler", &self.address]);
        command
    }

    /// Types `berth` and these words, to read the answer as programs do.
    fn berth(&self, words: &[&str]) -> Answer {
        let mut command = self.command();
        command.args(["--output", "json"]).args(words);
        Answer::of(command)
    }

    /// As [`Self::berth`], to read it as people do.
    fn shown(&self, words: &[&str]) -> Answer {
        let mut command = self.command();
        command.args(words);
        Answer::of(command)
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        let answer = self.berth(words);
        answer.json().unwrap_or_else(|told| panic!("{told}"))
    }

    /// Makes a provider with one class and one trait, and returns its id.
    fn provider(&self, name: &str, parent: Option<&str>, has: &str, quality: &str) -> String {
        let mut words = vec!["provider", "create", name];
        words.extend(parent.iter().flat_map(|parent| ["--parent", *parent]));
        let made = self.json(&words);
        let id = made["provider"]["id"].as_str().expect("an id").to_owned();
        let _ = self.json(&["provider", "set-inventories", &id, "--inventory", has]);
        let _ = self.json(&["provider", "set-traits", &id, "--trait", quality]);
        id
    }

    /// Makes a host with memory, of two cells with eight CPUs, and returns their ids.
    fn host(&self, name: &str, quality: &str) -> [String; 3] {
        let root = self.provider(name, None, "MEMORY_MB=4096", quality);
        let cell = |number: u8| {
            let name = format!("{name}-cell{number}");
            self.provider(&name, Some(&root), "PCPU=8", "HW_NUMA_ROOT")
        };
        let cells = [cell(0), cell(1)];
        let [left, right] = cells;
        [root, left, right]
    }
}

#[test]
fn candidates_are_found_or_explained() {
    let server = Server::start();
    let slow = server.host("slow", "HW_CPU_X86_SSE");
    let fast = server.host("fast", "HW_CPU_X86_AVX2");

    let asked = [
        "candidates",
        "--resources",
        "MEMORY_MB=1024",
        "--required",
        "HW_CPU_X86_AVX2|HW_CPU_X86_AVX512F",
        "--group",
        "a: PCPU=8",
        "--group",
        "b: PCPU=4 required=HW_NUMA_ROOT",
        "--group-policy",
        "isolate",
        "--order",
        "stable",
    ];
    let found = server.json(&asked);
    let mut candidates = found["candidates"].as_array().expect("candidates").clone();
    candidates.sort_by_key(|candidate| candidate["mappings"]["a"] != json!([fast[1]]));
    let taken = |a: usize, b: usize| {
        json!({
            "allocations": {&fast[0]: {"MEMORY_MB": 1024}, &fast[a]: {"PCPU": 8}, &fast[b]: {"PCPU": 4}},
            "mappings": {"": [fast[0]], "a": [fast[a]], "b": [fast[b]]},
        })
    };
    assert_eq!(candidates, [taken(1, 2), taken(2, 1)]);
    assert_eq!(found["providers"][&fast[1]]["name"], "fast-cell0");
    assert_eq!(found["explanation"], Value::Null);

    let shown = server.shown(&asked).with_status(0);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(lines.len(), 1 + 2 * 3, "{shown:#?}");
    assert!(lines[0].starts_with("CANDIDATE  PROVIDER"), "{shown:#?}");
    let row =
        |line: &&&str| line.contains("fast-cell1") && line.ends_with("  PCPU       8       a");
    assert!(lines.iter().find(row).is_some(), "{shown:#?}");

    let query = ["candidates", "--query", "resources_A=PCPU:2&in_tree_A="];
    let of_slow = format!("{}{}", query[2], slow[2]);
    let found = server.json(&["candidates", "--query", &of_slow]);
    assert_eq!(found["candidates"].as_array().map(Vec::len), Some(2));

    let none = ["candidates", "--group", "a: PCPU=9 required=HW_NUMA_ROOT"];
    let told = server.shown(&none).with_status(4);
    assert!(told.stdout.is_empty(), "{told:#?}");
    assert!(told.stderr.lines().count() < 25, "{told:#?}");
    let told = told.saying(&[
        "no allocation candidates among 6 providers in 2 trees",
        "9 PCPU free",
        "requested 9 PCPU, has 8",
    ]);
    drop(told);
    let told = server.berth(&none).with_status(4);
    let told: Value = serde_json::from_str(&told.stdout).expect("one object");
    let nearest = &told["explanation"]["nearest"];
    assert_eq!(nearest["requirement"]["kind"], "FREE");
    assert_eq!(
        nearest["missing"],
        json!({"resource": "PCPU", "requested": 9, "available": 8})
    );

    for (words, status, said) in [
        (&["--resources", "PCPU=x"][..], 2, "is not a whole number"),
        (&["--group", "PCPU=1"], 2, "expected NAME:"),
        (
            &["--query", "resources=PCPU"],
            1,
            "Badly formed resources parameter",
        ),
        (
            &["--resources", "PCPU=1", "--query", "limit=1"],
            2,
            "cannot be used with",
        ),
        (
            &["--resources", "PCPU=1,PCPU=2"],
            1,
            "PCPU is requested twice",
        ),
        (&["--resources", "CUSTOM_NONE=1"], 1, "berth class list"),
        (
            &["--resources", "PCPU=1", "--required", "CUSTOM_NONE"],
            1,
            "berth trait list",
        ),
        (
            &["--group", "a: PCPU=1", "--in-tree", &slow[0]],
            1,
            "--resources, which is missing",
        ),
    ] {
        let words: Vec<&str> = ["candidates"].iter().chain(words).copied().collect();
        drop(server.shown(&words).with_status(status).saying(&[said]));
    }
}

#[test]
fn providers_are_listed_by_what_they_are_like() {
    let server = Server::start();
    let [root, left, right] = server.host("h", "HW_CPU_X86_AVX2");
    let other = server.provider("other", None, "PCPU=4", "HW_CPU_X86_SSE");
    let aggregate = "00000000-0000-0000-0000-00000000000a";
    let _ = server.json(&[
        "provider",
        "set-aggregates",
        &other,
        "--aggregate",
        aggregate,
    ]);
    for (words, expected) in [
        (&["--name", "h"][..], &[&root][..]),
        (&["--resources", "PCPU=8"], &[&left, &right]),
        (
            &["--resources", "PCPU=4", "--forbidden", "HW_NUMA_ROOT"],
            &[&other],
        ),
        (
            &["--required", "HW_CPU_X86_AVX2|HW_CPU_X86_SSE"],
            &[&root, &other],
        ),
        (&["--required", "HW_CPU_X86_AVX2,HW_CPU_X86_SSE"], &[]),
        (&["--member-of", aggregate], &[&other]),
        (
            &["--not-member-of", aggregate, "--resources", "PCPU=1"],
            &[&left, &right],
        ),
        (&["--in-tree", &right], &[&root, &left, &right]),
    ] {
        let words: Vec<&str> = ["provider", "list"].iter().chain(words).copied().collect();
        let listed = server.json(&words);
        let listed = listed.as_array().expect("a list").iter();
        let mut listed: Vec<_> = listed.map(|p| p["id"].as_str().expect("an id")).collect();
        let mut expected: Vec<_> = expected.iter().map(|id| id.as_str()).collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected, "{words:?}");
    }
    let none = server.shown(&["provider", "list", "--name", "nobody"]);
    drop(
        none.with_status(0)
            .saying(&["no resource provider is like that"]),
    );
}

/// Goal: a watch tells what is there and then what happens, and one that goes on after a revision
/// tells only what happened since.
#[test]
fn a_watch_tells_what_happens() {
    let server = Server::start();
    let first = server.provider("first", None, "PCPU=4", "HW_CPU_X86_SSE");
    let log = server.folder.path().join("watch");
    let mut command = server.command();
    command.args(["--output", "json", "provider", "watch"]);
    let watch = Process::start(command, &log);
    let told = |count: usize| {
        eventually("lines of the watch", || {
            let text = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
            let lines = text.lines().map(serde_json::from_str);
            let lines: Vec<Value> = lines.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
            if lines.len() >= count {
                Ok(lines)
            } else {
                Err(text)
            }
        })
    };
    assert_eq!(told(1)[0]["provider"]["id"], first);
    let second = server.json(&["provider", "create", "second"]);
    let second = second["provider"]["id"].as_str().expect("an id").to_owned();
    let lines = told(2);
    assert_eq!(lines[1]["provider"]["name"], "second");
    drop(
        server
            .berth(&["provider", "delete", &second])
            .with_status(0),
    );
    assert_eq!(told(3)[2]["deleted"], second);
    drop(watch);

    let revision = lines[1]["revision"].to_string();
    let mut command = server.command();
    command.args(["provider", "watch", "--after", &revision]);
    let again = server.folder.path().join("again");
    let _watch = Process::start(command, &again);
    let gone = format!("gone     {second}\n");
    eventually("what happened since", || {
        let text = std::fs::read_to_string(&again).map_err(|error| error.to_string())?;
        if text == gone { Ok(()) } else { Err(text) }
    });
}
