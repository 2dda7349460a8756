//! The gRPC server that every program starts from: its connections, its reflection service, and
//! its shutdown.

use std::time::Duration;

use berth_tls::material::Protocol;
use berth_tls::{Incoming, Tls};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic_reflection::server::{Builder, v1, v1alpha};
use tower_layer::{Identity, Stack};

use crate::access;

/// How long connections may take to end after everything else has.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that are silent for so long are probed, and given up without an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A server behind the access table.
pub type AuthorizedServer = Server<Stack<access::Layer, Identity>>;

/// Returns a server that detects dead connections, and that authorizes callers where connections use
/// mutual TLS.
#[must_use]
pub fn new(tls: Option<&Tls>) -> AuthorizedServer {
    Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .tcp_nodelay(true)
        .layer(access::Layer::new(tls.is_some()))
}

/// Returns what comes in through a listener: encrypted connections alone with `tls`.
#[must_use]
pub fn incoming(listener: TcpListener, tls: Option<Tls>) -> Incoming {
    Incoming::new(listener, tls, Protocol::Grpc)
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
        let server = new(None).add_service(reflection.v1());
        let serving = tokio::spawn(server.serve_with_incoming(incoming(listener, None)));
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
