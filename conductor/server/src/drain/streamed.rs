//! A drain before cluster version 4: a list in this conductor, for as long as its reader is connected.
//!
//! Each move is an operation, and is carried on by whichever conductor there is. What is lost with the
//! conductor or the reader is the list, which is made again when the drain is requested again.
//!
//! Invariant: no more moves are in progress for one drain than were requested.

use std::time::Duration;

use berth_domain::name::HostName;
use berth_domain::operation::{Operation, Outcome};
use berth_domain::refusal::{Code, Refusal};
use berth_proto::conductor::v1::drain_host_response::{Begun, Cordoned, Ended, Event};
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::scheduler::v1::migration::Kind;
use berth_proto::scheduler::v1::{PlannedMove, ScheduleMigrationRequest, ScheduleMoveRequest};
use berth_proto::status::to_status;
use tokio::task::JoinSet;

use super::{Sender, send};
use crate::service::ConductorApi;

/// How long to wait before a scheduler that did not answer is queried again for the end of a move.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Executes a plan, and sends what becomes of it, until the reader disconnects.
pub(super) async fn run(
    api: ConductorApi,
    host: HostName,
    parallel: usize,
    moves: Vec<PlannedMove>,
    sender: Sender,
) {
    let reader = sender.clone();
    let drain = Drain {
        api,
        host,
        parallel,
        sender,
    };
    tokio::select! {
        () = drain.run(moves) => {}
        () = reader.closed() => {}
    }
}

struct Drain {
    api: ConductorApi,
    host: HostName,
    parallel: usize,
    sender: Sender,
}

impl Drain {
    async fn run(&self, moves: Vec<PlannedMove>) {
        match self.cordon().await {
            Ok(cordoned) => self.send(Event::Cordoned(cordoned)).await,
            Err(refusal) => {
                let _ = self.sender.send(Err(to_status(&refusal))).await;
                return;
            }
        }
        let mut moves = moves.into_iter();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < self.parallel
                && let Some(planned) = moves.next()
            {
                if let Some(operation) = self.move_one(&planned).await {
                    let api = self.api.clone();
                    under_way.spawn(async move { ended(&api, operation, planned.vm).await });
                }
            }
            match under_way.join_next().await {
                Some(Ok(ended)) => self.send(Event::Ended(ended)).await,
                Some(Err(error)) => tracing::error!(%error, "a move is not watched any more"),
                None => return,
            }
        }
    }

    /// Closes the host to new VMs.
    async fn cordon(&self) -> Result<Cordoned, Refusal> {
        let scheduler = &self.api.tools.scheduler;
        let already = scheduler.host(&self.host).await?.cordoned;
        scheduler.cordon(&self.host).await?;
        Ok(Cordoned {
            already,
            operation: String::new(),
        })
    }

    /// Begins a move. Where a guest of a dead host goes was planned together with all others, so that
    /// each finds a host: the plan is followed as long as no other claim takes what it needs. What
    /// moves while it runs gets a new choice of host.
    async fn move_one(&self, planned: &PlannedMove) -> Option<Operation> {
        let scheduler = self.api.tools.scheduler.clone();
        let vm = planned.vm.clone();
        let kind = planned.kind();
        // What was planned for the guest of a dead host.
        let preferred = (kind == Kind::Evacuation).then(|| planned.clone());
        let (preferred_host, preferred_assignment) = match preferred {
            Some(preferred) => (preferred.destination, preferred.assignment),
            None => (String::new(), None),
        };
        let begun = self.api.begin_operation(async move {
            if kind == Kind::Live {
                let request = ScheduleMigrationRequest {
                    vm,
                    ..ScheduleMigrationRequest::default()
                };
                return scheduler.schedule_migration(request).await;
            }
            let request = ScheduleMoveRequest {
                vm,
                evacuate: kind == Kind::Evacuation,
                preferred_host,
                preferred_assignment,
                ..ScheduleMoveRequest::default()
            };
            scheduler.schedule_move(request).await
        });
        match begun.await {
            Ok(operation) => {
                let begun = Begun {
                    vm: planned.vm.clone(),
                    operation: operation.id.resource_name(),
                };
                self.send(Event::Begun(begun)).await;
                Some(operation)
            }
            Err(refusal) => {
                let ended = Ended {
                    vm: planned.vm.clone(),
                    host: self.host.resource_name(),
                    refusal: Some((&refusal).into()),
                };
                self.send(Event::Ended(ended)).await;
                None
            }
        }
    }

    async fn send(&self, event: Event) {
        send(&self.sender, event).await;
    }
}

/// Waits for the end of a move.
async fn ended(api: &ConductorApi, operation: Operation, vm: String) -> Ended {
    let scheduler = &api.tools.scheduler;
    let outcome = loop {
        match scheduler.wait_for(operation.id).await {
            Ok(now) => {
                if let Some(outcome) = now.outcome {
                    break outcome;
                }
            }
            // Forgotten, so that it has ended long ago.
            Err(refusal) if refusal.code == Code::NotFound => break Outcome::Succeeded,
            Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
        }
    };
    let record = match operation.vm() {
        Some(vm) => scheduler.vm(vm).await.ok(),
        None => None,
    };
    let host = record.and_then(|(record, _)| record.host);
    let refusal: Option<Refusal> = match outcome {
        Outcome::Succeeded => None,
        Outcome::Failed(refusal) => Some(refusal),
    };
    Ended {
        vm,
        host: field::name_or_empty(host.as_ref()),
        refusal: refusal.as_ref().map(Into::into),
    }
}
