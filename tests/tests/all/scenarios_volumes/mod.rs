//! Volumes of persistent memory through the whole system: schedulers, agents with simulated memory
//! and controllers as processes, asked through the Container Storage Interface as Kubernetes asks.
//!
//! A simulated device and what is written on it outlive the agent, in files; see
//! `compute-agent/server/src/volumes/simulated.rs`.
//!
//! | file | what |
//! |---|---|
//! | `life` | a volume from its claim to its erasure; what the public suite checks |
//! | `defects` | each of the nine defects that PMEM-CSI 0.7 had |
//! | `crashes` | agents, controllers and schedulers killed in the middle |
//! | `race` | two controllers and more callers than there is space |

mod crashes;
mod defects;
mod life;
mod race;

use std::path::{Path, PathBuf};

use berth_proto::csi::v1::{self, CreateVolumeRequest, TopologyRequirement};
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{ListVolumesRequest, Volume};
use berth_tests::processes::csi::{DRIVER, place};
use berth_tests::processes::{Builder, Cluster, Host, eventually};
use tonic::{Code, Status};

use crate::PROGRAMS;

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

/// Starts a cluster of one scheduler and these hosts.
#[track_caller]
fn start(hosts: impl IntoIterator<Item = Host>) -> Cluster {
    let builder = Cluster::builder(PROGRAMS).schedulers(1).conductors(0);
    let builder = hosts.into_iter().fold(builder, Builder::host);
    builder.start()
}

/// Returns a request for a volume that must be on this host.
fn on(host: &str, request: CreateVolumeRequest) -> CreateVolumeRequest {
    CreateVolumeRequest {
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![place(host)],
            preferred: Vec::new(),
        }),
        ..request
    }
}

/// Returns a request with these parameters of a storage class.
fn with(parameters: &[(&str, &str)], request: CreateVolumeRequest) -> CreateVolumeRequest {
    let parameters = parameters
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    CreateVolumeRequest {
        parameters: parameters.collect(),
        ..request
    }
}

/// Returns the hosts of a volume.
fn hosts(volume: &v1::Volume) -> Vec<String> {
    let places = volume.accessible_topology.iter();
    places
        .map(|place| place.segments[&format!("{DRIVER}/node")].clone())
        .collect()
}

fn code<T>(answer: Result<T, Status>) -> Code {
    answer.err().map_or(Code::Ok, |status| status.code())
}

/// Returns the volumes as the scheduler has them.
#[track_caller]
fn volumes(cluster: &Cluster) -> Vec<Volume> {
    let asked = cluster.at_scheduler(|channel| async move {
        let request = ListVolumesRequest {
            page_size: 1000,
            ..Default::default()
        };
        VolumeServiceClient::new(channel)
            .list_volumes(request)
            .await
    });
    asked.unwrap().volumes
}

/// Returns the names of the simulated devices of a host.
fn devices(cluster: &Cluster, host: &str) -> Vec<String> {
    let folder = cluster.volume_dir(host).join("sim/devices");
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap());
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".new")).collect();
    names.sort();
    names
}

/// Waits until nothing of any volume is left, neither in the scheduler nor on these hosts.
#[track_caller]
fn all_gone(cluster: &Cluster, hosts: &[&str]) {
    eventually("nothing is left of any volume", || {
        let left = volumes(cluster);
        let made: Vec<_> = hosts
            .iter()
            .flat_map(|host| devices(cluster, host))
            .collect();
        match left.is_empty() && made.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?} {made:?}")),
        }
    });
}

/// A folder for a staging path, and a target path beside it that is not there.
fn paths(cluster: &Cluster, name: &str) -> (PathBuf, PathBuf) {
    let folder = cluster.folder().join(format!("pods-{name}"));
    let staging = folder.join("staging");
    std::fs::create_dir_all(&staging).unwrap();
    (staging, folder.join("target"))
}

fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
