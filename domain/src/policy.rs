//! What the cluster's operators prefer when a guest could go to several hosts or cells, set at run
//! time and kept in the replicated state.
//!
//! But for [`memory`] and [`cpu`] it is not a rule: whatever the rest is, a guest that fits somewhere is
//! placed. The choice of a host defines how its weights are combined.
//!
//! Invariant: a cluster in which nothing was set prefers what [`SchedulingPolicy::default`] sets.

mod balance;
pub mod cpu;
mod decimal;
mod failover;
pub mod memory;
mod scoped;
mod setting;

pub use balance::{
    BalancePolicy, GAIN_MIN_MILLI_DEFAULT, GAIN_MIN_MILLI_MAX, HOLD_MS_MAX, THRESHOLD_MILLI_MAX,
};
pub use cpu::{CPU_RATIO_MILLI_MAX, CPU_RATIO_MILLI_MIN, CPU_RESERVED_MAX, CpuPolicy};
pub use failover::{Admission, FailoverPolicy};
pub use memory::{MemoryPolicy, RATIO_MILLI_MAX, RATIO_MILLI_MIN};
pub use scoped::{Scope, Scoped, Source, TERMS_MAX, Terms};
pub use setting::{KEYS, SCOPED_KEYS, Setting};

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::flavor::{Flavor, Requirements};
use crate::id::Generation;
use crate::instance::PageSize;
use crate::numa::Strategy;
use crate::transfer::{HOSTS_TRIED_DEFAULT, HOSTS_TRIED_MAX, TransferPolicy};

/// The shortest time after which an agent that is cut off stops its guests.
pub const SELF_FENCE_MS_MIN: u64 = 5_000;
/// The longest.
pub const SELF_FENCE_MS_MAX: u64 = 3_600_000;

/// The shortest time after which a member of the scheduler that does not answer is removed.
pub const DEAD_TIMEOUT_S_MIN: u64 = 10;
/// The longest: thirty days.
pub const DEAD_TIMEOUT_S_MAX: u64 = 2_592_000;

/// The greatest weight.
pub const WEIGHT_MAX: u16 = 1000;

/// What is preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SchedulingPolicy {
    /// Hosts: the emptiest or the fullest first.
    pub hosts: Strategy,
    /// Cells of the chosen host: the emptiest or the fullest first.
    pub cells: Strategy,
    /// The weight of each weigher.
    pub weights: Weights,
    /// What guests with CPUs of their own get as `hw:mem_page_size` where flavor and image do not
    /// set one; absent: nothing, so that they take small pages as in OpenStack.
    #[serde(default)]
    pub mem_page_size: Option<DefaultPages>,
    /// How guests are moved.
    #[serde(default)]
    pub migration: MigrationPolicy,
    /// How long after its last report that was answered an agent stops its guests by itself, so
    /// that they can be started elsewhere; absent: it does not. From [`SELF_FENCE_MS_MIN`] to
    /// [`SELF_FENCE_MS_MAX`].
    #[serde(default)]
    pub self_fence_ms: Option<u64>,
    /// After how many seconds without an answer a member of the scheduler is removed, if the cluster then
    /// tolerates more failures; absent: none is. From [`DEAD_TIMEOUT_S_MIN`] to [`DEAD_TIMEOUT_S_MAX`].
    #[serde(default)]
    pub dead_member_timeout_s: Option<u64>,
    /// How far memory is over-committed. Unlike the rest, a rule: it decides what fits.
    #[serde(default)]
    pub memory: MemoryPolicy,
    /// How many vCPUs share a CPU, and how many CPUs are reserved. A rule, too.
    #[serde(default)]
    pub cpu: CpuPolicy,
    /// The failover policy: the headroom for the guests of a failed host.
    #[serde(default)]
    pub failover: FailoverPolicy,
    /// When guests are moved so that hosts are loaded evenly.
    #[serde(default)]
    pub balance: BalancePolicy,
    /// Changes with every change; 0 as long as nothing was set.
    pub generation: Generation,
}

/// The defaults of transfers, unless a migration overrides them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MigrationPolicy {
    /// How they are sent.
    pub transfer: TransferPolicy,
    /// How many hosts are tried when they refuse, at most [`HOSTS_TRIED_MAX`].
    pub hosts_tried_max: u32,
}

impl Default for MigrationPolicy {
    fn default() -> Self {
        Self {
            transfer: TransferPolicy::default(),
            hosts_tried_max: HOSTS_TRIED_DEFAULT,
        }
    }
}

impl MigrationPolicy {
    /// Returns all that is wrong with it.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = self.transfer.faults("migration.");
        if !(1..=HOSTS_TRIED_MAX).contains(&self.hosts_tried_max) {
            let rule = format!("must be from 1 to {HOSTS_TRIED_MAX}");
            faults.push(Fault::new(
                "migration.hosts_tried",
                self.hosts_tried_max,
                rule,
            ));
        }
        faults
    }
}

/// Pages of guests without an explicit size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DefaultPages {
    /// The smallest size.
    Small,
    /// Any size but the smallest.
    Large,
    /// Any size.
    Any,
}

impl DefaultPages {
    /// Returns the value of `hw:mem_page_size`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Any => "any",
        }
    }
}

/// The weight of each weigher when hosts are compared: relative, each at most
/// [`WEIGHT_MAX`]. With 0 it has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Weights {
    /// How full the host is.
    pub load: u16,
    /// How tightly the guest's cells sit, where cells are packed.
    pub numa: u16,
    /// Avoids hosts with free PCI functions for a guest that requests none.
    pub pci: u16,
    /// Whether wholly free cells stay so.
    pub fragmentation: u16,
    /// How many members of the guest's server group are near, for the soft policies.
    pub soft_affinity: u16,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            load: 100,
            // No effect while cells are spread.
            numa: 1000,
            pci: 10,
            fragmentation: 0,
            // A preference that an operator set comes before what is merely tidy.
            soft_affinity: 1000,
        }
    }
}

impl SchedulingPolicy {
    /// Adds to the copy of a flavor that a new VM gets the cluster's default where flavor and
    /// image, together these requirements, do not. Returns whether there was something to add.
    pub fn complete(&self, flavor: &mut Flavor, requirements: &Requirements) -> bool {
        let cells = requirements
            .topology
            .iter()
            .flat_map(|topology| &topology.cells);
        let mut open = cells.filter(|cell| cell.cpu_policy.is_exclusive());
        let says_nothing = open.any(|cell| cell.page_size == PageSize::Unspecified);
        let Some(pages) = self.mem_page_size.filter(|_| says_nothing) else {
            return false;
        };
        let (key, value) = ("hw:mem_page_size", pages.as_str());
        flavor.extra_specs.insert(key.to_owned(), value.to_owned());
        true
    }

    /// Returns whether anything was set ever.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.generation != Generation::default()
    }

    /// Returns whether no weight is greater than may be, and nothing else out of bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let w = &self.weights;
        let all = [w.load, w.numa, w.pci, w.fragmentation, w.soft_affinity];
        let fences = self.self_fence_ms;
        let dead = self.dead_member_timeout_s;
        all.into_iter().all(|weight| weight <= WEIGHT_MAX)
            && self.migration.faults().is_empty()
            && self.memory.is_bounded()
            && self.cpu.is_bounded()
            && self.balance.is_bounded()
            && fences.is_none_or(|ms| (SELF_FENCE_MS_MIN..=SELF_FENCE_MS_MAX).contains(&ms))
            && dead.is_none_or(|s| (DEAD_TIMEOUT_S_MIN..=DEAD_TIMEOUT_S_MAX).contains(&s))
    }
}
