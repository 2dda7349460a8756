//! gRPC health: whether this member can serve.
//!
//! It can when it has a state and knows a leader; reads and writes of a member without a leader
//! would only wait.

use berth_replication::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::machine::Machine;

/// The services that clients check, and the empty name for the whole server.
const SERVICES: [&str; 12] = [
    "",
    "berth.scheduler.v1.SchedulerService",
    "berth.operation.v1.OperationService",
    "berth.host.v1.HostService",
    "berth.placement.v1.PlacementService",
    "berth.placement.v1.CatalogService",
    "berth.placement.v1.ImportService",
    "berth.policy.v1.AggregateService",
    "berth.policy.v1.PolicyService",
    "berth.policy.v1.ServerGroupService",
    "berth.cluster.v1.ClusterService",
    "berth.volume.v1.VolumeService",
];

/// Reports until `stopping`.
pub(crate) async fn report(
    reporter: HealthReporter,
    handle: Handle<Machine>,
    stopping: CancellationToken,
) {
    let mut leader = handle.watch_leader();
    let mut shown = None;
    loop {
        let led = leader.borrow_and_update().role.leader.is_some();
        let has_state = handle.read_stale(|_| ()).await.is_ok();
        let status = match led && has_state {
            true => ServingStatus::Serving,
            false => ServingStatus::NotServing,
        };
        if shown != Some(status) {
            shown = Some(status);
            for service in SERVICES {
                reporter.set_service_status(service, status).await;
            }
        }
        tokio::select! {
            changed = leader.changed() => {
                if changed.is_err() {
                    break;
                }
            }
            // A snapshot that arrives changes no leader.
            () = tokio::time::sleep(std::time::Duration::from_millis(200)), if !has_state => {}
            () = stopping.cancelled() => break,
        }
    }
    for service in SERVICES {
        reporter
            .set_service_status(service, ServingStatus::NotServing)
            .await;
    }
}
