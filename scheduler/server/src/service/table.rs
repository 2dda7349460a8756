//! The providers as lists and candidates are searched among, beside the state they are made of.
//!
//! Searches run side by side, as many as there are CPUs: more would only keep the replica from
//! its own. A search that needs a newer state than the table holds brings it up first, which
//! costs what changed in between.

use std::sync::{Arc, PoisonError, RwLock};

use berth_selection::candidates::{Index, Sources};
use berth_state::State;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// The table, and the state that it was made of.
#[derive(Debug)]
pub(super) struct Table {
    held: RwLock<Held>,
    turns: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Held {
    state: State,
    index: Index,
}

impl Default for Table {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            held: RwLock::default(),
            turns: Arc::new(Semaphore::new(cpus)),
        }
    }
}

impl Table {
    /// Searches on this state or a newer one, on a thread where it may take its time: a search
    /// without a limit can take a second of the CPU, which must not hold others up.
    ///
    /// # Errors
    ///
    /// When the search panicked.
    pub(super) async fn search<T: Send + 'static>(
        self: Arc<Self>,
        state: State,
        work: impl FnOnce(&State, &Index) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = self.turns.clone().acquire_owned();
        let turn = turn.await.expect("nobody closes it");
        spawn_blocking(move || {
            let _turn = turn;
            self.search_here(&state, work)
        })
        .await
    }

    fn search_here<T>(&self, state: &State, work: impl FnOnce(&State, &Index) -> T) -> T {
        // A table that was left half way by a panic is made anew by whoever finds it.
        if self.held.is_poisoned() {
            let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
            *held = Held::default();
            self.held.clear_poison();
        }
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        if held.state.revision() >= state.revision() {
            return work(&held.state, &held.index);
        }
        drop(held);
        self.bring_up(state);
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        work(&held.state, &held.index)
    }

    fn bring_up(&self, state: &State) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if held.state.revision() >= state.revision() {
            return;
        }
        held.index.sync(&Sources {
            providers: state.providers().clone(),
            used: state.client_used().clone(),
            hosts: state.hosts().clone(),
        });
        held.state = state.clone();
    }
}
