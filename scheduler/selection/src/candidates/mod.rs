//! Allocation candidates: every way to serve a query from the resource providers.
//!
//! ```text
//!            ┌ by class, trait, aggregate ┐
//! query ──▶ plan ──▶ trees worth a look ──▶ choices at one tree ──▶ ways to fill all slots
//!                                                                   none anywhere: why
//! ```
//!
//! Invariant: the answer is that of OpenStack Placement's documented rules, each candidate once;
//! the cost of a query with a limit follows the limit, not the number of ways there are.
//!
//! | module | what |
//! |---|---|
//! | [`query`], [`candidate`] | the query, its results, the bounds of the search |
//! | [`index`], `node`, `tree`, `posting` | the providers in dense tables, kept up to date |
//! | `plan` | a query in the numbers of an index |
//! | `anchors` | which trees are looked at, in which order |
//! | `frame`, `walk`, `matching` | the choices at one tree, the ways to combine them, look-ahead |
//! | [`search`] | candidates one after the other, each once |
//! | [`explain`] | the reason where there are none |
//! | [`listing`] | providers by the same kinds of requirements |

mod anchors;
pub mod candidate;
pub mod explain;
mod explain_rules;
mod frame;
pub mod index;
pub mod listing;
mod matching;
mod node;
mod plan;
mod posting;
pub mod query;
pub mod search;
mod tree;
mod walk;

pub use candidate::{Bounds, Candidate, Candidates, SearchBound};
pub use explain::Explanation;
pub use index::{Index, Sources};
pub use listing::{Filter, Part};
pub use query::{Group, GroupPolicy, Invalid, Order, Query, Suffix};
pub use search::{Failed, Search};
