//! With Berth's own scheduler at the other end: its packing, its sentences, its claims.

use berth_proto::for_cluster::MemberChannel;
use berth_proto::volume::v1::CreateVolumeRequest;
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use serde_json::json;

use crate::support::real::RealScheduler;
use crate::support::{GIB, Place, claim, of_claim, pod};

/// Goal: PMEM-CSI's third defect is not here. Two volumes of 40 GiB fit on two regions of 64 GiB,
/// where the sum is more than any free piece; and once others have claimed there, they do not.
#[tokio::test]
async fn volumes_are_packed_and_claims_count() {
    let scheduler = RealScheduler::start().await;
    scheduler.register("two", &[64 * GIB, 64 * GIB]).await;
    scheduler.register("one", &[100 * GIB]).await;
    scheduler.register("small", &[39 * GIB, 64 * GIB]).await;
    let place = Place::start_before_real(scheduler.url())
        .await
        .with_classes();
    place.api.put_claim(&claim("a", Some("late"), "40Gi"));
    place.api.put_claim(&claim("b", Some("late"), "40Gi"));
    let pod = pod(&[of_claim("a"), of_claim("b")]);
    let nodes = ["two", "one", "small", "stranger"];
    let told = place.filter(&pod, &nodes).await;
    assert_eq!(told.nodes, ["two", "one"], "{told:?}");
    assert_eq!(
        (told.failed.len(), told.error.as_str()),
        (2, ""),
        "{told:?}"
    );
    assert!(
        told.failed.iter().all(|(_, why)| !why.is_empty()),
        "{told:?}"
    );

    let args = json!({"Pod": pod, "NodeNames": nodes});
    let scores = place.ask("/prioritize", &args).await.json();
    let score = |at: usize| scores[at]["Score"].as_u64().unwrap();
    assert!((1..=10).contains(&score(1)), "{scores}");
    assert!(
        score(1) > score(0),
        "80 of 100 is tighter than 80 of 128: {scores}"
    );
    assert_eq!((score(2), score(3)), (0, 0), "{scores}");

    // A forecast becomes wrong as soon as somebody claims.
    let request = CreateVolumeRequest {
        display_name: "pvc-of-another".into(),
        required_bytes: 30 * GIB,
        requisite_hosts: vec!["hosts/two".into()],
        ..CreateVolumeRequest::default()
    };
    let create = |channel: MemberChannel| {
        let request = request.clone();
        async move {
            VolumeServiceClient::new(channel)
                .create_volume(request)
                .await
        }
    };
    scheduler.channel.call(create).await.unwrap();
    let told = place.filter(&pod, &nodes).await;
    assert_eq!(told.nodes, ["one"], "{told:?}");
    place.end().await;
    scheduler.end().await;
}
