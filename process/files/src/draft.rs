//! A large file that is written piece by piece, and gets its name when it is complete.
//!
//! Not here: what fits into memory, for which [`replace`](crate::replace) is.
//!
//! Invariant: two processes that write the same file do not write into each other's: the second one is
//! refused. What a killed process left is used again.

use std::fs::{self, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::{FILE_MODE, SteadyFile, beside, sync_directory_of};

/// A file on its way to its name. Dropped, nothing of it is left.
pub struct Draft {
    file: SteadyFile,
    part: PathBuf,
    path: PathBuf,
    /// Set when the part has the name of the file: another process may begin a part then.
    is_named: bool,
}

impl Draft {
    /// Begins a file that only its owner reads, beside the path that it is to have.
    ///
    /// # Errors
    ///
    /// That of the operating system: `WouldBlock` where another process writes it, `InvalidInput` where a
    /// device, a pipe, a link or a directory has the name: a file would take its place.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
            let message = "it is there, and no regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let part = beside(path);
        loop {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(false);
            let file = options.mode(FILE_MODE).open(&part)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // The process that had it locked may have given it its name, or removed it.
            match fs::metadata(&part) {
                Ok(now) if now.ino() == file.metadata()?.ino() => {
                    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
                    file.set_len(0)?;
                    return Ok(Self {
                        file: SteadyFile::new(file),
                        part,
                        path: path.to_owned(),
                        is_named: false,
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes what was written durable and gives it its name; with `replaces`, in place of a file that
    /// has it.
    ///
    /// # Errors
    ///
    /// That of the operating system: `AlreadyExists` where a file has the name.
    pub fn commit(mut self, replaces: bool) -> io::Result<()> {
        self.file.sync_all()?;
        match replaces {
            true => fs::rename(&self.part, &self.path)?,
            false => name_new(&self.part, &self.path)?,
        }
        self.is_named = true;
        sync_directory_of(&self.path)
    }
}

/// Gives a file a name that none has.
fn name_new(part: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(part, path) {
        Ok(()) => fs::remove_file(part),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // A file system without links: the name is free, as far as can be said.
        Err(_) => match path.symlink_metadata() {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(part, path),
        },
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_named {
            // One that stays is used again, or removed by hand.
            let _ = fs::remove_file(&self.part);
        }
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Goal: nothing but a file is replaced by one.
    #[test]
    fn what_is_no_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for name in ["directory", "link", "dangling", "socket"] {
            let before = path(name).symlink_metadata().unwrap();
            let error = Draft::create(&path(name)).map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
            let after = path(name).symlink_metadata().unwrap();
            assert_eq!(after.file_type(), before.file_type(), "{name}");
        }
        assert!(
            !names(folder.path())
                .iter()
                .any(|name| name.ends_with(".part"))
        );
        Draft::create(&path("file")).unwrap().commit(true).unwrap();
        assert_eq!(fs::read(path("file")).unwrap(), b"");
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("FILE");
        fs::write(folder.path().join("FILE.part"), "left by a killed process").unwrap();
        let mut draft = Draft::create(&path).unwrap();
        draft.write_all(b"content").unwrap();
        assert_eq!(names(folder.path()), ["FILE.part"]);
        draft.commit(false).unwrap();
        assert_eq!(names(folder.path()), ["FILE"]);
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_is_replaced_only_where_that_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("FILE");
        fs::write(&path, "earlier").unwrap();
        let mut draft = Draft::create(&path).unwrap();
        draft.write_all(b"later").unwrap();
        let refused = draft.commit(false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"earlier");
        assert_eq!(names(folder.path()), ["FILE"]);
        let mut draft = Draft::create(&path).unwrap();
        draft.write_all(b"later").unwrap();
        draft.commit(true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"later");
    }

    #[test]
    fn what_is_dropped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("FILE");
        drop(Draft::create(&path).unwrap());
        assert_eq!(names(folder.path()), [""; 0]);
        assert!(Draft::create(&folder.path().join("none/FILE")).is_err());
    }

    /// Goal: a second writer is refused and leaves the first one's file alone.
    #[test]
    fn a_file_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("FILE");
        let mut first = Draft::create(&path).unwrap();
        first.write_all(b"first").unwrap();
        let refused = Draft::create(&path).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        first.write_all(b", all of it").unwrap();
        first.commit(false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first, all of it");
    }
}
