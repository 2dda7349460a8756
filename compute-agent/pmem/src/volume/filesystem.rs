//! File systems on the devices of volumes: made, detected, mounted, measured.
//!
//! The contents of a device are recognised by its first MiB: a device is assigned to a volume with that
//! zeroed, so that no earlier volume's contents are taken for the new one's. What leaves the first 4 KiB
//! alone (btrfs, ZFS, a part of a RAID, bcachefs) is known by its marks behind them. Other bytes there
//! mean nothing: a program that makes ext4 writes its superblock last, and may have been stopped before.
//!
//! Invariant: a device that holds anything is not formatted. A mount without dax is made only where the
//! caller requests it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::folder::io_error;
use super::manager::{BEGINNING_BYTES, Error};
use crate::command;

/// Options of every file system: pods and guests write its files, so none of them is a device of the
/// host or changes the user of a process there. The flags of a volume come later and prevail.
const UNTRUSTED: [&str; 2] = ["nosuid", "nodev"];
/// How often it is looked whether a device is free.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A file system that volumes can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileSystem {
    /// ext4, with blocks of a page.
    Ext4,
    /// xfs, with blocks of a page and without shared blocks, which cannot be mapped.
    Xfs,
}

impl FileSystem {
    /// Returns the one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "ext4" => Some(Self::Ext4),
            "xfs" => Some(Self::Xfs),
            _ => None,
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        })
    }
}

/// What is on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing that is known: its first 4 KiB are zeros, and no known mark is behind them.
    Nothing,
    /// A file system that volumes can have.
    FileSystem(FileSystem),
    /// Something else, by name.
    Other(&'static str),
}

/// Returns what a device holds, by its first [`BEGINNING_BYTES`]; of a smaller one, all of it.
///
/// # Errors
///
/// When it cannot be read.
pub fn detect(device: &Path) -> Result<Contents, Error> {
    let mut bytes = Vec::new();
    let read =
        File::open(device).and_then(|file| file.take(BEGINNING_BYTES).read_to_end(&mut bytes));
    read.map_err(io_error("read", device))?;
    bytes.resize(bytes.len().max(4096), 0);
    Ok(recognise(&bytes))
}

/// Returns what begins with these bytes, 4 KiB or more.
fn recognise(bytes: &[u8]) -> Contents {
    let has = |at: usize, mark: &[u8]| bytes[at..].starts_with(mark);
    /// Where the superblock of ext2 and its successors lies, and in there what it cannot be read
    /// without.
    const EXT: usize = 1024;
    const EXTENTS: u8 = 0x40;
    if has(EXT + 56, &[0x53, 0xef]) {
        return match bytes[EXT + 96] & EXTENTS {
            0 => Contents::Other("ext2 or ext3"),
            _ => Contents::FileSystem(FileSystem::Ext4),
        };
    }
    if has(0, b"XFSB") {
        // A byte marks that it is being made.
        if bytes[126] != 0 {
            return Contents::Nothing;
        }
        return Contents::FileSystem(FileSystem::Xfs);
    }
    let others: [(usize, &[u8], &str); 6] = [
        (0, b"LUKS\xba\xbe", "an encrypted volume"),
        (512, b"LABELONE", "a physical volume of LVM"),
        (512, b"EFI PART", "a partition table"),
        (4086, b"SWAPSPACE2", "swap space"),
        (3, b"NTFS", "ntfs"),
        (510, &[0x55, 0xaa], "a partition table"),
    ];
    if let Some((_, _, name)) = others.iter().find(|(at, mark, _)| has(*at, mark)) {
        return Contents::Other(name);
    }
    if let Some(name) = behind_the_beginning(bytes) {
        return Contents::Other(name);
    }
    match bytes[..4096].iter().all(|byte| *byte == 0) {
        true => Contents::Nothing,
        false => Contents::Other("data"),
    }
}

/// Returns what leaves the first 4 KiB alone and has its mark behind them.
fn behind_the_beginning(bytes: &[u8]) -> Option<&'static str> {
    const BCACHEFS: [u8; 8] = [0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9];
    const UBERBLOCK: u64 = 0x00ba_b10c;
    let has = |at: usize, mark: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(mark));
    let uberblock =
        |at: usize| has(at, &UBERBLOCK.to_le_bytes()) || has(at, &UBERBLOCK.to_be_bytes());
    let marks: [(usize, &[u8], &str); 3] = [
        (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a part of a RAID"),
        (4096 + 24, &BCACHEFS, "bcachefs"),
        ((64 << 10) + 64, b"_BHRfS_M", "btrfs"),
    ];
    let mark = marks.iter().find(|(at, mark, _)| has(*at, mark));
    let is_zfs = || ((128 << 10)..(256 << 10)).step_by(1024).any(uberblock);
    mark.map(|(_, _, name)| *name)
        .or_else(|| is_zfs().then_some("ZFS"))
}

/// How much of a file system is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Its size, in bytes.
    pub total_bytes: u64,
    /// What is used.
    pub used_bytes: u64,
    /// What unprivileged users can still use.
    pub available_bytes: u64,
    /// How many files it can have.
    pub total_inodes: u64,
    /// How many it has.
    pub used_inodes: u64,
    /// How many more there can be.
    pub available_inodes: u64,
}

/// A mount, as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What is mounted.
    pub source: PathBuf,
    /// Where.
    pub target: PathBuf,
    /// The name of the file system.
    pub kind: String,
    /// Its options.
    pub options: Vec<String>,
}

impl Mount {
    /// Returns whether files of it are mapped directly.
    #[must_use]
    pub fn is_dax(&self) -> bool {
        let mut options = self.options.iter();
        options.any(|option| option == "dax" || option == "dax=always")
    }
}

/// Whether a file system has to be mounted with dax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dax {
    /// It has to.
    Required,
    /// Where the device cannot do that, it is mounted without.
    Preferred,
    /// It is not requested.
    Off,
}

/// The programs that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// Makes ext4.
    pub mkfs_ext4: PathBuf,
    /// Makes xfs.
    pub mkfs_xfs: PathBuf,
    /// Mounts.
    pub mount: PathBuf,
    /// Unmounts.
    pub umount: PathBuf,
    /// Sets up loop devices.
    pub losetup: PathBuf,
    /// The kernel's list of mounts.
    pub proc: PathBuf,
    /// How long making a file system may take.
    pub format_limit: Duration,
    /// How long a loop device that is to be removed may still be in use.
    pub detach_limit: Duration,
    /// Timeout of anything else.
    pub limit: Duration,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            mkfs_ext4: "mkfs.ext4".into(),
            mkfs_xfs: "mkfs.xfs".into(),
            mount: "mount".into(),
            umount: "umount".into(),
            losetup: "losetup".into(),
            proc: "/proc".into(),
            format_limit: Duration::from_secs(600),
            detach_limit: Duration::from_secs(10),
            limit: Duration::from_secs(60),
        }
    }
}

impl Programs {
    /// Runs a program whose last arguments are paths.
    pub(super) fn run(
        &self,
        program: &Path,
        options: &[&str],
        paths: &[&Path],
        limit: Duration,
    ) -> Result<String, Error> {
        let mut arguments = options.to_vec();
        for path in paths {
            let odd = || Error::Io {
                what: "use",
                path: path.to_path_buf(),
                why: "its path is not UTF-8, or not absolute".to_owned(),
            };
            // An absolute one cannot be taken for an option either.
            arguments.push(
                path.to_str()
                    .filter(|_| path.is_absolute())
                    .ok_or_else(odd)?,
            );
        }
        let output = command::run(program, &arguments, limit, &AtomicBool::new(false))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes a file system on a device that holds nothing. One of the same kind is left as it is.
    ///
    /// # Errors
    ///
    /// When it holds something else, or cannot be formatted.
    pub fn format(&self, device: &Path, kind: FileSystem) -> Result<(), Error> {
        let refused = |what: String| Error::Io {
            what: "make a file system on",
            path: device.to_owned(),
            why: format!("it is not empty: it holds {what}"),
        };
        self.wait_for_others(device)?;
        match detect(device)? {
            Contents::Nothing => self.make(device, kind),
            Contents::FileSystem(found) if found == kind => Ok(()),
            Contents::FileSystem(found) => Err(refused(found.to_string())),
            Contents::Other(found) => Err(refused(found.to_owned())),
        }
    }

    /// Waits until no other process has the device exclusively, unless it is mounted: a program that
    /// makes a file system continues when the process that started it was killed.
    fn wait_for_others(&self, device: &Path) -> Result<(), Error> {
        let deadline = Instant::now() + self.format_limit;
        let flags = i32::try_from(OFlags::EXCL.bits()).expect("flags of the kernel");
        loop {
            let opened = OpenOptions::new()
                .read(true)
                .custom_flags(flags)
                .open(device);
            match opened {
                Ok(_) => return Ok(()),
                Err(error) if error.raw_os_error() != Some(Errno::BUSY.raw_os_error()) => {
                    return Err(io_error("open", device)(error));
                }
                Err(_) if self.is_mounted(device)? => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(io_error("make a file system on", device)(error));
                }
                Err(_) => thread::sleep(LOOK_AGAIN_AFTER),
            }
        }
    }

    fn is_mounted(&self, device: &Path) -> Result<bool, Error> {
        let real = fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
        let is_it = |source: &Path| fs::canonicalize(source).is_ok_and(|source| source == real);
        Ok(self.mounts()?.iter().any(|mount| is_it(&mount.source)))
    }

    fn make(&self, device: &Path, kind: FileSystem) -> Result<(), Error> {
        let (program, options) = match kind {
            FileSystem::Ext4 => (&self.mkfs_ext4, &["-q", "-b", "4096", "-F"][..]),
            FileSystem::Xfs => (
                &self.mkfs_xfs,
                &["-q", "-b", "size=4096", "-m", "reflink=0", "-f"][..],
            ),
        };
        let made = self.run(program, options, &[device], self.format_limit);
        made.map(|_| ())
    }

    /// Mounts a device on a folder that is there. Returns whether it is mounted with dax.
    ///
    /// # Errors
    ///
    /// When it cannot be mounted so.
    pub fn mount(
        &self,
        device: &Path,
        target: &Path,
        kind: FileSystem,
        dax: Dax,
        flags: &[&str],
    ) -> Result<bool, Error> {
        let kind = kind.to_string();
        let mount = |is_dax: bool| {
            let flags = UNTRUSTED.iter().chain(flags).copied();
            let flags: Vec<&str> = flags.chain(is_dax.then_some("dax")).collect();
            let flags = flags.join(",");
            let options = ["-t", kind.as_str(), "-o", flags.as_str()];
            let mounted = self.run(&self.mount, &options, &[device, target], self.limit);
            mounted.map(|_| is_dax)
        };
        let mounted = match dax {
            Dax::Required => mount(true)?,
            Dax::Preferred => mount(true).or_else(|_| mount(false))?,
            Dax::Off => mount(false)?,
        };
        // ext4 may take the option, log that it does, and leave dax out.
        if dax == Dax::Required && !self.mounted(target)?.is_some_and(|mount| mount.is_dax()) {
            self.unmount(target)?;
            return Err(Error::Io {
                what: "mount with dax",
                path: device.to_owned(),
                why: "the kernel has mounted it without".to_owned(),
            });
        }
        Ok(mounted)
    }

    /// Bind-mounts a file or folder at another path: a folder on a folder, the node of a
    /// device on a file, both of which exist.
    ///
    /// # Errors
    ///
    /// When it cannot be mounted there; then it is not.
    pub fn bind(&self, source: &Path, target: &Path, is_read_only: bool) -> Result<(), Error> {
        self.run(&self.mount, &["--bind"], &[source, target], self.limit)?;
        if is_read_only {
            // Of the node of a device the second option would be that it cannot be opened.
            let options = match source.is_dir() {
                true => ["-o", "remount,bind,ro,nosuid,nodev"],
                false => ["-o", "remount,bind,ro,nosuid"],
            };
            let remounted = self.run(&self.mount, &options, &[target], self.limit);
            if let Err(error) = remounted {
                self.unmount(target)?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Unmounts what is mounted at a path. Nothing is: no effect.
    ///
    /// # Errors
    ///
    /// When it cannot be unmounted, as while a process works in it.
    pub fn unmount(&self, target: &Path) -> Result<(), Error> {
        while self.mounted(target)?.is_some() {
            self.run(&self.umount, &[], &[target], self.limit)?;
        }
        Ok(())
    }

    /// Returns what is mounted at a path; of several, the last.
    ///
    /// # Errors
    ///
    /// When the kernel's list cannot be read.
    pub fn mounted(&self, target: &Path) -> Result<Option<Mount>, Error> {
        let real = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let mounts = self.mounts()?.into_iter();
        Ok(mounts.rev().find(|mount| mount.target == real))
    }

    fn mounts(&self) -> Result<Vec<Mount>, Error> {
        let path = self.proc.join("self/mountinfo");
        let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        Ok(text.lines().filter_map(read_mount).collect())
    }

    /// Returns how much of a mounted file system is used.
    ///
    /// # Errors
    ///
    /// When the kernel does not report it.
    pub fn statistics(&self, target: &Path) -> Result<Statistics, Error> {
        let statistics = rustix::fs::statvfs(target);
        let statistics = statistics.map_err(|errno| io_error("read", target)(errno.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(statistics.f_frsize);
        Ok(Statistics {
            total_bytes: bytes(statistics.f_blocks),
            used_bytes: bytes(statistics.f_blocks.saturating_sub(statistics.f_bfree)),
            available_bytes: bytes(statistics.f_bavail),
            total_inodes: statistics.f_files,
            used_inodes: statistics.f_files.saturating_sub(statistics.f_ffree),
            available_inodes: statistics.f_favail,
        })
    }
}

/// Reads a line of `mountinfo`.
fn read_mount(line: &str) -> Option<Mount> {
    let (place, what) = line.split_once(" - ")?;
    let place: Vec<&str> = place.split(' ').collect();
    let mut what = what.split(' ');
    let (kind, source, last) = (what.next()?, what.next()?, what.next()?);
    let options = place.get(5)?.split(',').chain(last.split(','));
    Some(Mount {
        source: PathBuf::from(unescape(source)),
        target: PathBuf::from(unescape(place.get(4)?)),
        kind: kind.to_owned(),
        options: options.map(str::to_owned).collect(),
    })
}

/// Blanks and the like are written as `\040`.
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let digits = after.get(..3).unwrap_or_default();
        match u8::from_str_radix(digits, 8) {
            Ok(byte) if byte.is_ascii() => {
                plain.push(char::from(byte));
                rest = &after[3..];
            }
            Ok(_) | Err(_) => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_system_of_volumes_is_named() {
        let with = |at: usize, mark: &[u8]| {
            let mut bytes = vec![0; 1 << 20];
            bytes[at..at + mark.len()].copy_from_slice(mark);
            recognise(&bytes)
        };
        assert_eq!(with(0, b""), Contents::Nothing);
        assert_eq!(with(4095, b"x"), Contents::Other("data"));
        for (at, mark, name) in [
            (4096, &[0xfc, 0x4e, 0x2b, 0xa9][..], "a part of a RAID"),
            ((128 << 10) + 3072, &0x00ba_b10c_u64.to_le_bytes(), "ZFS"),
            ((64 << 10) + 64, b"_BHRfS_M", "btrfs"),
        ] {
            assert_eq!(with(at, mark), Contents::Other(name), "{at}");
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(2 << 20).unwrap();
            let write = std::os::unix::fs::FileExt::write_all_at;
            write(file.as_file(), mark, at as u64).unwrap();
            let said = Programs::default().format(file.path(), FileSystem::Ext4);
            let said = said.unwrap_err().to_string();
            assert!(
                said.ends_with(&format!("it is not empty: it holds {name}")),
                "{said}"
            );
        }
        // What a stopped mkfs.ext4 leaves.
        assert_eq!(with(4096, b"x"), Contents::Nothing);
        assert_eq!(with(1080, &[0x53, 0xef]), Contents::Other("ext2 or ext3"));
        assert_eq!(
            with(510, &[0x55, 0xaa]),
            Contents::Other("a partition table")
        );
        assert_eq!(
            with(512, b"LABELONE"),
            Contents::Other("a physical volume of LVM")
        );
        assert_eq!(with(4086, b"SWAPSPACE2"), Contents::Other("swap space"));
        let absent = detect(Path::new("/dev/berth-absent"))
            .unwrap_err()
            .to_string();
        assert!(
            absent.starts_with("cannot read /dev/berth-absent: No such"),
            "{absent}"
        );
    }

    #[test]
    fn mounts_are_read() {
        let line =
            "36 35 98:0 /m /mnt\\040x rw,noatime master:1 - ext4 /dev/ro\\134ot rw,dax=always";
        let mount = read_mount(line).unwrap();
        assert_eq!(mount.target, Path::new("/mnt x"));
        assert_eq!(mount.source, Path::new("/dev/ro\\ot"));
        assert_eq!(mount.kind, "ext4");
        assert!(mount.is_dax());
        for odd in ["", " - ", "1 2 3 - a b c", "1 2 3 4 5 6", "a\\"] {
            assert_eq!(read_mount(odd), None, "{odd:?}");
        }
        assert_eq!(unescape("a\\9b\\"), "a\\9b\\");
    }

    #[test]
    fn a_folder_can_be_counted_and_odd_places_are_refused() {
        let programs = Programs::default();
        let folder = tempfile::tempdir().unwrap();
        let counted = programs.statistics(folder.path()).unwrap();
        assert!(counted.total_bytes >= counted.used_bytes);
        assert_eq!(programs.mounted(folder.path()), Ok(None));
        programs.unmount(folder.path()).unwrap();
        let said = programs.bind(Path::new("-x"), folder.path(), false);
        let said = said.unwrap_err().to_string();
        assert_eq!(
            said,
            "cannot use -x: its path is not UTF-8, or not absolute"
        );
        let gone = programs.statistics(Path::new("/berth-absent")).unwrap_err();
        assert!(gone.to_string().contains("No such file"), "{gone}");
    }
}
