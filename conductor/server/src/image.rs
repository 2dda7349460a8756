//! Images: added by users, copied to hosts, and fetched to where a guest is about to start.
//!
//! | module | what |
//! |---|---|
//! | [`add`] | from a user to its first host |
//! | [`download`] | from a URL to its first host |
//! | [`copy`] | to hosts that a user names |
//! | [`ensure`] | to the host of a call that needs it |
//!
//! Not here: the bytes, which go from host to host. Of an image that is added they pass through, and no
//! more than a few parts of it are here at a time.

mod add;
mod copy;
mod download;
mod ensure;

use std::time::Duration;

use berth_domain::agent::Failure;
use berth_domain::grant;
use berth_domain::image::{COPIES_MAX, Image};
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::TOO_OLD;
use berth_proto::agent::v1::FetchImageRequest;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::client;
use berth_proto::convert::ResourceName as _;
use tonic::Status;
use uuid::Uuid;

use crate::driver::Tools;
use crate::scheduler::images::{GrantedImage, Which};

pub(crate) use add::add;
pub(crate) use copy::{Copies, copy};
pub(crate) use download::{Downloading, download};
pub(crate) use ensure::{ensure, needs};

/// How long the fetching of an image may take.
const FETCH_TIME_MAX: Duration = Duration::from_secs(6 * 3_600);

/// From how many hosts it is tried to fetch an image, one after the other.
const SOURCES_MAX: usize = 3;

/// Has a host fetch an image, unless it has it, and returns whether it did not.
async fn fetch(
    tools: &Tools,
    which: Which<'_>,
    host: &HostName,
    address: &str,
) -> Result<bool, Failure> {
    let granted = tools.scheduler.grant_image(which).await;
    let granted = granted.map_err(|refusal| {
        let is_silent = matches!(refusal.code, Code::Unavailable | Code::DeadlineExceeded);
        match is_silent {
            true => Failure::Unreachable {
                message: format!("no scheduler says which hosts have the image: {refusal}"),
            },
            false => Failure::Refused(refusal),
        }
    })?;
    granted.image.ready().map_err(Failure::Refused)?;
    let mut failure = None;
    for (source, source_address) in sources(&granted, host, address) {
        match fetch_from(tools, &granted, (host, address), (&source, &source_address)).await {
            Ok(fetched) => {
                record(tools, &granted, host).await;
                return Ok(fetched);
            }
            Err(Failure::Refused(refusal)) if refusal.reason == "IMAGE_SOURCE_FAILED" => {
                forget_lost(tools, &granted, &refusal).await;
                failure = Some(refusal);
            }
            // The next call gets a newer one.
            Err(Failure::Refused(refusal)) if grant::is_renewable(&refusal) => {
                let message = refusal.message;
                return Err(Failure::Unreachable { message });
            }
            Err(failure) => return Err(failure),
        }
    }
    if granted.image.copies.contains(host) {
        // It would not have been called to fetch it.
        set_copy(tools, &granted, host, false).await;
    }
    Err(Failure::Refused(not_available(&granted, host, failure)))
}

/// Returns the hosts from which an image can be fetched: a few of those that have it, others each time, so
/// that many who fetch it at once spread over them. Where no other host has it, the host itself: it may.
fn sources(granted: &GrantedImage, host: &HostName, address: &str) -> Vec<(HostName, String)> {
    let others = granted.sources.iter().filter(|(source, _)| source != host);
    let mut others: Vec<_> = others.cloned().collect();
    if others.is_empty() {
        return vec![(host.clone(), address.to_owned())];
    }
    let first = Uuid::new_v4().as_u128() % others.len() as u128;
    others.rotate_left(usize::try_from(first).unwrap_or_default());
    others.truncate(SOURCES_MAX);
    others
}

async fn fetch_from(
    tools: &Tools,
    granted: &GrantedImage,
    (host, address): (&HostName, &str),
    (source, source_address): (&HostName, &str),
) -> Result<bool, Failure> {
    let mut agent = ComputeAgentServiceClient::new(tools.agents.channel(host, address)?);
    let request = FetchImageRequest {
        grant: granted.grant.clone(),
        source: source.resource_name(),
        source_address: source_address.to_owned(),
    };
    let answer = tokio::time::timeout(FETCH_TIME_MAX, agent.fetch_image(request)).await;
    let answer = answer.map_err(|_| Failure::Unreachable {
        message: "the image was not fetched in time".to_owned(),
    })?;
    match answer {
        Ok(response) => Ok(response.into_inner().fetched),
        Err(status) if status.code() == tonic::Code::Unimplemented => {
            Err(Failure::Refused(too_old(host)))
        }
        Err(status) => Err(client::agent::failure(&status)),
    }
}

/// Records a copy that is not recorded yet. Where that fails the host fetches nothing the next time either.
async fn record(tools: &Tools, granted: &GrantedImage, host: &HostName) {
    let copies = &granted.image.copies;
    if copies.contains(host) || copies.len() >= COPIES_MAX {
        return;
    }
    set_copy(tools, granted, host, true).await;
}

/// Records that a host does not have a copy any more, where it is not there, or is something else. It is the
/// host that was called, which another caller may have chosen.
async fn forget_lost(tools: &Tools, granted: &GrantedImage, why: &Refusal) {
    let reason = why.metadata.get("source_reason").map(String::as_str);
    let is_lost = matches!(reason, Some("IMAGE_FILE_NOT_FOUND" | "IMAGE_CHECKSUM"));
    let source = why.metadata.get("source").map(String::as_str);
    let source = source.and_then(|source| granted.image.copies.get(source));
    if let Some(source) = source.filter(|_| is_lost) {
        let image = granted.image.file();
        tracing::warn!(%image, host = %source, "a copy of an image is lost");
        set_copy(tools, granted, source, false).await;
    }
}

async fn set_copy(tools: &Tools, granted: &GrantedImage, host: &HostName, present: bool) {
    let scheduler = &tools.scheduler;
    let recorded = scheduler.set_image_copy(&granted.image, host, present);
    if let Err(refusal) = recorded.await {
        let image = granted.image.file();
        tracing::warn!(%image, %host, present, %refusal, "a copy of an image is not recorded");
    }
}

fn not_available(granted: &GrantedImage, host: &HostName, why: Option<Refusal>) -> Refusal {
    let Image { name, copies, .. } = &granted.image;
    let others: Vec<&str> = copies
        .iter()
        .filter(|c| *c != host)
        .map(HostName::as_str)
        .collect();
    let is_source = |(source, _): &(HostName, String)| source != host;
    let (why, hint) = match (others.as_slice(), why) {
        ([], _) => (
            "no other host has it".to_owned(),
            format!(
                "copy its file {} back into the image directory of host {host}, or add it as another \
                 image (`berth image add`) and rebuild the VM from that",
                granted.image.file()
            ),
        ),
        (others, Some(why)) if granted.sources.iter().any(is_source) => (
            why.message,
            format!(
                "bring one of the hosts back that have it: {}",
                others.join(" ")
            ),
        ),
        (others, _) => (
            format!(
                "of the hosts that have it none reports: {}",
                others.join(" ")
            ),
            "bring one of them back".to_owned(),
        ),
    };
    let message = format!("image {name} cannot be fetched to host {host}: {why}");
    Refusal::new(Code::FailedPrecondition, "IMAGE_NOT_AVAILABLE", message)
        .with("image", name)
        .with("host", host)
        .with_hint(hint)
}

fn too_old(host: &HostName) -> Refusal {
    let message = format!("the agent of host {host} is too old for images of the cluster");
    let refusal = Refusal::new(Code::FailedPrecondition, TOO_OLD, message);
    let hint = format!("upgrade the compute agent of host {host}");
    refusal.with_hint(hint).with("host", host)
}

/// Returns the status of what an agent did not do.
fn status_of(host: &HostName, failure: Failure) -> Status {
    berth_proto::status::to_status(&refusal_of(host, failure))
}

fn refusal_of(host: &HostName, failure: Failure) -> Refusal {
    match failure {
        Failure::Refused(refusal) => refusal,
        Failure::Unreachable { message } => {
            let message = format!("the agent of host {host} does not answer: {message}");
            Refusal::new(Code::Unavailable, "HOST_UNREACHABLE", message).with("host", host)
        }
    }
}
