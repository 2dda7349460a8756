//! Random commands, with the agents played: what they make lies where a kernel would have put it, which
//! is not always where it was expected.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::host::Liveness;
use berth_domain::name::VolumeId;
use berth_domain::volume::{
    DeviceMode, Extent, Kind, Outcome, Phase, Replica, first_fit, holes, net_bytes,
};
use berth_state::command::Command;
use berth_testkit::state::*;
use proptest::prelude::*;

use super::{
    chosen, create, created, delete, extent, forget, region, register, request, run, tell, world,
};

/// What agents really have: the pieces of each region in mode direct, by volume.
#[derive(Default)]
struct Devices {
    pieces: BTreeMap<(String, VolumeId), Extent>,
    /// What an operator had forgotten: nobody is told to remove it.
    forgotten: BTreeSet<VolumeId>,
}

const HOSTS: [&str; 2] = ["h1", "h2"];

impl Devices {
    /// Plays the agent of a host: makes what is CREATING and removes what is DELETING, some of it.
    fn work(&mut self, world: &mut World, host: &str, pick: u8) {
        let name = host_name(host);
        if world.state.host(&name).is_none() {
            return;
        }
        let volumes = world.state.volumes_of_host(&name).cloned();
        let mut volumes: Vec<_> = volumes.collect();
        volumes.sort_by_key(|volume| volume.on(&name).map(|r| r.sequence));
        for (at, volume) in volumes.iter().enumerate() {
            let Some(replica) = volume.on(&name) else {
                continue;
            };
            if (pick >> (at % 8)) & 1 == 0 {
                continue;
            }
            let key = (host.to_owned(), volume.id.clone());
            match replica.phase {
                Phase::Ready => {}
                Phase::Creating => {
                    let outcome = self.make(world, host, replica, &volume.id);
                    tell(world, host, &volume.id, outcome);
                }
                Phase::Deleting => {
                    self.pieces.remove(&key);
                    tell(world, host, &volume.id, Outcome::Deleted);
                }
            }
        }
    }

    fn make(&mut self, world: &World, host: &str, replica: &Replica, id: &VolumeId) -> Outcome {
        let regions = &world.view(host).host.report.regions;
        let region = regions.iter().find(|r| r.name == replica.region);
        let failed = |why: &str| Outcome::Failed {
            why: why.to_owned(),
        };
        let Some(region) = region.filter(|r| r.mode == replica.mode) else {
            return failed("the region is gone");
        };
        if replica.mode == DeviceMode::Lvm {
            return created(None, replica.gross_bytes);
        }
        // The kernel: the first piece that is free, of what is really there.
        let here = self.pieces.iter().filter(|((at, other), _)| {
            let volume = world.state.volume(other);
            let region = volume.and_then(|v| v.on(&host_name(at)).map(|r| r.region.clone()));
            at == host && region.as_ref() == Some(&replica.region)
        });
        let taken = here.map(|(_, e)| *e).chain(region.foreign.iter().copied());
        let free = holes(region.capacity_bytes, taken);
        match first_fit(&free, replica.gross_bytes) {
            None => failed("no space"),
            Some(at) => {
                self.pieces.insert((host.to_owned(), id.clone()), at);
                created(Some(at), net_bytes(replica.mode, replica.gross_bytes))
            }
        }
    }
}

fn play(draws: &[(u8, [u8; 3])]) {
    let mut world = world();
    let mut devices = Devices::default();
    for (what, [a, b, c]) in draws {
        let host = HOSTS[usize::from(*a) % 2];
        let steps = u64::from(*b % 5);
        match what % 16 {
            0..=5 => {
                let name = format!("v{}", c % 12);
                let hosts = [host];
                let hosts = if c % 3 == 0 { &hosts[..] } else { &[] };
                let before = capacity(&world, hosts);
                let made = create(&mut world, &name, steps, hosts);
                if let Err(refused) = made {
                    let is_full = refused.reason == "NO_SPACE";
                    let size = request(steps, 1, &[]).required_bytes;
                    assert!(
                        !is_full || size.max(1) > before,
                        "{refused}, and {before} could be made"
                    );
                }
            }
            6 => {
                let wanted = request(steps, 2, &[]);
                let name = format!("v{}", c % 12);
                if let Ok(volume) = chosen(&mut world, &name, Kind::Cache, &wanted) {
                    drop(run(&mut world, volume));
                }
            }
            7..=9 => {
                let ids: Vec<VolumeId> = world.state.volumes().keys().cloned().collect();
                if let Some(id) = ids.get(usize::from(*b) % ids.len().max(1)) {
                    match c % 16 {
                        0 if forget(&mut world, id).is_ok() => {
                            devices.forgotten.insert(id.clone());
                        }
                        _ => delete(&mut world, id),
                    }
                }
            }
            10..=13 => devices.work(&mut world, host, *c),
            14 => {
                let liveness = if c % 2 == 0 {
                    Liveness::Up
                } else {
                    Liveness::Down
                };
                let host = host_name(host);
                // It may have been removed.
                drop(world.run(Command::SetLiveness {
                    host: host.clone(),
                    liveness,
                }));
                if c % 8 > 4 {
                    drop(world.run(Command::RemoveHost { host }));
                }
            }
            _ => {
                let mode = |at: u8| {
                    if at.is_multiple_of(2) {
                        DeviceMode::Lvm
                    } else {
                        DeviceMode::Direct
                    }
                };
                let mut regions = vec![region("r0", mode(*c), u64::from(b % 9))];
                if c % 4 != 0 {
                    regions.push(region("r1", DeviceMode::Direct, 8));
                }
                if c % 8 > 4 {
                    regions[0].foreign = vec![extent(u64::from(*c % 7), 1)];
                }
                if c % 16 > 13 {
                    regions[0].trouble = "it is broken".to_owned();
                }
                register(&mut world, host, regions).unwrap();
            }
        }
    }
    for (host, id) in devices.pieces.keys() {
        let volume = world.state.volume(id);
        let is_known = volume.is_some_and(|volume| volume.on(&host_name(host)).is_some());
        assert!(
            is_known || devices.forgotten.contains(id),
            "nobody removes what {host} has of {id}"
        );
    }
}

/// Returns the largest volume that can be made now on these hosts.
fn capacity(world: &World, hosts: &[&str]) -> u64 {
    let candidates = world
        .state
        .volume_candidates(None, &BTreeSet::new())
        .into_iter();
    let candidates = candidates.filter(|candidate| {
        let is_named = hosts.is_empty() || hosts.contains(&candidate.host.as_str());
        is_named && candidate.closed.is_empty()
    });
    let usages = candidates.flat_map(|candidate| candidate.regions);
    usages.map(|(_, usage)| usage.largest()).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    /// Goal: whatever comes in whatever order, the state is sound after each command; and what is
    /// refused for want of space could really not be made; and what a host has of a volume somebody
    /// knows of, also after it was removed while it was down.
    #[test]
    fn whatever_comes_nothing_is_given_twice(
        draws in proptest::collection::vec((any::<u8>(), any::<[u8; 3]>()), 1..80),
    ) {
        play(&draws);
    }
}
