//! The giving out of functions to requests, as a maximum flow from kinds of request to supplies.
//!
//! Invariant: no supply gives more than it has, and no kind of request gets more than it requests.

/// How many functions of each supply each kind of request gets.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    kinds: usize,
    /// By supply, then by kind of request.
    given: Vec<u32>,
    /// What is left of each supply.
    left: Vec<u32>,
    /// What is still missing of each kind.
    pub(super) unmet: Vec<u32>,
    /// How each kind was reached: by which other one, over which supply.
    via: Vec<(usize, usize)>,
}

impl Flow {
    pub(super) fn new(requested: &[u32], supplies: impl Iterator<Item = u32>) -> Self {
        let left: Vec<u32> = supplies.collect();
        Self {
            kinds: requested.len(),
            given: vec![0; left.len() * requested.len()],
            left,
            unmet: requested.to_vec(),
            via: vec![(0, 0); requested.len()],
        }
    }

    /// Returns how many functions of a supply a kind of request gets.
    pub(super) fn given(&self, supply: usize, kind: usize) -> u32 {
        self.given[supply * self.kinds + kind]
    }

    /// Returns how many functions of a supply are given out.
    pub(super) fn used(&self, supply: usize) -> u32 {
        let start = supply * self.kinds;
        self.given[start..start + self.kinds].iter().sum()
    }

    /// Returns how many functions are missing.
    pub(super) fn missing(&self) -> u64 {
        self.unmet.iter().map(|n| u64::from(*n)).sum()
    }

    /// Gives out as much as is possible, where `allowed` gives which kinds of request each supply
    /// may be given to. What is given out already stays so, if perhaps to others. Returns the
    /// kinds that lack something together, as bits: nothing more is allowed to any of them.
    pub(super) fn fill(&mut self, allowed: &[u64]) -> u64 {
        let mut lacking = 0;
        for kind in 0..self.kinds {
            while self.unmet[kind] > 0 {
                if let Err(reached) = self.augment(kind, allowed) {
                    lacking |= reached;
                    break;
                }
            }
        }
        lacking
    }

    /// Gives something to a kind, over others that can do without; or returns which kinds it would
    /// have to take it from.
    fn augment(&mut self, start: usize, allowed: &[u64]) -> Result<(), u64> {
        let mut reached = 1_u64 << start;
        let mut queue = reached;
        while queue != 0 {
            let kind = queue.trailing_zeros() as usize;
            queue &= queue - 1;
            for (supply, kinds) in allowed.iter().enumerate() {
                if kinds & (1 << kind) == 0 {
                    continue;
                }
                if self.left[supply] > 0 {
                    self.shift(start, kind, supply);
                    return Ok(());
                }
                for other in 0..self.kinds {
                    let bit = 1 << other;
                    if reached & bit == 0 && self.given(supply, other) > 0 {
                        reached |= bit;
                        queue |= bit;
                        self.via[other] = (kind, supply);
                    }
                }
            }
        }
        Err(reached)
    }

    /// Gives functions of `supply` to `end`, and what that can spare for it along the way to
    /// `start`.
    fn shift(&mut self, start: usize, end: usize, supply: usize) {
        let mut amount = self.unmet[start].min(self.left[supply]);
        let mut kind = end;
        while kind != start {
            let (before, over) = self.via[kind];
            amount = amount.min(self.given(over, kind));
            kind = before;
        }
        self.left[supply] -= amount;
        self.unmet[start] -= amount;
        let mut gained = supply;
        let mut kind = end;
        loop {
            self.given[gained * self.kinds + kind] += amount;
            if kind == start {
                break;
            }
            let (before, over) = self.via[kind];
            self.given[over * self.kinds + kind] -= amount;
            gained = over;
            kind = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a request gives way to one that has no choice. Method: two kinds, two supplies.
    #[test]
    fn requests_give_way() {
        let mut flow = Flow::new(&[1, 1], [1, 1].into_iter());
        assert_eq!(flow.fill(&[0b11, 0b01]), 0);
        assert_eq!((flow.given(1, 0), flow.given(0, 1)), (1, 1));
        assert_eq!(flow.missing(), 0);
    }

    /// Goal: what is lacking is reported with all that compete for it.
    #[test]
    fn kinds_that_lack_functions_are_reported() {
        let mut flow = Flow::new(&[2, 2, 1], [3, 5].into_iter());
        assert_eq!(flow.fill(&[0b011, 0b100]), 0b011);
        assert_eq!(flow.missing(), 1);
        assert_eq!(flow.used(0), 3);
        assert_eq!(flow.used(1), 1);
    }
}
