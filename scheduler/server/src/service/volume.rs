//! `berth.volume.v1.VolumeService`: what changes something. Reads are in [`super::volume_read`].

use berth_decide::{Action, CreateVolume};
use berth_domain::id::{Generation, Incarnation};
use berth_domain::name::{HostName, VolumeId};
use berth_domain::topology::CellId;
use berth_domain::volume::{Kind, Outcome, REPLICAS_MAX, REPORTS_MAX, Report};
use berth_process::access;
use berth_proto::convert::field::{self, Invalid};
use berth_proto::convert::ownership::read_project;
use berth_proto::convert::volume::{read_display_name, read_kind, read_parameters};
use berth_proto::volume::v1;
use berth_proto::volume::v1::volume_service_server::VolumeService;
use berth_state::Reply;
use berth_state::command::Command;
use berth_tls::Identity;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::Context;
use super::keyed::{Caller, open, own_host};
use super::{refusal, volume_read};

/// The most hosts that a request names.
pub(super) const HOSTS_MAX: usize = 10_000;

/// Serves `VolumeService`.
pub(crate) struct VolumeApi(pub(crate) Context);

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl VolumeService for VolumeApi {
    async fn create_volume(
        &self,
        request: Request<v1::CreateVolumeRequest>,
    ) -> Answer<v1::CreateVolumeResponse> {
        let agent = access::agent(request.extensions()).cloned();
        let (wire, caller) = open(request)?;
        let params = read_create(wire)?;
        check_own(agent.as_deref(), params.kind, &params.requisite)?;
        let action = Action::CreateVolume(Box::new(params));
        let done = self.0.submit(caller.into_request(false, action)).await?;
        let Reply::Volume(volume) = done.reply else {
            return Err(refusal::mismatch());
        };
        let volume = Some((&*volume).into());
        Ok(Response::new(v1::CreateVolumeResponse { volume }))
    }

    async fn delete_volume(
        &self,
        request: Request<v1::DeleteVolumeRequest>,
    ) -> Answer<v1::DeleteVolumeResponse> {
        let agent = access::agent(request.extensions()).cloned();
        let (wire, caller) = open(request)?;
        let volume: VolumeId = field::name(&wire.name, "name")?;
        if let Some(agent) = &agent {
            if wire.forget {
                let who = agent.principal();
                return Err(access::not_yours(format!("{who} forgets no volumes")));
            }
            // As committed: a member that is behind may not know it yet, or not any more.
            let state = self.0.state(0).await?;
            if let Some(known) = state.volume(&volume) {
                let hosts = known.replicas.iter().map(|replica| &replica.host);
                check_own(Some(agent), known.kind, hosts)?;
            }
        }
        let command = Command::DeleteVolume {
            volume,
            generation: (wire.generation != 0).then_some(Generation(wire.generation)),
            forget: wire.forget,
        };
        let mut answer = v1::DeleteVolumeResponse::default();
        // It may not have been there.
        if let Reply::Volume(volume) = self.0.command(caller, command).await? {
            answer.volume = Some((&*volume).into());
        }
        Ok(Response::new(answer))
    }

    async fn get_volume(
        &self,
        request: Request<v1::GetVolumeRequest>,
    ) -> Answer<v1::GetVolumeResponse> {
        volume_read::volume(&self.0, request.into_inner()).await
    }

    async fn list_volumes(
        &self,
        request: Request<v1::ListVolumesRequest>,
    ) -> Answer<v1::ListVolumesResponse> {
        volume_read::volumes(&self.0, request.into_inner()).await
    }

    async fn get_volume_capacity(
        &self,
        request: Request<v1::GetVolumeCapacityRequest>,
    ) -> Answer<v1::GetVolumeCapacityResponse> {
        volume_read::capacity(&self.0, request.into_inner()).await
    }

    async fn fit_volumes(
        &self,
        request: Request<v1::FitVolumesRequest>,
    ) -> Answer<v1::FitVolumesResponse> {
        volume_read::fit(&self.0, request.into_inner()).await
    }

    async fn plan_volume_room(
        &self,
        request: Request<v1::PlanVolumeRoomRequest>,
    ) -> Answer<v1::PlanVolumeRoomResponse> {
        volume_read::plan_headroom(&self.0, request.into_inner()).await
    }

    async fn report_volumes(
        &self,
        request: Request<v1::ReportVolumesRequest>,
    ) -> Answer<v1::ReportVolumesResponse> {
        own_host(&request, &request.get_ref().host)?;
        let caller = Caller::unkeyed(&request);
        let wire = request.into_inner();
        let host: HostName = field::name(&wire.host, "host")?;
        let incarnation: Incarnation = field::uuid(&wire.incarnation, "incarnation")?;
        let reports: Vec<Report> = field::each(wire.reports, "reports", REPORTS_MAX)?;
        if reports.is_empty() {
            return Err(refusal::invalid("reports", "must say something"));
        }
        reports.iter().for_each(|report| log(&host, report));
        let command = Command::NoteVolumes {
            host,
            incarnation,
            reports,
        };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::ReportVolumesResponse {}))
    }
}

/// Checks that an agent makes and deletes what pods of its own host have for as long as they run, and
/// nothing else.
fn check_own<'h>(
    agent: Option<&Identity>,
    kind: Kind,
    hosts: impl IntoIterator<Item = &'h HostName>,
) -> Result<(), Status> {
    let Some(agent) = agent else {
        return Ok(());
    };
    let mut hosts = hosts.into_iter().peekable();
    let somewhere = hosts.peek().is_some();
    if kind == Kind::Ephemeral && somewhere && hosts.all(|host| agent.is_agent_of(host.as_str())) {
        return Ok(());
    }
    Err(access::not_yours(format!(
        "{} makes and deletes ephemeral volumes of its own host alone, with that host in \
         requisite_hosts",
        agent.principal()
    )))
}

fn log(host: &HostName, report: &Report) {
    let volume = &report.volume;
    match &report.outcome {
        Outcome::Created { size_bytes, .. } => {
            tracing::info!(%host, %volume, size_bytes, "volume created");
        }
        Outcome::Failed { why } => tracing::warn!(%host, %volume, why, "volume creation failed"),
        Outcome::Delayed { why } => tracing::warn!(%host, %volume, why, "volume delayed"),
        Outcome::Deleted => tracing::info!(%host, %volume, "volume deleted"),
        Outcome::Erasing { .. } => {}
    }
}

fn read_create(wire: v1::CreateVolumeRequest) -> Result<CreateVolume, Invalid> {
    let kind = read_kind(wire.kind, "kind")?;
    let replicas = wire.replicas as usize;
    if replicas > REPLICAS_MAX {
        let rule = format!("must be at most {REPLICAS_MAX}");
        return Err(Invalid::new("replicas", rule));
    }
    if replicas > 1 && kind != Kind::Cache {
        let rule = "must be 1: only a cache is on several hosts";
        return Err(Invalid::new("replicas", rule));
    }
    let hosts = |names: Vec<String>, field: &str| {
        field::each_by(names, field, HOSTS_MAX, |name| field::name(&name, "host"))
    };
    let requisite: Vec<HostName> = hosts(wire.requisite_hosts, "requisite_hosts")?;
    Ok(CreateVolume {
        number: Uuid::new_v4(),
        display_name: read_display_name(&wire.display_name, "display_name")?,
        kind,
        parameters: read_parameters(wire.parameters),
        required_bytes: wire.required_bytes,
        limit_bytes: wire.limit_bytes,
        replicas: replicas.max(1),
        preferred: hosts(wire.preferred_hosts, "preferred_hosts")?,
        requisite: requisite.into_iter().collect(),
        preferred_cell: wire.preferred_cell.map(CellId),
        project: read_project(&wire.project, "project")?,
    })
}
