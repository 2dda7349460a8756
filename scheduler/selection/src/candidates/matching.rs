//! Whether open slots could all be filled at once, seen from one scarce thing at a time: places
//! where each group wants its own, and each class that several slots want.
//!
//! It errs on one side only: it never says "no" where there is a way. Where one thing is scarce
//! and all want the same of it, it never says "yes" where there is none.
//!
//! Method: bipartite matching of slots to places that hold so many slots (Kuhn's algorithm). A
//! slot that could go to at least as many places as there are slots never stands in the way, so
//! that only the others are looked at, with fewer places each than there are slots.

use std::collections::BTreeMap;

use crate::candidates::frame::{Choice, Frame};
use crate::candidates::plan::{Kind, Plan};

/// Returns whether nothing scarce keeps these slots from being filled.
pub(crate) fn could_fill(frame: &Frame, plan: &Plan, open: &[usize]) -> bool {
    if open.len() < 2 {
        return true;
    }
    let kinds = || open.iter().map(|slot| plan.slots[*slot].kind);
    if plan.isolate {
        let suffixed = kinds().filter(|kind| plan.kinds[*kind].suffixed);
        if !could_assign(frame, plan, suffixed, |_| 1) {
            return false;
        }
    }
    (0..plan.contended.len()).all(|class| {
        let wants = |kind: &usize| amount_of(&plan.kinds[*kind], class).is_some();
        let mut amounts: Vec<u64> = kinds()
            .filter_map(|kind| amount_of(&plan.kinds[kind], class))
            .collect();
        amounts.sort_unstable();
        let headroom = |choice: &Choice| {
            let first = choice.place as usize * plan.contended.len();
            frame.headroom[first + class]
        };
        amounts.len() < 2
            || could_assign(frame, plan, kinds().filter(wants), |choice| {
                held(&amounts, headroom(choice))
            })
    })
}

/// Returns how much a kind wants of a contended class.
fn amount_of(kind: &Kind, class: usize) -> Option<u64> {
    let mut demands = kind.demands.iter();
    demands
        .find(|d| d.contended as usize == class)
        .map(|d| d.amount)
}

/// Returns how many of these amounts, which ascend, fit into a room.
fn held(amounts: &[u64], headroom: u64) -> usize {
    let (least, most) = (amounts[0], amounts[amounts.len() - 1]);
    if least == most {
        let count = usize::try_from(headroom / least).unwrap_or(usize::MAX);
        return count.min(amounts.len());
    }
    let mut left = Some(headroom);
    let fits = |amount: &&u64| {
        left = left.and_then(|left| left.checked_sub(**amount));
        left.is_some()
    };
    amounts.iter().take_while(fits).count()
}

/// The slots of one kind, and where they could go.
struct SlotGroup {
    slots: usize,
    /// Places with how many slots they hold.
    places: Vec<(u32, usize)>,
}

/// Returns whether slots of these kinds could all go to places that hold so many of them.
fn could_assign(
    frame: &Frame,
    plan: &Plan,
    kinds: impl Iterator<Item = usize>,
    holds: impl Fn(&Choice) -> usize,
) -> bool {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for kind in kinds {
        *counts.entry(kind).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    if all < 2 {
        return true;
    }
    let mut groups: Vec<SlotGroup> = Vec::with_capacity(counts.len());
    for (kind, slots) in counts {
        let choices = frame.choices[kind].iter();
        let open = choices.filter(|c| frame.has_headroom(plan, &plan.kinds[kind], c));
        let places: Vec<_> = open.take(all).map(|c| (c.place, holds(c))).collect();
        if places.iter().map(|(_, holds)| *holds).sum::<usize>() < slots {
            // Counted to the end, unless there are so many places that they surely suffice.
            return false;
        }
        groups.push(SlotGroup { slots, places });
    }
    // A kind with as many places as there are slots goes last, and finds one.
    let mut open = all;
    loop {
        let before = open;
        groups.retain(|group| {
            let stays = group.places.len() < open;
            open -= if stays { 0 } else { group.slots };
            stays
        });
        if groups.len() < 2 || open == before {
            break;
        }
    }
    groups.len() < 2 || Assignment::default().holds_all(&groups)
}

/// Slots on their places while they are being matched.
#[derive(Default)]
struct Assignment {
    /// By place: the groups whose slots stand there.
    held: BTreeMap<u32, Vec<usize>>,
}

impl Assignment {
    fn holds_all(&mut self, groups: &[SlotGroup]) -> bool {
        let slots = groups
            .iter()
            .enumerate()
            .flat_map(|(at, group)| std::iter::repeat_n(at, group.slots));
        slots.into_iter().all(|group| {
            let mut visited = Vec::new();
            self.assign(groups, group, &mut visited)
        })
    }

    /// Finds a place for a slot, moving others where that helps.
    fn assign(&mut self, groups: &[SlotGroup], group: usize, visited: &mut Vec<u32>) -> bool {
        for (place, holds) in &groups[group].places {
            if visited.contains(place) {
                continue;
            }
            visited.push(*place);
            let held = self.held.entry(*place).or_default();
            if held.len() < *holds {
                held.push(group);
                return true;
            }
            for at in 0..held.len() {
                let other = self.held[place][at];
                // Slots of one group are alike: moving one for another changes nothing.
                if other != group && self.assign(groups, other, visited) {
                    self.held.entry(*place).or_default()[at] = group;
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds_all(groups: &[(usize, &[(u32, usize)])]) -> bool {
        let group = |(slots, places): &(usize, &[(u32, usize)])| SlotGroup {
            slots: *slots,
            places: places.to_vec(),
        };
        let groups: Vec<SlotGroup> = groups.iter().map(group).collect();
        Assignment::default().holds_all(&groups)
    }

    #[test]
    fn slots_are_moved_to_let_others_in() {
        // Two that could go to 1 or 2, and one that needs 1.
        assert!(holds_all(&[(1, &[(1, 1), (2, 1)]), (1, &[(1, 1)])]));
        assert!(!holds_all(&[(2, &[(1, 1), (2, 1)]), (1, &[(1, 1)])]));
        assert!(holds_all(&[(2, &[(1, 2), (2, 1)]), (1, &[(1, 2)])]));
        let chain: [(usize, &[(u32, usize)]); 3] = [
            (1, &[(1, 1), (2, 1)]),
            (1, &[(2, 1), (3, 1)]),
            (1, &[(1, 1), (2, 1)]),
        ];
        assert!(holds_all(&chain));
    }

    #[test]
    fn headroom_holds_so_many_of_the_smallest_amounts() {
        for (amounts, headroom, expected) in [
            (&[3, 3, 3][..], 8, 2),
            (&[3, 3][..], 80, 2),
            (&[1, 2, 5][..], 2, 1),
            (&[1, 2, 5][..], 8, 3),
            (&[4, 5][..], 3, 0),
        ] {
            assert_eq!(held(amounts, headroom), expected, "{amounts:?} {headroom}");
        }
    }
}
