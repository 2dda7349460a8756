//! Every index says what its table says.

use std::sync::Arc;

use berth_domain::id::ProviderId;
use berth_domain::image::ImageFile;
use berth_domain::name::{HostName, NetworkName};
use berth_domain::provider::ResourceProvider;
use berth_domain::recovery::SETTLED_MAX;
use imbl::{OrdMap, OrdSet};

use super::{Violation, rule};
use crate::image::files_of;
use crate::index::custom_classes;
use crate::network::networks_of;
use crate::recovery::is_dead;
use crate::request::{OUTCOMES_BYTES_MAX, REMEMBERED_MAX};
use crate::state::State;

pub(super) fn claims_are_indexed(state: &State) -> Result<(), Violation> {
    let claims = || state.claims.values();
    let by_host: OrdSet<_> = claims().map(|c| (c.host.clone(), c.id)).collect();
    let in_use = claims().filter(|c| c.is_in_use());
    let by_vm: OrdSet<_> = in_use.map(|c| (c.vm.clone(), c.id)).collect();
    let good = by_host == state.index.host_claims && by_vm == state.index.vm_claims;
    rule(good, "claims_are_indexed", "claims by host or by vm")
}

/// No two interfaces of the cluster have one MAC address, and each is found by its own.
pub(super) fn macs_are_indexed(state: &State) -> Result<(), Violation> {
    const RULE: &str = "macs_are_indexed";
    let vms = state.vms.values();
    let all: Vec<_> = vms
        .flat_map(|vm| vm.spec.nics.iter().map(|nic| (&*nic.mac, &vm.name)))
        .collect();
    let macs: OrdMap<Arc<str>, _> = all
        .iter()
        .map(|(mac, vm)| (Arc::from(*mac), (*vm).clone()))
        .collect();
    rule(macs.len() == all.len(), RULE, "two interfaces have one")?;
    rule(macs == state.index.macs, RULE, "vms by MAC address")
}

pub(super) fn images_are_indexed(state: &State) -> Result<(), Violation> {
    let mut images: OrdMap<ImageFile, OrdSet<_>> = OrdMap::new();
    for vm in state.vms.values() {
        for file in files_of(vm) {
            images.entry(file).or_default().insert(vm.name.clone());
        }
    }
    let good = images == state.index.image_vms;
    rule(good, "images_are_indexed", "vms by image")
}

pub(super) fn networks_are_indexed(state: &State) -> Result<(), Violation> {
    let mut networks: OrdMap<NetworkName, OrdSet<_>> = OrdMap::new();
    for vm in state.vms.values() {
        for network in networks_of(vm) {
            let vms = networks.entry(network.clone()).or_default();
            vms.insert(vm.name.clone());
        }
    }
    let good = networks == state.index.network_vms;
    rule(good, "networks_are_indexed", "vms by network")
}

pub(super) fn providers_are_indexed(state: &State) -> Result<(), Violation> {
    const RULE: &str = "providers_are_indexed";
    let providers = || state.providers.values();
    let by_name: OrdMap<Arc<str>, _> = providers()
        .map(|p| (Arc::from(p.name.as_str()), p.id))
        .collect();
    let children: OrdSet<_> = providers()
        .filter_map(|p| Some((p.parent?, p.id)))
        .collect();
    rule(
        by_name == state.index.provider_names,
        RULE,
        "providers by name",
    )?;
    rule(
        by_name.len() == state.providers.len(),
        RULE,
        "two providers have one name",
    )?;
    rule(
        children == state.index.children,
        RULE,
        "providers by parent",
    )?;
    under(&state.index.trees, state, "trees", |p| vec![p.root])?;
    under(&state.index.class_providers, state, "custom classes", |p| {
        custom_classes(p).cloned().collect()
    })?;
    under(&state.index.trait_providers, state, "traits", |p| {
        p.traits.iter().cloned().collect()
    })?;
    under(&state.index.aggregate_providers, state, "aggregates", |p| {
        p.aggregates.iter().copied().collect()
    })
}

/// Says whether an index holds every provider under each of its keys, and nothing else.
fn under<K: Ord + Clone>(
    index: &OrdSet<(K, ProviderId)>,
    state: &State,
    what: &str,
    keys: impl Fn(&ResourceProvider) -> Vec<K>,
) -> Result<(), Violation> {
    let entries = |p: &Arc<ResourceProvider>| {
        let id = p.id;
        keys(p).into_iter().map(move |key| (key, id))
    };
    let expected: OrdSet<_> = state.providers.values().flat_map(entries).collect();
    let what = format_args!("providers by {what}");
    rule(expected == *index, "providers_are_indexed", what)
}

pub(super) fn consumers_are_indexed(state: &State) -> Result<(), Violation> {
    const RULE: &str = "consumers_are_indexed";
    let consumers = state.consumers.values();
    let projects: OrdSet<_> = consumers
        .map(|c| (Arc::from(c.project.as_str()), c.id))
        .collect();
    let good = projects == state.index.project_consumers;
    rule(good, RULE, "consumers by project")?;
    let consumers = state.consumers.values();
    let takers: OrdSet<_> = consumers
        .flat_map(|c| c.allocations.keys().map(|provider| (*provider, c.id)))
        .collect();
    rule(
        takers == state.index.provider_consumers,
        RULE,
        "consumers by provider",
    )
}

pub(super) fn vms_are_indexed_by_project(state: &State) -> Result<(), Violation> {
    let mut projects: OrdMap<Arc<str>, OrdSet<_>> = OrdMap::new();
    for vm in state.vms.values() {
        let vms = projects.entry(vm.ownership.project_name().into());
        vms.or_default().insert(vm.name.clone());
    }
    let good = projects == state.index.project_vms;
    rule(good, "vms_are_indexed_by_project", "vms by project")
}

pub(super) fn troubled_vms_are_indexed(state: &State) -> Result<(), Violation> {
    let troubled = state.vms.values().filter(|vm| vm.trouble.is_some());
    let troubled: OrdSet<_> = troubled.map(|vm| vm.name.clone()).collect();
    let good = troubled == state.index.troubled;
    rule(good, "troubled_vms_are_indexed", "vms without a guest")
}

/// Dead hosts, those that are quiet in a recovery, and those with orphans.
pub(super) fn recovered_hosts_are_indexed(state: &State) -> Result<(), Violation> {
    const RULE: &str = "recovered_hosts_are_indexed";
    let hosts = || state.hosts.values().map(|view| &view.host);
    let dead: OrdSet<_> = hosts()
        .filter(|h| is_dead(h))
        .map(|h| h.name.clone())
        .collect();
    rule(dead == state.index.dead, RULE, "dead hosts")?;
    let living = |name: &HostName| state.hosts.contains_key(name) && !dead.contains(name);
    let reports = state.recovered_hosts.iter();
    let quiet: OrdSet<_> = reports
        .filter(|(name, _)| living(name))
        .map(|(name, report)| (report.quiet_at, name.clone()))
        .collect();
    rule(quiet == state.index.quiet, RULE, "quiet hosts")?;
    let orphans: OrdSet<_> = hosts()
        .flat_map(|host| host.orphans.iter().map(|uuid| (*uuid, host.name.clone())))
        .collect();
    rule(orphans == state.index.orphans, RULE, "hosts by orphans")
}

/// What a recovery settled is kept once it has ended, numbered from 0.
pub(super) fn settled_vms_are_of_an_ended_recovery(state: &State) -> Result<(), Violation> {
    const RULE: &str = "settled_vms_are_of_an_ended_recovery";
    let kept = &state.settled_vms;
    let recovery = state.header.recovery;
    let all = recovery.filter(|recovery| !recovery.is_running());
    let all = all.map_or(0, |recovery| recovery.settled);
    let expected = SETTLED_MAX.min(usize::try_from(all).unwrap_or(usize::MAX));
    rule(kept.len() == expected, RULE, "how many are kept")?;
    let mut numbers = kept.iter().zip(0..);
    let good = numbers.all(|((key, settled), number)| *key == number && settled.number == number);
    rule(good, RULE, "their numbers")
}

pub(super) fn operations_and_migrations_are_indexed(state: &State) -> Result<(), Violation> {
    const RULE: &str = "operations_and_migrations_are_indexed";
    let operations = || state.operations.values();
    let running: OrdSet<_> = operations()
        .filter(|o| !o.is_done())
        .map(|o| o.id)
        .collect();
    rule(running == state.index.running, RULE, "running operations")?;
    let done = operations().filter(|o| o.is_done());
    let done: OrdSet<_> = done
        .map(|o| (o.ended_at.unwrap_or_default(), o.id))
        .collect();
    rule(done == state.index.done, RULE, "done operations")?;
    let ended = state.migrations.values().filter(|m| m.state.is_ended());
    let ended: OrdSet<_> = ended
        .map(|m| (m.ended_at.unwrap_or_default(), m.id))
        .collect();
    rule(ended == state.index.ended, RULE, "ended migrations")
}

pub(super) fn requests_are_indexed(state: &State) -> Result<(), Violation> {
    const RULE: &str = "requests_are_indexed";
    let requests = state.requests.values();
    let remembered: OrdMap<_, _> = requests.map(|r| (r.sequence, r.name.clone())).collect();
    rule(
        remembered == state.index.remembered,
        RULE,
        "requests by age",
    )?;
    let counted = remembered
        .get_max()
        .is_none_or(|(last, _)| *last <= state.header.requests);
    rule(counted, RULE, "a request from the future")?;
    rule(
        remembered.len() <= REMEMBERED_MAX,
        RULE,
        "too many requests",
    )?;
    let heavy = || state.requests.values().filter(|r| r.weight() > 0);
    let outcomes: OrdSet<_> = heavy().map(|r| r.sequence).collect();
    rule(outcomes == state.index.outcomes, RULE, "outcomes by age")?;
    let weight = heavy().map(|r| r.weight()).sum();
    let indexed = state.index.outcomes_weight;
    rule(indexed == weight, RULE, "the weight of outcomes")?;
    let is_bounded = weight <= OUTCOMES_BYTES_MAX || outcomes.len() == 1;
    rule(is_bounded, RULE, "outcomes that are too heavy")
}
