//! What a Kubernetes scheduler or API server is as a client: one connection, HTTP/1.1 over TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::Authority;

pub(crate) struct Client {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr, authority: &Authority) -> Self {
        let tls = Arc::new(authority.client());
        Self { address, tls }
    }

    /// Makes a connection to write to by hand.
    pub(crate) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_with(self.tls.clone()).await
    }

    pub(crate) async fn connect_with(
        &self,
        tls: Arc<ClientConfig>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(tls).connect(name, stream).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send("POST", path, body).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        let mut conversation = self.converse().await;
        let answer = conversation.send(method, path, body.into()).await;
        conversation.end().await;
        answer
    }

    /// Makes a connection for any number of requests.
    pub(crate) async fn converse(&self) -> Conversation {
        let stream = TokioIo::new(self.connect().await.unwrap());
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        Conversation { sender, connection }
    }
}

/// A connection, one request after the other.
pub(crate) struct Conversation {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
}

impl Conversation {
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: Bytes) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .unwrap();
        self.sender.ready().await.unwrap();
        let answer = self.sender.send_request(request).await.unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status.as_u16(),
            kind: head.headers["content-type"].to_str().unwrap().to_owned(),
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(crate) async fn end(self) {
        drop(self.sender);
        self.connection.await.unwrap();
    }
}
