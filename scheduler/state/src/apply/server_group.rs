//! Server groups: made and deleted; and since when an evacuation separates one.

use berth_domain::name::ServerGroupName;
use berth_domain::refusal::Refusal;
use berth_domain::server_group::{GroupPolicy, ServerGroup};
use berth_domain::vm::Vm;

use crate::refusals::{group_exists, group_not_found, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn create_server_group(&mut self, group: &ServerGroup) -> Result<Reply, Refusal> {
        if self.state.server_group(&group.name).is_some() {
            return Err(group_exists(&group.name));
        }
        let created_at = self.now();
        Ok(Reply::ServerGroup(self.put_server_group(ServerGroup {
            created_at,
            separated_at: None,
            ownership: self.ownership(group.ownership.project.as_ref()),
            ..group.clone()
        })))
    }

    pub(super) fn delete_server_group(&mut self, name: &ServerGroupName) -> Result<Reply, Refusal> {
        if self.state.server_group(name).is_none() {
            return Err(group_not_found(name));
        }
        if let Some(vm) = self.state.group_members(name).next() {
            let members = match self.state.member_count(name) {
                1 => format!("a member, vm {vm}"),
                count => format!("{count} members, among them vm {vm}"),
            };
            return Err(precondition(
                "SERVER_GROUP_IN_USE",
                format!("server group {name} has {members}"),
            )
            .with_hint("delete its VMs first")
            .with("server_group", name)
            .with("members", self.state.member_count(name)));
        }
        self.remove_server_group(name);
        Ok(Reply::None)
    }

    /// Notes that an evacuation has separated the group of a VM, if it has. Nothing else may.
    pub(super) fn separate(&mut self, vm: &Vm) {
        let name = vm.spec.hints.server_group.as_ref();
        let Some(group) = name.and_then(|name| self.state.server_group(name)).cloned() else {
            return;
        };
        let is_new = group.policy == GroupPolicy::Affinity && group.separated_at.is_none();
        if is_new && self.state.is_apart(&group.name) {
            let separated_at = Some(self.now());
            self.put_server_group(ServerGroup {
                separated_at,
                ..(*group).clone()
            });
        }
    }

    /// Notes that the members of a group are together again, if they are.
    pub(crate) fn rejoin(&mut self, name: &ServerGroupName) {
        let Some(group) = self.state.server_group(name).cloned() else {
            return;
        };
        if group.separated_at.is_some() && !self.state.is_apart(name) {
            self.put_server_group(ServerGroup {
                separated_at: None,
                ..(*group).clone()
            });
        }
    }
}
