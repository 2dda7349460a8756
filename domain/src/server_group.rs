//! Server groups: VMs that are to be kept together, or apart.
//!
//! Invariant: a hard policy looks at every claim of the other members, those that are only held
//! for a boot or a migration under way among them. So whichever of them come to an end, and in
//! whatever order, no two members break it. The one exception is a dead host, whose guests are evacuated
//! one after the other: members that are still on it do not keep an evacuated one there. Until all are
//! on one host the group is separated, and says so.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::id::TimeMs;
use crate::name::{HostName, ServerGroupName};
use crate::ownership::Ownership;

/// How many VMs a group has at most.
pub const MEMBERS_MAX: usize = 10_000;
/// The most members a host that a group can request.
pub const PER_HOST_MAX: u32 = 10_000;

/// The policy of a group for its members' hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GroupPolicy {
    /// All on one host.
    Affinity,
    /// At most so many on one host.
    AntiAffinity,
    /// On few hosts, where that is possible.
    SoftAffinity,
    /// On many hosts, where that is possible.
    SoftAntiAffinity,
}

impl GroupPolicy {
    /// All policies, as they are listed to people.
    pub const ALL: [Self; 4] = [
        Self::Affinity,
        Self::AntiAffinity,
        Self::SoftAffinity,
        Self::SoftAntiAffinity,
    ];

    /// Returns its name, as `anti-affinity`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Affinity => "affinity",
            Self::AntiAffinity => "anti-affinity",
            Self::SoftAffinity => "soft-affinity",
            Self::SoftAntiAffinity => "soft-anti-affinity",
        }
    }
}

impl fmt::Display for GroupPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for GroupPolicy {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let all = Self::ALL;
        let found = all.into_iter().find(|policy| policy.as_str() == text);
        found.ok_or_else(|| {
            let known = all.map(Self::as_str).join(", ");
            Fault::new("policy", text, format!("must be one of {known}"))
        })
    }
}

/// A server group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServerGroup {
    /// Its name.
    pub name: ServerGroupName,
    /// The policy.
    pub policy: GroupPolicy,
    /// How many members one host may have; 0, for as many as you like, unless the policy is
    /// anti-affinity.
    pub max_server_per_host: u32,
    /// When it was made.
    pub created_at: TimeMs,
    /// Since when members of an affinity group are on several hosts, as those of a dead host are
    /// evacuated one after the other; absent while they are together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separated_at: Option<TimeMs>,
    /// Its project and its creator.
    #[serde(flatten)]
    pub ownership: Ownership,
}

impl ServerGroup {
    /// Returns a group; anti-affinity without a number means one member a host.
    ///
    /// # Errors
    ///
    /// The number is out of range, or there is one for another policy.
    pub fn new(
        name: ServerGroupName,
        policy: GroupPolicy,
        max_server_per_host: Option<u32>,
    ) -> Result<Self, Fault> {
        let fault = |given: u32, rule: String| Fault::new("max_server_per_host", given, rule);
        let max_server_per_host = match (policy, max_server_per_host) {
            (GroupPolicy::AntiAffinity, None) => 1,
            (GroupPolicy::AntiAffinity, Some(max @ 1..=PER_HOST_MAX)) => max,
            (GroupPolicy::AntiAffinity, Some(max)) => {
                return Err(fault(max, format!("must be from 1 to {PER_HOST_MAX}")));
            }
            (_, None) => 0,
            (_, Some(max)) => {
                let rule = format!("is only for anti-affinity, the policy is {policy}");
                return Err(fault(max, rule));
            }
        };
        Ok(Self {
            name,
            policy,
            max_server_per_host,
            created_at: TimeMs::default(),
            separated_at: None,
            ownership: Ownership::default(),
        })
    }
}

/// What a guest's server group demands of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDemand {
    /// The group.
    pub name: ServerGroupName,
    /// The policy.
    pub policy: GroupPolicy,
    /// How many members one host may have, for anti-affinity.
    pub limit: u32,
    /// How many other members hold a claim on a host; hosts without any are left out.
    pub hosts: BTreeMap<HostName, u32>,
    /// Whether members are on several hosts although the policy is affinity: see
    /// [`ServerGroup::separated_at`].
    pub is_separated: bool,
}

impl GroupDemand {
    /// Returns how many other members hold a claim on this host.
    #[must_use]
    pub fn members_on(&self, host: &HostName) -> u32 {
        self.hosts.get(host).copied().unwrap_or(0)
    }

    /// Returns how much a soft policy likes this host, more for better; 0 of all hosts for a hard
    /// policy, which is a rule.
    #[must_use]
    pub fn preference(&self, host: &HostName) -> i64 {
        match self.policy {
            GroupPolicy::Affinity | GroupPolicy::AntiAffinity => 0,
            GroupPolicy::SoftAffinity => i64::from(self.members_on(host)),
            GroupPolicy::SoftAntiAffinity => -i64::from(self.members_on(host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> ServerGroupName {
        ServerGroupName::new("web").unwrap()
    }

    #[test]
    fn only_anti_affinity_counts_members_per_host() {
        let new = |policy, max| ServerGroup::new(name(), policy, max);
        let max = |policy, max| new(policy, max).map(|group| group.max_server_per_host);
        assert_eq!(max(GroupPolicy::AntiAffinity, None), Ok(1));
        assert_eq!(max(GroupPolicy::AntiAffinity, Some(3)), Ok(3));
        assert!(max(GroupPolicy::AntiAffinity, Some(0)).is_err());
        assert_eq!(max(GroupPolicy::Affinity, None), Ok(0));
        let fault = max(GroupPolicy::SoftAffinity, Some(2)).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "max_server_per_host = \"2\": is only for anti-affinity, the policy is soft-affinity"
        );
    }

    #[test]
    fn soft_policies_prefer_and_hard_ones_do_not() {
        let [near, far] = ["near", "far"].map(|host| HostName::new(host).unwrap());
        let preferences = GroupPolicy::ALL.map(|policy| {
            let demand = GroupDemand {
                name: name(),
                policy,
                limit: 0,
                hosts: [(near.clone(), 3)].into(),
                is_separated: false,
            };
            (demand.preference(&near), demand.preference(&far))
        });
        assert_eq!(preferences, [(0, 0), (0, 0), (3, 0), (-3, 0)]);
        for policy in GroupPolicy::ALL {
            assert_eq!(policy.as_str().parse(), Ok(policy));
        }
    }
}
