//! What the leader does beside answering: it names a new cluster, and notes which hosts are heard
//! of. Every member watches replicated time meanwhile, to go on from there when it leads.
//!
//! Invariant: everything here is a command like any other, so losing leadership in the middle
//! loses nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_domain::fence::How;
use berth_domain::id::ClusterId;
use berth_domain::version::ServiceVersion;
use berth_state::State;
use berth_state::command::Command;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::core::{Ask, Request};
use crate::service::Context;

/// Does the leader's duties whenever this member leads, until `stopping`.
pub(crate) async fn run(context: Context, stopping: CancellationToken) {
    tokio::select! {
        () = work(&context) => {}
        () = stopping.cancelled() => {}
    }
}

async fn work(context: &Context) {
    let period_ms = (context.report_interval_ms() / 4).clamp(10, 1000);
    let mut ticks = interval(Duration::from_millis(period_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leader = context.handle().watch_leader();
    let own = leader.borrow().id;
    loop {
        let role = leader.borrow_and_update().role;
        let deciding = role.deciding;
        let other = role.leader.filter(|id| *id != own);
        if let Ok(time) = context.stale(State::time).await {
            context.observe_time(time, other);
        }
        context.liveness().lead(deciding, context.monotonic_ms());
        if deciding {
            name_cluster(context).await;
            judge_hosts(context).await;
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

/// The first command of a new cluster gives it its name.
async fn name_cluster(context: &Context) {
    let named = context.stale(|state| state.cluster().is_some()).await;
    if !matches!(named, Ok(false)) {
        return;
    }
    let Ok(cluster) = context.cluster_id().parse::<ClusterId>() else {
        tracing::error!(
            cluster = context.cluster_id(),
            "the cluster's id is no UUID"
        );
        return;
    };
    if raise_version(context).await {
        command(context, Command::Bootstrap { cluster }).await;
    }
}

/// A new cluster that consists of this member alone has nobody to wait for: it begins with what
/// this member can do. Returns whether that is so, or not to be waited for.
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

async fn judge_hosts(context: &Context) {
    // The look over all hosts is made on a frozen state, not in the replica's task.
    let Ok(state) = context.stale(Clone::clone).await else {
        return;
    };
    let now = context.monotonic_ms();
    let (verdicts, lapsed) = {
        let mut liveness = context.liveness();
        liveness.forget_removed(&state);
        (liveness.judge(&state, now), liveness.lapsed(&state, now))
    };
    for (host, liveness) in verdicts {
        tracing::info!(%host, ?liveness, "a host's agent changed");
        command(context, Command::SetLiveness { host, liveness }).await;
    }
    for (host, incarnation) in lapsed {
        tracing::warn!(%host, "its lease has lapsed: its agent has stopped its guests by itself");
        let fence = Command::FenceHost {
            host,
            how: How::SelfFenced,
            by: Ask::LEADER.to_owned(),
            output: String::new(),
            incarnation,
        };
        command(context, fence).await;
    }
}

async fn command(context: &Context, command: Command) {
    let ask = Ask::new(Ask::LEADER, Request::Plain(command));
    if let Err(status) = context.ask(ask).await {
        // The next round tries again, here or at the next leader.
        tracing::info!(error = %status.message(), "a duty of the leader was not done");
    }
}
