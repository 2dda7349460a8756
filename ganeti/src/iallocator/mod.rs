//! Ganeti's IAllocator protocol, version 2: a request with the whole cluster in JSON comes in, one
//! line of JSON goes out, as `hail` answers.
//!
//! Not a client of Ganeti: nothing is queried and nothing is changed. What cannot be read is an error
//! with its place; what can be read and not be done is an answer that says so.

mod allocate;
mod answer;
mod dedicated;
mod evacuate;
mod read;

pub use answer::Answer;
pub use read::{Cluster as Given, Request, Task, read};

use crate::choice::{Disk, Redundancy};
use crate::model::{Cluster, InstanceIndex, NodeIndex, Options};
use crate::text::{Document, InstanceLine};

/// How a request is answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Terms {
    /// Rules, exclusion tags and the like.
    pub options: Options,
    /// Whether some node may become impossible to evacuate.
    pub no_capacity_checks: bool,
}

/// A requested instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRequest {
    /// What it is; its nodes mean nothing.
    pub line: InstanceLine,
    /// Its disks.
    pub disks: Vec<Disk>,
    /// The networks that its group must reach.
    pub networks: Vec<String>,
    /// How many nodes it takes.
    pub node_count: i64,
    /// The only group where it may go.
    pub group: Option<String>,
}

/// Which nodes instances leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvacuationMode {
    /// Their primaries.
    Primary,
    /// Their secondaries.
    Secondary,
    /// Both.
    All,
}

/// A cluster at work on a request.
struct Work<'a> {
    document: &'a Document,
    cluster: Cluster,
    /// The disks of each instance.
    disks: Vec<Vec<Disk>>,
    /// The networks of each instance's cards.
    networks: Vec<Vec<String>>,
    redundancy: Option<Redundancy>,
}

impl<'a> Work<'a> {
    fn new(request: &'a Request, terms: &Terms) -> Self {
        let given = &request.cluster;
        Work {
            document: &given.document,
            cluster: Cluster::new(&given.document, &terms.options),
            disks: given.disks.clone(),
            networks: given.networks.clone(),
            redundancy: (!terms.no_capacity_checks).then(Redundancy::default),
        }
    }

    /// Adds an instance that is placed nowhere yet.
    fn add(&mut self, request: &InstanceRequest) -> InstanceIndex {
        self.disks.push(request.disks.clone());
        self.networks.push(request.networks.clone());
        self.cluster.add_instance(&request.line)
    }

    fn node_name(&self, node: NodeIndex) -> String {
        self.cluster.node(node).name.clone()
    }

    fn instance_name(&self, instance: InstanceIndex) -> String {
        self.cluster.instance(instance).name.clone()
    }
}

/// Returns the answer to a request.
#[must_use]
pub fn answer(request: &Request, terms: &Terms) -> Answer {
    let mut work = Work::new(request, terms);
    match &request.task {
        Task::Allocate { instance, only } => work.allocate(instance, only.as_deref()),
        Task::MultiAllocate(requests) => work.allocate_all(requests),
        Task::AllocateSecondary(instance) => work.allocate_secondary(*instance),
        Task::Relocate {
            instance,
            node_count,
            from,
        } => work.relocate(*instance, *node_count, from),
        Task::Evacuate { instances, mode } => work.evacuate_all(instances, *mode),
        Task::ChangeGroup { instances, groups } => work.change_group(instances, groups),
    }
}
