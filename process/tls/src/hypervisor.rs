//! Certificates of hypervisors: those with which libvirtd listens and dials, and those with which QEMU
//! sends and receives guests.
//!
//! ```text
//!   DIR/CA/cacert.pem                                    as /etc/pki is to have it
//!   DIR/libvirt/{server,client}cert.pem                  libvirtd, for `qemu+tls` URIs
//!   DIR/libvirt/private/{server,client}key.pem
//!   DIR/qemu/ca-cert.pem
//!   DIR/qemu/{server,client}-{cert,key}.pem              QEMU, for guests' memory and disks
//! ```
//!
//! Not here: certificates of Berth's programs. These carry no role, so that no program of Berth accepts
//! them.
//!
//! Invariant: libvirtd and QEMU have keys of their own. QEMU's can be read by a guest that takes over its
//! QEMU, and must not open a connection to any libvirtd; libvirtd distinguishes the two by
//! [`LIBVIRT`], the organisation in their subjects.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::authority::{Authority, Error, create};
use crate::material;
use crate::pem::Bundle;

/// The organisation in the certificates of libvirtd.
pub const LIBVIRT: &str = "berth-libvirt";

/// The organisation in the certificates of QEMU.
pub const QEMU: &str = "berth-qemu";

/// Where QEMU's certificates are, unless libvirt is configured otherwise.
pub const QEMU_DIRECTORY: &str = "/etc/pki/qemu";

/// The content of a hypervisor's certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HypervisorSpec {
    /// The host's name.
    pub name: String,
    /// The DNS names by which other hypervisors dial it.
    pub dns: Vec<String>,
    /// The addresses by which other hypervisors dial it.
    pub ips: Vec<IpAddr>,
    /// How long they are valid.
    pub validity: Duration,
}

/// Makes the certificates of a host's hypervisor in a new directory.
///
/// # Errors
///
/// When the directory exists already, or the spec is invalid.
pub fn issue(authority: &Authority, spec: &HypervisorSpec, directory: &Path) -> Result<(), Error> {
    let libvirt = authority.sign_hypervisor(LIBVIRT, spec)?;
    let qemu = authority.sign_hypervisor(QEMU, spec)?;
    if directory.exists() {
        return Err(Error::Exists(directory.to_owned()));
    }
    let ca = authority.certificates();
    let folder = |name: &str| {
        let path = directory.join(name);
        fs::create_dir_all(&path).map_err(|why| Error::File {
            path: path.clone(),
            why,
        })?;
        Ok::<_, Error>(path)
    };
    create(&folder("CA")?.join("cacert.pem"), ca, 0o644)?;
    let (certs, keys) = (folder("libvirt")?, folder("libvirt/private")?);
    for side in ["server", "client"] {
        let (cert, key) = &libvirt;
        create(
            &certs.join(format!("{side}cert.pem")),
            cert.as_bytes(),
            0o644,
        )?;
        create(&keys.join(format!("{side}key.pem")), key.as_bytes(), 0o600)?;
    }
    let files = folder("qemu")?;
    create(&files.join("ca-cert.pem"), ca, 0o644)?;
    for side in ["server", "client"] {
        let (cert, key) = &qemu;
        create(
            &files.join(format!("{side}-cert.pem")),
            cert.as_bytes(),
            0o644,
        )?;
        create(
            &files.join(format!("{side}-key.pem")),
            key.as_bytes(),
            0o600,
        )?;
    }
    Ok(())
}

/// Checks that a QEMU with the certificates of a directory sends guests, and receives those that are sent
/// to `host`.
///
/// # Errors
///
/// What is wrong, with the file.
pub fn check_qemu(directory: &Path, host: &str) -> Result<(), String> {
    let read = |name: &str| {
        let path = directory.join(name);
        let bytes = material::read(&path).map_err(|fault| fault.to_string())?;
        Ok::<(PathBuf, Vec<u8>), String>((path, bytes))
    };
    let (_, ca) = read("ca-cert.pem")?;
    for side in ["server", "client"] {
        let (path, cert) = read(&format!("{side}-cert.pem"))?;
        let (_, key) = read(&format!("{side}-key.pem"))?;
        let bundle = Bundle {
            ca: &ca,
            cert: &cert,
            key: &key,
        };
        let checked = match side {
            "server" => bundle
                .check_serves(host)
                .and_then(|()| bundle.check_valid()),
            _ => bundle.check_valid(),
        };
        checked.map_err(|why| format!("{}: {why}", path.display()))?;
    }
    Ok(())
}
