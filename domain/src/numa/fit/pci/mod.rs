//! Which PCI functions a guest gets, and near which host cells it must sit for that.
//!
//! A function's nearness is evaluated on the set of host cells that the guest sits on. Only two
//! things of that set matter: which cells with matching functions are in it, and which sockets with
//! such it touches. More of either never hurts. So a search adds what is missing, one cell or
//! socket at a time (`search`); for a given set, functions are given out by a maximum flow from
//! requests to kinds of functions (`flow`). A physical function and its virtual ones exclude each
//! other: where a flow uses both, the search tries the one without the other.
//!
//! | module | what |
//! |---|---|
//! | `supply` | the free functions of a host, by how they answer the requests |
//! | `flow` | the giving out of functions under a given set of cells |
//! | `search` | the set of cells |

mod flow;
mod search;
mod supply;

use std::collections::BTreeSet;

use super::matching::Table;
use crate::numa::HostUsage;
use crate::pci::{PCI_REQUESTS_MAX, PciAddress, PciNumaPolicy, PciRequest};
use crate::topology::HostTopology;

pub(super) use search::{Search, SearchResult};
pub(super) use supply::Supplies;

/// What a guest requests: equal requests are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// How many functions of each kind of request.
    counts: Vec<u32>,
    /// The first request of each kind.
    firsts: Vec<usize>,
    /// The kind of each request.
    kinds: Vec<usize>,
    /// The kinds of request under each policy, as bits.
    preferred: u64,
    legacy: u64,
    socket: u64,
}

impl Demand {
    /// Returns what these requests request together.
    ///
    /// # Panics
    ///
    /// When there are more than [`PCI_REQUESTS_MAX`]: those are refused where they enter.
    pub(super) fn new(requests: &[PciRequest]) -> Self {
        assert!(requests.len() <= PCI_REQUESTS_MAX, "few PCI requests");
        let mut demand = Self::default();
        for (index, request) in requests.iter().enumerate() {
            let same = |first: &usize| {
                let other = &requests[*first];
                other.policy == request.policy && other.any_of == request.any_of
            };
            let kind = demand.firsts.iter().position(same).unwrap_or_else(|| {
                let kind = demand.firsts.len();
                demand.firsts.push(index);
                demand.counts.push(0);
                match request.policy {
                    PciNumaPolicy::Required => {}
                    PciNumaPolicy::Preferred => demand.preferred |= 1 << kind,
                    PciNumaPolicy::Legacy => demand.legacy |= 1 << kind,
                    PciNumaPolicy::Socket => demand.socket |= 1 << kind,
                }
                kind
            });
            demand.kinds.push(kind);
            demand.counts[kind] = demand.counts[kind].saturating_add(request.count);
        }
        demand
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns how many functions of each kind are requested.
    pub(super) fn counts(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.counts.iter().copied().enumerate()
    }

    /// Returns the first request of each of these kinds.
    pub(super) fn firsts(&self, kinds: u64) -> impl Iterator<Item = usize> + '_ {
        let firsts = self.firsts.iter().copied().enumerate();
        firsts
            .filter(move |(kind, _)| kinds & (1 << kind) != 0)
            .map(|(_, first)| first)
    }

    /// Returns the functions for each request, given those for each kind of request.
    fn share(
        &self,
        requests: &[PciRequest],
        mut kinds: Vec<Vec<PciAddress>>,
    ) -> Vec<BTreeSet<PciAddress>> {
        let requests = requests.iter().zip(&self.kinds);
        requests
            .map(|(request, kind)| {
                let left = &mut kinds[*kind];
                let rest = left.split_off(request.count as usize);
                std::mem::replace(left, rest).into_iter().collect()
            })
            .collect()
    }
}

/// Everything that a search for PCI functions looks at.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) topology: &'a HostTopology,
    pub(super) usage: &'a HostUsage,
    pub(super) requests: &'a [PciRequest],
    pub(super) demand: &'a Demand,
    /// Absent for a guest without cells, which does not care where its functions are.
    pub(super) table: Option<&'a Table>,
}
