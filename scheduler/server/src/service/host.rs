//! `berth.host.v1.HostService`.

use berth_decide::Action;
use berth_domain::cpu_model::BaselineScope;
use berth_domain::host::{Host, HostReport, Liveness};
use berth_domain::id::{Incarnation, ProviderId};
use berth_domain::name::HostName;
use berth_domain::version::ServiceVersion;
use berth_proto::convert::field;
use berth_proto::convert::host::{write_listed_host, write_usage};
use berth_proto::convert::page::Page;
use berth_proto::filter::Filter;
use berth_proto::host::v1;
use berth_proto::host::v1::host_service_server::HostService;
use berth_proto::status::to_status;
use berth_state::command::Command;
use berth_state::{HostView, Reply, State};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::Context;
use super::keyed::{Caller, open, own_host};
use super::{cpu_baseline, list, policy, reality, recovery, refusal, signals};

/// Serves `HostService`.
pub(crate) struct HostApi(pub(crate) Context);

impl HostApi {
    async fn cordon(&self, caller: Caller, host: &str, cordoned: bool) -> Result<v1::Host, Status> {
        let host = field::name(host, "name")?;
        let command = Command::SetCordon { host, cordoned };
        let Reply::Host(host) = self.0.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok((&*host).into())
    }
}

#[tonic::async_trait]
impl HostService for HostApi {
    async fn register_host(
        &self,
        request: Request<v1::RegisterHostRequest>,
    ) -> Result<Response<v1::RegisterHostResponse>, Status> {
        own_host(&request, &request.get_ref().name)?;
        let (wire, caller) = open(request)?;
        let host: HostName = field::name(&wire.name, "name")?;
        let report: HostReport = field::required(wire.report, "report")?;
        refusal::check_server_url("report.agent_address", &report.agent_address)?;
        let command = Command::RegisterHost {
            host: host.clone(),
            provider: ProviderId(Uuid::new_v4()),
            report,
        };
        let request = caller.into_request(false, Action::Plain(command));
        let read = |state: &State, _: &Reply| (state.policy().self_fence_ms, Some(state.clone()));
        let (done, (self_fence_ms, state)) = self.0.submit_then(request, read).await?;
        let Reply::Host(registered) = done.reply else {
            return Err(refusal::mismatch());
        };
        self.0
            .liveness()
            .record_heartbeat(&host, self.0.monotonic_ms());
        Ok(Response::new(v1::RegisterHostResponse {
            host: Some((&*registered).into()),
            report_interval: Some(field::duration(self.0.interval_ms(self_fence_ms))),
            lease: Some(field::duration(self.0.liveness_limit_ms())),
            self_fence: self_fence_ms.map(field::duration),
            grant_terms: state.map(|state| self.0.grant_terms(&state)),
        }))
    }

    async fn report_host(
        &self,
        request: Request<v1::ReportHostRequest>,
    ) -> Result<Response<v1::ReportHostResponse>, Status> {
        own_host(&request, &request.get_ref().name)?;
        let caller = Caller::unkeyed(&request);
        let wire = request.into_inner();
        let host: HostName = field::name(&wire.name, "name")?;
        let incarnation: Incarnation = field::uuid(&wire.incarnation, "incarnation")?;
        let measured = signals::read(&host, wire.memory_signals);
        self.0.must_lead()?;
        // Before the check whether the host counts as dead: from here on it does not.
        self.0.liveness().renew(&host, self.0.monotonic_ms());
        let name = host.clone();
        let known = self.0.stale(move |state| {
            let view = state.host(&name);
            // Fields of a newer agent that an older cluster version could not store are requested again.
            let cluster = state.header().cluster_version;
            let is_cut = |host: &Host| {
                cluster >= ServiceVersion::FINALIZE_UPGRADE
                    && host.registered_version < cluster
                    && host.report.service_version > host.registered_version
            };
            let known =
                view.is_some_and(|v| v.host.report.incarnation == incarnation && !is_cut(&v.host));
            let promises = view.is_some_and(|v| v.host.report.self_fence_ms > 0);
            let is_down = view.is_some_and(|v| v.host.liveness == Liveness::Down);
            let waiting = state.is_to_make_volumes(&name);
            let self_fence_ms = state.policy().self_fence_ms;
            (known, is_down, self_fence_ms, promises, waiting)
        });
        let (known, is_down, self_fence_ms, promises, volumes_waiting) = known.await?;
        let state = self.0.stale(State::clone).await?;
        if known && (promises || self_fence_ms.is_some()) {
            // Its lease goes on from here, so a leader that was deposed without knowing it must not
            // answer: its successor counts from when it began to lead.
            self.0.confirm().await?;
        }
        if known && is_down {
            // Before it may rely on its heartbeat, any proof that it is dead has to be withdrawn.
            let liveness = Liveness::Up;
            let up = Command::SetLiveness {
                host: host.clone(),
                liveness,
            };
            self.0.command(caller, up).await?;
        }
        if known {
            let now_ms = self.0.monotonic_ms();
            let mut liveness = self.0.liveness();
            liveness.record_heartbeat(&host, now_ms);
            if let Some(measured) = measured {
                liveness.measured(&host, measured, now_ms);
            }
        }
        Ok(Response::new(v1::ReportHostResponse {
            known,
            report_interval: Some(field::duration(self.0.interval_ms(self_fence_ms))),
            lease: Some(field::duration(self.0.liveness_limit_ms())),
            self_fence: self_fence_ms.map(field::duration),
            volumes_waiting,
            grant_terms: Some(self.0.grant_terms(&state)),
        }))
    }

    async fn get_host(
        &self,
        request: Request<v1::GetHostRequest>,
    ) -> Result<Response<v1::GetHostResponse>, Status> {
        let wire = request.into_inner();
        let name: HostName = field::name(&wire.name, "name")?;
        let state = self.0.state(wire.consistency).await?;
        let Some(view) = state.host(&name) else {
            return Err(to_status(&refusal::no_host(&name)));
        };
        let claims: Vec<_> = state.claims_of_host(&name).collect();
        let topology = &view.host.report.topology;
        Ok(Response::new(v1::GetHostResponse {
            host: Some((&*view.host).into()),
            claims: claims.iter().map(|claim| (&***claim).into()).collect(),
            usage: Some(write_usage(
                topology,
                &view.usage,
                claims.iter().map(|claim| &***claim),
            )),
            hits: reality::hits(&state, view),
            revision: state.revision(),
            memory: Some(policy::memory_of(&state, view)),
            cpu: Some(policy::cpu_of(&state, view)),
        }))
    }

    async fn list_hosts(
        &self,
        request: Request<v1::ListHostsRequest>,
    ) -> Result<Response<v1::ListHostsResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::filtered(wire.page_size, &wire.page_token, &wire.filter)?;
        let filter = Filter::new::<v1::HostSummary>(&wire.filter)?;
        let state = self.0.state(wire.consistency).await?;
        let listed = list::filtered(&self.0, filter, move |filter| {
            let (views, next_page_token) = list::page(
                state.hosts(),
                &page,
                |text| HostName::new(text).ok(),
                HostName::to_string,
                |view| filter.matches_with(|| summary(&state, view)),
            )?;
            Ok(v1::ListHostsResponse {
                hosts: views.iter().map(|view| summary(&state, view)).collect(),
                next_page_token,
                revision: state.revision(),
            })
        });
        listed.await.map(Response::new)
    }

    async fn get_cpu_baseline(
        &self,
        request: Request<v1::GetCpuBaselineRequest>,
    ) -> Result<Response<v1::GetCpuBaselineResponse>, Status> {
        let wire = request.into_inner();
        let name = field::optional_name(&wire.aggregate, "aggregate")?;
        let scope = name.map_or(BaselineScope::Cluster, BaselineScope::Aggregate);
        let state = self.0.state(wire.consistency).await?;
        let described = cpu_baseline::describe(&state, &scope);
        described
            .map(Response::new)
            .map_err(|refusal| to_status(&refusal))
    }

    async fn list_memory_signals(
        &self,
        request: Request<v1::ListMemorySignalsRequest>,
    ) -> Result<Response<v1::ListMemorySignalsResponse>, Status> {
        let listed = signals::list(&self.0, request.into_inner()).await?;
        Ok(Response::new(listed))
    }

    async fn cordon_host(
        &self,
        request: Request<v1::CordonHostRequest>,
    ) -> Result<Response<v1::CordonHostResponse>, Status> {
        let (wire, caller) = open(request)?;
        let host = Some(self.cordon(caller, &wire.name, true).await?);
        Ok(Response::new(v1::CordonHostResponse { host }))
    }

    async fn uncordon_host(
        &self,
        request: Request<v1::UncordonHostRequest>,
    ) -> Result<Response<v1::UncordonHostResponse>, Status> {
        let (wire, caller) = open(request)?;
        let host = Some(self.cordon(caller, &wire.name, false).await?);
        Ok(Response::new(v1::UncordonHostResponse { host }))
    }

    async fn expect_domains(
        &self,
        request: Request<v1::ExpectDomainsRequest>,
    ) -> Result<Response<v1::ExpectDomainsResponse>, Status> {
        own_host(&request, &request.get_ref().name)?;
        let expected = reality::expect(&self.0, request.get_ref()).await?;
        Ok(Response::new(expected))
    }

    async fn report_guests(
        &self,
        request: Request<v1::ReportGuestsRequest>,
    ) -> Result<Response<v1::ReportGuestsResponse>, Status> {
        own_host(&request, &request.get_ref().name)?;
        let caller = Caller::unkeyed(&request);
        let reported = recovery::report_guests(&self.0, caller, request.into_inner()).await?;
        Ok(Response::new(reported))
    }

    async fn compare_domains(
        &self,
        request: Request<v1::CompareDomainsRequest>,
    ) -> Result<Response<v1::CompareDomainsResponse>, Status> {
        own_host(&request, &request.get_ref().name)?;
        let caller = Caller::unkeyed(&request);
        let compared = reality::compare(&self.0, caller, request.into_inner()).await?;
        Ok(Response::new(compared))
    }

    async fn report_erasures(
        &self,
        request: Request<v1::ReportErasuresRequest>,
    ) -> Result<Response<v1::ReportErasuresResponse>, Status> {
        own_host(&request, &request.get_ref().name)?;
        let caller = Caller::unkeyed(&request);
        let reported = reality::report_erasures(&self.0, caller, request.into_inner()).await?;
        Ok(Response::new(reported))
    }

    async fn fence_host(
        &self,
        request: Request<v1::FenceHostRequest>,
    ) -> Result<Response<v1::FenceHostResponse>, Status> {
        let (wire, caller) = open(request)?;
        let fenced = reality::fence(&self.0, caller, wire).await?;
        Ok(Response::new(fenced))
    }

    async fn verify_fence(
        &self,
        request: Request<v1::VerifyFenceRequest>,
    ) -> Result<Response<v1::VerifyFenceResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let fence: v1::FenceHostRequest = message
            .fence
            .ok_or_else(|| refusal::invalid("fence", "is required"))?;
        let (wire, caller) = open(Request::from_parts(metadata, extensions, fence))?;
        let verified = reality::verify_fence(&self.0, caller, wire).await?;
        Ok(Response::new(verified))
    }

    async fn write_off_pmem(
        &self,
        request: Request<v1::WriteOffPmemRequest>,
    ) -> Result<Response<v1::WriteOffPmemResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = Command::WriteOffPmem {
            host: field::name(&wire.name, "name")?,
            namespace: field::pmem_name(&wire.namespace, "namespace")?,
        };
        let Reply::Host(host) = self.0.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        let host = Some((&*host).into());
        Ok(Response::new(v1::WriteOffPmemResponse { host }))
    }

    async fn remove_host(
        &self,
        request: Request<v1::RemoveHostRequest>,
    ) -> Result<Response<v1::RemoveHostResponse>, Status> {
        let (wire, caller) = open(request)?;
        let host = field::name(&wire.name, "name")?;
        self.0.command(caller, Command::RemoveHost { host }).await?;
        Ok(Response::new(v1::RemoveHostResponse {}))
    }
}

fn summary(state: &State, view: &HostView) -> v1::HostSummary {
    let host: &Host = &view.host;
    let capacity = view.inventories.iter();
    v1::HostSummary {
        host: Some(write_listed_host(host)),
        used: field::amounts(&view.used),
        capacity: capacity
            .map(|(class, inventory)| (class.to_string(), inventory.capacity()))
            .collect(),
        claims: u32::try_from(state.claim_count_of_host(&host.name)).unwrap_or(u32::MAX),
        memory: Some(policy::memory_of(state, view)),
        cpu: Some(policy::cpu_of(state, view)),
        cpu_model: host
            .report
            .cpu
            .as_deref()
            .map(|cpu| (&*cpu.host_model).into()),
    }
}
