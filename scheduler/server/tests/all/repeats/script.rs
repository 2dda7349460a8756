//! A sequence that holds what the drawn ones hardly ever do, or never with success: fenced hosts,
//! confirmed resizes, forced transfers, erased persistent memory.

use berth_domain::claim::Owner;
use berth_domain::fence::Method;
use berth_domain::host::Liveness;
use berth_domain::id::MigrationId;
use berth_domain::migration::Event;
use berth_domain::name::PmemName;
use berth_domain::operation::{DrainSpec, Mark, Step};
use berth_domain::pmem::{Label, PmemNamespace};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::topology::CellId;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

/// Returns commands for a new cluster, with their times.
pub(super) fn commands() -> Vec<(u64, Command)> {
    let mut world = World::with_hosts(2);
    force_complete(&mut world);
    confirm_resize(&mut world);
    drain(&mut world);
    fence(&mut world);
    erase(&mut world);
    world.executed
}

fn force_complete(world: &mut World) {
    world.boot("a", &pinned(1), "h1");
    let operation = world.begin_migration("a", "h2").expect("it fits");
    world
        .run(Command::ForceComplete { operation })
        .expect("it is under way");
    world.transfer(operation);
    world
        .settle(operation, Event::Arrived)
        .expect("it is transferred");
}

fn confirm_resize(world: &mut World) {
    world.boot("b", &pinned(1), "h1");
    let migration = MigrationId(uuid(5, world.fresh()));
    let operation = operation_id(world.fresh());
    let claim = world.claim("b", &pinned(2), "h2", Owner::Migration(migration));
    let begin = Command::BeginMove {
        operation,
        migration,
        vm: vm_name("b"),
        spec: Some(Box::new(pinned(2))),
        requested_host: None,
        verify: true,
        evacuate: false,
        claim,
        lease: world.lease(),
    };
    world.run(begin).expect("it fits");
    let steps = [
        (Step::StopSource, Mark::Started),
        (Step::StopSource, Mark::Succeeded),
        (Step::StartDestination, Mark::Started),
    ];
    for (step, mark) in steps {
        world.log(operation, step, mark).expect("the next step");
    }
    let (step, effect) = (Step::StartDestination, Effect::CompleteMove);
    let done = world.advance(operation, step, Mark::Succeeded, effect);
    done.expect("the last step");
    let confirm = Command::ConfirmResize {
        vm: vm_name("b"),
        deleter: None,
    };
    world.run(confirm).expect("it is resized");
}

fn drain(world: &mut World) {
    for vm in ["d", "e"] {
        world.boot(vm, &pinned(1), "h1");
    }
    let drain = operation_id(world.fresh());
    let begin = Command::BeginDrain {
        operation: drain,
        host: host_name("h1"),
        spec: DrainSpec {
            evacuate: false,
            cold: true,
            parallel: 1,
            by_policy: false,
        },
        by: "operator".to_owned(),
        plan: Vec::new(),
        lease: world.lease(),
    };
    world.run(begin).expect("no other drain");
    let migration = MigrationId(uuid(5, world.fresh()));
    let operation = operation_id(world.fresh());
    let begin = Command::BeginMigration {
        operation,
        migration,
        vm: vm_name("d"),
        requested_host: None,
        claim: world.claim("d", &pinned(1), "h2", Owner::Migration(migration)),
        lease: world.lease(),
        policy: berth_domain::policy::MigrationPolicy::default(),
    };
    let epoch = world.epoch(drain);
    let begin = Command::MoveDrained {
        drain,
        epoch,
        begin: Box::new(begin),
    };
    world.run(begin).expect("it waits");
    world.transfer(operation);
    let arrived = world.settle(operation, Event::Arrived);
    arrived.expect("it is transferred");
    // The second record ends the drain.
    let full = Refusal::new(Code::ResourceExhausted, "NO_VALID_HOST", "no host fits");
    for (vm, refusal) in [("d", None), ("e", Some(full))] {
        let record = Command::RecordDrained {
            drain,
            epoch,
            vm: vm_name(vm),
            refusal,
        };
        world.run(record).expect("nothing moves it");
    }
}

fn set_down(world: &mut World, host: &str) {
    let down = Command::SetLiveness {
        host: host_name(host),
        liveness: Liveness::Down,
    };
    world.run(down).expect("a host");
}

fn fence(world: &mut World) {
    set_down(world, "h1");
    let fence = Command::FenceHost {
        host: host_name("h1"),
        method: Method::Operator,
        by: "operator".to_owned(),
        output: "off".to_owned(),
        incarnation: world.view("h1").host.report.incarnation,
    };
    world.run(fence).expect("it is down");
}

fn erase(world: &mut World) {
    let namespace = PmemNamespace {
        name: PmemName::new("ns0").expect("a name"),
        class: Label::parse("SMALL").expect("a label").class(),
        size_bytes: 1 << 30,
        align_bytes: 2 << 20,
        path: "/dev/ns0".to_owned(),
        cell: Some(CellId(0)),
        region: "region0".to_owned(),
        trouble: String::new(),
    };
    let name = namespace.name.clone();
    let shape = topology(2, 3, 1).with_pmem(vec![namespace]);
    world
        .register("hp", report(shape.expect("a shape")))
        .expect("a host");
    world.boot(
        "p",
        &spec(flavor("pmem", 1, 256, &[("hw:pmem", "SMALL")])),
        "hp",
    );
    set_down(world, "hp");
    let write_off = Command::WriteOffPmem {
        host: host_name("hp"),
        namespace: name,
    };
    world.run(write_off).expect("it is used");
    let report = Command::NoteErasures {
        host: host_name("hp"),
        incarnation: world.view("hp").host.report.incarnation,
        reports: Vec::new(),
    };
    world.run(report).expect("its own host");
}
