//! Downloads an image that is being added from the URL of its grant.
//!
//! ```text
//!   grant ──▶ URL ──▶ addresses, checked ──▶ response ──redirection, 5 at most──▶ URL ▲
//!                                               └──file──▶ blocks ──▶ `receive`
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`address`] | which addresses are connected to |
//! | [`http`] | one request |
//! | [`blocks`] | the bytes as parts of an image |
//!
//! Not here: what is in an image, which is checked as of any other.
//!
//! Invariant: it ends: with the image whole, or with nothing, once its server sends nothing for a while, sends
//! too much, takes too long, or the caller has disconnected. Each redirection is read and checked as the first
//! URL was, and none leads from https to http.

mod address;
mod blocks;
mod http;

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_domain::grant::ImageGrant;
use berth_domain::image::{ImageContent, ImageDownload, ImageUrl, Scheme};
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_driver::image::Source;
use berth_proto::agent::v1::DownloadImageResponse;
use berth_proto::agent::v1::download_image_response::Event;
use berth_proto::status::to_status;
use berth_proto::types::v1::DownloadProgress;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::blocks::Blocks;
use self::http::{Answer, FileBody};
use super::receive::{Incoming, Received};
use super::store::{Expected, ImageStore};
use crate::config::images::Settings;

pub(super) use self::http::Limits;

/// How many redirections are followed.
const REDIRECTIONS_MAX: usize = 5;

/// How often is reported how far a download is.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// What the servers of images may take of this agent.
pub(super) const LIMITS: Limits = Limits {
    connect: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    total: Duration::from_secs(6 * 3_600),
};

/// What goes to the caller.
pub(super) type Sender = mpsc::Sender<Result<DownloadImageResponse, Status>>;

/// An image that is downloaded.
pub(super) struct Download {
    pub(super) host: HostName,
    pub(super) settings: Settings,
    pub(super) limits: Limits,
    pub(super) store: ImageStore,
    pub(super) grant: ImageGrant,
    pub(super) download: ImageDownload,
    pub(super) stopping: CancellationToken,
}

/// How far it is.
#[derive(Debug, Default)]
struct Progress {
    received: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    fn to_event(&self) -> Event {
        Event::Progress(DownloadProgress {
            received_bytes: self.received.load(Ordering::Relaxed),
            total_bytes: self.total.load(Ordering::Relaxed),
        })
    }
}

impl Download {
    /// Downloads the image, and reports to the caller how far it is and how it ended. `turn` is held as long
    /// as anything is written.
    pub(super) async fn serve(self, turn: OwnedSemaphorePermit, sender: Sender) {
        let progress = Progress::default();
        let mut running = pin!(self.run(turn, &progress, &sender));
        let mut ticks = interval(REPORT_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut running => break outcome,
                // A caller who reads slowly misses some.
                _ = ticks.tick() => drop(sender.try_send(Ok(response(progress.to_event())))),
            }
        };
        let image = &self.grant.file;
        match &outcome {
            Ok(content) => {
                let bytes = content.length_bytes;
                tracing::info!(%image, from = %self.download.url, bytes, "an image was downloaded");
            }
            Err(refusal) => {
                tracing::warn!(%image, from = %self.download.url, %refusal, "an image was not downloaded");
            }
        }
        let last = outcome
            .map(|content| response(Event::Content((&content).into())))
            .map_err(|refusal| to_status(&super::at_host(&self.host, refusal)));
        // The caller may have disconnected.
        let _ = sender.send(last).await;
    }

    async fn run(
        &self,
        turn: OwnedSemaphorePermit,
        progress: &Progress,
        sender: &Sender,
    ) -> Result<ImageContent, Refusal> {
        let end = Instant::now() + self.limits.total;
        let opened = tokio::select! {
            opened = timeout_at(end, self.open()) => opened,
            why = self.cancelled(sender) => return Err(why),
        };
        let opened = opened.map_err(|_| failed(&self.download.url, "it takes too long"))?;
        let (url, mut file) = opened?;
        let max = self.settings.download_mib_max << 20;
        if file.length.is_some_and(|length| length > max) {
            return Err(too_large(&url, max));
        }
        let total = file.length.unwrap_or_default();
        progress.total.store(total, Ordering::Relaxed);
        let expected = Expected {
            format: self.grant.format,
            source: Source::User,
            length_bytes: file.length,
            sha256: self.download.sha256,
            replaces: false,
        };
        let image = self.grant.file.clone();
        let mut received = Received::begin(self.store.clone(), image, expected, turn);
        let mut blocks = Blocks::default();
        // Whatever breaks it off is the reason that the writer returns, once nothing is left.
        loop {
            let next = tokio::select! {
                next = timeout_at(end, next(&mut file, &url, self.limits.idle)) => {
                    next.unwrap_or_else(|_| Err(failed(&url, "it takes too long")))
                }
                why = self.cancelled(sender) => Err(why),
            };
            let bytes = match next {
                Ok(Some(bytes)) => bytes,
                Ok(None) => {
                    if push_all(&mut received, blocks.rest()).await {
                        received.push(Incoming::Done).await;
                    }
                    break;
                }
                Err(why) => {
                    received.push(Incoming::Broken(Some(why))).await;
                    break;
                }
            };
            let count = progress
                .received
                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if count + bytes.len() as u64 > max {
                let why = too_large(&url, max);
                received.push(Incoming::Broken(Some(why))).await;
                break;
            }
            if !push_all(&mut received, blocks.add(&bytes)).await {
                break;
            }
        }
        received.end().await
    }

    /// Follows redirections to the file.
    async fn open(&self) -> Result<(ImageUrl, Box<FileBody>), Refusal> {
        let mut url = self.download.url.clone();
        let has_checksum = self.download.sha256.is_some();
        for _ in 0..=REDIRECTIONS_MAX {
            let answer = http::get(&self.settings, &self.limits, &url, has_checksum).await?;
            let reference = match answer {
                Answer::File(file) => return Ok((url, file)),
                Answer::Redirection(reference) => reference,
            };
            let next = url.join(&reference);
            // Not repeated: it may be anything.
            let next = next.map_err(|why| refused(&url, &format!("its redirection {why}")))?;
            if (url.scheme(), next.scheme()) == (Scheme::Https, Scheme::Http) {
                return Err(refused(&url, "it redirects from https to http"));
            }
            url = next;
        }
        let why = format!("it redirects more than {REDIRECTIONS_MAX} times");
        Err(failed(&self.download.url, &why))
    }

    /// Returns why the download is not to go on, once it is not.
    async fn cancelled(&self, sender: &Sender) -> Refusal {
        tokio::select! {
            () = self.stopping.cancelled() => super::stopping(),
            () = sender.closed() => {
                let message = "the conductor disconnected".to_owned();
                super::refused("IMAGE_INCOMPLETE", message)
            }
        }
    }
}

/// Returns the bytes that come next; nothing at the end.
async fn next(
    file: &mut FileBody,
    url: &ImageUrl,
    idle: Duration,
) -> Result<Option<bytes::Bytes>, Refusal> {
    loop {
        let frame = timeout(idle, file.body.frame()).await;
        match frame.map_err(|_| failed(url, "it sends nothing"))? {
            None => return Ok(None),
            Some(Ok(frame)) => {
                // Others are trailers.
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
            Some(Err(error)) => {
                let why = http::error_chain(&error);
                return Err(failed(url, &format!("it broke off: {why}")));
            }
        }
    }
}

/// Has parts written; returns whether more are expected.
async fn push_all(
    received: &mut Received,
    parts: impl IntoIterator<Item = super::store::ImagePart>,
) -> bool {
    for part in parts {
        if !received.push(Incoming::Part(part)).await {
            return false;
        }
    }
    true
}

fn response(event: Event) -> DownloadImageResponse {
    DownloadImageResponse { event: Some(event) }
}

/// Returns the refusal of a server that does not send the image.
fn failed(url: &ImageUrl, why: &str) -> Refusal {
    let message = format!("{url} does not send the image: {why}");
    super::refused("IMAGE_DOWNLOAD_FAILED", message)
}

/// Returns the refusal of what the host does not connect to.
fn refused(url: &ImageUrl, why: &str) -> Refusal {
    let message = format!("nothing is downloaded from {url}: {why}");
    super::refused("IMAGE_URL_REFUSED", message).with_hint(
        "download it where it can be reached, and send it: `berth image add NAME --file -`; exceptions are \
         listed in images.allow_addresses of the agents",
    )
}

fn too_large(url: &ImageUrl, max: u64) -> Refusal {
    let mib = max >> 20;
    let message = format!("the image of {url} has more than {mib} MiB");
    Refusal::new(Code::FailedPrecondition, "IMAGE_TOO_LARGE", message).with_hint(
        "raise images.download_mib_max of the agent, or send it: `berth image add NAME --file -`",
    )
}

#[cfg(test)]
mod tests;
