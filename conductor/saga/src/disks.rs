//! The calls for disks that move with a guest that is off.
//!
//! Not here: whether and when they do. That is in the table of operations.

use berth_domain::agent::{Call, DiskSource, FetchDisks, Side};
use berth_domain::migration::Migration;
use berth_domain::name::HostName;
use berth_domain::refusal::Refusal;
use berth_domain::version::{Feature, ServiceVersion};
use berth_domain::vm::VmSpec;

use crate::facts::HostFacts;
use crate::live_migration::migration;
use crate::plan::Context;
use crate::refusals;
use crate::start_stop::taken;

fn host<'c>(context: &'c Context, name: &HostName) -> Result<&'c HostFacts, Refusal> {
    let facts = context.facts.hosts.get(name);
    facts.ok_or_else(|| refusals::host_unknown(name))
}

/// Has the destination fetch them. Whether both agents can is checked before every call: one may have
/// been restarted, at another version.
pub(crate) fn fetch(context: &Context, spec: &VmSpec) -> Result<(HostName, Call), Refusal> {
    let (migration, claim) = (migration(context)?, taken(context)?);
    let (source, destination) = (
        host(context, &migration.source)?,
        host(context, &claim.host)?,
    );
    Feature::DiskFetch.gate_pair(source.service_version, destination.service_version)?;
    let call = Call::FetchDisks(Box::new(FetchDisks {
        migration: migration.id,
        vm: context.facts.vm.name.clone(),
        spec: spec.clone(),
        claim: claim.clone(),
        source: DiskSource {
            host: migration.source.clone(),
            address: source.address.clone(),
            incarnation: source.incarnation,
        },
        bandwidth_mib_per_s_max: migration.transfer.bandwidth_mib_per_s_max,
        timeout_ms: migration.transfer.timeout_ms,
    }));
    Ok((claim.host.clone(), call))
}

/// Deletes what the destination has fetched, and stops it where it still does.
pub(crate) fn undo_fetch(context: &Context) -> Result<(HostName, Call), Refusal> {
    let claim = taken(context)?;
    let version = host(context, &claim.host).map(|h| h.service_version);
    // An agent that is too old to fetch has fetched nothing.
    if version.is_ok_and(|version| version < ServiceVersion::DISK_FETCH) {
        return Ok((claim.host.clone(), Call::GetDomain));
    }
    let call = Call::DropDisks {
        migration: migration(context)?.id,
        side: Side::Destination,
        claim: claim.id,
    };
    Ok((claim.host.clone(), call))
}

/// Deletes what is left on the source of a migration.
pub(crate) fn drop_source(migration: &Migration) -> (HostName, Call) {
    let call = Call::DropDisks {
        migration: migration.id,
        side: Side::Source,
        claim: migration.source_claim,
    };
    (migration.source.clone(), call)
}

/// Deletes what the destination of a move that is reverted had fetched.
pub(crate) fn drop_destination(context: &Context) -> Result<(HostName, Call), Refusal> {
    let (migration, vm) = (migration(context)?, &context.facts.vm);
    let (Some(host), Some(claim)) = (vm.host.clone(), vm.claim) else {
        let message = format!("vm {} is on no host", vm.name);
        return Err(refusals::inconsistent(message));
    };
    let call = Call::DropDisks {
        migration: migration.id,
        side: Side::Destination,
        claim,
    };
    Ok((host, call))
}
