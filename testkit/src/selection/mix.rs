//! What arrives: hosts of one shape, guests of fifteen, and how long these stay.

use berth_domain::constraint::Demand;
use berth_domain::flavor::Flavor;
use berth_domain::image::ImageProperties;
use berth_domain::instance::EmulatorThreads;
use berth_domain::name::{FlavorName, PciAliasName};
use berth_domain::ownership::Ownership;
use berth_domain::pci::{PciAlias, PciAliases, PciDevice, PciId, PciKind, PciMatch};
use berth_domain::topology::{CellId, HostTopology};

use super::hosts::{Shape, topology};

/// Two sockets of four cells, eight cores of two threads each, two of the cores shared.
pub const SHAPE: Shape = Shape {
    cells: 8,
    cores: 8,
    threads: 2,
    shared_cores: 2,
    memory_gib: 64,
    pages_2m_gib: 16,
    pages_1g: 16,
};
/// The dedicated CPUs of such a host.
pub const DEDICATED: usize =
    (SHAPE.cells * (SHAPE.cores - SHAPE.shared_cores) * SHAPE.threads) as usize;

/// The share of guests that stay for an hour; the others stay for thirty days.
pub const SHORT_SHARE: f64 = 0.88;
/// The mean of the one kind of guests, in hours.
pub const SHORT_HOURS: f64 = 1.0;
/// The mean of the other.
pub const LONG_HOURS: f64 = 720.0;

const DEDICATED_POLICY: (&str, &str) = ("hw:cpu_policy", "dedicated");

/// Name, weight, vCPUs, MiB, extra specs.
type Row = (
    &'static str,
    u32,
    u32,
    u64,
    &'static [(&'static str, &'static str)],
);

const ROWS: &[Row] = &[
    ("s1", 26, 1, 2048, &[]),
    ("s2", 18, 2, 4096, &[]),
    ("s4", 8, 4, 8192, &[]),
    ("d2", 10, 2, 8192, &[DEDICATED_POLICY]),
    ("d4", 9, 4, 16384, &[DEDICATED_POLICY]),
    (
        "d8h",
        6,
        8,
        16384,
        &[DEDICATED_POLICY, ("hw:mem_page_size", "2MB")],
    ),
    (
        "d8g",
        3,
        8,
        8192,
        &[
            DEDICATED_POLICY,
            ("hw:mem_page_size", "1GB"),
            ("hw:cpu_thread_policy", "require"),
        ],
    ),
    (
        "d16n",
        4,
        16,
        65536,
        &[DEDICATED_POLICY, ("hw:numa_nodes", "2")],
    ),
    (
        "d32n",
        2,
        32,
        131_072,
        &[DEDICATED_POLICY, ("hw:numa_nodes", "4")],
    ),
    (
        "a12",
        2,
        12,
        24576,
        &[
            DEDICATED_POLICY,
            ("hw:numa_nodes", "2"),
            ("hw:numa_cpus.0", "0-3"),
            ("hw:numa_mem.0", "8192"),
            ("hw:numa_cpus.1", "4-11"),
            ("hw:numa_mem.1", "16384"),
        ],
    ),
    (
        "m8",
        3,
        8,
        16384,
        &[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "0-3")],
    ),
    (
        "e6",
        3,
        6,
        12288,
        &[DEDICATED_POLICY, ("hw:emulator_threads_policy", "isolate")],
    ),
    (
        "v4",
        4,
        4,
        8192,
        &[
            DEDICATED_POLICY,
            ("pci_passthrough:alias", "vf:1"),
            ("hw:pci_numa_affinity_policy", "socket"),
        ],
    ),
    (
        "v8",
        1,
        8,
        16384,
        &[
            DEDICATED_POLICY,
            ("pci_passthrough:alias", "vf:2"),
            ("hw:pci_numa_affinity_policy", "required"),
        ],
    ),
    (
        "g8",
        1,
        8,
        32768,
        &[
            DEDICATED_POLICY,
            ("pci_passthrough:alias", "gpu:1"),
            ("hw:pci_numa_affinity_policy", "preferred"),
        ],
    ),
];

/// A kind of guest.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Its name in what the benchmarks print.
    pub name: &'static str,
    /// How often it arrives, in relation to the others.
    pub weight: u32,
    /// Its vCPUs.
    pub vcpus: u32,
    /// What it takes of a host.
    pub demand: Demand,
}

/// Returns all kinds of guests. Those with CPUs of their own that do not say which pages they want
/// ask for these, if any.
pub fn kinds(pages: &str) -> Vec<Kind> {
    let kind = |&(name, weight, vcpus, memory_mib, specs): &Row| Kind {
        name,
        weight,
        vcpus,
        demand: demand(vcpus, memory_mib, specs, pages),
    };
    ROWS.iter().map(kind).collect()
}

impl Kind {
    /// Returns the dedicated CPUs that such a guest takes.
    pub fn dedicated(&self) -> u32 {
        let cells = self.demand.topology.iter().flat_map(|t| &t.cells);
        let vcpus: usize = cells.map(|cell| cell.dedicated.len()).sum();
        let isolates = self
            .demand
            .topology
            .as_ref()
            .is_some_and(|topology| topology.emulator_threads == EmulatorThreads::Isolate);
        u32::try_from(vcpus).expect("few") + u32::from(isolates)
    }
}

/// Returns guests of which the decision is measured.
pub fn measured() -> Vec<Kind> {
    let near = ("hw:pci_numa_affinity_policy", "socket");
    let pages = ("hw:mem_page_size", "2MB");
    let one = ("pci_passthrough:alias", "vf:1");
    let kind = |name, vcpus, memory_mib, specs: &[(&str, &str)]| Kind {
        name,
        weight: 0,
        vcpus,
        demand: demand(vcpus, memory_mib, specs, ""),
    };
    let two = ("hw:numa_nodes", "2");
    let four = ("hw:numa_nodes", "4");
    let pins = DEDICATED_POLICY;
    vec![
        kind("floating", 2, 4096, &[]),
        kind("4 pins", 4, 8192, &[pins]),
        kind("8 pins, 2 MiB pages", 8, 16384, &[pins, pages]),
        kind(
            "4 pins, 2 MiB pages, a function on the socket",
            4,
            8192,
            &[pins, pages, one, near],
        ),
        kind(
            "8 pins in 2 cells, 2 MiB pages, a function on the socket",
            8,
            8192,
            &[pins, pages, one, near, two],
        ),
        kind(
            "48 pins in 4 cells: hardly ever fits",
            48,
            65536,
            &[pins, four],
        ),
        kind(
            "4 pins, 16 functions",
            4,
            8192,
            &[
                pins,
                ("pci_passthrough:alias", "vf:16"),
                ("hw:pci_numa_affinity_policy", "required"),
            ],
        ),
    ]
}

/// Returns a guest that fits nowhere, since it wants more of a cell than any has.
pub fn impossible() -> Kind {
    Kind {
        name: "impossible",
        weight: 0,
        vcpus: 13,
        demand: demand(13, 8192, &[DEDICATED_POLICY], ""),
    }
}

/// Returns the flavors of all kinds of guests with their weights, as [`kinds`] has them.
pub fn flavors() -> Vec<(u32, Flavor)> {
    let each = ROWS
        .iter()
        .map(|&(name, weight, vcpus, memory_mib, specs)| {
            (weight, flavor(name, (vcpus, memory_mib), specs, ""))
        });
    each.collect()
}

fn demand(vcpus: u32, memory_mib: u64, specs: &[(&str, &str)], pages: &str) -> Demand {
    let flavor = flavor("f", (vcpus, memory_mib), specs, pages);
    let requirements = flavor.requirements(&ImageProperties::default(), &aliases());
    let requirements = requirements.expect("a good flavor");
    Demand {
        networks: Vec::new(),
        resources: requirements.resources,
        topology: requirements.topology,
        pci: requirements.pci,
        required: Default::default(),
        forbidden: Default::default(),
        leaving: None,
        group: None,
        volumes: Vec::new(),
        zone: None,
        aggregate_specs: Default::default(),
        platform: Default::default(),
        has_seed: false,
        cpu: berth_domain::cpu_model::CpuDemand::HostDefault,
        pmem: Default::default(),
    }
}

fn flavor(
    name: &str,
    (vcpus, memory_mib): (u32, u64),
    specs: &[(&str, &str)],
    pages: &str,
) -> Flavor {
    let mut flavor = Flavor {
        name: FlavorName::new(name).expect("a good name"),
        vcpus,
        memory_mib,
        disk_gib: 0,
        extra_specs: specs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        ownership: Ownership::default(),
    };
    if !specs.is_empty() && !pages.is_empty() {
        let spec = flavor.extra_specs.entry("hw:mem_page_size".to_owned());
        spec.or_insert_with(|| pages.to_owned());
    }
    flavor
}

/// Returns the aliases of PCI functions that the guests name.
pub fn aliases() -> PciAliases {
    let alias = |name: &str, vendor, product, kind| {
        let name = PciAliasName::new(name).expect("a good name");
        let any_of = vec![PciMatch {
            vendor: Some(PciId(vendor)),
            product: Some(PciId(product)),
            kind: Some(kind),
            ..PciMatch::default()
        }];
        let policy = None;
        (
            name.clone(),
            PciAlias {
                name,
                any_of,
                policy,
            },
        )
    };
    [
        alias("vf", 0x8086, 0x154c, PciKind::Virtual),
        alias("gpu", 0x10de, 0x20b0, PciKind::Pci),
    ]
    .into()
}

/// Returns the shape of the hosts: eight virtual functions each at cells 1 and 5, two accelerators
/// at cell 3.
pub fn machine() -> HostTopology {
    let devices = |cell, vendor, product, kind, count: u32| {
        (0..count).map(move |n| PciDevice {
            address: format!("0000:{:02x}:{:02x}.{}", 0x10 + cell, n / 8, n % 8)
                .parse()
                .expect("a good address"),
            vendor: PciId(vendor),
            product: PciId(product),
            cell: Some(CellId(cell)),
            kind,
            parent: None,
            tags: Default::default(),
        })
    };
    let all = devices(1, 0x8086, 0x154c, PciKind::Virtual, 8)
        .chain(devices(5, 0x8086, 0x154c, PciKind::Virtual, 8))
        .chain(devices(3, 0x10de, 0x20b0, PciKind::Pci, 2));
    topology(SHAPE)
        .with_pci(all.collect())
        .expect("a good host")
}
