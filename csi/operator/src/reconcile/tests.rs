//! Goal: a pass makes the planned requests and no others, and any failure of the API server is followed
//! by a pass that finishes. Method: an HTTP server on loopback that stores objects and enforces what an
//! API server enforces of applies and deletions: identifiers, conflicts, `force`. Each request of a pass
//! fails in each way.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use kube::Config;

use super::*;
use crate::desired::{Credentials, Facts, NodePairs, Pair, desired};
use crate::safety::Refusal;
use crate::spec::BerthStorageSpec;

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It is refused with this status.
    Refused(u16),
    /// It is executed, and then the response is a failure.
    Lost,
    /// The response is no JSON.
    Garbage,
    /// There is no response.
    Hangs,
}

#[derive(Default)]
struct Store {
    /// The objects, by path.
    objects: BTreeMap<String, Value>,
    /// Method, path and query of each request.
    log: Vec<(Method, String, String)>,
    created: BTreeMap<String, usize>,
    /// The index of the request that fails.
    fault: Option<(usize, Fault)>,
}

type Shared = Arc<Mutex<Store>>;

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}

impl Store {
    fn handle(&mut self, method: &Method, path: &str, query: &str, body: &[u8]) -> (u16, Value) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        match method.as_str() {
            "GET" if query.contains("labelSelector=") => self.list(path),
            "GET" => match self.objects.get(path) {
                Some(object) => (200, object.clone()),
                None => failure(404, "NotFound"),
            },
            "PATCH" => self.apply(path, query.contains("force=true"), body),
            "DELETE" => {
                let uid = self.objects.get(path).map(|o| &o["metadata"]["uid"]);
                if uid.is_none() {
                    return failure(404, "NotFound");
                }
                if uid != Some(&body["preconditions"]["uid"]) {
                    return failure(409, "Conflict");
                }
                self.objects.remove(path);
                (
                    200,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                )
            }
            other => panic!("{other} is not expected"),
        }
    }

    fn list(&self, path: &str) -> (u16, Value) {
        let managed = |object: &Value| object["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1;
        let inside = self.objects.iter().filter(|(at, object)| {
            let name = at
                .strip_prefix(path)
                .and_then(|rest| rest.strip_prefix('/'));
            name.is_some_and(|name| !name.contains('/')) && managed(object)
        });
        // The elements of a list have no kind.
        let items: Vec<Value> = inside
            .map(|(_, object)| {
                json!({"metadata": object["metadata"], "spec": object["spec"],
                "data": object["data"], "type": object["type"], "rules": object["rules"],
                "roleRef": object["roleRef"], "subjects": object["subjects"],
                "webhooks": object["webhooks"],
                "automountServiceAccountToken": object["automountServiceAccountToken"]})
            })
            .collect();
        (
            200,
            json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}),
        )
    }

    fn apply(&mut self, path: &str, force: bool, mut body: Value) -> (u16, Value) {
        let uid = body["metadata"]["uid"].clone();
        match self.objects.get(path) {
            None if uid.is_string() => return failure(409, "Conflict"),
            None => {
                let times = self.created.entry(path.to_owned()).or_default();
                *times += 1;
                body["metadata"]["uid"] = json!(format!("{path}#{times}"));
            }
            Some(_) if !force => return failure(409, "Conflict"),
            Some(live) if live["metadata"]["uid"] != uid => return failure(409, "Conflict"),
            Some(_) => {}
        }
        body["metadata"]["generation"] = json!(1);
        self.objects.insert(path.to_owned(), body.clone());
        (200, body)
    }

    /// The requests that write, as method and last part of the path.
    fn writes(&self) -> Vec<(Method, String)> {
        let writes = self
            .log
            .iter()
            .filter(|(method, _, _)| method != Method::GET);
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        writes
            .map(|(method, path, _)| (method.clone(), name(path)))
            .collect()
    }
}

async fn respond(State(store): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("a body");
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    let (fault, (code, body)) = {
        let mut store = store.lock().expect("not poisoned");
        let index = store.log.len();
        store
            .log
            .push((parts.method.clone(), path.to_owned(), query.to_owned()));
        let fault = store
            .fault
            .filter(|(at, _)| *at == index)
            .map(|(_, fault)| fault);
        let response = match fault {
            Some(Fault::Refused(code)) => failure(code, "refused"),
            Some(Fault::Lost) => {
                store.handle(&parts.method, path, query, &body);
                failure(500, "lost")
            }
            Some(Fault::Garbage | Fault::Hangs) | None => {
                store.handle(&parts.method, path, query, &body)
            }
        };
        (fault, response)
    };
    let text = match fault {
        Some(Fault::Hangs) => std::future::pending().await,
        Some(Fault::Garbage) => "<html>".to_owned(),
        Some(Fault::Refused(_) | Fault::Lost) | None => body.to_string(),
    };
    let code = StatusCode::from_u16(code).expect("a status");
    (code, Body::from(text)).into_response()
}

/// A server with its objects; its task ends with the test's runtime.
async fn start() -> (Shared, ApiServer) {
    let store = Shared::default();
    let router = Router::new().fallback(respond).with_state(store.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(axum::serve(listener, router).into_future());
    let url = format!("http://{address}").parse().expect("a URL");
    let client = Client::try_from(Config::new(url)).expect("a client");
    let deadline = Duration::from_secs(30);
    (store, ApiServer { client, deadline })
}

fn owner() -> Owner {
    Owner {
        api_version: "berth.internal/v1alpha1".to_owned(),
        kind: "BerthStorage".to_owned(),
        name: "d.example".to_owned(),
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

#[tokio::test]
async fn paths_are_those_of_kubernetes_and_nothing_is_written_twice() {
    let (store, server) = start().await;
    let first = reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    assert_eq!(first.plan.writes.len(), 15);
    let paths: Vec<String> = {
        let store = store.lock().expect("not poisoned");
        for (method, _, query) in store
            .log
            .iter()
            .filter(|(method, _, _)| method == Method::PATCH)
        {
            assert!(
                query.contains("fieldManager=berth-csi-operator"),
                "{method} {query}"
            );
            assert!(query.contains("fieldValidation=Strict") && !query.contains("force"));
        }
        store.objects.keys().cloned().collect()
    };
    assert_eq!(
        paths,
        [
            "/api/v1/namespaces/berth/configmaps/d-example-controller",
            "/api/v1/namespaces/berth/configmaps/d-example-node",
            "/api/v1/namespaces/berth/secrets/d-example-controller-tls",
            "/api/v1/namespaces/berth/secrets/d-example-node-tls",
            "/api/v1/namespaces/berth/serviceaccounts/d-example-controller",
            "/api/v1/namespaces/berth/serviceaccounts/d-example-node",
            "/api/v1/namespaces/berth/services/d-example-controller",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/d-example",
            "/apis/apps/v1/namespaces/berth/daemonsets/d-example-node",
            "/apis/apps/v1/namespaces/berth/deployments/d-example-controller",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/d-example-controller",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/d-example-controller",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/berth/rolebindings/d-example-controller",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/berth/roles/d-example-controller",
            "/apis/storage.k8s.io/v1/csidrivers/d.example",
        ]
    );
    let second = reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    assert_eq!(second.plan, Plan::default());
    assert_eq!(store.lock().expect("not poisoned").writes().len(), 15);
}

/// Goal: drift is corrected by one forced write that names its object; an object of another owner is not
/// written to; an obsolete one is deleted with its identifier.
#[tokio::test]
async fn only_what_differs_is_written() {
    let (store, server) = start().await;
    reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    let agents = "/apis/apps/v1/namespaces/berth/daemonsets/d-example-node";
    let driver = "/apis/storage.k8s.io/v1/csidrivers/d.example";
    let obsolete = "/api/v1/namespaces/berth/services/old";
    {
        let mut store = store.lock().expect("not poisoned");
        store.log.clear();
        let edited = store.objects.get_mut(agents).expect("it exists");
        edited["spec"]["updateStrategy"]["type"] = json!("OnDelete");
        let mut old =
            store.objects["/api/v1/namespaces/berth/services/d-example-controller"].clone();
        old["metadata"]["name"] = json!("old");
        old["metadata"]["uid"] = json!("old");
        store.objects.insert(obsolete.to_owned(), old);
        let foreign = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": "d.example", "uid": "foreign"}});
        store.objects.insert(driver.to_owned(), foreign);
    }
    let pass = reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    let refusal = Refusal::Foreign {
        kind: "CSIDriver".to_owned(),
        name: "d.example".to_owned(),
    };
    assert_eq!(pass.plan.refusals, [refusal]);
    {
        let store = store.lock().expect("not poisoned");
        let expected = [
            (Method::PATCH, "d-example-node".to_owned()),
            (Method::DELETE, "old".to_owned()),
        ];
        assert_eq!(store.writes(), expected);
        assert!(
            store
                .log
                .iter()
                .any(|(_, path, query)| path == agents && query.contains("force=true"))
        );
        assert_eq!(store.objects[driver]["metadata"]["uid"], "foreign");
        assert!(!store.objects.contains_key(obsolete));
    }
    store.lock().expect("not poisoned").objects.remove(driver);
    let pass = reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    assert_eq!((pass.plan.writes.len(), pass.plan.refusals.len()), (1, 0));
}

/// Goal: nothing is lost and nothing is made twice, whichever request fails, and however. Method: each
/// request of a first pass fails in each way; the passes after it have to finish.
#[tokio::test]
async fn any_failed_request_is_survived() {
    let (store, server) = start().await;
    reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    let requests = store.lock().expect("not poisoned").log.len();
    let all = store.lock().expect("not poisoned").objects.clone();
    let faults = [
        Fault::Refused(403),
        Fault::Refused(409),
        Fault::Refused(429),
        Fault::Refused(500),
        Fault::Lost,
        Fault::Garbage,
    ];
    for fault in faults {
        for at in 0..requests {
            *store.lock().expect("not poisoned") = Store {
                fault: Some((at, fault)),
                ..Store::default()
            };
            let failed = reconcile(&server, &owner(), &defaults()).await;
            // The client itself repeats a request that is refused for load.
            assert!(
                failed.is_err() || fault == Fault::Refused(429),
                "{fault:?} at {at}"
            );
            reconcile(&server, &owner(), &defaults())
                .await
                .expect("a pass");
            let last = reconcile(&server, &owner(), &defaults())
                .await
                .expect("a pass");
            assert_eq!(last.plan, Plan::default(), "{fault:?} at {at}");
            let store = store.lock().expect("not poisoned");
            assert_eq!(store.objects, all);
            assert!(
                store.created.values().all(|times| *times == 1),
                "{fault:?} at {at}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_that_hangs_is_left() {
    let (store, mut server) = start().await;
    server.deadline = Duration::from_millis(50);
    store.lock().expect("not poisoned").fault = Some((0, Fault::Hangs));
    let error = reconcile(&server, &owner(), &defaults())
        .await
        .expect_err("it hangs");
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("hint: "), "{error}");
}
