//! Plays one operation: its saga decides, the state takes what it commits, and agents answer.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use berth_domain::agent::{
    Call, DestinationCheck, DomainState, DomainStatus, Failure, FitVerdict, Reply as AgentReply,
};
use berth_domain::claim::{Claim, Owner};
use berth_domain::cpu_set::CpuSet;
use berth_domain::id::{ClaimId, OperationId, TimeMs, VmUid};
use berth_domain::instance::InstanceNumaTopology;
use berth_domain::migration::{Event as MigrationEvent, MigrateData};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, GuestPower, Mark, Operation, Step};
use berth_domain::reality::Unknown;
use berth_domain::recovery::ReportedGuest;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::transfer::TransferPolicy;
use berth_domain::vm::{Vm, VmSpec};
use berth_saga::{AgentCall, Ended, Event, Facts, HostFacts, Saga, StepRecord, steps};
use berth_state::command::{Command, Envelope};
use berth_state::{Reply, State};
use berth_testkit::state::{World, nowhere, refusal, uuid};

/// No play has more effects.
const EFFECTS_MAX: usize = 400;

/// The first calls of one step are refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusals {
    pub(super) step: Step,
    pub(super) times: u32,
}

/// One operation in a cluster.
pub(super) struct Player {
    pub(super) world: World,
    id: OperationId,
    /// As it was last, for the saga of one that is deleted.
    vm: Vm,
    pub(super) refusals: Option<Refusals>,
    /// Whether the state may refuse what is committed.
    pub(super) may_be_refused: bool,
    /// Whether everything else is examined before each commit.
    pub(super) examines_others: bool,
    /// How much was.
    pub(super) examined: usize,
    /// The steps that were logged.
    pub(super) logged: BTreeSet<Step>,
    /// What hypervisors have.
    pub(super) guests: Guests,
    /// The state and the guests after each commit and each call.
    pub(super) moments: Vec<(State, Guests)>,
}

/// What hypervisors have, by host and VM.
pub(super) type Guests = BTreeMap<(HostName, VmUid), ReportedGuest>;

impl Player {
    pub(super) fn new(world: World, id: OperationId) -> Self {
        let vm = world.operation(id).vm().unwrap().clone();
        let vm = world.state.vm(&vm).unwrap();
        Self {
            vm: (**vm).clone(),
            id,
            world,
            refusals: None,
            may_be_refused: false,
            examines_others: false,
            examined: 0,
            logged: BTreeSet::new(),
            guests: BTreeMap::new(),
            moments: Vec::new(),
        }
        .with_guest()
    }

    /// A VM that runs has its guest where its claim is, unless its host is dead.
    fn with_guest(mut self) -> Self {
        let vms: Vec<_> = self.world.state.vms().values().cloned().collect();
        for vm in vms.iter().filter(|vm| vm.state.may_run()) {
            let claim = vm.claim.and_then(|id| self.world.state.claim(id)).cloned();
            let Some(claim) = claim.filter(|claim| claim.is_active()) else {
                continue;
            };
            if self.world.view(claim.host.as_str()).host.fenced.is_none() {
                self.place(vm, &claim, DomainState::Running);
            }
        }
        self.record_moment();
        self
    }

    fn place(&mut self, vm: &Vm, claim: &Claim, state: DomainState) {
        let domain = Unknown {
            uuid: vm.uid.0,
            name: vm.name.to_string(),
            is_ours: true,
            claim: Some(claim.id),
            held: claim.assignment.clone(),
        };
        let spec = spec_of(&self.world.state, claim).unwrap_or_else(|| vm.spec.clone());
        let guest = ReportedGuest {
            domain,
            state,
            spec: Some(Box::new(spec)),
        };
        self.guests.insert((claim.host.clone(), vm.uid), guest);
    }

    fn record_moment(&mut self) {
        let moment = (self.world.state.clone(), self.guests.clone());
        self.moments.push(moment);
    }

    /// Does to the guests what an agent does that carries a call out.
    fn carry_out(&mut self, call: &AgentCall) {
        let vm = self.vm.clone();
        let here = (call.host.clone(), vm.uid);
        match &call.call {
            Call::SpawnVm { claim, .. } | Call::StartVm { claim, .. } => {
                self.place(&vm, claim, DomainState::Running);
            }
            Call::PreLiveMigration { migrate_data, .. } => {
                if let Some(claim) = &migrate_data.claim {
                    self.place(&vm, claim, DomainState::Prepared);
                }
            }
            Call::LiveMigration { migrate_data, .. } => {
                if let Some(claim) = &migrate_data.claim {
                    self.guests.remove(&here);
                    self.place(&vm, claim, DomainState::Running);
                }
            }
            Call::DestroyVm
            | Call::StopVm { .. }
            | Call::PostLiveMigrationAtSource { .. }
            | Call::RollbackLiveMigrationAtDestination { .. } => {
                self.guests.remove(&here);
            }
            // A transfer that was refused has begun all the same: the agents report that it arrived.
            Call::GetDomain | Call::SettleVm => {
                let prepared = self.guests.get_mut(&here);
                if let Some(guest) = prepared.filter(|g| g.state == DomainState::Prepared) {
                    guest.state = DomainState::Running;
                    self.guests.retain(|at, _| at.1 != vm.uid || *at == here);
                }
            }
            Call::CheckCanLiveMigrateDestination { .. }
            | Call::CheckCanLiveMigrateSource { .. }
            | Call::FitLiveMigration { .. }
            | Call::AbortLiveMigration { .. }
            | Call::ForceCompleteLiveMigration { .. }
            | Call::MakeDisks { .. }
            | Call::CopyDisk { .. }
            | Call::PublishImage { .. }
            | Call::DropImage { .. }
            | Call::FetchDisks(_)
            | Call::DropDisks { .. } => {}
        }
    }

    pub(super) fn operation(&self) -> &Operation {
        self.world.operation(self.id)
    }

    /// Plays it to its end.
    pub(super) fn play(&mut self) {
        let mut saga = Saga::resume(self.operation().clone(), self.facts());
        let mut effect = saga.step(Event::Begin);
        for _ in 0..EFFECTS_MAX {
            let event = match effect
                .take()
                .expect("each event but a cancellation has an effect")
            {
                berth_saga::Effect::Commit(record) => Event::Committed(self.commit(&record)),
                berth_saga::Effect::ScheduleNext { .. } => Event::Scheduled(self.schedule()),
                berth_saga::Effect::Refresh => {
                    Event::Refreshed(Ok(Box::new((self.operation().clone(), self.facts()))))
                }
                berth_saga::Effect::Call(call) => {
                    let result = self.call(&call, saga.called_step());
                    Event::Answered(result.map(Box::new))
                }
                berth_saga::Effect::Wait { .. } | berth_saga::Effect::Watch(_) => Event::Elapsed,
                berth_saga::Effect::Done(ended) => {
                    assert_eq!(ended, Ended::Finished);
                    return;
                }
            };
            effect = saga.step(event);
        }
        panic!("no end: {:#?}", self.operation().log);
    }

    fn facts(&self) -> Facts {
        let (state, operation) = (&self.world.state, self.operation());
        let vm = operation.vm().and_then(|vm| state.vm(vm));
        let vm = vm.map_or_else(|| self.vm.clone(), |vm| (**vm).clone());
        let claims: Vec<_> = state
            .claims_of_vm(&vm.name)
            .map(|c| (**c).clone())
            .collect();
        let migration = Facts::migration_needed(&operation.kind, &claims);
        let migration = migration.and_then(|id| state.migration(id));
        let migration = migration.map(|migration| (**migration).clone());
        let claim = claims
            .iter()
            .find(|c| Some(c.id) == operation.claim)
            .cloned();
        let hosts = Facts::hosts_needed(&vm, migration.as_ref(), claim.as_ref());
        let known = hosts.into_iter().filter_map(|name| {
            let facts = HostFacts::from(&*state.host(&name)?.host);
            Some((name, facts))
        });
        Facts {
            hosts: known.collect(),
            claims: claims.into_iter().map(|c| (c.id, c)).collect(),
            vm,
            migration,
            claim,
        }
    }

    /// Claims the first host that was not tried and is not the VM's own.
    fn schedule(&mut self) -> Result<(), Refusal> {
        let facts = self.facts();
        let migration = facts.migration.as_ref();
        let excluded = self.operation().excluded.clone();
        let is_free = |host: &&HostName| {
            !excluded.contains(host) && migration.is_none_or(|m| m.source != **host)
        };
        let mut hosts = self.world.state.hosts().keys();
        let Some(host) = hosts.find(is_free).cloned() else {
            return Err(Refusal::new(
                Code::ResourceExhausted,
                "NO_VALID_HOST",
                "no host is left",
            ));
        };
        let owner = migration.map_or(Owner::Vm, |m| Owner::Migration(m.id));
        let claim = self
            .world
            .claim(facts.vm.name.as_str(), &facts.vm.spec, host.as_str(), owner);
        let effect = Effect::HoldClaim(claim);
        let claimed = self
            .world
            .advance(self.id, Step::Claim, Mark::Succeeded, effect);
        claimed.map(drop)
    }

    fn commit(&mut self, record: &StepRecord) -> Result<Box<Operation>, Refusal> {
        if self.examines_others {
            self.examine_others(record);
        }
        self.logged.insert(record.step);
        let outcome = self.world.run(advance(record));
        self.record_moment();
        match outcome {
            Ok(Reply::Operation(operation)) => Ok(Box::new((*operation).clone())),
            Err(refusal) if self.may_be_refused => Err(refusal),
            other => panic!(
                "{record:?} is answered with {other:?}\n{:#?}",
                self.operation().log
            ),
        }
    }

    fn call(
        &mut self,
        call: &AgentCall,
        called: Option<(Step, bool)>,
    ) -> Result<AgentReply, Failure> {
        let (step, undo) = called.expect("a call is of a step");
        let started = |e: &&berth_domain::operation::Entry| {
            e.step == step && e.mark == Mark::Started && !undo
        };
        if let Some(entry) = self.operation().log.iter().rfind(started) {
            assert_eq!(
                entry.host.as_ref(),
                Some(&call.host),
                "the host of {step:?}"
            );
        }
        if let Some(refusals) = &mut self.refusals
            && (refusals.step, false) == (step, undo)
            && refusals.times > 0
        {
            refusals.times -= 1;
            return Err(Failure::Refused(Refusal::new(
                Code::FailedPrecondition,
                "SCRIPTED",
                "refused by the test",
            )));
        }
        let answer = self.answer(call);
        self.carry_out(call);
        self.record_moment();
        Ok(answer)
    }

    fn answer(&self, call: &AgentCall) -> AgentReply {
        let facts = self.facts();
        let migration = facts.migration.as_ref();
        match &call.call {
            Call::GetDomain | Call::SettleVm => {
                let arrived = migration.and_then(|m| m.destination.as_ref()) == Some(&call.host);
                AgentReply::Domain(DomainStatus {
                    state: match arrived {
                        true => DomainState::Running,
                        false => DomainState::Absent,
                    },
                    ..DomainStatus::absent()
                })
            }
            Call::CheckCanLiveMigrateDestination { .. } => {
                AgentReply::Destination(DestinationCheck {
                    bridges: Vec::new(),
                    migration_uri: "sim://there".to_owned(),
                    storage_id: "shared".to_owned(),
                    driver: "sim".to_owned(),
                    shared_cpus: CpuSet::new(),
                    tls: None,
                })
            }
            Call::CheckCanLiveMigrateSource { .. } => AgentReply::MigrateData(migrate_data(&facts)),
            Call::FitLiveMigration { migrate_data, .. } => {
                let mut migrate_data = migrate_data.clone();
                if let (Some(topology), Some(claim)) =
                    (&mut migrate_data.numa_topology, &migrate_data.claim)
                {
                    topology.assignment = claim.assignment.clone();
                }
                let verdict = FitVerdict::Confirm;
                AgentReply::Fit {
                    verdict,
                    migrate_data,
                }
            }
            Call::DropImage { .. } => AgentReply::Image { published: false },
            Call::SpawnVm { .. }
            | Call::DestroyVm
            | Call::PreLiveMigration { .. }
            | Call::LiveMigration { .. }
            | Call::RollbackLiveMigrationAtDestination { .. }
            | Call::PostLiveMigrationAtSource { .. }
            | Call::StopVm { .. }
            | Call::StartVm { .. }
            | Call::AbortLiveMigration { .. }
            | Call::ForceCompleteLiveMigration { .. }
            | Call::MakeDisks { .. }
            | Call::CopyDisk { .. }
            | Call::PublishImage { .. }
            | Call::FetchDisks(_)
            | Call::DropDisks { .. } => AgentReply::Done,
        }
    }

    /// Whether the state takes the start of this step's undo now.
    pub(super) fn accepts_undo(&self, step: Step) -> bool {
        self.accepts(step, Mark::UndoStarted, Effect::None)
    }

    fn accepts(&self, step: Step, mark: Mark, effect: Effect) -> bool {
        let command = Command::Advance {
            operation: self.id,
            epoch: self.world.epoch(self.id),
            step,
            mark,
            effect,
        };
        let envelope = Envelope {
            at: TimeMs(self.world.now),
            principal: "unverified:test".to_owned(),
            request: None,
            audit: None,
            command,
        };
        self.world.state.examine(&envelope).is_ok()
    }

    /// Before this is committed, nothing else with an effect in the world may be.
    fn examine_others(&mut self, record: &StepRecord) {
        let plans = steps(&self.operation().kind);
        let position = |step: Step| plans.iter().position(|plan| plan.step == step);
        let due = position(record.step).expect("a step of its own");
        // A transfer that was started may be settled, however its start ended.
        let transfers = record.step == Step::LiveMigration && record.mark == Mark::Succeeded;
        let due_queries = due + usize::from(transfers);
        // Without a topology the state lets a conductor leave the fit out, as those before service
        // version 2 did.
        let may_skip = record.step == Step::FitDestination && self.vm.spec.topology.is_none();
        for step in &Step::ALL {
            if may_skip && *step == Step::PreLiveMigration {
                continue;
            }
            let at = position(*step);
            let is_query = at.is_some_and(|at| !step.has_side_effects() && at <= due_queries);
            for mark in [Mark::Started, Mark::Succeeded] {
                let mut entries = self.operation().log.iter();
                let last = entries.rfind(|entry| entry.step == *step);
                let is_repeated = last.is_some_and(|entry| entry.mark == mark);
                if is_query || is_repeated {
                    continue;
                }
                for effect in self.effects() {
                    let is_due = (record.step, &record.mark) == (*step, &mark)
                        && discriminant(&record.effect) == discriminant(&effect);
                    self.examined += 1;
                    assert!(
                        is_due || !self.accepts(*step, mark.clone(), effect.clone()),
                        "the saga logs {record:?}, and the state takes {step:?} {mark:?} {effect:?}"
                    );
                }
            }
        }
    }

    /// Returns an effect of each variant.
    fn effects(&self) -> Vec<Effect> {
        let mut claims = self.world.state.claims().values();
        let held = self
            .operation()
            .claim
            .and_then(|id| self.world.state.claim(id));
        let claim = held.or_else(|| claims.next()).expect("a claim");
        let (id, why) = (claim.id, || refusal("DRAWN"));
        vec![
            Effect::None,
            Effect::HoldClaim(Claim {
                id: ClaimId(uuid(3, u64::MAX)),
                ..(**claim).clone()
            }),
            Effect::ConfirmClaim { claim: id },
            Effect::SwapClaim {
                claim: id,
                assignment: nowhere(),
            },
            Effect::ReleaseClaim {
                claim: id,
                exclude: true,
            },
            Effect::CompleteBoot,
            Effect::FailBoot(why()),
            Effect::BeginTransfer,
            Effect::RefuseMigration(why()),
            Effect::Settle {
                event: MigrationEvent::Arrived,
                refusal: None,
            },
            Effect::CompleteDelete,
            Effect::CompleteMove,
            Effect::CompleteRevert,
            Effect::CompleteShelve,
            Effect::CompleteUnshelve,
            Effect::FailUnshelve(why()),
            Effect::EndPower {
                power: GuestPower::Unchanged,
                refusal: None,
            },
            Effect::BeginRebuild,
            Effect::CompleteConfirm,
        ]
    }
}

/// Returns the size that a claim is for, where it is another one than the VM's.
fn spec_of(state: &State, claim: &Claim) -> Option<VmSpec> {
    let Owner::Migration(id) = claim.owner else {
        return None;
    };
    let resize = state.migration(id)?.resize.as_deref()?;
    Some(resize.after.clone())
}

fn advance(record: &StepRecord) -> Command {
    Command::Advance {
        operation: record.operation,
        epoch: record.epoch,
        step: record.step,
        mark: record.mark.clone(),
        effect: record.effect.clone(),
    }
}

fn migrate_data(facts: &Facts) -> MigrateData {
    let (vm, migration) = (&facts.vm, facts.migration.as_ref().expect("a migration"));
    let requested = vm.spec.topology.clone();
    MigrateData {
        destination_bridges: Vec::new(),
        vm: vm.name.clone(),
        vm_uid: vm.uid,
        spec: vm.spec.clone(),
        destination_uri: String::new(),
        destination_shared: CpuSet::new(),
        numa_topology: requested.map(|requested| InstanceNumaTopology {
            requested,
            assignment: migration.assignment_before.clone(),
        }),
        claim: None,
        source_pci: Vec::new(),
        transfer: TransferPolicy::default(),
        disk_copies: Vec::new(),
        tls: false,
    }
}
