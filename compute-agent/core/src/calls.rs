//! What each call leads to, once its turn has come.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::agent::{Call, DestinationCheck, DomainState, Fence, FitVerdict, Reply};
use berth_domain::claim::Claim;
use berth_domain::first_boot::FirstBoot;
use berth_domain::flavor;
use berth_domain::id::{MigrationId, VmUid};
use berth_domain::migration::MigrateData;
use berth_domain::name::VmName;
use berth_domain::numa::{Assignment, ExactDemand};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::transfer::{DiskCopy, TransferPolicy};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{Nic, VmSpec};
use berth_driver_api::{DomainSpec, Force, FreePages, Request, Sending, Token};

use super::agent::{Agent, Pending, Start, Work};
use super::fences::late;
use super::fit;
use super::guests::{Guest, Phase, Transfer};

pub(super) type Started = Result<Start, Refusal>;

/// A VM that is to be started here for the first time.
struct NewVm {
    name: VmName,
    spec: VmSpec,
    first_boot: Option<Arc<FirstBoot>>,
}

impl Agent {
    pub(super) fn start(&mut self, pending: Pending) -> Start {
        let fence = pending.fence;
        let started = match pending.call {
            Call::SpawnVm {
                vm,
                spec,
                claim,
                first_boot,
            } => {
                let vm = NewVm {
                    name: vm,
                    spec,
                    first_boot,
                };
                self.spawn(&fence, vm, &claim)
            }
            Call::DestroyVm => self.destroy(fence.vm),
            Call::GetDomain => unreachable!("queries are not queued"),
            Call::CheckCanLiveMigrateDestination { .. } => self.check_destination(fence.vm),
            Call::CheckCanLiveMigrateSource { destination, .. } => {
                self.check_source(fence.vm, destination)
            }
            Call::FitLiveMigration { migrate_data, .. } => self.fit(&fence, migrate_data),
            Call::PreLiveMigration {
                migration,
                migrate_data,
            } => self.pre_live_migration(&fence, migration, migrate_data),
            Call::LiveMigration {
                migration,
                migrate_data,
            } => self.live_migration(&fence, migration, migrate_data),
            Call::RollbackLiveMigrationAtDestination {
                migration,
                keep_disks,
            } => Ok(self.rollback(fence.vm, migration, keep_disks)),
            Call::PostLiveMigrationAtSource { .. } => {
                Ok(Start::Work(Work::Release, Request::Release(fence.vm)))
            }
            Call::StopVm {
                claim,
                timeout_ms,
                last,
            } => self.stop_vm(&fence, pending.id, claim, timeout_ms, last),
            Call::StartVm { vm, spec, claim } => self.start_vm(&fence, vm, spec, &claim),
            Call::SettleVm => self.settle_vm(&fence),
            Call::AbortLiveMigration { migration } => {
                self.order(&fence, migration, Request::Abort(fence.vm))
            }
            Call::ForceCompleteLiveMigration {
                migration,
                post_copy,
            } => {
                let how = if post_copy {
                    Force::PostCopy
                } else {
                    Force::Pause
                };
                self.order(&fence, migration, Request::Force(fence.vm, how))
            }
            Call::MakeDisks { vm, spec, claim } => self.make_disks(&fence, vm, spec, &claim),
            Call::CopyDisk {
                vm,
                spec,
                disk,
                image,
            } => self.copy_disk(&fence, vm, spec, disk, image),
            Call::PublishImage { image } => self.publish_image(&fence, image),
            Call::DropImage { image } => self.drop_image(&fence, image),
            Call::FetchDisks(fetch) => self.fetch_disks(&fence, *fetch),
            Call::DropDisks {
                migration,
                side,
                claim,
            } => self.drop_disks(&fence, migration, side, claim),
        };
        started.unwrap_or_else(|refusal| Start::Reply(Err(refusal)))
    }

    /// Returns whether this agent knows what [`ServiceVersion::NUMA_LIVE_MIGRATION`] brought.
    fn knows_numa_migration(&self) -> bool {
        self.facts.version >= ServiceVersion::NUMA_LIVE_MIGRATION
    }

    /// Returns whether this agent knows what [`ServiceVersion::DISK_COPY`] brought.
    pub(super) fn knows_disk_copy(&self) -> bool {
        self.facts.version >= ServiceVersion::DISK_COPY
    }

    /// Returns whether this agent knows what [`ServiceVersion::TRANSFER_CONTROL`] brought.
    fn knows_transfer_control(&self) -> bool {
        self.facts.version >= ServiceVersion::TRANSFER_CONTROL
    }

    /// Forwards an order of the conductor to a transfer. Also after a restart, when it is not known
    /// here that there is one: the hypervisor knows.
    fn order(&mut self, fence: &Fence, migration: MigrationId, request: Request) -> Started {
        if !self.knows_transfer_control() {
            let message = format!(
                "the agent of host {} runs at service version {} and does not control transfers",
                self.facts.host, self.facts.version
            );
            return Err(
                Refusal::new(Code::Unimplemented, "SERVICE_VERSION_TOO_OLD", message)
                    .with("host", &self.facts.host)
                    .with("version", self.facts.version),
            );
        }
        let sent = self.fences.of(fence.vm).sent;
        if sent.is_some_and(|sent| sent != migration) {
            // That transfer is over.
            return Ok(Start::Reply(Ok(Reply::Done)));
        }
        Ok(Start::Work(Work::ConductorOrder, request))
    }

    fn spawn(&mut self, fence: &Fence, vm: NewVm, claim: &Claim) -> Started {
        let NewVm {
            name: vm,
            spec,
            first_boot,
        } = vm;
        if self.fences.of(fence.vm).destroyed {
            return Err(late("the guest was to be destroyed here after this call"));
        }
        self.is_here(claim)?;
        is_sound(&spec)?;
        if spec.has_seed() && first_boot.is_none() {
            let message = format!("VM {vm} has a seed, and the call does not say what is on it");
            let refusal = Refusal::new(Code::InvalidArgument, "FIRST_BOOT_MISSING", message);
            return Err(refusal.with_hint("upgrade the conductor"));
        }
        if let Some(guest) = self.guests.get(&fence.vm)
            && guest.phase != Phase::Starting
        {
            let runs_on_it =
                guest.domain.claim == Some(claim.id) && !matches!(guest.phase, Phase::Incoming(_));
            return if runs_on_it {
                Ok(Start::Reply(Ok(Reply::Done)))
            } else {
                Err(self.exists(fence.vm))
            };
        }
        let domain = DomainSpec {
            vm,
            uid: fence.vm,
            spec,
            claim: Some(claim.id),
            epoch: fence.epoch,
            assignment: self.at_present(&claim.assignment),
            shared_cpus: self.facts.topology.shared(),
            volumes: Vec::new(),
            bridges: self.facts.bridges.clone(),
            first_boot: None,
            cpu: claim.cpu.clone(),
        };
        self.is_free(&domain)?;
        self.insert(domain.clone(), Phase::Starting);
        let domain = DomainSpec {
            first_boot,
            ..domain
        };
        Ok(Start::Work(Work::Spawn, Request::Create(Box::new(domain))))
    }

    fn destroy(&mut self, vm: VmUid) -> Started {
        if let Some(guest) = self.guests.get(&vm)
            && matches!(guest.phase, Phase::Sending(_))
        {
            return Err(moves(&guest.domain.vm));
        }
        // Marked before it is done: whatever comes of it, a start that was overtaken by it must
        // not follow.
        self.fences.of(vm).destroyed = true;
        Ok(Start::Work(Work::Destroy, Request::Destroy(vm)))
    }

    fn fit(&mut self, fence: &Fence, data: MigrateData) -> Started {
        if !self.knows_numa_migration() {
            let message = format!(
                "the agent of host {} runs at service version {} and does not fit live migrations",
                self.facts.host, self.facts.version
            );
            return Err(
                Refusal::new(Code::Unimplemented, "SERVICE_VERSION_TOO_OLD", message)
                    .with("host", &self.facts.host)
                    .with("version", self.facts.version),
            );
        }
        is_about(fence.vm, &data)?;
        let claim = data.claim.as_ref().ok_or_else(|| missing("claim"))?;
        self.is_here(claim)?;
        if data.spec.topology.is_some() && data.numa_topology.is_none() {
            return Err(missing("topology"));
        }
        if data.spec.pci.len() != data.source_pci.len() {
            return Err(missing("source_pci"));
        }
        if data.numa_topology.is_none() && data.spec.pci.is_empty() {
            let reply = self.fitted(data, FitVerdict::Confirm);
            return Ok(Start::Reply(Ok(reply)));
        }
        Ok(Start::Work(Work::Fit(Box::new(data)), Request::FreePages))
    }

    /// Decides on the held claim against the free pages that the driver has just reported.
    pub(super) fn decide_fit(&self, data: MigrateData, free: &FreePages) -> Result<Reply, Refusal> {
        let claim = data.claim.as_ref().expect("checked when requested");
        let others = self.taken_by_others(data.vm_uid);
        let live = fit::live_topology(&self.facts.topology, &others, free);
        let comes = fit::Coming {
            topology: data.numa_topology.as_ref(),
            pci: &data.spec.pci,
            pmem: &data.spec.pmem_demand(),
        };
        let verdict = fit::decide(&self.facts.host, &live, &others, comes, &claim.assignment)?;
        Ok(self.fitted(data, verdict))
    }

    /// Returns the reply with `migrate_data` rewritten to the new topology.
    fn fitted(&self, mut data: MigrateData, verdict: FitVerdict) -> Reply {
        let claim = data.claim.as_mut().expect("checked when requested");
        if let FitVerdict::Swap(assignment) = &verdict {
            claim.assignment = assignment.clone();
        }
        // The source writes what the guest has here.
        claim.assignment = self.at_present(&claim.assignment);
        if let Some(topology) = &mut data.numa_topology {
            topology.assignment = claim.assignment.clone();
        }
        data.destination_uri = self.facts.migration_uri.clone();
        data.destination_shared = self.facts.topology.shared();
        data.destination_bridges = self.facts.bridges.clone();
        Reply::Fit {
            verdict,
            migrate_data: data,
        }
    }

    fn pre_live_migration(
        &mut self,
        fence: &Fence,
        migration: MigrationId,
        data: MigrateData,
    ) -> Started {
        let data = self.as_understood(data);
        is_about(fence.vm, &data)?;
        is_sound(&data.spec)?;
        self.require_tls(fence, &data)?;
        if self.fences.of(fence.vm).rolled_back == Some(migration) {
            return Err(late("this preparation was rolled back already"));
        }
        if let Some(guest) = self.guests.get(&fence.vm)
            && !matches!(guest.phase, Phase::Incoming(_))
        {
            return Err(self.exists(fence.vm));
        }
        if let Some(claim) = &data.claim {
            self.is_here(claim)?;
        }
        let assignment = data.claim.as_ref().map(|c| self.at_present(&c.assignment));
        let domain = DomainSpec {
            vm: data.vm,
            uid: data.vm_uid,
            spec: data.spec,
            claim: data.claim.as_ref().map(|c| c.id),
            epoch: fence.epoch,
            assignment: assignment.unwrap_or_default(),
            shared_cpus: self.facts.topology.shared(),
            volumes: Vec::new(),
            bridges: self.facts.bridges.clone(),
            first_boot: None,
            cpu: data.claim.and_then(|claim| claim.cpu),
        };
        if domain.claim.is_some() {
            self.is_free(&domain)?;
        }
        self.insert(domain.clone(), Phase::Incoming(Some(migration)));
        Ok(Start::Work(
            Work::Prepare,
            Request::Prepare {
                domain: Box::new(domain),
                copies: data.disk_copies,
            },
        ))
    }

    fn live_migration(
        &mut self,
        fence: &Fence,
        migration: MigrationId,
        data: MigrateData,
    ) -> Started {
        let data = self.as_understood(data);
        is_about(fence.vm, &data)?;
        if self.was_sent(fence.vm, migration) {
            return Ok(Start::Reply(Ok(Reply::Done)));
        }
        if self.fences.of(fence.vm).queried_by == Some(fence.operation) {
            return Err(late(
                "the conductor queries the state of the guest already; it is not sent any more",
            ));
        }
        self.require_tls(fence, &data)?;
        let guest = self.running(fence.vm)?;
        if guest.domain.spec.is_exact() && self.knows_numa_migration() && data.claim.is_none() {
            return Err(missing("claim"));
        }
        let map = data.pci_map();
        let has = guest.domain.assignment.pci.iter().flatten();
        if let Some(left_out) = has.clone().find(|address| !map.contains_key(address)) {
            let message = format!(
                "PCI function {left_out} of guest {} has no counterpart on the destination",
                guest.domain.vm
            );
            return Err(precondition("PCI_FUNCTION_UNMAPPED", message));
        }
        // An agent that does not know claims on the other side keeps the CPUs as they are.
        let assignment = match &data.claim {
            Some(claim) => claim.assignment.clone(),
            None => guest.domain.assignment.clone(),
        };
        let destination = DomainSpec {
            // Never the source's own: it is given back, and the guest would seem to be another one.
            claim: data.claim.as_ref().map(|c| c.id),
            epoch: fence.epoch,
            assignment,
            shared_cpus: data.destination_shared,
            bridges: data.destination_bridges,
            ..guest.domain.clone()
        };
        let policy = data.transfer.clone();
        let sending = Sending {
            policy: data.transfer,
            copies: data.disk_copies,
            tls: data.tls,
        };
        let request = Request::Migrate {
            vm: fence.vm,
            destination_uri: data.destination_uri,
            destination: Box::new(destination),
            sending: Box::new(sending),
        };
        Ok(Start::Transfer(policy, request))
            .inspect(|_| self.fences.of(fence.vm).sent = Some(migration))
    }

    fn rollback(&mut self, vm: VmUid, migration: MigrationId, keep_disks: bool) -> Start {
        self.fences.of(vm).rolled_back = Some(migration);
        if let Some(guest) = self.guests.get(&vm)
            && let Phase::Incoming(Some(other)) = guest.phase
            && other != migration
        {
            // Another attempt prepared here since: its preparation is not this call's to undo.
            return Start::Reply(Ok(Reply::Done));
        }
        let request = if keep_disks {
            Request::Forget(vm)
        } else {
            Request::Cancel(vm)
        };
        Start::Work(Work::Rollback, request)
    }

    /// Records a transfer that is being started.
    pub(super) fn mark_sending(&mut self, vm: VmUid, token: Token, policy: TransferPolicy) {
        let began_at = self.now;
        let guest = self
            .guests
            .get_mut(&vm)
            .expect("only a known guest is sent");
        guest.migration_error = None;
        guest.leaving = None;
        guest.phase = Phase::Sending(Transfer {
            token,
            began_at,
            policy,
            ordering: false,
            ordered_at: None,
            overrun_ms: None,
        });
    }

    /// Returns `migrate_data` as this agent's service version reads it.
    pub(super) fn as_understood(&self, mut data: MigrateData) -> MigrateData {
        if !self.knows_numa_migration() {
            data.numa_topology = None;
            data.claim = None;
        }
        if !self.knows_transfer_control() {
            data.transfer = TransferPolicy::default();
        }
        if !self.knows_disk_copy() {
            data.disk_copies.clear();
        }
        data
    }

    pub(super) fn insert(&mut self, domain: DomainSpec, phase: Phase) {
        let guest = Guest {
            domain,
            phase,
            migration_error: None,
            leaving: None,
        };
        self.guests.insert(guest.domain.uid, guest);
    }

    /// Returns the guest, which runs here and is not being moved.
    pub(super) fn running(&self, vm: VmUid) -> Result<&Guest, Refusal> {
        let Some(guest) = self.guests.get(&vm) else {
            return Err(self.absent(vm));
        };
        match guest.phase {
            Phase::Running => Ok(guest),
            Phase::Sending(_) => Err(moves(&guest.domain.vm)),
            Phase::Starting | Phase::Incoming(_) => Err(self.absent(vm)),
        }
    }

    pub(super) fn absent(&self, vm: VmUid) -> Refusal {
        let message = format!("guest {vm} does not run on host {}", self.facts.host);
        Refusal::new(Code::NotFound, "GUEST_NOT_FOUND", message).with("host", &self.facts.host)
    }

    pub(super) fn exists(&self, vm: VmUid) -> Refusal {
        let message = format!("guest {vm} is on host {} already", self.facts.host);
        Refusal::new(Code::AlreadyExists, "GUEST_EXISTS", message).with("host", &self.facts.host)
    }

    /// Checks that a claim is one on this host.
    pub(super) fn is_here(&self, claim: &Claim) -> Result<(), Refusal> {
        if claim.host == self.facts.host {
            return Ok(());
        }
        let message = format!(
            "claim {} is on host {}, this is host {}",
            claim.id, claim.host, self.facts.host
        );
        Err(Refusal::new(Code::InvalidArgument, "WRONG_HOST", message))
    }

    /// Checks that no other guest here has the CPUs and pages of a guest that is to start or come.
    pub(super) fn is_free(&self, domain: &DomainSpec) -> Result<(), Refusal> {
        let others = self.taken_by_others(domain.uid);
        let demand = ExactDemand {
            topology: domain.spec.topology.as_ref(),
            pci: &domain.spec.pci,
            pmem: &domain.spec.pmem_demand(),
            near: &[],
        };
        fit::check(
            &self.facts.host,
            &self.facts.topology,
            &others,
            demand,
            &domain.assignment,
        )
    }

    /// Returns what the source reports of its guest.
    pub(super) fn migrate_data(
        &self,
        vm: VmUid,
        state: DomainState,
        destination: DestinationCheck,
        tls: bool,
    ) -> Result<Reply, Refusal> {
        let guest = self.running(vm)?;
        if state != DomainState::Running {
            let message = format!(
                "guest {} is {} on the hypervisor",
                guest.domain.vm,
                state.as_str()
            );
            return Err(precondition("GUEST_NOT_RUNNING", message));
        }
        let domain = &guest.domain;
        let is_shared = destination.storage_id == self.facts.storage_id;
        let numa_topology = domain.spec.topology.as_ref().map(|topology| {
            berth_domain::instance::InstanceNumaTopology {
                requested: topology.clone(),
                assignment: domain.assignment.clone(),
            }
        });
        let data = MigrateData {
            vm: domain.vm.clone(),
            vm_uid: domain.uid,
            spec: domain.spec.clone(),
            destination_uri: destination.migration_uri,
            destination_shared: destination.shared_cpus,
            destination_bridges: destination.bridges,
            numa_topology,
            claim: None,
            source_pci: domain.assignment.pci.clone(),
            transfer: TransferPolicy::default(),
            disk_copies: copies(&domain.spec, is_shared),
            tls,
        };
        Ok(Reply::MigrateData(self.as_understood(data)))
    }

    /// Returns the exact CPUs and pages that each guest holds here.
    #[must_use]
    pub fn assignments(&self) -> BTreeMap<VmUid, &Assignment> {
        self.guests
            .iter()
            .map(|(uid, guest)| (*uid, &guest.domain.assignment))
            .collect()
    }
}

/// Returns the disks of a guest that have to be copied.
fn copies(spec: &VmSpec, is_shared: bool) -> Vec<DiskCopy> {
    if is_shared {
        return Vec::new();
    }
    let disks = (0..).zip(&spec.disks);
    disks
        .map(|(index, disk)| DiskCopy {
            index,
            virtual_bytes: disk.size_bytes(),
        })
        .collect()
}

/// Checks that a guest is of a size, and has bridges, that this agent can work with. The rules
/// for guests are the scheduler's, and newer ones may allow more than this agent knows; but
/// any client that reaches it could request something whose size alone would end it.
pub(super) fn is_sound(spec: &VmSpec) -> Result<(), Refusal> {
    let vcpus = spec.flavor.vcpus;
    if vcpus == 0 || vcpus > flavor::VCPUS_MAX {
        let message = format!("{vcpus} vCPUs are not from 1 to {}", flavor::VCPUS_MAX);
        return Err(Refusal::new(Code::InvalidArgument, "INVALID_VM", message));
    }
    spec.nics.iter().try_for_each(is_sound_nic)
}

fn is_sound_nic(nic: &Nic) -> Result<(), Refusal> {
    let bridge = &nic.bridge;
    let message = match &nic.network {
        None if bridge.contains('/') => format!("{bridge:?} is not the name of a bridge"),
        Some(_) if !bridge.is_empty() => {
            format!("an interface on a network names bridge {bridge:?}, too")
        }
        Some(attachment) => match attachment.link.faults().first() {
            Some(fault) => format!("network {}: {fault}", attachment.name),
            None => return Ok(()),
        },
        None => return Ok(()),
    };
    Err(Refusal::new(Code::InvalidArgument, "INVALID_VM", message))
}

/// Checks that `migrate_data` is about the VM of the fence.
fn is_about(vm: VmUid, data: &MigrateData) -> Result<(), Refusal> {
    if data.vm_uid == vm {
        return Ok(());
    }
    let message = format!(
        "migrate_data is about VM {}, the call about {vm}",
        data.vm_uid
    );
    Err(Refusal::new(Code::InvalidArgument, "VM_MISMATCH", message))
}

fn missing(what: &str) -> Refusal {
    precondition(
        "MIGRATE_DATA_INCOMPLETE",
        format!("migrate_data has no {what}: an agent too old to pass it on was in between"),
    )
}

pub(super) fn moves(vm: &VmName) -> Refusal {
    precondition("GUEST_MOVES", format!("guest {vm} is being sent away"))
}

pub(super) fn precondition(reason: &str, message: String) -> Refusal {
    Refusal::new(Code::FailedPrecondition, reason, message)
}
