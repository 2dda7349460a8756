//! What paths lead to, and what is said of those that lead nowhere.

use std::collections::BTreeSet;

use super::*;

fn found(path: &str) -> (String, usize) {
    let reference = Reference::new();
    let part = Part::find(&reference, path).unwrap_or_else(|error| panic!("{path}: {error}"));
    (part.type_name(), fields_of(&reference, &part.kind).len())
}

fn refused(path: &str) -> String {
    let error = Part::find(&Reference::new(), path).expect_err(path);
    error.to_string()
}

#[test]
fn every_resource_has_a_message() {
    let reference = Reference::new();
    let messages: BTreeSet<_> = RESOURCES.iter().map(|(_, message)| *message).collect();
    assert_eq!(messages.len(), RESOURCES.len());
    for (name, message) in RESOURCES {
        let part = Part::find(&reference, name).expect(name);
        assert_eq!(part.kind, Kind::Message((*message).to_owned()), "{name}");
        assert!(!fields_of(&reference, &part.kind).is_empty(), "{name}");
    }
}

#[test]
fn a_path_leads_through_messages_lists_and_maps() {
    for (path, kind) in [
        ("vm", "Vm"),
        ("vm.name", "string"),
        ("vm.state", "State"),
        ("vm.spec", "VmSpec"),
        ("vm.spec.flavor.memory_mib", "uint64"),
        ("vm.spec.disks", "list<Disk>"),
        ("vm.spec.disks.format", "Format"),
        ("vm.labels", "map<string, string>"),
        ("vm.labels.env", "string"),
        ("vm.create_time", "Timestamp"),
        ("berth.scheduler.v1.Vm.spec", "VmSpec"),
        ("berth.scheduler.v1.Vm.State", "State"),
        ("VmSpec.flavor", "Flavor"),
        ("Vm.State", "State"),
        ("host.report.topology.cells", "list<HostCell>"),
    ] {
        assert_eq!(found(path).0, kind, "{path}");
    }
}

/// Goal: every path that is listed is explained. Method: each one of each resource, and of each message.
#[test]
fn every_path_of_the_tree_is_found() {
    let reference = Reference::new();
    let mut paths = 0;
    let resources = RESOURCES.iter().map(|(name, _)| *name);
    for name in resources.chain(reference.messages.keys().map(String::as_str)) {
        let part = Part::find(&reference, name).expect(name);
        let mut tree = Tree {
            reference: &reference,
            within: Vec::new(),
            rows: Vec::new(),
        };
        tree.descend(&part.kind, "");
        for [path, kind] in &tree.rows {
            let path = format!("{name}.{path}");
            assert_eq!(&found_in(&reference, &path), kind, "{path}");
            paths += 1;
        }
    }
    assert!(paths > 1_000, "{paths}");
}

fn found_in(reference: &Reference, path: &str) -> String {
    let part = Part::find(reference, path).unwrap_or_else(|error| panic!("{path}: {error}"));
    part.type_name()
}

#[test]
fn what_leads_nowhere_is_refused_with_what_there_is() {
    for (path, words) in [
        ("vmm", "there is no resource or message \"vmm\""),
        ("", "there is no resource or message \"\""),
        (
            "vm.memory",
            "\"vm\" has no field \"memory\"; it has name, uid, spec",
        ),
        (
            "vm.spec.flavour",
            "\"spec\" has no field \"flavour\"; it has",
        ),
        (
            "vm.name.x",
            "\"name\" is of the type string, and has no field \"x\"",
        ),
        (
            "vm.state.ACTIVE",
            "\"state\" is of the type State, and has no field",
        ),
        (
            "vm.labels.env.x",
            "\"env\" is of the type string, and has no field",
        ),
        (
            "berth.scheduler.v1.Vm.x",
            "\"berth.scheduler.v1.Vm\" has no field \"x\"",
        ),
        ("State", "\"State\" is one of "),
        (
            "berth.scheduler.v1",
            "there is no resource or message \"berth\"",
        ),
    ] {
        let refused = refused(path);
        assert!(refused.contains(words), "{path}: {refused}");
    }
}
