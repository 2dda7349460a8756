//! What is shown of the cluster, and what each key changes about that.
//!
//! Pure: no I/O, no clock. Not here: how it is drawn ([`frame`](super::frame)).
//!
//! Invariant: nothing that arrives from the cluster changes the view, the selection or the filter.

use berth_domain::id::{ClaimId, MigrationId};
use berth_domain::migration::{Kind, State};
use berth_domain::name::{HostName, VmName};

use super::cursor::{Motion, moved};
use super::feed::Feed;
use super::hosts::{Aggregates, Hosts};
use super::key::Key;
use super::numa::HostMap;
use super::operations::{Operations, Transfers};
use super::overview::Overview;

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Members, capacity and what runs.
    Cluster,
    /// All hosts.
    Hosts,
    /// One host.
    Host,
    /// Operations.
    Operations,
}

impl View {
    /// All of them, in the order of their keys.
    pub const ALL: [Self; 4] = [Self::Cluster, Self::Hosts, Self::Host, Self::Operations];

    /// Returns what it is called.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Hosts => "hosts",
            Self::Host => "host",
            Self::Operations => "operations",
        }
    }
}

/// What a key has the program do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing but what is shown.
    None,
    /// It verifies what the failure of each host would mean.
    Verify,
    /// It ends.
    Quit,
}

/// The details of a VM that are open.
#[derive(Clone, Debug)]
pub struct Details {
    /// The VM.
    pub vm: VmName,
    /// The first line that is shown.
    pub scroll: usize,
}

/// How large a drawing was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// How many rows the view has on the screen.
    pub rows: usize,
    /// How many lines a page has that scrolls, those above and below the screen included.
    pub lines: usize,
}

/// What is shown.
#[derive(Debug)]
pub struct App {
    /// The cluster.
    pub feed: Feed,
    /// The view.
    pub view: View,
    /// The view of all hosts.
    pub hosts: Hosts,
    /// The view of one host, once one was opened.
    pub map: Option<HostMap>,
    /// The view of operations.
    pub operations: Operations,
    /// The view of the cluster.
    pub overview: Overview,
    /// The details of a VM, over the view.
    pub details: Option<Details>,
    /// Whether the keys are explained, over everything.
    pub is_help: bool,
    /// Whether characters are part of the filter.
    pub is_typing: bool,
    /// The aggregates of each host.
    pub aggregates: Aggregates,
    /// How far transfers are.
    pub transfers: Transfers,
    /// How large the last drawing was.
    pub drawn: Drawn,
}

impl Default for App {
    fn default() -> Self {
        Self {
            feed: Feed::default(),
            view: View::Cluster,
            hosts: Hosts::default(),
            map: None,
            operations: Operations::default(),
            overview: Overview::default(),
            details: None,
            is_help: false,
            is_typing: false,
            aggregates: Aggregates::default(),
            transfers: Transfers::default(),
            drawn: Drawn::default(),
        }
    }
}

impl App {
    /// Follows what the feed has changed.
    pub fn refresh(&mut self) {
        if self.view == View::Host && self.map.is_none() {
            // It was opened before any host was known.
            self.open_first_host();
        }
        let model = self.feed.model();
        if let Some(map) = &mut self.map {
            map.refresh(model);
        }
        self.transfers.retain(|id, _| {
            let migration = model.migration(*id);
            migration.is_some_and(|migration| !migration.state.is_ended())
        });
    }

    /// Returns the live migrations whose progress is shown: those that run, at most so many.
    #[must_use]
    pub fn transferring(&self, max: usize) -> Vec<MigrationId> {
        let open = self.feed.model().open_migrations();
        let live = open.filter(|m| m.kind == Kind::Live && m.state == State::Running);
        let live = live.map(|migration| migration.id);
        live.take(max).collect()
    }

    /// Takes a key.
    pub fn key(&mut self, key: Key) -> Effect {
        if key == Key::Interrupt {
            return Effect::Quit;
        }
        if self.is_help {
            self.is_help = false;
            return Effect::None;
        }
        if self.is_typing {
            self.type_filter(key);
            return Effect::None;
        }
        match key {
            Key::Char('q') => return Effect::Quit,
            Key::Char('?' | 'h') => self.is_help = true,
            Key::Char('v') => {
                self.show(View::Cluster);
                return Effect::Verify;
            }
            Key::Char(digit @ '1'..='4') => {
                let at = digit as usize - '1' as usize;
                self.show(View::ALL[at]);
            }
            Key::Tab => self.turn(1),
            Key::BackTab => self.turn(View::ALL.len() - 1),
            Key::Char('/') => self.start_filter(),
            Key::Char('s') if self.view == View::Hosts => self.hosts.sort = self.hosts.sort.next(),
            Key::Char('r') if self.view == View::Hosts => {
                self.hosts.is_reversed = !self.hosts.is_reversed;
            }
            Key::Enter => self.open(),
            Key::Escape => self.close(),
            Key::Up | Key::Char('k') => self.step(Motion::By(-1)),
            Key::Down | Key::Char('j') => self.step(Motion::By(1)),
            Key::PageUp => self.turn_page(Motion::By(-self.page_rows())),
            Key::PageDown | Key::Char(' ') => self.turn_page(Motion::By(self.page_rows())),
            Key::Home => self.turn_page(Motion::First),
            Key::End => self.turn_page(Motion::Last),
            Key::Backspace | Key::Char(_) | Key::Interrupt => {}
        }
        Effect::None
    }

    /// Moves by pages: in the map of a host, which may be larger than the screen, the picture.
    fn turn_page(&mut self, motion: Motion) {
        let last = self.drawn.lines.saturating_sub(self.drawn.rows);
        match (self.view, &self.details, &mut self.map) {
            (View::Host, None, Some(map)) => {
                map.scroll = moved(map.scroll.min(last), last, motion);
                map.follows_selection = false;
            }
            (View::Host | View::Cluster | View::Hosts | View::Operations, _, _) => {
                self.step(motion);
            }
        }
    }

    fn page_rows(&self) -> isize {
        isize::try_from(self.drawn.rows.max(1)).unwrap_or(isize::MAX)
    }

    fn show(&mut self, view: View) {
        self.details = None;
        self.view = view;
        if view == View::Host && self.map.is_none() {
            self.open_first_host();
        }
    }

    /// Opens the host that is selected in the table.
    fn open_first_host(&mut self) {
        let names = self.hosts.names(self.feed.model(), &self.aggregates);
        if let Some(host) = self.hosts.cursor.key(&names) {
            self.open_host(host);
        }
    }

    fn turn(&mut self, by: usize) {
        let at = View::ALL.iter().position(|view| *view == self.view);
        self.show(View::ALL[(at.unwrap_or(0) + by) % View::ALL.len()]);
    }

    fn open_host(&mut self, host: HostName) {
        let is_open = self.map.as_ref().is_some_and(|map| map.host == host);
        if !is_open {
            let mut map = HostMap::new(host.clone());
            map.refresh(self.feed.model());
            self.map = Some(map);
        }
        self.hosts.cursor.select(host);
        self.details = None;
        self.view = View::Host;
    }

    fn open_vm(&mut self, vm: VmName) {
        self.details = Some(Details { vm, scroll: 0 });
    }

    /// Opens what is selected: from a host to its map, from a claim or an operation to its VM, and from a
    /// VM to its host.
    fn open(&mut self) {
        let model = self.feed.model();
        if let Some(details) = &self.details {
            let vm = model.vm(&details.vm);
            if let Some(host) = vm.and_then(|vm| vm.host.clone()) {
                self.open_host(host);
            }
            return;
        }
        match self.view {
            View::Cluster => self.show(View::Hosts),
            View::Hosts => {
                let names = self.hosts.names(model, &self.aggregates);
                if let Some(host) = self.hosts.cursor.key(&names) {
                    self.open_host(host);
                }
            }
            View::Host => {
                let Some(map) = &self.map else {
                    return;
                };
                let ids = self.claim_ids(map);
                let claim = map.cursor.key(&ids).and_then(|id| model.claim(id));
                if let Some(vm) = claim.map(|claim| claim.vm.clone()) {
                    self.open_vm(vm);
                }
            }
            View::Operations => self.open_operation(),
        }
    }

    fn open_operation(&mut self) {
        let model = self.feed.model();
        let ids = self.operations.ids(model);
        let id = self.operations.cursor.key(&ids);
        let Some(operation) = id.and_then(|id| model.operation(id)) else {
            return;
        };
        match (operation.vm(), operation.drain()) {
            (Some(vm), _) => {
                let vm = vm.clone();
                self.open_vm(vm);
            }
            (None, Some(drain)) => {
                let host = drain.host.clone();
                self.open_host(host);
            }
            (None, None) => {}
        }
    }

    fn close(&mut self) {
        if self.details.take().is_some() {
            return;
        }
        match self.view {
            View::Host => self.view = View::Hosts,
            View::Hosts => self.hosts.filter.clear(),
            View::Operations => self.operations.filter.clear(),
            View::Cluster => {}
        }
    }

    fn filter(&mut self) -> Option<&mut String> {
        match (self.view, &self.details) {
            (View::Hosts, None) => Some(&mut self.hosts.filter),
            (View::Operations, None) => Some(&mut self.operations.filter),
            (View::Hosts | View::Operations | View::Cluster | View::Host, _) => None,
        }
    }

    fn start_filter(&mut self) {
        if self.filter().is_none() {
            self.show(View::Hosts);
        }
        self.is_typing = true;
    }

    fn type_filter(&mut self, key: Key) {
        let Some(filter) = self.filter() else {
            self.is_typing = false;
            return;
        };
        match key {
            Key::Char(character) if filter.len() < FILTER_LENGTH_MAX => filter.push(character),
            Key::Backspace => {
                filter.pop();
            }
            Key::Escape => {
                filter.clear();
                self.is_typing = false;
            }
            Key::Enter | Key::Tab => self.is_typing = false,
            Key::Up => self.step(Motion::By(-1)),
            Key::Down => self.step(Motion::By(1)),
            Key::PageUp
            | Key::PageDown
            | Key::Home
            | Key::End
            | Key::BackTab
            | Key::Char(_)
            | Key::Interrupt => {}
        }
    }

    fn claim_ids(&self, map: &HostMap) -> Vec<ClaimId> {
        let claims = map.claims(self.feed.model());
        claims.iter().map(|claim| claim.id).collect()
    }

    fn step(&mut self, motion: Motion) {
        let model = self.feed.model();
        let last = self.drawn.lines.saturating_sub(self.drawn.rows);
        if let Some(details) = &mut self.details {
            details.scroll = moved(details.scroll.min(last), last, motion);
            return;
        }
        match self.view {
            View::Cluster => {
                let scroll = self.overview.scroll.min(last);
                self.overview.scroll = moved(scroll, last, motion);
            }
            View::Hosts => {
                let names = self.hosts.names(model, &self.aggregates);
                self.hosts.cursor.step(&names, motion);
            }
            View::Host => {
                let Some(map) = &self.map else {
                    return;
                };
                let ids = self.claim_ids(map);
                if let Some(map) = &mut self.map {
                    map.cursor.step(&ids, motion);
                    map.follows_selection = true;
                }
            }
            View::Operations => {
                let ids = self.operations.ids(model);
                self.operations.cursor.step(&ids, motion);
            }
        }
    }
}

/// The longest filter in bytes: that of a name.
const FILTER_LENGTH_MAX: usize = 64;
