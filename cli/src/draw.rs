//! Pictures of topologies for people: the owner of each CPU of a host, and where a guest sits.
//!
//! The parts of a host's picture are in [`parts`], which `berth top` arranges in its own way; PCI functions
//! are drawn by `devices`, persistent memory by `pmem`. Not for programs: `--output json` gives them the
//! same facts. Invariant: a line is at most 78 columns wide, however many CPUs a NUMA node has.

mod devices;
pub mod parts;
mod pmem;
pub mod volumes;

use berth_domain::claim::Claim;
use berth_domain::host::HostReport;
use berth_domain::name::{HostName, VmName};
use berth_domain::numa::{Assignment, CellAssignment};
use berth_domain::topology::HostTopology;

use crate::output::Lines;
use crate::sides::Sides;

use parts::{Core, Part, Use};
pub use volumes::bytes;

/// The maximum width of a picture, in columns.
const WIDTH: usize = 78;

/// Draws a host: its sockets and NUMA nodes, the owner of each CPU, and how full memory and pages are.
pub fn host(name: &HostName, report: &HostReport, claims: &[Claim], sides: &Sides) -> Lines {
    let letters: Vec<String> = (0..claims.len()).map(letter).collect();
    let mut out = Lines::new();
    for part in parts::of_host(name, report, claims, &letters, sides) {
        match part {
            Part::Lines(lines) => out.extend(lines),
            Part::Cores(cores) => {
                let cores: Vec<String> =
                    cores.iter().map(|core| draw_core(core, &letters)).collect();
                wrap(&mut out, "    dedicated  ", &cores, " ");
            }
            Part::Owner(_, line) => out.push(&line),
        }
    }
    out
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

/// Returns what one of many is called in a picture: A to Z, then A1, B1 …
pub fn letter(index: usize) -> String {
    let letter = char::from(b'A' + u8::try_from(index % 26).expect("below 26"));
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{round}"),
    }
}

fn draw_core(core: &Core, letters: &[String]) -> String {
    let threads: Vec<String> = core
        .iter()
        .map(|thread| {
            let cpu = thread.cpu;
            match thread.owner.map(|(claim, usage)| (&letters[claim], usage)) {
                Some((letter, Use::Vcpu(vcpu))) => format!("{cpu}={letter}.{vcpu}"),
                Some((letter, Use::Emulator)) => format!("{cpu}={letter}.e"),
                Some((letter, Use::Idle)) => format!("{cpu}={letter}.-"),
                None => format!("{cpu}=·"),
            }
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
pub fn bar(used: u64, reserved: u64, total: u64) -> String {
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
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use berth_domain::claim;
    use berth_domain::cpu_set::CpuId;
    use berth_domain::id::{ClaimId, Incarnation};
    use berth_domain::instance::VcpuId;
    use berth_domain::pci::{PciDevice, PciId, PciKind};
    use berth_domain::resource::ResourceClass;
    use berth_domain::topology::{CellId, FarMemory, HostCell, PagePool, SocketId};
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
            networks: Vec::new(),
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
            cpu: None,
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
            cpu: None,
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
