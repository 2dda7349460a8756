//! Decisions: from a request and the state to a command, a response or a refusal.
//!
//! Pure: no I/O, no clock, no randomness, no threads. The scheduler and the simulator drive the
//! same code. Decisions are made on the leader's speculative state, so that many of them can be
//! in flight at once without conflicting.
//!
//! | module | contents |
//! |---|---|
//! | [`request`] | the requests that change the state |
//! | [`mod@decide`] | from a request to a decision |
//! | `image` | which images a VM is made from |
//! | `schedule` | those requests for which a host is chosen |
//! | [`chooser`] | the hosts as the choice sees them |
//! | [`host_table`] | the hosts, indexed between choices |
//! | [`decision`] | the outcome of a decision |
//! | [`admission`] | whether a new guest leaves headroom for failures |
//! | [`balance`] | how well guests are spread, and which moves would help |
//! | [`capacity`] | how many more VMs of a flavor fit |
//! | [`forwarding`], [`doubt`] | what is known of a command on its way to the leader |
//! | [`drain`] | where the VMs of a host would go |
//! | [`fleet`] | hosts and guests for plans of several steps |
//! | [`joining`] | how a new member finds its way into the cluster |
//! | [`quorum`] | which members the others can spare |
//! | [`audited`] | what the audit log records of a request |
//! | `surroundings` | the cluster around a refused request, for its hint |
//! | [`upgrade`] | what the cluster version allows, and when it can be raised |
//! | [`verify`] | whether the failure of hosts would be survived |
//! | [`clock`] | the timestamp of a command |

pub mod admission;
pub mod audited;
pub mod balance;
pub mod capacity;
pub mod chooser;
pub mod clock;
pub mod decide;
pub mod decision;
pub mod doubt;
pub mod drain;
pub mod fleet;
pub mod forwarding;
pub mod host_table;
mod hosts;
mod image;
pub mod joining;
pub mod quorum;
pub mod request;
mod reschedule;
mod schedule;
mod surroundings;
#[cfg(test)]
mod tests;
pub mod upgrade;
pub mod verify;
mod volume;

pub use chooser::{Chooser, EveryHost, Unexplained};
pub use clock::Clock;
pub use decide::{decide, decide_with};
pub use decision::{Answer, Decision, Proposal};
pub use drain::{DrainOptions, DrainPlan, PlannedMove, Stuck, plan_drain};
pub use host_table::HostTable;
pub use request::{
    Action, CreateVolume, DecisionRequest, MoveDrained, Preferred, ScheduleMigration, ScheduleMove,
    ScheduleUnshelve, ScheduleVm,
};
pub use upgrade::Admit;
