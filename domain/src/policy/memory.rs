//! The settings of memory over-commitment: of the cluster, a group of hosts, a host.
//!
//! What the ratio means for placement is in [`crate::memory`]; whose setting holds, in
//! [`Scoped`].

use serde::{Deserialize, Serialize};

use super::decimal;
use super::scoped::{Scoped, Source, Terms};
use crate::memory::MemoryRule;
use crate::name::{AggregateName, HostName};
use crate::overcommit::AllocationRatio;

/// The least ratio in thousandths: nothing is over-committed.
pub const RATIO_MILLI_MIN: u32 = 1000;
/// The greatest ratio in thousandths.
pub const RATIO_MILLI_MAX: u32 = 16_000;
/// The most memory that can be reserved for a node itself, in MiB.
pub const MEM_NODE_MIB_MAX: u64 = 1 << 30;

/// The settings of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryTerms {
    /// How many bytes of guests' memory one byte of the host's may hold, in thousandths, from
    /// [`RATIO_MILLI_MIN`] to [`RATIO_MILLI_MAX`].
    pub ratio_milli: Option<u32>,
    /// What the node itself needs in MiB, at most [`MEM_NODE_MIB_MAX`].
    pub mem_node_mib: Option<u64>,
}

impl Terms for MemoryTerms {
    const WHAT: &'static str = "memory";
    const KEYS: [&'static str; 2] = ["memory.ratio", "memory.mem_node_mib"];

    fn is_bounded(&self) -> bool {
        let bounds = RATIO_MILLI_MIN..=RATIO_MILLI_MAX;
        self.ratio_milli.is_none_or(|ratio| bounds.contains(&ratio))
            && self.mem_node_mib.is_none_or(|mib| mib <= MEM_NODE_MIB_MAX)
    }
}

/// The effective settings of a host, and their origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveMemory {
    /// What holds.
    pub rule: MemoryRule,
    /// The origin of the ratio.
    pub ratio_from: Source,
    /// The origin of the reserved memory.
    pub mem_node_from: Source,
}

/// The settings of memory.
pub type MemoryPolicy = Scoped<MemoryTerms>;

impl MemoryPolicy {
    /// Returns what holds of a host in these aggregates.
    pub fn of<'a>(
        &self,
        host: &HostName,
        aggregates: impl IntoIterator<Item = &'a AggregateName>,
    ) -> EffectiveMemory {
        let levels = self.levels(host, aggregates);
        let ratio = levels.nearest(|terms| terms.ratio_milli);
        let mem_node = levels.nearest(|terms| terms.mem_node_mib);
        let (ratio_milli, ratio_from) = ratio.unwrap_or((RATIO_MILLI_MIN, Source::Default));
        let (mem_node_mib, mem_node_from) =
            mem_node.map_or((None, Source::Agent), |(mib, from)| (Some(mib), from));
        EffectiveMemory {
            rule: MemoryRule {
                ratio: AllocationRatio::from_milli(ratio_milli.into()),
                mem_node_mib,
            },
            ratio_from,
            mem_node_from,
        }
    }
}

/// Writes a ratio as it is typed.
#[must_use]
pub fn ratio_text(milli: u64) -> String {
    decimal::show(milli)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Scope;

    fn terms(ratio_milli: Option<u32>, mem_node_mib: Option<u64>) -> MemoryTerms {
        MemoryTerms {
            ratio_milli,
            mem_node_mib,
        }
    }

    /// Goal: the nearest setting is effective, of each thing by itself. Method: a table of all
    /// that sets the ratio, while the reserved memory is set by others.
    #[test]
    fn the_nearest_that_says_something_holds() {
        let (h7, h8) = (HostName::new("h7").unwrap(), HostName::new("h8").unwrap());
        let [rack, fast] = ["rack1", "fast"].map(|name| AggregateName::new(name).unwrap());
        let mut policy = MemoryPolicy::default();
        let of = |policy: &MemoryPolicy, host: &HostName| {
            let effective = policy.of(host, [&fast, &rack]);
            let rule = effective.rule;
            let (ratio, node) = (effective.ratio_from, effective.mem_node_from);
            (
                rule.ratio.milli(),
                ratio.to_string(),
                rule.mem_node_mib,
                node.to_string(),
            )
        };
        let says = |r: u64, from: &str, mib: Option<u64>, node: &str| {
            (r, from.to_owned(), mib, node.to_owned())
        };
        assert_eq!(of(&policy, &h7), says(1000, "default", None, "agent"));
        policy.change(&Scope::Cluster, |t| *t = terms(Some(1500), None));
        assert_eq!(of(&policy, &h7), says(1500, "cluster", None, "agent"));
        policy.change(&Scope::Host(h7.clone()), |t| t.mem_node_mib = Some(0));
        policy.change(&Scope::Group(rack.clone()), |t| {
            *t = terms(Some(1200), Some(2048))
        });
        assert_eq!(of(&policy, &h7), says(1200, "group rack1", Some(0), "host"));
        assert_eq!(
            of(&policy, &h8),
            says(1200, "group rack1", Some(2048), "group rack1")
        );
        policy.change(&Scope::Host(h7.clone()), |t| *t = terms(Some(1000), None));
        assert_eq!(
            of(&policy, &h7),
            says(1000, "host", Some(2048), "group rack1")
        );
        assert!(policy.is_bounded());
        policy.change(&Scope::Host(h7.clone()), |t| *t = terms(None, None));
        policy.change(&Scope::Group(rack.clone()), |t| *t = terms(None, None));
        assert!(policy.groups.is_empty() && policy.hosts.is_empty());
        policy.change(&Scope::Host(h8), |t| t.ratio_milli = Some(999));
        assert!(!policy.is_bounded());
    }
}
