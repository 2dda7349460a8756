//! Pictures of topologies for people: the owner of each CPU of a host, and where a guest sits.
//!
//! PCI functions are drawn by `devices`, persistent memory by `pmem`. Not for programs: `--output json` gives them the same
//! facts. Invariant: a line is at most 78 columns wide, however many CPUs a NUMA node has.

mod devices;
mod pmem;
pub mod volumes;

use std::collections::BTreeMap;

use berth_domain::claim::{self, Claim};
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::host::HostReport;
use berth_domain::instance::VcpuId;
use berth_domain::name::{HostName, VmName};
use berth_domain::numa::{Assignment, CellAssignment};
use berth_domain::resource::ResourceClass;
use berth_domain::topology::{HostCell, HostTopology};

use crate::output::Lines;
use crate::sides::{Side, Sides};

pub use volumes::bytes;

/// The maximum width of a picture, in columns.
const WIDTH: usize = 78;

/// What a dedicated CPU is used for.
#[derive(Clone, Copy)]
enum Use {
    Vcpu(VcpuId),
    Emulator,
    /// Nothing: its sibling is isolated.
    Idle,
}

/// Draws a host: its sockets and NUMA nodes, the owner of each CPU, and how full memory and pages are.
pub fn host(name: &HostName, report: &HostReport, claims: &[Claim], sides: &Sides) -> Lines {
    let topology = &report.topology;
    let letters = letters(claims);
    let mut out = Lines::new();
    let (sockets, cells) = (topology.sockets(), topology.cells().len());
    if !report.runs_guests() && claims.is_empty() {
        let shape = format!(
            "{}, {}",
            count(sockets, "socket"),
            count(cells, "NUMA node")
        );
        return format!("host {name}: {shape}, nothing for VMs").into();
    }
    let dedicated = topology.dedicated().len();
    writeln!(
        out,
        "host {name}: {}, {}, {} dedicated and {} shared",
        count(sockets, "socket"),
        count(cells, "NUMA node"),
        count(dedicated, "CPU"),
        topology.shared().len(),
    );
    draw_memory(&mut out, report, claims);
    let mut socket = None;
    for cell in topology.cells() {
        if socket != Some(cell.socket) {
            socket = Some(cell.socket);
            let label = cell
                .socket
                .map_or("socket unknown".to_owned(), |s| format!("socket {s}"));
            writeln!(out, "{label}");
        }
        draw_cell(&mut out, cell, claims, &letters);
        devices::draw(&mut out, topology, Some(cell.id), claims, &letters);
        pmem::draw(&mut out, topology, Some(cell.id), claims, &letters);
    }
    let mut unattached = topology.pci().iter().map(|device| device.cell);
    let mut unattached_pmem = topology.pmem().iter().map(|namespace| namespace.cell);
    if unattached.any(|cell| cell.is_none()) || unattached_pmem.any(|cell| cell.is_none()) {
        writeln!(out, "NUMA node unknown");
        devices::draw(&mut out, topology, None, claims, &letters);
        pmem::draw(&mut out, topology, None, claims, &letters);
    }
    if !topology.far_memory().is_empty() {
        writeln!(out, "far memory: no CPUs near it, given to no guest");
    }
    for far in topology.far_memory() {
        writeln!(out, "  NUMA node {}  {} MiB", far.id, far.memory_mib);
        pmem::draw(&mut out, topology, Some(far.id), claims, &letters);
    }
    if !claims.is_empty() {
        writeln!(out, "owners");
    }
    for (claim, letter) in claims.iter().zip(letters.values()) {
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
        writeln!(
            out,
            "  {letter} = {} ({}{why}, {place})",
            claim.vm,
            state(claim.state)
        );
    }
    out
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

/// Draws where a guest sits on its host.
pub fn guest(vm: &VmName, host: &HostName, topology: &HostTopology, given: &Assignment) -> Lines {
    let mut out = Lines::new();
    if given.cells.is_empty() && given.emulator.is_empty() {
        writeln!(
            out,
            "{vm} floats over the shared CPUs of {host} ({})",
            topology.shared()
        );
    }
    for cell in &given.cells {
        writeln!(out, "{}", guest_cell(host, topology, cell));
        let pins: Vec<String> = cell
            .pins
            .iter()
            .map(|(vcpu, cpu)| format!("vCPU {vcpu} -> CPU {cpu}"))
            .collect();
        wrap(&mut out, "  ", &pins, "   ");
        if !cell.idle.is_empty() {
            writeln!(out, "  CPUs {} stay idle beside them", cell.idle);
        }
        if cell.shared_vcpus > 0 {
            let vcpus = count(cell.shared_vcpus as usize, "vCPU");
            writeln!(out, "  {vcpus} over CPUs {}", cell.floating);
        }
    }
    if !given.emulator.is_empty() {
        writeln!(out, "emulator on CPU {}", given.emulator);
    }
    let functions = given.pci.iter().flatten().map(ToString::to_string);
    let functions: Vec<String> = functions.collect();
    if !functions.is_empty() {
        wrap(&mut out, "PCI functions ", &functions, " ");
    }
    let devices: Vec<String> = given.pmem.iter().map(pmem::device).collect();
    if !devices.is_empty() {
        wrap(&mut out, "pmem namespaces ", &devices, " ");
    }
    out
}

fn guest_cell(host: &HostName, topology: &HostTopology, cell: &CellAssignment) -> String {
    let socket = topology
        .cell(cell.host_cell)
        .and_then(|c| c.socket)
        .map_or(String::new(), |s| format!(", socket {s}"));
    let pages = cell.page_size_kib.map_or("small pages".to_owned(), |size| {
        format!(
            "{} of {}",
            count(usize::try_from(cell.pages()).unwrap_or(0), "page"),
            kib(size)
        )
    });
    format!(
        "guest node {} on {host}, NUMA node {}{socket}: {} MiB in {pages}",
        cell.guest_cell, cell.host_cell, cell.memory_mib
    )
}

/// Gives each claim a letter: A to Z, then A1, B1 …
fn letters(claims: &[Claim]) -> BTreeMap<usize, String> {
    (0..claims.len())
        .map(|index| (index, letter(index)))
        .collect()
}

/// Returns what one of many is called in a picture.
fn letter(index: usize) -> String {
    let letter = char::from(b'A' + u8::try_from(index % 26).expect("below 26"));
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{round}"),
    }
}

/// Draws what is left of the host's memory: guests without cells count here only, and so does what
/// the host keeps for itself.
fn draw_memory(out: &mut Lines, report: &HostReport, claims: &[Claim]) {
    let total = report.topology.memory_mib();
    let reserved = report.memory_reserved_mib.min(total);
    let taken = claims
        .iter()
        .filter_map(|c| c.resources.get(&ResourceClass::memory_mb()));
    let taken: u64 = taken.sum();
    let free = total.saturating_sub(taken + reserved);
    writeln!(
        out,
        "memory {} {taken} MiB taken, {reserved} reserved for the host, {free} free of {total}",
        bar(taken, reserved, total)
    );
}

/// Returns how much of a cell's memory lies in pages that no guest may take.
fn reserved_mib(cell: &HostCell) -> u64 {
    let kib = cell.pages.iter().map(|pool| pool.reserved * pool.size_kib);
    kib.sum::<u64>() / 1024
}

fn draw_cell(
    out: &mut Lines,
    cell: &HostCell,
    claims: &[Claim],
    letters: &BTreeMap<usize, String>,
) {
    let here = |claim: &Claim| {
        claim
            .assignment
            .cells
            .iter()
            .filter(|c| c.host_cell == cell.id)
            .cloned()
            .collect::<Vec<_>>()
    };
    let parts: Vec<CellAssignment> = claims.iter().flat_map(&here).collect();
    let used: u64 = parts.iter().map(|p| p.memory_mib).sum();
    let reserved = reserved_mib(cell);
    let bar = bar(used, reserved, cell.memory_mib);
    let kept = match reserved {
        0 => String::new(),
        mib => format!(", {mib} reserved"),
    };
    writeln!(
        out,
        "  NUMA node {}  memory {bar} {used} of {} MiB{kept}",
        cell.id, cell.memory_mib
    );

    let mut owners: BTreeMap<CpuId, (String, Use)> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        let letter = &letters[&index];
        for (vcpu, cpu) in here(claim).iter().flat_map(|c| c.pins.clone()) {
            owners.insert(cpu, (letter.clone(), Use::Vcpu(vcpu)));
        }
        for cpu in here(claim).iter().flat_map(|c| c.idle.iter()) {
            owners.insert(cpu, (letter.clone(), Use::Idle));
        }
        for cpu in claim
            .assignment
            .emulator
            .iter()
            .filter(|c| cell.dedicated.contains(*c))
        {
            owners.insert(cpu, (letter.clone(), Use::Emulator));
        }
    }
    let cores: Vec<String> = cell
        .cores
        .iter()
        .map(|core| core.intersection(&cell.dedicated))
        .filter(|core| !core.is_empty())
        .map(|core| draw_core(&core, &owners))
        .collect();
    if !cores.is_empty() {
        wrap(out, "    dedicated  ", &cores, " ");
    }
    if !cell.shared.is_empty() {
        let floating: u32 = parts.iter().map(|p| p.shared_vcpus).sum();
        let vcpus = count(floating as usize, "vCPU");
        writeln!(
            out,
            "    shared     {}, {vcpus} of guests with NUMA nodes",
            cell.shared
        );
    }
    for pool in cell.pages.iter().skip(1).filter(|p| p.total > 0) {
        let taken: u64 = parts
            .iter()
            .filter(|p| p.page_size_kib == Some(pool.size_kib))
            .map(CellAssignment::pages)
            .sum();
        let size = kib(pool.size_kib);
        writeln!(
            out,
            "    pages      {size}: {taken} of {} taken",
            pool.total - pool.reserved
        );
    }
}

fn draw_core(core: &CpuSet, owners: &BTreeMap<CpuId, (String, Use)>) -> String {
    let threads: Vec<String> = core
        .iter()
        .map(|cpu| match owners.get(&cpu) {
            Some((letter, Use::Vcpu(vcpu))) => format!("{cpu}={letter}.{vcpu}"),
            Some((letter, Use::Emulator)) => format!("{cpu}={letter}.e"),
            Some((letter, Use::Idle)) => format!("{cpu}={letter}.-"),
            None => format!("{cpu}=·"),
        })
        .collect();
    format!("[{}]", threads.join(" "))
}

/// Writes `parts` behind `head`, going on below it when a line is full.
fn wrap(out: &mut Lines, head: &str, parts: &[String], gap: &str) {
    let indent = head.chars().count();
    let mut line = head.to_owned();
    let mut first = true;
    for part in parts {
        if !first && line.chars().count() + gap.len() + part.chars().count() > WIDTH {
            out.push(&line);
            line = " ".repeat(indent);
            first = true;
        }
        if !first {
            line.push_str(gap);
        }
        line.push_str(part);
        first = false;
    }
    out.push(line.trim_end());
}

/// Draws ten parts: used, reserved, free. Any nonzero amount has a part, as far as parts are left.
fn bar(used: u64, reserved: u64, total: u64) -> String {
    let parts = |amount: u64, most: usize| {
        let parts = (amount * 10).div_ceil(total.max(1));
        usize::try_from(parts).unwrap_or(most).min(most)
    };
    let used = parts(used, 10);
    let reserved = parts(reserved, 10 - used);
    let free = 10 - used - reserved;
    format!(
        "{}{}{}",
        "█".repeat(used),
        "▒".repeat(reserved),
        "░".repeat(free)
    )
}

fn kib(size: u64) -> String {
    match size {
        s if s % (1024 * 1024) == 0 => format!("{} GiB", s / (1024 * 1024)),
        s if s % 1024 == 0 => format!("{} MiB", s / 1024),
        s => format!("{s} KiB"),
    }
}

/// Returns the number with its noun, which takes an s unless there is one.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// Returns a claim's state as a word.
pub fn state(state: claim::State) -> &'static str {
    match state {
        claim::State::Held => "HELD",
        claim::State::Active => "ACTIVE",
        claim::State::Releasing => "RELEASING",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use berth_domain::id::{ClaimId, Incarnation};
    use berth_domain::pci::{PciDevice, PciId, PciKind};
    use berth_domain::topology::{CellId, FarMemory, PagePool, SocketId};
    use berth_domain::version::ServiceVersion;

    use super::*;

    fn topology() -> HostTopology {
        let cell = |id: u32, socket| HostCell {
            id: CellId(id),
            socket: Some(SocketId(socket)),
            shared: format!("{}", id * 6).parse().unwrap(),
            dedicated: format!("{}-{}", id * 6 + 1, id * 6 + 5).parse().unwrap(),
            cores: (0..3)
                .map(|c| {
                    format!("{}-{}", id * 6 + c * 2, id * 6 + c * 2 + 1)
                        .parse()
                        .unwrap()
                })
                .collect(),
            memory_mib: 4096,
            pages: vec![
                PagePool {
                    size_kib: 4,
                    total: 524_288,
                    reserved: 0,
                },
                PagePool {
                    size_kib: 2048,
                    total: 1024,
                    reserved: 24,
                },
            ],
        };
        HostTopology::new(
            vec![cell(0, 0), cell(1, 1)],
            vec![vec![10, 20], vec![20, 10]],
        )
        .unwrap()
    }

    pub(super) fn report() -> HostReport {
        HostReport {
            agent_address: String::new(),
            incarnation: Incarnation(Default::default()),
            service_version: ServiceVersion::CURRENT,
            driver: "sim".to_owned(),
            migration_uri: String::new(),
            topology: Arc::new(topology()),
            memory_reserved_mib: 512,
            disk_gib: 0,
            storage_id: String::new(),
            traits: Default::default(),
            platform: Default::default(),
            self_fence_ms: 0,
            regions: Vec::new(),
        }
    }

    fn claim() -> Claim {
        let cell = CellAssignment {
            guest_cell: 0,
            host_cell: CellId(1),
            pins: [(VcpuId(0), CpuId(8)), (VcpuId(1), CpuId(9))].into(),
            memory_mib: 1024,
            page_size_kib: Some(2048),
            ..CellAssignment::default()
        };
        Claim {
            id: ClaimId(Default::default()),
            vm: VmName::new("db").unwrap(),
            owner: claim::Owner::Vm,
            host: HostName::new("h1").unwrap(),
            state: claim::State::Active,
            resources: [(ResourceClass::memory_mb(), 1024)].into(),
            assignment: Assignment {
                cells: vec![cell],
                emulator: "10".parse().unwrap(),
                ..Assignment::default()
            },
            erasures: Default::default(),
        }
    }

    /// Goal: a person sees the owner of each CPU. Method: the whole picture.
    #[test]
    fn a_host_is_drawn() {
        let drawn = host(
            &HostName::new("h1").unwrap(),
            &report(),
            &[claim()],
            &Sides::default(),
        )
        .to_string();
        let expected = "\
host h1: 2 sockets, 2 NUMA nodes, 10 CPUs dedicated and 2 shared
memory ██▒░░░░░░░ 1024 MiB taken, 512 reserved for the host, 6656 free of 8192
socket 0
  NUMA node 0  memory ▒░░░░░░░░░ 0 of 4096 MiB, 48 reserved
    dedicated  [1=·] [2=· 3=·] [4=· 5=·]
    shared     0, 0 vCPUs of guests with NUMA nodes
    pages      2 MiB: 0 of 1000 taken
socket 1
  NUMA node 1  memory ███▒░░░░░░ 1024 of 4096 MiB, 48 reserved
    dedicated  [7=·] [8=A.0 9=A.1] [10=A.e 11=·]
    shared     6, 0 vCPUs of guests with NUMA nodes
    pages      2 MiB: 512 of 1000 taken
owners
  A = db (ACTIVE, NUMA node 1)
";
        assert_eq!(drawn, expected);
    }

    /// Goal: a bar has ten parts whatever it is given, and shows what is there at all.
    #[test]
    fn bars_are_ten_wide() {
        for (used, reserved, total, expected) in [
            (0, 0, 0, "░░░░░░░░░░"),
            (1, 1, 1000, "█▒░░░░░░░░"),
            (95, 5, 100, "██████████"),
            (50, 50, 100, "█████▒▒▒▒▒"),
            (u64::MAX / 10, 0, 1, "██████████"),
        ] {
            assert_eq!(bar(used, reserved, total), expected);
        }
    }

    /// Goal: a person sees which functions exist, where, and their owners; a long value does not
    /// break the picture. Method: the lines about functions.
    #[test]
    fn functions_are_drawn_under_their_cell() {
        let device = |address: &str, product, cell: Option<u32>, kind, tags: &[(&str, &str)]| {
            let tags = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            PciDevice {
                address: address.parse().unwrap(),
                vendor: PciId(0x8086),
                product: PciId(product),
                cell: cell.map(CellId),
                kind,
                parent: None,
                tags: tags.collect(),
            }
        };
        let (physical, virtual_) = (PciKind::Physical, PciKind::Virtual);
        let long = "x".repeat(80);
        let blue: &[(&str, &str)] = &[("physical_network", "blue")];
        let mut report = report();
        let devices = vec![
            device("0000:81:00.0", 0x1572, Some(1), physical, &[]),
            device("0000:81:02.0", 0x154c, Some(1), virtual_, blue),
            device("0000:81:02.1", 0x154c, Some(1), virtual_, blue),
            device(
                "0000:82:00.0",
                0x1eb8,
                None,
                PciKind::Pci,
                &[("note", &long)],
            ),
        ];
        report.topology = Arc::new(topology().with_pci(devices).unwrap());
        let mut claim = claim();
        claim.assignment.pci = vec![["0000:81:02.1".parse().unwrap()].into()];
        let claims = [claim];
        let drawn = host(
            &HostName::new("h1").unwrap(),
            &report,
            &claims,
            &Sides::default(),
        )
        .to_string();
        let about = drawn.split("of 1000 taken\n").nth(2).unwrap();
        let expected = "    pci        8086:154c VF physical_network=blue
               0000:81:02.0=· 0000:81:02.1=A
    pci        8086:1572 PF
               0000:81:00.0=·
NUMA node unknown
    pci        8086:1eb8 PCI
               note=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
               xxxxxxxxxxxxxxxxxxxxxx
               0000:82:00.0=·
owners
  A = db (ACTIVE, NUMA node 1)
";
        assert_eq!(about, expected);
        let [claim] = &claims;
        let name = VmName::new("db").unwrap();
        let drawn = guest(
            &name,
            &HostName::new("h1").unwrap(),
            &topology(),
            &claim.assignment,
        )
        .to_string();
        assert!(drawn.ends_with("PCI functions 0000:81:02.1\n"), "{drawn}");
    }

    #[test]
    fn far_memory_is_a_tier_of_its_own() {
        let mut report = report();
        let far = [2, 5].map(|id| FarMemory {
            id: CellId(id),
            memory_mib: 65_536,
        });
        let with = topology().with_far_memory(far.to_vec()).unwrap();
        report.topology = Arc::new(with);
        let drawn = host(
            &HostName::new("h1").unwrap(),
            &report,
            &[],
            &Sides::default(),
        );
        let drawn = drawn.to_string();
        assert!(
            drawn.contains("512 reserved for the host, 7680 free of 8192\n"),
            "{drawn}"
        );
        let expected = "\
far memory: no CPUs near it, given to no guest
  NUMA node 2  65536 MiB
  NUMA node 5  65536 MiB
";
        assert!(drawn.ends_with(expected), "{drawn}");
    }

    #[test]
    fn a_guest_is_drawn() {
        let name = VmName::new("db").unwrap();
        let drawn = guest(
            &name,
            &HostName::new("h1").unwrap(),
            &topology(),
            &claim().assignment,
        )
        .to_string();
        let expected = "\
guest node 0 on h1, NUMA node 1, socket 1: 1024 MiB in 512 pages of 2 MiB
  vCPU 0 -> CPU 8   vCPU 1 -> CPU 9
emulator on CPU 10
";
        assert_eq!(drawn, expected);
    }
}
