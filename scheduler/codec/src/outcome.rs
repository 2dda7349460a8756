//! What came of a command: for a member that passed it on, and stored with its request.

use std::sync::Arc;

use berth_domain::refusal::Refusal;
use berth_domain::resource::{ResourceClass, Trait};
use berth_proto::convert::field::{self, Invalid};
use berth_proto::convert::{ResourceName, placement};
use berth_proto::state::v1::{self, outcome::Outcome as Wire};
use berth_state::Reply;
use bytes::Bytes;
use prost::Message as _;

use super::CodecError;
use super::request::read_names;
use super::row::{read_custom, write_custom};

/// Returns an outcome as bytes.
#[must_use]
pub fn encode_outcome(outcome: &Result<Reply, Refusal>) -> Bytes {
    let wire = match outcome {
        Ok(reply) => write(reply),
        Err(refusal) => Wire::Refused(refusal.into()),
    };
    let wire = v1::Outcome {
        outcome: Some(wire),
    };
    wire.encode_to_vec().into()
}

/// Returns the outcome that these bytes are.
///
/// # Errors
///
/// When this build does not know the outcome or a part of it.
pub fn decode_outcome(bytes: &[u8]) -> Result<Result<Reply, Refusal>, CodecError> {
    let what = "outcome";
    let wire = v1::Outcome::decode(bytes).map_err(|source| CodecError::Wire { what, source })?;
    read(wire).map_err(|source| CodecError::Field { what, source })
}

/// Reads the outcome that is stored with a request.
pub(super) fn read_recorded(bytes: Bytes) -> Result<Result<Reply, Refusal>, Invalid> {
    let wire = v1::Outcome::decode(bytes);
    let wire = wire.map_err(|error| Invalid::new("outcome", format!("is damaged: {error}")))?;
    read(wire).map_err(|invalid| invalid.within("outcome"))
}

fn write(reply: &Reply) -> Wire {
    match reply {
        Reply::None => Wire::Nothing(v1::Nothing {}),
        Reply::Host(host) => Wire::Host((&**host).into()),
        Reply::Service(service) => Wire::Service((&**service).into()),
        Reply::Flavor(flavor) => Wire::Flavor((&**flavor).into()),
        Reply::PciAlias(alias) => Wire::PciAlias((&**alias).into()),
        Reply::Image(image) => Wire::Image((&**image).into()),
        Reply::Network(network) => Wire::Network((&**network).into()),
        Reply::Provider(provider) => Wire::Provider((&**provider).into()),
        Reply::Consumers(consumers) => Wire::Consumers(v1::Consumers {
            consumers: consumers.iter().map(|c| (&**c).into()).collect(),
        }),
        Reply::Batch {
            providers,
            consumers,
        } => Wire::Batch(v1::Written {
            resource_providers: providers.iter().map(|p| (&**p).into()).collect(),
            consumers: consumers.iter().map(|c| (&**c).into()).collect(),
        }),
        Reply::Class { class, existed } => Wire::ResourceClass(v1::CustomOutcome {
            custom: Some(write_custom(class, ResourceClass::as_str)),
            existed: *existed,
        }),
        Reply::Trait { custom, existed } => Wire::Trait(v1::CustomOutcome {
            custom: Some(write_custom(custom, Trait::as_str)),
            existed: *existed,
        }),
        Reply::Aggregate(aggregate) => Wire::Aggregate((&**aggregate).into()),
        Reply::ServerGroup(group) => Wire::ServerGroup((&**group).into()),
        Reply::Volume(volume) => Wire::Volume((&**volume).into()),
        Reply::Policy(policy) => Wire::Policy((&**policy).into()),
        Reply::Operation(operation) => Wire::Operation((&**operation).into()),
        Reply::Leases(ids) => Wire::Leases(v1::OperationNames {
            names: ids.iter().map(ResourceName::resource_name).collect(),
        }),
    }
}

fn read(wire: v1::Outcome) -> Result<Result<Reply, Refusal>, Invalid> {
    let wire = wire
        .outcome
        .ok_or_else(|| Invalid::new("outcome", "must be one that this build knows"))?;
    Ok(Ok(match wire {
        Wire::Refused(wire) => return Ok(Err(wire.try_into()?)),
        Wire::Nothing(v1::Nothing {}) => Reply::None,
        Wire::Host(wire) => Reply::Host(Arc::new(wire.try_into()?)),
        Wire::Service(wire) => Reply::Service(Arc::new(wire.try_into()?)),
        Wire::Flavor(wire) => Reply::Flavor(Arc::new(wire.try_into()?)),
        Wire::PciAlias(wire) => Reply::PciAlias(Arc::new(wire.try_into()?)),
        Wire::Image(wire) => Reply::Image(Arc::new(wire.try_into()?)),
        Wire::Network(wire) => Reply::Network(Arc::new(wire.try_into()?)),
        Wire::Provider(wire) => Reply::Provider(Arc::new(wire.try_into()?)),
        Wire::Consumers(wire) => {
            let consumers = field::each(wire.consumers, "consumers", usize::MAX)?;
            Reply::Consumers(consumers.into_iter().map(Arc::new).collect())
        }
        Wire::Batch(wire) => {
            let providers = field::each(wire.resource_providers, "resource_providers", usize::MAX)?;
            let consumers = field::each(wire.consumers, "consumers", usize::MAX)?;
            Reply::Batch {
                providers: providers.into_iter().map(Arc::new).collect(),
                consumers: consumers.into_iter().map(Arc::new).collect(),
            }
        }
        Wire::ResourceClass(wire) => Reply::Class {
            class: Arc::new(read_custom(&custom(wire.custom)?, placement::read_class)?),
            existed: wire.existed,
        },
        Wire::Trait(wire) => Reply::Trait {
            custom: Arc::new(read_custom(&custom(wire.custom)?, placement::read_trait)?),
            existed: wire.existed,
        },
        Wire::Aggregate(wire) => Reply::Aggregate(Arc::new(wire.try_into()?)),
        Wire::ServerGroup(wire) => Reply::ServerGroup(Arc::new(wire.try_into()?)),
        Wire::Volume(wire) => Reply::Volume(Arc::new(wire.try_into()?)),
        Wire::Policy(wire) => Reply::Policy(Arc::new(wire.try_into()?)),
        Wire::Operation(wire) => Reply::Operation(Arc::new(wire.try_into()?)),
        Wire::Leases(wire) => Reply::Leases(read_names(wire.names, "leases")?),
    }))
}

fn custom(wire: Option<v1::Custom>) -> Result<v1::Custom, Invalid> {
    wire.ok_or_else(|| Invalid::new("custom", "is required"))
}
