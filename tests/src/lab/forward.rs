//! A port on loopback behind which a port of a machine answers, for programs that are outside the lab.
//!
//! Invariant: nothing outside the machine of the tests reaches it; it accepts connections as long as it lives.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;

use super::Machine;

/// Carries bytes between the standard streams and a port, until the port closes. Arguments: address, port. A
/// process in the background has no standard input of its own.
const CARRY: &str = "exec 3<>/dev/tcp/$1/$2 4<&0; cat <&4 >&3 & cat <&3; kill $!";

/// A port on loopback.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Forward {
    /// Begins to forward connections, which leave from this machine.
    ///
    /// # Errors
    ///
    /// When there is no free port.
    pub fn start(from: &Machine, to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let ended = Arc::<AtomicBool>::default();
        let init = from.init_pid();
        let accepting = std::thread::spawn({
            let ended = ended.clone();
            move || {
                for stream in listener.incoming().flatten() {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Err(error) = carry(init, to, stream) {
                        eprintln!("a connection to {to} is not forwarded: {error}");
                    }
                }
            }
        });
        Ok(Self {
            address,
            ended,
            accepting: Some(accepting),
        })
    }

    /// Returns the port on loopback.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            // One that panicked has said so.
            let _ = accepting.join();
        }
    }
}

/// Has a process within the network of a machine carry the bytes of a connection; it ends with it.
fn carry(init: u32, to: SocketAddr, stream: TcpStream) -> std::io::Result<()> {
    let output = stream.try_clone()?;
    let mut child = std::process::Command::new("nsenter")
        .arg(format!("--target={init}"))
        .args(["--net", "--", "bash", "-c", CARRY, "bash"])
        .args([to.ip().to_string(), to.port().to_string()])
        .stdin(OwnedFd::from(stream))
        .stdout(OwnedFd::from(output))
        .spawn()?;
    std::thread::spawn(move || child.wait());
    Ok(())
}
