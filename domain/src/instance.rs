//! The topology that a guest requires, and the exact one that it was given.
//!
//! [`InstanceTopology`] is the request, made from a flavor; it does not know any host.
//! [`crate::numa::Assignment`] is the exact answer on one host. [`InstanceNumaTopology`] is both
//! together: what OpenStack calls by this name, and what travels in `migrate_data`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::assignment::Assignment;

pub use crate::cpu_set::VcpuId;

/// The page size that a guest NUMA node requests (`hw:mem_page_size`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum PageSize {
    /// Not set: small pages, not accounted page by page.
    #[default]
    Unspecified,
    /// The smallest size of the host cell.
    Small,
    /// Any size but the smallest, the greatest that fits.
    Large,
    /// Any size, the greatest that fits.
    Any,
    /// Exactly this many KiB.
    Kib(u64),
}

/// Where the emulator's own threads run (`hw:emulator_threads_policy`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum EmulatorThreads {
    /// On the CPUs of the guest's own vCPUs.
    #[default]
    Unspecified,
    /// On one further dedicated CPU, on the host cell of guest cell 0.
    Isolate,
    /// On the host's shared CPUs.
    Share,
}

/// How the vCPUs of a guest cell get host CPUs (`hw:cpu_policy`).
///
/// It holds more than which vCPUs are dedicated: a cell of a mixed guest may have none of these,
/// and its memory is exclusive all the same.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum CpuPolicy {
    /// All float.
    #[default]
    Shared,
    /// Each gets a CPU of its own.
    Dedicated,
    /// Some float, some get a CPU of their own; or, in one cell, only the ones or the others.
    Mixed,
}

impl CpuPolicy {
    /// Returns the policy of a cell of which only this is known: which of its vCPUs float, and
    /// which are dedicated.
    #[must_use]
    pub fn of(shared: &BTreeSet<VcpuId>, dedicated: &BTreeSet<VcpuId>) -> Self {
        match (shared.is_empty(), dedicated.is_empty()) {
            (_, true) => Self::Shared,
            (true, false) => Self::Dedicated,
            (false, false) => Self::Mixed,
        }
    }

    /// Returns whether the cell's memory is never overcommitted.
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        match self {
            Self::Shared => false,
            Self::Dedicated | Self::Mixed => true,
        }
    }

    /// Returns whether vCPUs may float: then the ratios are looked at.
    #[must_use]
    pub fn has_floating(self) -> bool {
        match self {
            Self::Shared | Self::Mixed => true,
            Self::Dedicated => false,
        }
    }
}

/// How the dedicated vCPUs of a guest cell lie on cores (`hw:cpu_thread_policy`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum ThreadPolicy {
    /// On the threads of few cores where that is possible, else anywhere.
    #[default]
    Prefer,
    /// Each on a core of its own, whose other threads remain idle.
    Isolate,
    /// Together on the threads of cores; at most one sits alone.
    Require,
}

/// One NUMA cell of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "RecordedCell")]
pub struct InstanceCell {
    /// The guest's number of the cell, from 0.
    pub id: u32,
    /// How its vCPUs get host CPUs.
    pub cpu_policy: CpuPolicy,
    /// How its dedicated vCPUs lie on cores.
    pub thread_policy: ThreadPolicy,
    /// vCPUs that float over the shared CPUs of the host cell; none under
    /// [`CpuPolicy::Dedicated`].
    pub shared: BTreeSet<VcpuId>,
    /// vCPUs that get a host CPU of their own each; none under [`CpuPolicy::Shared`].
    pub dedicated: BTreeSet<VcpuId>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The requested page size.
    pub page_size: PageSize,
}

/// A cell as text: guests that run carry what was written when they began, with the fields of
/// then.
#[derive(Deserialize)]
struct RecordedCell {
    id: u32,
    cpu_policy: Option<CpuPolicy>,
    #[serde(default)]
    thread_policy: ThreadPolicy,
    shared: BTreeSet<VcpuId>,
    dedicated: BTreeSet<VcpuId>,
    memory_mib: u64,
    page_size: PageSize,
}

impl From<RecordedCell> for InstanceCell {
    fn from(cell: RecordedCell) -> Self {
        let policy = || CpuPolicy::of(&cell.shared, &cell.dedicated);
        Self {
            id: cell.id,
            cpu_policy: cell.cpu_policy.unwrap_or_else(policy),
            thread_policy: cell.thread_policy,
            shared: cell.shared,
            dedicated: cell.dedicated,
            memory_mib: cell.memory_mib,
            page_size: cell.page_size,
        }
    }
}

/// The topology that a guest requires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InstanceTopology {
    /// The guest's cells in ascending order of id, at least one.
    pub cells: Vec<InstanceCell>,
    /// Where the emulator runs.
    pub emulator_threads: EmulatorThreads,
    /// Dedicated vCPUs that run with real-time priority (`hw:cpu_realtime_mask`).
    #[serde(default)]
    pub realtime: BTreeSet<VcpuId>,
    /// Whether the guest's memory is never swapped out (`hw:locked_memory`).
    #[serde(default)]
    pub locked_memory: bool,
}

/// A request together with the exact CPUs and pages that meet it on one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InstanceNumaTopology {
    /// What the guest requires.
    pub requested: InstanceTopology,
    /// What it was given.
    pub assignment: Assignment,
}

impl InstanceTopology {
    /// Returns whether the emulator gets a dedicated CPU: beside guest cell 0, if that one has its
    /// CPUs to itself at all.
    #[must_use]
    pub fn isolates_emulator(&self) -> bool {
        let home = self.cells.first();
        self.emulator_threads == EmulatorThreads::Isolate
            && home.is_some_and(|cell| cell.cpu_policy.is_exclusive())
    }

    /// Returns the topology of a guest that runs already: its pages keep the size that they have,
    /// since the memory of a running guest cannot change it on the way to another host.
    #[must_use]
    pub fn settled(&self, assignment: &Assignment) -> Self {
        let mut wish = self.clone();
        for (cell, given) in wish.cells.iter_mut().zip(&assignment.cells) {
            if let Some(size_kib) = given.page_size_kib {
                cell.page_size = PageSize::Kib(size_kib);
            }
        }
        wish
    }
}
