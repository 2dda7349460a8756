//! Block devices: their users, and overwriting them.
//!
//! A device that is mounted, or a part of another one, is held by the kernel: no process can open it
//! exclusively then. Other processes that have it open are listed by `/proc`.
//!
//! Invariant: while a device is overwritten it cannot be mounted; what is reported as overwritten is on
//! the medium.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use berth_domain::name::VolumeId;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::super::folder::io_error;
use super::super::manager::{BEGINNING_BYTES, Error, Watch, Wipe};
use super::Settings;
use crate::holders::holders;

/// How much is written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// What memory has to be aligned to that is written past the caches.
const ALIGN: usize = 4096;

/// How often it is tried to open a device for us alone.
const OPEN_TRIES: u32 = 3;
const OPEN_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Returns the processes that have a device open, and its mounts.
pub(crate) fn users(settings: &Settings, id: &VolumeId, path: &Path) -> Result<Vec<String>, Error> {
    // A logical volume's path leads to the kernel's name of it, which is what processes show.
    let real = fs::canonicalize(path).map_err(io_error("open", path))?;
    let found = holders(&settings.proc, &real).map_err(|why| Error::Unusable {
        id: id.clone(),
        why: format!("its users cannot be determined: {why}"),
    })?;
    let mut users: Vec<String> = found.iter().map(ToString::to_string).collect();
    let mut tries = OPEN_TRIES;
    loop {
        match open(path, false) {
            Ok(_) => return Ok(users),
            Err(error) if is_busy(&error) => {
                tries -= 1;
                if tries == 0 || !users.is_empty() {
                    users.push(kernel_user(settings, path));
                    return Ok(users);
                }
                // Another thread of ours that looks, or a program that it is about to start.
                thread::sleep(OPEN_AGAIN_AFTER);
            }
            Err(error) => return Err(io_error("open", path)(error)),
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

/// Returns what the kernel has a device for.
fn kernel_user(settings: &Settings, path: &Path) -> String {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounts = fs::read_to_string(settings.proc.join("self/mounts")).unwrap_or_default();
    let place = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (device, place) = (words.next()?, words.next()?);
        let is_it = fs::canonicalize(device).is_ok_and(|device| device == real);
        is_it.then(|| format!("mounted at {place}"))
    });
    place.unwrap_or_else(|| "mounted elsewhere, or a part of another device".to_owned())
}

/// Opens a device for us alone.
fn open(path: &Path, is_direct: bool) -> io::Result<File> {
    let mut flags = OFlags::EXCL;
    if is_direct {
        flags |= OFlags::DIRECT;
    }
    let flags = i32::try_from(flags.bits()).expect("flags of the kernel");
    OpenOptions::new()
        .write(true)
        .custom_flags(flags)
        .open(path)
}

/// Checks that the device has no user, and overwrites it as requested.
pub(super) fn wipe(
    settings: &Settings,
    id: &VolumeId,
    (path, size_bytes): (&Path, u64),
    wipe: Wipe,
    watch: &Watch<'_>,
) -> Result<(), Error> {
    check_unused(settings, id, path)?;
    let (from, until) = match wipe {
        Wipe::Nothing => return Ok(()),
        Wipe::Beginning => (0, BEGINNING_BYTES.min(size_bytes)),
        Wipe::Everything { from_bytes } => (from_bytes.min(size_bytes), size_bytes),
    };
    // Whole blocks; a device is a multiple of them.
    let from = from - from % ALIGN as u64;
    let has_progress = matches!(wipe, Wipe::Everything { .. });
    overwrite(
        settings,
        id,
        path,
        (from, until),
        has_progress.then_some(watch),
    )?;
    // A process that opened it meanwhile may have written behind us.
    check_unused(settings, id, path)
}

/// Zeroes the beginning of a device that was made just now.
pub(super) fn zero_beginning(
    settings: &Settings,
    id: &VolumeId,
    (path, size_bytes): (&Path, u64),
) -> Result<(), Error> {
    let until = BEGINNING_BYTES.min(size_bytes);
    overwrite(settings, id, path, (0, until), None)
}

fn check_unused(settings: &Settings, id: &VolumeId, path: &Path) -> Result<(), Error> {
    let by = users(settings, id, path)?;
    match by.is_empty() {
        true => Ok(()),
        false => Err(Error::Busy { id: id.clone(), by }),
    }
}

fn overwrite(
    settings: &Settings,
    id: &VolumeId,
    path: &Path,
    (from, until): (u64, u64),
    watch: Option<&Watch<'_>>,
) -> Result<(), Error> {
    let file = match open(path, true) {
        // Not every file system under a test's file can do that.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            open(path, false)
        }
        opened => opened,
    };
    let file = file.map_err(|error| match is_busy(&error) {
        true => Error::Busy {
            id: id.clone(),
            by: vec![kernel_user(settings, path)],
        },
        false => io_error("open", path)(error),
    })?;
    let memory = vec![0_u8; WRITE_BYTES + ALIGN];
    let skip = memory.as_ptr().align_offset(ALIGN);
    let zeros = &memory[skip..skip + WRITE_BYTES];
    let mut done = from;
    let mut reported = from;
    while done < until {
        watch.map_or(Ok(()), |watch| watch.check(id))?;
        let length = (until - done).min(WRITE_BYTES as u64);
        let part = &zeros[..usize::try_from(length).expect("at most what is written at a time")];
        file.write_all_at(part, done)
            .map_err(io_error("overwrite", path))?;
        done += length;
        if done == until || done - reported >= settings.piece_bytes {
            file.sync_data().map_err(io_error("sync", path))?;
            reported = done;
            if let Some(watch) = watch {
                (watch.progress)(done);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicBool, Ordering};

    const MIB: u64 = 1 << 20;

    fn settings() -> Settings {
        Settings {
            piece_bytes: 4 * MIB,
            ..Settings::new(Path::new("/nowhere"))
        }
    }

    /// Goal: exactly the given range is overwritten, piece by piece, and it stops on request.
    /// Method: a file in the place of a device, of an odd size.
    #[test]
    fn what_is_told_is_overwritten() {
        let id = VolumeId::new("a-0123456789abcdef0123456789abcdef").unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let size = 10 * MIB + 8192;
        let fill = || fs::write(file.path(), vec![1; usize::try_from(size).unwrap()]).unwrap();
        let ones = |from: u64| {
            let bytes = fs::read(file.path()).unwrap();
            assert_eq!(bytes.len() as u64, size);
            let at = usize::try_from(from).unwrap();
            (
                bytes[..at].iter().all(|byte| *byte == 0),
                bytes[at..].iter().all(|byte| *byte == 1),
            )
        };
        let stop = AtomicBool::new(false);
        let reported = RefCell::new(Vec::new());
        let progress = |bytes| reported.borrow_mut().push(bytes);
        let watch = Watch {
            stop: &stop,
            progress: &progress,
        };
        let run = |from, watch: &Watch<'_>| {
            overwrite(&settings(), &id, file.path(), (from, size), Some(watch))
        };
        fill();
        run(0, &watch).unwrap();
        assert_eq!(reported.take(), [4 * MIB, 8 * MIB, size]);
        assert_eq!(ones(size), (true, true));
        fill();
        zero_beginning(&settings(), &id, (file.path(), size)).unwrap();
        assert_eq!(ones(BEGINNING_BYTES), (true, true));
        fill();
        run(8 * MIB, &watch).unwrap();
        assert_eq!(reported.take(), [size]);
        assert_eq!(ones(0), (true, false));
        let stopping = |_| stop.store(true, Ordering::SeqCst);
        let watch = Watch {
            stop: &stop,
            progress: &stopping,
        };
        fill();
        let stopped = run(0, &watch);
        assert_eq!(stopped, Err(Error::Stopped { id: id.clone() }));
        assert_eq!(ones(4 * MIB), (true, true));
        let gone = overwrite(
            &settings(),
            &id,
            Path::new("/dev/berth-absent"),
            (0, 1),
            None,
        );
        let said = gone.unwrap_err().to_string();
        assert!(
            said.starts_with("cannot open /dev/berth-absent: No such file"),
            "{said}"
        );
    }
}
