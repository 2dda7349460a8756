//! Goal: what a refusal advises about the state of a VM can be done in that state. Method: VMs that
//! are SHELVED, RESIZED, STOPPED and in ERROR, every command about a VM, and the first command that
//! the refusal's hint names, after the one that lifts the protection if it names that; the VMs are protected
//! or not.

use berth_decide::{
    Action, Decision, DecisionRequest, ScheduleMigration, ScheduleUnshelve, decide,
};
use berth_domain::id::{ClaimId, MigrationId, OperationId, TimeMs};
use berth_domain::name::{FlavorName, VmName};
use berth_domain::operation::{GuestPower, Kind, Mark, Step};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{MetadataChange, SchedulingHints, State};
use berth_state::Reply;
use berth_state::command::{Command, Effect};
use berth_testkit::state::{report, topology};

use super::cluster::World;

const COMMANDS: [&str; 13] = [
    "migrate",
    "migrate --cold",
    "resize",
    "shelve",
    "unshelve",
    "stop",
    "start",
    "reboot",
    "rebuild",
    "snapshot",
    "confirm-resize",
    "revert-resize",
    "delete",
];

fn vm() -> VmName {
    VmName::new("a").unwrap()
}

/// Returns a cluster of two hosts with a VM in this state.
fn world(state: State, has_claim: bool) -> World {
    let mut world = World::empty();
    for name in ["h1", "h2"] {
        let name = berth_domain::name::HostName::new(name).unwrap();
        world.register(&name, report(topology(2, 3, 1)));
    }
    let request = world.new_vm(vm(), "p1", SchedulingHints::default(), None);
    if state == State::Error && !has_claim {
        fail_boot(&mut world, &request);
        return world;
    }
    world.submit(request);
    match state {
        State::Stopped => world.stop(&vm()),
        State::Shelved => world.shelve(&vm()),
        State::Resized => {
            let flavor = Some(FlavorName::new("p2").unwrap());
            let action = world.cold_move(vm(), flavor, None);
            world.submit(action);
        }
        State::Error => break_rebuild(&mut world),
        State::Building | State::Active | State::Migrating | State::Deleting => {}
    }
    world
}

fn refusal() -> Refusal {
    Refusal::new(Code::Internal, "BROKEN", "it broke")
}

fn fail_boot(world: &mut World, request: &Action) {
    let proposal = world.decide(request).unwrap();
    let Reply::Operation(operation) = world.apply(&proposal.envelope) else {
        panic!("a boot is an operation");
    };
    let claim = operation.claim.unwrap();
    for (step, mark, effect) in [
        (Step::Spawn, Mark::Started, Effect::None),
        (Step::Spawn, Mark::Failed(refusal()), Effect::None),
        (Step::Spawn, Mark::UndoStarted, Effect::None),
        (Step::Spawn, Mark::Undone, Effect::None),
        (
            Step::Claim,
            Mark::Undone,
            Effect::ReleaseClaim {
                claim,
                exclude: true,
            },
        ),
        (
            Step::Claim,
            Mark::Failed(refusal()),
            Effect::FailBoot(refusal()),
        ),
    ] {
        world.log(&operation, step, mark, effect);
    }
}

fn break_rebuild(world: &mut World) {
    let operation = OperationId(world.fresh());
    let reply = world.run(Command::BeginPower {
        operation,
        vm: vm(),
        kind: Kind::Rebuild { images: Vec::new() },
        lease: World::lease(),
        by_policy: false,
    });
    let Reply::Operation(operation) = reply else {
        panic!("a rebuild is an operation");
    };
    let broken = Effect::EndPower {
        power: GuestPower::Broken,
        refusal: Some(refusal()),
    };
    for (step, mark, effect) in [
        (Step::Stop, Mark::Started, Effect::None),
        (Step::Stop, Mark::Succeeded, Effect::None),
        (Step::MakeDisks, Mark::Started, Effect::BeginRebuild),
        (Step::MakeDisks, Mark::Failed(refusal()), Effect::None),
        (Step::MakeDisks, Mark::UndoStarted, Effect::None),
        (Step::MakeDisks, Mark::Undone, broken),
    ] {
        world.log(&operation, step, mark, effect);
    }
}

/// Makes the request of a command, as a conductor does.
fn attempt(world: &mut World, command: &str) -> Result<(), Refusal> {
    let operation = OperationId(world.fresh());
    let migration = MigrationId(world.fresh());
    let claim = ClaimId(world.fresh());
    let lease = World::lease();
    let power = |kind| {
        Action::Plain(Command::BeginPower {
            operation,
            vm: vm(),
            kind,
            lease: World::lease(),
            by_policy: false,
        })
    };
    let action = match command {
        "migrate" => Action::ScheduleMigration(ScheduleMigration {
            operation,
            migration,
            claim,
            vm: vm(),
            host: None,
            lease,
            transfer: Default::default(),
        }),
        "migrate --cold" => world.cold_move(vm(), None, None),
        "resize" => world.cold_move(vm(), Some(FlavorName::new("p2").unwrap()), None),
        "shelve" => Action::Plain(Command::BeginShelve {
            operation,
            vm: vm(),
            lease,
        }),
        "unshelve" => Action::ScheduleUnshelve(ScheduleUnshelve {
            operation,
            claim,
            vm: vm(),
            host: None,
            lease,
        }),
        "stop" => power(Kind::Stop { timeout_ms: 0 }),
        "start" => power(Kind::Start),
        "reboot" => power(Kind::Reboot { timeout_ms: 0 }),
        "rebuild" => power(Kind::Rebuild { images: Vec::new() }),
        "snapshot" => power(Kind::Snapshot {
            disk: 0,
            image: "i".to_owned(),
        }),
        "confirm-resize" => Action::Plain(Command::ConfirmResize {
            vm: vm(),
            deleter: None,
        }),
        "revert-resize" => Action::Plain(Command::BeginRevertResize {
            operation,
            vm: vm(),
            lease,
        }),
        "delete" => Action::Plain(Command::BeginDelete {
            operation,
            vm: vm(),
            lease,
        }),
        other => panic!("{other} is no command about a VM"),
    };
    let request = DecisionRequest::new("test", action);
    match decide(&world.state, berth_codec::admit, TimeMs(1000), &request) {
        Decision::Command(_) | Decision::Answer(_) => Ok(()),
        Decision::Refuse(refusal) => Err(*refusal),
        Decision::Explain(_) => panic!("left unexplained"),
    }
}

/// Returns the commands that a hint names.
fn named(hint: &str) -> Vec<String> {
    let parts = hint
        .split('`')
        .filter_map(|part| part.strip_prefix("berth vm "));
    let commands = parts.map(|part| {
        let mut words = part.split(' ');
        let verb = words.next().unwrap();
        match words.any(|word| word == "--cold") {
            true => format!("{verb} --cold"),
            false => verb.to_owned(),
        }
    });
    commands.collect()
}

/// The states of which there is advice, and whether the VM has a claim then.
const STATES: [(State, bool); 5] = [
    (State::Shelved, false),
    (State::Resized, true),
    (State::Stopped, true),
    (State::Error, true),
    (State::Error, false),
];

#[test]
fn what_is_advised_about_a_state_is_admitted_in_it() {
    for protected in [false, true] {
        examine_advice(protected);
    }
}

fn examine_advice(protected: bool) {
    let mut advised = 0;
    for (state, has_claim) in STATES {
        let mut world = world(state, has_claim);
        protect(&mut world, protected);
        let present = world.state.vm(&vm()).unwrap();
        assert_eq!((present.state, present.claim.is_some()), (state, has_claim));
        for command in COMMANDS {
            let Err(refusal) = attempt(&mut world.clone(), command) else {
                continue;
            };
            let Some(hint) = &refusal.hint else { continue };
            let case = format!("{command} of a VM that is {state:?}: {refusal:?}");
            let commands = named(hint).into_iter();
            // `berth vm show` and the like change nothing.
            let changing = commands.filter(|command| COMMANDS.contains(&&**command));
            let mut lifted = world.clone();
            if let Some((before, _)) = hint.split_once("`berth vm set a --unprotect`") {
                assert!(protected && named(before).is_empty(), "{case}");
                protect(&mut lifted, false);
            }
            for command in changing {
                let outcome = attempt(&mut lifted.clone(), &command);
                assert_eq!(outcome, Ok(()), "{command}: {case}");
                advised += 1;
            }
        }
    }
    assert!(advised >= 25, "{advised}");
}

fn protect(world: &mut World, protected: bool) {
    let reply = world.run(Command::UpdateVm {
        vm: vm(),
        change: MetadataChange {
            protected: Some(protected),
            ..MetadataChange::default()
        },
    });
    assert_eq!(reply, Reply::None);
}

/// Goal: a deletion and a rebuild of a protected VM are refused with the command that lets them through,
/// and nothing else is refused for the protection.
#[test]
fn what_lifts_a_protection_lets_the_request_through() {
    let mut advised = 0;
    for (state, has_claim) in [(State::Active, true)].into_iter().chain(STATES) {
        let bare = world(state, has_claim);
        let mut protected = bare.clone();
        protect(&mut protected, true);
        for command in COMMANDS {
            let before = attempt(&mut bare.clone(), command);
            let outcome = attempt(&mut protected.clone(), command);
            let is_destroyed = matches!(command, "delete" | "rebuild") && before.is_ok();
            if !is_destroyed {
                let case = format!("{command} of a VM that is {state:?}");
                let unadvised = |refusal| Refusal {
                    hint: None,
                    ..refusal
                };
                assert_eq!(
                    outcome.map_err(unadvised),
                    before.map_err(unadvised),
                    "{case}"
                );
                continue;
            }
            let refusal = outcome.unwrap_err();
            assert_eq!(refusal.reason, "VM_PROTECTED");
            let hint = refusal.hint.unwrap();
            assert!(hint.contains("`berth vm set a --unprotect`"), "{hint}");
            let mut lifted = protected.clone();
            protect(&mut lifted, false);
            assert_eq!(attempt(&mut lifted, command), Ok(()), "{command} {state:?}");
            advised += 1;
        }
    }
    assert!(advised >= 8, "{advised}");
}

/// Goal: no hint is to delete a VM that is protected. Method: a VM in ERROR has a CPU of the only host, and
/// one that needs all of them is requested.
#[test]
fn no_hint_deletes_a_protected_occupant() {
    for protected in [false, true] {
        let mut world = World::empty();
        let host = berth_domain::name::HostName::new("h1").unwrap();
        world.register(&host, report(topology(2, 3, 1)));
        let occupant = world.new_vm(vm(), "p1", SchedulingHints::default(), None);
        world.submit(occupant);
        break_rebuild(&mut world);
        protect(&mut world, protected);
        let name = VmName::new("b").unwrap();
        let request = world.new_vm(name, "p6n2", SchedulingHints::default(), None);
        let refusal = world.decide(&request).map(drop).unwrap_err();
        let hint = format!("{:?} {:?}", refusal.hint, refusal.change);
        let deletes = hint.contains("berth vm delete a");
        assert_eq!(deletes, !protected, "{hint}");
    }
}
