//! The reads of `berth.volume.v1.VolumeService`.
//!
//! What takes longer for many hosts is worked out of a frozen state, away from the replica's task.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::name::{HostName, RegionName, VolumeId};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::volume::{
    DeviceMode, DisplayName, FIT_MAX, Failed, Plan, RegionUsage, Shown, Volume, find_destinations,
    fit as fit_together, plan_space,
};
use berth_proto::convert::page::Page;
use berth_proto::convert::volume::{read_display_name, read_region};
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::filter::Filter;
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
    let page = Page::filtered(wire.page_size, &wire.page_token, &wire.filter)?;
    let filter = Filter::new::<v1::Volume>(&wire.filter)?;
    let host: Option<HostName> = field::optional_name(&wire.host, "host")?;
    let state = context.state(wire.consistency).await?;
    let listed = list::filtered(context, filter, move |filter| {
        let parse = |text: &str| VolumeId::new(text).ok();
        let keep = |volume: &Volume| filter.matches_with(|| write_volume(&state, volume));
        let (volumes, next_page_token) = match &host {
            None => list::page(state.volumes(), &page, parse, VolumeId::to_string, keep),
            // These have an index of their own.
            Some(host) => {
                let volumes = state
                    .volumes_of_host(host)
                    .map(|v| (v.id.clone(), v.clone()));
                list::page(&volumes.collect(), &page, parse, VolumeId::to_string, keep)
            }
        }?;
        Ok(v1::ListVolumesResponse {
            volumes: volumes.iter().map(|v| write_volume(&state, v)).collect(),
            next_page_token,
        })
    });
    listed.await.map(Response::new)
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
            let usages = state.regions_of(&view.host);
            let open = closed(&view.host).is_empty();
            if open {
                for usage in &usages {
                    let available = answer.available_bytes;
                    answer.available_bytes = available.saturating_add(usage.available_bytes());
                    answer.maximum_volume_bytes = answer.maximum_volume_bytes.max(usage.largest());
                }
            }
            answer.hosts.push(v1::HostVolumeCapacity {
                host: view.host.name.resource_name(),
                open,
                regions: usages.iter().map(write_region).collect(),
            });
        }
        Ok(Response::new(answer))
    })
    .await
}

fn write_region(usage: &RegionUsage) -> v1::RegionCapacity {
    let held = usage.held.iter().filter_map(|held| {
        Some(v1::VolumeExtent {
            volume: held.volume.resource_name(),
            extent: Some(held.taken.extent?.into()),
        })
    });
    let mut volumes: Vec<_> = held.collect();
    volumes.sort_by_key(|one| one.extent.map_or(0, |extent| extent.offset_bytes));
    let is_direct = usage.region.mode == DeviceMode::Direct;
    let free = usage.free().into_iter().filter(|_| is_direct);
    v1::RegionCapacity {
        region: Some((&usage.region).into()),
        used_bytes: usage.used_bytes(),
        available_bytes: usage.available_bytes(),
        maximum_volume_bytes: usage.largest(),
        minimum_volume_bytes: usage.smallest(),
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
    let usages: Vec<RegionUsage> = candidate
        .regions
        .into_iter()
        .map(|(_, usage)| usage)
        .collect();
    match fit_together(&usages, sizes) {
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

pub(super) async fn plan_headroom(
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
    let usages = state.regions_of(&view.host);
    let candidates = usages
        .iter()
        .filter(|usage| region.is_none_or(|r| r == usage.name()));
    let plans = candidates
        .clone()
        .filter_map(|usage| plan_space(usage, required_bytes));
    let best = plans.min_by_key(|plan| (plan.moved_bytes(), plan.moves.len()));
    let Some(mut best) = best else {
        let what = region.map_or("any region".to_owned(), |region| format!("region {region}"));
        let trouble = candidates.filter(|usage| !usage.is_open());
        let trouble = trouble.map(|usage| format!("; {}: {}", usage.name(), usage.region.trouble));
        let message = format!(
            "moving volumes cannot free {} in {what} of host {name}{}",
            Shown(required_bytes),
            trouble.collect::<String>()
        );
        let refusal = Refusal::new(Code::ResourceExhausted, "NO_ROOM_CAN_BE_MADE", message);
        return Err(Box::new(refusal.with("host", name).with_hint(
            "`berth volume capacity` lists the sizes of the regions",
        )));
    };
    let open = state.volume_candidates(None, &BTreeSet::new()).into_iter();
    let open = open.filter(|candidate| candidate.closed.is_empty());
    let usages = open.flat_map(|candidate| {
        let host = candidate.host;
        let usages = candidate.regions.into_iter();
        usages.map(move |(_, usage)| (host.clone(), usage))
    });
    let mut usages: Vec<(HostName, RegionUsage)> = usages.collect();
    let usable = |id: &VolumeId| {
        let volume = state.volume(id);
        // A cache cannot go where another part of it is; its other location is reported all the same.
        volume.map_or(0, |volume| volume.required_bytes.max(1))
    };
    find_destinations(&mut best, name, &mut usages, usable);
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
