//! Carries a drain out, whichever conductor began it.
//!
//! Invariant: it decides nothing. Each effect is one call, after which the record is read again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use berth_domain::id::{OperationId, TimeMs};
use berth_domain::name::VmName;
use berth_domain::operation::Operation;
use berth_domain::refusal::{Code, Refusal};
use berth_saga::{DrainEffect, Drainer, Ended};
use tokio::task::JoinSet;

use crate::driver::Tools;
use crate::scheduler::Scheduler;
use crate::supervisor::Handle;

/// The wait after a call to the scheduler that failed.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Drains a host, from where its record ends. Its lease has to be this conductor's.
pub(crate) async fn drive(tools: Tools, supervisor: Handle, operation: Operation) -> Ended {
    let id = operation.id;
    let begun = Instant::now();
    let mut drainer = Drainer::new(&operation);
    let mut ended = BTreeSet::new();
    let scheduler = &tools.scheduler;
    loop {
        let operation = match scheduler.operation(id).await {
            Ok(operation) => operation,
            Err(refusal) if refusal.code == Code::NotFound => return Ended::LeaseLost,
            Err(refusal) => {
                tracing::warn!(operation = %id, %refusal, "reading the drain failed");
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
        };
        let now = || TimeMs(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
        match drainer.next(&operation, &ended, now()) {
            DrainEffect::Done(ended) => return ended,
            DrainEffect::Move(vm) => {
                if let Err(refusal) = move_one(&tools, &supervisor, &drainer, id, &vm).await {
                    tracing::info!(operation = %id, %vm, %refusal, "move refused");
                    drainer.refused(vm, refusal, now());
                }
            }
            DrainEffect::Record { vm, refusal } => {
                let epoch = drainer.epoch();
                let recorded = scheduler.record_drained(id, epoch, &vm, refusal.as_ref());
                let recorded = recorded.await;
                drainer.recorded(recorded.as_ref().map(|_| ()));
                if let Err(refusal) = recorded {
                    tracing::warn!(operation = %id, %vm, %refusal, "record refused");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
            DrainEffect::Await { moves, ms } => {
                ended.extend(one_ended(scheduler, moves, Duration::from_millis(ms)).await);
            }
        }
    }
}

/// Begins the move of a VM and has it carried out here.
async fn move_one(
    tools: &Tools,
    supervisor: &Handle,
    drainer: &Drainer,
    drain: OperationId,
    vm: &VmName,
) -> Result<(), Refusal> {
    supervisor.check_capacity()?;
    let requested_at = Instant::now();
    let scheduler = &tools.scheduler;
    let begun = scheduler.move_drained(drain, drainer.epoch(), vm).await?;
    tracing::info!(operation = %begun.id, %drain, %vm, kind = ?begun.kind, "begun");
    supervisor.adopt(begun.into(), requested_at).await;
    Ok(())
}

/// Waits until an operation has ended, but not longer than that, and returns it.
async fn one_ended(
    scheduler: &Scheduler,
    moves: Vec<OperationId>,
    longest: Duration,
) -> Option<OperationId> {
    let mut waits = JoinSet::new();
    for id in moves {
        let scheduler = scheduler.clone();
        waits.spawn(async move {
            loop {
                match scheduler.wait_for(id).await {
                    Ok(operation) if operation.is_done() => return id,
                    Ok(_) => {}
                    // It has ended, and is forgotten.
                    Err(refusal) if refusal.code == Code::NotFound => return id,
                    Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
                }
            }
        });
    }
    let deadline = tokio::time::sleep(longest);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            Some(ended) = waits.join_next() => {
                if let Ok(id) = ended {
                    return Some(id);
                }
            }
            () = &mut deadline => return None,
        }
    }
}
