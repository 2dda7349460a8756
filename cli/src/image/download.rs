//! Has a host download an image. Not here: the bytes, which do not come to this machine.

use std::path::Path;

use berth_domain::image::{ImageDownload, ImageUrl, Scheme};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::TOO_OLD;
use berth_domain::vm::DiskFormat;
use berth_proto::conductor::v1::DownloadImageRequest;
use berth_proto::conductor::v1::download_image_response::Event;
use berth_proto::image::v1::Image;
use berth_proto::types::v1::disk::Format;
use tonic::Status;

use super::progress::ProgressLine;
use super::upload;
use crate::arguments::ImageAdd;
use crate::output;
use crate::session::{Session, resource};
use crate::usage::Usage;

/// Adds an image from a URL, and returns it.
///
/// # Errors
///
/// When the URL is none of an image, and the refusal of the conductor.
pub(super) async fn add(session: &Session, options: &ImageAdd, url: &str) -> anyhow::Result<Image> {
    // Not repeated: it may have a password.
    let url: ImageUrl = url
        .parse()
        .map_err(|why| Usage(format!("the URL of --url {why}")))?;
    let suggested = || upload::suggested(Path::new(url.file_name()));
    let format = options.format.map_or_else(suggested, DiskFormat::from);
    let is_checked = url.scheme() == Scheme::Https || options.sha256.is_some();
    let download = ImageDownload {
        url,
        sha256: options.sha256,
    };
    let host = options.host.as_deref();
    let request = DownloadImageRequest {
        name: resource("images", &options.image),
        format: Format::from(format).into(),
        properties: options.properties.iter().cloned().collect(),
        project: options.project.to_wire(),
        host: host.map(|host| resource("hosts", host)).unwrap_or_default(),
        download: Some((&download).into()),
    };
    let mut conductor = session.conductor().await?;
    let events = conductor.download_image(request).await;
    let mut events = events.map_err(|status| refusal(&status))?.into_inner();
    let mut line = ProgressLine::new();
    let image = loop {
        let message = events.message().await.map_err(|status| refusal(&status))?;
        match message.and_then(|message| message.event) {
            // Without a total nothing can be said of how long it takes.
            Some(Event::Progress(progress)) if progress.total_bytes > 0 => {
                line.show(progress.received_bytes, progress.total_bytes);
            }
            Some(Event::Progress(_)) => {}
            Some(Event::Image(image)) => break image,
            None => {
                return Err(refusal(&Status::unavailable("the conductor ended the call")).into());
            }
        }
    };
    if !is_checked {
        output::message(
            "note: http does not protect what is sent; compare the SHA-256 with its publisher's",
        );
    }
    Ok(image)
}

/// Returns why a conductor did not do it; or that this is not known.
fn refusal(status: &Status) -> Refusal {
    if status.code() == tonic::Code::Unimplemented {
        let message = "the conductor is too old to have an image downloaded";
        return Refusal::new(Code::FailedPrecondition, TOO_OLD, message).with_hint(
            "upgrade the conductor, or send the image: `berth image add NAME --file -`",
        );
    }
    upload::refusal(status)
}
