//! What has changed lately: the applied changes that watches follow, without gaps.
//!
//! One task reads what the replica applies ([`Feed::follow`]) and keeps the latest changes of VMs
//! in a bounded ring, outside the replicated state; every member can serve watches. Whoever waits
//! for an operation is woken when that operation changes, not whenever anything does.
//!
//! Invariant: the ring holds every change of a VM after revision `first` up to `last`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::id::OperationId;
use berth_domain::name::VmName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::Vm;
use berth_replication::effects::AppliedBatch;
use berth_replication::runtime::Event;
use berth_replication::{Row as StoredRow, RowChange};
use berth_state::{Key, Row};
use berth_store::codec;
use tokio::sync::{Notify, broadcast, watch};

use crate::machine::Machine;

/// A change of a VM.
struct VmChange {
    revision: u64,
    vm: VmName,
    /// The stored row, decoded for those who watch only; `None` when the VM is gone.
    row: Option<StoredRow>,
}

struct Ring {
    first: u64,
    last: u64,
    changes: VecDeque<VmChange>,
    changes_max: usize,
}

struct Shared {
    ring: Mutex<Ring>,
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
        Self {
            shared: Arc::new(Shared {
                ring: Mutex::new(Ring {
                    first: revision,
                    last: revision,
                    changes: VecDeque::new(),
                    changes_max,
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
        let mut ring = lock(&self.shared.ring);
        for command in &batch.commands {
            for change in &command.changes {
                match codec::decode_watched_key(&change.key) {
                    Some(Key::Vm(vm)) => ring.push(VmChange {
                        revision: command.index,
                        vm,
                        row: stored(change),
                    }),
                    Some(Key::Operation(id)) => operations.push(id),
                    _ => {}
                }
            }
        }
        ring.last = ring.last.max(batch.position.index);
        drop(ring);
        self.wake(operations, batch.position.index);
    }

    fn start_over(&self, revision: u64) {
        let mut ring = lock(&self.shared.ring);
        ring.changes.clear();
        ring.first = revision;
        ring.last = revision;
        drop(ring);
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
        let mut revision = self.shared.revision.subscribe();
        if revision.wait_for(|last| *last > after).await.is_err() {
            return Ok(None);
        }
        lock(&self.shared.ring).since(after).map(Some)
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

impl Ring {
    fn push(&mut self, change: VmChange) {
        if self.changes.len() == self.changes_max
            && let Some(oldest) = self.changes.pop_front()
        {
            self.first = oldest.revision;
        }
        self.changes.push_back(change);
    }

    fn since(&self, after: u64) -> Result<VmChanges, Refusal> {
        if after < self.first {
            return Err(Refusal::new(
                Code::OutOfRange,
                "REVISION_NOT_KEPT",
                format!(
                    "changes after revision {after} are no longer kept, those after {} are",
                    self.first
                ),
            )
            .with_hint("list again and watch from the revision of that list")
            .with("first_revision", self.first));
        }
        let from = self.changes.partition_point(|c| c.revision <= after);
        let mut latest = BTreeMap::new();
        for change in self.changes.range(from..) {
            latest.insert(change.vm.clone(), change.row.clone());
        }
        let vms = latest
            .into_iter()
            .map(|(name, row)| Ok((name, row.as_ref().map(decode_vm).transpose()?)))
            .collect::<Result<_, Refusal>>()?;
        Ok(VmChanges {
            revision: self.last,
            vms,
        })
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
        Ok(_) | Err(_) => Err(Refusal::new(
            Code::Internal,
            "ROW_NOT_READABLE",
            "a stored vm cannot be read",
        )),
    }
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

    fn ring(changes: &[(u64, &str)]) -> Ring {
        let mut ring = Ring {
            first: 10,
            last: 10,
            changes: VecDeque::new(),
            changes_max: 3,
        };
        for (revision, vm) in changes {
            ring.push(VmChange {
                revision: *revision,
                vm: name(vm),
                row: None,
            });
            ring.last = *revision;
        }
        ring
    }

    fn told(ring: &Ring, after: u64) -> Result<Vec<String>, String> {
        let changes = ring.since(after).map_err(|refusal| refusal.reason)?;
        Ok(changes.vms.into_keys().map(String::from).collect())
    }

    #[test]
    fn what_changed_after_a_revision_is_told_once() {
        let ring = ring(&[(11, "a"), (12, "b"), (14, "a")]);
        assert_eq!(told(&ring, 10), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(told(&ring, 12), Ok(vec!["a".into()]));
        assert_eq!(told(&ring, 14), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_longer_kept_is_refused() {
        let ring = ring(&[(11, "a"), (12, "b"), (13, "c"), (14, "d")]);
        assert_eq!(told(&ring, 10), Err("REVISION_NOT_KEPT".into()));
        assert_eq!(told(&ring, 11).map(|names| names.len()), Ok(3));
        assert_eq!(told(&self::ring(&[]), 9), Err("REVISION_NOT_KEPT".into()));
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
