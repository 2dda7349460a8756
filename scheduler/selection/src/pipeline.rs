//! Filters, weighers, exact fit: the choice itself.

use std::collections::BinaryHeap;
use std::sync::Arc;

use berth_domain::constraint;
use berth_domain::host_view::{HostView, Room};
use berth_domain::refusal::{Code, Refusal};

use crate::ask::Ask;
use crate::explain;
use crate::filter;
use crate::index::Index;
use crate::request::{Choice, Examined, Request};
use crate::weigher::{Score, turn};

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
    pub(crate) rooms: &'a [Room],
    pub(crate) keys: &'a [u64],
    pub(crate) views: &'a [Arc<HostView>],
}

pub(crate) fn run(request: &Request, hosts: Columns<'_>) -> Result<Choice, Refusal> {
    let ask = Ask::new(&request.demand);
    let seed = turn::seed(request.seed);
    let mut ranking: BinaryHeap<(Score, usize)> = hosts
        .rooms
        .iter()
        .zip(hosts.keys)
        .enumerate()
        .filter(|(_, (room, _))| filter::passes(room, &ask))
        .map(|(at, (room, key))| (Score::new(room, &ask, request.policy, *key, seed), at))
        .collect();
    let mut examined = Examined {
        hosts: count(hosts.rooms.len()),
        passed: count(ranking.len()),
        tried: 0,
    };
    while let Some((_, at)) = ranking.pop() {
        let view = &hosts.views[at];
        if request.excluded.contains(&view.host.name) {
            continue;
        }
        examined.tried += 1;
        if let Some(choice) = attempt(request, view, examined) {
            return Ok(choice);
        }
    }
    Err(explain::nowhere(request, hosts.views))
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

fn attempt(request: &Request, view: &HostView, examined: Examined) -> Option<Choice> {
    let assignment = constraint::try_place(view, &request.demand, request.policy.cells)?;
    Some(Choice {
        host: view.host.name.clone(),
        resources: request.demand.resources.clone(),
        assignment,
        examined,
    })
}

fn count(hosts: usize) -> u32 {
    u32::try_from(hosts).unwrap_or(u32::MAX)
}
