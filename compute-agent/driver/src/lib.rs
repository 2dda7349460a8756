//! Hypervisors behind one trait: simulated and libvirt.
//!
//! Invariant: a driver uses the CPUs and pages that it gets; it never chooses any. Its records of a
//! guest are stored by the hypervisor, with the claim and the epoch.
//!
//! | module | what |
//! |---|---|
//! | [`driver`], [`domain`], [`error`] | the trait, its parameters and results |
//! | [`request`] | its calls as values, for cores without I/O |
//! | [`sim`] | simulated hypervisors: one in a process, or many under a virtual clock |
//! | [`libvirt`] | QEMU through libvirt, opened when first used |
//! | [`xml`] | a guest as libvirt's domain XML, pure |
//! | [`disks`] | the disks of guests that are off, on their way between hosts |
//! | [`image`] | what the file of an image or a disk has to be before a program opens it |
//! | `conformance` | the conformance suite of every driver |

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod disks;
pub mod domain;
pub mod driver;
pub mod error;
pub mod image;
pub mod libvirt;
pub mod request;
pub mod sim;
pub mod xml;

pub use domain::{DomainSpec, Draft, Force, Known, Other, Sending, VolumeDevice};
pub use driver::{Chunk, Driver, Eraser, FreePages, Info, NoPmem};
pub use error::Error;
pub use request::{Answer, Fetch, Kind, Request, Token, perform};
