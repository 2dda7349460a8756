//! Filters, weighers, exact fit: the choice itself.

use std::collections::BinaryHeap;
use std::sync::Arc;

use berth_domain::constraint;
use berth_domain::host_view::HostView;
use berth_domain::refusal::{Code, Refusal};

use crate::ask::Ask;
use crate::explain;
use crate::filter::Lanes;
use crate::index::Index;
use crate::request::{Choice, Examined, Request};
use crate::weigher::{Loads, Score, turn};

/// Returns the best host that can take the guest, and what the guest takes there.
///
/// [`Index::select`] is the same over hosts that are kept in a table.
///
/// # Errors
///
/// No host can: why, and what would help most.
pub fn select<'a>(
    request: &Request,
    hosts: impl IntoIterator<Item = &'a Arc<HostView>>,
) -> Result<Choice, Refusal> {
    Index::from_hosts(hosts).select(request)
}

/// Hosts in columns, so that filters and weighers read nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns<'a> {
    pub(crate) offers: &'a [Lanes],
    pub(crate) loads: &'a [Loads],
    pub(crate) keys: &'a [u64],
    pub(crate) views: &'a [Arc<HostView>],
}

pub(crate) fn run(request: &Request, hosts: Columns<'_>) -> Result<Choice, Refusal> {
    let ask = Ask::new(&request.demand);
    let (best, passed) = best_of(ranked(request, &ask, hosts));
    let mut examined = Examined {
        hosts: count(hosts.offers.len()),
        passed,
        tried: 0,
    };
    let Some(best) = best else {
        return Err(explain::nowhere(request, hosts.views));
    };
    if let Some(choice) = attempt(request, &hosts.views[best.1], &mut examined) {
        return Ok(choice);
    }
    // Hardly ever reached, so the order of the others is found only here.
    let mut others: BinaryHeap<Ranked> = ranked(request, &ask, hosts)
        .filter(|host| *host != best)
        .collect();
    while let Some((_, at)) = others.pop() {
        if let Some(choice) = attempt(request, &hosts.views[at], &mut examined) {
            return Ok(choice);
        }
    }
    Err(explain::nowhere(request, hosts.views))
}

/// A host that the filters let through: how good it is, and where it stands in the columns.
type Ranked = (Score, usize);

/// Returns the hosts that the filters let through, in no order.
fn ranked<'a>(
    request: &'a Request,
    ask: &'a Ask,
    hosts: Columns<'a>,
) -> impl Iterator<Item = Ranked> + 'a {
    let asked = Lanes::asked(ask);
    let counted = Loads::asked(ask);
    let seed = turn::seed(request.seed);
    let score = move |loads: &Loads, key: u64| {
        let load = loads.weigh(counted, request.policy.hosts);
        Score::new(load, turn::weigh(key, seed))
    };
    hosts
        .offers
        .iter()
        .zip(hosts.loads.iter().zip(hosts.keys))
        .enumerate()
        .filter(move |(_, (offered, _))| offered.suffice(&asked))
        .map(move |(at, (_, (loads, key)))| (score(loads, *key), at))
}

/// Returns the best host, and how many there are.
fn best_of(hosts: impl Iterator<Item = Ranked>) -> (Option<Ranked>, u32) {
    let mut best = (Score::WORST, usize::MAX);
    let mut passed = 0;
    // By hand, and without an option inside: `max` keeps it in memory, at twice the time.
    for host in hosts {
        passed += 1;
        if host.0 >= best.0 {
            best = host;
        }
    }
    ((passed > 0).then_some(best), passed)
}

/// Looks at the host that the user named alone.
pub(crate) fn run_named(
    request: &Request,
    view: Option<&Arc<HostView>>,
) -> Result<Choice, Refusal> {
    let Some(view) = view else {
        let host = request.requested.as_ref().map_or("", |h| h.as_str());
        return Err(Refusal::new(
            Code::NotFound,
            "HOST_NOT_FOUND",
            format!("host {host} is not part of this cluster"),
        )
        .with("host", host));
    };
    let examined = Examined {
        hosts: 1,
        passed: 1,
        tried: 1,
    };
    match explain::examine(request, view) {
        Ok(assignment) => Ok(Choice {
            host: view.host.name.clone(),
            resources: request.demand.resources.clone(),
            assignment,
            examined,
        }),
        Err(violation) => Err(explain::named(request, view, &violation)),
    }
}

fn attempt(request: &Request, view: &HostView, examined: &mut Examined) -> Option<Choice> {
    if request.excluded.contains(&view.host.name) {
        return None;
    }
    examined.tried += 1;
    let assignment = constraint::try_place(view, &request.demand, request.policy.cells)?;
    Some(Choice {
        host: view.host.name.clone(),
        resources: request.demand.resources.clone(),
        assignment,
        examined: *examined,
    })
}

fn count(hosts: usize) -> u32 {
    u32::try_from(hosts).unwrap_or(u32::MAX)
}
