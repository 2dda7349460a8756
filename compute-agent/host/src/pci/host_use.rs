//! Finds which PCI functions the host itself lives on: those under its file systems, its swap
//! space and its network.
//!
//! It errs on the safe side: everything on the way from a disk or network device to the processor
//! counts. Invariant: bounded, and never an error; what cannot be read protects nothing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use berth_domain::pci::PciAddress;

use super::read::ByAddress;

/// How much of a table of mounts or routes is read.
const TABLE_MAX: u64 = 4 * 1024 * 1024;
/// How many devices are looked at below one: mirrors of volumes of partitions.
const BELOW_MAX: usize = 256;
/// A route that is there, and one that only refuses.
const ROUTE_UP: u32 = 0x1;
const ROUTE_REJECT: u32 = 0x200;

/// What was found.
pub(super) struct HostUse {
    /// The network devices that each function is.
    pub(super) devnames: ByAddress<String>,
    /// What the host lives on each function for.
    pub(super) carries: ByAddress<String>,
}

/// Looks at the files below `root`.
pub(super) fn find(root: &Path) -> HostUse {
    let mut found = HostUse {
        devnames: ByAddress::new(),
        carries: ByAddress::new(),
    };
    let net = root.join("sys/class/net");
    for path in entries(&net) {
        let name = file_name(&path);
        let device = fs::canonicalize(&path).unwrap_or_default();
        if let Some(address) = addresses(&device).last() {
            found.devnames.entry(*address).or_default().insert(name);
        }
    }
    for (device, what) in disks(root) {
        for address in below(&device) {
            found
                .carries
                .entry(address)
                .or_default()
                .insert(what.clone());
        }
    }
    for name in routed(root) {
        for address in below(&net.join(&name)) {
            let what = format!("the host's network ({name})");
            found.carries.entry(address).or_default().insert(what);
        }
    }
    found
}

/// Returns the block devices of file systems and swap space, with what is on each.
fn disks(root: &Path) -> Vec<(PathBuf, String)> {
    let mut disks = Vec::new();
    // An agent may have mounts of its own; those of the first process are the host's.
    for process in ["self", "1"] {
        for line in lines(&root.join("proc").join(process).join("mountinfo")) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(number), Some(mount)) = (fields.get(2), fields.get(4)) else {
                continue;
            };
            let mount = mount.replace("\\040", " ");
            let source = fields.iter().skip_while(|f| **f != "-").nth(2);
            let device = match source {
                // A file system with a number of its own, as btrfs, lies on the device it names.
                Some(source) if number.starts_with("0:") => named_disk(root, source),
                Some(_) | None => Some(root.join("sys/dev/block").join(number)),
            };
            disks.extend(device.map(|device| (device, format!("the file system {mount}"))));
        }
    }
    for line in lines(&root.join("proc/swaps")).skip(1) {
        let device = line.split_whitespace().next();
        let device = device.and_then(|device| named_disk(root, device));
        disks.extend(device.map(|device| (device, "swap space".to_owned())));
    }
    disks
}

/// Returns the device of a name as `/dev/sda2` or `/dev/mapper/vg-root`.
fn named_disk(root: &Path, source: &str) -> Option<PathBuf> {
    let name = source.strip_prefix("/dev/")?;
    let block = root.join("sys/class/block");
    let Some(mapped) = name.strip_prefix("mapper/") else {
        return Some(block.join(name));
    };
    let has_name = |path: &PathBuf| {
        let name = fs::read_to_string(path.join("dm/name"));
        name.is_ok_and(|name| name.trim() == mapped)
    };
    entries(&block).find(has_name)
}

/// Returns the network devices over which the default routes go; without one, those over which
/// any route goes.
fn routed(root: &Path) -> BTreeSet<String> {
    let mut default = BTreeSet::new();
    let mut any = BTreeSet::new();
    for line in lines(&root.join("proc/net/route")).skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, destination, _, flags, _, _, _, mask, ..] = fields.as_slice() else {
            continue;
        };
        note(
            name,
            flags,
            *destination == "00000000" && *mask == "00000000",
            &mut default,
            &mut any,
        );
    }
    for line in lines(&root.join("proc/net/ipv6_route")) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, length, .., flags, name] = fields.as_slice() else {
            continue;
        };
        // Every device has these two.
        if destination.starts_with("fe80") || destination.starts_with("ff") {
            continue;
        }
        note(name, flags, *length == "00", &mut default, &mut any);
    }
    if default.is_empty() { any } else { default }
}

fn note(
    name: &str,
    flags: &str,
    is_default: bool,
    default: &mut BTreeSet<String>,
    any: &mut BTreeSet<String>,
) {
    let flags = u32::from_str_radix(flags, 16).unwrap_or(0);
    if name == "lo" || flags & ROUTE_UP == 0 || flags & ROUTE_REJECT != 0 {
        return;
    }
    any.insert(name.to_owned());
    if is_default {
        default.insert(name.to_owned());
    }
}

/// Returns the functions on the way to a device and to all devices that it is made of.
fn below(device: &Path) -> BTreeSet<PciAddress> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut next = vec![device.to_owned()];
    while let Some(path) = next.pop() {
        let Ok(path) = fs::canonicalize(path) else {
            continue;
        };
        if seen.len() >= BELOW_MAX || !seen.insert(path.clone()) {
            continue;
        }
        found.extend(addresses(&path));
        next.extend(parts(&path));
    }
    found
}

/// Returns what a device is made of: the parts of a volume or mirror, the links of a bond or
/// bridge, the paths to a disk with several.
fn parts(device: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<_> = entries(&device.join("slaves")).collect();
    // A partition lies on the disk that its folder is in.
    if device.join("partition").exists() {
        parts.extend(device.parent().map(Path::to_owned));
    }
    let is_lower = |path: &PathBuf| file_name(path).starts_with("lower_");
    parts.extend(entries(device).filter(is_lower));
    let mut above = device.ancestors();
    if let Some(system) = above.find(|path| file_name(path).starts_with("nvme-subsys")) {
        let is_controller =
            |path: &PathBuf| file_name(path).starts_with("nvme") && path.is_symlink();
        parts.extend(entries(system).filter(is_controller));
    }
    parts
}

/// Returns the addresses that are parts of a path, outermost first.
fn addresses(path: &Path) -> Vec<PciAddress> {
    let parts = path.iter().filter_map(|part| part.to_str());
    parts.filter_map(|part| part.parse().ok()).collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

fn lines(path: &Path) -> impl Iterator<Item = String> + use<> {
    let file = File::open(path).into_iter();
    file.flat_map(|file| {
        BufReader::new(file.take(TABLE_MAX))
            .lines()
            .map_while(Result::ok)
    })
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
