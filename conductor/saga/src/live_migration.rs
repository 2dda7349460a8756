//! Moves a VM while it runs: claim, check, fit and prepare the destination; then have the source
//! send the guest, and settle where it is.
//!
//! ```text
//!   Claim ─▶ CheckDestination ─▶ CheckSource ─▶ FitDestination ─▶ PreLiveMigration ─▶ LiveMigration ─▶ Settle
//!   └──────────────────────────── refused: undone ──────────────────────────────┘ ╎    from here on the two
//!                                                             point of no return ─┘    hypervisors decide
//! ```

use berth_domain::agent::{Call, FitVerdict, Reply};
use berth_domain::claim::Claim;
use berth_domain::migration::{MigrateData, Migration};
use berth_domain::name::HostName;
use berth_domain::numa::Assignment;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{ServiceVersion, live_migration_gate};

use crate::facts::HostFacts;
use crate::journal::Journal;
use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::refusals;

/// The move of a running VM.
pub(crate) struct LiveMigration;

const STEPS: &[StepPlan] = &[
    // First, in the command that makes the migration: from here on nobody can take what the
    // guest will need on the destination. State alone, and given back last.
    StepPlan {
        step: Step::Claim,
        side_effects: false,
        undo: Undo::ReleaseClaim,
    },
    // A question. It comes before the source is asked because the source answers with regard to
    // what the destination says of its storage and driver. Leaves nothing behind.
    StepPlan {
        step: Step::CheckDestination,
        side_effects: false,
        undo: Undo::Nothing,
    },
    // A question, answered with `migrate_data` and the guest's topology as it is. Leaves nothing
    // behind. If it is refused no other destination helps, so none is tried.
    StepPlan {
        step: Step::CheckSource,
        side_effects: false,
        undo: Undo::Nothing,
    },
    // The destination compares the claim with the host as it really is. The agent only answers;
    // what follows (confirm, swap) is a command, in which the old claim goes and the new one
    // comes together. The agent keeps nothing, so there is nothing to take back but the claim.
    StepPlan {
        step: Step::FitDestination,
        side_effects: false,
        undo: Undo::Nothing,
    },
    // The destination makes disks, networks and a listening hypervisor ready. Its undo is asked
    // for even after a plain refusal, since an earlier, unanswered try may have prepared
    // something; an agent that has rolled back refuses a preparation that comes late.
    StepPlan {
        step: Step::PreLiveMigration,
        side_effects: true,
        undo: Undo::AskAgent,
    },
    // The start of this step is the point of no return, committed before the call leaves: a
    // conductor that finds it in the log must assume that the guest is moving. It has no undo,
    // because nobody but the two hypervisors knows from here on where the guest is.
    StepPlan {
        step: Step::LiveMigration,
        side_effects: true,
        undo: Undo::NoReturn,
    },
    // Not a call but a reconciliation: both agents are asked until their answers make a verdict.
    // It settles the claims on both sides in one command. It never gives up: while it cannot
    // know, both claims stay and the migration says what it waits for.
    StepPlan {
        step: Step::Settle,
        side_effects: false,
        undo: Undo::NoReturn,
    },
];

/// Returns the migration that the operation carries out.
pub(crate) fn migration(context: &Context) -> Result<&Migration, Refusal> {
    let migration = context.facts.migration.as_ref();
    migration.ok_or_else(|| {
        refusals::inconsistent(format!(
            "the migration of operation {} is not known",
            context.operation.id
        ))
    })
}

/// Returns where the guest goes.
pub(crate) fn destination(context: &Context) -> Result<HostName, Refusal> {
    let migration = migration(context)?;
    migration.destination.clone().ok_or_else(|| {
        refusals::inconsistent(format!("migration {} has no destination", migration.id))
    })
}

fn claim(context: &Context) -> Result<&Claim, Refusal> {
    let claim = context.facts.claim.as_ref();
    claim.ok_or_else(|| {
        refusals::inconsistent(format!(
            "vm {} has no claim on its destination",
            context.facts.vm.name
        ))
    })
}

fn host<'a>(context: &'a Context, name: &HostName) -> Result<&'a HostFacts, Refusal> {
    let host = context.facts.hosts.get(name);
    host.ok_or_else(|| refusals::host_unknown(name))
}

/// Returns the older one of the two agents' versions.
fn oldest_version(context: &Context) -> Result<ServiceVersion, Refusal> {
    let source = host(context, &migration(context)?.source)?;
    let destination = host(context, &destination(context)?)?;
    Ok(source.service_version.min(destination.service_version))
}

/// Refuses a guest with a topology or PCI functions before the first call, if either agent is too
/// old to carry them. It is asked again before every call: an agent may have been started anew, at
/// another version, since the scheduler looked or since it was called last.
fn gate(context: &Context) -> Result<(), Refusal> {
    live_migration_gate(
        context.facts.vm.spec.is_exact(),
        host(context, &migration(context)?.source)?.service_version,
        host(context, &destination(context)?)?.service_version,
    )
}

fn migrate_data(context: &Context) -> Result<MigrateData, Refusal> {
    let data = context.memory.migrate_data.clone();
    data.ok_or_else(|| refusals::inconsistent("migrate_data was not answered before it is needed"))
}

/// Fills in what the source cannot know: the claim, and what the destination says of itself.
fn complete(mut data: MigrateData, context: &Context) -> Result<MigrateData, Refusal> {
    if context.facts.vm.spec.topology.is_some() && data.numa_topology.is_none() {
        return Err(Refusal::new(
            Code::FailedPrecondition,
            "NUMA_TOPOLOGY_MISSING",
            format!(
                "the source's agent answered without the topology of vm {}",
                context.facts.vm.name
            ),
        ));
    }
    if data.source_pci.len() != context.facts.vm.spec.pci.len() {
        return Err(Refusal::new(
            Code::FailedPrecondition,
            "PCI_FUNCTIONS_MISSING",
            format!(
                "the source's agent answered without the PCI functions of vm {}",
                context.facts.vm.name
            ),
        )
        .with_hint("upgrade the compute agent of the source"));
    }
    if !data.disk_copies.is_empty() && oldest_version(context)? < ServiceVersion::DISK_COPY {
        return Err(Refusal::new(
            Code::FailedPrecondition,
            "SERVICE_VERSION_TOO_OLD",
            format!(
                "the disks of vm {} are not shared, and an agent or this conductor is too old to have \
                 them copied (needed {})",
                context.facts.vm.name,
                ServiceVersion::DISK_COPY
            ),
        )
        .with_hint("upgrade the compute agents of both hosts, and the conductors"));
    }
    data.transfer = migration(context)?.transfer.clone();
    data.claim = Some(claim(context)?.clone());
    if let Some(destination) = &context.memory.destination {
        data.destination_uri.clone_from(&destination.migration_uri);
        data.destination_shared.clone_from(&destination.shared_cpus);
    }
    Ok(data)
}

/// Holds the topology and functions that go to the source against the claim that is committed: a
/// guest must never be started on other CPUs, or with other functions, than those of its claim.
fn check_fitted(
    data: &MigrateData,
    assignment: &Assignment,
    context: &Context,
) -> Result<(), Refusal> {
    let spec = &context.facts.vm.spec;
    let fitted = data.numa_topology.as_ref().map(|t| &t.assignment);
    let claimed = data.claim.as_ref().map(|c| &c.assignment);
    let differs = spec.topology.is_some() && fitted != Some(assignment)
        || !spec.pci.is_empty() && claimed != Some(assignment);
    if differs {
        return Err(Refusal::new(
            Code::Internal,
            "TOPOLOGY_DIFFERS_FROM_CLAIM",
            format!(
                "the destination's agent fitted vm {} to other CPUs or PCI functions than it confirmed",
                context.facts.vm.name
            ),
        ));
    }
    Ok(())
}

fn fitted(
    verdict: FitVerdict,
    mut data: MigrateData,
    context: &mut Context,
) -> Result<Effect, Refusal> {
    let mut held = claim(context)?.clone();
    let effect = match verdict {
        FitVerdict::Confirm => {
            check_fitted(&data, &held.assignment, context)?;
            Effect::ConfirmClaim { claim: held.id }
        }
        FitVerdict::Swap(assignment) => {
            check_fitted(&data, &assignment, context)?;
            // Asked again by a conductor that took over, it must stand by what it said: the
            // destination may be prepared for that already.
            if Journal::of(&context.operation.log).has_succeeded(Step::FitDestination) {
                return Err(Refusal::new(
                    Code::Aborted,
                    "CLAIM_NO_LONGER_FITS",
                    format!(
                        "host {} changed its mind about the CPUs of vm {}",
                        held.host, context.facts.vm.name
                    ),
                ));
            }
            held.assignment = assignment.clone();
            Effect::SwapClaim {
                claim: held.id,
                assignment,
            }
        }
    };
    data.claim = Some(held.clone());
    context.facts.claim = Some(held);
    context.memory.migrate_data = Some(data);
    Ok(effect)
}

impl Script for LiveMigration {
    fn steps(&self) -> &'static [StepPlan] {
        STEPS
    }

    fn can_give_up(&self) -> bool {
        true
    }

    fn start_effect(&self, step: Step) -> Effect {
        if step == Step::LiveMigration {
            Effect::BeginTransfer
        } else {
            Effect::None
        }
    }

    fn ask(&self, step: Step, context: &Context) -> Result<Ask, Refusal> {
        let record = migration(context)?;
        let (source, destination) = (record.source.clone(), destination(context)?);
        let (id, vm) = (record.id, &context.facts.vm);
        gate(context)?;
        let (host, call) = match step {
            Step::CheckDestination => {
                let call = Call::CheckCanLiveMigrateDestination {
                    migration: id,
                    vm: vm.name.clone(),
                    spec: vm.spec.clone(),
                };
                (destination, call)
            }
            Step::CheckSource => {
                let answer = context.memory.destination.clone();
                let call = Call::CheckCanLiveMigrateSource {
                    migration: id,
                    destination: answer
                        .ok_or_else(|| refusals::inconsistent("the destination was not asked"))?,
                };
                (source, call)
            }
            // An agent from before the handshake refuses the call; its guests have no topology
            // (the gate), so there is nothing to fit, and the counted claim stands.
            Step::FitDestination
                if oldest_version(context)? < ServiceVersion::NUMA_LIVE_MIGRATION =>
            {
                let claim = claim(context)?.id;
                return Ok(Ask::Nothing(Effect::ConfirmClaim { claim }));
            }
            Step::FitDestination => {
                let call = Call::FitLiveMigration {
                    migration: id,
                    migrate_data: migrate_data(context)?,
                };
                (destination, call)
            }
            Step::PreLiveMigration => {
                let call = Call::PreLiveMigration {
                    migration: id,
                    migrate_data: migrate_data(context)?,
                };
                (destination, call)
            }
            Step::LiveMigration => {
                let call = Call::LiveMigration {
                    migration: id,
                    migrate_data: migrate_data(context)?,
                };
                (source, call)
            }
            Step::Claim
            | Step::Spawn
            | Step::Settle
            | Step::Destroy
            | Step::StopSource
            | Step::StartDestination
            | Step::StopDestination
            | Step::StartSource
            | Step::FetchDisks
            | Step::DropSource
            | Step::DropDestination
            | Step::Stop
            | Step::MakeDisks
            | Step::Start
            | Step::CopyDisk
            | Step::PublishImage => {
                return Err(refusals::inconsistent(format!(
                    "step {step:?} asks nothing of an agent"
                )));
            }
        };
        let call = Box::new(call);
        Ok(Ask::Agent { host, call })
    }

    fn answered(&self, step: Step, reply: Reply, context: &mut Context) -> Result<Effect, Refusal> {
        match (step, reply) {
            (Step::CheckDestination, Reply::Destination(check)) => {
                context.memory.destination = Some(check);
                Ok(Effect::None)
            }
            (Step::CheckSource, Reply::MigrateData(data)) => {
                context.memory.migrate_data = Some(complete(data, context)?);
                Ok(Effect::None)
            }
            (
                Step::FitDestination,
                Reply::Fit {
                    verdict,
                    migrate_data,
                },
            ) => fitted(verdict, migrate_data, context),
            (Step::PreLiveMigration | Step::LiveMigration, _) => Ok(Effect::None),
            (Step::CheckDestination, _) => Err(refusals::unexpected_answer(
                "check_can_live_migrate_destination",
            )),
            (Step::CheckSource, _) => {
                Err(refusals::unexpected_answer("check_can_live_migrate_source"))
            }
            (Step::FitDestination, _) => Err(refusals::unexpected_answer("fit_live_migration")),
            (
                Step::Claim
                | Step::Spawn
                | Step::Settle
                | Step::Destroy
                | Step::StopSource
                | Step::StartDestination
                | Step::StopDestination
                | Step::StartSource
                | Step::FetchDisks
                | Step::DropSource
                | Step::DropDestination
                | Step::Stop
                | Step::MakeDisks
                | Step::Start
                | Step::CopyDisk
                | Step::PublishImage,
                _,
            ) => Err(refusals::inconsistent(format!(
                "step {step:?} has no answer"
            ))),
        }
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        let call = Call::RollbackLiveMigrationAtDestination {
            keep_disks: false,
            migration: migration(context)?.id,
        };
        Ok((destination(context)?, call))
    }

    fn is_candidates_fault(&self, step: Step) -> bool {
        step != Step::CheckSource
    }

    fn give_up(&self, refusal: Refusal) -> Effect {
        Effect::RefuseMigration(refusal)
    }
}
