//! Whether the members that answer are a quorum without one that is to be removed.
//!
//! Raft itself removes any voter that a quorum of the others agrees to, also one of the last that
//! answer. What is left then decides on nothing more, not even on the next removal.

use std::collections::BTreeSet;

use berth_domain::refusal::{Code, Refusal};

/// Returns whether a member may be removed, of these voters of which so many answer.
///
/// # Errors
///
/// When the voters that remain and answer would be no quorum. Removing one that does not answer is
/// never refused while there is a quorum.
pub fn may_remove(
    voters: &BTreeSet<u64>,
    active: &BTreeSet<u64>,
    member: u64,
) -> Result<(), Refusal> {
    let remaining: BTreeSet<u64> = voters.iter().copied().filter(|id| *id != member).collect();
    let silent: Vec<u64> = remaining.difference(active).copied().collect();
    let needed = remaining.len() / 2 + 1;
    let answering = remaining.len() - silent.len();
    if !voters.contains(&member) || remaining.is_empty() || answering >= needed {
        return Ok(());
    }
    let list: Vec<String> = silent.iter().map(u64::to_string).collect();
    let list = list.join(", ");
    Err(Refusal::new(
        Code::FailedPrecondition,
        "QUORUM_WOULD_BE_LOST",
        format!(
            "without member {member}, {answering} of {} voters would answer, and a quorum is \
             {needed} of them; not answering: {list}",
            remaining.len()
        ),
    )
    .with_hint(format!(
        "start what does not answer (member {list}) again, or remove it first if its disk is lost"
    ))
    .with("member", member)
    .with("silent", list))
}

/// Returns how many more voters may fail, of these voters of which so many answer; nothing if they are no
/// quorum.
#[must_use]
pub fn failures_tolerated(voters: &BTreeSet<u64>, active: &BTreeSet<u64>) -> Option<usize> {
    let needed = voters.len() / 2 + 1;
    voters.intersection(active).count().checked_sub(needed)
}

/// Returns the voter to remove next, of those that are dead: without the dead ones the others must
/// tolerate more failures than with them. A dead voter of three is kept: two alone tolerate no failure
/// either, and it may come back.
#[must_use]
pub fn to_remove(
    voters: &BTreeSet<u64>,
    active: &BTreeSet<u64>,
    dead: &BTreeSet<u64>,
) -> Option<u64> {
    let before = failures_tolerated(voters, active)?;
    let dead: BTreeSet<u64> = dead.difference(active).copied().collect();
    let remaining: BTreeSet<u64> = voters.difference(&dead).copied().collect();
    let after = failures_tolerated(&remaining, active)?;
    let mut dead = voters.intersection(&dead).copied();
    let next = dead.find(|id| may_remove(voters, active, *id).is_ok());
    next.filter(|_| after > before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bits: u64) -> BTreeSet<u64> {
        (1..=7).filter(|id| bits & (1 << id) != 0).collect()
    }

    fn is_quorum(of: &BTreeSet<u64>, active: &BTreeSet<u64>) -> bool {
        of.intersection(active).count() > of.len() / 2
    }

    /// Goal: no removal that is allowed costs the quorum, none that keeps it is refused, and doing what
    /// the hint says helps. Method: all groups of up to seven voters, all of which any may answer.
    #[test]
    fn a_removal_never_costs_the_quorum() {
        let mut refused = 0;
        for voters in (1..=7).map(|size| set((1 << (size + 1)) - 2)) {
            let groups = (0..128).map(|bits| set(bits << 1));
            for active in groups.filter(|active| is_quorum(&voters, active)) {
                for member in &voters {
                    let mut left = voters.clone();
                    left.remove(member);
                    let keeps = left.is_empty() || is_quorum(&left, &active);
                    let allowed = may_remove(&voters, &active, *member);
                    assert_eq!(allowed.is_ok(), keeps, "{voters:?} {active:?} {member}");
                    let Err(refusal) = allowed else { continue };
                    refused += 1;
                    // The hint: the silent ones are removed first, one after the other.
                    let silent = refusal.metadata["silent"].split(", ");
                    let mut voters = voters.clone();
                    for id in silent.map(|id| id.parse().expect("an id")) {
                        assert_eq!(may_remove(&voters, &active, id), Ok(()));
                        voters.remove(&id);
                    }
                    assert_eq!(may_remove(&voters, &active, *member), Ok(()));
                }
            }
        }
        assert!(refused > 100, "{refused}");
    }

    /// Goal: removing dead voters ends with more failures tolerated than before, never costs the quorum on
    /// the way, and removes none that answers. Method: all groups of up to seven voters x all that answer x
    /// all that are dead, until nothing is removed any more.
    #[test]
    fn dead_voters_are_removed_where_that_helps() {
        let (mut helped, mut kept) = (0, 0);
        for voters in (1..=7).map(|size| set((1 << (size + 1)) - 2)) {
            for active in (0..128).map(|bits| set(bits << 1)) {
                for dead in (0..128).map(|bits| set(bits << 1)) {
                    let before = failures_tolerated(&voters, &active);
                    assert_eq!(before.is_some(), is_quorum(&voters, &active));
                    let mut left = voters.clone();
                    while let Some(id) = to_remove(&left, &active, &dead) {
                        assert!(dead.contains(&id) && !active.contains(&id), "{id}");
                        assert!(left.remove(&id), "{id} is a voter");
                        assert!(is_quorum(&left, &active), "{voters:?} {active:?} {dead:?}");
                    }
                    let after = failures_tolerated(&left, &active);
                    match left == voters {
                        true => kept += 1,
                        false => {
                            assert!(after > before, "{voters:?} {active:?} {dead:?}");
                            helped += 1;
                        }
                    }
                }
            }
        }
        assert!(helped > 1000 && kept > 1000, "{helped} {kept}");
    }

    #[test]
    fn a_dead_voter_of_three_is_kept_and_one_of_four_is_not() {
        let (three, four) = (set(0b1110), set(0b1_1110));
        let dead = set(0b1000);
        assert_eq!(to_remove(&three, &set(0b0110), &dead), None);
        assert_eq!(to_remove(&four, &set(0b1_0110), &dead), Some(3));
        assert_eq!(failures_tolerated(&four, &set(0b1_0110)), Some(0));
        assert_eq!(failures_tolerated(&set(0b1_0110), &set(0b1_0110)), Some(1));
    }
}
