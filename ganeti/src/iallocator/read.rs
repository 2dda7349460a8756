//! Reads a request: the cluster into the form of a text, and the task.
//!
//! Keys that nothing is known of are passed over, since Ganeti sends many that no allocator
//! needs; in a policy they are refused, since a limit that is not understood is not kept.

use std::collections::BTreeMap;

use super::{EvacuationMode, InstanceRequest};
use crate::choice::Disk;
use crate::json::{At, Error, Value};
use crate::model::{GroupIndex, InstanceIndex, NodeIndex};
use crate::text::{
    AllocationPolicy, DiskTemplate, Document, GroupLine, InstanceLine, NodeLine, NodeRole, Policy,
    PolicyOwner, Spec, Status,
};

/// What htools takes for the memory of a node itself where it runs KVM, in MiB: what such a node
/// reports is what all of its processes use, guests among them.
const NODE_MEMORY_KVM: i64 = 4096;

/// A cluster, and what its text form does not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// The cluster in the form of a text.
    pub document: Document,
    /// The disks of each instance.
    pub disks: Vec<Vec<Disk>>,
    /// The networks of each instance's cards.
    pub networks: Vec<Vec<String>>,
}

impl From<Document> for Cluster {
    fn from(document: Document) -> Self {
        let instances = document.instances.iter();
        let disks = instances.map(|line| {
            vec![Disk {
                size: line.disk,
                spindles: line.spindles,
            }]
        });
        Cluster {
            disks: disks.collect(),
            networks: vec![Vec::new(); document.instances.len()],
            document,
        }
    }
}

/// The requested task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// A place for a new instance.
    Allocate {
        /// The instance.
        instance: Box<InstanceRequest>,
        /// The only nodes that may be taken.
        only: Option<Vec<String>>,
    },
    /// Places for several new instances.
    MultiAllocate(Vec<InstanceRequest>),
    /// A second node for an instance that has one.
    AllocateSecondary(InstanceIndex),
    /// Another node for one that an instance has.
    Relocate {
        /// The instance.
        instance: InstanceIndex,
        /// How many nodes are exchanged.
        node_count: i64,
        /// The nodes that it leaves.
        from: Vec<NodeIndex>,
    },
    /// Other nodes for what is on some nodes.
    Evacuate {
        /// The instances.
        instances: Vec<InstanceIndex>,
        /// Which of their nodes they leave.
        mode: EvacuationMode,
    },
    /// Another group.
    ChangeGroup {
        /// The instances.
        instances: Vec<InstanceIndex>,
        /// The groups that may be gone to; any where there is none.
        groups: Vec<GroupIndex>,
    },
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The cluster.
    pub cluster: Cluster,
    /// The requested task.
    pub task: Task,
}

/// Reads a request. A cluster that is given beside it is taken instead of the one inside.
///
/// # Errors
///
/// The first thing that is missing or impossible, with its place.
pub fn read(value: &Value, instead: Option<Document>) -> Result<Request, Error> {
    let top = At::top(value);
    let request = top.get("request")?;
    let kind = request.get("type")?;
    let cluster = match instead {
        Some(document) => Cluster::from(document),
        None => cluster(&top)?,
    };
    let names = Names::new(&cluster.document);
    let task = match kind.text()? {
        "allocate" => Task::Allocate {
            instance: Box::new(instance_request(&request, &request)?),
            only: match request.optional("restrict-to-nodes")? {
                Some(nodes) => Some(nodes.texts()?),
                None => None,
            },
        },
        "multi-allocate" => {
            let instances = request.get("instances")?.items()?;
            let instances = instances
                .iter()
                .map(|each| instance_request(each, &request));
            Task::MultiAllocate(instances.collect::<Result<_, _>>()?)
        }
        "allocate-secondary" => Task::AllocateSecondary(names.instance(&request.get("name")?)?),
        "relocate" => {
            let from = request.get("relocate_from")?.items()?;
            Task::Relocate {
                instance: names.instance(&request.get("name")?)?,
                node_count: request.get("required_nodes")?.integer(0)?,
                from: from
                    .iter()
                    .map(|n| names.node(n))
                    .collect::<Result<_, _>>()?,
            }
        }
        "node-evacuate" => {
            let instances = request.get("instances")?.items()?;
            let instances = instances.iter().map(|each| names.instance(each));
            Task::Evacuate {
                instances: instances.collect::<Result<_, _>>()?,
                mode: mode(&request.get("evac_mode")?)?,
            }
        }
        "change-group" => {
            let instances = request.get("instances")?.items()?;
            let instances = instances.iter().map(|each| names.instance(each));
            let groups = request.get("target_groups")?.items()?;
            Task::ChangeGroup {
                instances: instances.collect::<Result<_, _>>()?,
                groups: groups
                    .iter()
                    .map(|g| names.group(g))
                    .collect::<Result<_, _>>()?,
            }
        }
        _ => {
            return Err(kind.not_one_of(
                "allocate, multi-allocate, allocate-secondary, relocate, node-evacuate, \
                 change-group",
            ));
        }
    };
    Ok(Request { cluster, task })
}

fn mode(at: &At<'_>) -> Result<EvacuationMode, Error> {
    match at.text()? {
        "primary-only" => Ok(EvacuationMode::Primary),
        "secondary-only" => Ok(EvacuationMode::Secondary),
        "all" => Ok(EvacuationMode::All),
        _ => Err(at.not_one_of("primary-only, secondary-only, all")),
    }
}

/// The names of what is there.
struct Names {
    groups: BTreeMap<String, u32>,
    nodes: BTreeMap<String, u32>,
    instances: BTreeMap<String, u32>,
}

impl Names {
    fn new(document: &Document) -> Self {
        let mut groups = BTreeMap::new();
        for (at, group) in (0..).zip(&document.groups) {
            groups.insert(group.uuid.clone(), at);
            groups.entry(group.name.clone()).or_insert(at);
        }
        let nodes = document.nodes.iter().map(|node| node.name.clone());
        let instances = document
            .instances
            .iter()
            .map(|instance| instance.name.clone());
        Names {
            groups,
            nodes: nodes.zip(0..).collect(),
            instances: instances.zip(0..).collect(),
        }
    }

    fn group(&self, at: &At<'_>) -> Result<GroupIndex, Error> {
        let name = at.text()?;
        let found = self.groups.get(name).copied().map(GroupIndex);
        found.ok_or_else(|| at.unknown("group", name))
    }

    fn node(&self, at: &At<'_>) -> Result<NodeIndex, Error> {
        let name = at.text()?;
        let found = self.nodes.get(name).copied().map(NodeIndex);
        found.ok_or_else(|| at.unknown("node", name))
    }

    fn instance(&self, at: &At<'_>) -> Result<InstanceIndex, Error> {
        let name = at.text()?;
        let found = self.instances.get(name).copied().map(InstanceIndex);
        found.ok_or_else(|| at.unknown("instance", name))
    }
}

fn cluster(top: &At<'_>) -> Result<Cluster, Error> {
    let (mut groups, mut policies) = (Vec::new(), Vec::new());
    let mut group_by_uuid = BTreeMap::new();
    for (uuid, at) in top.get("nodegroups")?.members()? {
        let index = groups.len();
        groups.push(group(uuid, &at)?);
        policies.push((PolicyOwner::Group(index), policy(&at.get("ipolicy")?)?));
        group_by_uuid.insert(uuid, index);
    }
    // Requests of Ganeti 2.17 have no such list; then nothing is known of KVM.
    let hypervisors = match top.optional("enabled_hypervisors")? {
        Some(list) => list.texts()?,
        None => Vec::new(),
    };
    let kvm = hypervisors.first().is_some_and(|first| first == "kvm");
    let mut nodes = Vec::new();
    let mut node_by_name = BTreeMap::new();
    for (name, at) in top.get("nodes")?.members()? {
        let uuid = at.get("group")?;
        let found = group_by_uuid.get(uuid.text()?).copied();
        let group = found.ok_or_else(|| uuid.unknown("group", uuid.text().unwrap_or_default()))?;
        node_by_name.insert(name, nodes.len());
        nodes.push(node(name, group, &at, kvm)?);
    }
    let mut given = (Vec::new(), Vec::new(), Vec::new());
    for (name, at) in top.get("instances")?.members()? {
        let mut base = base(name, &at)?;
        let placed = at.get("nodes")?;
        let mut on = Vec::new();
        for node in placed.items()? {
            let named = node.text()?;
            let found = node_by_name.get(named).copied();
            on.push(found.ok_or_else(|| node.unknown("node", named))?);
        }
        match on[..] {
            [] => return Err(placed.not_one_of("lists with one node or two")),
            [primary, ref others @ ..] => {
                base.line.primary = primary;
                base.line.secondary = others.first().copied();
                if base.line.secondary == Some(primary) {
                    return Err(placed.not_one_of("lists with two different nodes"));
                }
            }
        }
        given.0.push(base.line);
        given.1.push(base.disks);
        given.2.push(base.networks);
    }
    let tags = top.get("cluster_tags")?.texts()?;
    let (instances, disks, networks) = given;
    Ok(Cluster {
        document: Document::from_parts(groups, nodes, instances, tags, policies),
        disks,
        networks,
    })
}

fn group(uuid: &str, at: &At<'_>) -> Result<GroupLine, Error> {
    let policy = at.get("alloc_policy")?;
    Ok(GroupLine {
        name: at.get("name")?.text()?.to_owned(),
        uuid: uuid.to_owned(),
        allocation_policy: match policy.text()? {
            "preferred" => AllocationPolicy::Preferred,
            "last_resort" => AllocationPolicy::LastResort,
            "unallocable" => AllocationPolicy::Unallocable,
            _ => return Err(policy.not_one_of("preferred, last_resort, unallocable")),
        },
        tags: at.get("tags")?.texts()?,
        networks: at.get("networks")?.texts()?,
    })
}

fn policy(at: &At<'_>) -> Result<Policy, Error> {
    at.only(&[
        "std",
        "minmax",
        "disk-templates",
        "vcpu-ratio",
        "spindle-ratio",
        "memory-ratio",
    ])?;
    let mut ranges = Vec::new();
    for range in at.get("minmax")?.items()? {
        range.only(&["min", "max"])?;
        ranges.push((spec(&range.get("min")?)?, spec(&range.get("max")?)?));
    }
    let mut disk_templates = Vec::new();
    for template in at.get("disk-templates")?.items()? {
        disk_templates.push(disk_template(&template)?);
    }
    let memory_ratio = match at.optional("memory-ratio")? {
        Some(ratio) => ratio.real()?,
        None => 1.0,
    };
    Ok(Policy {
        standard: spec(&at.get("std")?)?,
        ranges,
        disk_templates,
        vcpu_ratio: at.get("vcpu-ratio")?.real()?,
        spindle_ratio: at.get("spindle-ratio")?.real()?,
        memory_ratio,
    })
}

fn spec(at: &At<'_>) -> Result<Spec, Error> {
    let number = |key| at.get(key)?.integer(0);
    let spec = Spec {
        memory: number("memory-size")?,
        cpus: number("cpu-count")?,
        disk_size: number("disk-size")?,
        disk_count: number("disk-count")?,
        nic_count: number("nic-count")?,
        spindle_use: number("spindle-use")?,
    };
    at.only(&[
        "memory-size",
        "cpu-count",
        "disk-size",
        "disk-count",
        "nic-count",
        "spindle-use",
    ])?;
    Ok(spec)
}

fn node(name: &str, group: usize, at: &At<'_>, kvm: bool) -> Result<NodeLine, Error> {
    let offline = at.get("offline")?.flag()?;
    let drained = at.get("drained")?.flag()?;
    let capable = match at.optional("vm_capable")? {
        Some(capable) => capable.flag()?,
        None => true,
    };
    let parameters = at.get("ndparams")?;
    let exclusive_storage = parameters.get("exclusive_storage")?.flag()?;
    let live = !offline && capable;
    let integer = |key, least| {
        if live {
            at.get(key)?.integer(least)
        } else {
            Ok(0)
        }
    };
    let real = |key| if live { at.get(key)?.real() } else { Ok(0.0) };
    let spindles = if exclusive_storage {
        integer("total_spindles", 0)?
    } else {
        parameters.get("spindle_count")?.integer(0)?
    };
    let reported = integer("reserved_memory", 0)?;
    Ok(NodeLine {
        name: name.to_owned(),
        total_memory: real("total_memory")?,
        node_memory: if kvm { NODE_MEMORY_KVM } else { reported },
        free_memory: integer("free_memory", i64::MIN)?,
        total_disk: real("total_disk")?,
        free_disk: integer("free_disk", i64::MIN)?,
        total_cpus: real("total_cpus")?,
        role: if !live || drained {
            NodeRole::Offline
        } else {
            NodeRole::Regular
        },
        unknown: false,
        group,
        spindles,
        tags: match at.optional("tags")? {
            Some(tags) => tags.texts()?,
            None => Vec::new(),
        },
        exclusive_storage,
        free_spindles: integer("free_spindles", 0)?,
        node_cpus: integer("reserved_cpus", 0)?,
        cpu_speed: 1.0,
    })
}

/// What an instance that is there and one that is requested have in common.
struct Base {
    line: InstanceLine,
    disks: Vec<Disk>,
    networks: Vec<String>,
}

fn base(name: &str, at: &At<'_>) -> Result<Base, Error> {
    let mut disks = Vec::new();
    for disk in at.get("disks")?.items()? {
        let spindles = match disk.optional("spindles")? {
            Some(spindles) => Some(spindles.integer(0)?),
            None => None,
        };
        let size = disk.get("size")?.integer(0)?;
        disks.push(Disk { size, spindles });
    }
    let mut networks = Vec::new();
    for card in at.get("nics")?.items()? {
        if let Some(network) = card.optional("network")? {
            networks.push(network.text()?.to_owned());
        }
    }
    let forthcoming = match at.optional("forthcoming")? {
        Some(forthcoming) => forthcoming.flag()?,
        None => false,
    };
    let spindles = disks.iter().map(|disk| disk.spindles);
    let spindles = spindles.sum::<Option<i64>>();
    let line = InstanceLine {
        name: name.to_owned(),
        memory: at.get("memory")?.integer(0)?,
        disk: at.get("disk_space_total")?.integer(0)?,
        vcpus: at.get("vcpus")?.integer(0)?,
        status: status(at)?,
        auto_balance: true,
        primary: 0,
        secondary: None,
        disk_template: disk_template(&at.get("disk_template")?)?,
        tags: at.get("tags")?.texts()?,
        spindle_use: at.get("spindle_use")?.integer(0)?,
        spindles,
        forthcoming,
    };
    Ok(Base {
        line,
        disks,
        networks,
    })
}

fn instance_request(at: &At<'_>, request: &At<'_>) -> Result<InstanceRequest, Error> {
    let Base {
        line,
        disks,
        networks,
    } = base(at.get("name")?.text()?, at)?;
    Ok(InstanceRequest {
        line,
        disks,
        networks,
        node_count: at.get("required_nodes")?.integer(0)?,
        group: match request.optional("group_name")? {
            Some(group) => Some(group.text()?.to_owned()),
            None => None,
        },
    })
}

fn status(at: &At<'_>) -> Result<Status, Error> {
    let Some(state) = at.optional("admin_state")? else {
        return Ok(Status::Running);
    };
    match state.text()? {
        "up" => Ok(Status::Running),
        "down" => Ok(Status::AdminDown),
        "offline" => Ok(Status::AdminOffline),
        _ => Err(state.not_one_of("up, down, offline")),
    }
}

fn disk_template(at: &At<'_>) -> Result<DiskTemplate, Error> {
    let word = at.text()?;
    let found = DiskTemplate::ALL.iter().find(|t| t.word() == word);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = DiskTemplate::ALL.iter().map(|t| t.word()).collect();
        at.not_one_of(&known.join(", "))
    })
}
