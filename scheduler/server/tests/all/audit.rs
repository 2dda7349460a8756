//! The audit through gRPC: what was done stands in it with its reason, what was refused is found
//! at the leader, and the first outlives every member.

use berth_domain::audit::{Entry, Outcome, Refused};
use berth_proto::audit::v1::audit_service_client::AuditServiceClient;
use berth_proto::audit::v1::{
    AuditFilter, GetAuditEntryRequest, ListAuditEntriesRequest, ListRefusalsRequest,
};
use berth_proto::client::SchedulerChannel;
use berth_proto::event::v1::event_service_client::EventServiceClient;
use berth_proto::event::v1::{Kind, WatchRequest};
use berth_proto::host::v1::CordonHostRequest;
use berth_proto::status::from_status;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::common::world::{flavor, register, schedule, vm_request};
use crate::common::{Cluster, Member, hosts};

fn audit(channel: &Channel) -> AuditServiceClient<Channel> {
    AuditServiceClient::new(channel.clone())
}

async fn entries(channel: &Channel, filter: AuditFilter) -> Vec<Entry> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListAuditEntriesRequest {
            page_size: 2,
            page_token,
            filter: Some(filter.clone()),
            ..ListAuditEntriesRequest::default()
        };
        let answer = audit(channel).list_audit_entries(request).await;
        let answer = answer.expect("a page").into_inner();
        let page = answer.audit_entries.into_iter();
        all.extend(page.map(|wire| Entry::try_from(wire).expect("an entry")));
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

async fn refusals(channel: &Channel) -> Vec<Refused> {
    let request = ListRefusalsRequest::default();
    let answer = audit(channel).list_refusals(request).await;
    let refusals = answer.expect("the leader").into_inner().refusals;
    let refusals = refusals.into_iter();
    refusals
        .map(|wire| wire.try_into().expect("a refusal"))
        .collect()
}

fn methods(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|e| &*e.request.method).collect()
}

/// Goal: an operator sees who asked for what, where it went and why there, and what was refused
/// with its counts; the audit is on every member and outlives the leader. Method: three members;
/// boots, of which one finds no room and is asked for again and again; then the leader dies.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_tells_what_was_decided_and_why() {
    let mut cluster = Cluster::start(3).await;
    let channel = cluster.channel().await;
    for host in ["h1", "h2", "h3"] {
        register(&channel, host, 2, 4).await;
    }
    flavor(&channel, "pair", 2).await;
    flavor(&channel, "huge", 9).await;
    let mut first = vm_request("a", "pair");
    first.request_id = Uuid::now_v7().to_string();
    for _ in 0..2 {
        // The second is a retry.
        schedule(&channel, first.clone()).await.expect("room");
    }
    let mut dry = vm_request("dry", "pair");
    dry.validate_only = true;
    schedule(&channel, dry).await.expect("room");
    let cordon = CordonHostRequest {
        name: "hosts/h3".into(),
        request_id: String::new(),
    };
    hosts(&channel).cordon_host(cordon).await.expect("done");
    for _ in 0..3 {
        let refused = schedule(&channel, vm_request("b", "huge")).await;
        assert_eq!(
            from_status(&refused.expect_err("no room")).reason,
            "NO_VALID_HOST"
        );
    }

    let all = entries(&channel, AuditFilter::default()).await;
    let expected = ["CordonHost", "ScheduleVm", "CreateFlavor", "CreateFlavor"];
    assert_eq!(methods(&all), expected, "once, the latest first: {all:#?}");
    assert!(all.is_sorted_by(|a, b| a.revision > b.revision && a.at >= b.at));
    let boot = &all[1];
    assert_eq!(boot.principal, "unverified");
    assert_eq!(
        boot.request.request_id.map(|id| id.to_string()),
        Some(first.request_id)
    );
    assert_eq!(boot.request.summary, "flavor=pair");
    let Outcome::Accepted { operation: Some(_) } = &boot.outcome else {
        panic!("{boot:#?}");
    };
    let choice = boot.request.choice.as_ref().expect("how it was chosen");
    assert_eq!((choice.hosts, choice.passed), (3, 3));
    let sums: Vec<u64> = choice.ranking.iter().map(|ranked| ranked.sum()).collect();
    assert_eq!(choice.ranking[0].host, choice.host);
    assert!(
        sums.len() == 3 && sums.is_sorted_by(|a, b| a >= b) && sums[0] > 0,
        "{sums:?}"
    );

    let only = |vm: &str, host: &str, method: &str| AuditFilter {
        vm: vm.into(),
        host: host.into(),
        method: method.into(),
        ..AuditFilter::default()
    };
    let found = entries(&channel, only("vms/a", "", "")).await;
    assert_eq!(methods(&found), ["ScheduleVm"]);
    let chosen = format!("hosts/{}", choice.host);
    let found = entries(&channel, only("", &chosen, "ScheduleVm")).await;
    assert_eq!(methods(&found), ["ScheduleVm"]);
    let somebody_else = AuditFilter {
        principal: "somebody".into(),
        ..AuditFilter::default()
    };
    assert!(entries(&channel, somebody_else).await.is_empty());

    let refused = refusals(&channel).await;
    let [refused] = &refused[..] else {
        panic!("one, counted: {refused:#?}");
    };
    assert_eq!((refused.count, &*refused.request.method), (3, "ScheduleVm"));
    assert!(!refused.refusal.causes.is_empty() && refused.refusal.hint.is_some());

    let leader = cluster.leader().await;
    let other = &cluster.members[(leader + 1) % 3];
    let mut at_other = audit(&other.channel().await);
    let elsewhere = at_other.list_refusals(ListRefusalsRequest::default());
    let elsewhere = elsewhere.await.expect_err("it does not lead");
    assert_eq!(elsewhere.code(), tonic::Code::Unavailable);
    assert_eq!(
        entries(&other.channel().await, AuditFilter::default()).await,
        all
    );
    cluster.members.remove(leader).kill().await;
    let urls: Vec<String> = cluster.members.iter().map(Member::url).collect();
    let scheduler = SchedulerChannel::new(urls).expect("addresses");
    let again = scheduler.call(|channel| async move {
        let name = format!("auditEntries/{}", boot.revision);
        let request = GetAuditEntryRequest {
            name,
            ..GetAuditEntryRequest::default()
        };
        let mut client = AuditServiceClient::new(channel);
        client.get_audit_entry(request).await
    });
    let again = again
        .await
        .expect("it is kept")
        .audit_entry
        .expect("an entry");
    assert_eq!(Entry::try_from(again).as_ref(), Ok(boot));
    let channel = cluster.channel().await;
    assert!(
        refusals(&channel).await.is_empty(),
        "they went with the leader"
    );
}

/// Goal: a program follows the audit like anything else, and who does not ask for it is not told.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_can_be_watched() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    flavor(&channel, "pair", 2).await;
    let kinds_of = async |kinds: Vec<i32>| {
        let request = WatchRequest {
            kinds,
            ..WatchRequest::default()
        };
        let mut client = EventServiceClient::new(channel.clone());
        let mut stream = client.watch(request).await.expect("a stream").into_inner();
        let first = stream.message().await.expect("alive").expect("a message");
        first
            .events
            .iter()
            .map(|event| event.kind())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds_of(vec![Kind::Audit.into()]).await, [Kind::Audit]);
    assert_eq!(kinds_of(Vec::new()).await, []);
    let missing = GetAuditEntryRequest {
        name: "auditEntries/99999".into(),
        ..GetAuditEntryRequest::default()
    };
    let missing = audit(&channel)
        .get_audit_entry(missing)
        .await
        .expect_err("none");
    assert_eq!(from_status(&missing).reason, "AUDIT_ENTRY_NOT_FOUND");
}
