//! What each view reads: the methods of the gRPC services, called within the process.
//!
//! Invariant: nothing is read around the services' own reads, so a view agrees with what a client gets, stale
//! or not.

use berth_domain::refusal::{Code, Refusal};
use berth_page::cluster::{Cluster, Failover as Verdicts};
use berth_page::host::HostView;
use berth_page::route::{AuditQuery, VmsQuery, WhyNotQuery};
use berth_page::vm::VmView;
use berth_page::why_not::Outcome;
use berth_page::{Frame, Route};
use berth_proto::audit::v1 as audit;
use berth_proto::audit::v1::audit_service_server::AuditService as _;
use berth_proto::cluster::v1 as cluster;
use berth_proto::cluster::v1::cluster_service_server::ClusterService as _;
use berth_proto::event::v1 as event;
use berth_proto::event::v1::event_service_server::EventService as _;
use berth_proto::host::v1 as host;
use berth_proto::host::v1::host_service_server::HostService as _;
use berth_proto::operation::v1 as operation;
use berth_proto::operation::v1::operation_service_server::OperationService as _;
use berth_proto::planner::v1 as planner;
use berth_proto::planner::v1::planner_service_server::PlannerService as _;
use berth_proto::scheduler::v1 as scheduler;
use berth_proto::scheduler::v1::scheduler_service_server::SchedulerService as _;
use berth_proto::status::{from_status, to_status};
use berth_proto::types::v1 as types;
use berth_proto::volume::v1 as volume;
use berth_proto::volume::v1::volume_service_server::VolumeService as _;
use berth_replication::runtime::in_background;
use berth_state::State;
use berth_tls::Peer;
use tokio::task::spawn_blocking;
use tokio_stream::StreamExt as _;
use tonic::{Request, Status};
use uuid::Uuid;

use super::guests::Known;
use super::overview;
use crate::metrics::Failover;
use crate::service::{
    AuditApi, ClusterApi, Context, EventApi, HostApi, OperationApi, PlannerApi, SchedulerApi,
    VolumeApi,
};

/// How many operations are listed, and how many pages of them are read to find those of a VM.
const OPERATIONS_MAX: usize = 50;
const OPERATION_PAGES_MAX: usize = 20;
/// How many entries of a history are shown.
const HISTORY_MAX: usize = 300;
/// The most entries of a page of a list.
const PAGE: i32 = 1000;
/// The failure of each host is verified for a view in a cluster of at most so many: the time grows with the
/// square of their number.
const VERIFIED_HOSTS_MAX: usize = 1_000;

/// A view that is read, and is made HTML when its frame is known.
pub(super) struct View {
    /// The revision of what was read first.
    pub(super) revision: u64,
    pub(super) render: Box<dyn FnOnce(&Frame) -> String + Send>,
}

impl View {
    pub(super) fn new(
        revision: u64,
        render: impl FnOnce(&Frame) -> String + Send + 'static,
    ) -> Self {
        Self {
            revision,
            render: Box::new(render),
        }
    }
}

/// Reads for a caller.
pub(super) struct Reader<'a> {
    pub(super) context: &'a Context,
    pub(super) failover: &'a Failover,
    pub(super) peer: Option<Peer>,
    /// The token of the caller's forms.
    pub(super) token: String,
    /// What agents know for the view.
    pub(super) known: Known,
}

/// Works on a frozen state, away from the tasks of requests.
async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    let done = spawn_blocking(move || in_background(work)).await;
    done.map_err(|error| Status::internal(error.to_string()))
}

impl Reader<'_> {
    /// Reads the view of a route.
    pub(super) async fn view(&self, route: &Route) -> Result<View, Status> {
        match route {
            Route::Cluster => self.cluster().await,
            Route::Failover => self.failover().await,
            Route::Hosts(query) => {
                let query = query.clone();
                let state = self.state().await?;
                let revision = state.revision();
                let rows = in_thread(move || overview::rows(&state)).await?;
                Ok(View::new(revision, move |frame| {
                    berth_page::hosts::render(frame, &query, &rows)
                }))
            }
            Route::Host(name) => self.host(name).await,
            Route::Vms(query) => self.vms(query).await,
            Route::Vm(name) => self.vm(name).await,
            Route::VmHistory(name) => self.history(name).await,
            Route::Console(name) => self.console(name).await,
            Route::WhyNot(query) => self.why_not(query).await,
            Route::Balance => self.balance().await,
            Route::Audit(query) => self.audit(query).await,
            Route::Action(action) => self.confirm(action).await,
            Route::Asset(_) | Route::Events(_) | Route::Login(_) | Route::Logout => {
                Err(Status::internal("it is no view"))
            }
        }
    }

    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(peer) = &self.peer {
            request.extensions_mut().insert(peer.clone());
        }
        request
    }

    pub(super) async fn state(&self) -> Result<State, Status> {
        self.context.state(0).await
    }

    async fn cluster(&self) -> Result<View, Status> {
        let state = self.state().await?;
        let revision = state.revision();
        let api = ClusterApi(self.context.clone());
        let request = self.request(cluster::GetClusterStatusRequest {});
        let status = api.get_cluster_status(request).await?.into_inner();
        let request = self.request(cluster::ListServicesRequest::default());
        let services = api.list_services(request).await?.into_inner().services;
        let request = self.request(operation::ListOperationsRequest {
            running_only: true,
            page_size: OPERATIONS_MAX as i32,
            ..Default::default()
        });
        let api = OperationApi(self.context.clone());
        let running = api.list_operations(request).await?.into_inner();
        let now = self.context.time_by_now(&state);
        let counted = in_thread(move || {
            (
                overview::counts(&state, now),
                overview::open_migrations(&state),
            )
        });
        let (counts, migrations) = counted.await?;
        let failover = self.failover.get().map(|(age, survey)| Verdicts {
            survived: survey.proven,
            not_survived: survey.refuted,
            unknown: survey.unknown,
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        });
        let cluster = Cluster {
            status,
            services,
            operations: running.operations,
            has_more_operations: !running.next_page_token.is_empty(),
            migrations,
            counts,
            failover,
        };
        Ok(View::new(revision, move |frame| {
            berth_page::cluster::render(frame, &cluster)
        }))
    }

    async fn failover(&self) -> Result<View, Status> {
        let hosts = self.state().await?.hosts().len();
        if hosts > VERIFIED_HOSTS_MAX {
            let message = format!(
                "the failure of each of {hosts} hosts takes too long to verify for a page, which does it for \
                 {VERIFIED_HOSTS_MAX} at most"
            );
            let refusal = Refusal::new(Code::FailedPrecondition, "TOO_MANY_HOSTS", message);
            return Err(to_status(
                &refusal.with_hint("verify it with `berth verify`"),
            ));
        }
        let request = self.request(planner::VerifyClusterRequest {
            domain: planner::FailureDomain::Host.into(),
            ..Default::default()
        });
        let api = PlannerApi(self.context.clone());
        let verdicts = api.verify_cluster(request).await?.into_inner();
        Ok(View::new(verdicts.revision, move |frame| {
            berth_page::failover::render(frame, &verdicts)
        }))
    }

    async fn host(&self, name: &str) -> Result<View, Status> {
        let name = format!("hosts/{name}");
        let request = self.request(host::GetHostRequest {
            name: name.clone(),
            consistency: 0,
        });
        let api = HostApi(self.context.clone());
        let host = api.get_host(request).await?.into_inner();
        let request = self.request(volume::ListVolumesRequest {
            host: name,
            page_size: PAGE,
            ..Default::default()
        });
        let api = VolumeApi(self.context.clone());
        let volumes = api.list_volumes(request).await?.into_inner().volumes;
        let revision = host.revision;
        let view = HostView { host, volumes };
        Ok(View::new(revision, move |frame| {
            berth_page::host::render(frame, &view)
        }))
    }

    async fn vms(&self, query: &VmsQuery) -> Result<View, Status> {
        let query = query.clone();
        let host = match query.host.as_str() {
            "" => String::new(),
            host => format!("hosts/{host}"),
        };
        let request = self.request(scheduler::ListVmsRequest {
            page_token: query.after.clone(),
            host,
            project: query.project.clone(),
            ..Default::default()
        });
        let api = SchedulerApi(self.context.clone());
        let page = api.list_vms(request).await?.into_inner();
        Ok(View::new(page.revision, move |frame| {
            berth_page::vms::render(frame, &query, &page)
        }))
    }

    async fn vm(&self, name: &str) -> Result<View, Status> {
        let name = format!("vms/{name}");
        let request = self.request(scheduler::GetVmRequest {
            name: name.clone(),
            consistency: 0,
        });
        let api = SchedulerApi(self.context.clone());
        let vm = api.get_vm(request).await?.into_inner();
        let request = self.request(scheduler::ListMigrationsRequest {
            vm: name.clone(),
            page_size: PAGE,
            ..Default::default()
        });
        let mut migrations = api.list_migrations(request).await?.into_inner().migrations;
        // Their ids grow with time.
        migrations.reverse();
        migrations.truncate(OPERATIONS_MAX);
        let operations = self.operations_of(&name).await?;
        let measured = self.known.measured.clone();
        let revision = vm.revision;
        let view = VmView {
            vm,
            operations,
            migrations,
            measured,
        };
        Ok(View::new(revision, move |frame| {
            berth_page::vm::render(frame, &view)
        }))
    }

    /// Returns what was done to a VM, the latest first.
    async fn operations_of(&self, vm: &str) -> Result<Vec<operation::Operation>, Status> {
        let api = OperationApi(self.context.clone());
        let mut all = Vec::new();
        let mut token = String::new();
        for _ in 0..OPERATION_PAGES_MAX {
            let request = self.request(operation::ListOperationsRequest {
                vm: vm.to_owned(),
                page_size: PAGE,
                page_token: token,
                ..Default::default()
            });
            let page = api.list_operations(request).await?.into_inner();
            all.extend(page.operations);
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        all.reverse();
        all.truncate(OPERATIONS_MAX);
        Ok(all)
    }

    async fn history(&self, name: &str) -> Result<View, Status> {
        let name = format!("vms/{name}");
        let request = self.request(event::GetHistoryRequest {
            name: name.clone(),
            ..Default::default()
        });
        let api = EventApi(self.context.clone());
        let mut messages = api.get_history(request).await?.into_inner();
        let mut entries = std::collections::VecDeque::new();
        let (mut left_out, mut first, mut revision) = (0, 0, 0);
        while let Some(message) = messages.next().await {
            let message = message?;
            (first, revision) = (message.first_revision, message.revision);
            for entry in message.entries {
                if entries.len() == HISTORY_MAX {
                    entries.pop_front();
                    left_out += 1;
                }
                entries.push_back(entry);
            }
        }
        let entries = Vec::from(entries);
        Ok(View::new(revision, move |frame| {
            berth_page::history::render(frame, &name, &entries, left_out, first)
        }))
    }

    async fn console(&self, name: &str) -> Result<View, Status> {
        let request = self.request(scheduler::GetVmRequest {
            name: format!("vms/{name}"),
            consistency: 0,
        });
        let api = SchedulerApi(self.context.clone());
        let revision = api.get_vm(request).await?.into_inner().revision;
        let read = self.known.console.clone();
        let console = read.unwrap_or_else(|| Err(Status::internal("it is no console")))?;
        let name = name.to_owned();
        Ok(View::new(revision, move |frame| {
            berth_page::console::render(frame, &name, &console)
        }))
    }

    async fn balance(&self) -> Result<View, Status> {
        let request = self.request(planner::PlanBalanceRequest {
            // At any score: the view shows what could be done.
            threshold: Some(0.0),
            ..Default::default()
        });
        let api = PlannerApi(self.context.clone());
        let plan = api.plan_balance(request).await?.into_inner();
        Ok(View::new(plan.revision, move |frame| {
            berth_page::balance::render(frame, &plan)
        }))
    }

    async fn audit(&self, query: &AuditQuery) -> Result<View, Status> {
        let query = query.clone();
        let named = |collection: &str, name: &str| match name {
            "" => String::new(),
            name => format!("{collection}/{name}"),
        };
        let request = self.request(audit::ListAuditEntriesRequest {
            page_token: query.after.clone(),
            filter: Some(audit::AuditFilter {
                vm: named("vms", &query.vm),
                host: named("hosts", &query.host),
                principal: query.principal.clone(),
                ..Default::default()
            }),
            ..Default::default()
        });
        let api = AuditApi(self.context.clone());
        let page = api.list_audit_entries(request).await?.into_inner();
        Ok(View::new(page.revision, move |frame| {
            berth_page::audit::render(frame, &query, &page)
        }))
    }

    async fn why_not(&self, query: &WhyNotQuery) -> Result<View, Status> {
        let query = query.clone();
        let request = self.request(scheduler::ListFlavorsRequest {
            page_size: PAGE,
            ..Default::default()
        });
        let api = SchedulerApi(self.context.clone());
        let flavors = api.list_flavors(request).await?.into_inner();
        let outcome = match query.flavor.is_empty() {
            true => Outcome::None,
            false => self.place_on_trial(&query).await?,
        };
        Ok(View::new(flavors.revision, move |frame| {
            berth_page::why_not::render(frame, &query, &flavors.flavors, &outcome)
        }))
    }

    /// Decides as for a boot, and claims nothing.
    async fn place_on_trial(&self, query: &WhyNotQuery) -> Result<Outcome, Status> {
        let boot = types::boot_source::Source::Kernel(types::KernelBoot {
            kernel: "vmlinuz".to_owned(),
            initrd: "initrd".to_owned(),
            cmdline: String::new(),
        });
        let requested_host = match query.host.as_str() {
            "" => String::new(),
            host => format!("hosts/{host}"),
        };
        let request = self.request(scheduler::ScheduleVmRequest {
            // Of no VM that is there.
            vm: format!("vms/trial-{}", Uuid::new_v4()),
            template: Some(types::VmTemplate {
                flavor: format!("flavors/{}", query.flavor),
                boot: Some(types::BootSource { source: Some(boot) }),
                ..Default::default()
            }),
            requested_host,
            validate_only: true,
            ..Default::default()
        });
        let api = SchedulerApi(self.context.clone());
        let placed = api.schedule_vm(request).await;
        match placed {
            Ok(response) => {
                let explanation = response.into_inner().explanation.unwrap_or_default();
                Ok(Outcome::Fits(Box::new(explanation)))
            }
            Err(status) => {
                let refusal = from_status(&status);
                match refusal.code {
                    // It was not decided.
                    Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::Cancelled
                    | Code::Internal
                    | Code::Unimplemented => Err(status),
                    Code::InvalidArgument
                    | Code::NotFound
                    | Code::AlreadyExists
                    | Code::FailedPrecondition
                    | Code::Aborted
                    | Code::ResourceExhausted
                    | Code::OutOfRange
                    | Code::PermissionDenied => Ok(Outcome::Refused(Box::new((&refusal).into()))),
                }
            }
        }
    }
}
