//! Goal: a volume belongs to one VM at most, stays as long as that does, and the VM stays with it.
//! Method: each refusal by hand, and random boots and deletions of VMs and volumes; [`World`](berth_testkit::state::World) checks
//! every invariant after each command.

use std::collections::BTreeSet;

use berth_domain::claim::Owner;
use berth_domain::constraint::{Demand, PreparedDemand, RestartReason};
use berth_domain::id::{Generation, MigrationId, OperationId, TimeMs};
use berth_domain::name::{RegionName, VolumeId};
use berth_domain::numa::Strategy as Preferred;
use berth_domain::operation::{Mark, Step};
use berth_domain::ownership::Ownership;
use berth_domain::refusal::Refusal;
use berth_domain::topology::CellId;
use berth_domain::vm::{AttachedAs, MetadataChange, VmSpec, VolumeAttachment};
use berth_domain::volume::{
    DeviceMode, DisplayName, Kind, Outcome, Parameters, Phase, Region, Replica, Report, Volume,
};
use berth_state::State;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

/// Hosts `h1` and `h2` with a region on cell 1 each, `h3` without.
fn world() -> World {
    let mut world = World::with_hosts(0);
    for host in ["h1", "h2", "h3"] {
        let mut report = report(topology(2, 3, 1));
        if host != "h3" {
            report.regions = vec![Region {
                name: RegionName::new("r0").unwrap(),
                cell: Some(CellId(1)),
                mode: DeviceMode::Lvm,
                capacity_bytes: 64 * GIB,
                align_bytes: 4 << 20,
                foreign: Vec::new(),
                trouble: String::new(),
            }];
        }
        world.register(host, report).unwrap();
    }
    world
}

pub(crate) fn id(name: &str) -> VolumeId {
    let number = name.bytes().fold(0, |sum, b| sum * 256 + u64::from(b));
    DisplayName::new(name).unwrap().id(uuid(7, number))
}

fn create(world: &mut World, name: &str, kind: Kind, hosts: &[&str]) -> Result<(), Refusal> {
    let replica = |host: &&str| Replica {
        host: host_name(host),
        region: RegionName::new("r0").unwrap(),
        cell: Some(CellId(1)),
        mode: DeviceMode::Lvm,
        gross_bytes: GIB,
        size_bytes: GIB,
        extent: None,
        placed: false,
        phase: Phase::Creating,
        sequence: 0,
        erased_bytes: 0,
        failure: String::new(),
        failures: 0,
    };
    let volume = Volume {
        id: id(name),
        display_name: DisplayName::new(name).unwrap(),
        kind,
        required_bytes: GIB,
        parameters: Parameters::default(),
        replicas: hosts.iter().map(replica).collect(),
        created_at: TimeMs(0),
        generation: Generation(0),
        ownership: Ownership::default(),
    };
    let command = Command::CreateVolume {
        volume: Box::new(volume),
        limit_bytes: 0,
    };
    world.run(command).map(drop)
}

fn tell(world: &mut World, host: &str, name: &str, outcome: Outcome) {
    let command = Command::NoteVolumes {
        host: host_name(host),
        incarnation: world.view(host).host.report.incarnation,
        reports: vec![Report {
            volume: id(name),
            outcome,
        }],
    };
    world.run(command).unwrap();
}

pub(crate) fn made(world: &mut World, name: &str, kind: Kind, hosts: &[&str]) {
    create(world, name, kind, hosts).unwrap();
    for host in hosts {
        let outcome = Outcome::Created {
            size_bytes: GIB,
            extent: None,
        };
        tell(world, host, name, outcome);
    }
}

fn delete_volume(world: &mut World, name: &str) -> Result<(), Refusal> {
    let volume = id(name);
    let delete = Command::DeleteVolume {
        volume,
        generation: None,
        forget: false,
    };
    world.run(delete).map(drop)
}

pub(crate) fn with(mut spec: VmSpec, volumes: &[&str]) -> VmSpec {
    let attachment = |name: &&str| VolumeAttachment {
        volume: id(name),
        attached_as: AttachedAs::Disk,
        read_only: false,
    };
    spec.volumes = volumes.iter().map(attachment).collect();
    spec
}

pub(crate) fn delete_vm(world: &mut World, vm: &str) -> Result<(), Refusal> {
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    world.run(Command::BeginDelete {
        operation,
        vm: vm_name(vm),
        lease,
    })?;
    if world.state.vm(&vm_name(vm)).is_some() {
        world.log(operation, Step::Destroy, Mark::Started)?;
        let effect = Effect::CompleteDelete;
        world.advance(operation, Step::Destroy, Mark::Succeeded, effect)?;
    }
    Ok(())
}

fn begin_move(
    world: &mut World,
    vm: &str,
    host: &str,
    spec: Option<VmSpec>,
) -> Result<OperationId, Refusal> {
    let known = world.state.vm(&vm_name(vm)).unwrap().spec.clone();
    let migration = MigrationId(uuid(5, world.fresh()));
    let wanted = spec.as_ref().unwrap_or(&known);
    let claim = world.claim(vm, wanted, host, Owner::Migration(migration));
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    world.run(Command::BeginMove {
        operation,
        migration,
        vm: vm_name(vm),
        spec: spec.map(Box::new),
        requested_host: None,
        verify: false,
        evacuate: false,
        claim,
        lease,
    })?;
    Ok(operation)
}

fn begin_unshelve(world: &mut World, vm: &str, host: &str) -> Result<(), Refusal> {
    let spec = world.state.vm(&vm_name(vm)).unwrap().spec.clone();
    let claim = world.claim(vm, &spec, host, Owner::Vm);
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let begun = world.run(Command::BeginUnshelve {
        operation,
        vm: vm_name(vm),
        requested_host: None,
        claim,
        lease,
    });
    begun.map(drop)
}

/// Goal: a VM gets what is made, where it is, and nothing else.
#[test]
fn a_boot_follows_its_volumes() {
    let mut world = world();
    made(&mut world, "on1", Kind::Persistent, &["h1"]);
    made(&mut world, "on2", Kind::Persistent, &["h2"]);
    made(&mut world, "pod", Kind::Ephemeral, &["h1"]);
    made(&mut world, "both", Kind::Cache, &["h1", "h2"]);
    made(&mut world, "gone", Kind::Persistent, &["h1"]);
    delete_volume(&mut world, "gone").unwrap();
    create(&mut world, "new", Kind::Persistent, &["h1"]).unwrap();
    for (volumes, host, expected) in [
        (&["on1"][..], "h2", "VOLUME_ELSEWHERE"),
        (&["on1"], "h3", "VOLUME_ELSEWHERE"),
        (&["both"], "h3", "VOLUME_ELSEWHERE"),
        (&["on2", "both"], "h1", "VOLUME_ELSEWHERE"),
        (&["both", "on1", "on2"], "h1", "VOLUMES_APART"),
        (&["no"], "h1", "VOLUME_NOT_FOUND"),
        (&["pod"], "h1", "VOLUME_OF_POD"),
        (&["gone"], "h1", "VOLUME_NOT_READY"),
        (&["new"], "h1", "VOLUME_NOT_READY"),
        (&["on1", "new"], "h1", "VOLUME_NOT_READY"),
    ] {
        let refused = world.begin_boot("a", &with(floating(1), volumes), host);
        assert_eq!(refused.unwrap_err().reason, expected, "{volumes:?} {host}");
    }
    let apart = world.begin_boot("a", &with(floating(1), &["on1", "on2"]), "h1");
    let told = apart.unwrap_err().message;
    for part in [id("on1").as_str(), id("on2").as_str(), "h1", "h2"] {
        assert!(told.contains(part), "{told}");
    }
    world.boot("a", &with(floating(1), &["on1"]), "h1");
    world.boot("b", &with(floating(1), &["both", "on2"]), "h2");
    let rows = State::from_rows(world.state.rows()).unwrap();
    assert!(rows == world.state, "the index is made anew from the rows");
}

/// Goal: of two VMs for one volume one gets it, and it is free, with what is in it, once that is gone;
/// it is not deleted before.
#[test]
fn a_volume_has_one_vm() {
    let mut world = world();
    made(&mut world, "data", Kind::Persistent, &["h1"]);
    let spec = with(floating(1), &["data"]);
    // Claimed, not even started yet.
    let operation = world.begin_boot("a", &spec, "h1").unwrap();
    let second = world.begin_boot("b", &spec, "h1").unwrap_err();
    assert_eq!(second.reason, "VOLUME_ATTACHED");
    assert_eq!(second.metadata["vm"], "a");
    assert!(world.state.vm(&vm_name("b")).is_none());
    let kept = delete_volume(&mut world, "data").unwrap_err();
    assert_eq!(
        (&*kept.reason, &*kept.metadata["vm"]),
        ("VOLUME_ATTACHED", "a")
    );
    assert_eq!(
        kept.hint.unwrap(),
        "delete that VM first: berth vm delete a"
    );
    for protected in [true, false] {
        let change = MetadataChange {
            protected: Some(protected),
            ..MetadataChange::default()
        };
        let vm = vm_name("a");
        world.run(Command::UpdateVm { vm, change }).unwrap();
        let hint = delete_volume(&mut world, "data").unwrap_err().hint.unwrap();
        assert_eq!(
            hint.contains("`berth vm set a --unprotect`; then delete"),
            protected,
            "{hint}"
        );
    }
    // The boot fails: the VM is there still, and so is what it has.
    let why = refusal("NO");
    let failed = Mark::Failed(why.clone());
    world.log(operation, Step::Spawn, failed).unwrap();
    let effect = Effect::FailBoot(why);
    world
        .advance(operation, Step::Claim, Mark::Undone, effect)
        .unwrap();
    let second = world.begin_boot("b", &spec, "h1").unwrap_err();
    assert_eq!(second.reason, "VOLUME_ATTACHED");
    delete_vm(&mut world, "a").unwrap();
    assert!(world.state.volume(&id("data")).unwrap().is_ready());
    world.boot("b", &spec, "h1");
    let owner = world.state.vm_with_volume(&id("data"));
    assert_eq!(owner, Some(&vm_name("b")));
    delete_vm(&mut world, "b").unwrap();
    delete_volume(&mut world, "data").unwrap();
    tell(&mut world, "h1", "data", Outcome::Deleted);
    assert!(world.state.volume(&id("data")).is_none());
}

/// Goal: whoever would have to leave its volumes is refused with all that an operator needs to know.
#[test]
fn a_vm_stays_with_its_volumes() {
    let mut world = world();
    made(&mut world, "data", Kind::Persistent, &["h1"]);
    made(&mut world, "cache", Kind::Cache, &["h1", "h2"]);
    world.boot("a", &with(pinned(1), &["data"]), "h1");
    world.boot("b", &with(pinned(1), &["cache"]), "h1");
    for (vm, volume) in [("a", "data"), ("b", "cache")] {
        let live = world.begin_migration(vm, "h2").unwrap_err();
        let cold = begin_move(&mut world, vm, "h2", None).unwrap_err();
        let known = world.state.vm(&vm_name(vm)).unwrap().clone();
        let demand = world
            .state
            .cold_demand(&known, &known.spec, RestartReason::Evacuation);
        for refused in [live, cold, demand.unwrap_err()] {
            assert_eq!(refused.reason, "VOLUMES_ARE_LOCAL", "{refused}");
            assert_eq!(refused.metadata["host"], "h1");
            assert_eq!(refused.metadata["volume"], id(volume).as_str());
            assert!(refused.message.contains(volume) && refused.hint.is_some());
        }
        // Its size may change, where it is.
        let larger = with(pinned(2), &[volume]);
        let away = begin_move(&mut world, vm, "h2", Some(larger)).unwrap_err();
        assert_eq!(away.reason, "VOLUME_ELSEWHERE", "{away}");
        let other = with(pinned(2), &[]);
        let without = begin_move(&mut world, vm, "h1", Some(other)).unwrap_err();
        assert_eq!(without.reason, "NOT_A_RESIZE");
    }
    let larger = with(pinned(2), &["data"]);
    let operation = begin_move(&mut world, "a", "h1", Some(larger)).unwrap();
    for step in [Step::StopSource, Step::StartDestination] {
        world.log(operation, step, Mark::Started).unwrap();
        if step == Step::StopSource {
            world.log(operation, step, Mark::Succeeded).unwrap();
        }
    }
    let (step, effect) = (Step::StartDestination, Effect::CompleteMove);
    world
        .advance(operation, step, Mark::Succeeded, effect)
        .unwrap();
    assert_eq!(world.state.vm_with_volume(&id("data")), Some(&vm_name("a")));
}

#[test]
fn a_shelved_vm_comes_back_where_its_volumes_are() {
    let mut world = world();
    made(&mut world, "cache", Kind::Cache, &["h1", "h2"]);
    world.boot("a", &with(floating(1), &["cache"]), "h1");
    world.shelve("a");
    let kept = delete_volume(&mut world, "cache").unwrap_err();
    assert_eq!(kept.reason, "VOLUME_ATTACHED");
    let away = begin_unshelve(&mut world, "a", "h2").unwrap_err();
    assert_eq!(away.reason, "VOLUME_ELSEWHERE", "{away}");
    begin_unshelve(&mut world, "a", "h1").unwrap();
}

/// Goal: a guest's cell is near its nvdimms where there is room, and elsewhere where there is none.
#[test]
fn cells_are_near_their_volumes_where_they_can_be() {
    let mut world = world();
    made(&mut world, "data", Kind::Persistent, &["h1"]);
    let cell = |world: &World, attached_as| {
        let mut spec = with(pinned(2), &["data"]);
        spec.volumes[0].attached_as = attached_as;
        let demand = Demand::boot(&spec).unwrap();
        let demand = world.state.with_relations(demand, &vm_name("x"), &spec);
        let demand = demand.unwrap();
        let view = world.view("h1");
        let placed = PreparedDemand::new(&demand).place(view, Preferred::Spread);
        placed.unwrap().cells[0].host_cell
    };
    assert_eq!(cell(&world, AttachedAs::Disk), CellId(0));
    assert_eq!(cell(&world, AttachedAs::Nvdimm), CellId(1));
    // Nothing of cell 1 is left.
    for vm in ["a", "b"] {
        world.boot(vm, &pinned(3), "h1");
    }
    let is_on_0 = |cpu: &u32| *cpu < 4;
    let on_0 = if world.pins("a").iter().all(is_on_0) {
        "a"
    } else {
        "b"
    };
    delete_vm(&mut world, on_0).unwrap();
    assert_eq!(cell(&world, AttachedAs::Nvdimm), CellId(0));
}

#[derive(Clone, Debug)]
enum Draw {
    Boot(usize, Vec<usize>, usize),
    DeleteVm(usize),
    Create(usize, usize),
    DeleteVolume(usize),
    Removed(usize),
    Migrate(usize, usize),
}

fn draws() -> impl Strategy<Value = Vec<Draw>> {
    let volumes = proptest::collection::vec(0_usize..3, 0..3);
    let draw = prop_oneof![
        3 => (0_usize..3, volumes, 1_usize..3).prop_map(|(vm, v, host)| Draw::Boot(vm, v, host)),
        2 => (0_usize..3).prop_map(Draw::DeleteVm),
        2 => (0_usize..3, 1_usize..3).prop_map(|(volume, host)| Draw::Create(volume, host)),
        2 => (0_usize..3).prop_map(Draw::DeleteVolume),
        1 => (0_usize..3).prop_map(Draw::Removed),
        1 => (0_usize..3, 1_usize..3).prop_map(|(vm, host)| Draw::Migrate(vm, host)),
    ];
    proptest::collection::vec(draw, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: whatever is asked for in whatever order, `State::check()` holds, and what is refused has
    /// a reason that is about volumes or names.
    #[test]
    fn whoever_comes_first_has_it(draws in draws()) {
        let mut world = world();
        // An id is never used again: each life of a volume has a name of its own.
        let mut lives = [0_u32; 3];
        let name = |volume: usize, lives: &[u32; 3]| format!("v{volume}x{}", lives[volume]);
        for draw in draws {
            match draw {
                Draw::Boot(vm, volumes, host) => {
                    let volumes: BTreeSet<usize> = volumes.into_iter().collect();
                    let names: Vec<String> = volumes.iter().map(|v| name(*v, &lives)).collect();
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let spec = with(floating(1), &names);
                    let host = format!("h{host}");
                    if let Err(refused) = world.begin_boot(&format!("vm{vm}"), &spec, &host) {
                        let known = [
                            "VM_EXISTS", "VOLUME_NOT_FOUND", "VOLUME_NOT_READY",
                            "VOLUME_ATTACHED", "VOLUMES_APART", "VOLUME_ELSEWHERE",
                        ];
                        prop_assert!(known.contains(&&*refused.reason), "{}", refused);
                    } else {
                        let operation = world.state.vm(&vm_name(&format!("vm{vm}"))).unwrap().operation.unwrap();
                        world.log(operation, Step::Spawn, Mark::Started).unwrap();
                        world.advance(operation, Step::Spawn, Mark::Succeeded, Effect::CompleteBoot).unwrap();
                    }
                }
                Draw::DeleteVm(vm) => drop(delete_vm(&mut world, &format!("vm{vm}"))),
                Draw::Create(volume, host) => {
                    if world.state.volume(&id(&name(volume, &lives))).is_none() {
                        lives[volume] += 1;
                        let host = format!("h{host}");
                        made(&mut world, &name(volume, &lives), Kind::Persistent, &[&host]);
                    }
                }
                Draw::DeleteVolume(volume) => {
                    let name = name(volume, &lives);
                    let has_vm = world.state.vm_with_volume(&id(&name)).is_some();
                    prop_assert_eq!(delete_volume(&mut world, &name).is_err(), has_vm);
                }
                Draw::Removed(volume) => {
                    let name = name(volume, &lives);
                    for host in ["h1", "h2"] {
                        tell(&mut world, host, &name, Outcome::Deleted);
                    }
                }
                Draw::Migrate(vm, host) => {
                    let vm = format!("vm{vm}");
                    let known = world.state.vm(&vm_name(&vm)).cloned();
                    if let Some(known) = known.filter(|vm| !vm.spec.volumes.is_empty()) {
                        let begun = world.begin_migration(&vm, &format!("h{host}"));
                        prop_assert_eq!(begun.unwrap_err().reason, "VOLUMES_ARE_LOCAL", "{:?}", known);
                    }
                }
            }
        }
    }
}
