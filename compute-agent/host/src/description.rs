//! Reads a machine from a TOML file: the description of a simulated host.
//!
//! ```toml
//! # Optional; by default 10 to the cell itself and 20 to every other.
//! distances = [[10, 20], [20, 10]]
//!
//! [[cells]]
//! id = 0
//! socket = 0            # optional
//! cpus = "0-3"
//! cores = ["0-1", "2-3"] # optional; by default each CPU is a core of its own
//! memory_mib = 4096
//! huge_pages = [{ size_kib = 2048, total = 512 }]
//!
//! # Optional, in the words of the kernel's files. The agent's configuration states which of them
//! # guests may use, as on a real machine.
//! [[pci]]
//! address = "0000:81:00.0"
//! vendor = "8086"
//! device = "1572"
//! class = "020000"      # optional; an Ethernet controller by default
//! numa_node = 0         # optional; unknown by default
//! sriov_totalvfs = 64   # optional; makes it a physical function
//! net = "ens1f0"        # optional; the network device that it is
//!
//! [[pci]]
//! address = "0000:81:10.0"
//! vendor = "8086"
//! device = "154c"
//! numa_node = 0
//! physfn = "0000:81:00.0" # makes it a virtual function
//! carries = "the file system /" # optional; the host lives on it
//! ```
//!
//! ```toml
//! # Optional. The agent's configuration states which namespaces guests may use.
//! [[pmem]]
//! name = "ns0"           # optional, as on a real machine
//! size_mib = 131072
//! align_kib = 2048       # optional; by default that
//! mode = "devdax"        # optional; by default that
//! numa_node = 0          # optional; unknown by default
//! ```
//!
//! ```toml
//! # Optional: what simulated guests are offered as a CPU; without it, it does not matter to them.
//! [cpu]
//! model = "Nehalem"
//! vendor = "Intel"                       # optional
//! features = ["aes", "sse4.2"]           # all of them
//! required = ["aes"]                     # those beyond the model's
//! disabled = []                          # those of the model that are lacking
//!
//! [cpu.models]                           # every known model, with the features that are lacking
//! Nehalem = []
//! Haswell = ["avx2", "fma"]
//! ```
//!
//! `cpu_flags = ["avx2"]` beside `distances` lists the features of the processor, as traits are made of
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::cpu_model::{GuestCpu, HostCpu};
use berth_domain::cpu_set::CpuSet;
use berth_domain::name::{CpuFeature, CpuModelName, CpuVendor};
use berth_domain::pci::{PciAddress, PciId, PciKind};
use berth_domain::topology::SocketId;
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Node};
use crate::options::{self, Options, apply, each};
use crate::pci::function::{Function, Iommu, inherit_use};
use crate::{Discovery, cpu_flags};

/// The size of ordinary pages on described machines.
const SMALL_PAGE_KIB: u64 = 4;

/// The most memory of a described cell, 64 TiB.
const MEMORY_MIB_MAX: u64 = 64 * 1024 * 1024;

/// A pool of huge pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HugePages {
    /// The size of one page in KiB.
    pub size_kib: u64,
    /// How many there are.
    pub total: u64,
}

/// A described cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Its number.
    pub id: u32,
    /// The socket that it is on.
    #[serde(default)]
    pub socket: Option<u32>,
    /// Its CPUs; may be empty.
    #[serde(default)]
    pub cpus: CpuSet,
    /// Which of them share a core; absent where none do.
    #[serde(default)]
    pub cores: Option<Vec<CpuSet>>,
    /// Its memory in MiB, huge pages included.
    pub memory_mib: u64,
    /// Its huge pages.
    #[serde(default)]
    pub huge_pages: Vec<HugePages>,
}

/// A described PCI function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pci {
    /// Where it is.
    pub address: PciAddress,
    /// Its vendor.
    pub vendor: PciId,
    /// Its model.
    pub device: PciId,
    /// Its class: six hexadecimal digits.
    #[serde(default = "ethernet")]
    pub class: String,
    /// The cell that it is attached to, if known.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// How many virtual functions it can have; none makes it an ordinary function.
    #[serde(default)]
    pub sriov_totalvfs: u32,
    /// The physical function of a virtual one.
    #[serde(default)]
    pub physfn: Option<PciAddress>,
    /// The network device that it is.
    #[serde(default)]
    pub net: Option<String>,
    /// What the host lives on it for, as `the file system /`.
    #[serde(default)]
    pub carries: Option<String>,
}

fn ethernet() -> String {
    "020000".to_owned()
}

/// A described namespace of persistent memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pmem {
    /// Its name, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// Its size.
    pub size_mib: u64,
    /// What its size is a multiple of.
    #[serde(default = "align_kib")]
    pub align_kib: u64,
    /// Its mode, as ndctl calls it.
    #[serde(default = "devdax")]
    pub mode: String,
    /// The cell that it is attached to, if known.
    #[serde(default)]
    pub numa_node: Option<u32>,
}

fn align_kib() -> u64 {
    2048
}

fn devdax() -> String {
    "devdax".to_owned()
}

/// What is offered to simulated guests as a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// The model.
    pub model: CpuModelName,
    /// Its vendor, if it matters.
    #[serde(default)]
    pub vendor: Option<CpuVendor>,
    /// All features.
    pub features: BTreeSet<CpuFeature>,
    /// Those beyond the model's.
    #[serde(default)]
    pub required: BTreeSet<CpuFeature>,
    /// Those of the model that are lacking.
    #[serde(default)]
    pub disabled: BTreeSet<CpuFeature>,
    /// Every known model, with the features that are lacking.
    pub models: BTreeMap<CpuModelName, BTreeSet<CpuFeature>>,
}

impl Cpu {
    /// Returns what an agent reports of it.
    #[must_use]
    pub fn report(&self) -> HostCpu {
        HostCpu {
            host_model: Arc::new(GuestCpu {
                vendor: self.vendor.clone(),
                required: self.required.clone(),
                disabled: self.disabled.clone(),
                ..GuestCpu::named(self.model.clone())
            }),
            features: self.features.clone(),
            models: self.models.clone(),
        }
    }
}

/// A described machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The distances, by position of the cells.
    #[serde(default)]
    pub distances: Option<Vec<Vec<u32>>>,
    /// What the processor can do, as the kernel calls it.
    #[serde(default)]
    pub cpu_flags: BTreeSet<String>,
    /// What is offered to simulated guests as a CPU.
    #[serde(default)]
    pub cpu: Option<Cpu>,
    /// The cells in ascending order.
    pub cells: Vec<Cell>,
    /// The PCI functions.
    #[serde(default)]
    pub pci: Vec<Pci>,
    /// The namespaces of persistent memory.
    #[serde(default)]
    pub pmem: Vec<Pmem>,
}

/// Why a description makes no host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not TOML, or has unknown or missing keys.
    #[error("the description of the machine cannot be read")]
    Toml(#[from] toml::de::Error),
    /// It contradicts itself; all faults.
    #[error("the description of the machine is wrong: {}", .0.join("; "))]
    Contradiction(Vec<String>),
    /// It and the options do not go together.
    #[error(transparent)]
    Host(#[from] options::Error),
}

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    ///
    /// When it is not one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(toml::from_str(text)?)
    }

    /// Returns the described host.
    ///
    /// # Errors
    ///
    /// When the description contradicts itself or the options.
    pub fn discover(&self, options: &Options) -> Result<Discovery, Error> {
        let faults = self.faults();
        if !faults.is_empty() {
            return Err(Error::Contradiction(faults));
        }
        let count = self.cells.len();
        let default = |a: usize| (0..count).map(|b| if a == b { 10 } else { 20 }).collect();
        let machine = Machine {
            nodes: self.cells.iter().map(node).collect(),
            distances: self
                .distances
                .clone()
                .unwrap_or_else(|| (0..count).map(default).collect()),
            small_page_kib: SMALL_PAGE_KIB,
            functions: functions(&self.pci),
            traits: cpu_flags::traits_of(&self.cpu_flags),
        };
        Ok(apply(machine, options, Vec::new())?)
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut seen = CpuSet::new();
        let count = self.cells.len();
        if count == 0 {
            faults.push("there are no NUMA nodes".to_owned());
        }
        if let Some(distances) = &self.distances
            && (distances.len() != count || distances.iter().any(|row| row.len() != count))
        {
            faults.push(format!("distances are not {count} rows of {count}"));
        }
        for cell in &self.cells {
            let twice = cell.cpus.intersection(&seen);
            if !twice.is_empty() {
                faults.push(format!(
                    "CPUs {twice} are in NUMA node {} and before",
                    cell.id
                ));
            }
            seen = seen.union(&cell.cpus);
            if cell.memory_mib > MEMORY_MIB_MAX {
                faults.push(format!("NUMA node {} has more than 64 TiB", cell.id));
            }
            faults.extend(cores(cell));
            faults.extend(huge_pages(cell));
        }
        faults.extend(self.pci_faults());
        if self
            .cpu
            .as_ref()
            .is_some_and(|cpu| !cpu.report().is_consistent())
        {
            faults.push(
                "cpu: its model must be among its models and lack what is disabled, what is required \
                 must be among its features, and no model may lack one of these"
                    .to_owned(),
            );
        }
        for (index, pmem) in self.pmem.iter().enumerate() {
            let most = MEMORY_MIB_MAX;
            if !(1..=most).contains(&pmem.size_mib) || !(1..=most).contains(&pmem.align_kib) {
                faults.push(format!(
                    "pmem[{index}] has no size or alignment that a host has"
                ));
            }
        }
        faults
    }

    fn pci_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let by_address: BTreeMap<_, _> = self.pci.iter().map(|p| (p.address, p)).collect();
        if by_address.len() < self.pci.len() {
            faults.push("two PCI functions have one address".to_owned());
        }
        for pci in by_address.values() {
            let address = pci.address;
            if let Some(node) = pci.numa_node
                && !self.cells.iter().any(|cell| cell.id == node)
            {
                let fault =
                    format!("PCI function {address} is on NUMA node {node}, which is not there");
                faults.push(fault);
            }
            if class(pci).is_none() {
                faults.push(format!(
                    "the class of PCI function {address} is not six hexadecimal digits"
                ));
            }
            let Some(parent) = pci.physfn else { continue };
            let is_physical = by_address
                .get(&parent)
                .is_some_and(|p| p.physfn.is_none() && p.sriov_totalvfs > 0);
            if !is_physical {
                faults.push(format!(
                    "PCI function {address} is a virtual one of {parent}, which is not there or \
                     has no sriov_totalvfs"
                ));
            }
        }
        faults
    }
}

fn class(pci: &Pci) -> Option<u32> {
    let is_hexadecimal = pci.class.len() == 6 && pci.class.chars().all(|c| c.is_ascii_hexdigit());
    let class = u32::from_str_radix(&pci.class, 16).ok();
    class.filter(|_| is_hexadecimal)
}

fn functions(described: &[Pci]) -> Vec<Function> {
    let function = |pci: &Pci| Function {
        address: pci.address,
        vendor: pci.vendor,
        product: pci.device,
        class: class(pci).unwrap_or_default(),
        node: pci.numa_node,
        kind: match (pci.physfn, pci.sriov_totalvfs) {
            (Some(_), _) => PciKind::Virtual,
            (None, 1..) => PciKind::Physical,
            (None, 0) => PciKind::Pci,
        },
        parent: pci.physfn,
        driver: None,
        iommu: Iommu::Untold,
        devnames: pci.net.iter().cloned().collect(),
        carries: pci.carries.iter().cloned().collect(),
    };
    let mut functions: Vec<_> = described.iter().map(function).collect();
    functions.sort_by_key(|f| f.address);
    inherit_use(&mut functions);
    functions
}

fn cores(cell: &Cell) -> Option<String> {
    let cores = cell.cores.as_ref()?;
    let all = cores.iter().fold(CpuSet::new(), |all, c| all.union(c));
    let threads: usize = cores.iter().map(CpuSet::len).sum();
    (all != cell.cpus || threads != cell.cpus.len()).then(|| {
        format!(
            "the cores of NUMA node {} are not its CPUs, once each",
            cell.id
        )
    })
}

fn huge_pages(cell: &Cell) -> Option<String> {
    let sizes: BTreeSet<_> = cell.huge_pages.iter().map(|p| p.size_kib).collect();
    let good = sizes.len() == cell.huge_pages.len()
        && sizes
            .iter()
            .all(|s| *s > SMALL_PAGE_KIB && s % SMALL_PAGE_KIB == 0);
    if !good {
        return Some(format!(
            "the huge pages of NUMA node {} are not of distinct sizes above {SMALL_PAGE_KIB} KiB",
            cell.id
        ));
    }
    let kib = cell
        .huge_pages
        .iter()
        .map(|p| p.size_kib.saturating_mul(p.total))
        .fold(0, u64::saturating_add);
    (kib / 1024 > cell.memory_mib).then(|| {
        format!(
            "the huge pages of NUMA node {} are more than its memory",
            cell.id
        )
    })
}

fn node(cell: &Cell) -> Node {
    let socket = cell.socket.map(SocketId);
    let siblings = match &cell.cores {
        Some(cores) => cores
            .iter()
            .flat_map(|core| core.iter().map(move |cpu| (cpu, core.clone())))
            .collect(),
        None => each(&cell.cpus).collect(),
    };
    Node {
        id: cell.id,
        cpus: cell.cpus.clone(),
        sockets: cell
            .cpus
            .iter()
            .filter_map(|cpu| Some((cpu, socket?)))
            .collect(),
        siblings,
        memory_kib: cell.memory_mib * 1024,
        huge_pages: cell
            .huge_pages
            .iter()
            .map(|p| (p.size_kib, p.total))
            .collect(),
    }
}
