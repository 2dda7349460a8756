//! A cluster as htools sees it: nodes, instances, and how much of each node is used and reserved.
//!
//! State of record counts: what an instance was promised, not what it uses. A node's *unallocated*
//! memory is its total, less its own, less that of its instances, less what is missing from its
//! report; *reserved* is what it must keep free for the worst of its peers.
//!
//! Invariant: every [`NodeState`] is a function of what is placed where, but for
//! [`NodeState::fails_n1`], which Ganeti judges by the reported memory until a node is first
//! touched. Changes are drafted without changing anything, then applied, and reverted exactly.

mod build;
mod change;
mod copy;
mod limits;
mod moves;
mod render;
mod rules;

use std::collections::BTreeMap;

pub use build::Options;
pub use change::{Change, Touched};
pub use moves::Move;
pub use rules::{MemoryRule, RatioSource, Refusal, Rules};

pub use crate::text::{AllocationPolicy, DiskTemplate, Policy, Spec, Status};

/// A node's place in [`Cluster::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

/// An instance's place in [`Cluster::instances`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceIndex(pub u32);

/// A group's place in [`Cluster::groups`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupIndex(pub u32);

/// A tag's place in [`Cluster::tag_names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagIndex(pub u32);

impl NodeIndex {
    /// Returns the place in a list.
    #[must_use]
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

impl InstanceIndex {
    /// Returns the place in a list.
    #[must_use]
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

impl GroupIndex {
    /// Returns the place in a list.
    #[must_use]
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// A group of nodes: instances do not leave it.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub uuid: String,
    /// Whether new instances may go here.
    pub allocation_policy: AllocationPolicy,
    /// What instances may be here, and how full nodes may get.
    pub policy: Policy,
}

/// What of a node does not change while planning.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: GroupIndex,
    /// Nothing may go there, and what is there counts against the cluster.
    pub offline: bool,
    /// The master of the cluster.
    pub master: bool,
    /// Total memory in MiB.
    pub total_memory: f64,
    /// Memory of the node itself in MiB.
    pub node_memory: i64,
    /// Free memory as it was reported, in MiB.
    pub reported_free_memory: i64,
    /// What the books call free and the report does not, in MiB; negative where more is free than
    /// the books say, and then it counts for nothing.
    pub missing_memory: i64,
    /// What free memory must stay above, or at, by the memory ratio; 0 without over-commitment.
    pub memory_floor: i64,
    /// Total disk in MiB.
    pub total_disk: f64,
    /// Free disk below which nothing more is added.
    pub disk_floor: i64,
    /// Physical CPUs.
    pub total_cpus: f64,
    /// Their speed relative to others.
    pub cpu_speed: f64,
    /// Virtual CPUs that one physical CPU may serve.
    pub vcpu_ratio: f64,
    /// Spindles.
    pub spindles: i64,
    /// Spindle use that is allowed.
    pub spindle_limit: f64,
    /// Disks have spindles of their own.
    pub exclusive_storage: bool,
    /// The failure domains that it is in, sorted.
    pub locations: Vec<TagIndex>,
    /// What a node must be able to receive to take an instance of this one, sorted.
    pub migration_tags: Vec<TagIndex>,
    /// What this node is able to receive, sorted.
    pub receivable_tags: Vec<TagIndex>,
}

impl Node {
    /// Returns the memory that is there for instances, in MiB.
    #[must_use]
    pub fn available_memory(&self) -> i64 {
        self.total_memory as i64 - self.node_memory
    }
}

/// What of a node changes when something is placed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeState {
    /// Memory of the instances that run here, in MiB.
    pub instance_memory: i64,
    /// Memory that is neither used nor missing, in MiB.
    pub unallocated_memory: i64,
    /// Memory to keep free for the worst of the peers, in MiB.
    pub reserved_memory: i64,
    /// Free disk in MiB.
    pub free_disk: i64,
    /// Free spindles, with exclusive storage.
    pub free_spindles: i64,
    /// Virtual CPUs in use, the node's own among them.
    pub used_cpus: i64,
    /// Spindle use, without exclusive storage.
    pub used_spindles: i64,
    /// As `unallocated_memory`, from the report, with what is promised but not there yet.
    pub forthcoming_memory: i64,
    /// As `free_disk`, with what is promised.
    pub forthcoming_disk: i64,
    /// As `free_spindles`, with what is promised.
    pub forthcoming_free_spindles: i64,
    /// As `used_cpus`, with what is promised.
    pub forthcoming_cpus: i64,
    /// As `used_spindles`, with what is promised.
    pub forthcoming_spindles: i64,
    /// Load of CPU, memory, disk and network.
    pub load: [f64; 4],
    /// Instances whose primary it is, without those that are only promised.
    pub primaries: u32,
    /// Instances whose secondary it is, without those that are only promised.
    pub secondaries: u32,
    /// Shared failure domains and missed wishes of its primaries.
    pub location_score: i64,
    /// Exclusion tags of its primaries beyond the first of each.
    pub tag_conflicts: i64,
    /// It could not take what it is the secondary of, were a peer to fail.
    pub fails_n1: bool,
}

/// What is on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeLists {
    /// Instances whose primary it is, promised ones too, sorted.
    pub primaries: Vec<InstanceIndex>,
    /// Instances whose secondary it is, promised ones too, sorted.
    pub secondaries: Vec<InstanceIndex>,
    /// What it must take when a node fails, in MiB, sorted by node.
    pub peers: Vec<(NodeIndex, i64)>,
    /// The exclusion tags of its primaries with their counts, sorted.
    pub tags: Vec<(TagIndex, u32)>,
}

/// Where an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Placement {
    /// The node where it runs; nothing before it is placed.
    pub primary: Option<NodeIndex>,
    /// The node that has the copy of its disks.
    pub secondary: Option<NodeIndex>,
}

/// An instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Memory in MiB.
    pub memory: i64,
    /// Disk in MiB.
    pub disk: i64,
    /// Virtual CPUs.
    pub vcpus: i64,
    /// What it does.
    pub status: Status,
    /// Balancing may move it, and reserves count it.
    pub auto_balance: bool,
    /// How its disks are kept.
    pub disk_template: DiskTemplate,
    /// How many spindles' worth of input and output it makes.
    pub spindle_use: i64,
    /// Spindles of its own.
    pub spindles: Option<i64>,
    /// Promised, but not there yet.
    pub forthcoming: bool,
    /// All of its tags.
    pub tags: Vec<String>,
    /// Load of CPU, memory, disk and network.
    pub load: [f64; 4],
    /// Those of its tags that must not meet again on one node, as often as it has them.
    pub exclusion_tags: Vec<TagIndex>,
    /// The failure domains that it wishes for, sorted.
    pub desired_locations: Vec<TagIndex>,
}

impl Instance {
    /// Returns whether its memory is in use.
    #[must_use]
    pub fn uses_memory(&self) -> bool {
        self.will_use_memory() && !self.forthcoming
    }

    /// Returns whether its memory is in use, or will be once it is there.
    #[must_use]
    pub fn will_use_memory(&self) -> bool {
        match self.status {
            Status::AdminDown | Status::AdminOffline | Status::ErrorDown | Status::UserDown => {
                false
            }
            Status::Running
            | Status::ErrorUp
            | Status::ErrorNodeDown
            | Status::ErrorNodeOffline
            | Status::ErrorWrongNode => true,
        }
    }

    /// Returns whether it is anything but switched off for long.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.status != Status::AdminOffline
    }

    /// Returns the memory that its secondary keeps for it.
    #[must_use]
    pub fn reserve(&self) -> i64 {
        if self.is_online() && self.auto_balance {
            self.memory
        } else {
            0
        }
    }

    /// Returns whether its disks are on its nodes.
    #[must_use]
    pub fn uses_local_storage(&self) -> bool {
        self.is_mirrored() || self.disk_template == DiskTemplate::Plain
    }

    /// Returns whether its disks are mirrored on a second node.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.disk_template == DiskTemplate::Drbd
    }

    /// Returns whether any node of its group can reach its disks.
    #[must_use]
    pub fn is_on_shared_storage(&self) -> bool {
        match self.disk_template {
            DiskTemplate::SharedFile
            | DiskTemplate::BlockDevice
            | DiskTemplate::Rbd
            | DiskTemplate::External
            | DiskTemplate::Gluster => true,
            DiskTemplate::Diskless
            | DiskTemplate::File
            | DiskTemplate::Plain
            | DiskTemplate::Drbd => false,
        }
    }
}

/// A group's failure domain, and an exclusion tag of an instance in it.
type LocationPair = (GroupIndex, TagIndex, TagIndex);

/// A cluster: what is there, what is placed where, and what follows from that for each node.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    groups: Vec<Group>,
    nodes: Vec<Node>,
    instances: Vec<Instance>,
    states: Vec<NodeState>,
    lists: Vec<NodeLists>,
    placements: Vec<Placement>,
    /// How often each exclusion tag is in each failure domain, over the online nodes of a group.
    location_pairs: BTreeMap<LocationPair, i64>,
    /// The sum of these counts beyond the first of each, by group.
    location_exclusion: Vec<i64>,
    tag_names: Vec<String>,
    policy: Policy,
    rules: Rules,
    /// What the cluster's tags say about other tags, for instances that are added.
    prefixes: build::Prefixes,
    ignore_load: bool,
}

impl Cluster {
    /// Returns the groups.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the instances.
    #[must_use]
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// Returns all node indexes in their order.
    pub fn node_indexes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.nodes.len() as u32).map(NodeIndex)
    }

    /// Returns all instance indexes in their order.
    pub fn instance_indexes(&self) -> impl Iterator<Item = InstanceIndex> + use<> {
        (0..self.instances.len() as u32).map(InstanceIndex)
    }

    /// Returns a node.
    #[must_use]
    pub fn node(&self, node: NodeIndex) -> &Node {
        &self.nodes[node.at()]
    }

    /// Returns an instance.
    #[must_use]
    pub fn instance(&self, instance: InstanceIndex) -> &Instance {
        &self.instances[instance.at()]
    }

    /// Returns how full a node is.
    #[must_use]
    pub fn state(&self, node: NodeIndex) -> &NodeState {
        &self.states[node.at()]
    }

    /// Returns what is on a node.
    #[must_use]
    pub fn lists(&self, node: NodeIndex) -> &NodeLists {
        &self.lists[node.at()]
    }

    /// Returns where an instance is.
    #[must_use]
    pub fn placement(&self, instance: InstanceIndex) -> Placement {
        self.placements[instance.at()]
    }

    /// Returns the names of the tags that mean something.
    #[must_use]
    pub fn tag_names(&self) -> &[String] {
        &self.tag_names
    }

    /// Returns the cluster's policy, which is not that of a group without a line of its own.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the rules by which it is judged.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns how many exclusion tags meet in failure domains beyond the first of each, in a
    /// group, or over all groups as if they were one.
    #[must_use]
    pub fn location_exclusion(&self, group: Option<GroupIndex>) -> i64 {
        if let Some(group) = group {
            return self.location_exclusion[group.at()];
        }
        let mut counts: BTreeMap<(TagIndex, TagIndex), i64> = BTreeMap::new();
        for ((_, location, tag), count) in &self.location_pairs {
            *counts.entry((*location, *tag)).or_insert(0) += count;
        }
        counts.values().map(|count| (count - 1).max(0)).sum()
    }

    /// Returns whether balancing could move an instance at all: its disks follow it, and its
    /// nodes are in one group.
    #[must_use]
    pub fn is_movable(&self, instance: InstanceIndex) -> bool {
        let Placement { primary, secondary } = self.placement(instance);
        let Some(primary) = primary else {
            return false;
        };
        let what = self.instance(instance);
        if what.is_mirrored() {
            return secondary.is_some_and(|s| self.node(s).group == self.node(primary).group);
        }
        what.is_on_shared_storage() && secondary.is_none()
    }

    /// Returns the memory of a peer's instances that a node must take if that peer fails.
    #[must_use]
    pub fn peer_memory(&self, node: NodeIndex, peer: NodeIndex) -> i64 {
        let peers = &self.lists[node.at()].peers;
        match peers.binary_search_by_key(&peer, |(node, _)| *node) {
            Ok(at) => peers[at].1,
            Err(_) => 0,
        }
    }

    /// Returns how many wished-for failure domains an instance misses on a node.
    #[must_use]
    pub fn missed_locations(&self, instance: InstanceIndex, node: NodeIndex) -> i64 {
        let wished = &self.instances[instance.at()].desired_locations;
        let here = &self.nodes[node.at()].locations;
        let missed = wished.iter().filter(|tag| here.binary_search(tag).is_err());
        missed.count() as i64
    }

    /// Returns how many failure domains two nodes share.
    #[must_use]
    pub fn shared_locations(&self, one: NodeIndex, other: NodeIndex) -> i64 {
        let there = &self.nodes[other.at()].locations;
        let here = self.nodes[one.at()].locations.iter();
        here.filter(|tag| there.binary_search(tag).is_ok()).count() as i64
    }
}
