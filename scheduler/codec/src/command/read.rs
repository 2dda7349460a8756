//! Commands as they are read.

use std::sync::Arc;

use berth_domain::id::{Epoch, Generation};
use berth_domain::pmem::NAMESPACES_MAX;
use berth_domain::policy::MigrationPolicy;
use berth_domain::recovery::GUESTS_MAX;
use berth_domain::version::ServiceVersion;
use berth_domain::volume::REPORTS_MAX;
use berth_proto::convert::aggregate::read_change;
use berth_proto::convert::field::{self, Invalid};
use berth_proto::convert::operation::read_power;
use berth_proto::convert::transfer::{read_hosts_tried, read_policy};
use berth_proto::convert::{ownership, placement, restart, revocation, vm_metadata};
use berth_proto::host::v1::fence::Method as WireMethod;
use berth_proto::host::v1::host::Liveness as WireLiveness;
use berth_proto::operation::v1::Step as WireStep;
use berth_proto::state::v1::envelope;
use berth_state::command::Command;

use super::{
    read_hold, read_known_effect, read_lease, read_move, read_of_batch, read_planned, read_provider,
};
use crate::row::read_seed;

/// Reads a command.
///
/// # Errors
///
/// When this build does not know a part of it.
pub(super) fn read(wire: envelope::Command) -> Result<Command, Invalid> {
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
        Wire::CreateNetwork(wire) => Command::CreateNetwork(wire.try_into()?),
        Wire::DeleteNetwork(wire) => Command::DeleteNetwork {
            network: field::name(&wire.network, "network")?,
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
