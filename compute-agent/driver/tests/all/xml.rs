//! Goal: the XML that a hypervisor is given says exactly what the claim says.
//!
//! Method: golden files in `testdata/xml`, which `BERTH_REWRITE=1 cargo test -p berth-driver
//! --test all xml` rewrites, and a property over random guests: well-formed, every pin there, the
//! record comes back, and source and destination have the same elements.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use berth_domain::cpu_model::{CpuMode, GuestCpu};
use berth_domain::cpu_set::CpuId;
use berth_domain::cpu_shape::CpuShape;
use berth_domain::id::{ClaimId, Epoch};
use berth_domain::instance::{
    CpuPolicy, EmulatorThreads, InstanceCell, InstanceTopology, PageSize, VcpuId,
};
use berth_domain::name::{
    CpuFeature, CpuModelName, CpuVendor, NetworkName, PhysicalNetworkName, PmemName, VolumeId,
};
use berth_domain::network::{BridgeMapping, BridgeType, NetworkAttachment, NetworkLink};
use berth_domain::numa::{Assignment, CellAssignment};
use berth_domain::pmem::{Label, PmemDevice};
use berth_domain::topology::CellId;
use berth_domain::vm::{AttachedAs, BootSource, Disk, DiskFormat, Nic, VolumeAttachment};
use berth_driver::conformance::sample;
use berth_driver::xml::{self, Running, Settings, VirtType};
use berth_driver::{DomainSpec, VolumeDevice};
use proptest::prelude::*;
use uuid::Uuid;

fn settings() -> Settings {
    Settings {
        virt_type: VirtType::Qemu,
        machine: "q35".to_owned(),
        emulator: None,
        image_dir: PathBuf::from("/var/lib/berth/images"),
        instance_dir: PathBuf::from("/var/lib/berth/instances"),
        runtime_dir: PathBuf::from("/run/berth"),
        disk_cache: "none".to_owned(),
    }
}

fn golden(name: &str, guest: &DomainSpec, settings: &Settings) {
    let written = xml::domain(guest, settings).unwrap();
    nothing_is_probed(&written);
    is_golden(name, &written);
}

/// Every disk states its format and all that lies below it: libvirt looks into a file for what is not
/// stated, and a guest writes what is there.
fn nothing_is_probed(written: &str) {
    for disk in written.split("<disk ").skip(1) {
        let (disk, _) = disk.split_once("</disk>").expect("its end");
        assert!(disk.contains("<driver name=\"qemu\" type=\""), "{disk}");
        assert!(disk.contains("<backingStore/>"), "{disk}");
        let files = disk.matches("<source ").count();
        assert_eq!(
            files,
            disk.matches("<driver ").count() + disk.matches("<format ").count()
        );
    }
}

fn is_golden(name: &str, written: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/xml")
        .join(format!("{name}.xml"));
    if std::env::var_os("BERTH_REWRITE").is_some() {
        std::fs::write(&path, written).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, expected, "{}", path.display());
}

fn cell(id: u32, shared: &[u32], dedicated: &[u32], page_size: PageSize) -> InstanceCell {
    let vcpus = |ids: &[u32]| ids.iter().map(|id| VcpuId(*id)).collect();
    let (shared, dedicated) = (vcpus(shared), vcpus(dedicated));
    InstanceCell {
        id,
        cpu_policy: CpuPolicy::of(&shared, &dedicated),
        shared,
        dedicated,
        memory_mib: 256,
        page_size,
        ..InstanceCell::default()
    }
}

fn given(
    guest_cell: u32,
    host_cell: u32,
    pins: &[(u32, u32)],
    floating: &str,
    page_size_kib: Option<u64>,
) -> CellAssignment {
    CellAssignment {
        guest_cell,
        host_cell: CellId(host_cell),
        pins: pins.iter().map(|(v, c)| (VcpuId(*v), CpuId(*c))).collect(),
        shared_vcpus: u32::from(!floating.is_empty()),
        floating: floating.parse().unwrap(),
        memory_mib: 256,
        page_size_kib,
        ..CellAssignment::default()
    }
}

/// Two cells, huge pages in one of them, mixed vCPUs, the emulator on a CPU of its own.
fn two_cells() -> DomainSpec {
    let mut spec = sample::plain_spec(4);
    spec.flavor.memory_mib = 512;
    spec.topology = Some(InstanceTopology {
        cells: vec![
            cell(0, &[0], &[1], PageSize::Kib(2048)),
            cell(1, &[], &[2, 3], PageSize::Small),
        ],
        emulator_threads: EmulatorThreads::Isolate,
        ..InstanceTopology::default()
    });
    let assignment = Assignment {
        cells: vec![
            given(0, 2, &[(1, 9)], "8", Some(2048)),
            given(1, 0, &[(2, 3), (3, 1)], "", Some(4)),
        ],
        emulator: "10".parse().unwrap(),
        ..Assignment::default()
    };
    let mut guest = sample::domain("two-cells", 2, spec, assignment);
    guest.shared_cpus = "0,4,8,12".parse().unwrap();
    guest
}

/// Volumes as this host has them, one seen as an nvdimm and one as a disk.
fn with_volumes(guest: DomainSpec) -> DomainSpec {
    with_volumes_that(guest, false)
}

fn with_volumes_that(mut guest: DomainSpec, read_only: bool) -> DomainSpec {
    let volume = |text: &str| VolumeId::new(text).unwrap();
    let all = [
        (
            volume("cache-00000000000000000000000000000001"),
            AttachedAs::Nvdimm,
            "/run/berth/volumes/cache-00000000000000000000000000000001/berth-vm.img",
        ),
        (
            volume("db-00000000000000000000000000000002"),
            AttachedAs::Disk,
            "/dev/berth-region0/db-00000000000000000000000000000002",
        ),
    ];
    for (volume, attached_as, path) in all {
        guest.spec.volumes.push(VolumeAttachment {
            volume: volume.clone(),
            attached_as,
            read_only,
        });
        guest.volumes.push(VolumeDevice {
            volume,
            attached_as,
            path: PathBuf::from(path),
            size_bytes: 64 << 20,
            read_only,
        });
    }
    guest
}

/// Goal: a volume is a disk behind the guest's own, or an nvdimm of its first cell.
#[test]
fn a_guest_with_volumes() {
    let mut spec = sample::plain_spec(1);
    spec.flavor.memory_mib = 256;
    spec.disks = vec![Disk {
        image: None,
        format: DiskFormat::Raw,
        size_gib: 1,
        seed: false,
    }];
    spec.topology = Some(InstanceTopology {
        cells: vec![cell(0, &[0], &[], PageSize::Unspecified)],
        ..InstanceTopology::default()
    });
    let assignment = Assignment {
        cells: vec![given(0, 1, &[], "4-5", None)],
        ..Assignment::default()
    };
    let guest = sample::domain("volumes", 9, spec, assignment);
    golden("volumes", &with_volumes(guest.clone()), &settings());
    let read_only = with_volumes_that(guest, true);
    golden("volumes-read-only", &read_only, &settings());
}

/// Goal: what is no device is not opened as one.
#[test]
fn a_volume_in_a_file_is_a_file() {
    let mut guest = with_volumes(two_cells());
    guest.volumes[1].path = PathBuf::from("/var/lib/berth/volumes/sim/blocks/db");
    let written = xml::domain(&guest, &settings()).unwrap();
    let source = "<source file=\"/var/lib/berth/volumes/sim/blocks/db\"/>";
    assert!(written.contains(source), "{written}");
    assert!(!written.contains("type=\"block\""), "{written}");
}

/// Goal: a guest never starts without one of its volumes, or with another's.
#[test]
fn volumes_without_devices_are_refused() {
    let good = with_volumes(two_cells());
    assert!(xml::domain(&good, &settings()).is_ok());
    let refused = |change: &dyn Fn(&mut DomainSpec)| {
        let mut guest = good.clone();
        change(&mut guest);
        let error = xml::domain(&guest, &settings()).unwrap_err();
        assert!(
            matches!(error, berth_driver::Error::VolumeUnusable { .. }),
            "{error}"
        );
    };
    refused(&|guest| guest.volumes.clear());
    refused(&|guest| drop(guest.volumes.pop()));
    refused(&|guest| guest.volumes.swap(0, 1));
    refused(&|guest| guest.volumes[1].attached_as = AttachedAs::Nvdimm);
    refused(&|guest| guest.volumes[1].read_only = true);
    refused(&|guest| drop(guest.spec.volumes.pop()));
}

#[test]
fn a_guest_with_disk_and_nic_that_floats() {
    let mut spec = sample::plain_spec(2);
    spec.boot = BootSource::Disk;
    spec.disks = vec![
        Disk {
            image: Some("debian.qcow2".to_owned()),
            format: DiskFormat::Qcow2,
            size_gib: 4,
            seed: false,
        },
        Disk {
            image: None,
            format: DiskFormat::Raw,
            size_gib: 1,
            seed: false,
        },
    ];
    spec.nics = vec![Nic {
        network: None,
        bridge: "br0".to_owned(),
        mac: "52:54:00:12:34:56".to_owned(),
    }];
    let mut guest = sample::domain("floating", 1, spec, Assignment::default());
    guest.shared_cpus = "0-1,4".parse().unwrap();
    golden("floating", &guest, &settings());
}

/// Goal: the port of a guest on a network has its VLAN and its MTU, on either type of bridge. Method: a
/// network of each kind on a bridge of each type, beside a bridge without a network.
#[test]
fn a_guest_on_networks() {
    let mut spec = sample::plain_spec(1);
    let nic = |number: usize, network| Nic {
        bridge: match network {
            None => "br0".to_owned(),
            Some(_) => String::new(),
        },
        network,
        mac: format!("52:54:00:00:00:0{number}"),
    };
    let link = |physical: &str, vlan, mtu| NetworkAttachment {
        name: NetworkName::new("web").unwrap(),
        link: NetworkLink {
            physical_network: PhysicalNetworkName::new(physical).unwrap(),
            vlan,
            mtu,
        },
    };
    let networks = [
        None,
        Some(link("plain", None, None)),
        Some(link("plain", Some(7), Some(9000))),
        Some(link("switched", None, Some(1400))),
        Some(link("switched", Some(4094), None)),
    ];
    spec.nics = networks
        .into_iter()
        .enumerate()
        .map(|(number, network)| nic(number, network))
        .collect();
    let mut guest = sample::domain("networks", 1, spec, Assignment::default());
    let mapping = |physical: &str, bridge: &str, bridge_type| BridgeMapping {
        physical_network: PhysicalNetworkName::new(physical).unwrap(),
        bridge: bridge.to_owned(),
        bridge_type,
    };
    guest.bridges = vec![
        mapping("plain", "br1", BridgeType::Linux),
        mapping("switched", "br-int", BridgeType::OpenVSwitch),
    ];
    golden("networks", &guest, &settings());
    guest.bridges.pop();
    let refused = xml::domain(&guest, &settings()).unwrap_err();
    assert!(refused.to_string().contains("switched"), "{refused}");
}

#[test]
fn a_guest_of_two_cells_and_the_same_on_its_destination() {
    let source = two_cells();
    golden("two-cells-source", &source, &settings());
    let destination = DomainSpec {
        claim: Some(ClaimId(Uuid::from_u128(77))),
        epoch: Epoch(8),
        assignment: Assignment {
            cells: vec![
                given(0, 1, &[(1, 5)], "4", Some(2048)),
                given(1, 3, &[(2, 15), (3, 14)], "", Some(4)),
            ],
            emulator: "6".parse().unwrap(),
            ..Assignment::default()
        },
        ..source
    };
    golden("two-cells-destination", &destination, &settings());
}

/// A guest outlives the agent that began it: what was recorded before cells had policies and
/// guests had PCI functions still says the same.
#[test]
fn a_guest_that_an_older_agent_began_is_known() {
    let path = "testdata/xml/two-cells-before-policies.xml";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    let written = std::fs::read_to_string(path).unwrap();
    assert_eq!(xml::metadata::parse(&written).unwrap(), two_cells());
}

/// Goal: shape, real-time vCPUs and locked memory reach the hypervisor; the hypervisor's own
/// threads keep off the real-time CPUs, and the shared vCPU floats over the cell's shared CPUs.
#[test]
fn a_mixed_guest_with_real_time_vcpus_and_a_shape() {
    let mut spec = sample::plain_spec(4);
    spec.flavor.memory_mib = 256;
    spec.cpu_shape = Some(CpuShape {
        sockets: 1,
        cores: 2,
        threads: 2,
    });
    spec.topology = Some(InstanceTopology {
        cells: vec![cell(0, &[0, 1], &[2, 3], PageSize::Kib(2048))],
        realtime: [2, 3].map(VcpuId).into(),
        ..InstanceTopology::default()
    });
    let assignment = Assignment {
        cells: vec![given(0, 1, &[(2, 5), (3, 7)], "4,6", Some(2048))],
        ..Assignment::default()
    };
    let mut guest = sample::domain("real-time", 4, spec, assignment);
    guest.shared_cpus = "0,4,6".parse().unwrap();
    golden("real-time", &guest, &settings());
}

/// Goal: each namespace is a device of the guest's first cell, in the order of the flavor.
#[test]
fn a_guest_with_persistent_memory() {
    let device = |name: &str, label: &str, mib: u64, path: &str| PmemDevice {
        name: PmemName::new(name).unwrap(),
        class: Label::parse(label).unwrap().class(),
        size_bytes: mib << 20,
        align_bytes: 2 << 20,
        path: path.to_owned(),
    };
    let mut guest = two_cells();
    guest.assignment.pmem = vec![
        device("ns7", "LARGE", 4094, "/dev/dax1.0"),
        device("ns2", "SMALL", 124, "/dev/dax0.3"),
    ];
    golden("persistent-memory", &guest, &settings());
}

/// Goal: memory is locked where only that is asked for.
#[test]
fn a_guest_with_locked_memory() {
    let mut spec = sample::pinned_spec(1, PageSize::Small);
    let topology = spec.topology.as_mut().unwrap();
    topology.locked_memory = true;
    let guest = sample::domain("locked", 5, spec, sample::pins(0, &[3], Some(4)));
    let written = xml::domain(&guest, &settings()).unwrap();
    assert!(written.contains("  <memoryBacking>\n    <locked/>\n  </memoryBacking>\n"));
    assert!(!written.contains("vcpusched"));
}

#[test]
fn a_pinned_guest_under_hardware_virtualisation() {
    let spec = sample::pinned_spec(2, PageSize::Unspecified);
    let guest = sample::domain("pinned", 3, spec, sample::pins(0, &[2, 1], None));
    let settings = Settings {
        virt_type: VirtType::Kvm,
        emulator: Some(PathBuf::from("/usr/bin/qemu-system-x86_64")),
        ..settings()
    };
    golden("pinned-kvm", &guest, &settings);
}

fn some_cpu() -> GuestCpu {
    let features = |names: [&str; 2]| names.map(|name| CpuFeature::new(name).unwrap()).into();
    GuestCpu {
        vendor: Some(CpuVendor::new("Intel").unwrap()),
        required: features(["sse4.2", "movbe"]),
        disabled: features(["hle", "rtm"]),
        ..GuestCpu::named(CpuModelName::new("Haswell").unwrap())
    }
}

/// Goal: the CPU that the claim records is the guest's, on either way of execution, and on both sides of a
/// migration; the record has it.
#[test]
fn a_guest_with_a_cpu_model() {
    let mut guest = two_cells();
    guest.cpu = Some(Arc::new(some_cpu()));
    golden("cpu-model", &guest, &settings());
    let under_kvm = Settings {
        virt_type: VirtType::Kvm,
        ..settings()
    };
    let element = |written: &str| {
        let (_, cpu) = written.split_once("<cpu ").expect("a CPU");
        cpu.split_once("</cpu>").expect("its end").0.to_owned()
    };
    let here = xml::domain(&guest, &settings()).unwrap();
    for settings in [settings(), under_kvm] {
        let there = xml::taken_over(&guest, &settings, &Running::default()).unwrap();
        assert_eq!(element(&here), element(&there));
        assert_eq!(xml::metadata::parse(&there).unwrap(), guest);
        assert_eq!(xml::cpu::definition(&there).unwrap(), some_cpu());
    }
}

/// Goal: libvirt adds to a CPU at the start, and refuses a destination that differs: in the order of the
/// features and in the check too.
#[test]
fn a_guest_that_runs_takes_along_what_was_added_to_its_cpu() {
    let mut guest = two_cells();
    guest.cpu = Some(Arc::new(some_cpu()));
    let live = |mode: &str| {
        format!(
            "<domain><vcpu>4</vcpu><cpu mode='{mode}' match='exact' check='full'>\
             <model fallback='forbid'>Haswell</model><vendor>Intel</vendor>\
             <topology sockets='4' dies='1' cores='1' threads='1'/>\
             <feature policy='disable' name='rtm'/><feature policy='require' name='vme'/></cpu>\
             <devices><interface type='bridge'><model type='virtio'/></interface></devices></domain>"
        )
    };
    let running = |mode: &str| Running {
        places: Vec::new(),
        cpu: xml::cpu::running(&live(mode)).unwrap(),
    };
    let written = xml::taken_over(&guest, &settings(), &running("custom")).unwrap();
    let expected = "  <cpu mode=\"custom\" match=\"exact\" check=\"full\">\n    \
                    <model fallback=\"forbid\">Haswell</model>\n    <vendor>Intel</vendor>\n    \
                    <feature policy=\"disable\" name=\"rtm\"/>\n    \
                    <feature policy=\"require\" name=\"vme\"/>\n    <topology sockets=\"4\" ";
    assert!(written.contains(expected), "{written}");
    assert_eq!(xml::metadata::parse(&written).unwrap(), guest);
    // The host's own is that of the destination.
    assert_eq!(running("host-passthrough").cpu, None);
}

/// Goal: what is passed through is the host's, whatever the host reported; both hosts are alike then.
#[test]
fn a_guest_that_is_passed_its_hosts_cpu_through() {
    let mut guest = two_cells();
    guest.cpu = Some(Arc::new(GuestCpu {
        mode: CpuMode::HostPassthrough,
        ..some_cpu()
    }));
    let written = xml::domain(&guest, &settings()).unwrap();
    let expected = "  <cpu mode=\"host-passthrough\" migratable=\"on\">\n    <topology ";
    assert!(written.contains(expected), "{written}");
    assert!(!written.contains("Haswell</model>"), "{written}");
    assert_eq!(xml::metadata::parse(&written).unwrap(), guest);
}

/// Goal: every function that the claim gives, of all requests, is a device of the guest, and none
/// else is.
#[test]
fn a_guest_with_pci_functions() {
    let spec = sample::pinned_spec(1, PageSize::Unspecified);
    let mut assignment = sample::pins(0, &[2], None);
    let addresses = |all: &[&str]| all.iter().map(|a| a.parse().unwrap()).collect();
    assignment.pci = vec![
        addresses(&["0000:81:10.0", "0000:81:10.1"]),
        addresses(&["10000:e1:1f.7"]),
    ];
    let guest = sample::domain("devices", 4, spec, assignment);
    golden("pci-functions", &guest, &settings());
}

/// The devices are in the order of the flavor, and for who takes the guest over where the guest sees
/// them.
#[test]
fn a_guest_with_persistent_memory_and_the_same_on_its_destination() {
    let device = |name: &str, label: &str, size_mib: u64, path: &str| PmemDevice {
        name: PmemName::new(name).unwrap(),
        class: Label::parse(label).unwrap().class(),
        size_bytes: size_mib << 20,
        align_bytes: 2 << 20,
        path: path.to_owned(),
    };
    let mut source = two_cells();
    source.assignment.pmem = vec![
        device("ns1", "BIG", 4094, "/dev/dax1.0"),
        device("ns0", "SMALL", 62, "/dev/dax0.0"),
    ];
    golden("persistent-memory-source", &source, &settings());
    let live = "<domain><devices><memory model='nvdimm'><address type='dimm' slot='0' \
                base='0x100000000'/></memory><memory model='nvdimm'><address type='dimm' slot='1' \
                base='0x200000000'/></memory></devices></domain>";
    let mut destination = source.clone();
    destination.assignment.pmem[0].path = "/dev/dax7.3".to_owned();
    destination.assignment.pmem[1].path = "/dev/dax0.1".to_owned();
    let running = Running {
        places: xml::places(live).unwrap(),
        cpu: xml::cpu::running(live).unwrap(),
    };
    assert_eq!(running.cpu, None);
    let written = xml::taken_over(&destination, &settings(), &running).unwrap();
    is_golden("persistent-memory-destination", &written);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for kernel in ["../vmlinuz", "/etc/passwd", "a/b", "..", ""] {
        let mut guest = sample::domain("a", 1, sample::plain_spec(1), Assignment::default());
        guest.spec.boot = BootSource::Kernel {
            kernel: kernel.to_owned(),
            initrd: "initrd".to_owned(),
            cmdline: String::new(),
        };
        let refused = xml::domain(&guest, &settings()).unwrap_err();
        assert!(refused.to_string().contains("image directory"), "{kernel}");
    }
}

#[test]
fn a_kernel_needs_no_initial_ram_disk() {
    let mut guest = sample::domain("a", 1, sample::plain_spec(1), Assignment::default());
    let kernel = |initrd: &str| BootSource::Kernel {
        kernel: "vmlinuz".to_owned(),
        initrd: initrd.to_owned(),
        cmdline: "quiet".to_owned(),
    };
    for (initrd, expected) in [("", 0), ("initrd.gz", 1)] {
        guest.spec.boot = kernel(initrd);
        let written = xml::domain(&guest, &settings()).unwrap();
        let names = elements(&written);
        let count = |of: &str| names.iter().filter(|name| *name == of).count();
        let counted = ["kernel", "initrd", "cmdline"].map(count);
        assert_eq!(counted, [1, expected, 1], "{written}");
        assert_eq!(xml::metadata::parse(&written).unwrap(), guest);
    }
}

#[test]
fn text_of_the_user_cannot_become_markup() {
    let mut guest = sample::domain("a", 1, sample::plain_spec(1), Assignment::default());
    let cmdline = "a=\"<&'\"]]></cmdline><evil/> \u{e4}".to_owned();
    guest.spec.boot = BootSource::Kernel {
        kernel: "k".to_owned(),
        initrd: "i".to_owned(),
        cmdline,
    };
    let written = xml::domain(&guest, &settings()).unwrap();
    assert!(!written.contains("<evil"));
    assert_eq!(xml::metadata::parse(&written).unwrap(), guest);
}

/// The names of all elements in order: the machine that the guest sees, without its places.
fn elements(xml: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut names = Vec::new();
    loop {
        use quick_xml::events::Event;
        let name = match reader.read_event().expect("well-formed") {
            Event::Start(e) | Event::Empty(e) => e.name().as_ref().to_vec(),
            Event::Eof => return names,
            Event::End(_)
            | Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => continue,
        };
        names.push(String::from_utf8(name).unwrap());
    }
}

/// Guests of up to four cells with up to four vCPUs each, placed on two hosts.
fn guests() -> impl Strategy<Value = (DomainSpec, DomainSpec)> {
    let cell = (
        0_u32..3,
        1_u32..4,
        prop_oneof![Just(None), Just(Some(4)), Just(Some(2048))],
    );
    let emulator = prop_oneof![
        Just(EmulatorThreads::Unspecified),
        Just(EmulatorThreads::Isolate),
        Just(EmulatorThreads::Share)
    ];
    (proptest::collection::vec(cell, 1..5), emulator).prop_map(|(cells, emulator)| {
        let place = |offset: u32| {
            let mut next = 0;
            let mut wishes = Vec::new();
            let mut assigned = Vec::new();
            for (id, (shared, dedicated, page)) in (0_u32..).zip(&cells) {
                let host = (id + offset) % 8;
                let vcpus: Vec<u32> = (next..next + shared + dedicated).collect();
                next += shared + dedicated;
                let (of_shared, of_dedicated) = vcpus.split_at(*shared as usize);
                wishes.push(self::cell(id, of_shared, of_dedicated, PageSize::Any));
                let pins: Vec<_> = of_dedicated
                    .iter()
                    .zip(host * 8 + 1..)
                    .map(|(v, c)| (*v, c))
                    .collect();
                let floating = if *shared > 0 {
                    (host * 8).to_string()
                } else {
                    String::new()
                };
                assigned.push(given(id, host, &pins, &floating, *page));
            }
            let mut spec = sample::plain_spec(next);
            spec.flavor.memory_mib = 256 * cells.len() as u64;
            spec.topology = Some(InstanceTopology {
                cells: wishes,
                emulator_threads: emulator,
                ..InstanceTopology::default()
            });
            let mut assignment = Assignment {
                cells: assigned,
                ..Assignment::default()
            };
            if emulator == EmulatorThreads::Isolate {
                assignment.emulator.insert(CpuId(offset * 8 + 7));
            }
            let mut guest = sample::domain("any", 9, spec, assignment);
            guest.shared_cpus = (0..8).map(|c| CpuId(c * 8)).collect();
            guest
        };
        (place(0), place(3))
    })
}

proptest! {
    #[test]
    fn every_guest_is_written_and_read_back((source, destination) in guests()) {
        let here = xml::domain(&source, &settings()).unwrap();
        let there = xml::domain(&destination, &settings()).unwrap();
        prop_assert_eq!(elements(&here), elements(&there));
        for (guest, written) in [(&source, &here), (&destination, &there)] {
            prop_assert_eq!(&xml::metadata::parse(written).unwrap(), guest);
            let pins: BTreeMap<_, _> = xml::read::vcpu_cpus(written).unwrap().into_iter().collect();
            prop_assert_eq!(&pins, &guest.vcpu_cpus());
            let dedicated: BTreeSet<_> = guest.assignment.pins().into_iter().collect();
            for (vcpu, cpu) in dedicated {
                let pin = format!("<vcpupin vcpu=\"{vcpu}\" cpuset=\"{cpu}\"/>");
                prop_assert!(written.contains(&pin));
            }
            for cell in &guest.assignment.cells {
                let node = format!(
                    "<memnode cellid=\"{}\" mode=\"strict\" nodeset=\"{}\"/>",
                    cell.guest_cell, cell.host_cell
                );
                prop_assert!(written.contains(&node));
            }
        }
    }
}

/// Goal: a copy is taken for complete only where the disk's own mirror says so. Method: as libvirt
/// writes it, with another disk beside it.
#[test]
fn the_copy_of_a_disk_is_read_back() {
    use berth_driver::xml::read::{Copy, copy_of};
    let xml = |ready: &str| {
        format!(
            "<domain><devices><disk type='file'><source file='/a'/><mirror type='file' file='/c' \
             format='qcow2' job='copy'{ready}><format type='qcow2'/><source file='/c'/></mirror>\
             <target dev='vda' bus='virtio'/></disk><disk type='file'><source file='/b'/>\
             <target dev='vdb' bus='virtio'/></disk></devices></domain>"
        )
    };
    assert_eq!(copy_of(&xml(""), "vda").unwrap(), Copy::Behind);
    assert_eq!(
        copy_of(&xml(" ready='abort'"), "vda").unwrap(),
        Copy::Behind
    );
    assert_eq!(
        copy_of(&xml(" ready='yes'"), "vda").unwrap(),
        Copy::CaughtUp
    );
    assert_eq!(copy_of(&xml(" ready='yes'"), "vdb").unwrap(), Copy::None);
    assert_eq!(copy_of(&xml(" ready='yes'"), "vdc").unwrap(), Copy::None);
    assert!(copy_of("<domain><disk>", "vda").is_ok_and(|copy| copy == Copy::None));
}
