//! The matching of guest cells to distinct host cells.
//!
//! Host cells are offered one after the other, the most preferred first; one is kept if the guest
//! cells matched so far can be moved about so that it is used too (an augmenting path). The sets
//! of host cells that can be used together form a matroid, so this greedy order uses the most
//! preferred set there is, and finds a full matching exactly if there is one. Its cost is at most
//! the number of host cells times the size of the table.

/// Which guest cell fits on which host cell, by position: one row of bits per guest cell.
#[derive(Clone, Debug)]
pub(super) struct Table {
    guests: usize,
    hosts: usize,
    words: usize,
    rows: Vec<u64>,
}

impl Table {
    /// Returns the table of what `fits`; `is_as_before` holds of a guest cell that needs what the one
    /// before it needs.
    pub(super) fn new(
        guests: usize,
        hosts: usize,
        is_as_before: impl Fn(usize) -> bool,
        fits: impl Fn(usize, usize) -> bool,
    ) -> Self {
        let words = hosts.div_ceil(64);
        let mut rows = vec![0; guests * words];
        for guest in 0..guests {
            if is_as_before(guest) {
                rows.copy_within((guest - 1) * words..guest * words, guest * words);
                continue;
            }
            for host in 0..hosts {
                let bit = u64::from(fits(guest, host)) << (host % 64);
                rows[guest * words + host / 64] |= bit;
            }
        }
        Self {
            guests,
            hosts,
            words,
            rows,
        }
    }

    pub(super) fn guests(&self) -> usize {
        self.guests
    }

    pub(super) fn fits(&self, guest: usize, host: usize) -> bool {
        self.rows[guest * self.words + host / 64] & (1 << (host % 64)) != 0
    }

    /// Returns the host cells on which a guest cell fits.
    pub(super) fn hosts(&self, guest: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.hosts).filter(move |host| self.fits(guest, *host))
    }

    /// Returns whether any guest cell fits on a host cell.
    pub(super) fn is_used(&self, host: usize) -> bool {
        (0..self.guests).any(|guest| self.fits(guest, host))
    }

    /// Returns whether the same guest cells fit on both host cells.
    pub(super) fn are_alike(&self, host: usize, other: usize) -> bool {
        (0..self.guests).all(|guest| self.fits(guest, host) == self.fits(guest, other))
    }

    /// Keeps of the host cells on which a guest cell fits those for which `keep` holds.
    pub(super) fn retain(&mut self, guest: usize, keep: impl Fn(usize) -> bool) {
        for host in (0..self.hosts).filter(|host| !keep(*host)) {
            self.rows[guest * self.words + host / 64] &= !(1 << (host % 64));
        }
    }

    /// Returns a guest cell that fits nowhere.
    pub(super) fn homeless(&self) -> Option<usize> {
        let is_homeless = |guest: &usize| {
            let row = &self.rows[guest * self.words..(guest + 1) * self.words];
            row.iter().all(|word| *word == 0)
        };
        (0..self.guests).find(is_homeless)
    }
}

/// In which order host cells are preferred.
#[derive(Clone, Debug)]
pub(super) struct Order<'a> {
    /// By position; the greatest first.
    pub(super) keys: Vec<(i64, i64, i64)>,
    /// Of equal ones, that nearest to the cells already used goes first, then the lowest position.
    pub(super) distances: &'a [Vec<u32>],
}

/// Guest cells that have fewer host cells among them than they are (Hall's condition broken).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violator {
    /// By position, ascending.
    pub(super) guests: Vec<usize>,
    /// All host cells on which any of them fits, ascending.
    pub(super) hosts: Vec<usize>,
}

/// Returns the host cell of each guest cell. The host cells `first` are used in any case.
///
/// # Panics
///
/// When `first` cannot be used together.
pub(super) fn solve(
    table: &Table,
    order: &Order<'_>,
    first: &[usize],
) -> Result<Vec<usize>, Violator> {
    let mut search = Search {
        table,
        host_of: vec![NONE; table.guests],
        guest_of: vec![NONE; table.hosts],
        visited: vec![false; table.guests],
    };
    let mut offered = vec![false; table.hosts];
    let mut apart = vec![0_u64; table.hosts];
    let mut matched = 0;
    let mut firsts = first.iter().copied();
    while matched < table.guests {
        let first = firsts.next();
        let next = first.or_else(|| {
            (0..table.hosts)
                .filter(|h| !offered[*h])
                .max_by_key(|h| (order.keys[*h], std::cmp::Reverse((apart[*h], *h))))
        });
        let Some(host) = next else {
            return Err(search.violator());
        };
        offered[host] = true;
        search.visited.fill(false);
        let is_used = search.augment(host);
        assert!(is_used || first.is_none(), "these can be used together");
        if is_used {
            matched += 1;
            for (other, sum) in apart.iter_mut().enumerate() {
                *sum += u64::from(order.distances[host][other]);
            }
        }
    }
    Ok(search.host_of)
}

/// No partner.
const NONE: usize = usize::MAX;

struct Search<'a> {
    table: &'a Table,
    host_of: Vec<usize>,
    guest_of: Vec<usize>,
    visited: Vec<bool>,
}

impl Search<'_> {
    /// Uses `host` in addition to those used already, if that is possible. The recursion is as
    /// deep as there are guest cells, at most.
    fn augment(&mut self, host: usize) -> bool {
        let unmatched =
            (0..self.table.guests).find(|g| self.host_of[*g] == NONE && self.table.fits(*g, host));
        if let Some(guest) = unmatched {
            self.pair(guest, host);
            return true;
        }
        for guest in 0..self.table.guests {
            if self.visited[guest] || !self.table.fits(guest, host) {
                continue;
            }
            self.visited[guest] = true;
            // The unmatched ones were tried.
            let other = self.host_of[guest];
            if self.augment(other) {
                self.pair(guest, host);
                return true;
            }
        }
        false
    }

    fn pair(&mut self, guest: usize, host: usize) {
        self.host_of[guest] = host;
        self.guest_of[host] = guest;
    }

    /// Returns the guest cells that are reached from an unmatched one by alternating paths. The
    /// matching is as large as it can be, so every host cell that is met belongs to one of them.
    fn violator(&self) -> Violator {
        let start = (0..self.table.guests)
            .find(|g| self.host_of[*g] == NONE)
            .expect("a full matching violates nothing");
        let mut guests = vec![start];
        let mut hosts = Vec::new();
        let mut next = 0;
        while let Some(&guest) = guests.get(next) {
            next += 1;
            for host in self.table.hosts(guest) {
                if hosts.contains(&host) {
                    continue;
                }
                hosts.push(host);
                let owner = self.guest_of[host];
                assert_ne!(owner, NONE, "the matching is maximal");
                if !guests.contains(&owner) {
                    guests.push(owner);
                }
            }
        }
        guests.sort_unstable();
        hosts.sort_unstable();
        Violator { guests, hosts }
    }
}

/// The most guest cells and host cells that [`is_full`] takes.
pub(super) const NARROW: usize = 64;

/// Returns whether every guest cell can have a host cell of its own: that alone, without saying
/// which, and without memory from the heap. One row of bits per guest cell, at most [`NARROW`].
pub(super) fn is_full(rows: &[u64]) -> bool {
    let mut owners = [0_u8; NARROW];
    let mut used = 0;
    (0..rows.len()).all(|guest| settle(rows, guest, &mut owners, &mut used, &mut 0))
}

fn settle(
    rows: &[u64],
    guest: usize,
    owners: &mut [u8; NARROW],
    used: &mut u64,
    visited: &mut u64,
) -> bool {
    let free = rows[guest] & !*used;
    let index = u8::try_from(guest).expect("there are at most as many guest cells");
    if free != 0 {
        let host = free.trailing_zeros();
        *used |= 1 << host;
        owners[host as usize] = index;
        return true;
    }
    loop {
        let next = rows[guest] & !*visited;
        if next == 0 {
            return false;
        }
        let host = next.trailing_zeros();
        *visited |= 1 << host;
        let owner = usize::from(owners[host as usize]);
        if settle(rows, owner, owners, used, visited) {
            owners[host as usize] = index;
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn permutations(table: &Table, guest: usize, used: &mut Vec<usize>, out: &mut Vec<Vec<usize>>) {
        if guest == table.guests {
            out.push(used.clone());
            return;
        }
        for host in table.hosts(guest) {
            if !used.contains(&host) {
                used.push(host);
                permutations(table, guest + 1, used, out);
                used.pop();
            }
        }
    }

    proptest! {
        /// Goal: a matching is found exactly if there is one, and it uses the most preferred
        /// hosts; else the violator proves that there is none. Method: all injective maps.
        #[test]
        fn agrees_with_trying_all_maps(
            guests in 1_usize..5,
            hosts in 1_usize..6,
            bits in proptest::collection::vec(proptest::bool::weighted(0.45), 24),
            keys in proptest::collection::vec(0_i64..3, 6),
        ) {
            let table = Table::new(guests, hosts, |_| false, |g, h| bits[g * hosts + h]);
            let distances = vec![vec![10; hosts]; hosts];
            let order = Order {
                keys: keys[..hosts].iter().map(|k| (*k, 0, 0)).collect(),
                distances: &distances,
            };
            let mut all = Vec::new();
            permutations(&table, 0, &mut Vec::new(), &mut all);
            let preference = |map: &[usize]| {
                let mut used: Vec<_> = map.iter().map(|h| keys[*h]).collect();
                used.sort_unstable_by(|a, b| b.cmp(a));
                used
            };
            prop_assert_eq!(is_full(&table.rows), !all.is_empty());
            match solve(&table, &order, &[]) {
                Ok(map) => {
                    prop_assert!(all.contains(&map));
                    let best = all.iter().map(|m| preference(m)).max().unwrap();
                    prop_assert_eq!(preference(&map), best);
                }
                Err(violator) => {
                    prop_assert!(all.is_empty());
                    prop_assert!(violator.hosts.len() < violator.guests.len());
                    for guest in &violator.guests {
                        for host in table.hosts(*guest) {
                            prop_assert!(violator.hosts.contains(&host));
                        }
                    }
                }
            }
        }
    }

    /// Goal: of cells that are equally good, neighbours are taken together. Method: two pairs.
    #[test]
    fn near_cells_go_together() {
        let near = |a: usize, b: usize| {
            if a == b {
                10
            } else if a / 2 == b / 2 {
                12
            } else {
                20
            }
        };
        let distances: Vec<Vec<u32>> = (0..4)
            .map(|a| (0..4).map(|b| near(a, b)).collect())
            .collect();
        let order = Order {
            keys: vec![(0, 0, 0), (0, 0, 0), (0, 0, 0), (1, 0, 0)],
            distances: &distances,
        };
        let table = Table::new(2, 4, |guest| guest > 0, |_, _| true);
        assert_eq!(solve(&table, &order, &[]), Ok(vec![3, 2]));
        assert_eq!(solve(&table, &order, &[1]), Ok(vec![1, 3]));
    }
}
