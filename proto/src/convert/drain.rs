//! Drains: how a host is drained, and what became of its VMs.

use berth_domain::operation::drain::{BY_MAX, DRAINED_MAX, PARALLEL_MAX};
use berth_domain::operation::{Drain, DrainSpec, DrainedVm, PlannedPlace, Progress};

use super::field::{self, Invalid};
use super::name::ResourceName as _;
use crate::operation::v1;
use crate::operation::v1::drained_vm::Progress as WireProgress;

impl From<&DrainSpec> for v1::DrainHostOperation {
    fn from(spec: &DrainSpec) -> Self {
        Self {
            evacuate: spec.evacuate,
            cold: spec.cold,
            parallel_max: spec.parallel,
            by_policy: spec.by_policy,
        }
    }
}

impl TryFrom<v1::DrainHostOperation> for DrainSpec {
    type Error = Invalid;

    fn try_from(wire: v1::DrainHostOperation) -> Result<Self, Invalid> {
        if !(1..=PARALLEL_MAX).contains(&wire.parallel_max) {
            let rule = format!("must be 1 to {PARALLEL_MAX}");
            return Err(Invalid::new("parallel_max", rule));
        }
        if wire.cold && wire.evacuate {
            let rule = "must be false for an evacuation, which starts all VMs again";
            return Err(Invalid::new("cold", rule));
        }
        Ok(Self {
            evacuate: wire.evacuate,
            cold: wire.cold,
            parallel: wire.parallel_max,
            by_policy: wire.by_policy,
        })
    }
}

impl From<&PlannedPlace> for v1::PlannedPlace {
    fn from(place: &PlannedPlace) -> Self {
        Self {
            host: place.host.resource_name(),
            assignment: Some((&place.assignment).into()),
        }
    }
}

impl TryFrom<v1::PlannedPlace> for PlannedPlace {
    type Error = Invalid;

    fn try_from(wire: v1::PlannedPlace) -> Result<Self, Invalid> {
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            assignment: field::required(wire.assignment, "assignment")?,
        })
    }
}

impl From<&DrainedVm> for v1::DrainedVm {
    fn from(drained: &DrainedVm) -> Self {
        Self {
            vm: drained.vm.resource_name(),
            uid: drained.uid.to_string(),
            planned: drained.planned.as_ref().map(Into::into),
            attempts: drained.attempts,
            progress: Some(match &drained.progress {
                Progress::Waiting => WireProgress::Waiting(v1::DrainWaiting {}),
                Progress::Moving { operation } => WireProgress::Moving(operation.resource_name()),
                Progress::Moved { host } => WireProgress::Moved(host.resource_name()),
                Progress::Gone => WireProgress::Gone(v1::DrainGone {}),
                Progress::Stays { refusal } => WireProgress::Stays(refusal.into()),
            }),
        }
    }
}

impl TryFrom<v1::DrainedVm> for DrainedVm {
    type Error = Invalid;

    fn try_from(wire: v1::DrainedVm) -> Result<Self, Invalid> {
        let progress = match wire.progress {
            None => {
                return Err(Invalid::new(
                    "progress",
                    "must be one that this build knows",
                ));
            }
            Some(WireProgress::Waiting(v1::DrainWaiting {})) => Progress::Waiting,
            Some(WireProgress::Moving(operation)) => Progress::Moving {
                operation: field::name(&operation, "moving")?,
            },
            Some(WireProgress::Moved(host)) => Progress::Moved {
                host: field::name(&host, "moved")?,
            },
            Some(WireProgress::Gone(v1::DrainGone {})) => Progress::Gone,
            Some(WireProgress::Stays(refusal)) => Progress::Stays {
                refusal: refusal.try_into().map_err(|e: Invalid| e.within("stays"))?,
            },
        };
        Ok(Self {
            vm: field::name(&wire.vm, "vm")?,
            uid: field::uuid(&wire.uid, "uid")?,
            planned: field::optional(wire.planned, "planned")?,
            attempts: wire.attempts,
            progress,
        })
    }
}

impl From<&Drain> for v1::Drain {
    fn from(drain: &Drain) -> Self {
        Self {
            host: drain.host.resource_name(),
            requested_by: drain.by.clone(),
            was_cordoned: drain.was_cordoned,
            vms: drain.vms.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Drain> for Drain {
    type Error = Invalid;

    fn try_from(wire: v1::Drain) -> Result<Self, Invalid> {
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            by: field::text(wire.requested_by, "requested_by", BY_MAX)?,
            was_cordoned: wire.was_cordoned,
            vms: field::each(wire.vms, "vms", DRAINED_MAX)?,
        })
    }
}
