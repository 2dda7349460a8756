//! Volumes of persistent memory through gRPC: many creators at once, and what nobody should ask for.

use std::collections::BTreeSet;

use berth_domain::refusal::Refusal;
use berth_proto::host::v1::{RegisterHostRequest, RemoveHostRequest};
use berth_proto::status::from_status;
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{self, DeviceMode, Region, ReplicaPhase, VolumeKind};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::common::world::register_request;
use crate::common::{Cluster, connect, hosts};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn client(channel: &Channel) -> VolumeServiceClient<Channel> {
    VolumeServiceClient::new(channel.clone())
}

fn region(name: &str, mode: DeviceMode, capacity_bytes: u64) -> Region {
    Region {
        name: name.to_owned(),
        cell: Some(0),
        mode: mode.into(),
        capacity_bytes,
        align_bytes: match mode {
            DeviceMode::Direct => GIB,
            DeviceMode::Lvm | DeviceMode::Unspecified => 4 * MIB,
        },
        ..Region::default()
    }
}

/// Registers a host and returns the run of its agent.
async fn register(channel: &Channel, name: &str, regions: Vec<Region>) -> String {
    let mut request: RegisterHostRequest = register_request(name, 1, 2);
    let report = request.report.as_mut().expect("a report");
    report.regions = regions;
    let incarnation = report.incarnation.clone();
    let answer = hosts(channel).register_host(request).await;
    answer.expect("it registers");
    incarnation
}

fn wanted(name: &str, required_bytes: u64) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        display_name: name.to_owned(),
        required_bytes,
        ..v1::CreateVolumeRequest::default()
    }
}

fn answered<T>(answer: Result<Response<T>, Status>) -> Result<T, Refusal> {
    answer
        .map(Response::into_inner)
        .map_err(|s| from_status(&s))
}

async fn create(
    channel: &Channel,
    request: v1::CreateVolumeRequest,
) -> Result<v1::Volume, Refusal> {
    let answer = answered(client(channel).create_volume(request).await)?;
    Ok(answer.volume.expect("the volume"))
}

async fn delete(channel: &Channel, volume: &v1::Volume) {
    let request = v1::DeleteVolumeRequest {
        name: volume.name.clone(),
        ..v1::DeleteVolumeRequest::default()
    };
    let answer = client(channel).delete_volume(request).await;
    answer.expect("it is deleted");
}

async fn tell(
    channel: &Channel,
    host: &str,
    incarnation: &str,
    volume: &str,
    outcome: v1::volume_report::Outcome,
) -> Result<(), Refusal> {
    let request = v1::ReportVolumesRequest {
        host: format!("hosts/{host}"),
        incarnation: incarnation.to_owned(),
        reports: vec![v1::VolumeReport {
            volume: volume.to_owned(),
            outcome: Some(outcome),
        }],
    };
    answered(client(channel).report_volumes(request).await).map(drop)
}

async fn capacity(channel: &Channel) -> v1::GetVolumeCapacityResponse {
    let request = v1::GetVolumeCapacityRequest::default();
    let answer = client(channel).get_volume_capacity(request).await;
    answer.expect("the capacity").into_inner()
}

async fn all(channel: &Channel, page_size: i32) -> Vec<v1::Volume> {
    let mut request = v1::ListVolumesRequest {
        page_size,
        ..v1::ListVolumesRequest::default()
    };
    let mut volumes = Vec::new();
    loop {
        let page = client(channel).list_volumes(request.clone()).await;
        let page = page.expect("a page").into_inner();
        volumes.extend(page.volumes);
        if page.next_page_token.is_empty() {
            return volumes;
        }
        request.page_token = page.next_page_token;
    }
}

async fn sound(cluster: &Cluster) {
    for member in &cluster.members {
        let state = member.handle.read_stale(|machine| machine.state().clone());
        state.await.expect("a state").check().expect("it is sound");
    }
}

/// Goal: two controllers never give one place twice, and nothing leaks. Method: 200 calls at once, half
/// through each of two connections, for space for 100; then everything goes, and all of it fits again.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_creators_for_space_for_a_hundred() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let mut runs = Vec::new();
    for host in ["h1", "h2"] {
        let regions = vec![
            region("region0", DeviceMode::Lvm, 25 * GIB),
            region("region1", DeviceMode::Direct, 25 * GIB),
        ];
        runs.push(register(&channel, host, regions).await);
    }
    let whole = capacity(&channel).await;
    let connections = [channel.clone(), connect(&cluster.members[0].url()).await];
    let calls = (0..200_usize).map(|number| {
        let channel = connections[number % 2].clone();
        let request = wanted(&format!("pvc-{number}"), 1000 * MIB);
        tokio::spawn(async move { create(&channel, request).await })
    });
    let calls: Vec<_> = calls.collect();
    let mut made = Vec::new();
    for call in calls {
        match call.await.expect("no panic") {
            Ok(volume) => made.push(volume),
            Err(refused) => assert_eq!(refused.reason, "NO_SPACE", "{refused:?}"),
        }
    }
    assert_eq!(made.len(), 100);
    assert_eq!(capacity(&channel).await.maximum_volume_bytes, 600 * MIB);
    sound(&cluster).await;
    let extents: BTreeSet<_> = made
        .iter()
        .flat_map(|volume| &volume.replicas)
        .filter_map(|replica| Some((&replica.host, replica.extent.as_ref()?.offset_bytes)))
        .collect();
    assert_eq!(extents.len(), 50, "each has its own piece");
    // In order of their ids, whatever the size of the pages: none twice, none left out.
    let listed = all(&channel, 7).await;
    assert!(listed.windows(2).all(|w| w[0].name < w[1].name));
    assert_eq!(listed.len(), 100);
    for volume in &listed {
        delete(&channel, volume).await;
        let host = volume.replicas[0].host.trim_start_matches("hosts/");
        let run = &runs[usize::from(host == "h2")];
        let outcome = v1::volume_report::Outcome::Deleted(v1::VolumeDeleted {});
        tell(&channel, host, run, &volume.name, outcome)
            .await
            .expect("it is told");
    }
    assert_eq!(capacity(&channel).await, whole);
    assert_eq!(all(&channel, 0).await, []);
    sound(&cluster).await;
}

/// Goal: what is said to be there can be made, to the last byte. The second and the fifth defect of
/// PMEM-CSI: the capacity that it told could not be created, and the size that it told was not real.
#[tokio::test(flavor = "multi_thread")]
async fn capacity_is_told_as_it_is() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let run = register(
        &channel,
        "h1",
        vec![region("r0", DeviceMode::Direct, 8 * GIB)],
    )
    .await;
    let largest = capacity(&channel).await.maximum_volume_bytes;
    assert!(largest < 8 * GIB && largest > 7 * GIB);
    let refused = create(&channel, wanted("a", largest + 1))
        .await
        .unwrap_err();
    assert_eq!(refused.reason, "NO_SPACE");
    assert_eq!(refused.metadata["largest_bytes"], largest.to_string());
    let made = create(&channel, wanted("a", largest)).await.unwrap();
    assert_eq!(made.size_bytes, largest);
    assert_eq!(capacity(&channel).await.maximum_volume_bytes, 0);
    let outcome = v1::volume_report::Outcome::Created(v1::VolumeCreated {
        size_bytes: largest - MIB,
        extent: made.replicas[0].extent,
    });
    let stale = "01234567-89ab-cdef-0123-456789abcdef";
    let refused = tell(&channel, "h1", stale, &made.name, outcome.clone()).await;
    assert_eq!(refused.unwrap_err().reason, "STALE_INCARNATION");
    tell(&channel, "h1", &run, &made.name, outcome)
        .await
        .unwrap();
    let get = v1::GetVolumeRequest {
        display_name: "a".to_owned(),
        ..v1::GetVolumeRequest::default()
    };
    let told = answered(client(&channel).get_volume(get).await).unwrap();
    let told = told.volume.expect("the volume");
    assert_eq!(told.size_bytes, largest - MIB, "the true size counts");
    assert_eq!(told.replicas[0].phase(), ReplicaPhase::Ready);
    // The same again is answered, what asks for more is not.
    assert_eq!(create(&channel, wanted("a", GIB)).await.unwrap(), told);
    let refused = create(&channel, wanted("a", largest)).await.unwrap_err();
    assert_eq!(refused.reason, "VOLUME_DIFFERS");
}

/// Goal: whatever is asked for, the answer is a clear one.
#[tokio::test(flavor = "multi_thread")]
async fn odd_requests_are_answered_clearly() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let refused = create(&channel, wanted("a", 1)).await.unwrap_err();
    assert!(refused.message.contains("no host has regions"), "{refused}");
    let regions = vec![
        region("region0", DeviceMode::Lvm, 64 * GIB),
        region("region1", DeviceMode::Lvm, 64 * GIB),
    ];
    register(&channel, "h1", regions).await;
    register(
        &channel,
        "h2",
        vec![region("region0", DeviceMode::Lvm, 64 * GIB)],
    )
    .await;
    let smallest = create(&channel, wanted("zero", 0)).await.unwrap();
    assert_eq!(smallest.size_bytes, 4 * MIB);
    delete(&channel, &smallest).await;
    let reason = |answer: Result<v1::Volume, Refusal>| answer.unwrap_err().reason;
    for huge in [1 << 63, u64::MAX, 65 * GIB] {
        assert_eq!(
            reason(create(&channel, wanted("a", huge)).await),
            "NO_SPACE"
        );
    }
    let mut narrow = wanted("a", MIB);
    narrow.limit_bytes = 2 * MIB;
    assert_eq!(
        reason(create(&channel, narrow.clone()).await),
        "SIZE_OUT_OF_RANGE"
    );
    narrow.limit_bytes = MIB - 1;
    assert_eq!(reason(create(&channel, narrow).await), "SIZE_OUT_OF_RANGE");
    for name in ["", "a\nb", "\u{7f}", &"x".repeat(129)] {
        assert_eq!(
            reason(create(&channel, wanted(name, 1)).await),
            "INVALID_FIELD"
        );
    }
    for name in ["ü/..\\'\"; drop", "volumes/a", &"ä".repeat(64)] {
        let made = create(&channel, wanted(name, 1)).await.unwrap();
        assert_eq!(made.display_name, name);
        delete(&channel, &made).await;
    }
    let mut elsewhere = wanted("a", 1);
    elsewhere.requisite_hosts = vec!["hosts/h9".to_owned()];
    assert_eq!(
        reason(create(&channel, elsewhere.clone()).await),
        "HOST_NOT_FOUND"
    );
    elsewhere.requisite_hosts.push("hosts/h2".to_owned());
    let made = create(&channel, elsewhere.clone()).await.unwrap();
    assert_eq!(made.replicas[0].host, "hosts/h2");
    elsewhere.requisite_hosts = vec!["hosts/h1".to_owned()];
    assert_eq!(reason(create(&channel, elsewhere).await), "VOLUME_DIFFERS");
    let mut several = wanted("b", 1);
    several.replicas = 2;
    assert_eq!(
        reason(create(&channel, several.clone()).await),
        "INVALID_FIELD"
    );
    several.kind = VolumeKind::Cache.into();
    assert_eq!(
        create(&channel, several.clone())
            .await
            .unwrap()
            .replicas
            .len(),
        2
    );
    several.display_name = "c".to_owned();
    several.replicas = 3;
    assert_eq!(reason(create(&channel, several.clone()).await), "NO_SPACE");
    several.replicas = u32::MAX;
    assert_eq!(reason(create(&channel, several).await), "INVALID_FIELD");
    let remove = RemoveHostRequest {
        name: "hosts/h2".to_owned(),
        ..RemoveHostRequest::default()
    };
    let refused = answered(hosts(&channel).remove_host(remove).await).unwrap_err();
    assert_eq!(refused.reason, "HOST_IN_USE");
    sound(&cluster).await;
}

/// Goal: what fits together is said of each host, in the order that was asked; and what would have to
/// go. The third defect of PMEM-CSI: 2 x 40 GiB were refused on 2 x 64 GiB.
#[tokio::test(flavor = "multi_thread")]
async fn several_are_fitted_and_room_is_planned() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let both = ["region0", "region1"].map(|name| region(name, DeviceMode::Lvm, 64 * GIB));
    register(&channel, "h1", both.to_vec()).await;
    register(
        &channel,
        "h2",
        vec![region("region0", DeviceMode::Lvm, 64 * GIB)],
    )
    .await;
    register(&channel, "h3", Vec::new()).await;
    let fit = |required_bytes: Vec<u64>, hosts: &[&str]| {
        let request = v1::FitVolumesRequest {
            hosts: hosts.iter().map(|host| format!("hosts/{host}")).collect(),
            required_bytes,
            consistency: 0,
        };
        let mut client = client(&channel);
        async move {
            let answer = answered(client.fit_volumes(request).await)?.hosts;
            let words = answer
                .into_iter()
                .map(|one| (one.host, one.fits, one.reason));
            Ok::<_, Refusal>(words.collect::<Vec<_>>())
        }
    };
    let named = ["h2", "h9", "h1", "h3"];
    let told = fit(vec![40 * GIB; 2], &named).await.unwrap();
    let fits: Vec<bool> = told.iter().map(|one| one.1).collect();
    assert_eq!(fits, [false, false, true, false], "{told:?}");
    assert!(told[0].2.contains("need 80GiB"), "{told:?}");
    assert!(told[1].2.contains("no host of Berth"), "{told:?}");
    assert!(told[3].2.contains("no region"), "{told:?}");
    assert_eq!(fit(vec![GIB], &[]).await.unwrap().len(), 2);
    assert_eq!(
        fit(vec![0; 65], &[]).await.unwrap_err().reason,
        "INVALID_FIELD"
    );

    for number in 0..4 {
        let mut request = wanted(&format!("v{number}"), 16 * GIB);
        request.requisite_hosts = vec!["hosts/h2".to_owned()];
        create(&channel, request).await.unwrap();
    }
    let plan = |required_bytes| {
        let request = v1::PlanVolumeRoomRequest {
            host: "hosts/h2".to_owned(),
            region: String::new(),
            required_bytes,
        };
        let mut client = client(&channel);
        async move { answered(client.plan_volume_room(request).await) }
    };
    let planned = plan(20 * GIB).await.unwrap();
    let moves: Vec<_> = planned.moves.iter().map(|m| &*m.to_host).collect();
    assert_eq!(moves, ["hosts/h1", "hosts/h1"]);
    assert_eq!(
        plan(65 * GIB).await.unwrap_err().reason,
        "NO_ROOM_CAN_BE_MADE"
    );
}
