//! Volumes of persistent memory, and the regions that they are made of.

use berth_domain::id::Generation;
use berth_domain::name::{RegionName, VolumeId};
use berth_domain::pmem::TROUBLE_LENGTH_MAX;
use berth_domain::topology::CellId;
use berth_domain::volume::{
    DeviceMode, DisplayName, Extent, FAILURE_LENGTH_MAX, FOREIGN_MAX, Kind, Outcome, Parameters,
    Phase, REPLICAS_MAX, Region, Replica, Report, Volume, consumer_of,
};

use super::ResourceName as _;
use super::field::{self, Invalid, choices};
use super::ownership::{self, write_project};
use crate::volume::v1;

choices!(DeviceMode => v1::DeviceMode { Lvm, Direct });
choices!(Phase => v1::ReplicaPhase { Creating, Ready, Deleting });
choices!(Kind => v1::VolumeKind { Persistent, Ephemeral, Cache });

/// Reads the name of a region.
///
/// # Errors
///
/// When it is not valid.
pub fn read_region(value: &str, field: &str) -> Result<RegionName, Invalid> {
    RegionName::new(value).map_err(|rule| Invalid::new(field, format!("{rule}")))
}

/// Reads what people call a volume.
///
/// # Errors
///
/// When it is not valid.
pub fn read_display_name(value: &str, field: &str) -> Result<DisplayName, Invalid> {
    DisplayName::new(value).map_err(|rule| Invalid::new(field, rule.to_string()))
}

/// Reads how long a volume lives; by default until it is deleted.
///
/// # Errors
///
/// When it is none that this build knows.
pub fn read_kind(value: i32, field: &str) -> Result<Kind, Invalid> {
    match value {
        0 => Ok(Kind::Persistent),
        kind => field::choice::<v1::VolumeKind, _>(kind, field),
    }
}

/// Reads what the hosts of a volume have to know; the defaults otherwise.
#[must_use]
pub fn read_parameters(wire: Option<v1::VolumeParameters>) -> Parameters {
    let wire = wire.unwrap_or_default();
    Parameters {
        erase_after: wire.erase_after.unwrap_or(true),
        kata_containers: wire.kata_containers,
    }
}

impl From<Parameters> for v1::VolumeParameters {
    fn from(parameters: Parameters) -> Self {
        Self {
            erase_after: Some(parameters.erase_after),
            kata_containers: parameters.kata_containers,
        }
    }
}

impl From<Extent> for v1::Extent {
    fn from(extent: Extent) -> Self {
        Self {
            offset_bytes: extent.offset_bytes,
            length_bytes: extent.length_bytes,
        }
    }
}

impl From<v1::Extent> for Extent {
    fn from(wire: v1::Extent) -> Self {
        Self {
            offset_bytes: wire.offset_bytes,
            length_bytes: wire.length_bytes,
        }
    }
}

impl From<&Region> for v1::Region {
    fn from(region: &Region) -> Self {
        Self {
            name: region.name.to_string(),
            cell: region.cell.map(|cell| cell.0),
            mode: v1::DeviceMode::from(region.mode).into(),
            capacity_bytes: region.capacity_bytes,
            align_bytes: region.align_bytes,
            foreign: region.foreign.iter().copied().map(Into::into).collect(),
            trouble: region.trouble.clone(),
        }
    }
}

impl TryFrom<v1::Region> for Region {
    type Error = Invalid;

    fn try_from(wire: v1::Region) -> Result<Self, Invalid> {
        if wire.align_bytes == 0 {
            return Err(Invalid::new("align_bytes", "must not be 0"));
        }
        if wire.foreign.len() > FOREIGN_MAX {
            return Err(Invalid::new(
                "foreign",
                format!("at most {FOREIGN_MAX} entries"),
            ));
        }
        Ok(Self {
            name: (wire.name.parse()).map_err(|rule| Invalid::new("name", format!("{rule}")))?,
            cell: wire.cell.map(CellId),
            mode: field::choice::<v1::DeviceMode, _>(wire.mode, "mode")?,
            capacity_bytes: wire.capacity_bytes,
            align_bytes: wire.align_bytes,
            foreign: wire.foreign.into_iter().map(Into::into).collect(),
            trouble: field::text(wire.trouble, "trouble", TROUBLE_LENGTH_MAX)?,
        })
    }
}

impl From<&Replica> for v1::Replica {
    fn from(replica: &Replica) -> Self {
        Self {
            host: replica.host.resource_name(),
            region: replica.region.to_string(),
            cell: replica.cell.map(|cell| cell.0),
            mode: v1::DeviceMode::from(replica.mode).into(),
            gross_bytes: replica.gross_bytes,
            size_bytes: replica.size_bytes,
            extent: replica.extent.map(Into::into),
            phase: v1::ReplicaPhase::from(replica.phase).into(),
            sequence: replica.sequence,
            erased_bytes: replica.erased_bytes,
            failure: replica.failure.clone(),
            failures: replica.failures,
            placed: replica.placed,
        }
    }
}

impl TryFrom<v1::Replica> for Replica {
    type Error = Invalid;

    fn try_from(wire: v1::Replica) -> Result<Self, Invalid> {
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            region: read_region(&wire.region, "region")?,
            cell: wire.cell.map(CellId),
            mode: field::choice::<v1::DeviceMode, _>(wire.mode, "mode")?,
            gross_bytes: wire.gross_bytes,
            size_bytes: wire.size_bytes,
            extent: wire.extent.map(Into::into),
            placed: wire.placed,
            phase: field::choice::<v1::ReplicaPhase, _>(wire.phase, "phase")?,
            sequence: wire.sequence,
            erased_bytes: wire.erased_bytes,
            failure: field::text(wire.failure, "failure", FAILURE_LENGTH_MAX)?,
            failures: wire.failures,
        })
    }
}

impl From<&Volume> for v1::Volume {
    fn from(volume: &Volume) -> Self {
        Self {
            name: volume.id.resource_name(),
            display_name: volume.display_name.to_string(),
            kind: v1::VolumeKind::from(volume.kind).into(),
            required_bytes: volume.required_bytes,
            size_bytes: volume.size_bytes(),
            parameters: Some(volume.parameters.into()),
            replicas: volume.replicas.iter().map(Into::into).collect(),
            create_time: Some(field::timestamp(volume.created_at)),
            generation: volume.generation.0,
            // Known to the holder of the VMs: filled in by the scheduler's service.
            attached_vm: String::new(),
            project: write_project(volume.ownership.project.as_ref()),
            creator: volume.ownership.creator.clone(),
        }
    }
}

impl TryFrom<v1::Volume> for Volume {
    type Error = Invalid;

    fn try_from(wire: v1::Volume) -> Result<Self, Invalid> {
        let id: VolumeId = field::name(&wire.name, "name")?;
        if consumer_of(&id).is_none() {
            return Err(Invalid::new("name", "must end with the number of a volume"));
        }
        let replicas: Vec<Replica> = field::each(wire.replicas, "replicas", REPLICAS_MAX)?;
        if replicas.is_empty() || !replicas.windows(2).all(|w| w[0].host < w[1].host) {
            let rule = "must be one at least, each on a host of its own, in order of their names";
            return Err(Invalid::new("replicas", rule));
        }
        Ok(Self {
            id,
            display_name: read_display_name(&wire.display_name, "display_name")?,
            kind: field::choice::<v1::VolumeKind, _>(wire.kind, "kind")?,
            required_bytes: wire.required_bytes,
            parameters: read_parameters(wire.parameters),
            replicas,
            created_at: field::time(wire.create_time, "create_time")?,
            generation: Generation(wire.generation),
            ownership: ownership::read(&wire.project, wire.creator)?,
        })
    }
}

impl From<&Report> for v1::VolumeReport {
    fn from(report: &Report) -> Self {
        use v1::volume_report::Outcome as Wire;
        Self {
            volume: report.volume.resource_name(),
            outcome: Some(match &report.outcome {
                Outcome::Created { size_bytes, extent } => Wire::Created(v1::VolumeCreated {
                    size_bytes: *size_bytes,
                    extent: extent.map(Into::into),
                }),
                Outcome::Failed { why } => Wire::Failed(v1::VolumeFailed { why: why.clone() }),
                Outcome::Erasing { erased_bytes } => Wire::ErasedBytes(*erased_bytes),
                Outcome::Delayed { why } => Wire::Delayed(why.clone()),
                Outcome::Deleted => Wire::Deleted(v1::VolumeDeleted {}),
            }),
        }
    }
}

impl TryFrom<v1::VolumeReport> for Report {
    type Error = Invalid;

    fn try_from(wire: v1::VolumeReport) -> Result<Self, Invalid> {
        use v1::volume_report::Outcome as Wire;
        let outcome = wire.outcome;
        let outcome = outcome.ok_or_else(|| Invalid::new("outcome", "is required"))?;
        Ok(Self {
            volume: field::name(&wire.volume, "volume")?,
            outcome: match outcome {
                Wire::Created(wire) => Outcome::Created {
                    size_bytes: wire.size_bytes,
                    extent: wire.extent.map(Into::into),
                },
                Wire::Failed(wire) => Outcome::Failed { why: cut(wire.why) },
                Wire::ErasedBytes(erased_bytes) => Outcome::Erasing { erased_bytes },
                Wire::Delayed(why) => Outcome::Delayed { why: cut(why) },
                Wire::Deleted(v1::VolumeDeleted {}) => Outcome::Deleted,
            },
        })
    }
}

/// What a program printed may be long: its beginning suffices, and a report is not refused for it.
fn cut(mut why: String) -> String {
    let mut end = why.len().min(FAILURE_LENGTH_MAX);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    why.truncate(end);
    why
}
