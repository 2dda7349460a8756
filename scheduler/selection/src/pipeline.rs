//! Filters, weighers, exact fit: the choice itself. Of hosts that fit, the best by the weighers is
//! taken; for a guest that prefers near PCI functions, the best on which they are near.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use berth_domain::audit::{self, RANKED_MAX};
use berth_domain::constraint::{self, PreparedDemand};
use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_domain::pci::{PciAddress, PciNumaPolicy};
use berth_domain::refusal::Refusal;

use crate::explain;
use crate::filter::{CellDemands, DeviceDemand, Lanes};
use crate::index::Index;
use crate::minimum_demand::MinimumDemand;
use crate::request::{Choice, Examined, Request};
use crate::table::Table;
use crate::weigher::{AffinityScore, Score, Weighing};

/// Why no host is chosen. The reason is worked out by [`explain::refusal`], at its own time: it
/// looks at every host, and at changes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHost {
    /// The one that the user named will not do.
    Named,
    /// None will do.
    Nowhere,
}

/// Returns the best host that can take the guest, and what the guest takes there.
///
/// [`Index::select`] is the same over hosts that are kept in a table.
///
/// # Errors
///
/// No host can: why, and what would help most.
pub fn select<'a>(
    request: &Request,
    hosts: impl IntoIterator<Item = &'a Arc<HostView>> + Clone,
) -> Result<Choice, Refusal> {
    let index = Index::from_hosts(hosts.clone());
    let chosen = index.select(request);
    chosen.map_err(|_| explain::nowhere(request, hosts))
}

/// Chooses among the hosts of a table; `place` says where each stands there.
pub(crate) fn run(
    request: &Request,
    table: &Table,
    place: impl Fn(&HostName) -> Option<usize>,
) -> Result<Choice, NoHost> {
    run_within(request, table, place, u32::MAX)
}

/// As [`run`], on as many hosts as `tried_max` at most.
pub(crate) fn run_within(
    request: &Request,
    table: &Table,
    place: impl Fn(&HostName) -> Option<usize>,
    tried_max: u32,
) -> Result<Choice, NoHost> {
    let affinity = AffinityScore::new(request.demand.group.as_ref(), place);
    let mut search = Search::new(request, table, affinity);
    let (best, passed) = best_of(search.ranked());
    search.examined.passed = passed;
    let Some((first, next)) = best.split_first() else {
        return Err(NoHost::Nowhere);
    };
    let mut far = None;
    if let Some(choice) = search.attempt(first.1) {
        if search.is_near(&choice, first.1) {
            return Ok(search.with_ranking(choice, first.1, next));
        }
        far = Some((choice, first.1));
    }
    // Hardly ever reached, so the order of the others is found only here.
    let others = search.ranked().filter(|host| host != first);
    let mut others: BinaryHeap<Ranked> = others.collect();
    while search.examined.tried < search.tried_max(tried_max, far.is_some())
        && let Some((_, at)) = others.pop()
    {
        let Some(choice) = search.attempt(at) else {
            continue;
        };
        if search.is_near(&choice, at) {
            let next: Vec<_> = std::iter::from_fn(|| others.pop())
                .take(RANKED_MAX - 1)
                .collect();
            return Ok(search.with_ranking(choice, at, &next));
        }
        far.get_or_insert((choice, at));
    }
    match far {
        Some((choice, at)) => Ok(search.with_ranking(choice, at, &[])),
        None => Err(NoHost::Nowhere),
    }
}

/// How many hosts are tried for one on which the functions are near that a guest prefers near.
const NEAR_TRIED_MAX: u32 = 32;

/// A host that the filters let through: how good it is, and where it stands in the table.
type Ranked = (Score, usize);

/// One choice under way.
struct Search<'a> {
    request: &'a Request,
    table: &'a Table,
    applicant: PreparedDemand<'a>,
    requested: Lanes,
    cells: CellDemands,
    devices: DeviceDemand,
    weighing: Weighing,
    examined: Examined,
    /// Whether hosts of a class could take the guest if nothing were taken of them; only of
    /// classes of which a host refused.
    classes: BTreeMap<u64, bool>,
    /// What hosts that refused are like.
    refused: BTreeSet<u64>,
}

impl<'a> Search<'a> {
    fn new(request: &'a Request, table: &'a Table, affinity: AffinityScore) -> Self {
        let demand = MinimumDemand::new(&request.demand);
        Self {
            request,
            table,
            applicant: PreparedDemand::new(&request.demand),
            requested: Lanes::requested(&demand),
            cells: CellDemands::new(request.demand.topology.as_ref()),
            devices: table.kinds.requested(&request.demand.pci),
            weighing: Weighing::new(request, &demand, affinity),
            examined: Examined {
                hosts: u32::try_from(table.len()).unwrap_or(u32::MAX),
                passed: 0,
                tried: 0,
            },
            classes: BTreeMap::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Returns the hosts that the filters let through, in no order.
    fn ranked(&self) -> impl Iterator<Item = Ranked> + '_ {
        let Table {
            offers,
            headroom,
            devices,
            facts,
            ..
        } = self.table;
        let strategy = self.request.policy.cells;
        offers
            .iter()
            .enumerate()
            .filter(move |(at, offered)| {
                offered.suffice(&self.requested) && self.devices.are_met(&devices[*at])
            })
            .filter_map(move |(at, _)| Some((at, headroom[at].left(&self.cells, strategy)?)))
            .map(move |(at, left)| (self.weighing.score(at, &facts[at], left), at))
    }

    /// Returns what the guest takes of a host. Hosts that are alike are tried once, and so are
    /// those of a class that the guest does not suit.
    fn attempt(&mut self, at: usize) -> Option<Choice> {
        let view = &self.table.views[at];
        if self.request.excluded.contains(&view.host.name)
            || self.is_like_refused(view)
            || self.classes.get(&view.class()) == Some(&false)
            || self.applicant.check_host(view).is_err()
        {
            return None;
        }
        self.examined.tried += 1;
        let placed = self.applicant.try_place(view, self.request.policy.cells);
        if placed.is_none() {
            let applicant = &self.applicant;
            let classes = self.classes.entry(view.class());
            classes.or_insert_with(|| applicant.suits_class(view));
            self.refused.insert(view.likeness());
        }
        Some(Choice {
            host: view.host.name.clone(),
            resources: self.request.demand.resources.clone(),
            assignment: placed?,
            cpu: constraint::cpu::given(&view.host.report, &self.request.demand.cpu),
            examined: self.examined,
            ranking: Vec::new(),
            warnings: Vec::new(),
        })
    }

    /// Returns whether a host that is like this one refused. The view computes its likeness when it is
    /// first read, and most choices take the first host that they try.
    fn is_like_refused(&self, view: &HostView) -> bool {
        !self.refused.is_empty() && self.refused.contains(&view.likeness())
    }

    /// Returns how many hosts are tried, where one on which functions are far has been found or not.
    fn tried_max(&self, tried_max: u32, has_far: bool) -> u32 {
        match has_far {
            true => tried_max.min(NEAR_TRIED_MAX),
            false => tried_max,
        }
    }

    /// Returns whether every function that the guest prefers near is at one of its cells. The fit
    /// takes near ones first, so that a far one is taken only where the host has no other; whether
    /// another host has is for the choice to find.
    fn is_near(&self, choice: &Choice, at: usize) -> bool {
        let assignment = &choice.assignment;
        if assignment.cells.is_empty() {
            return true;
        }
        let topology = &self.table.views[at].host.report.topology;
        let is_used = |id| assignment.cells.iter().any(|cell| cell.host_cell == id);
        let is_near = |address: &PciAddress| {
            let mut devices = topology.pci().iter();
            let device = devices.find(|device| device.address == *address);
            device.and_then(|device| device.cell).is_none_or(is_used)
        };
        let given = self.request.demand.pci.iter().zip(&assignment.pci);
        given
            .filter(|(request, _)| request.policy == PciNumaPolicy::Preferred)
            .all(|(_, addresses)| addresses.iter().all(is_near))
    }

    /// Returns the choice of a host with what the weighers say of it and of these.
    fn with_ranking(&self, choice: Choice, at: usize, next: &[Ranked]) -> Choice {
        let hosts = std::iter::once(at).chain(next.iter().map(|host| host.1));
        Choice {
            ranking: hosts.filter_map(|at| self.standing(at)).collect(),
            ..choice
        }
    }

    fn standing(&self, at: usize) -> Option<audit::Ranked> {
        let strategy = self.request.policy.cells;
        let left = self.table.headroom[at].left(&self.cells, strategy)?;
        Some(audit::Ranked {
            host: self.table.views[at].host.name.clone(),
            points: self.weighing.points(at, &self.table.facts[at], left),
        })
    }
}

/// Returns the best hosts, the very best first, and how many there are.
fn best_of(hosts: impl Iterator<Item = Ranked>) -> (Vec<Ranked>, u32) {
    let mut best = [(Score::WORST, usize::MAX); RANKED_MAX];
    let mut passed = 0;
    // By hand, and without an option inside: `max` keeps it in memory, at twice the time. Few
    // hosts are among the best so far, so that looking for the place of one costs nothing.
    for host in hosts {
        passed += 1;
        if host.0 >= best[RANKED_MAX - 1].0 {
            let place = best.partition_point(|other| other.0 > host.0);
            best[place..].rotate_right(1);
            best[place] = host;
        }
    }
    let count = usize::try_from(passed).unwrap_or(usize::MAX);
    (best[..count.min(RANKED_MAX)].to_vec(), passed)
}

/// Looks at the host that the user named alone.
pub(crate) fn run_named(request: &Request, view: Option<&Arc<HostView>>) -> Result<Choice, NoHost> {
    let Some(view) = view else {
        return Err(NoHost::Named);
    };
    let examined = Examined {
        hosts: 1,
        passed: 1,
        tried: 1,
    };
    let applicant = PreparedDemand::new(&request.demand);
    match explain::examine(request, &applicant, view) {
        Ok(assignment) => Ok(Choice {
            host: view.host.name.clone(),
            resources: request.demand.resources.clone(),
            assignment,
            cpu: constraint::cpu::given(&view.host.report, &request.demand.cpu),
            examined,
            ranking: Vec::new(),
            warnings: Vec::new(),
        }),
        Err(_) => Err(NoHost::Named),
    }
}
