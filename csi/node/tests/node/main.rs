//! The Node service as the kubelet and the public conformance suite call it.
//!
//! Goal: each call has the right effect once, the right answer however often it is repeated, and the
//! right code where it cannot be carried out. Method: the service over a host in memory, of which it
//! is told what failed, and which says what is mounted where.

mod fake;

use std::sync::Arc;

use berth_csi::NodeApi;
use berth_domain::name::HostName;
use berth_proto::csi::v1::node_server::Node as _;
use berth_proto::csi::v1::volume_capability::access_mode::Mode;
use berth_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use berth_proto::csi::v1::*;
use tonic::{Code, Request};

use fake::Fake;

const VOLUME: &str = "data-0123456789abcdef0123456789abcdef";
const KATA: &str = "kata-0123456789abcdef0123456789abcdef";
const STAGING: &str = "/staging";
const TARGET: &str = "/pods/1";

fn api(host: &Arc<Fake>) -> NodeApi {
    let name = HostName::new("h1").unwrap();
    NodeApi::new(host.clone(), name, "pmem-csi.intel.com")
}

fn new() -> (Arc<Fake>, NodeApi) {
    let host = Arc::new(Fake::with(&[(VOLUME, false), (KATA, true)]));
    let api = api(&host);
    (host, api)
}

fn capability(mode: Mode, access_type: AccessType) -> Option<VolumeCapability> {
    Some(VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(access_type),
    })
}

fn mount(fs_type: &str) -> Option<VolumeCapability> {
    capability(Mode::SingleNodeWriter, of_type(fs_type))
}

fn of_type(fs_type: &str) -> AccessType {
    AccessType::Mount(MountVolume {
        fs_type: fs_type.to_owned(),
        ..MountVolume::default()
    })
}

fn block() -> Option<VolumeCapability> {
    capability(Mode::SingleNodeWriter, AccessType::Block(BlockVolume {}))
}

fn stage_request() -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
        volume_capability: mount(""),
        ..Default::default()
    }
}

fn publish_request() -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
        target_path: TARGET.to_owned(),
        volume_capability: mount(""),
        ..Default::default()
    }
}

fn pod_request(context: &[(&str, &str)]) -> NodePublishVolumeRequest {
    let context = context
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    NodePublishVolumeRequest {
        volume_id: "csi-pod".to_owned(),
        staging_target_path: String::new(),
        volume_context: context.collect(),
        ..publish_request()
    }
}

async fn stage(api: &NodeApi, request: NodeStageVolumeRequest) -> Result<(), Code> {
    let done = api.node_stage_volume(Request::new(request)).await;
    done.map(drop).map_err(|status| status.code())
}

async fn publish(api: &NodeApi, request: NodePublishVolumeRequest) -> Result<(), Code> {
    let done = api.node_publish_volume(Request::new(request)).await;
    done.map(drop).map_err(|status| status.code())
}

async fn unstage(api: &NodeApi, volume_id: &str, path: &str) -> Result<(), Code> {
    let request = NodeUnstageVolumeRequest {
        volume_id: volume_id.to_owned(),
        staging_target_path: path.to_owned(),
    };
    let done = api.node_unstage_volume(Request::new(request)).await;
    done.map(drop).map_err(|status| status.code())
}

async fn unpublish(api: &NodeApi, volume_id: &str, path: &str) -> Result<(), Code> {
    let request = NodeUnpublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        target_path: path.to_owned(),
    };
    let done = api.node_unpublish_volume(Request::new(request)).await;
    done.map(drop).map_err(|status| status.code())
}

#[tokio::test]
async fn what_is_missing_or_odd_is_an_invalid_argument() {
    let (host, api) = new();
    let check = async |request| {
        assert_eq!(stage(&api, request).await, Err(Code::InvalidArgument));
    };
    let good = stage_request;
    check(NodeStageVolumeRequest {
        volume_id: String::new(),
        ..good()
    })
    .await;
    check(NodeStageVolumeRequest {
        staging_target_path: String::new(),
        ..good()
    })
    .await;
    check(NodeStageVolumeRequest {
        staging_target_path: "relative".to_owned(),
        ..good()
    })
    .await;
    check(NodeStageVolumeRequest {
        volume_capability: None,
        ..good()
    })
    .await;
    check(NodeStageVolumeRequest {
        volume_capability: mount("ext3"),
        ..good()
    })
    .await;
    let several = capability(Mode::MultiNodeMultiWriter, of_type(""));
    check(NodeStageVolumeRequest {
        volume_capability: several.clone(),
        ..good()
    })
    .await;
    let kata = NodeStageVolumeRequest {
        volume_id: KATA.to_owned(),
        volume_capability: block(),
        ..good()
    };
    check(kata).await;
    let context = [("size".to_owned(), "1".to_owned())].into();
    check(NodeStageVolumeRequest {
        volume_context: context,
        ..good()
    })
    .await;

    let check = async |request| {
        assert_eq!(publish(&api, request).await, Err(Code::InvalidArgument));
    };
    let good = publish_request;
    check(NodePublishVolumeRequest {
        volume_id: String::new(),
        ..good()
    })
    .await;
    check(NodePublishVolumeRequest {
        volume_id: "\n".to_owned(),
        ..good()
    })
    .await;
    check(NodePublishVolumeRequest {
        target_path: String::new(),
        ..good()
    })
    .await;
    check(NodePublishVolumeRequest {
        volume_capability: None,
        ..good()
    })
    .await;
    let unknown = NodePublishVolumeRequest {
        volume_id: "nothing".to_owned(),
        volume_capability: None,
        ..good()
    };
    check(unknown).await;
    assert_eq!(unstage(&api, "", STAGING).await, Err(Code::InvalidArgument));
    assert_eq!(unstage(&api, VOLUME, "").await, Err(Code::InvalidArgument));
    assert_eq!(
        unpublish(&api, "", TARGET).await,
        Err(Code::InvalidArgument)
    );
    assert_eq!(
        unpublish(&api, VOLUME, "").await,
        Err(Code::InvalidArgument)
    );
    // A cache volume has contents of its own on each host.
    let cache = [("persistencyModel".to_owned(), "cache".to_owned())].into();
    let request = NodeStageVolumeRequest {
        volume_capability: several,
        volume_context: cache,
        ..stage_request()
    };
    assert_eq!(stage(&api, request).await, Ok(()));
    assert_eq!(host.mounted(), [STAGING]);
}

#[tokio::test]
async fn the_whole_way_there_and_back_each_call_twice() {
    let (host, api) = new();
    for _ in 0..2 {
        assert_eq!(stage(&api, stage_request()).await, Ok(()));
        assert_eq!(host.mounted(), [STAGING]);
    }
    for _ in 0..2 {
        assert_eq!(publish(&api, publish_request()).await, Ok(()));
        assert_eq!(host.mounted(), [TARGET, STAGING]);
    }
    let second = NodePublishVolumeRequest {
        target_path: "/pods/2".to_owned(),
        readonly: true,
        ..publish_request()
    };
    assert_eq!(publish(&api, second).await, Ok(()));
    assert_eq!(host.targets(VOLUME).len(), 3);
    for path in [TARGET, TARGET, "/pods/2"] {
        assert_eq!(unpublish(&api, VOLUME, path).await, Ok(()));
        assert!(!host.exists(path));
    }
    for _ in 0..2 {
        assert_eq!(unstage(&api, VOLUME, STAGING).await, Ok(()));
        assert!(host.mounted().is_empty());
    }
    assert!(host.targets(VOLUME).is_empty());
    assert_eq!(host.formats(VOLUME), ["ext4"]);
}

#[tokio::test]
async fn a_device_is_shown_as_a_file() {
    let (host, api) = new();
    let staged = NodeStageVolumeRequest {
        volume_capability: block(),
        ..stage_request()
    };
    assert_eq!(stage(&api, staged).await, Ok(()));
    assert!(host.mounted().is_empty());
    let request = NodePublishVolumeRequest {
        volume_capability: block(),
        ..publish_request()
    };
    for _ in 0..2 {
        assert_eq!(publish(&api, request.clone()).await, Ok(()));
        assert_eq!(host.mounted(), [TARGET]);
    }
    assert!(host.formats(VOLUME).is_empty());
    let stats = NodeGetVolumeStatsRequest {
        volume_id: VOLUME.to_owned(),
        volume_path: TARGET.to_owned(),
        ..Default::default()
    };
    let stats = api
        .node_get_volume_stats(Request::new(stats))
        .await
        .unwrap();
    let usage = stats.into_inner().usage;
    assert_eq!((usage.len(), usage[0].total), (1, 64 << 20));
    assert_eq!(unpublish(&api, VOLUME, TARGET).await, Ok(()));
    assert!(!host.exists(TARGET));
}

#[tokio::test]
async fn volumes_that_are_not_there() {
    let (host, api) = new();
    let unknown = "none-0123456789abcdef0123456789abcdef";
    let staged = NodeStageVolumeRequest {
        volume_id: unknown.to_owned(),
        ..stage_request()
    };
    assert_eq!(stage(&api, staged).await, Err(Code::NotFound));
    let published = NodePublishVolumeRequest {
        volume_id: unknown.to_owned(),
        ..publish_request()
    };
    assert_eq!(publish(&api, published).await, Err(Code::NotFound));
    assert_eq!(unstage(&api, unknown, STAGING).await, Err(Code::NotFound));
    assert_eq!(unpublish(&api, unknown, TARGET).await, Ok(()));
    host.mount_foreign(TARGET);
    assert_eq!(unpublish(&api, unknown, TARGET).await, Err(Code::NotFound));
    assert_eq!(host.mounted(), [TARGET]);
}

#[tokio::test]
async fn what_is_used_otherwise_is_told() {
    let (host, api) = new();
    assert_eq!(
        publish(&api, publish_request()).await,
        Err(Code::FailedPrecondition)
    );
    assert_eq!(stage(&api, stage_request()).await, Ok(()));
    let xfs = NodeStageVolumeRequest {
        volume_capability: mount("xfs"),
        ..stage_request()
    };
    assert_eq!(stage(&api, xfs).await, Err(Code::AlreadyExists));
    let without = NodePublishVolumeRequest {
        staging_target_path: String::new(),
        ..publish_request()
    };
    assert_eq!(publish(&api, without).await, Err(Code::FailedPrecondition));
    assert_eq!(publish(&api, publish_request()).await, Ok(()));
    let readonly = NodePublishVolumeRequest {
        readonly: true,
        ..publish_request()
    };
    assert_eq!(publish(&api, readonly).await, Err(Code::AlreadyExists));
    assert_eq!(host.mounted(), [TARGET, STAGING]);
    // One path alone.
    let single = |path: &str| NodePublishVolumeRequest {
        target_path: path.to_owned(),
        volume_capability: capability(Mode::SingleNodeSingleWriter, of_type("")),
        ..publish_request()
    };
    assert_eq!(publish(&api, single(TARGET)).await, Ok(()));
    assert_eq!(
        publish(&api, single("/pods/2")).await,
        Err(Code::FailedPrecondition)
    );
    assert_eq!(host.mounted(), [TARGET, STAGING]);
}

/// Goal: after a crash of the machine what was mounted is mounted again, as it is asked for then.
#[tokio::test]
async fn what_a_crash_took_is_made_again() {
    let (host, api) = new();
    assert_eq!(stage(&api, stage_request()).await, Ok(()));
    assert_eq!(publish(&api, publish_request()).await, Ok(()));
    host.crash();
    assert!(host.mounted().is_empty());
    assert_eq!(publish(&api, publish_request()).await, Ok(()));
    assert_eq!(host.mounted(), [TARGET, STAGING]);
    host.crash();
    let readonly = NodePublishVolumeRequest {
        readonly: true,
        ..publish_request()
    };
    assert_eq!(
        publish(&api, readonly).await,
        Ok(()),
        "nothing of the first is left"
    );
    host.crash();
    assert_eq!(unpublish(&api, VOLUME, TARGET).await, Ok(()));
    assert_eq!(unstage(&api, VOLUME, STAGING).await, Ok(()));
    assert!(host.targets(VOLUME).is_empty());
}

/// Goal: what was not done is not written down; what is not undone is.
#[tokio::test]
async fn failures_leave_the_truth_behind() {
    let (host, api) = new();
    host.fail_next("mount");
    assert_eq!(stage(&api, stage_request()).await, Err(Code::Internal));
    assert!(host.targets(VOLUME).is_empty());
    assert_eq!(stage(&api, stage_request()).await, Ok(()));
    host.fail_next("bind");
    assert_eq!(publish(&api, publish_request()).await, Err(Code::Internal));
    assert_eq!(host.targets(VOLUME).len(), 1);
    host.fail_next("unmount");
    assert_eq!(unstage(&api, VOLUME, STAGING).await, Err(Code::Internal));
    assert_eq!(host.targets(VOLUME).len(), 1);
    assert_eq!(unstage(&api, VOLUME, STAGING).await, Ok(()));
    assert!(host.targets(VOLUME).is_empty());
}

/// Goal: what is another's, or nobody's, is not taken away, nor taken for one's own.
#[tokio::test]
async fn what_another_has_is_left_alone() {
    let (host, api) = new();
    assert_eq!(stage(&api, stage_request()).await, Ok(()));
    assert_eq!(publish(&api, publish_request()).await, Ok(()));
    let refused = Err(Code::FailedPrecondition);
    assert_eq!(unpublish(&api, KATA, TARGET).await, refused);
    assert_eq!(unstage(&api, KATA, STAGING).await, refused);
    let other = NodeStageVolumeRequest {
        volume_id: KATA.to_owned(),
        ..stage_request()
    };
    assert_eq!(stage(&api, other).await, refused);
    assert_eq!(host.mounted(), [TARGET, STAGING]);
    host.mount_foreign("/foreign");
    assert_eq!(unpublish(&api, VOLUME, "/foreign").await, refused);
    assert_eq!(unstage(&api, VOLUME, "/foreign").await, refused);
    assert_eq!(host.mounted(), ["/foreign", TARGET, STAGING]);
    // Its own goes also when that is not written down.
    host.mount_unwritten(VOLUME, "/lost");
    assert_eq!(unpublish(&api, VOLUME, "/lost").await, Ok(()));
    assert_eq!(unpublish(&api, VOLUME, "/nothing").await, Ok(()));
    assert_eq!(host.mounted(), ["/foreign", TARGET, STAGING]);
}

/// Goal: what is mounted can be taken back when the device cannot be looked at.
#[tokio::test]
async fn taking_back_needs_no_look_at_the_device() {
    let (host, api) = new();
    assert_eq!(stage(&api, stage_request()).await, Ok(()));
    assert_eq!(publish(&api, publish_request()).await, Ok(()));
    host.fail_next("find");
    assert_eq!(unpublish(&api, VOLUME, TARGET).await, Ok(()));
    assert_eq!(unstage(&api, VOLUME, STAGING).await, Ok(()));
    assert!(host.mounted().is_empty());
    assert!(host.targets(VOLUME).is_empty());
}

const EPHEMERAL: (&str, &str) = ("csi.storage.k8s.io/ephemeral", "true");

#[tokio::test]
async fn a_volume_for_a_pod_comes_and_goes_with_it() {
    let (host, api) = new();
    let provisioned = ("storage.kubernetes.io/csiProvisionerIdentity", "x");
    for (context, expected) in [
        (&[("size", "64Mi"), EPHEMERAL][..], Ok(())),
        (&[("size", "64Mi")], Ok(())),
        (&[EPHEMERAL], Err(Code::InvalidArgument)),
        (&[("size", "x"), EPHEMERAL], Err(Code::InvalidArgument)),
        (
            &[("size", "1"), ("cacheSize", "1"), EPHEMERAL],
            Err(Code::InvalidArgument),
        ),
        (&[], Err(Code::NotFound)),
        (&[provisioned], Err(Code::NotFound)),
        (&[("size", "64Mi"), provisioned], Err(Code::InvalidArgument)),
    ] {
        for _ in 0..2 {
            let asked = publish(&api, pod_request(context)).await;
            assert_eq!(asked, expected, "{context:?}");
        }
        let there = expected.is_ok();
        assert_eq!(host.claims(), usize::from(there), "{context:?}");
        assert_eq!(host.mounted().len(), usize::from(there));
        for _ in 0..2 {
            assert_eq!(unpublish(&api, "csi-pod", TARGET).await, Ok(()));
            assert_eq!((host.claims(), host.mounted().len()), (0, 0));
        }
    }
}

/// Goal: whatever fails on the way, an unpublish leaves nothing behind.
#[tokio::test]
async fn a_volume_for_a_pod_that_half_came_goes_too() {
    let (host, api) = new();
    let request = || pod_request(&[("size", "64Mi"), EPHEMERAL]);
    host.fail_next("claim");
    assert_eq!(publish(&api, request()).await, Err(Code::ResourceExhausted));
    assert_eq!(unpublish(&api, "csi-pod", TARGET).await, Ok(()));
    host.fail_next("mount");
    assert_eq!(publish(&api, request()).await, Err(Code::Internal));
    assert_eq!(host.claims(), 1);
    host.fail_next("give_back");
    assert_eq!(
        unpublish(&api, "csi-pod", TARGET).await,
        Err(Code::Unavailable)
    );
    assert_eq!(unpublish(&api, "csi-pod", TARGET).await, Ok(()));
    assert_eq!(host.claims(), 0);
    // One that is not for a pod is not taken for one, nor the other way round.
    let other = NodePublishVolumeRequest {
        volume_id: VOLUME.to_owned(),
        ..request()
    };
    assert_eq!(publish(&api, other).await, Err(Code::AlreadyExists));
}

#[tokio::test]
async fn statistics_are_of_what_is_there() {
    let (_, api) = new();
    let ask = async |volume: &str, path: &str| {
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.to_owned(),
            volume_path: path.to_owned(),
            ..Default::default()
        };
        let answer = api.node_get_volume_stats(Request::new(request)).await;
        answer.map(|a| a.into_inner().usage).map_err(|s| s.code())
    };
    assert_eq!(stage(&api, stage_request()).await, Ok(()));
    let usage = ask(VOLUME, STAGING).await.unwrap();
    let units: Vec<i32> = usage.iter().map(|u| u.unit).collect();
    assert_eq!(units, [1, 2]);
    assert_eq!(
        (usage[0].total, usage[0].used, usage[0].available),
        (100, 40, 50)
    );
    assert_eq!(ask("", STAGING).await, Err(Code::InvalidArgument));
    assert_eq!(ask(VOLUME, "").await, Err(Code::InvalidArgument));
    assert_eq!(ask("nothing", STAGING).await, Err(Code::NotFound));
    assert_eq!(ask(VOLUME, "some/path").await, Err(Code::NotFound));
}

#[tokio::test]
async fn two_calls_at_once_for_one_volume() {
    let (host, api) = new();
    let gate = host.hold_mounts();
    let first = tokio::spawn({
        let api = api.clone();
        async move { stage(&api, stage_request()).await }
    });
    host.reached().await;
    assert_eq!(stage(&api, stage_request()).await, Err(Code::Aborted));
    let other = NodeStageVolumeRequest {
        volume_id: KATA.to_owned(),
        staging_target_path: "/elsewhere".to_owned(),
        volume_capability: block(),
        ..stage_request()
    };
    // Another volume is not kept waiting: it is refused for what it is.
    assert_eq!(stage(&api, other).await, Err(Code::InvalidArgument));
    drop(gate);
    assert_eq!(first.await.unwrap(), Ok(()));
    assert_eq!(stage(&api, stage_request()).await, Ok(()));
}

/// Goal: of two volumes that are called for one path at the same moment one is there, and the other one
/// is to be asked for again; then it is refused. Method: both are held where they have seen that the
/// path is nobody's.
#[tokio::test]
async fn two_volumes_at_once_for_one_path() {
    let (host, api) = new();
    let gate = host.hold_mounts();
    let call = |volume: &str, path: &str| {
        let request = NodeStageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: path.to_owned(),
            ..stage_request()
        };
        let api = api.clone();
        tokio::spawn(async move { stage(&api, request).await })
    };
    let first = call(VOLUME, STAGING);
    host.reached().await;
    let mut second = call(KATA, "/staging/");
    let second = tokio::select! {
        refused = &mut second => {
            drop(gate);
            refused
        }
        // It has seen that too.
        () = host.reached() => {
            drop(gate);
            second.await
        }
    };
    assert_eq!(second.unwrap(), Err(Code::Aborted));
    assert_eq!(first.await.unwrap(), Ok(()));
    assert!(host.targets(KATA).is_empty());
    let again = call(KATA, STAGING).await.unwrap();
    assert_eq!(again, Err(Code::FailedPrecondition));
}

#[tokio::test]
async fn the_node_says_what_it_is_and_can() {
    let (_, api) = new();
    let info = api
        .node_get_info(Request::new(NodeGetInfoRequest {}))
        .await
        .unwrap();
    let info = info.into_inner();
    assert_eq!(info.node_id, "h1");
    let segments = info.accessible_topology.unwrap().segments;
    assert_eq!(segments["pmem-csi.intel.com/node"], "h1");
    let asked = Request::new(NodeGetCapabilitiesRequest {});
    let abilities = api.node_get_capabilities(asked).await.unwrap().into_inner();
    assert_eq!(abilities.capabilities.len(), 3);
    let expand = Request::new(NodeExpandVolumeRequest::default());
    let refused = api.node_expand_volume(expand).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}
