//! Envelopes with their commands.

use std::sync::Arc;

use berth_domain::id::{Epoch, Generation, OperationId, ProviderId, TimeMs};
use berth_domain::operation::{Effect, LeaseRequest};
use berth_domain::pmem::NAMESPACES_MAX;
use berth_domain::policy::MigrationPolicy;
use berth_domain::recovery::GUESTS_MAX;
use berth_domain::version::ServiceVersion;
use berth_domain::volume::REPORTS_MAX;
use berth_proto::convert::aggregate::{read_change, write_change};
use berth_proto::convert::field::{self, Invalid};
use berth_proto::convert::operation::{read_effect, read_power, write_effect, write_power};
use berth_proto::convert::transfer::{
    read_hosts_tried, read_policy, write_hosts_tried, write_policy,
};
use berth_proto::convert::{ResourceName, ownership, placement, restart, revocation, vm_metadata};
use berth_proto::host::v1::fence::Method as WireMethod;
use berth_proto::host::v1::host::Liveness as WireLiveness;
use berth_proto::operation::v1::{Effect as WireEffect, Step as WireStep};
use berth_proto::state::v1::move_drained::Begin;
use berth_proto::state::v1::{self, envelope};
use berth_state::command::{Command, Envelope, PlannedVm, ProviderInventories, RequestKey};
use bytes::Bytes;
use prost::Message as _;

use super::CodecError;
use super::row::read_seed;

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

fn write_lease(lease: &LeaseRequest) -> Option<v1::LeaseRequest> {
    Some(v1::LeaseRequest {
        conductor: lease.conductor.resource_name(),
        ttl_ms: lease.ttl_ms,
    })
}

fn read_lease(wire: Option<v1::LeaseRequest>) -> Result<LeaseRequest, Invalid> {
    let wire = wire.ok_or_else(|| Invalid::new("lease", "is required"))?;
    Ok(LeaseRequest {
        conductor: field::name(&wire.conductor, "lease.conductor")?,
        ttl_ms: wire.ttl_ms,
    })
}

fn write(command: &Command) -> envelope::Command {
    use envelope::Command as Wire;
    match command {
        Command::Bootstrap { cluster } => Wire::Bootstrap(v1::Bootstrap {
            cluster_id: cluster.to_string(),
        }),
        Command::RegisterHost {
            host,
            provider,
            report,
        } => Wire::RegisterHost(v1::RegisterHost {
            host: host.resource_name(),
            resource_provider: provider.resource_name(),
            report: Some(report.into()),
        }),
        Command::SetLiveness { host, liveness } => Wire::SetLiveness(v1::SetLiveness {
            host: host.resource_name(),
            liveness: WireLiveness::from(*liveness).into(),
        }),
        Command::SetCordon { host, cordoned } => Wire::SetCordon(v1::SetCordon {
            host: host.resource_name(),
            cordoned: *cordoned,
        }),
        Command::NoteReality {
            host,
            incarnation,
            comparison,
        } => Wire::NoteReality(v1::NoteReality {
            host: host.resource_name(),
            incarnation: incarnation.to_string(),
            comparison: Some(comparison.into()),
        }),
        Command::ReportGuests {
            host,
            incarnation,
            basis,
            guests,
        } => Wire::ReportGuests(v1::ReportGuests {
            host: host.resource_name(),
            incarnation: incarnation.to_string(),
            basis_revision: *basis,
            guests: guests.iter().map(Into::into).collect(),
        }),
        Command::EndRecovery { accept_conflicts } => Wire::EndRecovery(v1::EndRecovery {
            accept_conflicts: *accept_conflicts,
        }),
        Command::NoteErasures {
            host,
            incarnation,
            reports,
        } => Wire::NoteErasures(v1::NoteErasures {
            host: host.resource_name(),
            incarnation: incarnation.to_string(),
            reports: reports.iter().map(Into::into).collect(),
        }),
        Command::CreateVolume {
            volume,
            limit_bytes,
        } => Wire::CreateVolume(v1::CreateVolume {
            volume: Some((&**volume).into()),
            limit_bytes: *limit_bytes,
        }),
        Command::DeleteVolume {
            volume,
            generation,
            forget,
        } => Wire::DeleteVolume(v1::DeleteVolume {
            volume: volume.resource_name(),
            generation: generation.map_or(0, |generation| generation.0),
            forget: *forget,
        }),
        Command::NoteVolumes {
            host,
            incarnation,
            reports,
        } => Wire::NoteVolumes(v1::NoteVolumes {
            host: host.resource_name(),
            incarnation: incarnation.to_string(),
            reports: reports.iter().map(Into::into).collect(),
        }),
        Command::WriteOffPmem { host, namespace } => Wire::WriteOffPmem(v1::WriteOffPmem {
            host: host.resource_name(),
            namespace: namespace.to_string(),
        }),
        Command::FenceHost {
            host,
            method,
            by,
            output,
            incarnation,
        } => Wire::FenceHost(v1::FenceHost {
            host: host.resource_name(),
            method: WireMethod::from(*method).into(),
            principal: by.clone(),
            output: output.clone(),
            incarnation: incarnation.to_string(),
        }),
        Command::RemoveHost { host } => Wire::RemoveHost(v1::RemoveHost {
            host: host.resource_name(),
        }),
        Command::RegisterService(service) => Wire::RegisterService(service.into()),
        Command::CreateFlavor(flavor) => Wire::CreateFlavor(flavor.into()),
        Command::DeleteFlavor { flavor } => Wire::DeleteFlavor(v1::DeleteFlavor {
            flavor: flavor.resource_name(),
        }),
        Command::CreateAggregate(aggregate) => Wire::CreateAggregate(aggregate.into()),
        Command::UpdateAggregate { aggregate, change } => {
            Wire::UpdateAggregate(write_change(aggregate, change))
        }
        Command::DeleteAggregate { aggregate } => Wire::DeleteAggregate(v1::DeleteAggregate {
            aggregate: aggregate.resource_name(),
        }),
        Command::CreateServerGroup(group) => Wire::CreateServerGroup(group.into()),
        Command::DeleteServerGroup { group } => Wire::DeleteServerGroup(v1::DeleteServerGroup {
            server_group: group.resource_name(),
        }),
        Command::SetPolicy(policy) => Wire::SetPolicy(policy.into()),
        Command::CreatePciAlias(alias) => Wire::CreatePciAlias(alias.into()),
        Command::DeletePciAlias { alias } => Wire::DeletePciAlias(v1::DeletePciAlias {
            pci_alias: alias.resource_name(),
        }),
        Command::CreateImage(image) => Wire::CreateImage(v1::CreateImage {
            image: Some(image.into()),
        }),
        Command::CompleteImage {
            image,
            uid,
            content,
            host,
        } => Wire::CompleteImage(v1::CompleteImage {
            image: image.resource_name(),
            uid: uid.to_string(),
            content: Some(content.into()),
            host: host.resource_name(),
        }),
        Command::SetImageCopy {
            image,
            uid,
            host,
            present,
        } => Wire::SetImageCopy(v1::SetImageCopy {
            image: image.resource_name(),
            uid: uid.to_string(),
            host: host.resource_name(),
            present: *present,
        }),
        Command::DeleteImage { image, uid } => Wire::DeleteImage(v1::DeleteImage {
            image: image.resource_name(),
            uid: uid.map(|uid| uid.to_string()).unwrap_or_default(),
        }),
        Command::CreateProvider { id, name, parent } => Wire::CreateProvider(v1::CreateProvider {
            name: id.resource_name(),
            display_name: name.clone(),
            parent: field::name_or_empty(parent.as_ref()),
        }),
        Command::UpdateProvider {
            id,
            name,
            parent,
            reparent,
        } => Wire::UpdateProvider(v1::UpdateProvider {
            name: id.resource_name(),
            display_name: name.clone(),
            parent: parent.map(|parent| field::name_or_empty(parent.as_ref())),
            reparent: *reparent,
        }),
        Command::DeleteProvider { id } => Wire::DeleteProvider(v1::DeleteProvider {
            name: id.resource_name(),
        }),
        Command::SetInventories {
            provider,
            generation,
            inventories,
        } => Wire::SetInventories(v1::SetInventories {
            resource_provider: provider.resource_name(),
            generation: generation.0,
            inventories: placement::write_inventories(inventories),
        }),
        Command::PutInventory {
            provider,
            generation,
            class,
            inventory,
            create,
        } => Wire::PutInventory(v1::PutInventory {
            resource_provider: provider.resource_name(),
            generation: generation.map(|g| g.0),
            resource_class: class.to_string(),
            inventory: Some(inventory.into()),
            create: *create,
        }),
        Command::DeleteInventory { provider, class } => {
            Wire::DeleteInventory(v1::DeleteInventory {
                resource_provider: provider.resource_name(),
                resource_class: class.to_string(),
            })
        }
        Command::DeleteInventories { provider } => Wire::DeleteInventories(v1::DeleteInventories {
            resource_provider: provider.resource_name(),
        }),
        Command::SetTraits {
            provider,
            generation,
            traits,
        } => Wire::SetTraits(v1::SetTraits {
            resource_provider: provider.resource_name(),
            generation: generation.0,
            traits: placement::write_traits(traits),
        }),
        Command::DeleteTraits { provider } => Wire::DeleteTraits(v1::DeleteTraits {
            resource_provider: provider.resource_name(),
        }),
        Command::SetAggregates {
            provider,
            generation,
            aggregates,
        } => Wire::SetAggregates(v1::SetAggregates {
            resource_provider: provider.resource_name(),
            generation: generation.map(|g| g.0),
            aggregates: placement::write_aggregates(aggregates),
        }),
        Command::SetAllocations { consumers } => Wire::SetAllocations(v1::SetAllocations {
            consumers: consumers.iter().map(Into::into).collect(),
        }),
        Command::DeleteAllocations { consumer } => Wire::DeleteAllocations(v1::DeleteAllocations {
            consumer: consumer.resource_name(),
        }),
        Command::Reshape {
            inventories,
            consumers,
        } => Wire::Reshape(v1::Reshape {
            providers: inventories.iter().map(write_provider).collect(),
            consumers: consumers.iter().map(Into::into).collect(),
        }),
        Command::Batch { writes } => Wire::Batch(v1::Batch {
            writes: writes.iter().map(write_of_batch).collect(),
        }),
        Command::CreateClass { class } => Wire::CreateClass(v1::CreateClass {
            resource_class: class.to_string(),
        }),
        Command::RenameClass { from, to } => Wire::RenameClass(v1::RenameClass {
            old_name: from.to_string(),
            new_name: to.to_string(),
        }),
        Command::DeleteClass { class } => Wire::DeleteClass(v1::DeleteClass {
            resource_class: class.to_string(),
        }),
        Command::CreateTrait { name } => Wire::CreateTrait(v1::CreateTrait {
            r#trait: name.to_string(),
        }),
        Command::DeleteTrait { name } => Wire::DeleteTrait(v1::DeleteTrait {
            r#trait: name.to_string(),
        }),
        Command::ImportProviders { source, providers } => {
            Wire::ImportProviders(v1::ImportProviders {
                source: source.clone(),
                providers: providers.iter().map(Into::into).collect(),
            })
        }
        Command::ImportConsumers { source, consumers } => {
            Wire::ImportConsumers(v1::ImportConsumers {
                source: source.clone(),
                consumers: consumers.iter().map(Into::into).collect(),
            })
        }
        Command::BeginBoot {
            operation,
            vm,
            uid,
            spec,
            requested_host,
            claim,
            lease,
            project,
            restart,
            first_boot,
            metadata,
        } => Wire::BeginBoot(v1::BeginBoot {
            operation: operation.resource_name(),
            vm: vm.resource_name(),
            uid: uid.to_string(),
            spec: Some((&**spec).into()),
            requested_host: field::name_or_empty(requested_host.as_ref()),
            claim: Some(claim.into()),
            lease: write_lease(lease),
            project: ownership::write_project(project.as_ref()),
            restart_policy: restart::write(restart),
            first_boot: first_boot.as_deref().map(Into::into),
            labels: metadata.labels.clone(),
            description: metadata.description.clone(),
            protected: metadata.protected,
        }),
        Command::UpdateVm { vm, change } => Wire::UpdateVm(v1::UpdateVm {
            vm: vm.resource_name(),
            set_labels: change.set_labels.clone(),
            remove_labels: change.remove_labels.iter().cloned().collect(),
            description: change.description.clone(),
            protected: change.protected,
        }),
        Command::SetRestartPolicy { vm, policy } => Wire::SetRestartPolicy(v1::SetRestartPolicy {
            vm: vm.resource_name(),
            policy: Some(policy.into()),
        }),
        Command::OpenConsole {
            vm,
            conductor,
            take_over,
        } => Wire::OpenConsole(v1::OpenConsole {
            vm: vm.resource_name(),
            conductor: conductor.resource_name(),
            take_over: *take_over,
        }),
        Command::BeginMigration {
            operation,
            migration,
            vm,
            requested_host,
            claim,
            lease,
            policy,
        } => Wire::BeginMigration(v1::BeginMigration {
            operation: operation.resource_name(),
            migration: migration.resource_name(),
            vm: vm.resource_name(),
            requested_host: field::name_or_empty(requested_host.as_ref()),
            claim: Some(claim.into()),
            lease: write_lease(lease),
            transfer: write_policy(&policy.transfer),
            hosts_tried_max: write_hosts_tried(policy.hosts_tried_max),
        }),
        Command::BeginDrain {
            operation,
            host,
            spec,
            by,
            plan,
            lease,
        } => Wire::BeginDrain(v1::BeginDrain {
            operation: operation.resource_name(),
            host: host.resource_name(),
            spec: Some(spec.into()),
            requested_by: by.clone(),
            vms: plan.iter().map(write_planned).collect(),
            lease: write_lease(lease),
        }),
        Command::MoveDrained {
            drain,
            epoch,
            begin,
        } => Wire::MoveDrained(v1::MoveDrained {
            drain: drain.resource_name(),
            epoch: epoch.0,
            begin: write_move(begin),
        }),
        Command::RecordDrained {
            drain,
            epoch,
            vm,
            refusal,
        } => Wire::RecordDrained(v1::RecordDrained {
            drain: drain.resource_name(),
            epoch: epoch.0,
            vm: vm.resource_name(),
            refusal: refusal.as_ref().map(Into::into),
        }),
        Command::BeginDelete {
            operation,
            vm,
            lease,
        } => Wire::BeginDelete(v1::BeginDelete {
            operation: operation.resource_name(),
            vm: vm.resource_name(),
            lease: write_lease(lease),
        }),
        Command::BeginPower {
            operation,
            vm,
            kind,
            lease,
            by_policy,
        } => Wire::BeginPower(v1::BeginPower {
            operation: operation.resource_name(),
            vm: vm.resource_name(),
            power: write_power(kind),
            lease: write_lease(lease),
            by_policy: *by_policy,
        }),
        Command::BeginMove {
            operation,
            migration,
            vm,
            spec,
            requested_host,
            verify,
            evacuate,
            claim,
            lease,
        } => Wire::BeginMove(v1::BeginMove {
            operation: operation.resource_name(),
            migration: migration.resource_name(),
            vm: vm.resource_name(),
            spec: spec.as_deref().map(Into::into),
            requested_host: field::name_or_empty(requested_host.as_ref()),
            verify: *verify,
            evacuate: *evacuate,
            claim: Some(claim.into()),
            lease: write_lease(lease),
        }),
        Command::ConfirmResize { vm, deleter } => Wire::ConfirmResize(v1::ConfirmResize {
            vm: vm.resource_name(),
            operation: field::name_or_empty(deleter.as_ref().map(|(id, _)| id)),
            lease: deleter.as_ref().and_then(|(_, lease)| write_lease(lease)),
        }),
        Command::BeginRevertResize {
            operation,
            vm,
            lease,
        } => Wire::BeginRevertResize(v1::BeginRevertResize {
            operation: operation.resource_name(),
            vm: vm.resource_name(),
            lease: write_lease(lease),
        }),
        Command::BeginShelve {
            operation,
            vm,
            lease,
        } => Wire::BeginShelve(v1::BeginShelve {
            operation: operation.resource_name(),
            vm: vm.resource_name(),
            lease: write_lease(lease),
        }),
        Command::BeginUnshelve {
            operation,
            vm,
            requested_host,
            claim,
            lease,
        } => Wire::BeginUnshelve(v1::BeginUnshelve {
            operation: operation.resource_name(),
            vm: vm.resource_name(),
            requested_host: field::name_or_empty(requested_host.as_ref()),
            claim: Some(claim.into()),
            lease: write_lease(lease),
        }),
        Command::TakeLease { operation, lease } => Wire::TakeLease(v1::TakeLease {
            operation: operation.resource_name(),
            lease: write_lease(lease),
        }),
        Command::RenewLeases {
            conductor,
            leases,
            ttl_ms,
        } => Wire::RenewLeases(v1::RenewLeases {
            conductor: conductor.resource_name(),
            leases: leases.iter().map(write_hold).collect(),
            ttl_ms: *ttl_ms,
        }),
        Command::CancelOperation { operation } => Wire::CancelOperation(v1::CancelOperation {
            operation: operation.resource_name(),
        }),
        Command::Advance {
            operation,
            epoch,
            step,
            mark,
            effect,
        } => Wire::Advance(v1::Advance {
            operation: operation.resource_name(),
            epoch: epoch.0,
            step: WireStep::from(*step).into(),
            mark: Some(mark.into()),
            effect: write_effect(effect),
        }),
        Command::ForceComplete { operation } => Wire::ForceComplete(v1::ForceComplete {
            operation: operation.resource_name(),
        }),
        Command::FinalizeUpgrade { version, gone } => Wire::FinalizeUpgrade(v1::FinalizeUpgrade {
            version: version.0,
            gone: gone.iter().map(ResourceName::resource_name).collect(),
        }),
        Command::ReplaceGrantKey { number, seed } => Wire::ReplaceGrantKey(v1::ReplaceGrantKey {
            number: *number,
            seed: Bytes::copy_from_slice(&seed.0),
        }),
        Command::RevokeCertificate(certificate) => Wire::RevokeCertificate(certificate.into()),
        Command::ReinstateCertificate { fingerprint } => {
            Wire::ReinstateCertificate(v1::ReinstateCertificate {
                fingerprint: fingerprint.to_string(),
            })
        }
        Command::UnregisterService { service } => Wire::UnregisterService(v1::UnregisterService {
            service: service.resource_name(),
        }),
    }
}

/// A write of a batch is a command without what surrounds every command.
fn write_of_batch(command: &Command) -> v1::Envelope {
    v1::Envelope {
        command: Some(write(command)),
        ..v1::Envelope::default()
    }
}

fn read_of_batch(wire: v1::Envelope) -> Result<Command, Invalid> {
    let command = read_envelope(wire)?.command;
    if let Command::Batch { .. } = command {
        return Err(Invalid::new("command", "must not be a batch in a batch"));
    }
    Ok(command)
}

fn write_planned(planned: &PlannedVm) -> v1::PlannedVm {
    v1::PlannedVm {
        vm: planned.vm.resource_name(),
        planned: planned.place.as_ref().map(Into::into),
    }
}

fn read_planned(wire: v1::PlannedVm) -> Result<PlannedVm, Invalid> {
    Ok(PlannedVm {
        vm: field::name(&wire.vm, "vm")?,
        place: field::optional(wire.planned, "planned")?,
    })
}

/// Writes the move of a drained VM. What is no move is written as absent, which no member reads.
fn write_move(begin: &Command) -> Option<Begin> {
    let wire = write(begin);
    if let envelope::Command::BeginMigration(migration) = wire {
        return Some(Begin::Migration(migration));
    }
    if let envelope::Command::BeginMove(wire) = wire {
        return Some(Begin::Move(wire));
    }
    None
}

fn read_move(wire: Option<Begin>) -> Result<Command, Invalid> {
    match wire {
        None => Err(Invalid::new("begin", "must be one that this build knows")),
        Some(Begin::Migration(wire)) => read(envelope::Command::BeginMigration(wire)),
        Some(Begin::Move(wire)) => read(envelope::Command::BeginMove(wire)),
    }
}

fn write_provider(
    (provider, after): (&ProviderId, &ProviderInventories),
) -> v1::ProviderInventories {
    v1::ProviderInventories {
        resource_provider: provider.resource_name(),
        generation: after.generation.0,
        inventories: placement::write_inventories(&after.inventories),
    }
}

fn read_provider(
    wire: v1::ProviderInventories,
) -> Result<(ProviderId, ProviderInventories), Invalid> {
    let after = ProviderInventories {
        generation: Generation(wire.generation),
        inventories: placement::read_inventories(wire.inventories, "inventories")?,
    };
    let provider = field::name(&wire.resource_provider, "resource_provider")?;
    Ok((provider, after))
}

fn write_hold((operation, epoch): &(OperationId, Epoch)) -> v1::LeaseHold {
    v1::LeaseHold {
        operation: operation.resource_name(),
        epoch: epoch.0,
    }
}

fn read_hold(wire: v1::LeaseHold) -> Result<(OperationId, Epoch), Invalid> {
    let operation = field::name(&wire.operation, "operation")?;
    Ok((operation, Epoch(wire.epoch)))
}

/// An effect that this build does not know is not the absence of one.
fn read_known_effect(wire: Option<WireEffect>) -> Result<Effect, Invalid> {
    match wire {
        Some(WireEffect { effect: None }) => {
            Err(Invalid::new("effect", "must be one that this build knows"))
        }
        Some(_) | None => read_effect(wire),
    }
}

fn read(wire: envelope::Command) -> Result<Command, Invalid> {
    use envelope::Command as Wire;
    Ok(match wire {
        Wire::Bootstrap(wire) => Command::Bootstrap {
            cluster: field::uuid(&wire.cluster_id, "cluster_id")?,
        },
        Wire::RegisterHost(wire) => Command::RegisterHost {
            host: field::name(&wire.host, "host")?,
            provider: field::name(&wire.resource_provider, "resource_provider")?,
            report: field::required(wire.report, "report")?,
        },
        Wire::SetLiveness(wire) => Command::SetLiveness {
            host: field::name(&wire.host, "host")?,
            liveness: field::choice::<WireLiveness, _>(wire.liveness, "liveness")?,
        },
        Wire::SetCordon(wire) => Command::SetCordon {
            host: field::name(&wire.host, "host")?,
            cordoned: wire.cordoned,
        },
        Wire::RemoveHost(wire) => Command::RemoveHost {
            host: field::name(&wire.host, "host")?,
        },
        Wire::NoteReality(wire) => Command::NoteReality {
            host: field::name(&wire.host, "host")?,
            incarnation: field::uuid(&wire.incarnation, "incarnation")?,
            comparison: field::required(wire.comparison, "comparison")?,
        },
        Wire::ReportGuests(wire) => Command::ReportGuests {
            host: field::name(&wire.host, "host")?,
            incarnation: field::uuid(&wire.incarnation, "incarnation")?,
            basis: wire.basis_revision,
            guests: field::each(wire.guests, "guests", GUESTS_MAX)?,
        },
        Wire::EndRecovery(wire) => Command::EndRecovery {
            accept_conflicts: wire.accept_conflicts,
        },
        Wire::NoteErasures(wire) => Command::NoteErasures {
            host: field::name(&wire.host, "host")?,
            incarnation: field::uuid(&wire.incarnation, "incarnation")?,
            reports: field::each(wire.reports, "reports", NAMESPACES_MAX)?,
        },
        Wire::CreateVolume(wire) => Command::CreateVolume {
            volume: Box::new(field::required(wire.volume, "volume")?),
            limit_bytes: wire.limit_bytes,
        },
        Wire::DeleteVolume(wire) => Command::DeleteVolume {
            volume: field::name(&wire.volume, "volume")?,
            generation: (wire.generation != 0).then_some(Generation(wire.generation)),
            forget: wire.forget,
        },
        Wire::NoteVolumes(wire) => Command::NoteVolumes {
            host: field::name(&wire.host, "host")?,
            incarnation: field::uuid(&wire.incarnation, "incarnation")?,
            reports: field::each(wire.reports, "reports", REPORTS_MAX)?,
        },
        Wire::WriteOffPmem(wire) => Command::WriteOffPmem {
            host: field::name(&wire.host, "host")?,
            namespace: field::pmem_name(&wire.namespace, "namespace")?,
        },
        Wire::FenceHost(wire) => Command::FenceHost {
            host: field::name(&wire.host, "host")?,
            method: field::choice::<WireMethod, _>(wire.method, "method")?,
            by: wire.principal,
            output: wire.output,
            incarnation: field::uuid(&wire.incarnation, "incarnation")?,
        },
        Wire::RegisterService(wire) => Command::RegisterService(wire.try_into()?),
        Wire::CreateFlavor(wire) => Command::CreateFlavor(wire.try_into()?),
        Wire::DeleteFlavor(wire) => Command::DeleteFlavor {
            flavor: field::name(&wire.flavor, "flavor")?,
        },
        Wire::CreateAggregate(wire) => Command::CreateAggregate(wire.try_into()?),
        Wire::UpdateAggregate(wire) => {
            let (aggregate, change) = read_change(wire)?;
            Command::UpdateAggregate { aggregate, change }
        }
        Wire::DeleteAggregate(wire) => Command::DeleteAggregate {
            aggregate: field::name(&wire.aggregate, "aggregate")?,
        },
        Wire::CreateServerGroup(wire) => Command::CreateServerGroup(wire.try_into()?),
        Wire::DeleteServerGroup(wire) => Command::DeleteServerGroup {
            group: field::name(&wire.server_group, "server_group")?,
        },
        Wire::SetPolicy(wire) => Command::SetPolicy(wire.try_into()?),
        Wire::CreatePciAlias(wire) => Command::CreatePciAlias(wire.try_into()?),
        Wire::DeletePciAlias(wire) => Command::DeletePciAlias {
            alias: field::name(&wire.pci_alias, "pci_alias")?,
        },
        Wire::CreateImage(wire) => Command::CreateImage(field::required(wire.image, "image")?),
        Wire::CompleteImage(wire) => Command::CompleteImage {
            image: field::name(&wire.image, "image")?,
            uid: field::uuid(&wire.uid, "uid")?,
            content: field::required(wire.content, "content")?,
            host: field::name(&wire.host, "host")?,
        },
        Wire::SetImageCopy(wire) => Command::SetImageCopy {
            image: field::name(&wire.image, "image")?,
            uid: field::uuid(&wire.uid, "uid")?,
            host: field::name(&wire.host, "host")?,
            present: wire.present,
        },
        Wire::DeleteImage(wire) => Command::DeleteImage {
            image: field::name(&wire.image, "image")?,
            uid: field::optional_uuid(&wire.uid, "uid")?,
        },
        Wire::CreateProvider(wire) => Command::CreateProvider {
            id: field::name(&wire.name, "name")?,
            parent: field::optional_name(&wire.parent, "parent")?,
            name: wire.display_name,
        },
        Wire::UpdateProvider(wire) => Command::UpdateProvider {
            id: field::name(&wire.name, "name")?,
            name: wire.display_name,
            parent: wire
                .parent
                .map(|parent| field::optional_name(&parent, "parent"))
                .transpose()?,
            reparent: wire.reparent,
        },
        Wire::DeleteProvider(wire) => Command::DeleteProvider {
            id: field::name(&wire.name, "name")?,
        },
        Wire::SetInventories(wire) => Command::SetInventories {
            provider: field::name(&wire.resource_provider, "resource_provider")?,
            generation: Generation(wire.generation),
            inventories: placement::read_inventories(wire.inventories, "inventories")?,
        },
        Wire::PutInventory(wire) => Command::PutInventory {
            provider: field::name(&wire.resource_provider, "resource_provider")?,
            generation: wire.generation.map(Generation),
            class: placement::read_class(&wire.resource_class, "resource_class")?,
            inventory: field::required(wire.inventory, "inventory")?,
            create: wire.create,
        },
        Wire::DeleteInventory(wire) => Command::DeleteInventory {
            provider: field::name(&wire.resource_provider, "resource_provider")?,
            class: placement::read_class(&wire.resource_class, "resource_class")?,
        },
        Wire::DeleteInventories(wire) => Command::DeleteInventories {
            provider: field::name(&wire.resource_provider, "resource_provider")?,
        },
        Wire::SetTraits(wire) => Command::SetTraits {
            provider: field::name(&wire.resource_provider, "resource_provider")?,
            generation: Generation(wire.generation),
            traits: placement::read_traits(wire.traits, "traits")?,
        },
        Wire::DeleteTraits(wire) => Command::DeleteTraits {
            provider: field::name(&wire.resource_provider, "resource_provider")?,
        },
        Wire::SetAggregates(wire) => Command::SetAggregates {
            provider: field::name(&wire.resource_provider, "resource_provider")?,
            generation: wire.generation.map(Generation),
            aggregates: placement::read_aggregates(wire.aggregates, "aggregates")?,
        },
        Wire::SetAllocations(wire) => Command::SetAllocations {
            consumers: field::each(wire.consumers, "consumers", usize::MAX)?,
        },
        Wire::DeleteAllocations(wire) => Command::DeleteAllocations {
            consumer: field::name(&wire.consumer, "consumer")?,
        },
        Wire::Reshape(wire) => Command::Reshape {
            inventories: field::each_by(wire.providers, "providers", usize::MAX, read_provider)?
                .into_iter()
                .collect(),
            consumers: field::each(wire.consumers, "consumers", usize::MAX)?,
        },
        Wire::Batch(wire) => Command::Batch {
            writes: field::each_by(wire.writes, "writes", usize::MAX, read_of_batch)?,
        },
        Wire::CreateClass(wire) => Command::CreateClass {
            class: placement::read_class(&wire.resource_class, "resource_class")?,
        },
        Wire::RenameClass(wire) => Command::RenameClass {
            from: placement::read_class(&wire.old_name, "old_name")?,
            to: placement::read_class(&wire.new_name, "new_name")?,
        },
        Wire::DeleteClass(wire) => Command::DeleteClass {
            class: placement::read_class(&wire.resource_class, "resource_class")?,
        },
        Wire::CreateTrait(wire) => Command::CreateTrait {
            name: placement::read_trait(&wire.r#trait, "trait")?,
        },
        Wire::DeleteTrait(wire) => Command::DeleteTrait {
            name: placement::read_trait(&wire.r#trait, "trait")?,
        },
        Wire::ImportProviders(wire) => Command::ImportProviders {
            source: wire.source,
            providers: field::each(wire.providers, "providers", usize::MAX)?,
        },
        Wire::ImportConsumers(wire) => Command::ImportConsumers {
            source: wire.source,
            consumers: field::each(wire.consumers, "consumers", usize::MAX)?,
        },
        Wire::BeginBoot(wire) => Command::BeginBoot {
            operation: field::name(&wire.operation, "operation")?,
            vm: field::name(&wire.vm, "vm")?,
            uid: field::uuid(&wire.uid, "uid")?,
            spec: Box::new(field::required(wire.spec, "spec")?),
            requested_host: field::optional_name(&wire.requested_host, "requested_host")?,
            claim: field::required(wire.claim, "claim")?,
            lease: read_lease(wire.lease)?,
            project: ownership::read_project(&wire.project, "project")?,
            restart: restart::read(wire.restart_policy, "restart_policy")?,
            first_boot: field::optional(wire.first_boot, "first_boot")?.map(Arc::new),
            metadata: vm_metadata::read(wire.labels, wire.description, wire.protected)?,
        },
        Wire::UpdateVm(wire) => Command::UpdateVm {
            vm: field::name(&wire.vm, "vm")?,
            change: vm_metadata::read_change(
                wire.set_labels,
                wire.remove_labels,
                wire.description,
                wire.protected,
            )?,
        },
        Wire::SetRestartPolicy(wire) => Command::SetRestartPolicy {
            vm: field::name(&wire.vm, "vm")?,
            policy: field::required(wire.policy, "policy")?,
        },
        Wire::OpenConsole(wire) => Command::OpenConsole {
            vm: field::name(&wire.vm, "vm")?,
            conductor: field::name(&wire.conductor, "conductor")?,
            take_over: wire.take_over,
        },
        Wire::BeginMigration(wire) => Command::BeginMigration {
            operation: field::name(&wire.operation, "operation")?,
            migration: field::name(&wire.migration, "migration")?,
            vm: field::name(&wire.vm, "vm")?,
            requested_host: field::optional_name(&wire.requested_host, "requested_host")?,
            claim: field::required(wire.claim, "claim")?,
            lease: read_lease(wire.lease)?,
            policy: MigrationPolicy {
                transfer: read_policy(wire.transfer, "transfer")?,
                hosts_tried_max: read_hosts_tried(wire.hosts_tried_max),
            },
        },
        Wire::ForceComplete(wire) => Command::ForceComplete {
            operation: field::name(&wire.operation, "operation")?,
        },
        Wire::BeginPower(wire) => Command::BeginPower {
            operation: field::name(&wire.operation, "operation")?,
            vm: field::name(&wire.vm, "vm")?,
            kind: read_power(wire.power)?,
            lease: read_lease(wire.lease)?,
            by_policy: wire.by_policy,
        },
        Wire::BeginDrain(wire) => Command::BeginDrain {
            operation: field::name(&wire.operation, "operation")?,
            host: field::name(&wire.host, "host")?,
            spec: field::required(wire.spec, "spec")?,
            by: wire.requested_by,
            plan: field::each_by(wire.vms, "vms", usize::MAX, read_planned)?,
            lease: read_lease(wire.lease)?,
        },
        Wire::MoveDrained(wire) => Command::MoveDrained {
            drain: field::name(&wire.drain, "drain")?,
            epoch: Epoch(wire.epoch),
            begin: Box::new(read_move(wire.begin)?),
        },
        Wire::RecordDrained(wire) => Command::RecordDrained {
            drain: field::name(&wire.drain, "drain")?,
            epoch: Epoch(wire.epoch),
            vm: field::name(&wire.vm, "vm")?,
            refusal: field::optional(wire.refusal, "refusal")?,
        },
        Wire::BeginDelete(wire) => Command::BeginDelete {
            operation: field::name(&wire.operation, "operation")?,
            vm: field::name(&wire.vm, "vm")?,
            lease: read_lease(wire.lease)?,
        },
        Wire::BeginMove(wire) => Command::BeginMove {
            operation: field::name(&wire.operation, "operation")?,
            migration: field::name(&wire.migration, "migration")?,
            vm: field::name(&wire.vm, "vm")?,
            spec: field::optional(wire.spec, "spec")?.map(Box::new),
            requested_host: field::optional_name(&wire.requested_host, "requested_host")?,
            verify: wire.verify,
            evacuate: wire.evacuate,
            claim: field::required(wire.claim, "claim")?,
            lease: read_lease(wire.lease)?,
        },
        Wire::ConfirmResize(wire) => Command::ConfirmResize {
            vm: field::name(&wire.vm, "vm")?,
            deleter: match field::optional_name(&wire.operation, "operation")? {
                Some(operation) => Some((operation, read_lease(wire.lease)?)),
                None => None,
            },
        },
        Wire::BeginRevertResize(wire) => Command::BeginRevertResize {
            operation: field::name(&wire.operation, "operation")?,
            vm: field::name(&wire.vm, "vm")?,
            lease: read_lease(wire.lease)?,
        },
        Wire::BeginShelve(wire) => Command::BeginShelve {
            operation: field::name(&wire.operation, "operation")?,
            vm: field::name(&wire.vm, "vm")?,
            lease: read_lease(wire.lease)?,
        },
        Wire::BeginUnshelve(wire) => Command::BeginUnshelve {
            operation: field::name(&wire.operation, "operation")?,
            vm: field::name(&wire.vm, "vm")?,
            requested_host: field::optional_name(&wire.requested_host, "requested_host")?,
            claim: field::required(wire.claim, "claim")?,
            lease: read_lease(wire.lease)?,
        },
        Wire::TakeLease(wire) => Command::TakeLease {
            operation: field::name(&wire.operation, "operation")?,
            lease: read_lease(wire.lease)?,
        },
        Wire::RenewLeases(wire) => Command::RenewLeases {
            conductor: field::name(&wire.conductor, "conductor")?,
            leases: field::each_by(wire.leases, "leases", usize::MAX, read_hold)?,
            ttl_ms: wire.ttl_ms,
        },
        Wire::CancelOperation(wire) => Command::CancelOperation {
            operation: field::name(&wire.operation, "operation")?,
        },
        Wire::Advance(wire) => Command::Advance {
            operation: field::name(&wire.operation, "operation")?,
            epoch: Epoch(wire.epoch),
            step: field::choice::<WireStep, _>(wire.step, "step")?,
            mark: field::required(wire.mark, "mark")?,
            effect: read_known_effect(wire.effect)?,
        },
        Wire::FinalizeUpgrade(wire) => Command::FinalizeUpgrade {
            version: ServiceVersion(wire.version),
            gone: wire
                .gone
                .iter()
                .map(|name| field::name(name, "gone"))
                .collect::<Result<_, _>>()?,
        },
        Wire::ReplaceGrantKey(wire) => Command::ReplaceGrantKey {
            number: wire.number,
            seed: read_seed(&wire.seed)?,
        },
        Wire::RevokeCertificate(wire) => Command::RevokeCertificate(wire.try_into()?),
        Wire::ReinstateCertificate(wire) => Command::ReinstateCertificate {
            fingerprint: revocation::fingerprint(&wire.fingerprint, "fingerprint")?,
        },
        Wire::UnregisterService(wire) => Command::UnregisterService {
            service: field::name(&wire.service, "service")?,
        },
    })
}
