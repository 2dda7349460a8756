//! The Node service: the volumes of one host, for the kubelet.
//!
//! ```text
//!   stage:   the device's file system, mounted at the staging path
//!   publish: that, shown at the target path; or the device itself
//!   publish of a volume for one pod: claimed, made, and mounted at the target path at once
//! ```
//!
//! Invariant: how a volume is used at a path is recorded before it is so, and until it is not.
//! What is recorded and not mounted (after a crash of the machine) is made again upon the next
//! call, and blocks no other user.

mod publish;
mod request;
mod stage;
mod stats;

use std::path::Path;
use std::sync::Arc;

use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::csi::{pmem_csi, topology};
use berth_proto::csi::v1::node_server::Node;
use berth_proto::csi::v1::node_service_capability::rpc::Type;
use berth_proto::csi::v1::node_service_capability::{self, Rpc};
use berth_proto::csi::v1::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};
use berth_proto::status::to_status;
use tonic::{Request, Response, Status};

use crate::host::{Host, Local};
use crate::locks::Locks;

type Answered<T> = Result<Response<T>, Status>;

/// The service.
#[derive(Clone)]
pub struct NodeApi {
    host: Arc<dyn Host>,
    name: HostName,
    driver: String,
    locks: Locks,
}

impl NodeApi {
    /// Returns the service of this host.
    #[must_use]
    pub fn new(host: Arc<dyn Host>, name: HostName, driver: &str) -> Self {
        Self {
            host,
            name,
            driver: driver.to_owned(),
            locks: Locks::default(),
        }
    }

    /// Completes the work on a volume at a path, also when the caller has disconnected meanwhile: a mount
    /// that was begun cannot be left half done. Another call for one of them is refused meanwhile: of two
    /// volumes for one path, neither would see that the other one is about to be there.
    async fn with<T: Send + 'static>(
        &self,
        volume: &str,
        path: &Path,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Answered<T> {
        let lock = self.locks.take(volume, path).map_err(|r| to_status(&r))?;
        let task = tokio::spawn(async move {
            let done = work.await;
            drop(lock);
            done
        });
        match task.await {
            Ok(done) => done.map(Response::new).map_err(|r| to_status(&r)),
            Err(_) => Err(Status::internal(
                "the call failed; see the log of the agent",
            )),
        }
    }
}

/// Does what blocks on a thread for that.
async fn blocking<T: Send + 'static>(
    host: &Arc<dyn Host>,
    work: impl FnOnce(&dyn Host) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let host = host.clone();
    let done = tokio::task::spawn_blocking(move || work(host.as_ref())).await;
    done.unwrap_or_else(|_| {
        let message = "the call failed; see the log of the agent";
        Err(Refusal::new(Code::Internal, "INTERNAL", message))
    })
}

/// Finds a volume that must be there.
fn require_volume(host: &dyn Host, id: &str) -> Result<Local, Refusal> {
    host.find(id)?.ok_or_else(|| no_volume(id))
}

fn no_volume(id: &str) -> Refusal {
    let message = match pmem_csi::is_id(id) {
        true => pmem_csi::refusal(id),
        false => format!("this host has no volume {id:?}"),
    };
    Refusal::new(Code::NotFound, "VOLUME_NOT_FOUND", message)
}

#[tonic::async_trait]
impl Node for NodeApi {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Answered<NodeStageVolumeResponse> {
        let request = request::Stage::read(request.into_inner())?;
        let host = self.host.clone();
        let (id, path) = (request.volume.clone(), request.path.clone());
        let work = async move { blocking(&host, move |host| stage::stage(host, &request)).await };
        self.with(&id, &path, work).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Answered<NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        let id = request::volume_id(request.volume_id)?;
        let path = request::path(request.staging_target_path, "staging_target_path")?;
        let host = self.host.clone();
        let (volume, at) = (id.clone(), path.clone());
        let work =
            async move { blocking(&host, move |host| stage::unstage(host, &volume, &path)).await };
        self.with(&id, &at, work).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Answered<NodePublishVolumeResponse> {
        let request = request::Publish::read(request.into_inner())?;
        let host = self.host.clone();
        let (id, path) = (request.volume.clone(), request.target.clone());
        let work = async move { publish::publish(&host, request).await };
        self.with(&id, &path, work).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Answered<NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        let id = request::volume_id(request.volume_id)?;
        let path = request::path(request.target_path, "target_path")?;
        let host = self.host.clone();
        let (volume, at) = (id.clone(), path.clone());
        let work = async move { publish::unpublish(&host, volume, path).await };
        self.with(&id, &at, work).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Answered<NodeGetVolumeStatsResponse> {
        let request = request.into_inner();
        let id = request::volume_id(request.volume_id)?;
        let path = request::known_path(request.volume_path, "volume_path")?;
        let request = blocking(&self.host, move |host| stats::stats(host, &id, &path));
        request.await.map(Response::new).map_err(|r| to_status(&r))
    }

    async fn node_expand_volume(
        &self,
        _: Request<NodeExpandVolumeRequest>,
    ) -> Answered<NodeExpandVolumeResponse> {
        Err(Status::unimplemented("volumes do not grow"))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Answered<NodeGetCapabilitiesResponse> {
        let able = |ability: Type| NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc {
                r#type: ability.into(),
            })),
        };
        let abilities = [
            Type::StageUnstageVolume,
            Type::GetVolumeStats,
            Type::SingleNodeMultiWriter,
        ];
        Ok(Response::new(NodeGetCapabilitiesResponse {
            capabilities: abilities.map(able).to_vec(),
        }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Answered<NodeGetInfoResponse> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.name.to_string(),
            max_volumes_per_node: 0,
            accessible_topology: Some(topology::place(&self.driver, &self.name)),
        }))
    }
}
