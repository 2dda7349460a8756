//! The matching of guest cells to distinct host cells.
//!
//! Host cells are offered one after the other, the most preferred first; one is kept if the guest
//! cells matched so far can be moved about so that it is used too (an augmenting path). The sets
//! of host cells that can be used together form a matroid, so this greedy order uses the most
//! preferred set there is, and finds a full matching exactly if there is one. Its cost is at most
//! the number of host cells times the size of the table.

/// Which guest cell fits on which host cell, by position.
#[derive(Clone, Debug)]
pub(super) struct Table {
    guests: usize,
    hosts: usize,
    fits: Vec<bool>,
}

impl Table {
    pub(super) fn new(
        guests: usize,
        hosts: usize,
        mut fits: impl FnMut(usize, usize) -> bool,
    ) -> Self {
        let mut table = Vec::with_capacity(guests * hosts);
        for guest in 0..guests {
            for host in 0..hosts {
                table.push(fits(guest, host));
            }
        }
        Self {
            guests,
            hosts,
            fits: table,
        }
    }

    fn fits(&self, guest: usize, host: usize) -> bool {
        self.fits[guest * self.hosts + host]
    }

    /// Returns the host cells on which a guest cell fits.
    pub(super) fn hosts(&self, guest: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.hosts).filter(move |host| self.fits(guest, *host))
    }
}

/// In which order host cells are preferred.
#[derive(Clone, Debug)]
pub(super) struct Order<'a> {
    /// By position; the greatest first.
    pub(super) keys: Vec<(i64, i64)>,
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

/// Returns the host cell of each guest cell.
pub(super) fn solve(table: &Table, order: &Order<'_>) -> Result<Vec<usize>, Violator> {
    let mut search = Search {
        table,
        host_of: vec![None; table.guests],
        guest_of: vec![None; table.hosts],
        visited: vec![false; table.guests],
    };
    let mut offered = vec![false; table.hosts];
    let mut apart = vec![0_u64; table.hosts];
    let mut matched = 0;
    while matched < table.guests {
        let next = (0..table.hosts)
            .filter(|h| !offered[*h])
            .max_by_key(|h| (order.keys[*h], std::cmp::Reverse((apart[*h], *h))));
        let Some(host) = next else {
            return Err(search.violator());
        };
        offered[host] = true;
        search.visited.fill(false);
        if search.augment(host) {
            matched += 1;
            for (other, sum) in apart.iter_mut().enumerate() {
                *sum += u64::from(order.distances[host][other]);
            }
        }
    }
    let hosts = search.host_of.into_iter();
    Ok(hosts.map(|h| h.expect("every guest is matched")).collect())
}

struct Search<'a> {
    table: &'a Table,
    host_of: Vec<Option<usize>>,
    guest_of: Vec<Option<usize>>,
    visited: Vec<bool>,
}

impl Search<'_> {
    /// Uses `host` in addition to those used already, if that is possible. The recursion is as
    /// deep as there are guest cells, at most.
    fn augment(&mut self, host: usize) -> bool {
        let unmatched = (0..self.table.guests)
            .find(|g| self.host_of[*g].is_none() && self.table.fits(*g, host));
        if let Some(guest) = unmatched {
            self.pair(guest, host);
            return true;
        }
        for guest in 0..self.table.guests {
            if self.visited[guest] || !self.table.fits(guest, host) {
                continue;
            }
            self.visited[guest] = true;
            let other = self.host_of[guest].expect("the unmatched ones were tried");
            if self.augment(other) {
                self.pair(guest, host);
                return true;
            }
        }
        false
    }

    fn pair(&mut self, guest: usize, host: usize) {
        self.host_of[guest] = Some(host);
        self.guest_of[host] = Some(guest);
    }

    /// Returns the guest cells that are reached from an unmatched one by alternating paths. The
    /// matching is as large as it can be, so every host cell that is met belongs to one of them.
    fn violator(&self) -> Violator {
        let start = (0..self.table.guests)
            .find(|g| self.host_of[*g].is_none())
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
                let owner = self.guest_of[host].expect("the matching is maximal");
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
            let table = Table::new(guests, hosts, |g, h| bits[g * hosts + h]);
            let distances = vec![vec![10; hosts]; hosts];
            let order = Order {
                keys: keys[..hosts].iter().map(|k| (*k, 0)).collect(),
                distances: &distances,
            };
            let mut all = Vec::new();
            permutations(&table, 0, &mut Vec::new(), &mut all);
            let preference = |map: &[usize]| {
                let mut used: Vec<_> = map.iter().map(|h| keys[*h]).collect();
                used.sort_unstable_by(|a, b| b.cmp(a));
                used
            };
            match solve(&table, &order) {
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
            keys: vec![(0, 0), (0, 0), (0, 0), (1, 0)],
            distances: &distances,
        };
        let table = Table::new(2, 4, |_, _| true);
        assert_eq!(solve(&table, &order), Ok(vec![3, 2]));
    }
}
