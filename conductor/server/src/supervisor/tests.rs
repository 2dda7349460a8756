//! Goal: what a conductor held in an earlier life is taken up again whatever fails on the way.
//! Method: a scheduler of a few lines that lists operations and gives leases.

use std::sync::{Arc, Mutex};

use berth_domain::id::{ClaimId, MigrationId, TimeMs};
use berth_domain::name::{ServiceName, VmName};
use berth_domain::operation::{Lease, Subject};
use berth_domain::ownership::Ownership;
use berth_domain::version::ServiceVersion;
use berth_proto::client::{Dialer, SchedulerChannel};
use berth_proto::operation::v1 as wire;
use berth_proto::operation::v1::operation_service_server::{
    OperationService, OperationServiceServer,
};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_stream::Empty;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::*;
use crate::agents::{Agents, Timeouts};
use crate::scheduler::Scheduler;

fn operation(number: u128) -> Operation {
    Operation {
        force_complete: false,
        id: OperationId(Uuid::from_u128(number)),
        kind: Kind::LiveMigrate {
            migration: MigrationId(Uuid::from_u128(number)),
        },
        subject: Subject::Vm(VmName::new("a").unwrap()),
        requested_host: None,
        excluded: Vec::new(),
        claim: Some(ClaimId(Uuid::from_u128(number))),
        lease: Some(Lease {
            conductor: ServiceName::new("c1").unwrap(),
            epoch: Epoch(1),
            expires_at: TimeMs(1),
        }),
        cancelled: false,
        log: Vec::new(),
        outcome: None,
        created_at: TimeMs(1),
        ended_at: None,
        ownership: Ownership::default(),
    }
}

/// A scheduler with operations of this conductor that are held, none of which is expired.
#[derive(Clone, Default)]
struct Operations {
    held: Vec<Operation>,
    /// How many of the next lists fail.
    failures: Arc<Mutex<u32>>,
    taken: Arc<Mutex<BTreeSet<String>>>,
}

type Answered<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl OperationService for Operations {
    type WatchOperationStream = Empty<Result<wire::WatchOperationResponse, Status>>;

    async fn list_operations(
        &self,
        request: Request<wire::ListOperationsRequest>,
    ) -> Answered<wire::ListOperationsResponse> {
        let mut answer = wire::ListOperationsResponse::default();
        if !request.into_inner().lease_expired_only {
            let mut failures = self.failures.lock().unwrap();
            if *failures > 0 {
                *failures -= 1;
                return Err(Status::internal("said the test"));
            }
            let taken = self.taken.lock().unwrap();
            let held = self.held.iter().map(wire::Operation::from);
            answer.operations = held.filter(|o| !taken.contains(&o.name)).collect();
        }
        Ok(Response::new(answer))
    }

    async fn take_lease(
        &self,
        request: Request<wire::TakeLeaseRequest>,
    ) -> Answered<wire::TakeLeaseResponse> {
        let name = request.into_inner().operation;
        let held = self.held.iter().map(wire::Operation::from);
        let operation = held.into_iter().find(|o| o.name == name);
        self.taken.lock().unwrap().insert(name);
        Ok(Response::new(wire::TakeLeaseResponse {
            operation,
            grant: None,
        }))
    }

    async fn get_operation(
        &self,
        _: Request<wire::GetOperationRequest>,
    ) -> Answered<wire::GetOperationResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn wait_operation(
        &self,
        _: Request<wire::WaitOperationRequest>,
    ) -> Answered<wire::WaitOperationResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn watch_operation(
        &self,
        _: Request<wire::WatchOperationRequest>,
    ) -> Answered<Self::WatchOperationStream> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn cancel_operation(
        &self,
        _: Request<wire::CancelOperationRequest>,
    ) -> Answered<wire::CancelOperationResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn force_complete_operation(
        &self,
        _: Request<wire::ForceCompleteOperationRequest>,
    ) -> Answered<wire::ForceCompleteOperationResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn advance(&self, _: Request<wire::AdvanceRequest>) -> Answered<wire::AdvanceResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn renew_leases(
        &self,
        _: Request<wire::RenewLeasesRequest>,
    ) -> Answered<wire::RenewLeasesResponse> {
        Err(Status::unimplemented("not in this test"))
    }
}

/// Runs a supervisor until the scheduler has given it all that it held.
async fn take_all(operations: &Operations) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tonic::transport::Server::builder()
        .add_service(OperationServiceServer::new(operations.clone()))
        .serve_with_incoming(TcpIncoming::from(listener));
    let server = tokio::spawn(server);
    let scheduler = Scheduler::new(
        SchedulerChannel::new([format!("http://{address}")]).unwrap(),
        ServiceName::new("c1").unwrap(),
        Duration::from_secs(60),
        ServiceVersion::CURRENT,
    );
    let tools = Tools {
        metrics: crate::metrics::Metrics::new(&[]),
        scheduler,
        agents: Agents::new(
            Dialer::default(),
            Timeouts {
                question: Duration::from_secs(1),
                work: Duration::from_secs(1),
            },
        ),
        calls: Arc::new(Semaphore::new(8)),
        fence: Default::default(),
    };
    let settings = Settings {
        takeover_interval: Duration::from_millis(20),
        operations_max: 10,
    };
    let stopping = CancellationToken::new();
    let (_handle, supervisor) = new(tools, settings, stopping.clone());
    let supervisor = tokio::spawn(supervisor);
    let deadline = Instant::now() + Duration::from_secs(20);
    while operations.taken.lock().unwrap().len() < operations.held.len() {
        assert!(Instant::now() < deadline, "waited in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stopping.cancel();
    supervisor.await.unwrap();
    server.abort();
}

/// A search that failed counted as done, and what the conductor had held stayed where it was until
/// its leases ran out.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_held_before_is_looked_for_until_the_scheduler_has_answered() {
    let operations = Operations {
        held: (1..=3).map(operation).collect(),
        failures: Arc::new(Mutex::new(2)),
        ..Operations::default()
    };
    take_all(&operations).await;
    assert_eq!(*operations.failures.lock().unwrap(), 0);
}
