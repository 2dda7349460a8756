//! The kinds of resources that are declared: their messages of the API, and the fields that only the cluster
//! writes.
//!
//! Not here: what a resource holds (`resource`).
//!
//! Invariant: a field that a document may have and that is not applied is in one of these lists.

use prost_reflect::MessageDescriptor;

use crate::support;

/// A kind of resource, in the order in which they are carried out: what is named by others comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// A name for PCI functions.
    PciAlias,
    /// A network.
    Network,
    /// A flavor.
    Flavor,
    /// An aggregate of hosts.
    Aggregate,
    /// A server group.
    ServerGroup,
    /// The scheduling policy, of which there is one.
    SchedulingPolicy,
    /// A VM.
    Vm,
}

impl Kind {
    /// All of them, in their order.
    pub(super) const ALL: [Self; 7] = [
        Self::PciAlias,
        Self::Network,
        Self::Flavor,
        Self::Aggregate,
        Self::ServerGroup,
        Self::SchedulingPolicy,
        Self::Vm,
    ];

    /// Returns its name, which is that of the message of the API.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::PciAlias => "PciAlias",
            Self::Network => "Network",
            Self::Flavor => "Flavor",
            Self::Aggregate => "Aggregate",
            Self::ServerGroup => "ServerGroup",
            Self::SchedulingPolicy => "SchedulingPolicy",
            Self::Vm => "Vm",
        }
    }

    /// Returns the kind of this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Returns the noun of its commands, as `berth server-group`.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::PciAlias => "pci-alias",
            Self::Network => "network",
            Self::Flavor => "flavor",
            Self::Aggregate => "aggregate",
            Self::ServerGroup => "server-group",
            Self::SchedulingPolicy => "policy",
            Self::Vm => "vm",
        }
    }

    /// Returns what stands before the slash of its resource names.
    pub(super) fn collection(self) -> &'static str {
        match self {
            Self::PciAlias => "pciAliases",
            Self::Network => "networks",
            Self::Flavor => "flavors",
            Self::Aggregate => "aggregates",
            Self::ServerGroup => "serverGroups",
            // There is one, which needs no name.
            Self::SchedulingPolicy => "schedulingPolicy",
            Self::Vm => "vms",
        }
    }

    /// Returns a name without its collection.
    pub(super) fn without_collection(self, name: &str) -> &str {
        let rest = name.strip_prefix(self.collection());
        rest.and_then(|rest| rest.strip_prefix('/')).unwrap_or(name)
    }

    /// Returns the message whose fields a document has beside `kind`. A VM is declared as its template, beside
    /// its name; the policy by its settings, which are no message.
    pub(super) fn message(self) -> MessageDescriptor {
        support::descriptor(match self {
            Self::PciAlias => "berth.type.v1.PciAlias",
            Self::Network => "berth.type.v1.Network",
            Self::Flavor => "berth.type.v1.Flavor",
            Self::Aggregate => "berth.policy.v1.Aggregate",
            Self::ServerGroup => "berth.policy.v1.ServerGroup",
            Self::SchedulingPolicy => "berth.policy.v1.SchedulingPolicy",
            Self::Vm => "berth.type.v1.VmTemplate",
        })
    }

    /// Returns the fields that the cluster writes, by their names in the API and in the output of `show`. They
    /// are ignored in documents.
    pub(super) fn output_only(self) -> &'static [&'static str] {
        match self {
            Self::PciAlias => &[],
            Self::Network => &[
                "creator",
                "create_time",
                "created_at",
                "vm_count",
                "host_count",
                "hosts",
            ],
            Self::Flavor => &["creator"],
            Self::Aggregate => &["uid", "id", "generation", "create_time", "created_at"],
            Self::ServerGroup => &[
                "create_time",
                "created_at",
                "member_count",
                "members",
                "creator",
                "separate_time",
                "separated_at",
            ],
            Self::SchedulingPolicy => &["generation"],
            Self::Vm => &[
                "uid",
                "state",
                "host",
                "claim",
                "operation",
                "error",
                "generation",
                "create_time",
                "created_at",
                "remains_on",
                "task",
                "trouble",
                "guest_trouble",
                "creator",
                "restart_times",
                "restarts_used_up_time",
                "restart_obstacle",
            ],
        }
    }
}

/// Fields of the specification of a VM that follow from its flavor and its image. They are ignored too.
pub(super) const DERIVED: &[&str] = &[
    "topology",
    "cpu_shape",
    "pci",
    "pci_requests",
    "pci_aliases",
];
