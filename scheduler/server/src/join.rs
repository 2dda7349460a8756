//! Joining a cluster: requests to running members to add this one.
//!
//! Not the server's side of it: see `service::cluster`. Which peer is next, and which refusals pass,
//! is in `berth_decide::joining`.

use std::time::Duration;

use berth_decide::joining::{Peers, is_transient};
use berth_proto::client::Dialer;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    GetClusterStatusRequest, GetClusterStatusResponse, JoinClusterRequest,
};
use berth_tls::Expected;
use tonic::transport::{Channel, Endpoint};

/// How long joining is retried.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// This member's id in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) cluster_id: String,
    pub(crate) member_id: u64,
}

/// Tries the peers in turn until one of them adds this member. Elections and other joins in progress
/// are transient, so such errors are retried.
pub(crate) async fn join(
    peers: &[String],
    address: &str,
    disk_id: &str,
    service_version: u32,
    dialer: &Dialer,
) -> Result<Membership, String> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut known = Peers::new(peers);
    loop {
        let peer = known.take_next().unwrap_or_default();
        let status = match join_through(&peer, address, disk_id, service_version, dialer).await {
            Ok(membership) => return Ok(membership),
            Err(status) => status,
        };
        let refusal = berth_proto::status::from_status(&status);
        let hint = refusal.hint.as_ref().map(|hint| format!("; {hint}"));
        let hint = hint.unwrap_or_default();
        let what = format!("{peer} says: {}{hint}", refusal.message);
        if !is_transient(&refusal) || tokio::time::Instant::now() >= deadline {
            return Err(what);
        }
        tracing::info!("join failed, retrying: {what}");
        if !known.learn(leader_of(&peer, dialer).await) {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn join_through(
    peer: &str,
    address: &str,
    disk_id: &str,
    service_version: u32,
    dialer: &Dialer,
) -> Result<Membership, tonic::Status> {
    let request = JoinClusterRequest {
        address: address.to_owned(),
        disk_id: disk_id.to_owned(),
        promote: true,
        service_version,
    };
    let response = client(peer, dialer).await?.join_cluster(request).await?;
    let response = response.into_inner();
    Ok(Membership {
        cluster_id: response.cluster_id,
        member_id: response.member_id,
    })
}

/// Returns the address of the leader as this peer knows it, as `host:port`.
async fn leader_of(peer: &str, dialer: &Dialer) -> Option<String> {
    let address = status_of(peer, dialer).await?.leader_address;
    let bare = without_scheme(&address);
    (!bare.is_empty()).then(|| bare.to_owned())
}

/// Returns the `host:port` of a URL.
pub(crate) fn without_scheme(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, bare)| bare)
}

/// Returns the first peer that responds, and its cluster.
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

/// Returns the cluster status from a member, if it responds.
pub(crate) async fn status_of(peer: &str, dialer: &Dialer) -> Option<GetClusterStatusResponse> {
    let mut client = client(peer, dialer).await.ok()?;
    let response = client.get_cluster_status(GetClusterStatusRequest {}).await;
    Some(response.ok()?.into_inner())
}

/// Returns a client of a peer, if it accepts connections.
pub(crate) async fn client(
    peer: &str,
    dialer: &Dialer,
) -> Result<ClusterServiceClient<Channel>, tonic::Status> {
    let unavailable = |error: tonic::transport::Error| {
        tonic::Status::unavailable(berth_process::error_chain(&error))
    };
    let endpoint = Endpoint::from_shared(dialer.url(peer))
        .map_err(unavailable)?
        .timeout(CALL_TIMEOUT);
    let connector = dialer.connector(Expected::Scheduler, CALL_TIMEOUT);
    let connected = endpoint.connect_with_connector(connector).await;
    let channel = connected.map_err(unavailable)?;
    Ok(ClusterServiceClient::new(channel))
}
