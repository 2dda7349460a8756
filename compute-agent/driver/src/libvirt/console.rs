//! A guest's console: a log that is read, and a socket that is typed on.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::driver::{CONSOLE_CHUNK_MAX, CONSOLE_INPUT_MAX, Chunk, ConsoleInput, ConsoleLog};
use crate::error::Error;

/// How long the connection is held after typing: the guest's serial port takes few bytes at a time.
const HOLD: Duration = Duration::from_millis(500);

/// How long the guest may take for each byte.
const BYTE_TIME: Duration = Duration::from_millis(2);

/// How long a guest may take nothing.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// How often it is looked at whether a connection that is to close is closed already.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

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

/// Returns which file the log is, and where it ends.
pub(super) fn log(log: &Path) -> Result<ConsoleLog, Error> {
    match log.metadata() {
        Ok(metadata) => Ok(ConsoleLog {
            // The number of the device differs between hosts that share a file system.
            id: format!("file {}", metadata.ino()),
            end: metadata.len(),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(ConsoleLog {
            id: String::new(),
            end: 0,
        }),
        Err(error) => Err(Error::refused(format!(
            "{} cannot be read: {error}",
            log.display()
        ))),
    }
}

/// The connection to the socket. QEMU serves one at a time, and what it has not taken is lost when the
/// connection closes.
pub(super) struct Input {
    socket: PathBuf,
    stream: UnixStream,
    drain: Option<JoinHandle<()>>,
    /// When the guest will have taken everything.
    taken_at: Instant,
}

impl Input {
    /// Connects to the socket.
    pub(super) fn open(socket: &Path) -> Result<Self, Error> {
        let connect = || -> io::Result<(UnixStream, UnixStream)> {
            let stream = UnixStream::connect(socket)?;
            stream.set_write_timeout(Some(HOLD))?;
            let output = stream.try_clone()?;
            Ok((stream, output))
        };
        let (stream, output) = connect().map_err(|error| broken(socket, &error))?;
        Ok(Self {
            socket: socket.to_owned(),
            stream,
            drain: Some(thread::spawn(move || drain(output))),
            taken_at: Instant::now(),
        })
    }

    /// Writes everything, to a guest that may take it slowly. An error of one that takes nothing: some
    /// may have been typed.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        let mut end = Instant::now() + WRITE_TIME_MAX;
        while !rest.is_empty() {
            let error = match self.stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    end = Instant::now() + WRITE_TIME_MAX;
                    continue;
                }
                Err(error) => error,
            };
            let is_slow = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            if is_slow && Instant::now() >= end {
                return Err(io::Error::other("the guest takes nothing"));
            }
            if !is_slow && error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(())
    }
}

impl ConsoleInput for Input {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > CONSOLE_INPUT_MAX {
            return Err(Error::refused(format!(
                "at most {CONSOLE_INPUT_MAX} bytes are typed at once"
            )));
        }
        self.write_all(bytes)
            .map_err(|error| broken(&self.socket, &error))?;
        let taking = HOLD + BYTE_TIME * u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.taken_at = self.taken_at.max(Instant::now() + taking);
        Ok(())
    }

    fn is_open(&self) -> bool {
        // QEMU closes the connection when it ends.
        self.drain
            .as_ref()
            .is_some_and(|drain| !drain.is_finished())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        while Instant::now() < self.taken_at && self.is_open() {
            thread::sleep(LOOK_PERIOD);
        }
        // It is closed in any case; this wakes the thread that reads.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(drain) = self.drain.take() {
            // A panic of the thread was reported when it happened.
            let _ = drain.join();
        }
    }
}

/// Reads what the guest writes until the connection ends. It is in the log; here it only must not
/// block the guest.
fn drain(mut output: UnixStream) {
    let mut read = [0; 4096];
    loop {
        match output.read(&mut read) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn broken(socket: &Path, error: &io::Error) -> Error {
    Error::refused(format!("{} cannot be typed on: {error}", socket.display()))
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
        let absent = Input::open(&socket).err().unwrap();
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
            let mut input = Input::open(&socket).unwrap();
            assert!(input.write(&[0; CONSOLE_INPUT_MAX + 1]).is_err());
            input.write(b"pi").unwrap();
            input.write(b"ng\n").unwrap();
            drop(input);
            assert_eq!(&guest.join().unwrap(), b"ping\n");
        });
    }
}
