//! Goal: the libvirt driver holds what every driver is held to, with real guests on two real
//! hypervisors.
//!
//! Method: the one conformance suite, from outside the machines; plus what only real guests show:
//! the threads' CPUs, a disk over an image, a console that answers after the move.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_domain::agent::DomainState;
use berth_domain::cpu_set::CpuId;
use berth_domain::first_boot::FirstBoot;
use berth_domain::id::OperationId;
use berth_domain::instance::{PageSize, VcpuId};
use berth_domain::name::{NetworkName, PhysicalNetworkName, PmemName};
use berth_domain::network::{BridgeMapping, BridgeType, NetworkAttachment, NetworkLink};
use berth_domain::pmem::{Label, PmemDevice};
use berth_domain::transfer::{DiskCopy, TransferPolicy};
use berth_domain::vm::{BootSource, Disk, DiskFormat, Nic, SEED_BYTES};
use berth_driver::conformance::disks::{self as travelling, Travel};
use berth_driver::conformance::{self, Pair, sample};
use berth_driver::libvirt::driver::{Config, HostSources, uri_host};
use berth_driver::libvirt::{Connection, LibvirtDriver};
use berth_driver::xml::{Settings, VirtType};
use berth_driver::{DomainSpec, Draft, Driver, Error, NoPmem, Sending};
use berth_host::sysfs;
use berth_tests::lab::{Console, Images, Lab, Machine, images};
use berth_tls::hypervisor::{self, QEMU_DIRECTORY};

/// How much persistent memory a guest has.
const MEMORY_MIB: u64 = 64;

/// Booting takes 5 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Returns where the sockets lie: the same path everywhere, but of each machine alone, as all
/// of `/run` is.
pub(crate) fn runtime_dir(shared: &Path) -> PathBuf {
    let lab = shared.parent().and_then(Path::file_name);
    Path::new("/run").join(lab.expect("a lab has a directory"))
}

/// Removes the directory of the sockets, which is outside of the lab.
pub(crate) fn remove_sockets(shared: &Path) {
    std::fs::remove_dir(runtime_dir(shared)).unwrap();
}

/// Returns the driver of a machine, whose guests' files all lie in one shared directory.
pub(crate) fn driver(machine: &Machine, shared: &Path, images: &Images) -> LibvirtDriver {
    driver_at(machine, shared, &shared.join("instances"), images)
}

/// Returns the driver of a machine with a place of its own for guests' disks.
pub(crate) fn driver_at(
    machine: &Machine,
    shared: &Path,
    instances: &Path,
    images: &Images,
) -> LibvirtDriver {
    driver_with(machine, shared, instances, images, None)
}

/// As [`driver_at`], with another emulator than libvirt's choice.
pub(crate) fn driver_with(
    machine: &Machine,
    shared: &Path,
    instances: &Path,
    images: &Images,
    emulator: Option<PathBuf>,
) -> LibvirtDriver {
    let image_dir = shared.join("images");
    std::fs::create_dir_all(&image_dir).unwrap();
    for (name, file) in [
        ("kernel", &images.kernel),
        ("initrd", &images.initrd),
        ("disk.qcow2", &images.disk),
    ] {
        let copy = image_dir.join(name);
        if !copy.exists() {
            std::fs::copy(file, copy).unwrap();
        }
    }
    let sockets = runtime_dir(shared);
    let sockets = sockets.to_str().expect("a plain path");
    machine.run(&["mkdir", "-p", sockets]).unwrap();
    let config = Config {
        uri: machine.libvirt_uri(),
        migration_uri: machine.peer_uri(),
        settings: Settings {
            virt_type: VirtType::Qemu,
            machine: "q35".to_owned(),
            emulator,
            image_dir,
            instance_dir: instances.to_owned(),
            runtime_dir: runtime_dir(shared),
            disk_cache: "writeback".to_owned(),
        },
        qemu_img: PathBuf::from("qemu-img"),
        network_devices: PathBuf::from(format!("/proc/{}/root/sys/class/net", machine.init_pid())),
        proc: PathBuf::from("/proc"),
        log_dir: machine.outside("/var/log/libvirt/qemu"),
        bandwidth_mib_per_s_max: None,
    };
    let free = || {
        sysfs::free_pages(Path::new("/"))
            .map_err(|error| berth_driver::Error::refused(error.to_string()))
    };
    let certificates = machine.outside(QEMU_DIRECTORY);
    let name = uri_host(&config.migration_uri).unwrap();
    let tls = move || hypervisor::check_qemu(&certificates, &name).map_err(Error::refused);
    let host = HostSources {
        free_pages: Box::new(free),
        tls: Box::new(tls),
    };
    LibvirtDriver::new(config, host, Box::new(NoPmem)).unwrap()
}

pub(crate) fn guest(number: u32, images: &Images) -> DomainSpec {
    let mut spec = sample::pinned_spec(2, PageSize::Unspecified);
    spec.boot = BootSource::Kernel {
        kernel: "kernel".to_owned(),
        initrd: "initrd".to_owned(),
        cmdline: images.command_line.clone(),
    };
    let name = format!("guest-{number}");
    let assignment = sample::pins(0, &[0, 1], None);
    sample::domain(&name, 4000 + u128::from(number), spec, assignment)
}

pub(crate) fn moved(guest: &DomainSpec) -> DomainSpec {
    DomainSpec {
        assignment: sample::pins(0, &[1, 0], None),
        ..guest.clone()
    }
}

pub(crate) fn impossible(guest: &DomainSpec) -> DomainSpec {
    let mut guest = guest.clone();
    guest.assignment.cells[0].pins.insert(VcpuId(0), CpuId(63));
    guest
}

pub(crate) fn the_libvirt_driver_conforms() {
    let lab = Lab::hypervisors(2).unwrap();
    let images = images().unwrap();
    let shared = lab.directory().join("shared");
    let machines = lab.machines();
    let source = driver(&machines[0], &shared, &images);
    let destination = driver(&machines[1], &shared, &images);
    conformance::run(&Pair {
        source: &source,
        destination: &destination,
        guest: &|number| guest(number, &images),
        moved: &moved,
        impossible: &impossible,
        // libvirt forgets a guest that ends.
        crash_at_destination: None,
        unreachable_uri: "qemu+tcp://10.0.0.99/system",
        closed_uri: "qemu+tcp://127.0.0.1:1/system",
        // As an agent in the machine does: `system::`.
        can_type: false,
        patience: PATIENCE,
    });
    std::fs::remove_dir(runtime_dir(&shared)).unwrap();
}

pub(crate) fn a_guest_with_disk_and_nic_moves_and_answers() {
    let lab = Lab::hypervisors(2).unwrap();
    let images = images().unwrap();
    let shared = lab.directory().join("shared");
    let machines = lab.machines();
    let source = driver(&machines[0], &shared, &images);
    let destination = driver(&machines[1], &shared, &images);

    let mut spec = sample::pinned_spec(1, PageSize::Unspecified);
    spec.boot = BootSource::Disk;
    spec.disks = vec![Disk {
        image: Some("disk.qcow2".to_owned()),
        format: DiskFormat::Qcow2,
        size_gib: 1,
        seed: false,
    }];
    // A network that the hosts reach over bridges of different names.
    machines[1]
        .run(&["ip", "link", "set", "br0", "down"])
        .unwrap();
    let rename = ["ip", "link", "set", "br0", "name", "br-there", "up"];
    machines[1].run(&rename).unwrap();
    spec.nics = vec![Nic {
        bridge: String::new(),
        network: Some(on_physnet1()),
        mac: "52:54:00:00:07:07".to_owned(),
    }];
    let guest = DomainSpec {
        bridges: vec![physnet1("br0")],
        ..sample::domain("disk-guest", 5000, spec, sample::pins(0, &[0], None))
    };
    let moved = DomainSpec {
        assignment: sample::pins(0, &[1], None),
        bridges: vec![physnet1("br-there")],
        ..guest.clone()
    };
    for (driver, bridge) in [(&source, "br0"), (&destination, "br-there")] {
        let all = [physnet1("br0"), physnet1("br-there")];
        let reached = driver.networks(&all).unwrap();
        let reached: Vec<_> = reached.iter().map(|one| &*one.mapping.bridge).collect();
        assert_eq!(reached, [bridge]);
    }
    let nowhere = DomainSpec {
        bridges: Vec::new(),
        ..guest.clone()
    };
    let refused = source.create(&nowhere).unwrap_err().to_string();
    assert!(refused.contains("physical network physnet1"), "{refused}");
    source.create(&guest).unwrap();
    let log = shared
        .join("instances")
        .join(guest.uid.to_string())
        .join("console.log");
    let console = Console::new(log);
    console.wait_for("nic up", PATIENCE).unwrap();
    let socket = runtime_dir(&shared).join(format!("{}.console", guest.uid));
    let ask = |machine: &Machine, question: &str| {
        let socket = machine.outside(&socket);
        console.ask(&socket, question, PATIENCE).unwrap()
    };
    assert_eq!(ask(&machines[0], "store berth"), "stored");
    assert_eq!(vcpu(&machines[0], "disk-guest"), [0]);
    assert_no_files_counted(&machines[0], &source, &guest);

    destination.prepare_incoming(&moved, &[]).unwrap();
    source
        .migrate(
            guest.uid,
            &machines[1].peer_uri(),
            &moved,
            &Sending::default(),
        )
        .unwrap();
    assert_eq!(source.domain(guest.uid).unwrap().state, DomainState::Absent);
    assert_eq!(vcpu(&machines[1], "disk-guest"), [1]);
    let ports = machines[1].run(&["ip", "-o", "link", "show", "master", "br-there"]);
    let ports = ports.unwrap();
    assert!(
        ports.contains("vnet") && ports.contains("mtu 1400"),
        "{ports}"
    );
    let status = destination.domain(guest.uid).unwrap();
    assert_eq!(status.state, DomainState::Running);
    let arrivals = destination.take_arrivals();
    let [arrival] = arrivals[..] else {
        panic!("one guest arrived: {arrivals:?}");
    };
    println!("what the transfer took: {arrival:?}");
    // Pages of zeros are not sent: less than the guest has, but more than a kernel that runs.
    let memory = guest.spec.flavor.memory_mib << 20;
    assert!(arrival.bytes > 1 << 20, "{arrival:?} of {memory}");
    assert!(
        arrival.downtime.is_some_and(|time| time < PATIENCE),
        "{arrival:?}"
    );
    assert!(arrival.iterations >= 1, "{arrival:?}");
    assert!(source.take_arrivals().is_empty(), "the source has none");
    let count = console.count().unwrap();
    console.wait_for_count_above(count + 3, PATIENCE).unwrap();
    assert_eq!(ask(&machines[1], "recall"), "berth");
    destination.destroy(guest.uid).unwrap();
    std::fs::remove_dir(runtime_dir(&shared)).unwrap();
    assert!(
        !shared
            .join("instances")
            .join(guest.uid.to_string())
            .exists()
    );
}

fn on_physnet1() -> NetworkAttachment {
    NetworkAttachment {
        name: NetworkName::new("web").unwrap(),
        link: NetworkLink {
            physical_network: PhysicalNetworkName::new("physnet1").unwrap(),
            vlan: None,
            mtu: Some(1400),
        },
    }
}

fn physnet1(bridge: &str) -> BridgeMapping {
    BridgeMapping {
        physical_network: PhysicalNetworkName::new("physnet1").unwrap(),
        bridge: bridge.to_owned(),
        bridge_type: BridgeType::Linux,
    }
}

/// The hypervisor's own threads too stay off CPUs that may be another guest's: those that send, or
/// receive, a guest.
fn assert_confined(machine: &Machine, domain: &str, cpu: u32) {
    let threads = machine.qemu_threads(domain).unwrap();
    for thread in &threads {
        assert_eq!(Vec::from_iter(thread.cpus.clone()), [cpu], "{thread:?}");
    }
    assert!(threads.len() > 1);
}

/// What a guest has of the host's memory is told, and is less than what libvirt tells: that counts
/// pages of files too, as those of QEMU's own program.
fn assert_no_files_counted(machine: &Machine, driver: &LibvirtDriver, guest: &DomainSpec) {
    let memory = driver.guest_memory().unwrap();
    let resident_kib = memory[&guest.vm].resident_kib;
    let connection = Connection::open(&machine.libvirt_uri()).unwrap();
    let domain = connection.domain_by_name(guest.vm.as_str()).unwrap();
    let with_files_kib = domain.resident_kib().unwrap().expect("libvirt tells");
    assert!(resident_kib > 0, "{memory:?}");
    assert!(resident_kib < with_files_kib, "{memory:?} {with_files_kib}");
    println!("a guest of 128 MiB has {resident_kib} KiB, with files {with_files_kib} KiB");
}

/// Returns the CPUs of vCPU 0's thread, as the kernel says.
fn vcpu(machine: &Machine, domain: &str) -> Vec<u32> {
    let affinity = machine.vcpu_affinity(domain).unwrap();
    affinity[&0].iter().copied().collect()
}

/// Goal: a disk that the destination does not see is copied, with what was written to it and without
/// what lies in the image below it; the source keeps nothing, and a transfer that is stopped leaves
/// nothing at the destination.
///
/// Method: both machines have the same path for instances, with another directory behind it.
pub(crate) fn a_disk_that_is_not_shared_is_copied() {
    let lab = Lab::hypervisors(2).unwrap();
    let images = images().unwrap();
    let shared = lab.directory().join("shared");
    let machines = lab.machines();
    let source = driver(&machines[0], &shared, &images);
    let instances = shared.join("instances");
    let there = lab.directory().join("instances-there");
    for directory in [&instances, &there] {
        std::fs::create_dir_all(directory).unwrap();
    }
    let path = |path: &Path| path.to_str().expect("a plain path").to_owned();
    machines[1]
        .run(&["mount", "--bind", &path(&there), &path(&instances)])
        .unwrap();
    let destination = driver_at(&machines[1], &shared, &there, &images);

    let mut spec = sample::pinned_spec(1, PageSize::Unspecified);
    spec.boot = BootSource::Disk;
    let disk = Disk {
        image: Some("disk.qcow2".to_owned()),
        format: DiskFormat::Qcow2,
        size_gib: 1,
        seed: false,
    };
    spec.disks = vec![disk, Disk::SEED];
    let mut guest = sample::domain("copied-guest", 5100, spec, sample::pins(0, &[0], None));
    guest.first_boot = Some(Arc::new(FirstBoot {
        user_data: b"#!berth".to_vec(),
        ..FirstBoot::default()
    }));
    let moved = DomainSpec {
        assignment: sample::pins(0, &[1], None),
        ..guest.clone()
    };
    let copies = [(0, 1 << 30), (1, SEED_BYTES)].map(|(index, virtual_bytes)| DiskCopy {
        index,
        virtual_bytes,
    });
    let sending = |bandwidth| Sending {
        policy: TransferPolicy {
            bandwidth_mib_per_s_max: bandwidth,
            ..TransferPolicy::default()
        },
        copies: copies.to_vec(),
        tls: false,
    };
    let (here, there) = (
        instances.join(guest.uid.to_string()),
        there.join(guest.uid.to_string()),
    );
    source.create(&guest).unwrap();
    let console = Console::new(here.join("console.log"));
    console.wait_for("count 1", PATIENCE).unwrap();
    let socket = runtime_dir(&shared).join(format!("{}.console", guest.uid));
    let ask = |console: &Console, machine: &Machine, question: &str| {
        let socket = machine.outside(&socket);
        console.ask(&socket, question, PATIENCE).unwrap()
    };
    assert_eq!(ask(&console, &machines[0], "store berth"), "stored");
    assert_eq!(ask(&console, &machines[0], "seed user-data"), "#!berth");
    let is_private = |directory: &Path| {
        let seed = std::fs::metadata(directory.join("disk1.qcow2")).unwrap();
        seed.permissions().mode() & 0o077 == 0
    };
    assert!(is_private(&here));

    // What cannot be copied is refused before anything moves.
    let twice = [DiskCopy {
        index: 0,
        virtual_bytes: 2 << 30,
    }];
    assert!(destination.prepare_incoming(&moved, &twice).is_err());
    assert!(!there.join("disk0.qcow2").exists());

    // Stopped in the middle: nothing is left there, and everything stays here.
    destination.prepare_incoming(&moved, &copies).unwrap();
    assert!(there.join("disk0.qcow2").exists());
    let uri = machines[1].peer_uri();
    let stopped = std::thread::scope(|scope| {
        let sent = scope.spawn(|| source.migrate(guest.uid, &uri, &moved, &sending(Some(1))));
        let mut seen = None;
        while seen.is_none() && !sent.is_finished() {
            let status = source.domain(guest.uid).unwrap();
            seen = status.progress.filter(|p| p.disk.total > 0);
        }
        assert!(seen.is_some(), "disks are part of what is told");
        assert_confined(&machines[0], "copied-guest", 0);
        while !sent.is_finished() {
            source.abort(guest.uid).unwrap();
            std::thread::yield_now();
        }
        sent.join().unwrap()
    });
    assert!(stopped.is_err(), "{stopped:?}");
    destination.forget_incoming(guest.uid).unwrap();
    assert!(
        there.exists(),
        "the disks of a lost guest are not thrown away"
    );
    destination.cancel_incoming(guest.uid).unwrap();
    assert!(!there.exists());
    assert!(here.join("disk0.qcow2").exists());
    assert_eq!(
        source.domain(guest.uid).unwrap().state,
        DomainState::Running
    );

    destination.prepare_incoming(&moved, &copies).unwrap();
    source
        .migrate(guest.uid, &uri, &moved, &sending(None))
        .unwrap();
    source.release(guest.uid).unwrap();
    assert!(!here.exists(), "the source keeps nothing");
    assert_eq!(vcpu(&machines[1], "copied-guest"), [1]);
    assert_eq!(
        destination.domain(guest.uid).unwrap().state,
        DomainState::Running
    );
    // It is its own now: a late undo takes nothing away.
    assert!(destination.cancel_incoming(guest.uid).is_err());
    let console = Console::new(there.join("console.log"));
    assert_eq!(ask(&console, &machines[1], "recall"), "berth");
    assert_eq!(ask(&console, &machines[1], "seed user-data"), "#!berth");
    assert!(is_private(&there));
    destination.destroy(guest.uid).unwrap();
    assert!(!there.exists());
    std::fs::remove_dir(runtime_dir(&shared)).unwrap();
}

/// Goal: a real guest's disk outlives its stop and a hard reboot, is copied while the guest runs and
/// while it does not, a new guest boots from the copy, and a rebuild leaves nothing on it.
pub(crate) fn a_guest_is_stopped_started_copied_and_rebuilt() {
    let lab = Lab::hypervisors(2).unwrap();
    let images = images().unwrap();
    let shared = lab.directory().join("shared");
    let machine = &lab.machines()[0];
    let driver = driver(machine, &shared, &images);
    let on_disk = |number: u128, image: &str| {
        let mut spec = sample::pinned_spec(1, PageSize::Unspecified);
        spec.boot = BootSource::Disk;
        spec.disks = vec![Disk {
            image: Some(image.to_owned()),
            format: DiskFormat::Qcow2,
            size_gib: 1,
            seed: false,
        }];
        let name = format!("disk-guest-{number}");
        sample::domain(&name, number, spec, sample::pins(0, &[0], None))
    };
    let ask = |guest: &DomainSpec, question: &str| {
        let log = shared.join("instances").join(guest.uid.to_string());
        let console = Console::new(log.join("console.log"));
        let socket = runtime_dir(&shared).join(format!("{}.console", guest.uid));
        let socket = machine.outside(&socket);
        console.ask(&socket, question, PATIENCE).unwrap()
    };
    let guest = on_disk(5100, "disk.qcow2");
    driver.create(&guest).unwrap();
    assert_eq!(ask(&guest, "store berth"), "stored");

    let draft = |number: u128, image: &str| Draft {
        operation: OperationId(uuid::Uuid::from_u128(number)),
        image: image.to_owned(),
    };
    let live = draft(1, "live.qcow2");
    for _ in 0..2 {
        driver.copy_disk(&guest, 0, &live).expect("it runs on");
    }
    driver.publish_image(&live).unwrap();
    assert_eq!(
        driver.domain(guest.uid).unwrap().state,
        DomainState::Running
    );
    let taken = driver.copy_disk(&guest, 0, &draft(2, "live.qcow2"));
    assert!(matches!(taken, Err(Error::ImageExists { .. })), "{taken:?}");
    let busy = driver.make_disks(&guest);
    assert!(matches!(busy, Err(Error::WrongState { .. })), "{busy:?}");

    driver.shutdown(guest.uid).unwrap();
    driver.stop(guest.uid).unwrap();
    assert_eq!(driver.domain(guest.uid).unwrap().state, DomainState::Absent);
    let still = draft(3, "still.qcow2");
    driver.copy_disk(&guest, 0, &still).unwrap();
    driver.publish_image(&still).unwrap();
    driver.start(&guest).unwrap();
    assert_eq!(ask(&guest, "recall"), "berth");
    driver.stop(guest.uid).unwrap();

    for (number, image) in [(5200, "live.qcow2"), (5300, "still.qcow2")] {
        let copy = on_disk(number, image);
        driver.create(&copy).unwrap();
        assert_eq!(ask(&copy, "recall"), "berth", "{image}");
        driver.destroy(copy.uid).unwrap();
    }

    driver.make_disks(&guest).unwrap();
    driver.start(&guest).unwrap();
    assert_ne!(ask(&guest, "recall"), "berth");
    driver.stop(guest.uid).unwrap();
    let disk = shared.join("instances").join(guest.uid.to_string());
    std::fs::remove_file(disk.join("disk0.qcow2")).unwrap();
    let missing = driver.start(&guest);
    assert!(
        matches!(missing, Err(Error::DiskMissing { index: 0, .. })),
        "{missing:?}"
    );
    driver.destroy(guest.uid).unwrap();
    std::fs::remove_dir(runtime_dir(&shared)).unwrap();
}

/// Goal: what a guest wrote into its persistent memory goes with it, though each host has a device
/// of its own for it; what it writes afterwards stays where it is then.
///
/// Method: plain files in the place of devices, another one on each host. The guest writes and reads
/// as the kernel lets it, and the files are looked at past it.
pub(crate) fn persistent_memory_goes_with_its_guest() {
    let lab = Lab::hypervisors(2).unwrap();
    let images = images().unwrap();
    let shared = lab.directory().join("shared");
    let machines = lab.machines();
    let source = driver(&machines[0], &shared, &images);
    let destination = driver(&machines[1], &shared, &images);
    let files = ["memory-here", "memory-there"].map(|name| lab.directory().join(name));
    let begins = |file: &Path| {
        let bytes = std::fs::read(file).unwrap();
        String::from_utf8_lossy(&bytes[..16]).trim_end().to_owned()
    };
    let with_memory = |domain: &DomainSpec, file: &Path| {
        std::fs::File::create(file)
            .unwrap()
            .set_len(MEMORY_MIB << 20)
            .unwrap();
        let mut domain = domain.clone();
        domain.spec.flavor.memory_mib = 256;
        for cell in domain.spec.topology.iter_mut().flat_map(|t| &mut t.cells) {
            cell.memory_mib = 256;
        }
        domain.assignment.cells[0].memory_mib = 256;
        domain.assignment.pmem = vec![PmemDevice {
            name: PmemName::new("ns0").unwrap(),
            class: Label::parse("small").unwrap().class(),
            size_bytes: MEMORY_MIB << 20,
            align_bytes: 2 << 20,
            path: file.to_str().expect("a plain path").to_owned(),
        }];
        domain
    };
    let here = with_memory(&guest(9, &images), &files[0]);
    let there = with_memory(&moved(&guest(9, &images)), &files[1]);

    source.create(&here).unwrap();
    let log = shared.join("instances").join(here.uid.to_string());
    let console = Console::new(log.join("console.log"));
    console.wait_for("count 1", PATIENCE).unwrap();
    let socket = runtime_dir(&shared).join(format!("{}.console", here.uid));
    let ask = |machine: &Machine, question: &str| {
        let socket = machine.outside(&socket);
        console.ask(&socket, question, PATIENCE).unwrap()
    };
    assert_eq!(ask(&machines[0], "keep first"), "kept");
    assert_eq!(begins(&files[0]), "first");

    destination.prepare_incoming(&there, &[]).unwrap();
    let uri = machines[1].peer_uri();
    let sent = source.migrate(here.uid, &uri, &there, &Sending::default());
    sent.unwrap();
    assert_eq!(begins(&files[1]), "first");
    assert_eq!(ask(&machines[1], "kept"), "first");
    assert_eq!(ask(&machines[1], "keep second"), "kept");
    // The source's is what has to be erased.
    let contents = files.each_ref().map(|file| begins(file));
    assert_eq!(contents, ["first", "second"]);
    destination.destroy(here.uid).unwrap();
    std::fs::remove_dir(runtime_dir(&shared)).unwrap();
}

/// What is held of simulated hypervisors when disks travel is held of real ones: layers over an image and
/// disks without one, from hosts that keep them to themselves.
pub(crate) fn the_libvirt_driver_conforms_when_disks_travel() {
    let lab = Lab::hypervisors(2).unwrap();
    let images = images().unwrap();
    let shared = lab.directory().join("shared");
    let machines = lab.machines();
    let place = |name: &str| lab.directory().join(name);
    let guest = |number: u32| {
        let mut guest = guest(number, &images);
        let disk = |image: Option<&str>| Disk {
            image: image.map(str::to_owned),
            format: DiskFormat::Qcow2,
            size_gib: 1,
            seed: false,
        };
        guest.spec.disks = vec![disk(Some("disk.qcow2")), disk(None)];
        guest
    };
    travelling::run(&Travel {
        source: &driver_at(&machines[0], &shared, &place("here"), &images),
        destination: &driver_at(&machines[1], &shared, &place("there"), &images),
        guest: &guest,
        moved: &moved,
    });
}
