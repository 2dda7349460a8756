//! Persistent memory for real: namespaces of NVDIMMs, listed by ndctl and erased by daxio.
//!
//! Goal: what is in a namespace is gone after it was erased, whatever stopped the erase meanwhile:
//! the program killed, or the whole machine. Method: an emulated machine with two NVDIMMs near two
//! of its four nodes, which runs this very program. In there the suite that simulated memory passes
//! too is run on the host's own programs, and memory is looked at by mapping the devices. The
//! machine loses its power in the middle of an erase and is started again on the same NVDIMMs. In
//! the end what the NVDIMMs hold is looked at from outside.
//!
//! ```text
//!   node 0   ns0  62 MiB   ns1  124 MiB   room for more
//!   node 2   ns2  62 MiB   fs0  in mode fsdax, for nobody   room for volumes
//! ```
//!
//! After that, in the same machine, volumes are made in the room that is left, in both device modes:
//! see `volumes.rs`. A third NVDIMM is the image file of a volume for Kata Containers.
//!
//! The other tests have all of Berth in the machine: what a guest had is erased before another has it,
//! though the agent is killed meanwhile; and volumes are had as Kubernetes has them, with the agent
//! killed in the middle of an erase (`life.rs`). By hand are run that with the agent killed at each step,
//! and the public suite of the Container Storage Interface (`sanity.rs`).
//!
//! What this is not: a measure of speed, nor of what is in a processor's caches when power goes.

mod agent;
mod device;
mod gate;
pub(crate) mod life;
pub(crate) mod sanity;
pub(crate) mod scenarios;
pub(crate) mod system;
pub(crate) mod volumes;

pub(crate) use sanity::the_public_suite_passes_on_real_devices;

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_tests::lab::{FourNodes, LONG, Outcome, counting_guest, make_nvdimm};

use crate::harness::{FINISHED, ROLE};
use crate::{PROGRAMS, site};

/// The roles of this program in the machine. The first one ends with the power.
pub(crate) const BEFORE_POWER_LOSS: &str = "pmem/before-power-loss";
pub(crate) const AFTER_POWER_LOSS: &str = "pmem/after-power-loss";
pub(crate) const SYSTEM: &str = "pmem/system";
pub(crate) const VOLUMES: &str = "pmem/volumes";
pub(crate) const VOLUMES_AT_EACH_STEP: &str = "pmem/volumes-at-each-step";
pub(crate) const SANITY: &str = "pmem/sanity";
/// Roles in which it is killed.
pub(crate) const VOLUME_WORKER: &str = "pmem/volume-worker";
pub(crate) const ERASER: &str = "pmem/eraser";

/// Where the machine has this program.
const SELF: &str = "/lab/test";

/// How far an erase had come before the machine lost its power.
const MARK: &str = "BERTH_TEST_MARK";

/// What is said of the mark on the console.
const MARKED: &str = "the mark is ";

/// The NVDIMM with room for volumes: xfs takes 300 MiB at least.
const NODE_2_MIB: u64 = 464;

/// The same for an agent: it makes no volume group of less than 2 GiB. The file has holes.
const GROUP_MIB: u64 = 2560;

/// What is written into namespaces.
const SECRET: &[u8] = b"what a guest wrote, and nobody else may read";

/// It takes minutes on an idle machine; one that is busy may take ten times as long.
const PATIENCE: Duration = Duration::from_secs(1800);

pub(crate) fn what_guests_wrote_is_erased_whatever_stops_it() {
    let directory = tempfile::tempdir().unwrap();
    let nvdimms = [0, 2].map(|node| (node, directory.path().join(format!("nvdimm{node}"))));
    for ((_, file), mib) in nvdimms.iter().zip([256, NODE_2_MIB]) {
        make_nvdimm(file, mib).unwrap();
    }
    let image = directory.path().join("image");
    volumes::make_image(&image);
    let run = |role: &str, mark: &str| -> Outcome {
        let machine = FourNodes::default()
            .without_hypervisor()
            .program(&std::env::current_exe().unwrap(), SELF)
            .variable(ROLE, role)
            .variable(MARK, mark)
            .variable("RUST_BACKTRACE", "1");
        let machine = nvdimms
            .iter()
            .fold(machine, |machine, (node, file)| machine.nvdimm(*node, file));
        // New labels are not for what has none.
        let machine = match mark {
            "" => machine,
            _ => machine.memory_image(0, &image).with_volumes(),
        };
        let outcome = machine.run(&[SELF], PATIENCE).unwrap();
        println!("{}", outcome.console);
        outcome
    };
    let before = run(BEFORE_POWER_LOSS, "");
    let mut lines = before.console.lines();
    let mark = lines.find_map(|line| line.strip_prefix(MARKED));
    let mark = mark.expect("the machine told how far it was; its console is above");
    assert_eq!(before.status, None, "its power went; the console is above");
    assert!(holds_secret(&nvdimms[0].1), "there is something to erase");
    let after = run(AFTER_POWER_LOSS, mark);
    assert_eq!(after.status, Some(0), "the console is above");
    assert!(after.console.contains(FINISHED), "the console is above");
    for (_, file) in &nvdimms {
        assert!(!holds_secret(file), "{}", file.display());
    }
}

pub(crate) fn what_a_deleted_vm_wrote_is_erased_before_another_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let guest = directory.path().join("counter");
    counting_guest(&guest).unwrap();
    let mut machine = FourNodes::default()
        .program(&std::env::current_exe().unwrap(), SELF)
        .program(Path::new(PROGRAMS), site::PROGRAMS)
        .file(&guest, site::GUEST)
        .variable(ROLE, SYSTEM)
        .variable("RUST_BACKTRACE", "1");
    for node in [0, 2] {
        let file = directory.path().join(format!("nvdimm{node}"));
        make_nvdimm(&file, 256).unwrap();
        machine = machine.nvdimm(node, &file);
    }
    let outcome = machine.run(&[SELF], PATIENCE).unwrap();
    println!("{}", outcome.console);
    assert_eq!(outcome.status, Some(0), "the console is above");
    assert!(outcome.console.contains(FINISHED), "the console is above");
}

pub(crate) fn volumes_outlive_their_agent_and_nothing_outlives_volumes() {
    let directory = tempfile::tempdir().unwrap();
    let is_complete = std::env::var(LONG).is_ok_and(|value| value == "each-step");
    let role = match is_complete {
        true => VOLUMES_AT_EACH_STEP,
        false => VOLUMES,
    };
    let (machine, nvdimms) = machine_with_volumes(directory.path(), role);
    let outcome = machine.run(&[SELF], PATIENCE).unwrap();
    println!("{}", outcome.console);
    assert_eq!(outcome.status, Some(0), "the console is above");
    assert!(outcome.console.contains(FINISHED), "the console is above");
    for file in &nvdimms {
        assert!(!holds_secret(file), "{}", file.display());
    }
}

/// Returns a machine with all programs, and with NVDIMMs of which one has room for a volume group.
fn machine_with_volumes(directory: &Path, role: &str) -> (FourNodes, Vec<PathBuf>) {
    let machine = FourNodes::default()
        .without_hypervisor()
        .with_volumes()
        .program(&std::env::current_exe().unwrap(), SELF)
        .program(Path::new(PROGRAMS), site::PROGRAMS)
        .variable(ROLE, role)
        .variable("RUST_BACKTRACE", "1");
    let (mut machine, mut files) = (machine, Vec::new());
    for (node, mib) in [(0, 256), (2, GROUP_MIB)] {
        let file = directory.join(format!("nvdimm{node}"));
        make_nvdimm(&file, mib).unwrap();
        machine = machine.nvdimm(node, &file);
        files.push(file);
    }
    (machine, files)
}

/// Returns whether the memory in a file holds what was written into a namespace. Wherever that was
/// written, it begins with a page.
fn holds_secret(file: &Path) -> bool {
    let mut file = BufReader::with_capacity(1 << 20, File::open(file).unwrap());
    let mut page = [0; 4096];
    loop {
        match file.read_exact(&mut page) {
            Ok(()) if page.starts_with(SECRET) => return true,
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
                return false;
            }
        }
    }
}

/// What runs in the machine that was started again.
pub(crate) fn after_power_loss() {
    scenarios::after_that(&std::env::var(MARK).unwrap());
    volumes::play();
}
