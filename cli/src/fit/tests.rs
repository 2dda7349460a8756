//! Goal: good cases are answered as the format says, and nothing that comes in makes the command
//! stop: the field of a wrong line is named, and the next one is read.

use serde_json::{Value, json};

use super::{Options, respond, run};

/// A host of two cells on two sockets, with a device on the second, and a guest of one cell.
pub(super) fn case() -> Value {
    json!({
        "id": 7,
        "host": {"cells": [
            {"id": 0, "socket": 0, "cpuset": "0-3", "pcpuset": "0-3", "siblings": [[0, 1], [2, 3]],
             "memory_mb": 4096, "memory_usage": 0, "cpu_usage": 0, "pinned_cpus": "0",
             "mempages": [{"size_kb": 4, "total": 1_048_576}]},
            {"id": 1, "socket": 1, "cpuset": [4, 5], "pcpuset": [4, 5], "siblings": [[4, 5]],
             "memory_mb": 4096, "memory_usage": 0, "cpu_usage": 0, "pinned_cpus": "",
             "mempages": [{"size_kb": 4, "total": 524_288}, {"size_kb": 2048, "total": 1024}]},
        ]},
        "limits": {"cpu": 4, "ram": 1.5},
        "pci_devices": [{"address": "0000:81:00.0", "vendor_id": "8086", "product_id": "1572",
                         "numa_node": 1, "dev_type": "type-PCI"}],
        "pci_requests": [],
        "instance": {"cells": [{"cpuset": "", "pcpuset": [0, 1], "memory": 512, "pagesize": null,
                                "cpu_policy": "dedicated", "cpu_thread_policy": null}],
                     "emulator_threads_policy": "isolate"},
    })
}

fn response(case: &Value) -> Value {
    respond(case.to_string().as_bytes(), Options::default())
}

/// Changes one field of the case, by JSON pointer.
fn with(pointer: &str, value: Value) -> Value {
    let mut case = case();
    *case.pointer_mut(pointer).expect("the field is there") = value;
    case
}

#[test]
fn a_fit_is_written_as_the_format_says() {
    assert_eq!(
        response(&case()),
        json!({
            "id": 7, "fits": true, "reasons": [], "pci": {},
            "topology": {"cells": [
                {"host_cell": 0, "cpuset": [], "pcpuset": [0, 1], "memory": 512, "pagesize": null,
                 "cpu_pinning": {"0": 2, "1": 3}, "cpuset_reserved": [1]},
            ]},
        })
    );
    let requests = json!([{"count": 1, "spec": [{"vendor_id": "8086", "product_id": "1572"}],
                         "numa_policy": "preferred"}]);
    let response = response(&with("/pci_requests", requests));
    assert_eq!(response["pci"], json!({"0": ["0000:81:00.0"]}));
}

/// Goal: the pinned CPUs of another cell do not make a CPU taken.
#[test]
fn pinned_cpus_are_those_of_the_cell() {
    let response = response(&with("/host/cells/1/pinned_cpus", json!([1, 2, 3])));
    assert_eq!(
        response["topology"]["cells"][0]["host_cell"],
        json!(0),
        "{response}"
    );
}

#[test]
fn a_refusal_has_its_reason() {
    let large = response(&with("/instance/cells/0/pcpuset", json!("0-7")));
    assert_eq!(large["fits"], json!(false));
    assert_eq!(
        large["reasons"],
        json!(["NUMA node 0: 3 free dedicated CPUs, guest NUMA node 0 needs 9"])
    );
    let requests = json!([{"count": 1, "spec": [{"vendor_id": "8086", "product_id": "1572"}],
                         "numa_policy": "socket"}]);
    // With its emulator, it fits on the first cell only.
    assert_eq!(
        response(&with("/pci_requests", requests))["reasons"],
        json!(["no device 8086:1572 on socket 0; one is free on socket 1"])
    );
}

/// Goal: an error names the field and the value or what is allowed.
#[test]
fn bad_cases_are_refused_by_field() {
    let small_cell = json!({"id": 1, "cpuset": "3-5", "pcpuset": "", "siblings": [[3], [4], [5]],
                            "memory_mb": 1});
    for (case, part) in [
        (json!(17), "host.cells: the host has no NUMA node"),
        (
            with("/host/cells", json!(null)),
            "host.cells: the host has no NUMA node",
        ),
        (
            with("/host/cells/1", small_cell),
            "CPUs 3 of NUMA node 1 appear in a second NUMA node",
        ),
        (
            with("/host/cells/1/id", json!(0)),
            "NUMA node 0 appears twice",
        ),
        (
            with("/host/cells/1/id", json!(-1)),
            "host.cells[1].id: must be a number",
        ),
        (
            with("/host/cells/0/siblings", json!([[0, 1], [1, 2, 3]])),
            "CPUs 1 of NUMA node 0",
        ),
        (
            with("/host/cells/0/siblings", json!([[0, 1], [2, 3, 9]])),
            "the cores of NUMA node 0",
        ),
        (
            with("/host/cells/0/siblings", json!([[0, 1]])),
            "the cores of NUMA node 0",
        ),
        (with("/host/cells/0/cpuset", json!("3-0")), "runs backwards"),
        (
            with("/host/cells/0/cpuset", json!("0-4294967295")),
            "host.cells[0].cpuset",
        ),
        (
            with("/host/cells/0/mempages/0/size_kb", json!(0)),
            "size_kb: must be a number, 1 to",
        ),
        (
            with("/host/cells/0/mempages/0/total", json!(1_u64 << 63)),
            "more memory than any host",
        ),
        (
            with("/host/cells/0/mempages/0/total", json!(0.5)),
            "mempages[0].total",
        ),
        (
            with("/host/cells/0/memory_usage", json!(u64::MAX)),
            "memory_usage: must be a number, 0 to 1099511627776",
        ),
        (
            with("/host/cells/0/cpu_usage", json!(u32::MAX)),
            "host.cells[0].cpu_usage",
        ),
        (with("/limits/cpu", json!(-1)), "limits.cpu"),
        (
            with("/limits/ram", json!("much")),
            "limits.ram: must be a number",
        ),
        (
            with("/pci_devices/0/address", json!("here")),
            "pci_devices[0].address",
        ),
        (
            with("/pci_devices/0/vendor_id", json!("intel")),
            "pci_devices[0].vendor_id",
        ),
        (
            with("/pci_devices/0/dev_type", json!("type-X")),
            "must be one of type-PCI",
        ),
        (
            with("/pci_requests", json!([{"count": 1}])),
            "at least one match",
        ),
        (
            with("/pci_requests", json!([{"count": 0, "spec": [{}]}])),
            "pci_requests[0].count: must be a number, 1 to",
        ),
        (with("/instance/cells", json!([])), "at least one cell"),
        (
            with("/instance/cells/0/pcpuset", json!("0-999999")),
            "instance.cells[0].pcpuset",
        ),
        (
            with(
                "/instance/cells/0/pcpuset",
                json!((0..1_000_000).collect::<Vec<_>>()),
            ),
            "has 1000000 entries",
        ),
        (
            with("/instance/cells/0/cpuset", json!("5")),
            "must be empty under this cpu_policy",
        ),
        (
            with("/instance/cells/0/memory", json!(0)),
            "memory: must be a number, 1 to",
        ),
        (
            with("/instance/cells/0/cpu_policy", json!("some")),
            "must be one of dedicated",
        ),
        (
            with("/instance/cells/0/pagesize", json!("huge")),
            "must be one of any, large, small",
        ),
    ] {
        let response = response(&case);
        let message = response["message"].as_str().unwrap_or_default();
        assert_eq!(response["error"], json!("INVALID_CASE"), "{response}");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
        assert!(message.len() < 400, "{message}");
    }
}

#[test]
fn flavors_that_are_wrong_are_refused_by_their_key() {
    let mut case = case();
    case["instance"] = Value::Null;
    case["flavor"] = json!({"vcpus": 2, "memory_mb": 512, "extra_specs": {"hw:numa_nodes": "0"}});
    let refused = response(&case);
    assert_eq!(refused["error"], json!("INVALID_FLAVOR"));
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("hw:numa_nodes"), "{message}");
    case["flavor"]["extra_specs"] = json!({"hw:numa_nodes": "2"});
    assert_eq!(response(&case)["fits"], json!(true));
}

#[test]
fn lines_that_are_no_json_are_refused_and_passed() {
    let deep = "[".repeat(100_000);
    let input = format!("{deep}\n\n{{\"id\": 1,\n\u{0}\n{}\n", case());
    let mut output = Vec::new();
    run(input.as_bytes(), &mut output, Options::default()).unwrap();
    let lines: Vec<Value> = output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let errors: Vec<&Value> = lines.iter().map(|line| &line["error"]).collect();
    let invalid = json!("INVALID_JSON");
    assert_eq!(errors, [&invalid, &invalid, &invalid, &Value::Null]);
}

/// Goal: of two values for one key none is taken for the right one. Method: a case in which a key
/// is repeated, at the top and deep inside.
#[test]
fn a_key_that_is_there_twice_is_refused() {
    let good = case().to_string();
    for (once, twice) in [
        ("\"id\":7", "\"id\":7,\"id\":8"),
        ("\"total\":1024", "\"total\":1024,\"total\":1024"),
    ] {
        assert!(good.contains(once), "{good}");
        let response = respond(good.replace(once, twice).as_bytes(), Options::default());
        assert_eq!(response["error"], json!("INVALID_JSON"));
        let key = twice.split(':').next().unwrap();
        let message = response["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("key {key} is there twice")),
            "{message}"
        );
    }
}

/// Goal: a line of 100 MB takes neither that much memory nor the lines behind it along.
#[test]
fn a_line_that_is_too_long_is_refused_and_passed() {
    let long = std::io::Read::take(std::io::repeat(b'['), 100_000_000);
    let rest = format!("\n{}\n", case());
    let input = std::io::BufReader::new(std::io::Read::chain(long, rest.as_bytes()));
    let mut output = Vec::new();
    run(input, &mut output, Options::default()).unwrap();
    let text = String::from_utf8(output).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(
        lines[0]["message"],
        json!("the line is longer than 16777216 bytes")
    );
    assert_eq!(lines[1]["fits"], json!(true));
}

/// Goal: numbers that are none, or none that a host can have, are refused.
#[test]
fn numbers_that_are_none_are_refused() {
    let good = case().to_string();
    for number in ["NaN", "-Infinity", "1e400", "0x10", "01", "--1"] {
        let text = good.replace("\"memory_mb\":4096", &format!("\"memory_mb\":{number}"));
        let response = respond(text.as_bytes(), Options::default());
        assert_eq!(
            response["error"],
            json!("INVALID_JSON"),
            "{number}: {response}"
        );
    }
    for number in [
        "-1",
        "1e300",
        "1.5",
        "18446744073709551616",
        "9223372036854775808",
    ] {
        let text = good.replace("\"memory_mb\":4096", &format!("\"memory_mb\":{number}"));
        let response = respond(text.as_bytes(), Options::default());
        assert_eq!(
            response["error"],
            json!("INVALID_CASE"),
            "{number}: {response}"
        );
        let message = response["message"].as_str().unwrap();
        assert!(
            message.starts_with("host.cells[0].memory_mb: must be"),
            "{message}"
        );
    }
}
