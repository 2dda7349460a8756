//! Request ids: from a message to the key under which its response is recorded.
//!
//! The key holds a hash of the message without its id, so that one id used for two different
//! requests is detected. The conductor is not part of it, nor what it adds (a plan, what a fence command
//! printed): a user whose conductor died retries at another one, with the same id, and gets the first
//! response.

use berth_decide::{Action, DecisionRequest};
use berth_process::access;
use berth_proto::convert::field;
use berth_proto::{cluster, host, image, operation, placement, policy, scheduler, volume};
use berth_state::command::RequestKey;
use prost::Message;
use tonic::{Request, Status};
use xxhash_rust::xxh3::xxh3_128;

/// A message that may carry a request id.
pub(crate) trait Keyed: Message {
    /// The method, as `ScheduleVm`.
    const METHOD: &'static str;

    /// Takes the request id out.
    fn take_request_id(&mut self) -> String;

    /// Returns a hash of what the user requests: without what a conductor adds, which may be something
    /// else the next time.
    fn payload_hash(&mut self) -> u128;

    /// Returns the conductor that executes the request, if it names one.
    fn conductor(&self) -> &str {
        ""
    }
}

/// Lists the messages, with the fields that a conductor adds; `carried`: the conductor is one of them.
macro_rules! keyed {
    (@conductor carried $message:ident) => { &$message.conductor };
    (@conductor added $message:ident) => { "" };
    ($($method:literal: $message:ty $(, $how:ident($($field:ident),*))?;)*) => {
        $(
            impl Keyed for $message {
                const METHOD: &'static str = $method;

                fn take_request_id(&mut self) -> String {
                    std::mem::take(&mut self.request_id)
                }

                fn payload_hash(&mut self) -> u128 {
                    $($(let $field = std::mem::take(&mut self.$field);)*)?
                    let hash = xxh3_128(&self.encode_to_vec());
                    $($(self.$field = $field;)*)?
                    hash
                }

                $(
                    fn conductor(&self) -> &str {
                        keyed!(@conductor $how self)
                    }
                )?
            }
        )*

        /// Each message: its full name, the fields that a conductor adds, and how it is hashed.
        #[cfg(test)]
        const KEYED: &[tests::KeyedMessage] = &[$(
            (
                <$message as prost::Name>::NAME,
                <$message as prost::Name>::PACKAGE,
                &[$($(stringify!($field)),*)?],
                tests::hash_of::<$message>,
            ),
        )*];
    };
}

keyed! {
    "RegisterHost": host::v1::RegisterHostRequest;
    "CordonHost": host::v1::CordonHostRequest;
    "UncordonHost": host::v1::UncordonHostRequest;
    "RemoveHost": host::v1::RemoveHostRequest;
    "FenceHost": host::v1::FenceHostRequest, added(output, on_behalf_of);
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
    "CreateNetwork": scheduler::v1::CreateNetworkRequest;
    "DeleteNetwork": scheduler::v1::DeleteNetworkRequest;
    "CreateImage": image::v1::CreateImageRequest;
    "CompleteImage": image::v1::CompleteImageRequest;
    "SetImageCopy": image::v1::SetImageCopyRequest;
    "DeleteImage": image::v1::DeleteImageRequest;
    "ScheduleVm": scheduler::v1::ScheduleVmRequest, carried(conductor, lease_ttl);
    "ScheduleMigration": scheduler::v1::ScheduleMigrationRequest, carried(conductor, lease_ttl);
    "ScheduleNext": scheduler::v1::ScheduleNextRequest;
    "BeginDelete": scheduler::v1::BeginDeleteRequest, carried(conductor, lease_ttl);
    "BeginDrain": scheduler::v1::BeginDrainRequest, carried(conductor, lease_ttl, moves);
    "BeginPower": scheduler::v1::BeginPowerRequest, carried(conductor, lease_ttl);
    "UpdateVm": scheduler::v1::UpdateVmRequest;
    "UpdateRestartPolicy": scheduler::v1::UpdateRestartPolicyRequest;
    "OpenConsole": scheduler::v1::OpenConsoleRequest, carried(conductor);
    "ScheduleMove": scheduler::v1::ScheduleMoveRequest, carried(conductor, lease_ttl);
    "ScheduleUnshelve": scheduler::v1::ScheduleUnshelveRequest, carried(conductor, lease_ttl);
    "ConfirmResize": scheduler::v1::ConfirmResizeRequest, carried(conductor, lease_ttl);
    "BeginRevertResize": scheduler::v1::BeginRevertResizeRequest, carried(conductor, lease_ttl);
    "BeginShelve": scheduler::v1::BeginShelveRequest, carried(conductor, lease_ttl);
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
    "EndRecovery": cluster::v1::EndRecoveryRequest;
    "UnregisterService": cluster::v1::UnregisterServiceRequest;
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
    if let Some(name) = message.conductor().strip_prefix("services/") {
        access::check_conductor(&extensions, name)?;
    }
    let key = id.map(|id| RequestKey {
        method: T::METHOD.to_owned(),
        id,
        payload_hash: message.payload_hash(),
    });
    Ok((message, Caller { principal, key }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost_reflect::{
        DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
    };

    use super::*;

    /// The name of a message and its package, the fields that a conductor adds, and its hash.
    pub(super) type KeyedMessage = (&'static str, &'static str, &'static [&'static str], Hash);
    type Hash = fn(&DynamicMessage) -> u128;

    /// Opens a message; what a handler gets of it is all but the request id.
    pub(super) fn hash_of<T: Keyed + Default>(message: &DynamicMessage) -> u128 {
        let opened = T::decode(&*message.encode_to_vec()).expect("the same message");
        let (opened, caller) = open(Request::new(opened)).expect("a good request");
        let mut rest = message.clone();
        rest.clear_field_by_name("request_id");
        let rest = T::decode(&*rest.encode_to_vec()).expect("the same message");
        assert!(opened.encode_to_vec() == rest.encode_to_vec(), "{message}");
        caller.key.expect("a request id").payload_hash
    }

    /// What a user says in the requests to which conductors add something. A new field of one of these
    /// is here, or among those that are added.
    const OF_USERS: &[(&str, &[&str])] = &[
        ("FenceHostRequest", &["name", "method", "incarnation"]),
        (
            "ScheduleVmRequest",
            &["vm", "uid", "template", "requested_host", "validate_only"],
        ),
        (
            "ScheduleMigrationRequest",
            &["vm", "requested_host", "validate_only", "transfer"],
        ),
        ("BeginDeleteRequest", &["vm"]),
        ("BeginDrainRequest", &["host", "spec"]),
        ("BeginPowerRequest", &["vm", "power", "by_policy"]),
        ("OpenConsoleRequest", &["vm", "take_over"]),
        (
            "ScheduleMoveRequest",
            &[
                "vm",
                "flavor",
                "requested_host",
                "verify",
                "evacuate",
                "validate_only",
                "preferred_host",
                "preferred_assignment",
            ],
        ),
        (
            "ScheduleUnshelveRequest",
            &["vm", "requested_host", "validate_only"],
        ),
        ("ConfirmResizeRequest", &["vm"]),
        ("BeginRevertResizeRequest", &["vm"]),
        ("BeginShelveRequest", &["vm"]),
    ];

    /// Goal: one id for two different requests is detected, and a request that is repeated through
    /// another conductor is the same request, whatever that one adds. Method: every field of every
    /// message with a request id, set or not.
    #[test]
    fn what_a_conductor_adds_is_no_part_of_a_request() {
        let pool = DescriptorPool::decode(berth_proto::DESCRIPTOR_SET).expect("descriptors");
        let mut fields = 0;
        for (name, package, added, hash) in super::KEYED {
            let message = pool.get_message_by_name(&format!("{package}.{name}"));
            let message = message.expect("it is in the descriptors");
            let plain = with_id(&message);
            let plain_hash = hash(&plain);
            let mut of_users = BTreeSet::new();
            for field in message
                .fields()
                .filter(|field| field.name() != "request_id")
            {
                let mut changed = plain.clone();
                changed.set_field(&field, sample(&field));
                let is_part = hash(&changed) != plain_hash;
                let is_added = added.contains(&field.name());
                assert_eq!(is_part, !is_added, "{} of {name}", field.name());
                if is_part {
                    of_users.insert(field.name().to_owned());
                }
                fields += 1;
            }
            let listed = OF_USERS.iter().find(|(of, _)| of == name);
            assert_eq!(listed.is_some(), !added.is_empty(), "{name}");
            if let Some((_, listed)) = listed {
                let listed = listed.iter().map(|&field| field.to_owned());
                assert_eq!(of_users, listed.collect(), "{name}");
            }
        }
        println!("{} messages, {fields} fields", super::KEYED.len());
        assert!(super::KEYED.len() > 50 && fields > 150, "{fields}");
    }

    fn with_id(message: &MessageDescriptor) -> DynamicMessage {
        let mut plain = DynamicMessage::new(message.clone());
        let id = "01234567-89ab-7def-8123-456789abcdef".to_owned();
        plain.set_field_by_name("request_id", Value::String(id));
        plain
    }

    fn sample(field: &FieldDescriptor) -> Value {
        let kind = field.kind();
        if field.is_map() {
            return Value::Map([(MapKey::String("a".to_owned()), map_value(&kind))].into());
        }
        match field.is_list() {
            true => Value::List(vec![value(&kind)]),
            false => value(&kind),
        }
    }

    fn map_value(entry: &Kind) -> Value {
        let entry = entry.as_message().expect("entries are messages");
        value(&entry.map_entry_value_field().kind())
    }

    fn value(kind: &Kind) -> Value {
        match kind {
            Kind::Message(message) => Value::Message(DynamicMessage::new(message.clone())),
            Kind::Enum(_) => Value::EnumNumber(1),
            Kind::String => Value::String("services/c1".to_owned()),
            Kind::Bytes => Value::Bytes(vec![1].into()),
            Kind::Bool => Value::Bool(true),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(1),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(1),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(1),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(1),
            Kind::Float => Value::F32(1.0),
            Kind::Double => Value::F64(1.0),
        }
    }
}
