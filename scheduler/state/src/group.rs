//! Server groups as the choice of a host needs them: who belongs to one, and where they are.

use std::collections::BTreeMap;

use berth_domain::constraint::Demand;
use berth_domain::name::{HostName, ServerGroupName, VmName};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::server_group::{GroupDemand, GroupPolicy, MEMBERS_MAX};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::VmSpec;
use imbl::OrdSet;

use crate::refusals::group_not_found;
use crate::state::State;

impl State {
    /// Returns the members of a group.
    pub fn group_members(&self, group: &ServerGroupName) -> impl Iterator<Item = &VmName> + '_ {
        self.index.group_vms.get(group).into_iter().flatten()
    }

    /// Returns the number of members of a group.
    #[must_use]
    pub fn member_count(&self, group: &ServerGroupName) -> usize {
        self.index.group_vms.get(group).map_or(0, OrdSet::len)
    }

    /// Returns the demand of a VM together with what its server group demands.
    ///
    /// # Errors
    ///
    /// There is no such group.
    pub(crate) fn with_group(
        &self,
        demand: Demand,
        vm: &VmName,
        spec: &VmSpec,
    ) -> Result<Demand, Refusal> {
        let Some(name) = &spec.hints.server_group else {
            return Ok(demand);
        };
        let group = self.server_group(name);
        let group = group.ok_or_else(|| group_not_found(name))?;
        let claims = self.index.group_hosts.get(name).into_iter().flatten();
        let mut hosts: BTreeMap<HostName, u32> =
            claims.map(|(host, count)| (host.clone(), *count)).collect();
        for own in self.claims_of_vm(vm) {
            if let Some(count) = hosts.get_mut(&own.host) {
                *count -= 1;
            }
        }
        hosts.retain(|_, count| *count > 0);
        Ok(Demand {
            group: Some(GroupDemand {
                name: name.clone(),
                policy: group.policy,
                limit: group.max_server_per_host,
                hosts,
                is_separated: group.separated_at.is_some(),
            }),
            ..demand
        })
    }

    /// Returns the demand of an evacuation: members of an affinity group that are still on the dead host
    /// do not keep the guest there, they follow it.
    pub(crate) fn without_those_left(&self, mut demand: Demand, dead: &HostName) -> Demand {
        if self.header.cluster_version < ServiceVersion::SEPARATED_GROUPS {
            return demand;
        }
        if let Some(group) = &mut demand.group
            && group.policy == GroupPolicy::Affinity
        {
            group.hosts.remove(dead);
        }
        demand
    }

    /// Returns whether two members of a group hold claims on different hosts.
    pub(crate) fn is_apart(&self, group: &ServerGroupName) -> bool {
        let hosts = self.index.group_hosts.get(group);
        let members = || self.group_members(group);
        let mut placed = members().filter(|vm| self.claims_of_vm(vm).next().is_some());
        hosts.is_some_and(|hosts| hosts.len() > 1) && placed.nth(1).is_some()
    }

    /// Says whether the group of a new VM is there and has room for one more.
    ///
    /// # Errors
    ///
    /// There is no such group, or it is full.
    pub fn examine_group(&self, spec: &VmSpec) -> Result<(), Refusal> {
        let Some(name) = &spec.hints.server_group else {
            return Ok(());
        };
        if self.server_group(name).is_none() {
            return Err(group_not_found(name));
        }
        if self.member_count(name) < MEMBERS_MAX {
            return Ok(());
        }
        Err(Refusal::new(
            Code::FailedPrecondition,
            "SERVER_GROUP_FULL",
            format!("server group {name} has {MEMBERS_MAX} members, and may have no more"),
        )
        .with_hint("make another server group")
        .with("server_group", name))
    }
}
