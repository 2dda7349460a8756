//! Hints: the change after which a refused request succeeds.
//!
//! A hint that is not understood, as of a newer server, is none: its sentence is in the refusal.

use berth_domain::hint::{
    Hint, HostShape, NeededBridge, OpenStep, PoolChange, RequestChange, VmAction, VmChange,
};
use berth_domain::name::{PmemName, ServerGroupName, ZoneName};
use berth_domain::resource::Trait;
use berth_domain::topology::CellId;

use super::field::{self, Invalid, LIST_MAX, MESSAGE_MAX, choices};
use super::name::ResourceName;
use super::network::read_physical;
use crate::types::v1;
use crate::types::v1::hint::Change;
use crate::types::v1::request_change::{Change as RequestPart, ExtraSpec};

choices!(OpenStep => v1::open_host::Step {
    Uncordon,
    StartAgent,
    RestoreShape,
    StopUnknownGuests,
});

impl From<&Hint> for v1::Hint {
    fn from(hint: &Hint) -> Self {
        let change = match hint {
            Hint::WaitForErasure { host, namespaces } => {
                Change::WaitForErasure(v1::WaitForErasure {
                    host: host.resource_name(),
                    namespaces: names(namespaces),
                })
            }
            Hint::OpenHost { host, steps } => Change::OpenHost(v1::OpenHost {
                host: host.resource_name(),
                steps: steps
                    .iter()
                    .map(|step| v1::open_host::Step::from(*step).into())
                    .collect(),
            }),
            Hint::UpgradeAgents { agents, host } => Change::UpgradeAgents(v1::UpgradeAgents {
                agents: agents.iter().map(ResourceName::resource_name).collect(),
                host: host.resource_name(),
            }),
            Hint::Vacate {
                host,
                nodes,
                vms,
                erasures,
            } => Change::Vacate(v1::Vacate {
                host: host.resource_name(),
                nodes: nodes.iter().map(|node| node.0).collect(),
                vms: vms.iter().map(Into::into).collect(),
                erasures: names(erasures),
            }),
            Hint::ChangeRequest(change) => Change::ChangeRequest(change.into()),
            Hint::ResizePools { host, pools } => Change::ResizePools(v1::ResizePools {
                host: host.resource_name(),
                pools: pools.iter().map(Into::into).collect(),
            }),
            Hint::AddTraits { host, traits } => Change::AddTraits(v1::AddTraits {
                host: host.resource_name(),
                traits: traits.iter().map(ToString::to_string).collect(),
            }),
            Hint::AddBridges { host, bridges } => Change::AddBridges(v1::AddBridges {
                host: host.resource_name(),
                bridges: bridges.iter().map(Into::into).collect(),
            }),
            Hint::AddHost { like } => Change::AddHost(v1::AddHost {
                like: like.resource_name(),
            }),
            Hint::AddShape(shape) => Change::AddShape((&**shape).into()),
            Hint::AnyHostAnd(hint) => Change::AnyHostAnd(Box::new((&**hint).into())),
        };
        Self {
            change: Some(change),
        }
    }
}

impl TryFrom<v1::Hint> for Hint {
    type Error = Invalid;

    fn try_from(wire: v1::Hint) -> Result<Self, Invalid> {
        let change = wire.change.ok_or_else(|| unset("change"))?;
        Ok(match change {
            Change::WaitForErasure(wait) => Self::WaitForErasure {
                host: field::name(&wait.host, "host")?,
                namespaces: namespaces(&wait.namespaces, "namespaces")?,
            },
            Change::OpenHost(open) => {
                field::bounded(open.steps.len(), "steps", LIST_MAX)?;
                let steps = open.steps.into_iter();
                let steps = steps.map(|s| field::choice::<v1::open_host::Step, _>(s, "steps"));
                Self::OpenHost {
                    host: field::name(&open.host, "host")?,
                    steps: steps.collect::<Result<_, _>>()?,
                }
            }
            Change::UpgradeAgents(upgrade) => {
                field::bounded(upgrade.agents.len(), "agents", LIST_MAX)?;
                let agents = upgrade.agents.iter();
                let agents = agents.map(|agent| field::name(agent, "agents"));
                Self::UpgradeAgents {
                    agents: agents.collect::<Result<_, _>>()?,
                    host: field::name(&upgrade.host, "host")?,
                }
            }
            Change::Vacate(vacate) => {
                field::bounded(vacate.nodes.len(), "nodes", LIST_MAX)?;
                Self::Vacate {
                    host: field::name(&vacate.host, "host")?,
                    nodes: vacate.nodes.into_iter().map(CellId).collect(),
                    vms: field::each(vacate.vms, "vms", LIST_MAX)?,
                    erasures: namespaces(&vacate.erasures, "erasures")?,
                }
            }
            Change::ChangeRequest(change) => Self::ChangeRequest(change.try_into()?),
            Change::ResizePools(resize) => Self::ResizePools {
                host: field::name(&resize.host, "host")?,
                pools: field::each(resize.pools, "pools", LIST_MAX)?,
            },
            Change::AddTraits(add) => Self::AddTraits {
                host: field::name(&add.host, "host")?,
                traits: traits(&add.traits)?,
            },
            Change::AddBridges(add) => Self::AddBridges {
                host: field::name(&add.host, "host")?,
                bridges: field::each(add.bridges, "bridges", LIST_MAX)?,
            },
            Change::AddHost(add) => Self::AddHost {
                like: field::name(&add.like, "like")?,
            },
            Change::AddShape(shape) => Self::AddShape(Box::new(shape.try_into()?)),
            // Only one that names no host itself is nested.
            Change::AnyHostAnd(hint) => {
                let hint = Self::try_from(*hint)?;
                if matches!(hint, Self::AnyHostAnd(_)) {
                    return Err(unset("any_host_and"));
                }
                Self::AnyHostAnd(Box::new(hint))
            }
        })
    }
}

impl From<&NeededBridge> for v1::add_bridges::Bridge {
    fn from(needed: &NeededBridge) -> Self {
        Self {
            physical_network: needed.physical_network.to_string(),
            tags: needed.tags,
            mtu: needed.mtu,
        }
    }
}

impl TryFrom<v1::add_bridges::Bridge> for NeededBridge {
    type Error = Invalid;

    fn try_from(wire: v1::add_bridges::Bridge) -> Result<Self, Invalid> {
        Ok(Self {
            physical_network: read_physical(&wire.physical_network)?,
            tags: wire.tags,
            mtu: wire.mtu,
        })
    }
}

impl From<&VmChange> for v1::VmChange {
    fn from(change: &VmChange) -> Self {
        use v1::vm_change::Action;
        let action = match &change.action {
            VmAction::LiveMigrate { .. } => Action::LiveMigrate,
            VmAction::ColdMigrate { .. } => Action::ColdMigrate,
            VmAction::ConfirmResize => Action::ConfirmResize,
            VmAction::Shelve => Action::Shelve,
            VmAction::Delete => Action::Delete,
        };
        Self {
            vm: change.vm.resource_name(),
            action: action.into(),
            destination: field::name_or_empty(change.action.destination()),
        }
    }
}

impl TryFrom<v1::VmChange> for VmChange {
    type Error = Invalid;

    fn try_from(wire: v1::VmChange) -> Result<Self, Invalid> {
        use v1::vm_change::Action;
        let to = || field::name(&wire.destination, "destination");
        let action = match Action::try_from(wire.action) {
            Ok(Action::LiveMigrate) => VmAction::LiveMigrate { to: to()? },
            Ok(Action::ColdMigrate) => VmAction::ColdMigrate { to: to()? },
            Ok(Action::ConfirmResize) => VmAction::ConfirmResize,
            Ok(Action::Shelve) => VmAction::Shelve,
            Ok(Action::Delete) => VmAction::Delete,
            Ok(Action::Unspecified) | Err(_) => return Err(unset("action")),
        };
        Ok(Self {
            vm: field::name(&wire.vm, "vm")?,
            action,
        })
    }
}

impl From<&RequestChange> for v1::RequestChange {
    fn from(change: &RequestChange) -> Self {
        let change = match change {
            RequestChange::AnyHost => RequestPart::AnyHost(true),
            RequestChange::ExtraSpec { key, value } => RequestPart::ExtraSpec(ExtraSpec {
                key: key.clone(),
                value: value.clone(),
            }),
            RequestChange::Vcpus(vcpus) => RequestPart::Vcpus(*vcpus),
            RequestChange::MemoryMib(memory_mib) => RequestPart::MemoryMib(*memory_mib),
            RequestChange::Zone(zone) => {
                RequestPart::AvailabilityZone(zone_or_empty(zone.as_ref()))
            }
            RequestChange::LeaveGroup(group) => RequestPart::LeaveServerGroup(group.to_string()),
        };
        Self {
            change: Some(change),
        }
    }
}

impl TryFrom<v1::RequestChange> for RequestChange {
    type Error = Invalid;

    fn try_from(wire: v1::RequestChange) -> Result<Self, Invalid> {
        let change = wire.change.ok_or_else(|| unset("change"))?;
        Ok(match change {
            RequestPart::AnyHost(_) => Self::AnyHost,
            RequestPart::ExtraSpec(ExtraSpec { key, value }) => {
                let value = value.map(|value| field::text(value, "value", MESSAGE_MAX));
                Self::ExtraSpec {
                    key: field::text(key, "key", MESSAGE_MAX)?,
                    value: value.transpose()?,
                }
            }
            RequestPart::Vcpus(vcpus) => Self::Vcpus(vcpus),
            RequestPart::MemoryMib(memory_mib) => Self::MemoryMib(memory_mib),
            RequestPart::AvailabilityZone(zone) => Self::Zone(optional_zone(&zone)?),
            RequestPart::LeaveServerGroup(group) => Self::LeaveGroup(
                ServerGroupName::new(&group)
                    .map_err(|rule| Invalid::new("leave_server_group", rule.to_string()))?,
            ),
        })
    }
}

impl From<&PoolChange> for v1::PoolChange {
    fn from(change: &PoolChange) -> Self {
        Self {
            node: change.node.0,
            size_kib: change.size_kib,
            pages: change.pages,
            needed: change.needed,
        }
    }
}

impl TryFrom<v1::PoolChange> for PoolChange {
    type Error = Invalid;

    fn try_from(wire: v1::PoolChange) -> Result<Self, Invalid> {
        Ok(Self {
            node: CellId(wire.node),
            size_kib: wire.size_kib,
            pages: wire.pages,
            needed: wire.needed,
        })
    }
}

impl From<&HostShape> for v1::HostShape {
    fn from(shape: &HostShape) -> Self {
        Self {
            nodes: shape.nodes,
            dedicated_cpus: shape.dedicated,
            shared_cpus: shape.shared,
            threads: shape.threads,
            memory_mib: shape.memory_mib,
            page_size_kib: shape.page_size_kib,
            traits: shape.traits.iter().map(ToString::to_string).collect(),
            availability_zone: zone_or_empty(shape.zone.as_ref()),
            metadata: shape.metadata.clone(),
            storage_of: field::name_or_empty(shape.storage_of.as_ref()),
        }
    }
}

impl TryFrom<v1::HostShape> for HostShape {
    type Error = Invalid;

    fn try_from(wire: v1::HostShape) -> Result<Self, Invalid> {
        Ok(Self {
            nodes: wire.nodes,
            dedicated: wire.dedicated_cpus,
            shared: wire.shared_cpus,
            threads: wire.threads,
            memory_mib: wire.memory_mib,
            page_size_kib: wire.page_size_kib,
            traits: traits(&wire.traits)?,
            zone: optional_zone(&wire.availability_zone)?,
            metadata: field::text_map(wire.metadata, "metadata", LIST_MAX, MESSAGE_MAX)?,
            storage_of: field::optional_name(&wire.storage_of, "storage_of")?,
        })
    }
}

fn zone_or_empty(zone: Option<&ZoneName>) -> String {
    zone.map_or_else(String::new, ToString::to_string)
}

fn optional_zone(name: &str) -> Result<Option<ZoneName>, Invalid> {
    if name.is_empty() {
        return Ok(None);
    }
    let zone = ZoneName::new(name);
    zone.map(Some)
        .map_err(|rule| Invalid::new("availability_zone", rule.to_string()))
}

fn traits(names: &[String]) -> Result<Vec<Trait>, Invalid> {
    field::bounded(names.len(), "traits", LIST_MAX)?;
    let traits = names
        .iter()
        .map(|text| Trait::new(text).map_err(|rule| Invalid::new("traits", rule.to_string())));
    traits.collect()
}

fn names(namespaces: &[PmemName]) -> Vec<String> {
    namespaces.iter().map(ToString::to_string).collect()
}

fn namespaces(names: &[String], field: &str) -> Result<Vec<PmemName>, Invalid> {
    field::bounded(names.len(), field, LIST_MAX)?;
    let names = names.iter();
    names.map(|name| field::pmem_name(name, field)).collect()
}

fn unset(field: &str) -> Invalid {
    Invalid::new(
        field,
        "is required, and must be one that this version knows",
    )
}
