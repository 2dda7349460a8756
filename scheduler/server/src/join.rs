//! Becoming a member: asking running members to take this one in.
//!
//! Not the server's side of it: see `service::cluster`.

use std::time::Duration;

use berth_proto::client::Dialer;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    GetClusterStatusRequest, GetClusterStatusResponse, JoinClusterRequest,
};
use berth_tls::Expected;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

/// How long asking goes on before it is given up.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A place in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cluster_id: String,
    pub(crate) member_id: u64,
}

/// Asks the peers in turn until one of them gives a place. Elections and other joins under way
/// pass, so such answers are no reason to give up.
pub(crate) async fn join(
    peers: &[String],
    address: &str,
    disk_id: &str,
    service_version: u32,
    dialer: &Dialer,
) -> Result<Place, String> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut asked: Vec<String> = peers.to_vec();
    let mut next = 0;
    loop {
        let peer = asked[next % asked.len()].clone();
        next += 1;
        let status = match ask(&peer, address, disk_id, service_version, dialer).await {
            Ok(place) => return Ok(place),
            Err(status) => status,
        };
        let what = format!("{peer} says: {}", status.message());
        let passes_by_itself = matches!(
            status.code(),
            Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::Cancelled
        );
        let may_pass = passes_by_itself || is_change_pending(&status);
        if !may_pass || tokio::time::Instant::now() >= deadline {
            return Err(what);
        }
        tracing::info!("not a member yet, asking again: {what}");
        match leader_of(&peer, dialer).await {
            Some(leader) if !asked.contains(&leader) => {
                asked.insert(next % (asked.len() + 1), leader);
                next %= asked.len();
            }
            Some(_) | None => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn ask(
    peer: &str,
    address: &str,
    disk_id: &str,
    service_version: u32,
    dialer: &Dialer,
) -> Result<Place, tonic::Status> {
    let request = JoinClusterRequest {
        address: address.to_owned(),
        disk_id: disk_id.to_owned(),
        promote: true,
        service_version,
    };
    let answer = client(peer, dialer).await?.join_cluster(request).await?;
    let answer = answer.into_inner();
    Ok(Place {
        cluster_id: answer.cluster_id,
        member_id: answer.member_id,
    })
}

/// Returns the address of the leader as this peer knows it, as `host:port`.
async fn leader_of(peer: &str, dialer: &Dialer) -> Option<String> {
    let address = status_of(peer, dialer).await?.leader_address;
    let bare = address
        .split_once("://")
        .map_or(&*address, |(_, bare)| bare);
    (!bare.is_empty()).then(|| bare.to_owned())
}

/// Returns the cluster of the first peer that answers, with that peer.
pub(crate) async fn cluster_of(peers: &[String], dialer: &Dialer) -> Option<(String, String)> {
    for peer in peers {
        let status = status_of(peer, dialer).await;
        let cluster = status.map(|status| status.cluster_id).unwrap_or_default();
        if !cluster.is_empty() {
            return Some((peer.clone(), cluster));
        }
    }
    None
}

/// Returns what a member knows of its cluster, if it answers.
pub(crate) async fn status_of(peer: &str, dialer: &Dialer) -> Option<GetClusterStatusResponse> {
    let mut client = client(peer, dialer).await.ok()?;
    let answer = client.get_cluster_status(GetClusterStatusRequest {}).await;
    Some(answer.ok()?.into_inner())
}

async fn client(
    peer: &str,
    dialer: &Dialer,
) -> Result<ClusterServiceClient<Channel>, tonic::Status> {
    let unavailable = |error: tonic::transport::Error| {
        tonic::Status::unavailable(berth_process::run::chain(&error))
    };
    let endpoint = Endpoint::from_shared(dialer.url(peer))
        .map_err(unavailable)?
        .timeout(CALL_TIMEOUT);
    let connector = dialer.connector(Expected::Scheduler, CALL_TIMEOUT);
    let connected = endpoint.connect_with_connector(connector).await;
    let channel = connected.map_err(unavailable)?;
    Ok(ClusterServiceClient::new(channel))
}

fn is_change_pending(status: &tonic::Status) -> bool {
    berth_proto::status::from_status(status).reason == crate::service::CHANGE_PENDING
}
