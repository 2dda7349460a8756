//! Goal: agents of an older revision are replaced one after the other, and none while its node makes or
//! erases a volume. Method: pods, revisions and counts as the controllers of Kubernetes make them, in the
//! server of [`crate::fake_server`]; volumes in a scheduler that only lists.

use berth_proto::volume::v1::ReplicaPhase;

use super::*;
use crate::fake_scheduler::{self, host, volume};

const PODS: &str = "/api/v1/namespaces/berth/pods";
const REVISIONS: &str = "/apis/apps/v1/namespaces/berth/controllerrevisions";

struct Upgrade {
    case: Case,
    scheduler: fake_scheduler::Shared,
}

/// An object that the DaemonSet controls.
fn owned(kind: &str, name: &str, revision: &str) -> Value {
    json!({
        "kind": kind,
        "metadata": {
            "name": name, "uid": format!("{name}-{revision}"),
            "labels": {
                "app.kubernetes.io/instance": "d-example",
                "app.kubernetes.io/component": "node",
                "controller-revision-hash": revision,
            },
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": true,
                "name": "d-example-node", "uid": format!("{AGENTS}#1")}],
        },
    })
}

impl Upgrade {
    /// A deployment with an agent on each of two nodes, both of an older revision.
    async fn begin() -> Self {
        let mut case = case().await;
        let node = json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {"name": "n2", "uid": "n2", "labels": {"storage": "pmem"}},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]},
        });
        case.put("/api/v1/nodes/n2", node);
        let (scheduler, address) = fake_scheduler::start().await;
        scheduler.lock().expect("not poisoned").hosts = vec![host("n1"), host("n2")];
        case.operator.settings.schedulers = vec![address];
        case.pass("d.example").await;
        case.register(&["n1", "n2"]);
        let upgrade = Self { case, scheduler };
        for (number, hash) in [(1, "old"), (2, "new")] {
            let mut revision = owned(
                "ControllerRevision",
                &format!("d-example-node-{hash}"),
                hash,
            );
            revision["revision"] = json!(number);
            upgrade
                .case
                .put(&format!("{REVISIONS}/d-example-node-{hash}"), revision);
        }
        for node in ["n1", "n2"] {
            upgrade.start("old", node);
        }
        upgrade.count();
        upgrade
    }

    /// Kubernetes makes a pod, and it becomes ready.
    fn start(&self, revision: &str, node: &str) {
        let mut pod = owned("Pod", node, revision);
        pod["spec"] = json!({"nodeName": node});
        pod["status"] =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        self.case.put(&format!("{PODS}/{node}"), pod);
        self.count();
    }

    /// Kubernetes counts the pods.
    fn count(&self) {
        let count = |revision: Option<&str>| {
            let store = self.case.store.lock().expect("not poisoned");
            let pods = store
                .objects
                .iter()
                .filter(|(path, _)| path.starts_with(PODS));
            let hash = |pod: &Value| pod["metadata"]["labels"]["controller-revision-hash"].clone();
            pods.filter(|(_, pod)| revision.is_none_or(|one| hash(pod) == one))
                .count()
        };
        let (all, updated) = (count(None), count(Some("new")));
        self.case.edit(AGENTS, |object| {
            object["status"] = json!({"observedGeneration": 1, "desiredNumberScheduled": 2,
                "numberReady": all, "numberAvailable": all, "updatedNumberScheduled": updated});
        });
        self.case.edit(CONTROLLER, |object| {
            object["status"] = json!({"observedGeneration": 1, "readyReplicas": 1,
                "updatedReplicas": 1});
        });
    }

    fn set_volumes(&self, volumes: &[(&str, &str, ReplicaPhase)]) {
        let volumes = volumes
            .iter()
            .map(|(name, host, phase)| volume(name, host, *phase));
        self.scheduler.lock().expect("not poisoned").volumes = volumes.collect();
    }

    /// Makes a pass; returns its outcome and the pods that it deleted.
    async fn pass(&self) -> (Outcome, Vec<String>) {
        let (outcome, writes) = self.case.pass("d.example").await;
        let pods = writes
            .into_iter()
            .filter(|(method, _)| method == Method::DELETE);
        (outcome, pods.map(|(_, name)| name).collect())
    }

    fn reason(&self) -> String {
        self.case.status(RESOURCE).1
    }
}

fn waits() -> Outcome {
    Outcome::Waits(UPGRADE_INTERVAL)
}

#[tokio::test]
async fn agents_are_replaced_one_by_one_around_the_volumes() {
    let upgrade = Upgrade::begin().await;
    upgrade.set_volumes(&[
        ("made", "n1", ReplicaPhase::Creating),
        ("kept", "n2", ReplicaPhase::Ready),
    ]);
    assert_eq!(
        upgrade.pass().await,
        (Outcome::Wrote, vec!["n2".to_owned()])
    );
    upgrade.count();
    assert_eq!(upgrade.pass().await, (waits(), vec![]));
    assert!(
        upgrade.reason().contains("n1 (made)"),
        "{}",
        upgrade.reason()
    );
    // A pass that waits writes nothing.
    assert_eq!(upgrade.case.pass("d.example").await, (waits(), vec![]));
    upgrade.start("new", "n2");
    upgrade.set_volumes(&[("gone", "n1", ReplicaPhase::Deleting)]);
    assert_eq!(upgrade.pass().await, (waits(), vec![]));
    assert!(
        upgrade.reason().contains("n1 (gone)"),
        "{}",
        upgrade.reason()
    );
    upgrade.set_volumes(&[("other", "n2", ReplicaPhase::Creating)]);
    assert_eq!(
        upgrade.pass().await,
        (Outcome::Wrote, vec!["n1".to_owned()])
    );
    upgrade.start("new", "n1");
    assert_eq!(upgrade.pass().await, (Outcome::Clean, vec![]));
    assert_eq!(upgrade.case.status(RESOURCE).0, Phase::Running);
    // A node without a pod is nothing to ask the schedulers about.
    let reads = upgrade.scheduler.lock().expect("not poisoned").reads;
    let removed = upgrade.case.get(&format!("{PODS}/n1")).expect("a pod");
    let objects = || upgrade.case.store.lock().expect("not poisoned");
    objects().objects.remove(&format!("{PODS}/n1"));
    upgrade.count();
    assert_eq!(upgrade.pass().await, (Outcome::Clean, vec![]));
    assert_eq!(upgrade.scheduler.lock().expect("not poisoned").reads, reads);
    upgrade.case.put(&format!("{PODS}/n1"), removed);
    upgrade.count();
    upgrade.pass().await;
    // Without an agent of an older revision neither pods nor schedulers are read.
    assert_eq!(
        upgrade.case.pass("d.example").await,
        (Outcome::Clean, vec![])
    );
    let store = upgrade.case.store.lock().expect("not poisoned");
    assert!(
        store
            .log
            .iter()
            .all(|(_, path, _)| path != PODS && path != REVISIONS)
    );
    assert_eq!(upgrade.scheduler.lock().expect("not poisoned").reads, reads);
}

#[tokio::test]
async fn a_second_agent_waits_until_the_first_is_back() {
    let upgrade = Upgrade::begin().await;
    assert_eq!(
        upgrade.pass().await,
        (Outcome::Wrote, vec!["n1".to_owned()])
    );
    upgrade.count();
    assert_eq!(upgrade.pass().await, (waits(), vec![]));
    assert!(
        upgrade.reason().contains("1 of 2 are unavailable"),
        "{}",
        upgrade.reason()
    );
    // Its pod is ready, and its agent does not report.
    upgrade.start("new", "n1");
    upgrade.scheduler.lock().expect("not poisoned").hosts = vec![host("n2")];
    assert_eq!(upgrade.pass().await, (waits(), vec![]));
    upgrade.scheduler.lock().expect("not poisoned").hosts = vec![host("n1"), host("n2")];
    assert_eq!(
        upgrade.pass().await,
        (Outcome::Wrote, vec!["n2".to_owned()])
    );
}

#[tokio::test]
async fn as_many_as_the_resource_permits_are_replaced() {
    for permitted in [json!(2), json!("51%")] {
        let upgrade = Upgrade::begin().await;
        upgrade.case.edit(RESOURCE, |object| {
            object["spec"] = json!({"maxUnavailable": permitted})
        });
        // The first pass changes the annotation of the DaemonSet.
        assert_eq!(upgrade.pass().await, (Outcome::Wrote, vec![]));
        upgrade.count();
        let both = vec!["n1".to_owned(), "n2".to_owned()];
        assert_eq!(upgrade.pass().await, (Outcome::Wrote, both));
    }
}

/// Goal: where it is not known what the nodes do, only agents that do not run are replaced.
#[tokio::test]
async fn without_schedulers_only_agents_that_do_not_run_are_replaced() {
    let mut upgrade = Upgrade::begin().await;
    upgrade.case.operator.settings.schedulers = vec!["127.0.0.1:1".to_owned()];
    // The configuration of all pods changes with the address, of a cluster without volumes.
    assert_eq!(upgrade.pass().await, (Outcome::Wrote, vec![]));
    upgrade.count();
    assert_eq!(upgrade.pass().await, (waits(), vec![]));
    assert!(
        upgrade.reason().contains("2 agents wait to know"),
        "{}",
        upgrade.reason()
    );
    upgrade.case.edit(&format!("{PODS}/n1"), |pod| {
        pod["status"] = json!({"containerStatuses": [
            {"name": "berth", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
    });
    assert_eq!(
        upgrade.pass().await,
        (Outcome::Wrote, vec!["n1".to_owned()])
    );
}

/// Goal: a pod that only looks like an agent's stays, and nothing is replaced while an object of others is
/// in the way or the counts are about an earlier template.
#[tokio::test]
async fn what_is_not_the_deployments_stays() {
    let upgrade = Upgrade::begin().await;
    for node in ["n1", "n2"] {
        upgrade.case.edit(&format!("{PODS}/{node}"), |pod| {
            pod["metadata"]["ownerReferences"][0]["uid"] = json!("another");
        });
    }
    let (_, deleted) = upgrade.pass().await;
    assert_eq!(deleted, [""; 0]);
    let upgrade = Upgrade::begin().await;
    let map = "/api/v1/namespaces/berth/configmaps/d-example-node";
    upgrade.case.edit(map, |object| {
        object["metadata"]["ownerReferences"] = json!([])
    });
    assert_eq!(upgrade.pass().await, (Outcome::Failed, vec![]));
    let upgrade = Upgrade::begin().await;
    upgrade
        .case
        .edit(AGENTS, |object| object["metadata"]["generation"] = json!(2));
    assert_eq!(upgrade.pass().await, (Outcome::Clean, vec![]));
}

/// Goal: whichever request of a pass that replaces an agent fails, the one after it goes on, and no second
/// agent is replaced meanwhile.
#[tokio::test]
async fn any_failed_request_of_an_upgrade_is_survived() {
    let first = Upgrade::begin().await;
    first.pass().await;
    // Those before are of every pass.
    let log = first.case.store.lock().expect("not poisoned").log.clone();
    let begin = log.iter().position(|(_, path, _)| path == REVISIONS);
    let begin = begin.expect("revisions are listed");
    for fault in [
        Fault::Refused(403),
        Fault::Refused(409),
        Fault::Refused(500),
        Fault::Lost,
    ] {
        for at in begin..log.len() {
            let upgrade = Upgrade::begin().await;
            {
                let mut store = upgrade.case.store.lock().expect("not poisoned");
                store.log.clear();
                store.fault = Some((at, fault));
            }
            // A lasting refusal is reported, and the pass is none that failed.
            let _ = upgrade.case.operator.pass(&request("d.example")).await;
            upgrade.case.store.lock().expect("not poisoned").fault = None;
            upgrade.count();
            upgrade.pass().await;
            upgrade.count();
            let exists = |node: &str| upgrade.case.get(&format!("{PODS}/{node}")).is_some();
            assert_eq!(
                (exists("n1"), exists("n2")),
                (false, true),
                "{fault:?} at {at}"
            );
        }
    }
}
