//! A member as those who watch it see it: all metrics, and the checks of health.
//!
//! ```text
//!   livez    the owner of the replica answers
//!   readyz   it has a state and a leader that confirms it, its disk answers, it is not stopping
//! ```
//!
//! A member that finds a broken invariant ends, so that no check is needed for it.
//!
//! Invariant: what does not answer in time is missing, and delays the rest by [`STATUS_TIMEOUT`] at most.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_process::BoxFuture;
use berth_process::bounds::Bounds;
use berth_process::metrics::{Check, Definition, Exposition, Observed, grpc};
use berth_replication::runtime::Status;
use tokio::time::timeout;

use super::census::Latest;
use super::disk::Disk;
use super::failover::Failover;
use super::raft;
use crate::service::Context;

static LOG_SYNC: Definition = Definition::histogram(
    "berth_raft_log_sync_duration_seconds",
    &[],
    "Time of a synchronisation of the Raft log to the disk.",
);
static LEADER_CHANGES: Definition = Definition::counter(
    "berth_raft_leader_changes_total",
    &[],
    "Changes of the leader or its term, as this member saw them.",
);
static STATE_AGE: Definition = Definition::gauge(
    "berth_state_age_seconds",
    &[],
    "Time since a leader confirmed the state of this member; absent before the first time.",
);
static BACKUP_LAST: Definition = Definition::gauge(
    "berth_backup_last_success_timestamp_seconds",
    &[],
    "When the last scheduled backup was made, in seconds since 1970; absent before the first one.",
);
static BACKUP_FAILURES: Definition = Definition::counter(
    "berth_backup_failures_total",
    &[],
    "Scheduled backups that failed.",
);
static BACKUP_FAILING: Definition = Definition::gauge(
    "berth_backup_failing",
    &[],
    "Whether the latest scheduled backup failed.",
);

/// How long the owner of the replica may take for its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// For how long a leader may not have confirmed the state of a member that is ready.
const STATE_AGE_MAX: Duration = Duration::from_secs(10);
/// For how long the disk of a member that is ready may owe an answer.
const DISK_SILENT_MAX: Duration = Duration::from_secs(5);

/// The work beside the member that metrics need.
type Beside = [BoxFuture<'static, ()>; 2];

/// A member with what was read of it.
pub(crate) struct Watched {
    context: Context,
    bounds: Arc<Bounds>,
    census: Latest,
    disk: Disk,
    failover: Failover,
}

impl Watched {
    /// Returns the member of this context, whose gRPC server has these bounds; the verdicts are worked out
    /// elsewhere.
    pub(crate) fn new(context: Context, bounds: Arc<Bounds>, failover: Failover) -> Self {
        Self {
            context,
            bounds,
            census: Latest::default(),
            disk: Disk::default(),
            failover,
        }
    }

    /// Returns the work that its metrics need, which ends with the member.
    pub(crate) fn work(&self, data_dir: PathBuf) -> Beside {
        let stopping = self.context.stopping().clone();
        [
            Box::pin(self.census.clone().run(self.context.clone())),
            Box::pin(self.disk.clone().run(data_dir, stopping)),
        ]
    }

    async fn status(&self) -> Option<Status> {
        let status = timeout(STATUS_TIMEOUT, self.context.handle().status()).await;
        status.ok().flatten()
    }

    fn expose_backups(&self, out: &mut Exposition) {
        for definition in [&BACKUP_LAST, &BACKUP_FAILURES, &BACKUP_FAILING] {
            out.declare(definition);
        }
        let Some(backups) = self.context.scheduled_backups() else {
            return;
        };
        if let Some(ms) = backups.last_ms {
            out.set(&BACKUP_LAST, Duration::from_millis(ms));
        }
        out.set(&BACKUP_FAILURES, backups.failures);
        out.set(&BACKUP_FAILING, backups.failure.is_some());
    }
}

impl Observed for Watched {
    fn expose<'a>(&'a self, out: &'a mut Exposition) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let status = self.status().await;
            raft::expose(status.as_ref(), out);
            let metrics = self.context.metrics();
            out.set(&LOG_SYNC, metrics.log_syncs.read());
            out.set(&LEADER_CHANGES, metrics.leader_changes.get());
            out.declare(&STATE_AGE);
            if let Some(age) = self.context.freshness().age() {
                out.set(&STATE_AGE, age);
            }
            metrics.decisions.expose(out);
            metrics.refused.expose(out);
            let of_state = self.census.expose(out);
            self.failover.expose(out);
            self.disk.expose(out);
            let of_process = self.context.retained();
            let of_replica = status.iter().flat_map(|status| &status.retained);
            let retained = of_replica.chain(&of_process).chain(&of_state);
            raft::expose_retained(retained, out);
            self.expose_backups(out);
            metrics.grpc.expose(out);
            grpc::expose_held(&self.bounds, out);
            metrics.placement.expose(out);
        })
    }

    fn live(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async move {
            let answers = self.status().await.is_some();
            let reason = "the owner of the replica does not answer";
            vec![Check::holds("owner", answers, reason)]
        })
    }

    fn ready(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async move {
            let stopping = self.context.stopping().is_cancelled();
            let mut checks = vec![Check::holds("running", !stopping, "it is stopping")];
            let status = self.status().await;
            let reason = "the owner of the replica does not answer";
            checks.push(Check::holds("owner", status.is_some(), reason));
            if let Some(status) = status {
                checks.extend(checks_of(&status, self.context.freshness().age()));
            }
            checks
        })
    }
}

/// Returns the checks of a status and of the age of the state.
fn checks_of(status: &Status, age: Option<Duration>) -> [Check; 3] {
    let is_silent = status.disk_silent > DISK_SILENT_MAX;
    let silent_s = status.disk_silent.as_secs();
    let fresh = match age {
        Some(age) if age <= STATE_AGE_MAX => Ok(()),
        Some(age) => Err(format!(
            "no leader has confirmed the state of this member for {} s",
            age.as_secs()
        )),
        None => Err("no leader has confirmed the state of this member yet".to_owned()),
    };
    [
        Check::holds(
            "leader",
            status.role.leader.is_some(),
            "no leader is known: a majority of the members is missing, or an election is going on",
        ),
        Check::new("state", fresh),
        Check::holds(
            "disk",
            !is_silent,
            &format!("the disk of the Raft log has not answered for {silent_s} s"),
        ),
    ]
}
