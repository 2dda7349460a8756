//! Long operations (boot, delete, live migration, stop, start, …) as pure step machines.
//!
//! A [`Saga`] reads an operation's replicated log and returns what to do next; it does nothing
//! itself. Its driver (a conductor, the simulator) carries the [`Effect`] out and brings
//! the answer back as an [`Event`]:
//!
//! ```text
//!            resume(operation, facts)
//!                     │
//!                     ▼            Effect (one at a time)
//!   Event::Begin ─▶ step ─────────────────────────────────▶ commit · call an agent · wait …
//!                     ▲                                               │
//!                     └────────── Event (its answer) ◀────────────────┘
//! ```
//!
//! Invariant: what has to survive a conductor is in the log before its consequence leaves. A
//! step with side effects is logged as started before its call, its meaning is committed in one
//! command with its end, and so any conductor can resume from any entry. Nothing here reads a
//! clock, draws a number or does I/O.
//!
//! | module | what |
//! |---|---|
//! | [`effect`], [`event`], [`facts`] | what goes out, what comes in, what is known |
//! | [`plan`] | what each kind of operation adds to its row of the table of operations, which is in `domain` |
//! | `boot`, `delete`, `live_migration`, `cold_migration`, `revert_resize`, `confirm_resize`, `start_elsewhere`, `shelve` | one operation per file: its calls, and what their answers mean |
//! | [`drain`] | what is done next to drain a host, whose moves are operations of their own |
//! | `start_stop` | calls that several of them make |
//! | `power` | the operations on the VM's own host: stop, start, reboot, rebuild, snapshot |
//! | `journal` | the replicated log, read |
//! | `engine`, `answers` | log and event give the next effect |
//! | `reconcile`, [`settle`] | after the point of no return: polling, and the verdict |
//! | `survivor` | the same, where a host is proven dead |

pub mod drain;
pub mod effect;
pub mod event;
pub mod facts;
pub mod plan;
pub mod settle;

mod answers;
mod backoff;
mod boot;
mod cold_migration;
mod confirm_resize;
mod delete;
mod disks;
mod engine;
mod journal;
mod live_migration;
mod power;
mod reconcile;
mod refusals;
mod revert_resize;
mod shelve;
mod start_elsewhere;
mod start_stop;
mod survivor;

pub use drain::{DrainEffect, Drainer};
pub use effect::{AgentCall, Effect, Ended, StepRecord, TransferWatch};
pub use engine::Saga;
pub use event::Event;
pub use facts::{Facts, HostFacts};
pub use plan::steps;
