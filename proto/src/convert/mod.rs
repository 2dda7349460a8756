//! Conversions between the wire and the domain: the only place that doubts input.
//!
//! To the wire: `From<&Domain>`. From the wire: `TryFrom<wire>`, which checks the shape (what is
//! required, names, identifiers, choices, lengths) and names the field and what is allowed. What
//! a value *means* (whether a flavor makes sense, whether a host exists) is checked by the domain
//! and the state.
//!
//! Invariant: what was written by the first is read by the second as the same value, or refused;
//! nothing is cut or filled in on the way. Members of a cluster apply what they read, and the
//! leader what it wrote: a lossy conversion would make them differ.
//!
//! | module | what |
//! |---|---|
//! | [`field`] | [`Invalid`], and the reading of single fields |
//! | [`name`] | resource names, as `hosts/h1` |
//! | [`page`] | page sizes and tokens of lists |
//! | the others | one noun each |

pub mod agent;
pub mod aggregate;
pub mod assignment;
pub mod audit;
pub mod claim;
pub mod cpu;
pub mod cpu_model;
pub mod csi;
pub mod drain;
pub mod event;
pub mod field;
pub mod flavor;
pub mod grant;
pub mod hint;
pub mod history;
pub mod host;
pub mod host_check;
pub mod image;
pub mod import;
pub mod instance;
pub mod memory;
pub mod migration;
pub mod name;
mod network;
pub mod operation;
pub mod ownership;
pub mod page;
pub mod pci;
pub mod placement;
mod pmem;
pub mod policy;
pub mod reality;
pub mod recovery;
pub mod refusal;
pub mod restart;
pub mod revocation;
mod scoped;
pub mod server_group;
pub mod service;
pub mod signals;
pub mod topology;
pub mod transfer;
pub mod vm;
pub mod vm_metadata;
pub mod volume;

pub use field::Invalid;
pub use name::ResourceName;
