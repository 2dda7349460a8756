//! Volumes that are removed and erased, beside everything else.
//!
//! Invariant: while a volume is erased, nothing else waits for it: no lock is held and no other call
//! is kept.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::DeviceMode;
use berth_pmem::volume::{Error as ManagerError, Volumes, Watch};
use berth_proto::volume::v1::VolumeDeleted;
use berth_proto::volume::v1::volume_report::Outcome;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinSet;

use super::leader::Leader;

/// How many are erased at once: more would only share the memory's bandwidth with who uses it.
const AT_ONCE: usize = 2;
/// How often it is told how far one is.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The removals that are under way. Clones are the same.
#[derive(Clone)]
pub(super) struct Removals(Arc<Shared>);

struct Shared {
    leader: Leader,
    keeper: Arc<Volumes>,
    stop: Arc<AtomicBool>,
    underway: StdMutex<BTreeSet<VolumeId>>,
    /// Those that wait for whoever uses them.
    waiting: StdMutex<BTreeSet<VolumeId>>,
    tasks: Mutex<JoinSet<()>>,
    room: Semaphore,
}

impl Removals {
    pub(super) fn new(leader: Leader, keeper: Arc<Volumes>, stop: Arc<AtomicBool>) -> Self {
        Self(Arc::new(Shared {
            leader,
            keeper,
            stop,
            underway: StdMutex::default(),
            waiting: StdMutex::default(),
            tasks: Mutex::default(),
            room: Semaphore::new(AT_ONCE),
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

    /// Returns whether a removal waits for whoever uses the volume.
    pub(super) fn waits(&self, id: &VolumeId) -> bool {
        self.waiting().contains(id)
    }

    /// Begins to remove a volume; returns once nobody is given it any more, or somebody uses it. Where
    /// nothing is written down of it, its mode says whom to ask whether it is there.
    pub(super) async fn begin(&self, id: &VolumeId, region: RegionName, mode: Option<DeviceMode>) {
        if self.underway().contains(id) {
            return;
        }
        if self.0.keeper.get(id).is_none()
            && let Err(why) = self.examine_gone(id, region, mode).await
        {
            tracing::warn!(volume = %id, why, "a volume without record cannot be removed");
            self.tell(id, Outcome::Delayed(why)).await;
            return;
        }
        let (keeper, asked) = (self.0.keeper.clone(), id.clone());
        let begun = tokio::task::spawn_blocking(move || keeper.begin_delete(&asked)).await;
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

    /// Holds that nothing is left of a volume of which nothing is written down.
    async fn examine_gone(
        &self,
        id: &VolumeId,
        region: RegionName,
        mode: Option<DeviceMode>,
    ) -> Result<(), String> {
        let mode = mode.ok_or("its mode is not known here")?;
        let (keeper, asked) = (self.0.keeper.clone(), id.clone());
        let look = move || keeper.is_gone(&asked, &region, mode);
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err("its device is there, and nothing is written down of it; \
                                  start the agent anew, so that it is written down"
                .to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("looking at it failed; see the log of the agent".to_owned()),
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
        let Ok(_room) = self.0.room.acquire().await else {
            return;
        };
        let (erased, mut far) = watch::channel(0_u64);
        let (keeper, stop, asked) = (self.0.keeper.clone(), self.0.stop.clone(), id.clone());
        let mut removing = tokio::task::spawn_blocking(move || {
            let watch = Watch {
                stop: &stop,
                progress: &|bytes| {
                    erased.send_replace(bytes);
                },
            };
            keeper.delete(&asked, &watch)
        });
        let removed = loop {
            tokio::select! {
                removed = &mut removing => break removed,
                () = tokio::time::sleep(TELL_EVERY) => {}
            }
            if far.has_changed().unwrap_or(false) {
                let bytes = *far.borrow_and_update();
                self.tell(id, Outcome::ErasedBytes(bytes)).await;
            }
        };
        match removed {
            Ok(Ok(())) => {
                tracing::info!(volume = %id, "removed");
                // Its space is of no use to anybody before that is heard.
                while !self.tell(id, Outcome::Deleted(VolumeDeleted {})).await && !self.stops() {
                    tokio::time::sleep(TELL_EVERY).await;
                }
            }
            Ok(Err(ManagerError::Stopped { .. })) => {}
            Ok(Err(error)) => self.delayed(id, &error).await,
            Err(_) => tracing::error!(volume = %id, "removing a volume failed"),
        }
    }

    async fn delayed(&self, id: &VolumeId, error: &ManagerError) {
        tracing::info!(volume = %id, %error, "a volume cannot be removed yet");
        self.tell(id, Outcome::Delayed(error.to_string())).await;
    }

    /// Tells how it is with a volume; returns whether that was heard.
    async fn tell(&self, id: &VolumeId, outcome: Outcome) -> bool {
        let told = self.0.leader.report(id, outcome).await;
        if let Err(status) = &told {
            let why = status.message();
            tracing::warn!(volume = %id, why, "the scheduler did not hear of a volume");
        }
        told.is_ok()
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
