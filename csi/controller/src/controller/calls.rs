//! The calls to schedulers and agents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_proto::agent::v1::volume_agent_service_client::VolumeAgentServiceClient;
use berth_proto::agent::v1::{SyncVolumeRequest, SyncVolumeResponse};
use berth_proto::client::{SchedulerChannel, is_unanswered};
use berth_proto::host::v1::GetHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{
    CreateVolumeRequest, DeleteVolumeRequest, GetVolumeCapacityRequest, GetVolumeCapacityResponse,
    GetVolumeRequest, ListVolumesRequest, ListVolumesResponse, Volume,
};
use berth_tls::Expected;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// The most connections to agents that are kept.
const AGENTS_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub(super) struct Calls {
    scheduler: SchedulerChannel,
    /// Connections to agents by address, with the generation of the certificates that they were made
    /// with; lost ones are made again when they are used.
    agents: Arc<Mutex<BTreeMap<String, (u64, Channel)>>>,
}

impl Calls {
    pub(super) fn new(scheduler: SchedulerChannel) -> Self {
        Self {
            scheduler,
            agents: Arc::default(),
        }
    }

    pub(super) async fn create(&self, request: CreateVolumeRequest) -> Result<Volume, Status> {
        let response = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                VolumeServiceClient::new(channel)
                    .create_volume(request)
                    .await
            }
        });
        complete(response.await?.volume)
    }

    pub(super) async fn delete(&self, request: DeleteVolumeRequest) -> Result<(), Status> {
        let response = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                VolumeServiceClient::new(channel)
                    .delete_volume(request)
                    .await
            }
        });
        response.await.map(drop)
    }

    /// Returns a volume; none if there is none of that name.
    pub(super) async fn get(&self, request: GetVolumeRequest) -> Result<Option<Volume>, Status> {
        let response = self.scheduler.call(|channel| {
            let request = request.clone();
            async move { VolumeServiceClient::new(channel).get_volume(request).await }
        });
        match response.await {
            Ok(answer) => complete(answer.volume).map(Some),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    pub(super) async fn list(
        &self,
        request: ListVolumesRequest,
    ) -> Result<ListVolumesResponse, Status> {
        let response = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                VolumeServiceClient::new(channel)
                    .list_volumes(request)
                    .await
            }
        });
        response.await
    }

    pub(super) async fn capacity(
        &self,
        request: GetVolumeCapacityRequest,
    ) -> Result<GetVolumeCapacityResponse, Status> {
        let response = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                let mut client = VolumeServiceClient::new(channel);
                client.get_volume_capacity(request).await
            }
        });
        response.await
    }

    /// Has the agent of a host (`hosts/{host}`) look at a volume.
    pub(super) async fn sync(
        &self,
        host: &str,
        volume: &str,
        timeout: Duration,
    ) -> Result<SyncVolumeResponse, Status> {
        let call = async {
            match self.sync_once(host, volume).await {
                // A connection from before the agent was restarted, or to a host that was too busy for
                // a moment. One that is down is down a second later too.
                Err(status) if is_unanswered(&status) => self.sync_once(host, volume).await,
                answered => answered,
            }
        };
        tokio::time::timeout(timeout, call)
            .await
            .unwrap_or_else(|_| {
                let seconds = timeout.as_secs_f32();
                let message = format!("the agent of {host} has not answered within {seconds} s");
                Err(Status::deadline_exceeded(message))
            })
    }

    async fn sync_once(&self, host: &str, volume: &str) -> Result<SyncVolumeResponse, Status> {
        let channel = self.agent(host).await?;
        let request = SyncVolumeRequest {
            volume: volume.to_owned(),
        };
        let mut agent = VolumeAgentServiceClient::new(channel);
        agent.sync_volume(request).await.map(Response::into_inner)
    }

    async fn agent(&self, host: &str) -> Result<Channel, Status> {
        let request = GetHostRequest {
            name: host.to_owned(),
            ..GetHostRequest::default()
        };
        let response = self.scheduler.call(|channel| {
            let request = request.clone();
            async move { HostServiceClient::new(channel).get_host(request).await }
        });
        let report = response.await?.host.and_then(|host| host.report);
        let address = report
            .map(|report| report.agent_address)
            .unwrap_or_default();
        let dialer = self.scheduler.dialer();
        let generation = dialer.generation();
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, channel)) = agents.get(&address)
            && *made == generation
        {
            return Ok(channel.clone());
        }
        let name = host.strip_prefix("hosts/").unwrap_or(host);
        let meant = Expected::Agent(name.to_owned());
        let channel = dialer.channel(&address, meant);
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        if agents.len() >= AGENTS_MAX {
            agents.clear();
        }
        agents.insert(address, (generation, channel.clone()));
        Ok(channel)
    }
}

fn complete(volume: Option<Volume>) -> Result<Volume, Status> {
    volume.ok_or_else(|| Status::internal("the scheduler answered without a volume"))
}
