//! Volumes of persistent memory: never given twice, never lost, and counted as long as they are there.
//!
//! The world checks the whole state after each command.

mod random;

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::allocation::{ConsumerGeneration, ConsumerUpdate};
use berth_domain::host::Liveness;
use berth_domain::id::{Generation, Incarnation, ProviderId};
use berth_domain::name::{RegionName, VolumeId};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::ResourceClass;
use berth_domain::topology::CellId;
use berth_domain::version::ServiceVersion;
use berth_domain::volume::{
    DeviceMode, Extent, Kind, Outcome, Phase, Region, RegionUsage, Replica, Report, Volume,
    VolumeRequest, consumer_of, net_bytes, provider_of, resource_class,
};
use berth_state::Reply;
use berth_state::command::Command;
use berth_testkit::state::volume::chosen;
use berth_testkit::state::*;

const STEP: u64 = 16 << 20;

fn region(name: &str, mode: DeviceMode, steps: u64) -> Region {
    Region {
        name: RegionName::new(name).unwrap(),
        cell: Some(CellId(0)),
        mode,
        capacity_bytes: steps * STEP,
        align_bytes: STEP,
        foreign: Vec::new(),
        trouble: String::new(),
    }
}

fn extent(offset: u64, length: u64) -> Extent {
    Extent {
        offset_bytes: offset * STEP,
        length_bytes: length * STEP,
    }
}

fn register(world: &mut World, host: &str, regions: Vec<Region>) -> Result<Reply, Refusal> {
    let mut report = report(topology(2, 3, 1));
    report.regions = regions;
    world.register(host, report)
}

/// Hosts `h1` (a region in each mode) and `h2` (one in mode direct).
fn world() -> World {
    let mut world = World::with_hosts(0);
    let both = [("r0", DeviceMode::Lvm), ("r1", DeviceMode::Direct)];
    let both = both.map(|(name, mode)| region(name, mode, 8));
    register(&mut world, "h1", both.to_vec()).unwrap();
    register(&mut world, "h2", vec![region("r0", DeviceMode::Direct, 8)]).unwrap();
    world
}

fn request(steps: u64, replicas: usize, requisite: &[&str]) -> VolumeRequest {
    VolumeRequest {
        required_bytes: (steps * STEP).saturating_sub(STEP / 2),
        limit_bytes: 0,
        replicas,
        preferred: Vec::new(),
        requisite: requisite.iter().map(|host| host_name(host)).collect(),
    }
}

fn run(world: &mut World, volume: Volume) -> Result<VolumeId, Refusal> {
    let command = Command::CreateVolume {
        volume: Box::new(volume),
        limit_bytes: 0,
    };
    let reply = world.run(command)?;
    let Reply::Volume(volume) = &reply else {
        panic!("{reply:?}");
    };
    Ok(volume.id.clone())
}

fn create(world: &mut World, name: &str, steps: u64, hosts: &[&str]) -> Result<VolumeId, Refusal> {
    let volume = chosen(world, name, Kind::Persistent, &request(steps, 1, hosts));
    run(world, volume.map_err(|refusal| *refusal)?)
}

fn tell(world: &mut World, host: &str, id: &VolumeId, outcome: Outcome) {
    let command = Command::NoteVolumes {
        host: host_name(host),
        incarnation: world.view(host).host.report.incarnation,
        reports: vec![Report {
            volume: id.clone(),
            outcome,
        }],
    };
    world.run(command).unwrap();
}

fn created(at: Option<Extent>, size_bytes: u64) -> Outcome {
    Outcome::Created {
        size_bytes,
        extent: at,
    }
}

fn delete(world: &mut World, id: &VolumeId) {
    delete_seen(world, id, None).unwrap();
}

fn delete_seen(
    world: &mut World,
    id: &VolumeId,
    generation: Option<Generation>,
) -> Result<Reply, Refusal> {
    let volume = id.clone();
    world.run(Command::DeleteVolume {
        volume,
        generation,
        forget: false,
    })
}

fn forget(world: &mut World, id: &VolumeId) -> Result<Reply, Refusal> {
    world.run(Command::DeleteVolume {
        volume: id.clone(),
        generation: None,
        forget: true,
    })
}

fn usage(world: &World, host: &str, region: &str) -> RegionUsage {
    let usages = world.state.regions_of(&world.view(host).host);
    let mut usages = usages.into_iter();
    usages
        .find(|usage| usage.name().as_str() == region)
        .unwrap()
}

fn replica(world: &World, id: &VolumeId, host: &str) -> Replica {
    let volume = world.state.volume(id).unwrap();
    volume.on(&host_name(host)).unwrap().clone()
}

/// Returns the provider of a region, with what it offers and what is taken of it.
fn counted(world: &World, host: &str, region: &str) -> Option<(ProviderId, u64, u64)> {
    let region = RegionName::new(region).unwrap();
    let id = provider_of(world.view(host).host.provider, &region);
    let provider = world.state.provider(id)?;
    let class = resource_class();
    let capacity = provider.inventories.get(&class).map_or(0, |i| i.capacity());
    let used = world.state.used_of(id).get(&class).copied().unwrap_or(0);
    Some((id, capacity, used))
}

#[test]
fn a_volume_lives_and_is_counted_until_it_is_gone() {
    let mut world = world();
    assert_eq!(counted(&world, "h1", "r0").unwrap().1, 128);
    let id = create(&mut world, "a", 2, &["h1"]).unwrap();
    let made = replica(&world, &id, "h1");
    assert_eq!((made.phase, made.sequence), (Phase::Creating, world.index));
    assert_eq!((made.region.as_str(), made.gross_bytes), ("r0", 2 * STEP));
    assert_eq!(counted(&world, "h1", "r0").unwrap().2, 32);
    tell(&mut world, "h1", &id, created(None, 2 * STEP));
    assert!(world.state.volume(&id).unwrap().is_ready());
    delete(&mut world, &id);
    delete(&mut world, &id);
    assert_eq!(
        counted(&world, "h1", "r0").unwrap().2,
        32,
        "until it is erased"
    );
    assert_eq!(world.state.volume_named("a"), None, "its name is free");
    let again = create(&mut world, "a", 1, &["h1"]).unwrap();
    assert_ne!(again, id);
    tell(&mut world, "h1", &id, Outcome::Erasing { erased_bytes: 5 });
    assert_eq!(replica(&world, &id, "h1").erased_bytes, 5);
    tell(&mut world, "h1", &id, Outcome::Deleted);
    assert_eq!(world.state.volume(&id), None);
    assert_eq!(counted(&world, "h1", "r0").unwrap().2, 16);
    delete(&mut world, &id);
    let why = "no space".to_owned();
    tell(&mut world, "h1", &again, Outcome::Failed { why });
    assert_eq!(world.state.volumes().len(), 0, "it is given back");
    assert_eq!(counted(&world, "h1", "r0").unwrap().2, 0);
    let stale = Command::NoteVolumes {
        host: host_name("h1"),
        incarnation: Incarnation(uuid(9, 77)),
        reports: Vec::new(),
    };
    assert_eq!(world.run(stale).unwrap_err().reason, "STALE_INCARNATION");
}

/// The first defect of PMEM-CSI: after a restart a retried CreateVolume found another name and failed
/// for ever. Here the name is part of the record.
#[test]
fn a_name_makes_it_idempotent() {
    let mut world = world();
    let id = create(&mut world, "a", 2, &[]).unwrap();
    assert_eq!(create(&mut world, "a", 2, &[]).unwrap(), id);
    assert_eq!(
        create(&mut world, "a", 1, &[]).unwrap(),
        id,
        "it is large enough"
    );
    let refused = create(&mut world, "a", 3, &[]).unwrap_err();
    assert_eq!(
        (refused.code, &*refused.reason),
        (Code::AlreadyExists, "VOLUME_DIFFERS")
    );
    let mut other = chosen(&mut world, "a", Kind::Ephemeral, &request(2, 1, &[])).unwrap();
    assert_eq!(
        run(&mut world, other.clone()).unwrap_err().reason,
        "VOLUME_DIFFERS"
    );
    other.kind = Kind::Persistent;
    other.parameters.erase_after = false;
    assert_eq!(
        run(&mut world, other.clone()).unwrap_err().reason,
        "VOLUME_DIFFERS"
    );
    other.parameters.erase_after = true;
    let command = Command::CreateVolume {
        volume: Box::new(other),
        limit_bytes: STEP,
    };
    assert_eq!(world.run(command).unwrap_err().reason, "VOLUME_DIFFERS");
    assert_eq!(world.state.volumes().len(), 1);
}

/// Two decisions on one state: the later of two is refused, whatever it was decided on.
/// Goal: a host is told of what waits to be made there, once: what failed waits for the host's own look.
#[test]
fn a_host_is_told_what_waits_for_it() {
    let mut world = world();
    let waits = |world: &World, host| world.state.is_to_make_volumes(&host_name(host));
    assert!(!waits(&world, "h1"));
    let id = create(&mut world, "a", 1, &["h1"]).unwrap();
    assert_eq!([waits(&world, "h1"), waits(&world, "h2")], [true, false]);
    let why = "the programs are not there".to_owned();
    tell(&mut world, "h1", &id, Outcome::Delayed { why });
    assert!(!waits(&world, "h1"));
    let other = create(&mut world, "b", 1, &["h1"]).unwrap();
    assert!(waits(&world, "h1"));
    let size = replica(&world, &other, "h1").size_bytes;
    let at = replica(&world, &other, "h1").extent;
    tell(&mut world, "h1", &other, created(at, size));
    assert!(!waits(&world, "h1"));
    delete(&mut world, &other);
    assert!(!waits(&world, "h1"));
}

#[test]
fn what_was_chosen_is_looked_at_again() {
    let mut world = world();
    let first = chosen(&mut world, "a", Kind::Persistent, &request(5, 1, &["h2"])).unwrap();
    let second = chosen(&mut world, "b", Kind::Persistent, &request(5, 1, &["h2"])).unwrap();
    run(&mut world, first).unwrap();
    let refused = run(&mut world, second.clone()).unwrap_err();
    assert_eq!(
        (refused.code, &*refused.reason),
        (Code::Aborted, "VOLUME_PLACE_TAKEN")
    );
    for spoil in [
        |v: &mut Volume| v.replicas[0].extent = Some(extent(6, 1)),
        |v: &mut Volume| v.replicas[0].extent = None,
        |v: &mut Volume| v.replicas[0].gross_bytes = 1,
        |v: &mut Volume| v.replicas[0].gross_bytes = 0,
        |v: &mut Volume| v.replicas[0].mode = DeviceMode::Lvm,
        |v: &mut Volume| v.replicas[0].region = RegionName::new("r7").unwrap(),
        |v: &mut Volume| v.replicas[0].host = host_name("h7"),
        |v: &mut Volume| v.replicas.clear(),
        |v: &mut Volume| v.replicas.push(v.replicas[0].clone()),
        |v: &mut Volume| v.id = VolumeId::new("b").unwrap(),
    ] {
        let mut volume = second.clone();
        volume.replicas[0].gross_bytes = STEP;
        volume.replicas[0].extent = Some(extent(5, 1));
        spoil(&mut volume);
        let _ = run(&mut world, volume).unwrap_err();
    }
    let mut good = second;
    good.replicas[0].gross_bytes = STEP;
    good.replicas[0].extent = Some(extent(5, 1));
    run(&mut world, good).unwrap();
}

/// The sixth defect of PMEM-CSI: a cache on fewer nodes than were asked for was a success.
#[test]
fn a_cache_is_on_as_many_hosts_as_were_asked_for_or_on_none() {
    let mut world = world();
    let wanted = request(2, 2, &[]);
    let volume = chosen(&mut world, "c", Kind::Cache, &wanted).unwrap();
    let id = run(&mut world, volume).unwrap();
    assert_eq!(world.state.volume(&id).unwrap().replicas.len(), 2);
    let refused = chosen(&mut world, "d", Kind::Cache, &request(2, 3, &[])).unwrap_err();
    assert_eq!(refused.reason, "NO_SPACE");
    let lone = chosen(&mut world, "e", Kind::Cache, &wanted).unwrap();
    let lone = Volume {
        kind: Kind::Persistent,
        ..lone
    };
    assert_eq!(run(&mut world, lone).unwrap_err().reason, "INVALID_VOLUME");
    tell(&mut world, "h1", &id, created(None, 2 * STEP));
    let why = "no".to_owned();
    tell(&mut world, "h2", &id, Outcome::Failed { why });
    let left = world.state.volume(&id).unwrap();
    assert!(left.is_deleting() && left.replicas.len() == 1, "{left:?}");
    tell(&mut world, "h1", &id, Outcome::Deleted);
    assert_eq!(world.state.volume(&id), None);
}

/// Goal: where a namespace really lies counts, and what was promised beside it is placed again.
#[test]
fn the_true_offset_counts() {
    let mut world = world();
    let ids: Vec<VolumeId> = ["a", "b", "c"]
        .iter()
        .map(|name| create(&mut world, name, 2, &["h2"]).unwrap())
        .collect();
    let at = |world: &World, id| replica(world, id, "h2").extent;
    assert_eq!(at(&world, &ids[1]), Some(extent(2, 2)));
    // Something that the scheduler does not know of was there when it was made.
    let size = net_bytes(DeviceMode::Direct, 2 * STEP);
    tell(&mut world, "h2", &ids[0], created(Some(extent(3, 2)), size));
    assert_eq!(at(&world, &ids[0]), Some(extent(3, 2)));
    assert_eq!(at(&world, &ids[1]), Some(extent(0, 2)));
    assert_eq!(at(&world, &ids[2]), Some(extent(5, 2)));
    // Now the third has no room any more.
    tell(&mut world, "h2", &ids[1], created(Some(extent(6, 2)), size));
    let third = replica(&world, &ids[2], "h2");
    assert_eq!(
        (third.phase, third.extent),
        (Phase::Creating, Some(extent(0, 2)))
    );
    let regions = vec![Region {
        foreign: vec![extent(0, 2)],
        ..region("r0", DeviceMode::Direct, 8)
    }];
    register(&mut world, "h2", regions).unwrap();
    let third = replica(&world, &ids[2], "h2");
    assert_eq!((third.phase, third.extent), (Phase::Deleting, None));
    assert!(third.failure.contains("no piece of"), "{}", third.failure);
    assert_eq!(usage(&world, "h2", "r0").region.trouble, "");
    assert_eq!(counted(&world, "h2", "r0").unwrap().2, 64);
    // Its agent had made it all the same: it counts again, until it is gone.
    tell(&mut world, "h2", &ids[2], created(Some(extent(5, 1)), 1));
    assert_eq!(counted(&world, "h2", "r0").unwrap().2, 80);
    tell(&mut world, "h2", &ids[2], Outcome::Deleted);
    assert_eq!(world.state.volume(&ids[2]), None);
}

/// Goal: a host that reports less loses no volume, says what is wrong, and gives nothing new.
#[test]
fn what_a_host_does_not_report_any_more_is_not_lost() {
    let mut world = world();
    let id = create(&mut world, "a", 4, &["h1"]).unwrap();
    tell(&mut world, "h1", &id, created(None, 4 * STEP));
    let lvm = |steps| vec![region("r0", DeviceMode::Lvm, steps)];
    register(&mut world, "h1", lvm(3)).unwrap();
    let trouble = |world: &World| usage(world, "h1", "r0").region.trouble;
    assert!(
        trouble(&world).contains("its volumes take"),
        "{}",
        trouble(&world)
    );
    assert_eq!(counted(&world, "h1", "r0").unwrap().1, 0);
    assert_eq!(counted(&world, "h1", "r1"), None, "it went with its region");
    let refused = create(&mut world, "b", 1, &["h1"]).unwrap_err();
    assert!(refused.causes.contains_key("REGION_TROUBLE"), "{refused:?}");
    register(&mut world, "h1", Vec::new()).unwrap();
    assert!(
        trouble(&world).contains("does not report"),
        "{}",
        trouble(&world)
    );
    assert_eq!(counted(&world, "h1", "r0").unwrap(), {
        let (id, _, used) = counted(&world, "h1", "r0").unwrap();
        (id, 0, used)
    });
    delete(&mut world, &id);
    tell(&mut world, "h1", &id, Outcome::Deleted);
    assert_eq!(counted(&world, "h1", "r0"), None);
    register(&mut world, "h1", lvm(8)).unwrap();
    assert_eq!(trouble(&world), "");
    create(&mut world, "b", 8, &["h1"]).unwrap();

    // The mode stays with a volume: those of the other mode are none of the region's business.
    register(&mut world, "h1", vec![region("r0", DeviceMode::Direct, 8)]).unwrap();
    assert_eq!(trouble(&world), "");
    create(&mut world, "c", 8, &["h1"]).unwrap();
    assert_eq!(usage(&world, "h1", "r0").largest(), 0);

    let twice = vec![region("r0", DeviceMode::Lvm, 8); 2];
    let refused = register(&mut world, "h1", twice).unwrap_err();
    assert_eq!(refused.reason, "INVALID_HOST_REPORT");
}

/// Goal: a volume that another call made since it was looked at is not given back by one that saw it
/// unmade.
#[test]
fn a_volume_goes_only_as_it_was_seen() {
    let mut world = world();
    let id = create(&mut world, "a", 1, &["h1"]).unwrap();
    let generation = |world: &World| Some(world.state.volume(&id).unwrap().generation);
    let seen = generation(&world);
    tell(&mut world, "h1", &id, created(None, STEP));
    let refused = delete_seen(&mut world, &id, seen).unwrap_err();
    assert_eq!(refused.reason, "VOLUME_CHANGED");
    assert_eq!(refused.code, Code::Aborted);
    assert!(world.state.volume(&id).unwrap().is_ready());
    let seen = generation(&world);
    delete_seen(&mut world, &id, seen).unwrap();
    // It is what was asked for already, whatever it was like.
    delete_seen(&mut world, &id, seen).unwrap();
    assert!(world.state.volume(&id).unwrap().is_deleting());
    tell(&mut world, "h1", &id, Outcome::Deleted);
    delete_seen(&mut world, &id, seen).unwrap();
}

/// The ninth defect of PMEM-CSI: with one node down nothing could be deleted. And a host with volumes
/// is not forgotten, unless it is lost and they were to be removed.
#[test]
fn hosts_that_leave() {
    let mut world = world();
    let wanted = request(1, 2, &[]);
    let volume = chosen(&mut world, "c", Kind::Cache, &wanted).unwrap();
    let cache = run(&mut world, volume).unwrap();
    let lone = create(&mut world, "a", 1, &["h2"]).unwrap();
    let set = |world: &mut World, liveness| {
        let host = host_name("h2");
        world.run(Command::SetLiveness { host, liveness }).unwrap();
    };
    let remove = |world: &mut World| {
        let host = host_name("h2");
        world.run(Command::RemoveHost { host }).map(drop)
    };
    set(&mut world, Liveness::Down);
    let refused = create(&mut world, "b", 1, &["h2"]).unwrap_err();
    assert!(refused.causes.contains_key("HOST_CLOSED"), "{refused:?}");
    assert_eq!(remove(&mut world).unwrap_err().reason, "HOST_IN_USE");
    delete(&mut world, &cache);
    delete(&mut world, &lone);
    tell(&mut world, "h1", &cache, Outcome::Deleted);
    set(&mut world, Liveness::Up);
    assert_eq!(remove(&mut world).unwrap_err().reason, "HOST_IN_USE");
    set(&mut world, Liveness::Down);
    let providers = world.state.providers().len();
    assert_eq!(
        forget(&mut world, &lone).unwrap_err().reason,
        "VOLUME_NOT_LEFT"
    );
    remove(&mut world).unwrap();
    assert_eq!(world.state.providers().len(), providers - 2);
    let consumers = [&cache, &lone].map(|id| world.state.consumer(consumer_of(id).unwrap()));
    assert_eq!(consumers, [None, None], "they take nothing any more");
    // What the host had to remove it is told when it is back; what is lost for good is forgotten.
    assert!(replica(&world, &lone, "h2").failure.contains("was removed"));
    forget(&mut world, &cache).unwrap();
    forget(&mut world, &cache).unwrap();
    assert!(world.state.volume(&cache).is_none());
    register(&mut world, "h2", vec![region("r0", DeviceMode::Direct, 8)]).unwrap();
    let left = replica(&world, &lone, "h2");
    assert_eq!((left.phase, left.failure.as_str()), (Phase::Deleting, ""));
    assert_eq!(counted(&world, "h2", "r0").unwrap().2, 16);
    let refused = create(&mut world, "a", 8, &["h2"]).unwrap_err();
    assert_eq!(refused.reason, "NO_SPACE");
    tell(&mut world, "h2", &lone, Outcome::Deleted);
    assert_eq!(world.state.volumes().len(), 0);
    assert_eq!(counted(&world, "h2", "r0").unwrap().2, 0);
    create(&mut world, "a", 8, &["h2"]).unwrap();
}

/// Goal: whoever waits for a volume finds out why it is gone, as long as its host had not many more.
#[test]
fn why_a_volume_could_not_be_made_is_kept() {
    let mut world = world();
    let why = |world: &World, id: &VolumeId| {
        let failed = world.state.failed_volume(Some(id), None);
        failed.map(|(host, failed)| (host.to_string(), failed.why.clone()))
    };
    let id = create(&mut world, "a", 1, &["h1"]).unwrap();
    let failed = |why: &str| Outcome::Failed {
        why: why.to_owned(),
    };
    tell(&mut world, "h1", &id, failed("it is broken"));
    assert!(world.state.volume(&id).is_none());
    let told = ("h1".to_owned(), "it is broken".to_owned());
    assert_eq!(why(&world, &id), Some(told));
    let by_name = world.state.failed_volume(None, Some("a")).unwrap();
    assert_eq!(by_name.1.volume, id);
    // The other parts of a cache say why they go.
    let volume = chosen(&mut world, "c", Kind::Cache, &request(1, 2, &[])).unwrap();
    let cache = run(&mut world, volume).unwrap();
    tell(&mut world, "h2", &cache, failed("no"));
    let rest = replica(&world, &cache, "h1").failure;
    assert_eq!(rest, "host h2 cannot make its part: no");
    for _ in 0..16 {
        let id = create(&mut world, "b", 1, &["h1"]).unwrap();
        tell(&mut world, "h1", &id, failed(&"x".repeat(512)));
    }
    assert_eq!(why(&world, &id), None);
    // One that is not to be made any more is no failure.
    let gone = create(&mut world, "d", 1, &["h1"]).unwrap();
    delete(&mut world, &gone);
    tell(&mut world, "h1", &gone, failed("late"));
    assert_eq!(why(&world, &gone), None);
}

/// Goal: what hosts and volumes have is not for clients of Placement to change, and can be read.
#[test]
fn clients_do_not_write_there() {
    let mut world = world();
    let id = create(&mut world, "a", 2, &["h1"]).unwrap();
    let (provider, ..) = counted(&world, "h1", "r0").unwrap();
    let consumer = consumer_of(&id).unwrap();
    let taken: BTreeMap<ResourceClass, u64> = [(resource_class(), 16)].into();
    let update = |consumer| ConsumerUpdate {
        consumer,
        generation: ConsumerGeneration::Any,
        project: "p".to_owned(),
        user: "u".to_owned(),
        consumer_type: None,
        allocations: [(provider, taken.clone())].into(),
    };
    let own = berth_domain::id::ConsumerId(uuid(5, 1));
    let given = Generation::default();
    let root = world.view("h1").host.provider;
    let below = |parent| Command::CreateProvider {
        id: ProviderId(uuid(6, 1)),
        name: "mine".to_owned(),
        parent: Some(parent),
    };
    let writes = [
        Command::SetAllocations {
            consumers: vec![update(own)],
        },
        Command::SetAllocations {
            consumers: vec![update(consumer)],
        },
        Command::DeleteAllocations { consumer },
        Command::DeleteProvider { id: provider },
        Command::DeleteInventories { provider },
        Command::SetTraits {
            provider,
            generation: given,
            traits: BTreeSet::new(),
        },
        below(provider),
        Command::RenameClass {
            from: resource_class(),
            to: ResourceClass::new("CUSTOM_OTHER").unwrap(),
        },
        Command::DeleteClass {
            class: resource_class(),
        },
    ];
    for write in writes {
        let refused = world.run(write.clone()).unwrap_err();
        assert_eq!(
            refused.code,
            Code::FailedPrecondition,
            "{write:?}: {refused}"
        );
    }
    let consumers = world.state.consumers_of(provider);
    let consumers: Vec<_> = consumers.map(|c| (c.id, c.user.clone())).collect();
    assert_eq!(consumers, [(consumer, id.to_string())]);
    world.run(below(root)).unwrap();

    // A client that had the name first costs the region nothing but its name.
    let taken = Command::CreateProvider {
        id: ProviderId(uuid(6, 2)),
        name: "h3_r0".to_owned(),
        parent: None,
    };
    world.run(taken).unwrap();
    register(&mut world, "h3", vec![region("r0", DeviceMode::Lvm, 8)]).unwrap();
    create(&mut world, "b", 8, &["h3"]).unwrap();
}

/// Goal: in a cluster that is not upgraded nothing of this is written.
#[test]
fn before_the_upgrade_there_are_no_regions() {
    let mut world = World::before_upgrades(1);
    // What a newer agent says of regions is left out before it comes here.
    let rows = world.state.providers().len();
    world
        .run(Command::FinalizeUpgrade {
            version: ServiceVersion::VOLUMES,
            gone: BTreeSet::new(),
        })
        .unwrap();
    register(&mut world, "h1", vec![region("r0", DeviceMode::Lvm, 8)]).unwrap();
    assert_eq!(world.state.providers().len(), rows + 1);
    create(&mut world, "a", 8, &["h1"]).unwrap();
}
