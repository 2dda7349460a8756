//! The watches that say when a pass is needed.
//!
//! | watched | a change needs a pass over |
//! |---|---|
//! | the three kinds of resources | that resource, and all others: their selectors may overlap |
//! | the operator's objects of all kinds | the resource that owns the object |
//! | labels of nodes | all resources |
//! | the secret of the authority | all resources |
//!
//! Objects in watches are not used for anything else. A watch that fails, or that the API server does not
//! serve yet, is repeated with backoff; when it begins again, everything that it has needs a pass.
//!
//! Invariant: no change is lost: a watch goes on where it ended, or begins from a new list.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;

use crate::backoff;
use crate::certificates::AUTHORITY;
use crate::cluster::resources_api;
use crate::desired::{KINDS, MANAGED_BY};
use crate::plan::Key;
use crate::reconcile::{ApiServer, api};
use crate::resource::{Kind, Request};

/// What needs a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// This resource.
    One(Request),
    /// All resources.
    All,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It is there, as it was before or not.
    Applied,
    /// It is not there any more.
    Deleted,
}

/// How long one call of a watch lasts, in seconds. A connection that is cut without notice is recognized
/// some seconds later.
const CALL_SECONDS: u32 = 60;

/// Starts all watches; they end with the set.
pub fn start(
    tasks: &mut JoinSet<()>,
    server: &ApiServer,
    namespace: &str,
    triggers: &Sender<Trigger>,
) {
    let config = watcher::Config::default().timeout(CALL_SECONDS);
    for kind in Kind::ALL {
        let to_triggers = move |object: &DynamicObject, _| {
            let name = object.name_any();
            vec![Trigger::One(Request { kind, name }), Trigger::All]
        };
        let api = resources_api(server, kind);
        let name = kind.as_str();
        tasks.spawn(follow(
            name,
            api,
            config.clone(),
            triggers.clone(),
            to_triggers,
        ));
    }
    let managed = config.clone();
    let managed = managed.labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    for (api_version, kind, is_namespaced) in KINDS {
        let key = Key {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: match is_namespaced {
                true => namespace.to_owned(),
                false => String::new(),
            },
            name: String::new(),
        };
        let api = api(server, &key);
        tasks.spawn(follow(
            kind,
            api,
            managed.clone(),
            triggers.clone(),
            |object, _| vec![Request::of_owner(&json!(object)).map_or(Trigger::All, Trigger::One)],
        ));
    }
    let api: Api<Secret> = Api::namespaced(server.client.clone(), namespace);
    let authority = config.clone().fields(&format!("metadata.name={AUTHORITY}"));
    tasks.spawn(follow(
        "Secret",
        api,
        authority,
        triggers.clone(),
        |_, _| vec![Trigger::All],
    ));
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(server.client.clone());
    let mut labels = Labels::default();
    let to_triggers = move |node: &PartialObjectMeta<Node>, change| labels.record(node, change);
    tasks.spawn(follow("Node", nodes, config, triggers.clone(), to_triggers));
}

/// The labels of nodes: nodes change all the time, and their labels hardly ever.
#[derive(Default)]
struct Labels {
    known: BTreeMap<String, BTreeMap<String, String>>,
}

impl Labels {
    fn record(&mut self, node: &PartialObjectMeta<Node>, change: Change) -> Vec<Trigger> {
        let name = node.name_any();
        let before = match change {
            Change::Applied => self.known.insert(name, node.labels().clone()),
            Change::Deleted => {
                self.known.remove(&name);
                None
            }
        };
        match before.as_ref() == Some(node.labels()) {
            true => Vec::new(),
            false => vec![Trigger::All],
        }
    }
}

/// Follows one watch for ever.
async fn follow<K, F>(
    kind: &'static str,
    api: Api<K>,
    config: watcher::Config,
    triggers: Sender<Trigger>,
    mut to_triggers: F,
) where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
    F: FnMut(&K, Change) -> Vec<Trigger>,
{
    let mut events = pin!(watcher(api, config));
    let mut failures = 0;
    while let Some(event) = events.next().await {
        let needed = match event {
            Ok(Event::Init) => Vec::new(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                to_triggers(&object, Change::Applied)
            }
            Ok(Event::Delete(object)) => to_triggers(&object, Change::Deleted),
            Ok(Event::InitDone) => {
                if failures > 0 {
                    tracing::info!(kind, "the watch works again");
                }
                failures = 0;
                // What was deleted meanwhile is in no event.
                vec![Trigger::All]
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    let why = berth_process::error_chain(&error);
                    tracing::warn!(kind, error = why, "a watch failed, and is repeated");
                }
                tokio::time::sleep(pause(&error, failures)).await;
                continue;
            }
        };
        for trigger in needed {
            if triggers.send(trigger).await.is_err() {
                return;
            }
        }
    }
}

/// An outdated position is no fault of the server: a new list follows at once.
fn pause(error: &watcher::Error, failures: u32) -> Duration {
    let watcher::Error::WatchError(status) = error else {
        return backoff::delay(failures, rand::random());
    };
    match status.code {
        410 => Duration::ZERO,
        _ => backoff::delay(failures, rand::random()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a heartbeat of a node needs no pass, and each change of what selectors see needs one.
    #[test]
    fn only_labels_of_nodes_count() {
        let node = |labels: &[(&str, &str)]| -> PartialObjectMeta<Node> {
            let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
            serde_json::from_value(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "n1", "labels": labels},
            }))
            .expect("metadata")
        };
        let (plain, labelled) = (node(&[]), node(&[("storage", "pmem")]));
        let mut labels = Labels::default();
        let mut needs_pass = |node, change| !labels.record(node, change).is_empty();
        assert!(needs_pass(&plain, Change::Applied));
        assert!(!needs_pass(&plain, Change::Applied));
        assert!(needs_pass(&labelled, Change::Applied));
        assert!(!needs_pass(&labelled, Change::Applied));
        assert!(needs_pass(&labelled, Change::Deleted));
        assert!(needs_pass(&labelled, Change::Applied));
    }
}
