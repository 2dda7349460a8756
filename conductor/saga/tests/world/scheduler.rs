//! The scheduler's side of one operation: its log, its claims, its leases, by the same rules as
//! the replicated state keeps.

use std::collections::BTreeMap;

use berth_domain::claim::{self, Claim, Owner};
use berth_domain::id::{ClaimId, Epoch, Generation, MigrationId, OperationId, TimeMs};
use berth_domain::migration::{self, Migration};
use berth_domain::name::{HostName, ServiceName};
use berth_domain::operation::{
    Effect, Entry, GuestPower, Kind, Lease, Mark, Operation, Outcome, Step, Subject,
};
use berth_domain::ownership::Ownership;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::transfer::{HOSTS_TRIED_DEFAULT, TransferPolicy};
use berth_domain::vm::{self, Vm};
use berth_saga::{StepRecord, steps};

use super::fixtures::{assignment, host, id, vm as new_vm, vm_name};

pub(crate) struct Scheduler {
    pub(crate) operation: Operation,
    pub(crate) vm: Option<Vm>,
    pub(crate) migration: Option<Migration>,
    pub(crate) claims: BTreeMap<ClaimId, Claim>,
    /// Hosts that may be claimed next, in order.
    pub(crate) candidates: Vec<HostName>,
    /// Answers that were not Ok, other than for an old epoch: the saga and the log disagree.
    pub(crate) refused: Vec<Refusal>,
    /// How many further commits are carried out without an answer.
    pub(crate) mute: u32,
    epoch: u64,
}

/// Whether the operation of this name finds its guest off.
pub(crate) fn is_off(name: &str) -> bool {
    matches!(name, "start" | "rebuild_stopped" | "snapshot_stopped")
}

impl Scheduler {
    pub(crate) fn new(name: &str) -> Self {
        let migration_id = MigrationId(id(500));
        let kind = match name {
            "boot" => Kind::Boot,
            "delete" => Kind::Delete,
            "live_migrate" => Kind::LiveMigrate {
                migration: migration_id,
            },
            "stop" => Kind::Stop { timeout_ms: 1_000 },
            "start" | "start_active" => Kind::Start,
            "reboot" => Kind::Reboot { timeout_ms: 1_000 },
            "rebuild" | "rebuild_stopped" | "rebuild_broken" => {
                Kind::Rebuild { images: Vec::new() }
            }
            "snapshot" | "snapshot_stopped" => Kind::Snapshot {
                disk: 0,
                image: "new".to_owned(),
            },
            other => panic!("no such operation: {other}"),
        };
        let state = match kind {
            _ if is_off(name) => vm::State::Stopped,
            _ if name == "rebuild_broken" => vm::State::Error,
            Kind::Stop { .. }
            | Kind::Start
            | Kind::Reboot { .. }
            | Kind::Rebuild { .. }
            | Kind::Snapshot { .. } => vm::State::Active,
            Kind::Boot => vm::State::Building,
            Kind::Delete => vm::State::Deleting,
            Kind::LiveMigrate { .. } => vm::State::Migrating,
            Kind::ColdMigrate { .. }
            | Kind::RevertResize { .. }
            | Kind::ConfirmResize { .. }
            | Kind::Evacuate { .. }
            | Kind::Shelve
            | Kind::Unshelve
            | Kind::DrainHost(_) => unreachable!("played with the real state, see the simulation"),
        };
        let operation = Operation {
            id: OperationId(id(1)),
            kind: kind.clone(),
            subject: Subject::Vm(vm_name()),
            requested_host: None,
            excluded: Vec::new(),
            claim: None,
            lease: None,
            cancelled: false,
            log: Vec::new(),
            outcome: None,
            created_at: TimeMs(1),
            ended_at: None,
            force_complete: false,
            ownership: Ownership::default(),
        };
        let mut new = Self {
            operation,
            vm: Some(new_vm(state)),
            migration: None,
            claims: BTreeMap::new(),
            candidates: ["h1", "h2", "h3", "h4"].map(host).to_vec(),
            refused: Vec::new(),
            mute: 0,
            epoch: 0,
        };
        if kind != Kind::Boot {
            let held = new.hold(&host("h1"), 0, Owner::Vm, claim::State::Active);
            let record = new.vm.as_mut().unwrap();
            record.host = Some(host("h1"));
            record.claim = Some(held);
        }
        if let Kind::LiveMigrate { migration } = kind {
            let source_claim = new.vm.as_ref().unwrap().claim.unwrap();
            new.migration = Some(Migration {
                id: migration,
                vm: vm_name(),
                source: host("h1"),
                source_claim,
                requested: None,
                destination: None,
                destination_claim: None,
                state: migration::State::Preparing,
                error: None,
                assignment_before: assignment(0),
                assignment_after: None,
                operation: new.operation.id,
                generation: Generation(1),
                created_at: TimeMs(1),
                ended_at: None,
                kind: migration::Kind::Live,
                was_stopped: false,
                verify: false,
                resize: None,
                transfer: TransferPolicy::default(),
                hosts_tried_max: HOSTS_TRIED_DEFAULT,
                tried: Vec::new(),
                fetches_disks: false,
            });
        }
        if steps(&kind).iter().any(|p| p.step == Step::Claim) {
            new.claim_next().expect("a first host");
        }
        new
    }

    pub(crate) fn take_lease(&mut self) {
        self.epoch += 1;
        if self.operation.outcome.is_none() {
            self.operation.lease = Some(Lease {
                conductor: ServiceName::new("c1").unwrap(),
                epoch: Epoch(self.epoch),
                expires_at: TimeMs(0),
            });
        }
    }

    fn hold(&mut self, at: &HostName, cpu: u32, owner: Owner, state: claim::State) -> ClaimId {
        let id = ClaimId(id(100 + self.claims.len() as u128 + 10 * u128::from(cpu)));
        let claim = Claim {
            id,
            vm: vm_name(),
            owner,
            host: at.clone(),
            state,
            resources: BTreeMap::new(),
            assignment: assignment(cpu),
            erasures: BTreeMap::new(),
            cpu: None,
        };
        assert!(self.claims.insert(id, claim).is_none());
        id
    }

    fn claim_next(&mut self) -> Result<(), Refusal> {
        let source = self.migration.as_ref().map(|m| m.source.clone());
        let excluded = &self.operation.excluded;
        let next = self
            .candidates
            .iter()
            .position(|h| !excluded.contains(h) && source.as_ref() != Some(h));
        let Some(number) = next else {
            return Err(Refusal::new(
                Code::ResourceExhausted,
                "NO_VALID_HOST",
                "no host has room",
            ));
        };
        let at = self.candidates[number].clone();
        let owner = self
            .migration
            .as_ref()
            .map_or(Owner::Vm, |m| Owner::Migration(m.id));
        let held = self.hold(&at, number as u32 + 1, owner, claim::State::Held);
        self.operation.claim = Some(held);
        match &mut self.migration {
            Some(migration) => {
                migration.destination = Some(at.clone());
                migration.destination_claim = Some(held);
            }
            None => {
                let record = self.vm.as_mut().unwrap();
                record.host = Some(at.clone());
                record.claim = Some(held);
            }
        }
        self.log(Step::Claim, Mark::Succeeded);
        Ok(())
    }

    fn log(&mut self, step: Step, mark: Mark) {
        self.operation.log.push(Entry {
            step,
            mark,
            host: None,
            at: TimeMs(1),
        });
    }

    pub(crate) fn schedule_next(&mut self, epoch: Epoch) -> Result<(), Refusal> {
        self.check_epoch(epoch)?;
        if self.operation.claim.is_some() {
            return Err(self.refuse("CLAIM_HELD"));
        }
        self.claim_next()
    }

    fn check_epoch(&self, epoch: Epoch) -> Result<(), Refusal> {
        match &self.operation.lease {
            Some(lease) if lease.epoch == epoch => Ok(()),
            _ => Err(Refusal::new(Code::Aborted, "STALE_EPOCH", "another lease")),
        }
    }

    fn refuse(&mut self, reason: &str) -> Refusal {
        let refusal = Refusal::new(Code::FailedPrecondition, reason, reason);
        self.refused.push(refusal.clone());
        refusal
    }

    pub(crate) fn commit(&mut self, record: &StepRecord) -> Result<Operation, Refusal> {
        let answer = self.apply(record);
        if self.mute > 0 {
            self.mute -= 1;
            return Err(Refusal::new(Code::Unavailable, "NO_LEADER", "no leader"));
        }
        answer
    }

    fn attempt(&self) -> Vec<Entry> {
        let log = &self.operation.log;
        let start = log
            .iter()
            .rposition(|e| e.step == Step::Claim && e.mark == Mark::Succeeded)
            .unwrap_or(0);
        log[start..].to_vec()
    }

    fn apply(&mut self, record: &StepRecord) -> Result<Operation, Refusal> {
        let entries = self.attempt();
        let last = |step: Step| {
            entries
                .iter()
                .rev()
                .find(|e| e.step == step)
                .map(|e| &e.mark)
        };
        if self.operation.outcome.is_some() {
            if self.operation.log.last().map(|e| (e.step, &e.mark))
                == Some((record.step, &record.mark))
            {
                return Ok(self.operation.clone());
            }
            return Err(Refusal::new(
                Code::FailedPrecondition,
                "OPERATION_DONE",
                "done",
            ));
        }
        self.check_epoch(record.epoch)?;
        if last(record.step) == Some(&record.mark) {
            return Ok(self.operation.clone());
        }
        let order = self.check_order(record, &entries);
        if let Err(reason) = order {
            return Err(self.refuse(reason));
        }
        if let Err(reason) = self.carry_out(record, &entries) {
            return Err(self.refuse(reason));
        }
        self.log(record.step, record.mark.clone());
        Ok(self.operation.clone())
    }

    fn check_order(&self, record: &StepRecord, entries: &[Entry]) -> Result<(), &'static str> {
        let plan = steps(&self.operation.kind);
        let has = |step, mark: Mark| entries.iter().any(|e| e.step == step && e.mark == mark);
        let last = |step: Step| {
            entries
                .iter()
                .rev()
                .find(|e| e.step == step)
                .map(|e| &e.mark)
        };
        if !plan.iter().any(|p| p.step == record.step) {
            return Err("STEP_OUT_OF_ORDER");
        }
        let before_done = plan
            .iter()
            .take_while(|p| p.step != record.step)
            // The VMs of these stories have no disks on another host.
            .filter(|p| p.step != Step::DropSource)
            .all(|p| last(p.step) == Some(&Mark::Succeeded));
        let ok = match (&record.step, &record.mark) {
            (Step::Settle, _) => has(Step::LiveMigration, Mark::Started),
            (Step::Claim, Mark::Undone | Mark::Failed(_)) => true,
            (_, Mark::Started) => before_done,
            (step, Mark::Succeeded) => {
                before_done && (!record.step.has_side_effects() || has(*step, Mark::Started))
            }
            (step, Mark::Failed(_)) => before_done || has(*step, Mark::UndoStarted),
            (step, Mark::UndoStarted) => has(*step, Mark::Started),
            (step, Mark::Undone) => has(*step, Mark::UndoStarted),
        };
        if ok { Ok(()) } else { Err("STEP_OUT_OF_ORDER") }
    }

    fn carry_out(&mut self, record: &StepRecord, entries: &[Entry]) -> Result<(), &'static str> {
        match &record.effect {
            Effect::None => match (record.step, &record.mark) {
                (Step::Spawn | Step::FitDestination | Step::Destroy, Mark::Succeeded)
                | (Step::MakeDisks, Mark::Started) => Err("EFFECT_NOT_ALLOWED"),
                (step, Mark::Succeeded)
                    if self.operation.kind.is_power()
                        && steps(&self.operation.kind).last().map(|p| p.step) == Some(step) =>
                {
                    Err("EFFECT_NOT_ALLOWED")
                }
                _ => Ok(()),
            },
            Effect::HoldClaim(_) => Err("EFFECT_NOT_ALLOWED"),
            Effect::ConfirmClaim { claim } => {
                self.claims.get(claim).map(|_| ()).ok_or("CLAIM_NOT_FOUND")
            }
            Effect::SwapClaim { claim, assignment } => {
                let held = self.claims.get_mut(claim).ok_or("CLAIM_NOT_FOUND")?;
                held.assignment = assignment.clone();
                Ok(())
            }
            Effect::ReleaseClaim { claim, exclude } => {
                self.release(entries)?;
                if self.operation.claim.is_some() {
                    return Err("EFFECT_NOT_ALLOWED");
                }
                let _ = claim;
                assert!(*exclude);
                Ok(())
            }
            Effect::CompleteBoot => {
                let held = self.operation.claim.take().ok_or("CLAIM_NOT_FOUND")?;
                self.claims.get_mut(&held).unwrap().state = claim::State::Active;
                self.vm.as_mut().unwrap().state = vm::State::Active;
                self.end(Outcome::Succeeded);
                Ok(())
            }
            Effect::FailBoot(refusal) => {
                self.release(entries)?;
                let record = self.vm.as_mut().unwrap();
                record.state = vm::State::Error;
                record.error = Some(refusal.clone());
                self.end(Outcome::Failed(refusal.clone()));
                Ok(())
            }
            Effect::BeginTransfer if self.operation.cancelled => Err("OPERATION_CANCELLED"),
            Effect::BeginTransfer => self.migrate(migration::Event::Begin),
            Effect::RefuseMigration(refusal) => {
                self.release(entries)?;
                self.migrate(migration::Event::Refuse)?;
                self.vm.as_mut().unwrap().state = vm::State::Active;
                self.end(Outcome::Failed(refusal.clone()));
                Ok(())
            }
            Effect::Settle { event, refusal } => self.settle(*event, refusal.clone()),
            Effect::CompleteMove
            | Effect::CompleteRevert
            | Effect::CompleteShelve
            | Effect::CompleteUnshelve
            | Effect::CompleteConfirm
            | Effect::FailUnshelve(_) => Err("EFFECT_NOT_ALLOWED"),
            Effect::BeginRebuild => match (record.step, &record.mark) {
                (Step::MakeDisks, Mark::Started) => Ok(()),
                _ => Err("EFFECT_NOT_ALLOWED"),
            },
            Effect::EndPower { power, refusal } => {
                if !self.operation.kind.is_power() {
                    return Err("EFFECT_NOT_ALLOWED");
                }
                let record = self.vm.as_mut().unwrap();
                let event = match power {
                    GuestPower::Unchanged => None,
                    GuestPower::On => Some(vm::Event::PoweredOn),
                    GuestPower::Off => Some(vm::Event::PoweredOff),
                    GuestPower::Broken => Some(vm::Event::Broke),
                };
                if let Some(event) = event {
                    record.state = record.state.transition(event).map_err(|_| "VM_STATE")?;
                }
                self.end(match refusal {
                    Some(refusal) => Outcome::Failed(refusal.clone()),
                    None => Outcome::Succeeded,
                });
                Ok(())
            }
            Effect::CompleteDelete => {
                self.claims.clear();
                self.vm = None;
                self.end(Outcome::Succeeded);
                Ok(())
            }
        }
    }

    /// Gives the operation's claim back, if nothing may run on it.
    fn release(&mut self, entries: &[Entry]) -> Result<(), &'static str> {
        let has = |step, mark: Mark| entries.iter().any(|e| e.step == step && e.mark == mark);
        for step in [Step::Spawn, Step::PreLiveMigration] {
            if has(step, Mark::Started) && !has(step, Mark::Undone) {
                return Err("EFFECT_NOT_ALLOWED");
            }
        }
        let Some(held) = self.operation.claim.take() else {
            return Ok(());
        };
        let claim = self.claims.remove(&held).unwrap();
        self.operation.excluded.push(claim.host);
        match &mut self.migration {
            Some(migration) => migration.destination_claim = None,
            None => {
                let record = self.vm.as_mut().unwrap();
                record.host = None;
                record.claim = None;
            }
        }
        Ok(())
    }

    fn migrate(&mut self, event: migration::Event) -> Result<(), &'static str> {
        let migration = self.migration.as_mut().unwrap();
        migration.state = migration
            .state
            .transition(event)
            .map_err(|_| "MIGRATION_STATE")?;
        Ok(())
    }

    fn settle(
        &mut self,
        event: migration::Event,
        refusal: Option<Refusal>,
    ) -> Result<(), &'static str> {
        self.migrate(event)?;
        let migration = self.migration.clone().unwrap();
        let there = migration.destination_claim.ok_or("CLAIM_NOT_FOUND")?;
        let record = self.vm.as_mut().unwrap();
        match event {
            migration::Event::Unknown => return Ok(()),
            migration::Event::Arrived => {
                self.claims.remove(&migration.source_claim);
                self.claims.get_mut(&there).unwrap().state = claim::State::Active;
                record.host = migration.destination;
                record.claim = Some(there);
                record.state = vm::State::Active;
                self.end(Outcome::Succeeded);
            }
            migration::Event::Stayed => {
                self.claims.remove(&there);
                record.state = vm::State::Active;
                self.end(Outcome::Failed(refusal.expect("a reason")));
            }
            migration::Event::Lost => {
                self.claims.clear();
                record.host = None;
                record.claim = None;
                record.state = vm::State::Error;
                self.end(Outcome::Failed(refusal.expect("a reason")));
            }
            migration::Event::Refuse
            | migration::Event::Begin
            | migration::Event::Moved
            | migration::Event::Resized
            | migration::Event::Confirmed
            | migration::Event::Reverted => return Err("EFFECT_NOT_ALLOWED"),
        }
        Ok(())
    }

    fn end(&mut self, outcome: Outcome) {
        self.operation.outcome = Some(outcome);
        self.operation.lease = None;
        self.operation.claim = None;
    }
}
