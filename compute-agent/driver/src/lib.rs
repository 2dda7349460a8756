//! Hypervisors behind one trait: simulated and libvirt.
//!
//! Invariant: a driver uses the CPUs and pages that it gets; it never chooses any. Its records of a
//! guest are stored by the hypervisor, with the claim and the epoch.
//!
//! | module | what |
//! |---|---|
//! | [`driver`] | the trait; its parameters, results and calls as values are in `berth-driver-api` |
//! | [`arrivals`] | what the transfers took of guests that arrived |
//! | [`perform`](mod@perform) | one call that stands as a value |
//! | [`sim`] | simulated hypervisors: one in a process, or many under a virtual clock |
//! | [`libvirt`] | QEMU through libvirt, opened when first used |
//! | [`xml`] | a guest as libvirt's domain XML, pure |
//! | [`disks`] | the disks of guests that are off, on their way between hosts |
//! | [`image`] | what the file of an image or a disk has to be before a program opens it |
//! | [`seed`] | the disk from which a guest reads what it was given for its first boot |
//! | `conformance` | the conformance suite of every driver |

pub mod arrivals;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod disks;
pub mod driver;
pub mod image;
pub mod libvirt;
pub mod perform;
pub mod seed;
pub mod sim;
pub mod xml;

pub use arrivals::Arrival;
pub use berth_driver_api::{
    Answer, DomainSpec, Draft, Ending, Error, Fetch, Force, FreePages, Kind, Known, Other, Request,
    Sending, Token, VolumeDevice,
};
pub use berth_driver_api::{domain, error, request};
pub use driver::{
    CONSOLE_CHUNK_MAX, CONSOLE_INPUT_MAX, Chunk, ConsoleInput, ConsoleLog, Driver, Eraser, Info,
    NoPmem,
};
pub use perform::perform;
