//! The marker in a member's directory: which member owns it.
//!
//! A member's promises (its votes, its part of the log) live on its disk. The marker ties the
//! member id to that disk, so that an id never comes back with an empty one: without a marker
//! there is no member, and a new one is only made together with a new id.
//!
//! The marker file is locked while a process uses the directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_files::{sync_directory, sync_directory_of};

const MARKER: &str = "MEMBER";
const MARKER_PART: &str = "MEMBER.part";
/// The disk under which a member that is not here yet has joined, or is about to.
const JOINING: &str = "JOINING";
const JOINING_PART: &str = "JOINING.part";
const FIRST_LINE: &str = "berth member 1";
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The member that owns a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, a UUID.
    pub cluster_id: String,
    /// The Raft id within the cluster.
    pub member_id: u64,
    /// This disk, a UUID made when the directory was.
    pub disk_id: String,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no member in it.
    #[error("{path} holds no member")]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// There is something in it already.
    #[error("{path} is not empty; a new member needs a directory of its own")]
    Occupied {
        /// The directory.
        path: PathBuf,
    },
    /// Another process works in it.
    #[error("{path} is in use by another process")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It belongs to another cluster.
    #[error("{path} belongs to cluster {actual}, not to cluster {expected}")]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// The cluster it belongs to.
        actual: String,
        /// The requested cluster.
        expected: String,
    },
    /// The marker cannot be understood.
    #[error("the marker in {path} is damaged or of a newer format: {what}")]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// It cannot be made, or taken from the other users of the machine.
    #[error("{path} could not be made a directory that only its owner reads")]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The operating system refused.
    #[error("the marker in {path} could not be {doing}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

/// A claimed directory; the lock is held until this is dropped.
#[derive(Debug)]
pub struct Claimed {
    /// The member that owns the directory.
    pub identity: Identity,
    _lock: File,
}

/// Claims the directory of an existing member.
pub fn open(path: &Path) -> Result<Claimed, Error> {
    let mut file = match File::open(path.join(MARKER)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Missing { path: path.into() });
        }
        Err(source) => return Err(io_error(path, "opened", source)),
    };
    lock(path, &file)?;
    make_private(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|source| {
        match source.kind() == io::ErrorKind::InvalidData {
            true => Error::Damaged {
                path: path.into(),
                what: "text",
            },
            false => io_error(path, "read", source),
        }
    })?;
    Ok(Claimed {
        identity: parse(path, &text)?,
        _lock: file,
    })
}

/// Makes the directory if there is none, and refuses one with anything in it: a new member is to
/// begin there.
pub fn expect_free(path: &Path) -> Result<(), Error> {
    // `lost+found` is made by mkfs on a disk of its own; the others are left by a start that was
    // interrupted, or found the disk full, before there was a member.
    const IGNORED: [&str; 4] = ["lost+found", MARKER_PART, JOINING, JOINING_PART];
    // Before anything is changed: what is refused may be another program's, as /tmp.
    let occupied = match fs::read_dir(path) {
        Ok(mut entries) => entries
            .any(|entry| entry.is_ok_and(|e| IGNORED.iter().all(|name| e.file_name() != *name))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(source) => return Err(io_error(path, "looked for", source)),
    };
    if occupied {
        return Err(Error::Occupied { path: path.into() });
    }
    make_private(path)
}

/// Returns the disk id under which a member joins that is to begin here: that of an earlier start
/// which was interrupted, or else `fresh`, which is durable when this returns. So the cluster knows
/// a repeated request to join as the same one.
///
/// There is no danger of an id that comes back with an empty disk: until there is a marker no member
/// has promised anything, and with it the disk id given here is deleted.
pub fn joining_disk(path: &Path, fresh: &str) -> Result<String, Error> {
    expect_free(path)?;
    let file = path.join(JOINING);
    let is_id = |id: &str| id.len() == fresh.len() && id.bytes().all(|b| b.is_ascii_graphic());
    match fs::read_to_string(&file) {
        Ok(earlier) if is_id(&earlier) => return Ok(earlier),
        // Torn: nothing was requested under it.
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(io_error(path, "read", source)),
    }
    let written = berth_files::replace(&file, fresh.as_bytes());
    written.map_err(|source| io_error(path, "written", source))?;
    Ok(fresh.to_owned())
}

/// Held while a directory is made that of a new member, or is emptied again: of two processes that do so
/// at once, one is refused. A member that runs holds its marker instead.
pub struct Exclusive {
    _directory: File,
}

/// Takes a directory, which exists.
pub fn exclusive(path: &Path) -> Result<Exclusive, Error> {
    let directory = File::open(path).map_err(|source| io_error(path, "opened", source))?;
    lock(path, &directory)?;
    Ok(Exclusive {
        _directory: directory,
    })
}

/// Makes this directory that of a new member. With an error it has no member of this process.
pub fn create(path: &Path, identity: Identity) -> Result<Claimed, Error> {
    expect_free(path)?;
    // Two that have both seen an empty directory would write their markers over each other's.
    let _exclusive = exclusive(path)?;
    expect_free(path)?;
    let text = format!(
        "{FIRST_LINE}\ncluster {}\nmember {}\ndisk {}\n",
        identity.cluster_id, identity.member_id, identity.disk_id
    );
    let write = || -> io::Result<File> {
        berth_files::replace(&path.join(MARKER), text.as_bytes())?;
        match fs::remove_file(path.join(JOINING)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        sync_directory(path)?;
        sync_directory_of(path)?;
        File::open(path.join(MARKER))
    };
    let file = write().map_err(|source| io_error(path, "written", source))?;
    lock(path, &file)?;
    Ok(Claimed {
        identity,
        _lock: file,
    })
}

/// Makes the directory, or takes it from the other users of the machine.
fn make_private(path: &Path) -> Result<(), Error> {
    let made = berth_files::make_private(path);
    let was_open = made.map_err(|source| Error::NotPrivate {
        path: path.into(),
        source,
    })?;
    if was_open {
        tracing::info!(directory = %path.display(), "data directory taken from group and others");
    }
    Ok(())
}

/// Refuses a directory of another cluster.
pub fn expect_cluster(path: &Path, identity: &Identity, expected: &str) -> Result<(), Error> {
    if identity.cluster_id == expected {
        return Ok(());
    }
    Err(Error::OtherCluster {
        path: path.into(),
        actual: identity.cluster_id.clone(),
        expected: expected.into(),
    })
}

/// A lock that was just given back may linger for a moment: a child that another thread is
/// starting shares it between fork and exec. So it is tried a few times.
fn lock(path: &Path, file: &File) -> Result<(), Error> {
    let mut left = LOCK_ATTEMPTS;
    loop {
        left -= 1;
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if left > 0 => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(Error::InUse { path: path.into() }),
            Err(TryLockError::Error(source)) => return Err(io_error(path, "locked", source)),
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Identity, Error> {
    let damaged = |what| Error::Damaged {
        path: path.into(),
        what,
    };
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(damaged("first line"));
    }
    let mut field = |name: &'static str| {
        lines
            .next()
            .and_then(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .filter(|value| !value.is_empty())
            .ok_or_else(|| damaged(name))
    };
    Ok(Identity {
        cluster_id: field("cluster")?.to_owned(),
        member_id: field("member")?
            .parse()
            .ok()
            .filter(|id| *id != 0)
            .ok_or_else(|| damaged("member"))?,
        disk_id: field("disk")?.to_owned(),
    })
}

fn io_error(path: &Path, doing: &'static str, source: io::Error) -> Error {
    Error::Io {
        path: path.into(),
        doing,
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn identity() -> Identity {
        Identity {
            cluster_id: "c1".into(),
            member_id: 3,
            disk_id: "d1".into(),
        }
    }

    /// Goal: a start that was interrupted goes on under the same disk id, until there is a member.
    #[test]
    fn a_disk_id_for_joining_is_the_same_until_there_is_a_member() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("member");
        assert_eq!(joining_disk(&path, "d1").expect("free"), "d1");
        assert_eq!(joining_disk(&path, "d2").expect("free"), "d1");
        // Torn in the middle of its first writing.
        fs::write(path.join(JOINING), "d").expect("write");
        assert_eq!(joining_disk(&path, "d3").expect("free"), "d3");
        drop(create(&path, identity()).expect("create"));
        assert!(!path.join(JOINING).exists());
        let refused = joining_disk(&path, "d4");
        assert!(
            matches!(refused, Err(Error::Occupied { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn a_marker_is_found_again() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("member");
        drop(create(&path, identity()).expect("create"));
        assert_eq!(open(&path).expect("open").identity, identity());
    }

    #[test]
    fn a_directory_serves_one_process_at_a_time() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("member");
        let held = create(&path, identity()).expect("create");
        assert!(matches!(open(&path), Err(Error::InUse { .. })));
        drop(held);
        let held = open(&path).expect("open");
        assert!(matches!(open(&path), Err(Error::InUse { .. })));
        drop(held);
    }

    /// Goal: of several that begin in a directory at once exactly one becomes its member, and its marker stays.
    #[test]
    fn one_of_many_becomes_the_member() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().expect("temporary folder");
            let path = folder.path().join("member");
            let identities = (0..4).map(|number| Identity {
                disk_id: format!("d{number}"),
                ..identity()
            });
            let begun: Vec<_> = identities
                .map(|identity| {
                    let path = path.clone();
                    std::thread::spawn(move || create(&path, identity))
                })
                .collect();
            let ended = begun
                .into_iter()
                .map(|thread| thread.join().expect("it ends"));
            let claimed: Vec<Claimed> = ended.filter_map(Result::ok).collect();
            let [claimed] = &claimed[..] else {
                panic!("{} members", claimed.len());
            };
            let marker = fs::read_to_string(path.join(MARKER)).expect("a marker");
            assert_eq!(
                parse(&path, &marker).expect("an identity"),
                claimed.identity
            );
        }
    }

    #[test]
    fn a_lost_disk_is_no_member() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert!(matches!(open(folder.path()), Err(Error::Missing { .. })));
    }

    #[test]
    fn a_new_member_needs_an_empty_directory() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::write(folder.path().join("something"), b"").expect("write");
        let open = Permissions::from_mode(0o1777);
        fs::set_permissions(folder.path(), open).expect("open to all");
        assert!(matches!(
            create(folder.path(), identity()),
            Err(Error::Occupied { .. })
        ));
        let mode = fs::metadata(folder.path()).expect("it is there");
        let mode = mode.permissions().mode() & 0o7777;
        assert_eq!(mode, 0o1777, "what is refused stays as it is");
    }

    #[test]
    fn another_cluster_is_refused() {
        let error = expect_cluster(Path::new("/data"), &identity(), "c2").expect_err("other");
        assert_eq!(
            error.to_string(),
            "/data belongs to cluster c1, not to cluster c2"
        );
    }

    #[test]
    fn a_damaged_marker_is_no_identity() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for text in [
            "",
            "berth member 2\n",
            "berth member 1\ncluster c\nmember x\ndisk d\n",
        ] {
            fs::write(folder.path().join(MARKER), text).expect("write");
            assert!(matches!(open(folder.path()), Err(Error::Damaged { .. })));
        }
    }
}
