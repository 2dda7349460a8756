//! A collector of traces: it accepts spans by OTLP and keeps them for the test, or refuses them, or
//! never answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1 as wire;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What a collector does with spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Keeps them.
    Accepts,
    /// Answers with an error.
    Refuses,
    /// Accepts connections and calls, and never answers.
    Stalls,
}

/// A span as a program sent it. Identities are hexadecimal digits.
#[derive(Clone, Debug)]
pub struct SeenSpan {
    /// The program, as `berth-scheduler`.
    pub program: String,
    /// Which of several.
    pub instance: String,
    /// The trace.
    pub trace: String,
    /// The span.
    pub id: String,
    /// Its parent; empty for a root.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// Its attributes as text.
    pub attributes: BTreeMap<String, String>,
    /// The names of its events.
    pub events: Vec<String>,
    /// Trace and span of each link.
    pub links: Vec<(String, String)>,
    /// Whether its status is an error.
    pub failed: bool,
    /// When it began, in nanoseconds.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
}

#[derive(Clone)]
struct Service {
    manner: Manner,
    seen: Arc<Mutex<Vec<SeenSpan>>>,
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        match self.manner {
            Manner::Accepts => {}
            Manner::Refuses => return Err(Status::resource_exhausted("the collector is full")),
            Manner::Stalls => return std::future::pending().await,
        }
        let resources = request.into_inner().resource_spans;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for resource in resources {
            let of = text(resource.resource.unwrap_or_default().attributes);
            let scopes = resource.scope_spans.into_iter();
            seen.extend(
                scopes
                    .flat_map(|scope| scope.spans)
                    .map(|span| read(&of, span)),
            );
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector in a thread of its own; it ends when it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<SeenSpan>>>,
    _runtime: Runtime,
}

impl Collector {
    /// Starts a collector on loopback.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    #[must_use]
    pub fn start(manner: Manner) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listening = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listening.expect("a port on loopback");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::<Mutex<Vec<SeenSpan>>>::default();
        let service = Service {
            manner,
            seen: seen.clone(),
        };
        let server = Server::builder().add_service(TraceServiceServer::new(service));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self {
            address,
            seen,
            _runtime: runtime,
        }
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all spans that it has.
    #[must_use]
    pub fn seen(&self) -> Vec<SeenSpan> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// Returns the spans of a trace that it has.
    #[must_use]
    pub fn trace(&self, trace: &str) -> Tree {
        let mut spans = self.seen();
        spans.retain(|span| span.trace == trace);
        spans.sort_by_key(|span| (span.begun, span.ended));
        Tree { spans }
    }
}

/// The spans of a trace, in the order in which they began.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The spans.
    pub spans: Vec<SeenSpan>,
}

impl Tree {
    /// Returns the root, if this is one tree: one span without a parent, and the parent of every other
    /// one among the spans.
    ///
    /// # Errors
    ///
    /// What is missing or too many.
    pub fn root(&self) -> Result<&SeenSpan, String> {
        let ids: BTreeSet<&str> = self.spans.iter().map(|span| span.id.as_str()).collect();
        if ids.len() != self.spans.len() {
            return Err(format!("a span came twice:\n{self:#?}"));
        }
        let mut roots = self.spans.iter().filter(|span| span.parent.is_empty());
        let (Some(root), None) = (roots.next(), roots.next()) else {
            return Err(format!("there is no single root:\n{}", self.flat()));
        };
        let is_orphan = |span: &&SeenSpan| !span.parent.is_empty() && !ids.contains(&*span.parent);
        match self.spans.iter().find(is_orphan) {
            Some(orphan) => Err(format!("{} has no parent:\n{}", orphan.name, self.flat())),
            None => Ok(root),
        }
    }

    /// Returns the spans of this name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a SeenSpan> {
        self.spans.iter().filter(move |span| span.name == name)
    }

    /// Returns the parent of a span.
    #[must_use]
    pub fn parent(&self, span: &SeenSpan) -> Option<&SeenSpan> {
        self.spans.iter().find(|parent| parent.id == span.parent)
    }

    /// Returns the programs that sent spans.
    #[must_use]
    pub fn programs(&self) -> BTreeSet<&str> {
        self.spans
            .iter()
            .map(|span| span.program.as_str())
            .collect()
    }

    /// Returns the tree as text: a line for each span, indented, with its program.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for root in self.spans.iter().filter(|span| span.parent.is_empty()) {
            self.write(&mut text, root, 0);
        }
        text
    }

    fn write(&self, text: &mut String, span: &SeenSpan, depth: usize) {
        let name = format!("{:indent$}{}", "", span.name, indent = 2 * depth);
        let program = span.program.trim_start_matches("berth-");
        let ms = (span.ended - span.begun) as f64 / 1e6;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<70} {ms:>8.1} ms  {program} {}", span.instance);
        for child in self.spans.iter().filter(|child| child.parent == span.id) {
            self.write(text, child, depth + 1);
        }
    }

    fn flat(&self) -> String {
        let line = |span: &SeenSpan| {
            let SeenSpan {
                program,
                id,
                parent,
                name,
                ..
            } = span;
            format!("{id} of {parent:16} {program} {name}\n")
        };
        self.spans.iter().map(line).collect()
    }
}

fn read(of: &BTreeMap<String, String>, span: wire::Span) -> SeenSpan {
    let program = |key| of.get(key).cloned().unwrap_or_default();
    let links = span.links.iter();
    SeenSpan {
        program: program("service.name"),
        instance: program("service.instance.id"),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name,
        attributes: text(span.attributes),
        events: span.events.into_iter().map(|event| event.name).collect(),
        links: links.map(|l| (hex(&l.trace_id), hex(&l.span_id))).collect(),
        failed: span.status.is_some_and(|status| status.code == 2),
        begun: span.start_time_unix_nano,
        ended: span.end_time_unix_nano,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let value = |attribute: KeyValue| {
        let value = match attribute.value.and_then(|value| value.value) {
            Some(Value::StringValue(text)) => text,
            Some(Value::BoolValue(flag)) => flag.to_string(),
            Some(Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        };
        (attribute.key, value)
    };
    attributes.into_iter().map(value).collect()
}
