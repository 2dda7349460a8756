//! How full a volume is.

use std::path::Path;

use berth_domain::refusal::{Code, Refusal};
use berth_proto::csi::v1::volume_usage::Unit;
use berth_proto::csi::v1::{NodeGetVolumeStatsResponse, VolumeUsage};

use super::require_volume;
use crate::host::{Host, Space};

pub(super) fn stats(
    host: &dyn Host,
    id: &str,
    path: &str,
) -> Result<NodeGetVolumeStatsResponse, Refusal> {
    let volume = require_volume(host, id)?;
    let elsewhere = || {
        let message = format!("volume {} is not at {path:?}", volume.id);
        Refusal::new(Code::NotFound, "NOT_THERE", message)
    };
    let how = volume.targets.get(path).ok_or_else(elsewhere)?;
    let at = Path::new(path);
    if !host.is_mounted(at)? {
        return Err(elsewhere());
    }
    let usage = if how.starts_with("published block") {
        // Only the user of a block device knows what of it is used.
        vec![VolumeUsage {
            total: signed(volume.size_bytes),
            unit: Unit::Bytes.into(),
            ..VolumeUsage::default()
        }]
    } else {
        let (bytes, files) = host.space(at)?;
        vec![to_usage(bytes, Unit::Bytes), to_usage(files, Unit::Inodes)]
    };
    Ok(NodeGetVolumeStatsResponse {
        usage,
        volume_condition: None,
    })
}

fn to_usage(space: Space, unit: Unit) -> VolumeUsage {
    VolumeUsage {
        available: signed(space.available),
        total: signed(space.total),
        used: signed(space.used),
        unit: unit.into(),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
