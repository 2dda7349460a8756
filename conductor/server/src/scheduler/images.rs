//! What is recorded of images, and what is granted with them.

use berth_domain::id::ImageUid;
use berth_domain::image::{Image, ImageContent, ImageDownload, ImageFile};
use berth_domain::name::{HostName, ImageName};
use berth_domain::refusal::Refusal;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::image::v1 as wire;
use berth_proto::image::v1::image_service_client::ImageServiceClient;
use berth_proto::operation::v1::SignedGrant;

use super::{Scheduler, given_or_new, refusal, unreadable};

/// An image, and what agents need to take, fetch or send it.
#[derive(Clone, Debug)]
pub(crate) struct GrantedImage {
    pub(crate) image: Image,
    pub(crate) grant: Option<SignedGrant>,
    /// The hosts that have it and report, and where their agents listen.
    pub(crate) sources: Vec<(HostName, String)>,
}

/// Which image.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    /// The one that has the name.
    Name(&'a ImageName),
    /// The one of a file.
    File(&'a ImageFile),
}

impl Scheduler {
    /// Begins to add an image.
    pub(crate) async fn create_image(
        &self,
        mut request: wire::CreateImageRequest,
    ) -> Result<Image, Refusal> {
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, ImageServiceClient.create_image, request);
        read_image(answer.map_err(refusal)?.image)
    }

    /// Records that a host has all of an image.
    pub(crate) async fn complete_image(
        &self,
        image: &Image,
        content: &ImageContent,
        host: &HostName,
    ) -> Result<wire::Image, Refusal> {
        let request = wire::CompleteImageRequest {
            name: image.name.resource_name(),
            uid: image.uid.to_string(),
            content: Some(content.into()),
            host: host.resource_name(),
            request_id: given_or_new(String::new()),
        };
        let answer = call!(self, ImageServiceClient.complete_image, request);
        Ok(answer.map_err(refusal)?.image.unwrap_or_default())
    }

    /// Records whether a host has a copy of an image.
    pub(crate) async fn set_image_copy(
        &self,
        image: &Image,
        host: &HostName,
        present: bool,
    ) -> Result<(), Refusal> {
        let request = wire::SetImageCopyRequest {
            name: image.name.resource_name(),
            uid: image.uid.to_string(),
            host: host.resource_name(),
            present,
            request_id: given_or_new(String::new()),
        };
        let answer = call!(self, ImageServiceClient.set_image_copy, request);
        answer.map(|_| ()).map_err(refusal)
    }

    /// Removes an image that was not completed.
    pub(crate) async fn delete_image(
        &self,
        name: &ImageName,
        uid: ImageUid,
    ) -> Result<(), Refusal> {
        let request = wire::DeleteImageRequest {
            name: name.resource_name(),
            uid: uid.to_string(),
            request_id: given_or_new(String::new()),
        };
        let answer = call!(self, ImageServiceClient.delete_image, request);
        answer.map(|_| ()).map_err(refusal)
    }

    /// Returns an image with what agents need of it.
    pub(crate) async fn grant_image(&self, which: Which<'_>) -> Result<GrantedImage, Refusal> {
        self.grant(which, None).await
    }

    /// Returns an image with what an agent needs to download it.
    pub(crate) async fn grant_download(
        &self,
        which: Which<'_>,
        download: &ImageDownload,
    ) -> Result<GrantedImage, Refusal> {
        self.grant(which, Some(download)).await
    }

    async fn grant(
        &self,
        which: Which<'_>,
        download: Option<&ImageDownload>,
    ) -> Result<GrantedImage, Refusal> {
        let mut request = wire::GrantImageRequest {
            conductor: self.name.resource_name(),
            download: download.map(Into::into),
            ..wire::GrantImageRequest::default()
        };
        match which {
            Which::Name(name) => request.name = name.resource_name(),
            Which::File(file) => request.file_name = file.to_string(),
        }
        let answer = read!(self, ImageServiceClient.grant_image, request).map_err(refusal)?;
        let source =
            |wire: wire::ImageSource| Ok((field::name(&wire.host, "sources")?, wire.address));
        let sources = answer.sources.into_iter().map(source);
        Ok(GrantedImage {
            image: read_image(answer.image)?,
            grant: answer.grant,
            sources: sources.collect::<Result<_, _>>().map_err(unreadable)?,
        })
    }
}

fn read_image(wire: Option<wire::Image>) -> Result<Image, Refusal> {
    field::required(wire, "image").map_err(unreadable)
}
