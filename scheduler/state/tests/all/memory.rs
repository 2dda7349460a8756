//! Goal: the policy's word on memory reaches inventories, placement and marks of exactly the hosts that
//! it is about; nothing that is placed makes a violation; whoever says less than is there sees it, and
//! breaks nothing. Method: hand-made sequences and drawn ones; [`World`](berth_testkit::state::World) checks the
//! invariants after each command.

use berth_domain::aggregate::{Aggregate, AggregateChange};
use berth_domain::id::{AggregateId, Generation, TimeMs};
use berth_domain::memory::MemoryViolation;
use berth_domain::name::AggregateName;
use berth_domain::operation::{Mark, Step};
use berth_domain::policy::{Scope, Setting};
use berth_domain::refusal::Refusal;
use berth_domain::resource::ResourceClass;
use berth_domain::vm::VmSpec;
use berth_state::Reply;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;
use proptest::prelude::*;

pub(crate) fn name(text: &str) -> AggregateName {
    AggregateName::new(text).unwrap()
}

pub(crate) fn host(text: &str) -> Scope {
    Scope::Host(host_name(text))
}

pub(crate) fn group(text: &str) -> Scope {
    Scope::Group(name(text))
}

fn say(world: &mut World, scope: &Scope, setting: Setting) -> Result<Reply, Refusal> {
    let mut policy = (**world.state.policy()).clone();
    policy.set_for(scope, setting);
    world.run(Command::SetPolicy(policy))
}

fn ratio(world: &mut World, scope: &Scope, milli: u32) {
    say(world, scope, Setting::MemoryRatio(Some(milli))).unwrap();
}

fn create(world: &mut World, number: u64, text: &str) {
    let aggregate = Aggregate {
        name: name(text),
        id: AggregateId(uuid(40, number)),
        hosts: Default::default(),
        metadata: Default::default(),
        generation: Generation(0),
        created_at: TimeMs(0),
    };
    world.run(Command::CreateAggregate(aggregate)).unwrap();
}

fn join(world: &mut World, text: &str, hosts: &[&str]) -> Result<Reply, Refusal> {
    let change = AggregateChange {
        add_hosts: hosts.iter().map(|host| host_name(host)).collect(),
        ..AggregateChange::default()
    };
    update(world, text, change)
}

fn update(world: &mut World, text: &str, change: AggregateChange) -> Result<Reply, Refusal> {
    world.run(Command::UpdateAggregate {
        aggregate: name(text),
        change,
    })
}

/// A guest that shares its memory.
fn shares(memory_mib: u64) -> VmSpec {
    spec(flavor("shares", 1, memory_mib, &[]))
}

/// A guest on one cell that shares its memory.
fn shares_in_cell(memory_mib: u64) -> VmSpec {
    spec(flavor("celled", 1, memory_mib, &[("hw:numa_nodes", "1")]))
}

/// A guest with a CPU and memory of its own.
fn pinned_with(memory_mib: u64) -> VmSpec {
    let extra = [("hw:cpu_policy", "dedicated")];
    spec(flavor("pinned", 1, memory_mib, &extra))
}

/// Returns ratio, what is reserved and the generation of a host's root provider.
fn offers(world: &World, host: &str) -> (u64, u64, Generation) {
    let provider = world.view(host).host.provider;
    let provider = world.state.provider(provider).unwrap();
    let memory = &provider.inventories[&ResourceClass::memory_mb()];
    let ratio = memory.allocation_ratio.milli();
    (ratio, memory.reserved, provider.generation)
}

/// Returns the first cause of a refusal.
pub(crate) fn cause(refusal: &Refusal) -> &str {
    refusal.causes.keys().next().map_or("", |cause| cause)
}

fn violation(world: &World, host: &str) -> MemoryViolation {
    world.state.memory_verdict(world.view(host)).violation
}

/// Returns how many claims of a host are marked as having no room.
pub(crate) fn hits(world: &World, host: &str) -> usize {
    world.view(host).host.hit.len()
}

/// Goal: the nearest word holds, and only the hosts that it is about notice. Method: the root
/// providers of three hosts after each word.
#[test]
fn inventories_follow_the_nearest_word() {
    let mut world = World::with_hosts(3);
    create(&mut world, 1, "rack1");
    join(&mut world, "rack1", &["h1", "h2"]).unwrap();
    let start = ["h1", "h2", "h3"].map(|host| offers(&world, host));
    assert!(start.iter().all(|offer| (offer.0, offer.1) == (1000, 512)));
    ratio(&mut world, &group("rack1"), 1200);
    let [h1, h2, h3] = ["h1", "h2", "h3"].map(|host| offers(&world, host));
    assert_eq!((h1.0, h2.0, h3), (1200, 1200, start[2]));
    assert_eq!(h1.2, start[0].2.next(), "once");
    ratio(&mut world, &host("h1"), 1000);
    say(&mut world, &Scope::Cluster, Setting::MemNode(Some(1024))).unwrap();
    ratio(&mut world, &Scope::Cluster, 1500);
    let all = ["h1", "h2", "h3"].map(|host| offers(&world, host));
    assert_eq!(
        all.map(|o| (o.0, o.1)),
        [(1000, 1024), (1200, 1024), (1500, 1024)]
    );
    assert_eq!(
        all[1].2,
        h2.2.next(),
        "what the cluster says of ratios is not heard in the rack"
    );
    // A host that joins hears the group; one that leaves hears the cluster; both once.
    join(&mut world, "rack1", &["h3"]).unwrap();
    let joined = offers(&world, "h3");
    assert_eq!((joined.0, joined.2), (1200, all[2].2.next()));
    let leave = AggregateChange {
        remove_hosts: [host_name("h2")].into(),
        ..AggregateChange::default()
    };
    update(&mut world, "rack1", leave).unwrap();
    assert_eq!(offers(&world, "h2").0, 1500);
    say(&mut world, &host("h1"), Setting::MemoryRatio(None)).unwrap();
    say(&mut world, &Scope::Cluster, Setting::MemNode(None)).unwrap();
    let all = ["h1", "h2", "h3"].map(|host| offers(&world, host));
    assert_eq!(
        all.map(|o| (o.0, o.1)),
        [(1200, 512), (1500, 512), (1200, 512)]
    );
    // A node that needs more than there is leaves nothing.
    say(&mut world, &host("h1"), Setting::MemNode(Some(1 << 30))).unwrap();
    assert_eq!(offers(&world, "h1").1, 8192);
    let none = world.begin_boot("a", &shares(1), "h1").unwrap_err();
    assert_eq!(cause(&none), "RESOURCE_MEMORY_MB", "{none}");
}

#[test]
fn a_host_is_in_one_group_and_words_end_with_who_they_are_about() {
    let mut world = World::with_hosts(2);
    for (number, rack) in [(1, "rack1"), (2, "rack2")] {
        create(&mut world, number, rack);
        join(&mut world, rack, &["h1"]).unwrap();
    }
    ratio(&mut world, &group("rack1"), 1500);
    let second = say(
        &mut world,
        &group("rack2"),
        Setting::MemoryRatio(Some(1200)),
    )
    .unwrap_err();
    assert_eq!(second.reason, "HOST_IN_OTHER_GROUP");
    assert!(
        second.message.starts_with("host h1 is in group rack1"),
        "{second}"
    );
    create(&mut world, 3, "rack3");
    ratio(&mut world, &group("rack3"), 1200);
    let joins = join(&mut world, "rack3", &["h2", "h1"]).unwrap_err();
    assert_eq!(joins.reason, "HOST_IN_OTHER_GROUP");
    join(&mut world, "rack3", &["h2"]).unwrap();
    // Who is not there cannot be spoken of.
    for scope in [host("h9"), group("rack9")] {
        let refused = say(&mut world, &scope, Setting::MemoryRatio(Some(1500)));
        assert!(refused.unwrap_err().reason.ends_with("_NOT_FOUND"));
    }
    let mut bad = (**world.state.policy()).clone();
    bad.memory.cluster.ratio_milli = Some(999);
    assert_eq!(
        reason(&world.run(Command::SetPolicy(bad))),
        "INVALID_POLICY"
    );
    // An aggregate of which something is said stays; a host takes what is said of it along.
    create(&mut world, 4, "rack4");
    ratio(&mut world, &group("rack4"), 1200);
    let aggregate = name("rack4");
    let gone = world.run(Command::DeleteAggregate { aggregate });
    let gone = gone.unwrap_err();
    assert_eq!(gone.reason, "AGGREGATE_IN_USE");
    assert!(gone.hint.unwrap().contains("berth policy unset"));
    say(&mut world, &group("rack4"), Setting::MemoryRatio(None)).unwrap();
    let aggregate = name("rack4");
    world.run(Command::DeleteAggregate { aggregate }).unwrap();
    ratio(&mut world, &host("h2"), 2000);
    let generation = world.state.policy().generation;
    let forget = Command::RemoveHost {
        host: host_name("h2"),
    };
    world.run(forget).unwrap();
    let policy = world.state.policy();
    assert!(policy.memory.hosts.is_empty());
    assert_eq!(policy.generation, generation.next());
}

/// Goal: a host is filled to the ratio and not above; saying less than is there refuses nothing and
/// is seen, hard or soft by what runs; saying more makes it good again. Method: 5,632 MiB that can be
/// shared, as 512 are the node's and 2,048 in huge pages, and guests of 1,408.
#[test]
fn less_than_is_there_is_seen_and_breaks_nothing() {
    let mut world = World::with_hosts(2);
    ratio(&mut world, &Scope::Cluster, 1500);
    for vm in ["a", "b", "c", "d", "e"] {
        world.boot(vm, &shares(1408), "h1");
    }
    let begun = world.begin_boot("f", &shares(1408), "h1").unwrap();
    let more = world.begin_boot("g", &shares(1), "h1").unwrap_err();
    assert_eq!(cause(&more), "RESOURCE_MEMORY_MB", "{more}");
    assert_eq!(violation(&world, "h1"), MemoryViolation::None);
    // Without over-commitment five fit, and one more is only held.
    ratio(&mut world, &host("h1"), 1000);
    assert_eq!(
        (violation(&world, "h1"), hits(&world, "h1")),
        (MemoryViolation::Soft, 1)
    );
    let verdict = world.state.memory_verdict(world.view("h1")).to_string();
    assert_eq!(
        verdict,
        "guests have, running or not, 8448 MiB, 1.100 of the 7680 MiB available (ratio 1)"
    );
    world.log(begun, Step::Spawn, Mark::Started).unwrap();
    let booted = Effect::CompleteBoot;
    world
        .advance(begun, Step::Spawn, Mark::Succeeded, booted)
        .unwrap();
    assert_eq!(
        (violation(&world, "h1"), hits(&world, "h1")),
        (MemoryViolation::Hard, 1)
    );
    let more = world.begin_boot("g", &pinned_with(4), "h1").unwrap_err();
    assert_eq!(cause(&more), "RESOURCE_MEMORY_MB", "{more}");
    // What is too much can go, and nobody else is in the way of that.
    world.begin_migration("f", "h2").unwrap();
    world.delete("a");
    assert_eq!(
        (violation(&world, "h1"), hits(&world, "h1")),
        (MemoryViolation::None, 0)
    );
    ratio(&mut world, &host("h1"), 1001);
    say(&mut world, &host("h1"), Setting::MemNode(Some(4096))).unwrap();
    assert_eq!(violation(&world, "h1"), MemoryViolation::Hard);
    assert!(hits(&world, "h1") > 0);
    say(&mut world, &host("h1"), Setting::MemNode(None)).unwrap();
    ratio(&mut world, &host("h1"), 1500);
    assert_eq!(
        (violation(&world, "h1"), hits(&world, "h1")),
        (MemoryViolation::None, 0)
    );
}

/// Goal: whatever the ratio, a guest with CPUs of its own has its memory once, and takes what others
/// may share. Method: cells of 3,072 MiB in small pages at ratio 2.
#[test]
fn pinned_guests_are_never_over_committed() {
    let mut world = World::with_hosts(1);
    ratio(&mut world, &Scope::Cluster, 2000);
    world.boot("a", &shares_in_cell(3072), "h1");
    world.boot("b", &shares_in_cell(3072), "h1");
    world.boot("c", &shares_in_cell(3072), "h1");
    // Two cells: 6,144 of 6,144 are shared once, and one cell twice.
    let cells = |world: &World| {
        let usage = &world.view("h1").usage.cells;
        usage.iter().map(|cell| cell.memory_mib).collect::<Vec<_>>()
    };
    assert_eq!(cells(&world).iter().sum::<u64>(), 9216);
    // The 9,216 that share need 4,608 of the 5,632 that are neither the node's nor huge pages.
    let refused = world.begin_boot("p", &pinned_with(1028), "h1").unwrap_err();
    assert_eq!(cause(&refused), "RESOURCE_MEMORY_MB", "{refused}");
    world.boot("p", &pinned_with(1024), "h1");
    let refused = world.begin_boot("q", &pinned_with(1), "h1").unwrap_err();
    assert_eq!(cause(&refused), "RESOURCE_MEMORY_MB", "{refused}");
    let refused = world.begin_boot("d", &shares_in_cell(1), "h1").unwrap_err();
    assert_eq!(cause(&refused), "RESOURCE_MEMORY_MB", "{refused}");
    // Those without cells share what is left of the whole: 2 x (5,632 - 1,024) - 9,216 is nothing.
    let refused = world.begin_boot("e", &shares(1), "h1").unwrap_err();
    assert_eq!(cause(&refused), "RESOURCE_MEMORY_MB", "{refused}");
    world.delete("p");
    world.boot("e", &shares(2048), "h1");
    let refused = world.begin_boot("q", &pinned_with(1), "h1").unwrap_err();
    assert_eq!(cause(&refused), "RESOURCE_MEMORY_MB", "{refused}");
}

#[derive(Clone, Debug)]
enum Move {
    Boot(u8, u64, u8),
    Delete(u8),
    Say(u8, u32, u64),
    Group(bool),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (0_u8..3, 1_u64..12, 0_u8..2).prop_map(|(kind, size, host)| Move::Boot(kind, size * 256, host)),
        2 => any::<u8>().prop_map(Move::Delete),
        1 => (0_u8..4, 10_u32..25, 0_u64..3).prop_map(|(scope, tenths, gib)| {
            Move::Say(scope, tenths * 100, gib * 1024)
        }),
        1 => any::<bool>().prop_map(Move::Group),
    ];
    proptest::collection::vec(one, 10..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Placement makes no violation, and no word breaks an invariant.
    #[test]
    fn only_words_make_violations(moves in moves()) {
        let mut world = World::with_hosts(2);
        create(&mut world, 1, "rack1");
        let mut vms: Vec<String> = Vec::new();
        for (at, step) in moves.into_iter().enumerate() {
            let before = ["h1", "h2"].map(|host| violation(&world, host));
            let mut is_word = false;
            match step {
                Move::Boot(kind, mib, host) => {
                    let spec = match kind {
                        0 => shares(mib),
                        1 => shares_in_cell(mib),
                        _ => pinned_with(mib),
                    };
                    let vm = format!("v{at}");
                    if world.begin_boot(&vm, &spec, ["h1", "h2"][usize::from(host)]).is_ok() {
                        let operation = world.state.vm(&vm_name(&vm)).unwrap().operation.unwrap();
                        world.log(operation, Step::Spawn, Mark::Started).unwrap();
                        let booted = Effect::CompleteBoot;
                        world.advance(operation, Step::Spawn, Mark::Succeeded, booted).unwrap();
                        vms.push(vm);
                    }
                }
                Move::Delete(pick) if !vms.is_empty() => {
                    let vm = vms.swap_remove(usize::from(pick) % vms.len());
                    world.delete(&vm);
                }
                Move::Delete(_) => {}
                Move::Say(scope, milli, mib) => {
                    is_word = true;
                    let scope = match scope {
                        0 => Scope::Cluster,
                        1 => group("rack1"),
                        2 => host("h1"),
                        _ => host("h2"),
                    };
                    let node = Some(mib).filter(|mib| *mib > 0);
                    say(&mut world, &scope, Setting::MemNode(node)).unwrap();
                    let said = Some(milli).filter(|milli| *milli < 2300);
                    say(&mut world, &scope, Setting::MemoryRatio(said)).unwrap();
                }
                Move::Group(joins) => {
                    is_word = true;
                    let hosts = [host_name("h1")].into();
                    let is_in = world.state.aggregate(&name("rack1")).unwrap().hosts.len() == 1;
                    if joins != is_in {
                        let change = match joins {
                            true => AggregateChange { add_hosts: hosts, ..AggregateChange::default() },
                            false => AggregateChange { remove_hosts: hosts, ..AggregateChange::default() },
                        };
                        update(&mut world, "rack1", change).unwrap();
                    }
                }
            }
            let after = ["h1", "h2"].map(|host| violation(&world, host));
            for (before, after) in before.into_iter().zip(after) {
                prop_assert!(is_word || after <= before, "{before} became {after}");
            }
        }
    }
}
