//! What a machine must have so that a real test can run on it.
//!
//! What it is not: an installer; `.ci/install` is. A test asks [`ready`], and ends with a
//! sentence where something is missing. With `BERTH_REAL=require` in the environment, as
//! in continuous integration, the same is a failure: a test that is skipped shows nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::image;

/// How much of a lab a test uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Machines on a network.
    Namespaces,
    /// Machines with libvirt and QEMU, and guests to run there.
    Hypervisor,
    /// OpenStack Placement's own test suite.
    PlacementSuite,
    /// An emulated machine with four nodes that has hypervisors in it.
    Nodes,
    /// The same machine, without hypervisors and with persistent memory.
    PersistentMemory,
}

/// Why a test cannot run here, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The sentence.
    pub sentence: String,
}

impl Missing {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
        }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.sentence)
    }
}

impl std::error::Error for Missing {}

/// Returns whether a test with those needs can run. If not it says why on the standard
/// error output, or panics where the environment says `BERTH_REAL=require`.
#[must_use]
pub fn ready(needs: Needs) -> bool {
    match prerequisites(needs) {
        Ok(()) => true,
        Err(missing) if std::env::var("BERTH_REAL").is_ok_and(|value| value == "require") => {
            panic!("a real test is required here and cannot run: {missing}")
        }
        Err(missing) => {
            eprintln!("skipped: {missing}");
            false
        }
    }
}

/// Looks for everything that those needs take; the answer is found once per process.
pub fn prerequisites(needs: Needs) -> Result<(), Missing> {
    static NAMESPACES: OnceLock<Result<(), Missing>> = OnceLock::new();
    static HYPERVISOR: OnceLock<Result<(), Missing>> = OnceLock::new();
    match needs {
        Needs::Namespaces => NAMESPACES.get_or_init(namespaces).clone(),
        Needs::Hypervisor => {
            NAMESPACES.get_or_init(namespaces).clone()?;
            HYPERVISOR.get_or_init(hypervisor).clone()
        }
        Needs::PlacementSuite => placement_suite(),
        Needs::Nodes => super::nodes::prerequisites(),
        Needs::PersistentMemory => super::nodes::prerequisites_of_memory(),
    }
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
    Err(Missing::new(format!(
        "{} lacks openstack-placement, gabbi or OpenStack's client: run .ci/install",
        python.display()
    )))
}

fn namespaces() -> Result<(), Missing> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let root = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|uids| uids.split_whitespace().nth(1).map(|uid| uid == "0"));
    if root != Some(true) {
        return Err(Missing::new(
            "network namespaces take root, and this is not root",
        ));
    }
    for program in ["unshare", "nsenter", "ip", "bash", "mount"] {
        require_program(program)?;
    }
    // Tried rather than asked: a container may be root and still not be allowed to.
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
    berth_driver::libvirt::Library::open().map_err(|error| Missing::new(error.to_string()))?;
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
        None => Err(Missing::new(format!(
            "the program {name} is not installed (.ci/install brings it)"
        ))),
    }
}
