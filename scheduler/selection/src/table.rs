//! What filters and weighers read of hosts, in columns: that of a thousand hosts fits into a
//! processor's cache, where a walk over the hosts themselves would miss it at every one.
//!
//! Invariant: all columns are of one length; what stands at one place is of one host.

use std::sync::Arc;

use berth_domain::host_view::HostView;

use crate::filter::devices::Kinds;
use crate::filter::{CellHeadroom, Devices, Lanes};
use crate::weigher::Facts;

/// What is read of one host.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    offers: Lanes,
    headroom: CellHeadroom,
    devices: Devices,
    facts: Facts,
    view: Arc<HostView>,
}

/// What is read of hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) kinds: Kinds,
    pub(crate) offers: Vec<Lanes>,
    pub(crate) headroom: Vec<CellHeadroom>,
    pub(crate) devices: Vec<Devices>,
    pub(crate) facts: Vec<Facts>,
    pub(crate) views: Vec<Arc<HostView>>,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.views.len()
    }

    pub(crate) fn push(&mut self, view: &Arc<HostView>) {
        self.offers.push(Lanes::offered(&view.headroom));
        self.headroom.push(CellHeadroom::of(view));
        self.devices.push(self.kinds.count(view));
        self.facts.push(Facts::of(view));
        self.views.push(Arc::clone(view));
    }

    pub(crate) fn replace(&mut self, at: usize, view: &Arc<HostView>) {
        let before = std::mem::replace(&mut self.views[at], Arc::clone(view));
        let is_same = before.class() == view.class() && before.usage.pci == view.usage.pci;
        if !is_same {
            self.devices[at] = self.kinds.count(view);
        }
        self.offers[at] = Lanes::offered(&view.headroom);
        self.headroom[at] = CellHeadroom::of(view);
        self.facts[at] = Facts::of(view);
    }

    /// Takes a host, and returns what was read of it before: [`Self::restore`] costs nothing.
    pub(crate) fn exchange(&mut self, at: usize, view: &Arc<HostView>) -> Row {
        let before = self.row(at);
        self.replace(at, view);
        before
    }

    /// Lets no guest come to a host, and returns what was read of it before.
    pub(crate) fn close(&mut self, at: usize) -> Row {
        let before = self.row(at);
        self.offers[at] = Lanes::default();
        before
    }

    /// Puts back what [`Self::exchange`] or [`Self::close`] returned.
    pub(crate) fn restore(&mut self, at: usize, row: Row) {
        self.offers[at] = row.offers;
        self.headroom[at] = row.headroom;
        self.devices[at] = row.devices;
        self.facts[at] = row.facts;
        self.views[at] = row.view;
    }

    fn row(&self, at: usize) -> Row {
        Row {
            offers: self.offers[at],
            headroom: self.headroom[at],
            devices: self.devices[at],
            facts: self.facts[at],
            view: Arc::clone(&self.views[at]),
        }
    }

    /// Takes a row out; the last one comes in its place.
    pub(crate) fn remove(&mut self, at: usize) {
        self.offers.swap_remove(at);
        self.headroom.swap_remove(at);
        self.devices.swap_remove(at);
        self.facts.swap_remove(at);
        self.views.swap_remove(at);
    }
}
