//! The hosts as the choice sees them, kept up to date by what changed.
//!
//! Invariant: the table holds exactly the hosts of the last update; answers do not depend
//! on the order of the updates.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use crate::pipeline::{self, NoHost};
use crate::request::{Choice, Request};
use crate::table::Table;

/// The hosts in a dense table.
#[derive(Clone, Debug, Default)]
pub struct Index {
    table: Table,
    positions: BTreeMap<HostName, usize>,
    /// The hosts of the last [`Self::sync`]: shares its structure with the next one.
    seen: OrdMap<HostName, Arc<HostView>>,
}

impl Index {
    /// Returns an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a table of these hosts.
    pub fn from_hosts<'a>(hosts: impl IntoIterator<Item = &'a Arc<HostView>>) -> Self {
        let mut index = Self::new();
        for view in hosts {
            index.update(view);
        }
        index
    }

    /// Brings the table to these hosts. It costs what changed since the last call, not what there
    /// is, as long as the map descends from the last one.
    pub fn sync(&mut self, hosts: &OrdMap<HostName, Arc<HostView>>) {
        let seen = std::mem::replace(&mut self.seen, hosts.clone());
        for change in seen.diff(hosts) {
            match change {
                DiffItem::Add(_, view) => self.update(view),
                DiffItem::Update { new: (_, view), .. } => self.update(view),
                DiffItem::Remove(name, _) => self.remove(name),
            }
        }
    }

    /// Takes a host, or what changed of it.
    pub fn update(&mut self, view: &Arc<HostView>) {
        let name = &view.host.name;
        if let Some(&at) = self.positions.get(name) {
            self.table.replace(at, view);
            return;
        }
        self.positions.insert(name.clone(), self.table.len());
        self.table.push(view);
    }

    /// Forgets a host.
    pub fn remove(&mut self, name: &HostName) {
        let Some(at) = self.positions.remove(name) else {
            return;
        };
        self.table.remove(at);
        if let Some(moved) = self.table.views.get(at) {
            self.positions.insert(moved.host.name.clone(), at);
        }
    }

    /// Returns the number of hosts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there is no host.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Returns the best host that can take the guest, and what the guest takes there.
    ///
    /// # Errors
    ///
    /// No host can, or the one that the user named cannot.
    pub fn select(&self, request: &Request) -> Result<Choice, NoHost> {
        if let Some(name) = &request.requested {
            let view = self.positions.get(name).map(|at| &self.table.views[*at]);
            return pipeline::run_named(request, view);
        }
        let place = |name: &HostName| self.positions.get(name).copied();
        pipeline::run(request, &self.table, place)
    }

    /// Returns what [`Self::select`] returns of a request that names no host, if it is among the
    /// best `tried_max` hosts.
    pub(crate) fn select_within(&self, request: &Request, tried_max: u32) -> Option<Choice> {
        let place = |name: &HostName| self.positions.get(name).copied();
        pipeline::run_within(request, &self.table, place, tried_max).ok()
    }

    /// Returns a host.
    pub(crate) fn view(&self, name: &HostName) -> Option<&Arc<HostView>> {
        let at = self.positions.get(name)?;
        Some(&self.table.views[*at])
    }
}
