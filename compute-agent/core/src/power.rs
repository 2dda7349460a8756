//! Stopping a guest within a time limit, starting it again, and work on its disks.
//!
//! ```text
//!   StopVm ─▶ power-off requested ─▶ checked, tick by tick ─▶ off ───────┐
//!      │ no time limit                    │ its time is over            ▼
//!      └──────────────────────────────────┴──────────────────▶ plug pulled, forgotten
//! ```
//!
//! The waiting is done here and not in the driver, so that it takes no thread, and so that
//! [`Call::SettleVm`](berth_domain::agent::Call::SettleVm) ends it.
//!
//! Invariant: a guest's queue is busy as long as it is waited for.

use std::collections::BTreeMap;

use berth_domain::agent::{DomainState, Fence, Reply};
use berth_domain::claim::Claim;
use berth_domain::cpu_set::CpuSet;
use berth_domain::id::{ClaimId, TimeMs, VmUid};
use berth_domain::name::VmName;
use berth_domain::numa::Assignment;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{ServiceVersion, TOO_OLD};
use berth_domain::vm::VmSpec;
use berth_driver_api::{Answer, DomainSpec, Draft, Request, Token};

use super::agent::{Agent, CallId, Effect, Start, Work, reply};
use super::answers::{Done, status};
use super::calls::{Started, is_sound, moves, precondition};
use super::fences::late;
use super::guests::Phase;

/// A guest within its time to power off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// The call that is replied to when it is off.
    id: CallId,
    /// When its plug is pulled.
    until: TimeMs,
    /// A driver request is under way; else the next tick sends one.
    asking: bool,
    /// The wait is over without the plug being pulled: the operation is settled.
    cancelled: bool,
}

/// All of them.
pub(super) type Waits = BTreeMap<VmUid, Wait>;

impl Agent {
    /// Refuses what [`ServiceVersion::VM_POWER`] brought, where this agent behaves like an older
    /// one.
    pub(super) fn knows_power(&self) -> Result<(), Refusal> {
        if self.facts.version >= ServiceVersion::VM_POWER {
            return Ok(());
        }
        let message = format!(
            "the agent of host {} runs at service version {} and does not stop or start guests",
            self.facts.host, self.facts.version
        );
        Err(Refusal::new(Code::Unimplemented, TOO_OLD, message)
            .with("host", &self.facts.host)
            .with("version", self.facts.version))
    }

    /// Refuses calls of an operation that came before it was settled.
    pub(super) fn is_open(&self, fence: &Fence) -> Result<(), Refusal> {
        if self.fences.is_settled(fence) {
            return Err(late("the operation was settled here after this call"));
        }
        Ok(())
    }

    pub(super) fn stop_vm(
        &mut self,
        fence: &Fence,
        id: CallId,
        claim: ClaimId,
        timeout_ms: u64,
        last: bool,
    ) -> Started {
        self.knows_power()?;
        self.is_open(fence)?;
        let record = self.fences.of(fence.vm);
        if last {
            record.end(claim);
        } else {
            record.stop(fence, claim)?;
        }
        if let Some(guest) = self.guests.get(&fence.vm) {
            if matches!(guest.phase, Phase::Sending(_)) {
                return Err(moves(&guest.domain.vm));
            }
            // One that an older agent handed over does not record its claim.
            if guest.domain.claim.is_some_and(|own| own != claim) {
                return Ok(Start::Reply(Ok(Reply::Done)));
            }
        }
        if timeout_ms == 0 {
            return Ok(Start::Work(Work::Stop, Request::Stop(fence.vm)));
        }
        let wait = Wait {
            id,
            until: TimeMs(self.now.0.saturating_add(timeout_ms)),
            asking: true,
            cancelled: false,
        };
        self.waits.insert(fence.vm, wait);
        Ok(Start::Work(Work::PowerOff, Request::Shutdown(fence.vm)))
    }

    pub(super) fn start_vm(
        &mut self,
        fence: &Fence,
        vm: VmName,
        spec: VmSpec,
        claim: &Claim,
    ) -> Started {
        self.knows_power()?;
        self.is_open(fence)?;
        let record = self.fences.of(fence.vm);
        if record.destroyed {
            return Err(late("the guest was to be destroyed here after this call"));
        }
        if record.ended.contains(&claim.id) {
            return Err(late("the claim was released after this call"));
        }
        record.may_start(fence)?;
        self.is_here(claim)?;
        is_sound(&spec)?;
        if let Some(guest) = self.guests.get(&fence.vm) {
            let is_here = match guest.phase {
                Phase::Starting | Phase::Running => guest.domain.claim == Some(claim.id),
                Phase::Incoming(_) | Phase::Sending(_) => false,
            };
            if !is_here {
                return Err(self.exists(fence.vm));
            }
        }
        let domain = self.domain(fence, vm, spec, claim);
        self.is_free(&domain)?;
        self.fences.of(fence.vm).start(fence, claim.id);
        self.insert(domain.clone(), Phase::Starting);
        Ok(Start::Work(Work::Start, Request::Start(Box::new(domain))))
    }

    pub(super) fn settle_vm(&mut self, fence: &Fence) -> Started {
        self.knows_power()?;
        self.fences.of(fence.vm).settled = Some(fence.operation);
        Ok(Start::Work(Work::Settle, Request::Domain(fence.vm)))
    }

    pub(super) fn make_disks(
        &mut self,
        fence: &Fence,
        vm: VmName,
        spec: VmSpec,
        claim: &Claim,
    ) -> Started {
        self.knows_power()?;
        self.is_open(fence)?;
        if self.fences.of(fence.vm).was_started(fence, claim.id) {
            return Err(late("the guest was started after this call"));
        }
        self.is_here(claim)?;
        is_sound(&spec)?;
        if let Some(guest) = self.guests.get(&fence.vm) {
            let message = format!("guest {} is not off", guest.domain.vm);
            return Err(precondition("GUEST_RUNS_HERE", message));
        }
        let domain = Box::new(self.domain(fence, vm, spec, claim));
        let devices = domain.assignment.pmem.clone();
        let is_erased = self.fences.of(fence.vm).erased == Some((fence.operation, claim.id));
        if !devices.is_empty() && !is_erased {
            let work = Work::EraseFirst(fence.operation, domain);
            return Ok(Start::Work(work, Request::Erase(devices)));
        }
        Ok(Start::Work(Work::Disks, Request::MakeDisks(domain)))
    }

    pub(super) fn copy_disk(
        &mut self,
        fence: &Fence,
        vm: VmName,
        spec: VmSpec,
        disk: u32,
        image: String,
    ) -> Started {
        self.knows_power()?;
        self.is_open(fence)?;
        // Where the guest's disks are follows from its id alone.
        let domain = DomainSpec {
            vm,
            uid: fence.vm,
            spec,
            claim: None,
            epoch: fence.epoch,
            assignment: Assignment::default(),
            shared_cpus: CpuSet::new(),
            volumes: Vec::new(),
            bridges: Vec::new(),
            first_boot: None,
            cpu: None,
        };
        let request = Request::CopyDisk {
            domain: Box::new(domain),
            disk: usize::try_from(disk).unwrap_or(usize::MAX),
            draft: draft(fence, image),
        };
        Ok(Start::Work(Work::Disks, request))
    }

    pub(super) fn publish_image(&mut self, fence: &Fence, image: String) -> Started {
        self.knows_power()?;
        self.is_open(fence)?;
        let request = Request::PublishImage(draft(fence, image));
        Ok(Start::Work(Work::Disks, request))
    }

    pub(super) fn drop_image(&mut self, fence: &Fence, image: String) -> Started {
        self.knows_power()?;
        self.fences.of(fence.vm).settled = Some(fence.operation);
        let request = Request::DropImage(draft(fence, image));
        Ok(Start::Work(Work::DropImage, request))
    }

    pub(super) fn image_dropped(&self, result: Done) -> Result<Reply, Refusal> {
        match result {
            Ok(Answer::Image { published }) => Ok(Reply::Image { published }),
            Ok(
                other @ (Answer::Done
                | Answer::Status(_)
                | Answer::Domains(_)
                | Answer::Everything(..)
                | Answer::FreePages(_)),
            ) => unreachable!("a draft was dropped, which is not {other:?}"),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    fn domain(&self, fence: &Fence, vm: VmName, spec: VmSpec, claim: &Claim) -> DomainSpec {
        DomainSpec {
            vm,
            uid: fence.vm,
            spec,
            claim: Some(claim.id),
            epoch: fence.epoch,
            assignment: self.at_present(&claim.assignment),
            shared_cpus: self.facts.topology.shared(),
            volumes: Vec::new(),
            bridges: self.facts.bridges.clone(),
            first_boot: None,
            cpu: claim.cpu.clone(),
        }
    }

    /// The guest was requested to power off, or checked whether it has.
    pub(super) fn power_off_result(&mut self, vm: VmUid, result: Done) -> Vec<Effect> {
        let now = self.now;
        let Some(wait) = self.waits.get_mut(&vm) else {
            return Vec::new();
        };
        wait.asking = false;
        let wait = *wait;
        if wait.cancelled {
            return self.stop_waiting(vm);
        }
        match result {
            // Requested; or checked, and not off yet.
            Ok(Answer::Status(ref status)) if !is_off(status.state) && now < wait.until => {
                self.hold_queue(vm);
                Vec::new()
            }
            Ok(Answer::Done) => self.check_power(vm).into_iter().collect(),
            // It is off, its time is over, or it cannot be queried: the plug is pulled. Where it has
            // powered off, parts of it may be left all the same.
            Ok(_) => self.pull(vm, wait.id),
            Err(error) if error.is_unknown() && now < wait.until => {
                self.hold_queue(vm);
                Vec::new()
            }
            Err(_) => self.pull(vm, wait.id),
        }
    }

    fn pull(&mut self, vm: VmUid, id: CallId) -> Vec<Effect> {
        self.waits.remove(&vm);
        let (token, effect) = self.driver(vm, Some(id), Work::Stop, Request::Stop(vm));
        self.take_queue(vm, token);
        vec![effect]
    }

    /// Queries the driver whether the guests that are waited for are off by now.
    pub(super) fn check_waits(&mut self) -> Vec<Effect> {
        let due = self.waits.iter().filter(|(_, wait)| !wait.asking);
        let due: Vec<VmUid> = due.map(|(vm, _)| *vm).collect();
        due.into_iter()
            .filter_map(|vm| self.check_power(vm))
            .collect()
    }

    fn check_power(&mut self, vm: VmUid) -> Option<Effect> {
        self.waits.get_mut(&vm)?.asking = true;
        let (token, effect) = self.driver(vm, None, Work::PowerOff, Request::Domain(vm));
        self.take_queue(vm, token);
        Some(effect)
    }

    /// Ends the wait for a guest, if there is one: its plug is not pulled. A driver request under
    /// way is waited for.
    pub(super) fn stop_waiting(&mut self, vm: VmUid) -> Vec<Effect> {
        let Some(wait) = self.waits.get_mut(&vm) else {
            return Vec::new();
        };
        wait.cancelled = true;
        if wait.asking {
            return Vec::new();
        }
        let id = wait.id;
        self.waits.remove(&vm);
        if let Some(queue) = self.queues.get_mut(&vm) {
            queue.busy = None;
        }
        let refusal =
            late("the operation was settled while the guest was within its time to power off");
        vec![reply(id, Err(refusal))]
    }

    /// Keeps other calls out of the queue while no driver request is under way.
    fn hold_queue(&mut self, vm: VmUid) {
        let token = self.spare_token();
        self.take_queue(vm, token);
    }

    pub(super) fn take_queue(&mut self, vm: VmUid, token: Token) {
        self.queues.entry(vm).or_default().busy = Some(token);
    }

    pub(super) fn stopped(&mut self, vm: VmUid, result: Done) -> Result<Reply, Refusal> {
        match result {
            Ok(_) => {
                self.guests.remove(&vm);
                Ok(Reply::Done)
            }
            Err(error) => Err(self.refusal(&error)),
        }
    }

    pub(super) fn settled(&mut self, vm: VmUid, result: Done) -> Result<Reply, Refusal> {
        match result {
            Ok(answer) => Ok(Reply::Domain(self.overlaid(vm, status(answer)))),
            Err(error) => Err(self.refusal(&error)),
        }
    }
}

/// Returns the image that an operation makes.
fn draft(fence: &Fence, image: String) -> Draft {
    Draft {
        operation: fence.operation,
        image,
    }
}

fn is_off(state: DomainState) -> bool {
    match state {
        DomainState::Absent | DomainState::Stopped => true,
        DomainState::Starting
        | DomainState::Running
        | DomainState::Paused
        | DomainState::MigratingOut
        | DomainState::MigratingIn
        | DomainState::PostCopyBroken
        | DomainState::Prepared => false,
    }
}
