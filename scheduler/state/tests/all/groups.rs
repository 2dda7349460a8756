//! Goal: no order of boots and moves puts members of a server group where its policy forbids it.
//! Method: hand-made sequences; [`World`](berth_testkit::state::World) checks the invariants after each command.

use berth_domain::migration::Event;
use berth_domain::name::ServerGroupName;
use berth_domain::server_group::{GroupPolicy, ServerGroup};
use berth_domain::vm::VmSpec;
use berth_state::Reply;
use berth_state::command::Command;
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
