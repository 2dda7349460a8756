//! Adds an image: records it, has its first host take it, and records what is in it.
//!
//! Invariant: what was begun is completed or removed, also when the user hangs up in between. Only where the
//! schedulers do not answer an image without content is left, which a user removes.

use std::pin::pin;
use std::time::Duration;

use berth_domain::host::{Host, Liveness};
use berth_domain::image::{Image, ImageContent, ImageDownload};
use berth_domain::name::{HostName, ImageName};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::Feature;
use berth_proto::agent::v1 as agent;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::agent::v1::put_image_request::{Open as Put, Request as PutWire};
use berth_proto::conductor::v1::AddImageRequest;
use berth_proto::conductor::v1::add_image_request::{Open, Request as Wire};
use berth_proto::convert::image::read_optional_sha256;
use berth_proto::convert::{Invalid, field};
use berth_proto::image::v1 as wire;
use berth_proto::image::v1::image_piece::Piece;
use berth_proto::operation::v1::SignedGrant;
use berth_proto::status::to_status;
use berth_proto::{client, status};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use uuid::Uuid;

use super::{FETCH_TIME_MAX, status_of, too_old};
use crate::driver::Tools;
use crate::scheduler::images::Which;

/// How long a user may take for the first message, and for each part.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How many parts may be on their way to the agent.
const AHEAD_MAX: usize = 4;

/// How many hosts are looked at for the one that has an image first.
const CANDIDATES_MAX: usize = 1_000;

/// Adds an image, and returns it.
///
/// # Errors
///
/// Why it was not added.
pub(crate) async fn add(
    tools: Tools,
    mut inbound: Streaming<AddImageRequest>,
) -> Result<wire::Image, Status> {
    let open = first(&mut inbound).await?;
    read_optional_sha256(&open.sha256, "open.sha256")?;
    let host = first_host(&tools, &open.host, "open.host").await?;
    // Seen to its end even if the user disconnects.
    let adding = tokio::spawn(async move {
        let request = wire::CreateImageRequest {
            name: open.name.clone(),
            format: open.format,
            properties: open.properties.clone(),
            project: open.project.clone(),
            request_id: String::new(),
        };
        begin(&tools, &host, request, None, async |grant| {
            put(&tools, &host, open, grant, inbound).await
        })
        .await
    });
    adding.await.unwrap_or_else(|_| {
        Err(Status::internal(
            "the conductor failed while it added the image",
        ))
    })
}

/// Records an image, has `transfer` bring it to its first host under the grant, and records what is in it. What is
/// not completed is removed.
pub(super) async fn begin(
    tools: &Tools,
    host: &Host,
    request: wire::CreateImageRequest,
    download: Option<&ImageDownload>,
    transfer: impl AsyncFnOnce(Option<SignedGrant>) -> Result<ImageContent, Status>,
) -> Result<wire::Image, Status> {
    let image = tools.scheduler.create_image(request).await;
    let image = image.map_err(|refusal| to_status(&refusal))?;
    let added = async {
        let grant = granted(tools, &image, download).await?;
        let content = transfer(grant).await?;
        let completed = tools.scheduler.complete_image(&image, &content, &host.name);
        completed.await.map_err(|refusal| to_status(&refusal))
    };
    let added = added.await;
    if added.is_err() {
        abandon(tools, &image).await;
    }
    added
}

/// Returns the grant to bring an image to its first host.
async fn granted(
    tools: &Tools,
    image: &Image,
    download: Option<&ImageDownload>,
) -> Result<Option<SignedGrant>, Status> {
    let which = Which::Name(&image.name);
    let granted = match download {
        Some(download) => tools.scheduler.grant_download(which, download).await,
        None => tools.scheduler.grant_image(which).await,
    };
    let granted = granted.map_err(|refusal| to_status(&refusal))?;
    match granted.image.uid == image.uid {
        true => Ok(granted.grant),
        false => Err(to_status(&berth_domain::image::not_found(&image.name))),
    }
}

/// Returns what opens a call.
async fn first(inbound: &mut Streaming<AddImageRequest>) -> Result<Open, Status> {
    let message = timeout(SILENCE_MAX, inbound.message()).await;
    let message = message.map_err(|_| Status::deadline_exceeded("no message opens the call"))?;
    let Some(Wire::Open(open)) = message?.and_then(|message| message.request) else {
        return Err(Invalid::new("request", "has to be `open` in the first message").into());
    };
    let _: ImageName = field::name(&open.name, "open.name")?;
    if !open.file.is_empty() && open.host.is_empty() {
        return Err(Invalid::new("open.host", "is required with a file of a host").into());
    }
    Ok(open)
}

/// Returns the host that is to have an image first: the named one, or one that reports.
pub(super) async fn first_host(tools: &Tools, host: &str, field: &str) -> Result<Host, Status> {
    let is_good = |host: &Host| {
        let can = host.report.service_version.can(Feature::Images);
        host.liveness == Liveness::Up && host.report.runs_guests() && can
    };
    let name: Option<HostName> = field::optional_name(host, field)?;
    if let Some(name) = name {
        let host = tools.scheduler.host(&name).await;
        let host = host.map_err(|refusal| to_status(&refusal))?;
        return match is_good(&host) {
            true => Ok(host),
            false => Err(no_host(format!(
                "host {name} does not report, runs no VMs, or has an agent that is too old for images"
            ))),
        };
    }
    let hosts = tools.scheduler.hosts(is_good, CANDIDATES_MAX).await;
    let mut hosts = hosts.map_err(|refusal| to_status(&refusal))?;
    if hosts.is_empty() {
        let message = "no host reports that runs VMs and has an agent that knows images";
        return Err(no_host(message.to_owned()));
    }
    let chosen = Uuid::new_v4().as_u128() % hosts.len() as u128;
    Ok(hosts.swap_remove(usize::try_from(chosen).unwrap_or_default()))
}

pub(super) fn no_host(message: String) -> Status {
    let refusal = Refusal::new(Code::FailedPrecondition, "NO_HOST_FOR_IMAGE", message);
    to_status(&refusal.with_hint("see `berth host list`"))
}

/// Passes an image on to the agent of its first host.
async fn put(
    tools: &Tools,
    host: &Host,
    open: Open,
    grant: Option<SignedGrant>,
    mut inbound: Streaming<AddImageRequest>,
) -> Result<ImageContent, Status> {
    let name = &host.name;
    let channel = tools.agents.channel(name, &host.report.agent_address);
    let channel = channel.map_err(|failure| status_of(name, failure))?;
    let mut agent = ComputeAgentServiceClient::new(channel);
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let is_file = !open.file.is_empty();
    send(
        &sender,
        PutWire::Open(Put {
            grant,
            file: open.file,
            sha256: open.sha256,
        }),
    )
    .await;
    let mut sender = Some(sender).filter(|_| !is_file);
    let answer = timeout(
        FETCH_TIME_MAX,
        agent.put_image(ReceiverStream::new(receiver)),
    );
    let mut answer = pin!(answer);
    let mut why = None;
    let answer = loop {
        let next = async {
            match &sender {
                Some(sender) => pass_on(&mut inbound, sender).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = &mut answer => break answer,
            next = next => if let Some(end) = next {
                // What was not said to be complete is not: the agent leaves nothing of it.
                sender = None;
                why = Some(end);
            },
        }
    };
    let answer =
        answer.map_err(|_| Status::deadline_exceeded("the host did not take the image"))?;
    match answer {
        Ok(response) => Ok(field::required(response.into_inner().content, "content")?),
        Err(status) if status.code() == tonic::Code::Unimplemented => {
            Err(to_status(&too_old(name)))
        }
        Err(status) if client::is_unanswered(&status) => {
            Err(status_of(name, client::agent::failure(&status)))
        }
        Err(status) => {
            let mut refusal = status::from_status(&status);
            if let ("IMAGE_INCOMPLETE", Some(End::Silence)) = (&*refusal.reason, why) {
                let seconds = SILENCE_MAX.as_secs();
                refusal.message = format!("nothing came of the image for {seconds} s");
            }
            Err(to_status(&refusal))
        }
    }
}

/// Why nothing more is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The image is complete, or was broken off.
    Last,
    /// Nothing came for too long.
    Silence,
}

/// Passes on the next part; returns why no more is to come.
async fn pass_on(
    inbound: &mut Streaming<AddImageRequest>,
    sender: &mpsc::Sender<agent::PutImageRequest>,
) -> Option<End> {
    let request = match timeout(SILENCE_MAX, inbound.message()).await {
        Ok(Ok(Some(message))) => message.request,
        Ok(Ok(None) | Err(_)) => None,
        Err(_) => return Some(End::Silence),
    };
    let Some(Wire::Piece(piece)) = request else {
        return Some(End::Last);
    };
    let is_last = matches!(piece.piece, Some(Piece::Done(_)) | None);
    let goes_on = send(sender, PutWire::Piece(piece)).await && !is_last;
    (!goes_on).then_some(End::Last)
}

/// Sends to an agent; returns whether it takes more.
async fn send(sender: &mpsc::Sender<agent::PutImageRequest>, request: PutWire) -> bool {
    let request = Some(request);
    sender
        .send(agent::PutImageRequest { request })
        .await
        .is_ok()
}

/// Removes an image that was not added.
async fn abandon(tools: &Tools, image: &Image) {
    match tools.scheduler.delete_image(&image.name, image.uid).await {
        Ok(()) => {}
        // A user has removed it.
        Err(refusal) if refusal.code == Code::NotFound => {}
        Err(refusal) => {
            let image = &image.name;
            tracing::warn!(%image, %refusal, "an image without content is not removed");
        }
    }
}
