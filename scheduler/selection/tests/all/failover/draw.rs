//! Small random clusters: hosts of two cells of four CPUs, guests of up to two cells.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::constraint::{Demand, Leaving, MoveKind, PreparedDemand};
use berth_domain::flavor::Flavor;
use berth_domain::host_view::HostView;
use berth_domain::id::ClaimId;
use berth_domain::image::ImageProperties;
use berth_domain::name::{FlavorName, HostName, PmemName, ServerGroupName, VmName};
use berth_domain::numa::Strategy;
use berth_domain::ownership::Ownership;
use berth_domain::pci::{
    PciAliases, PciDevice, PciId, PciKind, PciMatch, PciNumaPolicy, PciRequest,
};
use berth_domain::pmem::{PmemDemand, PmemNamespace, PmemNumaPolicy, PmemRequest};
use berth_domain::resource::ResourceClass;
use berth_domain::server_group::{GroupDemand, GroupPolicy};
use berth_domain::topology::{CellId, HostTopology};
use berth_domain::version::ServiceVersion;
use berth_selection::{Fleet, FleetGuest, Rescue};
use berth_testkit::selection::hosts::{Shape, host, topology};
use uuid::Uuid;

/// The generator of all that is random: splitmix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// vCPUs, MiB, extra specs.
type Row = (u32, u64, &'static [(&'static str, &'static str)]);

const DEDICATED: (&str, &str) = ("hw:cpu_policy", "dedicated");
const ONE: (&str, &str) = ("hw:mem_page_size", "1GB");
const TWO: (&str, &str) = ("hw:numa_nodes", "2");

/// Two cells of four dedicated CPUs, a function and a namespace at each.
fn machine() -> HostTopology {
    let shape = Shape {
        cells: 2,
        cores: 5,
        threads: 1,
        shared_cores: 1,
        memory_gib: 8,
        pages_2m_gib: 2,
        pages_1g: 2,
    };
    let function = |cell: u32| PciDevice {
        address: format!("0000:8{cell}:00.1").parse().unwrap(),
        vendor: PciId(0x8086),
        product: PciId(0x154c),
        cell: Some(CellId(cell)),
        kind: PciKind::Virtual,
        parent: None,
        tags: BTreeMap::default(),
    };
    let namespace = |cell: u32| PmemNamespace {
        name: PmemName::new(&format!("ns{cell}")).unwrap(),
        class: pmem(),
        size_bytes: 1 << 30,
        align_bytes: 1 << 21,
        cell: Some(CellId(cell)),
        region: String::new(),
        path: format!("/dev/dax{cell}.0"),
        trouble: String::new(),
    };
    let all = topology(shape).with_pci((0..2).map(function).collect());
    let all = all.unwrap().with_pmem((0..2).map(namespace).collect());
    all.unwrap()
}

fn pmem() -> ResourceClass {
    ResourceClass::new("CUSTOM_PMEM_NAMESPACE_1G").unwrap()
}

fn plain(vcpus: u32, memory_mib: u64, specs: &[(&str, &str)]) -> Demand {
    let specs = specs.iter();
    let flavor = Flavor {
        name: FlavorName::new("f").unwrap(),
        vcpus,
        memory_mib,
        disk_gib: 0,
        extra_specs: specs.map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        ownership: Ownership::default(),
    };
    let requirements = flavor.requirements(&ImageProperties::default(), &PciAliases::new());
    let requirements = requirements.unwrap();
    Demand {
        networks: Vec::new(),
        resources: requirements.resources,
        topology: requirements.topology,
        pci: Vec::new(),
        pmem: PmemDemand::NONE,
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
    }
}

/// Returns what a guest demands.
pub(crate) fn demand(dice: &mut Dice) -> Demand {
    let kinds: &[Row] = &[
        (1, 1024, &[]),
        (2, 2048, &[]),
        (1, 1024, &[DEDICATED]),
        (2, 2048, &[DEDICATED]),
        (3, 1024, &[DEDICATED]),
        (4, 2048, &[DEDICATED]),
        (2, 1024, &[DEDICATED, ONE]),
        (2, 2048, &[DEDICATED, ONE]),
        (2, 2048, &[DEDICATED, ONE, TWO]),
        (4, 2048, &[DEDICATED, TWO]),
        (6, 4096, &[DEDICATED, TWO]),
        (2, 1024, &[DEDICATED, ("hw:mem_page_size", "2MB")]),
        (1, 1024, &[("hw:mem_page_size", "any")]),
    ];
    let &(vcpus, memory_mib, specs) = dice.pick(kinds);
    let mut demand = plain(vcpus, memory_mib, specs);
    if demand.topology.is_some() && dice.below(4) == 0 {
        demand.pci = vec![PciRequest {
            count: 1 + dice.below(2) as u32,
            any_of: vec![PciMatch {
                vendor: Some(PciId(0x8086)),
                ..PciMatch::default()
            }],
            policy: *dice.pick(&[PciNumaPolicy::Required, PciNumaPolicy::Preferred]),
        }];
    }
    if demand.topology.is_some() && dice.below(4) == 0 {
        let request = PmemRequest {
            class: pmem(),
            shape: None,
        };
        demand.pmem = PmemDemand {
            requests: vec![request],
            policy: *dice.pick(&[PmemNumaPolicy::Required, PmemNumaPolicy::Preferred]),
        };
        demand.resources.insert(pmem(), 1);
    }
    demand
}

/// Hosts with their guests, and what was drawn.
pub(crate) struct Cluster {
    pub(crate) dice: Dice,
    pub(crate) hosts: Vec<Arc<HostView>>,
    pub(crate) guests: Vec<FleetGuest>,
    groups: Vec<GroupDemand>,
}

impl Cluster {
    /// Returns hosts without guests.
    pub(crate) fn new(seed: u64, hosts: usize) -> Self {
        let machine = Arc::new(machine());
        let view = |n| HostView::new(Arc::new(host(&format!("h{n}"), &machine)), []);
        let group = |(name, policy, limit): (&str, GroupPolicy, u32)| GroupDemand {
            name: ServerGroupName::new(name).unwrap(),
            policy,
            limit,
            hosts: BTreeMap::new(),
            is_separated: false,
        };
        Self {
            dice: Dice(seed),
            hosts: (0..hosts).map(|n| Arc::new(view(n))).collect(),
            guests: Vec::new(),
            groups: [
                ("apart", GroupPolicy::AntiAffinity, 1),
                ("together", GroupPolicy::Affinity, 0),
            ]
            .map(group)
            .into(),
        }
    }

    /// Tries to bring in so many guests, each on a random host.
    pub(crate) fn fill(&mut self, guests: usize) {
        for _ in 0..guests {
            self.arrive();
        }
    }

    /// Tries to bring in a guest on a random host; returns where.
    pub(crate) fn arrive(&mut self) -> Option<HostName> {
        let mut demand = demand(&mut self.dice);
        if self.dice.below(5) == 0 {
            let group = self.dice.pick(&self.groups).clone();
            let hosts = self.members(&group.name);
            demand.group = Some(GroupDemand { hosts, ..group });
        }
        let at = self.dice.below(self.hosts.len());
        let strategy = *self.dice.pick(&[Strategy::Spread, Strategy::Pack]);
        let assignment = PreparedDemand::new(&demand).try_place(&self.hosts[at], strategy)?;
        let host = Arc::clone(&self.hosts[at].host);
        let id = self.dice.next();
        let claim = Claim {
            id: ClaimId(Uuid::from_u64_pair(0, id)),
            vm: VmName::new(&format!("v{id:016x}")).unwrap(),
            owner: Owner::Vm,
            host: host.name.clone(),
            state: State::Active,
            resources: demand.resources.clone(),
            assignment,
            erasures: BTreeMap::default(),
            cpu: None,
        };
        Arc::make_mut(&mut self.hosts[at]).place(&claim);
        demand.leaving = Some(Leaving {
            kind: MoveKind::Cold { may_stay: false },
            host: host.name.clone(),
            version: ServiceVersion::CURRENT,
            driver: "sim".to_owned(),
            storage_id: "s".to_owned(),
            has_disks: false,
            can_be_read: false,
        });
        self.guests.push(FleetGuest {
            vm: claim.vm.clone(),
            claim: Arc::new(claim),
            also_on: Vec::new(),
            demand: Arc::new(demand),
            fixed: None,
            rescue: Rescue::Restart,
        });
        Some(host.name.clone())
    }

    /// Takes a random guest away; returns where it was.
    pub(crate) fn depart(&mut self) -> Option<HostName> {
        if self.guests.is_empty() {
            return None;
        }
        let guest = self.guests.swap_remove(self.dice.below(self.guests.len()));
        let view = self.hosts.iter_mut();
        let mut view = view.filter(|view| view.host.name == guest.claim.host);
        Arc::make_mut(view.next().unwrap()).release(&guest.claim);
        Some(guest.claim.host.clone())
    }

    /// Takes the guest away that came last.
    pub(crate) fn leave_last(&mut self) {
        let guest = self.guests.pop().unwrap();
        let mut views = self.hosts.iter_mut();
        let view = views.find(|view| view.host.name == guest.claim.host);
        Arc::make_mut(view.unwrap()).release(&guest.claim);
    }

    /// Cordons a random host, or opens it again; returns which.
    pub(crate) fn turn_over(&mut self) -> HostName {
        let at = self.dice.below(self.hosts.len());
        let view = Arc::make_mut(&mut self.hosts[at]);
        let mut host = (*view.host).clone();
        host.cordoned = !host.cordoned;
        view.set_host(Arc::new(host));
        view.host.name.clone()
    }

    /// Brings in a host without guests.
    pub(crate) fn new_host(&mut self, name: &HostName) -> Arc<HostView> {
        let topology = Arc::new(machine());
        let view = Arc::new(HostView::new(Arc::new(host(name.as_str(), &topology)), []));
        self.hosts.push(Arc::clone(&view));
        view
    }

    fn members(&self, group: &ServerGroupName) -> BTreeMap<HostName, u32> {
        let mut hosts = BTreeMap::new();
        for guest in &self.guests {
            if guest.group().is_some_and(|own| own.name == *group) {
                *hosts.entry(guest.claim.host.clone()).or_default() += 1;
            }
        }
        hosts
    }

    pub(crate) fn fleet(&self) -> Fleet {
        Fleet::new(&self.hosts, self.guests.iter().cloned()).unwrap()
    }

    /// Returns a host with its guests.
    pub(crate) fn host(&self, name: &HostName) -> (&Arc<HostView>, Vec<FleetGuest>) {
        let mut hosts = self.hosts.iter();
        let view = hosts.find(|view| view.host.name == *name).unwrap();
        let here = self.guests.iter().filter(|g| g.claim.host == *name);
        (view, here.cloned().collect())
    }
}
