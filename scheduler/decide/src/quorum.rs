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
}
