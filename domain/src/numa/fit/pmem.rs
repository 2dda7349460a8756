//! Which namespaces of persistent memory a guest gets, and which host cells are near to them.
//!
//! All of a guest's devices belong to its cell 0, so nearness is that of one host cell; what else
//! it is to be near to (volumes, which lie fast) is added to that of the devices. Where it sits
//! there, each device gets the nearest free namespace that answers; of equally near ones the
//! smallest, of those the first by name. Requests either are all for one shape per class or for
//! any, so that taking the nearest for each one after the other also makes the sum of distances
//! least.

use std::collections::{BTreeMap, BTreeSet};

use super::ExactDemand;
use crate::numa::HostUsage;
use crate::pmem::{PmemDemand, PmemDevice, PmemNamespace, PmemNumaPolicy, PmemRequest};
use crate::topology::{CellId, HostTopology};

/// How far a namespace is whose cell the host does not report: farther than any other.
const FAR: u64 = u32::MAX as u64 + 1;

/// The namespaces of a host that are free.
pub(super) struct Supply<'a> {
    topology: &'a HostTopology,
    demand: &'a PmemDemand,
    /// What lies fast that it is to be near to.
    near: &'a [CellId],
    free: Vec<&'a PmemNamespace>,
}

/// What a guest gets whose cell 0 is on some host cell.
pub(super) struct Given {
    pub(super) devices: Vec<PmemDevice>,
    /// The sum of the distances.
    distance: u64,
}

impl<'a> Supply<'a> {
    pub(super) fn new(
        topology: &'a HostTopology,
        usage: &'a HostUsage,
        demand: &ExactDemand<'a>,
    ) -> Self {
        let all = topology.pmem().iter();
        let free = all.filter(|n| n.trouble.is_empty() && !usage.pmem.contains(&n.name));
        Self {
            topology,
            demand: demand.pmem,
            near: demand.near,
            free: free.collect(),
        }
    }

    /// Returns the positions of the host cells beside which there is enough, those that are equally
    /// near together, the nearest first.
    pub(super) fn homes(&self) -> Vec<BTreeSet<usize>> {
        let mut homes: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        for home in 0..self.topology.cells().len() {
            if let Some(given) = self.give(home) {
                homes.entry(given.distance).or_default().insert(home);
            }
        }
        homes.into_values().collect()
    }

    /// Returns what a guest gets whose cell 0 is on the host cell at this position.
    pub(super) fn give(&self, home: usize) -> Option<Given> {
        let mut left = self.free.clone();
        let mut given = Given {
            devices: Vec::new(),
            distance: self
                .near
                .iter()
                .map(|cell| self.between(home, Some(*cell)))
                .sum(),
        };
        for request in &self.demand.requests {
            let all = left.iter().enumerate();
            let allowed = all.filter(|(_, n)| request.accepts(n) && self.allows(home, n));
            let nearest = allowed.min_by_key(|(_, n)| (self.distance(home, n), n.size_bytes));
            let namespace = left.remove(nearest?.0);
            given.distance += self.distance(home, namespace);
            given.devices.push(namespace.into());
        }
        Some(given)
    }

    /// Returns the request that lacks most, how many of its kind are requested, and how many there
    /// are; where nearness is required, beside the host cell that has most.
    ///
    /// # Panics
    ///
    /// When nothing is requested.
    pub(super) fn shortage(&self) -> (&'a PmemRequest, u64, u64) {
        let kinds: BTreeSet<&PmemRequest> = self.demand.requests.iter().collect();
        let lacks = kinds.into_iter().map(|kind| {
            let requested = self.demand.requests.iter().filter(|r| *r == kind).count() as u64;
            let answers: Vec<_> = self.free.iter().filter(|n| kind.accepts(n)).collect();
            let beside = |home| answers.iter().filter(|n| self.allows(home, n)).count() as u64;
            let most = (0..self.topology.cells().len()).map(beside).max();
            (kind, requested, most.unwrap_or(0))
        });
        let most = lacks.max_by_key(|(_, requested, there)| requested.saturating_sub(*there));
        most.expect("at least one namespace is requested")
    }

    fn allows(&self, home: usize, namespace: &PmemNamespace) -> bool {
        match self.demand.policy {
            PmemNumaPolicy::Preferred => true,
            PmemNumaPolicy::Required => self.position(namespace) == Some(home),
        }
    }

    fn distance(&self, home: usize, namespace: &PmemNamespace) -> u64 {
        self.between(home, namespace.cell)
    }

    fn between(&self, home: usize, cell: Option<CellId>) -> u64 {
        let position = cell.and_then(|cell| self.topology.position(cell));
        position.map_or(FAR, |at| self.topology.distances()[home][at].into())
    }

    fn position(&self, namespace: &PmemNamespace) -> Option<usize> {
        self.topology.position(namespace.cell?)
    }
}
