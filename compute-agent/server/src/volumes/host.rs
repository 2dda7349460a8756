//! What the CSI services need of this host: its volumes, what is mounted, and claims for pods.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use berth_csi::{Host, Local, Mount, Space};
use berth_domain::name::VolumeId;
use berth_domain::refusal::{Code, Refusal};
use berth_pmem::volume::manager::volume_id;
use berth_pmem::volume::{Error as ManagerError, Phase, Volume, VolumeStore};
use berth_proto::convert::csi::Parameters;
use berth_proto::convert::field;
use berth_proto::status::from_status;
use berth_proto::volume::v1 as wire;
use tokio::runtime::Handle;
use tonic::Status;

use super::guests::guest_of;
use super::leader::Leader;
use super::mounts::{Error as MountError, Mounts};
use super::owners;
use super::reconciler::{VolumeReconciler, word};

/// How long to wait for the scheduler's reply about the owner of a volume. After that the local record
/// counts: a restarted node is to get its pods also while no scheduler is reachable.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) struct VolumeHost {
    leader: Leader,
    reconciler: VolumeReconciler,
    store: Arc<VolumeStore>,
    mounts: Arc<dyn Mounts>,
    /// For calls out of what blocks.
    runtime: Handle,
}

impl VolumeHost {
    /// Returns those of this host; within a runtime.
    pub(super) fn new(
        leader: Leader,
        reconciler: VolumeReconciler,
        store: Arc<VolumeStore>,
        mounts: Arc<dyn Mounts>,
    ) -> Self {
        Self {
            leader,
            reconciler,
            store,
            mounts,
            runtime: Handle::current(),
        }
    }

    /// Queries the scheduler for the VM that owns a volume; on failure the local record counts. Blocks.
    fn query_owner(&self, id: &VolumeId) -> Option<String> {
        let query = async { tokio::time::timeout(QUERY_TIMEOUT, self.leader.get(id)).await };
        let why = match self.runtime.block_on(query) {
            Ok(Ok(volume)) => return volume.as_ref().map(owners::owner_name),
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => "it does not reply".to_owned(),
        };
        tracing::warn!(volume = %id, why, "owner of a volume unknown, using the cached one");
        None
    }
}

/// Finds the record of a volume, by its id or, of one for a pod, by what the kubelet calls it.
fn record(store: &VolumeStore, id: &str) -> Option<Volume> {
    if let Some(id) = volume_id(id) {
        return store.get(&id);
    }
    let volumes = store.list().into_iter();
    // Another one of that name may be on its way out.
    let ready = |volume: &Volume| volume.record.phase == Phase::Ready;
    let mut named = volumes.filter(|volume| is_ephemeral(volume) && ready(volume));
    named.find(|volume| {
        volume
            .record
            .parameters
            .get(word::NAME)
            .is_some_and(|name| name == id)
    })
}

/// Finds a volume that can be used, and looks at its device.
fn find(store: &VolumeStore, id: &str) -> Result<Option<Local>, Refusal> {
    let Some(volume) = record(store, id) else {
        return Ok(None);
    };
    if volume.record.phase != Phase::Ready {
        return Ok(None);
    }
    let looked = store.look(&volume.record.id);
    looked
        .and_then(|volume| local(&volume))
        .map(Some)
        .map_err(|error| refusal(&error))
}

fn is_ephemeral(volume: &Volume) -> bool {
    let kind = volume.record.parameters.get(word::KIND);
    kind.is_some_and(|kind| kind == word::EPHEMERAL)
}

/// Returns a volume as the CSI services see it.
fn local(volume: &Volume) -> Result<Local, ManagerError> {
    volume.usable()?;
    Ok(recorded(volume))
}

/// Returns a volume by what is written down of it, and its device as it was last seen: enough to take
/// away what shows it.
pub(super) fn recorded(volume: &Volume) -> Local {
    let (record, device) = (&volume.record, volume.device.as_ref());
    let kata = record.parameters.get(word::KATA);
    Local {
        id: record.id.clone(),
        device: device.map(|device| device.path.clone()).unwrap_or_default(),
        size_bytes: device.map_or(0, |device| device.size_bytes),
        is_kata: kata.is_some_and(|kata| kata == "true"),
        is_ephemeral: is_ephemeral(volume),
        is_raw: record.is_raw,
        targets: record.targets.clone(),
    }
}

#[tonic::async_trait]
impl Host for VolumeHost {
    fn find(&self, id: &str) -> Result<Option<Local>, Refusal> {
        find(&self.store, id)
    }

    fn known(&self, id: &str) -> Result<Option<Local>, Refusal> {
        let ready = record(&self.store, id);
        let ready = ready.filter(|volume| volume.record.phase == Phase::Ready);
        Ok(ready.as_ref().map(recorded))
    }

    fn owner(&self, path: &str) -> Result<Option<VolumeId>, Refusal> {
        let mut volumes = self.store.list().into_iter();
        let owner = volumes.find(|volume| volume.record.targets.contains_key(path));
        Ok(owner.map(|volume| volume.record.id))
    }

    fn shows(&self, volume: &Local, at: &Path) -> Result<bool, Refusal> {
        self.mounts.shows(volume, at).map_err(|e| mount_refusal(&e))
    }

    fn note(&self, id: &VolumeId, path: &str, how: Option<&str>) -> Result<(), Refusal> {
        let recorded = how.and_then(|_| self.query_owner(id));
        let mut by = None;
        let recorded_use = self.store.set_use(id, |targets, owner| {
            if let Some(recorded) = recorded {
                owners::update_cached(targets.keys(), owner, recorded);
            }
            by = user(guest_of(targets.keys()), owner);
            match how {
                Some(_) if by.is_some() => None,
                Some(how) => targets.insert(path.to_owned(), how.to_owned()),
                None => targets.remove(path),
            };
        });
        recorded_use.map_err(|error| refusal(&error))?;
        match (how, by) {
            (None, _) => {
                self.reconciler.released(id);
                Ok(())
            }
            (Some(_), None) => Ok(()),
            (Some(_), Some(by)) => {
                let (id, by) = (id.clone(), vec![by]);
                Err(refusal(&ManagerError::Busy { id, by }))
            }
        }
    }

    fn mount(&self, volume: &Local, at: &Path, how: &Mount) -> Result<(), Refusal> {
        self.mounts
            .mount(volume, at, how)
            .map_err(|e| mount_refusal(&e))
    }

    fn bind(&self, volume: &Local, from: &Path, at: &Path, readonly: bool) -> Result<(), Refusal> {
        self.mounts
            .bind(volume, from, at, readonly)
            .map_err(|e| mount_refusal(&e))
    }

    fn bind_device(&self, volume: &Local, at: &Path, readonly: bool) -> Result<(), Refusal> {
        let recorded_use = self.store.set_raw(&volume.id);
        recorded_use.map_err(|error| refusal(&error))?;
        self.mounts
            .bind_device(volume, at, readonly)
            .map_err(|e| mount_refusal(&e))
    }

    fn unmount(&self, volume: &Local, at: &Path) -> Result<(), Refusal> {
        self.mounts
            .unmount(volume, at)
            .map_err(|e| mount_refusal(&e))
    }

    fn remove(&self, at: &Path) -> Result<(), Refusal> {
        let removed = match std::fs::symlink_metadata(at) {
            Ok(there) if there.is_dir() => std::fs::remove_dir(at),
            Ok(_) => std::fs::remove_file(at),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error| {
                let message = format!("cannot remove {}: {error}", at.display());
                Refusal::new(Code::Internal, "TARGET_NOT_REMOVED", message)
            }),
        }
    }

    fn is_mounted(&self, at: &Path) -> Result<bool, Refusal> {
        self.mounts.is_mounted(at).map_err(|e| mount_refusal(&e))
    }

    fn space(&self, at: &Path) -> Result<(Space, Space), Refusal> {
        self.mounts.space(at).map_err(|e| mount_refusal(&e))
    }

    async fn claim(&self, name: &str, parameters: &Parameters) -> Result<Local, Refusal> {
        let claimed = self.leader.claim(name, parameters).await;
        let claimed = claimed.map_err(|status| from_status(&status))?;
        let id = id_of(&claimed)?;
        let synced = self.reconciler.sync(&id).await;
        synced.map_err(|status| from_status(&status))?;
        let (store, volume_id_text) = (self.store.clone(), id.clone());
        // Programs are run for that.
        let found =
            tokio::task::spawn_blocking(move || find(&store, volume_id_text.as_str())).await;
        let found = found.unwrap_or_else(|_| {
            let message = "reading a volume failed; see the log of the agent";
            Err(Refusal::new(Code::Internal, "INTERNAL", message))
        });
        found?.ok_or_else(|| {
            let message = format!("volume {id} was claimed for a pod and is missing; retry");
            Refusal::new(Code::Aborted, "VOLUME_NOT_MADE", message)
        })
    }

    async fn give_back(&self, name: &str) -> Result<(), Refusal> {
        // Those that are not for pods are named by their ids, and are not removed here.
        if volume_id(name).is_some() {
            return Ok(());
        }
        let refused = |status: Status| from_status(&status);
        let Some(volume) = self.leader.ephemeral(name).await.map_err(refused)? else {
            return Ok(());
        };
        self.leader.delete(&volume).await.map_err(refused)?;
        // It would be looked at soon anyway; its name is free already.
        if let Err(status) = self.reconciler.sync(&id_of(&volume)?).await {
            let why = status.message();
            tracing::warn!(volume = volume.name, why, "volume removal deferred");
        }
        Ok(())
    }
}

/// Returns what keeps pods from a volume: a guest that uses it, or the VM that owns it.
fn user(guest: Option<&str>, owner: &str) -> Option<String> {
    match (guest, owner) {
        (None, "") => None,
        (Some(guest), "") => Some(format!("guest {guest}")),
        (guest, vm) => {
            let is = if guest.is_some() {
                "running"
            } else {
                "not running here"
            };
            Some(format!(
                "it belongs to vm {vm} ({is}) until that is deleted"
            ))
        }
    }
}

fn id_of(volume: &wire::Volume) -> Result<VolumeId, Refusal> {
    let id: VolumeId = field::name(&volume.name, "volume.name")?;
    Ok(id)
}

fn refusal(error: &ManagerError) -> Refusal {
    let (code, reason) = match error {
        ManagerError::Underway { .. } | ManagerError::Deleting { .. } => {
            (Code::Aborted, "OPERATION_PENDING")
        }
        ManagerError::NoVolume { .. } => (Code::NotFound, "VOLUME_NOT_FOUND"),
        ManagerError::Busy { .. } => (Code::FailedPrecondition, "VOLUME_IN_USE"),
        ManagerError::Vanished { .. } | ManagerError::Unusable { .. } => {
            (Code::Internal, "VOLUME_UNUSABLE")
        }
        ManagerError::Program(_)
        | ManagerError::Listing { .. }
        | ManagerError::OddId { .. }
        | ManagerError::OddSize { .. }
        | ManagerError::NoRegion { .. }
        | ManagerError::Trouble { .. }
        | ManagerError::NoSpace { .. }
        | ManagerError::Exists { .. }
        | ManagerError::Stopped { .. }
        | ManagerError::Io { .. }
        | ManagerError::NoManager { .. } => (Code::Internal, "VOLUME_FAILED"),
    };
    Refusal::new(code, reason, error.to_string())
}

fn mount_refusal(error: &MountError) -> Refusal {
    let (code, reason) = match error {
        MountError::OtherFileSystem { .. } => (Code::FailedPrecondition, "OTHER_FILE_SYSTEM"),
        MountError::MayHoldData { .. } => (Code::FailedPrecondition, "MAY_HOLD_DATA"),
        MountError::InTheWay { .. } => (Code::FailedPrecondition, "IN_THE_WAY"),
        MountError::Failed { .. } => (Code::Internal, "MOUNT_FAILED"),
    };
    Refusal::new(code, reason, error.to_string())
}
