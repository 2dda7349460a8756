//! Goal: what the policy sets of shared CPUs reaches inventories, placement and marks of exactly the
//! hosts that it is about; vCPUs are given away up to floor((shared - reserved) x ratio), and not
//! beyond; lowering the ratio stops nothing. Method: hand-made sequences and drawn ones;
//! [`World`](berth_testkit::state::World) checks the invariants after each command.

use berth_domain::aggregate::{Aggregate, AggregateChange};
use berth_domain::id::{AggregateId, Generation, TimeMs};
use berth_domain::operation::{Mark, Step};
use berth_domain::policy::{CPU_RESERVED_MAX, Scope, Setting};
use berth_domain::refusal::Refusal;
use berth_domain::resource::ResourceClass;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::VmSpec;
use berth_state::Reply;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;
use proptest::prelude::*;

use crate::memory::{cause, group, hits, host, name};

fn try_set(world: &mut World, scope: &Scope, setting: Setting) -> Result<Reply, Refusal> {
    let mut policy = (**world.state.policy()).clone();
    policy.set_for(scope, setting);
    world.run(Command::SetPolicy(policy))
}

fn set(world: &mut World, scope: &Scope, setting: Setting) {
    try_set(world, scope, setting).unwrap();
}

fn ratio(world: &mut World, scope: &Scope, milli: u32) {
    set(world, scope, Setting::CpuRatio(Some(milli)));
}

fn reserve(world: &mut World, scope: &Scope, cpus: u32) {
    set(world, scope, Setting::CpuReserved(Some(cpus)));
}

fn create(world: &mut World, number: u64, text: &str, hosts: &[&str]) {
    let aggregate = Aggregate {
        name: name(text),
        id: AggregateId(uuid(40, number)),
        hosts: hosts.iter().map(|host| host_name(host)).collect(),
        metadata: Default::default(),
        generation: Generation(0),
        created_at: TimeMs(0),
    };
    world.run(Command::CreateAggregate(aggregate)).unwrap();
}

fn change(world: &mut World, text: &str, add: &[&str], remove: &[&str]) -> Result<Reply, Refusal> {
    let hosts = |hosts: &[&str]| hosts.iter().map(|host| host_name(host)).collect();
    world.run(Command::UpdateAggregate {
        aggregate: name(text),
        change: AggregateChange {
            add_hosts: hosts(add),
            remove_hosts: hosts(remove),
            ..AggregateChange::default()
        },
    })
}

/// Hosts of two cells with four shared CPUs each, under the names of the world's own hosts.
fn wide_hosts(count: u32) -> World {
    let mut world = World::with_hosts(0);
    for number in 1..=count {
        let report = report(topology(2, 1, 4));
        world.register(&format!("h{number}"), report).unwrap();
    }
    world
}

fn shares(vcpus: u32) -> VmSpec {
    spec(flavor("shares", vcpus, 16, &[]))
}

fn shares_in_cells(vcpus: u32, cells: &str) -> VmSpec {
    spec(flavor("celled", vcpus, 16, &[("hw:numa_nodes", cells)]))
}

/// Returns ratio, reserve and the generation of a host's root provider.
fn offers(world: &World, host: &str) -> (u64, u64, Generation) {
    let provider = world.view(host).host.provider;
    let provider = world.state.provider(provider).unwrap();
    let vcpu = &provider.inventories[&ResourceClass::vcpu()];
    let ratio = vcpu.allocation_ratio.milli();
    (ratio, vcpu.reserved, provider.generation)
}

/// Goal: the nearest setting holds, and only the hosts that it is about change, once. Method: the
/// root providers of three hosts after each change of policy and aggregate.
#[test]
fn inventories_follow_the_nearest_setting() {
    let mut world = wide_hosts(3);
    create(&mut world, 1, "rack1", &["h1", "h2"]);
    let all = |world: &World| ["h1", "h2", "h3"].map(|host| offers(world, host));
    let start = all(&world);
    assert!(start.iter().all(|offer| (offer.0, offer.1) == (4000, 0)));
    ratio(&mut world, &group("rack1"), 8000);
    let now = all(&world);
    assert_eq!((now[0].0, now[1].0, now[2]), (8000, 8000, start[2]));
    assert_eq!(now[0].2, start[0].2.next(), "once");
    ratio(&mut world, &host("h1"), 500);
    reserve(&mut world, &Scope::Cluster, 2);
    ratio(&mut world, &Scope::Cluster, 1500);
    let now = all(&world);
    let offered = now.map(|offer| (offer.0, offer.1));
    assert_eq!(offered, [(500, 2), (8000, 2), (1500, 2)]);
    // A host that joins gets the group's, one that leaves the cluster's; both at once.
    change(&mut world, "rack1", &["h3"], &["h2"]).unwrap();
    let after = all(&world);
    assert_eq!(after.map(|o| o.0), [500, 1500, 8000]);
    assert_eq!(after[2].2, now[2].2.next());
    // One that registers gets the cluster's. More than it has leaves it none.
    reserve(&mut world, &Scope::Cluster, CPU_RESERVED_MAX);
    world.register("h4", report(topology(1, 0, 3))).unwrap();
    let new = offers(&world, "h4");
    assert_eq!((new.0, new.1), (1500, 3));
    let none = world.begin_boot("a", &shares(1), "h4").unwrap_err();
    assert_eq!(cause(&none), "RESOURCE_VCPU", "{none}");
    // It comes back with more CPUs: the rule is the same.
    reserve(&mut world, &host("h4"), 4);
    world.register("h4", report(topology(1, 0, 6))).unwrap();
    let vcpu = world.view("h4").inventories[&ResourceClass::vcpu()];
    assert_eq!((vcpu.total, vcpu.reserved, vcpu.capacity()), (6, 4, 3));
    for scope in [host("h1"), host("h4"), group("rack1"), Scope::Cluster] {
        set(&mut world, &scope, Setting::CpuRatio(None));
        set(&mut world, &scope, Setting::CpuReserved(None));
    }
    let cpu = &world.state.policy().cpu;
    assert_eq!(*cpu, Default::default(), "nothing is left of what is unset");
    assert_eq!(all(&world).map(|o| (o.0, o.1)), [(4000, 0); 3]);
}

/// Goal: groups of memory and groups of CPUs are examined each by themselves; nothing stays behind
/// of what is gone.
#[test]
fn groups_of_memory_and_of_cpus_are_apart() {
    let mut world = wide_hosts(2);
    for (number, rack) in [(1, "rack1"), (2, "rack2"), (3, "rack3")] {
        create(&mut world, number, rack, &["h1"]);
    }
    ratio(&mut world, &group("rack1"), 2000);
    let memory = Setting::MemoryRatio(Some(1500));
    set(&mut world, &group("rack2"), memory);
    let both = world.view("h1").rule;
    assert_eq!(
        (both.cpu.ratio.milli(), both.memory.ratio.milli()),
        (2000, 1500)
    );
    let second = try_set(&mut world, &group("rack3"), Setting::CpuReserved(Some(1)));
    let second = second.unwrap_err();
    assert_eq!(second.reason, "HOST_IN_OTHER_GROUP");
    assert!(
        second.message.contains("settings of shared CPUs"),
        "{second}"
    );
    assert!(second.hint.unwrap().contains("policy set cpu.ratio"));
    create(&mut world, 4, "rack4", &[]);
    ratio(&mut world, &group("rack4"), 3000);
    let joins = change(&mut world, "rack4", &["h1"], &[]).unwrap_err();
    assert_eq!(joins.reason, "HOST_IN_OTHER_GROUP");
    change(&mut world, "rack4", &["h2"], &[]).unwrap();
    change(&mut world, "rack4", &[], &["h2"]).unwrap();
    let aggregate = name("rack4");
    let kept = world.run(Command::DeleteAggregate { aggregate });
    let kept = kept.unwrap_err();
    assert_eq!(kept.reason, "AGGREGATE_IN_USE");
    assert!(kept.hint.unwrap().contains("unset cpu.ratio cpu.reserved"));
    set(&mut world, &group("rack4"), Setting::CpuRatio(None));
    let aggregate = name("rack4");
    world.run(Command::DeleteAggregate { aggregate }).unwrap();
    for scope in [host("h9"), group("rack9")] {
        let refused = try_set(&mut world, &scope, Setting::CpuRatio(Some(1500)));
        assert!(refused.unwrap_err().reason.ends_with("_NOT_FOUND"));
    }
    let mut bad = (**world.state.policy()).clone();
    bad.cpu.cluster.ratio_milli = Some(99);
    assert_eq!(
        reason(&world.run(Command::SetPolicy(bad))),
        "INVALID_POLICY"
    );
    ratio(&mut world, &host("h2"), 2000);
    let generation = world.state.policy().generation;
    let forget = Command::RemoveHost {
        host: host_name("h2"),
    };
    world.run(forget).unwrap();
    let policy = world.state.policy();
    assert!(policy.cpu.hosts.is_empty());
    assert_eq!(policy.generation, generation.next());
}

/// Goal: a ratio below what is given away refuses and stops nothing, marks who does not fit, and
/// lets no more in until it is below. Method: eight shared CPUs, filled at 1.5 by guests of three.
#[test]
fn less_than_is_given_away_stops_nothing() {
    let mut world = wide_hosts(2);
    ratio(&mut world, &Scope::Cluster, 1500);
    for vm in ["a", "b", "c", "d"] {
        world.boot(vm, &shares(3), "h1");
    }
    let more = world.begin_boot("e", &shares(1), "h1").unwrap_err();
    assert_eq!(cause(&more), "RESOURCE_VCPU", "{more}");
    assert_eq!(hits(&world, "h1"), 0);
    ratio(&mut world, &host("h1"), 1000);
    // Two guests of three vCPUs fit on eight, and the other two do not.
    assert_eq!((hits(&world, "h1"), world.used("h1", "VCPU")), (2, 12));
    reserve(&mut world, &host("h1"), 2);
    assert_eq!((hits(&world, "h1"), world.used("h1", "VCPU")), (2, 12));
    ratio(&mut world, &host("h1"), 500);
    assert_eq!((hits(&world, "h1"), world.used("h1", "VCPU")), (3, 12));
    for vm in ["a", "b", "c"] {
        let more = world.begin_boot("e", &shares(1), "h1").unwrap_err();
        assert_eq!(cause(&more), "RESOURCE_VCPU", "{more}");
        world.delete(vm);
    }
    // Three of three are taken.
    let more = world.begin_boot("e", &shares(1), "h1").unwrap_err();
    assert_eq!(cause(&more), "RESOURCE_VCPU", "{more}");
    assert_eq!(hits(&world, "h1"), 0);
    ratio(&mut world, &host("h1"), 667);
    world.boot("e", &shares(1), "h1");
    world.begin_migration("e", "h2").unwrap();
}

/// Goal: each cell is given away up to the ratio, reserved CPUs are of no cell but of the host: with
/// guests on cells, too, the host's total is never exceeded. Method: two cells of four shared CPUs.
#[test]
fn reserved_cpus_are_of_the_host_as_a_whole() {
    let mut world = wide_hosts(1);
    ratio(&mut world, &Scope::Cluster, 2000);
    reserve(&mut world, &Scope::Cluster, 3);
    // 2 x (8 - 3) = 10 of the host, 2 x 4 = 8 of each cell.
    world.boot("a", &shares_in_cells(4, "1"), "h1");
    world.boot("b", &shares_in_cells(4, "1"), "h1");
    let more = world.begin_boot("c", &shares_in_cells(3, "1"), "h1");
    assert_eq!(cause(&more.unwrap_err()), "RESOURCE_VCPU");
    world.boot("c", &shares_in_cells(2, "2"), "h1");
    assert_eq!(world.used("h1", "VCPU"), 10);
    let cells = &world.view("h1").usage.cells;
    assert!(cells.iter().all(|cell| cell.shared_vcpus <= 8));
    // Without a reserve the cells decide: three more on each.
    set(&mut world, &Scope::Cluster, Setting::CpuReserved(None));
    world.boot("d", &shares_in_cells(3, "1"), "h1");
    world.boot("e", &shares_in_cells(3, "1"), "h1");
    let more = world.begin_boot("f", &shares_in_cells(1, "1"), "h1");
    assert_eq!(cause(&more.unwrap_err()), "SHARED_CPUS");
    // A ratio below one leaves a cell of four CPUs two vCPUs.
    let mut world = wide_hosts(1);
    ratio(&mut world, &Scope::Cluster, 500);
    let large = world.begin_boot("a", &shares_in_cells(3, "1"), "h1");
    assert!(large.is_err(), "more than a cell may hold");
    world.boot("a", &shares_in_cells(2, "1"), "h1");
    world.boot("b", &shares_in_cells(2, "1"), "h1");
    let more = world.begin_boot("c", &shares(1), "h1").unwrap_err();
    assert_eq!(cause(&more), "RESOURCE_VCPU", "{more}");
}

/// Goal: hosts under an older cluster version have the defaults.
#[test]
fn hosts_of_before_have_the_default() {
    for version in [3, 4] {
        let world = World::at_version(ServiceVersion(version), 1);
        let offer = offers(&world, "h1");
        assert_eq!((offer.0, offer.1), (4000, 0));
    }
}

#[derive(Clone, Debug)]
enum Move {
    Boot(u32, u8),
    Delete(u8),
    Ratio(u8, u32),
    Reserve(u8, u32),
    Group(bool),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        8 => (1_u32..10, 0_u8..3).prop_map(|(vcpus, cells)| Move::Boot(vcpus, cells)),
        2 => any::<u8>().prop_map(Move::Delete),
        1 => (0_u8..3, 1_u32..40).prop_map(|(scope, tenths)| Move::Ratio(scope, tenths * 100)),
        1 => (0_u8..3, 0_u32..10).prop_map(|(scope, cpus)| Move::Reserve(scope, cpus)),
        1 => any::<bool>().prop_map(Move::Group),
    ];
    proptest::collection::vec(one, 10..40)
}

/// Boots a guest, and returns whether it was let in.
fn boots(world: &mut World, vm: &str, spec: &VmSpec) -> bool {
    let Ok(operation) = world.begin_boot(vm, spec, "h1") else {
        return false;
    };
    world.log(operation, Step::Spawn, Mark::Started).unwrap();
    let booted = Effect::CompleteBoot;
    world
        .advance(operation, Step::Spawn, Mark::Succeeded, booted)
        .unwrap();
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: a guest without cells is let in exactly if the vCPUs of all do not exceed
    /// floor((shared - reserved) x ratio) and it has no more than there are shared CPUs; one with cells
    /// never exceeds that, nor what its cells may hold. Method: the rule in whole numbers.
    #[test]
    fn vcpus_are_given_away_up_to_the_rule(moves in moves()) {
        let mut world = wide_hosts(1);
        create(&mut world, 1, "rack1", &[]);
        let mut vms: Vec<String> = Vec::new();
        let mut is_in = false;
        // Of the host, the group and the cluster.
        let (mut ratios, mut reserves) = ([None; 3], [None; 3]);
        let scopes = [host("h1"), group("rack1"), Scope::Cluster];
        for (at, step) in moves.into_iter().enumerate() {
            let nearest = |of: [Option<u32>; 3]| of[0].or(of[1].filter(|_| is_in)).or(of[2]);
            let milli = u64::from(nearest(ratios).unwrap_or(4000));
            let reserved = u64::from(nearest(reserves).unwrap_or(0)).min(8);
            let capacity = (8 - reserved) * milli / 1000;
            let used = world.used("h1", "VCPU");
            match step {
                Move::Boot(vcpus, cells) => {
                    let spec = match cells {
                        0 => shares(vcpus),
                        1 => shares_in_cells(vcpus, "1"),
                        _ => shares_in_cells(vcpus.next_multiple_of(2), "2"),
                    };
                    let amount = u64::from(spec.flavor.vcpus);
                    let vm = format!("v{at}");
                    let is_let_in = boots(&mut world, &vm, &spec);
                    let may_be = amount <= 8 && used + amount <= capacity;
                    prop_assert!(!is_let_in || may_be, "{used} + {amount} of {capacity}");
                    prop_assert!(cells > 0 || is_let_in == may_be, "{used} + {amount} of {capacity}");
                    if is_let_in {
                        let usage = &world.view("h1").usage.cells;
                        let largest = usage.iter().map(|cell| cell.shared_vcpus).max();
                        let is_held = u64::from(largest.unwrap_or(0)) <= 4 * milli / 1000;
                        prop_assert!(is_held || hits(&world, "h1") > 0);
                        vms.push(vm);
                    }
                }
                Move::Delete(pick) if !vms.is_empty() => {
                    let vm = vms.swap_remove(usize::from(pick) % vms.len());
                    world.delete(&vm);
                }
                Move::Delete(_) => {}
                Move::Ratio(scope, milli) => {
                    let milli = Some(milli).filter(|milli| *milli < 3500);
                    ratios[usize::from(scope)] = milli;
                    set(&mut world, &scopes[usize::from(scope)], Setting::CpuRatio(milli));
                }
                Move::Reserve(scope, cpus) => {
                    let cpus = Some(cpus).filter(|cpus| *cpus < 9);
                    reserves[usize::from(scope)] = cpus;
                    set(&mut world, &scopes[usize::from(scope)], Setting::CpuReserved(cpus));
                }
                Move::Group(joins) => {
                    if joins != is_in {
                        let hosts: &[&str] = &["h1"];
                        let (add, remove) = if joins { (hosts, &[][..]) } else { (&[][..], hosts) };
                        change(&mut world, "rack1", add, remove).unwrap();
                        is_in = joins;
                    }
                }
            }
        }
    }
}
