//! What a machine must have so that a real test can run on it.
//!
//! What it is not: an installer; `.ci/install` is. The harness of the real tests examines what each one
//! needs before it runs.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::image;
use super::small_disk::SmallDisk;

/// The variable with the path of `csi-sanity`, the public suite of the Container Storage Interface.
pub const CSI_SANITY: &str = "BERTH_CSI_SANITY";

/// Set where there is time for what takes minutes of all CPUs; `each-step` takes more. See
/// `tests/long/README.md`.
pub const LONG: &str = "BERTH_LONG";

/// What gets everything that is a package.
const INSTALL: &str = "run .ci/install";

/// Something that a real test needs of the machine on which it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Machines on a network, in namespaces.
    Namespaces,
    /// The client library of libvirt.
    Libvirt,
    /// The program that makes and converts disk images.
    QemuImg,
    /// The programs that make file systems.
    FileSystems,
    /// Machines with libvirt and QEMU, and guests to run there.
    Hypervisor,
    /// A second CPU, for a guest that is moved to another one.
    TwoCpus,
    /// OpenStack Placement with its own test suite, and OpenStack's client.
    PlacementSuite,
    /// What Berth's Python client is built and tested with.
    PythonClient,
    /// An emulated machine with four nodes that has hypervisors in it.
    Nodes,
    /// The same machine, without hypervisors and with persistent memory.
    PersistentMemory,
    /// A client of HTTPS that is not ours.
    Curl,
    /// A browser that is driven, and rules of accessibility.
    Browser,
    /// Prometheus, and the program that checks metrics and rules for it.
    Prometheus,
    /// Loop devices, and mounts in the machine's own namespace.
    LoopDevices,
    /// A file system of its own that is soon full.
    SmallDisk,
    /// Machines in namespaces that boot Debian's systemd, and what makes packages.
    Systemd,
    /// What makes and installs rpm packages.
    Rpm,
    /// Ansible, and SSH to machines.
    Ansible,
    /// The public suite of the Container Storage Interface, which is built by hand.
    CsiSanity,
    /// Minutes of all CPUs: not in every run (`tests/long/README.md`).
    LongRun,
}

/// What a machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is missing, as a sentence.
    pub reason: String,
    /// How to get it, in the imperative.
    pub hint: Option<String>,
    /// Whether a machine must have it where real tests are required (`BERTH_REAL=require`).
    pub is_required: bool,
}

impl Missing {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            hint: None,
            is_required: true,
        }
    }

    /// Something that a package has.
    pub(super) fn package(reason: impl Into<String>) -> Self {
        Self::new(reason).hint(INSTALL)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)?;
        match &self.hint {
            Some(hint) => write!(f, "; hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Missing {}

impl Need {
    /// Looks for everything that it takes.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub fn examine(self) -> Result<(), Missing> {
        static NAMESPACES: OnceLock<Result<(), Missing>> = OnceLock::new();
        match self {
            Self::Namespaces => NAMESPACES.get_or_init(namespaces).clone(),
            Self::Hypervisor => {
                Self::Namespaces.examine()?;
                hypervisor()
            }
            Self::Libvirt => libvirt(),
            Self::QemuImg => require_program("qemu-img"),
            Self::FileSystems => ["mkfs.ext4", "mkfs.xfs"]
                .into_iter()
                .try_for_each(require_program),
            Self::TwoCpus => two_cpus(),
            Self::PlacementSuite => placement_suite(),
            Self::PythonClient => python_client_tools(),
            Self::Nodes => super::nodes::prerequisites(),
            Self::PersistentMemory => super::nodes::prerequisites_of_memory(),
            Self::Curl => require_program("curl"),
            Self::Browser => {
                ["chromium", "chromedriver"]
                    .into_iter()
                    .try_for_each(require_program)?;
                match axe_core().is_file() {
                    true => Ok(()),
                    false => Err(Missing::package("axe-core is not installed")),
                }
            }
            Self::Prometheus => ["prometheus", "promtool"]
                .into_iter()
                .try_for_each(require_program),
            Self::LoopDevices => super::loop_device::prerequisites(),
            Self::SmallDisk => SmallDisk::make().map(drop),
            Self::Systemd => {
                Self::Namespaces.examine()?;
                super::booted::prerequisites()?;
                [
                    "dpkg-deb",
                    "dpkg-shlibdeps",
                    "lintian",
                    "man",
                    "strip",
                    "systemd-analyze",
                ]
                .into_iter()
                .try_for_each(require_program)
            }
            Self::Rpm => ["rpm", "rpmbuild"]
                .into_iter()
                .try_for_each(require_program),
            Self::Ansible => {
                ["ssh", "ssh-keygen"]
                    .into_iter()
                    .try_for_each(require_program)?;
                ansible()
            }
            Self::CsiSanity => csi_sanity(),
            Self::LongRun => long_run(),
        }
    }

    /// Returns whether it is a machine that is emulated, which takes all CPUs of this one.
    #[must_use]
    pub fn is_emulated_machine(self) -> bool {
        match self {
            Self::Nodes | Self::PersistentMemory => true,
            Self::Namespaces
            | Self::Hypervisor
            | Self::Libvirt
            | Self::QemuImg
            | Self::FileSystems
            | Self::TwoCpus
            | Self::PlacementSuite
            | Self::PythonClient
            | Self::Browser
            | Self::Curl
            | Self::Prometheus
            | Self::LoopDevices
            | Self::SmallDisk
            | Self::Systemd
            | Self::Rpm
            | Self::Ansible
            | Self::CsiSanity
            | Self::LongRun => false,
        }
    }
}

fn libvirt() -> Result<(), Missing> {
    let opened = berth_driver::libvirt::Library::open();
    opened
        .map(drop)
        .map_err(|error| Missing::package(error.to_string()))
}

/// Returns where the rules of axe-core are.
#[must_use]
pub fn axe_core() -> PathBuf {
    image::cache_directory().join("axe-core/node_modules/axe-core/axe.min.js")
}

fn two_cpus() -> Result<(), Missing> {
    match std::thread::available_parallelism().map_or(1, NonZero::get) {
        1 => Err(Missing::new("this machine has one CPU")),
        _ => Ok(()),
    }
}

fn csi_sanity() -> Result<(), Missing> {
    if std::env::var_os(CSI_SANITY).is_some() {
        return Ok(());
    }
    let missing = Missing::new(format!("{CSI_SANITY} does not name the program csi-sanity"));
    Err(Missing {
        is_required: false,
        ..missing.hint("build it as tests/long/README.md says")
    })
}

fn long_run() -> Result<(), Missing> {
    if std::env::var_os(LONG).is_some() {
        return Ok(());
    }
    let missing = Missing::new("it takes minutes");
    Err(Missing {
        is_required: false,
        ..missing.hint(format!("set {LONG}=1"))
    })
}

/// Returns the Python that has OpenStack Placement's test suite.
#[must_use]
pub fn placement_python() -> PathBuf {
    image::cache_directory().join("placement/bin/python")
}

fn placement_suite() -> Result<(), Missing> {
    let python = placement_python();
    let imported = Command::new(&python)
        .args([
            "-c",
            "import gabbi, openstackclient, osc_placement, placement",
        ])
        .output();
    if imported.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(Missing::package(format!(
        "{} lacks openstack-placement, gabbi or OpenStack's client",
        python.display()
    )))
}

/// Returns the Python environment that builds Berth's Python client, with the folder `wheels` of what the
/// client runs with and is tested with.
#[must_use]
pub fn python_client() -> PathBuf {
    image::cache_directory().join("python-client")
}

fn python_client_tools() -> Result<(), Missing> {
    let directory = python_client();
    // Written last, when the rest is there.
    match directory.join("versions").is_file() {
        true => Ok(()),
        false => Err(Missing::package(format!(
            "{} lacks what the Python client is built with",
            directory.display()
        ))),
    }
}

/// Returns the program of Ansible that runs playbooks.
#[must_use]
pub fn ansible_playbook() -> PathBuf {
    image::cache_directory().join("ansible/bin/ansible-playbook")
}

fn ansible() -> Result<(), Missing> {
    let program = ansible_playbook();
    match program.is_file() {
        true => Ok(()),
        false => Err(Missing::package(format!(
            "{} is missing",
            program.display()
        ))),
    }
}

fn namespaces() -> Result<(), Missing> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let root = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|uids| uids.split_whitespace().nth(1).map(|uid| uid == "0"));
    if root != Some(true) {
        let missing = Missing::new("network namespaces take root, and this is not root");
        return Err(missing.hint("run it as root"));
    }
    for program in ["unshare", "nsenter", "ip", "bash", "mount"] {
        require_program(program)?;
    }
    // Tried, since no file shows it: a container may be root and still not be allowed to.
    let script = "mount --make-rprivate / && umount -l /sys && mount -t sysfs sysfs /sys \
         && ip link add name trial type bridge && ip link add one type veth peer name two";
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--uts",
            "--net",
            "--ipc",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .args(["--", "bash", "-c", script])
        .output()
        .map_err(|error| Missing::new(format!("unshare does not run: {error}")))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(Missing::new(format!(
            "this machine does not let a namespace have its own mounts, bridge and links: {}",
            complaint.trim()
        )));
    }
    Ok(())
}

fn hypervisor() -> Result<(), Missing> {
    for program in ["libvirtd", "virtlogd", "qemu-system-x86_64", "qemu-img"] {
        require_program(program)?;
    }
    libvirt()?;
    image::prerequisites()
}

/// Finds a program where this machine keeps programs.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"])
        .map(|directory| Path::new(directory).join(name))
        .find(|program| program.is_file())
}

pub(super) fn require_program(name: &str) -> Result<(), Missing> {
    match find_program(name) {
        Some(_) => Ok(()),
        None => Err(Missing::package(format!("{name} is not installed"))),
    }
}
