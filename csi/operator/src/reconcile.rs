//! One pass over a deployment: observe its objects, plan, write.
//!
//! ```text
//!   LIST the operator's objects by kind, GET the desired ones that are not among them
//!     ─▶ plan ─▶ PATCH, DELETE
//! ```
//!
//! Objects are written by server-side apply with one field manager, so that a field which is not desired
//! any more disappears, and fields of other managers stay. An apply to an existing object is forced: a
//! conflicting edit is reverted. It names the object's identifier, and the API server refuses it if there is
//! another object or none. A creation is not forced: it conflicts with an object that has appeared since it
//! was looked for. POST would exclude that entirely, but its fields belong to another entry of the same
//! manager, and no later apply could remove them.
//!
//! All kinds are listed that the operator makes at all: a spec without a webhook has none of its kind, and
//! the one of before is obsolete.
//!
//! Not here: when a pass is made, and what comes after a failed one. It may be repeated at any time.
//!
//! Invariant: a pass over a deployment that is as desired makes no write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::desired::{KINDS, MANAGED_BY, Owner};
use crate::permit::Permit;
use crate::plan::{Key, Plan, Write, plan};
use crate::safety::{Ownership, ownership};

/// The name under which the operator owns fields.
pub const FIELD_MANAGER: &str = "berth-csi-operator";

/// The API server, as the operator reaches it.
#[derive(Clone)]
pub struct ApiServer {
    /// The connection.
    pub client: Client,
    /// How long a request may take: a server that hangs must not stop the operator for ever.
    pub deadline: Duration,
    /// Until when this operator may write.
    pub permit: Permit,
}

/// Why a pass ended early. What it wrote stays; the next pass goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a request, or could not be reached.
    #[error("failed to {verb} {kind} {name}")]
    Request {
        /// What was attempted.
        verb: &'static str,
        /// The kind of the object.
        kind: String,
        /// Its name; empty for a list.
        name: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not respond.
    #[error(
        "failed to {verb} {kind} {name}: no response in {deadline:?}; hint: check the load of the API server"
    )]
    Deadline {
        /// What was attempted.
        verb: &'static str,
        /// The kind of the object.
        kind: String,
        /// Its name; empty for a list.
        name: String,
        /// How long it could have taken.
        deadline: Duration,
    },
    /// Another operator may be active.
    #[error("this operator is not active any more: its lease was not renewed in time")]
    Inactive,
}

impl Error {
    /// Returns whether a repetition of the same request would fail again: it was refused for what it is.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Request { source, .. } => {
                let kube::Error::Api(status) = source.as_ref() else {
                    return false;
                };
                matches!(status.code, 400..=499) && !matches!(status.code, 404 | 408 | 409 | 429)
            }
            Self::Deadline { .. } | Self::Inactive => false,
        }
    }
}

/// What one pass did.
#[derive(Debug, PartialEq)]
pub struct Pass {
    /// What was planned; every write of it was made.
    pub plan: Plan,
    /// The objects as they were before the writes.
    pub live: BTreeMap<Key, Value>,
}

/// Makes the objects in the cluster the desired ones.
///
/// # Errors
///
/// With the first request that fails.
pub async fn reconcile(
    server: &ApiServer,
    owner: &Owner,
    desired: &[Value],
) -> Result<Pass, Error> {
    let live = observe(server, owner, desired).await?;
    let plan = plan(owner, desired, &live);
    for write in &plan.writes {
        make(server, write).await?;
    }
    Ok(Pass { plan, live })
}

/// Returns the objects with the desired keys, of any owner, and all others of the owner.
async fn observe(
    server: &ApiServer,
    owner: &Owner,
    desired: &[Value],
) -> Result<BTreeMap<Key, Value>, Error> {
    let mut live = BTreeMap::new();
    let keys: Vec<Key> = desired.iter().map(Key::of).collect();
    let managed = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    for key in lists(&keys) {
        let api = api(server, &key);
        let list = server.within("list", &key, "", api.list(&managed)).await?;
        for object in list {
            let mut object = json!(object);
            // The elements of a list have neither.
            object["apiVersion"] = json!(key.api_version);
            object["kind"] = json!(key.kind);
            if matches!(ownership(Some(&object), owner), Ownership::Own { .. }) {
                live.insert(Key::of(&object), object);
            }
        }
    }
    let listed: BTreeSet<Key> = live.keys().cloned().collect();
    for key in keys.iter().filter(|key| !listed.contains(key)) {
        // Of another owner, or without the label.
        let object = server
            .within("get", key, &key.name, api(server, key).get_opt(&key.name))
            .await?;
        if let Some(object) = object {
            live.insert(key.clone(), json!(object));
        }
    }
    Ok(live)
}

/// Returns all kinds of objects, in the namespaces of these keys, as keys without a name.
fn lists(keys: &[Key]) -> Vec<Key> {
    let namespaces: BTreeSet<&str> = keys.iter().map(|key| key.namespace.as_str()).collect();
    let mut lists = Vec::new();
    for (api_version, kind, is_namespaced) in KINDS {
        for namespace in &namespaces {
            if namespace.is_empty() != is_namespaced {
                lists.push(Key {
                    api_version: api_version.to_owned(),
                    kind: kind.to_owned(),
                    namespace: (*namespace).to_owned(),
                    name: String::new(),
                });
            }
        }
    }
    lists
}

pub(crate) async fn make(server: &ApiServer, write: &Write) -> Result<(), Error> {
    server.expect_active()?;
    let params = PatchParams::apply(FIELD_MANAGER).validation_strict();
    match write {
        Write::Create(object) => apply(server, object.clone(), &params).await,
        Write::Apply { object, uid } => {
            let mut object = object.clone();
            object["metadata"]["uid"] = json!(uid);
            apply(server, object, &params.force()).await
        }
        Write::Delete { key, uid } => {
            let params = DeleteParams::background().preconditions(Preconditions {
                uid: Some(uid.clone()),
                resource_version: None,
            });
            let api = api(server, key);
            server
                .within("delete", key, &key.name, api.delete(&key.name, &params))
                .await?;
            tracing::info!(kind = key.kind, name = key.name, "deleted");
            Ok(())
        }
    }
}

async fn apply(server: &ApiServer, object: Value, params: &PatchParams) -> Result<(), Error> {
    let key = Key::of(&object);
    let patch = Patch::Apply(&object);
    let api = api(server, &key);
    server
        .within(
            "apply",
            &key,
            &key.name,
            api.patch(&key.name, params, &patch),
        )
        .await?;
    tracing::info!(kind = key.kind, name = key.name, "applied");
    Ok(())
}

pub(crate) fn api(server: &ApiServer, key: &Key) -> Api<DynamicObject> {
    let (group, version) = key
        .api_version
        .split_once('/')
        .unwrap_or(("", &key.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &key.kind));
    match key.namespace.as_str() {
        "" => Api::all_with(server.client.clone(), &resource),
        namespace => Api::namespaced_with(server.client.clone(), namespace, &resource),
    }
}

impl ApiServer {
    /// Checks that this operator may write.
    pub(crate) fn expect_active(&self) -> Result<(), Error> {
        match self.permit.is_valid() {
            true => Ok(()),
            false => Err(Error::Inactive),
        }
    }

    /// Waits for a response, at most as long as the deadline.
    pub(crate) async fn within<T>(
        &self,
        verb: &'static str,
        key: &Key,
        name: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let (kind, name) = (key.kind.clone(), name.to_owned());
        match tokio::time::timeout(self.deadline, request).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(source)) => Err(Error::Request {
                verb,
                kind,
                name,
                source: Box::new(source),
            }),
            Err(_) => Err(Error::Deadline {
                verb,
                kind,
                name,
                deadline: self.deadline,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
