//! Discovery of a host: CPUs, NUMA cells, sockets, cores and page pools.
//!
//! | room | what |
//! |---|---|
//! | [`sysfs`] | reads a machine from the kernel's files, whose root is a parameter |
//! | [`description`] | reads a machine from a TOML file, for simulated hosts |
//! | [`machine`] | what both of them find |
//! | [`options`] | what the operator says about it: which CPUs are whose, reserved pages |
//!
//! Invariant: only what the kernel's files or the description say is believed; anything odd is an
//! error that names the file, or a warning where a safe reading exists. Nothing here looks at
//! what guests use, except [`sysfs::free_pages`].

pub mod description;
pub mod machine;
pub mod options;
pub mod sysfs;

use berth_domain::topology::HostTopology;

pub use machine::Warning;
pub use options::{Options, ReservedPages};

/// A host as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Its shape.
    pub topology: HostTopology,
    /// What was odd, but could be read safely.
    pub warnings: Vec<Warning>,
}
