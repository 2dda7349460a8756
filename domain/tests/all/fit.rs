//! The fit against a solver that tries everything.
//!
//! Goal: a fit is found exactly if there is one, it is valid, a refusal is true, and `verify`
//! accepts no more than that. Method: random small hosts with random usage and random guests; the
//! solver here tries every map of guest cells to host cells and states the rules of one pair in
//! its own way, in bytes and sets.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::instance::{
    CpuPolicy, EmulatorThreads, InstanceCell, InstanceTopology, PageSize, ThreadPolicy, VcpuId,
};
use berth_domain::numa::{
    self, Assignment, CellUsage, ExactDemand, FitRefusal, Ground, Guest, HostUsage, Limits,
    Outline, Strategy as Preference, ThreadRules,
};
use berth_domain::overcommit::AllocationRatio;
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool};
use proptest::prelude::*;

fn limits(exact_memory: bool) -> Limits {
    Limits {
        cpu_ratio: Some(AllocationRatio::from_milli(2000)),
        ram_ratio: Some(AllocationRatio::from_milli(1500)),
        exact_memory,
        threads: ThreadRules::Nova,
    }
}

/// A host as the fit looks at it.
struct Scene {
    topology: HostTopology,
    usage: HostUsage,
    outline: Outline,
}

impl Scene {
    fn new(topology: HostTopology, usage: HostUsage, limits: &Limits) -> Self {
        Self {
            outline: Outline::new(&topology, &usage, limits),
            topology,
            usage,
        }
    }

    fn ground(&self) -> Ground<'_> {
        Ground {
            topology: &self.topology,
            usage: &self.usage,
            outline: &self.outline,
        }
    }

    fn verify(
        &self,
        demand: Option<&InstanceTopology>,
        given: &Assignment,
    ) -> Result<(), FitRefusal> {
        let demand = ExactDemand {
            topology: demand,
            pci: &[],
            ..ExactDemand::default()
        };
        numa::verify(self.ground(), demand, given)
    }
}

const KIB_PER_GIB: u64 = 1024 * 1024;

/// The numbers of a random host cell with its usage.
#[derive(Clone, Debug)]
struct Cell {
    shared: u32,
    dedicated: u32,
    threads: usize,
    taken: u8,
    small_gib: u64,
    pages_2m_gib: u64,
    pages_1g: u64,
    used_small_gib: u64,
    used_2m_gib: u64,
    used_1g: u64,
    reserved_1g: u64,
    unaccounted_gib: u64,
    shared_vcpus: u32,
    has_pools: bool,
}

prop_compose! {
    fn cell()(
        (shared, dedicated, threads, taken) in (0_u32..4, 0_u32..5, 1_usize..3, any::<u8>()),
        (small_gib, pages_2m_gib, pages_1g) in (1_u64..5, 0_u64..4, 0_u64..4),
        (used_small_gib, used_2m_gib, used_1g, reserved_1g) in (0_u64..3, 0_u64..3, 0_u64..3, 0_u64..2),
        (unaccounted_gib, shared_vcpus) in (0_u64..2, 0_u32..6),
        has_pools in proptest::bool::weighted(0.9),
    ) -> Cell {
        Cell {
            shared, dedicated, threads, taken: taken & (taken >> 1), small_gib, pages_2m_gib,
            pages_1g,
            used_small_gib: used_small_gib.min(small_gib),
            used_2m_gib: used_2m_gib.min(pages_2m_gib),
            used_1g: used_1g.min(pages_1g),
            reserved_1g: reserved_1g.min(pages_1g),
            unaccounted_gib, shared_vcpus, has_pools,
        }
    }
}

fn host(cells: &[Cell]) -> (HostTopology, HostUsage) {
    let mut next = 0;
    let mut take = |count: u32| {
        let cpus: CpuSet = (next..next + count).map(CpuId).collect();
        next += count;
        cpus
    };
    let mut usage = HostUsage::default();
    let mut host_cells = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let (shared, dedicated) = (take(cell.shared), take(cell.dedicated));
        let core = |cpus: &CpuSet| -> Vec<CpuSet> {
            let cpus: Vec<_> = cpus.iter().collect();
            cpus.chunks(cell.threads)
                .map(|chunk| chunk.iter().copied().collect())
                .collect()
        };
        let mut pages = vec![pool(4, cell.small_gib, 0)];
        let mut used = BTreeMap::new();
        let mut account = |size: u64, gib: u64| {
            if gib > 0 && cell.has_pools {
                used.insert(size, gib * KIB_PER_GIB / size);
            }
        };
        account(4, cell.used_small_gib);
        if cell.pages_2m_gib > 0 {
            pages.push(pool(2048, cell.pages_2m_gib, 0));
            account(2048, cell.used_2m_gib);
        }
        if cell.pages_1g > 0 {
            pages.push(pool(KIB_PER_GIB, cell.pages_1g, cell.reserved_1g));
            account(KIB_PER_GIB, cell.used_1g);
        }
        let accounted: u64 = used.iter().map(|(size, n)| size * n / 1024).sum();
        usage.cells.push(CellUsage {
            pinned: dedicated
                .iter()
                .enumerate()
                .filter(|(bit, _)| cell.taken & (1 << bit) != 0)
                .map(|(_, cpu)| cpu)
                .collect(),
            shared_vcpus: cell.shared_vcpus,
            memory_mib: accounted + cell.unaccounted_gib * 1024,
            pages: used,
            locked_mib: 0,
        });
        host_cells.push(HostCell {
            id: CellId(u32::try_from(index).unwrap() * 2),
            socket: None,
            cores: [core(&shared), core(&dedicated)].concat(),
            shared,
            dedicated,
            memory_mib: (cell.small_gib + cell.pages_2m_gib + cell.pages_1g) * 1024,
            pages: if cell.has_pools { pages } else { Vec::new() },
        });
    }
    let distances = vec![vec![10; cells.len()]; cells.len()];
    (HostTopology::new(host_cells, distances).unwrap(), usage)
}

fn pool(size_kib: u64, gib: u64, reserved: u64) -> PagePool {
    PagePool {
        size_kib,
        total: gib * KIB_PER_GIB / size_kib,
        reserved,
    }
}

fn guest() -> impl Strategy<Value = InstanceTopology> {
    let page_size = prop_oneof![
        3 => Just(PageSize::Unspecified),
        1 => Just(PageSize::Small),
        1 => Just(PageSize::Large),
        1 => Just(PageSize::Any),
        1 => Just(PageSize::Kib(2048)),
        1 => Just(PageSize::Kib(KIB_PER_GIB)),
        1 => Just(PageSize::Kib(64)),
    ];
    let emulator = prop_oneof![
        2 => Just(EmulatorThreads::Unspecified),
        1 => Just(EmulatorThreads::Isolate),
        1 => Just(EmulatorThreads::Share),
    ];
    // Memory in half GiB: some of it is no multiple of the greatest pages.
    let cells = proptest::collection::vec((0_u32..3, 0_u32..4, 1_u64..6, page_size), 1..4);
    (cells, 0_u8..3, emulator).prop_map(|(cells, policy, emulator_threads)| {
        let mut next = 0;
        let mut take = |count| {
            let vcpus: BTreeSet<_> = (next..next + count).map(VcpuId).collect();
            next += count;
            vcpus
        };
        let cells = (0..)
            .zip(cells)
            .map(
                |(id, (shared, dedicated, halves, page_size))| InstanceCell {
                    id,
                    cpu_policy: match policy {
                        0 => CpuPolicy::Shared,
                        1 => CpuPolicy::Dedicated,
                        _ => CpuPolicy::Mixed,
                    },
                    thread_policy: ThreadPolicy::Prefer,
                    shared: take(if policy == 1 { 0 } else { shared }),
                    dedicated: take(if policy == 0 { 0 } else { dedicated }),
                    memory_mib: halves * 512,
                    page_size,
                },
            )
            .collect();
        InstanceTopology {
            cells,
            emulator_threads,
            ..InstanceTopology::default()
        }
    })
}

/// States the rules for one guest cell on one host cell anew.
fn pair_fits(
    demand: &InstanceTopology,
    index: usize,
    cell: &HostCell,
    used: &CellUsage,
    exact: bool,
) -> bool {
    let requested = &demand.cells[index];
    let bytes = |mib: u64| u128::from(mib) << 20;
    let any_dedicated = requested.cpu_policy != CpuPolicy::Shared;
    let any_shared = requested.cpu_policy != CpuPolicy::Dedicated;
    let has_emulator = any_dedicated && demand.emulator_threads == EmulatorThreads::Isolate;
    let emulator = usize::from(index == 0 && has_emulator);

    let free = cell.dedicated.iter().filter(|c| !used.pinned.contains(*c));
    if requested.dedicated.len() + emulator > free.count()
        || requested.shared.len() > cell.shared.len()
    {
        return false;
    }
    if any_shared {
        let vcpus = used.shared_vcpus as usize + requested.shared.len();
        let overfull = vcpus > cell.shared.len() * 2;
        let memory = bytes(used.memory_mib) + bytes(requested.memory_mib);
        if overfull || memory * 2 > bytes(cell.memory_mib) * 3 {
            return false;
        }
    }
    let accounted: u128 = used
        .pages
        .iter()
        .map(|(size, n)| u128::from(*size) * u128::from(*n) * 1024)
        .sum();
    let shared = bytes(used.memory_mib) - accounted;
    let wanted = bytes(requested.memory_mib);
    let smallest = cell.pages.first().map(|p| p.size_kib);
    let pool_has = |p: &PagePool| {
        let size = u128::from(p.size_kib) * 1024;
        let mut taken = u128::from(p.reserved) * size;
        taken += u128::from(used.pages.get(&p.size_kib).copied().unwrap_or(0)) * size;
        let all = u128::from(p.total) * size;
        // Three bytes may be shared for two that stay.
        let stays = Some(p.size_kib) != smallest
            || !exact
            || (taken + wanted <= all && shared * 2 <= (all - taken - wanted) * 3);
        wanted % size == 0 && taken + wanted <= all && stays
    };
    let may_share = |p: &PagePool| {
        let size = u128::from(p.size_kib) * 1024;
        let taken = used.pages.get(&p.size_kib).copied().unwrap_or(0) + p.reserved;
        let open = (u128::from(p.total) * size).saturating_sub(u128::from(taken) * size);
        let alone = wanted <= u128::from(p.total - p.reserved) * size;
        wanted % size == 0 && alone && (shared + wanted) * 2 <= open * 3
    };
    match (requested.page_size, cell.pages.first()) {
        (PageSize::Unspecified, Some(first)) if any_dedicated => pool_has(first),
        (PageSize::Unspecified, Some(first)) if exact => may_share(first),
        (PageSize::Unspecified, Some(first)) => {
            let all = u128::from(first.total) * u128::from(first.size_kib) * 1024;
            wanted <= all
        }
        (PageSize::Unspecified, None) if any_dedicated || exact => {
            bytes(used.memory_mib) + wanted <= bytes(cell.memory_mib)
        }
        (PageSize::Unspecified, None) => wanted <= bytes(cell.memory_mib),
        (size, _) => cell.pages.iter().any(|p| {
            let right = match size {
                PageSize::Small => Some(p.size_kib) == smallest,
                PageSize::Large => Some(p.size_kib) != smallest,
                PageSize::Kib(kib) => p.size_kib == kib,
                PageSize::Any | PageSize::Unspecified => true,
            };
            right && pool_has(p)
        }),
    }
}

/// Tries every map of guest cells to distinct host cells.
fn brute_force(
    topology: &HostTopology,
    usage: &HostUsage,
    demand: &InstanceTopology,
    exact: bool,
    taken: &mut Vec<usize>,
) -> bool {
    let index = taken.len();
    if index == demand.cells.len() {
        return true;
    }
    (0..topology.cells().len()).any(|h| {
        if taken.contains(&h)
            || !pair_fits(demand, index, &topology.cells()[h], &usage.cells[h], exact)
        {
            return false;
        }
        taken.push(h);
        let found = brute_force(topology, usage, demand, exact, taken);
        taken.pop();
        found
    })
}

fn check_refusal(
    refusal: &FitRefusal,
    topology: &HostTopology,
    usage: &HostUsage,
    demand: &InstanceTopology,
    exact: bool,
) {
    let fits_on = |guest: u32| -> BTreeSet<CellId> {
        let cells = topology.cells().iter().zip(&usage.cells);
        cells
            .filter(|(cell, used)| pair_fits(demand, guest as usize, cell, used, exact))
            .map(|(cell, _)| cell.id)
            .collect()
    };
    match refusal {
        FitRefusal::TooFewCells {
            requested,
            available,
        } => {
            assert_eq!(*requested, demand.cells.len());
            assert_eq!(*available, topology.cells().len());
            assert!(requested > available);
        }
        FitRefusal::Cell { shortfall, .. } => {
            assert!(fits_on(shortfall.guest_cell).is_empty());
            let worst = shortfall.worst();
            assert!(worst.available < worst.requested, "{refusal}");
        }
        FitRefusal::Compete {
            guest_cells,
            host_cells,
            ..
        } => {
            let reachable: BTreeSet<_> = guest_cells.iter().flat_map(|g| fits_on(*g)).collect();
            assert_eq!(reachable, host_cells.iter().copied().collect());
            assert!(host_cells.len() < guest_cells.len());
        }
        FitRefusal::Pci(_)
        | FitRefusal::GaveUp
        | FitRefusal::PciTaken { .. }
        | FitRefusal::Pmem(_)
        | FitRefusal::PmemTaken { .. }
        | FitRefusal::Taken { .. }
        | FitRefusal::Mismatch { .. } => panic!("{refusal}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fits_exactly_if_trying_everything_finds_a_fit(
        cells in proptest::collection::vec(cell(), 1..5),
        demand in guest(),
        (pack, exact) in any::<(bool, bool)>(),
    ) {
        let limits = limits(exact);
        let (topology, usage) = host(&cells);
        let preference = if pack { Preference::Pack } else { Preference::Spread };
        let scene = Scene::new(topology.clone(), usage.clone(), &limits);
        let guest = Guest::new(ExactDemand::cells(&demand));
        let answer = numa::fit(scene.ground(), &guest, preference);
        let exists = brute_force(&topology, &usage, &demand, exact, &mut Vec::new());
        prop_assert_eq!(answer.is_ok(), exists, "{:?}", answer);
        prop_assert_eq!(&numa::fit(scene.ground(), &guest, preference), &answer);
        let tried = numa::try_fit(scene.ground(), &guest, preference);
        prop_assert_eq!(tried, answer.clone().ok());
        prop_assert_eq!(numa::is_feasible(scene.ground(), &guest), exists);
        match answer {
            Err(refusal) => check_refusal(&refusal, &topology, &usage, &demand, exact),
            Ok(assignment) => {
                prop_assert_eq!(scene.verify(Some(&demand), &assignment), Ok(()));
                let mut after = usage.clone();
                after.add(&topology, &assignment);
                if !assignment.dedicated().is_empty() {
                    let later = Scene::new(topology.clone(), after.clone(), &limits);
                    let again = later.verify(Some(&demand), &assignment);
                    prop_assert!(again.is_err(), "the same CPUs twice");
                }
                after.remove(&topology, &assignment);
                prop_assert_eq!(after, usage);
            }
        }
    }

    /// Goal: `verify` notices every single change to a good assignment that makes it a bad one.
    #[test]
    fn a_spoilt_assignment_is_refused(
        cells in proptest::collection::vec(cell(), 2..5),
        demand in guest(),
        kind in 0_usize..10,
        at in 0_usize..3,
    ) {
        let limits = limits(true);
        let (topology, usage) = host(&cells);
        let scene = Scene::new(topology, usage.clone(), &limits);
        let guest = Guest::new(ExactDemand::cells(&demand));
        let Ok(good) = numa::fit(scene.ground(), &guest, Preference::Spread) else {
            return Ok(());
        };
        let mut bad = good.clone();
        spoil(&mut bad, &usage, kind, at % good.cells.len());
        if bad == good {
            return Ok(());
        }
        prop_assert!(scene.verify(Some(&demand), &bad).is_err(), "{:?}", bad);
        let unwished = scene.verify(None, &bad);
        prop_assert_eq!(unwished.is_ok(), bad.is_empty());
    }
}

fn spoil(bad: &mut Assignment, usage: &HostUsage, kind: usize, at: usize) {
    let other = bad.cells[(at + 1) % bad.cells.len()].host_cell;
    let taken = usage.cells.iter().find_map(|c| c.pinned.first());
    let cell = &mut bad.cells[at];
    match kind {
        0 => cell.host_cell = other,
        1 => cell.host_cell = CellId(77),
        2 => cell.memory_mib += 1024,
        3 => cell.page_size_kib = Some(8),
        4 => cell.shared_vcpus += 1,
        5 => cell.floating = "500".parse().unwrap(),
        6 => bad.emulator = "500".parse().unwrap(),
        7 => drop(bad.cells.remove(at)),
        8 => {
            if let (Some(pin), Some(taken)) = (cell.pins.values_mut().next(), taken) {
                *pin = taken;
            }
        }
        _ => {
            let pins: Vec<_> = cell.pins.values().copied().collect();
            if let (Some(pin), [_, second, ..]) = (cell.pins.values_mut().next(), &pins[..]) {
                *pin = *second;
            }
        }
    }
}
