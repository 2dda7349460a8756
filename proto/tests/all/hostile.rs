//! Goal: whatever somebody says of a host over the wire, or of what a guest was given there, is
//! refused with the field, or is of use: views can be made of it, guests fitted to it, and what was
//! given can be taken and comes back. Method: reports and assignments that are right, with some
//! values exchanged for such that break what does not expect them.
//!
//! More cases: `PROPTEST_CASES=1000000 cargo test -p berth-proto --test all hostile`.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::host::{Host, HostReport, Liveness};
use berth_domain::host_view::HostView;
use berth_domain::id::{Generation, ProviderId, TimeMs};
use berth_domain::instance::{
    CpuPolicy, EmulatorThreads, InstanceCell, InstanceTopology, PageSize, ThreadPolicy, VcpuId,
};
use berth_domain::name::HostName;
use berth_domain::numa::{
    Assignment, ExactDemand, Ground, Guest, HostUsage, Limits, Outline, Strategy as Preference,
    fit, verify,
};
use berth_domain::pci::{PciMatch, PciNumaPolicy, PciRequest};
use berth_domain::topology::HostTopology;
use berth_proto::host::v1::HostReport as WireReport;
use berth_proto::types::v1 as wire;
use proptest::prelude::*;
use proptest::sample::Index;
use uuid::Uuid;

/// How long a refusal may be: it repeats little of what was read.
const MESSAGE_LENGTH_MAX: usize = 1000;

fn cases(default: u32) -> ProptestConfig {
    let said = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: said.map_or(default, |text| text.parse().expect("a number")),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A report that is right: cells of eight CPUs, of which the first two are shared.
fn report(cells: u32, threads: u32) -> WireReport {
    let cell = |id: u32| {
        let first = id * 8;
        let core = |cpu: u32| format!("{cpu}-{}", cpu + threads - 1);
        let cores = (first..first + 8).step_by(threads as usize);
        let pool = |size_kib, total, reserved| wire::PagePool {
            size_kib,
            total,
            reserved,
        };
        wire::HostCell {
            id,
            socket: Some(id / 2),
            shared_cpus: format!("{first}-{}", first + 1),
            dedicated_cpus: format!("{}-{}", first + 2, first + 7),
            cores: cores.map(core).collect(),
            memory_mib: 4096,
            pages: vec![
                pool(4, 524_288, 0),
                pool(2048, 512, 8),
                pool(1_048_576, 1, 0),
            ],
        }
    };
    let row = |_| wire::CellDistances {
        distances: vec![10; cells as usize],
    };
    let device = |number: u32| wire::PciDevice {
        address: format!("0000:81:{number:02x}.0"),
        vendor_id: "8086".into(),
        product_id: "1572".into(),
        cell: Some(number % cells),
        kind: wire::PciKind::Pci.into(),
        ..Default::default()
    };
    WireReport {
        agent_address: "http://h1:7300".into(),
        incarnation: Uuid::from_u128(7).to_string(),
        service_version: 2,
        driver: "sim".into(),
        topology: Some(wire::HostTopology {
            cells: (0..cells).map(cell).collect(),
            distances: (0..cells).map(row).collect(),
            pci_devices: (0..4).map(device).collect(),
            pmem_namespaces: Vec::new(),
            far_memory: Vec::new(),
        }),
        disk_gib: 10,
        ..Default::default()
    }
}

/// Something wrong to be put somewhere.
#[derive(Clone, Debug)]
struct Odd {
    place: u8,
    at: Index,
    number: u64,
    text: String,
}

impl Odd {
    fn small(&self) -> u32 {
        // The low half: odd numbers are odd there too.
        (self.number & u64::from(u32::MAX))
            .try_into()
            .expect("it is half as long")
    }
}

fn odd() -> impl Strategy<Value = Odd> {
    let number = prop_oneof![
        4 => 0_u64..10,
        1 => prop::sample::select(vec![4, 8, 2048, 4096, 1_048_576, 1 << 40, 1 << 62, 1 << 63]),
        1 => prop::sample::select(vec![u64::MAX, u64::MAX / 1024, u64::from(u32::MAX), 8191, 8192]),
        1 => any::<u64>(),
    ];
    let text = prop_oneof![
        4 => prop::sample::select(vec![
            "", "0", "0-1", "2-7", "0-7", "3-5", "8-15", "10-12", "0-8191", "8192", "7-3",
            "0-4294967295", "0-99999999999999999999", "1,1,1", "0-7,^3", ",", "-", "8086",
            "0000:81:00.0", "0000:81:01.0", "ffffffff:ff:1f.7",
        ]).prop_map(str::to_owned),
        1 => "[0-9,-]{0,16}",
        1 => "\\PC{0,16}",
    ];
    (any::<u8>(), any::<Index>(), number, text).prop_map(|(place, at, number, text)| Odd {
        place,
        at,
        number,
        text,
    })
}

fn spoil_report(report: &mut WireReport, odd: &Odd) {
    let Some(topology) = &mut report.topology else {
        return;
    };
    if topology.cells.is_empty() || topology.distances.is_empty() {
        return;
    }
    let text = odd.text.clone();
    match odd.place % 24 {
        0 => report.topology = None,
        1 => report.memory_reserved_mib = odd.number,
        2 => report.disk_gib = odd.number,
        3 => report.traits.push(text),
        4 => report.service_version = odd.small(),
        5 => report.incarnation = text,
        6 => topology.cells.clear(),
        7 => topology.distances.clear(),
        8 => topology.distances[0].distances = vec![odd.small(); topology.cells.len()],
        9 => topology.cells.push(odd.at.get(&topology.cells).clone()),
        10..=12 if !topology.pci_devices.is_empty() => {
            let device = odd.at.get_mut(&mut topology.pci_devices);
            match odd.place % 24 {
                10 => device.address = text,
                11 => (device.parent, device.kind) = (text, (odd.small() % 5).try_into().unwrap()),
                _ => (device.cell, device.vendor_id) = (Some(odd.small()), text),
            }
        }
        place => spoil_cell(odd.at.get_mut(&mut topology.cells), place, odd),
    }
}

fn spoil_cell(cell: &mut wire::HostCell, place: u8, odd: &Odd) {
    let text = odd.text.clone();
    match place {
        13 => cell.id = odd.small(),
        14 => cell.socket = Some(odd.small()).filter(|socket| socket % 2 == 0),
        15 => cell.shared_cpus = text,
        16 => cell.dedicated_cpus = text,
        17 => cell.cores.push(text),
        18 if !cell.cores.is_empty() => *odd.at.get_mut(&mut cell.cores) = text,
        19 => cell.memory_mib = odd.number,
        20 if !cell.pages.is_empty() => odd.at.get_mut(&mut cell.pages).size_kib = odd.number,
        21 if !cell.pages.is_empty() => odd.at.get_mut(&mut cell.pages).total = odd.number,
        22 if !cell.pages.is_empty() => odd.at.get_mut(&mut cell.pages).reserved = odd.number,
        // All CPUs for both kinds of guests.
        _ => {
            let first = cell.id % 4 * 8;
            cell.dedicated_cpus = format!("{first}-{}", first + 7);
            cell.shared_cpus = cell.dedicated_cpus.clone();
        }
    }
}

/// A small guest, and what it asks for beside its cells.
fn wish() -> impl Strategy<Value = (InstanceTopology, Vec<PciRequest>)> {
    let policy = prop::sample::select(vec![
        CpuPolicy::Shared,
        CpuPolicy::Dedicated,
        CpuPolicy::Mixed,
    ]);
    let threads = prop::sample::select(vec![
        ThreadPolicy::Prefer,
        ThreadPolicy::Isolate,
        ThreadPolicy::Require,
    ]);
    let pages = prop::sample::select(vec![
        PageSize::Unspecified,
        PageSize::Large,
        PageSize::Any,
        PageSize::Kib(2048),
    ]);
    let cells = prop::collection::vec((0_u32..3, 0_u32..4, 1_u64..4), 1..4);
    (cells, policy, threads, pages, any::<bool>(), 0_u32..3).prop_map(
        |(cells, cpu_policy, thread_policy, page_size, isolates, devices)| {
            let mut next = 0;
            let mut take = |count: u32, wanted: bool| -> BTreeSet<VcpuId> {
                let first = next;
                next += if wanted { count } else { 0 };
                (first..next).map(VcpuId).collect()
            };
            let cells = (0..)
                .zip(cells)
                .map(|(id, (shared, dedicated, half_gib))| InstanceCell {
                    id,
                    cpu_policy,
                    thread_policy,
                    shared: take(shared, cpu_policy != CpuPolicy::Dedicated),
                    dedicated: take(dedicated, cpu_policy != CpuPolicy::Shared),
                    memory_mib: half_gib * 512,
                    page_size,
                });
            let topology = InstanceTopology {
                cells: cells.collect(),
                emulator_threads: match isolates && cpu_policy != CpuPolicy::Shared {
                    true => EmulatorThreads::Isolate,
                    false => EmulatorThreads::Unspecified,
                },
                ..InstanceTopology::default()
            };
            let request = PciRequest {
                count: devices,
                any_of: vec![PciMatch::default()],
                policy: PciNumaPolicy::Socket,
            };
            (
                topology,
                Vec::from_iter(Some(request).filter(|r| r.count > 0)),
            )
        },
    )
}

fn host(report: HostReport) -> Host {
    Host {
        name: HostName::new("h1").expect("a good name"),
        provider: ProviderId(Uuid::from_u128(1)),
        report,
        liveness: Liveness::Up,
        cordoned: false,
        cordoned_by: None,
        shape_refused: None,
        generation: Generation(1),
        created_at: TimeMs(0),
        fenced: None,
        unknown: Vec::new(),
        compared: 0,
        hit: Default::default(),
        failed_volumes: Vec::new(),
        unreported: false,
        orphans: Default::default(),
        registered_version: berth_domain::version::ServiceVersion::OLDEST,
    }
}

fn spoil_assignment(given: &mut wire::Assignment, odd: &Odd) {
    let text = odd.text.clone();
    let place = odd.place % 14;
    match place {
        0 => given.emulator_cpus = text,
        1 => given.pci.push(wire::PciGrant {
            addresses: vec![text],
        }),
        2 if !given.pci.is_empty() => odd.at.get_mut(&mut given.pci).addresses.push(text),
        3 => given.pci.clear(),
        _ if given.cells.is_empty() => {}
        4 => given.cells.push(odd.at.get(&given.cells).clone()),
        5 => given.cells.clear(),
        _ => {
            let cell = odd.at.get_mut(&mut given.cells);
            match place {
                6 => cell.host_cell = odd.small(),
                7 => cell.guest_cell = odd.small(),
                8 => cell.memory_mib = odd.number,
                9 => cell.page_size_kib = Some(odd.number).filter(|n| n % 3 > 0),
                10 => cell.shared_vcpus = odd.small(),
                11 => cell.floating_cpus = text,
                12 => cell.idle_cpus = text,
                _ => {
                    cell.pins.insert(odd.small() % 8, odd.small() % 9000);
                }
            }
        }
    }
}

/// Checks that what was let through takes only what is there and nobody has.
fn keeps_the_rules(
    topology: &HostTopology,
    before: &HostUsage,
    given: &Assignment,
) -> Result<(), TestCaseError> {
    let mut seen = BTreeSet::new();
    let cells = given.cells.iter();
    let idle = cells.clone().flat_map(|cell| cell.idle.iter());
    let pins = cells.flat_map(|cell| cell.pins.values().copied());
    for cpu in pins.chain(idle).chain(given.emulator.iter()) {
        prop_assert!(seen.insert(cpu), "CPU {} twice", cpu);
        prop_assert!(
            topology.dedicated().contains(cpu),
            "CPU {} is not dedicated",
            cpu
        );
        let is_taken = before.cells.iter().any(|cell| cell.pinned.contains(cpu));
        prop_assert!(!is_taken, "CPU {} is another's", cpu);
    }
    let mut functions = BTreeSet::new();
    for address in given.pci.iter().flatten() {
        prop_assert!(functions.insert(*address) && !before.pci.contains(address));
        prop_assert!(
            topology
                .pci()
                .iter()
                .any(|device| device.address == *address)
        );
    }
    let mut after = before.clone();
    after.add(topology, given);
    for (cell, used) in topology.cells().iter().zip(&after.cells) {
        for pool in &cell.pages {
            let taken = used.pages.get(&pool.size_kib).copied().unwrap_or(0);
            prop_assert!(
                taken <= pool.total - pool.reserved,
                "pages of {:?}",
                cell.id
            );
        }
    }
    after.remove(topology, given);
    prop_assert_eq!(&after, before);
    Ok(())
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_report_is_refused_or_of_use(
        (cells, threads) in (1_u32..5, prop::sample::select(vec![1_u32, 2, 4])),
        odds in prop::collection::vec(odd(), 0..4),
        wishes in prop::collection::vec(wish(), 3),
    ) {
        let mut wire = report(cells, threads);
        for odd in &odds {
            spoil_report(&mut wire, odd);
        }
        let report = match HostReport::try_from(wire) {
            Ok(report) => report,
            Err(invalid) => {
                let said = invalid.to_string();
                prop_assert!(!odds.is_empty(), "{}", said);
                prop_assert!(!said.is_empty() && said.len() < MESSAGE_LENGTH_MAX, "{}", said);
                return Ok(());
            }
        };
        prop_assert_eq!(&HostReport::try_from(WireReport::from(&report)).unwrap(), &report);
        let view = HostView::new(Arc::new(host(report)), []);
        for (topology, pci) in &wishes {
            let wish = ExactDemand { topology: Some(topology), pci, ..ExactDemand::default() };
            let Ok(given) = fit(view.ground(), &Guest::new(wish), Preference::Spread) else {
                continue;
            };
            prop_assert_eq!(verify(view.ground(), wish, &given), Ok(()));
            keeps_the_rules(&view.host.report.topology, &view.usage, &given)?;
        }
    }

    #[test]
    fn any_assignment_is_refused_or_keeps_the_rules(
        (cells, threads) in (1_u32..5, prop::sample::select(vec![1_u32, 2, 4])),
        (topology, pci) in wish(),
        (before, other_pci) in wish(),
        odds in prop::collection::vec(odd(), 1..4),
    ) {
        let report = HostReport::try_from(report(cells, threads)).unwrap();
        let shape = &report.topology;
        let mut usage = HostUsage::empty(shape);
        let outline = Outline::new(shape, &usage, &Limits::NONE);
        let ground = Ground { topology: shape, usage: &usage, outline: &outline };
        let other = Guest::new(ExactDemand { topology: Some(&before), pci: &other_pci, ..ExactDemand::default() });
        if let Ok(given) = fit(ground, &other, Preference::Spread) {
            usage.add(shape, &given);
        }
        let outline = Outline::new(shape, &usage, &Limits::NONE);
        let ground = Ground { topology: shape, usage: &usage, outline: &outline };
        let wish = ExactDemand { topology: Some(&topology), pci: &pci, ..ExactDemand::default() };
        let given = fit(ground, &Guest::new(wish), Preference::Spread).unwrap_or_default();
        let mut wire = wire::Assignment::from(&given);
        for odd in &odds {
            spoil_assignment(&mut wire, odd);
        }
        let changed = match Assignment::try_from(wire) {
            Ok(changed) => changed,
            Err(invalid) => {
                let said = invalid.to_string();
                prop_assert!(!said.is_empty() && said.len() < MESSAGE_LENGTH_MAX, "{}", said);
                return Ok(());
            }
        };
        // What agents and screens ask of any assignment.
        let _ = (changed.taken(), changed.pins(), changed.is_empty());
        let _: u64 = changed.cells.iter().map(|cell| cell.pages() / 8).sum();
        match verify(ground, wish, &changed) {
            Ok(()) => keeps_the_rules(shape, &usage, &changed)?,
            Err(refusal) => prop_assert!(refusal.to_string().len() < 4 * MESSAGE_LENGTH_MAX),
        }
    }
}
