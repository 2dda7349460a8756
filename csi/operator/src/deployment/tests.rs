//! Goal: a pass makes what is missing and reports what is true, writes nothing where nothing differs, and
//! leaves everything as it is where it refuses. Method: passes against the server of
//! [`crate::fake_server`] and schedulers of which the responses are in the cache.

mod recorded;
mod restarts;
mod upgrades;

use std::sync::OnceLock;

use axum::http::Method;
use berth_tls::authority;
use k8s_openapi::ByteString;
use serde_json::json;

use super::*;
use crate::fake_server::{Fault, Shared, start};
use crate::resource::Kind;
use crate::status::Phase;

const RESOURCE: &str = "/apis/berth.internal/v1alpha1/berthstorages/d.example";
const AGENTS: &str = "/apis/apps/v1/namespaces/berth/daemonsets/d-example-node";
const CONTROLLER: &str = "/apis/apps/v1/namespaces/berth/deployments/d-example-controller";

struct Case {
    store: Shared,
    operator: Operator,
}

fn request(name: &str) -> Request {
    Request {
        kind: Kind::BerthStorage,
        name: name.to_owned(),
    }
}

/// The authority, as its secret has it.
fn authority() -> Value {
    static MADE: OnceLock<Value> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().expect("a folder");
        let pair = authority::init(folder.path(), "test", 30).expect("an authority");
        let read = |path| ByteString(std::fs::read(path).expect("a file"));
        json!({
            "kind": "Secret", "apiVersion": "v1",
            "metadata": {"name": AUTHORITY, "namespace": "berth", "uid": "a"},
            "data": {"ca.pem": read(&pair.cert), "ca-key.pem": read(&pair.key)},
        })
    };
    MADE.get_or_init(make).clone()
}

/// A cluster with one selected node, the authority and one resource.
async fn case() -> Case {
    let (store, server) = start().await;
    let node = json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": "n1", "uid": "n", "labels": {"storage": "pmem"}},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    });
    let case = Case {
        store,
        operator: Operator {
            server,
            settings: Settings {
                namespace: "berth".to_owned(),
                image: "berth:0.1.0".to_owned(),
                schedulers: vec!["127.0.0.1:1".to_owned()],
                validity: Duration::from_secs(86_400),
            },
            schedulers: Schedulers::new(None),
            cache: Cache::default(),
            metrics: Metrics::default(),
        },
    };
    case.put(
        &format!("/api/v1/namespaces/berth/secrets/{AUTHORITY}"),
        authority(),
    );
    case.put("/api/v1/nodes/n1", node);
    case.put(RESOURCE, resource("d.example", "u1"));
    case
}

fn resource(name: &str, uid: &str) -> Value {
    json!({
        "kind": "BerthStorage", "apiVersion": "berth.internal/v1alpha1",
        "metadata": {"name": name, "uid": uid, "generation": 1, "resourceVersion": "r0",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
    })
}

impl Case {
    fn put(&self, path: &str, object: Value) {
        let mut store = self.store.lock().expect("not poisoned");
        store.objects.insert(path.to_owned(), object);
    }

    fn edit(&self, path: &str, edit: impl FnOnce(&mut Value)) {
        let mut store = self.store.lock().expect("not poisoned");
        edit(store.objects.get_mut(path).expect("it exists"));
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.store
            .lock()
            .expect("not poisoned")
            .objects
            .get(path)
            .cloned()
    }

    /// Makes a pass; returns its outcome and the writes.
    async fn pass(&self, name: &str) -> (Outcome, Vec<(Method, String)>) {
        self.store.lock().expect("not poisoned").log.clear();
        let outcome = self.operator.pass(&request(name)).await.expect("a pass");
        (outcome, self.store.lock().expect("not poisoned").writes())
    }

    fn status(&self, path: &str) -> (Phase, String) {
        let object = self.get(path).expect("it exists");
        let status: Status = serde_json::from_value(object["status"].clone()).expect("a status");
        (status.phase, status.reason)
    }

    fn events(&self) -> Vec<String> {
        let store = self.store.lock().expect("not poisoned");
        let events = store
            .objects
            .iter()
            .filter(|(path, _)| path.contains("/events/"));
        let mut reasons: Vec<String> = events
            .map(|(_, event)| event["reason"].as_str().expect("text").to_owned())
            .collect();
        reasons.sort_unstable();
        reasons
    }

    fn register(&self, hosts: &[&str]) {
        let addresses = &self.operator.settings.schedulers;
        let inventory = Inventory {
            hosts: crate::upgrade::Hosts {
                up: hosts.iter().map(ToString::to_string).collect(),
                ..crate::upgrade::Hosts::default()
            },
            volumes: Vec::new(),
        };
        self.operator.cache.get(addresses);
        self.operator.cache.put(addresses, Ok(inventory));
    }

    fn make_ready(&self) {
        self.edit(AGENTS, |object| {
            object["status"] = json!({"observedGeneration": 1, "desiredNumberScheduled": 1,
                "numberReady": 1, "updatedNumberScheduled": 1});
        });
        self.edit(CONTROLLER, |object| {
            object["status"] = json!({"observedGeneration": 1, "readyReplicas": 1,
                "updatedReplicas": 1});
        });
    }
}

use crate::status::Status;

#[tokio::test]
async fn a_deployment_runs_when_pods_and_hosts_are_there() {
    let case = case().await;
    let (outcome, writes) = case.pass("d.example").await;
    // The finalizer, 15 objects, an event and the status.
    assert_eq!((outcome, writes.len()), (Outcome::Wrote, 18), "{writes:?}");
    assert_eq!(case.status(RESOURCE).0, Phase::Initializing);
    assert_eq!(case.events(), ["NewDeployment"]);
    let (outcome, writes) = case.pass("d.example").await;
    assert_eq!(outcome, Outcome::Clean);
    // The status says now that pods are not counted for another reason, or is the same.
    assert!(writes.len() <= 1, "{writes:?}");
    assert_eq!(case.pass("d.example").await, (Outcome::Clean, vec![]));
    case.make_ready();
    case.pass("d.example").await;
    let (phase, reason) = case.status(RESOURCE);
    assert_eq!(
        (phase, reason.as_str()),
        (Phase::Initializing, "the schedulers have not responded yet")
    );
    case.register(&[]);
    case.pass("d.example").await;
    assert!(
        case.status(RESOURCE)
            .1
            .contains("nodes without a registered host: n1")
    );
    case.register(&["n1"]);
    case.pass("d.example").await;
    assert_eq!(case.status(RESOURCE).0, Phase::Running);
    assert_eq!(case.events(), ["NewDeployment", "Running"]);
    assert_eq!(case.pass("d.example").await, (Outcome::Clean, vec![]));
    case.edit(AGENTS, |object| object["metadata"]["generation"] = json!(2));
    case.pass("d.example").await;
    assert!(
        case.status(RESOURCE)
            .1
            .contains("have not been counted yet")
    );
}

/// Goal: of a refused deployment nothing is changed, and one event says why however often it is tried.
#[tokio::test]
async fn what_is_refused_is_reported_once() {
    let case = case().await;
    case.edit(RESOURCE, |object| {
        object["spec"] = json!({"maxUnavailable": {}})
    });
    let (outcome, writes) = case.pass("d.example").await;
    assert_eq!((outcome, writes.len()), (Outcome::Failed, 2), "{writes:?}");
    let (phase, reason) = case.status(RESOURCE);
    assert!(
        phase == Phase::Failed && reason.contains("the spec is invalid"),
        "{reason}"
    );
    assert_eq!(case.pass("d.example").await, (Outcome::Failed, vec![]));
    assert_eq!(case.events(), ["Failed"]);
    case.edit(RESOURCE, |object| {
        object["spec"] = json!({"maxUnavailable": 0})
    });
    let (outcome, writes) = case.pass("d.example").await;
    assert_eq!((outcome, writes.len()), (Outcome::Failed, 2), "{writes:?}");
    let (_, reason) = case.status(RESOURCE);
    assert!(reason.contains("maxUnavailable is 0; hint: "), "{reason}");
}

#[tokio::test]
async fn without_an_authority_the_certificates_are_the_fault() {
    let case = case().await;
    let secret = format!("/api/v1/namespaces/berth/secrets/{AUTHORITY}");
    case.store
        .lock()
        .expect("not poisoned")
        .objects
        .remove(&secret);
    let (outcome, _) = case.pass("d.example").await;
    assert_eq!(outcome, Outcome::Failed);
    let object = case.get(RESOURCE).expect("it exists");
    let conditions = &object["status"]["conditions"];
    assert_eq!(
        (&conditions[0]["type"], &conditions[0]["status"]),
        (&json!("CertsReady"), &json!("False"))
    );
    assert!(case.get(AGENTS).is_none() && object["metadata"]["finalizers"].is_null());
}

#[tokio::test]
async fn the_later_of_two_on_one_node_is_refused() {
    let case = case().await;
    let path = "/apis/berth.internal/v1alpha1/berthstorages/e.example";
    case.put(path, resource("e.example", "u2"));
    case.pass("d.example").await;
    assert_eq!(case.status(RESOURCE).0, Phase::Initializing);
    case.pass("e.example").await;
    let (phase, reason) = case.status(path);
    assert!(
        phase == Phase::Failed
            && reason.contains("BerthStorage d.example selects the same nodes: n1")
    );
    case.edit(path, |object| {
        object["spec"] = json!({"nodeSelector": {"storage": "other"}})
    });
    case.pass("e.example").await;
    assert_eq!(case.status(path).0, Phase::Initializing);
}

/// Goal: while it is not known whether volumes would be stranded, agents and resource stay.
#[tokio::test]
async fn unreachable_schedulers_keep_what_could_strand_volumes() {
    let case = case().await;
    case.pass("d.example").await;
    case.edit(RESOURCE, |object| {
        object["spec"] = json!({"deviceMode": "direct"})
    });
    case.pass("d.example").await;
    let (phase, reason) = case.status(RESOURCE);
    assert!(
        phase == Phase::Failed && reason.contains("is not known"),
        "{reason}"
    );
    assert_eq!(
        case.get(AGENTS).expect("agents")["metadata"]["annotations"][DEVICE_MODE],
        "lvm"
    );
    case.edit(RESOURCE, |object| {
        object["spec"] = json!({});
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    });
    let (outcome, _) = case.pass("d.example").await;
    assert_eq!(outcome, Outcome::Waits(DELETION_INTERVAL));
    assert!(
        case.status(RESOURCE)
            .1
            .contains("the deletion waits to know")
    );
    // The agents are maintained meanwhile.
    case.store
        .lock()
        .expect("not poisoned")
        .objects
        .remove(AGENTS);
    case.edit(RESOURCE, |object| {
        object["metadata"]["annotations"] = json!({DELETE_WITH_VOLUMES: "true"})
    });
    let (outcome, writes) = case.pass("d.example").await;
    assert_eq!((outcome, writes.len()), (Outcome::Wrote, 1), "{writes:?}");
    assert_eq!(
        case.get(RESOURCE).expect("it exists")["metadata"]["finalizers"],
        json!([])
    );
    assert_eq!(case.pass("d.example").await, (Outcome::Clean, vec![]));
    case.store
        .lock()
        .expect("not poisoned")
        .objects
        .remove(RESOURCE);
    assert_eq!(case.pass("d.example").await, (Outcome::Gone, vec![]));
}

/// Goal: what a person writes into the annotations of the agents is reverted, or refused with what to do,
/// which helps. Method: each of the two annotations edited, and both.
#[tokio::test]
async fn edited_annotations_of_the_agents_are_reverted_or_explained() {
    let mut case = case().await;
    let (_scheduler, address) = crate::fake_scheduler::start().await;
    case.operator.settings.schedulers = vec![address.clone()];
    case.pass("d.example").await;
    let right = |case: &Case| case.get(AGENTS).expect("agents")["metadata"]["annotations"].clone();
    let before = right(&case);
    let edits: [&[(&str, &str)]; 3] = [
        &[(SCHEDULERS, "127.0.0.1:1")],
        &[(DEVICE_MODE, "direct")],
        &[(SCHEDULERS, "127.0.0.1:1"), (DEVICE_MODE, "direct")],
    ];
    for edit in edits {
        case.edit(AGENTS, |agents| {
            for (key, value) in edit {
                agents["metadata"]["annotations"][*key] = json!(value);
            }
        });
        case.pass("d.example").await;
        let (phase, reason) = case.status(RESOURCE);
        assert_eq!(phase == Phase::Failed, edit.len() == 2, "{reason}");
        if phase == Phase::Failed {
            let remedy =
                format!("kubectl -n berth annotate daemonset d-example-node {SCHEDULERS}-");
            assert!(reason.ends_with(&remedy), "{reason}");
            case.edit(AGENTS, |agents| {
                let annotations = agents["metadata"]["annotations"].as_object_mut();
                annotations.expect("annotations").remove(SCHEDULERS);
            });
            case.pass("d.example").await;
        }
        assert_eq!(right(&case), before, "{edit:?}");
        assert_ne!(case.status(RESOURCE).0, Phase::Failed);
    }
}

/// Goal: neither a change of the schedulers nor a deletion after one loses volumes, and addresses of the same
/// cluster, or those of a cluster that never responded, are corrected.
#[tokio::test]
async fn other_schedulers_have_to_know_the_volumes() {
    use crate::fake_scheduler::{start, volume};
    use berth_proto::volume::v1::ReplicaPhase;

    let mut case = case().await;
    case.pass("d.example").await;
    let annotation = |case: &Case| {
        case.get(AGENTS).expect("agents")["metadata"]["annotations"][SCHEDULERS].clone()
    };
    assert_eq!(annotation(&case), "127.0.0.1:1");
    let ((old, old_address), (new, new_address)) = (start().await, start().await);
    let kept = || vec![volume("kept", "n1", ReplicaPhase::Ready)];
    old.lock().expect("not poisoned").volumes = kept();
    case.operator.settings.schedulers = vec![old_address.clone()];
    case.pass("d.example").await;
    assert_eq!(annotation(&case), json!(old_address));
    case.operator.settings.schedulers = vec![new_address.clone()];
    let (outcome, _) = case.pass("d.example").await;
    let (phase, reason) = case.status(RESOURCE);
    assert_eq!((outcome, phase), (Outcome::Failed, Phase::Failed));
    assert!(
        reason.contains("does not know these volumes: kept on n1"),
        "{reason}"
    );
    assert_eq!(annotation(&case), json!(old_address));
    case.edit(RESOURCE, |object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    });
    let (outcome, _) = case.pass("d.example").await;
    assert_eq!(outcome, Outcome::Waits(DELETION_INTERVAL));
    let (_, reason) = case.status(RESOURCE);
    assert!(
        reason.contains("the deletion waits for volumes: kept"),
        "{reason}"
    );
    case.edit(RESOURCE, |object| {
        object["metadata"]["deletionTimestamp"] = Value::Null;
    });
    case.operator.settings.schedulers = vec![new_address.clone(), old_address];
    case.pass("d.example").await;
    case.operator.settings.schedulers = vec![new_address.clone()];
    case.pass("d.example").await;
    assert_eq!(annotation(&case), json!(new_address));
    new.lock().expect("not poisoned").volumes = kept();
    let (third, third_address) = start().await;
    third.lock().expect("not poisoned").volumes = kept();
    case.operator.settings.schedulers = vec![third_address.clone()];
    case.pass("d.example").await;
    assert_eq!(annotation(&case), json!(third_address));
}

#[tokio::test]
async fn other_finalizers_are_kept() {
    let case = case().await;
    case.edit(RESOURCE, |object| {
        object["metadata"]["finalizers"] = json!(["other"])
    });
    case.pass("d.example").await;
    let finalizers =
        |case: &Case| case.get(RESOURCE).expect("it")["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(&case), json!(["other", FINALIZER]));
    case.edit(RESOURCE, |object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        object["metadata"]["annotations"] = json!({DELETE_WITH_VOLUMES: "true"});
    });
    case.pass("d.example").await;
    assert_eq!(finalizers(&case), json!(["other"]));
}

/// Goal: agents that were deleted may have served any node, except those of other deployments.
#[tokio::test]
async fn deleted_agents_may_have_served_any_node() {
    let case = case().await;
    let node = |name: &str, label: &str| {
        json!({"kind": "Node", "apiVersion": "v1",
            "metadata": {"name": name, "uid": name, "labels": {"storage": label}}})
    };
    case.put("/api/v1/nodes/n2", node("n2", "other"));
    case.put("/api/v1/nodes/n3", node("n3", "third"));
    let other = "/apis/berth.internal/v1alpha1/berthstorages/e.example";
    case.put(other, resource("e.example", "u2"));
    case.edit(other, |object| {
        object["spec"] = json!({"nodeSelector": {"storage": "other"}})
    });
    case.pass("d.example").await;
    let server = &case.operator.server;
    let resources = cluster::resources(server).await.expect("resources");
    let own = resources
        .iter()
        .find(|one| one.owner.name == "d.example")
        .expect("it is listed");
    let served = || async {
        case.operator
            .served_nodes(own, &resources)
            .await
            .expect("nodes")
    };
    assert_eq!(served().await, BTreeSet::from(["n1".to_owned()]));
    case.store
        .lock()
        .expect("not poisoned")
        .objects
        .remove(AGENTS);
    assert_eq!(
        served().await,
        BTreeSet::from(["n1".to_owned(), "n3".to_owned()])
    );
}

/// Goal: whichever request of a whole pass fails, and however, the passes after it finish, no object is
/// created twice, and no event is there twice.
#[tokio::test]
async fn any_failed_request_is_survived() {
    let first = case().await;
    first.pass("d.example").await;
    let requests = first.store.lock().expect("not poisoned").log.len();
    let faults = [Fault::Refused(403), Fault::Refused(409), Fault::Lost];
    for fault in faults {
        for at in 0..requests {
            let case = case().await;
            case.store.lock().expect("not poisoned").fault = Some((at, fault));
            // A lasting refusal is reported, and the pass is none that failed.
            let _ = case.operator.pass(&request("d.example")).await;
            case.store.lock().expect("not poisoned").fault = None;
            for _ in 0..3 {
                case.operator
                    .pass(&request("d.example"))
                    .await
                    .expect("a pass");
            }
            assert_eq!(
                case.pass("d.example").await,
                (Outcome::Clean, vec![]),
                "{fault:?} at {at}"
            );
            assert_eq!(
                case.status(RESOURCE).0,
                Phase::Initializing,
                "{fault:?} at {at}"
            );
            let store = case.store.lock().expect("not poisoned");
            let twice: Vec<_> = store
                .created
                .iter()
                .filter(|(_, times)| **times != 1)
                .collect();
            assert!(twice.is_empty(), "{fault:?} at {at}: {twice:?}");
        }
    }
}

/// Goal: a kind that the API server does not serve hides no other one, and what it had is left as it is.
#[tokio::test]
async fn a_kind_that_is_not_served_has_no_resources() {
    for (index, expected) in [Outcome::Wrote, Outcome::Wrote, Outcome::Gone]
        .into_iter()
        .enumerate()
    {
        let case = case().await;
        case.store.lock().expect("not poisoned").fault = Some((index, Fault::Refused(404)));
        let (outcome, writes) = case.pass("d.example").await;
        assert_eq!(
            outcome,
            expected,
            "{} is not served",
            Kind::ALL[index].as_str()
        );
        assert_eq!(writes.is_empty(), outcome == Outcome::Gone);
    }
}

/// Goal: an operator that is not active any more writes nothing.
#[tokio::test]
async fn without_a_permit_nothing_is_written() {
    let mut case = case().await;
    case.operator.server.permit = crate::permit::Permit::new();
    let error = case.operator.pass(&request("d.example")).await;
    assert!(matches!(error, Err(Error::Inactive)));
    assert!(case.store.lock().expect("not poisoned").writes().is_empty());
}

#[test]
fn pods_are_counted_for_the_newest_template_alone() {
    let agents = |observed: i64, updated: i64| {
        agent_pods(&json!({"metadata": {"generation": 2}, "status": {
            "observedGeneration": observed, "desiredNumberScheduled": 3, "numberReady": 3,
            "updatedNumberScheduled": updated}}))
    };
    assert_eq!(
        agents(2, 1),
        Pods {
            ready: 1,
            desired: Some(3)
        }
    );
    assert_eq!(agents(1, 3).desired, None);
    let controllers = |observed: i64| {
        controller_pods(
            &json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": {
            "observedGeneration": observed, "readyReplicas": 2, "updatedReplicas": 1}}),
        )
    };
    assert_eq!(
        controllers(2),
        Pods {
            ready: 1,
            desired: Some(2)
        }
    );
    assert_eq!(controllers(1).desired, None);
    assert_eq!(agent_pods(&json!({})), Pods::default());
}
