//! Removes and erases volumes, beside all other work.
//!
//! Invariant: while a volume is erased, no other work waits for it: no lock is held and no other call
//! is blocked.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::DeviceMode;
use berth_pmem::volume::{Error as ManagerError, VolumeStore, Watch};
use berth_proto::volume::v1::VolumeDeleted;
use berth_proto::volume::v1::volume_report::Outcome;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinSet;

use super::leader::Leader;

/// How many are erased at once: more would only share the memory's bandwidth with its users.
const AT_ONCE: usize = 2;
/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The removals that are under way. Clones are the same.
#[derive(Clone)]
pub(super) struct Removals(Arc<Shared>);

struct Shared {
    leader: Leader,
    store: Arc<VolumeStore>,
    stop: Arc<AtomicBool>,
    underway: StdMutex<BTreeSet<VolumeId>>,
    /// Those that wait for the users of their volume.
    waiting: StdMutex<BTreeSet<VolumeId>>,
    tasks: Mutex<JoinSet<()>>,
    permits: Semaphore,
}

impl Removals {
    pub(super) fn new(leader: Leader, store: Arc<VolumeStore>, stop: Arc<AtomicBool>) -> Self {
        Self(Arc::new(Shared {
            leader,
            store,
            stop,
            underway: StdMutex::default(),
            waiting: StdMutex::default(),
            tasks: Mutex::default(),
            permits: Semaphore::new(AT_ONCE),
        }))
    }

    fn underway(&self) -> MutexGuard<'_, BTreeSet<VolumeId>> {
        let underway = self.0.underway.lock();
        underway.unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<VolumeId>> {
        let waiting = self.0.waiting.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a removal waits for the users of the volume.
    pub(super) fn waits(&self, id: &VolumeId) -> bool {
        self.waiting().contains(id)
    }

    /// Begins to remove a volume; returns once it cannot be assigned any more, or it has a user. Without
    /// a record of it, its mode decides where to look for it.
    pub(super) async fn begin(&self, id: &VolumeId, region: RegionName, mode: Option<DeviceMode>) {
        if self.underway().contains(id) {
            return;
        }
        if self.0.store.get(id).is_none()
            && let Err(why) = self.examine_gone(id, region, mode).await
        {
            tracing::warn!(volume = %id, why, "a volume without record cannot be removed");
            self.report(id, Outcome::Delayed(why)).await;
            return;
        }
        let (store, volume) = (self.0.store.clone(), id.clone());
        let begun = tokio::task::spawn_blocking(move || store.begin_delete(&volume)).await;
        match begun {
            Ok(Ok(())) => {
                self.waiting().remove(id);
                self.go_on(id.clone()).await;
            }
            Ok(Err(error)) => {
                if matches!(error, ManagerError::Busy { .. }) {
                    self.waiting().insert(id.clone());
                }
                self.delayed(id, &error).await;
            }
            Err(_) => tracing::error!(volume = %id, "removing a volume failed"),
        }
    }

    /// Checks that nothing is left of a volume without a record.
    async fn examine_gone(
        &self,
        id: &VolumeId,
        region: RegionName,
        mode: Option<DeviceMode>,
    ) -> Result<(), String> {
        let mode = mode.ok_or("its mode is unknown to this agent")?;
        let (store, volume) = (self.0.store.clone(), id.clone());
        let look = move || store.is_absent(&volume, &region, mode);
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err("its device exists without a record; \
                                  restart the agent, so that it is recorded"
                .to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("reading it failed; see the log of the agent".to_owned()),
        }
    }

    async fn go_on(&self, id: VolumeId) {
        if !self.underway().insert(id.clone()) {
            return;
        }
        let removals = self.clone();
        let mut tasks = self.0.tasks.lock().await;
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            removals.remove(&id).await;
            removals.underway().remove(&id);
        });
    }

    async fn remove(&self, id: &VolumeId) {
        let Ok(_permit) = self.0.permits.acquire().await else {
            return;
        };
        let (erased, mut far) = watch::channel(0_u64);
        let (store, stop, volume) = (self.0.store.clone(), self.0.stop.clone(), id.clone());
        let mut removing = tokio::task::spawn_blocking(move || {
            let watch = Watch {
                stop: &stop,
                progress: &|bytes| {
                    erased.send_replace(bytes);
                },
            };
            store.delete(&volume, &watch)
        });
        let removed = loop {
            tokio::select! {
                removed = &mut removing => break removed,
                () = tokio::time::sleep(REPORT_EVERY) => {}
            }
            if far.has_changed().unwrap_or(false) {
                let bytes = *far.borrow_and_update();
                self.report(id, Outcome::ErasedBytes(bytes)).await;
            }
        };
        match removed {
            Ok(Ok(())) => {
                tracing::info!(volume = %id, "volume removed");
                // Its space is not usable before that is acknowledged.
                while !self.report(id, Outcome::Deleted(VolumeDeleted {})).await && !self.stops() {
                    tokio::time::sleep(REPORT_EVERY).await;
                }
            }
            Ok(Err(ManagerError::Stopped { .. })) => {}
            Ok(Err(error)) => self.delayed(id, &error).await,
            Err(_) => tracing::error!(volume = %id, "removing a volume failed"),
        }
    }

    async fn delayed(&self, id: &VolumeId, error: &ManagerError) {
        tracing::info!(volume = %id, %error, "volume cannot be removed yet");
        self.report(id, Outcome::Delayed(error.to_string())).await;
    }

    /// Reports the state of a volume; returns whether that was acknowledged.
    async fn report(&self, id: &VolumeId, outcome: Outcome) -> bool {
        let acknowledged = self.0.leader.report(id, outcome).await;
        if let Err(status) = &acknowledged {
            let why = status.message();
            tracing::warn!(volume = %id, why, "volume report not acknowledged");
        }
        acknowledged.is_ok()
    }

    fn stops(&self) -> bool {
        self.0.stop.load(Ordering::Acquire)
    }

    /// Waits for those that are under way.
    pub(super) async fn end(&self) {
        let mut tasks = self.0.tasks.lock().await;
        while tasks.join_next().await.is_some() {}
    }
}
