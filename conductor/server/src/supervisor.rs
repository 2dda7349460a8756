//! Which operations this conductor carries out: adopts new ones, renews their leases, stops those
//! whose lease is lost, and takes over those without a conductor.
//!
//! ```text
//!   service ──adopt──▶ ┌────────────┐ ──▶ driver (one task per operation)
//!   every few seconds: │ supervisor │ ──▶ renewal of all leases in one call
//!   search, take lease └────────────┘ ◀── reports of all of them
//! ```
//!
//! Invariant: at most one driver per operation runs here, and none whose lease, counted from the
//! moment its last renewal was *sent*, has expired.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::time::Duration;

use berth_domain::id::{Epoch, OperationId};
use berth_domain::operation::{Kind, Operation};
use berth_domain::refusal::Refusal;
use berth_saga::Ended;
use berth_traces::within;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::drain;
use crate::driver::{self, Tools};
use crate::scheduler::{Begun, Search};
use crate::traces;

/// How many adoptions may wait to be looked at.
const QUEUE_MAX: usize = 1024;

/// The way to the supervisor. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    sender: mpsc::Sender<Adoption>,
    count: watch::Receiver<usize>,
    operations_max: usize,
}

impl Handle {
    /// Has an operation carried out whose lease is this conductor's, and which was requested at this
    /// moment.
    pub(crate) async fn adopt(&self, begun: Begun, requested_at: std::time::Instant) {
        // While the supervisor stops, the lease expires and another conductor takes over.
        let adoption = Adoption {
            begun,
            requested_at,
        };
        let _ = self.sender.send(adoption).await;
    }

    /// Refuses when the limit of concurrent operations is reached.
    pub(crate) fn check_capacity(&self) -> Result<(), Refusal> {
        match self.count() {
            count if count >= self.operations_max => Err(driver::busy(count)),
            _ => Ok(()),
        }
    }

    /// Returns whether the supervisor has not ended.
    pub(crate) fn is_running(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Returns how many operations are carried out.
    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }
}

/// An operation that was begun here.
#[derive(Debug)]
struct Adoption {
    begun: Begun,
    requested_at: std::time::Instant,
}

/// The supervisor's part of the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How often it searches for operations without a conductor.
    pub(crate) takeover_interval: Duration,
    /// How many operations are carried out at once.
    pub(crate) operations_max: usize,
}

/// An operation that is carried out.
struct Carried {
    epoch: Epoch,
    /// Until when the lease is certainly this conductor's.
    held_until: Instant,
    stop: CancellationToken,
    task: Id,
}

/// The result of a task.
enum Report {
    /// An operation is no longer carried out here; `None` when it was stopped.
    Ended(OperationId, Option<Ended>),
    /// Leases were renewed: which were requested, when, and which are held.
    Renewed {
        requested: Vec<(OperationId, Epoch)>,
        sent: Instant,
        held: Result<BTreeSet<OperationId>, Refusal>,
    },
    /// Operations were taken, each with a lease of its own from this moment.
    Taken {
        operations: Vec<(Operation, Instant)>,
        /// Whether they include all that an earlier run of this conductor held.
        own_recovered: bool,
    },
}

struct Supervisor {
    tools: Tools,
    /// The way to itself, for what a drain begins.
    handle: Handle,
    settings: Settings,
    carried: BTreeMap<OperationId, Carried>,
    tasks: JoinSet<Report>,
    count: watch::Sender<usize>,
    /// Whether a renewal is in progress.
    renewing: Option<Id>,
    /// Whether a search is in progress.
    searching: Option<Id>,
    /// Operations that are being taken because a repeated request refers to one that began before.
    /// Each by the task that takes it.
    retaking: HashMap<Id, OperationId>,
    /// Whether the operations that an earlier run of this conductor held were searched for.
    own_recovered: bool,
}

/// Returns the supervisor's handle, and the supervisor itself, to be run until `stopping`.
pub(crate) fn new(
    tools: Tools,
    settings: Settings,
    stopping: CancellationToken,
) -> (Handle, impl Future<Output = ()> + Send) {
    let (sender, adoptions) = mpsc::channel(QUEUE_MAX);
    let (count_sender, count) = watch::channel(0);
    let handle = Handle {
        sender,
        count,
        operations_max: settings.operations_max,
    };
    let supervisor = Supervisor {
        tools,
        handle: handle.clone(),
        settings,
        carried: BTreeMap::new(),
        tasks: JoinSet::new(),
        count: count_sender,
        renewing: None,
        searching: None,
        retaking: HashMap::new(),
        own_recovered: false,
    };
    (handle, supervisor.run(adoptions, stopping))
}

impl Supervisor {
    async fn run(mut self, mut adoptions: mpsc::Receiver<Adoption>, stopping: CancellationToken) {
        let ttl = self.tools.scheduler.lease_ttl();
        let mut renewal = interval(ttl / 3);
        let mut expiry = interval(ttl / 20);
        let mut search = interval(self.settings.takeover_interval);
        for ticks in [&mut renewal, &mut expiry, &mut search] {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut stopped = pin!(stopping.cancelled());
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => break,
                Some(ended) = self.tasks.join_next_with_id() => match ended {
                    Ok((task, report)) => self.record(task, report),
                    Err(error) => self.record_failure(&error),
                },
                _ = expiry.tick() => self.stop_expired(),
                _ = renewal.tick() => self.renew(),
                Some(adoption) = adoptions.recv() => self.adopt(adoption),
                _ = search.tick() => self.search(),
            }
            self.count.send_replace(self.carried.len());
        }
        // Calls in progress are dropped. The conductor that takes over reads the log, in which
        // everything that may have had effects is marked.
        self.tasks.shutdown().await;
    }

    /// Starts to carry out an operation that a user has just requested.
    fn adopt(&mut self, adoption: Adoption) {
        let Adoption {
            begun,
            requested_at,
        } = adoption;
        let operation = &begun.operation;
        let name = self.tools.scheduler.name();
        let lease = operation.lease.as_ref();
        let is_own = lease.is_some_and(|l| l.conductor == *name);
        if operation.is_done() || !is_own || self.carried.contains_key(&operation.id) {
            return;
        }
        // A repeated request is answered with what it began at first. If that was in an earlier
        // life of this conductor, calls of that life may still be on their way: a new epoch
        // shuts them out.
        if operation.log.len() > entries_at_first(&operation.kind) {
            if !self.retaking.values().any(|id| *id == operation.id) {
                let (id, tools) = (operation.id, self.tools.clone());
                let taking = async move {
                    Report::Taken {
                        operations: take(&tools, vec![begun.operation]).await,
                        own_recovered: false,
                    }
                };
                self.retaking.insert(self.tasks.spawn(taking).id(), id);
            }
            return;
        }
        self.start(begun, Instant::now(), Some(requested_at));
    }

    /// Drives an operation whose lease was given at `leased` or later.
    fn start(&mut self, begun: Begun, leased: Instant, requested_at: Option<std::time::Instant>) {
        let operation = &begun.operation;
        let Some(epoch) = operation.lease.as_ref().map(|l| l.epoch) else {
            return;
        };
        let id = operation.id;
        if let Some(carried) = self.carried.get(&id) {
            if carried.epoch >= epoch {
                return;
            }
            carried.stop.cancel();
        }
        let stop = CancellationToken::new();
        let (tools, handle) = (self.tools.clone(), self.handle.clone());
        let driven = async move {
            match begun.operation.drain() {
                Some(_) => drain::drive(tools, handle, begun.operation).await,
                None => driver::drive(tools, begun, requested_at).await,
            }
        };
        let stopped = stop.clone().cancelled_owned();
        let task = self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stopped => Report::Ended(id, None),
                ended = driven => Report::Ended(id, Some(ended)),
            }
        });
        let carried = Carried {
            epoch,
            held_until: leased + self.tools.scheduler.lease_ttl(),
            stop,
            task: task.id(),
        };
        self.carried.insert(id, carried);
    }

    fn record(&mut self, task: Id, report: Report) {
        match report {
            Report::Ended(id, ended) => {
                // A newer driver of the same operation may have taken its place.
                if self.carried.get(&id).is_some_and(|c| c.task == task) {
                    self.carried.remove(&id);
                }
                match ended {
                    Some(Ended::Finished) => tracing::info!(operation = %id, "operation done"),
                    Some(Ended::LeaseLost) => {
                        tracing::info!(operation = %id, "operation lease lost");
                    }
                    None => tracing::debug!(operation = %id, "operation stopped"),
                }
            }
            Report::Renewed {
                requested,
                sent,
                held,
            } => {
                self.renewing = None;
                self.record_renewal(&requested, sent, held);
            }
            Report::Taken {
                operations,
                own_recovered,
            } => {
                self.own_recovered |= own_recovered;
                if self.searching == Some(task) {
                    self.searching = None;
                }
                self.retaking.remove(&task);
                for (operation, leased) in operations {
                    tracing::info!(operation = %operation.id, "operation taken over");
                    self.start(operation.into(), leased, None);
                }
            }
        }
    }

    fn record_renewal(
        &mut self,
        requested: &[(OperationId, Epoch)],
        sent: Instant,
        held: Result<BTreeSet<OperationId>, Refusal>,
    ) {
        let held = match held {
            Ok(held) => held,
            Err(refusal) => {
                tracing::warn!(%refusal, "lease renewal failed");
                return;
            }
        };
        let held_until = sent + self.tools.scheduler.lease_ttl();
        for (id, epoch) in requested {
            let Some(carried) = self.carried.get_mut(id).filter(|c| c.epoch == *epoch) else {
                continue;
            };
            if held.contains(id) {
                carried.held_until = carried.held_until.max(held_until);
            } else {
                // Also when the operation is done and its driver has not noticed yet.
                carried.stop.cancel();
            }
        }
    }

    fn record_failure(&mut self, error: &tokio::task::JoinError) {
        let task = error.id();
        tracing::error!(%error, "task failed");
        if self.renewing == Some(task) {
            self.renewing = None;
        }
        if self.searching == Some(task) {
            self.searching = None;
        }
        self.retaking.remove(&task);
        // Its lease is no longer renewed, so that it is retried, here or elsewhere.
        self.carried.retain(|_, carried| carried.task != task);
    }

    /// Stops operations that another conductor may have taken meanwhile.
    fn stop_expired(&mut self) {
        let now = Instant::now();
        for (id, carried) in &self.carried {
            if carried.held_until <= now && !carried.stop.is_cancelled() {
                tracing::warn!(operation = %id, "operation lease expired");
                carried.stop.cancel();
            }
        }
    }

    fn renew(&mut self) {
        if self.renewing.is_some() || self.carried.is_empty() {
            return;
        }
        let leases = self.carried.iter().filter(|(_, c)| !c.stop.is_cancelled());
        let requested: Vec<(OperationId, Epoch)> = leases.map(|(id, c)| (*id, c.epoch)).collect();
        let scheduler = self.tools.scheduler.clone();
        let task = self.tasks.spawn(async move {
            let sent = Instant::now();
            let held = scheduler.renew_leases(&requested).await;
            Report::Renewed {
                requested,
                sent,
                held,
            }
        });
        self.renewing = Some(task.id());
    }

    fn search(&mut self) {
        let capacity = self
            .settings
            .operations_max
            .saturating_sub(self.carried.len());
        if self.searching.is_some() || capacity == 0 {
            return;
        }
        let tools = self.tools.clone();
        let carried: BTreeSet<OperationId> = self.carried.keys().copied().collect();
        let own = !self.own_recovered;
        let task = self.tasks.spawn(async move {
            let mut found = search(&tools, Search::Expired).await.unwrap_or_default();
            let mut own_recovered = false;
            if own && let Some(held) = search(&tools, Search::Own).await {
                found.extend(held);
                own_recovered = true;
            }
            found.retain(|o| !carried.contains(&o.id));
            // Those beyond the capacity are searched for again.
            own_recovered &= found.len() <= capacity;
            found.truncate(capacity);
            Report::Taken {
                operations: take(&tools, found).await,
                own_recovered,
            }
        });
        self.searching = Some(task.id());
    }
}

/// Returns how long the log of an operation is that has just begun: a claim is logged with it.
fn entries_at_first(kind: &Kind) -> usize {
    usize::from(kind.plan().claims.is_some())
}

/// Returns the matching operations, unless the scheduler cannot be reached.
async fn search(tools: &Tools, search: Search) -> Option<Vec<Operation>> {
    match tools.scheduler.find(search).await {
        Ok(found) => Some(found),
        Err(refusal) => {
            tracing::warn!(%refusal, "search for operations without a conductor failed");
            None
        }
    }
}

/// Takes the leases of operations, as far as no other conductor was faster.
async fn take(tools: &Tools, operations: Vec<Operation>) -> Vec<(Operation, Instant)> {
    let mut taken = Vec::new();
    for operation in operations {
        let sent = Instant::now();
        let taking = tools.scheduler.take_lease(operation.id);
        match within(traces::of_operation(operation.id), taking).await {
            Ok(operation) => taken.push((operation, sent)),
            Err(refusal) => {
                tracing::debug!(operation = %operation.id, %refusal, "operation not taken");
            }
        }
    }
    taken
}

#[cfg(test)]
mod tests;
