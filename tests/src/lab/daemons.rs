//! A machine's own virtlogd and libvirtd, and what can be seen of its guests.
//!
//! What it is not: the agent's view. It reads the kernel's files, so that a test can hold
//! what libvirt was configured with against what runs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use berth_tls::hypervisor::{LIBVIRT, QEMU_DIRECTORY};

use super::machine::Machine;
use super::process::{Process, tail, wait_until};

/// How long libvirtd may take to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The daemons of one machine.
#[derive(Debug)]
pub(super) struct Daemons {
    _virtlogd: Process,
    libvirtd: Process,
}

/// A thread of a guest's QEMU, as the kernel sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The thread's name: `CPU 0/TCG` is the first vCPU.
    pub name: String,
    /// The CPUs it may run on.
    pub cpus: BTreeSet<u32>,
}

impl Thread {
    /// Returns the number of the vCPU that this thread is, if it is one.
    pub fn vcpu(&self) -> Option<u32> {
        self.name
            .strip_prefix("CPU ")?
            .split('/')
            .next()?
            .parse()
            .ok()
    }
}

impl Machine {
    /// Writes the configuration and starts the daemons, if this is a hypervisor.
    pub(super) fn start_daemons(&mut self) -> Result<()> {
        if !self.is_hypervisor() {
            return Ok(());
        }
        self.write_configuration()?;
        let virtlogd = self.spawn("virtlogd", &["virtlogd"])?;
        let libvirtd = self.spawn("libvirtd", &["libvirtd", "--listen"])?;
        self.daemons = Some(Daemons {
            _virtlogd: virtlogd,
            libvirtd,
        });
        Ok(())
    }

    /// Waits until the daemon accepts connections.
    pub(super) fn wait_for_daemons(&mut self) -> Result<()> {
        let socket = self.libvirt_socket();
        let log = self.outside("/var/log/libvirt/libvirtd.log");
        let name = self.name().to_owned();
        let Some(daemons) = &mut self.daemons else {
            return Ok(());
        };
        wait_until(PATIENCE, || {
            if !daemons.libvirtd.is_running() {
                bail!(
                    "libvirtd on {name} ended: {}{}",
                    daemons.libvirtd.log(),
                    tail(&log)
                );
            }
            Ok(UnixStream::connect(&socket).is_ok().then_some(()))
        })
        .with_context(|| format!("libvirtd on {name} does not answer"))
    }

    /// Returns the URI under which the *test* reaches this machine's libvirtd.
    pub fn libvirt_uri(&self) -> String {
        format!(
            "qemu+unix:///system?socket={}",
            self.libvirt_socket().display()
        )
    }

    /// Returns the URI under which another machine's libvirtd reaches this one's.
    pub fn peer_uri(&self) -> String {
        format!("qemu+tcp://{}/system", self.name())
    }

    /// As [`Self::peer_uri`], over TLS.
    pub fn encrypted_peer_uri(&self) -> String {
        format!("qemu+tls://{}/system", self.name())
    }

    fn libvirt_socket(&self) -> PathBuf {
        self.outside("/run/libvirt/libvirt-sock")
    }

    /// Kills libvirtd; the guests run on.
    pub fn kill_libvirtd(&mut self) -> Result<()> {
        let daemons = self.daemons.as_mut().context("not a hypervisor")?;
        daemons.libvirtd.kill()
    }

    /// Starts libvirtd again, and waits until it answers.
    pub fn restart_libvirtd(&mut self) -> Result<()> {
        ensure!(
            self.daemons.is_some(),
            "{} is not a hypervisor",
            self.name()
        );
        let libvirtd = self.spawn("libvirtd", &["libvirtd", "--listen"])?;
        if let Some(daemons) = &mut self.daemons {
            daemons.libvirtd = libvirtd;
        }
        self.wait_for_daemons()
    }

    /// Returns what the daemon complained about so far, for the message of a failed test.
    pub fn libvirtd_log(&self) -> String {
        tail(&self.outside("/var/log/libvirt/libvirtd.log"))
    }

    /// Returns the pid, inside the machine, of a running guest's QEMU.
    ///
    /// It is looked for among the machine's processes: libvirt's own file of it can still
    /// name the process of an earlier attempt.
    pub fn qemu_pid(&self, domain: &str) -> Result<u32> {
        let guest = format!("guest={domain}");
        let is_guest =
            |argument: &[u8]| argument.split(|byte| *byte == b',').next() == Some(guest.as_bytes());
        for entry in fs::read_dir(self.outside("/proc"))? {
            let entry = entry?;
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            // Gone meanwhile, or a process of the kernel's: either is not the guest.
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if command.split(|byte| *byte == 0).any(is_guest) {
                return Ok(pid);
            }
        }
        bail!("{domain} does not run on {}", self.name())
    }

    /// Returns the threads of a running guest's QEMU from `/proc/<pid>/task/*/status`.
    pub fn qemu_threads(&self, domain: &str) -> Result<Vec<Thread>> {
        let tasks = self.outside(format!("/proc/{}/task", self.qemu_pid(domain)?));
        let mut threads = Vec::new();
        for entry in fs::read_dir(&tasks)? {
            // Workers come and go while they are counted.
            let Ok(status) = fs::read_to_string(entry?.path().join("status")) else {
                continue;
            };
            let field = |name: &str| {
                status
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                    .map(str::trim)
                    .unwrap_or_default()
            };
            threads.push(Thread {
                name: field("Name").to_owned(),
                cpus: parse_cpu_list(field("Cpus_allowed_list"))?,
            });
        }
        Ok(threads)
    }

    /// Returns the CPUs that each vCPU of a running guest may use, by the vCPU's number.
    pub fn vcpu_affinity(
        &self,
        domain: &str,
    ) -> Result<std::collections::BTreeMap<u32, BTreeSet<u32>>> {
        let threads = self.qemu_threads(domain)?;
        Ok(threads
            .into_iter()
            .filter_map(|thread| Some((thread.vcpu()?, thread.cpus)))
            .collect())
    }

    fn write_configuration(&self) -> Result<()> {
        let etc = self.outside("/etc/libvirt");
        let host_uuid = uuid::Uuid::new_v4();
        let address = self.address();
        let name = self.name();
        write(
            &etc.join("libvirtd.conf"),
            &format!(
                "host_uuid = \"{host_uuid}\"\n\
                 listen_tls = 1\n\
                 tls_allowed_dn_list = [ \"O={LIBVIRT},CN=*\" ]\n\
                 listen_tcp = 1\n\
                 listen_addr = \"{address}\"\n\
                 auth_tcp = \"none\"\n\
                 auth_unix_ro = \"none\"\n\
                 auth_unix_rw = \"none\"\n\
                 unix_sock_group = \"root\"\n\
                 log_level = 3\n\
                 log_outputs = \"3:file:/var/log/libvirt/libvirtd.log\"\n"
            ),
        )?;
        write(
            &etc.join("qemu.conf"),
            &format!(
                "security_driver = \"none\"\n\
                 user = \"root\"\n\
                 group = \"root\"\n\
                 dynamic_ownership = 0\n\
                 remember_owner = 0\n\
                 namespaces = [ ]\n\
                 hugetlbfs_mount = \"/run/hugepages\"\n\
                 migration_address = \"0.0.0.0\"\n\
                 migration_host = \"{name}\"\n\
                 migrate_tls_x509_cert_dir = \"{QEMU_DIRECTORY}\"\n\
                 migrate_tls_x509_verify = 1\n"
            ),
        )
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads the kernel's notation: `0-2,5`.
fn parse_cpu_list(text: &str) -> Result<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>()?..=last.parse::<u32>()?);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        let check = |text: &str, expected: &[u32]| {
            assert_eq!(
                parse_cpu_list(text).unwrap(),
                expected.iter().copied().collect()
            );
        };
        check("0", &[0]);
        check("0-2,5", &[0, 1, 2, 5]);
        check("", &[]);
    }

    #[test]
    fn vcpu_threads_are_known_by_their_names() {
        let thread = |name: &str| Thread {
            name: name.to_owned(),
            cpus: BTreeSet::new(),
        };
        assert_eq!(thread("CPU 3/TCG").vcpu(), Some(3));
        assert_eq!(thread("qemu-system-x86").vcpu(), None);
    }
}
