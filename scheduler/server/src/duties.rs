//! The leader's own duties: it names a new cluster, and records which hosts are reachable.
//! Every member observes replicated time meanwhile, to continue from it when it leads, and refuses the
//! certificates that are revoked.
//!
//! Invariant: everything here is a command like any other, so losing leadership in the middle
//! loses nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_decide::{Action, DecisionRequest};
use berth_domain::fence::Method;
use berth_domain::host::Liveness;
use berth_domain::id::ClusterId;
use berth_domain::version::ServiceVersion;
use berth_state::State;
use berth_state::command::Command;
use berth_tls::Tls;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::service::{Context, revoked_since};
use crate::{grants, recovery};

/// Does the leader's duties whenever this member leads, until `stopping`.
///
/// `tls` is what this process accepts certificates with, if it is encrypted.
pub(crate) async fn run(context: Context, tls: Option<Tls>, stopping: CancellationToken) {
    tokio::select! {
        () = work(&context, tls.as_ref()) => {}
        () = stopping.cancelled() => {}
    }
}

async fn work(context: &Context, tls: Option<&Tls>) {
    let period_ms = (context.interval_ms(None) / 4).clamp(10, 1000);
    let mut ticks = interval(Duration::from_millis(period_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut clock = ComparedClock::default();
    let mut recovery = recovery::Ending::default();
    let mut leader = context.handle().watch_leader();
    let own = leader.borrow().id;
    loop {
        let role = leader.borrow_and_update().role;
        let deciding = role.deciding;
        let other = role.leader.filter(|id| *id != own);
        if let Ok(time) = context.stale(State::time).await {
            context.observe_time(time, other);
        }
        if let Some(tls) = tls {
            revoke(context, tls).await;
        }
        context.liveness().lead(deciding, context.monotonic_ms());
        if deciding {
            clock.compare(context).await;
            name_cluster(context).await;
            make_grant_key(context).await;
            update_liveness(context).await;
            recovery.attempt(context).await;
        }
        tokio::select! {
            _ = ticks.tick() => {}
            changed = leader.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// How far the time of the cluster may be from this machine's clock without a word, in milliseconds.
const APART_MS: u64 = 60_000;

/// When it was last logged that the time of the cluster differs from this machine's clock.
#[derive(Default)]
struct ComparedClock {
    logged_at_ms: Option<u64>,
}

impl ComparedClock {
    /// Logs a difference, at most once a minute. It comes from a scheduler that started with a wrong
    /// clock, or this one has one: leases do not depend on it, but the times that users read do.
    async fn compare(&mut self, context: &Context) {
        let monotonic_ms = context.monotonic_ms();
        let is_logged = |at: u64| monotonic_ms.saturating_sub(at) < APART_MS;
        if self.logged_at_ms.is_some_and(is_logged) {
            return;
        }
        let Ok(time) = context.stale(State::time).await else {
            return;
        };
        let (cluster, wall) = context.times(time);
        let apart_s = cluster.0.abs_diff(wall.0) / 1_000;
        if apart_s * 1_000 >= APART_MS {
            let is = if cluster > wall { "ahead of" } else { "behind" };
            tracing::warn!(
                apart_s,
                "the time of the cluster is {is} this machine's clock; it approaches it slowly"
            );
            self.logged_at_ms = Some(monotonic_ms);
        }
    }
}

/// Takes over the list of revoked certificates when it has changed.
async fn revoke(context: &Context, tls: &Tls) {
    let known = tls.revoked().revision;
    let changed = context.stale(move |state| revoked_since(state, known));
    if let Ok(Some(revoked)) = changed.await {
        tls.revoke(revoked);
    }
}

/// The first command of a new cluster gives it its name.
async fn name_cluster(context: &Context) {
    let named = context.stale(|state| state.cluster().is_some()).await;
    if !matches!(named, Ok(false)) {
        return;
    }
    let Ok(cluster) = context.cluster_id().parse::<ClusterId>() else {
        tracing::error!(cluster = context.cluster_id(), "cluster id is not a UUID");
        return;
    };
    if raise_version(context).await {
        // Before the name, for which requests wait.
        make_grant_key(context).await;
        command(context, Command::Bootstrap { cluster }).await;
    }
}

/// From the cluster version on that brought grants there is a key to sign them with.
async fn make_grant_key(context: &Context) {
    if !matches!(context.stale(grants::lacks_key).await, Ok(true)) {
        return;
    }
    match grants::draw_seed() {
        Some(seed) => command(context, Command::ReplaceGrantKey { number: 1, seed }).await,
        None => tracing::error!("no random secret: grants cannot be signed"),
    }
}

/// A new cluster that consists of this member alone waits for no other: it begins with this
/// member's service version. Returns whether the version is raised, or need not be.
async fn raise_version(context: &Context) -> bool {
    let version = context.level();
    let raised = || context.stale(move |state| state.header().cluster_version >= version);
    let alone = context.handle().status().await;
    let alone = alone.is_some_and(|status| status.membership.members.len() == 1);
    if version < ServiceVersion::FINALIZE_UPGRADE || !alone {
        return true;
    }
    if matches!(raised().await, Ok(false)) {
        let gone = BTreeSet::new();
        command(context, Command::FinalizeUpgrade { version, gone }).await;
    }
    matches!(raised().await, Ok(true))
}

async fn update_liveness(context: &Context) {
    // All hosts are checked on a frozen state, not in the replica's task.
    let Ok(state) = context.stale(Clone::clone).await else {
        return;
    };
    let now = context.monotonic_ms();
    let (transitions, lapsed) = {
        let mut liveness = context.liveness();
        liveness.forget_removed(&state);
        (
            liveness.transitions(&state, now),
            liveness.lapsed(&state, now),
        )
    };
    for (host, liveness) in transitions {
        match liveness {
            Liveness::Up => tracing::info!(%host, "host heartbeat received"),
            Liveness::Down => tracing::warn!(%host, "host heartbeat missed"),
        }
        command(context, Command::SetLiveness { host, liveness }).await;
    }
    for (host, incarnation) in lapsed {
        tracing::warn!(%host, "host lease expired, its agent has stopped its guests");
        let fence = Command::FenceHost {
            host,
            method: Method::SelfFenced,
            by: DecisionRequest::LEADER.to_owned(),
            output: String::new(),
            incarnation,
        };
        command(context, fence).await;
    }
}

async fn command(context: &Context, command: Command) {
    let request = DecisionRequest::new(DecisionRequest::LEADER, Action::Plain(command));
    if let Err(status) = context.submit(request).await {
        // The next round retries, here or at the next leader.
        tracing::info!(error = %status.message(), "leader duty failed");
    }
}
