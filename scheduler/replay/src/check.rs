//! Whether the recorded policy leads to the recorded decisions, when they are made again.
//!
//! A leader decides on its speculative state, which is the state before the command when the command
//! is applied; ids, which break ties, are in the command. So the same program decides the same. What
//! can differ nevertheless has a [`Cause`]. Not here: decisions whose host the user named.

use berth_decide::{
    Action, Decision, DecisionRequest, HostTable, Preferred, ScheduleMove, decide_with,
    upgrade::Admit,
};
use berth_domain::claim::Claim;
use berth_domain::policy::Admission;
use berth_state::State;
use berth_state::command::{Command, Effect, Envelope};

use crate::decision::{Kind, RecordedDecision, without_transfer};
use crate::report::{Cause, CheckReport, Difference, Replayed};

/// Makes each recorded decision again, on the recorded state.
pub struct Check {
    admit: Admit,
    hosts: HostTable,
    report: CheckReport,
    /// How many differences are described; all are counted.
    examples: usize,
}

impl Check {
    /// Begins with no decision; `examples` differences are described at most.
    #[must_use]
    pub fn new(admit: Admit, examples: usize) -> Self {
        Self {
            admit,
            hosts: HostTable::default(),
            report: CheckReport::default(),
            examples,
        }
    }

    /// Returns what was counted so far.
    #[must_use]
    pub fn report(&self) -> &CheckReport {
        &self.report
    }

    /// Makes the decision again that a command records, if it records one, and returns it. `state` is
    /// the one before the command.
    pub fn before(
        &mut self,
        state: &State,
        index: u64,
        envelope: &Envelope,
    ) -> Option<RecordedDecision> {
        self.report.commands += 1;
        let recorded = RecordedDecision::of(state, &envelope.command)?;
        if recorded.named.is_some() {
            self.report.named += 1;
            return Some(recorded);
        }
        self.report.decisions += 1;
        *self.report.by_kind.entry(recorded.kind).or_default() += 1;
        let replayed = self.decide(state, envelope, recorded.action.clone());
        if let Some(replayed) = difference(&replayed, &envelope.command, &recorded.claim) {
            let cause = self.cause(state, envelope, &recorded);
            self.count(Difference {
                index,
                at: envelope.at,
                vm: recorded.vm.clone(),
                kind: recorded.kind,
                recorded: recorded.claim.host.clone(),
                replayed,
                cause,
            });
        }
        Some(recorded)
    }

    fn count(&mut self, difference: Difference) {
        self.report.differences += 1;
        *self.report.by_cause.entry(difference.cause).or_default() += 1;
        if self.report.examples.len() < self.examples {
            self.report.examples.push(difference);
        }
    }

    fn decide(&self, state: &State, envelope: &Envelope, action: Action) -> Decision {
        let request = DecisionRequest::new(envelope.principal.clone(), action);
        decide_with(state, &mut &self.hosts, self.admit, envelope.at, &request)
    }

    /// Returns why the decision may differ although nothing is wrong.
    fn cause(&self, state: &State, envelope: &Envelope, recorded: &RecordedDecision) -> Cause {
        if let Action::ScheduleMove(params) = &recorded.action
            && recorded.kind == Kind::Evacuation
        {
            let planned = Action::ScheduleMove(ScheduleMove {
                preferred: Some(Preferred {
                    host: recorded.claim.host.clone(),
                    assignment: Some(recorded.claim.assignment.clone()),
                }),
                ..params.clone()
            });
            let replayed = self.decide(state, envelope, planned);
            if difference(&replayed, &envelope.command, &recorded.claim).is_none() {
                return Cause::UnrecordedPlan;
            }
        }
        match state.policy().failover.admission {
            Admission::Refuse => Cause::CachedProofs,
            Admission::Off | Admission::Warn => Cause::Unexplained,
        }
    }
}

/// Returns what another decision than the recorded command is; nothing if it is the same.
fn difference(decision: &Decision, recorded: &Command, claim: &Claim) -> Option<Replayed> {
    let proposal = match decision {
        Decision::Command(proposal) => proposal,
        Decision::Refuse(refusal) => return Some(Replayed::Refused((**refusal).clone())),
        Decision::Explain(unexplained) => return Some(Replayed::Refused(unexplained.explain())),
        Decision::Answer(_) => return Some(Replayed::NoCommand),
    };
    let replayed = &proposal.envelope.command;
    let Some(chosen) = claim_of(replayed) else {
        return Some(Replayed::NoCommand);
    };
    if chosen.host != claim.host {
        return Some(Replayed::OtherHost(chosen.host.clone()));
    }
    if chosen != claim {
        return Some(Replayed::OtherClaim);
    }
    let is_same = without_transfer(replayed.clone()) == without_transfer(recorded.clone());
    (!is_same).then_some(Replayed::OtherCommand)
}

/// Returns the claim that a command makes for a VM, if it makes one.
pub(crate) fn claim_of(command: &Command) -> Option<&Claim> {
    if let Command::MoveDrained { begin, .. } = command {
        return claim_of(begin);
    }
    if let Command::BeginBoot { claim, .. }
    | Command::BeginMigration { claim, .. }
    | Command::BeginMove { claim, .. }
    | Command::BeginUnshelve { claim, .. }
    | Command::Advance {
        effect: Effect::HoldClaim(claim),
        ..
    } = command
    {
        return Some(claim);
    }
    None
}
