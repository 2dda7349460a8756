//! Members in this process whose replicas can be made to stand still, and which can be stopped,
//! killed and started again at their addresses.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use berth_process::Listening;
use berth_replication::runtime::Handle;
use berth_scheduler::{Error, Machine, Profile, Start};
use berth_state::State;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use crate::common::process::addresses;
use crate::common::rest::ask;
use crate::common::{Member, config, eventually};

/// Where the members are reached, and the time that they give to a request.
pub struct Addresses {
    pub grpc: Vec<String>,
    pub rest: Vec<SocketAddr>,
    pub timeout: Duration,
}

impl Addresses {
    /// Returns a connection to a member, which is made with the first request.
    pub fn channel(&self, number: usize) -> Channel {
        let url = format!("http://{}", self.grpc[number]);
        Endpoint::from_shared(url)
            .expect("an address")
            .connect_lazy()
    }
}

/// Members of one cluster; those that are not there were stopped.
pub struct World {
    directory: TempDir,
    pub addresses: Arc<Addresses>,
    members: Vec<Option<Member>>,
}

/// Keeps the task of a member's replica from going on until it is dropped: the member listens and
/// takes requests, and neither decides, acknowledges nor sends heartbeats.
pub struct Stall {
    _release: mpsc::Sender<()>,
}

impl Stall {
    async fn of(handle: &Handle<Machine>) -> Self {
        let (release, released) = mpsc::channel::<()>();
        let (begin, begun) = oneshot::channel();
        let handle = handle.clone();
        tokio::spawn(async move {
            // It runs in the replica's task.
            let stand = move |_: &_| {
                let _ = begin.send(());
                let _ = tokio::task::block_in_place(|| released.recv());
            };
            let _ = handle.read_stale(stand).await;
        });
        begun.await.expect("the replica takes requests");
        Self { _release: release }
    }
}

impl World {
    /// Starts a cluster and waits until all of its members vote.
    pub async fn start(count: usize, timeout: Duration) -> Self {
        let mut grpc = addresses(2 * count);
        let rest = grpc.split_off(count);
        let rest = rest.iter().map(|a| a.parse().expect("an address"));
        let mut world = Self {
            directory: tempfile::tempdir().expect("a directory"),
            addresses: Arc::new(Addresses {
                rest: rest.collect(),
                grpc,
                timeout,
            }),
            members: Vec::new(),
        };
        for number in 0..count {
            let start = match number {
                0 => Start::Bootstrap,
                _ => Start::Join(vec![world.addresses.grpc[0].clone()]),
            };
            let member = world.spawn(number, start).await;
            world.members.push(Some(member.expect("the member starts")));
        }
        let voters = || async {
            let status = world.handle(0).status().await?;
            (status.membership.voters.len() == count).then_some(())
        };
        eventually("the members' votes", voters).await;
        world
    }

    async fn spawn(&self, number: usize, start: Start) -> Result<Member, Error> {
        let directory = self.directory.path().join(number.to_string());
        let mut config = config(&directory, start);
        let timeout = self.addresses.timeout.as_millis();
        config.listening = Listening::new(&self.addresses.grpc[number]);
        config.placement_listen = Some(self.addresses.rest[number].to_string());
        config.placement_profile = Some(Profile::OpenPolicy);
        config.request_timeout_ms = u64::try_from(timeout).expect("short");
        // Elections take longer than a hasty request has, and less than a patient one.
        config.raft_tick_ms = 50;
        Member::try_start(config).await
    }

    /// Stops a member as SIGTERM would.
    pub async fn stop(&mut self, number: usize) {
        let member = self.members[number].take().expect("it runs");
        member.stop().await.expect("it ends well");
    }

    /// Ends a member's tasks without a goodbye.
    pub async fn kill(&mut self, number: usize) {
        self.members[number].take().expect("it runs").kill().await;
    }

    /// Starts the members again that were stopped, once their directories are free.
    pub async fn restart(&mut self) {
        for number in 0..self.members.len() {
            if self.members[number].is_none() {
                let start = || async { self.spawn(number, Start::Restart).await.ok() };
                self.members[number] = Some(eventually("the member's start", start).await);
            }
        }
    }

    /// Returns how many members there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    pub fn handle(&self, number: usize) -> Handle<Machine> {
        let member = self.members[number].as_ref();
        member.expect("the member runs").handle.clone()
    }

    /// Returns the position of the leader once there is one that decides.
    pub async fn leader(&self) -> usize {
        eventually("a leader", || async {
            let decides = |m: &Option<Member>| {
                let member = m.as_ref();
                member.is_some_and(|member| member.handle.leader().role.deciding)
            };
            self.members.iter().position(decides)
        })
        .await
    }

    /// Has a member's replica stand still.
    pub async fn stall(&self, number: usize) -> Stall {
        Stall::of(&self.handle(number)).await
    }

    /// Waits until a leader has so many commands that wait for their commit.
    pub async fn pending(&self, leader: usize, count: usize) {
        let handle = self.handle(leader);
        let pending = || async { (handle.status().await?.pending >= count).then_some(()) };
        eventually("commands under way", pending).await;
    }

    /// Returns the state once everything that was under way at any member is in it, or will never
    /// be: requests are decided in order, and each member has its own decided after the others.
    pub async fn settled(&self) -> State {
        for rest in &self.addresses.rest {
            let name = Uuid::new_v4().simple().to_string().to_uppercase();
            let path = format!("/traits/CUSTOM_{name}");
            eventually("a write after the fault", || async {
                let answer = ask(*rest, "PUT", &path, None).await?;
                matches!(answer.status, 201 | 204).then_some(())
            })
            .await;
        }
        // Whichever member it is, the read contains everything that was acknowledged.
        let read = |machine: &Machine| machine.state().clone();
        let handle = self.handle(0);
        let state = || async { handle.read(read).await.ok() };
        let state = eventually("a linearizable read", state).await;
        state.check().expect("every invariant holds");
        state
    }
}
