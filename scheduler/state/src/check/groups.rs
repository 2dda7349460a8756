//! What must hold of server groups: their policies, whatever was moved and whatever failed.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::name::{HostName, ServerGroupName, VmName};
use berth_domain::server_group::{GroupPolicy, MEMBERS_MAX};
use imbl::{OrdMap, OrdSet};

use super::{Violation, rule};
use crate::state::State;

/// The claims of a group: which VMs have one on a host.
type Claims<'s> = BTreeMap<&'s HostName, BTreeSet<&'s VmName>>;

fn group_of<'s>(state: &'s State, vm: &VmName) -> Option<&'s ServerGroupName> {
    state.vms.get(vm)?.spec.hints.server_group.as_ref()
}

/// No two members stand where a hard policy forbids it, be it only by a claim that is held; but for
/// those of an affinity group that an evacuation has separated, which says so.
pub(super) fn hard_policies_hold(state: &State) -> Result<(), Violation> {
    const RULE: &str = "hard_policies_hold";
    let mut claims: BTreeMap<&ServerGroupName, Claims<'_>> = BTreeMap::new();
    for claim in state.claims.values().filter(|claim| claim.is_in_use()) {
        if let Some(group) = group_of(state, &claim.vm) {
            let hosts = claims.entry(group).or_default();
            hosts.entry(&claim.host).or_default().insert(&claim.vm);
        }
    }
    for (name, hosts) in claims {
        let Some(group) = state.server_groups.get(name) else {
            continue;
        };
        let good = match group.policy {
            GroupPolicy::Affinity => {
                let vms: BTreeSet<_> = hosts.values().flatten().collect();
                let is_apart = hosts.len() > 1 && vms.len() > 1;
                is_apart == group.separated_at.is_some()
            }
            GroupPolicy::AntiAffinity => {
                let limit = usize::try_from(group.max_server_per_host).unwrap_or(usize::MAX);
                hosts.values().all(|vms| vms.len() <= limit)
            }
            GroupPolicy::SoftAffinity | GroupPolicy::SoftAntiAffinity => true,
        };
        let what = format_args!("group {name} requires {}: {hosts:?}", group.policy);
        rule(good, RULE, what)?;
    }
    Ok(())
}

/// Every VM's group is there, and both indexes say who belongs to it and where they are.
pub(super) fn members_are_indexed(state: &State) -> Result<(), Violation> {
    const RULE: &str = "members_are_indexed";
    let mut vms: OrdMap<ServerGroupName, OrdSet<VmName>> = OrdMap::new();
    for vm in state.vms.values() {
        if let Some(group) = &vm.spec.hints.server_group {
            let known = state.server_groups.contains_key(group);
            let what = format_args!("group {group} of vm {} is not there", vm.name);
            rule(known, RULE, what)?;
            vms.entry(group.clone())
                .or_default()
                .insert(vm.name.clone());
        }
    }
    let bounded = vms.values().all(|vms| vms.len() <= MEMBERS_MAX);
    rule(bounded, RULE, "a group has too many members")?;
    rule(vms == state.index.group_vms, RULE, "vms by group")?;
    let mut hosts: OrdMap<ServerGroupName, OrdMap<HostName, u32>> = OrdMap::new();
    for claim in state.claims.values().filter(|claim| claim.is_in_use()) {
        if let Some(group) = group_of(state, &claim.vm) {
            let hosts = hosts.entry(group.clone()).or_default();
            *hosts.entry(claim.host.clone()).or_default() += 1;
        }
    }
    rule(
        hosts == state.index.group_hosts,
        RULE,
        "claims by group and host",
    )
}
