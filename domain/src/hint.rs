//! The change after which a refused request would succeed.
//!
//! A closed list: every member of it can be made on a hypothetical state, and the search that
//! proposes one ([`berth_selection::hint`]) decides the very request again there before the hint is
//! shown. What cannot be tried so is no hint.
//!
//! Not here: which change is proposed, and advice about anything but placement.
//!
//! Invariant: a hint names everything that has to be done, and nothing that need not be.
//!
//! [`berth_selection::hint`]: ../../berth_selection/hint/index.html

mod shape;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{HostName, PhysicalNetworkName, PmemName, ServerGroupName, VmName, ZoneName};
use crate::resource::Trait;
use crate::topology::CellId;

pub use shape::HostShape;

/// The change after which a refused request would succeed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Hint {
    /// Namespaces of a host are being erased: nothing is to be done but to wait.
    WaitForErasure {
        /// The host.
        host: HostName,
        /// The namespaces that the guest would get.
        namespaces: Vec<PmemName>,
    },
    /// A host takes no guests as it is.
    OpenHost {
        /// The host.
        host: HostName,
        /// What opens it; never empty.
        steps: Vec<OpenStep>,
    },
    /// Compute agents are upgraded.
    UpgradeAgents {
        /// Their hosts; never empty.
        agents: Vec<HostName>,
        /// Where the guest fits then.
        host: HostName,
    },
    /// VMs leave a host.
    Vacate {
        /// The host.
        host: HostName,
        /// Its NUMA nodes on which they are, ascending.
        nodes: Vec<CellId>,
        /// What is done to which VM, in this order; never empty.
        vms: Vec<VmChange>,
        /// Namespaces of theirs that have to be erased after that.
        erasures: Vec<PmemName>,
    },
    /// The request is changed.
    ChangeRequest(RequestChange),
    /// Pools of huge pages of a host are enlarged, at the expense of its small pages.
    ResizePools {
        /// The host.
        host: HostName,
        /// The pools; never empty.
        pools: Vec<PoolChange>,
    },
    /// A host gets traits, by the configuration of its agent.
    AddTraits {
        /// The host.
        host: HostName,
        /// The traits; never empty.
        traits: Vec<Trait>,
    },
    /// A host gets bridges to physical networks.
    AddBridges {
        /// The host.
        host: HostName,
        /// What they have to be like; never empty, each physical network once.
        bridges: Vec<NeededBridge>,
    },
    /// One more host is added, with no guests.
    AddHost {
        /// A host of the needed shape, with its aggregates.
        like: HostName,
    },
    /// One more host is added of a shape that no host has.
    AddShape(Box<HostShape>),
    /// No host is named, and this is done.
    AnyHostAnd(Box<Hint>),
}

/// What opens a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OpenStep {
    /// An operator allows new guests again.
    Uncordon,
    /// Its agent is started again; that of a fenced host, too.
    StartAgent,
    /// Its agent reports the shape again that its guests fit.
    RestoreShape,
    /// Guests for which there is no claim are stopped.
    StopUnknownGuests,
}

/// What is done to a VM.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VmChange {
    /// The VM.
    pub vm: VmName,
    /// The change.
    pub action: VmAction,
}

/// What takes a VM off its host, or one of its claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VmAction {
    /// It is moved while it runs.
    LiveMigrate {
        /// Where it has enough of everything.
        to: HostName,
    },
    /// It is stopped, moved and started again.
    ColdMigrate {
        /// Where it has enough of everything.
        to: HostName,
    },
    /// Its resize is confirmed, which gives the old claim back.
    ConfirmResize,
    /// It is stopped, and its claim is given back. Its disks stay.
    Shelve,
    /// It is deleted: nothing less gives its claim back.
    Delete,
}

/// A change of the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RequestChange {
    /// No host is named, and the scheduler chooses one.
    AnyHost,
    /// Another flavor, which differs in one extra spec.
    ExtraSpec {
        /// The key.
        key: String,
        /// The value; absent: without that key.
        value: Option<String>,
    },
    /// Another flavor with fewer vCPUs.
    Vcpus(u32),
    /// Another flavor with less memory.
    MemoryMib(u64),
    /// Another availability zone; absent: none.
    Zone(Option<ZoneName>),
    /// The VM is not in the server group.
    LeaveGroup(ServerGroupName),
}

/// A pool of huge pages that gets another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolChange {
    /// The NUMA node.
    pub node: CellId,
    /// The size of a page.
    pub size_kib: u64,
    /// How many pages it has; 0: there is no pool of that size.
    pub pages: u64,
    /// How many it needs.
    pub needed: u64,
}

impl Hint {
    /// Returns its name for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::WaitForErasure { .. } => "WAIT_FOR_ERASURE",
            Self::OpenHost { .. } => "OPEN_HOST",
            Self::UpgradeAgents { .. } => "UPGRADE_AGENTS",
            Self::Vacate { .. } => "VACATE",
            Self::ChangeRequest(_) => "CHANGE_REQUEST",
            Self::ResizePools { .. } => "RESIZE_POOLS",
            Self::AddTraits { .. } => "ADD_TRAITS",
            Self::AddBridges { .. } => "ADD_BRIDGES",
            Self::AddHost { .. } => "ADD_HOST",
            Self::AddShape(_) => "ADD_SHAPE",
            Self::AnyHostAnd(_) => "ANY_HOST_AND",
        }
    }

    /// Returns it as a sentence for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::WaitForErasure { host, namespaces } => format!(
                "wait for the erasure of pmem namespace{} {} of host {host}: the guest fits there \
                 then",
                plural(namespaces.len()),
                list(namespaces)
            ),
            Self::OpenHost { host, steps } => {
                let steps: Vec<String> = steps.iter().map(|step| step.describe(host)).collect();
                format!("{}: the guest fits there", steps.join(", then "))
            }
            Self::UpgradeAgents { agents, host } => format!(
                "upgrade the compute agent{} of host{} {}: the guest fits on host {host} then",
                plural(agents.len()),
                plural(agents.len()),
                list(agents)
            ),
            Self::Vacate {
                host,
                nodes,
                vms,
                erasures,
            } => describe_vacate(host, nodes, vms, erasures),
            Self::ChangeRequest(change) => change.describe(),
            Self::ResizePools { host, pools } => {
                let pools: Vec<String> = pools.iter().map(PoolChange::describe).collect();
                format!(
                    "reserve {} of host {host}: the guest fits there then",
                    pools.join(", ")
                )
            }
            Self::AddTraits { host, traits } => format!(
                "give host {host} trait{} {} in its agent's configuration: the guest fits there then",
                plural(traits.len()),
                list(traits)
            ),
            Self::AddBridges { host, bridges } => format!(
                "give host {host} {}, named in physical_networks of its agent: the guest fits there then",
                list(bridges)
            ),
            Self::AddHost { like } => format!(
                "add a host of the shape of host {like}, in the same aggregates: the guest fits on \
                 such a host while it has no others"
            ),
            Self::AddShape(shape) => format!("add a host of this shape, or a larger one: {shape}"),
            Self::AnyHostAnd(hint) => format!("name no host, and {}", hint.describe()),
        }
    }
}

/// What a bridge to a physical network has to be like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NeededBridge {
    /// The physical network.
    pub physical_network: PhysicalNetworkName,
    /// Whether it has to put ports into VLANs.
    pub tags: bool,
    /// The least MTU that it may have.
    pub mtu: Option<u32>,
}

impl fmt::Display for NeededBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let physical = &self.physical_network;
        write!(f, "a bridge to physical network {physical}")?;
        if self.tags {
            f.write_str(" that puts ports into VLANs")?;
        }
        match self.mtu {
            Some(mtu) => write!(f, " with an MTU of {mtu} or more"),
            None => Ok(()),
        }
    }
}

impl OpenStep {
    /// Returns its name for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uncordon => "UNCORDON",
            Self::StartAgent => "START_AGENT",
            Self::RestoreShape => "RESTORE_SHAPE",
            Self::StopUnknownGuests => "STOP_UNKNOWN_GUESTS",
        }
    }

    fn describe(self, host: &HostName) -> String {
        match self {
            Self::Uncordon => format!("uncordon host {host}"),
            Self::StartAgent => format!("start the compute agent of host {host} again"),
            Self::RestoreShape => {
                format!("restore the CPU sets and pages of host {host} that its guests need")
            }
            Self::StopUnknownGuests => {
                format!("stop the guests of host {host} for which there is no claim")
            }
        }
    }
}

impl VmAction {
    /// Returns its name for programs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::LiveMigrate { .. } => "LIVE_MIGRATE",
            Self::ColdMigrate { .. } => "COLD_MIGRATE",
            Self::ConfirmResize => "CONFIRM_RESIZE",
            Self::Shelve => "SHELVE",
            Self::Delete => "DELETE",
        }
    }

    /// Returns the host that the VM is moved to.
    #[must_use]
    pub fn destination(&self) -> Option<&HostName> {
        match self {
            Self::LiveMigrate { to } | Self::ColdMigrate { to } => Some(to),
            Self::ConfirmResize | Self::Shelve | Self::Delete => None,
        }
    }

    /// Returns whether the VM runs on, or goes on as it was, after it.
    #[must_use]
    pub fn preserves(&self) -> bool {
        match self {
            Self::LiveMigrate { .. } | Self::ColdMigrate { .. } | Self::ConfirmResize => true,
            Self::Shelve | Self::Delete => false,
        }
    }
}

impl VmChange {
    /// Returns the command that does it.
    #[must_use]
    pub fn command(&self) -> String {
        let vm = &self.vm;
        match &self.action {
            VmAction::LiveMigrate { to } => format!("berth vm migrate {vm} --host {to}"),
            VmAction::ColdMigrate { to } => format!("berth vm migrate {vm} --cold --host {to}"),
            VmAction::ConfirmResize => format!("berth vm confirm-resize {vm}"),
            VmAction::Shelve => format!("berth vm shelve {vm}"),
            VmAction::Delete => format!("berth vm delete {vm}"),
        }
    }
}

impl RequestChange {
    /// Returns its name for programs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::AnyHost => "ANY_HOST",
            Self::ExtraSpec { .. } => "EXTRA_SPEC",
            Self::Vcpus(_) => "VCPUS",
            Self::MemoryMib(_) => "MEMORY_MIB",
            Self::Zone(_) => "ZONE",
            Self::LeaveGroup(_) => "LEAVE_GROUP",
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::AnyHost => "name no host: another one can take the guest".to_owned(),
            Self::ExtraSpec {
                key,
                value: Some(value),
            } => format!("take a flavor with {key}={value}: such a guest fits"),
            Self::ExtraSpec { key, value: None } => {
                format!("take a flavor without {key}: such a guest fits")
            }
            Self::Vcpus(vcpus) => {
                let unit = if *vcpus == 1 { "vCPU" } else { "vCPUs" };
                format!("take a flavor with {vcpus} {unit}: no more fit")
            }
            Self::MemoryMib(memory_mib) => {
                format!("take a flavor with {memory_mib} MiB of memory: such a guest fits")
            }
            Self::Zone(Some(zone)) => {
                format!("request availability zone {zone}: the guest fits there")
            }
            Self::Zone(None) => {
                "request no availability zone: the guest fits outside of it".to_owned()
            }
            Self::LeaveGroup(group) => {
                format!("boot the guest outside of server group {group}: it fits then")
            }
        }
    }
}

impl PoolChange {
    fn describe(&self) -> String {
        let size = crate::numa::refusal::Resource::PageSize(Some(self.size_kib));
        let (node, needed) = (self.node, self.needed);
        match self.pages {
            0 => format!("{needed} {size} on NUMA node {node}"),
            pages => format!("{needed} {size} (it has {pages}) on NUMA node {node}"),
        }
    }
}

fn describe_vacate(
    host: &HostName,
    nodes: &[CellId],
    vms: &[VmChange],
    erasures: &[PmemName],
) -> String {
    let place = match nodes {
        [] => String::new(),
        nodes => format!("NUMA node{} {} of ", plural(nodes.len()), list(nodes)),
    };
    let commands: Vec<String> = vms.iter().map(|vm| format!("`{}`", vm.command())).collect();
    let erased = match erasures {
        [] => String::new(),
        names => format!(
            ", wait for the erasure of pmem namespace{} {}",
            plural(names.len()),
            list(names)
        ),
    };
    format!(
        "make room on {place}host {host}: {}{erased}; the guest fits there then",
        commands.join(", ")
    )
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    let mut text = String::new();
    for (at, item) in items.iter().enumerate() {
        let separator = match at {
            0 => "",
            _ if at + 1 == items.len() => " and ",
            _ => ", ",
        };
        text.push_str(separator);
        text.push_str(&item.to_string());
    }
    text
}

/// Returns the NUMA nodes on which assignments are, ascending.
#[must_use]
pub fn nodes_of<'a>(
    assignments: impl IntoIterator<Item = &'a crate::numa::Assignment>,
) -> Vec<CellId> {
    let cells = assignments.into_iter().flat_map(|a| &a.cells);
    let nodes: BTreeSet<CellId> = cells.map(|cell| cell.host_cell).collect();
    nodes.into_iter().collect()
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostName {
        HostName::new(text).unwrap()
    }

    /// Goal: people read what to do, in commands that they can type. Method: one of each.
    #[test]
    fn every_hint_is_a_sentence() {
        let vm = |name: &str, action| VmChange {
            vm: VmName::new(name).unwrap(),
            action,
        };
        let pmem = |name: &str| PmemName::new(name).unwrap();
        for (hint, expected) in [
            (
                Hint::OpenHost {
                    host: host("b"),
                    steps: vec![OpenStep::Uncordon, OpenStep::StartAgent],
                },
                "uncordon host b, then start the compute agent of host b again: the guest fits there",
            ),
            (
                Hint::Vacate {
                    host: host("h1"),
                    nodes: vec![CellId(0), CellId(1)],
                    vms: vec![
                        vm("a", VmAction::LiveMigrate { to: host("h2") }),
                        vm("b", VmAction::Shelve),
                    ],
                    erasures: vec![pmem("p0")],
                },
                "make room on NUMA nodes 0 and 1 of host h1: `berth vm migrate a --host h2`, `berth \
                 vm shelve b`, wait for the erasure of pmem namespace p0; the guest fits there then",
            ),
            (
                Hint::ResizePools {
                    host: host("h1"),
                    pools: vec![PoolChange {
                        node: CellId(1),
                        size_kib: 2048,
                        pages: 512,
                        needed: 1024,
                    }],
                },
                "reserve 1024 2 MiB pages (it has 512) on NUMA node 1 of host h1: the guest fits \
                 there then",
            ),
            (
                Hint::AddBridges {
                    host: host("h1"),
                    bridges: vec![
                        NeededBridge {
                            physical_network: PhysicalNetworkName::new("physnet1").unwrap(),
                            tags: true,
                            mtu: Some(9000),
                        },
                        NeededBridge {
                            physical_network: PhysicalNetworkName::new("far").unwrap(),
                            tags: false,
                            mtu: None,
                        },
                    ],
                },
                "give host h1 a bridge to physical network physnet1 that puts ports into VLANs with an MTU \
                 of 9000 or more and a bridge to physical network far, named in physical_networks of its \
                 agent: the guest fits there then",
            ),
            (
                Hint::ChangeRequest(RequestChange::Zone(None)),
                "request no availability zone: the guest fits outside of it",
            ),
            (
                Hint::WaitForErasure {
                    host: host("h1"),
                    namespaces: vec![pmem("p0"), pmem("p1")],
                },
                "wait for the erasure of pmem namespaces p0 and p1 of host h1: the guest fits there \
                 then",
            ),
        ] {
            assert_eq!(hint.describe(), expected);
        }
    }
}
