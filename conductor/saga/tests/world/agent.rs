//! One host's agent with its hypervisor, for one guest.

use std::collections::BTreeSet;

use berth_domain::agent::{Call, DestinationCheck, DomainState, DomainStatus, FitVerdict, Reply};
use berth_domain::claim::Claim;
use berth_domain::cpu_set::CpuSet;
use berth_domain::id::{ClaimId, Epoch, Incarnation, OperationId};
use berth_domain::instance::InstanceNumaTopology;
use berth_domain::migration::MigrateData;
use berth_domain::numa::Assignment;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::transfer::TransferPolicy;
use berth_domain::version::ServiceVersion;
use berth_saga::AgentCall;

use super::fixtures::{assignment, id, spec, vm_name, wish};

pub(crate) struct Agent {
    pub(crate) incarnation: Incarnation,
    /// The run that the scheduler knows.
    pub(crate) told: Incarnation,
    pub(crate) version: ServiceVersion,
    pub(crate) state: DomainState,
    pub(crate) claim: Option<Claim>,
    pub(crate) error: Option<String>,
    /// What this host fits a guest to instead of its claim.
    pub(crate) fits: Option<Assignment>,
    /// Set by a call that begins a transfer, taken by the world.
    pub(crate) began_transfer: bool,
    /// Whether the guest, seen from its source, has a topology.
    pub(crate) has_topology: bool,
    /// It does not take part in migrations as their destination.
    pub(crate) refuses: bool,
    /// How often a guest was really started here.
    pub(crate) spawned: u32,
    // What the agent remembers, and forgets when it is started anew.
    fence: Epoch,
    destroyed: bool,
    rolled_back: bool,
    asked: bool,
    sending: bool,
    settled: Option<OperationId>,
    started: Option<(OperationId, ClaimId)>,
    ended: Vec<ClaimId>,
    /// How the guest was to be sent.
    pub(crate) sent_as: Option<TransferPolicy>,
    /// Whether its disks are all old or all new.
    pub(crate) disks_are_whole: bool,
    /// By the operations that make them.
    pub(crate) drafts: BTreeSet<OperationId>,
    pub(crate) published: bool,
    /// How many more times it refuses to roll back.
    pub(crate) keeps: u32,
    /// What the world has not done yet to the transfer.
    pub(crate) ordered: Option<Call>,
    /// Whether it was told to keep the disks that were copied.
    pub(crate) kept_disks: bool,
    /// Whether the guest runs on the other side already, so that the transfer is not stopped.
    pub(crate) in_post_copy: bool,
    pub(crate) storage_id: String,
}

fn no(code: Code, reason: &str) -> Refusal {
    Refusal::new(code, reason, reason)
}

impl Agent {
    pub(crate) fn new(number: u128) -> Self {
        let incarnation = Incarnation(id(number * 1000));
        Self {
            incarnation,
            told: incarnation,
            version: ServiceVersion::CURRENT,
            state: DomainState::Absent,
            claim: None,
            error: None,
            fits: None,
            began_transfer: false,
            has_topology: true,
            refuses: false,
            spawned: 0,
            fence: Epoch(0),
            destroyed: false,
            rolled_back: false,
            asked: false,
            sending: false,
            settled: None,
            started: None,
            ended: Vec::new(),
            sent_as: None,
            disks_are_whole: true,
            drafts: BTreeSet::new(),
            published: false,
            keeps: 0,
            ordered: None,
            kept_disks: false,
            in_post_copy: false,
            storage_id: "s".to_owned(),
        }
    }

    /// The process is started anew: its memory is gone, the hypervisor is not.
    pub(crate) fn restart(&mut self) {
        self.incarnation = Incarnation(id(self.incarnation.0.as_u128() + 1));
        self.fence = Epoch(0);
        self.destroyed = false;
        self.rolled_back = false;
        self.asked = false;
        self.sending = false;
        self.settled = None;
        self.started = None;
        self.ended.clear();
    }

    pub(crate) fn handle(&mut self, call: &AgentCall) -> Result<Reply, Refusal> {
        if call.fence.incarnation != self.incarnation {
            return Err(no(Code::FailedPrecondition, "STALE_INCARNATION"));
        }
        if call.fence.epoch < self.fence {
            return Err(no(Code::Aborted, "STALE_EPOCH"));
        }
        self.fence = call.fence.epoch;
        match &call.call {
            Call::SpawnVm { claim, .. } => self.spawn(claim),
            Call::DestroyVm => {
                self.destroyed = true;
                self.state = DomainState::Absent;
                Ok(Reply::Done)
            }
            Call::GetDomain => {
                self.asked = true;
                Ok(Reply::Domain(self.status()))
            }
            Call::CheckCanLiveMigrateDestination { .. } if self.refuses => {
                Err(no(Code::FailedPrecondition, "NOT_ME"))
            }
            Call::CheckCanLiveMigrateDestination { .. } => {
                Ok(Reply::Destination(DestinationCheck {
                    bridges: Vec::new(),
                    migration_uri: "tcp://there".to_owned(),
                    storage_id: "s".to_owned(),
                    driver: "sim".to_owned(),
                    shared_cpus: CpuSet::new(),
                    tls: None,
                }))
            }
            Call::CheckCanLiveMigrateSource { .. } => {
                Ok(Reply::MigrateData(self.migrate_data(call)))
            }
            Call::FitLiveMigration { migrate_data, .. } => self.fit(migrate_data),
            Call::PreLiveMigration { migrate_data, .. } => self.prepare(migrate_data),
            Call::LiveMigration { migrate_data, .. } => self.send(migrate_data),
            Call::RollbackLiveMigrationAtDestination { keep_disks, .. } => {
                self.kept_disks |= keep_disks;
                self.rollback()
            }
            Call::PostLiveMigrationAtSource { .. } => match self.state {
                DomainState::Absent => Ok(Reply::Done),
                DomainState::Starting
                | DomainState::Running
                | DomainState::Paused
                | DomainState::MigratingOut
                | DomainState::MigratingIn
                | DomainState::Prepared
                | DomainState::PostCopyBroken
                | DomainState::Stopped => Err(no(Code::FailedPrecondition, "GUEST_RUNS_HERE")),
            },
            Call::StopVm { claim, last, .. } => self.stop(call, *claim, *last),
            Call::StartVm { claim, .. } => self.start(call, claim),
            Call::MakeDisks { claim, .. } => {
                self.is_open(call)?;
                if self.started == Some((call.fence.operation, claim.id)) {
                    return Err(no(Code::Aborted, "LATE_CALL"));
                }
                if self.state != DomainState::Absent {
                    return Err(no(Code::FailedPrecondition, "GUEST_RUNS_HERE"));
                }
                self.disks_are_whole = true;
                Ok(Reply::Done)
            }
            Call::CopyDisk { .. } => {
                self.is_open(call)?;
                if self.published {
                    return Err(no(Code::AlreadyExists, "IMAGE_EXISTS"));
                }
                self.drafts.insert(call.fence.operation);
                Ok(Reply::Done)
            }
            Call::PublishImage { .. } => {
                self.is_open(call)?;
                if self.drafts.remove(&call.fence.operation) {
                    assert!(!self.published, "an image is replaced");
                    self.published = true;
                }
                if self.published {
                    Ok(Reply::Done)
                } else {
                    Err(no(Code::FailedPrecondition, "HYPERVISOR_REFUSED"))
                }
            }
            Call::DropImage { .. } => {
                self.settled = Some(call.fence.operation);
                let was_draft = self.drafts.remove(&call.fence.operation);
                let published = !was_draft && self.published;
                Ok(Reply::Image { published })
            }
            Call::FetchDisks(_) | Call::DropDisks { .. } => {
                unreachable!("cold migrations are in the simulation's `operations`")
            }
            Call::SettleVm => {
                self.settled = Some(call.fence.operation);
                Ok(Reply::Domain(self.status()))
            }
            Call::AbortLiveMigration { .. } if self.in_post_copy => {
                Err(no(Code::FailedPrecondition, "GUEST_MOVES"))
            }
            Call::AbortLiveMigration { .. } | Call::ForceCompleteLiveMigration { .. } => {
                assert!(self.version >= ServiceVersion::TRANSFER_CONTROL);
                self.ordered = Some(call.call.clone());
                Ok(Reply::Done)
            }
        }
    }

    fn status(&self) -> DomainStatus {
        DomainStatus {
            state: self.state,
            claim: self.claim.as_ref().map(|c| c.id),
            epoch: Some(self.fence),
            vcpu_cpus: Vec::new(),
            migration_error: self.error.clone(),
            progress: None,
        }
    }

    fn spawn(&mut self, claim: &Claim) -> Result<Reply, Refusal> {
        if self.destroyed {
            return Err(no(Code::Aborted, "LATE_CALL"));
        }
        if self.state == DomainState::Absent {
            self.spawned += 1;
            self.state = DomainState::Running;
            self.claim = Some(claim.clone());
        }
        assert_eq!(self.claim.as_ref(), Some(claim));
        Ok(Reply::Domain(self.status()))
    }

    fn is_open(&self, call: &AgentCall) -> Result<(), Refusal> {
        if self.settled == Some(call.fence.operation) {
            return Err(no(Code::Aborted, "LATE_CALL"));
        }
        Ok(())
    }

    fn stop(&mut self, call: &AgentCall, claim: ClaimId, last: bool) -> Result<Reply, Refusal> {
        let operation = call.fence.operation;
        if self.settled == Some(operation) || !last && self.started == Some((operation, claim)) {
            return Err(no(Code::Aborted, "LATE_CALL"));
        }
        if last {
            self.ended.push(claim);
        }
        if self.claim.as_ref().is_some_and(|c| c.id == claim) {
            self.state = DomainState::Absent;
        }
        Ok(Reply::Done)
    }

    fn start(&mut self, call: &AgentCall, claim: &Claim) -> Result<Reply, Refusal> {
        let operation = call.fence.operation;
        if self.settled == Some(operation) || self.destroyed || self.ended.contains(&claim.id) {
            return Err(no(Code::Aborted, "LATE_CALL"));
        }
        self.started = Some((operation, claim.id));
        if matches!(self.state, DomainState::Absent | DomainState::Stopped) {
            self.spawned += 1;
            self.state = DomainState::Running;
            self.claim = Some(claim.clone());
        }
        assert!(self.disks_are_whole, "it is started on half a disk");
        assert_eq!(self.claim.as_ref(), Some(claim));
        Ok(Reply::Done)
    }

    fn migrate_data(&self, call: &AgentCall) -> MigrateData {
        let carries = self.has_topology && self.version >= ServiceVersion::NUMA_LIVE_MIGRATION;
        MigrateData {
            destination_bridges: Vec::new(),
            vm: vm_name(),
            vm_uid: call.fence.vm,
            spec: spec(),
            destination_uri: String::new(),
            destination_shared: CpuSet::new(),
            numa_topology: carries.then(|| InstanceNumaTopology {
                requested: wish(),
                assignment: assignment(0),
            }),
            claim: None,
            source_pci: Vec::new(),
            transfer: TransferPolicy::default(),
            disk_copies: Vec::new(),
            tls: false,
        }
    }

    fn fit(&self, data: &MigrateData) -> Result<Reply, Refusal> {
        if self.version < ServiceVersion::NUMA_LIVE_MIGRATION {
            return Err(no(Code::Unimplemented, "SERVICE_VERSION_TOO_OLD"));
        }
        let held = data
            .claim
            .as_ref()
            .expect("the held claim")
            .assignment
            .clone();
        assert_eq!(data.destination_uri, "tcp://there");
        let mut data = data.clone();
        let verdict = match &self.fits {
            Some(fits) if *fits != held => FitVerdict::Swap(fits.clone()),
            _ => FitVerdict::Confirm,
        };
        if let Some(topology) = &mut data.numa_topology {
            topology.assignment = match &verdict {
                FitVerdict::Confirm => held,
                FitVerdict::Swap(fits) => fits.clone(),
            };
        }
        Ok(Reply::Fit {
            verdict,
            migrate_data: data,
        })
    }

    fn prepare(&mut self, data: &MigrateData) -> Result<Reply, Refusal> {
        if self.rolled_back {
            return Err(no(Code::Aborted, "LATE_CALL"));
        }
        if self.state == DomainState::Absent {
            self.state = DomainState::Prepared;
        }
        self.claim = Some(data.claim.clone().expect("the held claim"));
        Ok(Reply::Done)
    }

    fn send(&mut self, data: &MigrateData) -> Result<Reply, Refusal> {
        if self.sending {
            return Ok(Reply::Done);
        }
        if self.asked {
            return Err(no(Code::Aborted, "LATE_CALL"));
        }
        if self.state != DomainState::Running {
            return Err(no(Code::FailedPrecondition, "NOT_RUNNING"));
        }
        if self.version >= ServiceVersion::NUMA_LIVE_MIGRATION
            && let Some(topology) = &data.numa_topology
        {
            let claim = data.claim.as_ref().expect("the claim");
            assert_eq!(topology.assignment, claim.assignment);
        }
        self.sent_as = Some(data.transfer.clone());
        self.sending = true;
        self.state = DomainState::MigratingOut;
        self.began_transfer = true;
        Ok(Reply::Done)
    }

    fn rollback(&mut self) -> Result<Reply, Refusal> {
        if self.keeps > 0 {
            self.keeps -= 1;
            return Err(no(Code::FailedPrecondition, "GUEST_WRONG_STATE"));
        }
        match self.state {
            DomainState::Running => Err(no(Code::FailedPrecondition, "GUEST_RUNS_HERE")),
            DomainState::MigratingIn | DomainState::PostCopyBroken => {
                Err(no(Code::FailedPrecondition, "GUEST_ARRIVES"))
            }
            DomainState::Absent
            | DomainState::Starting
            | DomainState::Paused
            | DomainState::MigratingOut
            | DomainState::Prepared
            | DomainState::Stopped => {
                self.rolled_back = true;
                self.state = DomainState::Absent;
                Ok(Reply::Done)
            }
        }
    }
}
