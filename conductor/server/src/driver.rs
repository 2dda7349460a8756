//! Drives one saga: carries its effects out and returns the answers to it.
//!
//! Invariant: it decides nothing. Each effect is one call, and its outcome is the next event.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::agent::{Call, Failure, Reply};
use berth_domain::grant;
use berth_domain::id::{Epoch, OperationId};
use berth_domain::operation::Operation;
use berth_domain::refusal::{Code, Refusal};
use berth_saga::{AgentCall, Effect, Ended, Event, Facts, Saga, TransferWatch};
use berth_traces::within;
use tokio::sync::Semaphore;

use crate::agents::Agents;
use crate::fence::FenceCommand;
use crate::image;
use crate::metrics::{Answer, Metrics};
use crate::phases::Phases;
use crate::scheduler::{Begun, Scheduler};
use crate::traces;

/// The wait between attempts to read the operation and its facts.
const READ_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How often a cancellation is checked for during a long call.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// What a driver works with. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) scheduler: Scheduler,
    pub(crate) agents: Agents,
    /// One permit per call in progress.
    pub(crate) calls: Arc<Semaphore>,
    /// The command that turns hosts off.
    pub(crate) fence: Arc<FenceCommand>,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
}

/// Carries an operation out, from where its log ends. Its lease has to be this conductor's.
/// `requested_at` is absent if the operation was requested from another conductor.
pub(crate) async fn drive(tools: Tools, begun: Begun, requested_at: Option<Instant>) -> Ended {
    let Begun { operation, boot } = begun;
    let id = operation.id;
    let epoch = operation.lease.as_ref().map(|l| l.epoch);
    let _granted = Granted(&tools, id, epoch);
    let timer = tools.metrics.begin(&operation.kind);
    let scheduler = &tools.scheduler;
    let answered = match boot {
        Some(boot) => scheduler.facts_of_boot(&operation, *boot).await.ok(),
        None => None,
    };
    let (operation, facts) = loop {
        if let Some(facts) = answered {
            break (operation, facts);
        }
        let reading = scheduler.read_known(&operation);
        match within(traces::of_operation(id), reading).await {
            Ok((operation, Some(facts))) => break (operation, facts),
            Ok((_, None)) => return Ended::Finished,
            Err(refusal) if refusal.code == Code::NotFound => return Ended::LeaseLost,
            Err(refusal) => {
                tracing::warn!(operation = %id, %refusal, "reading the operation failed");
                tokio::time::sleep(READ_RETRY_INTERVAL).await;
            }
        }
    };
    if operation.lease.as_ref().map(|l| l.epoch) != epoch {
        return Ended::LeaseLost;
    }
    let mut known = facts.clone();
    let mut saga = Saga::resume(operation, facts);
    let mut phases = Phases::new(requested_at);
    let mut spans = traces::CallSpans::default();
    let mut event = Event::Begin;
    loop {
        let effect = saga.step(event);
        let effect = effect.expect("every answer leads to an effect");
        event = match effect {
            Effect::Done(ended) => {
                phases.log(saga.operation(), Instant::now());
                timer.end(ended, saga.operation());
                return ended;
            }
            Effect::Wait { ms } => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Event::Elapsed
            }
            Effect::Watch(watch) => watch_transfer(&tools, &watch, &mut phases).await,
            Effect::Commit(_) | Effect::ScheduleNext { .. } | Effect::Refresh | Effect::Call(_) => {
                if let Some(refused) = fetch_images(&tools, &mut saga, &effect).await {
                    event = refused;
                    continue;
                }
                // Copying disks may take hours and takes no permit from other calls.
                let fetches = fetches(&effect);
                let begun = Instant::now();
                let permit = match fetches {
                    true => None,
                    false => Some(tools.calls.acquire().await),
                };
                let span = spans.of_effect(&saga, &effect);
                let event = {
                    let performing = perform(&tools, &mut known, id, effect);
                    let mut done = pin!(within(span, performing));
                    loop {
                        tokio::select! {
                            event = &mut done => break event,
                            () = cancelled(&tools.scheduler, saga.operation()) => {
                                saga.step(Event::CancelRequested);
                                // Its undo stops it, so its end is not awaited.
                                if fetches {
                                    break given_up();
                                }
                            }
                        }
                    }
                };
                drop(permit);
                if let (Event::Answered(result), Some((step, is_undo))) =
                    (&event, saga.called_step())
                {
                    let answer = answer_of(result.as_ref().err());
                    tools.metrics.answered(step, answer, begun.elapsed());
                    if result.is_ok() && !is_undo {
                        phases.answered(step, Instant::now());
                    }
                }
                event
            }
        };
    }
}

/// Returns how an agent answered.
fn answer_of(failure: Option<&Failure>) -> Answer {
    match failure {
        None => Answer::Ok,
        Some(Failure::Refused(_)) => Answer::Refused,
        Some(Failure::Unreachable { .. }) => Answer::Unreachable,
    }
}

/// Drops the grant of an operation once it is no longer driven, also where its driver is stopped.
struct Granted<'a>(&'a Tools, OperationId, Option<Epoch>);

impl Drop for Granted<'_> {
    fn drop(&mut self) {
        self.0.scheduler.grants().forget(self.1, self.2);
    }
}

/// Has the host of a call fetch the images that its guest is made from. Returns what comes of the call where
/// it is not to be made: it has no effect then. May take hours, and takes no permit from other calls.
async fn fetch_images(tools: &Tools, saga: &mut Saga, effect: &Effect) -> Option<Event> {
    let Effect::Call(call) = effect else {
        return None;
    };
    let images = image::needs(&call.call);
    if images.is_empty() {
        return None;
    }
    let failure = tokio::select! {
        fetched = image::ensure(tools, call, &images) => fetched.err()?,
        () = cancelled(&tools.scheduler, saga.operation()) => {
            saga.step(Event::CancelRequested);
            let id = saga.operation().id;
            let message = format!("operation {id} was cancelled while an image was fetched");
            Failure::Refused(Refusal::new(Code::Cancelled, "OPERATION_CANCELLED", message))
        }
    };
    let (host, about) = (&call.host, call.call.method());
    tracing::info!(operation = %call.fence.operation, %host, call = about, ?failure, "images are missing");
    Some(Event::Answered(Err(failure)))
}

/// Returns whether an effect has an agent fetch disks.
fn fetches(effect: &Effect) -> bool {
    matches!(effect, Effect::Call(call) if matches!(call.call, Call::FetchDisks(_)))
}

/// Returns the event of a call whose answer is no longer awaited.
fn given_up() -> Event {
    Event::Answered(Err(Failure::Unreachable {
        message: "the operation was cancelled meanwhile".to_owned(),
    }))
}

/// Waits for the end of a transfer. Takes no permit, since it changes nothing.
async fn watch_transfer(tools: &Tools, watch: &TransferWatch, phases: &mut Phases) -> Event {
    let begun = tokio::time::Instant::now();
    match tools.agents.transfer_end(watch).await {
        Ok(Some(end)) => {
            if let Some(end) = end {
                tools.metrics.transferred(end.took);
                phases.ended(end, Instant::now());
            }
            Event::TransferEnded
        }
        Ok(None) => Event::Elapsed,
        Err(failure) => {
            tracing::debug!(host = %watch.host, ?failure, "waiting for the end of the transfer failed");
            tokio::time::sleep_until(begun + Duration::from_millis(watch.blind_ms)).await;
            Event::Elapsed
        }
    }
}

/// Waits until the operation is cancelled. Its driver would notice with the next record, but a call
/// may take minutes.
async fn cancelled(scheduler: &Scheduler, operation: &Operation) {
    if operation.cancelled {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
        let read = scheduler.operation(operation.id).await;
        if read.is_ok_and(|operation| operation.cancelled) {
            tracing::info!(operation = %operation.id, "operation cancelled");
            return;
        }
    }
}

/// Makes the one call that an effect is.
async fn perform(tools: &Tools, known: &mut Facts, id: OperationId, effect: Effect) -> Event {
    match effect {
        Effect::Commit(record) => {
            tracing::debug!(operation = %id, step = ?record.step, mark = ?record.mark, "log");
            let result = tools.scheduler.advance(&record).await;
            if let Err(refusal) = &result {
                tracing::warn!(operation = %id, step = ?record.step, %refusal, "record refused");
            }
            Event::Committed(result.map(Box::new))
        }
        Effect::ScheduleNext { operation, epoch } => {
            Event::Scheduled(tools.scheduler.schedule_next(operation, epoch).await)
        }
        Effect::Refresh => {
            let read = tools.scheduler.read(id).await;
            Event::Refreshed(read.map(|(operation, facts)| {
                // The VM of a done operation may be deleted; its facts are not used then.
                if let Some(facts) = facts {
                    *known = facts;
                }
                Box::new((operation, known.clone()))
            }))
        }
        Effect::Call(call) => {
            let (host, about) = (call.host.clone(), call.call.method());
            let result = granted(tools, *call).await;
            match &result {
                Ok(_) => tracing::debug!(operation = %id, %host, call = about, "call answered"),
                Err(failure) => {
                    tracing::info!(operation = %id, %host, call = about, ?failure, "call failed");
                }
            }
            Event::Answered(result.map(Box::new))
        }
        Effect::Wait { .. } | Effect::Watch(_) | Effect::Done(_) => Event::Elapsed,
    }
}

/// Calls an agent with what the scheduler granted; once more where the agent accepts a newer grant only.
async fn granted(tools: &Tools, call: AgentCall) -> Result<Reply, Failure> {
    let (fence, grants) = (call.fence, tools.scheduler.grants());
    let result = tools.agents.call(call.clone(), grants.of(&fence)).await;
    let is_renewable = |failure: &Failure| match failure {
        Failure::Refused(refusal) => grant::is_renewable(refusal),
        Failure::Unreachable { .. } => false,
    };
    if !result.as_ref().is_err_and(is_renewable) {
        return result;
    }
    // The response holds a new one, if the lease is still this conductor's.
    if let Err(refusal) = tools.scheduler.operation(fence.operation).await {
        tracing::warn!(operation = %fence.operation, %refusal, "no newer grant");
    }
    match tools.agents.call(call, grants.of(&fence)).await {
        // Nothing was done, and it may be later: its agent learns keys with its heartbeats.
        Err(Failure::Refused(refusal)) if grant::is_renewable(&refusal) => {
            let message = refusal.message;
            Err(Failure::Unreachable { message })
        }
        result => result,
    }
}

/// Returns the refusal of a conductor at its limit of operations.
pub(crate) fn busy(operations: usize) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "CONDUCTOR_BUSY",
        format!("this conductor carries out {operations} operations already"),
    )
    .with_hint("try again later, or use another conductor")
}
