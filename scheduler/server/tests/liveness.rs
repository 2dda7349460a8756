//! Hosts that are no longer heard of count as down, and as up again once they are.

mod common;

use std::time::Duration;

use berth_proto::host::v1::{GetHostRequest, ReportHostRequest, host::Liveness};
use berth_scheduler::{Config, Start};
use common::world::{register, register_request};
use common::{Member, eventually, hosts};
use tonic::transport::Channel;

async fn liveness(channel: &Channel, name: &str) -> Liveness {
    let request = GetHostRequest {
        name: format!("hosts/{name}"),
        consistency: 0,
    };
    let answer = hosts(channel).get_host(request).await.expect("the host");
    answer.into_inner().host.expect("the host").liveness()
}

/// Goal: silence is noted, reports too, and a host that reports all the time never goes down.
#[tokio::test(flavor = "multi_thread")]
async fn silence_is_noted_and_reports_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config {
        liveness_limit_ms: 1500,
        ..common::config(&directory.path().join("0"), Start::Bootstrap)
    };
    let member = Member::start(config).await;
    let channel = member.channel().await;
    register(&channel, "silent", 1, 2).await;
    let request = register_request("loud", 1, 2);
    let incarnation = request.report.clone().expect("a report").incarnation;
    let answer = hosts(&channel)
        .register_host(request)
        .await
        .expect("registered");
    let interval = answer.into_inner().report_interval.expect("an interval");
    assert!(interval.seconds == 0 && interval.nanos > 0);

    let report = ReportHostRequest {
        name: "hosts/loud".into(),
        incarnation,
    };
    let reporter = {
        let (channel, report) = (channel.clone(), report.clone());
        tokio::spawn(async move {
            loop {
                let answer = hosts(&channel).report_host(report.clone()).await;
                assert!(answer.expect("an answer").into_inner().known);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    };
    eventually("the silent host going down", || async {
        (liveness(&channel, "silent").await == Liveness::Down).then_some(())
    })
    .await;
    assert_eq!(liveness(&channel, "loud").await, Liveness::Up);
    reporter.abort();
    eventually("the loud host going down", || async {
        (liveness(&channel, "loud").await == Liveness::Down).then_some(())
    })
    .await;
    hosts(&channel)
        .report_host(report)
        .await
        .expect("an answer");
    eventually("the loud host coming back", || async {
        (liveness(&channel, "loud").await == Liveness::Up).then_some(())
    })
    .await;
    member.stop().await.expect("a clean end");
}
