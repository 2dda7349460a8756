//! The image file in a volume that Kata Containers passes to a guest as an NVDIMM.
//!
//! ```text
//!   0        a partition table with one partition, for people and loop devices
//!   4 KiB    the kernel's block of information about a namespace in mode fsdax
//!   2 MiB    the file system, to the end of the file
//! ```
//!
//! To a guest the file is a namespace without labels. Its kernel finds the block of information, and
//! shows what begins at 2 MiB as `/dev/pmem0`, which can be mounted with dax. On the host the file
//! system is reached through a loop device at that offset, without dax.
//!
//! It is made under another name and moved to its place when it is whole and on the medium.
//!
//! Invariant: the block is as `nd_pfn_validate` of Linux wants it; the file ends at a multiple of 2 MiB.
//! A file in its place is never removed or changed here: a guest's data are in it.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::filesystem::Programs;
use super::folder::io_error;
use super::manager::Error;

/// The name of the file.
pub const IMAGE: &str = "kata-containers-pmem-csi-vm.img";

/// The name of one that is being made: it was never used.
const IMAGE_NEW: &str = "kata-containers-pmem-csi-vm.img.new";

/// Where the file system begins.
pub const DATA_BYTES: u64 = 2 << 20;

/// How long until it is looked at again whether a loop device has gone.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What the end of the file is aligned to.
const ALIGN_BYTES: u64 = 2 << 20;

/// Where the kernel looks for its block of information.
const INFORMATION_AT: u64 = 4096;
const INFORMATION_BYTES: usize = 4096;
const SECTOR_BYTES: u64 = 512;

/// The smallest file that is made: less has no space for a file system.
const LEAST_BYTES: u64 = 8 << 20;

/// Makes the file in a mounted file system, as large as the free space allows, and returns its path. One
/// that is whole is left as it is.
///
/// # Errors
///
/// When there is no space, it cannot be read or written, or what is in its place is not whole; that
/// is left as it is.
pub fn make(folder: &Path, programs: &Programs) -> Result<PathBuf, Error> {
    let path = folder.join(IMAGE);
    match is_whole(&path) {
        Ok(true) => return Ok(path),
        Ok(false) => {
            return Err(Error::Io {
                what: "use",
                path,
                why: "it is not whole, and may hold data; copy what is needed of it, remove it, \
                      and try again"
                    .to_owned(),
            });
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("read", &path)(error)),
    }
    let new = folder.join(IMAGE_NEW);
    match fs::remove_file(&new) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("remove", &new)(error)),
    }
    let available = programs.statistics(folder)?.available_bytes;
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&new).map_err(io_error("make", &new))?;
    let made = allocate(&file, available)
        .and_then(|size_bytes| write(&file, size_bytes))
        .and_then(|()| fs::rename(&new, &path));
    if let Err(error) = made {
        let _ = fs::remove_file(&new);
        return Err(io_error("make", &path)(error));
    }
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(io_error("sync the folder", folder))?;
    Ok(path)
}

/// Makes a file of that size, from scratch, with all its space allocated.
///
/// # Errors
///
/// When it cannot be written, or the size is no multiple of 2 MiB.
pub fn make_sized(path: &Path, size_bytes: u64) -> Result<(), Error> {
    let make = || {
        if size_bytes < LEAST_BYTES || !size_bytes.is_multiple_of(ALIGN_BYTES) {
            return Err(Errno::INVAL.into());
        }
        let file = File::create(path)?;
        fallocate(&file, FallocateFlags::empty(), 0, size_bytes)?;
        write(&file, size_bytes)
    };
    make().map_err(io_error("make", path))
}

/// Allocates all the free space.
fn allocate(file: &File, available: u64) -> std::io::Result<u64> {
    let mut size = available - available % ALIGN_BYTES;
    while size >= LEAST_BYTES {
        match fallocate(file, FallocateFlags::empty(), 0, size) {
            Ok(()) => return Ok(size),
            // The metadata of the file's extents takes space too.
            Err(Errno::NOSPC) => size -= ALIGN_BYTES,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        file.set_len(0)?;
    }
    Err(Errno::NOSPC.into())
}

/// Writes what stands before the file system. The partition table comes last: with it the file is
/// whole.
fn write(file: &File, size_bytes: u64) -> std::io::Result<()> {
    file.set_len(size_bytes)?;
    file.write_all_at(
        &information(size_bytes, *uuid::Uuid::new_v4().as_bytes()),
        INFORMATION_AT,
    )?;
    file.sync_all()?;
    file.write_all_at(&partition_table(size_bytes), 0)?;
    file.sync_all()
}

/// Returns whether a file is there and whole.
fn is_whole(path: &Path) -> std::io::Result<bool> {
    let file = File::open(path)?;
    let size_bytes = file.metadata()?.len();
    if size_bytes < LEAST_BYTES || !size_bytes.is_multiple_of(ALIGN_BYTES) {
        return Ok(false);
    }
    let mut table = [0; SECTOR_BYTES as usize];
    file.read_exact_at(&mut table, 0)?;
    let mut block = [0; INFORMATION_BYTES];
    file.read_exact_at(&mut block, INFORMATION_AT)?;
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&block[16..32]);
    Ok(table == partition_table(size_bytes) && block == information(size_bytes, uuid))
}

/// Returns a partition table with one partition, from where the file system begins to the end.
fn partition_table(size_bytes: u64) -> [u8; SECTOR_BYTES as usize] {
    /// Where the first partition is described, and what stands where cylinders are not counted.
    const FIRST: usize = 446;
    const NO_CYLINDER: [u8; 3] = [0xfe, 0xff, 0xff];
    const LINUX: u8 = 0x83;
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).unwrap_or(u32::MAX);
    let mut table = [0; SECTOR_BYTES as usize];
    table[FIRST + 1..FIRST + 4].copy_from_slice(&NO_CYLINDER);
    table[FIRST + 4] = LINUX;
    table[FIRST + 5..FIRST + 8].copy_from_slice(&NO_CYLINDER);
    table[FIRST + 8..FIRST + 12].copy_from_slice(&sectors(DATA_BYTES).to_le_bytes());
    let length = sectors(size_bytes - DATA_BYTES);
    table[FIRST + 12..FIRST + 16].copy_from_slice(&length.to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    table
}

/// Returns the kernel's block of information (`struct nd_pfn_sb`), little-endian:
///
/// ```text
///    0  signature       48  flags           64  number of pages   80  padding at the end
///   16  uuid            52  version, major  72  mode              84  alignment
///   32  parent's uuid   54  version, minor  76  padding at start  88  size of a page
///                       56  where data are                        92  size of its structure
///                                                               4088  checksum
/// ```
fn information(size_bytes: u64, uuid: [u8; 16]) -> [u8; INFORMATION_BYTES] {
    /// The structures of pages are kept in ordinary memory.
    const MODE_RAM: u32 = 1;
    const VERSION: (u16, u16) = (1, 4);
    const PAGE_BYTES: u32 = 4096;
    const PAGE_STRUCTURE_BYTES: u16 = 64;
    let mut block = [0; INFORMATION_BYTES];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"NVDIMM_PFN_INFO\0");
    put(16, &uuid);
    put(52, &VERSION.0.to_le_bytes());
    put(54, &VERSION.1.to_le_bytes());
    put(56, &DATA_BYTES.to_le_bytes());
    let pages = (size_bytes - DATA_BYTES) / u64::from(PAGE_BYTES);
    put(64, &pages.to_le_bytes());
    put(72, &MODE_RAM.to_le_bytes());
    let align = u32::try_from(ALIGN_BYTES).expect("2 MiB");
    put(84, &align.to_le_bytes());
    put(88, &PAGE_BYTES.to_le_bytes());
    put(92, &PAGE_STRUCTURE_BYTES.to_le_bytes());
    let sum = fletcher64(&block);
    block[INFORMATION_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    block
}

/// Returns the checksum that the kernel makes of such a block, with the checksum's own bytes as zero.
fn fletcher64(block: &[u8]) -> u64 {
    let (mut low, mut high) = (0_u32, 0_u64);
    for word in block.chunks_exact(4) {
        let word = u32::from_le_bytes(word.try_into().expect("4 bytes"));
        low = low.wrapping_add(word);
        high = high.wrapping_add(u64::from(low));
    }
    (high << 32) | u64::from(low)
}

/// Returns the loop device at the file system of an image; one that is there already is used.
///
/// # Errors
///
/// When there is none and none can be set up.
pub fn attach(image: &Path, programs: &Programs) -> Result<PathBuf, Error> {
    if let Some(device) = attached(image, programs)? {
        return Ok(device);
    }
    let offset = DATA_BYTES.to_string();
    let options = ["--show", "--find", "--offset", &offset];
    let said = programs.run(&programs.losetup, &options, &[image], programs.limit)?;
    let device = PathBuf::from(said.trim());
    match device.starts_with("/dev") {
        true => Ok(device),
        false => Err(Error::Io {
            what: "set up a loop device of",
            path: image.to_owned(),
            why: format!(
                "losetup said {:?}",
                said.chars().take(80).collect::<String>()
            ),
        }),
    }
}

/// Removes the loop devices of an image; none: no effect.
///
/// Linux removes a loop device when it is closed for the last time: a program that looks at it for a
/// moment (udev does) delays that, and is waited for up to `Programs::detach_limit`.
///
/// # Errors
///
/// When one cannot be removed, or something still has it open by then.
pub fn detach(image: &Path, programs: &Programs) -> Result<(), Error> {
    let deadline = Instant::now() + programs.detach_limit;
    while let Some(device) = attached(image, programs)? {
        programs.run(&programs.losetup, &["--detach"], &[&device], programs.limit)?;
        while attached(image, programs)?.as_ref() == Some(&device) {
            if Instant::now() >= deadline {
                return Err(Error::Io {
                    what: "remove the loop device of",
                    path: image.to_owned(),
                    why: format!("{} is in use", device.display()),
                });
            }
            thread::sleep(LOOK_AGAIN_AFTER);
        }
    }
    Ok(())
}

fn attached(image: &Path, programs: &Programs) -> Result<Option<PathBuf>, Error> {
    let options = ["--noheadings", "--output", "NAME", "--associated"];
    let said = programs.run(&programs.losetup, &options, &[image], programs.limit)?;
    let first = said
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("/dev"));
    Ok(first.map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Known sums: worked out by hand from the definition.
    #[test]
    fn the_checksum_is_the_kernels() {
        assert_eq!(fletcher64(&[]), 0);
        assert_eq!(fletcher64(&[1, 0, 0, 0, 2, 0, 0, 0]), (4 << 32) | 3);
        // The lower half wraps, the upper one takes it as it is then.
        let wraps = [0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0];
        assert_eq!(fletcher64(&wraps), (0x1_0000_0000 << 32) | 1);
    }

    /// Goal: each byte before the file system is where it belongs.
    #[test]
    fn the_bytes_before_the_file_system() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.as_file(), 64 * MIB).unwrap();
        let bytes = fs::read(file.path()).unwrap();
        assert_eq!(bytes.len() as u64, 64 * MIB);
        let number = |at: usize, length: usize| {
            let mut number = [0; 8];
            number[..length].copy_from_slice(&bytes[at..at + length]);
            u64::from_le_bytes(number)
        };
        assert!(bytes[..446].iter().all(|byte| *byte == 0));
        let partition = [0, 0xfe, 0xff, 0xff, 0x83, 0xfe, 0xff, 0xff];
        assert_eq!(bytes[446..454], partition);
        assert_eq!((number(454, 4), number(458, 4)), (4096, 62 * 2048));
        assert!(bytes[462..510].iter().all(|byte| *byte == 0));
        assert_eq!(bytes[510..512], [0x55, 0xaa]);
        assert!(bytes[512..4096].iter().all(|byte| *byte == 0));
        let at = 4096;
        assert_eq!(bytes[at..at + 16], *b"NVDIMM_PFN_INFO\0");
        assert!(bytes[at + 16..at + 32].iter().any(|byte| *byte != 0));
        assert_eq!(
            bytes[at + 32..at + 48],
            [0; 16],
            "the namespace has no uuid"
        );
        assert_eq!(number(at + 48, 4), 0);
        assert_eq!((number(at + 52, 2), number(at + 54, 2)), (1, 4));
        assert_eq!(number(at + 56, 8), 2 * MIB);
        assert_eq!(number(at + 64, 8), 62 * MIB / 4096);
        assert_eq!(number(at + 72, 4), 1);
        assert_eq!((number(at + 76, 4), number(at + 80, 4)), (0, 0));
        assert_eq!(number(at + 84, 4), 2 * MIB);
        assert_eq!((number(at + 88, 4), number(at + 92, 2)), (4096, 64));
        let mut block = bytes[at..at + 4096].to_vec();
        block[4088..].fill(0);
        assert_eq!(number(at + 4088, 8), fletcher64(&block));
        assert!(bytes[8192..].iter().all(|byte| *byte == 0));
    }

    /// Goal: one that is whole is left; one that is not, or cannot be read, is refused and left too.
    #[test]
    fn one_in_its_place_is_never_removed() {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.unwrap();
        let path = folder.path().join(IMAGE);
        let whole = || {
            let file = File::create(&path).unwrap();
            write(&file, 16 * MIB).unwrap();
        };
        whole();
        assert_eq!(make(folder.path(), &Programs::default()), Ok(path.clone()));
        assert_eq!(fs::metadata(&path).unwrap().len(), 16 * MIB);
        let damages: [&dyn Fn(&File); 3] = [
            &|file| file.set_len(15 * MIB).unwrap(),
            &|file| file.write_all_at(&[1], 4096 + 90).unwrap(),
            &|file| file.write_all_at(&[1], 446).unwrap(),
        ];
        for damage in damages {
            whole();
            assert!(is_whole(&path).unwrap());
            damage(&OpenOptions::new().write(true).open(&path).unwrap());
            assert!(!is_whole(&path).unwrap());
            let before = fs::read(&path).unwrap();
            let said = make(folder.path(), &Programs::default()).unwrap_err();
            assert!(said.to_string().contains("it is not whole"), "{said}");
            assert!(fs::read(&path).unwrap() == before);
        }
        // Something that cannot be read.
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let said = make(folder.path(), &Programs::default()).unwrap_err();
        assert!(said.to_string().starts_with("cannot read /"), "{said}");
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert!(is_whole(Path::new("/berth-absent")).is_err());
        let nowhere = make(Path::new("/berth-absent"), &Programs::default()).unwrap_err();
        assert!(nowhere.to_string().contains("No such file"), "{nowhere}");
    }
}
