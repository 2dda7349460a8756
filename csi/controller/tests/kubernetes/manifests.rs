//! The manifests in deploy/kubernetes.
//!
//! Goal: they cannot go stale. Method: every file is read, and every name, port, flag and key in it
//! that has to be the same as another one is held against that one, or against the program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use berth_csi_controller::flags::Flags;
use berth_csi_controller::kubernetes::Options;
use berth_proto::convert::csi::{DRIVER_NAME_DEFAULT, Origin, Parameters};
use clap::Parser as _;
use yaml_rust2::{Yaml, YamlLoader};

const CONTROLLER: &str = "pmem-csi-intel-com-controller";
const NODE: &str = "pmem-csi-intel-com-node";
const FILES: [&str; 7] = [
    "controller.yaml",
    "csi-driver.yaml",
    "node.yaml",
    "rbac.yaml",
    "scheduler-config.yaml",
    "storage-classes.yaml",
    "webhook.yaml",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All objects of all files.
fn all() -> Vec<Yaml> {
    let objects = FILES.iter().map(|file| {
        let text = read(&folder().join("kubernetes").join(file));
        YamlLoader::load_from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"))
    });
    objects.flatten().collect()
}

fn text(yaml: &Yaml) -> &str {
    yaml.as_str().unwrap_or_else(|| panic!("no text: {yaml:?}"))
}

fn list(yaml: &Yaml) -> &[Yaml] {
    yaml.as_vec().map_or(&[], Vec::as_slice)
}

fn texts(yaml: &Yaml) -> Vec<&str> {
    list(yaml).iter().map(text).collect()
}

fn find<'a>(objects: &'a [Yaml], kind: &str, name: &str) -> &'a Yaml {
    let mut found = objects.iter().filter(|object| {
        object["kind"].as_str() == Some(kind)
            && (name.is_empty() || object["metadata"]["name"].as_str() == Some(name))
    });
    let one = found.next().unwrap_or_else(|| panic!("no {kind} {name:?}"));
    assert!(found.next().is_none(), "two of {kind} {name:?}");
    one
}

fn of_kind<'a>(objects: &'a [Yaml], kind: &'a str) -> impl Iterator<Item = &'a Yaml> {
    objects
        .iter()
        .filter(move |object| object["kind"].as_str() == Some(kind))
}

fn named<'a>(yaml: &'a Yaml, name: &str) -> &'a Yaml {
    let found = list(yaml)
        .iter()
        .find(|one| one["name"].as_str() == Some(name));
    found.unwrap_or_else(|| panic!("no {name} in {yaml:?}"))
}

/// Goal: no file is forgotten, and each object says what it is and lies where the others do.
#[test]
fn every_file_is_read() {
    let files = std::fs::read_dir(folder().join("kubernetes")).unwrap();
    let names: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut expected: BTreeSet<String> = FILES.iter().map(ToString::to_string).collect();
    expected.insert("README.md".to_owned());
    // The operator's own, and the resource of which the others are made: its crate tests both.
    expected.insert("operator".to_owned());
    expected.insert("storage.yaml".to_owned());
    assert_eq!(names, expected);
    let mut seen = BTreeSet::new();
    for object in all() {
        let (kind, version) = (text(&object["kind"]), text(&object["apiVersion"]));
        if kind == "KubeSchedulerConfiguration" {
            assert_eq!(version, "kubescheduler.config.k8s.io/v1");
            continue;
        }
        let name = text(&object["metadata"]["name"]).to_owned();
        assert!(seen.insert((kind.to_owned(), name)), "twice: {object:?}");
        let namespace = object["metadata"]["namespace"].as_str();
        let is_of_all = [
            "Namespace",
            "ClusterRole",
            "ClusterRoleBinding",
            "CSIDriver",
            "StorageClass",
            "MutatingWebhookConfiguration",
        ]
        .contains(&kind);
        assert_eq!(namespace, (!is_of_all).then_some("berth"), "{kind}");
    }
    find(&all(), "Namespace", "berth");
}

/// Goal: the driver is called the same everywhere, as the programs call it.
#[test]
fn the_driver_has_one_name() {
    let objects = all();
    let driver = DRIVER_NAME_DEFAULT;
    find(&objects, "CSIDriver", driver);
    for class in of_kind(&objects, "StorageClass") {
        assert_eq!(text(&class["provisioner"]), driver);
    }
    let folder = format!("/var/lib/kubelet/plugins/{driver}");
    let node = &find(&objects, "DaemonSet", NODE)["spec"]["template"]["spec"];
    assert_eq!(
        text(&named(&node["volumes"], "socket")["hostPath"]["path"]),
        folder
    );
    let registrar = named(&node["containers"], "registrar");
    let path = format!("--kubelet-registration-path={folder}/csi.sock");
    assert!(texts(&registrar["args"]).contains(&path.as_str()));
    assert_eq!(settings(&objects).driver_name, driver);
    let agent = agent(&objects);
    assert_eq!(agent["volumes"]["driver_name"].as_str(), Some(driver));
}

/// Goal: the parameters of the classes are those that the controller takes.
#[test]
fn classes_have_parameters_that_are_taken() {
    let objects = all();
    let mut kinds = BTreeSet::new();
    for class in of_kind(&objects, "StorageClass") {
        let told = class["parameters"].as_hash().unwrap().iter();
        let told = told.map(|(key, value)| (text(key).to_owned(), text(value).to_owned()));
        let read = Parameters::read(Origin::Class, told.collect()).unwrap();
        kinds.insert((format!("{:?}", read.kind), read.kata_containers));
        let mode = text(&class["volumeBindingMode"]);
        assert!(
            ["Immediate", "WaitForFirstConsumer"].contains(&mode),
            "{mode}"
        );
    }
    assert_eq!(kinds.len(), 3, "late binding, cache, kata");
}

/// Returns the controller's configuration, as its pod starts it.
fn settings(objects: &[Yaml]) -> berth_csi_controller::Config {
    let config = find(objects, "ConfigMap", CONTROLLER);
    let pod = &find(objects, "Deployment", CONTROLLER)["spec"]["template"]["spec"];
    let container = named(&pod["containers"], "berth");
    let told = text(&config["data"]["csi-controller.toml"]);
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("csi-controller.toml");
    std::fs::write(&file, told).unwrap();
    let mounted = format!("{}/csi-controller.toml", mount(container, "config"));
    let arguments = texts(&container["args"]);
    assert!(
        arguments.contains(&format!("--config={mounted}").as_str()),
        "{arguments:?}"
    );
    let arguments = arguments
        .iter()
        .map(|a| a.replace(&mounted, file.to_str().unwrap()));
    let program = text(&container["command"][0]).to_owned();
    assert!(program.ends_with(env!("CARGO_PKG_NAME")));
    let flags = Flags::try_parse_from(std::iter::once(program).chain(arguments)).unwrap();
    flags.config().unwrap()
}

fn mount<'a>(container: &'a Yaml, volume: &str) -> &'a str {
    text(&named(&container["volumeMounts"], volume)["mountPath"])
}

#[test]
fn the_controller_starts_as_its_pod_says() {
    let objects = all();
    let config = settings(&objects);
    let pod = &find(&objects, "Deployment", CONTROLLER)["spec"]["template"]["spec"];
    let container = named(&pod["containers"], "berth");
    let options = &config.kubernetes;
    let files = config.encryption.files().expect("all three");
    // One certificate for Kubernetes and for Berth.
    assert_eq!(
        (&options.certificate, &options.key),
        (&files.cert, &files.key)
    );
    let shown = Path::new(mount(container, "tls"));
    let secret = read(&folder().join("kubernetes/README.md"));
    for file in [&files.ca, &files.cert, &files.key] {
        assert_eq!(file.parent(), Some(shown));
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(secret.contains(&format!("--from-file={name}=")), "{name}");
    }
    let socket = format!("{}/csi.sock", mount(container, "socket"));
    assert_eq!(config.csi_endpoint, format!("unix://{socket}"));
    let provisioner = named(&pod["containers"], "provisioner");
    let address = format!("--csi-address={socket}");
    assert!(texts(&provisioner["args"]).contains(&address.as_str()));
    assert_eq!(mount(provisioner, "socket"), mount(container, "socket"));
    // It waits longer than the controller does.
    assert!(texts(&provisioner["args"]).contains(&"--timeout=2m"));
    assert!(config.create_timeout_ms < 120_000);
}

/// Goal: from the scheduler's and the API server's configuration a call reaches the port on which
/// the controller listens.
#[test]
fn calls_reach_the_controller() {
    let objects = all();
    let options = settings(&objects).kubernetes;
    let port = i64::from(options.address().unwrap().port());
    let deployment = &find(&objects, "Deployment", CONTROLLER)["spec"];
    let labels = &deployment["template"]["metadata"]["labels"];
    let pod = &deployment["template"]["spec"];
    let container = named(&pod["containers"], "berth");
    let https = named(&container["ports"], "https");
    assert_eq!(https["containerPort"].as_i64(), Some(port));
    for probe in ["readinessProbe", "livenessProbe"] {
        let probe = &container[probe]["httpGet"];
        let told = (
            text(&probe["path"]),
            text(&probe["port"]),
            text(&probe["scheme"]),
        );
        assert_eq!(told, ("/status", "https", "HTTPS"));
    }
    let service = &find(&objects, "Service", CONTROLLER)["spec"];
    for (key, value) in service["selector"].as_hash().unwrap() {
        assert_eq!(&labels[text(key)], value);
    }
    let outside = named(&service["ports"], "https");
    assert_eq!(text(&outside["targetPort"]), "https");

    let webhook = &find(&objects, "MutatingWebhookConfiguration", "")["webhooks"][0];
    let called = &webhook["clientConfig"]["service"];
    assert_eq!(
        (text(&called["name"]), text(&called["namespace"])),
        (CONTROLLER, "berth")
    );
    assert_eq!(text(&called["path"]), "/pod/mutate");
    assert_eq!(called["port"], outside["port"]);
    assert_eq!(
        texts(&webhook["admissionReviewVersions"]),
        ["v1", "v1beta1"]
    );
    let seconds = webhook["timeoutSeconds"].as_i64().unwrap();
    assert!(options.answer_timeout_ms < 1000 * u64::try_from(seconds).unwrap());

    let extender = &find(&objects, "KubeSchedulerConfiguration", "")["extenders"][0];
    let node_port = outside["nodePort"].as_i64().unwrap();
    assert_eq!(
        text(&extender["urlPrefix"]),
        format!("https://127.0.0.1:{node_port}")
    );
    let verbs = (
        text(&extender["filterVerb"]),
        text(&extender["prioritizeVerb"]),
    );
    assert_eq!(verbs, ("filter", "prioritize"));
    let managed = &extender["managedResources"][0];
    assert_eq!(text(&managed["name"]), options.resource);
    assert_eq!(options.resource, Options::default().resource);
    assert_eq!(managed["ignoredByScheduler"].as_bool(), Some(true));
    assert_eq!(
        text(&extender["tlsConfig"]["serverName"]),
        format!("{CONTROLLER}.berth.svc")
    );
    assert_eq!(text(&extender["httpTimeout"]), "5s");
    assert!(options.answer_timeout_ms < 5_000);
}

/// Goal: the webhook is not asked about the pods that it runs in; they could not start without it.
#[test]
fn our_own_pods_are_let_through() {
    let objects = all();
    let webhook = &find(&objects, "MutatingWebhookConfiguration", "")["webhooks"][0];
    let rule = &webhook["objectSelector"]["matchExpressions"][0];
    assert_eq!(text(&rule["operator"]), "NotIn");
    for (kind, name) in [("Deployment", CONTROLLER), ("DaemonSet", NODE)] {
        let template = &find(&objects, kind, name)["spec"]["template"]["metadata"];
        let label = text(&template["labels"][text(&rule["key"])]);
        assert!(texts(&rule["values"]).contains(&label), "{kind}");
    }
}

/// Goal: what a pod mounts and runs as is there.
#[test]
fn pods_find_what_they_name() {
    let objects = all();
    let told = read(&folder().join("kubernetes/README.md"));
    for (kind, name) in [("Deployment", CONTROLLER), ("DaemonSet", NODE)] {
        let spec = &find(&objects, kind, name)["spec"];
        let selector = spec["selector"]["matchLabels"].as_hash().unwrap();
        for (key, value) in selector {
            assert_eq!(value, &spec["template"]["metadata"]["labels"][text(key)]);
        }
        assert!(!selector.is_empty());
        let pod = &spec["template"]["spec"];
        find(&objects, "ServiceAccount", text(&pod["serviceAccountName"]));
        let mut mounted = BTreeSet::new();
        for container in list(&pod["containers"]) {
            for mount in list(&container["volumeMounts"]) {
                mounted.insert(text(&mount["name"]));
            }
        }
        let volumes = list(&pod["volumes"]);
        let there: BTreeSet<&str> = volumes.iter().map(|v| text(&v["name"])).collect();
        assert_eq!(mounted, there, "{kind}");
        for volume in volumes {
            if let Some(map) = volume["configMap"]["name"].as_str() {
                find(&objects, "ConfigMap", map);
            }
            if let Some(secret) = volume["secret"]["secretName"].as_str() {
                assert!(
                    told.contains(secret),
                    "the README does not say how to make {secret}"
                );
            }
        }
    }
    for binding in ["ClusterRoleBinding", "RoleBinding"] {
        for binding in of_kind(&objects, binding) {
            let role = &binding["roleRef"];
            find(&objects, text(&role["kind"]), text(&role["name"]));
            let subject = &binding["subjects"][0];
            find(&objects, text(&subject["kind"]), text(&subject["name"]));
        }
    }
}

/// Goal: the controller may read what extender and webhook read.
#[test]
fn what_is_read_may_be_read() {
    let objects = all();
    let rules = list(&find(&objects, "ClusterRole", CONTROLLER)["rules"]);
    for (group, resource) in [
        ("", "persistentvolumeclaims"),
        ("storage.k8s.io", "storageclasses"),
    ] {
        let permits = |rule: &&Yaml| {
            texts(&rule["apiGroups"]).contains(&group)
                && texts(&rule["resources"]).contains(&resource)
        };
        let rule = rules.iter().find(permits).unwrap();
        for verb in ["get", "list"] {
            assert!(texts(&rule["verbs"]).contains(&verb), "{resource}: {verb}");
        }
    }
}

/// Returns the agent's configuration.
fn agent(objects: &[Yaml]) -> toml::Table {
    let config = find(objects, "ConfigMap", NODE);
    let told = text(&config["data"]["compute-agent.toml"]);
    told.parse()
        .unwrap_or_else(|e| panic!("compute-agent.toml: {e}"))
}

/// Goal: the agent is told only what it knows. Method: its sample, which holds every key, and the
/// names of its flags in its source; this crate cannot know the agent's.
#[test]
fn the_agent_starts_as_its_pod_says() {
    let objects = all();
    let sample = read(&folder().join("compute-agent.toml"));
    let mut table = String::new();
    let mut known = BTreeSet::new();
    for line in sample.lines() {
        let line = line.trim_start_matches("# ");
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some((key, _)) = line.split_once(" = ") {
            known.insert(format!("{table}{key}"));
        }
    }
    let agent = agent(&objects);
    for (key, value) in &agent {
        match value.as_table() {
            Some(inner) => {
                for inner in inner.keys() {
                    assert!(known.contains(&format!("{key}.{inner}")), "{key}.{inner}");
                }
            }
            None => assert!(known.contains(key), "{key}"),
        }
    }
    let pod = &find(&objects, "DaemonSet", NODE)["spec"]["template"]["spec"];
    let container = named(&pod["containers"], "berth");
    let root = folder().join("..");
    let flags = ["compute-agent/server/src/flags.rs", "process/src/flags.rs"];
    let flags: String = flags.iter().map(|file| read(&root.join(file))).collect();
    for argument in texts(&container["args"]) {
        let (flag, _) = argument
            .strip_prefix("--")
            .unwrap()
            .split_once('=')
            .unwrap();
        assert!(
            flags.contains(&format!("pub {}: ", flag.replace('-', "_"))),
            "{argument}"
        );
    }
    let port = agent["listen"]
        .as_str()
        .unwrap()
        .rsplit_once(':')
        .unwrap()
        .1;
    assert_eq!(
        container["ports"][0]["containerPort"].as_i64(),
        port.parse().ok()
    );
    let advertise = format!("--advertise=$(HOST_IP):{port}");
    assert!(texts(&container["args"]).contains(&advertise.as_str()));
    let socket = format!("unix://{}/csi.sock", mount(container, "socket"));
    assert_eq!(
        agent["volumes"]["csi_endpoint"].as_str(),
        Some(socket.as_str())
    );
    let state = Path::new(agent["volumes"]["state_dir"].as_str().unwrap());
    assert!(state.starts_with(mount(container, "state")));
    for variable in list(&container["env"]) {
        let used = format!("$({})", text(&variable["name"]));
        assert!(
            texts(&container["args"]).iter().any(|a| a.contains(&used)),
            "{used}"
        );
    }
}
