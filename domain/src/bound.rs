//! How many records each role can make the replicated state hold, and how long they are at most.
//!
//! Not here: what a caller of a server may have under way, which is `berth-process`'s `bounds`; and
//! operators, who may create whatever they like.
//!
//! Invariant: every record that a request of another role creates or makes longer has a row in
//! [`BOUNDS`]. Tests of the scheduler compare the rows with the methods of each role, with hostile
//! repeats of each, and with `docs/security.md`.

use std::fmt;

use crate::image::IMAGES_MAX;
use crate::reality::UNKNOWN_MAX;
use crate::volume::{FAILED_MAX, HOST_VOLUMES_MAX, REGIONS_MAX, REPLICAS_MAX, VOLUMES_MAX};

/// The most custom traits and classes of persistent memory of one host together. Hosts have some twenty
/// custom traits and a handful of classes.
pub const REPORTED_NAMES_MAX: usize = 256;

/// The most bytes that the report of a host takes. One of 1,024 CPUs and 4,096 PCI functions takes a
/// megabyte.
pub const REPORT_BYTES_MAX: u64 = 4 << 20;

/// The most VMs of a cluster of however many hosts, shelved and failed ones included: three times as many
/// as 10,000 hosts run. Smaller clusters may have fewer: see [`vms_max`].
pub const VMS_MAX: usize = 1_000_000;

/// How many VMs a cluster may have however few hosts it has.
pub const VMS_OF_FEW_HOSTS: usize = 100_000;

/// How many VMs a cluster may have for each of its hosts. Hosts run some 34, and those that are shelved
/// or failed to boot count too.
pub const VMS_PER_HOST: usize = 100;

/// How many operations that are done, and how many migrations that have ended, are remembered, each.
pub const ENDED_MAX: usize = 1_000;

/// How many entries the log of an operation holds.
pub const LOG_MAX: usize = 128;

/// How many entries the audit holds.
pub const AUDIT_MAX: usize = 16_384;

/// How many requests are remembered.
pub const REMEMBERED_MAX: usize = 131_072;

/// How many bytes the remembered outcomes have together; the newest alone may have more.
pub const OUTCOMES_BYTES_MAX: u64 = 64 << 20;

/// Returns how many VMs a cluster of so many hosts may have. Hosts come with certificates of their own, so
/// that a conductor cannot make a small cluster hold what only a large one has the memory for.
#[must_use]
pub fn vms_max(hosts: usize) -> usize {
    let by_hosts = hosts.saturating_mul(VMS_PER_HOST);
    by_hosts.clamp(VMS_OF_FEW_HOSTS, VMS_MAX)
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// A kind of record, as far as others than operators create it or make it longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    /// A host, with its report and what its agent observed.
    Host,
    /// A resource provider of a host or of one of its regions.
    Provider,
    /// A custom trait or resource class.
    Name,
    /// A volume.
    Volume,
    /// What a volume takes of its regions.
    Consumer,
    /// A conductor.
    Conductor,
    /// A VM.
    Vm,
    /// A claim.
    Claim,
    /// An operation with its log.
    Operation,
    /// A migration.
    Migration,
    /// A remembered request with its outcome.
    Request,
    /// An entry of the audit.
    AuditEntry,
    /// The guests that a host reports while the cluster recovers.
    RecoveredHost,
    /// An image.
    Image,
}

/// Whose records a bound counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Those of one host.
    Host,
    /// Those of one conductor.
    Conductor,
    /// All of them.
    Cluster,
}

/// What happens to one record more than there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Excess {
    /// The request is refused with this reason.
    Refused(&'static str),
    /// It replaces the record of before.
    Replaces,
    /// It exists only as long as another record of the table.
    Follows,
    /// The oldest one is dropped.
    DropsOldest,
}

/// How long records are at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// Each of them.
    Each(usize),
    /// All of them together, beside their names; the newest alone may be longer.
    Together(u64),
}

/// How much of one kind of record a role can make the state hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The role, as in a certificate; `everybody` for every role.
    pub role: &'static str,
    /// The kind.
    pub record: Record,
    /// Whose records are counted.
    pub scope: Scope,
    /// How many it can create at most; none where it only makes existing ones longer.
    pub count: usize,
    /// How long they are at most, as they are stored.
    pub bytes: Bytes,
    /// The methods that create it or make it longer.
    pub methods: &'static [&'static str],
    /// What happens to one more.
    pub excess: Excess,
}

/// How long a VM is at most, with a flavor, an image and devices as long as each may be.
const VM_BYTES_MAX: usize = 512 * KIB;

/// The same of a host: its report, one more message for its unknown domains, and what is fixed.
const HOST_BYTES_MAX: usize = 8 * MIB + UNKNOWN_MAX * KIB + FAILED_MAX * KIB;

/// The same of the provider of a host: all standard traits, and the names that the host brings.
const PROVIDER_BYTES_MAX: usize = 256 * KIB;

const VOLUME_METHODS: &[&str] = &[
    "berth.volume.v1.VolumeService/CreateVolume",
    "berth.volume.v1.VolumeService/DeleteVolume",
    "berth.volume.v1.VolumeService/ReportVolumes",
];

const CSI_METHODS: &[&str] = &[
    "berth.volume.v1.VolumeService/CreateVolume",
    "berth.volume.v1.VolumeService/DeleteVolume",
];

/// Every method that begins or continues an operation, and so writes the operation, its VM, its claims
/// and its migration. What opens a console writes none of these, only what every change writes.
const OPERATION_METHODS: &[&str] = &[
    "berth.operation.v1.OperationService/Advance",
    "berth.operation.v1.OperationService/CancelOperation",
    "berth.operation.v1.OperationService/ForceCompleteOperation",
    "berth.operation.v1.OperationService/RenewLeases",
    "berth.operation.v1.OperationService/TakeLease",
    "berth.scheduler.v1.MoveService/BeginDrain",
    "berth.scheduler.v1.MoveService/BeginRevertResize",
    "berth.scheduler.v1.MoveService/BeginShelve",
    "berth.scheduler.v1.MoveService/ConfirmResize",
    "berth.scheduler.v1.MoveService/MoveDrained",
    "berth.scheduler.v1.MoveService/RecordDrained",
    "berth.scheduler.v1.MoveService/ScheduleMove",
    "berth.scheduler.v1.MoveService/ScheduleUnshelve",
    "berth.scheduler.v1.PowerService/BeginPower",
    "berth.scheduler.v1.PowerService/OpenConsole",
    "berth.scheduler.v1.SchedulerService/BeginDelete",
    "berth.scheduler.v1.SchedulerService/ScheduleMigration",
    "berth.scheduler.v1.SchedulerService/ScheduleNext",
    "berth.scheduler.v1.SchedulerService/ScheduleVm",
];

/// Every bound, role by role.
pub const BOUNDS: &[Bound] = &[
    Bound {
        role: "agent",
        record: Record::Host,
        scope: Scope::Host,
        count: 1,
        bytes: Bytes::Each(HOST_BYTES_MAX),
        methods: &[
            "berth.host.v1.HostService/RegisterHost",
            "berth.host.v1.HostService/ReportHost",
            "berth.host.v1.HostService/CompareDomains",
            "berth.volume.v1.VolumeService/ReportVolumes",
        ],
        excess: Excess::Replaces,
    },
    Bound {
        role: "agent",
        record: Record::RecoveredHost,
        scope: Scope::Host,
        count: 1,
        // As long as a message.
        bytes: Bytes::Each(5 * MIB),
        methods: &["berth.host.v1.HostService/ReportGuests"],
        excess: Excess::Replaces,
    },
    Bound {
        role: "agent",
        record: Record::Provider,
        scope: Scope::Host,
        count: 1 + REGIONS_MAX,
        bytes: Bytes::Each(PROVIDER_BYTES_MAX),
        methods: &["berth.host.v1.HostService/RegisterHost"],
        excess: Excess::Refused("INVALID_HOST_REPORT"),
    },
    Bound {
        role: "agent",
        record: Record::Name,
        scope: Scope::Host,
        count: REPORTED_NAMES_MAX + 1,
        bytes: Bytes::Each(KIB),
        methods: &["berth.host.v1.HostService/RegisterHost"],
        excess: Excess::Refused("TOO_MANY_REPORTED_NAMES"),
    },
    Bound {
        role: "agent",
        record: Record::Volume,
        scope: Scope::Host,
        count: HOST_VOLUMES_MAX,
        bytes: Bytes::Each(2 * KIB),
        methods: VOLUME_METHODS,
        excess: Excess::Refused("TOO_MANY_VOLUMES"),
    },
    Bound {
        role: "agent",
        record: Record::Consumer,
        scope: Scope::Host,
        count: HOST_VOLUMES_MAX,
        bytes: Bytes::Each(KIB),
        methods: VOLUME_METHODS,
        excess: Excess::Follows,
    },
    Bound {
        role: "agent",
        record: Record::Claim,
        scope: Scope::Host,
        count: 0,
        // The failures of erasures of its namespaces.
        bytes: Bytes::Each(MIB),
        methods: &["berth.host.v1.HostService/ReportErasures"],
        excess: Excess::Follows,
    },
    Bound {
        role: "agent",
        record: Record::Vm,
        scope: Scope::Host,
        count: 0,
        // What is wrong with a guest that should run.
        bytes: Bytes::Each(VM_BYTES_MAX),
        methods: &["berth.host.v1.HostService/CompareDomains"],
        excess: Excess::Follows,
    },
    Bound {
        role: "csi-controller",
        record: Record::Volume,
        scope: Scope::Cluster,
        count: VOLUMES_MAX,
        bytes: Bytes::Each(REPLICAS_MAX * KIB),
        methods: CSI_METHODS,
        excess: Excess::Refused("TOO_MANY_VOLUMES"),
    },
    Bound {
        role: "csi-controller",
        record: Record::Consumer,
        scope: Scope::Cluster,
        count: VOLUMES_MAX,
        bytes: Bytes::Each(REPLICAS_MAX * KIB),
        methods: CSI_METHODS,
        excess: Excess::Follows,
    },
    Bound {
        role: "csi-controller",
        record: Record::Provider,
        scope: Scope::Cluster,
        count: 0,
        // Whether a region is open for more.
        bytes: Bytes::Each(PROVIDER_BYTES_MAX),
        methods: CSI_METHODS,
        excess: Excess::Follows,
    },
    Bound {
        role: "conductor",
        record: Record::Conductor,
        scope: Scope::Conductor,
        count: 1,
        bytes: Bytes::Each(2 * KIB),
        methods: &["berth.cluster.v1.ClusterService/RegisterService"],
        excess: Excess::Replaces,
    },
    Bound {
        role: "conductor",
        record: Record::Host,
        scope: Scope::Host,
        count: 0,
        // The output of the fence command is in it.
        bytes: Bytes::Each(HOST_BYTES_MAX),
        methods: &[
            "berth.host.v1.HostService/CordonHost",
            "berth.host.v1.HostService/FenceHost",
        ],
        excess: Excess::Replaces,
    },
    Bound {
        role: "conductor",
        record: Record::Provider,
        scope: Scope::Cluster,
        count: 0,
        // Its generation.
        bytes: Bytes::Each(PROVIDER_BYTES_MAX),
        methods: OPERATION_METHODS,
        excess: Excess::Follows,
    },
    Bound {
        role: "conductor",
        record: Record::Vm,
        scope: Scope::Cluster,
        count: VMS_MAX,
        bytes: Bytes::Each(VM_BYTES_MAX),
        methods: OPERATION_METHODS,
        excess: Excess::Refused("TOO_MANY_VMS"),
    },
    Bound {
        role: "conductor",
        record: Record::Claim,
        scope: Scope::Cluster,
        count: 2 * VMS_MAX,
        bytes: Bytes::Each(MIB),
        methods: OPERATION_METHODS,
        excess: Excess::Follows,
    },
    Bound {
        role: "conductor",
        record: Record::Operation,
        scope: Scope::Cluster,
        // One works on each VM, and one drains each host that has VMs.
        count: 2 * VMS_MAX + ENDED_MAX,
        // The log and the hosts that refused; or the VMs of a host, with the places of a plan that is as
        // long as a request.
        bytes: Bytes::Each(6 * MIB),
        methods: OPERATION_METHODS,
        excess: Excess::DropsOldest,
    },
    Bound {
        role: "conductor",
        record: Record::Migration,
        scope: Scope::Cluster,
        count: VMS_MAX + ENDED_MAX,
        bytes: Bytes::Each(MIB),
        methods: OPERATION_METHODS,
        excess: Excess::DropsOldest,
    },
    Bound {
        role: "conductor",
        record: Record::Image,
        scope: Scope::Cluster,
        count: IMAGES_MAX,
        // Its properties, and the hosts that have it.
        bytes: Bytes::Each(256 * KIB),
        methods: &[
            "berth.image.v1.ImageService/CompleteImage",
            "berth.image.v1.ImageService/CreateImage",
            "berth.image.v1.ImageService/DeleteImage",
            "berth.image.v1.ImageService/SetImageCopy",
        ],
        excess: Excess::Refused("TOO_MANY_IMAGES"),
    },
    Bound {
        role: "everybody",
        record: Record::Request,
        scope: Scope::Cluster,
        count: REMEMBERED_MAX,
        bytes: Bytes::Together(OUTCOMES_BYTES_MAX),
        methods: &[],
        excess: Excess::DropsOldest,
    },
    Bound {
        role: "everybody",
        record: Record::AuditEntry,
        scope: Scope::Cluster,
        count: AUDIT_MAX,
        bytes: Bytes::Each(16 * KIB),
        methods: &[],
        excess: Excess::DropsOldest,
    },
];

impl Record {
    /// Returns what the document calls it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "record of a host",
            Self::Provider => "resource providers of a host and its regions",
            Self::Name => "custom traits and resource classes",
            Self::Volume => "volumes",
            Self::Consumer => "what volumes take of regions",
            Self::Conductor => "registration",
            Self::Vm => "VMs",
            Self::Claim => "claims",
            Self::Operation => "operations with their logs",
            Self::Migration => "migrations",
            Self::Request => "remembered requests with their outcomes",
            Self::AuditEntry => "entries of the audit",
            Self::Image => "images",
            Self::RecoveredHost => "guests reported while the cluster recovers",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "its host",
            Self::Conductor => "itself",
            Self::Cluster => "the cluster",
        })
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "`{reason}`"),
            Self::Replaces => f.write_str("replaces it"),
            Self::Follows => f.write_str("comes and goes with the record that it belongs to"),
            Self::DropsOldest => f.write_str("drops the oldest"),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each(bytes) => write!(f, "{}", Size(*bytes as u64)),
            Self::Together(bytes) => write!(f, "{} together", Size(*bytes)),
        }
    }
}

/// A length in the greatest unit of which it is a multiple.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        match self.0 {
            bytes if bytes.is_multiple_of(MIB) => write!(f, "{} MiB", bytes / MIB),
            bytes if bytes.is_multiple_of(1024) => write!(f, "{} KiB", grouped(bytes / 1024)),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

/// Writes a number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the table as `docs/security.md` shows it.
#[must_use]
pub fn markdown() -> String {
    let mut text =
        "| role | what | of | at most | bytes of each | one more |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for bound in BOUNDS {
        let Bound {
            role,
            record,
            scope,
            count,
            bytes,
            methods: _,
            excess,
        } = bound;
        let (record, count) = (record.as_str(), count_of(*count));
        text += &format!("| {role} | {record} | {scope} | {count} | {bytes} | {excess} |\n");
    }
    text
}

fn count_of(count: usize) -> String {
    match count {
        0 => "existing ones".to_owned(),
        count => grouped(count as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the document shows the table. Method: it holds the table as it is rendered here.
    #[test]
    fn the_document_shows_the_bounds() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");
        let text = std::fs::read_to_string(path).expect("the document is there");
        let table = markdown();
        assert!(
            text.contains(&table),
            "docs/security.md must hold:\n{table}"
        );
    }

    #[test]
    fn vms_are_bounded_by_hosts_between_two_fixed_numbers() {
        for (hosts, max) in [
            (0, 100_000),
            (1_000, 100_000),
            (1_001, 100_100),
            (10_000, 1_000_000),
            (usize::MAX, 1_000_000),
        ] {
            assert_eq!(vms_max(hosts), max, "{hosts} hosts");
        }
    }
}
