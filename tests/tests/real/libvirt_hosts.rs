//! "Hosts with libvirt": the documentation's commands, typed on two hosts.
//!
//! Goal: a host that is prepared as `docs/libvirt-hosts.md` says boots a guest and moves it over TLS, and a
//! destination that cannot be reached is refused before anything moves.
//!
//! Method: as in [`crate::three_machines`]. What a machine in a namespace lacks is beside the commands:
//! `systemctl` starts the daemons, `virsh` is this program, and libvirt is configured beforehand for guests
//! that run as root, without labels and control groups.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use berth_driver::libvirt::Connection;
use berth_tests::lab::{Lab, Machine, Process, images};
use berth_tests::processes::{Programs, eventually};
use berth_tls::Role;
use berth_tls::authority::{self, Authority, CA, CertificateSpec, Pair};
use serde_json::Value;

use crate::PROGRAMS;
use crate::harness::ROLE;
use crate::three_machines::{Shell, blocks};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/libvirt-hosts.md");

/// The role of this program that answers `virsh --connect URI version`.
pub(crate) const VIRSH: &str = "libvirt_hosts/virsh";
const VIRSH_URI: &str = "BERTH_TEST_VIRSH_URI";

/// What begins a block that is not typed.
const NOT_TYPED: &str = "# not typed";

/// What stands for `systemctl`: libvirtd listens with TLS only once that was enabled.
const SYSTEMCTL: &str = r#"#!/bin/sh
set -e
case "$*" in
"stop libvirtd.service") [ ! -e /run/libvirtd.pid ] || kill "$(cat /run/libvirtd.pid)" ;;
"enable --now libvirtd-tls.socket") touch /run/enabled-tls ;;
"start libvirtd.service")
    virtlogd -d
    if [ -e /run/enabled-tls ]; then libvirtd -d --listen; else libvirtd -d; fi
    ;;
*)
    echo "systemctl $*: unknown" >&2
    exit 1
    ;;
esac
"#;

/// Prints the version of the hypervisor at a URI.
pub(crate) fn virsh() {
    let uri = std::env::var(VIRSH_URI).unwrap();
    match Connection::open(&uri).and_then(|connection| connection.library_version()) {
        Ok(version) => println!("Using library: libvirt {version}"),
        Err(error) => {
            println!("error: {error}");
            std::process::exit(1);
        }
    }
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Puts what stands for other programs beside those of Berth.
fn stand_ins(programs: &Programs) {
    executable(&programs.path("systemctl"), SYSTEMCTL);
    let own = std::env::current_exe().unwrap();
    let virsh = format!(
        "#!/bin/sh\n[ \"$1 $3\" = \"--connect version\" ] || exit 1\n\
         {ROLE}={VIRSH} {VIRSH_URI}=\"$2\" exec {}\n",
        own.display()
    );
    executable(&programs.path("virsh"), &virsh);
}

/// Makes the directories of a machine its own, and writes what libvirt takes in a namespace.
fn prepare(machine: &Machine) {
    for command in [
        &["mkdir", "-p", "/var/lib/berth"][..],
        &["mount", "-t", "tmpfs", "tmpfs", "/var/lib/berth"],
    ] {
        machine.run(command).unwrap();
    }
    let etc = machine.outside("/etc/libvirt");
    let uuid = uuid::Uuid::new_v4();
    let libvirtd = format!(
        "host_uuid = \"{uuid}\"\nauth_unix_ro = \"none\"\nauth_unix_rw = \"none\"\n\
         unix_sock_group = \"root\"\nlog_outputs = \"3:file:/var/log/libvirt/libvirtd.log\"\n"
    );
    fs::write(etc.join("libvirtd.conf"), libvirtd).unwrap();
    let qemu = "security_driver = \"none\"\nuser = \"root\"\ngroup = \"root\"\n\
                dynamic_ownership = 0\nremember_owner = 0\nnamespaces = [ ]\n";
    fs::write(etc.join("qemu.conf"), qemu).unwrap();
}

/// Gives the directory of a machine's shell the authority's certificate and those of its programs.
fn hand_out(certs: &Path, authority: &Authority, home: &Path, owners: &[(Role, &str, &str)]) {
    fs::copy(certs.join(CA), home.join(CA)).unwrap();
    for (role, name, machine) in owners {
        let spec = CertificateSpec {
            role: *role,
            name: (*name).to_owned(),
            dns: vec![(*machine).to_owned()],
            ips: Vec::new(),
            validity: authority::days(1),
        };
        let pair = Pair::named(home, &format!("{role}-{name}"));
        authority.issue(&spec, &pair).unwrap();
    }
}

/// Starts a scheduler and a conductor on m1, and has its shell use them.
fn control(m1: &Machine, shell: &mut Shell, programs: &Programs) -> Vec<Process> {
    let home = shell.directory.display().to_string();
    let tls = |stem: &str| {
        [
            format!("--tls-ca={home}/{CA}"),
            format!("--tls-cert={home}/{stem}.pem"),
            format!("--tls-key={home}/{stem}-key.pem"),
        ]
    };
    let start = |label: &str, program: &str, own: &[&str], stem: &str| {
        let program = programs.path(program).display().to_string();
        let tls = tls(stem);
        let mut command = vec![program.as_str()];
        command.extend(own);
        command.extend(tls.iter().map(String::as_str));
        m1.spawn(label, &command).unwrap()
    };
    let data = format!("--data-dir={home}/scheduler");
    let scheduler = ["--listen=m1:7100", "--bootstrap", &data];
    let conductor = ["--listen=m1:7200", "--scheduler=m1:7100"];
    let started = vec![
        start("scheduler", "berth-scheduler", &scheduler, "scheduler-m1"),
        start("conductor", "berth-conductor", &conductor, "conductor-c1"),
    ];
    let (good, printed) = shell.command(&format!(
        "export BERTH_SCHEDULER=m1:7100 BERTH_TLS_CA={home}/{CA} \
         BERTH_TLS_CERT={home}/operator-ann.pem BERTH_TLS_KEY={home}/operator-ann-key.pem"
    ));
    assert!(good, "{printed}");
    started
}

/// Copies what the document leaves to the reader: certificates to their host, images to both.
fn copy_to_host(machine: &Machine, hypervisors: &Path, home: &Path) {
    let name = format!("hypervisor-{}", machine.name());
    let from = hypervisors.join(&name).display().to_string();
    let to = home.join(&name).display().to_string();
    machine.run(&["cp", "-r", &from, &to]).unwrap();
}

fn host_of(shell: &mut Shell) -> Value {
    let (good, printed) = shell.command("berth vm show web --output json");
    assert!(good, "{printed}");
    let shown: Value = serde_json::from_str(&printed).expect("JSON");
    shown["vm"]["host"].clone()
}

pub(crate) fn the_documented_host_boots_and_moves_a_guest() {
    let document = fs::read_to_string(DOCUMENT).expect("the document");
    let typed = blocks(&document);
    let typed: Vec<_> = typed
        .iter()
        .filter(|block| !block.commands.starts_with(NOT_TYPED))
        .collect();
    assert!(typed.len() >= 9, "{typed:#?}");
    let programs = Programs::new(PROGRAMS);
    stand_ins(&programs);
    let lab = Lab::builder().machine("m1").machine("m2").machine("m3");
    let lab = lab.start().expect("three machines");
    let mut shells: Vec<Shell> = lab
        .machines()
        .iter()
        .map(|machine| Shell::open_with(machine, programs.directory()))
        .collect();
    let homes: Vec<PathBuf> = shells.iter().map(|shell| shell.directory.clone()).collect();
    let certs = lab.directory().join("certs");
    let pair = authority::init(&certs, "test", 1).unwrap();
    let authority = Authority::open(&pair.cert, &pair.key).unwrap();
    let control_owners = [
        (Role::Scheduler, "m1", "m1"),
        (Role::Conductor, "c1", "m1"),
        (Role::Operator, "ann", "m1"),
    ];
    hand_out(&certs, &authority, &homes[0], &control_owners);
    for (index, name) in [(1, "m2"), (2, "m3")] {
        prepare(&lab.machines()[index]);
        hand_out(
            &certs,
            &authority,
            &homes[index],
            &[(Role::Agent, name, name)],
        );
    }
    let _control = control(&lab.machines()[0], &mut shells[0], &programs);

    for block in typed {
        let commands = &block.commands;
        if commands.contains("cp -r hypervisor-m2") {
            for (index, name) in [(1, "m2"), (2, "m3")] {
                copy_to_host(
                    &lab.machines()[index],
                    &homes[0].join("hypervisors"),
                    &homes[index],
                );
                assert_eq!(shells[index].machine, name);
            }
        }
        if commands.contains("berth host check") {
            let shell = &mut shells[0];
            eventually("two hosts", || {
                let (_, printed) = shell.command("berth host list");
                let up = printed.matches(" UP ").count();
                (up == 2).then_some(()).ok_or(printed)
            });
        }
        if commands.contains("berth vm create") {
            give_images(&lab);
        }
        // The commands for m2 are those for m3 with another name.
        let on_both = block.machine == "m2" && !commands.contains("virsh");
        for shell in &mut shells {
            if shell.machine == block.machine {
                shell.type_block(block);
            } else if on_both && shell.machine == "m3" {
                let commands = commands.replace("m2", "m3");
                let (good, printed) = shell.command(&format!("set -e\n{commands}set +e"));
                assert!(good, "{commands} printed {printed}");
            }
        }
    }
    assert_eq!(host_of(&mut shells[0]), Value::from("m3"));

    // A destination that nothing reaches.
    let (good, printed) = shells[1].command("systemctl stop libvirtd.service");
    assert!(good, "{printed}");
    let shell = &mut shells[0];
    eventually("a check that names it", || {
        let (good, printed) = shell.command("berth host check");
        assert!(!good, "{printed}");
        let named = printed.contains("cannot reach the hypervisor at qemu+tls://m2/system");
        named.then_some(()).ok_or(printed)
    });
    eventually("a refusal before anything moves", || {
        let (good, printed) = shell.command("berth vm migrate web --host m2");
        assert!(!good, "{printed}");
        let named = printed.contains("cannot reach the hypervisor at qemu+tls://m2/system");
        named.then_some(()).ok_or(printed)
    });
    assert_eq!(host_of(shell), Value::from("m3"));
    let (good, printed) = shell.command("berth vm delete web");
    assert!(good, "{printed}");
}

fn give_images(lab: &Lab) {
    let images = images().unwrap();
    for machine in &lab.machines()[1..] {
        let directory = machine.outside("/var/lib/berth/images");
        fs::copy(&images.kernel, directory.join("vmlinuz")).unwrap();
        fs::copy(&images.initrd, directory.join("initrd.gz")).unwrap();
    }
}
