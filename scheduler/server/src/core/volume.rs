//! The request for a volume: whether it is there already, and where it goes otherwise.

use std::sync::Arc;

use berth_domain::id::{Generation, TimeMs};
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::volume::{Chosen, Phase, Replica, Volume, Wish, choose};
use berth_state::State;
use berth_state::command::Command;
use berth_state::volumes::{Same, volume_differs};

use super::request::CreateVolume;

/// Returns the volume of the name that is asked for, if there is one: as it is, or why it will not do.
pub(super) fn known(
    state: &State,
    wanted: &CreateVolume,
) -> Option<Result<Arc<Volume>, Box<Refusal>>> {
    let volume = state.volume_named(wanted.display_name.as_str())?;
    let same = Same {
        kind: wanted.kind,
        parameters: wanted.parameters,
        replicas: wanted.replicas,
        required_bytes: wanted.required_bytes,
        limit_bytes: wanted.limit_bytes,
    };
    let examined = state.examine_same(volume, &same).and_then(|()| {
        let is_elsewhere = |replica: &&Replica| !wanted.requisite.contains(&replica.host);
        match volume.replicas.iter().find(is_elsewhere) {
            Some(replica) if !wanted.requisite.is_empty() => {
                let how = format!("is on host {}, which is none of those", replica.host);
                Err(volume_differs(volume, &how))
            }
            Some(_) | None => Ok(volume.clone()),
        }
    });
    Some(examined.map_err(Box::new))
}

/// Chooses the hosts and regions of a new volume.
pub(super) fn create(state: &State, wanted: &CreateVolume) -> Result<Command, Box<Refusal>> {
    let mut named = wanted.requisite.iter().chain(&wanted.preferred);
    let is_known = |host: &HostName| state.host(host).is_some();
    // Of many that are named some may be gone; of none is there nothing to choose from.
    if let Some(first) = named.clone().next().filter(|_| !named.any(is_known)) {
        let message = format!("host {first} is not part of this cluster");
        return Err(Box::new(
            Refusal::new(Code::NotFound, "HOST_NOT_FOUND", message)
                .with("host", first)
                .with_hint("the hosts of this cluster are listed by `berth host list`"),
        ));
    }
    let wish = Wish {
        required_bytes: wanted.required_bytes,
        limit_bytes: wanted.limit_bytes,
        replicas: wanted.replicas,
        preferred: wanted.preferred.clone(),
        requisite: wanted.requisite.clone(),
    };
    let candidates = state.volume_candidates(wanted.preferred_cell, &wanted.requisite);
    let chosen = choose(&candidates, &wish)?;
    let volume = Volume {
        id: wanted.display_name.id(wanted.number),
        display_name: wanted.display_name.clone(),
        kind: wanted.kind,
        required_bytes: wanted.required_bytes,
        parameters: wanted.parameters,
        replicas: chosen.into_iter().map(replica).collect(),
        // Written when it is applied.
        created_at: TimeMs(0),
        generation: Generation(0),
    };
    Ok(Command::CreateVolume {
        volume: Box::new(volume),
        limit_bytes: wanted.limit_bytes,
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
