//! How many more guests fit.

use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::{Demand, PreparedDemand};
use berth_domain::flavor::Flavor;
use berth_domain::host_view::HostView;
use berth_domain::image::ImageProperties;
use berth_domain::name::FlavorName;
use berth_domain::numa::Strategy;
use berth_domain::ownership::Ownership;
use berth_domain::pci::PciAliases;
use berth_selection::Fleet;
use berth_selection::capacity::{Least, Shape, Steps, after_failures, fill, tiered};
use berth_selection::failover::{self, Domain, Verdict};
use berth_testkit::selection::hosts;

use crate::failover::draw::{self, Cluster};

const PACK: Strategy = Strategy::Pack;

/// Places guests one by one, each on the first host that takes it, until none does.
fn one_by_one(fleet: &Fleet, demand: &Demand, template: &Claim) -> u64 {
    let applicant = PreparedDemand::new(demand);
    let mut views = fleet.views().to_vec();
    let mut count = 0;
    loop {
        let found =
            (0..views.len()).find_map(|at| Some((at, applicant.try_place(&views[at], PACK)?)));
        let Some((at, assignment)) = found else {
            return count;
        };
        let claim = Claim {
            host: views[at].host.name.clone(),
            resources: demand.resources.clone(),
            assignment,
            ..template.clone()
        };
        Arc::make_mut(&mut views[at]).place(&claim);
        count += 1;
    }
}

/// Goal: the count is what is reached one by one. Method: random clusters, and hosts that are alike.
#[test]
fn the_count_is_what_is_reached_one_by_one() {
    for seed in 0..100 {
        let mut cluster = Cluster::new(seed, 3);
        cluster.fill((seed % 4) as usize * 4 + 1);
        let fleet = cluster.fleet();
        let Some(first) = cluster.guests.first() else {
            continue;
        };
        let template = (*first.claim).clone();
        for _ in 0..4 {
            let wanted = draw::demand(&mut cluster.dice);
            let filled = fill(&fleet, &wanted, PACK);
            assert_eq!(filled.count, one_by_one(&fleet, &wanted, &template));
            assert_eq!(filled.count, filled.by_host.iter().sum::<u64>());
            assert_eq!(filled.causes.values().sum::<u64>(), 3);
        }
    }
}

fn shape(memory_mib: u64, disk_gib: u64, vcpus: u32) -> Shape {
    Shape {
        memory_mib,
        disk_gib,
        vcpus,
    }
}

fn floating(shape: &Shape) -> Option<Demand> {
    let flavor = Flavor {
        name: FlavorName::new("f").unwrap(),
        vcpus: shape.vcpus,
        memory_mib: shape.memory_mib,
        disk_gib: shape.disk_gib,
        extra_specs: Default::default(),
        ownership: Ownership::default(),
    };
    let requirements = flavor.requirements(&ImageProperties::default(), &PciAliases::new());
    let requirements = requirements.ok()?;
    Some(Demand {
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
    })
}

/// Hosts of 63 GiB for guests, 48 CPUs, 10,000 GiB of disk: as in Ganeti's examples.
fn plain(count: usize) -> Fleet {
    let shape = hosts::Shape {
        cells: 1,
        cores: 48,
        threads: 1,
        shared_cores: 48,
        memory_gib: 64,
        pages_2m_gib: 0,
        pages_1g: 0,
    };
    let machine = Arc::new(hosts::topology(shape));
    let view = |n| {
        let mut host = hosts::host(&format!("h{n}"), &machine);
        host.report.memory_reserved_mib = 1024;
        Arc::new(HostView::new(Arc::new(host), []))
    };
    let views: Vec<_> = (0..count).map(view).collect();
    Fleet::new(&views, []).unwrap()
}

/// Goal: the numbers are those of counting by hand, now and after a failure. Method: equal hosts of
/// 64,512 MiB, guests of 6,000.
#[test]
fn equal_hosts_are_counted_as_by_hand() {
    for hosts in [1, 4, 8] {
        let mut fleet = plain(hosts);
        let wanted = floating(&shape(6000, 1, 1)).unwrap();
        let now = fill(&fleet, &wanted, PACK);
        assert_eq!(now.count, 10 * hosts as u64);
        assert_eq!(now.binding.as_deref(), Some("RESOURCE_MEMORY_MB"));
        let names: Vec<_> = fleet.views().iter().map(|v| v.host.name.clone()).collect();
        let domains: Vec<Domain> = names.iter().map(Domain::host).collect();
        let verdicts: Vec<Verdict> = domains
            .iter()
            .map(|domain| failover::evaluate(&mut fleet, domain, failover::Budget::default()))
            .collect();
        let pairs = domains.iter().zip(&verdicts);
        let worst = after_failures(&mut fleet, &now, &wanted, PACK, pairs).unwrap();
        assert_eq!(worst.worst.count, 10 * (hosts as u64 - 1));
        assert_eq!((worst.looked_at, worst.unsurvived), (hosts, 0));
        let many = floating(&shape(64, 1, 24)).unwrap();
        let now = fill(&fleet, &many, PACK);
        assert_eq!(now.count, 8 * hosts as u64);
        assert_eq!(now.binding.as_deref(), Some("RESOURCE_VCPU"));
    }
}

/// Goal: after a failure its guests are where the proof puts them, and what is not survived has no
/// room. Method: the same by hand on random clusters.
#[test]
fn after_a_failure_its_guests_are_where_the_proof_says() {
    let (mut survived, mut not) = (0, 0);
    for seed in 0..40 {
        let mut cluster = Cluster::new(seed, 4);
        cluster.fill(6 + (seed % 5) as usize * 3);
        let wanted = draw::demand(&mut cluster.dice);
        let mut fleet = cluster.fleet();
        let now = fill(&fleet, &wanted, PACK);
        for at in 0..4 {
            let domain = Domain::host(fleet.name(at));
            let verdict = failover::evaluate(&mut fleet, &domain, failover::Budget::default());
            let pair = [(&domain, &verdict)];
            let after = after_failures(&mut fleet, &now, &wanted, PACK, pair).unwrap();
            let Some(plan) = verdict.plan() else {
                assert!(!after.worst.is_survived && after.worst.count == 0);
                not += 1;
                continue;
            };
            let mark = fleet.mark();
            fleet.fail(at);
            for step in &plan.moves {
                let to = fleet.place(&step.to).unwrap();
                fleet.put(&step.vm, to, step.assignment.clone());
            }
            let wanted = fill(&fleet, &wanted, PACK);
            fleet.undo(mark);
            assert_eq!(after.worst.count, wanted.count);
            assert_eq!(after.worst.binding, wanted.binding);
            survived += 1;
        }
    }
    assert!(survived > 20 && not > 5, "{survived} survived, {not} not");
}

/// Goal: what the largest shape leaves is filled with smaller ones. Method: by hand: 64,512 MiB take
/// two of 24,000 MiB, and then one of just what is left.
#[test]
fn tiers_go_down_to_what_is_left() {
    let fleet = plain(3);
    let largest = shape(24_000, 10, 4);
    let least = Least(shape(128, 1, 1));
    let found = tiered(&fleet, largest, least, Steps::default(), PACK, floating);
    let first = &found.tiers[..2];
    assert_eq!((first[0].shape, first[0].count), (largest, 6));
    let second = shape(24_000 - 64 * 117, 10, 4);
    assert_eq!(second.memory_mib, 16_512);
    assert_eq!((first[1].shape, first[1].count), (second, 3));
    assert_eq!(
        found.count(),
        found.tiers.iter().map(|t| t.count).sum::<u64>()
    );
    assert!(found.binding.is_some());
    // Nothing is left of any host.
    assert_eq!(found.tiers.len(), 2);
}
