//! The transfer of a running guest's memory and disks: how it may be done, and how far it is.
//!
//! Not here: whether the guest may go at all (the scheduler), and where it is in the end (the two
//! hypervisors).
//!
//! Invariant: a [`TransferPolicy`] that is not set is the one that every agent applies without
//! an instruction.

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::name::HostName;
use crate::refusal::Refusal;
use crate::vm::VmSpec;

/// The most that can be set as bandwidth, in MiB/s.
pub const BANDWIDTH_MIB_PER_S_MAX: u32 = 1_000_000;
/// The longest stand-still that can be requested, in milliseconds: what QEMU takes.
pub const DOWNTIME_MS_MAX: u32 = 2_000_000;
/// The longest time that a transfer can be given, in milliseconds: a week.
pub const TIMEOUT_MS_MAX: u64 = 7 * 24 * 3600 * 1000;
/// The shortest time that a transfer can be given, in milliseconds.
pub const TIMEOUT_MS_MIN: u64 = 1_000;
/// The most hosts that can be tried for one migration.
pub const HOSTS_TRIED_MAX: u32 = 16;
/// How many hosts are tried unless something else is set.
pub const HOSTS_TRIED_DEFAULT: u32 = 3;

/// What is done to a transfer that takes too long.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum TimeoutAction {
    /// It is stopped; the guest remains on the source.
    #[default]
    Abort,
    /// It is made to end: by post-copy where that is allowed, else with the guest standing still.
    ForceComplete,
    /// It is ended by post-copy; where that is not allowed, it is stopped.
    PostCopy,
}

impl TimeoutAction {
    /// All of them, for tables.
    pub const ALL: [Self; 3] = [Self::Abort, Self::ForceComplete, Self::PostCopy];

    /// Returns the word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::ForceComplete => "force-complete",
            Self::PostCopy => "post-copy",
        }
    }

    /// Reads the word for it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }
}

/// How a guest may be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransferPolicy {
    /// The most that it may take of the network; absent: what the source's agent is set up with.
    pub bandwidth_mib_per_s_max: Option<u32>,
    /// For how long the guest may stand still at the switch; absent: the hypervisor's own.
    pub downtime_ms_max: Option<u32>,
    /// Whether a guest that writes faster than can be sent is slowed down.
    pub auto_converge: bool,
    /// Whether the guest may be let go on the destination before all of its memory is there. If
    /// the connection breaks then, the guest is lost.
    pub post_copy: bool,
    /// How long it may take; absent: what the source's agent is set up with.
    pub timeout_ms: Option<u64>,
    /// What is done when it takes longer.
    pub timeout_action: TimeoutAction,
}

impl Default for TransferPolicy {
    fn default() -> Self {
        Self {
            bandwidth_mib_per_s_max: None,
            downtime_ms_max: None,
            auto_converge: true,
            post_copy: false,
            timeout_ms: None,
            timeout_action: TimeoutAction::Abort,
        }
    }
}

/// Overrides of the cluster's policy for one migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransferOverrides {
    /// [`TransferPolicy::bandwidth_mib_per_s_max`].
    pub bandwidth_mib_per_s_max: Option<u32>,
    /// [`TransferPolicy::downtime_ms_max`].
    pub downtime_ms_max: Option<u32>,
    /// [`TransferPolicy::auto_converge`].
    pub auto_converge: Option<bool>,
    /// [`TransferPolicy::post_copy`].
    pub post_copy: Option<bool>,
    /// [`TransferPolicy::timeout_ms`].
    pub timeout_ms: Option<u64>,
    /// [`TransferPolicy::timeout_action`].
    pub timeout_action: Option<TimeoutAction>,
}

impl TransferPolicy {
    /// Returns all that is wrong with it, each fault named by its field below `at`.
    #[must_use]
    pub fn faults(&self, at: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut bounded = |field: &str, value: Option<u64>, least: u64, most: u64| {
            if let Some(value) = value.filter(|v| !(least..=most).contains(v)) {
                let rule = format!("must be from {least} to {most}");
                faults.push(Fault::new(format!("{at}{field}"), value, rule));
            }
        };
        let bandwidth = self.bandwidth_mib_per_s_max.map(u64::from);
        bounded(
            "bandwidth_mib_s",
            bandwidth,
            1,
            BANDWIDTH_MIB_PER_S_MAX.into(),
        );
        let downtime = self.downtime_ms_max.map(u64::from);
        bounded("downtime_ms", downtime, 1, DOWNTIME_MS_MAX.into());
        bounded(
            "timeout_ms",
            self.timeout_ms,
            TIMEOUT_MS_MIN,
            TIMEOUT_MS_MAX,
        );
        if self.timeout_action == TimeoutAction::PostCopy && !self.post_copy {
            let rule = format!("needs {at}post_copy = true");
            let action = self.timeout_action.as_str();
            faults.push(Fault::new(format!("{at}timeout_action"), action, rule));
        }
        faults
    }

    /// Returns how a guest is sent: the cluster's policy with the migration's overrides, and what
    /// the guest forbids.
    ///
    /// # Errors
    ///
    /// What is wrong with the overrides, also that this guest forbids what they request.
    pub fn with(&self, overrides: &TransferOverrides, spec: &VmSpec) -> Result<Self, Vec<Fault>> {
        let mut policy = Self {
            bandwidth_mib_per_s_max: overrides
                .bandwidth_mib_per_s_max
                .or(self.bandwidth_mib_per_s_max),
            downtime_ms_max: overrides.downtime_ms_max.or(self.downtime_ms_max),
            auto_converge: overrides.auto_converge.unwrap_or(self.auto_converge),
            post_copy: overrides.post_copy.unwrap_or(self.post_copy),
            timeout_ms: overrides.timeout_ms.or(self.timeout_ms),
            timeout_action: overrides.timeout_action.unwrap_or(self.timeout_action),
        };
        let mut faults = Vec::new();
        if let Some(why) = no_post_copy(spec).filter(|_| policy.post_copy) {
            if overrides.post_copy == Some(true) {
                let rule = format!("is not for this guest: {why}");
                faults.push(Fault::new("transfer.post_copy", true, rule));
            }
            policy.post_copy = false;
        }
        if policy.timeout_action == TimeoutAction::PostCopy
            && !policy.post_copy
            && overrides.timeout_action.is_none()
        {
            // The cluster's action, which this guest or this migration rules out.
            policy.timeout_action = TimeoutAction::Abort;
        }
        if faults.is_empty() {
            faults = policy.faults("transfer.");
        }
        if faults.is_empty() {
            Ok(policy)
        } else {
            Err(faults)
        }
    }
}

/// Returns why a guest must not be let go on the destination before all of its memory is there.
#[must_use]
pub fn no_post_copy(spec: &VmSpec) -> Option<&'static str> {
    let topology = spec.topology.as_ref();
    if topology.is_some_and(|t| !t.realtime.is_empty()) {
        return Some("its real-time vCPUs must not wait for memory that is still on another host");
    }
    if topology.is_some_and(|t| t.locked_memory) {
        return Some("its memory is locked, so it must not wait for pages of another host");
    }
    if !spec.pmem_demand().requests.is_empty() {
        return Some("its persistent memory must not be in two places when one of the hosts fails");
    }
    None
}

/// In which part of a transfer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// It is being set up.
    Setup,
    /// The guest runs on the source while its memory, and disks where they are copied, are sent.
    PreCopy,
    /// The guest runs on the destination, and part of its memory is still on the source.
    PostCopy,
    /// The guest stands still for the rest.
    Switch,
}

impl Phase {
    /// All of them, for tables.
    pub const ALL: [Self; 4] = [Self::Setup, Self::PreCopy, Self::PostCopy, Self::Switch];

    /// Returns the word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::PreCopy => "pre-copy",
            Self::PostCopy => "post-copy",
            Self::Switch => "switch",
        }
    }
}

/// Bytes of one kind that are to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Amount {
    /// What there is.
    pub total: u64,
    /// What was sent; more than `total` where something had to be sent again.
    pub processed: u64,
    /// What is left, as of now.
    pub remaining: u64,
}

/// The progress of a transfer as the source's hypervisor reports it. What it does not report is
/// zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransferProgress {
    /// In which part it is.
    pub phase: Phase,
    /// Memory.
    pub memory: Amount,
    /// Disks that are copied.
    pub disk: Amount,
    /// How fast the guest writes to its memory.
    pub dirty_bytes_per_s: u64,
    /// How fast it is sent.
    pub bytes_per_s: u64,
    /// The elapsed time.
    pub elapsed_ms: u64,
    /// For how long the guest will stand still, or has, as far as is known.
    pub downtime_ms: u64,
    /// The number of passes over the memory.
    pub iteration: u64,
}

impl TransferProgress {
    /// Returns what is left in all.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.memory.remaining.saturating_add(self.disk.remaining)
    }

    /// Returns what there is in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.memory.total.saturating_add(self.disk.total)
    }

    /// Returns how much of it is on the other side, in hundredths.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let (total, left) = (self.total(), self.remaining());
        if total == 0 {
            return 0;
        }
        let there = u128::from(total.saturating_sub(left)) * 100 / u128::from(total);
        u64::try_from(there).unwrap_or(100)
    }

    /// Returns in how many milliseconds it will be over at the rates of this moment; nothing if it
    /// will not be: the guest writes as fast as can be sent, or nothing is sent.
    #[must_use]
    pub fn remaining_ms(&self) -> Option<u64> {
        let grows = match self.phase {
            Phase::Setup | Phase::PreCopy => self.dirty_bytes_per_s,
            Phase::PostCopy | Phase::Switch => 0,
        };
        let rate = self.bytes_per_s.checked_sub(grows).filter(|r| *r > 0)?;
        let ms = u128::from(self.remaining()) * 1000 / u128::from(rate);
        u64::try_from(ms).ok()
    }
}

/// A disk that the hypervisor copies because the destination does not see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DiskCopy {
    /// Which disk of the guest.
    pub index: u32,
    /// How large the guest sees it.
    pub virtual_bytes: u64,
}

/// A host that was tried for a migration, and why it was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tried {
    /// The host.
    pub host: HostName,
    /// Why not.
    pub refusal: Refusal,
}
