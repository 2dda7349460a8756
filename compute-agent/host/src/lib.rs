//! Discovery of a host: CPUs, NUMA cells, sockets, cores, page pools, PCI functions, and what the
//! processor can do.
//!
//! | module | what |
//! |---|---|
//! | [`sysfs`] | reads a machine from the kernel's files, whose root is a parameter |
//! | [`description`] | reads a machine from a TOML file, for simulated hosts |
//! | [`machine`] | the result of both |
//! | [`signals`] | total and free memory, and memory pressure, now |
//! | [`options`] | the operator's options: CPU sets, reserved pages |
//! | [`pci`] | PCI functions, and which of them are for guests |
//! | `cpu_flags` | what the processor can do, as traits |
//!
//! Invariant: nothing but the kernel's files or the description is a source; anything odd is an
//! error that names the file, or a warning where a safe reading exists. Nothing here reads
//! what guests use, except [`sysfs::free_pages`] and [`signals`].

mod cpu_flags;
pub mod description;
pub mod machine;
pub mod options;
pub mod pci;
pub mod signals;
pub mod sysfs;

use std::collections::BTreeSet;

use berth_domain::resource::Trait;
use berth_domain::topology::HostTopology;

pub use machine::Warning;
pub use options::{Options, ReservedPages};

/// A host as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Its shape.
    pub topology: HostTopology,
    /// What its processor can do, named as in os-traits.
    pub traits: BTreeSet<Trait>,
    /// What was odd, but could be read safely.
    pub warnings: Vec<Warning>,
}
