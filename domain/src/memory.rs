//! Memory over-commitment: the one rule of how much memory of guests a host and each of its cells
//! may hold. Placement, inventories and the verdict on what is there already all follow from it.
//!
//! ```text
//! total ─┬─ mem_node    what the node itself needs: state of record
//!        ├─ huge pages  real, each given once
//!        ├─ exact       small pages that are promised once: guests with dedicated CPUs, guests that
//!        │              name a page size, guests whose memory a device of theirs locks
//!        └─ open        all that is left: guests that share it may have ratio x open
//! ```
//!
//! It does not know where the ratio comes from: see [`crate::policy`]. It is not about live
//! figures: those warn, the books decide.
//!
//! Invariant: it does not matter in which order guests came. What fits without over-commitment fits
//! at every ratio, and what fits at a ratio fits at every greater one. Memory that is promised
//! exactly is never taken for over-commitment.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::allocation::Resources;
use crate::assignment::Assignment;
use crate::inventory::{Excess, Inventory};
use crate::overcommit::AllocationRatio;
use crate::resource::ResourceClass;
use crate::topology::{HostTopology, PagePool};

/// What holds of the memory of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryRule {
    /// How many bytes of guests' memory one byte of the host's may hold.
    pub ratio: AllocationRatio,
    /// What the node itself needs in MiB; absent: the value of its agent's configuration.
    pub mem_node_mib: Option<u64>,
}

impl MemoryRule {
    /// Nothing is over-committed, and the agent's configuration applies.
    pub const EXACT: Self = Self {
        ratio: AllocationRatio::ONE,
        mem_node_mib: None,
    };
}

impl Default for MemoryRule {
    fn default() -> Self {
        Self::EXACT
    }
}

/// Memory of guests in MiB, by what may be done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Taken {
    /// Shared: it may be over-committed.
    pub shared_mib: u64,
    /// Small pages that are promised once.
    pub exact_mib: u64,
    /// Huge pages.
    pub huge_mib: u64,
}

impl Taken {
    /// Returns what a guest takes with these amounts and this assignment.
    #[must_use]
    pub fn of(topology: &HostTopology, resources: &Resources, assignment: &Assignment) -> Self {
        let all = resources.get(&ResourceClass::memory_mb());
        let mut taken = Self::by_cells(topology, assignment);
        let rest = all.copied().unwrap_or(0).saturating_sub(taken.total_mib());
        if assignment.locks_memory() {
            taken.exact_mib += rest;
        } else {
            taken.shared_mib += rest;
        }
        taken
    }

    /// Returns what the cells of an assignment take.
    #[must_use]
    pub fn by_cells(topology: &HostTopology, assignment: &Assignment) -> Self {
        let mut taken = Self::default();
        let small_of = |pools: &[PagePool]| pools.first().map(|pool| pool.size_kib);
        for cell in &assignment.cells {
            let host = topology.cell(cell.host_cell);
            // A cell that is lost had pages like the others.
            let mut others = topology.cells().iter();
            let small = host
                .and_then(|host| small_of(&host.pages))
                .or_else(|| others.find_map(|other| small_of(&other.pages)));
            let is_huge = |size: u64| small.is_some_and(|small| size > small);
            match cell.page_size_kib {
                Some(size) if is_huge(size) => taken.huge_mib += cell.memory_mib,
                Some(_) => taken.exact_mib += cell.memory_mib,
                None if assignment.is_exact() => taken.exact_mib += cell.memory_mib,
                None => taken.shared_mib += cell.memory_mib,
            }
        }
        taken
    }

    /// Returns all of it.
    #[must_use]
    pub fn total_mib(&self) -> u64 {
        self.shared_mib + self.exact_mib + self.huge_mib
    }

    /// Adds another amount.
    pub fn add(&mut self, more: Self) {
        self.shared_mib += more.shared_mib;
        self.exact_mib += more.exact_mib;
        self.huge_mib += more.huge_mib;
    }

    /// Gives back what was added.
    ///
    /// # Panics
    ///
    /// When it was not added before.
    pub fn subtract(&mut self, less: Self) {
        let why = "what is given back was taken before";
        let pairs = [
            (&mut self.shared_mib, less.shared_mib),
            (&mut self.exact_mib, less.exact_mib),
            (&mut self.huge_mib, less.huge_mib),
        ];
        for (amount, less) in pairs {
            *amount = amount.checked_sub(less).expect(why);
        }
    }

    fn plus(mut self, more: Self) -> Self {
        self.add(more);
        self
    }
}

/// The memory of a host: what there is, by which rule it is given, and what is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    /// All memory.
    pub total_mib: u64,
    /// What the node itself needs, at most all.
    pub mem_node_mib: u64,
    /// All memory in huge pages, taken or not: no other guest can use it.
    pub huge_pages_mib: u64,
    /// How many bytes one byte may hold.
    pub ratio: AllocationRatio,
    /// What is taken.
    pub taken: Taken,
}

impl Books {
    /// Returns the books of a host of this shape with this inventory of memory.
    #[must_use]
    pub fn new(topology: &HostTopology, memory: &Inventory, taken: Taken) -> Self {
        let huge = topology.cells().iter().flat_map(|cell| {
            let huge = cell.pages.get(1..).unwrap_or_default();
            huge.iter().map(|pool| pool_mib(pool.total, pool.size_kib))
        });
        Self {
            total_mib: memory.total,
            mem_node_mib: memory.reserved.min(memory.total),
            huge_pages_mib: huge.sum(),
            ratio: memory.allocation_ratio,
            taken,
        }
    }

    /// Returns what guests may have without over-commitment: total - mem_node.
    #[must_use]
    pub fn available_mib(&self) -> u64 {
        self.total_mib.saturating_sub(self.mem_node_mib)
    }

    /// Returns what is taken in thousandths of what is available; nothing where nothing is
    /// available and something taken.
    #[must_use]
    pub fn relative_milli(&self) -> Option<u64> {
        let (used, available) = (self.taken.total_mib(), self.available_mib());
        match (used, available) {
            (0, _) => Some(0),
            (_, 0) => None,
            (_, _) => u64::try_from(u128::from(used) * 1000 / u128::from(available)).ok(),
        }
    }

    /// Returns how much swap the node needs for what it may promise beyond what it has.
    #[must_use]
    pub fn swap_needed_mib(&self) -> u64 {
        let available = self.available_mib();
        let promised = self.ratio.capacity(available, 0);
        promised.saturating_sub(available)
    }

    /// Returns whether what is taken may be taken.
    #[must_use]
    pub fn holds(&self) -> bool {
        let used = self.taken.total_mib();
        used <= self.available_mib()
            || (self.ratio.holds(self.available_mib(), 0, used) && self.shared_is_held())
    }

    /// Checks that a guest may take this much more.
    ///
    /// # Errors
    ///
    /// How much of it may be had.
    pub fn admit(&self, more: Taken) -> Result<(), Excess> {
        let after = Self {
            taken: self.taken.plus(more),
            ..*self
        };
        // A guest does not over-commit memory with itself: as in OpenStack, the host must hold a
        // guest alone. What others were promised is not looked at, so that it does not matter who
        // came first.
        if after.holds() && more.shared_mib <= self.available_mib() {
            return Ok(());
        }
        let amount = more.total_mib();
        let free = match more {
            Taken { exact_mib: 1.., .. } => self.exact_headroom_mib(),
            Taken {
                shared_mib: 1.., ..
            } => self.shared_headroom_mib(),
            Taken { .. } => self.huge_headroom_mib(),
        };
        Err(Excess::Capacity {
            amount,
            free: free.min(amount.saturating_sub(1)),
        })
    }

    /// Returns what no guest could take more than, whatever its pages. One with several cells may
    /// have both huge and small ones.
    #[must_use]
    pub fn headroom_mib(&self) -> u64 {
        let huge = self.huge_pages_mib.saturating_sub(self.taken.huge_mib);
        self.bounded(self.shared_left_mib().saturating_add(huge))
    }

    /// Returns the most that a guest that shares memory may take.
    fn shared_headroom_mib(&self) -> u64 {
        self.bounded(self.shared_left_mib())
    }

    fn shared_left_mib(&self) -> u64 {
        let left = self.ratio.capacity(self.open_mib(), 0);
        left.saturating_sub(self.taken.shared_mib)
            .min(self.available_mib())
    }

    /// Returns the most that a guest may be promised in small pages.
    fn exact_headroom_mib(&self) -> u64 {
        let needed = self.ratio.needed(self.taken.shared_mib);
        self.bounded(self.open_mib().saturating_sub(needed))
    }

    /// Returns the most that a guest may take in huge pages, as far as this rule is concerned.
    fn huge_headroom_mib(&self) -> u64 {
        let left = self.huge_pages_mib.saturating_sub(self.taken.huge_mib);
        self.bounded(if self.shared_is_held() { left } else { 0 })
    }

    /// Returns what is left under the ratio, at least what fits without over-commitment.
    fn bounded(&self, left: u64) -> u64 {
        let used = self.taken.total_mib();
        let promised = self.ratio.capacity(self.available_mib(), 0);
        let plain = self.available_mib().saturating_sub(used);
        left.min(promised.saturating_sub(used)).max(plain)
    }

    /// Returns the memory in small pages that is not promised exactly.
    fn open_mib(&self) -> u64 {
        self.small_mib().saturating_sub(self.taken.exact_mib)
    }

    fn small_mib(&self) -> u64 {
        self.available_mib().saturating_sub(self.huge_pages_mib)
    }

    fn shared_is_held(&self) -> bool {
        let Taken {
            shared_mib,
            exact_mib,
            ..
        } = self.taken;
        exact_mib <= self.small_mib() && self.ratio.holds(self.small_mib(), exact_mib, shared_mib)
    }
}

/// The small pages of one cell in MiB. The rule is that of [`Books`], where it is known which cell
/// a guest sits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellBooks {
    /// What is not reserved.
    pub(crate) small_mib: u64,
    /// What of that is not promised exactly.
    pub(crate) open_mib: u64,
    /// What is shared of it.
    pub(crate) shared_mib: u64,
}

impl CellBooks {
    /// Returns the most that one guest may still share.
    pub(crate) fn shared_headroom_mib(&self, ratio: AllocationRatio) -> u64 {
        let left = ratio.capacity(self.open_mib, 0);
        left.saturating_sub(self.shared_mib).min(self.small_mib)
    }
}

/// Returns the memory of so many pages in MiB.
pub(crate) fn pool_mib(pages: u64, size_kib: u64) -> u64 {
    u64::try_from(u128::from(pages) * u128::from(size_kib) / 1024).unwrap_or(u64::MAX)
}

/// Whether a host holds more than its rule allows, and because of what.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum MemoryViolation {
    /// It does not.
    #[default]
    None,
    /// On the books alone: with guests that do not run, or places that are held for some.
    Soft,
    /// By what really runs.
    Hard,
}

impl MemoryViolation {
    /// Returns the word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

impl fmt::Display for MemoryViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The verdict on a host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryVerdict {
    /// The books, with what is reserved for others.
    pub books: Books,
    /// What guests that run have of it.
    pub running: Taken,
    /// What is wrong.
    pub violation: MemoryViolation,
}

impl MemoryVerdict {
    /// Evaluates the books of a host, of which `running` is what guests have that really run, and
    /// `reserve_mib` what is kept free for guests of other hosts.
    #[must_use]
    pub fn new(books: Books, running: Taken, reserve_mib: u64) -> Self {
        let mut books = books;
        books.taken.shared_mib += reserve_mib;
        let real = Books {
            taken: running,
            ..books
        };
        let violation = match (books.holds(), real.holds()) {
            (_, false) => MemoryViolation::Hard,
            (false, true) => MemoryViolation::Soft,
            (true, true) => MemoryViolation::None,
        };
        Self {
            books,
            running,
            violation,
        }
    }
}

impl fmt::Display for MemoryVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, taken) = match self.violation {
            MemoryViolation::Hard => ("guests that run have", self.running),
            MemoryViolation::None | MemoryViolation::Soft => {
                ("guests have, running or not,", self.books.taken)
            }
        };
        let books = Books {
            taken,
            ..self.books
        };
        let available = books.available_mib();
        write!(f, "{who} {} MiB", taken.total_mib())?;
        match books.relative_milli() {
            Some(milli) => write!(
                f,
                ", {}.{:03} of the {available} MiB available (ratio {})",
                milli / 1000,
                milli % 1000,
                books.ratio
            )?,
            None => write!(f, ", and nothing is available")?,
        }
        if !books.holds() && books.ratio.holds(available, 0, taken.total_mib()) {
            write!(
                f,
                "; {} MiB of it share the {} MiB that neither huge pages nor exact promises take",
                taken.shared_mib,
                books.open_mib()
            )?;
        }
        Ok(())
    }
}
