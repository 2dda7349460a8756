//! Members that start at another address than the recorded one.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use berth_process::Listening;
use berth_proto::cluster::v1::{AddMemberRequest, RemoveMemberRequest, UpdateMemberRequest};
use berth_proto::status::from_status;
use berth_scheduler::{Config, Start};
use tonic::Code;

use crate::common::{Cluster, Member, clusters, config, eventually};

/// Restarts a member of the cluster by position, at any free port.
async fn move_member(cluster: &mut Cluster, position: usize, start: Start) {
    let directory = cluster.members[position].directory.clone();
    cluster.members.remove(position).kill().await;
    let moved = start_again(config(&directory, start)).await;
    cluster.members.insert(position, moved);
}

/// Starts a member whose directory may still be in use for a moment.
async fn start_again(config: Config) -> Member {
    eventually("the start", || async {
        Member::try_start(config.clone()).await.ok()
    })
    .await
}

/// Waits until each member records each where it listens.
async fn recorded(cluster: &Cluster) {
    eventually("the record of all addresses", || async {
        let mut actual = BTreeMap::new();
        for member in &cluster.members {
            let status = member.status().await;
            actual.insert(status.member_id, member.peer());
        }
        for member in &cluster.members {
            let status = member.status().await;
            let members = status.members.into_iter();
            let recorded: BTreeMap<_, _> = members.map(|m| (m.id, m.address)).collect();
            if recorded != actual {
                return None;
            }
        }
        Some(())
    })
    .await;
}

/// Goal: a member that is started at another address is found and recorded there, the leader as well. Method:
/// the leader and a follower of three, then two at the same time, and a cluster of one.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_moved_is_recorded_where_it_is() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    move_member(&mut cluster, leader, Start::Restart).await;
    recorded(&cluster).await;
    let leader = cluster.leader().await;
    move_member(&mut cluster, (leader + 1) % 3, Start::Restart).await;
    recorded(&cluster).await;

    let leader = cluster.leader().await;
    let mut moving = [leader, (leader + 1) % 3];
    moving.sort_unstable();
    let mut directories = Vec::new();
    for position in moving.iter().rev() {
        let member = cluster.members.remove(*position);
        directories.push(member.directory.clone());
        member.kill().await;
    }
    for directory in directories {
        let moved = start_again(config(&directory, Start::Restart)).await;
        cluster.members.push(moved);
    }
    recorded(&cluster).await;

    let mut single = Cluster::start(1).await;
    move_member(&mut single, 0, Start::Restart).await;
    recorded(&single).await;
}

/// Goal: members that have all moved find each other by --join. Method: three members, each with the
/// new address of the first.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_all_moved_find_each_other() {
    let mut cluster = Cluster::start(3).await;
    let mut directories = Vec::new();
    for member in cluster.members.drain(..) {
        directories.push(member.directory.clone());
        member.kill().await;
    }
    let mut peers = Vec::new();
    for directory in directories {
        let start = match peers.is_empty() {
            true => Start::Restart,
            false => Start::Join(peers.clone()),
        };
        let moved = start_again(config(&directory, start)).await;
        if peers.is_empty() {
            peers.push(moved.peer());
        }
        cluster.members.push(moved);
    }
    recorded(&cluster).await;
}

/// Goal: members that swapped their addresses find each other. Method: two followers, then the leader and
/// a follower.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_swapped_their_addresses_are_recorded() {
    let mut cluster = Cluster::start(3).await;
    for with_leader in [false, true] {
        let leader = cluster.leader().await;
        let first = if with_leader {
            leader
        } else {
            (leader + 1) % 3
        };
        let mut pair = [first, (leader + 2) % 3];
        pair.sort_unstable();
        let mut swapping = Vec::new();
        for position in pair.iter().rev() {
            let member = cluster.members.remove(*position);
            swapping.push((member.address, member.directory.clone()));
            member.kill().await;
        }
        let addresses: Vec<_> = swapping.iter().map(|(address, _)| *address).collect();
        for ((_, directory), address) in swapping.iter().zip(addresses.iter().rev()) {
            let config = Config {
                listening: Listening::new(&address.to_string()),
                ..config(directory, Start::Restart)
            };
            cluster.members.push(start_again(config).await);
        }
        recorded(&cluster).await;
        cluster.voters(3).await;
    }
}

/// Goal: a learner, which sends nothing by itself, is found at another address. Method: one that is not
/// promoted, with and without --join.
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_that_moved_is_recorded() {
    let mut cluster = Cluster::start(1).await;
    let address = free_address();
    let request = AddMemberRequest {
        address: address.to_string(),
        ..AddMemberRequest::default()
    };
    let mut client = clusters(&cluster.channel().await);
    client.add_member(request).await.expect("it is added");
    let peers = Start::Join(vec![cluster.members[0].peer()]);
    let directory = cluster.directory.path().join("learner");
    let learner = Config {
        listening: Listening::new(&address.to_string()),
        ..config(&directory, peers.clone())
    };
    cluster.members.push(start_again(learner).await);
    recorded(&cluster).await;
    eventually("the state of the learner", || async {
        let status = cluster.members[1].status().await;
        (status.members.len() == 2).then_some(())
    })
    .await;
    for start in [Start::Restart, peers] {
        move_member(&mut cluster, 1, start).await;
        recorded(&cluster).await;
    }
}

/// Goal: a removed member ends, also where the others have moved since.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_member_hears_of_it_from_members_that_moved() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let removed = cluster.members.remove((leader + 1) % 3);
    let directory = removed.directory.clone();
    let member_id = removed.status().await.member_id;
    removed.kill().await;
    let mut client = clusters(&cluster.channel().await);
    let request = RemoveMemberRequest { member_id };
    client.remove_member(request).await.expect("it is removed");
    for position in 0..2 {
        move_member(&mut cluster, position, Start::Restart).await;
        recorded(&cluster).await;
    }
    let peers = vec![cluster.members[0].peer()];
    let back = start_again(config(&directory, Start::Join(peers))).await;
    let ended = back.ended().await.expect_err("it was removed");
    assert!(matches!(ended, berth_scheduler::Error::Removed), "{ended}");
}

/// Goal: an address that is not the member's is not recorded, and cuts it off from nothing. Method: a
/// member advertises an address where there is nothing, one where connections are accepted and nothing is
/// answered, and that of another member.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_address_is_not_recorded() {
    let mut cluster = Cluster::start(3).await;
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().map(|address| (silent, address));
    let (_accepts, silent) = silent.expect("an address");
    for position in 0..3 {
        let other = cluster.members[(position + 1) % 3].peer();
        for advertised in ["127.0.0.1:1", &silent.to_string(), &other] {
            let member = cluster.members.remove(position);
            let (address, directory) = (member.address, member.directory.clone());
            member.kill().await;
            let listening = Listening {
                advertise: Some(advertised.to_owned()),
                ..Listening::new(&address.to_string())
            };
            let config = Config {
                listening,
                ..config(&directory, Start::Restart)
            };
            let started = start_again(config).await;
            cluster.members.insert(position, started);
            cluster.voters(3).await;
            // Two rounds of the task that records.
            tokio::time::sleep(Duration::from_secs(2)).await;
            recorded(&cluster).await;
        }
    }
}

/// Records an address as an operator, and returns what is recorded then, or why not.
async fn update(
    cluster: &Cluster,
    member_id: u64,
    address: &str,
) -> Result<Option<String>, String> {
    let mut client = clusters(&cluster.channel().await);
    let request = UpdateMemberRequest {
        member_id,
        address: address.to_owned(),
        reported: false,
    };
    let response = client.update_member(request).await;
    let response = response.map_err(|status| from_status(&status).reason)?;
    Ok(response.into_inner().member.map(|member| member.address))
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

/// Goal: an operator records only an address at which the member can be, and a member that is at another
/// one corrects the record. Method: every kind of address x running or not.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_records_where_a_member_will_be() {
    let mut cluster = Cluster::start(3).await;
    let foreign = Cluster::start(1).await;
    foreign.leader().await;
    let leader = cluster.leader().await;
    // The leader reaches itself there, and whether others do is not known.
    let leading = cluster.members[leader].status().await.member_id;
    let alias = format!("localhost:{}", cluster.members[leader].address.port());
    let refused = update(&cluster, leading, &alias).await;
    assert_eq!(refused, Err("MEMBER_AT_OTHER_ADDRESS".to_owned()));
    let position = (leader + 1) % 3;
    let own = cluster.members[position].peer();
    let id = cluster.members[position].status().await.member_id;
    let other = cluster.members[(leader + 2) % 3].peer();
    let free = free_address().to_string();
    let elsewhere = foreign.members[0].peer();
    for running in [true, false] {
        if !running {
            let member = cluster.members.remove(position);
            member.kill().await;
            eventually("the silence of the member", || async {
                let leader = &cluster.members[cluster.leader().await];
                let status = leader.status().await;
                (status.failures_tolerated == Some(0)).then_some(())
            })
            .await;
            let mut client = clusters(&cluster.channel().await);
            let request = UpdateMemberRequest {
                member_id: id,
                address: free.clone(),
                reported: true,
            };
            let refused = client.update_member(request).await.expect_err("it is off");
            assert_eq!(from_status(&refused).reason, "MEMBER_NOT_AT_ADDRESS");
        }
        let reason = |reason: &str| Err(reason.to_owned());
        assert_eq!(
            update(&cluster, 99, &free).await,
            reason("MEMBER_NOT_FOUND")
        );
        for bad in ["m 3", "m3", "http://m3:1", "0.0.0.0:7100", "[::]:7100"] {
            assert_eq!(update(&cluster, id, bad).await, reason("INVALID_FIELD"));
        }
        assert_eq!(update(&cluster, id, &other).await, reason("MEMBER_EXISTS"));
        let not_there = reason("MEMBER_NOT_AT_ADDRESS");
        assert_eq!(update(&cluster, id, &elsewhere).await, not_there);
        assert_eq!(update(&cluster, id, &own).await, Ok(Some(own.clone())));
        let moved = update(&cluster, id, &free).await;
        match running {
            true => assert_eq!(moved, reason("MEMBER_AT_OTHER_ADDRESS")),
            false => assert_eq!(moved, Ok(Some(free.clone()))),
        }
    }
    // It comes back where the operator did not expect it.
    let directory = cluster.directory.path().join(position.to_string());
    let back = start_again(config(&directory, Start::Restart)).await;
    cluster.members.insert(position, back);
    recorded(&cluster).await;
}

/// Goal: an address is recorded through the leader only; another member names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_names_the_leader() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let channel = cluster.members[(leader + 1) % 3].channel().await;
    let request = UpdateMemberRequest {
        member_id: 1,
        address: free_address().to_string(),
        reported: false,
    };
    let refused = clusters(&channel).update_member(request).await;
    let status = refused.expect_err("it follows");
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(from_status(&status).reason, "NOT_LEADER");
}
