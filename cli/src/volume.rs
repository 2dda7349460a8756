//! `berth volume`: volumes of persistent memory, where they are and how much space is free.

use std::time::{Duration, Instant};

use anyhow::bail;
use berth_domain::name::VolumeId;
use berth_domain::refusal::Refusal;
use berth_domain::volume::{DisplayName, Phase, Replica, Volume, consumer_of};
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{
    self, CreateVolumeRequest, DeleteVolumeRequest, GetVolumeCapacityRequest, GetVolumeRequest,
    ListVolumesRequest, PlanVolumeRoomRequest,
};
use serde_json::{Value, json};
use tonic::{Code, Response};

use crate::arguments::{Selection, Volume as Verb, VolumeCreate};
use crate::draw::bytes;
use crate::draw::volumes::{Drawn, draw};
use crate::output::{Columns, Lines};
use crate::selection::Selector;
use crate::session::{Session, creator, request_id, resource, short, unknown_end};
use crate::{all_pages, call, output, read};

/// The maximum wait for a volume, and the pause between two polls.
const WAIT_MAX: Duration = Duration::from_secs(300);
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The columns of the list.
pub(crate) const COLUMNS: Columns<6, 3> = Columns {
    usual: ["volume", "id", "kind", "size", "state", "hosts"],
    wide: ["requested", "project", "creator"],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create(args) => create(session, args).await,
        Verb::List { host, selection } => list(session, host.as_deref(), &selection).await,
        Verb::Show { volume } => {
            let wire = find_wire(session, &volume).await?;
            let vm = wire.attached_vm.clone();
            show(session, &wire.try_into()?, short(&vm))
        }
        Verb::Delete { volume, forget } => delete(session, &volume, forget).await,
        Verb::Capacity { hosts } => capacity(session, &hosts).await,
        Verb::PlanSpace { host, size, region } => {
            let request = PlanVolumeRoomRequest {
                host: resource("hosts", &host),
                region: region.unwrap_or_default(),
                required_bytes: size,
            };
            let plan = read!(session, VolumeServiceClient, plan_volume_room, request)?;
            show_space_plan(session, &host, size, &plan)
        }
    }
}

async fn delete(session: &Session, volume: &str, forget: bool) -> anyhow::Result<()> {
    let volume = find(session, volume).await?;
    let request = DeleteVolumeRequest {
        name: resource("volumes", volume.id.as_str()),
        request_id: request_id(None),
        forget,
        ..DeleteVolumeRequest::default()
    };
    call!(session, VolumeServiceClient, delete_volume, request)?;
    let what = match forget {
        false => "is being deleted; its space is free once its host has removed it",
        true => "is forgotten on hosts that were removed; its contents there are never erased",
    };
    let (name, id) = (&volume.display_name, &volume.id);
    let result = if forget { "forgotten" } else { "deleting" };
    let resource = resource("volumes", id.as_str());
    session.done(&resource, result, format!("volume {name} ({id}) {what}"))
}

async fn create(session: &Session, args: VolumeCreate) -> anyhow::Result<()> {
    let hosts = |names: &[String]| names.iter().map(|name| resource("hosts", name)).collect();
    let kind = match args.cache {
        Some(_) => v1::VolumeKind::Cache,
        None => v1::VolumeKind::Persistent,
    };
    let request = CreateVolumeRequest {
        // Commands that name one leave the collection out as well.
        display_name: args
            .name
            .strip_prefix("volumes/")
            .unwrap_or(&args.name)
            .to_owned(),
        kind: kind.into(),
        required_bytes: args.size,
        limit_bytes: args.limit.unwrap_or(0),
        parameters: Some(v1::VolumeParameters {
            erase_after: Some(!args.no_erase),
            kata_containers: args.kata,
        }),
        preferred_hosts: hosts(&args.prefer),
        requisite_hosts: hosts(&args.host),
        replicas: args.cache.unwrap_or(0),
        preferred_cell: args.cell,
        request_id: request_id(None),
        project: args.project.to_wire(),
    };
    let response = call!(session, VolumeServiceClient, create_volume, request)?;
    let mut volume: Volume = response.volume.unwrap_or_default().try_into()?;
    if args.wait {
        volume = made(session, volume).await?;
    }
    show(session, &volume, "")
}

/// Waits until a volume is there on all of its hosts.
async fn made(session: &Session, mut volume: Volume) -> anyhow::Result<Volume> {
    let deadline = Instant::now() + WAIT_MAX;
    let name = volume.display_name.clone();
    let mut reported = String::new();
    while !volume.is_ready() {
        if volume.is_deleting() {
            match failure(&volume) {
                why if why.is_empty() => bail!("volume {name} is being deleted"),
                why => bail!("volume {name} is being deleted: {why}"),
            }
        }
        if failure(&volume) != reported {
            reported = failure(&volume);
            output::message(format!("volume {name} is not created yet: {reported}"));
        }
        if Instant::now() > deadline {
            let seconds = WAIT_MAX.as_secs();
            bail!("volume {name} is not ready after {seconds} s; its hosts continue to create it");
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        let request = GetVolumeRequest {
            name: resource("volumes", volume.id.as_str()),
            ..GetVolumeRequest::default()
        };
        let response = session.read(|channel| {
            let request = request.clone();
            async move { VolumeServiceClient::new(channel).get_volume(request).await }
        });
        volume = match response.await {
            Ok(response) => response.volume.unwrap_or_default().try_into()?,
            Err(refusal) if refusal.reason == "VOLUME_NOT_FOUND" => {
                bail!("{}", missing_volume(&name, &refusal))
            }
            Err(refusal) => {
                let what = format!("the creation of volume {name} ({})", volume.id);
                let command = format!("berth volume show {}", volume.id);
                return Err(unknown_end(&what, refusal, &command).into());
            }
        };
    }
    Ok(volume)
}

/// Reports that a volume no longer exists, and why where that is still known.
fn missing_volume(name: &DisplayName, refusal: &Refusal) -> String {
    let (host, why) = (refusal.metadata.get("host"), refusal.metadata.get("why"));
    match (host, why) {
        (Some(host), Some(why)) => format!(
            "volume {name} could not be created, and its space was released: host {host}: {why}"
        ),
        (Some(_) | None, Some(_) | None) => format!(
            "volume {name} no longer exists: it was deleted, or could not be created; the logs of the host's agent \
             and of the scheduler explain why"
        ),
    }
}

fn failure(volume: &Volume) -> String {
    let failures = volume.replicas.iter().filter(|r| !r.failure.is_empty());
    let failures = failures.map(|replica| format!("host {}: {}", replica.host, replica.failure));
    failures.collect::<Vec<_>>().join("; ")
}

/// Returns the volume of this id or name.
async fn find(session: &Session, text: &str) -> anyhow::Result<Volume> {
    Ok(find_wire(session, text).await?.try_into()?)
}

/// As [`find`], with what follows from other records.
async fn find_wire(session: &Session, text: &str) -> anyhow::Result<v1::Volume> {
    let text = text.strip_prefix("volumes/").unwrap_or(text);
    let is_id = VolumeId::new(text).is_ok_and(|id| consumer_of(&id).is_some());
    let mut request = GetVolumeRequest::default();
    match is_id {
        true => request.name = resource("volumes", text),
        false => request.display_name = text.to_owned(),
    }
    let response = read!(session, VolumeServiceClient, get_volume, request)?;
    Ok(response.volume.unwrap_or_default())
}

async fn list(session: &Session, host: Option<&str>, selection: &Selection) -> anyhow::Result<()> {
    let selector = Selector::new::<v1::Volume>(selection)?;
    let request = ListVolumesRequest {
        host: host.map(|host| resource("hosts", host)).unwrap_or_default(),
        ..ListVolumesRequest::default()
    };
    let volumes = all_pages!(
        session,
        VolumeServiceClient,
        list_volumes,
        request,
        volumes,
        &selector
    );
    let volumes: Vec<Volume> = crate::session::read_all(volumes)?;
    if session.for_programs() {
        let values: Vec<Value> = volumes.iter().map(value).collect();
        return output::value(&values);
    }
    let rows = volumes.iter().map(|volume| {
        let hosts: Vec<&str> = volume.replicas.iter().map(|r| r.host.as_str()).collect();
        let state = volume.replicas.iter().map(|replica| replica.phase).min();
        let usual = [
            volume.display_name.to_string(),
            volume.id.to_string(),
            volume.kind.to_string(),
            bytes(volume.size_bytes()),
            state.map(|phase| phase.to_string()).unwrap_or_default(),
            hosts.join(","),
        ];
        let wide = [
            bytes(volume.required_bytes),
            volume.ownership.project_name().to_owned(),
            creator(&volume.ownership),
        ];
        (usual, wide)
    });
    output::list(
        &COLUMNS,
        rows.collect(),
        selection.none("there is no volume"),
    )
}

fn value(volume: &Volume) -> Value {
    let mut value = json!(volume);
    value["size_bytes"] = volume.size_bytes().into();
    value
}

/// Shows a volume and the VM that has it, if one does.
fn show(session: &Session, volume: &Volume, vm: &str) -> anyhow::Result<()> {
    if session.for_programs() {
        let mut value = value(volume);
        value["attached_vm"] = (!vm.is_empty()).then_some(vm).into();
        return output::value(&value);
    }
    let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
    output::fields(&[
        ("volume", volume.display_name.to_string()),
        ("id", volume.id.to_string()),
        ("kind", volume.kind.to_string()),
        ("size", bytes(volume.size_bytes())),
        ("vm", if vm.is_empty() { "-" } else { vm }.to_owned()),
        ("requested", bytes(volume.required_bytes)),
        ("erased when deleted", yes(volume.parameters.erase_after)),
        (
            "for Kata Containers",
            yes(volume.parameters.kata_containers),
        ),
        ("project", volume.ownership.project_name().to_owned()),
        ("creator", creator(&volume.ownership)),
    ]);
    for replica in &volume.replicas {
        output::print(place(replica));
    }
    Ok(())
}

/// Describes the placement and state of a replica.
fn place(replica: &Replica) -> Lines {
    let cell = replica.cell.map(|cell| format!(", NUMA node {cell}"));
    let mut text = format!(
        "  host {}, region {}{}: {} ({}, takes {})",
        replica.host,
        replica.region,
        cell.unwrap_or_default(),
        replica.phase,
        replica.mode,
        bytes(replica.gross_bytes),
    );
    if let Some(extent) = replica.extent {
        let how = if replica.placed { "at" } else { "expected at" };
        text += &format!(", {how} {}", bytes(extent.offset_bytes));
    }
    if replica.phase == Phase::Deleting && replica.erased_bytes > 0 {
        text += &format!(", {} erased", bytes(replica.erased_bytes));
    }
    let mut lines = Lines::from(text);
    if !replica.failure.is_empty() {
        let (times, why) = (replica.failures, &replica.failure);
        writeln!(lines, "    failed {times} times: {why}");
    }
    lines
}

async fn capacity(session: &Session, hosts: &[String]) -> anyhow::Result<()> {
    let request = GetVolumeCapacityRequest {
        hosts: hosts.iter().map(|host| resource("hosts", host)).collect(),
        ..GetVolumeCapacityRequest::default()
    };
    let response = read!(session, VolumeServiceClient, get_volume_capacity, request)?;
    if session.for_programs() {
        return output::value(&json!({
            "available_bytes": response.available_bytes,
            "maximum_volume_bytes": response.maximum_volume_bytes,
            "hosts": response.hosts.iter().map(capacity_value).collect::<Vec<_>>(),
        }));
    }
    let rows = response.hosts.iter().flat_map(|host| {
        host.regions.iter().map(move |one| {
            let region = one.region.clone().unwrap_or_default();
            let note = match (host.open, region.trouble.is_empty()) {
                (_, false) => region.trouble.clone(),
                (false, true) => "its host accepts no new volumes".to_owned(),
                (true, true) => String::new(),
            };
            [
                short(&host.host).to_owned(),
                region.name.clone(),
                region.cell.map_or("-".to_owned(), |cell| cell.to_string()),
                mode(&region).to_owned(),
                bytes(region.capacity_bytes),
                bytes(one.used_bytes),
                bytes(one.available_bytes),
                bytes(one.maximum_volume_bytes),
                note,
            ]
        })
    });
    output::table(
        [
            "host",
            "region",
            "numa node",
            "mode",
            "size",
            "used",
            "available",
            "largest volume",
            "",
        ],
        rows.collect(),
        "no host has regions for volumes",
    );
    Ok(())
}

fn mode(region: &v1::Region) -> &'static str {
    match region.mode() {
        v1::DeviceMode::Lvm => "lvm",
        v1::DeviceMode::Direct => "direct",
        v1::DeviceMode::Unspecified => "-",
    }
}

fn extent_value(extent: &v1::Extent) -> Value {
    json!({"offset_bytes": extent.offset_bytes, "length_bytes": extent.length_bytes})
}

/// Returns the volume capacity of a host as JSON.
pub fn capacity_value(host: &v1::HostVolumeCapacity) -> Value {
    let regions = host.regions.iter().map(|one| {
        let region = one.region.clone().unwrap_or_default();
        json!({
            "name": region.name,
            "cell": region.cell,
            "mode": mode(&region),
            "capacity_bytes": region.capacity_bytes,
            "align_bytes": region.align_bytes,
            "trouble": region.trouble,
            "used_bytes": one.used_bytes,
            "available_bytes": one.available_bytes,
            "maximum_volume_bytes": one.maximum_volume_bytes,
            "minimum_volume_bytes": one.minimum_volume_bytes,
            "foreign": region.foreign.iter().map(extent_value).collect::<Vec<_>>(),
            "free": one.free.iter().map(extent_value).collect::<Vec<_>>(),
            "volumes": one.volumes.iter().map(|v| json!({
                "volume": short(&v.volume),
                "extent": v.extent.as_ref().map(extent_value),
            })).collect::<Vec<_>>(),
        })
    });
    json!({
        "host": short(&host.host),
        "open": host.open,
        "regions": regions.collect::<Vec<_>>(),
    })
}

/// Returns the volume capacity of a host and its volumes; nothing where the scheduler
/// knows of no volumes.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn of_host(
    session: &Session,
    host: &str,
) -> anyhow::Result<Option<(v1::HostVolumeCapacity, Vec<Volume>)>> {
    let request = GetVolumeCapacityRequest {
        hosts: vec![resource("hosts", host)],
        ..GetVolumeCapacityRequest::default()
    };
    let response = session.read(|channel| {
        let request = request.clone();
        async move {
            let mut client = VolumeServiceClient::new(channel);
            match client.get_volume_capacity(request).await {
                // One that is older knows nothing of them.
                Err(status) if status.code() == Code::Unimplemented => {
                    Ok(Response::new(Default::default()))
                }
                response => response,
            }
        }
    });
    let capacity: v1::GetVolumeCapacityResponse = response.await?;
    let has_regions = |host: &v1::HostVolumeCapacity| !host.regions.is_empty();
    let Some(capacity) = capacity.hosts.into_iter().find(has_regions) else {
        return Ok(None);
    };
    let request = ListVolumesRequest {
        host: resource("hosts", host),
        ..ListVolumesRequest::default()
    };
    let volumes = all_pages!(session, VolumeServiceClient, list_volumes, request, volumes);
    Ok(Some((capacity, crate::session::read_all(volumes)?)))
}

/// Draws the regions of a host.
///
/// # Errors
///
/// The capacity that was reported is inconsistent.
pub fn drawn(capacity: &v1::HostVolumeCapacity, volumes: &[Volume]) -> anyhow::Result<Lines> {
    let regions = capacity.regions.iter().map(|one| {
        Ok(Drawn {
            region: one.region.clone().unwrap_or_default().try_into()?,
            largest_bytes: one.maximum_volume_bytes,
            available_bytes: one.available_bytes,
            free: one.free.iter().map(|extent| (*extent).into()).collect(),
        })
    });
    let regions: Vec<Drawn> = regions.collect::<anyhow::Result<_>>()?;
    Ok(draw(&regions, volumes, short(&capacity.host)))
}

fn show_space_plan(
    session: &Session,
    host: &str,
    size: u64,
    plan: &v1::PlanVolumeRoomResponse,
) -> anyhow::Result<()> {
    if session.for_programs() {
        let moves = plan.moves.iter().map(|one| {
            json!({
                "volume": short(&one.volume),
                "gross_bytes": one.gross_bytes,
                "to_host": short(&one.to_host),
                "to_region": one.to_region,
            })
        });
        return output::value(&json!({
            "region": plan.region,
            "extent": plan.extent.as_ref().map(extent_value),
            "moves": moves.collect::<Vec<_>>(),
        }));
    }
    let size = bytes(size);
    let at = plan.extent.as_ref();
    let at = at.map(|extent| format!(" at {}", bytes(extent.offset_bytes)));
    let at = at.unwrap_or_default();
    if plan.moves.is_empty() {
        output::message(format!(
            "{size} fit into region {} of {host}{at} already, or will after pending deletions",
            plan.region
        ));
        return Ok(());
    }
    output::message(format!(
        "{size} fit into region {} of {host}{at} once these volumes are elsewhere:",
        plan.region
    ));
    let rows = plan.moves.iter().map(|one| {
        let to = match one.to_host.is_empty() {
            true => "no host at present".to_owned(),
            false => format!("{}, {}", short(&one.to_host), one.to_region),
        };
        [short(&one.volume).to_owned(), bytes(one.gross_bytes), to]
    });
    output::table(["volume", "takes", "would fit on"], rows.collect(), "");
    Ok(())
}
