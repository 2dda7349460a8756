//! What a conductor asks the scheduler for a user's wish.

use berth_decide::{Action, ScheduleMigration, ScheduleMove, ScheduleUnshelve, ScheduleVm};
use berth_domain::id::{ClaimId, MigrationId, OperationId, VmUid};
use berth_domain::image::ImageProperties;
use berth_domain::operation::{DrainSpec, LeaseRequest};
use berth_domain::vm::{BootSource, Disk, DiskFormat, RestartPolicy, SchedulingHints};
use berth_state::command::Command;

use crate::chance::Chance;
use crate::packet::Wish;

/// Returns the request and the name of its method.
#[must_use]
pub fn request(wish: &Wish, lease: LeaseRequest, chance: &mut Chance) -> (&'static str, Action) {
    let operation = OperationId(chance.uuid());
    let claim = ClaimId(chance.uuid());
    match wish {
        Wish::Boot(vm, flavor, host) => {
            let scheduled = ScheduleVm {
                operation,
                vm: vm.clone(),
                uid: VmUid(chance.uuid()),
                claim,
                flavor: flavor.clone(),
                boot: BootSource::Kernel {
                    kernel: "vmlinuz".to_owned(),
                    initrd: "initrd".to_owned(),
                    cmdline: String::new(),
                },
                disks: vec![Disk {
                    image: None,
                    format: DiskFormat::Raw,
                    size_gib: 1,
                    seed: false,
                }],
                nics: Vec::new(),
                image_properties: ImageProperties::default(),
                hints: SchedulingHints::default(),
                volumes: Vec::new(),
                host: host.clone(),
                lease,
                project: None,
                restart: RestartPolicy::default(),
                first_boot: None,
                metadata: Default::default(),
            };
            ("ScheduleVm", Action::ScheduleVm(scheduled))
        }
        Wish::Migrate(vm, host, transfer) => {
            let scheduled = ScheduleMigration {
                operation,
                migration: MigrationId(chance.uuid()),
                vm: vm.clone(),
                claim,
                host: host.clone(),
                lease,
                transfer: transfer.clone(),
            };
            ("ScheduleMigration", Action::ScheduleMigration(scheduled))
        }
        Wish::ColdMigrate(vm, host) => {
            let scheduled = ScheduleMove {
                operation,
                migration: MigrationId(chance.uuid()),
                vm: vm.clone(),
                claim,
                flavor: None,
                host: host.clone(),
                preferred: None,
                verify: false,
                evacuate: false,
                lease,
            };
            ("ScheduleMove", Action::ScheduleMove(scheduled))
        }
        Wish::Resize(vm, flavor, verify) => {
            let scheduled = ScheduleMove {
                operation,
                migration: MigrationId(chance.uuid()),
                vm: vm.clone(),
                claim,
                flavor: Some(flavor.clone()),
                host: None,
                preferred: None,
                verify: *verify,
                evacuate: false,
                lease,
            };
            ("ScheduleMove", Action::ScheduleMove(scheduled))
        }
        Wish::Unshelve(vm, host) => {
            let scheduled = ScheduleUnshelve {
                operation,
                vm: vm.clone(),
                claim,
                host: host.clone(),
                lease,
            };
            ("ScheduleUnshelve", Action::ScheduleUnshelve(scheduled))
        }
        Wish::Power(..)
        | Wish::Delete(_)
        | Wish::Drain(..)
        | Wish::Uncordon(_)
        | Wish::Cancel(_)
        | Wish::ForceComplete(_)
        | Wish::Confirm(_)
        | Wish::Revert(_)
        | Wish::Shelve(_) => plain(wish, operation, lease),
    }
}

/// Returns the command for a wish that needs no host.
fn plain(wish: &Wish, operation: OperationId, lease: LeaseRequest) -> (&'static str, Action) {
    let (method, command) = match wish {
        Wish::Delete(vm) => {
            let vm = vm.clone();
            let command = Command::BeginDelete {
                operation,
                vm,
                lease,
            };
            ("BeginDelete", command)
        }
        Wish::Drain(host, cold) => {
            let command = Command::BeginDrain {
                operation,
                host: host.clone(),
                spec: DrainSpec {
                    evacuate: false,
                    cold: *cold,
                    parallel: 2,
                    by_policy: false,
                },
                by: "user".to_owned(),
                plan: Vec::new(),
                lease,
            };
            ("BeginDrain", command)
        }
        Wish::Uncordon(host) => {
            let command = Command::SetCordon {
                host: host.clone(),
                cordoned: false,
            };
            ("UncordonHost", command)
        }
        Wish::Cancel(operation) => {
            let operation = *operation;
            ("CancelOperation", Command::CancelOperation { operation })
        }
        Wish::ForceComplete(operation) => {
            let operation = *operation;
            ("ForceComplete", Command::ForceComplete { operation })
        }
        Wish::Confirm(vm) => {
            let vm = vm.clone();
            let deleter = Some((operation, lease));
            ("ConfirmResize", Command::ConfirmResize { vm, deleter })
        }
        Wish::Revert(vm) => {
            let vm = vm.clone();
            let command = Command::BeginRevertResize {
                operation,
                vm,
                lease,
            };
            ("BeginRevertResize", command)
        }
        Wish::Power(vm, kind) => {
            let command = Command::BeginPower {
                operation,
                vm: vm.clone(),
                kind: kind.clone(),
                lease,
                by_policy: false,
            };
            ("BeginPower", command)
        }
        Wish::Shelve(vm) => {
            let vm = vm.clone();
            let command = Command::BeginShelve {
                operation,
                vm,
                lease,
            };
            ("BeginShelve", command)
        }
        Wish::Boot(..)
        | Wish::Migrate(..)
        | Wish::ColdMigrate(..)
        | Wish::Resize(..)
        | Wish::Unshelve(..) => unreachable!("a host is chosen for these"),
    };
    (method, Action::Plain(command))
}
