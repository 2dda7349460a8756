//! An API server for tests: HTTP on loopback, objects by path.
//!
//! It enforces what an API server enforces of writes: identifiers, versions, conflicts, `force`. It merges
//! no fields of applies, and checks no types.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::permit::Permit;
use crate::reconcile::ApiServer;

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
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
pub(crate) struct Store {
    /// The objects, by path.
    pub(crate) objects: BTreeMap<String, Value>,
    /// Method, path and query of each request.
    pub(crate) log: Vec<(Method, String, String)>,
    pub(crate) created: BTreeMap<String, usize>,
    /// The index of the request that fails.
    pub(crate) fault: Option<(usize, Fault)>,
    pub(crate) versions: u64,
    /// How long each response takes.
    pub(crate) delay: Duration,
}

pub(crate) type Shared = Arc<Mutex<Store>>;

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}

/// The last part of the paths of lists.
const LISTS: [&str; 17] = [
    "berthstorages",
    "clusterrolebindings",
    "clusterroles",
    "configmaps",
    "controllerrevisions",
    "csidrivers",
    "daemonsets",
    "deployments",
    "mutatingwebhookconfigurations",
    "nodes",
    "pmemcsideployments",
    "pods",
    "rolebindings",
    "roles",
    "secrets",
    "serviceaccounts",
    "services",
];

impl Store {
    fn handle(
        &mut self,
        method: &Method,
        (path, query): (&str, &str),
        is_apply: bool,
        body: &[u8],
    ) -> (u16, Value) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        match method.as_str() {
            "GET" if LISTS.contains(&last) => self.list(path, query),
            "GET" => match self.objects.get(path) {
                Some(object) => (200, object.clone()),
                None => failure(404, "NotFound"),
            },
            "PATCH" if is_apply => self.apply(path, query.contains("force=true"), body),
            "PATCH" => self.merge(path, &body),
            "PUT" => self.replace(path, body),
            "POST" => self.create(path, body),
            "DELETE" => self.delete(path, &body),
            other => panic!("{other} is not expected"),
        }
    }

    fn list(&self, path: &str, query: &str) -> (u16, Value) {
        let selector = query
            .split('&')
            .find_map(|one| one.strip_prefix("labelSelector="));
        let selector = selector.unwrap_or_default();
        let selector = selector
            .replace("%2F", "/")
            .replace("%3D", "=")
            .replace("%2C", ",");
        let selects = |object: &Value| {
            let mut pairs = selector.split(',').filter_map(|pair| pair.split_once('='));
            pairs.all(|(key, value)| object["metadata"]["labels"][key] == value)
        };
        let inside = self.objects.iter().filter(|(at, object)| {
            let name = at
                .strip_prefix(path)
                .and_then(|rest| rest.strip_prefix('/'));
            name.is_some_and(|name| !name.contains('/')) && selects(object)
        });
        let items: Vec<Value> = inside
            .map(|(_, object)| {
                let mut object = object.clone();
                // The elements of a list have no kind.
                let fields = object.as_object_mut().expect("an object");
                fields.remove("kind");
                fields.remove("apiVersion");
                object
            })
            .collect();
        (
            200,
            json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}),
        )
    }

    /// Stores an object; one that differs has another version.
    fn put(&mut self, path: &str, mut object: Value) -> (u16, Value) {
        let before = self.objects.get(path).cloned().unwrap_or_default();
        object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        if object != before {
            self.versions += 1;
            object["metadata"]["resourceVersion"] = json!(self.versions.to_string());
        }
        self.objects.insert(path.to_owned(), object.clone());
        (200, object)
    }

    fn add(&mut self, path: &str, mut object: Value) -> (u16, Value) {
        let times = self.created.entry(path.to_owned()).or_default();
        *times += 1;
        object["metadata"]["uid"] = json!(format!("{path}#{times}"));
        object["metadata"]["generation"] = json!(1);
        self.put(path, object)
    }

    fn apply(&mut self, path: &str, force: bool, mut body: Value) -> (u16, Value) {
        let uid = body["metadata"]["uid"].clone();
        match self.objects.get(path) {
            None if uid.is_string() => return failure(409, "Conflict"),
            None => return self.add(path, body),
            Some(_) if !force => return failure(409, "Conflict"),
            Some(live) if live["metadata"]["uid"] != uid => return failure(409, "Conflict"),
            Some(_) => {}
        }
        body["metadata"]["generation"] = json!(1);
        self.put(path, body)
    }

    fn create(&mut self, path: &str, body: Value) -> (u16, Value) {
        let name = body["metadata"]["name"].as_str().expect("a name");
        let path = format!("{path}/{name}");
        match self.objects.contains_key(&path) {
            true => failure(409, "AlreadyExists"),
            false => self.add(&path, body),
        }
    }

    fn is_outdated(live: &Value, body: &Value) -> bool {
        let version = &body["metadata"]["resourceVersion"];
        version.is_string() && *version != live["metadata"]["resourceVersion"]
    }

    fn merge(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let Some(mut live) = self.objects.get(path).cloned() else {
            return failure(404, "NotFound");
        };
        if Self::is_outdated(&live, body) {
            return failure(409, "Conflict");
        }
        live["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone();
        self.put(path, live)
    }

    fn replace(&mut self, path: &str, body: Value) -> (u16, Value) {
        let (object, is_status) = match path.strip_suffix("/status") {
            Some(object) => (object, true),
            None => (path, false),
        };
        let Some(mut live) = self.objects.get(object).cloned() else {
            return failure(404, "NotFound");
        };
        if Self::is_outdated(&live, &body) {
            return failure(409, "Conflict");
        }
        match is_status {
            true => live["status"] = body["status"].clone(),
            false => live = body,
        }
        self.put(object, live)
    }

    fn delete(&mut self, path: &str, body: &Value) -> (u16, Value) {
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

    /// The requests that write, as method and last part of the path.
    pub(crate) fn writes(&self) -> Vec<(Method, String)> {
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
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let is_apply = content_type.is_some_and(|kind| kind == "application/apply-patch+yaml");
    let (fault, delay, (code, body)) = {
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
                store.handle(&parts.method, (path, query), is_apply, &body);
                failure(500, "lost")
            }
            Some(Fault::Garbage | Fault::Hangs) | None => {
                store.handle(&parts.method, (path, query), is_apply, &body)
            }
        };
        (fault, store.delay, response)
    };
    tokio::time::sleep(delay).await;
    let text = match fault {
        Some(Fault::Hangs) => std::future::pending().await,
        Some(Fault::Garbage) => "<html>".to_owned(),
        Some(Fault::Refused(_) | Fault::Lost) | None => body.to_string(),
    };
    let code = StatusCode::from_u16(code).expect("a status");
    (code, Body::from(text)).into_response()
}

/// A server with its objects; its task ends with the test's runtime.
pub(crate) async fn start() -> (Shared, ApiServer) {
    let store = Shared::default();
    let router = Router::new().fallback(respond).with_state(store.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(axum::serve(listener, router).into_future());
    let url = format!("http://{address}").parse().expect("a URL");
    let client = Client::try_from(Config::new(url)).expect("a client");
    let server = ApiServer {
        client,
        deadline: Duration::from_secs(30),
        permit: Permit::always(),
    };
    (store, server)
}
