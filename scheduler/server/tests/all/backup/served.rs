//! Goal: every member sends backups that verify, with and without a leader, while the state changes; an
//! increment follows exactly its own history; no more are sent at a time than may be. Method: members in
//! this process, over gRPC.

use berth_backup::{Chain, Kind, Place, Reader, Summary};
use berth_proto::cluster::v1::{BackupEnd, BackupRequest, BackupResponse};
use berth_proto::status::from_status;
use berth_replication::Machine as _;
use berth_scheduler::machine::{Level, Machine};
use berth_store::Row;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::common::world::{flavor_request, register};
use crate::common::{Cluster, Member, clusters, eventually, schedulers};

async fn begin(
    channel: &Channel,
    after: Option<BackupEnd>,
) -> Result<Streaming<BackupResponse>, Status> {
    let sent = clusters(channel).backup(BackupRequest { after }).await;
    Ok(sent?.into_inner())
}

async fn collect(mut stream: Streaming<BackupResponse>) -> Result<Vec<u8>, Status> {
    let mut bytes = Vec::new();
    while let Some(message) = stream.message().await? {
        bytes.extend_from_slice(&message.data);
    }
    Ok(bytes)
}

async fn back_up(channel: &Channel, after: Option<BackupEnd>) -> Result<Vec<u8>, Status> {
    collect(begin(channel, after).await?).await
}

fn summary(file: &[u8]) -> Summary {
    let reader = Reader::new(file).expect("a header");
    reader.finish().expect("it is sound")
}

fn end_of(file: &[u8]) -> BackupEnd {
    let header = summary(file).header;
    let Place {
        index,
        term,
        state_hash,
        rows,
    } = header.end;
    BackupEnd {
        cluster_id: header.cluster_id,
        index,
        term,
        state_hash: state_hash.into(),
        rows,
    }
}

/// Returns the rows that a chain leads to.
fn verified(files: &[&[u8]]) -> Vec<Row> {
    let mut chain = Chain::<Machine>::new(Level::default());
    for file in files {
        let added = chain.add(Reader::new(*file).expect("a header"));
        added.expect("it follows");
    }
    let verified = chain.finish().expect("it verifies");
    let mut rows: Vec<Row> = verified.machine.rows().collect();
    rows.sort();
    rows
}

async fn rows_of(member: &Member) -> Vec<Row> {
    let rows = |machine: &Machine| machine.rows().collect::<Vec<Row>>();
    let mut rows = member.handle.read_stale(rows).await.expect("a state");
    rows.sort();
    rows
}

async fn change(channel: &Channel, name: &str) {
    let created = schedulers(channel)
        .create_flavor(flavor_request(name, 1, &[]))
        .await;
    created.expect("it is created");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_sends_backups_that_verify() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.channel().await;
    for host in ["h1", "h2"] {
        register(&leader, host, 2, 4).await;
    }
    let mut full = Vec::new();
    for member in &cluster.members {
        full.push(
            back_up(&member.channel().await, None)
                .await
                .expect("a backup"),
        );
    }
    for number in 0..30 {
        change(&leader, &format!("f{number}")).await;
    }
    let mut increments = Vec::new();
    for (member, full) in cluster.members.iter().zip(&full) {
        let channel = member.channel().await;
        let increment = back_up(&channel, Some(end_of(full))).await;
        let increment = increment.expect("the log reaches back");
        let Summary { header, .. } = summary(&increment);
        assert_eq!(header.kind(), Kind::Increment);
        assert_eq!(header.member_id, member.status().await.member_id);
        // Another member's increment follows the backup of this one, if it has come as far.
        let _ = verified(&[full, &increment]);
        increments.push(increment);
    }

    // Two of three are killed: the last one goes on to send what it has.
    let last = cluster.members.pop().expect("three members");
    while let Some(member) = cluster.members.pop() {
        member.kill().await;
    }
    eventually("no leader", || async {
        last.handle.leader().role.leader.is_none().then_some(())
    })
    .await;
    let channel = last.channel().await;
    let (full, first) = (&full[2], &increments[2]);
    let second = back_up(&channel, Some(end_of(first)))
        .await
        .expect("an increment");
    let whole = back_up(&channel, None).await.expect("a backup");
    let rows = rows_of(&last).await;
    assert_eq!(verified(&[full, first, &second]), rows);
    assert_eq!(verified(&[&whole]), rows);
}

fn refused<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, String, bool) {
    let status = result.expect_err("a refusal");
    let refusal = from_status(&status);
    (status.code(), refusal.reason, refusal.hint.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_increment_follows_its_own_history_only() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let full = back_up(&channel, None).await.expect("a backup");
    let end = end_of(&full);
    change(&channel, "a").await;

    let other = BackupEnd {
        cluster_id: uuid::Uuid::from_u128(7).to_string(),
        ..end.clone()
    };
    let expected = (
        Code::FailedPrecondition,
        "BACKUP_OF_OTHER_CLUSTER".to_owned(),
        true,
    );
    assert_eq!(refused(begin(&channel, Some(other)).await), expected);

    let other = BackupEnd {
        term: end.term + 1,
        ..end.clone()
    };
    let expected = (
        Code::FailedPrecondition,
        "BACKUP_OF_OTHER_HISTORY".to_owned(),
        true,
    );
    assert_eq!(refused(begin(&channel, Some(other)).await), expected);
    let other = BackupEnd {
        state_hash: vec![7; 16].into(),
        ..end.clone()
    };
    assert_eq!(refused(begin(&channel, Some(other)).await), expected);

    let beyond = BackupEnd {
        index: end.index + 1_000_000,
        ..end.clone()
    };
    let expected = (Code::Unavailable, "MEMBER_BEHIND".to_owned(), true);
    assert_eq!(refused(begin(&channel, Some(beyond)).await), expected);
    for wrong in [
        BackupEnd {
            state_hash: vec![7; 15].into(),
            ..end.clone()
        },
        BackupEnd {
            cluster_id: "no UUID".to_owned(),
            ..end.clone()
        },
    ] {
        let (code, reason, _) = refused(begin(&channel, Some(wrong)).await);
        assert_eq!((code, &*reason), (Code::InvalidArgument, "INVALID_FIELD"));
    }

    // Two checkpoints later the log begins behind it.
    let handle = &cluster.members[0].handle;
    let mut number = 0;
    while cluster.members[0].status().await.first_index <= end.index + 1 {
        change(&channel, &format!("f{number}")).await;
        handle.request_checkpoint().await;
        number += 1;
    }
    let expected = (Code::FailedPrecondition, "BACKUP_TOO_OLD".to_owned(), true);
    assert_eq!(refused(begin(&channel, Some(end)).await), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn few_backups_are_sent_at_a_time() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    // More than the windows of a connection and the queues of the member take unread.
    let traits: Vec<String> = (0..60)
        .map(|number| format!("trait:CUSTOM_{}_{number}", "X".repeat(200)))
        .collect();
    let specs: Vec<(&str, &str)> = traits.iter().map(|key| (&**key, "required")).collect();
    for number in 0..800 {
        let request = flavor_request(&format!("f{number}"), 1, &specs);
        let created = schedulers(&channel).create_flavor(request).await;
        created.expect("it is created");
    }
    let open = [
        begin(&channel, None).await.expect("the first"),
        begin(&channel, None).await.expect("the second"),
    ];
    let expected = (Code::ResourceExhausted, "BACKUP_BUSY".to_owned(), true);
    assert_eq!(refused(begin(&channel, None).await), expected);
    for stream in open {
        let file = collect(stream).await.expect("all of it");
        let _ = verified(&[&file]);
    }
    let again = eventually("a permit", || async { back_up(&channel, None).await.ok() }).await;
    let _ = verified(&[&again]);
    // A client that goes away gives its permit back.
    let gone = begin(&channel, None).await.expect("a backup");
    drop(gone);
    let both = || async {
        let first = begin(&channel, None).await.ok()?;
        let second = begin(&channel, None).await.ok()?;
        Some((first, second))
    };
    let _ = eventually("both permits", both).await;
}
