//! An API server: claims and classes over HTTPS, with a token, pages, and refusals in its words.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::NAMESPACE;
use super::authority::Authority;

pub(crate) const TOKEN: &str = "the-token";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

pub(crate) struct ApiServer {
    pub(crate) address: SocketAddr,
    held: Arc<Mutex<Held>>,
    running: JoinHandle<()>,
}

struct Held {
    objects: BTreeMap<String, Value>,
    /// Answers as they are, by path.
    texts: BTreeMap<String, String>,
    token: String,
    asked: Vec<String>,
    /// Statuses of the next answers, whatever is asked.
    refusals: VecDeque<u16>,
}

impl ApiServer {
    pub(crate) async fn start(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = TlsAcceptor::from(Arc::new(authority.server()));
        let held = Arc::new(Mutex::new(Held {
            objects: BTreeMap::new(),
            texts: BTreeMap::new(),
            token: TOKEN.to_owned(),
            asked: Vec::new(),
            refusals: VecDeque::new(),
        }));
        let shared = held.clone();
        let running = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, held) = (tls.clone(), shared.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else {
                        return;
                    };
                    let answer = service_fn(|request: Request<Incoming>| {
                        let answer = held.lock().unwrap().answer(&request);
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let stream = TokioIo::new(stream);
                    let _ = http1::Builder::new().serve_connection(stream, answer).await;
                });
            }
        });
        Self {
            address,
            held,
            running,
        }
    }

    pub(crate) fn put_claim(&self, claim: &Value) {
        let name = claim["metadata"]["name"].as_str().unwrap();
        self.held
            .lock()
            .unwrap()
            .objects
            .insert(claim_path(name), claim.clone());
    }

    /// Has it tell this text where something is asked with this path and query.
    pub(crate) fn put_text(&self, path: &str, text: &str) {
        let mut held = self.held.lock().unwrap();
        held.texts.insert(path.to_owned(), text.to_owned());
    }

    pub(crate) fn put_class(&self, name: &str, provisioner: &str, mode: &str) {
        self.put_class_with(name, provisioner, mode, &json!({}));
    }

    pub(crate) fn put_class_with(
        &self,
        name: &str,
        provisioner: &str,
        mode: &str,
        annotations: &Value,
    ) {
        let class = json!({
            "metadata": {"name": name, "annotations": annotations},
            "provisioner": provisioner, "volumeBindingMode": mode, "reclaimPolicy": "Delete",
        });
        let path = format!("{CLASSES}/{name}");
        self.held.lock().unwrap().objects.insert(path, class);
    }

    pub(crate) fn expect_token(&self, token: &str) {
        self.held.lock().unwrap().token = token.to_owned();
    }

    pub(crate) fn refuse_next(&self, statuses: &[u16]) {
        self.held.lock().unwrap().refusals.extend(statuses);
    }

    /// Returns what was asked so far, and forgets it.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.held.lock().unwrap().asked)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn claim_path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{name}")
}

impl Held {
    fn answer(&mut self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let asked = request.uri().to_string();
        self.asked.push(asked.clone());
        if let Some(status) = self.refusals.pop_front() {
            return refusal(status, "not now");
        }
        let token = request.headers().get("authorization");
        if token.is_none_or(|t| t.as_bytes() != format!("Bearer {}", self.token).as_bytes()) {
            return refusal(401, "Unauthorized");
        }
        if let Some(text) = self.texts.get(&asked) {
            return respond(200, text.clone());
        }
        let path = request.uri().path();
        if path == CLASSES {
            return reply(200, &self.page(request.uri().query().unwrap_or_default()));
        }
        match self.objects.get(path) {
            Some(object) => reply(200, object),
            None => refusal(404, &format!("{path} not found")),
        }
    }

    /// Returns a page of two classes, however many are asked for.
    fn page(&self, query: &str) -> Value {
        let from = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("continue="));
        let from: usize = from.map_or(0, |token| {
            token.strip_prefix("from%3D").unwrap().parse().unwrap()
        });
        let mut classes = self
            .objects
            .iter()
            .filter(|(path, _)| path.starts_with(CLASSES));
        let items: Vec<&Value> = classes
            .by_ref()
            .skip(from)
            .take(2)
            .map(|(_, c)| c)
            .collect();
        let next = classes
            .next()
            .map_or(String::new(), |_| format!("from={}", from + 2));
        json!({
            "kind": "StorageClassList", "apiVersion": "storage.k8s.io/v1",
            "metadata": {"resourceVersion": "5", "continue": next}, "items": items,
        })
    }
}

fn reply(status: u16, body: &Value) -> Response<Full<Bytes>> {
    respond(status, body.to_string())
}

fn respond(status: u16, body: String) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap()
}

fn refusal(status: u16, message: &str) -> Response<Full<Bytes>> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "code": status,
    });
    reply(status, &body)
}
