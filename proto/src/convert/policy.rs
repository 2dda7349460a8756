//! The scheduling policy.

use berth_domain::id::Generation;
use berth_domain::numa::Strategy;
use berth_domain::policy::{
    Admission, BalancePolicy, CpuPolicy, DefaultPages, FailoverPolicy, GAIN_MIN_MILLI_DEFAULT,
    MemoryPolicy, MigrationPolicy, SchedulingPolicy, WEIGHT_MAX, Weights,
};

use super::field::{self, Invalid, choices};
use crate::policy::v1;
use crate::policy::v1::failover_policy::Admission as WireAdmission;
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
            dead_member_timeout_s: policy.dead_member_timeout_s.unwrap_or(0),
            memory: (policy.memory != MemoryPolicy::default()).then(|| (&policy.memory).into()),
            cpu: (policy.cpu != CpuPolicy::default()).then(|| (&policy.cpu).into()),
            failover: (policy.failover != FailoverPolicy::default())
                .then(|| (&policy.failover).into()),
            balance: (policy.balance != BalancePolicy::default()).then(|| (&policy.balance).into()),
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
            dead_member_timeout_s: Some(wire.dead_member_timeout_s).filter(|s| *s != 0),
            memory: field::optional(wire.memory, "memory")?.unwrap_or_default(),
            cpu: field::optional(wire.cpu, "cpu")?.unwrap_or_default(),
            failover: field::optional(wire.failover, "failover")?.unwrap_or_default(),
            balance: field::optional(wire.balance, "balance")?.unwrap_or_default(),
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

impl From<&FailoverPolicy> for v1::FailoverPolicy {
    fn from(policy: &FailoverPolicy) -> Self {
        let admission = match policy.admission {
            Admission::Off => WireAdmission::Unspecified,
            Admission::Warn => WireAdmission::Warn,
            Admission::Refuse => WireAdmission::Refuse,
        };
        Self {
            admission: admission.into(),
        }
    }
}

impl TryFrom<v1::FailoverPolicy> for FailoverPolicy {
    type Error = Invalid;

    fn try_from(wire: v1::FailoverPolicy) -> Result<Self, Invalid> {
        let admission = match WireAdmission::try_from(wire.admission) {
            Ok(WireAdmission::Unspecified) => Admission::Off,
            Ok(WireAdmission::Warn) => Admission::Warn,
            Ok(WireAdmission::Refuse) => Admission::Refuse,
            Err(_) => return Err(Invalid::new("admission", "must be a known value")),
        };
        Ok(Self { admission })
    }
}

impl From<&BalancePolicy> for v1::BalancePolicy {
    fn from(policy: &BalancePolicy) -> Self {
        Self {
            threshold_milli: policy.threshold_milli.unwrap_or(0),
            hold_ms: policy.hold_ms,
            gain_min_milli: match policy.gain_min_milli {
                GAIN_MIN_MILLI_DEFAULT => 0,
                gain => gain,
            },
        }
    }
}

impl TryFrom<v1::BalancePolicy> for BalancePolicy {
    type Error = Invalid;

    fn try_from(wire: v1::BalancePolicy) -> Result<Self, Invalid> {
        let policy = Self {
            threshold_milli: Some(wire.threshold_milli).filter(|score| *score != 0),
            hold_ms: wire.hold_ms,
            gain_min_milli: match wire.gain_min_milli {
                0 => GAIN_MIN_MILLI_DEFAULT,
                gain => gain,
            },
        };
        if policy.is_bounded() {
            Ok(policy)
        } else {
            Err(Invalid::here("a number of balancing is out of its bounds"))
        }
    }
}
