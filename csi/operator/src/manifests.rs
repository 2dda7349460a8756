//! Manifests: those that install the operator, and the objects that it would make for a resource.
//!
//! The committed files in `deploy/kubernetes/operator` are [`installation`], and those in
//! `deploy/kubernetes` are [`without_operator`] of the resource beside them; tests hold both. The objects of
//! a resource come from the function that the operator itself calls.
//!
//! Permissions are the least ones. Kubernetes lets an account grant only what it has, so the operator has
//! everything that it grants to the controllers.
//!
//! Invariant: no certificate and no key is printed.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::desired::access::{cluster_rules, lease_rule};
use crate::desired::{
    APPLIED, Credentials, Facts, KINDS, MANAGED_BY, MAX_UNAVAILABLE, NodePairs, Pair, desired,
};
use crate::event;
use crate::resource::{Kind, Resource};
use crate::spec::definitions;
use crate::yaml;

/// The name of the operator's own objects.
const NAME: &str = "berth-csi-operator";
/// The namespace and the image, unless they are configured.
const NAMESPACE: &str = "berth";
const IMAGE: &str = "berth:0.1.0";
/// The user and group of the operator.
const USER: i64 = 1000;
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// A file, and the objects in it.
type File = (&'static str, Vec<Value>);

/// Returns what `manifests` prints.
///
/// # Errors
///
/// When the resource cannot be read or has no objects.
pub fn print(config: &Config, resource: Option<&Path>) -> Result<String, String> {
    let Some(path) = resource else {
        let (namespace, image) = names(config);
        let files = installation(namespace, image).into_iter();
        let objects: Vec<Value> = files.flat_map(|(_, objects)| objects).collect();
        return Ok(yaml::documents(&objects));
    };
    let mut objects = Vec::new();
    for document in read(path)? {
        objects.extend(of_resource(config, &document)?);
    }
    Ok(yaml::documents(&objects))
}

fn read(path: &Path) -> Result<Vec<Value>, String> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    serde_saphyr::from_multiple(&text)
        .map_err(|error| format!("{} is no YAML: {error}", path.display()))
}

/// Writes into files: what installs the operator, or what deploys a resource without it.
///
/// # Errors
///
/// When the resource cannot be read or has no objects, or a file cannot be written.
pub fn write(config: &Config, resource: Option<&Path>, directory: &Path) -> Result<(), String> {
    let (namespace, image) = names(config);
    let files: Vec<File> = match resource {
        None => installation(namespace, image).into(),
        Some(path) => match read(path)?.as_slice() {
            [document] => without_operator(config, document)?.into(),
            documents => {
                let (count, path) = (documents.len(), path.display());
                return Err(format!("{path} has {count} documents; one is required"));
            }
        },
    };
    for (name, objects) in files {
        let path = directory.join(name);
        std::fs::write(&path, file(resource.is_some(), &objects))
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    Ok(())
}

/// Returns the content of a file.
fn file(is_of_resource: bool, objects: &[Value]) -> String {
    let option = if is_of_resource { " --resource" } else { "" };
    format!(
        "# Made by `berth-csi-operator manifests{option} --directory`.\n{}",
        yaml::documents(objects)
    )
}

fn names(config: &Config) -> (&str, &str) {
    let namespace = config.namespace.as_deref().unwrap_or(NAMESPACE);
    (namespace, config.image.as_deref().unwrap_or(IMAGE))
}

/// Returns the objects that the operator would make for a resource, without certificates and owner.
///
/// # Errors
///
/// When it is no resource of the operator, or has no objects.
pub fn of_resource(config: &Config, object: &Value) -> Result<Vec<Value>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let kind = Kind::parse(&api_version, &kind)
        .ok_or_else(|| format!("{kind:?} of {api_version:?} is no resource of the operator"))?;
    let resource = Resource::parse(kind, object);
    let spec = resource.spec?;
    let (namespace, image) = names(config);
    let none = || Pair {
        cert: Vec::new(),
        key: Vec::new(),
    };
    let facts = Facts {
        namespace: namespace.to_owned(),
        image: image.to_owned(),
        schedulers: config.schedulers.clone(),
        credentials: Credentials {
            ca: Vec::new(),
            controller: none(),
            nodes: match spec.certificates {
                Some(_) => NodePairs::Shared(none()),
                None => NodePairs::Each([].into()),
            },
        },
    };
    let objects = desired(&resource.owner, &spec, &facts).map_err(|error| error.to_string())?;
    Ok(objects.into_iter().map(without_secrets).collect())
}

/// Returns the objects that deploy a resource where there is no operator, by file, without certificates.
///
/// Kubernetes itself replaces the agents then, several seconds apart and without regard to volumes: an agent
/// finishes what it is making before it ends, and goes on with what it is erasing when it starts again.
///
/// # Errors
///
/// As [`of_resource`].
pub fn without_operator(config: &Config, resource: &Value) -> Result<[File; 5], String> {
    let (namespace, _) = names(config);
    let mut access = vec![own_namespace(namespace)];
    let (mut driver, mut node, mut controller, mut webhook) = (vec![], vec![], vec![], vec![]);
    for mut object in of_resource(config, resource)? {
        let part = &object["metadata"]["labels"]["app.kubernetes.io/component"];
        let file = match object["kind"].as_str().unwrap_or_default() {
            // Made from certificates: see the README beside the files.
            "Secret" => continue,
            "CSIDriver" => &mut driver,
            "MutatingWebhookConfiguration" => &mut webhook,
            "ConfigMap" | "DaemonSet" | "Deployment" | "Service" if part == "node" => &mut node,
            "ConfigMap" | "DaemonSet" | "Deployment" | "Service" => &mut controller,
            _ => &mut access,
        };
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            if let Some(labels) = object.pointer_mut(labels) {
                remove(labels, MANAGED_BY.0);
            }
        }
        if object["kind"] == "DaemonSet" {
            let most = &mut object["metadata"]["annotations"][MAX_UNAVAILABLE].take();
            object["spec"]["updateStrategy"] = rolling_update(most.as_str().unwrap_or("1"));
            // They are all for the operator.
            remove(&mut object["metadata"], "annotations");
        }
        for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
            // To be filled in.
            webhook["clientConfig"]["caBundle"] = json!("");
        }
        remove_empty(&mut object, "webhooks");
        file.push(object);
    }
    Ok([
        ("rbac.yaml", access),
        ("csi-driver.yaml", driver),
        ("node.yaml", node),
        ("controller.yaml", controller),
        ("webhook.yaml", webhook),
    ])
}

fn rolling_update(max_unavailable: &str) -> Value {
    let max_unavailable = match max_unavailable.parse::<i32>() {
        Ok(count) => json!(count),
        Err(_) => json!(max_unavailable),
    };
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}})
}

/// The owner has no identifier before it exists, and the digest is that of the whole object.
fn without_secrets(mut object: Value) -> Value {
    remove(&mut object["metadata"], "ownerReferences");
    remove(&mut object["metadata"]["annotations"], APPLIED);
    remove_empty(&mut object["metadata"], "annotations");
    if object["kind"] == "Secret" {
        remove(&mut object, "data");
    }
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        remove(&mut webhook["clientConfig"], "caBundle");
    }
    remove_empty(&mut object, "webhooks");
    object
}

/// Removes what looking at it has made, or what is empty.
fn remove_empty(value: &mut Value, key: &str) {
    if value[key].is_null() || value[key] == json!({}) {
        remove(value, key);
    }
}

fn remove(value: &mut Value, key: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(key);
    }
}

/// Returns the objects that install the operator, by file, in the order in which they are applied.
#[must_use]
pub fn installation(namespace: &str, image: &str) -> [File; 3] {
    let definitions = definitions().iter().map(|one| json!(one)).collect();
    [
        ("crds.yaml", definitions),
        ("rbac.yaml", access(namespace)),
        (
            "operator.yaml",
            vec![configuration(namespace), deployment(namespace, image)],
        ),
    ]
}

fn object(version: &str, kind: &str, namespace: Option<&str>, content: &Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": NAME}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let empty = Map::new();
    for (key, value) in content.as_object().unwrap_or(&empty) {
        object[key] = value.clone();
    }
    object
}

fn own_namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn access(namespace: &str) -> Vec<Value> {
    let binding = |kind: &str| {
        json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        })
    };
    let events = [rule("", &["events"], &["create"])];
    vec![
        own_namespace(namespace),
        object("v1", "ServiceAccount", Some(namespace), &json!({})),
        object(
            RBAC,
            "ClusterRole",
            None,
            &json!({"rules": own_cluster_rules()}),
        ),
        object(RBAC, "ClusterRoleBinding", None, &binding("ClusterRole")),
        object(
            RBAC,
            "Role",
            Some(namespace),
            &json!({"rules": namespace_rules()}),
        ),
        object(RBAC, "RoleBinding", Some(namespace), &binding("Role")),
        // Events about objects that are in no namespace.
        object(
            RBAC,
            "Role",
            Some(event::NAMESPACE),
            &json!({"rules": events}),
        ),
        object(
            RBAC,
            "RoleBinding",
            Some(event::NAMESPACE),
            &binding("Role"),
        ),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// What a pass does with the objects that it makes.
const MAKES: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

fn own_cluster_rules() -> Vec<Value> {
    let mut rules = Vec::new();
    for group in ["pmem-csi.intel.com", "berth.internal"] {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.group() == group);
        let plurals: Vec<&str> = kinds.map(Kind::plural).collect();
        let below = |part: &str| -> Vec<String> {
            plurals
                .iter()
                .map(|plural| format!("{plural}/{part}"))
                .collect()
        };
        // Patched: the finalizers. An owner that blocks its deletion is an update of them as well.
        rules.push(rule(group, &plurals, &["get", "list", "watch", "patch"]));
        let (status, finalizers) = (below("status"), below("finalizers"));
        let names =
            |all: &[String]| json!({"apiGroups": [group], "resources": all, "verbs": ["update"]});
        rules.push(names(&status));
        rules.push(names(&finalizers));
    }
    rules.extend(rules_of_kinds(false));
    rules.extend(cluster_rules().as_array().cloned().unwrap_or_default());
    rules
}

fn namespace_rules() -> Vec<Value> {
    let mut rules = rules_of_kinds(true);
    // Of which image it is itself; and the agents' pods, which it replaces.
    rules.push(rule("", &["pods"], &["get", "list", "delete"]));
    rules.push(rule("apps", &["controllerrevisions"], &["list"]));
    rules.push(lease_rule());
    rules
}

fn rules_of_kinds(is_namespaced: bool) -> Vec<Value> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for (api_version, kind, _) in KINDS.iter().filter(|(_, _, one)| *one == is_namespaced) {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let plural = format!("{}s", kind.to_ascii_lowercase());
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, plurals)) => plurals.push(plural),
            None => groups.push((group, vec![plural])),
        }
    }
    let rules = groups.iter().map(|(group, plurals)| {
        let plurals: Vec<&str> = plurals.iter().map(String::as_str).collect();
        rule(group, &plurals, &MAKES)
    });
    rules.collect()
}

fn configuration(namespace: &str) -> Value {
    let text = "# Berth's schedulers, as the pods of this cluster reach them.\n\
                schedulers = [\"scheduler-1.example:7100\", \"scheduler-2.example:7100\", \
                \"scheduler-3.example:7100\"]\n\
                metrics_listen = \"0.0.0.0:7400\"\n\n\
                # Of the role reader: berth certs issue certs --role reader --name csi-operator\n\
                [tls]\n\
                ca = \"/tls/ca.pem\"\n\
                cert = \"/tls/cert.pem\"\n\
                key = \"/tls/key.pem\"\n";
    let data = json!({"data": {"csi-operator.toml": text}});
    object("v1", "ConfigMap", Some(namespace), &data)
}

fn deployment(namespace: &str, image: &str) -> Value {
    let labels = json!({"app.kubernetes.io/name": NAME});
    let container = json!({
        // The operator looks for its own image under this name.
        "name": "operator",
        "image": image,
        "command": ["/usr/bin/berth-csi-operator"],
        "args": ["--config=/etc/berth/csi-operator.toml"],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "securityContext": {
            "readOnlyRootFilesystem": true,
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
        },
        "ports": [{"name": "metrics", "containerPort": 7400}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}},
        "resources": {"requests": {"cpu": "12m", "memory": "64Mi"}},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/berth", "readOnly": true},
            {"name": "tls", "mountPath": "/tls", "readOnly": true},
        ],
    });
    let spec = json!({
        // One is active; the other one takes over.
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": {
                "app.kubernetes.io/name": NAME,
                // A webhook of a controller must not keep its operator from starting.
                "pmem-csi.intel.com/webhook": "ignore",
            }},
            "spec": {
                "serviceAccountName": NAME,
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": USER,
                    "runAsGroup": USER,
                    "fsGroup": USER,
                },
                "containers": [container],
                "volumes": [
                    {"name": "config", "configMap": {"name": NAME}},
                    // 0440: a key that any user may read is refused.
                    {"name": "tls", "secret": {"secretName": format!("{NAME}-tls"), "defaultMode": 0o440}},
                ],
            },
        },
    });
    object(
        "apps/v1",
        "Deployment",
        Some(namespace),
        &json!({"spec": spec}),
    )
}

#[cfg(test)]
mod tests;
