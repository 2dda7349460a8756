//! `berth score`, `verify`, `balance`, `capacity` on files of htools, and `berth iallocator`.
//!
//! Goal: the JSON is what programs read, the exit status reports the outcome, and no bad file is
//! taken: each is refused by its line and column. Method: the binary itself, on sample files and
//! on tables of faults.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn sample(name: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../ganeti/testdata");
    format!("{root}/{name}")
}

fn berth(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    command.args(words).stdin(Stdio::null());
    command.output().expect("berth runs")
}

/// Returns what is answered as JSON, and the exit status.
fn run_json(words: &[&str]) -> (Value, Option<i32>) {
    let output = berth(&[words, &["--output", "json"]].concat());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let value = serde_json::from_str(&text);
    let value = value.unwrap_or_else(|error| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        panic!("{words:?}: {error}: {text}{stderr}")
    });
    (value, output.status.code())
}

#[test]
fn every_component_of_the_score_is_there_by_its_name() {
    let (score, status) = run_json(&["score", "--text", &sample("status.data")]);
    assert_eq!(status, Some(0));
    let score = score.as_object().expect("an object");
    assert_eq!(score.len(), 21);
    let total = score["score"].as_f64().expect("a number");
    assert!((total - 765.394_706_67).abs() < 1e-6, "{total}");
    assert!(score["location_exclusion_score"].is_number());
}

#[test]
fn n_plus_one_is_shown_node_by_node_and_by_the_exit_status() {
    let (value, status) = run_json(&["verify", "--text", &sample("drbd-10.data"), "--strict"]);
    assert_eq!((value["ok"].as_bool(), status), (Some(true), Some(0)));
    let nodes = value["nodes"].as_array().expect("a list");
    assert_eq!(nodes.len(), 10);
    assert_eq!(nodes[0]["violation"], "none");
    // At ratio 1.5 all is well; without it nearly all nodes are beyond theirs.
    let (value, _) = run_json(&["verify", "--text", &sample("r15.data")]);
    let fine = |node: &Value| node["n1_local_ok"] == true && node["violation"] == "none";
    let nodes = value["nodes"].as_array().expect("a list");
    assert!(nodes.iter().all(fine), "{value}");
    let text = std::fs::read_to_string(sample("r15.data")).expect("the sample");
    let plain = text.replace("|1.5\n", "\n");
    assert!(plain != text);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plain.data");
    std::fs::write(&path, plain).expect("written");
    let (value, status) = run_json(&["verify", "--text", path.to_str().expect("UTF-8")]);
    assert_eq!((value["ok"].as_bool(), status), (Some(false), Some(4)));
    let nodes = value["nodes"].as_array().expect("a list");
    assert_eq!(
        nodes
            .iter()
            .filter(|node| node["n1_local_ok"] == false)
            .count(),
        11
    );
    assert!(nodes.iter().any(|node| node["violation"] == "hard"));
}

#[test]
fn a_plan_is_shown_move_by_move_and_can_be_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("after.data");
    let saved = path.to_str().expect("UTF-8");
    let file = sample("hbal-memory-over-commitment-2.data");
    let (plan, status) = run_json(&["balance", "--text", &file, "--strict", "--save", saved]);
    assert_eq!(status, Some(0));
    let moves = plan["moves"].as_array().expect("a list");
    assert_eq!(moves.len(), 1, "{plan}");
    assert_eq!(moves[0]["instance"], "inst3");
    assert_eq!(moves[0]["kind"], "f");
    assert_eq!(moves[0]["from"], serde_json::json!(["node-02", "node-01"]));
    assert_eq!(moves[0]["to"], serde_json::json!(["node-01", "node-02"]));
    assert!(plan["score_after"].as_f64() < plan["score_before"].as_f64());
    // The score of a file knows no ratio, as htools': only without one it is that of the plan.
    let file = sample("drbd-10.data");
    let (plan, _) = run_json(&["balance", "--text", &file, "--strict", "--save", saved]);
    let (score, _) = run_json(&["score", "--text", saved]);
    let (after, score) = (plan["score_after"].as_f64(), score["score"].as_f64());
    assert!((after.expect("a number") - score.expect("a number")).abs() < 1e-9);
    let file = sample("hbal-memory-over-commitment.data");
    let (plan, _) = run_json(&["balance", "--text", &file, "--strict"]);
    assert_eq!(plan["moves"].as_array().map(Vec::len), Some(0));
    let shown = berth(&["balance", "--text", &sample("drbd-10.data")]);
    let shown = String::from_utf8(shown.stdout).expect("UTF-8");
    assert!(
        shown.contains("falls by") && shown.contains("before, "),
        "{shown}"
    );
}

#[test]
fn capacity_names_what_was_missing() {
    let shape = [
        "--memory",
        "6000",
        "--disk",
        "1024",
        "--vcpus",
        "1",
        "--disk-template",
    ];
    let count = |file: &str, more: &[&str]| {
        let file = sample(file);
        let words = [&["capacity", "--strict", "--text", &file], &shape[..], more].concat();
        let (value, status) = run_json(&words);
        assert_eq!(status, Some(0));
        let limiting = value["limiting"].as_str().expect("a word").to_owned();
        (value["instances"].as_u64().expect("a number"), limiting)
    };
    let expected = |instances, limiting: &str| (instances, limiting.to_owned());
    assert_eq!(
        count("cap/empty-4-r1.5.data", &["ext"]),
        expected(48, "n+1")
    );
    assert_eq!(
        count("cap/empty-4-r1.5.data", &["ext", "--ratio", "2"]),
        expected(63, "n+1")
    );
    assert_eq!(
        count("cap/empty-4-r1.5.data", &["ext", "--no-n1"]),
        expected(64, "memory")
    );
    assert_eq!(
        count("cap/empty-8-r3.0.data", &["drbd"]),
        expected(220, "memory")
    );
    let file = sample("cap/empty-4-r1.0.data");
    let words = [
        "capacity", "--text", &file, "--tiered", "--memory", "24000", "--vcpus", "4",
    ];
    let (value, _) = run_json(&[&words[..], &["--disk-template", "plain"]].concat());
    assert_eq!(value["tiers"].as_array().map(Vec::len), Some(2), "{value}");
}

#[test]
fn the_request_of_ganeti_with_a_memory_ratio_is_answered_on_one_line() {
    let output = berth(&["iallocator", "--strict", &sample("hail-moc.json")]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.starts_with("{\"success\":true,\"info\":"), "{text}");
    assert_eq!(text.lines().count(), 1);
    // Without the ratio it does not fit, and saying so is an answer too.
    let request = std::fs::read_to_string(sample("hail-moc.json")).expect("the sample");
    let request = request.replace("\"memory-ratio\": 2", "\"memory-ratio\": 1");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("request.json");
    std::fs::write(&path, request).expect("written");
    let output = berth(&["iallocator", "--strict", path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        text.contains("\"success\":false") && text.contains("\"result\":[]"),
        "{text}"
    );
}

/// A folder for bad files.
struct Faults {
    folder: tempfile::TempDir,
}

impl Faults {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("bad")
    }

    /// Runs a command on a file with these bytes; it is refused here, with these words.
    fn refused(&self, command: &[&str], bytes: &[u8], place: &str, words: &str) {
        std::fs::write(self.path(), bytes).expect("written");
        self.is_refused(command, place, words);
    }

    fn is_refused(&self, command: &[&str], place: &str, words: &str) {
        let path = self.path();
        let path = path.to_str().expect("UTF-8");
        // A reader of the whole of a gigabyte does not get far.
        let limited = [
            "-c",
            "ulimit -v 1000000; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_berth"),
        ];
        let mut limits = Command::new("bash");
        limits.args(limited).args(command).arg(path);
        limits.env("MALLOC_ARENA_MAX", "1").stdin(Stdio::null());
        let output = limits.output().expect("bash runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?} {stderr}");
        assert!(output.stdout.is_empty(), "{command:?}");
        let expected = format!("error: {path}{place}");
        assert!(stderr.starts_with(&expected), "{stderr}\nis not {expected}");
        assert!(stderr.contains(words), "{stderr}\ndoes not say {words}");
    }
}

/// What is wrong with each of these texts, and where.
#[test]
fn bad_texts_are_refused_by_line_and_column() {
    let good = std::fs::read_to_string(sample("drbd-10.data")).expect("the sample");
    let faults = Faults::new();
    let score = ["score", "--text"];
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1).into_bytes()
    };
    let line = |start: &str| {
        let mut lines = good.lines();
        1 + lines
            .position(|line| line.starts_with(start))
            .expect("it is there")
    };
    let node = format!(":{}:", line("node-001"));
    let instance = format!(":{}:", line("inst-000"));
    faults.refused(&score, b"", ":1:1: ", "1 of at least 4 sections");
    faults.refused(
        &score,
        b"g|u|preferred||\n\n",
        ":3:1: ",
        "2 of at least 4 sections",
    );
    faults.refused(
        &score,
        &with("node-001|131072", "node-001|-1"),
        &node,
        "memory",
    );
    faults.refused(
        &score,
        &with("node-001|", "node-000|"),
        &node,
        "already on line",
    );
    faults.refused(
        &score,
        &with("node-001|131072", "node-001|many"),
        &node,
        "not a number",
    );
    faults.refused(
        &score,
        &with("node-001|131072|", "node-001|131072\n"),
        &node,
        "fields",
    );
    faults.refused(
        &score,
        &with("|running|Y|node-0", "|running|Y|nobody-0"),
        &instance,
        "not in",
    );
    faults.refused(
        &score,
        &with("|running|", "|sleeping|"),
        &instance,
        "'sleeping'",
    );
    faults.refused(
        &score,
        &with("fake-uuid-01|16", "fake-uuid-02|16"),
        ":3:",
        "not in",
    );
    let mut bytes = good.clone().into_bytes();
    bytes[3] = 0xff;
    faults.refused(&score, &bytes, ":1:4: ", "UTF-8");
    for command in ["verify", "balance", "capacity"] {
        faults.refused(&[command, "--text"], b"nothing\n", ":1:1: ", "group");
    }
    let request = sample("hail-moc.json");
    faults.refused(&["iallocator", &request, "-t"], b"{\n", ":1:1: ", "group");
}

/// The same of requests.
#[test]
fn bad_requests_are_refused_by_line_and_column() {
    let good = std::fs::read_to_string(sample("hail-moc.json")).expect("the sample");
    let faults = Faults::new();
    let ask = ["iallocator"];
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1).into_bytes()
    };
    faults.refused(&ask, b"", ":1:1: ", "a value was expected");
    faults.refused(&ask, b"[]", ":1:1: ", "must be an object, and is a list");
    faults.refused(&ask, b"{}", ":1:1: ", "no key 'request'");
    faults.refused(
        &ask,
        b"{\"request\": 0}",
        ":1:13: ",
        "request must be an object",
    );
    faults.refused(
        &ask,
        &with("\"allocate\"", "\"guess\""),
        ":",
        "allocate, multi-allocate",
    );
    faults.refused(
        &ask,
        &with("\"memory\": 1024", "\"memory\": -1"),
        ":",
        "instance1.memory",
    );
    faults.refused(
        &ask,
        &with("\"node2\": {", "\"node1\": {"),
        ":",
        "already in this object",
    );
    faults.refused(
        &ask,
        &with("\"instance2\": {", "\"instance1\": {"),
        ":",
        "already",
    );
    faults.refused(
        &ask,
        &with("\"node1\",", "\"nobody\","),
        ":",
        "names the node 'nobody'",
    );
    faults.refused(
        &ask,
        &with("\"vcpu-ratio\"", "\"cpu-ratio\""),
        ":",
        "'cpu-ratio'",
    );
    faults.refused(
        &ask,
        &with("\"drbd\",\n      \"memory\"", "\"disk\",\n      \"memory\""),
        ":",
        "one of",
    );
    faults.refused(
        &ask,
        &with("\"uuid-group-1\": {", "\"uuid-group-2\": {"),
        ":",
        "uuid-group-1",
    );
    faults.refused(
        &ask,
        &with("\"free_memory\": 256", "\"free_memory\": \"256\""),
        ":",
        "whole number",
    );
    let mut bytes = good.clone().into_bytes();
    let at = good.find("cluster\"").expect("it is there");
    bytes[at] = 0xff;
    faults.refused(&ask, &bytes, ":", "UTF-8");
}

/// Goal: a gigabyte of something else is refused at once and never held in memory.
#[test]
fn a_gigabyte_of_garbage_is_refused_at_its_beginning() {
    let faults = Faults::new();
    let file = std::fs::File::create(faults.path()).expect("created");
    // Sparse: it occupies no space on the disk.
    file.set_len(1 << 30).expect("made long");
    faults.is_refused(&["score", "--text"], ":1:1: ", "");
    faults.is_refused(&["iallocator"], ":1:1: ", "0x00");
    let mut stream = Command::new(env!("CARGO_BIN_EXE_berth"));
    let zeros = std::fs::File::open("/dev/zero").expect("it is there");
    stream.args(["iallocator", "-"]).stdin(Stdio::from(zeros));
    let output = stream.output().expect("berth runs");
    assert_eq!(output.status.code(), Some(1));
}

/// Goal: names that are typed are looked for.
#[test]
fn names_that_are_not_in_the_file_are_said() {
    let file = sample("drbd-10.data");
    let said = |words: &[&str]| {
        let output = berth(&[words, &["--text", &file]].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&["score", "--group", "nobody"]).contains("no group nobody; it has group-01"));
    assert!(said(&["balance", "--offline", "nobody"]).contains("no node nobody"));
    assert!(said(&["verify", "nobody"]).contains("no node nobody"));
    assert!(said(&["capacity", "--disk-template", "tape"]).contains("known are diskless"));
    assert!(said(&["capacity", "--memory", "0"]).contains("from 1 to 2^40"));
    assert!(said(&["capacity", "--ratio", "0"]).contains("above zero"));
}
