//! Remembered requests: a row with parts of its own.

use std::sync::Arc;

use berth_domain::id::TimeMs;
use berth_proto::convert::field::{self, Invalid};
use berth_proto::convert::{ResourceName, placement};
use berth_proto::state::v1;
use berth_proto::state::v1::receipt::Receipt as Wire;
use berth_state::request::{Receipt, Request, RequestName};

use super::command::{read_hash, write_hash};
use super::outcome;

pub(super) fn write_request(request: &Request) -> v1::Request {
    v1::Request {
        id: request.name.id.to_string(),
        method: request.name.method.clone(),
        principal: request.name.principal.clone(),
        sequence: request.sequence,
        received_at_ms: request.received_at.0,
        payload_hash: write_hash(request.payload_hash),
        receipt: Some(v1::Receipt {
            receipt: Some(write_receipt(&request.receipt)),
        }),
    }
}

pub(super) fn read_request(wire: v1::Request) -> Result<Request, Invalid> {
    let receipt = wire
        .receipt
        .ok_or_else(|| Invalid::new("receipt", "is required"))?;
    Ok(Request {
        name: Arc::new(RequestName {
            id: field::uuid(&wire.id, "id")?,
            method: wire.method,
            principal: wire.principal,
        }),
        sequence: wire.sequence,
        received_at: TimeMs(wire.received_at_ms),
        payload_hash: read_hash(&wire.payload_hash, "payload_hash")?,
        receipt: read_receipt(receipt.receipt)?,
    })
}

fn write_receipt(receipt: &Receipt) -> Wire {
    match receipt {
        Receipt::Outcome(outcome) => Wire::Outcome(outcome::encode_outcome(outcome)),
        Receipt::Forgotten => Wire::Forgotten(v1::Nothing {}),
        Receipt::None => Wire::Nothing(v1::Nothing {}),
        Receipt::Host(name) => Wire::Host(name.resource_name()),
        Receipt::Service(name) => Wire::Service(name.resource_name()),
        Receipt::Flavor(name) => Wire::Flavor(name.resource_name()),
        Receipt::PciAlias(name) => Wire::PciAlias(name.resource_name()),
        Receipt::Provider(id) => Wire::Provider(id.resource_name()),
        Receipt::Consumers(ids) => Wire::Consumers(v1::ConsumerNames {
            names: ids.iter().map(ResourceName::resource_name).collect(),
        }),
        Receipt::Aggregate(name) => Wire::Aggregate(name.resource_name()),
        Receipt::ServerGroup(name) => Wire::ServerGroup(name.resource_name()),
        Receipt::Policy => Wire::Policy(v1::Nothing {}),
        Receipt::Operation(id) => Wire::Operation(id.resource_name()),
        Receipt::Leases(ids) => Wire::Leases(v1::OperationNames {
            names: ids.iter().map(ResourceName::resource_name).collect(),
        }),
        Receipt::Batch {
            providers,
            consumers,
        } => Wire::Batch(v1::WrittenNames {
            providers: providers.iter().map(ResourceName::resource_name).collect(),
            consumers: consumers.iter().map(ResourceName::resource_name).collect(),
        }),
        Receipt::Class { name, existed } => Wire::ResourceClass(v1::CustomName {
            name: name.to_string(),
            existed: *existed,
        }),
        Receipt::Trait { name, existed } => Wire::Trait(v1::CustomName {
            name: name.to_string(),
            existed: *existed,
        }),
        Receipt::Volume(id) => Wire::Volume(id.resource_name()),
        Receipt::Refused(refusal) => Wire::Refused(refusal.into()),
    }
}

fn read_receipt(wire: Option<Wire>) -> Result<Receipt, Invalid> {
    let wire = wire.ok_or_else(|| Invalid::new("receipt", "must be one that this build knows"))?;
    Ok(match wire {
        Wire::Outcome(bytes) => Receipt::Outcome(Arc::new(outcome::read_recorded(bytes)?)),
        Wire::Forgotten(v1::Nothing {}) => Receipt::Forgotten,
        Wire::Nothing(v1::Nothing {}) => Receipt::None,
        Wire::Host(name) => Receipt::Host(field::name(&name, "host")?),
        Wire::Service(name) => Receipt::Service(field::name(&name, "service")?),
        Wire::Flavor(name) => Receipt::Flavor(field::name(&name, "flavor")?),
        Wire::PciAlias(name) => Receipt::PciAlias(field::name(&name, "pci_alias")?),
        Wire::Provider(name) => Receipt::Provider(field::name(&name, "provider")?),
        Wire::Aggregate(name) => Receipt::Aggregate(field::name(&name, "aggregate")?),
        Wire::ServerGroup(name) => Receipt::ServerGroup(field::name(&name, "server_group")?),
        Wire::Policy(v1::Nothing {}) => Receipt::Policy,
        Wire::Operation(name) => Receipt::Operation(field::name(&name, "operation")?),
        Wire::Consumers(wire) => Receipt::Consumers(read_names(wire.names, "consumers")?),
        Wire::Batch(wire) => Receipt::Batch {
            providers: read_names(wire.providers, "providers")?,
            consumers: read_names(wire.consumers, "consumers")?,
        },
        Wire::Leases(wire) => Receipt::Leases(read_names(wire.names, "leases")?),
        Wire::ResourceClass(wire) => Receipt::Class {
            name: placement::read_class(&wire.name, "name")?,
            existed: wire.existed,
        },
        Wire::Trait(wire) => Receipt::Trait {
            name: placement::read_trait(&wire.name, "name")?,
            existed: wire.existed,
        },
        Wire::Volume(name) => Receipt::Volume(field::name(&name, "volume")?),
        Wire::Refused(wire) => Receipt::Refused(wire.try_into()?),
    })
}

pub(super) fn read_names<N: ResourceName>(
    names: Vec<String>,
    field: &str,
) -> Result<Vec<N>, Invalid> {
    field::each_by(names, field, usize::MAX, |name: String| {
        N::from_resource_name(&name)
    })
}
