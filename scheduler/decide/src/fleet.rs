//! The fleet of a state: its hosts with the guests on them, for plans of several steps.
//!
//! Pure. The purpose decides the demand of each guest on another host: that of an evacuation,
//! or that of a live migration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner};
use berth_domain::constraint::{Demand, RestartReason};
use berth_domain::host_view::HostView;
use berth_domain::id::TimeMs;
use berth_domain::name::{HostName, VmName};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::server_group::GroupPolicy;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{self, Vm};
use berth_selection::fleet::{Fleet, FleetGuest, Rescue};
use berth_state::State;

/// The purpose of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Hosts may fail: guests are restarted elsewhere.
    Failover,
    /// Guests are live-migrated.
    Balance,
}

/// The metadata key of an aggregate that excludes its hosts from balancing.
pub const AUTO_BALANCE: &str = "auto_balance";

/// Returns the fleet of a state.
///
/// # Errors
///
/// The state is inconsistent.
pub fn fleet_of(state: &State, purpose: Purpose) -> Result<Fleet, Refusal> {
    fleet_where(state, purpose, Arc::clone)
}

/// As [`fleet_of`], with modified hosts that have the same guests.
///
/// # Errors
///
/// The state is inconsistent.
pub fn fleet_where(
    state: &State,
    purpose: Purpose,
    modify: impl Fn(&Arc<HostView>) -> Arc<HostView>,
) -> Result<Fleet, Refusal> {
    let recent = recently_moved(state, purpose);
    let guests = state.vms().values();
    let guests = guests.filter_map(|vm| {
        let mut guest = guest_of(state, vm, purpose)?;
        let since = recent
            .get(&vm.name)
            .map(|at| format!("it was moved at {} ms of cluster time", at.0));
        guest.fixed = guest.fixed.or(since);
        Some(guest)
    });
    let views: Vec<Arc<HostView>> = state.hosts().values().map(modify).collect();
    Fleet::new(&views, guests).map_err(|error| broken(&error.to_string()))
}

/// Returns the VMs that were moved too recently to be moved again, and when.
fn recently_moved(state: &State, purpose: Purpose) -> BTreeMap<VmName, TimeMs> {
    let hold_ms = state.policy().balance.hold_ms;
    if hold_ms == 0 || purpose == Purpose::Failover {
        return BTreeMap::new();
    }
    let ended = state.migrations().values();
    let ended = ended.filter_map(|migration| Some((migration.vm.clone(), migration.ended_at?)));
    let lately = ended.filter(|(_, at)| at.0.saturating_add(hold_ms) > state.time().0);
    lately.collect()
}

/// Returns the guests of one host.
pub fn guests_of<'s>(
    state: &'s State,
    host: &'s HostName,
    purpose: Purpose,
) -> impl Iterator<Item = FleetGuest> + use<'s> {
    let names: BTreeSet<&VmName> = state.claims_of_host(host).map(|claim| &claim.vm).collect();
    let vms = names.into_iter().filter_map(|name| state.vm(name));
    let guests = vms.filter_map(move |vm| guest_of(state, vm, purpose));
    guests.filter(move |guest| guest.claim.host == *host)
}

/// Returns a VM as a guest; none if it holds no host.
fn guest_of(state: &State, vm: &Vm, purpose: Purpose) -> Option<FleetGuest> {
    let claim = held_by(state, vm)?;
    let also_on = state.claims_of_vm(&vm.name);
    let also_on = also_on.filter(|other| other.id != claim.id && other.is_in_use());
    let also_on = also_on.map(|other| other.host.clone()).collect();
    let demand = match purpose {
        Purpose::Failover => state.cold_demand(vm, &vm.spec, RestartReason::Evacuation),
        Purpose::Balance => state.live_demand(vm),
    };
    let (demand, refused) = match demand {
        Ok(demand) => (demand, None),
        // It keeps its resources, but cannot be moved.
        Err(refusal) => (Demand::boot(&vm.spec).ok()?, Some(refusal.message)),
    };
    let bound = bound_to_others(state, &demand, &claim.host);
    Some(FleetGuest {
        vm: vm.name.clone(),
        claim: Arc::clone(claim),
        also_on,
        demand: Arc::new(demand),
        fixed: refused.clone().or_else(|| fixed(state, vm, claim)),
        rescue: rescue(vm, refused.or(bound)),
    })
}

/// Returns the claim on the host that a VM is on, or that is being prepared for it.
fn held_by<'s>(state: &'s State, vm: &Vm) -> Option<&'s Arc<Claim>> {
    let own = vm.claim.and_then(|id| state.claim(id));
    let any = || {
        let mut claims = state.claims_of_vm(&vm.name);
        claims.find(|claim| claim.is_in_use() && claim.owner == Owner::Vm)
    };
    own.filter(|claim| claim.is_in_use()).or_else(any)
}

/// Returns why a guest is not moved while it runs.
fn fixed(state: &State, vm: &Vm, claim: &Claim) -> Option<String> {
    if let Some(operation) = vm.operation {
        return Some(format!("operation {operation} is at work on it"));
    }
    if vm.state != vm::State::Active {
        return Some(format!("it is {}", vm.state.as_str()));
    }
    if !vm.spec.flavor.auto_balance() {
        return Some(format!(
            "flavor {} has berth:auto_balance=false",
            vm.spec.flavor.name
        ));
    }
    let view = state.host(&claim.host)?;
    if is_balancing_disabled(&view.aggregates.metadata) {
        return Some(format!(
            "an aggregate of host {} has {AUTO_BALANCE}=false",
            claim.host
        ));
    }
    None
}

/// Returns whether the aggregates of a host exclude it from balancing.
#[must_use]
pub fn is_balancing_disabled(metadata: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let values = metadata.get(AUTO_BALANCE);
    values.is_some_and(|values| values.contains("false"))
}

/// Returns why a guest could not be evacuated despite free capacity: before cluster version 4 it is
/// moved alone, and its group requires it to be with members that are still on the dead host then.
pub(super) fn bound_to_others(state: &State, demand: &Demand, host: &HostName) -> Option<String> {
    if state.header().cluster_version >= ServiceVersion::SEPARATED_GROUPS {
        return None;
    }
    let group = demand.group.as_ref()?;
    let others = group.members_on(host);
    (group.policy == GroupPolicy::Affinity && others > 0).then(|| {
        format!(
            "server group {} keeps it with {others} others of that host, and guests are evacuated \
             one by one",
            group.name
        )
    })
}

/// Returns how a guest is handled when its host fails.
fn rescue(vm: &Vm, refused: Option<String>) -> Rescue {
    match vm.state {
        vm::State::Deleting => Rescue::Spare("it is being deleted".to_owned()),
        vm::State::Error => Rescue::Spare("it is in ERROR".to_owned()),
        vm::State::Shelved => Rescue::Spare("it is being started, and its disks stay".to_owned()),
        vm::State::Resized => Rescue::Impossible(
            "its resize waits to be confirmed or reverted, and it is not evacuated before"
                .to_owned(),
        ),
        vm::State::Building | vm::State::Active | vm::State::Migrating | vm::State::Stopped => {
            match refused {
                None => Rescue::Restart,
                Some(why) => Rescue::Impossible(why),
            }
        }
    }
}

fn broken(what: &str) -> Refusal {
    Refusal::new(
        Code::Internal,
        "FLEET",
        format!("no plan can be made: {what}"),
    )
}
