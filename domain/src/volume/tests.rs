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

fn usage(region: Region) -> RegionUsage {
    RegionUsage {
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
fn a_region_usage() -> impl Strategy<Value = RegionUsage> {
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
        let mut usage = usage(region);
        let mut gone = BTreeSet::new();
        for (number, (size, stays)) in (0..).zip(sizes) {
            if let Some(taken) = usage.place((size - 1) * STEP + 1) {
                usage.hold(&id(number), taken);
                if !stays {
                    gone.insert(id(number));
                }
            }
        }
        // Those that went leave holes.
        usage.held.retain(|held| !gone.contains(&held.volume));
        usage
    })
}

fn some_region_usages() -> impl Strategy<Value = Vec<RegionUsage>> {
    proptest::collection::vec(a_region_usage(), 1..4).prop_map(|mut usages| {
        for (number, usage) in usages.iter_mut().enumerate() {
            usage.region.name = RegionName::new(&format!("r{number}")).unwrap();
        }
        usages
    })
}

/// Returns whether there is any order and any regions in which they can be made.
fn can_be_made(usages: &[RegionUsage], sizes: &[u64]) -> bool {
    sizes.is_empty()
        || (0..sizes.len()).any(|index| {
            let mut rest = sizes.to_vec();
            let size = rest.remove(index);
            (0..usages.len()).any(|at| {
                let Some(taken) = usages[at].place(size) else {
                    return false;
                };
                let mut after = usages.to_vec();
                after[at].hold(&id(99), taken);
                can_be_made(&after, &rest)
            })
        })
}

/// The third defect of PMEM-CSI: its extender compared the sum with the largest piece.
#[test]
fn several_volumes_are_fitted_one_by_one() {
    let gib = |size: u64| usage(region("r0", DeviceMode::Lvm, size * GIB));
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
        regions: (0..)
            .zip(sizes)
            .map(|(number, size)| {
                let name = format!("r{number}");
                (0, usage(region(&name, DeviceMode::Lvm, size * GIB)))
            })
            .collect(),
    };
    let mut candidates = vec![candidate("h1", &[64, 16]), candidate("h2", &[8, 32])];
    let request = VolumeRequest {
        required_bytes: 10 * GIB,
        limit_bytes: 0,
        replicas: 1,
        preferred: Vec::new(),
        requisite: BTreeSet::new(),
    };
    let chosen = |candidates: &[Candidate], request: &VolumeRequest| {
        let chosen = choose(candidates, request).unwrap().into_iter();
        let words = chosen.map(|c| format!("{} {}", c.host, c.region));
        words.collect::<Vec<_>>()
    };
    assert_eq!(chosen(&candidates, &request), ["h1 r1"]);
    let preferred = VolumeRequest {
        preferred: vec![host("h9"), host("h2")],
        ..request.clone()
    };
    assert_eq!(chosen(&candidates, &preferred), ["h2 r1"]);
    let both = VolumeRequest {
        replicas: 2,
        ..request.clone()
    };
    assert_eq!(chosen(&candidates, &both), ["h1 r1", "h2 r1"]);
    // Near the cell comes before what is left.
    candidates[0].regions[1].0 = 20;
    candidates[0].regions[0].0 = 10;
    candidates[1].regions[1].0 = 20;
    assert_eq!(chosen(&candidates, &request), ["h1 r0"]);

    let refused = |request: VolumeRequest| choose(&candidates, &request).unwrap_err();
    let three = refused(VolumeRequest {
        replicas: 3,
        ..request.clone()
    });
    assert!(three.message.starts_with("2 hosts have room"), "{three}");
    let huge = refused(VolumeRequest {
        required_bytes: 1 << 63,
        ..request.clone()
    });
    assert_eq!((&*huge.reason, huge.hosts.len()), ("NO_SPACE", 2));
    assert_eq!(huge.metadata["largest_bytes"], (64 * GIB).to_string());
    let narrow = refused(VolumeRequest {
        limit_bytes: 10 * GIB + 1,
        required_bytes: 10 * GIB + 1,
        ..request
    });
    assert_eq!(narrow.reason, "SIZE_OUT_OF_RANGE");
}

proptest! {
    /// Goal: what is reported to be the largest can be made, and one byte more cannot; what is
    /// reported to be available in all can be used up, by the volumes that fill the holes. The
    /// second defect of PMEM-CSI: what it reported could not be created.
    #[test]
    fn capacity_is_what_can_be_made(mut usage in a_region_usage()) {
        let largest = usage.largest();
        prop_assert!(usage.place(largest + 1).is_none());
        prop_assert!(largest == 0 || usage.place(largest).is_some());
        prop_assert!(largest == 0 || largest >= usage.smallest());
        let promised = usage.available_bytes();
        let mut had = 0;
        while usage.largest() > 0 {
            let taken = usage.place(usage.largest()).unwrap();
            had += net_bytes(usage.region.mode, taken.gross_bytes);
            usage.hold(&id(had), taken);
            prop_assert_eq!(&usage.disagreement_for_tests(), &None);
        }
        prop_assert_eq!(had, promised);
    }

    /// Goal: volumes fit exactly where there is an order in which they can be made.
    #[test]
    fn fitting_is_what_can_be_made(
        usages in some_region_usages(),
        sizes in proptest::collection::vec(0_u64..8, 0..5),
    ) {
        let sizes: Vec<u64> = sizes.into_iter().map(|size| size * STEP).collect();
        prop_assert_eq!(fit(&usages, &sizes).is_ok(), can_be_made(&usages, &sizes));
    }

    /// Goal: what a plan moves frees the space, and nothing smaller does. Method: every set of
    /// volumes.
    #[test]
    fn plans_move_the_fewest_bytes(usage in a_region_usage(), steps in 1_u64..12) {
        let size = (steps - 1) * STEP + 1;
        let without = |gone: &BTreeSet<&VolumeId>| {
            let mut after = usage.clone();
            after.held.retain(|held| !gone.contains(&held.volume));
            after
        };
        let sets = (0_u32..1 << usage.held.len()).filter_map(|set| {
            let held = usage.held.iter().enumerate();
            let gone: Vec<&Held> = held.filter(|(at, _)| set & 1 << at != 0).map(|h| h.1).collect();
            let names: BTreeSet<&VolumeId> = gone.iter().map(|held| &held.volume).collect();
            without(&names).place(size)?;
            Some(gone.iter().map(|held| held.taken.gross_bytes).sum::<u64>())
        });
        let least = sets.min();
        let plan = plan_space(&usage, size);
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
    let mut full = usage(region("r0", DeviceMode::Lvm, 8 * GIB));
    for number in 0..4 {
        let taken = full.place(2 * GIB).unwrap();
        full.hold(&id(number), taken);
    }
    let mut plan = plan_space(&full, 5 * GIB).unwrap();
    assert_eq!((plan.moves.len(), plan.moved_bytes()), (3, 6 * GIB));
    let mut usages = [
        (near.clone(), full),
        (near.clone(), usage(region("r1", DeviceMode::Lvm, 3 * GIB))),
        (far.clone(), usage(region("r0", DeviceMode::Lvm, 2 * GIB))),
    ];
    find_destinations(&mut plan, &near, &mut usages, |_| 2 * GIB);
    let places: Vec<_> = plan.moves.iter().map(|one| one.to.clone()).collect();
    let region = |text: &str| RegionName::new(text).unwrap();
    assert_eq!(
        places,
        [Some((far, region("r0"))), Some((near, region("r1"))), None]
    );
}

/// Goal: providers of regions are distinguished, and are the same again.
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
