//! The gRPC server of every program: its connections, its reflection service, and its shutdown.
//!
//! ```text
//!   Incoming ─▶ connection of a caller ─▶ counts ─▶ conventions ─▶ access ─▶ bounds ─▶ spans ─▶ routes
//!               (one server of tonic each: streams and idle time by its class)
//! ```
//!
//! Invariant: each connection is counted for its caller. One too many is answered with the reason, as
//! far as that costs little, and is closed.

mod connection;
mod conventions;
mod traces;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use berth_tls::material::Protocol;
use berth_tls::server::Transport;
use berth_tls::{Incoming, Tls, server as tls_server};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_reflection::server::{Builder, v1, v1alpha};

use crate::access;
use crate::bounds::layer::{Layer, OpenRequests};
use crate::bounds::{Bounds, Caller, Key, Limits, OpenFiles, Resource};
use crate::metrics::grpc::{self, GrpcRequests};
use crate::run::BoxFuture;
use connection::{Accepted, Connection};

pub use conventions::UNDECODABLE_REQUEST;

/// How long connections may take to end after everything else has.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that are silent for so long are probed, and given up without an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How long a connection that is refused may take to send a request, for the reason.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// How many connections are being refused with a reason; further ones are closed at once.
const REFUSED_MAX: usize = 32;
/// How large the headers of a request may be, as the server announces it.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Streams that a client resets before they are accepted, and that the server resets for its client's
/// faults, until the connection is closed.
const CLIENT_RESETS_MAX: usize = 20;
const SERVER_RESETS_MAX: usize = 1024;

/// The result of serving.
pub type Served = Result<(), tonic::transport::Error>;

/// A gRPC server without its services.
#[derive(Clone, Debug)]
pub struct Server {
    bounds: Arc<Bounds>,
    authenticated: bool,
    refusing: Arc<Semaphore>,
    requests: Option<Arc<GrpcRequests>>,
}

/// Returns the usual limits of a server of this process.
#[must_use]
pub fn limits() -> Limits {
    Limits::new(OpenFiles::of_process().connections)
}

/// Returns a server that authorizes callers where connections use mutual TLS.
#[must_use]
pub fn new(tls: Option<&Tls>, limits: Limits) -> Server {
    Server {
        bounds: Bounds::new(limits),
        authenticated: tls.is_some(),
        refusing: Arc::new(Semaphore::new(REFUSED_MAX)),
        requests: None,
    }
}

/// Returns what comes in through a listener: encrypted connections alone with `tls`.
#[must_use]
pub fn incoming(listener: TcpListener, tls: Option<Tls>, protocol: Protocol) -> Incoming {
    let transport = tls.map_or(Transport::Plain, |tls| Transport::MutualTls(tls, protocol));
    Incoming::bounded(listener, transport, handshakes())
}

/// Returns the limits of clients that are not authenticated yet.
#[must_use]
pub fn handshakes() -> tls_server::Limits {
    let max = usize::try_from(OpenFiles::of_process().handshakes).unwrap_or(usize::MAX);
    tls_server::Limits {
        handshakes_max: max,
        handshakes_per_source_max: max.div_ceil(2),
        ..tls_server::Limits::default()
    }
}

impl Server {
    /// Counts its requests there.
    #[must_use]
    pub fn counted(self, requests: Arc<GrpcRequests>) -> Self {
        Self {
            requests: Some(requests),
            ..self
        }
    }

    /// Returns what its callers hold.
    #[must_use]
    pub fn bounds(&self) -> &Arc<Bounds> {
        &self.bounds
    }

    /// Serves connections until `closing` is ready, and the requests in progress to their end.
    pub fn serve(
        self,
        routes: Routes,
        incoming: Incoming,
        closing: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, Served> {
        Box::pin(self.serve_all(routes, incoming, Box::pin(closing)))
    }

    /// As [`Self::serve`], for a socket of this machine.
    pub fn serve_socket(
        self,
        routes: Routes,
        incoming: UnixListenerStream,
        closing: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, Served> {
        Box::pin(self.serve_all(routes, incoming, Box::pin(closing)))
    }

    /// As [`Self::serve`], for clients of this process.
    pub fn serve_inside(
        self,
        routes: Routes,
        incoming: ReceiverStream<io::Result<UnixStream>>,
        closing: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, Served> {
        Box::pin(self.serve_all(routes, incoming, Box::pin(closing)))
    }

    async fn serve_all<S: Accepted>(
        self,
        routes: Routes,
        incoming: impl Stream<Item = io::Result<S>> + Send,
        mut closing: BoxFuture<'static, ()>,
    ) -> Served {
        let routes = routes.prepare();
        let stopping = CancellationToken::new();
        // Where this future is dropped, no connection is left open.
        let killed = CancellationToken::new();
        let _kill = killed.clone().drop_guard();
        let mut connections = JoinSet::new();
        {
            let mut incoming = pin!(incoming);
            loop {
                let accepted = tokio::select! {
                    () = &mut closing => break,
                    Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                    accepted = incoming.next() => accepted,
                };
                match accepted {
                    Some(Ok(stream)) => {
                        let (stopping, closed) = (stopping.clone(), killed.child_token());
                        let served = self.clone().admit(stream, routes.clone(), stopping, closed);
                        connections.spawn(served);
                    }
                    Some(Err(error)) => tracing::debug!(%error, "accepting a connection failed"),
                    None => break,
                }
            }
            // Here it stops listening: a client that comes while others end is refused at once.
        }
        stopping.cancel();
        while connections.join_next().await.is_some() {}
        Ok(())
    }

    /// Serves one connection, if its caller may have one more.
    async fn admit<S: Accepted>(
        self,
        stream: S,
        routes: Routes,
        stopping: CancellationToken,
        closed: CancellationToken,
    ) {
        let caller = self.bounds.caller(Key::of(&stream.peer()));
        let ended = CancellationToken::new();
        let preface = self.bounds.limits().times.preface;
        let connect =
            |permit| Connection::new(stream, preface, permit, closed.clone(), ended.clone());
        match caller.acquire(Resource::Connections, 1) {
            Ok(permit) => {
                let open = OpenRequests::default();
                let idle = self.bounds.limits().idle(caller.class());
                let idle = wait_idle(open.subscribe(), idle);
                let connection = connect(Some(permit));
                let end = async {
                    tokio::select! {
                        () = stopping.cancelled() => End::Stopping,
                        () = ended.cancelled() => End::Ended,
                        () = idle => End::Closing,
                    }
                };
                let layer = Layer::new(caller.clone(), open);
                self.run(connection, layer, &caller, routes, end, &closed)
                    .await;
            }
            Err(refused) => {
                let status = refused.to_status();
                caller.log(&status);
                let Ok(_slot) = self.refusing.try_acquire() else {
                    return;
                };
                let connection = connect(None);
                let end = async {
                    tokio::select! {
                        () = ended.cancelled() => End::Ended,
                        () = sleep(REFUSAL_TIME) => End::Closing,
                    }
                };
                let layer = Layer::refusing(status);
                self.run(connection, layer, &caller, routes, end, &closed)
                    .await;
            }
        }
    }

    /// Serves one connection until it ends, or is to end.
    async fn run<S: Accepted>(
        &self,
        connection: Connection<S>,
        layer: Layer,
        caller: &Caller,
        routes: Routes,
        end: impl Future<Output = End>,
        closed: &CancellationToken,
    ) {
        let streams = u32::try_from(caller.max(Resource::Streams)).unwrap_or(u32::MAX);
        let server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .max_concurrent_streams(streams)
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            // tonic's default of both is no limit.
            .http2_max_pending_accept_reset_streams(Some(CLIENT_RESETS_MAX))
            .http2_max_local_error_reset_streams(Some(SERVER_RESETS_MAX))
            .layer(grpc::Layer(self.requests.clone()))
            .layer(conventions::Layer)
            .layer(access::Layer::new(self.authenticated))
            .layer(layer)
            .layer(traces::Layer);
        let overdue = CancellationToken::new();
        let signal = async {
            match end.await {
                End::Closing => overdue.cancel(),
                End::Stopping | End::Ended => {}
            }
        };
        // Its client may not read that it is to end.
        let close = async {
            overdue.cancelled().await;
            sleep(self.bounds.limits().times.grace).await;
            closed.cancel();
            std::future::pending::<()>().await;
        };
        let one = tokio_stream::once(Ok::<_, io::Error>(connection));
        let one = one.chain(tokio_stream::pending());
        tokio::select! {
            served = server.serve_with_incoming_shutdown(routes, one, signal) => {
                if let Err(error) = served {
                    tracing::debug!(%error, "a connection failed");
                }
            }
            () = close => {}
        }
    }
}

/// Why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All are to end, as soon as their requests have.
    Stopping,
    /// It has ended.
    Ended,
    /// This one is to end.
    Closing,
}

/// Waits until no request was in progress for so long.
async fn wait_idle(mut open: watch::Receiver<usize>, time: Option<Duration>) {
    let Some(time) = time else {
        return std::future::pending().await;
    };
    loop {
        if open.wait_for(|open| *open == 0).await.is_err() {
            // Its layer is gone, and the connection with it.
            return std::future::pending().await;
        }
        tokio::select! {
            () = sleep(time) => return,
            changed = open.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
        }
    }
}

/// Waits for a server that is stopping, and aborts it after a timeout.
pub async fn join_or_abort<T>(server: &mut JoinHandle<T>) {
    if !server.is_finished()
        && tokio::time::timeout(SHUTDOWN_TIMEOUT, &mut *server)
            .await
            .is_err()
    {
        // A client keeps a connection busy although it had time to notice.
        server.abort();
    }
}

/// Server reflection, for clients without the .proto files.
#[derive(Clone, Copy, Debug)]
pub struct Reflection {
    /// All files of all programs.
    pub descriptors: &'static [u8],
    /// The names of the services that this program serves: only these are listed.
    pub served: &'static [&'static str],
}

impl Reflection {
    fn builder(self) -> Builder<'static> {
        let described = Builder::configure()
            .register_encoded_file_descriptor_set(self.descriptors)
            // What a refusal carries besides its message; without it clients show bytes.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET);
        let served = self.served.iter().copied();
        served.fold(described, Builder::with_service_name)
    }

    /// Returns the service.
    ///
    /// # Panics
    ///
    /// When the descriptors are unsound.
    #[must_use]
    pub fn v1(self) -> v1::ServerReflectionServer<impl v1::ServerReflection> {
        let built = self.builder().build_v1();
        built.expect("our own descriptors are sound")
    }

    /// Returns the service under its older name, which most clients still use.
    ///
    /// # Panics
    ///
    /// When the descriptors are unsound.
    #[must_use]
    pub fn v1alpha(self) -> v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection> {
        let built = self.builder().build_v1alpha();
        built.expect("our own descriptors are sound")
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use prost::Message as _;
    use prost_types::FileDescriptorProto;
    use tonic::transport::Endpoint;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    use super::*;
    use crate::listening;

    /// Returns the names of the messages in the files that describe a symbol.
    async fn described(address: SocketAddr, symbol: &str) -> Vec<String> {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut client = ServerReflectionClient::new(channel.connect().await.unwrap());
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::FileContainingSymbol(symbol.to_owned())),
        };
        let response = client
            .server_reflection_info(tokio_stream::once(request))
            .await;
        let answer = response.unwrap().into_inner().message().await.unwrap();
        let Some(MessageResponse::FileDescriptorResponse(files)) =
            answer.and_then(|a| a.message_response)
        else {
            return Vec::new();
        };
        let files = files.file_descriptor_proto.into_iter();
        files
            .map(|file| FileDescriptorProto::decode(&*file).unwrap())
            .flat_map(|file| file.message_type)
            .filter_map(|message| message.name)
            .collect()
    }

    /// Goal: a client without our files, as grpcurl, can read what a refusal carries.
    #[tokio::test]
    async fn the_details_of_refusals_are_described() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listener, address) = listening::bind(any).await.unwrap();
        let reflection = Reflection {
            descriptors: &[],
            served: &[],
        };
        let incoming = incoming(listener, None, Protocol::Grpc);
        let routes = Routes::new(reflection.v1());
        let serving = new(None, limits()).serve(routes, incoming, std::future::pending());
        let serving = tokio::spawn(serving);
        for detail in ["ErrorInfo", "Help", "ResourceInfo"] {
            let messages = described(address, &format!("google.rpc.{detail}")).await;
            assert!(
                messages.iter().any(|m| m == detail),
                "{detail}: {messages:?}"
            );
        }
        serving.abort();
    }
}
