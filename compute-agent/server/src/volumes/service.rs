//! What controllers call.

use berth_domain::name::VolumeId;
use berth_proto::agent::v1::volume_agent_service_server::VolumeAgentService;
use berth_proto::agent::v1::{SyncVolumeRequest, SyncVolumeResponse};
use berth_proto::convert::field;
use tonic::{Request, Response, Status};

use super::reconciler::VolumeReconciler;

/// The service.
pub(crate) struct VolumeAgentApi {
    reconciler: VolumeReconciler,
}

impl VolumeAgentApi {
    pub(super) fn new(reconciler: VolumeReconciler) -> Self {
        Self { reconciler }
    }
}

#[tonic::async_trait]
impl VolumeAgentService for VolumeAgentApi {
    async fn sync_volume(
        &self,
        request: Request<SyncVolumeRequest>,
    ) -> Result<Response<SyncVolumeResponse>, Status> {
        let id: VolumeId = field::name(&request.into_inner().volume, "volume")?;
        let reconciler = self.reconciler.clone();
        // What was begun is finished, also when the controller has disconnected meanwhile.
        let synced = tokio::spawn(async move { reconciler.sync(&id).await }).await;
        let answer = synced.map_err(|_| Status::internal("reading a volume failed"))?;
        answer.map(Response::new)
    }
}
