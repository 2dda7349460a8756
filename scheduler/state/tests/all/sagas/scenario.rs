//! One operation of each kind, begun, in each form that has other steps.

use std::fmt;

use berth_domain::claim::Owner;
use berth_domain::fence::Method;
use berth_domain::host::Liveness;
use berth_domain::id::{MigrationId, OperationId};
use berth_domain::operation::Kind;
use berth_domain::vm::{Disk, DiskFormat};
use berth_state::command::Command;
use berth_testkit::state::*;

use super::player::Player;

/// Begins an operation on the VM `a`, which runs on `h1`.
pub(super) struct Scenario {
    name: &'static str,
    own_storages: bool,
    has_topology: bool,
    begin: fn(&mut World) -> OperationId,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const fn shared(name: &'static str, begin: fn(&mut World) -> OperationId) -> Scenario {
    Scenario {
        name,
        own_storages: false,
        has_topology: true,
        begin,
    }
}

const fn own(name: &'static str, begin: fn(&mut World) -> OperationId) -> Scenario {
    Scenario {
        own_storages: true,
        ..shared(name, begin)
    }
}

pub(super) const SCENARIOS: &[Scenario] = &[
    shared("boot", boot),
    shared("delete", delete),
    own("delete, while a move waits to be verified", |world| {
        finish(world, |world| cold(world, true));
        delete(world)
    }),
    shared("live migration", live),
    Scenario {
        has_topology: false,
        ..shared("live migration without a topology", live)
    },
    shared("cold migration", |world| cold(world, false)),
    shared("cold migration, verified", |world| cold(world, true)),
    shared("cold migration of a stopped VM", |world| {
        finish(world, stop);
        cold(world, false)
    }),
    own("cold migration with its disks", |world| cold(world, false)),
    own("cold migration with its disks, verified", |world| {
        cold(world, true)
    }),
    shared("revert", |world| {
        finish(world, |world| cold(world, true));
        revert(world)
    }),
    own("revert with its disks", |world| {
        finish(world, |world| cold(world, true));
        revert(world)
    }),
    own("confirmation", |world| {
        finish(world, |world| cold(world, true));
        confirm(world)
    }),
    shared("evacuation", evacuate),
    shared("shelve", shelve),
    shared("unshelve", |world| {
        finish(world, shelve);
        unshelve(world)
    }),
    shared("stop", stop),
    shared("start", |world| {
        finish(world, stop);
        power(world, Kind::Start)
    }),
    shared("reboot", |world| {
        power(world, Kind::Reboot { timeout_ms: 0 })
    }),
    shared("rebuild", rebuild),
    shared("rebuild of a stopped VM", |world| {
        finish(world, stop);
        rebuild(world)
    }),
    shared("snapshot", |world| {
        let image = "new.img".to_owned();
        power(world, Kind::Snapshot { disk: 0, image })
    }),
];

impl Scenario {
    /// Returns the scenario of this name.
    pub(super) fn named(name: &str) -> &'static Self {
        let mut all = SCENARIOS.iter();
        all.find(|scenario| scenario.name == name)
            .expect("a scenario")
    }

    /// Returns the cluster before it has any VM.
    pub(super) fn hosts(&self) -> World {
        let mut world = World::with_hosts(0);
        for number in 1..=4 {
            let mut report = report(topology(1, 4, 1));
            if self.own_storages {
                report.storage_id = format!("s{number}");
            }
            world.register(&format!("h{number}"), report).unwrap();
        }
        world
    }

    /// Returns the operation before its first step.
    pub(super) fn player(&self) -> Player {
        let mut world = self.hosts();
        let mut spec = match self.has_topology {
            true => pinned(1),
            false => floating(1),
        };
        spec.flavor.disk_gib = 1;
        spec.disks.push(Disk {
            image: Some("old.img".to_owned()),
            format: DiskFormat::Raw,
            size_gib: 1,
            seed: false,
        });
        world.boot("a", &spec, "h1");
        let operation = (self.begin)(&mut world);
        Player::new(world, operation)
    }
}

/// Plays an operation to its end.
fn finish(world: &mut World, begin: impl Fn(&mut World) -> OperationId) {
    let operation = begin(world);
    let mut player = Player::new(world.clone(), operation);
    player.play();
    *world = player.world;
}

fn boot(world: &mut World) -> OperationId {
    world.begin_boot("b", &pinned(1), "h1").unwrap()
}

fn live(world: &mut World) -> OperationId {
    world.begin_migration("a", "h2").unwrap()
}

fn delete(world: &mut World) -> OperationId {
    begin(world, |operation, lease| Command::BeginDelete {
        operation,
        vm: vm_name("a"),
        lease,
    })
}

fn cold(world: &mut World, verify: bool) -> OperationId {
    begin_move(world, verify, false)
}

fn evacuate(world: &mut World) -> OperationId {
    let host = host_name("h1");
    let incarnation = world.view("h1").host.report.incarnation;
    let liveness = Liveness::Down;
    world
        .run(Command::SetLiveness {
            host: host.clone(),
            liveness,
        })
        .unwrap();
    world
        .run(Command::FenceHost {
            host,
            method: Method::Operator,
            by: "unverified:test".to_owned(),
            output: "off".to_owned(),
            incarnation,
        })
        .unwrap();
    begin_move(world, false, true)
}

fn begin_move(world: &mut World, verify: bool, evacuate: bool) -> OperationId {
    let migration = MigrationId(uuid(5, world.fresh()));
    let spec = world.state.vm(&vm_name("a")).unwrap().spec.clone();
    let claim = world.claim("a", &spec, "h2", Owner::Migration(migration));
    begin(world, |operation, lease| Command::BeginMove {
        operation,
        migration,
        vm: vm_name("a"),
        spec: None,
        requested_host: None,
        verify,
        evacuate,
        claim,
        lease,
    })
}

fn revert(world: &mut World) -> OperationId {
    begin(world, |operation, lease| Command::BeginRevertResize {
        operation,
        vm: vm_name("a"),
        lease,
    })
}

fn confirm(world: &mut World) -> OperationId {
    begin(world, |operation, lease| Command::ConfirmResize {
        vm: vm_name("a"),
        deleter: Some((operation, lease)),
    })
}

fn shelve(world: &mut World) -> OperationId {
    begin(world, |operation, lease| Command::BeginShelve {
        operation,
        vm: vm_name("a"),
        lease,
    })
}

fn unshelve(world: &mut World) -> OperationId {
    let spec = world.state.vm(&vm_name("a")).unwrap().spec.clone();
    let claim = world.claim("a", &spec, "h2", Owner::Vm);
    begin(world, |operation, lease| Command::BeginUnshelve {
        operation,
        vm: vm_name("a"),
        requested_host: None,
        claim,
        lease,
    })
}

fn stop(world: &mut World) -> OperationId {
    power(world, Kind::Stop { timeout_ms: 0 })
}

fn rebuild(world: &mut World) -> OperationId {
    power(world, Kind::Rebuild { images: Vec::new() })
}

fn power(world: &mut World, kind: Kind) -> OperationId {
    begin(world, |operation, lease| Command::BeginPower {
        operation,
        vm: vm_name("a"),
        kind,
        lease,
        by_policy: false,
    })
}

fn begin(
    world: &mut World,
    command: impl FnOnce(OperationId, berth_state::command::LeaseRequest) -> Command,
) -> OperationId {
    let operation = operation_id(world.fresh());
    let command = command(operation, world.lease());
    world.run(command).unwrap();
    operation
}
