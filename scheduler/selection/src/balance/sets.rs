//! Moves in sets that may be made at the same time.

use std::collections::BTreeMap;

use berth_domain::name::HostName;

/// Returns the set of each move, and how many sets there are: the first in which no move before it,
/// or beside it, touches its hosts. So a move that needs room which another frees comes after it.
pub(super) fn arrange<'a>(
    moves: impl IntoIterator<Item = (&'a HostName, &'a HostName)>,
) -> (Vec<usize>, usize) {
    let mut free_from: BTreeMap<&HostName, usize> = BTreeMap::new();
    let mut sets = Vec::new();
    for (from, to) in moves {
        let of = |host| free_from.get(host).copied().unwrap_or(0);
        let set = of(from).max(of(to));
        free_from.insert(from, set + 1);
        free_from.insert(to, set + 1);
        sets.push(set);
    }
    let count = sets.iter().max().map_or(0, |last| last + 1);
    (sets, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_that_share_a_host_keep_their_order() {
        let name = |text: &str| HostName::new(text).unwrap();
        let hosts = ["a", "b", "c", "d", "e"].map(name);
        let of = |moves: &[(usize, usize)]| {
            arrange(moves.iter().map(|(from, to)| (&hosts[*from], &hosts[*to])))
        };
        assert_eq!(of(&[]), (vec![], 0));
        assert_eq!(of(&[(0, 1), (2, 3)]), (vec![0, 0], 1));
        assert_eq!(of(&[(0, 1), (1, 2), (3, 4), (4, 0)]), (vec![0, 1, 0, 1], 2));
    }
}
