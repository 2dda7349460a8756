//! `DrainHost`: a drain is planned, begun as an operation, and followed for its caller.
//!
//! Not here: what is done next for it ([`berth_saga::drain`]), and that it is done ([`drive`]).
//!
//! Invariant: a reader that disconnects ends nothing, from cluster version 4 on. Before, there is no
//! such operation, and the drain is [`streamed`].

mod drive;
mod streamed;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_domain::name::{HostName, VmName};
use berth_domain::operation::drain::{DRAINED_MAX, PARALLEL, PARALLEL_MAX};
use berth_domain::operation::{Drain, DrainSpec, Operation, Progress};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion};
use berth_proto::conductor::v1::drain_host_response::{Begun, Cordoned, Ended, Event, Plan};
use berth_proto::conductor::v1::{DrainHostRequest, DrainHostResponse};
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::scheduler::v1::{BeginDrainRequest, PlanDrainRequest, PlanDrainResponse};
use berth_proto::status::to_status;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub(crate) use drive::drive;

use crate::service::ConductorApi;

/// How often a drain is read that is followed.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// How many messages may be on their way to a reader.
const AHEAD_MAX: usize = 16;

/// The stream of events of a drain.
pub(crate) type Events = ReceiverStream<Result<DrainHostResponse, Status>>;
/// Where they are sent.
type Sender = mpsc::Sender<Result<DrainHostResponse, Status>>;

/// Plans a drain and begins it.
pub(crate) async fn begin(
    api: ConductorApi,
    request: DrainHostRequest,
    stopping: CancellationToken,
) -> Result<Events, Status> {
    let host: HostName = field::name(&request.host, "host")?;
    let spec = spec(&request)?;
    let plan_request = PlanDrainRequest {
        host: host.resource_name(),
        evacuate: spec.evacuate,
        cold: spec.cold,
        by_policy: false,
    };
    let plan = api.tools.scheduler.plan_drain(plan_request).await;
    let plan = plan.map_err(|refusal| to_status(&refusal))?;
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let event = Plan {
        moves: plan.moves.clone(),
        stuck: plan.stuck.clone(),
    };
    if request.validate_only {
        send(&sender, Event::Plan(event)).await;
        return Ok(ReceiverStream::new(receiver));
    }
    let operation = match drains_by_operation(&api, request.no_wait).await {
        Ok(true) => Some(begin_operation(&api, &host, spec, &plan, request.request_id).await),
        Ok(false) => None,
        Err(refusal) => Some(Err(refusal)),
    };
    let operation = operation.transpose();
    let operation = operation.map_err(|refusal| to_status(&refusal))?;
    let no_wait = request.no_wait;
    tokio::spawn(async move {
        let reader = sender.clone();
        let followed = async move {
            send(&sender, Event::Plan(event)).await;
            match operation {
                Some(operation) => follow(&api, operation, &plan, no_wait, &sender).await,
                None => {
                    let parallel = spec.parallel as usize;
                    streamed::run(api, host, parallel, plan.moves, sender).await;
                }
            }
        };
        tokio::select! {
            () = followed => {}
            () = reader.closed() => {}
            () = stopping.cancelled() => {}
        }
    });
    Ok(ReceiverStream::new(receiver))
}

fn spec(request: &DrainHostRequest) -> Result<DrainSpec, Invalid> {
    let parallel = match request.parallel_max {
        0 => PARALLEL,
        number if number <= PARALLEL_MAX => number,
        _ => {
            let rule = format!("must be at most {PARALLEL_MAX}");
            return Err(Invalid::new("parallel_max", rule));
        }
    };
    if request.cold && request.evacuate {
        let rule = "must be false for an evacuation, which restarts all VMs";
        return Err(Invalid::new("cold", rule));
    }
    Ok(DrainSpec {
        evacuate: request.evacuate,
        cold: request.cold,
        parallel,
        by_policy: false,
    })
}

/// Returns whether a drain is an operation. Refuses one that is not to be waited for, and would end
/// with its reader.
async fn drains_by_operation(api: &ConductorApi, no_wait: bool) -> Result<bool, Refusal> {
    let scheduler = &api.tools.scheduler;
    let cluster = scheduler.cluster_version().await?;
    let present = cluster.min(scheduler.version());
    let needed = ServiceVersion::DRAINS;
    if present < needed && no_wait {
        let message = format!(
            "a drain that is not waited for requires cluster version {needed}, the cluster is at \
             {present}"
        );
        return Err(
            Refusal::new(Code::FailedPrecondition, CLUSTER_TOO_OLD, message)
                .with("cluster_version", present)
                .with("needed_version", needed)
                .with_hint(
                    "upgrade every scheduler and conductor, then `berth cluster upgrade finalize`",
                ),
        );
    }
    Ok(present >= needed)
}

/// Begins a planned drain.
pub(crate) async fn begin_operation(
    api: &ConductorApi,
    host: &HostName,
    spec: DrainSpec,
    plan: &PlanDrainResponse,
    request_id: String,
) -> Result<Operation, Refusal> {
    let scheduler = api.tools.scheduler.clone();
    let command = BeginDrainRequest {
        host: host.resource_name(),
        spec: Some((&spec).into()),
        // Where there are more, the refusal says so.
        moves: plan.moves.iter().take(DRAINED_MAX).cloned().collect(),
        request_id,
        ..BeginDrainRequest::default()
    };
    api.begin_operation(async move { scheduler.begin_drain(command).await })
        .await
}

async fn send(sender: &Sender, event: Event) {
    let message = DrainHostResponse { event: Some(event) };
    // A reader that disconnects is noticed elsewhere.
    let _ = sender.send(Ok(message)).await;
}

/// Sends what becomes of a drain until it has ended.
async fn follow(
    api: &ConductorApi,
    begun: Operation,
    plan: &PlanDrainResponse,
    no_wait: bool,
    sender: &Sender,
) {
    let already = begun.drain().is_some_and(|drain| drain.was_cordoned);
    let operation = begun.id.resource_name();
    let cordoned = Cordoned { already, operation };
    send(sender, Event::Cordoned(cordoned)).await;
    if no_wait {
        return;
    }
    let mut shown = Shown {
        progress: BTreeMap::new(),
        stuck: plan.stuck.iter().map(|stuck| stuck.vm.clone()).collect(),
    };
    loop {
        match api.tools.scheduler.operation(begun.id).await {
            Ok(now) => {
                for event in shown.events(&now) {
                    send(sender, event).await;
                }
                if now.is_done() {
                    return;
                }
            }
            // It has ended, and is forgotten.
            Err(refusal) if refusal.code == Code::NotFound => return,
            Err(refusal) => tracing::debug!(%refusal, "reading a drain failed"),
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

/// What a reader has seen of a drain.
struct Shown {
    progress: BTreeMap<VmName, Progress>,
    /// What the plan said of it already.
    stuck: BTreeSet<String>,
}

impl Shown {
    /// Returns the events since.
    fn events(&mut self, operation: &Operation) -> Vec<Event> {
        let Some(drain) = operation.drain() else {
            return Vec::new();
        };
        let mut events = Vec::new();
        for drained in &drain.vms {
            let vm = &drained.vm;
            let progress = drained.progress.clone();
            if self.progress.get(vm) == Some(&progress) {
                continue;
            }
            events.extend(self.event(drain, vm, &progress));
            self.progress.insert(vm.clone(), progress);
        }
        events
    }

    fn event(&self, drain: &Drain, vm: &VmName, progress: &Progress) -> Option<Event> {
        let vm = vm.resource_name();
        let ended = |host: String, refusal: Option<&Refusal>| {
            Some(Event::Ended(Ended {
                vm: vm.clone(),
                host,
                refusal: refusal.map(Into::into),
            }))
        };
        match progress {
            Progress::Waiting => None,
            Progress::Moving { operation } => Some(Event::Begun(Begun {
                vm,
                operation: operation.resource_name(),
            })),
            Progress::Moved { host } => ended(host.resource_name(), None),
            Progress::Gone => ended(String::new(), None),
            Progress::Stays { .. } if self.stuck.contains(&vm) => None,
            Progress::Stays { refusal } => ended(drain.host.resource_name(), Some(refusal)),
        }
    }
}
