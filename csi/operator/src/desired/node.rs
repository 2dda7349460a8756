//! The agent on each node with persistent memory, with its registrar; and the driver's declaration.

use serde_json::{Value, json};

use super::{
    CONFIGURATION, Context, DEVICE_MODE, MAX_UNAVAILABLE, NodePairs, Part, SCHEDULERS, digest,
    quote, secret,
};
use crate::upgrade::CONTAINER;

const PART: Part = Part::Node;
const REGISTRAR: &str = "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0";
/// Controllers connect to the agent through it.
const PORT: i32 = 7300;
/// How long an agent has to run before it counts as available.
const MIN_READY_SECONDS: i32 = 5;
/// 0400: a key that other users may read is refused.
const SECRET_MODE: i64 = 0o400;

pub(super) fn objects(context: &Context<'_>) -> Vec<Value> {
    let name = context.name(PART);
    let configuration = configuration(context);
    let data = json!({"data": {"compute-agent.toml": configuration}});
    let agents = daemon_set(context, &configuration);
    vec![
        driver(context),
        context.namespaced(
            "v1",
            "Secret",
            &secret_name(context),
            PART,
            credentials(context),
        ),
        context.namespaced("v1", "ConfigMap", &name, PART, data),
        context.namespaced("apps/v1", "DaemonSet", &name, PART, agents),
    ]
}

fn driver(context: &Context<'_>) -> Value {
    let content = json!({"spec": {
        // Volumes are local: nothing is attached.
        "attachRequired": false,
        // The driver recognizes an inline volume by the kubelet's information about its pod.
        "podInfoOnMount": true,
        // The extender checks exactly which nodes have space.
        "storageCapacity": false,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent", "Ephemeral"],
    }});
    let name = &context.owner.name;
    context.cluster_scoped("storage.k8s.io/v1", "CSIDriver", name, PART, content)
}

fn secret_name(context: &Context<'_>) -> String {
    super::secret_name(context.owner, PART)
}

fn credentials(context: &Context<'_>) -> Value {
    let credentials = &context.facts.credentials;
    let mut files = vec![("ca.pem".to_owned(), credentials.ca.as_slice())];
    match &credentials.nodes {
        NodePairs::Shared(pair) => {
            files.push(("agent.pem".to_owned(), &pair.cert));
            files.push(("agent-key.pem".to_owned(), &pair.key));
        }
        NodePairs::Each(pairs) => {
            for (node, pair) in pairs {
                files.push((format!("agent-{node}.pem"), &pair.cert));
                files.push((format!("agent-{node}-key.pem"), &pair.key));
            }
        }
    }
    secret(files)
}

/// The directory of records, on the host and in the pod: Kata Containers looks for image files there.
fn state_dir(context: &Context<'_>) -> String {
    format!("/var/lib/{}", context.owner.name)
}

fn configuration(context: &Context<'_>) -> String {
    let state = state_dir(context);
    format!(
        "{}listen = \"0.0.0.0:{PORT}\"\ndriver = \"none\"\ndata_dir = {}\n{}\n\
         [volumes]\nmanager = \"{}\"\nstate_dir = {}\nfsdax_percent = {}\ndriver_name = {}\n\
         csi_endpoint = \"unix:///csi/csi.sock\"\n",
        context.scheduler_line(),
        quote(&format!("{state}/agent")),
        context.log_lines(),
        context.spec.device_mode.as_str(),
        quote(&format!("{state}/volumes")),
        context.spec.pmem_percentage,
        quote(&context.owner.name),
    )
}

fn daemon_set(context: &Context<'_>, configuration: &str) -> Value {
    json!({
        "metadata": {"annotations": {
            DEVICE_MODE: context.spec.device_mode.as_str(),
            SCHEDULERS: context.schedulers.join(","),
            MAX_UNAVAILABLE: json!(context.spec.max_unavailable).to_string().trim_matches('"'),
        }},
        "spec": {
            "selector": {"matchLabels": context.selector(PART)},
            // The operator replaces them, node by node: Kubernetes knows nothing of volumes.
            "updateStrategy": {"type": "OnDelete"},
            // An agent that ends soon after its start does not count as available.
            "minReadySeconds": MIN_READY_SECONDS,
            "template": {
                "metadata": {
                    "labels": context.pod_labels(PART),
                    "annotations": {CONFIGURATION: digest(configuration)},
                },
                "spec": {
                    "serviceAccountName": context.name(PART),
                    "nodeSelector": context.spec.node_selector,
                    // The host's own address, which controllers connect to.
                    "hostNetwork": true,
                    "containers": [agent(context), registrar(context)],
                    "volumes": volumes(context),
                },
            },
        },
    })
}

fn agent(context: &Context<'_>) -> Value {
    let file = match &context.facts.credentials.nodes {
        NodePairs::Shared(_) => "/tls/agent",
        NodePairs::Each(_) => "/tls/agent-$(NODE_NAME)",
    };
    let from = |path: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": path}});
    let shared = |name: &str, path: String| json!({"name": name, "mountPath": path, "mountPropagation": "Bidirectional"});
    let kubelet = &context.spec.kubelet_dir;
    json!({
        "name": CONTAINER,
        "image": context.image(),
        "imagePullPolicy": context.pull_policy(),
        "command": ["/usr/bin/berth-compute-agent"],
        "args": [
            "--config=/etc/berth/compute-agent.toml",
            "--name=$(NODE_NAME)",
            format!("--advertise=$(HOST_IP):{PORT}"),
            "--tls-ca=/tls/ca.pem",
            format!("--tls-cert={file}.pem"),
            format!("--tls-key={file}-key.pem"),
        ],
        "env": [
            {"name": "NODE_NAME", "valueFrom": from("spec.nodeName")},
            {"name": "HOST_IP", "valueFrom": from("status.hostIP")},
        ],
        // It creates devices and mounts them for pods.
        "securityContext": {"privileged": true, "runAsUser": 0},
        "ports": [{"name": "grpc", "containerPort": PORT, "hostPort": PORT, "protocol": "TCP"}],
        "resources": context.spec.node_resources,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/berth", "readOnly": true},
            {"name": "tls", "mountPath": "/tls", "readOnly": true},
            {"name": "socket", "mountPath": "/csi"},
            shared("state", state_dir(context)),
            shared("staging", format!("{kubelet}/plugins/kubernetes.io/csi")),
            shared("pods", format!("{kubelet}/pods")),
            {"name": "dev", "mountPath": "/dev"},
            {"name": "sys", "mountPath": "/sys"},
        ],
    })
}

fn socket_dir(context: &Context<'_>) -> String {
    let (kubelet, name) = (&context.spec.kubelet_dir, &context.owner.name);
    format!("{kubelet}/plugins/{name}")
}

fn registrar(context: &Context<'_>) -> Value {
    let image = context.spec.node_registrar_image.as_deref();
    json!({
        "name": "registrar",
        "image": image.unwrap_or(REGISTRAR),
        "imagePullPolicy": context.pull_policy(),
        "args": [
            "--csi-address=/csi/csi.sock",
            format!("--kubelet-registration-path={}/csi.sock", socket_dir(context)),
        ],
        "securityContext": {"readOnlyRootFilesystem": true, "runAsUser": 0},
        "resources": context.spec.node_registrar_resources,
        "volumeMounts": [
            {"name": "socket", "mountPath": "/csi"},
            {"name": "registration", "mountPath": "/registration"},
        ],
    })
}

fn volumes(context: &Context<'_>) -> Value {
    let kubelet = &context.spec.kubelet_dir;
    let host = |name: &str, path: String, kind: &str| json!({"name": name, "hostPath": {"path": path, "type": kind}});
    let (made, existing) = ("DirectoryOrCreate", "Directory");
    json!([
        {"name": "config", "configMap": {"name": context.name(PART)}},
        {"name": "tls", "secret": {
            "secretName": secret_name(context),
            "defaultMode": SECRET_MODE,
        }},
        host("socket", socket_dir(context), made),
        host("registration", format!("{kubelet}/plugins_registry"), made),
        host("state", state_dir(context), made),
        host("staging", format!("{kubelet}/plugins/kubernetes.io/csi"), made),
        host("pods", format!("{kubelet}/pods"), existing),
        host("dev", "/dev".to_owned(), existing),
        host("sys", "/sys".to_owned(), existing),
    ])
}
