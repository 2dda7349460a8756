//! Goal: what guests have in memory and on disks that are copied is not on the network when they move
//! encrypted, post-copy included; and a guest stays where one of the two QEMU has no valid certificate.
//!
//! Method: a guest fills its memory with one word and stores another on its disk, and all packets of the
//! receiving host are searched for them. The same move in plain text comes first, and shows that the search
//! finds them.

pub(crate) mod capture;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use berth_domain::agent::DomainState;
use berth_domain::instance::PageSize;
use berth_domain::transfer::{DiskCopy, TransferPolicy};
use berth_domain::vm::{BootSource, Disk, DiskFormat};
use berth_driver::conformance::{Pair, encryption, sample};
use berth_driver::libvirt::LibvirtDriver;
use berth_driver::{DomainSpec, Driver, Force, Sending};
use berth_tests::lab::{Console, Lab, Machine, images};

pub(crate) use capture::CAPTURE;
use capture::{Capture, Report};

use crate::driver::{driver, driver_at, guest, impossible, moved, remove_sockets, runtime_dir};

/// Booting takes 5 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Words that are nowhere else: not in a domain's XML, and not in the image.
const IN_MEMORY: &str = "kept-in-memory-3f9c1d77a2";
const ON_DISK: &str = "kept-on-disk-b81e60c45d";

/// Less than the guest's memory and disk take.
const MOVED_BYTES_MIN: u64 = 8 << 20;

/// Waits until it is so.
fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Two hosts whose instances are under the same path and not shared.
struct Hosts<'a> {
    machines: &'a [Machine],
    drivers: [LibvirtDriver; 2],
    instances: [PathBuf; 2],
    shared: &'a Path,
}

impl Hosts<'_> {
    fn ask(&self, host: usize, guest: &DomainSpec, question: &str) -> String {
        let directory = self.instances[host].join(guest.uid.to_string());
        let console = Console::new(directory.join("console.log"));
        console.wait_for("count 1", PATIENCE).unwrap();
        let socket = runtime_dir(self.shared).join(format!("{}.console", guest.uid));
        let socket = self.machines[host].outside(&socket);
        console.ask(&socket, question, PATIENCE).unwrap()
    }

    /// Moves a guest, by post-copy where its policy allows it, and returns what was on the network.
    fn move_guest(&self, from: usize, guest: &DomainSpec, sending: &Sending) -> Report {
        let to = 1 - from;
        let (source, destination) = (&self.drivers[from], &self.drivers[to]);
        let label = format!("capture-{}-{}-{from}", guest.vm, sending.tls);
        let capture = Capture::start(&self.machines[1], &label, &[IN_MEMORY, ON_DISK]);
        destination
            .prepare_incoming(guest, &sending.copies)
            .unwrap();
        let peer = &self.machines[to];
        let uri = if sending.tls {
            peer.encrypted_peer_uri()
        } else {
            peer.peer_uri()
        };
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| source.migrate(guest.uid, &uri, guest, sending));
            if sending.policy.post_copy {
                let is_sent = || {
                    let status = source.domain(guest.uid).unwrap();
                    let progress = status.progress.filter(|p| p.memory.processed > 0);
                    progress.is_some() || sent.is_finished()
                };
                wait("memory is sent", is_sent);
                source.force_complete(guest.uid, Force::PostCopy).unwrap();
            }
            sent.join().unwrap().unwrap();
        });
        source.release(guest.uid).unwrap();
        let state = destination.domain(guest.uid).unwrap().state;
        assert_eq!(state, DomainState::Running);
        let report = capture.end();
        println!("{label}: {report:?}");
        assert!(report.payload_bytes > MOVED_BYTES_MIN, "{report:?}");
        report
    }
}

fn sending(tls: bool, post_copy: bool, copies: &[DiskCopy]) -> Sending {
    Sending {
        policy: TransferPolicy {
            // So slow that post-copy begins before all is sent.
            bandwidth_mib_per_s_max: post_copy.then_some(8),
            post_copy,
            ..TransferPolicy::default()
        },
        copies: copies.to_vec(),
        tls,
    }
}

pub(crate) fn guests_move_encrypted_and_nothing_of_them_is_on_the_network() {
    let lab = Lab::hypervisors(2).unwrap();
    let images = images().unwrap();
    let shared = lab.directory().join("shared");
    let machines = lab.machines();
    let here = shared.join("instances");
    let there = lab.directory().join("instances-there");
    for directory in [&here, &there] {
        std::fs::create_dir_all(directory).unwrap();
    }
    let path = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let mount = ["mount", "--bind", &path(&there), &path(&here)];
    machines[1].run(&mount).unwrap();
    let hosts = Hosts {
        machines,
        drivers: [
            driver(&machines[0], &shared, &images),
            driver_at(&machines[1], &shared, &there, &images),
        ],
        instances: [here, there],
        shared: &shared,
    };

    // Memory, and a disk that is copied: another guest for each, which boots and fills both.
    let copies = [DiskCopy {
        index: 0,
        virtual_bytes: 1 << 30,
    }];
    let mut reports = Vec::new();
    for (number, tls) in [(5200, false), (5201, true)] {
        let mut spec = sample::pinned_spec(1, PageSize::Unspecified);
        spec.boot = BootSource::Disk;
        spec.disks = vec![Disk {
            image: Some("disk.qcow2".to_owned()),
            format: DiskFormat::Qcow2,
            size_gib: 1,
            seed: false,
        }];
        let name = format!("guest-{number}");
        let guest = sample::domain(&name, number, spec, sample::pins(0, &[0], None));
        hosts.drivers[0].create(&guest).unwrap();
        let (fill, store) = (format!("fill {IN_MEMORY}"), format!("store {ON_DISK}"));
        assert_eq!(hosts.ask(0, &guest, &fill), "filled");
        assert_eq!(hosts.ask(0, &guest, &store), "stored");
        reports.push(hosts.move_guest(0, &guest, &sending(tls, false, &copies)));
        hosts.drivers[1].destroy(guest.uid).unwrap();
    }
    let [plain, encrypted] = &reports[..] else {
        panic!("two moves: {reports:?}");
    };
    assert!(plain.found[IN_MEMORY] > 1_000, "{plain:?}");
    assert!(plain.found[ON_DISK] > 0, "{plain:?}");
    assert!(
        encrypted.found.values().all(|count| *count == 0),
        "{encrypted:?}"
    );

    // Post-copy: the pages that the guest fetches, and those that follow.
    let mut spec = sample::pinned_spec(1, PageSize::Unspecified);
    spec.boot = BootSource::Kernel {
        kernel: "kernel".to_owned(),
        initrd: "initrd".to_owned(),
        cmdline: images.command_line.clone(),
    };
    let guest = sample::domain("late-guest", 5202, spec, sample::pins(0, &[0], None));
    hosts.drivers[0].create(&guest).unwrap();
    assert_eq!(hosts.ask(0, &guest, &format!("fill {IN_MEMORY}")), "filled");
    let plain = hosts.move_guest(0, &guest, &sending(false, true, &[]));
    assert!(plain.found[IN_MEMORY] > 1_000, "{plain:?}");
    let encrypted = hosts.move_guest(1, &guest, &sending(true, true, &[]));
    assert!(
        encrypted.found.values().all(|count| *count == 0),
        "{encrypted:?}"
    );
    hosts.drivers[0].destroy(guest.uid).unwrap();
    remove_sockets(&shared);
}

/// Method: the certificates of either side are taken away, or are those of another authority.
pub(crate) fn a_guest_stays_where_qemu_has_no_valid_certificate() {
    let lab = Lab::hypervisors(2).unwrap();
    let images = images().unwrap();
    let shared = lab.directory().join("shared");
    let machines = lab.machines();
    let drivers = [0, 1].map(|index| driver(&machines[index], &shared, &images));
    let pair = Pair {
        source: &drivers[0],
        destination: &drivers[1],
        guest: &|number| guest(number, &images),
        moved: &moved,
        impossible: &impossible,
        crash_at_destination: None,
        unreachable_uri: "qemu+tcp://10.0.0.99/system",
        closed_uri: "qemu+tcp://127.0.0.1:1/system",
        can_type: false,
        patience: PATIENCE,
    };
    for (unable, side) in [(0, "client"), (1, "server")] {
        let cert = machines[unable].outside(format!("/etc/pki/qemu/{side}-cert.pem"));
        let aside = cert.with_extension("aside");
        std::fs::rename(&cert, &aside).unwrap();
        encryption::a_guest_that_cannot_be_encrypted_stays(&pair, &drivers[unable]);
        std::fs::rename(&aside, &cert).unwrap();
    }
    // Each is complete, and the other side does not trust it.
    let other = lab.directory().join("other");
    let other = berth_tls::authority::init(&other, "other", 1).unwrap().cert;
    let ca = machines[1].outside("/etc/pki/qemu/ca-cert.pem");
    std::fs::copy(other, ca).unwrap();
    encryption::a_guest_that_cannot_be_encrypted_stays(&pair, &drivers[1]);
    remove_sockets(&shared);
}
