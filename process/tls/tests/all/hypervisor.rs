//! Certificates of hypervisors: what is made, what a check finds, and that Berth accepts none of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_tls::authority::{self, Error};
use berth_tls::hypervisor::{HypervisorSpec, check_qemu, issue};
use berth_tls::identity;

use crate::common::Certs;

fn spec(name: &str, validity: Duration) -> HypervisorSpec {
    HypervisorSpec {
        name: name.to_owned(),
        dns: vec![name.to_owned()],
        ips: vec!["10.0.0.2".parse().unwrap()],
        validity,
    }
}

fn made(certs: &Certs, name: &str) -> PathBuf {
    let directory = certs.path().join(format!("hypervisor-{name}"));
    let spec = spec(name, Duration::from_secs(3600));
    issue(&certs.authority, &spec, &directory).unwrap();
    directory
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn the_files_are_where_libvirt_and_qemu_look_for_them() {
    let certs = Certs::new();
    let directory = made(&certs, "m2");
    let found = files(&directory);
    let names: Vec<_> = found
        .iter()
        .map(|path| path.strip_prefix(&directory).unwrap().to_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "CA/cacert.pem",
            "libvirt/clientcert.pem",
            "libvirt/private/clientkey.pem",
            "libvirt/private/serverkey.pem",
            "libvirt/servercert.pem",
            "qemu/ca-cert.pem",
            "qemu/client-cert.pem",
            "qemu/client-key.pem",
            "qemu/server-cert.pem",
            "qemu/server-key.pem",
        ]
    );
    let mut keys = Vec::new();
    for path in &found {
        if path.to_str().unwrap().ends_with("key.pem") {
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
            keys.push(fs::read(path).unwrap());
        }
    }
    assert_ne!(keys[0], keys[2], "libvirtd and QEMU have keys of their own");
    let again = issue(
        &certs.authority,
        &spec("m2", Duration::from_secs(3600)),
        &directory,
    );
    assert!(matches!(again, Err(Error::Exists(path)) if path == directory));
}

/// Goal: a stolen key of a hypervisor is nothing in the cluster, also where one authority makes all
/// certificates.
#[test]
fn no_program_of_berth_accepts_them() {
    let certs = Certs::new();
    for path in files(&made(&certs, "m2")) {
        if path.to_str().unwrap().ends_with("cert.pem") && !path.ends_with("cacert.pem") {
            let read = authority::read(&path);
            assert!(matches!(read, Err(Error::Anonymous { .. })), "{path:?}");
        }
    }
}

/// Goal: each fault is found and named with its file. Method: one fault at a time.
#[test]
fn the_check_finds_what_keeps_qemu_from_sending_or_receiving() {
    let certs = Certs::new();
    let qemu = made(&certs, "m2").join("qemu");
    check_qemu(&qemu, "m2").unwrap();
    check_qemu(&qemu, "10.0.0.2").unwrap();

    let refused = |host: &str, part: &str| {
        let fault = check_qemu(&qemu, host).unwrap_err();
        assert!(fault.contains(part), "{part}: {fault}");
        fault
    };
    let fault = refused("m3", "server-cert.pem");
    assert!(fault.contains("m3"), "{fault}");

    let other = made(&certs, "m3").join("qemu");
    let expired = certs.path().join("expired");
    let spec = spec("m2", Duration::ZERO);
    issue(&certs.authority, &spec, &expired).unwrap();
    let expired = expired.join("qemu");
    let issued = identity::now();
    // It was valid until the second in which it was made.
    while identity::now() <= issued {
        std::thread::sleep(Duration::from_millis(50));
    }
    let others = Certs::new();
    let foreign = made(&others, "m2").join("qemu");
    for (file, from, part) in [
        ("server-cert.pem", &other, "server-cert.pem"),
        ("client-key.pem", &other, "client-cert.pem"),
        ("client-cert.pem", &expired, "client-cert.pem"),
        ("ca-cert.pem", &foreign, "server-cert.pem"),
    ] {
        let path = qemu.join(file);
        let good = fs::read(&path).unwrap();
        fs::copy(from.join(file), &path).unwrap();
        refused("m2", part);
        fs::remove_file(&path).unwrap();
        refused("m2", file);
        fs::write(&path, good).unwrap();
        check_qemu(&qemu, "m2").unwrap();
    }
}

#[test]
fn names_that_are_none_are_refused() {
    let certs = Certs::new();
    let directory = certs.path().join("x");
    let named = |name: &str, dns: &str| HypervisorSpec {
        dns: vec![dns.to_owned()],
        ..spec(name, Duration::from_secs(1))
    };
    for spec in [named("", "m2"), named("a,O=b", "m2"), named("m2", "a b")] {
        let refused = issue(&certs.authority, &spec, &directory);
        assert!(matches!(refused, Err(Error::Wrong(_))), "{spec:?}");
        assert!(!directory.exists(), "nothing is left");
    }
}
