//! A server that answers every method of every package with a response of the requested shape.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use prost_reflect::DescriptorPool;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;

use super::shape::{HOSTILE, Key, Shape};

/// What the server does, and what it has sent.
pub(super) struct State {
    pub(super) shape: Shape,
    /// Refuses every call with this status instead.
    pub(super) refusal: Option<Status>,
    /// How many operations were begun, and which of them is refused with this status.
    pub(super) begun: usize,
    pub(super) refused_begin: Option<(usize, Status)>,
    /// The strings of all responses since it was emptied.
    pub(super) sent: BTreeSet<Key>,
    /// The messages of all responses so far.
    pub(super) responses: BTreeSet<String>,
}

/// The server's behaviour, shared by its services.
#[derive(Clone)]
pub(super) struct Fake {
    pub(super) state: Arc<Mutex<State>>,
    pool: DescriptorPool,
}

impl Fake {
    pub(super) fn new(address: String) -> Self {
        let shape = Shape {
            hostile: BTreeSet::new(),
            behind: HOSTILE.to_owned(),
            round: 0,
            address,
        };
        let state = State {
            shape,
            refusal: None,
            begun: 0,
            refused_begin: None,
            sent: BTreeSet::new(),
            responses: BTreeSet::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            pool: DescriptorPool::decode(berth_proto::DESCRIPTOR_SET).expect("descriptors"),
        }
    }

    /// Serves until the process ends.
    pub(super) async fn serve(self, listener: tokio::net::TcpListener) {
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let server = services(tonic::transport::Server::builder(), self);
        server
            .serve_with_incoming(incoming)
            .await
            .expect("a server");
    }

    fn respond(&self, path: &str) -> Response<Body> {
        let mut state = self.state.lock().unwrap();
        if let Some(status) = &state.refusal {
            return status.clone().into_http();
        }
        if path.contains(".ConductorService/") && !path.ends_with("/GetServiceInfo") {
            let number = state.begun;
            state.begun += 1;
            if let Some((_, status)) = state.refused_begin.take_if(|(at, _)| *at == number) {
                return status.into_http();
            }
        }
        let (service, method) = path[1..].split_once('/').expect("a path of gRPC");
        let service = self
            .pool
            .get_service_by_name(service)
            .expect("a service of ours");
        let method = service
            .methods()
            .find(|m| m.name() == method)
            .expect("its method");
        let (message, keys) = state.shape.response(&method.output());
        state.sent.extend(keys);
        state
            .responses
            .insert(method.output().full_name().to_owned());
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).expect("a short message"));
        framed.extend_from_slice(&message);
        // A command that watches without end ends with the stream that fails.
        let is_endless = ["Watch", "WatchResourceProviders"].contains(&method.name());
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            HeaderValue::from_static(if is_endless { "10" } else { "0" }),
        )]);
        let body = Full::new(framed.freeze()).with_trailers(ready(Some(Ok(trailers))));
        Response::builder()
            .header("content-type", "application/grpc")
            .body(Body::new(body.map_err(|never: Infallible| match never {})))
            .expect("a response")
    }
}

/// A service by its number, since its name is a constant.
#[derive(Clone)]
struct Numbered<const N: usize>(Fake);

impl<const N: usize> Service<Request<Body>> for Numbered<N> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(self.0.respond(request.uri().path())))
    }
}

macro_rules! services {
    ($($number:literal = $name:literal,)*) => {
        $(impl NamedService for Numbered<$number> {
            const NAME: &'static str = $name;
        })*

        fn services(
            mut server: tonic::transport::Server,
            fake: Fake,
        ) -> tonic::transport::server::Router {
            server.add_routes(tonic::service::Routes::default())
                $(.add_service(Numbered::<$number>(fake.clone())))*
        }
    };
}

services! {
    0 = "berth.host.v1.HostService",
    1 = "berth.placement.v1.PlacementService",
    2 = "berth.placement.v1.CatalogService",
    3 = "berth.placement.v1.ImportService",
    4 = "berth.scheduler.v1.SchedulerService",
    5 = "berth.scheduler.v1.MoveService",
    6 = "berth.scheduler.v1.PowerService",
    7 = "berth.policy.v1.PolicyService",
    8 = "berth.policy.v1.AggregateService",
    9 = "berth.policy.v1.ServerGroupService",
    10 = "berth.planner.v1.PlannerService",
    11 = "berth.operation.v1.OperationService",
    12 = "berth.event.v1.EventService",
    13 = "berth.audit.v1.AuditService",
    14 = "berth.conductor.v1.ConductorService",
    15 = "berth.cluster.v1.ClusterService",
    16 = "berth.volume.v1.VolumeService",
    17 = "berth.log.v1.LogService",
    18 = "berth.image.v1.ImageService",
}
