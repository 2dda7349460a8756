//! Joining that is interrupted or refused: no member without a process is left, and the same command
//! works once its reason is gone.

use std::net::TcpListener;
use std::path::Path;

use berth_process::Listening;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{JoinClusterRequest, RemoveMemberRequest};
use berth_scheduler::stop::Reason;
use berth_scheduler::{Config, Start};
use berth_store::identity;
use uuid::Uuid;

use crate::common::{Cluster, Member, config};

/// A cluster of one, and an address and a directory for a second member.
struct World {
    cluster: Cluster,
    address: String,
}

impl World {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let cluster = Cluster::start(1).await;
        cluster.leader().await;
        Self {
            address: listener.local_addr().expect("an address").to_string(),
            cluster,
        }
    }

    fn config(&self) -> Config {
        let peers = vec![self.cluster.members[0].peer()];
        Config {
            listening: Listening::new(&self.address),
            ..config(&self.cluster.directory.path().join("1"), Start::Join(peers))
        }
    }

    /// Has the cluster add the second member, which ends before it knows of it.
    async fn register(&self, disk_id: &str) -> u64 {
        let request = JoinClusterRequest {
            address: self.address.clone(),
            disk_id: disk_id.to_owned(),
            promote: true,
            service_version: self.config().service_version,
        };
        let channel = self.cluster.members[0].channel().await;
        let response = ClusterServiceClient::new(channel)
            .join_cluster(request)
            .await;
        response.expect("it is added").into_inner().member_id
    }

    async fn refused(&self, config: Config) -> (Reason, String) {
        match Member::try_start(config).await {
            Ok(_) => panic!("it is not refused"),
            Err(error) => (Reason::of(&error), error.to_string()),
        }
    }

    /// Starts the second member, and returns its number once it votes.
    async fn joins(&mut self) -> u64 {
        let member = Member::start(self.config()).await;
        self.cluster.members.push(member);
        self.cluster.voters(2).await;
        self.cluster.members[1].status().await.member_id
    }
}

fn disk_of(directory: &Path) -> String {
    let fresh = Uuid::new_v4().to_string();
    identity::joining_disk(directory, &fresh).expect("a free directory")
}

/// Goal: a member that is killed after it was added, and before it has noted that, is the same one
/// when it is started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_was_interrupted_goes_on() {
    let mut world = World::start().await;
    let disk = disk_of(&world.config().data_dir);
    let added = world.register(&disk).await;
    assert_eq!(world.joins().await, added);
    assert_eq!(world.cluster.members[0].status().await.members.len(), 2);
}

/// Goal: where the address belongs to another disk, the error names the remedy, and the remedy helps.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_another_member_is_refused_with_a_remedy() {
    let mut world = World::start().await;
    let other = world.register(&Uuid::new_v4().to_string()).await;
    let (reason, error) = world.refused(world.config()).await;
    assert_eq!(reason, Reason::JoinFailed);
    assert!(
        error.contains(&format!("remove member {other} first")),
        "{error}"
    );
    let channel = world.cluster.members[0].channel().await;
    let remove = RemoveMemberRequest { member_id: other };
    let removed = ClusterServiceClient::new(channel)
        .remove_member(remove)
        .await;
    removed.expect("it is removed");
    assert!(world.joins().await > other);
}

/// Goal: a member that is to be of another cluster changes nothing in this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_cluster_id_adds_no_member() {
    let mut world = World::start().await;
    let config = Config {
        cluster_id: Some(Uuid::new_v4().to_string()),
        ..world.config()
    };
    let (reason, error) = world.refused(config).await;
    assert_eq!(reason, Reason::OtherCluster, "{error}");
    assert_eq!(world.cluster.members[0].status().await.members.len(), 1);
    world.joins().await;
}
