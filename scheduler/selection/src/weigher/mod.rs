//! The order of the hosts that the filters let through: the sum of what the weighers say, each
//! from 0 to 65,535 times its weight, and turns where that is equal.
//!
//! Invariant: a total order that depends on the host and the request alone, never on the order in
//! which hosts are looked at.

pub mod affinity;
pub mod fragmentation;
pub mod load;
pub mod numa;
pub mod pci;
pub mod storage;
pub mod turn;

use berth_domain::audit::Points;
use berth_domain::host_view::HostView;
use berth_domain::policy::SchedulingPolicy;

pub use affinity::AffinityScore;

use crate::minimum_demand::MinimumDemand;
use crate::request::Request;

/// How good a host is; the greater the better. Whether it sees the guest's disks, above what the
/// weighers say, above 64 bits of turn, which differ from host to host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score(u128);

impl Score {
    /// No host is worse.
    pub const WORST: Self = Self(0);
}

/// What the weighers know of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    loads: load::Loads,
    /// All dedicated CPUs of the greatest cell.
    cell: u16,
    /// Free PCI functions.
    pci: u16,
    /// Stands for its storage of guest disks.
    storage: u64,
    /// Stands for the host's name.
    key: u64,
}

impl Facts {
    /// Returns what they know of this host.
    #[must_use]
    pub fn of(view: &HostView) -> Self {
        let greatest = view.cells().map(|cell| cell.dedicated_all).max();
        Self {
            loads: load::Loads::from_headroom(&view.headroom),
            cell: u16::try_from(greatest.unwrap_or(0)).unwrap_or(u16::MAX),
            pci: u16::try_from(view.headroom.pci).unwrap_or(u16::MAX),
            storage: storage::key(&view.host.report.storage_id),
            key: turn::key(&view.host.name),
        }
    }
}

/// The weighers for one request.
#[derive(Clone, Debug)]
pub struct Weighing {
    policy: SchedulingPolicy,
    counted: load::ResourceMask,
    /// Dedicated CPUs of the guest's greatest cell.
    taken: u16,
    requests_pci: bool,
    /// Where the disks of a running guest are.
    storage: Option<u64>,
    affinity: AffinityScore,
    seed: u64,
}

impl Weighing {
    /// Returns the weighers for a request.
    #[must_use]
    pub fn new(request: &Request, demand: &MinimumDemand, affinity: AffinityScore) -> Self {
        Self {
            affinity,
            policy: request.policy.clone(),
            counted: load::Loads::mask(demand),
            taken: u16::try_from(demand.dedicated_max).unwrap_or(u16::MAX),
            requests_pci: !request.demand.pci.is_empty(),
            storage: storage::of_guest(&request.demand),
            seed: turn::seed(request.seed),
        }
    }

    /// Returns how good the host at a place of the table is, where so many dedicated CPUs would be left
    /// of the cell that the guest's greatest one goes to.
    #[must_use]
    pub fn score(&self, place: usize, facts: &Facts, left: u16) -> Score {
        let mut sum = 0;
        self.for_each_weigher(place, facts, left, |_, weight, value| {
            sum += u32::from(weight) * u32::from(value);
        });
        let turn = turn::weigh(facts.key, self.seed);
        let shares = self.storage.is_none_or(|storage| storage == facts.storage);
        Score(u128::from(shares) << 96 | u128::from(sum) << 64 | u128::from(turn))
    }

    /// Returns what each weigher that counts gives the host, as [`Self::score`] adds it up.
    #[must_use]
    pub fn points(&self, place: usize, facts: &Facts, left: u16) -> Vec<Points> {
        let mut all = Vec::new();
        self.for_each_weigher(place, facts, left, |weigher, weight, value| {
            if weight > 0 {
                all.push(Points {
                    weigher: weigher.into(),
                    points: u32::from(weight) * u32::from(value),
                });
            }
        });
        all
    }

    /// Passes the score of each weigher with its weight to `record`.
    #[inline]
    fn for_each_weigher(
        &self,
        place: usize,
        facts: &Facts,
        left: u16,
        mut record: impl FnMut(&'static str, u16, u16),
    ) {
        let weights = &self.policy.weights;
        let load = facts.loads.weigh(self.counted, self.policy.hosts);
        record("load", weights.load, load);
        if self.taken > 0 {
            let tight = numa::weigh(left, facts.cell, self.policy.cells);
            record("numa", weights.numa, tight);
            let whole = fragmentation::weigh(left, self.taken, facts.cell);
            record("fragmentation", weights.fragmentation, whole);
        }
        if !self.requests_pci {
            record("pci", weights.pci, pci::weigh(facts.pci));
        }
        let score = self.affinity.weigh(place);
        record("soft_affinity", weights.soft_affinity, score);
    }
}
