//! Guests that run on the destination before all of their memory is there.
//!
//! ```text
//!   source       SWITCHING ──────────────depart──▶ (none)
//!                    └──tear──▶ TORN
//!   destination  RECEIVING ──pull──▶ PULLING_IN ──pulled──▶ RUNNING
//!                                        └──tear──▶ TORN
//! ```
//!
//! Invariant: what is torn stays so. Neither half is a guest that could go on, and only an operator
//! at the hypervisor removes it.

use berth_domain::id::{TimeMs, VmUid};
use berth_domain::topology::CellId;

use super::console::Console;
use super::host::{Host, Phase};
use crate::error::Error;

/// The error of a guest whose two halves have lost each other.
pub(super) const TORN: &str = "the connection broke while the guest's memory was following it";

impl Host {
    /// Lets a guest go on here whose memory follows.
    pub(super) fn pull(&mut self, now: TimeMs, vm: VmUid, console: Console) -> Result<(), Error> {
        self.arrive(now, vm, console)?;
        self.set(vm, Phase::PullingIn);
        Ok(())
    }

    /// All of the memory of a guest has followed it.
    pub(super) fn pulled(&mut self, vm: VmUid) -> Result<(), Error> {
        match self.domains.get(&vm).map(|d| &d.phase) {
            Some(Phase::PullingIn) => {
                self.set(vm, Phase::Running);
                Ok(())
            }
            Some(_) => Err(self.wrong_state(vm, "complete")),
            None => Err(Error::Absent { vm }),
        }
    }

    /// Tears a guest apart whose memory is here and elsewhere.
    pub(super) fn tear(&mut self, now: TimeMs, vm: VmUid) {
        let Some(domain) = self.domains.get_mut(&vm) else {
            return;
        };
        match domain.phase {
            // It stands still already, for its other half to run.
            Phase::Switching { .. } => {}
            Phase::PullingIn => domain.console.pause(now),
            Phase::Running
            | Phase::Prepared
            | Phase::Receiving
            | Phase::Sending
            | Phase::Stopped
            | Phase::Torn => return,
        }
        domain.phase = Phase::Torn;
        domain.migration_error = Some(TORN.to_owned());
    }

    /// Another process on the machine takes so many huge pages.
    pub(super) fn take_pages(&mut self, cell: CellId, size_kib: u64, count: u64) {
        self.foreign_pages.insert((cell, size_kib), count);
    }

    fn set(&mut self, vm: VmUid, phase: Phase) {
        if let Some(domain) = self.domains.get_mut(&vm) {
            domain.phase = phase;
        }
    }
}
