//! Goal: what would strand volumes or touch objects of others is refused, and everything else is not.
//! Method: tables of each check.

use serde_json::json;

use super::*;
use crate::spec::DeviceMode;

fn owner() -> Owner {
    Owner {
        api_version: "berth.internal/v1alpha1".to_owned(),
        kind: "BerthStorage".to_owned(),
        name: "a".to_owned(),
        uid: "u-1".to_owned(),
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    owned.collect()
}

fn nodes() -> Nodes {
    Nodes::from([
        ("n1".to_owned(), map(&[("storage", "pmem"), ("rack", "1")])),
        ("n2".to_owned(), map(&[("storage", "pmem")])),
        ("n3".to_owned(), map(&[])),
    ])
}

fn volume(name: &str, nodes: &[&str]) -> Volume {
    Volume {
        name: name.to_owned(),
        nodes: nodes.iter().map(ToString::to_string).collect(),
    }
}

fn selecting(selector: &[(&str, &str)]) -> BerthStorageSpec {
    BerthStorageSpec {
        node_selector: map(selector),
        ..BerthStorageSpec::default()
    }
}

#[test]
fn only_the_controlling_owner_owns() {
    let object = |owners: Value| json!({"kind": "Secret", "metadata": {"name": "s", "uid": "x", "ownerReferences": owners}});
    let own = Ownership::Own {
        uid: "x".to_owned(),
    };
    let other = json!({"uid": "u-2", "controller": true});
    let mine = json!({"uid": "u-1", "controller": true});
    assert_eq!(ownership(None, &owner()), Ownership::Absent);
    assert_eq!(ownership(Some(&object(json!([mine]))), &owner()), own);
    assert_eq!(
        ownership(Some(&object(json!([{"uid": "u-3"}, mine]))), &owner()),
        own
    );
    for owners in [
        json!(null),
        json!([]),
        json!([other]),
        json!([{"uid": "u-1"}]),
    ] {
        let Ownership::Foreign(refusal) = ownership(Some(&object(owners)), &owner()) else {
            panic!("it is foreign");
        };
        assert!(
            refusal.to_string().starts_with("Secret s exists"),
            "{refusal}"
        );
    }
}

fn agents(mode: &str, selector: &[(&str, &str)]) -> Value {
    json!({
        "metadata": {"annotations": {DEVICE_MODE: mode}},
        "spec": {"template": {"spec": {"nodeSelector": map(selector)}}},
    })
}

#[test]
fn a_device_mode_changes_without_volumes_only() {
    let direct = BerthStorageSpec {
        device_mode: DeviceMode::Direct,
        ..BerthStorageSpec::default()
    };
    let one = [volume("v1", &["n1"])];
    let pmem = [("storage", "pmem")];
    let check = |deployed: &str, volumes: &[Volume]| {
        check_change(Some(&agents(deployed, &pmem)), &direct, &nodes(), volumes)
    };
    assert_eq!(check("lvm", &[]), Ok(()));
    assert_eq!(check("direct", &one), Ok(()));
    assert_eq!(check_change(None, &direct, &nodes(), &one), Ok(()));
    let refusal = check("lvm", &one).expect_err("a volume").to_string();
    assert!(
        refusal.contains("from lvm to direct") && refusal.contains("v1"),
        "{refusal}"
    );
    let many: Vec<Volume> = (0..25).map(|n| volume(&format!("v{n}"), &["n1"])).collect();
    let refusal = check("lvm", &many).expect_err("volumes").to_string();
    assert!(refusal.contains("v9 and 15 more;"), "{refusal}");
}

#[test]
fn a_selector_leaves_out_no_node_with_volumes() {
    let rack = [("rack", "1")];
    let check = |old: &[(&str, &str)], new: &[(&str, &str)], volumes: &[Volume]| {
        check_change(
            Some(&agents("lvm", old)),
            &selecting(new),
            &nodes(),
            volumes,
        )
    };
    let pmem = [("storage", "pmem")];
    assert_eq!(check(&pmem, &rack, &[]), Ok(()));
    assert_eq!(check(&pmem, &rack, &[volume("v1", &["n1"])]), Ok(()));
    assert_eq!(check(&pmem, &rack, &[volume("v1", &["removed"])]), Ok(()));
    assert_eq!(check(&rack, &pmem, &[volume("v2", &["n2"])]), Ok(()));
    // The selector is the same; the labels of the node are not the deployment's.
    assert_eq!(check(&pmem, &pmem, &[volume("v3", &["n3"])]), Ok(()));
    for stranded in [volume("v2", &["n2"]), volume("v2", &["n1", "n2"])] {
        let refusal = check(&pmem, &rack, &[stranded]).expect_err("stranded");
        assert!(refusal.to_string().contains("v2 on n"), "{refusal}");
    }
}

#[test]
fn a_node_is_selected_once() {
    let (pmem, rack, none) = ([("storage", "pmem")], [("rack", "1")], [("rack", "2")]);
    let check = |own: &[(&str, &str)], other: &[(&str, &str)]| {
        let other = selecting(other);
        check_overlap(&selecting(own), [("other", &other)], &nodes())
    };
    assert_eq!(check(&pmem, &none), Ok(()));
    assert_eq!(check(&none, &none), Ok(()), "no node has the label");
    assert_eq!(check_overlap(&selecting(&pmem), [], &nodes()), Ok(()));
    let refusal = check(&pmem, &rack).expect_err("n1").to_string();
    assert!(
        refusal.starts_with("other selects the same nodes: n1;"),
        "{refusal}"
    );
    let refusal = check(&pmem, &[]).expect_err("all").to_string();
    assert!(
        refusal.contains("n1, n2;"),
        "an empty selector selects all: {refusal}"
    );
}
