//! Whether schedulers are reached, which is logged at the start: a wrong address would otherwise be noticed
//! with the first volume.
//!
//! Not here: what schedulers are called for.

use std::time::Duration;

use berth_proto::client::SchedulerChannel;
use berth_proto::cluster::v1::GetClusterStatusRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use tokio_util::sync::CancellationToken;

/// The waits between attempts.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Calls the schedulers until one answers, and logs each attempt.
pub(crate) async fn run(scheduler: SchedulerChannel, stopping: CancellationToken) {
    tokio::select! {
        () = until_reached(scheduler) => {}
        () = stopping.cancelled() => {}
    }
}

async fn until_reached(scheduler: SchedulerChannel) {
    // Further attempts wait for schedulers that are being started.
    let mut calling = scheduler.clone().without_patience();
    let mut wait = WAIT_MIN;
    loop {
        let status = calling.read(|channel| async move {
            let request = GetClusterStatusRequest {};
            ClusterServiceClient::new(channel)
                .get_cluster_status(request)
                .await
        });
        match status.await {
            Ok(status) => {
                let (cluster, address) = (status.cluster_id, calling.current());
                tracing::info!(cluster, address, "reached a scheduler");
                return;
            }
            Err(status) => {
                let refusal = calling.not_registered(&status);
                let hint = refusal.hint.as_deref();
                tracing::warn!(%refusal, hint, "no scheduler is reached");
            }
        }
        calling = scheduler.clone();
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
}
