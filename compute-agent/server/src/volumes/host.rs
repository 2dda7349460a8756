//! What the CSI services need of this host: its volumes, what is mounted, and claims for pods.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use berth_csi::{Host, Local, Mount, Space};
use berth_domain::name::VolumeId;
use berth_domain::refusal::{Code, Refusal};
use berth_pmem::volume::manager::volume_id;
use berth_pmem::volume::{Error as ManagerError, Phase, Volume, Volumes};
use berth_proto::convert::csi::Parameters;
use berth_proto::convert::field;
use berth_proto::status::from_status;
use berth_proto::volume::v1 as wire;
use tokio::runtime::Handle;
use tonic::Status;

use super::caretaker::{Caretaker, word};
use super::guests::guest_of;
use super::leader::Leader;
use super::mounts::{Error as MountError, Mounts};
use super::owners;

/// How long the scheduler is asked whose a volume is. What is written down counts afterwards: a node
/// that has started anew is to get its pods also while no scheduler is there.
const ASKING_MAX: Duration = Duration::from_secs(3);

pub(super) struct VolumeHost {
    leader: Leader,
    caretaker: Caretaker,
    keeper: Arc<Volumes>,
    mounts: Arc<dyn Mounts>,
    /// For calls out of what blocks.
    runtime: Handle,
}

impl VolumeHost {
    /// Returns those of this host; within a runtime.
    pub(super) fn new(
        leader: Leader,
        caretaker: Caretaker,
        keeper: Arc<Volumes>,
        mounts: Arc<dyn Mounts>,
    ) -> Self {
        Self {
            leader,
            caretaker,
            keeper,
            mounts,
            runtime: Handle::current(),
        }
    }

    /// Asks the scheduler which VM has a volume; none: what is written down counts. Blocks.
    fn ask_owner(&self, id: &VolumeId) -> Option<String> {
        let asked = async { tokio::time::timeout(ASKING_MAX, self.leader.get(id)).await };
        let why = match self.runtime.block_on(asked) {
            Ok(Ok(volume)) => return volume.as_ref().map(owners::told),
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => "it does not answer".to_owned(),
        };
        tracing::warn!(volume = %id, why, "the scheduler does not say whose a volume is");
        None
    }
}

/// Finds the record of a volume, by its id or, of one for a pod, by what the kubelet calls it.
fn record(keeper: &Volumes, id: &str) -> Option<Volume> {
    if let Some(id) = volume_id(id) {
        return keeper.get(&id);
    }
    let volumes = keeper.list().into_iter();
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
fn find(keeper: &Volumes, id: &str) -> Result<Option<Local>, Refusal> {
    let Some(volume) = record(keeper, id) else {
        return Ok(None);
    };
    if volume.record.phase != Phase::Ready {
        return Ok(None);
    }
    let looked = keeper.look(&volume.record.id);
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
        find(&self.keeper, id)
    }

    fn known(&self, id: &str) -> Result<Option<Local>, Refusal> {
        let ready = record(&self.keeper, id);
        let ready = ready.filter(|volume| volume.record.phase == Phase::Ready);
        Ok(ready.as_ref().map(recorded))
    }

    fn owner(&self, path: &str) -> Result<Option<VolumeId>, Refusal> {
        let mut volumes = self.keeper.list().into_iter();
        let owner = volumes.find(|volume| volume.record.targets.contains_key(path));
        Ok(owner.map(|volume| volume.record.id))
    }

    fn shows(&self, volume: &Local, at: &Path) -> Result<bool, Refusal> {
        self.mounts.shows(volume, at).map_err(|e| mount_refusal(&e))
    }

    fn note(&self, id: &VolumeId, path: &str, how: Option<&str>) -> Result<(), Refusal> {
        let told = how.and_then(|_| self.ask_owner(id));
        let mut by = None;
        let noted = self.keeper.set_use(id, |targets, owner| {
            if let Some(told) = told {
                owners::take_over(targets.keys(), owner, told);
            }
            by = user(guest_of(targets.keys()), owner);
            match how {
                Some(_) if by.is_some() => None,
                Some(how) => targets.insert(path.to_owned(), how.to_owned()),
                None => targets.remove(path),
            };
        });
        noted.map_err(|error| refusal(&error))?;
        match (how, by) {
            (None, _) => {
                self.caretaker.released(id);
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
        let noted = self.keeper.set_raw(&volume.id);
        noted.map_err(|error| refusal(&error))?;
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
        let synced = self.caretaker.sync(&id).await;
        synced.map_err(|status| from_status(&status))?;
        let (keeper, asked) = (self.keeper.clone(), id.clone());
        // Programs are run for that.
        let found = tokio::task::spawn_blocking(move || find(&keeper, asked.as_str())).await;
        let found = found.unwrap_or_else(|_| {
            let message = "looking at a volume failed; see the log of the agent";
            Err(Refusal::new(Code::Internal, "INTERNAL", message))
        });
        found?.ok_or_else(|| {
            let message = format!("volume {id} was claimed for a pod and is not there; ask again");
            Refusal::new(Code::Aborted, "VOLUME_NOT_MADE", message)
        })
    }

    async fn give_back(&self, name: &str) -> Result<(), Refusal> {
        // Those that are not for pods are called by their ids, and are not given back here.
        if volume_id(name).is_some() {
            return Ok(());
        }
        let refused = |status: Status| from_status(&status);
        let Some(volume) = self.leader.ephemeral(name).await.map_err(refused)? else {
            return Ok(());
        };
        self.leader.delete(&volume).await.map_err(refused)?;
        // It would be looked at soon anyway; its name is free already.
        if let Err(status) = self.caretaker.sync(&id_of(&volume)?).await {
            let why = status.message();
            tracing::warn!(volume = volume.name, why, "it is removed later");
        }
        Ok(())
    }
}

/// Returns who keeps pods from a volume: a guest that uses it, or the VM that has it.
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
