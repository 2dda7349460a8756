//! Goal: labels are changed by their keys, whatever operation works on the VM; a protected VM is neither
//! deleted nor rebuilt, in whatever state it is and whichever client requests it, and everything else is
//! done to it as ever; the state holds no metadata beyond its bounds.
//!
//! Method: command by command. [`World`] checks all invariants after each.

use berth_domain::claim::Owner;
use berth_domain::id::{MigrationId, OperationId};
use berth_domain::migration::Event;
use berth_domain::operation::{GuestPower, Kind, Mark, Outcome, Step};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{
    DESCRIPTION_BYTES_MAX, Disk, DiskFormat, LABELS_MAX, Metadata, MetadataChange,
    State as VmState, Vm, VmSpec,
};
use berth_state::Reply;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

use crate::power;

const REBUILD: Kind = Kind::Rebuild { images: Vec::new() };

fn with_disk() -> VmSpec {
    let mut spec = pinned(1);
    spec.flavor.disk_gib = 1;
    spec.disks = vec![Disk {
        image: Some("old.img".to_owned()),
        format: DiskFormat::Raw,
        size_gib: 1,
        seed: false,
    }];
    spec
}

fn vm(world: &World, name: &str) -> Vm {
    (**world.state.vm(&vm_name(name)).unwrap()).clone()
}

fn update(world: &mut World, name: &str, change: MetadataChange) -> Result<Reply, Refusal> {
    let vm = vm_name(name);
    world.run(Command::UpdateVm { vm, change })
}

fn set(labels: &[(&str, &str)], removed: &[&str]) -> MetadataChange {
    let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    MetadataChange {
        set_labels: labels.iter().map(owned).collect(),
        remove_labels: removed.iter().map(|&key| key.to_owned()).collect(),
        ..MetadataChange::default()
    }
}

fn protect(world: &mut World, name: &str, protected: bool) {
    let change = MetadataChange {
        protected: Some(protected),
        ..MetadataChange::default()
    };
    update(world, name, change).expect("it can be changed");
}

fn begin_delete(world: &mut World, name: &str) -> Result<OperationId, Refusal> {
    let operation = operation_id(world.fresh());
    let begin = Command::BeginDelete {
        operation,
        vm: vm_name(name),
        lease: world.lease(),
    };
    world.run(begin).map(|_| operation)
}

#[test]
fn labels_are_changed_by_their_keys() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let before = vm(&world, "a");
    assert!(before.metadata.is_default());
    for (change, expected) in [
        (
            set(&[("team", "blue"), ("tier", "1")], &[]),
            "team=blue tier=1",
        ),
        // Two operators, of whom each changes another key.
        (set(&[("team", "red")], &[]), "team=red tier=1"),
        (set(&[("tier", "2")], &[]), "team=red tier=2"),
        (set(&[("new", "")], &["tier", "absent"]), "new= team=red"),
        (set(&[], &["new", "team"]), ""),
    ] {
        let generation = vm(&world, "a").generation;
        assert_eq!(update(&mut world, "a", change.clone()), Ok(Reply::None));
        let after = vm(&world, "a");
        let labels = after.metadata.labels.iter();
        let labels: Vec<String> = labels
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(labels.join(" "), expected);
        assert!(after.generation > generation);
        // Once more, it changes nothing.
        assert_eq!(update(&mut world, "a", change), Ok(Reply::None));
        assert_eq!(vm(&world, "a"), after);
    }
    let change = MetadataChange {
        description: Some("the database".to_owned()),
        ..MetadataChange::default()
    };
    update(&mut world, "a", change).unwrap();
    assert_eq!(vm(&world, "a").metadata.description, "the database");
    let outcome = update(&mut world, "nowhere", set(&[("a", "b")], &[]));
    assert_eq!(reason(&outcome), "VM_NOT_FOUND");
}

/// Goal: every bound is the state's own, at a boot as at a change, and its refusal names each fault.
#[test]
fn nothing_beyond_the_bounds_is_stored() {
    let many = |count: usize| -> Metadata {
        Metadata {
            labels: (0..count)
                .map(|n| (format!("k{n}"), "v".to_owned()))
                .collect(),
            description: "x".repeat(DESCRIPTION_BYTES_MAX),
            protected: true,
        }
    };
    let mut world = World::with_hosts(1);
    let spec = pinned(1);
    world
        .begin_boot_with("a", &spec, "h1", many(LABELS_MAX))
        .unwrap();
    assert_eq!(vm(&world, "a").metadata, many(LABELS_MAX));
    let outcome = world.begin_boot_with("b", &spec, "h1", many(LABELS_MAX + 1));
    assert_eq!(outcome.unwrap_err().reason, "INVALID_VM");
    let outcome = update(&mut world, "a", set(&[("one-more", "")], &[]));
    let refusal = outcome.unwrap_err();
    assert_eq!(
        (refusal.code, &*refusal.reason),
        (Code::InvalidArgument, "INVALID_VM")
    );
    assert!(refusal.message.contains("at most 64 labels"), "{refusal}");
    // One that makes way for another.
    update(&mut world, "a", set(&[("one-more", "")], &["k0"])).unwrap();
    let long = "x".repeat(DESCRIPTION_BYTES_MAX + 1);
    for (change, field) in [
        (set(&[("not a key", "v")], &[]), "labels.not a key"),
        (set(&[("k1", "not a value")], &[]), "labels.k1"),
        (set(&[], &["not a key"]), "labels.not a key"),
        (set(&[("k1", "v")], &["k1"]), "labels.k1"),
        (
            MetadataChange {
                description: Some(long),
                ..MetadataChange::default()
            },
            "description",
        ),
        (
            MetadataChange {
                description: Some("two\nlines".to_owned()),
                ..MetadataChange::default()
            },
            "description",
        ),
    ] {
        let refusal = update(&mut world, "a", change).unwrap_err();
        assert_eq!(refusal.reason, "INVALID_VM");
        assert!(refusal.metadata.contains_key(field), "{field}: {refusal:?}");
    }
}

/// Goal: a protected VM is neither deleted nor rebuilt in any state, nothing of it changes with the
/// refusal, and the command that the refusal names lets the request through.
#[test]
fn a_protected_vm_is_neither_deleted_nor_rebuilt() {
    let mut running = World::with_hosts(2);
    running.boot("a", &with_disk(), "h1");
    let mut stopped = running.clone();
    let operation = power::begin(&mut stopped, "a", Kind::Stop { timeout_ms: 0 }).unwrap();
    stopped.log(operation, Step::Stop, Mark::Started).unwrap();
    let off = Effect::EndPower {
        power: GuestPower::Off,
        refusal: None,
    };
    stopped
        .advance(operation, Step::Stop, Mark::Succeeded, off)
        .unwrap();
    let mut shelved = running.clone();
    shelved.shelve("a");
    for (state, world) in [
        (VmState::Active, running),
        (VmState::Stopped, stopped),
        (VmState::Shelved, shelved),
    ] {
        let mut world = world;
        assert_eq!(vm(&world, "a").state, state);
        protect(&mut world, "a", true);
        let before = vm(&world, "a");
        let refusal = begin_delete(&mut world, "a").unwrap_err();
        assert_eq!(
            (refusal.code, &*refusal.reason),
            (Code::FailedPrecondition, "VM_PROTECTED")
        );
        let hint = refusal.hint.unwrap();
        assert!(hint.contains("`berth vm set a --unprotect`"), "{hint}");
        if state != VmState::Shelved {
            let refusal = power::begin(&mut world, "a", REBUILD).unwrap_err();
            assert_eq!(refusal.reason, "VM_PROTECTED");
            assert!(refusal.message.contains("rebuilt"), "{refusal}");
        }
        assert_eq!(vm(&world, "a"), before);
        protect(&mut world, "a", false);
        if state != VmState::Shelved {
            power::begin(&mut world.clone(), "a", REBUILD).unwrap();
        }
        begin_delete(&mut world, "a").unwrap();
    }
}

/// Goal: what is done to a VM otherwise is done to a protected one too, its host's removal apart from it.
#[test]
fn everything_else_is_done_to_a_protected_vm() {
    let mut world = World::with_hosts(2);
    world.boot("a", &with_disk(), "h1");
    protect(&mut world, "a", true);
    for kind in [
        Kind::Stop { timeout_ms: 0 },
        Kind::Start,
        Kind::Reboot { timeout_ms: 0 },
        Kind::Snapshot {
            disk: 0,
            image: "i".to_owned(),
        },
    ] {
        power::begin(&mut world.clone(), "a", kind).unwrap();
    }
    world.clone().shelve("a");
    let migration = MigrationId(uuid(5, world.fresh()));
    let claim = world.claim("a", &with_disk(), "h2", Owner::Migration(migration));
    let mut moved = world.clone();
    let cold = Command::BeginMove {
        operation: operation_id(moved.fresh()),
        migration,
        vm: vm_name("a"),
        spec: None,
        requested_host: None,
        verify: false,
        evacuate: false,
        claim,
        lease: moved.lease(),
    };
    moved.run(cold).unwrap();
    let operation = world.begin_migration("a", "h2").unwrap();
    world.transfer(operation);
    world.settle(operation, Event::Arrived).unwrap();
    let after = vm(&world, "a");
    assert!(after.metadata.protected);
    assert_eq!(after.host, Some(host_name("h2")));
}

/// Goal: a change neither waits for an operation nor disturbs it, and remains after it.
#[test]
fn a_change_and_an_operation_leave_each_other_alone() {
    let mut world = World::with_hosts(2);
    let boot = world.begin_boot("a", &pinned(1), "h1").unwrap();
    update(&mut world, "a", set(&[("during", "boot")], &[])).unwrap();
    world.log(boot, Step::Spawn, Mark::Started).unwrap();
    world
        .advance(boot, Step::Spawn, Mark::Succeeded, Effect::CompleteBoot)
        .unwrap();
    let operation = world.begin_migration("a", "h2").unwrap();
    world.prepare(operation);
    update(&mut world, "a", set(&[("during", "migration")], &[])).unwrap();
    protect(&mut world, "a", true);
    let effect = Effect::BeginTransfer;
    world
        .advance(operation, Step::LiveMigration, Mark::Started, effect)
        .unwrap();
    update(&mut world, "a", set(&[("late", "yes")], &[])).unwrap();
    world.settle(operation, Event::Arrived).unwrap();
    assert_eq!(world.operation(operation).outcome, Some(Outcome::Succeeded));
    let after = vm(&world, "a");
    assert_eq!(after.state, VmState::Active);
    assert_eq!(after.metadata.labels["during"], "migration");
    assert_eq!(after.metadata.labels["late"], "yes");
    assert!(after.metadata.protected);
}

/// Goal: no protection is promised to a VM of which the disks are being deleted.
#[test]
fn a_vm_that_is_being_deleted_cannot_be_protected() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let operation = begin_delete(&mut world, "a").unwrap();
    let change = MetadataChange {
        protected: Some(true),
        ..MetadataChange::default()
    };
    assert_eq!(reason(&update(&mut world, "a", change)), "VM_STATE");
    update(&mut world, "a", set(&[("still", "labelled")], &[])).unwrap();
    protect(&mut world, "a", false);
    world.log(operation, Step::Destroy, Mark::Started).unwrap();
    let done = Effect::CompleteDelete;
    world
        .advance(operation, Step::Destroy, Mark::Succeeded, done)
        .unwrap();
    assert!(world.state.vm(&vm_name("a")).is_none());
}

/// Goal: a request that is repeated changes nothing once more, though another one came between.
#[test]
fn a_repeated_request_undoes_no_later_one() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let first = Command::UpdateVm {
        vm: vm_name("a"),
        change: set(&[("team", "blue")], &[]),
    };
    let key = request(1, 7);
    let run = |world: &mut World| world.run_as(Some(key.clone()), first.clone());
    assert_eq!(run(&mut world), Ok(Reply::None));
    update(&mut world, "a", set(&[("team", "red")], &[])).unwrap();
    assert_eq!(run(&mut world), Ok(Reply::None));
    assert_eq!(vm(&world, "a").metadata.labels["team"], "red");
}
