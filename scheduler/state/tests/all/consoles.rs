//! Goal: a user types on the console of a guest that may be there, by an agent that can do it; nothing of
//! the state changes by it. Method: a VM in each state that it comes through, and agents of each version.

use berth_domain::refusal::Refusal;
use berth_domain::version::{ServiceVersion, TOO_OLD};
use berth_domain::vm::State as VmState;
use berth_state::Reply;
use berth_state::command::Command;
use berth_testkit::state::*;

fn open(world: &mut World, vm: &str) -> Result<Reply, Refusal> {
    world.run(Command::OpenConsole {
        vm: vm_name(vm),
        conductor: conductor("c1"),
        take_over: false,
    })
}

/// Opens a console, and checks that it changes no row but those that every command writes.
#[track_caller]
fn is_open(world: &mut World, vm: &str, state: VmState, expected: &str) {
    let before = world.state.vm(&vm_name(vm)).cloned();
    assert_eq!(before.as_ref().map(|vm| vm.state), Some(state));
    let operations = world.state.operations().len();
    let outcome = open(world, vm);
    match expected {
        "" => assert_eq!(outcome, Ok(Reply::None), "{state:?}"),
        expected => {
            assert_eq!(reason(&outcome), expected, "{state:?}");
            let hint = outcome.unwrap_err().hint.expect("a hint");
            assert!(hint.contains(&format!("berth vm unshelve {vm}")), "{hint}");
        }
    }
    assert_eq!(world.state.vm(&vm_name(vm)).cloned(), before);
    assert_eq!(world.state.operations().len(), operations);
}

#[test]
fn a_guest_that_may_be_there_has_a_console() {
    let mut world = World::with_hosts(2);
    assert_eq!(reason(&open(&mut world, "a")), "VM_NOT_FOUND");
    world.begin_boot("b", &pinned(1), "h1").unwrap();
    is_open(&mut world, "b", VmState::Building, "");
    world.boot("a", &pinned(1), "h1");
    is_open(&mut world, "a", VmState::Active, "");
    let operation = world.begin_migration("a", "h2").unwrap();
    is_open(&mut world, "a", VmState::Migrating, "");
    world.transfer(operation);
    is_open(&mut world, "a", VmState::Migrating, "");
    world.boot("c", &pinned(1), "h1");
    world.shelve("c");
    is_open(&mut world, "c", VmState::Shelved, "NO_CONSOLE");
    world.delete("c");
    assert_eq!(reason(&open(&mut world, "c")), "VM_NOT_FOUND");
}

#[test]
fn an_agent_that_cannot_do_it_is_named() {
    for version in 1..=4 {
        let version = ServiceVersion(version);
        let mut world = World::with_hosts(1);
        world.boot("a", &floating(1), "h1");
        let mut old = world.view("h1").host.report.clone();
        old.service_version = version;
        world.register("h1", old).unwrap();
        let outcome = open(&mut world, "a");
        if version >= ServiceVersion::CONSOLE_INPUT {
            assert_eq!(outcome, Ok(Reply::None));
            continue;
        }
        assert_eq!(reason(&outcome), TOO_OLD);
        let refusal = outcome.unwrap_err();
        assert_eq!(refusal.metadata["host"], "h1");
        assert!(refusal.hint.expect("a hint").contains("of host h1"));
    }
}
