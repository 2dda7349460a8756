//! Whole states of any size: hosts of several NUMA nodes that are filled with running VMs, and the work
//! that goes on there.
//!
//! A few hosts are filled by commands, as a cluster fills them; their rows are copied for all other
//! hosts under names and ids of their own. Then commands begin operations on some hosts. So the time is
//! proportional to the size, and what is copied is what commands write.
//!
//! Not here: small clusters that are checked after each command ([`World`]).
//!
//! Invariant: equal sizes with equal seeds give equal states, which pass [`State::check`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use berth_domain::agent::DomainState;
use berth_domain::aggregate::Aggregate;
use berth_domain::audit::RequestSummary;
use berth_domain::claim::Claim;
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::host::{Host, HostReport};
use berth_domain::id::{
    AggregateId, ClaimId, ClusterId, ConsumerId, Generation, ProviderId, TimeMs, VmUid,
};
use berth_domain::image::ImageProperties;
use berth_domain::name::{AggregateName, HostName, PciAliasName, VmName};
use berth_domain::ownership::ProjectName;
use berth_domain::pci::{PciAlias, PciAliases, PciDevice, PciId, PciKind, PciMatch};
use berth_domain::provider::ResourceProvider;
use berth_domain::reality::Unknown;
use berth_domain::recovery::ReportedGuest;
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{Nic, Vm, VmSpec};
use berth_state::command::{Command, ConsumerUpdate};
use berth_state::{Row, State};
use uuid::Uuid;

use super::placement::{self, class};
use super::{World, flavor, host_name, report, vm_name};

/// How many different hosts are filled by commands.
const TEMPLATES: u64 = 16;
/// How many hosts are in one aggregate.
const AGGREGATE_HOSTS: u64 = 100;
/// On how many hosts at most operations are in progress.
const ACTIVE_HOSTS_MAX: u64 = 200;
/// The name of a host that is copied.
const TEMPLATE: &str = "template";
/// The projects that VMs belong to.
const PROJECTS: u64 = 50;

/// How large a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of hosts, each of 4 NUMA nodes.
    pub hosts: u64,
    /// The number of VMs that run on each host, up to about 40.
    pub vms_per_host: u64,
    /// Which of all states of this size.
    pub seed: u64,
    /// The cluster version. A cluster before [`ServiceVersion::BOUNDED_RECORDS`] may have more VMs than
    /// others.
    pub version: ServiceVersion,
}

/// Returns the name of a host.
#[must_use]
pub fn host(number: u64) -> HostName {
    host_name(&format!("h{number:06}"))
}

/// Returns the name of a VM that runs; each host has a range of numbers.
#[must_use]
pub fn vm(number: u64) -> VmName {
    vm_name(&format!("vm{number:08}"))
}

/// Returns a state of this size: its hosts and VMs, and beside them VMs that boot or are migrated,
/// aggregates, resource providers with consumers, and entries of the audit.
///
/// # Panics
///
/// More VMs are requested than a host has capacity for.
#[must_use]
pub fn state(size: Size) -> State {
    let count = TEMPLATES.min(size.hosts).max(1);
    let templates: Vec<State> = (0..count).map(|n| template(size, n)).collect();
    let common = templates[0].rows().filter(is_common);
    let mut numbers = Numbers(size.seed);
    let copies = (0..size.hosts).flat_map(|number| {
        let drawn = usize::try_from(numbers.next() % count).expect("there are few");
        Copy { size, number }.rows(&templates[drawn])
    });
    let state = State::from_rows(common.chain(copies)).expect("the rows belong together");
    let mut world = World::of(state).without_checks();
    work(&mut world, size);
    world.state
}

/// Returns the guests of a host as its agent reports them when the state is true.
pub fn guests<'s>(state: &'s State, host: &HostName) -> impl Iterator<Item = ReportedGuest> + 's {
    let host = host.clone();
    let claims: Vec<_> = state.claims_of_host(&host).cloned().collect();
    claims.into_iter().filter_map(move |claim| {
        let vm = state.vm(&claim.vm).filter(|_| claim.is_active())?;
        Some(ReportedGuest {
            domain: Unknown {
                uuid: vm.uid.0,
                name: vm.name.to_string(),
                is_ours: true,
                claim: Some(claim.id),
                held: claim.assignment.clone(),
            },
            state: DomainState::Running,
            spec: None,
        })
    })
}

/// Numbers that look random (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }
}

/// Gives each number another one.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Returns an id that no other number of the kind has, in no order, as random ids have none. The first
/// byte keeps it apart from those of [`super::uuid`].
fn id(kind: u8, number: u64) -> Uuid {
    let low = mix(number);
    let high = (u64::from(0x80 | kind) << 56) | (mix(low ^ u64::from(kind)) >> 8);
    Uuid::from_u64_pair(high, low)
}

/// Returns whether a row is of no host, so that all templates have it.
fn is_common(row: &Row) -> bool {
    !matches!(
        row,
        Row::Host(_)
            | Row::Provider(_)
            | Row::Vm(_)
            | Row::Claim(_)
            | Row::Operation(_)
            | Row::Migration(_)
            | Row::Request(_)
    )
}

/// The shape of all hosts: two sockets of two NUMA nodes with 16 cores each, a quarter of them shared,
/// and eight virtual functions at each socket.
fn machine() -> HostTopology {
    let cell = |id: u32| {
        let core = |number: u32| -> CpuSet {
            let first = id * 32 + number * 2;
            [CpuId(first), CpuId(first + 1)].into_iter().collect()
        };
        let join = |cores: &[CpuSet]| cores.iter().fold(CpuSet::new(), |all, c| all.union(c));
        let cores: Vec<CpuSet> = (0..16).map(core).collect();
        let (shared, dedicated) = cores.split_at(4);
        let pool = |size_kib, gib: u64| PagePool {
            size_kib,
            total: gib * 1024 * 1024 / size_kib,
            reserved: 0,
        };
        HostCell {
            id: CellId(id),
            socket: Some(SocketId(id / 2)),
            shared: join(shared),
            dedicated: join(dedicated),
            memory_mib: 128 * 1024,
            pages: vec![pool(4, 64), pool(2048, 64)],
            cores,
        }
    };
    let distance = |a: u32, b: u32| match (a == b, a / 2 == b / 2) {
        (true, _) => 10,
        (false, true) => 12,
        (false, false) => 21,
    };
    let distances = (0..4).map(|a| (0..4).map(|b| distance(a, b)).collect());
    let function = |number: u32| PciDevice {
        address: format!("0000:{:02x}:00.{}", 0x10 + number / 8, number % 8)
            .parse()
            .expect("an address"),
        vendor: PciId(0x8086),
        product: PciId(0x154c),
        cell: Some(CellId(number / 8 * 2)),
        kind: PciKind::Virtual,
        parent: None,
        tags: BTreeMap::new(),
    };
    HostTopology::new((0..4).map(cell).collect(), distances.collect())
        .expect("a topology")
        .with_pci((0..16).map(function).collect())
        .expect("functions at its NUMA nodes")
}

fn alias() -> PciAlias {
    PciAlias {
        name: PciAliasName::new("vf").expect("a name"),
        any_of: vec![PciMatch {
            vendor: Some(PciId(0x8086)),
            product: Some(PciId(0x154c)),
            ..PciMatch::default()
        }],
        policy: None,
    }
}

/// Returns the specifications of VMs, the smallest first, and of a hundred VMs how many have each.
fn kinds() -> Vec<(u64, VmSpec)> {
    let pins = ("hw:cpu_policy", "dedicated");
    let pages = ("hw:mem_page_size", "2MB");
    let nodes = ("hw:numa_nodes", "2");
    let function = ("pci_passthrough:alias", "vf:1");
    /// The share, the name, vCPUs, MiB, and extra specs.
    type Kind<'k> = (u64, &'k str, u32, u64, &'k [(&'k str, &'k str)]);
    let rows: [Kind<'_>; 6] = [
        (30, "s1", 1, 2_048, &[]),
        (20, "s2", 2, 4_096, &[]),
        (30, "d2", 2, 4_096, &[pins]),
        (8, "d4h", 4, 8_192, &[pins, pages]),
        (6, "n8h", 8, 16_384, &[pins, pages, nodes]),
        (6, "v4", 4, 8_192, &[pins, function]),
    ];
    let kind = |(share, name, vcpus, memory_mib, extra)| {
        let aliases: PciAliases = [(alias().name, alias())].into();
        let flavor = flavor(name, vcpus, memory_mib, extra);
        let needs = flavor.requirements(&ImageProperties::default(), &aliases);
        let needs = needs.expect("a good flavor");
        let uses_alias = extra.contains(&function);
        let spec = VmSpec {
            topology: needs.topology,
            pci: needs.pci,
            pci_aliases: aliases.into_iter().filter(|_| uses_alias).collect(),
            ..super::spec(super::flavor(name, vcpus, memory_mib, &[]))
        };
        (share, VmSpec { flavor, ..spec })
    };
    rows.into_iter().map(kind).collect()
}

/// Returns a host that commands have filled.
fn template(size: Size, number: u64) -> State {
    let mut world = World::default().without_checks();
    let kinds = kinds();
    let cluster = ClusterId(id(1, size.seed));
    let mut prepare = vec![
        Command::Bootstrap { cluster },
        Command::FinalizeUpgrade {
            version: size.version,
            gone: Default::default(),
        },
        Command::CreatePciAlias(alias()),
    ];
    prepare.extend((kinds.iter()).map(|(_, spec)| Command::CreateFlavor(spec.flavor.clone())));
    for command in prepare {
        world.run(command).expect("the cluster is new");
    }
    let shape = HostReport {
        disk_gib: 10_000,
        ..report(machine())
    };
    world.register(TEMPLATE, shape).expect("the host is new");
    let mut numbers = Numbers(size.seed ^ mix(number));
    for slot in 0..size.vms_per_host {
        let drawn = draw(&kinds, numbers.next() % 100);
        fill(&mut world, &format!("vm{slot}"), &kinds, drawn);
    }
    world.state
}

/// Returns which kind the VM with this number of a hundred is of.
fn draw(kinds: &[(u64, VmSpec)], percent: u64) -> usize {
    let mut below = 0;
    let drawn = kinds.iter().position(|(share, _)| {
        below += share;
        percent < below
    });
    drawn.expect("the shares are a hundred in all")
}

/// Boots a VM of this kind, or of the next one for which the host has capacity.
fn fill(world: &mut World, name: &str, kinds: &[(u64, VmSpec)], drawn: usize) {
    let in_turn = kinds.iter().cycle().skip(drawn).take(kinds.len());
    for (_, spec) in in_turn {
        if boots(world, name, spec, TEMPLATE) {
            return;
        }
    }
    panic!("a host has no capacity for {name}");
}

/// Boots a VM, unless the host has no capacity for it.
fn boots(world: &mut World, name: &str, spec: &VmSpec, host: &str) -> bool {
    use berth_domain::operation::{Mark, Step};
    use berth_state::command::Effect;
    let Ok(operation) = world.begin_boot(name, spec, host) else {
        return false;
    };
    let started = world.log(operation, Step::Spawn, Mark::Started);
    started.expect("the boot goes on");
    world
        .advance(
            operation,
            Step::Spawn,
            Mark::Succeeded,
            Effect::CompleteBoot,
        )
        .expect("the boot goes on");
    true
}

/// A host that is copied from a template.
#[derive(Clone, Copy)]
struct Copy {
    size: Size,
    number: u64,
}

impl Copy {
    fn rows(self, template: &State) -> Vec<Row> {
        let view = template
            .host(&host_name(TEMPLATE))
            .expect("a template is a host");
        let mut rows = vec![self.host(&view.host)];
        rows.extend(template.providers().values().map(|p| self.provider(p)));
        let first = self.number * self.size.vms_per_host;
        for (slot, old) in (0..).zip(template.vms().values()) {
            let number = first + slot;
            let claim = old.claim.and_then(|claim| template.claim(claim));
            let claim = claim.expect("a VM of a template runs");
            rows.push(self.vm(number, old));
            rows.push(self.claim(number, claim));
        }
        rows
    }

    fn root(self) -> ProviderId {
        ProviderId(id(2, self.number))
    }

    fn host(self, old: &Host) -> Row {
        let name = host(self.number);
        Row::Host(Arc::new(Host {
            provider: self.root(),
            report: HostReport {
                migration_uri: format!("sim://{name}"),
                ..old.report.clone()
            },
            name,
            ..old.clone()
        }))
    }

    fn provider(self, old: &ResourceProvider) -> Row {
        assert!(old.is_root(), "a template has one provider");
        let name = host(self.number);
        Row::Provider(Arc::new(ResourceProvider {
            id: self.root(),
            root: self.root(),
            name: name.to_string(),
            host: Some(name),
            ..old.clone()
        }))
    }

    fn vm(self, number: u64, old: &Vm) -> Row {
        let mut row = Vm {
            name: vm(number),
            uid: VmUid(id(4, number)),
            host: Some(host(self.number)),
            claim: Some(ClaimId(id(3, number))),
            ..old.clone()
        };
        let [.., a, b, c, d] = number.to_be_bytes();
        row.spec.nics = vec![Nic {
            network: None,
            bridge: "br0".to_owned(),
            mac: format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}"),
        }];
        let project = format!("project{}", number % PROJECTS);
        row.ownership.project = Some(ProjectName::new(&project).expect("a label"));
        Row::Vm(Arc::new(row))
    }

    fn claim(self, number: u64, old: &Claim) -> Row {
        Row::Claim(Arc::new(Claim {
            id: ClaimId(id(3, number)),
            vm: vm(number),
            host: host(self.number),
            ..old.clone()
        }))
    }
}

/// Begins operations, and makes what belongs to no single host.
fn work(world: &mut World, size: Size) {
    world.summary = Some(Box::new(RequestSummary {
        method: "ScheduleVm".to_owned(),
        request_id: None,
        vm: None,
        host: None,
        summary: "flavor=d2".to_owned(),
        choice: None,
    }));
    for number in 0..size.hosts.div_ceil(AGGREGATE_HOSTS) {
        let first = number * AGGREGATE_HOSTS;
        let last = (first + AGGREGATE_HOSTS).min(size.hosts);
        group(world, number, first..last);
    }
    let spec = super::pinned(2);
    for number in 0..size.hosts.min(ACTIVE_HOSTS_MAX) {
        let here = host(number).to_string();
        // What a full host refuses is left out.
        let _ = world.begin_boot(&format!("booting{number}"), &spec, &here);
        if boots(world, &format!("short{number}"), &spec, &here) {
            world.delete(&format!("short{number}"));
        }
        let other = host((number + 1) % size.hosts).to_string();
        if size.vms_per_host > 0 && size.hosts > 1 {
            let moving = vm(number * size.vms_per_host).to_string();
            let _ = world.begin_migration(&moving, &other);
        }
    }
    world.summary = None;
}

/// Makes an aggregate of hosts, and storage that consumers take from, two for each host.
fn group(world: &mut World, number: u64, hosts: Range<u64>) {
    let consumers = (hosts.end - hosts.start) * 2;
    let aggregate = Aggregate {
        name: AggregateName::new(&format!("rack{number}")).expect("a name"),
        id: AggregateId(id(5, number)),
        hosts: hosts.map(host).collect(),
        metadata: [("rack".to_owned(), number.to_string())].into(),
        generation: Generation(0),
        created_at: TimeMs(0),
    };
    let provider = placement::provider(number);
    for command in [
        Command::CreateAggregate(aggregate),
        placement::create(number, None),
        placement::inventories(number, 0, &[("DISK_GB", 1_000_000)]),
    ] {
        world.run(command).expect("the aggregate is new");
    }
    let consumers = (0..consumers).map(|slot| ConsumerUpdate {
        consumer: ConsumerId(id(6, number * AGGREGATE_HOSTS * 2 + slot)),
        allocations: [(provider, [(class("DISK_GB"), 10)].into())].into(),
        ..placement::update(0, None, &[])
    });
    let consumers = consumers.collect();
    world
        .run(Command::SetAllocations { consumers })
        .expect("there is storage");
}
