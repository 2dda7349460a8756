//! Plans of moves that lower the cluster score, as `hbal` makes them, to the end.
//!
//! First a descent: the best single move, again and again, until none gains. Small groups take
//! exactly the best move of all in every round, as `hbal` does; great ones take a move that was
//! the best of its instance and is at least as good as what was last seen of any other, and look
//! through everything again when these run out. Then, while its budget lasts, a second phase
//! tries chains of two and three moves whose first may lose. The score only falls.
//!
//! Invariants: at the end [`exhaustive::best_move`] finds no single move above the minimum gain;
//! no node that could take its peers' instances before a move cannot after it; nothing stays on an
//! offline node that could leave it with a gain; the plan is a function of the cluster and the options.

pub mod evacuate;
pub mod exhaustive;
mod field;
mod jobs;
mod mirrored;
mod search;

use crate::model::{Change, Cluster, GroupIndex, InstanceIndex, Move, NodeIndex, Placement};
use crate::score::Totals;
use field::Field;
use search::Search;

/// What a plan may do, and when it ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Moves gain at least this much once the score is at or below `min_gain_limit`.
    pub min_gain: f64,
    /// Above this score every gain is taken.
    pub min_gain_limit: f64,
    /// A score that is good enough.
    pub min_score: f64,
    /// The most moves of the plan; nothing for as many as there are.
    pub max_moves: Option<usize>,
    /// Only instances on offline nodes are moved.
    pub evacuate: bool,
    /// Disks may be moved: secondaries replaced, and instances on shared storage moved.
    pub disk_moves: bool,
    /// Instances may change their primary.
    pub instance_moves: bool,
    /// Instances whose primary is online only fail over or get another secondary.
    pub restricted_migration: bool,
    /// Candidates that the second phase may look at; 0 for a plain descent.
    pub refinement: u64,
    /// What a chain of moves gains at least.
    pub min_chain_gain: f64,
    /// Up to this many instances times nodes a descent takes the best of all moves each time.
    pub exact_up_to: usize,
    /// Nodes that can be emptied before a plan can be emptied after it: global N+1 is kept too. Moves
    /// off offline nodes are not held back by it.
    pub keep_emptiable: bool,
    /// Instances that stay where they are.
    pub pinned: Vec<InstanceIndex>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            min_gain: 0.01,
            min_gain_limit: 0.1,
            min_score: 1e-9,
            max_moves: None,
            evacuate: false,
            disk_moves: true,
            instance_moves: true,
            restricted_migration: false,
            refinement: 4_000_000,
            min_chain_gain: 0.000_1,
            exact_up_to: 20_000,
            keep_emptiable: true,
            pinned: Vec::new(),
        }
    }
}

impl Options {
    /// Returns what a move must gain at this score; at this it does not gain enough yet.
    ///
    /// Above the limit any gain counts, but for what may be rounding.
    #[must_use]
    pub fn gain_above(&self, score: f64) -> f64 {
        if score > self.min_gain_limit {
            ROUNDING
        } else {
            self.min_gain.max(ROUNDING)
        }
    }
}

/// What two ways to the same score may differ by: a deviation that a move brings down to nothing
/// is the root of what rounding left of a difference.
const ROUNDING: f64 = 1e-7;

/// A move of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The instance.
    pub instance: InstanceIndex,
    /// What is done to it.
    pub what: Move,
    /// Where it was.
    pub from: Placement,
    /// Where it goes.
    pub to: Placement,
    /// The score after it.
    pub score_after: f64,
}

/// A plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The score before.
    pub score_before: f64,
    /// The score after the last step.
    pub score_after: f64,
    /// The moves in their order.
    pub steps: Vec<Step>,
    /// How many of the steps the descent made; the others are of the second phase.
    pub descent: usize,
    /// How many candidates were looked at.
    pub candidates: u64,
}

impl Plan {
    /// Returns the plan without a move.
    fn empty(score: f64) -> Self {
        Plan {
            score_before: score,
            score_after: score,
            steps: Vec::new(),
            descent: 0,
            candidates: 0,
        }
    }

    /// Returns this plan with the steps of one that begins where it ends.
    fn followed_by(mut self, rest: Plan) -> Self {
        if self.descent == self.steps.len() {
            self.descent += rest.descent;
        }
        self.steps.extend(rest.steps);
        self.score_after = rest.score_after;
        self.candidates += rest.candidates;
        self
    }

    /// Returns the steps in sets: those of a set share no node, and may run at one time.
    #[must_use]
    pub fn job_sets(&self) -> Vec<Vec<usize>> {
        jobs::sets(&self.steps)
    }
}

/// Balances a group, and leaves the cluster as the plan leaves it.
///
/// Where a plan would end with a node that can no longer be emptied, and could be before, the group is
/// planned again: first what leaves offline nodes, which nothing holds back, then the rest with that
/// looked at after each move. The rest of a great group's plan is cut instead.
///
/// A group that has no score, since no node is online or one has no memory, gets an empty plan.
pub fn balance(cluster: &mut Cluster, group: GroupIndex, options: &Options) -> Plan {
    let totals = Totals::new(cluster, group);
    if !totals.score().is_finite() {
        return Plan::empty(totals.score());
    }
    let nodes = cluster.node_indexes();
    let nodes: Vec<NodeIndex> = nodes.filter(|n| cluster.node(*n).group == group).collect();
    let good = if options.keep_emptiable && !options.evacuate {
        evacuate::emptiable(cluster, group, &nodes)
    } else {
        Vec::new()
    };
    let (plan, mut changes) = search(cluster, group, Vec::new(), options);
    if evacuate::first_full(cluster, group, &good).is_none() {
        return plan;
    }
    take_back(cluster, &mut changes, 0);
    let first = leave_offline_nodes(cluster, group, options);
    let good = evacuate::emptiable(cluster, group, &good);
    let rest = Options {
        max_moves: options
            .max_moves
            .map(|most| most.saturating_sub(first.steps.len())),
        ..options.clone()
    };
    if cluster.instances().len() * nodes.len() <= options.exact_up_to {
        return first.followed_by(search(cluster, group, good, &rest).0);
    }
    let (mut plan, changes) = search(cluster, group, Vec::new(), &rest);
    if evacuate::first_full(cluster, group, &good).is_some() {
        shorten(cluster, group, &good, &mut plan, changes);
    }
    first.followed_by(plan)
}

/// Moves what is on offline nodes, as far as it gains: it does not run there, so that nothing is gained
/// by keeping a node that could be emptied instead.
fn leave_offline_nodes(cluster: &mut Cluster, group: GroupIndex, options: &Options) -> Plan {
    let options = Options {
        evacuate: true,
        refinement: 0,
        ..options.clone()
    };
    search(cluster, group, Vec::new(), &options).0
}

fn search(
    cluster: &mut Cluster,
    group: GroupIndex,
    guarded: Vec<NodeIndex>,
    options: &Options,
) -> (Plan, Vec<Change>) {
    let totals = Totals::new(cluster, group);
    let instances = movable(cluster, group, options);
    let lanes = field::lanes(cluster, &totals, group, &instances);
    match lanes.len() {
        0..=4 => {
            let field = Field::<4>::new(cluster, totals, group, &lanes);
            let search = Search::new(cluster, field, instances, options);
            search.guarding(guarded).run()
        }
        5 | 6 => {
            let field = Field::<6>::new(cluster, totals, group, &lanes);
            let search = Search::new(cluster, field, instances, options);
            search.guarding(guarded).run()
        }
        _ => {
            let field = Field::<12>::new(cluster, totals, group, &lanes);
            let search = Search::new(cluster, field, instances, options);
            search.guarding(guarded).run()
        }
    }
}

/// Cuts a plan to steps after which these nodes can be emptied: by halves, so that what is left
/// was looked at, though a longer one might do.
fn shorten(
    cluster: &mut Cluster,
    group: GroupIndex,
    good: &[NodeIndex],
    plan: &mut Plan,
    mut changes: Vec<Change>,
) {
    let (mut holds, mut fails) = (0, changes.len());
    let mut undone: Vec<Change> = Vec::new();
    while fails - holds > 1 {
        let middle = usize::midpoint(holds, fails);
        while changes.len() > middle {
            undone.extend(take_back(cluster, &mut changes, middle));
        }
        while changes.len() < middle {
            let change = undone.pop().expect("what was taken back is kept");
            cluster.apply(&change);
            changes.push(change);
        }
        if evacuate::first_full(cluster, group, good).is_none() {
            holds = middle;
        } else {
            fails = middle;
        }
    }
    while changes.len() < holds {
        let change = undone.pop().expect("what was taken back is kept");
        cluster.apply(&change);
        changes.push(change);
    }
    take_back(cluster, &mut changes, holds);
    plan.steps.truncate(holds);
    plan.descent = plan.descent.min(holds);
    let last = plan.steps.last();
    plan.score_after = last.map_or(plan.score_before, |step| step.score_after);
}

/// Takes changes back, and returns them with the first one last.
fn take_back(cluster: &mut Cluster, changes: &mut Vec<Change>, from: usize) -> Vec<Change> {
    let mut undone = Vec::new();
    while changes.len() > from {
        let change = changes.pop().expect("it is longer");
        cluster.revert(&change);
        undone.push(change);
    }
    undone
}

/// Returns the instances of a group whose primary is offline: they do not run.
#[must_use]
pub fn on_offline_nodes(cluster: &Cluster, group: GroupIndex) -> Vec<InstanceIndex> {
    let is_left = |index: &InstanceIndex| {
        let primary = cluster.placement(*index).primary;
        let primary = primary.map(|node| cluster.node(node));
        primary.is_some_and(|node| node.offline && node.group == group)
    };
    cluster.instance_indexes().filter(is_left).collect()
}

/// Returns the instances that a plan may move.
pub(crate) fn movable(
    cluster: &Cluster,
    group: GroupIndex,
    options: &Options,
) -> Vec<InstanceIndex> {
    let mut found = Vec::new();
    for index in cluster.instance_indexes() {
        let Placement { primary, secondary } = cluster.placement(index);
        let Some(primary) = primary else { continue };
        let offline = |node| cluster.node(node).offline;
        let chosen = !options.evacuate || offline(primary) || secondary.is_some_and(offline);
        if chosen
            && cluster.node(primary).group == group
            && cluster.is_movable(index)
            && cluster.instance(index).auto_balance
            && !options.pinned.contains(&index)
        {
            found.push(index);
        }
    }
    found
}

/// Returns whether a move of this kind may be tried, whatever its target.
pub(crate) fn is_allowed(
    cluster: &Cluster,
    instance: InstanceIndex,
    what: Move,
    options: &Options,
) -> bool {
    let Placement { primary, secondary } = cluster.placement(instance);
    let (Some(primary), mirrored) = (primary, secondary.is_some()) else {
        return false;
    };
    let online = |node| !cluster.node(node).offline;
    let to_secondary = options.instance_moves && secondary.is_some_and(online);
    let restricted = options.restricted_migration;
    match what {
        Move::Failover => mirrored && to_secondary,
        Move::FailoverTo(_) => !mirrored && options.instance_moves && options.disk_moves,
        Move::ReplaceSecondary(_) => mirrored && options.disk_moves,
        Move::ReplaceAndFailover(_) => {
            let free = !(restricted && online(primary));
            mirrored && options.disk_moves && options.instance_moves && free
        }
        Move::ReplacePrimary(_) => mirrored && options.disk_moves && to_secondary && !restricted,
        Move::FailoverAndReplace(_) => {
            let free = !(restricted && online(primary));
            mirrored && options.disk_moves && to_secondary && free
        }
    }
}
