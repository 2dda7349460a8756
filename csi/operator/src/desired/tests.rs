//! Goal: every spec gives objects that Kubernetes and our programs accept, and each field has its effect
//! where it belongs. Method: the types of Kubernetes read each object and lose nothing; the programs read
//! their configurations; each update of a table changes one place, on defaults and on values.

mod updates;

use clap::Parser as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::storage::v1::CSIDriver;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::spec::{DeviceMode, MutatePods};

fn owner(name: &str) -> Owner {
    Owner {
        api_version: "berth.internal/v1alpha1".to_owned(),
        kind: "BerthStorage".to_owned(),
        name: name.to_owned(),
        uid: "u-1".to_owned(),
    }
}

fn pair(text: &str) -> Pair {
    Pair {
        cert: format!("{text} cert").into_bytes(),
        key: format!("{text} key").into_bytes(),
    }
}

fn facts() -> Facts {
    Facts {
        namespace: "berth".to_owned(),
        image: "berth:0.1.0".to_owned(),
        schedulers: vec!["s1:7100".to_owned(), "s2:7100".to_owned()],
        credentials: Credentials {
            ca: b"ca".to_vec(),
            controller: pair("controller"),
            nodes: NodePairs::Shared(pair("agent")),
        },
    }
}

fn objects(spec: &BerthStorageSpec) -> Vec<Value> {
    desired(&owner("pmem-csi.intel.com"), spec, &facts()).expect("objects")
}

fn get<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == name;
    let object = objects.iter().find(is_it);
    object.unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Kubernetes' own type reads the object, and nothing of it is unknown to the type.
fn expect_valid(object: &Value) {
    fn check<T: DeserializeOwned + Serialize>(object: &Value) {
        let typed: T = serde_json::from_value(object.clone()).expect("valid");
        assert_eq!(&serde_json::to_value(typed).expect("JSON"), object);
    }
    match object["kind"].as_str().expect("a kind") {
        "ServiceAccount" => check::<ServiceAccount>(object),
        "ClusterRole" => check::<ClusterRole>(object),
        "ClusterRoleBinding" => check::<ClusterRoleBinding>(object),
        "Role" => check::<Role>(object),
        "RoleBinding" => check::<RoleBinding>(object),
        "CSIDriver" => check::<CSIDriver>(object),
        "Secret" => check::<Secret>(object),
        "ConfigMap" => check::<ConfigMap>(object),
        "DaemonSet" => check::<DaemonSet>(object),
        "Service" => check::<Service>(object),
        "Deployment" => check::<Deployment>(object),
        "MutatingWebhookConfiguration" => check::<MutatingWebhookConfiguration>(object),
        kind => panic!("{kind} is no kind that the operator may make"),
    }
}

#[test]
fn all_kinds_are_there_in_the_order_of_references() {
    let objects = objects(&BerthStorageSpec::default());
    let names: Vec<String> = objects
        .iter()
        .map(|o| {
            let text = |v: &Value| v.as_str().expect("text").to_owned();
            format!("{} {}", text(&o["kind"]), text(&o["metadata"]["name"]))
        })
        .collect();
    assert_eq!(
        names,
        [
            "ServiceAccount pmem-csi-intel-com-controller",
            "ServiceAccount pmem-csi-intel-com-node",
            "ClusterRole pmem-csi-intel-com-controller",
            "ClusterRoleBinding pmem-csi-intel-com-controller",
            "Role pmem-csi-intel-com-controller",
            "RoleBinding pmem-csi-intel-com-controller",
            "CSIDriver pmem-csi.intel.com",
            "Secret pmem-csi-intel-com-node-tls",
            "ConfigMap pmem-csi-intel-com-node",
            "DaemonSet pmem-csi-intel-com-node",
            "Secret pmem-csi-intel-com-controller-tls",
            "ConfigMap pmem-csi-intel-com-controller",
            "Service pmem-csi-intel-com-controller",
            "Deployment pmem-csi-intel-com-controller",
            "MutatingWebhookConfiguration pmem-csi-intel-com",
        ]
    );
    for object in &objects {
        let metadata = &object["metadata"];
        assert_eq!(metadata["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(metadata["labels"][MANAGED_BY.0], MANAGED_BY.1);
    }
}

/// Goal: two deployments with similar names have no object in common, and neither selects the other's
/// pods.
#[test]
fn several_deployments_are_apart() {
    let spec = BerthStorageSpec::default();
    let mut seen = std::collections::BTreeSet::new();
    let mut selectors = std::collections::BTreeSet::new();
    for name in ["a", "a.b", "a.b.c", "pmem-csi.intel.com"] {
        for object in desired(&owner(name), &spec, &facts()).expect("objects") {
            expect_valid(&object);
            let key = (
                object["kind"].to_string(),
                object["metadata"]["name"].to_string(),
            );
            assert!(seen.insert(key), "{object}");
            let selector = &object["spec"]["selector"]["matchLabels"];
            assert!(selector.is_null() || selectors.insert(selector.to_string()));
        }
    }
}

#[test]
fn an_address_of_a_scheduler_is_required() {
    let without = Facts {
        schedulers: Vec::new(),
        ..facts()
    };
    let mut spec = BerthStorageSpec::default();
    let result = desired(&owner("a"), &spec, &without);
    assert_eq!(result, Err(Error::NoSchedulers));
    spec.schedulers = vec!["own:7100".to_owned()];
    for facts in [without, facts()] {
        let objects = desired(&owner("a"), &spec, &facts).expect("objects");
        for (part, file) in [
            ("node", "compute-agent.toml"),
            ("controller", "csi-controller.toml"),
        ] {
            let map = get(&objects, "ConfigMap", &format!("a-{part}"));
            let text = map["data"][file].as_str().expect("text");
            assert!(text.contains("schedulers = [\"own:7100\"]\n"), "{text}");
        }
    }
}

/// Writes a configuration where the program reads it, and returns the container's arguments for it.
fn arguments(
    objects: &[Value],
    kind: &str,
    name: &str,
    file: &str,
) -> (tempfile::TempDir, Vec<String>) {
    let container = &get(objects, kind, name)["spec"]["template"]["spec"]["containers"][0];
    let text = get(objects, "ConfigMap", name)["data"][file].as_str();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(file);
    std::fs::write(&path, text.expect("a file")).expect("written");
    let list = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).expect("texts");
    let mut all = list(&container["command"]);
    all.extend(list(&container["args"]));
    let shown = format!("/etc/berth/{file}");
    let all = all
        .iter()
        .map(|argument| argument.replace(&shown, path.to_str().expect("UTF-8")));
    let known = [("$(NODE_NAME)", "n1"), ("$(HOST_IP)", "192.0.2.1")];
    let all = all.map(|argument| {
        known
            .iter()
            .fold(argument, |text, (from, to)| text.replace(from, to))
    });
    (directory, all.collect())
}

/// Goal: both programs start with what their pods pass to them, with each value of the spec.
#[test]
fn the_programs_accept_their_configurations() {
    for mode in [DeviceMode::Lvm, DeviceMode::Direct] {
        for format in [LogFormat::Text, LogFormat::Json] {
            for level in [0, 3, 5, 9] {
                let spec = BerthStorageSpec {
                    device_mode: mode,
                    log_format: format,
                    log_level: level,
                    pmem_percentage: 50,
                    ..BerthStorageSpec::default()
                };
                let objects = objects(&spec);
                let name = "pmem-csi-intel-com-controller";
                let (_files, all) = arguments(&objects, "Deployment", name, "csi-controller.toml");
                let flags = berth_csi_controller::flags::Flags::try_parse_from(all);
                let config = flags.expect("flags").config().expect("a configuration");
                assert_eq!(config.schedulers, facts().schedulers);
                assert_eq!(config.driver_name, "pmem-csi.intel.com");
                assert_eq!(config.log.filter, log_filter(level));
                config.validate().expect("valid");
                let name = "pmem-csi-intel-com-node";
                let (_files, all) = arguments(&objects, "DaemonSet", name, "compute-agent.toml");
                let flags = berth_compute_agent::flags::Flags::try_parse_from(all);
                let config = flags.expect("flags").config().expect("a configuration");
                assert_eq!(config.schedulers, facts().schedulers);
                assert_eq!(config.volumes.driver_name, "pmem-csi.intel.com");
                assert_eq!(config.volumes.fsdax_percent, 50);
                config.validate().expect("valid");
            }
        }
    }
}

/// Goal: a certificate for each node is at the path that its agent reads; a shared one likewise.
#[test]
fn agents_read_their_certificates() {
    let each = NodePairs::Each(
        [("n1", "one"), ("n2", "two")]
            .map(|(n, p)| (n.to_owned(), pair(p)))
            .into(),
    );
    for nodes in [NodePairs::Shared(pair("agent")), each] {
        let mut facts = facts();
        facts.credentials.nodes = nodes;
        let objects = desired(&owner("a"), &BerthStorageSpec::default(), &facts).expect("objects");
        let files = get(&objects, "Secret", "a-node-tls")["data"].clone();
        let (_files, all) = arguments(&objects, "DaemonSet", "a-node", "compute-agent.toml");
        for flag in ["--tls-ca=", "--tls-cert=", "--tls-key="] {
            let path = all.iter().find_map(|argument| argument.strip_prefix(flag));
            let file = path
                .and_then(|path| path.strip_prefix("/tls/"))
                .expect("a file");
            assert!(files[file].is_string(), "{flag}{file}: {files}");
        }
    }
}

/// Goal: pods are replaced when their configuration changes, and only then.
#[test]
fn pods_follow_their_configuration() {
    let template = |spec: &BerthStorageSpec, facts: &Facts, kind: &str, part: &str| {
        let objects = desired(&owner("a"), spec, facts).expect("objects");
        get(&objects, kind, &format!("a-{part}"))["spec"]["template"].clone()
    };
    let old = BerthStorageSpec::default();
    let mut other = facts();
    other.credentials.controller = pair("renewed");
    other.credentials.nodes = NodePairs::Shared(pair("renewed"));
    let changed = BerthStorageSpec {
        log_level: 9,
        ..BerthStorageSpec::default()
    };
    for (kind, part) in [("Deployment", "controller"), ("DaemonSet", "node")] {
        let before = template(&old, &facts(), kind, part);
        assert_eq!(before, template(&old, &other, kind, part), "certificates");
        assert_ne!(
            before,
            template(&changed, &facts(), kind, part),
            "configuration"
        );
    }
}

proptest! {
    /// Goal: valid objects, the same each time, for any spec. Labels of the user never replace ours.
    #[test]
    fn any_spec_gives_valid_objects(
        name in "[a-z][a-z0-9]{0,8}(\\.[a-z][a-z0-9]{0,8}){0,3}",
        scheduler in "\\PC{1,20}",
        level in 0..100,
        percent in 1..=100,
        replicas in 1..5,
        port in proptest::option::of(1..65536),
        mutate in prop_oneof![Just(MutatePods::Always), Just(MutatePods::Try), Just(MutatePods::Never)],
        labels in proptest::collection::btree_map("[a-z]{1,5}|app.kubernetes.io/(instance|managed-by)", "[a-z]{0,5}", 0..4),
        selector in proptest::collection::btree_map("[a-z]{1,5}", "[a-z]{0,5}", 1..4),
    ) {
        let spec = BerthStorageSpec {
            schedulers: vec![scheduler],
            log_level: level,
            pmem_percentage: percent,
            controller_replicas: replicas,
            scheduler_node_port: port,
            mutate_pods: mutate,
            labels,
            node_selector: selector,
            ..BerthStorageSpec::default()
        };
        let objects = desired(&owner(&name), &spec, &facts()).expect("objects");
        prop_assert_eq!(&objects, &desired(&owner(&name), &spec, &facts()).expect("objects"));
        for object in &objects {
            expect_valid(object);
            prop_assert_eq!(&object["metadata"]["labels"][MANAGED_BY.0], MANAGED_BY.1);
            prop_assert!(crate::diff::covers(object, object));
            let digest = object["metadata"]["annotations"][APPLIED].as_str();
            prop_assert_eq!(digest.map(str::len), Some(64));
        }
        let webhook = objects.iter().filter(|o| o["kind"] == "MutatingWebhookConfiguration").count();
        prop_assert_eq!(webhook, usize::from(mutate != MutatePods::Never));
    }
}
