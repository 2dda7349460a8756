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
use berth_domain::operation::{Effect, Site, Step};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{ServiceVersion, live_migration_gate};

use crate::facts::HostFacts;
use crate::journal::Journal;
use crate::plan::{Action, Context, Script};
use crate::refusals;

/// The move of a running VM.
pub(crate) struct LiveMigration;

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
/// old to carry them. It is checked before every call: an agent may have been restarted, at
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

/// Fills in what the source cannot know: the claim, and what the destination reports of itself.
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
        data.destination_bridges.clone_from(&destination.bridges);
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
            // When a conductor that took over repeats the call, the answer must be the same: the
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

/// Returns the call of a step. Only [`Step::Claim`] and [`Step::Settle`] have none.
fn call(step: Step, context: &Context) -> Result<Call, Refusal> {
    let (migration, vm) = (migration(context)?.id, &context.facts.vm);
    if step == Step::CheckDestination {
        return Ok(Call::CheckCanLiveMigrateDestination {
            migration,
            vm: vm.name.clone(),
            spec: vm.spec.clone(),
        });
    }
    if step == Step::CheckSource {
        let destination = context.memory.destination.clone();
        return Ok(Call::CheckCanLiveMigrateSource {
            migration,
            destination: destination
                .ok_or_else(|| refusals::inconsistent("the destination was not checked"))?,
        });
    }
    let migrate_data = migrate_data(context)?;
    if step == Step::FitDestination {
        return Ok(Call::FitLiveMigration {
            migration,
            migrate_data,
        });
    }
    if step == Step::PreLiveMigration {
        return Ok(Call::PreLiveMigration {
            migration,
            migrate_data,
        });
    }
    if step == Step::LiveMigration {
        return Ok(Call::LiveMigration {
            migration,
            migrate_data,
        });
    }
    Err(refusals::inconsistent(format!(
        "step `{}` calls no agent",
        step.title()
    )))
}

impl Script for LiveMigration {
    fn action(&self, step: Step, context: &Context) -> Result<Action, Refusal> {
        gate(context)?;
        // An agent from before the handshake refuses the call; its guests have no topology (the
        // gate), so there is nothing to fit, and the counted claim stands.
        if step == Step::FitDestination
            && oldest_version(context)? < ServiceVersion::NUMA_LIVE_MIGRATION
        {
            let claim = claim(context)?.id;
            return Ok(Action::Complete(Effect::ConfirmClaim { claim }));
        }
        let host = match step.site() {
            Site::VmHost | Site::Source => migration(context)?.source.clone(),
            Site::Claimed | Site::Both => destination(context)?,
        };
        Ok((host, call(step, context)?).into())
    }

    fn answered(&self, step: Step, reply: Reply, context: &mut Context) -> Result<Effect, Refusal> {
        if step == Step::CheckDestination {
            let Reply::Destination(check) = reply else {
                let call = "check_can_live_migrate_destination";
                return Err(refusals::unexpected_answer(call));
            };
            context.memory.destination = Some(check);
        } else if step == Step::CheckSource {
            let Reply::MigrateData(data) = reply else {
                let call = "check_can_live_migrate_source";
                return Err(refusals::unexpected_answer(call));
            };
            context.memory.migrate_data = Some(complete(data, context)?);
        } else if step == Step::FitDestination {
            let Reply::Fit {
                verdict,
                migrate_data,
            } = reply
            else {
                return Err(refusals::unexpected_answer("fit_live_migration"));
            };
            return fitted(verdict, migrate_data, context);
        }
        context.success(step)
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        let call = Call::RollbackLiveMigrationAtDestination {
            keep_disks: false,
            migration: migration(context)?.id,
        };
        Ok((destination(context)?, call))
    }
}
