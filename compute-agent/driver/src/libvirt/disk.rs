//! The files of a guest: its disks, as copy-on-write layers over images, and its console log.
//!
//! Invariant: what is made here lies in the guest's own directory; every program that is run for it
//! has bounded time and memory; and none guesses the format of a file, or opens one that was not
//! inspected.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use berth_domain::id::VmUid;
use berth_domain::transfer::DiskCopy;
use berth_domain::vm::Disk;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::inspect;
use crate::domain::DomainSpec;
use crate::error::Error;
use crate::image::Size;
use crate::seed;
use crate::xml::Settings;

/// What a program may take that only reads and writes the header of a disk: milliseconds and a few
/// megabytes. The same limits as in Nova.
pub(super) const HEADER_LIMITS: Limits = Limits {
    time: Duration::from_secs(30),
    address_space: 1 << 30,
};

/// What a program may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// How long it may run, and how much time of a CPU it may use.
    pub(super) time: Duration,
    /// How many bytes it may map. An image whose tables are declared to be huge has them allocated.
    pub(super) address_space: u64,
}

/// How often a running program is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// Makes the guest's directory and its disks, empty ones in place of those that an earlier
/// attempt left: the guest has not run yet.
pub(super) fn make(guest: &DomainSpec, settings: &Settings, qemu_img: &Path) -> Result<(), Error> {
    for directory in [&settings.directory(guest.uid), &settings.runtime_dir] {
        std::fs::create_dir_all(directory).map_err(|error| {
            Error::refused(format!("{} cannot be made: {error}", directory.display()))
        })?;
    }
    for (index, disk) in guest.spec.disks.iter().enumerate() {
        let file = settings.disk(guest.uid, index);
        if disk.seed {
            make_seed(guest, index, settings, qemu_img)?;
            continue;
        }
        inspect::image(disk, Size::AtMost(disk.size_bytes()), settings)?;
        make_disk(disk, &file, settings, qemu_img)?;
    }
    Ok(())
}

/// Makes the seed, where it is stated what is on it; otherwise the one that is there stays.
fn make_seed(
    guest: &DomainSpec,
    index: usize,
    settings: &Settings,
    qemu_img: &Path,
) -> Result<(), Error> {
    let path = settings.disk(guest.uid, index);
    let Some(first_boot) = &guest.first_boot else {
        return match path.exists() {
            true => Ok(()),
            false => Err(guest.disk_missing(index, path)),
        };
    };
    let plain = settings.directory(guest.uid).join("seed");
    let wrong = |error: std::io::Error| {
        Error::refused(format!("{} cannot be written: {error}", plain.display()))
    };
    let bytes = seed::image(&guest.vm, guest.uid, first_boot).map_err(wrong)?;
    make_private(&plain)?;
    make_private(&path)?;
    std::fs::write(&plain, bytes).map_err(wrong)?;
    let mut command = Command::new(qemu_img);
    command.args(["convert", "-q", "-f", "raw", "-O", "qcow2"]);
    command.arg(&plain).arg(&path);
    let made = run(command, HEADER_LIMITS);
    std::fs::remove_file(&plain).map_err(wrong)?;
    made
}

/// Makes an empty file that only its owner may read, in place of one that is there: it is to hold secrets,
/// and qemu-img writes into the file that it finds.
fn make_private(file: &Path) -> Result<(), Error> {
    let _ = std::fs::remove_file(file);
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(file);
    made.map(drop)
        .map_err(|error| Error::refused(format!("{} cannot be made: {error}", file.display())))
}

/// Names the file that marks the disks beside it as being received, without an owner yet.
const ARRIVING: &str = "arriving";
/// Names the file that marks the disks beside it as being copied to another host.
const LEAVING: &str = "leaving";

/// Makes empty disks for a guest that comes with its disks, in place of those of an earlier attempt,
/// and marks them.
pub(super) fn make_to_receive(
    guest: &DomainSpec,
    copies: &[DiskCopy],
    settings: &Settings,
    qemu_img: &Path,
) -> Result<(), Error> {
    for copy in copies {
        let index = copy.index as usize;
        let Some(disk) = guest.spec.disks.get(index) else {
            let message = format!("guest {} has no disk {index} to be copied", guest.vm);
            return Err(Error::refused(message));
        };
        let bytes = disk.size_bytes();
        if bytes != copy.virtual_bytes {
            return Err(Error::refused(format!(
                "disk {index} of guest {} has {} bytes on the source and {bytes} here",
                guest.vm, copy.virtual_bytes
            )));
        }
        let file = settings.disk(guest.uid, index);
        // What lies there without a mark is not ours to overwrite: the two hosts do share it, or a
        // guest was left here.
        if file.exists() && !is_marked(guest.uid, settings, ARRIVING) {
            return Err(Error::refused(format!(
                "{} is there already, and was not made to receive a guest",
                file.display()
            )));
        }
    }
    mark(guest.uid, settings, ARRIVING)?;
    for copy in copies {
        let index = copy.index as usize;
        let (disk, file) = (&guest.spec.disks[index], settings.disk(guest.uid, index));
        inspect::image(disk, Size::Any, settings)?;
        if disk.seed {
            make_private(&file)?;
        }
        make_disk(disk, &file, settings, qemu_img)?;
    }
    Ok(())
}

/// Deletes the disks of a guest that was to be received, and did not come.
pub(super) fn remove_arriving(vm: VmUid, settings: &Settings) -> Result<(), Error> {
    if is_marked(vm, settings, ARRIVING) {
        return remove(vm, settings);
    }
    Ok(())
}

/// The guest runs here: its disks are its own.
pub(super) fn arrived(vm: VmUid, settings: &Settings) {
    unmark(vm, settings, ARRIVING);
}

/// Marks whether the disks of a guest that is being sent are copied.
pub(super) fn leaves(vm: VmUid, is_copied: bool, settings: &Settings) -> Result<(), Error> {
    unmark(vm, settings, ARRIVING);
    if is_copied {
        return mark(vm, settings, LEAVING);
    }
    unmark(vm, settings, LEAVING);
    Ok(())
}

/// The guest did not leave.
pub(super) fn stayed(vm: VmUid, settings: &Settings) {
    unmark(vm, settings, LEAVING);
}

/// Deletes the disks of a guest that has left, if they were copied; its socket in any case.
pub(super) fn remove_left(vm: VmUid, settings: &Settings) -> Result<(), Error> {
    if is_marked(vm, settings, LEAVING) {
        return remove(vm, settings);
    }
    remove_socket(vm, settings);
    Ok(())
}

fn is_marked(vm: VmUid, settings: &Settings, mark: &str) -> bool {
    settings.directory(vm).join(mark).exists()
}

fn mark(vm: VmUid, settings: &Settings, mark: &str) -> Result<(), Error> {
    let file = settings.directory(vm).join(mark);
    std::fs::write(&file, [])
        .map_err(|error| Error::refused(format!("{} cannot be written: {error}", file.display())))
}

fn unmark(vm: VmUid, settings: &Settings, mark: &str) {
    // Hardly ever there; one that cannot be removed now is when it matters again.
    let _ = std::fs::remove_file(settings.directory(vm).join(mark));
}

/// Removes the guest's directory and its socket.
pub(super) fn remove(vm: VmUid, settings: &Settings) -> Result<(), Error> {
    remove_socket(vm, settings);
    let directory = settings.directory(vm);
    match std::fs::remove_dir_all(&directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::refused(format!(
            "{} cannot be removed: {error}",
            directory.display()
        ))),
    }
}

/// Removes the guest's socket. libvirt removes it too; a leftover does no harm.
pub(super) fn remove_socket(vm: VmUid, settings: &Settings) {
    let _ = std::fs::remove_file(settings.console_socket(vm));
}

fn make_disk(disk: &Disk, file: &Path, settings: &Settings, qemu_img: &Path) -> Result<(), Error> {
    let mut command = Command::new(qemu_img);
    command.args(["create", "-q", "-f", "qcow2"]);
    if let Some(image) = &disk.image {
        // The size is given, so that there is no need to open the image (-u).
        command.args(["-u", "-F", disk.format.as_str(), "-b"]);
        command.arg(settings.image(image)?);
    }
    command.arg(file).arg(disk.size_bytes().to_string());
    run(command, HEADER_LIMITS)
}

/// Limits what a process may take. It was started a moment before, and may have ended: then there is
/// nothing to be limited.
fn limit(process: u32, limits: Limits) -> Result<(), Error> {
    // Without an id the calls below would limit this process.
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.expect("the kernel gives processes positive ids");
    for (resource, most) in [
        (Resource::As, limits.address_space),
        (Resource::Cpu, limits.time.as_secs().max(1)),
        (Resource::Core, 0),
    ] {
        // A lower limit of this process's own stays.
        let own = getrlimit(resource).maximum;
        let most = Some(own.map_or(most, |own| own.min(most)));
        let limit = Rlimit {
            current: most,
            maximum: most,
        };
        match prlimit(Some(pid), resource, limit) {
            Ok(_) | Err(Errno::SRCH) => {}
            Err(error) => {
                let message = format!("a program cannot be limited: {error}");
                return Err(Error::refused(message));
            }
        }
    }
    Ok(())
}

/// Runs a program to its end, or kills it.
pub(super) fn run(mut command: Command, limits: Limits) -> Result<(), Error> {
    let time_max = limits.time;
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        // Each arena of malloc reserves address space.
        .env("MALLOC_ARENA_MAX", "2")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Error::refused(format!("{program} cannot be run: {error}")))?;
    if let Err(error) = limit(child.id(), limits) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    let end = Instant::now() + time_max;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => std::thread::sleep(LOOK_PERIOD),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = time_max.as_secs();
                return Err(Error::refused(format!(
                    "{program} did not end within {seconds} s"
                )));
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        // Whatever can be read of it; the status is what counts.
        let _ = stderr.take(4096).read_to_string(&mut said);
    }
    let why = match said.trim() {
        // One that exceeds its limits is killed.
        "" => status.to_string(),
        said => said.to_owned(),
    };
    Err(Error::refused(format!("{program} failed: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_bounded_and_quoted() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        assert_eq!(run(shell("true"), HEADER_LIMITS), Ok(()));
        let failed = run(shell("echo no room >&2; exit 1"), HEADER_LIMITS).unwrap_err();
        assert_eq!(failed.to_string(), "sh failed: no room");
        let limits = Limits {
            time: Duration::from_millis(50),
            ..HEADER_LIMITS
        };
        let late = run(shell("exec sleep 60"), limits).unwrap_err();
        assert!(late.to_string().contains("did not end"));
        // Waits until the limits apply, however late that is.
        let wait =
            "until [ \"$(ulimit -v) $(ulimit -t) $(ulimit -c)\" = '1048576 30 0' ]; do :; done";
        let script = format!("{wait}; echo limited >&2; false");
        let limited = run(shell(&script), HEADER_LIMITS).unwrap_err();
        assert_eq!(limited.to_string(), "sh failed: limited");
        let absent = run(Command::new("/nonexistent/tool"), HEADER_LIMITS).unwrap_err();
        assert!(absent.to_string().contains("cannot be run"));
    }
}
