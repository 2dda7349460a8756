//! Recent changes: the applied changes that watches follow, without gaps.
//!
//! One task reads what the replica applies ([`Feed::follow`]) and keeps the latest changes outside
//! the replicated state, bounded in number and bytes: those that are sent as events in a
//! `history`, revision by revision, and those of resource providers in a `ring`. Every member can
//! serve watches. A request that waits for an operation is woken when that operation changes, not
//! whenever anything does.
//!
//! A revision here is the index of a command, as in the state's header: entries of the log without
//! a command change nothing, so no watch waits for them.
//!
//! Invariant: what is not kept is refused, never left out.

mod history;
mod ring;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_codec::{self as codec, Watched};
use berth_domain::event::Name;
use berth_domain::id::{OperationId, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_replication::effects::AppliedBatch;
use berth_replication::runtime::Event;
use berth_replication::{Retained, Row as StoredRow, RowChange};
use berth_state::Row;
use tokio::sync::{Notify, broadcast, watch};

use self::history::History;
pub use self::history::{Part, RecordChange, Revision, record};
pub(crate) use self::ring::Changes;
use self::ring::Ring;
use crate::machine::Machine;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many changes, of events and of providers each.
    pub changes: usize,
    /// How many bytes of them.
    pub bytes: usize,
}

struct Recent {
    events: History,
    providers: Ring<ProviderId>,
}

struct Shared {
    kept: Mutex<Recent>,
    revision: watch::Sender<u64>,
    waiting: Mutex<HashMap<OperationId, Arc<Notify>>>,
}

/// What has changed lately.
#[derive(Clone)]
pub struct Feed {
    shared: Arc<Shared>,
}

impl Feed {
    /// Returns the feed of a member whose state begins at this revision.
    #[must_use]
    pub fn new(revision: u64, limits: Limits) -> Self {
        Self {
            shared: Arc::new(Shared {
                kept: Mutex::new(Recent {
                    events: History::new(revision, limits),
                    providers: Ring::new(revision, limits),
                }),
                revision: watch::Sender::new(revision),
                waiting: Mutex::new(HashMap::new()),
            }),
        }
    }

    /// Records all applied changes until the replica stops.
    pub async fn follow(self, mut events: broadcast::Receiver<Event<Machine>>) {
        // Set from the moment batches were missed until one is seen again: what lies between is
        // unknown, so the history restarts after it.
        let mut missed = false;
        loop {
            match events.recv().await {
                Ok(Event::Applied(batch)) => match batch.commands.last() {
                    Some(last) if missed => self.start_over(last.index),
                    Some(last) => self.applied(&batch, last.index),
                    None => continue,
                },
                Ok(Event::Replaced(replaced)) => {
                    self.start_over(replaced.machine.state().revision());
                }
                Err(broadcast::error::RecvError::Lagged(batches)) => {
                    tracing::warn!(batches, "feed fell behind, watches have to list again");
                    missed = true;
                    continue;
                }
                Err(broadcast::error::RecvError::Closed) => return,
            }
            missed = false;
        }
    }

    fn applied(&self, batch: &AppliedBatch<Machine>, last: u64) {
        let mut operations = Vec::new();
        let mut kept = lock(&self.shared.kept);
        for command in &batch.commands {
            let mut changes = Vec::new();
            for change in &command.changes {
                match codec::decode_watched_key(&change.key) {
                    Some(Watched::Record(name)) => {
                        if let Name::Operation(id) = name {
                            operations.push(id);
                        }
                        changes.push(RecordChange::new(name, stored(change)));
                    }
                    Some(Watched::Provider(id)) => {
                        kept.providers.push(command.index, id, stored(change));
                    }
                    None => {}
                }
            }
            kept.events.push(command.index, changes);
        }
        kept.providers.complete(last);
        drop(kept);
        self.wake(operations, last);
    }

    fn start_over(&self, revision: u64) {
        let mut kept = lock(&self.shared.kept);
        kept.events.start_over(revision);
        kept.providers.start_over(revision);
        drop(kept);
        let everybody = lock(&self.shared.waiting).keys().copied().collect();
        self.wake(everybody, revision);
    }

    fn wake(&self, operations: Vec<OperationId>, revision: u64) {
        let waiting = lock(&self.shared.waiting);
        if !waiting.is_empty() {
            for id in operations {
                if let Some(notify) = waiting.get(&id) {
                    notify.notify_waiters();
                }
            }
        }
        drop(waiting);
        self.shared.revision.send_replace(revision);
    }

    /// Returns up to which revision changes are known here.
    #[must_use]
    pub fn revision(&self) -> u64 {
        *self.shared.revision.borrow()
    }

    /// Returns how much is retained.
    pub(crate) fn retained(&self) -> [Retained; 2] {
        let kept = lock(&self.shared.kept);
        [
            kept.events.retained("watch_events"),
            kept.providers.retained("watch_providers"),
        ]
    }

    /// Returns the changes after this revision, or the first part of them.
    ///
    /// # Errors
    ///
    /// When changes after that revision are no longer kept.
    pub fn events(&self, after: u64) -> Result<Part, Refusal> {
        lock(&self.shared.kept).events.since(after)
    }

    /// Waits for changes of resource providers after this revision and returns them; without any
    /// where none changed. Returns `None` when the replica is gone. Who watches decodes them, a few
    /// at a time.
    ///
    /// # Errors
    ///
    /// When changes after that revision are no longer kept.
    pub(crate) async fn provider_changes(
        &self,
        after: u64,
    ) -> Result<Option<Changes<ProviderId>>, Refusal> {
        match self.beyond(after).await {
            true => lock(&self.shared.kept).providers.since(after).map(Some),
            false => Ok(None),
        }
    }

    /// Waits until more is known than up to this revision; returns whether the replica is there.
    pub(crate) async fn beyond(&self, after: u64) -> bool {
        let mut revision = self.shared.revision.subscribe();
        revision.wait_for(|last| *last > after).await.is_ok()
    }

    /// Returns a watch of this operation from now on.
    #[must_use]
    pub fn watch_operation(&self, id: OperationId) -> OperationWatch {
        let notify = lock(&self.shared.waiting).entry(id).or_default().clone();
        OperationWatch {
            id,
            notify,
            shared: self.shared.clone(),
        }
    }
}

fn stored(change: &RowChange) -> Option<StoredRow> {
    let value = change.new.clone()?;
    let key = change.key.clone();
    Some(StoredRow { key, value })
}

/// Returns the provider that a stored row is.
pub(crate) fn decode_provider(row: &StoredRow) -> Result<Arc<ResourceProvider>, Refusal> {
    match codec::decode_row(row) {
        Ok(Row::Provider(provider)) => Ok(provider),
        Ok(_) | Err(_) => Err(not_readable("resource provider")),
    }
}

fn not_kept(after: u64, first: u64) -> Refusal {
    let message =
        format!("changes after revision {after} are no longer kept, those after {first} are");
    Refusal::new(Code::OutOfRange, "REVISION_NOT_KEPT", message)
        .with_hint("list again and watch from the revision of that list, or watch from 0")
        .with("first_revision", first)
}

fn not_readable(what: &str) -> Refusal {
    let message = format!("a stored {what} cannot be read");
    Refusal::new(Code::Internal, "ROW_NOT_READABLE", message)
}

/// A watch of one operation.
pub struct OperationWatch {
    id: OperationId,
    notify: Arc<Notify>,
    shared: Arc<Shared>,
}

impl OperationWatch {
    /// Waits for the operation to change. Changes since this was called for are not missed:
    /// make the future first, look at the operation, then wait.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for OperationWatch {
    fn drop(&mut self) {
        let mut waiting = lock(&self.shared.waiting);
        // The map's own reference and this one: there is no other waiter.
        if Arc::strong_count(&self.notify) <= 2 {
            waiting.remove(&self.id);
        }
    }
}

/// What these locks guard is whole between any two statements, so a panic elsewhere spoils
/// nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    use berth_domain::name::VmName;
    use berth_state::Key;

    use berth_replication::effects::{AppliedCommand, Position};
    use berth_state::{Change, Reply};

    fn name(text: &str) -> VmName {
        VmName::new(text).unwrap()
    }

    const LIMITS: Limits = Limits {
        changes: 16,
        bytes: 1 << 20,
    };

    fn events(feed: &Feed, after: u64) -> Result<Vec<Name>, Refusal> {
        let revisions = feed.events(after)?.revisions;
        let changes = revisions.iter().flat_map(|r| &r.changes);
        Ok(changes.map(|change| change.name().clone()).collect())
    }

    fn batch(index: u64, vm: &str) -> Event<Machine> {
        let change = codec::encode_change(&Change {
            key: Key::Vm(name(vm)),
            old: None,
            new: None,
        });
        let position = Position {
            index,
            ..Position::default()
        };
        Event::Applied(Arc::new(AppliedBatch {
            commands: vec![AppliedCommand {
                index,
                outcome: Ok(Reply::None),
                changes: vec![change],
            }],
            position,
            membership: Arc::default(),
        }))
    }

    /// Goal: where the feed itself missed changes, once and again, no watch gets half of them.
    /// Method: a channel that holds two batches, and more than that before they are read.
    #[tokio::test]
    async fn a_feed_that_lags_twice_has_its_watches_list_again() {
        let (sender, receiver) = broadcast::channel(2);
        let feed = Feed::new(1, LIMITS);
        let send = |index: u64| drop(sender.send(batch(index, &format!("v{index}"))));
        (2..=5).for_each(send);
        let following = tokio::spawn(feed.clone().follow(receiver));
        let seen = async |feed: &Feed, last: u64| {
            let mut revision = feed.shared.revision.subscribe();
            revision
                .wait_for(|seen| *seen >= last)
                .await
                .map(drop)
                .unwrap();
        };
        seen(&feed, 5).await;
        // 2 and 3 were missed; the changes of 4 are not returned either, as others are unknown.
        for after in 1..4 {
            let refused = events(&feed, after).unwrap_err();
            assert_eq!(refused.reason, "REVISION_NOT_KEPT");
            assert_eq!(refused.metadata["first_revision"], "4");
        }
        assert_eq!(events(&feed, 4).unwrap(), [Name::Vm(name("v5"))]);
        // The runtime has one thread: nothing is read before the next wait.
        (6..=9).for_each(send);
        seen(&feed, 9).await;
        for after in 5..8 {
            let refused = events(&feed, after).unwrap_err();
            assert_eq!(refused.metadata["first_revision"], "8");
        }
        assert_eq!(events(&feed, 8).unwrap(), [Name::Vm(name("v9"))]);
        assert_eq!(feed.events(8).unwrap().revision, 9);
        drop(sender);
        following.await.unwrap();
    }

    /// Goal: who waits for one operation is woken by it, and waiting leaves nothing behind.
    #[tokio::test]
    async fn watches_of_operations_come_and_go() {
        let feed = Feed::new(1, LIMITS);
        let id = OperationId(uuid::Uuid::from_u128(1));
        let (first, second) = (feed.watch_operation(id), feed.watch_operation(id));
        let changed = first.changed();
        feed.wake(vec![id], 2);
        changed.await;
        drop(first);
        assert_eq!(lock(&feed.shared.waiting).len(), 1);
        drop(second);
        assert!(lock(&feed.shared.waiting).is_empty());
    }
}
