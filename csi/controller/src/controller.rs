//! Identity and Controller of the Container Storage Interface.
//!
//! ```text
//!   create:  claim (one committed command) ─▶ each agent makes its replica ─▶ answered
//!   delete:  is it in use? ─▶ released (committed) ─▶ each agent begins to erase it
//! ```
//!
//! What it is not: it keeps no state and chooses nothing. It reads all it needs from the scheduler, so
//! a call that was cut off anywhere is carried on when the caller repeats it.

mod calls;
mod capacity;
mod create;
mod delete;
mod list;
mod look;
#[cfg(test)]
mod race;

use std::time::Duration;

use berth_proto::client::SchedulerChannel;
use berth_proto::convert::csi::identity;
use berth_proto::csi::v1::controller_server::Controller;
use berth_proto::csi::v1::controller_service_capability::rpc::Type;
use berth_proto::csi::v1::controller_service_capability::{self, Rpc};
use berth_proto::csi::v1::identity_server::Identity;
use berth_proto::csi::v1::*;
use tonic::{Request, Response, Status};

use calls::Calls;

type Answered<T> = Result<Response<T>, Status>;

/// The controller's part of the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the driver is called.
    pub driver: String,
    /// How long an agent may take to make a volume.
    pub create_timeout: Duration,
    /// How long an agent may take to report whether a volume is in use.
    pub usage_timeout: Duration,
    /// Whether ControllerPublishVolume and ControllerUnpublishVolume are offered.
    pub publishes: bool,
}

/// The Identity service.
#[derive(Clone, Debug)]
pub struct IdentityApi {
    driver: String,
}

impl IdentityApi {
    /// Returns the service of the driver of that name.
    #[must_use]
    pub fn new(driver: &str) -> Self {
        Self {
            driver: driver.to_owned(),
        }
    }
}

#[tonic::async_trait]
impl Identity for IdentityApi {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Answered<GetPluginInfoResponse> {
        Ok(Response::new(identity::information(&self.driver)))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Answered<GetPluginCapabilitiesResponse> {
        Ok(Response::new(identity::abilities()))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Answered<ProbeResponse> {
        Ok(Response::new(identity::ready()))
    }
}

/// The Controller service.
#[derive(Clone, Debug)]
pub struct ControllerApi {
    calls: Calls,
    settings: Settings,
}

impl ControllerApi {
    /// Returns the service over these schedulers.
    #[must_use]
    pub fn new(scheduler: SchedulerChannel, settings: Settings) -> Self {
        Self {
            calls: Calls::new(scheduler),
            settings,
        }
    }

    fn driver(&self) -> &str {
        &self.settings.driver
    }

    fn check_publishes(&self) -> Result<(), Status> {
        match self.settings.publishes {
            true => Ok(()),
            false => Err(Status::unimplemented(
                "nothing has to be attached: volumes are where their hosts are (controller_publish \
                 = true offers it all the same)",
            )),
        }
    }
}

fn not_offered<T>(what: &str) -> Answered<T> {
    Err(Status::unimplemented(format!("{what} are not offered")))
}

#[tonic::async_trait]
impl Controller for ControllerApi {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Answered<CreateVolumeResponse> {
        self.create(request.into_inner()).await.map(Response::new)
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Answered<DeleteVolumeResponse> {
        self.delete(request.into_inner()).await.map(Response::new)
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Answered<ControllerPublishVolumeResponse> {
        self.check_publishes()?;
        self.publish(request.into_inner()).await.map(Response::new)
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answered<ControllerUnpublishVolumeResponse> {
        self.check_publishes()?;
        look::volume_id(&request.into_inner().volume_id)?;
        Ok(Response::new(ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answered<ValidateVolumeCapabilitiesResponse> {
        self.check(request.into_inner()).await.map(Response::new)
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Answered<ListVolumesResponse> {
        self.list(request.into_inner()).await.map(Response::new)
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Answered<GetCapacityResponse> {
        self.capacity(request.into_inner()).await.map(Response::new)
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answered<ControllerGetCapabilitiesResponse> {
        let able = |ability: Type| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc {
                r#type: ability.into(),
            })),
        };
        let always = [
            Type::CreateDeleteVolume,
            Type::ListVolumes,
            Type::GetCapacity,
            Type::GetVolume,
            Type::SingleNodeMultiWriter,
        ];
        let publishes = self.settings.publishes;
        let publish = publishes.then_some(Type::PublishUnpublishVolume);
        Ok(Response::new(ControllerGetCapabilitiesResponse {
            capabilities: always.into_iter().chain(publish).map(able).collect(),
        }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Answered<ControllerGetVolumeResponse> {
        self.get(request.into_inner()).await.map(Response::new)
    }

    async fn create_snapshot(
        &self,
        _: Request<CreateSnapshotRequest>,
    ) -> Answered<CreateSnapshotResponse> {
        not_offered("snapshots")
    }

    async fn delete_snapshot(
        &self,
        _: Request<DeleteSnapshotRequest>,
    ) -> Answered<DeleteSnapshotResponse> {
        not_offered("snapshots")
    }

    async fn list_snapshots(
        &self,
        _: Request<ListSnapshotsRequest>,
    ) -> Answered<ListSnapshotsResponse> {
        not_offered("snapshots")
    }

    async fn get_snapshot(&self, _: Request<GetSnapshotRequest>) -> Answered<GetSnapshotResponse> {
        not_offered("snapshots")
    }

    async fn controller_expand_volume(
        &self,
        _: Request<ControllerExpandVolumeRequest>,
    ) -> Answered<ControllerExpandVolumeResponse> {
        not_offered("volumes that grow")
    }

    async fn controller_modify_volume(
        &self,
        _: Request<ControllerModifyVolumeRequest>,
    ) -> Answered<ControllerModifyVolumeResponse> {
        not_offered("parameters that change")
    }
}
