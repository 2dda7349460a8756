//! What must hold of volumes: each is whole, is found, takes what it says, and lies where nothing else
//! does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::host::Host;
use berth_domain::name::{HostName, VolumeId};
use berth_domain::volume::{
    DeviceMode, Extent, FAILED_MAX, HOST_VOLUMES_MAX, Kind, Phase, RegionUsage, Replica,
    VOLUMES_MAX, consumer_of, provider_of,
};
use imbl::{OrdMap, OrdSet};

use super::{Violation, rule};
use crate::state::State;
use crate::volumes::{region_inventories, taken_by};

/// A volume is on hosts that are there, once on each, and is removed from all or from none. What is to
/// be removed may be on hosts that were: they have to remove them should they come back.
pub(super) fn volumes_are_whole(state: &State) -> Result<(), Violation> {
    const RULE: &str = "volumes_are_whole";
    let mut names = BTreeSet::new();
    rule(state.volumes.len() <= VOLUMES_MAX, RULE, "too many volumes")?;
    for (id, volume) in &state.volumes {
        let hosts: BTreeSet<_> = volume.replicas.iter().map(|r| &r.host).collect();
        let is_there = hosts.iter().all(|host| state.hosts.contains_key(*host));
        let is_there = is_there || volume.is_deleting();
        let count = volume.replicas.len();
        let is_one = count == 1 || volume.kind == Kind::Cache;
        let whole = volume.id == *id && is_there && count > 0 && hosts.len() == count && is_one;
        rule(whole, RULE, format_args!("volume {id} is on {hosts:?}"))?;
        let leaving = volume
            .replicas
            .iter()
            .filter(|r| r.phase == Phase::Deleting);
        let leaving = leaving.count();
        let what = format_args!("volume {id} is removed from {leaving} of {count}");
        rule(leaving == 0 || leaving == count, RULE, what)?;
        let is_new = volume.is_deleting() || names.insert(&volume.display_name);
        rule(is_new, RULE, format_args!("two volumes are called as {id}"))?;
    }
    Ok(())
}

/// What is kept beside the table follows from it.
pub(super) fn volumes_are_indexed(state: &State) -> Result<(), Violation> {
    const RULE: &str = "volumes_are_indexed";
    let volumes = || state.volumes.values();
    let by_host: OrdSet<(HostName, VolumeId)> = volumes()
        .flat_map(|v| v.replicas.iter().map(|r| (r.host.clone(), v.id.clone())))
        .collect();
    rule(by_host == state.index.host_volumes, RULE, "volumes by host")?;
    let living = volumes().filter(|volume| !volume.is_deleting());
    let by_name: OrdMap<Arc<str>, _> = living
        .map(|v| (Arc::from(v.display_name.as_str()), v.id.clone()))
        .collect();
    rule(by_name == state.index.volume_names, RULE, "volumes by name")?;
    let by_consumer: OrdMap<_, _> = volumes()
        .filter_map(|v| Some((consumer_of(&v.id)?, v.id.clone())))
        .collect();
    let good =
        by_consumer == state.index.volume_consumers && by_consumer.len() == volumes().count();
    rule(good, RULE, "volumes by consumer")
}

/// What a volume takes is counted as its consumer's, and no other consumer takes from regions.
pub(super) fn volumes_are_counted(state: &State) -> Result<(), Violation> {
    const RULE: &str = "volumes_are_counted";
    for (id, volume) in &state.volumes {
        let consumer = consumer_of(id).and_then(|consumer| state.consumer(consumer));
        let counted = consumer.map(|c| c.allocations.clone()).unwrap_or_default();
        let taken = taken_by(state, volume);
        let what = format_args!("volume {id} takes {taken:?}, counted are {counted:?}");
        rule(counted == taken, RULE, what)?;
    }
    Ok(())
}

/// A region's provider has what the region has, and is there as long as the region or a volume in it.
pub(super) fn regions_are_offered(state: &State) -> Result<(), Violation> {
    const RULE: &str = "regions_are_offered";
    for (name, view) in &state.hosts {
        let usages = state.regions_of(&view.host);
        for provider in state.region_providers(view.host.provider) {
            let is_of =
                |usage: &&RegionUsage| provider_of(view.host.provider, usage.name()) == provider.id;
            let usage = usages.iter().find(is_of);
            let good = usage.is_some_and(|usage| region_inventories(usage) == provider.inventories);
            let what = format_args!("provider {} of host {name}", provider.name);
            rule(good, RULE, what)?;
        }
        for usage in &usages {
            let has = state.region_provider(&view.host, usage).is_some();
            let what = format_args!("region {} of host {name} has no provider", usage.name());
            rule(has || !usage.is_open(), RULE, what)?;
        }
        let failed = view.host.failed_volumes.len();
        let what = format_args!("host {name} keeps {failed} failures");
        rule(failed <= FAILED_MAX, RULE, what)?;
        let count = state.volumes_of_host(name).count();
        rule(
            count <= HOST_VOLUMES_MAX,
            RULE,
            format_args!("host {name} has {count}"),
        )?;
    }
    Ok(())
}

/// Where nothing is said to be wrong, volumes fit into their regions; and what was promised lies over
/// nothing else wherever a region can be judged, since only what a host says can be otherwise.
pub(super) fn volumes_fit_together(state: &State) -> Result<(), Violation> {
    for (name, view) in &state.hosts {
        for usage in state.regions_of(&view.host) {
            if usage.is_open() {
                fits(name, &usage)?;
            }
        }
        promised_lie_alone(state, &view.host)?;
    }
    Ok(())
}

fn fits(host: &HostName, usage: &RegionUsage) -> Result<(), Violation> {
    const RULE: &str = "volumes_fit_together";
    let capacity = usage.region.capacity_bytes;
    let taken = usage.taken();
    let sum: u64 = taken.iter().map(|taken| taken.gross_bytes).sum();
    let what = format_args!(
        "region {} of host {host}: {sum} of {capacity}",
        usage.name()
    );
    rule(sum <= capacity, RULE, what)?;
    let mut pieces: Vec<Extent> = taken.iter().filter_map(|taken| taken.extent).collect();
    let is_exact = match usage.region.mode {
        DeviceMode::Direct => pieces.len() == taken.len(),
        DeviceMode::Lvm => pieces.is_empty(),
    };
    rule(
        is_exact,
        RULE,
        format_args!("region {} of host {host}", usage.name()),
    )?;
    pieces.sort_unstable();
    for pair in pieces.windows(2) {
        let what = format_args!("host {host}: {} and {} overlap", pair[0], pair[1]);
        rule(!pair[0].overlaps(pair[1]), RULE, what)?;
    }
    for piece in &pieces {
        let is_ours = !usage.region.foreign.iter().any(|f| f.overlaps(*piece));
        let what =
            format_args!("host {host}: {piece} overlaps foreign data or lies beyond the end");
        rule(is_ours && piece.end_bytes() <= capacity, RULE, what)?;
    }
    Ok(())
}

fn promised_lie_alone(state: &State, host: &Host) -> Result<(), Violation> {
    let regions = host.report.regions.iter().filter(|r| r.trouble.is_empty());
    for region in regions.filter(|region| region.mode == DeviceMode::Direct) {
        let here = |replica: &&Replica| {
            replica.region == region.name && replica.mode == DeviceMode::Direct
        };
        let volumes = state.volumes_of_host(&host.name);
        let replicas = volumes.filter_map(|volume| volume.on(&host.name));
        let replicas: Vec<&Replica> = replicas.filter(here).collect();
        let extents: BTreeMap<usize, Extent> = (0..)
            .zip(&replicas)
            .filter_map(|(at, replica)| Some((at, replica.extent?)))
            .collect();
        for (at, extent) in &extents {
            if replicas[*at].placed {
                continue;
            }
            let others = extents.iter().filter(|(other, _)| *other != at);
            let mut others = others
                .map(|(_, e)| *e)
                .chain(region.foreign.iter().copied());
            let good = !others.any(|other| other.overlaps(*extent))
                && extent.end_bytes() <= region.capacity_bytes;
            let what = format_args!("host {}, region {}: {extent}", host.name, region.name);
            rule(good, "volumes_fit_together", what)?;
        }
    }
    Ok(())
}
