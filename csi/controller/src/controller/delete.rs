//! A volume given back.
//!
//! Invariant: one that is in use is not released, as far as its host can be reached; and whatever is
//! given back, its host touches nothing that is used. A host that is down is no reason to refuse: it
//! erases the volume when it is back, and its space counts until then.

use berth_proto::convert::csi::pmem_csi;
use berth_proto::csi::v1::{DeleteVolumeRequest, DeleteVolumeResponse};
use berth_proto::volume::v1::{self as wire, ReplicaPhase};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use uuid::Uuid;

use super::ControllerApi;

/// A volume that is not there is deleted. One of PMEM-CSI is there, with its contents: if it were called
/// deleted, its PersistentVolume would disappear, and with it all that names the volume.
fn absent(id: &str) -> Result<DeleteVolumeResponse, Status> {
    match pmem_csi::is_id(id) {
        true => Err(Status::failed_precondition(pmem_csi::refusal(id))),
        false => Ok(DeleteVolumeResponse {}),
    }
}

impl ControllerApi {
    pub(super) async fn delete(
        &self,
        request: DeleteVolumeRequest,
    ) -> Result<DeleteVolumeResponse, Status> {
        let Some(volume) = self.find(&request.volume_id).await? else {
            return absent(&request.volume_id);
        };
        let ready = |replica: &wire::Replica| replica.phase() == ReplicaPhase::Ready;
        if let Some(host) = self.user(&volume, ready).await {
            let message = format!("volume {} is in use on {host}", request.volume_id);
            return Err(Status::failed_precondition(message));
        }
        let given_back = self.calls.delete(wire::DeleteVolumeRequest {
            name: volume.name.clone(),
            request_id: Uuid::new_v4().to_string(),
            generation: 0,
            forget: false,
        });
        match given_back.await {
            Ok(()) => {}
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => return Err(status),
        }
        // The agents would look by themselves; now it is sooner. What they answer changes nothing.
        self.user(&volume, |_| true).await;
        Ok(DeleteVolumeResponse {})
    }

    /// Has the agents of these replicas look at a volume; returns a host on which it is used.
    async fn user(
        &self,
        volume: &wire::Volume,
        of: impl Fn(&wire::Replica) -> bool,
    ) -> Option<String> {
        let mut syncs = JoinSet::new();
        for replica in volume.replicas.iter().filter(|replica| of(replica)) {
            let (calls, timeout) = (self.calls.clone(), self.settings.usage_timeout);
            let (host, name) = (replica.host.clone(), volume.name.clone());
            syncs.spawn(async move {
                let answer = calls.sync(&host, &name, timeout).await;
                match answer {
                    Ok(answer) => answer.in_use.then_some(host),
                    Err(status) => {
                        let why = status.message();
                        tracing::info!(%host, volume = %name, why, "agent did not report usage");
                        None
                    }
                }
            });
        }
        let mut user = None;
        while let Some(synced) = syncs.join_next().await {
            user = user.or(synced.ok().flatten());
        }
        user
    }
}
