//! Goal: whatever one caller does, the others are served. Method: for every class of callers and every
//! resource a hostile client takes all that it gets, on real sockets, encrypted and plain; then a
//! member, a conductor, an agent and another client of its class call, and when it is gone, nothing of
//! it is left.
//!
//! The methods are those of a server that reads requests and answers them with nothing: what is
//! bounded is bounded before any method. That all programs are such servers is tested in
//! `tests/tests/all/tls/bounds.rs`.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use berth_process::bounds::{Bounds, Class, Key, Limits, Resource, Times};
use berth_process::server;
use berth_tls::authority::{self, Authority, CA, CertificateSpec, Pair};
use berth_tls::material::Protocol;
use berth_tls::{Connector, Expected, Files, Role, Tls};
use hyper::body::{Body as HttpBody, Frame};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower_service::Service;

const CHECK: &str = "grpc.health.v1.Health/Check";
const WATCH: &str = "grpc.health.v1.Health/Watch";
const FIT: &str = "berth.volume.v1.VolumeService/FitVolumes";
const VERIFY: &str = "berth.planner.v1.PlannerService/VerifyCluster";

const PATIENCE: Duration = Duration::from_secs(20);
const MESSAGE_BYTES: u32 = 64 << 10;

/// More requests than may be.
const BEYOND: usize = 3;

fn limits() -> Limits {
    Limits {
        streams: 64,
        connections: 24,
        requests: 48,
        watches: 24,
        plans: 4,
        searches: 16,
        message_bytes: MESSAGE_BYTES.into(),
        body_bytes: 1 << 20,
        times: Times::default(),
    }
}

// ---- the server --------------------------------------------------------------------------------

/// Reads requests of a service to their end.
#[derive(Clone)]
struct Reads<const SERVICE: usize>;

impl NamedService for Reads<0> {
    const NAME: &'static str = "grpc.health.v1.Health";
}
impl NamedService for Reads<1> {
    const NAME: &'static str = "berth.volume.v1.VolumeService";
}
impl NamedService for Reads<2> {
    const NAME: &'static str = "berth.planner.v1.PlannerService";
}

impl<const SERVICE: usize> Service<http::Request<Body>> for Reads<SERVICE> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut body = pin!(request.into_body());
            while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
                if let Err(status) = frame {
                    return Ok(status.into_http());
                }
            }
            Ok(Status::ok("").into_http())
        })
    }
}

struct Served {
    address: SocketAddr,
    bounds: Arc<Bounds>,
    certs: Option<Certs>,
    _serving: JoinSet<()>,
}

async fn serve(limits: Limits, certs: Option<Certs>) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = certs.as_ref().map(|certs| certs.tls(Role::Scheduler, "m1"));
    let server = server::new(tls.as_ref(), limits);
    let bounds = server.bounds().clone();
    let routes = Routes::new(Reads::<0>)
        .add_service(Reads::<1>)
        .add_service(Reads::<2>);
    let incoming = server::incoming(listener, tls, Protocol::Grpc);
    let serving = server.serve(routes, incoming, std::future::pending());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { serving.await.unwrap() });
    Served {
        address,
        bounds,
        certs,
        _serving: tasks,
    }
}

struct Certs {
    folder: TempDir,
    authority: Authority,
}

impl Certs {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pair = authority::init(folder.path(), "test", 10).unwrap();
        let authority = Authority::open(&pair.cert, &pair.key).unwrap();
        Self { folder, authority }
    }

    fn tls(&self, role: Role, name: &str) -> Tls {
        let pair = Pair::named(self.folder.path(), &format!("{role}-{name}"));
        if !pair.cert.exists() {
            let spec = CertificateSpec {
                role,
                name: name.to_owned(),
                dns: Vec::new(),
                ips: vec!["127.0.0.1".parse().unwrap()],
                validity: Duration::from_secs(3600),
            };
            self.authority.issue(&spec, &pair).unwrap();
        }
        let files = Files {
            ca: self.folder.path().join(CA),
            cert: pair.cert,
            key: pair.key,
        };
        Tls::open(files).unwrap()
    }
}

// ---- clients -----------------------------------------------------------------------------------

/// Connects from an address of this machine.
#[derive(Clone)]
struct From(Key, SocketAddr);

impl Service<Uri> for From {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self(key, server) = self.clone();
        Box::pin(async move {
            let Key::Address(source) = key else {
                panic!("{key:?}")
            };
            let socket = TcpSocket::new_v4()?;
            socket.bind((source, 0).into())?;
            Ok(TokioIo::new(socket.connect(server).await?))
        })
    }
}

/// Returns a connection of a caller of its own.
fn dial(served: &Served, key: &Key) -> Channel {
    let address = served.address;
    match (key, &served.certs) {
        (Key::Identity(role, name), Some(certs)) => {
            let tls = certs.tls(*role, name);
            let connector = Connector::new(Some(tls), Expected::AnyServer, PATIENCE);
            let url = format!("https://{address}");
            let endpoint = Endpoint::from_shared(url).unwrap();
            endpoint.connect_with_connector_lazy(connector)
        }
        (Key::Address(_), None) => {
            let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
            endpoint.connect_with_connector_lazy(From(key.clone(), address))
        }
        (key, _) => panic!("{key:?}"),
    }
}

/// A body that ends after its bytes, or never.
struct Sent {
    bytes: Option<Bytes>,
    ends: bool,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match (self.bytes.take(), self.ends) {
            (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            (None, true) => Poll::Ready(None),
            (None, false) => Poll::Pending,
        }
    }
}

/// Sends a message of which only the header arrives, unless it ends.
async fn call(mut channel: Channel, method: &str, length: u32, ends: bool) -> Result<(), Status> {
    let header = [&[0][..], &length.to_be_bytes()].concat();
    let body = Sent {
        bytes: Some(header.into()),
        ends,
    };
    let request = http::Request::post(format!("http://server/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    let unreached = |error: tonic::transport::Error| Status::from_error(error.into());
    poll_fn(|context| channel.poll_ready(context))
        .await
        .map_err(unreached)?;
    let response = channel.call(request).await.map_err(unreached)?;
    let status = Status::from_header_map(response.headers()).unwrap();
    match status.code() == Code::Ok {
        true => Ok(()),
        false => Err(status),
    }
}

fn reason(status: &Status) -> String {
    let info = status.get_details_error_info();
    info.map_or_else(|| status.to_string(), |info| info.reason)
}

/// Requests that do not end.
struct Unfinished {
    ended: mpsc::UnboundedReceiver<Result<(), Status>>,
    _tasks: JoinSet<()>,
}

impl Unfinished {
    fn send(channel: &Channel, method: &'static str, length: u32, count: usize) -> Self {
        let (end, ended) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let (channel, end) = (channel.clone(), end.clone());
            tasks.spawn(async move {
                let _ = end.send(call(channel, method, length, false).await);
            });
        }
        Self {
            ended,
            _tasks: tasks,
        }
    }

    async fn refusal(&mut self) -> Status {
        let ended = timeout(PATIENCE, self.ended.recv()).await;
        ended.expect("in time").unwrap().unwrap_err()
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

// ---- the tests ---------------------------------------------------------------------------------

/// How a resource is exhausted: what takes it, and what a request declares.
fn taking(resource: Resource) -> (&'static str, u32) {
    match resource {
        Resource::Streams | Resource::Requests | Resource::Connections => (CHECK, 1),
        Resource::Watches => (WATCH, 1),
        Resource::Plans => (VERIFY, 1),
        Resource::Searches => (FIT, 1),
        Resource::BodyBytes => (CHECK, MESSAGE_BYTES),
    }
}

/// Exhausts a resource as one caller, and checks that the others are served.
async fn exhaust(served: &Served, resource: Resource, hostile: &Key, others: &[Key]) {
    let what = format!("{resource:?} by {}", hostile.name());
    let (method, length) = taking(resource);
    let max = served.bounds.limits().each(hostile.class(), resource);
    let max = usize::try_from(max).unwrap();
    let channel = dial(served, hostile);
    let is_bytes = resource == Resource::BodyBytes;
    let units = max / if is_bytes { MESSAGE_BYTES as usize } else { 1 };
    let mut taken = Unfinished::send(&channel, method, length, units + BEYOND);
    for _ in 0..BEYOND {
        let refused = taken.refusal().await;
        assert_eq!(refused.code(), Code::ResourceExhausted, "{what}: {refused}");
        assert_eq!(reason(&refused), resource.reason(), "{what}");
        let info = refused.get_details_error_info().unwrap();
        assert_eq!(info.metadata["of"], hostile.name(), "{what}");
        assert!(!info.metadata["hint"].is_empty());
    }
    until(&what, || served.bounds.held(resource) == max as u64).await;
    for other in others {
        let answer = timeout(PATIENCE, call(dial(served, other), method, 0, true)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{what}: {} waits", other.name()));
        assert_eq!(
            answer.err().map(|e| reason(&e)),
            None,
            "{what}: {}",
            other.name()
        );
        // Messages too, where the hostile client took bytes.
        let whole = Unfinished::send(&dial(served, other), method, length, 1);
        let more = max as u64 + if is_bytes { length.into() } else { 1 };
        until(&what, || served.bounds.held(resource) == more).await;
        drop(whole);
        until(&what, || served.bounds.held(resource) == max as u64).await;
    }
    assert!(
        taken.ended.try_recv().is_err(),
        "{what}: what was taken is held"
    );
    drop((taken, channel));
    until(&what, || served.bounds.callers() == 0).await;
}

/// Opens as many connections as one caller gets.
async fn exhaust_connections(served: &Served, hostile: &Key, others: &[Key]) {
    let max = served
        .bounds
        .limits()
        .each(hostile.class(), Resource::Connections);
    let mut open = Vec::new();
    for _ in 0..max {
        let channel = dial(served, hostile);
        call(channel.clone(), CHECK, 0, true).await.unwrap();
        open.push(channel);
    }
    for _ in 0..BEYOND {
        let refused = call(dial(served, hostile), CHECK, 0, true)
            .await
            .unwrap_err();
        assert_eq!(reason(&refused), "TOO_MANY_CONNECTIONS", "{refused}");
    }
    for other in others {
        let answer = call(dial(served, other), CHECK, 0, true).await;
        assert_eq!(answer.err().map(|e| reason(&e)), None, "{}", other.name());
    }
    drop(open);
    until("the end of connections", || served.bounds.callers() == 0).await;
}

fn key(role: Role, name: &str) -> Key {
    Key::Identity(role, name.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_role_exhausts_a_server() {
    let served = serve(limits(), Some(Certs::new())).await;
    for role in Role::ALL {
        let hostile = key(role, "hostile");
        let all = [
            Role::Scheduler,
            Role::Conductor,
            Role::Agent,
            Role::Reader,
            role,
        ];
        let others = all.map(|role| key(role, "other"));
        for resource in Resource::ALL {
            let class = Class::Role(role);
            let may = |role: &Role| berth_process::access::table::may(*role, taking(resource).0);
            let others: Vec<Key> = others
                .iter()
                .filter(|key| matches!(key, Key::Identity(role, _) if may(role)))
                .cloned()
                .collect();
            // A member may take all bytes: it sends the log.
            let is_open = resource != Resource::Streams
                && !(resource == Resource::BodyBytes && role == Role::Scheduler);
            if resource == Resource::Connections {
                exhaust_connections(&served, &hostile, &others).await;
            } else if is_open && may(&role) {
                exhaust(&served, resource, &hostile, &others).await;
            }
            assert_eq!(served.bounds.callers(), 0, "{class:?} {resource:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_address_exhausts_a_server() {
    let served = serve(limits(), None).await;
    let [hostile, other] = [2, 3].map(|n| Key::Address([127, 0, 0, n].into()));
    for resource in Resource::ALL {
        let others = std::slice::from_ref(&other);
        if resource == Resource::Connections {
            exhaust_connections(&served, &hostile, others).await;
        } else if resource != Resource::Streams {
            exhaust(&served, resource, &hostile, others).await;
        }
    }
}

/// Goal: a connection has a limited number of streams; further requests wait at the client.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_connection_are_limited() {
    let limits = Limits {
        streams: 4,
        ..limits()
    };
    let served = serve(limits, None).await;
    let channel = dial(&served, &Key::Address([127, 0, 0, 2].into()));
    // Until it has read the server's settings, a client may assume what it likes.
    call(channel.clone(), CHECK, 0, true).await.unwrap();
    let mut first = Unfinished::send(&channel, CHECK, 1, 4);
    until("streams", || served.bounds.held(Resource::Requests) == 4).await;
    let mut later = Unfinished::send(&channel, CHECK, 1, 4);
    let waits = call(channel.clone(), CHECK, 0, true);
    assert!(timeout(Duration::from_millis(100), waits).await.is_err());
    assert_eq!(served.bounds.held(Resource::Requests), 4);
    assert!(first.ended.try_recv().is_err() && later.ended.try_recv().is_err());
    drop(first);
    until("further streams", || {
        served.bounds.held(Resource::Requests) == 4
    })
    .await;
    drop(later);
    call(channel, CHECK, 0, true).await.unwrap();
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Goal: connections that say nothing end: before the preface, after a part of it, and without a
/// request; and a body that does not end is refused. Method: short times.
#[tokio::test(flavor = "multi_thread")]
async fn silence_ends() {
    let time = Duration::from_millis(200);
    let times = Times {
        preface: time,
        body: time,
        idle: time,
        grace: time,
    };
    let served = serve(Limits { times, ..limits() }, None).await;
    let idle = [PREFACE, SETTINGS].concat();
    for sent in [&b""[..], &PREFACE[..10], PREFACE, &idle] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        // A reset is an end too.
        let read = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        drop(read.expect("the server closes it"));
        until("a permit is returned", || served.bounds.callers() == 0).await;
    }
    let channel = dial(&served, &Key::Address([127, 0, 0, 2].into()));
    let mut unfinished = Unfinished::send(&channel, CHECK, 9, 1);
    let refused = unfinished.refusal().await;
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(reason(&refused), "BODY_TOO_SLOW");
    // A client notices that its connection has ended, and makes another one.
    until("an idle connection ends", || served.bounds.callers() == 0).await;
    call(channel, CHECK, 0, true).await.unwrap();
}
