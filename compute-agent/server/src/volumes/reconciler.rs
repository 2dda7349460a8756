//! Reconciles the volumes of this host with the leader's records.
//!
//! Invariant: volumes of one region are made one after the other, in the order of their claims: the
//! leader has predicted where each comes to lie. Regions do not wait for each other, and no other
//! volume waits for an erasure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::volume::{DeviceMode, Region};
use berth_pmem::volume::{Error as ManagerError, Order, Phase, VolumeStore};
use berth_proto::agent::v1::SyncVolumeResponse;
use berth_proto::convert::field;
use berth_proto::status::to_status;
use berth_proto::volume::v1::volume_report::Outcome;
use berth_proto::volume::v1::{
    self as wire, Replica, ReplicaPhase, Volume, VolumeCreated, VolumeFailed, VolumeKind,
};
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::leader::Leader;
use super::owners;
use super::removal::Removals;
use super::unknown;

/// How often it looks by itself.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Retry delay where the leader did not reply.
const RETRY: Duration = Duration::from_secs(1);

/// How many volumes' creation errors are remembered, for those that wait for them.
const FAILURES_MAX: usize = 1024;
/// Of how many things it is remembered that they were warned of.
const WARNED_MAX: usize = 1024;

/// What a record keeps of a volume beside its device.
pub(super) mod word {
    /// What its creator calls it.
    pub(crate) const NAME: &str = "name";
    /// How long it lives.
    pub(crate) const KIND: &str = "kind";
    /// The kind of those that are for one pod.
    pub(crate) const EPHEMERAL: &str = "ephemeral";
    /// Whether its file system is in an image file.
    pub(crate) const KATA: &str = "kata";
}

/// Takes care of the volumes of this host. Clones are the same one.
#[derive(Clone)]
pub(super) struct VolumeReconciler(Arc<Shared>);

struct Shared {
    leader: Leader,
    store: Arc<VolumeStore>,
    removals: Removals,
    /// Held while volumes of a region are made, or their removal begins.
    turns: StdMutex<BTreeMap<RegionName, Arc<Mutex<()>>>>,
    /// Why volumes could not be made.
    failures: StdMutex<BTreeMap<VolumeId, Refusal>>,
    regions: watch::Sender<Vec<Region>>,
    /// Volumes that are here and that the leader does not know, as of its last reply; none: no reply
    /// yet.
    unknown: StdMutex<Option<BTreeSet<VolumeId>>>,
    /// What was warned of: once is enough.
    warned: StdMutex<BTreeSet<String>>,
    /// Notified when there is work: volumes are to be made, or the last user of a volume that is to be
    /// removed is gone.
    wake: Arc<Notify>,
}

impl VolumeReconciler {
    pub(super) fn new(
        leader: Leader,
        store: Arc<VolumeStore>,
        regions: watch::Sender<Vec<Region>>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let removals = Removals::new(leader.clone(), store.clone(), stop);
        Self(Arc::new(Shared {
            leader,
            store,
            removals,
            turns: StdMutex::default(),
            failures: StdMutex::default(),
            regions,
            unknown: StdMutex::default(),
            warned: StdMutex::default(),
            wake: Arc::default(),
        }))
    }

    /// A volume has one user less: its removal may have waited for that.
    pub(super) fn released(&self, id: &VolumeId) {
        if self.0.removals.waits(id) {
            self.0.wake.notify_one();
        }
    }

    /// Returns the trigger of a reconciliation.
    pub(super) fn trigger(&self) -> Arc<Notify> {
        self.0.wake.clone()
    }

    /// Looks again and again until `stopping`.
    pub(super) async fn run(self, stopping: CancellationToken) {
        loop {
            let wait = match self.reconcile().await {
                Ok(()) => LOOK_EVERY,
                Err(status) => {
                    let why = status.message();
                    tracing::warn!(why, "reconciling volumes with the scheduler failed");
                    RETRY
                }
            };
            tokio::select! {
                () = stopping.cancelled() => return,
                () = self.0.wake.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Waits for the removals that are under way, after they were cancelled.
    pub(super) async fn end(&self) {
        self.0.removals.end().await;
    }

    /// Looks at everything.
    async fn reconcile(&self) -> Result<(), Status> {
        // The leader may know of what is made from now on, though its reply does not list it.
        let before = self.0.store.list();
        let volumes = self.0.leader.list().await?;
        let mut making: BTreeMap<RegionName, ()> = BTreeMap::new();
        let known = self.ids(&volumes);
        self.find_unknown(before.into_iter().map(|volume| volume.record.id), &known);
        self.rediscover_regions().await;
        self.cache_owners(&volumes).await;
        for volume in &volumes {
            let Some((id, region)) = self.readable(volume) else {
                continue;
            };
            let replica = self.0.leader.replica(volume);
            match replica.map(Replica::phase) {
                Some(ReplicaPhase::Creating) => {
                    making.insert(region, ());
                }
                Some(ReplicaPhase::Deleting) => {
                    let mode = replica.and_then(mode);
                    self.begin_removal(&id, region, mode).await;
                }
                Some(ReplicaPhase::Ready) if self.0.store.get(&id).is_none() => {
                    tracing::error!(volume = %id, "volume is missing on this host");
                }
                Some(ReplicaPhase::Ready | ReplicaPhase::Unspecified) | None => {}
            }
        }
        let mut regions = JoinSet::new();
        for region in making.into_keys() {
            let reconciler = self.clone();
            regions.spawn(async move { reconciler.make_all(&region).await });
        }
        let mut report_error = None;
        while let Some(made) = regions.join_next().await {
            report_error = report_error.or(made.ok().and_then(Result::err));
        }
        self.finish_unknown(&known).await;
        report_error.map_or(Ok(()), Err)
    }

    /// Writes down which VMs the volumes belong to, before anything is removed.
    async fn cache_owners(&self, volumes: &[Volume]) {
        let owners_by_id = volumes.iter();
        let owners_by_id =
            owners_by_id.filter_map(|v| Some((self.readable(v)?.0, owners::owner_name(v))));
        let (owners_by_id, store) = (owners_by_id.collect(), self.0.store.clone());
        let cached = tokio::task::spawn_blocking(move || owners::cache_all(&store, owners_by_id));
        if cached.await.is_err() {
            tracing::error!("caching the owners of volumes failed");
        }
    }

    /// Continues removals that the leader has no record of any more. Volumes that it does not know
    /// are left alone: they may hold data.
    async fn finish_unknown(&self, known: &BTreeSet<VolumeId>) {
        for id in self.0.store.unfinished() {
            if !known.contains(&id)
                && let Some(volume) = self.0.store.get(&id)
            {
                let record = volume.record;
                self.begin_removal(&id, record.region, Some(record.mode))
                    .await;
            }
        }
    }

    /// Returns which volumes these are, including those of which only the id can be read.
    fn ids(&self, volumes: &[Volume]) -> BTreeSet<VolumeId> {
        let read = volumes.iter().filter_map(|volume| {
            let id = field::name(&volume.name, "volume.name");
            id.inspect_err(|error| self.warn_once(&volume.name, &error.to_string()))
                .ok()
        });
        read.collect()
    }

    /// Determines which volumes are here that the leader does not know. One that was removed during
    /// the query is none of them.
    fn find_unknown(&self, before: impl Iterator<Item = VolumeId>, known: &BTreeSet<VolumeId>) {
        let mut unknown = BTreeSet::new();
        for id in before.filter(|id| !known.contains(id)) {
            let Some(volume) = self.0.store.get(&id) else {
                continue;
            };
            if volume.record.phase == Phase::Ready {
                let why = "the scheduler does not know it; it is left alone, and its space is not \
                           reported as free";
                self.warn_once(id.as_str(), why);
            }
            unknown.insert(id);
        }
        let kept = self.0.unknown.lock();
        *kept.unwrap_or_else(PoisonError::into_inner) = Some(unknown);
    }

    /// Warns of a volume, once.
    fn warn_once(&self, volume: &str, why: &str) {
        let warned = self.0.warned.lock();
        let mut warned = warned.unwrap_or_else(PoisonError::into_inner);
        if warned.len() >= WARNED_MAX {
            warned.clear();
        }
        if warned.insert(format!("{volume}: {why}")) {
            tracing::warn!(volume, why, "volume is inconsistent");
        }
    }

    /// Rediscovers the regions, and notifies the registration of the host where they have changed.
    async fn rediscover_regions(&self) {
        let store = self.0.store.clone();
        let unknown = self.0.unknown.lock();
        let unknown = unknown.unwrap_or_else(PoisonError::into_inner).clone();
        let discover = move || {
            let mut regions = store.regions()?;
            match &unknown {
                Some(unknown) => unknown::take_out(&store, unknown, &mut regions),
                None => unknown::close(&store.list(), &mut regions),
            }
            Ok::<_, ManagerError>(regions)
        };
        let discovered = tokio::task::spawn_blocking(discover).await;
        match discovered {
            Ok(Ok(regions)) => {
                self.0.regions.send_if_modified(|before| {
                    let differs = *before != regions;
                    *before = regions;
                    differs
                });
            }
            Ok(Err(error)) => tracing::warn!(%error, "regions cannot be listed"),
            Err(_) => tracing::error!("listing regions failed"),
        }
    }

    /// Returns which volume it is, and in which region its part of this host is to be.
    fn here(&self, volume: &Volume) -> Result<(VolumeId, RegionName), Status> {
        let id: VolumeId = field::name(&volume.name, "volume.name")?;
        let replica = self.0.leader.replica(volume).ok_or_else(|| not_here(&id))?;
        let region = RegionName::new(&replica.region)
            .map_err(|error| Status::internal(format!("the region of {id}: {error}")))?;
        Ok((id, region))
    }

    /// The same; one that cannot be read here is logged, and does not hold up the others.
    fn readable(&self, volume: &Volume) -> Option<(VolumeId, RegionName)> {
        let read = self.here(volume);
        read.inspect_err(|status| self.warn_once(&volume.name, status.message()))
            .ok()
    }

    fn turn(&self, region: &RegionName) -> Arc<Mutex<()>> {
        let mut turns = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(region.clone()).or_default().clone()
    }

    /// Brings a volume into its recorded state now, and returns its state then.
    pub(super) async fn sync(&self, id: &VolumeId) -> Result<SyncVolumeResponse, Status> {
        let volume = self.0.leader.get(id).await?;
        let volume = volume.ok_or_else(|| not_here(id))?;
        let (_, region) = self.here(&volume)?;
        let replica = self.0.leader.replica(&volume);
        match replica.map(Replica::phase) {
            Some(ReplicaPhase::Creating) => self.make_one(id, &region).await?,
            Some(ReplicaPhase::Deleting) => {
                self.begin_removal(id, region, replica.and_then(mode)).await;
            }
            Some(ReplicaPhase::Ready | ReplicaPhase::Unspecified) | None => {}
        }
        let store = self.0.store.clone();
        let volume = id.clone();
        let users = tokio::task::spawn_blocking(move || store.users(&volume)).await;
        let in_use = match users {
            Ok(Ok(users)) => !users.is_empty(),
            // Users that cannot be listed may exist.
            Ok(Err(error)) => {
                tracing::warn!(volume = %id, %error, "users of a volume cannot be listed");
                true
            }
            Err(_) => return Err(Status::internal("reading a volume failed")),
        };
        Ok(SyncVolumeResponse {
            volume: self.0.leader.get(id).await?,
            in_use,
        })
    }

    async fn make_one(&self, id: &VolumeId, region: &RegionName) -> Result<(), Status> {
        let turn = self.turn(region);
        let _turn = turn.lock().await;
        // It may have been made meanwhile, with all others that waited.
        if self.is_creating(id).await? {
            self.make_waiting(region).await?;
        }
        let mut failures = self.failures();
        match failures.remove(id) {
            Some(why) => Err(to_status(&why)),
            None => Ok(()),
        }
    }

    async fn is_creating(&self, id: &VolumeId) -> Result<bool, Status> {
        let volume = self.0.leader.get(id).await?;
        let replica = volume
            .as_ref()
            .and_then(|volume| self.0.leader.replica(volume));
        Ok(replica.is_some_and(|replica| replica.phase() == ReplicaPhase::Creating))
    }

    async fn make_all(&self, region: &RegionName) -> Result<(), Status> {
        let turn = self.turn(region);
        let _turn = turn.lock().await;
        self.make_waiting(region).await
    }

    /// Makes everything of a region that waits to be made, in order; its turn is held.
    async fn make_waiting(&self, region: &RegionName) -> Result<(), Status> {
        let volumes = self.0.leader.list().await?;
        let mut waiting: Vec<(u64, VolumeId, Order)> = Vec::new();
        for volume in &volumes {
            let Some((id, there)) = self.readable(volume) else {
                continue;
            };
            let Some(replica) = self.0.leader.replica(volume) else {
                continue;
            };
            if there == *region && replica.phase() == ReplicaPhase::Creating {
                match order(volume, replica, id.clone(), there) {
                    Ok(order) => waiting.push((replica.sequence, id, order)),
                    Err(status) => {
                        self.warn_once(&volume.name, status.message());
                        self.remember(&id, delayed(status.message()));
                    }
                }
            }
        }
        waiting.sort_by_key(|(sequence, ..)| *sequence);
        for (_, id, order) in waiting {
            let outcome = self.make(order).await?;
            self.0.leader.report(&id, outcome).await?;
        }
        Ok(())
    }

    /// Makes a volume; returns its outcome for the report.
    async fn make(&self, order: Order) -> Result<Outcome, Status> {
        let id = order.id.clone();
        let store = self.0.store.clone();
        let made = tokio::task::spawn_blocking(move || {
            store
                .create(&order)
                .and_then(|volume| volume.usable().cloned())
        });
        match made
            .await
            .map_err(|_| Status::internal("creating a volume failed"))?
        {
            Ok(device) => {
                tracing::info!(volume = %id, region = %device.region, "made");
                self.failures().remove(&id);
                Ok(Outcome::Created(VolumeCreated {
                    size_bytes: device.size_bytes,
                    extent: device.extent.map(|extent| wire::Extent {
                        offset_bytes: extent.offset_bytes,
                        length_bytes: extent.length_bytes,
                    }),
                }))
            }
            Err(error) => {
                tracing::warn!(volume = %id, %error, "volume cannot be created");
                let why = error.to_string();
                // The real state has to be known before another choice is made.
                self.rediscover_regions().await;
                // What is left of it is removed first: its space cannot be assigned yet.
                let (refusal, outcome) = match self.0.store.get(&id) {
                    Some(_) => (delayed(&why), Outcome::Delayed(why)),
                    None => (refusal(&error), Outcome::Failed(VolumeFailed { why })),
                };
                self.remember(&id, refusal);
                Ok(outcome)
            }
        }
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, BTreeMap<VolumeId, Refusal>> {
        let failures = self.0.failures.lock();
        failures.unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, id: &VolumeId, why: Refusal) {
        let mut failures = self.failures();
        if failures.len() >= FAILURES_MAX {
            failures.pop_first();
        }
        failures.insert(id.clone(), why);
    }

    /// Begins to remove a volume, beside all other work.
    async fn begin_removal(&self, id: &VolumeId, region: RegionName, mode: Option<DeviceMode>) {
        let turn = self.turn(&region);
        let _turn = turn.lock().await;
        self.0.removals.begin(id, region, mode).await;
    }
}

fn not_here(id: &VolumeId) -> Status {
    let message = format!("the scheduler knows no volume {id} for this host");
    to_status(&Refusal::new(Code::NotFound, "VOLUME_NOT_FOUND", message))
}

/// Returns how a volume is made; none: that is not known here.
fn mode(replica: &Replica) -> Option<DeviceMode> {
    match replica.mode() {
        wire::DeviceMode::Lvm => Some(DeviceMode::Lvm),
        wire::DeviceMode::Direct => Some(DeviceMode::Direct),
        wire::DeviceMode::Unspecified => None,
    }
}

/// Returns what is to be made.
fn order(
    volume: &Volume,
    replica: &Replica,
    id: VolumeId,
    region: RegionName,
) -> Result<Order, Status> {
    let mode = mode(replica)
        .ok_or_else(|| Status::internal(format!("the mode of {id} is unknown to this agent")))?;
    let kind = match volume.kind() {
        VolumeKind::Ephemeral => word::EPHEMERAL,
        VolumeKind::Cache => "cache",
        VolumeKind::Persistent | VolumeKind::Unspecified => "persistent",
    };
    let parameters = volume.parameters.unwrap_or_default();
    let words = [
        (word::NAME, volume.display_name.clone()),
        (word::KIND, kind.to_owned()),
        (word::KATA, parameters.kata_containers.to_string()),
    ];
    Ok(Order {
        id,
        region,
        mode,
        gross_bytes: replica.gross_bytes,
        erase_after: parameters.erase_after.unwrap_or(true),
        parameters: words.map(|(key, value)| (key.to_owned(), value)).into(),
    })
}

/// Reports that a volume is not made yet, and may be.
fn delayed(why: &str) -> Refusal {
    Refusal::new(Code::Aborted, "VOLUME_DELAYED", why.to_owned())
}

/// Reports that a volume cannot be made here, and that nothing is left of it.
fn refusal(error: &ManagerError) -> Refusal {
    let is_full = matches!(error, ManagerError::NoSpace { .. });
    let (code, reason) = match is_full {
        true => (Code::ResourceExhausted, "NO_SPACE"),
        false => (Code::Internal, "VOLUME_NOT_MADE"),
    };
    Refusal::new(code, reason, error.to_string())
}
