//! The processes that have a device open or mapped, by `/proc`.
//!
//! What it is not: a lock. The kernel lets any number of programs open such a device; a program
//! that was left behind by an agent that was killed, or a guest that runs on, would write to it
//! after it was erased. So it is checked before and after.
//!
//! Invariant: a process that cannot be looked into is an error, and does not count as harmless.
//! Processes outside of our own process namespace cannot be seen at all.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The most holders that are reported.
const HOLDERS_MAX: usize = 8;

/// A process that has a device open or mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// The name of its program, as the kernel keeps it.
    pub program: String,
    /// Whether it was started to erase that very device: by an agent that was killed, say.
    pub is_eraser: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.program)
    }
}

/// Returns who holds the device, from `proc`, which is `/proc`.
///
/// # Errors
///
/// When the device or a process cannot be looked at, as a sentence.
pub(crate) fn holders(proc: &Path, device: &Path) -> Result<Vec<Holder>, String> {
    let metadata =
        fs::metadata(device).map_err(|error| format!("{}: {error}", device.display()))?;
    let name = device.file_name().and_then(|name| name.to_str());
    let target = TargetDevice {
        number: number(&metadata),
        name: name.unwrap_or_default().to_owned(),
    };
    let processes = fs::read_dir(proc).map_err(|error| format!("{}: {error}", proc.display()))?;
    let mut holders = Vec::new();
    for process in processes {
        let directory = process.map_err(|error| error.to_string())?.path();
        let pid = directory.file_name().and_then(|name| name.to_str());
        let Some(pid) = pid.and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is_held = || {
            let is_held = target.is_held_by(&directory);
            is_held.map_err(|error| unreadable(&directory, pid, &error))
        };
        if holders.len() >= HOLDERS_MAX || !is_held()? {
            continue;
        }
        let holder = Holder {
            pid,
            program: program(&directory),
            is_eraser: is_eraser(&directory, device),
        };
        // A process that has ended since has no command line: an eraser would count as another
        // program, and fail the erase that only has to wait for it.
        if holder.is_eraser || is_held()? {
            holders.push(holder);
        }
    }
    Ok(holders)
}

/// Returns what the kernel knows a device by. Block and character devices are counted apart.
fn number(metadata: &fs::Metadata) -> Option<(bool, u64)> {
    let kind = metadata.file_type();
    let is_device = kind.is_char_device() || kind.is_block_device();
    is_device.then(|| (kind.is_block_device(), metadata.rdev()))
}

fn unreadable(directory: &Path, pid: u32, error: &io::Error) -> String {
    let program = program(directory);
    format!("process {pid} ({program}) cannot be looked into: {error}; this takes root")
}

fn program(directory: &Path) -> String {
    let name = fs::read_to_string(directory.join("comm")).unwrap_or_default();
    name.trim().to_owned()
}

/// Returns whether it was started with what this crate gives to daxio for that device.
fn is_eraser(directory: &Path, device: &Path) -> bool {
    let Ok(line) = fs::read(directory.join("cmdline")) else {
        return false;
    };
    let has = |argument: &[u8]| line.split(|byte| *byte == 0).any(|word| word == argument);
    has(b"--zero") && has(device.as_os_str().as_encoded_bytes())
}

/// What is looked for.
struct TargetDevice {
    /// Whether it is a block device, and its number; none for what is no device.
    number: Option<(bool, u64)>,
    /// The last part of its path.
    name: String,
}

impl TargetDevice {
    fn is_held_by(&self, process: &Path) -> io::Result<bool> {
        Ok(self.is_open_in(process)? || self.is_mapped_in(process)?)
    }

    fn is_open_in(&self, process: &Path) -> io::Result<bool> {
        let Some(files) = unless_ended(fs::read_dir(process.join("fd")))? else {
            return Ok(false);
        };
        for file in files {
            let Some(file) = unless_ended(file)? else {
                return Ok(false);
            };
            if self.is_it(&file.path())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether an open file is the device. Only what bears its name, or is a device by its
    /// position, is examined closely: to stat a file of a server that is unreachable takes for ever.
    fn is_it(&self, file: &Path) -> io::Result<bool> {
        let Some(target) = unless_ended(fs::read_link(file))? else {
            return Ok(false);
        };
        if !(self.is_named(&target) || target.starts_with("/dev")) {
            return Ok(false);
        }
        let Some(metadata) = unless_ended(fs::metadata(file))? else {
            return Ok(false);
        };
        Ok(match self.number {
            Some(_) => number(&metadata) == self.number,
            None => self.is_named(&target),
        })
    }

    /// A mapping outlives the open file that it was made from. Its file is known by name
    /// alone; in another mount namespace, too, the device has its own name.
    fn is_mapped_in(&self, process: &Path) -> io::Result<bool> {
        let Some(maps) = unless_ended(fs::read(process.join("maps")))? else {
            return Ok(false);
        };
        let maps = String::from_utf8_lossy(&maps);
        // Address, rights, offset, device, inode; then the path, which may have blanks in it.
        let path = |line: &str| line.find('/').map(|start| PathBuf::from(&line[start..]));
        Ok(maps
            .lines()
            .filter_map(path)
            .any(|path| self.is_named(&path)))
    }

    fn is_named(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or_default();
        name.strip_suffix(" (deleted)").unwrap_or(name) == self.name
    }
}

/// A process, or one of its files, that has ended meanwhile holds nothing.
fn unless_ended<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // ESRCH: the process ended while it was read.
        Err(error) if error.raw_os_error() == Some(3) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A tree in the place of `/proc`.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn process(&self, pid: u32, files: &[&str], maps: &str) {
            let directory = self.0.path().join(pid.to_string());
            fs::create_dir_all(directory.join("fd")).unwrap();
            for (number, file) in files.iter().enumerate() {
                symlink(file, directory.join("fd").join(number.to_string())).unwrap();
            }
            fs::write(directory.join("maps"), maps).unwrap();
            fs::write(directory.join("comm"), format!("program-{pid}\n")).unwrap();
        }

        fn holders(&self, device: &str) -> Result<Vec<u32>, String> {
            let found = holders(self.0.path(), Path::new(device))?;
            let mut pids: Vec<u32> = found.iter().map(|holder| holder.pid).collect();
            pids.sort_unstable();
            Ok(pids)
        }
    }

    #[test]
    fn those_who_have_it_open_or_mapped_are_told() {
        let tree = Tree::new();
        fs::create_dir(tree.0.path().join("sys")).unwrap();
        tree.process(1, &["/dev/null", "/etc/passwd", "/gone"], "");
        tree.process(2, &["/dev/null", "/dev/full"], "");
        let mapped = "7f0000000000-7f0000200000 rw-s 00000000 00:05 7 /dev/full\n";
        tree.process(3, &[], mapped);
        // Under its own name elsewhere, as in a mount namespace, but not there for us.
        let deleted = "7f0000000000-7f0000200000 rw-s 00000000 00:05 7 /x y/full (deleted)\n";
        tree.process(4, &[], deleted);
        let other = "7f0000000000-7f0000200000 r--p 00000000 00:05 7 /usr/lib/fullness.so\n";
        tree.process(5, &[], other);
        assert_eq!(tree.holders("/dev/full"), Ok(vec![2, 3, 4]));
        assert_eq!(tree.holders("/dev/zero"), Ok(vec![]));
        assert!(
            tree.holders("/dev/berth-absent")
                .unwrap_err()
                .contains("No such file")
        );
        let found = holders(tree.0.path(), Path::new("/dev/full")).unwrap();
        let words: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(words.contains(&"process 2 (program-2)".to_owned()));
        assert!(found.iter().all(|holder| !holder.is_eraser));
    }

    #[test]
    fn an_eraser_of_that_device_is_told_from_others() {
        let tree = Tree::new();
        tree.process(2, &["/dev/full"], "");
        let is_eraser = |line: &str| {
            fs::write(tree.0.path().join("2/cmdline"), line).unwrap();
            let found = holders(tree.0.path(), Path::new("/dev/full")).unwrap();
            found[0].is_eraser
        };
        assert!(is_eraser("daxio\0--zero\0--output\0/dev/full\0"));
        assert!(!is_eraser("daxio\0--zero\0--output\0/dev/fuller\0"));
        assert!(!is_eraser("daxio\0--input\0/tmp/x\0--output\0/dev/full\0"));
    }

    /// Goal: a process that ends while it is looked into holds nothing. Method: its name is a pipe,
    /// whose reader waits for a writer; its directory is gone before that writes.
    #[test]
    fn a_process_that_ends_meanwhile_is_no_holder() {
        let tree = Tree::new();
        tree.process(2, &["/dev/full"], "");
        let name = tree.0.path().join("2/comm");
        fs::remove_file(&name).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&name).status();
        assert!(made.unwrap().success());
        let root = tree.0.path().to_owned();
        let end = std::thread::spawn(move || {
            let writer = fs::OpenOptions::new().write(true).open(&name).unwrap();
            fs::rename(root.join("2"), root.join("ended")).unwrap();
            drop(writer);
        });
        assert_eq!(tree.holders("/dev/full"), Ok(vec![]));
        end.join().unwrap();
    }

    #[test]
    fn a_process_that_cannot_be_looked_into_is_not_harmless() {
        let tree = Tree::new();
        tree.process(7, &[], "");
        let fd = tree.0.path().join("7/fd");
        fs::remove_dir(&fd).unwrap();
        fs::write(&fd, "").unwrap();
        let said = tree.holders("/dev/full").unwrap_err();
        assert!(
            said.starts_with("process 7 (program-7) cannot be looked into"),
            "{said}"
        );
    }

    #[test]
    fn a_process_that_ends_meanwhile_is_harmless() {
        let tree = Tree::new();
        fs::create_dir(tree.0.path().join("8")).unwrap();
        assert_eq!(tree.holders("/dev/full"), Ok(vec![]));
    }
}
