//! What must hold of aggregates: views, providers and indexes say what they say.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::aggregate::{AGGREGATES_MAX, Aggregate, HostAggregates};
use berth_domain::id::AggregateId;
use berth_domain::name::{AggregateName, HostName};
use imbl::{OrdMap, OrdSet};

use super::{Violation, rule};
use crate::state::State;

/// Every host is in at most one zone, and its view and its root provider say in which aggregates
/// it is.
pub(super) fn aggregates_match_hosts(state: &State) -> Result<(), Violation> {
    const RULE: &str = "aggregates_match_hosts";
    let mut of_host: BTreeMap<&HostName, Vec<&Aggregate>> = BTreeMap::new();
    let mut index: OrdMap<HostName, OrdSet<AggregateName>> = OrdMap::new();
    let mut ids: BTreeSet<AggregateId> = BTreeSet::new();
    for aggregate in state.aggregates.values() {
        let faults = aggregate.faults();
        rule(faults.is_empty(), RULE, format_args!("{faults:?}"))?;
        ids.insert(aggregate.id);
        for host in &aggregate.hosts {
            let what = format_args!("host {host} of aggregate {} is gone", aggregate.name);
            rule(state.hosts.contains_key(host), RULE, what)?;
            of_host.entry(host).or_default().push(aggregate);
            let names = index.entry(host.clone()).or_default();
            names.insert(aggregate.name.clone());
        }
    }
    rule(
        index == state.index.host_aggregates,
        RULE,
        "aggregates by host",
    )?;
    rule(ids.len() == state.aggregates.len(), RULE, "two have one id")?;
    rule(ids.len() <= AGGREGATES_MAX, RULE, "there are too many")?;
    for (host, view) in &state.hosts {
        let aggregates = of_host.remove(host).unwrap_or_default();
        let zones: BTreeSet<_> = aggregates.iter().filter_map(|a| a.zone()).collect();
        rule(
            zones.len() <= 1,
            RULE,
            format_args!("host {host} is in zones {zones:?}"),
        )?;
        let said = HostAggregates::of(aggregates.iter().copied());
        rule(
            *view.aggregates == said,
            RULE,
            format_args!("the view of host {host}"),
        )?;
        let ids: BTreeSet<_> = aggregates.iter().map(|a| a.id).collect();
        let provider = state.providers.get(&view.host.provider);
        let matches = provider.is_none_or(|provider| provider.aggregates == ids);
        rule(matches, RULE, format_args!("the provider of host {host}"))?;
    }
    Ok(())
}

/// A VM that requested a zone is in it.
pub(super) fn zones_hold(state: &State) -> Result<(), Violation> {
    for claim in state.claims.values().filter(|claim| claim.is_in_use()) {
        let vm = state.vms.get(&claim.vm);
        let requested = vm.and_then(|vm| vm.spec.hints.availability_zone.as_ref());
        let view = state.hosts.get(&claim.host);
        let zone = view.and_then(|view| view.aggregates.zone.as_ref());
        let what = format_args!(
            "vm {} requested {requested:?}, its host is in {zone:?}",
            claim.vm
        );
        rule(requested.is_none() || requested == zone, "zones_hold", what)?;
    }
    Ok(())
}
