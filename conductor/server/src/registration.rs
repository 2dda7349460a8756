//! Registers this conductor with the scheduler, and reports its health to clients.
//!
//! Invariant: its health is SERVING once it is registered.

use std::sync::Arc;
use std::time::Duration;

use berth_domain::id::TimeMs;
use berth_domain::service::Service;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::metrics::Metrics;
use crate::scheduler::Scheduler;

/// The services whose health clients query, and the empty name for the whole.
const SERVICES: [&str; 2] = ["", "berth.conductor.v1.ConductorService"];
/// How often the registration is verified: a request that an earlier run of this conductor
/// sent may arrive after that of this run.
const LOOK: Duration = Duration::from_secs(10);
/// The waits between attempts.
const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Registers, then keeps the registration, until `stopping` is cancelled, which says that
/// it no longer serves.
pub(crate) async fn run(
    scheduler: Scheduler,
    address: String,
    (reporter, metrics): (HealthReporter, Arc<Metrics>),
    stopping: CancellationToken,
) {
    show(&reporter, ServingStatus::NotServing).await;
    let service = Service {
        name: scheduler.name().clone(),
        address,
        version: scheduler.version(),
        registered_at: TimeMs(0),
    };
    tokio::select! {
        () = register(&scheduler, &service) => {
            show(&reporter, ServingStatus::Serving).await;
            metrics.set_registered(true);
            tokio::select! {
                () = keep_registered(&scheduler, &service) => {}
                () = stopping.cancelled() => {}
            }
            metrics.set_registered(false);
        }
        () = stopping.cancelled() => {}
    }
    show(&reporter, ServingStatus::NotServing).await;
}

async fn keep_registered(scheduler: &Scheduler, service: &Service) {
    loop {
        tokio::time::sleep(LOOK).await;
        match scheduler.is_registered(service).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(
                    name = %service.name,
                    "another registration stands under this name: an earlier run's, or another \
                     conductor has the same name"
                );
                register(scheduler, service).await;
            }
            Err(refusal) => tracing::debug!(%refusal, "registration check failed"),
        }
    }
}

async fn register(scheduler: &Scheduler, service: &Service) {
    let mut wait = WAIT_MIN;
    let mut is_first = true;
    while let Err(refusal) = scheduler.register(service, is_first).await {
        is_first = false;
        let hint = refusal.hint.as_deref();
        tracing::warn!(%refusal, hint, "registration failed");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
    tracing::info!(name = %service.name, address = service.address, "registered");
}

async fn show(reporter: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        reporter.set_service_status(service, status).await;
    }
}
