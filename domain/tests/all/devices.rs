//! PCI functions of guests: the drawing of the socket policy, and what may move while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::claim::{self, Claim, Owner};
use berth_domain::constraint::Demand;
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::flavor::Flavor;
use berth_domain::host::{Host, HostReport, Liveness};
use berth_domain::id::{ClaimId, Generation, Incarnation, ProviderId, TimeMs};
use berth_domain::image::ImageProperties;
use berth_domain::name::{FlavorName, HostName, PciAliasName, VmName};
use berth_domain::numa::{
    Assignment, ExactDemand, Ground, Guest, HostUsage, Limits, Outline, Strategy, fit, verify,
};
use berth_domain::ownership::Ownership;
use berth_domain::pci::{
    LIVE_MIGRATABLE, PciAddress, PciAlias, PciDevice, PciId, PciKind, PciMatch, PciNumaPolicy,
    PciRequest,
};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::Trait;
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{BootSource, Disk, DiskFormat, VmSpec};
use uuid::Uuid;

/// Returns a cell of two CPUs of its own.
fn cell(id: u32, socket: u32) -> HostCell {
    let cpus = || CpuSet::from_iter([CpuId(2 * id), CpuId(2 * id + 1)]);
    HostCell {
        id: CellId(id),
        socket: Some(SocketId(socket)),
        shared: CpuSet::new(),
        dedicated: cpus(),
        cores: cpus().iter().map(|cpu| CpuSet::from_iter([cpu])).collect(),
        memory_mib: 1024,
        pages: vec![PagePool {
            size_kib: 4,
            total: 1024 * 256,
            reserved: 0,
        }],
    }
}

fn device(address: &str, product: u16, live_migratable: Option<&str>) -> PciDevice {
    let tag = live_migratable.map(|value| (LIVE_MIGRATABLE.to_owned(), value.to_owned()));
    PciDevice {
        address: address.parse().unwrap(),
        vendor: PciId(0x8086),
        product: PciId(product),
        cell: Some(CellId(0)),
        kind: PciKind::Pci,
        parent: None,
        tags: tag.into_iter().collect(),
    }
}

/// Returns the host of the drawing: N0 and N1 on socket 0, with the functions on N0; N2 and N3 on
/// socket 1.
fn drawn(devices: Vec<PciDevice>) -> HostTopology {
    let cells = [(0, 0), (1, 0), (2, 1), (3, 1)];
    let cells = cells.map(|(id, socket)| cell(id, socket)).to_vec();
    let distances =
        (0..4_usize).map(|row| (0..4).map(|c| if c == row { 10 } else { 20 }).collect());
    let topology = HostTopology::new(cells, distances.collect()).unwrap();
    topology.with_pci(devices).unwrap()
}

fn alias(policy: Option<PciNumaPolicy>, live_migratable: Option<&str>) -> PciAlias {
    let tag = live_migratable.map(|value| (LIVE_MIGRATABLE.to_owned(), value.to_owned()));
    PciAlias {
        name: PciAliasName::new("nic").unwrap(),
        any_of: vec![PciMatch {
            vendor: Some(PciId(0x8086)),
            tags: tag.into_iter().collect(),
            ..PciMatch::default()
        }],
        policy,
    }
}

/// Returns a VM of so many cells of two dedicated CPUs, and so many functions.
fn spec(cells: u32, functions: u32, alias: PciAlias) -> VmSpec {
    let specs = [
        ("hw:cpu_policy", "dedicated".to_owned()),
        ("hw:numa_nodes", cells.to_string()),
        ("pci_passthrough:alias", format!("nic:{functions}")),
    ];
    let flavor = Flavor {
        name: FlavorName::new("f").unwrap(),
        vcpus: 2 * cells,
        memory_mib: 64 * u64::from(cells),
        disk_gib: 1,
        extra_specs: specs.map(|(key, value)| (key.to_owned(), value)).into(),
        ownership: Ownership::default(),
    };
    let aliases = BTreeMap::from([(alias.name.clone(), alias)]);
    let requirements = flavor
        .requirements(&ImageProperties::default(), &aliases)
        .unwrap();
    VmSpec {
        hints: Default::default(),
        volumes: Vec::new(),
        flavor,
        boot: BootSource::Disk,
        disks: vec![Disk {
            image: Some("image.raw".to_owned()),
            format: DiskFormat::Raw,
            size_gib: 1,
            seed: false,
        }],
        nics: Vec::new(),
        image_properties: ImageProperties::default(),
        pci_aliases: aliases,
        topology: requirements.topology,
        cpu_shape: None,
        pci: requirements.pci,
    }
}

/// Goal: row S2. A guest of one cell fits on N0 and N1, one of two cells on every pair but N2 and
/// N3. Method: every choice of cells, all others being full; and the assignment is verified.
#[test]
fn the_drawing_of_the_socket_policy() {
    let topology = drawn(vec![device("0000:81:00.0", 0x1572, None)]);
    for (cells, may) in [
        (1, &[&[0][..], &[1]][..]),
        (2, &[&[0, 1][..], &[0, 2], &[0, 3], &[1, 2], &[1, 3]]),
    ] {
        let spec = spec(cells, 1, alias(Some(PciNumaPolicy::Socket), None));
        let demand = Demand::boot(&spec).unwrap();
        assert!(demand.required.contains(&Trait::socket_pci_numa_affinity()));
        for chosen in 0..16_u32 {
            let chosen: Vec<usize> = (0..4).filter(|cell| chosen >> cell & 1 == 1).collect();
            if chosen.len() != cells as usize {
                continue;
            }
            let mut usage = HostUsage::empty(&topology);
            for (at, cell) in usage.cells.iter_mut().enumerate() {
                if !chosen.contains(&at) {
                    cell.pinned = topology.cells()[at].dedicated.clone();
                }
            }
            let outline = Outline::new(&topology, &usage, &Limits::NONE);
            let ground = Ground {
                topology: &topology,
                usage: &usage,
                outline: &outline,
            };
            let demand = ExactDemand {
                topology: demand.topology.as_ref(),
                pci: &demand.pci,
                ..ExactDemand::default()
            };
            let fits = fit(ground, &Guest::new(demand), Strategy::Spread);
            assert_eq!(
                fits.is_ok(),
                may.contains(&&*chosen),
                "{chosen:?}: {fits:?}"
            );
            match fits {
                Ok(assignment) => {
                    let on: BTreeSet<_> = assignment.cells.iter().map(|c| c.host_cell).collect();
                    assert!(on.iter().map(|c| c.0 as usize).eq(chosen));
                    verify(ground, demand, &assignment).unwrap();
                }
                Err(refusal) => assert_eq!(refusal.cause(), "PCI_DEVICES", "{refusal}"),
            }
        }
    }
}

/// Goal: a refusal names each kind of function once. Method: three requests that differ in policy
/// alone, on a host without functions.
#[test]
fn requests_that_differ_in_policy_alone_are_named_once() {
    let topology = drawn(Vec::new());
    let mut spec = spec(1, 3, alias(None, None));
    let policies = [
        PciNumaPolicy::Required,
        PciNumaPolicy::Preferred,
        PciNumaPolicy::Legacy,
    ];
    let request = spec.pci[0].clone();
    let requests = policies.map(|policy| PciRequest {
        count: 1,
        policy,
        ..request.clone()
    });
    spec.pci = requests.to_vec();
    let usage = HostUsage::empty(&topology);
    let outline = Outline::new(&topology, &usage, &Limits::NONE);
    let ground = Ground {
        topology: &topology,
        usage: &usage,
        outline: &outline,
    };
    let demand = ExactDemand {
        topology: spec.topology.as_ref(),
        pci: &spec.pci,
        ..ExactDemand::default()
    };
    let refused = fit(ground, &Guest::new(demand), Strategy::Spread).unwrap_err();
    let (text, name) = (refused.to_string(), spec.pci[0].to_string());
    assert_eq!(text.matches(&name).count(), 1, "{text}");
}

fn source(devices: Vec<PciDevice>) -> Host {
    Host {
        name: HostName::new("h1").unwrap(),
        provider: ProviderId(Uuid::nil()),
        report: HostReport {
            networks: Vec::new(),
            agent_address: "http://127.0.0.1:1".to_owned(),
            incarnation: Incarnation(Uuid::nil()),
            service_version: ServiceVersion::CURRENT,
            driver: "sim".to_owned(),
            migration_uri: String::new(),
            topology: Arc::new(drawn(devices)),
            memory_reserved_mib: 0,
            disk_gib: 1,
            storage_id: "shared".to_owned(),
            platform: Default::default(),
            self_fence_ms: 0,
            regions: Vec::new(),
            cpu: None,
            traits: BTreeSet::new(),
        },
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
        registered_version: ServiceVersion::OLDEST,
    }
}

fn migration(spec: &VmSpec, devices: Vec<PciDevice>, given: &[&str]) -> Result<Demand, Refusal> {
    let given: BTreeSet<PciAddress> = given.iter().map(|a| a.parse().unwrap()).collect();
    let claim = Claim {
        id: ClaimId(Uuid::nil()),
        vm: VmName::new("a").unwrap(),
        owner: Owner::Vm,
        host: HostName::new("h1").unwrap(),
        state: claim::State::Active,
        resources: Default::default(),
        assignment: Assignment {
            pci: vec![given],
            ..Assignment::default()
        },
        erasures: Default::default(),
        cpu: None,
    };
    Demand::migration(spec, &claim, &source(devices))
}

/// Goal: a guest with functions moves while it runs only where alias and agent say so, and then
/// asks for the model that it has. Method: each side says it or not.
#[test]
fn only_functions_that_both_sides_call_movable_are_moved() {
    let (one, two) = ("0000:81:00.0", "0000:81:00.1");
    let devices = |tag| vec![device(one, 0x1572, tag), device(two, 0x154c, tag)];
    let (yes, no) = (Some("yes"), Some("no"));
    for (alias_says, agent_says, given, words) in [
        (yes, yes, &[one][..], None),
        (
            None,
            yes,
            &[one],
            Some("its alias nic does not say live_migratable=yes"),
        ),
        (
            no,
            no,
            &[one],
            Some("its alias nic does not say live_migratable=yes"),
        ),
        (
            yes,
            no,
            &[one],
            Some("the agent of host h1 does not say live_migratable of it"),
        ),
        (
            yes,
            None,
            &[two],
            Some("the agent of host h1 does not say live_migratable of it"),
        ),
        (
            yes,
            yes,
            &["0000:81:00.2"],
            Some("the agent of host h1 does not say"),
        ),
        (yes, yes, &[one, two], Some("not all are of one model")),
    ] {
        let count = u32::try_from(given.len()).unwrap();
        let spec = spec(1, count, alias(None, alias_says));
        let told = migration(&spec, devices(agent_says), given);
        match (told, words) {
            (Ok(demand), None) => {
                let wanted = &demand.pci[0].any_of[0];
                assert_eq!(wanted.product, Some(PciId(0x1572)));
                assert_eq!(wanted.tags, spec.pci[0].any_of[0].tags);
            }
            (Err(refusal), Some(words)) => {
                assert_eq!(refusal.code, Code::FailedPrecondition);
                assert_eq!(refusal.reason, "PCI_NOT_LIVE_MIGRATABLE");
                assert!(refusal.message.contains(words), "{refusal}");
            }
            (told, words) => panic!("{told:?}, expected {words:?}"),
        }
    }
}
