//! The search for the change after which a refused request succeeds.
//!
//! ```text
//! refusal ──each kind of change, the smallest first──▶ hypothetical hosts ──the same rules──▶ fits: the hint
//!                                                                            └─ no: next, until the budget ends
//! ```
//!
//! The kinds come in the order of what they cost an operator: waiting, opening a host, naming no
//! host, moving VMs, another policy of the request, several steps on a host, a trait, a pool of
//! huge pages, VMs that have to be shelved or deleted, a smaller guest, another host. Within a kind
//! the fewest VMs, pools or steps come first. `docs/scheduling.md` documents it.
//!
//! Pure, and off the path of decisions: the caller runs it on a frozen state.
//!
//! Invariant: what is returned was decided: the very request, by [`PreparedDemand`] and the
//! pipeline, on the hosts as the change leaves them. Where the budget ends before that, nothing is
//! returned.

mod cluster;
mod host_change;
mod needed;
mod pools;
mod request_change;
mod vacate;

use std::sync::Arc;

use berth_domain::constraint::{Demand, PreparedDemand};
use berth_domain::hint::Hint;
use berth_domain::host_view::HostView;

pub use cluster::{Cluster, Exit, HostsAlone, Moves, Occupant};

use crate::explain::Refused;
use crate::index::Index;
use crate::request::Request;
use vacate::Means;

/// The hypothetical decisions of a whole search. A number, not a time: the same state has the same
/// hint everywhere.
pub const DECISIONS_MAX: u32 = 320;

/// The decisions that one kind of change spends at most, so that others are tried too.
const PER_KIND_MAX: u32 = 96;

/// Searches a change after which the request succeeds; `refused` begins with the nearest host.
pub(crate) fn best(
    request: &Request,
    hosts: &[&Arc<HostView>],
    refused: &[Refused<'_>],
    cluster: &dyn Cluster,
) -> Option<Hint> {
    let mut search = Search {
        request,
        applicant: PreparedDemand::new(&request.demand),
        hosts,
        refused,
        cluster,
        left: DECISIONS_MAX,
        for_kind: 0,
        index: None,
    };
    KINDS.iter().find_map(|kind| search.run(*kind))
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    WaitForErasure,
    OpenHost,
    AnyHost,
    MoveVms,
    ChangePolicy,
    OpenHostInSteps,
    UpgradeAgents,
    AddTraits,
    AddBridges,
    ResizePools,
    EndVms,
    ChangeSize,
    AddHost,
    AddShape,
}

/// All kinds, in the order in which they are proposed.
const KINDS: [Kind; 14] = [
    Kind::WaitForErasure,
    Kind::OpenHost,
    Kind::AnyHost,
    Kind::MoveVms,
    Kind::ChangePolicy,
    Kind::OpenHostInSteps,
    Kind::UpgradeAgents,
    Kind::AddTraits,
    Kind::AddBridges,
    Kind::ResizePools,
    Kind::EndVms,
    Kind::ChangeSize,
    Kind::AddHost,
    Kind::AddShape,
];

/// What is left to the last kinds, whatever the first ones spent.
const RESERVE: u32 = 8;

/// One search under way.
struct Search<'a> {
    request: &'a Request,
    applicant: PreparedDemand<'a>,
    hosts: &'a [&'a Arc<HostView>],
    /// The nearest first; the named host alone, where one is named.
    refused: &'a [Refused<'a>],
    cluster: &'a dyn Cluster,
    /// Decisions that are left.
    left: u32,
    /// … for this kind of change.
    for_kind: u32,
    /// All hosts in a table; made when it is first needed.
    index: Option<Index>,
}

impl<'a> Search<'a> {
    fn run(&mut self, kind: Kind) -> Option<Hint> {
        self.left = self.left.max(RESERVE);
        self.for_kind = PER_KIND_MAX.min(self.left);
        match kind {
            Kind::WaitForErasure => self.wait_for_erasure(),
            Kind::OpenHost => self.open_host(1),
            Kind::AnyHost => self.any_host(),
            Kind::MoveVms => self.vacate(Means::Preserving),
            Kind::ChangePolicy => self.change_policy(),
            Kind::OpenHostInSteps => self.open_host(usize::MAX),
            Kind::UpgradeAgents => self.upgrade_agents(),
            Kind::AddTraits => self.add_traits(),
            Kind::AddBridges => self.add_bridges(),
            Kind::ResizePools => self.resize_pools(),
            Kind::EndVms => self.vacate(Means::All),
            Kind::ChangeSize => self.change_size(),
            Kind::AddHost => self.add_host(),
            Kind::AddShape => self.add_shape(),
        }
    }

    /// Takes a decision off the budget.
    fn spend(&mut self) -> bool {
        let may = self.for_kind > 0 && self.left > 0;
        self.for_kind = self.for_kind.saturating_sub(1);
        self.left = self.left.saturating_sub(1);
        may
    }

    /// Decides whether the guest fits on a hypothetical host.
    fn fits(&mut self, view: &HostView) -> bool {
        if !self.spend() {
            return false;
        }
        let is_excluded = self.request.excluded.contains(&view.host.name);
        let cells = self.request.policy.cells;
        !is_excluded && self.applicant.try_place(view, cells).is_some()
    }

    /// Decides the request by the pipeline on one hypothetical host, its demand perhaps otherwise.
    fn is_decided(&self, view: HostView, demand: &Demand) -> bool {
        let request = Request {
            demand: demand.clone(),
            ..self.request.clone()
        };
        Index::from_hosts([&Arc::new(view)])
            .select(&request)
            .is_ok()
    }

    /// Returns all hosts in a table.
    fn index(&mut self) -> &mut Index {
        let hosts = self.hosts;
        self.index
            .get_or_insert_with(|| Index::from_hosts(hosts.iter().copied()))
    }
}
