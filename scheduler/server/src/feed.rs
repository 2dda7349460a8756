//! What has changed lately: the applied changes that watches follow, without gaps.
//!
//! One task reads what the replica applies ([`Feed::follow`]) and keeps the latest changes of VMs
//! and of resource providers, each in a bounded `ring`, outside the replicated state; every
//! member can serve watches. Whoever waits for an operation is woken when that operation changes,
//! not whenever anything does.
//!
//! Invariant: what is not kept is refused, never left out.

mod ring;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::id::{OperationId, ProviderId};
use berth_domain::name::VmName;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::Vm;
use berth_replication::effects::AppliedBatch;
use berth_replication::runtime::Event;
use berth_replication::{Row as StoredRow, RowChange};
use berth_state::{Key, Row};
use berth_store::codec;
use tokio::sync::{Notify, broadcast, watch};

pub(crate) use self::ring::Changes;
use self::ring::{Limits, Ring};
use crate::machine::Machine;

/// How many bytes of changes are kept for each table.
const BYTES_MAX: usize = 64 << 20;

struct Rings {
    vms: Ring<VmName>,
    providers: Ring<ProviderId>,
}

struct Shared {
    rings: Mutex<Rings>,
    revision: watch::Sender<u64>,
    waiting: Mutex<HashMap<OperationId, Arc<Notify>>>,
}

/// What has changed lately.
#[derive(Clone)]
pub struct Feed {
    shared: Arc<Shared>,
}

/// What has changed after a revision.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VmChanges {
    /// Up to where this tells everything.
    pub revision: u64,
    /// The VMs that changed, as they are at that revision; `None` for one that is gone.
    pub vms: BTreeMap<VmName, Option<Arc<Vm>>>,
}

impl Feed {
    /// Returns the feed of a member whose state begins at this revision.
    #[must_use]
    pub fn new(revision: u64, changes_max: usize) -> Self {
        let limits = Limits {
            changes: changes_max,
            bytes: BYTES_MAX,
        };
        Self {
            shared: Arc::new(Shared {
                rings: Mutex::new(Rings {
                    vms: Ring::new(revision, limits),
                    providers: Ring::new(revision, limits),
                }),
                revision: watch::Sender::new(revision),
                waiting: Mutex::new(HashMap::new()),
            }),
        }
    }

    /// Takes note of everything that is applied, until the replica is gone.
    pub async fn follow(self, mut events: broadcast::Receiver<Event<Machine>>) {
        // Set from the moment batches were missed until one is seen again: what lies between is
        // not known, so the history begins anew behind it.
        let mut missed = false;
        loop {
            match events.recv().await {
                Ok(Event::Applied(batch)) if missed => self.start_over(batch.position.index),
                Ok(Event::Applied(batch)) => self.applied(&batch),
                Ok(Event::Replaced(replaced)) => self.start_over(replaced.position.index),
                Err(broadcast::error::RecvError::Lagged(batches)) => {
                    tracing::warn!(batches, "watches fell behind and have to list again");
                    missed = true;
                    continue;
                }
                Err(broadcast::error::RecvError::Closed) => return,
            }
            missed = false;
        }
    }

    fn applied(&self, batch: &AppliedBatch<Machine>) {
        let mut operations = Vec::new();
        let mut rings = lock(&self.shared.rings);
        for command in &batch.commands {
            let revision = command.index;
            for change in &command.changes {
                match codec::decode_watched_key(&change.key) {
                    Some(Key::Vm(vm)) => rings.vms.push(revision, vm, stored(change)),
                    Some(Key::Provider(id)) => rings.providers.push(revision, id, stored(change)),
                    Some(Key::Operation(id)) => operations.push(id),
                    _ => {}
                }
            }
        }
        rings.vms.complete(batch.position.index);
        rings.providers.complete(batch.position.index);
        drop(rings);
        self.wake(operations, batch.position.index);
    }

    fn start_over(&self, revision: u64) {
        let mut rings = lock(&self.shared.rings);
        rings.vms.start_over(revision);
        rings.providers.start_over(revision);
        drop(rings);
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

    /// Waits for changes of VMs after this revision and returns them; without VMs where none
    /// changed. Returns `None` when the replica is gone.
    ///
    /// # Errors
    ///
    /// When changes after that revision are no longer kept.
    pub async fn vm_changes(&self, after: u64) -> Result<Option<VmChanges>, Refusal> {
        let changes = match self.beyond(after).await {
            true => lock(&self.shared.rings).vms.since(after)?,
            false => return Ok(None),
        };
        let vms = changes.rows.into_iter();
        let vms = vms.map(|(name, row)| Ok((name, row.as_ref().map(decode_vm).transpose()?)));
        Ok(Some(VmChanges {
            revision: changes.revision,
            vms: vms.collect::<Result<_, Refusal>>()?,
        }))
    }

    /// As [`Self::vm_changes`], of resource providers; who watches decodes them, a few at a time.
    ///
    /// # Errors
    ///
    /// When changes after that revision are no longer kept.
    pub(crate) async fn provider_changes(
        &self,
        after: u64,
    ) -> Result<Option<Changes<ProviderId>>, Refusal> {
        match self.beyond(after).await {
            true => lock(&self.shared.rings).providers.since(after).map(Some),
            false => Ok(None),
        }
    }

    /// Waits until more is known than up to this revision; returns whether the replica is there.
    async fn beyond(&self, after: u64) -> bool {
        let mut revision = self.shared.revision.subscribe();
        revision.wait_for(|last| *last > after).await.is_ok()
    }

    /// Returns what tells of changes of this operation from now on.
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

fn decode_vm(row: &StoredRow) -> Result<Arc<Vm>, Refusal> {
    match codec::decode_row(row) {
        Ok(Row::Vm(vm)) => Ok(vm),
        Ok(_) | Err(_) => Err(not_readable("vm")),
    }
}

/// Returns the provider that a stored row is.
pub(crate) fn decode_provider(row: &StoredRow) -> Result<Arc<ResourceProvider>, Refusal> {
    match codec::decode_row(row) {
        Ok(Row::Provider(provider)) => Ok(provider),
        Ok(_) | Err(_) => Err(not_readable("resource provider")),
    }
}

fn not_readable(what: &str) -> Refusal {
    let message = format!("a stored {what} cannot be read");
    Refusal::new(Code::Internal, "ROW_NOT_READABLE", message)
}

/// Tells of changes of one operation.
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
        // The map's own reference and this one: nobody else waits.
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

    use berth_replication::effects::{AppliedCommand, Position};
    use berth_state::{Change, Reply};

    fn name(text: &str) -> VmName {
        VmName::new(text).unwrap()
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

    /// Goal: where the feed itself missed changes, once and again, nobody is told half of them.
    /// Method: a channel that holds two batches, and more than that before they are read.
    #[tokio::test]
    async fn a_feed_that_lags_twice_has_its_watches_list_again() {
        let (sender, receiver) = broadcast::channel(2);
        let feed = Feed::new(1, 16);
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
        // 2 and 3 were missed; what 4 changed is not told either, since nothing tells what else.
        for after in 1..4 {
            let refused = feed.vm_changes(after).await.unwrap_err();
            assert_eq!(refused.reason, "REVISION_NOT_KEPT");
            assert_eq!(refused.metadata["first_revision"], "4");
        }
        let changes = feed.vm_changes(4).await.unwrap().unwrap();
        assert_eq!(changes.vms.into_keys().collect::<Vec<_>>(), [name("v5")]);
        // The runtime has one thread: nothing is read before the next wait.
        (6..=9).for_each(send);
        seen(&feed, 9).await;
        for after in 5..8 {
            let refused = feed.vm_changes(after).await.unwrap_err();
            assert_eq!(refused.metadata["first_revision"], "8");
        }
        let changes = feed.vm_changes(8).await.unwrap().unwrap();
        assert_eq!(changes.revision, 9);
        assert_eq!(changes.vms.into_keys().collect::<Vec<_>>(), [name("v9")]);
        drop(sender);
        following.await.unwrap();
    }

    /// Goal: who waits for one operation is woken by it, and waiting leaves nothing behind.
    #[tokio::test]
    async fn watches_of_operations_come_and_go() {
        let feed = Feed::new(1, 16);
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
