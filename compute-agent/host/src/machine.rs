//! A machine as it was read, before the operator's options are applied to it.

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::topology::{CellId, SocketId};

/// A NUMA node of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: u32,
    /// Online CPUs.
    pub(crate) cpus: CpuSet,
    /// The socket of each CPU, where the machine tells.
    pub(crate) sockets: BTreeMap<CpuId, SocketId>,
    /// The sibling threads of each CPU, itself included, where the machine tells.
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
}

/// Something odd about a machine that could be read safely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The CPUs of one cell are on several sockets: the cell is given none.
    SeveralSockets {
        /// The cell.
        cell: CellId,
        /// The sockets.
        sockets: Vec<SocketId>,
    },
    /// The machine does not tell which threads share a core: each is taken for a core of its own.
    UnknownCores {
        /// The cell.
        cell: CellId,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// The machine has no NUMA nodes to tell of: all of it is taken for one cell.
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
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SeveralSockets { cell, sockets } => {
                let sockets: Vec<_> = sockets.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "cell {cell} has CPUs on sockets {}: it is taken for being on none",
                    sockets.join(", ")
                )
            }
            Self::UnknownCores { cell, cpus } => write!(
                f,
                "the cores of CPUs {cpus} in cell {cell} are not known: each CPU is taken for a \
                 core of its own"
            ),
            Self::NoNodes => {
                f.write_str("this machine tells of no NUMA nodes: it is taken for one cell")
            }
            Self::EmptyNode { cell } => {
                write!(f, "node {cell} has neither CPUs nor memory and is left out")
            }
            Self::Homeless { cpus } => {
                write!(f, "CPUs {cpus} are online but in no node and are left out")
            }
        }
    }
}
