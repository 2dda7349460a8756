//! Adds an image that its first host downloads, and passes on how far that is.
//!
//! Not here: the bytes, which go to the host alone, and which addresses it connects to, which its agent checks.
//!
//! Invariant: what was begun is completed or removed, also when the user disconnects or the conductor stops in
//! between; the agent leaves nothing of what is broken off.

use std::time::Duration;

use berth_domain::host::Host;
use berth_domain::image::{ImageContent, ImageDownload, ImageUrl};
use berth_domain::name::ImageName;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::agent::v1 as agent;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::agent::v1::download_image_response::Event as AgentEvent;
use berth_proto::conductor::v1::download_image_response::Event;
use berth_proto::conductor::v1::{DownloadImageRequest, DownloadImageResponse};
use berth_proto::convert::field;
use berth_proto::image::v1 as wire;
use berth_proto::operation::v1::SignedGrant;
use berth_proto::status::to_status;
use berth_proto::{client, status};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::add::{begin, first_host};
use super::{FETCH_TIME_MAX, status_of, too_old};
use crate::driver::Tools;

/// How many messages may be on their way to a user.
const AHEAD_MAX: usize = 2;

/// How long the agent may report nothing. It does once a second.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// What is on its way to a user.
pub(crate) type Downloading = ReceiverStream<Result<DownloadImageResponse, Status>>;

type Sender = mpsc::Sender<Result<DownloadImageResponse, Status>>;

/// Adds an image from a URL, and sends how far it is, and the image at the end.
///
/// # Errors
///
/// When the request is not valid, or no host can take the image. What fails later is sent.
pub(crate) async fn download(
    tools: Tools,
    request: DownloadImageRequest,
    stopping: CancellationToken,
) -> Result<Downloading, Status> {
    let _: ImageName = field::name(&request.name, "name")?;
    let download: ImageDownload = field::required(request.download, "download")?;
    let host = first_host(&tools, &request.host, "host").await?;
    let request = wire::CreateImageRequest {
        name: request.name,
        format: request.format,
        properties: request.properties,
        project: request.project,
        request_id: String::new(),
    };
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    // Seen to its end even if the user disconnects: then the end is the removal.
    tokio::spawn(async move {
        let transfer = async |grant| {
            tokio::select! {
                content = receive(&tools, &host, grant, &download.url, &sender) => content,
                () = sender.closed() => Err(Status::cancelled("the user has disconnected")),
                () = stopping.cancelled() => {
                    let why = "the conductor stops before the image is downloaded";
                    let refusal = Refusal::new(Code::Unavailable, "STOPPING", why);
                    Err(to_status(&refusal.with_hint("repeat the request at another one")))
                }
            }
        };
        let added = begin(&tools, &host, request, Some(&download), transfer).await;
        let last = added.map(|image| response(Event::Image(image)));
        // The user may have disconnected.
        let _ = sender.send(last).await;
    });
    Ok(ReceiverStream::new(receiver))
}

fn response(event: Event) -> DownloadImageResponse {
    DownloadImageResponse { event: Some(event) }
}

/// Has the agent of the first host download an image, and passes on how far it is.
async fn receive(
    tools: &Tools,
    host: &Host,
    grant: Option<SignedGrant>,
    url: &ImageUrl,
    sender: &Sender,
) -> Result<ImageContent, Status> {
    let name = &host.name;
    let channel = tools.agents.channel(name, &host.report.agent_address);
    let channel = channel.map_err(|failure| status_of(name, failure))?;
    let mut agent = ComputeAgentServiceClient::new(channel);
    let refused = |status: Status| refusal(host, &status);
    let receiving = async {
        let request = agent::DownloadImageRequest { grant };
        let opened = agent.download_image(request).await;
        let mut events = opened.map_err(refused)?.into_inner();
        loop {
            let message = timeout(SILENCE_MAX, events.message()).await;
            let message = message.map_err(|_| silent(url))?.map_err(refused)?;
            match message.and_then(|message| message.event) {
                // A user who reads slowly misses some.
                Some(AgentEvent::Progress(progress)) => {
                    drop(sender.try_send(Ok(response(Event::Progress(progress)))));
                }
                Some(AgentEvent::Content(content)) => {
                    return Ok(field::required(Some(content), "content")?);
                }
                None => return Err(silent(url)),
            }
        }
    };
    let received = timeout(FETCH_TIME_MAX, receiving).await;
    received.unwrap_or_else(|_| Err(silent(url)))
}

fn silent(url: &ImageUrl) -> Status {
    Status::deadline_exceeded(format!("the host did not download the image from {url}"))
}

/// Returns the status of what an agent did not download.
fn refusal(host: &Host, status: &Status) -> Status {
    let name = &host.name;
    if status.code() == tonic::Code::Unimplemented {
        return to_status(&too_old(name));
    }
    match client::is_unanswered(status) {
        true => status_of(name, client::agent::failure(status)),
        false => to_status(&status::from_status(status)),
    }
}
