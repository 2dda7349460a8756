//! What a hypervisor driver is given and returns, as values: the vocabulary that the agent's core
//! and the drivers have in common. It does no I/O and knows no hypervisor; the trait `Driver`, which
//! blocks, is in `berth-driver`.
//!
//! | module | what |
//! |---|---|
//! | [`domain`] | a guest as a driver gets it and reads it back |
//! | [`request`] | the calls of a driver and their results |
//! | [`error`] | why a call was not carried out |

pub mod domain;
pub mod error;
pub mod request;

pub use domain::{DomainSpec, Draft, Ending, Force, Known, Other, Sending, VolumeDevice};
pub use error::Error;
pub use request::{Answer, Fetch, FreePages, Kind, Request, Token};
