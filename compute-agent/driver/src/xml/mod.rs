//! A guest as libvirt's domain XML, and back.
//!
//! | module | what |
//! |---|---|
//! | [`mod@write`] | a [`DomainSpec`](crate::DomainSpec) as XML: the hypervisor's input |
//! | [`metadata`] | the element with the claim, the epoch and the whole record |
//! | [`cpu`] | CPUs: what a hypervisor offers, what a guest has, what is to be expanded |
//! | [`read`] | what of a running domain's XML is read back |
//!
//! Invariant: pure. The destination's XML of a migration comes from the same function as the
//! source's, with the claim that came back in `migrate_data`; so both have the same elements and
//! the guest sees the same machine. What the hypervisor has added at its start is taken from the source
//! ([`Running`]): it refuses a destination that differs.

pub mod cpu;
mod hostdev;
pub mod metadata;
mod node;
mod nvdimm;
pub mod read;
pub mod write;

pub use metadata::NAMESPACE;
pub use nvdimm::{Place, places};
pub use read::Error as ReadError;
pub use write::{Running, Settings, VirtType, copy_destination, disk_target, domain, taken_over};
