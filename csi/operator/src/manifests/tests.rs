//! Goal: the committed manifests are the generated ones, they fit the program, and a resource has the
//! objects that the operator makes. Method: the files are compared, and what is in them is given to the
//! program's own parsers.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Parser as _;

use super::*;
use crate::flags::Flags;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/operator")
}

fn all() -> Vec<Value> {
    let files = installation(NAMESPACE, IMAGE).into_iter();
    files.flat_map(|(_, objects)| objects).collect()
}

fn get<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let is_it = |object: &&Value| object["kind"] == kind;
    objects.iter().find(is_it).expect("an object of this kind")
}

#[test]
fn the_committed_files_are_the_generated_ones() {
    let mut names = BTreeSet::new();
    for (name, objects) in installation(NAMESPACE, IMAGE) {
        let committed = std::fs::read_to_string(folder().join(name)).unwrap_or_default();
        assert!(
            committed == file(false, &objects),
            "{name} is outdated; hint: berth-csi-operator manifests --directory \
             deploy/kubernetes/operator"
        );
        let read: Vec<Value> = serde_saphyr::from_multiple(&committed).expect("YAML");
        assert_eq!(read, objects, "{name}");
        names.insert(name.to_owned());
    }
    let files = std::fs::read_dir(folder()).expect("a folder");
    let files = files.map(|file| {
        file.expect("a file")
            .file_name()
            .into_string()
            .expect("text")
    });
    assert_eq!(files.collect::<BTreeSet<_>>(), names);
}

/// Goal: a deployment without the operator has what the operator would make, file by file.
#[test]
fn the_committed_files_without_the_operator_are_the_generated_ones() {
    let folder = folder().join("..");
    let documents = read(&folder.join("storage.yaml")).expect("a resource");
    let files = without_operator(&Config::default(), &documents[0]).expect("files");
    for (name, objects) in &files {
        let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            committed == file(true, objects),
            "{name} is outdated; hint: berth-csi-operator manifests --resource \
             deploy/kubernetes/storage.yaml --directory deploy/kubernetes"
        );
    }
    let written = files.into_iter().flat_map(|(_, objects)| objects);
    let made = of_resource(&Config::default(), &documents[0]).expect("objects");
    let key = |object: &Value| (object["kind"].clone(), object["metadata"]["name"].clone());
    let written: Vec<_> = written.map(|object| key(&object)).collect();
    for object in made.iter().filter(|object| object["kind"] != "Secret") {
        assert!(written.contains(&key(object)), "{}", object["kind"]);
    }
    // The namespace is one more, and the two secrets are made from certificates.
    assert_eq!(written.len(), made.len() - 2 + 1);
}

#[test]
fn without_the_operator_kubernetes_replaces_the_agents() {
    for (given, expected) in [(json!(3), json!(3)), (json!("30%"), json!("30%"))] {
        let resource = json!({
            "apiVersion": "berth.internal/v1alpha1", "kind": "BerthStorage",
            "metadata": {"name": "d.example"},
            "spec": {"schedulers": ["s1:7100"], "maxUnavailable": given, "mutatePods": "Never"},
        });
        let files = without_operator(&Config::default(), &resource).expect("files");
        let [_, _, (_, node), _, (_, webhook)] = &files;
        assert_eq!(webhook.len(), 0);
        let agents = get(node, "DaemonSet");
        assert_eq!(
            agents["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": expected}})
        );
        for (_, objects) in &files {
            let text = yaml::documents(objects);
            assert!(
                !text.contains("berth-csi-operator") && !text.contains("null"),
                "{text}"
            );
        }
    }
}

#[test]
fn a_file_with_several_resources_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("two.yaml");
    std::fs::write(&path, "a: 1\n---\nb: 2\n").expect("it is written");
    let error = write(&Config::default(), Some(&path), folder.path()).expect_err("two");
    assert!(error.contains("has 2 documents"), "{error}");
}

#[test]
fn the_pod_runs_the_program_with_its_configuration() {
    let objects = all();
    let text = get(&objects, "ConfigMap")["data"]["csi-operator.toml"]
        .as_str()
        .expect("a text");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("it is written");
    Config::load(Some(file.path()), |_| ()).expect("a valid configuration");
    let spec = &get(&objects, "Deployment")["spec"];
    let container = &spec["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().expect("arguments").iter();
    let args = args.map(|arg| arg.as_str().expect("text"));
    let flags = Flags::try_parse_from(std::iter::once("x").chain(args)).expect("flags");
    let config = PathBuf::from("/etc/berth/csi-operator.toml");
    assert_eq!(flags.config, Some(config));
    assert_eq!(
        spec["selector"]["matchLabels"]["app.kubernetes.io/name"],
        NAME
    );
}

/// Goal: the operator can grant what it grants, and may touch every kind that it makes and no other.
/// Method: each rule of the controllers is among its own; the kinds of its objects against its rules.
#[test]
fn permissions_are_enough_and_no_more() {
    let cluster = own_cluster_rules();
    for granted in cluster_rules().as_array().expect("rules") {
        assert!(cluster.contains(granted), "{granted}");
    }
    let inside = namespace_rules();
    assert!(inside.contains(&lease_rule()));
    for rule in cluster.iter().chain(&inside) {
        let texts = |key: &str| rule[key].as_array().expect("a list").clone();
        assert!(!texts("verbs").contains(&json!("*")) && !texts("resources").contains(&json!("*")));
        for verb in ["escalate", "bind", "impersonate"] {
            assert!(!texts("verbs").contains(&json!(verb)));
        }
    }
    let secrets = cluster.iter().any(|rule| {
        rule["resources"]
            .as_array()
            .is_some_and(|all| all.contains(&json!("secrets")))
    });
    assert!(!secrets, "secrets of other namespaces");
}

#[test]
fn a_resource_has_the_objects_of_the_operator() {
    let config = Config {
        schedulers: vec!["s1:7100".to_owned()],
        ..Config::default()
    };
    let resource = json!({
        "apiVersion": "pmem-csi.intel.com/v1alpha1", "kind": "Deployment",
        "metadata": {"name": "pmem-csi.intel.com"}, "spec": {"logLevel": 5},
    });
    let objects = of_resource(&config, &resource).expect("objects");
    let kinds: BTreeSet<(String, String, bool)> = objects
        .iter()
        .map(|object| {
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            let is_namespaced = object["metadata"]["namespace"].is_string();
            (
                text(&object["apiVersion"]),
                text(&object["kind"]),
                is_namespaced,
            )
        })
        .collect();
    let known = KINDS.map(|(version, kind, inside)| (version.to_owned(), kind.to_owned(), inside));
    assert_eq!(kinds, known.into());
    for object in &objects {
        let metadata = &object["metadata"];
        assert!(metadata.get("ownerReferences").is_none());
        assert_eq!(metadata["labels"][MANAGED_BY.0], MANAGED_BY.1);
        assert!(object["kind"] != "Secret" || object.get("data").is_none());
    }
    let mut unknown = resource.clone();
    unknown["apiVersion"] = json!("apps/v1");
    let error = of_resource(&config, &unknown).expect_err("another kind");
    assert!(error.contains("is no resource of the operator"), "{error}");
    let error = of_resource(&Config::default(), &resource).expect_err("no scheduler");
    assert!(error.contains("no address of a scheduler"), "{error}");
}

/// Goal: a change of what is made is seen in a review. Method: the printed objects of two resources, with
/// every default and with other values, are files.
#[test]
fn the_objects_of_two_resources_are_the_recorded_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let config = Config {
        schedulers: vec!["s1:7100".to_owned()],
        ..Config::default()
    };
    for name in ["specification", "full"] {
        let resource = folder.join(format!("{name}.yaml"));
        let printed = print(&config, Some(&resource)).expect("manifests");
        let recorded = std::fs::read_to_string(folder.join(format!("{name}.objects.yaml")));
        assert!(
            recorded.is_ok_and(|recorded| recorded == printed),
            "{name}.objects.yaml is outdated; hint: berth-csi-operator manifests --scheduler s1:7100 \
             --resource {}",
            resource.display()
        );
    }
}
