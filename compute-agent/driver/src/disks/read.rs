//! Reads the disks of a guest piece by piece; holes are reported and not read.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use berth_domain::id::{MigrationId, VmUid};
use rustix::fs::{SeekFrom, seek};

use super::{DiskSize, FETCHING, PIECE_MAX, Piece, Place, failed, says};
use crate::error::Error;

#[derive(Debug)]
struct Disk {
    path: PathBuf,
    file: File,
    size: DiskSize,
}

impl Disk {
    fn new(path: &Path, file: File) -> Result<Self, Error> {
        let known = file.metadata().map_err(|e| failed("read", path, &e))?;
        let size = DiskSize {
            length: known.len(),
            allocated: data_bytes(&file, known.len()),
        };
        let path = path.to_owned();
        Ok(Self { path, file, size })
    }
}

/// The disks of a guest, open.
#[derive(Debug, Default)]
pub struct DiskReader {
    disks: Vec<Disk>,
    /// Which disk is next, and where in it.
    disk: usize,
    offset: u64,
    /// Up to where there is data from `offset` on, as far as known.
    data_end: u64,
}

impl DiskReader {
    /// Opens the disks of a guest that is off.
    ///
    /// # Errors
    ///
    /// [`Error::DiskMissing`]; [`Error::StorageShared`] when they are being fetched for this migration to
    /// the very place; or when one cannot be opened.
    pub fn open(vm: VmUid, place: &Place, migration: MigrationId) -> Result<Self, Error> {
        if says(&place.directory, FETCHING)? == Some(migration) {
            let directory = place.directory.clone();
            return Err(Error::StorageShared { directory });
        }
        let open = |(index, path): (usize, &PathBuf)| {
            let file = File::open(path).map_err(|error| {
                if error.kind() == ErrorKind::NotFound {
                    let path = path.clone();
                    return Error::DiskMissing { vm, index, path };
                }
                failed("opened", path, &error)
            })?;
            Disk::new(path, file)
        };
        let disks = place.files.iter().enumerate().map(open);
        Ok(Self {
            disks: disks.collect::<Result<_, Error>>()?,
            ..Self::default()
        })
    }

    /// Reads one file, which is open.
    ///
    /// # Errors
    ///
    /// When its length cannot be read.
    pub fn of_file(path: &Path, file: File) -> Result<Self, Error> {
        Ok(Self {
            disks: vec![Disk::new(path, file)?],
            ..Self::default()
        })
    }

    /// Returns how large they are, in order.
    #[must_use]
    pub fn sizes(&self) -> Vec<DiskSize> {
        self.disks.iter().map(|disk| disk.size).collect()
    }

    /// Returns the next piece; nothing at the end.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, Error> {
        loop {
            let Some(disk) = self.disks.get(self.disk) else {
                return Ok(None);
            };
            let end = disk.size.length;
            if self.offset >= end {
                (self.disk, self.offset, self.data_end) = (self.disk + 1, 0, 0);
                continue;
            }
            if self.offset >= self.data_end {
                let (start, data_end) = data_after(&disk.file, self.offset, end);
                self.data_end = data_end;
                if start > self.offset {
                    return Ok(Some(self.hole(start - self.offset)));
                }
            }
            let left = self.data_end - self.offset;
            let length = usize::try_from(left).map_or(PIECE_MAX, |left| left.min(PIECE_MAX));
            let mut bytes = vec![0; length];
            let read = disk.file.read_exact_at(&mut bytes, self.offset);
            read.map_err(|error| failed("read", &disk.path, &error))?;
            if bytes.iter().all(|byte| *byte == 0) {
                return Ok(Some(self.hole(length as u64)));
            }
            let (disk, offset) = (self.disk, self.offset);
            self.offset += length as u64;
            return Ok(Some(Piece::Data {
                disk,
                offset,
                bytes,
            }));
        }
    }

    fn hole(&mut self, length: u64) -> Piece {
        let (disk, offset) = (self.disk, self.offset);
        self.offset += length;
        Piece::Hole {
            disk,
            offset,
            length,
        }
    }
}

/// Returns how many bytes of a file are not in holes. Not what it takes on the disk: that is less where the
/// file system compresses.
fn data_bytes(file: &File, length: u64) -> u64 {
    let (mut offset, mut bytes) = (0, 0);
    while offset < length {
        let (start, end) = data_after(file, offset, length);
        bytes += end - start;
        // A file that changes is not read any more.
        offset = end.max(offset + 1);
    }
    bytes
}

/// Returns from where to where there is data, at or after `offset`. A file system that does not know its
/// holes has data everywhere; its zeros are seen when they are read.
fn data_after(file: &File, offset: u64, end: u64) -> (u64, u64) {
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start.min(end),
        Err(rustix::io::Errno::NXIO) => return (end, end),
        Err(_) => return (offset, end),
    };
    let until = seek(file, SeekFrom::Hole(start)).unwrap_or(end).min(end);
    (start, until.max(start))
}
