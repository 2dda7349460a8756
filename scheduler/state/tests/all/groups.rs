//! Goal: no order of boots and moves puts members of a server group where its policy forbids it.
//! Method: hand-made sequences; [`World`](berth_testkit::state::World) checks the invariants after each command.

use berth_domain::claim::Owner;
use berth_domain::fence::Method;
use berth_domain::host::Liveness;
use berth_domain::id::{MigrationId, OperationId};
use berth_domain::migration::Event;
use berth_domain::name::ServerGroupName;
use berth_domain::operation::{Mark, Step};
use berth_domain::refusal::Refusal;
use berth_domain::server_group::{GroupPolicy, ServerGroup};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::VmSpec;
use berth_state::Reply;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

fn group(name: &str) -> ServerGroupName {
    ServerGroupName::new(name).unwrap()
}

fn create(world: &mut World, name: &str, policy: GroupPolicy, max: Option<u32>) {
    let group = ServerGroup::new(group(name), policy, max).unwrap();
    world.run(Command::CreateServerGroup(group)).unwrap();
}

fn member(name: &str) -> VmSpec {
    let mut spec = floating(1);
    spec.hints.server_group = Some(group(name));
    spec
}

fn message<T>(outcome: Result<T, berth_domain::refusal::Refusal>) -> String {
    outcome.err().unwrap().message
}

#[test]
fn members_of_an_anti_affinity_group_are_on_hosts_of_their_own() {
    let mut world = World::with_hosts(4);
    create(&mut world, "web", GroupPolicy::AntiAffinity, None);
    world.boot("a", &member("web"), "h1");
    let refused = world.begin_boot("b", &member("web"), "h1");
    assert_eq!(
        message(refused),
        "host h1: it has 1 member of server group web, whose anti-affinity allows 1 a host"
    );
    world.boot("b", &member("web"), "h2");
    world.boot("alien", &floating(1), "h1");
    // Both want to go to h3; the claim of the first keeps the second out, also once it is known
    // that the first stays.
    let first = world.begin_migration("a", "h3").unwrap();
    let second = world.begin_migration("b", "h3");
    assert_eq!(second.unwrap_err().reason, "ANTI_AFFINITY");
    // Nor may it go where the first comes from, as long as that may stay.
    let second = world.begin_migration("b", "h1");
    assert_eq!(second.unwrap_err().reason, "ANTI_AFFINITY");
    world.transfer(first);
    world.settle(first, Event::Arrived).unwrap();
    let second = world.begin_migration("b", "h1").unwrap();
    world.transfer(second);
    world.settle(second, Event::Arrived).unwrap();
}

#[test]
fn a_greater_number_of_members_may_share_a_host() {
    let mut world = World::with_hosts(2);
    create(&mut world, "web", GroupPolicy::AntiAffinity, Some(2));
    world.boot("a", &member("web"), "h1");
    world.boot("b", &member("web"), "h1");
    let third = world.begin_boot("c", &member("web"), "h1");
    assert_eq!(
        message(third),
        "host h1: it has 2 members of server group web, whose anti-affinity allows 2 a host"
    );
}

#[test]
fn members_of_an_affinity_group_are_on_one_host() {
    let mut world = World::with_hosts(3);
    create(&mut world, "pair", GroupPolicy::Affinity, None);
    world.boot("a", &member("pair"), "h1");
    let refused = world.begin_boot("b", &member("pair"), "h2");
    assert_eq!(
        message(refused),
        "host h2: the members of server group pair are on host h1"
    );
    // While the only member moves, nobody knows where the second one belongs.
    let moving = world.begin_migration("a", "h2").unwrap();
    for host in ["h1", "h2"] {
        let refused = world.begin_boot("b", &member("pair"), host);
        let why = "a member of server group pair moves between hosts h1 and h2, and affinity \
                   waits for it";
        assert_eq!(message(refused), format!("host {host}: {why}"));
    }
    world.transfer(moving);
    world.settle(moving, Event::Stayed).unwrap();
    world.boot("b", &member("pair"), "h1");
    let leaving = world.begin_migration("a", "h2");
    assert_eq!(leaving.unwrap_err().reason, "AFFINITY");
}

#[test]
fn a_group_with_members_stays() {
    let mut world = World::with_hosts(2);
    let missing = world.begin_boot("a", &member("web"), "h1").unwrap_err();
    assert_eq!(missing.reason, "SERVER_GROUP_NOT_FOUND");
    create(&mut world, "web", GroupPolicy::SoftAntiAffinity, None);
    let again = ServerGroup::new(group("web"), GroupPolicy::Affinity, None).unwrap();
    let again = world.run(Command::CreateServerGroup(again));
    assert_eq!(reason(&again), "SERVER_GROUP_EXISTS");
    // A soft policy refuses nothing.
    world.boot("a", &member("web"), "h1");
    world.boot("b", &member("web"), "h1");
    let delete = || Command::DeleteServerGroup {
        group: group("web"),
    };
    let refused = world.run(delete()).unwrap_err();
    assert_eq!(refused.reason, "SERVER_GROUP_IN_USE");
    assert_eq!(
        refused.message,
        "server group web has 2 members, among them vm a"
    );
    for vm in ["a", "b"] {
        assert_eq!(reason(&world.run(delete())), "SERVER_GROUP_IN_USE");
        let operation = operation_id(world.fresh());
        let lease = world.lease();
        world
            .run(Command::BeginDelete {
                operation,
                vm: vm_name(vm),
                lease,
            })
            .unwrap();
        use berth_domain::operation::{Effect, Mark, Step};
        world.log(operation, Step::Destroy, Mark::Started).unwrap();
        let effect = Effect::CompleteDelete;
        world
            .advance(operation, Step::Destroy, Mark::Succeeded, effect)
            .unwrap();
    }
    assert_eq!(world.run(delete()), Ok(Reply::None));
    assert_eq!(reason(&world.run(delete())), "SERVER_GROUP_NOT_FOUND");
}

/// Begins to start a VM of a dead host on another.
fn evacuate(world: &mut World, vm: &str, host: &str) -> Result<OperationId, Refusal> {
    let spec = world.state.vm(&vm_name(vm)).unwrap().spec.clone();
    let migration = MigrationId(uuid(5, world.fresh()));
    let claim = world.claim(vm, &spec, host, Owner::Migration(migration));
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    world.run(Command::BeginMove {
        operation,
        migration,
        vm: vm_name(vm),
        spec: None,
        requested_host: None,
        verify: false,
        evacuate: true,
        claim,
        lease,
    })?;
    Ok(operation)
}

pub(crate) fn fence(world: &mut World, host: &str) {
    let incarnation = world.view(host).host.report.incarnation;
    let fence = Command::FenceHost {
        host: host_name(host),
        method: Method::FenceCommand,
        by: "unverified:test".to_owned(),
        output: String::new(),
        incarnation,
    };
    world.run(fence).unwrap();
}

/// Ends an evacuation: the guest runs on its new host, or none was found for it.
pub(crate) fn end(world: &mut World, operation: OperationId, arrives: bool) {
    let step = Step::StartDestination;
    world.log(operation, step, Mark::Started).unwrap();
    if arrives {
        let effect = Effect::CompleteMove;
        let done = world.advance(operation, step, Mark::Succeeded, effect);
        done.unwrap();
        return;
    }
    let failed = refusal("SPAWN_FAILED");
    world
        .log(operation, step, Mark::Failed(failed.clone()))
        .unwrap();
    for mark in [Mark::UndoStarted, Mark::Undone] {
        world.log(operation, step, mark).unwrap();
    }
    let effect = Effect::RefuseMigration(failed.clone());
    let refused = world.advance(operation, Step::Claim, Mark::Failed(failed), effect);
    refused.unwrap();
}

fn is_separated(world: &World) -> bool {
    let group = world.state.server_group(&group("pair"));
    group.unwrap().separated_at.is_some()
}

/// Goal: every member of an affinity group leaves a dead host, whatever becomes of the others, all to one
/// host; and in the meantime the group says that it is separated. Method: three members in each order,
/// one after the other and all at once, with each combination of those that arrive.
#[test]
fn members_of_an_affinity_group_follow_each_other_from_a_dead_host() {
    const ORDERS: [[&str; 3]; 6] = [
        ["a", "b", "c"],
        ["a", "c", "b"],
        ["b", "a", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["c", "b", "a"],
    ];
    for order in ORDERS {
        for arrivals in 0..8_u32 {
            for at_once in [false, true] {
                let mut world = World::with_hosts(3);
                create(&mut world, "pair", GroupPolicy::Affinity, None);
                for vm in order {
                    world.boot(vm, &member("pair"), "h1");
                }
                fence(&mut world, "h1");
                let mut running = Vec::new();
                for (n, vm) in order.into_iter().enumerate() {
                    let operation = evacuate(&mut world, vm, "h2").unwrap();
                    if !at_once {
                        end(&mut world, operation, arrivals >> n & 1 == 1);
                    }
                    running.push(operation);
                }
                if at_once {
                    assert!(is_separated(&world));
                    for (n, operation) in running.into_iter().enumerate() {
                        end(&mut world, operation, arrivals >> n & 1 == 1);
                    }
                }
                assert_eq!(is_separated(&world), !matches!(arrivals, 0 | 7));
                follow(&mut world, order, arrivals);
            }
        }
    }
}

/// Those that stayed go where the others are and nowhere else, and then the group is together.
fn follow(world: &mut World, order: [&str; 3], arrivals: u32) {
    let stayed = (0..3).filter(|n| arrivals >> n & 1 == 0);
    for n in stayed {
        if arrivals != 0 {
            let away = evacuate(world, order[n], "h3").unwrap_err();
            assert_eq!(away.reason, "AFFINITY");
        }
        let operation = evacuate(world, order[n], "h2").unwrap();
        end(world, operation, true);
    }
    assert!(!is_separated(world));
    let late = world.begin_boot("d", &member("pair"), "h3");
    assert_eq!(late.unwrap_err().reason, "AFFINITY");
    world.boot("d", &member("pair"), "h2");
}

/// Before cluster version 4 nothing separates a group.
#[test]
fn an_older_cluster_evacuates_no_two_members() {
    let mut world = World::at_version(ServiceVersion(ServiceVersion::SEPARATED_GROUPS.0 - 1), 2);
    create(&mut world, "pair", GroupPolicy::Affinity, None);
    world.boot("a", &member("pair"), "h1");
    world.boot("b", &member("pair"), "h1");
    fence(&mut world, "h1");
    let refused = evacuate(&mut world, "a", "h2").unwrap_err();
    assert_eq!(refused.reason, "AFFINITY");
}

/// A host that comes back has its members still; a group in two parts is brought together by moves.
#[test]
fn a_separated_group_is_brought_together_by_moves() {
    let mut world = World::with_hosts(3);
    create(&mut world, "pair", GroupPolicy::Affinity, None);
    for vm in ["a", "b", "c"] {
        world.boot(vm, &member("pair"), "h1");
    }
    fence(&mut world, "h1");
    let operation = evacuate(&mut world, "a", "h2").unwrap();
    end(&mut world, operation, true);
    let host = host_name("h1");
    let liveness = Liveness::Up;
    world.run(Command::SetLiveness { host, liveness }).unwrap();
    for vm in ["b", "c"] {
        let away = world.begin_migration(vm, "h3").unwrap_err();
        assert_eq!(away.reason, "AFFINITY");
        let moving = world.begin_migration(vm, "h2").unwrap();
        world.transfer(moving);
        assert!(is_separated(&world));
        world.settle(moving, Event::Arrived).unwrap();
    }
    assert!(!is_separated(&world));
}
