//! Volumes where they are chosen to be.

use std::collections::BTreeSet;

use berth_domain::id::{Generation, TimeMs};
use berth_domain::ownership::Ownership;
use berth_domain::refusal::Refusal;
use berth_domain::volume::{
    Chosen, DisplayName, Kind, Parameters, Phase, Replica, Volume, VolumeRequest, choose,
};

use super::{World, uuid};

/// Returns a volume where it is chosen to be now.
pub fn chosen(
    world: &mut World,
    name: &str,
    kind: Kind,
    request: &VolumeRequest,
) -> Result<Volume, Box<Refusal>> {
    let chosen = choose(
        &world.state.volume_candidates(None, &BTreeSet::new()),
        request,
    )?;
    let display_name = DisplayName::new(name).unwrap();
    let replica = |chosen: Chosen| Replica {
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
    };
    Ok(Volume {
        id: display_name.id(uuid(7, world.fresh())),
        display_name,
        kind,
        required_bytes: request.required_bytes,
        parameters: Parameters::default(),
        replicas: chosen.into_iter().map(replica).collect(),
        created_at: TimeMs(0),
        generation: Generation(0),
        ownership: Ownership::default(),
    })
}
