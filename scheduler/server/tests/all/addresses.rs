//! Members that start at another address than the recorded one.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use berth_process::Listening;
use berth_proto::cluster::v1::UpdateMemberRequest;
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

/// Goal: a member that is started at another address is found and recorded there, whoever it is. Method:
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

/// Goal: an address that is not the member's is not recorded, and cuts it off from nothing. Method: a
/// member advertises an address where there is nothing, and that of another member.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_address_is_not_recorded() {
    let mut cluster = Cluster::start(3).await;
    for position in 0..3 {
        let other = cluster.members[(position + 1) % 3].peer();
        for advertised in ["127.0.0.1:1", &other] {
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
        must_answer: false,
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
                must_answer: true,
            };
            let refused = client.update_member(request).await.expect_err("it is off");
            assert_eq!(from_status(&refused).reason, "MEMBER_NOT_AT_ADDRESS");
        }
        let reason = |reason: &str| Err(reason.to_owned());
        assert_eq!(
            update(&cluster, 99, &free).await,
            reason("MEMBER_NOT_FOUND")
        );
        assert_eq!(update(&cluster, id, "m 3").await, reason("INVALID_FIELD"));
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
        must_answer: false,
    };
    let refused = clusters(&channel).update_member(request).await;
    let status = refused.expect_err("it follows");
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(from_status(&status).reason, "NOT_LEADER");
}
