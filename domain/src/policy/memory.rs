//! The settings of memory over-commitment: of the cluster, a group of hosts, a host.
//!
//! ```text
//! host ──sets nothing──▶ its group ──sets nothing──▶ cluster ──sets nothing──▶ 1.0; the agent
//! ```
//!
//! A group is an aggregate with settings here. What the word means for placement is in
//! [`crate::memory`].
//!
//! Invariant (kept by the state): a host is in one group at most, and every group and host of which
//! a setting exists is there. Empty terms are not stored.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::decimal;
use crate::memory::MemoryRule;
use crate::name::{AggregateName, HostName};
use crate::overcommit::AllocationRatio;

/// The least ratio in thousandths: nothing is over-committed.
pub const RATIO_MILLI_MIN: u32 = 1000;
/// The greatest ratio in thousandths.
pub const RATIO_MILLI_MAX: u32 = 16_000;
/// The most memory that can be reserved for a node itself, in MiB.
pub const MEM_NODE_MIB_MAX: u64 = 1 << 30;
/// The most groups, and the most hosts, with settings.
pub const TERMS_MAX: usize = 1000;

/// The settings of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryTerms {
    /// How many bytes of guests' memory one byte of the host's may hold, in thousandths, from
    /// [`RATIO_MILLI_MIN`] to [`RATIO_MILLI_MAX`].
    pub ratio_milli: Option<u32>,
    /// What the node itself needs in MiB, at most [`MEM_NODE_MIB_MAX`].
    pub mem_node_mib: Option<u64>,
}

impl MemoryTerms {
    /// Returns whether they are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn is_bounded(&self) -> bool {
        let bounds = RATIO_MILLI_MIN..=RATIO_MILLI_MAX;
        self.ratio_milli.is_none_or(|ratio| bounds.contains(&ratio))
            && self.mem_node_mib.is_none_or(|mib| mib <= MEM_NODE_MIB_MAX)
    }
}

/// For what something is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The whole cluster.
    #[default]
    Cluster,
    /// The hosts of an aggregate, which that makes a group.
    Group(AggregateName),
    /// One host.
    Host(HostName),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Host(name) => write!(f, "host {name}"),
        }
    }
}

/// The origin of an effective setting of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Source {
    /// Set for the host.
    Host,
    /// Set for this group of it.
    Group(AggregateName),
    /// Set for the cluster.
    Cluster,
    /// Not set: the default.
    Default,
    /// Not set: from the configuration of the host's agent.
    Agent,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Cluster => f.write_str("cluster"),
            Self::Default => f.write_str("default"),
            Self::Agent => f.write_str("agent"),
        }
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryPolicy {
    /// For the whole cluster.
    pub cluster: MemoryTerms,
    /// For the hosts of aggregates, which makes them groups; at most [`TERMS_MAX`].
    pub groups: BTreeMap<AggregateName, MemoryTerms>,
    /// For single hosts; at most [`TERMS_MAX`].
    pub hosts: BTreeMap<HostName, MemoryTerms>,
}

impl MemoryPolicy {
    /// Returns what holds of a host in these aggregates.
    pub fn of<'a>(
        &self,
        host: &HostName,
        aggregates: impl IntoIterator<Item = &'a AggregateName>,
    ) -> EffectiveMemory {
        let own = self.hosts.get(host).copied().unwrap_or_default();
        let group = match self.groups.is_empty() {
            true => None,
            false => aggregates
                .into_iter()
                .find_map(|name| self.groups.get_key_value(name)),
        };
        let (name, group) = group.map_or((None, MemoryTerms::default()), |(n, t)| (Some(n), *t));
        let from_group = || name.cloned().map_or(Source::Default, Source::Group);
        let ratio = own
            .ratio_milli
            .map(|ratio| (ratio, Source::Host))
            .or_else(|| group.ratio_milli.map(|ratio| (ratio, from_group())))
            .or_else(|| self.cluster.ratio_milli.map(|r| (r, Source::Cluster)));
        let mem_node = own
            .mem_node_mib
            .map(|mib| (mib, Source::Host))
            .or_else(|| group.mem_node_mib.map(|mib| (mib, from_group())))
            .or_else(|| self.cluster.mem_node_mib.map(|m| (m, Source::Cluster)));
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

    /// Changes the settings of one of them.
    pub fn change(&mut self, scope: &Scope, change: impl FnOnce(&mut MemoryTerms)) {
        match scope {
            Scope::Cluster => change(&mut self.cluster),
            Scope::Group(name) => {
                change(self.groups.entry(name.clone()).or_default());
                self.groups.retain(|_, terms| !terms.is_empty());
            }
            Scope::Host(name) => {
                change(self.hosts.entry(name.clone()).or_default());
                self.hosts.retain(|_, terms| !terms.is_empty());
            }
        }
    }

    /// Returns whether it is within its bounds, and stores no empty terms.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let mut each = self.groups.values().chain(self.hosts.values());
        self.cluster.is_bounded()
            && each.all(|terms| !terms.is_empty() && terms.is_bounded())
            && self.groups.len() <= TERMS_MAX
            && self.hosts.len() <= TERMS_MAX
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
