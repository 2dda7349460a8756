//! The nine defects that were found by reading PMEM-CSI 0.7: none of them is here.

use std::collections::BTreeSet;
use std::path::PathBuf;

use berth_proto::csi::v1::{CapacityRange, CreateVolumeRequest};
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{FitVolumesRequest, ReplicaPhase};
use berth_tests::processes::csi::volume_request;
use berth_tests::processes::{Cluster, Csi, Host, eventually};
use tonic::Code;

use super::*;

/// Alignment of 16 MiB: small volumes in mode direct.
const SMALL: &str = "direct_align_mib = 16";

fn lvm(name: &str) -> Host {
    Host::new(name).with_volumes("sim", &["region0:1024"], "")
}

/// 1, 4, 5, 8: what a controller forgot, pages of lists, codes and true sizes, torn files.
#[test]
fn names_pages_codes_and_files() {
    let mut cluster = start([lvm("h1")]);
    let csi = cluster.add_csi_controller();
    a_controller_that_starts_anew_finds_volumes_by_name(&mut cluster, &csi);
    codes_and_sizes_are_true(&csi);
    pages_do_not_miss_or_repeat(&csi);
    a_torn_file_loses_nothing(&mut cluster, &csi);
}

/// 1: there the name was lost, and every repetition ended in `Internal`.
fn a_controller_that_starts_anew_finds_volumes_by_name(cluster: &mut Cluster, csi: &Csi) {
    let first = csi.create(&volume_request("pvc", 8 * MIB)).unwrap();
    let programs = cluster.programs.clone();
    let controller = &mut cluster.csi_controllers[0];
    controller.kill();
    controller.start(&programs);
    let again = eventually("an answer of the new controller", || {
        csi.create(&volume_request("pvc", 8 * MIB))
    });
    assert_eq!(again, first);
}

/// 5: there `Internal` where there was no space, limits were not looked at, and the size that was
/// told was what was asked for.
fn codes_and_sizes_are_true(csi: &Csi) {
    assert_eq!(
        code(csi.create(&volume_request("large", 2 * GIB))),
        Code::ResourceExhausted
    );
    let limited = |name: &str, required_bytes, limit_bytes| {
        csi.create(&CreateVolumeRequest {
            capacity_range: Some(CapacityRange {
                required_bytes,
                limit_bytes,
            }),
            ..volume_request(name, 0)
        })
    };
    let between = limited("between", 4 * MIB + 1, 8 * MIB - 1);
    assert_eq!(
        code(between),
        Code::OutOfRange,
        "only multiples of 4 MiB can be made"
    );
    let exact = limited("exact", 4 * MIB + 1, 8 * MIB).unwrap();
    assert_eq!(exact.capacity_bytes, 8 * MIB);
    csi.delete(&exact.volume_id).unwrap();
}

/// 4: there pages were taken from a map without order.
fn pages_do_not_miss_or_repeat(csi: &Csi) {
    let make = |number| {
        csi.create(&volume_request(&format!("page-{number}"), MIB))
            .unwrap()
            .volume_id
    };
    let stay: BTreeSet<String> = (0..12).map(make).collect();
    let mut seen = Vec::new();
    let mut token = String::new();
    for page in 0.. {
        let (volumes, next) = csi.list(3, &token).unwrap();
        assert!(volumes.len() <= 3);
        seen.extend(volumes.into_iter().map(|volume| volume.volume_id));
        // Others come and go between the pages; also the last one of a page.
        let other = make(100 + page);
        csi.delete(&other).unwrap();
        token = next;
        if token.is_empty() {
            break;
        }
    }
    let unique: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!(unique.len(), seen.len(), "none comes twice");
    assert!(stay.is_subset(&unique), "none is left out");
    for id in stay {
        csi.delete(&id).unwrap();
    }
}

/// 8: there a torn file made the volume unknown, and nobody could make it anew.
fn a_torn_file_loses_nothing(cluster: &mut Cluster, csi: &Csi) {
    let id = csi
        .create(&volume_request("torn", 8 * MIB))
        .unwrap()
        .volume_id;
    let node = cluster.csi_node("h1");
    let (staging, target) = paths(cluster, "torn");
    node.stage(&id, &staging).unwrap();
    std::fs::write(staging.join("file"), "kept").unwrap();
    let file: PathBuf = cluster
        .volume_dir("h1")
        .join("volumes")
        .join(format!("{id}.json"));
    let programs = cluster.programs.clone();
    let agent = cluster.agent("h1");
    agent.kill();
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    agent.start(&programs);
    let node = cluster.csi_node("h1");
    eventually("the volume is staged again", || node.stage(&id, &staging));
    node.publish(&id, &staging, &target).unwrap();
    assert_eq!(std::fs::read(target.join("file")).unwrap(), b"kept");
    node.unpublish(&id, &target).unwrap();
    node.unstage(&id, &staging).unwrap();
    csi.delete(&id).unwrap();
    let first = csi.create(&volume_request("pvc", 8 * MIB)).unwrap();
    csi.delete(&first.volume_id).unwrap();
    all_gone(cluster, &["h1"]);
}

/// 2, 3, 6: what is told as free, what fits together, cache volumes on too few hosts.
#[test]
fn capacity_is_what_can_be_created() {
    let host =
        |name| Host::new(name).with_volumes("sim-direct", &["region0:1024", "region1:1024"], SMALL);
    let mut cluster = start([host("h1"), host("h2")]);
    let csi = cluster.add_csi_controller();
    // 2: there a volume as large as was told could not be created.
    let maximum = csi
        .capacity(Some("h1"))
        .unwrap()
        .maximum_volume_size
        .unwrap();
    let more = on("h1", volume_request("more", maximum + 1));
    assert_eq!(code(csi.create(&more)), Code::ResourceExhausted);
    let one = csi
        .create(&on("h1", volume_request("one", maximum)))
        .unwrap();
    assert_eq!(one.capacity_bytes, maximum);
    // 3: there the sum was held against the largest piece.
    let fits = |host: &str, sizes: [u64; 2]| {
        let answer = cluster.at_scheduler(|channel| {
            let request = FitVolumesRequest {
                hosts: vec![format!("hosts/{host}")],
                required_bytes: sizes.to_vec(),
                ..Default::default()
            };
            async move { VolumeServiceClient::new(channel).fit_volumes(request).await }
        });
        answer.unwrap().hosts[0].fits
    };
    let two = [u64::try_from(640 * MIB).unwrap(); 2];
    assert!(fits("h2", two));
    assert!(!fits("h1", two), "one region of it is taken");
    for name in ["a", "b"] {
        csi.create(&on("h2", volume_request(name, 640 * MIB)))
            .unwrap();
    }
    // 6: there a cache volume on fewer hosts than were asked for was a success.
    let before = volumes(&cluster).len();
    let cache = |replicas: &str, size| {
        let parameters = [("persistencyModel", "cache"), ("cacheSize", replicas)];
        csi.create(&with(&parameters, volume_request("cache", size)))
    };
    assert_eq!(code(cache("2", 900 * MIB)), Code::ResourceExhausted);
    assert_eq!(code(cache("3", 16 * MIB)), Code::ResourceExhausted);
    assert_eq!(volumes(&cluster).len(), before, "nothing is left of it");
    assert_eq!(hosts(&cache("2", 16 * MIB).unwrap()).len(), 2);
}

/// 7, 9: erasing keeps nobody waiting, and a host that is down does not stop a deletion.
#[test]
fn erasing_and_hosts_that_are_down_stop_nobody() {
    let slow = Host::new("h1").with_volumes("sim", &["region0:4096"], "sim_erase_mib_per_s = 1");
    let mut cluster = start([slow, lvm("h2")]);
    let csi = cluster.add_csi_controller();
    // 7: there one lock was held while a volume was erased.
    let large = csi
        .create(&on("h1", volume_request("large", 2 * GIB)))
        .unwrap()
        .volume_id;
    csi.delete(&large).unwrap();
    eventually("it is being erased", || {
        let volumes = volumes(&cluster);
        let replica = volumes.iter().flat_map(|volume| &volume.replicas).next();
        let far = replica.map_or(0, |replica| replica.erased_bytes);
        if far > 0 {
            Ok(())
        } else {
            Err(format!("{volumes:?}"))
        }
    });
    let node = cluster.csi_node("h1");
    let (staging, target) = paths(&cluster, "beside");
    let beside = csi
        .create(&on("h1", volume_request("large", 64 * MIB)))
        .unwrap()
        .volume_id;
    assert_ne!(beside, large, "the name is free again at once");
    node.stage(&beside, &staging).unwrap();
    node.publish(&beside, &staging, &target).unwrap();
    node.unpublish(&beside, &target).unwrap();
    node.unstage(&beside, &staging).unwrap();
    let maximum = csi
        .capacity(Some("h1"))
        .unwrap()
        .maximum_volume_size
        .unwrap();
    assert!(maximum < 2 * GIB, "what is erased counts until it is");
    let going = |volume: &&Volume| volume.name.ends_with(&large);
    let volume = volumes(&cluster).iter().find(going).cloned().unwrap();
    assert_eq!(volume.replicas[0].phase(), ReplicaPhase::Deleting);

    // 9: there a deletion failed while a host was down.
    let there = csi
        .create(&on("h2", volume_request("there", 64 * MIB)))
        .unwrap()
        .volume_id;
    let programs = cluster.programs.clone();
    cluster.agent("h2").kill();
    csi.delete(&there).unwrap();
    assert_eq!(
        devices(&cluster, "h2"),
        [there],
        "it is there as long as its host is down"
    );
    cluster.agent("h2").start(&programs);
    eventually("it is erased when its host is back", || {
        match devices(&cluster, "h2") {
            left if left.is_empty() => Ok(()),
            left => Err(left.join(", ")),
        }
    });
}
