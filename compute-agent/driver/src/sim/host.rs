//! One simulated hypervisor: its guests and what they hold, as a state machine.
//!
//! ```text
//!   (none) ──create──▶ RUNNING ──begin_send──▶ SENDING ──switch──▶ SWITCHING ──depart──▶ (none)
//!                         ▲  ◀──give_up_send─────┘                     │
//!                         └──────────────give_up_send──────────────────┘
//!   (none) ──prepare──▶ PREPARED ──begin_receive──▶ RECEIVING ──arrive──▶ RUNNING
//!                          ▲  ◀──give_up_receive───────┘
//! ```
//!
//! Post-copy has phases of its own: see `post_copy`.
//!
//! Like a real hypervisor it knows no claims: it refuses CPUs that it does not have and pages
//! that are taken, and would pin two guests to one CPU if a claim did.
//!
//! Invariant: pure; time comes in with each call. A guest counts (see [`Console`]) in RUNNING and
//! SENDING only, and no transition lets it count on both ends of a transfer.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::agent::{DomainState, DomainStatus};
use berth_domain::cpu_model::HostCpu;
use berth_domain::id::{ClaimId, TimeMs, VmUid};
use berth_domain::name::{PmemName, VmName};
use berth_domain::topology::{CellId, HostTopology};
use serde::{Deserialize, Serialize};

use super::console::Console;
use super::disks::Images;
use super::memory::Machine;
use super::pmem::Contents;
use crate::domain::{DomainSpec, Ending, Known, Other};
use crate::error::Error;

/// How far a simulated guest is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It runs.
    Running,
    /// It is expected.
    Prepared,
    /// Its memory is coming in.
    Receiving,
    /// It runs while its memory is being sent.
    Sending,
    /// Its memory is sent, and it stands still here until the other side has answered.
    Switching {
        /// Where to query the outcome.
        destination_uri: String,
    },
    /// It has crashed.
    Stopped,
    /// It runs here, and some of its memory is still where it came from.
    PullingIn,
    /// Some of its memory is here and some elsewhere, and the connection between them broke.
    Torn,
}

/// A simulated guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// The domain that it runs.
    pub spec: DomainSpec,
    /// How far it is.
    pub phase: Phase,
    /// Its console.
    pub console: Console,
    /// Why the last attempt to send it away failed.
    pub migration_error: Option<String>,
    /// The configured share of its memory that it touches, in percent; see `memory`.
    #[serde(default)]
    pub active_percent: Option<u64>,
    /// Whether it shut itself down, or was requested to, rather than crashed.
    #[serde(default)]
    pub shut_down: bool,
}

impl Domain {
    fn state(&self) -> DomainState {
        match self.phase {
            Phase::Running => DomainState::Running,
            Phase::Prepared => DomainState::Prepared,
            Phase::Receiving => DomainState::MigratingIn,
            Phase::Sending | Phase::Switching { .. } => DomainState::MigratingOut,
            Phase::Stopped => DomainState::Stopped,
            Phase::PullingIn => DomainState::MigratingIn,
            Phase::Torn => DomainState::PostCopyBroken,
        }
    }

    /// Returns whether its memory is allocated here.
    #[must_use]
    pub fn holds_memory(&self) -> bool {
        match self.phase {
            Phase::Running
            | Phase::Receiving
            | Phase::Sending
            | Phase::Switching { .. }
            | Phase::PullingIn
            | Phase::Torn => true,
            Phase::Prepared | Phase::Stopped => false,
        }
    }
}

/// One simulated hypervisor.
#[derive(Clone, Debug)]
pub struct Host {
    topology: Arc<HostTopology>,
    pub(super) domains: BTreeMap<VmUid, Domain>,
    pub(super) images: Images,
    pub(super) pmem: Contents,
    others: Vec<Other>,
    /// Huge pages of other processes on the machine, by cell and size in KiB.
    pub(super) foreign_pages: BTreeMap<(CellId, u64), u64>,
    pub(super) machine: Machine,
    /// What it offers to guests as a CPU; nothing: it does not matter to them.
    cpu: Option<HostCpu>,
    /// How many guests were started here.
    started: u64,
}

impl Host {
    /// Returns a hypervisor without guests.
    #[must_use]
    pub fn new(topology: Arc<HostTopology>) -> Self {
        Self::with_domains(topology, BTreeMap::new())
    }

    /// Returns a hypervisor that has these guests, as after a restart of its process.
    #[must_use]
    pub fn with_domains(topology: Arc<HostTopology>, domains: BTreeMap<VmUid, Domain>) -> Self {
        Self {
            topology,
            domains,
            images: Images::default(),
            pmem: Contents::default(),
            others: Vec::new(),
            foreign_pages: BTreeMap::new(),
            machine: Machine::default(),
            cpu: None,
            started: 0,
        }
    }

    /// From now on it offers this to guests as a CPU.
    pub fn set_cpu(&mut self, cpu: Option<HostCpu>) {
        self.cpu = cpu;
    }

    /// Returns what it offers to guests as a CPU.
    #[must_use]
    pub fn cpu(&self) -> Option<&HostCpu> {
        self.cpu.as_ref()
    }

    /// Returns the guests.
    #[must_use]
    pub fn domains(&self) -> &BTreeMap<VmUid, Domain> {
        &self.domains
    }

    /// Returns the shape of the machine.
    #[must_use]
    pub fn topology(&self) -> &Arc<HostTopology> {
        &self.topology
    }

    /// Returns every guest as a driver lists them.
    #[must_use]
    pub fn known(&self) -> Vec<Known> {
        let known = |d: &Domain| Known {
            domain: d.spec.clone(),
            state: d.state(),
        };
        self.domains.values().map(known).collect()
    }

    /// Returns what is on the machine's persistent memory.
    #[must_use]
    pub fn pmem(&self) -> &Contents {
        &self.pmem
    }

    /// Puts what is on the machine's persistent memory, as after a restart.
    pub fn set_pmem(&mut self, contents: Contents) {
        self.pmem = contents;
    }

    /// Erases a namespace.
    pub fn erase(&mut self, name: &PmemName) {
        let has = |d: &&Domain| d.spec.assignment.pmem.iter().any(|p| p.name == *name);
        let mut holders = self.domains.values().filter(|d| d.holds_memory());
        let holder = holders.find(has).map(|d| d.spec.uid);
        self.pmem.erase(name, holder);
    }

    /// Returns the domains that Berth did not make.
    #[must_use]
    pub fn others(&self) -> &[Other] {
        &self.others
    }

    /// Adds a foreign domain.
    pub fn add_other(&mut self, other: Other) {
        self.others.retain(|o| o.uuid != other.uuid);
        self.others.push(other);
    }

    /// A guest is gone, as when its hypervisor forgot it.
    pub fn lose(&mut self, vm: VmUid) {
        self.domains.remove(&vm);
    }

    /// Stops a guest and takes it away if it is on this claim; its disks stay.
    ///
    /// # Errors
    ///
    /// While it is on its way.
    pub fn evict(&mut self, vm: VmUid, claim: Option<ClaimId>) -> Result<(), Error> {
        let domain = self.domains.get(&vm);
        if domain.is_some_and(|domain| domain.spec.claim == claim) {
            return self.destroy(vm);
        }
        Ok(())
    }

    /// Starts a guest.
    ///
    /// # Errors
    ///
    /// When it is here on another claim, or does not fit.
    pub fn create(&mut self, now: TimeMs, spec: &DomainSpec) -> Result<(), Error> {
        if let Some(domain) = self.domains.get(&spec.uid) {
            let same = domain.phase == Phase::Running && domain.spec.claim == spec.claim;
            return if same {
                Ok(())
            } else {
                Err(Error::Exists {
                    vm: spec.uid,
                    claim: domain.spec.claim,
                })
            };
        }
        self.check_capacity(spec)?;
        self.check_cpu(spec)?;
        spec.check_networks()?;
        self.check_volumes(spec)?;
        self.pmem.write(spec)?;
        let console = self.new_console(now);
        self.insert(spec, Phase::Running, console);
        Ok(())
    }

    /// Stops a guest and takes it away.
    ///
    /// # Errors
    ///
    /// While it is on its way.
    pub fn destroy(&mut self, vm: VmUid) -> Result<(), Error> {
        match self.domains.get(&vm).map(|d| &d.phase) {
            None => Ok(()),
            Some(Phase::Running | Phase::Prepared | Phase::Stopped) => {
                self.domains.remove(&vm);
                Ok(())
            }
            Some(
                Phase::Receiving
                | Phase::Sending
                | Phase::Switching { .. }
                | Phase::PullingIn
                | Phase::Torn,
            ) => Err(self.wrong_state(vm, "destroy")),
        }
    }

    /// Requests a guest to power off, which simulated ones do at once.
    ///
    /// # Errors
    ///
    /// While it is on its way.
    pub fn shutdown(&mut self, now: TimeMs, vm: VmUid) -> Result<(), Error> {
        match self.domains.get(&vm).map(|d| &d.phase) {
            None | Some(Phase::Stopped) => Ok(()),
            Some(Phase::Running) => {
                self.end(now, vm, Ending::ShutDown);
                Ok(())
            }
            Some(
                Phase::Prepared
                | Phase::Receiving
                | Phase::Sending
                | Phase::Switching { .. }
                | Phase::PullingIn
                | Phase::Torn,
            ) => Err(self.wrong_state(vm, "shut down")),
        }
    }

    /// Pulls a guest's plug.
    ///
    /// # Errors
    ///
    /// While it is on its way.
    pub fn stop(&mut self, vm: VmUid) -> Result<(), Error> {
        match self.domains.get(&vm).map(|d| &d.phase) {
            None => Ok(()),
            Some(Phase::Running | Phase::Stopped) => {
                self.domains.remove(&vm);
                Ok(())
            }
            Some(
                Phase::Prepared
                | Phase::Receiving
                | Phase::Sending
                | Phase::Switching { .. }
                | Phase::PullingIn
                | Phase::Torn,
            ) => Err(self.wrong_state(vm, "stop")),
        }
    }

    /// Starts a guest with the disks that it has: simulated ones have none that could be missing.
    ///
    /// # Errors
    ///
    /// When it runs here on another claim, or does not fit.
    pub fn start(&mut self, now: TimeMs, spec: &DomainSpec) -> Result<(), Error> {
        let domain = self.domains.get(&spec.uid);
        if domain.is_some_and(|d| d.phase == Phase::Stopped) {
            self.check_capacity(spec)?;
            self.check_cpu(spec)?;
            spec.check_networks()?;
            self.domains.remove(&spec.uid);
        }
        self.create(now, spec)
    }

    /// Returns where a guest is.
    #[must_use]
    pub fn status(&self, vm: VmUid) -> DomainStatus {
        let Some(domain) = self.domains.get(&vm) else {
            return DomainStatus::absent();
        };
        DomainStatus {
            state: domain.state(),
            claim: domain.spec.claim,
            epoch: Some(domain.spec.epoch),
            vcpu_cpus: domain.spec.vcpu_cpus().into_iter().collect(),
            migration_error: domain.migration_error.clone(),
            progress: None,
        }
    }

    /// Expects a guest.
    ///
    /// # Errors
    ///
    /// When it is here, or would not fit.
    pub fn prepare(&mut self, now: TimeMs, spec: &DomainSpec) -> Result<(), Error> {
        match self.is_prepared(spec.uid) {
            None | Some(true) => {}
            Some(false) => return Err(self.wrong_state(spec.uid, "prepare to receive")),
        }
        self.check_capacity(spec)?;
        self.check_cpu(spec)?;
        spec.check_networks()?;
        let mut console = self.new_console(now);
        console.pause(now);
        self.insert(spec, Phase::Prepared, console);
        Ok(())
    }

    /// Returns whether a guest is expected, if it is known here at all.
    fn is_prepared(&self, vm: VmUid) -> Option<bool> {
        let domain = self.domains.get(&vm)?;
        Some(domain.phase == Phase::Prepared)
    }

    /// Expects a guest no longer.
    ///
    /// # Errors
    ///
    /// When it is here, or on its way here.
    pub fn cancel(&mut self, vm: VmUid) -> Result<(), Error> {
        match self.domains.get(&vm).map(|d| &d.phase) {
            None => Ok(()),
            Some(Phase::Prepared | Phase::Stopped) => {
                self.domains.remove(&vm);
                Ok(())
            }
            Some(
                Phase::Running
                | Phase::Receiving
                | Phase::Sending
                | Phase::Switching { .. }
                | Phase::PullingIn
                | Phase::Torn,
            ) => Err(self.wrong_state(vm, "stop expecting")),
        }
    }

    /// Drops what is left of a guest that has arrived elsewhere.
    ///
    /// # Errors
    ///
    /// When it runs here or is on its way.
    pub fn release(&mut self, vm: VmUid) -> Result<(), Error> {
        match self.domains.get(&vm).map(|d| &d.phase) {
            None => Ok(()),
            Some(Phase::Prepared | Phase::Stopped | Phase::Switching { .. }) => {
                self.domains.remove(&vm);
                Ok(())
            }
            Some(
                Phase::Running | Phase::Receiving | Phase::Sending | Phase::PullingIn | Phase::Torn,
            ) => Err(self.wrong_state(vm, "release")),
        }
    }

    /// Begins to send a running guest.
    ///
    /// # Errors
    ///
    /// When it does not run here.
    pub fn begin_send(&mut self, vm: VmUid) -> Result<(), Error> {
        match self.domains.get_mut(&vm) {
            None => Err(Error::Absent { vm }),
            Some(domain) if domain.phase == Phase::Running => {
                domain.phase = Phase::Sending;
                domain.migration_error = None;
                Ok(())
            }
            Some(_) => Err(self.wrong_state(vm, "send")),
        }
    }

    /// Begins to receive a guest that is expected; `spec` is what it shall be here.
    ///
    /// # Errors
    ///
    /// When it is not expected, or does not fit.
    pub fn begin_receive(&mut self, spec: &DomainSpec) -> Result<(), Error> {
        match self.is_prepared(spec.uid) {
            Some(true) => {}
            None => {
                return Err(Error::refused(format!(
                    "guest {} is not expected here",
                    spec.vm
                )));
            }
            Some(false) => return Err(self.wrong_state(spec.uid, "receive")),
        }
        self.check_capacity(spec)?;
        self.check_cpu(spec)?;
        spec.check_networks()?;
        self.pmem.write(spec)?;
        let domain = self.domains.get_mut(&spec.uid).expect("seen above");
        domain.spec = spec.clone();
        domain.phase = Phase::Receiving;
        Ok(())
    }

    /// Gives up sending: the guest runs on here.
    pub fn give_up_send(&mut self, now: TimeMs, vm: VmUid, why: &str) {
        if let Some(domain) = self.domains.get_mut(&vm) {
            match domain.phase {
                Phase::Sending => {}
                Phase::Switching { .. } => domain.console.resume(now),
                Phase::Running
                | Phase::Prepared
                | Phase::Receiving
                | Phase::Stopped
                | Phase::PullingIn
                | Phase::Torn => return,
            }
            domain.phase = Phase::Running;
            domain.migration_error = Some(why.to_owned());
        }
    }

    /// Gives up receiving: the guest is expected again.
    pub fn give_up_receive(&mut self, vm: VmUid) {
        if let Some(domain) = self.domains.get_mut(&vm)
            && domain.phase == Phase::Receiving
        {
            domain.phase = Phase::Prepared;
        }
    }

    /// Lets a guest that is being sent stand still, and returns its console.
    ///
    /// # Errors
    ///
    /// When it is not being sent.
    pub fn switch(
        &mut self,
        now: TimeMs,
        vm: VmUid,
        destination_uri: &str,
    ) -> Result<Console, Error> {
        match self.domains.get_mut(&vm) {
            Some(domain) if domain.phase == Phase::Sending => {
                domain.console.pause(now);
                domain.phase = Phase::Switching {
                    destination_uri: destination_uri.to_owned(),
                };
                Ok(domain.console.clone())
            }
            Some(_) => Err(self.wrong_state(vm, "switch")),
            None => Err(Error::Absent { vm }),
        }
    }

    /// Lets a guest that was received go on here.
    ///
    /// # Errors
    ///
    /// When it is not being received.
    pub fn arrive(&mut self, now: TimeMs, vm: VmUid, mut console: Console) -> Result<(), Error> {
        match self.domains.get_mut(&vm) {
            Some(domain) if domain.phase == Phase::Receiving => {
                console.resume(now);
                domain.console = console;
                domain.phase = Phase::Running;
                Ok(())
            }
            Some(_) => Err(self.wrong_state(vm, "let arrive")),
            None => Err(Error::Absent { vm }),
        }
    }

    /// Forgets a guest that goes on elsewhere.
    pub fn depart(&mut self, vm: VmUid) {
        if matches!(
            self.domains.get(&vm),
            Some(Domain {
                phase: Phase::Switching { .. },
                ..
            })
        ) {
            self.domains.remove(&vm);
        }
    }

    /// Lets a running guest crash.
    pub fn crash(&mut self, now: TimeMs, vm: VmUid) {
        self.end(now, vm, Ending::Crashed);
    }

    /// Lets a running guest end by itself.
    fn end(&mut self, now: TimeMs, vm: VmUid, ending: Ending) {
        if let Some(domain) = self.domains.get_mut(&vm)
            && domain.phase == Phase::Running
        {
            domain.console.pause(now);
            domain.phase = Phase::Stopped;
            domain.shut_down = ending == Ending::ShutDown;
        }
    }

    /// Returns how a guest ended, if it is here and did.
    #[must_use]
    pub fn ending(&self, vm: &VmName) -> Option<Ending> {
        let is_it = |domain: &&Domain| domain.spec.vm == *vm && domain.phase == Phase::Stopped;
        let domain = self.domains.values().find(is_it)?;
        Some(match domain.shut_down {
            true => Ending::ShutDown,
            false => Ending::Crashed,
        })
    }

    /// Returns the console of a guest that is here.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn console(&mut self, vm: VmUid) -> Result<&mut Console, Error> {
        let domain = self.domains.get_mut(&vm).ok_or(Error::Absent { vm })?;
        Ok(&mut domain.console)
    }

    fn new_console(&mut self, now: TimeMs) -> Console {
        self.started += 1;
        Console::start(now, self.started)
    }

    fn insert(&mut self, spec: &DomainSpec, phase: Phase, console: Console) {
        let domain = Domain {
            // The disk has it.
            spec: DomainSpec {
                first_boot: None,
                ..spec.clone()
            },
            phase,
            console,
            migration_error: None,
            active_percent: None,
            shut_down: false,
        };
        self.domains.insert(spec.uid, domain);
    }

    pub(super) fn wrong_state(&self, vm: VmUid, attempted: &'static str) -> Error {
        Error::WrongState {
            vm,
            state: self.status(vm).state,
            attempted,
        }
    }
}
