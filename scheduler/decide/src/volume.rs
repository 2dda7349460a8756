//! Volume creation: an existing volume is returned, a new one is placed.

use std::sync::Arc;

use berth_domain::id::{Generation, TimeMs};
use berth_domain::name::HostName;
use berth_domain::ownership::Ownership;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::volume::{Chosen, Phase, Replica, Volume, VolumeRequest, choose};
use berth_state::State;
use berth_state::command::Command;
use berth_state::volumes::{Same, volume_differs};

use super::request::CreateVolume;

/// Returns the volume with the requested name, if one exists, or why it differs from the request.
pub(super) fn known(
    state: &State,
    params: &CreateVolume,
) -> Option<Result<Arc<Volume>, Box<Refusal>>> {
    let volume = state.volume_named(params.display_name.as_str())?;
    let same = Same {
        kind: params.kind,
        parameters: params.parameters,
        replicas: params.replicas,
        required_bytes: params.required_bytes,
        limit_bytes: params.limit_bytes,
    };
    let examined = state.examine_same(volume, &same).and_then(|()| {
        let is_elsewhere = |replica: &&Replica| !params.requisite.contains(&replica.host);
        match volume.replicas.iter().find(is_elsewhere) {
            Some(replica) if !params.requisite.is_empty() => {
                let how = format!("is on host {}, which is none of those", replica.host);
                Err(volume_differs(volume, &how))
            }
            Some(_) | None => Ok(volume.clone()),
        }
    });
    Some(examined.map_err(Box::new))
}

/// Chooses the hosts and regions of a new volume.
pub(super) fn create(state: &State, params: &CreateVolume) -> Result<Command, Box<Refusal>> {
    let mut named = params.requisite.iter().chain(&params.preferred);
    let is_known = |host: &HostName| state.host(host).is_some();
    // Some of the named hosts may have been removed; if none is left there is nothing to choose from.
    if let Some(first) = named.clone().next().filter(|_| !named.any(is_known)) {
        let message = format!("host {first} is not part of this cluster");
        return Err(Box::new(
            Refusal::new(Code::NotFound, "HOST_NOT_FOUND", message)
                .with("host", first)
                .with_hint("the hosts of this cluster are listed by `berth host list`"),
        ));
    }
    let request = VolumeRequest {
        required_bytes: params.required_bytes,
        limit_bytes: params.limit_bytes,
        replicas: params.replicas,
        preferred: params.preferred.clone(),
        requisite: params.requisite.clone(),
    };
    let candidates = state.volume_candidates(params.preferred_cell, &params.requisite);
    let chosen = choose(&candidates, &request)?;
    let volume = Volume {
        id: params.display_name.id(params.number),
        display_name: params.display_name.clone(),
        kind: params.kind,
        required_bytes: params.required_bytes,
        parameters: params.parameters,
        replicas: chosen.into_iter().map(replica).collect(),
        // Written when it is applied.
        created_at: TimeMs(0),
        generation: Generation(0),
        ownership: Ownership::requested(params.project.clone()),
    };
    Ok(Command::CreateVolume {
        volume: Box::new(volume),
        limit_bytes: params.limit_bytes,
    })
}

fn replica(chosen: Chosen) -> Replica {
    Replica {
        host: chosen.host,
        region: chosen.region,
        cell: chosen.cell,
        mode: chosen.mode,
        gross_bytes: chosen.taken.gross_bytes,
        size_bytes: chosen.size_bytes,
        extent: chosen.taken.extent,
        placed: false,
        phase: Phase::Creating,
        sequence: 0,
        erased_bytes: 0,
        failure: String::new(),
        failures: 0,
    }
}
