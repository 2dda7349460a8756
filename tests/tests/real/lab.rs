//! The lab itself, and the libvirt binding against a real libvirtd and real guests.
//!
//! Goal: what the other real tests stand on is known to work: machines that see each
//! other and nothing else, guests that boot, count and answer, and a live migration that
//! gives a guest other CPUs. Method: the domains are written by hand; no agent takes part.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use berth_driver::libvirt::{
    Affects, Connection, Domain, DomainState, JobKind, Kind, Migration, XmlView, running,
};
use berth_tests::lab::{Console, Images, Lab, Machine, images};

use crate::harness::ROLE;

/// Booting takes 5 s on an idle machine.
const BOOT: Duration = Duration::from_secs(120);
const REPLY: Duration = Duration::from_secs(60);

/// The namespace of the element that stands for an agent's claim.
const METADATA: &str = "urn:berth:test";

/// Accepts connections until it is killed.
pub(crate) fn listen() {
    let listener = TcpListener::bind("0.0.0.0:4000").unwrap();
    while listener.accept().is_ok() {}
}

/// Connects to the machine that listens.
pub(crate) fn dial() {
    let deadline = Instant::now() + REPLY;
    while TcpStream::connect("two:4000").is_err() {
        assert!(Instant::now() < deadline, "no machine listens");
        std::thread::yield_now();
    }
}

/// Opens the libvirtd of its machine.
pub(crate) fn open_libvirt() {
    let connection = Connection::open("qemu:///system").unwrap();
    println!("hostname={}", connection.hostname().unwrap());
}

/// Starts this program inside a machine, in one of the roles above.
fn start_inside(machine: &Machine, role: &str) -> berth_tests::lab::Process {
    let program = std::env::current_exe().unwrap().display().to_string();
    let variables = [(ROLE, &*format!("lab/{role}"))];
    machine.spawn_with(role, &[&program], &variables).unwrap()
}

pub(crate) fn machines_see_each_other_by_name_and_nothing_is_left_of_them() {
    let lab = Lab::builder()
        .machine("one")
        .machine("two")
        .machine("three")
        .start()
        .unwrap();
    let (one, two) = (lab.get("one").unwrap(), lab.get("two").unwrap());
    assert_eq!(one.run(&["uname", "-n"]).unwrap(), "one\n");
    assert_eq!(two.address().to_string(), "10.0.0.2");
    let mut listener = start_inside(two, "listen");
    let mut dialler = start_inside(one, "dial");
    assert!(dialler.wait().unwrap().success(), "{}", dialler.log());
    assert!(listener.is_running());
    listener.kill().unwrap();
    assert!(!listener.is_running());

    let third = lab.get("three").unwrap();
    let sleeper = third.spawn("sleeper", &["sleep", "1000"]).unwrap();
    let mut pids: Vec<_> = lab.machines().iter().map(Machine::init_pid).collect();
    pids.extend(sleeper.pid());
    let directory = lab.directory().to_owned();
    drop(lab);
    for pid in pids {
        assert!(
            !Path::new(&format!("/proc/{pid}")).exists(),
            "{pid} still runs"
        );
    }
    assert!(!directory.exists());
}

/// A guest as this test wants it, and as it is written for libvirt.
struct Guest<'a> {
    name: &'a str,
    /// The CPU of the host for each vCPU.
    pins: &'a [u32],
    emulator: u32,
    /// A disk to boot from and the MAC address of a NIC; without it the kernel is given.
    disk: Option<(&'a Path, &'a str)>,
}

impl Guest<'_> {
    fn xml(&self, images: &Images) -> String {
        let Self {
            name,
            pins,
            emulator,
            disk,
        } = self;
        let uuid = format!("b0000000-0000-4000-8000-{:012x}", name.len());
        let vcpus = pins.len();
        let pinning: String = pins
            .iter()
            .enumerate()
            .map(|(vcpu, cpu)| format!("<vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>"))
            .collect();
        let boot = match disk {
            Some(_) => "<boot dev='hd'/>".to_owned(),
            None => format!(
                "<kernel>{}</kernel><initrd>{}</initrd><cmdline>{}</cmdline>",
                images.kernel.display(),
                images.initrd.display(),
                images.command_line,
            ),
        };
        let devices = disk.map_or(String::new(), |(path, mac)| {
            format!(
                "<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/>\
                 <source file='{}'/><target dev='vda' bus='virtio'/></disk>\
                 <interface type='bridge'><mac address='{mac}'/><source bridge='br0'/>\
                 <model type='virtio'/></interface>",
                path.display(),
            )
        });
        format!(
            "<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid>\
             <memory unit='MiB'>256</memory><vcpu placement='static'>{vcpus}</vcpu>\
             <cputune>{pinning}<emulatorpin cpuset='{emulator}'/></cputune>\
             <os><type arch='x86_64' machine='q35'>hvm</type>{boot}</os>\
             <features><acpi/></features>\
             <cpu mode='custom' match='exact'><model fallback='forbid'>qemu64</model></cpu>\
             <on_poweroff>destroy</on_poweroff><on_reboot>destroy</on_reboot>\
             <on_crash>destroy</on_crash>\
             <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>{devices}\
             <controller type='usb' model='none'/><memballoon model='none'/>\
             <serial type='unix'><source mode='bind' path='/run/{name}.sock'/>\
             <log file='/var/log/libvirt/{name}.log' append='on'/><target port='0'/></serial>\
             </devices></domain>"
        )
    }
}

fn console(machine: &Machine, name: &str) -> Console {
    Console::new(machine.outside(format!("/var/log/libvirt/{name}.log")))
}

fn ask(machine: &Machine, name: &str, question: &str) -> String {
    let socket = machine.outside(format!("/run/{name}.sock"));
    console(machine, name)
        .ask(&socket, question, REPLY)
        .unwrap()
}

fn pins(expected: &[u32]) -> BTreeMap<u32, BTreeSet<u32>> {
    (0..)
        .zip(expected)
        .map(|(vcpu, cpu)| (vcpu, BTreeSet::from([*cpu])))
        .collect()
}

/// A second CPU where the machine has one; with one CPU the pins cannot differ.
fn other_cpu() -> u32 {
    u32::from(std::thread::available_parallelism().is_ok_and(|count| count.get() > 1))
}

fn connect(machine: &Machine) -> Connection {
    Connection::open(&machine.libvirt_uri())
        .unwrap_or_else(|error| panic!("{error}; {}", machine.libvirtd_log()))
}

pub(crate) fn a_pinned_guest_migrates_to_other_cpus_and_goes_on_counting() {
    let images = images().unwrap();
    let lab = Lab::hypervisors(2).unwrap();
    let (a, b) = (lab.get("host-a").unwrap(), lab.get("host-b").unwrap());

    let mut dialler = start_inside(a, "libvirt");
    assert!(dialler.wait().unwrap().success(), "{}", dialler.log());
    assert!(
        dialler.log().contains("hostname=host-a"),
        "{}",
        dialler.log()
    );

    let other = other_cpu();
    let source = Guest {
        name: "vm",
        pins: &[0, other],
        emulator: 0,
        disk: None,
    };
    let (at_a, at_b) = (connect(a), connect(b));
    let domain = at_a.create(&source.xml(&images)).unwrap();
    let uuid = domain.uuid().unwrap();
    assert_eq!(a.vcpu_affinity("vm").unwrap(), pins(&[0, other]));
    console(a, "vm").wait_for("up ", BOOT).unwrap();
    assert_eq!(ask(a, "vm", "ping"), "pong");
    assert_eq!(ask(a, "vm", "cpus"), "2");
    console(a, "vm").wait_for_count_above(5, BOOT).unwrap();

    refuses_what_does_not_fit(&domain, b, &at_b, &uuid);
    stays_when_aborted(&domain, b, &at_b, &uuid);

    let before = console(a, "vm").count().unwrap();
    // The destination's description is the source's own with other pins.
    let xml = domain.xml(XmlView::Migratable).unwrap();
    let xml = xml
        .replace(&format!("vcpu='1' cpuset='{other}'"), "vcpu='1' cpuset='0'")
        .replace("vcpu='0' cpuset='0'", &format!("vcpu='0' cpuset='{other}'"))
        .replace(
            "emulatorpin cpuset='0'",
            &format!("emulatorpin cpuset='{other}'"),
        );
    let migration = Migration {
        destination_xml: Some(xml),
        ..Migration::default()
    };
    migrate(&domain, a, b, &migration);

    assert_eq!(b.vcpu_affinity("vm").unwrap(), pins(&[other, 0]));
    let arrived = at_b.domain_by_uuid(&uuid).unwrap();
    let status = arrived.status().unwrap();
    assert_eq!(
        (status.state, status.reason),
        (DomainState::Running, running::MIGRATED)
    );
    assert!(at_a.find_domain(&uuid).unwrap().is_none());
    assert!(a.qemu_pid("vm").is_err());
    assert_eq!(arrived.completed_job().unwrap().kind, JobKind::Completed);
    let after = console(b, "vm")
        .wait_for_count_above(before, REPLY)
        .unwrap();
    assert!(after > before);
    assert!(
        console(b, "vm")
            .lines()
            .iter()
            .all(|line| !line.starts_with("up ")),
        "it rebooted"
    );
    assert_eq!(ask(b, "vm", "ping"), "pong");
    arrived.destroy().unwrap();
    assert_eq!(arrived.status().unwrap_err().kind(), Kind::NoDomain);
}

/// Migrates, or fails with what both daemons had to say.
fn migrate(domain: &Domain, a: &Machine, b: &Machine, migration: &Migration) {
    if let Err(error) = domain.migrate(&b.peer_uri(), migration) {
        panic!(
            "{error}; source: {}; destination: {}",
            a.libvirtd_log(),
            b.libvirtd_log()
        );
    }
}

/// A destination that cannot have the guest leaves it where it is.
fn refuses_what_does_not_fit(domain: &Domain, b: &Machine, at_b: &Connection, uuid: &str) {
    let xml = domain.xml(XmlView::Migratable).unwrap();
    let absent = xml.replace("vcpu='0' cpuset='0'", "vcpu='0' cpuset='4000'");
    let migration = Migration {
        destination_xml: Some(absent),
        ..Migration::default()
    };
    let error = domain.migrate(&b.peer_uri(), &migration).unwrap_err();
    assert!(error.kind() != Kind::Unavailable, "{error}");
    let error = domain
        .migrate("qemu+tcp://nowhere/system", &Migration::default())
        .unwrap_err();
    assert!(error.kind() != Kind::Unavailable, "{error}");
    assert_eq!(domain.status().unwrap().state, DomainState::Running);
    assert!(at_b.find_domain(uuid).unwrap().is_none());
}

/// A migration that is too slow to end is watched and aborted from another thread.
fn stays_when_aborted(domain: &Domain, b: &Machine, at_b: &Connection, uuid: &str) {
    assert!(!domain.job().unwrap().is_running());
    assert_eq!(
        domain.abort_job().unwrap_err().kind(),
        Kind::OperationInvalid
    );
    let slow = Migration {
        bandwidth_mib_per_s_max: Some(1),
        ..Migration::default()
    };
    let error = std::thread::scope(|scope| {
        let moving = scope.spawn(|| domain.migrate(&b.peer_uri(), &slow).unwrap_err());
        let deadline = Instant::now() + REPLY;
        while domain.job().unwrap().processed_bytes == 0 {
            assert!(Instant::now() < deadline, "the migration does not begin");
            assert!(
                !moving.is_finished(),
                "the migration ended before it was aborted"
            );
        }
        domain.abort_job().unwrap();
        moving.join().unwrap()
    });
    assert_eq!(error.kind(), Kind::OperationAborted, "{error}");
    assert_eq!(domain.status().unwrap().state, DomainState::Running);
    assert!(at_b.find_domain(uuid).unwrap().is_none());
}

pub(crate) fn a_guest_boots_from_its_disk_and_takes_disk_and_network_along() {
    let images = images().unwrap();
    let lab = Lab::builder()
        .hypervisor("host-a")
        .hypervisor("host-b")
        .machine("far")
        .start()
        .unwrap();
    let (a, b) = (lab.get("host-a").unwrap(), lab.get("host-b").unwrap());
    // Each host has its own disk: the destination's is empty and of the same size.
    let (disk_a, disk_b) = (
        a.directory().join("vda.qcow2"),
        b.directory().join("vda.qcow2"),
    );
    images.copy_disk(&disk_a).unwrap();
    b.run(&[
        "qemu-img",
        "create",
        "-q",
        "-f",
        "qcow2",
        disk_b.to_str().unwrap(),
        "64M",
    ])
    .unwrap();

    let mac = "52:54:00:01:02:03";
    let guest = Guest {
        name: "disk",
        pins: &[0],
        emulator: 0,
        disk: Some((&disk_a, mac)),
    };
    let (at_a, at_b) = (connect(a), connect(b));
    let domain = at_a.define(&guest.xml(&images)).unwrap();
    let claim = |id: &str| format!("<claim id='{id}'/>");
    domain
        .set_metadata(METADATA, "test", Some(&claim("c1")), Affects::Definition)
        .unwrap();
    domain.start().unwrap();
    console(a, "disk")
        .wait_for("disk vda 131072", BOOT)
        .unwrap();
    console(a, "disk")
        .wait_for(&format!("nic up {mac} 10.1.2.3"), BOOT)
        .unwrap();
    assert_eq!(ask(a, "disk", "store anchor"), "stored");
    assert_eq!(ask(a, "disk", "reach 10.0.0.3"), "reached");
    let before = console(a, "disk").count().unwrap();

    let xml = domain.xml(XmlView::Migratable).unwrap();
    let xml = xml
        .replace(disk_a.to_str().unwrap(), disk_b.to_str().unwrap())
        .replace("id='c1'", "id='c2'")
        .replace("id=\"c1\"", "id=\"c2\"");
    let migration = Migration {
        destination_xml: Some(xml.clone()),
        persistent_xml: Some(xml),
        persist_destination: true,
        undefine_source: true,
        copied_disks: vec!["vda".to_owned()],
        ..Migration::default()
    };
    let unsafe_here = Migration {
        copied_disks: Vec::new(),
        ..migration.clone()
    };
    let error = domain.migrate(&b.peer_uri(), &unsafe_here).unwrap_err();
    assert_eq!(error.kind(), Kind::MigrateUnsafe, "{error}");
    migrate(&domain, a, b, &migration);

    console(b, "disk")
        .wait_for_count_above(before, REPLY)
        .unwrap();
    assert_eq!(ask(b, "disk", "recall"), "anchor");
    assert_eq!(ask(b, "disk", "reach 10.0.0.3"), "reached");
    assert!(at_a.domains().unwrap().is_empty());
    let arrived = at_b.domain_by_name("disk").unwrap();
    assert!(arrived.is_persistent().unwrap());
    assert!(arrived.metadata(METADATA).unwrap().contains("c2"));
    arrived.destroy().unwrap();
    arrived.undefine().unwrap();
}

pub(crate) fn a_connection_to_a_daemon_that_died_says_so() {
    let mut lab = Lab::hypervisors(1).unwrap();
    let host = lab.get_mut("host-a").unwrap();
    let connection = connect(host);
    assert!(connection.is_alive());
    host.kill_libvirtd().unwrap();
    assert_eq!(connection.domains().unwrap_err().kind(), Kind::Unavailable);
    assert!(!connection.is_alive());
    let error = Connection::open(&host.libvirt_uri()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    host.restart_libvirtd().unwrap();
    assert!(connect(host).domains().unwrap().is_empty());
}
