//! Has VMs started again by their restart policies: at regular intervals it reads what is due, and
//! begins it.
//!
//! Not here: what is due, which the scheduler computes and checks again in the command that begins it;
//! and what is done then, which are a start and an evacuation as a user requests them.
//!
//! Invariant: every conductor does this, and each restart is begun once: the second one is refused,
//! since an operation works on the VM or drains the host.

use std::time::Duration;

use berth_domain::name::{HostName, VmName};
use berth_domain::operation::DrainSpec;
use berth_domain::operation::drain::PARALLEL;
use berth_domain::refusal::Refusal;
use berth_domain::version::Feature;
use berth_proto::convert::ResourceName as _;
use berth_proto::scheduler::v1::PlanDrainRequest;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::drain;
use crate::service::ConductorApi;

/// How many VMs, and how many hosts, are read at a time.
const READ_MAX: usize = 256;
/// How many restarts are being begun at the same time.
const AT_ONCE_MAX: usize = 16;
/// Why a restart is not begun that another conductor was faster to begin.
const OVERTAKEN: [&str; 3] = ["VM_BUSY", "HOST_IS_DRAINED", "RESTART_NOT_DUE"];

/// Begins what is due, every `period`, until `stopping`.
pub(crate) async fn run(api: ConductorApi, period: Duration, stopping: CancellationToken) {
    if !api.tools.scheduler.version().can(Feature::RestartPolicy) {
        stopping.cancelled().await;
        return;
    }
    tokio::select! {
        () = work(&api, period) => {}
        () = stopping.cancelled() => {}
    }
}

async fn work(api: &ConductorApi, period: Duration) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // After a power cut there are more than are read at a time.
        while begin_all(api).await {}
    }
}

/// Begins what is due; returns whether something was begun and there may be more.
async fn begin_all(api: &ConductorApi) -> bool {
    let due = match api.tools.scheduler.due_restarts(READ_MAX).await {
        Ok(due) => due,
        Err(refusal) => {
            tracing::debug!(%refusal, "due restarts were not read");
            return false;
        }
    };
    let is_full = due.vms.len() >= READ_MAX;
    for host in due.hosts {
        match evacuate(api, &host).await {
            Ok(()) => tracing::warn!(%host, "evacuation by restart policies begun"),
            Err(refusal) if OVERTAKEN.contains(&&*refusal.reason) => {}
            Err(refusal) => {
                tracing::warn!(%host, %refusal, "evacuation by restart policies not begun");
            }
        }
    }
    let mut begun = 0;
    for some in due.vms.chunks(AT_ONCE_MAX) {
        let mut tasks = JoinSet::new();
        for vm in some {
            let (api, vm) = (api.clone(), vm.clone());
            tasks.spawn(async move { restart_and_log(&api, &vm).await });
        }
        let all = tasks.join_all().await;
        begun += all.into_iter().filter(|is_begun| *is_begun).count();
    }
    is_full && begun > 0
}

/// Returns whether something was done about the VM.
async fn restart_and_log(api: &ConductorApi, vm: &VmName) -> bool {
    match restart(api, vm).await {
        Ok(true) => tracing::warn!(%vm, "restart by policy begun"),
        Ok(false) => tracing::error!(%vm, "restarts used up, vm left stopped"),
        Err(refusal) if OVERTAKEN.contains(&&*refusal.reason) => return false,
        Err(refusal) => {
            tracing::warn!(%vm, %refusal, "restart by policy not begun");
            return false;
        }
    }
    true
}

/// Begins to start the VMs of a dead host elsewhere, in the order of their priorities and along the
/// plan that proves that the failure is survived.
async fn evacuate(api: &ConductorApi, host: &HostName) -> Result<(), Refusal> {
    let spec = DrainSpec {
        evacuate: true,
        cold: false,
        parallel: PARALLEL,
        by_policy: true,
    };
    let request = PlanDrainRequest {
        host: host.resource_name(),
        evacuate: spec.evacuate,
        cold: spec.cold,
        by_policy: spec.by_policy,
    };
    let plan = api.tools.scheduler.plan_drain(request).await?;
    let begun = drain::begin_operation(api, host, spec, &plan, String::new()).await;
    begun.map(drop)
}

/// Begins to start a VM where it is; returns whether it did, and has not given it up.
async fn restart(api: &ConductorApi, vm: &VmName) -> Result<bool, Refusal> {
    let scheduler = api.tools.scheduler.clone();
    let vm = vm.clone();
    let begun = api.begin_some(async move {
        let operation = scheduler.begin_restart(&vm).await?;
        Ok(operation.map(Into::into))
    });
    Ok(begun.await?.is_some())
}
