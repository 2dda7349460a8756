//! Goal: with the responses of a real API server the operator sends what it sent to it, request for request.
//! Method: `testdata/recorded.json`, in which `tests/long/kubernetes/operate.py --record` has written down
//! every pass over one resource, from its creation to its deletion. Passes are made until all of it is used.
//!
//! What cannot be the same twice is bound where the operator first sends it, and put into the responses from
//! then on: certificates, digests over them and over the scheduler's address, times. Nothing else may differ.
//!
//! A deliberate change of what is sent needs another recording; `tests/long/README.md` has the command.
//!
//! Not here: watches and the lease, and fields of other managers (`managedFields` is not in the file).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kube::{Client, Config};
use serde::Deserialize;

use super::*;
use crate::fake_scheduler;
use crate::permit::Permit;

/// The first request of every pass.
const FIRST: &str = "/apis/pmem-csi.intel.com/v1alpha1/deployments";
/// The address of the scheduler in the file.
const SCHEDULER: &str = "127.0.0.1:7100";
/// The keys of values that differ from run to run, and are bound.
const BOUND: [&str; 3] = [
    "berth.internal/applied",
    "berth.internal/configuration",
    "caBundle",
];
/// The keys of times; of an event also its name, which has a digest over one.
const TIMES: [&str; 4] = [
    "firstTimestamp",
    "lastTimestamp",
    "lastUpdateTime",
    "lastUpdated",
];

#[derive(Deserialize)]
struct Recording {
    /// Which resource it is about.
    resource: String,
    /// The nodes that are hosts.
    hosts: Vec<String>,
    /// Bodies of requests and responses; each is there once.
    bodies: Vec<Value>,
    exchanges: Vec<Exchange>,
}

#[derive(Clone, Deserialize)]
struct Exchange {
    method: String,
    path: String,
    request: Option<usize>,
    status: u16,
    response: usize,
}

impl Exchange {
    /// The path without the query.
    fn location(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

/// The exchanges that are left, and what was bound.
struct Replay {
    bodies: Vec<Value>,
    left: VecDeque<Exchange>,
    bound: BTreeMap<String, String>,
    mismatch: Option<String>,
}

impl Replay {
    fn respond(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let is_this =
            |next: &Exchange| (next.method.as_str(), next.path.as_str()) == (method, path);
        let next = match self.left.front() {
            Some(next) if is_this(next) => next.clone(),
            Some(next) => return self.fail(format!("{} {}", next.method, next.path), method, path),
            None => return self.fail("the end".to_owned(), method, path),
        };
        self.left.pop_front();
        if let Some(recorded) = next.request {
            let recorded = self.bodies[recorded].clone();
            let sent: Value = serde_json::from_slice(body).expect("JSON");
            if let Err(difference) = self.compare(&recorded, &sent, "") {
                return self.fail(difference, method, path);
            }
        }
        (next.status, self.substitute(&self.bodies[next.response]))
    }

    fn fail(&mut self, expected: String, method: &str, path: &str) -> (u16, Value) {
        let left = self.left.len();
        let mismatch =
            format!("{method} {path}, but recorded is {expected}; {left} exchanges are left");
        self.mismatch.get_or_insert(mismatch);
        (500, json!({}))
    }

    /// Compares a body with the recorded one, and binds what is to be bound.
    fn compare(&mut self, recorded: &Value, sent: &Value, at: &str) -> Result<(), String> {
        let differs = || Err(format!("{at}: {recorded}, not {sent}"));
        match (recorded, sent) {
            (Value::Object(left), Value::Object(right)) => {
                if !left.keys().eq(right.keys()) {
                    return differs();
                }
                for (key, value) in left {
                    self.compare(value, &right[key], &format!("{at}/{key}"))?;
                }
                Ok(())
            }
            (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
                for (index, value) in left.iter().enumerate() {
                    self.compare(value, &right[index], &format!("{at}/{index}"))?;
                }
                Ok(())
            }
            (Value::String(left), Value::String(right)) => {
                let is_key =
                    |keys: &[&str]| keys.iter().any(|key| at.ends_with(&format!("/{key}")));
                let is_event = right.starts_with("rec.example.");
                if is_key(&TIMES) || (is_event && at == "/metadata/name") {
                    self.bound.insert(left.clone(), right.clone());
                } else if is_key(&BOUND) || at.starts_with("/data/") {
                    self.bound
                        .entry(left.clone())
                        .or_insert_with(|| right.clone());
                }
                match self.bound.get(left).unwrap_or(left) == right {
                    true => Ok(()),
                    false => differs(),
                }
            }
            (left, right) if left == right => Ok(()),
            _ => differs(),
        }
    }

    fn substitute(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.bound.get(text).unwrap_or(text)),
            Value::Array(elements) => elements.iter().map(|one| self.substitute(one)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(key, value)| (key.clone(), self.substitute(value)));
                Value::Object(fields.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Returns what the next pass reported of the hosts, if it wrote a status.
    fn next_hosts(&self) -> Option<String> {
        let pass = self.left.iter().enumerate();
        let is_first = |one: &Exchange| one.location() == FIRST;
        let pass = pass.take_while(|(index, one)| *index == 0 || !is_first(one));
        let written = pass
            .map(|(_, one)| one)
            .filter(|one| one.location().ends_with("/status"));
        let status = &self.bodies[written.last()?.request?]["status"];
        let conditions = status["conditions"].as_array()?;
        let hosts = conditions
            .iter()
            .find(|one| one["type"] == "HostsRegistered")?;
        Some(hosts["status"].as_str()?.to_owned())
    }
}

type Shared = Arc<Mutex<Replay>>;

async fn respond(State(replay): State<Shared>, request: HttpRequest) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("a body");
    let path = parts.uri.to_string();
    let mut replay = replay.lock().expect("not poisoned");
    let (status, body) = replay.respond(parts.method.as_str(), &path, &body);
    let status = StatusCode::from_u16(status).expect("a status");
    (status, Body::from(body.to_string())).into_response()
}

/// Starts the API server of the file.
async fn start(replay: &Shared) -> ApiServer {
    let router = Router::new().fallback(respond).with_state(replay.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(axum::serve(listener, router).into_future());
    ApiServer {
        client: Client::try_from(Config::new(url.parse().expect("a URL"))).expect("a client"),
        deadline: Duration::from_secs(60),
        permit: Permit::always(),
    }
}

#[tokio::test]
async fn the_operator_sends_what_it_sent_to_a_real_api_server() {
    let (scheduler, address) = fake_scheduler::start().await;
    let text = include_str!("../../../testdata/recorded.json").replace(SCHEDULER, &address);
    let recording: Recording = serde_json::from_str(&text).expect("a recording");
    let hosts = recording
        .hosts
        .iter()
        .map(|name| fake_scheduler::host(name));
    scheduler.lock().expect("not poisoned").hosts = hosts.collect();
    let files = authority()["data"].clone();
    let of_authority = |name: &str| files[name].as_str().expect("text").to_owned();
    let replay = Arc::new(Mutex::new(Replay {
        bodies: recording.bodies,
        left: recording.exchanges.into(),
        // The recorder writes these for the authority's certificate and key.
        bound: BTreeMap::from([
            ("Y2E=".to_owned(), of_authority("ca.pem")),
            ("Y2Eta2V5".to_owned(), of_authority("ca-key.pem")),
        ]),
        mismatch: None,
    }));
    let operator = Operator {
        server: start(&replay).await,
        settings: Settings {
            namespace: "berth".to_owned(),
            image: "berth:test".to_owned(),
            schedulers: vec![address.clone()],
            validity: Duration::from_secs(365 * 86_400),
        },
        schedulers: Schedulers::new(None),
        cache: Cache::default(),
        metrics: Metrics::default(),
    };
    let resource = Request {
        kind: Kind::PmemCsiDeployment,
        name: recording.resource,
    };
    let (mut passes, mut outcomes) = (0, Vec::new());
    while !replay.lock().expect("not poisoned").left.is_empty() {
        let reported = replay.lock().expect("not poisoned").next_hosts();
        operator.cache.get(std::slice::from_ref(&address));
        match reported.as_deref() {
            Some("True") => {
                let read = operator
                    .schedulers
                    .read(std::slice::from_ref(&address))
                    .await;
                operator.cache.put(std::slice::from_ref(&address), read);
            }
            Some("False") => {
                operator
                    .cache
                    .put(std::slice::from_ref(&address), Ok(Inventory::default()));
            }
            Some(_) | None => {}
        }
        let outcome = operator.pass(&resource).await;
        let mismatch = replay.lock().expect("not poisoned").mismatch.take();
        assert_eq!(mismatch, None, "in pass {passes}: {outcome:?}");
        passes += 1;
        outcomes.extend(outcome);
    }
    for phase in ["Failed", "Initializing", "Running"] {
        let phase = format!("\"phase\": \"{phase}\"");
        assert!(text.contains(&phase), "no resource was in {phase}");
    }
    for expected in [Outcome::Wrote, Outcome::Clean, Outcome::Gone] {
        assert!(
            outcomes.contains(&expected),
            "{expected:?} in {passes} passes"
        );
    }
}
