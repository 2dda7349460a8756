//! Every read is answered from a backup as by the member that made it.
//!
//! Goal: a reader over the files of a backup gives the answers that a member without a leader gave at that
//! revision, says that no leader has confirmed them, and carries nothing out. Method: every method of every
//! service, enumerated from the descriptors, at the last member of three and at a reader of its backup; the
//! members are gone when the reader is called.

use berth_backup::Reader as File;
use berth_domain::version::ServiceVersion;
use berth_proto::client::Dialer;
use berth_proto::cluster::v1::BackupRequest;
use berth_proto::consistency::{Consistency, Staleness};
use berth_proto::status::from_status;
use berth_scheduler::history::History;
use berth_scheduler::moment::Moment;
use berth_scheduler::reader::{Origin, Reader};
use berth_tls::Expected;

use super::case::{self, Kind};
use super::raw::{self, Answer};
use super::stale::{OF_LEADER, assert_same, readable, request};
use super::world::World;
use crate::common::{clusters, connect, eventually};

/// An address that no program listens on: it leads to the reader all the same.
const ADDRESS: &str = "http://127.0.0.1:1";

async fn back_up(address: &str) -> Vec<u8> {
    let channel = connect(&format!("http://{address}")).await;
    let mut client = clusters(&channel);
    let sent = client.backup(BackupRequest { after: None }).await;
    let mut stream = sent.expect("a backup").into_inner();
    let mut bytes = Vec::new();
    while let Some(message) = stream.message().await.expect("a part") {
        bytes.extend_from_slice(&message.data);
    }
    bytes
}

fn read(file: &[u8], at: Option<Moment>) -> Reader {
    let file = File::new(file).expect("a header");
    let origin = Origin::of(file.header());
    let mut history = History::new(ServiceVersion::CURRENT, at);
    history.add(file).expect("it is sound");
    Reader::start(history.finish().expect("it verifies"), &origin).expect("it can be read")
}

async fn call(
    dialer: &Dialer,
    path: &str,
    request: &[u8],
    consistency: Option<Consistency>,
) -> (Answer, Option<Staleness>) {
    let channel = dialer.channel(ADDRESS, Expected::Scheduler);
    raw::call_over(channel.expect("an address"), path, request, consistency).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_answers_every_read_as_its_member_did() {
    let mut world = World::start().await;
    let last = (world.trio.leader().await + 1) % 3;
    for number in (0..3).filter(|number| *number != last) {
        world.trio.kill(number);
    }
    let address = world.trio.grpc[last].clone();
    let list = "/berth.scheduler.v1.SchedulerService/ListVms";
    eventually("a member without a leader", || async {
        let (_, known) = raw::call_stale(&address, list, &[]).await;
        known?.leader.is_none().then_some(())
    })
    .await;
    let mut before = Vec::new();
    for path in readable() {
        let (answer, known) = raw::call_stale(&address, &path, &request(&path, &world)).await;
        before.push((path, answer, known.expect("what it is worth").revision));
    }
    let file = back_up(&address).await;
    world.trio.kill(last);

    let reader = read(&file, None);
    let dialer = reader.dialer();
    for (path, answer, revision) in &before {
        let stale = Some(Consistency::Stale);
        let (offline, known) = call(&dialer, path, &request(path, &world), stale).await;
        let known = known.unwrap_or_else(|| panic!("{path}: {offline:?}"));
        assert_eq!(
            (known.revision, known.leader, known.age),
            (*revision, None, None),
            "{path}"
        );
        // The status is of a program, which is another one; a history is made of the files.
        if !path.ends_with("/GetClusterStatus") && !path.ends_with("/GetHistory") {
            assert_same(path, offline, answer);
        }
    }
    println!("{} reads are answered from a backup", before.len());
    writes_are_refused(&dialer).await;
    let (refusals, _) = call(&dialer, OF_LEADER, &[], Some(Consistency::Stale)).await;
    let refusal = from_status(&refusals.1.expect_err("they are in no backup"));
    assert_eq!(refusal.reason, "NOT_LEADER", "{refusal:?}");
    drop(reader);
    let (gone, _) = call(&dialer, list, &[], Some(Consistency::Stale)).await;
    gone.1.expect_err("the reader has ended");
}

/// Goal: nothing is carried out, whether or not a request says that it is a read.
async fn writes_are_refused(dialer: &Dialer) {
    for path in case::methods() {
        let Kind::Write = case::kind(&path) else {
            continue;
        };
        let (stale, _) = call(dialer, &path, &[], Some(Consistency::Stale)).await;
        let refusal = from_status(&stale.1.expect_err(&path));
        assert_eq!(refusal.reason, "STALE_NOT_A_READ", "{path}");
    }
    let cordon = "/berth.host.v1.HostService/CordonHost";
    let request = berth_proto::host::v1::CordonHostRequest {
        name: "hosts/h1".to_owned(),
        ..Default::default()
    };
    let request = prost::Message::encode_to_vec(&request);
    let (plain, _) = call(dialer, cordon, &request, None).await;
    let refusal = from_status(&plain.1.expect_err("there is no leader"));
    assert_eq!(refusal.reason, "NOT_LEADER", "{refusal:?}");
}
