//! A volume from its claim to its erasure, and what the public conformance suite checks on the way.

use berth_proto::agent::v1::SyncVolumeRequest;
use berth_proto::agent::v1::volume_agent_service_client::VolumeAgentServiceClient;
use berth_proto::csi::v1::{
    CapacityRange, ControllerGetVolumeRequest, ControllerPublishVolumeRequest, CreateVolumeRequest,
    NodeGetVolumeStatsRequest, ValidateVolumeCapabilitiesRequest, VolumeCapability,
};
use berth_proto::volume::v1::DeleteVolumeRequest;
use berth_tests::processes::Host;
use berth_tests::processes::csi::{Csi, block, mount, volume_request};
use tonic::Code;

use super::*;

/// Goal: rows C1, C3, C4 and C6. Method: the whole way of a persistent volume over two hosts whose
/// memory is made into volume groups.
#[test]
fn a_volume_is_claimed_made_used_and_erased() {
    let host =
        |name| Host::new(name).with_volumes("sim", &["region0:1024@0", "region1:2048@1"], "");
    let mut cluster = start([host("h1"), host("h2")]);
    let csi = cluster.add_csi_controller();
    let node = cluster.csi_node("h2");
    answers_for_what_is_wrong(&csi);
    all_gone(&cluster, &["h1", "h2"]);

    let before = csi.capacity(Some("h2")).unwrap();
    let maximum = before.maximum_volume_size.unwrap();
    assert_eq!(before.minimum_volume_size, Some(4 * MIB));
    assert!(maximum > 1900 * MIB && maximum < 2048 * MIB, "{maximum}");
    assert_eq!(maximum % (4 * MIB), 0);
    let all = csi.capacity(None).unwrap();
    assert_eq!(all.available_capacity, 2 * before.available_capacity);
    assert_eq!(all.maximum_volume_size, Some(maximum));
    assert_eq!(csi.capacity(Some("h9")).unwrap().available_capacity, 0);

    let request = on("h2", volume_request("pvc-1", 100 * MIB + 1));
    let volume = csi.create(&request).unwrap();
    assert_eq!(volume.capacity_bytes, 104 * MIB, "rounded up to 4 MiB");
    assert_eq!(hosts(&volume), ["h2"]);
    assert_eq!(volume.volume_context["name"], "pvc-1");
    assert_eq!(volume.volume_context["eraseafter"], "true");
    let id = volume.volume_id.clone();
    assert_eq!(csi.create(&request).unwrap(), volume, "repeated");
    let shown = &volumes(&cluster)[0];
    let replica = &shown.replicas[0];
    let cells = [("region0", Some(0)), ("region1", Some(1))];
    assert!(
        cells.contains(&(&replica.region, replica.cell)),
        "{shown:?}"
    );
    let after = csi.capacity(Some("h2")).unwrap();
    assert_eq!(
        after.available_capacity,
        before.available_capacity - 104 * MIB
    );
    let (listed, token) = csi.list(0, "").unwrap();
    assert_eq!((listed, token), (vec![volume.clone()], String::new()));
    let got = csi.wait(
        csi.controller()
            .controller_get_volume(ControllerGetVolumeRequest {
                volume_id: id.clone(),
            }),
    );
    assert_eq!(got.unwrap().volume, Some(volume.clone()));

    let (staging, target) = paths(&cluster, "1");
    used_and_found_again(&csi, &node, &id, &staging, &target);

    csi.delete(&id).unwrap();
    csi.delete(&id).unwrap();
    assert_eq!(code(node.stage(&id, &staging)), Code::NotFound);
    all_gone(&cluster, &["h1", "h2"]);
    assert_eq!(csi.capacity(Some("h2")).unwrap(), before);
    taken_back_while_used(&cluster, &csi, &node);
    assert_eq!(csi.capacity(Some("h2")).unwrap(), before);
    // The space is handed out again, and nothing of before is in it.
    let again = csi
        .create(&on("h2", volume_request("pvc-2", maximum)))
        .unwrap();
    assert_eq!(again.capacity_bytes, maximum);
    node.stage(&again.volume_id, &staging).unwrap();
    assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 0);
}

/// Whatever the scheduler is told: what is used is not touched, and goes as soon as it is not used.
fn taken_back_while_used(cluster: &Cluster, csi: &Csi, node: &Csi) {
    let id = csi
        .create(&on("h2", volume_request("used", 8 * MIB)))
        .unwrap()
        .volume_id;
    let (staging, target) = paths(cluster, "used");
    node.stage(&id, &staging).unwrap();
    node.publish(&id, &staging, &target).unwrap();
    std::fs::write(target.join("file"), "kept").unwrap();
    let given_back = cluster.at_scheduler(|channel| {
        let request = DeleteVolumeRequest {
            name: format!("volumes/{id}"),
            ..Default::default()
        };
        async move {
            VolumeServiceClient::new(channel)
                .delete_volume(request)
                .await
        }
    });
    given_back.unwrap();
    let sync = cluster.at_agent("h2", |channel| {
        let volume = format!("volumes/{id}");
        let request = SyncVolumeRequest { volume };
        async move {
            VolumeAgentServiceClient::new(channel)
                .sync_volume(request)
                .await
        }
    });
    assert!(sync.unwrap().in_use);
    assert_eq!(std::fs::read(target.join("file")).unwrap(), b"kept");
    node.unpublish(&id, &target).unwrap();
    node.unstage(&id, &staging).unwrap();
    all_gone(cluster, &["h1", "h2"]);
}

/// The node's part: what is written is found again; what is used is not deleted.
fn used_and_found_again(csi: &Csi, node: &Csi, id: &str, staging: &Path, target: &Path) {
    node.stage(id, staging).unwrap();
    for _ in 0..2 {
        node.publish(id, staging, target).unwrap();
    }
    std::fs::write(target.join("file"), "kept").unwrap();
    assert_eq!(code(csi.delete(id)), Code::FailedPrecondition, "it is used");
    let stats = node.wait(
        node.node()
            .node_get_volume_stats(NodeGetVolumeStatsRequest {
                volume_id: id.to_owned(),
                volume_path: target.display().to_string(),
                ..Default::default()
            }),
    );
    let usage = stats.unwrap().usage;
    assert_eq!((usage[0].total, usage[0].used), (104 * MIB, 4));
    for _ in 0..2 {
        node.unpublish(id, target).unwrap();
    }
    assert!(!exists(target));
    assert_eq!(
        code(csi.delete(id)),
        Code::FailedPrecondition,
        "it is staged"
    );
    node.publish(id, staging, target).unwrap();
    assert_eq!(std::fs::read(target.join("file")).unwrap(), b"kept");
    node.unpublish(id, target).unwrap();
    for _ in 0..2 {
        node.unstage(id, staging).unwrap();
    }
}

/// What is missing, odd or not there, as the public suite asks for it.
fn answers_for_what_is_wrong(csi: &Csi) {
    let invalid = |request: CreateVolumeRequest| {
        let answer = csi.create(&request);
        assert_eq!(code(answer), Code::InvalidArgument, "{request:?}");
    };
    invalid(volume_request("", MIB));
    invalid(volume_request("a\nb", MIB));
    invalid(volume_request(&"x".repeat(129), MIB));
    let used = |capabilities: Vec<VolumeCapability>| CreateVolumeRequest {
        volume_capabilities: capabilities,
        ..volume_request("odd", MIB)
    };
    invalid(used(Vec::new()));
    invalid(used(vec![mount("ext3")]));
    invalid(used(vec![mount(""), VolumeCapability::default()]));
    invalid(with(&[("kataContainers", "true")], used(vec![block()])));
    invalid(with(
        &[("persistencyModel", "ephemeral")],
        volume_request("odd", MIB),
    ));
    invalid(with(&[("size", "1Gi")], volume_request("odd", MIB)));
    invalid(with(&[("cacheSize", "2")], volume_request("odd", MIB)));
    let mut elsewhere = on("h1", volume_request("odd", MIB));
    let places = elsewhere.accessibility_requirements.as_mut().unwrap();
    places.requisite[0].segments = [("zone".to_owned(), "a".to_owned())].into();
    invalid(elsewhere);
    invalid(volume_request("odd", -1));
    let range = |required_bytes, limit_bytes| CreateVolumeRequest {
        capacity_range: Some(CapacityRange {
            required_bytes,
            limit_bytes,
        }),
        ..volume_request("odd", 0)
    };
    assert_eq!(code(csi.create(&range(8, 7))), Code::OutOfRange);
    assert_eq!(
        code(csi.create(&range(1, MIB))),
        Code::OutOfRange,
        "4 MiB is the least"
    );
    assert_eq!(
        code(csi.create(&on("h9", volume_request("odd", MIB)))),
        Code::ResourceExhausted
    );
    for required in [i64::MAX, 1 << 62] {
        let answer = code(csi.create(&range(required, 0)));
        assert!(
            matches!(answer, Code::ResourceExhausted | Code::OutOfRange),
            "{answer:?}"
        );
    }

    let delete = |id: &str| code(csi.delete(id));
    assert_eq!(delete(""), Code::InvalidArgument);
    assert_eq!(delete("nothing"), Code::Ok);
    assert_eq!(delete("not an id, and längér"), Code::Ok);
    assert_eq!(delete("data-0123456789abcdef0123456789abcdef"), Code::Ok);
    // PMEM-CSI's: it may be on a node, with its contents.
    let of_pmem_csi = format!("pvc-fa-{}", "0123456789abcdef0123456789ab".repeat(2));
    assert_eq!(delete(&of_pmem_csi), Code::FailedPrecondition);
    assert_eq!(code(csi.list(0, "not a token of ours")), Code::Aborted);
    assert_eq!(code(csi.list(-1, "")), Code::InvalidArgument);

    let check = |volume_id: &str, volume_capabilities: Vec<VolumeCapability>| {
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: volume_id.to_owned(),
            volume_capabilities,
            ..Default::default()
        };
        csi.wait(csi.controller().validate_volume_capabilities(request))
    };
    assert_eq!(code(check("", vec![mount("")])), Code::InvalidArgument);
    assert_eq!(code(check("nothing", Vec::new())), Code::InvalidArgument);
    assert_eq!(code(check("nothing", vec![mount("")])), Code::NotFound);
    // The longest name there may be, with letters of every kind.
    let name = format!("{}{}", "ü".repeat(60), "x".repeat(8));
    let volume = csi.create(&volume_request(&name, 0)).unwrap();
    assert_eq!(volume.capacity_bytes, 4 * MIB, "the smallest that there is");
    let confirmed = check(&volume.volume_id, vec![mount("xfs"), block()]).unwrap();
    assert!(confirmed.confirmed.is_some());
    let refused = check(&volume.volume_id, vec![mount("ext3")]).unwrap();
    assert!(refused.confirmed.is_none() && refused.message.contains("ext4 or xfs"));
    let smaller = CreateVolumeRequest {
        capacity_range: Some(CapacityRange {
            required_bytes: 8 * MIB,
            limit_bytes: 8 * MIB,
        }),
        ..volume_request(&name, 0)
    };
    assert_eq!(code(csi.create(&smaller)), Code::AlreadyExists);
    csi.delete(&volume.volume_id).unwrap();
    let request = ControllerPublishVolumeRequest::default();
    let published = csi.wait(csi.controller().controller_publish_volume(request));
    assert_eq!(code(published), Code::Unimplemented);
}

/// Goal: row C6, volumes of pods and on several hosts.
#[test]
fn volumes_of_pods_and_on_several_hosts() {
    let host = |name| {
        Host::new(name).with_volumes("sim-direct", &["region0:1024"], "direct_align_mib = 16")
    };
    let mut cluster = start([host("h1"), host("h2"), host("h3")]);
    let csi = cluster.add_csi_controller();
    let cache = with(
        &[("persistencyModel", "cache"), ("cacheSize", "2")],
        volume_request("cache", 32 * MIB),
    );
    let volume = csi.create(&cache).unwrap();
    let on = hosts(&volume);
    assert_eq!(on.len(), 2);
    assert_eq!(csi.create(&cache).unwrap(), volume);
    // Contents of its own on each host.
    for name in &on {
        let node = cluster.csi_node(name);
        let (staging, target) = paths(&cluster, &format!("cache-{name}"));
        node.stage(&volume.volume_id, &staging).unwrap();
        node.publish(&volume.volume_id, &staging, &target).unwrap();
        assert!(!exists(&target.join("who")));
        std::fs::write(target.join("who"), name).unwrap();
    }
    assert_eq!(
        code(csi.delete(&volume.volume_id)),
        Code::FailedPrecondition
    );
    for name in &on {
        let node = cluster.csi_node(name);
        let (staging, target) = paths(&cluster, &format!("cache-{name}"));
        assert_eq!(&std::fs::read_to_string(target.join("who")).unwrap(), name);
        node.unpublish(&volume.volume_id, &target).unwrap();
        node.unstage(&volume.volume_id, &staging).unwrap();
    }
    csi.delete(&volume.volume_id).unwrap();

    // Ten pods one after the other; the agent is killed while the last one runs.
    let (_, target) = paths(&cluster, "pod");
    let node = cluster.csi_node("h3");
    for number in 0..10 {
        let name = format!("csi-{number:064x}");
        for _ in 0..2 {
            node.publish_for_pod(&name, &target, "20Mi").unwrap();
        }
        assert!(!exists(&target.join("file")), "it begins empty");
        std::fs::write(target.join("file"), &name).unwrap();
        let there = devices(&cluster, "h3");
        assert!(!there.is_empty());
        if number == 9 {
            let programs = cluster.programs.clone();
            let agent = cluster.agent("h3");
            agent.kill();
            agent.start(&programs);
            let _ = cluster.csi_node("h3");
        }
        let node = cluster.csi_node("h3");
        for _ in 0..2 {
            node.unpublish(&name, &target).unwrap();
        }
        assert!(!exists(&target));
    }
    let full = node.publish_for_pod("csi-large", &target, "2Gi");
    assert_eq!(code(full), Code::ResourceExhausted);
    node.unpublish("csi-large", &target).unwrap();
    all_gone(&cluster, &["h1", "h2", "h3"]);
}
