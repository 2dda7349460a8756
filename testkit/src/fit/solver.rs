//! The solver that tries everything. It shares no code with the fit: every rule is stated anew, of
//! whole choices, and nothing is counted in advance.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::cpu_set::CpuId;
use berth_domain::instance::{CpuPolicy, EmulatorThreads, InstanceCell, PageSize, ThreadPolicy};
use berth_domain::numa::Assignment;
use berth_domain::pci::{PciAddress, PciDevice, PciKind, PciNumaPolicy, PciRequest};
use berth_domain::topology::{CellId, PagePool};

use crate::fit::draw::Case;

type Cpus = BTreeSet<u32>;

/// Returns whether any choice keeps all the rules.
pub fn fits(case: &Case) -> bool {
    let hosts = case.topology.cells().len();
    let table: Vec<Vec<bool>> = (0..case.demand.cells.len())
        .map(|guest| {
            (0..hosts)
                .map(|host| cell_fits(case, guest, host))
                .collect()
        })
        .collect();
    let mut judged = BTreeMap::new();
    maps(case, &table, &mut Vec::new(), &mut judged)
}

fn maps(
    case: &Case,
    table: &[Vec<bool>],
    chosen: &mut Vec<usize>,
    judged: &mut BTreeMap<BTreeSet<usize>, bool>,
) -> bool {
    let Some(row) = table.get(chosen.len()) else {
        let set: BTreeSet<usize> = chosen.iter().copied().collect();
        let near = |host: &usize| case.topology.cells()[*host].id;
        let near: BTreeSet<CellId> = set.iter().map(near).collect();
        return *judged
            .entry(set)
            .or_insert_with(|| devices_exist(case, &near));
    };
    (0..row.len()).any(|host| {
        if !row[host] || chosen.contains(&host) {
            return false;
        }
        chosen.push(host);
        let found = maps(case, table, chosen, judged);
        chosen.pop();
        found
    })
}

/// Returns how many host CPUs a guest cell needs for emulator threads.
pub fn emulator_cpus(case: &Case, guest: usize) -> usize {
    let policy = case.demand.cells[guest].cpu_policy;
    let is_isolated = case.demand.emulator_threads == EmulatorThreads::Isolate;
    usize::from(guest == 0 && is_isolated && policy != CpuPolicy::Shared)
}

/// Returns whether one guest cell alone fits on one host cell.
pub fn cell_fits(case: &Case, guest: usize, host: usize) -> bool {
    let requested = &case.demand.cells[guest];
    counts_fit(case, requested, host)
        && (requested.cpu_policy == CpuPolicy::Shared || pins_exist(case, guest, host))
}

/// Shared CPUs, ratios and memory.
fn counts_fit(case: &Case, requested: &InstanceCell, host: usize) -> bool {
    let cell = &case.topology.cells()[host];
    let used = &case.usage.cells[host];
    if requested.cpu_policy != CpuPolicy::Dedicated {
        if requested.shared.len() > cell.shared.len() {
            return false;
        }
        let over =
            |ratio: Option<f64>, total: f64, used: f64| ratio.is_some_and(|r| used > total * r);
        let ratio = |r: Option<berth_domain::overcommit::AllocationRatio>| r.map(|r| r.get());
        let vcpus = f64::from(used.shared_vcpus) + requested.shared.len() as f64;
        let memory = (used.memory_mib + requested.memory_mib) as f64;
        if over(
            ratio(case.limits.cpu_ratio),
            cell.shared.len() as f64,
            vcpus,
        ) || over(ratio(case.limits.ram_ratio), cell.memory_mib as f64, memory)
        {
            return false;
        }
    }
    let wanted = requested.memory_mib * 1024;
    let free = |pool: &PagePool| {
        let taken = used.pages.get(&pool.size_kib).copied().unwrap_or(0) + pool.reserved;
        i128::from(pool.total) * i128::from(pool.size_kib) - i128::from(taken * pool.size_kib)
    };
    let smallest = cell.pages.iter().map(|p| p.size_kib).min();
    let mut right = cell.pages.iter().filter(|pool| match requested.page_size {
        PageSize::Small => Some(pool.size_kib) == smallest,
        PageSize::Large => Some(pool.size_kib) != smallest,
        PageSize::Any => true,
        PageSize::Kib(size) => pool.size_kib == size,
        PageSize::Unspecified => false,
    });
    if requested.page_size != PageSize::Unspecified {
        return right.any(|p| i128::from(wanted) <= free(p) && wanted.is_multiple_of(p.size_kib));
    }
    let is_exclusive = requested.cpu_policy != CpuPolicy::Shared;
    match cell.pages.first() {
        Some(pool) => {
            let all = i128::from(pool.total) * i128::from(pool.size_kib);
            let left = if is_exclusive { free(pool) } else { all };
            i128::from(wanted) <= left && wanted.is_multiple_of(pool.size_kib)
        }
        None if is_exclusive => used.memory_mib + requested.memory_mib <= cell.memory_mib,
        None => requested.memory_mib <= cell.memory_mib,
    }
}

fn numbers(cpus: impl IntoIterator<Item = CpuId>) -> Cpus {
    cpus.into_iter().map(|cpu| cpu.0).collect()
}

/// Tries every choice of CPUs.
fn pins_exist(case: &Case, guest: usize, host: usize) -> bool {
    let requested = &case.demand.cells[guest];
    let cell = &case.topology.cells()[host];
    let taken = numbers(case.usage.cells[host].pinned.iter());
    let free: Vec<u32> = numbers(cell.dedicated.iter())
        .difference(&taken)
        .copied()
        .collect();
    let (vcpus, emulator) = (requested.dedicated.len(), emulator_cpus(case, guest));
    assert!(free.len() <= 16, "small enough to try everything");
    let chosen = |bits: u32| -> Cpus {
        let all = free.iter().enumerate();
        all.filter(|(at, _)| bits & (1 << at) != 0)
            .map(|(_, cpu)| *cpu)
            .collect()
    };
    (0..1_u32 << free.len())
        .filter(|bits| bits.count_ones() as usize == vcpus)
        .any(|bits| {
            let pins = chosen(bits);
            let lie = |emulator: &Cpus| pins_lie_well(case, requested, host, &pins, emulator);
            match emulator {
                0 => lie(&Cpus::new()),
                _ => free
                    .iter()
                    .any(|cpu| !pins.contains(cpu) && lie(&Cpus::from([*cpu]))),
            }
        })
}

/// States the thread policies of a whole choice of free CPUs.
fn pins_lie_well(
    case: &Case,
    requested: &InstanceCell,
    host: usize,
    pins: &Cpus,
    emulator: &Cpus,
) -> bool {
    let cell = &case.topology.cells()[host];
    let taken = numbers(case.usage.cells[host].pinned.iter());
    let dedicated = numbers(cell.dedicated.iter());
    let free: Cpus = dedicated.difference(&taken).copied().collect();
    let cores: Vec<Cpus> = cell.cores.iter().map(|core| numbers(core.iter())).collect();
    let threads = cores.iter().map(BTreeSet::len).max().unwrap_or(0);
    let on = |core: &Cpus, cpus: &Cpus| core.intersection(cpus).count();
    match requested.thread_policy {
        ThreadPolicy::Prefer => true,
        ThreadPolicy::Require => {
            let alone: Vec<&Cpus> = cores.iter().filter(|core| on(core, pins) == 1).collect();
            threads > 1 && alone.len() <= 1 && alone.iter().all(|core| on(core, &free) > 1)
        }
        ThreadPolicy::Isolate => {
            let is_legacy = cell.dedicated == cell.shared;
            let any_core = cores
                .iter()
                .any(|core| core.len() == threads && core.is_subset(&free));
            (threads <= 1 || is_legacy)
                && any_core
                && cores.iter().all(|core| {
                    let (vcpus, emulators) = (on(core, pins), on(core, emulator));
                    vcpus + emulators <= 1
                        && (vcpus + emulators == 0 || core.is_subset(&free))
                        && (vcpus == 0 || core.len() == threads)
                })
        }
    }
}

/// Returns whether the device is of the kind that is requested.
pub fn accepts(request: &PciRequest, device: &PciDevice) -> bool {
    let asks_physical = request
        .any_of
        .iter()
        .any(|m| m.kind == Some(PciKind::Physical));
    let is_like = request.any_of.iter().any(|m| {
        m.vendor.is_none_or(|v| v == device.vendor)
            && m.product.is_none_or(|p| p == device.product)
            && m.kind.is_none_or(|k| k == device.kind)
    });
    is_like && (device.kind != PciKind::Physical || asks_physical)
}

fn is_near(case: &Case, request: &PciRequest, device: &PciDevice, near: &BTreeSet<CellId>) -> bool {
    let socket = |cell: &CellId| case.topology.cell(*cell).and_then(|cell| cell.socket);
    if device.cell.is_some_and(|cell| near.contains(&cell)) {
        return true;
    }
    match request.policy {
        PciNumaPolicy::Required => false,
        PciNumaPolicy::Preferred => true,
        PciNumaPolicy::Legacy => device.cell.is_none(),
        PciNumaPolicy::Socket => {
            let all_known = case
                .topology
                .cells()
                .iter()
                .all(|cell| cell.socket.is_some());
            let of_device = device.cell.as_ref().and_then(socket);
            all_known && of_device.is_some() && near.iter().any(|cell| socket(cell) == of_device)
        }
    }
}

/// Returns whether nobody else has the device, nor the other side of its pair.
pub fn is_free(case: &Case, device: &PciDevice) -> bool {
    let taken = &case.usage.pci;
    let all = case.topology.pci();
    let mut children = all.iter().filter(|d| d.parent == Some(device.address));
    !taken.contains(&device.address)
        && device.parent.is_none_or(|p| !taken.contains(&p))
        && children.all(|d| !taken.contains(&d.address))
}

/// Tries every choice of devices.
fn devices_exist(case: &Case, near: &BTreeSet<CellId>) -> bool {
    let units = case.pci.iter();
    let units: Vec<&PciRequest> = units
        .flat_map(|request| std::iter::repeat_n(request, request.count as usize))
        .collect();
    let free: Vec<&PciDevice> = case
        .topology
        .pci()
        .iter()
        .filter(|d| is_free(case, d))
        .collect();
    try_units(case, near, &units, &free, 0, &mut Vec::new())
}

fn try_units<'a>(
    case: &Case,
    near: &BTreeSet<CellId>,
    units: &[&PciRequest],
    free: &[&'a PciDevice],
    from: usize,
    chosen: &mut Vec<&'a PciDevice>,
) -> bool {
    let Some(request) = units.get(chosen.len()) else {
        return true;
    };
    (from..free.len()).any(|at| {
        let device = free[at];
        let clashes = |other: &&PciDevice| {
            other.address == device.address
                || other.parent == Some(device.address)
                || device.parent == Some(other.address)
        };
        if chosen.iter().any(clashes)
            || !accepts(request, device)
            || !is_near(case, request, device, near)
        {
            return false;
        }
        // Units of one request are alike: their devices are tried in one order only.
        let is_same = units
            .get(chosen.len() + 1)
            .is_some_and(|next| std::ptr::eq(*next, *request));
        chosen.push(device);
        let next = if is_same { at + 1 } else { 0 };
        let found = try_units(case, near, units, free, next, chosen);
        chosen.pop();
        found
    })
}

/// Judges a whole answer.
pub fn judge(case: &Case, given: &Assignment) -> Result<(), String> {
    let ensure = |good: bool, what: &str| if good { Ok(()) } else { Err(what.to_owned()) };
    ensure(
        given.cells.len() == case.demand.cells.len(),
        "cells are missing",
    )?;
    let hosts: BTreeSet<CellId> = given.cells.iter().map(|c| c.host_cell).collect();
    ensure(
        hosts.len() == given.cells.len(),
        "two guest cells on one host cell",
    )?;
    for (guest, (cell, requested)) in given.cells.iter().zip(&case.demand.cells).enumerate() {
        let host = case
            .topology
            .position(cell.host_cell)
            .ok_or("no such cell")?;
        let there = &case.topology.cells()[host];
        ensure(counts_fit(case, requested, host), "memory or shared CPUs")?;
        ensure(
            cell.pins.keys().eq(&requested.dedicated),
            "not all vCPUs pinned",
        )?;
        ensure(cell.memory_mib == requested.memory_mib, "memory")?;
        let pins = numbers(cell.pins.values().copied());
        ensure(pins.len() == cell.pins.len(), "a CPU twice")?;
        let emulator = if guest == 0 {
            numbers(given.emulator.iter())
        } else {
            Cpus::new()
        };
        ensure(
            emulator.len() == emulator_cpus(case, guest) || guest > 0,
            "emulator CPUs",
        )?;
        ensure(emulator.is_disjoint(&pins), "the emulator's CPU is pinned")?;
        let idle = numbers(cell.idle.iter());
        let taken = numbers(case.usage.cells[host].pinned.iter());
        let free: Cpus = numbers(there.dedicated.iter())
            .difference(&taken)
            .copied()
            .collect();
        let used: Cpus = pins.union(&emulator).copied().collect();
        ensure(
            used.union(&idle).all(|cpu| free.contains(cpu)),
            "a CPU is not free",
        )?;
        if requested.cpu_policy != CpuPolicy::Shared {
            let lie_well = pins_lie_well(case, requested, host, &pins, &emulator);
            ensure(lie_well, "thread policy")?;
        }
        let isolated = requested.thread_policy == ThreadPolicy::Isolate;
        let cores = there.cores.iter().map(|core| numbers(core.iter()));
        let siblings: Cpus = cores
            .filter(|core| isolated && !core.is_disjoint(&used))
            .flatten()
            .filter(|cpu| !used.contains(cpu))
            .collect();
        ensure(siblings == idle, "idle siblings")?;
    }
    judge_devices(case, given, &hosts)
}

fn judge_devices(case: &Case, given: &Assignment, near: &BTreeSet<CellId>) -> Result<(), String> {
    let ensure = |good: bool, what: &str| if good { Ok(()) } else { Err(what.to_owned()) };
    ensure(given.pci.len() == case.pci.len(), "requests are missing")?;
    let mut used: BTreeSet<PciAddress> = BTreeSet::new();
    for (request, addresses) in case.pci.iter().zip(&given.pci) {
        ensure(
            addresses.len() == request.count as usize,
            "the number of devices",
        )?;
        for address in addresses {
            let device = case.topology.pci().iter().find(|d| d.address == *address);
            let device = device.ok_or("no such device")?;
            ensure(used.insert(*address), "a device twice")?;
            ensure(is_free(case, device), "a device is taken")?;
            ensure(accepts(request, device), "another device")?;
            ensure(is_near(case, request, device, near), "a device is too far")?;
        }
    }
    let parents = case
        .topology
        .pci()
        .iter()
        .filter(|d| used.contains(&d.address));
    let mut parents = parents.filter_map(|d| d.parent);
    ensure(
        parents.all(|parent| !used.contains(&parent)),
        "a PF with its VF",
    )
}
