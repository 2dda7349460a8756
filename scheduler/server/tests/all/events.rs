//! Watches through gRPC: snapshot and changes, what is refused, and going on at another member
//! after `kill -9`.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::event::{Change, Event, Name, Record};
use berth_domain::refusal::Refusal;
use berth_proto::event::v1::event_service_client::EventServiceClient;
use berth_proto::event::v1::watch_response::Phase;
use berth_proto::event::v1::{Kind, WatchRequest, WatchResponse};
use berth_proto::host::v1::{
    CordonHostRequest, FenceHostRequest, RemoveHostRequest, UncordonHostRequest, fence,
};
use berth_proto::scheduler::v1::{GetVmRequest, ScheduleVmRequest};
use berth_proto::status::from_status;
use berth_scheduler::Start;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::common::process::reach;
use crate::common::trio::Trio;
use crate::common::world::{flavor, register, schedule, vm_request};
use crate::common::{Cluster, Member, PATIENCE, config, eventually, hosts, schedulers};

/// Waits for something that has to happen soon.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("{what} did not happen in time"))
}

async fn watch(
    channel: &Channel,
    request: WatchRequest,
) -> Result<Streaming<WatchResponse>, Status> {
    let mut client = EventServiceClient::new(channel.clone());
    client.watch(request).await.map(tonic::Response::into_inner)
}

async fn next(stream: &mut Streaming<WatchResponse>) -> Result<WatchResponse, Refusal> {
    let message = soon("a message", stream.message()).await;
    let message = message.map_err(|status| from_status(&status))?;
    Ok(message.expect("a watch ends with a reason"))
}

fn after(revision: u64) -> WatchRequest {
    WatchRequest {
        after_revision: revision,
        progress_interval: Some(prost_types::Duration {
            seconds: 0,
            nanos: 200_000_000,
        }),
        ..WatchRequest::default()
    }
}

/// What somebody knows who follows a watch, and insists on what it promises.
#[derive(Default)]
struct Follower {
    records: BTreeMap<Name, Record>,
    /// Events of a revision that is not told to its end.
    open: Vec<Event>,
    /// Where to go on.
    revision: u64,
    told: Vec<(u64, Name)>,
    is_in_step: bool,
    /// Whether it began without a snapshot.
    is_resumed: bool,
}

impl Follower {
    fn take(&mut self, message: WatchResponse) {
        let phase = message.phase();
        assert!(
            message.revision >= self.revision,
            "it went back: {message:?}"
        );
        for wire in message.events {
            let event = Event::try_from(wire).expect("an event");
            if phase == Phase::Changes {
                assert!(event.revision > self.revision, "told before: {event:?}");
                let last = self.told.last().map_or(0, |(revision, _)| *revision);
                assert!(event.revision >= last, "out of order: {event:?}");
                self.told.push((event.revision, event.change.name()));
            }
            self.open.push(event);
        }
        match phase {
            Phase::Unspecified => panic!("never sent"),
            Phase::Snapshot => assert_eq!(message.revision, 0),
            Phase::InStep => self.is_in_step = true,
            // A client that takes the snapshot at its end would lose what came before that.
            Phase::Changes | Phase::Progress => {
                assert!(self.is_in_step || self.is_resumed, "within a snapshot");
            }
        }
        self.revision = message.revision;
        if phase == Phase::Snapshot {
            return;
        }
        let is_open = |event: &Event| event.revision > self.revision;
        let open = self.open.iter().position(is_open);
        let complete = self.open.drain(..open.unwrap_or(self.open.len()));
        for event in complete {
            match event.change {
                Change::Put(record) => drop(self.records.insert(record.name(), record)),
                Change::Deleted(name) => {
                    assert!(self.records.remove(&name).is_some(), "{name} was not there");
                }
            }
        }
    }

    /// Reads until this revision is told.
    async fn reach(&mut self, stream: &mut Streaming<WatchResponse>, revision: u64) {
        while self.revision < revision {
            self.take(next(stream).await.expect("it goes on"));
        }
    }

    /// Reads until the watch is in step.
    async fn step_in(&mut self, stream: &mut Streaming<WatchResponse>) {
        while !self.is_in_step {
            self.take(next(stream).await.expect("it goes on"));
        }
    }
}

/// Returns everything that there is now, as a new watch tells it.
async fn list(channel: &Channel) -> Follower {
    let mut follower = Follower::default();
    let mut stream = watch(channel, after(0)).await.expect("a stream");
    follower.step_in(&mut stream).await;
    follower
}

/// Has a VM booted on this host.
fn on(request: ScheduleVmRequest, host: &str) -> ScheduleVmRequest {
    ScheduleVmRequest {
        requested_host: format!("hosts/{host}"),
        ..request
    }
}

async fn cordon(channel: &Channel, host: &str) {
    let request = CordonHostRequest {
        name: format!("hosts/{host}"),
        request_id: String::new(),
    };
    hosts(channel).cordon_host(request).await.expect("done");
}

async fn uncordon(channel: &Channel, host: &str) {
    let request = UncordonHostRequest {
        name: format!("hosts/{host}"),
        request_id: String::new(),
    };
    hosts(channel).uncordon_host(request).await.expect("done");
}

/// Goal: a watch begins with everything in pieces, says when that was all, tells each change of
/// each kind with its revision, ends of records included, and goes on after a revision.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_then_every_change() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    for number in 0..24 {
        // Large enough that they do not go into one message.
        register(&channel, &format!("h{number}"), 64, 4).await;
    }
    // As a host whose agent was stopped, which may be removed.
    let off = FenceHostRequest {
        name: "hosts/h4".into(),
        method: fence::Method::FenceCommand.into(),
        ..Default::default()
    };
    hosts(&channel).fence_host(off).await.expect("fenced");
    flavor(&channel, "one", 1).await;
    schedule(&channel, on(vm_request("a", "one"), "h0"))
        .await
        .expect("room");

    let mut stream = watch(&channel, after(0)).await.expect("a stream");
    let (mut follower, mut pieces) = (Follower::default(), 0);
    while !follower.is_in_step {
        let message = next(&mut stream).await.expect("it goes on");
        pieces += u32::from(message.phase() == Phase::Snapshot);
        follower.take(message);
    }
    assert!(pieces > 1, "{pieces}");
    assert_eq!(
        follower.records.len(),
        24 + 3,
        "a VM, a claim, an operation"
    );
    let begun = follower.revision;

    schedule(&channel, on(vm_request("b", "one"), "h0"))
        .await
        .expect("room");
    cordon(&channel, "h3").await;
    let gone = RemoveHostRequest {
        name: "hosts/h4".into(),
        request_id: String::new(),
    };
    hosts(&channel)
        .remove_host(gone)
        .await
        .expect("it is empty");
    let now = list(&channel).await;
    follower.reach(&mut stream, now.revision).await;
    assert_eq!(follower.records, now.records);
    assert_eq!(now.records.len(), 23 + 6);
    let mut told = follower.told.clone();
    let first = told[0].0;
    let boot: Vec<_> = told.iter().filter(|(at, _)| *at == first).collect();
    assert_eq!(
        boot.len(),
        3,
        "what one command did stands together: {told:?}"
    );

    // The same again by revision, and a part of it by name.
    let mut again = Follower {
        revision: begun,
        is_resumed: true,
        ..Follower::default()
    };
    let wanted = WatchRequest {
        kinds: vec![Kind::Host.into()],
        names: vec!["hosts/h3".into()],
        ..after(begun)
    };
    let mut stream = watch(&channel, wanted).await.expect("a stream");
    again.reach(&mut stream, now.revision).await;
    told.retain(|(_, name)| name.to_string() == "h3");
    assert_eq!((again.told, told.len()), (told.clone(), 1));
}

/// Goal: the end of a snapshot is sent before the first change. Method: watches that begin while hosts
/// change all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_ends_before_the_first_change() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 1, 4).await;
    let changing = tokio::spawn({
        let channel = channel.clone();
        async move {
            loop {
                cordon(&channel, "h1").await;
                uncordon(&channel, "h1").await;
            }
        }
    });
    for _ in 0..300 {
        let mut stream = watch(&channel, after(0)).await.expect("a stream");
        let mut follower = Follower::default();
        follower.step_in(&mut stream).await;
        let next = follower.revision + 1;
        follower.reach(&mut stream, next).await;
    }
    changing.abort();
}

/// Goal: a watch of what does not change says how far it is, so that it can go on from there.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_watch_tells_how_far_it_is() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 1, 4).await;
    let quiet = WatchRequest {
        kinds: vec![Kind::Migration.into()],
        ..after(0)
    };
    let mut stream = watch(&channel, quiet).await.expect("a stream");
    let mut follower = Follower::default();
    follower.step_in(&mut stream).await;
    let begun = follower.revision;
    cordon(&channel, "h1").await;
    follower.reach(&mut stream, begun + 1).await;
    assert!(follower.records.is_empty() && follower.told.is_empty());
}

/// Goal: what cannot be told is refused with its reason, and so is what makes no sense.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_told_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let member = Member::start(berth_scheduler::Config {
        // Each command changes its row and adds one to the audit.
        watch_history_max: 32,
        ..config(directory.path(), Start::Bootstrap)
    })
    .await;
    let channel = member.channel().await;
    let ready = || async { watch(&channel, after(0)).await.ok() };
    drop(eventually("a watch", ready).await);
    register(&channel, "h1", 1, 4).await;
    let begun = list(&channel).await.revision;
    for _ in 0..10 {
        cordon(&channel, "h1").await;
        uncordon(&channel, "h1").await;
    }
    let refused = |request: WatchRequest| {
        let channel = channel.clone();
        async move {
            let status = watch(&channel, request).await.expect_err("refused");
            (status.code(), from_status(&status))
        }
    };
    let (code, refusal) = refused(after(begun)).await;
    assert_eq!(
        (code, &*refusal.reason),
        (tonic::Code::OutOfRange, "REVISION_NOT_KEPT")
    );
    assert!(refusal.hint.is_some(), "{refusal:?}");
    let first: u64 = refusal.metadata["first_revision"]
        .parse()
        .expect("a number");
    let mut stream = watch(&channel, after(first)).await.expect("it is kept");
    let mut follower = Follower {
        revision: first,
        is_resumed: true,
        ..Follower::default()
    };
    follower.reach(&mut stream, begun + 20).await;
    assert_eq!(follower.told.len(), 16);

    let (code, refusal) = refused(after(1 << 40)).await;
    assert_eq!(
        (code, &*refusal.reason),
        (tonic::Code::OutOfRange, "REVISION_NOT_REACHED")
    );
    let kinds = |kinds: &[i32]| WatchRequest {
        kinds: kinds.to_vec(),
        ..after(0)
    };
    let names = |names: &[&str]| WatchRequest {
        names: names.iter().map(|name| (*name).into()).collect(),
        ..after(0)
    };
    let elsewhere = WatchRequest {
        kinds: vec![Kind::Vm.into()],
        ..names(&["hosts/h1"])
    };
    let hasty = WatchRequest {
        progress_interval: Some(prost_types::Duration {
            seconds: 0,
            nanos: 1,
        }),
        ..after(0)
    };
    let many = names(&["vms/a"; 101]);
    let wrong = [
        kinds(&[0]),
        kinds(&[99]),
        names(&["a"]),
        names(&["flavors/a"]),
        elsewhere,
        hasty,
        many,
    ];
    for request in wrong {
        let (code, refusal) = refused(request).await;
        assert_eq!(
            (code, &*refusal.reason),
            (tonic::Code::InvalidArgument, "INVALID_FIELD")
        );
    }
}

/// Goal: a client that does not read is cut off with a reason, and so many watches are served and
/// no more. Method: one watch is allowed; another one is let in once the first was cut off.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_is_cut_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let member = Member::start(berth_scheduler::Config {
        watches_max: 1,
        request_timeout_ms: 500,
        ..config(directory.path(), Start::Bootstrap)
    })
    .await;
    let channel = member.channel().await;
    let mut slow = eventually("a watch", || async { watch(&channel, after(0)).await.ok() }).await;
    register(&channel, "h1", 64, 4).await;
    let other = member.channel().await;
    let refused = watch(&other, after(0)).await.expect_err("one at a time");
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert_eq!(from_status(&refused).reason, "TOO_MANY_WATCHES");
    eventually("the end of the slow one", || async {
        cordon(&channel, "h1").await;
        uncordon(&channel, "h1").await;
        watch(&other, after(0)).await.ok()
    })
    .await;
    let ended = loop {
        if let Err(ended) = next(&mut slow).await {
            break ended;
        }
    };
    assert_eq!(ended.reason, "READER_TOO_SLOW");
}

/// Goal: a member that has just started tells at once, also where nothing has been asked of the
/// cluster since. Its log then ends with entries that are no commands.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_just_started_is_in_step() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut start = Start::Bootstrap;
    for _ in 0..3 {
        let member = Member::start(config(directory.path(), start)).await;
        let channel = member.channel().await;
        let first = eventually("a watch", || async { watch(&channel, after(0)).await.ok() });
        let mut stream = first.await;
        Follower::default().step_in(&mut stream).await;
        drop((stream, channel));
        member.stop().await.expect("it stops");
        start = Start::Restart;
    }
}

/// Boots a VM, however often the leader has to be looked for.
async fn boot(trio: &Trio, number: usize) {
    let name = format!("vm-{number}");
    eventually("a boot", || async {
        let channel = reach(&trio.grpc[trio.leader().await]).await?;
        let known = GetVmRequest {
            name: format!("vms/{name}"),
            ..GetVmRequest::default()
        };
        if schedulers(&channel).get_vm(known).await.is_ok() {
            return Some(());
        }
        let booted = schedule(&channel, vm_request(&name, "one")).await;
        booted.ok().map(drop)
    })
    .await;
}

/// Goal: a watch goes on at another member when the one that served it dies, with nothing left
/// out and nothing twice; and a member that may be cut off says so. Method: three processes; VMs
/// are booted while the serving member (leader or not) is killed; what was told is compared with
/// a list. Then two of three are killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_survives_the_member_that_serves_it() {
    let mut trio = Trio::start().await;
    let leader = trio.leader().await;
    let channel = reach(&trio.grpc[leader]).await.expect("a leader");
    for host in ["h1", "h2"] {
        register(&channel, host, 2, 64).await;
    }
    flavor(&channel, "one", 1).await;
    let mut follower = Follower::default();
    let mut boots = 0;
    for round in 0..4 {
        // By turns the leader and another one.
        let leader = trio.leader().await;
        let serving = if round % 2 == 0 {
            leader
        } else {
            (leader + 1) % 3
        };
        let channel = eventually("it runs", || reach(&trio.grpc[serving])).await;
        let stream = watch(&channel, after(follower.revision)).await;
        let mut stream = stream.expect("it is kept, here as well");
        boot(&trio, boots).await;
        boots += 1;
        let wanted = follower.revision + 1;
        follower.reach(&mut stream, wanted).await;
        // Something happens that this watch may or may not come to tell.
        boot(&trio, boots).await;
        boots += 1;
        trio.kill(serving);
        while let Ok(message) = next(&mut stream).await {
            follower.take(message);
        }
        follower.open.clear();
        trio.leader().await;
        trio.restart(serving);
    }
    let leader = trio.leader().await;
    let channel = reach(&trio.grpc[leader]).await.expect("a leader");
    let now = list(&channel).await;
    let mut stream = watch(&channel, after(follower.revision))
        .await
        .expect("kept");
    follower.reach(&mut stream, now.revision).await;
    assert_eq!(follower.records, now.records);
    let vms = now
        .records
        .keys()
        .filter(|name| matches!(name, Name::Vm(_)));
    assert_eq!(vms.count(), boots);
    let told: BTreeSet<_> = follower.told.iter().collect();
    assert_eq!(told.len(), follower.told.len(), "nothing twice");

    for other in (0..3).filter(|other| *other != leader) {
        trio.kill(other);
    }
    let ended = loop {
        match next(&mut stream).await {
            Ok(message) => follower.take(message),
            Err(ended) => break ended,
        }
    };
    assert_eq!(ended.reason, "LEADER_LOST");
}
