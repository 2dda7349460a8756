//! How many requests a gRPC server answered, by method and code, and how many are in progress.
//!
//! Not here: how long they took. A watch lasts as long as its client reads, and decisions are measured
//! where they are made.
//!
//! Invariant: every request that reached the server is counted once, when its response ends or is
//! dropped. A path that is no method of the server is counted as unknown: clients invent paths.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use berth_traces::body::{self, Kept};
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response, StatusCode};
use tower_service::Service;

use super::counters::{Count, Label as _};
use super::definition::Definition;
use super::exposition::Exposition;
use crate::bounds::{Bounds, Resource};
use crate::label;

static REQUESTS: Definition = Definition::counter(
    "berth_grpc_requests_total",
    &["service", "method", "code"],
    "Requests of gRPC that ended, by the canonical code of their status.",
);
static IN_PROGRESS: Definition = Definition::gauge(
    "berth_grpc_requests_in_progress",
    &[],
    "Requests of gRPC whose response has not ended: watches and waiting for operations among them.",
);

static HELD: Definition = Definition::gauge(
    "berth_grpc_held",
    &["resource"],
    "How much of a bounded resource the callers of the gRPC server hold together: open connections, \
     requests, watches, plans and searches, and bytes of unfinished bodies.",
);
static CALLERS: Definition = Definition::gauge(
    "berth_grpc_callers",
    &[],
    "Callers of the gRPC server that hold anything.",
);

label! {
    /// A canonical code, in the order of its numbers.
    enum Ended {
        Ok = "OK",
        Cancelled = "CANCELLED",
        Unknown = "UNKNOWN",
        InvalidArgument = "INVALID_ARGUMENT",
        DeadlineExceeded = "DEADLINE_EXCEEDED",
        NotFound = "NOT_FOUND",
        AlreadyExists = "ALREADY_EXISTS",
        PermissionDenied = "PERMISSION_DENIED",
        ResourceExhausted = "RESOURCE_EXHAUSTED",
        FailedPrecondition = "FAILED_PRECONDITION",
        Aborted = "ABORTED",
        OutOfRange = "OUT_OF_RANGE",
        Unimplemented = "UNIMPLEMENTED",
        Internal = "INTERNAL",
        Unavailable = "UNAVAILABLE",
        DataLoss = "DATA_LOSS",
        Unauthenticated = "UNAUTHENTICATED",
    }
}

impl From<Code> for Ended {
    fn from(code: Code) -> Self {
        match code {
            Code::Ok => Self::Ok,
            Code::Cancelled => Self::Cancelled,
            Code::Unknown => Self::Unknown,
            Code::InvalidArgument => Self::InvalidArgument,
            Code::DeadlineExceeded => Self::DeadlineExceeded,
            Code::NotFound => Self::NotFound,
            Code::AlreadyExists => Self::AlreadyExists,
            Code::PermissionDenied => Self::PermissionDenied,
            Code::ResourceExhausted => Self::ResourceExhausted,
            Code::FailedPrecondition => Self::FailedPrecondition,
            Code::Aborted => Self::Aborted,
            Code::OutOfRange => Self::OutOfRange,
            Code::Unimplemented => Self::Unimplemented,
            Code::Internal => Self::Internal,
            Code::Unavailable => Self::Unavailable,
            Code::DataLoss => Self::DataLoss,
            Code::Unauthenticated => Self::Unauthenticated,
        }
    }
}

/// The methods of the Container Storage Interface that a controller or a node has.
pub const CSI: &[(&str, &str)] = &[
    ("csi.v1.Identity", "GetPluginInfo"),
    ("csi.v1.Identity", "GetPluginCapabilities"),
    ("csi.v1.Identity", "Probe"),
    ("csi.v1.Controller", "CreateVolume"),
    ("csi.v1.Controller", "DeleteVolume"),
    ("csi.v1.Controller", "ControllerPublishVolume"),
    ("csi.v1.Controller", "ControllerUnpublishVolume"),
    ("csi.v1.Controller", "ValidateVolumeCapabilities"),
    ("csi.v1.Controller", "ListVolumes"),
    ("csi.v1.Controller", "GetCapacity"),
    ("csi.v1.Controller", "ControllerGetCapabilities"),
    ("csi.v1.Controller", "CreateSnapshot"),
    ("csi.v1.Controller", "DeleteSnapshot"),
    ("csi.v1.Controller", "ListSnapshots"),
    ("csi.v1.Controller", "GetSnapshot"),
    ("csi.v1.Controller", "ControllerExpandVolume"),
    ("csi.v1.Controller", "ControllerGetVolume"),
    ("csi.v1.Controller", "ControllerModifyVolume"),
    ("csi.v1.Node", "NodeStageVolume"),
    ("csi.v1.Node", "NodeUnstageVolume"),
    ("csi.v1.Node", "NodePublishVolume"),
    ("csi.v1.Node", "NodeUnpublishVolume"),
    ("csi.v1.Node", "NodeGetVolumeStats"),
    ("csi.v1.Node", "NodeExpandVolume"),
    ("csi.v1.Node", "NodeGetCapabilities"),
    ("csi.v1.Node", "NodeGetInfo"),
];

/// The service and the method of a path that names none.
const UNKNOWN: (&str, &str) = ("unknown", "unknown");

/// The requests of a server.
#[derive(Debug)]
pub struct GrpcRequests {
    /// Service and method; the last one is [`UNKNOWN`].
    methods: Vec<(&'static str, &'static str)>,
    /// Where each path, as `/berth.event.v1.EventService/Watch`, is in `methods`.
    paths: HashMap<String, usize>,
    counts: Box<[Count]>,
    in_progress: Count,
}

impl GrpcRequests {
    /// Returns the counts of a server with these methods, as pairs of service and method.
    pub fn new(methods: impl IntoIterator<Item = (&'static str, &'static str)>) -> Arc<Self> {
        let mut methods: Vec<_> = methods.into_iter().collect();
        let path = |(service, method): &(&str, &str)| format!("/{service}/{method}");
        let paths = methods
            .iter()
            .map(path)
            .enumerate()
            .map(|(index, path)| (path, index))
            .collect();
        methods.push(UNKNOWN);
        let cells = methods.len() * Ended::ALL.len();
        Arc::new(Self {
            methods,
            paths,
            counts: (0..cells).map(|_| Count::default()).collect(),
            in_progress: Count::default(),
        })
    }

    fn begin(self: &Arc<Self>, path: &str) -> Pending {
        self.in_progress.increment();
        let method = self.paths.get(path).copied();
        Pending {
            method: method.unwrap_or(self.methods.len() - 1),
            requests: self.clone(),
            ended: None,
        }
    }

    fn count(&self, method: usize, ended: Ended) -> &Count {
        &self.counts[method * Ended::ALL.len() + ended.index()]
    }

    /// Adds the series to the exposition: of methods and codes that occurred, and of unknown methods.
    pub fn expose(&self, out: &mut Exposition) {
        out.set(&IN_PROGRESS, self.in_progress.get());
        out.declare(&REQUESTS);
        for (index, (service, method)) in self.methods.iter().copied().enumerate() {
            let is_unknown = index == self.methods.len() - 1;
            for ended in Ended::ALL {
                let count = self.count(index, *ended).get();
                if count > 0 || (is_unknown && *ended == Ended::Unimplemented) {
                    out.add(&REQUESTS, [service, method, ended.as_str()], count);
                }
            }
        }
    }
}

/// Adds what the callers of a server hold together.
pub fn expose_held(bounds: &Bounds, out: &mut Exposition) {
    for resource in Resource::ALL {
        let label = match resource {
            // Those of one connection alone are bounded.
            Resource::Streams => continue,
            Resource::Connections => "connections",
            Resource::Requests => "requests",
            Resource::Watches => "watches",
            Resource::Plans => "plans",
            Resource::Searches => "searches",
            Resource::BodyBytes => "body_bytes",
        };
        out.add(&HELD, [label], bounds.held(resource));
    }
    out.set(&CALLERS, bounds.callers());
}

/// A request in progress; counted when it is dropped.
#[derive(Debug)]
struct Pending {
    requests: Arc<GrpcRequests>,
    method: usize,
    /// How it ended; absent while it has not: then its client went away.
    ended: Option<Ended>,
}

impl Kept for Pending {
    fn status(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            let code = Code::from_bytes(status.as_bytes());
            self.ended = Some(code.into());
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.requests.in_progress.decrement();
        let ended = self.ended.unwrap_or(Ended::Cancelled);
        self.requests.count(self.method, ended).increment();
    }
}

/// Counts the requests of a server.
#[derive(Clone, Debug)]
pub(crate) struct Layer(pub(crate) Option<Arc<GrpcRequests>>);

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            requests: self.0.clone(),
        }
    }
}

/// A server whose requests are counted.
#[derive(Clone, Debug)]
pub(crate) struct Counted<S> {
    inner: S,
    requests: Option<Arc<GrpcRequests>>,
}

impl<S> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Responding<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let requests = self.requests.as_ref();
        let pending = requests.map(|requests| requests.begin(request.uri().path()));
        Responding {
            inner: self.inner.call(request),
            pending,
        }
    }
}

/// A response to come.
#[derive(Debug)]
pub(crate) struct Responding<F> {
    inner: F,
    pending: Option<Pending>,
}

impl<F> Future for Responding<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(Pin::new(&mut self.inner).poll(context))?;
        let Some(mut pending) = self.pending.take() else {
            return Poll::Ready(Ok(response));
        };
        if response.status() != StatusCode::OK {
            // What it is if it states no status.
            pending.ended = Some(Ended::Unknown);
        }
        Poll::Ready(Ok(body::keeping(response, pending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Arc<GrpcRequests> {
        GrpcRequests::new([("a.A", "Get"), ("a.A", "List")])
    }

    fn text(requests: &GrpcRequests) -> String {
        let mut out = Exposition::default();
        requests.expose(&mut out);
        out.to_open_metrics()
    }

    #[test]
    fn a_request_is_counted_once_when_it_ends() {
        let requests = requests();
        let mut listed = requests.begin("/a.A/List");
        let cancelled = requests.begin("/a.A/Get");
        let invented = requests.begin("/a.A/Delete");
        assert!(text(&requests).contains("in_progress 3\n"));
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", "5".parse().unwrap());
        listed.status(&headers);
        drop((listed, cancelled, invented));
        let text = text(&requests);
        for line in [
            "in_progress 0\n",
            "{service=\"a.A\",method=\"List\",code=\"NOT_FOUND\"} 1\n",
            "{service=\"a.A\",method=\"Get\",code=\"CANCELLED\"} 1\n",
            "{service=\"unknown\",method=\"unknown\",code=\"CANCELLED\"} 1\n",
            "{service=\"unknown\",method=\"unknown\",code=\"UNIMPLEMENTED\"} 0\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("_total{").count(), 4, "{text}");
    }

    /// Goal: no method of the interface is missing. Method: the descriptors of its services.
    #[test]
    fn the_methods_of_csi_are_those_of_its_description() {
        use prost::Message as _;
        let files = prost_types::FileDescriptorSet::decode(berth_proto::DESCRIPTOR_SET).unwrap();
        let described: Vec<_> = files
            .file
            .iter()
            .filter(|file| file.package() == "csi.v1")
            .flat_map(|file| &file.service)
            .filter(|service| ["Identity", "Controller", "Node"].contains(&service.name()))
            .flat_map(|service| {
                let of = format!("csi.v1.{}", service.name());
                let methods = service.method.iter();
                methods.map(move |method| (of.clone(), method.name().to_owned()))
            })
            .collect();
        let known: Vec<_> = CSI
            .iter()
            .map(|(service, method)| ((*service).to_owned(), (*method).to_owned()))
            .collect();
        assert_eq!(known, described);
    }

    #[test]
    fn codes_keep_their_numbers() {
        for (number, ended) in Ended::ALL.iter().enumerate() {
            let code = Code::from_i32(i32::try_from(number).unwrap());
            assert_eq!(Ended::from(code), *ended);
            assert_eq!(ended.index(), number);
        }
    }
}
