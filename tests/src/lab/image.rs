//! What the guests of real tests boot: made of Debian's packages, kept in a cache.
//!
//! * a kernel, which is taken as the package has it;
//! * an initramfs: busybox, the kernel's virtio modules and `guest-init.sh`;
//! * a disk image with a boot loader, that kernel and that initramfs, for a guest that
//!   boots like any other machine: BIOS, boot sector, loader, kernel.
//!
//! What it is not: a distribution. The guest has no root file system; what it stores is
//! one word beyond the end of its only partition.
//!
//! Nothing is mounted to make the disk: the partition is FAT, which mtools writes and the
//! loader's installer patches inside a file.
//!
//! Invariant: a file in the cache is complete. It is made under another name and renamed,
//! and its name holds a digest of all that went into it.

mod archive;
mod disk;
mod modules;

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::prerequisites::{Missing, require_program};
use archive::Archive;
use modules::Modules;

/// The guest's first process.
const INIT: &str = include_str!("guest-init.sh");

/// The kernel's modules for a virtio guest with persistent memory that reads a file system of FAT and executes
/// CPUID. What they depend on comes along; one that the kernel has built in has no file, and is passed over.
const MODULES: [&str; 9] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "nfit",
    "nd_pmem",
    "vfat",
    "nls_cp437",
    "nls_ascii",
    "cpuid",
];

/// The kernel's command line. Without bounce buffers, a guest with little memory boots
/// even if its description leaves room for memory beyond 4 GiB.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 swiotlb=noforce";

/// What a guest can be booted from. All of it needs 128 MiB of memory; 256 are ample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// The kernel, for a direct boot.
    pub kernel: PathBuf,
    /// The initramfs, for a direct boot.
    pub initrd: PathBuf,
    /// The kernel's command line, for a direct boot.
    pub command_line: String,
    /// A bootable disk in qcow2 format; a guest gets a copy of it.
    pub disk: PathBuf,
}

impl Images {
    /// Makes a guest's own copy of the disk.
    pub fn copy_disk(&self, to: &Path) -> Result<()> {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(&self.disk, to).with_context(|| format!("cannot write {}", to.display()))?;
        Ok(())
    }
}

/// Returns the guests' images, which are made if the cache does not have them.
pub fn images() -> Result<Images> {
    let kernel = find_kernel().context("no kernel for guests")?;
    let (boot_sector, busybox) = (disk::boot_sector()?, busybox()?);
    let mut archive = Archive::default();
    archive.directory("bin");
    archive.directory("modules");
    archive.file("bin/busybox", 0o755, &fs::read(&busybox)?);
    archive.file("init", 0o755, INIT.as_bytes());
    for (name, content) in kernel.modules(&MODULES)? {
        archive.file(&format!("modules/{name}"), 0o644, &content);
    }
    let initrd = archive.finish();

    let mut hasher = DefaultHasher::new();
    (&initrd, &kernel.image, COMMAND_LINE, disk::LAYOUT_VERSION).hash(&mut hasher);
    let digest = format!("{:016x}", hasher.finish());

    let cache = cache_directory();
    let initrd_path = cache.join(format!("guest-{digest}.initrd"));
    make(&initrd_path, |path| Ok(fs::write(path, &initrd)?))?;
    let disk_path = cache.join(format!("guest-{digest}.qcow2"));
    make(&disk_path, |path| {
        disk::write(
            path,
            &boot_sector,
            &kernel.image,
            &initrd_path,
            COMMAND_LINE,
        )
    })?;
    Ok(Images {
        kernel: kernel.image,
        initrd: initrd_path,
        command_line: COMMAND_LINE.to_owned(),
        disk: disk_path,
    })
}

/// What the making of images takes.
pub(super) fn prerequisites() -> Result<(), Missing> {
    for program in ["mformat", "mcopy", "syslinux", "qemu-img"] {
        require_program(program)?;
    }
    let missing = |error: anyhow::Error| Missing::package(format!("{error:#}"));
    find_kernel().map_err(missing)?;
    busybox().map_err(missing)?;
    disk::boot_sector().map_err(missing)?;
    Ok(())
}

/// Where `.ci/install` leaves the kernel, and where the images are kept.
pub(super) fn cache_directory() -> PathBuf {
    std::env::var_os("BERTH_TEST_CACHE")
        .map_or_else(|| PathBuf::from("/var/cache/berth-tests"), PathBuf::from)
}

/// A kernel and its modules as the package has them.
pub(super) struct Kernel {
    /// The kernel.
    pub(super) image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// Returns the files of the named modules and of what they depend on, in the order in which
    /// they can be loaded.
    pub(super) fn modules(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        let modules = Modules::collect(&self.modules, names)?;
        let named = modules.into_iter().enumerate();
        Ok(named
            .map(|(number, module)| (format!("{number:02}-{}.ko", module.name), module.content))
            .collect())
    }
}

/// Finds the kernel that `.ci/install` has unpacked.
pub(super) fn find_kernel() -> Result<Kernel> {
    let tree = fs::canonicalize(cache_directory().join("kernel"))
        .with_context(|| format!("no kernel in {}", cache_directory().display()))?;
    let boot = tree.join("boot");
    for entry in fs::read_dir(&boot).with_context(|| format!("no {}", boot.display()))? {
        let image = entry?.path();
        let name = image
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if let Some(version) = name.strip_prefix("vmlinuz-") {
            // A package of a merged-/usr release has its modules below usr.
            let places = ["lib/modules", "usr/lib/modules"];
            let modules = places
                .iter()
                .map(|place| tree.join(place).join(version))
                .find(|directory| directory.is_dir())
                .with_context(|| format!("{} has no modules", image.display()))?;
            return Ok(Kernel { image, modules });
        }
    }
    anyhow::bail!("no kernel in {}", boot.display())
}

/// Finds the static busybox.
pub(super) fn busybox() -> Result<PathBuf> {
    ["/usr/bin/busybox", "/bin/busybox"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
        .context("busybox-static is not installed")
}

/// Makes a file of the cache, unless it is there. Two tests may do so at the same time:
/// each makes its own, and the last rename wins.
fn make(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    let parent = path.parent().context("a path in the cache")?;
    let scratch = tempfile::Builder::new()
        .prefix("making-")
        .tempdir_in(parent)?;
    let made = scratch.path().join("file");
    write(&made).with_context(|| format!("cannot make {}", path.display()))?;
    fs::rename(&made, path)?;
    Ok(())
}

/// Runs a program that is to say nothing.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Ok(())
}
