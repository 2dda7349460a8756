//! Trees of providers, laid out so that "below" is a comparison of two numbers.
//!
//! Invariant: the members of a tree stand parents before children, children of one parent in the
//! order of their identifiers; all that is below a member stands right behind it.

use berth_domain::id::ProviderId;
use smallvec::SmallVec;

use crate::candidates::node::Node;

/// A tree of providers.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Its root.
    pub(crate) root: ProviderId,
    /// Its members, the root first.
    pub(crate) members: SmallVec<[u32; 4]>,
    /// Numbers of the aggregates of all members, ascending.
    pub(crate) aggregates: Box<[u32]>,
}

impl Tree {
    pub(crate) fn new(root: ProviderId) -> Self {
        Self {
            root,
            members: SmallVec::new(),
            aggregates: Box::default(),
        }
    }

    /// Brings the members in order after some of them came, went, moved or changed; those that
    /// no longer say that they are in this tree, by its number, are dropped.
    ///
    /// # Panics
    ///
    /// When a member does not hang below the root.
    pub(crate) fn rebuild(&mut self, number: u32, nodes: &mut [Node]) {
        let mut by_parent: Vec<Child> = self
            .members
            .drain(..)
            .map(|n| (&nodes[n as usize], n))
            .filter(|(node, _)| node.tree == number)
            .map(|(node, n)| (node.parent, node.id, n))
            .collect();
        by_parent.sort_unstable();
        // A number that was freed and given again in the same tree stands there twice.
        by_parent.dedup();
        // Depth first, without recursion: trees may be a thousand providers deep.
        let mut open: Vec<_> = children(&by_parent, None).map(Step::Enter).rev().collect();
        while let Some(step) = open.pop() {
            match step {
                Step::Leave(n) => {
                    nodes[n as usize].end = position(self.members.len());
                }
                Step::Enter(n) => {
                    let node = &mut nodes[n as usize];
                    node.position = position(self.members.len());
                    self.members.push(n);
                    open.push(Step::Leave(n));
                    open.extend(children(&by_parent, Some(node.id)).map(Step::Enter).rev());
                }
            }
        }
        assert_eq!(
            self.members.len(),
            by_parent.len(),
            "all providers of the tree {} hang below it",
            self.root
        );
        let mut aggregates: Vec<u32> = self
            .members
            .iter()
            .flat_map(|n| nodes[*n as usize].aggregates.iter().copied())
            .collect();
        aggregates.sort_unstable();
        aggregates.dedup();
        self.aggregates = aggregates.into();
    }

    /// Returns the number of the root.
    pub(crate) fn root_node(&self) -> u32 {
        self.members[0]
    }
}

/// A member by the one above it.
type Child = (Option<ProviderId>, ProviderId, u32);

enum Step {
    Enter(u32),
    Leave(u32),
}

fn position(at: usize) -> u32 {
    u32::try_from(at).expect("fewer providers than 2^32")
}

/// Returns the members right below one, in the order of their identifiers.
fn children(
    by_parent: &[Child],
    parent: Option<ProviderId>,
) -> impl DoubleEndedIterator<Item = u32> + '_ {
    let from = by_parent.partition_point(|(p, _, _)| *p < parent);
    let to = by_parent.partition_point(|(p, _, _)| *p <= parent);
    by_parent[from..to].iter().map(|(_, _, n)| *n)
}
