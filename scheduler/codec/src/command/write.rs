//! Commands as they are written.

use berth_proto::convert::aggregate::write_change;
use berth_proto::convert::field::{self};
use berth_proto::convert::operation::{write_effect, write_power};
use berth_proto::convert::transfer::{write_hosts_tried, write_policy};
use berth_proto::convert::{ResourceName, ownership, placement, restart};
use berth_proto::host::v1::fence::Method as WireMethod;
use berth_proto::host::v1::host::Liveness as WireLiveness;
use berth_proto::operation::v1::Step as WireStep;
use berth_proto::state::v1::{self, envelope};
use berth_state::command::Command;
use bytes::Bytes;

use super::{write_hold, write_lease, write_move, write_of_batch, write_planned, write_provider};

/// Writes a command.
pub(super) fn write(command: &Command) -> envelope::Command {
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
        Command::CreateNetwork(network) => Wire::CreateNetwork(network.into()),
        Command::DeleteNetwork { network } => Wire::DeleteNetwork(v1::DeleteNetwork {
            network: network.resource_name(),
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
