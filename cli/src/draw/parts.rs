//! The parts of a host's picture: lines of text, the cores of each NUMA node with their owners, and the
//! claims.
//!
//! Not here: how cores are arranged ([`host`](super::host) writes each CPU with its vCPU, `berth top` a
//! dense map), and which letter a claim has.
//!
//! Invariant: each dedicated CPU of the host is in exactly one core, and each claim in one [`Part::Owner`].

use std::collections::BTreeMap;

use berth_domain::claim::{self, Claim};
use berth_domain::cpu_set::CpuId;
use berth_domain::host::HostReport;
use berth_domain::instance::VcpuId;
use berth_domain::name::HostName;
use berth_domain::numa::CellAssignment;
use berth_domain::resource::ResourceClass;
use berth_domain::topology::{HostCell, HostTopology};

use super::{bar, count, devices, kib, pmem};
use crate::output::Lines;
use crate::sides::{Side, Sides};

/// What a dedicated CPU is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// This vCPU of the guest.
    Vcpu(VcpuId),
    /// The threads of the emulator.
    Emulator,
    /// Nothing: its sibling is isolated.
    Idle,
}

/// A dedicated CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The host's number of it.
    pub cpu: CpuId,
    /// The position of the claim that has it, and what for.
    pub owner: Option<(usize, Use)>,
}

/// The dedicated CPUs of a core: sibling threads.
pub type Core = Vec<Thread>;

/// A part of the picture, from top to bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Lines as they are.
    Lines(Lines),
    /// The dedicated CPUs of the NUMA node that the lines before name.
    Cores(Vec<Core>),
    /// The line of the claim at this position.
    Owner(usize, String),
}

/// Returns the picture of a host. There is a letter for each claim.
#[must_use]
pub fn of_host(
    name: &HostName,
    report: &HostReport,
    claims: &[Claim],
    letters: &[String],
    sides: &Sides,
) -> Vec<Part> {
    let topology = &report.topology;
    let (sockets, cells) = (topology.sockets(), topology.cells().len());
    let shape = format!(
        "host {name}: {}, {}",
        count(sockets, "socket"),
        count(cells, "NUMA node")
    );
    if !report.runs_guests() && claims.is_empty() {
        return vec![Part::Lines(format!("{shape}, nothing for VMs").into())];
    }
    let mut head = Lines::new();
    let dedicated = count(topology.dedicated().len(), "CPU");
    writeln!(
        head,
        "{shape}, {dedicated} dedicated and {} shared",
        topology.shared().len()
    );
    head.push(&memory(report, claims));
    let mut parts = vec![Part::Lines(head)];
    let mut socket = None;
    for cell in topology.cells() {
        let mut lines = Lines::new();
        if socket != Some(cell.socket) {
            socket = Some(cell.socket);
            let label = cell
                .socket
                .map_or("socket unknown".to_owned(), |s| format!("socket {s}"));
            lines.push(&label);
        }
        push_cell(&mut parts, lines, cell, claims);
        let mut attached = Lines::new();
        devices::draw(&mut attached, topology, Some(cell.id), claims, letters);
        pmem::draw(&mut attached, topology, Some(cell.id), claims, letters);
        parts.push(Part::Lines(attached));
    }
    parts.push(Part::Lines(beside_the_cells(topology, claims, letters)));
    for (index, claim) in claims.iter().enumerate() {
        let line = owner(claim, &letters[index], sides);
        parts.push(Part::Owner(index, line));
    }
    parts
}

/// Draws what is attached to no NUMA node with CPUs, and the heading of the owners.
fn beside_the_cells(topology: &HostTopology, claims: &[Claim], letters: &[String]) -> Lines {
    let mut out = Lines::new();
    let mut unattached = topology.pci().iter().map(|device| device.cell);
    let mut unattached_pmem = topology.pmem().iter().map(|namespace| namespace.cell);
    if unattached.any(|cell| cell.is_none()) || unattached_pmem.any(|cell| cell.is_none()) {
        writeln!(out, "NUMA node unknown");
        devices::draw(&mut out, topology, None, claims, letters);
        pmem::draw(&mut out, topology, None, claims, letters);
    }
    if !topology.far_memory().is_empty() {
        writeln!(out, "far memory: no CPUs near it, given to no guest");
    }
    for far in topology.far_memory() {
        writeln!(out, "  NUMA node {}  {} MiB", far.id, far.memory_mib);
        pmem::draw(&mut out, topology, Some(far.id), claims, letters);
    }
    if !claims.is_empty() {
        writeln!(out, "owners");
    }
    out
}

/// Describes a claim: its VM, its state, and where it is on the host.
fn owner(claim: &Claim, letter: &str, sides: &Sides) -> String {
    let cells: Vec<String> = claim
        .assignment
        .cells
        .iter()
        .map(|c| c.host_cell.to_string())
        .collect();
    let place = match cells.len() {
        _ if !claim.is_in_use() => erasures(claim),
        0 => "floats over the shared CPUs".to_owned(),
        1 => format!("NUMA node {}", cells[0]),
        _ => format!("NUMA nodes {}", cells.join(", ")),
    };
    let why = match &claim.owner {
        claim::Owner::Vm => String::new(),
        claim::Owner::Migration(_) if !claim.is_in_use() => String::new(),
        claim::Owner::Migration(id) => match sides.side(claim) {
            Some(Side::Source) => format!(", kept by migration {id}"),
            Some(Side::Destination) => format!(", arriving by migration {id}"),
            None => format!(", of migration {id}"),
        },
    };
    format!(
        "  {letter} = {} ({}{why}, {place})",
        claim.vm,
        claim.state.as_str()
    )
}

/// Describes the erasures of a claim that was released, and what delays them.
fn erasures(claim: &Claim) -> String {
    let devices = claim.assignment.pmem.iter();
    let each = devices.map(|device| {
        let failure = claim.erasures.get(&device.name).map(|e| e.failure.as_str());
        let drawn = pmem::erasure(claim, &device.name, device.size_bytes);
        match failure.filter(|failure| !failure.is_empty()) {
            Some(failure) => format!("{} {drawn}: {failure}", device.name),
            None => format!("{} {drawn}", device.name),
        }
    });
    each.collect::<Vec<_>>().join("; ")
}

/// Draws what is left of the host's memory: guests without cells count here only, and so does what
/// the host keeps for itself.
fn memory(report: &HostReport, claims: &[Claim]) -> String {
    let total = report.topology.memory_mib();
    let reserved = report.memory_reserved_mib.min(total);
    let taken = claims
        .iter()
        .filter_map(|c| c.resources.get(&ResourceClass::memory_mb()));
    let taken: u64 = taken.sum();
    let free = total.saturating_sub(taken + reserved);
    format!(
        "memory {} {taken} MiB taken, {reserved} reserved for the host, {free} free of {total}",
        bar(taken, reserved, total)
    )
}

/// Returns how much of a cell's memory lies in pages that no guest may take.
fn reserved_mib(cell: &HostCell) -> u64 {
    let kib = cell.pages.iter().map(|pool| pool.reserved * pool.size_kib);
    kib.sum::<u64>() / 1024
}

/// Returns the parts of a claim that sit on a cell.
fn on_cell<'a>(
    claim: &'a Claim,
    cell: &'a HostCell,
) -> impl Iterator<Item = &'a CellAssignment> + 'a {
    let cells = claim.assignment.cells.iter();
    cells.filter(|given| given.host_cell == cell.id)
}

/// Adds a NUMA node behind the lines that precede it: its memory, its CPUs and its page pools.
fn push_cell(parts: &mut Vec<Part>, mut lines: Lines, cell: &HostCell, claims: &[Claim]) {
    let given: Vec<&CellAssignment> = claims.iter().flat_map(|c| on_cell(c, cell)).collect();
    let used: u64 = given.iter().map(|p| p.memory_mib).sum();
    let reserved = reserved_mib(cell);
    let bar = bar(used, reserved, cell.memory_mib);
    let kept = match reserved {
        0 => String::new(),
        mib => format!(", {mib} reserved"),
    };
    writeln!(
        lines,
        "  NUMA node {}  memory {bar} {used} of {} MiB{kept}",
        cell.id, cell.memory_mib
    );
    parts.push(Part::Lines(lines));
    let cores = cores(cell, claims);
    if !cores.is_empty() {
        parts.push(Part::Cores(cores));
    }
    parts.push(Part::Lines(shared_and_pages(cell, &given)));
}

/// Returns the dedicated CPUs of a cell, each with its owner.
fn cores(cell: &HostCell, claims: &[Claim]) -> Vec<Core> {
    let mut owners: BTreeMap<CpuId, (usize, Use)> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        for given in on_cell(claim, cell) {
            let pins = given.pins.iter();
            owners.extend(pins.map(|(vcpu, cpu)| (*cpu, (index, Use::Vcpu(*vcpu)))));
            owners.extend(given.idle.iter().map(|cpu| (cpu, (index, Use::Idle))));
        }
        let emulator = claim.assignment.emulator.iter();
        let here = emulator.filter(|cpu| cell.dedicated.contains(*cpu));
        owners.extend(here.map(|cpu| (cpu, (index, Use::Emulator))));
    }
    let thread = |cpu| Thread {
        cpu,
        owner: owners.get(&cpu).copied(),
    };
    let cores = cell.cores.iter();
    let dedicated = cores.map(|core| core.intersection(&cell.dedicated));
    dedicated
        .filter(|core| !core.is_empty())
        .map(|core| core.iter().map(thread).collect())
        .collect()
}

fn shared_and_pages(cell: &HostCell, given: &[&CellAssignment]) -> Lines {
    let mut out = Lines::new();
    if !cell.shared.is_empty() {
        let floating: u32 = given.iter().map(|p| p.shared_vcpus).sum();
        let vcpus = count(floating as usize, "vCPU");
        writeln!(
            out,
            "    shared     {}, {vcpus} of guests with NUMA nodes",
            cell.shared
        );
    }
    for pool in cell.pages.iter().skip(1).filter(|p| p.total > 0) {
        let taken: u64 = given
            .iter()
            .filter(|p| p.page_size_kib == Some(pool.size_kib))
            .map(|p| p.pages())
            .sum();
        let size = kib(pool.size_kib);
        writeln!(
            out,
            "    pages      {size}: {taken} of {} taken",
            pool.total - pool.reserved
        );
    }
    out
}
