//! Berth as it is deployed: each part a process of its own, on loopback.
//!
//! | module | what |
//! |---|---|
//! | [`Programs`] | the programs by their names, as they are installed |
//! | [`Process`] | one program that runs: its log, its end, `kill -9` |
//! | [`Part`] | one scheduler, conductor or agent that is started, killed and started again |
//! | [`Cluster`] | all of them, and the command that calls them |
//! | [`Collector`] | what collects the traces of programs |
//! | [`Addresses`] | where they listen, apart from everybody else |
//! | [`Certs`] | certificates for all of them |
//! | [`Gate`] | what is shut between two of them |
//! | [`Answer`] | what a command printed, and how it ended |
//! | [`Terminal`] | a command on a terminal of its own |
//! | [`csi`] | the interface through which volumes are had |
//! | [`Load`] | many users at once, and what was promised to them |
//! | [`Traffic`] | users who boot, move and delete without end |
//! | [`mod@bench`] | single programs with wrong input |
//! | [`verdict`] | what must hold of every cluster at any time, read through the API |
//! | [`scrape`] | metrics and health as those who watch a program read them |
//! | [`grpcurl`] | a stand-in for the command of that name |
//!
//! What it is not: the lab. All processes share one network, so nothing here can cut a cable.
//!
//! Invariant: no test waits for time to pass; [`eventually`] waits for a condition and says what
//! it saw last. Whatever was started is killed when its owner is dropped, and the logs are shown
//! if the test failed.

mod addresses;
mod answer;
pub mod bench;
pub mod certs;
mod cluster;
mod collector;
mod commands;
pub mod csi;
mod gate;
pub mod grpcurl;
mod load;
mod part;
mod process;
mod programs;
pub mod scrape;
mod terminal;
mod traffic;
pub mod verdict;

pub use addresses::Addresses;
pub use answer::Answer;
pub use bench::Bench;
pub use berth_testkit::wait::{PATIENCE, eventually};
pub use certs::Certs;
pub use cluster::{Builder, Cluster, Described, Host};
pub use collector::{Collector, Manner, SeenSpan, Tree};
pub use csi::Csi;
pub use gate::Gate;
pub use load::{Load, Promise};
pub use part::Part;
pub use process::Process;
pub use programs::Programs;
pub use terminal::Terminal;
pub use traffic::{Ended, Traffic};
