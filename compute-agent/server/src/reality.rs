//! Sends the core's requests to the scheduler: queries what is expected of this host, and reports the
//! comparison with what the hypervisor has.
//!
//! Invariant: a request that fails is dropped; the core sends the next one with its next comparison.

use std::sync::Arc;
use std::time::Duration;

use berth_agent_core::{Event, Expectation};
use berth_domain::claim::ErasureReport;
use berth_domain::id::{ClaimId, Epoch, Incarnation};
use berth_domain::name::HostName;
use berth_domain::pmem::{NAMESPACES_MAX, PmemDevice};
use berth_domain::reality::{Absence, Comparison, Finding, UNKNOWN_MAX};
use berth_domain::recovery::ReportedGuest;
use berth_domain::refusal::Refusal;
use berth_driver::Driver;
use berth_driver::domain::Ending;
use berth_proto::client::SchedulerChannel;
use berth_proto::convert::ResourceName as _;
use berth_proto::convert::field::{self, Invalid};
use berth_proto::convert::reality::read_lost;
use berth_proto::host::v1 as wire;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::status::from_status;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::grants::Grants;
use crate::shell::{SchedulerLink, SchedulerRequest};

/// The most claims of a host that are read.
const CLAIMS_MAX: usize = 100_000;

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Client that sends the core's requests.
pub(crate) struct Messenger {
    pub(crate) scheduler: SchedulerChannel,
    pub(crate) host: HostName,
    pub(crate) incarnation: Incarnation,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) grants: Grants,
}

impl Messenger {
    /// Sends requests until `stopping`.
    pub(crate) async fn run(self, mut link: SchedulerLink, stopping: CancellationToken) {
        loop {
            let request = tokio::select! {
                () = stopping.cancelled() => return,
                request = link.scheduler_requests.recv() => request,
            };
            let Some(request) = request else { return };
            let done = tokio::select! {
                () = stopping.cancelled() => return,
                done = tokio::time::timeout(TIMEOUT, self.carry_out(request)) => done,
            };
            match done {
                Ok(Ok(Some(events))) => {
                    // The shell ends before this does.
                    let _ = link.events.send(events).await;
                }
                Ok(Ok(None)) => {}
                Ok(Err(refusal)) => {
                    tracing::info!(%refusal, "request to the scheduler failed");
                }
                Err(_) => tracing::info!("request to the scheduler timed out"),
            }
        }
    }

    async fn carry_out(&self, request: SchedulerRequest) -> Result<Option<Event>, Refusal> {
        match request {
            SchedulerRequest::Expect => self.expect().await.map(|e| Some(Event::Expected(e))),
            SchedulerRequest::Report(comparison) => {
                let comparison = self.with_endings(comparison).await;
                self.report(&comparison).await.map(|()| None)
            }
            SchedulerRequest::ReportGuests(basis, guests) => {
                self.report_guests(basis, &guests).await.map(|()| None)
            }
            SchedulerRequest::ReportErasures(reports) => {
                self.report_erasures(&reports).await.map(Some)
            }
        }
        .map_err(|status| from_status(&status))
    }

    async fn expect(&self) -> Result<Expectation, Status> {
        let request = wire::ExpectDomainsRequest {
            name: self.host.resource_name(),
        };
        let answer = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                HostServiceClient::new(channel)
                    .expect_domains(request)
                    .await
            }
        });
        let mut response = answer.await?;
        if let Some(terms) = response.grant_terms.take() {
            // Before its guests are reported: what the recovered cluster grants then is valid here.
            self.grants.learn(Some(terms));
        }
        let expectation = read(response)?;
        for (vm, claim) in &expectation.lost {
            tracing::warn!(
                %vm, ?claim,
                "stopping a guest that was fenced off this host; its disks are kept"
            );
        }
        Ok(expectation)
    }

    async fn report_erasures(&self, reports: &[ErasureReport]) -> Result<Event, Status> {
        let request = wire::ReportErasuresRequest {
            name: self.host.resource_name(),
            incarnation: self.incarnation.to_string(),
            reports: reports.iter().map(Into::into).collect(),
        };
        let answer = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                HostServiceClient::new(channel)
                    .report_erasures(request)
                    .await
            }
        });
        let due = read_due(answer.await?.erasures)?;
        let due = due.into_iter().map(|(claim, device)| (claim, device.name));
        Ok(Event::ErasuresDue(due.collect()))
    }

    /// Returns a comparison that states how guests ended, where that is known.
    async fn with_endings(&self, comparison: Comparison) -> Comparison {
        let ended = |finding: &Finding| finding.absence.is_some();
        if !comparison.findings.iter().any(ended) {
            return comparison;
        }
        let driver = self.driver.clone();
        let plain = comparison.clone();
        let refined = tokio::task::spawn_blocking(move || {
            let mut comparison = comparison;
            for finding in comparison
                .findings
                .iter_mut()
                .filter(|finding| ended(finding))
            {
                match driver.ending(&finding.vm) {
                    Some(Ending::ShutDown) => finding.absence = Some(Absence::ShutDown),
                    Some(Ending::Crashed) => finding.absence = Some(Absence::Stopped),
                    None => {}
                }
            }
            comparison
        });
        refined.await.unwrap_or(plain)
    }

    async fn report_guests(&self, basis: u64, guests: &[ReportedGuest]) -> Result<(), Status> {
        tracing::info!(
            guests = guests.len(),
            "reporting all guests: the cluster recovers"
        );
        let request = wire::ReportGuestsRequest {
            name: self.host.resource_name(),
            incarnation: self.incarnation.to_string(),
            basis_revision: basis,
            guests: guests.iter().map(Into::into).collect(),
        };
        let answer = self.scheduler.call(|channel| {
            let request = request.clone();
            async move { HostServiceClient::new(channel).report_guests(request).await }
        });
        answer.await.map(drop)
    }

    async fn report(&self, comparison: &Comparison) -> Result<(), Status> {
        for domain in &comparison.unknown {
            tracing::warn!(
                name = domain.name, uuid = %domain.uuid, made_by_berth = domain.is_ours,
                "unknown domain without a claim, left alone"
            );
        }
        for finding in &comparison.findings {
            tracing::warn!(vm = %finding.vm, absence = ?finding.absence, "guest compared");
        }
        let request = wire::CompareDomainsRequest {
            name: self.host.resource_name(),
            incarnation: self.incarnation.to_string(),
            comparison: Some(comparison.into()),
        };
        let answer = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                HostServiceClient::new(channel)
                    .compare_domains(request)
                    .await
            }
        });
        answer.await.map(drop)
    }
}

fn read(wire: wire::ExpectDomainsResponse) -> Result<Expectation, Status> {
    let read = || -> Result<Expectation, Invalid> {
        let lost = wire.lost_domains.iter().map(read_lost);
        Ok(Expectation {
            revision: wire.revision,
            expected: field::each(wire.domains, "domains", CLAIMS_MAX)?,
            unknown: field::each(wire.unknown_domains, "unknown_domains", UNKNOWN_MAX)?,
            lost: lost.collect::<Result<_, _>>()?,
            fenced: wire.fenced,
            erasures: read_due(wire.erasures)?,
            recovery: (wire.recovery_epoch != 0).then_some(Epoch(wire.recovery_epoch)),
        })
    };
    read().map_err(Status::from)
}

fn read_due(wire: Vec<wire::DueErasure>) -> Result<Vec<(ClaimId, PmemDevice)>, Invalid> {
    field::each_by(wire, "erasures", NAMESPACES_MAX, |wire| {
        let claim = field::name(&wire.claim, "claim")?;
        Ok((claim, field::required(wire.device, "device")?))
    })
}
