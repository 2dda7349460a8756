//! Ganeti's view of a cluster: its text format, its memory model, its score, and plans over them.
//!
//! Not a part of Berth's own placement, and nothing here is replicated: a file comes in, numbers
//! and plans go out. Floating-point arithmetic is allowed in this crate for that reason, since
//! the score that it must reproduce is made of standard deviations.
//!
//! Invariant: whatever is decided here is a function of the text and the options; the same input
//! gives the same plan on every machine and in every run.
//!
//! | module | what it has |
//! |---|---|
//! | [`text`] | reader and writer of htools' text format |
//! | [`model`] | cluster, nodes, instances, the rules of placement, moves |
//! | [`balance`] | plans of moves that lower the score, to the end |
//! | [`failover`] | N+1: what a node's failure would mean |
//! | [`score`] | the cluster score with its 20 components, whole and kept up to date |
//! | [`choice`] | where a new instance goes, and whether a node could be evacuated |
//! | [`capacity`] | how many more instances fit, as hspace counts |
//! | [`json`] | JSON with positions |
//! | [`iallocator`] | Ganeti's IAllocator protocol, as hail answers it |

pub mod balance;
pub mod capacity;
pub mod choice;
pub mod failover;
pub mod iallocator;
pub mod json;
pub mod model;
pub mod score;
pub mod text;
