//! A guest's console: a log that is read, and a socket that is typed on.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::driver::{CONSOLE_CHUNK_MAX, Chunk};
use crate::error::Error;

/// How long the connection is held after typing: the guest's serial port takes few bytes at a
/// time, and what it has not taken is lost when the connection closes.
const HOLD: Duration = Duration::from_millis(500);

/// How long the guest may take for each byte.
const BYTE_TIME: Duration = Duration::from_millis(2);

/// The most that is typed in one call.
const INPUT_MAX: usize = 4096;

/// Reads the log. One that is shorter than `offset` was rotated (libvirt's log daemon does so
/// after some megabytes), and is read from its begin.
pub(super) fn read(log: &Path, offset: u64) -> Result<Chunk, Error> {
    let unreadable = |error: std::io::Error| {
        Error::refused(format!("{} cannot be read: {error}", log.display()))
    };
    let mut file = match File::open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Chunk::default()),
        Err(error) => return Err(unreadable(error)),
    };
    let length = file.metadata().map_err(unreadable)?.len();
    let offset = if offset > length { 0 } else { offset };
    file.seek(SeekFrom::Start(offset)).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(CONSOLE_CHUNK_MAX as u64)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(Chunk { offset, bytes })
}

/// Types on the socket.
pub(super) fn write(socket: &Path, bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() > INPUT_MAX {
        return Err(Error::refused(format!(
            "at most {INPUT_MAX} bytes are typed at once"
        )));
    }
    let broken = |error: std::io::Error| {
        Error::refused(format!("{} cannot be typed on: {error}", socket.display()))
    };
    let mut stream = UnixStream::connect(socket).map_err(broken)?;
    stream.set_write_timeout(Some(HOLD)).map_err(broken)?;
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .map_err(broken)?;
    stream.write_all(bytes).map_err(broken)?;
    let typing = BYTE_TIME * u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let end = Instant::now() + HOLD + typing;
    let mut heard = [0; 4096];
    // What the guest writes meanwhile is in the log; here it only must not block the guest.
    while Instant::now() < end {
        match stream.read(&mut heard) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(broken(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_in_pieces_and_from_its_begin_when_it_was_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("console.log");
        assert_eq!(read(&log, 5).unwrap(), Chunk::default());
        std::fs::write(&log, "hello").unwrap();
        assert_eq!(read(&log, 2).unwrap().bytes, b"llo");
        assert!(read(&log, 5).unwrap().bytes.is_empty());
        std::fs::write(&log, "new").unwrap();
        let chunk = read(&log, 5).unwrap();
        assert_eq!(
            (chunk.offset, chunk.bytes.as_slice()),
            (0, b"new".as_slice())
        );
    }

    /// Goal: what is typed arrives whole although the guest writes all the while.
    #[test]
    fn typing_arrives_while_the_guest_writes() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("console");
        let absent = write(&socket, b"x").unwrap_err();
        assert!(absent.to_string().contains("cannot be typed on"));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::thread::scope(|scope| {
            let guest = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut heard = [0; 5];
                stream.write_all(&[b'.'; 100_000]).unwrap();
                stream.read_exact(&mut heard).unwrap();
                heard
            });
            write(&socket, b"ping\n").unwrap();
            assert_eq!(&guest.join().unwrap(), b"ping\n");
        });
        assert!(write(&socket, &[0; INPUT_MAX + 1]).is_err());
    }
}
