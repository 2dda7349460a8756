//! Simulated hypervisors.
//!
//! | module | what |
//! |---|---|
//! | [`host`] | one hypervisor as a pure state machine |
//! | `capacity` | whether a guest fits there |
//! | `post_copy` | guests that run where their memory is not yet |
//! | [`memory`] | how much memory the machine and its guests have and touch |
//! | [`console`] | what its guests write |
//! | `disks` | the names of the images that are made of their disks |
//! | `files` | those disks as files, where a directory is configured |
//! | `travel` | those disks under the virtual clock, on their way between storages |
//! | [`pmem`] | what is on its namespaces of persistent memory |
//! | [`world`] | many hypervisors under a virtual clock, with transfers, cuts, crashes and scripts |
//! | [`script`] | replies that are lost, late, refused or repeated |
//! | [`driver`] | one hypervisor in a real process |
//! | `transfer` | how it sends guests over TCP, and takes them in |
//! | `story`, `orders` | injected events of one in a process |
//! | [`wire`] | the messages between two such processes |

mod capacity;
pub mod console;
mod disks;
pub mod driver;
mod files;
pub mod host;
pub mod memory;
mod orders;
pub mod pmem;
mod post_copy;
mod progress;
pub mod script;
mod story;
mod transfer;
mod travel;
pub mod wire;
pub mod world;

pub use driver::SimDriver;
pub use script::Behaviour;
pub use world::{Completion, Settings, World};
