//! What the API needs of the member that serves it.
//!
//! Not here: how a read becomes linearizable, which member leads, and how a command reaches it.

use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_process::BoxFuture;
use berth_selection::candidates::Index;
use berth_state::command::Command;
use berth_state::{Reply, State};

/// Work on the providers of a state.
pub type Search = Box<dyn FnOnce(&State, &Index) + Send>;

/// A member of the scheduler, as the API sees it.
pub trait Backend: Send + Sync {
    /// Returns the current state by a linearizable read.
    fn state(&self) -> BoxFuture<'_, Result<State, Refusal>>;

    /// Runs a search among the providers of this state or a newer one, and returns when it has ended
    /// or panicked.
    fn search(&self, state: State, search: Search) -> BoxFuture<'_, ()>;

    /// Executes a command at the leader, and returns its outcome once it is durable.
    fn execute(&self, principal: String, command: Command)
    -> BoxFuture<'_, Result<Reply, Refusal>>;

    /// Returns the time, for what has no time of its own.
    fn now(&self) -> TimeMs;
}
