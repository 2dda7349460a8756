//! Several machines on one: network namespaces that stand for hosts, with or without a
//! hypervisor of their own.
//!
//! A [`Lab`] is a set of machines on one switched network. Each has its own network,
//! mounts, processes and name, and private `/run`, `/etc/hosts`, `/etc/libvirt`, `/etc/pki/{CA,libvirt,qemu}`,
//! `/var/lib/libvirt`, `/var/log/libvirt` and `/var/cache/libvirt`; the rest of the file
//! system is the one of the test, so that programs and scratch files have the same path
//! inside and outside. A hypervisor runs virtlogd and libvirtd in there.
//!
//! ```text
//!   host-a            host-b           scheduler-1         (one init process each)
//!   br0 10.0.0.1      br0 10.0.0.2     eth0 10.0.0.3
//!   |- guests' taps   |- guests' taps  |
//!   `- eth0           `- eth0          |
//!       |                 |            |
//!       `------- switch: br0 ----------'                   (a machine without address)
//! ```
//!
//! What it is not: several kernels. CPUs, memory, huge pages and clocks are shared, so
//! that a lab shows where threads are pinned, and nothing about speed. With one NUMA node
//! in the machine it shows nothing about the placement of memory either.
//!
//! What is known to work, and what the code therefore does:
//!
//! * Nothing has a name outside: no entry in `/run/netns`, no interface in the test's own
//!   network namespace. Labs of several processes can run side by side, all with the same
//!   addresses.
//! * Each machine ends with its first process, and that one ends when the pipe from the
//!   test closes. A test that is killed leaves nothing behind but a directory.
//! * All of `/run` must be private: the daemons' pid files lie there and not in
//!   `/run/libvirt`.
//! * Control groups are hidden. Two libvirtd would both want to own `/machine`; they look
//!   for groups in the list of mounts, and without any they pin threads by affinity alone.
//!   So it makes no difference whether the machine has version 1, version 2 or both. A
//!   tmpfs on top does not hide them; taking `/sys` away and mounting it afresh does, and
//!   shows the namespace's own interfaces as well.
//! * Guests are always emulated (`<domain type='qemu'>`). `/dev/kvm` is not used: it can
//!   exist, open and create a machine, and still be of no use for an ordinary guest.
//! * libvirtd looks up the user and the group `libvirt-qemu` before it reads that QEMU
//!   shall run as root, and stops where there is none: `/etc/passwd` and `/etc/group` are
//!   private and have them.
//! * The daemon at the other end of a migration is dialled by name, and refuses a host
//!   with its own UUID: each machine has its own name, machine id and host UUID.
//! * Bridges have hardware addresses of their own. Left to themselves they may take that
//!   of a guest's tap, which is the same on both hosts while the guest moves.
//!
//! Invariant: dropping a [`Lab`] ends every process that was started in it, by their pids.

mod booted;
mod console;
mod daemons;
mod forward;
mod image;
mod loop_device;
mod machine;
mod network;
mod nodes;
mod prerequisites;
mod process;
mod small_disk;

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};
use berth_tls::authority::{self, Authority};

pub use booted::{Booted, debian_archive};
pub use console::Console;
pub use daemons::Thread;
pub use forward::Forward;
pub use image::{Images, images};
pub use loop_device::LoopDevice;
pub use machine::Machine;
pub use nodes::{
    FourNodes, Memory, Outcome, Watched, WatchedDisk, counting_guest, free_pages, make_nvdimm,
    set_pages,
};
pub use prerequisites::{
    CSI_SANITY, LONG, Missing, Need, ansible_playbook, axe_core, placement_python, python_client,
};
pub use process::Process;
pub use small_disk::{Filler, SmallDisk};

use machine::Plan;

/// The address of the first machine; the others follow it.
const FIRST_ADDRESS: u32 = Ipv4Addr::new(10, 0, 0, 1).to_bits();

/// The machines of a test, until it is dropped.
#[derive(Debug)]
pub struct Lab {
    // Dropped in this order: the machines before the switch they hang on, both before
    // the directory that holds their files.
    machines: Vec<Machine>,
    _switch: Machine,
    directory: tempfile::TempDir,
}

/// What a lab is to consist of.
#[derive(Debug, Default)]
pub struct Builder {
    plans: Vec<Plan>,
}

impl Builder {
    /// Adds a machine with a libvirtd of its own.
    pub fn hypervisor(self, name: &str) -> Self {
        self.add(name, true)
    }

    /// Adds a machine without a hypervisor.
    pub fn machine(self, name: &str) -> Self {
        self.add(name, false)
    }

    fn add(mut self, name: &str, hypervisor: bool) -> Self {
        let number = u32::try_from(self.plans.len()).expect("a handful of machines");
        let address = Ipv4Addr::from_bits(FIRST_ADDRESS + number);
        self.plans.push(Plan {
            name: name.to_owned(),
            address: Some(address),
            hypervisor,
        });
        self
    }

    /// Starts the machines, connects them, and waits until each hypervisor answers.
    pub fn start(self) -> Result<Lab> {
        ensure!(!self.plans.is_empty(), "a lab without machines");
        let directory = tempfile::Builder::new().prefix("berth-lab-").tempdir()?;
        let hosts = hosts_file(&self.plans);
        let pair = authority::init(&directory.path().join("authority"), "lab", 1)?;
        let authority = Authority::open(&pair.cert, &pair.key)?;
        let switch = Machine::start(Plan::switch(), directory.path(), &hosts, &authority)?;
        network::make_switch(&switch)?;
        let mut machines = Vec::new();
        for (port, plan) in self.plans.into_iter().enumerate() {
            let machine = Machine::start(plan, directory.path(), &hosts, &authority)?;
            network::plug_in(&switch, &machine, port)?;
            machines.push(machine);
        }
        // All daemons first, then wait for all: they start side by side.
        for machine in &mut machines {
            machine.start_daemons()?;
        }
        for machine in &mut machines {
            machine.wait_for_daemons()?;
        }
        Ok(Lab {
            machines,
            _switch: switch,
            directory,
        })
    }
}

impl Lab {
    /// Begins the description of a lab.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts that many hypervisors: `host-a`, `host-b` and so on.
    pub fn hypervisors(count: u8) -> Result<Self> {
        let names = (b'a'..=b'z').take(usize::from(count));
        names
            .fold(Self::builder(), |builder, letter| {
                builder.hypervisor(&format!("host-{}", char::from(letter)))
            })
            .start()
    }

    /// Returns the machine of that name.
    pub fn get(&self, name: &str) -> Result<&Machine> {
        self.machines
            .iter()
            .find(|machine| machine.name() == name)
            .with_context(|| format!("no machine {name} in this lab"))
    }

    /// Returns the machine of that name, to do something to it.
    pub fn get_mut(&mut self, name: &str) -> Result<&mut Machine> {
        self.machines
            .iter_mut()
            .find(|machine| machine.name() == name)
            .with_context(|| format!("no machine {name} in this lab"))
    }

    /// Returns all machines, in the order in which they were named.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// Returns a directory that all machines and the test see under this path, and that
    /// is removed with the lab.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }
}

fn hosts_file(plans: &[Plan]) -> String {
    let mut text = "127.0.0.1 localhost\n".to_owned();
    for plan in plans {
        if let Some(address) = plan.address {
            text.push_str(&format!("{address} {}\n", plan.name));
        }
    }
    text
}
