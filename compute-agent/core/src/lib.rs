//! The agent's core: which calls it takes, in which order it has the hypervisor do them, and what
//! it replies. Sans-I/O: the server performs its effects on threads, the simulator on a
//! world of simulated hypervisors.
//!
//! | module | what |
//! |---|---|
//! | [`Agent`] | [`Agent::step`]: an event in, effects out |
//! | [`Facts`] | what does not change while the agent runs |
//! | `fences` | which calls are too late |
//! | `guests` | what this agent knows of its guests |
//! | `calls`, `answers` | one function per call, and per kind of driver result |
//! | `power` | stopping a guest within its time limit, and starting it again |
//! | `disks` | the disks of guests that are off: fetched, sent, deleted |
//! | `reality` | what the hypervisor has, and what the scheduler expects |
//! | `erasing` | erasing the persistent memory that guests have left |
//! | `self_fence` | stopping its guests when no heartbeat was acknowledged for too long, and feeding the watchdog |
//! | `fit` | the fit of a guest that is to come |
//! | [`host_check`] | what is right and wrong with its host |

mod agent;
mod answers;
mod calls;
mod disks;
mod erasing;
mod fences;
mod fit;
mod guests;
pub mod host_check;
mod migration_checks;
mod overdue;
mod power;
mod reality;
mod self_fence;

#[cfg(test)]
mod tests;

pub use agent::{Agent, CallId, Effect, Event, Facts};
pub use reality::Expectation;
pub use self_fence::{Feeding, STOPPING_MS};
