//! What a node's failure would mean: N+1 as Ganeti defines it, and how full nodes are by the rule.
//!
//! *Local*: a node must be able to take, in memory, whatever it is the secondary of for any one
//! peer. *Global*: every node can be emptied. Its mirrored instances fail over; then those on
//! shared storage go, one after the other, where the score is lowest; then the others are made
//! again elsewhere, the biggest first. Soft checks do not count there, since it is an emergency.
//!
//! This is Ganeti's greedy answer: a node that it cannot empty might be emptied in another order.
//! Offline nodes take nothing, where Ganeti would fill them as a last resort.

use crate::balance::evacuate::{Emptying, empty_nodes};
use crate::model::{Cluster, NodeIndex};

pub use crate::balance::evacuate::Stranded;

/// How a node stands to the memory ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// Usage is at most the ratio.
    None,
    /// It is above the ratio only on the books: with what is reserved for peers, or promised.
    Soft,
    /// What really runs there is above the ratio.
    Hard,
}

impl Violation {
    /// Returns the word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Violation::None => "none",
            Violation::Soft => "soft",
            Violation::Hard => "hard",
        }
    }
}

/// What is known of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The node.
    pub node: NodeIndex,
    /// It can take what it is the secondary of, for any one peer.
    pub local_ok: bool,
    /// Why it cannot be emptied, if it cannot.
    pub stranded: Option<Stranded>,
    /// How it stands to the memory ratio.
    pub violation: Violation,
}

impl Verdict {
    /// Returns whether the node can be emptied.
    #[must_use]
    pub fn global_ok(&self) -> bool {
        self.stranded.is_none()
    }

    /// Returns whether nothing is wrong with it.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.local_ok && self.global_ok() && self.violation == Violation::None
    }
}

/// Judges every node.
#[must_use]
pub fn verify(cluster: &Cluster) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = cluster
        .node_indexes()
        .map(|node| Verdict {
            node,
            local_ok: cluster.node(node).offline || !cluster.state(node).fails_n1,
            stranded: None,
            violation: violation(cluster, node),
        })
        .collect();
    for Emptying { node, result } in empty_nodes(cluster) {
        verdicts[node.at()].stranded = result.err();
    }
    verdicts
}

/// Returns how a node stands to the memory ratio.
///
/// What is above the ratio is compared with its floor as "at most", whichever rule placements
/// follow: a node that is full to the ratio violates nothing.
#[must_use]
pub fn violation(cluster: &Cluster, index: NodeIndex) -> Violation {
    let (node, state) = (cluster.node(index), cluster.state(index));
    if node.offline {
        return Violation::None;
    }
    let after_real = node.available_memory() - state.instance_memory;
    if after_real < node.memory_floor {
        return Violation::Hard;
    }
    let promised = cluster.lists(index).primaries.iter();
    let promised = promised.map(|instance| cluster.instance(*instance));
    let promised = promised.filter(|i| i.forthcoming && i.will_use_memory());
    let promised: i64 = promised.map(|instance| instance.memory).sum();
    if after_real - promised - state.reserved_memory < node.memory_floor {
        return Violation::Soft;
    }
    Violation::None
}
