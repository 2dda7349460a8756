//! Envelopes with their commands: what surrounds every command, and parts of several of them.

mod read;
mod write;

use berth_domain::id::{Epoch, Generation, OperationId, ProviderId, TimeMs};
use berth_domain::operation::{Effect, LeaseRequest};
use berth_proto::convert::field::{self, Invalid};
use berth_proto::convert::operation::read_effect;
use berth_proto::convert::{ResourceName, placement};
use berth_proto::operation::v1::Effect as WireEffect;
use berth_proto::state::v1::move_drained::Begin;
use berth_proto::state::v1::{self, envelope};
use berth_state::command::{Command, Envelope, PlannedVm, ProviderInventories, RequestKey};
use bytes::Bytes;
use prost::Message as _;

use self::read::read;
use self::write::write;
use super::CodecError;

/// Returns the bytes of a command; never empty.
#[must_use]
pub fn encode_command(envelope: &Envelope) -> Bytes {
    let wire = v1::Envelope {
        at_ms: envelope.at.0,
        principal: envelope.principal.clone(),
        request: envelope.request.as_ref().map(write_request_key),
        audit: envelope.audit.as_deref().map(Into::into),
        command: Some(write(&envelope.command)),
    };
    wire.encode_to_vec().into()
}

/// Returns the command that these bytes are.
///
/// # Errors
///
/// When this build does not know the command or a part of it.
pub fn decode_command(bytes: &[u8]) -> Result<Envelope, CodecError> {
    let what = "command";
    let wire = v1::Envelope::decode(bytes).map_err(|source| CodecError::Wire { what, source })?;
    read_envelope(wire).map_err(|source| CodecError::Field { what, source })
}

fn read_envelope(wire: v1::Envelope) -> Result<Envelope, Invalid> {
    let command = wire
        .command
        .ok_or_else(|| Invalid::new("command", "must be one that this build knows"))?;
    Ok(Envelope {
        at: TimeMs(wire.at_ms),
        principal: wire.principal,
        request: wire.request.map(read_request_key).transpose()?,
        audit: field::optional(wire.audit, "audit")?.map(Box::new),
        command: read(command)?,
    })
}

fn write_request_key(key: &RequestKey) -> v1::RequestKey {
    v1::RequestKey {
        method: key.method.clone(),
        id: key.id.to_string(),
        payload_hash: write_hash(key.payload_hash),
    }
}

fn read_request_key(wire: v1::RequestKey) -> Result<RequestKey, Invalid> {
    Ok(RequestKey {
        id: field::uuid(&wire.id, "request.id")?,
        payload_hash: read_hash(&wire.payload_hash, "request.payload_hash")?,
        method: wire.method,
    })
}

pub(super) fn write_hash(hash: u128) -> Bytes {
    Bytes::copy_from_slice(&hash.to_be_bytes())
}

pub(super) fn read_hash(bytes: &[u8], field: &str) -> Result<u128, Invalid> {
    let bytes = bytes
        .try_into()
        .map_err(|_| Invalid::new(field, "must be 16 bytes"))?;
    Ok(u128::from_be_bytes(bytes))
}

pub(super) fn write_lease(lease: &LeaseRequest) -> Option<v1::LeaseRequest> {
    Some(v1::LeaseRequest {
        conductor: lease.conductor.resource_name(),
        ttl_ms: lease.ttl_ms,
    })
}

pub(super) fn read_lease(wire: Option<v1::LeaseRequest>) -> Result<LeaseRequest, Invalid> {
    let wire = wire.ok_or_else(|| Invalid::new("lease", "is required"))?;
    Ok(LeaseRequest {
        conductor: field::name(&wire.conductor, "lease.conductor")?,
        ttl_ms: wire.ttl_ms,
    })
}

/// A write of a batch is a command without what surrounds every command.
pub(super) fn write_of_batch(command: &Command) -> v1::Envelope {
    v1::Envelope {
        command: Some(write(command)),
        ..v1::Envelope::default()
    }
}

pub(super) fn read_of_batch(wire: v1::Envelope) -> Result<Command, Invalid> {
    let command = read_envelope(wire)?.command;
    if let Command::Batch { .. } = command {
        return Err(Invalid::new("command", "must not be a batch in a batch"));
    }
    Ok(command)
}

pub(super) fn write_planned(planned: &PlannedVm) -> v1::PlannedVm {
    v1::PlannedVm {
        vm: planned.vm.resource_name(),
        planned: planned.place.as_ref().map(Into::into),
    }
}

pub(super) fn read_planned(wire: v1::PlannedVm) -> Result<PlannedVm, Invalid> {
    Ok(PlannedVm {
        vm: field::name(&wire.vm, "vm")?,
        place: field::optional(wire.planned, "planned")?,
    })
}

/// Writes the move of a drained VM. What is no move is written as absent, which no member reads.
pub(super) fn write_move(begin: &Command) -> Option<Begin> {
    let wire = write(begin);
    if let envelope::Command::BeginMigration(migration) = wire {
        return Some(Begin::Migration(migration));
    }
    if let envelope::Command::BeginMove(wire) = wire {
        return Some(Begin::Move(wire));
    }
    None
}

pub(super) fn read_move(wire: Option<Begin>) -> Result<Command, Invalid> {
    match wire {
        None => Err(Invalid::new("begin", "must be one that this build knows")),
        Some(Begin::Migration(wire)) => read(envelope::Command::BeginMigration(wire)),
        Some(Begin::Move(wire)) => read(envelope::Command::BeginMove(wire)),
    }
}

pub(super) fn write_provider(
    (provider, after): (&ProviderId, &ProviderInventories),
) -> v1::ProviderInventories {
    v1::ProviderInventories {
        resource_provider: provider.resource_name(),
        generation: after.generation.0,
        inventories: placement::write_inventories(&after.inventories),
    }
}

pub(super) fn read_provider(
    wire: v1::ProviderInventories,
) -> Result<(ProviderId, ProviderInventories), Invalid> {
    let after = ProviderInventories {
        generation: Generation(wire.generation),
        inventories: placement::read_inventories(wire.inventories, "inventories")?,
    };
    let provider = field::name(&wire.resource_provider, "resource_provider")?;
    Ok((provider, after))
}

pub(super) fn write_hold((operation, epoch): &(OperationId, Epoch)) -> v1::LeaseHold {
    v1::LeaseHold {
        operation: operation.resource_name(),
        epoch: epoch.0,
    }
}

pub(super) fn read_hold(wire: v1::LeaseHold) -> Result<(OperationId, Epoch), Invalid> {
    let operation = field::name(&wire.operation, "operation")?;
    Ok((operation, Epoch(wire.epoch)))
}

/// An effect that this build does not know is not the absence of one.
pub(super) fn read_known_effect(wire: Option<WireEffect>) -> Result<Effect, Invalid> {
    match wire {
        Some(WireEffect { effect: None }) => {
            Err(Invalid::new("effect", "must be one that this build knows"))
        }
        Some(_) | None => read_effect(wire),
    }
}
