//! Connections within one process: a client and a server that have a pair of sockets between them, and no
//! address that another program could connect to.
//!
//! Not here: certificates. Both ends are the same program.
//!
//! Invariant: a connector of this kind opens no socket of the network, whatever the address it is given.

use std::io;

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Connections that may wait for the server to accept them.
const WAITING_MAX: usize = 16;

/// The end of the clients. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Inside {
    accepting: mpsc::Sender<io::Result<UnixStream>>,
}

impl Inside {
    /// Returns the end of the clients, and what comes in at the server. Where that is dropped, every
    /// connection is refused.
    #[must_use]
    pub fn pair() -> (Self, ReceiverStream<io::Result<UnixStream>>) {
        let (accepting, accepted) = mpsc::channel(WAITING_MAX);
        (Self { accepting }, ReceiverStream::new(accepted))
    }

    /// Returns the end of clients that reach no server.
    #[must_use]
    pub fn nowhere() -> Self {
        Self::pair().0
    }

    /// Connects to the server.
    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        let (client, server) = UnixStream::pair()?;
        let sent = self.accepting.send(Ok(server)).await;
        sent.map_err(|_| {
            io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "no server serves in this process",
            )
        })?;
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_stream::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn both_ends_are_connected_as_long_as_there_is_a_server() {
        let (inside, mut incoming) = Inside::pair();
        let mut client = inside.connect().await.expect("a connection");
        let mut server = incoming.next().await.expect("accepted").expect("a socket");
        client.write_all(b"x").await.expect("sent");
        assert_eq!(server.read_u8().await.expect("received"), b'x');
        drop(incoming);
        let refused = inside.connect().await.expect_err("no server");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(Inside::nowhere().connect().await.is_err());
    }
}
