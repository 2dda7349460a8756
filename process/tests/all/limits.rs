//! Holds the lists of methods that take more than a request against the services themselves, and the
//! document against the table.

use std::collections::BTreeSet;
use std::path::Path;

use berth_process::access;
use berth_process::bounds::{methods, table};
use prost::Message as _;
use prost_types::{FileDescriptorSet, MethodDescriptorProto};

/// It applies the log again.
const HISTORY: &str = "berth.event.v1.EventService/GetHistory";

/// Responses of several messages that end by themselves.
const FINITE: [&str; 8] = [
    HISTORY,
    "berth.agent.v1.ComputeAgentService/DownloadImage",
    "berth.agent.v1.ComputeAgentService/ReadDisks",
    "berth.agent.v1.ComputeAgentService/ReadImage",
    "berth.cluster.v1.ClusterService/Backup",
    "berth.conductor.v1.ConductorService/CopyImage",
    "berth.conductor.v1.ConductorService/DownloadImage",
    "berth.placement.v1.PlacementService/FindAllocationCandidates",
];

/// Waits for some seconds at most, and every program does it.
const SHORT: &str = "berth.cluster.v1.ClusterService/WaitLeader";

fn described(is_meant: impl Fn(&str, &MethodDescriptorProto) -> bool) -> BTreeSet<String> {
    let described = FileDescriptorSet::decode(berth_proto::DESCRIPTOR_SET).unwrap();
    let mut names = BTreeSet::new();
    for file in &described.file {
        for service in &file.service {
            for method in &service.method {
                let name = format!("{}.{}/{}", file.package(), service.name(), method.name());
                if is_meant(&name, method) {
                    names.insert(name);
                }
            }
        }
    }
    names
}

fn ours(list: &[&str]) -> BTreeSet<String> {
    let ours = list.iter().filter(|name| name.starts_with("berth."));
    ours.map(|name| (*name).to_owned()).collect()
}

/// Goal: a new method that lasts, plans or streams cannot be forgotten, and none is listed that is gone.
#[test]
fn methods_that_take_more_are_listed() {
    let lasts = described(|name, method| {
        let waits = method.name().starts_with("Wait") || method.name().starts_with("Watch");
        (method.server_streaming() || waits) && !FINITE.contains(&name) && name != SHORT
    });
    assert_eq!(ours(methods::WATCHES), lasts);
    let streams = described(|_, method| method.client_streaming());
    assert_eq!(ours(methods::CLIENT_STREAMS), streams);
    let plans = described(|name, _| name.starts_with("berth.planner.") || name == HISTORY);
    assert_eq!(ours(methods::PLANS), plans);
    let known: BTreeSet<String> = access::table::methods().collect();
    let lists = [
        methods::WATCHES,
        methods::PLANS,
        methods::SEARCHES,
        methods::CLIENT_STREAMS,
    ];
    for name in lists.concat() {
        assert!(known.contains(name), "{name} is no method");
    }
}

/// Goal: the document says what holds.
#[test]
fn the_document_shows_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/limits.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = table::markdown();
    assert!(text.contains(&table), "docs/limits.md must hold:\n{table}");
    for name in methods::WATCHES.iter().chain(methods::SEARCHES) {
        let short = name.rsplit('/').next().unwrap();
        assert!(
            text.contains(&format!("`{short}`")),
            "{name} is not in docs/limits.md"
        );
    }
}
