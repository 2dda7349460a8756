//! Which host is chosen. Tables and small worlds are here; `every_host` asks random ones.

mod draw;
mod every_host;

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::constraint::{self, PreparedDemand};
use berth_domain::host::Liveness;
use berth_domain::host_view::HostView;
use berth_domain::name::{HostName, ServerGroupName};
use berth_domain::numa::Strategy as Preference;
use berth_domain::pci::{PciDevice, PciId, PciKind, PciMatch, PciNumaPolicy, PciRequest};
use berth_domain::policy::SchedulingPolicy;
use berth_domain::server_group::{GroupDemand, GroupPolicy};
use berth_domain::topology::{CellId, HostTopology};
use berth_selection::minimum_demand::MinimumDemand;
use berth_selection::{Index, filter::Lanes, select};
use berth_testkit::selection::hosts::{Shape, host, name, topology};
use berth_testkit::selection::{change, claim, request, spec, view};
use imbl::OrdMap;
use proptest::prelude::*;

const SMALL: Shape = Shape {
    cells: 2,
    cores: 4,
    threads: 2,
    shared_cores: 1,
    memory_gib: 8,
    pages_2m_gib: 2,
    pages_1g: 2,
};

/// vCPUs, MiB and extra specs.
type Guest = (u32, u64, &'static [(&'static str, &'static str)]);

/// Guests that try every part of a small host.
const GUESTS: &[Guest] = &[
    (1, 512, &[]),
    (2, 2048, &[("hw:numa_nodes", "1")]),
    (2, 1024, &[("hw:cpu_policy", "dedicated")]),
    (
        6,
        4096,
        &[("hw:cpu_policy", "dedicated"), ("hw:numa_nodes", "2")],
    ),
    (
        3,
        1024,
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:emulator_threads_policy", "isolate"),
        ],
    ),
    (1, 1024, &[("hw:mem_page_size", "large")]),
    (
        1,
        1024,
        &[("hw:mem_page_size", "1GB"), ("hw:cpu_policy", "dedicated")],
    ),
    (1, 512, &[("hw:mem_page_size", "2MB")]),
    (1, 3072, &[("hw:mem_page_size", "small")]),
    (5, 512, &[("hw:cpu_policy", "dedicated")]),
    (3, 768, &[("hw:numa_nodes", "3")]),
    (
        1,
        512,
        &[
            ("resources:PCPU", "1"),
            ("trait:HW_CPU_HYPERTHREADING", "required"),
        ],
    ),
    (
        1,
        512,
        &[
            ("resources:PCPU", "1"),
            ("trait:HW_CPU_HYPERTHREADING", "forbidden"),
        ],
    ),
];

/// Places guests, by number, wherever they fit; returns the hosts and their claims.
fn loaded(
    hosts: usize,
    guests: &[usize],
) -> (
    Vec<HostView>,
    BTreeMap<HostName, Vec<berth_domain::claim::Claim>>,
) {
    let mut views: Vec<HostView> = (0..hosts)
        .map(|n| {
            let shape = Shape {
                threads: if n % 3 == 2 { 1 } else { 2 },
                cells: 1 + u32::try_from(n % 3).unwrap(),
                ..SMALL
            };
            view(&format!("h{n}"), shape)
        })
        .collect();
    let mut claims: BTreeMap<HostName, Vec<_>> = BTreeMap::new();
    for (turn, guest) in guests.iter().enumerate() {
        let (vcpus, memory_mib, specs) = GUESTS[guest % GUESTS.len()];
        let request = request(&spec(vcpus, memory_mib, specs), turn as u128);
        let arcs: Vec<_> = views.iter().cloned().map(Arc::new).collect();
        if let Ok(choice) = select(&request, &arcs) {
            let view = views
                .iter_mut()
                .find(|v| v.host.name == choice.host)
                .unwrap();
            view.place(&claim(&choice));
            claims
                .entry(choice.host.clone())
                .or_default()
                .push(claim(&choice));
        }
    }
    (views, claims)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: a host is chosen exactly if one keeps every rule; it is admitted by the rules that
    /// the claiming command checks; no filter hides a host that keeps them. Method: random load,
    /// then every guest against every host.
    #[test]
    fn chooses_exactly_if_a_host_keeps_every_rule(
        hosts in 1_usize..5,
        guests in proptest::collection::vec(0_usize..GUESTS.len(), 0..25),
        closed in 0_usize..6,
    ) {
        let (mut views, _) = loaded(hosts, &guests);
        if let Some(view) = views.get_mut(closed) {
            change(view, |host| if closed % 2 == 0 {
                host.cordoned = true;
            } else {
                host.liveness = Liveness::Down;
            });
        }
        let arcs: Vec<_> = views.iter().cloned().map(Arc::new).collect();
        for (vcpus, memory_mib, specs) in GUESTS {
            let request = request(&spec(*vcpus, *memory_mib, specs), 7);
            let minimum = MinimumDemand::new(&request.demand);
            let mut able = Vec::new();
            let applicant = PreparedDemand::new(&request.demand);
            for view in &views {
                let placed = applicant.place(view, Preference::Spread);
                let tried = applicant.try_place(view, Preference::Spread);
                prop_assert_eq!(placed.clone().ok(), tried);
                if placed.is_ok() {
                    prop_assert!(Lanes::offered(&view.headroom).suffice(&Lanes::requested(&minimum)), "{:?} {:?}", view.headroom, minimum);
                    able.push(view.host.name.clone());
                }
            }
            match select(&request, &arcs) {
                Ok(choice) => {
                    prop_assert!(able.contains(&choice.host));
                    let view = views.iter().find(|v| v.host.name == choice.host).unwrap();
                    let verdict = constraint::admit(view, &request.demand, &claim(&choice));
                    prop_assert_eq!(verdict, Ok(()));
                }
                Err(refusal) => {
                    prop_assert!(able.is_empty(), "{}", refusal);
                    let counted: u32 = refusal.causes.values().sum();
                    prop_assert_eq!(counted as usize, hosts);
                }
            }
        }
    }

    /// Goal: a view follows from its host and claims alone, and so do its digests. Method: place and
    /// release in any order, with the digests read in between, compare with one made at once.
    #[test]
    fn a_view_is_the_sum_of_its_claims(
        guests in proptest::collection::vec(0_usize..GUESTS.len(), 0..30),
        released in any::<u32>(),
    ) {
        let (views, claims) = loaded(2, &guests);
        for mut view in views {
            let mine = claims.get(&view.host.name).cloned().unwrap_or_default();
            prop_assert_eq!(&HostView::new(Arc::clone(&view.host), &mine), &view);
            let mut left = Vec::new();
            let _ = (view.class(), view.likeness());
            for (n, claim) in mine.iter().enumerate() {
                if released & (1 << (n % 32)) == 0 {
                    left.push(claim);
                } else {
                    view.release(claim);
                }
            }
            let unread = HostView::new(Arc::clone(&view.host), left.iter().copied());
            prop_assert_eq!(&unread, &view);
            prop_assert!(view.digests_agree(&unread));
            let full = HostView::new(Arc::clone(&view.host), &mine);
            let _ = view.likeness();
            prop_assert_eq!(view.digests_agree(&full), left.len() == mine.len());
        }
    }

    /// Goal: the table answers alike however it came to hold its hosts. Method: maps that change
    /// step by step, followed by `sync`, against a table made at once.
    #[test]
    fn a_table_that_followed_changes_answers_like_a_new_one(
        steps in proptest::collection::vec((0_usize..6, 0_usize..4), 1..30),
    ) {
        let mut hosts: OrdMap<HostName, Arc<HostView>> = OrdMap::new();
        let mut followed = Index::new();
        for (turn, (host, action)) in steps.into_iter().enumerate() {
            let key = name(&format!("h{host}"));
            match action {
                0 => drop(hosts.remove(&key)),
                1 => drop(hosts.insert(key.clone(), Arc::new(view(key.as_str(), SMALL)))),
                _ => {
                    if let Some(view) = hosts.get_mut(&key) {
                        change(Arc::make_mut(view), |h| h.cordoned = action == 2);
                    }
                }
            }
            followed.sync(&hosts);
            prop_assert_eq!(followed.len(), hosts.len());
            let request = request(&spec(1, 512, &[("hw:cpu_policy", "dedicated")]), turn as u128);
            let fresh = Index::from_hosts(hosts.values()).select(&request);
            prop_assert_eq!(followed.select(&request), fresh);
        }
    }
}

/// Goal: a guest with more cells than filters tell apart goes to a host that has as many. Method:
/// guests of 16 to 20 equal cells, on a host of 20.
#[test]
fn a_guest_of_many_cells_goes_to_a_host_of_many() {
    let shape = Shape { cells: 20, ..SMALL };
    let hosts = [Arc::new(view("h", shape))];
    for cells in [16_u32, 17, 20] {
        let nodes = cells.to_string();
        let specs = [
            ("hw:numa_nodes", nodes.as_str()),
            ("hw:cpu_policy", "dedicated"),
        ];
        let request = request(&spec(cells, u64::from(cells) * 64, &specs), 1);
        let choice = select(&request, &hosts).unwrap();
        assert_eq!(choice.assignment.cells.len(), cells as usize);
    }
}

fn counts(policy: SchedulingPolicy, hosts: usize, guests: u128) -> Vec<usize> {
    let mut views: BTreeMap<_, _> = (0..hosts)
        .map(|n| view(&format!("h{n}"), SMALL))
        .map(|v| (v.host.name.clone(), Arc::new(v)))
        .collect();
    let mut counts = BTreeMap::new();
    for seed in 0..guests {
        let mut request = request(&spec(1, 512, &[("hw:cpu_policy", "dedicated")]), seed);
        request.policy = policy.clone();
        let choice = select(&request, views.values()).unwrap();
        *counts.entry(choice.host.clone()).or_default() += 1;
        Arc::make_mut(views.get_mut(&choice.host).unwrap()).place(&claim(&choice));
    }
    counts.into_values().collect()
}

#[test]
fn spreads_evenly_unless_told_to_pack() {
    assert_eq!(counts(SchedulingPolicy::default(), 5, 20), [4; 5]);
    let pack = SchedulingPolicy {
        hosts: Preference::Pack,
        cells: Preference::Pack,
        ..SchedulingPolicy::default()
    };
    assert_eq!(counts(pack, 5, 12), [12]);
}

#[test]
fn equal_hosts_take_turns() {
    let hosts: Vec<_> = (0..10)
        .map(|n| Arc::new(view(&format!("h{n}"), SMALL)))
        .collect();
    let chosen: std::collections::BTreeSet<_> = (0..100_u128)
        .map(|seed| request(&spec(1, 512, &[]), seed << 64 | seed))
        .map(|request| select(&request, &hosts).unwrap().host)
        .collect();
    assert!(chosen.len() >= 8, "{chosen:?}");
}

/// Goal: a soft group is kept together, or apart, before load is looked at, and never at the price of
/// a refusal. Method: members on one of three hosts.
#[test]
fn soft_groups_are_a_wish() {
    let views: Vec<_> = (0..3).map(|n| view(&format!("h{n}"), SMALL)).collect();
    let chosen = |policy, hosts: &[HostView]| {
        let mut request = request(&spec(1, 512, &[("hw:cpu_policy", "dedicated")]), 7);
        request.demand.group = Some(GroupDemand {
            name: ServerGroupName::new("web").unwrap(),
            policy,
            limit: 0,
            hosts: [(name("h1"), 2)].into(),
            is_separated: false,
        });
        let arcs: Vec<_> = hosts.iter().cloned().map(Arc::new).collect();
        select(&request, &arcs).unwrap().host
    };
    assert_eq!(chosen(GroupPolicy::SoftAffinity, &views), name("h1"));
    assert_ne!(chosen(GroupPolicy::SoftAntiAffinity, &views), name("h1"));
    let mut closed = views.clone();
    change(&mut closed[1], |h| h.cordoned = true);
    assert_ne!(chosen(GroupPolicy::SoftAffinity, &closed), name("h1"));
    assert_eq!(
        chosen(GroupPolicy::SoftAntiAffinity, &views[1..2]),
        name("h1")
    );
}

/// Goal: a guest that prefers near PCI functions goes where they are near, though another host is
/// emptier; where no host has any, it takes far ones. Method: a host whose function is at a cell
/// without dedicated CPUs, and one that is fuller with a function at every guest's cell.
#[test]
fn near_functions_are_preferred_among_hosts() {
    let with_card = |text: &str, is_far: bool| {
        let shape = topology(SMALL);
        let mut cells = shape.cells().to_vec();
        if is_far {
            cells[0].shared = cells[0].shared.union(&cells[0].dedicated);
            cells[0].dedicated = Default::default();
        }
        let card = |bus: u32, cell: u32| PciDevice {
            address: format!("0000:{bus:02x}:00.0").parse().unwrap(),
            vendor: PciId(1),
            product: PciId(1),
            cell: Some(CellId(cell)),
            kind: PciKind::Pci,
            parent: None,
            tags: BTreeMap::new(),
        };
        let cards = if is_far {
            vec![card(1, 0)]
        } else {
            vec![card(1, 0), card(2, 1)]
        };
        let distances = shape.distances().to_vec();
        let shape = HostTopology::new(cells, distances).unwrap();
        let shape = shape.with_pci(cards).unwrap();
        HostView::new(Arc::new(host(text, &Arc::new(shape))), [])
    };
    let pinned = [("hw:cpu_policy", "dedicated")];
    let mut fuller = with_card("b", false);
    let mut first = request(&spec(2, 512, &pinned), 1);
    first.requested = Some(name("b"));
    let choice = select(&first, [&Arc::new(fuller.clone())]).unwrap();
    fuller.place(&claim(&choice));
    let mut guest = request(&spec(1, 512, &pinned), 2);
    guest.demand.pci = vec![PciRequest {
        count: 1,
        any_of: vec![PciMatch::default()],
        policy: PciNumaPolicy::Preferred,
    }];
    let hosts = [Arc::new(with_card("a", true)), Arc::new(fuller.clone())];
    let plain = request(&spec(1, 512, &pinned), 2);
    assert_eq!(select(&plain, &hosts[..1]).unwrap().host, name("a"));
    assert_eq!(select(&guest, &hosts).unwrap().host, name("b"));
    change(&mut fuller, |host| host.cordoned = true);
    let hosts = [Arc::clone(&hosts[0]), Arc::new(fuller)];
    assert_eq!(select(&guest, &hosts).unwrap().host, name("a"));
}
