//! What controllers call.

use berth_domain::name::VolumeId;
use berth_proto::agent::v1::volume_agent_service_server::VolumeAgentService;
use berth_proto::agent::v1::{SyncVolumeRequest, SyncVolumeResponse};
use berth_proto::convert::field;
use tonic::{Request, Response, Status};

use super::caretaker::Caretaker;

/// The service.
pub(crate) struct VolumeAgentApi {
    caretaker: Caretaker,
}

impl VolumeAgentApi {
    pub(super) fn new(caretaker: Caretaker) -> Self {
        Self { caretaker }
    }
}

#[tonic::async_trait]
impl VolumeAgentService for VolumeAgentApi {
    async fn sync_volume(
        &self,
        request: Request<SyncVolumeRequest>,
    ) -> Result<Response<SyncVolumeResponse>, Status> {
        let id: VolumeId = field::name(&request.into_inner().volume, "volume")?;
        let caretaker = self.caretaker.clone();
        // What was begun is carried on, also when the controller has gone meanwhile.
        let synced = tokio::spawn(async move { caretaker.sync(&id).await }).await;
        let answer = synced.map_err(|_| Status::internal("looking at a volume failed"))?;
        answer.map(Response::new)
    }
}
