//! A state that is older than its hosts: how it begins, which hosts have reported, and what a recovery
//! would settle.
//!
//! It changes no replicated state: [`State::recovered`] makes the first state of a new group, before
//! there is a log. What settles guests is in [`crate::apply`].

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::host::{Host, HostReport};
use berth_domain::id::{ClusterId, Epoch, Generation, Incarnation, TimeMs, VmUid};
use berth_domain::name::{HostName, VmName};
use berth_domain::recovery::{
    Cause, Fate, GENERATION_JUMP, Recovery, SETTLED_MAX, SettledVm, next_era,
};
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;
use uuid::Uuid;

use crate::state::State;
use crate::transaction::{NoJournal, Transaction};

/// What a state is recovered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The new cluster.
    pub cluster: ClusterId,
    /// Why the state is older than its hosts.
    pub cause: Cause,
    /// When.
    pub at: TimeMs,
    /// The index of the log at which the state is.
    pub index: u64,
    /// The service version of the members of the new group.
    pub level: ServiceVersion,
}

/// How far a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Its agent has not reported.
    Awaited,
    /// Its agent has reported, but a call from before the recovery may have changed guests since: other
    /// hosts were not quiet yet.
    Quiet,
    /// What it reported counts.
    Compared,
    /// It is fenced: no guest runs there.
    Fenced,
}

/// What keeps a recovery from ending by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Several hosts have the guest.
    Twice {
        /// The VM, or the name of the guest where none is recorded.
        vm: String,
        /// The hosts.
        hosts: Vec<HostName>,
    },
    /// A host has the guest, and what it holds there cannot be claimed for it.
    Unclaimable {
        /// The VM.
        vm: VmName,
        /// The host.
        host: HostName,
        /// Why.
        refusal: Box<Refusal>,
    },
    /// A host has a guest that Berth made and that cannot be made a VM of the state.
    Unrecorded {
        /// The host.
        host: HostName,
        /// The guest's UUID.
        uuid: Uuid,
        /// The guest's name.
        name: String,
        /// Why.
        refusal: Box<Refusal>,
    },
}

/// How many hosts of a conflict are named.
const HOSTS_NAMED_MAX: usize = 8;

impl Conflict {
    fn kept(&self) -> SettledVm {
        let (vm, host, message) = match self {
            Self::Twice { vm, hosts } => {
                let named = hosts.iter().take(HOSTS_NAMED_MAX).map(ToString::to_string);
                let named: Vec<_> = named.collect();
                let message = format!("guest {vm} was on hosts {}", named.join(", "));
                (VmName::new(vm).ok(), hosts.first(), message)
            }
            Self::Unclaimable { vm, host, refusal } => (
                Some(vm.clone()),
                Some(host),
                refusal.as_record(true).message,
            ),
            Self::Unrecorded {
                host,
                uuid,
                name,
                refusal,
            } => {
                let why = refusal.as_record(true).message;
                let message = format!("guest {name} {uuid} is no VM: {why}");
                (None, Some(host), message)
            }
        };
        SettledVm {
            number: 0,
            vm,
            fate: Fate::Conflict,
            host: host.cloned(),
            message,
        }
    }
}

/// What was settled for a VM that differs from the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Its guest runs where the state did not have it, or had it off.
    Runs {
        /// The VM.
        vm: VmName,
        /// Where.
        host: HostName,
    },
    /// Its guest was found, and no VM was recorded for it.
    Added {
        /// The VM.
        vm: VmName,
        /// Where.
        host: HostName,
    },
    /// No host runs its guest: it is STOPPED.
    Off {
        /// The VM.
        vm: VmName,
    },
    /// It is in ERROR.
    Failed {
        /// The VM.
        vm: VmName,
        /// Why.
        refusal: Box<Refusal>,
    },
    /// It is removed: no host has its guest, and that of another VM has its name.
    Replaced(Replaced),
}

/// A VM that is removed, as the guest of another one has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The name of both.
    pub vm: VmName,
    /// The VM that is removed.
    pub uid: VmUid,
    /// The host where it was recorded, or where something may be left of it.
    pub host: Option<HostName>,
    /// Whether that host is fenced, so that it is not known whether its guest is there.
    pub is_fenced: bool,
    /// The host of the guest that has its name.
    pub other: HostName,
}

impl Replaced {
    /// Returns why it is removed, and what to do about what may be left of it.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { uid, other, .. } = self;
        let left = match (&self.host, self.is_fenced) {
            (Some(host), true) => format!(
                "its guest and its disks may be on host {host}, which is fenced: once that host is back, \
                 `berth host show {host}` lists the guest as an orphan; save what is needed, and remove it \
                 there with virsh"
            ),
            (Some(host), false) => format!("its disks, if they are left, are on host {host}"),
            (None, _) => "it was on no host".to_owned(),
        };
        format!(
            "the guest of this name on host {other} is of another VM; no host has guest {uid}; {left}"
        )
    }
}

impl Settled {
    fn kept(&self) -> SettledVm {
        let (fate, host, message) = match self {
            Self::Runs { host, .. } => (Fate::Active, Some(host), String::new()),
            Self::Added { host, .. } => (Fate::Added, Some(host), String::new()),
            Self::Off { .. } => (Fate::Stopped, None, String::new()),
            Self::Failed { refusal, .. } => (Fate::Error, None, refusal.as_record(true).message),
            Self::Replaced(replaced) => {
                (Fate::Replaced, replaced.host.as_ref(), replaced.describe())
            }
        };
        SettledVm {
            number: 0,
            vm: Some(self.vm().clone()),
            fate,
            host: host.cloned(),
            message,
        }
    }

    /// Returns the VM.
    #[must_use]
    pub fn vm(&self) -> &VmName {
        match self {
            Self::Runs { vm, .. }
            | Self::Added { vm, .. }
            | Self::Off { vm }
            | Self::Failed { vm, .. }
            | Self::Replaced(Replaced { vm, .. }) => vm,
        }
    }
}

/// What a recovery leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryOutcome {
    /// The VMs that differ from the state, in the order of their names; then those that are removed.
    pub settled: Vec<Settled>,
    /// What cannot be settled.
    pub conflicts: Vec<Conflict>,
}

impl RecoveryOutcome {
    /// Returns how many VMs differ and guests conflict.
    #[must_use]
    pub fn count(&self) -> u32 {
        let count = self.settled.len() + self.conflicts.len();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns what is kept of it once the recovery has ended, in the state that it has led to.
    pub(crate) fn kept(&self, state: &State) -> Vec<SettledVm> {
        let settled = self.settled.iter().map(Settled::kept);
        let conflicts = self.conflicts.iter().map(|conflict| {
            let kept = conflict.kept();
            let vm = kept.vm.filter(|vm| state.vm(vm).is_some());
            SettledVm { vm, ..kept }
        });
        numbered(settled.chain(conflicts).collect())
    }

    /// Returns what the recovery settles, as it would be kept: all but conflicts.
    #[must_use]
    pub fn settled_vms(&self) -> Vec<SettledVm> {
        numbered(self.settled.iter().map(Settled::kept).collect())
    }
}

/// Returns those that need an operator most, with their places.
fn numbered(mut settled: Vec<SettledVm>) -> Vec<SettledVm> {
    // Those of one fate stay in the order of their names.
    settled.sort_by_key(|settled| settled.fate);
    settled.truncate(SETTLED_MAX);
    for (number, settled) in (0..).zip(&mut settled) {
        settled.number = number;
    }
    settled
}

impl State {
    /// Returns what the latest recovery settled otherwise than it was recorded, once it has ended.
    pub fn settled_vms(&self) -> impl Iterator<Item = &SettledVm> {
        self.settled_vms.values().map(|settled| &**settled)
    }

    /// Returns whether the cluster recovers now.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.header.recovery.is_some_and(|r| r.is_running())
    }

    /// Returns whether the cluster recovers and every host has reported: the end, which settles all VMs, may
    /// be the next command.
    #[must_use]
    pub fn is_about_to_settle(&self) -> bool {
        self.is_recovering() && self.all_quiet_at().is_some()
    }

    /// Returns whether the agent of a host is to report its guests: in a recovery, or after it where it
    /// has not done so.
    #[must_use]
    pub fn has_unreported_guests(&self, host: &Host) -> bool {
        self.is_recovering() || (host.unreported && self.header.recovery.is_some())
    }

    /// Returns how far each host is in a recovery.
    #[must_use]
    pub fn recovery_progress(&self) -> BTreeMap<HostName, Progress> {
        let quiet_at = self.all_quiet_at();
        let hosts = self.hosts.iter();
        hosts
            .map(|(name, view)| (name.clone(), self.progress_of(&view.host, quiet_at)))
            .collect()
    }

    /// Returns how far a host is in a recovery.
    #[must_use]
    pub fn recovery_progress_of(&self, host: &HostName) -> Option<Progress> {
        let host = &self.host(host)?.host;
        Some(self.progress_of(host, self.all_quiet_at()))
    }

    fn progress_of(&self, host: &Host, quiet_at: Option<u64>) -> Progress {
        match self.recovered_hosts.get(&host.name) {
            _ if is_dead(host) => Progress::Fenced,
            None => Progress::Awaited,
            Some(report) if report.incarnation != host.report.incarnation => Progress::Awaited,
            Some(report) if quiet_at.is_some_and(|at| report.basis >= at) => Progress::Compared,
            Some(_) => Progress::Quiet,
        }
    }

    /// Returns the revision from which on no host carries out a call from before the recovery; nothing
    /// while one of them still may.
    fn all_quiet_at(&self) -> Option<u64> {
        let index = &self.index;
        if index.quiet.len() + index.dead.len() < self.hosts.len() {
            return None;
        }
        Some(index.quiet.get_max().map_or(0, |(at, _)| *at))
    }

    /// Returns whether no host is left whose report is awaited.
    pub(crate) fn has_all_reports(&self) -> bool {
        let quiet_at = self.all_quiet_at();
        let mut hosts = self.hosts.values();
        hosts.all(|view| match self.progress_of(&view.host, quiet_at) {
            Progress::Compared | Progress::Fenced => true,
            Progress::Awaited | Progress::Quiet => false,
        })
    }

    /// Returns what a recovery would lead to, if every host has reported.
    #[must_use]
    pub fn recovery_outcome(&self) -> Option<RecoveryOutcome> {
        if !self.is_recovering() || !self.has_all_reports() {
            return None;
        }
        let mut copy = self.clone();
        Some(Transaction::unrecorded(&mut copy).settle_recovery())
    }

    /// Returns the first state of a group that recovers with this one.
    ///
    /// Nothing that the lost commands gave out is taken for its own: revisions, epochs and generations
    /// go on behind all of them, the requests that are remembered are forgotten, and grants are signed
    /// with a new key.
    #[must_use]
    pub fn recovered(mut self, begin: &Begin) -> Self {
        let before = self.header;
        let first_revision = next_era(begin.index.max(before.revision));
        let time = before.time.max(begin.at);
        self.header.cluster = Some(begin.cluster);
        self.header.cluster_version = before.cluster_version.max(begin.level);
        self.header.time = time;
        self.header.revision = first_revision;
        self.header.epoch = Epoch(next_era(before.epoch.0));
        self.header.forgotten = before.forgotten.max(time);
        self.header.grant_keys = [None; 2];
        self.header.recovery = Some(Recovery {
            number: before.recovery.map_or(0, |r| r.number) + 1,
            cause: begin.cause,
            began_at: time,
            last_revision: before.revision,
            first_revision,
            ended_at: None,
            volumes_follow_guests: true,
            keeps_settled: true,
            settled: 0,
        });
        Transaction::unrecorded(&mut self).begin_recovery();
        self
    }
}

/// Returns whether no guest runs on a host, although it does not report.
pub(crate) fn is_dead(host: &Host) -> bool {
    let fenced = host.fenced.as_ref();
    fenced.is_some_and(|fenced| !fenced.reported_since)
}

/// Returns a generation that no client has seen.
fn leap(generation: Generation) -> Generation {
    Generation(generation.0.saturating_add(GENERATION_JUMP))
}

impl Transaction<'_, NoJournal> {
    /// Brings the records of a state into the era that its header has begun.
    fn begin_recovery(&mut self) {
        let requests: Vec<_> = self.state.requests.keys().cloned().collect();
        for name in requests {
            self.remove_request(&name);
        }
        let recovered: Vec<_> = self.state.recovered_hosts.keys().cloned().collect();
        for host in recovered {
            self.remove_recovered_host(&host);
        }
        let settled: Vec<_> = self.state.settled_vms.keys().copied().collect();
        for number in settled {
            self.remove_settled_vm(number);
        }
        let level = self.state.header.cluster_version;
        let services: Vec<_> = self.state.services.values().cloned().collect();
        for service in services.iter().filter(|service| service.version < level) {
            self.remove_service(&service.name);
        }
        self.leap_hosts();
        self.leap_others();
    }

    /// What was known of hosts is outdated: a fenced one may be back, an unknown guest gone; an agent may
    /// have taken back its promise to stop its guests, or report another shape. So each registers again.
    fn leap_hosts(&mut self) {
        let compared = self.state.header.revision;
        let hosts: Vec<_> = self.state.hosts.values().cloned().collect();
        for view in hosts {
            let host = (*view.host).clone();
            let report = HostReport {
                incarnation: Incarnation(Uuid::nil()),
                self_fence_ms: 0,
                ..host.report
            };
            self.put_host(Host {
                report,
                fenced: None,
                unknown: Vec::new(),
                unreported: true,
                orphans: BTreeSet::new(),
                compared,
                generation: leap(host.generation),
                ..host
            });
        }
    }

    fn leap_others(&mut self) {
        macro_rules! leap_all {
            ($table:ident, $put:ident) => {
                let rows: Vec<_> = self.state.$table.values().cloned().collect();
                for row in rows {
                    let mut row = (*row).clone();
                    row.generation = leap(row.generation);
                    self.$put(row);
                }
            };
        }
        leap_all!(vms, put_vm);
        leap_all!(providers, put_provider);
        leap_all!(consumers, put_consumer);
        leap_all!(aggregates, put_aggregate);
        leap_all!(volumes, put_volume);
        leap_all!(migrations, put_migration);
        if self.state.policy.is_set() {
            let mut policy = (*self.state.policy).clone();
            policy.generation = leap(policy.generation);
            self.put_policy(policy);
        }
    }
}
