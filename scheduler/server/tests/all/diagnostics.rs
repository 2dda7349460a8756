//! What a member states of itself for support.
//!
//! Goal: its configuration is that in force and names files of secrets without their content; it answers
//! without a leader. Method: a member in this process, whose tokens are in a file.

use berth_proto::cluster::v1::GetDiagnosticsRequest;
use berth_proto::status::from_status;
use berth_scheduler::{Config, Start};
use prost_types::Timestamp;

use crate::common::{Cluster, Member, clusters, config};

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_in_force_is_stated_without_secrets() {
    let directory = tempfile::tempdir().expect("a directory");
    let tokens = directory.path().join("tokens");
    let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let content = format!(
        "[[token]]\nsha256 = \"{hash}\"\nuser = \"nova\"\nproject = \"service\"\nroles = [\"service\"]"
    );
    std::fs::write(&tokens, content).expect("a file");
    let config = Config {
        placement_listen: Some("127.0.0.1:0".to_owned()),
        placement_tokens: Some(tokens.clone()),
        request_timeout_ms: 4_321,
        ..config(&directory.path().join("0"), Start::Bootstrap)
    };
    let cluster = Cluster {
        members: vec![Member::start(config).await],
        directory,
    };
    let channel = cluster.members[0].channel().await;
    let mut client = clusters(&channel);
    let answered = client
        .get_diagnostics(GetDiagnosticsRequest::default())
        .await;
    let stated = answered.expect("diagnostics").into_inner();
    let value = |key: &str| {
        let setting = stated.settings.iter().find(|setting| setting.key == key);
        setting.map(|setting| setting.value.clone())
    };
    assert_eq!(stated.member_id, 1);
    assert_eq!(value("request_timeout_ms").as_deref(), Some("4321"));
    assert_eq!(
        value("placement_tokens"),
        Some(tokens.display().to_string())
    );
    assert!(!format!("{stated:?}").contains(hash));

    let before_1970 = GetDiagnosticsRequest {
        log_since: Some(Timestamp {
            seconds: -1,
            nanos: 0,
        }),
    };
    let refused = client
        .get_diagnostics(before_1970)
        .await
        .expect_err("a time");
    assert_eq!(from_status(&refused).reason, "INVALID_FIELD");
}
