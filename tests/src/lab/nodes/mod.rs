//! A machine with four NUMA nodes and a kernel of its own, emulated: there memory is on one node
//! or on another, and the kernel says on which.
//!
//! ```text
//!   this machine     QEMU: 2 sockets, 4 nodes of 2 CPUs and 512 MiB
//!                      one program, as root: a test, which makes a lab in there
//!                        host-a, host-b     libvirtd, and guests that QEMU emulates again
//! ```
//!
//! It can have NVDIMMs near its nodes, with ndctl and daxio in there: files of this machine, which
//! keep what is in them from one run to the next.
//!
//! What it is not: fast, or a measure of anything. Nodes are as QEMU declares them; all memory is
//! equally far in truth. The hosts of a lab in it share its kernel and its huge pages.
//!
//! What is known to work, and what the code therefore does:
//!
//! * Everything in there comes from this machine's packages: nothing is downloaded, and the
//!   versions are those of the other real tests.
//! * The root file system is made without mounts, and its disk is never written: QEMU keeps what
//!   changes to itself.
//! * The disk is NVMe, since that driver and ext4 are built into Debian's cloud kernel.
//! * The kernel does not check its timer at the start (`no_timer_check`): where the emulator is kept
//!   waiting meanwhile, it takes the timer for broken and panics.
//! * The guests are a page of machine code that counts ([`counting_guest`]). A kernel that boots
//!   under two emulators would take minutes.
//!
//! Invariant: the machine ends with [`FourNodes::run`]. If the test is killed meanwhile, it ends by
//! itself with the program in there.

mod root;
mod watched;
mod wdat;
mod witness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::image;
use super::prerequisites::{Missing, require_program};
use super::process::wait_until;
use root::{Content, Kit};

pub use watched::{Watched, WatchedDisk};
pub use witness::{Memory, free_pages, set_pages};

/// The memory of each node.
const NODE_MIB: u32 = 512;
/// The CPUs of each node.
const NODE_CPUS: u32 = 2;

/// What the machine's first process says before all else.
const MARK: &str = "berth-nodes: ";

/// The guest's source.
const COUNTER: &str = include_str!("counter.S");

/// The part of an NVDIMM where its namespaces are written down. Without it all of it is one
/// namespace.
const LABEL_BYTES: u64 = 128 << 10;

/// A program that is to run on a machine with four nodes.
#[derive(Debug, Default)]
pub struct FourNodes {
    nvdimms: Vec<(u32, PathBuf)>,
    /// The same without a place for labels: each is one namespace.
    images: Vec<(u32, PathBuf)>,
    is_without_hypervisor: bool,
    has_volumes: bool,
    programs: Vec<(PathBuf, String)>,
    files: Vec<(PathBuf, String)>,
    environment: Vec<(String, String)>,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// The program's exit status, unless the machine ended before the program.
    pub status: Option<i32>,
    /// Everything that was written to the machine's console.
    pub console: String,
}

impl FourNodes {
    /// Puts a program of this machine there under an absolute path, without what only a debugger
    /// needs.
    #[must_use]
    pub fn program(mut self, from: &Path, to: &str) -> Self {
        self.programs.push((from.to_owned(), to.to_owned()));
        self
    }

    /// Puts a file there.
    #[must_use]
    pub fn file(mut self, from: &Path, to: &str) -> Self {
        self.files.push((from.to_owned(), to.to_owned()));
        self
    }

    /// Sets a variable of the program's environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts persistent memory near a node. What is written to it is in the file, also after the
    /// machine has ended; [`make_nvdimm`] makes one.
    #[must_use]
    pub fn nvdimm(mut self, node: u32, file: &Path) -> Self {
        self.nvdimms.push((node, file.to_owned()));
        self
    }

    /// Shows a file as persistent memory near a node, all of it as one namespace, as Kata Containers
    /// does.
    #[must_use]
    pub fn memory_image(mut self, node: u32, file: &Path) -> Self {
        self.images.push((node, file.to_owned()));
        self
    }

    /// Puts in what volumes take: LVM, and the programs of file systems.
    #[must_use]
    pub fn with_volumes(mut self) -> Self {
        self.has_volumes = true;
        self
    }

    /// Leaves out what only a hypervisor takes.
    #[must_use]
    pub fn without_hypervisor(mut self) -> Self {
        self.is_without_hypervisor = true;
        self
    }

    fn kit(&self) -> Kit {
        let memory = match self.nvdimms.is_empty() {
            true => Kit::default(),
            false => Kit::persistent_memory(),
        };
        let memory = match self.has_volumes {
            true => memory.and(Kit::volumes()),
            false => memory,
        };
        match self.is_without_hypervisor {
            true => memory,
            false => Kit::lab().and(memory),
        }
    }

    /// Runs a command there, and returns when the machine has ended. The machine is killed when
    /// patience ends.
    ///
    /// # Errors
    ///
    /// When the machine cannot be made.
    pub fn run(self, command: &[&str], patience: Duration) -> Result<Outcome> {
        let directory = tempfile::Builder::new().prefix("berth-nodes-").tempdir()?;
        let kernel = image::find_kernel()?;
        let content = Content {
            kit: &self.kit(),
            programs: &self.programs,
            files: &self.files,
            command: &self.script(command),
        };
        let disk = root::make(directory.path(), &kernel, &content)?;
        let console = directory.path().join("console.log");
        let mut machine = Running(self.qemu(&kernel.image, &disk, &console)?);
        // Out of patience is an outcome: the console tells how far it came.
        let _ = wait_until(patience, || Ok(machine.0.try_wait()?));
        drop(machine);
        let said = fs::read(&console).unwrap_or_default();
        let console = String::from_utf8_lossy(&said).replace('\r', "");
        let status = console
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix(MARK)?.strip_prefix("status "));
        Ok(Outcome {
            status: status.and_then(|status| status.trim().parse().ok()),
            console,
        })
    }

    fn qemu(&self, kernel: &Path, disk: &Path, console: &Path) -> Result<Child> {
        let mut qemu = Command::new("qemu-system-x86_64");
        let cpus = NODE_CPUS * 4;
        qemu.args(["-accel", "tcg,thread=multi"]).args([
            "-smp",
            &format!("{cpus},sockets=2,cores={},threads=1", cpus / 2),
        ]);
        for node in 0..4 {
            let first = node * NODE_CPUS;
            let last = first + NODE_CPUS - 1;
            let memory = format!("memory-backend-ram,id=memory{node},size={NODE_MIB}M");
            let cpus = format!("node,nodeid={node},memdev=memory{node},cpus={first}-{last}");
            qemu.args(["-object", &memory, "-numa", &cpus]);
        }
        self.add_memory(&mut qemu)?;
        // Only nodes that were named can have a distance.
        for (node, other) in (0..4).flat_map(|node| (0..4).map(move |other| (node, other))) {
            let value = distance(node, other);
            let distance = format!("dist,src={node},dst={other},val={value}");
            qemu.args(["-numa", &distance]);
        }
        let drive = format!(
            "if=none,id=root,format=raw,cache=unsafe,snapshot=on,file={}",
            disk.display()
        );
        qemu.args(["-drive", &drive, "-device", "nvme,serial=root,drive=root"])
            .args(["-display", "none", "-nodefaults", "-no-user-config"])
            .args(["-no-reboot", "-serial"])
            .arg(format!("file:{}", console.display()))
            .arg("-kernel")
            .arg(kernel)
            .args([
                "-append",
                "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off root=/dev/nvme0n1 rw rootwait init=/init",
            ])
            .stdin(Stdio::null());
        qemu.spawn().context("cannot run qemu-system-x86_64")
    }

    /// Adds the machine with its memory: what is plugged in has a place of its own.
    fn add_memory(&self, qemu: &mut Command) -> Result<()> {
        let ordinary_mib = NODE_MIB * 4;
        if self.nvdimms.is_empty() {
            qemu.args(["-machine", "q35", "-m", &ordinary_mib.to_string()]);
            return Ok(());
        }
        let slots = self.nvdimms.len() + self.images.len();
        qemu.args(["-machine", "q35,nvdimm=on", "-m"])
            .arg(format!("{ordinary_mib},slots={slots},maxmem=16G"));
        let labelled = format!(",label-size={LABEL_BYTES}");
        let nvdimms = self
            .nvdimms
            .iter()
            .map(|nvdimm| (nvdimm, labelled.as_str()));
        let images = self.images.iter().map(|image| (image, ""));
        for (number, ((node, file), labels)) in nvdimms.chain(images).enumerate() {
            let size = fs::metadata(file).with_context(|| format!("no {}", file.display()))?;
            let (size, file) = (size.len(), file.display());
            let memory = format!(
                "memory-backend-file,id=nvdimm{number},share=on,mem-path={file},size={size}"
            );
            let device = format!("nvdimm,memdev=nvdimm{number},node={node}{labels}");
            qemu.args(["-object", &memory, "-device", &device]);
        }
        Ok(())
    }

    fn script(&self, command: &[&str]) -> String {
        let exports: String = self
            .environment
            .iter()
            .map(|(name, value)| format!("export {name}='{value}'\n"))
            .collect();
        format!("{exports}exec {}\n", command.join(" "))
    }
}

/// The emulator, killed when this is dropped.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Either it has ended already, or it ends by this.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two nodes on each socket.
fn distance(node: u32, other: u32) -> u32 {
    match (node == other, node / 2 == other / 2) {
        (true, true | false) => 10,
        (false, true) => 12,
        (false, false) => 32,
    }
}

/// Makes the guest that counts and looks after its memory, as a file to boot as a kernel.
///
/// # Errors
///
/// When it cannot be assembled or written.
pub fn counting_guest(to: &Path) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("berth-guest-").tempdir()?;
    let source = directory.path().join("counter.S");
    let object = directory.path().join("counter.o");
    fs::write(&source, COUNTER)?;
    let mut assemble = Command::new("as");
    image::run(assemble.arg("--32").arg(&source).arg("-o").arg(&object))?;
    let mut link = Command::new("ld");
    link.args([
        "-m",
        "elf_i386",
        "-Ttext=0x100000",
        "--oformat",
        "binary",
        "-o",
    ]);
    image::run(link.arg(to).arg(&object))
}

/// Makes a file that a machine sees as an NVDIMM with that much memory, which is empty.
///
/// # Errors
///
/// When it cannot be written.
pub fn make_nvdimm(file: &Path, mib: u64) -> Result<()> {
    let made = fs::File::create(file).with_context(|| format!("no {}", file.display()))?;
    // The memory has to end at a multiple of 16 MiB: what the labels take is added.
    made.set_len((mib << 20) + LABEL_BYTES)?;
    Ok(())
}

/// What the machine and its guests take.
pub(super) fn prerequisites() -> Result<(), Missing> {
    for program in ["as", "ld"] {
        require_program(program)?;
    }
    take(&Kit::lab())
}

/// What the machine takes with persistent memory and without hypervisors.
pub(super) fn prerequisites_of_memory() -> Result<(), Missing> {
    require_program("qemu-system-x86_64")?;
    take(&Kit::persistent_memory().and(Kit::volumes()))
}

fn take(kit: &Kit) -> Result<(), Missing> {
    for program in kit.programs.iter().chain(&["strip", "ldd", "mke2fs"]) {
        require_program(program)?;
    }
    root::prerequisites(kit)?;
    let missing = |error: anyhow::Error| Missing::package(format!("{error:#}"));
    image::find_kernel().map_err(missing)?;
    image::busybox().map_err(missing)?;
    Ok(())
}
