//! Whether several volumes fit on one host together.
//!
//! They fit if there is an order in which they can be made, each in a region where it has space by
//! then. A sum is too weak (two volumes of 40 GiB are not 80 GiB in one piece), and the largest
//! free piece is too weak too (they may lie in two regions). So it is tried: first the largest
//! ones where they leave the least, then every order and every region, up to a bound.
//!
//! Invariant: "fits" is only returned once all of them were placed. Beyond the bound it is not
//! returned, though it may be so.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::{RegionUsage, Shown, Taken, gross_bytes};

/// The most volumes that are fitted together.
pub const FIT_MAX: usize = 64;

/// How many placements are tried for one host at most.
const TRIES_MAX: u32 = 4_000;

/// How volumes fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// How much is left in all, in bytes.
    pub left_bytes: u64,
    /// How well they fit, from 0 to 100: the less is left in the regions that they take, the more.
    pub score: u32,
}

/// Returns how volumes fit together of which so much is to be usable each.
///
/// # Errors
///
/// Why they do not fit, in a sentence.
pub fn fit(usages: &[RegionUsage], required_bytes: &[u64]) -> Result<Fit, String> {
    let mut sizes = required_bytes.to_vec();
    sizes.sort_unstable_by_key(|size| Reverse(*size));
    let spaces: Vec<Space> = usages
        .iter()
        .filter(|r| r.is_open())
        .map(Space::new)
        .collect();
    if sizes.is_empty() {
        return Ok(compare_spaces(&spaces, &spaces));
    }
    if let Some(why) = cannot(usages, &spaces, &sizes) {
        return Err(why);
    }
    let mut search = Search {
        tries: TRIES_MAX,
        dead: BTreeSet::new(),
    };
    let found = greedy(&spaces, &sizes).or_else(|| search.search(&spaces, &sizes));
    match found {
        Some(after) => Ok(compare_spaces(&spaces, &after)),
        None if search.tries == 0 => Err(format!(
            "no way was found to place the {} volumes together",
            sizes.len()
        )),
        None => Err(format!(
            "each of the {} volumes has room, but not all of them together",
            sizes.len()
        )),
    }
}

/// A region in which volumes are placed on trial.
#[derive(Clone)]
struct Space<'r> {
    usage: &'r RegionUsage,
    taken: Vec<Taken>,
    /// How much is free, in bytes.
    free_bytes: u64,
    is_used: bool,
}

impl<'r> Space<'r> {
    fn new(usage: &'r RegionUsage) -> Self {
        Self {
            usage,
            taken: usage.taken(),
            free_bytes: usage.free_bytes(),
            is_used: false,
        }
    }

    fn place(&self, size: u64) -> Option<Taken> {
        self.usage.region.place(size, &self.taken)
    }

    fn with(&self, taken: Taken) -> Self {
        let mut after = self.clone();
        after.taken.push(taken);
        after.free_bytes -= taken.gross_bytes;
        after.is_used = true;
        after
    }

    /// Returns a key by which two spaces give the same from now on.
    fn key(&self) -> Holes {
        let free = self.usage.region.free(&self.taken);
        let free = free
            .iter()
            .map(|hole| (hole.offset_bytes, hole.length_bytes));
        free.collect()
    }
}

/// Returns why they cannot fit where that is seen at once. The sizes begin with the largest.
fn cannot(usages: &[RegionUsage], spaces: &[Space<'_>], sizes: &[u64]) -> Option<String> {
    if usages.is_empty() {
        return Some("it has no region for volumes".to_owned());
    }
    let largest = spaces.iter().map(|s| s.usage.largest()).max().unwrap_or(0);
    if largest == 0 {
        let trouble = usages.iter().find(|usage| !usage.is_open());
        return Some(match trouble {
            Some(usage) => format!("region {}: {}", usage.name(), usage.region.trouble),
            None => "nothing is free in its regions".to_owned(),
        });
    }
    let most = sizes[0];
    if most > largest {
        let (largest, most) = (Shown(largest), Shown(most));
        let whole = match sizes.len() {
            1 => "",
            _ => " for one volume",
        };
        return Some(format!(
            "only {largest} of PMEM available{whole}, need {most}"
        ));
    }
    // The least that each takes, wherever that is.
    let least = |size: &u64| {
        let gross = spaces.iter().filter_map(|space| {
            let region = &space.usage.region;
            gross_bytes(region.mode, *size, region.align_bytes)
        });
        gross.min().unwrap_or(u64::MAX)
    };
    let needed = sizes.iter().map(least).fold(0, u64::saturating_add);
    let free = spaces.iter().map(|space| space.free_bytes);
    let free = free.fold(0, u64::saturating_add);
    (needed > free).then(|| {
        let (free, needed) = (Shown(free), Shown(needed));
        let volumes = sizes.len();
        format!("only {free} of PMEM available, need {needed} for {volumes} volumes")
    })
}

/// Places the largest first, each where it leaves the least.
fn greedy<'r>(spaces: &[Space<'r>], sizes: &[u64]) -> Option<Vec<Space<'r>>> {
    let mut spaces = spaces.to_vec();
    for size in sizes {
        let fitting = spaces.iter().enumerate();
        let fitting = fitting.filter_map(|(at, space)| Some((at, space.place(*size)?)));
        let left = |(at, taken): &(usize, Taken)| spaces[*at].free_bytes - taken.gross_bytes;
        let (at, taken) = fitting.min_by_key(left)?;
        spaces[at] = spaces[at].with(taken);
    }
    Some(spaces)
}

struct Search {
    /// How many placements may still be tried.
    tries: u32,
    /// What was found to lead nowhere: what is left to be placed, and what is free.
    dead: BTreeSet<(Vec<u64>, Vec<Holes>)>,
}

/// Where what is free begins, and how long it is.
type Holes = Vec<(u64, u64)>;

impl Search {
    /// Places what is left, in every order and everywhere; equal volumes are tried once.
    fn search<'r>(&mut self, spaces: &[Space<'r>], sizes: &[u64]) -> Option<Vec<Space<'r>>> {
        if sizes.is_empty() {
            return Some(spaces.to_vec());
        }
        let key = (sizes.to_vec(), spaces.iter().map(Space::key).collect());
        if self.dead.contains(&key) {
            return None;
        }
        for (index, size) in sizes.iter().enumerate() {
            if index > 0 && sizes[index - 1] == *size {
                continue;
            }
            let mut rest = sizes.to_vec();
            rest.remove(index);
            for (at, space) in spaces.iter().enumerate() {
                let Some(taken) = space.place(*size) else {
                    continue;
                };
                self.tries = self.tries.checked_sub(1)?;
                let mut after = spaces.to_vec();
                after[at] = space.with(taken);
                let found = self.search(&after, &rest);
                if found.is_some() || self.tries == 0 {
                    return found;
                }
            }
        }
        self.dead.insert(key);
        None
    }
}

fn compare_spaces(before: &[Space<'_>], after: &[Space<'_>]) -> Fit {
    let left = after.iter().map(|space| space.free_bytes);
    let used = || before.iter().zip(after).filter(|(_, after)| after.is_used);
    let had: u128 = used().map(|(b, _)| u128::from(b.free_bytes)).sum();
    let has: u128 = used().map(|(_, a)| u128::from(a.free_bytes)).sum();
    let score = match had {
        0 => 0,
        had => 100 - has * 100 / had,
    };
    Fit {
        left_bytes: left.fold(0, u64::saturating_add),
        score: u32::try_from(score).unwrap_or(100),
    }
}
