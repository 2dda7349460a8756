//! The recorded requests on a state of its own, which begins at the full backup with the changes.
//!
//! Each request for a host is decided again, and what is chosen is claimed there. Everything else that
//! is recorded is carried out as it is: reports of agents, steps of operations, deletions. So what a
//! host answers to a request is taken to be the same on another host.
//!
//! Invariant: without changes every decision is the recorded one.

use std::collections::{BTreeMap, BTreeSet};

use berth_decide::upgrade::Admit;
use berth_decide::{
    Action, Decision, DecisionRequest, DrainOptions, HostTable, Preferred, decide_with, plan_drain,
};
use berth_domain::id::{ClaimId, OperationId};
use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::operation::{self, ClaimPurpose, Mark, Step};
use berth_domain::refusal::{Code, Refusal};
use berth_state::State;
use berth_state::command::{Command, Effect, Envelope};

use crate::changes::{Changes, Made, registration};
use crate::check::claim_of;
use crate::decision::{Kind, RecordedDecision};
use crate::report::{Elsewhere, NotFollowed, RefusedDecision, WhatIfReport};
use crate::translate::{Context, Translated};
use crate::usage::Meter;

/// How many refusals are explained in all: each evaluates every host.
const EXPLAINED_MAX: usize = 200;

/// A drain of the recorded history.
struct Drain {
    host: HostName,
    /// Where the VMs of a dead host go, as planned here.
    plan: BTreeMap<VmName, Preferred>,
}

/// The recorded requests on a state with changes.
pub struct WhatIf {
    admit: Admit,
    changes: Changes,
    state: State,
    hosts: HostTable,
    meter: Meter,
    drains: BTreeMap<OperationId, Drain>,
    drain_ids: BTreeSet<OperationId>,
    /// By how much indexes here are greater than recorded ones.
    ahead: u64,
    /// Flavors of changes that were not there yet.
    unseen: BTreeSet<FlavorName>,
    /// Claims that are on another host than recorded.
    elsewhere: BTreeSet<ClaimId>,
    explained: usize,
    examples: usize,
    report: WhatIfReport,
}

impl WhatIf {
    /// Begins with the state of the full backup and makes the changes to it; `examples` cases of each
    /// kind are described at most.
    ///
    /// # Errors
    ///
    /// A change is refused.
    pub fn new(
        state: &State,
        changes: Changes,
        admit: Admit,
        examples: usize,
    ) -> Result<Self, Refusal> {
        let mut state = state.clone();
        let Made { commands, cordoned } = changes.make(&mut state)?;
        let missing = |name: &&FlavorName| state.flavor(name).is_none();
        let unseen = changes.flavors.keys().filter(missing).cloned().collect();
        Ok(Self {
            admit,
            meter: Meter::new(&state),
            changes,
            state,
            hosts: HostTable::default(),
            drains: BTreeMap::new(),
            drain_ids: BTreeSet::new(),
            ahead: commands,
            unseen,
            elsewhere: BTreeSet::new(),
            explained: 0,
            examples,
            report: WhatIfReport {
                cordoned,
                ..WhatIfReport::default()
            },
        })
    }

    /// Returns the state with the changes, as far as the history was followed.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Follows a recorded command that was carried out. `decision` is what it records, if anything.
    pub fn follow(&mut self, index: u64, envelope: &Envelope, decision: Option<&RecordedDecision>) {
        match decision {
            Some(decision) => self.decide(index, envelope, decision),
            None => self.carry_over(index, envelope),
        }
        self.meter.follow(&self.state);
    }

    /// Returns what differs, compared with the state at the end of the recorded history.
    ///
    /// # Errors
    ///
    /// A flavor that is changed was never there.
    pub fn finish(mut self, recorded: &State) -> Result<WhatIfReport, Refusal> {
        if let Some(flavor) = self.unseen.first() {
            return Err(Refusal::not_found("flavor", flavor)
                .with_hint("name a flavor that the backups hold"));
        }
        self.report.usage = self.meter.usage(&self.state);
        self.report.vms = self.state.vms().len() as u64;
        self.report.vms_recorded = recorded.vms().len() as u64;
        let both = self.state.vms().values();
        let elsewhere = both.filter(|vm| {
            let known = recorded.vm(&vm.name);
            known.is_some_and(|known| known.host != vm.host)
        });
        self.report.vms_elsewhere = elsewhere.count() as u64;
        Ok(self.report)
    }

    fn run(&mut self, index: u64, recorded: &Envelope, command: Command) -> Result<(), Refusal> {
        let envelope = Envelope {
            at: recorded.at,
            principal: recorded.principal.clone(),
            // Retries are answered before the log, and the audit is of no use here.
            request: None,
            audit: None,
            command,
        };
        self.state
            .speculate(index + self.ahead, &envelope)
            .map(drop)
    }

    /// Decides again where a VM goes.
    fn decide(&mut self, index: u64, envelope: &Envelope, recorded: &RecordedDecision) {
        self.report.moves_recorded += u64::from(recorded.kind.is_move());
        let action = match self.action(envelope, recorded) {
            Ok(action) => action,
            Err(Skipped::Follower) => {
                self.report.followers += 1;
                return;
            }
            Err(Skipped::NotOnHost) => {
                self.leave_out("VM_NOT_ON_HOST");
                return;
            }
        };
        self.report.decisions += 1;
        let request = DecisionRequest::new(envelope.principal.clone(), action);
        let (state, hosts) = (&self.state, &self.hosts);
        let decision = decide_with(state, &mut &*hosts, self.admit, envelope.at, &request);
        let refusal = match decision {
            Decision::Command(proposal) => {
                let command = proposal.envelope.command;
                let host = claim_of(&command).map(|claim| claim.host.clone());
                self.record_request(&command);
                match (self.run(index, envelope, command), host) {
                    (Ok(()), Some(host)) => return self.count_placed(index, recorded, host),
                    (Ok(()), None) => return,
                    (Err(refusal), _) => refusal,
                }
            }
            Decision::Refuse(refusal) => *refusal,
            Decision::Explain(unexplained) if self.explained < EXPLAINED_MAX => {
                self.explained += 1;
                unexplained.explain()
            }
            Decision::Explain(_) => not_explained(),
            Decision::Answer(_) => return,
        };
        self.end_without_host(index, envelope, recorded, &refusal);
        self.count_refused(index, envelope, recorded, refusal);
    }

    /// Ends an operation for which no next host is chosen, as its conductor does.
    fn end_without_host(
        &mut self,
        index: u64,
        envelope: &Envelope,
        recorded: &RecordedDecision,
        refusal: &Refusal,
    ) {
        let known = self.state.operation(recorded.operation);
        let effect = known.and_then(|known| failed(&known.kind, refusal));
        let (Action::ScheduleNext { .. }, Some(effect)) = (&recorded.action, effect) else {
            return;
        };
        let lease = known.and_then(|known| known.lease.as_ref());
        let command = Command::Advance {
            operation: recorded.operation,
            epoch: lease.map(|lease| lease.epoch).unwrap_or_default(),
            step: Step::Claim,
            mark: Mark::Undone,
            effect,
        };
        if let Err(refusal) = self.run(index, envelope, command) {
            self.count_not_followed(index, refusal);
        }
    }

    /// Takes a requested VM into the mix that stranded CPUs are measured with.
    fn record_request(&mut self, command: &Command) {
        if let Command::BeginBoot { spec, .. } = command {
            self.meter.request(spec);
        }
    }

    /// Returns the request as it is made here.
    fn action(&self, envelope: &Envelope, recorded: &RecordedDecision) -> Result<Action, Skipped> {
        if let Action::ScheduleNext {
            operation, claim, ..
        } = &recorded.action
        {
            let known = self.state.operation(*operation);
            let lease = known.and_then(|known| known.lease.as_ref());
            let lease = lease.ok_or(Skipped::Follower)?;
            return Ok(Action::ScheduleNext {
                operation: *operation,
                epoch: lease.epoch,
                claim: *claim,
            });
        }
        let vm = self.state.vm(&recorded.vm);
        if recorded.kind != Kind::Boot && vm.is_none() {
            return Err(Skipped::Follower);
        }
        let drain = recorded.drain.and_then(|id| self.drains.get(&id));
        let Some(drain) = drain else {
            return Ok(recorded.outside_drain(&envelope.command, None));
        };
        if vm.and_then(|vm| vm.host.as_ref()) != Some(&drain.host) {
            return Err(Skipped::NotOnHost);
        }
        let preferred = drain.plan.get(&recorded.vm).cloned();
        Ok(recorded.outside_drain(&envelope.command, preferred))
    }

    fn count_placed(&mut self, index: u64, recorded: &RecordedDecision, host: HostName) {
        self.report.moves += u64::from(recorded.kind.is_move());
        if host == recorded.claim.host {
            self.report.same_host += 1;
            return;
        }
        self.report.other_host += 1;
        self.elsewhere.insert(recorded.claim.id);
        if self.report.moved.len() < self.examples {
            self.report.moved.push(Elsewhere {
                index,
                vm: recorded.vm.clone(),
                kind: recorded.kind,
                recorded: recorded.claim.host.clone(),
                host,
            });
        }
    }

    fn leave_out(&mut self, reason: &str) {
        *self.report.left_out.entry(reason.to_owned()).or_default() += 1;
    }

    fn count_refused(
        &mut self,
        index: u64,
        envelope: &Envelope,
        recorded: &RecordedDecision,
        refusal: Refusal,
    ) {
        if recorded.kind != Kind::Boot && refusal.code != Code::ResourceExhausted {
            // It is not on the host that it left, there already, or in another state.
            self.leave_out(&refusal.reason);
            return;
        }
        let flavor = flavor_of(&envelope.command, &self.state, &recorded.vm);
        if let (Kind::Boot, Some(flavor)) = (recorded.kind, &flavor) {
            let refused = &mut self.report.refused_flavors;
            *refused.entry(flavor.clone()).or_default() += 1;
        }
        let refused = self
            .report
            .refused
            .entry(refusal.reason.clone())
            .or_default();
        refused.count += 1;
        if refused.examples.len() < self.examples {
            refused.examples.push(RefusedDecision {
                index,
                at: envelope.at,
                vm: recorded.vm.clone(),
                flavor,
                kind: recorded.kind,
                refusal,
            });
        }
    }

    /// Carries out what chooses no host.
    fn carry_over(&mut self, index: u64, envelope: &Envelope) {
        self.record_drain(envelope);
        self.record_flavor(&envelope.command);
        let context = Context {
            state: &self.state,
            changes: &self.changes,
            drains: &self.drain_ids,
            elsewhere: &self.elsewhere,
        };
        let commands = match context.translate(&envelope.command) {
            Translated::Run(commands) => commands,
            Translated::Nothing => return,
            Translated::Follower => {
                self.report.followers += 1;
                return;
            }
        };
        for (at, command) in commands.into_iter().enumerate() {
            self.ahead += u64::from(at > 0);
            if let Err(refusal) = self.run(index, envelope, command) {
                self.count_not_followed(index, refusal);
            }
        }
        self.register_like(index, envelope);
    }

    fn count_not_followed(&mut self, index: u64, refusal: Refusal) {
        let known = self.report.not_followed.entry(refusal.reason);
        known
            .and_modify(|known| known.count += 1)
            .or_insert(NotFollowed {
                count: 1,
                index,
                message: refusal.message,
            });
    }

    /// Plans a drain here: its host holds other VMs than recorded.
    fn record_drain(&mut self, envelope: &Envelope) {
        let Command::BeginDrain {
            operation,
            host,
            spec,
            ..
        } = &envelope.command
        else {
            return;
        };
        let options = DrainOptions {
            evacuate: spec.evacuate,
            cold: spec.cold,
            by_policy: spec.by_policy,
        };
        let planned = match spec.evacuate {
            true => plan_drain(&self.state, self.admit, envelope.at, host, options),
            false => Ok(Default::default()),
        };
        let moves = planned.unwrap_or_default().moves.into_iter();
        let plan = moves.map(|step| {
            let preferred = Preferred {
                host: step.destination,
                assignment: Some(step.assignment),
            };
            (step.vm, preferred)
        });
        let drain = Drain {
            host: host.clone(),
            plan: plan.collect(),
        };
        self.drains.insert(*operation, drain);
        self.drain_ids.insert(*operation);
    }

    fn record_flavor(&mut self, command: &Command) {
        if let Command::CreateFlavor(flavor) = command {
            self.unseen.remove(&flavor.name);
        }
    }

    /// Has added hosts report what the one that they are like reports.
    fn register_like(&mut self, index: u64, envelope: &Envelope) {
        let Command::RegisterHost { host, report, .. } = &envelope.command else {
            return;
        };
        let count = self.changes.like.get(host).copied().unwrap_or_default();
        for number in 1..=count {
            let Ok(command) = registration(host, number, report) else {
                continue;
            };
            self.ahead += 1;
            // A shape that is refused for the host is refused for those like it.
            let _ = self.run(index, envelope, command);
        }
    }
}

/// Why a recorded request is not made here.
enum Skipped {
    /// The VM or the operation is not there.
    Follower,
    /// The VM is not on the host that is drained.
    NotOnHost,
}

/// Returns how an operation ends for which no host is left; nothing for one that needs none.
fn failed(kind: &operation::Kind, refusal: &Refusal) -> Option<Effect> {
    let purpose = kind.plan().claims?;
    Some(match purpose {
        ClaimPurpose::Boot => Effect::FailBoot(refusal.clone()),
        ClaimPurpose::LiveMigration | ClaimPurpose::ColdMigration | ClaimPurpose::Evacuation => {
            Effect::RefuseMigration(refusal.clone())
        }
        ClaimPurpose::Unshelving => Effect::FailUnshelve(refusal.clone()),
    })
}

/// The reason of a refusal by all hosts.
const NO_VALID_HOST: &str = "NO_VALID_HOST";

fn not_explained() -> Refusal {
    let message = "no host takes it; the reasons of the first refusals alone are worked out";
    Refusal::new(Code::ResourceExhausted, NO_VALID_HOST, message)
}

/// Returns the flavor of the VM that a host was chosen for.
fn flavor_of(command: &Command, state: &State, vm: &VmName) -> Option<FlavorName> {
    if let Command::BeginBoot { spec, .. } = command {
        return Some(spec.flavor.name.clone());
    }
    state.vm(vm).map(|vm| vm.spec.flavor.name.clone())
}
