//! Admission control: whether a new guest leaves headroom for the guests of a failed host.
//!
//! Only actions that take more than before are checked: a boot, an unshelving, a resize. A plain
//! move may use the headroom, evacuations above all: they are its purpose.
//!
//! Pure. A host on which the guest would break a proof is skipped, and the next best is tried;
//! the guest is refused only when none of several hosts fits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::claim::{self, Claim, Owner};
use berth_domain::constraint::{Demand, RestartReason};
use berth_domain::host_view::HostView;
use berth_domain::id::ClaimId;
use berth_domain::name::{HostName, VmName};
use berth_domain::policy::Admission;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{Vm, VmSpec};
use berth_selection::failover::{Broken, Budget, VerdictTracker, admission};
use berth_selection::fleet::{FleetGuest, Rescue};
use berth_selection::{Choice, Request};
use berth_state::{State, VOLUMES_ARE_LOCAL};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::chooser::{Chooser, Unschedulable, choose};
use super::fleet::{Purpose, bound_to_others, fleet_of, guests_of};

/// How many hosts are tried for one guest before it is refused.
const HOSTS_TRIED_MAX: usize = 4;

/// How many placements one decision spends at most on verdicts that earlier changes left open: other
/// requests wait meanwhile.
const CATCH_UP_PLACEMENTS: u64 = 2_000;

/// The cost limit of one verdict, and of all verdicts that one change touches: other requests wait
/// meanwhile. A verdict beyond it is unknown, and counts as not proven.
const BUDGET: Budget = Budget {
    placements: 1_000,
    per_change: 2_000,
};

/// The VM to be admitted.
pub(super) struct IncomingVm<'a> {
    pub(super) vm: &'a VmName,
    pub(super) claim: ClaimId,
    pub(super) spec: &'a VmSpec,
}

/// The verdicts of all hosts, cached between decisions and updated by what changed of the state.
#[derive(Debug, Default)]
pub struct Reserve {
    snapshot: Option<Snapshot>,
}

/// The verdicts of a state, and the state's hosts and VMs.
#[derive(Debug)]
struct Snapshot {
    hosts: OrdMap<HostName, Arc<HostView>>,
    vms: OrdMap<VmName, Arc<Vm>>,
    tracker: VerdictTracker,
}

impl Reserve {
    /// Returns which proofs a guest would break.
    ///
    /// # Errors
    ///
    /// The state is inconsistent.
    pub fn would_break(
        &mut self,
        state: &State,
        guest: &FleetGuest,
    ) -> Result<Vec<Broken>, Refusal> {
        self.sync(state)?;
        let tracker = &mut self.snapshot.as_mut().expect("just synchronised").tracker;
        let broken = match tracker.fleet().guest(&guest.vm).cloned() {
            None => tracker.would_break(guest),
            // A resized guest counts with its final size.
            Some(before) => {
                let mut after = tracker.clone();
                without(&mut after, &before).map_err(|what| broken_state(&what))?;
                after.would_break(guest)
            }
        };
        broken.map_err(|error| broken_state(&error.to_string()))
    }

    /// Drops all verdicts.
    pub fn clear(&mut self) {
        self.snapshot = None;
    }

    fn sync(&mut self, state: &State) -> Result<(), Refusal> {
        let Some(snapshot) = &mut self.snapshot else {
            let fleet = fleet_of(state, Purpose::Failover)?;
            self.snapshot = Some(Snapshot {
                hosts: state.hosts().clone(),
                vms: state.vms().clone(),
                tracker: VerdictTracker::new(fleet, Vec::new(), BUDGET),
            });
            return Ok(());
        };
        match snapshot.follow(state) {
            Ok(()) => Ok(()),
            Err(what) => {
                self.snapshot = None;
                Err(broken_state(&what))
            }
        }
    }
}

impl Snapshot {
    /// Updates the verdicts to a newer state.
    fn follow(&mut self, state: &State) -> Result<(), String> {
        let (gone, changed) = self.changed(state);
        for name in &gone {
            self.tracker.remove(name);
        }
        // A guest is taken off its old host by the host that has it now, so that each guest is on one
        // at any time.
        for name in &changed {
            let view = state.host(name).expect("it is there");
            let guests = guests_of(state, name, Purpose::Failover);
            let renewed = self.tracker.renew(view, guests);
            renewed.map_err(|error| error.to_string())?;
        }
        if self.tracker.is_behind() || self.tracker.is_searching() {
            self.tracker.catch_up(CATCH_UP_PLACEMENTS);
        }
        self.hosts = state.hosts().clone();
        self.vms = state.vms().clone();
        Ok(())
    }

    /// Returns the removed hosts, and those that changed or of which a guest did: whether a guest is
    /// restarted depends on its VM, too.
    fn changed(&self, state: &State) -> (Vec<HostName>, BTreeSet<HostName>) {
        let mut gone = Vec::new();
        let mut changed = BTreeSet::new();
        for difference in self.hosts.diff(state.hosts()) {
            match difference {
                DiffItem::Add(name, _) => {
                    changed.insert(name.clone());
                }
                DiffItem::Update { new, .. } => {
                    changed.insert(new.0.clone());
                }
                DiffItem::Remove(name, _) => gone.push(name.clone()),
            }
        }
        for difference in self.vms.diff(state.vms()) {
            let (DiffItem::Add(vm, _)
            | DiffItem::Remove(vm, _)
            | DiffItem::Update { new: (vm, _), .. }) = difference;
            let known = self.tracker.fleet().guest(vm);
            changed.extend(known.map(|guest| guest.claim.host.clone()));
            changed.extend(state.claims_of_vm(vm).map(|claim| claim.host.clone()));
        }
        changed.retain(|name| state.host(name).is_some());
        (gone, changed)
    }
}

/// Takes a guest off its host.
fn without(tracker: &mut VerdictTracker, guest: &FleetGuest) -> Result<(), String> {
    let host = &guest.claim.host;
    let fleet = tracker.fleet();
    let (Some(view), Some(at)) = (fleet.view(host), fleet.place(host)) else {
        return Err(format!("host {host} is not known"));
    };
    let mut view = (**view).clone();
    view.release(&guest.claim);
    let others = fleet.guests_at(at).filter(|other| other.vm != guest.vm);
    let others: Vec<FleetGuest> = others.map(|other| (**other).clone()).collect();
    let renewed = tracker.renew(&Arc::new(view), others);
    renewed.map(drop).map_err(|error| error.to_string())
}

/// Chooses a host for a guest that takes more than before, by the admission policy. Where it only
/// warns, a choice that breaks a proof carries a warning.
pub(super) fn choose_admitted(
    chooser: &mut dyn Chooser,
    state: &State,
    request: Request,
    incoming: &IncomingVm<'_>,
) -> Result<Choice, Unschedulable> {
    let policy = state.policy().failover.admission;
    let first = choose(chooser, state, request.clone())?;
    if policy == Admission::Off {
        chooser.forget_reserve();
        return Ok(first);
    }
    let mut request = request;
    let mut choice = first.clone();
    let mut why = None;
    for _ in 0..HOSTS_TRIED_MAX {
        let guest = guest_of(state, &choice, incoming)?;
        let broken = chooser.would_break(state, &guest)?;
        let Some(refusal) = admission::refusal(&guest, &broken) else {
            return Ok(choice);
        };
        why.get_or_insert(refusal);
        if request.requested.is_some() {
            break;
        }
        request.excluded.push(choice.host.clone());
        match choose(chooser, state, request.clone()) {
            Ok(next) => choice = next,
            Err(_) => break,
        }
    }
    match (policy, why) {
        (Admission::Refuse, Some(refusal)) => Err(refusal.into()),
        (_, why) => Ok(Choice {
            warnings: why.iter().map(ToString::to_string).collect(),
            ..first
        }),
    }
}

/// Returns the guest that would result from the choice.
fn guest_of(
    state: &State,
    choice: &Choice,
    incoming: &IncomingVm<'_>,
) -> Result<FleetGuest, Refusal> {
    let view = state.host(&choice.host);
    let view = view.ok_or_else(|| Refusal::not_found("host", &choice.host))?;
    let demand = Demand::cold(incoming.spec, &view.host, RestartReason::Evacuation)?;
    let related = state.with_relations(demand.clone(), incoming.vm, incoming.spec);
    let (demand, refused) = match related {
        Ok(demand) => (demand, None),
        // It can be placed, but not evacuated afterwards.
        Err(refusal) if refusal.reason == VOLUMES_ARE_LOCAL => (demand, Some(refusal.message)),
        Err(refusal) => return Err(refusal),
    };
    // Its claims on other hosts are released once it has its new size.
    let rescue = match refused.or_else(|| bound_to_others(state, &demand, &choice.host)) {
        None => Rescue::Restart,
        Some(why) => Rescue::Impossible(why),
    };
    Ok(FleetGuest {
        vm: incoming.vm.clone(),
        claim: Arc::new(Claim {
            id: incoming.claim,
            vm: incoming.vm.clone(),
            owner: Owner::Vm,
            host: choice.host.clone(),
            state: claim::State::Held,
            resources: choice.resources.clone(),
            assignment: choice.assignment.clone(),
            erasures: BTreeMap::new(),
            cpu: choice.cpu.clone(),
        }),
        also_on: Vec::new(),
        demand: Arc::new(demand),
        fixed: None,
        rescue,
    })
}

fn broken_state(what: &str) -> Refusal {
    let message = format!("the headroom for failures cannot be computed: {what}");
    Refusal::new(Code::Internal, "FAILOVER_STATE", message)
}
