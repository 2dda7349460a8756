//! Which volumes of a region have to go elsewhere so that one of a given size has space.
//!
//! In mode direct a piece becomes free by taking out neighbours, from one volume to another with no
//! foreign one between them; every such run is looked at, so that the fewest bytes go. In mode lvm
//! any volumes will do: the fewest bytes are found among a few, and nearly the fewest among many.
//!
//! It is a plan only: it moves no volume.

use super::{DeviceMode, Extent, Held, RegionUsage, Taken, gross_bytes, holes};
use crate::name::{HostName, RegionName, VolumeId};

/// Up to how many volumes in mode lvm every set of them is looked at.
const EXACT_MAX: usize = 16;

/// What would have to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The region.
    pub region: RegionName,
    /// The piece that would be free then; in mode direct.
    pub extent: Option<Extent>,
    /// What would have to go.
    pub moves: Vec<Move>,
}

/// A volume that would have to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which.
    pub volume: VolumeId,
    /// How much it takes, in bytes.
    pub gross_bytes: u64,
    /// Where it would fit at present; absent: nowhere.
    pub to: Option<(HostName, RegionName)>,
}

impl Plan {
    /// Returns how many bytes would have to go.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.moves.iter().map(|one| one.gross_bytes).sum()
    }
}

/// Returns what would have to go from a region so that a volume of which so much can be used has
/// space; nothing where no volumes that go free that space. What is being deleted goes by itself,
/// and is not counted.
#[must_use]
pub fn plan_space(usage: &RegionUsage, required_bytes: u64) -> Option<Plan> {
    if !usage.is_open() {
        return None;
    }
    let region = &usage.region;
    let gross = gross_bytes(region.mode, required_bytes, region.align_bytes)?;
    let ours: Vec<&Held> = usage
        .held
        .iter()
        .filter(|h| h.mode == region.mode)
        .collect();
    let (extent, gone) = match region.mode {
        DeviceMode::Direct => {
            let (extent, gone) = window(usage, &ours, gross)?;
            (Some(extent), gone)
        }
        DeviceMode::Lvm => (None, pieces(usage, &ours, gross)?),
    };
    let moves = gone.into_iter().map(|held| Move {
        volume: held.volume.clone(),
        gross_bytes: held.taken.gross_bytes,
        to: None,
    });
    Some(Plan {
        region: usage.name().clone(),
        extent,
        moves: moves.collect(),
    })
}

/// Finds destinations for the volumes that have to move, one after the other: in another region of
/// `usages`, each with its host. Of those the one that is left with the least is taken.
pub fn find_destinations(
    plan: &mut Plan,
    from: &HostName,
    usages: &mut [(HostName, RegionUsage)],
    usable: impl Fn(&VolumeId) -> u64,
) {
    for one in &mut plan.moves {
        let fitting = usages.iter().enumerate().filter_map(|(at, (host, usage))| {
            let is_elsewhere = host != from || *usage.name() != plan.region;
            let taken = usage.place(usable(&one.volume)).filter(|_| is_elsewhere)?;
            Some((usage.free_bytes() - taken.gross_bytes, at, taken))
        });
        let best = fitting.min_by_key(|(left, at, _)| (*left, *at));
        one.to = best.map(|(_, at, taken)| {
            let (host, usage) = &mut usages[at];
            usage.hold(&one.volume, taken);
            (host.clone(), usage.name().clone())
        });
    }
}

fn cost(held: &Held) -> u64 {
    match held.is_leaving {
        true => 0,
        false => held.taken.gross_bytes,
    }
}

/// Returns the piece that costs the least, and the volumes in it that do not go by themselves.
fn window<'h>(
    usage: &RegionUsage,
    ours: &[&'h Held],
    gross: u64,
) -> Option<(Extent, Vec<&'h Held>)> {
    let region = &usage.region;
    let mut best: Option<(u64, Extent, Vec<&Held>)> = None;
    // What no other guest has; each of our volumes lies in one of these.
    for part in holes(region.capacity_bytes, region.foreign.iter().copied()) {
        let lies = |held: &&&Held| held.taken.extent.is_some_and(|e| e.overlaps(part));
        let mut inside: Vec<&Held> = ours.iter().filter(lies).copied().collect();
        inside.sort_by_key(|held| held.taken.extent);
        let extent = |at: usize| inside[at].taken.extent.unwrap_or(part);
        let begin = |first: usize| match first {
            0 => part.offset_bytes,
            after => extent(after - 1).end_bytes(),
        };
        let end = |behind: usize| match inside.get(behind) {
            Some(_) => extent(behind).offset_bytes,
            None => part.end_bytes(),
        };
        // The volumes from `first` up to `behind` go; with each that goes the piece grows.
        let mut behind = 0;
        let mut price = 0;
        for first in 0..=inside.len() {
            if behind < first {
                behind = first;
                price = 0;
            }
            while end(behind).saturating_sub(begin(first)) < gross && behind < inside.len() {
                price += cost(inside[behind]);
                behind += 1;
            }
            let length = end(behind).saturating_sub(begin(first));
            if length >= gross && best.as_ref().is_none_or(|(least, ..)| price < *least) {
                let extent = Extent {
                    offset_bytes: begin(first),
                    length_bytes: gross,
                };
                let gone = inside[first..behind].iter().filter(|h| !h.is_leaving);
                best = Some((price, extent, gone.copied().collect()));
            }
            if first < behind {
                price -= cost(inside[first]);
            }
        }
    }
    best.map(|(_, extent, gone)| (extent, gone))
}

/// Returns volumes that take enough together, with as few bytes as can be.
fn pieces<'h>(usage: &RegionUsage, ours: &[&'h Held], gross: u64) -> Option<Vec<&'h Held>> {
    let leaving = ours.iter().filter(|held| held.is_leaving);
    let leaving: u64 = leaving.map(|held| held.taken.gross_bytes).sum();
    let free = usage.free_bytes().saturating_add(leaving);
    let Some(missing) = gross.checked_sub(free).filter(|missing| *missing > 0) else {
        return Some(Vec::new());
    };
    let mut ours: Vec<&Held> = ours.iter().filter(|h| !h.is_leaving).copied().collect();
    ours.sort_by_key(|held| (held.taken.gross_bytes, held.volume.clone()));
    let total: u64 = ours.iter().map(|held| held.taken.gross_bytes).sum();
    if total < missing {
        return None;
    }
    if ours.len() <= EXACT_MAX {
        return Some(fewest_bytes(&ours, missing));
    }
    // Take everything, and let stay what need not go, the largest first.
    let mut gone = ours.clone();
    let mut sum = total;
    for held in ours.iter().rev() {
        if sum - held.taken.gross_bytes >= missing {
            sum -= held.taken.gross_bytes;
            gone.retain(|other| other.volume != held.volume);
        }
    }
    // One alone may do it with less.
    let alone = ours.iter().find(|h| h.taken.gross_bytes >= missing);
    Some(match alone.filter(|h| h.taken.gross_bytes < sum) {
        Some(held) => vec![held],
        None => gone,
    })
}

fn fewest_bytes<'h>(ours: &[&'h Held], missing: u64) -> Vec<&'h Held> {
    let chosen = |set: u32| {
        let all = ours.iter().enumerate();
        all.filter(move |(at, _)| set & (1 << at) != 0)
            .map(|(_, held)| *held)
    };
    let sum = |set: &u32| chosen(*set).map(|held| held.taken.gross_bytes).sum::<u64>();
    let sets = (0..1_u32 << ours.len()).filter(|set| sum(set) >= missing);
    let best = sets.min_by_key(|set| (sum(set), set.count_ones()));
    chosen(best.unwrap_or(0)).collect()
}

/// Returns where pieces come to lie that are placed again one after the other, in the first hole
/// that has space for each; nothing for one that has none. What lies fast is in `fixed`.
#[must_use]
pub fn repack(usage: &RegionUsage, fixed: &[Taken], lengths: &[u64]) -> Vec<Option<Extent>> {
    let mut taken = fixed.to_vec();
    let places = lengths.iter().map(|length| {
        let free = usage.region.free(&taken);
        let extent = super::first_fit(&free, *length);
        taken.extend(extent.map(|extent| Taken {
            gross_bytes: *length,
            extent: Some(extent),
        }));
        extent
    });
    places.collect()
}
