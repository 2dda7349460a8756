//! Persistent memory in the exact fit.
//!
//! Goal: a fit is found exactly if there is one, near enough where that is required, and as near as
//! there is room where it is preferred, to the namespaces and to what lies fast together. Method: small random hosts, compared with trying everything.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::cpu_set::CpuSet;
use berth_domain::instance::{
    CpuPolicy, InstanceCell, InstanceTopology, PageSize, ThreadPolicy, VcpuId,
};
use berth_domain::name::PmemName;
use berth_domain::numa::{
    Assignment, ExactDemand, FitRefusal, Ground, Guest, HostUsage, Limits, Outline, Strategy, fit,
    is_feasible, verify,
};
use berth_domain::pmem::{
    Label, PmemDemand, PmemNamespace, PmemNumaPolicy, PmemRequest, PmemShape,
};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const LABELS: [&str; 2] = ["SMALL", "LARGE"];

/// One cell: whether a guest cell fits on it at all.
type Roomy = bool;

/// A namespace: its label, cell, size in units, and whether it is taken, or of no use.
type Drawn = (usize, Option<u32>, u64, bool, bool);

fn cell(id: u32, roomy: Roomy) -> HostCell {
    let cpu: CpuSet = id.to_string().parse().unwrap();
    HostCell {
        id: CellId(id),
        socket: Some(SocketId(id)),
        shared: cpu.clone(),
        dedicated: CpuSet::new(),
        cores: vec![cpu],
        memory_mib: if roomy { 1024 } else { 1 },
        pages: vec![PagePool {
            size_kib: 4,
            total: if roomy { 262_144 } else { 256 },
            reserved: 0,
        }],
    }
}

fn host(cells: &[Roomy], distances: &[u32], drawn: &[Drawn]) -> (HostTopology, HostUsage) {
    let count = cells.len();
    let distance = |a: usize, b: usize| match a == b {
        true => 10,
        false => distances[(a * count + b) % distances.len()],
    };
    let rows = (0..count).map(|a| (0..count).map(|b| distance(a, b)).collect());
    let host_cells = (0..).zip(cells).map(|(id, roomy)| cell(id, *roomy));
    let namespaces = drawn.iter().enumerate();
    let namespaces = namespaces.map(|(at, (label, cell, units, _, trouble))| PmemNamespace {
        name: name(at),
        class: Label::parse(LABELS[*label]).unwrap().class(),
        size_bytes: units * 2 * MIB,
        align_bytes: 2 * MIB,
        path: format!("/dev/dax0.{at}"),
        cell: cell.map(CellId),
        region: String::new(),
        trouble: if *trouble {
            "gone".into()
        } else {
            String::new()
        },
    });
    let topology = HostTopology::new(host_cells.collect(), rows.collect())
        .and_then(|topology| topology.with_pmem(namespaces.collect()))
        .unwrap();
    let mut usage = HostUsage::empty(&topology);
    let taken = drawn.iter().enumerate().filter(|(_, drawn)| drawn.3);
    usage.pmem = taken.map(|(at, _)| name(at)).collect();
    (topology, usage)
}

fn name(at: usize) -> PmemName {
    PmemName::new(&format!("ns{at}")).unwrap()
}

fn guest_cells(count: u32) -> InstanceTopology {
    let cell = |id| InstanceCell {
        id,
        cpu_policy: CpuPolicy::Shared,
        thread_policy: ThreadPolicy::Prefer,
        shared: [VcpuId(id)].into(),
        dedicated: BTreeSet::new(),
        memory_mib: 512,
        page_size: PageSize::Unspecified,
    };
    InstanceTopology {
        cells: (0..count).map(cell).collect(),
        ..InstanceTopology::default()
    }
}

/// Returns the least sum of distances with the guest's cell 0 there; nothing where it cannot be.
fn cost(
    (topology, usage): (&HostTopology, &HostUsage),
    demand: &PmemDemand,
    near: &[CellId],
    home: usize,
) -> Option<u64> {
    let mut left: BTreeMap<&PmemRequest, u64> = BTreeMap::new();
    for request in &demand.requests {
        *left.entry(request).or_default() += 1;
    }
    let far = u64::from(u32::MAX) + 1;
    let position = |cell: Option<CellId>| cell.and_then(|cell| topology.position(cell));
    let distance_to = |cell: Option<CellId>| match position(cell) {
        Some(at) => u64::from(topology.distances()[home][at]),
        None => far,
    };
    let mut sum = near.iter().map(|cell| distance_to(Some(*cell))).sum();
    for (request, count) in left {
        let free = topology.pmem().iter();
        let free = free.filter(|n| n.trouble.is_empty() && !usage.pmem.contains(&n.name));
        let distance = |n: &PmemNamespace| distance_to(n.cell);
        let is_near = |n: &&PmemNamespace| {
            let here = topology.cells()[home].id;
            demand.policy == PmemNumaPolicy::Preferred || n.cell == Some(here)
        };
        let mut distances: Vec<u64> = free
            .filter(|n| request.accepts(n))
            .filter(is_near)
            .map(distance)
            .collect();
        distances.sort_unstable();
        let nearest = distances.get(..usize::try_from(count).unwrap())?;
        sum += nearest.iter().sum::<u64>();
    }
    Some(sum)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_nearest_is_found_exactly_if_there_is_one(
        cells in proptest::collection::vec(proptest::bool::weighted(0.7), 1..5),
        distances in proptest::collection::vec(11_u32..14, 4),
        drawn in proptest::collection::vec(
            (0_usize..2, proptest::option::weighted(0.8, 0_u32..5), 1_u64..3, proptest::bool::weighted(0.25), proptest::bool::weighted(0.1)),
            0..7,
        ),
        wanted in proptest::collection::vec((0_usize..2, proptest::option::weighted(0.2, 1_u64..3)), 0..4),
        near in proptest::collection::vec(0_u32..5, 0..3),
        same_shape in any::<bool>(),
        guests in 1_u32..4,
        required in any::<bool>(),
        pack in any::<bool>(),
    ) {
        let (topology, usage) = host(&cells, &distances, &drawn);
        let request = |(label, units): &(usize, Option<u64>)| PmemRequest {
            class: Label::parse(LABELS[*label]).unwrap().class(),
            shape: units.filter(|_| same_shape).map(|units| PmemShape {
                size_bytes: units * 2 * MIB,
                align_bytes: 2 * MIB,
            }),
        };
        // Of one class either all have a shape, as those of a running guest, or none.
        let mut requests: Vec<PmemRequest> = wanted.iter().map(request).collect();
        if requests.iter().any(|r| r.shape.is_none()) {
            for request in &mut requests {
                request.shape = None;
            }
        }
        let policy = if required { PmemNumaPolicy::Required } else { PmemNumaPolicy::Preferred };
        let pmem = PmemDemand { requests, policy };
        let cells_requested = guest_cells(guests);
        let near: Vec<CellId> = near.into_iter().map(CellId).collect();
        let demand = ExactDemand { topology: Some(&cells_requested), pci: &[], pmem: &pmem, near: &near };
        let outline = Outline::new(&topology, &usage, &Limits::NONE);
        let ground = Ground { topology: &topology, usage: &usage, outline: &outline };
        let strategy = if pack { Strategy::Pack } else { Strategy::Spread };

        let roomy = cells.iter().filter(|roomy| **roomy).count();
        let homes = (0..cells.len()).filter(|at| cells[*at]);
        let best = homes.filter_map(|home| cost((&topology, &usage), &pmem, &near, home)).min();
        let best = best.filter(|_| roomy >= guests as usize);
        let guest = Guest::new(demand);
        let found = fit(ground, &guest, strategy);
        prop_assert_eq!(is_feasible(ground, &guest), best.is_some());
        match (found, best) {
            (Ok(given), Some(best)) => {
                prop_assert_eq!(verify(ground, demand, &given), Ok(()));
                let home = topology.position(given.cells[0].host_cell).unwrap();
                prop_assert_eq!(cost((&topology, &usage), &pmem, &near, home), Some(best));
                prop_assert_eq!(fit(ground, &guest, strategy), Ok(given.clone()));
                if !given.pmem.is_empty() {
                    spoiled(ground, demand, &given)?;
                }
            }
            (Err(why), None) => {
                if let FitRefusal::Pmem(short) = &why {
                    prop_assert!(required || short.available < short.requested, "{}", why);
                }
            }
            (found, best) => prop_assert!(false, "{found:?}, but the best is {best:?}"),
        }
    }
}

/// Another device in place of a good one is not taken.
fn spoiled(
    ground: Ground<'_>,
    demand: ExactDemand<'_>,
    given: &Assignment,
) -> Result<(), TestCaseError> {
    let change = |change: &dyn Fn(&mut Assignment)| {
        let mut other = given.clone();
        change(&mut other);
        verify(ground, demand, &other)
    };
    let larger = change(&|a| a.pmem[0].size_bytes += 1);
    let fewer = change(&|a| drop(a.pmem.pop()));
    let renamed = change(&|a| a.pmem[0].name = PmemName::new("no").unwrap());
    prop_assert!(larger.is_err() && fewer.is_err() && renamed.is_err());
    // The kernel may number devices anew.
    let moved = change(&|a| a.pmem[0].path = "/dev/dax9.9".to_owned());
    prop_assert_eq!(moved, Ok(()));
    if let [_, _, ..] = &given.pmem[..] {
        let first = given.pmem[0].clone();
        let twice = change(&|a| a.pmem[1] = first.clone());
        prop_assert!(twice.is_err());
    }
    let mut taken = ground.usage.clone();
    taken.pmem.insert(given.pmem[0].name.clone());
    let now = Ground {
        usage: &taken,
        ..ground
    };
    let refused = verify(now, demand, given);
    prop_assert!(
        matches!(refused, Err(FitRefusal::PmemTaken { .. })),
        "{refused:?}"
    );
    Ok(())
}
