//! Images: added with their first copy, copied, and removed once no VM has them.
//!
//! Not here: the bytes, which are with the hosts. A removed image is forgotten at once, and its hosts delete
//! their files when they see that it is not listed any more.

use std::sync::Arc;

use berth_domain::id::ImageUid;
use berth_domain::image::{self, COPIES_MAX, IMAGES_MAX, Image, ImageContent};
use berth_domain::name::{HostName, ImageName};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::VmSpec;

use crate::refusals::{cluster_too_old, exists, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn create_image(&mut self, image: &Image) -> Result<Reply, Refusal> {
        if !self.may_write(ServiceVersion::IMAGES) {
            let (present, needed) = (self.state.header.cluster_version, ServiceVersion::IMAGES);
            return Err(cluster_too_old("an image of the cluster", present, needed));
        }
        let name = &image.name;
        if let Some(known) = self.state.image(name) {
            let refusal = exists("image", name);
            return Err(match known.content {
                Some(_) => refusal.with_hint("give the new image another name"),
                None => refusal.with_hint(format!(
                    "it is still being added; if that was broken off, remove it: `berth image remove {name}`"
                )),
            });
        }
        if self.state.images.len() >= IMAGES_MAX {
            let message = format!("the cluster has {IMAGES_MAX} images, as many as there may be");
            return Err(
                Refusal::new(Code::ResourceExhausted, "TOO_MANY_IMAGES", message)
                    .with_hint("remove images that are not used: berth image list")
                    .with("max", IMAGES_MAX),
            );
        }
        let created_at = self.now();
        Ok(Reply::Image(self.put_image(Image {
            content: None,
            copies: [].into(),
            ownership: self.ownership(image.ownership.project.as_ref()),
            created_at,
            ..image.clone()
        })))
    }

    pub(super) fn complete_image(
        &mut self,
        name: &ImageName,
        uid: ImageUid,
        content: &ImageContent,
        host: &HostName,
    ) -> Result<Reply, Refusal> {
        let image = self.known_image(name, Some(uid))?;
        self.examine_known_host(host)?;
        if image.content.is_some_and(|known| known != *content) {
            let message = format!("something else is recorded of image {name}");
            return Err(precondition("IMAGE_DIFFERS", message).with("image", name));
        }
        let mut completed = Image {
            content: Some(*content),
            ..(*image).clone()
        };
        set_copy(&mut completed, host, true);
        Ok(Reply::Image(self.put_image(completed)))
    }

    pub(super) fn set_image_copy(
        &mut self,
        name: &ImageName,
        uid: ImageUid,
        host: &HostName,
        present: bool,
    ) -> Result<Reply, Refusal> {
        let image = self.known_image(name, Some(uid))?;
        image.ready()?;
        self.examine_known_host(host)?;
        let mut changed = (*image).clone();
        set_copy(&mut changed, host, present);
        if changed != *image {
            self.put_image(changed);
        }
        Ok(Reply::None)
    }

    pub(super) fn delete_image(
        &mut self,
        name: &ImageName,
        uid: Option<ImageUid>,
    ) -> Result<Reply, Refusal> {
        let image = self.known_image(name, uid)?;
        let vms = self.state.vms_with_image(&image);
        if let Some(vm) = vms.get_min() {
            let count = vms.len();
            let have = match count {
                1 => format!("vm {vm} has it"),
                count => format!("{count} VMs have it, among them vm {vm}"),
            };
            let message = format!("image {name} is in use: {have}");
            return Err(precondition("IMAGE_IN_USE", message)
                .with_hint("delete or rebuild its VMs first")
                .with("image", name)
                .with("vm", vm)
                .with("vms", count));
        }
        self.remove_image(name);
        Ok(Reply::None)
    }

    /// Refuses a VM of an image that the cluster does not have, or does not have yet.
    pub(super) fn examine_images(&self, spec: &VmSpec) -> Result<(), Refusal> {
        spec.image_files()
            .try_for_each(|file| self.examine_image_file(file))
    }

    /// Refuses the file of an image that the cluster does not have, or does not have yet.
    pub(super) fn examine_image_file(&self, file: &str) -> Result<(), Refusal> {
        if !self.may_write(ServiceVersion::IMAGES) {
            return Ok(());
        }
        match self.state.image_of_file(file)? {
            Some(image) => image.ready().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Forgets the copies of a host that leaves the cluster.
    pub(super) fn drop_copies_of(&mut self, host: &HostName) {
        let images = self.state.images.values();
        let copied = images.filter(|image| image.copies.contains(host));
        let copied: Vec<Arc<Image>> = copied.cloned().collect();
        for image in copied {
            let mut changed = (*image).clone();
            set_copy(&mut changed, host, false);
            self.put_image(changed);
        }
    }

    fn known_image(&self, name: &ImageName, uid: Option<ImageUid>) -> Result<Arc<Image>, Refusal> {
        let image = self.state.image(name);
        let image = image.filter(|image| uid.is_none_or(|uid| image.uid == uid));
        image.cloned().ok_or_else(|| image::not_found(name))
    }

    fn examine_known_host(&self, host: &HostName) -> Result<(), Refusal> {
        match self.state.host(host) {
            Some(_) => Ok(()),
            None => Err(Refusal::not_found("host", host)),
        }
    }
}

/// Notes whether a host has a copy; of one beyond the limit nothing.
fn set_copy(image: &mut Image, host: &HostName, present: bool) {
    let is_full = image.copies.len() >= COPIES_MAX;
    match present {
        true if is_full => false,
        true => image.copies.insert(host.clone()),
        false => image.copies.remove(host),
    };
}
