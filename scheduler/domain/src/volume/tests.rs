//! Properties of choosing, fitting and planning, held against trying everything.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::name::VolumeId;

const GIB: u64 = 1 << 30;
const STEP: u64 = 16 << 20;

fn region(name: &str, mode: DeviceMode, capacity_bytes: u64) -> Region {
    Region {
        name: RegionName::new(name).unwrap(),
        cell: None,
        mode,
        capacity_bytes,
        align_bytes: STEP,
        foreign: Vec::new(),
        trouble: String::new(),
    }
}

fn room(region: Region) -> Room {
    Room {
        region,
        held: Vec::new(),
    }
}

fn id(number: u64) -> VolumeId {
    VolumeId::new(&format!("v{number}")).unwrap()
}

fn host(text: &str) -> HostName {
    HostName::new(text).unwrap()
}

/// Regions in both modes, with some of foreign and some of ours in them.
fn a_room() -> impl Strategy<Value = Room> {
    let pieces = proptest::collection::vec((0_u64..24, 1_u64..4), 0..3);
    let sizes = proptest::collection::vec((1_u64..6, any::<bool>()), 0..6);
    (any::<bool>(), 0_u64..24, pieces, sizes).prop_map(|(is_direct, steps, foreign, sizes)| {
        let mode = if is_direct {
            DeviceMode::Direct
        } else {
            DeviceMode::Lvm
        };
        let mut region = region("r0", mode, steps * STEP);
        if is_direct {
            let piece = |(offset, length)| Extent {
                offset_bytes: offset * STEP,
                length_bytes: length * STEP,
            };
            region.foreign = foreign.into_iter().map(piece).collect();
        }
        let mut room = room(region);
        let mut gone = BTreeSet::new();
        for (number, (size, stays)) in (0..).zip(sizes) {
            if let Some(taken) = room.place((size - 1) * STEP + 1) {
                room.hold(&id(number), taken);
                if !stays {
                    gone.insert(id(number));
                }
            }
        }
        // Those that went leave holes.
        room.held.retain(|held| !gone.contains(&held.volume));
        room
    })
}

fn some_rooms() -> impl Strategy<Value = Vec<Room>> {
    proptest::collection::vec(a_room(), 1..4).prop_map(|mut rooms| {
        for (number, room) in rooms.iter_mut().enumerate() {
            room.region.name = RegionName::new(&format!("r{number}")).unwrap();
        }
        rooms
    })
}

/// Returns whether there is any order and any regions in which they can be made.
fn can_be_made(rooms: &[Room], sizes: &[u64]) -> bool {
    sizes.is_empty()
        || (0..sizes.len()).any(|index| {
            let mut rest = sizes.to_vec();
            let size = rest.remove(index);
            (0..rooms.len()).any(|at| {
                let Some(taken) = rooms[at].place(size) else {
                    return false;
                };
                let mut after = rooms.to_vec();
                after[at].hold(&id(99), taken);
                can_be_made(&after, &rest)
            })
        })
}

/// The third defect of PMEM-CSI: its extender compared the sum with the largest piece.
#[test]
fn several_volumes_are_fitted_one_by_one() {
    let gib = |size: u64| room(region("r0", DeviceMode::Lvm, size * GIB));
    let two = [gib(64), gib(64)];
    assert!(fit(&two, &[40 * GIB, 40 * GIB]).is_ok());
    let why = fit(&two, &[40 * GIB, 40 * GIB, 40 * GIB]).unwrap_err();
    assert!(why.contains("not all of them together"), "{why}");
    let why = fit(&[gib(64)], &[40 * GIB, 40 * GIB]).unwrap_err();
    assert_eq!(
        why,
        "only 64GiB of PMEM available, need 80GiB for 2 volumes"
    );
    let why = fit(&two, &[65 * GIB]).unwrap_err();
    assert_eq!(why, "only 64GiB of PMEM available, need 65GiB");
    let full = fit(&two, &[64 * GIB]).unwrap();
    assert_eq!((full.left_bytes, full.score), (64 * GIB, 100));
    assert!(fit(&[], &[1]).is_err());
    // 64 times what needs no search, and what needs one that is bounded.
    assert!(fit(&two, &[2 * GIB; 64]).is_ok());
    assert!(fit(&two, &[3 * GIB; 43]).is_err());
}

#[test]
fn the_region_that_is_left_with_least_is_taken() {
    let candidate = |name: &str, sizes: &[u64]| Candidate {
        host: host(name),
        closed: String::new(),
        rooms: (0..)
            .zip(sizes)
            .map(|(number, size)| {
                let name = format!("r{number}");
                (0, room(region(&name, DeviceMode::Lvm, size * GIB)))
            })
            .collect(),
    };
    let mut candidates = vec![candidate("h1", &[64, 16]), candidate("h2", &[8, 32])];
    let wish = Wish {
        required_bytes: 10 * GIB,
        limit_bytes: 0,
        replicas: 1,
        preferred: Vec::new(),
        requisite: BTreeSet::new(),
    };
    let chosen = |candidates: &[Candidate], wish: &Wish| {
        let chosen = choose(candidates, wish).unwrap().into_iter();
        let words = chosen.map(|c| format!("{} {}", c.host, c.region));
        words.collect::<Vec<_>>()
    };
    assert_eq!(chosen(&candidates, &wish), ["h1 r1"]);
    let preferred = Wish {
        preferred: vec![host("h9"), host("h2")],
        ..wish.clone()
    };
    assert_eq!(chosen(&candidates, &preferred), ["h2 r1"]);
    let both = Wish {
        replicas: 2,
        ..wish.clone()
    };
    assert_eq!(chosen(&candidates, &both), ["h1 r1", "h2 r1"]);
    // Near the cell comes before what is left.
    candidates[0].rooms[1].0 = 20;
    candidates[0].rooms[0].0 = 10;
    candidates[1].rooms[1].0 = 20;
    assert_eq!(chosen(&candidates, &wish), ["h1 r0"]);

    let refused = |wish: Wish| choose(&candidates, &wish).unwrap_err();
    let three = refused(Wish {
        replicas: 3,
        ..wish.clone()
    });
    assert!(three.message.starts_with("2 hosts have room"), "{three}");
    let huge = refused(Wish {
        required_bytes: 1 << 63,
        ..wish.clone()
    });
    assert_eq!((&*huge.reason, huge.hosts.len()), ("NO_SPACE", 2));
    assert_eq!(huge.metadata["largest_bytes"], (64 * GIB).to_string());
    let narrow = refused(Wish {
        limit_bytes: 10 * GIB + 1,
        required_bytes: 10 * GIB + 1,
        ..wish
    });
    assert_eq!(narrow.reason, "SIZE_OUT_OF_RANGE");
}

proptest! {
    /// Goal: what is said to be the largest can be made, and one byte more cannot; what is said to be
    /// available in all can be used up, by the volumes that fill the holes. The second defect of
    /// PMEM-CSI: what it said to be there could not be created.
    #[test]
    fn capacity_is_what_can_be_made(mut room in a_room()) {
        let largest = room.largest();
        prop_assert!(room.place(largest + 1).is_none());
        prop_assert!(largest == 0 || room.place(largest).is_some());
        prop_assert!(largest == 0 || largest >= room.smallest());
        let promised = room.available_bytes();
        let mut had = 0;
        while room.largest() > 0 {
            let taken = room.place(room.largest()).unwrap();
            had += net_bytes(room.region.mode, taken.gross_bytes);
            room.hold(&id(had), taken);
            prop_assert_eq!(&room.disagreement_for_tests(), &None);
        }
        prop_assert_eq!(had, promised);
    }

    /// Goal: volumes fit exactly where there is an order in which they can be made.
    #[test]
    fn fitting_is_what_can_be_made(
        rooms in some_rooms(),
        sizes in proptest::collection::vec(0_u64..8, 0..5),
    ) {
        let sizes: Vec<u64> = sizes.into_iter().map(|size| size * STEP).collect();
        prop_assert_eq!(fit(&rooms, &sizes).is_ok(), can_be_made(&rooms, &sizes));
    }

    /// Goal: what a plan moves makes the room, and nothing smaller does. Method: every set of volumes.
    #[test]
    fn plans_move_the_fewest_bytes(room in a_room(), steps in 1_u64..12) {
        let size = (steps - 1) * STEP + 1;
        let without = |gone: &BTreeSet<&VolumeId>| {
            let mut after = room.clone();
            after.held.retain(|held| !gone.contains(&held.volume));
            after
        };
        let sets = (0_u32..1 << room.held.len()).filter_map(|set| {
            let held = room.held.iter().enumerate();
            let gone: Vec<&Held> = held.filter(|(at, _)| set & 1 << at != 0).map(|h| h.1).collect();
            let names: BTreeSet<&VolumeId> = gone.iter().map(|held| &held.volume).collect();
            without(&names).place(size)?;
            Some(gone.iter().map(|held| held.taken.gross_bytes).sum::<u64>())
        });
        let least = sets.min();
        let plan = make_room(&room, size);
        prop_assert_eq!(plan.as_ref().map(Plan::moved_bytes), least);
        if let Some(plan) = plan {
            let gone = plan.moves.iter().map(|one| &one.volume).collect();
            let placed = without(&gone).place(size).unwrap();
            prop_assert_eq!(plan.extent.is_some(), placed.extent.is_some());
            if let Some(extent) = plan.extent.filter(|_| !plan.moves.is_empty()) {
                prop_assert_eq!(Some(extent), placed.extent);
            }
        }
    }
}

/// Goal: what has to go is found a place elsewhere, one after the other, and never where it is.
#[test]
fn what_has_to_go_is_found_a_place() {
    let (near, far) = (host("h1"), host("h2"));
    let mut full = room(region("r0", DeviceMode::Lvm, 8 * GIB));
    for number in 0..4 {
        let taken = full.place(2 * GIB).unwrap();
        full.hold(&id(number), taken);
    }
    let mut plan = make_room(&full, 5 * GIB).unwrap();
    assert_eq!((plan.moves.len(), plan.moved_bytes()), (3, 6 * GIB));
    let mut rooms = [
        (near.clone(), full),
        (near.clone(), room(region("r1", DeviceMode::Lvm, 3 * GIB))),
        (far.clone(), room(region("r0", DeviceMode::Lvm, 2 * GIB))),
    ];
    find_places(&mut plan, &near, &mut rooms, |_| 2 * GIB);
    let places: Vec<_> = plan.moves.iter().map(|one| one.to.clone()).collect();
    let region = |text: &str| RegionName::new(text).unwrap();
    assert_eq!(
        places,
        [Some((far, region("r0"))), Some((near, region("r1"))), None]
    );
}

/// Goal: providers of regions are told apart, and are the same again.
#[test]
fn regions_have_providers_of_their_own() {
    let root = |number| ProviderId(Uuid::from_u128(number));
    let region = |text: &str| RegionName::new(text).unwrap();
    let roots = (0..50).map(root);
    let all = roots
        .flat_map(|root| ["region0", "region1", "r"].map(|name| provider_of(root, &region(name))));
    let all: Vec<ProviderId> = all.collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 150);
    assert_eq!(all[0], provider_of(root(0), &region("region0")));
    assert_eq!(all[0].0.get_version_num(), 8);
}
