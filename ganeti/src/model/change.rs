//! A change of one instance's placement: drafted on copies of the nodes that it touches, then
//! applied, and reverted to the last bit.
//!
//! A draft changes nothing in the cluster, so that a planner may draft thousands and apply one.
//! The steps follow Ganeti's order of checks, since a node that is touched in between is judged
//! as it is then.

use super::{
    Cluster, InstanceIndex, LocationPair, MemoryRule, Node, NodeIndex, NodeState, Placement,
    Refusal, TagIndex,
};

use super::limits::{
    hard_limits, promised_disk_limits, promised_limits, soft_disk_limits, soft_limits,
};

/// A node that a change touches, before and after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Touched {
    /// The node.
    pub node: NodeIndex,
    /// Its state before.
    pub before: NodeState,
    /// Its state after.
    pub after: NodeState,
}

/// A change that was found to be allowed.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The instance.
    pub instance: InstanceIndex,
    /// Where it was.
    pub before: Placement,
    /// Where it goes.
    pub after: Placement,
    /// By how much [`Cluster::location_exclusion`] changes.
    pub location_exclusion: i64,
    touched: [Option<Touched>; 4],
    count: usize,
}

impl Change {
    /// Returns the nodes that it touches.
    pub fn touched(&self) -> impl Iterator<Item = &Touched> {
        self.touched[..self.count].iter().flatten()
    }
}

/// A change in the making.
pub(super) struct Draft<'a> {
    cluster: &'a Cluster,
    change: Change,
    /// Where the instance is at this step.
    at: Placement,
    /// What was added to the peers of nodes: node, peer, MiB.
    peers: [(NodeIndex, NodeIndex, i64); 4],
    peer_count: usize,
}

impl<'a> Draft<'a> {
    pub(super) fn new(cluster: &'a Cluster, instance: InstanceIndex) -> Self {
        let before = cluster.placement(instance);
        Draft {
            cluster,
            change: Change {
                instance,
                before,
                after: before,
                location_exclusion: 0,
                touched: [None; 4],
                count: 0,
            },
            at: before,
            peers: [(NodeIndex(0), NodeIndex(0), 0); 4],
            peer_count: 0,
        }
    }

    /// Ends the draft with the instance on these nodes.
    pub(super) fn finish(mut self, after: Placement) -> Change {
        self.change.after = after;
        self.change.location_exclusion = self.location_exclusion();
        self.change
    }

    fn state(&mut self, node: NodeIndex) -> &mut NodeState {
        let count = self.change.count;
        let known = self.change.touched[..count].iter();
        let mut known = known.map(|t| t.as_ref().is_some_and(|t| t.node == node));
        let at = known.position(|found| found).unwrap_or(count);
        if at == count {
            let before = *self.cluster.state(node);
            self.change.count += 1;
            self.change.touched[at] = Some(Touched {
                node,
                before,
                after: before,
            });
        }
        let touched = self.change.touched[at].as_mut();
        &mut touched.expect("it was found or made").after
    }

    /// Returns whether a node is already short for the failure of a peer, and so may stay so.
    ///
    /// Ganeti asks as of this step, when the instance itself is off the node. Where memory may be
    /// used to the last byte, that alone can make the node good for the while; so there it counts
    /// too whether it was short before the change.
    fn was_failing(&mut self, node: NodeIndex) -> bool {
        let before = match self.cluster.rules().memory {
            MemoryRule::Strict => false,
            MemoryRule::AtMost => self.cluster.state(node).fails_n1,
        };
        before || self.state(node).fails_n1
    }

    fn peer_memory(&self, node: NodeIndex, peer: NodeIndex) -> i64 {
        let added = self.peers[..self.peer_count].iter();
        let added = added.filter(|(n, p, _)| *n == node && *p == peer);
        self.cluster.peer_memory(node, peer) + added.map(|(_, _, memory)| memory).sum::<i64>()
    }

    fn change_peer(&mut self, node: NodeIndex, peer: NodeIndex, memory: i64) {
        self.peers[self.peer_count] = (node, peer, memory);
        self.peer_count += 1;
    }

    /// Returns the most that a node must take for one peer.
    fn worst_peer(&self, node: NodeIndex) -> i64 {
        let listed = self.cluster.lists(node).peers.iter();
        let listed = listed.map(|(peer, _)| self.peer_memory(node, *peer));
        let added = self.peers[..self.peer_count].iter();
        let added = added.filter(|(n, _, _)| *n == node);
        let added = added.map(|(_, peer, _)| self.peer_memory(node, *peer));
        listed.chain(added).max().unwrap_or(0).max(0)
    }

    fn location_score(&self, primary: NodeIndex) -> i64 {
        let secondary = self.at.secondary;
        let shared = secondary.map_or(0, |s| self.cluster.shared_locations(primary, s));
        shared + self.cluster.missed_locations(self.change.instance, primary)
    }

    /// Says where the instance's nodes are from here on, for the score of their locations.
    pub(super) fn located(&mut self, primary: NodeIndex, secondary: Option<NodeIndex>) {
        self.at = Placement {
            primary: Some(primary),
            secondary,
        };
    }

    pub(super) fn remove_primary(&mut self, node: NodeIndex) {
        let cluster = self.cluster;
        let instance = cluster.instance(self.change.instance);
        let (what, rules) = (cluster.node(node), cluster.rules());
        let location_score = self.location_score(node);
        let state = self.state(node);
        let local = instance.uses_local_storage();
        let vcpus = if instance.is_online() {
            instance.vcpus
        } else {
            0
        };
        state.forthcoming_memory += instance.memory;
        state.forthcoming_cpus -= vcpus;
        if local {
            take_disk(state, what, instance.disk, instance.spindles, -1);
            take_spindle_use(state, what, instance.spindle_use, instance.forthcoming, -1);
        }
        let real = !instance.forthcoming;
        if real {
            if local {
                state.free_disk += instance.disk;
                if what.exclusive_storage {
                    state.free_spindles += instance.spindles.unwrap_or(0);
                }
            }
            if instance.uses_memory() {
                state.instance_memory -= instance.memory;
                state.unallocated_memory += instance.memory;
            }
            state.used_cpus -= vcpus;
            for (sum, load) in state.load.iter_mut().zip(instance.load) {
                *sum -= load;
            }
            state.primaries -= 1;
            state.location_score -= location_score;
            let free = state.unallocated_memory - state.reserved_memory;
            state.fails_n1 = rules.is_short(free, what.memory_floor);
        }
        let listed = self.change.before.primary == Some(node);
        self.state(node).tag_conflicts -= conflicts(cluster, self.change.instance, node, listed);
    }

    pub(super) fn remove_secondary(&mut self, node: NodeIndex, primary: NodeIndex) {
        let cluster = self.cluster;
        let instance = cluster.instance(self.change.instance);
        let (what, rules) = (cluster.node(node), cluster.rules());
        let state = self.state(node);
        if instance.uses_local_storage() {
            take_disk(state, what, instance.disk, instance.spindles, -1);
            take_spindle_use(state, what, instance.spindle_use, instance.forthcoming, -1);
        }
        if instance.forthcoming {
            return;
        }
        if instance.uses_local_storage() {
            state.free_disk += instance.disk;
            if what.exclusive_storage {
                state.free_spindles += instance.spindles.unwrap_or(0);
            }
        }
        state.load[2] -= instance.load[2];
        state.secondaries -= 1;
        let reserved = state.reserved_memory;
        let old = self.peer_memory(node, primary);
        self.change_peer(node, primary, -instance.reserve());
        let reserved = if old < reserved {
            reserved
        } else {
            self.worst_peer(node)
        };
        let state = self.state(node);
        state.reserved_memory = reserved;
        state.fails_n1 = rules.is_short(state.unallocated_memory - reserved, what.memory_floor);
    }

    /// Adds the instance to its primary; `force` skips the soft checks.
    pub(super) fn add_primary(&mut self, node: NodeIndex, force: bool) -> Result<(), Refusal> {
        let cluster = self.cluster;
        let instance = cluster.instance(self.change.instance);
        let (what, rules) = (cluster.node(node), cluster.rules());
        let location_score = self.location_score(node);
        let here_before = self.change.before.primary == Some(node);
        let local = instance.uses_local_storage();
        let was_failing = self.was_failing(node);
        let mut state = *self.state(node);
        let vcpus = if instance.is_online() {
            instance.vcpus
        } else {
            0
        };
        state.forthcoming_memory -= instance.memory;
        state.forthcoming_cpus += vcpus;
        if local {
            take_disk(&mut state, what, instance.disk, instance.spindles, 1);
            let (spindle_use, forthcoming) = (instance.spindle_use, instance.forthcoming);
            take_spindle_use(&mut state, what, spindle_use, forthcoming, 1);
        }
        if !instance.forthcoming {
            if instance.uses_memory() {
                state.instance_memory += instance.memory;
                state.unallocated_memory -= instance.memory;
            }
            if local {
                state.free_disk -= instance.disk;
                if what.exclusive_storage {
                    state.free_spindles -= instance.spindles.unwrap_or(state.free_spindles + 1);
                }
            }
            state.used_cpus += vcpus;
            for (sum, load) in state.load.iter_mut().zip(instance.load) {
                *sum += load;
            }
            state.primaries += 1;
            state.location_score += location_score;
            let free = state.unallocated_memory - state.reserved_memory;
            state.fails_n1 = rules.is_short(free, what.memory_floor);
            hard_limits(cluster, what, &state, local, true)?;
            if !force {
                soft_limits(what, &state, local, was_failing)?;
                let clash = instance.exclusion_tags.iter().any(|tag| {
                    tag_count(cluster, node, *tag) > own_tags(instance, *tag, here_before)
                });
                if clash {
                    return Err(Refusal::Tags);
                }
            }
        }
        if !force {
            promised_limits(cluster, what, &state, local)?;
        }
        let added = conflicts(cluster, self.change.instance, node, here_before);
        state.tag_conflicts += added;
        *self.state(node) = state;
        Ok(())
    }

    /// Adds the instance to its secondary; `force` skips the soft checks, `ignore_disk` also that
    /// of free disk: the copy is there already.
    pub(super) fn add_secondary(
        &mut self,
        node: NodeIndex,
        primary: NodeIndex,
        ignore_disk: bool,
        force: bool,
    ) -> Result<(), Refusal> {
        let cluster = self.cluster;
        let instance = cluster.instance(self.change.instance);
        let (what, rules) = (cluster.node(node), cluster.rules());
        if !instance.is_mirrored() {
            return Err(Refusal::Disk);
        }
        let peer = self.peer_memory(node, primary) + instance.reserve();
        let was_failing = self.was_failing(node);
        let mut state = *self.state(node);
        let (spindle_use, forthcoming) = (instance.spindle_use, instance.forthcoming);
        take_disk(&mut state, what, instance.disk, instance.spindles, 1);
        take_spindle_use(&mut state, what, spindle_use, forthcoming, 1);
        let needed = instance.reserve();
        if !instance.forthcoming {
            state.free_disk -= instance.disk;
            if what.exclusive_storage {
                state.free_spindles -= instance.spindles.unwrap_or(state.free_spindles + 1);
            }
            state.load[2] += instance.load[2];
            state.secondaries += 1;
            state.reserved_memory = state.reserved_memory.max(peer);
            let free = state.unallocated_memory - state.reserved_memory;
            state.fails_n1 = rules.is_short(free, what.memory_floor);
            hard_limits(cluster, what, &state, !ignore_disk, false)?;
            if what.exclusive_storage && state.free_spindles < 0 {
                return Err(Refusal::Spindles);
            }
            if !force {
                soft_disk_limits(what, &state)?;
                if rules.is_short(state.unallocated_memory - needed, what.memory_floor) {
                    return Err(Refusal::Memory);
                }
                if state.fails_n1 && !was_failing {
                    return Err(Refusal::Memory);
                }
            }
        }
        if !force {
            promised_disk_limits(what, &state)?;
            if rules.is_short(state.forthcoming_memory - needed, what.memory_floor) {
                return Err(Refusal::Memory);
            }
        }
        if !instance.forthcoming {
            self.change_peer(node, primary, needed);
        }
        *self.state(node) = state;
        Ok(())
    }

    /// Returns by how much tags meet more often in failure domains.
    fn location_exclusion(&self) -> i64 {
        let cluster = self.cluster;
        let instance = cluster.instance(self.change.instance);
        let (before, after) = (self.change.before.primary, self.change.after.primary);
        if instance.exclusion_tags.is_empty() || instance.forthcoming || before == after {
            return 0;
        }
        let mut pairs: Vec<(LocationPair, i64)> = Vec::new();
        for (node, by) in [(before, -1), (after, 1)] {
            for pair in location_pairs(cluster, self.change.instance, node) {
                match pairs.iter_mut().find(|(known, _)| *known == pair) {
                    Some((_, count)) => *count += by,
                    None => pairs.push((pair, by)),
                }
            }
        }
        let beyond = |count: i64| (count - 1).max(0);
        let change = |(pair, by): &(LocationPair, i64)| {
            let count = cluster.location_pairs.get(pair).copied().unwrap_or(0);
            beyond(count + by) - beyond(count)
        };
        pairs.iter().map(change).sum()
    }
}

/// Returns the pairs of failure domain and exclusion tag that an instance makes on a node.
fn location_pairs(
    cluster: &Cluster,
    instance: InstanceIndex,
    node: Option<NodeIndex>,
) -> Vec<LocationPair> {
    let Some(node) = node.map(|node| cluster.node(node)) else {
        return Vec::new();
    };
    let mut pairs = Vec::new();
    if !node.offline {
        for location in &node.locations {
            let tags = cluster.instance(instance).exclusion_tags.iter();
            pairs.extend(tags.map(|tag| (node.group, *location, *tag)));
        }
    }
    pairs
}

fn take_disk(state: &mut NodeState, node: &Node, disk: i64, spindles: Option<i64>, by: i64) {
    state.forthcoming_disk -= by * disk;
    if node.exclusive_storage {
        state.forthcoming_free_spindles -= by * spindles.unwrap_or(0);
    }
}

fn take_spindle_use(state: &mut NodeState, node: &Node, used: i64, forthcoming: bool, by: i64) {
    if node.exclusive_storage {
        return;
    }
    state.forthcoming_spindles += by * used;
    if !forthcoming {
        state.used_spindles += by * used;
    }
}

fn tag_count(cluster: &Cluster, node: NodeIndex, tag: TagIndex) -> u32 {
    let tags = &cluster.lists(node).tags;
    match tags.binary_search_by_key(&tag, |(tag, _)| *tag) {
        Ok(at) => tags[at].1,
        Err(_) => 0,
    }
}

/// Returns how many of a node's tags are the instance's own, which is still listed there.
fn own_tags(instance: &super::Instance, tag: TagIndex, here: bool) -> u32 {
    if !here {
        return 0;
    }
    let own = instance.exclusion_tags.iter().filter(|own| **own == tag);
    own.count() as u32
}

/// Returns how many conflicts an instance's tags make on a node, beside what others make there.
fn conflicts(cluster: &Cluster, index: InstanceIndex, node: NodeIndex, listed_here: bool) -> i64 {
    let instance = cluster.instance(index);
    let mut made = 0;
    for (at, tag) in instance.exclusion_tags.iter().enumerate() {
        let earlier = instance.exclusion_tags[..at].contains(tag);
        let others = tag_count(cluster, node, *tag) - own_tags(instance, *tag, listed_here);
        made += i64::from(earlier || others > 0);
    }
    made
}

impl Cluster {
    /// Makes a drafted change.
    ///
    /// # Panics
    ///
    /// If the instance is no longer where it was when the change was drafted.
    pub fn apply(&mut self, change: &Change) {
        let now = self.placements[change.instance.at()];
        assert!(now == change.before, "a change is applied where it began");
        self.relist(change.instance, change.before, change.after);
        for touched in change.touched() {
            self.states[touched.node.at()] = touched.after;
        }
    }

    /// Takes an applied change back, the last one first.
    ///
    /// # Panics
    ///
    /// If the instance is not where the change brought it.
    pub fn revert(&mut self, change: &Change) {
        let now = self.placements[change.instance.at()];
        assert!(now == change.after, "a change is reverted where it ended");
        self.relist(change.instance, change.after, change.before);
        for touched in change.touched() {
            self.states[touched.node.at()] = touched.before;
        }
    }

    fn relist(&mut self, instance: InstanceIndex, from: Placement, to: Placement) {
        self.unlist(instance, from);
        self.placements[instance.at()] = to;
        self.list(instance, to);
    }

    /// Enters an instance into the lists of its nodes.
    pub(super) fn list(&mut self, instance: InstanceIndex, at: Placement) {
        let Some(primary) = at.primary else { return };
        insert(&mut self.lists[primary.at()].primaries, instance);
        self.count_tags(instance, primary, true);
        if let Some(secondary) = at.secondary {
            insert(&mut self.lists[secondary.at()].secondaries, instance);
            self.count_peer(instance, secondary, primary, 1);
        }
    }

    fn unlist(&mut self, instance: InstanceIndex, at: Placement) {
        let Some(primary) = at.primary else { return };
        remove(&mut self.lists[primary.at()].primaries, instance);
        self.count_tags(instance, primary, false);
        if let Some(secondary) = at.secondary {
            remove(&mut self.lists[secondary.at()].secondaries, instance);
            self.count_peer(instance, secondary, primary, -1);
        }
    }

    fn count_peer(&mut self, instance: InstanceIndex, node: NodeIndex, peer: NodeIndex, by: i64) {
        let what = &self.instances[instance.at()];
        if what.forthcoming || what.reserve() == 0 {
            return;
        }
        let memory = by * what.reserve();
        let peers = &mut self.lists[node.at()].peers;
        match peers.binary_search_by_key(&peer, |(node, _)| *node) {
            Ok(at) => {
                peers[at].1 += memory;
                if peers[at].1 == 0 {
                    peers.remove(at);
                }
            }
            Err(at) => peers.insert(at, (peer, memory)),
        }
    }

    fn count_tags(&mut self, instance: InstanceIndex, node: NodeIndex, add: bool) {
        let what = &self.instances[instance.at()];
        for tag in &what.exclusion_tags {
            let tags = &mut self.lists[node.at()].tags;
            match tags.binary_search_by_key(tag, |(tag, _)| *tag) {
                Ok(at) if add => tags[at].1 += 1,
                Ok(at) if tags[at].1 > 1 => tags[at].1 -= 1,
                Ok(at) => {
                    tags.remove(at);
                }
                Err(at) => tags.insert(at, (*tag, 1)),
            }
        }
        if what.forthcoming || what.exclusion_tags.is_empty() {
            return;
        }
        for pair in location_pairs(self, instance, Some(node)) {
            let count = self.location_pairs.entry(pair).or_insert(0);
            let before = (*count - 1).max(0);
            *count += if add { 1 } else { -1 };
            let after = *count;
            self.location_exclusion[pair.0.at()] += (after - 1).max(0) - before;
            if after == 0 {
                self.location_pairs.remove(&pair);
            }
        }
    }
}

fn insert(list: &mut Vec<InstanceIndex>, instance: InstanceIndex) {
    let at = list.binary_search(&instance).unwrap_or_else(|at| at);
    list.insert(at, instance);
}

fn remove(list: &mut Vec<InstanceIndex>, instance: InstanceIndex) {
    if let Ok(at) = list.binary_search(&instance) {
        list.remove(at);
    }
}
