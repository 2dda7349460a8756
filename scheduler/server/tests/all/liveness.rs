//! Hosts that are no longer heard of count as down, and as up again once they are.

use std::time::Duration;

use berth_proto::host::v1::{
    FenceHostRequest, GetHostRequest, GuestMemory, GuestsMemory, ListMemorySignalsRequest,
    MemorySignals, ReportHostRequest, VerifyFenceRequest, fence::Method, host::Liveness,
};
use berth_proto::status::from_status;
use berth_scheduler::{Config, Start};
use tonic::Status;
use tonic::transport::Channel;

use crate::common::world::{register, register_request};
use crate::common::{self, Member, eventually, hosts};

async fn liveness(channel: &Channel, name: &str) -> Liveness {
    let request = GetHostRequest {
        name: format!("hosts/{name}"),
        consistency: 0,
    };
    let answer = hosts(channel).get_host(request).await.expect("the host");
    answer.into_inner().host.expect("the host").liveness()
}

/// Returns what is known of a host's memory.
async fn signals(channel: &Channel, name: &str) -> Result<Option<MemorySignals>, Status> {
    let request = ListMemorySignalsRequest {
        host: name.into(),
        ..Default::default()
    };
    let answer = hosts(channel).list_memory_signals(request).await?;
    let mut hosts = answer.into_inner().hosts;
    assert_eq!(hosts.len(), 1, "one host is there");
    Ok(hosts.remove(0).signals)
}

/// Returns a report of a host's agent.
fn report(host: &str, incarnation: &str, signals: Option<MemorySignals>) -> ReportHostRequest {
    ReportHostRequest {
        name: format!("hosts/{host}"),
        incarnation: incarnation.to_owned(),
        memory_signals: signals,
    }
}

/// Sends a report, ten times a second.
async fn repeat(channel: Channel, report: ReportHostRequest, times: u32) {
    for _ in 0..times {
        let answer = hosts(&channel).report_host(report.clone()).await;
        assert!(answer.expect("an answer").into_inner().known);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns a new request to record that the fence command succeeded on host h1.
fn fence(incarnation: &str) -> FenceHostRequest {
    FenceHostRequest {
        name: "hosts/h1".into(),
        method: Method::FenceCommand.into(),
        incarnation: incarnation.to_owned(),
        output: "off".into(),
        on_behalf_of: String::new(),
        request_id: uuid::Uuid::now_v7().to_string(),
    }
}

/// Goal: signals are kept with their age, and those that make no sense are passed over while the
/// report counts.
#[tokio::test(flavor = "multi_thread")]
async fn signals_of_a_report_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = common::config(&directory.path().join("0"), Start::Bootstrap);
    let member = Member::start(config).await;
    let channel = member.channel().await;
    let request = register_request("h1", 1, 2);
    let incarnation = request.report.clone().expect("a report").incarnation;
    hosts(&channel)
        .register_host(request)
        .await
        .expect("registered");
    assert_eq!(signals(&channel, "hosts/h1").await.unwrap(), None);
    let seconds = |seconds| prost_types::Duration { seconds, nanos: 0 };
    let guests = GuestsMemory {
        sum: Some(GuestMemory::default()),
        guests: [("vms/web1".to_owned(), GuestMemory::default())].into(),
    };
    let good = MemorySignals {
        age: Some(seconds(100)),
        guests: Some(guests),
        ..MemorySignals::default()
    };
    let bad = MemorySignals {
        age: Some(seconds(-1)),
        ..MemorySignals::default()
    };
    for measured in [good, bad] {
        let report = report("h1", &incarnation, Some(measured));
        let answer = hosts(&channel).report_host(report).await;
        assert!(answer.expect("an answer").into_inner().known);
    }
    let one = signals(&channel, "hosts/h1").await.unwrap();
    let one = one.expect("the good ones");
    assert!(one.age.expect("an age").seconds >= 100);
    assert_eq!(one.guests.expect("guests").guests.len(), 1);
    let all = signals(&channel, "").await.unwrap().expect("the same");
    assert!(all.guests.expect("guests").guests.is_empty());
    let absent = signals(&channel, "hosts/h2").await.unwrap_err();
    assert_eq!(absent.code(), tonic::Code::NotFound);
    let unnamed = signals(&channel, "h1").await.unwrap_err();
    assert_eq!(unnamed.code(), tonic::Code::InvalidArgument);
    member.stop().await.expect("a clean end");
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

    let report = report("loud", &incarnation, None);
    let reporter = tokio::spawn(repeat(channel.clone(), report.clone(), u32::MAX));
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

/// Goal: only a fence that is accepted for the first time makes earlier reports of its host outdated, and
/// the lookup before a fence command says of each request what recording it says.
/// Method: the signals of a report go with it.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_new_fence_makes_reports_outdated() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = common::config(&directory.path().join("0"), Start::Bootstrap);
    let member = Member::start(config).await;
    let channel = member.channel().await;
    register(&channel, "h2", 1, 2).await;
    let request = register_request("h1", 1, 2);
    let incarnation = request.report.clone().expect("a report").incarnation;
    let registered = hosts(&channel).register_host(request).await;
    registered.expect("registered");
    let age = Some(prost_types::Duration::default());
    let signals_of_now = MemorySignals {
        age,
        ..MemorySignals::default()
    };
    let report = report("h1", &incarnation, Some(signals_of_now));
    let fence = fence(&incarnation);
    let of = |change: fn(&mut FenceHostRequest)| {
        let mut changed = fence.clone();
        change(&mut changed);
        changed
    };
    let other_run = of(|f| f.incarnation = uuid::Uuid::new_v4().to_string());
    let other_output = of(|f| f.output = "off again".into());
    let other_host = of(|f| f.name = "hosts/h2".into());
    let table = [
        ("another run", other_run.clone(), "AGENT_RESTARTED"),
        ("new", fence.clone(), ""),
        ("repeated", other_output, "repeated"),
        ("its id for another run", other_run, "REQUEST_ID_REUSED"),
        ("its id for another host", other_host, "REQUEST_ID_REUSED"),
    ];
    for (what, request, outcome) in table {
        let reported = hosts(&channel).report_host(report.clone()).await;
        assert!(reported.expect("an answer").into_inner().known);
        let verify = VerifyFenceRequest {
            fence: Some(request.clone()),
        };
        let verified = hosts(&channel).verify_fence(verify).await;
        let recorded = hosts(&channel).fence_host(request).await;
        let is_known = signals(&channel, "hosts/h1").await.unwrap().is_some();
        match outcome {
            "" => {
                assert_eq!(
                    verified.expect("accepted").into_inner().host,
                    None,
                    "{what}"
                );
                recorded.expect("accepted");
                assert!(!is_known, "{what}");
            }
            "repeated" => {
                let verified = verified.expect("known").into_inner().host;
                let recorded = recorded.expect("known").into_inner().host;
                assert!(verified.is_some_and(|h| h.fence.is_some()), "{what}");
                assert!(recorded.is_some_and(|h| h.fence.is_some()), "{what}");
                assert!(is_known, "{what}");
            }
            reason => {
                let (verified, recorded) = (verified.unwrap_err(), recorded.unwrap_err());
                assert_eq!(from_status(&verified).reason, reason, "{what}");
                assert_eq!(from_status(&recorded).reason, reason, "{what}");
                let is_explained = verified.message().contains("was started again since");
                assert_eq!(is_explained, what == "its id for another run", "{verified}");
                assert!(is_known, "{what}");
            }
        }
    }
    member.stop().await.expect("a clean end");
}

/// Goal: a host whose agent goes on reporting is not recorded as fenced, whatever the fence command said: its
/// guests would run twice. A report that was on its way is none of those. Method: a fence beside reports
/// that go on, beside one, and beside none.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_goes_on_reporting_is_not_fenced() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config {
        liveness_limit_ms: 4_000,
        ..common::config(&directory.path().join("0"), Start::Bootstrap)
    };
    let member = Member::start(config).await;
    let channel = member.channel().await;
    for (reports, expected) in [
        (u32::MAX, Err("HOST_IS_ALIVE")),
        (1, Ok(Liveness::Down)),
        (0, Ok(Liveness::Down)),
    ] {
        let request = register_request("h1", 1, 2);
        let incarnation = request.report.clone().expect("a report").incarnation;
        let registered = hosts(&channel).register_host(request).await;
        registered.expect("registered");
        let report = report("h1", &incarnation, None);
        let reporter = tokio::spawn(repeat(channel.clone(), report, reports));
        let fenced = hosts(&channel).fence_host(fence(&incarnation)).await;
        reporter.abort();
        let fenced = fenced.map(|answer| answer.into_inner().host.expect("the host").liveness());
        let fenced = fenced.map_err(|status| from_status(&status).reason);
        assert_eq!(fenced, expected.map_err(str::to_owned), "{reports}");
        if expected.is_err() {
            assert_eq!(liveness(&channel, "h1").await, Liveness::Up);
        }
    }
    member.stop().await.expect("a clean end");
}
