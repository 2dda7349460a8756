//! Raft: the replica as a pure core, and the task that drives it.
pub mod admission;
pub mod config;
pub mod effects;
mod envelope;
pub mod error;
pub mod history;
mod log_hash;
mod logger;
pub mod machine;
pub mod replay;
pub mod replica;
mod retained;
pub mod runtime;
mod seed;
pub mod transport;
mod window;

pub use config::Config;
pub use effects::{Effects, Position, Role, Ticket};
pub use error::{Fatal, Refused};
pub use history::{HistoryError, Reached};
pub use machine::{Applied, Machine, Row, RowChange};
pub use replay::{Replay, ReplayError};
pub use replica::{Addition, Change, MemberStatus, Replica};
pub use retained::Retained;
