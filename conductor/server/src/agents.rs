//! Calls to compute agents: one connection per host, one attempt per call.
//!
//! Not here: whether a call is made again. That is the saga's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_domain::agent::{Call, Failure, Reply};
use berth_domain::claim::Claim;
use berth_domain::id::VmUid;
use berth_domain::name::HostName;
use berth_domain::transfer::TransferProgress;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::agent::v1::{GetTransferRequest, WaitTransferRequest};
use berth_proto::client::{self, Dialer};
use berth_proto::convert::agent::FencedCall;
use berth_proto::convert::field;
use berth_proto::operation::v1::SignedGrant;
use berth_saga::{AgentCall, TransferWatch};
use berth_tls::Expected;
use tonic::transport::Channel;

use crate::phases::TransferEnd;

/// How much longer than requested an agent may wait before it reports that nothing has happened.
const GRACE: Duration = Duration::from_secs(1);

/// How long the copying of a disk may take.
const COPY_TIME_MAX: Duration = Duration::from_secs(3_600);

/// How many bytes of persistent memory are erased in a second at least, one device after the other.
const ERASED_PER_S_MIN: u64 = 64 << 20;

/// How long the two kinds of calls may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Questions.
    pub(crate) question: Duration,
    /// What has a hypervisor start, stop or prepare something.
    pub(crate) work: Duration,
}

impl Timeouts {
    fn of(self, call: &Call) -> Duration {
        match call {
            Call::GetDomain
            | Call::CheckCanLiveMigrateDestination { .. }
            | Call::CheckCanLiveMigrateSource { .. }
            | Call::FitLiveMigration { .. } => self.question,
            Call::SpawnVm { .. }
            | Call::DestroyVm
            | Call::PreLiveMigration { .. }
            | Call::LiveMigration { .. }
            | Call::RollbackLiveMigrationAtDestination { .. }
            | Call::PostLiveMigrationAtSource { .. }
            | Call::StartVm { .. }
            | Call::SettleVm
            | Call::AbortLiveMigration { .. }
            | Call::ForceCompleteLiveMigration { .. } => self.work,
            Call::MakeDisks { claim, .. } => self.work + erase_time(claim),
            Call::PublishImage { .. } | Call::DropImage { .. } => self.work,
            Call::DropDisks { .. } => self.work,
            Call::CopyDisk { .. } => self.work.max(COPY_TIME_MAX),
            // The agent keeps the time; one that does not answer for longer is called again.
            Call::FetchDisks(fetch) => {
                let time = fetch.timeout_ms.map(Duration::from_millis);
                self.work + time.unwrap_or(COPY_TIME_MAX)
            }
            // The guest has that long before anything is done to it.
            Call::StopVm { timeout_ms, .. } => self.work + Duration::from_millis(*timeout_ms),
        }
    }
}

/// Returns how long erasing the persistent memory of a recreated guest may take.
fn erase_time(claim: &Claim) -> Duration {
    let devices = claim.assignment.pmem.iter();
    let bytes: u64 = devices.map(|device| device.size_bytes).sum();
    Duration::from_secs(bytes / ERASED_PER_S_MIN)
}

/// The connection to an agent.
#[derive(Debug)]
struct Known {
    /// Where it goes: an agent may come back elsewhere.
    address: String,
    /// Of which certificates it was made.
    generation: u64,
    channel: Channel,
}

/// The agents of all hosts. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub(crate) struct Agents {
    channels: Arc<Mutex<BTreeMap<HostName, Known>>>,
    dialer: Dialer,
    timeouts: Timeouts,
}

impl Agents {
    pub(crate) fn new(dialer: Dialer, timeouts: Timeouts) -> Self {
        Self {
            channels: Arc::default(),
            dialer,
            timeouts,
        }
    }

    /// Makes a saga's call, once.
    pub(crate) async fn call(
        &self,
        call: AgentCall,
        grant: Option<SignedGrant>,
    ) -> Result<Reply, Failure> {
        let channel = self.channel(&call.host, &call.address)?;
        let timeout = self.timeouts.of(&call.call);
        let fenced = FencedCall {
            fence: call.fence,
            call: call.call,
            grant,
        };
        client::agent::call(channel, &fenced, timeout).await
    }

    /// Queries a host's agent for the progress of a guest's transfer.
    pub(crate) async fn transfer(
        &self,
        host: &HostName,
        address: &str,
        vm: VmUid,
    ) -> Option<TransferProgress> {
        let channel = self.channel(host, address).ok()?;
        let mut request = tonic::Request::new(GetTransferRequest {
            vm_uid: vm.to_string(),
        });
        request.set_timeout(self.timeouts.question);
        let mut agent = ComputeAgentServiceClient::new(channel);
        let response = tokio::time::timeout(self.timeouts.question, agent.get_transfer(request));
        let progress = response.await.ok()?.ok()?.into_inner().progress?;
        progress.try_into().ok()
    }

    /// Waits for the end of a transfer, as long as `watch` allows: what the agent knows of the end, or
    /// nothing if the time is over first.
    ///
    /// # Errors
    ///
    /// When the agent cannot report it.
    pub(crate) async fn transfer_end(
        &self,
        watch: &TransferWatch,
    ) -> Result<Option<Option<TransferEnd>>, Failure> {
        let mut agent = ComputeAgentServiceClient::new(self.channel(&watch.host, &watch.address)?);
        let request = WaitTransferRequest {
            vm_uid: watch.vm.to_string(),
            timeout: Some(field::duration(watch.ms)),
        };
        // An agent that is cut off never answers.
        let time = Duration::from_millis(watch.ms) + GRACE;
        let answer = tokio::time::timeout(time, agent.wait_transfer(request)).await;
        let answer = answer.map_err(|_| Failure::Unreachable {
            message: "no answer in time".to_owned(),
        })?;
        let answer = answer.map_err(|status| client::agent::failure(&status))?;
        let answer = answer.into_inner();
        let time = |wire: Option<prost_types::Duration>| Duration::try_from(wire?).ok();
        Ok(answer.ended.then(|| {
            Some(TransferEnd {
                ended_for: time(answer.ended_for)?,
                took: time(answer.took)?,
            })
        }))
    }

    /// Returns the connection to a host's agent.
    pub(crate) fn channel(&self, host: &HostName, address: &str) -> Result<Channel, Failure> {
        // What is behind the lock is whole at any time, also where a holder panicked.
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.dialer.generation();
        if let Some(known) = channels.get(host)
            && known.address == address
            && known.generation == generation
        {
            return Ok(known.channel.clone());
        }
        let meant = Expected::Agent(host.to_string());
        let channel = self.dialer.channel(address, meant);
        let channel = channel.map_err(|error| Failure::Unreachable {
            message: error.to_string(),
        })?;
        let known = Known {
            address: address.to_owned(),
            generation,
            channel: channel.clone(),
        };
        channels.insert(host.clone(), known);
        Ok(channel)
    }
}
