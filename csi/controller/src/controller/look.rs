//! Volumes as they are: one of them, and whether it can be used so.

use berth_domain::name::{HostName, VolumeId};
use berth_proto::convert::csi::{Origin, Parameters, capability, pmem_csi, topology};
use berth_proto::convert::{Invalid, ResourceName as _};
use berth_proto::csi::v1::controller_get_volume_response::VolumeStatus;
use berth_proto::csi::v1::validate_volume_capabilities_response::Confirmed;
use berth_proto::csi::v1::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse, Volume,
};
use berth_proto::volume::v1::{self as wire, GetVolumeRequest, ReplicaPhase, VolumeKind};
use tonic::Status;

use super::ControllerApi;

/// Reads the id of a volume; none: no volume of ours can have it.
pub(super) fn volume_id(id: &str) -> Result<Option<VolumeId>, Invalid> {
    match id {
        "" => Err(Invalid::new("volume_id", "is required")),
        id => Ok(VolumeId::new(id).ok()),
    }
}

fn not_found(id: &str) -> Status {
    if pmem_csi::is_id(id) {
        return Status::not_found(pmem_csi::refusal(id));
    }
    let shown: String = id.chars().take(64).collect();
    Status::not_found(format!("there is no volume {shown:?}"))
}

/// Returns whether a volume is being deleted: its name is free, and no caller gets it.
pub(super) fn is_going(volume: &wire::Volume) -> bool {
    let going = |replica: &wire::Replica| replica.phase() == ReplicaPhase::Deleting;
    volume.replicas.iter().all(going)
}

/// Returns what a volume was created with, as far as it is kept.
fn parameters(volume: &wire::Volume) -> Parameters {
    let recorded = volume.parameters.unwrap_or_default();
    Parameters {
        kind: volume.kind(),
        replicas: u32::try_from(volume.replicas.len()).unwrap_or(u32::MAX),
        erase_after: recorded.erase_after.unwrap_or(true),
        kata_containers: recorded.kata_containers,
        size_bytes: None,
    }
}

impl ControllerApi {
    /// Finds a volume that is not being deleted.
    pub(super) async fn find(&self, id: &str) -> Result<Option<wire::Volume>, Status> {
        let Some(id) = volume_id(id)? else {
            return Ok(None);
        };
        let request = GetVolumeRequest {
            name: id.resource_name(),
            ..GetVolumeRequest::default()
        };
        let found = self.calls.get(request).await?;
        Ok(found.filter(|volume| !is_going(volume)))
    }

    /// Returns a volume as the interface shows it.
    pub(super) fn shown(&self, volume: &wire::Volume) -> Result<Volume, Status> {
        let id = VolumeId::from_resource_name(&volume.name)?;
        let hosts = volume.replicas.iter().map(|replica| {
            let host = HostName::from_resource_name(&replica.host)?;
            Ok(topology::place(self.driver(), &host))
        });
        Ok(Volume {
            capacity_bytes: signed(volume.size_bytes),
            volume_id: id.to_string(),
            volume_context: parameters(volume).context(&volume.display_name),
            content_source: None,
            accessible_topology: hosts.collect::<Result<_, Invalid>>()?,
        })
    }

    pub(super) async fn get(
        &self,
        request: ControllerGetVolumeRequest,
    ) -> Result<ControllerGetVolumeResponse, Status> {
        let found = self.find(&request.volume_id).await?;
        let volume = found.ok_or_else(|| not_found(&request.volume_id))?;
        Ok(ControllerGetVolumeResponse {
            volume: Some(self.shown(&volume)?),
            status: Some(VolumeStatus::default()),
        })
    }

    pub(super) async fn check(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        volume_id(&request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Invalid::new("volume_capabilities", "is required").into());
        }
        let found = self.find(&request.volume_id).await?;
        let volume = found.ok_or_else(|| not_found(&request.volume_id))?;
        let confirmed = check_usage(&volume, &request);
        Ok(match confirmed {
            Err(invalid) => ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message: invalid.to_string(),
            },
            Ok(()) => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
        })
    }

    /// Nothing has to be attached: a volume is where it is.
    pub(super) async fn publish(
        &self,
        request: ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        volume_id(&request.volume_id)?;
        if request.node_id.is_empty() {
            return Err(Invalid::new("node_id", "is required").into());
        }
        let Some(requested) = request.volume_capability else {
            return Err(Invalid::new("volume_capability", "is required").into());
        };
        let found = self.find(&request.volume_id).await?;
        let volume = found.ok_or_else(|| not_found(&request.volume_id))?;
        let usage = capability::usage(requested, of(&volume));
        usage.map_err(|e| e.within("volume_capability"))?;
        if request.readonly {
            let rule = "is not offered here; NodePublishVolume takes it";
            return Err(Invalid::new("readonly", rule).into());
        }
        let mut hosts = volume.replicas.iter().map(|replica| &replica.host);
        let node = format!("hosts/{}", request.node_id);
        if !hosts.any(|host| *host == node) {
            let id = &request.volume_id;
            let shown: String = request.node_id.chars().take(64).collect();
            return Err(Status::not_found(format!(
                "volume {id} is not on node {shown:?}"
            )));
        }
        Ok(ControllerPublishVolumeResponse::default())
    }
}

fn of(volume: &wire::Volume) -> capability::Volume {
    capability::Volume {
        is_cache: volume.kind() == VolumeKind::Cache,
        is_kata: volume.parameters.unwrap_or_default().kata_containers,
    }
}

fn check_usage(
    volume: &wire::Volume,
    request: &ValidateVolumeCapabilitiesRequest,
) -> Result<(), Invalid> {
    capability::usages(request.volume_capabilities.clone(), of(volume))?;
    let context = Parameters::read(Origin::Context, request.volume_context.clone())?;
    let is = parameters(volume);
    let differs = |what: &str| {
        Err(Invalid::new(
            what,
            "is not what the volume was created with",
        ))
    };
    if !request.volume_context.is_empty() && context != is {
        return differs("volume_context");
    }
    let requested = Parameters::read(Origin::Class, request.parameters.clone())?;
    if !request.parameters.is_empty() && requested != is {
        return differs("parameters");
    }
    if !request.mutable_parameters.is_empty() {
        return Err(Invalid::new("mutable_parameters", "are not offered"));
    }
    Ok(())
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
