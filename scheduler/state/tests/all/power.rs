//! Stop, start, reboot, rebuild and snapshot, command by command: what each leads to, what is
//! refused, and what stays whatever comes of them.

use berth_domain::claim::State as ClaimState;
use berth_domain::host::Liveness;
use berth_domain::id::OperationId;
use berth_domain::operation::{GuestPower, Kind, Mark, Outcome, Step};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{Disk, DiskFormat, State as VmState, VmSpec};
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

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

pub(crate) fn begin(world: &mut World, vm: &str, kind: Kind) -> Result<OperationId, Refusal> {
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    world
        .run(Command::BeginPower {
            operation,
            vm: vm_name(vm),
            kind,
            lease,
            by_policy: false,
        })
        .map(|_| operation)
}

fn stop() -> Kind {
    Kind::Stop { timeout_ms: 1_000 }
}

fn rebuild() -> Kind {
    Kind::Rebuild {
        images: vec!["new.img".to_owned()],
    }
}

fn snapshot(image: &str) -> Kind {
    Kind::Snapshot {
        disk: 0,
        image: image.to_owned(),
    }
}

fn end(power: GuestPower, refusal: Option<Refusal>) -> Effect {
    Effect::EndPower { power, refusal }
}

/// Carries an operation of one step out.
fn carry_out(world: &mut World, kind: Kind, step: Step, power: GuestPower) {
    let operation = begin(world, "a", kind).unwrap();
    world.log(operation, step, Mark::Started).unwrap();
    world
        .advance(operation, step, Mark::Succeeded, end(power, None))
        .unwrap();
    assert_eq!(world.operation(operation).outcome, Some(Outcome::Succeeded));
}

fn running() -> World {
    let mut world = World::with_hosts(2);
    world.boot("a", &with_disk(), "h1");
    world
}

fn state(world: &World) -> VmState {
    world.state.vm(&vm_name("a")).unwrap().state
}

#[test]
fn a_stopped_vm_keeps_its_claim_and_starts_on_it_again() {
    let mut world = running();
    let before = world.state.vm(&vm_name("a")).unwrap().clone();
    carry_out(&mut world, stop(), Step::Stop, GuestPower::Off);
    let vm = world.state.vm(&vm_name("a")).unwrap().clone();
    assert_eq!((vm.state, vm.operation), (VmState::Stopped, None));
    assert_eq!((&vm.host, vm.claim), (&before.host, before.claim));
    let claim = world.state.claim(vm.claim.unwrap()).unwrap();
    assert_eq!(claim.state, ClaimState::Active, "nobody else gets its CPUs");
    assert_eq!(world.used("h1", "PCPU"), 1);
    carry_out(&mut world, Kind::Start, Step::Start, GuestPower::On);
    assert_eq!(state(&world), VmState::Active);
    assert_eq!(world.state.vm(&vm_name("a")).unwrap().claim, before.claim);
    // The guest of an ACTIVE one may have powered off by itself.
    carry_out(&mut world, Kind::Start, Step::Start, GuestPower::On);
}

#[test]
fn the_state_stays_while_an_operation_is_under_way() {
    let mut world = running();
    let operation = begin(&mut world, "a", stop()).unwrap();
    assert_eq!(state(&world), VmState::Active);
    assert_eq!(world.operation(operation).kind.task(), Some("STOPPING"));
    for kind in [stop(), Kind::Start, rebuild(), snapshot("x")] {
        assert_eq!(begin(&mut world, "a", kind).unwrap_err().reason, "VM_BUSY");
    }
}

/// Method: every kind in every state that a VM can be brought to.
#[test]
fn what_cannot_be_done_now_is_refused_with_a_way_out() {
    let allowed = |world: &mut World, expected: [bool; 5]| {
        let kinds = [
            stop(),
            Kind::Start,
            Kind::Reboot { timeout_ms: 0 },
            rebuild(),
            snapshot("x"),
        ];
        for (kind, expected) in kinds.into_iter().zip(expected) {
            let mut world = world.clone();
            match begin(&mut world, "a", kind.clone()) {
                Ok(_) => assert!(expected, "{kind:?}"),
                Err(refusal) => {
                    assert!(!expected, "{kind:?}: {refusal}");
                    assert_eq!(refusal.reason, "VM_STATE");
                    assert!(refusal.hint.is_some());
                }
            }
        }
    };
    let mut world = running();
    allowed(&mut world, [true; 5]);
    carry_out(&mut world, stop(), Step::Stop, GuestPower::Off);
    allowed(&mut world, [false, true, false, true, true]);
    break_it(&mut world);
    allowed(&mut world, [false, false, false, true, false]);
}

/// A rebuild that fails while the disks are made.
fn break_it(world: &mut World) {
    let operation = begin(world, "a", rebuild()).unwrap();
    world.log(operation, Step::Stop, Mark::Started).unwrap();
    world.log(operation, Step::Stop, Mark::Succeeded).unwrap();
    world
        .advance(
            operation,
            Step::MakeDisks,
            Mark::Started,
            Effect::BeginRebuild,
        )
        .unwrap();
    let why = refusal("NO_SPACE");
    world
        .log(operation, Step::MakeDisks, Mark::Failed(why.clone()))
        .unwrap();
    let early = world.advance(
        operation,
        Step::MakeDisks,
        Mark::Failed(why.clone()),
        end(GuestPower::Broken, Some(why.clone())),
    );
    assert_eq!(reason(&early), "EFFECT_NOT_ALLOWED", "it was not undone");
    world
        .log(operation, Step::MakeDisks, Mark::UndoStarted)
        .unwrap();
    world
        .advance(
            operation,
            Step::MakeDisks,
            Mark::Undone,
            end(GuestPower::Broken, Some(why)),
        )
        .unwrap();
}

#[test]
fn a_rebuild_that_failed_half_way_holds_its_place_until_another_or_its_deletion() {
    let mut world = running();
    break_it(&mut world);
    let vm = world.state.vm(&vm_name("a")).unwrap().clone();
    assert_eq!(vm.state, VmState::Error);
    assert_eq!(
        vm.error.as_ref().map(|e| e.reason.as_str()),
        Some("NO_SPACE")
    );
    assert_eq!(vm.host, Some(host_name("h1")));
    assert_eq!(vm.spec.disks[0].image.as_deref(), Some("new.img"));
    assert_eq!(world.used("h1", "PCPU"), 1, "nobody else gets its CPUs");

    let mut rebuilt = world.clone();
    let again = begin(&mut rebuilt, "a", Kind::Rebuild { images: Vec::new() }).unwrap();
    rebuilt.log(again, Step::Stop, Mark::Started).unwrap();
    rebuilt.log(again, Step::Stop, Mark::Succeeded).unwrap();
    let not_begun = rebuilt.log(again, Step::MakeDisks, Mark::Started);
    assert_eq!(reason(&not_begun), "EFFECT_NOT_ALLOWED");
    rebuilt
        .advance(again, Step::MakeDisks, Mark::Started, Effect::BeginRebuild)
        .unwrap();
    rebuilt
        .log(again, Step::MakeDisks, Mark::Succeeded)
        .unwrap();
    rebuilt.log(again, Step::Start, Mark::Started).unwrap();
    rebuilt
        .advance(
            again,
            Step::Start,
            Mark::Succeeded,
            end(GuestPower::On, None),
        )
        .unwrap();
    let vm = rebuilt.state.vm(&vm_name("a")).unwrap();
    assert_eq!((vm.state, &vm.error), (VmState::Active, &None));

    let operation = operation_id(world.fresh());
    let lease = world.lease();
    world
        .run(Command::BeginDelete {
            operation,
            vm: vm_name("a"),
            lease,
        })
        .unwrap();
    assert_eq!(state(&world), VmState::Deleting);
    world.log(operation, Step::Destroy, Mark::Started).unwrap();
    world
        .advance(
            operation,
            Step::Destroy,
            Mark::Succeeded,
            Effect::CompleteDelete,
        )
        .unwrap();
    assert!(world.state.vm(&vm_name("a")).is_none());
    assert_eq!(world.used("h1", "PCPU"), 0);
}

#[test]
fn a_stopped_vm_is_deleted_and_is_not_migrated_live() {
    let mut world = running();
    carry_out(&mut world, stop(), Step::Stop, GuestPower::Off);
    let refused = world.begin_migration("a", "h2").unwrap_err();
    assert_eq!(refused.reason, "VM_STATE");
    assert!(refused.hint.unwrap().contains("berth vm start a"));
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let vm = vm_name("a");
    world
        .run(Command::BeginDelete {
            operation,
            vm,
            lease,
        })
        .unwrap();
    assert_eq!(state(&world), VmState::Deleting);
}

#[test]
fn wishes_that_make_no_sense_are_refused_before_anything_is_done() {
    let mut world = running();
    let cases = [
        (
            Kind::Rebuild {
                images: vec!["a".to_owned(), "b".to_owned()],
            },
            Code::InvalidArgument,
            "INVALID_VM",
        ),
        (
            Kind::Rebuild {
                images: vec!["../etc/shadow".to_owned()],
            },
            Code::InvalidArgument,
            "INVALID_VM",
        ),
        (snapshot("a/b"), Code::InvalidArgument, "INVALID_IMAGE"),
        (snapshot(".hidden"), Code::InvalidArgument, "INVALID_IMAGE"),
        (
            Kind::Snapshot {
                disk: 1,
                image: "x".to_owned(),
            },
            Code::InvalidArgument,
            "NO_SUCH_DISK",
        ),
        (Kind::Delete, Code::InvalidArgument, "KIND_NOT_ALLOWED"),
    ];
    for (kind, code, reason) in cases {
        let refused = begin(&mut world, "a", kind.clone()).unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), (code, reason));
    }
    let unknown = begin(&mut world, "nobody", stop()).unwrap_err();
    assert_eq!(unknown.code, Code::NotFound);
    world.boot("b", &with_disk(), "h1");
    begin(&mut world, "a", snapshot("x")).unwrap();
    let taken = begin(&mut world, "b", snapshot("x")).unwrap_err();
    assert_eq!(taken.reason, "IMAGE_EXISTS");
    begin(&mut world, "b", snapshot("y")).unwrap();

    let mut seeded = with_disk();
    seeded.disks.push(Disk::SEED);
    world.boot("c", &seeded, "h1");
    let copied = Kind::Snapshot {
        disk: 1,
        image: "z".to_owned(),
    };
    let refused = begin(&mut world, "c", copied).unwrap_err();
    assert_eq!(refused.reason, "DISK_IS_SEED");
    begin(&mut world, "c", snapshot("z")).unwrap();
}

#[test]
fn a_host_that_is_too_old_or_down_is_not_asked() {
    let mut world = running();
    let mut old = report(topology(2, 4, 2));
    old.service_version = ServiceVersion(2);
    world.register("h1", old).unwrap();
    let refused = begin(&mut world, "a", stop()).unwrap_err();
    assert_eq!(refused.reason, "SERVICE_VERSION_TOO_OLD");
    assert!(refused.hint.unwrap().contains("upgrade"));
    let mut world = running();
    world
        .run(Command::SetLiveness {
            host: host_name("h1"),
            liveness: Liveness::Down,
        })
        .unwrap();
    let refused = begin(&mut world, "a", stop()).unwrap_err();
    assert_eq!(refused.reason, "HOST_DOWN");
}

#[test]
fn an_operation_ends_only_where_it_may() {
    let mut world = running();
    let operation = begin(&mut world, "a", Kind::Reboot { timeout_ms: 0 }).unwrap();
    let why = refusal("NO");
    for (step, mark, effect) in [
        (Step::Start, Mark::Started, Effect::None),
        (Step::Stop, Mark::Succeeded, Effect::None),
        (
            Step::Stop,
            Mark::Failed(why.clone()),
            end(GuestPower::Unchanged, None),
        ),
        (Step::Destroy, Mark::Started, Effect::None),
        (Step::MakeDisks, Mark::Started, Effect::BeginRebuild),
        (
            Step::Stop,
            Mark::Started,
            end(GuestPower::Off, Some(why.clone())),
        ),
    ] {
        let refused = world.advance(operation, step, mark.clone(), effect.clone());
        assert!(refused.is_err(), "{step:?} {mark:?} {effect:?}");
    }
    world.log(operation, Step::Stop, Mark::Started).unwrap();
    let early = world.advance(
        operation,
        Step::Stop,
        Mark::Succeeded,
        end(GuestPower::Off, None),
    );
    assert_eq!(reason(&early), "EFFECT_NOT_ALLOWED", "it is to start again");
    world.log(operation, Step::Stop, Mark::Succeeded).unwrap();
    world.log(operation, Step::Start, Mark::Started).unwrap();
    let bare = world.log(operation, Step::Start, Mark::Succeeded);
    assert_eq!(
        reason(&bare),
        "EFFECT_NOT_ALLOWED",
        "its end says how it is"
    );
    world
        .log(operation, Step::Start, Mark::Failed(why.clone()))
        .unwrap();
    world
        .log(operation, Step::Start, Mark::UndoStarted)
        .unwrap();
    world
        .advance(
            operation,
            Step::Start,
            Mark::Undone,
            end(GuestPower::Off, Some(why.clone())),
        )
        .unwrap();
    assert_eq!(state(&world), VmState::Stopped, "it was found to be off");
    assert_eq!(
        world.operation(operation).outcome,
        Some(Outcome::Failed(why))
    );
}
