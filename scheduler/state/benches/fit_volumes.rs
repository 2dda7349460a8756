//! How long FitVolumes takes for 1,000 hosts: `cargo bench -p berth-state --bench fit_volumes`.
//!
//! Each host has a region of 64 GiB in each mode, with 12 volumes in each, of 1 to 3 GiB; in mode
//! direct every other one has gone again, so that what is free is in pieces. Measured is what the
//! scheduler does for one call beside reading and writing it: each host's regions with what their
//! volumes take, and the fit. One thread; the extender's goal for a whole call is 20 ms.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_domain::id::{Generation, ProviderId, TimeMs};
use berth_domain::name::{HostName, RegionName, VolumeId};
use berth_domain::ownership::Ownership;
use berth_domain::version::ServiceVersion;
use berth_domain::volume::{
    DeviceMode, DisplayName, Kind, Outcome, Parameters, Phase, Region, Replica, Report, Volume,
    fit, net_bytes,
};
use berth_state::State;
use berth_state::command::{Command, Envelope};
use berth_testkit::state::{host_name, report, topology, uuid};

const HOSTS: u64 = 1_000;
const VOLUMES: u64 = 12;
const SAMPLES: usize = 101;
const GIB: u64 = 1 << 30;

fn run(state: &mut State, command: Command) {
    let envelope = Envelope {
        at: TimeMs(1_000_000),
        principal: "unverified:bench".to_owned(),
        request: None,
        audit: None,
        command,
    };
    state.speculate(1, &envelope).expect("it is sound");
}

fn region(name: &str, mode: DeviceMode) -> Region {
    Region {
        name: RegionName::new(name).expect("a name"),
        cell: None,
        mode,
        capacity_bytes: 64 * GIB,
        align_bytes: match mode {
            DeviceMode::Lvm => 4 << 20,
            DeviceMode::Direct => GIB,
        },
        foreign: Vec::new(),
        trouble: String::new(),
    }
}

/// Claims a volume in a region of a host, where it fits first.
fn create(state: &mut State, host: &HostName, mode: DeviceMode, number: u64) -> VolumeId {
    let gross = (1 + number / 2 % 3) * GIB;
    let usages = state.regions_of(&state.host(host).expect("it is there").host);
    let mut usages = usages.iter().filter(|usage| usage.region.mode == mode);
    let usage = usages.next().expect("it has a region in each mode");
    let taken = usage.place(net_bytes(mode, gross)).expect("it has room");
    let display_name = DisplayName::new(&format!("v{number}")).expect("a name");
    let replica = Replica {
        host: host.clone(),
        region: usage.name().clone(),
        cell: None,
        mode,
        gross_bytes: taken.gross_bytes,
        size_bytes: net_bytes(mode, taken.gross_bytes),
        extent: taken.extent,
        placed: false,
        phase: Phase::Creating,
        sequence: 0,
        erased_bytes: 0,
        failure: String::new(),
        failures: 0,
    };
    let id = display_name.id(uuid(7, number));
    let volume = Volume {
        id: id.clone(),
        display_name,
        kind: Kind::Persistent,
        required_bytes: replica.size_bytes,
        parameters: Parameters::default(),
        replicas: vec![replica],
        created_at: TimeMs(0),
        generation: Generation(0),
        ownership: Ownership::default(),
    };
    let create = Command::CreateVolume {
        volume: Box::new(volume),
        limit_bytes: 0,
    };
    run(state, create);
    id
}

/// Has a host say that it cannot make these: what they took is free again.
fn give_up(state: &mut State, host: &HostName, volumes: impl Iterator<Item = VolumeId>) {
    let view = state.host(host).expect("it is there");
    let incarnation = view.host.report.incarnation;
    let report = |volume| Report {
        volume,
        outcome: Outcome::Failed {
            why: "it is to go again".to_owned(),
        },
    };
    let note = Command::NoteVolumes {
        host: host.clone(),
        incarnation,
        reports: volumes.map(report).collect(),
    };
    run(state, note);
}

fn loaded() -> State {
    let mut state = State::new();
    let version = ServiceVersion::CURRENT;
    let gone = BTreeSet::new();
    run(&mut state, Command::FinalizeUpgrade { version, gone });
    for number in 0..HOSTS {
        let host = host_name(&format!("h{number}"));
        let mut report = report(topology(1, 2, 1));
        report.regions = vec![
            region("region0", DeviceMode::Lvm),
            region("region1", DeviceMode::Direct),
        ];
        let provider = ProviderId(uuid(2, number));
        let register = Command::RegisterHost {
            host: host.clone(),
            provider,
            report,
        };
        run(&mut state, register);
        let mut direct = Vec::new();
        for volume in 0..VOLUMES {
            let number = 2 * (number * VOLUMES + volume);
            create(&mut state, &host, DeviceMode::Lvm, number);
            direct.push(create(&mut state, &host, DeviceMode::Direct, number + 1));
        }
        give_up(&mut state, &host, direct.into_iter().step_by(2));
    }
    state.check().expect("the state is sound");
    state
}

/// Answers one call; returns on how many hosts the volumes fit.
fn call(state: &State, sizes: &[u64]) -> usize {
    let fits = |name: &&HostName| {
        let view = state.host(name).expect("it is there");
        let candidate = state.volume_candidate(view, None);
        let usages = candidate.regions.into_iter().map(|(_, usage)| usage);
        fit(&usages.collect::<Vec<_>>(), sizes).is_ok()
    };
    state.hosts().keys().filter(fits).count()
}

fn main() {
    let state = loaded();
    println!("{HOSTS} hosts, {} volumes", state.volumes().len());
    let rows: BTreeMap<&str, Vec<u64>> = [
        ("1 volume of 4 GiB", vec![4 * GIB]),
        (
            "4 volumes of 4 to 16 GiB",
            vec![4 * GIB, 8 * GIB, 12 * GIB, 16 * GIB],
        ),
        ("16 volumes of 4 GiB", vec![4 * GIB; 16]),
        ("2 volumes of 48 GiB: no", vec![48 * GIB; 2]),
    ]
    .into();
    for (name, sizes) in rows {
        let hosts = call(&state, &sizes);
        let sample = || {
            let start = Instant::now();
            black_box(call(&state, black_box(&sizes)));
            start.elapsed()
        };
        let mut times: Vec<Duration> = (0..SAMPLES).map(|_| sample()).collect();
        times.sort_unstable();
        let (middle, worst) = (times[SAMPLES / 2], times[SAMPLES - 2]);
        println!("{name:26} fit on {hosts:>4} hosts  p50 {middle:>9.2?}  p99 {worst:>9.2?}");
    }
}
