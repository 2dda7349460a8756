//! `berth.image.v1.ImageService`: what is known of the cluster's images.
//!
//! Not here: their bytes. Conductors have agents take, fetch and send them, under the grants of this service.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::host::Liveness;
use berth_domain::id::ImageUid;
use berth_domain::image::{self, Image, ImageDownload, ImageFile};
use berth_domain::name::{ImageName, ServiceName};
use berth_domain::ownership::Ownership;
use berth_proto::convert::image::{read_file, read_properties};
use berth_proto::convert::ownership::read_project;
use berth_proto::convert::page::Page;
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::image::v1;
use berth_proto::image::v1::image_service_server::ImageService;
use berth_proto::status::to_status;
use berth_proto::types::v1::disk::Format;
use berth_state::command::Command;
use berth_state::{Reply, State};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::Context;
use super::keyed::{Caller, open};
use super::{list, refusal};
use crate::grants;

/// How many files a host names at a time.
const FILES_MAX: usize = 1000;

/// Serves `ImageService`.
pub(crate) struct ImageApi(pub(crate) Context);

impl ImageApi {
    /// Carries out a command whose outcome is the image as it is then.
    async fn change(&self, caller: Caller, command: Command) -> Result<Option<v1::Image>, Status> {
        let Reply::Image(image) = self.0.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok(Some(counted(&image)))
    }
}

#[tonic::async_trait]
impl ImageService for ImageApi {
    async fn create_image(
        &self,
        request: Request<v1::CreateImageRequest>,
    ) -> Result<Response<v1::CreateImageResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = Command::CreateImage(Image {
            name: field::name(&wire.name, "name")?,
            uid: ImageUid(Uuid::now_v7()),
            format: field::choice::<Format, _>(wire.format, "format")?,
            properties: read_properties(wire.properties, "properties")?,
            content: None,
            copies: [].into(),
            ownership: Ownership::requested(read_project(&wire.project, "project")?),
            created_at: self.0.state(0).await?.time(),
        });
        let image = self.change(caller, command).await?;
        Ok(Response::new(v1::CreateImageResponse { image }))
    }

    async fn complete_image(
        &self,
        request: Request<v1::CompleteImageRequest>,
    ) -> Result<Response<v1::CompleteImageResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = Command::CompleteImage {
            image: field::name(&wire.name, "name")?,
            uid: field::uuid(&wire.uid, "uid")?,
            content: field::required(wire.content, "content")?,
            host: field::name(&wire.host, "host")?,
        };
        let image = self.change(caller, command).await?;
        Ok(Response::new(v1::CompleteImageResponse { image }))
    }

    async fn get_image(
        &self,
        request: Request<v1::GetImageRequest>,
    ) -> Result<Response<v1::GetImageResponse>, Status> {
        let wire = request.into_inner();
        let name: ImageName = field::name(&wire.name, "name")?;
        let state = self.0.state(wire.consistency).await?;
        let image = known(&state, &name)?;
        let vms = state.vms_with_image(image).len();
        Ok(Response::new(v1::GetImageResponse {
            image: Some(counted(image)),
            vm_count: u32::try_from(vms).unwrap_or(u32::MAX),
            revision: state.revision(),
        }))
    }

    async fn list_images(
        &self,
        request: Request<v1::ListImagesRequest>,
    ) -> Result<Response<v1::ListImagesResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::new(wire.page_size, &wire.page_token)?;
        let state = self.0.state(wire.consistency).await?;
        let (images, next_page_token) = list::page(
            state.images(),
            &page,
            |text| ImageName::new(text).ok(),
            ImageName::to_string,
            |_| true,
        )?;
        let listed = |image: &Image| v1::Image {
            copies: Vec::new(),
            properties: BTreeMap::new(),
            ..counted(image)
        };
        Ok(Response::new(v1::ListImagesResponse {
            images: images.iter().map(|image| listed(image)).collect(),
            next_page_token,
            revision: state.revision(),
        }))
    }

    async fn set_image_copy(
        &self,
        request: Request<v1::SetImageCopyRequest>,
    ) -> Result<Response<v1::SetImageCopyResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = Command::SetImageCopy {
            image: field::name(&wire.name, "name")?,
            uid: field::uuid(&wire.uid, "uid")?,
            host: field::name(&wire.host, "host")?,
            present: wire.present,
        };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::SetImageCopyResponse {}))
    }

    async fn delete_image(
        &self,
        request: Request<v1::DeleteImageRequest>,
    ) -> Result<Response<v1::DeleteImageResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = Command::DeleteImage {
            image: field::name(&wire.name, "name")?,
            uid: field::optional_uuid(&wire.uid, "uid")?.map(ImageUid),
        };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::DeleteImageResponse {}))
    }

    async fn find_unused_image_files(
        &self,
        request: Request<v1::FindUnusedImageFilesRequest>,
    ) -> Result<Response<v1::FindUnusedImageFilesResponse>, Status> {
        let files = read_files(&request.into_inner().file_names)?;
        let unused = self.0.state(0).await?.unused_files(&files);
        Ok(Response::new(v1::FindUnusedImageFilesResponse {
            file_names: unused.iter().map(ImageFile::to_string).collect(),
        }))
    }

    async fn grant_image(
        &self,
        request: Request<v1::GrantImageRequest>,
    ) -> Result<Response<v1::GrantImageResponse>, Status> {
        let wire = request.into_inner();
        let conductor: ServiceName = field::name(&wire.conductor, "conductor")?;
        let download: Option<ImageDownload> = field::optional(wire.download, "download")?;
        let state = self.0.state(0).await?;
        let image = match wire.file_name.is_empty() {
            true => known(&state, &field::name(&wire.name, "name")?)?,
            false => {
                let file = read_file(&wire.file_name, "file_name")?;
                let image = known(&state, file.name())?;
                if image.file() != file {
                    return Err(to_status(&image::not_found(file)));
                }
                image
            }
        };
        Ok(Response::new(v1::GrantImageResponse {
            image: Some(counted(image)),
            grant: grants::signed_image(&state, image, download, &conductor, state.time()),
            sources: sources(&state, image),
        }))
    }
}

/// Reads the names of files, each once.
fn read_files(names: &[String]) -> Result<BTreeSet<ImageFile>, Invalid> {
    field::bounded(names.len(), "file_names", FILES_MAX)?;
    let files = names.iter().map(|name| read_file(name, "file_names"));
    files.collect()
}

fn known<'s>(state: &'s State, name: &ImageName) -> Result<&'s Image, Status> {
    let image = state.image(name);
    image
        .map(|image| &**image)
        .ok_or_else(|| to_status(&image::not_found(name)))
}

fn counted(image: &Image) -> v1::Image {
    v1::Image {
        copy_count: u32::try_from(image.copies.len()).unwrap_or(u32::MAX),
        ..image.into()
    }
}

/// Returns the hosts that have an image and report.
fn sources(state: &State, image: &Image) -> Vec<v1::ImageSource> {
    let views = image.copies.iter().filter_map(|name| state.host(name));
    let up = views.filter(|view| view.host.liveness == Liveness::Up);
    up.map(|view| v1::ImageSource {
        host: view.host.name.resource_name(),
        address: view.host.report.agent_address.clone(),
    })
    .collect()
}
