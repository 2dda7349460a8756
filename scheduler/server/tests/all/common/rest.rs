//! A client of the REST API that can also send what a well-behaved one would not.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::PATIENCE;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The status line and the headers, in small letters.
    pub head: String,
    pub body: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// Sends a request as an administrator who speaks the newest version; nothing where nobody
/// answers.
pub async fn ask(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> Option<Answer> {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let head = format!(
        "X-Auth-Token: admin\r\nX-Roles: admin,service\r\nContent-Type: application/json\r\n\
         OpenStack-API-Version: placement latest\r\nContent-Length: {}\r\n",
        body.len()
    );
    send(server, method, path, &head, body.as_bytes()).await
}

/// Sends these bytes and reads until the other side closes; nothing where nobody answers.
pub async fn send(
    server: SocketAddr,
    method: &str,
    path: &str,
    head: &str,
    body: &[u8],
) -> Option<Answer> {
    let answer = tokio::time::timeout(PATIENCE, exchange(server, method, path, head, body));
    answer.await.expect("an answer in time")
}

async fn exchange(
    server: SocketAddr,
    method: &str,
    path: &str,
    head: &str,
    body: &[u8],
) -> Option<Answer> {
    let mut stream = TcpStream::connect(server).await.ok()?;
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n{head}\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    // Who refuses early does not read on; the answer tells.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8(answer).expect("text");
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}
