//! Draws of commands against a small cluster: most with arguments that exist, many of them in the
//! wrong moment.

mod drain;
mod image;
mod metadata;
mod network;
mod placement;
mod power;
mod restart;

use super::*;
use berth_domain::aggregate::{Aggregate, AggregateChange};
use berth_domain::claim::{Claim, Owner};
use berth_domain::fence;
use berth_domain::host::Liveness;
use berth_domain::id::{
    AggregateId, Epoch, Generation, MigrationId, OperationId, ProviderId, TimeMs,
};
use berth_domain::migration::Event;
use berth_domain::name::{AggregateName, ServerGroupName, ZoneName};
use berth_domain::operation::{GuestPower, Kind, Mark, Operation, Step};
use berth_domain::policy::{SchedulingPolicy, Scope, Setting};
use berth_domain::reality::{Absence, Comparison, Finding, Unknown};
use berth_domain::server_group::{GroupPolicy, ServerGroup};
use berth_domain::vm::{self, Disk, DiskFormat, Vm, VmSpec};
use berth_state::command::{Command, Effect, LeaseRequest, RequestKey};
use proptest::prelude::{Strategy, any};

const HOSTS: [&str; 3] = ["h1", "h2", "h3"];
const VMS: [&str; 4] = ["a", "b", "c", "d"];
/// One draw: what to do, and numbers that pick its arguments.
#[derive(Clone, Debug)]
pub struct Draw {
    what: u8,
    pick: [u8; 4],
}

/// Returns random commands of every kind.
pub fn draws() -> impl Strategy<Value = Vec<Draw>> {
    let draw = (0..100_u8, any::<[u8; 4]>()).prop_map(|(what, pick)| Draw { what, pick });
    proptest::collection::vec(draw, 1..160)
}

/// Draws that boot VMs and then work on them where they are.
pub fn power_draws() -> impl Strategy<Value = Vec<Draw>> {
    let what = proptest::sample::select(vec![1_u8, 1, 1, 5, 20, 20, 20, 20, 20, 20, 65]);
    let draw = (what, any::<[u8; 4]>()).prop_map(|(what, pick)| Draw { what, pick });
    proptest::collection::vec(draw, 1..120)
}

/// Draws on clients' providers and consumers alone.
pub fn placement_draws() -> impl Strategy<Value = Vec<Draw>> {
    let draw = any::<[u8; 4]>().prop_map(|pick| Draw { what: 85, pick });
    proptest::collection::vec(draw, 1..120)
}

fn some_spec(pick: u8) -> VmSpec {
    let mut spec = match pick % 4 {
        0 => pinned(u32::from(pick / 4 % 3) + 1),
        1 => wide(),
        2 => floating(2),
        _ => pinned(1),
    };
    let zone = of(&["east", "west"], pick);
    spec.hints.availability_zone = (pick > 190).then(|| ZoneName::new(zone).unwrap());
    spec.hints.server_group = (pick < 160).then(|| some_group(pick / 16).name);
    spec
}

/// Two aggregates make one zone, so that hosts can be in it twice.
fn some_aggregate(pick: u8) -> Aggregate {
    let (name, zone) = of(&[("a1", "east"), ("a2", "east"), ("a3", "west")], pick);
    Aggregate {
        name: AggregateName::new(name).unwrap(),
        id: AggregateId(uuid(41, u64::from(pick % 3))),
        hosts: if pick < 3 {
            [host_name(of(&HOSTS, pick))].into()
        } else {
            Default::default()
        },
        metadata: [("availability_zone".to_owned(), zone.to_owned())].into(),
        generation: Generation(0),
        created_at: TimeMs(0),
    }
}

fn aggregate_command(pick: [u8; 4]) -> Command {
    let aggregate = some_aggregate(pick[0]);
    let hosts = [host_name(of(&HOSTS, pick[2]))].into();
    let mut change = AggregateChange::default();
    match pick[1] % 7 {
        0 => return Command::CreateAggregate(aggregate),
        1 => {
            let aggregate = aggregate.name;
            return Command::DeleteAggregate { aggregate };
        }
        2 => change.unset = aggregate.metadata.into_keys().collect(),
        3 => change.set = some_aggregate(pick[3]).metadata,
        4 => change.remove_hosts = hosts,
        _ => change.add_hosts = hosts,
    }
    Command::UpdateAggregate {
        aggregate: aggregate.name,
        change,
    }
}

/// The first three are there from the beginning.
fn some_group(pick: u8) -> ServerGroup {
    let (name, policy, max) = match pick % 5 {
        0 => ("apart", GroupPolicy::AntiAffinity, None),
        1 => ("together", GroupPolicy::Affinity, None),
        2 => ("two", GroupPolicy::AntiAffinity, Some(2)),
        3 => ("soft", GroupPolicy::SoftAffinity, None),
        _ => ("other", GroupPolicy::SoftAntiAffinity, None),
    };
    let name = ServerGroupName::new(name).unwrap();
    ServerGroup::new(name, policy, max).unwrap()
}

fn of<T: Clone>(list: &[T], pick: u8) -> T {
    list[usize::from(pick) % list.len()].clone()
}

fn some_operation(world: &World, pick: u8) -> Option<OperationId> {
    // The running ones are the interesting ones.
    let running: Vec<_> = world.state.running_operations().map(|o| o.id).collect();
    let all: Vec<_> = world.state.operations().keys().copied().collect();
    let from = if running.is_empty() || pick > 230 {
        all
    } else {
        running
    };
    (!from.is_empty()).then(|| of(&from, pick))
}

/// Returns what the saga of this operation would do next, as far as the log tells.
pub fn next_of_saga(world: &mut World, operation: &Operation, fail: bool) -> (Step, Mark, Effect) {
    let last = operation.log.last().map(|e| (e.step, e.mark.clone()));
    let why = refusal("DRAWN");
    let failed = Mark::Failed(why.clone());
    let give_up = match operation.kind {
        Kind::LiveMigrate { .. } | Kind::ColdMigrate { .. } | Kind::Evacuate { .. } => {
            Effect::RefuseMigration(why.clone())
        }
        Kind::Unshelve => Effect::FailUnshelve(why),
        Kind::Boot
        | Kind::Delete
        | Kind::RevertResize { .. }
        | Kind::ConfirmResize { .. }
        | Kind::Shelve => Effect::FailBoot(why),
        Kind::Stop { .. }
        | Kind::Start
        | Kind::Reboot { .. }
        | Kind::Rebuild { .. }
        | Kind::Snapshot { .. } => return power::next(world, operation, fail),
        // It has no steps, so every one is refused.
        Kind::DrainHost(_) => return (Step::Claim, Mark::Started, Effect::None),
    };
    let claim = operation.claim;
    let release = claim.map(|claim| Effect::ReleaseClaim {
        claim,
        exclude: true,
    });
    match (operation.kind.clone(), last) {
        (Kind::Delete, None) => (Step::Destroy, Mark::Started, Effect::None),
        (Kind::Delete, _) if fail => (Step::Destroy, failed, Effect::None),
        (Kind::Delete, _) => (Step::Destroy, Mark::Succeeded, Effect::CompleteDelete),
        (Kind::Shelve, None) => (Step::StopSource, Mark::Started, Effect::None),
        (Kind::Shelve, _) if fail => (Step::StopSource, failed, Effect::None),
        (Kind::Shelve, _) => (Step::StopSource, Mark::Succeeded, Effect::CompleteShelve),
        (Kind::RevertResize { .. }, None) => (Step::StopDestination, Mark::Started, Effect::None),
        (Kind::RevertResize { .. }, Some((step, Mark::Started))) if fail => {
            (step, failed, Effect::None)
        }
        (Kind::RevertResize { .. }, Some((Step::StopDestination, Mark::Succeeded))) => {
            (Step::StartSource, Mark::Started, Effect::None)
        }
        (Kind::RevertResize { .. }, Some((Step::StopDestination, _))) => {
            (Step::StopDestination, Mark::Succeeded, Effect::None)
        }
        (Kind::RevertResize { .. }, _) => {
            (Step::StartSource, Mark::Succeeded, Effect::CompleteRevert)
        }
        (Kind::ConfirmResize { .. }, None) => (Step::DropSource, Mark::Started, Effect::None),
        (Kind::ConfirmResize { .. }, _) => {
            (Step::DropSource, Mark::Succeeded, Effect::CompleteConfirm)
        }
        (kind, Some((Step::Claim, Mark::Undone))) => {
            let owner = kind.claiming().map_or(Owner::Vm, Owner::Migration);
            let name = operation.vm().expect("it has steps").clone();
            let vm = world.state.vm(&name);
            let spec = vm.map_or_else(|| pinned(1), |vm| vm.spec.clone());
            let migration = kind.claiming().and_then(|id| world.state.migration(id));
            let resize = migration.and_then(|m| m.resize.as_deref());
            let spec = resize.map_or(spec, |resize| resize.after.clone());
            let hosts: Vec<_> = world.state.hosts().keys().cloned().collect();
            if fail || hosts.is_empty() {
                return (Step::Claim, failed, give_up);
            }
            let host = of(&hosts, u8::try_from(world.ids % 3).unwrap());
            let next = world.claim(name.as_str(), &spec, host.as_str(), owner);
            (Step::Claim, Mark::Succeeded, Effect::HoldClaim(next))
        }
        (_, Some((step, Mark::Failed(_))))
            if step != Step::Settle && step != Step::LiveMigration =>
        {
            (step, Mark::UndoStarted, Effect::None)
        }
        (_, Some((step, Mark::UndoStarted))) => (step, Mark::Undone, Effect::None),
        (Kind::ColdMigrate { .. }, Some((Step::StartDestination, Mark::Undone))) => {
            (Step::StopSource, Mark::UndoStarted, Effect::None)
        }
        (_, Some((_, Mark::Undone))) => (Step::Claim, Mark::Undone, release.unwrap_or(give_up)),
        (Kind::Boot, Some((Step::Claim, _))) => (Step::Spawn, Mark::Started, Effect::None),
        (Kind::Boot, _) if fail => (Step::Spawn, failed, Effect::None),
        (Kind::Boot, _) => (Step::Spawn, Mark::Succeeded, Effect::CompleteBoot),
        (Kind::ColdMigrate { .. }, Some((Step::Claim, _))) => {
            (Step::StopSource, Mark::Started, Effect::None)
        }
        (Kind::ColdMigrate { .. }, Some((Step::StopSource, Mark::Started))) if !fail => {
            (Step::StopSource, Mark::Succeeded, Effect::None)
        }
        (Kind::ColdMigrate { .. }, Some((Step::StopSource, Mark::Succeeded)))
        | (Kind::Evacuate { .. } | Kind::Unshelve, Some((Step::Claim, _))) => {
            (Step::StartDestination, Mark::Started, Effect::None)
        }
        (
            Kind::ColdMigrate { .. } | Kind::Evacuate { .. } | Kind::Unshelve,
            Some((step, Mark::Started)),
        ) if fail => (step, failed, Effect::None),
        (Kind::ColdMigrate { .. } | Kind::Evacuate { .. }, Some((Step::StartDestination, _))) => (
            Step::StartDestination,
            Mark::Succeeded,
            Effect::CompleteMove,
        ),
        (Kind::Unshelve, Some((Step::StartDestination, _))) => (
            Step::StartDestination,
            Mark::Succeeded,
            Effect::CompleteUnshelve,
        ),
        (_, Some((Step::Claim, _))) => (Step::CheckDestination, Mark::Succeeded, Effect::None),
        (_, Some((Step::CheckDestination, _))) => {
            (Step::CheckSource, Mark::Succeeded, Effect::None)
        }
        (_, Some((Step::CheckSource, _))) => {
            let effect = claim.map_or(Effect::None, |claim| Effect::ConfirmClaim { claim });
            (Step::FitDestination, Mark::Succeeded, effect)
        }
        (_, Some((Step::FitDestination, _))) => {
            (Step::PreLiveMigration, Mark::Started, Effect::None)
        }
        (_, Some((Step::PreLiveMigration, Mark::Started))) if fail => {
            (Step::PreLiveMigration, failed, Effect::None)
        }
        (_, Some((Step::PreLiveMigration, Mark::Started))) => {
            (Step::PreLiveMigration, Mark::Succeeded, Effect::None)
        }
        (_, Some((Step::PreLiveMigration, _))) => {
            (Step::LiveMigration, Mark::Started, Effect::BeginTransfer)
        }
        (_, Some((Step::LiveMigration, Mark::Started))) if !fail => {
            (Step::LiveMigration, Mark::Succeeded, Effect::None)
        }
        (_, Some(_)) if fail => {
            let effect = Effect::Settle {
                event: Event::Unknown,
                refusal: None,
            };
            (Step::Settle, failed, effect)
        }
        (_, _) => {
            let event = of(
                &[Event::Arrived, Event::Stayed, Event::Lost],
                u8::try_from(world.ids % 7).unwrap(),
            );
            world.fresh();
            (
                Step::Settle,
                Mark::Succeeded,
                Effect::Settle {
                    event,
                    refusal: None,
                },
            )
        }
    }
}

/// Returns something that no saga would log.
fn nonsense(world: &mut World, operation: &Operation, pick: [u8; 4]) -> (Step, Mark, Effect) {
    let step = of(&Step::ALL, pick[1]);
    let why = refusal("DRAWN");
    let marks = [
        Mark::Started,
        Mark::Succeeded,
        Mark::Failed(why.clone()),
        Mark::UndoStarted,
        Mark::Undone,
    ];
    let claims: Vec<&Claim> = world.state.claims().values().map(|c| &**c).collect();
    let claim = (!claims.is_empty()).then(|| of(&claims, pick[2]).clone());
    let Some(claim) = claim else {
        return (step, of(&marks, pick[3]), Effect::None);
    };
    let (id, assignment) = (claim.id, claim.assignment.clone());
    let effects = [
        Effect::None,
        Effect::HoldClaim(claim),
        Effect::ConfirmClaim { claim: id },
        Effect::SwapClaim {
            claim: id,
            assignment,
        },
        Effect::ReleaseClaim {
            claim: id,
            exclude: false,
        },
        Effect::CompleteBoot,
        Effect::FailBoot(why.clone()),
        Effect::BeginTransfer,
        Effect::RefuseMigration(why.clone()),
        Effect::Settle {
            event: of(&Event::ALL, pick[0]),
            refusal: Some(why),
        },
        Effect::CompleteDelete,
        Effect::CompleteMove,
        Effect::CompleteRevert,
        Effect::CompleteShelve,
        Effect::CompleteUnshelve,
        Effect::FailUnshelve(refusal("DRAWN")),
        Effect::BeginRebuild,
        Effect::EndPower {
            power: GuestPower::Off,
            refusal: None,
        },
        Effect::ReleaseClaim {
            claim: operation.claim.unwrap_or(id),
            exclude: true,
        },
    ];
    (step, of(&marks, pick[3]), of(&effects, pick[2] / 2))
}

fn advance(world: &mut World, pick: [u8; 4], sensible: bool) -> Option<Command> {
    let id = some_operation(world, pick[0])?;
    let operation = world.operation(id).clone();
    let (step, mark, effect) = if sensible {
        next_of_saga(world, &operation, pick[1] > 200)
    } else {
        nonsense(world, &operation, pick)
    };
    let stale = pick[3] > 245;
    let epoch = world.epoch(id);
    let epoch = if stale { Epoch(epoch.0 / 2) } else { epoch };
    Some(Command::Advance {
        operation: id,
        epoch,
        step,
        mark,
        effect,
    })
}

/// Returns what an agent may find: of the VMs of its host, and of guests that nobody knows.
fn note(world: &World, host: HostName, pick: [u8; 4]) -> Command {
    let expected = world.state.expected_of(&host);
    let absences = [
        None,
        Some(Absence::Stopped),
        Some(Absence::Missing),
        Some(Absence::ShutDown),
    ];
    let findings = expected.iter().map(|expected| Finding {
        vm: expected.vm.clone(),
        claim: expected.claim,
        generation: Generation(expected.generation.0 - u64::from(pick[3] > 200)),
        absence: of(&absences, pick[2]),
    });
    let mut claims = world.state.claims().values();
    let held = claims.nth(usize::from(pick[2] % 8));
    let unknown = held.map(|claim| Unknown {
        uuid: uuid(8, u64::from(pick[3] % 2)),
        name: "stray".to_owned(),
        is_ours: pick[3] % 4 < 3,
        claim: Some(claim.id),
        held: claim.assignment.clone(),
    });
    Command::NoteReality {
        host,
        incarnation: report(topology(1, 2, 1)).incarnation,
        comparison: Comparison {
            basis: world.state.revision(),
            findings: findings.collect(),
            unknown: unknown.filter(|_| pick[2] > 100).into_iter().collect(),
        },
    }
}

fn host_command(world: &World, pick: [u8; 4]) -> Command {
    let host = host_name(of(&HOSTS, pick[0]));
    match pick[1] % 12 {
        10 | 11 => note(world, host, pick),
        // Nothing is placed there afterwards, so it is rare.
        8 if pick[3] > 200 => Command::FenceHost {
            host,
            method: of(&fence::Method::ALL, pick[2]),
            by: "somebody".to_owned(),
            output: String::new(),
            incarnation: report(topology(1, 2, 1)).incarnation,
        },
        0 => Command::SetLiveness {
            host,
            liveness: Liveness::Down,
        },
        1 | 2 => Command::SetLiveness {
            host,
            liveness: Liveness::Up,
        },
        3 => Command::SetCordon {
            host,
            cordoned: true,
        },
        4 => Command::SetCordon {
            host,
            cordoned: false,
        },
        5 => Command::RemoveHost { host },
        _ => {
            let cells = 1 + u32::from(pick[2] % 3);
            let shape = topology(cells, 2 + u32::from(pick[3] % 3), 1);
            let provider = ProviderId(uuid(2, u64::from(pick[0] % 3)));
            Command::RegisterHost {
                host,
                provider,
                report: HostReport {
                    traits: [placement::some_trait(pick[1])].into(),
                    ..report(shape)
                },
            }
        }
    }
}

/// Begins something during which the VM does not run, most times where that makes sense.
fn begin_cold(world: &mut World, known: &Vm, host: &str, pick: [u8; 4]) -> Option<Command> {
    let operation = operation_id(world.fresh());
    let (vm, lease) = (known.name.clone(), world.lease());
    let name = known.name.as_str();
    if known.state == vm::State::Shelved {
        return Some(Command::BeginUnshelve {
            operation,
            claim: world.claim(name, &known.spec, host, Owner::Vm),
            vm,
            requested_host: None,
            lease,
        });
    }
    Some(match (known.state == vm::State::Resized, pick[2] % 8) {
        (true, 0) => Command::ConfirmResize { vm, deleter: None },
        (true, 1..=6) => Command::BeginRevertResize {
            operation,
            vm,
            lease,
        },
        (_, 0) => Command::BeginShelve {
            operation,
            vm,
            lease,
        },
        (false, kind @ 1..=3) => {
            let mut after = known.spec.clone();
            after.flavor = some_spec(pick[3]).flavor;
            after.flavor.disk_gib = known.spec.flavor.disk_gib;
            after.topology = some_spec(pick[3]).topology;
            let spec = (kind == 1).then(|| Box::new(after));
            let migration = MigrationId(uuid(5, world.fresh()));
            let wanted = spec.as_deref().unwrap_or(&known.spec).clone();
            Command::BeginMove {
                operation,
                migration,
                claim: world.claim(name, &wanted, host, Owner::Migration(migration)),
                vm,
                spec,
                requested_host: None,
                verify: kind != 2,
                evacuate: pick[1] > 230,
                lease,
            }
        }
        (_, _) => return None,
    })
}

fn begin(world: &mut World, draw: &Draw) -> Option<Command> {
    let pick = draw.pick;
    let vm = of(&VMS, pick[0]);
    let host = of(&HOSTS, pick[1]);
    world.state.host(&host_name(host))?;
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let known = world.state.vm(&vm_name(vm)).cloned();
    // Those that wait for a decision, or for a host, are rather not deleted.
    let waits = known
        .as_ref()
        .is_some_and(|vm| matches!(vm.state, vm::State::Resized | vm::State::Shelved));
    if draw.what.is_multiple_of(3) && !(waits && pick[3] < 200) {
        return Some(Command::BeginDelete {
            operation,
            vm: vm_name(vm),
            lease,
        });
    }
    if known.is_some() && matches!(draw.what, 1 | 7) {
        return Some(power::begin(world, vm, pick));
    }
    if let Some(known) = &known
        && let Some(command) = begin_cold(world, known, host, pick)
    {
        return Some(command);
    }
    if let Some(known) = known {
        let migration = MigrationId(uuid(5, world.fresh()));
        let owner = Owner::Migration(migration);
        let claim = world.claim(vm, &known.spec, host, owner);
        return Some(Command::BeginMigration {
            operation,
            migration,
            vm: vm_name(vm),
            requested_host: (pick[3] > 200).then(|| host_name(of(&HOSTS, pick[2]))),
            claim,
            lease,
            policy: berth_domain::policy::MigrationPolicy::default(),
        });
    }
    let mut spec = some_spec(pick[2]);
    if pick[2].is_multiple_of(2) {
        spec.flavor.disk_gib = 1;
        spec.disks = vec![Disk {
            image: None,
            format: DiskFormat::Raw,
            size_gib: 1,
            seed: false,
        }];
        if pick[2].is_multiple_of(5) {
            spec.disks.push(Disk::SEED);
        }
    }
    spec.nics = network::nics(pick, world.ids);
    let mut claim = world.claim(vm, &spec, host, Owner::Vm);
    if pick[3] > 240 {
        claim.assignment = nowhere();
    }
    let first_boot = spec.has_seed().then(|| Arc::new(first_boot()));
    Some(Command::BeginBoot {
        operation,
        vm: vm_name(vm),
        uid: berth_domain::id::VmUid(uuid(4, world.ids)),
        spec: Box::new(spec),
        requested_host: None,
        claim,
        lease,
        project: pick[1].is_multiple_of(3).then(|| project_name("web")),
        restart: restart::policy(pick),
        first_boot,
        metadata: metadata::metadata(pick),
    })
}

/// Returns a policy that is new, the same again, out of range or of another generation.
fn policy(world: &World, pick: [u8; 4]) -> SchedulingPolicy {
    let mut policy = (**world.state.policy()).clone();
    policy.weights.load = u16::from(pick[0] % 4);
    policy.weights.pci = if pick[1] > 250 { 1001 } else { 7 };
    let scope = match pick[3] % 4 {
        0 => Scope::Cluster,
        1 => Scope::Group(some_aggregate(pick[0]).name),
        2 => Scope::Host(host_name("h9")),
        _ => Scope::Host(host_name("h1")),
    };
    let ratio = [None, Some(1000), Some(1500), Some(4000)];
    policy.set_for(
        &scope,
        Setting::MemoryRatio(ratio[usize::from(pick[3] / 4) % 4]),
    );
    let node = [None, Some(0), Some(6000)];
    policy.set_for(
        &scope,
        Setting::MemNode(node[usize::from(pick[3] / 16) % 3]),
    );
    let ratio = [None, None, Some(1000), Some(16_000)];
    policy.set_for(&scope, Setting::CpuRatio(ratio[usize::from(pick[0] / 64)]));
    let reserved = [None, None, Some(0), Some(1)];
    policy.set_for(
        &scope,
        Setting::CpuReserved(reserved[usize::from(pick[1] / 64)]),
    );
    if pick[2] % 8 == 1 {
        policy.set(Setting::DeadMember(Some(3600)));
    }
    if pick[2] > 200 {
        policy.generation = policy.generation.next();
    }
    policy
}

fn command(world: &mut World, draw: &Draw) -> Option<Command> {
    let pick = draw.pick;
    match draw.what {
        0..=19 => begin(world, draw),
        20..=64 => advance(world, pick, true),
        65..=79 => advance(world, pick, false),
        80 | 81 => drain::command(world, pick),
        82..=84 => Some(host_command(world, pick)),
        85..=91 => Some(placement::command(world, pick)),
        92..=95 => {
            let operation = some_operation(world, pick[0])?;
            let lease = LeaseRequest {
                conductor: conductor(of(&["c1", "c2"], pick[1])),
                ttl_ms: u64::from(pick[2]) * 100,
            };
            Some(if pick[3] < 160 {
                Command::TakeLease { operation, lease }
            } else if pick[3] < 230 {
                Command::RenewLeases {
                    conductor: lease.conductor,
                    leases: vec![(operation, world.epoch(operation))],
                    ttl_ms: lease.ttl_ms,
                }
            } else if pick[3] < 243 {
                Command::CancelOperation { operation }
            } else {
                Command::ForceComplete { operation }
            })
        }
        98 if pick[1] < 128 => Some(Command::CreateServerGroup(some_group(pick[0]))),
        98 => Some(Command::DeleteServerGroup {
            group: some_group(pick[0]).name,
        }),
        97 if pick[3] < 96 => Some(restart::set(pick)),
        97 if pick[3] < 176 => Some(Command::OpenConsole {
            vm: vm_name(of(&VMS, pick[0])),
            conductor: conductor(of(&["c1", "c2"], pick[1])),
            take_over: pick[2] < 128,
        }),
        97 if pick[3] >= 216 => Some(image::command([pick[0], pick[1], pick[2], pick[1] / 8])),
        97 if pick[3] >= 192 => Some(network::command(pick)),
        97 => Some(aggregate_command(pick)),
        96 if pick[3] >= 128 => Some(metadata::update(pick)),
        96 => Some(Command::SetPolicy(policy(world, pick))),
        _ => Some(Command::CreateFlavor(flavor(of(&VMS, pick[0]), 1, 64, &[]))),
    }
}

/// Executes the draws on a new cluster; returns it with the commands that were executed.
pub fn play(draws: &[Draw]) -> (World, Vec<(Option<RequestKey>, u64, Command)>) {
    let mut world = World::with_hosts(3);
    let mut played = Vec::new();
    for pick in 0..3 {
        for command in [
            Command::CreateServerGroup(some_group(pick)),
            Command::CreateNetwork(network::some_network([pick, 0])),
            Command::CreateAggregate(some_aggregate(pick)),
        ] {
            world.run(command.clone()).unwrap();
            played.push((None, world.now, command));
        }
    }
    for draw in draws {
        world.now += u64::from(draw.pick[0]) * 10;
        let Some(command) = command(&mut world, draw) else {
            continue;
        };
        let request = (draw.pick[2] % 8 == 0).then(|| request(u64::from(draw.pick[1] % 16), 1));
        let _ = world.run_as(request.clone(), command.clone());
        played.push((request, world.now, command));
    }
    (world, played)
}

/// Returns whether a request can lead to this command. The others are drawn for the state to refuse;
/// they are never written.
pub fn can_be_requested(command: &Command) -> bool {
    let is_heavy = matches!(command, Command::SetPolicy(policy) if policy.weights.pci > 1000);
    let is_boot = matches!(command, Command::BeginPower { kind, .. } if *kind == Kind::Boot);
    !is_heavy && !is_boot
}
