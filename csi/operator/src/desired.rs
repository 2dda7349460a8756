//! The objects of a deployment, as a function of its spec and of what the operator knows.
//!
//! | module | objects |
//! |---|---|
//! | `controller` | Deployment, Service, ConfigMap, Secret, MutatingWebhookConfiguration |
//! | `node` | DaemonSet, ConfigMap, Secret, CSIDriver |
//! | `access` | ServiceAccounts, roles and their bindings |
//!
//! Objects are JSON, as they are sent: only the fields that the operator decides about. The API server
//! owns the others, and other managers may.
//!
//! Invariant: the same arguments give the same bytes, in the order in which objects are applied: first
//! what others refer to. Every object carries the owner, so that Kubernetes removes it with its owner.

pub(crate) mod access;
mod controller;
mod node;

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

use crate::spec::{BerthStorageSpec, LogFormat};

/// The label of all objects that the operator makes.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "berth-csi-operator");
/// The annotation with the digest of an object as it was applied.
pub const APPLIED: &str = "berth.internal/applied";
/// The annotation of the agents with the device mode of their volumes.
pub const DEVICE_MODE: &str = "berth.internal/device-mode";
/// The annotation of the agents with the addresses of their schedulers, separated by commas.
pub const SCHEDULERS: &str = "berth.internal/schedulers";
/// The annotation of the agents with how many may be unavailable while they are replaced.
pub const MAX_UNAVAILABLE: &str = "berth.internal/max-unavailable";
/// The annotation of pods with the digest of their configuration: they are replaced when it changes.
const CONFIGURATION: &str = "berth.internal/configuration";

/// The resource from which objects are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its API group with version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name, which is the CSI driver's.
    pub name: String,
    /// Its unique identifier.
    pub uid: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub cert: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
}

/// The agents' certificates.
#[derive(Clone, PartialEq, Eq)]
pub enum NodePairs {
    /// One that names all hosts.
    Shared(Pair),
    /// One for each node, by its name.
    Each(BTreeMap<String, Pair>),
}

/// All certificates of a deployment.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The certificate authority, in PEM.
    pub ca: Vec<u8>,
    /// The controller's.
    pub controller: Pair,
    /// The agents'.
    pub nodes: NodePairs,
}

/// What the operator knows besides the spec.
#[derive(Clone, PartialEq, Eq)]
pub struct Facts {
    /// The operator's own namespace, in which all objects are made.
    pub namespace: String,
    /// The operator's own image, which has all programs.
    pub image: String,
    /// The schedulers' addresses in the operator's configuration.
    pub schedulers: Vec<String>,
    /// The certificates.
    pub credentials: Credentials,
}

/// Why there are no objects.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither the resource nor the configuration has an address of a scheduler.
    #[error(
        "no address of a scheduler is known; hint: start the operator with --scheduler HOST:PORT, or set \
         spec.schedulers of a BerthStorage"
    )]
    NoSchedulers,
}

/// Returns the objects of a deployment, in the order in which they are applied.
///
/// # Errors
///
/// When the facts are not enough.
pub fn desired(owner: &Owner, spec: &BerthStorageSpec, facts: &Facts) -> Result<Vec<Value>, Error> {
    let schedulers = match spec.schedulers.as_slice() {
        [] => facts.schedulers.clone(),
        given => given.to_vec(),
    };
    if schedulers.is_empty() {
        return Err(Error::NoSchedulers);
    }
    let context = Context {
        owner,
        spec,
        facts,
        schedulers,
    };
    let mut objects = access::objects(&context);
    objects.extend(node::objects(&context));
    objects.extend(controller::objects(&context));
    for object in &mut objects {
        let digest = digest(&object.to_string());
        object["metadata"]["annotations"][APPLIED] = json!(digest);
    }
    Ok(objects)
}

/// The longest beginning of names: the name of a service is a DNS label, of at most 63 characters.
const PREFIX_BYTES_MAX: usize = 63 - "-controller".len();

/// The beginning of the names of all objects. That of a long name ends with its digest.
fn prefix(owner: &Owner) -> String {
    const DIGITS: usize = 10;
    let name = owner.name.replace('.', "-");
    if name.len() <= PREFIX_BYTES_MAX {
        return name;
    }
    let start: String = name.chars().take(PREFIX_BYTES_MAX - 1 - DIGITS).collect();
    let digest = digest(&owner.name);
    format!("{start}-{}", &digest[..DIGITS])
}

fn name(owner: &Owner, part: Part) -> String {
    format!("{}-{}", prefix(owner), part.as_str())
}

fn secret_name(owner: &Owner, part: Part) -> String {
    format!("{}-tls", name(owner, part))
}

/// The names of objects that are looked at by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The Deployment of the controllers.
    pub controller: String,
    /// The DaemonSet of the agents.
    pub agents: String,
    /// The secret of the controllers.
    pub controller_secret: String,
    /// The secret of the agents.
    pub agents_secret: String,
}

/// Returns the names of these objects of a deployment.
#[must_use]
pub fn names(owner: &Owner) -> Names {
    Names {
        controller: name(owner, Part::Controller),
        agents: name(owner, Part::Node),
        controller_secret: secret_name(owner, Part::Controller),
        agents_secret: secret_name(owner, Part::Node),
    }
}

/// Returns the host under which the API server and Kubernetes schedulers call a controller.
#[must_use]
pub fn controller_host(owner: &Owner, namespace: &str) -> String {
    format!("{}.{namespace}.svc", name(owner, Part::Controller))
}

/// The kinds of all objects, with their versions, and whether they are in a namespace.
pub const KINDS: [(&str, &str, bool); 12] = [
    ("v1", "ServiceAccount", true),
    ("v1", "Secret", true),
    ("v1", "ConfigMap", true),
    ("v1", "Service", true),
    ("apps/v1", "Deployment", true),
    ("apps/v1", "DaemonSet", true),
    ("rbac.authorization.k8s.io/v1", "Role", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", true),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", false),
    ("storage.k8s.io/v1", "CSIDriver", false),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        false,
    ),
];

/// Everything that an object depends on.
struct Context<'a> {
    owner: &'a Owner,
    spec: &'a BerthStorageSpec,
    facts: &'a Facts,
    schedulers: Vec<String>,
}

/// Which part an object belongs to.
#[derive(Clone, Copy)]
enum Part {
    Controller,
    Node,
}

impl Part {
    fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "node",
        }
    }
}

impl Context<'_> {
    /// The beginning of the names of all objects.
    fn prefix(&self) -> String {
        prefix(self.owner)
    }

    fn name(&self, part: Part) -> String {
        name(self.owner, part)
    }

    /// The labels by which the pods of a part are selected; a selector cannot be changed, so nothing of
    /// the spec is in it.
    fn selector(&self, part: Part) -> Value {
        json!({
            "app.kubernetes.io/instance": self.prefix(),
            "app.kubernetes.io/component": part.as_str(),
        })
    }

    /// The user's labels never replace the operator's own.
    fn labels(&self, part: Part) -> Value {
        let mut labels = json!(self.spec.labels);
        merge(&mut labels, &self.selector(part));
        labels["app.kubernetes.io/part-of"] = json!("berth");
        labels[MANAGED_BY.0] = json!(MANAGED_BY.1);
        labels
    }

    /// The labels of pods: the webhook must not be called for those that answer it.
    fn pod_labels(&self, part: Part) -> Value {
        let mut labels = self.labels(part);
        labels["pmem-csi.intel.com/webhook"] = json!("ignore");
        labels
    }

    /// Returns an object with its content, in the operator's namespace.
    fn namespaced(
        &self,
        version: &str,
        kind: &str,
        name: &str,
        part: Part,
        content: Value,
    ) -> Value {
        let mut object = self.cluster_scoped(version, kind, name, part, content);
        object["metadata"]["namespace"] = json!(self.facts.namespace);
        object
    }

    fn cluster_scoped(
        &self,
        version: &str,
        kind: &str,
        name: &str,
        part: Part,
        content: Value,
    ) -> Value {
        let mut object = json!({
            "apiVersion": version,
            "kind": kind,
            "metadata": {
                "name": name,
                "labels": self.labels(part),
                "annotations": {},
                "ownerReferences": [{
                    "apiVersion": self.owner.api_version,
                    "kind": self.owner.kind,
                    "name": self.owner.name,
                    "uid": self.owner.uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
        });
        merge(&mut object, &content);
        object
    }

    fn image(&self) -> &str {
        self.spec.image.as_deref().unwrap_or(&self.facts.image)
    }

    fn pull_policy(&self) -> &'static str {
        self.spec.image_pull_policy.as_str()
    }

    /// The lines of a program's configuration about its log.
    fn log_lines(&self) -> String {
        let filter = log_filter(self.spec.log_level);
        let format = match self.spec.log_format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        format!("log_format = \"{format}\"\nlog_filter = \"{filter}\"\n")
    }

    fn scheduler_line(&self) -> String {
        let quoted: Vec<String> = self.schedulers.iter().map(|text| quote(text)).collect();
        format!("schedulers = [{}]\n", quoted.join(", "))
    }
}

/// Kubernetes' numbers as a filter: 5 and more show what a developer needs.
fn log_filter(level: i32) -> &'static str {
    match level {
        ..=0 => "warn",
        1..=4 => "info",
        5..=6 => "debug",
        7.. => "trace",
    }
}

/// A string of TOML; its escapes include those of JSON.
fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

fn merge(into: &mut Value, from: &Value) {
    let empty = Map::new();
    for (key, value) in from.as_object().unwrap_or(&empty) {
        match &mut into[key] {
            slot if slot.is_object() && value.is_object() => merge(slot, value),
            slot => *slot = value.clone(),
        }
    }
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The content of a secret, by file.
fn secret<'a>(files: impl IntoIterator<Item = (String, &'a [u8])>) -> Value {
    let data = files
        .into_iter()
        .map(|(name, bytes)| (name, k8s_openapi::ByteString(bytes.to_vec())));
    let secret = Secret {
        data: Some(data.collect()),
        ..Secret::default()
    };
    json!({"type": "Opaque", "data": json!(secret)["data"]})
}

#[cfg(test)]
mod tests;
