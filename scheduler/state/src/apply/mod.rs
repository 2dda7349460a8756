//! What each command does. One noun per file; what all of them share is here.
//!
//! ```text
//! time and revision ─▶ known request? ─▶ the command ─▶ remember the request, audit ─▶ trim
//! ```
//!
//! Invariant: a command looks first and writes last, so that a refused one changes nothing but
//! the header, what is remembered of its request, and the audit. A batch alone takes back what it wrote.

mod advance;
mod aggregate;
mod allocation;
mod audit;
mod batch;
mod boot;
mod candidate;
mod catalog;
mod claim;
mod cluster;
mod cold_move;
mod console;
mod delete;
mod drain;
mod erasure;
mod fence;
mod flavor;
mod grant;
mod host;
mod image;
mod import;
mod inventory;
mod lease;
mod log;
mod metadata;
mod migration;
mod network;
mod operation;
mod order;
mod overcommit;
mod ownership;
mod pci_alias;
mod policy;
mod power;
mod provider;
mod quality;
mod reality;
mod recovery;
mod reported;
mod request;
mod reshape;
mod restart;
mod revocation;
mod server_group;
mod service;
mod settle;
mod shape;
mod shelve;
mod trim;
mod version;
mod volume;

pub use audit::AUDIT_MAX;
pub use batch::MOVED_MAX;
pub use log::LOG_MAX;
pub use recovery::RECOVERING;
pub use trim::{DONE_MAX, ENDED_MAX};

use std::collections::BTreeMap;

use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;

use crate::command::{Command, Envelope};
use crate::reply::{Applied, Reply};
use crate::request::Recall;
use crate::row::{Change, Key, Row};
use crate::state::State;
use crate::transaction::{Journal, LeftNames, NoJournal, RecordedChanges, Transaction};

impl State {
    /// Carries a command out, and says what it changed.
    pub fn apply(&mut self, index: u64, envelope: &Envelope) -> Applied {
        let (outcome, recorded) = run(self, RecordedChanges::default(), index, envelope);
        Applied {
            outcome,
            changes: recorded.into_changes(),
        }
    }

    /// Says whether a command would be refused now, if nothing is remembered of its request.
    ///
    /// # Errors
    ///
    /// Why it would be.
    pub fn examine(&self, envelope: &Envelope) -> Result<(), Refusal> {
        let mut copy = self.clone();
        if let Command::SetAllocations { consumers } = &envelope.command {
            // The most frequent one. A copy costs little as long as nothing is written to it.
            let state = &mut copy;
            let tx = Transaction {
                state,
                journal: NoJournal,
                principal: &envelope.principal,
                left_names: LeftNames::default(),
            };
            return tx
                .examine_allocations(consumers, &BTreeMap::new())
                .map(drop);
        }
        copy.speculate(self.revision() + 1, envelope).map(drop)
    }

    /// Carries a command out as [`Self::apply`] does, without saying what it changed.
    ///
    /// # Errors
    ///
    /// When the command is refused.
    pub fn speculate(&mut self, index: u64, envelope: &Envelope) -> Result<Reply, Refusal> {
        run(self, NoJournal, index, envelope).0
    }
}

fn run<J: Journal>(
    state: &mut State,
    journal: J,
    index: u64,
    envelope: &Envelope,
) -> (Result<Reply, Refusal>, J) {
    let before = state.header;
    state.header.revision = index;
    state.header.time = TimeMs(before.time.0.max(envelope.at.0));
    let mut tx = Transaction {
        state,
        journal,
        principal: &envelope.principal,
        left_names: LeftNames::default(),
    };
    let outcome = tx.carry_out(envelope);
    tx.remove_left_names();
    tx.trim();
    let after = tx.state.header;
    tx.journal.record(|| Change {
        key: Key::Header,
        old: Some(Row::Header(before)),
        new: Some(Row::Header(after)),
    });
    (outcome, tx.journal)
}

impl<J: Journal> Transaction<'_, J> {
    fn carry_out(&mut self, envelope: &Envelope) -> Result<Reply, Refusal> {
        let Some(key) = &envelope.request else {
            let outcome = self.command(&envelope.command);
            self.audit(envelope, &outcome);
            return outcome;
        };
        if let Recall::Answered(outcome) = self.state.recall(&envelope.principal, key) {
            // It was recorded when it was executed.
            return outcome;
        }
        let outcome = self.command(&envelope.command);
        self.remember(&envelope.principal, key, &outcome);
        self.audit(envelope, &outcome);
        outcome
    }

    fn command(&mut self, command: &Command) -> Result<Reply, Refusal> {
        self.examine_recovery(command)?;
        match command {
            Command::Bootstrap { cluster } => self.bootstrap(*cluster),
            Command::RegisterHost {
                host,
                provider,
                report,
            } => self.register_host(host, *provider, report),
            Command::SetLiveness { host, liveness } => self.set_liveness(host, *liveness),
            Command::SetCordon { host, cordoned } => self.set_cordon(host, *cordoned),
            Command::RemoveHost { host } => self.forget_host(host),
            Command::RegisterService(service) => self.register_service(service),
            Command::CreateFlavor(flavor) => self.create_flavor(flavor),
            Command::DeleteFlavor { flavor } => self.delete_flavor(flavor),
            Command::CreateAggregate(aggregate) => self.create_aggregate(aggregate),
            Command::UpdateAggregate { aggregate, change } => {
                self.update_aggregate(aggregate, change)
            }
            Command::DeleteAggregate { aggregate } => self.delete_aggregate(aggregate),
            Command::CreateServerGroup(group) => self.create_server_group(group),
            Command::DeleteServerGroup { group } => self.delete_server_group(group),
            Command::SetPolicy(policy) => self.set_policy(policy),
            Command::CreatePciAlias(alias) => self.create_pci_alias(alias),
            Command::DeletePciAlias { alias } => self.delete_pci_alias(alias),
            Command::CreateImage(image) => self.create_image(image),
            Command::CompleteImage {
                image,
                uid,
                content,
                host,
            } => self.complete_image(image, *uid, content, host),
            Command::SetImageCopy {
                image,
                uid,
                host,
                present,
            } => self.set_image_copy(image, *uid, host, *present),
            Command::DeleteImage { image, uid } => self.delete_image(image, *uid),
            Command::CreateNetwork(network) => self.create_network(network),
            Command::DeleteNetwork { network } => self.delete_network(network),
            Command::CreateProvider { id, name, parent } => {
                self.create_provider(*id, name, *parent)
            }
            Command::UpdateProvider {
                id,
                name,
                parent,
                reparent,
            } => self.update_provider(*id, name.as_deref(), *parent, *reparent),
            Command::DeleteProvider { id } => self.delete_provider(*id),
            Command::SetInventories {
                provider,
                generation,
                inventories,
            } => self.set_inventories(*provider, *generation, inventories),
            Command::PutInventory {
                provider,
                generation,
                class,
                inventory,
                create,
            } => self.put_inventory(*provider, *generation, (class, inventory), *create),
            Command::DeleteInventory { provider, class } => self.delete_inventory(*provider, class),
            Command::DeleteInventories { provider } => self.delete_inventories(*provider),
            Command::SetTraits {
                provider,
                generation,
                traits,
            } => self.set_traits(*provider, *generation, traits),
            Command::DeleteTraits { provider } => self.delete_traits(*provider),
            Command::SetAggregates {
                provider,
                generation,
                aggregates,
            } => self.set_aggregates(*provider, *generation, aggregates),
            Command::SetAllocations { consumers } => self.set_allocations(consumers),
            Command::DeleteAllocations { consumer } => self.delete_allocations(*consumer),
            Command::Reshape {
                inventories,
                consumers,
            } => self.reshape(inventories, consumers),
            Command::Batch { writes } => self.batch(writes),
            Command::CreateClass { class } => self.create_class(class),
            Command::RenameClass { from, to } => self.rename_class(from, to),
            Command::DeleteClass { class } => self.delete_class(class),
            Command::CreateTrait { name } => self.create_trait(name),
            Command::DeleteTrait { name } => self.delete_trait(name),
            Command::ImportProviders { source, providers } => {
                self.import_providers(source, providers)
            }
            Command::ImportConsumers { source, consumers } => {
                self.import_consumers(source, consumers)
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
            } => self.begin_boot(&boot::Begin {
                operation: *operation,
                vm,
                uid: *uid,
                spec,
                requested_host: requested_host.as_ref(),
                claim,
                lease,
                project: project.as_ref(),
                restart: *restart,
                first_boot: first_boot.as_ref(),
                metadata,
            }),
            Command::BeginMigration {
                operation,
                migration,
                vm,
                requested_host,
                claim,
                lease,
                policy,
            } => self.begin_migration(&migration::Begin {
                operation: *operation,
                migration: *migration,
                vm,
                requested_host: requested_host.as_ref(),
                claim,
                lease,
                policy,
            }),
            Command::BeginDrain {
                operation,
                host,
                spec,
                by,
                plan,
                lease,
            } => self.begin_drain(&drain::Begin {
                operation: *operation,
                host,
                spec: *spec,
                by,
                plan,
                lease,
            }),
            Command::MoveDrained {
                drain,
                epoch,
                begin,
            } => self.move_drained(*drain, *epoch, begin),
            Command::RecordDrained {
                drain,
                epoch,
                vm,
                refusal,
            } => self.record_drained(*drain, *epoch, vm, refusal.as_ref()),
            Command::BeginDelete {
                operation,
                vm,
                lease,
            } => self.begin_delete(*operation, vm, lease),
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
            } => self.begin_move(&cold_move::Begin {
                operation: *operation,
                migration: *migration,
                vm,
                spec: spec.as_deref(),
                requested_host: requested_host.as_ref(),
                verify: *verify,
                evacuate: *evacuate,
                claim,
                lease,
            }),
            Command::ConfirmResize { vm, deleter } => {
                let deleter = deleter.as_ref().map(|(id, lease)| (*id, lease));
                self.confirm_resize(vm, deleter)
            }
            Command::BeginRevertResize {
                operation,
                vm,
                lease,
            } => self.begin_revert_resize(*operation, vm, lease),
            Command::BeginShelve {
                operation,
                vm,
                lease,
            } => self.begin_shelve(*operation, vm, lease),
            Command::BeginUnshelve {
                operation,
                vm,
                requested_host,
                claim,
                lease,
            } => self.begin_unshelve(&shelve::Begin {
                operation: *operation,
                vm,
                requested_host: requested_host.as_ref(),
                claim,
                lease,
            }),
            Command::BeginPower {
                operation,
                vm,
                kind,
                lease,
                by_policy,
            } => match by_policy {
                false => self.begin_requested_power(*operation, vm, kind, lease),
                true => self.restart_by_policy(*operation, vm, kind, lease),
            },
            Command::SetRestartPolicy { vm, policy } => self.set_restart_policy(vm, *policy),
            Command::OpenConsole { vm, .. } => self.open_console(vm),
            Command::UpdateVm { vm, change } => self.update_vm(vm, change),
            Command::TakeLease { operation, lease } => self.take_lease(*operation, lease),
            Command::RenewLeases {
                conductor,
                leases,
                ttl_ms,
            } => Ok(self.renew_leases(conductor, leases, *ttl_ms)),
            Command::CancelOperation { operation } => self.cancel_operation(*operation),
            Command::Advance {
                operation,
                epoch,
                step,
                mark,
                effect,
            } => self.advance(*operation, *epoch, *step, mark, effect),
            Command::FenceHost {
                host,
                method,
                by,
                output,
                incarnation,
            } => self.fence_host(host, *method, by, output, *incarnation),
            Command::ForceComplete { operation } => self.force_complete(*operation),
            Command::NoteReality {
                host,
                incarnation,
                comparison,
            } => self.take_reality(host, *incarnation, comparison),
            Command::ReportGuests {
                host,
                incarnation,
                basis,
                guests,
            } => self.report_guests(host, *incarnation, *basis, guests),
            Command::EndRecovery { accept_conflicts } => self.end_recovery(*accept_conflicts),
            Command::NoteErasures {
                host,
                incarnation,
                reports,
            } => self.record_erasures(host, *incarnation, reports),
            Command::WriteOffPmem { host, namespace } => self.write_off_pmem(host, namespace),
            Command::CreateVolume {
                volume,
                limit_bytes,
            } => self.create_volume(volume, *limit_bytes),
            Command::DeleteVolume {
                volume,
                generation,
                forget,
            } => match forget {
                true => self.forget_volume(volume),
                false => self.delete_volume(volume, *generation),
            },
            Command::NoteVolumes {
                host,
                incarnation,
                reports,
            } => self.record_volumes(host, *incarnation, reports),
            Command::FinalizeUpgrade { version, gone } => self.finalize_upgrade(*version, gone),
            Command::ReplaceGrantKey { number, seed } => self.replace_grant_key(*number, *seed),
            Command::RevokeCertificate(certificate) => self.revoke_certificate(certificate),
            Command::ReinstateCertificate { fingerprint } => {
                self.reinstate_certificate(fingerprint)
            }
            Command::UnregisterService { service } => self.unregister_service(service),
        }
    }
}
