//! Server groups.

use berth_domain::server_group::{GroupPolicy, ServerGroup};

use super::field::{self, Invalid, choices};
use super::name::ResourceName;
use super::ownership::{self, write_project};
use crate::policy::v1;
use crate::policy::v1::server_group::Policy as WirePolicy;

choices!(GroupPolicy => WirePolicy { Affinity, AntiAffinity, SoftAffinity, SoftAntiAffinity });

impl From<&ServerGroup> for v1::ServerGroup {
    fn from(group: &ServerGroup) -> Self {
        Self {
            name: group.name.resource_name(),
            policy: WirePolicy::from(group.policy).into(),
            max_server_per_host: group.max_server_per_host,
            create_time: Some(field::timestamp(group.created_at)),
            member_count: 0,
            project: write_project(group.ownership.project.as_ref()),
            creator: group.ownership.creator.clone(),
            separate_time: group.separated_at.map(field::timestamp),
        }
    }
}

impl TryFrom<v1::ServerGroup> for ServerGroup {
    type Error = Invalid;

    /// A group that is to be made leaves the time open; it reads as the epoch then, and the state
    /// writes its own.
    fn try_from(wire: v1::ServerGroup) -> Result<Self, Invalid> {
        let created_at = field::optional_time(wire.create_time, "create_time")?;
        let separated_at = field::optional_time(wire.separate_time, "separate_time")?;
        let max = Some(wire.max_server_per_host).filter(|max| *max != 0);
        let group = Self::new(
            field::name(&wire.name, "name")?,
            field::choice::<WirePolicy, _>(wire.policy, "policy")?,
            max,
        )
        .map_err(|fault| Invalid::new(fault.field, fault.rule))?;
        Ok(Self {
            created_at: created_at.unwrap_or_default(),
            separated_at,
            ownership: ownership::read(&wire.project, wire.creator)?,
            ..group
        })
    }
}
