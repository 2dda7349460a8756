//! Volumes of persistent memory: claimed, reported by agents, removed.
//!
//! Invariant: what a volume takes is counted until its host says that it is gone. Where a volume in
//! mode direct lies is what its host said, and before that where a kernel would put it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::allocation::{Consumer, Resources};
use berth_domain::host::{Host, Liveness};
use berth_domain::id::{ClaimId, Generation, Incarnation, ProviderId};
use berth_domain::name::{HostName, VolumeId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::ConsumerType;
use berth_domain::volume::{
    After, DeviceMode, Failed, HOST_VOLUMES_MAX, Kind, Outcome, Phase, REPORTS_MAX, RegionUsage,
    Replica, Report, Shown, Taken, VOLUMES_MAX, Volume, consumer_of, cut, provider_name,
    provider_of, repack, resource_class,
};

use crate::refusals::{exists, invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};
use crate::volumes::{Same, closed, region_inventories, taken_by};

/// The project and the kind of the consumers that volumes are.
const PROJECT: &str = "berth";
const CONSUMER_TYPE: &str = "BERTH_VOLUME";

impl<J: Journal> Transaction<'_, J> {
    /// Makes a volume where it was chosen to be, unless one of its name is there that will do.
    pub(super) fn create_volume(
        &mut self,
        volume: &Volume,
        limit_bytes: u64,
    ) -> Result<Reply, Refusal> {
        if let Some(known) = self.state.volume_named(volume.display_name.as_str()) {
            let same = Same {
                kind: volume.kind,
                parameters: volume.parameters,
                replicas: volume.replicas.len(),
                required_bytes: volume.required_bytes,
                limit_bytes,
            };
            self.state.examine_same(known, &same)?;
            return Ok(Reply::Volume(known.clone()));
        }
        self.examine_new_volume(volume)?;
        for replica in &volume.replicas {
            self.examine_replica(replica)?;
        }
        let replica = |replica: &Replica| Replica {
            placed: false,
            phase: Phase::Creating,
            sequence: self.state.header.revision,
            erased_bytes: 0,
            failure: String::new(),
            failures: 0,
            ..replica.clone()
        };
        let volume = Volume {
            replicas: volume.replicas.iter().map(replica).collect(),
            created_at: self.now(),
            generation: Generation(1),
            ownership: self.ownership(volume.ownership.project.as_ref()),
            ..volume.clone()
        };
        let volume = self.write_volume(volume);
        for replica in &volume.replicas {
            self.settle_regions(&replica.host);
        }
        Ok(Reply::Volume(volume))
    }

    fn examine_new_volume(&self, volume: &Volume) -> Result<(), Refusal> {
        let id = &volume.id;
        let Some(consumer) = consumer_of(id) else {
            let message = format!("{id} is no id of a volume");
            return Err(invalid("INVALID_VOLUME", message));
        };
        let is_taken = self.state.volume(id).is_some()
            || self.state.volume_of_consumer(consumer).is_some()
            || self.state.consumer(consumer).is_some()
            || self.state.claim(ClaimId(consumer.0)).is_some();
        if is_taken {
            return Err(exists("volume", id));
        }
        let hosts: BTreeSet<&HostName> = volume.replicas.iter().map(|r| &r.host).collect();
        let is_several = volume.kind == Kind::Cache;
        if hosts.len() != volume.replicas.len()
            || hosts.is_empty()
            || hosts.len() > 1 && !is_several
        {
            return Err(invalid(
                "INVALID_VOLUME",
                format!("volume {id} is to be on one host, or as a cache on several distinct ones"),
            ));
        }
        let too_many = |what: String| {
            Err(Refusal::new(
                Code::ResourceExhausted,
                "TOO_MANY_VOLUMES",
                format!("{what} volumes, as many as there may be"),
            ))
        };
        if self.state.volumes.len() >= VOLUMES_MAX {
            return too_many(format!("the cluster has {VOLUMES_MAX}"));
        }
        for host in hosts {
            let volumes = self.state.volumes_of_host(host).take(HOST_VOLUMES_MAX);
            if volumes.count() >= HOST_VOLUMES_MAX {
                return too_many(format!("host {host} has {HOST_VOLUMES_MAX}"));
            }
        }
        Ok(())
    }

    /// Says whether a replica can be where it was chosen to be.
    fn examine_replica(&self, replica: &Replica) -> Result<(), Refusal> {
        let name = &replica.host;
        let host = self.state.host(name);
        let host = &host.ok_or_else(|| Refusal::not_found("host", name))?.host;
        let taken = |why: &str| {
            let message = format!("region {} of host {name}: {why}", replica.region);
            Refusal::new(Code::Aborted, "VOLUME_PLACE_TAKEN", message)
                .with_hint("ask again: another place is chosen then")
                .with("host", name)
                .with("region", &replica.region)
        };
        let why = closed(host);
        if !why.is_empty() {
            return Err(taken(why));
        }
        let usages = self.state.regions_of(host);
        let usage = usages.iter().find(|usage| *usage.name() == replica.region);
        let usage = usage.ok_or_else(|| taken("there is no such region"))?;
        if !usage.is_open() {
            return Err(taken(&usage.region.trouble));
        }
        let is_good = usage.region.mode == replica.mode
            && replica.gross_bytes > 0
            && replica.gross_bytes.is_multiple_of(usage.region.align_bytes)
            && fits(usage, replica);
        if !is_good {
            return Err(taken("what was chosen there is not free any more"));
        }
        Ok(())
    }

    /// Has a volume removed. One that is not there, or is being removed, is no mistake; one that is not
    /// as the caller saw it is left.
    pub(super) fn delete_volume(
        &mut self,
        id: &VolumeId,
        generation: Option<Generation>,
    ) -> Result<Reply, Refusal> {
        let Some(volume) = self.state.volume(id).cloned() else {
            return Ok(Reply::None);
        };
        if volume.is_deleting() {
            return Ok(Reply::Volume(volume));
        }
        if generation.is_some_and(|seen| seen != volume.generation) {
            return Err(changed(&volume));
        }
        if let Some(vm) = self.state.vm_with_volume(id) {
            return Err(self.state.attached(&volume, vm));
        }
        Ok(Reply::Volume(self.write_volume(volume.deleted())))
    }

    /// Takes what an agent says of the volumes of its host. What is void is passed over.
    pub(super) fn record_volumes(
        &mut self,
        name: &HostName,
        incarnation: Incarnation,
        reports: &[Report],
    ) -> Result<Reply, Refusal> {
        let view = self.state.host(name);
        let host = &view.ok_or_else(|| Refusal::not_found("host", name))?.host;
        if host.report.incarnation != incarnation {
            let message = format!("another run of the agent of host {name} has registered");
            return Err(precondition("STALE_INCARNATION", message).with("host", name));
        }
        if reports.len() > REPORTS_MAX {
            let message = format!("at most {REPORTS_MAX} volumes can be reported at once");
            return Err(invalid("INVALID_VOLUME_REPORTS", message));
        }
        let mut is_changed = false;
        for report in reports {
            let Some(volume) = self.state.volume(&report.volume).cloned() else {
                continue;
            };
            match volume.after(name, &report.outcome) {
                After::Same => continue,
                After::Changed(after) => drop(self.write_volume(*after)),
                After::Gone => self.drop_volume(&report.volume),
            }
            is_changed = true;
            if let Outcome::Failed { why } = &report.outcome {
                self.record_failed(name, &volume, why);
            }
        }
        if is_changed {
            self.place_volumes_again(name);
            self.settle_regions(name);
        }
        Ok(Reply::None)
    }

    /// Keeps why a host cannot make a volume, for who waits for it when it is gone.
    fn record_failed(&mut self, name: &HostName, volume: &Volume, why: &str) {
        let failed = Failed {
            volume: volume.id.clone(),
            display_name: volume.display_name.clone(),
            why: cut(why.to_owned()),
            at: self.now(),
        };
        let Some(view) = self.state.host(name) else {
            return;
        };
        let mut host = (*view.host).clone();
        failed.record(&mut host.failed_volumes);
        host.generation = host.generation.next();
        self.put_host(host);
    }

    /// Looks again at where volumes are to lie that were not created yet, after their host reported what
    /// it has. One that has no room any more is to be removed, and says so.
    pub(super) fn place_volumes_again(&mut self, name: &HostName) {
        let Some(view) = self.state.host(name) else {
            return;
        };
        let regions = view.host.report.regions.clone();
        for region in regions {
            if region.mode != DeviceMode::Direct || !region.trouble.is_empty() {
                continue;
            }
            let volumes = self.state.volumes_of_host(name).filter_map(|volume| {
                let replica = volume.on(name)?;
                let is_here = replica.region == region.name && replica.mode == region.mode;
                (is_here && replica.extent.is_some()).then(|| (replica.sequence, volume.clone()))
            });
            let mut volumes: Vec<(u64, Arc<Volume>)> = volumes.collect();
            volumes.sort_by(|a, b| (a.0, &a.1.id).cmp(&(b.0, &b.1.id)));
            let replica = |volume: &Arc<Volume>| volume.on(name).cloned();
            let (fixed, floating): (Vec<Replica>, Vec<Replica>) = volumes
                .iter()
                .filter_map(|(_, volume)| replica(volume))
                .partition(|replica| replica.placed);
            let fixed: Vec<Taken> = fixed.iter().filter_map(Replica::taken).collect();
            let usage = RegionUsage {
                region,
                held: Vec::new(),
            };
            if lie_well(&usage, &fixed, &floating) {
                continue;
            }
            let lengths: Vec<u64> = floating.iter().map(|r| r.gross_bytes).collect();
            let places = repack(&usage, &fixed, &lengths);
            let volumes = volumes.into_iter().map(|(_, volume)| volume);
            let floating = volumes.filter(|v| v.on(name).is_some_and(|r| !r.placed));
            for (volume, extent) in floating.zip(places) {
                self.place_volume(&volume, name, extent);
            }
        }
    }

    /// Writes where a volume is to lie, or that it cannot be made.
    fn place_volume(
        &mut self,
        volume: &Volume,
        host: &HostName,
        extent: Option<berth_domain::volume::Extent>,
    ) {
        if volume
            .on(host)
            .is_some_and(|replica| replica.extent == extent)
        {
            return;
        }
        let mut after = match extent {
            None => volume.deleted(),
            Some(_) => Volume {
                generation: volume.generation.next(),
                ..volume.clone()
            },
        };
        let mut why = None;
        for replica in after.replicas.iter_mut().filter(|r| r.host == *host) {
            replica.extent = extent;
            if extent.is_none() {
                let gross = Shown(replica.gross_bytes);
                let no_piece =
                    format!("region {} has no piece of {gross} any more", replica.region);
                replica.failure.clone_from(&no_piece);
                replica.failures = 1;
                why = Some(no_piece);
            }
        }
        self.write_volume(after);
        if let Some(why) = why.filter(|_| !volume.is_deleting()) {
            self.record_failed(host, volume, &why);
        }
    }

    /// Has the providers of a host's regions say what these have now.
    pub(super) fn settle_regions(&mut self, name: &HostName) {
        let Some(view) = self.state.host(name) else {
            return;
        };
        let host = view.host.clone();
        if !host.report.regions.is_empty() {
            self.create_reported_class(&resource_class());
        }
        let usages = self.state.regions_of(&host);
        for usage in &usages {
            self.make_region_provider(&host, usage.name());
        }
        // What has a provider now may be open now.
        let usages = self.state.regions_of(&host);
        let providers = self.state.region_providers(host.provider);
        let providers: Vec<Arc<ResourceProvider>> = providers.cloned().collect();
        for provider in providers {
            let is_of =
                |usage: &&RegionUsage| provider_of(host.provider, usage.name()) == provider.id;
            let Some(usage) = usages.iter().find(is_of) else {
                self.remove_provider(provider.id);
                continue;
            };
            let inventories = region_inventories(usage);
            if inventories != provider.inventories {
                self.put_provider(ResourceProvider {
                    inventories,
                    generation: provider.generation.next(),
                    updated_at: self.now(),
                    ..(*provider).clone()
                });
            }
        }
    }

    /// Makes the provider of a region, unless it is there or a client's has its id: the region says so
    /// then.
    fn make_region_provider(&mut self, host: &Host, region: &berth_domain::name::RegionName) {
        let id = provider_of(host.provider, region);
        let mut name = provider_name(&host.name, region);
        if self.state.provider_named(&name).is_some() {
            // A client was first.
            name = format!("{name}_{id}");
        }
        if self.state.provider(id).is_some() || self.state.provider_named(&name).is_some() {
            return;
        }
        let created_at = self.now();
        self.put_provider(ResourceProvider {
            id,
            name,
            generation: Generation::default(),
            parent: Some(host.provider),
            root: host.provider,
            host: Some(host.name.clone()),
            inventories: Default::default(),
            traits: BTreeSet::new(),
            aggregates: BTreeSet::new(),
            origin: None,
            created_at,
            updated_at: created_at,
        });
    }

    /// Refuses to forget a host that has volumes. With one that is lost goes what was to be removed
    /// from it.
    pub(super) fn examine_volumes_gone(&self, name: &HostName) -> Result<(), Refusal> {
        let view = self.state.host(name);
        let is_down = view.is_some_and(|view| view.host.liveness == Liveness::Down);
        let mut volumes = self.state.volumes_of_host(name);
        let left = volumes.find(|volume| !(is_down && volume.is_deleting()));
        let Some(left) = left else { return Ok(()) };
        let (what, hint) = match left.is_deleting() {
            false => ("has", "delete its volumes first: berth volume list --host"),
            true => (
                "is still removing",
                "wait until its agent has removed them; if the host is lost, stop its agent and wait \
                 until it counts as down",
            ),
        };
        let message = format!(
            "host {name} {what} volumes, among them {} ({})",
            left.display_name, left.id
        );
        Err(precondition("HOST_IN_USE", message)
            .with_hint(hint)
            .with("host", name)
            .with("volume", &left.id))
    }

    /// Takes the providers of regions away with their host. The volumes that it was to remove stay
    /// without taking anything: should the host come back, it has to remove them.
    pub(super) fn drop_regions(&mut self, host: &Host) {
        let volumes = self.state.volumes_of_host(&host.name);
        let volumes: Vec<Arc<Volume>> = volumes.cloned().collect();
        for volume in volumes {
            let mut taken = taken_by(self.state, &volume);
            for replica in volume.replicas.iter().filter(|r| r.host == host.name) {
                taken.remove(&provider_of(host.provider, &replica.region));
            }
            self.write_volume_taking(volume.left_on(&host.name), taken);
        }
        let providers = self.state.region_providers(host.provider);
        let providers: Vec<_> = providers.map(|provider| provider.id).collect();
        for provider in providers {
            self.remove_provider(provider);
        }
    }

    /// Counts what a host that registers has to remove since the time before it was removed.
    pub(super) fn take_volumes_back(&mut self, name: &HostName) {
        let volumes = self.state.volumes_of_host(name);
        let volumes: Vec<Arc<Volume>> = volumes.cloned().collect();
        if volumes.is_empty() {
            return;
        }
        for volume in volumes {
            self.write_volume(volume.deleted_again(name));
        }
        self.place_volumes_again(name);
        self.settle_regions(name);
    }

    /// Forgets what is left of a volume on hosts that are none of the cluster's any more.
    pub(super) fn forget_volume(&mut self, id: &VolumeId) -> Result<Reply, Refusal> {
        let Some(mut volume) = self.state.volume(id).cloned() else {
            return Ok(Reply::None);
        };
        let gone = volume.replicas.iter().map(|replica| replica.host.clone());
        let gone: Vec<HostName> = gone
            .filter(|host| self.state.host(host).is_none())
            .collect();
        if gone.is_empty() {
            let message = format!(
                "volume {} ({id}) is on hosts of this cluster, which remove it",
                volume.display_name
            );
            return Err(precondition("VOLUME_NOT_LEFT", message)
                .with_hint("only what is left on hosts that were removed can be forgotten")
                .with("volume", id));
        }
        for host in &gone {
            match volume.without(host) {
                After::Changed(rest) => volume = self.write_volume(*rest),
                After::Same => {}
                After::Gone => {
                    self.drop_volume(id);
                    return Ok(Reply::None);
                }
            }
        }
        Ok(Reply::Volume(volume))
    }

    fn drop_volume(&mut self, id: &VolumeId) {
        if let Some(consumer) = consumer_of(id).filter(|c| self.state.consumer(*c).is_some()) {
            self.remove_consumer(consumer);
        }
        self.remove_volume(id);
    }

    /// Writes a volume and what it takes.
    fn write_volume(&mut self, volume: Volume) -> Arc<Volume> {
        let taken = taken_by(self.state, &volume);
        self.write_volume_taking(volume, taken)
    }

    fn write_volume_taking(
        &mut self,
        volume: Volume,
        allocations: BTreeMap<ProviderId, Resources>,
    ) -> Arc<Volume> {
        let volume = self.put_volume(volume);
        let Some(id) = consumer_of(&volume.id) else {
            return volume;
        };
        let old = self.state.consumer(id).cloned();
        if old.as_ref().map(|old| &old.allocations) == Some(&allocations) {
            return volume;
        }
        if allocations.is_empty() {
            if old.is_some() {
                self.remove_consumer(id);
            }
            return volume;
        }
        for provider in allocations.keys() {
            self.count_write(*provider);
        }
        let now = self.now();
        self.put_consumer(Consumer {
            id,
            generation: old
                .as_ref()
                .map(|c| c.generation)
                .unwrap_or_default()
                .next(),
            project: PROJECT.to_owned(),
            user: volume.id.to_string(),
            consumer_type: ConsumerType::new(CONSUMER_TYPE).ok(),
            origin: None,
            created_at: old.map_or(now, |c| c.created_at),
            updated_at: now,
            allocations,
        });
        volume
    }
}

/// Refuses to remove a volume that is not as it was seen.
fn changed(volume: &Volume) -> Refusal {
    let (id, name) = (&volume.id, &volume.display_name);
    let message = format!("volume {name} ({id}) has changed since it was looked at");
    Refusal::new(Code::Aborted, "VOLUME_CHANGED", message)
        .with_hint("look at it again, and delete it if it still is to go")
        .with("volume", id)
        .with("generation", volume.generation.0)
}

/// Returns whether what was chosen is free, and is where the kernel would put it.
fn fits(usage: &RegionUsage, replica: &Replica) -> bool {
    let free = usage.free();
    match replica.mode {
        DeviceMode::Lvm => {
            let has_free_extent = free
                .iter()
                .any(|hole| hole.length_bytes >= replica.gross_bytes);
            replica.extent.is_none() && has_free_extent
        }
        DeviceMode::Direct => {
            let first = berth_domain::volume::first_fit(&free, replica.gross_bytes);
            first.is_some() && first == replica.extent
        }
    }
}

/// Returns whether what is not made yet can lie where it is to.
fn lie_well(usage: &RegionUsage, fixed: &[Taken], floating: &[Replica]) -> bool {
    let mut taken = fixed.to_vec();
    floating.iter().all(|replica| {
        let Some(extent) = replica.extent else {
            return true;
        };
        let free = usage.region.free(&taken);
        taken.extend(replica.taken());
        free.iter().any(|hole| {
            hole.offset_bytes <= extent.offset_bytes && extent.end_bytes() <= hole.end_bytes()
        })
    })
}
