//! What must hold of the policy's word on memory and shared CPUs: of whom it speaks, and that what is
//! too much is marked. vCPUs that are too much are claims that do not fit: see [`super::hosts`].

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::host::Host;
use berth_domain::host_view::HostView;
use berth_domain::memory::Books;
use berth_domain::name::HostName;
use berth_domain::policy::{Scoped, Terms};

use super::{Violation, rule};
use crate::state::State;

/// Hosts and aggregates with settings exist, and no two groups apply to one host.
pub(super) fn rules_are_said_of_known(state: &State) -> Result<(), Violation> {
    said_of_known(state, &state.policy.memory)?;
    said_of_known(state, &state.policy.cpu)
}

fn said_of_known<T: Terms>(state: &State, scoped: &Scoped<T>) -> Result<(), Violation> {
    const RULE: &str = "rules_are_said_of_known";
    rule(scoped.is_bounded(), RULE, "the policy is out of bounds")?;
    for host in scoped.hosts.keys() {
        let what = format_args!("host {host} is gone");
        rule(state.hosts.contains_key(host), RULE, what)?;
    }
    for group in scoped.groups.keys() {
        let what = format_args!("aggregate {group} is gone");
        rule(state.aggregates.contains_key(group), RULE, what)?;
    }
    let groups = scoped.groups.keys();
    let groups = groups.filter_map(|name| state.aggregates.get(name));
    let mut grouped = BTreeSet::new();
    for host in groups.flat_map(|group| &group.hosts) {
        let what = format_args!("host {host} is in two groups");
        rule(grouped.insert(host), RULE, what)?;
    }
    Ok(())
}

/// A host that holds more memory than its rule allows says whose it has no room for.
pub(super) fn memory_beyond_the_rule_is_marked(state: &State) -> Result<(), Violation> {
    for (name, view) in &state.hosts {
        let books = match view.host.unknown.is_empty() {
            true => view.books(),
            false => books_of_claims(state, name, view),
        };
        let good = books.holds() || !view.host.hit.is_empty();
        let what = format_args!("host {name}: {books:?}");
        rule(good, "memory_beyond_the_rule_is_marked", what)?;
    }
    Ok(())
}

/// What the claims alone hold: that of unknown guests is reported by itself.
fn books_of_claims(state: &State, name: &HostName, view: &HostView) -> Books {
    let bare = Host {
        unknown: Vec::new(),
        ..(*view.host).clone()
    };
    let claims = state.claims_of_host(name).map(|claim| &**claim);
    HostView::under(Arc::new(bare), view.rule, claims).books()
}
