//! The calls to the scheduler.

use berth_domain::name::{HostName, VolumeId};
use berth_proto::client::SchedulerChannel;
use berth_proto::convert::ResourceName as _;
use berth_proto::convert::csi::Parameters;
use berth_proto::volume::v1::volume_report::Outcome;
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{
    CreateVolumeRequest, DeleteVolumeRequest, GetVolumeRequest, ListVolumesRequest, Replica,
    ReportVolumesRequest, Volume, VolumeKind, VolumeReport,
};
use tonic::{Code, Status};
use uuid::Uuid;

/// How many volumes come at once.
const PAGE: i32 = 1000;

/// Client of the leading scheduler.
#[derive(Clone)]
pub(super) struct Leader {
    scheduler: SchedulerChannel,
    host: HostName,
    incarnation: String,
}

impl Leader {
    pub(super) fn new(scheduler: SchedulerChannel, host: HostName, incarnation: String) -> Self {
        Self {
            scheduler,
            host,
            incarnation,
        }
    }

    /// Returns the part of a volume that is to be on this host.
    pub(super) fn replica<'a>(&self, volume: &'a Volume) -> Option<&'a Replica> {
        let host = self.host.resource_name();
        volume.replicas.iter().find(|replica| replica.host == host)
    }

    /// Returns the volumes of this host.
    pub(super) async fn list(&self) -> Result<Vec<Volume>, Status> {
        let mut volumes = Vec::new();
        let mut request = ListVolumesRequest {
            page_size: PAGE,
            host: self.host.resource_name(),
            ..ListVolumesRequest::default()
        };
        loop {
            let response = self.scheduler.call(|channel| {
                let request = request.clone();
                async move {
                    VolumeServiceClient::new(channel)
                        .list_volumes(request)
                        .await
                }
            });
            let page = response.await?;
            volumes.extend(page.volumes);
            if page.next_page_token.is_empty() {
                return Ok(volumes);
            }
            request.page_token = page.next_page_token;
        }
    }

    pub(super) async fn get(&self, id: &VolumeId) -> Result<Option<Volume>, Status> {
        let request = GetVolumeRequest {
            name: id.resource_name(),
            ..GetVolumeRequest::default()
        };
        self.get_volume(request).await
    }

    /// Returns the volume that a pod's is called so, if it is on this host.
    pub(super) async fn ephemeral(&self, name: &str) -> Result<Option<Volume>, Status> {
        let request = GetVolumeRequest {
            display_name: name.to_owned(),
            ..GetVolumeRequest::default()
        };
        let found = self.get_volume(request).await?;
        let ours = |volume: &Volume| {
            volume.kind() == VolumeKind::Ephemeral && self.replica(volume).is_some()
        };
        Ok(found.filter(ours))
    }

    async fn get_volume(&self, request: GetVolumeRequest) -> Result<Option<Volume>, Status> {
        let response = self.scheduler.call(|channel| {
            let request = request.clone();
            async move { VolumeServiceClient::new(channel).get_volume(request).await }
        });
        match response.await {
            Ok(answer) => Ok(answer.volume),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Claims a volume for a pod, on this host.
    pub(super) async fn claim(
        &self,
        name: &str,
        parameters: &Parameters,
    ) -> Result<Volume, Status> {
        let host = self.host.resource_name();
        let request = CreateVolumeRequest {
            display_name: name.to_owned(),
            kind: VolumeKind::Ephemeral.into(),
            required_bytes: parameters.size_bytes.unwrap_or(0),
            parameters: Some(parameters.wire()),
            requisite_hosts: vec![host],
            replicas: 1,
            request_id: Uuid::new_v4().to_string(),
            ..CreateVolumeRequest::default()
        };
        let response = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                VolumeServiceClient::new(channel)
                    .create_volume(request)
                    .await
            }
        });
        let volume = response.await?.volume;
        volume.ok_or_else(|| Status::internal("the scheduler replied without a volume"))
    }

    pub(super) async fn delete(&self, volume: &Volume) -> Result<(), Status> {
        let request = DeleteVolumeRequest {
            name: volume.name.clone(),
            request_id: Uuid::new_v4().to_string(),
            ..Default::default()
        };
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

    /// Reports the outcome of a volume.
    pub(super) async fn report(&self, id: &VolumeId, outcome: Outcome) -> Result<(), Status> {
        let request = ReportVolumesRequest {
            host: self.host.resource_name(),
            incarnation: self.incarnation.clone(),
            reports: vec![VolumeReport {
                volume: id.resource_name(),
                outcome: Some(outcome),
            }],
        };
        let response = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                VolumeServiceClient::new(channel)
                    .report_volumes(request)
                    .await
            }
        });
        response.await.map(drop)
    }
}
