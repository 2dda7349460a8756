//! Any regions of hosts, and the volumes that they are made of.

use super::ownership;
use berth_domain::id::{Generation, TimeMs};
use berth_domain::name::{HostName, RegionName, VolumeId};
use berth_domain::topology::CellId;
use berth_domain::volume::{
    DeviceMode, DisplayName, Extent, Failed, Kind, Outcome, Parameters, Phase, Region, Replica,
    Report, Volume,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use uuid::Uuid;

fn extent() -> impl Strategy<Value = Extent> {
    (any::<u64>(), any::<u64>()).prop_map(|(offset_bytes, length_bytes)| Extent {
        offset_bytes,
        length_bytes,
    })
}

pub(super) fn region() -> impl Strategy<Value = Region> {
    (
        "[a-z][a-z0-9]{0,7}",
        option::of(any::<u32>().prop_map(CellId)),
        select(vec![DeviceMode::Lvm, DeviceMode::Direct]),
        any::<u64>(),
        1..=u64::MAX,
        vec(extent(), 0..3),
        "[a-z ]{0,12}",
    )
        .prop_map(
            |(name, cell, mode, capacity_bytes, align_bytes, foreign, trouble)| Region {
                name: RegionName::new(&name).unwrap(),
                cell,
                mode,
                capacity_bytes,
                align_bytes,
                foreign,
                trouble,
            },
        )
}

pub(super) fn failed() -> impl Strategy<Value = Failed> {
    let name = "[a-z -]{1,20}";
    (name, any::<u128>(), "[a-z ]{0,20}", any::<u32>()).prop_map(|(name, number, why, at)| {
        let display_name = DisplayName::new(&name).unwrap();
        Failed {
            volume: display_name.id(Uuid::from_u128(number)),
            display_name,
            why,
            at: TimeMs(at.into()),
        }
    })
}

fn mode() -> impl Strategy<Value = DeviceMode> {
    select(vec![DeviceMode::Lvm, DeviceMode::Direct])
}

fn region_name() -> impl Strategy<Value = RegionName> {
    "[a-z][a-z0-9]{0,7}".prop_map(|name| RegionName::new(&name).unwrap())
}

fn replica() -> impl Strategy<Value = Replica> {
    let place = (
        region_name(),
        option::of(any::<u32>().prop_map(CellId)),
        mode(),
    );
    let size = (
        any::<u64>(),
        any::<u64>(),
        option::of(extent()),
        any::<bool>(),
    );
    let phase = select(vec![Phase::Creating, Phase::Ready, Phase::Deleting]);
    let life = (
        phase,
        any::<u64>(),
        any::<u64>(),
        "[a-z ]{0,12}",
        any::<u32>(),
    );
    (place, size, life).prop_map(|(place, size, life)| Replica {
        // Each is on a host of its own.
        host: HostName::new("h").unwrap(),
        region: place.0,
        cell: place.1,
        mode: place.2,
        gross_bytes: size.0,
        size_bytes: size.1,
        extent: size.2,
        placed: size.3,
        phase: life.0,
        sequence: life.1,
        erased_bytes: life.2,
        failure: life.3,
        failures: life.4,
    })
}

fn display_name() -> impl Strategy<Value = DisplayName> {
    "[^\\p{Cc}]{1,32}".prop_map(|name| DisplayName::new(&name).unwrap())
}

pub(crate) fn volume() -> impl Strategy<Value = Volume> {
    let kind = select(vec![Kind::Persistent, Kind::Ephemeral, Kind::Cache]);
    let wish = (kind, any::<u64>(), any::<bool>(), any::<bool>());
    let times = (0..1_u64 << 40, any::<u64>(), ownership());
    let all = (
        display_name(),
        any::<u128>(),
        wish,
        vec(replica(), 1..4),
        times,
    );
    all.prop_map(|(display_name, number, wish, mut replicas, times)| {
        for (number, replica) in replicas.iter_mut().enumerate() {
            replica.host = HostName::new(&format!("h{number}")).unwrap();
        }
        Volume {
            id: display_name.id(Uuid::from_u128(number)),
            display_name,
            kind: wish.0,
            required_bytes: wish.1,
            parameters: Parameters {
                erase_after: wish.2,
                kata_containers: wish.3,
            },
            replicas,
            created_at: TimeMs(times.0),
            generation: Generation(times.1),
            ownership: times.2,
        }
    })
}

pub(crate) fn report() -> impl Strategy<Value = Report> {
    let why = || "[a-z ]{0,12}";
    let outcome = prop_oneof![
        (any::<u64>(), option::of(extent()))
            .prop_map(|(size_bytes, extent)| Outcome::Created { size_bytes, extent }),
        why().prop_map(|why| Outcome::Failed { why }),
        any::<u64>().prop_map(|erased_bytes| Outcome::Erasing { erased_bytes }),
        why().prop_map(|why| Outcome::Delayed { why }),
        Just(Outcome::Deleted),
    ];
    ("[a-z][a-z0-9-]{0,39}", outcome).prop_map(|(volume, outcome)| Report {
        volume: VolumeId::new(&volume).unwrap(),
        outcome,
    })
}
