//! The search for host cells that are near enough to the PCI functions that a guest requests.
//!
//! It begins with no cell. Where functions are missing, the flow shows which requests lack them;
//! only cells and sockets that have more for these can help. Each of them is tried: first with it,
//! then, if that leads nowhere, everything else without it, and without those that are like it. So
//! no set is looked at twice, and equal cells once. Where even the best cells that are left cannot
//! bring what is missing, the search turns back at once.
//!
//! Invariant: a set that is found can be used by the guest's cells, and is near enough. If none is
//! found there is none, unless [`STEPS_MAX`] was reached: then the result is that.

use std::collections::BTreeSet;

use super::flow::Flow;
use super::supply::{Decision, Near, Place, Side, Supplies, is_open};
use super::{Demand, Scene};
use crate::numa::fit::matching::Table;
use crate::pci::PciAddress;

/// How many sets are looked at before the search is given up: some tens of milliseconds. Guests
/// and hosts that exist need a few.
const STEPS_MAX: u32 = 100_000;

/// Host cells that are near enough.
#[derive(Clone, Debug)]
pub(in crate::numa::fit) struct Solution {
    /// The guest has to use these, in addition to any others.
    pub(in crate::numa::fit) cells: Vec<usize>,
    decisions: Vec<Decision>,
}

/// What a search came to.
#[derive(Clone, Debug)]
pub(in crate::numa::fit) enum SearchResult {
    Solution(Solution),
    /// There is no such set.
    None,
    /// It took too long.
    GaveUp,
}

/// Something that the guest has to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    /// The cell at this position.
    Cell(usize),
    /// Any cell of this socket.
    Socket(usize),
}

/// How far a search is.
#[derive(Clone, Debug)]
struct State {
    near: Near,
    /// Items that do not cover each other.
    items: Vec<Item>,
    /// By position: cells that are not to be used.
    without: Vec<bool>,
    decisions: Vec<Decision>,
}

/// One search.
pub(in crate::numa::fit) struct Search<'a> {
    scene: Scene<'a>,
    supplies: &'a Supplies,
    requested: Vec<u32>,
    steps: u32,
}

impl<'a> Search<'a> {
    pub(in crate::numa::fit) fn new(scene: Scene<'a>, supplies: &'a Supplies) -> Self {
        Self {
            scene,
            supplies,
            requested: scene.demand.counts.clone(),
            steps: 0,
        }
    }

    /// Requests another number of functions of one kind of request.
    pub(in crate::numa::fit) fn requesting(mut self, kind: usize, count: u32) -> Self {
        self.requested[kind] = count;
        self
    }

    /// Returns whether functions are missing even if all of these are near, whatever excludes what;
    /// and which kinds of request lack them, how many these request and how many there are.
    pub(in crate::numa::fit) fn lack(&self, near: &Near) -> Option<(u64, u64, u64)> {
        let (flow, lacking) = self.flow(near, &self.open());
        if lacking == 0 {
            return None;
        }
        let kinds = self.requested.iter().enumerate();
        let requested = kinds.filter(|(kind, _)| lacking & (1 << kind) != 0);
        let requested: u64 = requested.map(|(_, n)| u64::from(*n)).sum();
        Some((lacking, requested, requested - flow.missing()))
    }

    /// Looks whether the guest's requests can be met where just these cells are used.
    pub(in crate::numa::fit) fn on(&mut self, near: Near) -> SearchResult {
        let cells = near.cells.len();
        let mut state = State {
            near,
            items: Vec::new(),
            without: vec![true; cells],
            decisions: self.open(),
        };
        self.search_from(&mut state)
    }

    /// Looks for cells that the guest can use so that its requests are met.
    pub(in crate::numa::fit) fn run(&mut self) -> SearchResult {
        let Some(table) = self.scene.table else {
            return self.on(self.supplies.everywhere());
        };
        let cells = self.scene.topology.cells().len();
        let mut state = State {
            near: self.supplies.near(vec![false; cells]),
            items: Vec::new(),
            without: (0..cells).map(|cell| !table.is_used(cell)).collect(),
            decisions: self.open(),
        };
        self.search_from(&mut state)
    }

    fn open(&self) -> Vec<Decision> {
        vec![Decision::Open; self.supplies.pairs]
    }

    fn search_from(&mut self, state: &mut State) -> SearchResult {
        match self.step(state) {
            Some(found) => SearchResult::Solution(found),
            None if self.steps > STEPS_MAX => SearchResult::GaveUp,
            None => SearchResult::None,
        }
    }

    fn flow(&self, near: &Near, decisions: &[Decision]) -> (Flow, u64) {
        let all = self.supplies.all.iter();
        let allowed: Vec<u64> = all
            .clone()
            .map(|supply| self.supplies.allowed(supply, near, decisions))
            .collect();
        let mut flow = Flow::new(&self.requested, all.map(|supply| supply.count));
        let lacking = flow.fill(&allowed);
        (flow, lacking)
    }

    fn step(&mut self, state: &mut State) -> Option<Solution> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return None;
        }
        let (flow, lacking) = self.flow(&state.near, &state.decisions);
        if lacking != 0 {
            return self.extend(state, lacking, flow.missing());
        }
        if let Some(pair) = self.conflict(&flow, &state.decisions) {
            return self.decide(state, pair);
        }
        Some(Solution {
            cells: self.cells_of(&state.items),
            decisions: self.settled(&flow, &state.decisions),
        })
    }

    /// Tries a physical function, then its virtual ones: with those of others like it, since one
    /// of these would have done no better.
    fn decide(&mut self, state: &State, pair: usize) -> Option<Solution> {
        let mut physical = state.clone();
        physical.decisions[pair] = Decision::Only(Side::Physical);
        if let Some(found) = self.step(&mut physical) {
            return Some(found);
        }
        let mut others = state.clone();
        for other in 0..others.decisions.len() {
            let is_open = state.decisions[other] == Decision::Open;
            if is_open && (other == pair || self.pairs_are_alike(pair, other, &state.near)) {
                others.decisions[other] = Decision::Only(Side::Virtual);
            }
        }
        self.step(&mut others)
    }

    /// Returns whether two pairs could be exchanged without any difference.
    fn pairs_are_alike(&self, pair: usize, other: usize, near: &Near) -> bool {
        let of = |pair: usize| {
            let all = self.supplies.all.iter();
            all.filter_map(move |s| Some((s.pair.filter(|p| p.0 == pair)?.1, s)))
        };
        let is_near = |place: Place| matches!(place, Place::Cell(c) if near.cells[c]);
        let are_together = |a: Place, b: Place| near.anywhere || a == b || is_near(a) && is_near(b);
        of(pair).count() == of(other).count()
            && of(pair).zip(of(other)).all(|((side, a), (other_side, b))| {
                (side, a.accepts, a.count) == (other_side, b.accepts, b.count)
                    && are_together(a.place, b.place)
            })
    }

    /// Returns a pair of which both sides are given out.
    fn conflict(&self, flow: &Flow, decisions: &[Decision]) -> Option<usize> {
        let is_used = |pair: usize, side: Side| {
            let mut all = self.supplies.all.iter().enumerate();
            all.any(|(at, supply)| supply.pair == Some((pair, side)) && flow.used(at) > 0)
        };
        (0..decisions.len())
            .filter(|pair| decisions[*pair] == Decision::Open)
            .find(|pair| is_used(*pair, Side::Physical) && is_used(*pair, Side::Virtual))
    }

    /// Returns the decisions that a flow without conflicts amounts to: with more cells it could
    /// otherwise come to conflicts again.
    fn settled(&self, flow: &Flow, decisions: &[Decision]) -> Vec<Decision> {
        let mut settled = decisions.to_vec();
        for pair in &mut settled {
            if *pair == Decision::Open {
                *pair = Decision::Only(Side::Virtual);
            }
        }
        for (at, supply) in self.supplies.all.iter().enumerate() {
            if let Some((pair, Side::Physical)) = supply.pair
                && flow.used(at) > 0
            {
                settled[pair] = Decision::Only(Side::Physical);
            }
        }
        settled
    }

    /// Tries everything that could bring the missing functions.
    fn extend(&mut self, state: &mut State, lacking: u64, missing: u64) -> Option<Solution> {
        let table = self.scene.table?;
        let mut choices = self.choices(state, lacking);
        // A cell of a socket that the guest has to touch anyway takes that one's place.
        let is_cell = |item: &&Item| matches!(item, Item::Cell(_));
        let cells = state.items.iter().filter(is_cell).count();
        let slots = Slots {
            cells: table.guests() - cells,
            sockets: table.guests() - state.items.len(),
        };
        if slots.most(&choices) < missing {
            return None;
        }
        choices.sort_by_key(|(_, gain)| std::cmp::Reverse(*gain));
        for (item, _) in choices {
            if is_out(item, &state.without, self.supplies) {
                continue;
            }
            if let Some(mut next) = self.with(state, item, table)
                && let Some(found) = self.step(&mut next)
            {
                return Some(found);
            }
            self.leave_out(state, item, table);
        }
        None
    }

    /// Returns what has more functions for the kinds of request that lack some, and how many.
    fn choices(&self, state: &State, lacking: u64) -> Vec<(Item, u64)> {
        let mut by_cell = vec![0_u64; state.without.len()];
        let mut by_socket = vec![0_u64; self.supplies.sockets_len];
        for supply in &self.supplies.all {
            let Place::Cell(cell) = supply.place else {
                continue;
            };
            let allowed = self.supplies.allowed(supply, &state.near, &state.decisions);
            if allowed & lacking != 0 || !is_open(supply, &state.decisions) {
                continue;
            }
            let count = u64::from(supply.count);
            if supply.accepts & lacking != 0 {
                by_cell[cell] += count;
            }
            if supply.accepts & lacking & self.supplies.by_socket() != 0
                && let Some(socket_of) = &self.supplies.sockets
            {
                by_socket[socket_of[cell]] += count;
            }
        }
        let cells = by_cell.into_iter().enumerate();
        let sockets = by_socket.into_iter().enumerate();
        cells
            .map(|(cell, gain)| (Item::Cell(cell), gain))
            .chain(sockets.map(|(socket, gain)| (Item::Socket(socket), gain)))
            .filter(|(item, gain)| *gain > 0 && !is_out(*item, &state.without, self.supplies))
            .collect()
    }

    /// Returns the state in which the guest uses this too, if it can.
    fn with(&self, state: &State, item: Item, table: &Table) -> Option<State> {
        let mut next = state.clone();
        let socket_of = |cell: usize| self.supplies.sockets.as_ref().map(|s| s[cell]);
        match item {
            Item::Cell(cell) => {
                next.near.cells[cell] = true;
                next.without[cell] = true;
                if let Some(socket) = socket_of(cell) {
                    next.near.sockets[socket] = true;
                    next.items.retain(|other| *other != Item::Socket(socket));
                }
            }
            Item::Socket(socket) => next.near.sockets[socket] = true,
        }
        next.items.push(item);
        self.cover(&next.items, table).map(|_| next)
    }

    /// Leaves out what was tried without success, and what is like it.
    fn leave_out(&self, state: &mut State, item: Item, table: &Table) {
        match item {
            Item::Cell(cell) => {
                for other in 0..state.without.len() {
                    if other == cell || self.are_alike(cell, other, state, table) {
                        state.without[other] = true;
                    }
                }
            }
            Item::Socket(socket) => {
                let socket_of = self.supplies.sockets.as_deref().unwrap_or_default();
                for (cell, of) in socket_of.iter().enumerate() {
                    state.without[cell] |= *of == socket;
                }
            }
        }
    }

    /// Returns whether two cells could be exchanged without any difference.
    fn are_alike(&self, cell: usize, other: usize, state: &State, table: &Table) -> bool {
        let (these, those) = (self.supplies.at(cell), self.supplies.at(other));
        let is_same_socket = || {
            let sockets = self.supplies.sockets.as_ref();
            sockets.is_none_or(|s| s[cell] == s[other])
        };
        !state.without[other]
            && these.len() == those.len()
            && these.iter().zip(those).all(|(a, b)| {
                a.pair.is_none() && b.pair.is_none() && (a.accepts, a.count) == (b.accepts, b.count)
            })
            && is_same_socket()
            && table.are_alike(cell, other)
    }

    /// Returns a guest cell for each item, if each can have one of its own.
    fn cover(&self, items: &[Item], table: &Table) -> Option<Vec<usize>> {
        let mut owners = vec![None; table.guests()];
        for item in 0..items.len() {
            let mut visited = vec![false; table.guests()];
            if !self.settle(items, item, table, &mut owners, &mut visited) {
                return None;
            }
        }
        let mut guests = vec![0; items.len()];
        for (guest, owner) in owners.iter().enumerate() {
            if let Some(item) = owner {
                guests[*item] = guest;
            }
        }
        Some(guests)
    }

    fn settle(
        &self,
        items: &[Item],
        item: usize,
        table: &Table,
        owners: &mut [Option<usize>],
        visited: &mut [bool],
    ) -> bool {
        for guest in 0..table.guests() {
            if visited[guest] || self.home(items[item], guest, table).is_none() {
                continue;
            }
            visited[guest] = true;
            let is_free = match owners[guest] {
                None => true,
                Some(other) => self.settle(items, other, table, owners, visited),
            };
            if is_free {
                owners[guest] = Some(item);
                return true;
            }
        }
        false
    }

    /// Returns a host cell by which the guest cell uses this.
    fn home(&self, item: Item, guest: usize, table: &Table) -> Option<usize> {
        match item {
            Item::Cell(cell) => table.fits(guest, cell).then_some(cell),
            Item::Socket(socket) => {
                let socket_of = self.supplies.sockets.as_ref()?;
                table.hosts(guest).find(|cell| socket_of[*cell] == socket)
            }
        }
    }

    fn cells_of(&self, items: &[Item]) -> Vec<usize> {
        let Some(table) = self.scene.table else {
            return Vec::new();
        };
        let guests = self.cover(items, table).expect("it was covered before");
        let homes = items.iter().zip(guests);
        homes
            .map(|(item, guest)| {
                let home = self.home(*item, guest, table);
                home.expect("the guest cell covers it")
            })
            .collect()
    }

    /// Returns the functions for each request, the near ones first.
    ///
    /// # Panics
    ///
    /// When there are not enough: `found` states that there are.
    pub(in crate::numa::fit) fn give(
        &self,
        near: &Near,
        found: &Solution,
    ) -> Vec<BTreeSet<PciAddress>> {
        let all = &self.supplies.all;
        let demand: &Demand = self.scene.demand;
        let allowed = |far: bool| -> Vec<u64> {
            let kinds = all.iter().map(|supply| {
                let allowed = self.supplies.allowed(supply, near, &found.decisions);
                let is_near =
                    near.anywhere || matches!(supply.place, Place::Cell(c) if near.cells[c]);
                let requested = if far || is_near {
                    0
                } else {
                    self.supplies.preferred()
                };
                allowed & !requested
            });
            kinds.collect()
        };
        let mut flow = Flow::new(&demand.counts, all.iter().map(|supply| supply.count));
        flow.fill(&allowed(false));
        let lacking = flow.fill(&allowed(true));
        assert_eq!(lacking, 0, "the search found enough functions");
        let mut kinds = vec![Vec::new(); demand.counts.len()];
        for (at, supply) in all.iter().enumerate() {
            let mut devices = self.supplies.devices(supply).iter();
            for (kind, addresses) in kinds.iter_mut().enumerate() {
                let count = flow.given(at, kind) as usize;
                let given = devices.by_ref().take(count);
                addresses.extend(given.map(|d| self.scene.topology.pci()[*d].address));
            }
        }
        demand.share(self.scene.requests, kinds)
    }
}

/// How many more cells and sockets a guest can use.
#[derive(Clone, Copy, Debug)]
struct Slots {
    cells: usize,
    sockets: usize,
}

impl Slots {
    /// Returns the most functions that so many cells and sockets could bring.
    fn most(self, choices: &[(Item, u64)]) -> u64 {
        let best = |slots: usize, is_counted: fn(&Item) -> bool| -> u64 {
            let requested = choices.iter().filter(|(item, _)| is_counted(item));
            let mut gains: Vec<u64> = requested.map(|(_, gain)| *gain).collect();
            gains.sort_unstable_by(|a, b| b.cmp(a));
            gains.iter().take(slots).sum()
        };
        let cells = best(self.cells, |item| matches!(item, Item::Cell(_)));
        cells.saturating_add(best(self.sockets, |item| matches!(item, Item::Socket(_))))
    }
}

/// Returns whether nothing of this may be used any more.
fn is_out(item: Item, without: &[bool], supplies: &Supplies) -> bool {
    match item {
        Item::Cell(cell) => without[cell],
        Item::Socket(socket) => {
            let socket_of = supplies.sockets.as_deref().unwrap_or_default();
            let mut cells = socket_of.iter().zip(without);
            cells.all(|(of, without)| *of != socket || *without)
        }
    }
}
