//! Clusters that are filled unevenly, from a seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::constraint::{Demand, Leaving, MoveKind, PreparedDemand};
use berth_domain::flavor::Flavor;
use berth_domain::host_view::HostView;
use berth_domain::id::ClaimId;
use berth_domain::image::ImageProperties;
use berth_domain::name::{FlavorName, VmName};
use berth_domain::numa::Strategy;
use berth_domain::ownership::Ownership;
use berth_domain::pci::PciAliases;
use berth_domain::version::ServiceVersion;
use berth_selection::{Fleet, FleetGuest, Rescue, capacity};
use berth_testkit::selection::hosts::{Shape, host, topology};
use berth_testkit::selection::mix;
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

    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number of the normal distribution.
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.part()).ln()).sqrt() * (std::f64::consts::TAU * self.part()).cos()
    }
}

/// What guests are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Their vCPUs float, and their memory is counted: nine sizes, 1:1:1:2:2:2:4:4:8.
    Floating,
    /// The same, with thousands of different amounts of memory.
    Distinct,
    /// The fifteen kinds of `benches/fleet/mix.rs`: pins, cells, pages, functions.
    Exact,
}

/// How much more likely a guest goes to one host than to another.
const SKEW: f64 = 0.5;
/// The part of memory that is taken where guests float.
const FILL: f64 = 0.55;

const PLAIN: Shape = Shape {
    cells: 2,
    cores: 12,
    threads: 2,
    shared_cores: 12,
    memory_gib: 64,
    pages_2m_gib: 0,
    pages_1g: 0,
};

/// Returns a cluster of so many hosts with ten times as many guests.
pub(crate) fn fleet(kind: Kind, count: usize, seed: u64) -> Fleet {
    filled(kind, count, 10, seed)
}

/// Returns a cluster of so many hosts of the exact kind, filled until a guest fits nowhere.
pub(crate) fn without_room(count: usize, seed: u64, demand: &Demand) -> Fleet {
    let fleets = (18..).map(|guests| filled(Kind::Exact, count, guests, seed));
    let mut full = fleets.filter(|fleet| {
        let left = capacity::fill(fleet, demand, Strategy::Pack);
        left.count == 0
    });
    full.next().expect("it is full some time")
}

fn filled(kind: Kind, count: usize, guests_a_host: usize, seed: u64) -> Fleet {
    let mut dice = Dice(seed);
    let machine = match kind {
        Kind::Floating | Kind::Distinct => Arc::new(topology(PLAIN)),
        Kind::Exact => Arc::new(mix::machine()),
    };
    let view = |n| HostView::new(Arc::new(host(&format!("host-{n:05}"), &machine)), []);
    let mut views: Vec<Arc<HostView>> = (0..count).map(|n| Arc::new(view(n))).collect();
    // By sums, so that a host is drawn by halving.
    let mut sums = Vec::new();
    let mut sum = 0.0;
    for _ in 0..count {
        sum += (SKEW * dice.normal()).exp();
        sums.push(sum);
    }
    let mut guests = Vec::new();
    for demand in demands(kind, count * guests_a_host, &mut dice) {
        let applicant = PreparedDemand::new(&demand);
        for _ in 0..100 {
            let drawn = dice.part() * sum;
            let at = sums.partition_point(|sum| *sum < drawn).min(count - 1);
            let Some(assignment) = applicant.try_place(&views[at], Strategy::Spread) else {
                continue;
            };
            let claim = claim(guests.len(), &views[at], &demand, assignment);
            Arc::make_mut(&mut views[at]).place(&claim);
            guests.push(guest(claim, demand));
            break;
        }
    }
    Fleet::new(&views, guests).expect("a good fleet")
}

fn demands(kind: Kind, count: usize, dice: &mut Dice) -> Vec<Demand> {
    let mut demands: Vec<Demand> = match kind {
        Kind::Floating | Kind::Distinct => {
            let sizes = [1, 1, 1, 2, 2, 2, 4, 4, 8];
            let memory_mib = (128.0 * 1024.0 * FILL / 10.0 * 9.0 / 25.0) as u64;
            let all = (0..count).map(|at| {
                let size: u64 = sizes[(dice.next() % 9) as usize];
                let more = match kind {
                    Kind::Distinct => at as u64 * memory_mib / count as u64,
                    Kind::Floating | Kind::Exact => 0,
                };
                floating(size as u32, size * memory_mib - more / 2)
            });
            all.collect()
        }
        Kind::Exact => {
            let kinds = mix::kinds("");
            let weights: u64 = kinds.iter().map(|k| u64::from(k.weight)).sum();
            let draw = |_| {
                let mut at = dice.next() % weights;
                let mut all = kinds.iter();
                let kind = all.find(|kind| {
                    let is_here = at < u64::from(kind.weight);
                    at = at.saturating_sub(u64::from(kind.weight));
                    is_here
                });
                kind.expect("the weights add up").demand.clone()
            };
            (0..count).map(draw).collect()
        }
    };
    // The greatest first, so that there is room for them.
    demands.sort_by_key(|demand| std::cmp::Reverse(demand.resources.values().sum::<u64>()));
    demands
}

fn floating(vcpus: u32, memory_mib: u64) -> Demand {
    floating_of(&capacity::Shape {
        memory_mib,
        disk_gib: 20 * u64::from(vcpus),
        vcpus,
    })
}

/// Returns what a guest of this shape demands whose vCPUs float.
pub(crate) fn floating_of(shape: &capacity::Shape) -> Demand {
    let flavor = Flavor {
        name: FlavorName::new("f").expect("a good name"),
        vcpus: shape.vcpus,
        memory_mib: shape.memory_mib,
        disk_gib: shape.disk_gib,
        extra_specs: BTreeMap::new(),
        ownership: Ownership::default(),
    };
    let requirements = flavor.requirements(&ImageProperties::default(), &PciAliases::new());
    let requirements = requirements.expect("a good flavor");
    Demand {
        networks: Vec::new(),
        resources: requirements.resources,
        topology: requirements.topology,
        pci: Vec::new(),
        pmem: Default::default(),
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

fn claim(
    number: usize,
    view: &HostView,
    demand: &Demand,
    assignment: berth_domain::numa::Assignment,
) -> Claim {
    Claim {
        id: ClaimId(Uuid::from_u64_pair(0, number as u64)),
        vm: VmName::new(&format!("vm-{number:06}")).expect("a good name"),
        owner: Owner::Vm,
        host: view.host.name.clone(),
        state: State::Active,
        resources: demand.resources.clone(),
        assignment,
        erasures: BTreeMap::default(),
        cpu: None,
    }
}

fn guest(claim: Claim, mut demand: Demand) -> FleetGuest {
    demand.leaving = Some(Leaving {
        kind: MoveKind::Live,
        host: claim.host.clone(),
        version: ServiceVersion::CURRENT,
        driver: "sim".to_owned(),
        storage_id: "s".to_owned(),
        has_disks: false,
        can_be_read: true,
    });
    FleetGuest {
        vm: claim.vm.clone(),
        claim: Arc::new(claim),
        also_on: Vec::new(),
        demand: Arc::new(demand),
        fixed: None,
        rescue: Rescue::Restart,
    }
}
