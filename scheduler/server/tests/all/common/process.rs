//! Members as processes, which can be killed.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use berth_proto::cluster::v1::GetClusterStatusRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::member::Role;
use tonic::transport::Channel;

use super::{PATIENCE, eventually};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_berth-scheduler");

/// A member as a process; killed when dropped.
pub struct Process {
    child: Child,
}

impl Process {
    pub fn spawn(directory: &Path, address: &str, more: &[&str]) -> Self {
        Self::run(Command::new(PROGRAM), directory, address, more)
    }

    /// Starts a command that becomes the program.
    pub fn run(mut command: Command, directory: &Path, address: &str, more: &[&str]) -> Self {
        let child = command
            .args(["--listen", address, "--log-filter", "error", "--data-dir"])
            .arg(directory)
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        Self { child }
    }

    /// Fails the test, with what the program said, when it has ended.
    #[track_caller]
    pub fn goes_on(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child") {
            panic!("a member ended with {status}: {}", self.said());
        }
    }

    /// Stops it as an operator does, and waits for its end. Returns what it said.
    pub async fn terminate(self) -> String {
        self.stop("-TERM").await
    }

    /// Stops it by a signal, and waits for its end. Returns what it said.
    pub async fn stop(self, signal: &str) -> String {
        self.signal(signal);
        let ended = tokio::task::spawn_blocking(|| self.ended()).await;
        let (status, said) = ended.expect("it ends");
        assert_eq!(status, Some(0), "{said}");
        said
    }

    /// Halts it; it can only be killed from here on.
    pub fn halt(&self) {
        self.signal("-STOP");
    }

    pub fn signal(&self, signal: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        let stderr = self.child.stderr.as_mut().expect("it is piped");
        stderr.read_to_string(&mut said).expect("text");
        said
    }

    /// Waits for its end; returns the exit status and what it said.
    pub fn ended(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return (status.code(), self.said());
            }
            assert!(Instant::now() < deadline, "the program goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL; already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns addresses that nobody listens on.
///
/// Linux takes all of 127.0.0.0/8 for loopback: each call has an address of its own, so that no
/// outgoing connection and no other test takes a port before its process listens, or while it is
/// down. Elsewhere all share 127.0.0.1.
pub fn addresses(count: usize) -> Vec<String> {
    static CALLS: AtomicU8 = AtomicU8::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let [_, _, middle, low] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 1 + call % 253, middle, low);
    let usable = TcpListener::bind((own, 0)).is_ok();
    let ip = if usable { own } else { Ipv4Addr::LOCALHOST };
    let listeners: Vec<_> = (0..count)
        .map(|_| TcpListener::bind((ip, 0)).expect("a port"))
        .collect();
    let address = |l: &TcpListener| l.local_addr().expect("an address").to_string();
    listeners.iter().map(address).collect()
}

pub async fn reach(address: &str) -> Option<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.ok()
}

/// Waits until a member knows of so many voters.
pub async fn voters(address: &str, wanted: usize) {
    eventually("the members' agreement", || knows(address, wanted)).await;
}

/// Returns something if a member knows of so many voters, and of a leader.
pub async fn knows(address: &str, wanted: usize) -> Option<()> {
    let mut client = ClusterServiceClient::new(reach(address).await?);
    let status = client.get_cluster_status(GetClusterStatusRequest {}).await;
    let status = status.ok()?.into_inner();
    let voters = status.members.iter().filter(|m| m.role() == Role::Voter);
    (voters.count() == wanted && status.leader_id != 0).then_some(())
}
