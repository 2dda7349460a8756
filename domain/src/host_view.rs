//! A host together with everything that is taken from it: what a decision looks at.
//!
//! Invariant: `used`, `memory`, `usage` and `headroom` follow from the host, the rule of what may be
//! given away and its claims (and, for `used`, other consumers of its provider) alone. [`Headroom`] is a
//! summary that never shows less than there is: a host that it rules out cannot hold the guest, one
//! that it lets through may still refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use crate::aggregate::HostAggregates;
use crate::allocation::Resources;
use crate::claim::Claim;
use crate::host::{Host, HostReport, inventories_of, limits_of, traits_of};
use crate::host_rule::HostRule;
use crate::inventory::Inventory;
use crate::memory::{Books, Taken};
use crate::numa::outline::{self, PoolHeadroom};
use crate::numa::usage;
use crate::numa::{Ground, HostUsage, Limits, Outline};
use crate::reality::Unknown;
use crate::resource::{ResourceClass, Trait};
use crate::topology::HostTopology;

/// What is left of a host at a glance, small enough that a thousand of them are read in
/// microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// Whether new guests may be placed here at all: see [`Host::is_open`].
    pub open: bool,
    /// The number of its cells.
    pub cells: u16,
    /// The most `VCPU` that one guest could take.
    pub vcpu: u32,
    /// The most `PCPU` that one guest could take.
    pub pcpu: u32,
    /// The most `MEMORY_MB` that one guest could take.
    pub memory_mib: u32,
    /// The most `DISK_GB` that one guest could take.
    pub disk_gib: u32,
    /// PCI functions that are free.
    pub pci: u32,
    /// Free dedicated CPUs of all cells.
    pub dedicated: u32,
    /// Free dedicated CPUs of the cell that has most.
    pub dedicated_max: u32,
    /// vCPUs for which the shared CPUs of one cell have capacity, at most.
    pub shared_max: u32,
    /// Memory in MiB that is free under the ratio, of the cell that has most.
    pub memory_max: u32,
    /// Memory in MiB in free small pages, of the cell that has most.
    pub small_max: u32,
    /// Free pages of 2 MiB of the cell that has most.
    pub pages_2m_max: u32,
    /// Free pages of 1 GiB of the cell that has most.
    pub pages_1g_max: u32,
    /// How much of `VCPU` is taken: 0 nothing, [`u16::MAX`] all.
    pub vcpu_load: u16,
    /// How much of `PCPU` is taken.
    pub pcpu_load: u16,
    /// How much of `MEMORY_MB` is taken.
    pub memory_load: u16,
    /// How much of `DISK_GB` is taken.
    pub disk_load: u16,
}

/// What is left of one cell, at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellHeadroom {
    /// All its dedicated CPUs, free or not.
    pub dedicated_all: u32,
    /// Free dedicated CPUs.
    pub dedicated: u32,
    /// Memory in MiB in free small pages.
    pub small_mib: u64,
    /// Free pages of 2 MiB.
    pub pages_2m: u64,
    /// Free pages of 1 GiB.
    pub pages_1g: u64,
}

/// A host together with everything that is taken from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// The host.
    pub host: Arc<Host>,
    /// What it offers as counted resources.
    pub inventories: Arc<BTreeMap<ResourceClass, Inventory>>,
    /// Which qualities it has.
    pub traits: Arc<BTreeSet<Trait>>,
    /// The properties from its aggregates. Only the state knows; it keeps it up to date.
    pub aggregates: Arc<HostAggregates>,
    /// What may be given away of it. Only the state knows; it keeps it up to date.
    pub rule: HostRule,
    /// Counted resources that are taken.
    pub used: Resources,
    /// The memory that claims take, by what may be done with it.
    pub memory: Taken,
    /// CPUs, pages and memory that are taken, by cell, and PCI functions; what unknown guests hold
    /// is among them.
    pub usage: HostUsage,
    /// What claims alone take, where unknown guests hold something beside.
    pub claimed: Option<Box<HostUsage>>,
    /// The host's cells in numbers.
    pub outline: Outline,
    /// What is left, at a glance.
    pub headroom: Headroom,
    /// See [`Self::class`].
    class: Digest,
    likeness: Digest,
}

/// A digest of what a view has, computed when it is first read: many views are made of which it never is,
/// and a refusal reads that of every host. It follows from the rest of the view, so that it does not
/// count when views are compared.
#[derive(Clone, Debug, Default)]
struct Digest(OnceLock<u64>);

impl PartialEq for Digest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Digest {}

impl HostView {
    /// Returns the view of a host that holds these claims, where nothing is set of what may be given
    /// away.
    pub fn new<'a>(host: Arc<Host>, claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        Self::under(host, HostRule::default(), claims)
    }

    /// Returns the view of a host that holds these claims, where this rule holds of it.
    pub fn under<'a>(
        host: Arc<Host>,
        rule: HostRule,
        claims: impl IntoIterator<Item = &'a Claim>,
    ) -> Self {
        let mut view = Self {
            inventories: Arc::new(inventories_of(&host.report, rule)),
            traits: Arc::new(traits_of(&host.report)),
            aggregates: Arc::default(),
            rule,
            used: Resources::new(),
            memory: Taken::default(),
            usage: HostUsage::empty(&host.report.topology),
            claimed: None,
            outline: Outline::default(),
            headroom: Headroom::default(),
            class: Digest::default(),
            likeness: Digest::default(),
            host,
        };
        for claim in claims {
            add(&mut view.used, &claim.resources);
            view.memory.add(view.memory_of(claim));
            view.usage
                .add(&view.host.report.topology, &claim.assignment);
        }
        view.set_usage(view.usage.clone());
        view.refresh();
        view
    }

    /// Returns the view of the host without anything that is taken from it.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let mut view = Self::under(Arc::clone(&self.host), self.rule, []);
        view.set_aggregates(Arc::clone(&self.aggregates));
        view.without_unknown()
    }

    /// Returns the view of the host as if it had only the guests that claims are for.
    #[must_use]
    pub fn without_unknown(mut self) -> Self {
        if let Some(claimed) = self.claimed.take() {
            self.usage = *claimed;
            self.refresh();
        }
        self
    }

    /// Returns the unknown guests that hold something.
    pub fn holders(&self) -> impl Iterator<Item = &Unknown> {
        let unknown = self.host.unknown.iter();
        unknown.filter(|guest| guest.is_ours && !guest.held.is_empty())
    }

    /// Takes what the claims take, and adds what unknown guests hold. It may be the same: then
    /// neither is to be given to others before both are gone.
    fn set_usage(&mut self, claimed: HostUsage) {
        let mut usage = claimed.clone();
        for guest in self.holders() {
            usage.add(&self.host.report.topology, &guest.held);
        }
        let is_beside = self.holders().next().is_some();
        self.claimed = is_beside.then(|| Box::new(claimed));
        self.usage = usage;
    }

    /// Changes what the claims take.
    fn change_usage(&mut self, change: impl FnOnce(&mut HostUsage, &HostTopology)) {
        let host = Arc::clone(&self.host);
        let topology = &host.report.topology;
        match self.claimed.take() {
            Some(mut claimed) => {
                change(&mut claimed, topology);
                self.set_usage(*claimed);
            }
            None => change(&mut self.usage, topology),
        }
    }

    /// Returns what the fit looks at.
    #[must_use]
    pub fn ground(&self) -> Ground<'_> {
        Ground {
            topology: &self.host.report.topology,
            usage: &self.usage,
            outline: &self.outline,
        }
    }

    /// Returns whether the usage is that of this new record of the host, too.
    #[must_use]
    pub fn sums_up(&self, host: &Host) -> bool {
        self.host.report.topology == host.report.topology && self.host.unknown == host.unknown
    }

    /// Takes a new record of the host: another liveness, cordon or address.
    ///
    /// # Panics
    ///
    /// When the host has another shape now: the exact usage has to be summed again from its
    /// claims, with [`Self::new`].
    pub fn set_host(&mut self, host: Arc<Host>) {
        let (old, new) = (&self.host.report.topology, &host.report.topology);
        assert_eq!(old.cells().len(), new.cells().len(), "the same shape");
        self.inventories = Arc::new(inventories_of(&host.report, self.rule));
        self.traits = Arc::new(traits_of(&host.report));
        self.host = host;
        self.class = Digest::default();
        self.refresh();
    }

    /// Takes the current properties from the aggregates of the host.
    pub fn set_aggregates(&mut self, aggregates: Arc<HostAggregates>) {
        self.aggregates = aggregates;
        self.class = Digest::default();
        self.likeness = Digest::default();
    }

    /// Takes what may be given away of it now.
    pub fn set_rule(&mut self, rule: HostRule) {
        self.rule = rule;
        self.inventories = Arc::new(inventories_of(&self.host.report, rule));
        self.class = Digest::default();
        self.refresh();
    }

    /// Returns the memory that a claim takes here.
    #[must_use]
    pub fn memory_of(&self, claim: &Claim) -> Taken {
        let topology = &self.host.report.topology;
        Taken::of(topology, &claim.resources, &claim.assignment)
    }

    /// Returns the books of its memory: what there is, and what claims and unknown guests take.
    #[must_use]
    pub fn books(&self) -> Books {
        let nothing = Inventory::exact(0);
        let memory = self.inventories.get(&ResourceClass::memory_mb());
        let topology = &self.host.report.topology;
        let mut taken = self.memory;
        for guest in self.holders() {
            taken.add(Taken::by_cells(topology, &guest.held));
        }
        Books::new(topology, memory.unwrap_or(&nothing), taken)
    }

    /// Takes what a claim takes.
    pub fn place(&mut self, claim: &Claim) {
        add(&mut self.used, &claim.resources);
        self.memory.add(self.memory_of(claim));
        self.change_usage(|usage, topology| usage.add(topology, &claim.assignment));
        self.refresh_of(&[claim]);
    }

    /// Gives back what [`Self::place`] took.
    ///
    /// # Panics
    ///
    /// When it was not taken before.
    pub fn release(&mut self, claim: &Claim) {
        self.release_all(&[claim]);
    }

    /// Gives back what [`Self::place`] took of several claims; what is left is summed up once.
    ///
    /// # Panics
    ///
    /// When it was not taken before.
    pub fn release_all(&mut self, claims: &[&Claim]) {
        for claim in claims {
            subtract(&mut self.used, &claim.resources);
            self.memory.subtract(self.memory_of(claim));
        }
        self.change_usage(|usage, topology| {
            for claim in claims {
                usage.remove(topology, &claim.assignment);
            }
        });
        self.refresh_of(claims);
    }

    /// Takes what another consumer takes of the host's provider.
    pub fn take(&mut self, resources: &Resources) {
        add(&mut self.used, resources);
        self.refresh();
    }

    /// Gives back what [`Self::take`] took.
    ///
    /// # Panics
    ///
    /// When it was not taken before.
    pub fn give(&mut self, resources: &Resources) {
        subtract(&mut self.used, resources);
        self.refresh();
    }

    /// Returns the ratios up to which the host's cells are given away: those of its counted
    /// resources.
    #[must_use]
    pub fn limits(&self) -> Limits {
        limits_of(&self.inventories)
    }

    /// Returns a number that is the same for hosts of one class of which the same is taken, in so
    /// far as rules look at it: these get the same answer, and the same reason.
    #[must_use]
    pub fn likeness(&self) -> u64 {
        *self.likeness.0.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            let taken = (&self.outline, &self.used, &self.usage.pci, &self.usage.pmem);
            (self.class(), taken, self.memory).hash(&mut hasher);
            hasher.finish()
        })
    }

    /// Returns a number that is the same for hosts of which every rule but those of
    /// [`HOST_RULES`](crate::constraint::HOST_RULES) has the same result when nothing is taken of
    /// them.
    #[must_use]
    pub fn class(&self) -> u64 {
        *self.class.0.get_or_init(|| self.classify())
    }

    /// Returns whether what was computed of this view, if anything was, is what this other view of the
    /// same host has, which computes it now.
    #[must_use]
    pub fn digests_agree(&self, fresh: &Self) -> bool {
        let class = self.class.0.get();
        let likeness = self.likeness.0.get();
        class.is_none_or(|class| *class == fresh.class())
            && likeness.is_none_or(|likeness| *likeness == fresh.likeness())
    }

    fn classify(&self) -> u64 {
        let Host {
            name: _,
            provider: _,
            report,
            liveness,
            cordoned,
            cordoned_by: _,
            shape_refused,
            generation: _,
            created_at: _,
            fenced,
            // What is held, is in the usage.
            unknown: _,
            compared: _,
            hit: _,
            failed_volumes: _,
            registered_version: _,
            unreported,
            orphans: _,
        } = &*self.host;
        let HostReport {
            agent_address: _,
            incarnation: _,
            service_version,
            driver,
            migration_uri: _,
            topology,
            // In the inventories.
            memory_reserved_mib: _,
            disk_gib: _,
            storage_id,
            // In the view's own.
            traits: _,
            platform,
            self_fence_ms: _,
            regions: _,
            cpu,
            networks,
        } = report;
        let mut hasher = DefaultHasher::new();
        (liveness, cordoned, shape_refused.is_some()).hash(&mut hasher);
        (fenced.is_some(), unreported).hash(&mut hasher);
        (service_version, driver, topology, storage_id, platform).hash(&mut hasher);
        (cpu, networks).hash(&mut hasher);
        (&self.inventories, &self.traits, &self.aggregates).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns what is left of each cell, in the order of the topology.
    pub fn cells(&self) -> impl ExactSizeIterator<Item = CellHeadroom> + '_ {
        self.outline.cells.iter().map(|left| {
            let free = |size_kib| {
                let mut pools = self.outline.pools(left).iter();
                let pool = pools.find(|pool| pool.size_kib == size_kib);
                pool.map_or(0, |pool| pool.free_kib / size_kib)
            };
            CellHeadroom {
                dedicated_all: left.cores.all,
                dedicated: left.cores.free,
                small_mib: left.exclusive_mib,
                pages_2m: free(2048),
                pages_1g: free(1_048_576),
            }
        })
    }

    /// Returns how much of a class is taken.
    #[must_use]
    pub fn used_of(&self, class: &ResourceClass) -> u64 {
        self.used.get(class).copied().unwrap_or(0)
    }

    /// Recomputes what follows from the rest.
    fn refresh(&mut self) {
        let limits = self.limits();
        let topology = &self.host.report.topology;
        self.outline.refresh(topology, &self.usage, &limits);
        self.sum_up();
    }

    /// As [`Self::refresh`], where these claims were added or taken away and nothing else changed: the
    /// cells that they have nothing of are as they were.
    fn refresh_of(&mut self, claims: &[&Claim]) {
        if self.claimed.is_some() {
            // What unknown guests hold was summed up again.
            return self.refresh();
        }
        let limits = self.limits();
        let topology = &self.host.report.topology;
        let assignments = claims.iter().map(|claim| &claim.assignment);
        let positions = assignments.flat_map(|taken| usage::positions(topology, taken));
        self.outline
            .refresh_cells(topology, &self.usage, &limits, positions);
        self.sum_up();
    }

    /// Computes the summary; the outline is up to date.
    fn sum_up(&mut self) {
        let (vcpu, vcpu_load) = self.counted(&ResourceClass::vcpu());
        let (pcpu, pcpu_load) = self.counted(&ResourceClass::pcpu());
        let (memory_mib, memory_load) = self.counted(&ResourceClass::memory_mb());
        let (disk_gib, disk_load) = self.counted(&ResourceClass::disk_gb());
        let memory_mib = memory_mib.min(small(self.books().headroom_mib()));
        let topology = &self.host.report.topology;
        let mut headroom = Headroom {
            open: self.host.is_open(),
            cells: u16::try_from(topology.cells().len()).unwrap_or(u16::MAX),
            vcpu,
            pcpu,
            memory_mib,
            disk_gib,
            pci: small(free_functions(topology, &self.usage)),
            vcpu_load,
            pcpu_load,
            memory_load,
            disk_load,
            ..Headroom::default()
        };
        for cell in &self.outline.cells {
            headroom.add_cell(cell, self.outline.pools(cell));
        }
        self.headroom = headroom;
        self.likeness = Digest::default();
    }

    /// Returns the most of a class that one guest could take, and how much of it is taken.
    fn counted(&self, class: &ResourceClass) -> (u32, u16) {
        let Some(inventory) = self.inventories.get(class) else {
            return (0, u16::MAX);
        };
        let used = self.used_of(class);
        let most = inventory.free(used).min(inventory.max_unit);
        let capacity = u128::from(inventory.capacity().max(1));
        let load = u128::from(used) * u128::from(u16::MAX) / capacity;
        (small(most), u16::try_from(load).unwrap_or(u16::MAX))
    }
}

impl Headroom {
    fn add_cell(&mut self, cell: &outline::CellHeadroom, pools: &[PoolHeadroom]) {
        let raise = |most: &mut u32, amount: u64| *most = (*most).max(small(amount));
        let left = |amount: i64| u64::try_from(amount).unwrap_or(0);
        let dedicated = cell.cores.free;
        self.dedicated = self.dedicated.saturating_add(dedicated);
        raise(&mut self.dedicated_max, dedicated.into());
        let shared = u64::from(cell.shared);
        raise(&mut self.shared_max, left(cell.vcpus).min(shared));
        raise(&mut self.memory_max, left(cell.memory_mib));
        raise(&mut self.small_max, cell.exclusive_mib);
        for pool in pools {
            let free = pool.free_kib / pool.size_kib;
            match pool.size_kib {
                2048 => raise(&mut self.pages_2m_max, free),
                1_048_576 => raise(&mut self.pages_1g_max, free),
                _ => {}
            }
        }
    }
}

/// Returns how many functions of the host are free. A guest may hold one that is missing.
fn free_functions(topology: &HostTopology, usage: &HostUsage) -> u64 {
    let functions = topology.pci().iter();
    if usage.pci.is_empty() {
        return functions.len() as u64;
    }
    functions
        .filter(|function| !usage.pci.contains(&function.address))
        .count() as u64
}

fn small(amount: u64) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}

fn add(used: &mut Resources, resources: &Resources) {
    for (class, amount) in resources {
        *used.entry(class.clone()).or_default() += amount;
    }
}

fn subtract(used: &mut Resources, resources: &Resources) {
    for (class, amount) in resources {
        let left = used
            .get(class)
            .and_then(|taken| taken.checked_sub(*amount))
            .expect("what is given back was taken before");
        if left == 0 {
            used.remove(class);
        } else {
            used.insert(class.clone(), left);
        }
    }
}
