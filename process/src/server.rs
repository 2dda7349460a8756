//! The gRPC server that every program starts from: its connections, what it says about itself,
//! and its end.

use std::time::Duration;

use berth_tls::material::Face;
use berth_tls::{Incoming, Tls};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic_reflection::server::{Builder, v1, v1alpha};
use tower_layer::{Identity, Stack};

use crate::access;

/// How long connections may take to end after everything else has.
const GOODBYE: Duration = Duration::from_secs(2);
/// Connections that are silent for so long are probed, and given up without an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A server behind the table of who may call what.
pub type Guarded = Server<Stack<access::Layer, Identity>>;

/// Returns a server that notices when the other end of a connection is gone, and that asks who calls
/// where that can be known.
#[must_use]
pub fn new(tls: Option<&Tls>) -> Guarded {
    Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .tcp_nodelay(true)
        .layer(access::Layer::new(tls.is_some()))
}

/// Returns what comes in through a listener: encrypted connections alone with `tls`.
#[must_use]
pub fn incoming(listener: TcpListener, tls: Option<Tls>) -> Incoming {
    Incoming::new(listener, tls, Face::Grpc)
}

/// Waits for a server that was told to stop.
pub async fn goodbye<T>(server: &mut JoinHandle<T>) {
    if !server.is_finished() && tokio::time::timeout(GOODBYE, &mut *server).await.is_err() {
        // Somebody keeps a connection busy who had time enough to notice.
        server.abort();
    }
}

/// What clients without our files ask a server about itself.
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

    /// Returns the service under its older name, which most clients still ask for.
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
        let asked = client
            .server_reflection_info(tokio_stream::once(request))
            .await;
        let answer = asked.unwrap().into_inner().message().await.unwrap();
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
