//! The rules of a VM's specification.

use std::collections::BTreeSet;

use super::{BootSource, Disk, Nic, VmSpec};
use crate::fault::Fault;
use crate::flavor::Requirements;
use crate::network::{INTERFACE_LENGTH_MAX, NetworkAttachment, is_interface};

/// The most disks of a VM: `vda` to `vdz`.
pub const DISKS_MAX: usize = 26;
/// The most network interfaces of a VM.
pub const NICS_MAX: usize = 16;
/// The longest file name that common file systems take.
pub const FILE_NAME_LENGTH_MAX: usize = 255;
/// The longest kernel command line that x86 Linux takes.
const CMDLINE_LENGTH_MAX: usize = 2047;

impl VmSpec {
    /// Returns what the VM's flavor and image require.
    ///
    /// # Errors
    ///
    /// All faults of the specification at once.
    pub fn validate(&self) -> Result<Requirements, Vec<Fault>> {
        let mut faults = Vec::new();
        let (image, aliases) = (&self.image_properties, &self.pci_aliases);
        let requirements = super::requirements_of(&self.flavor, image, aliases, &self.volumes);
        let requirements = requirements.unwrap_or_else(|flavor| {
            faults.extend(flavor);
            Requirements::default()
        });
        if faults.is_empty() {
            self.check_requirements(&requirements, &mut faults);
        }
        self.check_boot(&mut faults);
        self.check_disks(&mut faults);
        self.check_nics(&mut faults);
        self.check_volumes(&mut faults);
        if faults.is_empty() {
            Ok(requirements)
        } else {
            Err(faults)
        }
    }

    /// Returns the names of all files of the hosts' image directory that the guest is started with.
    pub fn image_files(&self) -> impl Iterator<Item = &str> {
        let (kernel, initrd) = match &self.boot {
            BootSource::Kernel { kernel, initrd, .. } => (Some(kernel), Some(initrd)),
            BootSource::Disk => (None, None),
        };
        let disks = self.disks.iter().filter_map(|disk| disk.image.as_ref());
        let all = kernel.into_iter().chain(initrd).chain(disks);
        all.map(String::as_str).filter(|file| !file.is_empty())
    }

    /// Returns the specification with these images of its disks, in order, an empty one for a disk
    /// without; as it is where none are given.
    ///
    /// # Errors
    ///
    /// All faults at once.
    pub fn with_images(&self, images: &[String]) -> Result<Self, Vec<Fault>> {
        if images.is_empty() {
            return Ok(self.clone());
        }
        // What is on the seed stays.
        let disks = self.disks.iter().filter(|disk| !disk.seed).count();
        if images.len() != disks {
            let rule = format!(
                "there must be one for each of the {disks} disks of the VM, or none at all"
            );
            return Err(vec![Fault::new("images", images.len(), rule)]);
        }
        let mut spec = self.clone();
        for (disk, image) in spec.disks.iter_mut().zip(images) {
            disk.image = (!image.is_empty()).then(|| image.clone());
        }
        spec.validate().map(|_| spec)
    }

    /// Checks that the specification carries what the flavor requires.
    fn check_requirements(&self, requirements: &Requirements, faults: &mut Vec<Fault>) {
        for (field, is_same) in [
            ("topology", requirements.topology == self.topology),
            ("cpu_shape", requirements.cpu_shape == self.cpu_shape),
            ("pci", requirements.pci == self.pci),
        ] {
            if !is_same {
                let rule = "must be the one that flavor and image wish for";
                faults.push(Fault::new(field, "(differs)", rule));
            }
        }
    }

    fn check_boot(&self, faults: &mut Vec<Fault>) {
        match &self.boot {
            BootSource::Kernel {
                kernel,
                initrd,
                cmdline,
            } => {
                check_file("boot.kernel", kernel, faults);
                if !initrd.is_empty() {
                    check_file("boot.initrd", initrd, faults);
                }
                if cmdline.len() > CMDLINE_LENGTH_MAX || cmdline.chars().any(char::is_control) {
                    let rule = format!(
                        "must have at most {CMDLINE_LENGTH_MAX} bytes and no control characters"
                    );
                    faults.push(Fault::new("boot.cmdline", cmdline, rule));
                }
            }
            BootSource::Disk => {
                let has_image = self.disks.first().is_some_and(|d| d.image.is_some());
                if !has_image {
                    let rule = "the first disk must have an image to boot from";
                    faults.push(Fault::new("boot", "disk", rule));
                }
            }
        }
    }

    fn check_disks(&self, faults: &mut Vec<Fault>) {
        if self.disks.len() > DISKS_MAX {
            let seed = if self.has_seed() {
                ", its seed among them"
            } else {
                ""
            };
            let rule = format!("at most {DISKS_MAX} are allowed{seed}");
            faults.push(Fault::new("disks", self.disks.len(), rule));
        }
        for (index, disk) in self.disks.iter().enumerate() {
            if let Some(image) = &disk.image {
                check_file(&format!("disks[{index}].image"), image, faults);
            }
            if disk.seed {
                let is_last = index + 1 == self.disks.len();
                if *disk != Disk::SEED || !is_last {
                    let rule = "must be the last disk, without a size and an image";
                    faults.push(Fault::new(format!("disks[{index}].seed"), true, rule));
                }
            } else if disk.size_gib == 0 {
                let field = format!("disks[{index}].size_gib");
                faults.push(Fault::new(field, 0, "must be at least 1"));
            }
        }
        let sum: u128 = self.disks.iter().map(|d| u128::from(d.size_gib)).sum();
        if sum > u128::from(self.flavor.disk_gib) {
            let rule = format!(
                "the disks may not have more in sum than the flavor's disk_gib of {}",
                self.flavor.disk_gib
            );
            faults.push(Fault::new("disks", format!("{sum} GiB"), rule));
        }
    }

    fn check_nics(&self, faults: &mut Vec<Fault>) {
        if self.nics.len() > NICS_MAX {
            let rule = format!("at most {NICS_MAX} are allowed");
            faults.push(Fault::new("nics", self.nics.len(), rule));
        }
        let mut seen = BTreeSet::new();
        for (index, nic) in self.nics.iter().enumerate() {
            let Nic {
                bridge,
                network,
                mac,
            } = nic;
            if let Some(attachment) = network {
                check_attachment(index, bridge, attachment, faults);
            } else if !is_interface(bridge) {
                let rule = format!(
                    "must be the name of a bridge: 1 to {INTERFACE_LENGTH_MAX} characters out of \
                     letters, digits, '.', '_' and '-'"
                );
                faults.push(Fault::new(format!("nics[{index}].bridge"), bridge, rule));
            }
            let field = format!("nics[{index}].mac");
            if !is_unicast_mac(mac) {
                let rule = "must be a unicast MAC address in lower case, as 52:54:00:12:34:56";
                faults.push(Fault::new(field, mac, rule));
            } else if !seen.insert(mac) {
                faults.push(Fault::new(field, mac, "is another interface's already"));
            }
        }
    }
}

/// Checks the file name of an image that is to be made.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_image_name(field: &str, name: &str) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    check_file(field, name, &mut faults);
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults)
    }
}

fn check_file(field: &str, name: &str, faults: &mut Vec<Fault>) {
    let good = (1..=FILE_NAME_LENGTH_MAX).contains(&name.len())
        && !name.starts_with('.')
        && !name
            .chars()
            .any(|c| matches!(c, '/' | '\\') || c.is_control());
    if !good {
        let rule = "must be a plain file name in the image directory, without a path, not \
                    beginning with '.'";
        faults.push(Fault::new(field, name, rule));
    }
}

/// Checks an interface that is on a network of the cluster.
fn check_attachment(
    index: usize,
    bridge: &str,
    attachment: &NetworkAttachment,
    faults: &mut Vec<Fault>,
) {
    if !bridge.is_empty() {
        let rule = "must be empty where the interface is on a network";
        faults.push(Fault::new(format!("nics[{index}].bridge"), bridge, rule));
    }
    faults.extend(attachment.link.faults().into_iter().map(|fault| Fault {
        field: format!("nics[{index}].network_link.{}", fault.field),
        ..fault
    }));
}

fn is_unicast_mac(text: &str) -> bool {
    let digit = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    let pairs: Vec<_> = text.split(':').collect();
    let well_formed = pairs.len() == 6
        && pairs
            .iter()
            .all(|pair| pair.len() == 2 && pair.as_bytes().iter().all(digit));
    // The lowest bit of the first byte marks groups.
    let is_group = || u8::from_str_radix(pairs[0], 16).is_ok_and(|byte| byte & 1 == 1);
    well_formed && !is_group() && text != "00:00:00:00:00:00"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flavor::Flavor;
    use crate::image::ImageProperties;
    use crate::name::FlavorName;
    use crate::name::VolumeId;
    use crate::ownership::Ownership;
    use crate::pci::{PciAliases, PciMatch, PciNumaPolicy, PciRequest};
    use crate::vm::{AttachedAs, DiskFormat, VolumeAttachment, requirements_of};

    fn spec() -> VmSpec {
        VmSpec {
            flavor: Flavor {
                name: FlavorName::new("f").unwrap(),
                vcpus: 1,
                memory_mib: 64,
                disk_gib: 4,
                extra_specs: [("hw:cpu_policy".to_owned(), "dedicated".to_owned())].into(),
                ownership: Ownership::default(),
            },
            boot: BootSource::Kernel {
                kernel: "vmlinuz".to_owned(),
                initrd: "initrd.img".to_owned(),
                cmdline: "console=ttyS0".to_owned(),
            },
            disks: vec![disk(Some("debian.qcow2"), 2), disk(None, 2)],
            nics: vec![nic("br0", "52:54:00:12:34:56")],
            image_properties: ImageProperties::default(),
            pci_aliases: PciAliases::new(),
            topology: None,
            cpu_shape: None,
            pci: Vec::new(),
            hints: Default::default(),
            volumes: Vec::new(),
        }
    }

    fn disk(image: Option<&str>, size_gib: u64) -> Disk {
        Disk {
            image: image.map(str::to_owned),
            format: DiskFormat::Qcow2,
            size_gib,
            seed: false,
        }
    }

    fn nic(bridge: &str, mac: &str) -> Nic {
        Nic {
            network: None,
            bridge: bridge.to_owned(),
            mac: mac.to_owned(),
        }
    }

    fn volume(number: usize) -> VolumeAttachment {
        VolumeAttachment {
            volume: VolumeId::new(&format!("v{number}")).unwrap(),
            attached_as: AttachedAs::Disk,
            read_only: false,
        }
    }

    /// Goal: a guest with an nvdimm has a cell for it, one with a disk needs none, and the cells
    /// that a flavor requests stay.
    #[test]
    fn an_nvdimm_makes_a_cell() {
        let cells = |as_what, nodes: Option<&str>| {
            let mut spec = spec();
            spec.flavor.extra_specs.clear();
            spec.flavor.vcpus = 2;
            let nodes = nodes.map(|n| ("hw:numa_nodes".to_owned(), n.to_owned()));
            spec.flavor.extra_specs.extend(nodes);
            spec.volumes = vec![VolumeAttachment {
                attached_as: as_what,
                ..volume(0)
            }];
            let (image, aliases) = (&spec.image_properties, &spec.pci_aliases);
            let requirements =
                requirements_of(&spec.flavor, image, aliases, &spec.volumes).unwrap();
            requirements
                .topology
                .map_or(0, |topology| topology.cells.len())
        };
        assert_eq!(cells(AttachedAs::Disk, None), 0);
        assert_eq!(cells(AttachedAs::Nvdimm, None), 1);
        assert_eq!(cells(AttachedAs::Nvdimm, Some("2")), 2);
    }

    fn check(change: impl FnOnce(&mut VmSpec), expected: &[&str]) {
        let mut spec = spec();
        let requirements = spec
            .flavor
            .requirements(&spec.image_properties, &spec.pci_aliases);
        spec.topology = requirements.unwrap().topology;
        change(&mut spec);
        let faults = spec.validate().err().unwrap_or_default();
        let fields: Vec<_> = faults.iter().map(|f| &*f.field).collect();
        assert_eq!(fields, expected);
    }

    /// Goal: each rule refuses with its field. Method: one change to a good specification each.
    #[test]
    fn faults_name_their_field() {
        check(|_| {}, &[]);
        check(|s| s.topology = None, &["topology"]);
        let request = PciRequest {
            count: 1,
            any_of: vec![PciMatch::default()],
            policy: PciNumaPolicy::Required,
        };
        check(|s| s.pci = vec![request], &["pci"]);
        check(|s| s.flavor.vcpus = 0, &["vcpus"]);
        check(|s| s.disks[1].size_gib = 3, &["disks"]);
        check(|s| s.disks[0].size_gib = 0, &["disks[0].size_gib"]);
        check(|s| s.disks[0].size_gib = u64::MAX, &["disks"]);
        check(|s| s.disks.push(Disk::SEED), &[]);
        check(|s| s.disks.insert(0, Disk::SEED), &["disks[0].seed"]);
        check(|s| s.disks[1].seed = true, &["disks[1].seed"]);
        check(
            |s| s.disks.extend([Disk::SEED, Disk::SEED]),
            &["disks[2].seed"],
        );
        for name in ["", "../x", "a/b", ".hidden", "a\nb", "a\\b"] {
            check(
                |s| s.disks[0].image = Some(name.to_owned()),
                &["disks[0].image"],
            );
        }
        check(|s| s.boot = BootSource::Disk, &[]);
        check(
            |s| {
                s.boot = BootSource::Disk;
                s.disks.clear();
            },
            &["boot"],
        );
        let kernel = |kernel: &str, initrd: &str, cmdline: &str| BootSource::Kernel {
            kernel: kernel.to_owned(),
            initrd: initrd.to_owned(),
            cmdline: cmdline.to_owned(),
        };
        check(|s| s.boot = kernel("vmlinuz", "", ""), &[]);
        check(|s| s.boot = kernel("", "initrd", ""), &["boot.kernel"]);
        check(
            |s| s.boot = kernel("/boot/vmlinuz", "../initrd", "a\nb"),
            &["boot.kernel", "boot.initrd", "boot.cmdline"],
        );
        for bridge in ["", "abcdefghijklmnop", "br 0", "br/0", ".."] {
            check(
                |s| s.nics[0].bridge = bridge.to_owned(),
                &["nics[0].bridge"],
            );
        }
        for mac in [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:5G",
            "52:54:00:AA:34:56",
            "53:54:00:12:34:56",
            "00:00:00:00:00:00",
            "52-54-00-12-34-56",
        ] {
            check(|s| s.nics[0].mac = mac.to_owned(), &["nics[0].mac"]);
        }
        check(
            |s| s.nics.push(nic("br0", "52:54:00:12:34:56")),
            &["nics[1].mac"],
        );
        let volumes = |names: std::ops::Range<usize>| names.map(volume).collect();
        check(|s| s.volumes = volumes(0..16), &[]);
        check(|s| s.volumes = volumes(0..17), &["volumes"]);
        check(
            |s| s.volumes = vec![volume(0), volume(1), volume(0)],
            &["volumes[2].volume"],
        );
        check(
            |s| {
                s.flavor.disk_gib = 26;
                s.disks = vec![disk(Some("d"), 1); 25];
                s.volumes = volumes(0..2);
            },
            &["volumes"],
        );
    }
}
