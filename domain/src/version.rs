//! Service versions: what a running scheduler member, conductor or agent can do.
//!
//! A service version is one number for all programs. It grows with every change of what services
//! exchange or write into the replicated log. It gates features while a cluster is
//! upgraded process by process: what a process is too old for is refused before anything is done,
//! with the name of the process.
//!
//! The *cluster version* is the service version up to which the replicated format is used; see
//! `berth_state::Header`. It is raised by an operator, once every process that must be is new
//! enough.
//!
//! Invariant: which feature needs what, and of whom, is defined in [`Feature`] alone. The
//! table of `docs/upgrades.md` is compared with it by a test.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::HostName;
use crate::refusal::{Code, Refusal};

/// The version of a service process, or of what the replicated format may hold.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ServiceVersion(pub u32);

impl ServiceVersion {
    /// The version that this build speaks.
    pub const CURRENT: Self = Self(4);
    /// The oldest version that can still be started (`--service-version`).
    pub const OLDEST: Self = Self(1);
    /// From here on `migrate_data` carries the `InstanceNUMATopology`, and a destination fits it
    /// and confirms its claim. An older agent drops the field and refuses the call.
    pub const NUMA_LIVE_MIGRATION: Self = Self(2);
    /// From here on an agent reports that it supports the PCI affinity `socket`.
    pub const SOCKET_PCI_AFFINITY: Self = Self(2);
    /// From here on an agent stops, starts, rebuilds and snapshots the guests of its host, and a
    /// conductor carries out the operations that need it. An older one refuses the calls.
    pub const VM_POWER: Self = Self(3);
    /// From here on `migrate_data` carries a transfer policy, and the source's agent is instructed
    /// to stop a transfer or to end it soon. An older agent drops the field and refuses the calls.
    pub const TRANSFER_CONTROL: Self = Self(3);
    /// From here on agents have the hypervisor copy disks that the destination does not see.
    pub const DISK_COPY: Self = Self(3);
    /// From here on agents fetch the disks of guests that are off from each other.
    pub const DISK_FETCH: Self = Self(3);
    /// From here on a cluster version is finalized, conductors that are too old are turned away,
    /// and hosts note under which cluster version they registered.
    pub const FINALIZE_UPGRADE: Self = Self(3);

    /// From here on a migration keeps which hosts refused it and why.
    pub const RECORDED_REFUSALS: Self = Self(3);
    /// From here on a host may come back smaller than its guests; those that do not fit are
    /// marked. Before, such a host keeps its old shape and takes nothing new.
    pub const SMALLER_HOSTS: Self = Self(3);

    /// From here on hosts have persistent memory for guests, and agents erase it after them. An
    /// older agent reports none.
    pub const PMEM: Self = Self(3);

    /// From here on an agent may promise to stop its guests by itself when it does not report.
    pub const SELF_FENCE: Self = Self(3);

    /// From here on the policy sets how far memory is over-committed, what headroom is kept for
    /// failures and when guests are balanced.
    pub const MEMORY_POLICY: Self = Self(3);

    /// From here on hosts have regions of persistent memory for volumes. Before, what an agent
    /// reports of them is left out.
    pub const VOLUMES: Self = Self(3);

    /// From here on the state records the outcome of a request, so that a repeated one gets the
    /// outcome as it was. Before, it records what the outcome was about.
    pub const RECORDED_OUTCOMES: Self = Self(4);

    /// From here on the state has keys with which grants are signed, conductors pass grants to agents,
    /// and agents refuse calls without one.
    pub const GRANTS: Self = Self(4);

    /// From here on certificates can be revoked.
    pub const REVOCATION: Self = Self(4);

    /// From here on VMs, flavors, volumes, server groups and operations record their project and
    /// their creator.
    pub const OWNERSHIP: Self = Self(4);

    /// From here on members of an affinity group are evacuated from a dead host one after the other, and
    /// a group says since when it is separated. Before, two of them cannot leave it.
    pub const SEPARATED_GROUPS: Self = Self(4);

    /// From here on a comparison lifts no fence if it is from before the fence, or from before a claim on
    /// the fenced host was released.
    pub const LATER_COMPARISONS: Self = Self(4);

    /// From here on drains are operations. Before, a drain is a stream of a conductor.
    pub const DRAINS: Self = Self(4);

    /// From here on the state records which custom names only reports of hosts brought, and removes
    /// them with the last provider that has them. Before, they stay.
    pub const REPORTED_NAMES: Self = Self(4);

    /// From here on agents check their hosts when a conductor calls them to.
    pub const HOST_CHECK: Self = Self(4);

    /// From here on the limits of [`crate::bound`] are enforced. Before, an older member would carry
    /// out what a newer one refuses.
    pub const BOUNDED_RECORDS: Self = Self(4);

    /// From here on the policy sets how far shared CPUs are over-committed, and how many are reserved.
    pub const CPU_POLICY: Self = Self(4);

    /// From here on VMs have a policy of when they are started again by themselves, and agents report
    /// which guests shut themselves down.
    pub const RESTART_POLICY: Self = Self(4);

    /// From here on the policy sets when members that do not answer are removed.
    pub const DEAD_MEMBER_POLICY: Self = Self(4);

    /// From here on an evacuation starts no guest whose host has reported since it began.
    pub const EVACUATION_PROOF: Self = Self(4);

    /// From here on a cluster can recover: agents report all of their guests then.
    pub const RECOVERY: Self = Self(4);

    /// From here on guests are given user-data, a network configuration and SSH keys for their first boot.
    pub const FIRST_BOOT: Self = Self(4);

    /// From here on agents report what their hypervisors offer as a CPU, and claims record with which one
    /// a guest is started. An older agent starts it with another.
    pub const CPU_MODELS: Self = Self(4);

    /// From here on users type on the consoles of guests.
    pub const CONSOLE_INPUT: Self = Self(4);
    /// From here on VMs have labels, a description and a protection from deletion.
    pub const VM_METADATA: Self = Self(4);
    /// From here on the cluster has images, and agents fetch them from each other.
    pub const IMAGES: Self = Self(4);
    /// From here on the cluster has networks, and agents report which physical networks they reach.
    pub const NETWORKS: Self = Self(4);

    /// Returns the version of a number on the wire; without one it is the oldest.
    #[must_use]
    pub fn from_wire(number: u32) -> Self {
        Self(number).max(Self::OLDEST)
    }

    /// Returns whether a process of this version can do its part of a feature.
    #[must_use]
    pub fn can(self, feature: Feature) -> bool {
        self >= feature.needs()
    }
}

impl fmt::Display for ServiceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What needs a service version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Moving a running guest with a NUMA topology or PCI functions.
    NumaLiveMigration,
    /// A guest whose PCI functions are to be on its sockets.
    SocketPolicy,
    /// A guest with dedicated and shared CPUs.
    MixedCpus,
    /// Stopping, starting and rebooting.
    VmPower,
    /// Moving a running guest whose disks the hypervisor copies.
    DiskCopy,
    /// Moving a running guest with persistent memory.
    PmemLiveMigration,
    /// A guest in a server group or an availability zone.
    SchedulingHints,
    /// Raising the cluster version, and forgetting conductors.
    FinalizeUpgrade,
    /// Moving a guest that is off together with its disks.
    DiskFetch,
    /// Setting how far memory is over-committed, what headroom is kept and when guests are
    /// balanced.
    MemoryPolicy,
    /// Volumes of persistent memory.
    Volumes,
    /// Naming the project of a guest.
    Projects,
    /// Setting how far shared CPUs are over-committed.
    CpuPolicy,
    /// Starting VMs again by themselves.
    RestartPolicy,
    /// Setting when members that do not answer are removed.
    DeadMemberPolicy,
    /// Giving a guest something for its first boot.
    FirstBoot,
    /// A guest whose CPU is chosen or recorded.
    CpuModels,
    /// Typing on the console of a guest.
    ConsoleInput,
    /// Labels, a description and the protection of a VM.
    VmMetadata,
    /// Images of the cluster.
    Images,
    /// Networks of the cluster.
    Networks,
}

/// Who must be new enough for a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The agents that a guest moves between.
    Pair,
    /// The agent of the host that a guest is on or comes to.
    Host,
    /// The called conductor.
    Conductor,
    /// All scheduler members and conductors: the cluster version.
    Cluster,
}

impl Feature {
    /// All of them, in the order in which they are documented.
    pub const ALL: [Self; 21] = [
        Self::NumaLiveMigration,
        Self::SocketPolicy,
        Self::MixedCpus,
        Self::VmPower,
        Self::DiskCopy,
        Self::PmemLiveMigration,
        Self::SchedulingHints,
        Self::FinalizeUpgrade,
        Self::DiskFetch,
        Self::MemoryPolicy,
        Self::Volumes,
        Self::Projects,
        Self::CpuPolicy,
        Self::RestartPolicy,
        Self::DeadMemberPolicy,
        Self::FirstBoot,
        Self::CpuModels,
        Self::ConsoleInput,
        Self::VmMetadata,
        Self::Images,
        Self::Networks,
    ];

    /// Returns what people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NumaLiveMigration => "live migration with a NUMA topology or PCI functions",
            Self::SocketPolicy => "PCI policy `socket`",
            Self::MixedCpus => "mixed CPUs",
            Self::VmPower => "stop, start, reboot, rebuild, snapshot, cold migration, shelving",
            Self::DiskCopy => "live migration that copies disks",
            Self::PmemLiveMigration => "live migration with persistent memory",
            Self::SchedulingHints => "server group or availability zone of a new guest",
            Self::FinalizeUpgrade => "raising the cluster version, forgetting a conductor",
            Self::DiskFetch => "cold migration that copies disks",
            Self::MemoryPolicy => "policies of memory, failover and balancing",
            Self::Volumes => "volumes of persistent memory",
            Self::Projects => "project of a new guest",
            Self::CpuPolicy => "policy of shared CPUs",
            Self::RestartPolicy => "restart policy of a VM",
            Self::DeadMemberPolicy => "policy of members that do not answer",
            Self::CpuModels => "CPU model of a guest",
            Self::ConsoleInput => "typing on the console of a guest",
            Self::VmMetadata => "labels, description and protection of a VM",
            Self::Images => "images of the cluster",
            Self::Networks => "networks of the cluster",
            Self::FirstBoot => "user-data, network configuration and SSH keys of a new guest",
        }
    }

    /// Returns the version that it needs.
    #[must_use]
    pub fn needs(self) -> ServiceVersion {
        match self {
            Self::NumaLiveMigration => ServiceVersion::NUMA_LIVE_MIGRATION,
            Self::SocketPolicy => ServiceVersion::SOCKET_PCI_AFFINITY,
            Self::MixedCpus => ServiceVersion(2),
            Self::VmPower => ServiceVersion::VM_POWER,
            Self::DiskCopy | Self::SchedulingHints => ServiceVersion(3),
            Self::FinalizeUpgrade => ServiceVersion::FINALIZE_UPGRADE,
            Self::PmemLiveMigration => ServiceVersion::PMEM,
            Self::DiskFetch => ServiceVersion::DISK_FETCH,
            Self::MemoryPolicy => ServiceVersion::MEMORY_POLICY,
            Self::Volumes => ServiceVersion::VOLUMES,
            Self::Projects => ServiceVersion::OWNERSHIP,
            Self::CpuPolicy => ServiceVersion::CPU_POLICY,
            Self::RestartPolicy => ServiceVersion::RESTART_POLICY,
            Self::DeadMemberPolicy => ServiceVersion::DEAD_MEMBER_POLICY,
            Self::FirstBoot => ServiceVersion::FIRST_BOOT,
            Self::CpuModels => ServiceVersion::CPU_MODELS,
            Self::ConsoleInput => ServiceVersion::CONSOLE_INPUT,
            Self::VmMetadata => ServiceVersion::VM_METADATA,
            Self::Images => ServiceVersion::IMAGES,
            Self::Networks => ServiceVersion::NETWORKS,
        }
    }

    /// Returns who needs it.
    #[must_use]
    pub fn scope(self) -> Scope {
        match self {
            Self::NumaLiveMigration
            | Self::DiskCopy
            | Self::PmemLiveMigration
            | Self::DiskFetch => Scope::Pair,
            Self::SocketPolicy
            | Self::MixedCpus
            | Self::VmPower
            | Self::FirstBoot
            | Self::CpuModels
            | Self::ConsoleInput => Scope::Host,
            Self::SchedulingHints | Self::Projects => Scope::Conductor,
            Self::FinalizeUpgrade
            | Self::MemoryPolicy
            | Self::Volumes
            | Self::CpuPolicy
            | Self::RestartPolicy
            | Self::DeadMemberPolicy
            | Self::VmMetadata
            | Self::Images
            | Self::Networks => Scope::Cluster,
        }
    }

    /// Checks whether the agent of a host can do its part.
    ///
    /// # Errors
    ///
    /// It is too old.
    pub fn gate_host(self, version: ServiceVersion) -> Result<(), TooOld> {
        if version.can(self) {
            return Ok(());
        }
        Err(TooOld {
            feature: self,
            version,
        })
    }

    /// Checks whether two agents can do it together.
    ///
    /// # Errors
    ///
    /// The side that is too old.
    pub fn gate_pair(
        self,
        source: ServiceVersion,
        destination: ServiceVersion,
    ) -> Result<(), Refusal> {
        let side = match (source.can(self), destination.can(self)) {
            (true, true) => return Ok(()),
            (false, false) => "source and destination are",
            (false, true) => "the source is",
            (true, false) => "the destination is",
        };
        let needed = self.needs();
        Err(Refusal::new(
            Code::FailedPrecondition,
            TOO_OLD,
            format!(
                "{self}: {side} too old (service versions {source} and {destination}, needed \
                 {needed})"
            ),
        )
        .with("source_version", source)
        .with("destination_version", destination)
        .with("needed_version", needed)
        .with_hint("upgrade the compute agents of both hosts"))
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pair => "both agents",
            Self::Host => "the host's agent",
            Self::Conductor => "the conductor",
            Self::Cluster => "the cluster version",
        })
    }
}

/// A process that is too old for a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld {
    /// What it cannot do.
    pub feature: Feature,
    /// What it is.
    pub version: ServiceVersion,
}

impl fmt::Display for TooOld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { feature, version } = self;
        let needed = feature.needs();
        write!(f, "service version {version}, {feature} needs {needed}")
    }
}

impl TooOld {
    /// Returns the refusal for the agent of a host.
    #[must_use]
    pub fn of_agent(self, host: &HostName) -> Refusal {
        let Self { feature, version } = self;
        let needed = feature.needs();
        Refusal::new(
            Code::FailedPrecondition,
            TOO_OLD,
            format!(
                "the compute agent of host {host} is too old for {feature} (service version {version}, \
                 needed {needed})"
            ),
        )
        .with("host", host)
        .with("version", version)
        .with("needed_version", needed)
        .with_hint(format!("upgrade the compute agent of host {host}"))
    }
}

/// Refuses to move a guest with an exact demand (a topology, PCI functions) between agents of which
/// one is too old to carry what answers them. Other guests are not gated.
///
/// # Errors
///
/// The side that is too old.
pub fn live_migration_gate(
    guest_is_exact: bool,
    source: ServiceVersion,
    destination: ServiceVersion,
) -> Result<(), Refusal> {
    if !guest_is_exact {
        return Ok(());
    }
    Feature::NumaLiveMigration.gate_pair(source, destination)
}

/// Refuses to stop, start, rebuild or snapshot a guest whose host's agent is too old for it.
///
/// # Errors
///
/// Names the host, its version and the one that is needed.
pub fn power_gate(host: &HostName, version: ServiceVersion) -> Result<(), Refusal> {
    let needed = ServiceVersion::VM_POWER;
    if version >= needed {
        return Ok(());
    }
    Err(Refusal::new(
        Code::FailedPrecondition,
        TOO_OLD,
        format!(
            "the compute agent of host {host} is too old to stop, start, rebuild or snapshot a \
             VM (service version {version}, needed {needed})"
        ),
    )
    .with("host", host)
    .with("version", version)
    .with("needed_version", needed)
    .with_hint(format!("upgrade the compute agent of host {host}")))
}

/// The reason of a refusal for an agent that is too old.
pub const TOO_OLD: &str = "SERVICE_VERSION_TOO_OLD";

/// The reason of a refusal of what the cluster version does not know yet.
pub const CLUSTER_TOO_OLD: &str = "CLUSTER_VERSION_TOO_OLD";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_power_calls_is_named_with_the_way_out() {
        let host = HostName::new("h1").unwrap();
        assert_eq!(power_gate(&host, ServiceVersion::VM_POWER), Ok(()));
        let refusal = power_gate(&host, ServiceVersion(2)).unwrap_err();
        assert_eq!(refusal.reason, TOO_OLD);
        assert_eq!(refusal.metadata["host"], "h1");
        assert!(refusal.hint.is_some_and(|h| h.contains("h1")));
    }

    /// Goal: both sides are gated, and only for guests with a topology. Method: all combinations.
    #[test]
    fn the_gate_looks_at_both_sides() {
        for source in 1..=3 {
            for destination in 1..=3 {
                let (old, new) = (ServiceVersion(source), ServiceVersion(destination));
                assert!(live_migration_gate(false, old, new).is_ok());
                let result = live_migration_gate(true, old, new);
                assert_eq!(result.is_ok(), source >= 2 && destination >= 2);
                if let Err(refusal) = result {
                    assert_eq!(refusal.reason, TOO_OLD);
                    assert_eq!(refusal.message.contains("source"), source < 2);
                    assert_eq!(refusal.message.contains("destination"), destination < 2);
                }
            }
        }
    }

    /// Goal: the documented table is the true one. Method: the rows of `docs/upgrades.md` between
    /// its marks, in the order of [`Feature::ALL`].
    #[test]
    fn the_documented_features_are_these() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/upgrades.md");
        let text = std::fs::read_to_string(path).expect("the document is there");
        let rows = text
            .lines()
            .skip_while(|line| !line.starts_with("| feature |"));
        let rows: Vec<&str> = rows.skip(2).take_while(|l| l.starts_with('|')).collect();
        let expected = Feature::ALL
            .map(|feature| format!("| {feature} | {} | {} |", feature.needs(), feature.scope()));
        assert_eq!(rows, expected);
    }

    /// Goal: no feature needs what no build speaks.
    #[test]
    fn every_feature_needs_a_version_that_there_is() {
        for feature in Feature::ALL {
            let needed = feature.needs();
            assert!((ServiceVersion::OLDEST..=ServiceVersion::CURRENT).contains(&needed));
        }
    }
}
