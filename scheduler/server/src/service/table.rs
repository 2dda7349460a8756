//! The index of providers that lists and candidate queries search, with the state it was built from.
//!
//! Searches run side by side, as many as there are CPUs: more would only keep the replica from
//! its own. A search that needs a newer state than the table holds updates it first, which
//! costs what changed in between.
//!
//! A search whose response exceeds the queue to its reader continues on a loan: it
//! keeps the table as it is while the reader catches up, and the next search that updates the table
//! copies it once. So loans are few ([`LOANS_MAX`]).
//!
//! No search waits for another one much longer than [`COPY_AFTER`]: a table that is read for
//! longer is copied too, and the copy takes its place.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_selection::candidates::{Index, Sources};
use berth_state::State;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};

/// How many searches may wait for their readers at once: each can keep a table of its own, which
/// takes about a kilobyte for a provider.
const LOANS_MAX: usize = 8;

/// How long searches that run are waited for before the table is copied. Nearly all are over in
/// less; a copy takes about a microsecond for each provider.
const COPY_AFTER: Duration = Duration::from_millis(20);

/// The table, and the state that it was made of.
#[derive(Debug)]
pub(super) struct Table {
    newest: Mutex<Newest>,
    /// Notified when no search uses the newest table any more, and when it was updated.
    changed: Condvar,
    turns: Arc<Semaphore>,
    loans: Arc<Semaphore>,
}

#[derive(Clone, Debug, Default)]
struct Held {
    state: State,
    index: Index,
    /// Whether it was left half way by a panic.
    torn: bool,
}

/// The newest table, and its running searches.
#[derive(Debug, Default)]
struct Newest {
    held: Arc<Held>,
    /// Counts the tables that took the place of one that was read for too long.
    number: u64,
    searches: usize,
    /// A search waits to update it: new searches let that one go first.
    update_waiting: bool,
}

/// Keeps a table from being brought up.
struct Guard<'t> {
    table: &'t Table,
    number: u64,
    /// Present until it is dropped.
    held: Option<Arc<Held>>,
}

impl Guard<'_> {
    fn held(&self) -> &Arc<Held> {
        self.held.as_ref().expect("taken when dropped")
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // First, so that the notified search finds it unshared.
        self.held = None;
        let mut newest = self.table.newest();
        if newest.number == self.number {
            newest.searches -= 1;
            if newest.searches == 0 {
                self.table.changed.notify_all();
            }
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            newest: Mutex::default(),
            changed: Condvar::new(),
            turns: Arc::new(Semaphore::new(cpus)),
            loans: Arc::new(Semaphore::new(LOANS_MAX)),
        }
    }
}

/// The right to keep the table as it is while a reader catches up.
#[derive(Debug)]
pub(super) struct Loan {
    /// Given back by dropping.
    _permit: OwnedSemaphorePermit,
}

/// There are as many loans as there may be.
#[derive(Debug)]
pub(super) struct LoansExhausted;

/// What a search holds while it runs, and lets go of while it waits for its reader.
pub(super) struct Turn<'t> {
    table: &'t Table,
    /// Keeps the table from being brought up, so that it need not be copied.
    guard: Option<Guard<'t>>,
    permit: Option<OwnedSemaphorePermit>,
    loan: Option<Loan>,
}

impl Turn<'_> {
    /// Waits for something, while others may search and the table may be brought up.
    ///
    /// # Errors
    ///
    /// When there was no loan, and there is none.
    pub(super) fn wait<T>(&mut self, what: impl Future<Output = T>) -> Result<T, LoansExhausted> {
        if self.loan.is_none() {
            let loan = self.table.loans.clone().try_acquire_owned();
            self.loan = Some(Loan {
                _permit: loan.map_err(|_| LoansExhausted)?,
            });
        }
        self.guard = None;
        self.permit = None;
        let runtime = Handle::current();
        let done = runtime.block_on(what);
        self.permit = Some(runtime.block_on(turn(&self.table.turns)));
        Ok(done)
    }
}

async fn turn(turns: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let turn = turns.clone().acquire_owned().await;
    turn.expect("the semaphore is never closed")
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
        let turn = turn(&self.turns).await;
        spawn_blocking(move || {
            let _turn = turn;
            let guard = self.at(&state);
            let held = guard.held();
            work(&held.state, &held.index)
        })
        .await
    }

    /// Returns the right to wait for a reader, once there is one.
    pub(super) async fn loan(&self) -> Loan {
        let loan = self.loans.clone().acquire_owned().await;
        Loan {
            _permit: loan.expect("the semaphore is never closed"),
        }
    }

    /// As [`Self::search`], for work that may wait for the reader of its results.
    ///
    /// # Errors
    ///
    /// When the search panicked.
    pub(super) async fn search_for_reader<T: Send + 'static>(
        self: Arc<Self>,
        state: State,
        loan: Option<Loan>,
        work: impl FnOnce(&State, &Index, &mut Turn<'_>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = turn(&self.turns).await;
        spawn_blocking(move || {
            let guard = self.at(&state);
            let held = guard.held().clone();
            let mut turn = Turn {
                table: &self,
                guard: Some(guard),
                permit: Some(permit),
                loan,
            };
            let done = work(&held.state, &held.index, &mut turn);
            // Before the guard: so that no search copies a table that is about to be released.
            drop(held);
            drop(turn);
            done
        })
        .await
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        // A half-updated table is marked as torn; the rest is consistent between statements.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the table at this state or a newer one.
    fn at(&self, state: &State) -> Guard<'_> {
        let newest = self.newest();
        let waited = self
            .changed
            .wait_timeout_while(newest, COPY_AFTER, |newest| newest.update_waiting);
        let (mut newest, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !newest.held.serves(state) {
            newest.update_waiting = true;
            let busy = |newest: &mut Newest| newest.searches > 0 && !newest.held.serves(state);
            let waited = self.changed.wait_timeout_while(newest, COPY_AFTER, busy);
            (newest, _) = waited.unwrap_or_else(PoisonError::into_inner);
            newest.update_waiting = false;
            newest.update(state);
            self.changed.notify_all();
        }
        newest.searches += 1;
        Guard {
            table: self,
            number: newest.number,
            held: Some(newest.held.clone()),
        }
    }
}

impl Newest {
    fn update(&mut self, state: &State) {
        if self.held.serves(state) {
            // Another search did, while this one waited.
            return;
        }
        if self.searches > 0 {
            // Running searches continue with the table they started with.
            self.number += 1;
            self.searches = 0;
        }
        // Copies the table if another search still uses it.
        Arc::make_mut(&mut self.held).update(state);
    }
}

impl Held {
    fn serves(&self, state: &State) -> bool {
        !self.torn && self.state.revision() >= state.revision()
    }

    fn update(&mut self, state: &State) {
        if self.torn {
            *self = Self::default();
        }
        self.torn = true;
        self.index.sync(&Sources {
            providers: state.providers().clone(),
            used: state.client_used().clone(),
            hosts: state.hosts().clone(),
        });
        self.state = state.clone();
        self.torn = false;
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::id::{ProviderId, TimeMs};
    use berth_selection::candidates::Filter;
    use berth_state::command::{Command, Envelope};
    use tokio::sync::oneshot;
    use uuid::Uuid;

    use super::*;

    fn state(providers: u128) -> State {
        let mut state = State::new();
        for number in 1..=providers {
            let command = Command::CreateProvider {
                id: ProviderId(Uuid::from_u128(number)),
                name: number.to_string(),
                parent: None,
            };
            let envelope = Envelope {
                at: TimeMs(1),
                principal: "test".to_owned(),
                request: None,
                audit: None,
                command,
            };
            let index = u64::try_from(number).unwrap();
            state.apply(index, &envelope).outcome.unwrap();
        }
        state
    }

    fn count(_: &State, index: &Index) -> usize {
        index.list(&Filter::default()).len()
    }

    /// Goal: a search that waits for its reader keeps what it began with, and delays no other search.
    /// Method: while one waits, the table is brought up and searched; then it looks again.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_waiting_search_keeps_its_table() {
        let table = Arc::new(Table::default());
        let (waits, waiting) = oneshot::channel();
        let (go_on, may_go_on) = oneshot::channel();
        let slow = table
            .clone()
            .search_for_reader(state(2), None, |state, index, turn| {
                let before = count(state, index);
                waits.send(()).unwrap();
                turn.wait(may_go_on).unwrap().unwrap();
                (before, count(state, index), turn.guard.is_some())
            });
        let slow = tokio::spawn(slow);
        waiting.await.unwrap();
        for _ in 0..64 {
            assert_eq!(table.clone().search(state(5), count).await.unwrap(), 5);
        }
        go_on.send(()).unwrap();
        assert_eq!(slow.await.unwrap().unwrap(), (2, 2, false));
        assert_eq!(table.loans.available_permits(), LOANS_MAX);
    }

    /// Goal: a search that does not wait takes no loan, and causes no copy of the table.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_search_that_does_not_wait_copies_nothing() {
        let table = Arc::new(Table::default());
        table.clone().search(state(2), count).await.unwrap();
        let at = |table: &Table| Arc::as_ptr(&table.newest().held);
        let before = at(&table) as usize;
        for providers in 3..20 {
            let found = table
                .clone()
                .search_for_reader(state(providers), None, |s, i, turn| {
                    (count(s, i), turn.guard.is_some())
                });
            assert_eq!(
                found.await.unwrap(),
                (usize::try_from(providers).unwrap(), true)
            );
        }
        assert_eq!(at(&table) as usize, before);
    }

    /// Goal: no more searches wait than may.
    #[tokio::test(flavor = "multi_thread")]
    async fn loans_are_few() {
        let table = Arc::new(Table::default());
        let mut loans = Vec::new();
        for _ in 0..LOANS_MAX {
            loans.push(table.loan().await);
        }
        let refused = table
            .clone()
            .search_for_reader(state(1), None, |_, _, turn| turn.wait(async {}).is_err());
        assert!(refused.await.unwrap());
        let own = loans.pop();
        let lent = table
            .clone()
            .search_for_reader(state(1), own, |_, _, turn| turn.wait(async { 7 }).ok());
        assert_eq!(lent.await.unwrap(), Some(7));
    }

    /// Goal: who looks something up does not wait for another one's long search. Method: a search
    /// that ends only when two on newer states have ended, of which the second meets the copy.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_long_search_delays_no_other_search() {
        let table = Arc::new(Table {
            turns: Arc::new(Semaphore::new(2)),
            ..Table::default()
        });
        let (begins, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let long = table.clone().search(state(1), move |state, index| {
            begins.send(()).unwrap();
            ended.blocking_recv().unwrap();
            count(state, index)
        });
        let long = tokio::spawn(long);
        begun.await.unwrap();
        for providers in [2, 3] {
            let found = table.clone().search(state(providers), count).await;
            assert_eq!(found.unwrap(), usize::try_from(providers).unwrap());
        }
        end.send(()).unwrap();
        assert_eq!(long.await.unwrap().unwrap(), 1);
        assert_eq!(table.newest().searches, 0);
    }

    /// Goal: a search that panics harms no other.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_search_that_panics_is_the_only_one_that_fails() {
        let table = Arc::new(Table::default());
        let broken = table
            .clone()
            .search(state(1), |_, _| -> usize { panic!("as meant") });
        assert!(broken.await.is_err());
        assert_eq!(table.clone().search(state(2), count).await.unwrap(), 2);
        assert_eq!(table.newest().searches, 0);
    }
}
