//! Images of the cluster on this host: taken from conductors, downloaded, fetched from other hosts, sent to
//! them, and deleted when the cluster does not have them any more.
//!
//! ```text
//!   conductor ──PutImage──▶ host ◀──ReadImage── another host, at FetchImage
//!                            ▲└───HTTP─── the server of a URL, at DownloadImage
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`store`] | the files |
//! | [`receive`] | an image as it comes, wherever it comes from |
//! | [`download`] | from a URL |
//! | [`fetch`] | from the agent of another host, once for all who wait for it |
//! | [`collect`] | files that the cluster does not need any more |
//!
//! Invariant: what is stored is what the scheduler granted. The checksum is that of the grant, not one that
//! a conductor or another agent states.

pub(crate) mod collect;
mod download;
mod fetch;
mod receive;
mod store;

use std::sync::Arc;
use std::time::Duration;

use berth_agent_core::Facts;
use berth_domain::grant::{self, ImageGrant};
use berth_domain::id::TimeMs;
use berth_domain::image::{ImageContent, ImageFile};
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::Feature;
use berth_process::access::{self, audit};
use berth_process::wall_clock_ms;
use berth_proto::agent::v1::put_image_request::{Open, Request as Put};
use berth_proto::agent::v1::{
    DownloadImageRequest, DownloadImageResponse, FetchImageRequest, FetchImageResponse,
    PutImageRequest, PutImageResponse, ReadImageRequest, ReadImageResponse,
};
use berth_proto::client::Dialer;
use berth_proto::convert::image::read_optional_sha256;
use berth_proto::convert::{Invalid, field};
use berth_proto::image::v1::ImagePiece;
use berth_proto::image::v1::image_piece::{Done, Piece};
use berth_proto::operation::v1::SignedGrant;
use berth_proto::status::to_status;
use berth_tls::Identity;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, Streaming};

use self::download::Download;
use self::fetch::{Fetch, ImageFetches, Origin};
use self::receive::{Incoming, Received};
use self::store::{Expected, ImagePart, ImageReader, Sum};
use crate::config::images::Settings;
use crate::feature;
use crate::grants::Grants;

pub(crate) use self::store::ImageStore;

/// How many images are taken from conductors, or downloaded, at a time.
const PUTS_MAX: usize = 4;

/// To how many other agents images are sent at a time.
const READERS_MAX: usize = 8;

/// How many parts may be on their way to a reader.
const AHEAD_MAX: usize = 2;

/// How long a conductor may take for its first message, and for each part.
const SILENCE_MAX: Duration = Duration::from_secs(60);

type Messages<T> = ReceiverStream<Result<T, Status>>;

/// The images of this host.
pub(crate) struct Images {
    facts: Facts,
    /// None where no directory is configured for them.
    store: Option<ImageStore>,
    settings: Settings,
    grants: Grants,
    puts: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    fetches: ImageFetches,
    stopping: CancellationToken,
}

impl Images {
    pub(crate) fn new(
        facts: Facts,
        store: Option<ImageStore>,
        settings: Settings,
        grants: Grants,
        dialer: Dialer,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            facts,
            store,
            settings,
            grants,
            puts: Arc::new(Semaphore::new(PUTS_MAX)),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            fetches: ImageFetches::new(dialer, stopping.clone()),
            stopping,
        }
    }

    /// Takes an image that is being added.
    ///
    /// # Errors
    ///
    /// When it is not granted, or not what it is declared to be. Nothing is left of it then.
    pub(crate) async fn put(
        &self,
        request: Request<Streaming<PutImageRequest>>,
    ) -> Result<PutImageResponse, Status> {
        feature::gate(&self.facts, Feature::Images)?;
        let caller = access::caller(request.extensions()).cloned();
        let mut inbound = request.into_inner();
        let open = first(&mut inbound).await?;
        let conductor = caller.as_deref().map(|caller| caller.name.as_str());
        let grant = self.granted(
            "PutImage",
            caller.as_deref(),
            conductor,
            open.grant.as_ref(),
        )?;
        let store = self.store().map_err(|refusal| to_status(&refusal))?.clone();
        incomplete(&grant).map_err(|refusal| to_status(&refusal))?;
        if grant.download.is_some() {
            let refusal = grant::invalid("it is for a download");
            return Err(to_status(&refusal));
        }
        let sha256 = read_optional_sha256(&open.sha256, "open.sha256")?;
        let Ok(turn) = self.puts.clone().try_acquire_owned() else {
            return Err(to_status(&busy(&self.facts.host, "takes", PUTS_MAX)));
        };
        let taken = match open.file.is_empty() {
            true => {
                let expected = Expected {
                    format: grant.format,
                    source: berth_driver::image::Source::User,
                    length_bytes: None,
                    sha256,
                    replaces: false,
                };
                let mut received = Received::begin(store, grant.file.clone(), expected, turn);
                while received.push(self.next(&mut inbound).await).await {}
                received.end().await
            }
            false => {
                let stopping = self.stopping.clone();
                receive::copy(store, &grant, open.file, sha256, turn, stopping).await
            }
        };
        let content = taken.map_err(|refusal| to_status(&at_host(&self.facts.host, refusal)))?;
        tracing::info!(image = %grant.file, bytes = content.length_bytes, "an image was taken");
        Ok(PutImageResponse {
            content: Some((&content).into()),
        })
    }

    /// Downloads an image that is being added.
    ///
    /// # Errors
    ///
    /// When it is not granted. What fails later is sent as the last message, and nothing is left then.
    pub(crate) async fn download(
        &self,
        request: Request<DownloadImageRequest>,
    ) -> Result<Messages<DownloadImageResponse>, Status> {
        feature::gate(&self.facts, Feature::Images)?;
        let caller = access::caller(request.extensions()).cloned();
        let conductor = caller.as_deref().map(|caller| caller.name.as_str());
        let signed = request.into_inner().grant;
        let caller = caller.as_deref();
        let grant = self.granted("DownloadImage", caller, conductor, signed.as_ref())?;
        let store = self.store().map_err(|refusal| to_status(&refusal))?.clone();
        incomplete(&grant).map_err(|refusal| to_status(&refusal))?;
        let Some(download) = grant.download.clone() else {
            // A scheduler of an earlier build does not sign it.
            let refusal = grant::invalid("it is for no download");
            return Err(to_status(&refusal.with_hint("upgrade the schedulers")));
        };
        let Ok(turn) = self.puts.clone().try_acquire_owned() else {
            return Err(to_status(&busy(&self.facts.host, "takes", PUTS_MAX)));
        };
        let download = Download {
            host: self.facts.host.clone(),
            settings: self.settings.clone(),
            limits: download::LIMITS,
            store,
            grant,
            download,
            stopping: self.stopping.clone(),
        };
        let (sender, receiver) = mpsc::channel(AHEAD_MAX);
        tokio::spawn(download.serve(turn, sender));
        Ok(ReceiverStream::new(receiver))
    }

    /// Fetches an image from another host, unless it is here.
    ///
    /// # Errors
    ///
    /// When it is not granted, or cannot be fetched.
    pub(crate) async fn fetch(
        &self,
        request: Request<FetchImageRequest>,
    ) -> Result<FetchImageResponse, Status> {
        feature::gate(&self.facts, Feature::Images)?;
        let caller = access::caller(request.extensions()).cloned();
        let wire = request.into_inner();
        let conductor = caller.as_deref().map(|caller| caller.name.as_str());
        let signed = wire.grant.as_ref();
        let grant = self.granted("FetchImage", caller.as_deref(), conductor, signed)?;
        let content = complete(&grant).map_err(|refusal| to_status(&refusal))?;
        let store = self.store().map_err(|refusal| to_status(&refusal))?.clone();
        let fetch = Fetch {
            store,
            grant,
            content,
            origin: Origin {
                host: field::name(&wire.source, "source")?,
                address: wire.source_address,
                grant: wire.grant,
            },
        };
        let fetched = self.fetches.fetch(fetch).await;
        let fetched = fetched.map_err(|refusal| to_status(&at_host(&self.facts.host, refusal)))?;
        Ok(FetchImageResponse { fetched })
    }

    /// Sends an image to the agent of another host.
    ///
    /// # Errors
    ///
    /// When it is not granted, or not here.
    pub(crate) async fn read(
        &self,
        request: Request<ReadImageRequest>,
    ) -> Result<Messages<ReadImageResponse>, Status> {
        feature::gate(&self.facts, Feature::Images)?;
        let caller = access::caller(request.extensions()).cloned();
        let signed = request.into_inner().grant;
        let grant = self.granted("ReadImage", caller.as_deref(), None, signed.as_ref())?;
        let content = complete(&grant).map_err(|refusal| to_status(&refusal))?;
        let store = self.store().map_err(|refusal| to_status(&refusal))?.clone();
        let Ok(turn) = self.readers.clone().try_acquire_owned() else {
            return Err(to_status(&busy(&self.facts.host, "sends", READERS_MAX)));
        };
        let sent = Sent {
            host: self.facts.host.clone(),
            file: grant.file,
            content,
            store,
            stopping: self.stopping.clone(),
        };
        let opening = tokio::task::spawn_blocking(move || {
            let reader = sent.store.open(&sent.file, &sent.content, &sent.stopping);
            reader.map(|reader| (sent, reader))
        });
        let opened = opening.await;
        let opened = opened.map_err(|_| Status::internal("opening the image panicked"))?;
        let (sent, reader) = opened.map_err(|refusal| to_status(&refusal))?;
        let (sender, receiver) = mpsc::channel(AHEAD_MAX);
        tokio::task::spawn_blocking(move || {
            sent.send(reader, &sender);
            drop(turn);
        });
        Ok(ReceiverStream::new(receiver))
    }

    fn store(&self) -> Result<&ImageStore, Refusal> {
        self.store.as_ref().ok_or_else(|| {
            let host = &self.facts.host;
            let message = format!("host {host} has no directory for images");
            refused("NO_IMAGE_DIRECTORY", message)
                .with("host", host)
                .with_hint("set sim.image_dir in the configuration of its agent, which has simulated guests")
        })
    }

    /// Returns what a conductor sends next.
    async fn next(&self, inbound: &mut Streaming<PutImageRequest>) -> Incoming {
        let message = tokio::select! {
            message = timeout(SILENCE_MAX, inbound.message()) => message,
            () = self.stopping.cancelled() => return Incoming::Broken(Some(stopping())),
        };
        let request = match message {
            Ok(Ok(message)) => message.and_then(|message| message.request),
            Ok(Err(_)) => None,
            Err(_) => {
                let seconds = SILENCE_MAX.as_secs();
                let message = format!("nothing came of the image for {seconds} s");
                return Incoming::Broken(Some(refused("IMAGE_INCOMPLETE", message)));
            }
        };
        match request {
            Some(Put::Piece(piece)) => receive::read(piece),
            Some(Put::Open(_)) | None => Incoming::Broken(None),
        }
    }

    /// Returns what the scheduler granted. `conductor` is the caller where it has to be that of the grant.
    fn granted(
        &self,
        method: &str,
        caller: Option<&Identity>,
        conductor: Option<&str>,
        signed: Option<&SignedGrant>,
    ) -> Result<ImageGrant, Status> {
        let line = audit::Line::of(method, caller);
        let granted = self
            .grants
            .check_image(signed, conductor, TimeMs(wall_clock_ms()));
        match &granted {
            Ok(_) => audit::done(&line, "begun"),
            Err(refusal) => audit::refused(&line, &refusal.reason),
        }
        granted.map_err(|refusal| to_status(&refusal))
    }
}

/// Returns a refusal of the files of a host with its name.
fn at_host(host: &HostName, refusal: Refusal) -> Refusal {
    if refusal.reason != "IMAGE_STORE_FAILED" {
        return refusal;
    }
    let message = format!("host {host} cannot store the image: {}", refusal.message);
    let hint = format!("look at the image directory of host {host}, or add it at another: --host");
    Refusal { message, ..refusal }
        .with("host", host)
        .with_hint(hint)
}

/// Refuses to take an image that the cluster has.
fn incomplete(grant: &ImageGrant) -> Result<(), Refusal> {
    if grant.content.is_none() {
        return Ok(());
    }
    let image = grant.file.name();
    let message = format!("image {image} is complete: it is not added again");
    Err(Refusal::new(Code::AlreadyExists, "IMAGE_EXISTS", message))
}

/// Returns what is in an image, of which a grant to fetch or to send it says so.
fn complete(grant: &ImageGrant) -> Result<ImageContent, Refusal> {
    grant.content.ok_or_else(|| {
        grant::invalid("it is for an image that is still being added")
            .with_hint("repeat the request")
    })
}

/// Returns what opens a call that sends an image.
async fn first(inbound: &mut Streaming<PutImageRequest>) -> Result<Open, Status> {
    let message = timeout(SILENCE_MAX, inbound.message()).await;
    let message = message.map_err(|_| Status::deadline_exceeded("no message opens the call"))?;
    match message?.and_then(|message| message.request) {
        Some(Put::Open(open)) => Ok(open),
        Some(Put::Piece(_)) | None => {
            Err(Invalid::new("request", "has to be `open` in the first message").into())
        }
    }
}

/// An image that is sent.
struct Sent {
    host: HostName,
    file: ImageFile,
    content: ImageContent,
    store: ImageStore,
    stopping: CancellationToken,
}

impl Sent {
    /// Sends it. Blocks as long as the reader does not read.
    fn send(
        &self,
        mut image: ImageReader,
        sender: &mpsc::Sender<Result<ReadImageResponse, Status>>,
    ) {
        let mut sum = Sum::new();
        loop {
            let part = match self.stopping.is_cancelled() {
                true => Err(stopping()),
                false => image.next(),
            };
            let piece = part.and_then(|part| match part {
                Some(part) => {
                    sum.add(&part);
                    Ok(match part {
                        ImagePart::Data(bytes) => Piece::Data(bytes.into()),
                        ImagePart::Zeros(count) => Piece::Zeros(count),
                    })
                }
                None => self
                    .examine(std::mem::replace(&mut sum, Sum::new()))
                    .map(|()| Piece::Done(Done {})),
            });
            let is_last = !matches!(piece, Ok(Piece::Data(_) | Piece::Zeros(_)));
            let message = piece.map(|piece| ReadImageResponse {
                piece: Some(ImagePiece { piece: Some(piece) }),
            });
            let message = message.map_err(|refusal| to_status(&refusal));
            // The reader may have disconnected.
            if sender.blocking_send(message).is_err() || is_last {
                return;
            }
        }
    }

    /// Refuses a file that is not the image any more, and forgets it.
    fn examine(&self, sum: Sum) -> Result<(), Refusal> {
        let sum = sum.finish();
        if sum == self.content.sha256 {
            return Ok(());
        }
        self.store.forget(&self.file);
        let (host, image) = (&self.host, self.file.name());
        let message =
            format!("the file of image {image} on host {host} has another checksum: {sum}");
        tracing::error!(image = %self.file, %sum, "the file of an image was changed");
        Err(refused("IMAGE_CHECKSUM", message))
    }
}

fn refused(reason: &str, message: String) -> Refusal {
    Refusal::new(Code::FailedPrecondition, reason, message)
}

/// The refusal of an agent that is stopping.
fn stopping() -> Refusal {
    Refusal::new(Code::Unavailable, "AGENT_STOPPING", "the agent is stopping")
}

fn busy(host: &HostName, does: &str, max: usize) -> Refusal {
    let message = format!("the agent of host {host} {does} {max} images already");
    Refusal::new(Code::Unavailable, "AGENT_BUSY", message).with_hint("repeat the request later")
}
