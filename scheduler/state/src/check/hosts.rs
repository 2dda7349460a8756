//! What must hold of hosts: what is taken of them is what their claims take, and it fits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::{self, Demand};
use berth_domain::cpu_set::CpuSet;
use berth_domain::host::{Host, Liveness, inventories_of, traits_of};
use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_domain::vm::VmSpec;

use super::claims::spec_of;
use super::{Violation, rule};
use crate::state::State;

/// Usage is kept step by step; here it is counted from scratch.
pub(super) fn usage_is_the_sum_of_claims(state: &State) -> Result<(), Violation> {
    const RULE: &str = "usage_is_the_sum_of_claims";
    let claims = by_host(state);
    for (name, view) in &state.hosts {
        let claims = claims.get(name).into_iter().flatten().copied();
        let host_rule = state.rule_of(name);
        let mut counted = HostView::under(view.host.clone(), host_rule, claims);
        // These are looked at with the aggregates.
        counted.set_aggregates(view.aggregates.clone());
        let (kept, sum) = (&view.used, &counted.used);
        let what = format_args!("host {name} counts {kept:?}, its claims take {sum:?}");
        rule(kept == sum, RULE, what)?;
        let (kept, sum) = (&view.usage, &counted.usage);
        let what = format_args!("host {name} counts {kept:?}, its claims take {sum:?}");
        rule(kept == sum, RULE, what)?;
        let is_alike = view.digests_agree(&counted);
        let what = format_args!("the view of host {name} is stale");
        rule(counted == **view && is_alike, RULE, what)?;
    }
    Ok(())
}

/// One claim after the other goes in: no CPU twice, within cells, pages and capacity. Those that
/// their host has no room for any more are marked, and have nothing that another one has.
pub(super) fn claims_fit_together(state: &State) -> Result<(), Violation> {
    const RULE: &str = "claims_fit_together";
    let claims = by_host(state);
    for (name, view) in &state.hosts {
        // What unknown guests hold may be claimed: that is why it is reported.
        let bare = Host {
            unknown: Vec::new(),
            ..(*view.host).clone()
        };
        let host_rule = state.rule_of(name);
        let mut filled = HostView::under(Arc::new(bare), host_rule, []);
        let all = claims.get(name).into_iter().flatten().copied();
        let (hit, good): (Vec<&Claim>, Vec<&Claim>) =
            all.partition(|claim| view.host.hit.contains(&claim.id));
        let what = format_args!("host {name} marks claims that are not its own");
        rule(hit.len() == view.host.hit.len(), RULE, what)?;
        let (good, releasing): (Vec<&Claim>, Vec<&Claim>) =
            good.into_iter().partition(|claim| claim.is_in_use());
        for claim in releasing {
            filled.place(claim);
        }
        for claim in good {
            let vm = state.vms.get(&claim.vm);
            let what = format_args!("claim {} of vm {}: no such vm", claim.id, claim.vm);
            rule(vm.is_some(), RULE, what)?;
            let Some(vm) = vm else { continue };
            let spec = spec_of(state, claim).unwrap_or(&vm.spec);
            if let Err(why) = fits(&filled, spec, claim) {
                let what = format_args!("claim {} of vm {}: {why}", claim.id, claim.vm);
                return rule(false, RULE, what);
            }
            filled.place(claim);
        }
        nothing_twice(name, claims.get(name).into_iter().flatten().copied())?;
    }
    Ok(())
}

/// No CPU, no PCI function and no namespace is given twice, be it there or lost.
fn nothing_twice<'a>(
    host: &HostName,
    claims: impl Iterator<Item = &'a Claim>,
) -> Result<(), Violation> {
    const RULE: &str = "claims_fit_together";
    let mut cpus = CpuSet::new();
    let mut functions = BTreeSet::new();
    let mut namespaces = BTreeSet::new();
    for claim in claims {
        let taken = claim.assignment.taken();
        let what = format_args!("host {host}: CPUs of claim {} are given twice", claim.id);
        rule(cpus.intersection(&taken).is_empty(), RULE, what)?;
        cpus = cpus.union(&taken);
        for function in claim.assignment.pci.iter().flatten() {
            let what = format_args!("host {host}: function {function} is given twice");
            rule(functions.insert(*function), RULE, what)?;
        }
        for device in &claim.assignment.pmem {
            let what = format_args!("host {host}: namespace {} is given twice", device.name);
            rule(namespaces.insert(&device.name), RULE, what)?;
        }
    }
    Ok(())
}

/// Groups the claims by their host, from the table alone.
fn by_host(state: &State) -> BTreeMap<&HostName, Vec<&Claim>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for claim in state.claims.values() {
        groups.entry(&claim.host).or_default().push(&**claim);
    }
    groups
}

fn fits(view: &HostView, spec: &VmSpec, claim: &Claim) -> Result<(), String> {
    let mut demand = Demand::boot(spec).map_err(|refusal| refusal.to_string())?;
    demand.topology = demand.topology.map(|wish| wish.settled(&claim.assignment));
    constraint::fits(view, &demand, &claim.assignment).map_err(|violation| violation.to_string())
}

/// The root provider of a host is its own, and has what the host reports.
pub(super) fn roots_carry_what_hosts_report(state: &State) -> Result<(), Violation> {
    for (name, view) in &state.hosts {
        let root = state.providers.get(&view.host.provider);
        let host_rule = state.rule_of(name);
        let good = root.is_some_and(|root| {
            root.host.as_ref() == Some(name)
                && root.name == name.as_str()
                && root.parent.is_none()
                && root.inventories == inventories_of(&view.host.report, host_rule)
                && root.traits == traits_of(&view.host.report)
        });
        let what = format_args!("host {name} and provider {}", view.host.provider);
        rule(good, "roots_carry_what_hosts_report", what)?;
    }
    Ok(())
}

/// A fenced host takes nothing new, and its record says whether it was heard of since.
pub(super) fn fenced_hosts_are_closed(state: &State) -> Result<(), Violation> {
    for (name, view) in &state.hosts {
        let Some(fenced) = &view.host.fenced else {
            continue;
        };
        let is_reported = fenced.reported_since || view.host.liveness == Liveness::Down;
        let good = is_reported && !view.headroom.open;
        let what = format_args!("host {name}: {fenced:?}");
        rule(good, "fenced_hosts_are_closed", what)?;
    }
    Ok(())
}

/// A refused shape says why, and keeps new guests out.
pub(super) fn refused_shapes_have_reasons(state: &State) -> Result<(), Violation> {
    for (name, view) in &state.hosts {
        let Some(why) = &view.host.shape_refused else {
            continue;
        };
        let good = !why.is_empty() && !view.headroom.open;
        let what = format_args!("host {name} is open, or does not say why: {why:?}");
        rule(good, "refused_shapes_have_reasons", what)?;
    }
    Ok(())
}
