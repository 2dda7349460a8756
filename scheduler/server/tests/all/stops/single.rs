//! Members as processes whose end is compared with the table, alone and in a group.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use berth_proto::client::SchedulerChannel;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    FinalizeUpgradeRequest, GetClusterStatusRequest, GetClusterStatusResponse, RemoveMemberRequest,
    TransferLeadershipRequest,
};
use berth_proto::scheduler::v1::GetFlavorRequest;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_scheduler::stop::Reason;
use tempfile::TempDir;
use uuid::Uuid;

use crate::common::eventually;
use crate::common::process::{PROGRAM, Process, addresses, knows, reach};
use crate::common::world::flavor_request;

/// Waits for the end of a process and compares its status and last lines with the table. Returns
/// the line with the error.
pub(super) async fn stops(reason: Reason, process: Process) -> String {
    let ended = tokio::task::spawn_blocking(|| process.ended()).await;
    let (status, said) = ended.expect("it ends");
    let expected = if reason == Reason::Configuration {
        2
    } else {
        1
    };
    let hint = format!("hint: {}\n", reason.to_remedy());
    // A configuration has a line for each fault.
    let error = said.strip_suffix(&hint).unwrap_or_else(|| panic!("{said}"));
    let lines: Vec<&str> = error.lines().collect();
    let begin = lines.iter().rposition(|line| line.starts_with("error: "));
    let error = lines[begin.unwrap_or_else(|| panic!("{said}"))..].join("\n");
    assert_eq!(status, Some(expected), "{said}");
    println!("         {}: {error}", reason.code());
    error
}

/// One member, its directory and its address.
pub(super) struct Single {
    folder: TempDir,
    pub(super) address: String,
    kept: Option<String>,
}

impl Single {
    /// A directory in which there is nothing yet.
    pub(super) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            address: addresses(1).remove(0),
            kept: None,
        }
    }

    /// The directory of a member that has run and was killed.
    pub(super) async fn used() -> Self {
        let mut single = Self::new();
        let running = single.serves(&["--bootstrap"]).await;
        drop(running);
        single
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns a path beside the directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file beside the directory and returns its path.
    pub(super) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("a name").to_owned()
    }

    pub(super) fn start(&self, more: &[&str]) -> Process {
        Process::spawn(&self.directory(), &self.address, more)
    }

    pub(super) async fn stops(&self, reason: Reason, more: &[&str]) -> String {
        let error = stops(reason, self.start(more)).await;
        assert!(!error.contains("join again"), "the remedy is in the table");
        error
    }

    /// Starts it, and waits until it serves what it acknowledged before, and a write.
    pub(super) async fn serves(&mut self, more: &[&str]) -> Process {
        let mut process = self.start(more);
        let ends = async {
            loop {
                process.goes_on();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = ends => {}
            () = self.answers() => {}
        }
        process
    }

    /// Starts it, waits until it serves, stops it, and returns its log.
    pub(super) async fn log_of_a_start(&mut self) -> String {
        let mut command = Command::new(PROGRAM);
        command.env("BERTH_LOG", "info");
        let process = Process::run(command, &self.directory(), &self.address, &[]);
        self.answers().await;
        process.terminate().await
    }

    pub(super) async fn answers(&mut self) {
        eventually("a leader", || knows(&self.address, 1)).await;
        let urls = [self.address.clone()];
        if let Some(kept) = &self.kept {
            expect_kept(&urls, kept).await;
        }
        self.kept = Some(write(&urls).await);
    }
}

/// Three members of a cluster.
pub(super) struct Group {
    folder: TempDir,
    pub(super) addresses: Vec<String>,
    pub(super) processes: Vec<Option<Process>>,
    /// How often each was replaced.
    replaced: [u32; 3],
    kept: String,
}

impl Group {
    pub(super) async fn start(more: &[&str]) -> Self {
        let mut group = Self {
            folder: tempfile::tempdir().expect("a folder"),
            addresses: addresses(3),
            processes: vec![None, None, None],
            replaced: [0; 3],
            kept: String::new(),
        };
        group.spawn(0, &[&["--bootstrap"], more].concat());
        eventually("a leader", || knows(&group.addresses[0], 1)).await;
        for number in [1, 2] {
            let first = group.addresses[0].clone();
            group.spawn(number, &[&["--join", &first], more].concat());
        }
        eventually("three voters", || knows(&group.addresses[0], 3)).await;
        group.kept = write(&group.addresses).await;
        group
    }

    pub(super) fn directory(&self, number: usize) -> PathBuf {
        let replaced = self.replaced[number];
        self.folder.path().join(format!("{number}-{replaced}"))
    }

    /// Returns a path beside the directories.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn process(&self, number: usize, more: &[&str]) -> Process {
        Process::spawn(&self.directory(number), &self.addresses[number], more)
    }

    pub(super) fn spawn(&mut self, number: usize, more: &[&str]) {
        self.processes[number] = Some(self.process(number, more));
    }

    pub(super) fn kill(&mut self, number: usize) {
        self.processes[number] = None;
    }

    /// Waits for the end of a running member.
    pub(super) async fn stops(&mut self, number: usize, reason: Reason) -> String {
        let process = self.processes[number].take().expect("it runs");
        stops(reason, process).await
    }

    /// Waits until all three vote, writes, and reads what was written before at each of them.
    pub(super) async fn serves(&mut self) {
        for address in &self.addresses {
            eventually("three voters", || knows(address, 3)).await;
        }
        expect_kept(&self.addresses, &self.kept).await;
        self.kept = write(&self.addresses).await;
        for address in &self.addresses {
            eventually("what was written", || has(address, &self.kept)).await;
        }
    }

    /// Does what most remedies say: removes the member, and lets it join again in an empty
    /// directory. Then all three must serve.
    pub(super) async fn replace(&mut self, number: usize) {
        self.remove(number).await;
        self.join_again(number).await;
    }

    pub(super) async fn remove(&self, number: usize) {
        let running = self.others(number);
        let address = &self.addresses[number];
        eventually("the removal", || async {
            let status = self.leader_status(&running).await?;
            let member = status.members.iter().find(|m| m.address == *address);
            let Some(member) = member else {
                return Some(());
            };
            let request = RemoveMemberRequest {
                member_id: member.id,
            };
            let channel = reach(&address_of_leader(&status)?).await?;
            let mut client = ClusterServiceClient::new(channel);
            // The leader may have changed, or a change be under way; the membership shows it.
            let _ = client.remove_member(request).await;
            None
        })
        .await;
    }

    pub(super) async fn join_again(&mut self, number: usize) {
        self.replaced[number] += 1;
        let peer = self.others(number).remove(0);
        self.spawn(number, &["--join", &peer]);
        self.serves().await;
    }

    /// Returns the addresses of the other members that run.
    fn others(&self, number: usize) -> Vec<String> {
        let others = (0..3).filter(|n| *n != number && self.processes[*n].is_some());
        others.map(|n| self.addresses[n].clone()).collect()
    }

    /// Returns the status as the leader has it, once one of these members knows a leader.
    async fn leader_status(&self, addresses: &[String]) -> Option<GetClusterStatusResponse> {
        for address in addresses {
            if let Some(leader) = status(address).await.as_ref().and_then(address_of_leader)
                && let Some(status) = status(&leader).await
                && status.leader_id == status.member_id
            {
                return Some(status);
            }
        }
        None
    }

    /// Returns the term of a member that runs.
    pub(super) async fn term(&self, number: usize) -> u64 {
        let status = || status(&self.addresses[number]);
        eventually("a status", status).await.term
    }

    /// Makes this member the leader.
    pub(super) async fn leads(&self, number: usize) {
        let address = &self.addresses[number];
        eventually("the transfer", || async {
            let own = status(address).await?;
            if own.leader_id == own.member_id {
                return Some(());
            }
            let leader = address_of_leader(&own)?;
            let request = TransferLeadershipRequest {
                member_id: own.member_id,
            };
            let mut client = ClusterServiceClient::new(reach(&leader).await?);
            // Another election may come first; the status shows it.
            let _ = client.transfer_leadership(request).await;
            None
        })
        .await;
    }

    /// Writes so many times.
    pub(super) async fn write(&mut self, count: usize) {
        for _ in 0..count {
            self.kept = write(&self.addresses).await;
        }
    }

    /// Returns the name of the flavor that was written last.
    pub(super) fn kept(&self) -> &str {
        &self.kept
    }

    /// Raises the cluster version.
    pub(super) async fn finalize(&self, version: u32) {
        eventually("the cluster version", || async {
            let status = self.leader_status(&self.addresses).await?;
            if status.cluster_version == version {
                return Some(());
            }
            let request = FinalizeUpgradeRequest {
                version,
                ..FinalizeUpgradeRequest::default()
            };
            let channel = reach(&address_of_leader(&status)?).await?;
            // A member may not have been heard yet.
            let _ = ClusterServiceClient::new(channel)
                .finalize_upgrade(request)
                .await;
            None
        })
        .await;
    }
}

pub(super) async fn status(address: &str) -> Option<GetClusterStatusResponse> {
    let mut client = ClusterServiceClient::new(reach(address).await?);
    let status = client.get_cluster_status(GetClusterStatusRequest {}).await;
    Some(status.ok()?.into_inner())
}

fn address_of_leader(status: &GetClusterStatusResponse) -> Option<String> {
    let leader = status
        .members
        .iter()
        .find(|member| member.id == status.leader_id)?;
    Some(leader.address.clone())
}

fn channel(addresses: &[String]) -> SchedulerChannel {
    let urls: Vec<String> = addresses.iter().map(|a| format!("http://{a}")).collect();
    SchedulerChannel::new(urls).expect("addresses")
}

/// Makes a flavor and returns its name.
pub(super) async fn write(addresses: &[String]) -> String {
    let name = format!("f{}", Uuid::new_v4().simple());
    let schedulers = channel(addresses);
    eventually("a write", || async {
        let written = schedulers.call(|channel| {
            let request = flavor_request(&name, 1, &[]);
            async move {
                SchedulerServiceClient::new(channel)
                    .create_flavor(request)
                    .await
            }
        });
        match written.await {
            Ok(_) => Some(()),
            // An earlier attempt may have been carried out after all.
            Err(status) => (status.code() == tonic::Code::AlreadyExists).then_some(()),
        }
    })
    .await;
    name
}

async fn expect_kept(addresses: &[String], name: &str) {
    let schedulers = channel(addresses);
    eventually("what was acknowledged", || async {
        let read = schedulers.call(|channel| {
            let request = GetFlavorRequest {
                name: format!("flavors/{name}"),
                consistency: 0,
            };
            async move {
                SchedulerServiceClient::new(channel)
                    .get_flavor(request)
                    .await
            }
        });
        match read.await {
            Ok(_) => Some(()),
            Err(status) => {
                assert_ne!(status.code(), tonic::Code::NotFound, "{name} is lost");
                None
            }
        }
    })
    .await;
}

/// Returns something once this very member has a flavor.
async fn has(address: &str, name: &str) -> Option<()> {
    let request = GetFlavorRequest {
        name: format!("flavors/{name}"),
        consistency: 0,
    };
    let channel = reach(address).await?;
    let read = SchedulerServiceClient::new(channel)
        .get_flavor(request)
        .await;
    read.is_ok().then_some(())
}

/// Copies a folder with everything in it.
pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => {
                fs::copy(&path, &target).expect("a copy");
            }
        }
    }
}
