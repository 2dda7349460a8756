//! The reads of `berth.volume.v1.VolumeService`.
//!
//! What takes longer for many hosts is worked out of a frozen state, away from the replica's task.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::name::{HostName, RegionName, VolumeId};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::volume::{
    DeviceMode, DisplayName, FIT_MAX, Failed, Plan, Room, Shown, Volume, find_places,
    fit as fit_together, make_room,
};
use berth_proto::convert::page::Page;
use berth_proto::convert::volume::{read_display_name, read_region};
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::status::to_status;
use berth_proto::volume::v1;
use berth_state::volumes::closed;
use berth_state::{HostView, State};
use tonic::{Response, Status};

use super::context::Context;
use super::volume::HOSTS_MAX;
use super::{list, refusal};

type Answer<T> = Result<Response<T>, Status>;

pub(super) async fn volume(
    context: &Context,
    wire: v1::GetVolumeRequest,
) -> Answer<v1::GetVolumeResponse> {
    let id: Option<VolumeId> = field::optional_name(&wire.name, "name")?;
    let called = match &id {
        Some(_) => None,
        None => Some(read_display_name(&wire.display_name, "display_name")?),
    };
    let state = context.state(wire.consistency).await?;
    let found = match (&id, &called) {
        (Some(id), _) => state.volume(id),
        (None, Some(name)) => state.volume_named(name.as_str()),
        (None, None) => None,
    };
    let Some(volume) = found else {
        let called = called.as_ref().map(DisplayName::as_str);
        return Err(to_status(&no_volume(&state, id.as_ref(), called)));
    };
    let volume = Some(write_volume(&state, volume));
    Ok(Response::new(v1::GetVolumeResponse { volume }))
}

/// Refuses a volume that is not there; of one that could not be made, with the reason.
fn no_volume(state: &State, id: Option<&VolumeId>, called: Option<&str>) -> Refusal {
    let name = id.map_or(called.unwrap_or_default(), VolumeId::as_str);
    let refusal = Refusal::not_found("volume", name)
        .with_hint("the volumes that exist are listed by `berth volume list`");
    let Some((host, failed)) = state.failed_volume(id, called) else {
        return refusal;
    };
    let Failed {
        display_name, why, ..
    } = failed;
    let message = format!("volume {display_name} could not be made on host {host}: {why}");
    Refusal { message, ..refusal }
        .with("host", host)
        .with("why", why)
}

pub(super) async fn volumes(
    context: &Context,
    wire: v1::ListVolumesRequest,
) -> Answer<v1::ListVolumesResponse> {
    let page = Page::new(wire.page_size, &wire.page_token)?;
    let host: Option<HostName> = field::optional_name(&wire.host, "host")?;
    let state = context.state(wire.consistency).await?;
    let parse = |text: &str| VolumeId::new(text).ok();
    let all = |_: &Volume| true;
    let (volumes, next_page_token) = match &host {
        None => list::page(state.volumes(), &page, parse, VolumeId::to_string, all),
        // These have an index of their own.
        Some(host) => {
            let volumes = state
                .volumes_of_host(host)
                .map(|v| (v.id.clone(), v.clone()));
            list::page(&volumes.collect(), &page, parse, VolumeId::to_string, all)
        }
    }?;
    Ok(Response::new(v1::ListVolumesResponse {
        volumes: volumes.iter().map(|v| write_volume(&state, v)).collect(),
        next_page_token,
    }))
}

/// Returns a volume with the VM that has it.
fn write_volume(state: &State, volume: &Volume) -> v1::Volume {
    v1::Volume {
        attached_vm: field::name_or_empty(state.vm_with_volume(&volume.id)),
        ..volume.into()
    }
}

/// Returns the hosts that are named, or those that have regions or volumes.
fn hosts_of(state: &State, names: Vec<String>) -> Result<Vec<Arc<HostView>>, Status> {
    if names.is_empty() {
        let hosts = state.hosts().values();
        let hosts = hosts.filter(|view| {
            let has_volumes = state.volumes_of_host(&view.host.name).next().is_some();
            has_volumes || !view.host.report.regions.is_empty()
        });
        return Ok(hosts.cloned().collect());
    }
    let names: Vec<HostName> =
        field::each_by(names, "hosts", HOSTS_MAX, |name| field::name(&name, "host"))?;
    let view = |name: &HostName| {
        let view = state.host(name).cloned();
        view.ok_or_else(|| to_status(&refusal::no_host(name)))
    };
    names.iter().map(view).collect()
}

pub(super) async fn capacity(
    context: &Context,
    wire: v1::GetVolumeCapacityRequest,
) -> Answer<v1::GetVolumeCapacityResponse> {
    let state = context.state(wire.consistency).await?;
    apart(move || {
        let mut views = hosts_of(&state, wire.hosts)?;
        views.sort_by(|a, b| a.host.name.cmp(&b.host.name));
        let mut answer = v1::GetVolumeCapacityResponse::default();
        for view in views {
            let rooms = state.rooms_of(&view.host);
            let open = closed(&view.host).is_empty();
            if open {
                for room in &rooms {
                    let available = answer.available_bytes;
                    answer.available_bytes = available.saturating_add(room.available_bytes());
                    answer.maximum_volume_bytes = answer.maximum_volume_bytes.max(room.largest());
                }
            }
            answer.hosts.push(v1::HostVolumeCapacity {
                host: view.host.name.resource_name(),
                open,
                regions: rooms.iter().map(write_room).collect(),
            });
        }
        Ok(Response::new(answer))
    })
    .await
}

fn write_room(room: &Room) -> v1::RegionCapacity {
    let held = room.held.iter().filter_map(|held| {
        Some(v1::VolumeExtent {
            volume: held.volume.resource_name(),
            extent: Some(held.taken.extent?.into()),
        })
    });
    let mut volumes: Vec<_> = held.collect();
    volumes.sort_by_key(|one| one.extent.map_or(0, |extent| extent.offset_bytes));
    let is_direct = room.region.mode == DeviceMode::Direct;
    let free = room.free().into_iter().filter(|_| is_direct);
    v1::RegionCapacity {
        region: Some((&room.region).into()),
        used_bytes: room.used_bytes(),
        available_bytes: room.available_bytes(),
        maximum_volume_bytes: room.largest(),
        minimum_volume_bytes: room.smallest(),
        free: free.map(Into::into).collect(),
        volumes,
    }
}

pub(super) async fn fit(
    context: &Context,
    wire: v1::FitVolumesRequest,
) -> Answer<v1::FitVolumesResponse> {
    field::bounded(wire.required_bytes.len(), "required_bytes", FIT_MAX)?;
    let names: Vec<HostName> = field::each_by(wire.hosts, "hosts", HOSTS_MAX, |name| {
        field::name(&name, "host")
    })?;
    let state = context.state(wire.consistency).await?;
    apart(move || {
        let names = match names.is_empty() {
            false => names,
            true => hosts_of(&state, Vec::new())?
                .iter()
                .map(|view| view.host.name.clone())
                .collect(),
        };
        let sizes = &wire.required_bytes;
        let hosts = names.iter().map(|name| fit_on(&state, name, sizes));
        let hosts = hosts.collect();
        Ok(Response::new(v1::FitVolumesResponse { hosts }))
    })
    .await
}

fn fit_on(state: &State, name: &HostName, sizes: &[u64]) -> v1::VolumeFit {
    let host = name.resource_name();
    let no = |reason: &str| v1::VolumeFit {
        host: host.clone(),
        reason: reason.to_owned(),
        ..v1::VolumeFit::default()
    };
    let Some(view) = state.host(name) else {
        return no("no host of Berth has this name");
    };
    let candidate = state.volume_candidate(view, None);
    if !candidate.closed.is_empty() {
        return no(&candidate.closed);
    }
    let rooms: Vec<Room> = candidate.rooms.into_iter().map(|(_, room)| room).collect();
    match fit_together(&rooms, sizes) {
        Ok(fit) => v1::VolumeFit {
            host,
            fits: true,
            reason: String::new(),
            left_bytes: fit.left_bytes,
            score: fit.score,
        },
        Err(why) => no(&why),
    }
}

pub(super) async fn plan_room(
    context: &Context,
    wire: v1::PlanVolumeRoomRequest,
) -> Answer<v1::PlanVolumeRoomResponse> {
    let name: HostName = field::name(&wire.host, "host")?;
    let region: Option<RegionName> = match wire.region.is_empty() {
        true => None,
        false => Some(read_region(&wire.region, "region")?),
    };
    let state = context.state(0).await?;
    apart(move || {
        let planned = plan(&state, &name, region.as_ref(), wire.required_bytes);
        let planned = planned.map_err(|refusal| to_status(&refusal))?;
        Ok(Response::new(write_plan(planned)))
    })
    .await
}

fn plan(
    state: &State,
    name: &HostName,
    region: Option<&RegionName>,
    required_bytes: u64,
) -> Result<Plan, Box<Refusal>> {
    let view = state.host(name);
    let view = view.ok_or_else(|| Box::new(Refusal::not_found("host", name)))?;
    let rooms = state.rooms_of(&view.host);
    let asked = rooms
        .iter()
        .filter(|room| region.is_none_or(|r| r == room.name()));
    let plans = asked
        .clone()
        .filter_map(|room| make_room(room, required_bytes));
    let best = plans.min_by_key(|plan| (plan.moved_bytes(), plan.moves.len()));
    let Some(mut best) = best else {
        let what = region.map_or("any region".to_owned(), |region| format!("region {region}"));
        let trouble = asked.filter(|room| !room.is_open());
        let trouble = trouble.map(|room| format!("; {}: {}", room.name(), room.region.trouble));
        let message = format!(
            "no volumes that go make room for {} in {what} of host {name}{}",
            Shown(required_bytes),
            trouble.collect::<String>()
        );
        let refusal = Refusal::new(Code::ResourceExhausted, "NO_ROOM_CAN_BE_MADE", message);
        return Err(Box::new(refusal.with("host", name).with_hint(
            "`berth volume capacity` says how large the regions are",
        )));
    };
    let open = state.volume_candidates(None, &BTreeSet::new()).into_iter();
    let open = open.filter(|candidate| candidate.closed.is_empty());
    let rooms = open.flat_map(|candidate| {
        let host = candidate.host;
        let rooms = candidate.rooms.into_iter();
        rooms.map(move |(_, room)| (host.clone(), room))
    });
    let mut rooms: Vec<(HostName, Room)> = rooms.collect();
    let usable = |id: &VolumeId| {
        let volume = state.volume(id);
        // A cache cannot go where another part of it is; that it is elsewhere is said all the same.
        volume.map_or(0, |volume| volume.required_bytes.max(1))
    };
    find_places(&mut best, name, &mut rooms, usable);
    Ok(best)
}

fn write_plan(plan: Plan) -> v1::PlanVolumeRoomResponse {
    let moves = plan.moves.into_iter().map(|one| {
        let (to_host, to_region) = match one.to {
            Some((host, region)) => (host.resource_name(), region.to_string()),
            None => Default::default(),
        };
        v1::VolumeMove {
            volume: one.volume.resource_name(),
            gross_bytes: one.gross_bytes,
            to_host,
            to_region,
        }
    });
    v1::PlanVolumeRoomResponse {
        region: plan.region.to_string(),
        extent: plan.extent.map(Into::into),
        moves: moves.collect(),
    }
}

/// Works something out on a thread where it may take its time.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Answer<T> + Send + 'static) -> Answer<T> {
    let worked = tokio::task::spawn_blocking(work).await;
    worked.unwrap_or_else(|_| Err(refusal::search_failed()))
}
