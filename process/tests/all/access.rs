//! Holds the table of who may call what against the services themselves, and the document against
//! the table.

use std::collections::BTreeSet;
use std::path::Path;

use berth_process::access::table;
use berth_tls::Role;
use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Goal: a new method cannot be forgotten, and one that is gone leaves no row behind.
#[test]
fn every_method_has_its_row() {
    let described = FileDescriptorSet::decode(berth_proto::DESCRIPTOR_SET).unwrap();
    let mut served = BTreeSet::new();
    // What the Container Storage Interface calls comes through a socket of the host, whose folder says
    // who may use it; over the network it is refused to everybody.
    let is_ours = |file: &FileDescriptorProto| file.package() != "csi.v1";
    for file in described.file.into_iter().filter(is_ours) {
        for service in &file.service {
            for method in &service.method {
                served.insert(format!(
                    "{}.{}/{}",
                    file.package(),
                    service.name(),
                    method.name()
                ));
            }
        }
    }
    assert!(served.len() > 100, "the descriptors were read");
    let (ours, foreign): (BTreeSet<String>, BTreeSet<String>) =
        table::methods().partition(|method| method.starts_with("berth."));
    let missing: Vec<_> = served.difference(&ours).collect();
    assert!(
        missing.is_empty(),
        "without a row in process/src/access/table.rs: {missing:?}"
    );
    let gone: Vec<_> = ours.difference(&served).collect();
    assert!(gone.is_empty(), "in the table, but nowhere else: {gone:?}");
    assert!(foreign.iter().all(|method| method.starts_with("grpc.")));
    assert_eq!(
        table::methods().count(),
        ours.len() + foreign.len(),
        "each once"
    );
}

/// Goal: what must hold whatever else is changed.
#[test]
fn the_table_keeps_its_promises() {
    for method in table::methods() {
        let roles: Vec<Role> = table::roles(&method).collect();
        assert!(!roles.is_empty(), "nobody may call {method}");
        let short = method.rsplit('/').next().unwrap();
        // Who may only look changes nothing.
        let looks = [
            "Get", "List", "Watch", "Wait", "Check", "Verify", "Plan", "Find", "Fit",
        ];
        let looks =
            looks.iter().any(|verb| short.starts_with(verb)) || short == "ServerReflectionInfo";
        if roles.contains(&Role::Reader) {
            assert!(looks, "a reader may call {method}");
        }
        // The members' own service is theirs alone.
        if method.starts_with("berth.raft.") {
            assert_eq!(roles, [Role::Scheduler], "{method}");
        }
    }
    assert!(!table::may(
        Role::Operator,
        "berth.host.v1.HostService/RegisterHost"
    ));
    assert!(!table::may(Role::Operator, "no.such/Method"));
}

/// Goal: the document says what holds.
#[test]
fn the_document_shows_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = table::markdown();
    let delegated = table::delegated_markdown();
    for part in [table, delegated] {
        assert!(text.contains(&part), "docs/security.md must hold:\n{part}");
    }
}
