//! One machine of a lab: a first process with namespaces of its own.
//!
//! What it is not: a container. It shares the test's file system, but for the places that
//! [`INIT`] makes private.
//!
//! Invariant: the first process lives exactly as long as this end of the pipe to it, and
//! the kernel ends all other processes of the machine with it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use berth_tls::authority::{self, Authority};
use berth_tls::hypervisor::{self, HypervisorSpec};

use super::daemons::Daemons;
use super::image::cache_directory;
use super::process::{Process, children_of, signal, tail};

/// What runs as the first process. Arguments: the machine's name, its directory, the directory of
/// what libvirt found out about the emulators.
///
/// All labs share that one: else each libvirtd starts every emulator to see what it can do, and
/// waits for it without a limit. One of some hundred of these emulators (QEMU 7.2) stood in
/// `accept()` of its monitor's socket for good. libvirt checks what it reads there against the
/// emulator and the kernel, and replaces files as a whole.
///
/// bash, because it collects the processes that are left to it even while it waits for
/// the pipe: libvirtd would take a guest that ended, and was not collected, for alive.
const INIT: &str = r#"
set -eu
name=$1 state=$2 capabilities=$3
export PATH=$PATH:/usr/sbin:/sbin
echo "$name" >/proc/sys/kernel/hostname
mount --make-rprivate /
# Lazily, because other mounts lie below it; with them go the control groups.
umount -l /sys
mount -t sysfs sysfs /sys
mkdir -p "$state/run/lock" "$state/run/hugepages"
mount --bind "$state/run" /run
for place in /etc/libvirt /etc/pki/CA /etc/pki/libvirt /etc/pki/qemu \
    /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do
    mkdir -p "$state$place" "$place"
    mount --bind "$state$place" "$place"
done
mkdir -p "$capabilities" /var/cache/libvirt/qemu/capabilities
mount --bind "$capabilities" /var/cache/libvirt/qemu/capabilities
for file in /etc/hosts /etc/machine-id /etc/passwd /etc/group; do
    [ -e "$file" ] || : >"$file"
    mount --bind "$state$file" "$file"
done
if grep -qw hugetlbfs /proc/filesystems; then
    mount -t hugetlbfs hugetlbfs /run/hugepages
fi
ip link set lo up
echo ready
read -r _ || true
"#;

/// What a machine is to be.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) address: Option<Ipv4Addr>,
    pub(super) hypervisor: bool,
}

impl Plan {
    /// The machine that the others are plugged into.
    pub(super) fn switch() -> Self {
        Self {
            name: "switch".to_owned(),
            address: None,
            hypervisor: false,
        }
    }
}

/// One machine of a lab.
#[derive(Debug)]
pub struct Machine {
    plan: Plan,
    directory: PathBuf,
    /// `unshare`, the parent of the machine's first process; its standard input is the
    /// pipe that keeps the machine alive.
    child: Child,
    init: u32,
    pub(super) daemons: Option<Daemons>,
}

impl Machine {
    pub(super) fn start(
        plan: Plan,
        lab: &Path,
        hosts: &str,
        authority: &Authority,
    ) -> Result<Self> {
        let directory = lab.join(&plan.name);
        write_private_files(&directory, hosts)?;
        if plan.hypervisor {
            issue_certificates(&plan, authority, &directory.join("etc/pki"))?;
        }
        let log = directory.join("init.log");
        let mut unshare = Command::new("unshare");
        unshare
            .args([
                "--mount",
                "--uts",
                "--net",
                "--ipc",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            .args(["--mount-proc", "--", "bash", "-c", INIT, "bash", &plan.name])
            .arg(&directory)
            .arg(cache_directory().join("capabilities"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?);
        let mut child = unshare.spawn().context("cannot run unshare")?;
        let output = child.stdout.take().expect("the standard output is a pipe");
        let mut line = String::new();
        // Ends with the line or, if the script fails, with the pipe.
        BufReader::new(output).read_line(&mut line)?;
        if line != "ready\n" {
            // Collects the child; it has ended, or will for want of its input.
            drop(child.stdin.take());
            let _ = child.wait();
            bail!("the machine {} does not start: {}", plan.name, tail(&log));
        }
        let init = children_of(child.id())?
            .first()
            .copied()
            .with_context(|| format!("the machine {} has no first process", plan.name))?;
        Ok(Self {
            plan,
            directory,
            child,
            init,
            daemons: None,
        })
    }

    /// Returns the machine's name, which the other machines can resolve.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Returns the machine's address.
    pub fn address(&self) -> Ipv4Addr {
        self.plan.address.unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// Returns whether the machine has a hypervisor.
    pub fn is_hypervisor(&self) -> bool {
        self.plan.hypervisor
    }

    /// Returns the pid of the machine's first process, as the test sees it.
    pub fn init_pid(&self) -> u32 {
        self.init
    }

    /// Returns a directory of this machine's own, under the same path inside and outside.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns where the test finds the file that has that absolute path inside.
    pub fn outside(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        let root = PathBuf::from(format!("/proc/{}/root", self.init));
        root.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Returns a command that runs `program` inside; arguments are added to it.
    ///
    /// The child is `nsenter`, not the program: to signal the program, use [`Self::spawn`].
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.init))
            .args(["--mount", "--uts", "--net", "--ipc", "--pid", "--"])
            .arg(program)
            .env("PATH", path());
        command
    }

    /// Runs a program inside, and returns what it printed if it ended well.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let (program, arguments) = arguments.split_first().context("no program")?;
        let mut command = self.command(program);
        command.args(arguments).stdin(Stdio::null());
        let Output {
            status,
            stdout,
            stderr,
        } = command.output()?;
        ensure!(
            status.success(),
            "{program} {} on {}: {status}: {}{}",
            arguments.join(" "),
            self.name(),
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr),
        );
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    /// Starts a program inside and lets it run; what it prints goes to
    /// `<directory>/<label>.log`.
    pub fn spawn(&self, label: &str, command: &[&str]) -> Result<Process> {
        self.spawn_with(label, command, &[])
    }

    /// As [`Self::spawn`], with variables added to the program's environment.
    pub fn spawn_with(
        &self,
        label: &str,
        command: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Process> {
        let (program, arguments) = command.split_first().context("no program")?;
        let mut entering = self.command(program);
        entering.args(arguments).envs(environment.iter().copied());
        Process::start(entering, &self.directory.join(format!("{label}.log")))
    }

    /// Takes the machine off the network, as if its cable were pulled.
    pub fn unplug(&self) -> Result<()> {
        self.run(&["ip", "link", "set", "eth0", "down"]).map(|_| ())
    }

    /// Puts the machine back on the network.
    pub fn plug_in(&self) -> Result<()> {
        self.run(&["ip", "link", "set", "eth0", "up"]).map(|_| ())
    }

    /// Kills every process of the machine at once, as if its power failed. Only what is
    /// on its disk is left; there is no way to start it again.
    pub fn power_off(&mut self) -> Result<()> {
        drop(self.child.stdin.take());
        if self.child.try_wait()?.is_some() {
            // The number of the first process may be another's by now.
            return Ok(());
        }
        // Its parent collects the first process and ends with it. Killing the parent
        // would do as well, but leave the collecting to the process that inherits it.
        signal(self.init, "KILL")?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // An error here means that it is gone already, or ends by itself: the pipe is closed.
        let _ = self.power_off();
    }
}

/// The search path of programs inside, with the places of a system's own programs.
fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin")
}

/// Makes the certificates of libvirtd and QEMU, for the machine's name.
fn issue_certificates(plan: &Plan, authority: &Authority, directory: &Path) -> Result<()> {
    let spec = HypervisorSpec {
        name: plan.name.clone(),
        dns: vec![plan.name.clone()],
        ips: Vec::new(),
        validity: authority::days(1),
    };
    hypervisor::issue(authority, &spec, directory).context("no certificates for a hypervisor")
}

fn write_private_files(directory: &Path, hosts: &str) -> Result<()> {
    let etc = directory.join("etc");
    fs::create_dir_all(&etc)?;
    fs::write(etc.join("hosts"), hosts)?;
    fs::write(
        etc.join("machine-id"),
        format!("{}\n", uuid::Uuid::new_v4().simple()),
    )?;
    let accounts = [
        (
            "passwd",
            "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin\n",
        ),
        ("group", "libvirt-qemu:x:64055:\n"),
    ];
    for (file, account) in accounts {
        let mut text = fs::read_to_string(Path::new("/etc").join(file)).unwrap_or_default();
        if !text.lines().any(|line| line.starts_with("libvirt-qemu:")) {
            text.push_str(account);
        }
        fs::write(etc.join(file), text)?;
    }
    Ok(())
}
