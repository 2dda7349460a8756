//! Draws about drains: begun, with moves of their VMs, and what became of those.

use berth_domain::operation::{DrainSpec, Operation, PlannedPlace};
use berth_state::command::PlannedVm;

use super::*;

/// Returns a command about a drain; another one begins where none runs.
pub(super) fn command(world: &mut World, pick: [u8; 4]) -> Option<Command> {
    let running = world.state.running_operations();
    let drains: Vec<Operation> = running
        .filter(|operation| operation.drain().is_some())
        .map(|operation| (**operation).clone())
        .collect();
    if drains.is_empty() || pick[0] > 230 {
        return Some(begin(world, pick));
    }
    let drain = of(&drains, pick[0]);
    let vms = &drain.drain().expect("it is one").vms;
    let vm = of(vms, pick[1]).vm;
    let epoch = world.epoch(drain.id);
    if pick[2].is_multiple_of(2) {
        return Some(Command::RecordDrained {
            drain: drain.id,
            epoch,
            vm,
            refusal: (pick[3] < 160).then(|| refusal(of(&["DRAWN", "VM_BUSY"], pick[3]))),
        });
    }
    let known = world.state.vm(&vm)?.clone();
    let migration = MigrationId(uuid(5, world.fresh()));
    let host = of(&HOSTS, pick[3]);
    world.state.host(&host_name(host))?;
    let owner = Owner::Migration(migration);
    let claim = world.claim(vm.as_str(), &known.spec, host, owner);
    let begin = Command::BeginMigration {
        operation: operation_id(world.fresh()),
        migration,
        vm,
        requested_host: None,
        claim,
        lease: world.lease(),
        policy: berth_domain::policy::MigrationPolicy::default(),
    };
    Some(Command::MoveDrained {
        drain: drain.id,
        epoch,
        begin: Box::new(begin),
    })
}

fn begin(world: &mut World, pick: [u8; 4]) -> Command {
    let place = |name: &str| PlannedVm {
        vm: vm_name(name),
        place: (pick[2] > 128).then(|| PlannedPlace {
            host: host_name(of(&HOSTS, pick[3])),
            assignment: nowhere(),
        }),
    };
    Command::BeginDrain {
        operation: operation_id(world.fresh()),
        host: host_name(of(&HOSTS, pick[1])),
        spec: DrainSpec {
            evacuate: pick[3] > 240,
            cold: pick[3] <= 240 && pick[2].is_multiple_of(3),
            parallel: 1 + u32::from(pick[2] % 3),
            by_policy: pick[3] > 244,
        },
        by: "operator".to_owned(),
        plan: VMS
            .iter()
            .take(usize::from(pick[3] % 5))
            .map(|vm| place(vm))
            .collect(),
        lease: world.lease(),
    }
}
