//! All providers in dense tables, with the lists of who has what: what a search reads.
//!
//! Invariant: the tables hold exactly the sources of the last [`Index::sync`]; answers in
//! [`crate::candidates::Order::Stable`] do not depend on the order of the updates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::host_view::HostView;
use berth_domain::id::{AggregateId, ProviderId};
use berth_domain::name::HostName;
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::{ResourceClass, Trait};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use crate::candidates::node::{Cell, Cells, NONE, Node};
use crate::candidates::posting::Postings;
use crate::candidates::tree::Tree;

/// The trait of a provider whose resources serve every tree that is with it in an aggregate.
const SHARES: &str = "MISC_SHARES_VIA_AGGREGATE";

/// The tables of the state that the index follows.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// All providers.
    pub providers: OrdMap<ProviderId, Arc<ResourceProvider>>,
    /// What is taken of them, except of those that a host reports.
    pub used: OrdMap<ProviderId, Arc<Resources>>,
    /// The hosts, which know what is taken of the providers that they report.
    pub hosts: OrdMap<HostName, Arc<HostView>>,
}

/// All providers in dense tables.
#[derive(Clone, Debug, Default)]
pub struct Index {
    pub(crate) nodes: Vec<Node>,
    pub(crate) numbers: BTreeMap<ProviderId, u32>,
    pub(crate) names: BTreeMap<String, u32>,
    pub(crate) classes: Postings<ResourceClass>,
    /// Providers by how much of a class one consumer may take of them, by the class's number.
    headroom: Vec<BTreeSet<(u64, u32)>>,
    pub(crate) traits: Postings<Trait>,
    pub(crate) aggregates: Postings<AggregateId>,
    pub(crate) trees: Vec<Tree>,
    /// Trees in the order of their roots' identifiers.
    pub(crate) order: Vec<u32>,
    /// Sharing providers in the order of their identifiers.
    pub(crate) sharing: Vec<u32>,
    /// Places in `sharing`, by the number of an aggregate; short where none is in it.
    pub(crate) sharing_in: Vec<Vec<u32>>,
    free_nodes: Vec<u32>,
    free_trees: Vec<u32>,
    /// The sources of the last [`Self::sync`]: shares its structure with the next one.
    seen: Sources,
}

/// What has to be put right after all changes were taken.
#[derive(Default)]
struct Dirty {
    trees: BTreeSet<u32>,
    sharing: bool,
}

impl Index {
    /// Returns an empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of providers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the number of trees.
    #[must_use]
    pub fn trees(&self) -> usize {
        self.order.len()
    }

    /// Returns whether there is no provider.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Brings the index to these tables. It costs what changed since the last call, not what
    /// there is, as long as the tables descend from the last ones.
    ///
    /// # Panics
    ///
    /// When a provider does not hang below the root that it names.
    pub fn sync(&mut self, sources: &Sources) {
        let seen = std::mem::replace(&mut self.seen, sources.clone());
        let mut dirty = Dirty::default();
        for change in seen.providers.diff(&sources.providers) {
            match change {
                DiffItem::Add(_, new) => self.add(new, sources, &mut dirty),
                DiffItem::Update {
                    old: (_, old),
                    new: (_, new),
                } => self.update(old, new, sources, &mut dirty),
                DiffItem::Remove(_, old) => self.remove(old, &mut dirty),
            }
        }
        for change in seen.used.diff(&sources.used) {
            match change {
                DiffItem::Add(id, used) => self.set_used(*id, used),
                DiffItem::Update {
                    new: (id, used), ..
                } => self.set_used(*id, used),
                DiffItem::Remove(id, _) => self.set_used(*id, &Resources::new()),
            }
        }
        for change in seen.hosts.diff(&sources.hosts) {
            match change {
                DiffItem::Add(_, view) => self.set_used(view.host.provider, &view.used),
                DiffItem::Update {
                    old: (_, old),
                    new: (_, view),
                } if old.used != view.used => self.set_used(view.host.provider, &view.used),
                // The provider of a host that is gone is gone as well.
                DiffItem::Update { .. } | DiffItem::Remove(..) => {}
            }
        }
        self.clean(dirty);
    }

    fn set_used(&mut self, id: ProviderId, used: &Resources) {
        let Some(&number) = self.numbers.get(&id) else {
            return;
        };
        let node = &mut self.nodes[number as usize];
        let before: Vec<u64> = node.cells.iter().map(Cell::headroom).collect();
        node.set_used(used, |class| self.classes.number(class));
        for (cell, before) in node.cells.iter().zip(before) {
            if cell.headroom() != before {
                let headroom = &mut self.headroom[cell.class as usize];
                headroom.remove(&(before, number));
                headroom.insert((cell.headroom(), number));
            }
        }
    }

    /// Takes what a provider has, instead of what it had.
    fn replace_cells(&mut self, number: u32, cells: Cells) {
        let node = &mut self.nodes[number as usize];
        for cell in &node.cells {
            self.headroom[cell.class as usize].remove(&(cell.headroom(), number));
        }
        for cell in &cells {
            let class = cell.class as usize;
            if self.headroom.len() <= class {
                self.headroom.resize_with(class + 1, BTreeSet::new);
            }
            self.headroom[class].insert((cell.headroom(), number));
        }
        node.cells = cells;
    }

    /// Returns the providers that have room for so much of a class, ascending, if they are at
    /// most `most`.
    pub(crate) fn few_with_headroom(
        &self,
        class: u32,
        amount: u64,
        most: usize,
    ) -> Option<Vec<u32>> {
        let headroom = self.headroom[class as usize].range((amount, 0)..);
        let mut few: Vec<u32> = headroom.take(most + 1).map(|(_, number)| *number).collect();
        (few.len() <= most).then(|| {
            few.sort_unstable();
            few
        })
    }

    fn add(&mut self, new: &ResourceProvider, sources: &Sources, dirty: &mut Dirty) {
        let blank = Node {
            id: new.id,
            parent: new.parent,
            tree: NONE,
            position: 0,
            end: 0,
            sharing: NONE,
            cells: Cells::new(),
            traits: Box::default(),
            aggregates: Box::default(),
        };
        let number = match self.free_nodes.pop() {
            Some(number) => {
                self.nodes[number as usize] = blank;
                number
            }
            None => {
                self.nodes.push(blank);
                u32::try_from(self.nodes.len() - 1).expect("fewer providers than 2^32")
            }
        };
        self.numbers.insert(new.id, number);
        self.names.insert(new.name.clone(), number);
        self.enter_tree(number, new.root, dirty);
        self.set_cells(number, new, sources);
        self.set_traits(number, new, dirty);
        self.set_aggregates(number, new, dirty);
    }

    fn update(
        &mut self,
        old: &ResourceProvider,
        new: &ResourceProvider,
        sources: &Sources,
        dirty: &mut Dirty,
    ) {
        let number = self.numbers[&new.id];
        if old.name != new.name {
            // Another one may have taken the old name already.
            if self.names.get(&old.name) == Some(&number) {
                self.names.remove(&old.name);
            }
            self.names.insert(new.name.clone(), number);
        }
        if old.parent != new.parent || old.root != new.root {
            self.leave_tree(number, dirty);
            self.nodes[number as usize].parent = new.parent;
            self.enter_tree(number, new.root, dirty);
        }
        if old.inventories != new.inventories {
            let gone = |c: &&ResourceClass| !new.inventories.contains_key(*c);
            for class in old.inventories.keys().filter(gone) {
                self.classes.remove(class, number);
            }
            self.set_cells(number, new, sources);
        }
        if old.traits != new.traits {
            for name in old.traits.difference(&new.traits) {
                self.traits.remove(name, number);
            }
            self.set_traits(number, new, dirty);
        }
        if old.aggregates != new.aggregates {
            for aggregate in old.aggregates.difference(&new.aggregates) {
                self.aggregates.remove(aggregate, number);
            }
            self.set_aggregates(number, new, dirty);
        }
    }

    fn remove(&mut self, old: &ResourceProvider, dirty: &mut Dirty) {
        let Some(number) = self.numbers.remove(&old.id) else {
            return;
        };
        if self.names.get(&old.name) == Some(&number) {
            self.names.remove(&old.name);
        }
        for class in old.inventories.keys() {
            self.classes.remove(class, number);
        }
        for name in &old.traits {
            self.traits.remove(name, number);
        }
        for aggregate in &old.aggregates {
            self.aggregates.remove(aggregate, number);
        }
        self.leave_tree(number, dirty);
        dirty.sharing |= self.nodes[number as usize].sharing != NONE;
        self.replace_cells(number, Cells::new());
        let node = &mut self.nodes[number as usize];
        (node.traits, node.aggregates) = Default::default();
        node.sharing = NONE;
        self.free_nodes.push(number);
    }

    fn set_cells(&mut self, number: u32, new: &ResourceProvider, sources: &Sources) {
        // What is taken from the regions below a host is not in its view.
        let host = new.host.as_ref().filter(|_| new.is_root());
        let host = host.and_then(|name| sources.hosts.get(name));
        let used = match host {
            Some(view) => Some(&view.used),
            None => sources.used.get(&new.id).map(|used| &**used),
        };
        let cells = new.inventories.iter().map(|(class, inventory)| {
            let used = used.and_then(|used| used.get(class)).copied().unwrap_or(0);
            Cell::new(self.classes.add(class, number), inventory, used)
        });
        let cells = cells.collect();
        self.replace_cells(number, cells);
    }

    fn set_traits(&mut self, number: u32, new: &ResourceProvider, dirty: &mut Dirty) {
        let names = new.traits.iter();
        let mut traits: Vec<u32> = names.map(|name| self.traits.add(name, number)).collect();
        traits.sort_unstable();
        let node = &mut self.nodes[number as usize];
        node.traits = traits.into();
        let shares = new.traits.iter().any(|name| name.as_str() == SHARES);
        if shares != (node.sharing != NONE) {
            // Any number but NONE: the right one is found when all changes were taken.
            node.sharing = if shares { 0 } else { NONE };
            dirty.sharing = true;
        }
    }

    fn set_aggregates(&mut self, number: u32, new: &ResourceProvider, dirty: &mut Dirty) {
        let ids = new.aggregates.iter();
        let mut numbers: Vec<u32> = ids.map(|id| self.aggregates.add(id, number)).collect();
        numbers.sort_unstable();
        let node = &mut self.nodes[number as usize];
        node.aggregates = numbers.into();
        dirty.sharing |= node.sharing != NONE;
        dirty.trees.insert(node.tree);
    }

    fn enter_tree(&mut self, number: u32, root: ProviderId, dirty: &mut Dirty) {
        let tree = match self.place_of_tree(root) {
            Ok(place) => self.order[place],
            Err(place) => {
                let tree = self.free_trees.pop().unwrap_or_else(|| {
                    self.trees.push(Tree::new(root));
                    u32::try_from(self.trees.len() - 1).expect("fewer trees than 2^32")
                });
                self.trees[tree as usize] = Tree::new(root);
                self.order.insert(place, tree);
                tree
            }
        };
        self.trees[tree as usize].members.push(number);
        self.nodes[number as usize].tree = tree;
        dirty.trees.insert(tree);
    }

    fn leave_tree(&mut self, number: u32, dirty: &mut Dirty) {
        let tree = std::mem::replace(&mut self.nodes[number as usize].tree, NONE);
        dirty.trees.insert(tree);
    }

    /// Returns where in the order the tree with this root stands, or would stand.
    pub(crate) fn place_of_tree(&self, root: ProviderId) -> Result<usize, usize> {
        let id = |tree: u32| self.trees[tree as usize].root;
        // Trees mostly come in ascending order.
        if self.order.last().is_none_or(|last| id(*last) < root) {
            return Err(self.order.len());
        }
        self.order.binary_search_by(|tree| id(*tree).cmp(&root))
    }

    fn clean(&mut self, dirty: Dirty) {
        let mut empty = BTreeSet::new();
        for number in dirty.trees {
            let tree = &mut self.trees[number as usize];
            tree.rebuild(number, &mut self.nodes);
            if tree.members.is_empty() {
                tree.aggregates = Box::default();
                empty.insert(number);
            }
        }
        if !empty.is_empty() {
            self.order.retain(|tree| !empty.contains(tree));
            self.free_trees.extend(empty);
        }
        if dirty.sharing {
            self.find_sharing();
        }
    }

    /// Finds the sharing providers again; they are few, and rarely change.
    fn find_sharing(&mut self) {
        let name = Trait::new(SHARES).expect("a standard trait");
        let number = self.traits.number(&name);
        self.sharing = number.map_or_else(Vec::new, |n| self.traits.list(n).to_vec());
        let nodes = &mut self.nodes;
        self.sharing.sort_unstable_by_key(|n| nodes[*n as usize].id);
        self.sharing_in.clear();
        for (place, number) in (0..).zip(&self.sharing) {
            let node = &mut nodes[*number as usize];
            node.sharing = place;
            for aggregate in &node.aggregates {
                let at = *aggregate as usize;
                if self.sharing_in.len() <= at {
                    self.sharing_in.resize(at + 1, Vec::new());
                }
                self.sharing_in[at].push(place);
            }
        }
    }
}
