//! Goal: from any state the objects converge, nothing is made twice, nothing of others is touched, and a
//! converged cluster is not written to. Method: a cluster in memory with the preconditions of an API
//! server, and each interruption, each interleaving of two operators, each damage, enumerated.

use serde_json::json;

use super::*;
use crate::desired::{Credentials, Facts, NodePairs, Pair, desired};
use crate::spec::{BerthStorageSpec, MutatePods};

fn owner() -> Owner {
    Owner {
        api_version: "berth.internal/v1alpha1".to_owned(),
        kind: "BerthStorage".to_owned(),
        name: "pmem-csi.intel.com".to_owned(),
        uid: "owner".to_owned(),
    }
}

fn objects(spec: &BerthStorageSpec) -> Vec<Value> {
    let pair = || Pair {
        cert: b"cert".to_vec(),
        key: b"key".to_vec(),
    };
    let facts = Facts {
        namespace: "berth".to_owned(),
        image: "berth:0.1.0".to_owned(),
        schedulers: vec!["s1:7100".to_owned()],
        credentials: Credentials {
            ca: b"ca".to_vec(),
            controller: pair(),
            nodes: NodePairs::Shared(pair()),
        },
    };
    desired(&owner(), spec, &facts).expect("objects")
}

fn defaults() -> Vec<Value> {
    objects(&BerthStorageSpec::default())
}

/// The objects of a cluster, with what an API server checks of each write.
#[derive(Clone, Debug, Default)]
struct Cluster {
    objects: BTreeMap<Key, Value>,
    /// How often each object was created.
    created: BTreeMap<Key, usize>,
    writes: usize,
}

impl Cluster {
    fn converged() -> Self {
        let mut cluster = Self::default();
        cluster.reconcile(&defaults());
        cluster
    }

    /// Makes a write, unless its precondition fails.
    fn write(&mut self, write: &Write) -> Result<(), &'static str> {
        self.writes += 1;
        match write {
            Write::Create(object) => {
                let key = Key::of(object);
                if self.objects.contains_key(&key) {
                    return Err("already exists");
                }
                let times = self.created.entry(key.clone()).or_default();
                *times += 1;
                let mut object = object.clone();
                object["metadata"]["uid"] = json!(format!("{}-{times}", key.name));
                // A default of the API server.
                object["metadata"]["generation"] = json!(1);
                self.objects.insert(key, object);
            }
            Write::Apply { object, uid } => {
                let live = self.expect_uid(&Key::of(object), uid)?;
                let mut merged = object.clone();
                merged["metadata"]["uid"] = json!(uid);
                *live = merged;
            }
            Write::Delete { key, uid } => {
                self.expect_uid(key, uid)?;
                self.objects.remove(key);
            }
        }
        Ok(())
    }

    fn expect_uid(&mut self, key: &Key, uid: &str) -> Result<&mut Value, &'static str> {
        let live = self.objects.get_mut(key).ok_or("not found")?;
        match live["metadata"]["uid"] == uid {
            true => Ok(live),
            false => Err("another object"),
        }
    }

    fn plan(&self, desired: &[Value]) -> Plan {
        plan(&owner(), desired, &self.objects)
    }

    /// Plans and writes until nothing is left to write; returns the refusals.
    fn reconcile(&mut self, desired: &[Value]) -> Vec<Refusal> {
        for _ in 0..4 {
            let plan = self.plan(desired);
            if plan.writes.is_empty() {
                return plan.refusals;
            }
            for write in &plan.writes {
                self.write(write).expect("the view is up to date");
            }
        }
        panic!("it does not converge: {:?}", self.plan(desired).writes);
    }

    fn expect_converged(&self, desired: &[Value]) {
        assert_eq!(self.plan(desired), Plan::default());
        assert_eq!(self.objects.len(), desired.len());
    }
}

/// Several states from which an operator has to go on, and what it has to reach from each.
fn scenarios() -> Vec<(Cluster, Vec<Value>)> {
    let changed = BerthStorageSpec {
        image: Some("other:1".to_owned()),
        mutate_pods: MutatePods::Never,
        log_level: 7,
        ..BerthStorageSpec::default()
    };
    let mut damaged = Cluster::converged();
    damaged.objects.retain(|key, _| key.kind != "Secret");
    vec![
        (Cluster::default(), defaults()),
        (Cluster::converged(), objects(&changed)),
        (damaged, defaults()),
    ]
}

/// Goal: an operator that ends between any two writes leaves nothing that its successor cannot finish.
#[test]
fn a_successor_finishes_after_any_write() {
    for (before, desired) in scenarios() {
        let writes = before.plan(&desired).writes;
        assert!(!writes.is_empty());
        let mut straight = before.clone();
        straight.reconcile(&desired);
        for count in 0..=writes.len() {
            let mut cluster = before.clone();
            for write in &writes[..count] {
                cluster.write(write).expect("up to date");
            }
            cluster.reconcile(&desired);
            cluster.expect_converged(&desired);
            assert_eq!(cluster.created, straight.created, "after {count} writes");
            assert_eq!(cluster.writes, straight.writes, "no write is repeated");
        }
    }
}

/// Goal: two operators with the same view do no damage. Method: the first makes some writes, the second
/// all of its outdated plan, the first the rest; each fails where its precondition does.
#[test]
fn two_operators_make_nothing_twice() {
    for (before, desired) in scenarios() {
        let writes = before.plan(&desired).writes;
        let mut straight = before.clone();
        straight.reconcile(&desired);
        for count in 0..=writes.len() {
            let mut cluster = before.clone();
            let (first, rest) = writes.split_at(count);
            for write in first.iter().chain(&writes).chain(rest) {
                // What fails was done by the other one.
                let _ = cluster.write(write);
            }
            cluster.reconcile(&desired);
            cluster.expect_converged(&desired);
            assert_eq!(cluster.created, straight.created, "after {count} writes");
        }
    }
}

/// Goal: each deleted object comes back, and nothing else is written.
#[test]
fn each_deleted_object_comes_back() {
    let desired = defaults();
    for object in &desired {
        let mut cluster = Cluster::converged();
        let before = cluster.writes;
        cluster.objects.remove(&Key::of(object));
        assert_eq!(
            cluster.plan(&desired).writes,
            [Write::Create(object.clone())]
        );
        cluster.reconcile(&desired);
        cluster.expect_converged(&desired);
        assert_eq!(cluster.writes, before + 1);
    }
}

/// Returns pointers to all leaves below a value.
fn leaves(value: &Value, pointer: &str, into: &mut Vec<String>) {
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, inner) in fields {
                leaves(inner, &format!("{pointer}/{}", escape(key)), into);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for (at, inner) in elements.iter().enumerate() {
                leaves(inner, &format!("{pointer}/{at}"), into);
            }
        }
        Value::Object(_) | Value::Array(_) => {}
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            into.push(pointer.to_owned());
        }
    }
}

/// Goal: a conflicting edit of any field of any object is reverted by one write. Method: every leaf of
/// every object is changed, except what makes it another object.
#[test]
fn each_conflicting_edit_is_reverted() {
    let desired = defaults();
    let mut edits = 0;
    for object in &desired {
        let mut pointers = Vec::new();
        leaves(object, "", &mut pointers);
        let identity = [
            "/apiVersion",
            "/kind",
            "/metadata/name",
            "/metadata/namespace",
        ];
        pointers.retain(|p| !identity.contains(&p.as_str()) && !p.contains("/ownerReferences/"));
        for pointer in pointers {
            let mut cluster = Cluster::converged();
            let key = Key::of(object);
            let live = cluster.objects.get_mut(&key).expect("it exists");
            *live.pointer_mut(&pointer).expect("a leaf") = json!("edited");
            let writes = cluster.plan(&desired).writes;
            assert_eq!(writes.len(), 1, "{key:?} {pointer}");
            cluster.reconcile(&desired);
            cluster.expect_converged(&desired);
            edits += 1;
        }
    }
    assert!(edits > 300, "{edits} edits");
}

/// Goal: an object of another owner is not touched, all others are made, and the deployment is complete
/// as soon as the foreign one has disappeared.
#[test]
fn objects_of_others_stay_until_they_disappear() {
    let desired = defaults();
    for object in &desired {
        for owners in [json!(null), json!([{"uid": "other", "controller": true}])] {
            let mut foreign = json!({
                "kind": object["kind"],
                "metadata": {"name": object["metadata"]["name"], "uid": "foreign"},
            });
            foreign["metadata"]["ownerReferences"] = owners;
            let key = Key::of(object);
            let mut cluster = Cluster::default();
            cluster.objects.insert(key.clone(), foreign.clone());
            let refusals = cluster.reconcile(&desired);
            assert_eq!(refusals.len(), 1, "{key:?}");
            assert_eq!(cluster.objects[&key], foreign);
            assert_eq!(cluster.objects.len(), desired.len());
            cluster.objects.remove(&key);
            assert_eq!(cluster.reconcile(&desired), []);
            cluster.expect_converged(&desired);
        }
    }
}

/// Goal: objects of an earlier version are removed, and no object of another owner is.
#[test]
fn obsolete_objects_are_deleted() {
    let mut cluster = Cluster::converged();
    for (name, uid) in [("old", "owner"), ("other", "another")] {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "namespace": "berth",
                "uid": name,
                "ownerReferences": [{"uid": uid, "controller": true}],
            },
        });
        cluster.objects.insert(Key::of(&object), object);
    }
    let writes = cluster.plan(&defaults()).writes;
    let [Write::Delete { key, uid }] = writes.as_slice() else {
        panic!("{writes:?}");
    };
    assert_eq!((key.name.as_str(), uid.as_str()), ("old", "old"));
    cluster.reconcile(&defaults());
    assert_eq!(cluster.objects.len(), defaults().len() + 1);
}

/// Goal: an object that is being deleted is left alone until it has disappeared.
#[test]
fn objects_being_deleted_are_awaited() {
    let desired = defaults();
    for object in &desired {
        let mut cluster = Cluster::converged();
        let live = cluster
            .objects
            .get_mut(&Key::of(object))
            .expect("it exists");
        live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        live["metadata"]["labels"] = json!({});
        assert_eq!(cluster.plan(&desired), Plan::default());
        cluster.objects.remove(&Key::of(object));
        cluster.reconcile(&desired);
        cluster.expect_converged(&desired);
    }
}

/// Goal: agents and controllers are never deleted to change them.
#[test]
fn only_objects_without_pods_are_replaced() {
    let desired = defaults();
    for object in &desired {
        let mut cluster = Cluster::converged();
        let live = cluster
            .objects
            .get_mut(&Key::of(object))
            .expect("it exists");
        live["roleRef"] = json!({"name": "other"});
        live["spec"] = json!({"volumeLifecycleModes": [], "selector": {}});
        let writes = cluster.plan(&desired).writes;
        let is_deleted = writes
            .iter()
            .any(|write| matches!(write, Write::Delete { .. }));
        let kind = object["kind"].as_str().expect("a kind");
        let expected = ["ClusterRoleBinding", "RoleBinding", "CSIDriver"].contains(&kind);
        assert_eq!(is_deleted, expected, "{kind}");
        cluster.reconcile(&desired);
        cluster.expect_converged(&desired);
    }
}
