//! A guest as domain XML: pins, memory, guest cells, disks, NICs, console, metadata.
//!
//! What it is not: a choice. Every CPU and page is the claim's.

use std::path::{Path, PathBuf};

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::cpu_shape::CpuShape;
use berth_domain::id::VmUid;
use berth_domain::instance::InstanceCell;
use berth_domain::network::BridgeType;
use berth_domain::numa::CellAssignment;
use berth_domain::vm::{AttachedAs, BootSource, Nic};

use super::cpu::{RunningCpu, element, element_of_running};
use super::node::Node;
use super::nvdimm::Place;
use super::{hostdev, metadata, nvdimm};
use crate::domain::{DomainSpec, VolumeDevice};
use crate::error::Error;

/// Pages up to this size are the kernel's ordinary ones and need no backing by huge pages.
const SMALL_PAGE_KIB_MAX: u64 = 64;

/// The priority of real-time vCPUs. Among themselves they never wait, each having its own CPU, so
/// the lowest does; the kernel's own real-time threads stay above.
const REALTIME_PRIORITY: u32 = 1;

/// How guests are executed. Never found out by trying: a device that is there may be of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtType {
    /// By translation; works everywhere.
    Qemu,
    /// By the processor's own virtualisation.
    Kvm,
}

impl VirtType {
    /// Returns what libvirt calls it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Kvm => "kvm",
        }
    }
}

/// What all guests of a host have in common. The same on all hosts between which guests move:
/// the source writes these paths into the XML of the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How guests are executed.
    pub virt_type: VirtType,
    /// The machine type, as `q35`.
    pub machine: String,
    /// The emulator's program, where it is not libvirt's choice.
    pub emulator: Option<PathBuf>,
    /// Kernels and disk images, shared between hosts or the same on all.
    pub image_dir: PathBuf,
    /// The guests' own disks and console logs, shared between hosts or each host's own.
    pub instance_dir: PathBuf,
    /// Sockets of this host alone.
    pub runtime_dir: PathBuf,
    /// How the host caches disks, as `none`.
    pub disk_cache: String,
}

impl Settings {
    /// Returns the directory of a guest's disks and console log.
    #[must_use]
    pub fn directory(&self, vm: VmUid) -> PathBuf {
        self.instance_dir.join(vm.to_string())
    }

    /// Returns the file of a guest's disk, counted from 0.
    #[must_use]
    pub fn disk(&self, vm: VmUid, index: usize) -> PathBuf {
        self.directory(vm).join(format!("disk{index}.qcow2"))
    }

    /// Returns the file to which a guest's console is logged.
    #[must_use]
    pub fn console_log(&self, vm: VmUid) -> PathBuf {
        self.directory(vm).join("console.log")
    }

    /// Returns the socket on which a guest's console is typed.
    #[must_use]
    pub fn console_socket(&self, vm: VmUid) -> PathBuf {
        self.runtime_dir.join(format!("{vm}.console"))
    }

    /// Returns the file of an image.
    ///
    /// # Errors
    ///
    /// When the name would lead out of the image directory.
    pub fn image(&self, name: &str) -> Result<PathBuf, Error> {
        let is_name = Path::new(name).file_name().is_some_and(|n| n == name);
        if is_name {
            Ok(self.image_dir.join(name))
        } else {
            Err(Error::refused(format!(
                "{name:?} is not the name of a file in the image directory"
            )))
        }
    }
}

/// Returns the domain XML of a guest.
///
/// # Errors
///
/// When an image's name is not a file name, the guest has more disks than there are names, or there is
/// no device for one of its volumes.
pub fn domain(guest: &DomainSpec, settings: &Settings) -> Result<String, Error> {
    taken_over(guest, settings, &Running::default())
}

/// What a guest that runs has from its hypervisor, and has to have at its destination too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Where its persistent memory is.
    pub places: Vec<Place>,
    /// Its CPU; nothing where that is the host's own.
    pub cpu: Option<RunningCpu>,
}

/// Returns the domain XML of a guest that runs elsewhere.
///
/// # Errors
///
/// As [`domain`].
pub fn taken_over(
    guest: &DomainSpec,
    settings: &Settings,
    running: &Running,
) -> Result<String, Error> {
    guest.check_volumes()?;
    let xml = Node::new("domain")
        .with("type", settings.virt_type.as_str())
        .child(Node::new("name").text(&guest.vm))
        .child(Node::new("uuid").text(guest.uid))
        .child(Node::new("metadata").child(metadata::element(guest)))
        .children(nvdimm::max_memory(guest))
        .child(nvdimm::memory("memory", guest))
        .child(nvdimm::memory("currentMemory", guest))
        .children(memory_backing(guest))
        .child(vcpu(guest))
        .children(cpu_tune(guest))
        .children(numa_tune(guest))
        .child(boot(guest, settings)?)
        .child(Node::new("features").child(Node::new("acpi")))
        .child(cpu(guest, settings, running.cpu.as_ref()))
        .child(Node::new("clock").with("offset", "utc"))
        .child(Node::new("on_poweroff").text("destroy"))
        .child(Node::new("on_reboot").text("restart"))
        .child(Node::new("on_crash").text("destroy"))
        .child(devices(guest, settings, &running.places)?);
    Ok(xml.to_xml())
}

/// Each guest cell with its wish, in order.
fn cells(guest: &DomainSpec) -> impl Iterator<Item = (&InstanceCell, &CellAssignment)> {
    let wishes = guest.spec.topology.iter().flat_map(|t| &t.cells);
    wishes.filter_map(|wish| {
        let given = &guest.assignment.cells;
        let given = given.iter().find(|c| c.guest_cell == wish.id)?;
        Some((wish, given))
    })
}

fn memory_backing(guest: &DomainSpec) -> Option<Node> {
    let pages: Vec<_> = cells(guest)
        .filter_map(|(wish, given)| Some((wish.id, given.page_size_kib?)))
        .filter(|(_, size)| *size > SMALL_PAGE_KIB_MAX)
        .map(|(cell, size)| {
            Node::new("page")
                .with("size", size)
                .with("unit", "KiB")
                .with("nodeset", cell)
        })
        .collect();
    let huge = (!pages.is_empty()).then(|| Node::new("hugepages").children(pages));
    let wish = guest.spec.topology.as_ref();
    let is_realtime = wish.is_some_and(|wish| !wish.realtime.is_empty());
    // A real-time vCPU must not wait for memory: not until it is back from swap, and not for a
    // copy of a page that the kernel merged with another guest's.
    let whole = is_realtime.then(|| Node::new("nosharepages"));
    let is_locked = is_realtime || wish.is_some_and(|wish| wish.locked_memory);
    let locked = is_locked.then(|| Node::new("locked"));
    let backing: Vec<_> = huge.into_iter().chain(whole).chain(locked).collect();
    (!backing.is_empty()).then(|| Node::new("memoryBacking").children(backing))
}

fn vcpu(guest: &DomainSpec) -> Node {
    let of_vcpus = guest
        .vcpu_cpus()
        .values()
        .fold(CpuSet::new(), |all, c| all.union(c));
    let all = of_vcpus.union(&guest.emulator_cpus());
    let vcpu = Node::new("vcpu").with("placement", "static");
    let vcpu = if all.is_empty() {
        vcpu
    } else {
        vcpu.with("cpuset", all)
    };
    vcpu.text(guest.spec.flavor.vcpus)
}

fn cpu_tune(guest: &DomainSpec) -> Option<Node> {
    let pins = guest.vcpu_cpus();
    let pins = pins.iter().filter(|(_, cpus)| !cpus.is_empty());
    let pins =
        pins.map(|(vcpu, cpus)| Node::new("vcpupin").with("vcpu", vcpu).with("cpuset", cpus));
    let emulator = guest.emulator_cpus();
    let emulator =
        (!emulator.is_empty()).then(|| Node::new("emulatorpin").with("cpuset", emulator));
    let all: Vec<_> = pins.chain(emulator).chain(schedule(guest)).collect();
    (!all.is_empty()).then(|| Node::new("cputune").children(all))
}

/// Returns how the real-time vCPUs are scheduled, if there are any.
fn schedule(guest: &DomainSpec) -> Option<Node> {
    let realtime = &guest.spec.topology.as_ref()?.realtime;
    // A set of vCPUs is written in the same list notation as a set of CPUs.
    let vcpus: CpuSet = realtime.iter().map(|vcpu| CpuId(vcpu.0)).collect();
    (!vcpus.is_empty()).then(|| {
        Node::new("vcpusched")
            .with("vcpus", vcpus)
            .with("scheduler", "fifo")
            .with("priority", REALTIME_PRIORITY)
    })
}

fn numa_tune(guest: &DomainSpec) -> Option<Node> {
    let mut nodes = CpuSet::new();
    let mut cells_of_memory = Vec::new();
    for (wish, given) in cells(guest) {
        // A set of cells is written in the same list notation as a set of CPUs.
        nodes.insert(CpuId(given.host_cell.0));
        cells_of_memory.push(
            Node::new("memnode")
                .with("cellid", wish.id)
                .with("mode", "strict")
                .with("nodeset", given.host_cell),
        );
    }
    if nodes.is_empty() {
        return None;
    }
    let memory = Node::new("memory")
        .with("mode", "strict")
        .with("nodeset", nodes);
    Some(
        Node::new("numatune")
            .child(memory)
            .children(cells_of_memory),
    )
}

fn boot(guest: &DomainSpec, settings: &Settings) -> Result<Node, Error> {
    let hvm = Node::new("type")
        .with("arch", "x86_64")
        .with("machine", &settings.machine)
        .text("hvm");
    let os = Node::new("os").child(hvm);
    Ok(match &guest.spec.boot {
        BootSource::Kernel {
            kernel,
            initrd,
            cmdline,
        } => {
            let file = |name, image: &str| {
                let path = settings.image(image)?;
                Ok::<_, Error>(Node::new(name).text(path.display()))
            };
            let initrd = match initrd.is_empty() {
                true => None,
                false => Some(file("initrd", initrd)?),
            };
            os.child(file("kernel", kernel)?)
                .children(initrd)
                .child(Node::new("cmdline").text(cmdline))
        }
        BootSource::Disk => os.child(Node::new("boot").with("dev", "hd")),
    })
}

fn cpu(guest: &DomainSpec, settings: &Settings, running: Option<&RunningCpu>) -> Node {
    let cpu = match (running, &guest.cpu, settings.virt_type) {
        (Some(running), _, VirtType::Qemu | VirtType::Kvm) => element_of_running(running),
        (None, Some(cpu), VirtType::Qemu | VirtType::Kvm) => element(cpu),
        (None, None, VirtType::Qemu) => Node::new("cpu")
            .with("mode", "custom")
            .with("match", "exact")
            .child(Node::new("model").with("fallback", "forbid").text("qemu64")),
        (None, None, VirtType::Kvm) => Node::new("cpu").with("mode", "host-model"),
    };
    let shape = guest.spec.cpu_shape.unwrap_or(CpuShape {
        sockets: guest.spec.flavor.vcpus,
        cores: 1,
        threads: 1,
    });
    let cpu = cpu.child(
        Node::new("topology")
            .with("sockets", shape.sockets)
            .with("cores", shape.cores)
            .with("threads", shape.threads),
    );
    let numa: Vec<_> = cells(guest)
        .map(|(wish, given)| {
            let vcpus: CpuSet = wish
                .shared
                .union(&wish.dedicated)
                .map(|v| CpuId(v.0))
                .collect();
            Node::new("cell")
                .with("id", wish.id)
                .with("cpus", vcpus)
                .with("memory", given.memory_mib)
                .with("unit", "MiB")
        })
        .collect();
    if numa.is_empty() {
        cpu
    } else {
        cpu.child(Node::new("numa").children(numa))
    }
}

fn devices(guest: &DomainSpec, settings: &Settings, places: &[Place]) -> Result<Node, Error> {
    let emulator = settings
        .emulator
        .as_ref()
        .map(|path| Node::new("emulator").text(path.display()));
    let disks: Vec<_> = (0..guest.spec.disks.len())
        .map(|index| disk(guest, index, settings))
        .collect::<Result<_, _>>()?;
    let volumes = guest.volumes.iter();
    let volumes = volumes.filter(|v| v.attached_as == AttachedAs::Disk);
    let volumes: Vec<_> = (disks.len()..)
        .zip(volumes)
        .map(|(index, volume)| volume_disk(index, volume))
        .collect::<Result<_, _>>()?;
    let nics = guest
        .spec
        .nics
        .iter()
        .map(|interface| nic(guest, interface));
    let nics: Vec<_> = nics.collect::<Result<_, _>>()?;
    let usb = Node::new("controller")
        .with("type", "usb")
        .with("model", "none");
    Ok(Node::new("devices")
        .children(emulator)
        .children(disks)
        .children(volumes)
        .child(usb)
        .children(nics)
        .children(hostdev::elements(&guest.assignment))
        .children(nvdimm::elements(guest, places))
        .child(serial(guest.uid, settings))
        .child(Node::new("memballoon").with("model", "none")))
}

/// How many disks a guest can have: one for each letter.
const DISKS_MAX: usize = 26;

/// The longest serial number of a virtio disk.
const VIRTIO_SERIAL_LENGTH_MAX: usize = 20;

/// Returns what the guest calls one of its disks, as `vda`.
#[must_use]
pub fn disk_target(index: usize) -> String {
    let letter = (b'a'..=b'z').nth(index).unwrap_or(b'z');
    format!("vd{}", char::from(letter))
}

/// Returns a disk with all that lies below it: otherwise libvirt and QEMU would look into the files for it.
fn disk(guest: &DomainSpec, index: usize, settings: &Settings) -> Result<Node, Error> {
    if index >= DISKS_MAX {
        return Err(Error::refused(format!(
            "a guest has at most {DISKS_MAX} disks"
        )));
    }
    let file = settings.disk(guest.uid, index);
    let disk = &guest.spec.disks[index];
    let base = match &disk.image {
        Some(image) => Node::new("backingStore")
            .with("type", "file")
            .child(Node::new("format").with("type", disk.format.as_str()))
            .child(Node::new("source").with("file", settings.image(image)?.display()))
            .child(no_base()),
        None => no_base(),
    };
    Ok(Node::new("disk")
        .with("type", "file")
        .with("device", "disk")
        .child(
            Node::new("driver")
                .with("name", "qemu")
                .with("type", "qcow2")
                .with("cache", &settings.disk_cache),
        )
        .child(Node::new("source").with("file", file.display()))
        .child(base)
        .child(
            Node::new("target")
                .with("dev", disk_target(index))
                .with("bus", "virtio"),
        ))
}

/// Returns the end of a chain of files.
fn no_base() -> Node {
    Node::new("backingStore")
}

/// Where devices are; what is elsewhere is a file, as that of a simulated volume.
const DEVICES: &str = "/dev";

/// Returns a volume as a disk, after those that are the guest's own. The host caches nothing of it:
/// it is memory itself, and what the guest has flushed is to survive the host.
fn volume_disk(index: usize, volume: &VolumeDevice) -> Result<Node, Error> {
    if index >= DISKS_MAX {
        return Err(Error::refused(format!(
            "a guest has at most {DISKS_MAX} disks"
        )));
    }
    let driver = Node::new("driver")
        .with("name", "qemu")
        .with("type", "raw")
        .with("cache", "none");
    let target = Node::new("target")
        .with("dev", disk_target(index))
        .with("bus", "virtio");
    let (kind, source) = match volume.path.starts_with(DEVICES) {
        true => ("block", "dev"),
        false => ("file", "file"),
    };
    Ok(Node::new("disk")
        .with("type", kind)
        .with("device", "disk")
        .child(driver)
        .child(Node::new("source").with(source, volume.path.display()))
        .child(no_base())
        .child(target)
        .children(volume.read_only.then(|| Node::new("readonly")))
        .child(Node::new("serial").text(serial_of(volume))))
}

/// Returns the last part of a disk's serial number, by which the guest recognises it: as many
/// characters as fit into that of a virtio disk.
fn serial_of(volume: &VolumeDevice) -> &str {
    let id = volume.volume.as_str();
    &id[id.len().saturating_sub(VIRTIO_SERIAL_LENGTH_MAX)..]
}

/// Returns the element with the destination of a disk's copy.
#[must_use]
pub fn copy_destination(file: &Path, format: &str) -> String {
    Node::new("disk")
        .with("type", "file")
        .child(Node::new("source").with("file", file.display()))
        .child(no_base())
        .child(Node::new("driver").with("type", format))
        .to_xml()
}

fn nic(guest: &DomainSpec, nic: &Nic) -> Result<Node, Error> {
    let interface = |bridge: &str| {
        Node::new("interface")
            .with("type", "bridge")
            .child(Node::new("mac").with("address", &nic.mac))
            .child(Node::new("source").with("bridge", bridge))
            .child(Node::new("model").with("type", "virtio"))
    };
    let Some(attachment) = &nic.network else {
        return Ok(interface(&nic.bridge));
    };
    let mapping = guest.bridge_to(attachment)?;
    let link = &attachment.link;
    let (port, vlan) = match mapping.bridge_type {
        BridgeType::Linux => (None, link.vlan),
        BridgeType::OpenVSwitch => {
            let port = Node::new("virtualport").with("type", "openvswitch");
            // A port without a tag carries all VLANs there; that with 0 only what has none.
            (Some(port), Some(link.vlan.unwrap_or(0)))
        }
    };
    let vlan = vlan.map(|id| Node::new("vlan").child(Node::new("tag").with("id", id)));
    Ok(interface(&mapping.bridge)
        .children(port)
        .children(vlan)
        .children(link.mtu.map(|size| Node::new("mtu").with("size", size))))
}

/// The log takes everything that the guest writes, with no client connected; the socket is for
/// typing.
fn serial(vm: VmUid, settings: &Settings) -> Node {
    let socket = settings.console_socket(vm);
    let log = settings.console_log(vm);
    Node::new("serial")
        .with("type", "unix")
        .child(
            Node::new("source")
                .with("mode", "bind")
                .with("path", socket.display()),
        )
        .child(
            Node::new("log")
                .with("file", log.display())
                .with("append", "on"),
        )
        .child(Node::new("target").with("port", 0))
}
