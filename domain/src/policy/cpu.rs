//! The settings of shared CPUs: of the cluster, a group of hosts, a host.
//!
//! What they mean for placement is in [`crate::host_rule`]; whose setting holds, in
//! [`Scoped`].

use serde::{Deserialize, Serialize};

use super::scoped::{Scoped, Source, Terms};
use crate::host_rule::CpuRule;
use crate::name::{AggregateName, HostName};
use crate::overcommit::AllocationRatio;

/// The least ratio in thousandths. A ratio below 1 keeps CPUs free for each guest; 0 would be no
/// ratio but a closed host, which is what cordoning is for.
pub const CPU_RATIO_MILLI_MIN: u32 = 100;
/// The greatest ratio in thousandths.
pub const CPU_RATIO_MILLI_MAX: u32 = 64_000;
/// The most shared CPUs that can be reserved: as many as a host can have.
pub const CPU_RESERVED_MAX: u32 = 8192;

/// The settings of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuTerms {
    /// How many shared vCPUs one shared CPU may have, in thousandths, from
    /// [`CPU_RATIO_MILLI_MIN`] to [`CPU_RATIO_MILLI_MAX`].
    pub ratio_milli: Option<u32>,
    /// How many shared CPUs of a host are not counted for guests, at most [`CPU_RESERVED_MAX`].
    /// More than a host has leaves it none.
    pub reserved: Option<u32>,
}

impl Terms for CpuTerms {
    const WHAT: &'static str = "shared CPUs";
    const KEYS: [&'static str; 2] = ["cpu.ratio", "cpu.reserved"];

    fn is_bounded(&self) -> bool {
        let bounds = CPU_RATIO_MILLI_MIN..=CPU_RATIO_MILLI_MAX;
        self.ratio_milli.is_none_or(|ratio| bounds.contains(&ratio))
            && self.reserved.is_none_or(|cpus| cpus <= CPU_RESERVED_MAX)
    }
}

/// The effective settings of a host, and their origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveCpu {
    /// What holds.
    pub rule: CpuRule,
    /// The origin of the ratio.
    pub ratio_from: Source,
    /// The origin of the reserved CPUs.
    pub reserved_from: Source,
}

/// The settings of shared CPUs.
pub type CpuPolicy = Scoped<CpuTerms>;

impl CpuPolicy {
    /// Returns what holds of a host in these aggregates.
    pub fn of<'a>(
        &self,
        host: &HostName,
        aggregates: impl IntoIterator<Item = &'a AggregateName>,
    ) -> EffectiveCpu {
        let levels = self.levels(host, aggregates);
        let default = CpuRule::default();
        let ratio = levels.nearest(|terms| terms.ratio_milli);
        let (ratio, ratio_from) = ratio
            .map_or((default.ratio, Source::Default), |(milli, from)| {
                (AllocationRatio::from_milli(milli.into()), from)
            });
        let reserved = levels.nearest(|terms| terms.reserved);
        let (reserved, reserved_from) = reserved
            .map_or((default.reserved, Source::Default), |(cpus, from)| {
                (cpus.into(), from)
            });
        EffectiveCpu {
            rule: CpuRule { ratio, reserved },
            ratio_from,
            reserved_from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_set::CPU_MAX;
    use crate::policy::Scope;

    /// Goal: of each value by itself the nearest that is set holds, with its origin. Method: every
    /// combination of host, group and cluster that set ratio and reserve, or not: 64 policies.
    #[test]
    fn the_nearest_setting_of_each_value_holds() {
        let host = HostName::new("h7").unwrap();
        let [rack, fast] = ["rack1", "fast"].map(|name| AggregateName::new(name).unwrap());
        let scopes = [
            Scope::Host(host.clone()),
            Scope::Group(rack.clone()),
            Scope::Cluster,
        ];
        let sources = [Source::Host, Source::Group(rack.clone()), Source::Cluster];
        for sets in 0..64_u32 {
            let mut policy = CpuPolicy::default();
            let sets = |at: usize, value: usize| sets & 1 << (at * 2 + value) != 0;
            for (at, scope) in scopes.iter().enumerate() {
                let number = u32::try_from(at).unwrap();
                policy.change(scope, |terms| {
                    terms.ratio_milli = sets(at, 0).then_some(1000 + number);
                    terms.reserved = sets(at, 1).then_some(number);
                });
            }
            assert!(policy.is_bounded());
            let found = policy.of(&host, [&fast, &rack]);
            let ratio = (0..3).find(|at| sets(*at, 0));
            let reserved = (0..3).find(|at| sets(*at, 1));
            assert_eq!(
                (found.rule.ratio.milli(), found.ratio_from),
                ratio.map_or((4000, Source::Default), |at| {
                    (1000 + at as u64, sources[at].clone())
                })
            );
            assert_eq!(
                (found.rule.reserved, found.reserved_from),
                reserved.map_or((0, Source::Default), |at| (at as u64, sources[at].clone()))
            );
            let other = policy.of(&HostName::new("h8").unwrap(), [&fast]);
            assert_eq!(other.ratio_from == Source::Cluster, sets(2, 0));
            // What is taken back leaves nothing.
            for scope in &scopes {
                policy.change(scope, |terms| *terms = CpuTerms::default());
            }
            assert_eq!(policy, CpuPolicy::default());
        }
    }

    #[test]
    fn bounds_are_those_of_ratios_and_of_hosts() {
        assert_eq!(CPU_RESERVED_MAX, CPU_MAX + 1);
        for (ratio_milli, reserved, is_bounded) in [
            (Some(CPU_RATIO_MILLI_MIN), Some(0), true),
            (Some(CPU_RATIO_MILLI_MAX), Some(CPU_RESERVED_MAX), true),
            (Some(CPU_RATIO_MILLI_MIN - 1), None, false),
            (Some(CPU_RATIO_MILLI_MAX + 1), None, false),
            (None, Some(CPU_RESERVED_MAX + 1), false),
        ] {
            let cluster = CpuTerms {
                ratio_milli,
                reserved,
            };
            let policy = CpuPolicy {
                cluster,
                ..CpuPolicy::default()
            };
            assert_eq!(policy.is_bounded(), is_bounded, "{policy:?}");
        }
    }
}
