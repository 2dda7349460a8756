//! The metrics and the health of a controller.
//!
//! ```text
//!   livez    it answers
//!   readyz   a scheduler answers
//! ```
//!
//! Not here: the listener and the text (`berth_process::metrics`).
//!
//! Invariant: a controller keeps no state, so that its requests are all that is counted.

use std::sync::Arc;
use std::time::Duration;

use berth_process::BoxFuture;
use berth_process::bounds::Bounds as Held;
use berth_process::metrics::{Check, Exposition, GrpcRequests, Observed, grpc};
use berth_proto::client::SchedulerChannel;
use berth_proto::cluster::v1::ListServicesRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use tonic::Status;

/// How long a scheduler may take to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1_500);

/// A controller as those who watch it see it.
pub(crate) struct Watched {
    pub(crate) requests: Arc<GrpcRequests>,
    pub(crate) held: Arc<Held>,
    pub(crate) scheduler: SchedulerChannel,
}

impl Watched {
    /// Returns once a leader has answered: what is read is confirmed by a majority.
    async fn reach_leader(&self) -> Result<(), Status> {
        let request = ListServicesRequest {
            page_size: 1,
            ..ListServicesRequest::default()
        };
        let answer = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                ClusterServiceClient::new(channel)
                    .list_services(request)
                    .await
            }
        });
        answer.await.map(|_| ())
    }
}

impl Observed for Watched {
    fn expose<'a>(&'a self, out: &'a mut Exposition) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.requests.expose(out);
            grpc::expose_held(&self.held, out);
        })
    }

    fn live(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async { vec![Check::new("answer", Ok(()))] })
    }

    fn ready(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async move {
            let reached = tokio::time::timeout(PROBE_TIMEOUT, self.reach_leader()).await;
            let reached = match reached {
                Ok(Ok(())) => Ok(()),
                Ok(Err(status)) => Err(status.message().to_owned()),
                Err(_) => Err("no scheduler answers".to_owned()),
            };
            vec![Check::new("scheduler", reached)]
        })
    }
}
