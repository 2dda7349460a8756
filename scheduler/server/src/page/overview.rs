//! Hosts and counts of a frozen state, for views that no single method of the services answers.
//!
//! Invariant: what a row states of a host is what `ListHosts` states of it, without its shape, and the counts
//! are those of the metrics.

use berth_domain::host_view::HostView;
use berth_domain::id::TimeMs;
use berth_domain::migration;
use berth_domain::resource::ResourceClass;
use berth_page::cluster::Counts;
use berth_page::hosts::{HostRow, HostState, Share};
use berth_proto::convert::ResourceName as _;
use berth_proto::scheduler::v1::Migration;
use berth_state::State;

use crate::metrics::census::Census;
use crate::service::host_memory;

/// How many hosts and migrations of a kind are listed.
const LISTED_MAX: usize = 50;

/// Returns the rows of all hosts, in the order of their names.
pub(super) fn rows(state: &State) -> Vec<HostRow> {
    let views = state.hosts().values();
    views.map(|view| row(state, view)).collect()
}

fn row(state: &State, view: &HostView) -> HostRow {
    let host = &view.host;
    let share = |class: &ResourceClass| Share {
        used: view.used.get(class).copied().unwrap_or(0),
        capacity: view.inventories.get(class).map_or(0, |i| i.capacity()),
    };
    let zone = view.aggregates.zone.as_ref();
    HostRow {
        name: host.name.to_string(),
        state: host_state(view),
        zone: zone.map(ToString::to_string).unwrap_or_default(),
        aggregates: state
            .aggregates_of(&host.name)
            .map(|aggregate| aggregate.name.to_string())
            .collect(),
        pcpu: share(&ResourceClass::pcpu()),
        vcpu: share(&ResourceClass::vcpu()),
        memory: share(&ResourceClass::memory_mb()),
        claims: state.claim_count_of_host(&host.name) as u64,
        violates: !view.books().holds(),
    }
}

fn host_state(view: &HostView) -> HostState {
    use berth_domain::host::Liveness;
    let host = &view.host;
    match (host.liveness, host.cordoned) {
        _ if host.fenced.is_some() => HostState::Fenced,
        (Liveness::Down, _) => HostState::Down,
        (Liveness::Up, _) if host.unreported => HostState::Unreported,
        (Liveness::Up, true) => HostState::Cordoned,
        (Liveness::Up, false) if host.shape_refused.is_some() => HostState::ShapeRefused,
        (Liveness::Up, false) => HostState::Up,
    }
}

/// Returns how much of everything there is, at this replicated time.
pub(super) fn counts(state: &State, now: TimeMs) -> Counts {
    let beyond = state.hosts().values().filter(|view| !view.books().holds());
    let violations = beyond.take(LISTED_MAX);
    Counts {
        violations: violations
            .map(|view| (view.host.name.resource_name(), host_memory(state, view)))
            .collect(),
        ..Census::of(state, now).to_counts()
    }
}

/// Returns the migrations that have not ended, those first of which it is not known where the guest is.
pub(super) fn open_migrations(state: &State) -> Vec<Migration> {
    let all = state.migrations().values();
    let mut open: Vec<_> = all
        .filter(|migration| !migration.state.is_ended())
        .collect();
    open.sort_by_key(|migration| migration.state != migration::State::Unsettled);
    let listed = open.into_iter().take(LISTED_MAX);
    listed.map(|migration| (&**migration).into()).collect()
}
