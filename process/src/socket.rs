//! A socket of this machine, in a folder of its own.
//!
//! Invariant: only the user of the program can connect to it, and the socket of a running program is
//! never replaced.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

/// The longest path of a socket, in bytes: the size of `sun_path` without its NUL.
const PATH_MAX: usize = 107;

/// Reads an endpoint, `unix:///path` or `unix:/path`.
///
/// # Errors
///
/// When it is not of that form, or too long.
pub fn path(endpoint: &str) -> Result<PathBuf, String> {
    let rest = endpoint.strip_prefix("unix:");
    let path = rest.map(|rest| rest.strip_prefix("//").unwrap_or(rest));
    let path = path.filter(|path| path.starts_with('/') && !path.ends_with('/'));
    let path = path.ok_or_else(|| format!("{endpoint:?} is not of the form unix:///path"))?;
    if path.len() > PATH_MAX || path.contains('\0') {
        return Err(format!(
            "{endpoint:?} is longer than {PATH_MAX} bytes, or no path"
        ));
    }
    Ok(PathBuf::from(path))
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another program has it.
    #[error("a program serves {} already", .0.display())]
    Taken(PathBuf),
    /// Something else is there.
    #[error("{} is there and no socket; it is not removed", .0.display())]
    Foreign(PathBuf),
    /// The operating system does not make it.
    #[error("cannot listen on {}", .path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A socket that is listened on; its file is removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Socket {
    /// Returns what comes in; nothing more the second time.
    ///
    /// # Panics
    ///
    /// When it was taken before.
    pub fn incoming(&mut self) -> UnixListenerStream {
        let listener = self.listener.take().expect("it is listened on once");
        UnixListenerStream::new(listener)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Left behind it is only stale, and removed by the next run.
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens; a missing directory is created, for this user alone, and a stale socket is removed.
///
/// # Errors
///
/// When something else is there, or it cannot be made.
pub fn listen(path: &Path) -> Result<Socket, Error> {
    let failed = |source| Error::Listen {
        path: path.to_owned(),
        source,
    };
    if let Some(folder) = path.parent() {
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(failed)?;
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(there) if !there.file_type().is_socket() => return Err(Error::Foreign(path.to_owned())),
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(Error::Taken(path.to_owned())),
        Ok(_) => fs::remove_file(path).map_err(failed)?,
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(Socket {
        path: path.to_owned(),
        listener: Some(listener),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_paths() {
        for good in ["unix:///run/csi.sock", "unix:/run/csi.sock"] {
            assert_eq!(path(good), Ok(PathBuf::from("/run/csi.sock")), "{good}");
        }
        let long = format!("unix:///{}", "a".repeat(108));
        for bad in [
            "",
            "/run/x",
            "unix://",
            "unix://run/x",
            "unix:///run/",
            "tcp://h:1",
            &long,
        ] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_stale_socket_is_removed_and_a_served_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("csi/csi.sock");
        let socket = listen(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert!(matches!(listen(&path), Err(Error::Taken(_))));
        drop(socket);
        assert!(!path.exists());
        // What a program that was killed leaves behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(listen(&path).unwrap());
        fs::write(&path, "mine").unwrap();
        assert!(matches!(listen(&path), Err(Error::Foreign(_))));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }
}
