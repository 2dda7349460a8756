//! Builds a cluster from a text: what htools computes once, when it loads.
//!
//! Nothing is refused here: the text was judged when it was read.

use std::collections::BTreeMap;

use super::{
    Cluster, DiskTemplate, Group, GroupIndex, Instance, InstanceIndex, Node, NodeIndex, NodeLists,
    NodeState, Placement, Policy, RatioSource, Rules, Spec, TagIndex,
};
use crate::text::{Document, InstanceLine, NodeLine, NodeRole, PolicyOwner};

/// What can be said beside the text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// The rules by which placements are judged.
    pub rules: Rules,
    /// Instances make no load: the four load components are zero.
    pub ignore_load: bool,
    /// Prefixes of exclusion tags beside those of the cluster's tags, without the colon.
    pub exclusion_tags: Vec<String>,
    /// Names of nodes to see as offline.
    pub offline: Vec<String>,
    /// The share of a node's disk that stays free.
    pub disk_reserve: f64,
}

/// The tags that mean something, each once.
struct Tags {
    known: BTreeMap<String, TagIndex>,
    names: Vec<String>,
}

impl Tags {
    fn new(names: Vec<String>) -> Self {
        let pairs = names.iter().enumerate();
        let pairs = pairs.map(|(at, name)| (name.clone(), TagIndex(at as u32)));
        Tags {
            known: pairs.collect(),
            names,
        }
    }

    fn index(&mut self, tag: &str) -> TagIndex {
        if let Some(index) = self.known.get(tag) {
            return *index;
        }
        let index = TagIndex(self.names.len() as u32);
        self.names.push(tag.to_owned());
        self.known.insert(tag.to_owned(), index);
        index
    }

    /// Returns those tags that begin with any of the prefixes, in their order.
    fn selected(&mut self, tags: &[String], prefixes: &[String]) -> Vec<TagIndex> {
        let mut found = Vec::new();
        for tag in tags {
            if prefixes.iter().any(|p| tag.starts_with(p.as_str())) {
                found.push(self.index(tag));
            }
        }
        found
    }
}

fn as_set(mut tags: Vec<TagIndex>) -> Vec<TagIndex> {
    tags.sort_unstable();
    tags.dedup();
    tags
}

fn with_prefix(tags: &[String], prefix: &str) -> Vec<String> {
    let found = tags.iter().filter_map(|t| t.strip_prefix(prefix));
    found.map(str::to_owned).collect()
}

/// What the cluster's tags say about other tags.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prefixes {
    exclusion: Vec<String>,
    desired: Vec<String>,
    location: Vec<String>,
    migration: Vec<String>,
    /// From which tag to which one migration is allowed.
    allowed: Vec<(String, String)>,
}

impl Prefixes {
    fn new(tags: &[String], options: &Options) -> Self {
        let colon = |prefix: String| prefix + ":";
        let from_options = options.exclusion_tags.iter().cloned().map(colon);
        let whole = with_prefix(tags, "htools:iextags:").into_iter();
        let desired = with_prefix(tags, "htools:desiredlocation:").into_iter();
        let location = with_prefix(tags, "htools:nlocation:").into_iter();
        let migration = with_prefix(tags, "htools:migration:").into_iter();
        let allowed = with_prefix(tags, "htools:allowmigration:");
        let pair = |text: &String| match text.split_once("::") {
            Some((from, to)) if !to.contains("::") => Some((from.to_owned(), to.to_owned())),
            Some(_) | None => None,
        };
        Prefixes {
            exclusion: from_options
                .chain(whole.filter(|p| !p.is_empty()))
                .collect(),
            desired: desired.filter(|p| !p.is_empty()).collect(),
            location: location.map(colon).collect(),
            migration: migration.map(colon).collect(),
            allowed: allowed.iter().filter_map(pair).collect(),
        }
    }
}

impl Cluster {
    /// Returns the cluster that a text describes.
    #[must_use]
    pub fn new(document: &Document, options: &Options) -> Cluster {
        let mut tags = Tags::new(Vec::new());
        let prefixes = Prefixes::new(&document.tags, options);
        let (policy, groups) = groups(document);
        let mut nodes = Vec::with_capacity(document.nodes.len());
        let mut states = Vec::with_capacity(document.nodes.len());
        for line in &document.nodes {
            let group = &groups[line.group];
            let node = node(line, group, options, &prefixes, &mut tags);
            states.push(empty_state(line));
            nodes.push(node);
        }
        let mut instances = Vec::with_capacity(document.instances.len());
        let mut placements = Vec::with_capacity(document.instances.len());
        for line in &document.instances {
            instances.push(instance(line, options.ignore_load, &prefixes, &mut tags));
            placements.push(Placement {
                primary: Some(NodeIndex(line.primary as u32)),
                secondary: line.secondary.map(|node| NodeIndex(node as u32)),
            });
        }
        let mut cluster = Cluster {
            location_exclusion: vec![0; groups.len()],
            groups,
            lists: vec![NodeLists::default(); nodes.len()],
            nodes,
            instances,
            states,
            placements,
            location_pairs: BTreeMap::new(),
            tag_names: tags.names,
            policy,
            rules: options.rules,
            prefixes,
            ignore_load: options.ignore_load,
        };
        cluster.load();
        cluster
    }

    /// Adds an instance that is placed nowhere yet, whatever nodes its line names.
    pub fn add_instance(&mut self, line: &InstanceLine) -> InstanceIndex {
        let mut tags = Tags::new(std::mem::take(&mut self.tag_names));
        let added = instance(line, self.ignore_load, &self.prefixes, &mut tags);
        self.tag_names = tags.names;
        let index = InstanceIndex(self.instances.len() as u32);
        self.instances.push(added);
        self.placements.push(Placement::default());
        index
    }

    /// Takes the last instance away again.
    ///
    /// # Panics
    ///
    /// If it is placed somewhere.
    pub fn remove_last_instance(&mut self) -> Option<Instance> {
        let placement = self.placements.pop();
        assert!(
            placement.unwrap_or_default() == Placement::default(),
            "an instance is unplaced before it is taken away"
        );
        self.instances.pop()
    }

    /// Counts every instance on its nodes, then judges the nodes.
    fn load(&mut self) {
        for index in self.instance_indexes() {
            let Placement { primary, secondary } = self.placement(index);
            let primary = primary.expect("a text says where each instance is");
            self.list(index, self.placement(index));
            self.load_primary(index, primary, secondary);
            if let Some(secondary) = secondary {
                self.load_secondary(index, secondary);
            }
        }
        for at in 0..self.nodes.len() {
            let (node, state) = (&mut self.nodes[at], &mut self.states[at]);
            let recorded = node.available_memory() - state.instance_memory;
            node.missing_memory = recorded - node.reported_free_memory;
            state.unallocated_memory = recorded - node.missing_memory.max(0);
            let peers = self.lists[at].peers.iter();
            state.reserved_memory = peers.map(|(_, memory)| *memory).max().unwrap_or(0);
            let free = node.reported_free_memory - state.reserved_memory;
            state.fails_n1 = free < node.memory_floor;
            let beyond = self.lists[at].tags.iter();
            state.tag_conflicts = beyond.map(|(_, count)| i64::from(*count) - 1).sum();
        }
    }

    fn load_primary(
        &mut self,
        index: InstanceIndex,
        primary: NodeIndex,
        secondary: Option<NodeIndex>,
    ) {
        let shared = secondary.map_or(0, |s| self.shared_locations(primary, s));
        let location_score = shared + self.missed_locations(index, primary);
        let instance = &self.instances[index.at()];
        let node = &self.nodes[primary.at()];
        let state = &mut self.states[primary.at()];
        let local = instance.uses_local_storage();
        if instance.is_online() {
            state.forthcoming_cpus += instance.vcpus;
        }
        if !instance.uses_memory() {
            state.forthcoming_memory -= instance.memory;
        }
        if local && !node.exclusive_storage {
            state.forthcoming_spindles += instance.spindle_use;
        }
        if instance.forthcoming {
            load_promised_disk(instance, node, state);
            return;
        }
        if instance.uses_memory() {
            state.instance_memory += instance.memory;
        }
        if instance.is_online() {
            state.used_cpus += instance.vcpus;
        }
        for (sum, load) in state.load.iter_mut().zip(instance.load) {
            *sum += load;
        }
        if local && !node.exclusive_storage {
            state.used_spindles += instance.spindle_use;
        }
        state.primaries += 1;
        state.location_score += location_score;
    }

    fn load_secondary(&mut self, index: InstanceIndex, secondary: NodeIndex) {
        let instance = &self.instances[index.at()];
        let node = &self.nodes[secondary.at()];
        let state = &mut self.states[secondary.at()];
        let counts = instance.uses_local_storage() && !node.exclusive_storage;
        if counts {
            state.forthcoming_spindles += instance.spindle_use;
        }
        if instance.forthcoming {
            load_promised_disk(instance, node, state);
            return;
        }
        if counts {
            state.used_spindles += instance.spindle_use;
        }
        state.load[2] += instance.load[2];
        state.secondaries += 1;
    }
}

fn load_promised_disk(instance: &Instance, node: &Node, state: &mut NodeState) {
    if !instance.uses_local_storage() {
        return;
    }
    state.forthcoming_disk -= instance.disk;
    if node.exclusive_storage {
        state.forthcoming_free_spindles -= instance.spindles.unwrap_or(0);
    }
}

/// Returns the cluster's policy and the groups with theirs.
fn groups(document: &Document) -> (Policy, Vec<Group>) {
    let standard = Policy::standard();
    let mut groups: Vec<Group> = Vec::new();
    for line in &document.groups {
        groups.push(Group {
            name: line.name.clone(),
            uuid: line.uuid.clone(),
            allocation_policy: line.allocation_policy,
            policy: standard.clone(),
        });
    }
    let mut cluster = standard;
    for (owner, policy) in &document.policies {
        match owner {
            PolicyOwner::Cluster => cluster = policy.clone(),
            PolicyOwner::Group(at) => groups[*at].policy = policy.clone(),
        }
    }
    (cluster, groups)
}

impl Policy {
    /// Returns the policy of a group of which the text says nothing.
    ///
    /// Not the cluster's: htools takes its own defaults, and so the same file means the same.
    #[must_use]
    pub fn standard() -> Policy {
        let smallest = Spec {
            memory: 128,
            cpus: 1,
            disk_size: 1024,
            disk_count: 1,
            nic_count: 1,
            spindle_use: 1,
        };
        let greatest = Spec {
            memory: 32_768,
            cpus: 8,
            disk_size: 1_048_576,
            disk_count: 16,
            nic_count: 8,
            spindle_use: 12,
        };
        Policy {
            standard: smallest,
            ranges: vec![(smallest, greatest)],
            disk_templates: DiskTemplate::ALL.to_vec(),
            vcpu_ratio: 4.0,
            spindle_ratio: 32.0,
            memory_ratio: 1.0,
        }
    }
}

fn node(
    line: &NodeLine,
    group: &Group,
    options: &Options,
    prefixes: &Prefixes,
    tags: &mut Tags,
) -> Node {
    let ratio = match options.rules.ratio {
        RatioSource::Policy => group.policy.memory_ratio,
        RatioSource::Ignored => 1.0,
        RatioSource::Fixed(ratio) => ratio,
    };
    let available = line.total_memory as i64 - line.node_memory;
    // Of a node of unknown numbers, htools does not know the tags either.
    let node_tags = if line.unknown { &[] } else { &line.tags[..] };
    let locations = as_set(tags.selected(node_tags, &prefixes.location));
    let migration_tags = as_set(tags.selected(node_tags, &prefixes.migration));
    let mut receivable = migration_tags.clone();
    for (from, to) in &prefixes.allowed {
        let to = tags.index(to);
        if migration_tags.binary_search(&to).is_ok() {
            receivable.push(tags.index(from));
        }
    }
    Node {
        name: line.name.clone(),
        group: GroupIndex(line.group as u32),
        offline: line.unknown
            || line.role == NodeRole::Offline
            || options.offline.contains(&line.name),
        master: line.role == NodeRole::Master,
        total_memory: line.total_memory,
        node_memory: line.node_memory,
        reported_free_memory: line.free_memory,
        missing_memory: 0,
        memory_floor: options.rules.floor(ratio, available),
        total_disk: line.total_disk,
        disk_floor: (options.disk_reserve * line.total_disk).floor() as i64,
        total_cpus: line.total_cpus,
        cpu_speed: line.cpu_speed,
        vcpu_ratio: group.policy.vcpu_ratio,
        spindles: line.spindles,
        spindle_limit: group.policy.spindle_ratio * line.spindles as f64,
        exclusive_storage: line.exclusive_storage,
        locations,
        migration_tags,
        receivable_tags: as_set(receivable),
    }
}

fn empty_state(line: &NodeLine) -> NodeState {
    NodeState {
        instance_memory: 0,
        unallocated_memory: 0,
        reserved_memory: 0,
        free_disk: line.free_disk,
        free_spindles: line.free_spindles,
        used_cpus: line.node_cpus,
        used_spindles: 0,
        forthcoming_memory: line.free_memory,
        forthcoming_disk: line.free_disk,
        forthcoming_free_spindles: line.free_spindles,
        forthcoming_cpus: line.node_cpus,
        forthcoming_spindles: 0,
        load: [0.0; 4],
        primaries: 0,
        secondaries: 0,
        location_score: 0,
        tag_conflicts: 0,
        fails_n1: false,
    }
}

fn instance(
    line: &InstanceLine,
    ignore_load: bool,
    prefixes: &Prefixes,
    tags: &mut Tags,
) -> Instance {
    let load = if ignore_load { 0.0 } else { 1.0 };
    Instance {
        name: line.name.clone(),
        memory: line.memory,
        disk: line.disk,
        vcpus: line.vcpus,
        status: line.status,
        auto_balance: line.auto_balance,
        disk_template: line.disk_template,
        spindle_use: line.spindle_use,
        spindles: line.spindles,
        forthcoming: line.forthcoming,
        tags: line.tags.clone(),
        load: [load; 4],
        exclusion_tags: tags.selected(&line.tags, &prefixes.exclusion),
        desired_locations: as_set(tags.selected(&line.tags, &prefixes.desired)),
    }
}
