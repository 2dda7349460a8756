//! The scheduling policy.

use berth_domain::id::Generation;
use berth_domain::numa::Strategy;
use berth_domain::policy::{DefaultPages, MigrationPolicy, SchedulingPolicy, WEIGHT_MAX, Weights};

use super::field::{self, Invalid, choices};
use crate::policy::v1;
use crate::policy::v1::scheduling_policy::{Pages as WirePages, Strategy as WireStrategy};

impl From<&SchedulingPolicy> for v1::SchedulingPolicy {
    fn from(policy: &SchedulingPolicy) -> Self {
        Self {
            hosts: WireStrategy::from(policy.hosts).into(),
            cells: WireStrategy::from(policy.cells).into(),
            weights: Some((&policy.weights).into()),
            generation: policy.generation.0,
            mem_page_size: policy
                .mem_page_size
                .map_or(WirePages::Unspecified, Into::into)
                .into(),
            migration: (policy.migration != MigrationPolicy::default())
                .then(|| (&policy.migration).into()),
            self_fence_ms: policy.self_fence_ms.unwrap_or(0),
        }
    }
}

impl TryFrom<v1::SchedulingPolicy> for SchedulingPolicy {
    type Error = Invalid;

    fn try_from(wire: v1::SchedulingPolicy) -> Result<Self, Invalid> {
        Ok(Self {
            hosts: field::choice::<WireStrategy, _>(wire.hosts, "hosts")?,
            cells: field::choice::<WireStrategy, _>(wire.cells, "cells")?,
            weights: field::required(wire.weights, "weights")?,
            generation: Generation(wire.generation),
            mem_page_size: match WirePages::try_from(wire.mem_page_size) {
                Ok(WirePages::Unspecified) => None,
                Ok(WirePages::Small | WirePages::Large | WirePages::Any) | Err(_) => Some(
                    field::choice::<WirePages, _>(wire.mem_page_size, "mem_page_size")?,
                ),
            },
            migration: field::optional(wire.migration, "migration")?.unwrap_or_default(),
            self_fence_ms: Some(wire.self_fence_ms).filter(|ms| *ms != 0),
        })
    }
}

choices!(Strategy => WireStrategy { Spread, Pack });
choices!(DefaultPages => WirePages { Small, Large, Any });

impl From<&Weights> for v1::Weights {
    fn from(weights: &Weights) -> Self {
        Self {
            load: weights.load.into(),
            numa: weights.numa.into(),
            pci: weights.pci.into(),
            fragmentation: weights.fragmentation.into(),
            soft_affinity: weights.soft_affinity.into(),
        }
    }
}

impl TryFrom<v1::Weights> for Weights {
    type Error = Invalid;

    fn try_from(wire: v1::Weights) -> Result<Self, Invalid> {
        Ok(Self {
            load: weight(wire.load, "load")?,
            numa: weight(wire.numa, "numa")?,
            pci: weight(wire.pci, "pci")?,
            fragmentation: weight(wire.fragmentation, "fragmentation")?,
            soft_affinity: weight(wire.soft_affinity, "soft_affinity")?,
        })
    }
}

fn weight(value: u32, field: &str) -> Result<u16, Invalid> {
    let weight = u16::try_from(value).ok().filter(|w| *w <= WEIGHT_MAX);
    weight.ok_or_else(|| Invalid::new(field, format!("must be at most {WEIGHT_MAX}")))
}
