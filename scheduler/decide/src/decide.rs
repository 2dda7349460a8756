//! From a request to a decision.
//!
//! A request whose command would be refused is refused here where that is cheap to see, so that
//! refusals do not fill the log; an admitted command is checked again when it is applied.
//!
//! Invariant: a retry gets the first response even if the request would be refused by now, so the
//! recorded requests are looked up before anything else.

use berth_domain::fault;
use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_state::command::{Command, Envelope, Kind};
use berth_state::{Recall, Reply, State};

use super::chooser::{Chooser, EveryHost, Unschedulable};
use super::decision::{Decision, Proposal};
use super::request::{Action, DecisionRequest};
use super::schedule::{self, Scheduled};
use super::upgrade::Admit;
use super::{audited, drain, hosts, image, reschedule, volume};

/// Decides on a request, evaluating every host where one is to be chosen, and with every reason
/// worked out.
#[must_use]
pub fn decide(state: &State, admit: Admit, at: TimeMs, request: &DecisionRequest) -> Decision {
    decide_with(state, &mut EveryHost, admit, at, request).explained()
}

/// Decides on a request. The explanation of why no host fits is left to the caller.
#[must_use]
pub fn decide_with(
    state: &State,
    chooser: &mut dyn Chooser,
    admit: Admit,
    at: TimeMs,
    request: &DecisionRequest,
) -> Decision {
    if let Some(key) = &request.key
        && !request.validate_only
        && let Recall::Answered(outcome) = state.recall(&request.principal, key)
    {
        return match outcome {
            Ok(reply) => Decision::answer(reply, None),
            Err(refusal) => Decision::refuse(refusal),
        };
    }
    if let Action::CreateVolume(params) = &request.action
        && let Some(known) = volume::known(state, params)
    {
        return match known {
            Ok(known) => Decision::answer(Reply::Volume(known), None),
            Err(refusal) => Decision::Refuse(refusal),
        };
    }
    if let Action::MoveDrained(params) = &request.action
        && let Some(known) = drain::known_move(state, params)
    {
        return Decision::answer(Reply::Operation(known), None);
    }
    let scheduled = match plan(state, chooser, &request.action) {
        Ok(scheduled) => scheduled,
        Err(Unschedulable::Refusal(refusal)) => return Decision::Refuse(refusal),
        Err(Unschedulable::NoHost(unexplained)) => return Decision::Explain(unexplained),
    };
    let envelope = Envelope {
        at,
        principal: request.principal.clone(),
        request: request.key.clone().filter(|_| !request.validate_only),
        audit: (!request.validate_only)
            .then(|| audited::audit_record(request, scheduled.choice.as_ref()))
            .flatten()
            .map(Box::new),
        command: scheduled.command,
    };
    let envelope = match admit(state, envelope) {
        Ok(envelope) => envelope,
        Err(refusal) => return Decision::refuse(refusal),
    };
    if request.validate_only {
        return match state.clone().speculate(state.revision() + 1, &envelope) {
            Ok(reply) => Decision::answer(reply, scheduled.choice),
            Err(refusal) => Decision::refuse(refusal),
        };
    }
    if is_tried_first(&envelope.command)
        && let Err(refusal) = state.examine(&envelope)
    {
        return Decision::refuse(in_words(state, refusal));
    }
    if let Err(refusal) = hosts::examine(state, &envelope.command) {
        return Decision::refuse(refusal);
    }
    Decision::Command(Box::new(Proposal {
        envelope,
        choice: scheduled.choice,
    }))
}

/// Returns a refusal of the state with the word for the state of its VM, as tables show it.
///
/// Where the state itself words it, the name of the variant stays: what is refused after it was replicated
/// is part of the outcome, which has to be the same on members of every build of a version.
fn in_words(state: &State, mut refusal: Refusal) -> Refusal {
    let name = refusal.metadata.get("vm");
    let vm = name.and_then(|name| state.vms().get(name.as_str()));
    if let Some(vm) = vm {
        let (variant, word) = (format!("{:?}", vm.state), vm.state.as_str());
        for before in ["is ", "in state "] {
            let (variant, word) = (format!("{before}{variant}"), format!("{before}{word}"));
            refusal.message = refusal.message.replacen(&variant, &word, 1);
        }
    }
    refusal
}

/// Returns whether a command is checked before it is replicated. The others are frequent and
/// hardly ever refused.
fn is_tried_first(command: &Command) -> bool {
    match command {
        Command::BeginBoot { .. }
        | Command::BeginMigration { .. }
        | Command::BeginMove { .. }
        | Command::BeginUnshelve { .. }
        | Command::MoveDrained { .. }
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
        | Command::UpdateVm { .. }
        | Command::DeleteAggregate { .. }
        | Command::CreateServerGroup(_)
        | Command::DeleteServerGroup { .. }
        | Command::SetPolicy(_)
        | Command::CreatePciAlias(_)
        | Command::DeletePciAlias { .. }
        | Command::CreateImage(_)
        | Command::CompleteImage { .. }
        | Command::SetImageCopy { .. }
        | Command::DeleteImage { .. }
        | Command::CreateNetwork(_)
        | Command::DeleteNetwork { .. }
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
        | Command::BeginDrain { .. }
        | Command::RecordDrained { .. }
        | Command::ConfirmResize { .. }
        | Command::BeginRevertResize { .. }
        | Command::BeginShelve { .. }
        | Command::BeginPower { .. }
        | Command::SetRestartPolicy { .. }
        | Command::OpenConsole { .. }
        | Command::TakeLease { .. }
        | Command::CancelOperation { .. }
        | Command::FenceHost { .. }
        | Command::ForceComplete { .. }
        | Command::NoteReality { .. }
        | Command::ReportGuests { .. }
        | Command::EndRecovery { .. }
        | Command::NoteErasures { .. }
        | Command::WriteOffPmem { .. }
        | Command::DeleteVolume { .. }
        | Command::NoteVolumes { .. }
        | Command::FinalizeUpgrade { .. }
        | Command::ReplaceGrantKey { .. }
        | Command::RevokeCertificate(_)
        | Command::ReinstateCertificate { .. }
        | Command::UnregisterService { .. } => true,
    }
}

/// Returns whether an action chooses hosts.
fn chooses(action: &Action) -> bool {
    match action {
        Action::ScheduleVm(_)
        | Action::ScheduleMigration(_)
        | Action::ScheduleMove(_)
        | Action::ScheduleUnshelve(_)
        | Action::MoveDrained(_)
        | Action::ScheduleNext { .. }
        | Action::CreateVolume(_) => true,
        Action::SetPolicy { .. } | Action::Plain(_) => false,
    }
}

/// Returns the command that carries out an action.
fn plan(
    state: &State,
    chooser: &mut dyn Chooser,
    action: &Action,
) -> Result<Scheduled, Unschedulable> {
    if chooses(action) {
        // Before a search for hosts whose guests are not known.
        state.examine_recovered()?;
    }
    match action {
        Action::ScheduleVm(params) => schedule::vm(state, chooser, params),
        Action::ScheduleMigration(params) => schedule::migration(state, chooser, params),
        Action::ScheduleMove(params) => reschedule::cold_move(state, chooser, params),
        Action::ScheduleUnshelve(params) => reschedule::unshelve(state, chooser, params),
        Action::MoveDrained(params) => drain::move_drained(state, chooser, params),
        Action::ScheduleNext {
            operation,
            epoch,
            claim,
        } => schedule::next(state, chooser, *operation, *epoch, *claim),
        Action::CreateVolume(params) => Ok(Scheduled {
            command: volume::create(state, params).map_err(Unschedulable::Refusal)?,
            choice: None,
        }),
        Action::SetPolicy {
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
        Action::Plain(command) => {
            // A flavor that can be made can be scheduled; its settings are validated once.
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
            if let Command::CreateNetwork(network) = command {
                network
                    .validate()
                    .map_err(|faults| fault::refusal("network", &faults))?;
            }
            let mut command = command.clone();
            if let Command::BeginPower {
                vm,
                kind: Kind::Rebuild { images },
                ..
            } = &mut command
            {
                *images = image::name_files_again(state, vm, images)?;
            }
            Ok(Scheduled {
                command,
                choice: None,
            })
        }
    }
}
