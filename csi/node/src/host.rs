//! What the services need of the host that they run on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use berth_domain::name::VolumeId;
use berth_domain::refusal::Refusal;
use berth_proto::convert::csi::{FileSystem, Parameters};

/// A volume that is on this host and can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Its id.
    pub id: VolumeId,
    /// Its device.
    pub device: PathBuf,
    /// How much of it can be used.
    pub size_bytes: u64,
    /// Whether its file system is in an image file for Kata Containers.
    pub is_kata: bool,
    /// Whether it was made for one pod.
    pub is_ephemeral: bool,
    /// Whether its device may have been handed out as it is: one that looks empty may hold data then, and
    /// gets no file system.
    pub is_raw: bool,
    /// Where it is staged and published, and how.
    pub targets: BTreeMap<String, String>,
}

/// How a volume's file system is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The file system; a volume without any gets it.
    pub file_system: FileSystem,
    /// Mount options beside those that make it persistent memory.
    pub flags: Vec<String>,
    /// Whether it is read-only.
    pub readonly: bool,
}

/// How full something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What there is.
    pub total: u64,
    /// What is taken.
    pub used: u64,
    /// What an ordinary user could still take.
    pub available: u64,
}

/// What the services need of the host that they run on. What is not marked `async` blocks, and is
/// called on threads for that.
#[tonic::async_trait]
pub trait Host: Send + Sync + 'static {
    /// Returns a volume, by its id or, of one that was made for a pod, by what the kubelet calls it.
    /// None: this host has no such volume.
    ///
    /// # Errors
    ///
    /// When it is there, but cannot be used.
    fn find(&self, id: &str) -> Result<Option<Local>, Refusal>;

    /// Returns a volume by what is written down of it, its device as it was last seen: enough to take
    /// away what shows it, also when its device cannot be looked at.
    ///
    /// # Errors
    ///
    /// When what is written down cannot be read.
    fn known(&self, id: &str) -> Result<Option<Local>, Refusal>;

    /// Returns the volume that is recorded as used at a path.
    ///
    /// # Errors
    ///
    /// When the record cannot be read.
    fn owner(&self, path: &str) -> Result<Option<VolumeId>, Refusal>;

    /// Returns whether what is mounted or shown at a path is of this volume; nothing there: it is not.
    ///
    /// # Errors
    ///
    /// When that cannot be seen.
    fn shows(&self, volume: &Local, at: &Path) -> Result<bool, Refusal>;

    /// Writes down how a volume is used at a path; nothing: not at all. It is in use as long as
    /// anything is written down.
    ///
    /// # Errors
    ///
    /// When it is being deleted, or cannot be written.
    fn note(&self, id: &VolumeId, path: &str, how: Option<&str>) -> Result<(), Refusal>;

    /// Mounts a volume's file system at a path, which is made if it is not there; a volume without
    /// file system gets one. Mounted already: no effect.
    ///
    /// # Errors
    ///
    /// When it has another file system; when it has none and may hold data; and when a program fails.
    fn mount(&self, volume: &Local, at: &Path, how: &Mount) -> Result<(), Refusal>;

    /// Shows what is mounted at one path at another one too, which is made if it is not there. Shown
    /// already: no effect.
    ///
    /// # Errors
    ///
    /// When a program fails.
    fn bind(&self, volume: &Local, from: &Path, at: &Path, readonly: bool) -> Result<(), Refusal>;

    /// Shows a volume's device at a path, as a file that is made if it is missing; that its device was
    /// handed out is recorded before. Shown already: no effect.
    ///
    /// # Errors
    ///
    /// When a program fails.
    fn bind_device(&self, volume: &Local, at: &Path, readonly: bool) -> Result<(), Refusal>;

    /// Removes what of a volume is mounted or shown at a path. Nothing there: no effect.
    ///
    /// # Errors
    ///
    /// When it is in use, and when a program fails.
    fn unmount(&self, volume: &Local, at: &Path) -> Result<(), Refusal>;

    /// Removes the empty folder or the file at a path. Nothing there: no effect.
    ///
    /// # Errors
    ///
    /// When it is not empty, or cannot be removed.
    fn remove(&self, at: &Path) -> Result<(), Refusal>;

    /// Returns whether anything is mounted or shown at a path.
    ///
    /// # Errors
    ///
    /// When that cannot be seen.
    fn is_mounted(&self, at: &Path) -> Result<bool, Refusal>;

    /// Returns how full the file system at a path is: bytes, and inodes.
    ///
    /// # Errors
    ///
    /// When that cannot be read.
    fn space(&self, at: &Path) -> Result<(Space, Space), Refusal>;

    /// Claims and makes a volume for a pod, on this host; the one of that name if it is there.
    ///
    /// # Errors
    ///
    /// Why there is none.
    async fn claim(&self, name: &str, parameters: &Parameters) -> Result<Local, Refusal>;

    /// Has the volume that was made for a pod removed; none of that name: no effect.
    ///
    /// # Errors
    ///
    /// Why it is not removed.
    async fn give_back(&self, name: &str) -> Result<(), Refusal>;
}
