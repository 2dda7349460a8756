//! A client of Placement's REST API: one connection, one request after the other.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// What to ask for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
}

impl Ask {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            body: None,
        }
    }

    pub(crate) fn with(method: Method, path: impl Into<String>, body: &Value) -> Self {
        Self {
            method,
            path: path.into(),
            body: Some(Bytes::from(body.to_string())),
        }
    }

    /// Makes something that needs no words, as a trait.
    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self {
            method: Method::PUT,
            path: path.into(),
            body: None,
        }
    }
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Returns the body of a 2xx as JSON; null where there is none.
    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        ensure!(
            self.status.is_success(),
            "the server answered {}: {}",
            self.status,
            String::from_utf8_lossy(&self.body[..self.body.len().min(500)])
        );
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// A connection, made anew when the server has closed it.
pub(crate) struct Client {
    address: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            connection: None,
        }
    }

    /// Asks, and reads the whole answer.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> anyhow::Result<Answer> {
        let usable = self.connection.as_ref().is_some_and(|c| !c.is_closed());
        if !usable {
            self.connection = Some(connect(&self.address).await?);
        }
        let connection = self.connection.as_mut().expect("just made");
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(&ask.path)
            .header("host", &self.address)
            .header("x-auth-token", "admin")
            .header("openstack-api-version", "placement 1.39")
            .header("accept", "application/json");
        if ask.body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Full::new(ask.body.clone().unwrap_or_default()))?;
        let what = || format!("{} {}", ask.method, ask.path);
        connection.ready().await.with_context(what)?;
        let response = connection.send_request(request).await.with_context(what)?;
        Ok(Answer {
            status: response.status(),
            body: response.into_body().collect().await?.to_bytes(),
        })
    }
}

async fn connect(address: &str) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address)
        .await
        .with_context(|| format!("nothing listens at {address}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends with the sender; what goes wrong with it, the sender tells.
    tokio::spawn(connection);
    Ok(sender)
}
