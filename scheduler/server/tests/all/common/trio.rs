//! Three members as processes, which show the REST API.

use std::cell::RefCell;
use std::net::SocketAddr;

use berth_proto::cluster::v1::GetClusterStatusRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use tempfile::TempDir;

use super::process::{Process, addresses, knows, reach};
use super::{eventually, rest};

/// Three members. Those that are not there were killed.
pub struct Trio {
    folder: TempDir,
    pub grpc: Vec<String>,
    pub rest: Vec<SocketAddr>,
    pub members: Vec<Option<Process>>,
}

impl Trio {
    /// Starts a cluster and waits until all members vote.
    pub async fn start() -> Self {
        let rest = addresses(6).split_off(3);
        let rest = rest.iter().map(|a| a.parse().expect("an address"));
        let mut trio = Self {
            folder: tempfile::tempdir().expect("a folder"),
            grpc: addresses(3),
            rest: rest.collect(),
            members: Vec::new(),
        };
        let first = trio.spawn(0, &["--bootstrap"]);
        trio.members.push(Some(first));
        trio.agreed(1).await;
        for number in 1..3 {
            let member = trio.spawn(number, &["--join", &trio.grpc[0]]);
            trio.members.push(Some(member));
            trio.agreed(number + 1).await;
        }
        trio
    }

    /// Waits until so many members vote. Fails at once, with its words, when one has ended.
    async fn agreed(&mut self, wanted: usize) {
        let address = self.grpc[0].clone();
        let members = RefCell::new(&mut self.members);
        eventually("the members' agreement", || {
            let mut members = members.borrow_mut();
            members.iter_mut().flatten().for_each(Process::goes_on);
            knows(&address, wanted)
        })
        .await;
    }

    fn spawn(&self, number: usize, more: &[&str]) -> Process {
        let rest = self.rest[number].to_string();
        let mut flags = vec!["--placement-profile", "secure-rbac"];
        flags.extend(["--placement-listen", &rest]);
        // No agents report: hosts that a test registers stay up.
        flags.extend(["--liveness-limit-ms", "3600000"]);
        flags.extend(more);
        let directory = self.folder.path().join(number.to_string());
        Process::spawn(&directory, &self.grpc[number], &flags)
    }

    /// Kills a member with SIGKILL.
    pub fn kill(&mut self, number: usize) {
        self.members[number] = None;
    }

    /// Starts a member that was killed.
    pub fn restart(&mut self, number: usize) {
        self.members[number] = Some(self.spawn(number, &[]));
    }

    /// Starts a member that was killed again, without the REST API.
    pub fn restart_without_rest(&mut self, number: usize) {
        let directory = self.folder.path().join(number.to_string());
        self.members[number] = Some(Process::spawn(&directory, &self.grpc[number], &[]));
    }

    /// Returns which member leads, once a majority says the same.
    pub async fn leader(&self) -> usize {
        eventually("a leader", || async {
            let mut said = Vec::new();
            let running = self.grpc.iter().zip(&self.members);
            for (address, _) in running.filter(|(_, member)| member.is_some()) {
                let Some(channel) = reach(address).await else {
                    continue;
                };
                let mut client = ClusterServiceClient::new(channel);
                let status = client.get_cluster_status(GetClusterStatusRequest {}).await;
                let Ok(status) = status else { continue };
                said.push(status.into_inner().leader_address);
            }
            let place = |(number, address): (usize, &String)| {
                let url = format!("http://{address}");
                let votes = said.iter().filter(|leader| **leader == url).count();
                (votes >= 2 && self.members[number].is_some()).then_some(number)
            };
            self.grpc.iter().enumerate().find_map(place)
        })
        .await
    }

    /// Makes a member the leader.
    pub async fn lead(&self, number: usize) {
        use berth_proto::cluster::v1::TransferLeadershipRequest;
        eventually("the other leader", || async {
            let leader = self.leader().await;
            if leader == number {
                return Some(());
            }
            let mut client = ClusterServiceClient::new(reach(&self.grpc[leader]).await?);
            let status = client.get_cluster_status(GetClusterStatusRequest {}).await;
            let members = status.ok()?.into_inner().members;
            let member = members.iter().find(|m| m.address == self.grpc[number])?;
            let request = TransferLeadershipRequest {
                member_id: member.id,
            };
            client.transfer_leadership(request).await.ok()?;
            None
        })
        .await;
    }

    /// Waits until a member answers over REST.
    pub async fn answers(&self, number: usize) {
        eventually("an answer over REST", || async {
            let answer = rest::ask(self.rest[number], "GET", "/traits/HW_CPU_X86_AVX2", None);
            (answer.await?.status == 204).then_some(())
        })
        .await;
    }
}
