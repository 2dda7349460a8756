//! A region with what volumes have of it: what is free, and why nothing is to be had where it is
//! not.
//!
//! Invariant: a region about which something is wrong gives nothing new. Nothing is taken from the
//! volumes that are in it.

use super::{DeviceMode, Extent, Region, Replica, Taken, gross_bytes, net_bytes};
use crate::name::{RegionName, VolumeId};

/// What a volume has of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which volume.
    pub volume: VolumeId,
    /// How it is made.
    pub mode: DeviceMode,
    /// What it takes.
    pub taken: Taken,
    /// Whether it will be gone by itself.
    pub is_leaving: bool,
}

/// A region with its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionUsage {
    /// The region as its host reports it; its trouble is also what does not go together with its
    /// volumes.
    pub region: Region,
    /// Its volumes, in the order in which they are made.
    pub held: Vec<Held>,
}

/// Returns the regions of a host with the volumes that are in them: those that it reports, and
/// after them those that it does not report any more.
pub fn region_usages<'a>(
    regions: &[Region],
    replicas: impl IntoIterator<Item = (&'a VolumeId, &'a Replica)>,
) -> Vec<RegionUsage> {
    let bare = |region: &Region| RegionUsage {
        region: region.clone(),
        held: Vec::new(),
    };
    let mut usages: Vec<RegionUsage> = regions.iter().map(bare).collect();
    let mut replicas: Vec<_> = replicas.into_iter().collect();
    replicas.sort_by_key(|(id, replica)| (replica.sequence, *id));
    for (id, replica) in replicas {
        let Some(taken) = replica.taken() else {
            continue;
        };
        let known = usages
            .iter()
            .position(|usage| usage.region.name == replica.region);
        let at = known.unwrap_or_else(|| {
            usages.push(bare(&lost(replica)));
            usages.len() - 1
        });
        usages[at].held.push(Held {
            volume: id.clone(),
            mode: replica.mode,
            taken,
            is_leaving: replica.phase == super::Phase::Deleting,
        });
    }
    for usage in &mut usages {
        if usage.region.trouble.is_empty() {
            usage.region.trouble = usage.disagreement().unwrap_or_default();
        }
    }
    usages
}

/// Returns the region of a volume that its host does not report.
fn lost(replica: &Replica) -> Region {
    Region {
        name: replica.region.clone(),
        cell: replica.cell,
        mode: replica.mode,
        capacity_bytes: 0,
        align_bytes: replica.gross_bytes.max(1),
        foreign: Vec::new(),
        trouble: "its host does not report it any more".to_owned(),
    }
}

impl RegionUsage {
    /// Returns the region's name.
    #[must_use]
    pub fn name(&self) -> &RegionName {
        &self.region.name
    }

    /// Returns whether volumes can be made in it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.region.trouble.is_empty()
    }

    /// Returns what volumes of the region's mode take of it. Those that were made in another mode
    /// are in what its host does not count as the region's, or reports as foreign.
    #[must_use]
    pub fn taken(&self) -> Vec<Taken> {
        let held = self.held.iter();
        let held = held.filter(|held| held.mode == self.region.mode);
        held.map(|held| held.taken).collect()
    }

    /// Returns how much volumes take of it, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let held = self.held.iter().map(|held| held.taken.gross_bytes);
        held.fold(0, u64::saturating_add)
    }

    /// Returns the free pieces, by offset; none where nothing is to be had.
    #[must_use]
    pub fn free(&self) -> Vec<Extent> {
        match self.is_open() {
            true => self.region.free(&self.taken()),
            false => Vec::new(),
        }
    }

    /// Returns how much is free, in bytes.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free().iter().map(|hole| hole.length_bytes).sum()
    }

    /// Returns how much can be used in all of volumes that fill up what is free, in bytes.
    #[must_use]
    pub fn available_bytes(&self) -> u64 {
        let align = self.region.align_bytes;
        let free = self.free();
        let net = free.iter().map(|hole| {
            let gross = hole.length_bytes - hole.length_bytes % align;
            net_bytes(self.region.mode, gross)
        });
        net.sum()
    }

    /// Returns how much can be used of the largest volume that can be made, in bytes; 0: none can.
    #[must_use]
    pub fn largest(&self) -> u64 {
        match self.is_open() {
            true => self.region.largest(&self.taken()),
            false => 0,
        }
    }

    /// Returns how much can be used of the smallest volume that there can be, in bytes.
    #[must_use]
    pub fn smallest(&self) -> u64 {
        let Region {
            mode, align_bytes, ..
        } = self.region;
        gross_bytes(mode, 0, align_bytes).map_or(0, |gross| net_bytes(mode, gross))
    }

    /// Returns what a volume takes of which so much can be used, if it can be made.
    #[must_use]
    pub fn place(&self, required_bytes: u64) -> Option<Taken> {
        match self.is_open() {
            true => self.region.place(required_bytes, &self.taken()),
            false => None,
        }
    }

    /// Counts a volume in.
    pub fn hold(&mut self, volume: &VolumeId, taken: Taken) {
        self.held.push(Held {
            volume: volume.clone(),
            mode: self.region.mode,
            taken,
            is_leaving: false,
        });
    }

    #[cfg(test)]
    pub(super) fn disagreement_for_tests(&self) -> Option<String> {
        self.disagreement()
    }

    /// Returns what does not go together with the volumes, if anything does not.
    fn disagreement(&self) -> Option<String> {
        let taken = self.taken();
        let capacity = self.region.capacity_bytes;
        match self.region.mode {
            DeviceMode::Lvm => {
                let used = taken.iter().map(|t| t.gross_bytes);
                let used = used.fold(0, u64::saturating_add);
                (used > capacity)
                    .then(|| format!("its volumes take {used} bytes, and it has {capacity}"))
            }
            DeviceMode::Direct => {
                let mut ours: Vec<Extent> = taken.iter().filter_map(|t| t.extent).collect();
                ours.sort_unstable();
                if let Some(beyond) = ours.iter().find(|e| e.end_bytes() > capacity) {
                    return Some(format!(
                        "a volume at {beyond} is beyond its end at {capacity}"
                    ));
                }
                let twice = ours.windows(2).find(|pair| pair[0].overlaps(pair[1]));
                if let Some(twice) = twice {
                    return Some(format!(
                        "two volumes overlap, at {} and {}",
                        twice[0], twice[1]
                    ));
                }
                let mut foreign = self.region.foreign.clone();
                foreign.sort_unstable();
                first_overlap(&ours, &foreign).map(|(our, foreign)| {
                    format!("a volume at {our} overlaps foreign data at {foreign}")
                })
            }
        }
    }
}

/// Returns the first two that overlap, one of each; those of the first do not overlap each other.
fn first_overlap(ours: &[Extent], foreign: &[Extent]) -> Option<(Extent, Extent)> {
    for piece in foreign {
        let from = ours.partition_point(|our| our.end_bytes() <= piece.offset_bytes);
        if let Some(our) = ours[from..].first().filter(|our| our.overlaps(*piece)) {
            return Some((*our, *piece));
        }
    }
    None
}
