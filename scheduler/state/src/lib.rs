//! The replicated state machine: a deterministic function of the commands applied to it.
//!
//! ```text
//! Envelope{Command} ──▶ State::apply ──▶ Applied{outcome: Reply or Refusal, changes: rows}
//!                  └──▶ State::speculate ──▶ outcome        the same, without recording the changes
//! ```
//!
//! Invariant: pure. No clock, no randomness, no I/O, nothing whose order differs between members.
//! Equal states and equal commands give equal states; [`State::check`] says what holds of each.
//!
//! | module | what |
//! |---|---|
//! | [`command`] | the commands |
//! | [`state`], [`header`], [`placement`], `group`, `image`, `attached`, `cold_demand`, `live_demand` | what it holds, and the look-ups |
//! | [`apply`] | what each command does; one noun per file |
//! | [`request`], `weight` | what is remembered of requests, so that a retry is answered; how much |
//! | [`row`], [`rebuild`] | the state taken apart into rows, and put together from them |
//! | [`reality`] | what agents should expect, and what their findings change |
//! | [`recovery`] | a state that is older than its hosts |
//! | [`volumes`] | volumes of persistent memory: where they are, what is left for others |
//! | [`check`] | every invariant |

pub mod apply;
mod attached;
pub mod check;
mod cold_demand;
pub mod command;
mod cpu_baseline;
mod group;
pub mod header;
mod image;
mod index;
mod live_demand;
mod network;
pub mod placement;
pub mod reality;
pub mod rebuild;
pub mod recovery;
mod refusals;
pub mod reply;
pub mod request;
mod restart;
pub mod row;
pub mod state;
mod transaction;
pub mod volumes;
mod weight;

pub use attached::VOLUMES_ARE_LOCAL;
pub use berth_domain::host_view::HostView;
pub use check::Violation;
pub use header::Header;
pub use rebuild::RebuildError;
pub use recovery::RecoveryOutcome;
pub use refusals::{group_not_found, upgrade_incomplete};
pub use reply::{Applied, Reply};
pub use request::{REQUEST_ID_REUSED, Recall};
pub use row::{Change, Key, Row};
pub use state::State;
