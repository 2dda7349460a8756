//! The root file system of the machine with four nodes: files of this machine's packages.
//!
//! What it is not: a distribution. It has what a lab takes: the hypervisor, the tools that make
//! namespaces, busybox for the rest, and the libraries that all of these need.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::super::image::{self, Kernel};
use super::super::prerequisites::{Missing, find_program};

/// What of this machine's packages goes in besides busybox and what is linked with all of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Kit {
    /// Programs that busybox is no match for.
    pub(super) programs: Vec<&'static str>,
    /// What is opened by name while a program runs, below the directory of libraries.
    libraries: Vec<&'static str>,
    /// Directories with what is read.
    data: Vec<&'static str>,
    /// The kernel's modules, loaded when the machine starts.
    modules: Vec<&'static str>,
}

impl Kit {
    /// What a machine with a hypervisor and a watchdog takes.
    pub(super) fn watched() -> Self {
        Self {
            modules: vec!["virtio_pci", "virtio_net", "watchdog"],
            ..Self::lab()
        }
    }

    /// What a lab with hypervisors takes.
    pub(super) fn lab() -> Self {
        Self {
            programs: vec![
                "bash",
                "ip",
                "libvirtd",
                "mount",
                "nsenter",
                "qemu-img",
                "qemu-system-x86_64",
                "umount",
                "unshare",
                "virtlogd",
            ],
            libraries: vec![
                "libvirt.so.0",
                "libvirt/connection-driver/libvirt_driver_qemu.so",
                "qemu/accel-tcg-x86_64.so",
            ],
            data: vec![
                "/usr/share/libvirt/cpu_map",
                "/usr/share/qemu",
                "/usr/share/seabios",
            ],
            modules: vec!["bridge", "veth"],
        }
    }

    /// What namespaces of persistent memory take. The modules are there from the beginning, so
    /// that no daemon has to load them when a device appears.
    pub(super) fn persistent_memory() -> Self {
        Self {
            programs: vec!["ndctl", "daxio"],
            libraries: Vec::new(),
            data: Vec::new(),
            modules: vec!["nfit", "nd_pmem", "dax_pmem", "device_dax"],
        }
    }

    /// What volumes of persistent memory take: volume groups, and two file systems. Busybox cannot
    /// report a mount that lacks an option it was requested with.
    pub(super) fn volumes() -> Self {
        Self {
            programs: vec!["losetup", "lvm", "mkfs.ext4", "mkfs.xfs", "mount", "umount"],
            libraries: Vec::new(),
            data: Vec::new(),
            modules: vec!["dm_mod", "loop", "xfs"],
        }
    }

    /// Returns both.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.programs.extend(other.programs);
        self.libraries.extend(other.libraries);
        self.data.extend(other.data);
        self.modules.extend(other.modules);
        self
    }

    fn libraries(&self) -> impl Iterator<Item = PathBuf> {
        let paths = self.libraries.iter();
        paths.map(|name| Path::new(LIBRARY_DIRECTORY).join(name))
    }
}

const LIBRARY_DIRECTORY: &str = "/usr/lib/x86_64-linux-gnu";

/// Of QEMU's and SeaBIOS's files, those for a guest without devices.
const FIRMWARE: [&str; 7] = [
    "bios-256k.bin",
    "bios.bin",
    "kvmvapic.bin",
    "linuxboot.bin",
    "linuxboot_dma.bin",
    "multiboot.bin",
    "multiboot_dma.bin",
];

/// Room for what is written while the machine runs.
const SPARE_MIB: u64 = 64;

/// What has to be installed besides the programs.
pub(super) fn prerequisites(kit: &Kit) -> Result<(), Missing> {
    for path in kit.libraries().chain(kit.data.iter().map(PathBuf::from)) {
        if !path.exists() {
            return Err(Missing::package(format!("there is no {}", path.display())));
        }
    }
    Ok(())
}

/// What goes onto the disk.
pub(super) struct Content<'a> {
    pub(super) kit: &'a Kit,
    pub(super) programs: &'a [(PathBuf, String)],
    pub(super) files: &'a [(PathBuf, String)],
    pub(super) command: &'a str,
}

/// Makes the disk image below `directory`, and returns its path.
pub(super) fn make(directory: &Path, kernel: &Kernel, content: &Content<'_>) -> Result<PathBuf> {
    let kit = content.kit;
    let tree = Tree::new(directory.join("root"))?;
    let mut linked = Vec::new();
    for name in &kit.programs {
        let program = find_program(name).with_context(|| format!("no program {name}"))?;
        linked.push(tree.copy(&program)?);
    }
    for library in kit.libraries() {
        linked.push(tree.copy(&library)?);
    }
    for (from, to) in content.programs {
        let stripped = tree.at(to)?;
        let mut strip = Command::new("strip");
        image::run(
            strip
                .arg("--strip-debug")
                .arg("-o")
                .arg(&stripped)
                .arg(from),
        )?;
        linked.push(stripped);
    }
    for (from, to) in content.files {
        fs::copy(from, tree.at(to)?).with_context(|| format!("no {}", from.display()))?;
    }
    for library in needed_by(&linked)? {
        tree.copy(&library)?;
    }
    for data in &kit.data {
        tree.copy_data(Path::new(data))?;
    }
    tree.busybox()?;
    for (name, content) in kernel.modules(&kit.modules)? {
        fs::write(tree.at(&format!("/lab/modules/{name}"))?, content)?;
    }
    fs::write(tree.at("/lab/command")?, content.command)?;
    tree.configure()?;
    tree.into_image(&directory.join("root.img"))
}

/// Returns the libraries that programs and libraries are linked with.
fn needed_by(linked: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").args(linked).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && !text.contains("not found"),
        "ldd: {}{text}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Either `name => /path (address)` or, for the loader, `/path (address)`.
    let path = |line: &str| {
        let end = line.split_once("=>").map_or(line, |(_, path)| path);
        let path = end.split_whitespace().next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    let libraries = text.lines().filter(|line| !line.ends_with(':'));
    Ok(libraries.filter_map(path).collect())
}

/// The directory that becomes the file system.
struct Tree(PathBuf);

impl Tree {
    fn new(root: PathBuf) -> Result<Self> {
        for name in ["bin", "sbin", "lib", "lib64"] {
            fs::create_dir_all(root.join("usr").join(name))?;
            symlink(format!("usr/{name}"), root.join(name))?;
        }
        for name in ["dev", "etc", "proc", "root", "run", "sys", "tmp", "var"] {
            fs::create_dir_all(root.join(name))?;
        }
        symlink("/run", root.join("var/run"))?;
        Ok(Self(root))
    }

    /// Returns where a file with that absolute path is written, in a directory that exists.
    fn at(&self, path: &str) -> Result<PathBuf> {
        let path = self.0.join(path.trim_start_matches('/'));
        let parent = path.parent().context("a path in the tree")?;
        fs::create_dir_all(parent).with_context(|| format!("no {}", parent.display()))?;
        Ok(path)
    }

    /// Copies a file of this machine to the same path; where it is a link, what it leads to.
    fn copy(&self, file: &Path) -> Result<PathBuf> {
        let to = self.at(file.to_str().context("a plain path")?)?;
        fs::copy(file, &to).with_context(|| format!("no {}", file.display()))?;
        Ok(to)
    }

    /// Copies the files of a directory: all of libvirt's, of the firmware what is needed.
    fn copy_data(&self, directory: &Path) -> Result<()> {
        let entries =
            fs::read_dir(directory).with_context(|| format!("no {}", directory.display()))?;
        for entry in entries {
            let file = entry?.path();
            let name = file.file_name().and_then(|name| name.to_str());
            let name = name.unwrap_or_default();
            // QEMU's links to SeaBIOS lead out of its directory; what they lead to is copied.
            let is_needed = file.is_file() && (name.ends_with(".xml") || FIRMWARE.contains(&name));
            if is_needed {
                self.copy(&file)?;
            }
        }
        Ok(())
    }

    /// Puts busybox there, under the name of each program that is not there already.
    fn busybox(&self) -> Result<()> {
        let busybox = image::busybox()?;
        let output = Command::new(&busybox).arg("--list").output()?;
        fs::copy(&busybox, self.at("/usr/bin/busybox")?)?;
        for name in String::from_utf8_lossy(&output.stdout).lines() {
            let places = ["usr/bin", "usr/sbin"].map(|place| self.0.join(place).join(name));
            if places.iter().all(|place| !place.exists()) {
                symlink("busybox", &places[0])?;
            }
        }
        Ok(())
    }

    fn configure(&self) -> Result<()> {
        let init = self.at("/init")?;
        fs::write(&init, include_str!("init.sh"))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        for (name, text) in [
            ("passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("group", "root:x:0:\nkvm:x:108:\n"),
            (
                "nsswitch.conf",
                "passwd: files\ngroup: files\nhosts: files\n",
            ),
            ("hosts", "127.0.0.1 localhost\n"),
            ("machine-id", "0123456789abcdef0123456789abcdef\n"),
        ] {
            fs::write(self.0.join("etc").join(name), text)?;
        }
        Ok(())
    }

    fn into_image(self, image: &Path) -> Result<PathBuf> {
        let size_mib = size(&self.0)?.div_ceil(1 << 20) * 9 / 8 + SPARE_MIB;
        let mut format = Command::new("mke2fs");
        format
            .args(["-q", "-t", "ext4", "-O", "^has_journal"])
            .args(["-E", "lazy_itable_init=1,root_owner=0:0", "-d"])
            .arg(&self.0)
            .arg(image)
            .arg(format!("{size_mib}M"));
        image::run(&mut format)?;
        fs::remove_dir_all(&self.0)?;
        Ok(image.to_owned())
    }
}

/// Returns how many bytes the files below a directory have.
fn size(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() {
            size(&entry.path())?
        } else {
            metadata.len().next_multiple_of(4096)
        };
    }
    Ok(sum)
}
