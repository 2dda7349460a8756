//! How full hosts are, and what of them nobody can use.

use berth_domain::host_view::HostView;
use berth_domain::instance::InstanceTopology;
use berth_selection::stranded::{single_nodes, takes_any};

use super::world::World;

/// A part of something, in percent when it is shown.
#[derive(Clone, Copy, Default)]
pub(crate) struct Part {
    some: u64,
    all: u64,
}

impl Part {
    fn add(&mut self, some: u64, all: u64) {
        self.some += some;
        self.all += all;
    }

    pub(crate) fn percent(self) -> f64 {
        100.0 * self.some as f64 / self.all.max(1) as f64
    }
}

/// What was found.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) cpus: Part,
    /// Memory in small pages, in pages of 2 MiB and of 1 GiB.
    pub(crate) pages: [Part; 3],
    /// Free dedicated CPUs of cells on which no cell of any guest fits.
    pub(crate) stranded_cpus: Part,
    /// Free huge pages of such cells, and of those without a free dedicated CPU, by memory.
    pub(crate) stranded_pages: Part,
    pub(crate) empty_hosts: usize,
}

impl Report {
    pub(crate) fn new(world: &World) -> Self {
        let mut report = Self::default();
        let topologies = world
            .kinds
            .iter()
            .filter_map(|k| k.demand.topology.as_ref());
        let cells = single_nodes(topologies);
        for view in world.hosts.values() {
            report.add(view, &cells);
        }
        report
    }

    fn add(&mut self, view: &HostView, guests: &[InstanceTopology]) {
        let topology = &view.host.report.topology;
        self.empty_hosts += usize::from(view.used.is_empty());
        for (at, (cell, used)) in topology.cells().iter().zip(&view.usage.cells).enumerate() {
            let all = cell.dedicated.len() as u64;
            let taken = used.pinned.len() as u64;
            self.cpus.add(taken, all);
            let is_stranded = taken == all || !takes_any(view, at, guests);
            self.stranded_cpus
                .add(if is_stranded { all - taken } else { 0 }, all);
            for (pool, part) in cell.pages.iter().zip(&mut self.pages) {
                let taken = used.pages.get(&pool.size_kib).copied().unwrap_or(0);
                let mib = |pages: u64| pages * pool.size_kib / 1024;
                part.add(mib(taken), mib(pool.total));
                if pool.size_kib > 4 {
                    let left = mib(pool.total - taken);
                    let stranded = if is_stranded { left } else { 0 };
                    self.stranded_pages.add(stranded, mib(pool.total));
                }
            }
        }
    }
}
