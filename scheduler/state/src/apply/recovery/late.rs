//! Hosts that report after the recovery: they were added in the time that is lost, or were fenced.
//!
//! Nothing new was placed there meanwhile. The VMs of the cluster may have been started and changed by
//! now: a guest of a late host counts only where its VM has none elsewhere.

use std::sync::Arc;

use berth_domain::name::HostName;
use berth_domain::recovery::RecoveredHost;
use berth_domain::vm::{State as VmState, Vm};

use super::Seat;
use super::adopt::Stray;
use super::settle::Settling;
use crate::recovery::is_dead;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Settles the guests of a late host.
    pub(super) fn settle_late(&mut self, report: &RecoveredHost) {
        let report = Arc::new(report.clone());
        // No VM gives its CPUs and devices up: it may have been started since.
        let mut settling = Settling::of_reports(std::iter::once(&report));
        for (uid, seats) in self.seats_on(&report) {
            let Some(seat) = seats.first() else { continue };
            let vm = self.state.vm_of_domain(uid, &seat.name).cloned();
            match vm {
                None => self.add(uid, &seats, &mut settling),
                Some(vm) if vm.operation.is_some() => {}
                Some(vm) => match self.own_claim(&vm, seat) {
                    Some(claim) if vm.claim == Some(claim) && seat.is_live => {
                        self.keep_on(&vm, claim, true, &mut settling);
                    }
                    Some(_) => {}
                    None => self.settle_late_guest(&vm, seat, &mut settling),
                },
            }
        }
        self.record_left(&report);
    }

    /// A guest is not on the claim of its VM.
    fn settle_late_guest(&mut self, vm: &Vm, seat: &Seat, settling: &mut Settling) {
        let is_dead = |name: &HostName| {
            let view = self.state.host(name);
            view.is_some_and(|view| is_dead(&view.host))
        };
        let is_off = match vm.state {
            VmState::Stopped | VmState::Shelved => true,
            VmState::Active => vm.host.as_ref().is_some_and(is_dead),
            VmState::Building
            | VmState::Migrating
            | VmState::Deleting
            | VmState::Error
            | VmState::Resized => false,
        };
        let runs = match vm.state {
            VmState::Active | VmState::Resized => true,
            VmState::Stopped
            | VmState::Shelved
            | VmState::Building
            | VmState::Migrating
            | VmState::Deleting
            | VmState::Error => false,
        };
        let is_fenced = self.state.hosts[&seat.host].host.fenced.is_some();
        if seat.is_live && is_off {
            self.unbind(vm, None);
            let stray = Stray::of_vm(vm, seat.clone());
            self.adopt(stray, settling);
        } else if seat.is_live && runs && !is_fenced {
            let hosts = vm.host.iter().cloned();
            let hosts = hosts.chain([seat.host.clone()]).collect();
            self.leave_twice(vm, hosts, settling);
        }
    }
}
