//! Goal: an operator that ends in the middle of any case leaves nothing that its successor cannot finish:
//! the objects are those of an operator that did not end, none is created twice, and no event is missing.
//!
//! Method: PMEM-CSI's cases, and each write of each case is once the last one of its operator, which does
//! not receive the response. The next operator has nothing but what the API server has.
//!
//! Not here: the same at a real API server (`tests/long/kubernetes`, step `restarted`).

use kube::CustomResourceExt as _;

use super::*;
use crate::fake_scheduler;
use crate::fake_server::Store;
use crate::spec::BerthStorage;

const RESOURCES: &str = "/apis/berth.internal/v1alpha1/berthstorages/";
const DRIVER: &str = "/apis/storage.k8s.io/v1/csidrivers/d.example";
/// Fields of which the value differs from run to run.
const VARIABLE: [&str; 4] = [
    "berth.internal/applied",
    "lastUpdateTime",
    "lastUpdated",
    "resourceVersion",
];

/// A case: what there is before it, and what changes then.
struct Change {
    what: String,
    before: Store,
    change: Box<dyn Fn(&mut Objects)>,
}

type Objects = BTreeMap<String, Value>;

fn change(
    what: impl Into<String>,
    before: &Store,
    change: impl Fn(&mut Objects) + 'static,
) -> Change {
    Change {
        what: what.into(),
        before: copy(before),
        change: Box::new(change),
    }
}

fn copy(store: &Store) -> Store {
    Store {
        objects: store.objects.clone(),
        created: store.created.clone(),
        versions: store.versions,
        ..Store::default()
    }
}

/// A scheduler, and what every case has: two nodes, and the authority.
struct Setup {
    scheduler: String,
    empty: Store,
}

impl Setup {
    async fn new() -> Self {
        let (_, scheduler) = fake_scheduler::start().await;
        let case = case().await;
        let node = json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {"name": "n2", "uid": "n2", "labels": {"storage": "other"}},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]},
        });
        case.put("/api/v1/nodes/n2", node);
        let mut empty = copy(&case.store.lock().expect("not poisoned"));
        empty.objects.remove(RESOURCE);
        Self { scheduler, empty }
    }

    async fn case(&self, before: &Store) -> Case {
        let (store, server) = start().await;
        *store.lock().expect("not poisoned") = copy(before);
        Case {
            store,
            operator: operator(server, &self.scheduler),
        }
    }

    /// What there is when an operator has nothing left to write.
    async fn settled(&self, before: &Store, change: impl Fn(&mut Objects)) -> Store {
        let case = self.case(before).await;
        change(&mut case.store.lock().expect("not poisoned").objects);
        settle(&case).await.expect("nothing fails");
        let store = case.store.lock().expect("not poisoned");
        copy(&store)
    }

    /// Makes each write of the case the last one of its operator; returns how many there are.
    async fn expect_survived(&self, change: &Change) -> usize {
        let case = self.case(&change.before).await;
        (change.change)(&mut case.store.lock().expect("not poisoned").objects);
        settle(&case).await.expect("nothing fails");
        let (straight, writes) = {
            let store = case.store.lock().expect("not poisoned");
            let log = store.log.iter().enumerate();
            let writes = log.filter(|(_, (method, _, _))| method != Method::GET);
            let writes: Vec<usize> = writes.map(|(index, _)| index).collect();
            (copy(&store), writes)
        };
        for (number, at) in writes.iter().enumerate() {
            let mut case = self.case(&change.before).await;
            {
                let mut store = case.store.lock().expect("not poisoned");
                (change.change)(&mut store.objects);
                store.fault = Some((*at, Fault::Lost));
            }
            let ended = settle(&case).await;
            assert!(ended.is_err(), "{}: write {number}", change.what);
            case.operator = operator(case.operator.server.clone(), &self.scheduler);
            settle(&case).await.expect("nothing fails any more");
            let store = case.store.lock().expect("not poisoned");
            assert_eq!(
                comparable(&store),
                comparable(&straight),
                "{}: the operator ended at write {number}",
                change.what
            );
        }
        writes.len()
    }
}

fn operator(server: ApiServer, scheduler: &str) -> Operator {
    Operator {
        server,
        settings: Settings {
            namespace: "berth".to_owned(),
            image: "berth:0.1.0".to_owned(),
            schedulers: vec![scheduler.to_owned()],
            validity: Duration::from_secs(86_400),
        },
        schedulers: Schedulers::new(None),
        cache: Cache::default(),
        metrics: Metrics::default(),
    }
}

/// Makes passes over all resources until they write nothing; the first failure ends it.
async fn settle(case: &Case) -> Result<(), Error> {
    for _ in 0..8 {
        let (before, names) = {
            let store = case.store.lock().expect("not poisoned");
            let paths = store.objects.keys();
            let names = paths.filter_map(|path| path.strip_prefix(RESOURCES).map(str::to_owned));
            (store.writes().len(), names.collect::<Vec<String>>())
        };
        for name in names {
            case.operator.pass(&request(&name)).await?;
        }
        if case.store.lock().expect("not poisoned").writes().len() == before {
            return Ok(());
        }
    }
    panic!("the writes do not end");
}

type Comparable = (Objects, BTreeMap<String, usize>, BTreeSet<String>);

/// The objects without what differs from run to run, how often each was created, and which events there are.
fn comparable(store: &Store) -> Comparable {
    fn strip(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let kept = fields
                    .iter()
                    .filter(|(key, _)| !VARIABLE.contains(&key.as_str()));
                Value::Object(kept.map(|(key, one)| (key.clone(), strip(one))).collect())
            }
            Value::Array(elements) => elements.iter().map(strip).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
    let is_event = |path: &str| path.contains("/events/");
    let objects = store.objects.iter().filter(|(path, _)| !is_event(path));
    let objects = objects.map(|(path, object)| {
        let mut object = strip(object);
        if let Some(files) = object["data"]
            .as_object_mut()
            .filter(|_| path.contains("/secrets/"))
        {
            // Keys are random.
            files.values_mut().for_each(|file| *file = Value::Null);
        }
        (path.clone(), object)
    });
    let events = store.objects.iter().filter(|(path, _)| is_event(path));
    let events = events.map(|(_, event)| format!("{}: {}", event["reason"], event["message"]));
    let created = store.created.clone().into_iter();
    let created = created.filter(|(path, _)| !is_event(path));
    (objects.collect(), created.collect(), events.collect())
}

fn add(name: &'static str, spec: Value) -> impl Fn(&mut Objects) {
    move |objects| {
        let mut made = resource(name, name);
        made["spec"] = spec.clone();
        objects.insert(format!("{RESOURCES}{name}"), made);
    }
}

fn set(spec: Value) -> impl Fn(&mut Objects) {
    move |objects| {
        let resource = objects.get_mut(RESOURCE).expect("it exists");
        resource["spec"] = spec.clone();
        resource["metadata"]["generation"] = json!(2);
    }
}

/// A new value of each field. `certificates` is not here: its value depends on the deployment, and it has its
/// own cases below.
fn updates(scheduler: &str) -> Vec<(&'static str, Value)> {
    let resources = || json!({"limits": {"cpu": "201m"}, "requests": {"memory": "101Mi"}});
    vec![
        // The same one under another name.
        (
            "schedulers",
            json!([scheduler, scheduler.replace("127.0.0.1", "localhost")]),
        ),
        ("image", json!("x:1")),
        ("imagePullPolicy", json!("Never")),
        ("provisionerImage", json!("x:2")),
        ("nodeRegistrarImage", json!("x:3")),
        ("controllerResources", resources()),
        ("provisionerResources", resources()),
        ("nodeResources", resources()),
        ("nodeRegistrarResources", resources()),
        ("controllerReplicas", json!(5)),
        ("logLevel", json!(7)),
        ("logFormat", json!("json")),
        ("nodeSelector", json!({"still-not": "such-label"})),
        ("pmemPercentage", json!(33)),
        ("deviceMode", json!("direct")),
        ("labels", json!({"team": "blue"})),
        ("kubeletDir", json!("/kubelet")),
        ("maxUnavailable", json!("20%")),
        ("schedulerNodePort", json!(31000)),
        ("mutatePods", json!("Never")),
    ]
}

#[test]
fn each_field_is_updated_in_a_case() {
    let definition = serde_json::to_value(BerthStorage::crd()).expect("JSON");
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let fields = schema["properties"]["spec"]["properties"].as_object();
    let fields: BTreeSet<&str> = fields.expect("some").keys().map(String::as_str).collect();
    let updates = updates("127.0.0.1:7100");
    let updated = updates.iter().map(|(field, _)| *field);
    assert_eq!(
        updated.chain(["certificates"]).collect::<BTreeSet<&str>>(),
        fields
    );
    let defaults = serde_json::to_value(BerthStorageSpec::default()).expect("JSON");
    for (field, value) in updates {
        assert_ne!(
            defaults[field], value,
            "{field} has the value that it has anyway"
        );
    }
}

#[tokio::test]
async fn updates_are_finished_by_the_next_operator() {
    let setup = Setup::new().await;
    let before = setup
        .settled(&setup.empty, add("d.example", json!({})))
        .await;
    let mut all = json!({});
    let mut writes = 0;
    for (field, value) in updates(&setup.scheduler) {
        all[field] = value.clone();
        let change = change(field, &before, set(json!({field: value})));
        let count = setup.expect_survived(&change).await;
        assert!(count >= 2, "{field}: an object and the status");
        writes += count;
    }
    writes += setup
        .expect_survived(&change("all", &before, set(all)))
        .await;
    assert!(writes > 60, "{writes} writes");
}

#[tokio::test]
async fn drift_is_corrected_by_the_next_operator() {
    let setup = Setup::new().await;
    let before = setup
        .settled(&setup.empty, add("d.example", json!({})))
        .await;
    let is_own = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"] == "d.example";
    let own = before.objects.iter().filter(|(_, object)| is_own(object));
    let own: Vec<String> = own.map(|(path, _)| path.clone()).collect();
    assert_eq!(own.len(), 15);
    for path in own {
        let deleted = path.clone();
        let change = change(path, &before, move |objects| {
            objects.remove(&deleted);
        });
        assert!(setup.expect_survived(&change).await > 0, "{}", change.what);
    }
    let edits: [fn(&mut Objects); 2] = [
        |objects| {
            let controller = objects.get_mut(CONTROLLER).expect("it exists");
            controller["spec"]["replicas"] = json!(7);
        },
        |objects| {
            let agents = objects.get_mut(AGENTS).expect("it exists");
            agents["spec"]["template"]["spec"]["hostNetwork"] = json!(false);
        },
    ];
    for edit in edits {
        let change = change("a conflicting edit", &before, edit);
        assert!(setup.expect_survived(&change).await > 0);
    }
}

#[tokio::test]
async fn deployments_are_finished_by_the_next_operator() {
    let setup = Setup::new().await;
    let empty = &setup.empty;
    let settled = setup.settled(empty, add("d.example", json!({}))).await;
    let files = |name: &str| {
        settled.objects[&format!("/api/v1/namespaces/berth/secrets/{name}")]["data"].clone()
    };
    let (controller, agents) = (
        files("d-example-controller-tls"),
        files("d-example-node-tls"),
    );
    let given = json!({"certificates": {
        "ca": controller["ca.pem"],
        "controllerCert": controller["cert.pem"], "controllerKey": controller["key.pem"],
        "nodeCert": agents["agent-n1.pem"], "nodeKey": agents["agent-n1-key.pem"],
    }});
    let mut foreign = copy(empty);
    let driver = json!({"kind": "CSIDriver", "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": "d.example", "uid": "foreign"}});
    foreign.objects.insert(DRIVER.to_owned(), driver);
    let blocked = setup.settled(&foreign, add("d.example", json!({}))).await;
    let other = || add("e.example", json!({"nodeSelector": {"storage": "other"}}));
    let deletion = |objects: &mut Objects| {
        let resource = objects.get_mut(RESOURCE).expect("it exists");
        resource["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    };
    let changes = [
        change("created", empty, add("d.example", json!({}))),
        change("dots", empty, add("many.dots.in-a.name.example", json!({}))),
        change("a second deployment", &settled, other()),
        change("with its own CA", empty, add("d.example", given.clone())),
        change("to its own CA", &settled, set(given)),
        change("a foreign object", &foreign, add("d.example", json!({}))),
        change("no foreign object any more", &blocked, |objects| {
            objects.remove(DRIVER);
        }),
        change("deleted", &settled, deletion),
    ];
    for change in changes {
        assert!(setup.expect_survived(&change).await > 0, "{}", change.what);
    }
}
