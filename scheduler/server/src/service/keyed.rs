//! Request ids: from a message to the key under which its response is recorded.
//!
//! The key holds a hash of the message without its id, so that one id used for two different
//! requests is detected. The conductor is not part of it: a user whose conductor died
//! retries at another one, with the same id, and gets the first response.

use berth_process::access;
use berth_proto::convert::field;
use berth_proto::{cluster, host, operation, placement, policy, scheduler, volume};
use berth_state::command::RequestKey;
use prost::Message;
use tonic::{Request, Status};
use xxhash_rust::xxh3::xxh3_128;

use crate::core::{Action, DecisionRequest};

/// A message that may carry a request id.
pub(crate) trait Keyed: Message {
    /// The method, as `ScheduleVm`.
    const METHOD: &'static str;

    /// Takes the request id out.
    fn take_request_id(&mut self) -> String;

    /// Exchanges the conductor that executes the request, and what it adds, if it names one.
    fn swap_carrier(&mut self, _carrier: &mut Carrier) {}
}

/// The conductor that executes a request, the duration of its lease, and what the conductor found out
/// for the request: for the same one it may be something else the next time.
#[derive(Default)]
pub(crate) struct Carrier {
    conductor: String,
    lease_ttl: Option<prost_types::Duration>,
    moves: Vec<scheduler::v1::PlannedMove>,
}

macro_rules! keyed {
    ($($method:literal: $message:ty $(, $carrier:ident)?;)*) => {$(
        impl Keyed for $message {
            const METHOD: &'static str = $method;

            fn take_request_id(&mut self) -> String {
                std::mem::take(&mut self.request_id)
            }
            $(
                fn swap_carrier(&mut self, $carrier: &mut Carrier) {
                    std::mem::swap(&mut self.conductor, &mut $carrier.conductor);
                    std::mem::swap(&mut self.lease_ttl, &mut $carrier.lease_ttl);
                }
            )?
        }
    )*};
}

keyed! {
    "RegisterHost": host::v1::RegisterHostRequest;
    "CordonHost": host::v1::CordonHostRequest;
    "UncordonHost": host::v1::UncordonHostRequest;
    "RemoveHost": host::v1::RemoveHostRequest;
    "FenceHost": host::v1::FenceHostRequest;
    "WriteOffPmem": host::v1::WriteOffPmemRequest;
    "CreateResourceProvider": placement::v1::CreateResourceProviderRequest;
    "DeleteResourceProvider": placement::v1::DeleteResourceProviderRequest;
    "ReplaceInventories": placement::v1::ReplaceInventoriesRequest;
    "ReplaceTraits": placement::v1::ReplaceTraitsRequest;
    "UpdateResourceProvider": placement::v1::UpdateResourceProviderRequest;
    "PutInventory": placement::v1::PutInventoryRequest;
    "DeleteInventory": placement::v1::DeleteInventoryRequest;
    "ReplaceAggregates": placement::v1::ReplaceAggregatesRequest;
    "DeleteAllocations": placement::v1::DeleteAllocationsRequest;
    "Reshape": placement::v1::ReshapeRequest;
    "BatchWrite": placement::v1::BatchWriteRequest;
    "CreateResourceClass": placement::v1::CreateResourceClassRequest;
    "RenameResourceClass": placement::v1::RenameResourceClassRequest;
    "DeleteResourceClass": placement::v1::DeleteResourceClassRequest;
    "CreateTrait": placement::v1::CreateTraitRequest;
    "DeleteTrait": placement::v1::DeleteTraitRequest;
    "ImportResourceProviders": placement::v1::ImportResourceProvidersRequest;
    "ImportConsumers": placement::v1::ImportConsumersRequest;
    "ReplaceAllocations": placement::v1::ReplaceAllocationsRequest;
    "UpdateSchedulingPolicy": policy::v1::UpdateSchedulingPolicyRequest;
    "CreateAggregate": policy::v1::CreateAggregateRequest;
    "UpdateAggregate": policy::v1::UpdateAggregateRequest;
    "DeleteAggregate": policy::v1::DeleteAggregateRequest;
    "CreateServerGroup": policy::v1::CreateServerGroupRequest;
    "DeleteServerGroup": policy::v1::DeleteServerGroupRequest;
    "CreateFlavor": scheduler::v1::CreateFlavorRequest;
    "DeleteFlavor": scheduler::v1::DeleteFlavorRequest;
    "CreatePciAlias": scheduler::v1::CreatePciAliasRequest;
    "DeletePciAlias": scheduler::v1::DeletePciAliasRequest;
    "ScheduleVm": scheduler::v1::ScheduleVmRequest, carrier;
    "ScheduleMigration": scheduler::v1::ScheduleMigrationRequest, carrier;
    "ScheduleNext": scheduler::v1::ScheduleNextRequest;
    "BeginDelete": scheduler::v1::BeginDeleteRequest, carrier;
    "BeginPower": scheduler::v1::BeginPowerRequest, carrier;
    "ScheduleMove": scheduler::v1::ScheduleMoveRequest, carrier;
    "ScheduleUnshelve": scheduler::v1::ScheduleUnshelveRequest, carrier;
    "ConfirmResize": scheduler::v1::ConfirmResizeRequest, carrier;
    "BeginRevertResize": scheduler::v1::BeginRevertResizeRequest, carrier;
    "BeginShelve": scheduler::v1::BeginShelveRequest, carrier;
    "CancelOperation": operation::v1::CancelOperationRequest;
    "ForceCompleteOperation": operation::v1::ForceCompleteOperationRequest;
    "Advance": operation::v1::AdvanceRequest;
    "TakeLease": operation::v1::TakeLeaseRequest;
    "RenewLeases": operation::v1::RenewLeasesRequest;
    "RegisterService": cluster::v1::RegisterServiceRequest;
    "FinalizeUpgrade": cluster::v1::FinalizeUpgradeRequest;
    "CreateVolume": volume::v1::CreateVolumeRequest;
    "DeleteVolume": volume::v1::DeleteVolumeRequest;
    "RotateGrantKey": cluster::v1::RotateGrantKeyRequest;
    "RevokeCertificate": cluster::v1::RevokeCertificateRequest;
    "ReinstateCertificate": cluster::v1::ReinstateCertificateRequest;
    "UnregisterService": cluster::v1::UnregisterServiceRequest;
}

impl Keyed for scheduler::v1::BeginDrainRequest {
    const METHOD: &'static str = "BeginDrain";

    fn take_request_id(&mut self) -> String {
        std::mem::take(&mut self.request_id)
    }

    fn swap_carrier(&mut self, carrier: &mut Carrier) {
        std::mem::swap(&mut self.conductor, &mut carrier.conductor);
        std::mem::swap(&mut self.lease_ttl, &mut carrier.lease_ttl);
        std::mem::swap(&mut self.moves, &mut carrier.moves);
    }
}

/// The caller, and the key under which the response is recorded.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) principal: String,
    pub(crate) key: Option<RequestKey>,
}

impl Caller {
    /// Returns the caller of a request that is idempotent without a key.
    pub(crate) fn unkeyed<T>(request: &Request<T>) -> Self {
        Self {
            principal: access::principal(request),
            key: None,
        }
    }

    /// Returns the caller's request.
    pub(crate) fn into_request(self, validate_only: bool, action: Action) -> DecisionRequest {
        DecisionRequest {
            principal: self.principal,
            key: self.key,
            validate_only,
            action,
        }
    }
}

/// Checks that an agent speaks for its own host.
///
/// # Errors
///
/// When it speaks for another one.
pub(crate) fn own_host<T>(request: &Request<T>, name: &str) -> Result<(), Status> {
    let name = name.strip_prefix("hosts/").unwrap_or(name);
    access::check_host(request.extensions(), name)
}

/// Checks that a conductor speaks for itself.
///
/// # Errors
///
/// When it speaks for another one.
pub(crate) fn own_service<T>(request: &Request<T>, name: &str) -> Result<(), Status> {
    let name = name.strip_prefix("services/").unwrap_or(name);
    access::check_conductor(request.extensions(), name)
}

/// Splits a request into its message and its caller.
///
/// # Errors
///
/// When the request id is none, or the request is to be carried out by another conductor than the one
/// that sends it.
pub(crate) fn open<T: Keyed>(request: Request<T>) -> Result<(T, Caller), Status> {
    let principal = access::principal(&request);
    let (_, extensions, mut message) = request.into_parts();
    let id = message.take_request_id();
    let id = field::optional_uuid(&id, "request_id")?;
    let mut carrier = Carrier::default();
    message.swap_carrier(&mut carrier);
    if let Some(name) = carrier.conductor.strip_prefix("services/") {
        access::check_conductor(&extensions, name)?;
    }
    let key = id.map(|id| RequestKey {
        method: T::METHOD.to_owned(),
        id,
        payload_hash: xxh3_128(&message.encode_to_vec()),
    });
    message.swap_carrier(&mut carrier);
    Ok((message, Caller { principal, key }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::v1::ScheduleVmRequest;

    fn open_for(conductor: &str, vm: &str) -> (ScheduleVmRequest, u128) {
        let message = ScheduleVmRequest {
            vm: vm.to_owned(),
            conductor: conductor.to_owned(),
            lease_ttl: Some(field::duration(conductor.len() as u64 * 1000)),
            request_id: "01234567-89ab-7def-8123-456789abcdef".to_owned(),
            ..ScheduleVmRequest::default()
        };
        let (message, caller) = open(Request::new(message)).unwrap();
        (message, caller.key.unwrap().payload_hash)
    }

    /// Goal: a request that is repeated through another conductor is the same request.
    #[test]
    fn the_conductor_is_not_part_of_a_request() {
        let (message, first) = open_for("services/c1", "vms/a");
        assert_eq!(message.conductor, "services/c1");
        assert!(message.lease_ttl.is_some() && message.request_id.is_empty());
        assert_eq!(open_for("services/other", "vms/a").1, first);
        assert_ne!(open_for("services/c1", "vms/b").1, first);
    }

    /// Goal: a drain that is repeated is the same request, although the conductor has planned again.
    #[test]
    fn the_plan_is_not_part_of_a_request() {
        let open_with = |host: &str, vms: &[&str]| {
            let planned = |vm: &&str| scheduler::v1::PlannedMove {
                vm: format!("vms/{vm}"),
                ..scheduler::v1::PlannedMove::default()
            };
            let message = scheduler::v1::BeginDrainRequest {
                host: host.to_owned(),
                moves: vms.iter().map(planned).collect(),
                request_id: "01234567-89ab-7def-8123-456789abcdef".to_owned(),
                ..scheduler::v1::BeginDrainRequest::default()
            };
            let (message, caller) = open(Request::new(message)).unwrap();
            (message.moves.len(), caller.key.unwrap().payload_hash)
        };
        let (moves, first) = open_with("hosts/h1", &["a", "b"]);
        assert_eq!(moves, 2);
        assert_eq!(open_with("hosts/h1", &[]).1, first);
        assert_ne!(open_with("hosts/h2", &["a", "b"]).1, first);
    }
}
