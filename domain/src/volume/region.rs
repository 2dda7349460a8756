//! A region of a host, and what of it can still be given.

use serde::{Deserialize, Serialize};

use super::{DeviceMode, Extent, first_fit, gross_bytes, holes, net_bytes};
use crate::name::RegionName;
use crate::topology::CellId;

/// A region of persistent memory that a host has for volumes, as its agent reports it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Region {
    /// Its name, as `region0`.
    pub name: RegionName,
    /// The cell that it is attached to; absent where the host does not report it.
    pub cell: Option<CellId>,
    /// How volumes are made of it.
    pub mode: DeviceMode,
    /// How much of it volumes may take in all, in bytes; in mode direct, the whole of it.
    pub capacity_bytes: u64,
    /// What sizes are rounded up to, in bytes.
    pub align_bytes: u64,
    /// The pieces that are used outside of Berth; only in mode direct.
    pub foreign: Vec<Extent>,
    /// Why no volume can be made of it now; empty: one can.
    pub trouble: String,
}

/// What a volume takes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// How much, in bytes.
    pub gross_bytes: u64,
    /// Where; only in mode direct.
    pub extent: Option<Extent>,
}

impl Region {
    /// Returns the free pieces of it beside what volumes take, by offset. In mode lvm it is one:
    /// the amount counts, and where it lies does not.
    #[must_use]
    pub fn free(&self, taken: &[Taken]) -> Vec<Extent> {
        match self.mode {
            DeviceMode::Lvm => {
                let used = taken.iter().map(|t| t.gross_bytes).sum::<u64>();
                let length_bytes = self.capacity_bytes.saturating_sub(used);
                let whole = Extent {
                    offset_bytes: 0,
                    length_bytes,
                };
                Vec::from_iter((length_bytes > 0).then_some(whole))
            }
            DeviceMode::Direct => {
                let ours = taken.iter().filter_map(|t| t.extent);
                holes(
                    self.capacity_bytes,
                    self.foreign.iter().copied().chain(ours),
                )
            }
        }
    }

    /// Returns what a volume takes of which so much can be used, if it fits beside the others.
    #[must_use]
    pub fn place(&self, required_bytes: u64, taken: &[Taken]) -> Option<Taken> {
        let gross_bytes = gross_bytes(self.mode, required_bytes, self.align_bytes)?;
        let extent = first_fit(&self.free(taken), gross_bytes)?;
        Some(Taken {
            gross_bytes,
            extent: (self.mode == DeviceMode::Direct).then_some(extent),
        })
    }

    /// Returns how much can be used of the largest volume that fits beside the others; 0: none
    /// fits.
    #[must_use]
    pub fn largest(&self, taken: &[Taken]) -> u64 {
        let free = self.free(taken);
        let most = free.iter().map(|hole| hole.length_bytes).max();
        let most = most.unwrap_or(0);
        net_bytes(self.mode, most - most % self.align_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(mode: DeviceMode, capacity_bytes: u64, foreign: &[Extent]) -> Region {
        Region {
            name: RegionName::new("region0").unwrap(),
            cell: None,
            mode,
            capacity_bytes,
            align_bytes: 16 << 20,
            foreign: foreign.to_vec(),
            trouble: String::new(),
        }
    }

    proptest::proptest! {
        /// Goal: what is reported as the largest can be created, and one byte more cannot.
        #[test]
        fn the_largest_is_what_fits(
            is_direct: bool,
            mib in 0_u64..2000,
            sizes in proptest::collection::vec(0_u64..300, 0..12),
            foreign in proptest::collection::vec((0_u64..2000, 1_u64..200), 0..4),
        ) {
            let mode = if is_direct { DeviceMode::Direct } else { DeviceMode::Lvm };
            let foreign: Vec<Extent> = foreign
                .into_iter()
                .map(|(offset, length)| Extent {
                    offset_bytes: offset << 20,
                    length_bytes: length << 20,
                })
                .collect();
            let region = region(mode, mib << 20, &foreign);
            let mut taken = Vec::new();
            for size in sizes {
                taken.extend(region.place(size << 20, &taken));
            }
            let largest = region.largest(&taken);
            proptest::prop_assert!(region.place(largest + 1, &taken).is_none());
            proptest::prop_assert!(largest == 0 || region.place(largest, &taken).is_some());
            for (at, one) in taken.iter().enumerate() {
                let Some(extent) = one.extent else { continue };
                let others = taken[..at].iter().filter_map(|t| t.extent);
                for other in others.chain(foreign.iter().copied()) {
                    proptest::prop_assert!(!extent.overlaps(other));
                }
                proptest::prop_assert!(extent.end_bytes() <= region.capacity_bytes);
            }
        }
    }
}
