//! Files that are replaced as a whole, in directories that only their owner reads.
//!
//! What a process stores over restarts holds secrets of the cluster (the key that signs grants is part
//! of the replicated state), so that nothing here is readable for other users of the machine: a user
//! who is to read a copy gets one from the owner.
//!
//! Not here: what is in the files, and disks of guests, which the hypervisor's user reads.
//!
//! Invariant: after a crash a file is the earlier one or the new one, never a part of one; when a
//! function returns, what it did is there after a loss of power too.

mod draft;
mod steady;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

pub use draft::Draft;
pub use steady::SteadyFile;

/// The mode of a directory that only its owner reads.
pub const DIRECTORY_MODE: u32 = 0o700;

/// The mode of a file that only its owner reads.
pub const FILE_MODE: u32 = 0o600;

/// How the name of a file that is being written ends; one is left only by a process that was killed.
pub const PART: &str = ".part";

/// The permissions of group and others.
const FOREIGN: u32 = 0o077;

/// Makes a directory and those above it where they are missing, and takes it from group and others
/// where they had access. Returns whether they had.
///
/// # Errors
///
/// That of the operating system: `PermissionDenied` where the directory is another user's.
pub fn make_private(directory: &Path) -> io::Result<bool> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(directory)?;
    let mode = fs::metadata(directory)?.permissions().mode();
    let is_open = mode & FOREIGN != 0;
    if is_open {
        fs::set_permissions(directory, Permissions::from_mode(mode & !FOREIGN & 0o7777))?;
    }
    Ok(is_open)
}

/// Replaces a file, which only its owner reads from then on.
///
/// # Errors
///
/// That of the operating system; the earlier file is still there then.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(path, bytes, FILE_MODE)
}

/// Replaces a file, which has that mode from then on.
///
/// # Errors
///
/// That of the operating system; the earlier file is still there then.
pub fn replace_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let part = Part(beside(path));
    // One that a killed process left may have another mode.
    match fs::remove_file(&part.0) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&part.0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part.0, path)?;
    sync_directory_of(path)
}

/// Makes durable which files a directory has.
///
/// # Errors
///
/// That of the operating system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Makes durable that a file is in its directory, or is not there any more.
///
/// # Errors
///
/// That of the operating system.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    sync_directory(parent.unwrap_or(Path::new(".")))
}

/// Why a secret is not read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] io::Error),
    /// Users who are not its owner may read it.
    #[error(
        "it is readable for other users of this machine (mode {0:04o}): run chmod 600 on it, or give \
         it to root with mode 0640 and the group that reads it"
    )]
    Loose(u32),
}

/// Opens a file with a secret, as a private key, that no other user of the machine may read.
///
/// # Errors
///
/// When one may, or the file cannot be opened.
pub fn open_secret(path: &Path) -> Result<File, SecretError> {
    let file = File::open(path)?;
    // Of the open file, so that it is not another one by the time it is read.
    let metadata = file.metadata()?;
    match is_loose(metadata.mode(), metadata.uid()) {
        true => Err(SecretError::Loose(metadata.mode() & 0o7777)),
        false => Ok(file),
    }
}

/// Returns whether a secret is readable for users whose it is not. A group may read one of root's: so an
/// administrator gives a key to a service, and Kubernetes mounts one for a pod of another user.
fn is_loose(mode: u32, owner: u32) -> bool {
    let allowed = if owner == 0 { 0o740 } else { 0o700 };
    mode & 0o777 & !allowed != 0
}

/// Returns where a file is written until it gets its name.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(PART);
    name.into()
}

/// A file that is removed if it was not renamed.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
        entries
            .map(|e| e.file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_directory_is_its_owners_whatever_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("a/b");
        assert!(!make_private(&made).unwrap());
        assert_eq!(
            (mode(&made), mode(&folder.path().join("a"))),
            (0o700, 0o700)
        );
        for earlier in 0..0o1000 {
            fs::set_permissions(&made, Permissions::from_mode(earlier | 0o700)).unwrap();
            let had_access = make_private(&made).unwrap();
            assert_eq!(had_access, earlier & 0o077 != 0, "{earlier:o}");
            assert_eq!(mode(&made), 0o700, "{earlier:o}");
        }
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("FILE");
        fs::write(
            folder.path().join(format!("FILE{PART}")),
            "left by a killed process",
        )
        .unwrap();
        for content in ["first", "", "third"] {
            replace(&file, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
            assert_eq!(
                (mode(&file), names(folder.path())),
                (0o600, vec!["FILE".to_owned()])
            );
            fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        }
        replace_with_mode(&file, b"public", 0o644).unwrap();
        assert_eq!(mode(&file) & 0o600, 0o600);
    }

    /// Goal: no secret that others may read is used. Method: each of the 512 modes, of root's file and
    /// of another's.
    #[test]
    fn secrets_that_others_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        replace(&file, b"secret").unwrap();
        let owner = fs::metadata(&file).unwrap().uid();
        for mode in 0..0o1000 {
            let others = mode & 0o007 != 0 || mode & 0o030 != 0;
            assert_eq!(is_loose(mode, 0), others, "{mode:o}");
            assert_eq!(is_loose(mode, 1000), mode & 0o077 != 0, "{mode:o}");
            fs::set_permissions(&file, Permissions::from_mode(mode | 0o400)).unwrap();
            match open_secret(&file) {
                Ok(_) => assert!(!is_loose(mode, owner), "{mode:o}"),
                Err(SecretError::Loose(found)) => assert_eq!(found, mode | 0o400),
                Err(SecretError::Open(error)) => panic!("{mode:o}: {error}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_replaced_stays_and_leaves_no_part() {
        let folder = tempfile::tempdir().unwrap();
        let occupied = folder.path().join("occupied");
        fs::create_dir_all(occupied.join("inside")).unwrap();
        replace(&occupied, b"text").unwrap_err();
        assert_eq!(names(folder.path()), ["occupied"]);
        assert_eq!(names(&occupied), ["inside"]);
    }
}
