//! Which rule a host breaks, for programs and as text for people.

use std::borrow::Cow;
use std::fmt;

use crate::cpu_model::CpuMismatch;
use crate::cpu_set::CpuSet;
use crate::inventory::Excess;
use crate::name::{HostName, ServerGroupName, VolumeId, ZoneName};
use crate::network::NetworkMismatch;
use crate::numa::FitRefusal;
use crate::refusal::{Code, HostRefusal, Missing, Refusal};
use crate::resource::{ResourceClass, Trait};
use crate::version::{ServiceVersion, TOO_OLD, TooOld};

/// Which rule a host breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The guest runs there already.
    SameHost,
    /// Its agent refused the guest before, in the same operation.
    Excluded,
    /// Its agent does not report.
    Down,
    /// An operator cordoned it.
    Cordoned,
    /// Its agent reports a shape that its guests do not fit.
    ShapeRefused,
    /// It has another hypervisor driver than the host that the guest leaves.
    Driver {
        /// Where the guest runs.
        source: String,
        /// Here.
        destination: String,
    },
    /// An agent is too old to move a guest with a NUMA topology.
    Version {
        /// The host that the guest leaves.
        source_host: HostName,
        /// What its agent can do.
        source: ServiceVersion,
        /// What the agent here can do.
        destination: ServiceVersion,
    },
    /// Its agent is too old for what the guest needs of it.
    VersionHere {
        /// What the agent can do.
        here: ServiceVersion,
        /// What it would have to.
        needed: ServiceVersion,
    },
    /// It does not see the guest's disks.
    DisksNotShared {
        /// The storage where the guest runs.
        source: String,
        /// The storage here.
        destination: String,
    },
    /// It lacks a quality.
    TraitMissing(Trait),
    /// It has a forbidden quality.
    TraitForbidden(Trait),
    /// Its CPUs are for guests of one kind at a time.
    CpuKinds {
        /// Whether the guest is of both kinds itself.
        wants_both: bool,
        /// Whether guests with dedicated CPUs are there, rather than such whose vCPUs float.
        has_dedicated: bool,
    },
    /// It is another kind of machine than the guest's image requests, or reports none.
    Image {
        /// The property of the image.
        property: &'static str,
        /// The reports.
        requested: String,
        /// What the host is, if its agent reports it.
        actual: Option<String>,
    },
    /// It cannot give the guest its CPU.
    Cpu(CpuMismatch),
    /// It cannot give the guest a network.
    Network(NetworkMismatch),
    /// It is in another availability zone, or in none.
    Zone {
        /// The one that the guest requests.
        requested: ZoneName,
        /// Its own.
        actual: Option<ZoneName>,
    },
    /// No aggregate has the metadata that the flavor requires.
    Aggregate {
        /// The key of the metadata.
        key: String,
        /// The values that would do.
        requested: Vec<String>,
    },
    /// Other members of the guest's server group are elsewhere.
    Affinity {
        /// The group.
        group: ServerGroupName,
        /// Where they are; at most two hosts.
        hosts: Vec<HostName>,
        /// Whether an evacuation separated them.
        is_separated: bool,
    },
    /// It has enough members of the guest's server group.
    AntiAffinity {
        /// The group.
        group: ServerGroupName,
        /// How many others hold a claim here.
        members: u32,
        /// How many may.
        limit: u32,
    },
    /// It has too little of a counted resource; without an excess: nothing of that class at all.
    Capacity {
        /// The class.
        class: ResourceClass,
        /// The requested amount.
        requested: u64,
        /// The rule of the inventory.
        excess: Option<Excess>,
    },
    /// The guest's cells do not fit on its cells.
    Fit(FitRefusal),
    /// The claim does not count what the guest takes.
    Counted,
    /// The claim is for another CPU than the guest is given here.
    CpuNotGiven,
    /// It was fenced, and its agent has not come back clean.
    Fenced,
    /// Its agent has not reported its guests since the cluster recovered.
    Unreported,
    /// Guests that no claim is for hold what it would need.
    HeldByUnknown {
        /// Their names.
        guests: Vec<String>,
        /// The CPUs that they have for themselves.
        cpus: CpuSet,
    },
    /// Its agent is too old for the guest.
    Feature(TooOld),
    /// It has not the guest's volume.
    VolumeElsewhere {
        /// The volume.
        volume: VolumeId,
        /// Where it is; at most two hosts.
        hosts: Vec<HostName>,
    },
    /// It runs no guests: its agent has no hypervisor driver.
    NoGuests,
}

impl Violation {
    /// Returns the cause for programs.
    #[must_use]
    pub fn cause(&self) -> Cow<'static, str> {
        let cause = match self {
            Self::SameHost => "SAME_HOST",
            Self::Excluded => "HOST_EXCLUDED",
            Self::Down => "HOST_DOWN",
            Self::Cordoned => "HOST_CORDONED",
            Self::ShapeRefused => "HOST_SHAPE_REFUSED",
            Self::Driver { .. } => "DRIVER_DIFFERS",
            Self::Version { .. } | Self::VersionHere { .. } => TOO_OLD,
            Self::DisksNotShared { .. } => "DISKS_NOT_SHARED",
            Self::TraitMissing(_) => "TRAIT_MISSING",
            Self::TraitForbidden(_) => "TRAIT_FORBIDDEN",
            Self::CpuKinds { .. } => "CPU_KINDS",
            Self::Image { .. } => "IMAGE_PROPERTIES",
            Self::Cpu(mismatch) => mismatch.cause(),
            Self::Network(mismatch) => mismatch.cause(),
            Self::Zone { .. } => "AVAILABILITY_ZONE",
            Self::Aggregate { .. } => "AGGREGATE_METADATA",
            Self::Affinity { .. } => "AFFINITY",
            Self::AntiAffinity { .. } => "ANTI_AFFINITY",
            Self::Capacity { class, .. } => return format!("RESOURCE_{class}").into(),
            Self::Fit(refusal) => refusal.cause(),
            Self::Counted => "CLAIM_MISCOUNTED",
            Self::CpuNotGiven => "CLAIM_CPU_DIFFERS",
            Self::Fenced => "HOST_FENCED",
            Self::Unreported => "HOST_NOT_REPORTED",
            Self::HeldByUnknown { .. } => "HELD_BY_UNKNOWN_GUEST",
            Self::Feature(_) => TOO_OLD,
            Self::VolumeElsewhere { .. } => "VOLUME_ELSEWHERE",
            Self::NoGuests => "HOST_RUNS_NO_VMS",
        };
        cause.into()
    }

    /// Returns why the guest's cells do not fit, if that is the rule.
    #[must_use]
    pub fn fit(&self) -> Option<&FitRefusal> {
        if let Self::Fit(refusal) = self {
            Some(refusal)
        } else {
            None
        }
    }

    /// Returns whether the host could take the guest if others took less of it.
    #[must_use]
    pub fn is_lack_of_capacity(&self) -> bool {
        matches!(self, Self::Capacity { .. } | Self::Fit(_))
    }

    /// Returns how much is missing, where something countable is.
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        match self {
            Self::Capacity {
                class,
                requested,
                excess,
            } => Some(Missing {
                resource: class.to_string(),
                requested: *requested,
                available: excess.map_or(0, |e| e.amounts().1),
            }),
            Self::Fit(refusal) => refusal.missing(),
            Self::SameHost
            | Self::Excluded
            | Self::Down
            | Self::Cordoned
            | Self::ShapeRefused
            | Self::Driver { .. }
            | Self::Version { .. }
            | Self::VersionHere { .. }
            | Self::DisksNotShared { .. }
            | Self::TraitMissing(_)
            | Self::TraitForbidden(_)
            | Self::CpuKinds { .. }
            | Self::Image { .. }
            | Self::Cpu(_)
            | Self::Network(_)
            | Self::Zone { .. }
            | Self::Aggregate { .. }
            | Self::Affinity { .. }
            | Self::AntiAffinity { .. }
            | Self::Counted
            | Self::CpuNotGiven
            | Self::Fenced
            | Self::Unreported
            | Self::HeldByUnknown { .. }
            | Self::Feature(_)
            | Self::VolumeElsewhere { .. }
            | Self::NoGuests => None,
        }
    }

    /// Returns how far the host is from taking the guest; less is nearer. Lack of capacity comes
    /// before anything else, since it changes by itself.
    #[must_use]
    pub fn distance(&self) -> (u32, u32, usize, u64) {
        match self {
            Self::Fit(refusal) => {
                let (kind, count, milli) = refusal.distance();
                (0, kind, count, milli)
            }
            Self::Capacity {
                requested, excess, ..
            } => {
                let available = excess.map_or(0, |e| e.amounts().1);
                let short = requested.saturating_sub(available).saturating_mul(1000);
                (
                    0,
                    u32::from(excess.is_none()),
                    1,
                    short / (*requested).max(1),
                )
            }
            Self::Cordoned => (1, 0, 0, 0),
            Self::Down => (1, 1, 0, 0),
            Self::ShapeRefused => (1, 2, 0, 0),
            Self::Fenced => (1, 4, 0, 0),
            Self::HeldByUnknown { .. } => (1, 5, 0, 0),
            Self::Unreported => (1, 6, 0, 0),
            Self::CpuKinds { .. } => (1, 3, 0, 0),
            Self::TraitMissing(_) | Self::TraitForbidden(_) => (2, 0, 0, 0),
            Self::DisksNotShared { .. } => (2, 1, 0, 0),
            Self::Version { .. } | Self::VersionHere { .. } | Self::Feature(_) => (2, 2, 0, 0),
            Self::Driver { .. } => (2, 3, 0, 0),
            Self::Affinity { .. } | Self::AntiAffinity { .. } => (2, 4, 0, 0),
            Self::Aggregate { .. } => (2, 5, 0, 0),
            Self::Zone { .. } => (2, 6, 0, 0),
            Self::Image { .. } => (2, 7, 0, 0),
            Self::Cpu(_) => (2, 8, 0, 0),
            Self::Network(_) => (2, 9, 0, 0),
            Self::Counted | Self::CpuNotGiven => (3, 0, 0, 0),
            Self::Excluded => (3, 1, 0, 0),
            Self::VolumeElsewhere { .. } => (3, 2, 0, 0),
            Self::SameHost => (4, 0, 0, 0),
            Self::NoGuests => (5, 0, 0, 0),
        }
    }

    /// Returns the entry of this host in a list of refused hosts.
    #[must_use]
    pub fn to_host_refusal(&self, host: &HostName) -> HostRefusal {
        let fit = self.fit();
        HostRefusal {
            host: host.clone(),
            cause: self.cause().into_owned(),
            message: self.to_string(),
            guest_cell: fit.and_then(FitRefusal::guest_cell),
            host_cell: fit.and_then(FitRefusal::host_cell),
            missing: self.missing(),
        }
    }

    /// Returns the refusal of a guest for the sake of this host alone.
    #[must_use]
    pub fn to_refusal(&self, host: &HostName) -> Refusal {
        let cause = self.cause();
        let (code, reason) = match self {
            Self::Capacity { .. } | Self::Fit(_) => (Code::ResourceExhausted, "NO_VALID_HOST"),
            Self::Counted | Self::CpuNotGiven => (Code::Internal, &*cause),
            Self::SameHost
            | Self::Excluded
            | Self::Down
            | Self::Cordoned
            | Self::ShapeRefused
            | Self::Driver { .. }
            | Self::Version { .. }
            | Self::VersionHere { .. }
            | Self::DisksNotShared { .. }
            | Self::TraitMissing(_)
            | Self::TraitForbidden(_)
            | Self::CpuKinds { .. }
            | Self::Image { .. }
            | Self::Cpu(_)
            | Self::Network(_)
            | Self::Zone { .. }
            | Self::Aggregate { .. }
            | Self::Affinity { .. }
            | Self::AntiAffinity { .. }
            | Self::Fenced
            | Self::Unreported
            | Self::HeldByUnknown { .. }
            | Self::Feature(_)
            | Self::VolumeElsewhere { .. }
            | Self::NoGuests => (Code::FailedPrecondition, &*cause),
        };
        let mut refusal = Refusal::new(code, reason, format!("host {host}: {self}"));
        refusal.metadata.insert("host".to_owned(), host.to_string());
        refusal.causes.insert(cause.into_owned(), 1);
        refusal.hosts.push(self.to_host_refusal(host));
        refusal
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameHost => f.write_str("the guest runs here already"),
            Self::Excluded => f.write_str("its agent refused the guest before"),
            Self::Down => f.write_str("its agent is not heard of"),
            Self::Cordoned => f.write_str("an operator cordoned it"),
            Self::ShapeRefused => {
                f.write_str("its agent reports a shape that its guests do not fit")
            }
            Self::Driver {
                source,
                destination,
            } => write!(
                f,
                "its driver is {destination}, the guest runs under {source}"
            ),
            Self::VersionHere { here, needed } => write!(
                f,
                "its agent is too old to start a guest with the disks that it has (service \
                 version {here}, needed {needed})"
            ),
            Self::Version {
                source_host,
                source,
                destination,
            } => {
                let needed = ServiceVersion::NUMA_LIVE_MIGRATION;
                let too_old = [
                    (*destination, "its agent".to_owned()),
                    (*source, format!("the agent of source {source_host}")),
                ];
                let sides: Vec<String> = too_old
                    .into_iter()
                    .filter(|(version, _)| *version < needed)
                    .map(|(version, agent)| format!("{agent} is at service version {version}"))
                    .collect();
                write!(
                    f,
                    "{}, a guest with a NUMA topology or PCI functions needs {needed} on both sides \
                     to migrate",
                    sides.join(" and ")
                )
            }
            Self::DisksNotShared {
                source,
                destination,
            } => write!(
                f,
                "the guest has disks on storage {source:?}, this host has storage {destination:?}"
            ),
            Self::TraitMissing(quality) => write!(f, "it lacks trait {quality}"),
            Self::TraitForbidden(quality) => write!(f, "it has the forbidden trait {quality}"),
            Self::CpuKinds {
                wants_both: true, ..
            } => f.write_str(
                "its CPUs are for guests of one kind at a time, the guest wants dedicated CPUs and \
                 floats over others",
            ),
            Self::CpuKinds { has_dedicated, .. } => write!(
                f,
                "its CPUs are for guests of one kind at a time, and it has guests {}",
                if *has_dedicated {
                    "with dedicated CPUs"
                } else {
                    "whose vCPUs float"
                }
            ),
            Self::Image {
                property,
                requested,
                actual: Some(actual),
            } => write!(
                f,
                "the image asks for {property}={requested}, it has {actual}"
            ),
            Self::Image {
                property,
                requested,
                ..
            } => write!(
                f,
                "the image asks for {property}={requested}, and its agent does not say what it has"
            ),
            Self::Zone {
                requested,
                actual: Some(actual),
            } => write!(
                f,
                "it is in availability zone {actual}, the guest asks for {requested}"
            ),
            Self::Zone { requested, .. } => write!(
                f,
                "it is in no availability zone, the guest asks for {requested}"
            ),
            Self::Aggregate { key, requested } => write!(
                f,
                "none of its aggregates says {key}={}",
                requested.join(" or ")
            ),
            Self::Affinity {
                group,
                hosts,
                is_separated,
            } => {
                let names: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
                let names = names.join(" and ");
                match (hosts.len(), is_separated) {
                    (1, _) => write!(f, "the members of server group {group} are on host {names}"),
                    (_, true) => write!(
                        f,
                        "the members of server group {group} are on hosts {names}, since an \
                         evacuation separated it"
                    ),
                    (_, false) => write!(
                        f,
                        "a member of server group {group} moves between hosts {names}, and affinity \
                         waits for it"
                    ),
                }
            }
            Self::AntiAffinity {
                group,
                members,
                limit,
            } => {
                let plural = if *members == 1 { "" } else { "s" };
                write!(
                    f,
                    "it has {members} member{plural} of server group {group}, whose anti-affinity \
                     allows {limit} a host"
                )
            }
            Self::Capacity {
                class,
                excess: Some(excess),
                ..
            } => write!(f, "{class}: {excess}"),
            Self::Capacity {
                class, requested, ..
            } => write!(f, "{class}: it has none, {requested} are requested"),
            Self::Fit(refusal) => refusal.fmt(f),
            Self::Cpu(mismatch) => mismatch.fmt(f),
            Self::Network(mismatch) => mismatch.fmt(f),
            Self::Counted => f.write_str("the claim does not count what the guest takes"),
            Self::CpuNotGiven => {
                f.write_str("the claim is for another CPU than the guest is given here")
            }
            Self::Fenced => f.write_str("it was fenced, and has not come back clean"),
            Self::Unreported => {
                f.write_str("its agent has not reported its guests since the cluster recovered")
            }
            Self::HeldByUnknown { guests, cpus } => {
                let what = if cpus.is_empty() {
                    "pages or devices are".to_owned()
                } else {
                    format!("CPUs {cpus} are")
                };
                write!(
                    f,
                    "{what} held by unknown guest {}, for which there is no claim",
                    guests.join(", ")
                )
            }
            Self::Feature(old) => write!(f, "its agent is at {old}"),
            Self::NoGuests => f.write_str(
                "it runs no VMs: its agent has driver = \"none\" and is there for volumes",
            ),
            Self::VolumeElsewhere { volume, hosts } => {
                let names: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
                let plural = if names.len() == 1 { "" } else { "s" };
                write!(
                    f,
                    "volume {volume} is on host{plural} {}",
                    names.join(" and ")
                )
            }
        }
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an operator reads which agents to upgrade, be it one or both.
    #[test]
    fn every_agent_that_is_too_old_is_named() {
        let message = |source, destination| {
            let violation = Violation::Version {
                source_host: HostName::new("h1").unwrap(),
                source: ServiceVersion(source),
                destination: ServiceVersion(destination),
            };
            violation.to_string()
        };
        let rest =
            ", a guest with a NUMA topology or PCI functions needs 2 on both sides to migrate";
        let (source, destination) = (
            "the agent of source h1 is at service version 1",
            "its agent is at service version 1",
        );
        assert_eq!(message(2, 1), format!("{destination}{rest}"));
        assert_eq!(message(1, 2), format!("{source}{rest}"));
        assert_eq!(message(1, 1), format!("{destination} and {source}{rest}"));
    }
}
