//! Puts the disks of a guest together from their pieces, and makes them whole.

use std::fs::{self, File, OpenOptions};
use std::iter::repeat;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use berth_domain::id::MigrationId;

use super::{
    DiskSize, FETCHED, FETCHING, PART, Piece, Place, failed, mark, remove, remove_parts, says, sync,
};
use crate::error::Error;

/// What is left free on the file system of the disks.
const RESERVED_BYTES: u64 = 16 * 1024 * 1024;

/// Returns the free bytes in a directory.
pub type FreeSpace = Box<dyn Fn(&Path) -> Result<u64, Error> + Send>;
/// Makes files this host's own.
pub type Adapt = Box<dyn Fn(&[PathBuf]) -> Result<(), Error> + Send>;

/// What a driver adds to the fetching of disks.
pub struct Hooks {
    /// The free bytes of a directory; is called before anything is made, and before each piece of data.
    pub free_space: FreeSpace,
    /// Is called before each piece is written.
    pub before_piece: Box<dyn Fn() -> Result<(), Error> + Send>,
    /// What is done to the files, which are complete, before they are disks.
    pub adapt: Adapt,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            free_space: Box::new(free_space),
            before_piece: Box::new(|| Ok(())),
            adapt: Box::new(|_| Ok(())),
        }
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

/// Returns the free bytes in a directory.
///
/// # Errors
///
/// When the file system does not report them.
pub fn free_space(directory: &Path) -> Result<u64, Error> {
    let statistics =
        rustix::fs::statvfs(directory).map_err(|error| failed("read", directory, &error.into()))?;
    Ok(statistics.f_bavail.saturating_mul(statistics.f_frsize))
}

/// The disks of a guest, as they come.
#[derive(Debug)]
pub struct DiskWriter {
    place: Place,
    migration: MigrationId,
    hooks: Hooks,
    /// How long each file may be.
    lengths_max: Vec<u64>,
    parts: Vec<(PathBuf, File)>,
    sizes: Vec<DiskSize>,
    /// How many bytes of data have come, of all disks.
    received: u64,
    /// Which disk is next, and where in it.
    disk: usize,
    offset: u64,
}

impl DiskWriter {
    /// Prepares a fetch of disks, from scratch if there was an earlier attempt. Returns nothing if all of them
    /// are here already. `lengths_max` has the greatest length of each file.
    ///
    /// # Errors
    ///
    /// When there are disks that were not fetched, or the guest's directory cannot be made.
    pub fn begin(
        place: Place,
        migration: MigrationId,
        lengths_max: Vec<u64>,
        hooks: Hooks,
    ) -> Result<Option<Self>, Error> {
        let directory = &place.directory;
        let fetched = says(directory, FETCHED)?;
        let is_whole = fetched == Some(migration) && !super::is_fetching(directory);
        if is_whole && place.files.iter().all(|file| file.exists()) {
            return Ok(None);
        }
        // Disks that were fetched here once, and that the cluster has given up since, have no owner.
        if fetched.is_none()
            && let Some(taken) = place.files.iter().find(|file| file.exists())
        {
            return Err(Error::refused(format!(
                "{} is there already, and was not fetched from another host",
                taken.display()
            )));
        }
        fs::create_dir_all(directory).map_err(|error| failed("made", directory, &error))?;
        mark(directory, FETCHING, migration)?;
        remove_parts(directory)?;
        Ok(Some(Self {
            place,
            migration,
            hooks,
            lengths_max,
            parts: Vec::new(),
            sizes: Vec::new(),
            received: 0,
            disk: 0,
            offset: 0,
        }))
    }

    /// Records how large the disks are.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`]; or when they are not the guest's, or cannot be made.
    pub fn expect(&mut self, sizes: Vec<DiskSize>) -> Result<(), Error> {
        let (come, files) = (sizes.len(), &self.place.files);
        if come != files.len() {
            let message = format!("the guest has {} disks, and {come} come", files.len());
            return Err(Error::refused(message));
        }
        let limits = self.lengths_max.iter().map(Some).chain(repeat(None));
        for (index, (size, limit)) in sizes.iter().zip(limits).enumerate() {
            let limit = limit.copied().unwrap_or_default();
            if size.length > limit {
                return Err(Error::refused(format!(
                    "disk {index} comes with {} bytes, and a disk of its size has at most {limit}",
                    size.length
                )));
            }
        }
        self.require_space(announced(&sizes))?;
        for (file, size) in files.iter().zip(&sizes) {
            let part = part(file);
            let mut options = OpenOptions::new();
            // What is on its way may be any guest's secret, and a seed mostly is one.
            options.write(true).create(true).truncate(true).mode(0o600);
            let made = options.open(&part).and_then(|new| {
                new.set_len(size.length)?;
                Ok(new)
            });
            let made = made.map_err(|error| failed("made", &part, &error))?;
            self.parts.push((part, made));
        }
        self.sizes = sizes;
        Ok(())
    }

    /// Refuses what there is no space for.
    fn require_space(&self, needed: u64) -> Result<(), Error> {
        let directory = &self.place.directory;
        let free = (self.hooks.free_space)(directory)?;
        if needed.saturating_add(RESERVED_BYTES) <= free {
            return Ok(());
        }
        Err(Error::NoSpace {
            needed,
            free: free.saturating_sub(RESERVED_BYTES),
            directory: directory.clone(),
        })
    }

    /// Writes the next piece.
    ///
    /// # Errors
    ///
    /// When it is not the next one, is more than was announced, or cannot be written;
    /// [`Error::NoSpace`] when the space has gone meanwhile.
    pub fn write(&mut self, piece: &Piece) -> Result<(), Error> {
        (self.hooks.before_piece)()?;
        let (disk, offset, length) = match piece {
            Piece::Data {
                disk,
                offset,
                bytes,
            } => (*disk, *offset, bytes.len() as u64),
            Piece::Hole {
                disk,
                offset,
                length,
            } => (*disk, *offset, *length),
        };
        self.skip_ended();
        let left = self.sizes.get(self.disk).map(|s| s.length - self.offset);
        let is_next = (disk, offset) == (self.disk, self.offset) && length > 0;
        if !is_next || left.is_none_or(|left| length > left) {
            return Err(Error::refused(format!(
                "{length} bytes of disk {disk} come for offset {offset}, and disk {} is whole up to {}",
                self.disk, self.offset
            )));
        }
        if let Piece::Data { bytes, .. } = piece {
            self.received += length;
            let announced = announced(&self.sizes);
            if self.received > announced {
                return Err(Error::refused(format!(
                    "more data come than the {announced} bytes that were announced"
                )));
            }
            // What was free at the beginning may have been taken by others.
            self.require_space(length)?;
            let (path, file) = &self.parts[disk];
            let written = file.write_all_at(bytes, offset);
            written.map_err(|error| failed("written", path, &error))?;
        }
        self.offset += length;
        Ok(())
    }

    fn skip_ended(&mut self) {
        while let Some(size) = self.sizes.get(self.disk)
            && self.offset >= size.length
        {
            (self.disk, self.offset) = (self.disk + 1, 0);
        }
    }

    /// Makes the disks whole: from here on they have their names.
    ///
    /// # Errors
    ///
    /// When something of them is missing, or they cannot be put on stable storage.
    pub fn finish(mut self) -> Result<(), Error> {
        self.skip_ended();
        if self.disk < self.place.files.len() || self.sizes.len() < self.place.files.len() {
            return Err(Error::refused(format!(
                "of disk {} there is nothing after {} bytes",
                self.disk, self.offset
            )));
        }
        let paths: Vec<PathBuf> = self.parts.iter().map(|(path, _)| path.clone()).collect();
        (self.hooks.adapt)(&paths)?;
        for (path, file) in &self.parts {
            // Also what another program has written to it.
            let synced = file.sync_all();
            synced.map_err(|error| failed("synced", path, &error))?;
        }
        let directory = &self.place.directory;
        // Before the first has its name: what lies here from now on is the migration's to delete.
        mark(directory, FETCHED, self.migration)?;
        for (part, file) in paths.iter().zip(&self.place.files) {
            fs::rename(part, file).map_err(|error| failed("named", file, &error))?;
        }
        sync(directory)?;
        remove(&directory.join(FETCHING))?;
        sync(directory)
    }
}

impl Drop for DiskWriter {
    /// What did not become a disk is of no use, and takes space. What cannot be deleted now is with the undo
    /// of the fetch, as after a crash.
    fn drop(&mut self) {
        for (part, _) in &self.parts {
            let _ = remove(part);
        }
    }
}

/// Returns how many bytes of data are to come.
fn announced(sizes: &[DiskSize]) -> u64 {
    let allocated = sizes.iter().map(|size| size.allocated);
    allocated.fold(0, u64::saturating_add)
}

fn part(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(PART);
    PathBuf::from(name)
}
