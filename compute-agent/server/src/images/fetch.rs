//! Fetches images from the agents of other hosts: one fetch for all who wait for the same image.
//!
//! Invariant: a fetch goes on without those who called for it, and ends: with the image whole, or with
//! nothing, once the other host sends nothing for a while, sends what is not the image, or takes too long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_domain::grant::ImageGrant;
use berth_domain::image::{ImageContent, ImageFile};
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_driver::image::Source;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::agent::v1::{ReadImageRequest, ReadImageResponse};
use berth_proto::client::Dialer;
use berth_proto::operation::v1::SignedGrant;
use berth_proto::status::from_status;
use berth_tls::Expected as Peer;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::receive::{self, Incoming, Received};
use super::store::{Expected, ImageStore};

/// How many images are fetched at a time; others wait.
const FETCHES_MAX: usize = 4;

/// How long a fetch may take.
const TIME_MAX: Duration = Duration::from_secs(6 * 3_600);

/// How long the other host may send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long it is waited for a host that sends as many images as it may.
const BUSY_MAX: Duration = Duration::from_secs(600);

/// Retry delay meanwhile.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

/// What came is not the image. What the disk of this host refuses is not among these.
const NOT_THE_IMAGE: [&str; 5] = [
    "IMAGE_CHECKSUM",
    "IMAGE_INCOMPLETE",
    "IMAGE_REFUSED",
    "IMAGE_TOO_LARGE",
    "INVALID_IMAGE",
];

/// Whether the image was fetched, and was not here before; nothing while that goes on.
type Outcome = watch::Receiver<Option<Result<bool, Refusal>>>;

/// An image that is to be here, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    pub(super) store: ImageStore,
    pub(super) grant: ImageGrant,
    pub(super) content: ImageContent,
    pub(super) origin: Origin,
}

/// Where an image is.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) host: HostName,
    pub(super) address: String,
    pub(super) grant: Option<SignedGrant>,
}

/// The fetches of one agent. Cheap to clone; clones share it.
#[derive(Clone)]
pub(super) struct ImageFetches {
    underway: Arc<Mutex<BTreeMap<ImageFile, Outcome>>>,
    turns: Arc<Semaphore>,
    dialer: Dialer,
    stopping: CancellationToken,
}

/// A fetch that goes on. Dropped, it is not under way any more.
struct Underway {
    fetches: ImageFetches,
    file: ImageFile,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.fetches.lock().remove(&self.file);
    }
}

impl ImageFetches {
    pub(super) fn new(dialer: Dialer, stopping: CancellationToken) -> Self {
        Self {
            underway: Arc::default(),
            turns: Arc::new(Semaphore::new(FETCHES_MAX)),
            dialer,
            stopping,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ImageFile, Outcome>> {
        // Every change is one insertion or removal.
        self.underway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches an image, unless it is here; returns whether it was not.
    ///
    /// # Errors
    ///
    /// Why it is not here.
    pub(super) async fn fetch(&self, fetch: Fetch) -> Result<bool, Refusal> {
        let mut outcome = self.join(fetch);
        let ended = outcome.wait_for(Option::is_some).await;
        match ended.as_deref() {
            Ok(Some(result)) => result.clone(),
            Ok(None) | Err(_) => Err(Refusal::new(
                Code::Internal,
                "IMAGE_STORE_FAILED",
                "fetching the image panicked",
            )),
        }
    }

    /// Returns the outcome of the fetch that goes on, or of one that begins.
    fn join(&self, fetch: Fetch) -> Outcome {
        let mut all = self.lock();
        if let Some(outcome) = all.get(&fetch.grant.file) {
            return outcome.clone();
        }
        let (ended, outcome) = watch::channel(None);
        all.insert(fetch.grant.file.clone(), outcome.clone());
        drop(all);
        let underway = Underway {
            fetches: self.clone(),
            file: fetch.grant.file.clone(),
        };
        tokio::spawn(async move {
            let fetches = underway.fetches.clone();
            let fetched = fetches.run(&fetch).await;
            if let Err(refusal) = &fetched {
                tracing::warn!(image = %fetch.grant.file, %refusal, "an image was not fetched");
            }
            drop(underway);
            // All who waited may have gone.
            let _ = ended.send(Some(fetched));
        });
        outcome
    }

    async fn run(&self, fetch: &Fetch) -> Result<bool, Refusal> {
        if self.has(fetch).await? {
            return Ok(false);
        }
        let begun = Instant::now();
        let fetched = tokio::select! {
            fetched = timeout(TIME_MAX, self.receive(fetch)) => fetched,
            () = self.stopping.cancelled() => return Err(super::stopping()),
        };
        let source = &fetch.origin.host;
        match fetched {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) if NOT_THE_IMAGE.contains(&refusal.reason.as_str()) => {
                return Err(failed(source, &refusal.message).with("source_reason", refusal.reason));
            }
            Ok(Err(refusal)) => return Err(refusal),
            Err(_) => return Err(failed(source, "it takes too long")),
        }
        tracing::info!(
            image = %fetch.grant.file,
            from = %source,
            bytes = fetch.content.length_bytes,
            ms = begun.elapsed().as_millis(),
            "an image was fetched"
        );
        Ok(true)
    }

    /// Returns whether an image is here. One that cannot be read is not.
    async fn has(&self, fetch: &Fetch) -> Result<bool, Refusal> {
        let (store, file) = (fetch.store.clone(), fetch.grant.file.clone());
        let (content, stopping) = (fetch.content, self.stopping.clone());
        let looking = move || match store.has(&file, &content, &stopping) {
            Err(refusal) if !stopping.is_cancelled() => {
                tracing::warn!(image = %file, %refusal, "the file of an image cannot be read");
                Ok(false)
            }
            looked => looked,
        };
        let looked = tokio::task::spawn_blocking(looking).await;
        looked.unwrap_or_else(|_| {
            let message = "looking for the image panicked";
            Err(Refusal::new(Code::Internal, "IMAGE_STORE_FAILED", message))
        })
    }

    async fn receive(&self, fetch: &Fetch) -> Result<(), Refusal> {
        let (source, content) = (&fetch.origin.host, &fetch.content);
        let busy_until = Instant::now() + BUSY_MAX;
        let (mut parts, turn) = loop {
            let turn = self.turns.clone().acquire_owned().await;
            let turn = turn.map_err(|_| super::stopping())?;
            match self.open(&fetch.origin).await {
                Ok(parts) => break (parts, turn),
                Err(status) if is_busy(&status) && Instant::now() < busy_until => {
                    // Other images are fetched meanwhile.
                    drop(turn);
                    sleep(REPEAT_AFTER).await;
                }
                Err(status) => return Err(refused(source, &status)),
            }
        };
        let expected = Expected {
            format: fetch.grant.format,
            // The host that took it from its user has looked at it.
            source: Source::Berth,
            length_bytes: Some(content.length_bytes),
            sha256: Some(content.sha256),
            replaces: true,
        };
        let (store, file) = (fetch.store.clone(), fetch.grant.file.clone());
        let mut received = Received::begin(store, file, expected, turn);
        while received.push(next(&mut parts, source).await).await {}
        received.end().await.map(|_| ())
    }

    async fn open(&self, origin: &Origin) -> Result<Streaming<ReadImageResponse>, Status> {
        let meant = Peer::Agent(origin.host.to_string());
        let channel = self.dialer.channel(&origin.address, meant);
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut agent = ComputeAgentServiceClient::new(channel);
        let request = ReadImageRequest {
            grant: origin.grant.clone(),
        };
        let opened = timeout(SILENCE_MAX, agent.read_image(request)).await;
        let opened = opened.map_err(|_| Status::unavailable("it does not answer"))?;
        opened.map(tonic::Response::into_inner)
    }
}

/// Returns what another host sends next.
async fn next(parts: &mut Streaming<ReadImageResponse>, host: &HostName) -> Incoming {
    let why = match timeout(SILENCE_MAX, parts.message()).await {
        Ok(Ok(Some(message))) => match message.piece {
            Some(piece) => return receive::read(piece),
            None => failed(host, "it sent a message without a part"),
        },
        Ok(Ok(None)) => failed(host, "it ended before the end of the image"),
        Ok(Err(status)) => refused(host, &status),
        Err(_) => failed(host, "it sends nothing"),
    };
    Incoming::Broken(Some(why))
}

/// Returns whether the other host sends as many images as it may.
fn is_busy(status: &Status) -> bool {
    from_status(status).reason == "AGENT_BUSY"
}

fn refused(host: &HostName, status: &Status) -> Refusal {
    let refusal = from_status(status);
    failed(host, &refusal.message).with("source_reason", refusal.reason)
}

fn failed(host: &HostName, why: &str) -> Refusal {
    let message = format!("host {host} does not send the image: {why}");
    Refusal::new(Code::Unavailable, "IMAGE_SOURCE_FAILED", message).with("source", host)
}

#[cfg(test)]
mod tests;
