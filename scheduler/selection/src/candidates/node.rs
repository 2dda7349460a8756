//! A provider as the search reads it: names are numbers, and what it has of a class is one line
//! of arithmetic away.

use berth_domain::allocation::Resources;
use berth_domain::id::ProviderId;
use berth_domain::inventory::Inventory;
use berth_domain::resource::ResourceClass;
use smallvec::SmallVec;

/// Stands for "none" where the number of a provider or tree is expected.
pub(crate) const NONE: u32 = u32::MAX;

/// What a provider has of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The number of the class.
    pub(crate) class: u32,
    /// How much may be allocated in all.
    pub(crate) capacity: u64,
    /// How much is.
    pub(crate) used: u64,
    /// The least amount of one allocation.
    pub(crate) min_unit: u64,
    /// The greatest amount of one allocation.
    pub(crate) max_unit: u64,
    /// An allocation is a multiple of this.
    pub(crate) step_size: u64,
}

impl Cell {
    pub(crate) fn new(class: u32, inventory: &Inventory, used: u64) -> Self {
        Self {
            class,
            capacity: inventory.capacity(),
            used,
            min_unit: inventory.min_unit,
            max_unit: inventory.max_unit,
            step_size: inventory.step_size.max(1),
        }
    }

    /// Returns how much may still be allocated.
    pub(crate) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// Returns how much one consumer may take by several groups together.
    pub(crate) fn headroom(&self) -> u64 {
        self.free().min(self.max_unit)
    }

    /// Returns whether one group may take this amount.
    pub(crate) fn admits(&self, amount: u64) -> bool {
        self.has_unit(amount) && amount <= self.free()
    }

    /// Returns whether the amount is one that an allocation may have.
    pub(crate) fn has_unit(&self, amount: u64) -> bool {
        self.min_unit <= amount && amount <= self.max_unit && self.keeps_step(amount)
    }

    fn keeps_step(&self, amount: u64) -> bool {
        self.step_size == 1 || amount.is_multiple_of(self.step_size)
    }
}

/// What a provider has; hosts have three or four classes.
pub(crate) type Cells = SmallVec<[Cell; 4]>;

/// A provider as the search reads it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Who it is.
    pub(crate) id: ProviderId,
    /// The provider above it, if it is no root.
    pub(crate) parent: Option<ProviderId>,
    /// The number of its tree.
    pub(crate) tree: u32,
    /// Its place in its tree, parents before children.
    pub(crate) position: u32,
    /// The place after the last one below it.
    pub(crate) end: u32,
    /// Its place among the sharing providers, [`NONE`] if it is none.
    pub(crate) sharing: u32,
    /// What it has, by class. Beside the rest: who reads all providers waits for memory, and
    /// one place is read ahead where two are not.
    pub(crate) cells: Cells,
    /// Numbers of its traits, ascending.
    pub(crate) traits: Box<[u32]>,
    /// Numbers of its aggregates, ascending.
    pub(crate) aggregates: Box<[u32]>,
}

impl Node {
    /// Returns what it has of a class.
    pub(crate) fn cell(&self, class: u32) -> Option<&Cell> {
        // Providers have a handful of classes: looking is faster than halving.
        self.cells.iter().find(|cell| cell.class == class)
    }

    /// Takes what is used of it.
    pub(crate) fn set_used(
        &mut self,
        used: &Resources,
        class: impl Fn(&ResourceClass) -> Option<u32>,
    ) {
        for cell in &mut self.cells {
            cell.used = 0;
        }
        for (name, amount) in used {
            let number = class(name);
            if let Some(cell) = self.cells.iter_mut().find(|c| Some(c.class) == number) {
                cell.used = *amount;
            }
        }
    }
}

/// Returns whether an ascending list holds at least one of these numbers.
pub(crate) fn holds_any(list: &[u32], numbers: &[u32]) -> bool {
    numbers.iter().any(|n| list.binary_search(n).is_ok())
}

/// Returns whether an ascending list holds at least one number of each set.
pub(crate) fn holds_of_each(list: &[u32], sets: &[Vec<u32>]) -> bool {
    sets.iter().all(|set| holds_any(list, set))
}
