//! Three real members in one process: disks, connections, failures as an operator meets them.

use std::time::Duration;

use berth_proto::raft::v1::raft_service_client::RaftServiceClient;
use berth_proto::raft::v1::{ExchangeRequest, Hello, InstallSnapshotRequest};
use berth_replication::runtime::{
    Ended, Event, Handle, MembershipError, ProposeError, Runtime, Settings, Start,
};
use berth_replication::transport::{self, Options};
use berth_replication::{Change, Config};
use berth_store::{FileDisk, Identity};
use berth_testkit::replication::group::{Group, Running, settings};
use berth_testkit::replication::{Registers, add, set};
use protobuf::Message as _;
use raft::eraftpb::Message;

/// Settings under which a member that was away for a moment needs a snapshot.
fn forgetful() -> Settings {
    let usual = settings();
    Settings {
        replica: Config {
            checkpoint_entries: 50,
            hash_commands: 20,
            ..usual.replica
        },
        ..usual
    }
}

async fn write(handle: &Handle<Registers>, name: &str, count: u64) {
    for n in 1..=count {
        handle
            .propose(set(format!("{name}{n}"), n))
            .await
            .expect("commit");
    }
}

async fn count(handle: &Handle<Registers>) -> usize {
    handle.read(Registers::count).await.expect("read")
}

fn follower(group: &Group) -> u64 {
    let follows = |(_, r): &(&u64, &Running)| {
        let leader = r.handle.leader();
        leader.role.leader.is_some_and(|id| id != leader.id)
    };
    *group.members.iter().find(follows).expect("a follower").0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_acknowledges_all_can_read() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let group = Group::start(folder.path(), 3).await;
    let leader = group.leader().await;
    let mut events = leader.watch();
    write(&leader, "x", 40).await;
    for running in group.members.values() {
        assert_eq!(count(&running.handle).await, 40);
    }
    let mut seen = 0;
    while seen < 40 {
        match events.recv().await.expect("no gap") {
            Event::Applied(batch) => seen += batch.commands.len(),
            Event::Replaced(_) => panic!("nobody sent a snapshot"),
        }
    }
    // A follower does not propose for others: it names the leader.
    let other = &group.members[&follower(&group)].handle;
    let refused = other.propose(add("sum", 1)).await.expect_err("no leader");
    let ProposeError::NotLeader {
        leader: Some(named),
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(Some(named.id), leader.leader().role.leader);
    group.wait_for_agreement().await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_shuts_down_hands_over() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 3).await;
    let leader = group.leader().await;
    write(&leader, "x", 20).await;
    let id = leader.leader().id;
    let term = leader.leader().role.term;
    let running = group.members.remove(&id).expect("the leader");
    assert_eq!(running.stop().await, Ended::Shutdown);
    let next = group.leader().await;
    assert!(next.leader().role.term > term);
    write(&next, "y", 20).await;
    group.restart(id).await;
    group.wait_for_agreement().await;
    assert_eq!(count(&group.members[&id].handle).await, 40);
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_vanishes_is_replaced() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 3).await;
    for round in 1..=3 {
        let leader = group.leader().await;
        write(&leader, &format!("round{round}-"), 20).await;
        let id = leader.leader().id;
        group.members.remove(&id).expect("the leader").abort().await;
        let next = group.leader().await;
        assert_eq!(count(&next).await, round * 20);
        group.restart(id).await;
        group.wait_for_agreement().await;
    }
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_a_majority_says_that_it_lost() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 3).await;
    let leader = group.leader().await;
    let id = leader.leader().id;
    let others: Vec<u64> = group.members.keys().copied().filter(|m| *m != id).collect();
    for other in &others {
        group.members.remove(other).expect("a member").abort().await;
    }
    let lost = leader
        .propose(add("sum", 1))
        .await
        .expect_err("no majority");
    assert!(matches!(lost, ProposeError::Lost { .. }), "{lost:?}");
    let unread = leader.read(Registers::count).await;
    assert!(unread.is_err(), "a read needs a majority too");
    assert_eq!(leader.read_stale(Registers::count).await, Ok(0));
    for other in others {
        group.restart(other).await;
    }
    write(&group.leader().await, "x", 5).await;
    group.wait_for_agreement().await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_away_too_long_gets_a_snapshot() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start_with(folder.path(), 3, forgetful()).await;
    let leader = group.leader().await;
    write(&leader, "x", 10).await;
    let away = follower(&group);
    let position = group.members[&away].handle.status().await.expect("status");
    group.members.remove(&away).expect("it").abort().await;
    write(&leader, "y", 300).await;
    group.restart(away).await;
    group.wait_for_agreement().await;
    let status = group.members[&away].handle.status().await.expect("status");
    assert!(status.position.index > position.position.index + 300);
    // The log of the leader did not reach back to where it was.
    let folder = folder
        .path()
        .join(format!("m{}/checkpoints", leader.leader().id));
    let oldest = std::fs::read_dir(folder)
        .expect("list")
        .filter_map(|e| {
            e.ok()?
                .file_name()
                .to_str()?
                .rsplit('-')
                .next()?
                .parse()
                .ok()
        })
        .min();
    assert!(oldest.is_some_and(|index: u64| index > position.position.index));
    // What it installed carries it over a restart.
    group.members.remove(&away).expect("it").stop().await;
    group.restart(away).await;
    assert_eq!(group.members[&away].recovery.repairs, Vec::<String>::new());
    group.wait_for_agreement().await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_join_and_leave() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start_with(folder.path(), 3, forgetful()).await;
    let leader = group.leader().await;
    write(&leader, "x", 120).await;
    let fourth = group.join().await;
    assert_eq!(fourth, 4);
    group.wait_for_voters(4).await;
    group.wait_for_agreement().await;

    // Several changes at once go through a joint configuration.
    let away = follower(&group);
    let other = *group
        .members
        .keys()
        .find(|id| **id != away && **id != leader.leader().id)
        .expect("a third");
    let changes = vec![Change::Remove(away), Change::Demote(other)];
    loop {
        match leader.change_members(changes.clone()).await {
            Ok(_) => break,
            Err(MembershipError::Refused { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
    group.wait_for_voters(2).await;
    let removed = group.members.remove(&away).expect("it");
    // Whether it hears of its removal is a matter of luck; that it counts no more is not.
    removed.abort().await;
    write(&leader, "y", 10).await;
    let members = leader.members().await.expect("members");
    assert!(members.is_learner(other) && members.get(away).is_none());
    group.wait_for_agreement().await;
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_asked_to_leave_hands_over_first() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 3).await;
    let leader = group.leader().await;
    let id = leader.leader().id;
    let members = leader.members().await.expect("members");
    let refused = leader.remove_member(id, members).await;
    let refused = refused.expect_err("it leads");
    let MembershipError::Refused { leader: next, .. } = refused else {
        panic!("{refused:?}");
    };
    assert_ne!(next.expect("the next leader").id, id);
    loop {
        let leader = group.leader().await;
        let members = leader.members().await.expect("members");
        match leader.remove_member(id, members).await {
            Ok(_) => break,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    group.members.remove(&id).expect("it").abort().await;
    write(&group.leader().await, "x", 5).await;
    group.stop().await;
}

/// Goal: a member that starts at another address is reached there, although another one is recorded.
/// Method: each set of one or two of three members moves at the same time, once after another.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_moved_are_reached() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 3).await;
    for (round, moving) in [&[1][..], &[2], &[3], &[1, 2], &[2, 3], &[1, 3]]
        .into_iter()
        .enumerate()
    {
        for id in moving {
            group.members.remove(id).expect("it runs").abort().await;
        }
        for id in moving {
            group.restart_elsewhere(*id).await;
        }
        write_to_any(&group, &format!("round{round}-"), 20).await;
        record_addresses(&group).await;
        group.wait_for_agreement().await;
    }
    group.stop().await;
}

/// Writes at whichever member leads; the one that does may be about to lose leadership.
async fn write_to_any(group: &Group, name: &str, count: u64) {
    for n in 1..=count {
        let command = set(format!("{name}{n}"), n);
        while group.leader().await.propose(command.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Records at the leader where the members are; two that moved at the same time know the third one only.
async fn record_addresses(group: &Group) {
    for (id, running) in &group.members {
        loop {
            let leader = group.leader().await;
            let members = leader.members().await.expect("members");
            let address = running.address.to_string();
            if members.get(*id).expect("a member").address == address
                || leader
                    .record_addresses(vec![(*id, address)], members)
                    .await
                    .is_ok()
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Goal: members that all have other addresses than the recorded ones reach each other as soon as one
/// of the addresses is known to each. Method: all three move at the same time, and are introduced.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_all_moved_are_introduced() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 3).await;
    write(&group.leader().await, "x", 20).await;
    for id in 1..=3 {
        group.members.remove(&id).expect("it runs").abort().await;
    }
    for id in 1..=3 {
        group.restart_elsewhere(id).await;
    }
    let first = group.members[&1].address.to_string();
    for id in 2..=3 {
        let running = &group.members[&id];
        let membership = running.handle.status().await.expect("it runs").membership;
        running.addresses.state(1, &first, &membership);
    }
    write_to_any(&group, "y", 20).await;
    record_addresses(&group).await;
    group.wait_for_agreement().await;
    group.stop().await;
}

/// Goal: a wrong statement cuts off no member. Method: each member states an address at which there is
/// nothing, and one at which there is another member.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_state_a_wrong_address_are_reached() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 3).await;
    // It accepts connections, and never answers.
    let accepts = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let silent = accepts.local_addr().expect("address").to_string();
    for id in 1..=3 {
        let other = group.members[&(id % 3 + 1)].address.to_string();
        for stated in ["127.0.0.1:1", "no-such-host.invalid:7100", &silent, &other] {
            group.members.remove(&id).expect("it runs").abort().await;
            group.restart_stating(id, stated).await;
            write_to_any(&group, &format!("{id}-{stated}-"), 10).await;
            group.wait_for_agreement().await;
        }
    }
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_another_disk_does_not_count() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 3).await;
    let leader = group.leader().await;
    write(&leader, "x", 5).await;
    let own = leader.leader().id;
    let others: Vec<u64> = group
        .members
        .keys()
        .copied()
        .filter(|m| *m != own)
        .collect();
    for other in &others {
        group.members.remove(other).expect("a member").abort().await;
    }
    // One returns under its id, with an empty disk that somebody made for it.
    let identity = Identity {
        cluster_id: leader_cluster(folder.path()),
        member_id: others[0],
        disk_id: "another disk".into(),
    };
    let disk = FileDisk::create(&folder.path().join("impostor"), identity).expect("create");
    let runtime = Runtime::<Registers, _>::open(settings(), disk, Start::Existing).expect("open");
    let note = folder.path().join(format!("m{}.address", others[0]));
    let address = std::fs::read_to_string(note).expect("its address");
    let (network, service) = transport::grpc(
        runtime.inbox(),
        &address,
        Options::default(),
        None,
        transport::Known::default(),
    );
    let server = tonic::transport::Server::builder()
        .add_service(service)
        .serve(address.parse().expect("an address"));
    let server = tokio::spawn(server);
    let impostor = tokio::spawn(runtime.run(network, std::future::pending()));

    let lost = leader
        .propose(add("sum", 1))
        .await
        .expect_err("no majority");
    assert!(matches!(lost, ProposeError::Lost { .. }), "{lost:?}");
    impostor.abort();
    server.abort();
    let _ = (impostor.await, server.await);
    group.stop().await;
}

/// Goal: a member that ends while a command is on its way does not report that nothing happened.
/// Method: a leader without a quorum proposes, and is shut down, or its task is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_under_way_is_in_doubt_when_its_member_ends() {
    for is_shutdown in [true, false] {
        let folder = tempfile::tempdir().expect("temporary folder");
        let usual = settings();
        let patient = Settings {
            replica: Config {
                election_ticks: 100,
                ..usual.replica
            },
            ..usual
        };
        let mut group = Group::start_with(folder.path(), 3, patient).await;
        let leader = group.leader().await;
        let own = leader.leader().id;
        let leading = group.members.remove(&own).expect("it runs");
        for (_, follower) in std::mem::take(&mut group.members) {
            follower.abort().await;
        }
        let proposing = leader.clone();
        let proposed = tokio::spawn(async move { proposing.propose(set("a", 1)).await });
        while leader.status().await.expect("it runs").pending == 0 {
            tokio::task::yield_now().await;
        }
        match is_shutdown {
            true => drop(leading.stop().await),
            false => leading.abort().await,
        }
        let ended = proposed.await.expect("no panic").expect_err("no quorum");
        assert!(matches!(ended, ProposeError::Lost { .. }), "{ended:?}");
        let late = leader.propose(set("b", 1)).await;
        assert_eq!(late, Err(ProposeError::Stopped), "it was not begun");
    }
}

fn leader_cluster(folder: &std::path::Path) -> String {
    let marker = std::fs::read_to_string(folder.join("m1/MEMBER")).expect("a marker");
    let line = marker.lines().nth(1).expect("the cluster");
    line.strip_prefix("cluster ")
        .expect("the cluster")
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let group = Group::start(folder.path(), 1).await;
    let address = std::fs::read_to_string(folder.path().join("m1.address")).expect("its address");
    let mut client = RaftServiceClient::connect(format!("http://{address}"))
        .await
        .expect("connect");
    let ours = Hello {
        cluster_id: leader_cluster(folder.path()),
        from: 7,
        to: 1,
        ..Hello::default()
    };
    let cases = [
        (
            Hello {
                cluster_id: "other".into(),
                ..ours.clone()
            },
            "belongs to cluster",
        ),
        (
            Hello {
                to: 2,
                ..ours.clone()
            },
            "this is member 1",
        ),
        (
            Hello {
                from: 1,
                from_disk: "wrong".into(),
                ..ours
            },
            "must join as a new member",
        ),
    ];
    for (hello, expected) in cases {
        let request = ExchangeRequest {
            hello: Some(hello),
            messages: Vec::new(),
        };
        let refused = client
            .exchange(tokio_stream::once(request))
            .await
            .expect_err("a stranger");
        assert!(refused.message().contains(expected), "{refused}");
    }
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_snapshot_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let group = Group::start(folder.path(), 1).await;
    let address = std::fs::read_to_string(folder.path().join("m1.address")).expect("its address");
    let mut client = RaftServiceClient::connect(format!("http://{address}"))
        .await
        .expect("connect");
    let message = Message {
        from: 7,
        to: 1,
        ..Message::default()
    };
    let chunk = b"no checkpoint begins like this";
    let sound = InstallSnapshotRequest {
        hello: Some(Hello {
            cluster_id: leader_cluster(folder.path()),
            from: 7,
            to: 1,
            ..Hello::default()
        }),
        message: message.write_to_bytes().expect("bytes").into(),
        chunk: chunk.as_slice().into(),
        crc32: crc32fast::hash(chunk),
        last: true,
        ..InstallSnapshotRequest::default()
    };
    let cases = [
        (sound.clone(), "does not begin like one"),
        (
            InstallSnapshotRequest {
                crc32: 1,
                ..sound.clone()
            },
            "damaged or missing",
        ),
        (
            InstallSnapshotRequest {
                last: false,
                ..sound
            },
            "ends too early",
        ),
    ];
    for (request, expected) in cases {
        let refused = client
            .install_snapshot(tokio_stream::once(request))
            .await
            .expect_err("damaged");
        assert!(refused.message().contains(expected), "{refused}");
    }
    // Nothing of it is left behind.
    let left = std::fs::read_dir(folder.path().join("m1/checkpoints")).expect("list");
    assert_eq!(left.count(), 1);
    group.stop().await;
}
