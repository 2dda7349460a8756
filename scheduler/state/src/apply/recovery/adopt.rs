//! Guests that are elsewhere than recorded, or that no VM is recorded for: what they hold is claimed.
//!
//! A guest that runs has what it holds, whatever the state says. So a VM without a guest gives way to
//! it, and one whose name a running guest has is forgotten: it was deleted, or its name were not free.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::constraint::{self, Demand};
use berth_domain::cpu_model::CpuDemand;
use berth_domain::id::{ClaimId, Generation, VmUid};
use berth_domain::name::VmName;
use berth_domain::numa::Assignment;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::server_group::GroupPolicy;
use berth_domain::vm::{Metadata, Restarts, State as VmState, Vm, VmSpec};

use super::Seat;
use super::settle::Settling;
use crate::recovery::{Conflict, Replaced, Settled, is_dead};
use crate::refusals::precondition;
use crate::request::CLUSTER_RESTORED;
use crate::state::State;
use crate::transaction::{Journal, Transaction};

/// A guest that is not on a claim of its VM.
pub(super) struct Stray {
    /// The VM as it is recorded, or would be.
    pub(super) vm: Vm,
    is_new: bool,
    pub(super) seat: Seat,
}

impl Stray {
    /// Returns the guest of a recorded VM, with the size that its host reports.
    pub(super) fn of_vm(vm: &Vm, seat: Seat) -> Self {
        let own = &vm.spec;
        let spec = seat.spec.as_deref().map(|reported| VmSpec {
            // These never change while a VM lives.
            nics: own.nics.clone(),
            hints: own.hints.clone(),
            volumes: own.volumes.clone(),
            ..reported.clone()
        });
        let vm = Vm {
            spec: spec.unwrap_or_else(|| own.clone()),
            ..vm.clone()
        };
        Self {
            vm,
            is_new: false,
            seat,
        }
    }

    /// Returns what it holds.
    pub(super) fn held(&self) -> Assignment {
        self.seat.held.clone().unwrap_or_default()
    }
}

/// How many VMs that are in the way of a guest are named.
const HOLDERS_SHOWN_MAX: usize = 8;

impl<J: Journal> Transaction<'_, J> {
    /// Records a VM for a guest that has none.
    pub(super) fn add(&mut self, uid: VmUid, seats: &[Seat], settling: &mut Settling) {
        let [seat] = seats else {
            if let Some(first) = seats.first() {
                settling.conflicts.push(Conflict::Twice {
                    vm: first.name.clone(),
                    hosts: seats.iter().map(|seat| seat.host.clone()).collect(),
                });
            }
            return;
        };
        let unrecorded = |refusal: Refusal| Conflict::Unrecorded {
            host: seat.host.clone(),
            uuid: uid.0,
            name: seat.name.clone(),
            refusal: Box::new(refusal),
        };
        let vm = match self.new_vm(uid, seat, settling) {
            Ok(vm) => vm,
            Err(refusal) => return settling.conflicts.push(unrecorded(refusal)),
        };
        if let Some(old) = self.state.vm(&vm.name).cloned() {
            // Its guest is nowhere: new_vm() has looked.
            if let Some(claim) = old.claim {
                settling.idle.remove(&claim);
            }
            self.unbind(&old, None);
            self.remove_vm(&old.name);
            settling.settled.remove(&old.name);
            settling.replaced.push(self.replaced(&old, seat));
        }
        let stray = Stray {
            vm,
            is_new: true,
            seat: seat.clone(),
        };
        self.adopt(stray, settling);
    }

    /// Returns a VM as one that a guest of its name replaces.
    fn replaced(&self, old: &Vm, seat: &Seat) -> Replaced {
        let host = old.host.clone().or_else(|| old.remains_on.clone());
        let view = host.as_ref().and_then(|host| self.state.host(host));
        Replaced {
            vm: old.name.clone(),
            uid: old.uid,
            is_fenced: view.is_some_and(|view| is_dead(&view.host)),
            host,
            other: seat.host.clone(),
        }
    }

    /// Returns the VM that a guest is recorded as. It remains protected where the VM of its name was: that its
    /// operator protected the name is all that is known of it.
    fn new_vm(&self, uid: VmUid, seat: &Seat, settling: &Settling) -> Result<Vm, Refusal> {
        let name = VmName::new(&seat.name);
        let name = name.map_err(|why| unfit(format!("its name is no name of a VM: {why}")))?;
        let spec = seat.spec.as_deref().cloned();
        let spec = spec.ok_or_else(|| unfit("its host does not report its specification"))?;
        if let Some(vm) = self.state.vm(&name)
            && !self.is_off(vm, settling)
        {
            return Err(unfit(format!("another VM {name} has a guest")));
        }
        let left = self.state.vm(&name).map(|vm| &vm.name);
        let taken = spec.nics.iter().filter_map(|nic| {
            let holder = self.state.vm_with_mac(&nic.mac)?;
            (Some(holder) != left).then_some((nic, holder))
        });
        if let Some((nic, holder)) = taken.into_iter().next() {
            let mac = &nic.mac;
            return Err(unfit(format!("vm {holder} has its MAC address {mac}")));
        }
        self.state.examine_group(&spec)?;
        let old = self.state.vm(&name);
        let metadata = Metadata {
            protected: old.is_some_and(|old| old.metadata.protected),
            ..Metadata::default()
        };
        Ok(Vm {
            name,
            uid,
            spec,
            state: VmState::Building,
            host: None,
            claim: None,
            remains_on: None,
            operation: None,
            error: None,
            generation: Generation(0),
            created_at: self.now(),
            trouble: None,
            restarts: Restarts::default(),
            metadata,
            first_boot: None,
            ownership: self.ownership(None),
        })
    }

    /// Returns whether no host has the guest of a VM. After the recovery nothing is known of the others.
    fn is_off(&self, vm: &Vm, settling: &Settling) -> bool {
        self.state.is_recovering() && !settling.has(vm)
    }

    /// Claims what a guest holds for its VM. VMs without guests give way.
    pub(super) fn adopt(&mut self, stray: Stray, settling: &mut Settling) {
        self.take_back_erasures(&stray.seat.host, &stray.held());
        let claim = self.make_way(&stray, settling).and_then(|claims| {
            for id in claims {
                settling.idle.remove(&id);
                self.displace(id, &stray, settling);
            }
            claim_for(self.state, &stray)
        });
        match claim {
            Ok(claim) => self.settle_on(stray, &claim, settling),
            Err(refusal) => {
                let refusal = self.with_holders(refusal, &stray);
                self.leave_unclaimed(stray, refusal, settling);
            }
        }
    }

    /// Adds to a refusal which VMs have CPUs or devices that a guest holds.
    fn with_holders(&self, mut refusal: Refusal, stray: &Stray) -> Refusal {
        let held = stray.held();
        let claims = self.state.claims_of_host(&stray.seat.host);
        let claims = claims.filter(|claim| overlaps(self.state, claim.id, &held));
        let holders: BTreeSet<&str> = claims.map(|claim| claim.vm.as_str()).collect();
        let shown: Vec<&str> = holders.iter().copied().take(HOLDERS_SHOWN_MAX).collect();
        if shown.is_empty() {
            return refusal;
        }
        let more = match holders.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown = shown.join(", ");
        refusal.message +=
            &format!("; CPUs or devices of its guest are claimed by vm {shown}{more}");
        refusal
    }

    fn settle_on(&mut self, stray: Stray, claim: &Claim, settling: &mut Settling) {
        let Stray { vm, is_new, seat } = stray;
        let state = match seat.is_live {
            true => VmState::Active,
            false => VmState::Stopped,
        };
        // Before its claim, which is counted in the VM's server group.
        let after = self.put_vm(Vm {
            state,
            host: Some(seat.host.clone()),
            claim: Some(claim.id),
            remains_on: None,
            operation: None,
            error: None,
            trouble: None,
            generation: vm.generation.next(),
            ..vm
        });
        self.hold(claim);
        self.separate(&after);
        let (vm, host) = (after.name.clone(), seat.host);
        settling.note(match (is_new, seat.is_live) {
            (true, _) => Settled::Added { vm, host },
            (false, true) => Settled::Runs { vm, host },
            (false, false) => Settled::Off { vm },
        });
    }

    fn leave_unclaimed(&mut self, stray: Stray, refusal: Refusal, settling: &mut Settling) {
        let Stray { vm, is_new, seat } = stray;
        let refusal = refusal.as_record(true);
        if is_new {
            settling.conflicts.push(Conflict::Unrecorded {
                host: seat.host,
                uuid: vm.uid.0,
                name: seat.name,
                refusal: Box::new(refusal),
            });
            return;
        }
        // Its deletion removes the guest there.
        let recorded = self.state.vm(&vm.name).cloned();
        let recorded = recorded.expect("it is recorded");
        self.fail(&recorded, None, Some(seat.host.clone()), refusal.clone());
        settling.conflicts.push(Conflict::Unclaimable {
            vm: vm.name,
            host: seat.host,
            refusal: Box::new(refusal),
        });
    }

    /// Takes the claim from a VM without a guest.
    fn displace(&mut self, id: ClaimId, stray: &Stray, settling: &mut Settling) {
        let vm = self.state.claim(id).and_then(|c| self.state.vm(&c.vm));
        let Some(vm) = vm.cloned() else { return };
        self.unbind(&vm, None);
        self.take_back_erasures(&stray.seat.host, &stray.held());
        let message = format!(
            "no host has the guest of vm {}, and vm {} runs on host {} with what it had there",
            vm.name, stray.vm.name, stray.seat.host
        );
        let why = Refusal::new(Code::FailedPrecondition, CLUSTER_RESTORED, message);
        let failed = self.fail(&vm, None, vm.host.clone(), why);
        settling.note(failed);
    }
}

/// Returns which claims of VMs without guests have what a guest holds.
pub(super) fn claims_in_the_way(
    state: &State,
    stray: &Stray,
    idle: &BTreeSet<ClaimId>,
) -> Result<Vec<ClaimId>, Refusal> {
    let Err(refusal) = claim_for(state, stray) else {
        return Ok(Vec::new());
    };
    let of_host = state.claims_of_host(&stray.seat.host).map(|claim| claim.id);
    let here: Vec<ClaimId> = of_host.filter(|id| idle.contains(id)).collect();
    // First one that suffices, then those that have the same CPUs or devices.
    for id in &here {
        if claim_for(&without(state, *id, stray), stray).is_ok() {
            return Ok(vec![*id]);
        }
    }
    let (mut rest, mut taken) = (state.clone(), Vec::new());
    for id in here {
        if overlaps(state, id, &stray.held()) {
            rest = without(&rest, id, stray);
            taken.push(id);
        }
    }
    claim_for(&rest, stray).map(|_| taken).map_err(|_| refusal)
}

/// Returns a state without a claim, in favour of a guest.
fn without(state: &State, id: ClaimId, stray: &Stray) -> State {
    let mut state = state.clone();
    let mut trial = Transaction::unrecorded(&mut state);
    trial.release(id);
    trial.take_back_erasures(&stray.seat.host, &stray.held());
    state
}

/// Returns whether a claim has CPUs or devices that a guest holds.
pub(super) fn overlaps(state: &State, id: ClaimId, held: &Assignment) -> bool {
    let Some(claim) = state.claim(id) else {
        return false;
    };
    let own = &claim.assignment;
    let cpus = own.dedicated().intersection(&held.dedicated());
    let pci = own.pci.iter().any(|device| held.pci.contains(device));
    let pmem = own.pmem.iter().any(|device| held.pmem.contains(device));
    !cpus.is_empty() || pci || pmem
}

/// Returns the claim with which a guest is its VM's.
fn claim_for(state: &State, stray: &Stray) -> Result<Claim, Refusal> {
    let Stray { vm, seat, .. } = stray;
    let id = seat.claim;
    let id = id.ok_or_else(|| unfit("the domain's metadata name no claim"))?;
    if state.claim(id).is_some() {
        return Err(unfit(format!("its claim {id} is in use")));
    }
    let held = stray.held();
    // It runs with the CPU that it was started with, whatever hosts give by now.
    let demand = Demand {
        cpu: CpuDemand::Unrecorded,
        ..Demand::boot(&vm.spec)?
    };
    let demand = state.with_relations(demand, &vm.name, &vm.spec)?;
    let view = state.host(&seat.host);
    let view = view.ok_or_else(|| Refusal::not_found("host", &seat.host))?;
    let group = match demand.group.as_ref().map(|group| group.policy) {
        // Those that are apart are recorded so.
        Some(GroupPolicy::Affinity) | None => Ok(()),
        Some(_) => constraint::group::check(view, &demand),
    };
    group
        .and_then(|()| constraint::zone::check(view, &demand))
        .and_then(|()| constraint::volumes::check(view, &demand))
        .and_then(|()| constraint::exact::admit(view, &demand, &held))
        .and_then(|()| constraint::capacity::check(view, &demand))
        .and_then(|()| constraint::memory::check(view, &demand.resources, &held))
        .map_err(|violation| violation.to_refusal(&seat.host))?;
    Ok(Claim {
        id,
        vm: vm.name.clone(),
        owner: Owner::Vm,
        host: seat.host.clone(),
        state: ClaimState::Active,
        resources: demand.resources,
        assignment: held,
        erasures: BTreeMap::new(),
        cpu: None,
    })
}

/// Why a guest cannot be its VM's.
fn unfit(message: impl Into<String>) -> Refusal {
    precondition("GUEST_NOT_ADOPTED", message)
}
