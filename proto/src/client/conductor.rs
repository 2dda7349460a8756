//! The connection to a conductor that registered with the schedulers.
//!
//! Not here: which of several is called, and whether one is new enough: the caller's.

use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use berth_tls::Expected;
use tonic::Request;
use tonic::transport::Endpoint;

use super::{Dialer, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, cause_of};
use crate::cluster::v1::Service;
use crate::conductor::v1::GetServiceInfoRequest;
use crate::conductor::v1::conductor_service_client::ConductorServiceClient;
use crate::for_cluster::{ForCluster, MemberChannel};
use crate::status::from_status;

/// The timeout of a connection to a conductor, and of its first answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason of a refusal that was made here because no conductor answered.
pub const UNREACHABLE: &str = "CONDUCTOR_UNREACHABLE";

/// Connects to a conductor. Its calls are for this cluster.
///
/// # Errors
///
/// Why it cannot be reached.
pub async fn connect(
    dialer: &Dialer,
    service: &Service,
    cluster: &ForCluster,
) -> Result<MemberChannel, String> {
    let name = service.name.rsplit('/').next().unwrap_or_default();
    let expected = Expected::Conductor(Some(name.to_owned()));
    let connector = dialer.connector(expected, CONNECT_TIMEOUT);
    let endpoint = Endpoint::from_shared(service.address.clone());
    let endpoint = endpoint.map_err(|error| error.to_string())?;
    // A stream of a conductor that is cut off, or stands still, breaks in time.
    let endpoint = endpoint
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let connected = endpoint.connect_with_connector(connector).await;
    let channel = connected.map_err(|error| cause_of(&error))?;
    Ok(cluster.over(channel))
}

/// Checks that a conductor answers, and works for the cluster of the request: it may be one of before a recovery
/// that follows the old cluster.
///
/// # Errors
///
/// What it refuses, or that it does not answer.
pub async fn check(
    channel: &MemberChannel,
    request: Request<GetServiceInfoRequest>,
) -> Result<(), Refusal> {
    let mut client = ConductorServiceClient::new(channel.clone());
    let answer = client.get_service_info(request);
    match tokio::time::timeout(CONNECT_TIMEOUT, answer).await {
        Ok(Err(status)) => Err(from_status(&status)),
        Ok(Ok(_)) => Ok(()),
        Err(_) => {
            let seconds = CONNECT_TIMEOUT.as_secs();
            let message = format!("no answer within {seconds} s");
            Err(Refusal::new(Code::Unavailable, UNREACHABLE, message))
        }
    }
}
