//! Namespaces of persistent memory: of hosts, of guests, and those that are being erased.

use std::collections::BTreeMap;

use berth_domain::claim::{ERASURE_FAILURE_LENGTH_MAX, Erasure, ErasureProgress, ErasureReport};
use berth_domain::name::PmemName;
use berth_domain::pmem::{
    NAMESPACES_MAX, PATH_LENGTH_MAX, PmemDevice, PmemNamespace, REGION_LENGTH_MAX,
    TROUBLE_LENGTH_MAX,
};
use berth_domain::resource::ResourceClass;
use berth_domain::topology::CellId;

use super::field::{self, Invalid};
use super::name::ResourceName as _;
use crate::types::v1;

/// Reads the name of a namespace.
pub(super) fn read_name(text: &str, field: &str) -> Result<PmemName, Invalid> {
    text.parse()
        .map_err(|rule| Invalid::new(field, format!("{rule}")))
}

fn read_class(text: &str) -> Result<ResourceClass, Invalid> {
    let class = ResourceClass::new(text);
    class.map_err(|rule| Invalid::new("resource_class", format!("{rule}")))
}

impl From<&PmemNamespace> for v1::PmemNamespace {
    fn from(namespace: &PmemNamespace) -> Self {
        Self {
            name: namespace.name.to_string(),
            resource_class: namespace.class.to_string(),
            size_bytes: namespace.size_bytes,
            align_bytes: namespace.align_bytes,
            path: namespace.path.clone(),
            cell: namespace.cell.map(|cell| cell.0),
            region: namespace.region.clone(),
            trouble: namespace.trouble.clone(),
        }
    }
}

impl TryFrom<v1::PmemNamespace> for PmemNamespace {
    type Error = Invalid;

    fn try_from(wire: v1::PmemNamespace) -> Result<Self, Invalid> {
        Ok(Self {
            name: read_name(&wire.name, "name")?,
            class: read_class(&wire.resource_class)?,
            size_bytes: wire.size_bytes,
            align_bytes: wire.align_bytes,
            path: field::text(wire.path, "path", PATH_LENGTH_MAX)?,
            cell: wire.cell.map(CellId),
            region: field::text(wire.region, "region", REGION_LENGTH_MAX)?,
            trouble: field::text(wire.trouble, "trouble", TROUBLE_LENGTH_MAX)?,
        })
    }
}

impl From<&PmemDevice> for v1::PmemDevice {
    fn from(device: &PmemDevice) -> Self {
        Self {
            name: device.name.to_string(),
            resource_class: device.class.to_string(),
            size_bytes: device.size_bytes,
            align_bytes: device.align_bytes,
            path: device.path.clone(),
        }
    }
}

impl TryFrom<v1::PmemDevice> for PmemDevice {
    type Error = Invalid;

    fn try_from(wire: v1::PmemDevice) -> Result<Self, Invalid> {
        Ok(Self {
            name: read_name(&wire.name, "name")?,
            class: read_class(&wire.resource_class)?,
            size_bytes: wire.size_bytes,
            align_bytes: wire.align_bytes,
            path: field::text(wire.path, "path", PATH_LENGTH_MAX)?,
        })
    }
}

/// Writes the erasures of a claim.
pub(super) fn write_erasures(erasures: &BTreeMap<PmemName, Erasure>) -> Vec<v1::PmemErasure> {
    let erasures = erasures.iter().map(|(name, erasure)| v1::PmemErasure {
        namespace: name.to_string(),
        since: Some(field::timestamp(erasure.since)),
        failures: erasure.failures,
        failure: erasure.failure.clone(),
        erased_bytes: erasure.erased_bytes,
        quarantined: erasure.is_quarantined(),
        written_off: erasure.written_off,
    });
    erasures.collect()
}

/// Reads the erasures of a claim.
pub(super) fn read_erasures(
    wire: Vec<v1::PmemErasure>,
) -> Result<BTreeMap<PmemName, Erasure>, Invalid> {
    let count = wire.len();
    let erasures = field::each_by(wire, "erasures", NAMESPACES_MAX, |wire| {
        let erasure = Erasure {
            since: field::time(wire.since, "since")?,
            failures: wire.failures,
            failure: field::text(wire.failure, "failure", ERASURE_FAILURE_LENGTH_MAX)?,
            erased_bytes: wire.erased_bytes,
            written_off: wire.written_off,
        };
        Ok((read_name(&wire.namespace, "namespace")?, erasure))
    })?;
    let erasures: BTreeMap<_, _> = erasures.into_iter().collect();
    if erasures.len() != count {
        return Err(Invalid::new("erasures", "must name each namespace once"));
    }
    Ok(erasures)
}

impl From<&ErasureReport> for v1::PmemErasureReport {
    fn from(report: &ErasureReport) -> Self {
        use v1::pmem_erasure_report::Progress;
        Self {
            claim: report.claim.resource_name(),
            namespace: report.namespace.to_string(),
            progress: Some(match &report.progress {
                ErasureProgress::Running { erased_bytes } => Progress::ErasedBytes(*erased_bytes),
                ErasureProgress::Failed { failure } => Progress::Failure(failure.clone()),
                ErasureProgress::Erased => Progress::Erased(v1::PmemErased {}),
            }),
        }
    }
}

impl TryFrom<v1::PmemErasureReport> for ErasureReport {
    type Error = Invalid;

    fn try_from(wire: v1::PmemErasureReport) -> Result<Self, Invalid> {
        use v1::pmem_erasure_report::Progress;
        let progress = match wire.progress {
            None => return Err(Invalid::new("progress", "is required")),
            Some(Progress::ErasedBytes(erased_bytes)) => ErasureProgress::Running { erased_bytes },
            Some(Progress::Failure(failure)) => ErasureProgress::Failed {
                failure: field::text(failure, "failure", ERASURE_FAILURE_LENGTH_MAX)?,
            },
            Some(Progress::Erased(v1::PmemErased {})) => ErasureProgress::Erased,
        };
        Ok(Self {
            claim: field::name(&wire.claim, "claim")?,
            namespace: read_name(&wire.namespace, "namespace")?,
            progress,
        })
    }
}
