//! What a guest needs of a host, worked out from its demand: the least host that could take it, and the
//! bridges that a host lacks.

use std::collections::BTreeSet;

use berth_domain::constraint::Demand;
use berth_domain::hint::{HostShape, NeededBridge};
use berth_domain::host_view::HostView;
use berth_domain::instance::{InstanceCell, PageSize, ThreadPolicy};
use berth_domain::network;
use berth_domain::resource::ResourceClass;

/// Returns the bridges that a host lacks for a guest, or has otherwise than it takes.
pub(super) fn bridges(demand: &Demand, view: &HostView) -> Vec<NeededBridge> {
    let reached = &view.host.report.networks;
    let links = || demand.networks.iter().map(|attachment| &attachment.link);
    let lacking = demand.networks.iter();
    let lacking = lacking.filter(|attachment| network::check(reached, attachment).is_err());
    let physical: BTreeSet<_> = lacking.map(|one| &one.link.physical_network).collect();
    let needed = physical.into_iter().map(|physical_network| {
        let on_it = || links().filter(|link| link.physical_network == *physical_network);
        NeededBridge {
            physical_network: physical_network.clone(),
            tags: on_it().any(|link| link.vlan.is_some()),
            mtu: on_it().filter_map(|link| link.mtu).max(),
        }
    });
    needed.collect()
}

/// Returns the least host for a guest; nothing where it needs devices, volumes, networks or a kind of
/// machine, of which more than numbers have to be known.
pub(super) fn shape(demand: &Demand) -> Option<HostShape> {
    let has_more = !demand.pci.is_empty()
        || !demand.pmem.requests.is_empty()
        || !demand.volumes.is_empty()
        || !demand.networks.is_empty();
    if has_more {
        return None;
    }
    let cells = demand.topology.iter().flat_map(|topology| &topology.cells);
    let cells: Vec<&InstanceCell> = cells.collect();
    let most = |of: fn(&InstanceCell) -> usize| cells.iter().map(|cell| of(cell)).max();
    let counted = |class| demand.resources.get(&class).copied().unwrap_or(0);
    let requires = |cell: &&InstanceCell| cell.thread_policy == ThreadPolicy::Require;
    let threads = if cells.iter().any(requires) { 2 } else { 1 };
    let isolates = demand
        .topology
        .as_ref()
        .is_some_and(|t| t.isolates_emulator());
    let dedicated = most(|cell| cell.dedicated.len()).unwrap_or(0) + usize::from(isolates);
    let floating = usize::try_from(counted(ResourceClass::vcpu())).ok()?;
    let shared = most(|cell| cell.shared.len()).unwrap_or(floating).max(1);
    let nodes = u32::try_from(cells.len().max(1)).ok()?;
    let memory_mib = cells.iter().map(|cell| cell.memory_mib).max();
    let metadata = demand.aggregate_specs.iter();
    let metadata = metadata.map(|(key, values)| Some((key.clone(), values.first()?.clone())));
    Some(HostShape {
        nodes,
        dedicated: u32::try_from(dedicated).ok()?.next_multiple_of(threads),
        shared: u32::try_from(shared).ok()?,
        threads,
        memory_mib: memory_mib.unwrap_or_else(|| counted(ResourceClass::memory_mb())),
        page_size_kib: cells.first().map_or(4, |cell| page_size(cell.page_size)),
        traits: demand.required.iter().cloned().collect(),
        zone: demand.zone.clone(),
        metadata: metadata.collect::<Option<_>>()?,
        storage_of: demand.leaving.as_ref().map(|leaving| leaving.host.clone()),
    })
}

fn page_size(size: PageSize) -> u64 {
    match size {
        PageSize::Kib(size) => size,
        PageSize::Large => 2048,
        PageSize::Unspecified | PageSize::Small | PageSize::Any => 4,
    }
}
