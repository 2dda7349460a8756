//! Settings of the cluster, of groups of hosts, and of single hosts.
//!
//! ```text
//! host ──sets nothing──▶ its group ──sets nothing──▶ cluster ──sets nothing──▶ the default
//! ```
//!
//! A group is an aggregate with settings here. What can be set is of [`Terms`]; each of their values
//! by itself is the nearest that is set.
//!
//! Invariant (kept by the state): of the same terms a host is in one group at most, and every group
//! and host of which a setting exists is there. Empty terms are not stored.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{AggregateName, HostName};

/// The most groups, and the most hosts, with settings of the same terms.
pub const TERMS_MAX: usize = 1000;

/// What can be set of one of them: values that are there or not.
pub trait Terms: Copy + Default + Eq {
    /// What they are about, as refusals name it.
    const WHAT: &'static str;
    /// The keys of the values.
    const KEYS: [&'static str; 2];

    /// Returns whether every value is within its bounds.
    fn is_bounded(&self) -> bool;

    /// Returns whether they are empty.
    fn is_empty(&self) -> bool {
        *self == Self::default()
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

/// Settings by whom they are of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scoped<T> {
    /// For the whole cluster.
    pub cluster: T,
    /// For the hosts of aggregates, which makes them groups; at most [`TERMS_MAX`].
    pub groups: BTreeMap<AggregateName, T>,
    /// For single hosts; at most [`TERMS_MAX`].
    pub hosts: BTreeMap<HostName, T>,
}

/// What is set that a host could get, the nearest first.
pub(super) struct Levels<'a, T> {
    host: T,
    group: Option<(&'a AggregateName, T)>,
    cluster: T,
}

impl<T: Terms> Levels<'_, T> {
    /// Returns the nearest value that is set, and its origin.
    pub(super) fn nearest<V>(&self, value: impl Fn(&T) -> Option<V>) -> Option<(V, Source)> {
        let group = || {
            let (name, terms) = self.group.as_ref()?;
            Some((value(terms)?, Source::Group((*name).clone())))
        };
        let host = value(&self.host).map(|value| (value, Source::Host));
        host.or_else(group)
            .or_else(|| Some((value(&self.cluster)?, Source::Cluster)))
    }
}

impl<T: Terms> Scoped<T> {
    /// Returns what is set that a host in these aggregates could get.
    pub(super) fn levels<'a>(
        &self,
        host: &HostName,
        aggregates: impl IntoIterator<Item = &'a AggregateName>,
    ) -> Levels<'_, T> {
        let group = match self.groups.is_empty() {
            true => None,
            false => aggregates
                .into_iter()
                .find_map(|name| self.groups.get_key_value(name)),
        };
        Levels {
            host: self.hosts.get(host).copied().unwrap_or_default(),
            group: group.map(|(name, terms)| (name, *terms)),
            cluster: self.cluster,
        }
    }

    /// Changes the settings of one of them.
    pub fn change(&mut self, scope: &Scope, change: impl FnOnce(&mut T)) {
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
