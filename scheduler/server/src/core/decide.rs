//! From a request to a decision.
//!
//! A request whose command would be refused is refused here where that is cheap to see, so that
//! refusals do not fill the log; what is let through is looked at again when it is applied.
//!
//! Invariant: a retry gets the first answer even if the request would be refused by now, so the
//! memory of requests is asked before anything else.

use berth_domain::fault;
use berth_domain::id::TimeMs;
use berth_state::command::{Command, Envelope};
use berth_state::{Recall, Reply, State};

use super::chooser::{Chooser, EveryHost, No};
use super::decision::{Decision, Proposal};
use super::request::{Ask, Request};
use super::schedule::{self, Scheduled};
use super::{audited, reschedule, upgrade, volume};

/// Decides on a request, looking at every host where one is to be chosen, and with every reason
/// worked out.
#[must_use]
pub fn decide(state: &State, at: TimeMs, ask: &Ask) -> Decision {
    decide_with(state, &mut EveryHost, at, ask).explained()
}

/// Decides on a request. Why no host will do is left to be worked out.
#[must_use]
pub fn decide_with(state: &State, chooser: &mut dyn Chooser, at: TimeMs, ask: &Ask) -> Decision {
    if let Some(key) = &ask.key
        && !ask.validate_only
        && let Recall::Answered(outcome) = state.recall(&ask.principal, key)
    {
        return match outcome {
            Ok(reply) => Decision::answer(reply, None),
            Err(refusal) => Decision::refuse(refusal),
        };
    }
    if let Request::CreateVolume(wanted) = &ask.request
        && let Some(known) = volume::known(state, wanted)
    {
        return match known {
            Ok(known) => Decision::answer(Reply::Volume(known), None),
            Err(refusal) => Decision::Refuse(refusal),
        };
    }
    let scheduled = match plan(state, chooser, &ask.request) {
        Ok(scheduled) => scheduled,
        Err(No::Refusal(refusal)) => return Decision::Refuse(refusal),
        Err(No::Nowhere(unexplained)) => return Decision::Explain(unexplained),
    };
    let envelope = Envelope {
        at,
        principal: ask.principal.clone(),
        request: ask.key.clone().filter(|_| !ask.validate_only),
        audit: (!ask.validate_only)
            .then(|| audited::asked(ask, scheduled.choice.as_ref()))
            .flatten()
            .map(Box::new),
        command: scheduled.command,
    };
    let envelope = match upgrade::admit(state, envelope) {
        Ok(envelope) => envelope,
        Err(refusal) => return Decision::refuse(refusal),
    };
    if ask.validate_only {
        return match state.clone().speculate(state.revision() + 1, &envelope) {
            Ok(reply) => Decision::answer(reply, scheduled.choice),
            Err(refusal) => Decision::refuse(refusal),
        };
    }
    if is_tried_first(&envelope.command)
        && let Err(refusal) = state.examine(&envelope)
    {
        return Decision::refuse(refusal);
    }
    Decision::Command(Box::new(Proposal {
        envelope,
        choice: scheduled.choice,
    }))
}

/// Says whether it is looked at before it is replicated whether a command would be refused. The
/// others are frequent, and hardly ever are.
fn is_tried_first(command: &Command) -> bool {
    match command {
        Command::BeginBoot { .. }
        | Command::BeginMigration { .. }
        | Command::BeginMove { .. }
        | Command::BeginUnshelve { .. }
        | Command::CreateVolume { .. }
        | Command::RenewLeases { .. }
        | Command::Advance { .. } => false,
        Command::Bootstrap { .. }
        | Command::RegisterHost { .. }
        | Command::SetLiveness { .. }
        | Command::SetCordon { .. }
        | Command::RemoveHost { .. }
        | Command::RegisterService(_)
        | Command::CreateFlavor(_)
        | Command::DeleteFlavor { .. }
        | Command::CreateAggregate(_)
        | Command::UpdateAggregate { .. }
        | Command::DeleteAggregate { .. }
        | Command::CreateServerGroup(_)
        | Command::DeleteServerGroup { .. }
        | Command::SetPolicy(_)
        | Command::CreatePciAlias(_)
        | Command::DeletePciAlias { .. }
        | Command::CreateProvider { .. }
        | Command::DeleteProvider { .. }
        | Command::SetInventories { .. }
        | Command::SetTraits { .. }
        | Command::UpdateProvider { .. }
        | Command::PutInventory { .. }
        | Command::DeleteInventory { .. }
        | Command::DeleteInventories { .. }
        | Command::DeleteTraits { .. }
        | Command::SetAggregates { .. }
        | Command::SetAllocations { .. }
        | Command::DeleteAllocations { .. }
        | Command::Reshape { .. }
        | Command::Batch { .. }
        | Command::CreateClass { .. }
        | Command::RenameClass { .. }
        | Command::DeleteClass { .. }
        | Command::CreateTrait { .. }
        | Command::DeleteTrait { .. }
        | Command::ImportProviders { .. }
        | Command::ImportConsumers { .. }
        | Command::BeginDelete { .. }
        | Command::ConfirmResize { .. }
        | Command::BeginRevertResize { .. }
        | Command::BeginShelve { .. }
        | Command::BeginPower { .. }
        | Command::TakeLease { .. }
        | Command::CancelOperation { .. }
        | Command::FenceHost { .. }
        | Command::ForceComplete { .. }
        | Command::NoteReality { .. }
        | Command::NoteErasures { .. }
        | Command::WriteOffPmem { .. }
        | Command::DeleteVolume { .. }
        | Command::NoteVolumes { .. }
        | Command::FinalizeUpgrade { .. }
        | Command::UnregisterService { .. } => true,
    }
}

/// Returns the command that answers a request.
fn plan(state: &State, chooser: &mut dyn Chooser, request: &Request) -> Result<Scheduled, No> {
    match request {
        Request::ScheduleVm(wanted) => schedule::vm(state, chooser, wanted),
        Request::ScheduleMigration(wanted) => schedule::migration(state, chooser, wanted),
        Request::ScheduleMove(wanted) => reschedule::cold_move(state, chooser, wanted),
        Request::ScheduleUnshelve(wanted) => reschedule::unshelve(state, chooser, wanted),
        Request::ScheduleNext {
            operation,
            epoch,
            claim,
        } => schedule::next(state, chooser, *operation, *epoch, *claim),
        Request::CreateVolume(wanted) => Ok(Scheduled {
            command: volume::create(state, wanted).map_err(No::Refusal)?,
            choice: None,
        }),
        Request::SetPolicy {
            scope,
            settings,
            generation,
        } => {
            let mut policy = (**state.policy()).clone();
            for setting in settings {
                policy.set_for(scope, *setting);
            }
            let faults = policy.migration.faults();
            if !faults.is_empty() {
                return Err(fault::refusal("policy", &faults).into());
            }
            // What the client saw is compared by the command itself.
            policy.generation = generation.unwrap_or(policy.generation);
            Ok(Scheduled {
                command: Command::SetPolicy(policy),
                choice: None,
            })
        }
        Request::Plain(command) => {
            // A flavor that can be made can be scheduled; what it wishes for is judged once.
            if let Command::CreateFlavor(flavor) = command {
                flavor
                    .validate()
                    .map_err(|faults| fault::refusal("flavor", &faults))?;
            }
            if let Command::CreatePciAlias(alias) = command {
                alias
                    .validate()
                    .map_err(|faults| fault::refusal("pci_alias", &faults))?;
            }
            Ok(Scheduled {
                command: command.clone(),
                choice: None,
            })
        }
    }
}
