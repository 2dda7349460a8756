//! A hard server group: its members on one host, or not too many on one.

use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::server_group::GroupPolicy;

/// Refuses a host that a hard policy of the guest's server group rules out.
///
/// Affinity allows no host while another member holds claims on two: it is being moved, and it is
/// not known yet to which of them the guest would have to go. In a group that an evacuation has
/// separated, a guest may join either part.
///
/// # Errors
///
/// [`Violation::Affinity`] or [`Violation::AntiAffinity`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let Some(group) = &demand.group else {
        return Ok(());
    };
    let members = group.members_on(&view.host.name);
    match group.policy {
        GroupPolicy::Affinity if group.hosts.is_empty() => Ok(()),
        GroupPolicy::Affinity if members > 0 && (group.hosts.len() == 1 || group.is_separated) => {
            Ok(())
        }
        GroupPolicy::Affinity => Err(Violation::Affinity {
            group: group.name.clone(),
            hosts: group.hosts.keys().take(2).cloned().collect(),
            is_separated: group.is_separated,
        }),
        GroupPolicy::AntiAffinity if members >= group.limit => Err(Violation::AntiAffinity {
            group: group.name.clone(),
            members,
            limit: group.limit,
        }),
        GroupPolicy::AntiAffinity | GroupPolicy::SoftAffinity | GroupPolicy::SoftAntiAffinity => {
            Ok(())
        }
    }
}
