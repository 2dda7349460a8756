//! A machine as it was read, before the operator's options are applied to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::pci::PciAddress;
use berth_domain::resource::Trait;
use berth_domain::topology::{CellId, SocketId};

use crate::pci::function::Function;

/// How many of anything a warning names.
const NAMED_MAX: usize = 8;

/// A NUMA node of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: u32,
    /// Online CPUs.
    pub(crate) cpus: CpuSet,
    /// The socket of each CPU, where the machine reports it.
    pub(crate) sockets: BTreeMap<CpuId, SocketId>,
    /// The sibling threads of each CPU, itself included, where the machine reports them.
    pub(crate) siblings: BTreeMap<CpuId, CpuSet>,
    /// All memory, huge pages included.
    pub(crate) memory_kib: u64,
    /// How many huge pages of each size in KiB.
    pub(crate) huge_pages: BTreeMap<u64, u64>,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// In ascending order of id.
    pub(crate) nodes: Vec<Node>,
    /// By position of the nodes.
    pub(crate) distances: Vec<Vec<u32>>,
    pub(crate) small_page_kib: u64,
    /// All of its PCI functions.
    pub(crate) functions: Vec<Function>,
    /// What its processor can do.
    pub(crate) traits: BTreeSet<Trait>,
}

/// Something odd about a machine that could be read safely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The CPUs of one cell are on several sockets: the cell gets none.
    SeveralSockets {
        /// The cell.
        cell: CellId,
        /// The sockets.
        sockets: Vec<SocketId>,
    },
    /// The machine does not report which threads share a core: each is taken for a core of its own.
    UnknownCores {
        /// The cell.
        cell: CellId,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// The machine reports no NUMA nodes: all of it is taken for one cell.
    NoNodes,
    /// A node has neither CPUs nor memory, and is left out.
    EmptyNode {
        /// The node.
        cell: CellId,
    },
    /// CPUs are online but belong to no node, and are left out.
    Homeless {
        /// The CPUs.
        cpus: CpuSet,
    },
    /// Of some cores not all threads are dedicated: what runs on the others disturbs guests that
    /// have a CPU to themselves.
    SplitCores {
        /// The cores, each with all of its threads.
        cores: Vec<CpuSet>,
    },
    /// A rule about PCI functions decides about none.
    IdleRule {
        /// Which one, counted from 0.
        rule: usize,
        /// Whether it is like some, all of which earlier rules decided about.
        shadowed: bool,
    },
    /// A function that a rule is like stays with the host, which lives on it.
    Withheld {
        /// The rule, counted from 0.
        rule: usize,
        /// The function.
        function: PciAddress,
        /// What the host lives on it for.
        carries: String,
    },
    /// Functions are attached to a node without CPUs: their cell is taken for not known.
    StrayFunctions {
        /// The node.
        cell: CellId,
        /// The functions.
        functions: Vec<PciAddress>,
    },
    /// The machine's IOMMU is off: functions cannot be passed through to guests.
    NoIommu {
        /// Those that are offered.
        functions: Vec<PciAddress>,
    },
    /// The machine's IOMMU cannot isolate functions from each other.
    SharedGroup {
        /// Those that are offered.
        functions: Vec<PciAddress>,
        /// Those that a driver of the host has.
        host: Vec<PciAddress>,
    },
}

impl Warning {
    /// Returns the key of the configuration that it is about.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        match self {
            Self::SplitCores { .. } => Some("cpu_dedicated_set".to_owned()),
            Self::IdleRule { rule, .. } | Self::Withheld { rule, .. } => Some(rule_key(*rule)),
            Self::SeveralSockets { .. }
            | Self::UnknownCores { .. }
            | Self::NoNodes
            | Self::EmptyNode { .. }
            | Self::Homeless { .. }
            | Self::StrayFunctions { .. }
            | Self::NoIommu { .. }
            | Self::SharedGroup { .. } => None,
        }
    }
}

/// Returns the key of a rule about PCI functions, counted from 0.
pub(crate) fn rule_key(rule: usize) -> String {
    format!("pci.device_spec[{rule}]")
}

/// Returns the first ones of a list, and how many more there are.
fn list<T: fmt::Display>(all: &[T], gap: &str) -> String {
    let mut names: Vec<_> = all
        .iter()
        .take(NAMED_MAX)
        .map(ToString::to_string)
        .collect();
    if all.len() > NAMED_MAX {
        names.push(format!("{} more", all.len() - NAMED_MAX));
    }
    names.join(gap)
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SeveralSockets { cell, sockets } => {
                let sockets: Vec<_> = sockets.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "NUMA node {cell} has CPUs on sockets {}: it is taken for being on none",
                    sockets.join(", ")
                )
            }
            Self::UnknownCores { cell, cpus } => write!(
                f,
                "the cores of CPUs {cpus} in NUMA node {cell} are unknown: each CPU is taken for a \
                 core of its own"
            ),
            Self::NoNodes => {
                f.write_str("this machine reports no NUMA nodes: it is taken for one NUMA node")
            }
            Self::EmptyNode { cell } => {
                write!(
                    f,
                    "NUMA node {cell} has neither CPUs nor memory and is left out"
                )
            }
            Self::Homeless { cpus } => {
                write!(f, "CPUs {cpus} are online but in no node and are left out")
            }
            Self::SplitCores { cores } => write!(
                f,
                "cpu_dedicated_set splits cores: not all threads of {} are in it",
                list(cores, " and ")
            ),
            Self::IdleRule { rule, shadowed } => {
                let what = match shadowed {
                    false => "no PCI function here",
                    true => "only PCI functions that are like an earlier rule",
                };
                write!(f, "{} matches {what}", rule_key(*rule))
            }
            Self::Withheld {
                rule,
                function,
                carries,
            } => write!(
                f,
                "{} matches {function}, which carries {carries}: it stays with the host",
                rule_key(*rule)
            ),
            Self::StrayFunctions { cell, functions } => write!(
                f,
                "PCI functions {} are attached to NUMA node {cell}, which is left out: their NUMA node is \
                 taken for unknown",
                list(functions, ", ")
            ),
            Self::NoIommu { functions } => write!(
                f,
                "the IOMMU of this machine is off: guests cannot use PCI functions {}",
                list(functions, ", ")
            ),
            Self::SharedGroup { functions, host } => shared_group(f, functions, host),
        }
    }
}

fn shared_group(
    f: &mut fmt::Formatter<'_>,
    functions: &[PciAddress],
    host: &[PciAddress],
) -> fmt::Result {
    let functions = list(functions, ", ");
    write!(f, "PCI functions {functions} are in one IOMMU group")?;
    if host.is_empty() {
        return f.write_str(": only one guest at a time can have any of them");
    }
    let host = list(host, ", ");
    write!(
        f,
        " with {host}, which drivers of the host have: guests cannot use them"
    )
}
