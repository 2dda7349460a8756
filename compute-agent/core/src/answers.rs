//! What the driver's results mean for the guests, and for the calls that wait.

use berth_domain::agent::{DestinationCheck, DomainState, DomainStatus, Reply};
use berth_domain::id::{OperationId, VmUid};
use berth_domain::migration::MigrateData;
use berth_domain::refusal::{Code, Refusal};
use berth_driver_api::{Answer, DomainSpec, Error, Request, Token};

use super::agent::{Agent, CallId, Effect, InFlight, Work, reply};
use super::calls::precondition;
use super::guests::Phase;

pub(super) type Done = Result<Answer, Error>;

impl Agent {
    pub(super) fn finish(&mut self, done: InFlight, token: Token, result: Done) -> Vec<Effect> {
        let vm = done.vm;
        let answer = match done.work {
            Work::Spawn | Work::Start => self.spawned(vm, result),
            Work::Stop => self.stopped(vm, result),
            Work::Settle => self.settled(vm, result),
            Work::Disks => result.map(|_| Reply::Done).map_err(|e| self.refusal(&e)),
            Work::EraseFirst(operation, domain) => match result {
                Ok(_) => return self.pmem_erased(done.id, operation, domain),
                Err(error) => Err(self.refusal(&error)),
            },
            Work::DropImage => self.image_dropped(result),
            Work::PowerOff => return self.power_off_result(vm, result),
            Work::Destroy => self.destroyed(vm, result),
            Work::Query { changes } => {
                let id = done.id.expect("a call queried it");
                return vec![self.state_result(vm, id, changes, result)];
            }
            Work::CheckDestination => self.destination_checked(result),
            Work::CheckSourceTls(destination) => {
                return self.source_tls_checked(vm, done.id, result, destination);
            }
            Work::CheckSourcePeer { destination, tls } => {
                return self.source_peer_checked(vm, done.id, result, destination, tls);
            }
            Work::CheckSource { destination, tls } => {
                self.source_checked(vm, result, destination, tls)
            }
            Work::Fit(data) => self.fit_result(vm, result, *data),
            Work::Prepare => self.prepared(vm, result),
            Work::Rollback => self.rolled_back(vm, result),
            Work::Release => self.released(vm, result),
            Work::Transfer => {
                self.transferred(vm, token, result);
                return Vec::new();
            }
            Work::Evict => {
                if result.is_ok() {
                    self.forget(vm);
                }
                return Vec::new();
            }
            Work::FenceItself => {
                self.fenced_itself(vm, &result);
                return Vec::new();
            }
            Work::Order => {
                self.order_result(vm, &result);
                return Vec::new();
            }
            Work::StopFetch => return Vec::new(),
            Work::ConductorOrder => self.transfer_order_result(result),
        };
        done.id.map(|id| reply(id, answer)).into_iter().collect()
    }

    /// Continues with the disks of a guest whose persistent memory is erased.
    fn pmem_erased(
        &mut self,
        id: Option<CallId>,
        operation: OperationId,
        domain: Box<DomainSpec>,
    ) -> Vec<Effect> {
        let vm = domain.uid;
        self.fences.of(vm).erased = domain.claim.map(|claim| (operation, claim));
        self.go_on(vm, id, Work::Disks, Request::MakeDisks(domain))
    }

    /// Makes the next request of the call that is being done.
    pub(super) fn go_on(
        &mut self,
        vm: VmUid,
        id: Option<CallId>,
        work: Work,
        request: Request,
    ) -> Vec<Effect> {
        let (token, effect) = self.driver(vm, id, work, request);
        self.take_queue(vm, token);
        vec![effect]
    }

    /// Forgets a guest that is not here any more.
    pub(super) fn forget(&mut self, vm: VmUid) {
        if let Some(guest) = self.guests.remove(&vm) {
            self.query_erasures_soon(&guest.domain);
        }
    }

    fn spawned(&mut self, vm: VmUid, result: Done) -> Result<Reply, Refusal> {
        match result {
            Ok(_) => {
                self.set_phase(vm, Phase::Running);
                Ok(Reply::Done)
            }
            Err(error) => {
                if !error.is_unknown() {
                    self.forget(vm);
                }
                Err(self.refusal(&error))
            }
        }
    }

    fn destroyed(&mut self, vm: VmUid, result: Done) -> Result<Reply, Refusal> {
        match result {
            Ok(_) => {
                self.forget(vm);
                Ok(Reply::Done)
            }
            Err(error) => Err(self.refusal(&error)),
        }
    }

    fn state_result(&mut self, vm: VmUid, id: CallId, changes: u64, result: Done) -> Effect {
        let result = match result {
            // Something about the guest began or ended after the hypervisor looked.
            Ok(_) if self.has_changed(vm, changes) => return self.query_state(vm, id),
            Ok(answer) => Ok(Reply::Domain(self.overlaid(vm, status(answer)))),
            Err(error) => Err(self.refusal(&error)),
        };
        reply(id, result)
    }

    /// Joins what the hypervisor reports with what only this agent knows.
    pub(super) fn overlaid(&mut self, vm: VmUid, mut status: DomainStatus) -> DomainStatus {
        let spawning = self.is_spawning(vm);
        let Some(guest) = self.guests.get_mut(&vm) else {
            return status;
        };
        if status.state != DomainState::MigratingOut {
            guest.leaving = None;
        }
        // Why it was stopped the agent knows, not the hypervisor.
        if guest.migration_error.is_some() {
            status.migration_error.clone_from(&guest.migration_error);
        }
        if guest.phase.has_come(status.state, spawning) {
            guest.phase = Phase::Running;
        }
        match (&guest.phase, status.state) {
            (Phase::Starting, DomainState::Absent) if spawning => {
                status.state = DomainState::Starting;
            }
            (Phase::Incoming(_), DomainState::Absent) => {
                status.state = DomainState::Prepared;
                status.claim = guest.domain.claim;
                status.epoch = Some(guest.domain.epoch);
            }
            (Phase::Running, DomainState::Absent) => {
                self.forget(vm);
            }
            // Ordered, but the hypervisor has not begun, or has just failed without reporting it.
            (Phase::Sending(_), DomainState::Running) => {
                status.state = DomainState::MigratingOut;
            }
            (
                Phase::Starting | Phase::Running | Phase::Incoming(_) | Phase::Sending(_),
                DomainState::Absent
                | DomainState::Starting
                | DomainState::Running
                | DomainState::Paused
                | DomainState::MigratingOut
                | DomainState::MigratingIn
                | DomainState::Prepared
                | DomainState::Stopped
                | DomainState::PostCopyBroken,
            ) => {}
        }
        status
    }

    fn source_checked(
        &mut self,
        vm: VmUid,
        result: Done,
        destination: DestinationCheck,
        tls: bool,
    ) -> Result<Reply, Refusal> {
        match result {
            Ok(answer) => self.migrate_data(vm, status(answer).state, destination, tls),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    fn fit_result(
        &mut self,
        _vm: VmUid,
        result: Done,
        data: MigrateData,
    ) -> Result<Reply, Refusal> {
        match result {
            Ok(Answer::FreePages(free)) => self.decide_fit(data, &free),
            Ok(
                other @ (Answer::Done
                | Answer::Status(_)
                | Answer::Domains(_)
                | Answer::Image { .. }
                | Answer::Everything(..)),
            ) => {
                unreachable!("free pages were requested, not {other:?}")
            }
            Err(error) => Err(self.refusal(&error)),
        }
    }

    fn prepared(&mut self, vm: VmUid, result: Done) -> Result<Reply, Refusal> {
        match result {
            Ok(_) => Ok(Reply::Done),
            Err(error) => {
                match state_in_the_way(&error) {
                    // A late repetition: the guest has arrived.
                    Some(DomainState::Running) => self.set_phase(vm, Phase::Running),
                    // It is here, and not what a preparation leaves.
                    Some(
                        DomainState::Paused
                        | DomainState::MigratingIn
                        | DomainState::MigratingOut
                        | DomainState::PostCopyBroken,
                    ) => {}
                    Some(
                        DomainState::Absent
                        | DomainState::Starting
                        | DomainState::Prepared
                        | DomainState::Stopped,
                    )
                    | None => {
                        if !error.is_unknown() {
                            self.forget(vm);
                        }
                    }
                }
                Err(self.refusal(&error))
            }
        }
    }

    fn rolled_back(&mut self, vm: VmUid, result: Done) -> Result<Reply, Refusal> {
        match result {
            Ok(_) => {
                if self
                    .phase(vm)
                    .is_some_and(|p| matches!(p, Phase::Incoming(_)))
                {
                    self.forget(vm);
                }
                Ok(Reply::Done)
            }
            Err(error) => Err(self.refusal(&error)),
        }
    }

    fn released(&mut self, vm: VmUid, result: Done) -> Result<Reply, Refusal> {
        match result {
            Ok(_) => {
                // A transfer that has not reported its end yet takes the guest away itself.
                if !self
                    .phase(vm)
                    .is_some_and(|p| matches!(p, Phase::Sending(_)))
                {
                    self.forget(vm);
                }
                Ok(Reply::Done)
            }
            Err(error) => Err(self.refusal(&error)),
        }
    }

    fn transferred(&mut self, vm: VmUid, token: Token, result: Done) {
        let Some(guest) = self.guests.get_mut(&vm) else {
            return;
        };
        let overrun_ms = match &guest.phase {
            Phase::Sending(transfer) if transfer.token == token => transfer.overrun_ms,
            Phase::Starting | Phase::Running | Phase::Incoming(_) | Phase::Sending(_) => return,
        };
        match (result, overrun_ms) {
            (Ok(_), _) => {
                self.forget(vm);
            }
            (Err(Error::Aborted { .. }), Some(limit_ms)) => {
                guest.phase = Phase::Running;
                let message =
                    format!("the transfer took longer than {limit_ms} ms and was stopped");
                guest.migration_error = Some(message);
            }
            // Where the outcome is unknown too: from here on the hypervisor's word counts alone.
            (Err(error), _) => {
                guest.phase = Phase::Running;
                guest.migration_error = Some(error.to_string());
            }
        }
    }

    fn transfer_order_result(&self, result: Done) -> Result<Reply, Refusal> {
        match result {
            Ok(_) => Ok(Reply::Done),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// Whatever the driver's result: the transfer itself reports how it ended. One that has not
    /// ended yet gets another order with the next tick, since the order may have failed, or have come
    /// before the hypervisor had begun.
    fn order_result(&mut self, vm: VmUid, result: &Done) {
        let Some(guest) = self.guests.get_mut(&vm) else {
            return;
        };
        match (&mut guest.phase, &mut guest.leaving) {
            (Phase::Sending(transfer), _) => transfer.ordering = false,
            // Whatever leaves later is no business of this order's.
            (_, leaving @ Some(_)) if result.is_ok() => *leaving = None,
            (_, Some(leaving)) => leaving.ordering = false,
            (_, None) => {}
        }
    }

    fn phase(&self, vm: VmUid) -> Option<&Phase> {
        self.guests.get(&vm).map(|guest| &guest.phase)
    }

    fn set_phase(&mut self, vm: VmUid, phase: Phase) {
        if let Some(guest) = self.guests.get_mut(&vm) {
            guest.phase = phase;
        }
    }

    /// Returns a driver's error as the conductor reads it.
    pub(super) fn refusal(&self, error: &Error) -> Refusal {
        let refusal = match error {
            Error::Absent { vm } => return self.absent(*vm),
            Error::Exists { .. } => {
                Refusal::new(Code::AlreadyExists, "GUEST_EXISTS", error.to_string())
            }
            Error::WrongState { state, .. } => {
                let reason = match state {
                    DomainState::Running | DomainState::Paused => "GUEST_RUNS_HERE",
                    DomainState::MigratingIn => "GUEST_ARRIVES",
                    DomainState::MigratingOut => "GUEST_MOVES",
                    DomainState::Absent
                    | DomainState::Starting
                    | DomainState::Prepared
                    | DomainState::PostCopyBroken
                    | DomainState::Stopped => "GUEST_WRONG_STATE",
                };
                precondition(reason, error.to_string())
            }
            Error::DiskMissing { .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                precondition("DISK_MISSING", message)
                    .with_hint("bring the file back, or rebuild or delete the VM")
            }
            Error::SeedMissing { .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                precondition("DISK_MISSING", message)
                    .with_hint("bring the file back, or delete the VM: what was on it is not kept")
            }
            Error::ImageExists { .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                Refusal::new(Code::AlreadyExists, "IMAGE_EXISTS", message)
                    .with_hint("give the new image another name")
            }
            Error::ImageRefused { hint, .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                precondition("IMAGE_REFUSED", message).with_hint(hint)
            }
            Error::NoSpace { .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                precondition("NO_ROOM_FOR_DISKS", message)
                    .with_hint("free space there, or name another host")
            }
            Error::StorageShared { .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                precondition("STORAGE_SHARED", message)
                    .with_hint("give hosts that share their instance directory one storage_id")
            }
            Error::Overdue { .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                precondition("FETCH_TIMED_OUT", message)
                    .with_hint("give it more time: `berth policy set migration.timeout_ms`")
            }
            Error::SourceGone { .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                Refusal::new(Code::Unavailable, "DISK_SOURCE_UNREACHABLE", message)
            }
            Error::VolumeInUse { volume, .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                precondition("VOLUME_IN_USE", message)
                    .with_hint("have its user there release it first")
                    .with("volume", volume)
            }
            Error::VolumeUnusable { volume, .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                precondition("VOLUME_UNUSABLE", message).with("volume", volume)
            }
            Error::Refused { .. } | Error::Aborted { .. } => {
                let message = format!("host {}: {error}", self.facts.host);
                precondition("HYPERVISOR_REFUSED", message)
            }
            Error::Unreachable { .. } => Refusal::new(
                Code::Unavailable,
                "HYPERVISOR_UNREACHABLE",
                error.to_string(),
            ),
            Error::TimedOut { .. } => Refusal::new(
                Code::DeadlineExceeded,
                "HYPERVISOR_TIMED_OUT",
                error.to_string(),
            ),
        };
        refusal.with("host", &self.facts.host)
    }
}

pub(super) fn status(answer: Answer) -> DomainStatus {
    match answer {
        Answer::Status(status) => status,
        other @ (Answer::Done
        | Answer::Domains(_)
        | Answer::FreePages(_)
        | Answer::Image { .. }
        | Answer::Everything(..)) => {
            unreachable!("a status was requested, not {other:?}")
        }
    }
}

/// Returns the state of the guest because of which the driver refused.
fn state_in_the_way(error: &Error) -> Option<DomainState> {
    if let Error::WrongState { state, .. } = error {
        return Some(*state);
    }
    None
}
