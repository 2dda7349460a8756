//! The text format of Ganeti's htools: five sections of `|`-separated lines.
//!
//! [`Document`] keeps every byte that was read beside what it means, so that writing gives the
//! same bytes wherever nothing was changed: unused comments, additional fields and odd
//! spellings of numbers included. What is not understood is refused with its line and column;
//! nothing is guessed.

mod error;
mod fields;
mod parts;
mod read;
mod write;

use std::ops::Range;

pub use error::{Error, Fault};
pub use read::{Limits, Reader, parse};
pub use write::{InstanceChange, NewInstance, NodeChange};

/// What kind of allocation a node group is open to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllocationPolicy {
    /// New instances go here first.
    Preferred,
    /// New instances go here only if nothing else is left.
    LastResort,
    /// New instances never go here.
    Unallocable,
}

/// A line of the group section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLine {
    /// The name, by which the policies refer to it.
    pub name: String,
    /// The identifier, by which the nodes refer to it.
    pub uuid: String,
    /// Whether new instances may go here.
    pub allocation_policy: AllocationPolicy,
    /// Its tags.
    pub tags: Vec<String>,
    /// The networks that its nodes reach.
    pub networks: Vec<String>,
}

/// Whether a node takes part, field 8 of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRole {
    /// `N`, and any other letter that htools reads as "no".
    Regular,
    /// `M`: the master.
    Master,
    /// `Y`: offline.
    Offline,
}

/// A line of the node section.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeLine {
    /// The name.
    pub name: String,
    /// Total memory in MiB, as the node reports it.
    pub total_memory: f64,
    /// Memory of the node itself in MiB.
    pub node_memory: i64,
    /// Free memory in MiB as the node reports it; below zero where memory is over-committed.
    pub free_memory: i64,
    /// Total disk in MiB.
    pub total_disk: f64,
    /// Free disk in MiB.
    pub free_disk: i64,
    /// Physical CPUs.
    pub total_cpus: f64,
    /// Regular, master or offline.
    pub role: NodeRole,
    /// Some number was `?`: this node's state is unknown. It counts as offline and empty.
    pub unknown: bool,
    /// The group, as an index into [`Document::groups`].
    pub group: usize,
    /// Spindles.
    pub spindles: i64,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether disks have spindles of their own.
    pub exclusive_storage: bool,
    /// Free spindles, where disks have spindles of their own.
    pub free_spindles: i64,
    /// CPUs that the node's own system uses.
    pub node_cpus: i64,
    /// Speed of its CPUs relative to others.
    pub cpu_speed: f64,
}

/// What an instance does, field 5 of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// `running`.
    Running,
    /// `ADMIN_down`: stopped by the administrator.
    AdminDown,
    /// `ADMIN_offline`: switched off for long; it needs no reserve.
    AdminOffline,
    /// `ERROR_up`: runs and should not.
    ErrorUp,
    /// `ERROR_down`: does not run and should.
    ErrorDown,
    /// `ERROR_nodedown`: its node does not answer.
    ErrorNodeDown,
    /// `ERROR_nodeoffline`: its node is offline.
    ErrorNodeOffline,
    /// `ERROR_wrongnode`: runs where it should not.
    ErrorWrongNode,
    /// `USER_down`: stopped from inside.
    UserDown,
}

/// How the disks of an instance are kept, field 9 of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskTemplate {
    /// No disks.
    Diskless,
    /// Files on the node.
    File,
    /// Files in a shared directory.
    SharedFile,
    /// Logical volumes of the node.
    Plain,
    /// A block device that all nodes see.
    BlockDevice,
    /// Mirrored on two nodes.
    Drbd,
    /// Ceph.
    Rbd,
    /// A storage provider of one's own.
    External,
    /// Gluster.
    Gluster,
}

/// A line of the instance section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceLine {
    /// The name; htools allows two instances of one name.
    pub name: String,
    /// Memory in MiB.
    pub memory: i64,
    /// Disk in MiB, the sum of all disks.
    pub disk: i64,
    /// Virtual CPUs.
    pub vcpus: i64,
    /// What it does.
    pub status: Status,
    /// Whether it may be moved by balancing, and is counted in reserves.
    pub auto_balance: bool,
    /// The primary node, as an index into [`Document::nodes`].
    pub primary: usize,
    /// The secondary node, as an index into [`Document::nodes`].
    pub secondary: Option<usize>,
    /// How its disks are kept.
    pub disk_template: DiskTemplate,
    /// Its tags.
    pub tags: Vec<String>,
    /// How many spindles' worth of input and output it makes.
    pub spindle_use: i64,
    /// Spindles of its own, where the node has exclusive storage.
    pub spindles: Option<i64>,
    /// Promised, but not there yet.
    pub forthcoming: bool,
}

/// The size of an instance in a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Memory in MiB.
    pub memory: i64,
    /// Virtual CPUs.
    pub cpus: i64,
    /// Size of one disk in MiB.
    pub disk_size: i64,
    /// Number of disks.
    pub disk_count: i64,
    /// Number of network cards.
    pub nic_count: i64,
    /// How many spindles' worth of input and output.
    pub spindle_use: i64,
}

/// A line of the policy section: what instances may be, and how full nodes may get.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The size of an instance of which nothing else is said.
    pub standard: Spec,
    /// The allowed ranges, each from a smallest to a largest size.
    pub ranges: Vec<(Spec, Spec)>,
    /// The allowed kinds of disks.
    pub disk_templates: Vec<DiskTemplate>,
    /// Virtual CPUs that one physical CPU may serve.
    pub vcpu_ratio: f64,
    /// Spindle use that one spindle may serve.
    pub spindle_ratio: f64,
    /// MiB of instances that one MiB of available memory may hold; 1.0 where the line has no
    /// seventh field.
    pub memory_ratio: f64,
}

/// Whom a policy line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyOwner {
    /// The cluster.
    Cluster,
    /// A group, as an index into [`Document::groups`].
    Group(usize),
}

/// A file in htools' text format: what it says, and every byte of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The groups in their order.
    pub groups: Vec<GroupLine>,
    /// The nodes in their order.
    pub nodes: Vec<NodeLine>,
    /// The instances in their order.
    pub instances: Vec<InstanceLine>,
    /// The cluster's tags.
    pub tags: Vec<String>,
    /// The policies in their order; empty where the section is missing.
    pub policies: Vec<(PolicyOwner, Policy)>,
    source: String,
    node_spans: Vec<Range<usize>>,
    instance_spans: Vec<Range<usize>>,
    instances_end: usize,
}
