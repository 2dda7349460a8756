//! Volumes of persistent memory: where they are, what their hosts have left, and what their regions
//! count as in Placement.
//!
//! It changes nothing: see [`crate::apply`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::host::{Host, Liveness};
use berth_domain::host_view::HostView;
use berth_domain::id::{ConsumerId, ProviderId};
use berth_domain::inventory::{Inventory, UNITS_MAX};
use berth_domain::name::{HostName, VolumeId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::ResourceClass;
use berth_domain::topology::CellId;
use berth_domain::volume::{
    Candidate, Failed, HOST_VOLUMES_MAX, Kind, Parameters, Phase, RegionUsage, Replica, Shown,
    Volume, counted_mib, holes, provider_of, region_usages, resource_class,
};
use imbl::OrdMap;

use crate::state::State;

/// What a repeated request for a volume requires.
#[derive(Clone, Copy, Debug)]
pub struct Same {
    /// How long it lives, and where.
    pub kind: Kind,
    /// What its hosts have to know.
    pub parameters: Parameters,
    /// On how many hosts.
    pub replicas: usize,
    /// How much must be usable at least, in bytes.
    pub required_bytes: u64,
    /// How much at most; 0: no limit.
    pub limit_bytes: u64,
}

impl State {
    /// Returns the volume of this id, if there is one.
    #[must_use]
    pub fn volume(&self, id: &VolumeId) -> Option<&Arc<Volume>> {
        self.volumes.get(id)
    }

    /// Returns all volumes.
    #[must_use]
    pub fn volumes(&self) -> &OrdMap<VolumeId, Arc<Volume>> {
        &self.volumes
    }

    /// Returns the volume that people call so and that is not being deleted.
    #[must_use]
    pub fn volume_named(&self, name: &str) -> Option<&Arc<Volume>> {
        let id = self.index.volume_names.get(name)?;
        self.volumes.get(id)
    }

    /// Returns why a volume that is gone could not be made, and on which host; by its id, or of those
    /// that people called so the last one.
    #[must_use]
    pub fn failed_volume(
        &self,
        id: Option<&VolumeId>,
        name: Option<&str>,
    ) -> Option<(&HostName, &Failed)> {
        let hosts = self.hosts.values().map(|view| &view.host);
        let failed = hosts.flat_map(|host| {
            let failed = host.failed_volumes.iter();
            failed.map(move |failed| (&host.name, failed))
        });
        let matching = failed.filter(|(_, failed)| match id {
            Some(id) => failed.volume == *id,
            None => Some(failed.display_name.as_str()) == name,
        });
        matching.max_by_key(|(_, failed)| (failed.at, &failed.volume))
    }

    /// Returns the volume that this consumer is.
    #[must_use]
    pub fn volume_of_consumer(&self, consumer: ConsumerId) -> Option<&VolumeId> {
        self.index.volume_consumers.get(&consumer)
    }

    /// Returns the volumes that have something on this host, in order of their ids.
    pub fn volumes_of_host(&self, host: &HostName) -> impl Iterator<Item = &Arc<Volume>> + '_ {
        // No name comes before this one, as ids begin with a letter or a digit.
        let first = VolumeId::new("0").expect("a digit is a name");
        let of_host = host.clone();
        let entries = self.index.host_volumes.range((host.clone(), first)..);
        entries
            .take_while(move |(name, _)| *name == of_host)
            .filter_map(|(_, id)| self.volumes.get(id))
    }

    /// Returns whether a host is to make volumes that it has not tried yet. Those that it failed to make
    /// are tried again when it looks by itself.
    #[must_use]
    pub fn is_to_make_volumes(&self, host: &HostName) -> bool {
        let mut volumes = self.volumes_of_host(host);
        volumes.any(|volume| {
            let mut here = volume.replicas.iter().filter(|r| r.host == *host);
            here.any(|r| r.phase == Phase::Creating && r.failures == 0)
        })
    }

    /// Returns the regions of a host with the volumes in them; first those that it reports.
    #[must_use]
    pub fn regions_of(&self, host: &Host) -> Vec<RegionUsage> {
        let replicas = self.replicas_on(&host.name);
        let mut usages = region_usages(&host.report.regions, replicas);
        for usage in usages.iter_mut().filter(|usage| usage.is_open()) {
            if self.region_provider(host, usage).is_none() {
                let id = provider_of(host.provider, usage.name());
                usage.region.trouble = format!("a client's resource provider has the id {id}");
            }
        }
        usages
    }

    fn replicas_on<'s>(
        &'s self,
        host: &'s HostName,
    ) -> impl Iterator<Item = (&'s VolumeId, &'s Replica)> {
        let volumes = self.volumes_of_host(host);
        volumes.filter_map(move |volume| Some((&volume.id, volume.on(host)?)))
    }

    /// Returns the hosts that have regions as new volumes may come to them, with how far each region is
    /// from the cell that is preferred. Where some are named, only these.
    #[must_use]
    pub fn volume_candidates(
        &self,
        preferred_cell: Option<CellId>,
        named: &BTreeSet<HostName>,
    ) -> Vec<Candidate> {
        let has_regions = |view: &&Arc<HostView>| !view.host.report.regions.is_empty();
        let candidate = |view: &Arc<HostView>| self.volume_candidate(view, preferred_cell);
        if named.is_empty() {
            let hosts = self.hosts.values().filter(has_regions);
            return hosts.map(candidate).collect();
        }
        let hosts = named.iter().filter_map(|name| self.hosts.get(name));
        hosts.map(candidate).collect()
    }

    /// Returns a host as new volumes may come to it.
    #[must_use]
    pub fn volume_candidate(&self, view: &HostView, preferred_cell: Option<CellId>) -> Candidate {
        let host = &view.host;
        let count = self.volumes_of_host(&host.name);
        let closed = match closed(host) {
            "" if count.count() >= HOST_VOLUMES_MAX => {
                format!("it has {HOST_VOLUMES_MAX} volumes, as many as it may")
            }
            why => why.to_owned(),
        };
        let usages = self.regions_of(host).into_iter();
        let usages = usages.map(|usage| (distance(host, preferred_cell, usage.region.cell), usage));
        Candidate {
            host: host.name.clone(),
            closed,
            regions: usages.collect(),
        }
    }

    /// Checks whether a volume is what a repeated request requires.
    ///
    /// # Errors
    ///
    /// It is not: which of it.
    pub fn examine_same(&self, volume: &Volume, same: &Same) -> Result<(), Refusal> {
        let size = volume.size_bytes();
        let differs = if volume.kind != same.kind {
            Some(format!("is {}, not {}", volume.kind, same.kind))
        } else if volume.parameters != same.parameters {
            Some("has other parameters".to_owned())
        } else if volume.replicas.len() != same.replicas.max(1) {
            let count = volume.replicas.len();
            Some(format!("is on {count} hosts, not {}", same.replicas))
        } else if size < same.required_bytes {
            let required = Shown(same.required_bytes);
            Some(format!("has {}, and {required} are needed", Shown(size)))
        } else if same.limit_bytes > 0 && size > same.limit_bytes {
            let limit = Shown(same.limit_bytes);
            Some(format!(
                "has {}, and at most {limit} are allowed",
                Shown(size)
            ))
        } else {
            None
        };
        let Some(differs) = differs else {
            return Ok(());
        };
        Err(volume_differs(volume, &differs))
    }

    /// Returns the provider of a region.
    pub(crate) fn region_provider(
        &self,
        host: &Host,
        usage: &RegionUsage,
    ) -> Option<&Arc<ResourceProvider>> {
        let provider = self.provider(provider_of(host.provider, usage.name()))?;
        (provider.host.as_ref() == Some(&host.name)).then_some(provider)
    }

    /// Returns the providers of the regions of a host.
    pub(crate) fn region_providers<'s>(
        &'s self,
        root: ProviderId,
    ) -> impl Iterator<Item = &'s Arc<ResourceProvider>> + 's {
        let children = self.children_of(root);
        children.filter(|provider| provider.is_reported())
    }
}

/// Refuses a volume of a name that another one has.
#[must_use]
pub fn volume_differs(volume: &Volume, how: &str) -> Refusal {
    let name = &volume.display_name;
    Refusal::new(
        Code::AlreadyExists,
        "VOLUME_DIFFERS",
        format!("volume {name} ({}) exists already and {how}", volume.id),
    )
    .with_hint("use another name, or delete that volume first")
    .with("volume", &volume.id)
}

/// Returns why nothing new comes to a host now; nothing where it may.
#[must_use]
pub fn closed(host: &Host) -> &'static str {
    if host.liveness == Liveness::Down {
        "its agent is not heard of"
    } else if host.cordoned {
        "it is cordoned"
    } else if host.fenced.is_some() {
        "it is fenced"
    } else if host.shape_refused.is_some() {
        "what its agent reports was not taken over"
    } else {
        ""
    }
}

/// The distance of a region of unknown NUMA node.
const FAR: u32 = 255;

fn distance(host: &Host, preferred: Option<CellId>, of: Option<CellId>) -> u32 {
    let Some(preferred) = preferred else { return 0 };
    let topology = &host.report.topology;
    let position = |cell: Option<CellId>| topology.position(cell?);
    let (Some(from), Some(to)) = (position(Some(preferred)), position(of)) else {
        return FAR;
    };
    let row = topology.distances().get(from);
    row.and_then(|row| row.get(to)).copied().unwrap_or(FAR)
}

/// Returns what a region counts as having. One about which something is wrong offers nothing, and
/// counts what its volumes take.
pub(crate) fn region_inventories(usage: &RegionUsage) -> BTreeMap<ResourceClass, Inventory> {
    const MIB: u64 = 1 << 20;
    let region = &usage.region;
    let whole = holes(region.capacity_bytes, region.foreign.iter().copied());
    let usable: u64 = whole.iter().map(|hole| hole.length_bytes).sum();
    // What was made in another mode is not in what the host counts as the region's now.
    let strange = usage.held.iter().filter(|held| held.mode != region.mode);
    let strange = strange.map(|held| held.taken.gross_bytes);
    let usable = strange.fold(usable, u64::saturating_add) / MIB;
    let used = usage.held.iter().map(|h| counted_mib(h.taken.gross_bytes));
    let used = used.fold(0, u64::saturating_add);
    let total = usable.max(used).min(UNITS_MAX);
    if total == 0 {
        return BTreeMap::new();
    }
    let step = counted_mib(region.align_bytes).clamp(1, total);
    let inventory = Inventory {
        reserved: if usage.is_open() { 0 } else { total },
        min_unit: step,
        step_size: step,
        ..Inventory::exact(total)
    };
    [(resource_class(), inventory)].into()
}

/// Returns what a volume takes, by the providers of its regions.
pub(crate) fn taken_by(state: &State, volume: &Volume) -> BTreeMap<ProviderId, Resources> {
    let taken = volume.replicas.iter().filter_map(|replica| {
        let view = state.host(&replica.host)?;
        let provider = provider_of(view.host.provider, &replica.region);
        let amount = counted_mib(replica.taken()?.gross_bytes);
        Some((provider, Resources::from([(resource_class(), amount)])))
    });
    taken.collect()
}
