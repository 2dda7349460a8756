//! The controller with its provisioner, its service, and the webhook.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{CONFIGURATION, Context, Part, digest, quote, secret};
use crate::spec::MutatePods;

const PART: Part = Part::Controller;
const PROVISIONER: &str = "registry.k8s.io/sig-storage/csi-provisioner:v5.3.0";
/// The user and group of all containers; the socket between them is for one user.
const USER: i64 = 1000;
/// 0440: a key that any user may read is refused, and a pod with a user of its own reads by its group.
const SECRET_MODE: i64 = 0o440;

pub(super) fn objects(context: &Context<'_>) -> Vec<Value> {
    let name = context.name(PART);
    let configuration = configuration(context);
    let data = json!({"data": {"csi-controller.toml": configuration}});
    let mut objects = vec![
        context.namespaced(
            "v1",
            "Secret",
            &secret_name(context),
            PART,
            credentials(context),
        ),
        context.namespaced("v1", "ConfigMap", &name, PART, data),
        context.namespaced("v1", "Service", &name, PART, service(context)),
        context.namespaced(
            "apps/v1",
            "Deployment",
            &name,
            PART,
            deployment(context, &configuration),
        ),
    ];
    let policy = match context.spec.mutate_pods {
        MutatePods::Always => Some("Fail"),
        MutatePods::Try => Some("Ignore"),
        MutatePods::Never => None,
    };
    objects.extend(policy.map(|policy| webhook(context, policy)));
    objects
}

fn secret_name(context: &Context<'_>) -> String {
    super::secret_name(context.owner, PART)
}

/// Programs notice changed files, so pods are not replaced when certificates are.
fn credentials(context: &Context<'_>) -> Value {
    let credentials = &context.facts.credentials;
    secret([
        ("ca.pem".to_owned(), credentials.ca.as_slice()),
        ("cert.pem".to_owned(), &credentials.controller.cert),
        ("key.pem".to_owned(), &credentials.controller.key),
    ])
}

fn configuration(context: &Context<'_>) -> String {
    format!(
        "csi_endpoint = \"unix:///csi/csi.sock\"\ndriver_name = {}\n{}{}\n\
         [kubernetes]\nlisten = \"0.0.0.0:8000\"\ncertificate = \"/tls/cert.pem\"\nkey = \"/tls/key.pem\"\n\n\
         [tls]\nca = \"/tls/ca.pem\"\ncert = \"/tls/cert.pem\"\nkey = \"/tls/key.pem\"\n",
        quote(&context.owner.name),
        context.scheduler_line(),
        context.log_lines(),
    )
}

fn service(context: &Context<'_>) -> Value {
    let mut port = json!({"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"});
    let mut kind = "ClusterIP";
    if let Some(number) = context.spec.scheduler_node_port {
        port["nodePort"] = json!(number);
        kind = "NodePort";
    }
    json!({"spec": {"type": kind, "selector": context.selector(PART), "ports": [port]}})
}

fn deployment(context: &Context<'_>, configuration: &str) -> Value {
    json!({"spec": {
        "replicas": context.spec.controller_replicas,
        "selector": {"matchLabels": context.selector(PART)},
        "template": {
            "metadata": {
                "labels": context.pod_labels(PART),
                "annotations": {CONFIGURATION: digest(configuration)},
            },
            "spec": {
                "serviceAccountName": context.name(PART),
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": USER,
                    "runAsGroup": USER,
                    "fsGroup": USER,
                },
                "containers": [program(context), provisioner(context)],
                "volumes": [
                    {"name": "config", "configMap": {"name": context.name(PART)}},
                    {"name": "tls", "secret": {
                        "secretName": secret_name(context),
                        "defaultMode": SECRET_MODE,
                    }},
                    {"name": "socket", "emptyDir": {}},
                ],
            },
        },
    }})
}

fn confined() -> Value {
    json!({
        "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
    })
}

fn program(context: &Context<'_>) -> Value {
    let status = json!({"path": "/status", "port": "https", "scheme": "HTTPS"});
    json!({
        "name": "berth",
        "image": context.image(),
        "imagePullPolicy": context.pull_policy(),
        "command": ["/usr/bin/berth-csi-controller"],
        "args": ["--config=/etc/berth/csi-controller.toml"],
        "securityContext": confined(),
        "ports": [{"name": "https", "containerPort": 8000, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": status},
        "livenessProbe": {"httpGet": status, "initialDelaySeconds": 10},
        "resources": context.spec.controller_resources,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/berth", "readOnly": true},
            {"name": "tls", "mountPath": "/tls", "readOnly": true},
            {"name": "socket", "mountPath": "/csi"},
        ],
    })
}

/// A volume is created on the selected node; the call takes as long as the host needs.
fn provisioner(context: &Context<'_>) -> Value {
    let image = context.spec.provisioner_image.as_deref();
    json!({
        "name": "provisioner",
        "image": image.unwrap_or(PROVISIONER),
        "imagePullPolicy": context.pull_policy(),
        "args": [
            "--csi-address=/csi/csi.sock",
            "--strict-topology=true",
            "--leader-election=true",
            "--timeout=2m",
        ],
        "securityContext": confined(),
        "resources": context.spec.provisioner_resources,
        "volumeMounts": [{"name": "socket", "mountPath": "/csi"}],
    })
}

fn webhook(context: &Context<'_>, policy: &str) -> Value {
    let not_ignored = json!({"matchExpressions": [{
        "key": "pmem-csi.intel.com/webhook",
        "operator": "NotIn",
        "values": ["ignore"],
    }]});
    let content = json!({"webhooks": [{
        "name": "pod-hook.pmem-csi.intel.com",
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "None",
        "failurePolicy": policy,
        "timeoutSeconds": 10,
        // If another webhook adds a first container, that one has to be marked.
        "reinvocationPolicy": "IfNeeded",
        "namespaceSelector": not_ignored,
        "objectSelector": not_ignored,
        "clientConfig": {
            "service": {
                "name": context.name(PART),
                "namespace": context.facts.namespace,
                "path": "/pod/mutate",
                "port": 443,
            },
            "caBundle": ByteString(context.facts.credentials.ca.clone()),
        },
        "rules": [{
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
        }],
    }]});
    context.cluster_scoped(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        &context.prefix(),
        PART,
        content,
    )
}
