//! The choice of a host, ordered and explained.
//!
//! ```text
//! all hosts ──filters──▶ hosts with room at a glance ──weighers──▶ best first ──exact fit──▶ one
//!                                                                                     none: why
//! ```
//!
//! Invariant: this crate is pure, and decides nothing alone: every rule is one of
//! [`berth_domain::constraint`], which the command that claims the host checks again. A filter
//! only spares the rules hosts that cannot pass them.
//!
//! | module | what |
//! |---|---|
//! | [`request`] | the request for a host, and the choice |
//! | [`minimum_demand`], [`filter`] | what rules a host out at a glance, one file each |
//! | [`weigher`] | the order of the others, one file each |
//! | [`index`], `table` | the hosts in a dense table, kept up to date by what changed |
//! | [`pipeline`] | filters, weighers, exact fit |
//! | [`explain`], [`hint`] | the reason where nothing fits, and what would help most |
//! | [`fleet`] | the hosts with the guests on them, for decisions several steps ahead |
//! | [`failover`] | whether the guests of a host can be started elsewhere when it dies |
//! | [`balance`] | how evenly hosts are filled, and which moves help |
//! | [`capacity`] | how many more guests of a shape fit |
//! | [`stranded`] | what of a host no expected guest can take |
//! | [`candidates`] | every way to serve a query of OpenStack Placement, and its explanation |

pub mod balance;
pub mod candidates;
pub mod capacity;
pub mod explain;
pub mod failover;
pub mod filter;
pub mod fleet;
pub mod hint;
pub mod index;
pub mod minimum_demand;
pub mod pipeline;
pub mod request;
pub mod stranded;
mod table;
pub mod weigher;

pub use fleet::{Fleet, FleetGuest, Rescue};
pub use index::Index;
pub use pipeline::{NoHost, select};
pub use request::{Choice, Examined, Request};
