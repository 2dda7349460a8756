//! A host gets no guest for which its agent is too old; a running guest with a NUMA topology or PCI
//! functions moves only between agents that are new enough; one that does not run is started only
//! by an agent that can start what exists.

use super::{Demand, MoveKind, Violation};
use crate::host_view::HostView;
use crate::instance::{CpuPolicy, InstanceTopology};
use crate::pci::PciNumaPolicy;
use crate::version::{Feature, ServiceVersion, live_migration_gate};

/// Refuses a host whose agent is too old for the guest, and a migration for which an agent is.
///
/// # Errors
///
/// [`Violation::Feature`], [`Violation::Version`], [`Violation::VersionHere`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let here = view.host.report.service_version;
    let wants_sockets = demand
        .pci
        .iter()
        .any(|request| request.policy == PciNumaPolicy::Socket);
    let features = [
        (Feature::SocketPolicy, wants_sockets),
        (
            Feature::MixedCpus,
            demand.topology.as_ref().is_some_and(is_mixed),
        ),
        // An older one would start the guest without them.
        (Feature::Volumes, !demand.volumes.is_empty()),
        (Feature::FirstBoot, demand.has_seed),
        // An older one would start the guest with another CPU, or fail to take it over.
        (Feature::CpuModels, demand.cpu.needs_report()),
    ];
    for (feature, is_needed) in features {
        if is_needed {
            feature.gate_host(here).map_err(Violation::Feature)?;
        }
    }
    let Some(leaving) = &demand.leaving else {
        return Ok(());
    };
    if let MoveKind::Cold { .. } = leaving.kind {
        let needed = ServiceVersion::VM_POWER;
        return match here < needed {
            true => Err(Violation::VersionHere { here, needed }),
            false => Ok(()),
        };
    }
    if !demand.pmem.requests.is_empty() {
        let feature = Feature::PmemLiveMigration;
        let both = feature.gate_pair(leaving.version, here);
        both.map_err(|_| Violation::Version {
            source_host: leaving.host.clone(),
            source: leaving.version,
            destination: here,
        })?;
    }
    let is_exact = demand.topology.is_some() || !demand.pci.is_empty();
    live_migration_gate(is_exact, leaving.version, here).map_err(|_| Violation::Version {
        source_host: leaving.host.clone(),
        source: leaving.version,
        destination: here,
    })
}

fn is_mixed(topology: &InstanceTopology) -> bool {
    topology
        .cells
        .iter()
        .any(|cell| cell.cpu_policy == CpuPolicy::Mixed)
}
